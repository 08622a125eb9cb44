#!/usr/bin/env python3
"""Writes rejects/*.safetensors: one small file for each rule that a reader of safetensors must refuse by, named after the rule.
The build runs it (tests/unit/train/tests.cmake). Usage: make_rejects.py FOLDER"""

import struct
import sys


def tensor(begin, end, shape="[2]", dtype='"F32"'):
    return '{"dtype":%s,"shape":%s,"data_offsets":[%s,%s]}' % (dtype, shape, begin, end)


def one(text, nbytes=8):
    return '{"a":%s}' % text, nbytes


def deep(levels):
    return (
        '{"a":{"dtype":"F32","shape":%s2%s,"data_offsets":[0,8]}}' % ("[" * levels, "]" * levels),
        8,
    )


good = tensor(0, 8)
headers = {
    "begin-after-end": one(tensor(8, 0), 0),
    "begin-not-zero": one(tensor(8, 16), 16),
    "bytes-behind-the-last": one(good, 9),
    "control-character": ('{"a\n":%s}' % good, 8),
    "data-cut-off": one(good, 7),
    "depth": deep(2),
    "depth-100000": deep(100000),
    "depth-metadata": ('{"__metadata__":{"k":{"k":"v"}}}', 0),
    "dim-past-63-bits": one(tensor(0, 0, "[0,9223372036854775808]"), 0),
    "duplicate-key": one('{"dtype":"F32","shape":[2],"shape":[2],"data_offsets":[0,8]}'),
    "duplicate-metadata": ('{"__metadata__":{},"__metadata__":{}}', 0),
    "duplicate-metadata-escaped": ('{"__metadata__":{},"__meta\\u0064ata__":{}}', 0),
    "duplicate-metadata-key": ('{"__metadata__":{"k":"1","\\u006b":"2"}}', 0),
    "duplicate-name": ('{"a":%s,"a":%s}' % (good, tensor(8, 16)), 16),
    "duplicate-name-escaped": ('{"a":%s,"\\u0061":%s}' % (good, tensor(8, 16)), 16),
    "dtype-half-byte": one(tensor(0, 1, "[3]", '"F4"'), 1),
    "dtype-lower-case": one(tensor(0, 8, "[2]", '"f32"')),
    "dtype-number": one(tensor(0, 8, "[2]", "32")),
    "dtype-unknown": one(tensor(0, 8, "[2]", '"F33"')),
    "empty-header": ("", 0),
    "escape-unknown": ('{"\\x61":%s}' % good, 8),
    "extra-key": one('{"dtype":"F32","shape":[2],"data_offsets":[0,8],"strides":[1]}'),
    "half-a-pair": ('{"\\ud83d":%s}' % good, 8),
    "half-a-pair-low": ('{"\\ude00":%s}' % good, 8),
    "header-list": ("[]", 0),
    "header-not-begun-by-brace": (" {}", 0),
    "header-without-end": ('{"a":%s' % good, 8),
    "hole": ('{"a":%s,"b":%s}' % (good, tensor(12, 20)), 20),
    "key-without-value": ('{"a":}', 0),
    "leading-zero": one(tensor("00", 8)),
    "metadata-number": ('{"__metadata__":{"k":1}}', 0),
    "missing-data-offsets": one('{"dtype":"F32","shape":[2]}'),
    "missing-dtype": one('{"shape":[2],"data_offsets":[0,8]}'),
    "missing-shape": one('{"dtype":"F32","data_offsets":[0,8]}'),
    "nul-in-name": ('{"a\\u0000b":%s}' % good, 8),
    "number-exponent": one(tensor(0, "8e0")),
    "number-fraction": one(tensor(0, "8.0")),
    "number-huge": one(tensor(0, "18446744073709551616")),
    "number-minus-zero": one(tensor("-0", 8)),
    "number-negative": one(tensor(0, 8, "[-2]")),
    "offsets-one": one('{"dtype":"F32","shape":[2],"data_offsets":[8]}'),
    "offsets-three": one('{"dtype":"F32","shape":[2],"data_offsets":[0,8,8]}'),
    "overlap": ('{"a":%s,"b":%s}' % (good, tensor(4, 12)), 12),
    "overlap-same": ('{"a":%s,"b":%s}' % (good, good), 8),
    "product-overflow": one(tensor(0, 0, "[4294967296,4294967296]"), 0),
    "product-overflow-empty": one(tensor(0, 0, "[9223372036854775807,0]"), 0),
    "product-overflow-bytes": one(tensor(0, 0, "[4611686018427387904]"), 0),
    "rank-nine": one(tensor(0, 8, "[2,1,1,1,1,1,1,1,1]")),
    "shape-and-offsets-differ": one(tensor(0, 12), 12),
    "shape-number": one(tensor(0, 8, "2")),
    "something-behind-the-header": ('{"a":%s}x' % good, 8),
    "tensor-null": ('{"a":null}', 0),
    "trailing-comma": ('{"a":%s,}' % good, 8),
}
not_utf8 = {
    "utf8-cut-off": b'{"a":1 \xc3',
    "utf8-latin1": b'{"__metadata__":{"\xfc":""}}',
    "utf8-overlong": b'{"__metadata__":{"\xc0\xaf":""}}',
    "utf8-past-the-last": b'{"__metadata__":{"\xf4\x90\x80\x80":""}}',
    "utf8-surrogate": b'{"__metadata__":{"\xed\xa0\x80":""}}',
}
raw = {
    "header-longer-than-the-file": struct.pack("<Q", 3) + b"{}",
    "header-past-64-bits": struct.pack("<Q", 2**64 - 1) + b"{}",
    "shorter-than-a-length": b"\x02\x00\x00\x00{}",
    "zero-padded-header": struct.pack("<Q", 8) + b"{}" + bytes(6),
}
for name, header in not_utf8.items():
    raw[name] = struct.pack("<Q", len(header)) + header
for name, (header, nbytes) in headers.items():
    raw[name] = struct.pack("<Q", len(header)) + header.encode() + bytes(nbytes)
for name, data in raw.items():
    with open("%s/%s.safetensors" % (sys.argv[1], name), "wb") as file:
        file.write(data)
