/* Part of loops_template.h: the f32 product of small matrices. oneDNN's sgemm takes 0.4 us before
 * it begins, and may wake other threads. This code runs on the calling thread and packs nothing, so
 * it is for operands that fit the first cache (gemm_small.c selects them).
 * Tiles of C are kept in registers. B row by row: a row of B times one element of A, accumulated. B
 * column by column (B^T in memory): products of rows, four at once, each accumulated lane by lane
 * and then across lanes. No include guard: as loops_template.h. */

#if defined(__AVX512F__)
#include <immintrin.h>
enum { LANES = 16 };
#elif defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>
enum { LANES = 8 };
#else
enum { LANES = 4 };
#endif
typedef float floats_t __attribute__((vector_size(LANES * sizeof(float))));
typedef float floats_anywhere_t
    __attribute__((vector_size(LANES * sizeof(float)), aligned(sizeof(float)), may_alias));

typedef float fours_t __attribute__((vector_size(16)));

#define UNROLL _Pragma("GCC unroll 16")
#define INLINE static inline __attribute__((always_inline))

INLINE floats_t load(const float *at) { return *(const floats_anywhere_t *)(const void *)at; }
INLINE void store(float *at, floats_t x) { *(floats_anywhere_t *)(void *)at = x; }
#if defined(__AVX512F__)
INLINE floats_t splat(float a) { return (floats_t)_mm512_set1_ps(a); }
INLINE floats_t fused(floats_t a, floats_t b, floats_t c)
{
    return (floats_t)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
}
/* The first n lanes, 0 < n <= LANES; the others are 0, and their memory is not touched. */
INLINE floats_t load_first(const float *at, int n)
{
    return (floats_t)_mm512_maskz_loadu_ps((__mmask16)(0xffffu >> (16 - n)), at);
}
INLINE fours_t narrow(floats_t x) /* lanes l, l + 4, ... added up */
{
    const __m256 half = _mm256_add_ps(_mm512_castps512_ps256((__m512)x),
                                      _mm256_castpd_ps(_mm512_extractf64x4_pd((__m512d)x, 1)));
    return (fours_t)_mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
}
#elif defined(__AVX2__) && defined(__FMA__)
static const int32_t first_lanes[16] = { -1, -1, -1, -1, -1, -1, -1, -1 };
INLINE __m256i mask_of(int n)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)(first_lanes + 8 - n));
}
INLINE floats_t splat(float a) { return (floats_t)_mm256_set1_ps(a); }
INLINE floats_t fused(floats_t a, floats_t b, floats_t c)
{
    return (floats_t)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
}
INLINE floats_t load_first(const float *at, int n)
{
    return (floats_t)_mm256_maskload_ps(at, mask_of(n));
}
INLINE fours_t narrow(floats_t x)
{
    return (fours_t)_mm_add_ps(_mm256_castps256_ps128((__m256)x),
                               _mm256_extractf128_ps((__m256)x, 1));
}
#else
INLINE floats_t splat(float a) { return (floats_t){ a, a, a, a }; }
INLINE floats_t fused(floats_t a, floats_t b, floats_t c) { return a * b + c; }
INLINE floats_t load_first(const float *at, int n)
{
    floats_t x = { 0 };
    for (int i = 0; i < n; i++) x[i] = at[i];
    return x;
}
INLINE fours_t narrow(floats_t x) { return x; }
#endif
/* In pieces of powers of two: masked stores are slow on some processors. */
INLINE void store_first(float *at, floats_t x, int n)
{
    float all[LANES];
    int done = 0;
    store(all, x);
    UNROLL for (int piece = LANES / 2; piece; piece /= 2)
    {
        if (!(n & piece)) continue;
        memcpy(at + done, all + done, (size_t)piece * sizeof *at);
        done += piece;
    }
}

/* ROWS x ACROSS vectors of C at row i, column j; with PART the only vector has just `last` lanes.
 * Every SPLIT-th step of k has separate sums, so that an addition need not wait for the one before.
 * Constant extents: the arrays are registers. */
#define TILE(name, ROWS, ACROSS, SPLIT, PART)                                                      \
    static inline void name(const fy__small_gemm_t *g, int64_t i, int64_t j, int last)             \
    {                                                                                              \
        floats_t sum[SPLIT][ROWS][ACROSS] = { { { { 0 } } } }, line[ACROSS];                       \
        const float *a = g->a + i * g->a_row, *b = g->b + j;                                       \
        const int64_t a_row = g->a_row, a_column = g->a_column, b_row = g->b_row;                  \
        int64_t p = g->k;                                                                          \
        (void)last;                                                                                \
        for (; p >= SPLIT; p -= SPLIT) {                                                           \
            UNROLL for (int s = 0; s < SPLIT; s++, a += a_column, b += b_row)                      \
            {                                                                                      \
                UNROLL for (int v = 0; v < ACROSS; v++) line[v] = PART ? load_first(b, last)       \
                                                                       : load(b + v * LANES);      \
                UNROLL for (int r = 0; r < ROWS; r++) UNROLL for (int v = 0; v < ACROSS; v++)      \
                    sum[s][r][v] = fused(splat(a[r * a_row]), line[v], sum[s][r][v]);              \
            }                                                                                      \
        }                                                                                          \
        for (; p; p--, a += a_column, b += b_row) {                                                \
            UNROLL for (int v = 0; v < ACROSS; v++) line[v] = PART ? load_first(b, last)           \
                                                                   : load(b + v * LANES);          \
            UNROLL for (int r = 0; r < ROWS; r++) UNROLL for (int v = 0; v < ACROSS; v++)          \
                sum[0][r][v] = fused(splat(a[r * a_row]), line[v], sum[0][r][v]);                  \
        }                                                                                          \
        UNROLL for (int s = 1; s < SPLIT; s++) UNROLL for (int r = 0; r < ROWS; r++)               \
            UNROLL for (int v = 0; v < ACROSS; v++) sum[0][r][v] += sum[s][r][v];                  \
        UNROLL for (int r = 0; r < ROWS; r++)                                                      \
        {                                                                                          \
            float *c = g->c + (i + r) * g->c_row + j;                                              \
            if (PART) {                                                                            \
                store_first(c, g->adds ? sum[0][r][0] + load_first(c, last) : sum[0][r][0], last); \
                continue;                                                                          \
            }                                                                                      \
            UNROLL for (int v = 0; v < ACROSS; v++)                                                \
                store(c + v * LANES, g->adds ? sum[0][r][v] + load(c + v * LANES) : sum[0][r][v]); \
        }                                                                                          \
    }
TILE(tile_4x2, 4, 2, 1, 0)
TILE(tile_4x1, 4, 1, 2, 0)
TILE(tile_4xpart, 4, 1, 2, 1)
TILE(tile_1x4, 1, 4, 2, 0)
TILE(tile_1x1, 1, 1, 4, 0)
TILE(tile_1xpart, 1, 1, 4, 1)

/* Some rows of C, all columns. */
static void four_rows(const fy__small_gemm_t *g, int64_t i)
{
    int64_t j = 0;
    for (; j + 2 * LANES <= g->n; j += 2 * LANES) tile_4x2(g, i, j, LANES);
    for (; j + LANES <= g->n; j += LANES) tile_4x1(g, i, j, LANES);
    if (j < g->n) tile_4xpart(g, i, j, (int)(g->n - j));
}
static void one_row(const fy__small_gemm_t *g, int64_t i)
{
    int64_t j = 0;
    for (; j + 4 * LANES <= g->n; j += 4 * LANES) tile_1x4(g, i, j, LANES);
    for (; j + LANES <= g->n; j += LANES) tile_1x1(g, i, j, LANES);
    if (j < g->n) tile_1xpart(g, i, j, (int)(g->n - j));
}

/* The sums of four vectors' lanes. */
INLINE fours_t across_lanes(const floats_t *sum)
{
    const fours_t x0 = narrow(sum[0]), x1 = narrow(sum[1]), x2 = narrow(sum[2]),
                  x3 = narrow(sum[3]);
    const fours_t x01 = __builtin_shufflevector(x0, x1, 0, 4, 1, 5) +
                        __builtin_shufflevector(x0, x1, 2, 6, 3, 7);
    const fours_t x23 = __builtin_shufflevector(x2, x3, 0, 4, 1, 5) +
                        __builtin_shufflevector(x2, x3, 2, 6, 3, 7);
    return __builtin_shufflevector(x01, x23, 0, 1, 4, 5) +
           __builtin_shufflevector(x01, x23, 2, 3, 6, 7);
}

/* `count` elements, at most four, of row i from column j: products of rows of A and of B^T. */
INLINE void tile_dots(const fy__small_gemm_t *g, int64_t i, int64_t j, const int count)
{
    floats_t sum[4] = { 0 };
    const float *a = g->a + i * g->a_row, *b = g->b + j * g->b_column;
    int64_t p = 0;
    for (; p + LANES <= g->k; p += LANES) {
        const floats_t line = load(a + p);
        for (int q = 0; q < count; q++) sum[q] = fused(line, load(b + q * g->b_column + p), sum[q]);
    }
    if (p < g->k) {
        const int rest = (int)(g->k - p);
        const floats_t line = load_first(a + p, rest);
        for (int q = 0; q < count; q++)
            sum[q] = fused(line, load_first(b + q * g->b_column + p, rest), sum[q]);
    }
    const fours_t four = across_lanes(sum);
    float *c = g->c + i * g->c_row + j;
    for (int q = 0; q < count; q++) c[q] = four[q] + (g->adds ? c[q] : 0.0f);
}

static void gemm_small_f32(const fy__small_gemm_t *g)
{
    int64_t i = 0;
    if (g->b_column != 1) { /* a's columns and b's rows are contiguous */
        for (; i < g->m; i++) {
            int64_t j = 0;
            for (; j + 4 <= g->n; j += 4) tile_dots(g, i, j, 4);
            for (; j < g->n; j++) tile_dots(g, i, j, 1);
        }
        return;
    }
    for (; i + 4 <= g->m; i += 4) four_rows(g, i);
    for (; i < g->m; i++) one_row(g, i);
}
#undef INLINE
#undef UNROLL
#undef TILE
