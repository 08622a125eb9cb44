"""The writer of the event file (docs/internals/events.md): storages, ops, copies, waits, scopes.

One Recorder writes one file. Its methods format lines by hand, because json.dumps costs more than
the op; texts go through json.dumps once and are kept. Frees come from finalizers, which only append
to a list: the next event writes them first.
"""

import ctypes
import gzip
import json
import os
import threading
import time
import weakref
import zlib

import torch

from .clock import COMPUTE, DOWNLOAD, UPLOAD, Clock, Stream
from .sites import Sites

untyped = torch._C.TensorBase.untyped_storage
BLOCK, FLUSH_LINES = 512, 8192
WAYS = {UPLOAD: "upload", DOWNLOAD: "download"}


class Storage(weakref.ref):
    """Device memory of a torch storage: its number in the file, version, block. It is the weak
    reference to the storage, too."""

    __slots__ = ("key", "number", "version", "block", "nbytes", "pinned")


class Thread(threading.local):
    """What the recorder knows of a thread."""

    number = 0
    scopes = ()  # paths of open scopes
    who = ""  # the keys "thread" and "scope" of its lines
    is_inside = False  # in a kernel: tensors report where their bytes are
    to_device = None  # a copy that Python asked for: to the device, or to the host
    reason = None  # of a download
    category = None  # of new storages
    stream = None
    updated = None  # the optimizer that has just done its step


class Recorder:
    def __init__(self, path, root, profile, host_op_ns, source, notes):
        self.profile, self.host_op_ns = profile, host_op_ns
        self.out = gzip.open(path, "wt", 6) if path.endswith(".gz") else open(path, "w")
        self.lines, self.events, self.is_on = [], 0, True
        self.lock, self.thread = threading.RLock(), Thread()
        self.threads = 0
        self.clock, self.sites = Clock(), Sites(root)
        self.streams = [None] + [Stream(number) for number in (1, 2, 3)]
        self.ordered = {}  # (stream, other): the other's request for which it waits already
        self.device, self.pinned, self.host = {}, {}, {}  # storages by key
        self.dead = []
        self.live = self.peak = self.numbers = self.blocks = self.pinned_blocks = self.ops = 0
        self.signatures, self.sites_written = {}, 1
        self.time = self.common = ""
        self.steps_of = None  # the optimizer whose updates divide the run into steps
        self.wants_step = False
        self.start_ns, self.process = time.monotonic_ns(), os.getpid()
        self.out.write(json.dumps({
            "ev": "ferry", "version": 1, "library": "torch " + torch.__version__,
            "source": source, "process": self.process, "start_ns": self.start_ns,
            "unix_ns": time.time_ns(), "approximations": "; ".join(notes)}) + "\n")
        self.put("device", '"device":"sim:0","backend":"torch_record","model":"%s profile",'
                 '"profile":"%s","options":"","bytes":%d'
                 % (profile.name, profile.name, profile.memory_nbytes))
        for pool in ("sim:0", "pinned memory of sim:0"):
            self.put("pool", '"pool":"%s","live_bytes":0,"reserved_bytes":0' % pool)
        for number, name in ((1, "compute"), (2, "upload"), (3, "download")):
            self.put("stream", '"stream":%d,"device":"sim:0","name":"%s"' % (number, name))

    # ---- lines ----

    def begin(self):
        """The keys that most lines share, from now on and for this thread."""
        thread = self.thread
        if not thread.who:
            self.threads += 1
            thread.number = self.threads
            thread.who = '"thread":%d,"scope":""' % thread.number
        self.time = f'"t_ns":{time.monotonic_ns() - self.start_ns}'
        self.common = f'{self.time},"model_ns":{self.clock.now_ns},{thread.who}'

    def put(self, kind, rest=None):
        self.begin()
        self.lines.append('{"ev":"%s",%s%s}\n' % (kind, self.common, "," + rest if rest else ""))
        if len(self.lines) >= FLUSH_LINES:
            self.flush()

    def set_scopes(self, scopes):
        thread = self.thread
        thread.scopes = scopes
        thread.who = '"thread":%d,"scope":%s' % (
            thread.number, json.dumps(scopes[-1] if scopes else ""))

    def flush(self):
        self.events += len(self.lines)
        self.out.write("".join(self.lines))
        self.lines.clear()

    def site(self):
        number = self.sites.here()
        while self.sites_written < len(self.sites.texts):
            self.put("site", '"id":%d,"site":%s' % (
                self.sites_written, json.dumps(self.sites.texts[self.sites_written])))
            self.sites_written += 1
        return number

    def close(self):
        """In the child of a fork: its copies of lines that were not written are dropped."""
        if os.getpid() != self.process:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, self.out.fileno())
            os.close(null)
            return
        with self.lock:
            self.begin()
            self.free_dead()
            while self.thread.scopes:
                self.leave()
            self.is_on = False
            self.flush()
            self.out.write('{"ev":"end","t_ns":%d,"events":%d,"lost":0}\n' % (
                time.monotonic_ns() - self.start_ns, self.events))
            self.out.close()

    def forget(self):
        """In the child of a fork: nothing is recorded."""
        self.is_on = False
        self.lines.clear()
        self.lock = threading.RLock()

    # ---- scopes ----

    def enter(self, name):
        if not self.is_on:
            return
        with self.lock:
            self.begin()
            scopes = self.thread.scopes
            outer = scopes[-1] + "/" if scopes else ""
            self.set_scopes(scopes + (outer + name.replace("/", "."),))
            self.put("scope_begin")

    def leave(self):
        scopes = self.thread.scopes
        if not self.is_on or not scopes:
            return
        with self.lock:
            if self.dead:
                self.begin()
                self.free_dead()
            self.put("scope_end")
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

    def begin_step(self):
        self.wants_step = False
        self.enter("step")

    # ---- storages ----

    def find(self, tensor):
        return self.device.get(untyped(tensor)._cdata)

    def died(self, storage):
        """A finalizer: it may run inside any line of Python, so it takes no lock."""
        if self.device.get(storage.key) is storage:
            del self.device[storage.key]
        elif self.pinned.get(storage.key) is storage:
            del self.pinned[storage.key]
        self.dead.append(storage)

    def free_dead(self):
        """Writes the frees since the last event, with the keys of `begin`."""
        dead, common = self.dead, self.common
        while dead:
            storage = dead.pop()
            if storage.pinned:
                pool = "pinned memory of sim:0"
            else:
                pool = "sim:0"
                self.live -= storage.nbytes
            self.lines.append(f'{{"ev":"block_free",{common},"pool":"{pool}","block":'
                              f'{storage.block},"bytes":{storage.nbytes}}}\n')

    def add(self, tensor, category, site=0):
        """Counts the storage of `tensor` as device memory."""
        torch_storage = untyped(tensor)
        key = torch_storage._cdata
        storage = self.device.get(key)
        if storage is not None:
            return storage
        requested = torch_storage.nbytes()
        nbytes = -(-requested // BLOCK) * BLOCK
        storage = Storage(torch_storage, self.died)
        self.numbers = storage.number = number = self.numbers + 1
        self.blocks = storage.block = block = self.blocks + 1
        storage.key, storage.version, storage.pinned = key, 0, False
        storage.nbytes = nbytes
        self.device[key] = storage
        self.live += nbytes
        if self.live > self.peak:
            self.peak = self.live
        common, category = self.common, self.thread.category or category
        self.lines.append(
            f'{{"ev":"block_alloc",{common},"site":{site},"pool":"sim:0","block":{block},"bytes":'
            f'{nbytes},"requested_bytes":{requested},"category":"{category}","stream":1}}\n')
        self.lines.append(
            f'{{"ev":"storage",{common},"storage":{number},"device":"sim:0","bytes":{requested},'
            f'"block":{block}}}\n')
        return storage

    def pin(self, tensor):
        """Counts the storage of `tensor` as page-locked memory of the host."""
        inner = untyped(tensor)
        if inner._cdata in self.pinned or not self.is_on:
            return tensor
        with self.lock:
            nbytes = inner.nbytes()
            storage = Storage(inner, self.died)
            self.pinned_blocks += 1
            storage.key, storage.number, storage.version = inner._cdata, 0, 0
            storage.block, storage.nbytes, storage.pinned = self.pinned_blocks, nbytes, True
            self.pinned[storage.key] = storage
            self.put("block_alloc", '"pool":"pinned memory of sim:0","block":%d,"bytes":%d,'
                     '"requested_bytes":%d,"category":"staging"' % (
                         storage.block, nbytes, nbytes))
        return tensor

    def adopt(self, tensor, source, name):
        """Counts `tensor`, which C++ copied from `source` without an op that the mode sees."""
        if not self.is_on:
            return
        with self.lock:
            self.begin()
            site, old = self.site(), self.find(source)
            nbytes = 2 * old.nbytes
            self.op(name, site, "", 0, nbytes, self.profile.op_ns(0, nbytes, "f32"),
                    [(old.number, old.version)], [self.add(tensor, "other", site)], None)

    def is_pinned(self, tensor):
        return untyped(tensor)._cdata in self.pinned

    def host_operand(self, tensor, is_written):
        """Number and version of the bytes of a host tensor. The version changes with the bytes."""
        torch_storage, nbytes = untyped(tensor), tensor.numel() * tensor.element_size()
        key = (torch_storage._cdata, tensor.storage_offset(), tensor.shape, tensor.stride(),
               tensor.dtype)
        check = checksum(tensor)
        known = self.host.get(key)
        if known is None or known[0]() is not torch_storage:
            self.numbers += 1
            known = self.host[key] = [
                weakref.ref(torch_storage, lambda _: self.host.pop(key, None)), self.numbers, 0,
                check]
            self.put("storage", '"storage":%d,"device":"host","bytes":%d%s' % (
                self.numbers, nbytes,
                ',"pinned":true' if torch_storage._cdata in self.pinned else ""))
            return known[1], known[2]
        if is_written or check != known[3]:
            known[2] += 1
        known[3] = check
        return known[1], known[2]

    # ---- requests ----

    def open_stream(self):
        """A stream of the script."""
        stream = Stream(len(self.streams))
        self.streams.append(stream)
        if self.is_on:
            with self.lock:
                self.put("stream", '"stream":%d,"device":"sim:0","name":"stream %d"' % (
                    stream.number, stream.number))
        return stream

    def stream(self):
        return self.thread.stream or self.streams[1]

    def order(self, stream, other, seq):
        """`stream` waits for a request of another stream."""
        if other != stream.number and self.ordered.get((stream.number, other), 0) < seq:
            self.ordered[stream.number, other] = seq
            self.put("wait", '"stream":%d,"seq":%d,"on_stream":%d,"on_seq":%d,"site":"STREAM"' % (
                stream.number, stream.seq + 1, other, seq))

    def pay(self, stream):
        """Orders the stream's next request behind those that it must wait for."""
        owes, stream.owes = stream.owes, None
        for other, seq in owes:
            self.order(stream, other, seq)

    def op(self, name, site, signature, flops, nbytes, duration_ns, src, dst, node):
        """An op on the device."""
        stream = self.thread.stream or self.streams[1]
        if stream.owes:
            self.pay(stream)
        start, end = self.clock.run(COMPUTE, stream, duration_ns, self.host_op_ns)
        stream.seq += 1
        self.ops += 1
        for storage in dst:
            storage.version += 1
        more = len(src) > 8 or len(dst) > 8
        reads = ",".join(["[%d,%d]" % pair for pair in (src[:8] if more else src)])
        writes = ",".join(["[%d,%d]" % (s.number, s.version) for s in (dst[:8] if more else dst)])
        node = f',"node":"{node.name()}"' if node is not None else ""
        self.lines.append(
            f'{{"ev":"op",{self.time},"model_ns":{self.clock.now_ns},{self.thread.who},"site":'
            f'{site},"number":{self.ops},"op":"{name}","device":"sim:0","stream":{stream.number},'
            f'"seq":{stream.seq},"flops":{flops},"bytes":{nbytes}{signature},"src":[{reads}],'
            f'"dst":[{writes}],"model_start_ns":{start},"model_end_ns":{end}{node}}}\n')
        if more:
            for i in range(8, max(len(src), len(dst)), 8):
                self.put("operands", '"of":%d,"src":[%s],"dst":[%s]' % (
                    self.ops, ",".join("[%d,%d]" % pair for pair in src[i:i + 8]),
                    ",".join("[%d,%d]" % (s.number, s.version) for s in dst[i:i + 8])))
        if len(self.lines) >= FLUSH_LINES:
            self.flush()

    def copy(self, engine, nbytes, src, dst, reason, is_pinned, is_blocking, site):
        """A copy over the link; a blocking one waits. `src`, `dst`: (storage, version) or None."""
        queue, stream, way = self.streams[engine + 1], self.stream(), WAYS[engine]
        if stream.seq:
            self.order(queue, stream.number, stream.seq)
        submitted = self.clock.now_ns + self.profile.copy_submit_ns
        start, end = self.clock.run(engine, stream, self.profile.copy_ns(nbytes, is_pinned),
                                    self.profile.copy_submit_ns)
        queue.seq += 1
        stream.owes = [owed for owed in stream.owes or () if owed[0] != queue.number]
        stream.owes.append((queue.number, queue.seq))
        self.put("copy", '"direction":"%s","bytes":%d' % (way, nbytes))
        held_ns = 0
        if not is_pinned:  # the driver returns when it has read or written the bytes
            self.clock.now_ns = end + self.profile.wake_ns
            held_ns = self.clock.now_ns - submitted
        elif is_blocking and engine == UPLOAD:
            held_ns = self.clock.wait(end, self.profile.wake_ns)
        self.put("transfer", '"direction":"%s","path":"%s","reason":%s,"pinned":%s,"blocking":%s,'
                 '%s"priority":0,"device":"sim:0","stream":%d,"seq":%d,"bytes":%d,'
                 '"blocked_ns":%d,"site":%s,"src":%s,"dst":%s,"model_start_ns":%d,'
                 '"model_end_ns":%d' % (
                     way, "direct" if is_pinned else "pageable", json.dumps(reason),
                     "true" if is_pinned else "false",
                     "true" if is_blocking or not is_pinned else "false",
                     '"contract":"borrow",' if engine == UPLOAD else "", queue.number, queue.seq,
                     nbytes, held_ns if engine == UPLOAD else 0,
                     json.dumps(self.sites.texts[site]), pair(src), pair(dst), start, end))
        if not is_blocking and is_pinned:
            return
        if engine == DOWNLOAD and is_pinned:
            held_ns = self.clock.wait(end, self.profile.wake_ns)
        self.waited(way + "_wait", reason, held_ns, site, queue.number, queue.seq)
        if engine == DOWNLOAD:
            self.put("arrived", '"device":"sim:0","stream":%d,"seq":%d,"bytes":%d,"blocked_ns":%d,'
                     '"status":"OK"' % (queue.number, queue.seq, nbytes, held_ns))

    def waited(self, what, reason, blocked_ns, site, stream, seq):
        self.put("sync", '"what":"%s","reason":%s,"stream":%d,"seq":%d,"blocked_ns":%d,"site":%s'
                 % (what, json.dumps(reason), stream, seq, blocked_ns,
                    json.dumps(self.sites.texts[site])))

    def synchronize(self, reason, stream=None):
        """The host waits for a stream, or for the device."""
        if not self.is_on:
            return
        with self.lock:
            site = self.site()
            last = stream or self.streams[1]
            until = stream.end_ns if stream else max(self.clock.engine_ns)
            blocked = self.clock.wait(until, self.profile.wake_ns)
            self.waited("ticket_wait" if stream else "device_wait", reason, blocked, site,
                        last.number, last.seq)


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
