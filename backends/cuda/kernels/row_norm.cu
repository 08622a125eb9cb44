// layer_norm, rms_norm and their gradients. A group of threads has one row: statistics, then the
// result; or the row's two sums, then dx. Threads keep what fits in registers in between (KEPT
// groups of neighbours). They add that up in the compute type, and those sums in f64. The gradients
// of weight and bias add up over rows (channel_sums.cuh).
#include "backends/cuda/kernels/channel_sums.cuh"

namespace
{

__device__ inline bool is_backward(const fy_args &args)
{
    return args.op == FY_OP_LAYER_NORM_BACKWARD || args.op == FY_OP_RMS_NORM_BACKWARD;
}
__device__ inline bool is_rms(const fy_args &args)
{
    return args.op == FY_OP_RMS_NORM || args.op == FY_OP_RMS_NORM_BACKWARD;
}
__device__ inline const fy_operand &x_of(const fy_args &args)
{
    return args.src[is_backward(args)];
}
__device__ inline int64_t columns_of(const fy_args &args)
{
    const fy_operand &x = x_of(args);
    return x.dims[x.rank - 1];
}

// The value of a row.
template <typename R, typename T>
__device__ inline T of_row(const fy_args &args, const fy_operand &o, int64_t row)
{
    if constexpr (R::dtype >= 0) {
        T x[1];
        widen_group<R::dtype>(read_pack<typename stored<R::dtype>::type, 1>(o, row * o.strides[0]),
                              x);
        return x[0];
    }
    return load<T>(o, locate(o, 0, o.rank, (uint64_t)row, args.flags));
}
__device__ inline void put_of_row(const fy_args &args, const fy_operand &o, int64_t row,
                                  double value)
{
    store(o, locate(o, 0, o.rank, (uint64_t)row, args.flags), value);
}
template <typename T> __device__ inline T total(const fy_args &args, T value, double *scratch)
{
    return group_reduce(args, value, (T *)scratch, [](T a, T b) { return a + b; });
}

template <typename R> __device__ inline int64_t step_of(const fy_operand &o)
{
    return R::dtype >= 0 ? 1 : o.strides[o.rank - 1];
}
// Of a weight or bias.
template <typename R, typename T>
__device__ inline void read_column(const fy_operand &o, int64_t k, T (&w)[1][R::n])
{
    read_groups<R>(
        o, w, [](int) { return true; }, [&](int) { return k * step_of<R>(o); });
}

// Groups of neighbours of one row, or of two: a[u] at first + u * step, if that is before `end`.
template <typename R, typename T> struct row_groups {
    static constexpr int U = R::dtype >= 0 ? KEPT : 1;
    T a[U][R::n], b[U][R::n];
    int64_t first = -1, step, end;

    // Of an operand whose row begins at `base`.
    __device__ void read(const fy_operand &o, int64_t base, T (&x)[U][R::n]) const
    {
        read_groups<R>(
            o, x, [&](int u) { return first + u * step < end; },
            [&](int u) { return base + (first + u * step) * step_of<R>(o); });
    }
};

// body(k, a, b) for the thread's groups of the row, in one order for any R, flush() after each KEPT
// of them. read() reads groups.U groups, unless they are there.
template <typename R, typename T, typename Read, typename Body, typename Flush>
__device__ inline void walk_groups(const fy_args &args, row_groups<R, T> &groups, Read read,
                                   Body body, Flush flush)
{
    constexpr int U = row_groups<R, T>::U;
    const uint32_t width = width_of<R>(args);
    const int64_t step = groups.step, end = groups.end;
    const auto visit = [&](int64_t first) {
        if (groups.first != first) {
            groups.first = first;
            read();
        }
        FY_UNROLL
        for (int u = 0; u < U; u++)
            if (first + u * step < end) body(first + u * step, groups.a[u], groups.b[u]);
    };
    for (int64_t base = lane_of(args) * width; base < end; base += KEPT * step) {
        if constexpr (U == KEPT)
            visit(base);
        else
            for (int64_t k = base; k < end && k < base + KEPT * step; k += step)
                for (uint32_t i = 0; i < width; i++) visit(k + i);
        flush();
    }
}

// `share`: 1 / columns; a division behind the reads would be a call with the row in registers. The
// mean is rounded to T; the mean of the differences corrects it and the variance.
template <typename R, typename T>
__device__ inline void normalize(const fy_args &args, int64_t row, double share, double *scratch)
{
    constexpr int W = R::n;
    const fy_operand &x = args.src[0], &d = args.dst[0];
    const int64_t columns = columns_of(args), at = place_of<R>(args, x, row, 0),
                  to = place_of<R>(args, d, row, 0);
    row_groups<R, T> groups;
    groups.step = args.lanes * width_of<R>(args);
    groups.end = columns;
    const auto pass = [&](auto body, auto flush) {
        walk_groups(
            args, groups, [&] { groups.read(x, at, groups.a); }, body, flush);
    };
    double mean = 0, left = 0, squares = 0;
    T sum = 0, square = 0;
    if (!is_rms(args)) {
        pass(
            [&](int64_t, T(&v)[W], T(&)[W]) {
                for (int i = 0; i < W; i++) sum += v[i];
            },
            [&] { mean += (double)sum, sum = 0; });
        mean = total(args, mean, scratch) * share;
    }
    const T center = (T)mean;
    pass(
        [&](int64_t, T(&v)[W], T(&)[W]) {
            for (int i = 0; i < W; i++) {
                const T z = v[i] - center;
                sum += z;
                square = fma(z, z, square);
            }
        },
        [&] {
            left += (double)sum, sum = 0;
            squares += (double)square, square = 0;
        });
    squares = total(args, squares, scratch) * share;
    left = is_rms(args) ? 0 : (double)total(args, (T)left, scratch) * share;
    squares -= left * left;
    const double rstd = 1 / sqrt((squares < 0 ? 0 : squares) + args.attrs.norm.eps);
    if (lane_of(args) == 0) {
        if (!is_rms(args)) put_of_row(args, args.dst[1], row, (double)center + left);
        put_of_row(args, args.dst[is_rms(args) ? 1 : 2], row, rstd);
    }
    const T scale = (T)rstd, shift = (T)(left * rstd);
    const int64_t to_step = step_of<R>(d);
    pass(
        [&](int64_t k, T(&v)[W], T(&)[W]) {
            T y[W], w[1][W];
            for (int i = 0; i < W; i++) y[i] = fma(v[i] - center, scale, -shift);
            if (args.nsrc > 1) {
                read_column<R>(args.src[1], k, w);
                for (int i = 0; i < W; i++) y[i] *= w[0][i];
            }
            if (args.nsrc > 2) {
                read_column<R>(args.src[2], k, w);
                for (int i = 0; i < W; i++) y[i] += w[0][i];
            }
            write_group<R>(d, to + k * to_step, y);
        },
        [] {});
}

template <typename R, typename T>
__device__ inline void gradient(const fy_args &args, int64_t row, double share, double *scratch)
{
    constexpr int W = R::n;
    const fy_operand &dy = args.src[0], &x = args.src[1], &d = args.dst[0];
    const uint32_t weight = is_rms(args) ? 3 : 4;
    const int64_t columns = columns_of(args), at = place_of<R>(args, x, row, 0),
                  from = place_of<R>(args, dy, row, 0), to = place_of<R>(args, d, row, 0);
    const T mean = is_rms(args) ? (T)0 : of_row<R, T>(args, args.src[2], row),
            rstd = of_row<R, T>(args, args.src[is_rms(args) ? 2 : 3], row);
    row_groups<R, T> groups;
    groups.step = args.lanes * width_of<R>(args);
    groups.end = columns;
    // a: dy weight; b: x normalised
    const auto read = [&] {
        groups.read(dy, from, groups.a);
        groups.read(x, at, groups.b);
        FY_UNROLL
        for (int u = 0; u < row_groups<R, T>::U; u++) {
            const int64_t k = groups.first + u * groups.step;
            T w[1][W];
            if (args.nsrc > weight && k < columns) {
                read_column<R>(args.src[weight], k, w);
                for (int i = 0; i < W; i++) groups.a[u][i] *= w[0][i];
            }
            for (int i = 0; i < W; i++) groups.b[u][i] = (groups.b[u][i] - mean) * rstd;
        }
    };
    double sum = 0, product = 0;
    T first = 0, second = 0;
    walk_groups(
        args, groups, read,
        [&](int64_t, T(&g)[W], T(&z)[W]) {
            for (int i = 0; i < W; i++) {
                first += g[i];
                second = fma(g[i], z[i], second);
            }
        },
        [&] {
            sum += (double)first, first = 0;
            product += (double)second, second = 0;
        });
    const T shift = is_rms(args) ? (T)0 : (T)(total(args, sum, scratch) * share),
            slope = (T)(total(args, product, scratch) * share);
    const int64_t to_step = step_of<R>(d);
    walk_groups(
        args, groups, read,
        [&](int64_t k, T(&g)[W], T(&z)[W]) {
            T dx[1][W];
            for (int i = 0; i < W; i++) dx[0][i] = rstd * fma(-z[i], slope, g[i] - shift);
            put_group<R>(args, to + k * to_step, dx);
        },
        [] {});
}

template <typename T> __device__ inline void rows(const fy_args &args, double *scratch)
{
    const uint64_t count = args.nelem / (uint64_t)columns_of(args);
    const double share = 1.0 / (double)columns_of(args);
    by_access(T(), args, [&](auto reads) {
        using R = decltype(reads);
        for (uint64_t row = first_group(args); row < count; row += all_groups(args)) {
            if (is_backward(args))
                gradient<R, T>(args, (int64_t)row, share, scratch);
            else
                normalize<R, T>(args, (int64_t)row, share, scratch);
        }
    });
}

// ---- weight and bias: sums of dy, and of dy times x normalised ----

__device__ inline void finish_column(const fy_args &args, int64_t column, sums s)
{
    put_column(args, 1, column, s.second);
    if (!is_rms(args)) put_column(args, 2, column, s.first);
}

template <typename R, typename T>
__device__ inline thread_sums<R::n> sum_gradients(const fy_args &args, const tile_part &part)
{
    constexpr int W = R::n, U = 2;
    thread_sums<W> s;
    each_rows<U>(part, [&](int64_t row, int left) {
        T g[U][W], z[U][W], mean[U] = {}, rstd[U] = {};
        read_rows<R>(args, args.src[0], part, row, left, g);
        read_rows<R>(args, args.src[1], part, row, left, z);
        FY_UNROLL
        for (int u = 0; u < U; u++)
            if (u * part.step < left) {
                if (!is_rms(args)) mean[u] = of_row<R, T>(args, args.src[2], row + u * part.step);
                rstd[u] = of_row<R, T>(args, args.src[is_rms(args) ? 2 : 3], row + u * part.step);
            }
        T first[W] = {}, second[W] = {};
        FY_UNROLL
        for (int u = 0; u < U; u++)
            for (int i = 0; i < W; i++) {
                first[i] += g[u][i];
                second[i] = fma(g[u][i], (z[u][i] - mean[u]) * rstd[u], second[i]);
            }
        for (int i = 0; i < W; i++) {
            s.first[i] += (double)first[i];
            s.second[i] += (double)second[i];
        }
    });
    return s;
}

template <typename T> __device__ inline void parts(const fy_args &args, sums_scratch<T> &scratch)
{
    const int64_t columns = columns_of(args);
    by_access(T(), args, [&](auto reads) {
        using R = decltype(reads);
        each_tile<R>(args, (int64_t)args.nelem / columns, columns, [&](const tile_part &part) {
            const sums s = add_threads(sum_gradients<R, T>(args, part), args.lanes, scratch);
            if (!part.sums) return;
            if (args.count == FY__CUDA_NO_COUNT)
                finish_column(args, part.summed, s);
            else
                put_partial(args, part, s);
        });
    });
}

__device__ inline void join(const fy_args &args, sums_scratch<double> &scratch)
{
    join_pieces(
        args, scratch, [](int64_t, int64_t, sums &) {},
        [&](int64_t column, sums s) { finish_column(args, column, s); });
}

} // namespace

// At most 128 registers: two blocks a processor.
extern "C" __global__ void __launch_bounds__(FY__CUDA_BLOCK, 2) fy_row_norm_f32(FY_ARGS args)
{
    __shared__ per_warp<double> scratch;
    rows<float>(args, scratch);
}
FY_SHARED_KERNEL(fy_row_norm_f64, per_warp<double>, rows<double>)
FY_SHARED_KERNEL(fy_row_norm_parts_f32, sums_scratch<float>, parts<float>)
FY_SHARED_KERNEL(fy_row_norm_parts_f64, sums_scratch<double>, parts<double>)
FY_SHARED_KERNEL(fy_row_norm_join, sums_scratch<double>, join)

#define FY_MODULE_row_norm ,
FY__CUDA_KERNEL_LIST(FY_KERNEL_EXISTS)
