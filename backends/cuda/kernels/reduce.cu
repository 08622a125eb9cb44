// Reductions: sum, mean, norm, prod, any, all, max, min, and the squared error's. The host has
// moved the kept axes to the front and the reduced ones to
// the back (args.attrs.reduce.axes names them); a group of threads makes one result, in an order
// that depends only on the launch, so
// the bits are the same every time. Long reductions come as two launches, partial results in the
// workspace (pack_reduce.c);
// sums of columns are columns.cu's.
#include "backends/cuda/kernels/rows.cuh"

__device__ inline int kept_axes(const fy_args &args)
{
    int kept = 0;
    while (kept < args.src[0].rank && !(args.attrs.reduce.axes >> kept & 1)) kept++;
    return kept;
}

__device__ inline uint64_t reduced_nelem(const fy_operand &s, int kept)
{
    uint64_t n = 1;
    for (int axis = kept; axis < s.rank; axis++) n *= (uint64_t)s.dims[axis];
    return n;
}

#define LIMITS(T, low, high)                      \
    __device__ inline T lowest(T) { return low; } \
    __device__ inline T highest(T) { return high; }
// Every float dtype is summed in f64, as on the host: 740 additions a thread are too many for f32
// to keep 24 bits.
LIMITS(double, -(double)INFINITY, (double)INFINITY)
LIMITS(int64_t, INT64_MIN, INT64_MAX)

__device__ inline int64_t larger(int64_t a, int64_t b) { return fy__maximum_i64(a, b); }
__device__ inline double smaller(double a, double b) { return fy__minimum_f64(a, b); }
__device__ inline int64_t smaller(int64_t a, int64_t b) { return fy__minimum_i64(a, b); }

__device__ inline double product(double a, double b) { return a * b; }
__device__ inline int64_t product(int64_t a, int64_t b) { return fy__mul_i64(a, b); }

template <typename T> __device__ inline T combine(uint32_t op, T a, T b)
{
    switch (op) {
    case FY_OP_MAX:
    case FY_OP_ANY: return larger(a, b); // of 0 and 1
    case FY_OP_MIN:
    case FY_OP_ALL: return smaller(a, b);
    case FY_OP_PROD: return product(a, b);
    default: return (T)(a + b);
    }
}

// What an op of no elements gives.
template <typename T> __device__ inline T start_of(uint32_t op)
{
    switch (op) {
    case FY_OP_MAX: return lowest(T());
    case FY_OP_MIN: return highest(T());
    case FY_OP_ALL:
    case FY_OP_PROD: return (T)1;
    default: return (T)0;
    }
}

template <int W, typename T> __device__ inline void reduce(const fy_args &args, T *scratch)
{
    const fy_operand &s = args.src[0], &t = args.src[args.nsrc - 1];
    const uint32_t op = args.op;
    const int kept = kept_axes(args);
    const uint64_t n = reduced_nelem(s, kept);
    const bool squares = op == FY_OP_MSE_LOSS, divides = squares || op == FY_OP_MEAN;
    const uint64_t count = args.count != FY__CUDA_NO_COUNT ? args.count : n;
    for (uint64_t group = first_group(args); group < args.nelem; group += all_groups(args)) {
        int64_t base_s = 0, base_t = 0;
        locate2(s, t, 0, kept, group, args.flags, base_s, base_t);
        T sum = start_of<T>(op);
        for (uint64_t k = lane_of(args); k < n / W;
             k += args.lanes) { // W divides the last axis, and so n
            int64_t at[2] = { base_s, base_t };
            uint64_t rest = k;
            T x[W], y[W];
            for (int axis = s.rank - 1; axis >= kept; axis--) {
                const int64_t scale = axis == s.rank - 1 ? W : 1;
                const int64_t i =
                    scale *
                    (int64_t)(axis > kept ? split(rest, s.dims[axis] / scale, args.flags) : rest);
                at[0] += i * s.strides[axis];
                at[1] += i * t.strides[axis];
            }
            load_row<W>(args, s, at[0], x);
            if (squares) load_row<W>(args, t, at[1], y);
            for (int i = 0; i < W; i++) {
                if (squares) x[i] -= y[i];
                if (squares || op == FY_OP_NORM) x[i] *= x[i];
                if (op == FY_OP_ANY || op == FY_OP_ALL) x[i] = (T)(x[i] != (T)0);
                sum = combine(op, sum, x[i]);
            }
        }
        sum = group_reduce(args, sum, scratch, [op](T a, T b) { return combine(op, a, b); });
        if (lane_of(args) == 0) {
            if (divides) sum = sum / (T)count;
            if (op == FY_OP_NORM)
                sum = (T)sqrt((double)sum); // of norms of parts, it is the norm of all
            put(args, locate(args.dst[0], 0, kept, group, args.flags), sum);
        }
    }
}

// Sums and means along one axis, 16 bytes an access and four accesses in flight; in the order of
// reduce().
template <int D, typename T> __device__ inline void add_rows(const fy_args &args, T *scratch)
{
    using R = reads<D, 16 / sizeof(typename stored<D>::type)>;
    const fy_operand &s = args.src[0];
    const int kept = s.rank - 1;
    const int64_t length = s.dims[kept];
    const uint64_t count = args.count != FY__CUDA_NO_COUNT ? args.count : (uint64_t)length;
    for (uint64_t group = first_group(args); group < args.nelem; group += all_groups(args)) {
        const int64_t base = locate(s, 0, kept, group, args.flags);
        T sum = 0;
        walk_row<R, 4, T>(args, s, base, 1, lane_of(args) * R::n, args.lanes * R::n, length,
                          [&](int64_t, T(&x)[R::n]) {
                              for (int i = 0; i < R::n; i++) sum += x[i];
                          });
        sum = group_reduce(args, sum, scratch, [](T a, T b) { return (T)(a + b); });
        if (lane_of(args) != 0) continue;
        if (args.op == FY_OP_MEAN) sum = sum / (T)count;
        put(args, locate(args.dst[0], 0, kept, group, args.flags), sum);
    }
}

__device__ inline bool adds_rows(const fy_args &args)
{
    return (args.flags & FY__CUDA_ALIGNED) != 0 &&
           (args.op == FY_OP_SUM || args.op == FY_OP_MEAN) &&
           args.attrs.reduce.axes >> (args.src[0].rank - 1) == 1 &&
           (args.attrs.reduce.axes & (args.attrs.reduce.axes - 1)) == 0;
}

FY_KERNEL fy_reduce_float(FY_ARGS args)
{
    __shared__ double scratch[FY__CUDA_BLOCK / 32];
    if (adds_rows(args)) {
        switch (args.src[0].dtype) {
        case FY_DTYPE_F64: add_rows<FY_DTYPE_F64>(args, scratch); break;
        case FY_DTYPE_F16: add_rows<FY_DTYPE_F16>(args, scratch); break;
        case FY_DTYPE_BF16: add_rows<FY_DTYPE_BF16>(args, scratch); break;
        default: add_rows<FY_DTYPE_F32>(args, scratch); break;
        }
        return;
    }
    switch (args.wide) {
    case 2: reduce<2>(args, scratch); break;
    case 4: reduce<4>(args, scratch); break;
    case 8: reduce<8>(args, scratch); break;
    default: reduce<1>(args, scratch); break;
    }
}
FY_KERNEL fy_reduce_int(FY_ARGS args)
{
    __shared__ int64_t scratch[FY__CUDA_BLOCK / 32];
    switch (args.wide) {
    case 2: reduce<2>(args, scratch); break;
    case 4: reduce<4>(args, scratch); break;
    case 16: reduce<16>(args, scratch); break;
    default: reduce<1>(args, scratch); break;
    }
}

#define FY_MODULE_reduce ,
FY__CUDA_KERNEL_LIST(FY_KERNEL_EXISTS)
