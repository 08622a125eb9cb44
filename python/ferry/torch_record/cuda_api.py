"""Replaces torch.cuda, torch.accelerator and what asks them: one device of the profile, whose
streams and events are those of the model clock."""

import threading

import torch

from .clock import Stream as Timeline
from .profile import POLL_NS

CUDA = torch.device("cuda", 0)


def constant(value):
    return lambda *args, **kwargs: value


def patch_cuda(patches, recorder, mode):
    cuda, profile = torch.cuda, recorder.profile
    memory = profile.memory_nbytes

    class Event:
        """torch.cuda.Event on the model clock."""

        def __init__(self, *args, **kwargs):
            self.at_ns, self.stream, self.seq = 0, None, 0

        def record(self, stream=None):
            line = stream.line if stream is not None else recorder.stream()
            self.at_ns = max(line.end_ns, recorder.clock.now_ns)
            self.stream, self.seq = line.number, line.seq

        def synchronize(self):
            if self.stream is not None:
                recorder.synchronize("Event.synchronize",
                                     Timeline.until(self.stream, self.seq, self.at_ns))

        def query(self):
            recorder.clock.now_ns += POLL_NS
            return self.at_ns <= recorder.clock.now_ns

        def wait(self, stream=None):
            line = stream.line if stream is not None else recorder.stream()
            if self.stream is not None:
                behind(line, self.stream, self.seq, self.at_ns)

        def elapsed_time(self, other):
            return (other.at_ns - self.at_ns) / 1e6

    class Stream:
        """torch.cuda.Stream on the model clock."""

        device, priority = CUDA, 0

        def __init__(self, *args, line=None, **kwargs):
            self.line = line or recorder.open_stream()
            self.outer = []

        def synchronize(self):
            recorder.synchronize("Stream.synchronize", self.line)

        def query(self):
            recorder.clock.now_ns += POLL_NS
            return self.line.end_ns <= recorder.clock.now_ns

        def wait_stream(self, other):
            if other.line is not self.line:
                behind(self.line, other.line.number, other.line.seq, other.line.end_ns)

        def wait_event(self, event):
            event.wait(self)

        def record_event(self, event=None):
            event = event or Event()
            event.record(self)
            return event

        def is_capturing(self):
            return False

        def __enter__(self):
            self.outer.append(recorder.thread.stream)
            recorder.thread.stream = self.line
            return self

        def __exit__(self, *exc):
            recorder.thread.stream = self.outer.pop()

    def behind(line, number, seq, end_ns):
        line.end_ns = max(line.end_ns, end_ns)
        if seq:
            line.owes = (line.owes or []) + [(number, seq)]

    class Context:
        """torch.cuda.device and its like."""

        def __init__(self, *args, **kwargs):
            pass

        def __enter__(self):
            return self

        def __exit__(self, *exc):
            return False

    def current_stream(*args, **kwargs):
        return Stream(line=recorder.stream())

    values = dict(
        _lazy_init=None, is_available=True, device_count=1, current_device=0, set_device=None,
        is_initialized=True, init=None, empty_cache=None, manual_seed=None, manual_seed_all=None,
        get_device_name="NVIDIA %s (simulated)" % profile.name.upper(),
        get_device_capability=profile.capability, is_bf16_supported=profile.capability >= (8, 0),
        reset_peak_memory_stats=None, ipc_collect=None, set_rng_state=None, memory_stats={},
        set_rng_state_all=None, get_rng_state_all=[], is_current_stream_capturing=False,
        mem_get_info=(memory, memory), memory_summary="", set_stream=None,
        get_rng_state=torch.zeros(16, dtype=torch.uint8), get_arch_list=[])
    for name, value in values.items():
        patches.set(cuda, name, constant(value))

    def synchronize(*args, **kwargs):
        recorder.synchronize("torch.cuda.synchronize")
    properties = type("_CudaDeviceProperties", (), dict(
        name=values["get_device_name"], total_memory=memory, major=profile.capability[0],
        minor=profile.capability[1], multi_processor_count=132))
    for name, value in dict(
            synchronize=synchronize, memory_allocated=lambda *a, **k: recorder.live,
            max_memory_allocated=lambda *a, **k: recorder.peak,
            memory_reserved=lambda *a, **k: recorder.peak,
            max_memory_reserved=lambda *a, **k: recorder.peak,
            get_device_properties=constant(properties), Event=Event, Stream=Stream,
            current_stream=current_stream,
            default_stream=lambda *a, **k: Stream(line=recorder.streams[1]),
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
