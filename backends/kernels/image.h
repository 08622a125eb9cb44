/* Runs of neighbours along the last axis of a rank-4 operand of any strides and dtype, as f64 and
 * back: what the plain loops over images are made of. Not here: the loops (conv_plain.c,
 * pool.c). */
#ifndef FERRY_BACKENDS_KERNELS_IMAGE_H_
#define FERRY_BACKENDS_KERNELS_IMAGE_H_

#include "backends/kernels/rows.h"

#define FY__IMAGE_CHANNELS 128 /* most at once; 1 KiB of stack each */

static inline char *fy__image_at(const fy_desc_t *desc, int64_t i0, int64_t i1, int64_t i2,
                                 int64_t i3)
{
    const int64_t at = i0 * desc->strides[0] + i1 * desc->strides[1] + i2 * desc->strides[2] +
                       i3 * desc->strides[3];
    return (char *)desc->data + at * ((int64_t)1 << fy__log2_size(desc->dtype));
}

static inline void fy__image_stage(const fy__loops_t *loops, const fy_desc_t *desc, int64_t i0,
                                   int64_t i1, int64_t i2, int64_t i3, int64_t n, double *out)
{
    fy__stage_in(loops, n, out, FY_DTYPE_F64, fy__image_at(desc, i0, i1, i2, i3), desc->strides[3],
                 desc->dtype);
}

/* Writes `values` to the operand, or adds them to it with one rounding; `values` change then. */
static inline void fy__image_put(const fy__loops_t *loops, const fy_desc_t *desc, int64_t i0,
                                 int64_t i1, int64_t i2, int64_t i3, int64_t n, double *values,
                                 int accumulate)
{
    if (accumulate) {
        double old[FY__IMAGE_CHANNELS];
        fy__image_stage(loops, desc, i0, i1, i2, i3, n, old);
        for (int64_t i = 0; i < n; i++) values[i] += old[i];
    }
    fy__stage_out(loops, n, fy__image_at(desc, i0, i1, i2, i3), desc->strides[3], desc->dtype,
                  values, FY_DTYPE_F64);
}

#endif
