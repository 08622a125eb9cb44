/* The convolution part of a loop table, for images of so few channels that a window has a few dozen
 * elements (the first layer of most networks):
 * output channels in vectors, one element of x repeated over them. oneDNN has 17 to 75 GFLOP/s a
 * core for these, an eighth to a third of what the core can do. Included by loops_template.h alone.
 * AVX-512 only: the sums need its thirty-two registers.
 * Not here: packing, threads, sums over images (conv_few.c). */
#ifdef __AVX512F__
#include <immintrin.h>

enum { FEW_PIXELS = 6, FEW_TAPS = 9 }; /* at once; times two vectors of outputs: 12 and 18 sums */
#define UNROLL_FEW _Pragma("GCC unroll 18")
#define ALWAYS_FEW static inline __attribute__((always_inline))
#define MASK_OF(n) ((__mmask16)((n) >= 16 ? 0xffff : (1u << (n)) - 1))

/* `pixels` neighbours, 16 * `vectors` output channels of which `valid` exist. */
ALWAYS_FEW void few_pixels(const fy__few_t *f, const float *x, const float *w, const float *bias,
                           float *y, const int pixels, const int vectors, int64_t valid)
{
    __m512 sums[FEW_PIXELS][2];
    UNROLL_FEW for (int p = 0; p < pixels; p++) UNROLL_FEW for (int v = 0; v < vectors; v++)
        sums[p][v] = _mm512_loadu_ps(bias + 16 * v);
    for (int64_t t = 0; t < f->ntaps; t++) {
        __m512 weight[2];
        UNROLL_FEW for (int v = 0; v < vectors; v++)
            weight[v] = _mm512_loadu_ps(w + t * f->padded + 16 * v);
        UNROLL_FEW for (int p = 0; p < pixels; p++)
        {
            const __m512 value = _mm512_set1_ps(x[p * f->step + f->taps[t]]);
            UNROLL_FEW for (int v = 0; v < vectors; v++)
                sums[p][v] = _mm512_fmadd_ps(value, weight[v], sums[p][v]);
        }
    }
    UNROLL_FEW for (int p = 0; p < pixels; p++) UNROLL_FEW for (int v = 0; v < vectors; v++)
    {
        /* in this order NaN stays */
        if (f->relu) sums[p][v] = _mm512_max_ps(_mm512_setzero_ps(), sums[p][v]);
        _mm512_mask_storeu_ps(y + p * f->nouts + 16 * v, MASK_OF(valid - 16 * v), sums[p][v]);
    }
}

ALWAYS_FEW void few_forward_outs(const fy__few_t *f, int64_t o, const int vectors)
{
    const float *w = f->w + o, *bias = f->bias + o, *x = f->x;
    const int64_t valid = f->nouts - o;
    for (int64_t row = 0; row < f->nrows; row++) {
        float *y = f->y + row * f->count * f->nouts + o;
        int64_t p = 0;
        x = f->x + row * f->row;
        for (; p + FEW_PIXELS <= f->count;
             p += FEW_PIXELS, x += FEW_PIXELS * f->step, y += FEW_PIXELS * f->nouts)
            few_pixels(f, x, w, bias, y, FEW_PIXELS, vectors, valid);
        for (; p < f->count; p++, x += f->step, y += f->nouts)
            few_pixels(f, x, w, bias, y, 1, vectors, valid);
    }
}

static void few_forward(const fy__few_t *f)
{
    int64_t o = 0;
    for (; o + 16 < f->nouts; o += 32) few_forward_outs(f, o, 2);
    if (o < f->nouts) few_forward_outs(f, o, 1);
}

/* FEW_TAPS taps from `first` on (past the last one, the first again), all pixels. With `is_first`
 * also the sums of dy, behind all taps. */
ALWAYS_FEW void few_weight_taps(const fy__few_t *f, int64_t first, int64_t o, const int vectors,
                                const int is_first)
{
    const __mmask16 mask[2] = { MASK_OF(f->nouts - o),
                                vectors > 1 ? MASK_OF(f->nouts - o - 16) : 0 };
    __m512 sums[FEW_TAPS][2], total[2] = { _mm512_setzero_ps(), _mm512_setzero_ps() };
    int64_t tap[FEW_TAPS];
    UNROLL_FEW for (int t = 0; t < FEW_TAPS; t++)
    {
        tap[t] = f->taps[first + t < f->ntaps ? first + t : 0];
        UNROLL_FEW for (int v = 0; v < vectors; v++) sums[t][v] = _mm512_setzero_ps();
    }
    for (int64_t row = 0; row < f->nrows; row++) {
        const float *x = f->x + row * f->row, *dy = f->dy + row * f->count * f->nouts + o;
        for (int64_t p = 0; p < f->count; p++, x += f->step, dy += f->nouts) {
            __m512 slope[2];
            UNROLL_FEW for (int v = 0; v < vectors; v++)
            {
                slope[v] = _mm512_maskz_loadu_ps(mask[v], dy + 16 * v);
                if (is_first) total[v] = _mm512_add_ps(total[v], slope[v]);
            }
            UNROLL_FEW for (int t = 0; t < FEW_TAPS; t++)
            {
                const __m512 value = _mm512_set1_ps(x[tap[t]]);
                UNROLL_FEW for (int v = 0; v < vectors; v++)
                    sums[t][v] = _mm512_fmadd_ps(value, slope[v], sums[t][v]);
            }
        }
    }
    UNROLL_FEW for (int v = 0; v < vectors; v++)
    {
        UNROLL_FEW for (int t = 0; t < FEW_TAPS; t++) if (first + t < f->ntaps)
            _mm512_storeu_ps(f->sums + (first + t) * f->padded + o + 16 * v, sums[t][v]);
        if (is_first) _mm512_storeu_ps(f->sums + f->ntaps * f->padded + o + 16 * v, total[v]);
    }
}

static void few_weight(const fy__few_t *f)
{
    for (int64_t o = 0; o < f->nouts; o += 32)
        for (int64_t first = 0; first < f->ntaps; first += FEW_TAPS) {
            if (o + 16 < f->nouts)
                first ? few_weight_taps(f, first, o, 2, 0) : few_weight_taps(f, first, o, 2, 1);
            else
                first ? few_weight_taps(f, first, o, 1, 0) : few_weight_taps(f, first, o, 1, 1);
        }
}
#define FEW_LOOPS .few_forward = few_forward, .few_weight = few_weight,
#else
#define FEW_LOOPS
#endif
