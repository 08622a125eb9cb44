/* A convolution as the three files that run it see it: whichever of x, w, y is the result of the
 * launch.
 * conv.c decides, conv_few.c is for a handful of channels, conv_product.c multiplies windows,
 * conv_plain.c has loops for any strides and dtypes, conv_dnnl.c oneDNN's primitives for dense f32,
 * conv_half.c converts to that. */
#ifndef FERRY_BACKENDS_KERNELS_CONV_H_
#define FERRY_BACKENDS_KERNELS_CONV_H_

#include "backends/kernels/family.h"

/* Plain numbers only, 8 bytes each and no gaps: oneDNN's primitives are found by comparing these
 * bytes. */
typedef struct fy__conv_shape {
    int64_t op;   /* FY_OP_CONV2D, ... */
    int64_t half; /* FY_DTYPE_F16, FY_DTYPE_BF16: of the operands; 0: any other */
    int64_t n, h, w, c, oh, ow, o, kh, kw, groups;
    int64_t stride_h, stride_w, padding_h, padding_w, dilation_h, dilation_w;
    /* has_bias: read by op CONV2D, made by CONV2D_BACKWARD_WEIGHT; accumulate: into x or w */
    int64_t has_bias, accumulate;
    /* 0: oneDNN's implementation by a fixed rule of the shape; k: the k-th that it lists */
    int64_t choice;
} fy__conv_shape_t;

typedef struct fy__conv {
    fy__conv_shape_t shape;
    /* bias: NULL if there is none; a result of CONV2D_BACKWARD_PARAMS, whose shape.op is
     * .._WEIGHT */
    const fy_desc_t *x, *w, *y, *bias;
    int relu, accumulate_bias;
} fy__conv_t;

/* conv.c. By one way of conv_tune.h: its scratch, and the run. UNSUPPORTED without an error:
 * nothing was written. *out_fits: it may run, perhaps without scratch. */
uint64_t fy__conv_way_nbytes(const fy__conv_t *conv, int way, uint64_t limit, int *out_fits);
fy_status_t fy__conv_way_run(const fy_host_api_t *host, const fy__loops_t *loops,
                             const fy__conv_t *conv, int way, void *scratch, uint64_t nbytes);

/* conv_half.c. Dense f16 or bf16: the same, whose f32 pieces run in that way. */
uint64_t fy__conv_half_nbytes(const fy__conv_t *conv, int way, uint64_t limit);
fy_status_t fy__conv_half_run(const fy_host_api_t *host, const fy__loops_t *loops,
                              const fy__conv_t *conv, int way, void *scratch, uint64_t nbytes);

/* conv_plain.c. Never fails; sums are f64, so one rounding at the end; no scratch. */
void fy__conv_plain(const fy__loops_t *loops, const fy__conv_t *conv);

/* conv_few.c. Dense f32; few channels, taps and outputs, no padding: 1, else 0. Scratch for one
 * thread or more (0: none is wanted, or too little is left), and the run, which did nothing if it
 * returns 0. */
int fy__conv_few_fits(const fy__loops_t *loops, const fy__conv_t *conv);
uint64_t fy__conv_few_nbytes(const fy__conv_t *conv, uint64_t limit);
int fy__conv_few_run(const fy__loops_t *loops, const fy__conv_t *conv, void *scratch,
                     uint64_t scratch_nbytes);

/* conv_depthwise.c. Dense f32, the gradient of kernels of 5 x 5, one for each channel: as above. */
int fy__conv_depthwise_fits(const fy__loops_t *loops, const fy__conv_t *conv);
uint64_t fy__conv_depthwise_nbytes(const fy__loops_t *loops, const fy__conv_t *conv,
                                   uint64_t limit);
int fy__conv_depthwise_run(const fy__loops_t *loops, const fy__conv_t *conv, void *scratch,
                           uint64_t scratch_nbytes);

/* conv_product.c. Dense f32 without groups, by a product of windows (im2col): fits is 1, else 0.
 * Its scratch (0: none), and the run, UNSUPPORTED if that is too little. */
int fy__conv_product_fits(const fy__conv_t *conv);
uint64_t fy__conv_product_nbytes(const fy__conv_t *conv);
fy_status_t fy__conv_product_run(const fy_host_api_t *host, const fy__conv_t *conv, void *scratch,
                                 uint64_t scratch_nbytes);

/* One rounding of a sum, added to the old value if requested. */
static inline void fy__conv_put(float *to, double value, int accumulate)
{
    *to = (float)(accumulate ? (double)*to + value : value);
}

/* oneDNN has a primitive that is no reference loop and needs *out_nbytes <= limit of scratch: 1,
 * else 0. f32, all operands dense. */
int fy__conv_dnnl_plan(const fy__conv_t *conv, uint64_t limit, uint64_t *out_nbytes);
/* Runs it. UNSUPPORTED without a word if `scratch_nbytes` is less than it now needs (the thread
 * count changed in between); nothing was written then. */
fy_status_t fy__conv_dnnl_run(const fy_host_api_t *host, const fy__loops_t *loops,
                              const fy__conv_t *conv, void *scratch, uint64_t scratch_nbytes);

#endif
