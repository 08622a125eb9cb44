/* Typed calls that are made of several ops, whose gradients the tape knows: losses of two tensors
 * of one shape; variance and standard deviation; group_norm. f16 and bf16 are cast to f32 before
 * the first op, and the result is cast back.
 * Not here: losses of classes and mse_loss, which are ops (reduce.c). */
#include <float.h>
#include <inttypes.h>
#include <math.h>

#include "ops/format.h"
#include "ops/refuse.h"
#include "ops/shape.h"
#include "ops/typed/typed.h"
#include "runtime/tensor/tensor.h"

/* What a call has made until now. After a failure every step returns NULL and does nothing. */
enum { CHAIN_STEPS = 24 }; /* more than any call here has */
typedef struct chain {
    const char *call; /* the public function, which begins the texts of failures */
    fy_status_t status;
    int count;
    fy_tensor_t *made[CHAIN_STEPS];
} chain_t;

/* Takes `made`, the result of a call that returned `status`. */
static fy_tensor_t *hold(chain_t *chain, fy_status_t status, fy_tensor_t *made)
{
    chain->status = status;
    if (made) chain->made[chain->count++] = made;
    return made;
}

static fy_tensor_t *step(chain_t *chain, fy_op_t op, size_t nsrc, const fy_tensor_t *const *src,
                         const void *attrs)
{
    fy_tensor_t *made = NULL;
    if (chain->status != FY_STATUS_OK) return NULL;
    const fy_status_t status = fy__op_new(op, nsrc, src, attrs, &made);
    return hold(chain, status, made);
}
static fy_tensor_t *step1(chain_t *chain, fy_op_t op, const fy_tensor_t *a, const void *attrs)
{
    return step(chain, op, 1, &a, attrs);
}
static fy_tensor_t *step2(chain_t *chain, fy_op_t op, const fy_tensor_t *a, const fy_tensor_t *b)
{
    return step(chain, op, 2, (const fy_tensor_t *[]){ a, b }, NULL);
}
static fy_tensor_t *affine(chain_t *chain, const fy_tensor_t *a, double scale)
{
    return step1(chain, FY_OP_AFFINE, a, &(fy_affine_attrs_t){ scale, 0 });
}

static bool is_float(uint8_t dtype)
{
    return (FY_DTYPE_BIT(dtype) & fy__op_rows[FY_OP_AFFINE].info.dtypes) != 0;
}
static bool is_half(uint8_t dtype) { return dtype == FY_DTYPE_F16 || dtype == FY_DTYPE_BF16; }

static fy_tensor_t *cast_to_f32(chain_t *chain, const fy_tensor_t *src)
{
    return step1(chain, FY_OP_CAST, src, &(fy_cast_attrs_t){ FY_DTYPE_F32 });
}

/* Operands of one dtype; under autocast also f32 beside f16 or bf16, whose result is f32. */
static bool go_together(uint8_t a, uint8_t b)
{
    const fy__thread_t *thread = fy__thread();
    return a == b || (thread && thread->autocast && (is_half(a) || a == FY_DTYPE_F32) &&
                      (is_half(b) || b == FY_DTYPE_F32));
}
static uint8_t joined(uint8_t a, uint8_t b) { return a == b ? a : FY_DTYPE_F32; }

/* src, in f32 if it is f16 or bf16. */
static const fy_tensor_t *widen(chain_t *chain, const fy_tensor_t *src)
{
    return is_half(src->dtype) ? cast_to_f32(chain, src) : src;
}

/* Gives `y`, which the chain made, in `dtype`, and frees all others. */
static fy_status_t finish(chain_t *chain, fy_tensor_t *y, uint8_t dtype, fy_tensor_t **out_dst)
{
    const fy_cast_attrs_t attrs = { dtype };
    if (is_half(dtype)) y = step1(chain, FY_OP_CAST, y, &attrs);
    for (int i = 0; i < chain->count; i++)
        if (chain->status != FY_STATUS_OK || chain->made[i] != y) fy_tensor_destroy(chain->made[i]);
    if (chain->status != FY_STATUS_OK) return fy__fail_in(chain->call, chain->status);
    *out_dst = y;
    return FY_STATUS_OK;
}

/* ---- losses ---- */

/* Two float tensors of one device, dtype and shape. The refusal comes before the first op. */
static fy_status_t check_pair(const char *call, const fy_tensor_t *a, const fy_tensor_t *b,
                              fy_reduction_t reduction)
{
    const fy_tensor_t *src[2] = { a, b };
    fy_desc_t desc[2];
    for (int i = 0; i < 2; i++)
        if (!src[i] || fy__tensor_is_gone(src[i])) return fy__refuse_null(call, 2, src);
    if (a->storage->device != b->storage->device) return fy__refuse_mixed(call, 2, src, 0, NULL);
    for (int i = 0; i < 2; i++) FY_TRY(fy_tensor_describe(src[i], &desc[i]));
    if (!go_together(desc[0].dtype, desc[1].dtype) || !is_float(desc[0].dtype))
        return FY_FAIL(DTYPE_MISMATCH,
                       "%s: src0 is %s, src1 is %s; both must have one float dtype: fy_cast "
                       "converts",
                       call, FY__DESC_TEXT(&desc[0]), FY__DESC_TEXT(&desc[1]));
    if (!fy__same_dims(&desc[0], &desc[1]))
        return FY_FAIL(SHAPE_MISMATCH,
                       "%s: src0 is %s, src1 is %s; the shapes must be equal: fy_broadcast or "
                       "fy_reshape changes one",
                       call, FY__DESC_TEXT(&desc[0]), FY__DESC_TEXT(&desc[1]));
    if (reduction < FY_REDUCTION_MEAN || reduction > FY_REDUCTION_NONE)
        return FY_FAIL(INVALID_ARGUMENT,
                       "%s: reduction %d; use FY_REDUCTION_MEAN, _SUM or _NONE (%d .. %d)", call,
                       (int)reduction, FY_REDUCTION_MEAN, FY_REDUCTION_NONE);
    return FY_STATUS_OK;
}

/* The result of a loss of a and b whose elements are `each`. */
static fy_status_t reduced(chain_t *chain, fy_tensor_t *each, fy_reduction_t reduction,
                           const fy_tensor_t *a, const fy_tensor_t *b, fy_tensor_t **out_loss)
{
    const fy_reduce_attrs_t all = { 0, 0 };
    if (reduction != FY_REDUCTION_NONE)
        each = step1(chain, reduction == FY_REDUCTION_MEAN ? FY_OP_MEAN : FY_OP_SUM, each, &all);
    return finish(chain, each, joined(a->dtype, b->dtype), out_loss);
}

/* max(x, 0) is (x + |x|) / 2, which is exact, and whose slope at 0 is 1/2: then the gradient at 0
 * is sigmoid(0) - target, as it is everywhere else. */
fy_status_t fy_bce_with_logits(const fy_tensor_t *logits, const fy_tensor_t *target,
                               fy_reduction_t reduction, fy_tensor_t **out_loss)
{
    static const fy_softplus_attrs_t log1p_exp = { 1, 0 };
    chain_t chain = { "bce_with_logits", FY_STATUS_OK, 0, { NULL } };
    FY__REQUIRE_OUT("bce_with_logits", out_loss);
    FY_TRY(check_pair("bce_with_logits", logits, target, reduction));
    const fy_tensor_t *x = widen(&chain, logits), *y = widen(&chain, target);
    const fy_tensor_t *size = step1(&chain, FY_OP_ABS, x, NULL);
    const fy_tensor_t *half_x = affine(&chain, x, 0.5), *half_size = affine(&chain, size, 0.5);
    const fy_tensor_t *above = step2(&chain, FY_OP_ADD, half_x, half_size);
    const fy_tensor_t *linear = step2(&chain, FY_OP_SUB, above, step2(&chain, FY_OP_MUL, x, y));
    const fy_tensor_t *rest = step1(&chain, FY_OP_SOFTPLUS, affine(&chain, size, -1), &log1p_exp);
    return reduced(&chain, step2(&chain, FY_OP_ADD, linear, rest), reduction, logits, target,
                   out_loss);
}

static fy_tensor_t *distance(chain_t *chain, const fy_tensor_t *pred, const fy_tensor_t *target)
{
    const fy_tensor_t *a = widen(chain, pred), *b = widen(chain, target);
    return step1(chain, FY_OP_ABS, step2(chain, FY_OP_SUB, a, b), NULL);
}

fy_status_t fy_l1_loss(const fy_tensor_t *pred, const fy_tensor_t *target, fy_reduction_t reduction,
                       fy_tensor_t **out_loss)
{
    chain_t chain = { "l1_loss", FY_STATUS_OK, 0, { NULL } };
    FY__REQUIRE_OUT("l1_loss", out_loss);
    FY_TRY(check_pair("l1_loss", pred, target, reduction));
    return reduced(&chain, distance(&chain, pred, target), reduction, pred, target, out_loss);
}

/* With m = min(d, beta): m / beta (d - m / 2) is d^2 / (2 beta) below beta, and d - beta / 2 from
 * beta on. No factor overflows unless d does. */
fy_status_t fy_smooth_l1_loss(const fy_tensor_t *pred, const fy_tensor_t *target, double beta,
                              fy_reduction_t reduction, fy_tensor_t **out_loss)
{
    const fy_clamp_attrs_t below = { -INFINITY, beta };
    chain_t chain = { "smooth_l1_loss", FY_STATUS_OK, 0, { NULL } };
    FY__REQUIRE_OUT("smooth_l1_loss", out_loss);
    FY_TRY(check_pair("smooth_l1_loss", pred, target, reduction));
    if (!(beta == 0 || (beta >= FLT_MIN && beta <= FLT_MAX)))
        return FY_FAIL(INVALID_ARGUMENT,
                       "smooth_l1_loss: beta %g; legal are 0, which is l1_loss, and %g .. %g", beta,
                       (double)FLT_MIN, (double)FLT_MAX);
    fy_tensor_t *d = distance(&chain, pred, target);
    if (beta > 0) {
        const fy_tensor_t *m = step1(&chain, FY_OP_CLAMP, d, &below);
        const fy_tensor_t *rest = step2(&chain, FY_OP_SUB, d, affine(&chain, m, 0.5));
        const fy_tensor_t *part = affine(&chain, m, 1 / beta);
        d = step2(&chain, FY_OP_MUL, part, rest);
    }
    return reduced(&chain, d, reduction, pred, target, out_loss);
}

/* A scalar like x. */
static const fy_tensor_t *scalar(chain_t *chain, const fy_tensor_t *x, double value)
{
    fy_tensor_t *made = NULL;
    if (chain->status != FY_STATUS_OK) return NULL;
    const fy_status_t status =
        fy_full(x->storage->device, (fy_dtype_t)x->dtype, 0, NULL, value, &made);
    return hold(chain, status, made);
}

/* log(t), 0 where t is 0: the product with t is then 0, and so is its gradient. */
static const fy_tensor_t *safe_log(chain_t *chain, const fy_tensor_t *t)
{
    const fy_tensor_t *zero = scalar(chain, t, 0), *one = scalar(chain, t, 1);
    const fy_tensor_t *src[3] = { step2(chain, FY_OP_EQ, t, zero), one, t };
    return step1(chain, FY_OP_LOG, step(chain, FY_OP_WHERE, 3, src, NULL), NULL);
}

fy_status_t fy_kl_div(const fy_tensor_t *log_probs, const fy_tensor_t *target, int log_target,
                      fy_reduction_t reduction, fy_tensor_t **out_loss)
{
    chain_t chain = { "kl_div", FY_STATUS_OK, 0, { NULL } };
    FY__REQUIRE_OUT("kl_div", out_loss);
    FY_TRY(check_pair("kl_div", log_probs, target, reduction));
    const fy_tensor_t *x = widen(&chain, log_probs), *t = widen(&chain, target), *p = t, *log_p = t;
    if (chain.status != FY_STATUS_OK) return finish(&chain, NULL, log_probs->dtype, out_loss);
    if (log_target)
        p = step1(&chain, FY_OP_EXP, t, NULL);
    else
        log_p = safe_log(&chain, t);
    fy_tensor_t *each = step2(&chain, FY_OP_MUL, p, step2(&chain, FY_OP_SUB, log_p, x));
    return reduced(&chain, each, reduction, log_probs, target, out_loss);
}

/* ---- variance ---- */

/* The elements of src that are reduced to one. */
static double reduced_count(const fy_tensor_t *src, uint32_t axes)
{
    double n = 1;
    for (int i = 0; i < src->rank; i++)
        if (axes == 0 || (axes >> i & 1) != 0) n *= (double)src->dims[i];
    return n;
}

/* The mean is rounded to x's dtype. Subtracting the mean of the differences, too, removes that
 * error, which is large beside a small deviation. The norm sums squares in f64, and its gradient
 * at 0 is 0. */
static fy_status_t deviation(const char *call, const fy_tensor_t *src, int naxes, const int *axes,
                             int correction, int keepdims, bool squared, fy_tensor_t **out_dst)
{
    fy_reduce_attrs_t keep = { 0, 1 };
    fy_desc_t desc;
    chain_t chain = { call, FY_STATUS_OK, 0, { NULL } };
    if (!out_dst) return FY_FAIL(INVALID_ARGUMENT, "%s: out_dst is NULL", call);
    *out_dst = NULL;
    if (!src || fy__tensor_is_gone(src)) return fy__refuse_null(call, 1, &src);
    FY_TRY(fy_tensor_describe(src, &desc));
    if (!is_float(desc.dtype))
        return FY_FAIL(DTYPE_MISMATCH, "%s: src0 is %s; it must be float: fy_cast converts", call,
                       FY__DESC_TEXT(&desc));
    if (correction != 0 && correction != 1)
        return FY_FAIL(INVALID_ARGUMENT,
                       "%s: correction %d; use 0 (divides by n) or 1 (divides by n - 1)", call,
                       correction);
    FY_TRY(fy__typed_axes(call, src, naxes, axes, &keep.axes));
    const fy_reduce_attrs_t end = { keep.axes, keepdims != 0 };
    const double divisor = fmax(reduced_count(src, keep.axes) - correction, 0);
    const fy_tensor_t *x = widen(&chain, src), *d = x;
    for (int i = 0; i < 2; i++)
        d = step2(&chain, FY_OP_SUB, d, step1(&chain, FY_OP_MEAN, d, &keep));
    fy_tensor_t *y = affine(&chain, step1(&chain, FY_OP_NORM, d, &end), 1 / sqrt(divisor));
    if (squared) y = step2(&chain, FY_OP_MUL, y, y);
    return finish(&chain, y, src->dtype, out_dst);
}

fy_status_t fy_var(const fy_tensor_t *src, int naxes, const int *axes, int correction, int keepdims,
                   fy_tensor_t **out_dst)
{
    return deviation("var", src, naxes, axes, correction, keepdims, true, out_dst);
}

fy_status_t fy_std(const fy_tensor_t *src, int naxes, const int *axes, int correction, int keepdims,
                   fy_tensor_t **out_dst)
{
    return deviation("std", src, naxes, axes, correction, keepdims, false, out_dst);
}

/* ---- group_norm ---- */

static fy_tensor_t *shaped(chain_t *chain, fy_tensor_t *x, int rank, const int64_t *dims)
{
    fy_tensor_t *view = NULL;
    if (chain->status != FY_STATUS_OK) return NULL;
    const fy_status_t status = fy_reshape(x, rank, dims, &view);
    return hold(chain, status, view);
}

/* x, or a dense copy of it. */
static fy_tensor_t *dense(chain_t *chain, fy_tensor_t *x)
{
    fy_tensor_t *copy = NULL;
    fy_tensor_info_t info = FY_TENSOR_INFO_INIT;
    if (chain->status != FY_STATUS_OK) return NULL;
    chain->status = fy_tensor_query(x, &info);
    if (chain->status != FY_STATUS_OK || info.is_contiguous) return x;
    const fy_status_t status =
        fy_empty(x->storage->device, (fy_dtype_t)x->dtype, x->rank, x->dims, &copy);
    hold(chain, status, copy);
    if (copy) chain->status = fy_copy(copy, x);
    return copy;
}

/* [N, A, B, D] -> dense [N, B, A, D]. */
static fy_tensor_t *exchanged(chain_t *chain, fy_tensor_t *x)
{
    fy_tensor_t *view = NULL;
    if (chain->status != FY_STATUS_OK) return NULL;
    const fy_status_t status = fy_transpose(x, (const int[]){ 0, 2, 1, 3 }, &view);
    return dense(chain, hold(chain, status, view));
}

static fy_tensor_t *normalized(chain_t *chain, const fy_tensor_t *x, double eps)
{
    fy_tensor_t *y = NULL, *mean = NULL, *rstd = NULL;
    if (chain->status != FY_STATUS_OK) return NULL;
    const fy_status_t status = fy_layer_norm(x, NULL, NULL, eps, &y, &mean, &rstd);
    hold(chain, status, mean);
    hold(chain, status, rstd);
    return hold(chain, status, y);
}

/* `param` may be NULL, else it is [C] in x's dtype. */
static fy_status_t check_param(const fy_tensor_t *x, const fy_tensor_t *param, const char *name)
{
    fy_desc_t desc[2];
    if (!param) return FY_STATUS_OK;
    FY_TRY(fy_tensor_describe(x, &desc[0]));
    FY_TRY(fy_tensor_describe(param, &desc[1]));
    const int64_t channels = desc[0].dims[desc[0].rank - 1];
    if (!go_together(desc[0].dtype, desc[1].dtype))
        return FY_FAIL(DTYPE_MISMATCH, "group_norm: x is %s, %s is %s; fy_cast converts one",
                       FY__DESC_TEXT(&desc[0]), name, FY__DESC_TEXT(&desc[1]));
    if (desc[1].rank != 1 || desc[1].dims[0] != channels)
        return FY_FAIL(SHAPE_MISMATCH, "group_norm: x is %s, %s is %s; it must be [%" PRId64 "]",
                       FY__DESC_TEXT(&desc[0]), name, FY__DESC_TEXT(&desc[1]), channels);
    return FY_STATUS_OK;
}

/* All operands exist, on one device. weight and bias may be NULL. */
static fy_status_t check_present(const fy_tensor_t *x, const fy_tensor_t *weight,
                                 const fy_tensor_t *bias)
{
    const fy_tensor_t *src[3] = { x };
    size_t n = 1;
    if (weight) src[n++] = weight;
    if (bias) src[n++] = bias;
    for (size_t i = 0; i < n; i++)
        if (!src[i] || fy__tensor_is_gone(src[i])) return fy__refuse_null("group_norm", n, src);
    for (size_t i = 1; i < n; i++)
        if (src[i]->storage->device != x->storage->device)
            return fy__refuse_mixed("group_norm", n, src, 0, NULL);
    return FY_STATUS_OK;
}

static fy_status_t check_groups(const fy_tensor_t *x, int64_t groups, double eps)
{
    fy_desc_t desc;
    FY_TRY(fy_tensor_describe(x, &desc));
    if (!is_float(desc.dtype))
        return FY_FAIL(DTYPE_MISMATCH, "group_norm: x is %s; it must be float: fy_cast converts",
                       FY__DESC_TEXT(&desc));
    if (groups < 1)
        return FY_FAIL(INVALID_ARGUMENT, "group_norm: groups is %" PRId64 "; it must be 1 or more",
                       groups);
    if (!(eps >= 0 && eps < INFINITY))
        return FY_FAIL(INVALID_ARGUMENT, "group_norm: eps is %s; it must be finite, 0 or more",
                       FY__NUMBER_TEXT(eps));
    if (desc.rank < 2)
        return FY_FAIL(SHAPE_MISMATCH,
                       "group_norm: x is %s, of rank %d; it must be [N, ..., C], of rank 2 or more",
                       FY__DESC_TEXT(&desc), (int)desc.rank);
    const int64_t channels = desc.dims[desc.rank - 1];
    if (channels % groups != 0)
        return FY_FAIL(SHAPE_MISMATCH,
                       "group_norm: x is %s; %" PRId64
                       " groups do not divide its last axis, %" PRId64 " channels",
                       FY__DESC_TEXT(&desc), groups, channels);
    return FY_STATUS_OK;
}

/* A group of one sample is a row of fy_layer_norm. */
fy_status_t fy_group_norm(fy_tensor_t *x, int64_t groups, const fy_tensor_t *weight,
                          const fy_tensor_t *bias, double eps, fy_tensor_t **out_y)
{
    chain_t chain = { "group_norm", FY_STATUS_OK, 0, { NULL } };
    FY__REQUIRE_OUT("group_norm", out_y);
    FY_TRY(check_present(x, weight, bias));
    FY_TRY(check_groups(x, groups, eps));
    FY_TRY(check_param(x, weight, "weight"));
    FY_TRY(check_param(x, bias, "bias"));
    int64_t pixels = 1;
    for (int i = 1; i < x->rank - 1; i++) pixels *= x->dims[i];
    const int64_t n = x->dims[0], width = x->dims[x->rank - 1] / groups;
    fy_tensor_t *y = dense(&chain, is_half(x->dtype) ? cast_to_f32(&chain, x) : x);
    y = exchanged(&chain, shaped(&chain, y, 4, (const int64_t[]){ n, pixels, groups, width }));
    y = shaped(&chain, y, 3, (const int64_t[]){ n, groups, pixels * width });
    y = normalized(&chain, y, eps);
    y = exchanged(&chain, shaped(&chain, y, 4, (const int64_t[]){ n, groups, pixels, width }));
    y = shaped(&chain, y, x->rank, x->dims);
    if (weight) y = step2(&chain, FY_OP_MUL, y, widen(&chain, weight));
    if (bias) y = step2(&chain, FY_OP_ADD, y, widen(&chain, bias));
    uint8_t dtype = weight ? joined(x->dtype, weight->dtype) : x->dtype;
    if (bias) dtype = joined(dtype, bias->dtype);
    return finish(&chain, y, dtype, out_y);
}
