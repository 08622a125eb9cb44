"""Streams, tickets and downloads: order, and what is not there yet."""

from __future__ import annotations

import asyncio
import atexit
import itertools
import time
from typing import Any, Generator, List, Optional, Sequence, Set, Tuple, Union

from ferry import _c, _errors
from ferry._device import Device, as_device
from ferry._scope import Block
from ferry._tensor import Tensor, transfer_options
from ferry._types import FOREVER, Handle, Value, check_callable

EXIT_WAIT_S = 1.0
_pending: Set[int] = set()
_numbers = itertools.count(1)


def _resolve(future: Any, status: int) -> None:
    if future.done():
        return
    if status:
        future.set_exception(
            _errors._of(status, "the request failed: wait for its ticket or result")
        )
    else:
        future.set_result(None)


@atexit.register
def _finish() -> None:
    """Functions of tickets that are nearly done run before Python ends, not into its end."""
    deadline = time.monotonic() + EXIT_WAIT_S
    while _pending and time.monotonic() < deadline:
        time.sleep(0.001)


class Ticket(Value):
    """A point on a stream's timeline: poll it, wait for it, await it."""

    __slots__ = ("_as_parameter_",)
    _instead = "wait for it in this process"

    @property
    def is_done(self) -> bool:
        """Whether the request is done. Raises what it failed with. Waits for nothing."""
        state = _c.fy_ticket_poll(self)
        if state == _c.FY_POLL_FAILED:
            _c.fy_ticket_wait(self, 0)
        return state == _c.FY_POLL_DONE

    def wait(self, timeout_ns: int = FOREVER) -> None:
        """Waits: one sync. Fails: Timeout (the request goes on), or as the request."""
        _c.fy_ticket_wait(self, timeout_ns)

    def on_done(self, function: Any) -> None:
        """Calls function(status) once, on Ferry's callback thread, also if it is done already."""
        check_callable("on_done", "function", function)
        self._then(lambda status: function(_errors.Status(status)))

    def _then(self, action: Any) -> None:
        number = next(_numbers)

        def done(status: int) -> None:
            try:
                action(status)
            finally:
                _pending.discard(number)

        _pending.add(number)
        try:
            _c.fy_ticket_on_done(self, done)
        except BaseException:
            _pending.discard(number)
            raise

    def cancel(self) -> None:
        """Cancels a transfer that is still in its engine's queue. Fails: Busy."""
        _c.fy_ticket_cancel(self)

    def __await__(self) -> Generator[Any, None, None]:
        loop = asyncio.get_running_loop()
        future = loop.create_future()

        def done(status: int) -> None:
            try:
                loop.call_soon_threadsafe(_resolve, future, status)
            except RuntimeError:  # the loop was closed in the meantime
                pass

        self._then(done)
        return (yield from future.__await__())

    def __repr__(self) -> str:
        value = self._as_parameter_
        return f"ferry.Ticket(stream={value.stream}, seq={value.seq})"


class Download(Handle):
    """Bytes that are being copied to the host. There is no host tensor before wait() made it.

    Made by Tensor.download. Dropped without a wait, it is cancelled if it has not started.
    """

    _instead = "wait(), and pass the tensor on"

    def __init__(self, handle: Any) -> None:
        self._as_parameter_ = handle

    @property
    def ticket(self) -> Ticket:
        return Ticket._of(_c.fy_download_ticket(self))

    def wait(self, timeout_ns: int = FOREVER) -> Tensor:
        """Waits: one sync. The host tensor. Fails: Timeout, RefusedByGuard, the request's fault."""
        return _c.fy_download_wait(self, timeout_ns)

    def poll(self) -> Optional[Tensor]:
        """The host tensor if the bytes have arrived, else None. No sync."""
        return _c.fy_download_try(self)

    def __await__(self) -> Generator[Any, None, Tensor]:
        yield from self.ticket.__await__()
        return self.wait()


class Stream(Block):
    """A queue of one device. A program rarely needs one: every device has three of its own.

    native: a queue of another library to wrap, a CUstream as an integer. `with stream:` sends this
    thread's ops on its device to it.
    """

    def __init__(
        self, device: Union[Device, str], name: Optional[str] = None, priority: int = 0,
        native: Optional[int] = None,
    ) -> None:  # fmt: skip
        options = _c.fy_stream_options_t(priority=priority, native=native, name=name or None)
        self.device = as_device(device)
        self._as_parameter_ = _c.fy_stream_create(self.device, options)

    def record(self) -> Ticket:
        """The point after everything submitted so far."""
        return Ticket._of(_c.fy_stream_record(self))

    def wait(self, ticket: Ticket) -> None:
        """Orders later work of the stream behind the ticket's request; the host does not wait."""
        _c.fy_stream_wait(self, ticket)

    def record_event(self, event: int) -> None:
        """Records a CUDA event of another library behind everything submitted so far.

        event: a CUevent as an integer, such as torch.cuda.Event().cuda_event.
        """
        _c.fy_native_event_record(self.device, self, event)

    def wait_event(self, event: int) -> None:
        """Orders later work behind what a CUDA event of another library was recorded behind."""
        _c.fy_native_event_wait(self.device, self, event)

    def _begin(self) -> Tuple[Any, ...]:
        return "stream", _c.fy_stream_set_current, self


def download_many(tensors: Sequence[Tensor], dtype: Any = None) -> List[Download]:
    """Requests several downloads; small ones cross packed."""
    handles = _c.fy_tensor_download_many(tensors, transfer_options(dtype))
    return [Download(handle) for handle in handles]
