/* Builds the op table from optable.def and answers who asks for a row: by number or by name, built
 * in or registered, lock-free.
 * Not here: registering (register.c), calling (call.c, dispatch.c). Next: optable.def, then
 * shape.h. */
#include "ops/optable.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "ops/cost.h"
#include "ops/shape.h"
#include "ops/tape/rules.h"
#include "runtime/base/fail.h"

/* ---- attribute sets: fields for introspection, and a struct at its fallbacks ---- */

#define FIELD(type, field, kind, fallback) \
    { #field, FY_ATTR_##kind, offsetof(type, field), fallback },
#define ATTRS(set, type, ...)                                           \
    static const fy_attr_field_t set##_fields[] = { __VA_ARGS__ };      \
    enum {                                                              \
        set##_nfields = sizeof(set##_fields) / sizeof(set##_fields[0]), \
        set##_nbytes = sizeof(type)                                     \
    };
#include "ops/optable.def"

#define FIELD(type, field, kind, fallback) .field = fallback,
#define ATTRS(set, type, ...)              static const type set##_fallback = { __VA_ARGS__ };
#include "ops/optable.def"

/* The set of ops that take none. */
enum { none_nfields = 0, none_nbytes = 0 };
#define none_fields NULL
static const char none_fallback;

/* ---- rows ---- */

enum {
    EW = FY_OP_ELEMENTWISE,
    INPLACE = FY_OP_IN_PLACE,
    FAULT = FY_OP_CAN_FAULT,
    ACC = FY_OP_CAN_ACCUMULATE,
    VARIADIC = FY_OP_VARIADIC,
    ANY = FY_DTYPE_BIT(FY_DTYPE_COUNT) - 1,
    NUMBER = ANY & ~FY_DTYPE_BIT(FY_DTYPE_BOOL),
    FLOAT = FY_DTYPE_BIT(FY_DTYPE_F32) | FY_DTYPE_BIT(FY_DTYPE_F64) | FY_DTYPE_BIT(FY_DTYPE_F16) |
            FY_DTYPE_BIT(FY_DTYPE_BF16),
    REAL = FY_DTYPE_BIT(FY_DTYPE_F32) | FY_DTYPE_BIT(FY_DTYPE_F64),
    INT64 = FY_DTYPE_BIT(FY_DTYPE_I64),
    INDEX = FY_DTYPE_BIT(FY_DTYPE_I32) | FY_DTYPE_BIT(FY_DTYPE_I64),
};

#define OP(ENUM, op_name, min, max, dsts, op_flags, op_inout, op_dtypes, set, shape_rule, \
           cost_rule, gradient_rule, text)                                                \
    [FY_OP_##ENUM] = { .info = { .struct_size = sizeof(fy_op_info_t),                     \
                                 .op = FY_OP_##ENUM,                                      \
                                 .name = #op_name,                                        \
                                 .summary = text,                                         \
                                 .nsrc_min = min,                                         \
                                 .nsrc_max = max,                                         \
                                 .ndst = dsts,                                            \
                                 .nfields = set##_nfields,                                \
                                 .flags = op_flags,                                       \
                                 .inout = op_inout,                                       \
                                 .dtypes = op_dtypes,                                     \
                                 .attrs_nbytes = set##_nbytes,                            \
                                 .fields = set##_fields },                                \
                       .shape = fy__shape_##shape_rule,                                   \
                       .cost = fy__cost_##cost_rule,                                      \
                       .gradient = &fy__tape_rule_##gradient_rule,                        \
                       .plain = !((op_flags) & (INPLACE | FAULT)) },
const fy__op_row_t fy__op_rows[FY_OP_BUILTIN_COUNT] = {
#include "ops/optable.def"
};

#define OP(ENUM, op_name, min, max, dsts, op_flags, op_inout, op_dtypes, set, ...) \
    [FY_OP_##ENUM] = set##_nbytes ? (const void *)&set##_fallback : NULL,
static const void *const builtin_attrs[FY_OP_BUILTIN_COUNT] = {
#include "ops/optable.def"
};

/* The rows stand in the order of FY_OP_LIST, with the names that it gives, and there is one for
 * each op. */
#define OP(ENUM, ...) ROW_##ENUM,
enum row_order {
#include "ops/optable.def"
    ROW_COUNT
};
#define X(ENUM, name)                                                                        \
    _Static_assert((int)ROW_##ENUM == (int)FY_OP_##ENUM, "optable.def: " #name " is out of " \
                                                         "order");
FY_OP_LIST(X)
#undef X
_Static_assert((int)ROW_COUNT == (int)FY_OP_BUILTIN_COUNT,
               "optable.def has another number of rows than FY_OP_LIST");

const fy__op_row_t *fy__op_row(fy_op_t op)
{
    if (FY_LIKELY(op < FY_OP_BUILTIN_COUNT)) return &fy__op_rows[op];
    return fy__op_registered(op - FY_OP_BUILTIN_COUNT);
}

const void *fy__op_default_attrs(const fy__op_row_t *row)
{
    if (row->info.op < FY_OP_BUILTIN_COUNT) return builtin_attrs[row->info.op];
    return fy__op_registered_attrs(row);
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
    static const char *const names[] = { "f64", "i64", "i32", "bool", "dtype", "axes" };
    return (unsigned)type < sizeof names / sizeof *names ? names[type] : "?";
}
