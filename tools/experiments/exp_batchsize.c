/* Experiments E3 to E5: do batch sizes need to be powers of two? A network is trained with batches
 * of many sizes, on one device or on several with the same batch each; each step also has a second
 * forward in evaluation, without gradients. Compared is the time of an image, since the number of
 * steps of an epoch (full batches only) depends on the size. Then the largest batch that fits the
 * device, and the verdict on one image more.
 * Parameters are f32. Images are zeros: time does not depend on them. Not here: what a step needs
 * (ferry plan). How to read it: docs/experiments.md. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <ferry/train/train.h>

#include "tools/cli/tool.h"
#include "tools/train/train_recipes.h"

enum { MOST_DEVICES = 8, MOST_SIZES = 32, MOST_BATCH = 1 << 16 };

typedef struct request {
    const char *model, *list;
    int64_t sizes[MOST_SIZES];
    size_t count;
    int64_t samples, steps, devices;
    effort_t effort;
} request_t;

/* Replicas of the model, one a device. */
typedef struct net {
    size_t count;
    fy_device_t *devices[MOST_DEVICES];
    fy_model_t *models[MOST_DEVICES];
    fy_optimizer_t *optimizers[MOST_DEVICES];
    fy_tape_t *tapes[MOST_DEVICES];
    fy_tensor_t *grads[MOST_DEVICES], *x[MOST_DEVICES], *y[MOST_DEVICES];
} net_t;

typedef struct outcome {
    int64_t batch, steps_per_epoch;
    spread_t ns, model_ns; /* a step; NaN: it does not fit */
} outcome_t;

/* ---- the network ---- */

static fy_status_t make_replica(net_t *net, size_t i, const char *model, int64_t batch)
{
    fy_device_t *device = net->devices[i];
    fy_model_info_t info = FY_MODEL_INFO_INIT;
    fy_optimizer_options_t adam;
    int64_t dims[FY_MAX_RANK + 1] = { batch };
    int rank;
    FY_TRY(fy_model_sample_shape(model, &rank, dims + 1));
    FY_TRY(fy_model_open(device, model, NULL, &net->models[i]));
    FY_TRY(fy_model_query(net->models[i], &info));
    net->grads[i] = info.grads;
    fy_optimizer_defaults(FY_OPTIMIZER_ADAM, &adam, sizeof adam);
    adam.lr = 5e-4;
    FY_TRY(fy_optimizer_create(&adam, 1, &info.values, &info.grads, &net->optimizers[i]));
    FY_TRY(fy_tape_create(&net->tapes[i]));
    FY_TRY(fy_model_watch(net->models[i], net->tapes[i]));
    FY_TRY(fy_zeros(device, FY_DTYPE_F32, rank + 1, dims, &net->x[i]));
    return fy_zeros(device, FY_DTYPE_I32, FY_DIMS(batch), &net->y[i]);
}

static fy_status_t make_net(net_t *net, const char *model, int64_t batch)
{
    for (size_t i = 0; i < net->count; i++) FY_TRY(make_replica(net, i, model, batch));
    return net->count > 1 ? fy_models_replicate(net->count, net->models) : FY_STATUS_OK;
}

static void free_net(net_t *net)
{
    for (size_t i = 0; i < net->count; i++) {
        fy_optimizer_destroy(net->optimizers[i]);
        fy_model_destroy(net->models[i]);
    }
}

/* Training of one batch, and the forward in evaluation. */
static fy_status_t run_replica(net_t *net, size_t i)
{
    fy_tensor_t *logits, *loss;
    FY_TRY(fy_tape_begin(net->tapes[i]));
    FY_TRY(fy_model_forward(net->models[i], net->x[i], &logits));
    FY_TRY(fy_cross_entropy(logits, net->y[i], FY_REDUCTION_MEAN, &loss));
    FY_TRY(fy_model_backward(net->models[i], net->tapes[i], loss, NULL));
    FY_TRY(fy_tape_begin(NULL));
    fy_tensor_destroy(logits);
    fy_tensor_destroy(loss);
    fy_model_set_training(net->models[i], 0);
    const fy_status_t status = fy_model_forward(net->models[i], net->x[i], &logits);
    fy_model_set_training(net->models[i], 1);
    return status;
}

static fy_status_t compute(net_t *net)
{
    for (size_t i = 0; i < net->count; i++) FY_TRY(run_replica(net, i));
    if (net->count > 1) FY_TRY(fy_allreduce_sum(net->count, net->grads));
    for (size_t i = 0; i < net->count; i++) FY_TRY(fy_optimizer_step(net->optimizers[i]));
    return FY_STATUS_OK;
}

static fy_status_t step(net_t *net)
{
    const fy_scope_t scope = fy_scope_begin("step");
    const fy_status_t status = compute(net);
    fy_scope_end(scope, 0, NULL);
    return status;
}

/* ---- one size ---- */

static fy_status_t wait_all(const net_t *net)
{
    for (size_t i = 0; i < net->count; i++) FY_TRY(fy_device_wait(net->devices[i], FY_FOREVER));
    return FY_STATUS_OK;
}

static fy_status_t time_steps(session_t *session, const request_t *request, net_t *net,
                              outcome_t *out)
{
    FY_TRY(step(net)); /* allocates what the next ones use again */
    FY_TRY(wait_all(net));
    sample_t ns = { 0 }, model_ns = { 0 };
    while (!effort_is_met(&request->effort, session->info.is_simulated ? &model_ns : &ns)) {
        const double begin = wall_ns(), model_begin = session_model_ns(session);
        for (int64_t i = 0; i < request->steps; i++) {
            FY_TRY(step(net));
            progress("step", i + 1, request->steps);
        }
        FY_TRY(wait_all(net));
        sample_add(&ns, (wall_ns() - begin) / (double)request->steps);
        sample_add(&model_ns, (session_model_ns(session) - model_begin) / (double)request->steps);
    }
    out->ns = sample_spread(&ns);
    out->model_ns = sample_spread(&model_ns);
    return FY_STATUS_OK;
}

static fy_status_t measure(session_t *session, const request_t *request, net_t *net, int64_t batch,
                           outcome_t *out)
{
    char name[32];
    snprintf(name, sizeof name, "batch-%lld", (long long)batch);
    *out = (outcome_t){ .batch = batch,
                        .steps_per_epoch = request->samples / (batch * request->devices) };
    const fy_scope_t scope = fy_scope_begin(name);
    fy_status_t status = make_net(net, request->model, batch);
    if (status == FY_STATUS_OK) status = time_steps(session, request, net, out);
    free_net(net);
    fy_scope_end(scope, 0, NULL);
    memset(net->models, 0, sizeof net->models);
    memset(net->optimizers, 0, sizeof net->optimizers);
    if (status != FY_STATUS_OUT_OF_MEMORY || !fy_error_get()->oom) return status;
    out->ns = out->model_ns = sample_spread(&(sample_t){ 0 });
    return FY_STATUS_OK;
}

/* ---- the largest batch ---- */

static fy_status_t plan_step(fy_device_t *device, int64_t batch, void *user)
{
    const request_t *request = user;
    net_t net = { .count = 1, .devices = { device } };
    fy_status_t status = make_net(&net, request->model, batch);
    for (int i = 0; i < 2 && status == FY_STATUS_OK; i++) status = step(&net);
    free_net(&net);
    return status;
}

typedef struct largest {
    int64_t batch;      /* 0: it was not asked for */
    fy_plan_t plan;     /* of that batch */
    fy_plan_t one_more; /* of one image more */
} largest_t;

static fy_status_t find_largest(const session_t *session, const request_t *request, largest_t *out)
{
    const char *spec = session->common->device;
    void *user = (void *)(uintptr_t)request;
    *out = (largest_t){ 0, FY_PLAN_INIT, FY_PLAN_INIT };
    if (strncmp(spec, "sim", 3) != 0) return FY_STATUS_OK;
    const fy_status_t status =
        fy_plan_fit(spec, plan_step, user, MOST_BATCH, &out->batch, &out->plan);
    if (status == FY_STATUS_OUT_OF_MEMORY && fy_error_get()->oom) return FY_STATUS_OK;
    FY_TRY(status);
    if (out->batch == MOST_BATCH) return FY_STATUS_OK;
    FY_TRY(fy_plan_step(spec, plan_step, user, out->batch + 1, NULL, &out->one_more));
    if (out->one_more.fits)
        return TOOL_FAIL(INTERNAL, "a batch of %lld fits, though %lld is the largest",
                         (long long)out->batch + 1, (long long)out->batch);
    return FY_STATUS_OK;
}

/* ---- reporting ---- */

static void print_largest(FILE *out, const largest_t *largest)
{
    if (!largest->batch) return;
    fprintf(out, "\nlargest batch that fits a device: %lld (%llu of %llu bytes reserved)\n",
            (long long)largest->batch, (unsigned long long)largest->plan.peak_reserved,
            (unsigned long long)largest->plan.limit);
    if (largest->batch < MOST_BATCH)
        fprintf(out, "%lld: %s\n", (long long)largest->batch + 1, largest->one_more.verdict.text);
}

static fy_status_t report(session_t *session, const request_t *request, const outcome_t *outcomes,
                          const largest_t *largest)
{
    static const column_t columns[] = {
        { "batch", "batch", 0 },
        { "steps_per_epoch", "steps/epoch", 0 },
        SPREAD_HIDDEN("model_ms_per_image", "model ms/image", 4),
        SPREAD_COLUMNS("ms_per_image", "wall ms/image", 4),
        { "model_s_per_epoch", "model s/epoch", 3 },
        { "s_per_epoch", "wall s/epoch", 3 },
        { "status", "status", 0 },
        ROUNDS_COLUMN,
    };
    sheet_t *sheet = sheet_create(columns, sizeof columns / sizeof *columns);
    for (size_t i = 0; i < request->count; i++) {
        const outcome_t *o = &outcomes[i];
        const double images = (double)(o->batch * request->devices);
        sheet_int(sheet, o->batch);
        sheet_int(sheet, o->steps_per_epoch);
        const spread_t model_ms = spread_scale(1e-6 / images, &o->model_ns),
                       ms = spread_scale(1e-6 / images, &o->ns);
        sheet_spread(sheet, &model_ms);
        sheet_spread(sheet, &ms);
        sheet_real(sheet, o->model_ns.median * 1e-9 * (double)o->steps_per_epoch);
        sheet_real(sheet, o->ns.median * 1e-9 * (double)o->steps_per_epoch);
        sheet_text(sheet, isnan(o->ns.median) ? "out of memory" : "ok");
        sheet_int(sheet, (int64_t)o->ns.rounds);
    }
    if (session->out) {
        fprintf(session->out,
                "batchsize: %s in f32, %lld images an epoch, full batches only, %lld x %s (%s)\n\n",
                request->model, (long long)request->samples, (long long)request->devices,
                fy_device_name(session->device), session->info.model);
        sheet_print(sheet, session->out);
        print_largest(session->out, largest);
    } else {
        json_text(&session->json, "model", request->model);
        json_int(&session->json, "samples", request->samples);
        json_int(&session->json, "devices", request->devices);
        json_text(&session->json, "clock", "wall");
        sheet_json(sheet, &session->json, "sizes");
        if (largest->batch)
            json_int(&session->json, "largest_batch", largest->batch);
        else
            json_text(&session->json, "largest_batch", NULL);
        json_text(&session->json, "verdict",
                  *largest->one_more.verdict.text ? largest->one_more.verdict.text : NULL);
    }
    session_statistics(session, &request->effort, "a step");
    return session_finish(session, sheet, NULL);
}

/* ---- all of it ---- */

static fy_status_t run(session_t *session, const request_t *request)
{
    outcome_t outcomes[MOST_SIZES];
    largest_t largest;
    net_t net = { .count = (size_t)request->devices, .devices = { session->device } };
    fy_status_t status = FY_STATUS_OK;
    size_t opened = 1;
    while (opened < net.count && status == FY_STATUS_OK) {
        status = session_open_sibling(session, opened, &net.devices[opened]);
        opened += status == FY_STATUS_OK;
    }
    for (size_t i = 0; i < request->count && status == FY_STATUS_OK; i++)
        status = measure(session, request, &net, request->sizes[i], &outcomes[i]);
    for (size_t i = 1; i < opened; i++) fy_device_close(net.devices[i]);
    FY_TRY(status);
    FY_TRY(find_largest(session, request, &largest));
    return report(session, request, outcomes, &largest);
}

/* "127,128,129" */
static bool read_sizes(request_t *request)
{
    const char *text = request->list;
    request->count = 0;
    while (*text) {
        char *end;
        const long long size = strtoll(text, &end, 10);
        if (end == text || (*end && (*end != ',' || !end[1])) || size < 1 || size > MOST_BATCH ||
            request->count == MOST_SIZES || size * request->devices > request->samples)
            return TOOL_REFUSE(
                false,
                "--sizes: '%s': at most %d sizes from 1 to %d, such as 127,128,129, and "
                "not more in a step than --samples\n",
                text, MOST_SIZES, MOST_BATCH);
        request->sizes[request->count++] = size;
        text = *end ? end + 1 : end;
    }
    if (!request->count) fprintf(stderr, "ferry: --sizes: the list is empty\n");
    return request->count > 0;
}

int exp_batchsize(int argc, char **argv)
{
    common_t common = { .device = "sim:0?numerics=off" };
    request_t request = { .model = "mobilenet_v3_large:classes=10",
                          .list = "100,127,128,129,156,511,512,513",
                          .samples = 45000,
                          .steps = 3,
                          .devices = 1,
                          .effort = { .rounds = 1 } };
    const option_t options[] = {
        { "model", OPTION_TEXT, "MODEL", &request.model,
          "a model for images of `ferry train`, with options" },
        { "sizes", OPTION_TEXT, "LIST", &request.list, "batches of a device" },
        { "samples", OPTION_INT, "N", &request.samples, "images of an epoch", 1, INT32_MAX },
        { "steps", OPTION_INT, "N", &request.steps, "timed steps of each size in a round", 1,
          1 << 20 },
        { "devices", OPTION_INT, "N", &request.devices, "devices, each with a batch of that size",
          1, MOST_DEVICES },
        EFFORT_OPTIONS(&request.effort),
        TRAFFIC_OPTION(&common),
        COMMON_OPTIONS(&common),
    };
    const usage_t usage = {
        "ferry experiment batchsize",
        "Do batch sizes need to be powers of two? Time of an image for many sizes, the steps of an "
        "epoch, and the largest batch that fits a simulated device.\n"
        "MobileNetV3-Large, Adam, a second forward in evaluation each step; published for 16-bit "
        "mixed precision, here in f32.",
        options, sizeof options / sizeof *options,
        "ferry experiment batchsize --device 'sim:0?profile=a100&numerics=off'\n"
        "ferry experiment batchsize --sizes 255,256,257 --devices 4\n"
        "ferry experiment batchsize --device host --model mobilenet_v3_large:classes=10,size=32 "
        "--sizes 31,32,33\n"
    };
    OPTIONS_TRY(options_parse(&usage, argc, argv));
    const train_recipe_t *recipe = train_recipe_find(request.model);
    if (!recipe || !recipe->is_image) {
        fprintf(stderr, "%s: --model '%s' is no model for images\n", usage.command, request.model);
        return STATUS_USAGE;
    }
    if (common.plot) {
        fprintf(stderr, "%s: --plot: this table has no figure; --csv FILE writes its numbers\n",
                usage.command);
        return STATUS_USAGE;
    }
    if (!read_sizes(&request)) return STATUS_USAGE;
    session_t session;
    fy_status_t status = session_begin(&session, &common, usage.command, "experiment", "batchsize");
    if (status == FY_STATUS_OK) status = run(&session, &request);
    return session_end_experiment(&session, status);
}
