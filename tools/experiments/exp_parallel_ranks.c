/* Weak and strong scaling of data-parallel training up to many ranks, by the model clock: one plan
 * for each batch of a rank, and the prediction of tools/network/overlap.h for each number of ranks.
 * Weak: the batch of a rank is constant. Strong: the batch of all ranks is. Nothing is trained. Not
 * here: trainings on several devices (exp_parallel.c). */
#include "tools/experiments/exp_parallel.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { MOST_ROWS = 21 }; /* powers of two up to RANKS_MOST */

typedef struct row {
    int64_t ranks, nodes, batch; /* of a rank */
    uint64_t compute_ns, communication_ns, exposed_ns, step_ns, nbytes;
    double hidden, samples_per_s,
        efficiency; /* percent; efficiency: of the samples/s of one rank */
} row_t;

typedef struct curve {
    const char *name;
    size_t count;
    row_t rows[MOST_ROWS];
} curve_t;

bool scaling_check(const char *device, const scaling_t *scaling)
{
    cluster_t cluster;
    if (!ranks_check("experiment parallel", &scaling->ranks, &cluster)) return false;
    if (!scaling->ranks.ranks) {
        if (!scaling->per_node && !scaling->total) return true;
        return TOOL_REFUSE(false,
                           "experiment parallel: --per-node and --total-batch need --ranks\n");
    }
    if (strncmp(device, "sim", 3) != 0)
        return TOOL_REFUSE(
            false, "experiment parallel: --ranks plans on a simulated device, not %s\n", device);
    if (scaling->per_node & (scaling->per_node - 1))
        return TOOL_REFUSE(
            false, "experiment parallel: --per-node takes a power of two, not %" PRId64 "\n",
            scaling->per_node);
    return true;
}

static fy_status_t fill_row(const session_t *session, const scaling_t *scaling, int64_t ranks,
                            int64_t batch, const row_t *first, row_t *out)
{
    cluster_t cluster;
    backward_t backward;
    overlap_t overlap;
    fy_plan_t plan = FY_PLAN_INIT;
    plan_request_t request = { .model = scaling->model, .params = -1 };
    const int64_t per_node = scaling->per_node ? scaling->per_node : 8;
    ranks_t all = scaling->ranks;
    all.ranks = ranks;
    all.nodes = ranks > per_node ? ranks / per_node : 1;
    if (!ranks_check("experiment parallel", &all, &cluster))
        return TOOL_FAIL(INTERNAL, "%" PRId64 " ranks on %" PRId64 " nodes", ranks, all.nodes);
    fy_status_t status =
        backward_plan(session->common->device, &request, batch, NULL, &plan, &backward);
    if (status == FY_STATUS_OK && !plan.fits)
        status = TOOL_FAIL(OUT_OF_MEMORY, "a batch of %" PRId64 " on one of %" PRId64 " ranks: %s",
                           batch, ranks, plan.verdict.text);
    if (status == FY_STATUS_OK) {
        overlap_run(&cluster, &backward, ranks_bucket(&all), false, &overlap);
        *out = (row_t){ .ranks = ranks,
                        .nodes = cluster.nodes,
                        .batch = batch,
                        .compute_ns = backward.step_ns,
                        .communication_ns = overlap.communication_ns,
                        .exposed_ns = overlap.exposed_ns,
                        .step_ns = overlap.step_ns,
                        .nbytes = overlap.inside_nbytes + overlap.between_nbytes,
                        .hidden = overlap_hidden(&overlap) };
        out->samples_per_s = (double)ranks * (double)batch * 1e9 / (double)overlap.step_ns;
        out->efficiency = 100 * out->samples_per_s /
                          ((first ? first : out)->samples_per_s * (double)ranks);
        overlap_free(&overlap);
    }
    backward_free(&backward);
    return status;
}

/* A rank has a sample at least; strong scaling ends there. */
static fy_status_t draw(const session_t *session, const scaling_t *scaling, bool is_strong,
                        curve_t *out)
{
    const int64_t total = scaling->total ? scaling->total : SCALING_TOTAL * scaling->batch;
    *out = (curve_t){ .name = is_strong ? "strong" : "weak" };
    for (int64_t n = 1; n <= scaling->ranks.ranks && (!is_strong || total / n > 0); n *= 2) {
        FY_TRY(fill_row(session, scaling, n, is_strong ? total / n : scaling->batch,
                        out->count ? out->rows : NULL, &out->rows[out->count]));
        out->count++;
        progress(out->name, n, scaling->ranks.ranks);
    }
    return FY_STATUS_OK;
}

static sheet_t *list_rows(const curve_t curves[2])
{
    static const column_t columns[] = {
        { "scaling", "scaling", 0 },
        { "ranks", "ranks", 0 },
        { "nodes", "nodes", 0 },
        { "batch_of_rank", "batch of a rank", 0 },
        { "compute_model_ns", "one rank ns", 0 },
        { "communication_model_ns", "communication ns", 0 },
        { "exposed_model_ns", "exposed ns", 0 },
        { "hidden_percent", "hidden %", 1 },
        { "step_model_ns", "step ns", 0 },
        { "wire_bytes_of_rank", "wire bytes of a rank", 0 },
        { "samples_per_s", "samples/s", 0 },
        { "efficiency_percent", "efficiency %", 1 },
    };
    sheet_t *sheet = sheet_create(columns, sizeof columns / sizeof *columns);
    for (int c = 0; c < 2; c++)
        for (size_t i = 0; i < curves[c].count; i++) {
            const row_t *row = &curves[c].rows[i];
            sheet_text(sheet, curves[c].name);
            sheet_int(sheet, row->ranks);
            sheet_int(sheet, row->nodes);
            sheet_int(sheet, row->batch);
            sheet_int(sheet, (int64_t)row->compute_ns);
            sheet_int(sheet, (int64_t)row->communication_ns);
            sheet_int(sheet, (int64_t)row->exposed_ns);
            sheet_real(sheet, row->hidden);
            sheet_int(sheet, (int64_t)row->step_ns);
            sheet_int(sheet, (int64_t)row->nbytes);
            sheet_real(sheet, row->samples_per_s);
            sheet_real(sheet, row->efficiency);
        }
    return sheet;
}

/* Samples per second over ranks, and one rank's times their number. */
static fy_status_t write_files(session_t *session, const curve_t curves[2], const sheet_t *sheet)
{
    double x[2][MOST_ROWS], y[2][MOST_ROWS], ideal[2][MOST_ROWS];
    series_t series[4];
    for (int c = 0; c < 2; c++) {
        for (size_t i = 0; i < curves[c].count; i++) {
            const row_t *row = &curves[c].rows[i];
            x[c][i] = (double)row->ranks;
            y[c][i] = row->samples_per_s;
            ideal[c][i] = curves[c].rows[0].samples_per_s * (double)row->ranks;
        }
        series[c] = (series_t){ curves[c].name, curves[c].count, x[c], y[c] };
        series[2 + c] =
            (series_t){ c ? "strong, ideal" : "weak, ideal", curves[c].count, x[c], ideal[c] };
    }
    const plot_t plot = { .title = "Data-parallel training, predicted",
                          .x_label = "ranks",
                          .y_label = "samples per second, model clock",
                          .log_x = true,
                          .log_y = true,
                          .nseries = 4,
                          .series = series };
    return session_files(session, sheet, &plot);
}

fy_status_t scaling_run(session_t *session, const scaling_t *scaling)
{
    curve_t curves[2];
    cluster_t cluster;
    FY_TRY(draw(session, scaling, false, &curves[0]));
    FY_TRY(draw(session, scaling, true, &curves[1]));
    ranks_check("experiment parallel", &scaling->ranks, &cluster);
    sheet_t *sheet = list_rows(curves);
    if (session->out) {
        fprintf(session->out,
                "scaling: %s on %s, %s inside a node, %s between, buckets of %" PRIu64 " bytes\n\n",
                scaling->model, session->info.model, cluster.inside.name, cluster.between.name,
                ranks_bucket(&scaling->ranks));
        sheet_print(sheet, session->out);
        fprintf(session->out, "\nassumptions: " RANKS_ASSUMPTIONS "\n");
    } else {
        json_text(&session->json, "model", scaling->model);
        json_text(&session->json, "net", cluster.between.name);
        json_text(&session->json, "node_net", cluster.inside.name);
        json_uint(&session->json, "bucket_bytes", ranks_bucket(&scaling->ranks));
        json_text(&session->json, "clock", "model");
        sheet_json(sheet, &session->json, "scaling");
    }
    const fy_status_t status = write_files(session, curves, sheet);
    sheet_destroy(sheet);
    return status;
}
