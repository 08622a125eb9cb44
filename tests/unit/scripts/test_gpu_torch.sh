#!/usr/bin/env bash
# The bars of bench/gpu_torch.py, with stand-ins for ferry, the probe and torch whose figures are
# known: figures that reach or miss a bar, and figures below those of the bare driver calls. It
# proves nothing about a card. Usage: test_gpu_torch.sh BUILD_DIR
set -uo pipefail
root=$(cd "$(dirname "$0")/../../.." && pwd)
if ! command -v python3 >/dev/null; then
    echo "skipped: there is no python3"
    exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0
fail() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}
export PYTHONDONTWRITEBYTECODE=1

python3 "$root/bench/gpu_torch.py" >"$work/said" 2>&1
[ $? -eq 2 ] || fail "no arguments are no usage error"
python3 "$root/bench/gpu_torch.py" --help >"$work/said" 2>&1 || fail "--help fails"
for text in "--probe CUDA_PROBE" "--seconds N" "Exit 77"; do grep -q -e "$text" "$work/said" || fail "--help does not say '$text'"; done

# torch: everything takes no time, except the figures that gpu_torch.py returns; those are replaced
# below.
mkdir -p "$work/torch"
cat >"$work/torch/__init__.py" <<'END'
import sys
from unittest.mock import MagicMock

class Module:
    def to(self, *_, **__):
        return self
    def parameters(self):
        return []
    def __call__(self, x):
        return self.forward(x)
    training = True

cuda = MagicMock()
cuda.is_available.return_value = True
cuda.get_device_name.return_value = "a stand-in"
version = MagicMock(cuda="13.0")
__version__ = "0"
nn = MagicMock(Module=Module)
uint8 = float
for name in "device backends zeros ones empty rand randint randperm manual_seed optim channels_last".split():
    setattr(sys.modules[__name__], name, MagicMock())
END
cat >"$work/run.py" <<'END'
"""Runs gpu_torch.py with torch's figures fixed: 4,000 ns an op, 900,000 ns a step, a copy in 3,000,000 ns, 1,000 ns an allocation."""
import sys
source = open(sys.argv[1], encoding="utf-8").read()
source = source.replace("sys.exit(main())", """
host_ns_of_an_op = lambda: 4000
pinned_ns = lambda: 3000000
malloc_async_ns = lambda: 1000
Training.ns_per_step = lambda self: 900000
sys.exit(main())""")
sys.argv = sys.argv[1:]
exec(compile(source, sys.argv[0], "exec"))
END
cat >"$work/ferry" <<'END'
#!/bin/sh
case "$*" in
calibrate*) echo '{"figures": [{"figure": "launch_submit_ns", "value": 2000}]}' ;;
"bench train"*) echo '{"rows": [{"case": "mnist", "mode": "eager", "ns_per_step": 200000}, {"case": "lenet", "mode": "eager", "ns_per_step": 800000}]}' ;;
"train mnist"*) echo '{"images_per_s": 640000}' ;;
"train lenet"*) echo '{"images_per_s": 2560000}' ;;
*--pieces\ 1\ *) echo '{"rows": [{"mode": "pinned", "direction": "up", "ns": 2050000}]}' ;;
*--pieces\ 256*) echo '{"rows": [{"mode": "loop", "direction": "up", "ns": 1000}, {"mode": "coalesced", "direction": "up", "ns": 100}]}' ;;
"bench alloc"*) echo '{"rows": [{"allocator": "ferry-device", "pattern": "same", "ns_per_pair": 30}]}' ;;
esac
END
cat >"$work/probe" <<'END'
#!/bin/sh
[ "$1" = 0 ] || exit 1
echo '{"rows": [{"what": "launch_128_bytes", "ns": 1800}, {"what": "launches_32_until_done", "ns": 60000},
    {"what": "graph_32_until_done", "ns": 95000}, {"what": "up_pinned_64MiB", "ns": 2000000}]}'
END
chmod +x "$work/ferry" "$work/probe"
PYTHONPATH=$work python3 "$work/run.py" "$root/bench/gpu_torch.py" --probe "$work/probe" "$work/ferry" cuda:0 2 >"$work/out.json" 2>"$work/said" ||
    fail "gpu_torch.py fails: $(cat "$work/said" "$work/out.json")"
python3 - "$work/out.json" <<'END' || fail "the bars are not as promised"
import json, sys
found = json.load(open(sys.argv[1], encoding="utf-8"))
rows = {(row["what"], row["peer"]): row for row in found["rows"]}
def expect(what, peer, verdict, ratio=None):
    row = rows[(what, peer)]
    assert row["verdict"] == verdict, row
    assert ratio is None or abs(row["ratio"] - ratio) < 1e-6, row
assert found["rounds"] == 2 and found["failures"] == [], found["failures"]
op = "host ns of an eager op"
expect(op, "cuLaunchKernel, 128 bytes", "reached", 2000 / 1800)
expect(op, "torch", "below the bare calls", 0.5)  # 0.4 x 4000 ns is less than one bare launch
expect("mnist eager ns a step", "torch", "reached")
expect("lenet eager ns a step", "torch", "missed")
expect("mnist graph ns a step", "torch, eager", "below the bare calls", 100000 / 900000)
expect("mnist graph ns a step", "a bare graph of 32 launches", None)
expect("pinned 64 MiB up ns", "cuMemcpyHtoDAsync", "missed", 1.025)
expect("allocator pair ns", "cudaMallocAsync", "missed")
expect("256 x 4 KiB up at once ns", "ferry, in a loop", "reached", 0.1)
END
# Without a probe there is no bare figure, and a missed bar is only reported. No time is 0: one
# round runs in any case.
PYTHONPATH=$work python3 "$work/run.py" "$root/bench/gpu_torch.py" --seconds 0 "$work/ferry" cuda:0 9 >"$work/out.json" 2>"$work/said" ||
    fail "gpu_torch.py fails without a probe: $(cat "$work/said")"
python3 - "$work/out.json" <<'END' || fail "without a probe it is not as promised"
import json, sys
found = json.load(open(sys.argv[1], encoding="utf-8"))
rows = {(row["what"], row["peer"]): row for row in found["rows"]}
assert found["rounds"] == 1
assert rows[("host ns of an eager op", "cuLaunchKernel, 128 bytes")]["ratio"] is None
assert rows[("host ns of an eager op", "torch")]["verdict"] == "missed"
END
# A failing probe is reported as a failure.
printf '#!/bin/sh\necho "no such card" >&2\nexit 1\n' >"$work/probe"
PYTHONPATH=$work python3 "$work/run.py" "$root/bench/gpu_torch.py" --probe "$work/probe" "$work/ferry" cuda:0 1 >"$work/out.json" 2>&1 && fail "a failing probe passes"
grep -q "no such card" "$work/out.json" || fail "a failing probe's reason is lost: $(cat "$work/out.json")"

[ $failures -eq 0 ] && echo "ok"
exit $((failures > 0))
