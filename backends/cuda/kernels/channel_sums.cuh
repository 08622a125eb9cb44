// Two sums for each column, over many rows: the statistics of batch_norm, the gradients of weights
// and biases. A block has a tile of columns and a piece of the rows: args.lanes threads lie side by
// side, each has args.wide neighbouring columns; the others have further rows. A thread adds a few
// rows in the compute type, then in f64. Pieces are in the workspace, the last source, f64 [pieces,
// 2, columns]. Every sum has one fixed order, also where no 16-byte access is possible: there a
// thread has its columns one after the other. pack_norm.c plans it.
#ifndef FERRY_BACKENDS_CUDA_KERNELS_CHANNEL_SUMS_CUH_
#define FERRY_BACKENDS_CUDA_KERNELS_CHANNEL_SUMS_CUH_

#include "backends/cuda/kernels/kept_rows.cuh"

struct sums {
    double first, second;
};
template <int W> struct thread_sums {
    double first[W] = {}, second[W] = {};
};
// The neighbours of a 16-byte access at most, where T is the compute type.
template <typename T> constexpr int most_wide = sizeof(T) == 4 ? 8 : 2;
template <typename T> using sums_scratch = double[2][most_wide<T>][FY__CUDA_BLOCK];

// ---- elements ----

// Runs body(R()): 16 bytes of neighbours in one access, one stride from row to row; or one element.
template <typename T, typename Body>
__device__ __forceinline__ void by_access(T of, const fy_args &args, Body body)
{
    by_groups(of, args, (args.flags & FY__CUDA_ALIGNED) != 0, body);
}
template <typename R> __device__ inline uint32_t width_of(const fy_args &args)
{
    return R::n > 1 ? R::n : args.wide > 1 ? args.wide : 1;
}

template <typename R>
__device__ inline int64_t place_of(const fy_args &args, const fy_operand &o, int64_t row,
                                   int64_t column)
{
    if constexpr (R::dtype >= 0) return row * o.strides[0] + column;
    return locate(o, 0, o.rank - 1, (uint64_t)row, args.flags) + column * o.strides[o.rank - 1];
}
// N stored elements of dtype D. A NaN of bf16 may stay a signalling one: arithmetic follows.
template <int D, int N, typename T>
__device__ inline void widen_group(const pack<typename stored<D>::type, N> &p, T (&x)[N])
{
    if constexpr (D == FY_DTYPE_BF16 && N % 2 == 0) {
        uint32_t pairs[N / 2];
        memcpy(pairs, &p, sizeof pairs);
        for (int i = 0; i < N; i += 2) widen_two<D>(pairs[i / 2], x + i);
    } else if constexpr (D == FY_DTYPE_BF16) {
        for (int i = 0; i < N; i++) x[i] = __uint_as_float((uint32_t)p.at[i] << 16);
    } else {
        for (int i = 0; i < N; i++) x[i] = widened<D, T>(p.at[i]);
    }
}
// U groups of neighbours, at at(u) if has(u); else zeros.
template <typename R, int U, typename T, typename Has, typename At>
__device__ inline void read_groups(const fy_operand &o, T (&x)[U][R::n], Has has, At at)
{
    if constexpr (R::dtype >= 0) {
        using E = typename stored<R::dtype>::type;
        pack<E, R::n> p[U] = {};
        FY_UNROLL
        for (int u = 0; u < U; u++)
            if (has(u)) p[u] = read_pack<E, R::n>(o, at(u));
        FY_UNROLL
        for (int u = 0; u < U; u++) widen_group<R::dtype>(p[u], x[u]);
    } else {
        FY_UNROLL
        for (int u = 0; u < U; u++) x[u][0] = has(u) ? load<T>(o, at(u)) : (T)0;
    }
}
template <typename R, typename T>
__device__ inline void write_group(const fy_operand &o, int64_t offset, const T (&x)[R::n])
{
    if constexpr (R::dtype >= 0)
        write_as<R::n, stored<R::dtype>>(o, offset, x);
    else
        store_result<1>(o, offset, x);
}
// Adds the value before, if the launch says so.
template <typename R, typename T>
__device__ inline void put_group(const fy_args &args, int64_t offset, T (&x)[1][R::n])
{
    T before[1][R::n];
    if (args.accumulate & 1) {
        read_groups<R>(
            args.dst[0], before, [](int) { return true; }, [&](int) { return offset; });
        for (int i = 0; i < R::n; i++) x[0][i] += before[0][i];
    }
    write_group<R>(args.dst[0], offset, x[0]);
}

// A vector of values, and a result of that shape.
template <typename T> __device__ inline T of_column(const fy_operand &o, int64_t column)
{
    return load<T>(o, column * o.strides[0]);
}
__device__ inline void put_column(const fy_args &args, int dst, int64_t column, double value)
{
    const fy_operand &o = args.dst[dst];
    if (args.accumulate >> dst & 1) value += of_column<double>(o, column);
    store(o, column * o.strides[0], value);
}

// ---- tiles ----

// A thread has the columns from `column` on in every `step`-th row from `row` on, and gets the
// block's sums of column `summed`, if it `sums`.
struct tile_part {
    int64_t piece, begin, end, row, column, summed;
    int step;
    bool is_inside, sums;
};

// Runs body(part) for each tile of each piece; the whole block does.
template <typename R, typename Body>
__device__ inline void each_tile(const fy_args &args, int64_t rows, int64_t columns, Body body)
{
    const uint32_t threads = args.lanes, width = width_of<R>(args);
    const int64_t share = args.count != FY__CUDA_NO_COUNT ? (int64_t)args.count : rows,
                  tiles = (columns + threads * width - 1) / (threads * width),
                  units = (rows + share - 1) / share * tiles;
    for (int64_t unit = blockIdx.x; unit < units; unit += gridDim.x) {
        tile_part part;
        part.piece = unit / tiles;
        part.begin = part.piece * share;
        part.end = part.begin + share < rows ? part.begin + share : rows;
        part.row = part.begin + threadIdx.x / threads;
        part.step = (int)(blockDim.x / threads);
        part.column = ((unit - part.piece * tiles) * threads + threadIdx.x % threads) * width;
        for (uint32_t i = 0; i < width; i += R::n, part.column += R::n) {
            part.is_inside = part.column < columns;
            part.summed = part.column + threadIdx.x / threads;
            part.sums = part.is_inside && threadIdx.x < threads * R::n;
            body(part);
        }
    }
}

// Runs body(row, left) for the thread's rows, U at a time: row, row + step, ... < row + left.
template <int U, typename Body> __device__ inline void each_rows(const tile_part &part, Body body)
{
    for (int64_t row = part.row; row < part.end && part.is_inside; row += U * part.step) {
        const int64_t left = part.end - row;
        body(row, left < U * part.step ? (int)left : U * part.step);
    }
}
// Of these rows; zeros behind them.
template <typename R, int U, typename T>
__device__ inline void read_rows(const fy_args &args, const fy_operand &o, const tile_part &part,
                                 int64_t row, int left, T (&x)[U][R::n])
{
    read_groups<R>(
        o, x, [&](int u) { return u * part.step < left; },
        [&](int u) { return place_of<R>(args, o, row + u * part.step, part.column); });
}

// Adds up the threads that have the same columns, `threads` side by side, of W columns each: thread
// j * threads + i gets column j of thread i. All threads of the block call it.
template <int W, int MOST>
__device__ inline sums add_threads(const thread_sums<W> &s, uint32_t threads,
                                   double (&scratch)[2][MOST][FY__CUDA_BLOCK])
{
    __syncthreads(); // the scratch of the tile before has been read
    for (int i = 0; i < W; i++) {
        scratch[0][i][threadIdx.x] = s.first[i];
        scratch[1][i][threadIdx.x] = s.second[i];
    }
    __syncthreads();
    sums all = { 0, 0 };
    const uint32_t of = threadIdx.x / threads;
    for (uint32_t at = threadIdx.x % threads; of < W && at < blockDim.x; at += threads) {
        all.first += scratch[0][of][at];
        all.second += scratch[1][of][at];
    }
    return all;
}

// ---- pieces ----

__device__ inline double *partial(const fy_args &args, int64_t piece, int which, int64_t column)
{
    const fy_operand &o = args.src[args.nsrc - 1];
    return element<double>(o, (piece * 2 + which) * o.dims[2] + column);
}
__device__ inline void put_partial(const fy_args &args, const tile_part &part, sums s)
{
    *partial(args, part.piece, 0, part.summed) = s.first;
    *partial(args, part.piece, 1, part.summed) = s.second;
}

// Joins pieces: add(piece, column, sums) turns sums of a piece into terms; then
// finish(column, sums) runs in one thread a column.
template <typename Add, typename Finish>
__device__ inline void join_pieces(const fy_args &args, sums_scratch<double> &scratch, Add add,
                                   Finish finish)
{
    const fy_operand &o = args.src[args.nsrc - 1];
    const uint32_t threads = args.lanes;
    for (int64_t first = (int64_t)blockIdx.x * threads; first < o.dims[2];
         first += (int64_t)gridDim.x * threads) {
        const int64_t column = first + threadIdx.x % threads;
        thread_sums<1> s;
        for (int64_t piece = threadIdx.x / threads; piece < o.dims[0] && column < o.dims[2];
             piece += blockDim.x / threads) {
            sums one = { *partial(args, piece, 0, column), *partial(args, piece, 1, column) };
            add(piece, column, one);
            s.first[0] += one.first;
            s.second[0] += one.second;
        }
        const sums all = add_threads(s, threads, scratch);
        if (threadIdx.x < threads && column < o.dims[2]) finish(column, all);
    }
}

#endif
