/* Convolutions over images of very few channels, forward and with respect to weights (and bias): a
 * task is an image. Weights are turned to [tap][output] on the stack; the gradient of each image is
 * summed in f32, those of the images in f64, image after image, thread after thread.
 * Not here: the loops (loops_conv.h), when they run (conv.c). */
#include <string.h>

#include "backends/kernels/conv.h"

enum { TAPS = 32, OUTS = 64 }; /* at most */

typedef struct job {
    const fy__loops_t *loops;
    const fy__conv_t *conv;
    fy__few_t few; /* of any image: without x, y, dy, sums */
    int64_t taps[TAPS];
    float w[TAPS * OUTS], bias[OUTS];
    int threads;
    double *totals; /* a thread's: [taps + 1][padded] */
} job_t;

int fy__conv_few_fits(const fy__loops_t *loops, const fy__conv_t *conv)
{
    const fy__conv_shape_t *s = &conv->shape;
    const int is_op = s->op == FY_OP_CONV2D || s->op == FY_OP_CONV2D_BACKWARD_WEIGHT;
    return loops->few_forward && is_op && s->groups == 1 && !s->padding_h && !s->padding_w &&
           s->c <= 4 && s->kh * s->kw * s->c <= TAPS && s->o <= OUTS;
}

static uint64_t totals_nelem(const fy__conv_t *conv)
{
    const fy__conv_shape_t *s = &conv->shape;
    return (uint64_t)((s->kh * s->kw * s->c + 1) * ((s->o + 31) / 32 * 32));
}

/* As many as the scratch was for: the sums of a run must not depend on who asks for threads in
 * between. */
uint64_t fy__conv_few_nbytes(const fy__conv_t *conv, uint64_t limit)
{
    const fy__conv_shape_t *s = &conv->shape;
    const uint64_t one = totals_nelem(conv) * sizeof(double);
    uint64_t threads =
        (uint64_t)fy__threads_for(s->n * s->oh * s->ow * s->kh * s->kw * s->c * s->o, 1 << 20);
    if (s->op == FY_OP_CONV2D) return 0;
    if (threads > (uint64_t)s->n) threads = (uint64_t)s->n;
    if (threads * one > limit) threads = limit / one;
    return threads * one;
}

static void make_job(job_t *job, const fy__loops_t *loops, const fy__conv_t *conv)
{
    const fy__conv_shape_t *s = &conv->shape;
    const int64_t ntaps = s->kh * s->kw * s->c, padded = (s->o + 31) / 32 * 32;
    job->loops = loops;
    job->conv = conv;
    for (int64_t t = 0; t < ntaps; t++) {
        const int64_t kh = t / (s->kw * s->c), kw = t / s->c % s->kw, c = t % s->c;
        job->taps[t] = (kh * s->dilation_h * s->w + kw * s->dilation_w) * s->c + c;
    }
    job->few = (fy__few_t){ .taps = job->taps,
                            .w = job->w,
                            .bias = job->bias,
                            .ntaps = ntaps,
                            .nouts = s->o,
                            .padded = padded,
                            .count = s->ow,
                            .nrows = s->oh,
                            .step = s->stride_w * s->c,
                            .row = s->stride_h * s->w * s->c,
                            .relu = conv->relu };
}

static fy__few_t image_of(const job_t *job, int64_t n)
{
    const fy__conv_shape_t *s = &job->conv->shape;
    fy__few_t few = job->few;
    few.x = (const float *)job->conv->x->data + n * s->h * s->w * s->c;
    few.y = (float *)job->conv->y->data + n * s->oh * s->ow * s->o;
    few.dy = few.y;
    return few;
}

static void forward_image(const void *context, int64_t n)
{
    const job_t *job = (const job_t *)context;
    const fy__few_t few = image_of(job, n);
    job->loops->few_forward(&few);
}

/* The images of one thread. */
static void weight_images(const void *context, int64_t thread)
{
    const job_t *job = (const job_t *)context;
    const int64_t n = job->conv->shape.n, nelem = (int64_t)totals_nelem(job->conv);
    double *totals = job->totals + thread * nelem;
    /* channels up to the vector that do not exist are added up, too */
    float sums[(TAPS + 1) * OUTS] = { 0 };
    memset(totals, 0, (size_t)nelem * sizeof *totals);
    for (int64_t i = n * thread / job->threads; i < n * (thread + 1) / job->threads; i++) {
        fy__few_t few = image_of(job, i);
        few.sums = sums;
        job->loops->few_weight(&few);
        for (int64_t k = 0; k < nelem; k++) totals[k] += (double)sums[k];
    }
}

static void finish_weight(const job_t *job)
{
    const fy__conv_t *conv = job->conv;
    const int64_t ntaps = job->few.ntaps, padded = job->few.padded,
                  nelem = (int64_t)totals_nelem(conv);
    float *w = (float *)conv->w->data, *bias = conv->bias ? (float *)conv->bias->data : NULL;
    for (int thread = 1; thread < job->threads; thread++)
        for (int64_t k = 0; k < nelem; k++) job->totals[k] += job->totals[thread * nelem + k];
    for (int64_t o = 0; o < conv->shape.o; o++) {
        for (int64_t t = 0; t < ntaps; t++)
            fy__conv_put(w + o * ntaps + t, job->totals[t * padded + o],
                         conv->shape.accumulate != 0);
        if (bias) fy__conv_put(bias + o, job->totals[ntaps * padded + o], conv->accumulate_bias);
    }
}

int fy__conv_few_run(const fy__loops_t *loops, const fy__conv_t *conv, void *scratch,
                     uint64_t scratch_nbytes)
{
    const fy__conv_shape_t *s = &conv->shape;
    job_t job;
    make_job(&job, loops, conv);
    if (s->op == FY_OP_CONV2D) {
        const float *w = (const float *)conv->w->data,
                    *bias = conv->bias ? (const float *)conv->bias->data : NULL;
        memset(job.w, 0, (size_t)(job.few.ntaps * job.few.padded) * sizeof *job.w);
        memset(job.bias, 0, sizeof job.bias);
        for (int64_t o = 0; o < s->o; o++) {
            for (int64_t t = 0; t < job.few.ntaps; t++)
                job.w[t * job.few.padded + o] = w[o * job.few.ntaps + t];
            if (bias) job.bias[o] = bias[o];
        }
        const int threads = fy__threads_for(s->n * s->oh * s->ow * job.few.ntaps * s->o, 1 << 20);
        fy__for_each(s->n, threads, forward_image, &job);
        return 1;
    }
    job.threads = (int)(scratch_nbytes / (totals_nelem(conv) * sizeof(double)));
    job.totals = (double *)scratch;
    if (job.threads < 1) return 0;
    fy__for_each(job.threads, job.threads, weight_images, &job);
    finish_weight(&job);
    return 1;
}
