// Attention of f16 and bf16 on tensor cores, as FlashAttention-2 (arXiv 2307.08691): a warp has 16
// rows of queries in registers; a block of four goes through tiles of keys and values in shared
// memory, with the running maximum and sum of each row's softmax. The next tile is copied while
// this one is multiplied. Scores and sums are f32. A probability is multiplied as the sum of two
// numbers of the dtype: one would be less exact than the op's error model allows. Tiles above the
// diagonal are left out; no atomics. pack_attention.c says what these kernels take.
// Next: attention.cu for the rest, tensor.cuh.
#include "backends/cuda/kernels/attention_heads.cuh"
#include "backends/cuda/kernels/tensor.cuh"

enum { THREADS = FY__CUDA_ATTENTION_BLOCK, QUERIES = THREADS / 32 * 16 };

// D: the width of a head, or more: missing columns are zeros. The eight rows of a matrix lie in
// different banks.
template <int D> struct tiling {
    static constexpr int PITCH = D + 8, ROWS = 4096 / D, HALVES = ROWS * PITCH;
};

// Rows of one head: element 0 of row r is at first[r * stride].
struct rows_t {
    const uint16_t *first;
    int64_t stride;
    int nrows, width;
};
__device__ inline rows_t rows_of(const fy_operand &o, const head &h)
{
    return { element<uint16_t>(o, row_at(o, h, 0)), o.strides[1], (int)o.dims[1], (int)o.dims[3] };
}

// 16 bytes to shared memory, or zeros. They are there after wait_copies and a barrier.
__device__ inline void copy_piece(uint32_t to, const uint16_t *from, bool exists)
{
#if defined __CUDA_ARCH__ && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"(to), "l"(from), "r"(exists ? 16 : 0)
                 : "memory");
#else
    uint4 piece = { 0, 0, 0, 0 };
    if (exists) piece = *(const uint4 *)from;
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};"
                 :
                 : "r"(to), "r"(piece.x), "r"(piece.y), "r"(piece.z), "r"(piece.w)
                 : "memory");
#endif
}
__device__ inline void wait_copies()
{
#if defined __CUDA_ARCH__ && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

template <int D> __device__ inline void copy_tile(uint32_t tile, const rows_t &m, int row0)
{
    using t = tiling<D>;
    constexpr int PIECES = D / 8, STEP = THREADS / PIECES;
    const int row = (int)threadIdx.x / PIECES, column = (int)threadIdx.x % PIECES * 8;
    const int left = column < m.width ? m.nrows - row0 - row : 0;
    const uint16_t *from = m.first + (row0 + row) * m.stride + column;
    const uint32_t to = tile + (uint32_t)(row * t::PITCH + column) * 2;
    const int64_t step = STEP * m.stride;
#pragma unroll
    for (int i = 0; i < t::ROWS / STEP; i++)
        copy_piece(to + (uint32_t)(i * STEP * t::PITCH * 2), from + i * step, i * STEP < left);
}

// The fragments of 16 rows from `row` on; `flip`: bits that are inverted.
template <int D>
__device__ inline void load_rows(const rows_t &m, int row, uint32_t flip,
                                 uint32_t (&out)[D / 16][4])
{
    const int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int k = 0; k < D / 16; k++)
#pragma unroll
        for (int part = 0; part < 4; part++) {
            const int r = row + lane / 4 + part % 2 * 8, c = k * 16 + lane % 4 * 2 + part / 2 * 8;
            const uint16_t *at = m.first + r * m.stride + c;
            __builtin_assume(__isGlobal(at));
            out[k][part] = r < m.nrows && c < m.width ? *(const uint32_t *)at ^ flip : 0;
        }
}

// 2^x with an error of two units in the last place.
__device__ inline float power_of_two(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
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

// The two numbers rounded, and the differences to them, rounded: together as exact as the sums.
template <bool BF16>
__device__ inline void split_pair(float low, float high, uint32_t &rounded, uint32_t &rest)
{
    rounded = pair_of<BF16>(low, high);
    if (BF16)
        rest = pair_of<BF16>(low - __uint_as_float(rounded << 16),
                             high - __uint_as_float(rounded & 0xffff0000u));
    else
        rest = pair_of<BF16>(low - widen_f16((uint16_t)rounded),
                             high - widen_f16((uint16_t)(rounded >> 16)));
}

// Of the four lanes that have a row.
template <typename Combine> __device__ inline float row_combine(float x, Combine combine)
{
    x = combine(x, __shfl_xor_sync(0xffffffffu, x, 1));
    return combine(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

// The mask of a head: of row r and key k at first[r * row + k * key].
struct mask_t {
    const uint8_t *first; // NULL: none
    int64_t row, key;
};
__device__ inline mask_t mask_of(const fy_args &args, const head &h)
{
    if (args.nsrc <= 3) return { nullptr, 0, 0 };
    const fy_operand &o = args.src[3];
    const auto stride = [&](int axis) {
        return axis < o.rank && o.dims[o.rank - 1 - axis] > 1 ? o.strides[o.rank - 1 - axis] : 0;
    };
    return { element<uint8_t>(o, h.batch * stride(3) + h.number * stride(2)), stride(1),
             stride(0) };
}

// Scores of keys that a row may not attend to become -infinity.
template <int N>
__device__ inline void hide(const mask_t &mask, bool causal, int row0, int key0, int rows, int keys,
                            float (&scores)[N][4])
{
    const int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int row = row0 + lane / 4 + i / 2 * 8, key = key0 + n * 8 + lane % 4 * 2 + i % 2;
            bool may = key < keys && row < rows && (!causal || key <= row);
            if (may && mask.first != nullptr) {
                const uint8_t *at = mask.first + row * mask.row + key * mask.key;
                __builtin_assume(__isGlobal(at));
                may = *at != 0;
            }
            if (!may) scores[n][i] = -INFINITY;
        }
}

// The next scores of a row: they become probabilities, relative to the largest score up to now.
// scale: of scores in base 2.
template <int D, int N>
__device__ inline void soften(float scale, int half, float (&scores)[N][4], float (&sums)[D / 8][4],
                              float *top, float *total)
{
    float most = *top;
#pragma unroll
    for (int n = 0; n < N; n++) most = fmaxf(most, fmaxf(scores[n][half], scores[n][half + 1]));
    most = row_combine(most, [](float a, float b) { return fmaxf(a, b); });
    const float base = most == -INFINITY ? 0.0f : most * scale;
    const float less = power_of_two(fmaf(*top, scale, -base));
    float sum = *total * less;
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int i = half; i < half + 2; i++) {
            scores[n][i] = power_of_two(fmaf(scores[n][i], scale, -base));
            sum += scores[n][i];
        }
#pragma unroll
    for (int d = 0; d < D / 8; d++)
#pragma unroll
        for (int i = half; i < half + 2; i++) sums[d][i] *= less;
    *top = most;
    *total = sum;
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

// One tile of a block: QUERIES rows of one head.
template <bool BF16, int D>
__device__ inline void attend(const fy_args &args, const head &h, int first_row, uint32_t tiles)
{
    using t = tiling<D>;
    constexpr int N = t::ROWS / 8;
    const fy_operand &q = args.src[0], &lse = args.dst[1];
    const rows_t k = rows_of(args.src[1], h), v = rows_of(args.src[2], h);
    const int rows = (int)q.dims[1], lane = (int)threadIdx.x % 32, matrix = lane / 8,
              line = lane % 8, row0 = first_row + (int)threadIdx.x / 32 * 16;
    const bool causal = args.attrs.attention.is_causal != 0;
    const mask_t mask = mask_of(args, h);
    const int end = causal && first_row + QUERIES < k.nrows ? first_row + QUERIES : k.nrows;
    // with the sign in the queries, the largest product is the largest score
    const float signed_scale = scale_of<float>(args, q.dims[3]);
    const float scale = fmaxf(fabsf(signed_scale) * 1.44269504f, 1e-37f);
    // where this lane's rows of the matrices are: along the sum over D, and across that over keys
    const uint32_t along = (uint32_t)((matrix / 2 * 8 + line) * t::PITCH + matrix % 2 * 8) * 2,
                   across = (uint32_t)((matrix % 2 * 8 + line) * t::PITCH + matrix / 2 * 8) * 2;
    float sums[D / 8][4] = {}, top[2] = { -INFINITY, -INFINITY }, total[2] = {};
    uint32_t queries[D / 16][4];
    load_rows<D>(rows_of(q, h), row0, signed_scale < 0 ? 0x80008000u : 0, queries);
    __syncthreads(); // the tiles of the rows before have been read
    uint32_t keys = tiles, other = tiles + 2 * t::HALVES * 2;
    if (end > 0) {
        copy_tile<D>(keys, k, 0);
        copy_tile<D>(keys + t::HALVES * 2, v, 0);
    }
    for (int key0 = 0; key0 < end; key0 += t::ROWS) {
        wait_copies();
        __syncthreads(); // this tile is there, and the other one has been read
        if (key0 + t::ROWS < end) {
            copy_tile<D>(other, k, key0 + t::ROWS);
            copy_tile<D>(other + t::HALVES * 2, v, key0 + t::ROWS);
        }
        float scores[N][4] = {};
        uint32_t b[4];
#pragma unroll
        for (int n = 0; n < N; n += 2)
#pragma unroll
            for (int d = 0; d < D / 16; d++) {
                load_matrices<false>(keys + along + (uint32_t)(n * 8 * t::PITCH + d * 16) * 2, b);
                multiply_fragments<BF16>(scores[n], queries[d], b[0], b[1]);
                multiply_fragments<BF16>(scores[n + 1], queries[d], b[2], b[3]);
            }
        if (mask.first != nullptr || key0 + t::ROWS > k.nrows ||
            (causal && key0 + t::ROWS - 1 > row0))
            hide(mask, causal, row0, key0, rows, k.nrows, scores);
#pragma unroll
        for (int half = 0; half < 2; half++)
            soften<D>(scale, half * 2, scores, sums, &top[half], &total[half]);
#pragma unroll
        for (int n = 0; n < N; n += 2) {
            uint32_t p[4], rest[4];
#pragma unroll
            for (int part = 0; part < 4; part++)
                split_pair<BF16>(scores[n + part / 2][part % 2 * 2],
                                 scores[n + part / 2][part % 2 * 2 + 1], p[part], rest[part]);
#pragma unroll
            for (int d = 0; d < D / 8; d += 2) {
                load_matrices<true>(
                    keys + t::HALVES * 2 + across + (uint32_t)(n * 8 * t::PITCH + d * 8) * 2, b);
                multiply_fragments<BF16>(sums[d], p, b[0], b[1]);
                multiply_fragments<BF16>(sums[d + 1], p, b[2], b[3]);
                multiply_fragments<BF16>(sums[d], rest, b[0], b[1]);
                multiply_fragments<BF16>(sums[d + 1], rest, b[2], b[3]);
            }
        }
        const uint32_t read = keys;
        keys = other;
        other = read;
    }
    float factor[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int row = row0 + lane / 4 + half * 8;
        const float sum = row_combine(total[half], [](float x, float y) { return x + y; });
        factor[half] = sum == 0 ? 0.0f : 1 / sum;
        if (lane % 4 == 0 && row < rows)
            *element<float>(lse, sum_at(lse, h, row)) =
                sum == 0 ? -INFINITY : top[half] * fabsf(signed_scale) + fy__log_f32(sum);
    }
    write_rows<BF16, D>(args.dst[0], h, row0, factor, sums);
}

// The longest rows of a causal head come first.
template <bool BF16, int D>
__device__ inline void attention_tensor(const fy_args &args, const uint16_t *tiles)
{
    using t = tiling<D>;
    const fy_operand &q = args.src[0];
    const int64_t ntiles = (q.dims[1] + QUERIES - 1) / QUERIES;
    for (uint64_t item = blockIdx.x; item < args.count; item += gridDim.x) {
        const head h = head_of(item, q.dims[2], ntiles);
        attend<BF16, D>(args, h, (int)(ntiles - 1 - h.row) * QUERIES,
                        (uint32_t)__cvta_generic_to_shared(tiles));
    }
}

#define ATTENTION_KERNEL(name, BF16, D, IS_BUILT)                                             \
    extern "C" __global__ void __launch_bounds__(FY__CUDA_ATTENTION_BLOCK) name(FY_ARGS args) \
    {                                                                                         \
        if constexpr (IS_BUILT) {                                                             \
            alignas(32) __shared__ uint16_t tiles[4 * tiling<D>::HALVES];                     \
            attention_tensor<BF16, D>(args, tiles);                                           \
        }                                                                                     \
    }
#if defined __CUDA_ARCH__ && __CUDA_ARCH__ < 800
constexpr bool HAS_BF16 = false;
#else
constexpr bool HAS_BF16 = true;
#endif
ATTENTION_KERNEL(fy_attention_tensor64_f16, false, 64, true)
ATTENTION_KERNEL(fy_attention_tensor64_bf16, true, 64, HAS_BF16)
ATTENTION_KERNEL(fy_attention_tensor128_f16, false, 128, true)
ATTENTION_KERNEL(fy_attention_tensor128_bf16, true, 128, HAS_BF16)

#define FY_MODULE_attention_tensor ,
FY__CUDA_KERNEL_LIST(FY_KERNEL_EXISTS)
