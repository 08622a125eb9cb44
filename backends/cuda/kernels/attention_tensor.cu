// Attention of f16 and bf16 on tensor cores, as FlashAttention-2 (arXiv 2307.08691): a warp has 16
// rows of queries in registers; a block of four goes through tiles of keys and values in shared
// memory, with the running maximum and sum of each row's softmax. The next tile is copied while
// this one is multiplied. Scores and sums are f32. Tiles above the diagonal are left out; no
// atomics. Next: attention_tiles.cuh, attention.cu for the rest.
#include "backends/cuda/kernels/attention_tiles.cuh"

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
    const float base = most == -INFINITY ? 0.0f : most; // differences first: the largest gets 1
    const float less = fy__exp2_fast((*top - base) * scale);
    float sum = *total * less;
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int i = half; i < half + 2; i++) {
            scores[n][i] = fy__exp2_fast((scores[n][i] - base) * scale);
            sum += scores[n][i];
        }
#pragma unroll
    for (int d = 0; d < D / 8; d++)
#pragma unroll
        for (int i = half; i < half + 2; i++) sums[d][i] *= less;
    *top = most;
    *total = sum;
}

// One tile of a block: QUERIES rows of one head.
template <bool BF16, int D>
__device__ inline void attend(const fy_args &args, const head &h, int first_row, uint32_t tiles)
{
    using t = tiling<D>;
    constexpr int N = t::ROWS / 8;
    const fy_operand &q = args.src[0], &k = args.src[1], &v = args.src[2], &lse = args.dst[1];
    const int rows = (int)q.dims[1], nkeys = (int)k.dims[1], lane = (int)threadIdx.x % 32,
              row0 = first_row + (int)threadIdx.x / 32 * 16;
    const bool causal = args.attrs.attention.is_causal != 0;
    const int end = causal ? min(first_row + QUERIES, nkeys) : nkeys;
    // with the sign in the queries, the largest product is the largest score
    const float signed_scale = scale_of<float>(args, q.dims[3]);
    const float scale = fmaxf(fabsf(signed_scale) * 1.44269504f, 1e-37f);
    float sums[D / 8][4] = {}, top[2] = { -INFINITY, -INFINITY }, total[2] = {};
    uint32_t queries[D / 16][4];
    load_rows<D>(q, h, row0, signed_scale < 0 ? 0x80008000u : 0, queries);
    __syncthreads(); // the tiles of the rows before have been read
    const auto fetch = [&](int key0, uint32_t keys) {
        copy_tile<D>(keys, k, h, key0);
        copy_tile<D>(keys + t::HALVES * 2, v, h, key0);
    };
    if (end > 0) fetch(0, tiles);
    uint32_t side = 0; // half of the shared memory
    for (int key0 = 0; key0 < end; key0 += t::ROWS, side ^= 1) {
        const uint32_t keys = tiles + side * t::HALVES * 4;
        wait_copies();
        __syncthreads(); // this tile is there, and the other one has been read
        if (key0 + t::ROWS < end) fetch(key0 + t::ROWS, tiles + (side ^ 1) * t::HALVES * 4);
        float scores[N][4] = {};
#pragma unroll
        for (int n = 0; n < N; n += 2)
            multiply_rows<BF16, D>(queries, keys + n * 16 * t::PITCH, scores[n], scores[n + 1]);
        if (args.nsrc > 3 || key0 + t::ROWS > nkeys || (causal && key0 + t::ROWS - 1 > row0))
            hide<false>(args, 3, h, row0, key0, rows, nkeys, scores);
#pragma unroll
        for (int half = 0; half < 2; half++)
            soften<D>(scale, half * 2, scores, sums, &top[half], &total[half]);
#pragma unroll
        for (int n = 0; n < N; n += 2)
            add_rows<BF16, D>(scores[n], scores[n + 1], keys + t::HALVES * 2 + n * 16 * t::PITCH,
                              sums);
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
template <bool BF16, int D> __device__ inline void attention_tensor(const fy_args &args)
{
    alignas(32) __shared__ uint16_t tiles[4 * tiling<D>::HALVES];
    const fy_operand &q = args.src[0];
    const int64_t ntiles = (q.dims[1] + QUERIES - 1) / QUERIES;
    for (uint64_t item = blockIdx.x; item < args.count; item += gridDim.x) {
        const head h = head_of(item, q.dims[2], ntiles);
        attend<BF16, D>(args, h, (int)(ntiles - 1 - h.row) * QUERIES,
                        (uint32_t)__cvta_generic_to_shared(tiles));
    }
}

ATTENTION_KERNELS(fy_attention_tensor, attention_tensor)

#define FY_MODULE_attention_tensor ,
FY__CUDA_KERNEL_LIST(FY_KERNEL_EXISTS)
