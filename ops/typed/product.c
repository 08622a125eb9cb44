/* Typed calls of products (matmul, linear), of convolution and pooling, and of their gradients.
 * Not here: whether shapes fit (shape_linalg.c, shape_image.c), GEMM (the host uses oneDNN, cuda
 * uses cuBLASLt), the loops (backends/kernels/conv*.c). */
#include <string.h>

#include "ops/typed/typed.h"

fy_status_t fy_matmul(const fy_tensor_t *a, const fy_tensor_t *b, fy_tensor_t **out_dst)
{
    const fy_tensor_t *src[2] = { a, b };
    const fy_matmul_attrs_t attrs = { 0, 0 };
    return fy__op_new(FY_OP_MATMUL, 2, src, &attrs, out_dst);
}

fy_status_t fy_linear(const fy_tensor_t *x, const fy_tensor_t *w, const fy_tensor_t *bias,
                      fy_activation_t activation, fy_tensor_t **out_dst)
{
    const fy_tensor_t *src[3] = { x, w, bias };
    const fy_linear_attrs_t attrs = { (int32_t)activation };
    return fy__op_new(FY_OP_LINEAR, bias ? 3 : 2, src, &attrs, out_dst);
}

fy_status_t fy_linear_backward_params(const fy_tensor_t *dy, const fy_tensor_t *x,
                                      fy_tensor_t **out_dw, fy_tensor_t **out_db)
{
    const fy_tensor_t *src[2] = { dy, x };
    fy_tensor_t **const outs[2] = { out_dw, out_db };
    return fy__typed_results(FY_OP_LINEAR_BACKWARD_PARAMS, 2, src, NULL, 2, 2, outs);
}

/* ---- images ---- */

static const fy_conv2d_attrs_t k_plain = FY_CONV2D_ATTRS_INIT;
static const fy_pool2d_attrs_t k_no_window; /* the shape rule says what is missing */

fy_status_t fy_conv2d(const fy_tensor_t *x, const fy_tensor_t *w, const fy_tensor_t *bias,
                      const fy_conv2d_attrs_t *attrs, fy_tensor_t **out_dst)
{
    const fy_tensor_t *src[3] = { x, w, bias };
    return fy__op_new(FY_OP_CONV2D, bias ? 3 : 2, src, attrs ? attrs : &k_plain, out_dst);
}

static fy_conv2d_backward_attrs_t backward_attrs(const fy_conv2d_attrs_t *attrs, int height,
                                                 int width)
{
    if (!attrs) attrs = &k_plain;
    return (fy_conv2d_backward_attrs_t){ attrs->stride_h,
                                         attrs->stride_w,
                                         attrs->padding_h,
                                         attrs->padding_w,
                                         attrs->dilation_h,
                                         attrs->dilation_w,
                                         attrs->groups,
                                         height,
                                         width };
}

static fy_status_t backward(fy_op_t op, const fy_tensor_t *dy, const fy_tensor_t *other,
                            const fy_conv2d_attrs_t *attrs, int height, int width,
                            fy_tensor_t **out_dst)
{
    const fy_tensor_t *src[2] = { dy, other };
    const fy_conv2d_backward_attrs_t all = backward_attrs(attrs, height, width);
    return fy__op_new(op, 2, src, &all, out_dst);
}

fy_status_t fy_conv2d_backward_input(const fy_tensor_t *dy, const fy_tensor_t *w,
                                     const fy_conv2d_attrs_t *attrs, int height, int width,
                                     fy_tensor_t **out_dx)
{
    return backward(FY_OP_CONV2D_BACKWARD_INPUT, dy, w, attrs, height, width, out_dx);
}

fy_status_t fy_conv2d_backward_weight(const fy_tensor_t *dy, const fy_tensor_t *x,
                                      const fy_conv2d_attrs_t *attrs, int height, int width,
                                      fy_tensor_t **out_dw)
{
    return backward(FY_OP_CONV2D_BACKWARD_WEIGHT, dy, x, attrs, height, width, out_dw);
}

fy_status_t fy_conv2d_backward_params(const fy_tensor_t *dy, const fy_tensor_t *x,
                                      const fy_conv2d_attrs_t *attrs, int height, int width,
                                      fy_tensor_t **out_dw, fy_tensor_t **out_db)
{
    const fy_tensor_t *src[2] = { dy, x };
    const fy_conv2d_backward_attrs_t all = backward_attrs(attrs, height, width);
    fy_tensor_t **const outs[2] = { out_dw, out_db };
    return fy__typed_results(FY_OP_CONV2D_BACKWARD_PARAMS, 2, src, &all, 2, 2, outs);
}

/* ---- pooling ---- */

fy_status_t fy_max_pool2d(const fy_tensor_t *x, const fy_pool2d_attrs_t *attrs,
                          fy_tensor_t **out_dst)
{
    return fy__op_new(FY_OP_MAX_POOL2D, 1, &x, attrs ? attrs : &k_no_window, out_dst);
}

fy_status_t fy_max_pool2d_backward(const fy_tensor_t *dy, const fy_tensor_t *x,
                                   const fy_pool2d_attrs_t *attrs, fy_tensor_t **out_dx)
{
    const fy_tensor_t *src[2] = { dy, x };
    return fy__op_new(FY_OP_MAX_POOL2D_BACKWARD, 2, src, attrs ? attrs : &k_no_window, out_dx);
}

fy_status_t fy_avg_pool2d(const fy_tensor_t *x, const fy_pool2d_attrs_t *attrs,
                          fy_tensor_t **out_dst)
{
    return fy__op_new(FY_OP_AVG_POOL2D, 1, &x, attrs ? attrs : &k_no_window, out_dst);
}

fy_status_t fy_avg_pool2d_backward(const fy_tensor_t *dy, const fy_tensor_t *x,
                                   const fy_pool2d_attrs_t *attrs, int height, int width,
                                   fy_tensor_t **out_dx)
{
    const fy_tensor_t *src[2] = { dy, x };
    if (!attrs) attrs = &k_no_window;
    fy_pool2d_backward_attrs_t all = { .height = height, .width = width };
    memcpy(&all, attrs, sizeof *attrs); /* they begin alike: ops/tape/rules_image.c */
    return fy__op_new(FY_OP_AVG_POOL2D_BACKWARD, x ? 2 : 1, src, &all, out_dx);
}

/* ---- images of another size ---- */

#define RESAMPLING(ENUM, name, argument)                                      \
    fy_status_t fy_##name(const fy_tensor_t *argument, int height, int width, \
                          fy_tensor_t **out_dst)                              \
    {                                                                         \
        const fy_image_size_attrs_t attrs = { height, width };                \
        return fy__op_new(FY_OP_##ENUM, 1, &(argument), &attrs, out_dst);     \
    }
RESAMPLING(RESIZE2D, resize2d, x)
RESAMPLING(RESIZE2D_BACKWARD, resize2d_backward, dy)
RESAMPLING(ADAPTIVE_AVG_POOL2D, adaptive_avg_pool2d, x)
RESAMPLING(ADAPTIVE_AVG_POOL2D_BACKWARD, adaptive_avg_pool2d_backward, dy)

/* ---- attention ---- */

fy_status_t fy_scaled_dot_product_attention(const fy_tensor_t *q, const fy_tensor_t *k,
                                            const fy_tensor_t *v, const fy_tensor_t *mask,
                                            const fy_attention_attrs_t *attrs, fy_tensor_t **out_y,
                                            fy_tensor_t **out_lse)
{
    const fy_tensor_t *src[4] = { q, k, v, mask };
    fy_tensor_t **const outs[2] = { out_y, out_lse };
    return fy__typed_results(FY_OP_SCALED_DOT_PRODUCT_ATTENTION, mask ? 4 : 3, src, attrs, 1, 2,
                             outs);
}

fy_status_t fy_scaled_dot_product_attention_backward(const fy_tensor_t *dy, const fy_tensor_t *q,
                                                     const fy_tensor_t *k, const fy_tensor_t *v,
                                                     const fy_tensor_t *y, const fy_tensor_t *lse,
                                                     const fy_tensor_t *mask,
                                                     const fy_attention_attrs_t *attrs,
                                                     fy_tensor_t **out_dq, fy_tensor_t **out_dk,
                                                     fy_tensor_t **out_dv)
{
    const fy_tensor_t *src[7] = { dy, q, k, v, y, lse, mask };
    fy_tensor_t **const outs[3] = { out_dq, out_dk, out_dv };
    return fy__typed_results(FY_OP_SCALED_DOT_PRODUCT_ATTENTION_BACKWARD, mask ? 7 : 6, src, attrs,
                             3, 3, outs);
}
