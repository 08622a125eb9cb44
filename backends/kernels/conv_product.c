/* Convolutions as products (im2col): the windows of some images are copied to the rows of a matrix
 * [pixels of y][taps and channels], and sgemm multiplies it with the weights, or with dy. The
 * gradient of x is such a matrix, whose rows are added to the pixels of their windows. A 1 x 1
 * kernel without strides and padding needs no copy.
 * Not here: when these run (conv.c, by time only). */
#include <string.h>

#include "backends/kernels/conv.h"
#include "backends/kernels/gemm.h"
#include "backends/kernels/last_product.h"

/* Most scratch, if one image needs less: about a second-level cache, and enough rows for sgemm. */
static const uint64_t CHUNK_NBYTES = 4u << 20;
enum { BLOCK = 64 };

typedef struct job {
    const fy__conv_t *conv;
    float *windows;
    int64_t first, taps; /* image of the first row; columns */
} job_t;

static int64_t count_taps(const fy__conv_shape_t *s) { return s->kh * s->kw * s->c; }

/* A row of the matrix is a pixel of x. */
static int is_pointwise(const fy__conv_shape_t *s)
{
    return s->kh == 1 && s->kw == 1 && s->stride_h == 1 && s->stride_w == 1 && !s->padding_h &&
           !s->padding_w;
}

int fy__conv_product_fits(const fy__conv_t *conv)
{
    const fy__conv_shape_t *s = &conv->shape;
    return s->groups == 1 && s->n > 0 && s->oh > 0 && s->ow > 0 && s->o > 0 && count_taps(s) > 0;
}

/* Images whose windows are in scratch at once: a number of the shape, so that bits do not depend on
 * how much scratch there is. */
static int64_t count_images(const fy__conv_shape_t *s, uint64_t image_nbytes)
{
    const int64_t images = (int64_t)(CHUNK_NBYTES / image_nbytes);
    return images < 1 ? 1 : images < s->n ? images : s->n;
}

uint64_t fy__conv_product_nbytes(const fy__conv_t *conv)
{
    const fy__conv_shape_t *s = &conv->shape;
    const uint64_t one = (uint64_t)(s->oh * s->ow * count_taps(s)) * sizeof(float);
    return is_pointwise(s) ? 0 : (uint64_t)count_images(s, one) * one;
}

/* ---- windows: a task is a row of pixels of y ---- */

typedef struct line {
    int64_t image, oh;
    float *rows; /* [ow][taps] */
} line_t;

static line_t line_of(const job_t *job, int64_t task)
{
    const fy__conv_shape_t *s = &job->conv->shape;
    return (line_t){ job->first + task / s->oh, task % s->oh,
                     job->windows + task * s->ow * job->taps };
}

/* The pixel of x at a tap of a window; NULL: it is padding. */
static float *pixel_of(const job_t *job, const line_t *line, int64_t ow, int64_t kh, int64_t kw)
{
    const fy__conv_shape_t *s = &job->conv->shape;
    const int64_t h = line->oh * s->stride_h - s->padding_h + kh * s->dilation_h,
                  w = ow * s->stride_w - s->padding_w + kw * s->dilation_w;
    if (h < 0 || h >= s->h || w < 0 || w >= s->w) return NULL;
    return (float *)job->conv->x->data + ((line->image * s->h + h) * s->w + w) * s->c;
}

static void copy_windows(const void *context, int64_t task)
{
    const job_t *job = (const job_t *)context;
    const fy__conv_shape_t *s = &job->conv->shape;
    const line_t line = line_of(job, task);
    float *to = line.rows;
    for (int64_t ow = 0; ow < s->ow; ow++)
        for (int64_t kh = 0; kh < s->kh; kh++)
            for (int64_t kw = 0; kw < s->kw; kw++, to += s->c) {
                const float *from = pixel_of(job, &line, ow, kh, kw);
                if (from)
                    memcpy(to, from, (size_t)s->c * sizeof *to);
                else
                    memset(to, 0, (size_t)s->c * sizeof *to);
            }
}

/* Windows overlap, so a task is a whole image. */
static void add_windows(const void *context, int64_t image)
{
    const job_t *job = (const job_t *)context;
    const fy__conv_shape_t *s = &job->conv->shape;
    for (int64_t oh = 0; oh < s->oh; oh++) {
        const line_t line = line_of(job, image * s->oh + oh);
        const float *from = line.rows;
        for (int64_t ow = 0; ow < s->ow; ow++)
            for (int64_t kh = 0; kh < s->kh; kh++)
                for (int64_t kw = 0; kw < s->kw; kw++, from += s->c) {
                    float *to = pixel_of(job, &line, ow, kh, kw);
                    for (int64_t c = 0; to && c < s->c; c++) to[c] += from[c];
                }
    }
}

/* ---- bias ---- */

static void finish_row(const void *context, int64_t row)
{
    const fy__conv_t *conv = (const fy__conv_t *)context;
    const fy__conv_shape_t *s = &conv->shape;
    const float *bias = conv->bias ? (const float *)conv->bias->data : NULL;
    float *y = (float *)conv->y->data + row * s->ow * s->o;
    for (int64_t i = 0; i < s->ow; i++, y += s->o)
        for (int64_t o = 0; o < s->o; o++) {
            const float sum = bias ? y[o] + bias[o] : y[o];
            y[o] = conv->relu && sum < 0 ? 0 : sum; /* NaN stays */
        }
}

static void sum_bias(const void *context, int64_t block)
{
    const fy__conv_t *conv = (const fy__conv_t *)context;
    const fy__conv_shape_t *s = &conv->shape;
    const int64_t first = block * BLOCK, rest = s->o - first, count = rest < BLOCK ? rest : BLOCK,
                  pixels = s->n * s->oh * s->ow;
    const float *dy = (const float *)conv->y->data + first;
    float *bias = (float *)conv->bias->data + first;
    double sums[BLOCK] = { 0 };
    for (int64_t p = 0; p < pixels; p++, dy += s->o)
        for (int64_t o = 0; o < count; o++) sums[o] += (double)dy[o];
    for (int64_t o = 0; o < count; o++) fy__conv_put(bias + o, sums[o], conv->accumulate_bias);
}

/* ---- the products ---- */

/* One chunk: `rows` pixels of y from `y` on. */
static fy_status_t multiply(const fy_host_api_t *host, const fy__conv_t *conv, int64_t rows,
                            float *windows, float *y, int is_first)
{
    const fy__conv_shape_t *s = &conv->shape;
    const int64_t taps = count_taps(s);
    float *w = (float *)conv->w->data;
    if (s->op == FY_OP_CONV2D)
        return fy__gemm_f32(host, 'N', 'T', rows, s->o, taps, windows, taps, w, taps, 0, y, s->o);
    if (s->op == FY_OP_CONV2D_BACKWARD_INPUT)
        return fy__gemm_f32(host, 'N', 'N', rows, taps, s->o, y, s->o, w, taps,
                            is_pointwise(s) && s->accumulate ? 1 : 0, windows, taps);
    return fy__gemm_f32(host, 'T', 'N', s->o, taps, rows, y, s->o, windows, taps,
                        is_first && !s->accumulate ? 0 : 1, w, taps);
}

static fy_status_t run_chunks(const fy_host_api_t *host, const fy__conv_t *conv, float *scratch,
                              int64_t images, int threads)
{
    const fy__conv_shape_t *s = &conv->shape;
    const int64_t pixels = s->oh * s->ow;
    const int is_input = s->op == FY_OP_CONV2D_BACKWARD_INPUT;
    job_t job = { conv, scratch, 0, count_taps(s) };
    for (; job.first < s->n; job.first += images) {
        const int64_t left = s->n - job.first, count = left < images ? left : images;
        float *y = (float *)conv->y->data + job.first * pixels * s->o;
        if (!scratch) job.windows = (float *)conv->x->data + job.first * pixels * s->c;
        if (scratch && !is_input) fy__for_each(count * s->oh, threads, copy_windows, &job);
        FY_TRY(multiply(host, conv, count * pixels, job.windows, y, job.first == 0));
        if (scratch && is_input) fy__for_each(count, threads, add_windows, &job);
    }
    return FY_STATUS_OK;
}

fy_status_t fy__conv_product_run(const fy_host_api_t *host, const fy__conv_t *conv, void *scratch,
                                 uint64_t scratch_nbytes)
{
    const fy__conv_shape_t *s = &conv->shape;
    const uint64_t nbytes = fy__conv_product_nbytes(conv),
                   one = (uint64_t)(s->oh * s->ow * count_taps(s)) * sizeof(float);
    if (!fy__conv_product_fits(conv) || scratch_nbytes < nbytes) return FY_STATUS_UNSUPPORTED;
    const int threads = fy__threads_for(s->n * s->oh * s->ow * count_taps(s), 1 << 16);
    const int64_t images = nbytes ? (int64_t)(nbytes / one) : s->n;
    if (nbytes && s->op == FY_OP_CONV2D_BACKWARD_INPUT && !s->accumulate)
        memset(conv->x->data, 0, (size_t)(s->n * s->h * s->w * s->c) * sizeof(float));
    FY_TRY(run_chunks(host, conv, nbytes ? (float *)scratch : NULL, images, threads));
    if (s->op == FY_OP_CONV2D && (conv->bias || conv->relu))
        fy__for_each(s->n * s->oh, threads, finish_row, conv);
    if (s->op == FY_OP_CONV2D_BACKWARD_WEIGHT && conv->bias)
        fy__for_each((s->o + BLOCK - 1) / BLOCK, threads, sum_bias, conv);
    fy__product_by("windows and sgemm");
    return FY_STATUS_OK;
}
