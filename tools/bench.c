/* The measuring loop of `ferry bench`. Not here: what is measured (bench_dispatch.c, bench_gemm.c, bench_copy.c). */
#include "tools/bench.h"

#include <math.h>

static fy_status_t time_once(session_t *session, const bench_case_t *c, bool peer, int64_t iters, double *out_ns)
{
    double begin = wall_ns();
    FY_TRY(peer ? c->run_peer(c->context, iters) : c->run(c->context, iters));
    if (!peer) FY_TRY(session_wait(session));
    *out_ns = wall_ns() - begin;
    return FY_STATUS_OK;
}

/* Doubles until a round takes long enough; this is the warm-up too. */
static fy_status_t calibrate(session_t *session, const bench_case_t *c, bool peer, double round_ns, int64_t *out_iters)
{
    int64_t iters = 1;
    double ns;
    FY_TRY(time_once(session, c, peer, 1, &ns)); /* first call: primitives are made, memory is touched */
    for (;; iters *= 2) {
        FY_TRY(time_once(session, c, peer, iters, &ns));
        if (ns >= round_ns / 2 || iters > (int64_t)1 << 40) break;
    }
    *out_iters = iters;
    return FY_STATUS_OK;
}

fy_status_t bench_measure(session_t *session, bench_case_t *cases, size_t count, const bench_effort_t *effort)
{
    size_t rounds = (size_t)effort->rounds;
    for (size_t i = 0; i < count; i++) {
        bench_case_t *c = &cases[i];
        progress("warm-up", (int64_t)i, (int64_t)count);
        FY_TRY(calibrate(session, c, false, 1e6 * (double)effort->round_ms, &c->iters));
        if (c->peer) FY_TRY(calibrate(session, c, true, 1e6 * (double)effort->round_ms, &c->peer_iters));
        c->model_ns = NAN;
    }
    for (size_t r = 0; r < rounds; r++) {
        progress("round", (int64_t)r, (int64_t)rounds);
        for (size_t i = 0; i < count; i++) {
            bench_case_t *c = &cases[i];
            double ns, model_begin = session_model_ns(session);
            FY_TRY(time_once(session, c, false, c->iters, &ns));
            c->rounds[0][r] = ns / (double)c->iters;
            c->model_ns = (session_model_ns(session) - model_begin) / (double)c->iters;
            if (!c->peer) continue;
            FY_TRY(time_once(session, c, true, c->peer_iters, &ns));
            c->rounds[1][r] = ns / (double)c->peer_iters;
        }
    }
    progress("round", (int64_t)rounds, (int64_t)rounds);
    for (size_t i = 0; i < count; i++) {
        bench_case_t *c = &cases[i];
        c->worst_ns = worst(c->rounds[0], rounds);
        c->ns = median(c->rounds[0], rounds);
        c->peer_worst = c->peer ? worst(c->rounds[1], rounds) : NAN;
        c->peer_ns = c->peer ? median(c->rounds[1], rounds) : NAN;
    }
    return FY_STATUS_OK;
}

fy_status_t bench_report(session_t *session, sheet_t *sheet, const bench_bars_t *bars)
{
    if (session->out) {
        fprintf(session->out, "%s on %s (%s), wall clock\n\n", bars->title, fy_device_name(session->device), session->info.model);
        sheet_print(sheet, session->out);
    } else {
        json_text(&session->json, "clock", "wall");
        sheet_json(sheet, &session->json, "rows");
    }
    const series_t series = { "ns", bars->count, NULL, bars->ns };
    const plot_t plot = { .title = bars->plot_title,
                          .x_label = bars->x_label,
                          .y_label = "ns",
                          .log_y = true,
                          .bars = bars->names,
                          .nseries = 1,
                          .series = &series };
    fy_status_t status = session_files(session, sheet, &plot);
    sheet_destroy(sheet);
    return status;
}
