"""Tests of ferry.torch_record: what a recording of each script in torch/ holds. Runs in the Python
that $FERRY_TORCH_PYTHON names if this one has no PyTorch, and skips without it. The `ferry` command
beside $FERRY_LIBRARY reads the recordings."""

import collections
import contextlib
import io
import json
import os
import re
import runpy
import subprocess
import sys
import tempfile
import unittest

try:
    import torch

    torch.Tensor  # the folder torch/ beside this file is a package of that name, too
except (ImportError, AttributeError):
    torch = None

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
BUILD = os.path.dirname(os.environ.get("FERRY_LIBRARY", os.path.join(ROOT, "build", "release", "lib")))
FERRY = os.path.join(BUILD, "bin", "ferry")
TORCH_PYTHON = os.environ.get("FERRY_TORCH_PYTHON", "")


def script(name):
    return os.path.join(HERE, "torch", name)


def lines_of(path):
    with open(path) as file:
        return file.read().splitlines()


def on_host(name, *args):
    """What the script prints with --device cpu, run in this process."""
    out, argv = io.StringIO(), sys.argv
    sys.argv = [script(name), "--device", "cpu", *args]
    try:
        with contextlib.redirect_stdout(out):
            runpy.run_path(script(name), run_name="__main__")
    finally:
        sys.argv = argv
    return out.getvalue()


class Recording:
    """The events of a script, its output, and the sums of its transfers."""

    def __init__(self, name, *args, options=()):
        with tempfile.TemporaryDirectory() as folder:
            self.path = os.path.join(folder, "run.jsonl")
            done = subprocess.run(
                [sys.executable, "-m", "ferry.torch_record", "--host-op-ns", "5000", *options,
                 self.path, script(name), *args], capture_output=True, text=True)
            self.out, self.err, self.status = done.stdout, done.stderr, done.returncode
            with open(self.path) as file:
                lines = [json.loads(line) for line in file]
            self.ledger = self.advice = self.predicted = None
            if os.access(FERRY, os.X_OK):
                self.ledger = self.ferry("ledger")
                self.advice = self.ferry("advise")
                self.predicted = self.ferry("predict")
        self.first, self.events, self.end = lines[0], lines[1:-1], lines[-1]
        self.sites = {e["id"]: e["site"] for e in self.events if e["ev"] == "site"}

    def ferry(self, command):
        return json.loads(subprocess.run([FERRY, command, self.path, "--json"], check=True,
                                         stdout=subprocess.PIPE, text=True).stdout)

    def of(self, kind, **keys):
        return [e for e in self.events
                if e["ev"] == kind and all(e.get(k) == v for k, v in keys.items())]

    def site(self, event):
        site = event.get("site")
        return self.sites.get(site, "?") if isinstance(site, int) else site


class TorchRecordTest(unittest.TestCase):
    def record(self, name, *args, options=()):
        run = Recording(name, *args, options=options)
        self.assertEqual(run.status, 0, run.err[-2000:])
        self.assertEqual(run.end["ev"], "end")
        self.assertEqual(run.end["events"], len(run.events))
        self.assertIn("autocast", run.first["approximations"])
        self.check_storages(run)
        return run

    def check_storages(self, run):
        """Blocks are freed once; versions of a storage rise; requests of a stream have an order."""
        live, versions, seqs = set(), {}, collections.Counter()
        for e in run.events:
            if e["ev"] == "block_alloc":
                live.add((e["pool"], e["block"]))
            elif e["ev"] == "block_free":
                live.remove((e["pool"], e["block"]))
            elif e["ev"] == "op":
                self.assertEqual(e["seq"], seqs[e["stream"]] + 1)
                seqs[e["stream"]] += 1
                self.assertLess(e["model_start_ns"], e["model_end_ns"])
                for storage, version in e["dst"]:
                    self.assertGreater(version, versions.get(storage, 0) if e["dst"] else -1)
                    versions[storage] = version

    def dtypes(self, run, op):
        forms = {e["id"]: e["dtypes"] for e in run.of("signature")}
        return forms[op["signature"]]

    def transfers(self, run, way):
        return [(e["bytes"], e["pinned"], e["blocking"]) for e in run.of("transfer", direction=way)]

    def test_mnist_moves_exact_bytes(self):
        run = self.record("mnist.py")
        self.assertEqual(run.out, on_host("mnist.py"))
        parameters = [4 * n for n in (4 * 9, 4, 8 * 4 * 9, 8, 1152 * 10, 10)]
        batch = [(32 * 784 * 4, True, False), (32 * 8, True, False)]
        self.assertEqual(self.transfers(run, "upload"),
                         [(n, False, True) for n in parameters] + 6 * batch)
        self.assertEqual(self.transfers(run, "download"), 6 * [(4, True, True)])
        waits = collections.Counter((e["reason"], e["site"]) for e in run.of("sync"))
        line = [i for i, t in enumerate(lines_of(script("mnist.py")), 1) if "loss.item()" in t][0]
        self.assertEqual(waits["item", "mnist.py:%d" % line], 6)
        self.assertTrue(run.of("op", op="native_dropout"))
        self.assertTrue(run.of("op", node="ConvolutionBackward0"))
        if run.ledger:
            total = run.ledger["scopes"][0]
            self.assertEqual([total["uploads"], total["downloads"]], [18, 6])
            self.assertEqual(total["upload_bytes"], sum(parameters) + 6 * (32 * 784 * 4 + 256))
            self.assertEqual(run.advice["steps"], 6)
            self.assertIn("FA08", [f["id"] for f in run.advice["findings"]])
            self.assertEqual(run.predicted["recorded"]["model_ns"],
                             run.predicted["predicted"]["model_ns"])

    def test_tensors_report_the_devices_of_a_machine_with_a_card(self):
        """With --numerics off, too. Copies of the backward are transfers."""
        mine, lone = 5 * ["cuda:0"] + 5 * ["cpu"], ["cuda:0"] * 4
        want = ["no default %s" % (mine + ["cpu"] * 4)]
        for name in ("cuda", "cuda:0", "cpu"):
            want += ["%s %s" % (name, mine + (["cpu"] * 4 if name == "cpu" else lone)),
                     "inside %s" % (mine + lone)]
        want += ["linear cuda:0 cuda:0", "gradient cuda:0 ", "gradient cpu ",
                 "cuda:1 %s" % (8 * [True])]
        for options in ((), ("--numerics", "off")):
            run = self.record("devices.py", options=options)
            lines = [re.sub(r"(gradient .*) \[.*", r"\1 ", line) for line in run.out.splitlines()]
            self.assertEqual(lines, want)
            for way in ("upload", "download"):
                moved = [e for e in run.of("transfer", direction=way) if e["reason"] == "backward"]
                self.assertEqual([e["bytes"] for e in moved], [12])
            self.assertEqual(run.out.count("[2.0, 2.0, 2.0]"), 0 if options else 2)

    def test_ten_mistakes_have_their_lines(self):
        run = self.record("mistakes.py")
        planted = {}
        for number, text in enumerate(lines_of(script("mistakes.py")), 1):
            if match := re.search(r"# mistake: (.*)", text):
                planted["mistakes.py:%d" % number] = match[1]
        self.assertEqual(len(planted), 10)
        for site, reason in planted.items():
            found = [e for e in run.of("transfer") + run.of("sync")
                     if run.site(e) == site and e["reason"] == reason]
            self.assertGreaterEqual(len(found), 6, (site, reason))
            waits = [e for e in run.of("sync") if e["site"] == site]
            self.assertGreaterEqual(len(waits), 6, site)
        if run.advice:
            # A round trip is a finding at its upload; behind a wait the next read costs nothing.
            found = {f["site"] for f in run.advice["findings"]}
            self.assertGreaterEqual(len(found & set(planted)), 7, run.advice["findings"])
            self.assertLessEqual({"FA01", "FA03", "FA08", "FA09"},
                                 {f["id"] for f in run.advice["findings"]})

    def test_other_scripts_compute_what_the_cpu_computes(self):
        for name in ("gpt.py", "lstm.py", "packed.py", "amp.py"):
            with self.subTest(name):
                run = self.record(name)
                self.assertEqual(run.out, on_host(name))
                if run.predicted:
                    self.assertEqual(run.predicted["recorded"]["model_ns"],
                                     run.predicted["predicted"]["model_ns"])
                waits = collections.Counter(e["reason"] for e in run.of("sync"))
                if name == "gpt.py":  # float32: 2 blocks, 3 steps
                    attention = run.of("op", op="_scaled_dot_product_efficient_attention")
                    self.assertEqual(len(attention), 6)
                    self.assertEqual(attention[0]["flops"], 2 * 4 * 4 * 16 * 16 * (8 + 8))
                    backward = run.of("op", op="_scaled_dot_product_efficient_attention_backward")
                    self.assertEqual([e["node"] for e in backward],
                                     6 * ["ScaledDotProductAttentionBackward"])
                    self.assertFalse(run.of("op", op="_softmax") + run.of("op", op="bmm"))
                    self.assertEqual(waits, {"item": 1})
                    self.assertEqual(self.transfers(run, "upload"), [])
                elif name == "lstm.py":  # LBFGS: as many calls of the closure as on the CPU
                    layers = run.of("op", op="_cudnn_rnn")
                    self.assertEqual(len(layers), len(run.of("op", op="_cudnn_rnn_backward")))
                    self.assertEqual(layers[0]["flops"], 2 * 6 * 5 * 4 * 8 * (4 + 8))
                    self.assertFalse(run.of("op", op="sigmoid"))
                elif name == "packed.py":
                    for op in ("_pack_padded_sequence", "_cudnn_rnn", "_pad_packed_sequence"):
                        self.assertEqual(len(run.of("op", op=op)), 1)
                        self.assertEqual(len(run.of("op", op=op + "_backward")), 1)
                    self.assertEqual(self.transfers(run, "download"), 2 * [(4, True, True)])
                elif name == "amp.py":
                    self.assertEqual(waits["GradScaler"], 3)
                    self.assertEqual({self.dtypes(run, e) for e in run.of("op", op="pow")},
                                     {"f32 f32"})
                    self.assertIn("f16 f16", {self.dtypes(run, e)[:7]
                                              for e in run.of("op", op="addmm")})
                    self.assertEqual(waits["torch.save"], 8)
                    self.assertEqual(waits["torch.load"], 8)

    def test_numerics_off_moves_the_same_bytes(self):
        on, off = self.record("mnist.py"), self.record("mnist.py", options=("--numerics", "off"))
        self.assertIn("numerics off", off.first["approximations"])
        self.assertEqual(off.out, 6 * "1\n")
        for way in ("upload", "download"):
            self.assertEqual(self.transfers(on, way), self.transfers(off, way))
        self.assertEqual([e["op"] for e in on.of("op")], [e["op"] for e in off.of("op")])
        blocks = [[e["bytes"] for e in run.of("block_alloc", pool="sim:0")] for run in (on, off)]
        self.assertEqual(*blocks)
        big = self.record("gpt.py", "--width", "512", "--batch", "64", "--length", "512",
                          options=("--numerics", "off"))
        if big.predicted:
            self.assertGreater(big.predicted["peak_bytes"], 2 << 30)

    def test_waits_streams_and_threads(self):
        run = self.record("waits.py")
        self.assertEqual(run.out, "tensor(16., device='cuda:0')\n64.0 cuda:0\n[2.0, 2.0]\n")
        self.assertEqual([e["reason"] for e in run.of("sync")],
                         ["print", "nonzero", "item", "Event.synchronize", "tolist"])
        self.assertEqual({e["thread"] for e in run.of("op")}, {1, 2})
        copy = run.of("transfer", direction="upload")[-1]
        self.assertEqual((copy["pinned"], copy["blocking"]), (True, False))
        product = run.of("op", op="mul")[0]
        self.assertGreaterEqual(product["model_start_ns"], copy["model_end_ns"])
        self.assertEqual({e["stream"] for e in run.of("op", op="neg")}, {5})
        self.assertEqual(product["stream"], 1)
        behind = run.of("wait", stream=1, on_stream=5)
        self.assertEqual([e["on_seq"] for e in behind], [run.of("op", op="neg")[-1]["seq"]])

    def test_profiles_are_those_of_the_simulator(self):
        from ferry.torch_record.profile import CAPABILITIES, Profile
        rows = {}
        for line in lines_of(os.path.join(ROOT, "docs", "simulator.md")):
            cells = [c.strip() for c in line.strip().strip("|").split("|")]
            rows.setdefault(cells[0], cells[1:])
        names = ["k80", "v100", "a100", "h100", "h200"]
        for name in CAPABILITIES:
            at, p = names.index(name), Profile(name)
            self.assertEqual(p.memory_bytes, int(rows["memory, MiB"][at]) << 20)
            self.assertEqual(p.f32_flops_per_s / 1e12, float(rows["f32, TFLOP/s"][at]))
            self.assertEqual(p.f64_flops_per_s / 1e12, float(rows["f64, TFLOP/s"][at]))
            self.assertEqual(p.f16_flops_per_s / 1e12, float(rows["f16, TFLOP/s"][at]))
            self.assertEqual(p.bf16_flops_per_s / 1e12, float(rows["bf16, TFLOP/s"][at]))
            self.assertEqual(p.memory_bytes_per_s / 1e9, float(rows["device memory, GB/s"][at]))
            link = "%g / %g" % (p.pinned_bytes_per_s / 1e9, p.pageable_bytes_per_s / 1e9)
            self.assertEqual(link, rows["pinned / pageable, GB/s"][at])
            for key, row in (("launch_submit_ns", "launch submit, ns"),
                             ("copy_submit_ns", "copy submit, ns"),
                             ("copy_setup_ns", "copy set-up, ns"), ("wake_ns", "wake-up, ns")):
                self.assertEqual(getattr(p, key), int(rows[row][at]))


if __name__ == "__main__":
    if torch is None and TORCH_PYTHON and os.path.realpath(TORCH_PYTHON) != sys.executable:
        os.execv(TORCH_PYTHON, [TORCH_PYTHON, *sys.argv])
    if torch is None:
        print("skipped: this Python has no PyTorch, and FERRY_TORCH_PYTHON names none")
        sys.exit(77)
    unittest.main()
