"""Plants changes in a tiny library. The check of the binary interface accepts those that break no
old program and names all others. Usage: breaks.py"""

import concurrent.futures
import os
import shutil
import subprocess
import sys
import tempfile

import interface

TINY = """
//// include/ferry/tiny.h
#include <stdint.h>
#define FY_LIMIT 7
typedef enum fy_dtype { FY_DTYPE_F32, FY_DTYPE_F16, FY_DTYPE_COUNT } fy_dtype_t;
typedef struct fy_tensor fy_tensor_t;
typedef struct fy_dims { int32_t rank; int64_t dim[8]; } fy_dims_t;
typedef union fy_value { int64_t whole; double real; } fy_value_t;
typedef struct fy_options {
    uint32_t struct_size;
    uint32_t flags;
    fy_dims_t dims;
    void (*done)(void *user, int32_t code);
    struct { uint64_t live; char name[16]; } rows[3];
    fy_value_t value;
    uint32_t last;
    uint32_t reserved;
} fy_options_t;
typedef int64_t fy_count_t;
fy_dtype_t fy_get(const fy_tensor_t *tensor, const fy_options_t *options, void **out_bytes);
void fy_fill(fy_tensor_t *tensor, int32_t value, double scale);
fy_count_t fy_count(const fy_dims_t *dims);
int fy_log(const char *format, ...);
extern const char *fy_names[4];
//// private.h
struct fy_tensor { int32_t uses; fy_dims_t dims; };
//// tiny.c
#include "include/ferry/tiny.h"
#include "private.h"
const char *fy_names[4];
fy_dtype_t fy_get(const fy_tensor_t *tensor, const fy_options_t *options, void **out_bytes)
{ return (fy_dtype_t)tensor->dims.rank; }
void fy_fill(fy_tensor_t *tensor, int32_t value, double scale) { }
fy_count_t fy_count(const fy_dims_t *dims) { return 0; }
int fy_log(const char *format, ...) { return FY_LIMIT; }
//// symbols.map
FERRY_0.1 { global: fy_*; local: *; };
"""
TENSOR = "struct fy_tensor { int32_t uses; fy_dims_t dims; };"
DIMS = "struct fy_dims { int32_t rank; int64_t dim[8]; }"
FLAGS = "uint32_t flags;\n"

# The change; a part of the refusal, "" if it is accepted; OLD, NEW, OLD, NEW, ...
CHANGES = [
    ("none", ""),
    # Functions and variables.
    ("added function", "", "[4];\nfy_dtype_t", "[4]; int fy_new(void) { }\nfy_dtype_t"),
    ("removed function", "function fy_count@@FERRY_0.1: is gone", "fy_count(", "removed("),
    ("other symbol version", "fy_fill@@FERRY_0.1: is gone", "FERRY_0.1", "FERRY_0.2"),
    ("changed parameter type", "fy_fill@@FERRY_0.1: was void(", "double scale", "float scale"),
    ("other private type", "fy_get@@FERRY_0.1: was", "struct fy_tensor", "struct fy_stream"),
    ("pointer to void", "fy_count@@FERRY_0.1: was", "const fy_dims_t *dims", "const void *dims"),
    ("pointer to pointer to void", "fy_get@@FERRY_0.1: was", "void **out", "int32_t **out"),
    ("value, no pointer", "fy_count@@FERRY_0.1: was", "const fy_dims_t *dims", "fy_dims_t dims"),
    ("added parameter", "fy_count@@FERRY_0.1: was", "fy_dims_t *dims)", "fy_dims_t *dims, int n)"),
    ("removed parameter", "fy_fill@@FERRY_0.1: was", ", double scale", ""),
    ("removed varargs", "fy_log@@FERRY_0.1: was", ", ...", ""),
    ("changed return type", "fy_count@@FERRY_0.1: was", "fy_count_t fy_count", "int fy_count"),
    ("changed sign", "fy_log@@FERRY_0.1: was", "int fy_log", "unsigned fy_log"),
    ("renamed parameter", "", "double scale", "double factor"),
    ("renamed typedef", "", "fy_dims_t", "fy_shape_t"),
    ("added const", "", "(fy_tensor_t *", "(const fy_tensor_t *"),
    ("removed const", "", "const fy_dims_t *", "fy_dims_t *"),
    ("resized variable", "variable fy_names@@FERRY_0.1: was", "fy_names[4]", "fy_names[5]"),
    # Structs and unions.
    ("appended with struct_size", "", " reserved;", " reserved; uint64_t more;"),
    ("appended", "was 72 bytes, is 80 bytes; it has no", "dim[8];", "dim[8]; int64_t more;"),
    ("field in the padding", "fy_dims.more: begins at byte 4", "rank;", "rank; int32_t more;"),
    ("inserted field", "fy_options.flags: was", FLAGS, "uint64_t more;" + FLAGS),
    ("removed field", "fy_options.reserved: is gone", "uint32_t reserved;", ""),
    ("renamed field", "fy_options.reserved: is gone", "reserved", "taken"),
    ("moved field", "fy_options.flags: was unsigned int at 4", FLAGS, "", "last;", "last;" + FLAGS),
    ("resized array", "fy_dims.dim: was long int[8] at 8, is long int[9]", "dim[8]", "dim[9]"),
    ("array at the end", "fy_options.reserved: was", " reserved;", " reserved[9];"),
    ("resized array of rows", "fy_options.rows: was", "name[16]", "name[24]"),
    ("fewer rows", "fy_options.rows: was", "rows[3]", "rows[2]"),
    ("changed field", "fy_options.last: was unsigned int at", "uint32_t last", "float last"),
    ("changed and appended", "fy_options.last: was", "uint32_t last;", "float last;", " reserved;",
     " reserved; uint64_t more;"),
    ("changed callback", "fy_options.done: was", "int32_t code", "int64_t code"),
    ("larger union", "union fy_value: was 8 bytes, is 16", " real;", " real; double more[2];"),
    ("added member of a union", "", " real;", " real; uint64_t more;"),
    ("removed member of a union", "union fy_value.real: is gone", "double real;", ""),
    ("struct becomes union", "struct fy_dims: is gone", "struct fy_dims", "union fy_dims"),
    ("struct becomes private", "struct fy_dims: is gone", DIMS, "struct fy_dims", TENSOR,
     f"{DIMS}; {TENSOR}", "    fy_dims_t dims;", "    int64_t dims[9];"),
    # Enumerators.
    ("enumerator before the count", "", "F16,", "F16, FY_DTYPE_I8,"),
    ("inserted enumerator", "fy_dtype.FY_DTYPE_F16: was 1, is 2", "F32,", "F32, FY_DTYPE_I8,"),
    ("changed enumerator", "fy_dtype.FY_DTYPE_F16: was 1, is 5", "F16,", "F16 = 5,"),
    ("removed enumerator", "fy_dtype.FY_DTYPE_F16: is gone", "FY_DTYPE_F16, ", ""),
    ("removed count", "fy_dtype.FY_DTYPE_COUNT: is gone", ", FY_DTYPE_COUNT", ""),
    ("wider enum", "enum fy_dtype: was 4 bytes, is 8", "COUNT }", "COUNT, FY_MOST = 1ll << 40 }"),
    # Changes outside the interface.
    ("changed private type", "", "int32_t uses;", "int64_t more, uses;"),
    ("private type becomes public", "", TENSOR, "", "typedef union", f"{TENSOR} typedef union"),
    ("changed macro", "", "FY_LIMIT 7", "FY_LIMIT 8"),
]


def build(folder, *edits):
    """Returns the path of the library with the edits."""
    text = TINY
    for old, new in zip(edits[::2], edits[1::2]):
        assert old in text, f"the library has no {old}"
        text = text.replace(old, new)
    for part in text.split("\n//// ")[1:]:
        name, body = part.split("\n", 1)
        path = os.path.join(folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(body + "\n")
    command = ["cc", "-std=gnu11", "-g", "-w", "-shared", "-fPIC", "tiny.c"]
    command += ["-Wl,-soname,libferry.so.0,--version-script=symbols.map", "-o", "libferry.so"]
    subprocess.run(command, cwd=folder, check=True)
    return os.path.join(folder, "libferry.so")


def judge(old, change):
    """Returns why the check is wrong about the change, else None."""
    what, refusal, *edits = change
    with tempfile.TemporaryDirectory() as folder:
        lines = list(interface.changes(old, interface.facts_of(build(folder, *edits))))
    if any(refusal in line for line in lines) if refusal else not lines:
        return None
    reason = f"no line has '{refusal}'" if refusal else "refused"
    return "\n    ".join([f"{what}: {reason}", *lines])


def judge_script(folder):
    """scripts/abi.sh records a library, accepts it and refuses another one."""
    here = os.path.dirname(os.path.abspath(__file__))
    shutil.copytree(here, f"{folder}/tests/abi", ignore=shutil.ignore_patterns("*.abi"))
    shutil.copytree(f"{here}/../../scripts", f"{folder}/scripts")
    for command, status, *edits in (
        ("record", 0),
        ("check", 0),
        ("check", 1, "double scale", "float scale"),
    ):
        build(f"{folder}/build/lib", *edits)
        run = [f"{folder}/scripts/abi.sh", command, "build"]
        ran = subprocess.run(run, stdout=subprocess.PIPE, text=True, check=False)
        if ran.returncode != status or status != ("fy_fill@@FERRY_0.1: was" in ran.stdout):
            return f"scripts/abi.sh {command}: status {ran.returncode}, not {status}\n{ran.stdout}"
    return None


def main():
    if not shutil.which("abidw"):
        print("skipped: no abidw here (Debian: abigail-tools)")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        old = interface.facts_of(build(folder))
        wrong = [judge_script(folder)]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        wrong += pool.map(lambda change: judge(old, change), CHANGES)
    wrong = [text for text in wrong if text]
    print("\n".join([*wrong, f"{len(CHANGES)} changes, {len(wrong)} judged wrong"]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
