/* Random draws as pure functions of (seed, counter, element index), the same bits on every backend.
 * Source: Philox4x32-10, Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (2011); Box
 * and Muller (1958);
 * Black and Rogaway, "Ciphers with arbitrary finite domains" (2002).
 *
 * The state is i64[2] {seed, counter}, in launch->dst[1]: every kernel reads both before it writes
 * counter. With n = launch->nelem and elements numbered in row-major order of dst:
 *   key     = seed's low, high 32 bits
 *   block b = philox(counter words {lo(counter + b), hi(counter + b), 0, 0})
 *   rand    f32, f16, bf16: element i takes lane i % 4 of block i / 4; counter += ceil(n / 4)
 *           f64: element i takes lanes 2(i % 2), +1 of block i / 2; counter += ceil(n / 2)
 *   randn   f32, f16, bf16: lanes (0, 1) of a block make its elements 0 and 1 (cos, sin), lanes
 *           (2, 3) its elements 2 and 3; counter as rand
 *           f64: lanes (0, 1), (2, 3) of block i / 2 make elements i, i + 1; counter as rand
 *   randperm: round keys from philox({lo(counter), hi(counter), 1 or 2, tag}) then counter += 1
 *   dropout, any dtype: 64 elements take 16 blocks, and a block serves four elements that stand 16
 *   apart, so that neither vectors nor
 *           warps have to sort lanes: element i takes lane i / 16 % 4 of block 16 (i / 64) + i %
 *           16, and is kept if its highest 24 bits
 *           are not below p 2^24, rounded; then counter += 16 ceil(n / 64). dropout2d: the same, i
 *           = n C + c numbers the channels
 * A draw of no elements does not change the state. */
#ifndef FERRY_OPSET_FORMULAS_RANDOM_H_
#define FERRY_OPSET_FORMULAS_RANDOM_H_

#include <math.h>

#include "opset/formulas/half.h"

typedef struct fy__philox {
    uint32_t lane[4];
} fy__philox_t;

FY_FORMULA fy__philox_t fy__philox4x32(uint64_t key, uint64_t counter_lo, uint64_t counter_hi)
{
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    uint32_t c0 = (uint32_t)counter_lo, c1 = (uint32_t)(counter_lo >> 32),
             c2 = (uint32_t)counter_hi, c3 = (uint32_t)(counter_hi >> 32);
    fy__philox_t out;
    for (int round = 0; round < 10; round++) {
        const uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        const uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out.lane[0] = c0;
    out.lane[1] = c1;
    out.lane[2] = c2;
    out.lane[3] = c3;
    return out;
}

/* Block b of a draw. */
FY_FORMULA fy__philox_t fy__rng_block(int64_t seed, int64_t counter, uint64_t block)
{
    return fy__philox4x32((uint64_t)seed, (uint64_t)counter + block, 0);
}

/* What a draw of n elements adds to the counter. */
FY_FORMULA uint64_t fy__rng_blocks(uint64_t n, int is_f64)
{
    return is_f64 ? n / 2 + n % 2 : n / 4 + (n % 4 != 0);
}

/* ---- uniform in [0, 1): as many bits as the dtype holds below 1, so that rounding never makes 1
 * ---- */

FY_FORMULA float fy__unit_f32(uint32_t lane) { return (float)(lane >> 8) * (1.0f / 16777216.0f); }
FY_FORMULA float fy__unit_f16(uint32_t lane) { return (float)(lane >> 21) * (1.0f / 2048.0f); }
FY_FORMULA float fy__unit_bf16(uint32_t lane) { return (float)(lane >> 24) * (1.0f / 256.0f); }
FY_FORMULA double fy__unit_f64(uint32_t lane0, uint32_t lane1)
{
    return (double)(((uint64_t)lane1 << 32 | lane0) >> 11) * (1.0 / 9007199254740992.0);
}

/* ---- uniform in [low, high): what rounds up to high becomes low ---- */

FY_FORMULA float fy__rand_f32(uint32_t lane, float low, float high)
{
    const float x = FY_MUL_ADD_F32(fy__unit_f32(lane), high - low, low);
    return x < high ? x : low;
}
FY_FORMULA double fy__rand_f64(uint32_t lane0, uint32_t lane1, double low, double high)
{
    const double x = FY_MUL_ADD_F64(fy__unit_f64(lane0, lane1), high - low, low);
    return x < high ? x : low;
}
FY_FORMULA uint16_t fy__rand_f16(uint32_t lane, float low, float high)
{
    const uint16_t x = fy__f16_from_f32(FY_MUL_ADD_F32(fy__unit_f16(lane), high - low, low));
    return fy__f32_from_f16(x) < high ? x : fy__f16_from_f32(low);
}
FY_FORMULA uint16_t fy__rand_bf16(uint32_t lane, float low, float high)
{
    const uint16_t x = fy__bf16_from_f32(FY_MUL_ADD_F32(fy__unit_bf16(lane), high - low, low));
    return fy__f32_from_bf16(x) < high ? x : fy__bf16_from_f32(low);
}

/* ---- normal: two lanes (four for f64) make two independent values ---- */

/* out[0] = r cos(t), out[1] = r sin(t), r = sqrt(-2 ln u), u in (0, 1] */
FY_FORMULA float fy__box_muller_radius_f32(uint32_t lane)
{
    return sqrtf(-2.0f * logf(((float)lane + 1.0f) * (1.0f / 4294967296.0f)));
}
FY_FORMULA float fy__box_muller_angle_f32(uint32_t lane)
{
    return fy__unit_f32(lane) * 6.28318530717958648f;
}
FY_FORMULA void fy__box_muller_f32(uint32_t lane0, uint32_t lane1, float out[2])
{
    const float radius = fy__box_muller_radius_f32(lane0);
    const float angle = fy__box_muller_angle_f32(lane1);
    out[0] = radius * cosf(angle);
    out[1] = radius * sinf(angle);
}
FY_FORMULA void fy__box_muller_f64(const uint32_t lane[4], double out[2])
{
    const double u = 1.0 - fy__unit_f64(lane[0], lane[1]); /* exact: (0, 1] */
    const double angle = fy__unit_f64(lane[2], lane[3]) * 6.28318530717958648;
    const double radius = sqrt(-2.0 * log(u));
    out[0] = radius * cos(angle);
    out[1] = radius * sin(angle);
}

/* ---- dropout ---- */

#define FY_DROPOUT_GROUP  64 /* elements */
#define FY_DROPOUT_BLOCKS 16 /* that they take */

FY_FORMULA uint64_t fy__dropout_blocks(uint64_t n)
{
    return (n / FY_DROPOUT_GROUP + (n % FY_DROPOUT_GROUP != 0)) * FY_DROPOUT_BLOCKS;
}
FY_FORMULA uint32_t fy__dropout_threshold(double p) { return (uint32_t)(p * 16777216.0 + 0.5); }
FY_FORMULA double fy__dropout_scale(double p) { return p < 1.0 ? 1.0 / (1.0 - p) : 0.0; }
FY_FORMULA uint32_t fy__dropout_keeps(uint32_t lane, uint32_t threshold)
{
    return (int32_t)(lane >> 8) >= (int32_t)threshold;
}
/* Element i alone. */
FY_FORMULA uint32_t fy__dropout_keeps_at(int64_t seed, int64_t counter, uint64_t i,
                                         uint32_t threshold)
{
    const fy__philox_t block = fy__rng_block(
        seed, counter, i / FY_DROPOUT_GROUP * FY_DROPOUT_BLOCKS + i % FY_DROPOUT_BLOCKS);
    return fy__dropout_keeps(block.lane[i / FY_DROPOUT_BLOCKS % 4], threshold);
}

/* ---- a permutation of 0 .. n-1, one element at a time ---- */

#define FY_PERM_ROUNDS 8

typedef struct fy__perm {
    uint32_t n;
    /* 2^(left + right) is the domain of the network: >= n, and < 2n unless n is tiny */
    uint32_t left_bits, right_bits;
    uint32_t key[FY_PERM_ROUNDS];
} fy__perm_t;

/* The same for all elements of one draw. n < 2^32. */
FY_FORMULA fy__perm_t fy__perm_make(int64_t seed, int64_t counter, uint64_t n)
{
    const uint64_t tag = (uint64_t)0x7065726Du << 32; /* "perm": no block of rand has it */
    const fy__philox_t a = fy__philox4x32((uint64_t)seed, (uint64_t)counter, tag | 1u),
                       b = fy__philox4x32((uint64_t)seed, (uint64_t)counter, tag | 2u);
    fy__perm_t perm;
    /* halves of four bits at least: smaller networks favour some orders (measured by chi
     * squared) */
    uint32_t bits = 8;
    while (bits < 32 && ((uint64_t)1 << bits) < n) bits++;
    perm.n = (uint32_t)n;
    perm.left_bits = bits / 2;
    perm.right_bits = bits - bits / 2;
    for (int i = 0; i < 4; i++) {
        perm.key[i] = a.lane[i];
        perm.key[i + 4] = b.lane[i];
    }
    return perm;
}

/* MurmurHash3's finaliser (A. Appleby, public domain). */
FY_FORMULA uint32_t fy__mix32(uint32_t x)
{
    x ^= x >> 16;
    x *= 0x85EBCA6Bu;
    x ^= x >> 13;
    x *= 0xC2B2AE35u;
    return x ^ x >> 16;
}

/* Where element i < n goes. Walks the cycle of the network until it is back below n: fewer than two
 * steps on average. */
FY_FORMULA uint32_t fy__perm_at(const fy__perm_t *perm, uint32_t i)
{
    const uint32_t left_mask = ((uint32_t)1 << perm->left_bits) - 1u,
                   right_mask = ((uint32_t)1 << perm->right_bits) - 1u;
    do {
        uint32_t left = i >> perm->right_bits, right = i & right_mask;
        /* each line can be undone, so the whole is a bijection */
        for (int r = 0; r < FY_PERM_ROUNDS; r += 2) {
            left ^= fy__mix32(right + perm->key[r]) & left_mask;
            right ^= fy__mix32(left + perm->key[r + 1]) & right_mask;
        }
        i = left << perm->right_bits | right;
    } while (i >= perm->n);
    return i;
}

#endif
