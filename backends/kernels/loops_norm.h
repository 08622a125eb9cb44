/* Loops of normalisation over blocks of rows: statistics and sums of columns, and one pass that
 * writes the result. Part of loops_template.h.
 * A block's sums are of the compute type; blocks are joined in f64. A column's bits depend only on
 * its own values. */

/* A vector of this instruction set: a longer one would be split element by element. */
#ifdef __AVX512F__
#define NORM_NBYTES 64
#elif defined(__AVX__)
#define NORM_NBYTES 32
#else
#define NORM_NBYTES 16
#endif

#define NORM_LOOPS(sfx, T)                                                                           \
    typedef T norm_##sfx##_t __attribute__((vector_size(NORM_NBYTES)));                              \
    typedef T norm_##sfx##_at __attribute__((vector_size(NORM_NBYTES), aligned(sizeof(T))));         \
    enum { NORM_WIDE_##sfx = NORM_NBYTES / sizeof(T) };                                              \
    /* Of each column: `mean`, the block's mean as rounded; the sums of what differs from it, and  \
     * of the squares of that. */ \
    static void norm_moments_##sfx(int64_t rows, int64_t columns, const void *x, int64_t stride,     \
                                   void *mean, void *rest, void *squares)                            \
    {                                                                                                \
        const T *a = x, share = (T)1 / (T)rows;                                                      \
        T *m = mean, *s = rest, *q = squares;                                                        \
        int64_t j = 0;                                                                               \
        for (; j + NORM_WIDE_##sfx <= columns; j += NORM_WIDE_##sfx) {                               \
            norm_##sfx##_t sum = { 0 }, left = { 0 }, square = { 0 };                                \
            for (int64_t i = 0; i < rows; i++)                                                       \
                sum += *(const norm_##sfx##_at *)(const void *)(a + i * stride + j);                 \
            sum *= share;                                                                            \
            for (int64_t i = 0; i < rows; i++) {                                                     \
                const norm_##sfx##_t d =                                                             \
                    *(const norm_##sfx##_at *)(const void *)(a + i * stride + j) - sum;              \
                left += d;                                                                           \
                square += d * d;                                                                     \
            }                                                                                        \
            *(norm_##sfx##_at *)(void *)(m + j) = sum;                                               \
            *(norm_##sfx##_at *)(void *)(s + j) = left;                                              \
            *(norm_##sfx##_at *)(void *)(q + j) = square;                                            \
        }                                                                                            \
        for (; j < columns; j++) {                                                                   \
            T sum = 0, left = 0, square = 0;                                                         \
            for (int64_t i = 0; i < rows; i++) sum += a[i * stride + j];                             \
            sum *= share;                                                                            \
            for (int64_t i = 0; i < rows; i++) {                                                     \
                const T d = a[i * stride + j] - sum;                                                 \
                left += d;                                                                           \
                square += d * d;                                                                     \
            }                                                                                        \
            m[j] = sum;                                                                              \
            s[j] = left;                                                                             \
            q[j] = square;                                                                           \
        }                                                                                            \
    }                                                                                                \
    /* Joins a block's moments to those of `before` rows (Chan, Golub and LeVeque 1979). */          \
    static void norm_join_##sfx(int64_t columns, double before, double rows, const void *mean,       \
                                const void *rest, const void *squares, double *out_mean,             \
                                double *out_m2)                                                      \
    {                                                                                                \
        const T *m = mean, *s = rest, *q = squares;                                                  \
        const double share = rows / (before + rows), weight = before * share, each = 1 / rows;       \
        SIMD for (int64_t j = 0; j < columns; j++)                                                   \
        {                                                                                            \
            const double left = (double)s[j] * each, delta = (double)m[j] + left - out_mean[j];      \
            out_mean[j] += delta * share;                                                            \
            out_m2[j] += (double)q[j] - (double)s[j] * left + delta * delta * weight;                \
        }                                                                                            \
    }                                                                                                \
    static inline void norm_row_##sfx(int64_t n, T *restrict y, const T *x, const T *add,            \
                                      const T *center, const T *scale, const T *shift,               \
                                      const int relu)                                                \
    {                                                                                                \
        SIMD for (int64_t j = 0; j < n; j++)                                                         \
        {                                                                                            \
            T value = (x[j] - center[j]) * scale[j] + shift[j];                                      \
            if (add) value += add[j];                                                                \
            y[j] = relu && value < 0 ? (T)0 : value;                                                 \
        }                                                                                            \
    }                                                                                                \
    static void norm_apply_##sfx(const fy__norm_rows_t *r)                                           \
    {                                                                                                \
        for (int64_t i = 0; i < r->rows; i++) {                                                      \
            const T *x = (const T *)r->x + i * r->x_stride,                                          \
                    *add = r->add ? (const T *)r->add + i * r->add_stride : NULL;                    \
            T *y = (T *)r->out + i * r->out_stride;                                                  \
            if (add && r->relu)                                                                      \
                norm_row_##sfx(r->columns, y, x, add, r->center, r->scale, r->shift, 1);             \
            else if (add)                                                                            \
                norm_row_##sfx(r->columns, y, x, add, r->center, r->scale, r->shift, 0);             \
            else if (r->relu)                                                                        \
                norm_row_##sfx(r->columns, y, x, NULL, r->center, r->scale, r->shift, 1);            \
            else                                                                                     \
                norm_row_##sfx(r->columns, y, x, NULL, r->center, r->scale, r->shift, 0);            \
        }                                                                                            \
    }                                                                                                \
    /* sums[j] += dy, products[j] += dy (x - center), of a block in T first. dy counts where y is  \
     * not 0 or less. */ \
    static void norm_sums_##sfx(const fy__norm_rows_t *r, double *sums, double *products)            \
    {                                                                                                \
        const T *x = r->x, *dy = r->dy, *y = r->y, *center = r->center;                              \
        int64_t j = 0;                                                                               \
        for (; j + NORM_WIDE_##sfx <= r->columns; j += NORM_WIDE_##sfx) {                            \
            const norm_##sfx##_t c = *(const norm_##sfx##_at *)(const void *)(center + j);           \
            norm_##sfx##_t sum = { 0 }, product = { 0 };                                             \
            for (int64_t i = 0; i < r->rows; i++) {                                                  \
                const norm_##sfx##_t d =                                                             \
                    *(const norm_##sfx##_at *)(const void *)(x + i * r->x_stride + j) - c;           \
                norm_##sfx##_t g =                                                                   \
                    *(const norm_##sfx##_at *)(const void *)(dy + i * r->dy_stride + j);             \
                if (y) {                                                                             \
                    const norm_##sfx##_t v =                                                         \
                        *(const norm_##sfx##_at *)(const void *)(y + i * r->y_stride + j);           \
                    g = (norm_##sfx##_t)(~(v <= 0) & (__typeof__(v <= 0))g);                         \
                }                                                                                    \
                sum += g;                                                                            \
                product += g * d;                                                                    \
            }                                                                                        \
            for (int k = 0; k < NORM_WIDE_##sfx; k++) {                                              \
                sums[j + k] += (double)sum[k];                                                       \
                products[j + k] += (double)product[k];                                               \
            }                                                                                        \
        }                                                                                            \
        for (; j < r->columns; j++) {                                                                \
            T sum = 0, product = 0;                                                                  \
            for (int64_t i = 0; i < r->rows; i++) {                                                  \
                const T g = y && y[i * r->y_stride + j] <= 0 ? (T)0 : dy[i * r->dy_stride + j];      \
                sum += g;                                                                            \
                product += g * (x[i * r->x_stride + j] - center[j]);                                 \
            }                                                                                        \
            sums[j] += (double)sum;                                                                  \
            products[j] += (double)product;                                                          \
        }                                                                                            \
    }                                                                                                \
    /* dx = scale dy - (x - center) slope - shift */                                                 \
    static inline void norm_dx_row_##sfx(int64_t n, T *restrict dx, const T *dy, const T *x,         \
                                         const T *y, const T *center, const T *scale,                \
                                         const T *slope, const T *shift, const int adds)             \
    {                                                                                                \
        SIMD for (int64_t j = 0; j < n; j++)                                                         \
        {                                                                                            \
            const T g = y && y[j] <= 0 ? (T)0 : dy[j];                                               \
            const T value = g * scale[j] - (x[j] - center[j]) * slope[j] - shift[j];                 \
            dx[j] = adds ? dx[j] + value : value;                                                    \
        }                                                                                            \
    }                                                                                                \
    static void norm_dx_##sfx(const fy__norm_rows_t *r)                                              \
    {                                                                                                \
        for (int64_t i = 0; i < r->rows; i++) {                                                      \
            const T *x = (const T *)r->x + i * r->x_stride,                                          \
                    *dy = (const T *)r->dy + i * r->dy_stride,                                       \
                    *y = r->y ? (const T *)r->y + i * r->y_stride : NULL;                            \
            T *dx = (T *)r->out + i * r->out_stride;                                                 \
            if (r->adds)                                                                             \
                norm_dx_row_##sfx(r->columns, dx, dy, x, y, r->center, r->scale, r->slope,           \
                                  r->shift, 1);                                                      \
            else if (y)                                                                              \
                norm_dx_row_##sfx(r->columns, dx, dy, x, y, r->center, r->scale, r->slope,           \
                                  r->shift, 0);                                                      \
            else                                                                                     \
                norm_dx_row_##sfx(r->columns, dx, dy, x, NULL, r->center, r->scale, r->slope,        \
                                  r->shift, 0);                                                      \
        }                                                                                            \
    }
NORM_LOOPS(f32, float)
NORM_LOOPS(f64, double)

/* Rows: n neighbours. Sums are added up in lanes of T; n is at most some thousand. */
#define NORM_ROWS(sfx, T)                                                                      \
    static double norm_total_##sfx(norm_##sfx##_t lanes)                                       \
    {                                                                                          \
        double sum = 0;                                                                        \
        for (int k = 0; k < NORM_WIDE_##sfx; k++) sum += (double)lanes[k];                     \
        return sum;                                                                            \
    }                                                                                          \
    /* The sums of a - center and of its square. */                                            \
    static void norm_row_sums_##sfx(int64_t n, const void *a, double center, double *sums)     \
    {                                                                                          \
        const T *x = a, c = (T)center;                                                         \
        norm_##sfx##_t sum = { 0 }, square = { 0 };                                            \
        int64_t j = 0;                                                                         \
        for (; j + NORM_WIDE_##sfx <= n; j += NORM_WIDE_##sfx) {                               \
            const norm_##sfx##_t d = *(const norm_##sfx##_at *)(const void *)(x + j) - c;      \
            sum += d;                                                                          \
            square += d * d;                                                                   \
        }                                                                                      \
        for (int k = 0; j < n; j++, k++) {                                                     \
            const T d = x[j] - c;                                                              \
            sum[k] += d;                                                                       \
            square[k] += d * d;                                                                \
        }                                                                                      \
        sums[0] = norm_total_##sfx(sum);                                                       \
        sums[1] = norm_total_##sfx(square);                                                    \
    }                                                                                          \
    /* y = (x - mean) rstd weight + bias; what rounding the mean loses is subtracted after. */ \
    static void norm_row_apply_##sfx(int64_t n, void *dst, const void *a, const void *weight,  \
                                     const void *bias, double mean, double rstd)               \
    {                                                                                          \
        const T *x = a, *w = weight, *b = bias;                                                \
        const T c = (T)mean, r = (T)rstd, rest = (T)((mean - (double)c) * rstd);               \
        T *y = dst;                                                                            \
        if (w && b) {                                                                          \
            SIMD for (int64_t j = 0; j < n; j++) y[j] = ((x[j] - c) * r - rest) * w[j] + b[j]; \
        } else if (w) {                                                                        \
            SIMD for (int64_t j = 0; j < n; j++) y[j] = ((x[j] - c) * r - rest) * w[j];        \
        } else {                                                                               \
            SIMD for (int64_t j = 0; j < n; j++) y[j] = (x[j] - c) * r - rest;                 \
        }                                                                                      \
    }                                                                                          \
    /* The sums of dy weight and of dy weight (x - mean). */                                   \
    static void norm_row_products_##sfx(int64_t n, const void *grad, const void *weight,       \
                                        const void *a, double mean, double *sums)              \
    {                                                                                          \
        const T *dy = grad, *w = weight, *x = a, c = (T)mean;                                  \
        norm_##sfx##_t sum = { 0 }, product = { 0 };                                           \
        int64_t j = 0;                                                                         \
        for (; j + NORM_WIDE_##sfx <= n; j += NORM_WIDE_##sfx) {                               \
            norm_##sfx##_t g = *(const norm_##sfx##_at *)(const void *)(dy + j);               \
            if (w) g *= *(const norm_##sfx##_at *)(const void *)(w + j);                       \
            sum += g;                                                                          \
            product += g * (*(const norm_##sfx##_at *)(const void *)(x + j) - c);              \
        }                                                                                      \
        for (int k = 0; j < n; j++, k++) {                                                     \
            const T g = w ? dy[j] * w[j] : dy[j];                                              \
            sum[k] += g;                                                                       \
            product[k] += g * (x[j] - c);                                                      \
        }                                                                                      \
        sums[0] = norm_total_##sfx(sum);                                                       \
        sums[1] = norm_total_##sfx(product);                                                   \
    }                                                                                          \
    /* dx = dy weight by[0] - (x - mean) by[1] - by[2] */                                      \
    static void norm_row_dx_##sfx(int64_t n, void *dst, const void *grad, const void *weight,  \
                                  const void *a, double mean, const double *by, int adds)      \
    {                                                                                          \
        const T *dy = grad, *w = weight, *x = a;                                               \
        const T c = (T)mean, scale = (T)by[0], slope = (T)by[1], shift = (T)by[2];             \
        T *dx = dst;                                                                           \
        if (adds || !w) {                                                                      \
            SIMD for (int64_t j = 0; j < n; j++)                                               \
            {                                                                                  \
                const T g = w ? dy[j] * w[j] : dy[j];                                          \
                const T value = g * scale - (x[j] - c) * slope - shift;                        \
                dx[j] = adds ? dx[j] + value : value;                                          \
            }                                                                                  \
        } else {                                                                               \
            SIMD for (int64_t j = 0; j < n; j++)                                               \
                dx[j] = dy[j] * w[j] * scale - (x[j] - c) * slope - shift;                     \
        }                                                                                      \
    }                                                                                          \
    /* sums[j] += dy, products[j] += dy (x - mean) rstd */                                     \
    static void norm_row_params_##sfx(int64_t n, const void *grad, const void *a, double mean, \
                                      double rstd, void *out_sums, void *out_products)         \
    {                                                                                          \
        const T *dy = grad, *x = a, c = (T)mean, r = (T)rstd;                                  \
        T *sums = out_sums, *products = out_products;                                          \
        SIMD for (int64_t j = 0; j < n; j++)                                                   \
        {                                                                                      \
            sums[j] += dy[j];                                                                  \
            products[j] += dy[j] * ((x[j] - c) * r);                                           \
        }                                                                                      \
    }
NORM_ROWS(f32, float)
NORM_ROWS(f64, double)
