/* Activations and their slopes as scalar functions, in f32 and f64; named as in scalar.h. NaN
 * propagates through the activations.
 * Values at kinks, at infinities and of slopes at NaN: docs/ops.md, "Edge values".
 * gelu by the tail of the normal distribution, which keeps the digits of small results (1 + erf
 * would not). Source: Hendrycks and Gimpel 2016; Howard et al. 2019 (hardswish). */
#ifndef FERRY_OPSET_FORMULAS_ACTIVATION_H_
#define FERRY_OPSET_FORMULAS_ACTIVATION_H_

#include "opset/formulas/scalar.h"

/* The standard normal distribution below x; power: exp(-x^2 / 2). */
FY_FORMULA double fy__normal_below_f64(double x, double power)
{
    (void)power;
    return 0.5 * erfc(x * -0.70710678118654752440);
}
FY_FORMULA float fy__normal_below_f32(float x, float power)
{
#if defined(__CUDA_ARCH__)
    (void)power;
    return 0.5f * erfcf(x * -0.70710678118654752440f);
#else
    /* power * N(q) / (|x| + 2.5), q = (|x| - 2.5) / (|x| + 2.5); N is fitted on 0 .. 14.5 with a
     * relative error of 2^-25.9 (Lawson's method). Source of q: Shepherd and Laframboise 1981. */
    const float u = fabsf(x) < 14.5f ? fabsf(x) : 14.5f;
    const float r = 1.0f / (u + 2.5f), q = (u - 2.5f) * r, s = q * q;
    const float even =
        (((-0.000310882984f * s + 0.00252331211f) * s - 0.0163860247f) * s + 0.131986961f) * s +
        0.706656635f;
    const float odd =
        (((-0.000157274306f * s + 0.000684335304f) * s - 0.0016009456f) * s + 0.00923590921f) * s -
        0.433692008f;
    const float tail = power * r * (even + odd * q);
    return x < 0.0f ? tail : 1.0f - tail;
#endif
}

#define FY_ACTIVATIONS(sfx, T, m)                                                              \
    FY_FORMULA T fy__relu6_##sfx(T x) { return x < (T)0 ? (T)0 : x > (T)6 ? (T)6 : x; }        \
    FY_FORMULA T fy__hardsigmoid_##sfx(T x) { return fy__relu6_##sfx(x + (T)3) / (T)6; }       \
    FY_FORMULA T fy__hardswish_##sfx(T x)                                                      \
    {                                                                                          \
        return x < (T)-3 ? (T)0 : x > (T)3 ? x : x * (x + (T)3) / (T)6;                        \
    }                                                                                          \
    FY_FORMULA T fy__silu_##sfx(T x) { return x * fy__sigmoid_##sfx(x); }                      \
    FY_FORMULA T fy__gelu_##sfx(T x)                                                           \
    {                                                                                          \
        return x * fy__normal_below_##sfx(x, exp##m((T)-0.5 * x * x));                         \
    }                                                                                          \
    FY_FORMULA T fy__softplus_##sfx(T x, T beta, T threshold)                                  \
    {                                                                                          \
        const T u = beta * x;                                                                  \
        return u > threshold ? x : log1p##m(exp##m(u)) / beta;                                 \
    }                                                                                          \
    FY_FORMULA T fy__leaky_relu_##sfx(T x, T slope, T unused)                                  \
    {                                                                                          \
        (void)unused;                                                                          \
        return x > (T)0 ? x : slope * x;                                                       \
    }                                                                                          \
    FY_FORMULA T fy__elu_##sfx(T x, T alpha, T unused)                                         \
    {                                                                                          \
        (void)unused;                                                                          \
        return x > (T)0 ? x : alpha * expm1##m(x);                                             \
    }                                                                                          \
    FY_FORMULA T fy__erf_##sfx(T x) { return erf##m(x); }                                      \
    FY_FORMULA T fy__tanh_backward_##sfx(T dy, T y) { return dy * (((T)1 - y) * ((T)1 + y)); } \
    FY_FORMULA T fy__sigmoid_backward_##sfx(T dy, T y) { return dy * (y * ((T)1 - y)); }       \
    FY_FORMULA T fy__relu_backward_##sfx(T dy, T x) { return x <= (T)0 ? (T)0 : dy; }          \
    FY_FORMULA T fy__relu6_backward_##sfx(T dy, T x)                                           \
    {                                                                                          \
        return ((x <= (T)0) | (x >= (T)6)) ? (T)0 : dy;                                        \
    }                                                                                          \
    FY_FORMULA T fy__hardsigmoid_backward_##sfx(T dy, T x)                                     \
    {                                                                                          \
        return ((x > (T)-3) & (x < (T)3)) ? dy / (T)6 : (T)0;                                  \
    }                                                                                          \
    FY_FORMULA T fy__hardswish_backward_##sfx(T dy, T x)                                       \
    {                                                                                          \
        return x <= (T)-3 ? (T)0 : x >= (T)3 ? dy : dy * (x / (T)3 + (T)0.5);                  \
    }                                                                                          \
    FY_FORMULA T fy__silu_backward_##sfx(T dy, T x)                                            \
    {                                                                                          \
        const T s = fy__sigmoid_##sfx(x);                                                      \
        return dy * s * ((T)1 + x * ((T)1 - s));                                               \
    }                                                                                          \
    FY_FORMULA T fy__gelu_backward_##sfx(T dy, T x)                                            \
    {                                                                                          \
        const T power = exp##m((T)-0.5 * x * x), below = fy__normal_below_##sfx(x, power);     \
        return dy * (below + x * power * (T)0.39894228040143267794);                           \
    }

FY_ACTIVATIONS(f32, float, f)
FY_ACTIVATIONS(f64, double, )
#undef FY_ACTIVATIONS

#define FY_GELU_TANH(sfx, T, m)                                                         \
    FY_FORMULA T fy__gelu_tanh_##sfx(T x)                                               \
    {                                                                                   \
        const T u = (T)0.79788456080286535588 * (x + (T)0.044715 * x * x * x);          \
        return (T)0.5 * x * ((T)1 + tanh##m(u));                                        \
    }                                                                                   \
    FY_FORMULA T fy__gelu_tanh_backward_##sfx(T dy, T x)                                \
    {                                                                                   \
        const T t = tanh##m((T)0.79788456080286535588 * (x + (T)0.044715 * x * x * x)); \
        const T du = (T)0.79788456080286535588 * ((T)1 + (T)0.134145 * x * x);          \
        const T slope = ((T)1 - t) * ((T)1 + t); /* 0 far out, where du is infinite */  \
        const T more = slope > (T)0 ? (T)0.5 * x * slope * du : (T)0;                   \
        return dy * ((T)0.5 * ((T)1 + t) + more);                                       \
    }

FY_GELU_TANH(f64, double, )
#if !defined(__CUDA_ARCH__)
FY_GELU_TANH(f32, float, f)
#else
/* (1 + tanh u) / 2 = 1 / (1 + e), e = exp(-2 u), by two instructions of at most 2 and 1 units in
 * the last place: an error of e moves the result by its share e / (1 + e). */
FY_FORMULA float fy__gelu_tanh_exp(float x)
{
    return fy__exp2_fast(x * (x * x * -0.102943240f - 2.30220820f)); /* -2 log2(e) u */
}
FY_FORMULA float fy__gelu_tanh_f32(float x)
{
    return x * fy__reciprocal_fast(1.0f + fy__gelu_tanh_exp(x));
}
FY_FORMULA float fy__gelu_tanh_backward_f32(float dy, float x)
{
    const float e = fy__gelu_tanh_exp(x), s = fy__reciprocal_fast(1.0f + e);
    const float rest = e * s; /* 1 - s; not above 0 far out, where e or du is infinite */
    const float more = rest * (x * (x * x * 0.214064449f + 1.59576912f));
    return dy * (s + s * (rest > 0.0f ? more : 0.0f));
}
#endif
#undef FY_GELU_TANH

#endif
