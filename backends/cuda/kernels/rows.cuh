// Walking along rows with several reads in flight. The dtype is a template parameter: left to a
// switch at each access, the compiler keeps
// the accesses apart, and a thread waits for one after the other.
#ifndef FERRY_BACKENDS_CUDA_KERNELS_ROWS_CUH_
#define FERRY_BACKENDS_CUDA_KERNELS_ROWS_CUH_

#include "backends/cuda/kernels/wide.cuh"

__device__ inline float exponential(float x) { return fy__exp_f32(x); }
__device__ inline double exponential(double x) { return fy__exp_f64(x); }
__device__ inline float logarithm(float x) { return fy__log_f32(x); }
__device__ inline double logarithm(double x) { return fy__log_f64(x); }
__device__ inline float larger(float a, float b) { return fy__maximum_f32(a, b); }
__device__ inline double larger(double a, double b) { return fy__maximum_f64(a, b); }

// A stored element of dtype D as T.
template <int D, typename T> __device__ inline T widened(typename stored<D>::type x)
{
    if constexpr (D == FY_DTYPE_F16)
        return (T)widen_f16(x);
    else if constexpr (D == FY_DTYPE_BF16)
        return (T)fy__f32_from_bf16(x);
    else
        return (T)x;
}

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

// How a row is read: N neighbours at once, of dtype D; D < 0: of the operand's dtype, by load_row.
template <int D, int N> struct reads {
    static constexpr int dtype = D, n = N;
};

// Runs body(reads<D, N>()) for the float rows of a kernel that computes in float (f32, f16, bf16)
// or double (f64). Order is the same in all.
template <typename Body>
__device__ __forceinline__ void by_reads(float, const fy_args &args, Body body)
{
    const bool aligned = (args.flags & FY__CUDA_ALIGNED) != 0;
    const int dtype = args.src[0].dtype;
    if (args.wide == 8)
        aligned ? (dtype == FY_DTYPE_F16 ? body(reads<FY_DTYPE_F16, 8>())
                                         : body(reads<FY_DTYPE_BF16, 8>()))
                : body(reads<-1, 8>());
    else if (args.wide == 4)
        aligned ? body(reads<FY_DTYPE_F32, 4>()) : body(reads<-1, 4>());
    else
        body(reads<-1, 1>());
}
template <typename Body> __device__ inline void by_reads(double, const fy_args &args, Body body)
{
    if (args.wide == 2)
        (args.flags & FY__CUDA_ALIGNED) ? body(reads<FY_DTYPE_F64, 2>()) : body(reads<-1, 2>());
    else
        body(reads<-1, 1>());
}

// Runs body(reads<D, N>()) with 16 bytes of the dtype of the first source if `at_once`, else
// body(reads<-1, 1>()).
template <typename Body>
__device__ __forceinline__ void by_groups(float, const fy_args &args, bool at_once, Body body)
{
    const int dtype = args.src[0].dtype;
    if (!at_once)
        body(reads<-1, 1>());
    else if (dtype == FY_DTYPE_F32)
        body(reads<FY_DTYPE_F32, 4>());
    else
        dtype == FY_DTYPE_F16 ? body(reads<FY_DTYPE_F16, 8>()) : body(reads<FY_DTYPE_BF16, 8>());
}
template <typename Body>
__device__ __forceinline__ void by_groups(double, const fy_args &, bool at_once, Body body)
{
    at_once ? body(reads<FY_DTYPE_F64, 2>()) : body(reads<-1, 1>());
}

// body(k, x) for the N elements at k, k = first, first + stride, ... < end; element k lies at base
// + k * step. U reads are in flight.
template <typename R, int U, typename T, typename Body>
__device__ inline void walk_row(const fy_args &args, const fy_operand &o, int64_t base,
                                int64_t step, int64_t first, int64_t stride, int64_t end, Body body)
{
    constexpr int W = R::n;
    int64_t k = first;
    T x[W];
    if constexpr (R::dtype >= 0) {
        using E = typename stored<R::dtype>::type;
        for (; k + (U - 1) * stride < end; k += U * stride) {
            pack<E, W> p[U];
            for (int u = 0; u < U; u++) p[u] = read_pack<E, W>(o, base + (k + u * stride) * step);
            for (int u = 0; u < U; u++) {
                for (int i = 0; i < W; i++) x[i] = widened<R::dtype, T>(p[u].at[i]);
                body(k + u * stride, x);
            }
        }
        for (; k < end; k += stride) {
            const pack<E, W> p = read_pack<E, W>(o, base + k * step);
            for (int i = 0; i < W; i++) x[i] = widened<R::dtype, T>(p.at[i]);
            body(k, x);
        }
    } else {
        for (; k < end; k += stride) {
            load_row<W>(args, o, base + k * step, x);
            body(k, x);
        }
    }
}

// The same over two operands of one dtype: body(k, x, y).
template <typename R, int U, typename T, typename Body>
__device__ inline void walk_rows(const fy_args &args, const fy_operand &a, int64_t base_a,
                                 int64_t step_a, const fy_operand &b, int64_t base_b,
                                 int64_t step_b, int64_t first, int64_t stride, int64_t end,
                                 Body body)
{
    constexpr int W = R::n;
    int64_t k = first;
    T x[W], y[W];
    if constexpr (R::dtype >= 0) {
        using E = typename stored<R::dtype>::type;
        for (; k + (U - 1) * stride < end; k += U * stride) {
            pack<E, W> p[U], q[U];
            for (int u = 0; u < U; u++) {
                p[u] = read_pack<E, W>(a, base_a + (k + u * stride) * step_a);
                q[u] = read_pack<E, W>(b, base_b + (k + u * stride) * step_b);
            }
            for (int u = 0; u < U; u++) {
                for (int i = 0; i < W; i++)
                    x[i] = widened<R::dtype, T>(p[u].at[i]),
                    y[i] = widened<R::dtype, T>(q[u].at[i]);
                body(k + u * stride, x, y);
            }
        }
        for (; k < end; k += stride) {
            const pack<E, W> p = read_pack<E, W>(a, base_a + k * step_a),
                             q = read_pack<E, W>(b, base_b + k * step_b);
            for (int i = 0; i < W; i++)
                x[i] = widened<R::dtype, T>(p.at[i]), y[i] = widened<R::dtype, T>(q.at[i]);
            body(k, x, y);
        }
    } else {
        for (; k < end; k += stride) {
            load_row<W>(args, a, base_a + k * step_a, x);
            load_row<W>(args, b, base_b + k * step_b, y);
            body(k, x, y);
        }
    }
}

// ---- rows in pieces (pack_rows.c): a group of threads has one piece of one row; args.count is a
// piece's length ----

struct row_piece {
    uint64_t row;
    int64_t piece, begin, end;
};

__device__ inline row_piece piece_of(const fy_args &args, uint64_t group, uint64_t rows,
                                     int64_t length)
{
    row_piece p;
    p.piece = (int64_t)(group / rows);
    p.row = group - (uint64_t)p.piece * rows;
    p.begin = p.piece * (int64_t)args.count;
    p.end = p.begin + (int64_t)args.count < length ? p.begin + (int64_t)args.count : length;
    return p;
}

#endif
