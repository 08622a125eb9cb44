// What every kernel file needs: operands as the host packed them (args.h), loads and stores by
// dtype, groups of threads that share one
// result. Formulas come from opset/formulas; none stands here. Every kernel takes the whole args
// struct by value, as
// __grid_constant__, so that its arrays are read from constant memory instead of being copied to
// each thread's stack.
#ifndef FERRY_BACKENDS_CUDA_KERNELS_COMMON_CUH_
#define FERRY_BACKENDS_CUDA_KERNELS_COMMON_CUH_

#include <type_traits>

#include "backends/cuda/args.h"
#include "backends/cuda/flat.h"
#include "opset/formulas/cast.h"
#include "opset/formulas/scalar.h"

#define FY_KERNEL extern "C" __global__ void __launch_bounds__(FY__CUDA_BLOCK)
#define FY_ARGS   const __grid_constant__ fy__cuda_args_t
#define FY_FLAT   const __grid_constant__ fy__cuda_flat_t
#define FY_CHAIN  const __grid_constant__ fy__cuda_chain_t

using fy_args = fy__cuda_args_t;
using fy_operand = fy__cuda_operand_t;
using fy_flat = fy__cuda_flat_t;

// A kernel whose body shares memory of `type` between the threads of a block: body(args, memory).
#define FY_SHARED_KERNEL(name, type, ...) \
    FY_KERNEL name(FY_ARGS args)          \
    {                                     \
        __shared__ type scratch;          \
        __VA_ARGS__(args, scratch);       \
    }
template <typename V> using per_warp = V[FY__CUDA_BLOCK / 32];
template <typename V> using per_thread = V[FY__CUDA_BLOCK];

// A kernel that args.h lists and its file lacks does not compile. File m.cu defines FY_MODULE_m as
// a comma, so that FY_IS_KERNEL is the second argument, and expands the list with this macro.
#define FY_KERNEL_EXISTS(module, name) \
    FY_SECOND(FY_MODULE_##module FY_IS_KERNEL, FY_IS_ELSEWHERE, )(name)
#define FY_SECOND(...)                 FY_SECOND_(__VA_ARGS__)
#define FY_SECOND_(first, second, ...) second
#define FY_IS_KERNEL(name)             static_assert(std::is_function<decltype(name)>::value, "");
#define FY_IS_ELSEWHERE(name)

// Runs body(args) with what flat arguments mean. Rank and strides are then known to the compiler:
// of the large struct nothing is left.
template <typename Body> __device__ inline void with_flat(const fy_flat &flat, Body body)
{
    fy_args args;
    fy__cuda_flat_expand(&flat, &args);
    body(args);
}

// ---- threads ----

__device__ inline uint64_t first_thread()
{
    return (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
}
__device__ inline uint64_t all_threads() { return (uint64_t)gridDim.x * blockDim.x; }

// ---- indices ----

// Splits `linear` by `dim`: the remainder is returned, the quotient replaces it. 32-bit division is
// several times faster.
__device__ inline uint64_t split(uint64_t &linear, int64_t dim, uint32_t flags)
{
    if (flags & FY__CUDA_SMALL) {
        uint32_t small = (uint32_t)linear, quotient = small / (uint32_t)dim;
        linear = quotient;
        return small - quotient * (uint32_t)dim;
    }
    uint64_t quotient = linear / (uint64_t)dim, rest = linear - quotient * (uint64_t)dim;
    linear = quotient;
    return rest;
}

// Offsets of element `linear` (row-major over axes first .. last-1 of `a`) in two operands of equal
// dims there.
__device__ inline void locate2(const fy_operand &a, const fy_operand &b, int first, int last,
                               uint64_t linear, uint32_t flags, int64_t &offset_a,
                               int64_t &offset_b)
{
    for (int axis = last - 1; axis > first; axis--) {
        int64_t i = (int64_t)split(linear, a.dims[axis], flags);
        offset_a += i * a.strides[axis];
        offset_b += i * b.strides[axis];
    }
    if (last > first) {
        offset_a += (int64_t)linear * a.strides[first];
        offset_b += (int64_t)linear * b.strides[first];
    }
}

__device__ inline int64_t locate(const fy_operand &a, int first, int last, uint64_t linear,
                                 uint32_t flags)
{
    int64_t offset = 0;
    for (int axis = last - 1; axis > first; axis--)
        offset += (int64_t)split(linear, a.dims[axis], flags) * a.strides[axis];
    if (last > first) offset += (int64_t)linear * a.strides[first];
    return offset;
}

__device__ inline int64_t at4(const fy_operand &o, int64_t i0, int64_t i1, int64_t i2, int64_t i3)
{
    return i0 * o.strides[0] + i1 * o.strides[1] + i2 * o.strides[2] + i3 * o.strides[3];
}

// ---- loads and stores. T is the compute type: float (f32, f16, bf16), double (f64, or any float),
// int64_t (the rest) ----

// Operands lie in global memory (page-locked host memory does, too); told so, the compiler leaves
// out the check of every access.
template <typename E> __device__ inline E *element(const fy_operand &o, int64_t offset)
{
    E *at = (E *)(uintptr_t)o.data + offset;
    __builtin_assume(__isGlobal(at));
    return at;
}

// f16 and bf16: one instruction; the formula for bf16 before compute 8.0. Equal but for the bits of
// a NaN.
__device__ inline float widen_f16(uint16_t x)
{
    float wide;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(x));
    return wide;
}
__device__ inline uint16_t narrow_f16(float x)
{
    uint16_t half;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(x));
    return half;
}
__device__ inline uint16_t narrow_bf16(float x)
{
#if defined __CUDA_ARCH__ && __CUDA_ARCH__ >= 800
    uint16_t half;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(half) : "f"(x));
    return half;
#else
    return fy__bf16_from_f32(x);
#endif
}

template <typename T> __device__ T load(const fy_operand &o, int64_t offset);

template <> __device__ inline float load<float>(const fy_operand &o, int64_t offset)
{
    switch (o.dtype) {
    case FY_DTYPE_F16: return widen_f16(*element<uint16_t>(o, offset));
    case FY_DTYPE_BF16: return fy__f32_from_bf16(*element<uint16_t>(o, offset));
    default: return *element<float>(o, offset);
    }
}
template <> __device__ inline double load<double>(const fy_operand &o, int64_t offset)
{
    if (o.dtype == FY_DTYPE_F64) return *element<double>(o, offset);
    return (double)load<float>(o, offset);
}
template <> __device__ inline int64_t load<int64_t>(const fy_operand &o, int64_t offset)
{
    switch (o.dtype) {
    case FY_DTYPE_I32: return *element<int32_t>(o, offset);
    case FY_DTYPE_I64: return *element<int64_t>(o, offset);
    default: return *element<uint8_t>(o, offset);
    }
}

// As fy_cast has it, from each of the three types to what a dtype is stored as.
template <int dtype> struct stored;
#define STORED(NAME, E, from_f32, from_f64, from_i64)                   \
    template <> struct stored<FY_DTYPE_##NAME> {                        \
        using type = E;                                                 \
        __device__ static inline E from(float x) { return from_f32; }   \
        __device__ static inline E from(double x) { return from_f64; }  \
        __device__ static inline E from(int64_t x) { return from_i64; } \
    };
STORED(F32, float, x, (float)x, (float)x)
STORED(F64, double, (double)x, x, (double)x)
STORED(F16, uint16_t, narrow_f16(x), fy__f16_from_f64(x), fy__f16_from_i64(x))
STORED(BF16, uint16_t, narrow_bf16(x), fy__bf16_from_f64(x), fy__bf16_from_i64(x))
STORED(I32, int32_t, fy__i32_from_f32(x), fy__i32_from_f64(x), (int32_t)x)
STORED(I64, int64_t, fy__i64_from_f32(x), fy__i64_from_f64(x), x)
STORED(U8, uint8_t, fy__u8_from_f32(x), fy__u8_from_f64(x), (uint8_t)x)
STORED(BOOL, uint8_t, fy__bool_from_f32(x), fy__bool_from_f64(x), (uint8_t)(x != 0))

// Runs body(stored<dtype>()) for the operand's dtype.
template <typename Body> __device__ inline void by_dtype(int32_t dtype, Body body)
{
    switch (dtype) {
    case FY_DTYPE_F32: body(stored<FY_DTYPE_F32>()); break;
    case FY_DTYPE_F64: body(stored<FY_DTYPE_F64>()); break;
    case FY_DTYPE_F16: body(stored<FY_DTYPE_F16>()); break;
    case FY_DTYPE_BF16: body(stored<FY_DTYPE_BF16>()); break;
    case FY_DTYPE_I32: body(stored<FY_DTYPE_I32>()); break;
    case FY_DTYPE_I64: body(stored<FY_DTYPE_I64>()); break;
    case FY_DTYPE_U8: body(stored<FY_DTYPE_U8>()); break;
    default: body(stored<FY_DTYPE_BOOL>()); break;
    }
}

template <typename T> __device__ inline void store(const fy_operand &o, int64_t offset, T x)
{
    by_dtype(o.dtype, [&](auto as) {
        using S = decltype(as);
        *element<typename S::type>(o, offset) = S::from(x);
    });
}

// Assigns, or adds if the launch says so.
template <typename T> __device__ inline void put(const fy_args &args, int64_t offset, T x)
{
    if (args.accumulate) x += load<T>(args.dst[0], offset);
    store(args.dst[0], offset, x);
}

// ---- groups: args.lanes threads (1, a warp, or the block) share one result ----

__device__ inline uint32_t lane_of(const fy_args &args) { return threadIdx.x & (args.lanes - 1); }
__device__ inline uint64_t first_group(const fy_args &args)
{
    uint32_t groups = blockDim.x / args.lanes;
    return (uint64_t)blockIdx.x * groups + threadIdx.x / args.lanes;
}
__device__ inline uint64_t all_groups(const fy_args &args)
{
    return (uint64_t)gridDim.x * (blockDim.x / args.lanes);
}

// Combines the group's values in a fixed order; every thread of the group gets the result. All
// threads of the group call it.
// `scratch`: shared, one V a warp; only the block-wide case uses it.
template <typename V, typename Shuffle, typename Combine>
__device__ inline V group_combine(const fy_args &args, V value, V *scratch, Shuffle shuffle,
                                  Combine combine)
{
    if (args.lanes == 1) return value;
    for (int step = 16; step > 0; step >>= 1) value = combine(value, shuffle(value, step));
    if (args.lanes == 32) return value;
    __syncthreads(); // the scratch of the previous result has been read
    if ((threadIdx.x & 31) == 0) scratch[threadIdx.x >> 5] = value;
    __syncthreads();
    value = scratch[0];
    for (uint32_t warp = 1; warp < blockDim.x / 32; warp++) value = combine(value, scratch[warp]);
    return value;
}

template <typename T, typename Combine>
__device__ inline T group_reduce(const fy_args &args, T value, T *scratch, Combine combine)
{
    return group_combine(
        args, value, scratch, [](T x, int step) { return __shfl_xor_sync(0xffffffffu, x, step); },
        combine);
}

#endif
