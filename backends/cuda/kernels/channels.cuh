// Groups of neighbouring channels, of 16 bytes if args.wide says so, else one by one. The dtype of
// a group is a template parameter.
#ifndef FERRY_BACKENDS_CUDA_KERNELS_CHANNELS_CUH_
#define FERRY_BACKENDS_CUDA_KERNELS_CHANNELS_CUH_

#include "backends/cuda/kernels/rows.cuh"

// Two halves of a word. They are only compared or computed with: a signaling NaN of bf16 need not
// be made quiet. With a cast of bits, nvcc moves each sum between registers of two kinds.
template <int D> __device__ inline void widen_two(uint32_t word, float *out)
{
    if constexpr (D == FY_DTYPE_F16) {
        out[0] = widen_f16((uint16_t)word), out[1] = widen_f16((uint16_t)(word >> 16));
    } else {
        asm("shl.b32 %0, %1, 16;" : "=f"(out[0]) : "r"(word));
        asm("and.b32 %0, %1, 0xffff0000;" : "=f"(out[1]) : "r"(word));
    }
}
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

// Runs body(reads<D, W>()) where groups may be accessed at once, else body(reads<-1, 1>()).
template <typename Body> __device__ inline void by_channels(float, const fy_args &args, Body body)
{
    if (args.wide == 8)
        args.src[0].dtype == FY_DTYPE_F16 ? body(reads<FY_DTYPE_F16, 8>())
                                          : body(reads<FY_DTYPE_BF16, 8>());
    else if (args.wide == 4)
        body(reads<FY_DTYPE_F32, 4>());
    else
        body(reads<-1, 1>());
}
template <typename Body> __device__ inline void by_channels(double, const fy_args &args, Body body)
{
    args.wide == 2 ? body(reads<FY_DTYPE_F64, 2>()) : body(reads<-1, 1>());
}

#endif
