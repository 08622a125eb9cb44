// index_add and the gradient of gather: dst[indices[i], :] += alpha * src[i, :]. A block has the
// rows whose number is its own modulo the number of blocks. It reads all indices, as many at a time
// as it has threads, and adds the rows of src that are its own; a thread has every 256th column. So
// each element of dst has one writer, which adds in the order of the indices. Without `accumulate`
// the rows are zeroed first.
#include "backends/cuda/kernels/common.cuh"

template <typename T>
__device__ inline void add_rows(const fy_args &args, uint64_t mine, int64_t *chunk)
{
    const fy_operand &d = args.dst[0], &s = args.src[0], &indices = args.src[1];
    const T alpha = (T)args.attrs.axpy.alpha;
    const int64_t rows = d.dims[0], width = rows > 0 ? (int64_t)args.nelem / rows : 0;
    uint64_t n = 1;
    for (int axis = 0; axis < indices.rank; axis++) n *= (uint64_t)indices.dims[axis];
    if (!args.accumulate)
        for (int64_t row = (int64_t)mine; row < rows; row += (int64_t)args.count)
            for (int64_t j = threadIdx.x; j < width; j += blockDim.x)
                store(d, row * d.strides[0] + locate(d, 1, d.rank, (uint64_t)j, args.flags), (T)0);
    for (uint64_t first = 0; first < n; first += blockDim.x) {
        __syncthreads(); // the indices before have been read
        if (first + threadIdx.x < n) {
            const int64_t row = load<int64_t>(
                indices, locate(indices, 0, indices.rank, first + threadIdx.x, args.flags));
            const bool is_good = row >= 0 && row < rows;
            if (!is_good && args.fault) *(volatile uint32_t *)(uintptr_t)args.fault = 1;
            chunk[threadIdx.x] = is_good && (uint64_t)row % args.count == mine ? row : -1;
        }
        __syncthreads();
        const uint64_t left = n - first, m = left < blockDim.x ? left : blockDim.x;
        for (uint64_t k = 0; k < m; k++) {
            const int64_t row = chunk[k];
            if (row < 0) continue;
            const int64_t base_d = row * d.strides[0],
                          base_s = locate(s, 0, indices.rank, first + k, args.flags);
            for (int64_t j = threadIdx.x; j < width; j += blockDim.x) {
                const int64_t at_d = base_d + locate(d, 1, d.rank, (uint64_t)j, args.flags),
                              at_s = base_s +
                                     locate(s, indices.rank, s.rank, (uint64_t)j, args.flags);
                store(d, at_d, load<T>(d, at_d) + alpha * load<T>(s, at_s));
            }
        }
    }
}

template <typename T> __device__ inline void index_add(const fy_args &args, int64_t *chunk)
{
    for (uint64_t mine = blockIdx.x; mine < args.count; mine += gridDim.x)
        add_rows<T>(args, mine, chunk);
}

FY_SHARED_KERNEL(fy_index_add_f32, per_thread<int64_t>, index_add<float>)
FY_SHARED_KERNEL(fy_index_add_f64, per_thread<int64_t>, index_add<double>)

#define FY_MODULE_index_add ,
FY__CUDA_KERNEL_LIST(FY_KERNEL_EXISTS)
