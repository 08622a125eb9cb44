/* The table of oneDNN convolutions, shared by all threads, bounded, the least recently used evicted
 * first; and the two calls that conv.c makes. A primitive runs on one thread at a time: a second
 * thread gets another primitive. The table also keeps that oneDNN has none for a shape. Not here:
 * oneDNN (conv_dnnl.c). */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "backends/kernels/conv_prim.h"
#include "backends/kernels/last_product.h"
#include "backends/kernels/team.h"

/* more than the convolutions of any model of `ferry train`, forward and backward */
enum { CAPACITY = 128 };

struct fy__conv_entry {
    fy__conv_shape_t shape;
    int threads, users, is_kept; /* users: takes without their give_back yet */
    int is_running;              /* one of them runs it */
    uint64_t last_use;
    fy__conv_prim_t *prim; /* NULL: there is none */
};

/* guards all that follows, and every entry's users and last_use */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static fy__conv_entry_t *table[CAPACITY];
static uint64_t clock_of_uses;

/* A child of fork has one thread, and it must not find the mutex held by one that is gone. */
static void lock(void) { pthread_mutex_lock(&mutex); }
static void unlock(void) { pthread_mutex_unlock(&mutex); }
static void watch_fork(void) { (void)pthread_atfork(lock, unlock, unlock); }

static void destroy(fy__conv_entry_t *entry)
{
    fy__conv_prim_free(entry->prim);
    free(entry);
}

/* A free slot, or that of the least recently used entry; CAPACITY: all are in use. */
static size_t find_place(void)
{
    size_t oldest = CAPACITY;
    for (size_t i = 0; i < CAPACITY; i++) {
        if (!table[i]) return i;
        if (table[i]->users == 0 &&
            (oldest == CAPACITY || table[i]->last_use < table[oldest]->last_use))
            oldest = i;
    }
    return oldest;
}

static fy__conv_entry_t *find(const fy__conv_shape_t *shape, int threads, int to_run)
{
    for (size_t i = 0; i < CAPACITY && table[i]; i++)
        if (table[i]->threads == threads && !(to_run && table[i]->is_running) &&
            memcmp(&table[i]->shape, shape, sizeof *shape) == 0)
            return table[i];
    return NULL;
}

/* Making a primitive happens with the mutex held: two threads that want the same one should not
 * both spend milliseconds on it. */
static fy__conv_entry_t *make(const fy__conv_shape_t *shape, int threads)
{
    fy__conv_entry_t *entry = (fy__conv_entry_t *)calloc(1, sizeof *entry);
    const size_t place = find_place();
    if (!entry) return NULL;
    entry->shape = *shape;
    entry->threads = threads;
    entry->prim = fy__conv_prim_make(shape);
    if (place < CAPACITY) {
        if (table[place]) destroy(table[place]);
        table[place] = entry;
        entry->is_kept = 1;
    } else if (!entry->prim) { /* the table has no entry for a missing primitive */
        free(entry);
        return NULL;
    }
    return entry;
}

fy__conv_entry_t *fy__conv_table_take(const fy__conv_shape_t *shape, int threads, int to_run)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_fork);
    lock();
    fy__conv_entry_t *entry = find(shape, threads, to_run);
    if (!entry) entry = make(shape, threads);
    if (entry) {
        entry->users++;
        if (to_run) entry->is_running = 1;
        entry->last_use = ++clock_of_uses;
    }
    unlock();
    if (entry && !entry->prim) {
        fy__conv_table_give_back(entry, to_run);
        return NULL;
    }
    return entry;
}

void fy__conv_table_give_back(fy__conv_entry_t *entry, int to_run)
{
    lock();
    if (to_run) entry->is_running = 0;
    const int last = --entry->users == 0 && !entry->is_kept;
    unlock();
    if (last) destroy(entry);
}

const fy__conv_prim_t *fy__conv_entry_prim(const fy__conv_entry_t *entry) { return entry->prim; }

/* ---- what conv.c asks for ---- */

typedef struct plan {
    fy__conv_entry_t *entry;
    /* at once: fewer than n only if dx is accumulated, which goes through scratch */
    int64_t images;
    uint64_t sum_nbytes;     /* of that scratch, or of a bias' gradient that is accumulated */
    uint64_t scratch_nbytes; /* all */
} plan_t;

static uint64_t round64(uint64_t nbytes) { return (nbytes + 63) / 64 * 64; }

/* The most images whose scratch fits. Larger pieces of the batch have been tried and did not fit,
 * so a run with exactly the scratch that was planned finds the same. */
static int make_plan(const fy__conv_t *conv, uint64_t limit, int threads, int to_run, plan_t *out)
{
    fy__conv_shape_t shape = conv->shape;
    const int through_scratch = shape.op == FY_OP_CONV2D_BACKWARD_INPUT && shape.accumulate;
    for (int64_t images = shape.n; images > 0; images--) {
        if (conv->shape.n % images != 0) continue;
        const uint64_t summed = through_scratch ? (uint64_t)(images * shape.h * shape.w * shape.c)
                                : conv->accumulate_bias ? (uint64_t)shape.o
                                                        : 0;
        const uint64_t sum_nbytes = round64(summed * sizeof(float));
        if (sum_nbytes > limit) continue;
        shape.n = images;
        fy__conv_entry_t *entry = fy__conv_table_take(&shape, threads, to_run);
        if (!entry) return 0;
        *out = (plan_t){ entry, images, sum_nbytes,
                         sum_nbytes + fy__conv_prim_nbytes(fy__conv_entry_prim(entry)) };
        if (out->scratch_nbytes <= limit) return 1;
        fy__conv_table_give_back(entry, to_run);
        /* scratch of the primitive itself does not shrink with the batch */
        if (!through_scratch) return 0;
    }
    return 0;
}

/* For the whole batch, so that planning and running agree. */
static int threads_of(const fy__conv_shape_t *s)
{
    const double pixels = (double)s->n * (double)s->oh * (double)s->ow,
                 taps = (double)s->kh * (double)s->kw * (double)s->c / (double)s->groups;
    const double nelem = (double)s->n * (double)s->h * (double)s->w * (double)s->c +
                         pixels * (double)s->o + taps * (double)s->o;
    return fy__threads_for_cost(2 * pixels * (double)s->o * taps, 4 * nelem);
}

int fy__conv_dnnl_plan(const fy__conv_t *conv, uint64_t limit, uint64_t *out_nbytes)
{
    const fy__team_t team = fy__team_begin(threads_of(&conv->shape));
    plan_t plan;
    const int found = make_plan(conv, limit, team.threads, 0, &plan);
    if (found) {
        *out_nbytes = plan.scratch_nbytes;
        fy__conv_table_give_back(plan.entry, 0);
    }
    fy__team_end(&team);
    return found;
}

typedef struct sum {
    const fy__loops_t *loops;
    float *to;
    const float *from;
    int64_t n, piece;
} sum_t;

static void add_piece(const void *context, int64_t i)
{
    const sum_t *sum = (const sum_t *)context;
    const int64_t begin = i * sum->piece,
                  n = begin + sum->piece < sum->n ? sum->piece : sum->n - begin;
    sum->loops->binary[FY__BINARY_ADD][FY_DTYPE_F32](n, sum->to + begin, sum->to + begin,
                                                     sum->from + begin);
}

static void relu_piece(const void *context, int64_t i)
{
    const sum_t *sum = (const sum_t *)context;
    const int64_t begin = i * sum->piece,
                  n = begin + sum->piece < sum->n ? sum->piece : sum->n - begin;
    sum->loops->unary[FY__UNARY_RELU][FY_DTYPE_F32](n, sum->to + begin, sum->to + begin);
}

/* Not as oneDNN's post-op, which makes 0 of NaN. */
static void relu(const fy__loops_t *loops, float *y, int64_t n)
{
    const sum_t all = { loops, y, NULL, n, 1 << 15 };
    const int64_t npieces = (n + all.piece - 1) / all.piece;
    fy__for_each(npieces, fy__threads_for(npieces, 2), relu_piece, &all);
}

/* The gradient of bias: dy summed over images and pixels. */
static fy_status_t sum_slopes(const fy_host_api_t *host, const fy__loops_t *loops,
                              const fy__conv_t *conv)
{
    const fy_reduce_attrs_t attrs = { .axes = 7u };
    fy_desc_t dst = *conv->bias, src = *conv->y;
    const fy_launch_t launch = { .struct_size = sizeof launch,
                                 .op = FY_OP_SUM,
                                 .nsrc = 1,
                                 .ndst = 1,
                                 .accumulate = conv->accumulate_bias ? 1u : 0u,
                                 .dst = &dst,
                                 .src = &src,
                                 .attrs = &attrs,
                                 .nelem = (uint64_t)conv->shape.o };
    return fy__run_sum(host, loops, &launch);
}

static fy_status_t run(const fy_host_api_t *host, const fy__loops_t *loops, const fy__conv_t *conv,
                       const plan_t *plan, char *scratch)
{
    const fy__conv_shape_t *s = &conv->shape;
    const fy__conv_prim_t *prim = fy__conv_entry_prim(plan->entry);
    float *x = (float *)conv->x->data, *y = (float *)conv->y->data,
          *bias = conv->bias ? (float *)conv->bias->data : NULL;
    if (bias && fy__conv_prim_leaves_bias(prim)) {
        FY_TRY(
            fy__conv_prim_run(host, prim, x, conv->w->data, y, NULL, scratch + plan->sum_nbytes));
        return sum_slopes(host, loops, conv);
    }
    if (plan->sum_nbytes == 0) {
        FY_TRY(fy__conv_prim_run(host, prim, x, conv->w->data, y, bias, scratch));
        if (conv->relu) relu(loops, y, s->n * s->oh * s->ow * s->o);
        return FY_STATUS_OK;
    }
    if (conv->accumulate_bias) {
        FY_TRY(fy__conv_prim_run(host, prim, x, conv->w->data, y, scratch,
                                 scratch + plan->sum_nbytes));
        loops->binary[FY__BINARY_ADD][FY_DTYPE_F32](s->o, bias, bias, scratch);
        return FY_STATUS_OK;
    }
    const int64_t nx = plan->images * s->h * s->w * s->c, ny = plan->images * s->oh * s->ow * s->o;
    for (int64_t first = 0; first < s->n; first += plan->images, x += nx, y += ny) {
        const sum_t sum = { loops, x, (const float *)(const void *)scratch, nx, 1 << 15 };
        const int64_t npieces = (nx + sum.piece - 1) / sum.piece;
        fy_status_t status = fy__conv_prim_run(host, prim, scratch, conv->w->data, y, NULL,
                                               scratch + plan->sum_nbytes);
        if (status == FY_STATUS_UNSUPPORTED && first > 0)
            return host->fail(FY_STATUS_INTERNAL, __FILE__, __LINE__,
                              "oneDNN refused a part of a convolution");
        if (status != FY_STATUS_OK) return status;
        fy__for_each(npieces, fy__threads_for(npieces, 2), add_piece, &sum);
    }
    return FY_STATUS_OK;
}

fy_status_t fy__conv_dnnl_run(const fy_host_api_t *host, const fy__loops_t *loops,
                              const fy__conv_t *conv, void *scratch, uint64_t scratch_nbytes)
{
    plan_t plan;
    fy_status_t status = FY_STATUS_UNSUPPORTED;
    if (scratch_nbytes == 0) return status;
    const fy__team_t team = fy__team_begin(threads_of(&conv->shape));
    if (make_plan(conv, scratch_nbytes, team.threads, 1, &plan)) {
        fy__product_by_named(fy__conv_prim_impl_name(fy__conv_entry_prim(plan.entry)));
        status = run(host, loops, conv, &plan, (char *)scratch);
        fy__conv_table_give_back(plan.entry, 1);
    }
    fy__team_end(&team);
    return status;
}
