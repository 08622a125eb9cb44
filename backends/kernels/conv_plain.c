/* Convolutions by plain loops: any strides, any float dtype, groups, dilation. Rows of channels are
 * staged as f64, a few pixels share a row of weights, and every result is summed in one order by
 * one thread, so bits do not depend on the thread count.
 * Not here: when these loops run (conv.c). */
#include "opset/formulas/scalar.h"
#include "backends/kernels/conv.h"
#include "backends/kernels/image.h"

enum { PIXELS = 8, OUTS = 32, CHANNELS = FY__IMAGE_CHANNELS, SERIAL_MACS = 20000 };

typedef struct job {
    const fy__loops_t *loops;
    const fy__conv_t *conv;
    int64_t cg, og;   /* channels of x and of y in a group */
    int64_t tiles[2]; /* runs of channels, runs of pixels (or of output channels) */
} job_t;

static void stage(const job_t *job, const fy_desc_t *desc, int64_t i0, int64_t i1, int64_t i2,
                  int64_t i3, int64_t n, double *out)
{
    fy__image_stage(job->loops, desc, i0, i1, i2, i3, n, out);
}

static void put(const job_t *job, const fy_desc_t *desc, int64_t i0, int64_t i1, int64_t i2,
                int64_t i3, int64_t n, double *sums)
{
    fy__image_put(job->loops, desc, i0, i1, i2, i3, n, sums, job->conv->shape.accumulate != 0);
}

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t pieces(int64_t n, int64_t size) { return (n + size - 1) / size; }

static double dot(int64_t n, const double *a, const double *b)
{
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

static void add_scaled(int64_t n, double *y, double alpha, const double *x)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) y[i] += alpha * x[i];
}

/* Takes the innermost of several loop counters off a task number. */
static int64_t take(int64_t *task, int64_t n)
{
    const int64_t i = *task % n;
    *task /= n;
    return i;
}

/* ---- y: a run of pixels of one row, a run of output channels of one group ---- */

static void add_bias(const job_t *job, int64_t first, int64_t n, double *sums)
{
    const fy_desc_t *bias = job->conv->bias;
    double values[OUTS];
    if (!bias) return;
    fy__stage_in(job->loops, n, values, FY_DTYPE_F64,
                 (const char *)bias->data +
                     first * bias->strides[0] * ((int64_t)1 << fy__log2_size(bias->dtype)),
                 bias->strides[0], bias->dtype);
    for (int64_t i = 0; i < n; i++) sums[i] += values[i];
}

static void forward_tile(const void *context, int64_t task)
{
    const job_t *job = (const job_t *)context;
    const fy__conv_t *conv = job->conv;
    const fy__conv_shape_t *s = &conv->shape;
    const int64_t o0 = take(&task, job->tiles[0]) * OUTS, group = take(&task, s->groups),
                  ow0 = take(&task, job->tiles[1]) * PIXELS, oh = take(&task, s->oh), n = task;
    const int64_t nouts = least(OUTS, job->og - o0), npixels = least(PIXELS, s->ow - ow0);
    double sums[PIXELS][OUTS] = { { 0 } }, x[PIXELS][CHANNELS], w[CHANNELS];
    for (int64_t kh = 0; kh < s->kh; kh++) {
        const int64_t h = oh * s->stride_h - s->padding_h + kh * s->dilation_h;
        if (h < 0 || h >= s->h) continue;
        for (int64_t kw = 0; kw < s->kw; kw++) {
            for (int64_t c = 0; c < job->cg; c += CHANNELS) {
                const int64_t nc = least(CHANNELS, job->cg - c);
                int inside[PIXELS], any = 0;
                for (int64_t p = 0; p < npixels; p++) {
                    const int64_t at = (ow0 + p) * s->stride_w - s->padding_w + kw * s->dilation_w;
                    any |= inside[p] = at >= 0 && at < s->w;
                    if (inside[p]) stage(job, conv->x, n, h, at, group * job->cg + c, nc, x[p]);
                }
                if (!any) continue;
                for (int64_t o = 0; o < nouts; o++) {
                    stage(job, conv->w, group * job->og + o0 + o, kh, kw, c, nc, w);
                    for (int64_t p = 0; p < npixels; p++)
                        if (inside[p]) sums[p][o] += dot(nc, x[p], w);
                }
            }
        }
    }
    for (int64_t p = 0; p < npixels; p++) {
        add_bias(job, group * job->og + o0, nouts, sums[p]);
        for (int64_t o = 0; o < nouts && conv->relu; o++) sums[p][o] = fy__relu_f64(sums[p][o]);
        put(job, conv->y, n, oh, ow0 + p, group * job->og + o0, nouts, sums[p]);
    }
}

/* ---- x: the pixels of y that saw a pixel of x are those whose window has it ---- */

/* The index in y whose window has `at` in its place `k`; -1: none. */
static int64_t seen_from(int64_t at, int64_t padding, int64_t k, int64_t dilation, int64_t stride,
                         int64_t count)
{
    const int64_t span = at + padding - k * dilation;
    return span < 0 || span % stride != 0 || span / stride >= count ? -1 : span / stride;
}

static void input_tile(const void *context, int64_t task)
{
    const job_t *job = (const job_t *)context;
    const fy__conv_t *conv = job->conv;
    const fy__conv_shape_t *s = &conv->shape;
    const int64_t c0 = take(&task, job->tiles[0]) * CHANNELS, group = take(&task, s->groups),
                  w0 = take(&task, job->tiles[1]) * PIXELS, h = take(&task, s->h), n = task;
    const int64_t nc = least(CHANNELS, job->cg - c0), npixels = least(PIXELS, s->w - w0);
    double sums[PIXELS][CHANNELS] = { { 0 } }, dy[PIXELS][OUTS], w[CHANNELS];
    for (int64_t kh = 0; kh < s->kh; kh++) {
        const int64_t oh = seen_from(h, s->padding_h, kh, s->dilation_h, s->stride_h, s->oh);
        if (oh < 0) continue;
        for (int64_t kw = 0; kw < s->kw; kw++) {
            for (int64_t o = 0; o < job->og; o += OUTS) {
                const int64_t nouts = least(OUTS, job->og - o);
                int inside[PIXELS], any = 0;
                for (int64_t p = 0; p < npixels; p++) {
                    const int64_t ow =
                        seen_from(w0 + p, s->padding_w, kw, s->dilation_w, s->stride_w, s->ow);
                    any |= inside[p] = ow >= 0;
                    if (inside[p])
                        stage(job, conv->y, n, oh, ow, group * job->og + o, nouts, dy[p]);
                }
                if (!any) continue;
                for (int64_t i = 0; i < nouts; i++) {
                    stage(job, conv->w, group * job->og + o + i, kh, kw, c0, nc, w);
                    for (int64_t p = 0; p < npixels; p++)
                        if (inside[p]) add_scaled(nc, sums[p], dy[p][i], w);
                }
            }
        }
    }
    for (int64_t p = 0; p < npixels; p++)
        put(job, conv->x, n, h, w0 + p, group * job->cg + c0, nc, sums[p]);
}

/* ---- w: one place of the kernel, a run of output channels, a run of input channels ---- */

static void weight_tile(const void *context, int64_t task)
{
    const job_t *job = (const job_t *)context;
    const fy__conv_t *conv = job->conv;
    const fy__conv_shape_t *s = &conv->shape;
    const int64_t c0 = take(&task, job->tiles[0]) * CHANNELS, kw = take(&task, s->kw),
                  kh = take(&task, s->kh), o0 = take(&task, job->tiles[1]) * PIXELS, group = task;
    const int64_t nc = least(CHANNELS, job->cg - c0), nouts = least(PIXELS, job->og - o0);
    double sums[PIXELS][CHANNELS] = { { 0 } }, dy[PIXELS], x[CHANNELS];
    for (int64_t n = 0; n < s->n; n++) {
        for (int64_t oh = 0; oh < s->oh; oh++) {
            const int64_t h = oh * s->stride_h - s->padding_h + kh * s->dilation_h;
            if (h < 0 || h >= s->h) continue;
            for (int64_t ow = 0; ow < s->ow; ow++) {
                const int64_t w = ow * s->stride_w - s->padding_w + kw * s->dilation_w;
                if (w < 0 || w >= s->w) continue;
                stage(job, conv->y, n, oh, ow, group * job->og + o0, nouts, dy);
                stage(job, conv->x, n, h, w, group * job->cg + c0, nc, x);
                for (int64_t o = 0; o < nouts; o++) add_scaled(nc, sums[o], dy[o], x);
            }
        }
    }
    for (int64_t o = 0; o < nouts; o++)
        put(job, conv->w, group * job->og + o0 + o, kh, kw, c0, nc, sums[o]);
}

/* ---- bias: a run of output channels ---- */

static void bias_tile(const void *context, int64_t task)
{
    const job_t *job = (const job_t *)context;
    const fy__conv_t *conv = job->conv;
    const fy__conv_shape_t *s = &conv->shape;
    const int64_t o0 = task * CHANNELS, nouts = least(CHANNELS, s->o - o0),
                  stride = conv->bias->strides[0];
    char *to = (char *)conv->bias->data +
               o0 * stride * ((int64_t)1 << fy__log2_size(conv->bias->dtype));
    double sums[CHANNELS] = { 0 }, dy[CHANNELS];
    for (int64_t n = 0; n < s->n; n++)
        for (int64_t oh = 0; oh < s->oh; oh++)
            for (int64_t ow = 0; ow < s->ow; ow++) {
                stage(job, conv->y, n, oh, ow, o0, nouts, dy);
                for (int64_t o = 0; o < nouts; o++) sums[o] += dy[o];
            }
    if (conv->accumulate_bias) {
        fy__stage_in(job->loops, nouts, dy, FY_DTYPE_F64, to, stride, conv->bias->dtype);
        for (int64_t o = 0; o < nouts; o++) sums[o] += dy[o];
    }
    fy__stage_out(job->loops, nouts, to, stride, conv->bias->dtype, sums, FY_DTYPE_F64);
}

void fy__conv_plain(const fy__loops_t *loops, const fy__conv_t *conv)
{
    const fy__conv_shape_t *s = &conv->shape;
    job_t job = { loops, conv, s->c / s->groups, s->o / s->groups, { 0 } };
    fy__each_fn tile = forward_tile;
    int64_t ntasks;
    if (s->op == FY_OP_CONV2D) {
        job.tiles[0] = pieces(job.og, OUTS);
        job.tiles[1] = pieces(s->ow, PIXELS);
        ntasks = s->n * s->oh * job.tiles[1] * s->groups * job.tiles[0];
    } else if (s->op == FY_OP_CONV2D_BACKWARD_INPUT) {
        tile = input_tile;
        job.tiles[0] = pieces(job.cg, CHANNELS);
        job.tiles[1] = pieces(s->w, PIXELS);
        ntasks = s->n * s->h * job.tiles[1] * s->groups * job.tiles[0];
    } else {
        tile = weight_tile;
        job.tiles[0] = pieces(job.cg, CHANNELS);
        job.tiles[1] = pieces(job.og, PIXELS);
        ntasks = s->groups * job.tiles[1] * s->kh * s->kw * job.tiles[0];
    }
    const double macs = (double)(s->n * s->oh * s->ow) * (double)(s->o * s->kh * s->kw) *
                        (double)job.cg;
    fy__for_each(ntasks, fy__threads_for((int64_t)macs, SERIAL_MACS), tile, &job);
    if (tile == weight_tile && conv->bias) fy__for_each(pieces(s->o, CHANNELS), 1, bias_tile, &job);
}
