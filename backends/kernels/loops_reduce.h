/* The reduction part of a loop table: sums, products, counts, extremes and squares of rows and of
 * columns. Lanes of partial sums are fixed by the code, not by the thread count.
 * Included by loops_template.h alone; all that is said there holds here. Not here: which rows there
 * are (reduce.c). */

/* A reduction of `total` over x in lanes, which would else wait for its own last step, then of the
 * lanes in halves: the order is the same on every instruction set. */
enum { SUM_LANES = 32 };
#define IN_LANES(U, STEP, element)                                                                 \
    U lanes[SUM_LANES];                                                                            \
    int64_t i = 0;                                                                                 \
    if (n >= SUM_LANES) {                                                                          \
        for (int j = 0; j < SUM_LANES; j++) lanes[j] = element(x[j]);                              \
        for (i = SUM_LANES; i + SUM_LANES <= n; i += SUM_LANES) {                                  \
            SIMD for (int j = 0; j < SUM_LANES; j++) lanes[j] = STEP(lanes[j], element(x[i + j])); \
        }                                                                                          \
        HALVE(16, STEP)                                                                            \
        HALVE(8, STEP) HALVE(4, STEP) HALVE(2, STEP) HALVE(1, STEP) total = STEP(total, lanes[0]); \
    }                                                                                              \
    for (; i < n; i++) total = STEP(total, element(x[i]));
#define HALVE(most, STEP) \
    SIMD for (int j = 0; j < most; j++) lanes[j] = STEP(lanes[j], lanes[j + most]);
#define PLUS(a, b)       ((a) + (b))
#define TIMES(a, b)      ((a) * (b))
#define SAME(a)          (a)
#define SQUARE(a)        ((double)(a) * (double)(a))
#define WIDE_double(a)   ((double)(a))
#define WIDE_uint64_t(a) ((uint64_t)(int64_t)(a))

#define SUM(sfx, T, member, S, U)                                                                  \
    static void sum_row_##sfx(int64_t n, const void *a, fy__sum_t *sum)                            \
    {                                                                                              \
        const T *x = (const T *)a;                                                                 \
        U total = 0;                                                                               \
        IN_LANES(U, PLUS, WIDE_##U)                                                                \
        sum->member = (S)((U)sum->member + total);                                                 \
    }                                                                                              \
    static void sum_columns_##sfx(int64_t n, const void *a, fy__sum_t *sums)                       \
    {                                                                                              \
        const T *x = (const T *)a;                                                                 \
        SIMD for (int64_t i = 0; i < n; i++) sums[i].member = (S)((U)sums[i].member + (U)(S)x[i]); \
    }
SUM(f32, float, f, double, double)
SUM(f64, double, f, double, double)
SUM(i32, int32_t, i, int64_t, uint64_t)
SUM(i64, int64_t, i, int64_t, uint64_t)
SUM(u8, uint8_t, i, int64_t, uint64_t)

/* Products, as sums; and how many elements are not 0. */
#define PRODUCT(sfx, T, member, S, U)                                                              \
    static void product_row_##sfx(int64_t n, const void *a, fy__sum_t *sum)                        \
    {                                                                                              \
        const T *x = (const T *)a;                                                                 \
        U total = (U)sum->member;                                                                  \
        IN_LANES(U, TIMES, WIDE_##U)                                                               \
        sum->member = (S)total;                                                                    \
    }                                                                                              \
    static void product_columns_##sfx(int64_t n, const void *a, fy__sum_t *sums)                   \
    {                                                                                              \
        const T *x = (const T *)a;                                                                 \
        SIMD for (int64_t i = 0; i < n; i++) sums[i].member = (S)((U)sums[i].member * (U)(S)x[i]); \
    }                                                                                              \
    static void count_row_##sfx(int64_t n, const void *a, fy__sum_t *sum)                          \
    {                                                                                              \
        const T *x = (const T *)a;                                                                 \
        int64_t total = 0;                                                                         \
        _Pragma("omp simd reduction(+ : total)") for (int64_t i = 0; i < n; i++)                   \
            total += x[i] != 0;                                                                    \
        sum->i += total;                                                                           \
    }                                                                                              \
    static void count_columns_##sfx(int64_t n, const void *a, fy__sum_t *sums)                     \
    {                                                                                              \
        const T *x = (const T *)a;                                                                 \
        SIMD for (int64_t i = 0; i < n; i++) sums[i].i += x[i] != 0;                               \
    }
PRODUCT(f32, float, f, double, double)
PRODUCT(f64, double, f, double, double)
PRODUCT(i32, int32_t, i, int64_t, uint64_t)
PRODUCT(i64, int64_t, i, int64_t, uint64_t)
PRODUCT(u8, uint8_t, i, int64_t, uint64_t)

#define EXTREME(name, op, sfx, T)                                     \
    static void name##_row_##sfx(int64_t n, void *dst, const void *a) \
    {                                                                 \
        const T *x = (const T *)a;                                    \
        T total = *(T *)dst;                                          \
        IN_LANES(T, fy__##op##_##sfx, SAME)                           \
        *(T *)dst = total;                                            \
    }
#define EXTREMES(sfx, T) EXTREME(max, maximum, sfx, T) EXTREME(min, minimum, sfx, T)
EXTREMES(f32, float)
EXTREMES(f64, double)
EXTREMES(i32, int32_t)
EXTREMES(i64, int64_t)
EXTREMES(u8, uint8_t)

#define FLOAT_ROWS(sfx, T)                                                              \
    static void square_row_##sfx(int64_t n, const void *a, fy__sum_t *sum)              \
    {                                                                                   \
        const T *x = (const T *)a;                                                      \
        double total = 0;                                                               \
        IN_LANES(double, PLUS, SQUARE)                                                  \
        sum->f += total;                                                                \
    }                                                                                   \
    static void square_columns_##sfx(int64_t n, const void *a, fy__sum_t *sums)         \
    {                                                                                   \
        const T *x = (const T *)a;                                                      \
        SIMD for (int64_t i = 0; i < n; i++) sums[i].f += (double)x[i] * (double)x[i];  \
    }                                                                                   \
    static void sum_squares_##sfx(int64_t n, const void *a, const void *b, double *sum) \
    {                                                                                   \
        const T *x = (const T *)a, *y = (const T *)b;                                   \
        double total = 0;                                                               \
        _Pragma("omp simd reduction(+ : total)") for (int64_t i = 0; i < n; i++)        \
        {                                                                               \
            const double d = (double)x[i] - (double)y[i];                               \
            total += d * d;                                                             \
        }                                                                               \
        *sum += total;                                                                  \
    }                                                                                   \
    static double exp_row_##sfx(int64_t n, T *dst, const T *a, T shift)                 \
    {                                                                                   \
        fy__sum_t sum = { .f = 0 };                                                     \
        SIMD for (int64_t i = 0; i < n; i++) dst[i] = a[i] - shift;                     \
        exp_##sfx(n, dst, dst);                                                         \
        sum_row_##sfx(n, dst, &sum);                                                    \
        return sum.f;                                                                   \
    }
FLOAT_ROWS(f32, float)
FLOAT_ROWS(f64, double)
