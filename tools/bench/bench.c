/* `ferry bench`: the suites and their measuring loop. Times are wall clock, medians of interleaved
 * rounds; the worst round is shown beside. Not here: the measured functions (bench_dispatch.c,
 * bench_gemm.c, bench_chain.c, bench_copy.c, bench_alloc.c, bench_step.c, bench_train.c). */
#include "tools/bench/bench.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool has_way(const bench_case_t *c, bench_way_t way, int threads)
{
    return way == BENCH_OWN || (way == BENCH_PEER ? c->peer != NULL : c->by_threads && threads > 1);
}

static void note_threads(void *user, const char *key, const char *value)
{
    int *threads = user;
    if (strcmp(key, "threads") == 0 && sscanf(value, "auto: 1 or %d,", threads) != 1) *threads = 0;
}

/* All threads, if the device chooses between one and all; else 0. */
static fy_status_t find_threads(session_t *session, int *out_threads)
{
    *out_threads = 0;
    return session->device == fy_device_host()
               ? fy_device_describe(session->device, note_threads, out_threads)
               : FY_STATUS_OK;
}

/* 0: by cost. */
static fy_status_t set_threads(int threads)
{
    char spec[32] = "host?threads=auto";
    fy_device_t *device;
    if (threads) snprintf(spec, sizeof spec, "host?threads=%d", threads);
    return fy_device_open(spec, &device);
}

static fy_status_t time_way(session_t *session, const bench_case_t *c, bench_way_t way, int threads,
                            int64_t iters, double *out_ns)
{
    const bool is_forced = way == BENCH_ONE || way == BENCH_ALL;
    if (is_forced) FY_TRY(set_threads(way == BENCH_ONE ? 1 : threads));
    const bench_fn run = way == BENCH_PEER ? c->run_peer : c->run;
    const double begin = wall_ns();
    fy_status_t status = run(c->context, iters);
    if (status == FY_STATUS_OK && way != BENCH_PEER) status = session_wait(session);
    *out_ns = wall_ns() - begin;
    if (is_forced && status == FY_STATUS_OK) status = set_threads(0);
    return status;
}

/* Doubles until a round takes long enough; this is the warm-up too. */
static fy_status_t calibrate(session_t *session, bench_case_t *c, bench_way_t way, int threads,
                             double round_ns)
{
    int64_t iters = 1;
    double ns;
    /* first call: primitives are made, memory is touched */
    FY_TRY(time_way(session, c, way, threads, 1, &ns));
    for (;; iters *= 2) {
        FY_TRY(time_way(session, c, way, threads, iters, &ns));
        if (ns >= round_ns / 2 || iters > (int64_t)1 << 40) break;
    }
    c->iters[way] = iters;
    return FY_STATUS_OK;
}

/* Best rounds are compared, because another busy process slows a team far more than one thread. */
static void summarize(bench_case_t *c)
{
    spread_t spreads[BENCH_WAYS];
    for (bench_way_t way = BENCH_OWN; way < BENCH_WAYS; way++)
        spreads[way] = sample_spread(&c->samples[way]);
    c->spread = spreads[BENCH_OWN];
    c->peer_spread = spreads[BENCH_PEER];
    c->one_ns = spreads[BENCH_ONE].median;
    c->all_ns = spreads[BENCH_ALL].median;
    c->threads_ratio = c->spread.best / fmin(spreads[BENCH_ONE].best, spreads[BENCH_ALL].best);
}

/* Each round begins with another way, because the first way of a round has cache misses that the
 * others have not. */
static fy_status_t measure_round(session_t *session, bench_case_t *c, int threads, size_t round)
{
    for (size_t i = 0; i < BENCH_WAYS; i++) {
        const bench_way_t way = (bench_way_t)((i + round) % BENCH_WAYS);
        double ns, model_begin = session_model_ns(session);
        if (!has_way(c, way, threads)) continue;
        FY_TRY(time_way(session, c, way, threads, c->iters[way], &ns));
        sample_add(&c->samples[way], ns / (double)c->iters[way]);
        if (way == BENCH_OWN)
            c->model_ns = (session_model_ns(session) - model_begin) / (double)c->iters[way];
    }
    return FY_STATUS_OK;
}

static bool are_met(const effort_t *effort, const bench_case_t *cases, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!effort_is_met(effort, &cases[i].samples[BENCH_OWN])) return false;
    return true;
}

fy_status_t bench_measure(session_t *session, bench_case_t *cases, size_t count,
                          const effort_t *effort)
{
    int threads;
    FY_TRY(find_threads(session, &threads));
    for (size_t i = 0; i < count; i++) {
        progress("warm-up", (int64_t)i, (int64_t)count);
        for (bench_way_t way = BENCH_OWN; way < BENCH_WAYS; way++)
            if (has_way(&cases[i], way, threads))
                FY_TRY(calibrate(session, &cases[i], way, threads, 1e6 * (double)effort->round_ms));
        cases[i].model_ns = NAN;
    }
    for (size_t r = 0; !are_met(effort, cases, count); r++) {
        progress("round", (int64_t)r % effort->rounds, effort->rounds);
        for (size_t i = 0; i < count; i++) FY_TRY(measure_round(session, &cases[i], threads, r));
    }
    progress("round", 1, 1);
    for (size_t i = 0; i < count; i++) summarize(&cases[i]);
    return FY_STATUS_OK;
}

fy_status_t bench_report(session_t *session, sheet_t *sheet, const effort_t *effort,
                         const bench_bars_t *bars)
{
    session_sheet(session, sheet, "rows", "wall", ", wall clock", "%s", bars->title);
    session_statistics(session, effort, BENCH_WARM_UP);
    const series_t series = { .name = "ns", .count = bars->count, .spreads = bars->ns };
    const plot_t plot = { .title = bars->plot_title,
                          .x_label = bars->x_label,
                          .y_label = "ns",
                          .log_y = true,
                          .bars = bars->names,
                          .nseries = 1,
                          .series = &series };
    return session_finish(session, sheet, &plot);
}

int cmd_bench(int argc, char **argv)
{
    static const command_t suites[] = {
        { "dispatch", "what a light request costs, beside the bare work", bench_dispatch },
        { "gemm", "matrix products through the dispatcher, beside bare oneDNN", bench_gemm },
        { "chain", "eight elementwise ops in one pass, beside memcpy", bench_chain },
        { "copy", "uploads and downloads by size, beside memcpy", bench_copy },
        { "alloc", "a block and its return, beside malloc, jemalloc and mimalloc", bench_alloc },
        { "step", "steps of optimizers, beside memcpy", bench_step },
        { "train", "training steps, called and replayed as graphs", bench_train },
    };
    return run_command("ferry bench", "Micro benchmarks.", suites, sizeof suites / sizeof *suites,
                       argc, argv);
}
