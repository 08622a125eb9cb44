/* nll_loss, cross_entropy and their gradients: one class a row (the last axis). A row's loss is
 * computed in f64 from a maximum and a sum of exponentials in the compute type. Losses add up in a
 * fixed number of pieces that are joined in order, so the bits do not depend on the thread count.
 * A class outside the row is clamped and raises *launch->fault; ignore_index is no class. Not here:
 * softmax itself (softmax.c). */
#include <math.h>

#include "backends/kernels/rows.h"

enum { PIECES = 32, SERIAL = 12288 }; /* SERIAL: exponentials that one thread does in about 20 us */

/* Operands of the walk over rows. */
enum { TARGETS, SCORES, DST, DY };

typedef struct class_loss {
    const fy__loops_t *loops;
    const fy_launch_t *launch;
    /* scores: log_probs or logits; NULL if only the targets matter. weight: NULL if all are 1 */
    const fy_desc_t *scores, *targets, *weight;
    fy__index_t leads; /* the axes but the last, whose elements are the rows */
    int32_t dtype, compute;
    int shift, is_fused; /* is_fused: cross_entropy, so scores are logits */
    int64_t rows, classes;
    int32_t reduction, ignored;
    double smoothing, all_weights; /* the sum of the class weights, if labels are smoothed */
    double divisor;                /* of a mean's gradient: the weights of the rows that count */
} class_loss_t;

/* Element `at` of the class weights. */
static double weight_at(const class_loss_t *loss, int64_t at)
{
    double weight = 1;
    if (loss->weight)
        fy__stage_in(loss->loops, 1, &weight, FY_DTYPE_F64,
                     (const char *)loss->weight->data +
                         at * loss->weight->strides[0] * ((int64_t)1 << loss->shift),
                     1, loss->dtype);
    return weight;
}

/* Weights are the source behind the targets. dst, dy: NULL if they have no value a row. */
static class_loss_t begin(const fy__loops_t *loops, const fy_launch_t *launch, int scores,
                          int targets, const fy_desc_t *dst, const fy_desc_t *dy)
{
    class_loss_t loss = { .loops = loops,
                          .launch = launch,
                          .scores = scores < 0 ? NULL : &launch->src[scores],
                          .targets = &launch->src[targets],
                          .weight = launch->nsrc > targets + 1 ? &launch->src[targets + 1] : NULL,
                          .dtype = launch->src[0].dtype,
                          .rows = 1 };
    const fy_desc_t *each[] = { loss.targets, loss.scores ? loss.scores : loss.targets,
                                dst ? dst : loss.targets, dy ? dy : loss.targets };
    const int64_t *strides[] = { each[TARGETS]->strides, each[SCORES]->strides, each[DST]->strides,
                                 each[DY]->strides };
    loss.compute = fy__compute_dtype(loss.dtype);
    loss.shift = fy__log2_size(loss.dtype);
    loss.is_fused = launch->op == FY_OP_CROSS_ENTROPY || launch->op == FY_OP_CROSS_ENTROPY_BACKWARD;
    for (int axis = 0; axis < loss.targets->rank; axis++) loss.rows *= loss.targets->dims[axis];
    fy__index_make(&loss.leads, loss.targets->rank, loss.targets->dims, 4, strides);
    if (launch->op == FY_OP_NLL_LOSS_BACKWARD) {
        const fy_class_loss_backward_attrs_t *attrs = launch->attrs;
        loss.reduction = attrs->reduction;
        loss.ignored = attrs->ignore_index;
        loss.classes = attrs->classes;
    } else {
        const fy_class_loss_attrs_t *attrs = launch->attrs;
        loss.reduction = attrs->reduction;
        loss.ignored = attrs->ignore_index;
        loss.smoothing = attrs->label_smoothing;
        loss.classes = loss.scores->dims[loss.scores->rank - 1];
    }
    loss.all_weights = (double)loss.classes;
    if (loss.weight && loss.smoothing != 0) {
        loss.all_weights = 0;
        for (int64_t i = 0; i < loss.classes; i++) loss.all_weights += weight_at(&loss, i);
    }
    return loss;
}

static int64_t row_of(const class_loss_t *loss, int operand, int64_t row)
{
    return fy__offset_of(row, loss->leads.rank, loss->leads.dims, loss->leads.strides[operand]);
}

/* The row's class; -1: the row does not count. */
static int64_t target_of(const class_loss_t *loss, int64_t row)
{
    const int64_t at = row_of(loss, TARGETS, row), last = loss->classes - 1;
    const int64_t asked = loss->targets->dtype == FY_DTYPE_I32
                              ? ((const int32_t *)loss->targets->data)[at]
                              : ((const int64_t *)loss->targets->data)[at];
    if (asked == loss->ignored) return -1;
    if (asked >= 0 && asked <= last) return asked;
    /* several threads may */
    if (loss->launch->fault) __atomic_store_n(loss->launch->fault, 1, __ATOMIC_RELAXED);
    return asked < 0 ? 0 : last;
}

/* The address of an element of row `row` of `desc`, which is operand `operand` of the walk. */
static const char *element(const class_loss_t *loss, const fy_desc_t *desc, int operand,
                           int64_t row, int64_t column)
{
    return (const char *)desc->data +
           (row_of(loss, operand, row) + column * desc->strides[desc->rank - 1]) *
               ((int64_t)1 << loss->shift);
}

static void load(const class_loss_t *loss, int64_t row, int64_t first, int64_t m, void *block)
{
    fy__stage_in(loss->loops, m, block, loss->compute,
                 element(loss, loss->scores, SCORES, row, first),
                 loss->scores->strides[loss->scores->rank - 1], loss->dtype);
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

/* X(suffix, type): log(sum(exp(x))) of a row; *out_all gets the sum of weight (x - max). */
#define LOG_SUM(sfx, T)                                                                     \
    static double log_sum_##sfx(const class_loss_t *loss, int64_t row, double *out_all)     \
    {                                                                                       \
        _Alignas(64) T powers[FY__BLOCK], max;                                              \
        const double sum = exponentials_##sfx(loss, row, &max, powers);                     \
        if (loss->smoothing != 0) {                                                         \
            for (int64_t i = 0; i < loss->classes; i += FY__BLOCK) {                        \
                const int64_t n = loss->classes - i, m = n < FY__BLOCK ? n : FY__BLOCK;     \
                load(loss, row, i, m, powers);                                              \
                for (int64_t j = 0; j < m; j++)                                             \
                    *out_all += weight_at(loss, i + j) * ((double)powers[j] - (double)max); \
            }                                                                               \
            *out_all = loss->all_weights * log(sum) - *out_all;                             \
        }                                                                                   \
        return log(sum) + (double)max;                                                      \
    }
LOG_SUM(f32, float)
LOG_SUM(f64, double)

/* *out_weight: of the target's class; 0 if the row does not count. */
static double loss_of(const class_loss_t *loss, int64_t row, double *out_weight)
{
    const int64_t target = target_of(loss, row);
    double score, value, all = 0;
    *out_weight = 0;
    if (target < 0) return 0;
    *out_weight = weight_at(loss, target);
    fy__stage_in(loss->loops, 1, &score, FY_DTYPE_F64,
                 element(loss, loss->scores, SCORES, row, target), 1, loss->dtype);
    if (!loss->is_fused)
        value = -score;
    else if (loss->compute == FY_DTYPE_F64)
        value = log_sum_f64(loss, row, &all) - score;
    else
        value = log_sum_f32(loss, row, &all) - score;
    value *= *out_weight;
    if (loss->smoothing == 0) return value;
    return (1 - loss->smoothing) * value + loss->smoothing / (double)loss->classes * all;
}

static void put_loss(const void *context, int64_t row)
{
    const class_loss_t *loss = (const class_loss_t *)context;
    const fy_desc_t *dst = loss->launch->dst;
    double weight;
    const double value = loss_of(loss, row, &weight);
    fy__stage_out(loss->loops, 1,
                  (char *)dst->data +
                      row_of(loss, DST, row) * ((int64_t)1 << fy__log2_size(dst->dtype)),
                  1, dst->dtype, &value, FY_DTYPE_F64);
}

typedef struct pieces {
    const class_loss_t *loss;
    double *sums, *weights;
} pieces_t;

static void add_piece(const void *context, int64_t p)
{
    const pieces_t *pieces = (const pieces_t *)context;
    const int64_t n = pieces->loss->rows, piece = (n + PIECES - 1) / PIECES;
    const int64_t begin = p * piece < n ? p * piece : n,
                  end = begin + piece < n ? begin + piece : n;
    for (int64_t row = begin; row < end; row++) {
        double weight;
        pieces->sums[p] += loss_of(pieces->loss, row, &weight);
        pieces->weights[p] += weight;
    }
}

fy_status_t fy__run_class_loss(const fy_host_api_t *host, const fy__loops_t *loops,
                               const fy_launch_t *launch)
{
    const int32_t reduction = ((const fy_class_loss_attrs_t *)launch->attrs)->reduction;
    const class_loss_t loss =
        begin(loops, launch, 0, 1, reduction == FY_REDUCTION_NONE ? launch->dst : NULL, NULL);
    double sums[PIECES] = { 0 }, weights[PIECES] = { 0 }, total = 0, divisor = 0;
    (void)host;
    const int threads =
        fy__threads_for(loss.is_fused ? loss.rows * loss.classes : loss.rows, SERIAL);
    if (loss.reduction == FY_REDUCTION_NONE) {
        fy__for_each(loss.rows, threads, put_loss, &loss);
        return FY_STATUS_OK;
    }
    const pieces_t pieces = { &loss, sums, weights };
    fy__for_each(PIECES, threads, add_piece, &pieces);
    for (int p = 0; p < PIECES; p++) {
        total += sums[p];
        divisor += weights[p];
    }
    if (loss.reduction == FY_REDUCTION_MEAN) total /= divisor;
    fy__stage_out(loops, 1, launch->dst->data, 1, launch->dst->dtype, &total, FY_DTYPE_F64);
    return FY_STATUS_OK;
}

/* ---- gradients ---- */

/* The sum of the weights of the rows that count, by which a mean divides. */
static double divisor_of(const class_loss_t *loss)
{
    double divisor = 0;
    for (int64_t row = 0; row < loss->rows; row++) {
        const int64_t target = target_of(loss, row);
        if (target >= 0) divisor += weight_at(loss, target);
    }
    return divisor;
}

/* The gradient of the row's loss. */
static double gradient_of(const class_loss_t *loss, int64_t row)
{
    const fy_desc_t *dy = &loss->launch->src[0];
    const int64_t at = loss->reduction == FY_REDUCTION_NONE ? row_of(loss, DY, row) : 0;
    double g;
    fy__stage_in(loss->loops, 1, &g, FY_DTYPE_F64,
                 (const char *)dy->data + at * ((int64_t)1 << loss->shift), 1, loss->dtype);
    return loss->reduction == FY_REDUCTION_MEAN ? g / loss->divisor : g;
}

/* X(suffix, type): writes m elements of the gradient, or adds them to the previous values. A row's
 * gradient is `scale` times its exponentials, less `smooth` times the class weights, less `at` at
 * the target. */
#define GRADIENT_ROW(sfx, T)                                                                    \
    static void put_##sfx(const class_loss_t *loss, int64_t row, int64_t first, int64_t m,      \
                          T *block)                                                             \
    {                                                                                           \
        const fy_desc_t *dst = loss->launch->dst;                                               \
        const int64_t stride = dst->strides[dst->rank - 1];                                     \
        char *to = (char *)(uintptr_t)element(loss, dst, DST, row, first);                      \
        _Alignas(64) T old[FY__BLOCK];                                                          \
        if (loss->launch->accumulate & 1u) {                                                    \
            fy__stage_in(loss->loops, m, old, loss->compute, to, stride, loss->dtype);          \
            for (int64_t j = 0; j < m; j++) block[j] += old[j];                                 \
        }                                                                                       \
        fy__stage_out(loss->loops, m, to, stride, loss->dtype, block, loss->compute);           \
    }                                                                                           \
    static void gradient_row_##sfx(const class_loss_t *loss, int64_t row)                       \
    {                                                                                           \
        const int64_t n = loss->classes, target = target_of(loss, row);                         \
        const double g = target < 0 ? 0 : gradient_of(loss, row),                               \
                     own = target < 0 ? 0 : (1 - loss->smoothing) * weight_at(loss, target),    \
                     each = loss->smoothing / (double)n;                                        \
        const T at = (T)(g * own), smooth = (T)(g * each);                                      \
        _Alignas(64) T block[FY__BLOCK], powers[FY__BLOCK] = { 0 };                             \
        T max = 0;                                                                              \
        const int has_powers = loss->is_fused && target >= 0;                                   \
        const double sum = has_powers ? exponentials_##sfx(loss, row, &max, powers) : 1;        \
        const T all = (T)(g * (own + each * loss->all_weights)),                                \
                scale = has_powers ? (T)((double)all / sum) : (T)0;                             \
        for (int64_t i = 0; i < n; i += FY__BLOCK) {                                            \
            const int64_t m = n - i < FY__BLOCK ? n - i : FY__BLOCK;                            \
            if (has_powers && n > FY__BLOCK) {                                                  \
                load(loss, row, i, m, block);                                                   \
                (void)loss->loops->exp_row_##sfx(m, powers, block, max);                        \
            }                                                                                   \
            for (int64_t j = 0; j < m; j++) block[j] = powers[j] * scale;                       \
            if (each != 0 && target >= 0)                                                       \
                for (int64_t j = 0; j < m; j++) block[j] -= smooth * (T)weight_at(loss, i + j); \
            if (target >= i && target < i + m) block[target - i] -= at;                         \
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
    const int32_t reduction = *(const int32_t *)launch->attrs; /* the first field of both structs */
    class_loss_t loss = begin(loops, launch, is_fused ? 1 : -1, is_fused ? 2 : 1, launch->dst,
                              reduction == FY_REDUCTION_NONE ? &launch->src[0] : NULL);
    (void)host;
    loss.divisor = loss.reduction == FY_REDUCTION_MEAN ? divisor_of(&loss) : 1;
    fy__for_each(loss.rows, fy__threads_for(loss.rows * loss.classes, SERIAL), put_gradient, &loss);
    return FY_STATUS_OK;
}
