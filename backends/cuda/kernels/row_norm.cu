// layer_norm, rms_norm and their gradients. A group of threads has one row: statistics in f64, then
// the result; or the row's two sums, then dx. The gradients of weight and bias add up over rows: a
// block has a tile of up to 32 columns and a piece of the rows; pieces are joined in order.
#include "backends/cuda/kernels/common.cuh"

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

// The first element of a row, and the step to the next one.
__device__ inline int64_t row_at(const fy_args &args, const fy_operand &o, uint64_t row)
{
    return locate(o, 0, o.rank - 1, row, args.flags);
}
__device__ inline int64_t step_of(const fy_operand &o) { return o.strides[o.rank - 1]; }
// The value of a row.
template <typename T>
__device__ inline T of_row(const fy_args &args, const fy_operand &o, uint64_t row)
{
    return load<T>(o, locate(o, 0, o.rank, row, args.flags));
}
__device__ inline double total(const fy_args &args, double value, double *scratch)
{
    return group_reduce(args, value, scratch, [](double a, double b) { return a + b; });
}

template <typename T>
__device__ inline void normalize(const fy_args &args, uint64_t row, double *scratch)
{
    const fy_operand &x = args.src[0], &d = args.dst[0], &stored = args.dst[is_rms(args) ? 1 : 2];
    const int64_t columns = columns_of(args), at = row_at(args, x, row), to = row_at(args, d, row);
    double mean = 0, m2 = 0;
    if (!is_rms(args)) {
        for (int64_t j = lane_of(args); j < columns; j += args.lanes)
            mean += load<double>(x, at + j * step_of(x));
        mean = total(args, mean, scratch) / (double)columns;
    }
    for (int64_t j = lane_of(args); j < columns; j += args.lanes) {
        const double z = load<double>(x, at + j * step_of(x)) - mean;
        m2 += z * z;
    }
    const double eps = args.attrs.norm.eps,
                 rstd = 1 / sqrt(total(args, m2, scratch) / (double)columns + eps);
    if (lane_of(args) == 0) {
        if (!is_rms(args))
            store(args.dst[1], locate(args.dst[1], 0, args.dst[1].rank, row, args.flags), mean);
        store(stored, locate(stored, 0, stored.rank, row, args.flags), rstd);
    }
    for (int64_t j = lane_of(args); j < columns; j += args.lanes) {
        T y = (T)(load<double>(x, at + j * step_of(x)) - mean) * (T)rstd;
        if (args.nsrc > 1) y *= load<T>(args.src[1], j * args.src[1].strides[0]);
        if (args.nsrc > 2) y += load<T>(args.src[2], j * args.src[2].strides[0]);
        store(d, to + j * step_of(d), y);
    }
}

template <typename T>
__device__ inline void gradient(const fy_args &args, uint64_t row, double *scratch)
{
    const fy_operand &dy = args.src[0], &x = args.src[1], &d = args.dst[0];
    const uint32_t weight = is_rms(args) ? 3 : 4;
    const int64_t columns = columns_of(args), at = row_at(args, x, row),
                  from = row_at(args, dy, row), to = row_at(args, d, row);
    const T mean = is_rms(args) ? (T)0 : of_row<T>(args, args.src[2], row),
            rstd = of_row<T>(args, args.src[is_rms(args) ? 2 : 3], row);
    double sum = 0, product = 0;
    for (int64_t j = lane_of(args); j < columns; j += args.lanes) {
        T g = load<T>(dy, from + j * step_of(dy));
        if (args.nsrc > weight) g *= load<T>(args.src[weight], j * args.src[weight].strides[0]);
        sum += (double)g;
        product += (double)g * (double)((load<T>(x, at + j * step_of(x)) - mean) * rstd);
    }
    const T shift = is_rms(args) ? (T)0 : (T)(total(args, sum, scratch) / (double)columns),
            slope = (T)(total(args, product, scratch) / (double)columns);
    for (int64_t j = lane_of(args); j < columns; j += args.lanes) {
        T g = load<T>(dy, from + j * step_of(dy));
        if (args.nsrc > weight) g *= load<T>(args.src[weight], j * args.src[weight].strides[0]);
        T dx = rstd * (g - shift - (load<T>(x, at + j * step_of(x)) - mean) * rstd * slope);
        if (args.accumulate & 1) dx += load<T>(d, to + j * step_of(d));
        store(d, to + j * step_of(d), dx);
    }
}

template <typename T> __device__ inline void rows(const fy_args &args, double *scratch)
{
    const uint64_t count = args.nelem / (uint64_t)columns_of(args);
    for (uint64_t row = first_group(args); row < count; row += all_groups(args)) {
        if (is_backward(args))
            gradient<T>(args, row, scratch);
        else
            normalize<T>(args, row, scratch);
    }
}

// ---- weight and bias; with pieces the last source is the workspace, f64 [pieces, 2, columns] ----

struct sums {
    double dbias, dweight;
};

__device__ inline double *part(const fy_args &args, int64_t piece, int which, int64_t column)
{
    const fy_operand &o = args.src[args.nsrc - 1];
    return element<double>(o, (piece * 2 + which) * o.dims[2] + column);
}
__device__ inline void put_column(const fy_args &args, int dst, int64_t column, double value)
{
    const fy_operand &o = args.dst[dst];
    if (args.accumulate >> dst & 1) value += load<double>(o, column * o.strides[0]);
    store(o, column * o.strides[0], value);
}
__device__ inline void finish_column(const fy_args &args, int64_t column, sums s)
{
    put_column(args, 1, column, s.dweight);
    if (!is_rms(args)) put_column(args, 2, column, s.dbias);
}

template <typename T> __device__ inline void parts(const fy_args &args, sums *scratch)
{
    const fy_operand &dy = args.src[0], &x = args.src[1];
    const int64_t columns = columns_of(args), count = (int64_t)args.nelem / columns;
    const bool has_pieces = args.count != FY__CUDA_NO_COUNT;
    const int64_t share = has_pieces ? (int64_t)args.count : count,
                  pieces = (count + share - 1) / share;
    uint32_t tile = 32;
    while (tile > 1 && tile / 2 >= columns) tile /= 2;
    const int64_t tiles = (columns + tile - 1) / tile;
    const uint32_t lanes = blockDim.x / tile;
    for (int64_t unit = blockIdx.x; unit < pieces * tiles; unit += gridDim.x) {
        const int64_t piece = unit / tiles, begin = piece * share,
                      end = begin + share < count ? begin + share : count;
        const int64_t column = unit % tiles * tile + threadIdx.x % tile;
        sums mine = { 0, 0 };
        for (int64_t row = begin + threadIdx.x / tile; row < end && column < columns;
             row += lanes) {
            const T mean = is_rms(args) ? (T)0 : of_row<T>(args, args.src[2], (uint64_t)row),
                    rstd = of_row<T>(args, args.src[is_rms(args) ? 2 : 3], (uint64_t)row);
            const T g = load<T>(dy, row_at(args, dy, (uint64_t)row) + column * step_of(dy)),
                    z = (load<T>(x, row_at(args, x, (uint64_t)row) + column * step_of(x)) - mean) *
                        rstd;
            mine.dbias += (double)g;
            mine.dweight += (double)g * (double)z;
        }
        __syncthreads(); // the scratch of the previous tile has been read
        scratch[threadIdx.x] = mine;
        __syncthreads();
        if (threadIdx.x >= tile || column >= columns) continue;
        sums all = { 0, 0 };
        for (uint32_t lane = 0; lane < lanes; lane++) {
            all.dbias += scratch[lane * tile + threadIdx.x].dbias;
            all.dweight += scratch[lane * tile + threadIdx.x].dweight;
        }
        if (has_pieces) {
            *part(args, piece, 0, column) = all.dbias;
            *part(args, piece, 1, column) = all.dweight;
        } else {
            finish_column(args, column, all);
        }
    }
}

} // namespace

FY_KERNEL fy_row_norm_join(FY_ARGS args)
{
    const int64_t columns = columns_of(args), pieces = args.src[args.nsrc - 1].dims[0];
    for (int64_t column = (int64_t)first_thread(); column < columns;
         column += (int64_t)all_threads()) {
        sums all = { 0, 0 };
        for (int64_t piece = 0; piece < pieces; piece++) {
            all.dbias += *part(args, piece, 0, column);
            all.dweight += *part(args, piece, 1, column);
        }
        finish_column(args, column, all);
    }
}

FY_SHARED_KERNEL(fy_row_norm_f32, per_warp<double>, rows<float>)
FY_SHARED_KERNEL(fy_row_norm_f64, per_warp<double>, rows<double>)
FY_SHARED_KERNEL(fy_row_norm_parts_f32, per_thread<sums>, parts<float>)
FY_SHARED_KERNEL(fy_row_norm_parts_f64, per_thread<sums>, parts<double>)

#define FY_MODULE_row_norm ,
FY__CUDA_KERNEL_LIST(FY_KERNEL_EXISTS)
