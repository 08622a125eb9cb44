/* Optimizers: state for each parameter, learning rate and step number on the device, one request a
 * pair and step.
 * Not here: the kinds (optimizers.def), the formulas (opset/formulas/step.h), schedules
 * (schedule.c), clipping (clip.c). */
#include <ferry/train/optimizer.h>

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ferry/device.h>
#include <ferry/scope.h>
#include <ferry/tensor.h>
#include <ferry/transfer.h>

#include "train/abi.h"
#include "train/fail.h"
#include "train/model.h"
#include "train/optimizer.h"
#include "train/optimizer_parts.h"
#include "train/optimizer_scaling.h"

enum { STATES = 3, NAME_NBYTES = 40, ATTRS = 8 };

/* Of optimizers.def. */
typedef struct row {
    double lr, weight_decay;
    fy_op_t op;
    bool has_trust; /* ratios */
    const char *states[STATES];
} row_t;

typedef struct pair {
    fy_tensor_t *value, *grad;  /* separate handles */
    fy_tensor_t *low;           /* a copy of the value in half precision; NULL: none */
    fy_tensor_t *parts;         /* NULL: every factor is 1, and there is one trust ratio */
    fy_tensor_t *trust;         /* if the step has trust ratios */
    fy_tensor_t *state[STATES]; /* those of the row */
    char name[STATES][NAME_NBYTES];
} pair_t;

struct fy_optimizer {
    fy_optimizer_options_t options;
    const row_t *row;    /* of the options that it was made with */
    double attrs[ATTRS]; /* the bytes of those of the row's op */
    fy_tensor_t *lr;     /* f64 */
    fyt_scaling_t scaling;
    fyt_ranges_t ranges;
    uint64_t checksum; /* of groups and loss scaling */
    size_t count;
    pair_t pairs[];
};

/* NULL: an undefined kind. */
static const row_t *row_of(const fy_optimizer_options_t *o)
{
#define OPTIMIZER(kind_, lr, weight_decay, when, op, trust, ...)                           \
    if (o->kind == FY_OPTIMIZER_##kind_ && (when)) {                                       \
        static const row_t row = { lr, weight_decay, FY_OP_##op, trust, { __VA_ARGS__ } }; \
        return &row;                                                                       \
    }
#include "train/optimizers.def"
    return NULL;
}

/* What an attribute of a step is taken from; NULL: a flag. */
static double *option_of(fy_optimizer_options_t *o, const fy_attr_field_t *attr)
{
    const struct {
        const char *attr;
        double *option;
    } all[] = {
        { "weight_decay", &o->weight_decay },
        { "momentum", &o->momentum },
        { "dampening", &o->dampening },
        { "beta1", &o->beta1 },
        { "beta2", &o->beta2 },
        { "rho", &o->rho },
        { "alpha", &o->rho },
        { "eps", &o->eps },
        { "trust_coefficient", &o->trust_coefficient },
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strcmp(all[i].attr, attr->name) == 0) return all[i].option;
    return NULL;
}

double *fyt_optimizer_momentum(fy_optimizer_options_t *options)
{
    const fy_op_info_t *op = fy_op_get(row_of(options)->op);
    for (int i = 0; i < op->nfields; i++)
        if (strcmp(op->fields[i].name, "momentum") == 0 || strcmp(op->fields[i].name, "beta1") == 0)
            return option_of(options, &op->fields[i]);
    return NULL;
}

int fyt_optimizer_has_trust(fy_optimizer_kind_t kind)
{
    const row_t *row = row_of(&(fy_optimizer_options_t){ .kind = kind });
    return row && row->has_trust;
}

const char *fy_optimizer_name(fy_optimizer_kind_t kind)
{
    static const char *const names[] = {
#define X(name, text) text,
        FY_OPTIMIZER_LIST(X)
#undef X
    };
    return (unsigned)kind < FY_OPTIMIZER_COUNT ? names[kind] : "?";
}

void fy_optimizer_defaults(fy_optimizer_kind_t kind, fy_optimizer_options_t *out_options,
                           size_t nbytes)
{
    fy_optimizer_options_t defaults = FY_OPTIMIZER_OPTIONS_INIT;
    defaults.kind = kind;
    const row_t *row = row_of(&defaults);
    const fy_op_info_t *op = row ? fy_op_get(row->op) : NULL;
    for (int i = 0; op && i < op->nfields; i++) {
        double *option = option_of(&defaults, &op->fields[i]);
        if (option) *option = op->fields[i].fallback;
    }
    if (row) defaults.lr = row->lr, defaults.weight_decay = row->weight_decay;
    defaults.trust_coefficient = 0; /* that of the op */
    fy__abi_init(&defaults, sizeof defaults, out_options, nbytes);
}

/* ---- valid settings ---- */

static fy_status_t check_field(const char *kind, const char *field, double value, bool holds,
                               const char *wanted)
{
    if (holds) return FY_STATUS_OK;
    return FYT_FAIL(INVALID_ARGUMENT, "optimizer %s: %s is %g; it must be %s", kind, field, value,
                    wanted);
}

static fy_status_t check_lr(const char *kind, double lr)
{
    return check_field(kind, "lr", lr, lr >= 0 && isfinite(lr), "finite, 0 or more");
}

static fy_status_t check_options(const fy_optimizer_options_t *o)
{
    const row_t *row = row_of(o);
    if (!row)
        return FYT_FAIL(INVALID_ARGUMENT, "optimizer: kind %d is none of fy_optimizer_kind_t",
                        (int)o->kind);
    const char *kind = fy_optimizer_name(o->kind);
    const fy_op_info_t *op = fy_op_get(row->op);
    fy_optimizer_options_t own = *o;
    FY_TRY(check_lr(kind, o->lr));
    for (int i = 0; i < op->nfields; i++) {
        const fy_attr_field_t *attr = &op->fields[i];
        const double *value = option_of(&own, attr);
        if (!value) continue;
        const bool is_any = attr->high == 0, holds = *value >= attr->low && *value < attr->high;
        FY_TRY(check_field(kind, value == &own.rho ? "rho" : attr->name, *value,
                           is_any ? isfinite(*value) : holds,
                           is_any              ? "finite"
                           : isinf(attr->high) ? "finite, 0 or more"
                                               : "0 or more and below 1"));
    }
    if (o->kind == FY_OPTIMIZER_SGD)
        FY_TRY(check_field(kind, "nesterov", o->nesterov,
                           !o->nesterov || (o->momentum > 0 && o->dampening == 0),
                           "0 unless momentum is above 0 and dampening 0"));
    if (o->kind == FY_OPTIMIZER_RMSPROP)
        FY_TRY(check_field(kind, "momentum", o->momentum, !o->centered || o->momentum == 0,
                           "0 with centered"));
    return fyt_parts_check(o);
}

static bool is_half(fy_dtype_t dtype) { return dtype == FY_DTYPE_F16 || dtype == FY_DTYPE_BF16; }

static bool is_float(fy_dtype_t dtype)
{
    return dtype == FY_DTYPE_F32 || dtype == FY_DTYPE_F64 || is_half(dtype);
}

static fy_status_t check_pair(size_t index, const fy_tensor_t *value, const fy_tensor_t *grad,
                              const fy_device_t *device)
{
    fy_tensor_info_t v = { .struct_size = sizeof v }, g = { .struct_size = sizeof g };
    if (!value || !grad)
        return FYT_FAIL(INVALID_ARGUMENT, "optimizer: %s[%zu] is NULL", value ? "grads" : "values",
                        index);
    FY_TRY(fy_tensor_query(value, &v));
    FY_TRY(fy_tensor_query(grad, &g));
    if (v.is_read_only) return fyt_optimizer_check_in_place("optimizer", "values", index, value);
    if (v.device != device || g.device != device)
        return FYT_FAIL(
            DEVICE_MISMATCH,
            "optimizer: pair %zu is on %s (value) and %s (gradient), the first value on %s", index,
            fy_device_name(v.device), fy_device_name(g.device), fy_device_name(device));
    if (!is_float(v.dtype) || g.dtype != v.dtype)
        return FYT_FAIL(DTYPE_MISMATCH,
                        "optimizer: pair %zu is %s (value) and %s (gradient); both must have one "
                        "dtype, f32, f64, f16 or bf16",
                        index, fy_dtype_name(v.dtype), fy_dtype_name(g.dtype));
    if (!v.is_contiguous || !g.is_contiguous)
        return FYT_FAIL(INVALID_ARGUMENT,
                        "optimizer: %s[%zu] is not dense: give the whole tensor, not a view with "
                        "other strides",
                        v.is_contiguous ? "grads" : "values", index);
    bool same = v.rank == g.rank;
    for (int i = 0; same && i < v.rank; i++) same = v.dims[i] == g.dims[i];
    if (same) return FY_STATUS_OK;
    return FYT_FAIL(SHAPE_MISMATCH,
                    "optimizer: value %zu has %llu elements in rank %d, its gradient %llu in rank "
                    "%d: they must be of one shape",
                    index, (unsigned long long)v.nelem, v.rank, (unsigned long long)g.nelem,
                    g.rank);
}

/* ---- making one ---- */

/* Makes a separate handle to the same bytes. */
static fy_status_t hold(fy_tensor_t *tensor, fy_tensor_t **out_handle)
{
    fy_tensor_info_t info = { .struct_size = sizeof info };
    FY_TRY(fy_tensor_query(tensor, &info));
    FY_TRY(fy_reshape(tensor, info.rank, info.dims, out_handle));
    fy_tensor_keep(*out_handle);
    return FY_STATUS_OK;
}

static void fill_attrs(fy_optimizer_t *optimizer)
{
    fy_optimizer_options_t own = optimizer->options;
    const fy_op_info_t *op = fy_op_get(optimizer->row->op);
    for (int i = 0; i < op->nfields; i++) {
        const fy_attr_field_t *attr = &op->fields[i];
        const double *option = option_of(&own, attr);
        char *to = (char *)optimizer->attrs + attr->offset;
        if (option == &own.trust_coefficient && *option == 0) option = &attr->fallback;
        const int32_t flag = own.kind == FY_OPTIMIZER_SGD ? own.nesterov != 0
                                                          : own.kind == FY_OPTIMIZER_ADAMW;
        memcpy(to, option ? (const void *)option : &flag, option ? sizeof *option : sizeof flag);
    }
}

/* In a scope of the caller whose category is optimizer state. */
static fy_status_t make_pair(const fy_optimizer_t *optimizer, size_t index, fy_tensor_t *value,
                             fy_tensor_t *grad, const fy_model_t *model, pair_t *pair)
{
    fy_tensor_info_t info = { .struct_size = sizeof info };
    FY_TRY(fy_tensor_query(value, &info));
    FY_TRY(hold(value, &pair->value));
    FY_TRY(hold(grad, &pair->grad));
    /* of a range no copy is written: the model casts its parameters again */
    if (model && model->low && value == model->values) FY_TRY(hold(model->low, &pair->low));
    FY_TRY(fyt_parts_make(&optimizer->options, value, model, &pair->parts, &pair->trust));
    if (optimizer->scaling.state && !pair->parts)
        FY_TRY(fyt_scaling_make_parts(info.device, &pair->parts));
    for (int i = 0; i < STATES; i++) {
        const char *name = optimizer->row->states[i];
        if (!name) continue;
        const bool counts = i == STATES - 1;
        const fy_dtype_t dtype = counts                ? FY_DTYPE_I64
                                 : is_half(info.dtype) ? FY_DTYPE_F32
                                                       : info.dtype;
        FY_TRY(fy_zeros(info.device, dtype, counts ? 0 : info.rank, counts ? NULL : info.dims,
                        &pair->state[i]));
        fy_tensor_keep(pair->state[i]);
        if (optimizer->count > 1)
            snprintf(pair->name[i], sizeof pair->name[i], "%s.%zu", name, index);
        else
            snprintf(pair->name[i], sizeof pair->name[i], "%s", name);
        fy_tensor_set_name(pair->state[i], pair->name[i]);
    }
    return FY_STATUS_OK;
}

static fy_status_t make_all(fy_optimizer_t *optimizer, fy_tensor_t *const *values,
                            fy_tensor_t *const *grads, const fy_model_t *model,
                            const fy_loss_scaling_options_t *scaling, fy_device_t *device)
{
    FY_TRY(fy_scope_memory(FY_CATEGORY_OPTIMIZER_STATE));
    FY_TRY(fy_full(device, FY_DTYPE_F64, 0, NULL, optimizer->options.lr, &optimizer->lr));
    fy_tensor_keep(optimizer->lr);
    fy_tensor_set_name(optimizer->lr, "lr");
    if (scaling) FY_TRY(fyt_scaling_make(scaling, device, &optimizer->scaling));
    for (size_t i = 0; i < optimizer->count; i++)
        FY_TRY(make_pair(optimizer, i, values[i], grads[i], model, &optimizer->pairs[i]));
    return FY_STATUS_OK;
}

fy_status_t fyt_optimizer_create(const fy_optimizer_options_t *options, size_t count,
                                 fy_tensor_t *const *values, fy_tensor_t *const *grads,
                                 const fy_model_t *model, fy_optimizer_t **out_optimizer)
{
    FY_TRY(FYT_CLEAR_OUT("optimizer", out_optimizer));
    fy_optimizer_options_t own;
    fy_loss_scaling_options_t scaling;
    FY_TRY(FY__READ_GIVEN(optimizer_options, "optimizer_create", options, &own));
    options = &own;
    FY_TRY(check_options(options));
    FY_TRY(FY__READ(loss_scaling_options, "optimizer_create", options->loss_scaling, &scaling));
    FY_TRY(fyt_scaling_check(fy_optimizer_name(options->kind), &scaling));
    if (count == 0 || !values || !grads || !values[0])
        return FYT_FAIL(INVALID_ARGUMENT, "optimizer: %s",
                        count ? "values, grads or values[0] is NULL"
                              : "count is 0: there is nothing to update");
    fy_tensor_info_t first = { .struct_size = sizeof first };
    FY_TRY(fy_tensor_query(values[0], &first));
    for (size_t i = 0; i < count; i++) FY_TRY(check_pair(i, values[i], grads[i], first.device));
    FY_TRY(fyt_optimizer_check_overlap("optimizer", count, values, grads));
    FY_TRY(fyt_parts_check_groups(options, count, values, model));
    fy_optimizer_t *optimizer = count > (SIZE_MAX - sizeof *optimizer) / sizeof(pair_t)
                                    ? NULL
                                    : calloc(1, sizeof *optimizer + count * sizeof(pair_t));
    if (!optimizer)
        return FYT_FAIL(OUT_OF_MEMORY, "optimizer: no host memory for %zu pairs", count);
    optimizer->options = *options;
    optimizer->row = row_of(options);
    fill_attrs(optimizer);
    optimizer->checksum = fyt_parts_checksum(options, &scaling);
    optimizer->count = count;
    fy_scope_t scope = fy_scope_begin("optimizer");
    const fy_status_t status = make_all(optimizer, values, grads, model,
                                        options->loss_scaling ? &scaling : NULL, first.device);
    fy_scope_end(scope, 0, NULL);
    optimizer->options.ngroups = 0; /* the caller's memory */
    optimizer->options.groups = NULL;
    optimizer->options.loss_scaling = NULL;
    if (status == FY_STATUS_OK)
        *out_optimizer = optimizer;
    else
        fy_optimizer_destroy(optimizer);
    return status;
}

fy_status_t fy_optimizer_create(const fy_optimizer_options_t *options, size_t count,
                                fy_tensor_t *const *values, fy_tensor_t *const *grads,
                                fy_optimizer_t **out_optimizer)
{
    return fyt_optimizer_create(options, count, values, grads, NULL, out_optimizer);
}

fy_status_t fy_optimizer_create_model(const fy_optimizer_options_t *options,
                                      const fy_model_t *model, fy_optimizer_t **out_optimizer)
{
    if (out_optimizer) *out_optimizer = NULL;
    if (!model) return FYT_FAIL(INVALID_ARGUMENT, "optimizer_create_model: model is NULL");
    return fyt_optimizer_create(options, 1, &model->values, &model->grads, model, out_optimizer);
}

void fy_optimizer_destroy(fy_optimizer_t *optimizer)
{
    if (!optimizer) return;
    for (size_t i = 0; i < optimizer->count; i++) {
        pair_t *pair = &optimizer->pairs[i];
        fy_tensor_destroy(pair->value);
        fy_tensor_destroy(pair->grad);
        fy_tensor_destroy(pair->low);
        fy_tensor_destroy(pair->parts);
        fy_tensor_destroy(pair->trust);
        for (int k = 0; k < STATES; k++) fy_tensor_destroy(pair->state[k]);
    }
    fyt_scaling_destroy(&optimizer->scaling);
    fy_tensor_destroy(optimizer->lr);
    free(optimizer->ranges.list);
    free(optimizer);
}

uint64_t fyt_optimizer_checksum(const fy_optimizer_t *optimizer) { return optimizer->checksum; }

int fyt_optimizer_scales(const fy_optimizer_t *optimizer)
{
    return optimizer->scaling.state != NULL;
}

int fyt_optimizer_updates(const fy_optimizer_t *optimizer, const fy_tensor_t *block)
{
    fy_tensor_info_t whole = { .struct_size = sizeof whole }, value = whole;
    if (fy_tensor_query(block, &whole) != FY_STATUS_OK) return 0;
    for (size_t i = 0; i < optimizer->count; i++)
        if (fy_tensor_query(optimizer->pairs[i].value, &value) == FY_STATUS_OK &&
            value.storage == whole.storage)
            return 1;
    return 0;
}

fyt_ranges_t *fyt_optimizer_ranges(fy_optimizer_t *optimizer) { return &optimizer->ranges; }

/* ---- using it ---- */

/* Results: the value, its states, the trust ratios, the step number, the copy. */
static fy_status_t step_pair(const fy_optimizer_t *optimizer, const pair_t *pair)
{
    const fy_op_t op = optimizer->row->op;
    fy_tensor_t *scaling = optimizer->scaling.state;
    fy_tensor_t *src[4] = { pair->grad, optimizer->lr, pair->parts, scaling };
    fy_tensor_t *const given[] = { pair->value, pair->state[0], pair->state[1],
                                   pair->trust, pair->state[2], pair->low };
    fy_tensor_t *dst[sizeof given / sizeof *given];
    size_t ndst = 0;
    for (size_t i = 0; i < sizeof given / sizeof *given; i++)
        if (given[i]) dst[ndst++] = given[i];
    return fy_op_call(op,
                      scaling       ? 4
                      : pair->parts ? 3
                                    : 2,
                      src, optimizer->attrs, fy_op_get(op)->attrs_nbytes, ndst, dst);
}

static fy_status_t check_all(const fy_optimizer_t *optimizer)
{
    for (size_t i = 0; i < optimizer->count; i++)
        FY_TRY(fy_check_finite(optimizer->scaling.state, optimizer->pairs[i].grad));
    return FY_STATUS_OK;
}

fy_status_t fy_optimizer_step(fy_optimizer_t *optimizer)
{
    if (!optimizer) return FYT_FAIL(INVALID_ARGUMENT, "optimizer_step: optimizer is NULL");
    fyt_scaling_t *scaling = &optimizer->scaling;
    if (scaling->state && !scaling->is_checked) FY_TRY(check_all(optimizer));
    for (size_t i = 0; i < optimizer->count; i++)
        FY_TRY(step_pair(optimizer, &optimizer->pairs[i]));
    if (scaling->state) FY_TRY(fy_update_scaling(scaling->state, &scaling->attrs));
    scaling->is_checked = 0;
    return FY_STATUS_OK;
}

fy_status_t fy_optimizer_unscale(fy_optimizer_t *optimizer)
{
    if (!optimizer) return FYT_FAIL(INVALID_ARGUMENT, "optimizer_unscale: optimizer is NULL");
    fyt_scaling_t *scaling = &optimizer->scaling;
    if (!scaling->state || scaling->is_checked) return FY_STATUS_OK;
    for (size_t i = 0; i < optimizer->count; i++)
        FY_TRY(fyt_optimizer_check_in_place("optimizer_unscale", "grads", i,
                                            optimizer->pairs[i].grad));
    FY_TRY(check_all(optimizer));
    for (size_t i = 0; i < optimizer->count; i++)
        FY_TRY(fyt_scaling_divide(scaling, optimizer->pairs[i].grad));
    FY_TRY(fy_fill(scaling->divisor, 1));
    scaling->is_checked = 1;
    return FY_STATUS_OK;
}

fy_status_t fy_optimizer_seed(fy_optimizer_t *optimizer, fy_dtype_t dtype, fy_tensor_t **out_seed)
{
    if (!optimizer || !out_seed)
        return FYT_FAIL(INVALID_ARGUMENT, "optimizer_seed: %s is NULL",
                        optimizer ? "out_seed" : "optimizer");
    *out_seed = NULL;
    if (!optimizer->scaling.state) return FY_STATUS_OK;
    FY_TRY(fyt_scaling_rearm(&optimizer->scaling));
    return fy_cast(optimizer->scaling.scale, dtype, out_seed);
}

fy_status_t fy_optimizer_query_scale(const fy_optimizer_t *optimizer, double *out_scale)
{
    if (!optimizer || !out_scale)
        return FYT_FAIL(INVALID_ARGUMENT, "optimizer_query_scale: %s is NULL",
                        optimizer ? "out_scale" : "optimizer");
    *out_scale = 1;
    return fyt_scaling_read(&optimizer->scaling, optimizer->scaling.scale, out_scale);
}

fy_status_t fy_optimizer_query_skipped(const fy_optimizer_t *optimizer, int64_t *out_skipped)
{
    if (!optimizer || !out_skipped)
        return FYT_FAIL(INVALID_ARGUMENT, "optimizer_query_skipped: %s is NULL",
                        optimizer ? "out_skipped" : "optimizer");
    double skipped = 0;
    *out_skipped = 0;
    FY_TRY(fyt_scaling_read(&optimizer->scaling, optimizer->scaling.skipped, &skipped));
    *out_skipped = (int64_t)skipped;
    return FY_STATUS_OK;
}

fy_status_t fy_optimizer_set_lr(fy_optimizer_t *optimizer, double lr)
{
    if (!optimizer) return FYT_FAIL(INVALID_ARGUMENT, "optimizer_set_lr: optimizer is NULL");
    FY_TRY(check_lr(fy_optimizer_name(optimizer->options.kind), lr));
    if (lr == optimizer->options.lr) return FY_STATUS_OK;
    FY_TRY(fy_fill(optimizer->lr, lr));
    optimizer->options.lr = lr;
    return FY_STATUS_OK;
}

fy_status_t fy_optimizer_set_momentum(fy_optimizer_t *optimizer, double momentum)
{
    if (!optimizer) return FYT_FAIL(INVALID_ARGUMENT, "optimizer_set_momentum: optimizer is NULL");
    fy_optimizer_options_t changed = optimizer->options;
    double *field = fyt_optimizer_momentum(&changed);
    if (!field)
        return FYT_FAIL(INVALID_ARGUMENT, "optimizer %s: it has no momentum",
                        fy_optimizer_name(changed.kind));
    *field = momentum;
    const row_t *row = row_of(&changed);
    if (momentum != 0 && row && row->op != optimizer->row->op)
        return FYT_FAIL(INVALID_ARGUMENT,
                        "optimizer %s: it was made with momentum 0 and has no state for %g; make "
                        "it with one above 0",
                        fy_optimizer_name(changed.kind), momentum);
    FY_TRY(check_options(&changed));
    optimizer->options = changed;
    fill_attrs(optimizer);
    return FY_STATUS_OK;
}

fy_status_t fy_optimizer_get(const fy_optimizer_t *optimizer, fy_optimizer_options_t *out_options)
{
    FY_TRY(FY__CHECK_OUT(optimizer_options, "optimizer_get", out_options));
    if (!optimizer) return FYT_FAIL(INVALID_ARGUMENT, "optimizer_get: optimizer is NULL");
    FY__WRITE(out_options, &optimizer->options);
    return FY_STATUS_OK;
}

void fy_optimizer_state(const fy_optimizer_t *optimizer, size_t index, const char **out_name,
                        fy_tensor_t **out_tensor)
{
    if (out_name) *out_name = NULL;
    if (out_tensor) *out_tensor = NULL;
    if (!optimizer) return;
    for (size_t i = 0; i < optimizer->count; i++) {
        const pair_t *pair = &optimizer->pairs[i];
        for (int k = 0; k < STATES; k++) {
            if (!pair->state[k] || index-- > 0) continue;
            if (out_name) *out_name = pair->name[k];
            if (out_tensor) *out_tensor = pair->state[k];
            return;
        }
    }
    if (!optimizer->scaling.state || index > 0) return;
    if (out_name) *out_name = "loss_scaling";
    if (out_tensor) *out_tensor = optimizer->scaling.state;
}
