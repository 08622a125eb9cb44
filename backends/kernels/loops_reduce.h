/* The reduction part of a loop table: sums, products, counts, extremes and squares of rows and of
 * columns. Lanes of partial sums are fixed by the code, not by the thread count.
 * Included by loops_template.h alone; all that is said there holds here. Not here: which rows there
 * are (reduce.c). */

#define SUM(sfx, T, member, S, U)                                                                  \
    static void sum_row_##sfx(int64_t n, const void *a, fy__sum_t *sum)                            \
    {                                                                                              \
        const T *x = (const T *)a;                                                                 \
        U total = 0;                                                                               \
        _Pragma("omp simd reduction(+ : total)") for (int64_t i = 0; i < n; i++)                   \
            total += (U)(S)x[i];                                                                   \
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
        for (int64_t i = 0; i < n; i++) total *= (U)(S)x[i];                                       \
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

#define EXTREME(name, op, sfx, T)                                                                  \
    static void name##_row_##sfx(int64_t n, void *dst, const void *a)                              \
    {                                                                                              \
        const T *x = (const T *)a;                                                                 \
        T best = *(T *)dst, lanes[32];                                                             \
        int64_t i = 0;                                                                             \
        if (n >= 64) {                                                                             \
            for (int j = 0; j < 32; j++) lanes[j] = x[j];                                          \
            for (i = 32; i + 32 <= n; i += 32) {                                                   \
                SIMD for (int j = 0; j < 32; j++) lanes[j] = fy__##op##_##sfx(lanes[j], x[i + j]); \
            }                                                                                      \
            for (int j = 0; j < 32; j++) best = fy__##op##_##sfx(best, lanes[j]);                  \
        }                                                                                          \
        for (; i < n; i++) best = fy__##op##_##sfx(best, x[i]);                                    \
        *(T *)dst = best;                                                                          \
    }
#define EXTREMES(sfx, T) EXTREME(max, maximum, sfx, T) EXTREME(min, minimum, sfx, T)
EXTREMES(f32, float)
EXTREMES(f64, double)
EXTREMES(i32, int32_t)
EXTREMES(i64, int64_t)
EXTREMES(u8, uint8_t)

#define FLOAT_ROWS(sfx, T)                                                                      \
    static void square_row_##sfx(int64_t n, const void *a, fy__sum_t *sum)                      \
    {                                                                                           \
        const T *x = (const T *)a;                                                              \
        double total = 0, lanes[32] = { 0 }; /* one sum would wait for its own last addition */ \
        int64_t i = 0;                                                                          \
        for (; i + 32 <= n; i += 32) {                                                          \
            SIMD for (int j = 0; j < 32; j++) lanes[j] += (double)x[i + j] * (double)x[i + j];  \
        }                                                                                       \
        for (int j = 0; j < 32; j++) total += lanes[j];                                         \
        for (; i < n; i++) total += (double)x[i] * (double)x[i];                                \
        sum->f += total;                                                                        \
    }                                                                                           \
    static void square_columns_##sfx(int64_t n, const void *a, fy__sum_t *sums)                 \
    {                                                                                           \
        const T *x = (const T *)a;                                                              \
        SIMD for (int64_t i = 0; i < n; i++) sums[i].f += (double)x[i] * (double)x[i];          \
    }                                                                                           \
    static void sum_squares_##sfx(int64_t n, const void *a, const void *b, double *sum)         \
    {                                                                                           \
        const T *x = (const T *)a, *y = (const T *)b;                                           \
        double total = 0;                                                                       \
        _Pragma("omp simd reduction(+ : total)") for (int64_t i = 0; i < n; i++)                \
        {                                                                                       \
            const double d = (double)x[i] - (double)y[i];                                       \
            total += d * d;                                                                     \
        }                                                                                       \
        *sum += total;                                                                          \
    }                                                                                           \
    static double exp_row_##sfx(int64_t n, T *dst, const T *a, T shift)                         \
    {                                                                                           \
        const int64_t padded = (n + PAD - 1) / PAD * PAD;                                       \
        double total = 0;                                                                       \
        SIMD for (int64_t i = 0; i < n; i++) dst[i] = a[i] - shift;                             \
        for (int64_t i = n; i < padded; i++) dst[i] = (T)0;                                     \
        for (int64_t i = 0; i < padded; i += PAD) exp_block_##sfx(dst + i, dst + i);            \
        _Pragma("omp simd reduction(+ : total)") for (int64_t i = 0; i < n; i++)                \
            total += (double)dst[i];                                                            \
        return total;                                                                           \
    }
FLOAT_ROWS(f32, float)
FLOAT_ROWS(f64, double)
