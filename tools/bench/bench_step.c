/* `ferry bench step`: a step of each optimizer beside a memcpy by as many threads. Both are limited
 * by memory, so the bytes that they read and write in a second are compared.
 * Not here: the loop (bench.c). */
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <ferry/train/optimizer.h>

#include "tools/bench/bench.h"

enum { MOST_THREADS = 64, F32 = 4 };

typedef struct copy {
    char *from, *to;
    size_t nbytes;
} copy_t;

typedef struct step {
    fy_optimizer_t *optimizer;
    copy_t copy; /* the peer's */
    int threads;
    int64_t passes; /* reads and writes of an element by a step */
} step_t;

static fy_status_t run_step(void *context, int64_t iters)
{
    const step_t *step = context;
    for (int64_t i = 0; i < iters; i++) FY_TRY(fy_optimizer_step(step->optimizer));
    return FY_STATUS_OK;
}

static void *run_part(void *context)
{
    const copy_t *part = context;
    memcpy(part->to, part->from, part->nbytes);
    __asm__ volatile("" : : "r"(part->to) : "memory");
    return NULL;
}

/* The caller copies the first part. A thread that cannot be started is replaced by the caller. */
static void copy_by_threads(const copy_t *copy, int threads)
{
    copy_t parts[MOST_THREADS];
    pthread_t others[MOST_THREADS];
    bool runs[MOST_THREADS] = { false };
    const size_t each = copy->nbytes / (size_t)threads / 64 * 64;
    for (int i = threads - 1; i >= 0; i--) {
        const size_t begin = each * (size_t)i, end = i == threads - 1 ? copy->nbytes : begin + each;
        parts[i] = (copy_t){ copy->from + begin, copy->to + begin, end - begin };
        if (i > 0) runs[i] = pthread_create(&others[i], NULL, run_part, &parts[i]) == 0;
        if (!runs[i]) (void)run_part(&parts[i]);
    }
    for (int i = 1; i < threads; i++)
        if (runs[i]) pthread_join(others[i], NULL);
}

static fy_status_t run_memcpy(void *context, int64_t iters)
{
    const step_t *step = context;
    for (int64_t i = 0; i < iters; i++) copy_by_threads(&step->copy, step->threads);
    return FY_STATUS_OK;
}

static void note_threads(void *user, const char *key, const char *value)
{
    int *threads = user;
    if (strcmp(key, "threads") != 0) return;
    if (sscanf(value, "auto: 1 or %d", threads) != 1) *threads = atoi(value);
}

static fy_status_t make_step(session_t *session, fy_optimizer_kind_t kind, int64_t elements,
                             step_t *step)
{
    fy_tensor_t *value, *grad, *state;
    fy_optimizer_options_t options;
    const char *name;
    int64_t states = 0;
    fy_optimizer_defaults(kind, &options, sizeof options);
    FY_TRY(fy_full(session->device, FY_DTYPE_F32, FY_DIMS(elements), 0.5, &value));
    FY_TRY(fy_full(session->device, FY_DTYPE_F32, FY_DIMS(elements), 0.001, &grad));
    FY_TRY(fy_optimizer_create(&options, 1, &value, &grad, &step->optimizer));
    for (size_t i = 0; fy_optimizer_state(step->optimizer, i, &name, &state), name; i++)
        if (strcmp(name, "step") != 0) states++;
    const int64_t again = kind == FY_OPTIMIZER_LARS || kind == FY_OPTIMIZER_LAMB ? 2 : 0;
    step->passes = 3 + again + 2 * states + (kind == FY_OPTIMIZER_LAMB ? 1 : 0);
    return FY_STATUS_OK;
}

static fy_status_t report(session_t *session, const effort_t *effort, const bench_case_t *cases,
                          int64_t elements)
{
    static const column_t columns[] = {
        { "optimizer", "optimizer", 0 },
        { "elements", "elements", 0 },
        { "nbytes", "bytes", 0 },
        SPREAD_COLUMNS("ns", "ns", 0),
        { "worst_ns", "worst", 0 },
        { "gbytes_per_s", "GB/s", 3 },
        { "model_ns", "model ns", 0 },
        { "peer", "peer", 0 },
        SPREAD_HIDDEN("peer_ns", "peer ns", 0),
        { "peer_gbytes_per_s", "peer GB/s", 3 },
        { "bandwidth_ratio", "ratio", 3 },
        ROUNDS_COLUMN,
    };
    const char *names[FY_OPTIMIZER_COUNT];
    spread_t ns[FY_OPTIMIZER_COUNT];
    sheet_t *sheet = sheet_create(columns, sizeof columns / sizeof *columns);
    for (size_t i = 0; i < FY_OPTIMIZER_COUNT; i++) {
        const bench_case_t *c = &cases[i];
        const step_t *step = c->context;
        const int64_t nbytes = step->passes * elements * F32;
        const double rate = (double)nbytes / c->spread.median,
                     peer_rate = 2 * (double)step->copy.nbytes / c->peer_spread.median;
        names[i] = c->op;
        ns[i] = c->spread;
        sheet_text(sheet, c->op);
        sheet_int(sheet, elements);
        sheet_int(sheet, nbytes);
        sheet_spread(sheet, &c->spread);
        sheet_real(sheet, c->spread.worst);
        sheet_real(sheet, rate);
        sheet_real(sheet, c->model_ns);
        sheet_text(sheet, c->peer);
        sheet_spread(sheet, &c->peer_spread);
        sheet_real(sheet, peer_rate);
        sheet_real(sheet, rate / peer_rate);
        sheet_int(sheet, (int64_t)c->spread.rounds);
    }
    const bench_bars_t bars = {
        "a step of each optimizer", "Optimizer steps", "optimizer", names, ns, FY_OPTIMIZER_COUNT
    };
    return bench_report(session, sheet, effort, &bars);
}

static fy_status_t run_all(session_t *session, int64_t elements, const effort_t *effort,
                           step_t *steps, bench_case_t *cases)
{
    int threads = 1;
    FY_TRY(fy_device_describe(fy_device_host(), note_threads, &threads));
    threads = threads < 1 ? 1 : threads > MOST_THREADS ? MOST_THREADS : threads;
    for (int i = 0; i < FY_OPTIMIZER_COUNT; i++) {
        FY_TRY(make_step(session, (fy_optimizer_kind_t)i, elements, &steps[i]));
        steps[i].threads = threads;
        cases[i] = (bench_case_t){ .op = fy_optimizer_name((fy_optimizer_kind_t)i),
                                   .run = run_step,
                                   .peer = "memcpy",
                                   .run_peer = run_memcpy,
                                   .context = &steps[i] };
    }
    FY_TRY(bench_measure(session, cases, FY_OPTIMIZER_COUNT, effort));
    return report(session, effort, cases, elements);
}

int bench_step(int argc, char **argv)
{
    common_t common = { .device = "host" };
    effort_t effort = { 15, 50 };
    int64_t elements = 11000000;
    const option_t options[] = {
        { "elements", OPTION_INT, "N", &elements, "parameters, f32", 1, (int64_t)1 << 30 },
        BENCH_OPTIONS(&effort),
        COMMON_OPTIONS(&common),
    };
    const usage_t usage = { "ferry bench step",
                            "Times steps of optimizers, beside memcpy by as many threads.", options,
                            sizeof options / sizeof *options,
                            "ferry bench step --elements 1000 --rounds 1\n" };
    OPTIONS_TRY(options_parse(&usage, argc, argv));

    session_t session;
    step_t steps[FY_OPTIMIZER_COUNT] = { { 0 } };
    bench_case_t *cases = tool_alloc(FY_OPTIMIZER_COUNT * sizeof *cases);
    const size_t nbytes = (size_t)elements * F32;
    char *from = tool_alloc(nbytes), *to = tool_alloc(nbytes);
    /* touched, so that the peer reads memory and not the page of zeros */
    memset(from, 1, nbytes);
    for (int i = 0; i < FY_OPTIMIZER_COUNT; i++) steps[i].copy = (copy_t){ from, to, nbytes };
    fy_status_t status = session_begin(&session, &common, usage.command, "bench", "step");
    if (status == FY_STATUS_OK) status = run_all(&session, elements, &effort, steps, cases);
    for (int i = 0; i < FY_OPTIMIZER_COUNT; i++) fy_optimizer_destroy(steps[i].optimizer);
    int exit_status = session_end(&session, status);
    free(to);
    free(from);
    free(cases);
    return exit_status;
}
