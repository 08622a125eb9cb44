// softmax and log_softmax along one axis, which the host has moved to the back. A group of threads
// makes one row in three passes: the
// largest value, the sum of exponentials, the results. Rows of up to 4,096 f32 stay in registers in
// between.
#include "backends/cuda/kernels/kept_rows.cuh"

// A row that is read once. Every thread of the group has a part of it.
template <typename R, typename T>
__device__ inline void softmax_kept(const fy_args &args, int64_t base_s, int64_t base_d,
                                    int64_t length, T *scratch)
{
    constexpr int W = R::n;
    const fy_operand &d = args.dst[0];
    const bool is_log = args.op == FY_OP_LOG_SOFTMAX;
    kept_row<R, T> row;
    T top = -(T)INFINITY, sum = 0;
    keep_row(args, args.src[0], base_s, length, row);
    each_kept(row, [&](int64_t, T(&x)[W]) {
        for (int i = 0; i < W; i++) top = larger(top, x[i]);
    });
    top = group_reduce(args, top, scratch, [](T a, T b) { return larger(a, b); });
    each_kept(row, [&](int64_t, T(&x)[W]) {
        for (int i = 0; i < W; i++) {
            const T e = exponential(x[i] - top);
            sum += e;
            if (!is_log) x[i] = e;
        }
    });
    sum = group_reduce(args, sum, scratch, [](T a, T b) { return a + b; });
    const T log_sum = logarithm(sum), factor = 1 / sum; // a division an element would be a call
    each_kept(row, [&](int64_t k, T(&x)[W]) {
        for (int i = 0; i < W; i++) x[i] = is_log ? x[i] - top - log_sum : x[i] * factor;
        store_row<W>(args, d, base_d + k * d.strides[d.rank - 1], x);
    });
}

// A row that is read three times.
template <typename R, typename T>
__device__ inline void softmax_walked(const fy_args &args, int64_t base_s, int64_t base_d,
                                      int64_t length, T *scratch)
{
    constexpr int W = R::n;
    const fy_operand &d = args.dst[0], &s = args.src[0];
    const int64_t step_s = s.strides[s.rank - 1], step_d = d.strides[d.rank - 1];
    const int64_t first = lane_of(args) * W, stride = args.lanes * W;
    T top = -(T)INFINITY, sum = 0;
    walk_row<R, 4, T>(args, s, base_s, step_s, first, stride, length, [&](int64_t, T(&x)[W]) {
        for (int i = 0; i < W; i++) top = larger(top, x[i]);
    });
    top = group_reduce(args, top, scratch, [](T a, T b) { return larger(a, b); });
    walk_row<R, 4, T>(args, s, base_s, step_s, first, stride, length, [&](int64_t, T(&x)[W]) {
        for (int i = 0; i < W; i++) sum += exponential(x[i] - top);
    });
    sum = group_reduce(args, sum, scratch, [](T a, T b) { return a + b; });
    const T log_sum = logarithm(sum), factor = 1 / sum; // a division an element would be a call
    walk_row<R, 2, T>(args, s, base_s, step_s, first, stride, length, [&](int64_t k, T(&x)[W]) {
        for (int i = 0; i < W; i++)
            x[i] = args.op == FY_OP_LOG_SOFTMAX ? x[i] - top - log_sum
                                                : exponential(x[i] - top) * factor;
        store_row<W>(args, d, base_d + k * step_d, x);
    });
}

template <typename T> __device__ inline void softmax_rows(const fy_args &args, T *scratch)
{
    const fy_operand &d = args.dst[0], &s = args.src[0];
    const int axis = s.rank - 1;
    const int64_t length = s.dims[axis];
    const uint64_t rows = args.nelem / (uint64_t)length;
    by_reads(T(), args, [&](auto r) {
        using R = decltype(r);
        for (uint64_t row = first_group(args); row < rows; row += all_groups(args)) {
            int64_t base_s = 0, base_d = 0;
            locate2(s, d, 0, axis, row, args.flags, base_s, base_d);
            if (can_keep<R>(args, length))
                softmax_kept<R>(args, base_s, base_d, length, scratch);
            else
                softmax_walked<R>(args, base_s, base_d, length, scratch);
        }
    });
}

FY_SHARED_KERNEL(fy_softmax_f32, per_warp<float>, softmax_rows)
FY_SHARED_KERNEL(fy_softmax_f64, per_warp<double>, softmax_rows)

// ---- gradients, from dy and y: y (dy - sum(dy y)) and dy - exp(y) sum(dy) ----

template <int W, typename T>
__device__ inline void softmax_backward(const fy_args &args, T *scratch)
{
    const fy_operand &d = args.dst[0], &g = args.src[0], &y = args.src[1];
    const int axis = d.rank - 1;
    const int64_t length = d.dims[axis], step_g = g.strides[axis], step_y = y.strides[axis],
                  step_d = d.strides[axis];
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
            for (int i = 0; i < W; i++)
                x[i] = is_log ? x[i] - exponential(r[i]) * sum : r[i] * (x[i] - sum);
            put_row<W>(args, base_d + k * step_d, x);
        }
    }
}

template <typename T> __device__ inline void softmax_backward_rows(const fy_args &args, T *scratch)
{
    by_width(T(), args, [&](auto w) { softmax_backward<decltype(w)::n>(args, scratch); });
}

FY_SHARED_KERNEL(fy_softmax_backward_f32, per_warp<float>, softmax_backward_rows)
FY_SHARED_KERNEL(fy_softmax_backward_f64, per_warp<double>, softmax_backward_rows)

#define FY_MODULE_softmax ,
FY__CUDA_KERNEL_LIST(FY_KERNEL_EXISTS)
