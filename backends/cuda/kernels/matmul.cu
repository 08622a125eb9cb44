// Matrix product, and linear, for what cuBLASLt does not take: layouts without a unit stride. A plain shared-memory tiling, for any strides, any
// batch axes and every float dtype; correct first, fast never. The host has folded transposes and broadcasting into strides.
#include "backends/cuda/kernels/common.cuh"

#include "backends/formulas/activation.h"

#define ACTIVATE(sfx, T)                                         \
    __device__ inline T activate(int32_t activation, T x)        \
    {                                                            \
        switch (activation) {                                    \
        case FY_ACTIVATION_RELU: return fy__relu_##sfx(x);       \
        case FY_ACTIVATION_TANH: return fy__tanh_##sfx(x);       \
        case FY_ACTIVATION_SIGMOID: return fy__sigmoid_##sfx(x); \
        case FY_ACTIVATION_GELU: return fy__gelu_##sfx(x);       \
        default: return x;                                       \
        }                                                        \
    }
ACTIVATE(f32, float)
ACTIVATE(f64, double)

template <typename T> __device__ inline void matmul(const fy_args &args, T (*tile_a)[FY__CUDA_TILE + 1], T (*tile_b)[FY__CUDA_TILE + 1])
{
    const fy_operand &d = args.dst[0], &a = args.src[0], &b = args.src[1];
    const int r = d.rank - 2, c = d.rank - 1, x = threadIdx.x, y = threadIdx.y;
    const int64_t m = d.dims[r], n = d.dims[c], k = a.dims[c];
    const uint64_t tiles_m = (m + FY__CUDA_TILE - 1) / FY__CUDA_TILE, tiles_n = (n + FY__CUDA_TILE - 1) / FY__CUDA_TILE;
    const uint64_t tiles = args.nelem / (uint64_t)(m * n) * tiles_m * tiles_n;
    for (uint64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        uint64_t batch = tile / (tiles_m * tiles_n), within = tile % (tiles_m * tiles_n);
        const int64_t row = (int64_t)(within / tiles_n) * FY__CUDA_TILE + y, col = (int64_t)(within % tiles_n) * FY__CUDA_TILE + x;
        int64_t base_a = 0, base_b = 0, base_d = 0;
        for (int axis = r - 1; axis >= 0; axis--) {
            int64_t i = (int64_t)split(batch, d.dims[axis], args.flags);
            base_a += i * a.strides[axis];
            base_b += i * b.strides[axis];
            base_d += i * d.strides[axis];
        }
        T sum = 0;
        for (int64_t begin = 0; begin < k; begin += FY__CUDA_TILE) {
            const bool in_a = row < m && begin + x < k, in_b = begin + y < k && col < n;
            tile_a[y][x] = in_a ? load<T>(a, base_a + row * a.strides[r] + (begin + x) * a.strides[c]) : (T)0;
            tile_b[y][x] = in_b ? load<T>(b, base_b + (begin + y) * b.strides[r] + col * b.strides[c]) : (T)0;
            __syncthreads();
            for (int i = 0; i < FY__CUDA_TILE; i++) sum += tile_a[y][i] * tile_b[i][x];
            __syncthreads();
        }
        if (args.op == FY_OP_LINEAR && col < n) {
            if (args.nsrc == 3) sum += load<T>(args.src[2], col * args.src[2].strides[0]);
            sum = activate(args.attrs.linear.activation, sum);
        }
        if (row < m && col < n) put(args, base_d + row * d.strides[r] + col * d.strides[c], sum);
    }
}

FY_KERNEL fy_matmul_f32(FY_ARGS args)
{
    __shared__ float tile_a[FY__CUDA_TILE][FY__CUDA_TILE + 1], tile_b[FY__CUDA_TILE][FY__CUDA_TILE + 1];
    matmul<float>(args, tile_a, tile_b);
}
FY_KERNEL fy_matmul_f64(FY_ARGS args)
{
    __shared__ double tile_a[FY__CUDA_TILE][FY__CUDA_TILE + 1], tile_b[FY__CUDA_TILE][FY__CUDA_TILE + 1];
    matmul<double>(args, tile_a, tile_b);
}

FY_KERNEL_EXISTS(fy_matmul_f32)
FY_KERNEL_EXISTS(fy_matmul_f64)
