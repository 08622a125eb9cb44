/* Oracle of ops that fuse parts of layers and training loops: linear and its parameters' gradients,
 * clamp, clipping, optimizer steps. These have up to four results. The formulas are written a
 * second time here, in double, from PyTorch's documentation. */
#include <float.h>
#include <math.h>

#include "tests/support/harness.h"
#include "tests/support/oracle.h"

/* ---- linear ---- */

static double activated(int32_t activation, double z)
{
    switch (activation) {
    case FY_ACTIVATION_RELU: return z < 0 ? 0 : z;
    case FY_ACTIVATION_TANH: return tanh(z);
    case FY_ACTIVATION_SIGMOID: return 1 / (1 + exp(-z));
    case FY_ACTIVATION_GELU: return 0.5 * z * erfc(-z / sqrt(2));
    default: return z;
    }
}

static void linear(size_t nsrc, const ts_array_t *src, const void *attrs, ts_expected_t *out)
{
    const ts_array_t *x = &src[0], *w = &src[1];
    const int32_t activation = ((const fy_linear_attrs_t *)attrs)->activation;
    const uint64_t inner = (uint64_t)w->dims[1], outer = (uint64_t)w->dims[0];
    int64_t dims[FY_MAX_RANK];
    memcpy(dims, x->dims, sizeof dims);
    dims[x->rank - 1] = w->dims[0];
    ts_expected_make(out, x->dtype, x->rank, dims);
    for (uint64_t k = 0; k < out->value.nelem; k++) {
        const uint64_t row = k / outer, o = k % outer;
        long double sum = nsrc == 3 ? src[2].f[o] : 0, magnitude = fabsl(sum);
        for (uint64_t i = 0; i < inner; i++) {
            const long double product = (long double)x->f[row * inner + i] * w->f[o * inner + i];
            sum += product;
            magnitude += fabsl(product);
        }
        out->value.f[k] = activated(activation, (double)sum);
        out->scale[k] = 1.2 * (double)magnitude * (ts_product_steps(x->dtype, (int64_t)inner) + 1) +
                        8 * fabs(out->value.f[k]);
    }
}

/* dy^T x and the sum of dy */
static void linear_backward_params(const ts_array_t *src, ts_expected_t *out)
{
    const ts_array_t *dy = &src[0], *x = &src[1];
    const uint64_t n = (uint64_t)dy->dims[0], rows = (uint64_t)dy->dims[1],
                   columns = (uint64_t)x->dims[1];
    ts_expected_make(&out[0], dy->dtype, 2, (const int64_t[]){ dy->dims[1], x->dims[1] });
    ts_expected_make(&out[1], dy->dtype, 1, (const int64_t[]){ dy->dims[1] });
    for (uint64_t o = 0; o < rows; o++) {
        for (uint64_t i = 0; i < n; i++) {
            const double g = dy->f[i * rows + o];
            out[1].value.f[o] += g;
            out[1].scale[o] += fabs(g) * ((double)n + 1);
            for (uint64_t c = 0; c < columns; c++) {
                out[0].value.f[o * columns + c] += g * x->f[i * columns + c];
                out[0].scale[o * columns + c] += fabs(g * x->f[i * columns + c]) *
                                                 ts_product_steps(x->dtype, (int64_t)n);
            }
        }
    }
}

/* ---- clamp, clip ---- */

static void clamp(const ts_array_t *src, const fy_clamp_attrs_t *attrs, ts_expected_t *out)
{
    const double low =
                     ts_round(src->dtype == FY_DTYPE_F64 ? FY_DTYPE_F64 : FY_DTYPE_F32, attrs->low),
                 high = ts_round(src->dtype == FY_DTYPE_F64 ? FY_DTYPE_F64 : FY_DTYPE_F32,
                                 attrs->high);
    ts_expected_make(out, src->dtype, src->rank, src->dims);
    for (uint64_t k = 0; k < src->nelem; k++)
        out->value.f[k] = src->f[k] < low ? low : src->f[k] > high ? high : src->f[k];
}

static void clip(const ts_array_t *by, const fy_clip_attrs_t *attrs, const ts_array_t *before,
                 ts_expected_t *out)
{
    int64_t coords[FY_MAX_RANK];
    ts_expected_make(out, before->dtype, before->rank, before->dims);
    for (uint64_t k = 0; k < before->nelem; k++) {
        ts_unravel(k, before->rank, before->dims, coords);
        const double share = attrs->max_norm /
                             (by->f[ts_broadcast_index(by, before->rank, coords)] + 1e-6);
        out->value.f[k] = before->f[k] * (share < 1 || isnan(share) ? share : 1);
        out->scale[k] = isfinite(out->value.f[k]) ? 4 * fabs(out->value.f[k]) : 0;
    }
}

/* ---- steps: p parameter, g gradient, a and b states; each result with the quantity that its
 * rounding errors are relative to ---- */

typedef struct element {
    double p, g, a, b, p_scale, g_scale, a_scale, b_scale;
} element_t;

/* Weight decay as a part of the gradient. */
static void decay(element_t *e, double weight_decay)
{
    e->g_scale = fabs(e->g) + fabs(weight_decay * e->p);
    e->g += weight_decay * e->p;
}

static void sgd(element_t *e, double lr, const fy_sgd_attrs_t *attrs, bool has_momentum,
                int64_t step)
{
    double update = e->g, scale = e->g_scale;
    if (has_momentum) {
        const double share = step > 0 ? 1 - attrs->dampening : 1;
        e->a_scale = fabs(attrs->momentum * e->a) + fabs(share) * e->g_scale;
        e->a = attrs->momentum * e->a + share * e->g;
        update = attrs->nesterov ? e->g + attrs->momentum * e->a : e->a;
        scale = e->a_scale + e->g_scale;
    }
    e->p_scale = fabs(e->p) + lr * scale;
    e->p -= lr * update;
}

static void adam(element_t *e, double lr, const fy_adam_attrs_t *attrs, double weight_decay,
                 int64_t step)
{
    const double t = (double)step + 1, shrink = attrs->decoupled ? 1 - lr * weight_decay : 1;
    e->a_scale = fabs(attrs->beta1 * e->a) + (1 - attrs->beta1) * e->g_scale;
    e->b_scale = attrs->beta2 * e->b + (1 - attrs->beta2) * e->g_scale * e->g_scale;
    e->a = attrs->beta1 * e->a + (1 - attrs->beta1) * e->g;
    e->b = attrs->beta2 * e->b + (1 - attrs->beta2) * e->g * e->g;
    const double below = sqrt(e->b / (1 - pow(attrs->beta2, t))) + attrs->eps,
                 rate = lr / (1 - pow(attrs->beta1, t));
    e->p_scale = fabs(shrink * e->p) +
                 rate * e->a_scale / below * (e->b > 0 ? e->b_scale / e->b : 1);
    e->p = shrink * e->p - rate * e->a / below;
}

static void adadelta(element_t *e, double lr, const fy_adadelta_attrs_t *attrs)
{
    const double s = attrs->rho * e->a + (1 - attrs->rho) * e->g * e->g;
    const double u = sqrt(e->b + attrs->eps) / sqrt(s + attrs->eps) * e->g,
                 u_scale = sqrt(e->b + attrs->eps) / sqrt(s + attrs->eps) * e->g_scale;
    e->a_scale = attrs->rho * e->a + (1 - attrs->rho) * e->g_scale * e->g_scale;
    e->a = s;
    e->b_scale = attrs->rho * e->b + (1 - attrs->rho) * u_scale * u_scale * 4;
    e->b = attrs->rho * e->b + (1 - attrs->rho) * u * u;
    e->p_scale = fabs(e->p) + lr * u_scale * 4;
    e->p -= lr * u;
}

static void rmsprop(element_t *e, double lr, const fy_rmsprop_attrs_t *attrs, bool has_momentum)
{
    const double s = attrs->alpha * e->a + (1 - attrs->alpha) * e->g * e->g,
                 below = sqrt(s) + attrs->eps;
    double u = e->g / below, u_scale = e->g_scale / below * 4;
    e->a_scale = attrs->alpha * e->a + (1 - attrs->alpha) * e->g_scale * e->g_scale;
    e->a = s;
    if (has_momentum) {
        u_scale += fabs(attrs->momentum * e->b);
        u += attrs->momentum * e->b;
        e->b = u;
        e->b_scale = u_scale;
    }
    e->p_scale = fabs(e->p) + lr * u_scale;
    e->p -= lr * u;
}

static void rmsprop_centered(element_t *e, double lr, const fy_rmsprop_attrs_t *attrs)
{
    e->a_scale = attrs->alpha * e->a + (1 - attrs->alpha) * e->g_scale * e->g_scale;
    e->b_scale = attrs->alpha * fabs(e->b) + (1 - attrs->alpha) * e->g_scale;
    e->a = attrs->alpha * e->a + (1 - attrs->alpha) * e->g * e->g;
    e->b = attrs->alpha * e->b + (1 - attrs->alpha) * e->g;
    const double v = e->a - e->b * e->b, below = sqrt(fmax(v, 0)) + attrs->eps;
    const double lost = v > 0 ? (e->a_scale + e->b_scale * e->b_scale) / v : 0;
    e->p_scale = fabs(e->p) + lr * e->g_scale / below * (4 + lost);
    e->p -= lr * e->g / below;
}

static void lars(element_t *e, double lr, const fy_lars_attrs_t *attrs)
{
    e->a_scale = fabs(attrs->momentum * e->a) + lr * e->g_scale * 4;
    e->a = attrs->momentum * e->a + lr * e->g;
    e->p_scale = fabs(e->p) + e->a_scale;
    e->p -= e->a;
}

/* The states; returns the update. */
static double lamb(element_t *e, const fy_lamb_attrs_t *attrs, double weight_decay, int64_t step,
                   double *out_scale)
{
    const double t = (double)step + 1, decayed = weight_decay * e->p;
    e->a_scale = fabs(attrs->beta1 * e->a) + (1 - attrs->beta1) * fabs(e->g);
    e->a = attrs->beta1 * e->a + (1 - attrs->beta1) * e->g;
    e->b_scale = e->b = attrs->beta2 * e->b + (1 - attrs->beta2) * e->g * e->g;
    const double below = sqrt(e->b / (1 - pow(attrs->beta2, t))) + attrs->eps,
                 correct = 1 / (1 - pow(attrs->beta1, t));
    *out_scale = 4 * (correct * e->a_scale / below + fabs(decayed));
    return correct * e->a / below + decayed;
}

/* ---- parts ---- */

typedef struct parts {
    const ts_array_t *rows; /* NULL: one part */
    uint64_t nelem;
} parts_t;

static uint64_t part_begin(const parts_t *parts, uint64_t part)
{
    const uint64_t n = parts->rows ? (uint64_t)parts->rows->dims[0] : 1;
    if (part == 0) return 0;
    if (part >= n || parts->rows->f[3 * part] > (double)parts->nelem) return parts->nelem;
    return (uint64_t)parts->rows->f[3 * part];
}

static uint64_t part_of(const parts_t *parts, uint64_t k)
{
    uint64_t part = 0;
    while (parts->rows && part + 1 < (uint64_t)parts->rows->dims[0] &&
           parts->rows->f[3 * (part + 1)] <= (double)k)
        part++;
    return part;
}

static double factor(const parts_t *parts, uint64_t part, int column)
{
    return parts->rows ? parts->rows->f[3 * part + (uint64_t)column] : 1;
}

static double weight_decay_of(fy_op_t op, const void *attrs)
{
    const fy_op_info_t *info = fy_op_get(op);
    double value = 0;
    for (uint32_t i = 0; i < info->nfields; i++)
        if (strcmp(info->fields[i].name, "weight_decay") == 0)
            memcpy(&value, (const char *)attrs + info->fields[i].offset, sizeof value);
    return value;
}

/* Sums of the runs of a part, and its ratio. */
static void trust_of(fy_op_t op, const parts_t *parts, uint64_t part, const ts_array_t *src,
                     const void *attrs, const ts_array_t *given, int64_t number, ts_expected_t *out)
{
    const int64_t columns = out->value.dims[1];
    const uint64_t begin = part_begin(parts, part), next = part_begin(parts, part + 1),
                   end = next > begin ? next : begin, runs = (uint64_t)(columns - 1) / 2,
                   each = ((end - begin + runs - 1) / runs + 15) / 16 * 16;
    const double rounding = ts_unit(given[0].dtype) / ts_unit(FY_DTYPE_F64);
    double *row = &out->value.f[part * (uint64_t)columns],
           *scale = &out->scale[part * (uint64_t)columns], param = 0, update = 0;
    const fy_lamb_attrs_t *lamb_attrs = attrs;
    const fy_lars_attrs_t *lars_attrs = attrs;
    const double weight_decay = weight_decay_of(op, attrs) * factor(parts, part, 2);
    for (uint64_t k = begin; k < end; k++) {
        const uint64_t run = (k - begin) / each;
        element_t e = { .p = given[0].f[k], .g = src[0].f[k], .a = given[1].f[k] };
        double u = e.g, u_scale = fabs(u);
        if (op == FY_OP_LAMB_STEP) {
            e.b = given[2].f[k];
            u = lamb(&e, lamb_attrs, weight_decay, number, &u_scale);
        }
        row[1 + 2 * run] += e.p * e.p;
        row[2 + 2 * run] += u * u;
        scale[1 + 2 * run] += e.p * e.p * rounding * 4;
        scale[2 + 2 * run] += (u * u + fabs(u) * u_scale) * rounding * 4;
        param += e.p * e.p;
        update += u * u;
    }
    row[0] = 1;
    if (factor(parts, part, 2) != 0 && param > 0 && update > 0)
        row[0] = op == FY_OP_LAMB_STEP
                     ? sqrt(param / update)
                     : lars_attrs->trust_coefficient * sqrt(param) /
                           (sqrt(update) + weight_decay * sqrt(param) + lars_attrs->eps);
    scale[0] = row[0] * rounding * 16;
}

/* One element by a part's rates: lr and weight decay with their factors, lr with its ratio. */
static void step_element(fy_op_t op, element_t *e, double lr, double weight_decay,
                         const void *attrs, int64_t number)
{
    double scale, u;
    const bool is_apart = op == FY_OP_LAMB_STEP ||
                          (op == FY_OP_ADAM_STEP && ((const fy_adam_attrs_t *)attrs)->decoupled);
    decay(e, is_apart ? 0 : weight_decay);
    switch (op) {
    case FY_OP_ADAM_STEP: adam(e, lr, attrs, weight_decay, number); break;
    case FY_OP_ADADELTA_STEP: adadelta(e, lr, attrs); break;
    case FY_OP_RMSPROP_STEP: rmsprop(e, lr, attrs, false); break;
    case FY_OP_RMSPROP_MOMENTUM_STEP: rmsprop(e, lr, attrs, true); break;
    case FY_OP_RMSPROP_CENTERED_STEP: rmsprop_centered(e, lr, attrs); break;
    case FY_OP_LARS_STEP: lars(e, lr, attrs); break;
    case FY_OP_LAMB_STEP:
        u = lamb(e, attrs, weight_decay, number, &scale);
        e->p_scale = fabs(e->p) + lr * (fabs(u) * 8 + scale);
        e->p -= lr * u;
        break;
    default: sgd(e, lr, attrs, op == FY_OP_SGD_MOMENTUM_STEP, number);
    }
}

/* Results that are as they were given. */
static void unchanged(const ts_array_t *given, ts_expected_t *out)
{
    ts_expected_make(out, given->dtype, given->rank, given->dims);
    for (uint64_t k = 0; given->f && k < given->nelem; k++) out->value.f[k] = given->f[k];
    for (uint64_t k = 0; given->i && k < given->nelem; k++) out->value.i[k] = given->i[k];
}

static void step_scaled(fy_op_t op, size_t nsrc, const ts_array_t *src, const void *attrs,
                        const ts_array_t *given, size_t ndst, ts_expected_t *out)
{
    const bool has_trust = op == FY_OP_LARS_STEP || op == FY_OP_LAMB_STEP,
               counts = op == FY_OP_ADAM_STEP || op == FY_OP_SGD_MOMENTUM_STEP ||
                        op == FY_OP_LAMB_STEP;
    const size_t nalike = ndst - counts - has_trust;
    const int64_t number = counts ? given[ndst - 1].i[0] : 0;
    const double weight_decay = weight_decay_of(op, attrs);
    const parts_t parts = { nsrc > 2 ? &src[2] : NULL, given[0].nelem };
    for (size_t i = 0; i < ndst; i++)
        ts_expected_make(&out[i], given[i].dtype, given[i].rank, given[i].dims);
    if (counts) out[ndst - 1].value.i[0] = number + 1;
    for (uint64_t part = 0; has_trust && part < (uint64_t)given[nalike].dims[0]; part++)
        trust_of(op, &parts, part, src, attrs, given, number, &out[nalike]);
    for (uint64_t k = 0; k < given[0].nelem; k++) {
        element_t e = { .p = given[0].f[k],
                        .g = src[0].f[k],
                        .a = nalike > 1 ? given[1].f[k] : 0,
                        .b = nalike > 2 ? given[2].f[k] : 0 };
        const uint64_t part = part_of(&parts, k);
        const double ratio = has_trust ? out[nalike].value.f[part * (uint64_t)given[nalike].dims[1]]
                                       : 1;
        step_element(op, &e, src[1].f[0] * factor(&parts, part, 1) * ratio,
                     weight_decay * factor(&parts, part, 2), attrs, number);
        const double values[3] = { e.p, e.a, e.b }, scales[3] = { e.p_scale, e.a_scale, e.b_scale };
        for (size_t i = 0; i < nalike && i < 3; i++) {
            out[i].value.f[k] = values[i];
            out[i].scale[k] = scales[i];
        }
    }
}

/* With loss scaling: (scale, divisor, found, good and skipped steps). */
static void step(fy_op_t op, size_t nsrc, const ts_array_t *src, const void *attrs,
                 const ts_array_t *given, size_t ndst, ts_expected_t *out)
{
    if (nsrc < 4) {
        step_scaled(op, nsrc, src, attrs, given, ndst, out);
        return;
    }
    if (src[3].f[2] != 0) {
        for (size_t i = 0; i < ndst; i++) unchanged(&given[i], &out[i]);
        return;
    }
    ts_array_t own[4] = { src[0], src[1], src[2], src[3] };
    own[0].f = calloc(src[0].nelem + 1, sizeof *own[0].f);
    assert_non_null(own[0].f);
    for (uint64_t k = 0; k < src[0].nelem; k++) own[0].f[k] = src[0].f[k] / src[3].f[1];
    step_scaled(op, nsrc, own, attrs, given, ndst, out);
    free(own[0].f);
}

static void check_finite(const ts_array_t *x, const ts_array_t *given, ts_expected_t *out)
{
    unchanged(given, out);
    for (uint64_t k = 0; k < x->nelem; k++)
        if (!isfinite(x->f[k])) out->value.f[2] = 1;
}

static void update_scaling(const fy_update_scaling_attrs_t *attrs, const ts_array_t *given,
                           ts_expected_t *out)
{
    unchanged(given, out);
    double *values = out->value.f, next = values[0];
    if (values[2] != 0) {
        next *= attrs->backoff_factor;
        values[3] = 0;
        values[4]++;
    } else if (++values[3] == (double)attrs->growth_interval) {
        next *= attrs->growth_factor;
        values[3] = 0;
    }
    if (next >= 0x1p-126 && next <= (double)FLT_MAX) values[0] = next;
    values[1] = values[0];
    values[2] = 0;
}

bool ts_oracle_training(fy_op_t op, size_t nsrc, const ts_array_t *src, const void *attrs,
                        const ts_array_t *given, ts_expected_t *out)
{
    switch (op) {
    case FY_OP_LINEAR: linear(nsrc, src, attrs, out); return true;
    case FY_OP_LINEAR_BACKWARD_PARAMS: linear_backward_params(src, out); return true;
    case FY_OP_CLAMP: clamp(&src[0], attrs, out); return true;
    case FY_OP_CLIP_BY_NORM: clip(&src[0], attrs, &given[0], out); return true;
    case FY_OP_CHECK_FINITE: check_finite(&src[0], &given[0], out); return true;
    case FY_OP_UPDATE_SCALING: update_scaling(attrs, &given[0], out); return true;
    case FY_OP_SGD_STEP:
    case FY_OP_SGD_MOMENTUM_STEP:
    case FY_OP_ADAM_STEP:
    case FY_OP_RMSPROP_STEP:
    case FY_OP_RMSPROP_MOMENTUM_STEP:
    case FY_OP_RMSPROP_CENTERED_STEP:
    case FY_OP_LARS_STEP:
    case FY_OP_LAMB_STEP:
    case FY_OP_ADADELTA_STEP: step(op, nsrc, src, attrs, given, ts_ndst(op), out); return true;
    default: return false;
    }
}
