/* Shape rules of what slides a window over images: conv2d, pooling, and their gradients; and of
 * images of another size. Activations are NHWC, weights OHWI.
 * The gradients get the source's size (attrs height, width), because with a stride several sizes
 * give the same result.
 * Not here: the loops (backends/kernels/conv*.c, pool.c). Next: typed/product.c. */
#include "ops/shape.h"

#include <inttypes.h>
#include <string.h>

#include "ops/format.h"
#include "runtime/base/fail.h"

/* A convolution as its three tensors say it is, whichever of them is the result. */
typedef struct conv {
    int64_t x[4], w[4], y[4];
} conv_t;

/* How often a window fits; -1: it is larger than the padded image. */
static int64_t window_count(int64_t size, int64_t kernel, int32_t stride, int32_t padding,
                            int32_t dilation)
{
    int64_t span;
    if (__builtin_mul_overflow(kernel - 1, (int64_t)dilation, &span)) return -1;
    if (__builtin_sub_overflow(size + 2 * (int64_t)padding - 1, span, &span) || span < 0) return -1;
    return span / stride + 1;
}

/* The sources: one dtype that the op takes, rank 4 each. */
static fy_status_t check_operands(const fy_op_info_t *info, const fy_launch_t *launch)
{
    static const char layout[2][16] = { "[N, H, W, C]", "[O, KH, KW, C]" };
    FY_TRY(fy__check_dtype(info, FY__SRC, 0, &launch->src[0], info->dtypes));
    for (int i = 1; i < launch->nsrc; i++) FY_TRY(fy__check_same_dtype(info, launch, 0, i));
    for (int i = 0; i < 2; i++) {
        const bool is_weight = i == 1 && launch->op != FY_OP_CONV2D_BACKWARD_WEIGHT;
        if (launch->src[i].rank != 4)
            return FY_FAIL(SHAPE_MISMATCH, "%s: %s is %s, it needs rank 4: %s", info->name,
                           FY__SRC_TEXT(info->name, i), FY__DESC_TEXT(&launch->src[i]),
                           layout[is_weight]);
    }
    return FY_STATUS_OK;
}

/* The rules that hold between x, w and y. y's first three dims are computed, or compared if `given`
 * (y is a source). */
static fy_status_t check_conv(const fy_op_info_t *info, const fy_conv2d_attrs_t *attrs,
                              conv_t *conv, bool given)
{
    const int64_t *x = conv->x, *w = conv->w;
    if (w[1] < 1 || w[2] < 1)
        return FY_FAIL(SHAPE_MISMATCH, "%s: a kernel of %" PRId64 " x %" PRId64 " has no elements",
                       info->name, w[1], w[2]);
    if (w[0] % attrs->groups != 0 || x[3] % attrs->groups != 0)
        return FY_FAIL(SHAPE_MISMATCH,
                       "%s: %" PRId64 " input and %" PRId64
                       " output channels do not both divide into %" PRId32 " groups",
                       info->name, x[3], w[0], attrs->groups);
    if (w[3] != x[3] / attrs->groups)
        return FY_FAIL(SHAPE_MISMATCH,
                       "%s: the image has %" PRId64 " channels in %" PRId32
                       " groups, the weights [%" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64
                       "] are for %" PRId64 " a group (weights are OHWI, images NHWC)",
                       info->name, x[3], attrs->groups, w[0], w[1], w[2], w[3], w[3]);
    const int64_t oh = window_count(x[1], w[1], attrs->stride_h, attrs->padding_h,
                                    attrs->dilation_h),
                  ow = window_count(x[2], w[2], attrs->stride_w, attrs->padding_w,
                                    attrs->dilation_w);
    if (oh < 0 || ow < 0)
        return FY_FAIL(SHAPE_MISMATCH,
                       "%s: a kernel of %" PRId64 " x %" PRId64 " (dilation %" PRId32 " x %" PRId32
                       ") does not fit an image of %" PRId64 " x %" PRId64 " with padding %" PRId32
                       " x %" PRId32,
                       info->name, w[1], w[2], attrs->dilation_h, attrs->dilation_w, x[1], x[2],
                       attrs->padding_h, attrs->padding_w);
    const int64_t y[4] = { x[0], oh, ow, w[0] };
    for (int axis = 0; axis < 4; axis++) {
        if (given && conv->y[axis] != y[axis])
            return FY_FAIL(
                SHAPE_MISMATCH,
                "%s: dy (src0) is [%" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64
                "], but this conv2d gives [%" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64 "]",
                info->name, conv->y[0], conv->y[1], conv->y[2], conv->y[3], y[0], y[1], y[2], y[3]);
        conv->y[axis] = y[axis];
    }
    return FY_STATUS_OK;
}

static void read_dims(int64_t *dims, const fy_desc_t *desc)
{
    for (int axis = 0; axis < 4; axis++) dims[axis] = desc->dims[axis];
}

static void set_result(fy_launch_t *launch, const int64_t *dims)
{
    launch->dst[0].dtype = launch->src[0].dtype;
    launch->dst[0].rank = 4;
    for (int axis = 0; axis < 4; axis++) launch->dst[0].dims[axis] = dims[axis];
}

fy_status_t fy__shape_conv2d(const fy_op_info_t *info, fy_launch_t *launch)
{
    const fy_conv2d_attrs_t *attrs = launch->attrs;
    conv_t conv;
    FY_TRY(check_operands(info, launch));
    read_dims(conv.x, &launch->src[0]);
    read_dims(conv.w, &launch->src[1]);
    FY_TRY(check_conv(info, attrs, &conv, false));
    if (launch->nsrc == 3 && (launch->src[2].rank != 1 || launch->src[2].dims[0] != conv.w[0]))
        return FY_FAIL(SHAPE_MISMATCH,
                       "%s: the bias (src2) is %s, it needs one value for each of %" PRId64
                       " output channels",
                       info->name, FY__DESC_TEXT(&launch->src[2]), conv.w[0]);
    set_result(launch, conv.y);
    return FY_STATUS_OK;
}

/* The attributes of a gradient begin with those of the conv2d. */
static fy_status_t check_backward(const fy_op_info_t *info, const fy_launch_t *launch,
                                  fy_conv2d_attrs_t *out)
{
    const fy_conv2d_backward_attrs_t *attrs = launch->attrs;
    FY_TRY(check_operands(info, launch));
    *out = (fy_conv2d_attrs_t){ attrs->stride_h,  attrs->stride_w,   attrs->padding_h,
                                attrs->padding_w, attrs->dilation_h, attrs->dilation_w,
                                attrs->groups,    FY_ACTIVATION_NONE };
    return FY_STATUS_OK;
}

fy_status_t fy__shape_conv2d_backward_input(const fy_op_info_t *info, fy_launch_t *launch)
{
    const fy_conv2d_backward_attrs_t *attrs = launch->attrs;
    fy_conv2d_attrs_t forward;
    conv_t conv;
    FY_TRY(check_backward(info, launch, &forward));
    read_dims(conv.y, &launch->src[0]);
    read_dims(conv.w, &launch->src[1]);
    conv.x[0] = conv.y[0];
    conv.x[1] = attrs->height;
    conv.x[2] = attrs->width;
    if (__builtin_mul_overflow(conv.w[3], (int64_t)attrs->groups, &conv.x[3]))
        return FY_FAIL(SHAPE_MISMATCH,
                       "%s: %" PRId64 " channels in each of %" PRId32 " groups are too many",
                       info->name, conv.w[3], attrs->groups);
    FY_TRY(check_conv(info, &forward, &conv, true));
    set_result(launch, conv.x);
    return FY_STATUS_OK;
}

fy_status_t fy__shape_conv2d_backward_weight(const fy_op_info_t *info, fy_launch_t *launch)
{
    const fy_conv2d_backward_attrs_t *attrs = launch->attrs;
    fy_conv2d_attrs_t forward;
    conv_t conv;
    FY_TRY(check_backward(info, launch, &forward));
    read_dims(conv.y, &launch->src[0]);
    read_dims(conv.x, &launch->src[1]);
    conv.w[0] = conv.y[3];
    conv.w[1] = attrs->height;
    conv.w[2] = attrs->width;
    conv.w[3] = conv.x[3] / attrs->groups;
    FY_TRY(check_conv(info, &forward, &conv, true));
    set_result(launch, conv.w);
    return FY_STATUS_OK;
}

fy_status_t fy__shape_conv2d_backward_params(const fy_op_info_t *info, fy_launch_t *launch)
{
    FY_TRY(fy__shape_conv2d_backward_weight(info, launch));
    fy__shape_like(&launch->dst[1], &launch->dst[0]);
    launch->dst[1].rank = 1;
    return FY_STATUS_OK;
}

/* ---- pooling ---- */

/* How many windows a pooling has along an axis; -1: none fits. With ceil_mode the last one may
 * reach beyond the padding, but begins in the image or in the padding before it, as in PyTorch. */
static int64_t pool_count(int64_t size, int32_t kernel, int32_t stride, int32_t padding,
                          int32_t ceil_mode)
{
    int64_t room;
    if (!ceil_mode) return window_count(size, kernel, stride, padding, 1);
    if (__builtin_add_overflow(size, (int64_t)stride - 1, &room)) return -1;
    const int64_t count = window_count(room, kernel, stride, padding, 1);
    return count > 0 && (count - 1) * stride >= size + padding ? count - 1 : count;
}

/* dims of y for an x of `x`. A window never lies in the padding alone, as the padding is less than
 * the kernel. */
static fy_status_t pool_dims(const fy_op_info_t *info, const fy_pool2d_attrs_t *attrs,
                             const int64_t *x, int64_t *y)
{
    if (attrs->padding_h >= attrs->kernel_h || attrs->padding_w >= attrs->kernel_w)
        return FY_FAIL(INVALID_ARGUMENT,
                       "%s: padding %" PRId32 " x %" PRId32
                       " must be less than the kernel, %" PRId32 " x %" PRId32,
                       info->name, attrs->padding_h, attrs->padding_w, attrs->kernel_h,
                       attrs->kernel_w);
    const int32_t stride_h = attrs->stride_h ? attrs->stride_h : attrs->kernel_h,
                  stride_w = attrs->stride_w ? attrs->stride_w : attrs->kernel_w;
    if (x[1] < 1 || x[2] < 1)
        return FY_FAIL(SHAPE_MISMATCH,
                       "%s: an image of %" PRId64 " x %" PRId64 " has no pixel to pool", info->name,
                       x[1], x[2]);
    if (x[1] > INT32_MAX - attrs->padding_h || x[2] > INT32_MAX - attrs->padding_w)
        return FY_FAIL(SHAPE_MISMATCH,
                       "%s: an image of %" PRId64 " x %" PRId64 " with padding %" PRId32
                       " x %" PRId32 " is too large: pixels and padding must be at most %" PRId32
                       " along each axis",
                       info->name, x[1], x[2], attrs->padding_h, attrs->padding_w, INT32_MAX);
    y[0] = x[0];
    y[1] = pool_count(x[1], attrs->kernel_h, stride_h, attrs->padding_h, attrs->ceil_mode);
    y[2] = pool_count(x[2], attrs->kernel_w, stride_w, attrs->padding_w, attrs->ceil_mode);
    y[3] = x[3];
    if (y[1] < 0 || y[2] < 0)
        return FY_FAIL(SHAPE_MISMATCH,
                       "%s: a window of %" PRId32 " x %" PRId32 " does not fit an image of %" PRId64
                       " x %" PRId64,
                       info->name, attrs->kernel_h, attrs->kernel_w, x[1], x[2]);
    return FY_STATUS_OK;
}

static fy_status_t check_image(const fy_op_info_t *info, const fy_launch_t *launch, int i)
{
    if (i) FY_TRY(fy__check_same_dtype(info, launch, 0, i));
    FY_TRY(fy__check_dtype(info, FY__SRC, i, &launch->src[i], info->dtypes));
    if (launch->src[i].rank == 4) return FY_STATUS_OK;
    return FY_FAIL(SHAPE_MISMATCH, "%s: %s is %s, it needs rank 4: [N, H, W, C]", info->name,
                   FY__SRC_TEXT(info->name, i), FY__DESC_TEXT(&launch->src[i]));
}

static fy_status_t pool_forward(const fy_op_info_t *info, fy_launch_t *launch)
{
    int64_t y[4];
    FY_TRY(check_image(info, launch, 0));
    FY_TRY(pool_dims(info, launch->attrs, launch->src[0].dims, y));
    set_result(launch, y);
    return FY_STATUS_OK;
}

/* A maximum has no divisor. */
static fy_status_t check_max(const fy_op_info_t *info, const fy_pool2d_attrs_t *attrs)
{
    if (!attrs->count_excludes_padding) return FY_STATUS_OK;
    return FY_FAIL(INVALID_ARGUMENT,
                   "%s: count_excludes_padding is %" PRId32
                   "; padding is never the largest element, the flag is of averages",
                   info->name, attrs->count_excludes_padding);
}

fy_status_t fy__shape_max_pool2d(const fy_op_info_t *info, fy_launch_t *launch)
{
    FY_TRY(check_max(info, launch->attrs));
    return pool_forward(info, launch);
}
fy_status_t fy__shape_avg_pool2d(const fy_op_info_t *info, fy_launch_t *launch)
{
    return pool_forward(info, launch);
}

/* dx has the dims `x` if dy is what pooling them gives. */
static fy_status_t pool_backward(const fy_op_info_t *info, fy_launch_t *launch,
                                 const fy_pool2d_attrs_t *attrs, const int64_t *x)
{
    const int64_t *dy = launch->src[0].dims;
    int64_t y[4];
    FY_TRY(pool_dims(info, attrs, x, y));
    for (int axis = 0; axis < 4; axis++)
        if (dy[axis] != y[axis])
            return FY_FAIL(SHAPE_MISMATCH,
                           "%s: dy (src0) is %s, but the pooling gives [%" PRId64 ", %" PRId64
                           ", %" PRId64 ", %" PRId64 "]",
                           info->name, FY__DESC_TEXT(&launch->src[0]), y[0], y[1], y[2], y[3]);
    set_result(launch, x);
    return FY_STATUS_OK;
}

fy_status_t fy__shape_max_pool2d_backward(const fy_op_info_t *info, fy_launch_t *launch)
{
    FY_TRY(check_max(info, launch->attrs));
    FY_TRY(check_image(info, launch, 0));
    FY_TRY(check_image(info, launch, 1));
    return pool_backward(info, launch, launch->attrs, launch->src[1].dims);
}

/* relu's slope is computed from x; without relu x is not used. */
static fy_status_t check_relu_source(const fy_op_info_t *info, const fy_launch_t *launch,
                                     int32_t activation, const int64_t *x)
{
    if ((launch->nsrc == 2) != (activation == FY_ACTIVATION_RELU))
        return FY_FAIL(INVALID_ARGUMENT,
                       "%s: %u sources with activation %" PRId32
                       "; x (src1) belongs to relu, and only to it",
                       info->name, (unsigned)launch->nsrc, activation);
    if (launch->nsrc < 2) return FY_STATUS_OK;
    FY_TRY(check_image(info, launch, 1));
    if (memcmp(launch->src[1].dims, x, 4 * sizeof *x) == 0) return FY_STATUS_OK;
    return FY_FAIL(SHAPE_MISMATCH,
                   "%s: x (src1) is %s, the attributes and dy say [%" PRId64 ", %" PRId64
                   ", %" PRId64 ", %" PRId64 "]",
                   info->name, FY__DESC_TEXT(&launch->src[1]), x[0], x[1], x[2], x[3]);
}

fy_status_t fy__shape_avg_pool2d_backward(const fy_op_info_t *info, fy_launch_t *launch)
{
    const fy_pool2d_backward_attrs_t *all = launch->attrs;
    fy_pool2d_attrs_t attrs;
    memcpy(&attrs, all, sizeof attrs); /* they begin alike */
    FY_TRY(check_image(info, launch, 0));
    const int64_t x[4] = { launch->src[0].dims[0], all->height, all->width,
                           launch->src[0].dims[3] };
    FY_TRY(check_relu_source(info, launch, all->activation, x));
    return pool_backward(info, launch, &attrs, x);
}

/* ---- images of another size ---- */

/* Both sizes fit i32, so that products of two fit i64. */
fy_status_t fy__shape_image_size(const fy_op_info_t *info, fy_launch_t *launch)
{
    const fy_image_size_attrs_t *attrs = launch->attrs;
    FY_TRY(check_image(info, launch, 0));
    const int64_t *src = launch->src[0].dims;
    if (src[1] < 1 || src[2] < 1 || src[1] > INT32_MAX || src[2] > INT32_MAX)
        return FY_FAIL(SHAPE_MISMATCH,
                       "%s: src0 is %s; its height and width must be 1 .. 2147483647", info->name,
                       FY__DESC_TEXT(&launch->src[0]));
    const int64_t dims[4] = { src[0], attrs->height, attrs->width, src[3] };
    set_result(launch, dims);
    return FY_STATUS_OK;
}
