// max_pool2d, avg_pool2d and their gradients: a thread an element of the result. The gradients ask, for a pixel of x, which windows have it,
// so no two threads write one element and the bits are always the same. Sums in T; any strides, every float dtype.
#include "backends/cuda/kernels/common.cuh"

__device__ inline int64_t at4(const fy_operand &o, int64_t i0, int64_t i1, int64_t i2, int64_t i3)
{
    return i0 * o.strides[0] + i1 * o.strides[1] + i2 * o.strides[2] + i3 * o.strides[3];
}

struct range_t {
    int64_t first, end;
};

// The pixels of a window that are inside the image.
__device__ inline range_t window(int64_t at, int64_t stride, int64_t padding, int64_t kernel, int64_t size)
{
    const int64_t first = at * stride - padding, end = first + kernel;
    return { first < 0 ? 0 : first, end < size ? end : size };
}

// The windows that have a pixel.
__device__ inline range_t windows_of(int64_t at, int64_t stride, int64_t padding, int64_t kernel, int64_t count)
{
    const int64_t end = (at + padding) / stride + 1, before = at + padding - kernel;
    return { before < 0 ? 0 : before / stride + 1, end < count ? end : count };
}

// The largest element of a window, NaN above all, and the first pixel (h * width + w) that has it.
template <typename T>
__device__ inline T largest(const fy_operand &x, int64_t n, const range_t &rows, const range_t &columns, int64_t c, int64_t *place)
{
    T best = load<T>(x, at4(x, n, rows.first, columns.first, c));
    *place = rows.first * x.dims[2] + columns.first;
    for (int64_t h = rows.first; h < rows.end; h++) {
        for (int64_t w = columns.first; w < columns.end; w++) {
            const T value = load<T>(x, at4(x, n, h, w, c));
            if (!(value > best || (value != value && best == best))) continue;
            best = value;
            *place = h * x.dims[2] + w;
        }
    }
    return best;
}

// NaN is not below 0 and stays; a slope at NaN is 1, as in formulas/activation.h.
template <typename T> __device__ inline T relu(T x) { return x < (T)0 ? (T)0 : x; }

template <typename T> __device__ inline void pool2d(const fy_args &args)
{
    const fy_pool2d_attrs_t &a = args.attrs.pool2d;
    const fy_operand &d = args.dst[0], &s = args.src[0];
    const bool is_max = args.op == FY_OP_MAX_POOL2D || args.op == FY_OP_MAX_POOL2D_BACKWARD;
    const bool forward = args.op == FY_OP_MAX_POOL2D || args.op == FY_OP_AVG_POOL2D;
    const bool of_relu = a.activation == FY_ACTIVATION_RELU;
    const T share = (T)1 / (T)((int64_t)a.kernel_h * a.kernel_w);
    for (uint64_t k = first_thread(); k < args.nelem; k += all_threads()) {
        uint64_t rest = k;
        const int64_t c = (int64_t)split(rest, d.dims[3], args.flags), j = (int64_t)split(rest, d.dims[2], args.flags);
        const int64_t i = (int64_t)split(rest, d.dims[1], args.flags), n = (int64_t)rest;
        int64_t place;
        T sum = 0;
        if (forward) {
            const range_t rows = window(i, a.stride_h, a.padding_h, a.kernel_h, s.dims[1]);
            const range_t columns = window(j, a.stride_w, a.padding_w, a.kernel_w, s.dims[2]);
            if (is_max) {
                sum = largest<T>(s, n, rows, columns, c, &place);
                if (of_relu) sum = relu(sum);
            } else {
                for (int64_t h = rows.first; h < rows.end; h++)
                    for (int64_t w = columns.first; w < columns.end; w++) {
                        const T value = load<T>(s, at4(s, n, h, w, c));
                        sum += of_relu ? relu(value) : value;
                    }
                sum *= share;
            }
        } else {
            const range_t rows = windows_of(i, a.stride_h, a.padding_h, a.kernel_h, s.dims[1]);
            const range_t columns = windows_of(j, a.stride_w, a.padding_w, a.kernel_w, s.dims[2]);
            for (int64_t oh = rows.first; oh < rows.end; oh++) {
                for (int64_t ow = columns.first; ow < columns.end; ow++) {
                    const T dy = load<T>(s, at4(s, n, oh, ow, c));
                    if (!is_max) {
                        sum += dy * share;
                        continue;
                    }
                    const range_t in_h = window(oh, a.stride_h, a.padding_h, a.kernel_h, d.dims[1]);
                    const range_t in_w = window(ow, a.stride_w, a.padding_w, a.kernel_w, d.dims[2]);
                    const T best = largest<T>(args.src[1], n, in_h, in_w, c, &place);
                    if (place == i * d.dims[2] + j && !(of_relu && best <= (T)0)) sum += dy;
                }
            }
            if (!is_max && of_relu && load<T>(args.src[1], at4(args.src[1], n, i, j, c)) <= (T)0) sum = 0;
        }
        put(args, at4(d, n, i, j, c), sum);
    }
}

FY_KERNEL fy_pool2d_f32(FY_ARGS args) { pool2d<float>(args); }
FY_KERNEL fy_pool2d_f64(FY_ARGS args) { pool2d<double>(args); }

FY_KERNEL_EXISTS(fy_pool2d_f32)
FY_KERNEL_EXISTS(fy_pool2d_f64)
