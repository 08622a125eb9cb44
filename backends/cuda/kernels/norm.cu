// batch_norm, its gradients, batch_norm_inference. A block has a tile of channels; a thread has up
// to 16 bytes of a row, and keeps what a channel needs in registers over its rows.
// Few rows: one launch, a block has all rows of its tile, a thread one channel. Else three: sums of
// pieces of rows, in the workspace; their join, which leaves two constants a channel there; the
// result.
// A thread adds up few rows in f32, about their own mean where squares are wanted, and those sums
// in f64: no element that differs much from the others makes the rest inexact.
#include "backends/cuda/kernels/channel_sums.cuh"

namespace
{

struct line {
    double center, scale; // y = (x - center) scale + bias; gradients: dbias / n, dweight rstd / n
};
// y = (x - CENTER) SCALE + SHIFT; dx = dy SCALE - SHIFT - (x - CENTER) SLOPE.
enum { CENTER, SCALE, SHIFT, SLOPE };
template <typename T> using tile_constants = T[4][32 * most_wide<T>];
template <typename T> struct whole_scratch {
    double parts[2][1][FY__CUDA_BLOCK];
    tile_constants<T> constants;
};

__device__ inline bool is_backward(const fy_args &args)
{
    return args.op == FY_OP_BATCH_NORM_BACKWARD;
}
__device__ inline const fy_operand &x_of(const fy_args &args)
{
    return args.src[is_backward(args)];
}
__device__ inline int64_t channels_of(const fy_args &args)
{
    const fy_operand &x = x_of(args);
    return x.dims[x.rank - 1];
}
__device__ inline int64_t rows_of(const fy_args &args)
{
    return (int64_t)args.nelem / channels_of(args);
}
// Whether the optional source is there: behind the required ones; the workspace, if any, is last.
__device__ inline bool has_optional(const fy_args &args, uint32_t nworkspace)
{
    return args.nsrc - nworkspace > (args.op == FY_OP_BATCH_NORM ? 3u : 5u);
}

// ---- sums of a tile ----

// Of x less x in the piece's first row, and of its square. Squares are those of differences from
// the mean of few rows: a mean or a first row far away costs no digits.
template <typename R, typename T>
__device__ inline thread_sums<R::n> sum_moments(const fy_args &args, const tile_part &part)
{
    constexpr int W = R::n, U = 4; // `inverse` knows U
    const fy_operand &x = x_of(args);
    thread_sums<W> s;
    T from[1][W];
    if (part.is_inside) read_rows<R>(args, x, part, part.begin, 1, from);
    each_rows<U>(part, [&](int64_t row, int left) {
        T d[U][W];
        read_rows<R>(args, x, part, row, left, d);
        const auto add = [&](auto full) {
            const int n = decltype(full)::value ? U : (left + part.step - 1) / part.step;
            // a division would be a call with all sums in registers
            const double inverse = n == U ? 1.0 / U : n == 3 ? 1.0 / 3 : n == 2 ? 0.5 : 1;
            for (int i = 0; i < W; i++) {
                T sum = 0, squares = 0;
                FY_UNROLL
                for (int u = 0; u < U; u++)
                    if (u < n) sum += d[u][i] -= from[0][i];
                const T mean = sum * (T)inverse;
                FY_UNROLL
                for (int u = 0; u < U; u++)
                    if (u < n) squares = fma(d[u][i] - mean, d[u][i] - mean, squares);
                s.first[i] += (double)sum;
                s.second[i] += fma((double)sum * inverse, (double)sum, (double)squares);
            }
        };
        if ((U - 1) * part.step < left)
            add(std::true_type());
        else
            add(std::false_type());
    });
    return s;
}

// dy where relu let x pass, and x.
template <typename R, int U, typename T>
__device__ inline void read_gradients(const fy_args &args, bool has_y, const tile_part &part,
                                      int64_t row, int left, T (&g)[U][R::n], T (&x)[U][R::n])
{
    T y[U][R::n];
    read_rows<R>(args, args.src[0], part, row, left, g);
    read_rows<R>(args, args.src[1], part, row, left, x);
    if (!has_y) return;
    read_rows<R>(args, args.src[5], part, row, left, y);
    FY_UNROLL
    for (int u = 0; u < U; u++)
        for (int i = 0; i < R::n; i++)
            if (y[u][i] <= (T)0) g[u][i] = 0;
}

// Of dy, and of dy (x - mean).
template <typename R, typename T>
__device__ inline thread_sums<R::n> sum_gradients(const fy_args &args, bool has_y,
                                                  const tile_part &part)
{
    constexpr int W = R::n, U = 2;
    thread_sums<W> s;
    T mean[W];
    for (int i = 0; i < W && part.is_inside; i++)
        mean[i] = of_column<T>(args.src[3], part.column + i);
    each_rows<U>(part, [&](int64_t row, int left) {
        T d[U][W], g[U][W];
        read_gradients<R>(args, has_y, part, row, left, g, d);
        T first[W] = {}, second[W] = {};
        FY_UNROLL
        for (int u = 0; u < U; u++)
            for (int i = 0; i < W; i++) {
                first[i] += g[u][i];
                second[i] = fma(g[u][i], d[u][i] - mean[i], second[i]);
            }
        for (int i = 0; i < W; i++) {
            s.first[i] += (double)first[i];
            s.second[i] += (double)second[i];
        }
    });
    return s;
}

// Of the channel that the thread sums; of moments the mean and the sum of squared differences from
// it.
template <typename R, typename T, typename Scratch>
__device__ inline sums sum_tile(const fy_args &args, bool has_y, const tile_part &part,
                                Scratch &scratch)
{
    if (is_backward(args))
        return add_threads(sum_gradients<R, T>(args, has_y, part), args.lanes, scratch);
    const sums s = add_threads(sum_moments<R, T>(args, part), args.lanes, scratch);
    if (!part.sums) return s;
    const double left = s.first / (double)(part.end - part.begin);
    const fy_operand &x = x_of(args);
    return { load<double>(x, place_of<R>(args, x, part.begin, part.summed)) + left,
             s.second - s.first * left };
}

// ---- values of a channel ----

// Writes the results of a channel.
__device__ inline line finish_channel(const fy_args &args, int64_t channel, sums s)
{
    const double n = (double)rows_of(args);
    if (is_backward(args)) {
        const double rstd = of_column<double>(args.src[4], channel), dweight = s.second * rstd;
        put_column(args, 1, channel, dweight);
        put_column(args, 2, channel, s.first);
        return { s.first / n, dweight * rstd / n };
    }
    const fy_batch_norm_attrs_t &attrs = args.attrs.batch_norm;
    const double rstd = 1 / sqrt(s.second / n + attrs.eps), m = attrs.momentum;
    put_column(args, 1, channel, s.first);
    put_column(args, 2, channel, rstd);
    put_column(args, 3, channel, (1 - m) * of_column<double>(args.dst[3], channel) + m * s.first);
    put_column(args, 4, channel,
               (1 - m) * of_column<double>(args.dst[4], channel) + m * s.second / (n - 1));
    return { s.first, rstd * of_column<double>(args.src[1], channel) };
}

// Of the channel that the thread sums. What rounding the mean loses is in SHIFT.
template <typename T>
__device__ inline void set_constants(const fy_args &args, int64_t channel, line l,
                                     tile_constants<T> &constants)
{
    double center = l.center, scale = l.scale, shift, slope = 0;
    if (is_backward(args)) {
        scale = of_column<double>(args.src[2], channel) * of_column<double>(args.src[4], channel);
        center = of_column<double>(args.src[3], channel);
        shift = scale * l.center;
        slope = scale * l.scale;
    } else {
        shift = of_column<double>(args.src[2], channel) - (center - (double)(T)center) * scale;
    }
    constants[CENTER][threadIdx.x] = (T)center;
    constants[SCALE][threadIdx.x] = (T)scale;
    constants[SHIFT][threadIdx.x] = (T)shift;
    constants[SLOPE][threadIdx.x] = (T)slope;
}

// ---- results ----

template <typename R, typename T>
__device__ inline void apply_forward(const fy_args &args, bool has_more, const tile_part &part,
                                     const T (&constants)[4][R::n])
{
    constexpr int W = R::n, U = 2;
    const bool runs = args.op == FY_OP_BATCH_NORM_INFERENCE;
    const fy_operand &d = args.dst[0];
    const int32_t activation = runs ? args.attrs.batch_norm_inference.activation
                                    : args.attrs.batch_norm.activation;
    const T least = activation == FY_ACTIVATION_RELU ? (T)0 : -(T)INFINITY;
    each_rows<U>(part, [&](int64_t row, int left) {
        T y[U][W], more[U][W];
        read_rows<R>(args, args.src[0], part, row, left, y);
        if (has_more) read_rows<R>(args, args.src[runs ? 5 : 3], part, row, left, more);
        FY_UNROLL
        for (int u = 0; u < U; u++)
            if (u * part.step < left) {
                for (int i = 0; i < W; i++) {
                    T value = fma(y[u][i] - constants[CENTER][i], constants[SCALE][i],
                                  constants[SHIFT][i]);
                    if (has_more) value += more[u][i];
                    y[u][i] = value < least ? least : value;
                }
                write_group<R>(d, place_of<R>(args, d, row + u * part.step, part.column), y[u]);
            }
    });
}

template <typename R, typename T>
__device__ inline void apply_gradients(const fy_args &args, bool has_y, const tile_part &part,
                                       const T (&constants)[4][R::n])
{
    constexpr int W = R::n, U = 1;
    each_rows<U>(part, [&](int64_t row, int left) {
        T x[U][W], g[U][W];
        read_gradients<R>(args, has_y, part, row, left, g, x);
        FY_UNROLL
        for (int u = 0; u < U; u++)
            if (u * part.step < left) {
                T dx[1][W];
                for (int i = 0; i < W; i++)
                    dx[0][i] = fma(constants[CENTER][i] - x[u][i], constants[SLOPE][i],
                                   fma(g[u][i], constants[SCALE][i], -constants[SHIFT][i]));
                put_group<R>(args, place_of<R>(args, args.dst[0], row + u * part.step, part.column),
                             dx);
            }
    });
}

// The tile's constants are in shared memory.
template <typename R, typename T>
__device__ inline void apply(const fy_args &args, bool has_more, const tile_part &part,
                             const tile_constants<T> &shared)
{
    T constants[4][R::n];
    for (int which = 0; which < 4; which++)
        for (int i = 0; i < R::n && part.is_inside; i++)
            constants[which][i] = shared[which][i * args.lanes + threadIdx.x % args.lanes];
    if (is_backward(args))
        apply_gradients<R>(args, has_more, part, constants);
    else
        apply_forward<R>(args, has_more, part, constants);
}

// ---- kernels ----

template <typename T> __device__ inline void whole(const fy_args &args, whole_scratch<T> &scratch)
{
    using R = reads<-1, 1>;
    const bool has_more = has_optional(args, 0);
    each_tile<R>(args, rows_of(args), channels_of(args), [&](const tile_part &part) {
        const sums s = sum_tile<R, T>(args, has_more, part, scratch.parts);
        if (part.sums)
            set_constants<T>(args, part.summed, finish_channel(args, part.summed, s),
                             scratch.constants);
        __syncthreads();
        apply<R, T>(args, has_more, part, scratch.constants);
    });
}

template <typename T> __device__ inline void parts(const fy_args &args, sums_scratch<T> &scratch)
{
    const bool has_more = has_optional(args, 1);
    by_access(T(), args, [&](auto reads) {
        using R = decltype(reads);
        each_tile<R>(args, rows_of(args), channels_of(args), [&](const tile_part &part) {
            const sums s = sum_tile<R, T>(args, has_more, part, scratch);
            if (part.sums) put_partial(args, part, s);
        });
    });
}

__device__ inline void join(const fy_args &args, sums_scratch<double> &scratch)
{
    const int64_t rows = rows_of(args), share = (int64_t)args.count;
    join_pieces(
        args, scratch,
        [&](int64_t piece, int64_t channel, sums &s) {
            if (is_backward(args)) return;
            const int64_t left = rows - piece * share;
            const double n = (double)(left < share ? left : share),
                         d = s.first - *partial(args, 0, 0, channel);
            s = { n * d, s.second + n * d * d };
        },
        [&](int64_t channel, sums s) {
            if (!is_backward(args)) {
                const double left = s.first / (double)rows;
                s = { *partial(args, 0, 0, channel) + left, s.second - s.first * left };
            }
            const line l = finish_channel(args, channel, s);
            *partial(args, 0, 0, channel) = l.center;
            *partial(args, 0, 1, channel) = l.scale;
        });
}

__device__ inline line line_of(const fy_args &args, int64_t channel)
{
    if (args.op != FY_OP_BATCH_NORM_INFERENCE)
        return { *partial(args, 0, 0, channel), *partial(args, 0, 1, channel) };
    const double eps = args.attrs.batch_norm_inference.eps;
    return { of_column<double>(args.src[3], channel),
             of_column<double>(args.src[1], channel) /
                 sqrt(of_column<double>(args.src[4], channel) + eps) };
}

template <typename T>
__device__ inline void apply_all(const fy_args &args, tile_constants<T> &scratch)
{
    const bool has_more = has_optional(args, args.op != FY_OP_BATCH_NORM_INFERENCE);
    by_access(T(), args, [&](auto reads) {
        using R = decltype(reads);
        each_tile<R>(args, rows_of(args), channels_of(args), [&](const tile_part &part) {
            __syncthreads(); // the constants of the tile before have been read
            if (part.sums) set_constants<T>(args, part.summed, line_of(args, part.summed), scratch);
            __syncthreads();
            apply<R, T>(args, has_more, part, scratch);
        });
    });
}

} // namespace

FY_SHARED_KERNEL(fy_batch_norm_f32, whole_scratch<float>, whole<float>)
FY_SHARED_KERNEL(fy_batch_norm_f64, whole_scratch<double>, whole<double>)
FY_SHARED_KERNEL(fy_batch_norm_parts_f32, sums_scratch<float>, parts<float>)
FY_SHARED_KERNEL(fy_batch_norm_parts_f64, sums_scratch<double>, parts<double>)
FY_SHARED_KERNEL(fy_batch_norm_join, sums_scratch<double>, join)
FY_SHARED_KERNEL(fy_batch_norm_apply_f32, tile_constants<float>, apply_all<float>)
FY_SHARED_KERNEL(fy_batch_norm_apply_f64, tile_constants<double>, apply_all<double>)

#define FY_MODULE_norm ,
FY__CUDA_KERNEL_LIST(FY_KERNEL_EXISTS)
