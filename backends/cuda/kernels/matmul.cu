// Matrix product, and linear, for what cuBLASLt does not take: layouts without a unit stride. Tiles
// of both operands in shared memory, 4 x 4
// results a thread in registers, for any strides, any batch axes and every float dtype. The host
// has folded transposes and broadcasting
// into strides. And what follows a product of cuBLASLt's that linear left in scratch.
#include "backends/cuda/kernels/wide.cuh"

#include "opset/formulas/activation.h"

#define FY_UNROLLED     _Pragma("unroll")
#define FY_NOT_UNROLLED _Pragma("unroll 1")

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

enum {
    SIDE = FY__CUDA_MATMUL_TILE,
    DEPTH = 16,
    EACH = SIDE / FY__CUDA_TILE
}; // a block has SIDE x SIDE results, a thread EACH x EACH

template <typename T> struct tiles_t {
    T a[DEPTH][SIDE + 1], b[DEPTH][SIDE + 1];
};

// One operand's part of a step: `lines` of them (rows of a, columns of b) by DEPTH of the sum.
// Neighbouring threads read neighbours in memory.
template <typename T>
__device__ inline void fill(const fy_operand &o, int64_t base, int64_t line, int64_t lines,
                            int64_t line_stride, int64_t begin, int64_t k, int64_t k_stride,
                            T (*tile)[SIDE + 1])
{
    const int thread = threadIdx.y * FY__CUDA_TILE + threadIdx.x;
    const bool along_k = k_stride == 1;
    for (int e = thread; e < SIDE * DEPTH; e += FY__CUDA_BLOCK) {
        const int at_line = along_k ? e / DEPTH : e % SIDE, at_k = along_k ? e % DEPTH : e / SIDE;
        const bool inside = line + at_line < lines && begin + at_k < k;
        tile[at_k][at_line] =
            inside ? load<T>(o, base + (line + at_line) * line_stride + (begin + at_k) * k_stride)
                   : (T)0;
    }
}

template <typename T> __device__ inline T finished(const fy_args &args, int64_t col, T sum)
{
    if (args.op != FY_OP_LINEAR) return sum;
    if (args.nsrc == 3) sum += load<T>(args.src[2], col * args.src[2].strides[0]);
    return activate(args.attrs.linear.activation, sum);
}

template <typename T> __device__ inline void matmul(const fy_args &args, tiles_t<T> &tiles)
{
    const fy_operand &d = args.dst[0], &a = args.src[0], &b = args.src[1];
    const int r = d.rank - 2, c = d.rank - 1, x = threadIdx.x, y = threadIdx.y;
    const int64_t m = d.dims[r], n = d.dims[c], k = a.dims[c];
    const uint64_t tiles_m = (m + SIDE - 1) / SIDE, tiles_n = (n + SIDE - 1) / SIDE;
    const uint64_t ntiles = args.nelem / (uint64_t)(m * n) * tiles_m * tiles_n;
    for (uint64_t tile = blockIdx.x; tile < ntiles; tile += gridDim.x) {
        uint64_t batch = tile / (tiles_m * tiles_n), within = tile % (tiles_m * tiles_n);
        const int64_t row = (int64_t)(within / tiles_n) * SIDE,
                      col = (int64_t)(within % tiles_n) * SIDE;
        int64_t base_a = 0, base_b = 0, base_d = 0;
        for (int axis = r - 1; axis >= 0; axis--) {
            int64_t i = (int64_t)split(batch, d.dims[axis], args.flags);
            base_a += i * a.strides[axis];
            base_b += i * b.strides[axis];
            base_d += i * d.strides[axis];
        }
        T sum[EACH][EACH] = {};
        for (int64_t begin = 0; begin < k; begin += DEPTH) {
            fill(a, base_a, row, m, a.strides[r], begin, k, a.strides[c], tiles.a);
            fill(b, base_b, col, n, b.strides[c], begin, k, b.strides[r], tiles.b);
            __syncthreads();
            for (int s = 0; s < DEPTH; s++) {
                T left[EACH], right[EACH];
                for (int i = 0; i < EACH; i++) left[i] = tiles.a[s][y + i * FY__CUDA_TILE];
                for (int j = 0; j < EACH; j++) right[j] = tiles.b[s][x + j * FY__CUDA_TILE];
                for (int i = 0; i < EACH; i++)
                    for (int j = 0; j < EACH; j++) sum[i][j] += left[i] * right[j];
            }
            __syncthreads();
        }
        FY_NOT_UNROLLED
        for (int e = 0; e < EACH * EACH;
             e++) { // once in the code, not sixteen times; and `sum` stays in registers
            const int64_t at_row = row + y + e / EACH * FY__CUDA_TILE,
                          at_col = col + x + e % EACH * FY__CUDA_TILE;
            if (at_row >= m || at_col >= n) continue;
            T mine = 0;
            FY_UNROLLED
            for (int q = 0; q < EACH * EACH; q++) mine = q == e ? sum[q / EACH][q % EACH] : mine;
            put(args, base_d + at_row * d.strides[r] + at_col * d.strides[c],
                finished(args, at_col, mine));
        }
    }
}

FY_SHARED_KERNEL(fy_matmul_f32, tiles_t<float>, matmul)
FY_SHARED_KERNEL(fy_matmul_f64, tiles_t<double>, matmul)

// ---- linear's bias and activation, rounded once: dst = activation(src[0] + src[1]), src[0] the
// wide sums, src[1] a bias for each column ----

template <typename T, int W> __device__ inline void finish_linear(const fy_args &args)
{
    const fy_operand &d = args.dst[0], &sums = args.src[0],
                     &bias = args.src[1]; // without one, src[1] is not read
    const fy_operand *const operands[3] = { &d, &sums, &bias };
    const uint64_t groups = W > 1 ? args.nelem / W : args.nelem;
    const bool adds = args.nsrc == 2;
    for (uint64_t group = first_thread(); group < groups; group += all_threads()) {
        int64_t at[3];
        T x[W], b[W];
        locate_group<W>(args, d, operands, group, at);
        load_group<W>(sums, at[1], x);
        for (int i = 0; i < W; i++) b[i] = (T)0;
        if (adds) load_group<W>(bias, at[2], b);
        for (int i = 0; i < W; i++) x[i] = activate(args.attrs.linear.activation, x[i] + b[i]);
        put_group<W>(args, at[0], x);
    }
}

// The host asks for groups only where the columns are a multiple of them, so there is no tail.
FY_KERNEL fy_linear_finish_f32(FY_ARGS args)
{
    by_width(0.0f, args, [&](auto w) { finish_linear<float, decltype(w)::n>(args); });
}
FY_KERNEL fy_linear_finish_f64(FY_ARGS args)
{
    by_width(0.0, args, [&](auto w) { finish_linear<double, decltype(w)::n>(args); });
}

#define FY_MODULE_matmul ,
FY__CUDA_KERNEL_LIST(FY_KERNEL_EXISTS)
