/* Typed calls, one for each op. Each does the same as fy_op_call with the same tensors, and fails
 * as documented there.
 *
 * Common to all:
 * - Results are new tensors on the sources' device, dense and row-major, owned by the current scope
 *   (or you). Sources are only read.
 * - Requests are asynchronous; later requests wait on the device.
 * - All tensors of a call are on one device and (unless stated otherwise) have one dtype: nothing
 *   is promoted, nothing is moved. Elementwise calls broadcast as NumPy does.
 * - One tensor may be passed as several sources. One variable may be source and result: fy_add(x,
 *   x, &x). The old handle then stays in its scope.
 * - Zero-size tensors are legal, except where a result would have elements without a value.
 * - f16 and bf16 compute in f32 and round once. NaN propagates, through maximum, max and relu too.
 * - "float" below means f32, f64, f16, bf16; "number" means those and i32, i64, u8. Integers wrap
 *   around. */
#ifndef FERRY_OPS_H_
#define FERRY_OPS_H_

#include <ferry/op.h>
#include <ferry/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- making tensors on a device: nothing crosses ---- */

/* Contents undefined: fy_tensor_create under NumPy's name. */
FY_API_STATUS fy_empty(fy_device_t *device, fy_dtype_t dtype, int rank, const int64_t *dims,
                       fy_tensor_t **out_dst);
FY_API_STATUS fy_zeros(fy_device_t *device, fy_dtype_t dtype, int rank, const int64_t *dims,
                       fy_tensor_t **out_dst); /* all elements are 0, or false */
/* Every element is `value`. Fails: INVALID_ARGUMENT (an integer dtype cannot hold it). */
FY_API_STATUS fy_full(fy_device_t *device, fy_dtype_t dtype, int rank, const int64_t *dims,
                      double value, fy_tensor_t **out_dst);
/* start + i * step, in f64; number. Fails: INVALID_ARGUMENT (integers: fractions, 2^53 and up). */
FY_API_STATUS fy_arange(fy_device_t *device, fy_dtype_t dtype, double start, double step,
                        int64_t count, fy_tensor_t **out_dst);

/* A random state on `device`: an i64 tensor [2] {seed, counter}. The draws below read it and
 * advance it on the device, so a replay of them needs no host. The same seed and the same draws
 * give the same bits on every backend (Philox4x32-10: Salmon et al. 2011). */
FY_API_STATUS fy_rng_create(fy_device_t *device, int64_t seed, fy_tensor_t **out_rng);
/* Uniform in [low, high); float. */
FY_API_STATUS fy_rand(fy_tensor_t *rng, fy_dtype_t dtype, int rank, const int64_t *dims, double low,
                      double high, fy_tensor_t **out_dst);
/* Normal (Box-Muller); float. Backends may differ in the last bit (their log and cos). */
FY_API_STATUS fy_randn(fy_tensor_t *rng, fy_dtype_t dtype, int rank, const int64_t *dims,
                       double mean, double std, fy_tensor_t **out_dst);
/* A random order of 0 .. count-1 (count < 2^32), i64 [count]. Each element is computed
 * independently (a keyed Feistel network with cycle walking: Black and Rogaway 2002). */
FY_API_STATUS fy_randperm(fy_tensor_t *rng, int64_t count, fy_tensor_t **out_dst);

/* Each element of src becomes 0 with probability p, else src / (1 - p); float, p in 0 .. 1. p 1
 * gives zeros for any src. The op has three results, all given by the caller: dst, rng, and an i64
 * [2] that receives the state before the draw; the gradient needs only that.
 * Fails: INVALID_ARGUMENT (p). Source: Srivastava et al. 2014; docs/ops.md assigns random bits to
 * elements. Cost: one Philox block for four elements. */
FY_API_STATUS fy_dropout(fy_tensor_t *rng, const fy_tensor_t *src, double p, fy_tensor_t **out_dst);
/* The same for whole channels: src [N, H, W, C], one draw for each (n, c). */
FY_API_STATUS fy_dropout2d(fy_tensor_t *rng, const fy_tensor_t *src, double p,
                           fy_tensor_t **out_dst);
/* Their gradients: dy dropped and scaled as src was. state: i64 [2], before the draw; only read. */
FY_API_STATUS fy_dropout_backward(const fy_tensor_t *dy, const fy_tensor_t *state, double p,
                                  fy_tensor_t **out_dx);
FY_API_STATUS fy_dropout2d_backward(const fy_tensor_t *dy, const fy_tensor_t *state, double p,
                                    fy_tensor_t **out_dx);

/* ---- in place: these write into `dst`; none of them returns a tensor ---- */

/* Fails: INVALID_ARGUMENT (an integer dtype cannot hold `value`). */
FY_API_STATUS fy_fill(fy_tensor_t *dst, double value);
/* dst = src, broadcast to dst's shape; any strides, dtypes must be equal. */
FY_API_STATUS fy_copy(fy_tensor_t *dst, const fy_tensor_t *src);
/* y += alpha * x, x broadcast to y's shape; float. */
FY_API_STATUS fy_axpy(fy_tensor_t *y, double alpha, const fy_tensor_t *x);

/* y[indices[i...], :] += alpha * x[i..., :]. y [R, ...], indices i32 or i64 of any shape, x
 * [indices' dims, ...] with rows as y's; f32, f64. Equal indices are added in their order, by any
 * number of threads. An index outside 0 .. R-1 adds nothing and fails with BAD_VALUE. */
FY_API_STATUS fy_index_add(fy_tensor_t *y, const fy_tensor_t *indices, double alpha,
                           const fy_tensor_t *x);

/* ---- elementwise, one source ---- */

FY_API_STATUS fy_neg(const fy_tensor_t *src, fy_tensor_t **out_dst); /* number */
FY_API_STATUS fy_abs(const fy_tensor_t *src, fy_tensor_t **out_dst); /* number */
/* float, as are those below up to relu */
FY_API_STATUS fy_exp(const fy_tensor_t *src, fy_tensor_t **out_dst);
FY_API_STATUS fy_log(const fy_tensor_t *src, fy_tensor_t **out_dst);
FY_API_STATUS fy_sqrt(const fy_tensor_t *src, fy_tensor_t **out_dst);
FY_API_STATUS fy_rsqrt(const fy_tensor_t *src, fy_tensor_t **out_dst); /* 1 / sqrt(x) */
/* log(1 + x) and exp(x) - 1 with all digits where x is small. */
FY_API_STATUS fy_log1p(const fy_tensor_t *src, fy_tensor_t **out_dst);
FY_API_STATUS fy_expm1(const fy_tensor_t *src, fy_tensor_t **out_dst);
/* To an integer: down, up, to the nearest (of two the even one). Their gradient is 0. */
FY_API_STATUS fy_floor(const fy_tensor_t *src, fy_tensor_t **out_dst);
FY_API_STATUS fy_ceil(const fy_tensor_t *src, fy_tensor_t **out_dst);
FY_API_STATUS fy_round(const fy_tensor_t *src, fy_tensor_t **out_dst);
/* Of radians. */
FY_API_STATUS fy_sin(const fy_tensor_t *src, fy_tensor_t **out_dst);
FY_API_STATUS fy_cos(const fy_tensor_t *src, fy_tensor_t **out_dst);
FY_API_STATUS fy_tan(const fy_tensor_t *src, fy_tensor_t **out_dst);
FY_API_STATUS fy_tanh(const fy_tensor_t *src, fy_tensor_t **out_dst);    /* float */
FY_API_STATUS fy_sigmoid(const fy_tensor_t *src, fy_tensor_t **out_dst); /* 1 / (1 + exp(-x)) */
FY_API_STATUS fy_relu(const fy_tensor_t *src, fy_tensor_t **out_dst);    /* max(x, 0) */
/* Activations: float. silu and gelu of -inf are NaN, as 0 * inf. */
FY_API_STATUS fy_relu6(const fy_tensor_t *src, fy_tensor_t **out_dst); /* min(max(x, 0), 6) */
/* min(max(x + 3, 0), 6) / 6 */
FY_API_STATUS fy_hardsigmoid(const fy_tensor_t *src, fy_tensor_t **out_dst);
/* 0 below -3, x above 3, else x * (x + 3) / 6 */
FY_API_STATUS fy_hardswish(const fy_tensor_t *src, fy_tensor_t **out_dst);
FY_API_STATUS fy_silu(const fy_tensor_t *src, fy_tensor_t **out_dst); /* x * sigmoid(x) */
/* x * (1 + erf(x / sqrt(2))) / 2: not the tanh form */
FY_API_STATUS fy_gelu(const fy_tensor_t *src, fy_tensor_t **out_dst);
/* x * (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2, PyTorch's approximate="tanh" */
FY_API_STATUS fy_gelu_tanh(const fy_tensor_t *src, fy_tensor_t **out_dst);
FY_API_STATUS fy_erf(const fy_tensor_t *src, fy_tensor_t **out_dst); /* the error function */
/* log(1 + exp(beta x)) / beta, and x where beta x > threshold. Fails: INVALID_ARGUMENT (beta is not
 * above 0). PyTorch's defaults are beta 1, threshold 20. */
FY_API_STATUS fy_softplus(const fy_tensor_t *src, double beta, double threshold,
                          fy_tensor_t **out_dst);
/* x where x > 0, else slope x (PyTorch's default: 0.01), or alpha (exp(x) - 1) (default: 1). Their
 * slopes at 0 are those below 0. */
FY_API_STATUS fy_leaky_relu(const fy_tensor_t *src, double slope, fy_tensor_t **out_dst);
FY_API_STATUS fy_elu(const fy_tensor_t *src, double alpha, fy_tensor_t **out_dst);
/* Gradients of relu, relu6, hardsigmoid, hardswish, silu, gelu and gelu_tanh: dy times the slope at
 * x. At a kink the slope is 0 for relu, relu6 and hardsigmoid; for hardswish it is 0 at -3 and 1 at
 * 3. The slope of hardsigmoid at NaN is 0. All edge values: docs/ops.md. */
FY_API_STATUS fy_relu_backward(const fy_tensor_t *dy, const fy_tensor_t *x, fy_tensor_t **out_dx);
FY_API_STATUS fy_relu6_backward(const fy_tensor_t *dy, const fy_tensor_t *x, fy_tensor_t **out_dx);
FY_API_STATUS fy_hardsigmoid_backward(const fy_tensor_t *dy, const fy_tensor_t *x,
                                      fy_tensor_t **out_dx);
FY_API_STATUS fy_hardswish_backward(const fy_tensor_t *dy, const fy_tensor_t *x,
                                    fy_tensor_t **out_dx);
FY_API_STATUS fy_silu_backward(const fy_tensor_t *dy, const fy_tensor_t *x, fy_tensor_t **out_dx);
FY_API_STATUS fy_gelu_backward(const fy_tensor_t *dy, const fy_tensor_t *x, fy_tensor_t **out_dx);
FY_API_STATUS fy_gelu_tanh_backward(const fy_tensor_t *dy, const fy_tensor_t *x,
                                    fy_tensor_t **out_dx);
/* Gradients of fy_tanh and fy_sigmoid, from dy and the result y: dy (1 - y^2), dy y (1 - y). */
FY_API_STATUS fy_tanh_backward(const fy_tensor_t *dy, const fy_tensor_t *y, fy_tensor_t **out_dx);
FY_API_STATUS fy_sigmoid_backward(const fy_tensor_t *dy, const fy_tensor_t *y,
                                  fy_tensor_t **out_dx);
/* scale * x + shift; float. The scalars are passed by value: they have no device. */
FY_API_STATUS fy_affine(const fy_tensor_t *src, double scale, double shift, fy_tensor_t **out_dst);
/* min(max(x, low), high); float; NaN stays NaN. One of the bounds may be infinite. At a bound, the
 * gradient of x is passed on. Fails: INVALID_ARGUMENT (low above high). */
FY_API_STATUS fy_clamp(const fy_tensor_t *src, double low, double high, fy_tensor_t **out_dst);
/* Converts to another dtype, any to any. To a narrower float: rounds to nearest even. Float to
 * integer: truncates, clamps to the range; NaN becomes 0. To bool: not equal to 0. */
FY_API_STATUS fy_cast(const fy_tensor_t *src, fy_dtype_t dtype, fy_tensor_t **out_dst);

/* ---- elementwise, two sources ---- */

/* number; div and pow: float, pow as C's */
FY_API_STATUS fy_add(const fy_tensor_t *a, const fy_tensor_t *b, fy_tensor_t **out_dst);
FY_API_STATUS fy_sub(const fy_tensor_t *a, const fy_tensor_t *b, fy_tensor_t **out_dst);
FY_API_STATUS fy_mul(const fy_tensor_t *a, const fy_tensor_t *b, fy_tensor_t **out_dst);
FY_API_STATUS fy_div(const fy_tensor_t *a, const fy_tensor_t *b, fy_tensor_t **out_dst);
FY_API_STATUS fy_maximum(const fy_tensor_t *a, const fy_tensor_t *b, fy_tensor_t **out_dst);
FY_API_STATUS fy_minimum(const fy_tensor_t *a, const fy_tensor_t *b, fy_tensor_t **out_dst);
FY_API_STATUS fy_pow(const fy_tensor_t *a, const fy_tensor_t *b, fy_tensor_t **out_dst);
/* Comparisons: any dtype in, bool out; with NaN, ne is true and the others are false. */
FY_API_STATUS fy_eq(const fy_tensor_t *a, const fy_tensor_t *b, fy_tensor_t **out_dst);
FY_API_STATUS fy_ne(const fy_tensor_t *a, const fy_tensor_t *b, fy_tensor_t **out_dst);
FY_API_STATUS fy_lt(const fy_tensor_t *a, const fy_tensor_t *b, fy_tensor_t **out_dst);
FY_API_STATUS fy_le(const fy_tensor_t *a, const fy_tensor_t *b, fy_tensor_t **out_dst);
FY_API_STATUS fy_gt(const fy_tensor_t *a, const fy_tensor_t *b, fy_tensor_t **out_dst);
FY_API_STATUS fy_ge(const fy_tensor_t *a, const fy_tensor_t *b, fy_tensor_t **out_dst);
/* Any dtype in, bool out: an element is true unless it is 0; NaN is true. */
FY_API_STATUS fy_logical_and(const fy_tensor_t *a, const fy_tensor_t *b, fy_tensor_t **out_dst);
FY_API_STATUS fy_logical_or(const fy_tensor_t *a, const fy_tensor_t *b, fy_tensor_t **out_dst);
FY_API_STATUS fy_logical_xor(const fy_tensor_t *a, const fy_tensor_t *b, fy_tensor_t **out_dst);
FY_API_STATUS fy_logical_not(const fy_tensor_t *src, fy_tensor_t **out_dst);
/* Float in, bool out. */
FY_API_STATUS fy_isnan(const fy_tensor_t *src, fy_tensor_t **out_dst);
/* Division of integers (i32, i64, u8), rounded toward minus infinity. The remainder is a - b times
 * that quotient and has the sign of b. Both are 0 where b is 0; the smallest i32 or i64 divided by
 * -1 is itself, with remainder 0. */
FY_API_STATUS fy_floor_divide(const fy_tensor_t *a, const fy_tensor_t *b, fy_tensor_t **out_dst);
FY_API_STATUS fy_remainder(const fy_tensor_t *a, const fy_tensor_t *b, fy_tensor_t **out_dst);
/* cond ? a : b; cond is bool, a and b of one dtype, any; all three broadcast. */
FY_API_STATUS fy_where(const fy_tensor_t *cond, const fy_tensor_t *a, const fy_tensor_t *b,
                       fy_tensor_t **out_dst);

/* ---- reductions over `naxes` axes (negative counts from the end) ----
 * naxes 0 reduces all axes; keepdims keeps the reduced axes with length 1. */

FY_API_STATUS fy_sum(const fy_tensor_t *src, int naxes, const int *axes, int keepdims,
                     fy_tensor_t **out_dst); /* integers and bool give i64; empty: 0 */
/* float; empty: NaN */
FY_API_STATUS fy_mean(const fy_tensor_t *src, int naxes, const int *axes, int keepdims,
                      fy_tensor_t **out_dst);
FY_API_STATUS fy_max(const fy_tensor_t *src, int naxes, const int *axes, int keepdims,
                     fy_tensor_t **out_dst); /* number; empty: SHAPE_MISMATCH */
FY_API_STATUS fy_min(const fy_tensor_t *src, int naxes, const int *axes, int keepdims,
                     fy_tensor_t **out_dst); /* number; empty: SHAPE_MISMATCH */
/* The product; integers and bool give i64 and wrap around; empty: 1. Floats are multiplied in f64.
 * The gradient is exact where elements are 0, too. */
FY_API_STATUS fy_prod(const fy_tensor_t *src, int naxes, const int *axes, int keepdims,
                      fy_tensor_t **out_dst);
/* bool, of any dtype: is an element, is every element, not 0? NaN is not 0. Empty: false, true. */
FY_API_STATUS fy_any(const fy_tensor_t *src, int naxes, const int *axes, int keepdims,
                     fy_tensor_t **out_dst);
FY_API_STATUS fy_all(const fy_tensor_t *src, int naxes, const int *axes, int keepdims,
                     fy_tensor_t **out_dst);
/* Index (i64) of the largest element along `axis`; of equal elements the first; if there is a NaN,
 * its index. number. */
FY_API_STATUS fy_argmax(const fy_tensor_t *src, int axis, int keepdims, fy_tensor_t **out_dst);
/* As fy_argmax, for the smallest element. */
FY_API_STATUS fy_argmin(const fy_tensor_t *src, int axis, int keepdims, fy_tensor_t **out_dst);

/* Running sums along `axis`: element i of the result is the sum of elements 0 .. i; `reverse`: of
 * elements i .. n - 1. Integers and bool give i64. Floats are summed in f64. */
FY_API_STATUS fy_cumsum(const fy_tensor_t *src, int axis, int reverse, fy_tensor_t **out_dst);

/* sqrt(sum of squares), the 2-norm; float; sums in f64: squares must be in its range; empty: 0. */
FY_API_STATUS fy_norm(const fy_tensor_t *src, int naxes, const int *axes, int keepdims,
                      fy_tensor_t **out_dst);

/* The variance, and its square root: the sum of (x - mean)^2 over n - correction; correction 0 or
 * 1; float. A large mean costs no accuracy: the mean of the differences is subtracted once more. If
 * n is at most correction: NaN, gradient 0. Of equal elements, too, fy_std has gradient 0. Made of
 * existing ops: seven requests, two temporaries of src's size (f16, bf16: three, in f32). */
FY_API_STATUS fy_var(const fy_tensor_t *src, int naxes, const int *axes, int correction,
                     int keepdims, fy_tensor_t **out_dst);
FY_API_STATUS fy_std(const fy_tensor_t *src, int naxes, const int *axes, int correction,
                     int keepdims, fy_tensor_t **out_dst);

/* ---- linear algebra and losses; float ---- */

/* (..., M, K) x (..., K, N) -> (..., M, N); the leading axes broadcast. Transposed views are read
 * in place, not copied. f16 and bf16 accumulate in f32.
 * Source: the host uses oneDNN, its own loops below 32^3 multiplications; cuda uses cuBLASLt. */
FY_API_STATUS fy_matmul(const fy_tensor_t *a, const fy_tensor_t *b, fy_tensor_t **out_dst);
/* activation(x w^T + bias): x [..., I], w [O, I], bias [O] or NULL -> [..., O], in one request.
 * FY_ACTIVATION_NONE applies no activation. Rounds once; f16 and bf16 accumulate in f32 or better.
 * The backward of NONE and RELU costs the least; that of GELU recomputes its argument, so that the
 * tape saves nothing more. Fails: SHAPE_MISMATCH, INVALID_ARGUMENT (an undefined activation).
 * Source: the host uses oneDNN, cuda the epilogues of cuBLASLt. */
FY_API_STATUS fy_linear(const fy_tensor_t *x, const fy_tensor_t *w, const fy_tensor_t *bias,
                        fy_activation_t activation, fy_tensor_t **out_dst);
/* Gradients of fy_linear with respect to w and bias, without activation: dy [N, O], x [N, I] -> dw
 * = dy^T x [O, I], db = dy summed over N [O]. That with respect to x is fy_matmul(dy, w). */
FY_API_STATUS fy_linear_backward_params(const fy_tensor_t *dy, const fy_tensor_t *x,
                                        fy_tensor_t **out_dw, fy_tensor_t **out_db);
/* exp(x - max) / sum(exp(x - max)) along `axis`. */
FY_API_STATUS fy_softmax(const fy_tensor_t *src, int axis, fy_tensor_t **out_dst);
/* x - max - log(sum(exp(x - max))) along `axis`. */
FY_API_STATUS fy_log_softmax(const fy_tensor_t *src, int axis, fy_tensor_t **out_dst);
/* mean((pred - target)^2), rank 0. The shapes must be equal: a broadcast would hide mistakes. */
FY_API_STATUS fy_mse_loss(const fy_tensor_t *pred, const fy_tensor_t *target,
                          fy_tensor_t **out_loss);

/* Gradients of the three above, one launch each. softmax: y (dy - sum(dy y)); log_softmax: dy -
 * exp(y) sum(dy). dy and the result y have one shape; sums are along `axis`. mse_loss: dy 2 (pred -
 * target) / n with respect to pred, dy rank 0; exchange pred and target for that of target. */
FY_API_STATUS fy_softmax_backward(const fy_tensor_t *dy, const fy_tensor_t *y, int axis,
                                  fy_tensor_t **out_dx);
FY_API_STATUS fy_log_softmax_backward(const fy_tensor_t *dy, const fy_tensor_t *y, int axis,
                                      fy_tensor_t **out_dx);
FY_API_STATUS fy_mse_loss_backward(const fy_tensor_t *dy, const fy_tensor_t *pred,
                                   const fy_tensor_t *target, fy_tensor_t **out_dx);

/* Attention of each head: softmax(scale q k^T) v, with q [B, T, H, D], k and v [B, S, H, D]
 * (float, any strides). Heads lie before their elements: of a projection [B, T, 3, H, D], q, k
 * and v are views. mask (NULL: none): bool of rank 2 to 4, broadcast to [B, H, T, S]; true: the
 * row may attend to the key. A row that may attend to no key gives 0; a score of -infinity
 * counts as masked. is_causal counts rows and keys from 0, as in PyTorch, also if T is not S.
 * There is no dropout. Scores exist in blocks only, never as T x S; the gradient computes them
 * again. D <= 4096. attrs: NULL is no causal mask, scale 1 / sqrt(D). out_lse (may be NULL): the
 * log-sum-exp of each row's scores [B, H, T], f32 (f64 of f64); a tape refuses a loss of it. */
FY_API_STATUS fy_scaled_dot_product_attention(const fy_tensor_t *q, const fy_tensor_t *k,
                                              const fy_tensor_t *v, const fy_tensor_t *mask,
                                              const fy_attention_attrs_t *attrs,
                                              fy_tensor_t **out_y, fy_tensor_t **out_lse);
/* Its gradients, all three or none. y and lse are the results of the call. */
FY_API_STATUS fy_scaled_dot_product_attention_backward(const fy_tensor_t *dy, const fy_tensor_t *q,
                                                       const fy_tensor_t *k, const fy_tensor_t *v,
                                                       const fy_tensor_t *y, const fy_tensor_t *lse,
                                                       const fy_tensor_t *mask,
                                                       const fy_attention_attrs_t *attrs,
                                                       fy_tensor_t **out_dq, fy_tensor_t **out_dk,
                                                       fy_tensor_t **out_dv);

/* Losses of classifiers: each row of log_probs or logits [N, ..., C] (float) against its class in
 * targets, i32 or i64 [N, ...]. `reduction` of the losses: FY_REDUCTION_MEAN or _SUM gives rank 0,
 * _NONE gives [N, ...]; the mean of no losses is NaN. The loss of a row with target -100 is 0, and
 * a mean does not count it. Another class outside 0 .. C-1 is clamped, and the request fails with
 * BAD_VALUE: a wait for its result reports it. Names and values are PyTorch's, but for the classes,
 * which are the last axis. Losses accumulate in f64. */

/* -log_probs[i, targets[i]]. */
FY_API_STATUS fy_nll_loss(const fy_tensor_t *log_probs, const fy_tensor_t *targets,
                          fy_reduction_t reduction, fy_tensor_t **out_loss);
/* -log_softmax(logits)[i, targets[i]], in one pass over the logits and with the same stability:
 * log(sum(exp(x - max))) + max - x[targets[i]]. */
FY_API_STATUS fy_cross_entropy(const fy_tensor_t *logits, const fy_tensor_t *targets,
                               fy_reduction_t reduction, fy_tensor_t **out_loss);
/* The same with attributes (NULL: FY_CLASS_LOSS_ATTRS_INIT) and class weights [C] of the scores'
 * dtype (NULL: all are 1). A row's loss is multiplied by its target's weight, and a mean divides by
 * the sum of those. label_smoothing e: (1 - e) of the loss, and e / C of the sum over all classes
 * of weight * -log_softmax(logits). A tape has no gradient for the weights. */
FY_API_STATUS fy_nll_loss_with(const fy_tensor_t *log_probs, const fy_tensor_t *targets,
                               const fy_tensor_t *weight, const fy_class_loss_attrs_t *attrs,
                               fy_tensor_t **out_loss);
FY_API_STATUS fy_cross_entropy_with(const fy_tensor_t *logits, const fy_tensor_t *targets,
                                    const fy_tensor_t *weight, const fy_class_loss_attrs_t *attrs,
                                    fy_tensor_t **out_loss);
/* Gradients of the two losses [N, ..., C]. dy: of the loss, rank 0 ([N, ...] with _NONE). nll_loss:
 * -dy (_MEAN: / rows that count) at the target and 0 elsewhere; log_probs had `classes` columns.
 * cross_entropy: dy (_MEAN: / rows that count) * (softmax(logits) - 1 at the target).
 * fy_op_call takes attributes and weights. */
FY_API_STATUS fy_nll_loss_backward(const fy_tensor_t *dy, const fy_tensor_t *targets, int classes,
                                   fy_reduction_t reduction, fy_tensor_t **out_dx);
FY_API_STATUS fy_cross_entropy_backward(const fy_tensor_t *dy, const fy_tensor_t *logits,
                                        const fy_tensor_t *targets, fy_reduction_t reduction,
                                        fy_tensor_t **out_dx);

/* Losses of a float tensor against a target of the same shape and dtype: a broadcast would hide
 * mistakes here. reduction as above, over all elements; names and values are PyTorch's. Each call
 * is made of existing ops, which have gradients for both: about ten requests, and temporaries of
 * src's size. f16 and bf16 compute in f32 and round once. */

/* max(x, 0) - x target + log(1 + exp(-|x|)), which overflows for no finite logit and keeps small
 * losses of large logits. target: 0 .. 1, which is not checked. */
FY_API_STATUS fy_bce_with_logits(const fy_tensor_t *logits, const fy_tensor_t *target,
                                 fy_reduction_t reduction, fy_tensor_t **out_loss);
/* d = |pred - target|; the gradient is 0 where d is 0. */
FY_API_STATUS fy_l1_loss(const fy_tensor_t *pred, const fy_tensor_t *target,
                         fy_reduction_t reduction, fy_tensor_t **out_loss);
/* d^2 / (2 beta) where d < beta, else d - beta / 2. beta 0 is l1_loss. Fails: INVALID_ARGUMENT
 * (beta negative, infinite, or above 0 but not normal in f32). */
FY_API_STATUS fy_smooth_l1_loss(const fy_tensor_t *pred, const fy_tensor_t *target, double beta,
                                fy_reduction_t reduction, fy_tensor_t **out_loss);
/* target (log(target) - log_probs), 0 where target is 0. log_target: the target is given as its
 * logarithm: exp(target) (target - log_probs). Where target is 0, its gradient is -log_probs.
 * _MEAN divides by all elements; for PyTorch's batchmean, divide _SUM by the rows. */
FY_API_STATUS fy_kl_div(const fy_tensor_t *log_probs, const fy_tensor_t *target, int log_target,
                        fy_reduction_t reduction, fy_tensor_t **out_loss);

/* ---- training: in place, on the device; no downloads ----
 * A step updates the parameter and its state in one request: dense or not, of one shape. `grad` is
 * like `param`. `lr` is a scalar, f32 or f64. `step_number` is an i64 scalar that each step
 * increments. Both are device tensors, so that a recorded step can be replayed. Initialize states
 * and step numbers with 0. Arithmetic and states are in the parameter's dtype, or in f32 if that is
 * f16 or bf16; factors common to all elements are computed in f64. Gradients are not zeroed. A step
 * of an f32 parameter can have one more result, `low` (fy_op_call): its new value in f16 or bf16.
 * Fail: SHAPE_MISMATCH, DTYPE_MISMATCH, DEVICE_MISMATCH, INVALID_ARGUMENT (NULL, or an invalid
 * attribute: names it), BUSY (watched by the tape that records now). Formulas: PyTorch 1.13,
 * torch.optim. g: grad + weight_decay param. */

/* Loss scaling: `scaling`, f64 [5], has scale, divisor, found, good and skipped steps; at first
 * (scale, scale, 0, 0, 0). found = 1 if an element of x (float) is infinite or NaN. */
FY_API_STATUS fy_check_finite(fy_tensor_t *scaling, const fy_tensor_t *x);
/* After found: scale *= backoff_factor; after growth_interval good steps: scale *= growth_factor,
 * if it stays normal in f32. Then divisor = scale, found = 0. attrs NULL: 2, 0.5, 2000. */
FY_API_STATUS fy_update_scaling(fy_tensor_t *scaling, const fy_update_scaling_attrs_t *attrs);
/* dst *= min(1, max_norm / (norm + 1e-6)), as torch.nn.utils.clip_grad_norm_. `norm`, of dst's
 * dtype, broadcasts to dst; fy_norm computes a scalar norm of the whole tensor. If norm is NaN, dst
 * becomes NaN. Fails: INVALID_ARGUMENT (max_norm not above 0). */
FY_API_STATUS fy_clip_by_norm(fy_tensor_t *dst, const fy_tensor_t *norm, double max_norm);
/* param -= lr g. attrs NULL: all 0. attrs->momentum must be 0: see fy_sgd_momentum_step. */
FY_API_STATUS fy_sgd_step(fy_tensor_t *param, const fy_tensor_t *grad, const fy_tensor_t *lr,
                          const fy_sgd_attrs_t *attrs);
/* b = attrs.momentum b + (1 - dampening) g, in the first step b = g + attrs.momentum b. Then param
 * -= lr b; with nesterov, param -= lr (g + attrs.momentum b) (Sutskever et al. 2013). b is
 * `momentum`. NULL: all 0. */
FY_API_STATUS fy_sgd_momentum_step(fy_tensor_t *param, const fy_tensor_t *grad,
                                   fy_tensor_t *momentum, fy_tensor_t *step_number,
                                   const fy_tensor_t *lr, const fy_sgd_attrs_t *attrs);
/* m = beta1 m + (1 - beta1) g, v = beta2 v + (1 - beta2) g^2, t = step_number + 1;
 * param -= lr m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps) (Kingma and Ba 2015).
 * decoupled: g is grad, and param is first multiplied by 1 - lr weight_decay (AdamW: Loshchilov and
 * Hutter 2019). attrs NULL: FY_ADAM_ATTRS_INIT (0.9, 0.999, 1e-8, no decay). */
FY_API_STATUS fy_adam_step(fy_tensor_t *param, const fy_tensor_t *grad, fy_tensor_t *exp_avg,
                           fy_tensor_t *exp_avg_sq, fy_tensor_t *step_number, const fy_tensor_t *lr,
                           const fy_adam_attrs_t *attrs);
/* s = rho s + (1 - rho) g^2, u = sqrt(a + eps) / sqrt(s + eps) g, a = rho a + (1 - rho) u^2, param
 * -= lr u; s is square_avg, a acc_delta (Zeiler 2012). attrs NULL: FY_ADADELTA_ATTRS_INIT (0.9,
 * 1e-6, no decay). */
FY_API_STATUS fy_adadelta_step(fy_tensor_t *param, const fy_tensor_t *grad, fy_tensor_t *square_avg,
                               fy_tensor_t *acc_delta, const fy_tensor_t *lr,
                               const fy_adadelta_attrs_t *attrs);
/* s = alpha s + (1 - alpha) g^2, param -= lr g / (sqrt(s) + eps); s is square_avg (Tieleman and
 * Hinton 2012). attrs NULL: FY_RMSPROP_ATTRS_INIT (0.99, 1e-8, no decay). */
FY_API_STATUS fy_rmsprop_step(fy_tensor_t *param, const fy_tensor_t *grad, fy_tensor_t *square_avg,
                              const fy_tensor_t *lr, const fy_rmsprop_attrs_t *attrs);
/* s as above, b = momentum b + g / (sqrt(s) + eps), param -= lr b; b is `momentum`, 0 at first. */
FY_API_STATUS fy_rmsprop_momentum_step(fy_tensor_t *param, const fy_tensor_t *grad,
                                       fy_tensor_t *square_avg, fy_tensor_t *momentum,
                                       const fy_tensor_t *lr, const fy_rmsprop_attrs_t *attrs);

/* m = alpha m + (1 - alpha) g, and sqrt(s - m^2), not below 0, for sqrt(s); m is grad_avg. */
FY_API_STATUS fy_rmsprop_centered_step(fy_tensor_t *param, const fy_tensor_t *grad,
                                       fy_tensor_t *square_avg, fy_tensor_t *grad_avg,
                                       const fy_tensor_t *lr, const fy_rmsprop_attrs_t *attrs);

/* parts: a third source of every step (others than these two: by fy_op_call), f64 [P, 3]. Row i is
 * (first element, factor of lr, factor of weight_decay) of part i; elements count in row-major
 * order, first elements ascend from 0. NULL: one part, factors of 1. `scaling` is a fourth source,
 * by fy_op_call: gradients are divided by its divisor; after found, nothing changes.
 * trust, f64 [P, 1 + 2 R], gets the ratio of each part and, for its R runs, two sums of squares.
 * Their order is the same for any device and threads. A part has ratio 1 if its factor of
 * weight_decay is 0 (biases, usually) or one of the norms. Cost: reads the parameter twice.
 *
 * ratio = trust_coefficient |param| / (|grad| + weight_decay |param| + eps), b = momentum b + lr
 * ratio (grad + weight_decay param), param -= b; b is `momentum`, 0 at first (You, Gitman, Ginsburg
 * 2017, where eps is 0). attrs NULL: FY_LARS_ATTRS_INIT (0.9, 0.001, 1e-8, no decay). */
FY_API_STATUS fy_lars_step(fy_tensor_t *param, const fy_tensor_t *grad, fy_tensor_t *momentum,
                           fy_tensor_t *trust, const fy_tensor_t *parts, const fy_tensor_t *lr,
                           const fy_lars_attrs_t *attrs);
/* m, v, t as in fy_adam_step, with g = grad; u = m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) +
 * eps) + weight_decay param, ratio = |param| / |u|, param -= lr ratio u (You et al. 2020, with the
 * identity as phi). attrs NULL: FY_LAMB_ATTRS_INIT (0.9, 0.999, 1e-6, no decay). */
FY_API_STATUS fy_lamb_step(fy_tensor_t *param, const fy_tensor_t *grad, fy_tensor_t *exp_avg,
                           fy_tensor_t *exp_avg_sq, fy_tensor_t *trust, fy_tensor_t *step_number,
                           const fy_tensor_t *parts, const fy_tensor_t *lr,
                           const fy_lamb_attrs_t *attrs);

/* ---- images: activations NHWC, weights OHWI; float ---- */

/* A cross-correlation; x is 0 outside the image: y[n, oh, ow, o] = bias[o] + sum over kh, kw, c of
 * w[o, kh, kw, c] * x[n, oh * stride_h - padding_h + kh * dilation_h, (w alike), c].
 * x [N, H, W, C], w [O, KH, KW, C / groups], bias [O] or NULL -> [N, OH, OW, O]; OH: docs/ops.md,
 * "Images". f16 and bf16 accumulate in f32 or better.
 * attrs NULL: FY_CONV2D_ATTRS_INIT; attrs->activation: RELU or NONE.
 * Fails: SHAPE_MISMATCH, INVALID_ARGUMENT (a stride, dilation or groups below 1, another
 * activation). */
FY_API_STATUS fy_conv2d(const fy_tensor_t *x, const fy_tensor_t *w, const fy_tensor_t *bias,
                        const fy_conv2d_attrs_t *attrs, fy_tensor_t **out_dst);
/* The gradient of a conv2d with respect to its input: dy [N, OH, OW, O], w as there -> dx [N,
 * height, width, C]. attrs as in the conv2d; height and width are x's (with a stride, several sizes
 * give one OH). Used alone it is a transposed convolution.
 * Here and below, dy is the gradient before the activation: call fy_relu_backward(dy, y) first;
 * attrs->activation is ignored. */
FY_API_STATUS fy_conv2d_backward_input(const fy_tensor_t *dy, const fy_tensor_t *w,
                                       const fy_conv2d_attrs_t *attrs, int height, int width,
                                       fy_tensor_t **out_dx);
/* With respect to its weights: dy [N, OH, OW, O], x [N, H, W, C] -> dw [O, height, width, C /
 * groups]; height and width are the kernel's. The bias's gradient is fy_sum(dy) over axes 0, 1,
 * 2. */
FY_API_STATUS fy_conv2d_backward_weight(const fy_tensor_t *dy, const fy_tensor_t *x,
                                        const fy_conv2d_attrs_t *attrs, int height, int width,
                                        fy_tensor_t **out_dw);
/* Weight and bias gradient in one request, which reads dy once: *out_dw as above, *out_db [O] is dy
 * summed over axes 0, 1, 2. */
FY_API_STATUS fy_conv2d_backward_params(const fy_tensor_t *dy, const fy_tensor_t *x,
                                        const fy_conv2d_attrs_t *attrs, int height, int width,
                                        fy_tensor_t **out_dw, fy_tensor_t **out_db);

/* The largest element of each window, for each channel: x [N, H, W, C] -> [N, OH, OW, C], OH =
 * floor((H + 2 padding_h - kernel_h) / stride_h) + 1; attrs->ceil_mode 1: ceil for floor, less one
 * if the last window would begin behind row H - 1. Padding is never the largest element; it must be
 * less than the kernel (PyTorch: at most half), and with H or W less than 2^31. stride 0 means the
 * kernel's size. attrs->activation RELU pools relu(x): one pass over x instead of three, and the
 * tape saves only x. For the mean over all pixels call fy_mean over axes 1 and 2.
 * Fails: INVALID_ARGUMENT (no kernel, a flag of averages, another activation), SHAPE_MISMATCH. */
FY_API_STATUS fy_max_pool2d(const fy_tensor_t *x, const fy_pool2d_attrs_t *attrs,
                            fy_tensor_t **out_dst);
/* Adds each element of dy at the largest element of its window in x; of equal elements, or of NaNs,
 * at the first (row by row). -> x's shape. */
FY_API_STATUS fy_max_pool2d_backward(const fy_tensor_t *dy, const fy_tensor_t *x,
                                     const fy_pool2d_attrs_t *attrs, fy_tensor_t **out_dx);
/* The mean of each window. Padding counts as zeros; what a window of ceil_mode has beyond the
 * padding does not count. attrs->count_excludes_padding 1 (PyTorch: count_include_pad=False):
 * padding does not count either. Shapes as in fy_max_pool2d. */
FY_API_STATUS fy_avg_pool2d(const fy_tensor_t *x, const fy_pool2d_attrs_t *attrs,
                            fy_tensor_t **out_dst);
/* dy [N, OH, OW, C] -> dx [N, height, width, C]: adds each element of dy, divided as in
 * fy_avg_pool2d, to its whole window. With attrs->activation RELU, x is required, and dx is 0 where
 * x is 0 or less; else x must be NULL (INVALID_ARGUMENT). */
FY_API_STATUS fy_avg_pool2d_backward(const fy_tensor_t *dy, const fy_tensor_t *x,
                                     const fy_pool2d_attrs_t *attrs, int height, int width,
                                     fy_tensor_t **out_dx);

/* ---- normalisation ----
 * Range: |x - mean|, of rms_norm |x|, up to 5e17 in f32 and bf16, 1e150 in f64, any value in f16.
 * The host adds the squares in that dtype (f16, bf16: in f32), CUDA in f64. Where their sum is
 * infinite, rstd and the normalized values are 0, and no call fails. Where eps is 0 and all squares
 * are 0, rstd is infinite. */

/* x [..., C] with statistics of each channel over all other axes: y = activation((x - mean) * rstd
 * * weight + bias + residual), rstd = 1 / sqrt(variance + eps), variance = the mean of (x -
 * mean)^2. weight, bias, running_mean, running_var [C]; residual: x's shape, or NULL. Updates
 * running_mean = (1 - momentum) running_mean + momentum mean; running_var alike, with the variance
 * of divisor n - 1. The [C] operands have x's dtype or f32. attrs NULL: defaults. out_mean and
 * out_rstd [C], of weight's dtype, may be NULL; a tape takes all statistics as constants.
 * Fails: SHAPE_MISMATCH (also with less than two values a channel), INVALID_ARGUMENT. */
FY_API_STATUS fy_batch_norm(const fy_tensor_t *x, const fy_tensor_t *weight,
                            const fy_tensor_t *bias, const fy_tensor_t *residual,
                            fy_tensor_t *running_mean, fy_tensor_t *running_var,
                            const fy_batch_norm_attrs_t *attrs, fy_tensor_t **out_y,
                            fy_tensor_t **out_mean, fy_tensor_t **out_rstd);
/* Its gradients, from the mean and rstd that it returned. y: its result if its activation was relu
 * (dy is taken as 0 where y is 0), else NULL. The residual's gradient is dy or fy_relu_backward. */
FY_API_STATUS fy_batch_norm_backward(const fy_tensor_t *dy, const fy_tensor_t *x,
                                     const fy_tensor_t *weight, const fy_tensor_t *mean,
                                     const fy_tensor_t *rstd, const fy_tensor_t *y,
                                     fy_tensor_t **out_dx, fy_tensor_t **out_dweight,
                                     fy_tensor_t **out_dbias);
/* The same with running_mean and running_var, only read, in place of the batch's. */
FY_API_STATUS fy_batch_norm_inference(const fy_tensor_t *x, const fy_tensor_t *weight,
                                      const fy_tensor_t *bias, const fy_tensor_t *running_mean,
                                      const fy_tensor_t *running_var, const fy_tensor_t *residual,
                                      const fy_batch_norm_inference_attrs_t *attrs,
                                      fy_tensor_t **out_y);

/* Each row of x [..., C]: y = (x - mean) * rstd * weight + bias, rstd = 1 / sqrt(variance + eps),
 * variance = the mean of (x - mean)^2. weight, bias [C]; bias, or both, may be NULL. out_mean and
 * out_rstd [...] may be NULL; a tape takes them as constants. Fails: SHAPE_MISMATCH (also without
 * columns), INVALID_ARGUMENT. */
FY_API_STATUS fy_layer_norm(const fy_tensor_t *x, const fy_tensor_t *weight,
                            const fy_tensor_t *bias, double eps, fy_tensor_t **out_y,
                            fy_tensor_t **out_mean, fy_tensor_t **out_rstd);
/* Its gradients, from the mean and rstd that it returned. weight may be NULL. */
FY_API_STATUS fy_layer_norm_backward(const fy_tensor_t *dy, const fy_tensor_t *x,
                                     const fy_tensor_t *mean, const fy_tensor_t *rstd,
                                     const fy_tensor_t *weight, fy_tensor_t **out_dx,
                                     fy_tensor_t **out_dweight, fy_tensor_t **out_dbias);
/* x [N, ..., C], channels last: y = (x - mean) / sqrt(variance + eps) * weight + bias, with the
 * statistics of each sample and each of `groups` groups of C / groups channels (Group
 * Normalization, ECCV 2018). weight, bias [C]; either may be NULL. Made of copies, fy_layer_norm,
 * fy_mul and fy_add, which have gradients: up to nine requests, and temporaries of x's size. f16
 * and bf16 compute in f32 and round once. Fails: SHAPE_MISMATCH (also if a group has no element),
 * INVALID_ARGUMENT. */
FY_API_STATUS fy_group_norm(fy_tensor_t *x, int64_t groups, const fy_tensor_t *weight,
                            const fy_tensor_t *bias, double eps, fy_tensor_t **out_y);
/* Each row of x [..., C]: y = x * rstd * weight, rstd = 1 / sqrt(mean(x^2) + eps). weight [C] and
 * out_rstd may be NULL. */
FY_API_STATUS fy_rms_norm(const fy_tensor_t *x, const fy_tensor_t *weight, double eps,
                          fy_tensor_t **out_y, fy_tensor_t **out_rstd);
FY_API_STATUS fy_rms_norm_backward(const fy_tensor_t *dy, const fy_tensor_t *x,
                                   const fy_tensor_t *rstd, const fy_tensor_t *weight,
                                   fy_tensor_t **out_dx, fy_tensor_t **out_dweight);
/* x [N, H, W, C] -> [N, height, width, C], bilinear, without antialiasing: pixel i of the result is
 * at (i + 1/2) H / height - 1/2 of x, from 0 to H - 1 (PyTorch's align_corners=False). */
FY_API_STATUS fy_resize2d(const fy_tensor_t *x, int height, int width, fy_tensor_t **out_dst);
/* dy [N, OH, OW, C] -> dx [N, height, width, C]. */
FY_API_STATUS fy_resize2d_backward(const fy_tensor_t *dy, int height, int width,
                                   fy_tensor_t **out_dx);
/* x [N, H, W, C] -> [N, height, width, C]: the mean of rows floor(i H / height) to
 * ceil((i + 1) H / height) - 1 and of the columns alike (PyTorch's bins, which may overlap). */
FY_API_STATUS fy_adaptive_avg_pool2d(const fy_tensor_t *x, int height, int width,
                                     fy_tensor_t **out_dst);
/* dy [N, OH, OW, C] -> dx [N, height, width, C]. */
FY_API_STATUS fy_adaptive_avg_pool2d_backward(const fy_tensor_t *dy, int height, int width,
                                              fy_tensor_t **out_dx);

/* ---- moving elements on one device ---- */

/* dst[i..., :] = table[indices[i...], :]. table [R, ...] of any dtype, indices i32 or i64 of any
 * shape -> [indices' dims, ...]. An index outside 0 .. R-1 is clamped, and the request fails with
 * BAD_VALUE: a wait for its result reports it. */
FY_API_STATUS fy_gather(const fy_tensor_t *table, const fy_tensor_t *indices,
                        fy_tensor_t **out_dst);
/* The gradient of gather with respect to a table of `rows` rows: dy [indices' dims, ...] -> [rows,
 * ...], each row of dy added to the row at its index, in order; f32, f64. Faults as index_add. */
FY_API_STATUS fy_gather_backward(const fy_tensor_t *dy, const fy_tensor_t *indices, int64_t rows,
                                 fy_tensor_t **out_dx);
/* dst[..., i, ...] = src[..., indices[..., i, ...], ...] along `axis` (torch.gather). indices i32
 * or i64 have src's dims, but along `axis` any length. An index out of range is clamped and
 * fails the request with BAD_VALUE. If axis is not the last, the result is a transposed view.
 * Fails: INVALID_ARGUMENT, SHAPE_MISMATCH. */
FY_API_STATUS fy_take_along_axis(fy_tensor_t *src, fy_tensor_t *indices, int axis,
                                 fy_tensor_t **out_dst);
/* Its gradient along the last axis: dy, indices [..., k] -> [..., length], each dy added to the
 * element at its index, in order. An index out of range adds nothing and fails the request. */
FY_API_STATUS fy_take_along_axis_backward(const fy_tensor_t *dy, const fy_tensor_t *indices,
                                          int64_t length, fy_tensor_t **out_dx);
/* x [..., n], number -> values [..., k] of x's dtype and indices i64 [..., k]: the k largest of
 * each row, the largest first; of equals the one with the smaller index first. NaN is the largest.
 * Fails: INVALID_ARGUMENT (k below 1 or above n), SHAPE_MISMATCH (a scalar). */
FY_API_STATUS fy_topk(const fy_tensor_t *x, int64_t k, fy_tensor_t **out_values,
                      fy_tensor_t **out_indices);
/* indices i32 or i64 of any shape -> [indices' dims, classes] of any dtype: 1 where the last index
 * is the index, 0 elsewhere. An index outside 0 .. classes-1 is clamped and fails the request with
 * BAD_VALUE. Fails: INVALID_ARGUMENT (classes, dtype), SHAPE_MISMATCH. */
FY_API_STATUS fy_one_hot(const fy_tensor_t *indices, int64_t classes, fy_dtype_t dtype,
                         fy_tensor_t **out_dst);
/* Joins the `count` >= 1 tensors in `src` along `axis`; other dims and the dtypes must be equal. */
FY_API_STATUS fy_concat(size_t count, fy_tensor_t *const *src, int axis, fy_tensor_t **out_dst);
/* The same along a new axis before `axis` (0 .. rank, or negative from the end); equal shapes. */
FY_API_STATUS fy_stack(size_t count, fy_tensor_t *const *src, int axis, fy_tensor_t **out_dst);
/* Views of `count` >= 1 parts of `src` along `axis`, of lengths `sizes`, whose sum is the axis's
 * length; NULL: of equal lengths. Writes `count` handles to `out_views`. Fails: SHAPE_MISMATCH. */
FY_API_STATUS fy_split(fy_tensor_t *src, int axis, size_t count, const int64_t *sizes,
                       fy_tensor_t **out_views);
/* src with the order of its elements reversed along `axes`; naxes 0: along all. */
FY_API_STATUS fy_flip(const fy_tensor_t *src, int naxes, const int *axes, fy_tensor_t **out_dst);
/* src with begin[i] elements before it and end[i] behind it along axis i, each `value`. Both have
 * an entry >= 0 for each axis; at least one is above 0. Cost: a copy for each axis that grows.
 * Fails: INVALID_ARGUMENT (a negative entry, no entry above 0, a value that dtype cannot hold). */
FY_API_STATUS fy_pad(const fy_tensor_t *src, const int64_t *begin, const int64_t *end, double value,
                     fy_tensor_t **out_dst);

#ifdef __cplusplus
}
#endif
#endif
