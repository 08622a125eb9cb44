// conv2d and its gradients where each channel is one group (groups = channels of x = channels of
// y) and operands are dense. There is no product to tile: a result is a sum over one window, so
// threads are laid along groups of channels (channels.cuh), and each window is read straight from
// memory. Sums go over (kh, kw), or over pixels in a fixed order that does not depend on addresses;
// no atomics.
// Next: conv.cu for what this computes, conv_tiles.cuh for places.
#include "backends/cuda/kernels/channels.cuh"
#include "backends/cuda/kernels/conv_tiles.cuh"

enum {
    GROUPS = 8,                  // of channels, that a block has at once
    ROWS = THREADS / GROUPS,     // pixels that it has at once
    TAPS = 9,                    // places of the kernel whose sums a thread has at once
    KEPT = TAPS * (THREADS / 32) // places whose weights a block has in shared memory, or none
};

// Which run of channels a block works on, and a thread's channel and row.
struct lane_t {
    int thread, row, c;
    bool inside;
    __device__ inline lane_t(int run, int channels, int n)
    {
        thread = (int)(threadIdx.y * FY__CUDA_TILE + threadIdx.x);
        row = thread / GROUPS;
        c = (run * GROUPS + thread % GROUPS) * n;
        inside = c < channels;
    }
};

// y[pixel, c] = sum of x under the window, or dx[pixel, c] = sum of dy whose window has the pixel.
template <typename R, product_t P, typename T>
__device__ inline void windows(const fy_args &args, T *kept)
{
    constexpr int W = R::n, RUN = 2 * ROWS; // pixels between two loads of weights
    const shape_t s = shape_of<P>(args);
    const int runs = (s.c + GROUPS * W - 1) / (GROUPS * W), places = s.kh * s.kw,
              height = P == FORWARD ? s.oh : s.h, width = P == FORWARD ? s.ow : s.w,
              pixels = s.n * height * width, nkept = places <= KEPT ? places : 0;
    for (unsigned number = blockIdx.x;
         number < (unsigned)runs * (unsigned)((pixels + RUN - 1) / RUN); number += gridDim.x) {
        const lane_t lane((int)(number % (unsigned)runs), s.c, W);
        const int first = (int)(number / (unsigned)runs) * RUN,
                  c0 = number % (unsigned)runs * GROUPS * W;
        __syncthreads(); // the weights before have been read
        for (int i = lane.thread; i < nkept * GROUPS * W; i += THREADS)
            if (c0 + i / places < s.c)
                kept[i % places * GROUPS * W + i / places] = load<T>(args.src[1], c0 * places + i);
        __syncthreads();
        for (int pixel = first + lane.row; lane.inside && pixel < min(first + RUN, pixels);
             pixel += ROWS) {
            const walk_t at = walk_to(pixel, height, width);
            const int h = P == FORWARD ? at.i1 * s.stride_h - s.padding_h : at.i1 + s.padding_h,
                      w = P == FORWARD ? at.i2 * s.stride_w - s.padding_w : at.i2 + s.padding_w;
            T sum[W];
            for (int j = 0; j < W; j++) sum[j] = 0;
            int place = 0;
            for (int kh = 0; kh < s.kh; kh++)
                for (int kw = 0; kw < s.kw; kw++, place++) {
                    const int from = P == FORWARD ? under(s, at.i0, h, w, kh, kw)
                                                  : over(s, at.i0, h, w, kh, kw);
                    if (from < 0) continue;
                    T x[W];
                    pack<T, W> weight;
                    load_channels<R>(args.src[0], from * s.c + lane.c, x);
                    if (nkept)
                        weight = *(const pack<T, W> *)&kept[place * GROUPS * W + lane.c - c0];
                    else
                        for (int j = 0; j < W; j++)
                            weight.at[j] = load<T>(args.src[1], (lane.c + j) * places + place);
                    for (int j = 0; j < W; j++) sum[j] += x[j] * weight.at[j];
                }
            for (int j = 0; j < W; j++) sum[j] = finish<P>(args, s, lane.c + j, 0, sum[j]);
            put_group<W>(args, pixel * s.c + lane.c, sum);
        }
    }
}

// dw[c, kh, kw] = sum over pixels of dy[pixel, c] x[under it, c]. A thread sums TAPS places over
// every ROWS-th pixel of the slice; the rows of a warp are joined in registers, then the warps in
// order.
template <typename R, typename T> __device__ inline void weights(const fy_args &args, T *joined)
{
    constexpr int W = R::n;
    const shape_t s = shape_of<WEIGHT>(args);
    const int slices = args.dst[0].rank == 5 ? (int)args.dst[0].dims[0] : 1, places = s.kh * s.kw,
              runs = (s.c + GROUPS * W - 1) / (GROUPS * W), batches = (places + TAPS - 1) / TAPS;
    for (unsigned number = blockIdx.x; number < (unsigned)(slices * batches * runs);
         number += gridDim.x) {
        const lane_t lane((int)(number % (unsigned)runs), s.c, W);
        const int place0 = (int)(number / (unsigned)runs % (unsigned)batches) * TAPS,
                  slice = (int)(number / (unsigned)runs / (unsigned)batches);
        const int begin = (int)((int64_t)s.n * slice / slices) * s.oh * s.ow,
                  end = (int)((int64_t)s.n * (slice + 1) / slices) * s.oh * s.ow;
        T sum[TAPS][W];
        for (int tap = 0; tap < TAPS; tap++)
            for (int j = 0; j < W; j++) sum[tap][j] = 0;
        for (int pixel = begin + lane.row; pixel < end && lane.inside; pixel += ROWS) {
            const walk_t at = walk_to(pixel, s.oh, s.ow);
            const int h = at.i1 * s.stride_h - s.padding_h, w = at.i2 * s.stride_w - s.padding_w;
            T dy[W];
            load_channels<R>(args.src[0], pixel * s.c + lane.c, dy);
            int kh = place0 / s.kw, kw = place0 % s.kw;
#pragma unroll
            for (int tap = 0; tap < TAPS; tap++) {
                const int from = kh < s.kh ? under(s, at.i0, h, w, kh, kw) : -1;
                if (++kw == s.kw) kw = 0, kh++;
                if (from < 0) continue;
                T x[W];
                load_channels<R>(args.src[1], from * s.c + lane.c, x);
                for (int j = 0; j < W; j++) sum[tap][j] += dy[j] * x[j];
            }
        }
#pragma unroll
        for (int tap = 0; tap < TAPS; tap++)
#pragma unroll
            for (int j = 0; j < W; j++) {
                T x = sum[tap][j];
                for (int step = GROUPS; step < 32; step *= 2)
                    x += __shfl_xor_sync(0xffffffffu, x, step);
                if (lane.thread % 32 < GROUPS)
                    joined[((lane.thread / 32 * GROUPS + lane.thread % GROUPS) * W + j) * TAPS +
                           tap] = x;
            }
        __syncthreads();
        const int n = GROUPS * W * TAPS;
        for (int i = lane.thread; i < n; i += THREADS) {
            const int c = (int)(number % (unsigned)runs) * GROUPS * W + i / TAPS,
                      place = place0 + i % TAPS;
            if (c >= s.c || place >= places) continue;
            T x = joined[i];
            for (int warp = 1; warp < THREADS / 32; warp++) x += joined[warp * n + i];
            put(args, ((int64_t)slice * s.c + c) * places + place, x);
        }
        __syncthreads();
    }
}

// Weights that a block keeps, or sums of its warps.
template <typename T, int W> __device__ inline void depthwise(const fy_args &args)
{
    __shared__ alignas(16) T memory[GROUPS * W * KEPT];
    by_channels(T(), args, [&](auto r) {
        using R = decltype(r);
        switch (args.op) {
        case FY_OP_CONV2D: windows<R, FORWARD>(args, memory); break;
        case FY_OP_CONV2D_BACKWARD_INPUT: windows<R, INPUT>(args, memory); break;
        default: weights<R>(args, memory); break;
        }
    });
}

// Two blocks a processor at least, which takes 128 registers a thread at most.
#define KERNEL extern "C" __global__ void __launch_bounds__(FY__CUDA_BLOCK, 2)
KERNEL fy_conv2d_depthwise_f32(FY_ARGS args) { depthwise<float, 8>(args); }
KERNEL fy_conv2d_depthwise_f64(FY_ARGS args) { depthwise<double, 2>(args); }

#define FY_MODULE_conv_depthwise ,
FY__CUDA_KERNEL_LIST(FY_KERNEL_EXISTS)
