// Sums and means of columns: a result is added up over rows, neighbouring results from neighbouring
// elements. A thread has the columns of one
// 16-byte access, or one column, and reads 8 rows (of bytes 4) before it adds the first. Each
// column is added up row by row: the order, and so the
// bits, do not depend on how wide the accesses are.
#include "backends/cuda/kernels/rows.cuh"

// Adds `rows` rows, `step` apart, to the W columns' sums.
template <int D, int W, typename T>
__device__ inline void add_rows(const fy_operand &s, int64_t at, int64_t step, int64_t rows,
                                T (&sum)[W])
{
    using E = typename stored<D>::type;
    constexpr int U = W > 8 ? 4 : 8;
    int64_t row = 0;
    for (; row + U <= rows; row += U, at += U * step) {
        pack<E, W> p[U];
        for (int u = 0; u < U; u++) p[u] = read_pack<E, W>(s, at + u * step);
        for (int u = 0; u < U; u++)
            for (int i = 0; i < W; i++) sum[i] += widened<D, T>(p[u].at[i]);
    }
    for (; row < rows; row++, at += step) {
        const pack<E, W> p = read_pack<E, W>(s, at);
        for (int i = 0; i < W; i++) sum[i] += widened<D, T>(p.at[i]);
    }
}

template <int D, int W, typename T> __device__ inline void columns(const fy_args &args)
{
    const fy_operand &s = args.src[0], &d = args.dst[0];
    const int last = s.rank - 1;
    int kept = 0;
    while (!(args.attrs.reduce.axes >> kept & 1)) kept++;
    uint64_t outer = 1;
    for (int axis = kept; axis < last; axis++) outer *= (uint64_t)s.dims[axis];
    const int64_t rows = s.dims[last], step = s.strides[last], step_d = d.strides[kept - 1];
    const uint64_t count = args.count != FY__CUDA_NO_COUNT ? args.count : outer * (uint64_t)rows;
    for (uint64_t group = first_thread(); group < args.nelem / W; group += all_threads()) {
        uint64_t rest = group;
        const int64_t column = (int64_t)split(rest, s.dims[kept - 1] / W, args.flags) * W;
        int64_t base_s = column, base_d = column * step_d;
        locate2(s, d, 0, kept - 1, rest, args.flags, base_s, base_d);
        T sum[W] = {};
        for (uint64_t o = 0; o < outer; o++)
            add_rows<D, W, T>(s, base_s + locate(s, kept, last, o, args.flags), step, rows, sum);
        for (int i = 0; i < W; i++) {
            if (args.op == FY_OP_MEAN) sum[i] = sum[i] / (T)count;
            put(args, base_d + i * step_d, sum[i]);
        }
    }
}

template <int D, typename T> __device__ inline void columns_of(const fy_args &args)
{
    constexpr int W = 16 / sizeof(typename stored<D>::type);
    if ((args.flags & FY__CUDA_ALIGNED) != 0)
        columns<D, W, T>(args);
    else
        columns<D, 1, T>(args);
}

FY_KERNEL fy_reduce_columns_float(FY_ARGS args)
{
    switch (args.src[0].dtype) {
    case FY_DTYPE_F64: columns_of<FY_DTYPE_F64, double>(args); break;
    case FY_DTYPE_F16: columns_of<FY_DTYPE_F16, double>(args); break;
    case FY_DTYPE_BF16: columns_of<FY_DTYPE_BF16, double>(args); break;
    default: columns_of<FY_DTYPE_F32, double>(args); break;
    }
}
FY_KERNEL fy_reduce_columns_int(FY_ARGS args)
{
    switch (args.src[0].dtype) {
    case FY_DTYPE_I32: columns_of<FY_DTYPE_I32, int64_t>(args); break;
    case FY_DTYPE_I64: columns_of<FY_DTYPE_I64, int64_t>(args); break;
    default: columns_of<FY_DTYPE_U8, int64_t>(args); break;
    }
}

#define FY_MODULE_columns ,
FY__CUDA_KERNEL_LIST(FY_KERNEL_EXISTS)
