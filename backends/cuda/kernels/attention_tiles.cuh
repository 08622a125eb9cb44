// Attention of f16 and bf16 on tensor cores: tiles of heads in shared memory, fragments of their
// rows, products of both, masks. A number in f32 is multiplied as the sum of two numbers of the
// dtype: one would be less exact than the op's error model allows. pack_attention.c says what
// these kernels take. Next: attention_tensor.cu, attention_gradient.cu, tensor.cuh.
#ifndef FERRY_BACKENDS_CUDA_KERNELS_ATTENTION_TILES_CUH_
#define FERRY_BACKENDS_CUDA_KERNELS_ATTENTION_TILES_CUH_

#include "backends/cuda/kernels/attention_heads.cuh"
#include "backends/cuda/kernels/tensor.cuh"

enum { THREADS = FY__CUDA_ATTENTION_BLOCK, QUERIES = THREADS / 32 * 16 };

// D: the width of a head, or more: missing columns are zeros. The eight rows of a matrix lie in
// different banks.
template <int D> struct tiling {
    static constexpr int PITCH = D + 8, ROWS = 4096 / D, HALVES = ROWS * PITCH;
};

// nbytes: 16; 0: zeros to shared memory. They are there after wait_copies and a barrier.
__device__ inline void copy_piece(uint32_t to, const uint16_t *from, int nbytes)
{
#if defined __CUDA_ARCH__ && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(nbytes)
                 : "memory");
#else
    const uint4 piece = nbytes > 0 ? *(const uint4 *)from : uint4();
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(piece.x), "r"(piece.y),
                 "r"(piece.z), "r"(piece.w)
                 : "memory");
#endif
}
__device__ inline void wait_copies()
{
#if defined __CUDA_ARCH__ && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

// Rows of the head from row0 on.
template <int D>
__device__ inline void copy_tile(uint32_t tile, const fy_operand &o, const head &h, int row0)
{
    using t = tiling<D>;
    constexpr int PIECES = D / 8, STEP = THREADS / PIECES;
    const int row = (int)threadIdx.x / PIECES, column = (int)threadIdx.x % PIECES * 8;
    const int left = column < o.dims[3] ? (int)o.dims[1] - row0 - row : 0;
    const uint16_t *from = element<uint16_t>(o, row_at(o, h, row0 + row) + column);
    const uint32_t to = tile + (uint32_t)(row * t::PITCH + column) * 2;
    const int64_t step = STEP * o.strides[1];
#pragma unroll
    for (int i = 0; i < t::ROWS / STEP; i++)
        copy_piece(to + (uint32_t)(i * STEP * t::PITCH * 2), from + i * step,
                   i * STEP < left ? 16 : 0);
}

// The fragments of 16 rows from row0 on; `flip`: bits that are inverted.
template <int D>
__device__ inline void load_rows(const fy_operand &o, const head &h, int row0, uint32_t flip,
                                 uint32_t (&out)[D / 16][4])
{
    const int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int k = 0; k < D / 16; k++)
#pragma unroll
        for (int part = 0; part < 4; part++) {
            const int r = row0 + lane / 4 + part % 2 * 8, c = k * 16 + lane % 4 * 2 + part / 2 * 8;
            const bool exists = r < o.dims[1] && c < o.dims[3];
            out[k][part] =
                exists ? *(const uint32_t *)element<uint16_t>(o, row_at(o, h, r) + c) ^ flip : 0;
        }
}

template <bool BF16> __device__ inline uint32_t pair_of(float low, float high)
{
#if defined __CUDA_ARCH__ && __CUDA_ARCH__ >= 800
    uint32_t pair;
    if (BF16)
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    else
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
#else
    return BF16 ? (uint32_t)narrow_bf16(low) | (uint32_t)narrow_bf16(high) << 16
                : (uint32_t)narrow_f16(low) | (uint32_t)narrow_f16(high) << 16;
#endif
}

template <bool BF16> __device__ inline float low_of(uint32_t pair)
{
    return BF16 ? __uint_as_float(pair << 16) : widen_f16((uint16_t)pair);
}
template <bool BF16> __device__ inline float high_of(uint32_t pair)
{
    return BF16 ? __uint_as_float(pair & 0xffff0000u) : widen_f16((uint16_t)(pair >> 16));
}

// The sums of 16 rows in fragments with 16 rows of a tile, 8 and 8, += their products along D.
template <bool BF16, int D>
__device__ inline void multiply_rows(const uint32_t (&a)[D / 16][4], uint32_t tile,
                                     float (&first)[4], float (&second)[4])
{
    const uint32_t matrix = threadIdx.x % 32 / 8, line = threadIdx.x % 8;
    tile += ((matrix / 2 * 8 + line) * tiling<D>::PITCH + matrix % 2 * 8) * 2;
    uint32_t b[4];
#pragma unroll
    for (int d = 0; d < D / 16; d++) {
        load_matrices<false>(tile + d * 32, b);
        multiply_fragments<BF16>(first, a[d], b[0], b[1]);
        multiply_fragments<BF16>(second, a[d], b[2], b[3]);
    }
}

// sums += x times 16 rows of a tile. The numbers rounded, and the differences to them, rounded, are
// together as exact as the sums.
template <bool BF16, int D>
__device__ inline void add_rows(const float (&first)[4], const float (&second)[4], uint32_t tile,
                                float (&sums)[D / 8][4])
{
    const uint32_t matrix = threadIdx.x % 32 / 8, line = threadIdx.x % 8;
    tile += ((matrix % 2 * 8 + line) * tiling<D>::PITCH + matrix / 2 * 8) * 2;
    uint32_t rounded[4], rest[4], b[4];
#pragma unroll
    for (int part = 0; part < 4; part++) {
        const float low = (part < 2 ? first : second)[part % 2 * 2],
                    high = (part < 2 ? first : second)[part % 2 * 2 + 1];
        rounded[part] = pair_of<BF16>(low, high);
        rest[part] =
            pair_of<BF16>(low - low_of<BF16>(rounded[part]), high - high_of<BF16>(rounded[part]));
    }
#pragma unroll
    for (int d = 0; d < D / 8; d += 2) {
        load_matrices<true>(tile + d * 16, b);
        multiply_fragments<BF16>(sums[d], rounded, b[0], b[1]);
        multiply_fragments<BF16>(sums[d + 1], rounded, b[2], b[3]);
        multiply_fragments<BF16>(sums[d], rest, b[0], b[1]);
        multiply_fragments<BF16>(sums[d + 1], rest, b[2], b[3]);
    }
}

// Of the four lanes that have a row.
template <typename Combine> __device__ inline float row_combine(float x, Combine combine)
{
    x = combine(x, __shfl_xor_sync(0xffffffffu, x, 1));
    return combine(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

// Scores that a row may not have become -infinity. KEYS: lines are keys. The mask is source `mask`.
template <bool KEYS, int N>
__device__ inline void hide(const fy_args &args, uint32_t mask, const head &h, int row0, int key0,
                            int rows, int keys, float (&scores)[N][4])
{
    const int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int n = 0; n < N; n++)
        for (int i = 0; i < 4; i++) {
            const int line = lane / 4 + i / 2 * 8, column = n * 8 + lane % 4 * 2 + i % 2,
                      row = row0 + (KEYS ? column : line), key = key0 + (KEYS ? line : column);
            if (row >= rows || key >= keys || !may(args, mask, h, row, key))
                scores[n][i] = -INFINITY;
        }
}

template <bool BF16, int D>
__device__ inline void write_rows(const fy_operand &o, const head &h, int row0,
                                  const float (&factor)[2], const float (&sums)[D / 8][4])
{
    const int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int row = row0 + lane / 4 + half * 8;
#pragma unroll
        for (int d = 0; d < D / 8; d++) {
            const int column = d * 8 + lane % 4 * 2;
            if (row < o.dims[1] && column < o.dims[3])
                *(uint32_t *)element<uint16_t>(o, row_at(o, h, row) + column) = pair_of<BF16>(
                    sums[d][half * 2] * factor[half], sums[d][half * 2 + 1] * factor[half]);
        }
    }
}

// Without the 2, ptxas spills some registers that it need not.
#define ATTENTION_KERNEL(name, BODY, BF16, D)                                                    \
    extern "C" __global__ void __launch_bounds__(FY__CUDA_ATTENTION_BLOCK, 2) name(FY_ARGS args) \
    {                                                                                            \
        BODY<BF16, D>(args);                                                                     \
    }
#define ATTENTION_KERNELS(name, BODY)                 \
    ATTENTION_KERNEL(name##64_f16, BODY, false, 64)   \
    ATTENTION_KERNEL(name##64_bf16, BODY, true, 64)   \
    ATTENTION_KERNEL(name##128_f16, BODY, false, 128) \
    ATTENTION_KERNEL(name##128_bf16, BODY, true, 128)

#endif
