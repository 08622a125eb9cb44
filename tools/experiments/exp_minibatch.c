/* Experiment E2: linear regression on the airfoil data by gradient descent with batches of 1500, 1,
 * 100 and 10. The data set is uploaded once, permutations are made on the device, and only recorded
 * losses are downloaded.
 * Not here: the training (exp_minibatch_train.c). How to read it: docs/experiments.md. */
#include "tools/experiments/parts.h"

#include <math.h>
#include <string.h>

typedef struct request {
    const char *data, *runs;
    int init;
    int64_t seed;
    effort_t effort;
} request_t;

/* Sets chosen[i] for each name in the comma-separated list. */
static bool choose_runs(const char *list, bool chosen[RUN_COUNT])
{
    while (*list) {
        size_t n = strcspn(list, ","), i = 0;
        while (i < RUN_COUNT &&
               (strlen(recipes[i].name) != n || memcmp(recipes[i].name, list, n) != 0))
            i++;
        if (i == RUN_COUNT)
            return TOOL_REFUSE(false, "--runs: '%.*s' is none of gd, sgd, mini100, mini10\n",
                               (int)n, list);
        chosen[i] = true;
        list += n;
        list += *list == ',';
    }
    return true;
}

static void report_json(session_t *session, const minibatch_t *runs, size_t count)
{
    json_t *json = &session->json;
    json_begin_array(json, "runs");
    for (size_t i = 0; i < count; i++) {
        const minibatch_t *run = &runs[i];
        json_begin_object(json, NULL);
        json_text(json, "name", run->recipe->name);
        json_int(json, "batch", run->recipe->batch);
        json_real(json, "lr", run->recipe->lr);
        json_int(json, "epochs", run->recipe->epochs);
        json_begin_array(json, "losses");
        for (int k = 0; k < run->count; k++) json_real(json, NULL, run->losses[k]);
        json_end(json);
        json_begin_array(json, "samples_seen");
        for (int k = 0; k < run->count; k++) json_real(json, NULL, run->seen[k]);
        json_end(json);
        json_spread(json, "sec_per_epoch", &run->sec_per_epoch);
        json_spread(json, "model_sec_per_epoch", &run->model_sec_per_epoch);
        json_uint(json, "rounds", run->sec_per_epoch.rounds);
        json_uint(json, "uploads", run->traffic.upload.count);
        json_uint(json, "downloads", run->traffic.download.count);
        json_uint(json, "bytes_up", run->traffic.upload.nbytes);
        json_uint(json, "bytes_down", run->traffic.download.nbytes);
        json_uint(json, "requests", run->traffic.requests);
        json_uint(json, "syncs", run->traffic.syncs);
        json_end(json);
    }
    json_end(json);
}

static void report_text(session_t *session, const minibatch_t *runs, size_t count,
                        const char *origin)
{
    static const column_t columns[] = {
        { "name", "run", 0 },
        { "batch", "batch", 0 },
        { "lr", "lr", 3 },
        { "epochs", "epochs", 0 },
        { "final_loss", "final loss", 4 },
        SPREAD_COLUMNS("sec_per_epoch", "s/epoch", 5),
        { "model_sec_per_epoch", "model s/epoch", 5 },
        { "requests", "light requests", 0 },
        { "bytes_up", "bytes up", 0 },
        { "downloads", "downloads", 0 },
        { "bytes_down", "bytes down", 0 },
    };
    if (!session->out) return;
    fprintf(session->out, "minibatch: linear regression, %d rows, on %s (%s)\ndata: %s\n\n",
            TRAIN_ROWS, fy_device_name(session->device), session->info.model, origin);
    sheet_t *sheet = sheet_create(columns, sizeof columns / sizeof *columns);
    for (size_t i = 0; i < count; i++) {
        const minibatch_t *run = &runs[i];
        sheet_text(sheet, run->recipe->name);
        sheet_int(sheet, run->recipe->batch);
        sheet_real(sheet, run->recipe->lr);
        sheet_int(sheet, run->recipe->epochs);
        sheet_real(sheet, run->losses[run->count - 1]);
        sheet_spread(sheet, &run->sec_per_epoch);
        sheet_real(sheet, run->model_sec_per_epoch.median);
        sheet_int(sheet, (int64_t)run->traffic.requests);
        sheet_int(sheet, (int64_t)run->traffic.upload.nbytes);
        sheet_int(sheet, (int64_t)run->traffic.download.count);
        sheet_int(sheet, (int64_t)run->traffic.download.nbytes);
    }
    sheet_print(sheet, session->out);
    sheet_destroy(sheet);
    for (size_t i = 0; i < count; i++) {
        fprintf(session->out, "%s%s:", i ? "" : "\nlosses\n  ", runs[i].recipe->name);
        for (int k = 0; k < runs[i].count; k++)
            fprintf(session->out, isnan(runs[i].losses[k]) ? " -" : " %.4f", runs[i].losses[k]);
        fputs(i + 1 < count ? "\n  " : "\n", session->out);
    }
}

/* CSV and figure: one row, one point for each recorded loss. */
static fy_status_t report_curves(session_t *session, const minibatch_t *runs, size_t count)
{
    static const column_t columns[] = {
        { "run", "run", 0 },
        { "batch", "batch", 0 },
        { "samples_seen", "samples seen", 0 },
        { "loss", "loss", 6 },
    };
    series_t series[RUN_COUNT];
    sheet_t *sheet = sheet_create(columns, sizeof columns / sizeof *columns);
    for (size_t i = 0; i < count; i++) {
        series[i] =
            (series_t){ runs[i].recipe->name, (size_t)runs[i].count, runs[i].seen, runs[i].losses };
        for (int k = 0; k < runs[i].count; k++) {
            sheet_text(sheet, runs[i].recipe->name);
            sheet_int(sheet, runs[i].recipe->batch);
            sheet_int(sheet, (int64_t)runs[i].seen[k]);
            sheet_real(sheet, runs[i].losses[k]);
        }
    }
    const plot_t plot = { .title = "Linear regression on airfoil self-noise",
                          .x_label = "samples seen",
                          .y_label = "loss on all rows",
                          .log_x = true,
                          .nseries = count,
                          .series = series };
    return session_finish(session, sheet, &plot);
}

static fy_status_t load_standardised(const char *data, char *origin, size_t room,
                                     fy_table_t **out_table)
{
    FY_TRY(airfoil_load(data, origin, room, out_table));
    fy_status_t status = FY_STATUS_OK;
    if (fy_table_rows(*out_table) < TRAIN_ROWS)
        status = TOOL_FAIL(CORRUPT_DATA, "%s has %llu rows; %d are needed", origin,
                           (unsigned long long)fy_table_rows(*out_table), TRAIN_ROWS);
    /* over all rows, those left out included */
    if (status == FY_STATUS_OK) status = fy_table_standardise(*out_table, NULL, NULL);
    if (status == FY_STATUS_OK) return status;
    fy_table_destroy(*out_table);
    *out_table = NULL;
    return status;
}

static fy_status_t run(session_t *session, const request_t *request, const bool chosen[RUN_COUNT])
{
    char origin[4096];
    fy_table_t *table;
    fy_tensor_t *data;
    minibatch_t runs[RUN_COUNT];
    size_t count = 0;

    FY_TRY(load_standardised(request->data, origin, sizeof origin, &table));
    fy_status_t status = minibatch_upload(session, table, &data);
    fy_table_destroy(table);
    FY_TRY(status);
    for (int i = 0; i < RUN_COUNT; i++)
        if (chosen[i])
            FY_TRY(minibatch_train(session, data, &recipes[i], (init_kind_t)request->init,
                                   request->seed, &request->effort, &runs[count++]));
    if (session->json.file) {
        fy_ledger_totals_t sent = ledger_read("minibatch/data");
        json_text(&session->json, "data", origin);
        json_text(&session->json, "init", request->init == INIT_ZERO ? "zero" : "normal");
        json_int(&session->json, "seed", request->seed);
        json_text(&session->json, "clock", "wall");
        json_uint(&session->json, "data_uploads", sent.upload.count);
        json_uint(&session->json, "data_bytes_up", sent.upload.nbytes);
        report_json(session, runs, count);
    }
    report_text(session, runs, count, origin);
    session_statistics(session, &request->effort, "a step of each run");
    return report_curves(session, runs, count);
}

int exp_minibatch(int argc, char **argv)
{
    common_t common = { .device = "auto" };
    request_t request = { NULL, "gd,sgd,mini100,mini10", INIT_NORMAL, 1, { .rounds = 1 } };
    bool chosen[RUN_COUNT] = { false };
    const option_t options[] = {
        { "data", OPTION_TEXT, "PATH", &request.data,
          "folder with airfoil/airfoil_self_noise.dat, or the file itself" },
        { "runs", OPTION_TEXT, "LIST", &request.runs, "which runs, separated by commas" },
        { "init", OPTION_CHOICE, "normal|zero", &request.init,
          "first weights: N(0, 0.01^2), or zero" },
        { "seed", OPTION_INT, "N", &request.seed,
          "of first weights and permutations; the same for each run", 0, INT64_MAX },
        EFFORT_OPTIONS(&request.effort),
        TRAFFIC_OPTION(&common),
        COMMON_OPTIONS(&common),
    };
    const usage_t usage = {
        "ferry experiment minibatch",
        "Fits a linear regression by gradient descent with batches of 1500, 1, 100 and 10 rows.\n"
        "Data: --data, else $FERRY_DATA, else data/, else made up in the same format.",
        options, sizeof options / sizeof *options,
        "ferry experiment minibatch --device sim:0\n"
        "ferry experiment minibatch --runs gd,mini100 --init zero --csv runs.csv\n"
    };
    OPTIONS_TRY(options_parse(&usage, argc, argv));
    if (!choose_runs(request.runs, chosen)) return STATUS_USAGE;

    session_t session;
    fy_status_t status = session_begin(&session, &common, usage.command, "experiment", "minibatch");
    if (status == FY_STATUS_OK) status = run(&session, &request, chosen);
    return session_end_experiment(&session, status);
}
