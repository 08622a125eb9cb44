"""Files: npy, safetensors, snapshots, events; streams, tickets, downloads, await."""

import asyncio
import io
import json
import os
import struct
import tempfile
import threading
import unittest
import warnings
from pathlib import Path

import ferry
from ferry import train

try:
    import numpy
except ImportError:
    numpy = None


class Files(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def test_npy(self):
        path = self.folder / "a.npy"
        ferry.write_npy(path, ferry.tensor([[1.0, 2.0], [3.0, 4.0]]).T)
        self.assertEqual(ferry.read_npy(path).tolist(), [[1, 3], [2, 4]])
        path.write_bytes(b"no array")
        with self.assertRaises(ferry.CorruptData):
            ferry.read_npy(path)
        with self.assertRaises(OSError) as caught:
            ferry.read_npy(self.folder / "none.npy")
        self.assertIsInstance(caught.exception, ferry.IOFailed)
        with self.assertRaises(ferry.DeviceMismatch):
            ferry.write_npy(path, ferry.ones(2, device="sim:0"))

    def test_npz(self):
        path = self.folder / "a.npz"
        tensors = {"x": ferry.tensor([[1.0, 2.0], [3.0, 4.0]]).T, "y": ferry.tensor([5])}
        ferry.write_npz(path, tensors)
        again = ferry.read_npz(path)
        self.assertEqual({k: (v.dtype, v.tolist()) for k, v in again.items()},
                         {k: (v.dtype, v.tolist()) for k, v in tensors.items()})  # fmt: skip
        ferry.write_npz(path, {})
        self.assertEqual(ferry.read_npz(path), {})
        with self.assertRaises(TypeError):
            ferry.write_npz(path, {"x": [1]})
        with self.assertRaises(ferry.DeviceMismatch):
            ferry.write_npz(path, {"x": ferry.ones(2, device="sim:0")})
        path.write_bytes(b"no archive")
        with self.assertRaises(ferry.CorruptData):
            ferry.read_npz(path)

    def same_as(self, tensor, array):
        back = tensor.numpy()
        self.assertEqual((back.dtype, back.shape), (array.dtype, array.shape))
        self.assertTrue((back == array).all())

    @unittest.skipIf(numpy is None, "no NumPy")
    def test_npy_of_numpy(self):
        theirs, ours = self.folder / "numpy.npy", self.folder / "ferry.npy"
        shapes = ((), (1,), (7,), (2, 3), (0, 4), (3, 1, 5), (12, 34, 2), (1,) * 8)
        for dtype in ("f4", "f8", "f2", "i4", "i8", "u1", "?"):
            for shape in shapes:
                numbers = numpy.arange(numpy.prod(shape, dtype=int)) % 2
                array = numbers.astype(dtype).reshape(shape)
                views = [array, array.T]
                if array.ndim and array.size:
                    views += [array[::2], numpy.broadcast_to(array[:1], shape)]
                for view in views:
                    numpy.save(theirs, view)
                    ferry.write_npy(ours, ferry.from_numpy(view))
                    self.assertEqual(ours.read_bytes(), theirs.read_bytes(), (dtype, shape))
                    self.same_as(ferry.read_npy(theirs), view)

    @unittest.skipIf(numpy is None, "no NumPy")
    def test_npz_of_numpy(self):
        theirs, ours = self.folder / "numpy.npz", self.folder / "ferry.npz"
        large = numpy.arange(300000, dtype="f4").reshape(500, 600)
        mixed = {"a": large, "b.c": large.T, "d/é": numpy.array(3, "i8")}
        many = {f"n{i}": numpy.full(i % 7, i, "f8") for i in range(300)}
        for arrays in ({}, {"x": large[:2, :3]}, mixed, many):
            numpy.savez(theirs, **arrays)
            ferry.write_npz(ours, {name: ferry.from_numpy(a) for name, a in arrays.items()})
            self.assertEqual(ours.read_bytes(), theirs.read_bytes(), list(arrays))
            for save in (numpy.savez, numpy.savez_compressed):
                save(theirs, **arrays)
                again = ferry.read_npz(theirs)
                self.assertEqual(list(again), list(arrays))
                for name, array in arrays.items():
                    self.same_as(again[name], array)

    def test_safetensors(self):
        path = self.folder / "a.safetensors"
        tensors = {"x": ferry.tensor([1, 2]), "y.z": ferry.ones((2, 3), "bf16")}
        ferry.write_safetensors(path, tensors, {"made": "here"})
        again = ferry.read_safetensors(path)
        self.assertEqual({k: v.tolist() for k, v in again.items()},
                         {k: v.tolist() for k, v in tensors.items()})  # fmt: skip
        uploaded = ferry.read_safetensors(path, "sim:0")
        self.assertEqual(uploaded["x"].device.name, "sim:0")
        with self.assertRaises(TypeError):
            ferry.write_safetensors(path, {"x": [1]})

    def files_with_members_that_ferry_lacks(self):
        header = {"scaled_fp8": {"dtype": "F8_E4M3", "shape": [0], "data_offsets": [0, 0]},
                  "w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
                  "last": {"dtype": "U8", "shape": [1], "data_offsets": [8, 9]}}  # fmt: skip
        text = json.dumps(header).encode()
        path = self.folder / "a.safetensors"
        path.write_bytes(struct.pack("<Q", len(text)) + text + struct.pack("<ffB", 1, 2, 3))
        yield path, ferry.read_safetensors
        yield path, lambda p, **options: ferry.read_safetensors(p, ferry.host, **options)
        if numpy:
            path = self.folder / "b.npz"
            odd = numpy.arange(3, dtype="<i2")
            numpy.savez(path, scaled_fp8=odd, w=numpy.array([1, 2], "f4"), last=odd[:1] + 3 > 0)
            yield path, ferry.read_npz

    def test_members_that_ferry_lacks(self):
        for path, read in self.files_with_members_that_ferry_lacks():
            with self.assertWarnsRegex(UserWarning, "1 of 3 .*'scaled_fp8'"):
                found = read(path)
            self.assertEqual(set(found), {"w", "last"})
            self.assertEqual(found["w"].tolist(), [1, 2])
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                self.assertEqual(read(path, names=["w"])["w"].tolist(), [1, 2])
                self.assertEqual(list(read(path, names="w")), ["w"])
                self.assertEqual(read(path, names=[]), {})
            with self.assertRaises(ferry.Unsupported):
                read(path, names=["w", "scaled_fp8"])
            with self.assertRaisesRegex(KeyError, "no 'v' among its 3"):
                read(path, names=["w", "v"])

    def test_snapshot_and_events(self):
        device = ferry.Device("sim:0")
        with ferry.record(self.folder / "run.jsonl"), ferry.scope("named"):
            t = ferry.ones(100).upload(device)
            del t
        events = list(ferry.read_events(self.folder / "run.jsonl"))
        self.assertEqual(events[-1]["ev"], "end")
        self.assertIn("named", json.dumps(events))
        ferry.snapshot(device, self.folder / "memory.json")
        json.loads((self.folder / "memory.json").read_text())
        with self.assertRaises(ferry.IOFailed):
            ferry.record(self.folder / "none" / "x").__enter__()


class PathLike:
    def __init__(self, path):
        self.path = path

    def __fspath__(self):
        return self.path


class Paths(unittest.TestCase):
    """Every call with a path takes what open() takes, and nothing else."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.model = train.Model("host", train.linear(2, 1), (2,))
        tensor = ferry.tensor([1.0, 2.0])
        self.writers = {
            "npy": lambda p: ferry.write_npy(p, tensor),
            "npz": lambda p: ferry.write_npz(p, {"x": tensor}),
            "safetensors": lambda p: ferry.write_safetensors(p, {"x": tensor}),
            "model": self.model.save,
            "checkpoints": lambda p: train.save_checkpoint(p, self.model),
            "snapshot": lambda p: ferry.snapshot("sim:0", p),
            "ledger": ferry.ledger.write,
            "record": lambda p: ferry.record(p).__enter__().__exit__(None),
        }
        self.readers = {
            "npy": ferry.read_npy,
            "npz": ferry.read_npz,
            "safetensors": ferry.read_safetensors,
            "model": self.model.load,
            "checkpoints": lambda p: train.load_checkpoint(p, self.model),
            "record": lambda p: list(ferry.read_events(p)),
        }

    def test_kinds_of_paths(self):
        for name, write in self.writers.items():
            for file in ("plain", "café", os.fsdecode(b"caf\xe9")):
                path = os.path.join(self.folder, f"{name}-{file}")
                for given in (path, os.fsencode(path), Path(path), PathLike(path),
                              PathLike(os.fsencode(path))):  # fmt: skip
                    with self.subTest(call=name, path=given):
                        write(given)
                        self.assertTrue(os.path.exists(path))
                        if name in self.readers:
                            self.readers[name](given)
                with os.scandir(self.folder) as entries:
                    for entry in entries:
                        if entry.path == path and name in self.readers:
                            self.readers[name](entry)
        count = len(self.writers) * 3
        self.assertEqual(len(os.listdir(self.folder)), count)

    def calls(self):
        yield from self.writers.items()
        yield from self.readers.items()
        yield "read_text", lambda p: train.Dataset.read_text(p, 4)
        yield "open", lambda p: train.Dataset.open("mnist", p)
        yield "record", ferry.record
        data = train.Dataset([[1.0, 2.0]] * 2, [[1.0]] * 2)
        loader = train.Loader("host", data, batch=2)
        optimizer = train.Optimizer(self.model)
        yield "fit", lambda p: train.fit(self.model, optimizer, loader, loss="mse", checkpoint=p)

    def test_what_is_no_path(self):
        os.chdir(self.folder)
        self.addCleanup(os.chdir, "/")
        for name, call in self.calls():
            for wrong in (None, 5, 1.5, io.BytesIO(), ["a"], PathLike(5)):
                if wrong is None and name in ("open", "fit"):
                    continue  # no folder
                with self.subTest(call=name, path=wrong), self.assertRaises(TypeError):
                    call(wrong)
            for wrong in ("cut\0here", b"cut\0here", Path("cut\0here")):
                if name == "record" and call is ferry.record:
                    continue  # when it begins
                with self.subTest(call=name, path=wrong):
                    with self.assertRaisesRegex(ValueError, "NUL|null"):
                        call(wrong)
        self.assertEqual(os.listdir(self.folder), [])

    def test_names(self):
        t, path = ferry.tensor([1.0]), os.path.join(self.folder, "a")
        calls = {
            "npz": lambda s: ferry.write_npz(path, {s: t}),
            "safetensors": lambda s: ferry.write_safetensors(path, {s: t}),
            "key": lambda s: ferry.write_safetensors(path, {"x": t}, {s: "v"}),
            "value": lambda s: ferry.write_safetensors(path, {"x": t}, {"k": s}),
            "tensor": lambda s: setattr(t, "name", s),
            "device": ferry.Device,
            "scope": lambda s: ferry.scope(s).__enter__(),
            "guard": lambda s: ferry.guard(s).__enter__(),
            "budget": lambda s: ferry.set_budget(s),
            "stream": lambda s: ferry.Stream("sim:0", s),
            "totals": ferry.ledger.totals,
            "memory": ferry.host.memory,
            "call": lambda s: ferry.call(s, t),
            "model": lambda s: train.Model("host", train.linear(2, 1), (2,), name=s),
            "open": lambda s: train.Model.open("host", s),
            "layer": lambda s: train.sequential({s: train.linear(2, 1)}),
            "custom": lambda s: train.custom(lambda x: x, name=s),
            "plan": lambda s: ferry.plan(s, lambda device, batch: None, 1),
            "note": lambda s: train.save_checkpoint(self.folder, self.model, note=s),
        }
        for name, call in calls.items():
            for wrong, kind in (("a\0b", ValueError), (5, TypeError)):
                with self.subTest(call=name, text=wrong), self.assertRaises(kind):
                    call(wrong)
        self.assertEqual(os.listdir(self.folder), [])


class Order(unittest.TestCase):
    def setUp(self):
        self.device = ferry.Device("sim:0")

    def test_downloads(self):
        t = ferry.tensor([1.0, 2.0]).upload(self.device)
        before = ferry.ledger.totals()
        download = t.download(dtype="f64")
        host = download.wait()
        self.assertEqual((host.dtype, host.tolist()), ("f64", [1, 2]))
        with self.assertRaisesRegex(ValueError, "waited"):
            download.wait()
        t.download()  # dropped
        many = ferry.download_many([t, t * 2])
        self.assertEqual([d.wait().tolist() for d in many], [[1, 2], [2, 4]])
        self.assertEqual((ferry.ledger.totals() - before).syncs, 3)
        download = t.download()
        self.device.wait()
        self.assertEqual(download.poll().tolist(), [1, 2])

    def test_a_fault_is_raised_by_the_wait(self):
        table = ferry.ones((4, 2), device=self.device)
        rows = ferry.gather(table, ferry.tensor([9]).upload(self.device))
        for _ in range(2):
            with self.assertRaises(ferry.BadValue):
                rows.download().wait()

    def test_streams_and_tickets(self):
        with ferry.Stream(self.device, "mine", priority=1) as stream:
            t = ferry.ones(4, device=self.device) + 1
        ticket = stream.record()
        ticket.wait()
        self.assertTrue(ticket.is_done)
        other = ferry.Stream(self.device)
        other.wait(ticket)
        t.ticket.wait()
        seen, called = [], threading.Event()
        ticket.on_done(lambda status: (seen.append(status), called.set()))
        self.assertTrue(called.wait(30))
        self.assertEqual(seen, [ferry.Status.OK])
        with self.assertRaisesRegex(TypeError, "function is int, not a callable"):
            ticket.on_done(5)

    def test_events_of_others_need_native_queues(self):
        stream = ferry.Stream("sim:0")
        for call in (stream.record_event, stream.wait_event):
            with self.assertRaisesRegex(ferry.Unsupported, "no native queues"):
                call(4096)

    def test_await(self):
        async def work(number):
            t = ferry.full(4, number, device=self.device) * 2
            await t.ticket
            host = await t.download()
            return host[0].item()

        async def main():
            return await asyncio.gather(*(work(n) for n in range(5)))

        self.assertEqual(asyncio.run(main()), [0, 2, 4, 6, 8])

    def test_await_raises_the_fault(self):
        async def main():
            table = ferry.ones((4, 2), device=self.device)
            rows = ferry.gather(table, ferry.tensor([9]).upload(self.device))
            await rows.download()

        with self.assertRaises(ferry.BadValue):
            asyncio.run(main())


if __name__ == "__main__":
    unittest.main()
