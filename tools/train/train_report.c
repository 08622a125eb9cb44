/* The output before and after a training: the model, the data, heavy and light requests, the JSON
 * document.
 * Not here: the output while it runs (train_progress.c). */
#include "tools/train/train.h"

#include <inttypes.h>
#include <math.h>

void train_print_start(const train_run_t *run)
{
    char table[8192];
    FILE *out = run->session.out;
    fy_optimizer_options_t optimizer = FY_OPTIMIZER_OPTIONS_INIT;
    const fy_schedule_t *schedule = run->options.schedule;
    if (!out || fy_optimizer_get(run->optimizer, &optimizer) != FY_STATUS_OK) return;
    fy_model_describe(run->model, table, sizeof table);
    fprintf(out,
            "train: %s on %s (%s)\ndata: %s, %" PRIu64 " samples in %" PRId64 " batches of %" PRId64
            ", %s\n",
            run->info.name, fy_device_name(run->session.device), run->session.info.model,
            run->origin, run->loader.samples, run->loader.steps, run->loader.batch,
            run->loader.is_resident ? "resident on the device" : "each batch is uploaded");
    fprintf(out, "optimizer: %s, lr %g%s%s\n\n%s\n", fy_optimizer_name(optimizer.kind),
            optimizer.lr, schedule ? ", schedule " : "",
            schedule ? fy_schedule_name(schedule->kind) : "", table);
    fflush(out);
}

/* All but those of plans, which move nothing. */
static fy_ledger_totals_t read_all(const train_run_t *run)
{
    char path[64];
    fy_ledger_totals_t all = ledger_read(NULL);
    if (!run->request.chooses) return all;
    snprintf(path, sizeof path, "%s/plan", run->request.recipe->model);
    const fy_ledger_totals_t plans = ledger_read(path);
    all.upload.count -= plans.upload.count;
    all.upload.nbytes -= plans.upload.nbytes;
    all.download.count -= plans.download.count;
    all.download.nbytes -= plans.download.nbytes;
    all.requests -= plans.requests;
    all.syncs -= plans.syncs;
    return all;
}

/* Prints uploads and downloads, if there were any. */
static void print_heavy(FILE *out, const char *what, fy_ledger_totals_t t)
{
    if (!t.upload.count && !t.download.count) return;
    fprintf(out,
            "  %-24s %6" PRIu64 " up %14" PRIu64 " bytes   %6" PRIu64 " down %14" PRIu64 " bytes\n",
            what, t.upload.count, t.upload.nbytes, t.download.count, t.download.nbytes);
}

void train_print_summary(const train_run_t *run)
{
    FILE *out = run->session.out;
    const fy_train_result_t *result = &run->result;
    const char *name = run->request.recipe->model;
    static const char *const parts[][2] = { { "data set", "data" },
                                            { "steps", "train/epoch/step" },
                                            { "losses, asked for", "train/epoch/loss" },
                                            { "tests", "train/test" },
                                            { "checkpoints", "train/checkpoint" },
                                            { "skipped steps, asked for", "train/loss_scaling" },
                                            { "final weights", "weights" } };
    if (!out) return;
    fprintf(out, "\n%s after %" PRId64 " steps (%" PRId64 " epochs): loss %.4f",
            result->is_stopped ? "stopped" : "done", result->steps, result->epochs,
            result->train_loss);
    if (!isnan(result->test_accuracy))
        fprintf(out, ", test accuracy %.2f %%", 100 * result->test_accuracy);
    if (isnan(result->test_accuracy) && !isnan(result->test_loss))
        fprintf(out, ", test loss %.4f", result->test_loss);
    fprintf(out, "; %.1f s of training, %.0f samples/s\n\nheavy requests\n",
            (double)result->wall_ns * 1e-9, result->samples_per_s);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        char path[64];
        snprintf(path, sizeof path, "%s/%s", name, parts[i][1]);
        print_heavy(out, parts[i][0], ledger_read(path));
    }
    const fy_ledger_totals_t all = read_all(run);
    print_heavy(out, "all", all);
    if (result->skipped_steps)
        fprintf(out, "loss scaling: %" PRId64 " of the steps had infinite gradients: skipped\n",
                result->skipped_steps);
    if (result->graph_requests)
        fprintf(out, "graph: %" PRIu64 " calls a step, replayed %" PRIu64 " times, %s\n",
                result->graph_requests, result->graph_replays,
                result->graph_path == FY_GRAPH_DEVICE ? "one request for the device each"
                                                      : "submitted one by one");
    fprintf(out,
            "light requests %" PRIu64 ", syncs %" PRIu64
            ", device allocations in steady steps %" PRIu64 "\n",
            all.requests, all.syncs, result->device_allocs_steady);
    train_dist_print(run);
    if (run->request.save)
        fprintf(out, "weights: saved to %s\n", run->request.save);
    else
        fprintf(out, "weights: %" PRIu64 " bytes, checksum %016" PRIx64 "\n", run->weight_nbytes,
                run->checksum);
}

void train_json(train_run_t *run)
{
    json_t *json = &run->session.json;
    const fy_ledger_totals_t all = read_all(run);
    json_uint(json, "params", run->info.params);
    json_int(json, "steps", run->result.steps);
    json_int(json, "skipped_steps", run->result.skipped_steps);
    json_int(json, "epochs", run->result.epochs);
    json_begin_array(json, "train_loss");
    for (size_t i = 0; i < run->nlosses; i++) json_real(json, NULL, run->losses[i]);
    json_end(json);
    json_real(json, "test_accuracy", run->result.test_accuracy);
    json_real(json, "images_per_s", run->result.samples_per_s);
    json_begin_object(json, "ledger");
    json_begin_object(json, "uploads");
    json_uint(json, "count", all.upload.count);
    json_uint(json, "bytes", all.upload.nbytes);
    json_end(json);
    json_begin_object(json, "downloads");
    json_uint(json, "count", all.download.count);
    json_uint(json, "bytes", all.download.nbytes);
    json_end(json);
    json_uint(json, "syncs", all.syncs);
    json_uint(json, "device_allocs_steady", run->result.device_allocs_steady);
    json_end(json);
    if (run->result.graph_requests) {
        json_begin_object(json, "graph");
        json_uint(json, "requests", run->result.graph_requests);
        json_uint(json, "replays", run->result.graph_replays);
        json_text(json, "path", run->result.graph_path == FY_GRAPH_DEVICE ? "device" : "calls");
        json_end(json);
    }
    json_text(json, "clock", "wall");
}

fy_status_t train_write_losses(train_run_t *run)
{
    static const column_t columns[] = { { "step", "step", 0 }, { "loss", "loss", 6 } };
    const series_t series = { run->info.name, run->nlosses, run->loss_steps, run->losses };
    char title[96];
    snprintf(title, sizeof title, "Training %s", run->info.name);
    const plot_t plot = { .title = title,
                          .x_label = "updates",
                          .y_label = "training loss",
                          .nseries = 1,
                          .series = &series };
    if (!run->session.common->csv && !run->session.common->plot) return FY_STATUS_OK;
    sheet_t *sheet = sheet_create(columns, sizeof columns / sizeof *columns);
    for (size_t i = 0; i < run->nlosses; i++) {
        sheet_int(sheet, (int64_t)run->loss_steps[i]);
        sheet_real(sheet, run->losses[i]);
    }
    return session_finish(&run->session, sheet, &plot);
}
