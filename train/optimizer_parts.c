/* Factors of learning rate and weight decay for each parameter of an optimizer, and the tensor of
 * its trust ratios. The factors are constants on the device, so that a step stays one request.
 * Not here: the steps (optimizer.c), what the ops do with parts (ferry/ops.h). */
#include "train/optimizer_parts.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ferry/device.h>
#include <ferry/tensor.h>
#include <ferry/transfer.h>

#include "train/fail.h"
#include "train/model.h"
#include "train/optimizer.h"

/* RUNS: of a trust ratio's sums: a CUDA block each, a host thread each */
enum { COLUMNS = 3, RUNS = 64 };

fy_status_t fyt_parts_check(const fy_optimizer_options_t *options)
{
    const char *kind = fy_optimizer_name(options->kind);
    if (options->decay_min_rank < 0 || options->decay_min_rank > FY_MAX_RANK)
        return FYT_FAIL(INVALID_ARGUMENT,
                        "optimizer %s: decay_min_rank is %lld; it must be 0 to %d", kind,
                        (long long)options->decay_min_rank, FY_MAX_RANK);
    if (options->ngroups > 0 && !options->groups)
        return FYT_FAIL(INVALID_ARGUMENT, "optimizer %s: groups is NULL, ngroups %zu", kind,
                        options->ngroups);
    for (size_t i = 0; i < options->ngroups; i++) {
        const fy_optimizer_group_t *group = &options->groups[i];
        const bool holds = group->lr_scale >= 0 && isfinite(group->lr_scale) &&
                           group->weight_decay_scale >= 0 && isfinite(group->weight_decay_scale);
        if (!group->prefix || !holds)
            return FYT_FAIL(INVALID_ARGUMENT,
                            "optimizer %s: group %zu, '%s', has lr_scale %g and "
                            "weight_decay_scale %g; both must be finite, 0 or more, and prefix "
                            "not NULL",
                            kind, i, group->prefix ? group->prefix : "(NULL)", group->lr_scale,
                            group->weight_decay_scale);
    }
    return FY_STATUS_OK;
}

/* FNV-1a (Fowler, Noll, Vo), 64 bits. */
static uint64_t mix(uint64_t hash, unsigned char byte)
{
    return (hash ^ byte) * UINT64_C(0x100000001b3);
}

static uint64_t mix_number(uint64_t hash, double number)
{
    uint64_t bits;
    memcpy(&bits, &number, sizeof bits);
    for (int shift = 0; shift < 64; shift += 8) hash = mix(hash, (unsigned char)(bits >> shift));
    return hash;
}

uint64_t fyt_parts_checksum(const fy_optimizer_options_t *options,
                            const fy_loss_scaling_options_t *scaling)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < options->ngroups; i++) {
        const fy_optimizer_group_t *group = &options->groups[i];
        const char *c = group->prefix;
        do hash = mix(hash, (unsigned char)*c); /* with the zero behind it */
        while (*c++);
        hash = mix_number(hash, group->lr_scale);
        hash = mix_number(hash, group->weight_decay_scale);
    }
    if (!options->loss_scaling) return hash;
    hash = mix_number(hash, scaling->init_scale);
    hash = mix_number(hash, scaling->growth_factor);
    hash = mix_number(hash, scaling->backoff_factor);
    return mix_number(hash, (double)scaling->growth_interval);
}

/* The first group that fits a parameter of this name; ngroups: none. */
static size_t group_of(const fy_optimizer_options_t *options, const char *name)
{
    size_t i = 0;
    while (i < options->ngroups &&
           strncmp(name, options->groups[i].prefix, strlen(options->groups[i].prefix)) != 0)
        i++;
    return i;
}

fy_status_t fyt_parts_check_groups(const fy_optimizer_options_t *options, size_t count,
                                   fy_tensor_t *const *values, const fy_model_t *model)
{
    for (size_t i = 0; i < options->ngroups; i++) {
        char names[160] = "";
        size_t used = 0, n = model ? model->nparams : count;
        bool fits = false;
        for (size_t k = 0; k < n && !fits; k++) {
            fy_tensor_info_t info = FY_TENSOR_INFO_INIT;
            if (!model) FY_TRY(fy_tensor_query(values[k], &info));
            const char *name = model ? model->params[k].name : info.name;
            fits = group_of(options, name) == i;
            if (used < sizeof names)
                used += (size_t)snprintf(names + used, sizeof names - used, " '%s'", name);
        }
        if (!fits)
            return FYT_FAIL(INVALID_ARGUMENT,
                            "optimizer %s: group %zu, '%s', counts for none of the %zu parameters: "
                            "no name begins so, or an earlier group fits too\n  Names:%s%s",
                            fy_optimizer_name(options->kind), i, options->groups[i].prefix, n,
                            names, used < sizeof names ? "" : " ...");
    }
    return FY_STATUS_OK;
}

/* row: first element, factor of lr, factor of weight decay. 1: a factor is not 1. */
static bool fill_row(const fy_optimizer_options_t *options, const char *name, int rank,
                     uint64_t first, double row[COLUMNS])
{
    const size_t i = group_of(options, name);
    row[0] = (double)first;
    row[1] = i < options->ngroups ? options->groups[i].lr_scale : 1;
    row[2] = i < options->ngroups ? options->groups[i].weight_decay_scale : 1;
    if (rank < options->decay_min_rank) row[2] = 0;
    return row[1] != 1 || row[2] != 1;
}

/* `value` is the model's block or a slice of it; *out_nrows: parameters with elements in it. */
static fy_status_t fill_rows(const fy_optimizer_options_t *options, const fy_tensor_t *value,
                             const fy_model_t *model, double *rows, size_t *out_nrows,
                             bool *out_differs)
{
    fy_tensor_info_t info = FY_TENSOR_INFO_INIT, block = FY_TENSOR_INFO_INIT;
    FY_TRY(fy_tensor_query(value, &info));
    *out_differs = false;
    *out_nrows = 1;
    if (!model) {
        *out_differs = fill_row(options, info.name, info.rank, 0, rows);
        return FY_STATUS_OK;
    }
    FY_TRY(fy_tensor_query(model->values, &block));
    const uint64_t begin = (info.offset_nbytes - block.offset_nbytes) / fy_dtype_size(info.dtype),
                   end = begin + info.nelem;
    *out_nrows = 0;
    for (size_t i = 0; i < model->nparams; i++) {
        const fyt_model_param_t *param = &model->params[i];
        if (param->offset + param->nelem <= begin || param->offset >= end) continue;
        const uint64_t first = param->offset > begin ? param->offset - begin : 0;
        FY_TRY(fy_tensor_query(param->value, &info));
        if (fill_row(options, param->name, info.rank, *out_nrows ? first : 0,
                     &rows[COLUMNS * *out_nrows]))
            *out_differs = true;
        ++*out_nrows;
    }
    return FY_STATUS_OK;
}

/* The upload copies `rows` before it returns. */
static fy_status_t upload(double *rows, size_t nrows, fy_device_t *device, fy_tensor_t **out_parts)
{
    fy_transfer_options_t options = FY_TRANSFER_OPTIONS_INIT;
    fy_tensor_t *host;
    options.site = "fy_optimizer";
    FY_TRY(fy_tensor_wrap(fy_device_host(), FY_DTYPE_F64, 2,
                          (const int64_t[]){ (int64_t)nrows, COLUMNS }, rows, NULL, NULL, &host));
    const fy_status_t status = fy_tensor_upload(host, device, &options, out_parts);
    fy_tensor_destroy(host);
    FY_TRY(status);
    fy_tensor_keep(*out_parts);
    fy_tensor_set_name(*out_parts, "parts");
    return FY_STATUS_OK;
}

static fy_status_t make_trust(size_t nrows, fy_device_t *device, fy_tensor_t **out_trust)
{
    FY_TRY(fy_zeros(device, FY_DTYPE_F64, 2, (const int64_t[]){ (int64_t)nrows, 1 + 2 * RUNS },
                    out_trust));
    fy_tensor_keep(*out_trust);
    fy_tensor_set_name(*out_trust, "trust");
    return FY_STATUS_OK;
}

fy_status_t fyt_parts_make(const fy_optimizer_options_t *options, const fy_tensor_t *value,
                           const fy_model_t *model, fy_tensor_t **out_parts,
                           fy_tensor_t **out_trust)
{
    const bool has_trust = fyt_optimizer_has_trust(options->kind);
    size_t nrows = model ? model->nparams : 1;
    fy_tensor_info_t info = FY_TENSOR_INFO_INIT;
    bool differs;
    if (nrows == 0) return FY_STATUS_OK;
    FY_TRY(fy_tensor_query(value, &info));
    double *rows = calloc(nrows, COLUMNS * sizeof *rows);
    if (!rows) return FYT_FAIL(OUT_OF_MEMORY, "optimizer: no host memory for %zu parts", nrows);
    fy_status_t status = fill_rows(options, value, model, rows, &nrows, &differs);
    if (status == FY_STATUS_OK && (differs || (has_trust && nrows > 1)))
        status = upload(rows, nrows, info.device, out_parts);
    if (status == FY_STATUS_OK && has_trust) status = make_trust(nrows, info.device, out_trust);
    free(rows);
    return status;
}
