/* Axes of a launch in canonical form, and the requests that are begun from it. Next: pack_reduce.c,
 * pack_rows.c. */
#include "backends/cuda/pack_canonical.h"

enum {
    FEW = 8,     /* so few elements a result are one thread's work */
    WIDE = 2048, /* from so many on, a block shares a result */
};

static uint64_t product(const fy__index_t *index)
{
    uint64_t n = 1;
    for (int axis = 0; axis < index->rank; axis++) n *= (uint64_t)index->dims[axis];
    return n;
}

void fy__cuda_canonicalise(const fy_launch_t *launch, uint32_t mask, const fy_desc_t *dst,
                           int keepdims, fy__cuda_canonical_t *out)
{
    const fy_desc_t *src = launch->src;
    int64_t dims[2][FY_MAX_RANK], strides[2][FY_INDEX_OPERANDS][FY_MAX_RANK];
    int rank[2] = { 0, 0 };
    for (int axis = 0; axis < src->rank; axis++) {
        int side = (int)(mask >> axis & 1), at = rank[side]++;
        dims[side][at] = src->dims[axis];
        for (int k = 0; k < launch->nsrc; k++) strides[side][k][at] = launch->src[k].strides[axis];
        if (side == 0)
            strides[0][launch->nsrc][at] = dst == NULL ? 0 : dst->strides[keepdims ? axis : at];
    }
    const int64_t *keep[FY_INDEX_OPERANDS], *drop[FY_INDEX_OPERANDS];
    for (int k = 0; k < FY_INDEX_OPERANDS; k++) keep[k] = strides[0][k], drop[k] = strides[1][k];
    fy__index_make(&out->keep, rank[0], dims[0], launch->nsrc + (dst != NULL), keep);
    fy__index_make(&out->drop, rank[1], dims[1], launch->nsrc, drop);
    out->nkept = product(&out->keep);
    out->ndropped = product(&out->drop);
    out->nkeep = out->nkept == 1 ? 0 : out->keep.rank;
    out->ndrop = out->drop.rank;
}

uint32_t fy__cuda_lanes_for(uint64_t nkept, uint64_t ndropped, int64_t keep_stride,
                            int64_t drop_stride)
{
    if (ndropped <= FEW) return 1;
    if (nkept >= 32 && keep_stride == 1 && drop_stride != 1) return 1;
    return ndropped >= WIDE || nkept < 64 ? (ndropped > 128 ? FY__CUDA_BLOCK : 32) : 32;
}

uint32_t fy__cuda_canonical_lanes(const fy__cuda_canonical_t *c)
{
    int64_t keep_stride = c->nkeep > 0 ? c->keep.strides[0][c->nkeep - 1] : 0;
    return fy__cuda_lanes_for(c->nkept, c->ndropped, keep_stride, c->drop.strides[0][c->ndrop - 1]);
}

void fy__cuda_request_begin(fy__cuda_request_t *out, int kernel, uint32_t op, uint64_t nelem,
                            unsigned nsrc, uint32_t lanes)
{
    fy__cuda_request_init(out, op, nelem, nsrc, NULL, 0);
    out->args.lanes = lanes;
    out->kernel = kernel;
    out->threads = nelem * lanes;
}

void fy__cuda_operand_kept(fy__cuda_operand_t *operand, const fy__cuda_canonical_t *c, int k)
{
    for (int axis = 0; axis < c->nkeep; axis++)
        fy__cuda_operand_add(operand, c->keep.dims[axis], c->keep.strides[k][axis]);
}
