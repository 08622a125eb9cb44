/* The depthwise part of a loop table: each channel has its own kernel of 5 x 5, so channels are the
 * lanes of a vector. Rows of an image are copied to a panel, [block of lanes][row][column][lane],
 * with zeros outside the image, so that no loop checks borders. Included by loops_template.h alone.
 * AVX2 and AVX-512 give equal bits: every lane runs the same operations.
 * Not here: the sizes of a panel, tasks, sums over images (conv_depthwise.c). */
#ifdef __AVX2__
#include <immintrin.h>

/* DEPTH_ROWS: rows of a kernel whose sums fit the registers; DEPTH_AHEAD: pixels */
#ifdef __AVX512F__
enum { DEPTH_LANES = 16, DEPTH_ROWS = 5 };
typedef __m512 depth_t;
typedef __mmask16 depth_mask_t;
#define DEPTH_LOAD(from)            _mm512_loadu_ps(from)
#define DEPTH_LOAD_SOME(mask, from) _mm512_maskz_loadu_ps(mask, from)
#define DEPTH_STORE(to, v)          _mm512_storeu_ps(to, v)
#define DEPTH_FMA(a, b, c)          _mm512_fmadd_ps(a, b, c)
#define DEPTH_ADD(a, b)             _mm512_add_ps(a, b)
#define DEPTH_ZERO()                _mm512_setzero_ps()
#define DEPTH_MASK(n)               ((__mmask16)((n) >= 16 ? 0xffff : (1u << (n)) - 1))
#else
enum { DEPTH_LANES = 8, DEPTH_ROWS = 3 };
typedef __m256 depth_t;
typedef __m256i depth_mask_t;
#define DEPTH_LOAD(from)            _mm256_loadu_ps(from)
#define DEPTH_LOAD_SOME(mask, from) _mm256_maskload_ps(from, mask)
#define DEPTH_STORE(to, v)          _mm256_storeu_ps(to, v)
#define DEPTH_FMA(a, b, c)          _mm256_fmadd_ps(a, b, c)
#define DEPTH_ADD(a, b)             _mm256_add_ps(a, b)
#define DEPTH_ZERO()                _mm256_setzero_ps()
#define DEPTH_MASK(n) \
    _mm256_cmpgt_epi32(_mm256_set1_epi32((int)(n)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7))
#endif

enum { DEPTH_AHEAD = 12, DEPTH_REST = (int)FY__DEPTH_SIZE - (int)DEPTH_ROWS };
#define UNROLL_DEPTH _Pragma("GCC unroll 32")
#define ALWAYS_DEPTH static inline __attribute__((always_inline))

static void depth_zeros(const fy__depth_pack_t *f, float *out, int64_t count)
{
    for (int64_t c = 0; c < f->nchannels; c += DEPTH_LANES, out += f->block)
        for (int64_t i = 0; i < count; i++) DEPTH_STORE(out + i * DEPTH_LANES, DEPTH_ZERO());
}

/* Pixels of x are `step` apart, so each one needs its own prefetch: 5 to 20 % less time with one
 * thread. */
static void depth_pack(const fy__depth_pack_t *f)
{
    const int64_t whole = f->nchannels / DEPTH_LANES * DEPTH_LANES, rest = f->nchannels - whole;
    const depth_mask_t mask = DEPTH_MASK(rest);
    const float *x = f->x;
    float *out = f->out + f->left * DEPTH_LANES;
    depth_zeros(f, f->out, f->left);
    for (int64_t i = 0; i < f->count; i++, x += f->step, out += DEPTH_LANES) {
        float *to = out;
        int64_t c = 0;
        for (; c < whole; c += DEPTH_LANES, to += f->block) {
            if (c % 16 == 0) __builtin_prefetch(x + c + DEPTH_AHEAD * f->step);
            DEPTH_STORE(to, DEPTH_LOAD(x + c));
        }
        if (rest > 0) DEPTH_STORE(to, DEPTH_LOAD_SOME(mask, x + c));
    }
    depth_zeros(f, out, f->width - f->left - f->count);
}

/* `nrows` rows of a kernel, whose first window's first place in the panel is x. */
ALWAYS_DEPTH void depth_weight_rows(const fy__depth_weight_t *f, const float *x, const float *dy,
                                    float *sums, const int nrows, const int stride, const int whole,
                                    depth_mask_t mask)
{
    depth_t totals[DEPTH_ROWS][FY__DEPTH_SIZE];
    UNROLL_DEPTH for (int i = 0; i < nrows; i++)
        UNROLL_DEPTH for (int j = 0; j < FY__DEPTH_SIZE; j++)
            totals[i][j] = DEPTH_LOAD(sums + (i * FY__DEPTH_SIZE + j) * DEPTH_LANES);
    for (int64_t row = 0; row < f->nrows; row++, x += f->row_step, dy += f->dy_row) {
        const float *at = x, *slopes = dy;
        for (int64_t p = 0; p < f->count; p++, at += stride * DEPTH_LANES, slopes += f->step) {
            const depth_t slope = whole ? DEPTH_LOAD(slopes) : DEPTH_LOAD_SOME(mask, slopes);
            UNROLL_DEPTH for (int i = 0; i < nrows; i++)
                UNROLL_DEPTH for (int j = 0; j < FY__DEPTH_SIZE; j++) totals[i][j] =
                    DEPTH_FMA(slope, DEPTH_LOAD(at + i * f->row + j * DEPTH_LANES), totals[i][j]);
        }
    }
    UNROLL_DEPTH for (int i = 0; i < nrows; i++)
        UNROLL_DEPTH for (int j = 0; j < FY__DEPTH_SIZE; j++)
            DEPTH_STORE(sums + (i * FY__DEPTH_SIZE + j) * DEPTH_LANES, totals[i][j]);
}

/* The channels from c on: one vector. */
ALWAYS_DEPTH void depth_weight_of(const fy__depth_weight_t *f, int64_t c, const int stride,
                                  const int whole)
{
    const depth_mask_t mask = DEPTH_MASK(f->nchannels - c);
    const float *x = f->x + c / DEPTH_LANES * f->block, *dy = f->dy + c;
    float *sums = f->sums + c * (FY__DEPTH_TAPS + 1);
    depth_weight_rows(f, x, dy, sums, DEPTH_ROWS, stride, whole, mask);
    if (DEPTH_REST > 0)
        depth_weight_rows(f, x + DEPTH_ROWS * f->row, dy,
                          sums + DEPTH_ROWS * FY__DEPTH_SIZE * DEPTH_LANES, DEPTH_REST, stride,
                          whole, mask);
    if (!f->has_bias) return;
    sums += FY__DEPTH_TAPS * DEPTH_LANES;
    depth_t total = DEPTH_LOAD(sums);
    for (int64_t row = 0; row < f->nrows; row++, dy += f->dy_row)
        for (int64_t p = 0; p < f->count; p++)
            total = DEPTH_ADD(total, DEPTH_LOAD_SOME(mask, dy + p * f->step));
    DEPTH_STORE(sums, total);
}

/* The constants make four instances of the loop. */
static void depth_weight(const fy__depth_weight_t *f)
{
    int64_t c = 0;
    for (; c + DEPTH_LANES <= f->nchannels; c += DEPTH_LANES)
        f->stride == 1 ? depth_weight_of(f, c, 1, 1) : depth_weight_of(f, c, 2, 1);
    if (c < f->nchannels)
        f->stride == 1 ? depth_weight_of(f, c, 1, 0) : depth_weight_of(f, c, 2, 0);
}
#define DEPTH_LOOPS \
    .depth_lanes = DEPTH_LANES, .depth_pack = depth_pack, .depth_weight = depth_weight,
#else
#define DEPTH_LOOPS
#endif
