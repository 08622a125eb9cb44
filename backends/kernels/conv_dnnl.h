/* The differences between the C APIs of oneDNN 3 and 2, as functions; conv_dnnl.c is written once
 * on top of them.
 * conv_dnnl3.c and conv_dnnl2.c implement them; the build compiles one of the two.
 * Version 3 has opaque memory descriptors on the heap, version 2 plain structs: here both are owned
 * pointers. */
#ifndef FERRY_BACKENDS_KERNELS_CONV_DNNL_H_
#define FERRY_BACKENDS_KERNELS_CONV_DNNL_H_

#include "backends/kernels/conv_prim.h"
#include "backends/kernels/dnnl.h"

#if FERRY_DNNL_MAJOR >= 3
typedef dnnl_memory_desc_t fy__md_t;
typedef const_dnnl_memory_desc_t fy__const_md_t;
#else
typedef dnnl_memory_desc_t *fy__md_t;
typedef const dnnl_memory_desc_t *fy__const_md_t;
#endif

/* f32. Each returns a descriptor that the caller frees, or NULL. */
fy__md_t fy__md_by_tag(int rank, const dnnl_dims_t dims, dnnl_format_tag_t tag);
fy__md_t fy__md_by_strides(int rank, const dnnl_dims_t dims, const dnnl_dims_t strides);
/* dnnl_primitive_desc_query_md returns a descriptor that dies with its primitive descriptor: clone
 * it to keep it. */
fy__md_t fy__md_clone(fy__const_md_t from);
void fy__md_free(fy__md_t md); /* NULL: nothing */

/* The operands of a convolution and of both its gradients; bias is NULL if there is none. */
typedef struct fy__conv_mds {
    fy__md_t x, w, y, bias;
} fy__conv_mds_t;

/* The descriptor of one direction (`op`), or NULL. Of several implementations it holds the one that
 * a fixed rule of the shape names; a reference loop only if there is nothing else. hint: the
 * forward pass, for the gradients. The caller destroys it. */
dnnl_primitive_desc_t fy__conv_desc_make(dnnl_engine_t engine, const fy__conv_shape_t *shape,
                                         int64_t op, const fy__conv_mds_t *mds,
                                         const_dnnl_primitive_desc_t hint,
                                         const_dnnl_primitive_attr_t attr);
/* The name of an implementation ("brg_conv_fwd:avx512_core"), which lives as long as `desc`; "ref"
 * if oneDNN does not tell. */
const char *fy__conv_desc_name(const_dnnl_primitive_desc_t desc); /* conv_dnnl.c */

/* dst = result + dst. */
dnnl_status_t fy__post_ops_sum(dnnl_post_ops_t post_ops);

#endif
