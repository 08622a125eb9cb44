/* Batch norm whose statistics are those of all ranks (fy_model_sync_norms). The forward gathers
 * {n, mean, sum of squared deviations} of each rank and joins them in f64, in the order of the
 * ranks. The backward sums {sum(dy), sum(dy xhat)} over the ranks.
 * Not here: norms of one process (layer_norm.c), the calls of the ranks (dist/ddp.c). */
#include "layer.h"

#include <ferry/autocast.h>
#include <ferry/device.h>
#include <ferry/ops.h>
#include <ferry/scope.h>
#include <ferry/transfer.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Joined statistics: rows of a tensor [ROWS, channels] of the parameters' dtype. VARIANCE has the
 * divisor n, UNBIASED n - 1. */
enum { MEAN, VARIANCE, RSTD, UNBIASED, ROWS };
/* Operands of the recorded call. RESIDUAL may be missing. */
enum { X, WEIGHT, BIAS, STATISTICS, RESIDUAL, OPERANDS };

/* What the backward needs of a call. */
typedef struct norm {
    fy_norm_exchange_t exchange;
    fy_dtype_t dtype; /* of the parameters */
    int64_t channels, own;
    double all, eps; /* own, all: values a channel, of this rank and of all */
} norm_t;

typedef struct call {
    norm_t norm;
    const fy_batch_norm_attrs_t *attrs;
    fy_device_t *device;
    fy_tensor_t *const *params;
    fy_tensor_t *x, *residual;
    fy_tensor_t *y, *statistics; /* results of the forward */
} call_t;

static fy_status_t cast(fy_tensor_t *tensor, fy_dtype_t dtype, fy_tensor_t **out_cast)
{
    fy_tensor_info_t info = FY_TENSOR_INFO_INIT;
    FY_TRY(fy_tensor_query(tensor, &info));
    *out_cast = tensor;
    return info.dtype == dtype ? FY_STATUS_OK : fy_cast(tensor, dtype, out_cast);
}

/* The ops of batch norm take two values a channel or more. One value counts twice: its mean is the
 * same, and the second one has the gradient 0. */
static fy_status_t repeat(fy_tensor_t *tensor, fy_tensor_t **out_twice)
{
    return fy_concat(2, (fy_tensor_t *const[]){ tensor, tensor }, 0, out_twice);
}

static double get(const void *data, fy_dtype_t dtype, int64_t i)
{
    return dtype == FY_DTYPE_F32 ? (double)((const float *)data)[i] : ((const double *)data)[i];
}

static void put(void *data, fy_dtype_t dtype, int64_t i, double value)
{
    if (dtype == FY_DTYPE_F32)
        ((float *)data)[i] = (float)value;
    else
        ((double *)data)[i] = value;
}

/* ---- the statistics of this rank and of all ---- */

/* rows [2, channels]: mean and unbiased variance of this rank's values, as running statistics of
 * momentum 1. *out_dtype: that of the result of the norm. */
static fy_status_t measure(const call_t *call, fy_tensor_t **out_rows, fy_dtype_t *out_dtype)
{
    const fy_batch_norm_attrs_t all_new = { 1, call->norm.eps, FY_ACTIVATION_NONE };
    fy_tensor_t *x = call->x, *residual = call->residual, *mean, *variance, *y;
    fy_tensor_info_t info = FY_TENSOR_INFO_INIT;
    FY_TRY(fy_zeros(call->device, call->norm.dtype, FY_DIMS(2, call->norm.channels), out_rows));
    FY_TRY(fyt_select(*out_rows, 0, 0, &mean));
    FY_TRY(fyt_select(*out_rows, 0, 1, &variance));
    if (call->norm.own == 1) FY_TRY(repeat(x, &x));
    if (call->norm.own == 1 && residual) FY_TRY(repeat(residual, &residual));
    FY_TRY(fy_batch_norm(x, call->params[0], call->params[1], residual, mean, variance, &all_new,
                         &y, NULL, NULL));
    FY_TRY(fy_tensor_query(y, &info));
    *out_dtype = info.dtype;
    fy_tensor_destroy(y);
    return FY_STATUS_OK;
}

/* `status`: of a call that is UNSUPPORTED while this thread records a graph. */
static fy_status_t explain(const call_t *call, fy_status_t status)
{
    if (status != FY_STATUS_UNSUPPORTED) return status;
    return FYT_FAIL(UNSUPPORTED,
                    "batch norm of %d ranks: this thread records a graph, which cannot exchange "
                    "statistics with other processes\n  Run the step without a graph, or call "
                    "fy_model_sync_norms(model, NULL)",
                    call->norm.exchange.ranks);
}

static fy_status_t fetch(const call_t *call, fy_tensor_t *rows, void **out_data)
{
    fy_download_t *download;
    if (call->device != fy_device_host()) {
        FY_TRY(explain(call, fy_tensor_download(rows, NULL, &download)));
        FY_TRY(fy_download_wait(download, FY_FOREVER, &rows));
    }
    return fy_tensor_map(rows, FY_ACCESS_READ, out_data);
}

/* part: {n, mean of each channel, sum of squared deviations of each channel}. */
static fy_status_t fill_part(const call_t *call, double *part, fy_dtype_t *out_dtype)
{
    const norm_t *norm = &call->norm;
    fy_tensor_t *rows;
    void *data;
    memset(part, 0, (size_t)(1 + 2 * norm->channels) * sizeof *part);
    part[0] = (double)norm->own;
    if (norm->own == 0) return FY_STATUS_OK; /* all ranks fail behind the gather */
    FY_TRY(measure(call, &rows, out_dtype));
    FY_TRY(fetch(call, rows, &data));
    for (int64_t c = 0; c < norm->channels; c++) {
        part[1 + c] = get(data, norm->dtype, c);
        if (norm->own > 1)
            part[1 + norm->channels + c] = get(data, norm->dtype, norm->channels + c) *
                                           (part[0] - 1);
    }
    return FY_STATUS_OK;
}

static fy_status_t check_counts(norm_t *norm, const double *all)
{
    norm->all = 0;
    for (int r = 0; r < norm->exchange.ranks; r++) {
        const double n = all[r * (1 + 2 * norm->channels)];
        if (n < 1)
            return FYT_FAIL(SHAPE_MISMATCH,
                            "batch norm of %d ranks: rank %d has no samples of this batch\n  Use "
                            "batches of at least %d samples, or drop_last of fy_loader_options_t",
                            norm->exchange.ranks, r, norm->exchange.ranks);
        norm->all += n;
    }
    if (norm->all >= 2) return FY_STATUS_OK;
    return FYT_FAIL(SHAPE_MISMATCH,
                    "batch norm of %d ranks: the batch has 1 value a channel, "
                    "training needs at least 2: a larger batch",
                    norm->exchange.ranks);
}

/* Joins the ranks one after another: Chan, Golub, LeVeque, "Updating Formulae and a Pairwise
 * Algorithm for Computing Sample Variances" (1979). */
static void join(const norm_t *norm, const double *all, void *statistics)
{
    const int64_t channels = norm->channels;
    for (int64_t c = 0; c < channels; c++) {
        double n = 0, mean = 0, squares = 0;
        for (int r = 0; r < norm->exchange.ranks; r++) {
            const double *part = all + r * (1 + 2 * channels);
            const double sum = n + part[0], delta = part[1 + c] - mean;
            mean += delta * (part[0] / sum);
            squares += part[1 + channels + c] + delta * delta * (n * part[0] / sum);
            n = sum;
        }
        put(statistics, norm->dtype, MEAN * channels + c, mean);
        put(statistics, norm->dtype, VARIANCE * channels + c, squares / n);
        put(statistics, norm->dtype, RSTD * channels + c, 1 / sqrt(squares / n + norm->eps));
        put(statistics, norm->dtype, UNBIASED * channels + c, squares / (n - 1));
    }
}

/* What the ranks exchange, on the host. */
typedef struct parts {
    fy_tensor_t *own, *all, *joined;
    void *joined_data;
} parts_t;

static fy_status_t make_parts(const call_t *call, parts_t *parts, fy_dtype_t *out_dtype)
{
    const norm_t *norm = &call->norm;
    const int64_t length = 1 + 2 * norm->channels;
    fy_device_t *host = fy_device_host();
    void *data;
    FY_TRY(fy_tensor_create(host, FY_DTYPE_F64, FY_DIMS(length), &parts->own));
    FY_TRY(
        fy_tensor_create(host, FY_DTYPE_F64, FY_DIMS(norm->exchange.ranks * length), &parts->all));
    FY_TRY(fy_tensor_create(host, norm->dtype, FY_DIMS(ROWS, norm->channels), &parts->joined));
    FY_TRY(explain(call, fy_tensor_map(parts->joined, FY_ACCESS_WRITE, &parts->joined_data)));
    FY_TRY(fy_tensor_map(parts->own, FY_ACCESS_WRITE, &data));
    return fill_part(call, data, out_dtype);
}

static fy_status_t exchange(call_t *call, fy_dtype_t *out_dtype)
{
    norm_t *norm = &call->norm;
    parts_t parts;
    void *data;
    FY_TRY(make_parts(call, &parts, out_dtype));
    FY_TRY(norm->exchange.gather(norm->exchange.user, parts.all, parts.own));
    FY_TRY(fy_tensor_map(parts.all, FY_ACCESS_READ, &data));
    FY_TRY(check_counts(norm, data));
    join(norm, data, parts.joined_data);
    call->statistics = parts.joined;
    return call->device == fy_device_host()
               ? FY_STATUS_OK
               : fy_tensor_upload(parts.joined, call->device, NULL, &call->statistics);
}

/* ---- the forward ---- */

/* fy_batch_norm_inference has one dtype for all operands. */
static fy_status_t normalize(call_t *call, fy_dtype_t dtype)
{
    const fy_batch_norm_inference_attrs_t attrs = { call->norm.eps, call->attrs->activation };
    fy_tensor_t *x, *residual = call->residual, *mean, *variance;
    FY_TRY(fyt_select(call->statistics, 0, MEAN, &mean));
    FY_TRY(fyt_select(call->statistics, 0, VARIANCE, &variance));
    FY_TRY(cast(call->x, call->norm.dtype, &x));
    if (residual) FY_TRY(cast(residual, call->norm.dtype, &residual));
    FY_TRY(fy_batch_norm_inference(x, call->params[0], call->params[1], mean, variance, residual,
                                   &attrs, &call->y));
    return cast(call->y, dtype, &call->y);
}

static fy_status_t compute(call_t *call)
{
    fy_dtype_t dtype = call->norm.dtype;
    FY_TRY(fy_tape_begin(NULL)); /* until the scope ends */
    FY_TRY(exchange(call, &dtype));
    FY_TRY(fy_autocast_set(FY_DTYPE_F32));
    return normalize(call, dtype);
}

/* running = (1 - momentum) running + momentum value */
static fy_status_t move(const call_t *call, fy_tensor_t *running, int row, fy_tensor_t **out_moved)
{
    fy_tensor_t *value;
    FY_TRY(fyt_select(call->statistics, 0, row, &value));
    FY_TRY(fy_affine(running, 1 - call->attrs->momentum, 0, out_moved));
    return fy_axpy(*out_moved, call->attrs->momentum, value);
}

static fy_status_t update_running(const call_t *call)
{
    fy_tensor_t *mean, *variance;
    FY_TRY(fy_tape_begin(NULL));
    FY_TRY(fy_autocast_set(FY_DTYPE_F32));
    FY_TRY(move(call, call->params[2], MEAN, &mean));
    FY_TRY(move(call, call->params[3], UNBIASED, &variance));
    FY_TRY(fy_copy(call->params[2], mean));
    return fy_copy(call->params[3], variance);
}

/* ---- the backward ---- */

/* dx of this rank's sums becomes that of all ranks' sums. With xhat = (x - mean) rstd, the term
 * -weight rstd (sum(dy) + xhat sum(dy xhat)) / n of dx is replaced: one pass of the norm's form.
 * sums [2, channels]: {sum(dy), sum(dy xhat)} of this rank. */
static fy_status_t join_dx(const norm_t *norm, const fy_op_backward_t *call, fy_tensor_t *x,
                           fy_tensor_t *sums, fy_tensor_t *dx, fy_tensor_t **out_dx)
{
    const fy_batch_norm_inference_attrs_t attrs = { norm->eps, FY_ACTIVATION_NONE };
    const double values = norm->own == 1 ? 2 : (double)norm->own; /* as this rank's dx has it */
    fy_tensor_t *rows[ROWS], *change, *scale, *weight, *bias;
    for (int i = 0; i < ROWS; i++) FY_TRY(fyt_select(call->src[STATISTICS], 0, i, &rows[i]));
    FY_TRY(fy_affine(sums, 1 / values, 0, &change));
    FY_TRY(norm->exchange.sum(norm->exchange.user, sums));
    FY_TRY(fy_axpy(change, -1 / norm->all, sums));
    FY_TRY(fy_mul(call->src[WEIGHT], rows[RSTD], &scale));
    FY_TRY(fy_mul(change, scale, &change));
    FY_TRY(fyt_select(change, 0, 0, &bias));
    FY_TRY(fyt_select(change, 0, 1, &weight));
    return fy_batch_norm_inference(x, weight, bias, rows[MEAN], rows[VARIANCE], dx, &attrs, out_dx);
}

/* The gradients of x, weight and bias. y NULL: there was no relu, or dz is the gradient before
 * it. */
static fy_status_t back_norm(const norm_t *norm, const fy_op_backward_t *call, fy_tensor_t *dz,
                             fy_tensor_t *y, fy_tensor_t **src_grad)
{
    fy_tensor_t *x, *mean, *rstd, *zeros, *dx, *dweight, *dbias, *sums;
    FY_TRY(fyt_select(call->src[STATISTICS], 0, MEAN, &mean));
    FY_TRY(fyt_select(call->src[STATISTICS], 0, RSTD, &rstd));
    FY_TRY(cast(call->src[X], norm->dtype, &x));
    FY_TRY(cast(dz, norm->dtype, &dz));
    if (y) FY_TRY(cast(y, norm->dtype, &y));
    if (norm->own == 1) {
        FY_TRY(fy_affine(dz, 0, 0, &zeros));
        FY_TRY(fy_concat(2, (fy_tensor_t *const[]){ dz, zeros }, 0, &dz));
        FY_TRY(repeat(x, &x));
        if (y) FY_TRY(repeat(y, &y));
    }
    FY_TRY(fy_batch_norm_backward(dz, x, call->src[WEIGHT], mean, rstd, y, &dx, &dweight, &dbias));
    if (call->wanted[WEIGHT]) src_grad[WEIGHT] = dweight;
    if (call->wanted[BIAS]) src_grad[BIAS] = dbias;
    if (!call->wanted[X]) return FY_STATUS_OK; /* so it is on all ranks */
    FY_TRY(fy_stack(2, (fy_tensor_t *const[]){ dbias, dweight }, 0, &sums));
    FY_TRY(join_dx(norm, call, x, sums, dx, &src_grad[X]));
    fy_tensor_destroy(dx);
    if (norm->own == 1) FY_TRY(fy_slice(src_grad[X], 0, 0, 1, &src_grad[X]));
    return cast(src_grad[X], call->wanted[X]->dtype, &src_grad[X]);
}

static fy_status_t back(const fy_op_backward_t *call, fy_tensor_t **src_grad)
{
    fy_tensor_t *dz = call->dst_grad[0], *y = call->dst[0]; /* y NULL: no relu */
    const int wants_residual = call->nsrc > RESIDUAL && call->wanted[RESIDUAL];
    if (wants_residual && y) {
        FY_TRY(fy_relu_backward(dz, y, &dz));
        y = NULL;
    }
    if (wants_residual) FY_TRY(cast(dz, call->wanted[RESIDUAL]->dtype, &src_grad[RESIDUAL]));
    if (!call->wanted[X] && !call->wanted[WEIGHT] && !call->wanted[BIAS]) return FY_STATUS_OK;
    return back_norm(call->user, call, dz, y, src_grad);
}

/* ---- the whole ---- */

static fy_status_t attach(const call_t *call)
{
    fy_tensor_t *const inputs[OPERANDS] = { call->x, call->params[0], call->params[1],
                                            call->statistics, call->residual };
    fy_attach_options_t options = FY_ATTACH_OPTIONS_INIT;
    norm_t *norm = malloc(sizeof *norm);
    if (!norm)
        return FYT_FAIL(OUT_OF_MEMORY, "batch norm: no host memory for %zu bytes", sizeof *norm);
    *norm = call->norm;
    options.name = "batch_norm of all ranks";
    options.saved_srcs = 1u << X | 1u << WEIGHT | 1u << STATISTICS;
    options.saved_dsts = call->attrs->activation == FY_ACTIVATION_RELU;
    options.destroy = free;
    return fy_tape_attach(back, norm, call->residual ? OPERANDS : RESIDUAL, inputs, call->y,
                          &options);
}

static fy_status_t prepare(call_t *call)
{
    fy_tensor_info_t x = FY_TENSOR_INFO_INIT, weight = FY_TENSOR_INFO_INIT;
    FY_TRY(fy_tensor_query(call->x, &x));
    FY_TRY(fy_tensor_query(call->params[0], &weight));
    call->device = x.device;
    call->norm.dtype = weight.dtype;
    call->norm.channels = x.dims[x.rank - 1];
    call->norm.own = (int64_t)x.nelem / call->norm.channels;
    return FY_STATUS_OK;
}

fy_status_t fyt_batch_norm_sync(const fy_norm_exchange_t *exchange,
                                const fy_batch_norm_attrs_t *attrs, fy_tensor_t *const *params,
                                fy_tensor_t *x, fy_tensor_t *residual, fy_tensor_t **out_y)
{
    call_t call = { .norm = { .exchange = *exchange, .eps = attrs->eps },
                    .attrs = attrs,
                    .params = params,
                    .x = x,
                    .residual = residual };
    FY_TRY(prepare(&call));
    fy_scope_t scope = fy_scope_begin("sync_norm");
    fy_status_t status = compute(&call);
    fy_tensor_t *const results[2] = { call.y, call.statistics };
    fy_scope_end(scope, status == FY_STATUS_OK ? 2 : 0, results);
    FY_TRY(status);
    status = attach(&call);
    if (status == FY_STATUS_OK) {
        scope = fy_scope_begin("sync_norm");
        status = update_running(&call);
        fy_scope_end(scope, 0, NULL);
    }
    fy_tensor_destroy(call.statistics);
    if (status == FY_STATUS_OK)
        *out_y = call.y;
    else
        fy_tensor_destroy(call.y);
    return status;
}
