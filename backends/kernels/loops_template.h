/* The text of one loop table. Included once by each loops_<isa>.c, which sets the instruction set
 * by a pragma before its first include and names its table FY__LOOPS_TABLE. The formulas are those
 * of opset/formulas; here they only meet `for`.
 * `omp simd` says that iterations are independent: right for disjoint operands and for dst ==
 * source.
 * exp and its kin: glibc's libmvec where there is one (up to 4 ulp). Their tails are padded, so an
 * element's bits do not depend on where in a row it stands. No include guard: one inclusion per
 * translation unit is the use. */
#include <math.h>
#include <stddef.h>

#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__) && \
    __GLIBC_PREREQ(2, 35)
#define VECTOR_LIBM(f1, f2)                                        \
    extern __typeof__(f1) f1 __attribute__((simd("notinbranch"))); \
    extern __typeof__(f2) f2 __attribute__((simd("notinbranch")));
VECTOR_LIBM(exp, expf)
VECTOR_LIBM(log, logf)
VECTOR_LIBM(tanh, tanhf)
VECTOR_LIBM(sin, sinf)
VECTOR_LIBM(cos, cosf)
VECTOR_LIBM(tan, tanf)
VECTOR_LIBM(log1p, log1pf)
VECTOR_LIBM(expm1, expm1f)
VECTOR_LIBM(erf, erff)
VECTOR_LIBM(erfc, erfcf)
extern __typeof__(pow) pow __attribute__((simd("notinbranch")));
extern __typeof__(powf) powf __attribute__((simd("notinbranch")));
#endif

#include "opset/formulas/activation.h"
#include "opset/formulas/cast.h"
#include "opset/formulas/random.h"
#include "opset/formulas/scalar.h"
#include "backends/kernels/loops.h"

#define SIMD _Pragma("omp simd")
#define PAD  16 /* elements: at least one vector of the widest instruction set */

/* ---- elementwise ---- */

#define LOOP1(op, sfx, T)                                                   \
    static void op##_##sfx(int64_t n, void *dst, const void *a)             \
    {                                                                       \
        T *d = (T *)dst;                                                    \
        const T *x = (const T *)a;                                          \
        SIMD for (int64_t i = 0; i < n; i++) d[i] = fy__##op##_##sfx(x[i]); \
    }
#define LOOP2(op, sfx, T)                                                         \
    static void op##_##sfx(int64_t n, void *dst, const void *a, const void *b)    \
    {                                                                             \
        T *d = (T *)dst;                                                          \
        const T *x = (const T *)a, *y = (const T *)b;                             \
        SIMD for (int64_t i = 0; i < n; i++) d[i] = fy__##op##_##sfx(x[i], y[i]); \
    }
/* In blocks of PAD, never less: a constant trip count leaves the compiler no scalar remainder. */
#define LOOP1_LIBM(op, sfx, T)                                                 \
    static __attribute__((noinline)) void op##_block_##sfx(T *d, const T *x)   \
    {                                                                          \
        SIMD for (int i = 0; i < PAD; i++) d[i] = fy__##op##_##sfx(x[i]);      \
    }                                                                          \
    static void op##_##sfx(int64_t n, void *dst, const void *a)                \
    {                                                                          \
        T *d = (T *)dst, tail[PAD] = { 0 };                                    \
        const T *x = (const T *)a;                                             \
        for (; n >= PAD; n -= PAD, d += PAD, x += PAD) op##_block_##sfx(d, x); \
        if (n == 0) return;                                                    \
        memcpy(tail, x, (size_t)n * sizeof(T));                                \
        op##_block_##sfx(tail, tail);                                          \
        memcpy(d, tail, (size_t)n * sizeof(T));                                \
    }
#define LOOP2_LIBM(op, sfx, T)                                                              \
    static __attribute__((noinline)) void op##_block_##sfx(T *d, const T *x, const T *y)    \
    {                                                                                       \
        SIMD for (int i = 0; i < PAD; i++) d[i] = fy__##op##_##sfx(x[i], y[i]);             \
    }                                                                                       \
    static void op##_##sfx(int64_t n, void *dst, const void *a, const void *b)              \
    {                                                                                       \
        T *d = (T *)dst, tail[PAD] = { 0 }, tail2[PAD] = { 0 };                             \
        const T *x = (const T *)a, *y = (const T *)b;                                       \
        for (; n >= PAD; n -= PAD, d += PAD, x += PAD, y += PAD) op##_block_##sfx(d, x, y); \
        if (n == 0) return;                                                                 \
        memcpy(tail, x, (size_t)n * sizeof(T));                                             \
        memcpy(tail2, y, (size_t)n * sizeof(T));                                            \
        op##_block_##sfx(tail, tail, tail2);                                                \
        memcpy(d, tail, (size_t)n * sizeof(T));                                             \
    }
#define LOOP_SCALED(op, sfx, T)                                                     \
    static void op##_##sfx(int64_t n, void *dst, const void *a, double p, double q) \
    {                                                                               \
        T *d = (T *)dst;                                                            \
        const T *x = (const T *)a, p_ = (T)p, q_ = (T)q;                            \
        SIMD for (int64_t i = 0; i < n; i++) d[i] = fy__##op##_##sfx(x[i], p_, q_); \
    }
#define LOOP_SCALED_LIBM(op, sfx, T)                                                   \
    static __attribute__((noinline)) void op##_block_##sfx(T *d, const T *x, T p, T q) \
    {                                                                                  \
        SIMD for (int i = 0; i < PAD; i++) d[i] = fy__##op##_##sfx(x[i], p, q);        \
    }                                                                                  \
    static void op##_##sfx(int64_t n, void *dst, const void *a, double p, double q)    \
    {                                                                                  \
        T *d = (T *)dst, tail[PAD] = { 0 };                                            \
        const T *x = (const T *)a, p_ = (T)p, q_ = (T)q;                               \
        for (; n >= PAD; n -= PAD, d += PAD, x += PAD) op##_block_##sfx(d, x, p_, q_); \
        if (n == 0) return;                                                            \
        memcpy(tail, x, (size_t)n * sizeof(T));                                        \
        op##_block_##sfx(tail, tail, p_, q_);                                          \
        memcpy(d, tail, (size_t)n * sizeof(T));                                        \
    }
/* The loop of an op, by what its formula takes; its types, by the dtypes of the op. */
#define LOOP1_cheap             LOOP1
#define LOOP1_exp               LOOP1_LIBM
#define LOOP1_tanh              LOOP1_LIBM
#define LOOP1_erf               LOOP1_LIBM
#define LOOP_SCALED_cheap       LOOP_SCALED
#define LOOP_SCALED_exp         LOOP_SCALED_LIBM
#define LOOP2_cheap             LOOP2
#define LOOP2_tanh              LOOP2_LIBM
#define LOOP2_pow               LOOP2_LIBM
#define LOOP2_erf               LOOP2_LIBM
#define TYPES_FLOAT(LOOP, name) LOOP(name, f32, float) LOOP(name, f64, double)
#define TYPES_INTEGER(LOOP, name) \
    LOOP(name, i32, int32_t) LOOP(name, i64, int64_t) LOOP(name, u8, uint8_t)
#define TYPES_NUMBER(LOOP, name) TYPES_FLOAT(LOOP, name) TYPES_INTEGER(LOOP, name)

#define UNARY(number, ENUM, name, dtypes, maths, ...)  TYPES_##dtypes(LOOP1_##maths, name)
#define BINARY(number, ENUM, name, dtypes, maths, ...) TYPES_##dtypes(LOOP2_##maths, name)
#define SLOPE(number, ENUM, name, at, maths, ...)      TYPES_FLOAT(LOOP2_##maths, name)
#define SCALED(number, ENUM, name, attrs, maths, ...)  TYPES_FLOAT(LOOP_SCALED_##maths, name)
#include "opset/ops.def"

#define LOOPS_FLOAT(sfx, T)                                                               \
    static void affine_##sfx(int64_t n, void *dst, const void *a, double p, double q)     \
    {                                                                                     \
        T *d = (T *)dst;                                                                  \
        const T *x = (const T *)a, scale = (T)p, shift = (T)q;                            \
        SIMD for (int64_t i = 0; i < n; i++) d[i] = fy__affine_##sfx(x[i], scale, shift); \
    }                                                                                     \
    static void axpy_##sfx(int64_t n, void *dst, const void *a, double p, double unused)  \
    {                                                                                     \
        T *d = (T *)dst;                                                                  \
        const T *x = (const T *)a, alpha = (T)p;                                          \
        (void)unused;                                                                     \
        SIMD for (int64_t i = 0; i < n; i++) d[i] = fy__axpy_##sfx(d[i], alpha, x[i]);    \
    }
LOOPS_FLOAT(f32, float)
LOOPS_FLOAT(f64, double)

#define LOOPS_TRAINING(sfx, T)                                                                   \
    static void clamp_##sfx(int64_t n, void *dst, const void *a, double p, double q)             \
    {                                                                                            \
        T *d = (T *)dst;                                                                         \
        const T *x = (const T *)a, low = (T)p, high = (T)q;                                      \
        SIMD for (int64_t i = 0; i < n; i++) d[i] = fy__clamp_##sfx(x[i], low, high);            \
    }                                                                                            \
    static void clip_##sfx(int64_t n, void *dst, const void *a, double p, double unused)         \
    {                                                                                            \
        T *d = (T *)dst;                                                                         \
        const T *norm = (const T *)a, most = (T)p;                                               \
        (void)unused;                                                                            \
        SIMD for (int64_t i = 0; i < n; i++) d[i] = fy__clip_##sfx(d[i], norm[i], most);         \
    }                                                                                            \
    static void sgd_##sfx(int64_t n, const fy__rates_t *rates, void *param, void *s1, void *s2,  \
                          const void *grad)                                                      \
    {                                                                                            \
        T *p = (T *)param;                                                                       \
        const T *g = (const T *)grad;                                                            \
        const fy__rates_t r = *rates;                                                            \
        (void)s1;                                                                                \
        (void)s2;                                                                                \
        SIMD for (int64_t i = 0; i < n; i++) p[i] = fy__sgd_##sfx(&r, p[i], g[i]);               \
    }                                                                                            \
    STEP1(sgd_momentum, sfx, T)                                                                  \
    STEP1(rmsprop, sfx, T)                                                                       \
    STEP2(adam, sfx, T)                                                                          \
    STEP2(adadelta, sfx, T)                                                                      \
    STEP2(rmsprop_centered, sfx, T)                                                              \
    STEP2(rmsprop_momentum, sfx, T)                                                              \
    STEP1(lars, sfx, T)                                                                          \
    static void lamb_state_##sfx(int64_t n, const fy__rates_t *rates, void *param, void *s1,     \
                                 void *s2, const void *grad)                                     \
    {                                                                                            \
        T *a = (T *)s1, *b = (T *)s2;                                                            \
        const T *g = (const T *)grad;                                                            \
        const fy__rates_t r = *rates;                                                            \
        (void)param;                                                                             \
        SIMD for (int64_t i = 0; i < n; i++)                                                     \
        {                                                                                        \
            T mean = a[i], square = b[i];                                                        \
            fy__lamb_state_##sfx(&r, &mean, &square, g[i]);                                      \
            a[i] = mean;                                                                         \
            b[i] = square;                                                                       \
        }                                                                                        \
    }                                                                                            \
    static void lamb_update_##sfx(int64_t n, const fy__rates_t *rates, void *out, void *s1,      \
                                  void *s2, const void *param)                                   \
    {                                                                                            \
        T *u = (T *)out;                                                                         \
        const T *a = (const T *)s1, *b = (const T *)s2, *p = (const T *)param;                   \
        const fy__rates_t r = *rates;                                                            \
        SIMD for (int64_t i = 0; i < n; i++) u[i] = fy__lamb_update_##sfx(&r, p[i], a[i], b[i]); \
    }                                                                                            \
    static void lamb_##sfx(int64_t n, const fy__rates_t *rates, void *param, void *s1, void *s2, \
                           const void *grad)                                                     \
    {                                                                                            \
        T *p = (T *)param;                                                                       \
        const T *a = (const T *)s1, *b = (const T *)s2;                                          \
        const fy__rates_t r = *rates;                                                            \
        (void)grad;                                                                              \
        SIMD for (int64_t i = 0; i < n; i++) p[i] = fy__lamb_##sfx(&r, p[i], a[i], b[i]);        \
    }
#define STEP1(name, sfx, T)                                                                        \
    static void name##_##sfx(int64_t n, const fy__rates_t *rates, void *param, void *s1, void *s2, \
                             const void *grad)                                                     \
    {                                                                                              \
        T *p = (T *)param, *a = (T *)s1;                                                           \
        const T *g = (const T *)grad;                                                              \
        const fy__rates_t r = *rates;                                                              \
        (void)s2;                                                                                  \
        SIMD for (int64_t i = 0; i < n; i++)                                                       \
        {                                                                                          \
            T state = a[i];                                                                        \
            p[i] = fy__##name##_##sfx(&r, p[i], &state, g[i]);                                     \
            a[i] = state;                                                                          \
        }                                                                                          \
    }
#define STEP2(name, sfx, T)                                                                        \
    static void name##_##sfx(int64_t n, const fy__rates_t *rates, void *param, void *s1, void *s2, \
                             const void *grad)                                                     \
    {                                                                                              \
        T *p = (T *)param, *a = (T *)s1, *b = (T *)s2;                                             \
        const T *g = (const T *)grad;                                                              \
        const fy__rates_t r = *rates;                                                              \
        SIMD for (int64_t i = 0; i < n; i++)                                                       \
        {                                                                                          \
            T first = a[i], second = b[i];                                                         \
            p[i] = fy__##name##_##sfx(&r, p[i], &first, &second, g[i]);                            \
            a[i] = first;                                                                          \
            b[i] = second;                                                                         \
        }                                                                                          \
    }
LOOPS_TRAINING(f32, float)
LOOPS_TRAINING(f64, double)

#define LOOP_TEST1(op, sfx, T, expression)                          \
    static void op##_##sfx(int64_t n, void *dst, const void *first) \
    {                                                               \
        uint8_t *d = (uint8_t *)dst;                                \
        const T *x = (const T *)first;                              \
        SIMD for (int64_t i = 0; i < n; i++)                        \
        {                                                           \
            const T a = x[i];                                       \
            d[i] = (uint8_t)(expression);                           \
        }                                                           \
    }
#define TESTS_FLOAT(name, expression)        \
    LOOP_TEST1(name, f32, float, expression) \
    LOOP_TEST1(name, f64, double, expression)
#define TESTS_ANY(name, expression)            \
    TESTS_FLOAT(name, expression)              \
    LOOP_TEST1(name, i32, int32_t, expression) \
    LOOP_TEST1(name, i64, int64_t, expression) \
    LOOP_TEST1(name, u8, uint8_t, expression)
#define TEST(number, ENUM, name, dtypes, expression, ...) TESTS_##dtypes(name, expression)
#include "opset/ops.def"

#define LOOP_TEST2(op, sfx, T, expression)                                              \
    static void op##_##sfx(int64_t n, void *dst, const void *first, const void *second) \
    {                                                                                   \
        uint8_t *d = (uint8_t *)dst;                                                    \
        const T *x = (const T *)first, *y = (const T *)second;                          \
        SIMD for (int64_t i = 0; i < n; i++)                                            \
        {                                                                               \
            const T a = x[i], b = y[i];                                                 \
            d[i] = (uint8_t)(expression);                                               \
        }                                                                               \
    }
#define COMPARE(number, ENUM, name, expression, ...) \
    LOOP_TEST2(name, f32, float, expression)         \
    LOOP_TEST2(name, f64, double, expression)        \
    LOOP_TEST2(name, i32, int32_t, expression)       \
    LOOP_TEST2(name, i64, int64_t, expression)       \
    LOOP_TEST2(name, u8, uint8_t, expression)
#include "opset/ops.def"

/* ---- bytes: where, move ---- */

#define BYTES(bits)                                                                                \
    static void where_##bits(int64_t n, void *dst, const void *cond, const void *a, const void *b) \
    {                                                                                              \
        uint##bits##_t *d = (uint##bits##_t *)dst;                                                 \
        const uint##bits##_t *x = (const uint##bits##_t *)a, *y = (const uint##bits##_t *)b;       \
        const uint8_t *c = (const uint8_t *)cond;                                                  \
        SIMD for (int64_t i = 0; i < n; i++) d[i] = c[i] ? x[i] : y[i];                            \
    }                                                                                              \
    static void move_##bits(int64_t n, void *dst, int64_t ds, const void *src, int64_t ss)         \
    {                                                                                              \
        uint##bits##_t *d = (uint##bits##_t *)dst;                                                 \
        const uint##bits##_t *s = (const uint##bits##_t *)src;                                     \
        if (ds == 1 && ss == 1) {                                                                  \
            SIMD for (int64_t i = 0; i < n; i++) d[i] = s[i];                                      \
        } else if (ds == 1 && ss == -1) {                                                          \
            SIMD for (int64_t i = 0; i < n; i++) d[i] = s[-i];                                     \
        } else if (ds == 1 && ss == 0) {                                                           \
            const uint##bits##_t value = *s;                                                       \
            SIMD for (int64_t i = 0; i < n; i++) d[i] = value;                                     \
        } else {                                                                                   \
            for (int64_t i = 0; i < n; i++) d[i * ds] = s[i * ss];                                 \
        }                                                                                          \
    }
BYTES(8)
BYTES(16)
BYTES(32)
BYTES(64)

/* ---- cast: CAST(from, its type, to, its type, expression of x) ---- */

#define CAST(from, F, to, T, expression)                                \
    static void cast_##from##_##to(int64_t n, void *dst, const void *a) \
    {                                                                   \
        T *d = (T *)dst;                                                \
        const F *s = (const F *)a;                                      \
        SIMD for (int64_t i = 0; i < n; i++)                            \
        {                                                               \
            const F x = s[i];                                           \
            d[i] = (T)(expression);                                     \
        }                                                               \
    }
#define CASTS_FROM_INTEGER(from, F) \
    CAST(from, F, f32, float, x)    \
    CAST(from, F, f64, double, x)   \
    CAST(from, F, i32, int32_t, x)  \
    CAST(from, F, i64, int64_t, x)  \
    CAST(from, F, u8, uint8_t, x) CAST(from, F, bool, uint8_t, x != 0)
/* `wide` is x in the type that the formulas of suffix w take. */
#define CASTS_FROM_FLOAT(from, F, w, wide)                 \
    CAST(from, F, f32, float, wide)                        \
    CAST(from, F, f64, double, wide)                       \
    CAST(from, F, f16, uint16_t, fy__f16_from_##w(wide))   \
    CAST(from, F, bf16, uint16_t, fy__bf16_from_##w(wide)) \
    CAST(from, F, i32, int32_t, fy__i32_from_##w(wide))    \
    CAST(from, F, i64, int64_t, fy__i64_from_##w(wide))    \
    CAST(from, F, u8, uint8_t, fy__u8_from_##w(wide))      \
    CAST(from, F, bool, uint8_t, fy__bool_from_##w(wide))
CASTS_FROM_FLOAT(f32, float, f32, x)
CASTS_FROM_FLOAT(f64, double, f64, x)
CASTS_FROM_FLOAT(f16, uint16_t, f32, fy__f32_from_f16(x))
CASTS_FROM_FLOAT(bf16, uint16_t, f32, fy__f32_from_bf16(x))
CASTS_FROM_INTEGER(i32, int32_t)
CASTS_FROM_INTEGER(i64, int64_t)
CASTS_FROM_INTEGER(u8, uint8_t)
CAST(i32, int32_t, f16, uint16_t, fy__f16_from_i32(x))
CAST(i32, int32_t, bf16, uint16_t, fy__bf16_from_i32(x))
CAST(i64, int64_t, f16, uint16_t, fy__f16_from_i64(x))
CAST(i64, int64_t, bf16, uint16_t, fy__bf16_from_i64(x))
CAST(u8, uint8_t, f16, uint16_t, fy__f16_from_f32((float)x))
CAST(u8, uint8_t, bf16, uint16_t, fy__bf16_from_f32((float)x))

/* ---- chains ---- */

#include "backends/kernels/loops_chain.h"

/* ---- reductions ---- */

#include "backends/kernels/loops_reduce.h"

/* ---- random draws (opset/formulas/random.h) ---- */

/* `width` is a constant where it is inlined. */
static inline __attribute__((always_inline)) void philox_group(int width, uint64_t key,
                                                               uint64_t counter, uint32_t *lanes)
{
    uint32_t lane[4][16]; /* by lane, so that the rounds vectorise */
    SIMD for (int b = 0; b < width; b++)
    {
        const fy__philox_t block = fy__philox4x32(key, counter + (uint64_t)b, 0);
        lane[0][b] = block.lane[0];
        lane[1][b] = block.lane[1];
        lane[2][b] = block.lane[2];
        lane[3][b] = block.lane[3];
    }
    for (int b = 0; b < width; b++) {
        for (int k = 0; k < 4; k++) lanes[b * 4 + k] = lane[k][b];
    }
}

static void philox(int64_t nblocks, uint64_t key, uint64_t counter, uint32_t *lanes)
{
    int64_t first = 0;
    for (; first + 16 <= nblocks; first += 16)
        philox_group(16, key, counter + (uint64_t)first, lanes + first * 4);
    for (; first < nblocks; first += 4)
        philox_group(4, key, counter + (uint64_t)first, lanes + first * 4);
}

/* Sixteen blocks side by side: lane k of all of them serves sixteen elements in a row. */
static void dropout_keep(int64_t ngroups, uint64_t key, uint64_t counter, uint32_t threshold,
                         uint32_t *keep)
{
    for (; ngroups > 0; ngroups--, counter += FY_DROPOUT_BLOCKS, keep += FY_DROPOUT_GROUP) {
        SIMD for (int b = 0; b < FY_DROPOUT_BLOCKS; b++)
        {
            const fy__philox_t block = fy__philox4x32(key, counter + (uint64_t)b, 0);
            keep[b] = fy__dropout_keeps(block.lane[0], threshold);
            keep[b + FY_DROPOUT_BLOCKS] = fy__dropout_keeps(block.lane[1], threshold);
            keep[b + 2 * FY_DROPOUT_BLOCKS] = fy__dropout_keeps(block.lane[2], threshold);
            keep[b + 3 * FY_DROPOUT_BLOCKS] = fy__dropout_keeps(block.lane[3], threshold);
        }
    }
}

#define DROPOUT(sfx, T)                                                                            \
    static void dropout_##sfx(int64_t n, void *dst, const void *a, const uint32_t *keep, double p) \
    {                                                                                              \
        T *d = (T *)dst;                                                                           \
        const T *x = (const T *)a, scale = (T)p;                                                   \
        SIMD for (int64_t i = 0; i < n; i++) d[i] = keep[i] ? x[i] * scale                         \
                                                            : (T)0; /* zero, even of a NaN */      \
    }
DROPOUT(f32, float)
DROPOUT(f64, double)

/* Sines and cosines in separate loops: of both, the compiler makes one scalar call. */
static void normal_f32(int64_t npairs, const uint32_t *lanes, float mean, float std, float *out)
{
    for (; npairs > 0; npairs -= 8, lanes += 16, out += 16) {
        uint32_t lane[2][8];
        float radius[8], angle[8], at[2][8];
        for (int k = 0; k < 16; k++) lane[k % 2][k / 2] = lanes[k];
        SIMD for (int k = 0; k < 8; k++) radius[k] = fy__box_muller_radius_f32(lane[0][k]);
        SIMD for (int k = 0; k < 8; k++) angle[k] = fy__box_muller_angle_f32(lane[1][k]);
        SIMD for (int k = 0; k < 8; k++) at[0][k] = cosf(angle[k]);
        SIMD for (int k = 0; k < 8; k++) at[1][k] = sinf(angle[k]);
        SIMD for (int k = 0; k < 16; k++)
            out[k] = FY_MUL_ADD_F32(radius[k / 2] * at[k % 2][k / 2], std, mean);
    }
}

static void normal_f64(int64_t npairs, const uint32_t *lanes, double mean, double std, double *out)
{
    SIMD for (int64_t i = 0; i < npairs; i++)
    {
        double pair[2];
        fy__box_muller_f64(lanes + 4 * i, pair);
        out[2 * i] = FY_MUL_ADD_F64(pair[0], std, mean);
        out[2 * i + 1] = FY_MUL_ADD_F64(pair[1], std, mean);
    }
}

/* ---- matrix product ---- */

typedef double doubles_t __attribute__((vector_size(FY__GEMM_COLUMNS * sizeof(double))));

/* Six rows of C stay in registers. */
static void gemm_block_f64(int64_t k, const double *a, const double *b, double *block)
{
    doubles_t c0 = { 0 }, c1 = { 0 }, c2 = { 0 }, c3 = { 0 }, c4 = { 0 }, c5 = { 0 };
    doubles_t *c = (doubles_t *)(void *)block;
    for (int64_t p = 0; p < k; p++, a += FY__GEMM_ROWS) {
        const doubles_t row = ((const doubles_t *)(const void *)b)[p];
        c0 += a[0] * row;
        c1 += a[1] * row;
        c2 += a[2] * row;
        c3 += a[3] * row;
        c4 += a[4] * row;
        c5 += a[5] * row;
    }
    c[0] = c0;
    c[1] = c1;
    c[2] = c2;
    c[3] = c3;
    c[4] = c4;
    c[5] = c5;
}

/* ---- images ---- */

#include "backends/kernels/loops_conv.h"
#include "backends/kernels/loops_depthwise.h"
#include "backends/kernels/loops_gemm.h"
#include "backends/kernels/loops_image.h"

/* ---- normalisation ---- */

#include "backends/kernels/loops_norm.h"

/* ---- the table ---- */

#define ALL(name)                                                                              \
    {                                                                                          \
        [FY_DTYPE_F32] = name##_f32, [FY_DTYPE_F64] = name##_f64, [FY_DTYPE_I32] = name##_i32, \
        [FY_DTYPE_I64] = name##_i64, [FY_DTYPE_U8] = name##_u8                                 \
    }
#define ALL_AND_BOOL(name)                                                                     \
    {                                                                                          \
        [FY_DTYPE_F32] = name##_f32, [FY_DTYPE_F64] = name##_f64, [FY_DTYPE_I32] = name##_i32, \
        [FY_DTYPE_I64] = name##_i64, [FY_DTYPE_U8] = name##_u8, [FY_DTYPE_BOOL] = name##_u8    \
    }
#define FLOATS(name)                                             \
    {                                                            \
        [FY_DTYPE_F32] = name##_f32, [FY_DTYPE_F64] = name##_f64 \
    }
#define CAST_ROW(from)                                                                 \
    {                                                                                  \
        cast_##from##_f32, cast_##from##_f64, cast_##from##_f16, cast_##from##_bf16,   \
            cast_##from##_i32, cast_##from##_i64, cast_##from##_u8, cast_##from##_bool \
    }
#define INTEGERS(name)                                                                      \
    {                                                                                       \
        [FY_DTYPE_I32] = name##_i32, [FY_DTYPE_I64] = name##_i64, [FY_DTYPE_U8] = name##_u8 \
    }
#define TABLE_FLOAT   FLOATS
#define TABLE_INTEGER INTEGERS
#define TABLE_NUMBER  ALL
#define TABLE_ANY     ALL_AND_BOOL

const fy__loops_t FY__LOOPS_TABLE = {
    .name = FY__LOOPS_NAME,
    .unary = {
#define UNARY(number, ENUM, name, dtypes, ...) [FY__UNARY_##ENUM] = TABLE_##dtypes(name),
#include "opset/ops.def"
    },
    .binary = {
#define BINARY(number, ENUM, name, dtypes, ...) [FY__BINARY_##ENUM] = TABLE_##dtypes(name),
#define SLOPE(number, ENUM, name, ...)          [FY__BINARY_##ENUM] = FLOATS(name),
#include "opset/ops.def"
    },
    .compare = {
#define COMPARE(number, ENUM, name, ...) [FY__COMPARE_##ENUM] = ALL_AND_BOOL(name),
#include "opset/ops.def"
    },
    .test = {
#define TEST(number, ENUM, name, dtypes, ...) [FY__TEST_##ENUM] = TABLE_##dtypes(name),
#include "opset/ops.def"
    },
    .scaled = {
#define SCALED(number, ENUM, name, ...) [FY__SCALED_##ENUM] = { name##_f32, name##_f64 },
#include "opset/ops.def"
    },
    .affine = { affine_f32, affine_f64 },
    .axpy = { axpy_f32, axpy_f64 },
    .clamp = { clamp_f32, clamp_f64 },
    .clip = { clip_f32, clip_f64 },
    .step = { { sgd_f32, sgd_f64 },
              { sgd_momentum_f32, sgd_momentum_f64 },
              { adam_f32, adam_f64 },
              { adadelta_f32, adadelta_f64 },
              { rmsprop_f32, rmsprop_f64 },
              { rmsprop_momentum_f32, rmsprop_momentum_f64 },
              { rmsprop_centered_f32, rmsprop_centered_f64 },
              { lars_f32, lars_f64 },
              { lamb_state_f32, lamb_state_f64 },
              { lamb_update_f32, lamb_update_f64 },
              { lamb_f32, lamb_f64 } },
    .cast = { [FY_DTYPE_F32] = CAST_ROW(f32),
              [FY_DTYPE_F64] = CAST_ROW(f64),
              [FY_DTYPE_F16] = CAST_ROW(f16),
              [FY_DTYPE_BF16] = CAST_ROW(bf16),
              [FY_DTYPE_I32] = CAST_ROW(i32),
              [FY_DTYPE_I64] = CAST_ROW(i64),
              [FY_DTYPE_U8] = CAST_ROW(u8),
              [FY_DTYPE_BOOL] = CAST_ROW(u8) },
    .where = { where_8, where_16, where_32, where_64 },
    .move = { move_8, move_16, move_32, move_64 },
    .sum_row = ALL_AND_BOOL(sum_row),
    .sum_columns = ALL_AND_BOOL(sum_columns),
    .product_row = ALL_AND_BOOL(product_row),
    .product_columns = ALL_AND_BOOL(product_columns),
    .count_row = ALL_AND_BOOL(count_row),
    .count_columns = ALL_AND_BOOL(count_columns),
    .square_row = { square_row_f32, square_row_f64 },
    .square_columns = { square_columns_f32, square_columns_f64 },
    .max_row = ALL(max_row),
    .min_row = ALL(min_row),
    .sum_squares = { sum_squares_f32, sum_squares_f64 },
    .exp_row_f32 = exp_row_f32,
    .exp_row_f64 = exp_row_f64,
    .chain_f32 = chain_f32,
    .philox = philox,
    .dropout_keep = dropout_keep,
    .dropout = { dropout_f32, dropout_f64 },
    .normal_f32 = normal_f32,
    .normal_f64 = normal_f64,
    .gemm_block_f64 = gemm_block_f64,
    FEW_LOOPS DEPTH_LOOPS.max_pool_f32 = max_pool_f32,
    .avg_pool_f32 = avg_pool_f32,
    .max_pool_backward_f32 = max_pool_backward_f32,
    .avg_pool_backward_f32 = avg_pool_backward_f32,
    .norm_moments = { norm_moments_f32, norm_moments_f64 },
    .norm_join = { norm_join_f32, norm_join_f64 },
    .norm_apply = { norm_apply_f32, norm_apply_f64 },
    .norm_sums = { norm_sums_f32, norm_sums_f64 },
    .norm_dx = { norm_dx_f32, norm_dx_f64 },
    .norm_row_sums = { norm_row_sums_f32, norm_row_sums_f64 },
    .norm_row_apply = { norm_row_apply_f32, norm_row_apply_f64 },
    .norm_row_products = { norm_row_products_f32, norm_row_products_f64 },
    .norm_row_dx = { norm_row_dx_f32, norm_row_dx_f64 },
    .norm_row_params = { norm_row_params_f32, norm_row_params_f64 },
    .gemm_small_f32 = gemm_small_f32,
};
