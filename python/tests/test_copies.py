"""Copies and pickles of every object that has a handle: refused with the way to go, or itself."""

import copy
import inspect
import multiprocessing
import pickle
import sys
import unittest

import ferry
from ferry import _types, train

# Classes of the package without a handle: plain data, or nothing that ends with them.
PLAIN = {"Totals", "Ledger", "record", "budget", "ProgressBar", "Status", "Handle", "Value", "Block", "_Op"}  # fmt: skip


def objects():
    """One object of every class."""
    device = ferry.Device("sim:0")
    tensor = ferry.ones(4, device=device)
    model = train.Model(device, train.linear(2, 1), (2,))
    data = train.Dataset([[1.0, 2.0]] * 4, [[1.0]] * 4)
    with ferry.Graph(device) as graph:
        tensor + 1
    stream = ferry.Stream(device)
    return [
        device, tensor, model, data, graph, stream, stream.record(), tensor.download(),
        ferry.Tape(), ferry.no_tape(), ferry.scope("s"), train.linear(2, 1),
        train.Loader(device, data, batch=2), train.Optimizer(model),
    ]  # fmt: skip


def classes():
    modules = [m for n, m in sys.modules.items() if n.startswith("ferry.") and "torch" not in n]
    found = {v for m in modules for v in vars(m).values() if inspect.isclass(v)}
    return {
        v for v in found
        if v.__module__.startswith("ferry.") and v.__module__ not in ("ferry._c", "ferry._core")
        and not issubclass(v, BaseException)
    }  # fmt: skip


def work(given):
    raise SystemExit(3)


class Copies(unittest.TestCase):
    def test_every_class_is_here(self):
        named = {v.__name__ for v in classes()} - PLAIN
        self.assertEqual(named, {type(v).__name__ for v in objects()})

    def test_copies(self):
        for given in objects():
            for make in (copy.copy, copy.deepcopy):
                with self.subTest(kind=type(given).__name__, make=make.__name__):
                    if isinstance(given, _types.Value):
                        self.assertIs(make(given), given)
                        self.assertIs(make([given])[0], given)
                        continue
                    with self.assertRaisesRegex(TypeError, type(given).__name__ + " has a handle"):
                        make(given)

    def test_pickles(self):
        for given in objects():
            for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
                with self.subTest(kind=type(given).__name__, protocol=protocol):
                    with self.assertRaisesRegex(TypeError, type(given).__name__ + " has a handle"):
                        pickle.dumps({"inside": given}, protocol)

    def test_the_way_is_named(self):
        model, data = objects()[2:4]
        with self.assertRaisesRegex(TypeError, r"save\(path\)"):
            copy.deepcopy(model)
        with self.assertRaisesRegex(TypeError, "files or arrays"):
            pickle.dumps(data)

    def test_spawned_processes(self):
        """The parent learns it before a process begins."""
        process = multiprocessing.get_context("spawn").Process(target=work, args=(objects()[3],))
        with self.assertRaisesRegex(TypeError, "Dataset"):
            process.start()

    def test_objects_stay_usable(self):
        model = objects()[2]
        for make in (copy.copy, copy.deepcopy, pickle.dumps):
            with self.assertRaises(TypeError):
                make(model)
        self.assertEqual(model(ferry.ones((1, 2), device="sim:0")).shape, (1, 1))

    def test_plain_data_is_copied(self):
        totals = ferry.ledger.totals()
        self.assertEqual(pickle.loads(pickle.dumps(totals)), copy.copy(totals))
        rate = copy.deepcopy(train.schedule("constant", 0.5))
        self.assertEqual(train.lr_at(rate, 3), 0.5)


if __name__ == "__main__":
    unittest.main()
