"""Tapes, graphs, plans; and functions of Python that C calls."""

import gc
import unittest
import weakref

import ferry


def values(tensor):
    return tensor.download().wait().tolist()


class Tapes(unittest.TestCase):
    def setUp(self):
        self.device = ferry.Device("sim:0")

    def test_gradient(self):
        w = ferry.tensor([[2.0], [3.0]]).upload(self.device)
        x = ferry.tensor([[1.0, 4.0]]).upload(self.device)
        tape = ferry.Tape()
        tape.watch(w)
        with tape:
            loss = ferry.sum(x @ w * 2)
            self.assertTrue(tape.info()["is_recording"])
            tape.backward(loss)
        self.assertEqual(values(tape.grad(w)), [[2], [8]])
        given = ferry.zeros((2, 1), device=self.device)
        tape.watch(w, given)
        with tape:
            tape.backward(ferry.sum(w * w))
        self.assertEqual(values(given), [[4], [6]])
        with tape, ferry.no_tape():
            with self.assertRaises(ferry.InvalidArgument):
                tape.backward(ferry.sum(w))

    def test_an_exception_ends_the_recording(self):
        w = ferry.ones(3)
        tape = ferry.Tape()
        tape.watch(w)
        with self.assertRaises(KeyboardInterrupt), tape:
            ferry.exp(w)
            raise KeyboardInterrupt
        self.assertFalse(tape.info()["is_recording"])
        ferry.fill(w, 2)  # would be BUSY while the tape records

    def test_gradcheck(self):
        x = ferry.tensor([[0.5, -1.0], [2.0, 0.25]], dtype="f64")
        result = ferry.gradcheck(lambda x: ferry.tanh(x @ x), [x])
        self.assertEqual(result["checked"], 4)
        with self.assertRaises(ZeroDivisionError):
            ferry.gradcheck(lambda x: 1 / 0, [x])
        with self.assertRaisesRegex(TypeError, "NoneType"):
            ferry.gradcheck(lambda x: None, [x])
        with self.assertRaises(ferry.ShapeMismatch):
            ferry.gradcheck(lambda x: x @ x[0:1], [x])

    def test_recompute(self):
        x = ferry.tensor([0.5, 1.5]).upload(self.device)
        calls = []

        def inner(x):
            calls.append(1)
            return ferry.tanh(ferry.exp(x))

        def gradient(function):
            tape = ferry.Tape()
            tape.watch(x)
            with tape:
                tape.backward(ferry.sum(function(x)))
            return values(tape.grad(x))

        plain = gradient(inner)
        calls.clear()
        self.assertEqual(gradient(lambda x: ferry.recompute(inner, x)), plain)
        self.assertEqual(len(calls), 2)
        freed = weakref.ref(inner)
        del inner
        gc.collect()
        self.assertIsNone(freed())


class Graphs(unittest.TestCase):
    def test_replay(self):
        device = ferry.Device("sim:0")
        x = ferry.ones(4, device=device)
        with ferry.Graph(device) as graph:
            ferry.axpy(x, 1.0, ferry.relu(x))
        self.assertEqual(values(x), [1] * 4)
        for _ in range(3):
            ticket = graph.replay()
        ticket.wait()
        self.assertEqual(values(x), [8] * 4)
        self.assertEqual((graph.info()["replays"], graph.info()["requests"]), (3, 2))
        self.assertTrue(graph.explain())
        with self.assertRaises(RuntimeError):
            graph.__enter__()

    def test_failures_discard_the_recording(self):
        device = ferry.Device("sim:0")
        x = ferry.ones(4, device=device)
        with self.assertRaises(ferry.Unsupported), ferry.Graph(device):
            x.download()
        with self.assertRaises(ValueError), ferry.Graph(device):
            raise ValueError
        with self.assertRaises(ferry.Error), ferry.Graph(device):
            try:
                x + ferry.ones(3, device=device)
            except ferry.ShapeMismatch:
                pass
        self.assertEqual(values(x + 1), [2] * 4)


class Plans(unittest.TestCase):
    def test_plan_and_fit(self):
        def step(device, batch):
            w = ferry.zeros((256, 256), device=device)
            with ferry.scope("step"):
                x = ferry.zeros((batch, 256), device=device)
                ferry.relu(x @ w)

        plan = ferry.plan("sim?profile=h200", step, 64)
        self.assertTrue(plan["fits"])
        self.assertEqual(plan["steps"], 1)
        self.assertGreaterEqual(plan["peak_live"], 256 * 256 * 4 + 2 * 64 * 256 * 4)
        self.assertEqual(sum(plan["peak_by_category"].values()), plan["peak_live"])
        batch, plan = ferry.fit("sim?limit=16MiB", step, 1 << 20)
        self.assertGreater(batch, 64)
        self.assertLess(batch, 1 << 20)
        with self.assertRaises(ferry.OutOfMemory):
            ferry.fit("sim?limit=64KiB", step, 8)

    def test_exceptions_of_the_step(self):
        def fails(device, batch):
            raise KeyboardInterrupt

        with self.assertRaises(KeyboardInterrupt):
            ferry.plan("sim", fails, 1)

        def refused(device, batch):
            ferry.zeros(1, device=device) + ferry.zeros(1)

        with self.assertRaises(ferry.DeviceMismatch):
            ferry.plan("sim", refused, 1)

        def leaks(device, batch):
            self.leaked = ferry.zeros(batch, device=device)

        ferry.plan("sim", leaks, 8)
        del self.leaked


if __name__ == "__main__":
    unittest.main()
