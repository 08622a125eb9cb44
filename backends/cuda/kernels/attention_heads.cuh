// A head of attention: where its rows are, the scale of its scores, its mask.
#ifndef FERRY_BACKENDS_CUDA_KERNELS_ATTENTION_HEADS_CUH_
#define FERRY_BACKENDS_CUDA_KERNELS_ATTENTION_HEADS_CUH_

#include "backends/cuda/kernels/common.cuh"

struct head {
    int64_t batch, row, number;
};

// Item `at` of [B, H, length].
__device__ inline head head_of(uint64_t at, int64_t heads, int64_t length)
{
    const int64_t pair = (int64_t)at / length;
    return { pair / heads, (int64_t)at % length, pair % heads };
}

// Where element 0 of row `row` of [B, ., H, D] is.
__device__ inline int64_t row_at(const fy_operand &o, const head &h, int64_t row)
{
    return h.batch * o.strides[0] + row * o.strides[1] + h.number * o.strides[2];
}

__device__ inline int64_t sum_at(const fy_operand &o, const head &h, int64_t row)
{
    return h.batch * o.strides[0] + h.number * o.strides[1] + row * o.strides[2];
}

template <typename T> __device__ inline T scale_of(const fy_args &args, int64_t width)
{
    const double scale = args.attrs.attention.scale;
    return (T)(scale != 0 ? scale : 1 / sqrt((double)width));
}

// May the row attend to the key? The mask is source `mask`.
__device__ inline bool may(const fy_args &args, uint32_t mask, const head &h, int64_t row,
                           int64_t key)
{
    if (args.attrs.attention.is_causal && key > row) return false;
    if (args.nsrc <= mask) return true;
    const fy_operand &o = args.src[mask];
    const auto stride = [&](int axis) { // from the last axis
        return axis < o.rank && o.dims[o.rank - 1 - axis] > 1 ? o.strides[o.rank - 1 - axis] : 0;
    };
    return *element<uint8_t>(o, h.batch * stride(3) + h.number * stride(2) + row * stride(1) +
                                    key * stride(0)) != 0;
}

#endif
