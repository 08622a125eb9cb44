/* `ferry plan MODEL`: what a step needs in memory and model time on a device that need not be
 * there, and the largest batch that fits.
 * Not here: the steps (plan_models.c). */
#include <stdlib.h>
#include <string.h>

#include "tools/cli/plan_models.h"
#include "tools/network/ranks.h"

typedef struct request {
    const plan_model_t *model;
    plan_request_t user;
    int64_t batch, most;
    bool fit, explain, is_auto, has_ways; /* is_auto: --recompute auto; has_ways: a training step
                                           * of a model, with neither another --recompute nor
                                           * --offload */
    fy_model_options_t *memory;
    fy_segments_t segments; /* that memory points to */
    ranks_t ranks;
    cluster_t cluster; /* of --ranks */
} request_t;

/* ---- the memory of a plan over its model time ---- */

enum { CHART_WIDTH = 72, CHART_HEIGHT = 8 };

typedef struct timeline {
    fy_plan_point_t *points;
    char (*scopes)[96]; /* their paths, cut */
    size_t count;
} timeline_t;

/* For fy_plan_options_t.on_point; user is the timeline. */
static void timeline_add(void *user, const fy_plan_point_t *point)
{
    timeline_t *timeline = user;
    timeline->points = tool_grow(timeline->points, timeline->count, sizeof *timeline->points);
    timeline->scopes = tool_grow(timeline->scopes, timeline->count, sizeof *timeline->scopes);
    snprintf(timeline->scopes[timeline->count], sizeof *timeline->scopes, "%s", point->scope);
    timeline->points[timeline->count++] = *point;
}

static void timeline_free(timeline_t *timeline)
{
    free(timeline->points);
    free(timeline->scopes);
}

/* A small chart of the live bytes, block by block. */
static void timeline_print(const timeline_t *timeline, FILE *out)
{
    uint64_t highest[CHART_WIDTH] = { 0 }, peak = 0;
    const size_t width = timeline->count < CHART_WIDTH ? timeline->count : CHART_WIDTH;
    for (size_t i = 0; i < timeline->count; i++) {
        uint64_t *column = &highest[i * width / timeline->count];
        if (timeline->points[i].live > *column) *column = timeline->points[i].live;
        if (*column > peak) peak = *column;
    }
    fprintf(out, "live bytes, block by block (%zu were allocated or freed)\n", timeline->count);
    for (int row = CHART_HEIGHT; row > 0 && peak; row--) {
        fputs("  |", out);
        for (size_t i = 0; i < width; i++)
            fputc((double)highest[i] > (row - 0.5) / CHART_HEIGHT * (double)peak ? '#' : ' ', out);
        fputc('\n', out);
    }
    fputs("  +", out);
    for (size_t i = 0; i < width; i++) fputc('-', out);
    fputc('\n', out);
}

static sheet_t *make_sheet(const timeline_t *timeline)
{
    static const column_t columns[] = {
        { "model_ns", "model ns", 0 },
        { "live_bytes", "live", 0 },
        { "reserved_bytes", "reserved", 0 },
#define X(NAME, text) { #text "_bytes", #text, 0 },
        FY_CATEGORY_LIST(X)
#undef X
            { "scope", "scope", 0 },
    };
    sheet_t *sheet = sheet_create(columns, sizeof columns / sizeof *columns);
    for (size_t i = 0; i < timeline->count; i++) {
        const fy_plan_point_t *point = &timeline->points[i];
        sheet_int(sheet, (int64_t)point->model_ns);
        sheet_int(sheet, (int64_t)point->live);
        sheet_int(sheet, (int64_t)point->reserved);
        for (int c = 0; c < FY_CATEGORY_COUNT; c++)
            sheet_int(sheet, (int64_t)point->by_category[c]);
        sheet_text(sheet, timeline->scopes[i]);
    }
    return sheet;
}

/* To --csv and --plot, if requested. */
static fy_status_t timeline_write(const timeline_t *timeline, session_t *session)
{
    if (!session->common->csv && !session->common->plot) return FY_STATUS_OK;
    const size_t n = timeline->count;
    double *values = tool_alloc((2 * n + 1) * (FY_CATEGORY_COUNT + 2) * sizeof *values),
           *next = values;
    series_t series[FY_CATEGORY_COUNT + 1];
    size_t nseries = 0;
    double *us = next; /* a step's height holds until the next: two points each */
    next += 2 * n;
    for (size_t i = 0; i < 2 * n; i++)
        us[i] = (double)timeline->points[(i + 1) / 2 < n ? (i + 1) / 2 : n - 1].model_ns / 1e3;
    for (int c = -1; c < FY_CATEGORY_COUNT; c++) {
        bool any = false;
        for (size_t i = 0; i < 2 * n; i++) {
            const fy_plan_point_t *point = &timeline->points[i / 2];
            next[i] = (double)(c < 0 ? point->live : point->by_category[c]) / (1 << 20);
            any |= next[i] > 0;
        }
        if (!any) continue;
        series[nseries++] =
            (series_t){ c < 0 ? "all" : fy_category_name((fy_category_t)c), 2 * n, us, next };
        next += 2 * n;
    }
    const plot_t plot = { .title = "Memory of a step, planned",
                          .x_label = "microseconds, model clock",
                          .y_label = "live MiB",
                          .nseries = nseries,
                          .series = series };
    sheet_t *sheet = make_sheet(timeline);
    fy_status_t status = session_finish(session, sheet, &plot);
    free(values);
    return status;
}

/* ---- what was requested ---- */

static const plan_model_t *find_model(const char *name)
{
    const plan_model_t *model;
    const size_t length = name ? strcspn(name, ":") : 0;
    for (size_t i = 0; (model = plan_model_at(i)) && (!name || strlen(model->name) != length ||
                                                      memcmp(model->name, name, length) != 0);)
        i++;
    if (model) return model;
    if (name)
        fprintf(stderr, "ferry: plan: there is no model '%s'; there are", name);
    else
        fprintf(stderr, "ferry: plan: which model? There are");
    for (size_t i = 0; (model = plan_model_at(i)); i++)
        fprintf(stderr, "%s %s", i ? "," : "", model->name);
    fputc('\n', stderr);
    return NULL;
}

static void report_json(json_t *json, const request_t *request, const fy_plan_t *plan,
                        int64_t max_batch)
{
    json_int(json, "batch", plan->batch);
    const int64_t params = request->user.params < 0 ? request->model->params : request->user.params;
    if (params < 0)
        json_text(json, "params", NULL);
    else
        json_int(json, "params", params);
    json_text(json, "clock", "model");
    json_uint(json, "peak_bytes", plan->peak_live);
    json_begin_object(json, "by_category");
    for (int i = 0; i < FY_CATEGORY_COUNT; i++)
        json_uint(json, fy_category_name((fy_category_t)i), plan->peak_by_category[i]);
    json_end(json);
    json_uint(json, "reserved_bytes", plan->peak_reserved);
    json_uint(json, "pinned_bytes", plan->pinned_peak_reserved);
    json_uint(json, "limit_bytes", plan->limit);
    json_uint(json, "step_model_ns", plan->step_model_ns);
    json_uint(json, "step_flops", plan->step_flops);
    json_bool(json, "fits", plan->fits);
    if (max_batch < 0)
        json_text(json, "max_batch", NULL);
    else
        json_int(json, "max_batch", max_batch);
    json_text(json, "verdict", plan->fits ? NULL : plan->verdict.text);
}

static void print_row(FILE *out, const char *name, uint64_t nbytes, uint64_t whole)
{
    enum { WIDTH = 40 };
    const int length = whole ? (int)((double)nbytes / (double)whole * WIDTH + 0.5) : 0;
    fprintf(out, "  %-16s %16llu  ", name, (unsigned long long)nbytes);
    for (int i = 0; i < length; i++) fputc('#', out);
    fputc('\n', out);
}

static void report_text(const session_t *session, const request_t *request, const fy_plan_t *plan,
                        int64_t max_batch, const timeline_t *timeline)
{
    FILE *out = session->out;
    fprintf(out, "plan: %s with %lld %s, on %s\n\nat the peak, bytes\n", request->model->name,
            (long long)plan->batch, request->model->batch_is, session->info.model);
    for (int i = 0; i < FY_CATEGORY_COUNT; i++)
        if (plan->peak_by_category[i])
            print_row(out, fy_category_name((fy_category_t)i), plan->peak_by_category[i],
                      plan->peak_live);
    print_row(out, "all", plan->peak_live, plan->peak_live);
    fprintf(out, "\n  reserved %llu of %llu; page-locked on the host %llu\n\n",
            (unsigned long long)plan->peak_reserved, (unsigned long long)plan->limit,
            (unsigned long long)plan->pinned_peak_reserved);
    timeline_print(timeline, out);
    fprintf(out, "\na step takes %llu ns by the model clock\n",
            (unsigned long long)plan->step_model_ns);
    fprintf(out, "%s\n", plan->fits ? "it fits" : "it does not fit");
    if (max_batch > 0)
        fprintf(out, "largest batch that fits: %lld%s\n", (long long)max_batch,
                max_batch == request->most ? " (--max-batch)" : "");
    if (max_batch == 0) fprintf(out, "not even a batch of 1 fits\n");
}

static fy_status_t find_largest(const session_t *session, request_t *request, int64_t *out_batch)
{
    const fy_status_t status = fy_plan_fit(session->common->device, request->model->step,
                                           &request->user, request->most, out_batch, NULL);
    /* that is the answer */
    if (status == FY_STATUS_OUT_OF_MEMORY && fy_error_get()->oom && *out_batch == 0)
        return FY_STATUS_OK;
    return status;
}

static void add_line(void *user, const char *key, const char *value)
{
    session_t *session = user;
    if (session->out) {
        fprintf(session->out, "  %-8s %s\n", key, value);
        return;
    }
    json_begin_object(&session->json, NULL);
    json_text(&session->json, "kind", key);
    json_text(&session->json, "text", value);
    json_end(&session->json);
}

/* The step once more, as a graph. */
static fy_status_t explain(session_t *session, const request_t *request)
{
    plan_request_t user = request->user;
    fy_plan_t plan = FY_PLAN_INIT;
    user.say = add_line;
    user.say_user = session;
    if (session->out)
        fprintf(session->out, "\nthe step, recorded as a graph\n");
    else
        json_begin_array(&session->json, "graph");
    const fy_status_t status = fy_plan_step(session->common->device, request->model->step, &user,
                                            request->batch, NULL, &plan);
    if (!session->out) json_end(&session->json);
    return status;
}

static fy_status_t choose(session_t *session, request_t *request)
{
    const plan_target_t target = { .device = session->common->device,
                                   .open = model_plan_open,
                                   .run = model_plan_run,
                                   .user = &request->user,
                                   .batch = request->batch,
                                   .may_offload = !request->explain };
    const fy_model_options_t given = *request->memory;
    return plan_choose(session, &target, &given, &request->segments, request->memory, NULL);
}

/* The step, recorded if its gradients are needed. */
static fy_status_t plan_once(const session_t *session, request_t *request,
                             const fy_plan_options_t *options, fy_plan_t *plan,
                             backward_t *backward)
{
    const char *device = session->common->device;
    if (request->ranks.ranks)
        return backward_plan(device, &request->user, request->batch, options, plan, backward);
    return fy_plan_step(device, request->model->step, &request->user, request->batch, options,
                        plan);
}

static fy_status_t run(session_t *session, request_t *request, fy_plan_t *plan)
{
    int64_t max_batch = -1;
    timeline_t timeline = { 0 };
    backward_t backward = { .count = 0 };
    fy_plan_options_t options = FY_PLAN_OPTIONS_INIT;
    options.on_point = timeline_add;
    options.user = &timeline;
    if (request->is_auto) FY_TRY(choose(session, request));
    fy_status_t status = plan_once(session, request, &options, plan, &backward);
    if (status == FY_STATUS_OK && request->fit) status = find_largest(session, request, &max_batch);
    if (status == FY_STATUS_OK) status = timeline_write(&timeline, session);
    if (status == FY_STATUS_OK && session->out)
        report_text(session, request, plan, max_batch, &timeline);
    if (status == FY_STATUS_OK && !session->out)
        report_json(&session->json, request, plan, max_batch);
    if (status == FY_STATUS_OK && request->ranks.ranks)
        ranks_report(session, &request->ranks, &request->cluster, &backward, plan);
    if (status == FY_STATUS_OK && request->fit && request->has_ways)
        status = plan_fit_all(session, request->model, &request->user, request->most);
    if (status == FY_STATUS_OK && request->explain) status = explain(session, request);
    backward_free(&backward);
    timeline_free(&timeline);
    return status;
}

int cmd_plan(int argc, char **argv)
{
    common_t common = { .device = "sim:0" };
    const char *recompute = NULL;
    bool drop_bias = false;
    int64_t offload = 0;
    fy_model_options_t memory = FY_MODEL_OPTIONS_INIT;
    request_t request = { .user = { .params = -1, .options = &memory },
                          .batch = 64,
                          .most = 1 << 24 };
    const option_t options[] = {
        { "batch", OPTION_INT, "N", &request.batch,
          "batch of the step; for roundtrip and vectorize rows and columns", 1, 1 << 30 },
        { "fit", OPTION_FLAG, NULL, &request.fit,
          "find the largest batch that fits, too; of models that train also in bf16, with "
          "recomputation and with offloading" },
        { "explain", OPTION_FLAG, NULL, &request.explain,
          "of models: which calls of a recorded step are fused, and why the others are not" },
        { "inference", OPTION_FLAG, NULL, &request.user.inference,
          "of models: the forward pass in evaluation, without loss, gradients and update" },
        { "offload", OPTION_INT, "N", &offload, "of models: " TRAIN_OFFLOAD_HELP, 0, 9999 },
        { "recompute", OPTION_TEXT, TRAIN_RECOMPUTE, &recompute,
          "of models: " TRAIN_RECOMPUTE_HELP },
        { "drop-bias", OPTION_FLAG, NULL, &drop_bias, "of models: " TRAIN_DROP_BIAS_HELP },
        { "precision", OPTION_CHOICE, TRAIN_PRECISIONS, &request.user.precision,
          "of models: " TRAIN_PRECISION_HELP },
        { "max-batch", OPTION_INT, "N", &request.most, "--fit looks no further than this", 1,
          1 << 30 },
        { "optimizer", OPTION_CHOICE, TRAIN_OPTIMIZERS, &request.user.optimizer,
          "of models; default: the one that each is usually trained with" },
        RANKS_OPTIONS(&request.ranks),
        COMMON_OPTIONS(&common),
    };
    const usage_t usage = {
        "ferry plan MODEL",
        "Memory map and model time of a step of training or inference on a simulated device, and "
        "the largest batch "
        "that fits. MODEL: linear, "
        "mlp, lenet, mnist2018, mnist, resnet18, mobilenet_v3_large, vit_tiny, gpt (the last four "
        "with options: gpt:layers=2); or the step of an experiment: roundtrip, vectorize, "
        "minibatch.",
        options, sizeof options / sizeof *options,
        "ferry plan mnist --fit\n"
        "ferry plan lenet --batch 256 --device 'sim:0?profile=h200' --plot lenet.svg\n"
        "ferry plan resnet18 --batch 64 --ranks 8 --nodes 2\n"
    };
    const char *name;
    OPTIONS_TRY(options_parse_named(&usage, argc, argv, &name));
    request.model = find_model(name);
    if (!request.model) return STATUS_USAGE;
    request.user.model = name;
    if (request.explain && (request.model->step != model_plan_step || request.user.inference))
        return TOOL_REFUSE(STATUS_USAGE, "plan: --explain is of the training steps of models\n");
    if (request.user.inference && request.model->step != model_plan_step)
        return TOOL_REFUSE(STATUS_USAGE, "plan: --inference is of models; %s has no forward pass\n",
                           request.model->name);
    if (!ranks_check("plan", &request.ranks, &request.cluster)) return STATUS_USAGE;
    if (request.ranks.ranks && (request.model->step != model_plan_step || request.user.inference))
        return TOOL_REFUSE(STATUS_USAGE, "plan: --ranks is of the training steps of models\n");
    request.memory = &memory;
    if (!train_read_recompute("plan", recompute, &memory, &request.is_auto)) return STATUS_USAGE;
    request.has_ways = (!recompute || request.is_auto) && !offload && !request.user.inference &&
                       request.model->step == model_plan_step;
    if (request.explain && offload > 1)
        return TOOL_REFUSE(STATUS_USAGE,
                           "plan: --explain is of a recorded step, which cannot wait for "
                           "--offload\n");
    if (request.is_auto && offload)
        return TOOL_REFUSE(STATUS_USAGE, "plan: --recompute auto chooses whether to offload\n");
    memory.drop_bias = drop_bias;
    if ((request.user.precision || drop_bias) && request.model->step != model_plan_step)
        return TOOL_REFUSE(STATUS_USAGE, "plan: --precision and --drop-bias are of models\n");
    memory.offload = (int)offload;
    if ((recompute || offload) &&
        (request.model->step != model_plan_step || request.user.inference))
        return TOOL_REFUSE(STATUS_USAGE,
                           "plan: --recompute and --offload are of the training steps of models\n");
    if (strncmp(common.device, "sim", 3) != 0)
        return TOOL_REFUSE(
            STATUS_USAGE,
            "plan: --device %s is no simulated device; describe the one you mean, such "
            "as 'sim:0?profile=h200&limit=80GiB'\n",
            common.device);
    session_t session;
    fy_plan_t plan = FY_PLAN_INIT;
    fy_status_t status =
        session_begin(&session, &common, "ferry plan", "model", request.model->name);
    if (status == FY_STATUS_OK) status = run(&session, &request, &plan);
    const int exit_status = session_end(&session, status);
    if (exit_status != STATUS_OK || plan.fits) return exit_status;
    fprintf(stderr, "ferry: it does not fit: %s\n", plan.verdict.text);
    return STATUS_OUT_OF_MEMORY;
}
