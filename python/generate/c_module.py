"""Writes the tables of ferry._c: every function, struct and enumerator of the C API, as rows that
core/bind.h declares and its code reads; and a header with the addresses of the functions.

Usage: c_module.py INCLUDE COMPILER OUT HEADER
"""

import os
import re
import sys

import headers

INTEGERS = {
    "int": ("i32", 4, 1), "int8_t": ("i8", 1, 1), "int32_t": ("i32", 4, 1), "int64_t": ("i64", 8, 1),
    "char": ("i8", 1, 1), "uint8_t": ("u8", 1, 0), "uint16_t": ("u16", 2, 0),
    "uint32_t": ("u32", 4, 0), "uint64_t": ("u64", 8, 0), "size_t": ("u64", 8, 0),
}  # fmt: skip
# Members of union bind_slot for structs that are passed by value.
BY_VALUE = {"fy_ticket_t": "ticket", "fy_scope_t": "scope", "fy_init_t": "init",
            "fy_pool_point_t": "point"}  # fmt: skip

# Calls that Python lacks, and what it has instead.
REFUSED = {
    "fy_scope_begin": "objects of Python own their handles: fy_scope_begin_unowned",
    "fy_interrupt_set": "waits handle Python's signals already",
    "fy_tensor_wrap": "ferry.from_buffer and ferry.from_dlpack wrap memory",
    "fy_tensor_wrap_strided": "ferry.from_buffer and ferry.from_dlpack wrap memory",
    "fy_tensor_to_dlpack": "Tensor.__dlpack__ exports a tensor",
    "fy_tensor_from_dlpack": "ferry.from_dlpack imports one",
}
# Integers of C by name, where the header has int32_t for an enumerator.
ENUM_FIELDS = {"activation": "fy_activation_t", "reduction": "fy_reduction_t", "dtype": "fy_dtype_t"}
PATHS = {"path", "directory", "images_path", "labels_path", "paths", "checkpoint"}
NULL_PATHS = {"fy_dataset_open.directory", "fy_ledger_record.path", "fy_ledger_walk.path"}
# Pointers to structs that are arrays; their lengths come before or after them.
STRUCT_ARRAYS = {"children", "branches", "specs", "entries", "pairs", "ranges", "points", "src"}
COUNTS = {"rank": {"dims"}, "naxes": {"axes"}, "npairs": {"pairs"}, "npoints": {"points"},
          "nsrc": {"src"}, "ndst": {"dst"}, "attrs_nbytes": {"attrs"}, "nbytes": {"text"}, "size": {"text"},
          "out_rank": {"out_dims"}}  # fmt: skip
# Pointers to bytes, with the fewest that C reads; other void pointers are addresses.
BYTES = {"fy_model_describe.text": 0, "fy_communicator_id.out_id": 128,
         "fy_dataset_get.out_sample": 0, "fy_dataset_get.out_label": 0, "fy_op_call.attrs": 0, "fy_op_infer.attrs": 0, "fy_dataset_create.data": 0,
         "fy_dataset_create.labels": 0, "fy_communicator_options_t.id": 128, "fy_launch_t.attrs": 0,
         "fy_op_backward_t.attrs": 0,
         "fy_train_options_t.stop": 4, "fy_find_lr_options_t.stop": 4}  # fmt: skip
ADDRESSES = {"native", "event", "word", "data", "token", "workspace", "stream", "user",
             "out_native", "out_data", "out_address"}  # fmt: skip
# Lengths as expressions of the slots s[].
RANK = "bind_rank(s[1].p)"
VALUES = "bind_table(api.fy_table_rows(s[1].p), api.fy_table_cols(s[1].p))"
SAMPLE = (
    "({{ fy_dataset_info_t i = FY_DATASET_INFO_INIT; "
    "api.fy_dataset_query(s[1].p, &i) == FY_STATUS_OK ? bind_dataset(&i, 1, {}) : 0; }})"
)
INPUTS = (
    "({ fy_model_layer_info_t i = FY_MODEL_LAYER_INFO_INIT; "
    "api.fy_model_layer(s[1].p, s[2].u64, &i) == FY_STATUS_OK ? i.ninputs : 0; })"
)
LENGTHS = {
    "fy_transpose.axes": RANK, "fy_pad.begin": RANK, "fy_pad.end": RANK,
    "fy_split.sizes": "s[3].u64", "fy_split.out_views": "s[3].u64",
    "fy_table_create.values": "bind_table(s[1].u64, s[2].u64)", "fy_table_values": VALUES,
    "fy_table_standardise.out_mean": "api.fy_table_cols(s[1].p)",
    "fy_table_standardise.out_std": "api.fy_table_cols(s[1].p)",
    "fy_dataset_create.data": "bind_dataset(s[1].p, s[1].p ? ((fy_dataset_info_t *)s[1].p)->samples : 0, 0)",
    "fy_dataset_create.labels": "bind_dataset(s[1].p, s[1].p ? ((fy_dataset_info_t *)s[1].p)->samples : 0, 1)",
    "fy_dataset_get.out_sample": SAMPLE.format(0), "fy_dataset_get.out_label": SAMPLE.format(1),
    "fy_model_sample_shape.out_dims": "FY_MAX_RANK", "fy_communicator_id.out_id": "128",
    "fy_model_describe.text": "api.fy_model_describe(s[1].p, NULL, 0) + 1",
    "fy_model_layer_forward.inputs": INPUTS,
    "fy_train_find_lr.points": "bind_steps(s[4].p)", "fy_op_infer.dst": "s[6].u64",
    "fy_backward_fn.src_grad": "((const fy_op_backward_t *)s[1].p)->nsrc",
    "fy_layer_def_t.shape.out_dims": "FY_MAX_RANK",
    "fy_layer_def_t.forward.params": "bind_layer_params(s[1].p)",
    "fy_op_info_t.src": "s->nsrc_max == FY_OP_VARIADIC ? s->nsrc_min : s->nsrc_max",
    "fy_op_info_t.dst": "s->ndst",
    "fy_op_backward_t.dst_grad": "s->ndst", "fy_op_backward_t.wanted": "s->nsrc",
    "fy_launch_t.attrs": "s->attrs_nbytes",
    "fy_batch_t.host": "s->count",
    "fy_op_backward_t.attrs": "s->info ? s->info->attrs_nbytes : 0",
}  # fmt: skip
READ_ONLY = {"fy_batch_t.count", "fy_batch_t.index", "fy_pool_block_t.token"}
FIXED_COUNTS = {"fy_op_info_t", "fy_op_backward_t", "fy_launch_t", "fy_batch_t"}
OUT_ARRAYS = {"fy_split.out_views", "fy_tensor_upload_many.out_dst", "fy_batch_split.out_shards",
              "fy_tensor_download_many.out_downloads", "fy_prefetch_next.out_tensors",
              "fy_table_standardise.out_mean", "fy_table_standardise.out_std",
              "fy_model_sample_shape.out_dims", "fy_layer_def_t.shape.out_dims",
              "fy_backward_fn.src_grad", "fy_train_find_lr.points", "fy_op_infer.dst"}  # fmt: skip
GIVEN_COUNTS = {"fy_split.count", "fy_op_infer.ndst", "fy_model_sample_shape.out_rank"}
BORROWED = {"fy_prefetch_next.out_tensors", "fy_optimizer_state.out_tensor", "fy_table_values",
            "fy_device_host"}  # fmt: skip
# Handles that a call takes over, beside those of _destroy and _close. Add new ones: C frees them.
CONSUMED = {
    "fy_layer_checkpoint.child": "", "fy_layer_residual.body": "", "fy_layer_residual.shortcut": "",
    "fy_layer_sequential.children": "", "fy_layer_branches.branches": "", "fy_model_create.layer": "",
    "fy_external_finish.external": "", "fy_model_open_fn.out_model": "",
    "fy_pool_free.block": "", "fy_pool_free_after.block": "IF_OK",
    "fy_download_wait.download": "IF_OK", "fy_download_wait_f64.download": "IF_OK",
    "fy_download_try.download": "IF_MADE", "fy_download_try_f64.download": "IF_MADE",
}  # fmt: skip
LIFETIMES = {
    "fy_ticket_on_done": "ONCE", "fy_layer_create": "RELEASED", "fy_tape_recompute": "RELEASED",
    "fy_tape_attach": "RELEASED", "fy_log_set": "FOREVER", "fy_memory_on_pressure": "FOREVER",
    "fy_op_register": "FOREVER", "fy_model_sync_norms": "FOREVER",
}  # fmt: skip
VIEWS = {"fy_reshape", "fy_transpose", "fy_slice", "fy_slice_step", "fy_broadcast", "fy_squeeze",
         "fy_unsqueeze", "fy_split", "fy_tensor_query"}  # fmt: skip
# `user` of callbacks that get it in a struct.
USERS = {"fy_kernel_fn": "launch->user", "fy_backward_fn": "call->user"}
UNSUPPORTED = {"fy_shape_rule_fn", "fy_cost_rule_fn", "fy_supports_fn", "fy_interrupt_fn", "fy_deleter_fn"}
PRINTED = {"fy_log_fn", "fy_done_fn"}

HEAD = """/* Generated by python/generate/c_module.py from the headers of Ferry. */
#include "bind.h"

#include <stddef.h>

"""
API = """/* Generated by python/generate/c_module.py from the headers of Ferry. */
#ifndef PYTHON_C_API_H_
#define PYTHON_C_API_H_

{includes}

/* In the order of bind_functions. NULL before load(), and if their library is missing. */
extern union core_api {{
    struct {{
        {calls}
    }};
    void (*addresses[{count}])(void);
}} api;

#endif
"""


def text(value):
    """A literal of C, an escape at a time, so that no line needs more than its own quotes."""
    value = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", '\\n"\n    "')
    return f'"{value}"'


def base_of(c_type):
    """("fy_tensor_t", stars, whether the first is const) of "const fy_tensor_t *const *"."""
    if isinstance(c_type, tuple):  # a function
        return "", 0, False
    words = [w for w in c_type.replace("*", " * ").split() if w not in ("volatile", "struct")]
    name = next(w for w in words if w not in ("const", "*"))
    return name, words.count("*"), words[0] == "const"


class Writer:
    def __init__(self, api):
        self.api = api
        self.structs = [s for s in api.structs if not s.name.startswith("DL")]
        self.struct_numbers = {s.name: i for i, s in enumerate(self.structs)}
        self.handles = sorted(api.opaque - {"fy_tensor_t"})
        self.numbers = {f.name: i for i, f in enumerate(api.functions)}
        self.types, self.lengths, self.callbacks, self.texts = {}, {}, {}, []
        self.used_enums, self.kinds = set(), {}
        # None is no operand of an op. Other calls of C refuse NULL by themselves.
        self.required = {
            f"{f.name}.{p.name}"
            for f in api.functions
            if str(f.header) == "ops.h"
            for i, p in enumerate(f.parameters)
            if base_of(p.type)[:2] == ("fy_tensor_t", 1) and (i == 0 or len(f.parameters) == 3)
        }

    # ---- types ----

    def type(self, kind, nbytes="0", is_signed=0, of="NULL"):
        row = f"{{ BIND_{kind}, {nbytes}, {is_signed}, {of} }}"
        if row not in self.types:
            self.types[row] = f"type_{len(self.types)}"
            self.texts.append(f"static const bind_type {self.types[row]} = {row};")
        self.kinds["&" + self.types[row]] = kind
        return "&" + self.types[row]

    def array(self, element):
        return self.type("ARRAY", of=element)

    def known(self, base):
        base = self.api.aliases.get(base, base)
        return f"{base}_t" if f"{base}_t" in self.struct_numbers else base

    def value_type(self, base, name):
        base = self.known(base)
        if base == "int32_t" and name in ENUM_FIELDS:
            base = ENUM_FIELDS[name]
        if base in INTEGERS:
            _, nbytes, is_signed = INTEGERS[base]
            return self.type("CHARS", 1) if base == "char" else self.type("INT", nbytes, is_signed)
        if base == "double":
            return self.type("DOUBLE", 8)
        if base == "void":
            return self.type("VOID")
        if base in self.struct_numbers:
            return self.type("STRUCT", of=f"&bind_structs[{self.struct_numbers[base]}]")
        self.used_enums.add(base)
        return self.type("ENUM", 4, 1, of=f"&enum_{base}")

    def pointer_type(self, base, name, key, is_array):
        """Of a parameter or field with one star."""
        base = self.known(base)
        if base == "char":
            return self.type("PATH" if name in PATHS else "TEXT")
        if base == "void":
            if name not in ADDRESSES:
                raise SystemExit(f"c_module.py does not know how much {key} points to: BYTES has it")
            return self.type("ADDRESS")
        if base == "fy_tensor_t":
            return self.type("TENSOR")
        if base in self.handles:
            return self.type("HANDLE", of=f"&bind_handles[{self.handles.index(base)}]")
        if base in self.struct_numbers and not is_array:
            return self.type("POINTER", of=f"&bind_structs[{self.struct_numbers[base]}]")
        return self.array(self.value_type(base, name))

    def type_of(self, c_type, name, key, is_array=False, is_out=False):
        """Of a parameter, a field or a result; is_out: of what the pointer points to."""
        if isinstance(c_type, tuple) or c_type in self.api.callbacks:
            return self.type("FUNCTION", of=f"&{self.callback(c_type, key)}")
        base, stars, _ = base_of(c_type)
        if key in BYTES:
            return self.type("BYTES", BYTES[key])
        if is_out and key in OUT_ARRAYS:
            return self.type_of(c_type, name, key + ".", is_array=True)
        if is_out:
            if stars == 1 and self.known(base) in self.struct_numbers:
                return self.pointer_type(base, name, key, False)
            stars -= 1
        if stars == 0:
            return self.value_type(base, name)
        if stars == 1:
            return self.pointer_type(base, name, key, is_array)
        return self.array(self.pointer_type(base, name, key, False))

    # ---- parameters ----

    def length(self, key, argument="const union bind_slot *s"):
        """The function of a length, or NULL."""
        if key not in LENGTHS:
            return "NULL"
        name = "length_" + re.sub(r"\W", "_", key)
        if name not in self.lengths:
            self.lengths[name] = 1
            cast, value = "", LENGTHS[key]
            if argument == "const union bind_slot *s" and "s[" not in value:
                cast = "\n    (void)s;"
            if argument != "const union bind_slot *s":
                cast = f"\n    const {argument} *s = at;"
                argument = "const void *at"
            self.texts.append(
                f"static uint64_t {name}({argument})\n{{{cast}\n    return (uint64_t)({value});\n}}"
            )
        return name

    def counts(self, owner, parameters):
        """index of each count: names of its arrays"""
        names = {p.name for p in parameters}
        found = {}
        for i, p in enumerate(parameters):
            arrays = COUNTS.get(p.name, set()) & names
            if p.name == "count":
                arrays = {q.name for q in parameters if self.is_array(owner, q)}
            if arrays and f"{owner}.{p.name}" not in GIVEN_COUNTS:
                found[i] = arrays
        return found

    def is_array(self, owner, p):
        key = f"{owner}.{p.name}"
        base, stars, is_const = base_of(p.type)
        if key in OUT_ARRAYS:
            return True
        if stars == 2:
            return "const" in p.type.split("*", 1)[1]  # fy_tensor_t *const *
        if stars == 1 and is_const and self.known(base) in self.struct_numbers:
            return p.name in STRUCT_ARRAYS
        return stars == 1 and is_const and base not in ("char", "void") and (
            base in INTEGERS or base == "double" or base in self.api.enums
        )  # fmt: skip

    def rows(self, owner, result, parameters, is_callback=False):
        """(rows of bind_param, parameters that Python passes)"""
        counts = self.counts(owner, parameters)
        count_of = {name: i + 1 for i, names in counts.items() for name in names}
        first = self.type_of(result, "result", owner)
        borrowed = "BIND_BORROWED" if owner in BORROWED else "0"
        rows, given = [f'{{ "result", {first}, BIND_OUT, {borrowed}, 0, {self.length(owner)} }}'], []
        for i, p in enumerate(parameters):
            key = f"{owner}.{p.name}"
            role, is_out = "IN", False
            flags = [CONSUMED[key]] if CONSUMED.get(key) else []
            if key in CONSUMED or re.match(r"fy_\w+_(destroy|close)$", owner) and i == 0:
                flags.append("CONSUMED")
            if key in BORROWED:
                flags.append("BORROWED")
            if p.name == "axes" and owner != "fy_transpose":
                flags.append("FILLED")
            if key in self.required or p.name in (PATHS | {"dims"}) and key not in NULL_PATHS:
                flags.append("NOT_NONE")
            is_array = self.is_array(owner, p)
            number = count_of.get(p.name, 0)
            if p.name == "user":
                role = "USER"
                number = 1 if owner == "fy_layer_create" else 0
            elif i in counts:
                role = "COUNT"
            elif p.name == "nbytes" and re.search("_(init|defaults)$", owner):
                role = "NBYTES"
            elif p.name.startswith("out_") or key in OUT_ARRAYS or key == "fy_model_describe.text":
                role, is_out = "OUT", True
                if is_callback and ("**" in p.type.replace(" ", "") or p.name == "out_dims"):
                    flags.append("NOT_NONE")
            elif key == "fy_op_call.dst":
                role = "INOUT"
            elif is_callback:
                base, stars, is_const = base_of(p.type)
                if stars == 1 and not is_const and self.known(base) in self.struct_numbers:
                    role = "INOUT"
            if role == "NBYTES":
                c_type = parameters[i - 1].type
                kind = self.pointer_type(base_of(c_type)[0], "", "", False)
            elif role == "COUNT":
                kind = self.value_type(base_of(p.type)[0], "")
            elif role == "USER":
                kind = self.type("VOID")
            else:
                kind = self.type_of(p.type, p.name, key, is_array, is_out)
            if role in ("IN", "INOUT"):
                given.append(p.name)
            self.check_length(kind, number or key in LENGTHS or key == "fy_prefetch_next.out_tensors", key)
            shown = " | ".join("BIND_" + flag for flag in flags) or "0"
            rows.append(
                f'{{ "{p.name}", {kind}, BIND_{role}, {shown}, {number}, {self.length(key)} }}'
            )
        return rows, given

    def check_length(self, kind, is_known, key):
        if self.kinds[kind] == "ARRAY" and not is_known:
            raise SystemExit(f"c_module.py does not know the length of {key}: LENGTHS has it")

    # ---- callbacks ----

    def callback(self, c_type, key):
        owner = c_type if isinstance(c_type, str) else key
        name = owner.replace(".", "_")
        if name in self.callbacks:
            return self.callbacks[name]
        self.callbacks[name] = f"callback_{name}"
        result, parameters = self.api.callbacks.get(owner, c_type)
        field = key.rpartition(".")[2]
        if name in UNSUPPORTED or "*" in result or field == "destroy" or name.startswith("fy_device_options"):
            row = f'{{ "{field}", NULL, 0, 0, 0, 0, 0, NULL }}'
            self.texts.append(f"static const bind_callback callback_{name} = {row};")
            return self.callbacks[name]
        rows, _ = self.rows(owner, result, parameters, is_callback=True)
        self.add_table(f"bind_param params_of_{name}[]", rows)
        said = ", ".join(f"{p.type} {p.name}" for p in parameters)
        slots = ["{ 0 }"] + [self.slot(p) for p in parameters]
        user = USERS.get(name, "user")
        back = f"return ({result})" if result != "void" else "(void)"
        self.texts.append(
            f"static const bind_callback callback_{name};\n"
            f"static {result} run_{name}({said})\n{{\n"
            f"    union bind_slot s[] = {{ {', '.join(slots)} }};\n"
            f"    {back}bind_run(&callback_{name}, {user}, s);\n}}"
        )
        owning = "fy_(tensor|device|model|op_backward|batch)_t"
        has_scope = any(re.search(owning, p.type) for p in parameters)
        index = int(name == "fy_model_step_fn")
        row = (
            f'{{ "{field}", params_of_{name}, {len(rows)}, {index}, {int(has_scope)}, '
            f"{int(name == 'fy_done_fn')}, {int(name in PRINTED)}, (void (*)(void))run_{name} }}"
        )
        self.texts.append(f"static const bind_callback callback_{name} = {row};")
        return self.callbacks[name]

    def slot(self, p):
        base, stars, _ = base_of(p.type)
        if stars:
            return f"{{ .p = (void *)(uintptr_t){p.name} }}"
        return f"{{ .{self.member(base)} = {p.name} }}"

    def member(self, base):
        base = self.known(base)
        if base in BY_VALUE:
            return BY_VALUE[base]
        return "f64" if base == "double" else INTEGERS.get(base, ("i32",))[0]

    # ---- structs ----

    def struct(self, number, struct):
        names = [f.name for f in struct.fields]
        rows = []
        settable = struct.name not in FIXED_COUNTS
        arrays = {f"n{f.name}": f.name for f in struct.fields if f"n{f.name}" in names}
        if struct.name == "fy_op_info_t":
            arrays = {"nfields": "fields"}
        for field in struct.fields:
            key = f"{struct.name}.{field.name}"
            hidden = field.name in ("struct_size", "user", "destroy", "fault") or "reserved" in field.name
            length, count, reads = "0", -1, "NULL"
            is_array = f"n{field.name}" in arrays or key in LENGTHS
            if base_of(field.type)[0] == "char" and field.length:
                kind = self.type("CHARS", field.length)
            elif field.name == "fault":
                kind = self.type("ADDRESS")
            else:
                kind = self.type_of(field.type, field.name, key, is_array)
                length = field.length or "0"
                if f"n{field.name}" in arrays:
                    count = names.index(f"n{field.name}")
                    LENGTHS[key] = f"s->n{field.name}"
                reads = self.length(key, struct.name)
            self.check_length(kind, reads != "NULL", key)
            if field.name in arrays or (not settable and key in LENGTHS) or key in READ_ONLY:
                count = -2  # set with its array, or by C
            name = "NULL" if hidden else f'"{field.name}"'
            rows.append(
                f"{{ {name}, {kind}, offsetof({struct.name}, {field.name}), {length}, {count}, {reads} }}"
            )
        self.add_table(f"bind_field fields_{number}[]", rows)
        init = self.numbers.get(struct.name.removesuffix("_t") + "_init", -1)

        def place(name):
            return names.index(name) if name in names else -1

        user = place("user") if struct.name != "fy_launch_t" else -1
        return (
            f'{{ "{struct.name}", fields_{number}, {len(rows)}, sizeof({struct.name}), '
            f"{int(names[0] == 'struct_size')}, {init}, {user}, {place('destroy')} }}"
        )

    # ---- functions ----

    def function(self, number, function):
        name, parameters = function.name, function.parameters
        library = {"dist.h": 2, "dist_train.h": 2}.get(str(function.header), 0)
        library = 1 if str(function.header).startswith("train/") else library
        is_status = int(function.result == "fy_status_t" and name != "fy_error_set")
        refused = "NULL"
        if name in REFUSED:
            refused = text(f"{name}: {REFUSED[name]}")
            parameters = []
        if function.is_variadic:
            keep = {"status", "level", "format"}
            parameters = [p for p in parameters if p.name in keep]
        rows, given = self.rows(name, "void" if name in REFUSED else function.result, parameters)
        self.add_table(f"bind_param params_{number}[]", rows)
        self.thunk(number, function, parameters)
        gil = "RELEASES"
        if name in VIEWS:
            gil = "VIEW"
        elif str(function.header) == "ops.h" and not any(
            p.type == "int64_t" or p.name == "height" for p in parameters
        ):
            gil = "SMALL"
        signature = f"{name}({', '.join(given)})"
        doc = f"{signature}\n\n{function.comment}" if function.comment else signature
        row = (
            f'{{ "{name}", params_{number}, {len(rows)}, {is_status}, {library}, '
            f"BIND_{LIFETIMES.get(name, 'CALL')}, BIND_{gil}, {refused}, thunk_{number} }}"
        )
        method = (
            f'{{ "{name}", (PyCFunction)(void (*)(void))method_{number}, '
            f"METH_FASTCALL | METH_KEYWORDS,\n      {text(doc)} }}"
        )
        return row, method

    def thunk(self, number, function, parameters):
        arguments = []
        for i, p in enumerate(parameters):
            base, stars, _ = base_of(p.type)
            if stars or not base or p.type in self.api.callbacks:
                arguments.append(f"s[{i + 1}].p")
            else:
                arguments.append(f"s[{i + 1}].{self.member(base)}")
        if function.name == "fy_error_set":
            arguments = ["(fy_status_t)s[1].i32", '"python"', "0", '"%s"', "(const char *)s[2].p"]
        elif function.name == "fy_log_write":
            arguments[1:] = ['"%s"', "(const char *)s[2].p"]
        call = f"api.{function.name}({', '.join(arguments)})"
        base, stars, _ = base_of(function.result)
        if function.name in REFUSED:
            call = "(void)s"
        elif stars:
            call = f"s[0].p = (void *)(uintptr_t){call}"
        elif base != "void":
            call = f"s[0].{self.member(base)} = {call}"
        self.texts.append(
            f"static void thunk_{number}(union bind_slot *s)\n"
            f"{{\n    (void)s;\n    {call};\n}}\n"
            f"static PyObject *method_{number}(PyObject *module, PyObject *const *args, Py_ssize_t nargs,\n"
            f"    PyObject *names)\n{{\n    (void)module;\n"
            f"    return bind_call(&bind_functions[{number}], args, nargs, names);\n}}"
        )

    def enums(self):
        for name, names in self.api.enums.items():
            if name not in self.used_enums:
                continue
            prefix = os.path.commonprefix(names) if len(names) > 1 else f"FY_{name[3:-2].upper()}_"
            prefix = prefix[: prefix.rfind("_") + 1]
            shown = [n for n in names if not n.endswith(("_COUNT", "_CAPACITY"))]
            words = "".join(f'"{n[len(prefix) :].lower()}", ' for n in shown)
            values = ", ".join(str(self.api.enumerators[n]) for n in shown)
            yield (
                f"static const char *const names_{name}[] = {{ {words}NULL }};\n"
                f"static const int values_{name}[] = {{ {values} }};\n"
                f"static const bind_enum enum_{name} = {{ names_{name}, values_{name}, "
                f"{int(name == 'fy_dtype_t')} }};"
            )

    def add_table(self, declaration, rows):
        self.texts.append("static " + self.table(declaration, rows))

    def table(self, declaration, rows):
        return f"const {declaration} = {{\n    " + ",\n    ".join(rows) + "\n};"

    def all(self):
        api = self.api
        constants = {**api.constants, **api.enumerators}
        yield "typedef __typeof__(((fy_oom_verdict_t *)0)->top[0]) fy_oom_verdict_t_top;"
        structs = [self.struct(i, s) for i, s in enumerate(self.structs)]
        functions = [self.function(i, f) for i, f in enumerate(api.functions)]
        yield from self.enums()
        yield from self.texts
        handles = []
        for name in self.handles:
            stem = name.removesuffix("_t")
            number = self.numbers.get(f"{stem}_destroy", self.numbers.get(f"{stem}_close", -1))
            handles.append(f'{{ "{name}", {number} }}')
        yield self.table("bind_function bind_functions[]", [row for row, _ in functions])
        yield self.table("bind_handle bind_handles[]", handles)
        yield self.table("bind_struct bind_structs[]", structs)
        yield self.table(
            "struct bind_constant bind_constants[]",
            [
                f'{{ "{name}", {value}{"ull" if value >= 2**63 else "ll"}, {int(value >= 2**63)} }}'
                for name, value in constants.items()
            ],
        )
        yield "PyMethodDef bind_methods[] = {\n    " + ",\n    ".join(m for _, m in functions) + "\n};"
        for name, count in (("functions", len(functions)), ("handles", len(handles)),
                            ("structs", len(structs)), ("constants", len(constants))):  # fmt: skip
            yield f"const int bind_n{name} = {count};"


def main(include, compiler, out, header):
    api = headers.read_api(include, compiler)
    paths = headers.all_headers(headers.Path(include))
    included = "\n".join(f"#include <ferry/{path}>" for path in paths)
    calls = "\n        ".join(f"__typeof__(&{f.name}) {f.name};" for f in api.functions)
    with open(header, "w") as file:
        file.write(API.format(includes=included, calls=calls, count=len(api.functions)))
    with open(out, "w") as file:
        file.write(HEAD + "\n\n".join(Writer(api).all()) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
