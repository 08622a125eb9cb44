"""The structs of DLPack (include/ferry/dlpack.h) in ctypes, and capsules: tests that are another
library use them."""

import ctypes
from ctypes import POINTER, Structure, c_int, c_int32, c_int64, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p

FLOAT = 2  # kDLFloat

python = ctypes.pythonapi
python.PyCapsule_New.restype = ctypes.py_object
python.PyCapsule_New.argtypes = [c_void_p, ctypes.c_char_p, c_void_p]
python.PyCapsule_GetPointer.restype = c_void_p
python.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
python.PyCapsule_IsValid.argtypes = [ctypes.py_object, ctypes.c_char_p]


class Version(Structure):
    _fields_ = [("major", c_uint32), ("minor", c_uint32)]


class Device(Structure):
    _fields_ = [("device_type", c_int), ("device_id", c_int32)]


class DataType(Structure):
    _fields_ = [("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16)]


class Tensor(Structure):
    _fields_ = [
        ("data", c_void_p), ("device", Device), ("ndim", c_int32), ("dtype", DataType),
        ("shape", POINTER(c_int64)), ("strides", POINTER(c_int64)), ("byte_offset", c_uint64),
    ]  # fmt: skip


class OldManaged(Structure):
    pass


class Managed(Structure):
    pass


OldManaged._fields_ = [
    ("dl_tensor", Tensor), ("manager_ctx", c_void_p),
    ("deleter", ctypes.CFUNCTYPE(None, POINTER(OldManaged))),
]  # fmt: skip
Managed._fields_ = [
    ("version", Version), ("manager_ctx", c_void_p),
    ("deleter", ctypes.CFUNCTYPE(None, POINTER(Managed))), ("flags", c_uint64),
    ("dl_tensor", Tensor),
]  # fmt: skip


class Header(Structure):
    _fields_ = [("version", Version), ("prev_api", c_void_p)]


class ExchangeAPI(Structure):
    _fields_ = [
        ("header", Header), ("managed_tensor_allocator", c_void_p),
        ("managed_tensor_from_py_object_no_sync", c_void_p),
        ("managed_tensor_to_py_object_no_sync", c_void_p),
        ("dltensor_from_py_object_no_sync", c_void_p), ("current_work_stream", c_void_p),
    ]  # fmt: skip
