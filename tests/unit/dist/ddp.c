/* One rank of a data-parallel training by fy_train_run, against the training of one process, which
 * each rank runs for itself: test_ranks.sh starts several by mpirun.
 *   ddp CASE DEVICE
 * Exit status 0: parameters are those of one process to 1e-5, and the same bits on all ranks. */
#include <math.h>
#include <string.h>

#include <ferry/dist_train.h>
#include <ferry/train/train.h>

#include "tests/unit/dist/ranks.h"

/* 3 batches an epoch, of 24, 24 and 2 samples: of 4 ranks some have none of the last. */
enum { SAMPLES = 50, BATCH = 24 };

typedef struct testing {
    const char *name, *model;
    int64_t steps, accumulate;
    double clip_norm;
    int is_streamed;
    double bound;
} testing_t;
static const testing_t cases[] = { { "plain", "lenet", 20, 1, 0, 0, 1e-5 },
                                   { "accumulate", "lenet", 20, 2, 0, 0, 1e-5 },
                                   { "clip", "lenet", 20, 1, 0.5, 0, 1e-5 },
                                   { "stream", "lenet", 20, 1, 0, 1, 1e-5 },
                                   { "mlp", "mlp", 20, 1, 0, 0, 1e-5 } };

typedef struct run {
    fy_dataset_t *set;
    fy_loader_t *train, *test;
    fy_model_t *model;
    fy_optimizer_t *optimizer;
    fy_model_info_t info;
    fy_train_result_t result;
} run_t;

static run_t make_run(const testing_t *c, int is_shard)
{
    run_t run = { .info = FY_MODEL_INFO_INIT, .result = FY_TRAIN_RESULT_INIT };
    fy_loader_options_t loader = FY_LOADER_OPTIONS_INIT;
    fy_optimizer_options_t optimizer = FY_OPTIMIZER_OPTIONS_INIT;
    fy_model_options_t model = FY_MODEL_OPTIONS_INIT;
    fy_dataset_t *all, *rest;
    OK(fy_dataset_open("mnist", NULL, 0, &all));
    OK(fy_dataset_split(all, SAMPLES, -1, &run.set, &rest));
    fy_dataset_destroy(rest);
    fy_dataset_destroy(all);
    loader.batch = BATCH;
    loader.scale = 1.0 / 255;
    loader.resident = !c->is_streamed;
    if (is_shard) {
        loader.rank = group.rank;
        loader.ranks = group.size;
    }
    OK(fy_loader_create(device, run.set, &loader, &run.train));
    loader.shuffle = 0;
    OK(fy_loader_create(device, run.set, &loader, &run.test));
    model.seed = is_shard ? group.rank + 1 : 1; /* other values, until they are rank 0's */
    OK(fy_model_open(device, c->model, &model, &run.model));
    OK(fy_model_query(run.model, &run.info));
    optimizer.lr = 0.05;
    optimizer.momentum = 0.9;
    OK(fy_optimizer_create_model(&optimizer, run.model, &run.optimizer));
    return run;
}

static void free_run(run_t *run)
{
    fy_optimizer_destroy(run->optimizer);
    fy_model_destroy(run->model);
    fy_loader_destroy(run->train);
    fy_loader_destroy(run->test);
    fy_dataset_destroy(run->set);
}

static void train(const testing_t *c, run_t *run, const fy_train_replicas_t *replicas)
{
    fy_train_options_t options = FY_TRAIN_OPTIONS_INIT;
    options.epochs = 1000;
    options.max_steps = c->steps;
    options.accumulate = c->accumulate;
    options.clip_norm = c->clip_norm;
    options.log_every = 5;
    options.replicas = replicas;
    OK(fy_train_run(run->model, run->optimizer, run->train, run->test, &options, &run->result));
}

static int64_t length(const run_t *run)
{
    fy_tensor_info_t info = FY_TENSOR_INFO_INIT;
    OK(fy_tensor_query(run->info.values, &info));
    return (int64_t)info.nelem;
}

static void check_replicas(fy_group_t *g, const run_t *run)
{
    const int64_t n = length(run);
    fy_tensor_t *all;
    OK(fy_tensor_create(device, FY_DTYPE_F32, FY_DIMS(n * group.size), &all));
    OK(fy_group_all_gather(g, all, run->info.values));
    const float *replicas = fetch(all), *own = fetch(run->info.values);
    for (int r = 0; r < group.size; r++)
        HOLDS(memcmp(replicas + r * n, own, (size_t)n * sizeof *own) == 0);
}

static double difference(const run_t *a, const run_t *b)
{
    const float *x = fetch(a->info.values), *y = fetch(b->info.values);
    double sum = 0, norm = 0;
    for (int64_t i = 0; i < length(a); i++) {
        sum += ((double)x[i] - y[i]) * ((double)x[i] - y[i]);
        norm += (double)y[i] * y[i];
    }
    HOLDS(norm > 0);
    return sqrt(sum / norm);
}

/* Trains on all ranks. */
static void train_ranks(fy_group_t *g, const testing_t *c, uint64_t bucket, run_t *out)
{
    fy_ddp_options_t options = FY_DDP_OPTIONS_INIT;
    fy_ddp_info_t info = FY_DDP_INFO_INIT;
    fy_train_replicas_t replicas;
    fy_ddp_t *ddp;
    if (bucket) options.bucket_nbytes = options.first_bucket_nbytes = bucket;
    *out = make_run(c, 1);
    OK(fy_ddp_create(g, out->model, &options, &ddp));
    OK(fy_ddp_replicas(ddp, &replicas));
    train(c, out, &replicas);
    OK(fy_ddp_query(ddp, &info));
    HOLDS(info.reductions == (uint64_t)c->steps);
    HOLDS(bucket != 1 || info.buckets == out->info.nparams);
    HOLDS(bucket || info.buckets == 1);
    fy_ddp_destroy(ddp);
    check_replicas(g, out);
}

static void check_case(fy_group_t *g, const testing_t *c)
{
    run_t one = make_run(c, 0), many, small;
    train(c, &one, NULL);
    train_ranks(g, c, 0, &many);
    const double d = difference(&many, &one);
    if (group.rank == 0) printf("%s: difference %.3g\n", c->name, d);
    HOLDS(d <= c->bound);
    HOLDS(fabs(many.result.train_loss - one.result.train_loss) <= 1e-5);
    HOLDS(fabs(many.result.test_loss - one.result.test_loss) <= 1e-5);
    HOLDS(many.result.test_accuracy == one.result.test_accuracy);
    HOLDS(many.result.steps == one.result.steps && many.result.epochs == one.result.epochs);
    if (strcmp(c->name, "plain") == 0) { /* a bucket for each parameter: the same bits */
        train_ranks(g, c, 1, &small);
        HOLDS(difference(&small, &many) == 0);
        free_run(&small);
    }
    free_run(&one);
    free_run(&many);
}

typedef struct counting {
    fy_group_t *group;
    fy_train_replicas_t inner;
    uint64_t sent_nbytes;
} counting_t;

static fy_status_t begin(void *user, const char *text)
{
    const counting_t *counting = user;
    return counting->inner.begin(counting->inner.user, text);
}

static fy_status_t sum(void *user, fy_tensor_t *tensor)
{
    const counting_t *counting = user;
    return counting->inner.sum(counting->inner.user, tensor);
}

static fy_status_t share_buffers(void *user)
{
    const counting_t *counting = user;
    return counting->inner.share_buffers(counting->inner.user);
}

static fy_status_t sum_grads(void *user)
{
    counting_t *counting = user;
    fy_group_info_t before = FY_GROUP_INFO_INIT, after = FY_GROUP_INFO_INIT;
    OK(fy_group_query(counting->group, &before));
    OK(counting->inner.sum_grads(counting->inner.user));
    OK(fy_group_query(counting->group, &after));
    counting->sent_nbytes += after.sent_nbytes - before.sent_nbytes;
    return FY_STATUS_OK;
}

/* Bytes that rank 0 sends for the gradients of 12 batches, in updates of `accumulate`. */
static uint64_t count_sent(fy_group_t *g, int64_t accumulate)
{
    testing_t c = { "count", "mlp", 0, accumulate, 0, 0, 0 };
    run_t run = make_run(&c, 1);
    fy_train_options_t options = FY_TRAIN_OPTIONS_INIT;
    counting_t counting = { .group = g };
    fy_ddp_t *ddp;
    OK(fy_ddp_create(g, run.model, NULL, &ddp));
    OK(fy_ddp_replicas(ddp, &counting.inner));
    const fy_train_replicas_t replicas = { sizeof replicas, group.rank, group.size, &counting,
                                           begin,           sum_grads,  sum,        share_buffers };
    options.epochs = 4;
    options.accumulate = accumulate;
    options.replicas = &replicas;
    OK(fy_train_run(run.model, run.optimizer, run.train, NULL, &options, NULL));
    fy_ddp_destroy(ddp);
    free_run(&run);
    return counting.sent_nbytes;
}

static uint64_t state_nbytes(const fy_optimizer_t *optimizer)
{
    uint64_t nbytes = 0;
    const char *name;
    fy_tensor_t *tensor;
    for (size_t i = 0; fy_optimizer_state(optimizer, i, &name, &tensor), name; i++) {
        fy_tensor_info_t info = FY_TENSOR_INFO_INIT;
        OK(fy_tensor_query(tensor, &info));
        if (info.rank > 0) nbytes += info.nbytes; /* without the step number */
    }
    return nbytes;
}

/* Gradients that differ by rank and step; clipped, so that the norm is that of all ranks. */
static void step_once(fy_ddp_t *ddp, const run_t *run, fy_optimizer_t *optimizer, int step)
{
    OK(fy_copy(run->info.grads, run->info.values));
    OK(fy_axpy(run->info.grads, 0.1 * step + group.rank, run->info.values));
    OK(fy_ddp_reduce(ddp));
    OK(fy_grads_clip_norm(1, &run->info.grads, 0.5, NULL));
    OK(fy_optimizer_step(optimizer));
}

/* The state of a rank is a part; parameters have the bits of an optimizer with all state. */
static void check_sharded(fy_group_t *g)
{
    const testing_t c = { "sharded", "lenet", 0, 1, 0, 0, 0 };
    run_t whole = make_run(&c, 1), part = make_run(&c, 1);
    fy_ddp_t *whole_ddp, *part_ddp;
    fy_optimizer_t *all, *own, *none;
    fy_optimizer_options_t options = FY_OPTIMIZER_OPTIONS_INIT;
    fy_loss_scaling_options_t scaling = FY_LOSS_SCALING_OPTIONS_INIT;
    const uint64_t ranks = (uint64_t)group.size;
    fy_optimizer_defaults(FY_OPTIMIZER_ADAMW, &options, sizeof options);
    options.decay_min_rank = 2; /* factors for parameters, also for those cut between ranks */
    OK(fy_ddp_create(g, whole.model, NULL, &whole_ddp));
    OK(fy_ddp_create(g, part.model, NULL, &part_ddp));
    OK(fy_optimizer_create_model(&options, whole.model, &all));
    OK(fy_ddp_create_optimizer(part_ddp, &options, &own));
    const uint64_t of_all = state_nbytes(all), of_own = state_nbytes(own);
    HOLDS(of_all > 0 && of_own <= of_all / ranks + 2 * 64 * sizeof(float));
    HOLDS(group.size == 1 || of_own < of_all);
    for (int step = 0; step < 5; step++) {
        const fy_scope_t scope = fy_scope_begin("step");
        step_once(whole_ddp, &whole, all, step);
        step_once(part_ddp, &part, own, step);
        OK(fy_ddp_share_values(part_ddp));
        HOLDS(memcmp(fetch(whole.info.values), fetch(part.info.values),
                     (size_t)length(&whole) * sizeof(float)) == 0);
        fy_scope_end(scope, 0, NULL);
    }
    options.loss_scaling = &scaling;
    HOLDS(fy_ddp_create_optimizer(part_ddp, &options, &none) == FY_STATUS_INVALID_ARGUMENT);
    options.loss_scaling = NULL;
    options.kind = FY_OPTIMIZER_LAMB;
    HOLDS(fy_ddp_create_optimizer(part_ddp, &options, &none) == FY_STATUS_UNSUPPORTED && !none);
    const fy_optimizer_range_t outside = { 0, length(&whole) + 1 };
    options.kind = FY_OPTIMIZER_ADAMW;
    HOLDS(fy_optimizer_create_ranges(&options, part.model, 1, &outside, &none) ==
          FY_STATUS_INVALID_ARGUMENT);
    if (group.rank == 0)
        printf("sharded: state of a rank %llu bytes of %llu\n", (unsigned long long)of_own,
               (unsigned long long)of_all);
    fy_optimizer_destroy(all);
    fy_optimizer_destroy(own);
    fy_ddp_destroy(whole_ddp);
    fy_ddp_destroy(part_ddp);
    free_run(&whole);
    free_run(&part);
}

/* fy_group_compare, and models that differ. */
static void check_differences(fy_group_t *g)
{
    fy_model_t *model;
    fy_ddp_t *ddp;
    OK(fy_group_compare(g, "same\ntext\n"));
    if (group.size == 1) return;
    HOLDS(fy_group_compare(g, group.rank == 1 ? "same\nother\n" : "same\ntext\n") ==
          FY_STATUS_INVALID_ARGUMENT);
    HOLDS(strstr(fy_error_get()->text, "rank 0: text\n  rank 1: other"));
    OK(fy_model_open(device, group.rank ? "lenet" : "mlp", NULL, &model));
    HOLDS(fy_ddp_create(g, model, NULL, &ddp) == FY_STATUS_INVALID_ARGUMENT && !ddp);
    fy_model_destroy(model);
    OK(fy_group_barrier(g)); /* the group is as before */
}

int main(int argc, char **argv)
{
    fy_group_t *g;
    OK(fy_group_open(NULL, &g));
    OK(fy_group_query(g, &group));
    OK(fy_device_open(argc > 2 ? argv[2] : "host", &device));
    const fy_scope_t scope = fy_scope_begin("test");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (argc < 2 || strcmp(argv[1], "all") == 0 || strcmp(argv[1], cases[i].name) == 0)
            check_case(g, &cases[i]);
    check_sharded(g);
    check_differences(g);
    const uint64_t each = count_sent(g, 1);
    HOLDS((each > 0) == (group.size > 1) && each == 3 * count_sent(g, 3));
    fy_scope_end(scope, 0, NULL);
    fy_device_close(device);
    fy_group_close(g);
    printf("rank %d ends well\n", group.rank);
    return 0;
}
