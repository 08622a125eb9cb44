/* Where elements lie: linear (row-major) index to strided offset, and fusing axes so that most
 * tensors need one or two.
 * Offsets and strides are in elements. Nothing here reads tensor data. */
#ifndef FERRY_OPSET_FORMULAS_INDEX_H_
#define FERRY_OPSET_FORMULAS_INDEX_H_

#include "opset/formulas/formula.h"

#define FY_INDEX_RANK     8 /* FY_MAX_RANK */
#define FY_INDEX_OPERANDS 4

/* Offset of element `linear` in row-major order of dims. dims > 0. */
FY_FORMULA int64_t fy__offset_of(int64_t linear, int rank, const int64_t *dims,
                                 const int64_t *strides)
{
    int64_t offset = 0;
    for (int axis = rank - 1; axis > 0; axis--) {
        offset += linear % dims[axis] * strides[axis];
        linear /= dims[axis];
    }
    return rank > 0 ? offset + linear * strides[0] : 0;
}

/* The same elements with the order along `axes` (bit i: axis i; no bit: all) reversed: writes their
 * strides, returns the offset of the first. dims > 0. */
FY_FORMULA int64_t fy__reverse_axes(uint32_t axes, int rank, const int64_t *dims,
                                    const int64_t *strides, int64_t *out_strides)
{
    int64_t offset = 0;
    for (int axis = 0; axis < rank; axis++) {
        const int reversed = axes == 0 || (axes >> axis & 1) != 0;
        if (reversed) offset += (dims[axis] - 1) * strides[axis];
        out_strides[axis] = reversed ? -strides[axis] : strides[axis];
    }
    return offset;
}

/* Operands that are walked together, axes fused. rank >= 1 always (a scalar is one axis of length
 * 1). */
typedef struct fy__index {
    int rank, noperands;
    int64_t dims[FY_INDEX_RANK];
    int64_t strides[FY_INDEX_OPERANDS][FY_INDEX_RANK];
} fy__index_t;

/* Drops axes of length 1 and fuses neighbours that every operand steps through as one. The order of
 * elements stays.
 * strides[k] is operand k's. */
FY_FORMULA void fy__index_make(fy__index_t *index, int rank, const int64_t *dims, int noperands,
                               const int64_t *const *strides)
{
    int n = 0;
    for (int axis = 0; axis < rank; axis++) {
        if (dims[axis] == 1) continue;
        int fuse = n > 0;
        for (int k = 0; fuse && k < noperands; k++)
            fuse = index->strides[k][n - 1] == strides[k][axis] * dims[axis];
        if (!fuse) n++;
        index->dims[n - 1] = fuse ? index->dims[n - 1] * dims[axis] : dims[axis];
        for (int k = 0; k < noperands; k++) index->strides[k][n - 1] = strides[k][axis];
    }
    if (n == 0) {
        index->dims[0] = 1;
        for (int k = 0; k < noperands; k++) index->strides[k][0] = 1;
        n = 1;
    }
    index->rank = n;
    index->noperands = noperands;
}

#endif
