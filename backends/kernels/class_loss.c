/* nll_loss, cross_entropy and their gradients: one class a row. A row's loss is computed in f64
 * from a maximum and a sum of exponentials in the compute type. Losses add up in a fixed number of
 * pieces that are joined in order, so the bits do not depend on the thread count.
 * A class outside the row is clamped and raises *launch->fault. Not here: softmax itself
 * (softmax.c). */
#include <math.h>

#include "backends/kernels/rows.h"

enum { PIECES = 32, SERIAL = 12288 }; /* SERIAL: exponentials that one thread does in about 20 us */

typedef struct class_loss {
    const fy__loops_t *loops;
    const fy_launch_t *launch;
    /* scores: log_probs or logits; NULL if only the targets matter */
    const fy_desc_t *scores, *targets;
    int32_t dtype, compute;
    int shift, is_fused; /* is_fused: cross_entropy, so scores are logits */
    int64_t rows, classes;
    int32_t reduction;
} class_loss_t;

static class_loss_t begin(const fy__loops_t *loops, const fy_launch_t *launch,
                          const fy_desc_t *scores, const fy_desc_t *targets)
{
    class_loss_t loss = { .loops = loops,
                          .launch = launch,
                          .scores = scores,
                          .targets = targets,
                          .dtype = launch->src[0].dtype };
    loss.compute = fy__compute_dtype(loss.dtype);
    loss.shift = fy__log2_size(loss.dtype);
    loss.is_fused = launch->op == FY_OP_CROSS_ENTROPY || launch->op == FY_OP_CROSS_ENTROPY_BACKWARD;
    loss.rows = targets->dims[0];
    loss.reduction = *(const int32_t *)launch->attrs; /* the first field of both structs */
    return loss;
}

static int64_t target_of(const class_loss_t *loss, int64_t row)
{
    const int64_t at = row * loss->targets->strides[0], last = loss->classes - 1;
    const int64_t asked = loss->targets->dtype == FY_DTYPE_I32
                              ? ((const int32_t *)loss->targets->data)[at]
                              : ((const int64_t *)loss->targets->data)[at];
    if (asked >= 0 && asked <= last) return asked;
    /* several threads may */
    if (loss->launch->fault) __atomic_store_n(loss->launch->fault, 1, __ATOMIC_RELAXED);
    return asked < 0 ? 0 : last;
}

static const char *element(const fy_desc_t *desc, int shift, int64_t row, int64_t column)
{
    return (const char *)desc->data +
           (row * desc->strides[0] + column * desc->strides[1]) * ((int64_t)1 << shift);
}

static void load(const class_loss_t *loss, int64_t row, int64_t first, int64_t m, void *block)
{
    fy__stage_in(loss->loops, m, block, loss->compute,
                 element(loss->scores, loss->shift, row, first), loss->scores->strides[1],
                 loss->dtype);
}

/* X(suffix, type): a row's maximum, and the sum of exponentials that are relative to it; `powers`
 * has them if they are one block. */
#define EXPONENTIALS(sfx, T)                                                                       \
    static double exponentials_##sfx(const class_loss_t *loss, int64_t row, T *out_max, T *powers) \
    {                                                                                              \
        const int64_t n = loss->classes;                                                           \
        _Alignas(64) T block[FY__BLOCK];                                                           \
        T max = -(T)INFINITY;                                                                      \
        double sum = 0;                                                                            \
        for (int64_t i = 0; i < n; i += FY__BLOCK) {                                               \
            const int64_t m = n - i < FY__BLOCK ? n - i : FY__BLOCK;                               \
            load(loss, row, i, m, block);                                                          \
            loss->loops->max_row[loss->compute](m, &max, block);                                   \
        }                                                                                          \
        for (int64_t i = 0; i < n; i += FY__BLOCK) {                                               \
            const int64_t m = n - i < FY__BLOCK ? n - i : FY__BLOCK;                               \
            if (n > FY__BLOCK) load(loss, row, i, m, block);                                       \
            sum += loss->loops->exp_row_##sfx(m, powers, block, max);                              \
        }                                                                                          \
        *out_max = max;                                                                            \
        return sum;                                                                                \
    }
EXPONENTIALS(f32, float)
EXPONENTIALS(f64, double)

/* ---- forward ---- */

static double loss_of(const class_loss_t *loss, int64_t row)
{
    const int64_t target = target_of(loss, row);
    double score;
    fy__stage_in(loss->loops, 1, &score, FY_DTYPE_F64,
                 element(loss->scores, loss->shift, row, target), 1, loss->dtype);
    if (!loss->is_fused) return -score;
    if (loss->compute == FY_DTYPE_F64) {
        _Alignas(64) double powers[FY__BLOCK], max;
        const double sum = exponentials_f64(loss, row, &max, powers);
        return log(sum) + max - score;
    }
    _Alignas(64) float powers[FY__BLOCK], max;
    const double sum = exponentials_f32(loss, row, &max, powers);
    return log(sum) + (double)max - score;
}

static void put_loss(const void *context, int64_t row)
{
    const class_loss_t *loss = (const class_loss_t *)context;
    const fy_desc_t *dst = loss->launch->dst; /* f64 where cuda's partial results are computed */
    const double value = loss_of(loss, row);
    fy__stage_out(loss->loops, 1,
                  (char *)dst->data +
                      row * dst->strides[0] * ((int64_t)1 << fy__log2_size(dst->dtype)),
                  1, dst->dtype, &value, FY_DTYPE_F64);
}

typedef struct pieces {
    const class_loss_t *loss;
    double *sums;
} pieces_t;

static void add_piece(const void *context, int64_t p)
{
    const pieces_t *pieces = (const pieces_t *)context;
    const int64_t n = pieces->loss->rows, piece = (n + PIECES - 1) / PIECES;
    const int64_t begin = p * piece < n ? p * piece : n,
                  end = begin + piece < n ? begin + piece : n;
    for (int64_t row = begin; row < end; row++) pieces->sums[p] += loss_of(pieces->loss, row);
}

fy_status_t fy__run_class_loss(const fy_host_api_t *host, const fy__loops_t *loops,
                               const fy_launch_t *launch)
{
    class_loss_t loss = begin(loops, launch, &launch->src[0], &launch->src[1]);
    double sums[PIECES] = { 0 }, total = 0;
    (void)host;
    loss.classes = loss.scores->dims[1];
    const int threads =
        fy__threads_for(loss.is_fused ? loss.rows * loss.classes : loss.rows, SERIAL);
    if (loss.reduction == FY_REDUCTION_NONE) {
        fy__for_each(loss.rows, threads, put_loss, &loss);
        return FY_STATUS_OK;
    }
    const pieces_t pieces = { &loss, sums };
    fy__for_each(PIECES, threads, add_piece, &pieces);
    for (int p = 0; p < PIECES; p++) total += sums[p];
    if (loss.reduction == FY_REDUCTION_MEAN) total /= (double)loss.rows;
    fy__stage_out(loops, 1, launch->dst->data, 1, launch->dst->dtype, &total, FY_DTYPE_F64);
    return FY_STATUS_OK;
}

/* ---- gradients ---- */

/* What every element of the row's gradient is a multiple of. */
static double gradient_of(const class_loss_t *loss, int64_t row)
{
    const fy_desc_t *dy = &loss->launch->src[0];
    const int64_t at = loss->reduction == FY_REDUCTION_NONE ? row * dy->strides[0] : 0;
    double g;
    fy__stage_in(loss->loops, 1, &g, FY_DTYPE_F64,
                 (const char *)dy->data + at * ((int64_t)1 << loss->shift), 1, loss->dtype);
    return loss->reduction == FY_REDUCTION_MEAN ? g / (double)loss->rows : g;
}

/* X(suffix, type): writes m elements of the gradient, or adds them to the previous values. */
#define GRADIENT_ROW(sfx, T)                                                                    \
    static void put_##sfx(const class_loss_t *loss, int64_t row, int64_t first, int64_t m,      \
                          T *block)                                                             \
    {                                                                                           \
        const fy_desc_t *dst = loss->launch->dst;                                               \
        char *at = (char *)(uintptr_t)element(dst, loss->shift, row, first);                    \
        _Alignas(64) T old[FY__BLOCK];                                                          \
        if (loss->launch->accumulate & 1u) {                                                    \
            fy__stage_in(loss->loops, m, old, loss->compute, at, dst->strides[1], loss->dtype); \
            for (int64_t j = 0; j < m; j++) block[j] += old[j];                                 \
        }                                                                                       \
        fy__stage_out(loss->loops, m, at, dst->strides[1], loss->dtype, block, loss->compute);  \
    }                                                                                           \
    static void gradient_row_##sfx(const class_loss_t *loss, int64_t row)                       \
    {                                                                                           \
        const int64_t n = loss->classes, target = target_of(loss, row);                         \
        const T g = (T)gradient_of(loss, row);                                                  \
        _Alignas(64) T block[FY__BLOCK], powers[FY__BLOCK] = { 0 };                             \
        T max = 0;                                                                              \
        const double sum = loss->is_fused ? exponentials_##sfx(loss, row, &max, powers) : 1;    \
        const T scale = loss->is_fused ? (T)((double)g / sum) : (T)0;                           \
        for (int64_t i = 0; i < n; i += FY__BLOCK) {                                            \
            const int64_t m = n - i < FY__BLOCK ? n - i : FY__BLOCK;                            \
            if (loss->is_fused && n > FY__BLOCK) {                                              \
                load(loss, row, i, m, block);                                                   \
                (void)loss->loops->exp_row_##sfx(m, powers, block, max);                        \
            }                                                                                   \
            for (int64_t j = 0; j < m; j++) block[j] = powers[j] * scale;                       \
            if (target >= i && target < i + m) block[target - i] -= g;                          \
            put_##sfx(loss, row, i, m, block);                                                  \
        }                                                                                       \
    }
GRADIENT_ROW(f32, float)
GRADIENT_ROW(f64, double)

static void put_gradient(const void *context, int64_t row)
{
    const class_loss_t *loss = (const class_loss_t *)context;
    if (loss->compute == FY_DTYPE_F64)
        gradient_row_f64(loss, row);
    else
        gradient_row_f32(loss, row);
}

fy_status_t fy__run_class_loss_backward(const fy_host_api_t *host, const fy__loops_t *loops,
                                        const fy_launch_t *launch)
{
    const int is_fused = launch->op == FY_OP_CROSS_ENTROPY_BACKWARD;
    class_loss_t loss =
        begin(loops, launch, is_fused ? &launch->src[1] : NULL, &launch->src[is_fused ? 2 : 1]);
    (void)host;
    loss.classes = launch->dst->dims[1];
    fy__for_each(loss.rows, fy__threads_for(loss.rows * loss.classes, SERIAL), put_gradient, &loss);
    return FY_STATUS_OK;
}
