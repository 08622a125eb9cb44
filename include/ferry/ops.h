/* Typed calls, one per op. Each does what fy_op_call would with the same tensors, and fails as that
 * says.
 *
 * Common to all: results are new tensors on the sources' device, dense and row-major, owned by the
 * current scope (or you);
 * sources are only read. Requests are asynchronous; later requests wait by themselves. All tensors
 * of a call live on one device and (unless said otherwise) have one dtype: nothing is promoted,
 * nothing is moved. Elementwise calls broadcast as NumPy does.
 * One tensor may stand for several sources, and one variable may be source and result: fy_add(x, x,
 * &x) (the old handle is then its scope's). Zero-size tensors are legal everywhere. f16 and bf16
 * compute in f32 and round once. NaN propagates, through maximum, max and relu too. "float" below
 * means f32, f64, f16, bf16; "number" means those and i32, i64, u8; integers wrap around. */
#ifndef FERRY_OPS_H_
#define FERRY_OPS_H_

#include <ferry/op.h>
#include <ferry/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- making tensors on a device: nothing crosses ---- */

/* Contents undefined: fy_tensor_create by the name that NumPy users know. */
FY_API_STATUS fy_empty(fy_device_t *device, fy_dtype_t dtype, int rank, const int64_t *dims,
                       fy_tensor_t **out_dst);
FY_API_STATUS fy_zeros(fy_device_t *device, fy_dtype_t dtype, int rank, const int64_t *dims,
                       fy_tensor_t **out_dst);
/* Every element is `value`. Fails: INVALID_ARGUMENT (an integer dtype cannot hold it). */
FY_API_STATUS fy_full(fy_device_t *device, fy_dtype_t dtype, int rank, const int64_t *dims,
                      double value, fy_tensor_t **out_dst);
/* dst[i] = start + i * step, i < count; number. */
FY_API_STATUS fy_arange(fy_device_t *device, fy_dtype_t dtype, double start, double step,
                        int64_t count, fy_tensor_t **out_dst);

/* A random state on `device`: an i64 tensor [2] {seed, counter}. The draws below read it on the
 * device and advance it there, so a program that replays them needs no host. Same seed and same
 * draws, same bits, on every backend (Philox4x32-10: Salmon et al. 2011). */
FY_API_STATUS fy_rng_create(fy_device_t *device, int64_t seed, fy_tensor_t **out_rng);
/* Uniform in [low, high); float. */
FY_API_STATUS fy_rand(fy_tensor_t *rng, fy_dtype_t dtype, int rank, const int64_t *dims, double low,
                      double high, fy_tensor_t **out_dst);
/* Normal (Box-Muller); float. Bits may differ between backends in the last place (their log and
 * cos). */
FY_API_STATUS fy_randn(fy_tensor_t *rng, fy_dtype_t dtype, int rank, const int64_t *dims,
                       double mean, double std, fy_tensor_t **out_dst);
/* A random order of 0 .. count-1 (count < 2^32), i64 [count]; each element is computed on its own
 * (a keyed Feistel network with cycle walking: Black and Rogaway 2002). */
FY_API_STATUS fy_randperm(fy_tensor_t *rng, int64_t count, fy_tensor_t **out_dst);

/* Each element of src is 0 with probability p, else src / (1 - p); float, p in 0 .. 1. p 1 gives
 * zeros, whatever src is. As an op it has three results that are all given: dst, rng, and an i64
 * [2] that gets the state as it was before, which is all that its gradient keeps of the draw.
 * Fails: INVALID_ARGUMENT (p). Source: Srivastava et al. 2014; which element takes which random
 * bits stands in docs/ops.md. Cost: a Philox block for four elements. */
FY_API_STATUS fy_dropout(fy_tensor_t *rng, const fy_tensor_t *src, double p, fy_tensor_t **out_dst);
/* The same for whole channels: src [N, H, W, C], one draw for each (n, c). */
FY_API_STATUS fy_dropout2d(fy_tensor_t *rng, const fy_tensor_t *src, double p,
                           fy_tensor_t **out_dst);
/* Their gradients: dy dropped and scaled as src was. state: i64 [2], the random state before the
 * draw; it is only read. */
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

/* ---- elementwise, one source ---- */

FY_API_STATUS fy_neg(const fy_tensor_t *src, fy_tensor_t **out_dst); /* number */
FY_API_STATUS fy_abs(const fy_tensor_t *src, fy_tensor_t **out_dst); /* number */
/* float, as are the next five */
FY_API_STATUS fy_exp(const fy_tensor_t *src, fy_tensor_t **out_dst);
FY_API_STATUS fy_log(const fy_tensor_t *src, fy_tensor_t **out_dst);
FY_API_STATUS fy_sqrt(const fy_tensor_t *src, fy_tensor_t **out_dst);
FY_API_STATUS fy_tanh(const fy_tensor_t *src, fy_tensor_t **out_dst);
FY_API_STATUS fy_sigmoid(const fy_tensor_t *src, fy_tensor_t **out_dst); /* 1 / (1 + exp(-x)) */
FY_API_STATUS fy_relu(const fy_tensor_t *src, fy_tensor_t **out_dst);    /* max(x, 0) */
/* Activations: float. Of -inf, silu and gelu are NaN, as 0 * inf. */
FY_API_STATUS fy_relu6(const fy_tensor_t *src, fy_tensor_t **out_dst); /* min(max(x, 0), 6) */
/* min(max(x + 3, 0), 6) / 6 */
FY_API_STATUS fy_hardsigmoid(const fy_tensor_t *src, fy_tensor_t **out_dst);
/* 0 below -3, x above 3, else x * (x + 3) / 6 */
FY_API_STATUS fy_hardswish(const fy_tensor_t *src, fy_tensor_t **out_dst);
FY_API_STATUS fy_silu(const fy_tensor_t *src, fy_tensor_t **out_dst); /* x * sigmoid(x) */
/* x * (1 + erf(x / sqrt(2))) / 2: not the tanh form */
FY_API_STATUS fy_gelu(const fy_tensor_t *src, fy_tensor_t **out_dst);
FY_API_STATUS fy_erf(const fy_tensor_t *src, fy_tensor_t **out_dst);
/* Gradients of these activations: dy times the slope at x. At a kink the slope is 0 for relu, relu6
 * and hardsigmoid; for hardswish it is 0 at -3 and 1 at 3. The slope of hardsigmoid at NaN is 0.
 * All edge values: docs/ops.md. */
FY_API_STATUS fy_relu_backward(const fy_tensor_t *dy, const fy_tensor_t *x, fy_tensor_t **out_dx);
FY_API_STATUS fy_relu6_backward(const fy_tensor_t *dy, const fy_tensor_t *x, fy_tensor_t **out_dx);
FY_API_STATUS fy_hardsigmoid_backward(const fy_tensor_t *dy, const fy_tensor_t *x,
                                      fy_tensor_t **out_dx);
FY_API_STATUS fy_hardswish_backward(const fy_tensor_t *dy, const fy_tensor_t *x,
                                    fy_tensor_t **out_dx);
FY_API_STATUS fy_silu_backward(const fy_tensor_t *dy, const fy_tensor_t *x, fy_tensor_t **out_dx);
FY_API_STATUS fy_gelu_backward(const fy_tensor_t *dy, const fy_tensor_t *x, fy_tensor_t **out_dx);
/* Those of fy_tanh and fy_sigmoid, from dy and the result y, which is what there is to keep: dy (1
 * - y^2), dy y (1 - y). */
FY_API_STATUS fy_tanh_backward(const fy_tensor_t *dy, const fy_tensor_t *y, fy_tensor_t **out_dx);
FY_API_STATUS fy_sigmoid_backward(const fy_tensor_t *dy, const fy_tensor_t *y,
                                  fy_tensor_t **out_dx);
/* scale * x + shift; float. The scalars are passed by value: they have no device. */
FY_API_STATUS fy_affine(const fy_tensor_t *src, double scale, double shift, fy_tensor_t **out_dst);
/* min(max(x, low), high); float; NaN stays. One of the bounds may be infinite. Where x is a bound,
 * its gradient passes.
 * Fails: INVALID_ARGUMENT (low above high). */
FY_API_STATUS fy_clamp(const fy_tensor_t *src, double low, double high, fy_tensor_t **out_dst);
/* Another dtype, any to any. To a narrower float: rounds to nearest even. Float to integer:
 * truncates, clamps to the range, NaN is 0.
 * To bool: not equal to 0. */
FY_API_STATUS fy_cast(const fy_tensor_t *src, fy_dtype_t dtype, fy_tensor_t **out_dst);

/* ---- elementwise, two sources ---- */

/* number */
FY_API_STATUS fy_add(const fy_tensor_t *a, const fy_tensor_t *b, fy_tensor_t **out_dst);
/* number */
FY_API_STATUS fy_sub(const fy_tensor_t *a, const fy_tensor_t *b, fy_tensor_t **out_dst);
/* number */
FY_API_STATUS fy_mul(const fy_tensor_t *a, const fy_tensor_t *b, fy_tensor_t **out_dst);
/* float */
FY_API_STATUS fy_div(const fy_tensor_t *a, const fy_tensor_t *b, fy_tensor_t **out_dst);
/* number */
FY_API_STATUS fy_maximum(const fy_tensor_t *a, const fy_tensor_t *b, fy_tensor_t **out_dst);
/* number */
FY_API_STATUS fy_minimum(const fy_tensor_t *a, const fy_tensor_t *b, fy_tensor_t **out_dst);
/* float; as C's pow */
FY_API_STATUS fy_pow(const fy_tensor_t *a, const fy_tensor_t *b, fy_tensor_t **out_dst);
/* Comparisons: any dtype in, bool out; false where an operand is NaN, but ne is true. */
FY_API_STATUS fy_eq(const fy_tensor_t *a, const fy_tensor_t *b, fy_tensor_t **out_dst);
FY_API_STATUS fy_ne(const fy_tensor_t *a, const fy_tensor_t *b, fy_tensor_t **out_dst);
FY_API_STATUS fy_lt(const fy_tensor_t *a, const fy_tensor_t *b, fy_tensor_t **out_dst);
FY_API_STATUS fy_le(const fy_tensor_t *a, const fy_tensor_t *b, fy_tensor_t **out_dst);
FY_API_STATUS fy_gt(const fy_tensor_t *a, const fy_tensor_t *b, fy_tensor_t **out_dst);
FY_API_STATUS fy_ge(const fy_tensor_t *a, const fy_tensor_t *b, fy_tensor_t **out_dst);
/* cond ? a : b; cond is bool, a and b of one dtype, any; all three broadcast. */
FY_API_STATUS fy_where(const fy_tensor_t *cond, const fy_tensor_t *a, const fy_tensor_t *b,
                       fy_tensor_t **out_dst);

/* ---- reductions: over `naxes` axes (negative counts from the end); naxes 0 is all of them;
 * keepdims keeps them with length 1 ---- */

FY_API_STATUS fy_sum(const fy_tensor_t *src, int naxes, const int *axes, int keepdims,
                     fy_tensor_t **out_dst); /* integers and bool give i64; of nothing: 0 */
/* float; of nothing: NaN */
FY_API_STATUS fy_mean(const fy_tensor_t *src, int naxes, const int *axes, int keepdims,
                      fy_tensor_t **out_dst);
FY_API_STATUS fy_max(const fy_tensor_t *src, int naxes, const int *axes, int keepdims,
                     fy_tensor_t **out_dst); /* number; of nothing: SHAPE_MISMATCH */
FY_API_STATUS fy_min(const fy_tensor_t *src, int naxes, const int *axes, int keepdims,
                     fy_tensor_t **out_dst); /* number; of nothing: SHAPE_MISMATCH */
/* Index (i64) of the largest element along `axis`; the first one of equals; of a NaN if there is
 * one. number. */
FY_API_STATUS fy_argmax(const fy_tensor_t *src, int axis, int keepdims, fy_tensor_t **out_dst);

/* sqrt(sum of squares), the 2-norm; float; sums in f64, whose range squares must not leave; of
 * nothing: 0. */
FY_API_STATUS fy_norm(const fy_tensor_t *src, int naxes, const int *axes, int keepdims,
                      fy_tensor_t **out_dst);

/* ---- linear algebra and losses; float ---- */

/* (..., M, K) x (..., K, N) -> (..., M, N); the leading axes broadcast. Transposed views are read
 * where they lie, not copied.
 * f16 and bf16 accumulate in f32. Source: the host uses oneDNN, and loops of its own below 32^3
 * multiplications; cuda uses cuBLASLt. */
FY_API_STATUS fy_matmul(const fy_tensor_t *a, const fy_tensor_t *b, fy_tensor_t **out_dst);
/* activation(x w^T + bias): x [..., I], w [O, I], bias [O] or NULL -> [..., O], in one request.
 * FY_ACTIVATION_NONE leaves the last part out.
 * Rounds once: also f16 and bf16, which add up in f32 or better. Going back, NONE and RELU cost the
 * least; GELU computes what it was applied to a second time, so that nothing more is kept. Fails:
 * SHAPE_MISMATCH, INVALID_ARGUMENT (an activation that there is not).
 * Source: the host uses oneDNN, cuda the epilogues of cuBLASLt. */
FY_API_STATUS fy_linear(const fy_tensor_t *x, const fy_tensor_t *w, const fy_tensor_t *bias,
                        fy_activation_t activation, fy_tensor_t **out_dst);
/* Its gradients with respect to w and bias, without activation: dy [N, O], x [N, I] -> dw = dy^T x
 * [O, I], db = dy summed over N [O]. That with respect to x is fy_matmul(dy, w). */
FY_API_STATUS fy_linear_backward_params(const fy_tensor_t *dy, const fy_tensor_t *x,
                                        fy_tensor_t **out_dw, fy_tensor_t **out_db);
/* exp(x - max) / sum(exp(x - max)) along `axis`. */
FY_API_STATUS fy_softmax(const fy_tensor_t *src, int axis, fy_tensor_t **out_dst);
/* x - max - log(sum(exp(x - max))) along `axis`. */
FY_API_STATUS fy_log_softmax(const fy_tensor_t *src, int axis, fy_tensor_t **out_dst);
/* mean((pred - target)^2), rank 0. The shapes must be equal: no broadcast, which would hide
 * mistakes here. */
FY_API_STATUS fy_mse_loss(const fy_tensor_t *pred, const fy_tensor_t *target,
                          fy_tensor_t **out_loss);

/* Gradients of the three above, a launch each. dy and the result y have one shape: y (dy - sum(dy
 * y)) and dy - exp(y) sum(dy), sums along `axis`. mse_loss's: dy 2 (pred - target) / n with respect
 * to pred, dy rank 0; with pred and target exchanged, to target. */
FY_API_STATUS fy_softmax_backward(const fy_tensor_t *dy, const fy_tensor_t *y, int axis,
                                  fy_tensor_t **out_dx);
FY_API_STATUS fy_log_softmax_backward(const fy_tensor_t *dy, const fy_tensor_t *y, int axis,
                                      fy_tensor_t **out_dx);
FY_API_STATUS fy_mse_loss_backward(const fy_tensor_t *dy, const fy_tensor_t *pred,
                                   const fy_tensor_t *target, fy_tensor_t **out_dx);

/* Losses of classifiers: row i of log_probs or logits [N, C] (float) against its class targets[i],
 * i32 or i64 [N]. `reduction` of the N losses: FY_REDUCTION_MEAN or _SUM gives rank 0, _NONE gives
 * [N]; the mean of none is NaN. A class outside 0 .. C-1 is clamped and fails the request with
 * BAD_VALUE: whoever waits for the result is told. Names and values are PyTorch's. Losses add up in
 * f64. */

/* -log_probs[i, targets[i]]. */
FY_API_STATUS fy_nll_loss(const fy_tensor_t *log_probs, const fy_tensor_t *targets,
                          fy_reduction_t reduction, fy_tensor_t **out_loss);
/* -log_softmax(logits)[i, targets[i]], in one pass over the logits and as safe: log(sum(exp(x -
 * max))) + max - x[targets[i]]. */
FY_API_STATUS fy_cross_entropy(const fy_tensor_t *logits, const fy_tensor_t *targets,
                               fy_reduction_t reduction, fy_tensor_t **out_loss);
/* Their gradients [N, C], a launch each. dy: of the loss, rank 0 ([N] with _NONE). nll_loss's is
 * -dy (_MEAN: / N) at the target and 0 elsewhere; log_probs had `classes` columns. cross_entropy's
 * is dy (_MEAN: / N) * (softmax(logits) - 1 at the target). */
FY_API_STATUS fy_nll_loss_backward(const fy_tensor_t *dy, const fy_tensor_t *targets, int classes,
                                   fy_reduction_t reduction, fy_tensor_t **out_dx);
FY_API_STATUS fy_cross_entropy_backward(const fy_tensor_t *dy, const fy_tensor_t *logits,
                                        const fy_tensor_t *targets, fy_reduction_t reduction,
                                        fy_tensor_t **out_dx);

/* ---- training: in place, on the device; nothing comes down ---- A step updates the parameter and
 * its state, dense or not, of one shape and dtype, f32 or f64; what lies in one flat block is
 * updated by one request. `grad` is like `param`. `lr` is a scalar, f32 or f64, and `step_number`
 * an i64 scalar that each step advances by one: device tensors, so that a recorded step can be
 * replayed. States begin with zeros, step numbers with 0. Arithmetic is that of the parameter's
 * dtype, factors that all elements share are worked out in f64. Gradients are not zeroed.
 * Fail: SHAPE_MISMATCH, DTYPE_MISMATCH, DEVICE_MISMATCH, INVALID_ARGUMENT (NULL, or an attribute
 * that cannot be: says which), BUSY (watched by the tape that records now). Formulas: PyTorch 1.13,
 * torch.optim. g: grad + weight_decay param. */

/* dst *= min(1, max_norm / (norm + 1e-6)), as torch.nn.utils.clip_grad_norm_: `norm`, of dst's
 * dtype, broadcasts to dst; a scalar for all of it. fy_norm computes one. A NaN for a norm makes
 * dst NaN. Fails: INVALID_ARGUMENT (max_norm not above 0). */
FY_API_STATUS fy_clip_by_norm(fy_tensor_t *dst, const fy_tensor_t *norm, double max_norm);
/* param -= lr g. attrs NULL: all 0. Fails also if attrs asks for momentum, which needs a place. */
FY_API_STATUS fy_sgd_step(fy_tensor_t *param, const fy_tensor_t *grad, const fy_tensor_t *lr,
                          const fy_sgd_attrs_t *attrs);
/* b = attrs.momentum b + (1 - dampening) g, in the first step b = g + attrs.momentum b; then param
 * -= lr b, or, nesterov, lr (g + attrs.momentum b) (Sutskever et al. 2013); b is `momentum`. attrs
 * NULL: all 0. */
FY_API_STATUS fy_sgd_momentum_step(fy_tensor_t *param, const fy_tensor_t *grad,
                                   fy_tensor_t *momentum, fy_tensor_t *step_number,
                                   const fy_tensor_t *lr, const fy_sgd_attrs_t *attrs);
/* m = beta1 m + (1 - beta1) g, v = beta2 v + (1 - beta2) g^2, t = step_number + 1;
 * param -= lr m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps) (Kingma and Ba 2015). decoupled:
 * g is grad, and param is first taken times 1 - lr weight_decay (AdamW: Loshchilov and Hutter
 * 2019). attrs NULL: FY_ADAM_ATTRS_INIT (0.9, 0.999, 1e-8, no decay). */
FY_API_STATUS fy_adam_step(fy_tensor_t *param, const fy_tensor_t *grad, fy_tensor_t *exp_avg,
                           fy_tensor_t *exp_avg_sq, fy_tensor_t *step_number, const fy_tensor_t *lr,
                           const fy_adam_attrs_t *attrs);
/* s = rho s + (1 - rho) g^2, u = sqrt(a + eps) / sqrt(s + eps) g, a = rho a + (1 - rho) u^2, param
 * -= lr u; s is square_avg, a acc_delta (Zeiler 2012). attrs NULL: FY_ADADELTA_ATTRS_INIT (0.9,
 * 1e-6, no decay). */
FY_API_STATUS fy_adadelta_step(fy_tensor_t *param, const fy_tensor_t *grad, fy_tensor_t *square_avg,
                               fy_tensor_t *acc_delta, const fy_tensor_t *lr,
                               const fy_adadelta_attrs_t *attrs);

/* ---- images: activations NHWC, weights OHWI; float ---- */

/* y[n, oh, ow, o] = bias[o] + sum over kh, kw, c of w[o, kh, kw, c] * x[n, oh * stride_h -
 * padding_h + kh * dilation_h, (w alike), c]:
 * a cross-correlation, as everywhere in the field; x is 0 outside the image. x [N, H, W, C], w [O,
 * KH, KW, C / groups], bias [O] or NULL -> [N, OH, OW, O], OH = floor((H + 2 padding_h - dilation_h
 * (KH - 1) - 1) / stride_h) + 1. With groups, output channel o sees only the channels of its own
 * group. attrs->activation RELU: max(y, 0), while y is at hand. attrs NULL: FY_CONV2D_ATTRS_INIT
 * (stride 1, no padding, dilation 1, one group, no activation). f16 and bf16 add up in f32 or
 * better. Fails: SHAPE_MISMATCH, INVALID_ARGUMENT (a stride, dilation or groups below 1, another
 * activation). Source: the host uses oneDNN for dense f32, and a plain loop for the rest; cuda an
 * implicit matrix product. Scratch on the host: the weights once more, in oneDNN's order. */
FY_API_STATUS fy_conv2d(const fy_tensor_t *x, const fy_tensor_t *w, const fy_tensor_t *bias,
                        const fy_conv2d_attrs_t *attrs, fy_tensor_t **out_dst);
/* The gradient of a conv2d with respect to its input: dy [N, OH, OW, O], w as there -> dx [N,
 * height, width, C]. attrs as in the conv2d;
 * height and width are x's (with a stride, several sizes give one OH). As an op of its own: a
 * transposed convolution. Here and below, dy is the gradient of what an activation was applied to:
 * fy_relu_backward(dy, y) first; attrs->activation is not looked at. */
FY_API_STATUS fy_conv2d_backward_input(const fy_tensor_t *dy, const fy_tensor_t *w,
                                       const fy_conv2d_attrs_t *attrs, int height, int width,
                                       fy_tensor_t **out_dx);
/* With respect to its weights: dy [N, OH, OW, O], x [N, H, W, C] -> dw [O, height, width, C /
 * groups]; height and width are the kernel's.
 * The bias' gradient is fy_sum(dy) over axes 0, 1, 2. */
FY_API_STATUS fy_conv2d_backward_weight(const fy_tensor_t *dy, const fy_tensor_t *x,
                                        const fy_conv2d_attrs_t *attrs, int height, int width,
                                        fy_tensor_t **out_dw);
/* The two in one request, which reads dy once: *out_dw as there, *out_db [O] is dy summed over axes
 * 0, 1, 2. */
FY_API_STATUS fy_conv2d_backward_params(const fy_tensor_t *dy, const fy_tensor_t *x,
                                        const fy_conv2d_attrs_t *attrs, int height, int width,
                                        fy_tensor_t **out_dw, fy_tensor_t **out_db);

/* The largest element of each window, a channel each: x [N, H, W, C] -> [N, OH, OW, C], OH =
 * floor((H + 2 padding_h - kernel_h) / stride_h) + 1;
 * pixels that do not fill a window are left out. Padding is never the largest element; it must be
 * less than the kernel (PyTorch: at most half). stride 0 is the kernel's size.
 * attrs->activation RELU pools relu(x): one pass over x instead of three, and the tape keeps x
 * alone. The mean over all pixels ("global average pooling") is fy_mean over axes 1 and 2. Fails:
 * INVALID_ARGUMENT (no kernel, another activation), SHAPE_MISMATCH. */
FY_API_STATUS fy_max_pool2d(const fy_tensor_t *x, const fy_pool2d_attrs_t *attrs,
                            fy_tensor_t **out_dst);
/* Each element of dy goes to the largest one of its window in x, of equals to the first (row by
 * row), of NaNs to the first. -> x's shape. */
FY_API_STATUS fy_max_pool2d_backward(const fy_tensor_t *dy, const fy_tensor_t *x,
                                     const fy_pool2d_attrs_t *attrs, fy_tensor_t **out_dx);
/* The sum of each window / (kernel_h * kernel_w): padding counts as zeros. Shapes as in
 * fy_max_pool2d. */
FY_API_STATUS fy_avg_pool2d(const fy_tensor_t *x, const fy_pool2d_attrs_t *attrs,
                            fy_tensor_t **out_dst);
/* dy [N, OH, OW, C] -> dx [N, height, width, C]: each element of dy / (kernel_h * kernel_w), to all
 * of its window. x is wanted with attrs->activation RELU, where it is 0 or less dx is 0; else it
 * must be NULL (INVALID_ARGUMENT). */
FY_API_STATUS fy_avg_pool2d_backward(const fy_tensor_t *dy, const fy_tensor_t *x,
                                     const fy_pool2d_attrs_t *attrs, int height, int width,
                                     fy_tensor_t **out_dx);

/* ---- moving elements about on one device ---- */

/* dst[i..., :] = table[indices[i...], :]. table [R, ...] of any dtype, indices i32 or i64 of any
 * shape -> [indices' dims, ...].
 * An index outside 0 .. R-1 is clamped and fails the request with BAD_VALUE: whoever waits for the
 * result is told. */
FY_API_STATUS fy_gather(const fy_tensor_t *table, const fy_tensor_t *indices,
                        fy_tensor_t **out_dst);
/* indices i32 or i64 of any shape -> [indices' dims, classes] of any dtype: 1 where the last index
 * is the index, 0 elsewhere. An index outside 0 .. classes-1 is clamped and fails the request with
 * BAD_VALUE. Fails: INVALID_ARGUMENT (classes, dtype), SHAPE_MISMATCH. */
FY_API_STATUS fy_one_hot(const fy_tensor_t *indices, int64_t classes, fy_dtype_t dtype,
                         fy_tensor_t **out_dst);
/* The `count` >= 1 tensors in `src`, one behind the other along `axis`; other dims and dtypes
 * equal. */
FY_API_STATUS fy_concat(size_t count, fy_tensor_t *const *src, int axis, fy_tensor_t **out_dst);

#ifdef __cplusplus
}
#endif
#endif
