// The gradient of attention of f16 and bf16 on tensor cores, as FlashAttention-2. A block has 64
// rows of queries, for dq, or 64 keys, for dk and dv; a warp has 16 of them in registers and goes
// through the others by tiles in shared memory. Probabilities are computed again from the
// log-sum-exp. Tiles above the diagonal are left out; every sum has one order, no atomics.
// Next: attention_tiles.cuh, attention.cu for the rest.
#include "backends/cuda/kernels/attention_tiles.cuh"

template <bool BF16> __device__ inline float dot(uint32_t a, uint32_t b)
{
    return low_of<BF16>(a) * low_of<BF16>(b) + high_of<BF16>(a) * high_of<BF16>(b);
}

// Of each of N rows: the log-sum-exp, infinity where there is no key; the product of its gradient
// and its result, which all its scores' gradients need.
template <bool BF16, int N>
__device__ inline void put_stats(const fy_args &args, const head &h, int row0, float *stats)
{
    constexpr int LANES = THREADS / N;
    const int part = (int)threadIdx.x % LANES, row = row0 + (int)threadIdx.x / LANES;
    const fy_operand &dy = args.src[0], &y = args.src[4], &lse = args.src[5];
    float sum = 0, top = -INFINITY;
    if (row < y.dims[1]) {
        const uint4 *a = (const uint4 *)element<uint16_t>(dy, row_at(dy, h, row)),
                    *b = (const uint4 *)element<uint16_t>(y, row_at(y, h, row));
        for (int i = part; i < (int)y.dims[3] / 8; i += LANES) {
            const uint4 x = a[i], z = b[i];
            sum += dot<BF16>(x.x, z.x) + dot<BF16>(x.y, z.y) + dot<BF16>(x.z, z.z) +
                   dot<BF16>(x.w, z.w);
        }
        top = load<float>(lse, sum_at(lse, h, row));
    }
    for (int other = 1; other < LANES; other *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, other);
    if (part == 0) {
        stats[threadIdx.x / LANES] = top == -INFINITY ? INFINITY : top;
        stats[N + threadIdx.x / LANES] = sum;
    }
}

// sums += x times 16 rows of a tile, for f16 times the factors of x's rows: powers of two that keep
// it in range, and become smaller, with the sums, when a number is too large.
template <bool BF16, int D>
__device__ inline void add_fitted(const float (&numbers)[2][4], uint32_t tile,
                                  float (&sums)[D / 8][4], float (&factors)[2])
{
    float x[2][4];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float most = 0;
        for (int i = 0; i < 4; i++) {
            float &each = x[i / 2][half * 2 + i % 2];
            each = numbers[i / 2][half * 2 + i % 2] * factors[half];
            most = fmaxf(most, fabsf(each));
        }
        if (BF16) continue;
        most = row_combine(most, [](float a, float b) { return fmaxf(a, b); });
        if (most <= 32768) continue;
        const float less = __uint_as_float((268 - (__float_as_uint(most) >> 23)) << 23);
        factors[half] *= less;
        for (int i = 0; i < 4; i++) x[i / 2][half * 2 + i % 2] *= less;
        for (int d = 0; d < D / 8; d++) sums[d][half * 2] *= less, sums[d][half * 2 + 1] *= less;
    }
    add_rows<BF16, D>(x[0], x[1], tile, sums);
}

// dq of QUERIES lines from `first` on, which are rows, and columns are keys. KEYS: dk, dv, or both,
// and the other way.
template <bool BF16, int D, bool KEYS, bool HAS_DS, bool HAS_DV>
__device__ inline void differentiate(const fy_args &args, const head &h, int first, uint32_t tiles,
                                     float *stats)
{
    using t = tiling<D>;
    constexpr int NSUMS = HAS_DS + HAS_DV;
    const fy_operand &dy = args.src[0], &q = args.src[1], &k = args.src[2], &v = args.src[3],
                     &others = KEYS ? q : k;
    const int rows = (int)q.dims[1], keys = (int)k.dims[1];
    const int lane = (int)threadIdx.x % 32, line0 = first + (int)threadIdx.x / 32 * 16;
    const bool causal = args.attrs.attention.is_causal != 0;
    const int begin = KEYS && causal ? first : 0;
    const int end = KEYS ? rows : causal ? min(first + QUERIES, keys) : keys;
    const float scale = scale_of<float>(args, q.dims[3]), start = BF16 ? 1.0f : 1.1529215e18f;
    float sums[NSUMS][D / 8][4] = {}, factors[NSUMS][2]; // dq, dk before dv
    for (auto &each : factors) each[0] = each[1] = start;
    uint32_t a[D / 16][4], b[D / 16][4];
    load_rows<D>(KEYS ? k : q, h, line0, 0, a);
    load_rows<D>(KEYS ? v : dy, h, line0, 0, b);
    const auto fetch = [&](int column0, int side) {
        copy_tile<D>(tiles + side * t::HALVES * 4, others, h, column0);
        copy_tile<D>(tiles + side * t::HALVES * 4 + t::HALVES * 2, KEYS ? dy : v, h, column0);
        if (KEYS) put_stats<BF16, t::ROWS>(args, h, column0, stats + side * 2 * t::ROWS);
    };
    __syncthreads(); // what another item left here has been read
    if (begin < end) fetch(begin, 0);
    if (!KEYS) put_stats<BF16, QUERIES>(args, h, first, stats);
    int side = 0;
    for (int tile0 = begin; tile0 < end; tile0 += t::ROWS, side ^= 1) {
        wait_copies();
        __syncthreads(); // this tile is there, and the other one has been read
        if (tile0 + t::ROWS < end) fetch(tile0 + t::ROWS, side ^ 1);
#pragma unroll 1
        for (int c = 0; c < t::ROWS; c += 16) {
            const int row0 = KEYS ? tile0 + c : line0, key0 = KEYS ? line0 : tile0 + c;
            if (causal && key0 > row0 + 15) continue;
            const uint32_t tile = tiles + side * t::HALVES * 4 + c * t::PITCH * 2;
            const float *stat = KEYS ? stats + side * 2 * t::ROWS + c + lane % 4 * 2
                                     : stats + line0 - first + lane / 4;
            float p[2][4] = {}, ds[2][4] = {};
            multiply_rows<BF16, D>(a, tile, p[0], p[1]);
            for (int i = 0; i < 8; i++) {
                const float sum = stat[KEYS ? i / 4 * 8 + i % 2 : i / 2 % 2 * 8];
                // rounded as the log-sum-exp was
                p[i / 4][i % 4] = (__fmul_rn(p[i / 4][i % 4], scale) - sum) * 1.44269504f;
            }
            if (args.nsrc > 6 || key0 + 16 > keys || (causal && key0 + 15 > row0))
                hide<KEYS>(args, 6, h, row0, key0, rows, keys, p);
            for (int i = 0; i < 8; i++) p[i / 4][i % 4] = fy__exp2_fast(p[i / 4][i % 4]);
            if (HAS_DV)
                add_fitted<BF16, D>(p, tile + t::HALVES * 2, sums[NSUMS - 1], factors[NSUMS - 1]);
            if (!HAS_DS) continue;
            multiply_rows<BF16, D>(b, tile + t::HALVES * 2, ds[0], ds[1]);
            for (int i = 0; i < 8; i++) {
                const float y = stat[KEYS ? t::ROWS + i / 4 * 8 + i % 2 : QUERIES + i / 2 % 2 * 8];
                ds[i / 4][i % 4] = p[i / 4][i % 4] * (ds[i / 4][i % 4] - y);
            }
            add_fitted<BF16, D>(ds, tile, sums[0], factors[0]);
        }
    }
#pragma unroll
    for (int i = 0; i < NSUMS; i++) {
        const bool is_dv = HAS_DV && i == NSUMS - 1;
        for (float &each : factors[i]) each = (is_dv ? 1 : scale) / each;
        write_rows<BF16, D>(args.dst[!KEYS ? 0 : is_dv ? 2 : 1], h, line0, factors[i], sums[i]);
    }
}

// Keys first: they take longer; 128 wide, registers suffice for one of dk and dv at a time. The
// longest rows of a causal head come before the others.
template <bool BF16, int D> __device__ inline void attention_gradient(const fy_args &args)
{
    using t = tiling<D>;
    alignas(32) __shared__ uint16_t tiles[4 * t::HALVES];
    alignas(16) __shared__ float stats[4 * t::ROWS];
    const uint32_t at = (uint32_t)__cvta_generic_to_shared(tiles);
    const fy_operand &q = args.src[1], &k = args.src[2];
    const int rows = (int)(q.dims[1] + QUERIES - 1) / QUERIES,
              keys = (int)(k.dims[1] + QUERIES - 1) / QUERIES, all = D > 64 ? 2 * keys : keys;
    for (uint64_t item = blockIdx.x; item < args.count; item += gridDim.x) {
        const head h = head_of(item, q.dims[2], all + rows);
        const int i = (int)h.row;
        if (i < keys)
            differentiate<BF16, D, true, true, D <= 64>(args, h, i * QUERIES, at, stats);
        else if (i < all)
            differentiate<BF16, D, true, false, true>(args, h, (i - keys) * QUERIES, at, stats);
        else
            differentiate<BF16, D, false, true, false>(args, h, (all + rows - 1 - i) * QUERIES, at,
                                                       stats);
    }
}

ATTENTION_KERNELS(fy_attention_tensor_gradient, attention_gradient)

#define FY_MODULE_attention_gradient ,
FY__CUDA_KERNEL_LIST(FY_KERNEL_EXISTS)
