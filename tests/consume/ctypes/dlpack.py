"""Exchanges tensors with NumPy 2 and PyTorch through DLPack 1, without a binding: ctypes and
capsules. Usage: dlpack.py PATH-OF-LIBFERRY [torch]. Fails if NumPy, or PyTorch with the second
argument, is not there."""

import ctypes as c
import sys

import numpy as np

ferry = c.CDLL(sys.argv[1])
F32, READ, READ_WRITE = 0, 1, 3
CAPSULE, USED = b"dltensor_versioned", b"used_dltensor_versioned"


class Managed(c.Structure):
    """DLManagedTensorVersioned."""


DELETER = c.CFUNCTYPE(None, c.POINTER(Managed))
Managed._fields_ = [
    ("major", c.c_uint32),
    ("minor", c.c_uint32),
    ("manager_ctx", c.c_void_p),
    ("deleter", DELETER),
    ("flags", c.c_uint64),
    ("data", c.c_void_p),
    ("device_type", c.c_int32),
    ("device_id", c.c_int32),
    ("ndim", c.c_int32),
    ("code", c.c_uint8),
    ("bits", c.c_uint8),
    ("lanes", c.c_uint16),
    ("shape", c.POINTER(c.c_int64)),
    ("strides", c.POINTER(c.c_int64)),
    ("byte_offset", c.c_uint64),
]

new_capsule = c.pythonapi.PyCapsule_New
new_capsule.restype, new_capsule.argtypes = c.py_object, [c.c_void_p, c.c_char_p, c.c_void_p]
pointer_of = c.pythonapi.PyCapsule_GetPointer
pointer_of.restype, pointer_of.argtypes = c.c_void_p, [c.py_object, c.c_char_p]
rename = c.pythonapi.PyCapsule_SetName
rename.argtypes = [c.py_object, c.c_char_p]
ferry.fy_device_host.restype = c.c_void_p
host = c.c_void_p(ferry.fy_device_host())


def out(function, *args):
    result = c.c_void_p()
    status = function(*args, c.byref(result))
    assert status == 0, (function.__name__, status)
    return result


class Exported:
    """What a consumer's from_dlpack takes: an object with the two methods of the protocol."""

    def __init__(self, tensor, access):
        self.tensor, self.access = tensor, access

    def __dlpack__(self, stream=None, max_version=None, dl_device=None, copy=None):
        assert max_version and max_version[0] >= 1
        return new_capsule(
            out(ferry.fy_tensor_to_dlpack, self.tensor, self.access, None).value, CAPSULE, None
        )

    def __dlpack_device__(self):
        return (1, 0)


def imported(array):
    capsule = array.__dlpack__(max_version=(1, 1))
    managed = c.c_void_p(pointer_of(capsule, CAPSULE))
    tensor = out(ferry.fy_tensor_from_dlpack, host, managed)
    rename(capsule, USED)
    return tensor


def address(tensor, access=READ):
    return out(ferry.fy_tensor_map, tensor, access).value


def filled(value):
    dims = (c.c_int64 * 2)(3, 4)
    return out(ferry.fy_full, host, F32, 2, dims, c.c_double(value))


def check_numpy():
    x = filled(2)
    read_only, writable = np.from_dlpack(Exported(x, READ)), np.from_dlpack(Exported(x, READ_WRITE))
    assert read_only.ctypes.data == writable.ctypes.data == address(x)
    assert read_only.shape == (3, 4) and read_only.dtype == np.float32
    assert not read_only.flags.writeable and writable.flags.writeable
    ferry.fy_tensor_destroy(x)
    writable[1, 2] = 5
    assert read_only[1, 2] == 5 and read_only.sum() == 27

    for array in (np.arange(12, dtype=np.float32).reshape(3, 4), np.zeros((2, 0), np.int64)):
        for view in (array, array.T, array[:, ::2] if array.size else array):
            references = sys.getrefcount(view)
            y = imported(view)
            assert not array.size or address(y) == view.ctypes.data
            assert sys.getrefcount(view) == references + 1
            back = np.from_dlpack(Exported(y, READ))
            assert (back == view).all() and back.strides == view.strides or not array.size
            del back
            ferry.fy_tensor_destroy(y)
            assert sys.getrefcount(view) == references
    fixed = np.ones(3, np.float32)
    fixed.setflags(write=False)
    y = imported(fixed)
    data = c.c_void_p()
    assert ferry.fy_tensor_map(y, READ_WRITE, c.byref(data)) != 0 and address(y) == fixed.ctypes.data
    ferry.fy_tensor_destroy(y)
    print(f"numpy {np.__version__}: both directions, zero copy, read-only kept")


def check_torch():
    import torch

    x = filled(2)
    theirs = torch.from_dlpack(Exported(x, READ_WRITE))
    assert theirs.data_ptr() == address(x) and theirs.sum().item() == 24
    ferry.fy_tensor_destroy(x)
    theirs += 1
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32,
                  torch.int64, torch.uint8, torch.bool):  # fmt: skip
        given = torch.arange(6).reshape(2, 3).to(dtype).t()
        y = imported(given)
        assert address(y) == given.data_ptr()
        assert torch.equal(torch.from_dlpack(Exported(y, READ_WRITE)), given)
        ferry.fy_tensor_destroy(y)
    print(f"torch {torch.__version__}: both directions, zero copy, 8 dtypes")


check_numpy()
if "torch" in sys.argv[2:]:
    check_torch()
