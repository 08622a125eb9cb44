#!/usr/bin/env python3
"""Writes rejects/*.images, *.labels and *.cifar10: one small file for each rule that a reader of data sets must refuse by,
named after the rule; and good.images, good.labels, good.cifar10, which are taken. The build runs it (tests/unit/train/tests.cmake).
Usage: make_dataset_rejects.py FOLDER"""

import gzip
import struct
import sys


def idx(dims, data, kind=8):
    return (
        bytes([0, 0, kind, len(dims)]) + b"".join(struct.pack(">I", d) for d in dims) + bytes(data)
    )


def packed(data):
    return gzip.compress(data, mtime=0)


def record(label):
    return bytes([label]) + bytes(i % 251 for i in range(3072))


def patched(data, at, value):
    at %= len(data)
    return data[:at] + bytes([value]) + data[at + 1 :]


images = idx([3, 2, 2], range(12))
labels = idx([3], [4, 0, 7])

# Rules that refuse both files of a pair; `d` is the data of rank-1 or rank-3 files.
both = {
    "empty": lambda good, dims, d: b"",
    "magic-cut-off": lambda good, dims, d: good[:3],
    "first-byte-not-zero": lambda good, dims, d: patched(good, 0, 1),
    "second-byte-not-zero": lambda good, dims, d: patched(good, 1, 1),
    "little-endian-magic": lambda good, dims, d: good[3::-1] + good[4:],
    "type-unknown": lambda good, dims, d: patched(good, 2, 0x0A),
    "type-signed-bytes": lambda good, dims, d: patched(good, 2, 0x09),
    "type-float": lambda good, dims, d: idx(dims, d * 4, 0x0D),
    "rank-zero": lambda good, dims, d: idx([], [0]),
    "rank-nine": lambda good, dims, d: idx([1] * 9, [0]),
    "rank-two": lambda good, dims, d: idx([3, 4], range(12)),
    "size-cut-off": lambda good, dims, d: good[: 4 * len(dims) + 2],
    "size-zero": lambda good, dims, d: idx(dims[:-1] + [0], []),
    "data-cut-off": lambda good, dims, d: good[:-1],
    "no-data": lambda good, dims, d: good[: 4 + 4 * len(dims)],
    "bytes-behind-the-data": lambda good, dims, d: good + b"\0",
    "little-endian-sizes": lambda good, dims, d: good[:4]
    + b"".join(struct.pack("<I", x) for x in dims)
    + d,
    "size-of-everything": lambda good, dims, d: good[:4] + b"\xff" * 4 * len(dims) + d,
    "gzip-data-cut-off": lambda good, dims, d: packed(good[:-1]),
    "gzip-bytes-behind-the-data": lambda good, dims, d: packed(good + b"\0"),
    "gzip-size-past-what-it-can-hold": lambda good, dims, d: packed(idx([1 << 20] + dims[1:], d)),
    "gzip-cut-off": lambda good, dims, d: packed(good)[:-9],
    "gzip-header-only": lambda good, dims, d: packed(good)[:10],
    "gzip-checksum": lambda good, dims, d: patched(packed(good), -5, packed(good)[-5] ^ 1),
    "gzip-length": lambda good, dims, d: patched(packed(good), -4, 99),
    "gzip-block-type": lambda good, dims, d: patched(packed(good), 10, 0x07),
    "gzip-method": lambda good, dims, d: patched(packed(good), 2, 7),
    "gzip-trailing-bytes": lambda good, dims, d: packed(good) + b"more",
    "gzip-in-gzip": lambda good, dims, d: packed(packed(good)),
}
files = {
    "good.images": images,
    "good.labels": labels,
    "good.cifar10": record(3) + record(9),
}
for rule, make in both.items():
    files[rule + ".images"] = make(images, [3, 2, 2], images[16:])
    files[rule + ".labels"] = make(labels, [3], labels[8:])
files["size-past-the-limit.images"] = idx([1 << 31, 2, 2], range(12))
files["one-fewer.images"] = idx([2, 2, 2], range(8))
files["one-more.labels"] = idx([4], [4, 0, 7, 1])
files["rank-five.images"] = idx([3, 2, 2, 1, 1], range(12))
files["labels-for-images.images"] = labels
files["images-for-labels.labels"] = images
files["product-past-64-bits.images"] = bytes([0, 0, 8, 4]) + b"\xff" * 16 + bytes(12)
files["product-wraps-to-the-length.images"] = bytes([0, 0, 8, 4]) + struct.pack(
    ">4I", 1 << 16, 1 << 16, 1 << 16, 1 << 16
)

files.update(
    {
        "empty.cifar10": b"",
        "one-byte.cifar10": b"\0",
        "no-multiple.cifar10": record(3)[:-1],
        "one-byte-more.cifar10": record(3) + b"\0",
        "label-ten.cifar10": record(10),
        "label-of-second-record.cifar10": record(0) + record(255),
        "channels-last.cifar10": bytes(range(200, 256)) + bytes(3073 - 56),
        "gzip-no-multiple.cifar10": packed(record(3) + b"\0"),
        "gzip-empty.cifar10": packed(b""),
        "gzip-label.cifar10": packed(record(11)),
        "gzip-cut-off.cifar10": packed(record(3))[:-9],
        "gzip-checksum.cifar10": patched(packed(record(3)), -6, 1),
        "gzip-trailing-bytes.cifar10": packed(record(3)) + b"\1",
    }
)
for name, data in files.items():
    with open(sys.argv[1] + "/" + name, "wb") as out:
        out.write(data)
