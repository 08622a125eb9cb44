/* Oracle of rand and randn: Philox4x32-10 written again from the paper (Salmon et al. 2011), so that the draws of every backend are
 * checked value by value, and a change of the numbering of elements cannot slip through. The numbering is stated in ops.h's words by
 * backends/formulas/random.h. randperm has no oracle: that it is a permutation, and the same one everywhere, is what it promises. */
#include <math.h>

#include "tests/support/harness.h"
#include "tests/support/oracle.h"

void ts_philox(uint64_t key, uint64_t low, uint64_t high, uint32_t out[4])
{
    uint32_t k[2] = { (uint32_t)key, (uint32_t)(key >> 32) };
    uint32_t c[4] = { (uint32_t)low, (uint32_t)(low >> 32), (uint32_t)high, (uint32_t)(high >> 32) };
    for (int round = 0; round < 10; round++) {
        uint64_t a = 0xD2511F53ull * c[0], b = 0xCD9E8D57ull * c[2];
        uint32_t next[4] = { (uint32_t)(b >> 32) ^ c[1] ^ k[0], (uint32_t)b, (uint32_t)(a >> 32) ^ c[3] ^ k[1], (uint32_t)a };
        memcpy(c, next, sizeof c);
        k[0] += 0x9E3779B9u;
        k[1] += 0xBB67AE85u;
    }
    memcpy(out, c, sizeof c);
}

/* The value in [0, 1) of a lane in a dtype: as many bits as it has below 1. */
static double unit_value(fy_dtype_t dtype, const uint32_t *lane)
{
    switch (dtype) {
    case FY_DTYPE_F16: return ldexp((double)(lane[0] >> 21), -11);
    case FY_DTYPE_BF16: return ldexp((double)(lane[0] >> 24), -8);
    case FY_DTYPE_F32: return ldexp((double)(lane[0] >> 8), -24);
    default: return ldexp((double)(((uint64_t)lane[1] << 32 | lane[0]) >> 11), -53);
    }
}

/* The normal value of element `odd` of a pair of uniforms. */
static double normal_value(fy_dtype_t dtype, const uint32_t *lane, int odd, double *scale)
{
    const double turn = 6.28318530717958647692;
    double u, angle;
    if (dtype == FY_DTYPE_F64) {
        u = 1.0 - unit_value(FY_DTYPE_F64, lane);
        angle = unit_value(FY_DTYPE_F64, lane + 2) * turn;
    } else { /* u is rounded to f32 as it is made: near 1 the logarithm would see the difference */
        u = ts_round(FY_DTYPE_F32, ts_round(FY_DTYPE_F32, lane[0]) + 1) * 0x1p-32;
        angle = unit_value(FY_DTYPE_F32, lane + 1) * turn;
    }
    double radius = sqrt(-2 * log(u));
    *scale = radius * (1 + fabs(angle)) + 1e-3;
    return radius * (odd ? sin(angle) : cos(angle));
}

bool ts_oracle_random(fy_op_t op, const ts_array_t *dst, int64_t seed, int64_t counter, const void *attrs, ts_expected_t *out,
                      int64_t *out_counter)
{
    bool is_f64 = dst->dtype == FY_DTYPE_F64;
    uint64_t n = dst->nelem, per_block = is_f64 ? 2 : 4;
    *out_counter = counter + (int64_t)((n + per_block - 1) / per_block);
    if (op == FY_OP_RANDPERM) *out_counter = counter + (n > 0); /* nothing is drawn for nothing */
    if (op != FY_OP_RAND && op != FY_OP_RANDN) return false;
    ts_expected_make(out, dst->dtype, dst->rank, dst->dims);
    for (uint64_t k = 0; k < n; k++) {
        uint32_t lane[4];
        ts_philox((uint64_t)seed, (uint64_t)counter + k / per_block, 0, lane);
        if (op == FY_OP_RAND) {
            const fy_rand_attrs_t *a = attrs;
            double unit = unit_value(dst->dtype, lane + (is_f64 ? 2 * (k % 2) : k % 4));
            out->value.f[k] = a->low + unit * (a->high - a->low);
            out->scale[k] = fabs(a->low) + fabs(a->high);
        } else {
            const fy_randn_attrs_t *a = attrs;
            double scale, value = normal_value(dst->dtype, lane + (is_f64 ? 0 : k % 4 / 2 * 2), (int)(k % 2), &scale);
            out->value.f[k] = a->mean + a->std * value;
            out->scale[k] = fabs(a->mean) + a->std * scale;
        }
    }
    return true;
}
