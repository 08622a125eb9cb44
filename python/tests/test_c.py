"""ferry._c: how parameters, structs and functions of C look in Python."""

import copy
import gc
import pickle
import sys
import unittest
import weakref

import ferry
from ferry import _c, train


class Parameters(unittest.TestCase):
    def test_names_and_numbers(self):
        t = ferry.ones((2, 3))
        self.assertEqual(_c.fy_sum(t, keepdims=True, axes=1).shape, (2, 1))
        self.assertEqual(_c.fy_linear(t, ferry.ones((1, 3)), None, "relu").shape, (2, 1))
        self.assertEqual(_c.fy_slice(t, 0, 0, 1).shape, (1, 3))
        for wrong in (lambda: _c.fy_neg(), lambda: _c.fy_neg(t, t), lambda: _c.fy_neg(a=t),
                      lambda: _c.fy_neg(t, src=t), lambda: _c.fy_sum(t, axes=0),
                      lambda: _c.fy_linear(t, t, None, 1.0), lambda: _c.fy_device_open(b"host")):  # fmt: skip
            self.assertRaises(TypeError, wrong)
        with self.assertRaisesRegex(ValueError, "nothing.*not one of: none, relu"):
            _c.fy_linear(t, t, None, "nothing")
        with self.assertRaisesRegex(OverflowError, "axis is 2147483648; it is from -2147483648 to"):
            _c.fy_softmax(t, 2**31)
        with self.assertRaisesRegex(ValueError, "NUL"):
            _c.fy_op_find("a\0")
        with self.assertRaisesRegex(ValueError, "begin has 1 elements; C needs 2"):
            _c.fy_pad(t, [0], [0, 0], 0)
        with self.assertRaisesRegex(ValueError, "grads has 2 elements, not 1"):
            _c.fy_optimizer_create(_c.fy_optimizer_defaults("sgd"), [t], [t, t])

    def test_results(self):
        values, indices = _c.fy_topk(ferry.tensor([3.0, 1.0, 2.0]), 1)
        self.assertEqual((values.tolist(), indices.tolist()), ([3], [0]))
        self.assertEqual([v.tolist() for v in _c.fy_split(ferry.arange(4), 0, 2)], [[0, 1], [2, 3]])
        self.assertEqual(_c.fy_model_sample_shape("lenet")[1][:3], (28, 28, 1))
        table = _c.fy_table_create(2, 2, [1, 2, 3, 6])
        self.assertEqual(_c.fy_table_values(table), (1, 2, 3, 6))
        self.assertEqual(_c.fy_table_standardise(table), ((2, 4), (1, 2)))
        with self.assertRaisesRegex(ValueError, "values has 3 elements; C needs 4"):
            _c.fy_table_create(2, 2, [1, 2, 3])
        data = _c.fy_dataset_create(
            _c.fy_dataset_info_t(samples=2, rank=1, dims=[3], dtype="u8", classes=2), b"abcdef",
            memoryview(b"\1\0\0\0\0\0\0\0"),
        )  # fmt: skip
        self.assertEqual(_c.fy_dataset_get(data, 1), (b"def", b"\0\0\0\0"))
        with self.assertRaisesRegex(ValueError, "data has 5 bytes; C needs 6"):
            _c.fy_dataset_create(_c.fy_dataset_query(data), b"abcde", bytes(8))
        model = train.Model("host", train.linear(2, 1), (2,))
        self.assertEqual(_c.fy_model_layer_forward(model, 0, [ferry.ones((1, 2))]).shape, (1, 1))

    def test_files(self):
        with self.assertRaisesRegex(TypeError, "PathLike"):
            _c.fy_npy_read(3)
        self.assertRaises(TypeError, _c.fy_npy_read, None)


class Handles(unittest.TestCase):
    def test_they_end_once(self):
        stream = _c.fy_stream_create(ferry.Device("sim:0"))
        other = _c.fy_tape_create()
        with self.assertRaisesRegex(TypeError, "stream is fy_tape_t, not fy_stream_t"):
            _c.fy_stream_record(other)
        self.assertRaises(TypeError, _c.fy_stream_record, 3)
        _c.fy_stream_destroy(stream)
        for function in (_c.fy_stream_destroy, _c.fy_stream_record):
            with self.assertRaisesRegex(ValueError, "closed"):
                function(stream)
        with self.assertRaisesRegex(ValueError, "borrowed"):
            _c.fy_device_close(_c.fy_device_host())
        tensor = ferry.ones(2)
        _c.fy_tensor_destroy(tensor)
        for function in (_c.fy_tensor_destroy, ferry.neg, lambda t: t.item(), lambda t: t + 1):
            self.assertRaises((ValueError, ferry.Error), function, tensor)

    def test_a_block_is_freed_once(self):
        pool = _c.fy_pool_create()
        block = _c.fy_pool_alloc(pool, 100)
        for _ in range(2):
            _c.fy_pool_free(pool, block)
        self.assertEqual((block.token, _c.fy_pool_query(pool).live), (None, 0))
        kept = _c.fy_pool_alloc(pool, 100)
        with self.assertRaises(ferry.Error):
            _c.fy_pool_free_after(pool, kept, [(0, 0)])  # no such queue: the caller has it still
        _c.fy_pool_free(pool, kept)
        self.assertEqual(_c.fy_pool_query(pool).live, 0)
        with self.assertRaisesRegex(AttributeError, "token cannot be set"):
            block.token = 3

    def test_buffers_outlive_no_tensor(self):
        tensor = ferry.ones(2)
        view = memoryview(tensor)
        with self.assertRaisesRegex(BufferError, "has 1 buffers"):
            _c.fy_tensor_destroy(tensor)
        view.release()
        _c.fy_tensor_destroy(tensor)

    def test_what_keeps_arguments(self):
        x, y = ferry.ones((4, 2)), ferry.zeros((4, 1))
        before = sys.getrefcount(x), sys.getrefcount(y)
        made = train.Dataset(x, y), x.download()
        self.assertEqual((sys.getrefcount(x), sys.getrefcount(y)), before)  # C has copies
        self.assertEqual((len(made[0]), made[1].wait().size), (4, 8))

    def test_what_a_failed_call_consumes(self):
        layer = train.linear(2, 2)
        self.assertRaises(TypeError, _c.fy_model_create, "host", layer, (2,))  # before the call
        with self.assertRaises(ferry.ShapeMismatch):
            train.Model("host", layer, (3,))
        with self.assertRaisesRegex(ValueError, "part of something else"):
            train.Model("host", layer, (2,))
        source = ferry.ones(2, device="sim:0?order=lazy")
        download = source.download()
        with self.assertRaises(ferry.Timeout):
            download.wait(0)
        self.assertEqual(download.wait().tolist(), [1, 1])


class Structs(unittest.TestCase):
    def test_fields(self):
        options = _c.fy_optimizer_options_t(lr=1, groups=[("a", 1, 2), ("b", 3, 4)])
        self.assertEqual((options.lr, options.ngroups, options.groups[1].prefix), (1.0, 2, "b"))
        for name, value in (("lr", "1"), ("nesterov", 2**31), ("groups", [3]), ("ngroups", 9),
                            ("loss_scaling", options), ("nothing", 1)):  # fmt: skip
            with self.assertRaises((TypeError, OverflowError, AttributeError), msg=name):
                setattr(options, name, value)
        with self.assertRaisesRegex(TypeError, "no field 'lrs'; it has: kind, lr, "):
            _c.fy_optimizer_options_t(lrs=1)
        layer = _c.fy_conv2d_options_t(weight=("normal", 0.5), bias="kaiming_uniform", activation="relu")
        self.assertEqual((layer.stride_h, layer.weight.value, layer.bias.kind), (1, 0.5, _c.FY_INIT_KAIMING_UNIFORM))
        layer.weight.value = 2
        self.assertEqual(layer.weight.value, 2)
        self.assertEqual(_c.fy_loader_options_t(mean=(1, 2)).mean, (1, 2, 0, 0))
        self.assertRaises(ValueError, _c.fy_loader_options_t, mean=[1] * 5)
        info = _c.fy_tensor_query(ferry.ones((2, 3)))
        self.assertEqual((info.dims[:2], info.name), ((2, 3), ""))

    def test_copies(self):
        options = _c.fy_optimizer_options_t(lr=2, groups=[("a", 1, 2)])
        for given in (copy.copy(options), pickle.loads(pickle.dumps(options))):
            self.assertEqual((given.lr, given.groups[0].prefix, given.ngroups), (2, "a", 1))

    def test_a_pointer_changes_with_what_it_needs(self):
        options = _c.fy_communicator_options_t(id=bytes(128))
        self.assertRaises(ValueError, setattr, options, "id", bytes(5))
        self.assertEqual(len(options.id), 128)
        seed, x = ferry.ones(()), ferry.ones(2)
        options = _c.fy_backward_options_t(seed=seed)
        tape = ferry.Tape()
        tape.watch(x)
        with tape:
            loss = ferry.sum(x)
        _c.fy_tensor_destroy(seed)
        with self.assertRaisesRegex(ValueError, "seed is destroyed"):
            _c.fy_tape_backward(tape, loss, options)

    def test_what_c_uses_does_not_change(self):
        definition = _c.fy_layer_def_t(
            type="same", forward=lambda *given: given[-1], shape=lambda shape: (shape, 0)
        )
        layer = _c.fy_layer_create(definition)
        with self.assertRaisesRegex(AttributeError, "C uses the struct already"):
            definition.params = [("w", 1, (2,))]
        del layer

    def test_what_they_need_lives(self):
        class Text(str):
            pass

        text = Text("name")
        gone, options = weakref.ref(text), _c.fy_stream_options_t(name=text)
        del text
        gc.collect()
        self.assertEqual((gone(), options.name), ("name", "name"))
        options.name = None
        self.assertIsNone(gone())


class Callbacks(unittest.TestCase):
    def test_prefetch(self):
        def fill(batch):
            if batch.index == 3:
                batch.is_end = 1
                return
            ferry.fill(batch.host[0], batch.index)
            batch.rows = 1 if batch.index == 2 else 2

        spec = _c.fy_batch_spec_t(dtype="f32", rank=2, dims=(2, 2))
        prefetch = _c.fy_prefetch_create(ferry.Device("sim:0"), [spec], fill)
        rows = []
        while True:
            (batch,), count = _c.fy_prefetch_next(prefetch)
            if count == 0:
                break
            rows.append((count, batch.download().wait().tolist()))
        self.assertEqual(rows, [(2, [[0, 0], [0, 0]]), (2, [[1, 1], [1, 1]]), (1, [[2, 2]])])

    def test_a_batch_of_another_object(self):
        class Other:
            _as_parameter_ = property(lambda self: _c.fy_tape_create())

        for junk in (None, Other(), ferry.Tape()):
            self.assertRaises(TypeError, _c.fy_prefetch_next, junk)

    def test_a_kernel_in_a_tuple(self):
        def double(launch):
            self.assertEqual(launch.nsrc, 1)

        info = _c.fy_op_info_t(
            name="kernel_in_a_tuple", nsrc_min=1, nsrc_max=1, ndst=1, dtypes=1, summary="none"
        )
        given = [("host", double)]
        definition = _c.fy_op_def_t(info=info, kernels=given)
        given[0] = 3
        self.assertEqual(definition.kernels[0].backend, "host")

    def test_results_are_read_once(self):
        x = ferry.ones(2)
        add = _c.fy_op_find("add").op
        for given in (iter([None]), (None for _ in range(1))):
            (made,) = _c.fy_op_call(add, [x, x], None, given)
            self.assertEqual(made.tolist(), [2, 2])

    def test_a_failure_that_c_handles(self):
        def step(device, batch):
            if batch == 1:
                raise ferry.ShapeMismatch(ferry.Status.SHAPE_MISMATCH, "not with one")

        batch, _ = _c.fy_plan_fit("sim?limit=16MiB", step, 8)
        self.assertEqual(batch, 8)

        class Foreign(Exception):
            status = 404

        def broken(*given):
            raise Foreign("planted")

        with self.assertRaisesRegex(Foreign, "planted"):
            _c.fy_plan_step("sim:0", broken, 1)

    def test_a_gradient_rule(self):
        x = ferry.tensor([1.0, 2.0])
        tape = ferry.Tape()
        tape.watch(x)

        def back(call):
            return [ferry.affine(call.dst_grad[0], 5.0, 0.0)]

        with tape:
            with ferry.no_tape():
                y = x * 5
            _c.fy_tape_attach(back, [x], y, _c.fy_attach_options_t(name="five"))
            tape.backward(ferry.sum(y))
        self.assertEqual(tape.grad(x).tolist(), [5, 5])
        gone = weakref.ref(back)
        del back, tape
        gc.collect()
        self.assertIsNone(gone())

    def test_pressure(self):
        asked = []

        def press(device, nbytes):
            asked.append((_c.fy_device_name(device), nbytes))
            asked.append(device)
            return 0

        device = ferry.Device("sim:6?capacity=4MiB")
        number = _c.fy_memory_on_pressure(device, press)
        kept = ferry.empty(3 << 18, device=device)
        with self.assertRaises(ferry.OutOfMemory):
            ferry.empty(3 << 18, device=device)
        self.assertEqual(kept.size, 3 << 18)
        _c.fy_memory_off_pressure(device, number)
        self.assertEqual(asked[0][0], "sim:6")
        with self.assertRaisesRegex(ValueError, "closed"):  # borrowed for the call
            _c.fy_device_name(asked[1])

    def test_exceptions(self):
        def broken(*given):
            raise LookupError("planted")

        for call in (lambda: _c.fy_device_enumerate(broken),
                     lambda: _c.fy_ledger_walk(broken),
                     lambda: _c.fy_plan_step("sim:0", broken, 1),
                     lambda: _c.fy_gradcheck(broken, [ferry.ones(2, "f64")])):  # fmt: skip
            with self.assertRaisesRegex(LookupError, "planted"):
                call()
        with self.assertRaisesRegex(TypeError, "returned NoneType, not a Tensor"):
            _c.fy_gradcheck(lambda given: None, [ferry.ones(2, "f64")])
        with self.assertRaisesRegex(TypeError, "cannot be a function"):
            _c.fy_device_options_t(alloc_device=broken)
        with self.assertRaisesRegex(TypeError, "def is no struct"):
            _c.fy_layer_create(("type", None, broken, broken))
        self.assertRaises(TypeError, _c.fy_segments_fit, "sim:0", lambda *a: None, broken, 1)

    def test_a_parameter_outlives_a_model_of_c(self):
        kept = []

        def make(device, options):
            return _c.fy_model_create(device, train.linear(3, 1), (3,), options)

        def step(model, batch):
            kept.append(_c.fy_model_param(model, 0).value)
            raise LookupError("planted")

        self.assertRaises(LookupError, _c.fy_segments_fit, "sim:0", make, step, 2)
        self.assertEqual(kept[0].shape, (1, 3))


if __name__ == "__main__":
    unittest.main()
