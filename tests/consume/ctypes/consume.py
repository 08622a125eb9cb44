"""A consumer in Python without any binding: ctypes on libferry.so. Usage: consume.py PATH-OF-LIBFERRY"""

import ctypes as c
import sys

ferry = c.CDLL(sys.argv[1])  # RTLD_LOCAL, as Python does
F32, OK, DEVICE_MISMATCH, READ, FOREVER = 0, 0, 2, 1, 2**64 - 1


class Traffic(c.Structure):
    _fields_ = [
        (name, c.c_uint64)
        for name in ("count", "nbytes", "wire_nbytes", "copies", "host_blocked_ns")
    ] + [("by_path", c.c_uint64 * 16)]


class Totals(c.Structure):
    _fields_ = [
        ("struct_size", c.c_size_t),
        ("upload", Traffic),
        ("download", Traffic),
        ("peer", Traffic),
    ] + [
        (name, c.c_uint64)
        for name in ("requests", "syncs", "sync_ns", "device_allocs", "throttles", "throttle_ns")
    ]


class Error(c.Structure):
    _fields_ = [
        ("status", c.c_int),
        ("line", c.c_int),
        ("file", c.c_char_p),
        ("text", c.c_char * 512),
        ("oom", c.c_void_p),
    ]


class DlInfo(c.Structure):
    _fields_ = [
        ("fname", c.c_char_p),
        ("fbase", c.c_void_p),
        ("sname", c.c_char_p),
        ("saddr", c.c_void_p),
    ]


ferry.fy_device_host.restype = c.c_void_p
ferry.fy_pool_options_init.argtypes = [c.c_void_p, c.c_size_t]
ferry.fy_error_get.restype = c.POINTER(Error)
ferry.fy_version.restype = c.c_char_p
ferry.fy_status_name.restype = c.c_char_p


def error_text():
    return ferry.fy_error_get().contents.text.decode()


def out(function, *args):
    """Calls a fallible function whose last parameter is an out pointer; returns what it gave."""
    result = c.c_void_p()
    status = function(*args, c.byref(result))
    assert status == OK, (ferry.fy_status_name(status), error_text())
    return result


def ledger():
    totals = Totals(struct_size=c.sizeof(Totals))
    assert ferry.fy_ledger_query(None, c.byref(totals)) == OK, error_text()
    return totals


def floats(tensor, count):
    return list(c.cast(out(ferry.fy_tensor_map, tensor, READ), c.POINTER(c.c_float))[:count])


def owner(library, symbol):
    libc, info = c.CDLL(None), DlInfo()
    assert libc.dladdr(c.cast(getattr(library, symbol), c.c_void_p), c.byref(info))
    return info.fname.decode().rsplit("/", 1)[-1]


dims = (c.c_int64 * 1)(4)
data = (c.c_float * 4)(1, 2, 3, 4)
host = c.c_void_p(ferry.fy_device_host())
x = out(ferry.fy_tensor_wrap, host, F32, 1, dims, data, None, None)
assert floats(out(ferry.fy_add, x, x), 4) == [2, 4, 6, 8]

sim = out(ferry.fy_device_open, b"sim:0")
before = ledger()
device_x = out(ferry.fy_tensor_upload, x, sim, None)
# By name and number, as a binding would: fy_op_find returns fy_op_info_t, whose second field is the
# number.
twice = out(ferry.fy_add, device_x, device_x)
download = out(ferry.fy_tensor_download, twice, None)
back = out(ferry.fy_download_wait, download, c.c_uint64(FOREVER))
assert floats(back, 4) == [2, 4, 6, 8]
after = ledger()
assert (after.upload.count - before.upload.count, after.upload.nbytes - before.upload.nbytes) == (
    1,
    16,
)
assert (
    after.download.count - before.download.count,
    after.download.nbytes - before.download.nbytes,
) == (1, 16)

mixed = c.c_void_p()
assert ferry.fy_add(x, device_x, c.byref(mixed)) == DEVICE_MISMATCH and not mixed.value
assert "sim:0" in error_text() and "fy_tensor_upload" in error_text(), error_text()
assert ledger().upload.nbytes == after.upload.nbytes


class PoolOptions(c.Structure):
    _fields_ = [
        ("struct_size", c.c_size_t),
        ("alignment", c.c_uint64),
        ("segment_nbytes", c.c_uint64),
        ("limit", c.c_uint64),
        ("release_eagerly", c.c_int),
        ("resize_nbytes", c.c_uint64),
        ("keeps_segments", c.c_int),
    ]


class PoolBlock(c.Structure):
    _fields_ = [("offset", c.c_uint64), ("nbytes", c.c_uint64), ("token", c.c_void_p)]


# The defaults, without the macros of the header.
options = PoolOptions()
ferry.fy_pool_options_init(c.byref(options), c.sizeof(options))
assert (options.struct_size, options.alignment, options.limit) == (c.sizeof(options), 256, FOREVER)
options.segment_nbytes = options.limit = 1 << 20
pool = out(ferry.fy_pool_create, c.byref(options))
block, none = PoolBlock(), PoolBlock()
assert ferry.fy_pool_alloc(pool, c.c_uint64(1000), c.byref(block)) == OK, error_text()
assert (block.offset, block.nbytes) == (0, 1024)
assert (
    ferry.fy_pool_alloc(pool, c.c_uint64(1 << 20), c.byref(none)) != OK
    and "limit 1048576" in error_text()
), error_text()
ferry.fy_pool_free(pool, c.byref(block))
ferry.fy_pool_destroy(pool)

assert ferry.fy_version() == b"0.1.0"
# Not malloc itself: a Python at a fixed address (Debian 13's) has a separate entry for each
# function whose address it takes.
for symbol in ("aligned_alloc", "malloc_usable_size"):
    assert owner(c.CDLL(None), symbol).startswith("libc.so"), (symbol, owner(c.CDLL(None), symbol))
assert owner(ferry, "_Znwm").startswith("libstdc++.so"), owner(ferry, "_Znwm")
