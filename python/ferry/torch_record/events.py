"""The writer of the event file (docs/internals/events.md): copies, waits, scopes, steps.

Recorder extends the C type Core (python/recorder/), which formats the lines of ops and storages and
keeps the model clock. Frees come from weak references, which only note them: the next line of an op
or a scope writes them first.
"""

import ctypes
import gzip
import json
import os
import queue
import threading
import time
import weakref
import zlib

import torch

from ._recorder import Core
from .ops import DOWNLOAD, UPLOAD, Group, Info, Signature

Base = torch._C.TensorBase
untyped = Base.untyped_storage
WAYS = {UPLOAD: "upload", DOWNLOAD: "download"}
LIBRARY = os.path.dirname(os.__file__) + os.sep
# Of call sites: files of this package, of PyTorch, and of Python that call the script's functions.
SKIPPED = (os.path.dirname(os.path.abspath(__file__)) + os.sep,
           os.path.dirname(torch.__file__) + os.sep, "<", LIBRARY + "runpy", LIBRARY + "contextlib",
           LIBRARY + "threading", LIBRARY + "multiprocessing")


class Thread(threading.local):
    """What Python knows of a thread; Core has the rest."""

    scopes = ()  # paths of open scopes
    reason = None  # of a download
    updated = None  # the optimizer that has just done its step


class Writer:
    """A thread that writes the file, compressed if its name ends in .gz, behind a bounded queue of
    chunks. An error of the file is raised by the next call."""

    def __init__(self, path):
        self.file = gzip.open(path, "wb", 6) if path.endswith(".gz") else open(path, "wb")
        self.chunks, self.error = queue.Queue(8), None
        self.thread = threading.Thread(target=self.run, name="torch_record", daemon=True)
        self.thread.start()

    def run(self):
        while (chunk := self.chunks.get()) is not None:
            try:
                if self.error is None:
                    self.file.write(chunk)
            except BaseException as error:  # without this thread a full queue blocks the script
                self.error = error

    def write(self, chunk):
        if self.error is not None:
            raise self.error
        self.chunks.put(chunk)

    def close(self):
        self.chunks.put(None)
        self.thread.join()
        self.file.close()
        if self.error is not None:
            raise self.error

    def drop(self):
        """In the child of a fork, which has no such thread: its copy of the file's buffer is not
        written."""
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, self.file.fileno())
        os.close(null)


class Recorder(Core):
    def __init__(self, path, root, profile, host_op_ns, source, notes, slow):
        # DLPack refuses tensors of "meta" by a C++ exception, which takes 10 ms
        exchange = None if slow.is_meta else getattr(
            torch.Tensor, "__dlpack_c_exchange_api__", None)
        super().__init__(Base, untyped, torch._C._current_autograd_node, torch.is_grad_enabled,
                         slow.backing, exchange, host_op_ns, profile.poll_ns)
        self.profile, self.thread = profile, Thread()
        self.slow, self.backing, self.mode = slow, slow.backing, None  # Core calls slow
        self.root, self.host = os.path.abspath(root) + os.sep, {}
        self.sites, self.site_numbers = ["?"], {"?": 0}  # texts: "file.py:12"
        self.steps_of = None  # the optimizer whose updates divide the run into steps
        self.process = os.getpid()
        self.out = Writer(path)
        self.write = self.out.write
        self.write(json.dumps({
            "ev": "ferry", "version": 1, "library": "torch " + torch.__version__,
            "source": source, "process": self.process, "start_ns": self.start_ns,
            "unix_ns": time.time_ns(), "approximations": "; ".join(notes)}).encode() + b"\n")
        self.line("device", '"device":"sim:0","backend":"torch_record","model":"%s profile",'
                  '"profile":"%s","options":"","bytes":%d'
                  % (profile.name, profile.name, profile.memory_bytes))
        for pool in ("sim:0", "pinned memory of sim:0"):
            self.line("pool", '"pool":"%s","live_bytes":0,"reserved_bytes":0' % pool)
        for number, name in ((1, "compute"), (2, "upload"), (3, "download")):
            self.line("stream", '"stream":%d,"device":"sim:0","name":"%s"' % (number, name))

    # ---- calls of Core ----

    def describe(self, func):
        return Info(func).facts()

    def sign(self, info, func, args, kwargs, out, sources, results):
        signature = Signature(info, func, args, kwargs or {}, out, sources, results, self.profile)
        return signature.text, signature.flops, signature.nbytes, signature.duration_ns

    def compose(self, func, args, kwargs):
        with self.mode:
            return func.decompose(*args, **(kwargs or {}))

    def has_mask(self, args):
        """Does the index of an op have a mask of bools?"""
        return any(t is not None and t.dtype in (torch.bool, torch.uint8) for t in args[1])

    def read_back(self, nbytes, source, name, site):
        self.copy(DOWNLOAD, nbytes, (source.number, source.version) if source else None, None,
                  name, True, True, site)

    def is_skipped(self, code):
        return code.co_filename.startswith(SKIPPED)

    def add_site(self, frame):
        path = os.path.abspath(frame.f_code.co_filename).removeprefix(self.root)
        text = "%s:%d" % (path, frame.f_lineno)
        if text not in self.site_numbers:
            self.line("site", '"id":%d,"site":%s' % (len(self.sites), json.dumps(text)))
            self.site_numbers[text] = len(self.sites)
            self.sites.append(text)
        return self.site_numbers[text]

    def begin_step(self):
        self.wants_step = False
        self.enter("step")

    # ---- the recording ----

    def close(self):
        """In the child of a fork: its copies of lines that were not written are dropped."""
        if os.getpid() != self.process:
            self.out.drop()
            return
        with self:
            self.free_dead()
            while self.thread.scopes:
                self.leave()
            self.is_on = False
            self.flush()
            self.write(b'{"ev":"end","t_ns":%d,"events":%d,"lost":0}\n' % (
                time.monotonic_ns() - self.start_ns, self.events))
            self.out.close()

    # ---- scopes ----

    def set_scopes(self, scopes):
        self.thread.scopes = scopes
        self.set_scope(json.dumps(scopes[-1] if scopes else ""))

    def enter(self, name):
        if not self.is_on:
            return
        with self:
            scopes = self.thread.scopes
            outer = scopes[-1] + "/" if scopes else ""
            self.set_scopes(scopes + (outer + name.replace("/", "."),))
            self.line("scope_begin")

    def leave(self):
        scopes = self.thread.scopes
        if not self.is_on or not scopes:
            return
        with self:
            self.free_dead()
            self.line("scope_end")
            self.set_scopes(scopes[:-1])

    def in_step(self):
        scopes = self.thread.scopes
        return bool(scopes) and scopes[-1].rsplit("/", 1)[-1] == "step"

    def end_step(self, optimizer):
        """An update is done. The next request begins a step, which lasts until the next update."""
        if not self.is_on:
            return
        if self.steps_of is None:
            self.steps_of = weakref.ref(optimizer)
        if self.steps_of() is optimizer:
            if self.in_step():
                self.leave()
            self.wants_step = True

    # ---- storages ----

    def adopt(self, tensor, source, name):
        """Counts `tensor`, which C++ copied from `source` without an op that the mode sees."""
        if self.is_on:
            with self:
                self.record(Group(name), (source,), None, tensor, None)

    def host_operand(self, tensor, is_written):
        """Number and version of the bytes of a host tensor. The version changes with the bytes."""
        torch_storage, nbytes = untyped(tensor), tensor.numel() * tensor.element_size()
        key = (torch_storage._cdata, tensor.storage_offset(), tensor.shape, tensor.stride(),
               tensor.dtype)
        check = checksum(tensor)
        known = self.host.get(key)
        if known is None or known[0]() is not torch_storage:
            number = self.new_number()
            known = self.host[key] = [
                weakref.ref(torch_storage, lambda _: self.host.pop(key, None)), number, 0, check]
            self.line("storage", '"storage":%d,"device":"host","bytes":%d%s' % (
                number, nbytes, ',"pinned":true' if self.is_pinned(tensor) else ""))
            return known[1], known[2]
        if is_written or check != known[3]:
            known[2] += 1
        known[3] = check
        return known[1], known[2]

    # ---- requests ----

    def open_stream(self):
        """A stream of the script: its number."""
        with self:
            number = self.new_stream()
            if self.is_on:
                self.line("stream", '"stream":%d,"device":"sim:0","name":"stream %d"' % (
                    number, number))
            return number

    def copy(self, engine, nbytes, src, dst, reason, is_pinned, is_blocking, site):
        """A copy over the link; a blocking one waits. `src`, `dst`: (storage, version) or None."""
        profile, way = self.profile, WAYS[engine]
        submitted = self.now_ns + profile.copy_submit_ns
        queue, seq, start, end = self.copy_begins(
            engine, profile.copy_ns(nbytes, is_pinned), profile.copy_submit_ns)
        self.line("copy", '"direction":"%s","bytes":%d' % (way, nbytes))
        held_ns = 0
        if not is_pinned:  # the driver returns when it has read or written the bytes
            self.now_ns = end + profile.wake_ns
            held_ns = self.now_ns - submitted
        elif is_blocking and engine == UPLOAD:
            held_ns = self.wait_until(end, profile.wake_ns)
        self.line("transfer", '"direction":"%s","path":"%s","reason":%s,"pinned":%s,"blocking":%s,'
                  '%s"priority":0,"device":"sim:0","stream":%d,"seq":%d,"bytes":%d,'
                  '"blocked_ns":%d,"site":%s,"src":%s,"dst":%s,"model_start_ns":%d,'
                  '"model_end_ns":%d' % (
                      way, "direct" if is_pinned else "pageable", json.dumps(reason),
                      "true" if is_pinned else "false",
                      "true" if is_blocking or not is_pinned else "false",
                      '"contract":"borrow",' if engine == UPLOAD else "", queue, seq, nbytes,
                      held_ns if engine == UPLOAD else 0, json.dumps(self.sites[site]),
                      pair(src), pair(dst), start, end))
        if not is_blocking and is_pinned:
            return
        if engine == DOWNLOAD and is_pinned:
            held_ns = self.wait_until(end, profile.wake_ns)
        self.waited(way + "_wait", reason, held_ns, site, queue, seq)
        if engine == DOWNLOAD:
            self.line("arrived", '"device":"sim:0","stream":%d,"seq":%d,"bytes":%d,'
                      '"blocked_ns":%d,"status":"OK"' % (queue, seq, nbytes, held_ns))

    def waited(self, what, reason, blocked_ns, site, stream, seq):
        self.line("sync", '"what":"%s","reason":%s,"stream":%d,"seq":%d,"blocked_ns":%d,"site":%s'
                  % (what, json.dumps(reason), stream, seq, blocked_ns,
                     json.dumps(self.sites[site])))

    def synchronize(self, reason, point=None):
        """The host waits for a point (stream, seq, end) or, None, for the device."""
        if not self.is_on:
            return
        with self:
            stream, seq, until = point or (1, self.point(1)[0], self.idle_at())
            site = self.site()
            blocked = self.wait_until(until, self.profile.wake_ns)
            self.waited("ticket_wait" if point else "device_wait", reason, blocked, site, stream,
                        seq)


def pair(operand):
    return "[%d,%d]" % operand if operand else "null"


def checksum(tensor):
    """Of the bytes of a host tensor: whether they have changed."""
    if tensor.is_meta or tensor.numel() == 0:
        return 0
    flat = tensor.detach()
    if not flat.is_contiguous():
        flat = flat.contiguous()
    nbytes = flat.numel() * flat.element_size()
    return zlib.adler32((ctypes.c_char * nbytes).from_address(flat.data_ptr()))
