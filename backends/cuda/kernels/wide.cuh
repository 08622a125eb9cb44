// Several neighbouring elements at once, up to 16 bytes an access. args.wide says how many,
// FY__CUDA_ALIGNED that every operand has them where
// such an access may go: the host looked at addresses and strides (pack_wide.c), nothing here does.
#ifndef FERRY_BACKENDS_CUDA_KERNELS_WIDE_CUH_
#define FERRY_BACKENDS_CUDA_KERNELS_WIDE_CUH_

#include "backends/cuda/kernels/common.cuh"

// W elements; of more than 16 bytes it is several accesses.
template <typename E, int W> struct alignas(sizeof(E) * W < 16 ? sizeof(E) * W : 16) pack {
    E at[W];
};

template <typename E, int W>
__device__ inline pack<E, W> read_pack(const fy_operand &o, int64_t offset)
{
    return *(const pack<E, W> *)element<E>(o, offset);
}

template <typename E, int W>
__device__ inline void write_pack(const fy_operand &o, int64_t offset, const pack<E, W> &p)
{
    E *to = element<E>(o, offset);
    // Spelt out: left to itself, the compiler merges such a store with the narrow ones of another
    // branch and splits it for that.
    if constexpr (sizeof p >= 16) {
        uint64_t words[sizeof p / 8];
        memcpy(words, &p, sizeof p);
        for (size_t i = 0; i < sizeof p / 8; i += 2)
            asm volatile("st.global.v2.u64 [%0], {%1, %2};" ::"l"(
                             __cvta_generic_to_global((uint64_t *)to + i)),
                         "l"(words[i]), "l"(words[i + 1])
                         : "memory");
        return;
    }
    *(pack<E, W> *)to = p;
}

// ---- with conversion, as load and store have it ----

template <int W> __device__ inline void load_wide(const fy_operand &o, int64_t offset, float *out)
{
    if (o.dtype == FY_DTYPE_F32) {
        const pack<float, W> p = read_pack<float, W>(o, offset);
        for (int i = 0; i < W; i++) out[i] = p.at[i];
        return;
    }
    const pack<uint16_t, W> p = read_pack<uint16_t, W>(o, offset);
    if (o.dtype == FY_DTYPE_F16)
        for (int i = 0; i < W; i++) out[i] = widen_f16(p.at[i]);
    else
        for (int i = 0; i < W; i++) out[i] = fy__f32_from_bf16(p.at[i]);
}
template <int W> __device__ inline void load_wide(const fy_operand &o, int64_t offset, double *out)
{
    if (o.dtype == FY_DTYPE_F64) {
        const pack<double, W> p = read_pack<double, W>(o, offset);
        for (int i = 0; i < W; i++) out[i] = p.at[i];
        return;
    }
    float x[W];
    load_wide<W>(o, offset, x);
    for (int i = 0; i < W; i++) out[i] = (double)x[i];
}
template <typename E, int W>
__device__ inline void load_integers(const fy_operand &o, int64_t offset, int64_t *out)
{
    const pack<E, W> p = read_pack<E, W>(o, offset);
    for (int i = 0; i < W; i++) out[i] = (int64_t)p.at[i];
}
template <int W> __device__ inline void load_wide(const fy_operand &o, int64_t offset, int64_t *out)
{
    switch (o.dtype) {
    case FY_DTYPE_I32: load_integers<int32_t, W>(o, offset, out); break;
    case FY_DTYPE_I64: load_integers<int64_t, W>(o, offset, out); break;
    default: load_integers<uint8_t, W>(o, offset, out); break;
    }
}

template <int W, typename S, typename T>
__device__ inline void write_as(const fy_operand &o, int64_t offset, const T *x)
{
    pack<typename S::type, W> p;
    for (int i = 0; i < W; i++) p.at[i] = S::from(x[i]);
    write_pack<typename S::type, W>(o, offset, p);
}

template <int W, typename T>
__device__ inline void store_wide(const fy_operand &o, int64_t offset, const T *x)
{
    by_dtype(o.dtype, [&](auto as) { write_as<W, decltype(as)>(o, offset, x); });
}

// What arithmetic on T gives: T's own class, or bool.
template <int W>
__device__ inline void store_result(const fy_operand &o, int64_t offset, const float *x)
{
    switch (o.dtype) {
    case FY_DTYPE_F32: write_as<W, stored<FY_DTYPE_F32>>(o, offset, x); break;
    case FY_DTYPE_F16: write_as<W, stored<FY_DTYPE_F16>>(o, offset, x); break;
    case FY_DTYPE_BF16: write_as<W, stored<FY_DTYPE_BF16>>(o, offset, x); break;
    default: write_as<W, stored<FY_DTYPE_BOOL>>(o, offset, x); break;
    }
}
template <int W>
__device__ inline void store_result(const fy_operand &o, int64_t offset, const double *x)
{
    if (o.dtype == FY_DTYPE_F64)
        write_as<W, stored<FY_DTYPE_F64>>(o, offset, x);
    else
        write_as<W, stored<FY_DTYPE_BOOL>>(o, offset, x);
}
template <int W>
__device__ inline void store_result(const fy_operand &o, int64_t offset, const int64_t *x)
{
    switch (o.dtype) {
    case FY_DTYPE_I32: write_as<W, stored<FY_DTYPE_I32>>(o, offset, x); break;
    case FY_DTYPE_I64: write_as<W, stored<FY_DTYPE_I64>>(o, offset, x); break;
    case FY_DTYPE_U8: write_as<W, stored<FY_DTYPE_U8>>(o, offset, x); break;
    default: write_as<W, stored<FY_DTYPE_BOOL>>(o, offset, x); break;
    }
}

// W elements, or one that stands for all of them (stride 0 along the last axis).
template <int W, typename T>
__device__ inline void load_or_repeat(const fy_operand &o, int64_t offset, T *out)
{
    if (o.strides[o.rank - 1] != 0) {
        load_wide<W>(o, offset, out);
        return;
    }
    const T x = load<T>(o, offset);
    for (int i = 0; i < W; i++) out[i] = x;
}

// W neighbours of a row, in one access if they may be: the same elements in the same order either
// way.
template <int W, typename T>
__device__ inline void load_row(const fy_args &args, const fy_operand &o, int64_t offset, T *out)
{
    if (W > 1 && (args.flags & FY__CUDA_ALIGNED))
        load_wide<W>(o, offset, out);
    else
        for (int i = 0; i < W; i++) out[i] = load<T>(o, offset + i);
}
template <int W, typename T>
__device__ inline void store_row(const fy_args &args, const fy_operand &o, int64_t offset,
                                 const T *x)
{
    if (W > 1 && (args.flags & FY__CUDA_ALIGNED))
        store_result<W>(o, offset, x);
    else
        for (int i = 0; i < W; i++) store(o, offset + i, x[i]);
}
// As put.
template <int W, typename T>
__device__ inline void put_row(const fy_args &args, int64_t offset, T *x)
{
    if (args.accumulate) {
        T before[W];
        load_row<W>(args, args.dst[0], offset, before);
        for (int i = 0; i < W; i++) x[i] += before[i];
    }
    store_row<W>(args, args.dst[0], offset, x);
}

// Where W > 1 is only asked for if the accesses may be that wide.
template <int W, typename T>
__device__ inline void load_group(const fy_operand &o, int64_t offset, T *out)
{
    if constexpr (W > 1)
        load_wide<W>(o, offset, out);
    else
        out[0] = load<T>(o, offset);
}
template <int W, typename T>
__device__ inline void put_group(const fy_args &args, int64_t offset, T *x)
{
    if (args.accumulate) {
        T before[W];
        load_group<W>(args.dst[0], offset, before);
        for (int i = 0; i < W; i++) x[i] += before[i];
    }
    if constexpr (W > 1)
        store_result<W>(args.dst[0], offset, x);
    else
        store(args.dst[0], offset, x[0]);
}

// Runs body(width<W>()) with W = args.wide, or 1.
template <int W> struct width {
    static constexpr int n = W;
};
template <typename Body> __device__ inline void by_width(float, const fy_args &args, Body body)
{
    if (args.wide == 8)
        body(width<8>());
    else if (args.wide == 4)
        body(width<4>());
    else
        body(width<1>());
}
template <typename Body> __device__ inline void by_width(double, const fy_args &args, Body body)
{
    if (args.wide == 2)
        body(width<2>());
    else
        body(width<1>());
}

// Offsets of group `group` in N operands whose dims are d's; a row is d.dims[last] / W groups. With
// one axis the last, shorter group is
// not counted: the caller does its elements one by one. With several there is none.
template <int W, int N>
__device__ inline void locate_group(const fy_args &args, const fy_operand &d,
                                    const fy_operand *const (&operands)[N], uint64_t group,
                                    int64_t (&at)[N])
{
    const int last = d.rank - 1;
    const uint64_t column = last == 0 ? group : split(group, d.dims[last] / W, args.flags);
    for (int k = 0; k < N; k++) at[k] = (int64_t)column * W * operands[k]->strides[last];
    for (int axis = last - 1; axis >= 0; axis--) {
        const int64_t i = (int64_t)(axis > 0 ? split(group, d.dims[axis], args.flags) : group);
        for (int k = 0; k < N; k++) at[k] += i * operands[k]->strides[axis];
    }
}

#endif
