/* Builds the op table from opset/ops.def and finds a row by number or by name: by number or by
 * name, built in or registered, lock-free.
 * Not here: registering (register.c), calling (call.c, dispatch.c). Next: opset/ops.def, then
 * shape.h. */
#include "ops/optable.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "ops/cost.h"
#include "ops/shape.h"
#include "ops/tape/rules.h"
#include "opset/dtypes.h"
#include "runtime/base/fail.h"

/* ---- attribute sets: fields for introspection, and a struct at its defaults ---- */

#define CHOICES(list, ...)                                       \
    static const char *const list##_choices[] = { __VA_ARGS__ }; \
    enum { list##_nchoices = sizeof(list##_choices) / sizeof(list##_choices[0]) };
#define ALL
#define FROM(least)          .low = (least), .high = INFINITY
#define FROM_TO(least, most) .low = (least), .high = (most)
#define ABOVE(bound)         .low = (bound), .high = INFINITY, .excludes = 1
#define BELOW(least, bound)  .low = (least), .high = (bound), .excludes = 2
#define ONE_OF(list) \
    .high = list##_nchoices - 1, .nchoices = list##_nchoices, .choices = list##_choices
#define FIELD(struct_type, field, kind, value, range) \
    { .name = #field,                                 \
      .type = FY_ATTR_##kind,                         \
      .offset = offsetof(struct_type, field),         \
      .fallback = (value),                            \
      range },
#define ATTRS(set, type, ...)                                           \
    static const fy_attr_field_t set##_fields[] = { __VA_ARGS__ };      \
    enum {                                                              \
        set##_nfields = sizeof(set##_fields) / sizeof(set##_fields[0]), \
        set##_nbytes = sizeof(type)                                     \
    };
#include "opset/attrs.def"

#define FIELD(type, field, kind, value, range) .field = (value),
#define ATTRS(set, type, ...)                  static const type set##_fallback = { __VA_ARGS__ };
#include "opset/attrs.def"

/* Where the field of type AXIS32 is, plus 1; 0: there is none. */
#define AXIS_F64(offset)                       +0
#define AXIS_I64(offset)                       +0
#define AXIS_I32(offset)                       +0
#define AXIS_BOOL32(offset)                    +0
#define AXIS_DTYPE32(offset)                   +0
#define AXIS_AXES32(offset)                    +0
#define AXIS_ENUM32(offset)                    +0
#define AXIS_AXIS32(offset)                    +1 + (offset)
#define FIELD(type, field, kind, value, range) AXIS_##kind(offsetof(type, field))
#define ATTRS(set, type, ...)                  enum { set##_axis = 0 __VA_ARGS__ };
#include "opset/attrs.def"

/* Has a field a range? */
#define ALL                                    +0
#define FROM(least)                            +1
#define FROM_TO(least, most)                   +1
#define ABOVE(bound)                           +1
#define BELOW(least, bound)                    +1
#define ONE_OF(list)                           +1
#define FIELD(type, field, kind, value, range) range
#define ATTRS(set, type, ...)                  enum { set##_ranges = 0 __VA_ARGS__ };
#include "opset/attrs.def"

/* The set of ops that take none. */
enum { none_nfields = 0, none_nbytes = 0, none_axis = 0, none_ranges = 0 };
#define none_fields NULL
static const char none_fallback;

/* ---- operands ---- */

enum { SRCS = 8, DSTS = 8 };

#define IN(i, text, set)    .src[i] = { #text, FY__SET_##set, 0 },
#define MAYBE(i, text, set) .src[i] = { #text, FY__SET_##set, FY_OPERAND_OPTIONAL },
#define MANY(i, text, set)  .src[i] = { #text, FY__SET_##set, FY_OPERAND_REPEATED },
#define OUT(i, text, set)   .dst[i] = { #text, FY__SET_##set, 0 },
#define INOUT(i, text, set) .dst[i] = { #text, FY__SET_##set, FY_OPERAND_INOUT },
#define MAYBE_INOUT(i, text, set) \
    .dst[i] = { #text, FY__SET_##set, FY_OPERAND_INOUT | FY_OPERAND_OPTIONAL },
#define ROW(number, ENUM, op_name, op_flags, op_dtypes, set, shape, cost, back, host, cuda, \
            faults, operands, text)                                                         \
    [FY_OP_##ENUM] = { OPEN operands },
static const struct {
    fy_op_operand_t src[SRCS], dst[DSTS];
} k_operands[FY_OP_BUILTIN_COUNT] = {
#include "opset/ops.def"
};

/* How many there are: sources that must be given, all sources (255: any number), results: 8 bits
 * each. Which results are read as well: bits. */
#define IN(i, text, set)          +0x0101
#define MAYBE(i, text, set)       +0x0100
#define MANY(i, text, set)        +0xff01
#define OUT(i, text, set)         +0x10000
#define INOUT(i, text, set)       +0x10000
#define MAYBE_INOUT(i, text, set) +0x10000
#define ROW(number, ENUM, op_name, op_flags, op_dtypes, set, shape, cost, back, host, cuda, \
            faults, operands, text)                                                         \
    enum { ENUM##_operands = 0 OPEN operands };
#include "opset/ops.def"
#define IN(i, text, set)
#define MAYBE(i, text, set)
#define MANY(i, text, set)
#define OUT(i, text, set)
#define INOUT(i, text, set)       +(1 << (i))
#define MAYBE_INOUT(i, text, set) +(1 << (i))
#define ROW(number, ENUM, op_name, op_flags, op_dtypes, set, shape, cost, back, host, cuda, \
            faults, operands, text)                                                         \
    enum { ENUM##_inout = 0 OPEN operands };
#include "opset/ops.def"
#define NSRC_MIN(ENUM) (ENUM##_operands & 255)
#define NSRC_MAX(ENUM) \
    ((ENUM##_operands >> 8 & 255) == 255 ? FY_OP_VARIADIC : ENUM##_operands >> 8 & 255)
#define NDST(ENUM)            (ENUM##_operands >> 16 & 255)
#define GIVEN_OF(ENUM, flags) (((flags)&GIVEN) ? (1 << NDST(ENUM)) - 1 : ENUM##_inout)

/* ---- gradient rules ---- */

#define CONSTANT    \
    {               \
        .run = NULL \
    }
#define REFUSED            \
    {                      \
        .is_refused = true \
    }
#define BACK(rule, saves)             \
    {                                 \
        .run = fy__back_##rule, saves \
    }
#define SRC(i, sources)  .src_for[i] = (sources),
#define DST(i, sources)  .dst_for[i] = (sources),
#define SRC_IF(function) .src_if = fy__##function,
#define DST_IF(function) .dst_if = fy__##function,
#define CONSTANTS(mask)  .constant_dsts = (mask),
#define ANY_RESULT       .any_result = true,
#define EXTENTS          .keeps_extents = true,
#define OLD_VALUE        .takes_old = true,
#define KEEPS_NOTHING
#define ROW(number, ENUM, op_name, op_flags, op_dtypes, set, shape, cost, back, host, cuda, \
            faults, operands, text)                                                         \
    [FY_OP_##ENUM] = OPEN back,
static const fy__tape_rule_t k_gradients[FY_OP_BUILTIN_COUNT] = {
#include "opset/ops.def"
};

/* ---- rows ---- */

enum { EW = FY_OP_ELEMENTWISE, GIVEN = FY_OP_IN_PLACE, ACC = FY_OP_CAN_ACCUMULATE };
enum {
    KEEP = 0,
    LOW = FY_OP_AUTOCAST_LOW,
    FULL = FY_OP_AUTOCAST_FULL,
    WIDEST = FY_OP_AUTOCAST_WIDEST
};

#define SAFE                           0, 0, 0, 0
#define INDEXES(source, side, i, axis) FY_OP_CAN_FAULT, INDEXES_##side, (i), (axis)
#define INDEXES_src                    FY__SRC
#define INDEXES_dst                    FY__DST
#define FIRST(...)                     FIRST_OF(__VA_ARGS__, 0)
#define FIRST_OF(first, ...)           (first)
#define ROW(number, ENUM, op_name, op_flags, op_dtypes, set, shape_rule, cost_rule, back, host, \
            cuda, faults, operands, text)                                                       \
    [FY_OP_##ENUM] = { .info = { .struct_size = sizeof(fy_op_info_t),                           \
                                 .op = FY_OP_##ENUM,                                            \
                                 .name = #op_name,                                              \
                                 .summary = text,                                               \
                                 .nsrc_min = NSRC_MIN(ENUM),                                    \
                                 .nsrc_max = NSRC_MAX(ENUM),                                    \
                                 .ndst = NDST(ENUM),                                            \
                                 .nfields = set##_nfields,                                      \
                                 .flags = (op_flags) | FIRST faults,                            \
                                 .inout = ENUM##_inout,                                         \
                                 .dtypes = FY__SET_##op_dtypes,                                 \
                                 .attrs_nbytes = set##_nbytes,                                  \
                                 .fields = set##_fields,                                        \
                                 .src = k_operands[FY_OP_##ENUM].src,                           \
                                 .dst = k_operands[FY_OP_##ENUM].dst },                         \
                       .shape = set##_ranges ? fy__attrs_then_rule : fy__shape_##shape_rule,    \
                       .rule = fy__shape_##shape_rule,                                          \
                       .cost = fy__cost_##cost_rule,                                            \
                       .gradient = &k_gradients[FY_OP_##ENUM],                                  \
                       .default_attrs = set##_nbytes ? (const void *)&set##_fallback : NULL,    \
                       .axis_field = set##_axis,                                                \
                       .index_limit = { OPEN faults },                                          \
                       .given = GIVEN_OF(ENUM, op_flags),                                       \
                       .plain = !(((op_flags)&GIVEN) | FIRST faults) },
const fy__op_row_t fy__op_rows[FY_OP_BUILTIN_COUNT] = {
#include "opset/ops.def"
};

const fy__op_row_t *fy__op_row(fy_op_t op)
{
    if (FY_LIKELY(op < FY_OP_BUILTIN_COUNT)) return &fy__op_rows[op];
    return fy__op_registered(op - FY_OP_BUILTIN_COUNT);
}

/* ---- by name: open addressing, op + 1 in a slot, filled once and only ever added to, so readers
 * need no lock ---- */

enum { SLOTS = 4096 }; /* a power of two, well above the most ops there can be */
_Static_assert(SLOTS >= 2 * (FY_OP_BUILTIN_COUNT + FY__OPS_REGISTERED),
               "the name index is too full");
_Static_assert(FY_OP_BUILTIN_COUNT + FY__OPS_REGISTERED < UINT16_MAX,
               "op numbers do not fit a slot");
static _Atomic uint16_t slots[SLOTS];
static pthread_once_t slots_once = PTHREAD_ONCE_INIT;

/* FNV-1a. */
static uint32_t hash_name(const char *name)
{
    uint32_t hash = 2166136261u;
    for (; *name; name++) hash = (hash ^ (unsigned char)*name) * 16777619u;
    return hash;
}

static void add_slot(const char *name, fy_op_t op)
{
    uint32_t at = hash_name(name) % SLOTS;
    while (atomic_load_explicit(&slots[at], memory_order_relaxed)) at = (at + 1) % SLOTS;
    atomic_store_explicit(&slots[at], (uint16_t)(op + 1), memory_order_release);
}

static void add_builtins(void)
{
    for (fy_op_t op = 0; op < FY_OP_BUILTIN_COUNT; op++) add_slot(fy__op_rows[op].info.name, op);
}

void fy__op_index_add(const char *name, fy_op_t op)
{
    pthread_once(&slots_once, add_builtins);
    add_slot(name, op);
}

const fy_op_info_t *fy_op_find(const char *name)
{
    if (!name) return NULL;
    pthread_once(&slots_once, add_builtins);
    for (uint32_t at = hash_name(name) % SLOTS;; at = (at + 1) % SLOTS) {
        uint16_t slot = atomic_load_explicit(&slots[at], memory_order_acquire);
        if (!slot) return NULL;
        const fy__op_row_t *row = fy__op_row(slot - 1u);
        if (row && !strcmp(row->info.name, name)) return &row->info;
    }
}

const fy_op_info_t *fy_op_get(fy_op_t op)
{
    const fy__op_row_t *row = fy__op_row(op);
    return row ? &row->info : NULL;
}

fy_op_t fy_op_count(void) { return FY_OP_BUILTIN_COUNT + fy__op_registered_count(); }

const char *fy_attr_type_name(fy_attr_type_t type)
{
    static const char *const names[] = { "f64",   "i64",  "i32",  "bool",
                                         "dtype", "axes", "axis", "enum" };
    return (unsigned)type < sizeof names / sizeof *names ? names[type] : "?";
}

size_t fy__attr_nbytes(fy_attr_type_t type)
{
    switch (type) {
    case FY_ATTR_F64:
    case FY_ATTR_I64: return 8;
    case FY_ATTR_I32:
    case FY_ATTR_BOOL32:
    case FY_ATTR_DTYPE32:
    case FY_ATTR_AXES32:
    case FY_ATTR_AXIS32:
    case FY_ATTR_ENUM32: return 4;
    }
    return 0;
}
