"""Scopes, guards, budgets, the ledger, errors; nothing is left behind by an exception."""

import copy
import gc
import pickle
import subprocess
import sys
import tempfile
import textwrap
import threading
import unittest
from pathlib import Path

import ferry


def run(program):
    """Runs a program in a new interpreter; (exit status, output, error text)."""
    command = [sys.executable, "-B", "-c", textwrap.dedent(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200)
    return done.returncode, done.stdout, done.stderr


class Scopes(unittest.TestCase):
    def setUp(self):
        self.device = ferry.Device("sim:0")
        self.x = ferry.tensor([1.0, 2.0])

    def test_limits_are_counts(self):
        for given in (-1, -(2**70)):
            with self.assertRaisesRegex(ValueError, "upload=.*: a limit is 0 or more"):
                with ferry.guard(upload=given):
                    pass

    def test_blocks_that_are_not_open(self):
        for block in (ferry.Tape(), ferry.no_tape(), ferry.Stream(self.device)):
            with block, block:
                pass
            with self.assertRaisesRegex(RuntimeError, type(block).__name__):
                block.__exit__(None, None, None)

    def test_ledger_by_path(self):
        with ferry.scope("outer"), ferry.scope("inner"):
            t = self.x.upload(self.device)
        inner = ferry.ledger["outer/inner"]
        self.assertEqual((inner.upload_count, inner.upload_nbytes), (1, 8))
        self.assertEqual(ferry.ledger["outer"].upload_nbytes, 8)
        self.assertEqual(ferry.ledger["nowhere"].upload_nbytes, 0)
        rows = {row["path"]: row for row in ferry.ledger}
        self.assertEqual(rows["outer/inner"]["upload_count"], 1)
        self.assertIn("outer/inner", ferry.ledger._repr_html_())
        self.assertEqual(t.download().wait().tolist(), [1, 2])  # the tensor outlives its scope
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "ledger.json")
            ferry.ledger.write(path)
            self.assertIn("outer/inner", path.read_text())

    def test_guard(self):
        t = self.x.upload(self.device)
        with ferry.guard("light"):
            u = t * 2
            with self.assertRaises(ferry.RefusedByGuard):
                self.x.upload(self.device)
            with self.assertRaises(ferry.RefusedByGuard):
                u.download()
        self.assertEqual(u.download().wait().tolist(), [2, 4])
        with ferry.guard(upload=8):
            self.x.upload(self.device)
            with self.assertRaises(ferry.RefusedByGuard):
                self.x.upload(self.device)
        with self.assertRaisesRegex(TypeError, "download"):
            ferry.guard(downloads=1).__enter__()
        messages = []
        ferry.set_log(lambda level, text: messages.append(level))
        with ferry.guard(log=True):
            self.x.upload(self.device)
        ferry.set_log(None)
        self.assertTrue(messages)

    def test_budget(self):
        with ferry.budget("upload=0"):
            with self.assertRaises(ferry.RefusedByGuard):
                self.x.upload(self.device)
        self.x.upload(self.device)
        with self.assertRaises(ferry.InvalidArgument):
            ferry.set_budget("uploads=1")

    def test_exceptions_end_scopes(self):
        for exception in (KeyboardInterrupt, ValueError, GeneratorExit):
            live = self.device.memory()["live"]
            try:
                with ferry.scope("a"), ferry.guard("b", upload=0):
                    kept = ferry.zeros(4096, device=self.device)
                    raise exception
            except exception:
                pass
            del kept
            gc.collect()
            self.x.upload(self.device)  # no guard is left
            self.device.wait()
            self.assertEqual(self.device.memory()["live"], live)

    def test_scopes_belong_to_threads(self):
        entered = ferry.scope("mine").__enter__()
        failures = []

        def leave():
            try:
                entered.__exit__()
            except RuntimeError as error:
                failures.append(error)

        thread = threading.Thread(target=leave)
        thread.start()
        thread.join()
        entered.__exit__()
        self.assertEqual(len(failures), 1)

    def test_memory_category_and_scope_figures(self):
        with ferry.scope("model", memory="weights"):
            w = ferry.zeros(1024, device=self.device)
        self.assertGreaterEqual(self.device.memory()["by_category"]["weights"], w.nbytes)
        live = self.device.memory("model")["live"]
        self.assertGreater(live, 0)
        self.assertEqual(live % 256, 0)

    def test_threads(self):
        results = []

        def work(number):
            x = ferry.full(1000, number, device=self.device)
            for _ in range(50):
                x = x + 1
            results.append(x.download().wait()[0].item() - number)

        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(results, [50] * 4)


class Errors(unittest.TestCase):
    def test_record(self):
        with self.assertRaises(ferry.ShapeMismatch) as caught:
            ferry.ones((2, 3)) + ferry.ones((2, 4))
        error = caught.exception
        self.assertIsInstance(error, ferry.Error)
        self.assertIsInstance(error, ValueError)
        self.assertEqual(error.status.name, "SHAPE_MISMATCH")
        self.assertIn("2x3", error.text)
        self.assertTrue(error.hint and error.file and error.line)
        again = pickle.loads(pickle.dumps(error))
        self.assertEqual((type(again), again.text), (type(error), error.text))
        copy.copy(error)

    def test_each_status_has_a_class(self):
        for status in ferry.Status:
            if status:
                cls = ferry._errors.CLASSES[status]
                self.assertIs(getattr(ferry, cls.__name__), cls)
                self.assertIn(status.name, cls.__doc__)

    def test_out_of_memory(self):
        small = ferry.Device("sim:7?capacity=1MiB")
        with self.assertRaises(MemoryError) as caught:
            ferry.zeros(1 << 20, device=small)
        self.assertEqual(caught.exception.status, ferry.Status.OUT_OF_MEMORY)
        with self.assertRaises(ferry.Unavailable):
            ferry.Device("cuda:99")
        with self.assertRaises(ferry.InvalidArgument):
            ferry.Device("sim:0?no=1")


class Interpreters(unittest.TestCase):
    def test_exit_with_everything_open(self):
        status, out, error = run("""
            import ferry
            device = ferry.Device("sim:0")
            scope = ferry.scope("open").__enter__()
            t = ferry.ones(1000, device=device)
            cycle = [t]; cycle.append(cycle)
            download = t.download()
            stream = ferry.Stream(device)
            view = memoryview(ferry.ones(3))
            t.ticket.on_done(lambda status: None)
            borrowed = ferry.from_buffer(bytearray(8))
            print("end")
        """)
        self.assertEqual((status, out, error), (0, "end\n", ""))

    def test_freeing_does_not_hold_the_gil(self):
        """The deleter of a large tensor blocks until another thread of Python has run."""
        status, out, error = run("""
            import ctypes, ferry, threading, time
            from ctypes import addressof, byref, c_void_p
            libc = ctypes.PyDLL(None)  # its calls keep the GIL
            c = ctypes.CDLL(ferry._library.path)
            gate, memory = (ctypes.c_char * 64)(), (ctypes.c_float * 10_000)()
            libc.sem_init(gate, 0, 0)
            c.fy_device_host.restype = c_void_p
            handle, managed = c_void_p(), c_void_p()
            host, dims = c_void_p(c.fy_device_host()), (ctypes.c_int64 * 1)(10_000)
            deleter = ctypes.cast(libc.sem_wait, c_void_p)
            c.fy_tensor_wrap(host, 0, 1, dims, memory, deleter, gate, byref(handle))
            c.fy_tensor_to_dlpack(handle, 1, None, byref(managed))
            c.fy_tensor_destroy(handle)
            make = ctypes.pythonapi.PyCapsule_New
            make.restype, make.argtypes = ctypes.py_object, [c_void_p, ctypes.c_char_p, c_void_p]
            t = ferry._core.from_dlpack(make(managed, b"dltensor_versioned", None), ferry.host)
            threading.Timer(0.1, lambda: libc.sem_post(gate)).start()
            del t
            print("freed")
        """)
        self.assertEqual((status, out, error), (0, "freed\n", ""))

    def test_the_last_use_ends_on_a_thread_of_c_at_exit(self):
        """It would wait for the GIL, which the exiting interpreter keeps."""
        status, out, error = run("""
            import atexit, ctypes
            libc = ctypes.PyDLL(None)

            @atexit.register  # before ferry, so it runs last
            def end():
                thread = ctypes.c_void_p()
                deleter = ctypes.c_void_p.from_address(managed + 16)
                libc.pthread_create(ctypes.byref(thread), None, deleter, ctypes.c_void_p(managed))
                libc.pthread_join(thread, None)
                print("joined")

            import ferry
            get = ctypes.pythonapi.PyCapsule_GetPointer
            get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
            capsule = ferry.from_buffer(bytearray(8)).__dlpack__(max_version=(1, 0))
            managed = get(capsule, b"dltensor_versioned")
            ctypes.pythonapi.PyCapsule_SetDestructor(ctypes.py_object(capsule), None)
        """)
        self.assertEqual((status, out, error), (0, "joined\n", ""))

    def test_interrupt_in_a_loop(self):
        status, out, error = run("""
            import ferry, signal
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            signal.signal(signal.SIGALRM, signal.default_int_handler)
            device = ferry.Device("sim:0")
            live = device.memory()["live"]
            x = None
            try:
                with ferry.scope("loop"), ferry.guard():
                    x = ferry.ones(1000, device=device)
                    while True:
                        x = x * 0.5
            except KeyboardInterrupt:
                pass
            del x
            device.wait()
            ferry.ones(2).upload(device)
            print(device.memory()["live"] - live)
        """)
        self.assertEqual((status, out, error), (0, "0\n", ""))

    def test_subinterpreters_are_refused(self):
        status, out, error = run("""
            import sys
            try:
                import _xxsubinterpreters as interpreters
            except ImportError:
                import _interpreters as interpreters
            code = '''
            try:
                import ferry
                print("imported", flush=True)
            except ImportError as error:
                print("refused:", error, flush=True)
            '''
            import textwrap
            for order in ("first", "second"):
                made = interpreters.create()
                interpreters.run_string(made, textwrap.dedent(code))
                interpreters.destroy(made)
                import ferry
                print(ferry.ones(1).item(), len(ferry.devices()) > 0, flush=True)
        """)
        self.assertEqual(status, 0, error)
        self.assertRegex(out, "^(refused: .*subinterpreters\n1.0 True\n){2}$")

    def test_free_threading_is_refused(self):
        status, out, error = run("""
            import sysconfig
            asked = sysconfig.get_config_var
            sysconfig.get_config_var = lambda name: 1 if name == "Py_GIL_DISABLED" else asked(name)
            try:
                import ferry
            except ImportError as error:
                print("refused:", error)
        """)
        self.assertRegex(out, "^refused: .*free-threaded")

    def test_a_wrong_library_is_explained(self):
        status, out, error = run("""
            import os
            os.environ["FERRY_LIBRARY"] = "/nowhere"
            try:
                import ferry
            except ImportError as error:
                print(error)
        """)
        self.assertEqual(out, "FERRY_LIBRARY is /nowhere: no libferry.so there\n")


if __name__ == "__main__":
    unittest.main()
