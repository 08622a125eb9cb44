// cumsum: a group of threads has one row. It takes as many elements as it has threads at a time:
// each thread gets the sum of the elements up to its own (in log2 steps by shuffles, between warps
// through shared memory), and the total is carried to the next ones. Floats are summed in f64,
// integers in i64. The order of the additions depends only on the launch.
#include "backends/cuda/kernels/common.cuh"

// The sum of x over the lanes up to this one; `total`: over all lanes of the group.
template <typename T> __device__ inline T sum_up_to(const fy_args &args, T x, T *scratch, T &total)
{
    total = x;
    if (args.lanes == 1) return x;
    for (int step = 1; step < 32; step <<= 1) {
        const T other = __shfl_xor_sync(0xffffffffu, total, step);
        if (threadIdx.x & step) x += other;
        total += other;
    }
    if (args.lanes == 32) return x;
    __syncthreads(); // the scratch of the elements before has been read
    if ((threadIdx.x & 31) == 0) scratch[threadIdx.x >> 5] = total;
    __syncthreads();
    T before = 0;
    total = 0;
    for (uint32_t warp = 0; warp < blockDim.x / 32; warp++) {
        if (warp == threadIdx.x >> 5) before = total;
        total += scratch[warp];
    }
    return before + x;
}

template <typename T> __device__ inline void cumsum(const fy_args &args, T *scratch)
{
    const fy_operand &s = args.src[0], &d = args.dst[0];
    const int axis = s.rank - 1; // the host moved it there
    const int64_t length = s.dims[axis];
    const bool reverse = args.attrs.cumsum.reverse != 0;
    for (uint64_t row = first_group(args); row < args.nelem; row += all_groups(args)) {
        int64_t base_s = 0, base_d = 0;
        T carry = 0;
        locate2(s, d, 0, axis, row, args.flags, base_s, base_d);
        for (int64_t first = 0; first < length; first += args.lanes) {
            const int64_t k = first + lane_of(args), at = reverse ? length - 1 - k : k;
            T total, x = k < length ? load<T>(s, base_s + at * s.strides[axis]) : (T)0;
            x = sum_up_to(args, x, scratch, total);
            if (k < length) store(d, base_d + at * d.strides[axis], (T)(carry + x));
            carry += total;
        }
    }
}

FY_SHARED_KERNEL(fy_cumsum_float, per_warp<double>, cumsum)
FY_SHARED_KERNEL(fy_cumsum_int, per_warp<int64_t>, cumsum)

#define FY_MODULE_cumsum ,
FY__CUDA_KERNEL_LIST(FY_KERNEL_EXISTS)
