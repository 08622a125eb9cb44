/* Layers without parameters: dropout, pooling, flatten, select, log_softmax, identity, ops by
 * name.
 * Not here: linear and conv2d (layer_dense.c). */
#include "layer.h"

#include <math.h>
#include <stdlib.h>

static fy_status_t expect_image(int rank, const int64_t *dims)
{
    char text[FYT_SHAPE_TEXT];
    if (rank == 4) return FY_STATUS_OK;
    return FYT_FAIL(SHAPE_MISMATCH, "it expects [n, H, W, channels] and would get %s",
                    fyt_shape_text(text, rank, dims));
}

/* `settings` may be NULL for a layer that has none. */
static fy_status_t make(const char *type, const void *settings, size_t nbytes,
                        fy_status_t (*shape)(void *, int, const int64_t *, int *, int64_t *,
                                             uint64_t *),
                        fy_status_t (*forward)(void *, const fy_pass_t *, fy_tensor_t *const *,
                                               fy_tensor_t *, fy_tensor_t **),
                        fy_layer_t **out_layer)
{
    fy_layer_def_t def = { sizeof def, type, 0, NULL, shape, forward, free };
    return fyt_layer_create(&def, settings, nbytes, out_layer);
}

/* ---- dropout ---- */

typedef struct dropout {
    double p;
    fy_status_t (*op)(fy_tensor_t *rng, const fy_tensor_t *src, double p, fy_tensor_t **out_dst);
} dropout_t;

static fy_status_t dropout_forward(void *user, const fy_pass_t *pass, fy_tensor_t *const *params,
                                   fy_tensor_t *x, fy_tensor_t **out_y)
{
    const dropout_t *dropout = user;
    const int is_off = !pass->is_training || dropout->p == 0;
    (void)params;
    *out_y = x;
    return is_off ? FY_STATUS_OK : dropout->op(pass->rng, x, dropout->p, out_y);
}

static fy_status_t image_shape(void *user, int rank, const int64_t *dims, int *out_rank,
                               int64_t *out_dims, uint64_t *out_macs)
{
    FY_TRY(expect_image(rank, dims));
    return fyt_same_shape(user, rank, dims, out_rank, out_dims, out_macs);
}

static fy_status_t check_p(const char *call, double p)
{
    if (p >= 0 && p <= 1) return FY_STATUS_OK;
    return FYT_FAIL(INVALID_ARGUMENT, "%s: p is %g; it is a share, from 0 to 1", call, p);
}

fy_status_t fy_layer_dropout(double p, fy_layer_t **out_layer)
{
    const dropout_t dropout = { p, fy_dropout };
    if (out_layer) *out_layer = NULL;
    FY_TRY(check_p("layer_dropout", p));
    return make("dropout", &dropout, sizeof dropout, fyt_same_shape, dropout_forward, out_layer);
}

fy_status_t fy_layer_dropout2d(double p, fy_layer_t **out_layer)
{
    const dropout_t dropout = { p, fy_dropout2d };
    if (out_layer) *out_layer = NULL;
    FY_TRY(check_p("layer_dropout2d", p));
    return make("dropout2d", &dropout, sizeof dropout, image_shape, dropout_forward, out_layer);
}

/* ---- pooling ---- */

static fy_status_t pool_shape(void *user, int rank, const int64_t *dims, int *out_rank,
                              int64_t *out_dims, uint64_t *out_macs)
{
    const fy_pool2d_attrs_t *a = user;
    const int64_t kernel[2] = { a->kernel_h, a->kernel_w },
                  padding[2] = { a->padding_h, a->padding_w };
    const int64_t stride[2] = { a->stride_h ? a->stride_h : a->kernel_h,
                                a->stride_w ? a->stride_w : a->kernel_w };
    char text[FYT_SHAPE_TEXT];
    FY_TRY(expect_image(rank, dims));
    FY_TRY(fyt_same_shape(user, rank, dims, out_rank, out_dims, out_macs));
    for (int i = 0; i < 2; i++) {
        const int64_t room = dims[1 + i] + 2 * padding[i] - kernel[i] +
                             (a->ceil_mode ? stride[i] - 1 : 0);
        if (room < 0)
            return FYT_FAIL(SHAPE_MISMATCH, "its window of %d x %d does not fit into %s",
                            a->kernel_h, a->kernel_w, fyt_shape_text(text, rank, dims));
        out_dims[1 + i] = room / stride[i] + 1;
        /* rounded up: no window begins behind the image */
        if (room / stride[i] * stride[i] >= dims[1 + i] + padding[i]) out_dims[1 + i]--;
    }
    return FY_STATUS_OK;
}

static fy_status_t max_pool_forward(void *user, const fy_pass_t *pass, fy_tensor_t *const *params,
                                    fy_tensor_t *x, fy_tensor_t **out_y)
{
    (void)pass, (void)params;
    return fy_max_pool2d(x, user, out_y);
}

static fy_status_t avg_pool_forward(void *user, const fy_pass_t *pass, fy_tensor_t *const *params,
                                    fy_tensor_t *x, fy_tensor_t **out_y)
{
    (void)pass, (void)params;
    return fy_avg_pool2d(x, user, out_y);
}

static fy_status_t check_pool(const char *call, const fy_pool2d_attrs_t *a)
{
    if (!a)
        return FYT_FAIL(INVALID_ARGUMENT, "%s: attrs is NULL: the kernel's size is needed", call);
    if (a->kernel_h < 1 || a->kernel_w < 1 || a->stride_h < 0 || a->stride_w < 0 ||
        a->padding_h < 0 || a->padding_w < 0 || a->padding_h >= a->kernel_h ||
        a->padding_w >= a->kernel_w)
        return FYT_FAIL(INVALID_ARGUMENT,
                        "%s: kernel %d x %d (at least 1), stride %d, %d (0: the kernel's), padding "
                        "%d, %d (less than the kernel)",
                        call, a->kernel_h, a->kernel_w, a->stride_h, a->stride_w, a->padding_h,
                        a->padding_w);
    if (a->activation != FY_ACTIVATION_NONE && a->activation != FY_ACTIVATION_RELU)
        return FYT_FAIL(
            INVALID_ARGUMENT,
            "%s: activation %d; here it is 0 (none) or 1 (relu): fy_layer_op has the others", call,
            a->activation);
    if ((a->ceil_mode | a->count_excludes_padding) & ~1)
        return FYT_FAIL(INVALID_ARGUMENT,
                        "%s: ceil_mode %d, count_excludes_padding %d; both must be 0 or 1", call,
                        a->ceil_mode, a->count_excludes_padding);
    return FY_STATUS_OK;
}

fy_status_t fy_layer_max_pool2d(const fy_pool2d_attrs_t *attrs, fy_layer_t **out_layer)
{
    if (out_layer) *out_layer = NULL;
    FY_TRY(check_pool("layer_max_pool2d", attrs));
    if (attrs->count_excludes_padding)
        return FYT_FAIL(INVALID_ARGUMENT,
                        "layer_max_pool2d: count_excludes_padding is 1; padding is never the "
                        "largest element, the flag is of averages");
    return make("max_pool2d", attrs, sizeof *attrs, pool_shape, max_pool_forward, out_layer);
}

fy_status_t fy_layer_avg_pool2d(const fy_pool2d_attrs_t *attrs, fy_layer_t **out_layer)
{
    if (out_layer) *out_layer = NULL;
    FY_TRY(check_pool("layer_avg_pool2d", attrs));
    return make("avg_pool2d", attrs, sizeof *attrs, pool_shape, avg_pool_forward, out_layer);
}

/* The mean over height and width; `user` is an int: whether both stay, with length 1. */
static fy_status_t spatial_mean_shape(void *user, int rank, const int64_t *dims, int *out_rank,
                                      int64_t *out_dims, uint64_t *out_macs)
{
    const int keepdims = *(const int *)user;
    FY_TRY(expect_image(rank, dims));
    *out_rank = keepdims ? 4 : 2;
    out_dims[0] = dims[0];
    if (keepdims) out_dims[1] = out_dims[2] = 1;
    out_dims[*out_rank - 1] = dims[3];
    *out_macs = 0;
    return FY_STATUS_OK;
}

static fy_status_t spatial_mean_forward(void *user, const fy_pass_t *pass,
                                        fy_tensor_t *const *params, fy_tensor_t *x,
                                        fy_tensor_t **out_y)
{
    (void)pass, (void)params;
    return fy_mean(x, FY_AXES(1, 2), *(const int *)user, out_y);
}

fy_status_t fyt_layer_spatial_mean(fy_layer_t **out_layer)
{
    const int keepdims = 1;
    return make("global_avg_pool2d", &keepdims, sizeof keepdims, spatial_mean_shape,
                spatial_mean_forward, out_layer);
}

fy_status_t fy_layer_global_avg_pool2d(fy_layer_t **out_layer)
{
    const int keepdims = 0;
    return make("global_avg_pool2d", &keepdims, sizeof keepdims, spatial_mean_shape,
                spatial_mean_forward, out_layer);
}

/* `user` is an fy_image_size_attrs_t. */
static fy_status_t adaptive_pool_shape(void *user, int rank, const int64_t *dims, int *out_rank,
                                       int64_t *out_dims, uint64_t *out_macs)
{
    const fy_image_size_attrs_t *size = user;
    FY_TRY(image_shape(user, rank, dims, out_rank, out_dims, out_macs));
    out_dims[1] = size->height;
    out_dims[2] = size->width;
    return FY_STATUS_OK;
}

static fy_status_t adaptive_pool_forward(void *user, const fy_pass_t *pass,
                                         fy_tensor_t *const *params, fy_tensor_t *x,
                                         fy_tensor_t **out_y)
{
    const fy_image_size_attrs_t *size = user;
    (void)pass, (void)params;
    return fy_adaptive_avg_pool2d(x, size->height, size->width, out_y);
}

fy_status_t fy_layer_adaptive_avg_pool2d(int height, int width, fy_layer_t **out_layer)
{
    const fy_image_size_attrs_t size = { height, width };
    if (out_layer) *out_layer = NULL;
    if (height < 1 || width < 1)
        return FYT_FAIL(INVALID_ARGUMENT,
                        "layer_adaptive_avg_pool2d: height %d, width %d; both must be 1 or more",
                        height, width);
    return make("adaptive_avg_pool2d", &size, sizeof size, adaptive_pool_shape,
                adaptive_pool_forward, out_layer);
}

/* ---- the others ---- */

static fy_status_t flatten_shape(void *user, int rank, const int64_t *dims, int *out_rank,
                                 int64_t *out_dims, uint64_t *out_macs)
{
    (void)user;
    *out_rank = 2;
    out_dims[0] = dims[0];
    out_dims[1] = 1;
    for (int i = 1; i < rank; i++) out_dims[1] *= dims[i];
    *out_macs = 0;
    return FY_STATUS_OK;
}

static fy_status_t flatten_forward(void *user, const fy_pass_t *pass, fy_tensor_t *const *params,
                                   fy_tensor_t *x, fy_tensor_t **out_y)
{
    int64_t dims[2];
    int rank;
    uint64_t macs;
    fy_tensor_info_t info = FY_TENSOR_INFO_INIT;
    (void)pass, (void)params;
    FY_TRY(fy_tensor_query(x, &info));
    /* in numbers: -1 says nothing of an empty batch */
    FY_TRY(flatten_shape(user, info.rank, info.dims, &rank, dims, &macs));
    return fy_reshape(x, rank, dims, out_y);
}

fy_status_t fy_layer_flatten(fy_layer_t **out_layer)
{
    return make("flatten", NULL, 0, flatten_shape, flatten_forward, out_layer);
}

typedef struct place {
    int axis;
    int64_t index;
} place_t;

static fy_status_t select_shape(void *user, int rank, const int64_t *dims, int *out_rank,
                                int64_t *out_dims, uint64_t *out_macs)
{
    const place_t *place = user;
    char text[FYT_SHAPE_TEXT];
    if (place->axis >= rank || place->index >= dims[place->axis])
        return FYT_FAIL(SHAPE_MISMATCH, "it takes number %lld of axis %d, and would get %s",
                        (long long)place->index, place->axis, fyt_shape_text(text, rank, dims));
    *out_rank = 0;
    for (int i = 0; i < rank; i++)
        if (i != place->axis) out_dims[(*out_rank)++] = dims[i];
    *out_macs = 0;
    return FY_STATUS_OK;
}

static fy_status_t select_forward(void *user, const fy_pass_t *pass, fy_tensor_t *const *params,
                                  fy_tensor_t *x, fy_tensor_t **out_y)
{
    const place_t *place = user;
    (void)pass, (void)params;
    return fyt_select(x, place->axis, place->index, out_y);
}

fy_status_t fy_layer_select(int axis, int64_t index, fy_layer_t **out_layer)
{
    const place_t place = { axis, index };
    if (out_layer) *out_layer = NULL;
    if (axis < 1 || axis >= FY_MAX_RANK || index < 0)
        return FYT_FAIL(INVALID_ARGUMENT,
                        "layer_select: axis %d (1 to %d: axis 0 is the batch), index %lld (0 or "
                        "more)",
                        axis, FY_MAX_RANK - 1, (long long)index);
    return make("select", &place, sizeof place, select_shape, select_forward, out_layer);
}

static fy_status_t log_softmax_forward(void *user, const fy_pass_t *pass,
                                       fy_tensor_t *const *params, fy_tensor_t *x,
                                       fy_tensor_t **out_y)
{
    (void)user, (void)pass, (void)params;
    return fy_log_softmax(x, -1, out_y);
}

fy_status_t fy_layer_log_softmax(fy_layer_t **out_layer)
{
    return make("log_softmax", NULL, 0, fyt_same_shape, log_softmax_forward, out_layer);
}

static fy_status_t identity_forward(void *user, const fy_pass_t *pass, fy_tensor_t *const *params,
                                    fy_tensor_t *x, fy_tensor_t **out_y)
{
    (void)user, (void)pass, (void)params;
    *out_y = x;
    return FY_STATUS_OK;
}

fy_status_t fy_layer_identity(fy_layer_t **out_layer)
{
    return make("identity", NULL, 0, fyt_same_shape, identity_forward, out_layer);
}

static fy_status_t op_forward(void *user, const fy_pass_t *pass, fy_tensor_t *const *params,
                              fy_tensor_t *x, fy_tensor_t **out_y)
{
    (void)pass, (void)params;
    *out_y = NULL;
    return fy_op_call(*(const fy_op_t *)user, 1, &x, NULL, 0, 1, out_y);
}

/* The dtype of a test's result ("bool"); NULL: the result has the dtype of the source. */
static const char *other_result(const fy_op_info_t *info)
{
    const uint32_t floats = FY_DTYPE_BIT(FY_DTYPE_F32) | FY_DTYPE_BIT(FY_DTYPE_F64) |
                            FY_DTYPE_BIT(FY_DTYPE_F16) | FY_DTYPE_BIT(FY_DTYPE_BF16);
    const uint32_t dtypes = info->dst ? info->dst->dtypes : 0;
    int dtype = 0;
    if (!dtypes || (dtypes & floats & info->dtypes)) return NULL;
    while (!(dtypes & FY_DTYPE_BIT(dtype))) dtype++;
    return fy_dtype_name((fy_dtype_t)dtype);
}

fy_status_t fy_layer_op(const char *op_name, fy_layer_t **out_layer)
{
    if (out_layer) *out_layer = NULL;
    const fy_op_info_t *info = op_name ? fy_op_find(op_name) : NULL;
    if (!info)
        return FYT_FAIL(INVALID_ARGUMENT, "layer_op: there is no op '%s'; docs/ops.md lists them",
                        op_name ? op_name : "(NULL)");
    if (info->nsrc_min != 1 || info->nsrc_max != 1 || info->ndst != 1 || info->attrs_nbytes ||
        !(info->flags & FY_OP_ELEMENTWISE) || (info->flags & FY_OP_IN_PLACE))
        return FYT_FAIL(
            INVALID_ARGUMENT,
            "layer_op: '%s' is not one source, one result of its shape and no attributes",
            info->name);
    const char *dtype = other_result(info);
    if (dtype)
        return FYT_FAIL(INVALID_ARGUMENT,
                        "layer_op: the result of '%s' is %s and has no gradient; a layer gives the "
                        "dtype that it gets: call fy_op_call on the result of the model",
                        info->name, dtype);
    return make(info->name, &info->op, sizeof info->op, fyt_same_shape, op_forward, out_layer);
}
