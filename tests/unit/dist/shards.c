/* One rank of a training whose optimizer state is divided over the ranks (ZeRO-1), against the same
 * training with whole state: test_shards.sh starts several by mpirun.
 *   shards DEVICE FOLDER all|few
 * Exit status 0: the same bits, 1 / ranks of the state, as many bytes as planned. */
#include <unistd.h>

#include "tests/unit/dist/training.h"

static const testing_t cases[] = {
    { .name = "sgd", .model = "lenet", .steps = 8, .accumulate = 1 },
    { .name = "adamw",
      .model = "lenet",
      .steps = 6,
      .accumulate = 2,
      .optimizer = FY_OPTIMIZER_ADAMW },
    { .name = "bf16", .model = "lenet", .steps = 6, .accumulate = 1, .precision = FY_DTYPE_BF16 },
    /* norms are summed by part: equal to rounding */
    { .name = "clip",
      .model = "lenet",
      .steps = 10,
      .accumulate = 1,
      .clip_norm = 0.05,
      .bound = 1e-6 },
    { .name = "mlp",
      .model = "mlp",
      .steps = 4,
      .accumulate = 1,
      .optimizer = FY_OPTIMIZER_ADADELTA },
};

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

typedef struct part {
    run_t run;
    fy_ddp_t *ddp;
    fy_train_replicas_t replicas;
    uint64_t buckets;
} part_t;

/* bucket_nbytes 0: the defaults, which make one bucket of these models. */
static part_t make_part(fy_group_t *g, const testing_t *c, int64_t shards, uint64_t bucket_nbytes)
{
    part_t part = { .run = make_run(c, 1), .replicas = FY_TRAIN_REPLICAS_INIT };
    fy_ddp_options_t options = FY_DDP_OPTIONS_INIT;
    fy_ddp_info_t info = FY_DDP_INFO_INIT;
    const fy_optimizer_options_t optimizer = optimizer_of(c);
    options.shard_optimizer = shards;
    if (bucket_nbytes) options.first_bucket_nbytes = options.bucket_nbytes = bucket_nbytes;
    OK(fy_ddp_create(g, part.run.model, &options, &part.ddp));
    OK(fy_ddp_replicas(part.ddp, &part.replicas));
    OK(fy_ddp_query(part.ddp, &info));
    part.buckets = info.buckets;
    fy_optimizer_destroy(part.run.optimizer);
    OK(fy_ddp_create_optimizer(part.ddp, &optimizer, &part.run.optimizer));
    return part;
}

static void free_part(part_t *part)
{
    fy_ddp_destroy(part->ddp);
    free_run(&part->run);
}

static uint64_t train_part(fy_group_t *g, const testing_t *c, part_t *part)
{
    fy_group_info_t before = FY_GROUP_INFO_INIT, after = FY_GROUP_INFO_INIT;
    OK(fy_group_query(g, &before));
    train(c, &part->run, &part->replicas);
    OK(fy_group_query(g, &after));
    check_replicas(g, part->run.info.values);
    return after.sent_nbytes - before.sent_nbytes;
}

/* What the last elements of buckets, which no equal parts have, can add to the bytes of a step. */
static uint64_t remainder_nbytes(const part_t *part)
{
    return part->buckets * (uint64_t)group.size * 64 * sizeof(float) * 4 + 1024;
}

static void check_case(fy_group_t *g, const testing_t *c, uint64_t bucket)
{
    part_t whole = make_part(g, c, 0, bucket), part = make_part(g, c, 1, bucket);
    const uint64_t all = state_nbytes(whole.run.optimizer), own = state_nbytes(part.run.optimizer),
                   ranks = (uint64_t)group.size;
    const uint64_t sent = train_part(g, c, &whole), sent_part = train_part(g, c, &part);
    const double d = difference(part.run.info.values, whole.run.info.values);
    if (group.rank == 0)
        printf("%s, %llu buckets: difference %.3g; state %llu bytes of %llu; sent %llu bytes, "
               "whole %llu\n",
               c->name, (unsigned long long)part.buckets, d, (unsigned long long)own,
               (unsigned long long)all, (unsigned long long)sent_part, (unsigned long long)sent);
    HOLDS(all > 0 && d <= c->bound);
    HOLDS(own <= all / ranks + 2 * part.buckets * ranks * 64 * sizeof(float));
    HOLDS(group.size == 1 || own < all);
    HOLDS(sent_part <= sent + (uint64_t)c->steps * remainder_nbytes(&part));
    HOLDS(part.run.result.train_loss == whole.run.result.train_loss || c->bound > 0);
    free_part(&whole);
    free_part(&part);
}

static char *path_of(const char *folder, const char *name)
{
    char *path = malloc(strlen(folder) + strlen(name) + 2);
    HOLDS(path);
    sprintf(path, "%s/%s", folder, name);
    return path;
}

static void check_equal_files(const char *a, const char *b)
{
    FILE *x = fopen(a, "rb"), *y = fopen(b, "rb");
    int c;
    HOLDS(x && y);
    do HOLDS((c = getc(x)) == getc(y));
    while (c != EOF);
    fclose(x);
    fclose(y);
}

/* Checkpoints have whole state: the same file; each loads the other's. */
static void check_checkpoints(fy_group_t *g, const char *folder)
{
    testing_t c = { .name = "checkpoint",
                    .model = "lenet",
                    .steps = 5,
                    .accumulate = 1,
                    .optimizer = FY_OPTIMIZER_ADAM };
    char *of_whole = path_of(folder, "whole"), *of_part = path_of(folder, "part"),
         *x = path_of(of_whole, "step-00000005.safetensors"),
         *y = path_of(of_part, "step-00000005.safetensors");
    for (uint64_t bucket = 0; bucket < 2; bucket++) {
        part_t whole = make_part(g, &c, 0, bucket), part = make_part(g, &c, 1, bucket);
        fy_progress_t progress = FY_PROGRESS_INIT;
        c.checkpoint = of_whole;
        train_part(g, &c, &whole);
        c.checkpoint = of_part;
        train_part(g, &c, &part);
        if (group.rank == 0) check_equal_files(x, y);
        HOLDS(group.size == 1 || fy_checkpoint_save(folder, part.run.model, part.run.optimizer,
                                                    &progress, 1) == FY_STATUS_INVALID_ARGUMENT);
        HOLDS(group.size == 1 || strstr(fy_error_get()->text, "fy_train_save"));
        OK(fy_group_barrier(g)); /* the files are there */
        free_part(&whole);
        free_part(&part);
    }
    testing_t more = c;
    more.steps = 8;
    more.resume = 1;
    more.checkpoint = of_whole;
    part_t part = make_part(g, &more, 1, 1), whole = make_part(g, &more, 0, 0);
    train_part(g, &more, &part); /* writes step 8 */
    more.checkpoint = NULL;
    more.resume = 0;
    OK(fy_group_barrier(g));
    train_part(g, &more, &whole); /* undisturbed */
    HOLDS(difference(part.run.info.values, whole.run.info.values) == 0);
    OK(fy_checkpoint_load(of_whole, part.run.model, part.run.optimizer, NULL));
    HOLDS(difference(part.run.info.values, whole.run.info.values) == 0);
    free_part(&whole);
    free_part(&part);
    free(x);
    free(y);
    free(of_whole);
    free(of_part);
}

/* A loop without fy_train_run; the steps are those of fy_optimizer_step with whole state. */
static void check_loop(fy_group_t *g)
{
    const testing_t c = { .name = "loop", .model = "lenet", .optimizer = FY_OPTIMIZER_ADAMW };
    part_t parts[2] = { make_part(g, &c, 0, 0), make_part(g, &c, 1, 100000) };
    for (int step = 0; step < 3; step++)
        for (int i = 0; i < 2; i++) {
            const fy_scope_t scope = fy_scope_begin("step");
            fy_tensor_t *grads = parts[i].run.info.grads, *values = parts[i].run.info.values;
            OK(fy_copy(grads, values));
            OK(fy_axpy(grads, 0.1 * step + group.rank, values));
            OK(fy_ddp_reduce(parts[i].ddp));
            OK(fy_ddp_clip_norm(parts[i].ddp, 0.5));
            OK(fy_optimizer_step(parts[i].run.optimizer));
            OK(fy_ddp_share_values(parts[i].ddp));
            fy_scope_end(scope, 0, NULL);
        }
    HOLDS(difference(parts[0].run.info.values, parts[1].run.info.values) <= 1e-6);
    free_part(&parts[0]);
    free_part(&parts[1]);
}

/* An optimizer and replicas that do not fit together, and what a part cannot do. */
static void check_refusals(fy_group_t *g)
{
    const testing_t c = { .name = "refusals", .model = "lenet", .steps = 1, .accumulate = 1 };
    part_t whole = make_part(g, &c, 0, 0), part = make_part(g, &c, 1, 0);
    fy_train_options_t options = FY_TRAIN_OPTIONS_INIT;
    fy_optimizer_options_t optimizer = optimizer_of(&c);
    const fy_loss_scaling_options_t scaling = FY_LOSS_SCALING_OPTIONS_INIT;
    fy_optimizer_t *none;
    if (group.size == 1) {
        free_part(&whole);
        free_part(&part);
        return;
    }
    options.replicas = &whole.replicas;
    HOLDS(fy_train_run(part.run.model, part.run.optimizer, part.run.train, NULL, &options, NULL) ==
          FY_STATUS_INVALID_ARGUMENT);
    HOLDS(strstr(fy_error_get()->text, "no other process updates the rest"));
    options.replicas = &part.replicas;
    HOLDS(fy_train_run(whole.run.model, whole.run.optimizer, whole.run.train, NULL, &options,
                       NULL) == FY_STATUS_INVALID_ARGUMENT);
    HOLDS(strstr(fy_error_get()->text, "make it by fy_ddp_create_optimizer"));
    optimizer.loss_scaling = &scaling;
    HOLDS(fy_ddp_create_optimizer(part.ddp, &optimizer, &none) == FY_STATUS_INVALID_ARGUMENT);
    optimizer.loss_scaling = NULL;
    optimizer.kind = FY_OPTIMIZER_LAMB;
    HOLDS(fy_ddp_create_optimizer(part.ddp, &optimizer, &none) == FY_STATUS_UNSUPPORTED && !none);
    HOLDS(fy_ddp_clip_norm(part.ddp, 0) == FY_STATUS_INVALID_ARGUMENT);
    const fy_optimizer_range_t outside = { 0, length_of(whole.run.info.values) + 1 };
    optimizer.kind = FY_OPTIMIZER_ADAMW;
    HOLDS(fy_optimizer_create_ranges(&optimizer, part.run.model, 1, &outside, &none) ==
          FY_STATUS_INVALID_ARGUMENT);
    OK(fy_group_barrier(g)); /* the group is as before */
    free_part(&whole);
    free_part(&part);
}

int main(int argc, char **argv)
{
    fy_scope_t scope;
    HOLDS(argc == 4);
    const int is_all = strcmp(argv[3], "all") == 0;
    fy_group_t *g = begin_rank(NULL, argv[1], &scope);
    for (size_t i = 0; i < (is_all ? sizeof cases / sizeof *cases : 1); i++)
        check_case(g, &cases[i], 0);
    /* a bucket for each parameter: some have fewer than 64 elements */
    if (is_all) check_case(g, &cases[0], 1);
    check_checkpoints(g, argv[2]);
    check_loop(g);
    check_refusals(g);
    end_rank(g, scope);
    return 0;
}
