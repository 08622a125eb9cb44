/* Queries of a model: parameters and buffers by number and by name, sums, the printed table.
 * Not here: making and running it (model.c). */
#include "model.h"
#include "runtime/base/c_locale.h"
#include "train/abi.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- parameters ---- */

fy_status_t fy_model_param(const fy_model_t *model, size_t index, fy_param_t *out_param)
{
    if (!model) return FYT_FAIL(INVALID_ARGUMENT, "model_param: model is NULL");
    FY_TRY(FY__CHECK_OUT(param, "model_param", out_param));
    if (index >= model->nparams)
        return FYT_FAIL(INVALID_ARGUMENT, "model_param: parameter %zu of model '%s', which has %zu",
                        index, model->name, model->nparams);
    const fy_param_t param = { .struct_size = sizeof param,
                               .name = model->params[index].name,
                               .value = model->params[index].value,
                               .grad = model->grad[index] };
    FY__WRITE(out_param, &param);
    return FY_STATUS_OK;
}

fy_status_t fy_model_buffer(const fy_model_t *model, size_t index, fy_param_t *out_buffer)
{
    if (!model) return FYT_FAIL(INVALID_ARGUMENT, "model_buffer: model is NULL");
    FY_TRY(FY__CHECK_OUT(param, "model_buffer", out_buffer));
    if (index >= model->nbuffers)
        return FYT_FAIL(INVALID_ARGUMENT, "model_buffer: buffer %zu of model '%s', which has %zu",
                        index, model->name, model->nbuffers);
    const fy_param_t buffer = { .struct_size = sizeof buffer,
                                .name = model->buffers[index].name,
                                .value = model->buffers[index].value };
    FY__WRITE(out_buffer, &buffer);
    return FY_STATUS_OK;
}

enum { NAME_MAX_LENGTH = 63, LISTED = 4 };

/* Levenshtein's distance of the first NAME_MAX_LENGTH characters. */
static size_t distance(const char *a, const char *b)
{
    size_t row[NAME_MAX_LENGTH + 1];
    const size_t na = strnlen(a, NAME_MAX_LENGTH), nb = strnlen(b, NAME_MAX_LENGTH);
    for (size_t j = 0; j <= nb; j++) row[j] = j;
    for (size_t i = 1; i <= na; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= nb; j++) {
            const size_t replaced = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            row[j] = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            if (replaced < row[j]) row[j] = replaced;
        }
    }
    return row[nb];
}

/* "fc1.weight, fc1.bias": the LISTED nearest, nearest first. */
static void list_near(const fy_model_t *model, const char *name, char *text, size_t room)
{
    size_t bound = 0, used = 0, listed = 0;
    text[0] = 0;
    for (; bound <= NAME_MAX_LENGTH && listed < LISTED; bound++)
        for (size_t i = 0; i < model->nparams && listed < LISTED && used < room; i++) {
            if (distance(name, model->params[i].name) != bound) continue;
            used += (size_t)snprintf(text + used, room - used, "%s%s", listed++ ? ", " : "",
                                     model->params[i].name);
        }
}

fyt_model_param_t *fyt_model_param_named(const fy_model_t *model, const char *name)
{
    for (size_t i = 0; i < model->nparams; i++)
        if (strcmp(model->params[i].name, name) == 0) return &model->params[i];
    return NULL;
}

fy_status_t fy_model_find_param(const fy_model_t *model, const char *name, fy_param_t *out_param)
{
    char near[320];
    if (!model || !name)
        return FYT_FAIL(INVALID_ARGUMENT, "model_find_param: model or name is NULL");
    const fyt_model_param_t *param = fyt_model_param_named(model, name);
    if (param) return fy_model_param(model, (size_t)(param - model->params), out_param);
    for (size_t i = 0; i < model->nbuffers; i++)
        if (strcmp(model->buffers[i].name, name) == 0) return fy_model_buffer(model, i, out_param);
    list_near(model, name, near, sizeof near);
    return FYT_FAIL(INVALID_ARGUMENT, "model '%s' has no parameter '%s'; it has %zu, near that: %s",
                    model->name, name, model->nparams, *near ? near : "none");
}

/* ---- sums ---- */

static uint64_t count_elements(size_t count, const fyt_model_param_t *params)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < count; i++) sum += params[i].nelem;
    return sum;
}

static uint64_t count_dropped(const fy_model_t *model)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < model->nleaves; i++)
        /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): a model with leaves has a list */
        sum += (uint64_t)model->leaves[i].layer->dropped_bias;
    return sum;
}

static uint64_t count_macs(const fy_model_t *model)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < model->nleaves; i++) sum += model->leaves[i].macs;
    return sum;
}

fy_status_t fy_model_query(const fy_model_t *model, fy_model_info_t *out_info)
{
    if (!model) return FYT_FAIL(INVALID_ARGUMENT, "model_query: model is NULL");
    FY_TRY(FY__CHECK_OUT(model_info, "model_query", out_info));
    const fyt_leaf_t *last = model->output == FYT_MODEL_INPUT ? NULL
                                                              : &model->leaves[model->output];
    fy_model_info_t info = { .struct_size = sizeof info,
                             .name = model->name,
                             .device = model->device,
                             .values = model->values,
                             .grads = model->grads,
                             .rng = model->rng,
                             .params = count_elements(model->nparams, model->params),
                             .nparams = model->nparams,
                             .macs = count_macs(model),
                             .out_rank = last ? last->rank : model->rank,
                             .is_training = model->is_training,
                             .buffers = model->buffer_values,
                             .nbuffers = model->nbuffers,
                             .dropped_params = count_dropped(model) };
    info.nbytes = info.params * fy_dtype_size(model->dtype);
    info.buffers_nbytes = count_elements(model->nbuffers, model->buffers) *
                          fy_dtype_size(model->dtype);
    memcpy(info.out_dims, last ? last->dims : model->dims, sizeof info.out_dims);
    FY__WRITE(out_info, &info);
    return FY_STATUS_OK;
}

/* ---- the table ---- */

typedef struct writer {
    char *text;
    size_t size, length; /* length: of the whole text, whether it fits or not */
} writer_t;

__attribute__((format(printf, 2, 3))) static void put(writer_t *out, const char *format, ...)
{
    va_list args;
    const size_t used = out->length < out->size ? out->length : out->size;
    va_start(args, format);
    const int n =
        fy__vsnprintf(out->size ? out->text + used : NULL, out->size - used, format, args);
    va_end(args);
    if (n > 0) out->length += (size_t)n;
}

enum { NAME_WIDTH = 16 }; /* or that of the longest name */

static int name_width(const fy_model_t *model)
{
    size_t width = NAME_WIDTH;
    for (size_t i = 0; i < model->nleaves; i++)
        if (strlen(model->leaves[i].name) > width) width = strlen(model->leaves[i].name);
    return (int)width;
}

static void put_row(writer_t *out, int width, const char *name, const char *type, const char *shape,
                    uint64_t params, uint64_t macs, uint64_t nbytes)
{
    put(out, "%-*s  %-16s  %-20s  %12llu  %14llu  %14llu\n", width, name, type, shape,
        (unsigned long long)params, (unsigned long long)macs, (unsigned long long)nbytes);
}

size_t fy_model_describe(const fy_model_t *model, char *text, size_t size)
{
    writer_t out = { text, text ? size : 0, 0 };
    char shape[FYT_SHAPE_TEXT];
    if (out.size) text[0] = 0;
    if (!model) return 0;
    const size_t element = fy_dtype_size(model->dtype);
    const int width = name_width(model);
    put(&out, "%-*s  %-16s  %-20s  %12s  %14s  %14s\n", width, "layer", "type", "output",
        "parameters", "MACs/sample", "bytes");
    for (size_t i = 0; i < model->nleaves; i++) {
        const fyt_leaf_t *leaf = &model->leaves[i];
        int64_t dims[FY_MAX_RANK] = { 0 };
        uint64_t nelem;
        memcpy(dims + 1, leaf->dims, (size_t)leaf->rank * sizeof *dims);
        nelem = count_elements(leaf->layer->def.nparams, model->params + leaf->first_param);
        put_row(&out, width, leaf->name, leaf->layer->def.type,
                fyt_shape_text(shape, leaf->rank + 1, dims), nelem, leaf->macs, nelem * element);
    }
    const uint64_t buffers = count_elements(model->nbuffers, model->buffers);
    if (model->nbuffers) put_row(&out, width, "", "buffers", "", buffers, 0, buffers * element);
    const uint64_t params = count_elements(model->nparams, model->params);
    put_row(&out, width, "all", model->name, fy_dtype_name(model->dtype), params, count_macs(model),
            params * element);
    const uint64_t dropped = count_dropped(model);
    if (dropped)
        put(&out, "%llu parameters of biases are dropped: a batch norm follows them\n",
            (unsigned long long)dropped);
    return out.length;
}
