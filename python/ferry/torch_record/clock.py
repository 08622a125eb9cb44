"""The model clock: when each request of the recorded script would run on the device.

The rules are those of the simulator (docs/simulator.md, "How are times computed?"). Order is that of
CUDA streams: a request starts after the one before it in its stream, on an engine that is free.
"""

from .profile import POLL_NS

COMPUTE, UPLOAD, DOWNLOAD = 0, 1, 2


class Stream:
    """A stream's timeline. `end_ns`: when its last request ends. `owes`: points (stream, seq) for
    which its next request waits."""

    __slots__ = ("number", "seq", "end_ns", "owes")

    def __init__(self, number):
        self.number, self.seq, self.end_ns, self.owes = number, 0, 0, None

    @classmethod
    def until(cls, number, seq, end_ns):
        """The timeline of a stream as it was at one of its requests."""
        made = cls(number)
        made.seq, made.end_ns = seq, end_ns
        return made


class Clock:
    """The host's model time, three engines and the streams."""

    def __init__(self):
        self.now_ns = 0
        self.engine_ns = [0, 0, 0]

    def run(self, engine, stream, duration_ns, submit_ns):
        """Submits a request; returns when it starts and ends."""
        self.now_ns += submit_ns
        start = self.now_ns
        free = self.engine_ns[engine]
        if free > start:
            start = free
        if stream.end_ns > start:
            start = stream.end_ns
        end = start + duration_ns
        self.engine_ns[engine] = stream.end_ns = end
        return start, end

    def wait(self, until_ns, wake_ns):
        """The host waits for a moment; returns for how long."""
        before = self.now_ns
        self.now_ns += POLL_NS
        if until_ns > self.now_ns:
            self.now_ns = until_ns + wake_ns
        return self.now_ns - before
