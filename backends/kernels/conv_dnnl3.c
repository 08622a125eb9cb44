/* oneDNN 3: memory descriptors are opaque, there are no op descriptors, and
 * dnnl_primitive_desc_next_impl walks the implementations.
 * The first is a brgemm kernel for most shapes, the second the older jit kernel, which is faster
 * for some (README.md).
 * Not here: how a convolution is made and run (conv_dnnl.c). conv_dnnl2.c is this file for version
 * 2. */
#include <string.h>

#include "backends/kernels/conv_dnnl.h"

fy__md_t fy__md_by_tag(int rank, const dnnl_dims_t dims, dnnl_format_tag_t tag)
{
    fy__md_t md = NULL;
    return fy__dnnl.memory_desc_create_with_tag(&md, rank, dims, dnnl_f32, tag) == dnnl_success
               ? md
               : NULL;
}

fy__md_t fy__md_by_strides(int rank, const dnnl_dims_t dims, const dnnl_dims_t strides)
{
    fy__md_t md = NULL;
    return fy__dnnl.memory_desc_create_with_strides(&md, rank, dims, dnnl_f32, strides) ==
                   dnnl_success
               ? md
               : NULL;
}

fy__md_t fy__md_clone(fy__const_md_t from)
{
    fy__md_t md = NULL;
    return from && fy__dnnl.memory_desc_clone(&md, from) == dnnl_success ? md : NULL;
}

void fy__md_free(fy__md_t md)
{
    if (md) fy__dnnl.memory_desc_destroy(md);
}

static dnnl_primitive_desc_t first_choice(dnnl_engine_t engine, const fy__conv_shape_t *shape,
                                          int64_t op, const fy__conv_mds_t *mds,
                                          const_dnnl_primitive_desc_t hint,
                                          const_dnnl_primitive_attr_t attr)
{
    const dnnl_dims_t strides = { shape->stride_h, shape->stride_w },
                      dilates = { shape->dilation_h - 1, shape->dilation_w - 1 };
    const dnnl_dims_t padding = { shape->padding_h, shape->padding_w };
    const dnnl_alg_kind_t direct = dnnl_convolution_direct;
    dnnl_primitive_desc_t out = NULL;
    dnnl_status_t status;
    if (op == FY_OP_CONV2D)
        status = fy__dnnl.convolution_forward_primitive_desc_create(
            &out, engine, dnnl_forward_training, direct, mds->x, mds->w, mds->bias, mds->y, strides,
            dilates, padding, padding, attr);
    else if (op == FY_OP_CONV2D_BACKWARD_INPUT)
        status = fy__dnnl.convolution_backward_data_primitive_desc_create(
            &out, engine, direct, mds->x, mds->w, mds->y, strides, dilates, padding, padding, hint,
            attr);
    else
        status = fy__dnnl.convolution_backward_weights_primitive_desc_create(
            &out, engine, direct, mds->x, mds->w, mds->bias, mds->y, strides, dilates, padding,
            padding, hint, attr);
    return status == dnnl_success ? out : NULL;
}

/* Shapes for which the jit kernel was measured to be faster than the brgemm one (AVX-512, two
 * threads). The rule reads the shape only, so the bits of a result do not depend on a timing. */
static int prefers_jit(const fy__conv_shape_t *s)
{
    const int64_t image = s->oh * s->ow;
    if (s->groups != 1) return 0;
    /* stems of one channel */
    if (s->c == 1) return 1;
    /* 1x1, and 7x7 images to 4x4 */
    if (s->stride_h == 2 && s->stride_w == 2) return s->kh * s->kw == 1 || image <= 16;
    /* images of 4x4 */
    return image <= 16 && s->kh * s->kw > 1;
}

/* `first` walked on to number `choice` of the list; NULL: the list is shorter. */
static dnnl_primitive_desc_t listed(dnnl_primitive_desc_t first, int64_t choice)
{
    for (int64_t i = 1; i < choice; i++)
        if (fy__dnnl.primitive_desc_next_impl(first) != dnnl_success) {
            fy__dnnl.primitive_desc_destroy(first);
            return NULL;
        }
    return first;
}

dnnl_primitive_desc_t fy__conv_desc_make(dnnl_engine_t engine, const fy__conv_shape_t *shape,
                                         int64_t op, const fy__conv_mds_t *mds,
                                         const_dnnl_primitive_desc_t hint,
                                         const_dnnl_primitive_attr_t attr)
{
    dnnl_primitive_desc_t first = first_choice(engine, shape, op, mds, hint, attr);
    if (first && shape->choice > 0 && op == shape->op) return listed(first, shape->choice);
    if (!first || !prefers_jit(shape) || strncmp(fy__conv_desc_name(first), "brg", 3) != 0)
        return first;
    /* a clone cannot walk on */
    dnnl_primitive_desc_t second = first_choice(engine, shape, op, mds, hint, attr);
    if (!second) return first;
    dnnl_status_t status;
    do { /* the list may contain several brgemm kernels */
        status = fy__dnnl.primitive_desc_next_impl(second);
    } while (status == dnnl_success && strncmp(fy__conv_desc_name(second), "brg", 3) == 0);
    const int is_jit = status == dnnl_success && strncmp(fy__conv_desc_name(second), "jit", 3) == 0;
    fy__dnnl.primitive_desc_destroy(is_jit ? first : second);
    return is_jit ? second : first;
}

dnnl_status_t fy__post_ops_sum(dnnl_post_ops_t post_ops)
{
    return fy__dnnl.post_ops_append_sum(post_ops, 1.0f, 0, dnnl_data_type_undef);
}
