/* Oracle of the elementwise ops: one scalar function in f64 and one in wrapping int64 for each,
 * applied with NumPy broadcasting.
 * scale = 0 means "rounded once, otherwise exact". add, sub, mul, div and sqrt have it even when
 * computed in f32 (Figueroa 1995: double rounding is innocuous when the wide format has 2p + 2
 * bits). */
#include <math.h>

#include "tests/support/harness.h"
#include "tests/support/oracle.h"

static double maximum(double a, double b) { return isnan(a) || isnan(b) ? NAN : a > b ? a : b; }
static double minimum(double a, double b) { return isnan(a) || isnan(b) ? NAN : a < b ? a : b; }
static double sigmoid(double x) { return x >= 0 ? 1 / (1 + exp(-x)) : exp(x) / (1 + exp(x)); }

static double phi(double x) { return exp(-x * x / 2) / sqrt(2 * acos(-1.0)); }
static double below(double x) { return erfc(-x / sqrt(2)) / 2; } /* of a normal variable */

/* Activations of x, and gradients: dy and x. */
static double activation(fy_op_t op, double x, double at, double *scale)
{
    /* errors: the factor, relative to the value, by which an error of x appears in it; size: the
     * sum of the added magnitudes */
    double value = NAN, errors = 1, size = 0;
    const double s = sigmoid(at);
    switch (op) {
    case FY_OP_RELU6: *scale = 0; return isnan(x) ? x : fmin(fmax(x, 0), 6);
    case FY_OP_HARDSIGMOID:
        value = isnan(x) ? x : fmin(fmax(x + 3, 0), 6) / 6, size = fabs(x) + 3;
        break;
    case FY_OP_HARDSWISH:
        value = x < -3 ? 0 : x > 3 ? x : x * (x + 3) / 6, size = fabs(x) * (fabs(x) + 3);
        break;
    case FY_OP_SILU: value = x * sigmoid(x); break;
    case FY_OP_GELU: value = x * below(x), errors = 2 + x * x; break;
    case FY_OP_GELU_TANH: {
        const double u = sqrt(2 / acos(-1.0)) * (x + 0.044715 * x * x * x);
        value = x / 2 * (1 + tanh(u)), size = fabs(x) * (2 + fabs(u) * (1 - tanh(u) * tanh(u)));
        break;
    }
    case FY_OP_GELU_TANH_BACKWARD: {
        const double u = sqrt(2 / acos(-1.0)) * (at + 0.044715 * at * at * at), t = tanh(u),
                     du = sqrt(2 / acos(-1.0)) * (1 + 3 * 0.044715 * at * at);
        value = x * ((1 + t) / 2 + at * (1 - t * t) * du / 2);
        size = fabs(x) * (2 + fabs(at) * du * (1 + fabs(u) * (1 - t * t)));
        break;
    }
    case FY_OP_ERF: value = erf(x); break;
    case FY_OP_RELU_BACKWARD: *scale = 0; return at <= 0 ? 0 : x;
    case FY_OP_RELU6_BACKWARD: *scale = 0; return at <= 0 || at >= 6 ? 0 : x;
    case FY_OP_HARDSIGMOID_BACKWARD: value = at > -3 && at < 3 ? x / 6 : 0; break;
    case FY_OP_HARDSWISH_BACKWARD:
        value = at <= -3 ? 0 : at >= 3 ? x : x * (at / 3 + 0.5), size = fabs(x) * (fabs(at) + 1);
        break;
    case FY_OP_TANH_BACKWARD: value = x * (1 - at) * (1 + at); break; /* at: of the result */
    case FY_OP_SIGMOID_BACKWARD: value = x * at * (1 - at); break;
    case FY_OP_SILU_BACKWARD:
        value = x * s * (1 + at * (1 - s)), size = fabs(x) * s * (1 + fabs(at));
        break;
    case FY_OP_GELU_BACKWARD:
        value = x * (below(at) + at * phi(at)),
        size = fabs(x) * (below(at) + fabs(at) * phi(at)) * (2 + at * at);
        break;
    default: break;
    }
    *scale = fabs(value) * errors + size + 0x1p-102;
    if (!isfinite(value) || !isfinite(*scale)) *scale = 0;
    return value;
}

/* The value of an op for x and y, and the quantity that its error is relative to. */
static double real_value(fy_op_t op, double x, double y, const void *attrs, double *scale)
{
    double value;
    *scale = 0;
    switch (op) {
    case FY_OP_NEG: return -x;
    case FY_OP_ABS: return fabs(x);
    case FY_OP_SQRT: return sqrt(x);
    case FY_OP_RELU: return maximum(x, 0);
    case FY_OP_ADD: return x + y;
    case FY_OP_SUB: return x - y;
    case FY_OP_MUL: return x * y;
    case FY_OP_DIV: return x / y;
    case FY_OP_MAXIMUM: return maximum(x, y);
    case FY_OP_MINIMUM: return minimum(x, y);
    case FY_OP_EXP: value = exp(x); break;
    case FY_OP_LOG: value = log(x); break;
    case FY_OP_FLOOR: return floor(x);
    case FY_OP_CEIL: return ceil(x);
    case FY_OP_ROUND: return nearbyint(x);
    case FY_OP_RSQRT: value = 1 / sqrt(x); break;
    case FY_OP_LOG1P: value = log1p(x); break;
    case FY_OP_EXPM1: value = expm1(x); break;
    /* small results of large x have the error of the reduction */
    case FY_OP_SIN: *scale = fabs(sin(x)) + 0x1p-102; return isfinite(x) ? sin(x) : NAN;
    case FY_OP_COS: *scale = fabs(cos(x)) + 0x1p-102; return isfinite(x) ? cos(x) : NAN;
    case FY_OP_TAN: value = tan(x); break;
    case FY_OP_TANH: value = tanh(x); break;
    case FY_OP_SIGMOID: value = sigmoid(x); break;
    case FY_OP_POW: value = pow(x, y); break;
    case FY_OP_SOFTPLUS: { /* an error of beta x is one of the result */
        const fy_softplus_attrs_t *a = attrs;
        const double u = a->beta * x;
        value = u > a->threshold ? x : log1p(exp(u)) / a->beta;
        *scale = fabs(value) * (1 + (u < 0 ? -u : 0)) + fabs(x) * (u > 0) + 0x1p-102;
        if (!isfinite(value) || !isfinite(*scale)) *scale = 0;
        return value;
    }
    case FY_OP_LEAKY_RELU:
        value = x > 0 ? x : ((const fy_leaky_relu_attrs_t *)attrs)->slope * x;
        break;
    case FY_OP_ELU: value = x > 0 ? x : ((const fy_elu_attrs_t *)attrs)->alpha * expm1(x); break;
    case FY_OP_AFFINE: {
        const fy_affine_attrs_t *a = attrs;
        *scale = fabs(a->scale * x) + fabs(a->shift);
        return a->scale * x + a->shift;
    }
    case FY_OP_AXPY: { /* x: the source, y: the previous contents */
        const fy_axpy_attrs_t *a = attrs;
        *scale = fabs(a->alpha * x) + fabs(y);
        return y + a->alpha * x;
    }
    default: return activation(op, x, y, scale);
    }
    /* values below the smallest normal f32 may become 0 in between */
    *scale = isfinite(value) ? fabs(value) + 0x1p-102 : 0;
    return value;
}

static int64_t int_value(fy_op_t op, fy_dtype_t dtype, int64_t x, int64_t y)
{
    uint64_t a = (uint64_t)x, b = (uint64_t)y;
    switch (op) {
    case FY_OP_NEG: return ts_wrap(dtype, 0 - a);
    case FY_OP_ABS: return x < 0 ? ts_wrap(dtype, 0 - a) : x;
    case FY_OP_ADD: return ts_wrap(dtype, a + b);
    case FY_OP_SUB: return ts_wrap(dtype, a - b);
    case FY_OP_MUL: return ts_wrap(dtype, a * b);
    case FY_OP_FLOOR_DIVIDE:
    case FY_OP_REMAINDER: {
        if (y == 0) return 0;
        if (y == -1) return op == FY_OP_REMAINDER ? 0 : ts_wrap(dtype, 0 - a);
        const int64_t rest = x % y, below = rest != 0 && (rest < 0) != (y < 0);
        return op == FY_OP_REMAINDER ? rest + below * y : x / y - below;
    }
    case FY_OP_RELU: return x > 0 ? x : 0;
    case FY_OP_MAXIMUM: return x > y ? x : y;
    case FY_OP_MINIMUM: return x < y ? x : y;
    default: return 0;
    }
}

static bool compared(fy_op_t op, const ts_array_t *a, uint64_t i, const ts_array_t *b, uint64_t j)
{
    bool p, q; /* is it not 0? */
    int order; /* -1, 0, 1; 2: a NaN is in it */
    if (a->f) {
        double x = a->f[i], y = b->f[j];
        p = x != 0;
        q = y != 0;
        order = isnan(x) || isnan(y) ? 2 : x < y ? -1 : x > y;
    } else {
        p = a->i[i] != 0;
        q = b->i[j] != 0;
        order = a->i[i] < b->i[j] ? -1 : a->i[i] > b->i[j];
    }
    switch (op) {
    case FY_OP_LOGICAL_AND: return p && q;
    case FY_OP_LOGICAL_OR: return p || q;
    case FY_OP_LOGICAL_XOR: return p != q;
    case FY_OP_LOGICAL_NOT: return !p;
    case FY_OP_ISNAN: return a->f && isnan(a->f[i]);
    case FY_OP_EQ: return order == 0;
    case FY_OP_NE: return order != 0;
    case FY_OP_LT: return order == -1;
    case FY_OP_LE: return order == -1 || order == 0;
    case FY_OP_GT: return order == 1;
    default: return order == 1 || order == 0;
    }
}

static void cast_element(const ts_array_t *src, uint64_t i, ts_array_t *dst, uint64_t k)
{
    if (dst->f) {
        dst->f[k] = ts_array_get(src, i);
    } else if (dst->dtype == FY_DTYPE_BOOL) {
        dst->i[k] = src->f ? src->f[i] != 0 : src->i[i] != 0;
    } else if (src->f) {
        double x = trunc(src->f[i]), low = (double)ts_int_min(dst->dtype),
               high = (double)ts_int_max(dst->dtype);
        dst->i[k] = isnan(x)    ? 0
                    : x <= low  ? ts_int_min(dst->dtype)
                    : x >= high ? ts_int_max(dst->dtype)
                                : (int64_t)x;
    } else {
        dst->i[k] = ts_wrap(dst->dtype, (uint64_t)src->i[i]);
    }
}

int ts_broadcast_dims(size_t nsrc, const ts_array_t *src, int64_t *dims)
{
    int rank = 0;
    for (size_t s = 0; s < nsrc; s++) rank = src[s].rank > rank ? src[s].rank : rank;
    for (int axis = 0; axis < rank; axis++) {
        dims[axis] = 1;
        for (size_t s = 0; s < nsrc; s++) {
            int own = axis - (rank - src[s].rank);
            if (own >= 0 && src[s].dims[own] != 1) dims[axis] = src[s].dims[own];
        }
    }
    return rank;
}

/* real_value and int_value know it. */
static bool has_formula(fy_op_t op)
{
    switch (op) {
#define UNARY(number, ENUM, ...)  case FY_OP_##ENUM:
#define BINARY(number, ENUM, ...) case FY_OP_##ENUM:
#define SLOPE(number, ENUM, ...)  case FY_OP_##ENUM:
#define SCALED(number, ENUM, ...) case FY_OP_##ENUM:
#include "opset/ops.def"
    case FY_OP_AFFINE:
    case FY_OP_AXPY: return true;
    default: return false;
    }
}

static bool is_comparison(fy_op_t op)
{
    switch (op) {
#define COMPARE(number, ENUM, ...) case FY_OP_##ENUM:
#define TEST(number, ENUM, ...)    case FY_OP_##ENUM:
#include "opset/ops.def"
        return true;
    default: return false;
    }
}

bool ts_oracle_elementwise(fy_op_t op, size_t nsrc, const ts_array_t *src, const void *attrs,
                           const ts_array_t *before, ts_expected_t *out)
{
    int64_t dims[FY_MAX_RANK], coords[FY_MAX_RANK];
    int rank = before ? before->rank : ts_broadcast_dims(nsrc, src, dims);
    if (before) memcpy(dims, before->dims, sizeof dims);
    fy_dtype_t dtype = before ? before->dtype : nsrc ? src[nsrc - 1].dtype : FY_DTYPE_F32;
    switch (op) {
    case FY_OP_CAST: dtype = (fy_dtype_t)((const fy_cast_attrs_t *)attrs)->dtype; break;
    case FY_OP_FILL:
    case FY_OP_ARANGE:
    case FY_OP_COPY:
    case FY_OP_WHERE: break;
    default:
        if (is_comparison(op)) {
            dtype = FY_DTYPE_BOOL;
        } else if (!has_formula(op)) {
            return false;
        }
    }
    ts_expected_make(out, dtype, rank, dims);
    ts_array_t *value = &out->value;
    for (uint64_t k = 0; k < value->nelem; k++) {
        uint64_t at[3] = { 0 };
        ts_unravel(k, rank, dims, coords);
        for (size_t s = 0; s < nsrc; s++) at[s] = ts_broadcast_index(&src[s], rank, coords);
        if (op == FY_OP_FILL) {
            const fy_fill_attrs_t *a = attrs;
            if (value->f) value->f[k] = a->value;
            if (value->i) value->i[k] = a->int_value;
        } else if (op == FY_OP_ARANGE) {
            const fy_arange_attrs_t *a = attrs;
            if (value->f) value->f[k] = a->start + (double)k * a->step;
            if (value->i) value->i[k] = (int64_t)(a->start + (double)k * a->step);
        } else if (op == FY_OP_COPY) {
            ts_array_move(value, k, &src[0], at[0]);
        } else if (op == FY_OP_WHERE) {
            size_t pick = src[0].i[at[0]] ? 1 : 2;
            ts_array_move(value, k, &src[pick], at[pick]);
        } else if (op == FY_OP_CAST) {
            cast_element(&src[0], at[0], value, k);
        } else if (is_comparison(op)) {
            value->i[k] = compared(op, &src[0], at[0], &src[nsrc - 1], at[nsrc - 1]);
        } else if (value->f) {
            double y = before && op == FY_OP_AXPY ? before->f[k] : nsrc > 1 ? src[1].f[at[1]] : 0;
            value->f[k] = real_value(op, src[0].f[at[0]], y, attrs, &out->scale[k]);
        } else {
            value->i[k] = int_value(op, dtype, src[0].i[at[0]], nsrc > 1 ? src[1].i[at[1]] : 0);
        }
    }
    return true;
}
