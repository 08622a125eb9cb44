"""The refusal walk of tests/ops/test_refusal_walk.c from Python: for every op with two operands or
more, results that must be given included, one operand on another device is DeviceMismatch. Its
text names the op, both devices and the call that helps; nothing moves and nothing changes.
"""

import unittest

import ferry
from ferry import _c

# Attributes without a legal default.
ATTRIBUTES = {"kernel_h": 1, "kernel_w": 1, "height": 1, "width": 1, "classes": 2, "rows": 2,
              "length": 2, "k": 1, "max_norm": 1.0, "count": 1}  # fmt: skip


def dtype_of(operand, info):
    mask = operand.dtypes or info.dtypes
    return next(name for i, name in enumerate(ferry.dtypes) if mask >> i & 1)


def operands(info, device):
    """Sources and given results of a call, all on `device`; shapes are checked after devices."""
    nsrc = info.nsrc_min if info.nsrc_max == _c.FY_OP_VARIADIC else info.nsrc_max
    if info.nsrc_max == _c.FY_OP_VARIADIC:
        nsrc = max(nsrc, 2)

    def made(operand):
        return ferry.zeros((2, 2), dtype_of(operand, info), device)

    last = max((info.nsrc_min if info.nsrc_max == _c.FY_OP_VARIADIC else info.nsrc_max) - 1, 0)
    sources = [made(info.src[min(i, last)]) for i in range(nsrc)]
    in_place = info.flags & 2  # FY_OP_IN_PLACE
    given = [
        made(info.dst[i]) if in_place or info.inout >> i & 1 else None for i in range(info.ndst)
    ]
    return sources, given


class Walk(unittest.TestCase):
    def walk(self, home, away):
        calls = 0
        for name in ferry.op_names():
            info = _c.fy_op_find(name)
            fields = {field.name for field in info.fields or ()}
            attributes = {k: v for k, v in ATTRIBUTES.items() if k in fields}
            sources, given = operands(info, home)
            all_of = [*sources, *given]
            present = [i for i, t in enumerate(all_of) if t is not None]
            if len(present) < 2:
                continue
            for position in present:
                mixed = list(all_of)
                mixed[position] = ferry.zeros((2, 2), all_of[position].dtype, away)
                versions = [t.info()["version"] for t in mixed if t is not None]
                before = ferry.ledger.totals()
                with self.subTest(op=name, position=position):
                    with self.assertRaises(ferry.DeviceMismatch) as caught:
                        given_now = mixed[len(sources) :]
                        ferry.call(name, *mixed[: len(sources)], dst=given_now, **attributes)
                    error = caught.exception
                    self.assertTrue(error.text.startswith(name), error.text)
                    self.assertIn(home.name, error.text)
                    self.assertIn(away.name, error.text)
                    self.assertRegex(error.hint, "fy_tensor_(upload|download|send)")
                    self.assertIn(str(mixed[position].nbytes), error.text)
                    now = [t.info()["version"] for t in mixed if t is not None]
                    self.assertEqual(versions, now)
                    self.assertEqual(
                        ferry.ledger.totals() - before, dict.fromkeys(before, 0) | {"path": ""}
                    )
                calls += 1
        return calls

    def test_host_against_sim(self):
        self.assertGreater(self.walk(ferry.host, ferry.Device("sim:0")), 200)

    def test_sim_against_host(self):
        self.assertGreater(self.walk(ferry.Device("sim:0"), ferry.host), 200)

    def test_two_devices(self):
        self.assertGreater(self.walk(ferry.Device("sim:0"), ferry.Device("sim:1")), 200)


if __name__ == "__main__":
    unittest.main()
