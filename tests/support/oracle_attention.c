/* Oracle of scaled_dot_product_attention and of its gradient, by the textbook formula: all scores
 * of a row in long double, one row after the other. scale: the magnitudes that are added, times the
 * relative error of a probability, which is the absolute one of its score. */
#include <math.h>

#include "tests/support/harness.h"
#include "tests/support/oracle.h"

/* One row of queries: scores and probabilities of all keys. */
typedef struct row {
    const ts_array_t *q, *k, *mask;
    const fy_attention_attrs_t *attrs;
    uint64_t b, t, h;
    long double scale;
} row_t;

static uint64_t at(const ts_array_t *x, uint64_t b, uint64_t t, uint64_t h)
{
    const uint64_t rows = (uint64_t)x->dims[1], heads = (uint64_t)x->dims[2];
    return ((b * rows + t) * heads + h) * (uint64_t)x->dims[3];
}

static bool may(const row_t *r, uint64_t s)
{
    if (r->attrs->is_causal && s > r->t) return false;
    const int64_t coords[4] = { (int64_t)r->b, (int64_t)r->h, (int64_t)r->t, (int64_t)s };
    return !r->mask || r->mask->i[ts_broadcast_index(r->mask, 4, coords)] != 0;
}

static long double dot(const ts_array_t *x, uint64_t i, const ts_array_t *y, uint64_t j,
                       double *magnitude)
{
    long double sum = 0;
    for (uint64_t d = 0; d < (uint64_t)x->dims[3]; d++) {
        sum += (long double)x->f[i + d] * y->f[j + d];
        *magnitude += fabs(x->f[i + d] * y->f[j + d]);
    }
    return sum;
}

/* *out_error: of the score, in roundings. */
static long double score(const row_t *r, uint64_t s, double *out_error)
{
    double magnitude = 0;
    const long double sum =
        r->scale * dot(r->q, at(r->q, r->b, r->t, r->h), r->k, at(r->k, r->b, s, r->h), &magnitude);
    *out_error = 4 * magnitude * (double)fabsl(r->scale) + 4;
    return sum;
}

static row_t begin(const ts_array_t *q, const ts_array_t *mask, const void *attrs)
{
    row_t r = { .q = q, .k = q + 1, .mask = mask, .attrs = attrs };
    r.scale = r.attrs->scale != 0 ? r.attrs->scale : 1 / sqrtl((long double)q->dims[3]);
    return r;
}

static void forward(size_t nsrc, const ts_array_t *src, const void *attrs, ts_expected_t *out)
{
    const ts_array_t *q = &src[0], *v = &src[2];
    const uint64_t keys = (uint64_t)v->dims[1], width = (uint64_t)v->dims[3];
    const int64_t sums[3] = { q->dims[0], q->dims[2], q->dims[1] };
    row_t r = begin(q, nsrc > 3 ? &src[3] : NULL, attrs);
    ts_expected_make(&out[0], q->dtype, 4, q->dims);
    ts_expected_make(&out[1], q->dtype == FY_DTYPE_F64 ? FY_DTYPE_F64 : FY_DTYPE_F32, 3, sums);
    for (uint64_t n = 0; n < out[1].value.nelem; n++) {
        r.t = n % (uint64_t)q->dims[1];
        r.h = n / (uint64_t)q->dims[1] % (uint64_t)q->dims[2];
        r.b = n / (uint64_t)q->dims[1] / (uint64_t)q->dims[2];
        long double top = -INFINITY, total = 0;
        double worst = 0, error;
        for (uint64_t s = 0; s < keys; s++) {
            if (!may(&r, s)) continue;
            top = fmaxl(top, score(&r, s, &error));
            worst = fmax(worst, error);
        }
        const uint64_t first = at(q, r.b, r.t, r.h);
        for (uint64_t s = 0; s < keys; s++)
            if (may(&r, s)) total += expl(score(&r, s, &error) - top);
        for (uint64_t s = 0; s < keys; s++) {
            if (!may(&r, s)) continue;
            const double p = (double)(expl(score(&r, s, &error) - top) / total);
            for (uint64_t d = 0; d < width; d++) {
                const double value = v->f[at(v, r.b, s, r.h) + d];
                out[0].value.f[first + d] += p * value;
                out[0].scale[first + d] += p * fabs(value) * (2 * worst + (double)keys);
            }
        }
        out[1].value.f[n] = (double)(top + logl(total));
        if (total == 0) out[1].value.f[n] = -INFINITY;
        out[1].scale[n] = total == 0 ? 0 : worst + (double)keys + fabs(out[1].value.f[n]);
    }
}

static void backward(size_t nsrc, const ts_array_t *src, const void *attrs, ts_expected_t *out)
{
    const ts_array_t *dy = &src[0], *q = &src[1], *k = &src[2], *v = &src[3], *y = &src[4],
                     *lse = &src[5];
    const uint64_t keys = (uint64_t)k->dims[1], width = (uint64_t)k->dims[3];
    row_t r = begin(q, nsrc > 6 ? &src[6] : NULL, attrs);
    const double terms = 4 + (double)keys + (double)q->dims[1];
    for (int i = 0; i < 3; i++) ts_expected_make(&out[i], q->dtype, 4, src[1 + i].dims);
    for (uint64_t n = 0; n < lse->nelem; n++) {
        r.t = n % (uint64_t)q->dims[1];
        r.h = n / (uint64_t)q->dims[1] % (uint64_t)q->dims[2];
        r.b = n / (uint64_t)q->dims[1] / (uint64_t)q->dims[2];
        const uint64_t i = at(q, r.b, r.t, r.h);
        double parts = 0;
        const long double delta = dot(dy, i, y, i, &parts);
        for (uint64_t s = 0; s < keys; s++) {
            double error, size = parts;
            if (!may(&r, s)) continue;
            const uint64_t j = at(k, r.b, s, r.h);
            const double p = (double)expl(score(&r, s, &error) - lse->f[n]),
                         ds = (double)(p * (dot(dy, i, v, j, &size) - delta)),
                         scale = (double)r.scale, bound = error + fabs(lse->f[n]) + terms;
            for (uint64_t d = 0; d < width; d++) {
                out[0].value.f[i + d] += ds * scale * k->f[j + d];
                out[0].scale[i + d] += p * size * fabs(scale * k->f[j + d]) * bound;
                out[1].value.f[j + d] += ds * scale * q->f[i + d];
                out[1].scale[j + d] += p * size * fabs(scale * q->f[i + d]) * bound;
                out[2].value.f[j + d] += p * dy->f[i + d];
                out[2].scale[j + d] += p * fabs(dy->f[i + d]) * bound;
            }
        }
    }
}

bool ts_oracle_attention(fy_op_t op, size_t nsrc, const ts_array_t *src, const void *attrs,
                         ts_expected_t *out)
{
    static const fy_attention_attrs_t none = { 0, 0 };
    if (!attrs) attrs = &none;
    switch (op) {
    case FY_OP_SCALED_DOT_PRODUCT_ATTENTION: forward(nsrc, src, attrs, out); return true;
    case FY_OP_SCALED_DOT_PRODUCT_ATTENTION_BACKWARD: backward(nsrc, src, attrs, out); return true;
    default: return false;
    }
}
