/* `ferry bench chain`: eight elementwise ops on 16 MiB, replayed as one chain, and called one by
 * one, beside one memcpy of as many bytes. Not here: the loop (bench.c), PyTorch's times
 * (bench/chain_torch.py). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/bench/bench.h"

enum { CASE_COUNT = 2, ROWS = 1 << 16, COLUMNS = 64, NBYTES = 4 * ROWS * COLUMNS };

typedef struct chain {
    fy_tensor_t *x, *bias, *y;
    fy_graph_t *graph;
    char *raw; /* twice NBYTES, for memcpy */
} chain_t;

/* The eight calls: products, sums, an activation, a row that repeats. */
fy_status_t chain_of_eight(fy_tensor_t *x, fy_tensor_t *bias, fy_tensor_t **out_y)
{
    fy_tensor_t *t;
    const fy_scope_t scope = fy_scope_begin("chain");
    fy_status_t status = fy_affine(x, 1.5, 0.25, &t);
    if (status == FY_STATUS_OK) status = fy_add(t, bias, &t);
    if (status == FY_STATUS_OK) status = fy_relu(t, &t);
    if (status == FY_STATUS_OK) status = fy_mul(t, x, &t);
    if (status == FY_STATUS_OK) status = fy_affine(t, 0.5, -1, &t);
    if (status == FY_STATUS_OK) status = fy_abs(t, &t);
    if (status == FY_STATUS_OK) status = fy_sub(t, bias, &t);
    if (status == FY_STATUS_OK) status = fy_add(t, x, out_y);
    fy_scope_end(scope, status == FY_STATUS_OK, out_y);
    return status;
}

static fy_status_t run_replay(void *context, int64_t iters)
{
    const chain_t *chain = context;
    for (int64_t i = 0; i < iters; i++) FY_TRY(fy_graph_replay(chain->graph, NULL));
    return FY_STATUS_OK;
}

static fy_status_t run_calls(void *context, int64_t iters)
{
    const chain_t *chain = context;
    for (int64_t i = 0; i < iters; i++) {
        fy_tensor_t *y;
        FY_TRY(chain_of_eight(chain->x, chain->bias, &y));
        fy_tensor_destroy(y);
    }
    return FY_STATUS_OK;
}

static fy_status_t peer_memcpy(void *context, int64_t iters)
{
    const chain_t *chain = context;
    for (int64_t i = 0; i < iters; i++) {
        memcpy(chain->raw, chain->raw + NBYTES, NBYTES);
        __asm__ volatile("" : : "r"(chain->raw) : "memory"); /* or the compiler drops it */
    }
    return FY_STATUS_OK;
}

static fy_status_t report(session_t *session, const effort_t *effort, const bench_case_t *cases)
{
    static const column_t columns[] = {
        { "case", "8 ops on 16 MiB", 0 },
        SPREAD_COLUMNS("ns", "ns", 0),
        { "worst_ns", "worst", 0 },
        { "peer", "peer", 0 },
        SPREAD_HIDDEN("peer_ns", "ns", 0),
        { "peer_worst_ns", "worst", 0 },
        { "time_ratio", "ratio", 2 },
        { "model_ns", NULL, 0 },
        ROUNDS_COLUMN,
    };
    const char *names[CASE_COUNT];
    spread_t ns[CASE_COUNT];
    sheet_t *sheet = sheet_create(columns, sizeof columns / sizeof *columns);
    for (int i = 0; i < CASE_COUNT; i++) {
        const bench_case_t *c = &cases[i];
        names[i] = c->op;
        ns[i] = c->spread;
        sheet_text(sheet, c->op);
        sheet_spread(sheet, &c->spread);
        sheet_real(sheet, c->spread.worst);
        sheet_text(sheet, c->peer);
        sheet_spread(sheet, &c->peer_spread);
        sheet_real(sheet, c->peer_spread.worst);
        sheet_real(sheet, c->spread.median / c->peer_spread.median);
        sheet_real(sheet, c->model_ns);
        sheet_int(sheet, (int64_t)c->spread.rounds);
    }
    return bench_report(session, sheet, effort,
                        &(bench_bars_t){ "chain", "Eight elementwise ops on 16 MiB", "way", names,
                                         ns, CASE_COUNT });
}

static fy_status_t run(session_t *session, const effort_t *effort, chain_t *chain)
{
    bench_case_t *cases = tool_alloc(CASE_COUNT * sizeof *cases);
    memset(chain->raw, 1, 2 * (size_t)NBYTES);
    cases[0] = (bench_case_t){ .op = "replayed", .run = run_replay };
    cases[1] = (bench_case_t){ .op = "called", .run = run_calls };
    for (int i = 0; i < CASE_COUNT; i++) {
        cases[i].peer = "memcpy";
        cases[i].run_peer = peer_memcpy;
        cases[i].context = chain;
    }
    fy_status_t status =
        fy_full(session->device, FY_DTYPE_F32, FY_DIMS(ROWS, COLUMNS), 0.75, &chain->x);
    if (status == FY_STATUS_OK)
        status = fy_full(session->device, FY_DTYPE_F32, FY_DIMS(COLUMNS), -0.5, &chain->bias);
    if (status == FY_STATUS_OK) status = fy_graph_begin(session->device);
    if (status == FY_STATUS_OK) {
        status = chain_of_eight(chain->x, chain->bias, &chain->y);
        const fy_status_t end = fy_graph_end(&chain->graph);
        if (status == FY_STATUS_OK) status = end;
    }
    if (status == FY_STATUS_OK) status = bench_measure(session, cases, CASE_COUNT, effort);
    if (status == FY_STATUS_OK) status = report(session, effort, cases);
    free(cases);
    return status;
}

int bench_chain(int argc, char **argv)
{
    common_t common = { .device = "host" };
    effort_t effort = { 15, 50 };
    chain_t chain = { 0 };
    const option_t options[] = { BENCH_OPTIONS(&effort), COMMON_OPTIONS(&common) };
    const usage_t usage = { "ferry bench chain",
                            "Times eight elementwise ops on 16 MiB, replayed as one chain and "
                            "called one by one, beside "
                            "one memcpy of 16 MiB.",
                            options, sizeof options / sizeof *options,
                            "ferry bench chain --device host --rounds 1 --round-ms 1\n" };
    OPTIONS_TRY(options_parse(&usage, argc, argv));
    session_t session;
    chain.raw = tool_alloc(2 * (size_t)NBYTES);
    fy_status_t status = session_begin(&session, &common, usage.command, "bench", "chain");
    if (status == FY_STATUS_OK) status = run(&session, &effort, &chain);
    const int exit_status = session_end(&session, status);
    free(chain.raw);
    return exit_status;
}
