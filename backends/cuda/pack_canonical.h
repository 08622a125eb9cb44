/* The canonical form of ops along axes: kept axes in front, joined ones behind, each side fused.
 * Reductions (pack_reduce.c), softmax and argmax (pack_rows.c) are packed from it. Pure functions
 * of the launch. */
#ifndef FERRY_BACKENDS_CUDA_PACK_CANONICAL_H_
#define FERRY_BACKENDS_CUDA_PACK_CANONICAL_H_

#include "backends/cuda/pack.h"

/* a device with fewer threads an SM than this is mostly idle */
enum { FY__CUDA_THREADS_A_SM = 1024 };

/* Strides of source k: keep.strides[k], drop.strides[k]; of dst: keep.strides[nsrc]. */
typedef struct fy__cuda_canonical {
    int nkeep, ndrop; /* axes; nkeep may be 0 */
    uint64_t nkept, ndropped;
    fy__index_t keep, drop;
} fy__cuda_canonical_t;

/* `mask`: the axes to join. dst == NULL: only the sources count. */
void fy__cuda_canonicalise(const fy_launch_t *launch, uint32_t mask, const fy_desc_t *dst,
                           int keepdims, fy__cuda_canonical_t *out);
/* How many threads share a result. Neighbouring threads should read neighbouring elements. */
uint32_t fy__cuda_lanes_for(uint64_t nkept, uint64_t ndropped, int64_t keep_stride,
                            int64_t drop_stride);
uint32_t fy__cuda_canonical_lanes(const fy__cuda_canonical_t *c);

/* A request of `nelem` groups of `lanes` threads, without operands. */
void fy__cuda_request_begin(fy__cuda_request_t *out, int kernel, uint32_t op, uint64_t nelem,
                            unsigned nsrc, uint32_t lanes);
/* Appends the kept axes of operand k. */
void fy__cuda_operand_kept(fy__cuda_operand_t *operand, const fy__cuda_canonical_t *c, int k);

#endif
