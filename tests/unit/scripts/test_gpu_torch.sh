#!/usr/bin/env bash
# The bars of bench/gpu_torch.py, with stand-ins for ferry, the probe and torch whose figures are
# known: figures that reach or miss a bar, and figures below those of the bare driver calls. It
# proves nothing about a card. Usage: test_gpu_torch.sh BUILD_DIR
# shellcheck source=tests/support/test.inc.sh
. "$(dirname "$0")/../../support/test.inc.sh" "$1"
needs_command python3
export PYTHONDONTWRITEBYTECODE=1

python3 "$root/bench/gpu_torch.py" >"$work/said" 2>&1
[ $? -eq 2 ] || fail "no arguments are no usage error"
python3 "$root/bench/gpu_torch.py" --help >"$work/said" 2>&1 || fail "--help fails"
for text in "--kernels KERNELS" "--probe CUDA_PROBE" "--seconds N" "Exit 77"; do grep -q -e "$text" "$work/said" || fail "--help does not say '$text'"; done

# torch: an empty one; the figures that gpu_torch.py takes from it are replaced below.
mkdir -p "$work/torch"
cat >"$work/torch/__init__.py" <<'END'
import sys
from unittest.mock import MagicMock

class Module:
    pass

cuda = MagicMock()
cuda.is_available.return_value = True
cuda.get_device_name.return_value = "a stand-in"
version = MagicMock(cuda="13.0")
__version__ = "0"
nn = MagicMock(Module=Module)
for name in "device backends".split():
    setattr(sys.modules[__name__], name, MagicMock())
END
cat >"$work/run.py" <<'END'
"""Runs gpu_torch.py with torch's figures fixed: 900,000 ns a step, 4,000 ns an op, a copy in 3,000,000 ns, 1,000 ns an allocation; resnet18
cannot be captured."""
import sys
source = open(sys.argv[1], encoding="utf-8").read()
source = source.replace("sys.exit(main())", """
class Training:
    def __init__(self, batch, precision, name):
        self.name, self.graph, self.step = name, None, None
    def capture(self):
        if self.name == "resnet18":
            raise RuntimeError("not captured")
        self.graph = 1
time_of = lambda call: 900000
torch_kernels = lambda: {"add": 2000, "attention": 1000}
torch_small = lambda: {"op": 4000, "pinned": 3000000, "pair": 1000}
models = lambda: {name: (name + ":size=32", 64, "f32", name) for name in ("resnet18", "gpt", "mobilenet_v3_large", "mnist")}
sys.exit(main())""")
sys.argv = sys.argv[1:]
exec(compile(source, sys.argv[0], "exec"))
END
cat >"$work/ferry" <<'END'
#!/bin/sh
case "$*" in
calibrate*) echo '{"figures": [{"figure": "launch_submit_ns", "value": 2000}]}' ;;
"train mnist:size=32 --batch 64 --precision f32"*--graph*) echo '{"images_per_s": 640000}' ;;
"train mnist"*) echo '{"images_per_s": 320000}' ;;
train*) echo '{"images_per_s": 64000}' ;;
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
cat >"$work/kernels" <<'END'
#!/bin/sh
echo '{"rows": [{"what": "add", "ns": 1900}, {"what": "attention", "ns": 9000}, {"what": "new", "ns": 5}]}'
END
chmod +x "$work/ferry" "$work/probe" "$work/kernels"
# compared STATUS ARGUMENT...
compared() {
    local want=$1 status
    shift
    PYTHONPATH=$work python3 "$work/run.py" "$root/bench/gpu_torch.py" "$@" >"$work/out.jsonl" 2>"$work/said"
    status=$?
    [ $status -eq "$want" ] || fail "gpu_torch.py $*: exit status $status, not $want: $(cat "$work/said" "$work/out.jsonl")"
}
compared 1 --probe "$work/probe" --kernels "$work/kernels" "$work/ferry" cuda:0 2
python3 - "$work/out.jsonl" <<'END' || fail "the bars are not as promised"
import json, sys
first, *found = [json.loads(line) for line in open(sys.argv[1], encoding="utf-8")]
failures = [each for each in found if "failure" in each]
rows = {(row["what"], row["peer"]): row for row in found if "failure" not in row}
def expect(what, peer, verdict, ratio=None):
    row = rows[(what, peer)]
    assert row["verdict"] == verdict, row
    assert ratio is None or abs(row["ratio"] - ratio) < 1e-6, row
assert first["torch"] == "0" and first["card"] == "a stand-in"
assert [each["what"] for each in failures] == ["torch, replayed: resnet18"] and "not captured" in failures[0]["failure"]
# the worst first
assert [each["what"] for each in found[:3]] == ["attention ns", "new ns", "add ns"]
expect("attention ns", "torch", "missed", 9)
expect("add ns", "torch", "reached", 0.95)
expect("new ns", "torch", None)
op = "host ns of an eager op"
expect(op, "cuLaunchKernel, 128 bytes", "reached", 2000 / 1800)
expect(op, "torch", "below the bare calls", 0.5)  # 0.4 x 4000 ns is less than one bare launch
expect("mnist eager ns a step", "torch", "reached", 200000 / 900000)
expect("mnist graph ns a step", "torch, eager", "below the bare calls", 100000 / 900000)
expect("mnist graph ns a step", "torch, replayed", "reached")
expect("gpt eager ns a step", "torch", "missed", 1000000 / 900000)
expect("resnet18 graph ns a step", "torch, replayed", None)
expect("pinned 64 MiB up ns", "cuMemcpyHtoDAsync", "missed", 1.025)
expect("allocator pair ns", "cudaMallocAsync", "missed")
expect("256 x 4 KiB up at once ns", "ferry, in a loop", "reached", 0.1)
END
# Without a probe there is no bare figure, and a missed bar is only reported. No time is 0: the first
# part runs in any case.
compared 1 --seconds 0 --kernels "$work/kernels" "$work/ferry" cuda:0 9
grep -q '"attention ns"' "$work/out.jsonl" || fail "nothing was compared in no time"
grep -q '"what": "gpt", "failure": "TimeoutError: no time left after 0 s"' "$work/out.jsonl" || fail "what had no time is not named"
compared 1 "$work/ferry" cuda:0 1
grep -q '"what": "host ns of an eager op", "ferry": 2000, "peer": "torch", .* "verdict": "missed"' "$work/out.jsonl" || fail "without a probe a bar is wrong"
# A failing probe is reported as a failure, and the rest runs.
printf '#!/bin/sh\necho "no such card" >&2\nexit 1\n' >"$work/probe"
compared 1 --probe "$work/probe" "$work/ferry" cuda:0 1
grep -q "no such card" "$work/out.jsonl" || fail "a failing probe's reason is lost: $(cat "$work/out.jsonl")"
grep -q "allocator pair" "$work/out.jsonl" || fail "a failing probe ends the rest"
