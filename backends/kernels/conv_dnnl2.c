/* oneDNN 2: memory descriptors are structs, a primitive descriptor is made from an op descriptor.
 * oneDNN's first choice is taken, but for some 1x1 kernels its product of matrices.
 * Not here: how a convolution is made and run (conv_dnnl.c). conv_dnnl3.c is this file for version
 * 3. */
#include <stdlib.h>
#include <string.h>

#include "backends/kernels/conv_dnnl.h"

fy__md_t fy__md_by_tag(int rank, const dnnl_dims_t dims, dnnl_format_tag_t tag)
{
    fy__md_t md = (fy__md_t)malloc(sizeof *md);
    if (md && fy__dnnl.memory_desc_init_by_tag(md, rank, dims, dnnl_f32, tag) == dnnl_success)
        return md;
    free(md);
    return NULL;
}

fy__md_t fy__md_by_strides(int rank, const dnnl_dims_t dims, const dnnl_dims_t strides)
{
    fy__md_t md = (fy__md_t)malloc(sizeof *md);
    if (md &&
        fy__dnnl.memory_desc_init_by_strides(md, rank, dims, dnnl_f32, strides) == dnnl_success)
        return md;
    free(md);
    return NULL;
}

fy__md_t fy__md_clone(fy__const_md_t from)
{
    fy__md_t md = from ? (fy__md_t)malloc(sizeof *md) : NULL;
    if (md) *md = *from;
    return md;
}

void fy__md_free(fy__md_t md) { free(md); }

/* Shapes for which the product of matrices was measured to be 2 to 3 times as fast as the AVX2
 * loop: strided 1x1 convolutions of images that the stride does not divide (others have a 1x1
 * loop). The rule reads the shape only, so the bits of a result do not depend on a timing. */
static int prefers_gemm(const fy__conv_shape_t *s)
{
    return s->groups == 1 && s->kh * s->kw == 1 && s->stride_h == 2 && s->stride_w == 2 &&
           !s->padding_h && !s->padding_w && s->c >= 64 && s->o >= 64;
}

/* `first`, or the one that is chosen instead. */
static dnnl_primitive_desc_t choose(dnnl_engine_t engine, const dnnl_convolution_desc_t *desc,
                                    const_dnnl_primitive_desc_t hint,
                                    const_dnnl_primitive_attr_t attr, dnnl_primitive_desc_t first)
{
    dnnl_primitive_desc_iterator_t all = NULL;
    dnnl_primitive_desc_t found = NULL;
    if (strcmp(fy__conv_desc_name(first), "jit:avx2") != 0 ||
        fy__dnnl.primitive_desc_iterator_create(&all, desc, attr, engine, hint) != dnnl_success)
        return first;
    do {
        if (found) fy__dnnl.primitive_desc_destroy(found);
        found = fy__dnnl.primitive_desc_iterator_fetch(all);
    } while (found && !strstr(fy__conv_desc_name(found), "gemm:jit") &&
             fy__dnnl.primitive_desc_iterator_next(all) == dnnl_success);
    fy__dnnl.primitive_desc_iterator_destroy(all);
    const int is_gemm = found && strstr(fy__conv_desc_name(found), "gemm:jit");
    dnnl_primitive_desc_t other = is_gemm ? first : found;
    if (other) fy__dnnl.primitive_desc_destroy(other);
    return is_gemm ? found : first;
}

/* Number `shape->choice` of the list, in place of `first`; NULL: the list is shorter. */
static dnnl_primitive_desc_t listed(dnnl_engine_t engine, const dnnl_convolution_desc_t *desc,
                                    const_dnnl_primitive_desc_t hint,
                                    const_dnnl_primitive_attr_t attr, dnnl_primitive_desc_t first,
                                    const fy__conv_shape_t *shape)
{
    dnnl_primitive_desc_iterator_t all = NULL;
    dnnl_primitive_desc_t found = NULL;
    int64_t left = shape->choice - 1;
    fy__dnnl.primitive_desc_destroy(first);
    if (fy__dnnl.primitive_desc_iterator_create(&all, desc, attr, engine, hint) != dnnl_success)
        return NULL;
    while (left > 0 && fy__dnnl.primitive_desc_iterator_next(all) == dnnl_success) left--;
    if (left == 0) found = fy__dnnl.primitive_desc_iterator_fetch(all);
    fy__dnnl.primitive_desc_iterator_destroy(all);
    return found;
}

dnnl_primitive_desc_t fy__conv_desc_make(dnnl_engine_t engine, const fy__conv_shape_t *shape,
                                         int64_t op, const fy__conv_mds_t *mds,
                                         const_dnnl_primitive_desc_t hint,
                                         const_dnnl_primitive_attr_t attr)
{
    const dnnl_dims_t strides = { shape->stride_h, shape->stride_w },
                      dilates = { shape->dilation_h - 1, shape->dilation_w - 1 };
    const dnnl_dims_t padding = { shape->padding_h, shape->padding_w };
    const dnnl_alg_kind_t direct = dnnl_convolution_direct;
    dnnl_convolution_desc_t desc;
    dnnl_primitive_desc_t out = NULL;
    dnnl_status_t status;
    if (op == FY_OP_CONV2D)
        status = fy__dnnl.dilated_convolution_forward_desc_init(
            &desc, dnnl_forward_training, direct, mds->x, mds->w, mds->bias, mds->y, strides,
            dilates, padding, padding);
    else if (op == FY_OP_CONV2D_BACKWARD_INPUT)
        status = fy__dnnl.dilated_convolution_backward_data_desc_init(
            &desc, direct, mds->x, mds->w, mds->y, strides, dilates, padding, padding);
    else
        status = fy__dnnl.dilated_convolution_backward_weights_desc_init(
            &desc, direct, mds->x, mds->w, mds->bias, mds->y, strides, dilates, padding, padding);
    if (status != dnnl_success ||
        fy__dnnl.primitive_desc_create(&out, &desc, attr, engine, hint) != dnnl_success)
        return NULL;
    if (shape->choice > 0 && op == shape->op) return listed(engine, &desc, hint, attr, out, shape);
    return prefers_gemm(shape) ? choose(engine, &desc, hint, attr, out) : out;
}

dnnl_status_t fy__post_ops_sum(dnnl_post_ops_t post_ops)
{
    return fy__dnnl.post_ops_append_sum(post_ops, 1.0f);
}
