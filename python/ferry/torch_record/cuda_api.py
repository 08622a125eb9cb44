"""Replaces torch.cuda, torch.accelerator and what asks them: one device of the profile, whose
streams and events are those of the model clock."""

import threading

import torch

from .ops import is_cuda

CUDA = torch.device("cuda", 0)


def constant(value):
    return lambda *args, **kwargs: value


def patch_cuda(patches, recorder):
    cuda, profile = torch.cuda, recorder.profile
    memory = profile.memory_bytes

    class Event:
        """torch.cuda.Event on the model clock: a point (stream, seq, end) of a stream."""

        def __init__(self, *args, **kwargs):
            self.at = None

        def record(self, stream=None):
            self.at = point_of(number_of(stream))

        def synchronize(self):
            if self.at:
                recorder.synchronize("Event.synchronize", self.at)

        def query(self):
            recorder.now_ns += profile.poll_ns
            return not self.at or self.at[2] <= recorder.now_ns

        def wait(self, stream=None):
            if self.at:
                recorder.behind(number_of(stream), *self.at)

        def elapsed_time(self, other):
            return (other.at[2] - self.at[2]) / 1e6

    class Stream:
        """torch.cuda.Stream on the model clock. Streams with the same number are equal."""

        device, priority, device_index, device_type = CUDA, 0, 0, 1

        def __init__(self, *args, number=None, **kwargs):
            self.stream_id = number or recorder.open_stream()
            self.cuda_stream, self.outer = self.stream_id - 1, []

        def __eq__(self, other):
            return isinstance(other, Stream) and other.stream_id == self.stream_id

        def __hash__(self):
            return hash(self.stream_id)

        def synchronize(self):
            recorder.synchronize("Stream.synchronize", point_of(self.stream_id))

        def query(self):
            recorder.now_ns += profile.poll_ns
            return recorder.point(self.stream_id)[1] <= recorder.now_ns

        def wait_stream(self, other):
            recorder.behind(self.stream_id, *point_of(other.stream_id))

        def wait_event(self, event):
            event.wait(self)

        def record_event(self, event=None):
            event = event or Event()
            event.record(self)
            return event

        def is_capturing(self):
            return False

        def __enter__(self):
            self.outer.append(recorder.stream)
            recorder.stream = self.stream_id
            return self

        def __exit__(self, *exc):
            recorder.stream = self.outer.pop()

    def number_of(stream):
        return recorder.stream if stream is None else stream.stream_id

    def point_of(number):
        """The last request of a stream, which may be later than the host."""
        seq, end_ns = recorder.point(number)
        return number, seq, max(end_ns, recorder.now_ns)

    def set_stream(stream):
        if stream is not None:
            recorder.stream = stream.stream_id

    def set_device(device=None, *args):
        if isinstance(device, (int, str, torch.device)) and device != -1:
            is_cuda(torch.device(device))

    class Context:
        """torch.cuda.device and its like."""

        def __init__(self, *args, **kwargs):
            set_device(*args)

        def __enter__(self):
            return self

        def __exit__(self, *exc):
            return False

    def current_stream(*args, **kwargs):
        return Stream(number=recorder.stream)

    values = dict(
        _lazy_init=None, is_available=True, device_count=1, current_device=0,
        is_initialized=True, init=None, empty_cache=None, manual_seed=None, manual_seed_all=None,
        get_device_name="NVIDIA %s (simulated)" % profile.name.upper(),
        get_device_capability=profile.capability, is_bf16_supported=profile.capability >= (8, 0),
        reset_peak_memory_stats=None, ipc_collect=None, set_rng_state=None, memory_stats={},
        set_rng_state_all=None, get_rng_state_all=[], is_current_stream_capturing=False,
        mem_get_info=(memory, memory), memory_summary="",
        get_rng_state=torch.zeros(16, dtype=torch.uint8), get_arch_list=[])
    for name, value in values.items():
        patches.set(cuda, name, constant(value))

    def synchronize(*args, **kwargs):
        recorder.synchronize("torch.cuda.synchronize")
    properties = type("_CudaDeviceProperties", (), dict(
        name=values["get_device_name"], total_memory=memory, major=profile.capability[0],
        minor=profile.capability[1], multi_processor_count=132))
    for name, value in dict(
            set_device=set_device, synchronize=synchronize, memory_allocated=lambda *a, **k: recorder.live,
            max_memory_allocated=lambda *a, **k: recorder.peak,
            memory_reserved=lambda *a, **k: recorder.peak,
            max_memory_reserved=lambda *a, **k: recorder.peak,
            get_device_properties=constant(properties), Event=Event, Stream=Stream,
            current_stream=current_stream,
            default_stream=lambda *a, **k: Stream(number=1), set_stream=set_stream,
            stream=lambda stream: stream or Context(), device=Context,
            device_of=Context).items():
        patches.set(cuda, name, value)
    accelerator = torch.accelerator
    for name, value in dict(
            is_available=constant(True), current_accelerator=constant(torch.device("cuda")),
            device_count=constant(1), set_device_index=constant(None),
            set_device_idx=constant(None), current_device_index=constant(0),
            current_device_idx=constant(0), synchronize=synchronize,
            current_stream=current_stream).items():
        patches.set(accelerator, name, value)

    old_generator = torch.Generator

    class Generator(old_generator):
        """torch.Generator(device="cuda") makes the host's numbers."""

        def __new__(cls, device="cpu"):
            return old_generator.__new__(cls, device="cpu")
    patches.set(torch, "Generator", Generator)
    patches.set(torch.backends.cudnn, "is_acceptable", constant(False))


def patch_threads(patches, mode):
    """Threads of the script enter the mode."""
    old_run = threading.Thread.run

    def run(self):
        with mode:
            old_run(self)
    patches.set(threading.Thread, "run", run)
