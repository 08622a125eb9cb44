// Losses of classifiers and their gradients: a group of threads has one row. Losses that are to be
// one number are the work of one block,
// which adds them up in a fixed order; of many rows the host asks for each row's loss instead, and
// for a reduction, or for fy_class_loss_mean (pack_loss.c).
#include "backends/cuda/kernels/kept_rows.cuh"

// Where row `row` begins: the rows are the elements of the first `leads` axes, mostly of one.
__device__ inline int64_t row_at(const fy_operand &o, int leads, uint64_t row)
{
    int64_t left = (int64_t)row, at = 0;
    for (int axis = leads - 1; axis > 0; axis--) {
        at += left % o.dims[axis] * o.strides[axis];
        left /= o.dims[axis];
    }
    return at + left * o.strides[0];
}

__device__ inline int64_t ignored_of(const fy_args &args)
{
    return args.op == FY_OP_NLL_LOSS_BACKWARD ? args.attrs.class_loss_backward.ignore_index
                                              : args.attrs.class_loss.ignore_index;
}

// The row's class; -1: the row does not count.
__device__ inline int64_t target_of(const fy_args &args, const fy_operand &targets, uint64_t row,
                                    int64_t classes)
{
    const int64_t asked = load<int64_t>(targets, row_at(targets, targets.rank, row));
    if (asked == ignored_of(args)) return -1;
    if (asked >= 0 && asked < classes) return asked;
    if (args.fault) *(volatile uint32_t *)(uintptr_t)args.fault = 1;
    return asked < 0 ? 0 : classes - 1;
}

// Weights are the source behind the targets, `t`.
template <typename T> __device__ inline T weight_at(const fy_args &args, uint32_t t, int64_t target)
{
    if (args.nsrc <= t + 1) return 1;
    return load<T>(args.src[t + 1], target * args.src[t + 1].strides[0]);
}

// ---- rows of f16 or bf16 at any address, 2-byte steps: a group of 8 threads or more ----

// body(k, x) for elements k, k + 1, ...: an x of eight where 16 bytes are aligned, else of one.
template <int D, typename Body>
__device__ inline void walk_half_row(const fy_args &args, const fy_operand &s, int64_t base,
                                     int64_t end, Body body)
{
    const int64_t lane = lane_of(args);
    const int64_t before = -(int64_t)((uintptr_t)element<uint16_t>(s, base) / 2) & 7;
    const int64_t head = before < end ? before : end, wide = (end - head) & ~(int64_t)7;
    const auto one = [&](int64_t k) {
        float x[1] = { widened<D, float>(*element<uint16_t>(s, base + k)) };
        body(k, x);
    };
    if (lane < head) one(lane);
    walk_row<reads<D, 8>, 4, float>(args, s, base + head, 1, lane * 8, args.lanes * 8, wide,
                                    [&](int64_t k, float(&x)[8]) { body(head + k, x); });
    if (head + wide + lane < end) one(head + wide + lane);
}

// exp(x - top) with the digits of a half.
__device__ inline float half_exponential(float x, float top)
{
    return fy__exp2_fast((x - top) * 1.44269504f);
}

// A NaN reaches the sum, if not the largest value.
template <int D>
__device__ inline float half_exponentials(const fy_args &args, const fy_operand &s, int64_t base,
                                          int64_t classes, float *scratch, float *top)
{
    float most = -INFINITY, sum = 0;
    walk_half_row<D>(args, s, base, classes, [&](int64_t, auto &x) {
        for (const float each : x) most = fmaxf(most, each);
    });
    most = group_reduce(args, most, scratch, [](float a, float b) { return fmaxf(a, b); });
    walk_half_row<D>(args, s, base, classes, [&](int64_t, auto &x) {
        for (const float each : x) sum += half_exponential(each, most);
    });
    *top = most;
    return group_reduce(args, sum, scratch, [](float a, float b) { return a + b; });
}

// scale exp(x - top), at the target less `at`; dst is aligned as the logits are.
template <int D>
__device__ inline void half_gradients(const fy_args &args, const fy_operand &s, int64_t base,
                                      int64_t to, int64_t classes, int64_t target, float top,
                                      float scale, float at)
{
    walk_half_row<D>(args, s, base, classes, [&](int64_t k, auto &x) {
        constexpr int W = sizeof x / sizeof *x;
        for (float &each : x) each = half_exponential(each, top) * scale;
        if ((uint64_t)(target - k) < W)
            for (int i = 0; i < W; i++)
                if (k + i == target) x[i] -= at;
        write_as<W, stored<D>>(args.dst[0], to + k, x);
    });
}

// Runs body(reads<dtype, 8>()) if the group of a kernel in f32 walks such rows of `s`.
template <typename R, typename T, typename Body>
__device__ inline bool by_half(const fy_args &args, const fy_operand &s, Body body)
{
    if constexpr (sizeof(T) == sizeof(float) && (R::n == 8 || R::n == 1)) {
        if (args.lanes < 32 || s.strides[s.rank - 1] != 1) return false;
        if (s.dtype == FY_DTYPE_BF16)
            body(reads<FY_DTYPE_BF16, 8>());
        else if (s.dtype == FY_DTYPE_F16)
            body(reads<FY_DTYPE_F16, 8>());
        else
            return false;
        return true;
    }
    return false;
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
    T all = 0;
    if (!can_keep<R>(args, classes) && by_half<R, T>(args, s, [&](auto r) {
            all = half_exponentials<decltype(r)::dtype>(args, s, base, classes, scratch, top);
        }))
        return all;
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
        walk_row<R, 4, T>(args, s, base, s.strides[s.rank - 1], first, stride, classes, compare);
        most = group_most();
        walk_row<R, 4, T>(args, s, base, s.strides[s.rank - 1], first, stride, classes, add);
    }
    *top = most;
    return group_reduce(args, sum, scratch, [](T a, T b) { return a + b; });
}

// The block's sum, for all its threads.
__device__ inline double block_sum(double x, double *scratch)
{
    for (int step = 16; step > 0; step >>= 1) x += __shfl_xor_sync(0xffffffffu, x, step);
    __syncthreads(); // the scratch of the previous sum has been read
    if ((threadIdx.x & 31) == 0) scratch[threadIdx.x >> 5] = x;
    __syncthreads();
    x = scratch[0];
    for (uint32_t warp = 1; warp < blockDim.x / 32; warp++) x += scratch[warp];
    return x;
}

// The sum of the weights of the rows that count, in a block; the targets are source `t`.
template <typename T>
__device__ inline double divisor_of(const fy_args &args, uint32_t t, uint64_t rows, int64_t classes,
                                    double *scratch)
{
    double sum = 0;
    for (uint64_t row = threadIdx.x; row < rows; row += blockDim.x) {
        const int64_t target = target_of(args, args.src[t], row, classes);
        if (target >= 0) sum += (double)weight_at<T>(args, t, target);
    }
    return block_sum(sum, scratch);
}

// For the group: the sum of the class weights.
template <typename T>
__device__ inline T sum_of_weights(const fy_args &args, uint32_t t, int64_t classes, T *scratch)
{
    if (args.nsrc <= t + 1) return (T)classes;
    T sum = 0;
    for (int64_t k = lane_of(args); k < classes; k += args.lanes) sum += weight_at<T>(args, t, k);
    return group_reduce(args, sum, scratch, [](T a, T b) { return a + b; });
}

// For the group: the sum of weight (x - top), whose negative is what smoothing adds.
template <typename T>
__device__ inline T weighted_sum(const fy_args &args, int64_t base, int64_t classes, T top,
                                 T *scratch)
{
    const fy_operand &s = args.src[0];
    const int64_t step = s.strides[s.rank - 1];
    T sum = 0;
    for (int64_t k = lane_of(args); k < classes; k += args.lanes)
        sum += weight_at<T>(args, 1, k) * (load<T>(s, base + k * step) - top);
    return group_reduce(args, sum, scratch, [](T a, T b) { return a + b; });
}

template <typename R, typename T>
__device__ inline void class_loss(const fy_args &args, T *scratch, double *sums)
{
    const fy_operand &s = args.src[0], &targets = args.src[1], &d = args.dst[0];
    const int leads = targets.rank;
    const int64_t classes = s.dims[leads], step = s.strides[leads];
    const uint64_t rows = args.count;
    const int reduction = args.attrs.class_loss.reduction;
    const double smoothing = args.attrs.class_loss.label_smoothing;
    double total = 0, divisor = 0;
    for (uint64_t row = first_group(args); row < rows; row += all_groups(args)) {
        const int64_t base = row_at(s, leads, row), target = target_of(args, targets, row, classes);
        double loss = 0;
        if (target >= 0) { // the same for the whole group
            const double weight = (double)weight_at<T>(args, 1, target);
            loss = -(double)load<T>(s, base + target * step);
            if (args.op == FY_OP_CROSS_ENTROPY) {
                T top;
                const T sum = exponentials<R, T>(args, s, base, classes, scratch, &top);
                const double log_sum = fy__log_f64((double)sum);
                loss += log_sum + (double)top;
                loss *= weight;
                if (smoothing != 0) {
                    const double all = (double)sum_of_weights<T>(args, 1, classes, scratch) *
                                           log_sum -
                                       (double)weighted_sum<T>(args, base, classes, top, scratch);
                    loss = (1 - smoothing) * loss + smoothing / (double)classes * all;
                }
            } else {
                loss *= weight;
            }
            divisor += weight;
        }
        if (lane_of(args) != 0) continue;
        if (reduction == FY_REDUCTION_NONE)
            store(d, row_at(d, leads, row), loss);
        else
            total += loss;
    }
    if (reduction == FY_REDUCTION_NONE) return;
    total = block_sum(total, sums);
    if (reduction == FY_REDUCTION_MEAN) total /= block_sum(lane_of(args) == 0 ? divisor : 0, sums);
    if (first_thread() == 0) store(d, 0, total);
}

template <typename T>
__device__ __forceinline__ void class_loss_rows(const fy_args &args, T *scratch, double *sums)
{
    by_reads(T(), args, [&](auto r) { class_loss<decltype(r)>(args, scratch, sums); });
}

#define LOSS_KERNEL(name, T, body)        \
    FY_KERNEL name(FY_ARGS args)          \
    {                                     \
        __shared__ per_warp<T> scratch;   \
        __shared__ per_warp<double> sums; \
        body(args, scratch, sums);        \
    }
LOSS_KERNEL(fy_class_loss_f32, float, class_loss_rows)
LOSS_KERNEL(fy_class_loss_f64, double, class_loss_rows)

// One block: the mean of the rows' losses, which dst[1] has in f64; without a dst[1] the number by
// which a mean divides. Source 0 has the targets; a class matters only if there are weights.
template <typename T> __device__ inline void class_loss_mean(const fy_args &args, double *sums)
{
    const int64_t classes = args.nsrc > 1 ? args.src[1].dims[0] : INT64_MAX;
    const double divisor = divisor_of<T>(args, 0, args.count, classes, sums);
    double total = 0;
    if (args.ndst > 1) {
        for (uint64_t row = threadIdx.x; row < args.count; row += blockDim.x)
            total += load<double>(args.dst[1], (int64_t)row);
        total = block_sum(total, sums) / divisor;
    }
    if (first_thread() == 0) store(args.dst[0], 0, args.ndst > 1 ? total : divisor);
}

FY_SHARED_KERNEL(fy_class_loss_mean_f32, per_warp<double>, class_loss_mean<float>)
FY_SHARED_KERNEL(fy_class_loss_mean_f64, per_warp<double>, class_loss_mean<double>)

// Is the gradient's row stored as the logits' row is, at the same distance from 16 bytes?
__device__ inline bool is_alike(const fy_args &args, int64_t base, int64_t to)
{
    const fy_operand &s = args.src[1], &d = args.dst[0];
    const uint64_t from = s.data + (uint64_t)base * 2, at = d.data + (uint64_t)to * 2;
    return s.dtype == d.dtype && d.strides[d.rank - 1] == 1 && (from - at) % 16 == 0;
}

// A mean's divisor is in dst[1] if that was computed before; else each block computes it.
template <typename R, typename T>
__device__ inline void class_loss_backward(const fy_args &args, T *scratch, double *sums)
{
    constexpr int W = R::n;
    const bool fused = args.op == FY_OP_CROSS_ENTROPY_BACKWARD;
    const uint32_t t = fused ? 2 : 1;
    const fy_operand &dy = args.src[0], &s = args.src[1], &targets = args.src[t], &d = args.dst[0];
    const int leads = targets.rank;
    const int64_t classes = d.dims[leads], from = fused ? s.strides[leads] : 0;
    const uint64_t rows = args.count;
    const int reduction = args.attrs.class_loss.reduction; // the first field of both structs
    const double smoothing = fused ? args.attrs.class_loss.label_smoothing : 0;
    const T each = (T)(smoothing / (double)classes);
    double divisor = 1;
    if (reduction == FY_REDUCTION_MEAN)
        divisor = args.ndst > 1 ? load<double>(args.dst[1], 0)
                                : divisor_of<T>(args, t, rows, classes, sums);
    for (uint64_t row = first_group(args); row < rows; row += all_groups(args)) {
        const int64_t target = target_of(args, targets, row, classes);
        const bool counts = target >= 0;
        const int64_t base = fused ? row_at(s, leads, row) : 0, to = row_at(d, leads, row);
        T g = 0, at = 0, all = 0, top = 0, scale = 0;
        if (counts) {
            g = load<T>(dy, reduction == FY_REDUCTION_NONE ? row_at(dy, leads, row) : 0);
            if (reduction == FY_REDUCTION_MEAN) g = (T)((double)g / divisor);
            at = all = g * (T)(1 - smoothing) * weight_at<T>(args, t, target);
            if (smoothing != 0) all += g * each * sum_of_weights<T>(args, t, classes, scratch);
            if (fused) scale = all / exponentials<R, T>(args, s, base, classes, scratch, &top);
        }
        if (fused && counts && smoothing == 0 && !args.accumulate && is_alike(args, base, to) &&
            by_half<R, T>(args, s, [&](auto r) {
                half_gradients<decltype(r)::dtype>(args, s, base, to, classes, target, top, scale,
                                                   at);
            }))
            continue;
        for (int64_t k = lane_of(args) * W; k < classes; k += args.lanes * W) {
            T x[W];
            if (fused && counts) load_row<W>(args, s, base + k * from, x);
            for (int i = 0; i < W; i++) {
                T share = fused && counts ? exponential(x[i] - top) * scale : (T)0;
                if (smoothing != 0 && k + i < classes)
                    share -= g * each * weight_at<T>(args, t, k + i);
                x[i] = k + i == target ? share - at : share;
            }
            put_row<W>(args, to + k * d.strides[leads], x);
        }
    }
}

template <typename T>
__device__ __forceinline__ void class_loss_backward_rows(const fy_args &args, T *scratch,
                                                         double *sums)
{
    by_reads(T(), args, [&](auto r) { class_loss_backward<decltype(r)>(args, scratch, sums); });
}

LOSS_KERNEL(fy_class_loss_backward_f32, float, class_loss_backward_rows)
LOSS_KERNEL(fy_class_loss_backward_f64, double, class_loss_backward_rows)

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

#define FY_MODULE_loss ,
FY__CUDA_KERNEL_LIST(FY_KERNEL_EXISTS)
