// take_along_axis along the last axis, its gradient, and topk. The gradient: a thread an element of
// the result, which adds what its index names, in order, so equal indices need no atomics. topk: a
// warp or a block a row, which finds the k largest one after the other.
#include "backends/cuda/kernels/rows.cuh"

// ---- take_along_axis: elements are bytes ----

template <typename E> __device__ inline void take(const fy_args &args)
{
    const fy_operand &d = args.dst[0], &s = args.src[0], &indices = args.src[1];
    const int last = d.rank - 1;
    for (uint64_t n = first_thread(); n < args.nelem; n += all_threads()) {
        uint64_t row = n;
        const int64_t k = (int64_t)split(row, d.dims[last], args.flags);
        const int64_t asked = load<int64_t>(indices, locate(indices, 0, last, row, args.flags) +
                                                         k * indices.strides[last]);
        const int64_t end = s.dims[last], at = asked < 0 ? 0 : asked >= end ? end - 1 : asked;
        if (at != asked && args.fault) *(volatile uint32_t *)(uintptr_t)args.fault = 1;
        *element<E>(d, locate(d, 0, last, row, args.flags) + k * d.strides[last]) =
            *element<E>(s, locate(s, 0, last, row, args.flags) + at * s.strides[last]);
    }
}

FY_KERNEL fy_take_along_axis(FY_ARGS args)
{
    switch (args.dst[0].dtype) {
    case FY_DTYPE_F64:
    case FY_DTYPE_I64: take<uint64_t>(args); break;
    case FY_DTYPE_F32:
    case FY_DTYPE_I32: take<uint32_t>(args); break;
    case FY_DTYPE_F16:
    case FY_DTYPE_BF16: take<uint16_t>(args); break;
    default: take<uint8_t>(args); break;
    }
}

template <typename T> __device__ inline void add_along(const fy_args &args, T)
{
    const fy_operand &d = args.dst[0], &dy = args.src[0], &indices = args.src[1];
    const int last = d.rank - 1;
    const int64_t end = d.dims[last];
    for (uint64_t n = first_thread(); n < args.nelem; n += all_threads()) {
        uint64_t row = n;
        const int64_t at = (int64_t)split(row, end, args.flags);
        const int64_t from = locate(dy, 0, last, row, args.flags),
                      index = locate(indices, 0, last, row, args.flags),
                      to = locate(d, 0, last, row, args.flags) + at * d.strides[last];
        T sum = args.accumulate ? load<T>(d, to) : (T)0;
        for (int64_t k = 0; k < dy.dims[last]; k++) {
            const int64_t asked = load<int64_t>(indices, index + k * indices.strides[last]);
            if ((asked < 0 || asked >= end) && args.fault)
                *(volatile uint32_t *)(uintptr_t)args.fault = 1;
            if (asked == at) sum += load<T>(dy, from + k * dy.strides[last]);
        }
        store(d, to, sum);
    }
}

FY_KERNEL fy_take_along_axis_backward_f32(FY_ARGS args) { add_along(args, float()); }
FY_KERNEL fy_take_along_axis_backward_f64(FY_ARGS args) { add_along(args, double()); }

// ---- topk ----

template <typename T> struct best {
    T value;
    int64_t index; // -1: none
};

// Whether a comes before b: NaN first, then larger values, then smaller indices.
template <typename T> __device__ inline bool is_before(const best<T> &a, const best<T> &b)
{
    const bool nan_a = a.value != a.value, nan_b = b.value != b.value;
    if (nan_a != nan_b) return nan_a;
    return a.value > b.value || (!(a.value < b.value) && a.index < b.index);
}

template <typename T> __device__ inline best<T> first_of(const best<T> &a, const best<T> &b)
{
    if (a.index < 0 || b.index < 0) return a.index < 0 ? b : a;
    return is_before(a, b) ? a : b;
}

template <typename T> __device__ inline void topk(const fy_args &args, T)
{
    __shared__ best<T> scratch[FY__CUDA_BLOCK / 32];
    const fy_operand &s = args.src[0], &values = args.dst[0], &indices = args.dst[1];
    const int last = s.rank - 1;
    const uint64_t rows = args.nelem / (uint64_t)values.dims[last];
    for (uint64_t row = first_group(args); row < rows; row += all_groups(args)) {
        const int64_t from = locate(s, 0, last, row, args.flags),
                      to = locate(values, 0, last, row, args.flags),
                      to_index = locate(indices, 0, last, row, args.flags);
        best<T> previous = { (T)0, -1 };
        for (int64_t j = 0; j < values.dims[last]; j++) {
            best<T> found = { (T)0, -1 };
            for (int64_t i = lane_of(args); i < s.dims[last]; i += args.lanes) {
                const best<T> next = { load<T>(s, from + i * s.strides[last]), i };
                if (j == 0 || is_before(previous, next)) found = first_of(found, next);
            }
            found = group_combine(
                args, found, scratch,
                [](best<T> x, int step) {
                    return best<T>{ __shfl_xor_sync(0xffffffffu, x.value, step),
                                    (int64_t)__shfl_xor_sync(0xffffffffu, (long long)x.index,
                                                             step) };
                },
                [](best<T> a, best<T> b) { return first_of(a, b); });
            previous = found;
            if (lane_of(args) != 0) continue;
            store(values, to + j * values.strides[last], found.value);
            *element<int64_t>(indices, to_index + j * indices.strides[last]) = found.index;
        }
    }
}

FY_KERNEL fy_topk_f32(FY_ARGS args) { topk(args, float()); }
FY_KERNEL fy_topk_f64(FY_ARGS args) { topk(args, double()); }
FY_KERNEL fy_topk_int(FY_ARGS args) { topk(args, int64_t()); }

#define FY_MODULE_along ,
FY__CUDA_KERNEL_LIST(FY_KERNEL_EXISTS)
