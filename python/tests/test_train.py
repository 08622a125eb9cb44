"""The training library: layers, models, loaders, optimizers, the loop, checkpoints."""

import ctypes
import gc
import io
import math
import signal
import tempfile
import threading
import unittest
import weakref
from pathlib import Path

import ferry
from ferry import _c, train


def network():
    return train.sequential(
        [train.flatten(), train.linear(784, 32, activation="relu"), train.linear(32, 10)]
    )


class Custom(unittest.TestCase):
    """A layer of Python computes what the same layer of C does, and is trained alike."""

    @staticmethod
    def dense(x, weight, bias):
        return x @ weight.T + bias

    def model(self, first, device="host"):
        return train.Model(device, train.sequential({"a": first, "b": train.linear(4, 2)}), (3,))

    def custom(self, forward=None, **options):
        params = {"weight": ([4, 3], ("normal", 0.5)), "bias": [4]}
        options = {"shape": lambda dims: (dims[0], 4), "macs": lambda dims: 12, **options}
        return train.custom(forward or self.dense, params, name="dense", **options)

    def test_it_is_trained_as_a_layer_of_c(self):
        for device in ("host", "sim:0"):
            with ferry.scope("custom"):
                mine = self.model(self.custom(), device)
                theirs = self.model(train.linear(3, 4), device)
                self.assertEqual(list(mine.parameters()), list(theirs.parameters()))
                for name, value in theirs.parameters().items():
                    ferry.copy(value, mine.parameters()[name])
                x = ferry.tensor([[1.0, -2.0, 3.0], [0.5, 0.25, -1.0]])
                x = x if device == "host" else x.upload(device)
                grads = []
                for model in (mine, theirs):
                    tape = ferry.Tape()
                    model.watch(tape)
                    with tape:
                        loss = ferry.mean(ferry.tanh(model(x)))
                    model.backward(tape, loss)
                    grads.append([g for g in model.gradients().values()])
                for a, b in zip(*grads, strict=True):
                    a, b = (t if t.is_host else t.download().wait() for t in (a, b))
                    for u, v in zip(a.reshape(-1).tolist(), b.reshape(-1).tolist(), strict=True):
                        self.assertAlmostEqual(u, v, 5)

    def test_a_registered_op(self):
        """Its kernel and its gradient rule are functions of Python here; the layer calls it."""

        def run(call, stream):
            floats = ctypes.POINTER(ctypes.c_float)
            out, x = ctypes.cast(call.dst[0].data, floats), ctypes.cast(call.src[0].data, floats)
            for i in range(call.nelem):
                out[i] = 3 * x[i]

        def back(call):
            return [ferry.affine(call.dst_grad[0], 3.0, 0.0)]

        info = _c.fy_op_info_t(name="py_triple", summary="3 x", nsrc_min=1, nsrc_max=1, ndst=1,
                               flags=_c.FY_OP_ELEMENTWISE, dtypes=1)  # fmt: skip
        kernel = _c.fy_op_kernel_t(backend="host", kernel=run)
        _c.fy_op_register(_c.fy_op_def_t(info=info, kernels=[kernel], backward=back))
        for device in ("host", "sim:0"):
            triple = train.custom(lambda x, w: ferry.call("py_triple", x * w), {"w": [3]})
            model = train.Model(device, triple, (3,))
            x, tape = ferry.ones((2, 3), device=device), ferry.Tape()
            model.watch(tape)
            with tape:
                loss = ferry.sum(model(x))
            model.backward(tape, loss)
            grad = model.gradients()["w"]
            grad = grad if device == "host" else grad.download().wait()
            self.assertEqual(grad.tolist(), [6, 6, 6])

    def test_exceptions_are_those_of_the_function(self):
        def broken(x, *parameters):
            raise LookupError("planted")

        def wrong(x, *parameters):
            return 3

        x = ferry.ones((2, 3))
        with self.assertRaisesRegex(LookupError, "planted"):
            self.model(self.custom(broken))(x)
        with self.assertRaisesRegex(TypeError, "int, not a Tensor"):
            self.model(self.custom(wrong))(x)
        with self.assertRaisesRegex(ZeroDivisionError, "zero"):
            self.model(self.custom(shape=lambda dims: 1 // 0))
        with self.assertRaises(ferry.ShapeMismatch):
            self.model(self.custom(shape=lambda dims: (dims[0], 5)))(x)
        with self.assertRaisesRegex(ValueError, "9 axes"):
            train.custom(self.dense, {"weight": [1] * 9})
        self.assertEqual(self.model(self.custom())(x).shape, (2, 2))

    def test_filters_begin_with_the_deviation_of_a_convolution(self):
        def size(layer):
            weight = train.Model("host", layer, (8, 8, 16)).parameters()["weight"]
            return ferry.mean(weight * weight).item()

        mine = train.custom(self.dense, {"weight": ([32, 3, 3, 16], ("kaiming_normal", 0))})
        self.assertAlmostEqual(size(mine), 2 / (3 * 3 * 16), delta=1e-3)

    def test_layers_are_freed(self):
        def forward(x, weight, bias):
            return x @ weight.T + bias

        freed = weakref.ref(forward)
        model, unused = self.model(self.custom(forward)), self.custom(forward)
        del forward
        gc.collect()
        self.assertIsNotNone(freed())
        del model, unused
        gc.collect()
        self.assertIsNone(freed())


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

    def test_a_penalty_on_the_weights_has_a_gradient(self):
        for is_late in (False, True):
            model = train.Model("host", train.linear(2, 1), (2,))
            parameters = model.parameters()
            tape = ferry.Tape()
            model.watch(tape)
            with tape:
                if is_late:
                    parameters = model.parameters()
                loss = ferry.sum(model(ferry.tensor([[1.0, 2.0]])))
                for parameter in parameters.values():
                    loss = loss + ferry.sum(parameter * parameter)
                model.backward(tape, loss)
            weight = parameters["weight"].tolist()[0]
            want = [1 + 2 * weight[0], 2 + 2 * weight[1]]
            for found, wanted in zip(model.gradients()["weight"].tolist()[0], want, strict=True):
                self.assertAlmostEqual(found, wanted, 5)

    def test_parameters_keep_their_model(self):
        model = train.Model(self.device, train.linear(2, 1), (2,))
        weight, handle = model.parameters()["weight"], model._as_parameter_
        with self.assertRaisesRegex(BufferError, "1 tensors, such as its parameters"):
            _c.fy_model_destroy(model)
        del model
        self.assertEqual(weight.shape, (1, 2))
        self.assertEqual((weight * 0).download().wait().tolist(), [[0, 0]])
        view = weight.reshape(2)
        del weight
        gc.collect()
        _c.fy_model_destroy(handle)
        self.assertEqual((view * 0).download().wait().tolist(), [0, 0])

    def test_means_that_do_not_fit(self):
        with self.assertRaisesRegex(ValueError, "mean has 5 elements; at most 4"):
            self.loader(mean=[0.5] * 5)
        with self.assertRaisesRegex(ValueError, "one for each channel"):
            self.loader(mean=[0.5], std=[1.0, 1.0])
        x, half = (next(iter(self.loader(shuffle=False, std=[s])))[0] for s in (1.0, 2.0))
        sums = [ferry.sum(t).download().wait().item() for t in (x, half)]
        self.assertEqual(sums[0], 2 * sums[1])

    def test_f16_needs_loss_scaling(self):
        for scaling in (None, True):
            model = train.Model(self.device, network(), (28, 28, 1))
            optimizer = train.Optimizer(model, loss_scaling=scaling)
            options = {"precision": "f16", "progress": False}
            if scaling:
                train.fit(model, optimizer, self.loader(), **options)
            else:
                with self.assertRaisesRegex(ValueError, "no loss_scaling"):
                    train.fit(model, optimizer, self.loader(), **options)

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

    def test_functions_are_checked_before_anything_runs(self):
        norm = train.sequential([train.batch_norm(1), train.linear(1, 2)])
        model = train.Model("host", norm, (1,))
        loader = train.Loader("host", train.Dataset([[1.0], [2.0]], [0, 1]), batch=1)
        with self.assertRaisesRegex(TypeError, "fit: on_event is int, not a callable"):
            train.fit(model, train.Optimizer(model), loader, on_event=3, progress=False)
        self.assertEqual(model.buffers()["0.running_mean"].tolist(), [0])
        self.assertEqual(loader.info()["step"], 0)
        with self.assertRaisesRegex(TypeError, "custom: forward is NoneType"):
            train.custom(None)
        with self.assertRaisesRegex(TypeError, "custom: shape is int"):
            train.custom(lambda x: x, shape=2)
        with self.assertRaisesRegex(TypeError, "set_log: function is int"):
            ferry.set_log(0)

    def test_labels_and_lists_that_do_not_fit(self):
        for label in (-1, 2**31 - 1):
            with self.assertRaisesRegex(ValueError, f"the label {label}: classes are 0 to"):
                train.Dataset([[1.0], [2.0]], [label, label])
        for shape in ([], [2, 2, 2], [2, 0], [3], [3, 1]):
            with self.assertRaisesRegex(ValueError, "labels of shape"):
                train.Dataset([[1.0], [2.0]], ferry.zeros(shape))
        with self.assertRaisesRegex(ValueError, "needs a Model, or"):
            train.Optimizer([])

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

    def test_a_loop_is_an_epoch(self):
        data = train.Dataset([[float(i)] for i in range(10)], [0, 1] * 5)
        for options in ({}, {"resident": False}, {"resident": False, "workers": 1}):
            loader = train.Loader("host", data, batch=4, shuffle=False, **options)
            seen = lambda: [x.reshape(-1).tolist() for x, _ in loader]
            whole = seen()
            self.assertEqual(sum(whole, []), [float(i) for i in range(10)])
            next(iter(loader))  # a look at one batch
            self.assertEqual(seen(), whole)
            for _ in loader:
                break
            old = iter(loader)
            self.assertEqual(next(old)[0].reshape(-1).tolist(), whole[0])
            self.assertEqual(seen(), whole)
            with self.assertRaisesRegex(RuntimeError, "moved on"):
                next(old)
            loader.seek(7, 2)
            self.assertEqual(seen(), whole[2:])
            self.assertEqual(loader.info()["epoch"], 8)
        model = train.Model("host", train.linear(1, 2), (1,))
        optimizer = train.Optimizer(model)
        next(iter(loader))
        for _ in range(2):
            self.assertEqual(train.fit(model, optimizer, loader, progress=False)["steps"], 3)
        train.fit(model, optimizer, loader, progress=False, max_steps=1)
        self.assertEqual(seen(), whole[1:])

    def test_batches_can_be_kept(self):
        """Also of a streamed loader, whose slots later batches fill, and which evaluations use."""
        values, bytes_ = [[float(i)] for i in range(22)], ferry.arange(22, dtype="u8").reshape(22, 1)
        model = train.Model("host", train.linear(1, 22), (1,))
        for samples in (values, bytes_):
            data = train.Dataset(samples, list(range(22)))
            for options in ({}, {"resident": 0}, {"resident": 0, "workers": 2, "depth": 1}):
                loader = train.Loader("host", data, batch=5, shuffle=0, **options)
                kept = []
                for batch in loader:
                    kept.append(batch)
                    train.evaluate(model, loader)
                self.assertEqual(sum([y.tolist() for _, y in kept], []), list(range(22)))
                self.assertEqual(sum([x.tolist() for x, _ in kept], []), values)

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
        with self.assertRaisesRegex(ValueError, r"values\[0\] and values\[1\] share"):
            train.Optimizer([(w, g), (w, ferry.ones(3))], "sgd")
        optimizer.step()
        self.assertEqual(w.tolist(), [0.5] * 3)
        self.assertEqual(train.clip_norm([g], 1.0).item(), ferry.norm(ferry.ones(3)).item())


if __name__ == "__main__":
    unittest.main()
