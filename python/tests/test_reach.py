"""Every function that the headers declare is reachable, and every op is a Python function.

The headers are read here in another way than by the generator: line by line, without a parser.
"""

import os
import re
import subprocess
import sys
import tempfile
import textwrap
import unittest
from pathlib import Path

import ferry
from ferry import _c, _ops

INCLUDE = Path(__file__).parents[2] / "include" / "ferry"


def declared(path):
    """Names of the functions declared in a header."""
    text = re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.S)
    return re.findall(r"^FY_API\w*\b[^;(]*?\b(fy_\w+)\s*\(", text, flags=re.M)


class Reach(unittest.TestCase):
    def headers(self):
        # backend.h is the interface of plugins: libferry exports nothing of it.
        return [p for p in sorted(INCLUDE.rglob("*.h")) if p.name != "backend.h"]

    def test_every_function(self):
        names = [name for path in self.headers() for name in declared(path)]
        self.assertGreater(len(names), 400)
        missing = [name for name in names if not callable(getattr(_c, name, None))]
        self.assertEqual(missing, [])
        self.assertEqual(sorted(names), sorted(_c.FUNCTIONS))
        for name in names:
            self.assertTrue(getattr(_c, name).__doc__.startswith(name + "("))

    def test_every_struct_has_its_size_in_c(self):
        # The _init functions refuse a size past their own, and clear what they are given.
        checked = 0
        for name in _c.FUNCTIONS:
            if not name.endswith("_init"):
                continue
            struct = getattr(_c, name.removesuffix("_init") + "_t")
            value = struct()
            self.assertIsNone(getattr(_c, name)(value))
            self.assertTrue(set(struct._fields_) <= set(dir(value)))
            checked += 1
        self.assertGreater(checked, 20)

    def test_every_op(self):
        missing = [n for n in declared(INCLUDE / "ops.h") if not hasattr(ferry, n[3:])]
        self.assertEqual(missing, ["fy_split"])  # Tensor.split
        for name in ferry.ops.__all__:
            self.assertTrue(getattr(ferry, name).__doc__.strip(), name)

    def test_attributes_of_every_op(self):
        """Each attribute can be given by its keyword. An op may have more than its call's struct."""
        text = Path(ferry.ops.__file__).read_text()
        calls = re.findall(r'_attributes\("(\w+)", "(\w+)"', text)
        self.assertGreater(len(calls), 20)
        for name, kind in calls:
            fallbacks = _ops._op(name.removesuffix("_with")).fallbacks
            for key in set(getattr(_c, kind)._fields_) & set(fallbacks):
                made = _ops.attributes(name, kind, {key: fallbacks[key]})
                self.assertEqual(getattr(made, key), fallbacks[key], (name, key))
        image, weight = ferry.ones((1, 4, 4, 2)), ferry.ones((3, 3, 2, 2))
        y = ferry.conv2d(image, weight, padding_h=1, padding_w=1)
        dx = ferry.conv2d_backward_input(y, weight, 4, 4, padding_h=1, padding_w=1)
        self.assertEqual(dx.shape, image.shape)

    def test_groups(self):
        """libferry_dist, with one rank and without MPI."""
        group = _c.fy_group_open()
        info = _c.fy_group_query(group)
        self.assertEqual((info.rank, info.size), (0, 1))
        t = ferry.tensor([1.0, 2.0])
        _c.fy_group_all_reduce(group, t, _c.FY_GROUP_SUM)
        self.assertEqual(t.tolist(), [1, 2])
        with self.assertRaises(ferry.InvalidArgument):
            _c.fy_group_broadcast(group, t, 1)
        _c.fy_group_close(group)

    def test_without_libferry_dist(self):
        """A folder without it, or with a damaged one: all else works, a call of a group is refused
        with the reason."""
        libraries = Path(ferry._library.path).absolute().parent
        program = """
            import ferry
            assert ferry.ones(1).item() == 1
            try:
                ferry._c.fy_group_open(None)
            except ferry.Unavailable as error:
                print(error.cause)
        """
        with tempfile.TemporaryDirectory() as folder:
            for name in ("libferry.so.0", "libferry_train.so.0"):
                Path(folder, name).symlink_to(libraries / name)
            for said in ("there is no libferry_dist beside libferry", "file too short"):
                done = subprocess.run(
                    [sys.executable, "-B", "-c", textwrap.dedent(program)], text=True, timeout=1200,
                    env={**os.environ, "FERRY_LIBRARY": folder}, capture_output=True,
                )  # fmt: skip
                self.assertRegex(done.stdout, f"^fy_group_open: .*{said}\n")
                self.assertEqual(done.stderr, "")
                Path(folder, "libferry_dist.so.0").write_bytes(b"")

    def test_a_relative_folder(self):
        libraries = Path(ferry._library.path).absolute().parent
        for named in (".", "libferry.so.0"):
            done = subprocess.run(
                [sys.executable, "-B", "-c", "import ferry; print(ferry._library.path)"], text=True,
                env={**os.environ, "FERRY_LIBRARY": named}, capture_output=True, timeout=1200,
                cwd=libraries,
            )  # fmt: skip
            self.assertEqual(done.stdout, f"{libraries / 'libferry.so.0'}\n", done.stderr)

    def test_comments(self):
        """Of the function itself: above it, behind it, or of the group that it is in."""
        for name, text in (("relu", "max(x, 0)"), ("sum", "integers and bool give i64; empty: 0"),
                           ("max", "number; empty: SHAPE_MISMATCH"), ("tanh", "float"),
                           ("cos", "Of radians.")):  # fmt: skip
            self.assertEqual(getattr(ferry, name).__doc__.strip(), text)
        self.assertIn("Activations: float.", ferry.relu6.__doc__)
        self.assertIn("min(max(x, 0), 6)", ferry.relu6.__doc__)

    def test_documented(self):
        for name in ferry.__all__:
            self.assertTrue(hasattr(ferry, name), name)
            value = getattr(ferry, name)
            if callable(value):
                self.assertTrue(value.__doc__, name)


if __name__ == "__main__":
    unittest.main()
