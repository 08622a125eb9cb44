/* One rank of a data-parallel training by fy_train_run, against the training of one process, which
 * each rank runs for itself: test_ranks.sh starts several by mpirun.
 *   ddp CASE DEVICE
 * Exit status 0: parameters are those of one process to 1e-5, and the same bits on all ranks. */
#include <inttypes.h>
#include <unistd.h>

#include "tests/unit/dist/training.h"

static const testing_t cases[] = { { "plain", "lenet", 20, 1, 0, 0, 1e-5 },
                                   { "accumulate", "lenet", 20, 2, 0, 0, 1e-5 },
                                   { "clip", "lenet", 20, 1, 0.5, 0, 1e-5 },
                                   { "stream", "lenet", 20, 1, 0, 1, 1e-5 },
                                   { "mlp", "mlp", 20, 1, 0, 0, 1e-5 } };

/* Trains on all ranks. */
static void train_ranks(fy_group_t *g, const testing_t *c, uint64_t bucket, int after, run_t *out)
{
    fy_ddp_options_t options = FY_DDP_OPTIONS_INIT;
    fy_ddp_info_t info = FY_DDP_INFO_INIT;
    fy_train_replicas_t replicas = FY_TRAIN_REPLICAS_INIT;
    fy_ddp_t *ddp;
    options.after_backward = after;
    if (bucket) options.bucket_nbytes = options.first_bucket_nbytes = bucket;
    *out = make_run(c, 1);
    OK(fy_ddp_create(g, out->model, &options, &ddp));
    OK(fy_ddp_replicas(ddp, &replicas));
    train(c, out, &replicas);
    OK(fy_ddp_query(ddp, &info));
    HOLDS(info.reductions == (uint64_t)c->steps);
    HOLDS(bucket != 1 || info.buckets == out->info.nparams);
    HOLDS(bucket || info.buckets <= 2);
    fy_ddp_destroy(ddp);
    check_replicas(g, out->info.values);
}

static void check_case(fy_group_t *g, const testing_t *c)
{
    run_t one = make_run(c, 0), many, small;
    train(c, &one, NULL);
    train_ranks(g, c, 0, 1, &many);
    const double d = difference(many.info.values, one.info.values);
    if (group.rank == 0) printf("%s: difference %.3g\n", c->name, d);
    HOLDS(d <= c->bound);
    HOLDS(fabs(many.result.train_loss - one.result.train_loss) <= 1e-5);
    HOLDS(fabs(many.result.test_loss - one.result.test_loss) <= 1e-5);
    HOLDS(many.result.test_accuracy == one.result.test_accuracy);
    HOLDS(many.result.steps == one.result.steps && many.result.epochs == one.result.epochs);
    for (int after = 0; after <= 1; after++) { /* a bucket for each parameter: the same bits */
        if (after && strcmp(c->name, "plain") != 0) break;
        train_ranks(g, c, 1, after, &small);
        HOLDS(difference(small.info.values, many.info.values) == 0);
        free_run(&small);
    }
    free_run(&one);
    free_run(&many);
}

static struct {
    fy_group_t *group;
    fy_train_replicas_t inner;
    uint64_t sent_nbytes;
} counting;

static fy_status_t sum_grads(void *user)
{
    fy_group_info_t before = FY_GROUP_INFO_INIT, after = FY_GROUP_INFO_INIT;
    OK(fy_group_query(counting.group, &before));
    OK(counting.inner.sum_grads(user));
    OK(fy_group_query(counting.group, &after));
    counting.sent_nbytes += after.sent_nbytes - before.sent_nbytes;
    return FY_STATUS_OK;
}

/* Bytes that rank 0 sends for the gradients of 16 batches, in updates of `accumulate`. */
static uint64_t count_sent(fy_group_t *g, int64_t accumulate)
{
    /* four batches an epoch */
    testing_t c = { .name = "count", .model = "mlp", .accumulate = accumulate, .batch = 13 };
    run_t run = make_run(&c, 1);
    fy_train_options_t options = FY_TRAIN_OPTIONS_INIT;
    fy_ddp_t *ddp;
    OK(fy_ddp_create(g, run.model, NULL, &ddp));
    counting.group = g;
    counting.sent_nbytes = 0;
    counting.inner = (fy_train_replicas_t)FY_TRAIN_REPLICAS_INIT;
    OK(fy_ddp_replicas(ddp, &counting.inner));
    fy_train_replicas_t replicas = counting.inner;
    replicas.backward = NULL; /* all are sent by sum_grads */
    replicas.sum_grads = sum_grads;
    options.epochs = 4;
    options.accumulate = accumulate;
    options.replicas = &replicas;
    OK(fy_train_run(run.model, run.optimizer, run.train, NULL, &options, NULL));
    fy_ddp_destroy(ddp);
    free_run(&run);
    return counting.sent_nbytes;
}

/* A forward and what leads to its backward: another loss on each rank. */
static fy_tensor_t *make_loss(const run_t *run, fy_tape_t *tape, int scale)
{
    fy_tensor_t *x, *y, *loss;
    OK(fy_full(device, FY_DTYPE_F32, FY_DIMS(2, 28, 28, 1), 0.1 * (group.rank + scale), &x));
    OK(fy_tape_begin(tape));
    OK(fy_model_forward(run->model, x, &y));
    OK(fy_mul(y, y, &y));
    OK(fy_sum(y, FY_AXES(0, 1), 0, &loss));
    return loss;
}

/* Sums during the backward have the bits of sums after it, and begin before it ends. */
static void check_backward(fy_group_t *g)
{
    const testing_t c = { "backward", "lenet", 0, 1, 0, 0, 0 };
    run_t run = make_run(&c, 1);
    const size_t nbytes = (size_t)length_of(run.info.values) * sizeof(float);
    float *after = malloc(nbytes);
    fy_ddp_options_t options = FY_DDP_OPTIONS_INIT;
    fy_group_info_t before = FY_GROUP_INFO_INIT, now = FY_GROUP_INFO_INIT;
    struct { /* of a newer version: a field that is asked for is refused, else all is as now */
        fy_backward_options_t known;
        uint64_t field;
    } newer = { FY_BACKWARD_OPTIONS_INIT, 0 };
    fy_tape_t *tape;
    fy_ddp_t *ddp;
    HOLDS(after != NULL);
    newer.known.struct_size = sizeof newer;
    options.first_bucket_nbytes = options.bucket_nbytes = 4096;
    OK(fy_ddp_create(g, run.model, &options, &ddp));
    OK(fy_tape_create(&tape));
    OK(fy_model_watch(run.model, tape));
    for (int scale = 1; scale <= 3; scale++) {
        const fy_scope_t scope = fy_scope_begin("backward");
        OK(fy_model_backward(run.model, tape, make_loss(&run, tape, scale), NULL));
        OK(fy_ddp_reduce(ddp));
        memcpy(after, fetch(run.info.grads), nbytes);
        OK(fy_group_query(g, &before));
        fy_tensor_t *loss = make_loss(&run, tape, scale);
        newer.field = 1;
        HOLDS(fy_ddp_backward(ddp, tape, loss, &newer.known) == FY_STATUS_INVALID_ARGUMENT);
        newer.field = 0;
        OK(fy_ddp_backward(ddp, tape, loss, &newer.known));
        if (group.size > 1) {
            HOLDS(fy_ddp_backward(ddp, tape, make_loss(&run, tape, scale), NULL) == FY_STATUS_BUSY);
            for (int i = 0; i < 60000 && now.calls < before.calls + 1; i++) {
                usleep(1000);
                OK(fy_group_query(g, &now)); /* a sum is done, and fy_ddp_reduce not called */
            }
            HOLDS(now.calls > before.calls);
        }
        OK(fy_ddp_reduce(ddp));
        HOLDS(memcmp(after, fetch(run.info.grads), nbytes) == 0);
        fy_scope_end(scope, 0, NULL);
    }
    free(after);
    fy_tape_destroy(tape);
    fy_ddp_destroy(ddp);
    free_run(&run);
}

/* Bytes that are left of a model whose backward had its sums, or whose other rank left before. */
static uint64_t bytes_behind(fy_group_t *g, int is_lost)
{
    const testing_t c = { "lost", "lenet", 0, 1, 0, 0, 0 };
    fy_memory_stats_t stats = FY_MEMORY_STATS_INIT;
    run_t run = make_run(&c, 1);
    fy_tape_t *tape;
    fy_ddp_t *ddp;
    const fy_scope_t scope = fy_scope_begin("lost");
    OK(fy_ddp_create(g, run.model, NULL, &ddp));
    OK(fy_tape_create(&tape));
    OK(fy_model_watch(run.model, tape));
    if (!is_lost || group.rank == 0) {
        OK(fy_ddp_backward(ddp, tape, make_loss(&run, tape, 1), NULL));
        HOLDS(fy_ddp_reduce(ddp) == (is_lost ? FY_STATUS_RANK_LOST : FY_STATUS_OK));
        HOLDS(!is_lost || strstr(fy_error_get()->text, "has closed its group"));
    }
    fy_tape_destroy(tape);
    fy_ddp_destroy(ddp);
    fy_scope_end(scope, 0, NULL);
    free_run(&run);
    OK(fy_memory_query(device, NULL, &stats));
    return stats.requested;
}

/* On the host MPI uses the gradients' block: after a lost rank it is not freed. */
static void check_lost(fy_group_t *g)
{
    const testing_t c = { "lost", "lenet", 0, 1, 0, 0, 0 };
    run_t run = make_run(&c, 1);
    const uint64_t nbytes = (uint64_t)length_of(run.info.values) * sizeof(float);
    free_run(&run);
    const uint64_t before = bytes_behind(g, 0), after = bytes_behind(g, 1);
    if (group.rank > 0) return;
    HOLDS(after >= before + nbytes);
    printf("kept %" PRIu64 " bytes\n", after - before);
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
    fy_scope_t scope;
    fy_group_t *g = begin_rank(NULL, argc > 2 ? argv[2] : "host", &scope);
    if (argc > 1 && strcmp(argv[1], "lost") == 0) {
        check_lost(g);
        end_rank(g, scope);
        return 0;
    }
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (argc < 2 || strcmp(argv[1], "all") == 0 || strcmp(argv[1], cases[i].name) == 0)
            check_case(g, &cases[i]);
    check_backward(g);
    check_differences(g);
    const uint64_t each = count_sent(g, 1);
    HOLDS((each > 0) == (group.size > 1) && each == 4 * count_sent(g, 4));
    end_rank(g, scope);
    return 0;
}
