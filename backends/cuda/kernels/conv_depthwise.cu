// conv2d and its gradients where each channel is one group (groups = channels of x = channels of
// y) and operands are dense. There is no product to tile: a result is a sum over one window, so
// threads are laid along channels, four
// of them each where they come in fours
// (16 bytes of f32; f64: two), and each window is read straight from memory. Sums go over (kh, kw),
// or over pixels in a fixed order; no atomics.
// Next: conv.cu for what this computes, conv_tiles.cuh for places.
#include "backends/cuda/kernels/conv_tiles.cuh"

// A few neighbouring channels of `o` from element `at` on, in the type that is computed in.
template <typename T> struct some_t {
    enum { COUNT = 16 / sizeof(T) };
    T v[COUNT];
};
template <typename T>
__device__ inline some_t<T> read_some(const fy_operand &o, int at, bool whole, int n)
{
    some_t<T> x = {};
    if (!whole) {
        for (int i = 0; i < some_t<T>::COUNT; i++)
            if (i < n) x.v[i] = load<T>(o, at + i);
    } else if (sizeof(T) == 8 || o.dtype == FY_DTYPE_F32) {
        const uint4 bits = *(const uint4 *)element<T>(o, at);
        memcpy(x.v, &bits, sizeof bits);
    } else { // four halves: 8 bytes
        const uint64_t bits = *(const uint64_t *)element<uint16_t>(o, at);
        for (int i = 0; i < some_t<T>::COUNT; i++) {
            const uint16_t half = (uint16_t)(bits >> 16 * i);
            x.v[i] =
                (T)(o.dtype == FY_DTYPE_F16 ? fy__f32_from_f16(half) : fy__f32_from_bf16(half));
        }
    }
    return x;
}

// y[pixel, c] = sum of x under the window, or dx[pixel, c] = sum of dy whose window has the pixel.
template <typename T, product_t P> __device__ inline void windows(const fy_args &args)
{
    enum { COUNT = some_t<T>::COUNT };
    const shape_t s = shape_of<P>(args);
    const int chunks = (s.c + COUNT - 1) / COUNT, places = s.kh * s.kw;
    const unsigned pixels = P == FORWARD ? (unsigned)(s.n * s.oh * s.ow)
                                         : (unsigned)(s.n * s.h * s.w);
    const bool whole = s.c % COUNT == 0 && args.src[0].data % 16 == 0;
    const unsigned thread = threadIdx.y * FY__CUDA_TILE + threadIdx.x;
    for (unsigned i = blockIdx.x * THREADS + thread; i < pixels * (unsigned)chunks;
         i += gridDim.x * THREADS) {
        const int pixel = (int)(i / (unsigned)chunks), c = (int)(i % (unsigned)chunks) * COUNT,
                  n = s.c - c < COUNT ? s.c - c : COUNT;
        const walk_t at = P == FORWARD ? walk_to(pixel, s.oh, s.ow) : walk_to(pixel, s.h, s.w);
        const int h = P == FORWARD ? at.i1 * s.stride_h - s.padding_h : at.i1 + s.padding_h;
        const int w = P == FORWARD ? at.i2 * s.stride_w - s.padding_w : at.i2 + s.padding_w;
        some_t<T> sum = {};
        for (int kh = 0; kh < s.kh; kh++)
            for (int kw = 0; kw < s.kw; kw++) {
                const int from = P == FORWARD ? under(s, at.i0, h, w, kh, kw)
                                              : over(s, at.i0, h, w, kh, kw);
                if (from < 0) continue;
                const some_t<T> x = read_some<T>(args.src[0], from * s.c + c, whole, n);
                for (int j = 0; j < COUNT; j++)
                    if (j < n)
                        sum.v[j] += x.v[j] *
                                    load<T>(args.src[1], (c + j) * places + kh * s.kw + kw);
            }
        for (int j = 0; j < n; j++)
            put(args, (int64_t)pixel * s.c + c + j, finish<P>(args, s, c + j, 0, sum.v[j]));
    }
}

// dw[c, kh, kw] = sum over pixels of dy[pixel, c] x[under it, c]. A block has 32 channels and one
// place of the kernel; its eight rows of
// threads each take every eighth pixel of the slice, and their sums are added in order.
template <typename T> __device__ inline void weights(const fy_args &args, T (*rows)[32])
{
    const shape_t s = shape_of<WEIGHT>(args);
    const int slices = args.dst[0].rank == 5 ? (int)args.dst[0].dims[0] : 1, places = s.kh * s.kw,
              chunks = (s.c + 31) / 32;
    const int thread = (int)(threadIdx.y * FY__CUDA_TILE + threadIdx.x), lane = thread % 32,
              row = thread / 32;
    for (unsigned number = blockIdx.x; number < (unsigned)(slices * places * chunks);
         number += gridDim.x) {
        const int c = (int)(number % (unsigned)chunks) * 32 + lane,
                  place = (int)(number / (unsigned)chunks % (unsigned)places);
        const int slice = (int)(number / (unsigned)chunks / (unsigned)places), kh = place / s.kw,
                  kw = place % s.kw;
        const int begin = (int)((int64_t)s.n * slice / slices) * s.oh * s.ow,
                  end = (int)((int64_t)s.n * (slice + 1) / slices) * s.oh * s.ow;
        walk_t at = walk_to(begin + row, s.oh, s.ow);
        T sum = 0;
        for (int pixel = begin + row; pixel < end && c < s.c; pixel += THREADS / 32) {
            const int from = under(s, at.i0, at.i1 * s.stride_h - s.padding_h,
                                   at.i2 * s.stride_w - s.padding_w, kh, kw);
            if (from >= 0)
                sum += load<T>(args.src[0], pixel * s.c + c) * load<T>(args.src[1], from * s.c + c);
            walk_on(at, THREADS / 32, s.oh, s.ow);
        }
        rows[row][lane] = sum;
        __syncthreads();
        if (row == 0 && c < s.c) {
            for (int i = 1; i < THREADS / 32; i++) sum += rows[i][lane];
            put(args, ((int64_t)slice * s.c + c) * places + place, sum);
        }
        __syncthreads();
    }
}

template <typename T> __device__ inline void depthwise(const fy_args &args, T (*rows)[32])
{
    switch (args.op) {
    case FY_OP_CONV2D: windows<T, FORWARD>(args); break;
    case FY_OP_CONV2D_BACKWARD_INPUT: windows<T, INPUT>(args); break;
    default: weights<T>(args, rows); break;
    }
}

template <typename T> using rows_t = T[THREADS / 32][32];
FY_SHARED_KERNEL(fy_conv2d_depthwise_f32, rows_t<float>, depthwise<float>)
FY_SHARED_KERNEL(fy_conv2d_depthwise_f64, rows_t<double>, depthwise<double>)

#define FY_MODULE_conv_depthwise ,
FY__CUDA_KERNEL_LIST(FY_KERNEL_EXISTS)
