/* One rank of a training in which a rank is lost: test_faults.sh starts four by mpirun.
 *   faults kill|stop|differ SEED FOLDER   the seed chooses the rank and the moment
 *   faults resume 0 FOLDER                goes on from the checkpoint, to the end
 * The fault: every other rank names the rank, and exits with status 5 (4: other calls). After a
 * resume: exit status 0 if parameters and running statistics have the bits of an undisturbed
 * training. */
#include <signal.h>
#include <unistd.h>

#include "tests/unit/dist/training.h"

enum { WIDTH = 40, STEPS = 14, EVERY = 4, LOST = 5, DIFFERENT = 4 };

/* Of this process. */
static struct {
    fy_group_t *group;
    fy_train_replicas_t inner;
    const char *kind;
    int bad, moment, calls; /* the rank; before this call to sum gradients */
} plan;

/* Running statistics and dropout change in batches whose update never comes. */
static fy_layer_t *make_layers(void)
{
    fy_layer_t *flatten, *fc1, *norm, *dropout, *fc2, *all;
    OK(fy_layer_flatten(&flatten));
    OK(fy_layer_linear(784, WIDTH, NULL, &fc1));
    OK(fy_layer_batch_norm(WIDTH, NULL, &norm));
    OK(fy_layer_dropout(0.2, &dropout));
    OK(fy_layer_linear(WIDTH, 10, NULL, &fc2));
    const fy_layer_child_t children[] = {
        { "", flatten }, { "fc1", fc1 }, { "norm", norm }, { "", dropout }, { "fc2", fc2 }
    };
    OK(fy_layer_sequential(5, children, &all));
    return all;
}

static run_t make_training(void)
{
    /* two batches of 25: shards of 6 and 7 samples; a batch norm takes no single one */
    const testing_t c = {
        .name = "faults", .model = "mlp", .optimizer = FY_OPTIMIZER_ADAM, .batch = SAMPLES / 2
    };
    const fy_optimizer_options_t optimizer = optimizer_of(&c);
    fy_model_options_t options = FY_MODEL_OPTIONS_INIT;
    run_t run = make_run(&c, 1);
    fy_optimizer_destroy(run.optimizer);
    fy_model_destroy(run.model);
    options.seed = 3;
    OK(fy_model_create(device, make_layers(), FY_DIMS(28, 28, 1), &options, &run.model));
    run.info = (fy_model_info_t)FY_MODEL_INFO_INIT;
    OK(fy_model_query(run.model, &run.info));
    OK(fy_optimizer_create_model(&optimizer, run.model, &run.optimizer));
    return run;
}

static fy_status_t on_sum_grads(void *user)
{
    if (++plan.calls == plan.moment && group.rank == plan.bad) {
        if (strcmp(plan.kind, "kill") == 0) raise(SIGKILL);
        if (strcmp(plan.kind, "stop") == 0) {
            raise(SIGSTOP);
            _exit(0);
        }
        if (strcmp(plan.kind, "differ") == 0) return fy_group_barrier(plan.group);
    }
    return plan.inner.sum_grads(user);
}

static fy_status_t train_with(run_t *run, const char *folder, int resume)
{
    fy_train_options_t options = FY_TRAIN_OPTIONS_INIT;
    fy_ddp_t *ddp;
    OK(fy_ddp_create(plan.group, run->model, NULL, &ddp));
    plan.inner = (fy_train_replicas_t)FY_TRAIN_REPLICAS_INIT;
    OK(fy_ddp_replicas(ddp, &plan.inner));
    fy_train_replicas_t replicas = plan.inner;
    replicas.backward = NULL; /* sum_grads makes the calls */
    replicas.sum_grads = on_sum_grads;
    options.epochs = 100;
    options.max_steps = STEPS;
    options.accumulate = 2;
    options.checkpoint = folder;
    options.checkpoint_every = folder ? EVERY : 0;
    options.resume = resume;
    options.log_every = 3;
    options.replicas = &replicas;
    const fy_status_t status =
        fy_train_run(run->model, run->optimizer, run->train, NULL, &options, &run->result);
    fy_ddp_destroy(ddp);
    return status;
}

static void check_equal(const fy_tensor_t *a, const fy_tensor_t *b)
{
    fy_tensor_info_t info = FY_TENSOR_INFO_INIT;
    OK(fy_tensor_query(a, &info));
    HOLDS(memcmp(fetch(a), fetch(b), info.nbytes) == 0);
}

static void resume(fy_group_t *g, const char *folder)
{
    run_t again = make_training(), whole = make_training();
    plan.group = g;
    plan.kind = "none";
    OK(train_with(&again, folder, 1));
    const int resumed = plan.calls;
    OK(train_with(&whole, NULL, 0));
    HOLDS(resumed < STEPS && again.result.steps == STEPS && whole.result.steps == STEPS);
    check_equal(again.info.values, whole.info.values);
    if (group.rank == 0) { /* the others have the statistics of their shards */
        check_equal(again.info.buffers, whole.info.buffers);
        printf("resumed from update %d of %d: the same bits\n", STEPS - resumed, STEPS);
    }
    free_run(&again);
    free_run(&whole);
}

typedef struct lost {
    int rank;      /* -1: all are left */
    pid_t process; /* 0: unknown */
} lost_t;

/* The rank and the moment; returns the exit status of a rank that is left. */
static int fail(fy_group_t *g, const char *kind, unsigned seed, const char *folder,
                lost_t *out_lost)
{
    const int differs = strcmp(kind, "differ") == 0;
    run_t run = make_training();
    plan.group = g;
    plan.kind = kind;
    plan.bad = (int)(seed % (unsigned)group.size);
    plan.moment = EVERY + 1 + (int)((seed * 2654435761u >> 16) % (STEPS - EVERY - 1));
    const fy_status_t status = train_with(&run, folder, 0);
    char want[32];
    snprintf(want, sizeof want, "rank %d ", plan.bad);
    printf("rank %d: %s\n", group.rank, fy_error_get()->text);
    fflush(stdout);
    HOLDS(status == (differs ? FY_STATUS_INVALID_ARGUMENT : FY_STATUS_RANK_LOST));
    HOLDS(strstr(fy_error_get()->text, want));
    /* an update since the last checkpoint, and rank 0 is left: it has written one */
    const int may_end = strcmp(kind, "kill") == 0 && strncmp(group.engine, "MPICH", 5) == 0;
    const int is_rescued = (plan.moment - 1) % EVERY != 0 && (differs || plan.bad != 0);
    if (!may_end)
        HOLDS(is_rescued == (strstr(fy_error_get()->text, "was written to") ||
                             strstr(fy_error_get()->text, "wrote a checkpoint of update")));
    const int has_last = (plan.moment - 1) % EVERY == 0; /* of --checkpoint-every */
    if (!may_end && !differs && plan.bad == 0 && !has_last)
        HOLDS(strstr(fy_error_get()->text, "Rank 0 is lost, and wrote no checkpoint"));
    const char *process = strstr(fy_error_get()->text, "process ");
    *out_lost = (lost_t){ differs ? -1 : plan.bad,
                          process ? (pid_t)atoi(process + strlen("process ")) : 0 };
    return differs ? DIFFERENT : LOST;
}

int main(int argc, char **argv)
{
    fy_scope_t scope;
    lost_t lost = { -1, 0 };
    int status = 0;
    HOLDS(argc == 4);
    fy_group_t *g = begin_rank(NULL, "sim:0", &scope);
    if (strcmp(argv[1], "resume") == 0)
        resume(g, argv[3]);
    else
        status = fail(g, argv[1], (unsigned)strtoul(argv[2], NULL, 10), argv[3], &lost);
    end_rank(g, scope);
    fflush(stdout);
    if (!status) return 0;
    leave_together(lost.rank);
    /* mpirun waits for a stopped rank */
    if (lost.process && group.rank == (lost.rank + 1) % group.size) kill(lost.process, SIGKILL);
    return status;
}
