// batch_norm, its gradients, batch_norm_inference. A block has a tile of up to 32 channels; its
// threads lie along channels first, then along rows. Sums are f64 and are added in one fixed order.
// Few rows: one launch, a block has all rows of its tile. Else three: sums of pieces of rows, in
// the workspace; their join, a thread a channel, which leaves two constants a channel in the
// workspace; the result, a thread an element.
#include "backends/cuda/kernels/common.cuh"

namespace
{

// Of moments: of x less x in the first row, and of its square. Of gradients: of dy, and of dy (x -
// mean).
struct sums {
    double first, second;
};
struct line {
    double center, scale; // y = (x - center) scale + bias; gradients: what dx subtracts
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
__device__ inline uint32_t tile_of(int64_t channels)
{
    uint32_t tile = 32;
    while (tile > 1 && tile / 2 >= channels) tile /= 2;
    return tile;
}

// The element of an operand of x's shape.
template <typename T>
__device__ inline T at_row(const fy_args &args, const fy_operand &o, int64_t row, int64_t channel)
{
    return load<T>(o, locate(o, 0, o.rank - 1, (uint64_t)row, args.flags) +
                          channel * o.strides[o.rank - 1]);
}
template <typename T> __device__ inline T of_channel(const fy_operand &o, int64_t channel)
{
    return load<T>(o, channel * o.strides[0]);
}
__device__ inline void put_channel(const fy_args &args, int dst, int64_t channel, double value)
{
    const fy_operand &o = args.dst[dst];
    const int64_t offset = channel * o.strides[0];
    if (args.accumulate >> dst & 1) value += load<double>(o, offset);
    store(o, offset, value);
}

// dy where relu let x pass.
template <typename T>
__device__ inline T dy_at(const fy_args &args, bool has_y, int64_t row, int64_t channel)
{
    const T dy = at_row<T>(args, args.src[0], row, channel);
    return has_y && at_row<T>(args, args.src[5], row, channel) <= (T)0 ? (T)0 : dy;
}

// The sums of rows begin .. end - 1 of the thread's channel, in every thread of it. `scratch`: one
// a thread.
template <typename T>
__device__ inline sums sum_rows(const fy_args &args, bool has_y, int64_t channel, uint32_t tile,
                                int64_t begin, int64_t end, sums *scratch)
{
    const fy_operand &x = x_of(args);
    const uint32_t lanes = blockDim.x / tile;
    sums mine = { 0, 0 };
    if (channel < channels_of(args)) {
        const double from = is_backward(args) ? of_channel<double>(args.src[3], channel)
                                              : at_row<double>(args, x, begin, channel);
        for (int64_t row = begin + threadIdx.x / tile; row < end; row += lanes) {
            const double d = at_row<double>(args, x, row, channel) - from;
            const double g = is_backward(args) ? (double)dy_at<T>(args, has_y, row, channel) : d;
            mine.first += g;
            mine.second += g * d;
        }
    }
    __syncthreads(); // the scratch of the previous tile has been read
    scratch[threadIdx.x] = mine;
    __syncthreads();
    sums all = { 0, 0 };
    for (uint32_t lane = 0; lane < lanes; lane++) {
        all.first += scratch[lane * tile + threadIdx.x % tile].first;
        all.second += scratch[lane * tile + threadIdx.x % tile].second;
    }
    return all;
}

// From sums to the mean and the sum of squared differences from it.
__device__ inline sums moments_of(const fy_args &args, int64_t channel, int64_t begin, int64_t end,
                                  sums s)
{
    const double n = (double)(end - begin), left = s.first / n;
    return { at_row<double>(args, x_of(args), begin, channel) + left, s.second - s.first * left };
}

// Writes the results of a channel.
__device__ inline line finish_channel(const fy_args &args, int64_t channel, sums s, bool writes)
{
    const double n = (double)rows_of(args);
    if (is_backward(args)) {
        const double rstd = of_channel<double>(args.src[4], channel), dweight = s.second * rstd;
        if (writes) {
            put_channel(args, 1, channel, dweight);
            put_channel(args, 2, channel, s.first);
        }
        return { s.first / n, dweight * rstd / n };
    }
    const fy_batch_norm_attrs_t &attrs = args.attrs.batch_norm;
    const double rstd = 1 / sqrt(s.second / n + attrs.eps), m = attrs.momentum;
    if (writes) {
        put_channel(args, 1, channel, s.first);
        put_channel(args, 2, channel, rstd);
        put_channel(args, 3, channel,
                    (1 - m) * of_channel<double>(args.dst[3], channel) + m * s.first);
        put_channel(args, 4, channel,
                    (1 - m) * of_channel<double>(args.dst[4], channel) + m * s.second / (n - 1));
    }
    return { s.first, rstd * of_channel<double>(args.src[1], channel) };
}

// One element of the result.
template <typename T>
__device__ inline void apply(const fy_args &args, bool has_more, int64_t row, int64_t channel,
                             line l)
{
    const fy_operand &x = x_of(args), &d = args.dst[0];
    const int64_t offset = locate(d, 0, d.rank - 1, (uint64_t)row, args.flags) +
                           channel * d.strides[d.rank - 1];
    if (is_backward(args)) {
        const T from = of_channel<T>(args.src[3], channel),
                rstd = of_channel<T>(args.src[4], channel),
                weight = of_channel<T>(args.src[2], channel);
        const T g = dy_at<T>(args, has_more, row, channel) - (T)l.center -
                    (at_row<T>(args, x, row, channel) - from) * (T)l.scale;
        T dx = weight * rstd * g;
        if (args.accumulate & 1) dx += load<T>(d, offset);
        store(d, offset, dx);
        return;
    }
    const bool runs = args.op == FY_OP_BATCH_NORM_INFERENCE;
    T y = (T)(at_row<double>(args, x, row, channel) - l.center) * (T)l.scale +
          of_channel<T>(args.src[2], channel);
    if (has_more) y += at_row<T>(args, args.src[runs ? 5 : 3], row, channel);
    const int32_t activation = runs ? args.attrs.batch_norm_inference.activation
                                    : args.attrs.batch_norm.activation;
    if (activation == FY_ACTIVATION_RELU && y < (T)0) y = (T)0;
    store(d, offset, y);
}

// Whether the optional source is there: behind the required ones; the workspace, if any, is last.
__device__ inline bool has_optional(const fy_args &args, uint32_t nworkspace)
{
    return args.nsrc - nworkspace > (args.op == FY_OP_BATCH_NORM ? 3u : 5u);
}

template <typename T> __device__ inline void whole(const fy_args &args, sums *scratch)
{
    const int64_t channels = channels_of(args), rows = rows_of(args);
    const uint32_t tile = tile_of(channels), lanes = blockDim.x / tile;
    const bool has_more = has_optional(args, 0);
    for (int64_t first = (int64_t)blockIdx.x * tile; first < channels;
         first += (int64_t)gridDim.x * tile) {
        const int64_t channel = first + threadIdx.x % tile;
        sums s = sum_rows<T>(args, has_more, channel, tile, 0, rows, scratch);
        if (channel >= channels) continue;
        if (!is_backward(args)) s = moments_of(args, channel, 0, rows, s);
        const line l = finish_channel(args, channel, s, threadIdx.x < tile);
        for (int64_t row = threadIdx.x / tile; row < rows; row += lanes)
            apply<T>(args, has_more, row, channel, l);
    }
}

// ---- in pieces: the last source is the workspace, f64 [pieces, 2, channels] ----

__device__ inline double *part(const fy_args &args, int64_t piece, int which, int64_t channel)
{
    const fy_operand &o = args.src[args.nsrc - 1];
    return element<double>(o, (piece * 2 + which) * o.dims[2] + channel);
}

template <typename T> __device__ inline void parts(const fy_args &args, sums *scratch)
{
    const int64_t channels = channels_of(args), rows = rows_of(args);
    const int64_t pieces = args.src[args.nsrc - 1].dims[0], share = (int64_t)args.count;
    const uint32_t tile = tile_of(channels);
    const int64_t tiles = (channels + tile - 1) / tile;
    const bool has_more = has_optional(args, 1);
    for (int64_t unit = blockIdx.x; unit < pieces * tiles; unit += gridDim.x) {
        const int64_t piece = unit / tiles, begin = piece * share,
                      end = begin + share < rows ? begin + share : rows;
        const int64_t channel = unit % tiles * tile + threadIdx.x % tile;
        sums s = sum_rows<T>(args, has_more, channel, tile, begin, end, scratch);
        if (channel >= channels || threadIdx.x >= tile) continue;
        if (!is_backward(args)) s = moments_of(args, channel, begin, end, s);
        *part(args, piece, 0, channel) = s.first;
        *part(args, piece, 1, channel) = s.second;
    }
}

__device__ inline void join(const fy_args &args)
{
    const int64_t channels = channels_of(args), rows = rows_of(args);
    const int64_t pieces = args.src[args.nsrc - 1].dims[0], share = (int64_t)args.count;
    for (int64_t channel = (int64_t)first_thread(); channel < channels;
         channel += (int64_t)all_threads()) {
        sums all = { *part(args, 0, 0, channel), *part(args, 0, 1, channel) };
        for (int64_t piece = 1; piece < pieces; piece++) {
            const double a = *part(args, piece, 0, channel), b = *part(args, piece, 1, channel);
            if (is_backward(args)) {
                all.first += a;
                all.second += b;
                continue;
            }
            const double before = (double)(piece * share),
                         here =
                             (double)(rows - piece * share < share ? rows - piece * share : share),
                         fraction = here / (before + here), delta = a - all.first;
            all.first += delta * fraction;
            all.second += b + delta * delta * before * fraction;
        }
        const line l = finish_channel(args, channel, all, true);
        *part(args, 0, 0, channel) = l.center;
        *part(args, 0, 1, channel) = l.scale;
    }
}

template <typename T> __device__ inline void apply_all(const fy_args &args)
{
    const int64_t channels = channels_of(args);
    const bool runs = args.op == FY_OP_BATCH_NORM_INFERENCE, has_more = has_optional(args, !runs);
    for (uint64_t i = first_thread(); i < args.nelem; i += all_threads()) {
        uint64_t row = i;
        const int64_t channel = (int64_t)split(row, channels, args.flags);
        line l;
        if (runs) {
            const T variance = of_channel<T>(args.src[4], channel) +
                               (T)args.attrs.batch_norm_inference.eps;
            l = { of_channel<double>(args.src[3], channel),
                  (double)(of_channel<T>(args.src[1], channel) / sqrt(variance)) };
        } else {
            l = { *part(args, 0, 0, channel), *part(args, 0, 1, channel) };
        }
        apply<T>(args, has_more, (int64_t)row, channel, l);
    }
}

} // namespace

FY_SHARED_KERNEL(fy_batch_norm_f32, per_thread<sums>, whole<float>)
FY_SHARED_KERNEL(fy_batch_norm_f64, per_thread<sums>, whole<double>)
FY_SHARED_KERNEL(fy_batch_norm_parts_f32, per_thread<sums>, parts<float>)
FY_SHARED_KERNEL(fy_batch_norm_parts_f64, per_thread<sums>, parts<double>)
FY_KERNEL fy_batch_norm_apply_f32(FY_ARGS args) { apply_all<float>(args); }
FY_KERNEL fy_batch_norm_apply_f64(FY_ARGS args) { apply_all<double>(args); }
FY_KERNEL fy_batch_norm_join(FY_ARGS args) { join(args); }

#define FY_MODULE_norm ,
FY__CUDA_KERNEL_LIST(FY_KERNEL_EXISTS)
