"""Figures of simulated devices: those of backends/sim/profile.c (docs/simulator.md)."""

FIELDS = ("memory_nbytes", "f32", "f64", "f16", "bf16", "memory_bytes_per_s", "pinned_bytes_per_s",
          "pageable_bytes_per_s", "launch_submit_ns", "copy_submit_ns", "copy_setup_ns", "wake_ns",
          "capability")
MIB, T, G = 1 << 20, 1e12, 1e9
PROFILES = {
    "v100": (16160 * MIB, 15.7 * T, 7.8 * T, 125 * T, 15.7 * T, 900 * G, 12 * G, 8 * G,
             1500, 7000, 2000, 11000, (7, 0)),
    "a100": (81920 * MIB, 19.5 * T, 19.5 * T, 312 * T, 312 * T, 2039 * G, 25 * G, 10 * G,
             1300, 6000, 1000, 7000, (8, 0)),
    "h100": (81559 * MIB, 67 * T, 67 * T, 989.5 * T, 989.5 * T, 3350 * G, 52 * G, 12 * G,
             1000, 5000, 500, 3500, (9, 0)),
    "h200": (143771 * MIB, 67 * T, 67 * T, 989.5 * T, 989.5 * T, 4800 * G, 52 * G, 12 * G,
             1000, 5000, 500, 3500, (9, 0)),
}
KERNEL_NS, POLL_NS = 2000, 200


class Profile:
    """The figures of one device, by name."""

    def __init__(self, name):
        self.name = name
        for field, value in zip(FIELDS, PROFILES[name]):
            setattr(self, field, value)

    def op_ns(self, flops, nbytes, dtype):
        """Model time of an op: the slower of arithmetic and memory, and the kernel's start."""
        rate = getattr(self, {"f64": "f64", "f16": "f16", "bf16": "bf16"}.get(dtype, "f32"))
        return int(max(flops / rate, nbytes / self.memory_bytes_per_s) * 1e9 + 0.999) + KERNEL_NS

    def copy_ns(self, nbytes, pinned):
        """Model time of a copy over the link."""
        per_s = self.pinned_bytes_per_s if pinned else self.pageable_bytes_per_s
        return int(nbytes / per_s * 1e9 + 0.999) + self.copy_setup_ns
