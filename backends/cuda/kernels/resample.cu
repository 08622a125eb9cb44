// resize2d, adaptive_avg_pool2d and their gradients: a thread an element of the result, or W
// neighbouring channels. A thread sums all pixels that its result is made of, so no two threads
// write one element and the bits are always the same. Sums in T; any strides, every float dtype.
#include "backends/cuda/kernels/wide.cuh"
#include "opset/formulas/resample.h"

__device__ inline fy__taps_t taps_of(const fy_args &args, int axis)
{
    const bool backward = args.op == FY_OP_RESIZE2D_BACKWARD ||
                          args.op == FY_OP_ADAPTIVE_AVG_POOL2D_BACKWARD;
    const int64_t src = args.src[0].dims[axis], dst = args.dst[0].dims[axis];
    fy__taps_t taps;
    taps.in = backward ? dst : src;
    taps.out = backward ? src : dst;
    taps.pools = args.op == FY_OP_ADAPTIVE_AVG_POOL2D ||
                 args.op == FY_OP_ADAPTIVE_AVG_POOL2D_BACKWARD;
    taps.backward = backward;
    return taps;
}

template <int W, typename T> __device__ inline void resample2d(const fy_args &args, T)
{
    const fy_operand &d = args.dst[0], &s = args.src[0];
    const fy__taps_t rows = taps_of(args, 1), columns = taps_of(args, 2);
    for (uint64_t k = first_thread(); k < args.nelem / W;
         k += all_threads()) { // W divides the channels
        uint64_t rest = k;
        const int64_t c = (int64_t)split(rest, d.dims[3] / W, args.flags) * W;
        const int64_t j = (int64_t)split(rest, d.dims[2], args.flags);
        const int64_t i = (int64_t)split(rest, d.dims[1], args.flags), n = (int64_t)rest;
        const fy__span_t in_h = fy__taps_span(&rows, i), in_w = fy__taps_span(&columns, j);
        T sum[W];
        for (int m = 0; m < W; m++) sum[m] = 0;
        for (int64_t h = in_h.first; h < in_h.end; h++) {
            const double weight_h = fy__taps_weight(&rows, i, h);
            for (int64_t w = in_w.first; w < in_w.end; w++) {
                const T weight = (T)(weight_h * fy__taps_weight(&columns, j, w));
                if (weight == (T)0) continue; // the pixel may be infinite
                T x[W];
                load_group<W>(s, at4(s, n, h, w, c), x);
                for (int m = 0; m < W; m++) sum[m] += weight * x[m];
            }
        }
        put_group<W>(args, at4(d, n, i, j, c), sum);
    }
}

FY_KERNEL fy_resample2d_f32(FY_ARGS args)
{
    by_width(float(), args, [&](auto w) { resample2d<decltype(w)::n>(args, float()); });
}
FY_KERNEL fy_resample2d_f64(FY_ARGS args)
{
    by_width(double(), args, [&](auto w) { resample2d<decltype(w)::n>(args, double()); });
}

#define FY_MODULE_resample ,
FY__CUDA_KERNEL_LIST(FY_KERNEL_EXISTS)
