// max_pool2d, avg_pool2d and their gradients: a thread an element of the result, or W neighbouring
// channels. The gradients ask, for a pixel of x, which windows have it,
// so no two threads write one element and the bits are always the same. Sums in T; any strides,
// every float dtype.
#include "backends/cuda/kernels/wide.cuh"

struct range_t {
    int64_t first, end;
};

// The pixels of a window that are inside the image.
__device__ inline range_t window(int64_t at, int64_t stride, int64_t padding, int64_t kernel,
                                 int64_t size)
{
    const int64_t first = at * stride - padding, end = first + kernel;
    return { first < 0 ? 0 : first, end < size ? end : size };
}

// How many places of a window along one axis divide its sum: padding counts unless it is excluded,
// places beyond the padding never do.
__device__ inline int64_t counted(int64_t at, int64_t stride, int64_t padding, int64_t kernel,
                                  int64_t size, int excludes_padding)
{
    const int64_t edge = excludes_padding ? 0 : padding, first = at * stride - padding,
                  end = first + kernel;
    return (end < size + edge ? end : size + edge) - (first < -edge ? -edge : first);
}

// One over the divisor of window (i, j) of an image of h x w.
template <typename T>
__device__ inline T share_of(const fy_pool2d_attrs_t &a, int64_t i, int64_t j, int64_t h, int64_t w)
{
    const int excludes = a.count_excludes_padding;
    return (T)1 / (T)(counted(i, a.stride_h, a.padding_h, a.kernel_h, h, excludes) *
                      counted(j, a.stride_w, a.padding_w, a.kernel_w, w, excludes));
}

// The windows that have a pixel.
__device__ inline range_t windows_of(int64_t at, int64_t stride, int64_t padding, int64_t kernel,
                                     int64_t count)
{
    const int64_t end = (at + padding) / stride + 1, before = at + padding - kernel;
    return { before < 0 ? 0 : before / stride + 1, end < count ? end : count };
}

// The largest element of a window, NaN above all, and the first pixel (h * width + w, modulo 2^32,
// which tells the pixels of a window apart)
// that has it; for W channels from c on.
template <int W, typename T>
__device__ inline void largest(const fy_operand &x, int64_t n, const range_t &rows,
                               const range_t &columns, int64_t c, T *best, uint32_t *place)
{
    load_group<W>(x, at4(x, n, rows.first, columns.first, c), best);
    for (int i = 0; i < W; i++) place[i] = (uint32_t)(rows.first * x.dims[2] + columns.first);
    for (int64_t h = rows.first; h < rows.end; h++) {
        for (int64_t w = columns.first; w < columns.end; w++) {
            T value[W];
            load_group<W>(x, at4(x, n, h, w, c), value);
            for (int i = 0; i < W; i++) {
                if (!(value[i] > best[i] || (value[i] != value[i] && best[i] == best[i]))) continue;
                best[i] = value[i];
                place[i] = (uint32_t)(h * x.dims[2] + w);
            }
        }
    }
}

// NaN is not below 0 and stays; a slope at NaN is 1, as in formulas/activation.h.
template <typename T> __device__ inline T relu(T x) { return x < (T)0 ? (T)0 : x; }

struct at_t {
    int64_t n, i, j, c; // of the result: image, row, column, first channel
};

// Pools the window of a pixel of the result.
template <int W, typename T>
__device__ inline void forward(const fy_args &args, const at_t &at, T *sum)
{
    const fy_pool2d_attrs_t &a = args.attrs.pool2d;
    const fy_operand &s = args.src[0];
    const bool of_relu = a.activation == FY_ACTIVATION_RELU;
    const range_t rows = window(at.i, a.stride_h, a.padding_h, a.kernel_h, s.dims[1]);
    const range_t columns = window(at.j, a.stride_w, a.padding_w, a.kernel_w, s.dims[2]);
    if (args.op == FY_OP_MAX_POOL2D) {
        uint32_t place[W];
        largest<W>(s, at.n, rows, columns, at.c, sum, place);
        for (int i = 0; i < W; i++)
            if (of_relu) sum[i] = relu(sum[i]);
        return;
    }
    const T share = share_of<T>(a, at.i, at.j, s.dims[1], s.dims[2]);
    for (int64_t h = rows.first; h < rows.end; h++) {
        for (int64_t w = columns.first; w < columns.end; w++) {
            T value[W];
            load_group<W>(s, at4(s, at.n, h, w, at.c), value);
            for (int i = 0; i < W; i++) sum[i] += of_relu ? relu(value[i]) : value[i];
        }
    }
    for (int i = 0; i < W; i++) sum[i] *= share;
}

// The gradient at a pixel of x: what the windows that have it give to it.
template <int W, typename T>
__device__ inline void backward(const fy_args &args, const at_t &at, T *sum)
{
    const fy_pool2d_attrs_t &a = args.attrs.pool2d;
    const fy_operand &d = args.dst[0], &s = args.src[0], &x = args.src[1];
    const bool is_max = args.op == FY_OP_MAX_POOL2D_BACKWARD,
               of_relu = a.activation == FY_ACTIVATION_RELU,
               varies = a.ceil_mode || a.count_excludes_padding;
    const range_t rows = windows_of(at.i, a.stride_h, a.padding_h, a.kernel_h, s.dims[1]);
    const range_t columns = windows_of(at.j, a.stride_w, a.padding_w, a.kernel_w, s.dims[2]);
    T best[W];
    for (int64_t oh = rows.first; oh < rows.end; oh++) {
        for (int64_t ow = columns.first; ow < columns.end; ow++) {
            T dy[W];
            uint32_t place[W];
            load_group<W>(s, at4(s, at.n, oh, ow, at.c), dy);
            if (!is_max) {
                const T share = varies ? share_of<T>(a, oh, ow, d.dims[1], d.dims[2])
                                       : (T)1 / (T)((int64_t)a.kernel_h * a.kernel_w);
                for (int i = 0; i < W; i++) sum[i] += dy[i] * share;
                continue;
            }
            const range_t in_h = window(oh, a.stride_h, a.padding_h, a.kernel_h, d.dims[1]);
            const range_t in_w = window(ow, a.stride_w, a.padding_w, a.kernel_w, d.dims[2]);
            largest<W>(x, at.n, in_h, in_w, at.c, best, place);
            for (int i = 0; i < W; i++)
                if (place[i] == (uint32_t)(at.i * d.dims[2] + at.j) &&
                    !(of_relu && best[i] <= (T)0))
                    sum[i] += dy[i];
        }
    }
    if (is_max || !of_relu) return;
    load_group<W>(x, at4(x, at.n, at.i, at.j, at.c), best);
    for (int i = 0; i < W; i++)
        if (best[i] <= (T)0) sum[i] = 0;
}

template <int W, typename T> __device__ inline void pool2d(const fy_args &args, T)
{
    const fy_operand &d = args.dst[0];
    const bool is_forward = args.op == FY_OP_MAX_POOL2D || args.op == FY_OP_AVG_POOL2D;
    for (uint64_t k = first_thread(); k < args.nelem / W;
         k += all_threads()) { // W divides the channels
        uint64_t rest = k;
        at_t at;
        at.c = (int64_t)split(rest, d.dims[3] / W, args.flags) * W;
        at.j = (int64_t)split(rest, d.dims[2], args.flags);
        at.i = (int64_t)split(rest, d.dims[1], args.flags);
        at.n = (int64_t)rest;
        T sum[W];
        for (int i = 0; i < W; i++) sum[i] = 0;
        if (is_forward)
            forward<W>(args, at, sum);
        else
            backward<W>(args, at, sum);
        put_group<W>(args, at4(d, at.n, at.i, at.j, at.c), sum);
    }
}

// Three blocks a processor at least, which takes 80 registers a thread at most.
extern "C" __global__ void __launch_bounds__(FY__CUDA_BLOCK, 3) fy_pool2d_f32(FY_ARGS args)
{
    by_width(float(), args, [&](auto w) { pool2d<decltype(w)::n>(args, float()); });
}
FY_KERNEL fy_pool2d_f64(FY_ARGS args)
{
    by_width(double(), args, [&](auto w) { pool2d<decltype(w)::n>(args, double()); });
}

#define FY_MODULE_pool ,
FY__CUDA_KERNEL_LIST(FY_KERNEL_EXISTS)
