// Elementwise formulas by op, for kernels that know the op only when they run (elementwise.cu,
// chain.cu): apply(). The formulas themselves are in opset/formulas.
#ifndef FERRY_BACKENDS_CUDA_KERNELS_FORMULAS_CUH_
#define FERRY_BACKENDS_CUDA_KERNELS_FORMULAS_CUH_

#include "backends/cuda/kernels/wide.cuh"

#include "opset/formulas/activation.h"

#define EACH \
    for (int i = 0; i < W; i++) r[i]

// The formula of a row, for each type of computation: f_NAME.
#define DEFINE1(name, sfx, T) \
    __device__ inline T f_##name(T x) { return fy__##name##_##sfx(x); }
#define DEFINE2(name, sfx, T) \
    __device__ inline T f_##name(T x, T y) { return fy__##name##_##sfx(x, y); }
#define DEFINE_SCALED(name, sfx, T) \
    __device__ inline T f_##name(T x, T p, T q) { return fy__##name##_##sfx(x, p, q); }
#define TYPES_FLOAT(DEFINE, name)            DEFINE(name, f32, float) DEFINE(name, f64, double)
#define TYPES_INTEGER(DEFINE, name)          DEFINE(name, i64, int64_t)
#define TYPES_NUMBER(DEFINE, name)           TYPES_FLOAT(DEFINE, name) TYPES_INTEGER(DEFINE, name)
#define UNARY(number, ENUM, name, set, ...)  TYPES_##set(DEFINE1, name)
#define BINARY(number, ENUM, name, set, ...) TYPES_##set(DEFINE2, name)
#define SLOPE(number, ENUM, name, ...)       TYPES_FLOAT(DEFINE2, name)
#define SCALED(number, ENUM, name, ...)      TYPES_FLOAT(DEFINE_SCALED, name)
#include "opset/ops.def"

__device__ inline float f_affine(float x, float p, float q) { return fy__affine_f32(x, p, q); }
__device__ inline double f_affine(double x, double p, double q) { return fy__affine_f64(x, p, q); }
__device__ inline float f_axpy(float y, float p, float x) { return fy__axpy_f32(y, p, x); }
__device__ inline double f_axpy(double y, double p, double x) { return fy__axpy_f64(y, p, x); }
__device__ inline float f_clamp(float x, float p, float q) { return fy__clamp_f32(x, p, q); }
__device__ inline double f_clamp(double x, double p, double q) { return fy__clamp_f64(x, p, q); }
__device__ inline float f_clip(float x, float p, float q) { return fy__clip_f32(x, p, q); }
__device__ inline double f_clip(double x, double p, double q) { return fy__clip_f64(x, p, q); }

#define CASE1(ENUM, name)      \
    case FY_OP_##ENUM:         \
        EACH = f_##name(a[i]); \
        break;
#define CASE2(ENUM, name)            \
    case FY_OP_##ENUM:               \
        EACH = f_##name(a[i], b[i]); \
        break;
#define CASE_SCALED(ENUM, name)                              \
    case FY_OP_##ENUM:                                       \
        EACH = f_##name(a[i], (T)numbers[0], (T)numbers[1]); \
        break;
#define CASE_HOLDS(ENUM, expression) \
    case FY_OP_##ENUM: return expression;
template <typename T> __device__ inline bool holds(uint32_t op, T a)
{
    switch (op) {
#define TESTS_FLOAT                                    CASE_HOLDS
#define TESTS_ANY                                      CASE_HOLDS
#define TEST(number, ENUM, name, set, expression, ...) TESTS_##set(ENUM, expression)
#include "opset/ops.def"
    default: return false;
    }
}
template <typename T> __device__ inline bool holds(uint32_t op, T a, T b)
{
    switch (op) {
#define COMPARE(number, ENUM, name, expression, ...) CASE_HOLDS(ENUM, expression)
#include "opset/ops.def"
    default: return false;
    }
}
#define CASE_TEST(ENUM)                      \
    case FY_OP_##ENUM:                       \
        EACH = holds<T>(FY_OP_##ENUM, a[i]); \
        break;
#define CASE_COMPARE(ENUM) \
    case FY_OP_##ENUM: EACH = holds<T>(FY_OP_##ENUM, a[i], b[i]); break;

// r = op(a, b) for W elements at once, so that the switch is paid once for all of them. numbers:
// the op's attributes. y: dst as it was (axpy, clip_by_norm).
template <int W, typename T>
__device__ inline void apply(uint32_t op, const double *numbers, const T *a, const T *b, const T *y,
                             T *r)
{
    switch (op) {
    case FY_OP_AFFINE: EACH = f_affine(a[i], (T)numbers[0], (T)numbers[1]); break;
    case FY_OP_AXPY: EACH = f_axpy(y[i], (T)numbers[0], a[i]); break;
    case FY_OP_CLAMP: EACH = f_clamp(a[i], (T)numbers[0], (T)numbers[1]); break;
    case FY_OP_CLIP_BY_NORM: EACH = f_clip(y[i], a[i], (T)numbers[0]); break;
#define UNARY(number, ENUM, name, ...) CASE1(ENUM, name)
#define CASE2F_FLOAT                   CASE2
#define CASE2F_NUMBER                  CASE2
#define CASE2F_INTEGER(ENUM, name)
#define BINARY(number, ENUM, name, set, ...) CASE2F_##set(ENUM, name)
#define TEST(number, ENUM, name, ...)        CASE_TEST(ENUM)
#define SLOPE(number, ENUM, name, ...)       CASE2(ENUM, name)
#define SCALED(number, ENUM, name, ...)      CASE_SCALED(ENUM, name)
#define COMPARE(number, ENUM, name, ...)     CASE_COMPARE(ENUM)
#include "opset/ops.def"
    default: EACH = a[i]; break; // copy that accumulates
    }
}

// i64 and then narrowing is exact for i32, u8 and bool: integers wrap around.
template <int W>
__device__ inline void apply(uint32_t op, const double *, const int64_t *a, const int64_t *b,
                             const int64_t *, int64_t *r)
{
    typedef int64_t T;
#define CASE1_FLOAT(ENUM, name)
#define CASE2_FLOAT(ENUM, name)
#define CASE1_NUMBER  CASE1
#define CASE2_NUMBER  CASE2
#define CASE2_INTEGER CASE2
    switch (op) {
#define UNARY(number, ENUM, name, set, ...)  CASE1_##set(ENUM, name)
#define BINARY(number, ENUM, name, set, ...) CASE2_##set(ENUM, name)
#define SLOPE(...)
#define SCALED(...)
#define TEST(number, ENUM, name, ...)    CASE_TEST(ENUM)
#define COMPARE(number, ENUM, name, ...) CASE_COMPARE(ENUM)
#include "opset/ops.def"
    default: EACH = a[i]; break;
    }
}

// Does the op read dst?
__device__ inline bool updates(uint32_t op) { return op == FY_OP_AXPY || op == FY_OP_CLIP_BY_NORM; }

#endif
