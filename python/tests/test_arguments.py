"""Every public function, and every function of ferry._c, with what it does not take: numbers, huge
integers, texts and other objects in each place, and in each field of a struct. It raises an
exception of Python and never crashes. Tensors of a field are destroyed before the call.

The calls are made in a child, which writes each of them to a file before it makes it.
"""

import inspect
import os
import re
import resource
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import ferry
from ferry import _c, train


class Index:
    """An integer of a class that the package does not know."""

    def __index__(self):
        return 2**64 + 3


JUNK = [
    0, 3, -1, 2**40, 2**62, 2**64 + 3, -(2**70), 10**5000, 0.5, True, None, "relu", "a\0b", b"x", object(), (), [3],
    (2**64, 1), [None], {}, Index(), int, lambda *given: 3, memoryview(b"12345678"),
]  # fmt: skip
MADE = [lambda: ferry.ones(2), lambda: ferry.Device("sim:0"), lambda: _c.fy_device_open("host")]
# Good values by the names of parameters, so that a call gets past the others.
GOOD = {
    "device": lambda: ferry.Device("host"), "peer": lambda: ferry.Device("sim:0"), "dtype": lambda: "f32",
    "dims": lambda: (2, 2), "shape": lambda: (2, 2), "strides": lambda: (2, 1), "axes": lambda: (0,),
    "axis": lambda: 0, "keepdims": lambda: 0, "options": lambda: None, "attrs": lambda: None,
    "spec": lambda: "sim:0", "name": lambda: "name", "text": lambda: "text", "path": lambda: "file",
    "directory": lambda: "folder", "timeout_ns": lambda: 0, "count": lambda: 1,
    "tensors": lambda: [ferry.ones(2)],
    "group": lambda: _c.fy_group_open(), "stream": lambda: ferry.Stream("sim:0"),
    "tape": lambda: ferry.Tape(),
    "model": lambda: train.Model("host", train.linear(2, 2), (2,)), "layer": lambda: train.linear(2, 2),
    "dataset": lambda: train.Dataset.synthetic_digits(4),
    "table": lambda: _c.fy_table_create(2, 2, [1, 2, 3, 4]),
    "ticket": lambda: _c.fy_ticket_t(), "download": lambda: ferry.ones(2, device="sim:0").download(),
    "pool": lambda: _c.fy_pool_create(), "status": lambda: 1, "index": lambda: 0, "seed": lambda: 1,
    "def": lambda: _c.fy_layer_def_t(), "body": lambda: train.linear(2, 2), "inputs": lambda: [ferry.ones(2)],
    "begin": lambda: 0, "end": lambda: 1, "step": lambda: 1, "p": lambda: 0.5, "activation": lambda: "relu",
    "reduction": lambda: "mean", "rng": lambda: ferry.rng_create("host", 1),
}  # fmt: skip
# It would wait for ever, change the process, or start as many threads as the number says.
LEFT_OUT = {"fy_host_set_threads", "fy_communicator_open", "fy_communicator_id", "fy_group_use_device"}


NUMBERS = {"value", "alpha", "beta", "eps", "low", "high", "mean", "std", "scale", "shift", "slope", "start",
           "threshold", "max_norm", "lr", "max"}  # fmt: skip


def good(name):
    if name in NUMBERS:
        return 0.5
    return GOOD[name]() if name in GOOD else ferry.ones((2, 2))


WANTED = {"integer": lambda: 1, "integers": lambda: (1, 1), "number": lambda: 0.5, "str": lambda: "name",
          "sequence": lambda: [ferry.ones(2)], "function": lambda: lambda *given: None}  # fmt: skip


def makers(function, names):
    """Makers of values that it takes, as far as its refusals tell."""
    found = [lambda name=name: good(name) for name in names]
    for _ in names:
        try:
            function(*(make() for make in found))
        except TypeError as error:
            said = re.search(r": (\w+)(?:\[0\])? is \w+, not (?:an? )?(\w+)", str(error))
            make = said and WANTED.get(said[2], getattr(_c, said[2], None))
            if make is None or said[1] not in names or said[2].startswith("FY"):
                break
            found[names.index(said[1])] = make
        except Exception:
            break
        else:
            break
    return found


def parameters(function):
    """Names of the parameters that the function has by position."""
    if inspect.isbuiltin(function):
        signature = function.__doc__.partition("\n")[0]
        return [name for name in signature.partition("(")[2].rstrip(")").split(", ") if name]
    try:
        found = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    return [p.name for p in found if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.VAR_POSITIONAL)]


def functions():
    """name: a function of the package, or a method of an object that is made again for each call"""
    import test_copies

    found = {}
    for name in set(_c.FUNCTIONS) - LEFT_OUT:
        found[f"_c.{name}"] = lambda name=name: getattr(_c, name)
    for module in (ferry, train):
        for name, value in vars(module).items():
            if callable(value) and getattr(value, "__module__", "").startswith("ferry"):
                if not (inspect.isclass(value) and issubclass(value, BaseException)):
                    found[f"{module.__name__}.{name}"] = lambda value=value: value
    for i, given in enumerate(test_copies.objects()):
        for name in dir(type(given)):
            is_public = name[0] != "_" or name in ("__getitem__", "__call__")
            if is_public and callable(getattr(type(given), name, None)):
                found[f"{type(given).__name__}.{name}"] = lambda i=i, name=name: getattr(
                    list(test_copies.objects())[i], name
                )
    return dict(sorted(found.items()))


def structs(function, names, made):
    """The places that take a struct, and its type."""
    for place, name in enumerate(names):
        try:
            function(*(3 if i == place else make() for i, make in enumerate(made)))
        except Exception as error:
            said = re.search(rf"{name} is int, not (fy_\w+_t)", str(error))
            kind = said and getattr(_c, said[1])
            if hasattr(kind, "_fields_"):
                yield place, kind


def settle(scope):
    """Ends what a call has begun."""
    try:
        _c.fy_graph_end()
    except ferry.Error:
        pass
    _c.fy_scope_end(scope)
    ferry.set_budget(None)
    ferry.set_log(None)


def shown(value):
    """repr, also of what has an integer of more digits than Python prints."""
    try:
        return repr(value)[:900]
    except ValueError:
        return f"<a {type(value).__name__} with a long integer>"


# Not public, or of the standard library: their refusals print the argument.
PRINTING = {"ferry.Status", "ferry.__getattr__", "ferry.train._maker", "ferry.train._pool",
            "ferry.train.check_callable"}


def check_text(label, error):
    """A refusal says what was refused, also where Python does not print it."""
    assert "integer string conversion" not in str(error) or label in PRINTING, error


def walk(log):
    calls, passed, destroyed = 0, 0, 0
    for label, find in functions().items():
        function = find()
        scope, kept = _c.fy_scope_begin_unowned("walk"), []
        names = parameters(function)
        os.pwrite(log, f"{label}{names}\n".encode().ljust(1000), 0)
        made = makers(function, names)
        for place in range(len(names)):
            for junk in [*JUNK, *(make() for make in MADE)]:
                try:
                    kept = kept or [make() for make in made]
                    given = [junk if i == place else value for i, value in enumerate(kept)]
                    os.pwrite(log, f"{label}({shown(given)})\n".encode(errors="replace").ljust(1000), 0)
                    function(*given)
                    passed, kept = passed + 1, []  # it may have consumed one
                except SystemError:
                    raise  # of the interpreter: the extension is wrong
                except Exception as error:
                    check_text(label, error)
                calls += 1
        settle(scope)
        for place, kind in structs(function, names, made):
            for field in kind._fields_:
                for junk in [*JUNK, ferry.ones(2), [ferry.ones(2)]]:
                    scope = _c.fy_scope_begin_unowned("walk")
                    try:
                        said = f"{label} {kind.__name__}.{field}={shown(junk)}\n"
                        os.pwrite(log, said.encode(errors="replace").ljust(1000), 0)
                        given = [make() for make in made]
                        given[place] = kind(**{field: junk})
                        shown(getattr(given[place], field))
                        for value in junk if isinstance(junk, list) else [junk]:
                            if isinstance(value, ferry.Tensor):  # the field keeps it
                                _c.fy_tensor_destroy(value)
                        function(*given)
                    except SystemError:
                        raise
                    except Exception as error:
                        check_text(label, error)
                        destroyed += str(error).endswith(f"{field}[0] is destroyed")
                    settle(scope)
                    calls += 1
    assert ferry.ones(2).tolist() == [1, 1]  # nothing that all calls use is closed
    return calls, passed, destroyed


class Arguments(unittest.TestCase):
    def test_in_a_child(self):
        with tempfile.TemporaryDirectory() as folder:
            log = Path(folder, "log")
            done = subprocess.run(
                [sys.executable, "-B", os.path.abspath(__file__), "walk", str(log)], cwd=folder,
                # a driver maps more memory than the limit below
                env={**os.environ, "CUDA_VISIBLE_DEVICES": "-1"}, capture_output=True, text=True,
            )  # fmt: skip
            self.assertEqual(done.returncode, 0, f"{log.read_text()} {done.stderr[-2000:]}")
        calls, passed, destroyed = map(int, done.stdout.split()[-3:])
        self.assertGreater(calls, 40_000)
        self.assertGreater(passed, 1_500)  # those whose place takes it
        self.assertGreater(destroyed, 0)


if __name__ == "__main__":
    if sys.argv[1:2] == ["walk"]:
        if "LD_PRELOAD" not in os.environ:  # AddressSanitizer maps more, and has its own limit
            resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
        with open(sys.argv[2], "w+b") as file:
            print(*walk(file.fileno()))
    else:
        unittest.main()
