// Losses of classifiers and their gradients: a group of threads has one row. Losses that are to be
// one number are the work of one block,
// which adds them up in a fixed order; of many rows the host asks for each row's loss instead, and
// for a reduction (pack_loss.c).
#include "backends/cuda/kernels/kept_rows.cuh"

__device__ inline int64_t target_of(const fy_args &args, const fy_operand &targets, uint64_t row,
                                    int64_t classes)
{
    const int64_t asked = load<int64_t>(targets, (int64_t)row * targets.strides[0]);
    if (asked >= 0 && asked < classes) return asked;
    if (args.fault) *(volatile uint32_t *)(uintptr_t)args.fault = 1;
    return asked < 0 ? 0 : classes - 1;
}

// The row's largest logit and the sum of exponentials relative to it, for the group.
template <typename R, typename T>
__device__ inline T exponentials(const fy_args &args, const fy_operand &s, int64_t base,
                                 int64_t classes, T *scratch, T *top)
{
    constexpr int W = R::n;
    const int64_t first = lane_of(args) * W, stride = args.lanes * W;
    T most = -(T)INFINITY, sum = 0;
    const auto compare = [&](int64_t, T(&x)[W]) {
        for (int i = 0; i < W; i++) most = larger(most, x[i]);
    };
    const auto add = [&](int64_t, T(&x)[W]) {
        for (int i = 0; i < W; i++) sum += exponential(x[i] - most);
    };
    const auto group_most = [&] {
        return group_reduce(args, most, scratch, [](T a, T b) { return larger(a, b); });
    };
    if (can_keep<R>(args, classes)) {
        kept_row<R, T> row;
        keep_row(args, s, base, classes, row);
        each_kept(row, compare);
        most = group_most();
        each_kept(row, add);
    } else {
        walk_row<R, 4, T>(args, s, base, s.strides[1], first, stride, classes, compare);
        most = group_most();
        walk_row<R, 4, T>(args, s, base, s.strides[1], first, stride, classes, add);
    }
    *top = most;
    return group_reduce(args, sum, scratch, [](T a, T b) { return a + b; });
}

// The block's sum, for its first thread.
__device__ inline double block_sum(double x, double *scratch)
{
    for (int step = 16; step > 0; step >>= 1) x += __shfl_xor_sync(0xffffffffu, x, step);
    if ((threadIdx.x & 31) == 0) scratch[threadIdx.x >> 5] = x;
    __syncthreads();
    x = scratch[0];
    for (uint32_t warp = 1; warp < blockDim.x / 32; warp++) x += scratch[warp];
    return x;
}

template <typename R, typename T>
__device__ inline void class_loss(const fy_args &args, T *scratch, double *sums)
{
    const fy_operand &s = args.src[0], &targets = args.src[1], &d = args.dst[0];
    const int64_t classes = s.dims[1];
    const uint64_t rows = (uint64_t)s.dims[0];
    const int reduction = args.attrs.loss.reduction;
    double total = 0;
    for (uint64_t row = first_group(args); row < rows; row += all_groups(args)) {
        const int64_t base = (int64_t)row * s.strides[0],
                      target = target_of(args, targets, row, classes);
        double loss = -(double)load<T>(s, base + target * s.strides[1]);
        if (args.op == FY_OP_CROSS_ENTROPY) {
            T top;
            const T sum = exponentials<R, T>(args, s, base, classes, scratch, &top);
            loss += fy__log_f64((double)sum) + (double)top;
        }
        if (lane_of(args) != 0) continue;
        if (reduction == FY_REDUCTION_NONE)
            store(d, (int64_t)row * d.strides[0], loss);
        else
            total += loss;
    }
    if (reduction == FY_REDUCTION_NONE) return;
    total = block_sum(total, sums);
    if (reduction == FY_REDUCTION_MEAN) total /= (double)rows;
    if (first_thread() == 0) store(d, 0, total);
}

template <typename T>
__device__ inline void class_loss_rows(const fy_args &args, T *scratch, double *sums)
{
    by_reads(T(), args, [&](auto r) { class_loss<decltype(r)>(args, scratch, sums); });
}

FY_KERNEL fy_class_loss_f32(FY_ARGS args)
{
    __shared__ float scratch[FY__CUDA_BLOCK / 32];
    __shared__ double sums[FY__CUDA_BLOCK / 32];
    class_loss_rows(args, scratch, sums);
}
FY_KERNEL fy_class_loss_f64(FY_ARGS args)
{
    __shared__ double scratch[FY__CUDA_BLOCK / 32];
    __shared__ double sums[FY__CUDA_BLOCK / 32];
    class_loss_rows(args, scratch, sums);
}

template <typename R, typename T>
__device__ inline void class_loss_backward(const fy_args &args, T *scratch)
{
    constexpr int W = R::n;
    const bool fused = args.op == FY_OP_CROSS_ENTROPY_BACKWARD;
    const fy_operand &dy = args.src[0], &s = args.src[1], &targets = args.src[fused ? 2 : 1],
                     &d = args.dst[0];
    const int64_t classes = d.dims[1];
    const uint64_t rows = (uint64_t)d.dims[0];
    const int reduction = args.attrs.loss.reduction;
    for (uint64_t row = first_group(args); row < rows; row += all_groups(args)) {
        const int64_t target = target_of(args, targets, row, classes);
        const int64_t base = fused ? (int64_t)row * s.strides[0] : 0,
                      to = (int64_t)row * d.strides[0];
        T g = load<T>(dy, reduction == FY_REDUCTION_NONE ? (int64_t)row * dy.strides[0] : 0),
          top = 0, scale = 0;
        if (reduction == FY_REDUCTION_MEAN) g = (T)((double)g / (double)rows);
        if (fused) scale = g / exponentials<R, T>(args, s, base, classes, scratch, &top);
        for (int64_t k = lane_of(args) * W; k < classes; k += args.lanes * W) {
            T x[W];
            if (fused) load_row<W>(args, s, base + k * s.strides[1], x);
            for (int i = 0; i < W; i++) {
                const T share = fused ? exponential(x[i] - top) * scale : (T)0;
                x[i] = k + i == target ? share - g : share;
            }
            put_row<W>(args, to + k * d.strides[1], x);
        }
    }
}

template <typename T>
__device__ inline void class_loss_backward_rows(const fy_args &args, T *scratch)
{
    by_reads(T(), args, [&](auto r) { class_loss_backward<decltype(r)>(args, scratch); });
}

FY_KERNEL fy_class_loss_backward_f32(FY_ARGS args)
{
    __shared__ float scratch[FY__CUDA_BLOCK / 32];
    class_loss_backward_rows(args, scratch);
}
FY_KERNEL fy_class_loss_backward_f64(FY_ARGS args)
{
    __shared__ double scratch[FY__CUDA_BLOCK / 32];
    class_loss_backward_rows(args, scratch);
}

// dy 2 (pred - target) / n
template <int W, typename T> __device__ inline void mse_loss_backward(const fy_args &args, T factor)
{
    const fy_operand &pred = args.src[1], &target = args.src[2], &d = args.dst[0];
    const fy_operand *const operands[3] = { &d, &pred, &target };
    const uint64_t groups = args.nelem / W;
    for (uint64_t group = first_thread(); group < groups; group += all_threads()) {
        int64_t at[3];
        T x[W], y[W];
        locate_group<W>(args, d, operands, group, at);
        load_or_repeat<W>(pred, at[1], x);
        load_or_repeat<W>(target, at[2], y);
        for (int i = 0; i < W; i++) x[i] = (x[i] - y[i]) * factor;
        put_group<W>(args, at[0], x);
    }
    for (uint64_t n = groups * W + first_thread(); n < args.nelem;
         n += all_threads()) { // of one axis
        const int64_t at = (int64_t)n;
        put(args, at,
            (load<T>(pred, at * pred.strides[0]) - load<T>(target, at * target.strides[0])) *
                factor);
    }
}

template <typename T> __device__ inline void mse_loss_backward(const fy_args &args)
{
    const T factor = (T)(2 * (double)load<T>(args.src[0], 0) / (double)args.nelem);
    by_width(T(), args, [&](auto w) { mse_loss_backward<decltype(w)::n>(args, factor); });
}

FY_KERNEL fy_mse_loss_backward_f32(FY_ARGS args) { mse_loss_backward<float>(args); }
FY_KERNEL fy_mse_loss_backward_f64(FY_ARGS args) { mse_loss_backward<double>(args); }

FY_KERNEL_EXISTS(fy_mse_loss_backward_f32)
FY_KERNEL_EXISTS(fy_mse_loss_backward_f64)
FY_KERNEL_EXISTS(fy_class_loss_f32)
FY_KERNEL_EXISTS(fy_class_loss_f64)
FY_KERNEL_EXISTS(fy_class_loss_backward_f32)
FY_KERNEL_EXISTS(fy_class_loss_backward_f64)
