"""Files of numpy.save and numpy.savez are read, and files of fy_npy_write and fy_npz_write have
their bytes. Usage: npy.py PATH-OF-LIBFERRY PATH-OF-LIBFERRY_TRAIN. Fails if NumPy is not there."""

import ctypes as c
import os
import sys
import tempfile

import numpy as np

ferry = c.CDLL(sys.argv[1], mode=c.RTLD_GLOBAL)
train = c.CDLL(sys.argv[2])
DTYPES = {"f4": 0, "f8": 1, "f2": 2, "i4": 4, "i8": 5, "u1": 6, "?": 7}
ferry.fy_device_host.restype = c.c_void_p
host = c.c_void_p(ferry.fy_device_host())


def out(function, *args):
    result = c.c_void_p()
    assert function(*args, c.byref(result)) == 0, function.__name__
    return result


def wrapped(array):
    """A tensor on the array's bytes; the array lives longer."""
    rank = array.ndim
    dims = (c.c_int64 * (rank or 1))(*array.shape)
    strides = (c.c_int64 * (rank or 1))(*(s // array.itemsize for s in array.strides))
    dtype = DTYPES["?" if array.dtype == bool else array.dtype.str[1:]]
    data = c.c_void_p(array.ctypes.data)
    return out(ferry.fy_tensor_wrap_strided, host, dtype, rank, dims, strides, data, None, None)


def check(array, theirs, ours):
    np.save(theirs, array)
    tensor = wrapped(array)
    assert train.fy_npy_write(ours.encode(), tensor) == 0
    with open(theirs, "rb") as a, open(ours, "rb") as b:
        assert a.read() == b.read(), (array.dtype, array.shape, array.strides)
    again = out(train.fy_npy_read, theirs.encode())
    assert train.fy_npy_write(ours.encode(), again) == 0
    back = np.load(ours)
    assert back.dtype == array.dtype and back.shape == array.shape and (back == array).all()
    for each in (tensor, again):
        ferry.fy_tensor_destroy(each)


class Entry(c.Structure):
    _fields_ = [("name", c.c_char_p), ("tensor", c.c_void_p)]


train.fy_npz_name.restype = c.c_char_p
train.fy_npz_count.restype = c.c_size_t


def check_archive(arrays, theirs, ours):
    np.savez(theirs, **arrays)
    entries = (Entry * (len(arrays) or 1))(
        *(Entry(name.encode(), wrapped(array)) for name, array in arrays.items()))
    assert train.fy_npz_write(ours.encode(), c.c_size_t(len(arrays)), entries) == 0
    with open(theirs, "rb") as a, open(ours, "rb") as b:
        assert a.read() == b.read(), list(arrays)
    for save in np.savez, np.savez_compressed:
        save(theirs, **arrays)
        file = out(train.fy_npz_open, theirs.encode())
        assert train.fy_npz_count(file) == len(arrays)
        for i, (name, array) in enumerate(arrays.items()):
            assert train.fy_npz_name(file, c.c_size_t(i)) == name.encode()
            tensor = out(train.fy_npz_read, file, c.c_size_t(i))
            assert train.fy_npy_write(ours.encode(), tensor) == 0
            back = np.load(ours)
            assert back.dtype == array.dtype and back.shape == array.shape and (back == array).all()
            ferry.fy_tensor_destroy(tensor)
        train.fy_npz_close(file)
    for entry in entries[: len(arrays)]:
        ferry.fy_tensor_destroy(c.c_void_p(entry.tensor))


count = 0
with tempfile.TemporaryDirectory() as folder:
    names = os.path.join(folder, "numpy.npy"), os.path.join(folder, "ferry.npy")
    for name in DTYPES:
        for shape in ((), (1,), (7,), (2, 3), (0, 4), (3, 1, 5), (12, 34, 2), (1,) * 8):
            array = (np.arange(np.prod(shape, dtype=int)) % 2).astype(name).reshape(shape)
            views = [array, array.T]
            if array.ndim and array.size:
                views += [array[::2], np.broadcast_to(array[:1], array.shape)]
            for view in views:
                check(view, *names)
                count += 1
    archives = os.path.join(folder, "numpy.npz"), os.path.join(folder, "ferry.npz")
    large = np.arange(300000, dtype="f4").reshape(500, 600)
    for arrays in ({}, {"x": large[:2, :3]}, {"a": large, "b.c": large.T, "d/é": np.array(3, "i8")},
                   {f"n{i}": np.full(i % 7, i, "f8") for i in range(300)}):
        check_archive(arrays, *archives)
print(f"numpy {np.__version__}: {count} arrays and 4 archives, the same bytes")
