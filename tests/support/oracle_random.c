/* Oracle of rand, randn and dropout, and of the random state that they leave. Philox4x32-10 is
 * written again from the paper (Salmon et al. 2011), so the draws of every backend are checked
 * value by value, and so is the numbering of elements. opset/formulas/random.h documents the
 * numbering. randperm has no oracle: tests check that it is a permutation, and the same one on
 * every device. */
#include <math.h>

#include "tests/support/harness.h"
#include "tests/support/oracle.h"

void ts_philox(uint64_t key, uint64_t low, uint64_t high, uint32_t out[4])
{
    uint32_t k[2] = { (uint32_t)key, (uint32_t)(key >> 32) };
    uint32_t c[4] = { (uint32_t)low, (uint32_t)(low >> 32), (uint32_t)high,
                      (uint32_t)(high >> 32) };
    for (int round = 0; round < 10; round++) {
        uint64_t a = 0xD2511F53ull * c[0], b = 0xCD9E8D57ull * c[2];
        uint32_t next[4] = { (uint32_t)(b >> 32) ^ c[1] ^ k[0], (uint32_t)b,
                             (uint32_t)(a >> 32) ^ c[3] ^ k[1], (uint32_t)a };
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
    } else { /* u is rounded to f32 first: near 1 the logarithm would show the difference */
        u = ts_round(FY_DTYPE_F32, ts_round(FY_DTYPE_F32, lane[0]) + 1) * 0x1p-32;
        angle = unit_value(FY_DTYPE_F32, lane + 1) * turn;
    }
    double radius = sqrt(-2 * log(u));
    *scale = radius * (1 + fabs(angle)) + 1e-3;
    return radius * (odd ? sin(angle) : cos(angle));
}

static void draw(fy_op_t op, const ts_array_t *dst, const ts_array_t *rng, const void *attrs,
                 ts_expected_t *out)
{
    const bool is_f64 = dst->dtype == FY_DTYPE_F64;
    const uint64_t per_block = is_f64 ? 2 : 4;
    ts_expected_make(out, dst->dtype, dst->rank, dst->dims);
    for (uint64_t k = 0; k < dst->nelem; k++) {
        uint32_t lane[4];
        ts_philox((uint64_t)rng->i[0], (uint64_t)rng->i[1] + k / per_block, 0, lane);
        if (op == FY_OP_RAND) {
            const fy_rand_attrs_t *a = attrs;
            double unit = unit_value(dst->dtype, lane + (is_f64 ? 2 * (k % 2) : k % 4));
            out->value.f[k] = a->low + unit * (a->high - a->low);
            out->scale[k] = fabs(a->low) + fabs(a->high);
        } else {
            const fy_randn_attrs_t *a = attrs;
            double scale, value = normal_value(dst->dtype, lane + (is_f64 ? 0 : k % 4 / 2 * 2),
                                               (int)(k % 2), &scale);
            out->value.f[k] = a->mean + a->std * value;
            out->scale[k] = fabs(a->mean) + a->std * scale;
        }
    }
}

/* Returns whether draw `i` is below p. 64 draws use 16 blocks, and draw i uses lane i / 16 % 4 of
 * block i % 16 of those. */
static bool is_dropped(const ts_array_t *rng, uint64_t i, double p)
{
    uint32_t lane[4];
    ts_philox((uint64_t)rng->i[0], (uint64_t)rng->i[1] + i / 64 * 16 + i % 16, 0, lane);
    return ldexp(lane[i % 64 / 16] >> 8, -24) < round(p * 0x1p24) * 0x1p-24;
}

static bool drops_channels(fy_op_t op)
{
    return op == FY_OP_DROPOUT2D || op == FY_OP_DROPOUT2D_BACKWARD;
}

static void drop(fy_op_t op, const ts_array_t *src, const ts_array_t *rng, const void *attrs,
                 ts_expected_t *out)
{
    const double p = attrs ? ((const fy_dropout_attrs_t *)attrs)->p : 0.5;
    ts_expected_make(out, src->dtype, src->rank, src->dims);
    for (uint64_t k = 0; k < src->nelem; k++) {
        uint64_t i = k;
        if (drops_channels(op))
            i = k / (src->nelem / (uint64_t)src->dims[0]) * (uint64_t)src->dims[3] +
                k % (uint64_t)src->dims[3];
        out->value.f[k] = is_dropped(rng, i, p) ? 0 : src->f[k] / (1 - p);
        out->scale[k] = isfinite(out->value.f[k]) ? fabs(out->value.f[k]) : 0;
    }
}

bool ts_oracle_random(fy_op_t op, const ts_array_t *src, const ts_array_t *rng, const void *attrs,
                      ts_expected_t *out)
{
    switch (op) {
    case FY_OP_RAND:
    case FY_OP_RANDN: draw(op, src, rng, attrs, out); return true;
    case FY_OP_DROPOUT:
    case FY_OP_DROPOUT2D:
    case FY_OP_DROPOUT_BACKWARD:
    case FY_OP_DROPOUT2D_BACKWARD: drop(op, src, rng, attrs, out); return true;
    default: return false;
    }
}

/* The amount by which one call with n draws of `dtype` advances the counter; 0 for 0 draws. */
static uint64_t blocks_of(fy_op_t op, fy_dtype_t dtype, const ts_array_t *of)
{
    uint64_t n = of->nelem, per_block = dtype == FY_DTYPE_F64 ? 2 : 4;
    switch (op) {
    case FY_OP_RANDPERM: return n > 0;
    case FY_OP_DROPOUT2D:
        if (n > 0) n = (uint64_t)of->dims[0] * (uint64_t)of->dims[3];
        return (n + 63) / 64 * 16;
    case FY_OP_DROPOUT: return (n + 63) / 64 * 16;
    default: return (n + per_block - 1) / per_block;
    }
}

bool ts_oracle_state(fy_op_t op, size_t index, const ts_array_t *given, ts_expected_t *out)
{
    const bool draws = op == FY_OP_RAND || op == FY_OP_RANDN || op == FY_OP_RANDPERM;
    const bool drops = op == FY_OP_DROPOUT || op == FY_OP_DROPOUT2D;
    if (!draws && !drops) return false;
    ts_expected_make(out, FY_DTYPE_I64, 1, (const int64_t[]){ 2 });
    out->value.i[0] = given[1].i[0];
    out->value.i[1] = given[1].i[1];
    if (index == 1)
        out->value.i[1] =
            (int64_t)((uint64_t)given[1].i[1] + blocks_of(op, given[0].dtype, &given[0]));
    return true;
}
