"""The training library: layers, models, loaders, optimizers, the loop, checkpoints."""

import io
import math
import signal
import tempfile
import threading
import unittest
from pathlib import Path

import ferry
from ferry import train


def network():
    return train.sequential(
        [train.flatten(), train.linear(784, 32, activation="relu"), train.linear(32, 10)]
    )


class Training(unittest.TestCase):
    def setUp(self):
        self.device = ferry.Device("sim:0")
        self.data = train.Dataset.synthetic_digits(400)

    def loader(self, **options):
        return train.Loader(self.device, self.data, batch=100, scale=1 / 255, **options)

    def test_layers(self):
        layer = train.linear(3, 4, weight=("normal", 0.1))
        net = train.sequential({"a": layer, "b": train.residual(train.op("relu"))})
        with self.assertRaisesRegex(ValueError, "part of"):
            train.sequential([layer])
        with self.assertRaisesRegex(TypeError, "no_bias"):
            train.linear(3, 4, bias_free=1)
        with self.assertRaisesRegex(TypeError, "inputs"):
            train.linear(3)
        model = train.Model("host", net, 3, name="small")
        self.assertEqual(list(model.parameters()), ["a.weight", "a.bias"])
        self.assertEqual(model(ferry.ones((2, 3))).shape, (2, 4))
        self.assertIn("linear", repr(model))
        self.assertEqual(model.info()["params"], 16)
        image = train.sequential(
            [
                train.conv2d(1, 4, 3, 3, padding_h=1, padding_w=1),
                train.batch_norm(4, activation="relu"),
                train.max_pool2d(2),
                train.branches([train.identity(), train.identity()], "concat"),
                train.global_avg_pool2d(),
                train.dropout(0.5),
            ]
        )
        model = train.Model(self.device, image, (8, 8, 1), seed=3).train(False)
        self.assertEqual(model(ferry.ones((2, 8, 8, 1), device=self.device)).shape, (2, 8))
        self.assertEqual(len(model.buffers()), 2)
        self.assertIn("lenet", train.Model.names())

    def test_own_loop_equals_the_trainer(self):
        results = []
        for way in ("fit", "loop"):
            model = train.Model(self.device, network(), (28, 28, 1), seed=7)
            optimizer = train.Optimizer(model, "sgd", lr=0.1)
            loader = self.loader(shuffle=True, seed=5)
            if way == "fit":
                result = train.fit(model, optimizer, loader, epochs=2, progress=False)
                self.assertEqual(result["steps"], 8)
            else:
                tape = ferry.Tape()
                model.train().watch(tape)
                for _ in range(2):
                    for x, y in loader:
                        with tape:
                            model.backward(tape, ferry.cross_entropy(model(x), y))
                        optimizer.step()
            weights = model.parameters()["1.weight"]
            results.append(weights.download().wait().tolist())
        self.assertEqual(*results)

    def test_fit(self):
        model = train.Model(self.device, network(), (28, 28, 1))
        optimizer = train.Optimizer(model, "adam", groups=[("2.", 0.5, 0.0)])
        events = []
        result = train.fit(
            model,
            optimizer,
            self.loader(),
            self.loader(shuffle=False),
            epochs=2,
            log_every=2,
            progress=False,
            on_event=events.append,
            schedule=train.schedule("cosine", 0.01, 8),
        )
        self.assertGreater(result["test_accuracy"], 0.2)
        self.assertEqual([e["step"] for e in events if e["is_epoch_end"]], [4, 8])
        self.assertFalse(math.isnan(events[-1]["loss"]))
        loss, accuracy = train.evaluate(model, self.loader(shuffle=False))
        self.assertEqual((loss, accuracy), (result["test_loss"], result["test_accuracy"]))
        optimizer.lr = 0.5
        self.assertEqual(optimizer.lr, 0.5)
        self.assertEqual(optimizer.options()["kind"], "adam")
        with self.assertRaisesRegex(TypeError, "weight_decay"):
            train.Optimizer(model, "sgd", decay=1)

    def test_exceptions_end_a_training(self):
        model = train.Model(self.device, network(), (28, 28, 1))
        optimizer = train.Optimizer(model)

        def stop(event):
            if event["step"] == 2:
                raise KeyboardInterrupt

        with self.assertRaises(KeyboardInterrupt):
            train.fit(model, optimizer, self.loader(), epochs=3, on_event=stop, progress=False)
        train.fit(model, optimizer, self.loader(), epochs=1, progress=False)  # usable

    def test_interrupts_wait_for_python(self):
        model = train.Model(self.device, network(), (28, 28, 1))
        optimizer = train.Optimizer(model)
        handler = signal.default_int_handler  # jobs in the background ignore SIGINT
        self.addCleanup(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, handler))
        for on_event in (None, lambda event: None):
            with self.assertRaises(KeyboardInterrupt):
                timer = threading.Timer(0.2, signal.raise_signal, (signal.SIGINT,))
                timer.start()
                train.fit(
                    model, optimizer, self.loader(), epochs=100000, on_event=on_event,
                    progress=False,
                )  # fmt: skip
            self.assertIs(signal.getsignal(signal.SIGINT), handler)

    def test_an_exception_of_the_backward(self):
        calls = []

        def twice(x):
            calls.append(x)
            if len(calls) == 2:
                raise ZeroDivisionError("the second call")
            return ferry.relu(x)

        w = ferry.ones((2, 2), device=self.device)
        tape = ferry.Tape()
        tape.watch(w)
        with self.assertRaisesRegex(ZeroDivisionError, "second"), tape:
            loss = ferry.sum(ferry.recompute(twice, w))
            tape.backward(loss)

    def test_layers_are_checked_before_they_are_taken(self):
        layer = train.linear(2, 2)
        for layers in ([layer, layer], [layer, "relu"]):
            with self.assertRaises((ValueError, TypeError)):
                train.sequential(layers)
        train.sequential([layer])

    def test_progress_bar(self):
        model = train.Model(self.device, network(), (28, 28, 1))
        file = io.StringIO()
        bar = train.ProgressBar(file)
        train.fit(model, train.Optimizer(model), self.loader(), on_event=bar, progress=False)
        self.assertIn("epoch 1/1 [####################] 4/4", file.getvalue())
        self.assertTrue(file.getvalue().endswith("\n"))

    def test_datasets(self):
        data = train.Dataset([[0.0, 1.0], [1.0, 0.0], [1.0, 1.0]], [0, 1, 1])
        self.assertEqual((len(data), data.info()["classes"], data.info()["dims"]), (3, 2, [2]))
        first, rest = data.split(2)
        self.assertEqual((len(first), len(rest)), (2, 1))
        targets = train.Dataset([[1.0], [2.0]], [[0.5], [1.5]])
        self.assertEqual(targets.info()["targets"], 1)
        batches = list(train.Loader("host", targets, batch=1, shuffle=False))
        self.assertEqual([y.tolist() for _, y in batches], [[[0.5]], [[1.5]]])
        with self.assertRaises(ferry.BadValue):
            train.Dataset([[1.0]], [3], classes=2)
        with self.assertRaises(ValueError):
            train.Dataset([[1.0]], [0, 1])

    def test_checkpoints(self):
        model = train.Model(self.device, network(), (28, 28, 1), seed=1)
        optimizer = train.Optimizer(model, "adamw")
        other = train.Model(self.device, network(), (28, 28, 1), seed=2)
        with tempfile.TemporaryDirectory() as folder:
            train.save_checkpoint(folder, model, optimizer, step=12, note="text")
            progress = train.load_checkpoint(folder, other, train.Optimizer(other, "adamw"))
            self.assertEqual((progress["step"], progress["note"]), (12, "text"))
            path = Path(folder, "model.safetensors")
            model.save(path)
            self.assertEqual(set(ferry.read_safetensors(path)), set(model.parameters()))
            other.load(path)
        for name, value in model.parameters().items():
            same = ferry.all(value == other.parameters()[name])
            self.assertTrue(same.download().wait().item(), name)

    def test_find_lr_and_schedules(self):
        model = train.Model(self.device, network(), (28, 28, 1))
        _, points = train.find_lr(model, train.Optimizer(model), self.loader(), steps=8)
        self.assertGreater(len(points), 1)
        schedule = train.schedule("step", 1.0, step_size=2, gamma=0.5)
        self.assertEqual([train.lr_at(schedule, i) for i in range(4)], [1, 1, 0.5, 0.5])
        with self.assertRaises(ferry.InvalidArgument):
            train.schedule("step", 1.0, step_size=-2)

    def test_optimizer_of_tensors(self):
        w, g = ferry.ones(3), ferry.ones(3)
        optimizer = train.Optimizer([(w, g)], "sgd", lr=0.5)
        optimizer.step()
        self.assertEqual(w.tolist(), [0.5] * 3)
        self.assertEqual(train.clip_norm([g], 1.0).item(), ferry.norm(ferry.ones(3)).item())


if __name__ == "__main__":
    unittest.main()
