/* Data, loaders, model, optimizer and schedule of a training, from a recipe and what the options
 * say otherwise.
 * Not here: options (cmd_train.c). */
#include "tools/train/train.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- data ---- */

static fy_status_t open_both(train_run_t *run, const char *directory)
{
    const char *name = run->request.recipe->dataset;
    FY_TRY(fy_dataset_open(name, directory, 0, &run->train_set));
    fy_status_t status = fy_dataset_open(name, directory, 1, &run->test_set);
    if (status == FY_STATUS_OK) return status;
    fy_dataset_destroy(run->train_set);
    run->train_set = NULL;
    return status == FY_STATUS_UNAVAILABLE ? FY_STATUS_IO : status; /* a part of the set is there */
}

enum { TEXT_NBYTES = 1 << 20, TEXT_SEED = 1, TEXT_TEST_SHARE = 10 };

/* A file of any text, else generated sentences; one sample of ten, the last ones, are for
 * testing. */
static fy_status_t open_text(train_run_t *run)
{
    const char *path = run->request.data;
    int64_t dims[FY_MAX_RANK];
    int rank;
    fy_dataset_t *all;
    fy_dataset_info_t info = FY_DATASET_INFO_INIT;
    FY_TRY(fy_model_sample_shape(run->request.spec, &rank, dims));
    snprintf(run->origin, sizeof run->origin, "%s", path ? path : "generated sentences");
    if (path)
        FY_TRY(fy_dataset_read_text(path, dims[0], NULL, &all));
    else
        FY_TRY(fy_dataset_synthetic_text(TEXT_NBYTES, dims[0], TEXT_SEED, &all));
    fy_status_t status = fy_dataset_query(all, &info);
    if (status == FY_STATUS_OK && info.samples < 2)
        status = TOOL_FAIL(CORRUPT_DATA,
                           "%s: one sample of %lld bytes; training and testing need one each",
                           run->origin, (long long)dims[0]);
    if (status == FY_STATUS_OK)
        status = fy_dataset_split(
            all, info.samples - (info.samples + TEXT_TEST_SHARE - 1) / TEXT_TEST_SHARE, -1,
            &run->train_set, &run->test_set);
    fy_dataset_destroy(all);
    return status;
}

static fy_status_t open_data(train_run_t *run)
{
    const char *name = run->request.recipe->dataset, *folder = data_folder(run->request.data);
    snprintf(run->origin, sizeof run->origin, "%s, %s", name, folder);
    const fy_status_t status = open_both(run, folder);
    if (!data_may_be_made_up(run->request.data, name, status)) return status;
    snprintf(run->origin, sizeof run->origin, "%s, synthetic", name);
    return open_both(run, NULL);
}

static fy_status_t cut(fy_dataset_t **set, uint64_t most)
{
    fy_dataset_info_t info = FY_DATASET_INFO_INIT;
    fy_dataset_t *first, *rest;
    FY_TRY(fy_dataset_query(*set, &info));
    if (info.samples <= most) return FY_STATUS_OK;
    FY_TRY(fy_dataset_split(*set, most, -1, &first, &rest));
    fy_dataset_destroy(rest);
    fy_dataset_destroy(*set);
    *set = first;
    return FY_STATUS_OK;
}

/* Refuses batches of images of another size than the model takes, and names the options to change.
 * Without it, a layer of the model refuses the shape. */
static fy_status_t check_sample(const train_run_t *run)
{
    int64_t wanted[FY_MAX_RANK];
    int rank;
    const fy_loader_info_t *made = &run->loader;
    FY_TRY(fy_model_sample_shape(run->request.spec, &rank, wanted));
    if (!run->request.recipe->is_image || rank != 3 || made->rank != 3) return FY_STATUS_OK;
    if (memcmp(wanted, made->dims, 3 * sizeof *wanted) == 0) return FY_STATUS_OK;
    return TOOL_FAIL(
        SHAPE_MISMATCH,
        "%s takes images %lldx%lldx%lld, the batches have %lldx%lldx%lld: change --resize "
        "and --crop, or the model's options (size=N, channels=N)",
        run->request.spec, (long long)wanted[0], (long long)wanted[1], (long long)wanted[2],
        (long long)made->dims[0], (long long)made->dims[1], (long long)made->dims[2]);
}

static fy_status_t make_loaders(train_run_t *run)
{
    const train_recipe_t *recipe = run->request.recipe;
    fy_loader_options_t options = run->request.loader;
    if (recipe->is_image) options.scale = 1.0 / 255;
    if (recipe->std > 0) {
        options.channels = 1;
        options.mean[0] = recipe->mean;
        options.std[0] = recipe->std;
    }
    options.augment = 1;
    options.rank = run->dist ? run->dist->info.rank : 0;
    options.ranks = run->dist ? run->dist->info.size : 0;
    fy_scope_t scope = fy_scope_begin("data");
    fy_status_t status =
        fy_loader_create(run->session.device, run->train_set, &options, &run->train);
    options.shuffle = 0;
    options.drop_last = 0;
    options.augment = 0;
    if (status == FY_STATUS_OK)
        status = fy_loader_create(run->session.device, run->test_set, &options, &run->test);
    fy_scope_end(scope, 0, NULL);
    run->loader = (fy_loader_info_t)FY_LOADER_INFO_INIT;
    FY_TRY(status);
    FY_TRY(fy_loader_query(run->train, &run->loader));
    return check_sample(run);
}

static fy_status_t open_sets(train_run_t *run)
{
    FY_TRY(strcmp(run->request.recipe->dataset, "text") == 0 ? open_text(run) : open_data(run));
    if (run->request.limit_samples > 0) {
        FY_TRY(cut(&run->train_set, (uint64_t)run->request.limit_samples));
        FY_TRY(cut(&run->test_set, (uint64_t)run->request.limit_samples));
    }
    return FY_STATUS_OK;
}

/* ---- model, optimizer, schedule ---- */

static fy_status_t make_optimizer(train_run_t *run)
{
    const train_request_t *request = &run->request;
    fy_loss_scaling_options_t scaling = FY_LOSS_SCALING_OPTIONS_INIT;
    fy_optimizer_options_t options;
    train_optimizer(request->recipe, request->optimizer, &options);
    if (!isnan(request->lr)) options.lr = request->lr;
    if (!isnan(request->weight_decay)) options.weight_decay = request->weight_decay;
    if (!isnan(request->momentum)) options.momentum = options.beta1 = request->momentum;
    options.decay_min_rank = request->decay_min_rank;
    options.ngroups = request->ngroups;
    options.groups = request->groups;
    train_scale_loss(request->precision, &options);
    scaling.init_scale = request->loss_scale;
    if (request->loss_scale > 0) options.loss_scaling = &scaling;
    return train_dist_optimizer(run, &options);
}

/* Updates an epoch has, and the whole training. */
static int64_t updates_an_epoch(const train_run_t *run)
{
    return (run->loader.steps + run->options.accumulate - 1) / run->options.accumulate;
}

static int64_t all_updates(const train_run_t *run)
{
    const int64_t all = run->options.epochs * updates_an_epoch(run);
    return run->options.max_steps > 0 && run->options.max_steps < all ? run->options.max_steps
                                                                      : all;
}

fy_schedule_kind_t train_schedule_kind(const train_request_t *request)
{
    /* --schedule names kinds in their own order, behind "default". */
    return request->schedule ? (fy_schedule_kind_t)(request->schedule - 1)
                             : request->recipe->schedule;
}

static fy_status_t make_schedule(train_run_t *run)
{
    const train_request_t *request = &run->request;
    const train_recipe_t *recipe = request->recipe;
    fy_optimizer_options_t optimizer = FY_OPTIMIZER_OPTIONS_INIT;
    fy_schedule_t *schedule = &run->schedule;
    FY_TRY(fy_optimizer_get(run->optimizer, &optimizer));
    const fy_schedule_kind_t kind = train_schedule_kind(request);
    if (request->find_lr ||
        (kind == FY_SCHEDULE_CONSTANT && !request->warmup && !request->scale_lr))
        return FY_STATUS_OK; /* the optimizer's rate stays: not one request */
    run->options.schedule = schedule;
    const int64_t updates = all_updates(run) - request->warmup;
    fy_schedule_defaults(kind, optimizer.lr, updates > 0 ? updates : 1, schedule, sizeof *schedule);
    schedule->warmup_steps = request->warmup;
    if (kind == FY_SCHEDULE_STEP) {
        schedule->step_size = updates_an_epoch(run);
        if (recipe->schedule == FY_SCHEDULE_STEP) schedule->gamma = recipe->gamma;
    }
    if (kind == FY_SCHEDULE_CYCLIC) { /* up during two epochs, and down (Smith 2017: 2 to 10) */
        schedule->step_size = 2 * updates_an_epoch(run);
        schedule->min_lr = optimizer.lr / 10;
    }
    if (kind == FY_SCHEDULE_RANGE) schedule->min_lr = optimizer.lr * 1e-4;
    const bool has_beta = optimizer.kind == FY_OPTIMIZER_ADAM ||
                          optimizer.kind == FY_OPTIMIZER_ADAMW ||
                          optimizer.kind == FY_OPTIMIZER_LAMB;
    if (request->graph || (!has_beta && optimizer.momentum == 0))
        /* there is none that could mirror the rate */
        schedule->base_momentum = schedule->max_momentum = 0;
    if (!request->scale_lr) return FY_STATUS_OK;
    return fy_schedule_scale(schedule, request->loader.batch * run->options.accumulate,
                             request->scale_lr, request->warmup);
}

fy_status_t train_make(train_run_t *run, const fy_model_options_t *options)
{
    FY_TRY(make_loaders(run));
    return fy_model_open(run->session.device, run->request.spec, options, &run->model);
}

fy_status_t train_finish(train_run_t *run)
{
    FY_TRY(train_dist_begin(run));
    FY_TRY(make_optimizer(run));
    return make_schedule(run);
}

fy_status_t train_setup(train_run_t *run)
{
    fy_model_options_t options = run->request.model;
    run->loss_step = -1;
    run->info = (fy_model_info_t)FY_MODEL_INFO_INIT;
    run->result = (fy_train_result_t)FY_TRAIN_RESULT_INIT;
    if (run->request.save) FY_TRY(tool_check_replaceable(run->request.save));
    FY_TRY(open_sets(run));
    if (run->request.chooses) FY_TRY(train_choose(run, &options));
    FY_TRY(train_make(run, &options));
    FY_TRY(fy_model_query(run->model, &run->info));
    return train_finish(run);
}

void train_teardown(train_run_t *run)
{
    fy_optimizer_destroy(run->optimizer);
    train_dist_end(run);
    fy_model_destroy(run->model);
    fy_loader_destroy(run->train);
    fy_loader_destroy(run->test);
    fy_dataset_destroy(run->train_set);
    fy_dataset_destroy(run->test_set);
    free(run->losses);
    free(run->loss_steps);
}
