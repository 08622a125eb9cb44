/* `ferry train MODEL --find-lr`: the learning rate range test, its table, its figure, its
 * suggestion.
 * Not here: the sweep itself (train/find_lr.c), setting up (train_setup.c). */
#include "tools/train/train.h"

#include <math.h>
#include <stdlib.h>

enum { USUAL_STEPS = 100, SHOWN = 25 };
/* A lowest loss above this part of the first one shows no rate. */
static const double STILL = 0.98;

static const column_t columns[] = { { "step", "step", 0 },
                                    { "lr", "lr", 7 },
                                    { "loss", "loss", 4 },
                                    { "smoothed", "smoothed loss", 4 } };

/* Every `each`-th point and the last. */
static sheet_t *make_sheet(const fy_lr_point_t *points, int64_t count, int64_t each)
{
    sheet_t *sheet = sheet_create(columns, sizeof columns / sizeof *columns);
    for (int64_t i = 0; i < count; i++) {
        if (i % each && i != count - 1) continue;
        sheet_int(sheet, i);
        sheet_real(sheet, points[i].lr);
        sheet_real(sheet, points[i].loss);
        sheet_real(sheet, points[i].smoothed);
    }
    return sheet;
}

static void print(const train_run_t *run, const fy_lr_point_t *points,
                  const fy_find_lr_result_t *result)
{
    FILE *out = run->session.out;
    sheet_t *shown = make_sheet(points, result->steps, (result->steps + SHOWN - 1) / SHOWN);
    sheet_print(shown, out);
    sheet_destroy(shown);
    fprintf(out, "\n%lld steps%s; the training is restored to its state before the first\n",
            (long long)result->steps,
            result->is_stopped    ? ", stopped"
            : result->is_diverged ? ", then the loss diverged"
                                  : "");
    if (!isnan(result->lowest_lr))
        fprintf(out, "lowest smoothed loss: %.4f at lr %.3g\n", result->lowest_loss,
                result->lowest_lr);
    if (result->steps > 1 && result->lowest_loss > STILL * points[0].smoothed)
        fprintf(out,
                "the loss hardly falls (%.4f at first): a suggestion means little; use more steps, "
                "or a model that learns sooner\n",
                points[0].smoothed);
    if (isnan(result->lr))
        fprintf(out, "no suggestion: the smoothed loss falls nowhere\n");
    else
        fprintf(out, "suggested: --lr %.2g, where the smoothed loss falls fastest over log(lr)\n",
                result->lr);
}

static fy_status_t write_files(train_run_t *run, const fy_lr_point_t *points, int64_t count,
                               const sheet_t *sheet)
{
    char title[96];
    double *values = tool_alloc((size_t)(3 * count + 1) * sizeof *values);
    double *lr = values, *loss = values + count, *smoothed = loss + count;
    for (int64_t i = 0; i < count; i++) {
        lr[i] = points[i].lr;
        loss[i] = points[i].loss;
        smoothed[i] = points[i].smoothed;
    }
    const series_t series[] = { { "loss", (size_t)count, lr, loss },
                                { "smoothed", (size_t)count, lr, smoothed } };
    snprintf(title, sizeof title, "Learning rate range test of %s", run->info.name);
    const plot_t plot = { .title = title,
                          .x_label = "learning rate",
                          .y_label = "training loss",
                          .log_x = true,
                          .nseries = 2,
                          .series = series };
    const fy_status_t status = session_files(&run->session, sheet, &plot);
    free(values);
    return status;
}

static void write_json(train_run_t *run, const sheet_t *sheet, const fy_find_lr_result_t *result)
{
    json_t *json = &run->session.json;
    json_uint(json, "params", run->info.params);
    json_int(json, "steps", result->steps);
    sheet_json(sheet, json, "points");
    json_real(json, "suggested_lr", result->lr);
    json_real(json, "lowest_lr", result->lowest_lr);
    json_real(json, "lowest_loss", result->lowest_loss);
    json_text(json, "end",
              result->is_stopped    ? "stopped"
              : result->is_diverged ? "diverged"
                                    : "complete");
    ledger_json(json);
}

fy_status_t train_find_lr(train_run_t *run)
{
    fy_find_lr_options_t options = FY_FIND_LR_OPTIONS_INIT;
    fy_find_lr_result_t result = FY_FIND_LR_RESULT_INIT;
    options.steps = run->options.max_steps > 0 ? run->options.max_steps : USUAL_STEPS;
    options.accumulate = run->options.accumulate;
    options.loss = run->options.loss;
    options.clip_norm = run->options.clip_norm;
    options.clip_value = run->options.clip_value;
    if (options.steps > INT32_MAX)
        return TOOL_FAIL(INVALID_ARGUMENT, "--max-steps %lld: at most %d with --find-lr",
                         (long long)options.steps, INT32_MAX);
    fy_lr_point_t *points = tool_alloc((size_t)options.steps * sizeof *points);
    options.stop = train_catch_interrupt();
    const fy_scope_t scope = fy_scope_begin("find-lr");
    fy_status_t status = fy_autocast_set(run->options.precision);
    if (status == FY_STATUS_OK)
        status =
            fy_train_find_lr(run->model, run->optimizer, run->train, &options, points, &result);
    fy_scope_end(scope, 0, NULL);
    train_release_interrupt();
    run->result.is_stopped = result.is_stopped;
    if (status == FY_STATUS_OK) {
        sheet_t *sheet = make_sheet(points, result.steps, 1);
        if (run->session.out)
            print(run, points, &result);
        else
            write_json(run, sheet, &result);
        status = write_files(run, points, result.steps, sheet);
        sheet_destroy(sheet);
    }
    free(points);
    return status;
}
