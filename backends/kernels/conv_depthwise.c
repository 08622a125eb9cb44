/* The gradient of depthwise kernels of 5 x 5 (and of the bias). oneDNN has only a slow loop for
 * these. Rows of one image are copied to a panel with zeros around them, for a group of channels.
 * The sums are f32 over about a thousand pixels, f64 over those. A task is a group of channels and
 * a piece of the batch; the shape alone divides the work into tasks, and the sums of tasks are
 * added in one order: bits do not depend on threads.
 * Not here: the loops (loops_depthwise.h), when they run (conv.c). */
#include <string.h>

#include "backends/kernels/conv.h"

enum {
    CHANNELS = 128,    /* of a group, at most */
    WIDEST = 16,       /* lanes of the widest vector: tasks are the same for all */
    PANEL = 80 * 1024, /* f32 elements, unless one row of dy needs more: it stays in an L2 cache */
    TASKS = 32,        /* at least, if there are as many images */
    PIXELS = 1024,     /* summed in f32, at least, if a piece has as many */
    SUMS = FY__DEPTH_TAPS + 1
};

typedef struct job {
    const fy__loops_t *loops;
    const fy__conv_t *conv;
    int64_t padded, group, ngroups; /* channels in whole vectors, those of a group, groups */
    int64_t width, band, height;    /* of the panel: columns, rows of dy, rows */
    int64_t panel_nelem, pieces, threads;
    uint64_t totals_nbytes, slot_nbytes; /* scratch: of all tasks, of a thread */
    char *scratch;
} job_t;

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t round_up(int64_t n, int64_t size) { return (n + size - 1) / size * size; }

int fy__conv_depthwise_fits(const fy__loops_t *loops, const fy__conv_t *conv)
{
    const fy__conv_shape_t *s = &conv->shape;
    return loops->depth_weight && s->op == FY_OP_CONV2D_BACKWARD_WEIGHT && s->groups > 1 &&
           s->groups == s->c && s->c == s->o && s->kh == FY__DEPTH_SIZE &&
           s->kw == FY__DEPTH_SIZE && s->stride_h <= 2 && s->stride_w <= 2 && s->dilation_h == 1 &&
           s->dilation_w == 1 && s->padding_h < s->kh && s->padding_w < s->kw;
}

static int64_t height_of(const fy__conv_shape_t *s, int64_t band)
{
    return (band - 1) * s->stride_h + FY__DEPTH_SIZE;
}

static void make_job(job_t *job, const fy__loops_t *loops, const fy__conv_t *conv)
{
    const fy__conv_shape_t *s = &conv->shape;
    *job = (job_t){ .loops = loops, .conv = conv, .padded = round_up(s->c, WIDEST) };
    job->ngroups = (s->c + CHANNELS - 1) / CHANNELS;
    job->group = round_up((s->c + job->ngroups - 1) / job->ngroups, WIDEST);
    job->ngroups = (s->c + job->group - 1) / job->group;
    job->width = (s->ow - 1) * s->stride_w + FY__DEPTH_SIZE;
    const int64_t row = job->width * job->group;
    int64_t band = 1;
    while (band < s->oh && height_of(s, band + 1) * row <= PANEL) band++;
    const int64_t nbands = (s->oh + band - 1) / band;
    job->band = (s->oh + nbands - 1) / nbands; /* bands of equal heights */
    job->height = height_of(s, job->band);
    job->panel_nelem = job->height * row;
    job->pieces = least((TASKS + job->ngroups - 1) / job->ngroups, s->n);
    job->totals_nbytes = (uint64_t)(job->pieces * job->padded * SUMS) * sizeof(double);
    job->slot_nbytes = (uint64_t)(job->panel_nelem + job->group * SUMS) * sizeof(float);
}

uint64_t fy__conv_depthwise_nbytes(const fy__loops_t *loops, const fy__conv_t *conv, uint64_t limit)
{
    const fy__conv_shape_t *s = &conv->shape;
    job_t job;
    make_job(&job, loops, conv);
    const double planes = (double)s->n * (double)s->c, slopes = planes * (double)(s->oh * s->ow);
    uint64_t threads = (uint64_t)fy__threads_for_cost(
        2 * slopes * FY__DEPTH_TAPS, 4 * (planes * (double)(s->h * s->w) + slopes));
    if (threads > (uint64_t)(job.pieces * job.ngroups))
        threads = (uint64_t)(job.pieces * job.ngroups);
    if (job.totals_nbytes > limit) return 0;
    if (threads > (limit - job.totals_nbytes) / job.slot_nbytes)
        threads = (limit - job.totals_nbytes) / job.slot_nbytes;
    return threads > 0 ? job.totals_nbytes + threads * job.slot_nbytes : 0;
}

static int64_t row_nelem(const job_t *job) { return job->width * job->loops->depth_lanes; }

/* The rows of image n that `nrows` rows of dy from `row` on see. */
static void fill_panel(const job_t *job, int64_t n, int64_t c, int64_t row, int64_t nrows,
                       float *panel)
{
    const fy__conv_shape_t *s = &job->conv->shape;
    const int64_t first = row * s->stride_h - s->padding_h, height = height_of(s, nrows);
    fy__depth_pack_t pack = { .nchannels = least(job->group, s->c - c),
                              .width = job->width,
                              .step = s->c,
                              .block = job->height * row_nelem(job) };
    for (int64_t i = 0; i < height; i++, panel += row_nelem(job)) {
        const int64_t h = first + i;
        const int is_inside = h >= 0 && h < s->h;
        pack.x = (const float *)job->conv->x->data +
                 (n * s->h + (is_inside ? h : 0)) * s->w * s->c + c;
        pack.left = is_inside ? s->padding_w : 0;
        pack.count = is_inside ? least(s->w, job->width - s->padding_w) : 0;
        pack.out = panel;
        job->loops->depth_pack(&pack);
    }
}

static double *totals_of(const job_t *job, int64_t piece)
{
    return (double *)(void *)job->scratch + piece * job->padded * SUMS;
}

static void run_task(const job_t *job, int64_t task, float *panel)
{
    const fy__conv_shape_t *s = &job->conv->shape;
    const int64_t c = task % job->ngroups * job->group, piece = task / job->ngroups,
                  end = s->n * (piece + 1) / job->pieces,
                  nsums = least(job->group, job->padded - c) * SUMS;
    float *sums = panel + job->panel_nelem;
    double *totals = totals_of(job, piece) + c * SUMS;
    fy__depth_weight_t weight = { .x = panel,
                                  .sums = sums,
                                  .nchannels = least(job->group, s->c - c),
                                  .count = s->ow,
                                  .stride = s->stride_w,
                                  .step = s->c,
                                  .dy_row = s->ow * s->c,
                                  .row = row_nelem(job),
                                  .row_step = s->stride_h * row_nelem(job),
                                  .block = job->height * row_nelem(job),
                                  .has_bias = job->conv->bias != NULL };
    int64_t pixels = 0;
    memset(totals, 0, (size_t)nsums * sizeof *totals);
    memset(sums, 0, (size_t)nsums * sizeof *sums);
    for (int64_t n = s->n * piece / job->pieces; n < end; n++) {
        for (int64_t row = 0; row < s->oh; row += job->band) {
            weight.nrows = least(job->band, s->oh - row);
            weight.dy = (const float *)job->conv->y->data + (n * s->oh + row) * s->ow * s->c + c;
            fill_panel(job, n, c, row, weight.nrows, panel);
            job->loops->depth_weight(&weight);
        }
        pixels += s->oh * s->ow;
        if (pixels < PIXELS && n + 1 < end) continue;
        for (int64_t i = 0; i < nsums; i++) totals[i] += (double)sums[i];
        memset(sums, 0, (size_t)nsums * sizeof *sums);
        pixels = 0;
    }
}

static void run_tasks(const void *context, int64_t thread)
{
    const job_t *job = (const job_t *)context;
    const int64_t ntasks = job->pieces * job->ngroups;
    float *panel =
        (float *)(void *)(job->scratch + job->totals_nbytes + (uint64_t)thread * job->slot_nbytes);
    for (int64_t i = ntasks * thread / job->threads; i < ntasks * (thread + 1) / job->threads; i++)
        run_task(job, i, panel);
}

static void finish(const job_t *job)
{
    const fy__conv_t *conv = job->conv;
    const int64_t lanes = job->loops->depth_lanes, nsums = job->padded * SUMS;
    float *w = (float *)conv->w->data, *bias = conv->bias ? (float *)conv->bias->data : NULL;
    double *totals = totals_of(job, 0);
    for (int64_t piece = 1; piece < job->pieces; piece++)
        for (int64_t i = 0; i < nsums; i++) totals[i] += totals[piece * nsums + i];
    for (int64_t c = 0; c < conv->shape.c; c++, w += FY__DEPTH_TAPS) {
        const double *sums = totals + c / lanes * lanes * SUMS + c % lanes;
        for (int64_t t = 0; t < FY__DEPTH_TAPS; t++)
            fy__conv_put(w + t, sums[t * lanes], conv->shape.accumulate != 0);
        if (bias) fy__conv_put(bias + c, sums[FY__DEPTH_TAPS * lanes], conv->accumulate_bias);
    }
}

int fy__conv_depthwise_run(const fy__loops_t *loops, const fy__conv_t *conv, void *scratch,
                           uint64_t scratch_nbytes)
{
    job_t job;
    make_job(&job, loops, conv);
    if (scratch_nbytes < job.totals_nbytes + job.slot_nbytes) return 0;
    /* as many as the scratch was planned for */
    job.threads = (int64_t)((scratch_nbytes - job.totals_nbytes) / job.slot_nbytes);
    job.scratch = (char *)scratch;
    fy__for_each(job.threads, (int)job.threads, run_tasks, &job);
    finish(&job);
    return 1;
}
