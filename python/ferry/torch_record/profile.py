"""Figures of devices, from the simulator (docs/simulator.md)."""

from ferry import Device

CAPABILITIES = {"v100": (7, 0), "a100": (8, 0), "h100": (9, 0), "h200": (9, 0)}


class Profile:
    """The figures of one device, by name: wake_ns, f32_flops_per_s, memory_bytes_per_s, ..."""

    def __init__(self, name):
        self.name, self.capability = name, CAPABILITIES[name]
        for field, value in Device("sim:0?profile=" + name).facts().items():
            if value.isdigit():
                setattr(self, field, int(value))

    def op_ns(self, flops, nbytes, dtype):
        """Model time of an op: the slower of arithmetic and memory, and the kernel's start."""
        rate = getattr(self, dtype + "_flops_per_s", self.f32_flops_per_s)
        slower = max(flops / rate, nbytes / self.memory_bytes_per_s)
        return int(slower * 1e9 + 0.999) + self.kernel_ns

    def copy_ns(self, nbytes, pinned):
        """Model time of a copy over the link."""
        per_s = self.pinned_bytes_per_s if pinned else self.pageable_bytes_per_s
        return int(nbytes / per_s * 1e9 + 0.999) + self.copy_setup_ns
