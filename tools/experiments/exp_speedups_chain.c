/* Row 18 of `ferry experiment speedups`: elementwise calls that a recorded graph runs as one chain.
 * Not here: the table of rows (exp_speedups.c), which calls make a chain (ops/fuse.c). */
#include <stdlib.h>
#include <string.h>

#include "tools/bench/bench.h"
#include "tools/experiments/exp_speedups.h"

enum { ROWS = 1 << 12, COLUMNS = 256, TIMES = 10 };

/* Replays after the first, which on some devices is slower. */
static fy_status_t time_graph(session_t *session, fy_graph_t *graph, double *out_ns)
{
    double begin, end;
    FY_TRY(fy_graph_replay(graph, NULL));
    FY_TRY(clock_ns(session, &begin));
    for (int i = 0; i < TIMES; i++) FY_TRY(fy_graph_replay(graph, NULL));
    FY_TRY(clock_ns(session, &end));
    *out_ns = (end - begin) / TIMES;
    return FY_STATUS_OK;
}

static fy_status_t time_calls(session_t *session, fy_tensor_t *x, fy_tensor_t *bias, double *out_ns)
{
    double begin, end;
    fy_tensor_t *y;
    FY_TRY(clock_ns(session, &begin));
    for (int i = 0; i < TIMES; i++) {
        FY_TRY(chain_of_eight(x, bias, &y));
        fy_tensor_destroy(y);
    }
    FY_TRY(clock_ns(session, &end));
    *out_ns = (end - begin) / TIMES;
    return FY_STATUS_OK;
}

fy_status_t speedup_chain(session_t *session, speedup_t *out)
{
    fy_tensor_t *rng, *x, *bias, *called, *fused;
    fy_graph_t *graph;
    fy_graph_info_t info = FY_GRAPH_INFO_INIT;
    float *values[2] = { NULL, NULL };
    uint64_t count = 0;
    FY_TRY(fy_rng_create(session->device, 6, &rng));
    FY_TRY(fy_rand(rng, FY_DTYPE_F32, FY_DIMS(ROWS, COLUMNS), -1, 1, &x));
    FY_TRY(fy_rand(rng, FY_DTYPE_F32, FY_DIMS(COLUMNS), -1, 1, &bias));
    FY_TRY(chain_of_eight(x, bias, &called));
    FY_TRY(fy_graph_begin(session->device));
    FY_TRY(chain_of_eight(x, bias, &fused));
    FY_TRY(fy_graph_end(&graph));
    FY_TRY(fy_graph_query(graph, &info));
    FY_TRY(time_graph(session, graph, &out->with));
    FY_TRY(time_calls(session, x, bias, &out->without));
    fy_status_t status = fetch_f32(called, &values[0], &count);
    if (status == FY_STATUS_OK) status = fetch_f32(fused, &values[1], &count);
    if (status == FY_STATUS_OK) {
        const bool is_same = memcmp(values[0], values[1], count * sizeof *values[0]) == 0;
        out->ok = is_same && (info.fused_calls == 8 || !info.chains);
        snprintf(out->held, sizeof out->held, "%llu of 8 calls in a chain; %s bits",
                 (unsigned long long)info.fused_calls, is_same ? "the same" : "other");
    }
    free(values[0]);
    free(values[1]);
    return status;
}
