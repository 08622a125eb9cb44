/* The two tensor-core instructions of the kernels (kernels/tensor.cuh) over the scheduler of
 * simt.c, for kernels whose source is compiled for the host. Lanes exchange values in the layouts
 * of the PTX ISA ("ldmatrix", "Matrix Fragments for mma.m16n8k16"). Stricter than the hardware: all
 * lanes must arrive. */
#ifndef FERRY_TESTS_FAKE_CUDA_EMULATED_TENSOR_CORE_H_
#define FERRY_TESTS_FAKE_CUDA_EMULATED_TENSOR_CORE_H_

#include <stdint.h>

#include "opset/formulas/half.h"

template <bool TRANSPOSED> inline void load_matrices(const uint16_t *row, uint32_t (&out)[4])
{
    const unsigned lane = simt_lane();
    FY_CHECK_ALIGNED(row, 16);
    memcpy(simt_slot(lane), &row, sizeof row);
    simt_sync_warp();
    for (unsigned i = 0; i < 4; i++) {
        out[i] = 0;
        for (unsigned part = 0; part < 2; part++) {
            const unsigned neighbour = lane % 4 * 2 + part,
                           line = TRANSPOSED ? neighbour : lane / 4,
                           at = TRANSPOSED ? lane / 4 : neighbour;
            const uint16_t *from;
            memcpy(&from, simt_slot(i * 8 + line), sizeof from);
            out[i] |= (uint32_t)from[at] << part * 16;
        }
    }
    simt_sync_warp();
}

/* The values that a lane has of both factors. */
struct fragments_t {
    uint32_t a[4], b[2];
};

template <bool BF16> inline float half_of(uint32_t pair, unsigned part)
{
    const uint16_t half = (uint16_t)(pair >> part * 16);
    return BF16 ? fy__f32_from_bf16(half) : fy__f32_from_f16(half);
}

template <bool BF16>
inline void multiply_fragments(float (&sums)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    const unsigned lane = simt_lane();
    fragments_t own = { { a[0], a[1], a[2], a[3] }, { b0, b1 } };
    static_assert(sizeof own <= 32, "what simt_slot holds");
    memcpy(simt_slot(lane), &own, sizeof own);
    simt_sync_warp();
    /* row lane / 4, or 8 further; columns lane % 4 * 2 and the next */
    for (unsigned i = 0; i < 4; i++) {
        const unsigned row = lane / 4, lower = i / 2, column = lane % 4 * 2 + i % 2;
        for (unsigned k = 0; k < 16; k++) {
            fragments_t left, right;
            memcpy(&left, simt_slot(row * 4 + k % 8 / 2), sizeof left);
            memcpy(&right, simt_slot(column * 4 + k % 8 / 2), sizeof right);
            sums[i] += half_of<BF16>(left.a[lower + k / 8 * 2], k % 2) *
                       half_of<BF16>(right.b[k / 8], k % 2);
        }
    }
    simt_sync_warp();
}

#endif
