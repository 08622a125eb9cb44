/* `ferry train MODEL`: trains a known model on its data set, with progress, checkpoints and a
 * summary of what crossed.
 * Not here: what a model is usually trained with (train_recipes.c), setting up (train_setup.c),
 * showing (train_progress.c, train_report.c). */
#include "tools/train/train.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const train_recipe_t *find_recipe(const char *name)
{
    const train_recipe_t *recipe = train_recipe_find(name);
    if (recipe) return recipe;
    if (name)
        fprintf(stderr, "ferry: train: there is no model '%s'; there are", name);
    else
        fprintf(stderr, "ferry: train: which model? There are");
    for (size_t i = 0; (recipe = train_recipe_at(i)); i++)
        fprintf(stderr, "%s %s", i ? "," : "", recipe->model);
    fputc('\n', stderr);
    return NULL;
}

/* FNV-1a (Fowler, Noll, Vo), 64 bits: to see at a glance whether two trainings ended alike. */
static uint64_t checksum(const unsigned char *bytes, size_t nbytes)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < nbytes; i++) hash = (hash ^ bytes[i]) * UINT64_C(0x100000001b3);
    return hash;
}

/* The one heavy request at the end: into a file with --save, else for a checksum. */
static fy_status_t bring_down(train_run_t *run)
{
    fy_download_t *reply;
    fy_tensor_t *host;
    void *bytes;
    if (run->request.save) return fy_model_save(run->model, run->request.save);
    FY_TRY(fy_tensor_download(run->info.values, NULL, &reply));
    FY_TRY(fy_download_wait(reply, FY_FOREVER, &host));
    FY_TRY(fy_tensor_map(host, FY_ACCESS_READ, &bytes));
    fy_tensor_info_t info = FY_TENSOR_INFO_INIT;
    FY_TRY(fy_tensor_query(host, &info));
    run->weight_nbytes = info.nbytes;
    run->checksum = checksum(bytes, info.nbytes);
    return FY_STATUS_OK;
}

static fy_status_t train(train_run_t *run)
{
    FY_TRY(train_setup(run));
    train_print_start(run);
    if (run->request.find_lr) return train_find_lr(run);
    run->options.stop = train_catch_interrupt();
    run->begin_ns = wall_ns();
    fy_status_t status = fy_train_run(run->model, run->optimizer, run->train, run->test,
                                      &run->options, &run->result);
    train_release_interrupt();
    FY_TRY(train_dist_cause(run, status));
    fy_scope_t scope = fy_scope_begin("weights");
    status = bring_down(run);
    fy_scope_end(scope, 0, NULL);
    FY_TRY(status);
    train_print_summary(run);
    if (!run->session.out) train_json(run);
    return train_write_losses(run);
}

/* "fc.=0.1,conv1.weight=2": groups by the names of parameters; explains a refusal. */
static bool read_groups(const char *text, train_request_t *request)
{
    while (text && *text) {
        const size_t length = strcspn(text, "=,");
        fy_optimizer_group_t *group = &request->groups[request->ngroups];
        char *name, *end = NULL;
        if (request->ngroups < TRAIN_GROUPS && text[length] == '=' && length < TRAIN_NAME_NBYTES) {
            name = request->group_names[request->ngroups];
            snprintf(name, TRAIN_NAME_NBYTES, "%.*s", (int)length, text);
            group->prefix = name;
            group->lr_scale = strtod(text + length + 1, &end);
            group->weight_decay_scale = 1;
        }
        if (!end || end == text + length + 1 || (*end && *end != ',') ||
            !(group->lr_scale >= 0 && isfinite(group->lr_scale)))
            return TOOL_REFUSE(false,
                               "train: --lr-scale: '%s' is not NAME=FACTOR, up to %d of them, with "
                               "names of less than %d characters\n",
                               text, TRAIN_GROUPS, TRAIN_NAME_NBYTES);
        request->ngroups++;
        text = *end ? end + 1 : end;
    }
    return true;
}

static bool changes_images(const train_request_t *request)
{
    const fy_loader_options_t *l = &request->loader;
    return l->resize || l->pad || l->crop || request->flip;
}

/* Why the options about the learning rate cannot be combined; NULL: they can. */
static const char *find_rate_problem(const train_run_t *run)
{
    const train_request_t *request = &run->request;
    const fy_schedule_kind_t kind = train_schedule_kind(request);
    if (request->find_lr && (run->options.checkpoint || request->save || request->graph))
        return "--find-lr keeps nothing that it trains: not with --checkpoint, --save, --graph";
    if (request->find_lr && request->chooses)
        return "--find-lr keeps a copy of the model, which --recompute auto does not plan";
    if (request->find_lr &&
        (!isnan(request->lr) || request->schedule || request->warmup || request->scale_lr))
        return "--find-lr tries all rates: not with --lr, --schedule, --warmup, --scale-lr";
    if (request->warmup && kind != FY_SCHEDULE_CONSTANT && kind != FY_SCHEDULE_STEP &&
        kind != FY_SCHEDULE_COSINE)
        return "--warmup is for the schedules constant, step, cosine; name one by --schedule";
    return NULL;
}

/* Checks combinations of options; explains a refusal. */
static bool check(const train_run_t *run)
{
    const train_request_t *request = &run->request;
    const char *problem = NULL;
    fy_optimizer_options_t optimizer;
    train_optimizer(request->recipe, request->optimizer, &optimizer);
    if (request->resume && !run->options.checkpoint)
        problem = "--resume needs --checkpoint, the folder to go on from";
    if (!request->recipe->is_image && changes_images(request))
        problem = "--resize, --pad, --crop and --flip change images; this model takes none";
    if (request->workers > 0 && !request->stream)
        problem = "--workers fill batches that are uploaded one by one: add --stream-data";
    if (request->graph && run->options.accumulate > 1)
        problem = "--graph replays whole steps: not with --accumulate";
    if (request->graph && request->model.offload > 1)
        problem = "--graph replays a recorded step, which cannot wait for --offload";
    if (request->chooses && request->model.offload)
        problem = "--recompute auto chooses whether to offload";
    if (request->memory_limit && !request->chooses)
        problem = "--memory-limit is what --recompute auto plans for";
    if (run->options.checkpoint_every > 0 && !run->options.checkpoint)
        problem = "--checkpoint-every needs --checkpoint";
    if (optimizer.kind == FY_OPTIMIZER_ADADELTA && !isnan(request->momentum))
        problem = "--momentum: adadelta has none; name another --optimizer";
    if (request->deadline_s && !request->dist)
        problem = "--dist-deadline is how long a process of --dist auto waits for another one";
    if (request->shard && !request->dist)
        problem = "--shard-optimizer divides state over the processes of --dist auto";
    if (request->sync_norms && !request->dist)
        problem = "--sync-batch-norm joins statistics of the processes of --dist auto";
    if (request->dist && (request->graph || request->find_lr || request->chooses))
        problem = "--dist auto: not with --graph, --find-lr, --recompute auto";
    if (!problem) problem = find_rate_problem(run);
    if (problem) fprintf(stderr, "ferry: train: %s\n", problem);
    return !problem;
}

/* Those of the recipe where nothing was given, and those that follow from others. */
static void fill(train_run_t *run)
{
    train_request_t *r = &run->request;
    fy_train_options_t *options = &run->options;
    if (options->epochs < 0) options->epochs = r->recipe->epochs;
    if (r->loader.batch < 0) r->loader.batch = r->recipe->batch;
    r->loader.workers = !r->stream ? 0 : r->workers < 0 ? 2 : (int)r->workers;
    r->loader.resident = !r->stream;
    r->loader.drop_last = options->graph = r->graph; /* a graph is of full batches */
    r->loader.flip = r->flip;
    r->model.seed = r->loader.seed;
    r->model.drop_bias = r->drop_bias;
    r->model.low = options->precision = train_precision(r->precision);
    if (isnan(options->clip_norm)) options->clip_norm = 0;
    if (isnan(options->clip_value)) options->clip_value = 0;
    options->keep = (int)r->keep;
    options->resume = r->resume;
    options->loss = r->recipe->loss;
    options->on_event = train_on_event;
    options->user = run;
}

/* The defaults of each model, from its recipe. */
static void print_recipes(void)
{
    const train_recipe_t *recipe;
    printf("\ndefaults by model:\n  %-18s %-8s %6s %7s  %-10s %6s %9s  %s\n", "model", "data",
           "batch", "epochs", "optimizer", "lr", "momentum", "schedule");
    for (size_t i = 0; (recipe = train_recipe_at(i)); i++)
        printf("  %-18s %-8s %6lld %7lld  %-10s %6g %9g  %s\n", recipe->model, recipe->dataset,
               (long long)recipe->batch, (long long)recipe->epochs,
               fy_optimizer_name(recipe->optimizer), recipe->lr, recipe->momentum,
               fy_schedule_name(recipe->schedule));
}

int cmd_train(int argc, char **argv)
{
    common_t common = { .device = "auto" };
    const char *recompute = NULL;
    int64_t offload = 0;
    /* -1 and NaN: as the model is usually trained */
    train_run_t run = { .request = { .workers = -1,
                                     .keep = 3,
                                     .lr = NAN,
                                     .momentum = NAN,
                                     .weight_decay = NAN,
                                     .model = FY_MODEL_OPTIONS_INIT,
                                     .loader = FY_LOADER_OPTIONS_INIT },
                        .options = FY_TRAIN_OPTIONS_INIT };
    train_request_t *r = &run.request;
    fy_train_options_t *o = &run.options;
    r->loader.batch = o->epochs = -1;
    o->log_every = 100;
    o->clip_norm = o->clip_value = NAN;
    const char *scales = NULL;
    const option_t options[] = {
        { "data", OPTION_TEXT, "DIR", &r->data,
          "folder of the data set; else $FERRY_DATA, else data/, else made up. gpt: a file of "
          "text, else made up" },
        { "epochs", OPTION_INT, "N", &o->epochs, "how often it goes through the data", 1, 1 << 20 },
        { "max-steps", OPTION_INT, "N", &o->max_steps,
          "end after so many updates; 0: when the epochs are done", 0, INT64_MAX },
        { "batch", OPTION_INT, "N", &r->loader.batch, "samples in a batch", 1, 1 << 24 },
        { "accumulate", OPTION_INT, "N", &o->accumulate, "batches an update", 1, 1 << 20 },
        { "lr", OPTION_REAL, "X", &r->lr, "learning rate", 0, 1 << 20 },
        { "optimizer", OPTION_CHOICE, TRAIN_OPTIMIZERS, &r->optimizer, "default: the model's own" },
        { "momentum", OPTION_REAL, "X", &r->momentum,
          "of SGD, RMSprop, LARS; beta1 of Adam and LAMB", 0, 1 },
        { "weight-decay", OPTION_REAL, "X", &r->weight_decay,
          "added to gradients; AdamW: taken from weights", 0, 1 << 20 },
        { "decay-min-rank", OPTION_INT, "N", &r->decay_min_rank,
          "no weight decay for parameters with fewer axes: 2 is weights only", 0, FY_MAX_RANK },
        { "lr-scale", OPTION_TEXT, "NAME=X", &scales,
          "learning rate times X for parameters whose name begins so; NAME=X,NAME=X" },
        { "schedule", OPTION_CHOICE, TRAIN_SCHEDULES, &r->schedule,
          "of the learning rate; default: the model's own" },
        { "warmup", OPTION_INT, "N", &r->warmup,
          "updates in which the learning rate rises to its first value: from a third of it, or "
          "with "
          "--scale-lr from the unscaled one",
          0, INT32_MAX },
        { "scale-lr", OPTION_INT, "BASE_BATCH", &r->scale_lr,
          "learning rate times samples an update / BASE_BATCH (linear scaling rule)", 1, 1 << 24 },
        { "find-lr", OPTION_FLAG, NULL, &r->find_lr,
          "learning rate range test in place of a training: --max-steps updates (default 100) with "
          "rates from 1e-7 to 10; prints losses and suggests a rate; --plot FILE draws them" },
        { "clip-norm", OPTION_REAL, "X", &o->clip_norm,
          "gradients are scaled down to this norm; 0: not", 0, 1 << 20 },
        { "clip-value", OPTION_REAL, "X", &o->clip_value, "each gradient is cut to +-X; 0: not", 0,
          1 << 20 },
        { "loss-scale", OPTION_REAL, "X", &r->loss_scale,
          "losses times X for gradients; doubled after 2000 good updates in a row, halved after a "
          "skipped one, with infinite or NaN gradients; 0: not, with f16 65536",
          0, (int64_t)1 << 40 },
        { "seed", OPTION_INT, "N", &r->loader.seed,
          "of first weights, dropout and the order of the data", 0, INT64_MAX },
        { "limit-samples", OPTION_INT, "N", &r->limit_samples,
          "only the first N samples, of the test set too; 0: all", 0, INT64_MAX },
        { "stream-data", OPTION_FLAG, NULL, &r->stream,
          "upload each batch, instead of the whole set once" },
        { "workers", OPTION_INT, "N", &r->workers, "threads that fill those batches; default 2", 0,
          16 },
        { "resize", OPTION_INT, "N", &r->loader.resize,
          "images become N x N pixels; this, --pad, --crop and --flip imply --stream-data", 0,
          1 << 16 },
        { "pad", OPTION_INT, "N", &r->loader.pad, "zeros around each image", 0, 1 << 16 },
        { "crop", OPTION_INT, "N", &r->loader.crop,
          "N x N pixels of each image, at a random place; in evaluation the centre", 0, 1 << 16 },
        { "flip", OPTION_FLAG, NULL, &r->flip, "half of the training images are mirrored" },
        { "graph", OPTION_FLAG, NULL, &r->graph,
          "the step is recorded once and replayed; full batches only" },
        { "offload", OPTION_INT, "N", &offload, TRAIN_OFFLOAD_HELP, 0, 9999 },
        { "recompute", OPTION_TEXT, TRAIN_RECOMPUTE, &recompute, TRAIN_RECOMPUTE_HELP },
        { "memory-limit", OPTION_BYTES, "BYTES", &r->memory_limit,
          "device memory that --recompute auto plans for; default: the device's", 1, INT64_MAX },
        { "precision", OPTION_CHOICE, TRAIN_PRECISIONS, &r->precision, TRAIN_PRECISION_HELP },
        { "drop-bias", OPTION_FLAG, NULL, &r->drop_bias, TRAIN_DROP_BIAS_HELP },
        { "dist", OPTION_CHOICE, TRAIN_DIST, &r->dist, TRAIN_DIST_HELP },
        { "dist-deadline", OPTION_INT, "SECONDS", &r->deadline_s,
          "of --dist: how long a process waits for another one; then it ends with status 5", 1,
          INT32_MAX },
        { "shard-optimizer", OPTION_FLAG, NULL, &r->shard, TRAIN_SHARD_HELP },
        { "sync-batch-norm", OPTION_FLAG, NULL, &r->sync_norms, TRAIN_SYNC_HELP },
        { "log-every", OPTION_INT, "N", &o->log_every,
          "updates between downloaded losses; 0: at the end of an epoch", 0, INT64_MAX },
        { "checkpoint", OPTION_TEXT, "DIR", &o->checkpoint,
          "save there: at the end of each epoch, and at Ctrl-C" },
        { "checkpoint-every", OPTION_INT, "N", &o->checkpoint_every,
          "updates between checkpoints; 0: an epoch", 0, INT64_MAX },
        { "keep", OPTION_INT, "N", &r->keep, "checkpoints that are kept", 1, 1 << 20 },
        { "resume", OPTION_FLAG, NULL, &r->resume,
          "go on from the newest checkpoint, if there is one" },
        { "save", OPTION_TEXT, "FILE", &r->save, "write the final weights to FILE (safetensors)" },
        TRAFFIC_OPTION(&common),
        COMMON_OPTIONS(&common),
    };
    const usage_t usage = {
        "ferry train MODEL",
        "Trains a network and prints what crossed between host and device. MODEL: linear, mlp, "
        "lenet, mnist2018, mnist, resnet18, mobilenet_v3_large, vit_tiny, gpt. The last four have "
        "options: gpt:layers=4,width=256.\n"
        "The defaults are those with which that model is usually trained; they are listed below.\n"
        "Ctrl-C ends the training after the current step, with a summary and exit status 130; "
        "SIGTERM does the same with 143.",
        options,
        sizeof options / sizeof *options,
        "ferry train linear\n"
        "ferry train mlp --device sim:0 --max-steps 20 --log-every 5\n"
        "ferry train mlp --max-steps 20 --checkpoint run --save mlp.safetensors\n"
        "ferry train mlp --max-steps 40 --checkpoint run --resume\n"
        "ferry train mlp --find-lr --max-steps 50\n"
        "mpirun -n 2 ferry train mlp --dist auto\n",
        print_recipes
    };
    const char *name;
    OPTIONS_TRY(options_parse_named(&usage, argc, argv, &name));
    r->recipe = find_recipe(name);
    r->stream = r->stream || changes_images(r);
    r->model.offload = (int)offload;
    if (!train_read_recompute("train", recompute, &r->model, &r->chooses)) return STATUS_USAGE;
    if (r->chooses && common.budget)
        return TOOL_REFUSE(STATUS_USAGE,
                           "train: --recompute auto plans, which counts in --budget: choose in "
                           "another run\n");
    if (!r->recipe || !check(&run) || !read_groups(scales, r)) return STATUS_USAGE;
    fill(&run);
    r->spec = train_recipe_spec(r->recipe, name);

    train_dist_t dist = { .group = NULL };
    fy_status_t status = r->dist ? train_dist_open(&dist, &common, r) : FY_STATUS_OK;
    if (status != FY_STATUS_OK) {
        fprintf(stderr, "ferry: %s: %s\n", fy_status_name(status), fy_error_get()->text);
        train_dist_close(&dist);
        return status_to_exit(status);
    }
    run.dist = r->dist ? &dist : NULL;
    status = session_begin(&run.session, &common, "ferry train", "model", r->recipe->model);
    if (status == FY_STATUS_OK) status = train(&run);
    const bool is_stopped = status == FY_STATUS_OK && run.result.is_stopped;
    if (status == FY_STATUS_OK && run.session.out && common.traffic)
        ledger_print(run.session.out, true);
    train_teardown(&run);
    const int exit_status = session_end(&run.session, status);
    train_dist_close(&dist);
    return exit_status == STATUS_OK && is_stopped ? train_interrupt_status() : exit_status;
}
