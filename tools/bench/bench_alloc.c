/* `ferry bench alloc`: the cost of allocating and freeing a block, in Ferry, malloc, jemalloc and
 * mimalloc, interleaved.
 * Not here: how the allocators are found (peer_alloc.c). The measured code never touches a block's
 * bytes, so it contains no page fault of the caller; those of the allocator's headers are
 * contained. */
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "tools/bench/bench.h"
#include "tools/bench/peers.h"

enum {
    MAX_ALLOCATORS = PEER_ALLOC_MAX + 3,
    MAX_THREADS = 4,
    FEW_LIVE = 10,
    MANY_LIVE = 100000,
    SIZE_STEP = 4
};
/* of blocks, unless asked for otherwise */
static const int64_t smallest_nbytes = 64, largest_nbytes = (int64_t)64 << 20;

typedef enum pattern { SAME, RANDOM } pattern_t;
static const char *const pattern_names[] = { "same", "random" };

/* One line of the table: all allocators under one load. */
typedef struct load {
    pattern_t pattern;
    int threads;
    int64_t nbytes, live; /* blocks of all threads together that live while one is replaced */
    spread_t ns[MAX_ALLOCATORS]; /* of a pair */
} load_t;

/* One thread's part of a load. */
typedef struct worker {
    const load_t *load;
    const struct workers *workers;
    uint64_t state; /* of the random numbers */
    void **blocks[MAX_ALLOCATORS];
    int64_t live;
    double begin_ns, end_ns;
    int failed;
    char why[256];
} worker_t;

typedef struct workers {
    const allocator_t *allocators;
    size_t count;
    pthread_barrier_t barrier;
    /* What all do between the next two barriers; written by the main thread before the first. */
    enum { FILL, RUN, EMPTY, QUIT } order;
    size_t which; /* allocator */
    int64_t iters;
    worker_t workers[MAX_THREADS];
} workers_t;

/* xorshift64 (Marsaglia 2003). */
static inline uint64_t draw(uint64_t *state)
{
    uint64_t x = *state;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return *state = x;
}

/* "random": sizes drawn evenly from the upper half of nbytes. */
static inline size_t draw_nbytes(const load_t *load, uint64_t random)
{
    const uint64_t half = (uint64_t)load->nbytes / 2;
    return (size_t)(load->pattern == SAME ? (uint64_t)load->nbytes
                                          : half + 1 + (random >> 32) * half / ((uint64_t)1 << 32));
}

static void fill(worker_t *worker, size_t which)
{
    const allocator_t *allocator = &worker->workers->allocators[which];
    for (int64_t i = 0; i < worker->live && !worker->failed; i++) {
        worker->blocks[which][i] =
            allocator->take(allocator->context, draw_nbytes(worker->load, draw(&worker->state)));
        worker->failed = !worker->blocks[which][i];
    }
}

static void empty(worker_t *worker, size_t which)
{
    const allocator_t *allocator = &worker->workers->allocators[which];
    for (int64_t i = 0; i < worker->live; i++) {
        if (worker->blocks[which][i]) allocator->give(allocator->context, worker->blocks[which][i]);
        worker->blocks[which][i] = NULL;
    }
}

static void run_same(worker_t *worker, const allocator_t *allocator, int64_t iters)
{
    const size_t nbytes = (size_t)worker->load->nbytes;
    for (int64_t i = 0; i < iters; i++) {
        void *block = allocator->take(allocator->context, nbytes);
        if (!block) {
            worker->failed = 1;
            return;
        }
        allocator->give(allocator->context, block);
    }
}

static void run_random(worker_t *worker, const allocator_t *allocator, void **blocks, int64_t iters)
{
    for (int64_t i = 0; i < iters; i++) {
        const uint64_t random = draw(&worker->state);
        void **slot = &blocks[(random & 0xffffffffu) * (uint64_t)worker->live >> 32];
        allocator->give(allocator->context, *slot);
        *slot = allocator->take(allocator->context, draw_nbytes(worker->load, random));
        if (!*slot) {
            worker->failed = 1;
            return;
        }
    }
}

static void obey(worker_t *worker)
{
    const workers_t *workers = worker->workers;
    const allocator_t *allocator = &workers->allocators[workers->which];
    worker->begin_ns = wall_ns();
    if (workers->order == FILL) {
        fill(worker, workers->which);
    } else if (workers->order == EMPTY) {
        empty(worker, workers->which);
    } else if (!worker->failed) {
        if (worker->load->pattern == SAME)
            run_same(worker, allocator, workers->iters);
        else
            run_random(worker, allocator, worker->blocks[workers->which], workers->iters);
    }
    worker->end_ns = wall_ns();
    if (worker->failed && !worker->why[0])
        snprintf(worker->why, sizeof worker->why, "%s gave nothing", allocator->name);
}

static void *work(void *user)
{
    worker_t *worker = user;
    workers_t *workers = (workers_t *)worker->workers;
    for (;;) {
        pthread_barrier_wait(&workers->barrier);
        if (workers->order == QUIT) return NULL;
        obey(worker);
        pthread_barrier_wait(&workers->barrier);
    }
}

/* Wall time until all threads are through. With one thread there are no barriers and no second
 * thread in the process. */
static double command(workers_t *workers, int threads, int order, size_t which, int64_t iters)
{
    workers->order = order;
    workers->which = which;
    workers->iters = iters;
    if (threads == 1) {
        obey(&workers->workers[0]);
    } else {
        pthread_barrier_wait(&workers->barrier);
        pthread_barrier_wait(&workers->barrier);
    }
    double begin_ns = workers->workers[0].begin_ns, end_ns = workers->workers[0].end_ns;
    for (int t = 1; t < threads; t++) {
        if (workers->workers[t].begin_ns < begin_ns) begin_ns = workers->workers[t].begin_ns;
        if (workers->workers[t].end_ns > end_ns) end_ns = workers->workers[t].end_ns;
    }
    return end_ns - begin_ns;
}

static fy_status_t failed_worker(const workers_t *workers, int threads)
{
    for (int t = 0; t < threads; t++)
        if (workers->workers[t].failed)
            return TOOL_FAIL(OUT_OF_MEMORY, "%s %lld bytes", workers->workers[t].why,
                             (long long)workers->workers[t].load->nbytes);
    return FY_STATUS_OK;
}

/* Every allocator holds its live blocks at the same time; then rounds, each allocator once in
 * each. */
static fy_status_t measure(workers_t *workers, load_t *load, const effort_t *effort)
{
    static sample_t samples[MAX_ALLOCATORS];
    size_t met = 0;
    int64_t iters[MAX_ALLOCATORS] = { 0 };
    for (size_t a = 0; a < workers->count; a++) command(workers, load->threads, FILL, a, 0);
    for (size_t a = 0; a < workers->count; a++) {
        const double round_ns = 1e6 * (double)effort->round_ms;
        /* one round may be long because the machine was busy; three in a row are long because of
         * what is done */
        int long_enough = 0;
        for (iters[a] = 16; iters[a] < (int64_t)1 << 32;) { /* the warm-up, too */
            long_enough = command(workers, load->threads, RUN, a, iters[a]) >= round_ns / 2
                              ? long_enough + 1
                              : 0;
            if (long_enough == 3) break;
            if (!long_enough) iters[a] *= 2;
        }
    }
    memset(samples, 0, sizeof samples);
    while (met < workers->count) {
        for (size_t a = 0; a < workers->count; a++)
            sample_add(&samples[a],
                       command(workers, load->threads, RUN, a, iters[a]) / (double)iters[a]);
        for (met = 0; met < workers->count && effort_is_met(effort, &samples[met]);) met++;
    }
    for (size_t a = 0; a < workers->count; a++) {
        command(workers, load->threads, EMPTY, a, 0);
        load->ns[a] = sample_spread(&samples[a]);
    }
    return failed_worker(workers, load->threads);
}

static fy_status_t run_load(workers_t *workers, load_t *load, const effort_t *effort)
{
    pthread_t threads[MAX_THREADS];
    int started = 0;
    fy_status_t status = FY_STATUS_OK;
    for (int t = 0; t < load->threads; t++) {
        worker_t *worker = &workers->workers[t];
        *worker = (worker_t){ .load = load,
                              .workers = workers,
                              .state = 88172645463325252u + (uint64_t)t,
                              .live = load->live / load->threads };
        for (size_t a = 0; a < workers->count; a++)
            worker->blocks[a] = tool_alloc((size_t)worker->live * sizeof(void *));
    }
    if (load->threads > 1) {
        pthread_barrier_init(&workers->barrier, NULL, (unsigned)load->threads + 1);
        while (started < load->threads &&
               pthread_create(&threads[started], NULL, work, &workers->workers[started]) == 0)
            started++;
        if (started < load->threads) { /* the barrier would wait for ever */
            fprintf(stderr, "ferry: the system gives no %d threads\n", load->threads);
            exit(STATUS_FAILED);
        }
    }
    status = measure(workers, load, effort);
    if (load->threads > 1) {
        workers->order = QUIT;
        pthread_barrier_wait(&workers->barrier);
        for (int t = 0; t < started; t++) pthread_join(threads[t], NULL);
        pthread_barrier_destroy(&workers->barrier);
    }
    for (int t = 0; t < load->threads; t++)
        for (size_t a = 0; a < workers->count; a++) free(workers->workers[t].blocks[a]);
    return status;
}

/* ---- showing ---- */

static int find_allocator(const workers_t *workers, const char *name)
{
    for (size_t a = 0; a < workers->count; a++)
        if (strcmp(workers->allocators[a].name, name) == 0) return (int)a;
    return -1;
}

/* What "twice glibc's 4 KiB pair" refers to: the same pattern "same" with few live blocks and as
 * many threads. NaN if it was not measured. */
static double reference_ns(const workers_t *workers, const load_t *loads, size_t count, int threads)
{
    const int glibc = find_allocator(workers, "malloc");
    for (size_t i = 0; i < count && glibc >= 0; i++)
        if (loads[i].pattern == SAME && loads[i].nbytes == 4096 && loads[i].live <= FEW_LIVE &&
            loads[i].threads == threads)
            return loads[i].ns[glibc].median;
    return NAN;
}

static sheet_t *rows_sheet(const workers_t *workers, const load_t *loads, size_t count)
{
    static const column_t columns[] = {
        { "allocator", NULL, 0 },
        { "pattern", NULL, 0 },
        { "nbytes", NULL, 0 },
        { "threads", NULL, 0 },
        { "live_blocks", NULL, 0 },
        SPREAD_HIDDEN("ns_per_pair", NULL, 0),
        { "worst_ns_per_pair", NULL, 0 },
        ROUNDS_COLUMN,
    };
    sheet_t *sheet = sheet_create(columns, sizeof columns / sizeof *columns);
    for (size_t i = 0; i < count; i++)
        for (size_t a = 0; a < workers->count; a++) {
            sheet_text(sheet, workers->allocators[a].name);
            sheet_text(sheet, pattern_names[loads[i].pattern]);
            sheet_int(sheet, loads[i].nbytes);
            sheet_int(sheet, loads[i].threads);
            sheet_int(sheet, loads[i].live);
            sheet_spread(sheet, &loads[i].ns[a]);
            sheet_real(sheet, loads[i].ns[a].worst);
            sheet_int(sheet, (int64_t)loads[i].ns[a].rounds);
        }
    return sheet;
}

static void print_table(const workers_t *workers, const load_t *loads, size_t count, FILE *out)
{
    column_t columns[7 + MAX_ALLOCATORS] = {
        { "", "pattern", 0 }, { "", "bytes", 0 }, { "", "threads", 0 }, { "", "live", 0 }
    };
    size_t width = 4;
    for (size_t a = 0; a < workers->count; a++)
        columns[width++] = (column_t){ "", workers->allocators[a].name, 1 };
    columns[width++] = (column_t){ "", "+-% ferry", 1 };
    columns[width++] = (column_t){ "", "/ malloc", 2 };
    columns[width++] = (column_t){ "", "/ malloc 4 KiB", 2 };
    const int glibc = find_allocator(workers, "malloc");
    sheet_t *sheet = sheet_create(columns, width);
    for (size_t i = 0; i < count; i++) {
        const load_t *load = &loads[i];
        sheet_text(sheet, pattern_names[load->pattern]);
        sheet_int(sheet, load->nbytes);
        sheet_int(sheet, load->threads);
        sheet_int(sheet, load->live);
        for (size_t a = 0; a < workers->count; a++) sheet_real(sheet, load->ns[a].median);
        sheet_real(sheet, spread_half_percent(&load->ns[0]));
        sheet_real(sheet, glibc < 0 ? NAN : load->ns[0].median / load->ns[glibc].median);
        sheet_real(sheet, load->ns[0].median / reference_ns(workers, loads, count, load->threads));
    }
    fprintf(out, "ns for a block and its return, bytes untouched; the ratios are ferry's to "
                 "glibc's in the same row, and to glibc's pair of 4 "
                 "KiB, \"same\", few live\n\n");
    sheet_print(sheet, out);
    sheet_destroy(sheet);
}

static fy_status_t report(session_t *session, const effort_t *effort, const workers_t *workers,
                          const load_t *loads, size_t count, const char *missing)
{
    sheet_t *sheet = rows_sheet(workers, loads, count);
    if (session->out) {
        print_table(workers, loads, count, session->out);
    } else {
        json_text(&session->json, "clock", "wall");
        sheet_json(sheet, &session->json, "rows");
        json_text(&session->json, "left_out", missing[0] ? missing : NULL);
    }
    session_statistics(session, effort, BENCH_WARM_UP);
    double x[32];
    spread_t ns[MAX_ALLOCATORS][32];
    series_t series[MAX_ALLOCATORS];
    size_t points = 0;
    for (size_t i = 0; i < count && points < 32; i++) {
        if (loads[i].pattern != SAME || loads[i].threads != 1 || loads[i].live > FEW_LIVE) continue;
        x[points] = (double)loads[i].nbytes;
        for (size_t a = 0; a < workers->count; a++) ns[a][points] = loads[i].ns[a];
        points++;
    }
    for (size_t a = 0; a < workers->count; a++)
        series[a] = (series_t){ workers->allocators[a].name, points, x, .spreads = ns[a] };
    const plot_t plot = { .title = "A block and its return, one thread",
                          .x_label = "bytes",
                          .y_label = "ns",
                          .log_x = true,
                          .log_y = true,
                          .nseries = workers->count,
                          .series = series };
    return session_finish(session, sheet, &plot);
}

/* ---- the command ---- */

typedef struct alloc_options {
    effort_t effort;
    int64_t max_live_nbytes, min_nbytes, max_nbytes;
    bool quick;
} alloc_options_t;

static int64_t live_for(const alloc_options_t *options, int64_t nbytes, int64_t wanted)
{
    const int64_t most = options->max_live_nbytes / nbytes;
    return wanted < most ? wanted : most > FEW_LIVE ? most : FEW_LIVE;
}

/* One thread first: a process that never had a second one is what malloc is fastest in. */
static size_t make_loads(const alloc_options_t *options, load_t *loads)
{
    size_t count = 0;
    for (int threads = 1; threads <= MAX_THREADS; threads += MAX_THREADS - 1)
        for (int64_t nbytes = smallest_nbytes; nbytes <= largest_nbytes; nbytes *= SIZE_STEP) {
            if (nbytes < options->min_nbytes || nbytes > options->max_nbytes) continue;
            if (options->quick && nbytes != smallest_nbytes && nbytes != 4096 &&
                nbytes != 1 << 20 && nbytes != largest_nbytes)
                continue;
            const int64_t many = live_for(options, nbytes, MANY_LIVE);
            loads[count++] =
                (load_t){ .pattern = SAME, .threads = threads, .nbytes = nbytes, .live = FEW_LIVE };
            loads[count++] =
                (load_t){ .pattern = SAME, .threads = threads, .nbytes = nbytes, .live = many };
            loads[count++] =
                (load_t){ .pattern = RANDOM, .threads = threads, .nbytes = nbytes, .live = many };
        }
    return count;
}

static fy_status_t run(session_t *session, const alloc_options_t *options)
{
    load_t loads[128];
    allocator_t allocators[MAX_ALLOCATORS];
    const char *missing;
    workers_t *workers = tool_alloc(sizeof *workers);
    fy_status_t status = FY_STATUS_OK;
    allocators[0] = peer_alloc_ferry("ferry", fy_device_host());
    workers->count = 1 + peer_alloc_find(&allocators[1], &missing);
    if (session->device != fy_device_host()) {
        allocators[workers->count++] = peer_alloc_ferry("ferry-device", session->device);
        allocators[workers->count++] = peer_alloc_pinned("ferry-pinned", session->device);
    }
    workers->allocators = allocators;
    if (missing[0]) fprintf(stderr, "ferry: %s\n", missing);
    const size_t count = make_loads(options, loads);
    for (size_t i = 0; i < count && status == FY_STATUS_OK; i++) {
        progress("load", (int64_t)i, (int64_t)count);
        status = run_load(workers, &loads[i], &options->effort);
    }
    progress("load", (int64_t)count, (int64_t)count);
    if (status == FY_STATUS_OK)
        status = report(session, &options->effort, workers, loads, count, missing);
    free(workers);
    return status;
}

int bench_alloc(int argc, char **argv)
{
    common_t common = { .device = "sim:0?numerics=off" };
    alloc_options_t chosen = {
        { 31, 1 }, (int64_t)1 << 30, smallest_nbytes, largest_nbytes, false
    };
    const option_t options[] = {
        { "quick", OPTION_FLAG, NULL, &chosen.quick, "four sizes, three rounds of 1 ms" },
        { "max-live", OPTION_BYTES, "SIZE", &chosen.max_live_nbytes,
          "most that may live in each allocator; large blocks are then fewer", (int64_t)1 << 20,
          (int64_t)1 << 40 },
        { "min-bytes", OPTION_BYTES, "SIZE", &chosen.min_nbytes, "smallest block", smallest_nbytes,
          largest_nbytes },
        { "max-bytes", OPTION_BYTES, "SIZE", &chosen.max_nbytes, "largest block", smallest_nbytes,
          largest_nbytes },
        BENCH_OPTIONS(&chosen.effort),
        COMMON_OPTIONS(&common),
    };
    const usage_t usage = { "ferry bench alloc",
                            "Times a block and its return: tensors on the host (\"ferry\"), on the "
                            "device (\"ferry-device\") and "
                            "page-locked for it (\"ferry-pinned\"), beside glibc's "
                            "malloc, jemalloc and mimalloc.",
                            options, sizeof options / sizeof *options,
                            "ferry bench alloc --quick --device sim:0\n" };
    OPTIONS_TRY(options_parse(&usage, argc, argv));
    if (chosen.min_nbytes > chosen.max_nbytes)
        return TOOL_REFUSE(STATUS_USAGE, "--min-bytes %lld is more than --max-bytes %lld\n",
                           (long long)chosen.min_nbytes, (long long)chosen.max_nbytes);
    if (chosen.quick) chosen.effort = (effort_t){ 3, 1 };

    session_t session;
    fy_status_t status = session_begin(&session, &common, usage.command, "bench", "alloc");
    if (status == FY_STATUS_OK) status = run(&session, &chosen);
    return session_end(&session, status);
}
