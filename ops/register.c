/* fy_op_register: checks a definition, copies it into one immutable block, and publishes it. Rows
 * are only ever added, so readers take no lock; writers take one. A registered shape rule is
 * wrapped: its results are checked before they are used.
 * Not here: built-in rows (optable.c). Next: docs/ops.md, "Your own op". */
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "ops/cost.h"
#include "ops/format.h"
#include "ops/optable.h"
#include "ops/shape.h"
#include "ops/tape/rules.h"
#include "runtime/base/abi_structs.h"
#include "runtime/base/fail.h"

enum { NAME_MAX_NBYTES = 63, DTYPES_ALL = FY_DTYPE_BIT(FY_DTYPE_COUNT) - 1 };

/* One allocation: this, then fields, kernels, operands, names of choices, fallbacks and strings.
 * `row` first: rules get &row.info and find the rest. */
typedef struct registered {
    fy__op_row_t row;
    fy_shape_rule_fn shape; /* the caller's, may be NULL */
    fy__tape_user_rule_t gradient;
} registered_t;

/* `rows` below `nrows` are immutable; nrows is stored with release after the row, loaded with
 * acquire before it. */
static registered_t *rows[FY__OPS_REGISTERED];
static _Atomic uint32_t nrows;
/* guards adding: rows, nrows, the name index */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

uint32_t fy__op_registered_count(void)
{
    return atomic_load_explicit(&nrows, memory_order_acquire);
}

const fy__op_row_t *fy__op_registered(uint32_t index)
{
    return index < atomic_load_explicit(&nrows, memory_order_acquire) ? &rows[index]->row : NULL;
}

/* ---- the caller's shape rule, not trusted ---- */

static fy_status_t check_result(const fy_op_info_t *info, const fy_desc_t *dst, int index)
{
    if (dst->dtype < 0 || dst->dtype >= FY_DTYPE_COUNT) {
        return FY_FAIL(INVALID_ARGUMENT,
                       "%s: its shape rule gave dst%d dtype %" PRId32 ", which does not exist",
                       info->name, index, dst->dtype);
    }
    if (dst->rank < 0 || dst->rank > FY_MAX_RANK) {
        return FY_FAIL(INVALID_ARGUMENT,
                       "%s: its shape rule gave dst%d rank %" PRId32 ", legal are 0 .. %d",
                       info->name, index, dst->rank, FY_MAX_RANK);
    }
    for (int i = 0; i < dst->rank; i++) {
        if (dst->dims[i] < 0) {
            return FY_FAIL(INVALID_ARGUMENT,
                           "%s: its shape rule gave dst%d axis %d length %" PRId64, info->name,
                           index, i, dst->dims[i]);
        }
    }
    return FY_STATUS_OK;
}

/* Rewriting sources is only right if each really broadcasts to dst[0]. */
static fy_status_t check_broadcast(const fy_op_info_t *info, const fy_launch_t *launch)
{
    const fy_desc_t *dst = &launch->dst[0];
    for (int i = 0; i < launch->nsrc; i++) {
        const fy_desc_t *src = &launch->src[i];
        if (!fy__broadcasts_to(src, dst)) {
            return FY_FAIL(SHAPE_MISMATCH,
                           "%s: it is elementwise, but its shape rule gave dst0 a shape that src%d "
                           "does not broadcast to",
                           info->name, i);
        }
    }
    return FY_STATUS_OK;
}

static fy_status_t run_shape_rule(const fy_op_info_t *info, fy_launch_t *launch)
{
    FY_TRY(((const registered_t *)(const void *)info)->shape(info, launch));
    for (int i = 0; i < launch->ndst; i++) FY_TRY(check_result(info, &launch->dst[i], i));
    if (!(info->flags & FY_OP_ELEMENTWISE)) return FY_STATUS_OK;
    FY_TRY(check_broadcast(info, launch));
    fy__broadcast_sources(launch);
    return FY_STATUS_OK;
}

/* ---- checking a definition ---- */

/* Letters, digits and _ in lower case, not beginning with a digit; '.' separates a prefix of
 * yours. */
static bool is_name(const char *name)
{
    size_t length = name ? strlen(name) : 0;
    if (length == 0 || length > NAME_MAX_NBYTES || (name[0] >= '0' && name[0] <= '9') ||
        name[0] == '.')
        return false;
    return strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_.") == length;
}

static bool fallback_fits(const fy_attr_field_t *field)
{
    double value = field->fallback;
    switch (field->type) {
    case FY_ATTR_F64: return true;
    case FY_ATTR_I64: return fy__integer_holds(FY_DTYPE_I64, value);
    case FY_ATTR_AXES32:
        return value >= 0 && value <= UINT32_MAX && value == (double)(uint32_t)value;
    default: return fy__integer_holds(FY_DTYPE_I32, value);
    }
}

static fy_status_t check_field(const fy_op_info_t *info, uint32_t index)
{
    const fy_attr_field_t *field = &info->fields[index];
    if (!is_name(field->name)) {
        return FY_FAIL(INVALID_ARGUMENT,
                       "op %s: field %" PRIu32 " is named '%.63s': use 1 to %d of a-z 0-9 _",
                       info->name, index, field->name ? field->name : "", NAME_MAX_NBYTES);
    }
    size_t nbytes = fy__attr_nbytes(field->type);
    if (nbytes == 0) {
        return FY_FAIL(INVALID_ARGUMENT, "op %s: field '%s' has type %d, which is no fy_attr_type",
                       info->name, field->name, (int)field->type);
    }
    if (field->offset % nbytes != 0 || field->offset > info->attrs_nbytes ||
        nbytes > info->attrs_nbytes - field->offset) {
        return FY_FAIL(INVALID_ARGUMENT,
                       "op %s: field '%s', %zu bytes at offset %" PRIu32
                       ", is misaligned or outside the struct of %zu bytes",
                       info->name, field->name, nbytes, field->offset, info->attrs_nbytes);
    }
    for (uint32_t i = 0; i < field->nchoices; i++)
        if (field->type != FY_ATTR_ENUM32 || !field->choices || !field->choices[i])
            return FY_FAIL(INVALID_ARGUMENT,
                           "op %s: field '%s' has %" PRIu32
                           " choices; only an ENUM32 has them, and each needs a name",
                           info->name, field->name, field->nchoices);
    if (!fallback_fits(field)) {
        return FY_FAIL(INVALID_ARGUMENT, "op %s: field '%s' cannot hold its fallback %s",
                       info->name, field->name, FY__NUMBER_TEXT(field->fallback));
    }
    for (uint32_t i = 0; i < index; i++) {
        const fy_attr_field_t *other = &info->fields[i];
        size_t other_nbytes = fy__attr_nbytes(other->type);
        bool overlaps = field->offset < other->offset + other_nbytes &&
                        other->offset < field->offset + nbytes;
        if (overlaps || !strcmp(field->name, other->name)) {
            return FY_FAIL(INVALID_ARGUMENT, "op %s: fields '%s' and '%s' overlap or have one name",
                           info->name, other->name, field->name);
        }
    }
    return FY_STATUS_OK;
}

/* How many sources info->src describes. */
static uint32_t nsrc_described(const fy_op_info_t *info)
{
    return info->nsrc_max != FY_OP_VARIADIC ? info->nsrc_max : info->nsrc_min ? info->nsrc_min : 1;
}

static fy_status_t check_operands(const fy_op_info_t *info, const char *role,
                                  const fy_op_operand_t *operands, uint32_t count)
{
    const uint32_t flags = FY_OPERAND_OPTIONAL | FY_OPERAND_REPEATED | FY_OPERAND_INOUT;
    for (uint32_t i = 0; operands && i < count; i++)
        if (!is_name(operands[i].name) || operands[i].dtypes & ~(uint32_t)DTYPES_ALL ||
            operands[i].flags & ~flags)
            return FY_FAIL(INVALID_ARGUMENT,
                           "op %s: %s%" PRIu32 " is described as '%.63s', dtypes 0x%" PRIx32
                           ", flags 0x%" PRIx32
                           ": a name of a-z 0-9 _, parts of 0x%x and 0x%" PRIx32,
                           info->name, role, i, operands[i].name ? operands[i].name : "",
                           operands[i].dtypes, operands[i].flags, (unsigned)DTYPES_ALL, flags);
    return FY_STATUS_OK;
}

static fy_status_t check_info(const fy_op_info_t *info)
{
    if (!is_name(info->name)) {
        return FY_FAIL(INVALID_ARGUMENT,
                       "op name '%.63s': use 1 to %d of a-z 0-9 _ . and begin with a letter",
                       info->name ? info->name : "", NAME_MAX_NBYTES);
    }
    if (info->nsrc_min > info->nsrc_max) {
        return FY_FAIL(INVALID_ARGUMENT, "op %s: nsrc_min %u is above nsrc_max %u", info->name,
                       info->nsrc_min, info->nsrc_max);
    }
    if (info->ndst < 1 || info->ndst > FY__OP_DSTS_MAX) {
        return FY_FAIL(INVALID_ARGUMENT, "op %s: ndst is %u, legal are 1 .. %d", info->name,
                       info->ndst, FY__OP_DSTS_MAX);
    }
    const uint32_t classes = FY_OP_AUTOCAST_LOW | FY_OP_AUTOCAST_FULL | FY_OP_AUTOCAST_WIDEST;
    const uint32_t class = info->flags & classes;
    const uint32_t known = FY_OP_ELEMENTWISE | FY_OP_IN_PLACE | FY_OP_CAN_FAULT |
                           FY_OP_CAN_ACCUMULATE | classes;
    if (info->flags & ~known) {
        return FY_FAIL(INVALID_ARGUMENT, "op %s: flags 0x%" PRIx32 " has bits beyond 0x%" PRIx32,
                       info->name, info->flags, known);
    }
    if (class & (class - 1)) {
        return FY_FAIL(INVALID_ARGUMENT, "op %s: flags 0x%" PRIx32 " has several autocast classes",
                       info->name, info->flags);
    }
    if ((info->flags & FY_OP_ELEMENTWISE) && info->nsrc_min < 1) {
        return FY_FAIL(INVALID_ARGUMENT, "op %s: an elementwise op needs a source; nsrc_min is 0",
                       info->name);
    }
    if (info->inout >> info->ndst) {
        return FY_FAIL(INVALID_ARGUMENT, "op %s: inout 0x%" PRIx32 " names a result past ndst %u",
                       info->name, info->inout, info->ndst);
    }
    if (info->dtypes == 0 || (info->dtypes & ~(uint32_t)DTYPES_ALL)) {
        return FY_FAIL(INVALID_ARGUMENT,
                       "op %s: dtypes 0x%" PRIx32 " must be a non-empty part of 0x%x", info->name,
                       info->dtypes, (unsigned)DTYPES_ALL);
    }
    if (info->attrs_nbytes > FY_OP_ATTRS_MAX_NBYTES) {
        return FY_FAIL(INVALID_ARGUMENT,
                       "op %s: the attribute struct has %zu bytes, the most is %d", info->name,
                       info->attrs_nbytes, FY_OP_ATTRS_MAX_NBYTES);
    }
    if ((info->nfields == 0) != (info->attrs_nbytes == 0) || (info->nfields > 0 && !info->fields)) {
        return FY_FAIL(INVALID_ARGUMENT,
                       "op %s: attrs_nbytes %zu, nfields %u, fields %s: all or none must be there",
                       info->name, info->attrs_nbytes, info->nfields,
                       info->fields ? "set" : "NULL");
    }
    for (uint32_t i = 0; i < info->nfields; i++) FY_TRY(check_field(info, i));
    FY_TRY(check_operands(info, "src", info->src, nsrc_described(info)));
    return check_operands(info, "dst", info->dst, info->ndst);
}

/* Bits that stand for an operand at or after `count`; bit 31 stands for all from 31 on. */
static uint32_t bits_past(uint32_t bits, uint32_t count)
{
    return count < 32 ? bits & ~((1u << count) - 1) : 0;
}

static fy_status_t check_gradient(const fy_op_def_t *def)
{
    const fy_op_info_t *info = def->info;
    if (!def->backward && (def->saved_srcs | def->saved_dsts))
        return FY_FAIL(INVALID_ARGUMENT,
                       "op %s: saved_srcs 0x%" PRIx32 " and saved_dsts 0x%" PRIx32
                       " without `backward`, which would use them",
                       info->name, def->saved_srcs, def->saved_dsts);
    if (bits_past(def->saved_srcs, info->nsrc_max) || bits_past(def->saved_dsts, info->ndst))
        return FY_FAIL(INVALID_ARGUMENT,
                       "op %s: saved_srcs 0x%" PRIx32 " or saved_dsts 0x%" PRIx32
                       " names an operand past nsrc_max %u or ndst %u",
                       info->name, def->saved_srcs, def->saved_dsts, info->nsrc_max, info->ndst);
    if (def->backward && info->inout)
        return FY_FAIL(INVALID_ARGUMENT,
                       "op %s: inout 0x%" PRIx32 " and `backward`: a result that is read as well "
                       "cannot have a gradient rule\n  Make it a source, and a new result",
                       info->name, info->inout);
    return FY_STATUS_OK;
}

static fy_status_t check_def(const fy_op_def_t *def)
{
    const fy_op_info_t *info = def->info;
    FY_TRY(check_info(info));
    if (!def->shape && (!(info->flags & FY_OP_ELEMENTWISE) || info->ndst != 1)) {
        return FY_FAIL(
            INVALID_ARGUMENT,
            "op %s: no shape rule; only elementwise ops with one result may leave it to Ferry",
            info->name);
    }
    if (def->nkernels == 0 || !def->kernels)
        return FY_FAIL(INVALID_ARGUMENT, "op %s: no kernel: give one for \"host\" at least",
                       info->name);
    for (size_t i = 0; i < def->nkernels; i++) {
        const fy_op_kernel_t *kernel = &def->kernels[i];
        if (!is_name(kernel->backend) || !kernel->kernel) {
            return FY_FAIL(INVALID_ARGUMENT,
                           "op %s: kernel %zu of %zu has no backend name or no function",
                           info->name, i, def->nkernels);
        }
        for (size_t j = 0; j < i; j++) {
            if (!strcmp(kernel->backend, def->kernels[j].backend)) {
                return FY_FAIL(INVALID_ARGUMENT, "op %s: two kernels for backend '%s'", info->name,
                               kernel->backend);
            }
        }
    }
    return check_gradient(def);
}

/* ---- copying ---- */

static char *copy_text(char **at, const char *text)
{
    size_t nbytes = strlen(text) + 1;
    char *copy = memcpy(*at, text, nbytes);
    *at += nbytes;
    return copy;
}

static void set_fallback(unsigned char *attrs, const fy_attr_field_t *field)
{
    int64_t i64;
    uint32_t u32;
    switch (field->type) {
    case FY_ATTR_F64:
        memcpy(attrs + field->offset, &field->fallback, sizeof field->fallback);
        return;
    case FY_ATTR_I64:
        i64 = (int64_t)field->fallback, memcpy(attrs + field->offset, &i64, sizeof i64);
        return;
    case FY_ATTR_AXES32:
        u32 = (uint32_t)field->fallback, memcpy(attrs + field->offset, &u32, sizeof u32);
        return;
    default:
        u32 = (uint32_t)(int32_t)field->fallback, memcpy(attrs + field->offset, &u32, sizeof u32);
        return;
    }
}

static size_t text_nbytes(const char *text) { return strlen(text) + 1; }

/* Bytes of all strings of the definition. */
static size_t strings_nbytes(const fy_op_def_t *def)
{
    const fy_op_info_t *info = def->info;
    size_t nbytes = text_nbytes(info->name) + text_nbytes(info->summary ? info->summary : "");
    for (uint32_t i = 0; i < info->nfields; i++) {
        nbytes += text_nbytes(info->fields[i].name);
        for (uint32_t j = 0; j < info->fields[i].nchoices; j++)
            nbytes += text_nbytes(info->fields[i].choices[j]);
    }
    for (uint32_t i = 0; info->src && i < nsrc_described(info); i++)
        nbytes += text_nbytes(info->src[i].name);
    for (uint32_t i = 0; info->dst && i < info->ndst; i++) nbytes += text_nbytes(info->dst[i].name);
    for (size_t i = 0; i < def->nkernels; i++) nbytes += text_nbytes(def->kernels[i].backend);
    return nbytes;
}

/* Copies `count` operands to *at, their names to *strings. Returns the copy, NULL for NULL. */
static const fy_op_operand_t *copy_operands(fy_op_operand_t **at, char **strings,
                                            const fy_op_operand_t *operands, uint32_t count)
{
    fy_op_operand_t *copy = *at;
    if (!operands) return NULL;
    for (uint32_t i = 0; i < count; i++) {
        copy[i] = operands[i];
        copy[i].name = copy_text(strings, operands[i].name);
    }
    *at += count;
    return copy;
}

/* NULL: out of memory. */
static registered_t *copy_def(const fy_op_def_t *def)
{
    const fy_op_info_t *info = def->info;
    const size_t nattrs = (info->attrs_nbytes + 15) / 16 * 16;
    const size_t noperands = (info->src ? nsrc_described(info) : 0) + (info->dst ? info->ndst : 0u);
    size_t nchoices = 0;
    for (uint32_t i = 0; i < info->nfields; i++) nchoices += info->fields[i].nchoices;
    _Static_assert(sizeof(registered_t) % 8 == 0 && sizeof(fy_attr_field_t) % 8 == 0 &&
                       sizeof(fy_op_kernel_t) % 8 == 0 && sizeof(fy_op_operand_t) % 8 == 0,
                   "one block, all aligned");
    registered_t *op = calloc(1, sizeof *op + info->nfields * sizeof(fy_attr_field_t) +
                                     def->nkernels * sizeof(fy_op_kernel_t) +
                                     noperands * sizeof(fy_op_operand_t) +
                                     nchoices * sizeof(char *) + nattrs + strings_nbytes(def));
    if (!op) return NULL;
    fy_attr_field_t *fields = (fy_attr_field_t *)(op + 1);
    fy_op_kernel_t *kernels = (fy_op_kernel_t *)(fields + info->nfields);
    fy_op_operand_t *operands = (fy_op_operand_t *)(kernels + def->nkernels);
    const char **choices = (const char **)(operands + noperands);
    unsigned char *attrs = (unsigned char *)(choices + nchoices);
    char *strings = (char *)attrs + nattrs;

    op->row.info = *info;
    op->row.info.name = copy_text(&strings, info->name);
    op->row.info.summary = copy_text(&strings, info->summary ? info->summary : "");
    op->row.info.fields = info->nfields ? fields : NULL;
    op->row.info.src = copy_operands(&operands, &strings, info->src, nsrc_described(info));
    op->row.info.dst = copy_operands(&operands, &strings, info->dst, info->ndst);
    for (uint32_t i = 0; i < info->nfields; i++) {
        fields[i] = info->fields[i];
        fields[i].name = copy_text(&strings, info->fields[i].name);
        fields[i].choices = info->fields[i].nchoices ? choices : NULL;
        for (uint32_t j = 0; j < info->fields[i].nchoices; j++)
            *choices++ = copy_text(&strings, info->fields[i].choices[j]);
        set_fallback(attrs, &fields[i]);
        if (fields[i].type == FY_ATTR_AXIS32) op->row.axis_field = fields[i].offset + 1;
    }
    for (size_t i = 0; i < def->nkernels; i++) {
        kernels[i] = (fy_op_kernel_t){ copy_text(&strings, def->kernels[i].backend),
                                       def->kernels[i].kernel, def->kernels[i].supports };
    }
    op->row.shape = op->row.rule = def->shape ? run_shape_rule : fy__shape_elementwise;
    for (uint32_t i = 0; i < info->nfields; i++)
        if (fy__attr_has_range(&fields[i])) op->row.shape = fy__attrs_then_rule;
    op->row.cost = def->cost ? def->cost : fy__cost_elementwise;
    op->row.nkernels = def->nkernels;
    op->row.kernels = kernels;
    op->row.user = def->user;
    op->row.given = info->flags & FY_OP_IN_PLACE ? (1u << info->ndst) - 1 : info->inout;
    op->shape = def->shape;
    op->row.default_attrs = info->attrs_nbytes ? attrs : NULL;
    op->gradient = (fy__tape_user_rule_t){ .rule = { .run = fy__back_registered,
                                                     .any_result = true,
                                                     .saved_srcs = def->saved_srcs,
                                                     .saved_dsts = def->saved_dsts },
                                           .info = &op->row.info,
                                           .backward = def->backward,
                                           .user = def->user };
    if (def->backward) op->row.gradient = &op->gradient.rule;
    return op;
}

/* Needs the lock. */
static fy_status_t publish(registered_t *op, fy_op_t *out_op)
{
    uint32_t index = atomic_load_explicit(&nrows, memory_order_relaxed);
    const fy_op_info_t *taken = fy_op_find(op->row.info.name);
    if (taken)
        return FY_FAIL(INVALID_ARGUMENT,
                       "op %s: the name is taken by op %" PRIu32
                       "; use a prefix of yours: mylib.%s",
                       taken->name, taken->op, taken->name);
    if (index == FY__OPS_REGISTERED) {
        return FY_FAIL(OUT_OF_MEMORY, "op %s: all %d places for registered ops are taken",
                       op->row.info.name, FY__OPS_REGISTERED);
    }
    op->row.info.op = FY_OP_BUILTIN_COUNT + index;
    rows[index] = op;
    atomic_store_explicit(&nrows, index + 1, memory_order_release);
    fy__op_index_add(op->row.info.name, op->row.info.op);
    *out_op = op->row.info.op;
    return FY_STATUS_OK;
}

fy_status_t fy_op_register(const fy_op_def_t *def, fy_op_t *out_op)
{
    if (!out_op) return FY_FAIL(INVALID_ARGUMENT, "op: out_op is NULL");
    *out_op = FY_OP_NONE;
    fy_op_def_t own;
    fy_op_info_t info;
    FY_TRY(FY__READ_GIVEN(op_def, "op_register", def, &own));
    FY_TRY(
        fy__abi_read(&fy__abi_op_info, "op_register", "def->info", own.info, &info, sizeof info));
    own.info = &info;
    FY_TRY(check_def(&own));
    registered_t *op = copy_def(&own);
    if (!op) return FY_FAIL(OUT_OF_MEMORY, "op %s: no memory for its row", info.name);
    pthread_mutex_lock(&lock);
    fy_status_t status = publish(op, out_op);
    pthread_mutex_unlock(&lock);
    if (status != FY_STATUS_OK) free(op);
    return status;
}
