#!/usr/bin/env python3
"""Reads OURS with the reference implementation of safetensors and writes what it has read to THEIRS, with that implementation's writer: the two
files are then the same bytes. Exit status 77: the reference is not here (it is looked for in FOLDER, and installed there if there is a network).
Usage: safetensors_reference.py FOLDER OURS THEIRS"""

import ctypes
import importlib
import json
import subprocess
import sys

folder, ours, theirs = sys.argv[1:]
sys.path.insert(0, folder)
try:
    import safetensors
except ImportError:
    install = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--target",
        folder,
        "safetensors==0.8.0",
    ]
    try:
        subprocess.run(
            install,
            check=True,
            timeout=60,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        importlib.invalidate_caches()
        import safetensors
    except (subprocess.SubprocessError, OSError, ImportError) as error:
        print("no reference implementation of safetensors, and none could be installed: %s" % error)
        sys.exit(77)

NAMES = {
    "BOOL": "bool",
    "U8": "uint8",
    "I32": "int32",
    "I64": "int64",
    "F16": "float16",
    "BF16": "bfloat16",
    "F32": "float32",
    "F64": "float64",
}
with open(ours, "rb") as file:
    data = file.read()
length = int.from_bytes(data[:8], "little")
metadata = json.loads(data[8 : 8 + length]).get("__metadata__")
tensors, kept = {}, []
for name, tensor in safetensors.deserialize(data):
    content = bytes(tensor["data"])
    dtype = NAMES[tensor["dtype"]]
    if hasattr(safetensors, "TensorSpec"):
        buffer = ctypes.create_string_buffer(content, max(len(content), 1))
        kept.append(buffer)
        tensors[name] = safetensors.TensorSpec(
            dtype=dtype,
            shape=tensor["shape"],
            data_ptr=ctypes.addressof(buffer),
            data_len=len(content),
        )
    else:
        tensors[name] = {"dtype": dtype, "shape": tensor["shape"], "data": content}
safetensors.serialize_file(tensors, theirs, metadata)
print("reference implementation: safetensors %s" % getattr(safetensors, "__version__", "?"))
