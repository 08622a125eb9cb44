/* The functions of oneDNN that Ferry calls, opened at the first product or convolution that needs
 * them. libferry is not linked to oneDNN: in a program that also carries a library with a oneDNN
 * inside (PyTorch), the dynamic linker would bind one's symbols to the other's code (dnnl.c). */
#ifndef FERRY_BACKENDS_KERNELS_DNNL_H_
#define FERRY_BACKENDS_KERNELS_DNNL_H_

#include <oneapi/dnnl/dnnl.h>

#include "backends/kernels/onednn.h"

/* clang-format off */
#if FERRY_DNNL_MAJOR >= 3
#define FY__DNNL_VERSIONED(X)                                                                      \
    X(convolution_backward_data_primitive_desc_create)                                             \
    X(convolution_backward_weights_primitive_desc_create)                                          \
    X(convolution_forward_primitive_desc_create)                                                   \
    X(memory_desc_clone) X(memory_desc_create_with_strides) X(memory_desc_create_with_tag)         \
    X(memory_desc_destroy) X(primitive_desc_next_impl)
#else
#define FY__DNNL_VERSIONED(X)                                                                      \
    X(dilated_convolution_backward_data_desc_init)                                                 \
    X(dilated_convolution_backward_weights_desc_init)                                              \
    X(dilated_convolution_forward_desc_init)                                                       \
    X(memory_desc_init_by_strides) X(memory_desc_init_by_tag) X(primitive_desc_create)             \
    X(primitive_desc_iterator_create) X(primitive_desc_iterator_destroy)                           \
    X(primitive_desc_iterator_fetch) X(primitive_desc_iterator_next)
#endif
#define FY__DNNL_FUNCTIONS(X)                                                                      \
    FY__DNNL_VERSIONED(X)                                                                          \
    X(engine_create) X(get_effective_cpu_isa) X(memory_create) X(memory_desc_equal)                \
    X(memory_desc_get_size) X(memory_destroy) X(post_ops_append_sum) X(post_ops_create)            \
    X(post_ops_destroy) X(primitive_attr_create) X(primitive_attr_destroy)                         \
    X(primitive_attr_set_post_ops) X(primitive_attr_set_scratchpad_mode) X(primitive_create)       \
    X(primitive_desc_destroy) X(primitive_desc_query) X(primitive_desc_query_md)                   \
    X(primitive_destroy) X(primitive_execute) X(reorder_primitive_desc_create) X(sgemm)            \
    X(stream_create) X(stream_destroy) X(version)
/* clang-format on */

typedef struct fy__dnnl {
#define FY__DNNL_MEMBER(name) __typeof__(dnnl_##name) *name;
    FY__DNNL_FUNCTIONS(FY__DNNL_MEMBER)
#undef FY__DNNL_MEMBER
} fy__dnnl_t;

/* Written by the first fy__dnnl_open; tests replace members. */
extern fy__dnnl_t fy__dnnl;
/* 1: the functions may be called; 0: oneDNN cannot be opened, and fy__onednn_has_none tells why.
 * Any thread. Cost after the first call: a load. */
int fy__dnnl_open(void);

#endif
