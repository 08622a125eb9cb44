// Rows that a group of threads reads once and keeps in registers: 4 accesses of 16 bytes a thread,
// which is 4,096 f32 where a block has the
// row. Longer rows, and those without 16-byte accesses, are walked again for each pass. The order
// of a sum is the same either way.
#ifndef FERRY_BACKENDS_CUDA_KERNELS_KEPT_ROWS_CUH_
#define FERRY_BACKENDS_CUDA_KERNELS_KEPT_ROWS_CUH_

#include "backends/cuda/kernels/rows.cuh"

enum { KEPT = 4 };

// Left to itself, nvcc keeps these loops, and the row goes to local memory, where registers can be
// indexed.
#define FY_UNROLL _Pragma("unroll")

// What a thread has of a row: element k = first + u * stride of x[u], -inf behind the end.
template <typename R, typename T> struct kept_row {
    T x[KEPT][R::n];
    int64_t first, stride, end;
};

template <typename R> __device__ inline bool can_keep(const fy_args &args, int64_t length)
{
    return R::dtype >= 0 && length <= (int64_t)args.lanes * R::n * KEPT;
}

template <typename R, typename T>
__device__ inline void keep_row(const fy_args &args, const fy_operand &o, int64_t base,
                                int64_t length, kept_row<R, T> &row)
{
    constexpr int W = R::n;
    row.first = lane_of(args) * W;
    row.stride = args.lanes * W;
    row.end = length;
    if constexpr (R::dtype >= 0) {
        using E = typename stored<R::dtype>::type;
        pack<E, W> p[KEPT];
        FY_UNROLL
        for (int u = 0; u < KEPT; u++)
            if (row.first + u * row.stride < length)
                p[u] = read_pack<E, W>(o, base + row.first + u * row.stride);
        FY_UNROLL
        for (int u = 0; u < KEPT; u++) {
            const bool inside = row.first + u * row.stride < length;
            for (int i = 0; i < W; i++)
                row.x[u][i] = inside ? widened<R::dtype, T>(p[u].at[i]) : -(T)INFINITY;
        }
    }
}

// body(k, x) for what there is of the row; x may be changed.
template <typename R, typename T, typename Body>
__device__ inline void each_kept(kept_row<R, T> &row, Body body)
{
    FY_UNROLL
    for (int u = 0; u < KEPT; u++)
        if (row.first + u * row.stride < row.end) body(row.first + u * row.stride, row.x[u]);
}

#endif
