/* `ferry bench dispatch`: what a light request costs when the work is next to nothing, beside the
 * same work done by hand.
 * Not here: the loop (bench.c). For instructions instead of nanoseconds: bench/instructions.sh. */
#include <math.h>
#include <stdlib.h>

#include "tools/bench/bench.h"
#include "tools/bench/peers.h"

enum { CASE_COUNT = 9, PAIR_COUNT = 6 };

/* Operands of one case: two device tensors, and what the peer works on. */
typedef struct pair {
    fy_tensor_t *a, *b;
    int64_t n;
    float *raw; /* room for three operands of n (add) or n x n (matmul) */
} pair_t;

static fy_status_t run_clock(void *context, int64_t iters)
{
    volatile fy_poll_t sink; /* a call that does nothing: what loop and call cost */
    (void)context;
    for (int64_t i = 0; i < iters; i++) sink = fy_ticket_poll((fy_ticket_t){ 0, 0 });
    (void)sink;
    return FY_STATUS_OK;
}

static fy_status_t run_slice(void *context, int64_t iters)
{
    pair_t *p = context;
    for (int64_t i = 0; i < iters; i++) {
        fy_tensor_t *view;
        FY_TRY(fy_slice(p->a, 0, 1, 3, &view));
        fy_tensor_destroy(view);
    }
    return FY_STATUS_OK;
}

static fy_status_t run_create(void *context, int64_t iters)
{
    pair_t *p = context;
    fy_tensor_info_t info = FY_TENSOR_INFO_INIT;
    FY_TRY(fy_tensor_query(p->a, &info));
    for (int64_t i = 0; i < iters; i++) {
        fy_tensor_t *made;
        FY_TRY(fy_tensor_create(info.device, FY_DTYPE_F32, FY_DIMS(4), &made));
        fy_tensor_destroy(made);
    }
    return FY_STATUS_OK;
}

static fy_status_t run_add(void *context, int64_t iters)
{
    pair_t *p = context;
    for (int64_t i = 0; i < iters; i++) {
        fy_tensor_t *sum;
        FY_TRY(fy_add(p->a, p->b, &sum));
        fy_tensor_destroy(sum);
    }
    return FY_STATUS_OK;
}

/* The same by hand: malloc, a loop, free. */
static fy_status_t peer_add(void *context, int64_t iters)
{
    pair_t *p = context;
    const float *a = p->raw, *b = p->raw + p->n;
    for (int64_t i = 0; i < iters; i++) {
        float *sum = malloc((size_t)p->n * sizeof *sum);
        if (!sum) return TOOL_FAIL(OUT_OF_MEMORY, "malloc gave nothing");
        for (int64_t k = 0; k < p->n; k++) sum[k] = a[k] + b[k];
        __asm__ volatile("" : : "r"(sum) : "memory"); /* or the compiler drops it all */
        free(sum);
    }
    return FY_STATUS_OK;
}

static fy_status_t run_matmul(void *context, int64_t iters)
{
    pair_t *p = context;
    for (int64_t i = 0; i < iters; i++) {
        fy_tensor_t *product;
        FY_TRY(fy_matmul(p->a, p->b, &product));
        fy_tensor_destroy(product);
    }
    return FY_STATUS_OK;
}

static fy_status_t peer_matmul(void *context, int64_t iters)
{
    pair_t *p = context;
    int64_t n = p->n;
    for (int64_t i = 0; i < iters; i++)
        if (!peer_gemm(n, n, n, p->raw, n, p->raw + n * n, n, p->raw + 2 * n * n, n))
            return TOOL_FAIL(INTERNAL, "dnnl_sgemm failed");
    return FY_STATUS_OK;
}

static fy_status_t make_pair(session_t *session, pair_t *p, int64_t n, int rank)
{
    int64_t dims[2] = { n, n }, count = rank == 1 ? n : n * n;
    p->n = n;
    p->raw = tool_alloc((size_t)(3 * count) * sizeof *p->raw);
    for (int64_t i = 0; i < 3 * count; i++) p->raw[i] = 1;
    FY_TRY(fy_full(session->device, FY_DTYPE_F32, rank, dims, 1, &p->a));
    return fy_full(session->device, FY_DTYPE_F32, rank, dims, 1, &p->b);
}

static fy_status_t report(session_t *session, const effort_t *effort, const bench_case_t *cases,
                          size_t count)
{
    static const column_t columns[] = {
        { "op", "op", 0 },
        SPREAD_COLUMNS("ns_per_op", "ns/op", 1),
        { "worst_ns_per_op", "worst", 1 },
        { "peer", "peer", 0 },
        SPREAD_HIDDEN("peer_ns_per_op", "ns/op", 1),
        { "peer_worst_ns_per_op", "worst", 1 },
        { "overhead_ns", "overhead [ns]", 1 },
        { "one_thread_ns_per_op", "1 thread", 1 },
        { "all_threads_ns_per_op", "all", 1 },
        { "threads_ratio", "choice", 3 },
        { "model_ns_per_op", NULL, 1 },
        ROUNDS_COLUMN,
    };
    const char *names[CASE_COUNT];
    spread_t ns[CASE_COUNT];
    sheet_t *sheet = sheet_create(columns, sizeof columns / sizeof *columns);
    for (size_t i = 0; i < count; i++) {
        const bench_case_t *c = &cases[i];
        names[i] = c->op;
        ns[i] = c->spread;
        sheet_text(sheet, c->op);
        sheet_spread(sheet, &c->spread);
        sheet_real(sheet, c->spread.worst);
        sheet_text(sheet, c->peer);
        sheet_spread(sheet, &c->peer_spread);
        sheet_real(sheet, c->peer_spread.worst);
        sheet_real(sheet, c->spread.median - c->peer_spread.median);
        sheet_real(sheet, c->one_ns);
        sheet_real(sheet, c->all_ns);
        sheet_real(sheet, c->threads_ratio);
        sheet_real(sheet, c->model_ns);
        sheet_int(sheet, (int64_t)c->spread.rounds);
    }
    return bench_report(
        session, sheet, effort,
        &(bench_bars_t){ "dispatch", "What a light request costs", "request", names, ns, count });
}

static fy_status_t run(session_t *session, const effort_t *effort, pair_t pairs[PAIR_COUNT])
{
    const char *sgemm = peer_gemm_found() ? "dnnl_sgemm" : NULL;
    FY_TRY(make_pair(session, &pairs[0], 4, 1));
    FY_TRY(make_pair(session, &pairs[1], 1024, 1));
    FY_TRY(make_pair(session, &pairs[2], 16, 2));
    FY_TRY(make_pair(session, &pairs[3], 64, 2));
    FY_TRY(make_pair(session, &pairs[4], 1 << 16, 1));
    FY_TRY(make_pair(session, &pairs[5], 1 << 20, 1));
    bench_case_t *cases = tool_alloc(CASE_COUNT * sizeof *cases);
    cases[0] = (bench_case_t){ .op = "call (ticket_poll)", .run = run_clock };
    cases[1] = (bench_case_t){ .op = "slice of f32[4]", .run = run_slice, .context = &pairs[0] };
    cases[2] = (bench_case_t){ .op = "create f32[4]", .run = run_create, .context = &pairs[0] };
    cases[3] = (bench_case_t){ .op = "add f32[4]",
                               .run = run_add,
                               .peer = "malloc_loop_free",
                               .run_peer = peer_add,
                               .context = &pairs[0] };
    cases[4] = (bench_case_t){ .op = "add f32[1024]",
                               .run = run_add,
                               .peer = "malloc_loop_free",
                               .run_peer = peer_add,
                               .context = &pairs[1] };
    cases[5] = (bench_case_t){ .op = "matmul 16x16x16",
                               .run = run_matmul,
                               .peer = sgemm,
                               .run_peer = peer_matmul,
                               .context = &pairs[2] };
    cases[6] = (bench_case_t){ .op = "matmul 64x64x64",
                               .run = run_matmul,
                               .peer = sgemm,
                               .run_peer = peer_matmul,
                               .context = &pairs[3] };
    cases[7] = (bench_case_t){ .op = "add f32[65536]", .run = run_add, .context = &pairs[4] };
    cases[8] = (bench_case_t){ .op = "add f32[1048576]", .run = run_add, .context = &pairs[5] };
    for (size_t i = 3; i < CASE_COUNT; i++) cases[i].by_threads = true;
    fy_status_t status = bench_measure(session, cases, CASE_COUNT, effort);
    if (status == FY_STATUS_OK) status = report(session, effort, cases, CASE_COUNT);
    free(cases);
    return status;
}

int bench_dispatch(int argc, char **argv)
{
    common_t common = { .device = "auto" };
    effort_t effort = { 15, 10 };
    pair_t pairs[PAIR_COUNT] = { { NULL, NULL, 0, NULL } };
    const option_t options[] = { BENCH_OPTIONS(&effort), COMMON_OPTIONS(&common) };
    const usage_t usage = {
        "ferry bench dispatch",
        "Times light requests that have next to nothing to do, beside the same work by hand.",
        options, sizeof options / sizeof *options,
        "ferry bench dispatch --device host --rounds 1 --round-ms 1\n"
    };
    OPTIONS_TRY(options_parse(&usage, argc, argv));

    session_t session;
    fy_status_t status = session_begin(&session, &common, usage.command, "bench", "dispatch");
    if (status == FY_STATUS_OK) status = run(&session, &effort, pairs);
    int exit_status = session_end(&session, status);
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) free(pairs[i].raw);
    return exit_status;
}
