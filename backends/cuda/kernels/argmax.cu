// argmax and argmin: the first of the largest or smallest; a NaN comes before every number.
// Elements are compared in their dtype (f16 and bf16 as f32), never through f64. A group of threads
// has one row, or one piece of it (args.count elements): then it leaves the index in the workspace,
// and fy_argmax_join chooses among the pieces' (pack_rows.c).
#include "backends/cuda/kernels/rows.cuh"

template <typename T> struct best {
    T value;
    int64_t index; // -1: none yet
};

template <typename T> __device__ inline best<T> better(bool is_min, best<T> a, best<T> b)
{
    if (a.index < 0 || b.index < 0) return a.index < 0 ? b : a;
    bool nan_a = a.value != a.value, nan_b = b.value != b.value;
    if (nan_a != nan_b) return nan_a ? a : b;
    if (!nan_a && a.value != b.value) return (a.value > b.value) != is_min ? a : b;
    return a.index < b.index ? a : b;
}

// Of the group's; every thread gets it.
template <typename T>
__device__ inline best<T> group_best(const fy_args &args, best<T> found, best<T> *scratch)
{
    const bool is_min = args.op == FY_OP_ARGMIN;
    return group_combine(
        args, found, scratch,
        [](best<T> x, int step) {
            return best<T>{ __shfl_xor_sync(0xffffffffu, x.value, step),
                            (int64_t)__shfl_xor_sync(0xffffffffu, (long long)x.index, step) };
        },
        [is_min](best<T> a, best<T> b) { return better(is_min, a, b); });
}

template <typename R, typename T> __device__ inline void argmax(const fy_args &args)
{
    __shared__ best<T> scratch[FY__CUDA_BLOCK / 32];
    const fy_operand &s = args.src[0];
    const int axis = s.rank - 1; // the host moved it there
    const bool is_min = args.op == FY_OP_ARGMIN;
    const bool pieces = args.count != FY__CUDA_NO_COUNT;
    const int64_t length = s.dims[axis];
    const uint64_t npieces = pieces ? ((uint64_t)length + args.count - 1) / args.count : 1,
                   rows = args.nelem / npieces;
    for (uint64_t group = first_group(args); group < args.nelem; group += all_groups(args)) {
        const row_piece p = pieces ? piece_of(args, group, rows, length)
                                   : row_piece{ group, 0, 0, length };
        const int64_t base = locate(s, 0, axis, p.row, args.flags);
        best<T> found = { (T)0, -1 };
        // A thread sees its elements in order: the first of the largest, or the first NaN, is not
        // replaced.
        walk_row<R, 4, T>(args, s, base, s.strides[axis], p.begin + lane_of(args) * R::n,
                          args.lanes * R::n, p.end, [&](int64_t k, T(&x)[R::n]) {
                              for (int i = 0; i < R::n; i++)
                                  if (found.index < 0 ||
                                      (!(is_min ? x[i] >= found.value : x[i] <= found.value) &&
                                       found.value == found.value))
                                      found = best<T>{ x[i], k + i };
                          });
        found = group_best(args, found, scratch);
        if (lane_of(args) != 0) continue;
        *element<int64_t>(args.dst[0], pieces ? (int64_t)group
                                              : locate(args.dst[0], 0, axis, group, args.flags)) =
            found.index;
    }
}

// Elements of pieces that won, by their indices: the workspace has no values.
template <typename R, typename T> __device__ inline void argmax_join(const fy_args &args)
{
    __shared__ best<T> scratch[FY__CUDA_BLOCK / 32];
    const fy_operand &s = args.src[0], &winners = args.src[1];
    const int axis = s.rank - 1;
    const int64_t npieces = (s.dims[axis] + (int64_t)args.count - 1) / (int64_t)args.count;
    for (uint64_t row = first_group(args); row < args.nelem; row += all_groups(args)) {
        const int64_t base = locate(s, 0, axis, row, args.flags);
        best<T> found = { (T)0, -1 };
        for (int64_t i = lane_of(args); i < npieces; i += args.lanes) {
            const int64_t index =
                *element<int64_t>(winners, i * (int64_t)args.nelem + (int64_t)row);
            const T value = widened<R::dtype, T>(
                *element<typename stored<R::dtype>::type>(s, base + index * s.strides[axis]));
            found = better(args.op == FY_OP_ARGMIN, found, best<T>{ value, index });
        }
        found = group_best(args, found, scratch);
        if (lane_of(args) == 0)
            *element<int64_t>(args.dst[0], locate(args.dst[0], 0, axis, row, args.flags)) =
                found.index;
    }
}

// Runs body(reads<D, 16 bytes>() or reads<D, 1>(), a T to compare in).
template <int D, typename T, typename Body>
__device__ inline void by_alignment(const fy_args &args, Body body)
{
    if ((args.flags & FY__CUDA_ALIGNED) != 0)
        body(reads<D, 16 / sizeof(typename stored<D>::type)>(), T());
    else
        body(reads<D, 1>(), T());
}
template <typename Body> __device__ inline void by_stored(const fy_args &args, Body body)
{
    switch (args.src[0].dtype) {
    case FY_DTYPE_F32: by_alignment<FY_DTYPE_F32, float>(args, body); break;
    case FY_DTYPE_F64: by_alignment<FY_DTYPE_F64, double>(args, body); break;
    case FY_DTYPE_F16: by_alignment<FY_DTYPE_F16, float>(args, body); break;
    case FY_DTYPE_BF16: by_alignment<FY_DTYPE_BF16, float>(args, body); break;
    case FY_DTYPE_I32: by_alignment<FY_DTYPE_I32, int32_t>(args, body); break;
    case FY_DTYPE_I64: by_alignment<FY_DTYPE_I64, int64_t>(args, body); break;
    default: by_alignment<FY_DTYPE_U8, int32_t>(args, body); break;
    }
}

FY_KERNEL fy_argmax(FY_ARGS args)
{
    by_stored(args, [&](auto r, auto t) { argmax<decltype(r), decltype(t)>(args); });
}

FY_KERNEL fy_argmax_join(FY_ARGS args)
{
    by_stored(args, [&](auto r, auto t) { argmax_join<decltype(r), decltype(t)>(args); });
}

#define FY_MODULE_argmax ,
FY__CUDA_KERNEL_LIST(FY_KERNEL_EXISTS)
