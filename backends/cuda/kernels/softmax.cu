// softmax and log_softmax along one axis, which the host has moved to the back. A group of threads makes one row in three passes: the
// largest value, the sum of exponentials, the results. The second and third find the row in cache.
#include "backends/cuda/kernels/wide.cuh"

__device__ inline float exponential(float x) { return fy__exp_f32(x); }
__device__ inline double exponential(double x) { return fy__exp_f64(x); }
__device__ inline float logarithm(float x) { return fy__log_f32(x); }
__device__ inline double logarithm(double x) { return fy__log_f64(x); }
__device__ inline float larger(float a, float b) { return fy__maximum_f32(a, b); }
__device__ inline double larger(double a, double b) { return fy__maximum_f64(a, b); }

template <int W, typename T> __device__ inline void softmax(const fy_args &args, T *scratch)
{
    const fy_operand &d = args.dst[0], &s = args.src[0];
    const int axis = s.rank - 1;
    const int64_t length = s.dims[axis], step_s = s.strides[axis], step_d = d.strides[axis];
    const uint64_t rows = args.nelem / (uint64_t)length;
    for (uint64_t row = first_group(args); row < rows; row += all_groups(args)) {
        int64_t base_s = 0, base_d = 0;
        locate2(s, d, 0, axis, row, args.flags, base_s, base_d);
        T top = -(T)INFINITY, sum = 0, x[W];
        const int64_t first = lane_of(args) * W, stride = args.lanes * W;
        for (int64_t k = first; k < length; k += stride) {
            load_row<W>(args, s, base_s + k * step_s, x);
            for (int i = 0; i < W; i++) top = larger(top, x[i]);
        }
        top = group_reduce(args, top, scratch, [](T a, T b) { return larger(a, b); });
        for (int64_t k = first; k < length; k += stride) {
            load_row<W>(args, s, base_s + k * step_s, x);
            for (int i = 0; i < W; i++) sum += exponential(x[i] - top);
        }
        sum = group_reduce(args, sum, scratch, [](T a, T b) { return a + b; });
        const T log_sum = logarithm(sum);
        for (int64_t k = first; k < length; k += stride) {
            load_row<W>(args, s, base_s + k * step_s, x);
            for (int i = 0; i < W; i++) x[i] = args.op == FY_OP_LOG_SOFTMAX ? x[i] - top - log_sum : exponential(x[i] - top) / sum;
            store_row<W>(args, d, base_d + k * step_d, x);
        }
    }
}

template <typename T> __device__ inline void softmax_rows(const fy_args &args, T *scratch)
{
    by_width(T(), args, [&](auto w) { softmax<decltype(w)::n>(args, scratch); });
}

FY_KERNEL fy_softmax_f32(FY_ARGS args)
{
    __shared__ float scratch[FY__CUDA_BLOCK / 32];
    softmax_rows(args, scratch);
}
FY_KERNEL fy_softmax_f64(FY_ARGS args)
{
    __shared__ double scratch[FY__CUDA_BLOCK / 32];
    softmax_rows(args, scratch);
}

// ---- gradients, from dy and y: y (dy - sum(dy y)) and dy - exp(y) sum(dy) ----

template <int W, typename T> __device__ inline void softmax_backward(const fy_args &args, T *scratch)
{
    const fy_operand &d = args.dst[0], &g = args.src[0], &y = args.src[1];
    const int axis = d.rank - 1;
    const int64_t length = d.dims[axis], step_g = g.strides[axis], step_y = y.strides[axis], step_d = d.strides[axis];
    const uint64_t rows = args.nelem / (uint64_t)length;
    const bool is_log = args.op == FY_OP_LOG_SOFTMAX_BACKWARD;
    for (uint64_t row = first_group(args); row < rows; row += all_groups(args)) {
        int64_t base_g = 0, base_y = 0;
        locate2(g, y, 0, axis, row, args.flags, base_g, base_y);
        const int64_t base_d = locate(d, 0, axis, row, args.flags);
        const int64_t first = lane_of(args) * W, stride = args.lanes * W;
        T sum = 0, x[W], r[W];
        for (int64_t k = first; k < length; k += stride) {
            load_row<W>(args, g, base_g + k * step_g, x);
            if (!is_log) load_row<W>(args, y, base_y + k * step_y, r);
            for (int i = 0; i < W; i++) sum += is_log ? x[i] : x[i] * r[i];
        }
        sum = group_reduce(args, sum, scratch, [](T a, T b) { return a + b; });
        for (int64_t k = first; k < length; k += stride) {
            load_row<W>(args, g, base_g + k * step_g, x);
            load_row<W>(args, y, base_y + k * step_y, r);
            for (int i = 0; i < W; i++) x[i] = is_log ? x[i] - exponential(r[i]) * sum : r[i] * (x[i] - sum);
            put_row<W>(args, base_d + k * step_d, x);
        }
    }
}

template <typename T> __device__ inline void softmax_backward_rows(const fy_args &args, T *scratch)
{
    by_width(T(), args, [&](auto w) { softmax_backward<decltype(w)::n>(args, scratch); });
}

FY_KERNEL fy_softmax_backward_f32(FY_ARGS args)
{
    __shared__ float scratch[FY__CUDA_BLOCK / 32];
    softmax_backward_rows(args, scratch);
}
FY_KERNEL fy_softmax_backward_f64(FY_ARGS args)
{
    __shared__ double scratch[FY__CUDA_BLOCK / 32];
    softmax_backward_rows(args, scratch);
}

FY_KERNEL_EXISTS(fy_softmax_backward_f32)
FY_KERNEL_EXISTS(fy_softmax_backward_f64)
FY_KERNEL_EXISTS(fy_softmax_f32)
FY_KERNEL_EXISTS(fy_softmax_f64)
