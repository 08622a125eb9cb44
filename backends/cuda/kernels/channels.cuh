// Groups of neighbouring channels, of 16 bytes if args.wide says so, else one by one. The dtype of
// a group is a template parameter.
#ifndef FERRY_BACKENDS_CUDA_KERNELS_CHANNELS_CUH_
#define FERRY_BACKENDS_CUDA_KERNELS_CHANNELS_CUH_

#include "backends/cuda/kernels/rows.cuh"

template <typename R, typename T>
__device__ inline void load_channels(const fy_operand &o, int64_t offset, T *out)
{
    if constexpr (R::n == 8 && R::dtype >= 0) {
        uint32_t words[4];
        const pack<uint16_t, 8> p = read_pack<uint16_t, 8>(o, offset);
        memcpy(words, &p, sizeof p);
        for (int i = 0; i < 4; i++) widen_two<R::dtype>(words[i], out + 2 * i);
    } else {
        load_group<R::n>(o, offset, out);
    }
}

// Runs body(R()): groups of 16 bytes where args.wide says so, else single channels.
template <typename T, typename Body>
__device__ inline void by_channels(T of, const fy_args &args, Body body)
{
    by_groups(of, args, args.wide > 1, body);
}

#endif
