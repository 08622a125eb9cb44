/* The checkpoint of a training of several ranks that fails: one rank, whose calls of the group are
 * functions of this test. A checkpoint that failed is written by the rescue; the other ranks report
 * what they have seen. Not here: ranks that are lost (tests/unit/dist/test_faults.sh). */
#include <stdbool.h>
#include <pthread.h>
#include <sys/stat.h>
#include <time.h>

#include "tests/unit/train/fixture.h"
#include "tests/support/host_memory.h"

enum { SAMPLES = 24, BATCH = 6, EVERY = 2 };

static const char *path_of(int step)
{
    char name[32];
    snprintf(name, sizeof name, "step-%08d.safetensors", step);
    return in_folder(name);
}

static bool exists(int step) { return access(path_of(step), F_OK) == 0; }

/* A temporary file that is left fails the suite's end. */
static void remove_files(void)
{
    for (int step = 0; step < 10; step++) (void)unlink(path_of(step));
}

/* ---- a rank ---- */

typedef struct rank {
    int number, lost_at, calls; /* sum_grads fails at this call, from 1; 0: at none */
    int arms_at, left;          /* after update arms_at, allocation `left` fails: host_memory.h */
    void (*at_loss)(void);      /* just before sum_grads fails; NULL: nothing */
    int lost;                   /* 1: rank 0 is known to be lost */
    int64_t step;               /* of the last event */
    parts_t parts;
    char text[1024];
} rank_t;

static fy_status_t on_begin(void *user, const char *text)
{
    (void)user;
    assert_true(text[0]);
    return FY_STATUS_OK;
}

static fy_status_t on_sum_grads(void *user)
{
    rank_t *rank = user;
    if (++rank->calls != rank->lost_at) return FY_STATUS_OK;
    if (rank->at_loss) rank->at_loss();
    if (rank->arms_at == rank->calls) ts_fail_allocation(rank->left);
    return fy_error_set(FY_STATUS_RANK_LOST, __FILE__, __LINE__, "rank 9 took no part");
}

static fy_status_t on_sum(void *user, fy_tensor_t *tensor)
{
    (void)user;
    (void)tensor;
    return FY_STATUS_OK;
}

static fy_status_t on_share_buffers(void *user)
{
    (void)user;
    return FY_STATUS_OK;
}

static int is_lost(void *user, int rank)
{
    const rank_t *self = user;
    assert_int_equal(rank, 0);
    return self->lost;
}

static fy_status_t on_event(void *user, const fy_train_event_t *event)
{
    rank_t *rank = user;
    rank->step = event->step;
    if (!rank->lost_at && event->step == rank->arms_at) ts_fail_allocation(rank->left);
    return FY_STATUS_OK;
}

static void make(rank_t *rank, fy_device_t *device)
{
    fy_loader_options_t batches = FY_LOADER_OPTIONS_INIT;
    fy_optimizer_options_t optimizer = FY_OPTIMIZER_OPTIONS_INIT;
    parts_t *p = &rank->parts;
    optimizer.lr = 0.1;
    batches.batch = BATCH;
    batches.rank = rank->number;
    batches.ranks = 2;
    ts_ok(make_batches(device, SAMPLES, batches, p));
    ts_ok(fy_model_open(device, "mlp", NULL, &p->model));
    ts_ok(fy_optimizer_create_model(&optimizer, p->model, &p->optimizer));
}

/* `rank` has number and faults; *out_failed: the armed allocation has failed. */
static fy_status_t train(rank_t *rank, fy_device_t *device, bool *out_failed)
{
    fy_train_options_t options = FY_TRAIN_OPTIONS_INIT;
    const fy_train_replicas_t replicas = { .struct_size = sizeof replicas,
                                           .rank = rank->number,
                                           .ranks = 2,
                                           .user = rank,
                                           .begin = on_begin,
                                           .sum_grads = on_sum_grads,
                                           .sum = on_sum,
                                           .share_buffers = on_share_buffers,
                                           .is_lost = is_lost };
    make(rank, device);
    options.epochs = 10;
    options.max_steps = 5;
    options.checkpoint = folder;
    options.checkpoint_every = EVERY;
    options.replicas = &replicas;
    options.on_event = on_event;
    options.user = rank;
    const parts_t *p = &rank->parts;
    const fy_status_t status = fy_train_run(p->model, p->optimizer, p->train, NULL, &options, NULL);
    *out_failed = rank->left >= 0 && ts_allocation_failed();
    ts_fail_allocation(-1);
    if (status != FY_STATUS_OK) snprintf(rank->text, sizeof rank->text, "%s", fy_error_get()->text);
    return status;
}

static bool has(const rank_t *rank, const char *text) { return strstr(rank->text, text) != NULL; }

/* ---- rank 0 ---- */

static void check_file(rank_t *rank, fy_device_t *device, int step)
{
    fy_progress_t progress = FY_PROGRESS_INIT;
    fy_model_t *model = known_model(device, "mlp", NULL);
    ts_ok(fy_checkpoint_load(path_of(step), model, NULL, &progress));
    assert_int_equal(progress.step, step);
    void *want = bytes_of(model_info(rank->parts.model).values);
    ts_expect_f32(model_info(model).values, want, ts_info(model_info(model).values).nelem);
    free(want);
    fy_model_destroy(model);
}

/* An allocation behind an update fails once. If the training fails with it, the rescue writes the
 * checkpoint of that update, whichever call it was. */
TS_TEST(a_checkpoint_that_failed_is_written_by_the_rescue)
{
    fy_device_t *device;
    int rescues = 0;
    ts_ok(fy_device_open("sim:3", &device));
    for (int left = 0, done = 0; !done; left++) {
        rank_t rank = { .arms_at = EVERY, .left = left };
        bool failed;
        assert_in_range(left, 0, 2000);
        const fy_scope_t scope = fy_scope_begin("rank");
        const fy_status_t status = train(&rank, device, &failed);
        done = !failed;
        if (status != FY_STATUS_OK) {
            assert_int_equal(status, FY_STATUS_OUT_OF_MEMORY);
            if (!exists((int)rank.step)) fail_msg("allocation %d: %s", left, rank.text);
            if (rank.step == EVERY && has(&rank, "checkpoint of update")) {
                rescues++;
                check_file(&rank, device, EVERY);
            }
        }
        drop_parts(&rank.parts);
        fy_scope_end(scope, 0, NULL);
        remove_files();
    }
    fy_device_close(device);
    print_message("%d checkpoints were written by the rescue\n", rescues);
    assert_true(rescues > 3);
}

/* ---- the other ranks ---- */

/* The file is there. A rank that has no memory for its name reports no missing file. */
TS_TEST(a_rank_that_cannot_look_says_so)
{
    fy_device_t *device;
    int unknown = 0;
    ts_ok(fy_device_open("sim:3", &device));
    for (int left = 0, done = 0; !done; left++) {
        rank_t rank = { .number = 1, .lost_at = 4, .arms_at = 4, .left = left };
        bool failed;
        FILE *file = fopen(path_of(3), "w");
        assert_non_null(file);
        fclose(file);
        assert_in_range(left, 0, 200);
        const fy_scope_t scope = fy_scope_begin("rank");
        assert_int_equal(train(&rank, device, &failed), FY_STATUS_RANK_LOST);
        done = !failed;
        const bool is_unknown = has(&rank, "This rank could not look for a checkpoint of update 3");
        if (!is_unknown && !has(&rank, "Rank 0 wrote a checkpoint of update 3"))
            fail_msg("allocation %d: %s", left, rank.text);
        unknown += is_unknown;
        drop_parts(&rank.parts);
        fy_scope_end(scope, 0, NULL);
    }
    remove_files();
    fy_device_close(device);
    assert_true(unknown > 0);
}

static void *write_late(void *user)
{
    const struct timespec pause = { .tv_nsec = 200000000 };
    (void)user;
    nanosleep(&pause, NULL);
    FILE *file = fopen(path_of(EVERY), "w");
    if (file) fclose(file);
    return NULL;
}

static pthread_t writer;
static void write_soon(void) { (void)!pthread_create(&writer, NULL, write_late, NULL); }

/* Rank 0 still writes an ordinary checkpoint when this rank fails. */
TS_TEST(a_rank_waits_for_an_ordinary_checkpoint)
{
    fy_device_t *device;
    bool failed;
    ts_ok(fy_device_open("sim:3", &device));
    for (int is_late = 0; is_late < 2; is_late++) {
        rank_t rank = { .number = 1, .lost_at = EVERY + 1, .left = -1 };
        if (is_late)
            rank.at_loss = write_soon;
        else
            write_late(NULL);
        const fy_scope_t scope = fy_scope_begin("rank");
        assert_int_equal(train(&rank, device, &failed), FY_STATUS_RANK_LOST);
        if (is_late) pthread_join(writer, NULL);
        assert_true(exists(EVERY));
        if (is_late != has(&rank, "Rank 0 wrote a checkpoint of update 2"))
            fail_msg("%s", rank.text);
        drop_parts(&rank.parts);
        fy_scope_end(scope, 0, NULL);
        remove_files();
    }
    fy_device_close(device);
}

/* Its text names no time. */
TS_TEST(a_rank_does_not_wait_for_a_lost_rank_0)
{
    fy_device_t *device;
    rank_t rank = { .number = 1, .lost_at = EVERY + 1, .left = -1, .lost = 1 };
    bool failed;
    ts_ok(fy_device_open("sim:3", &device));
    const fy_scope_t scope = fy_scope_begin("rank");
    assert_int_equal(train(&rank, device, &failed), FY_STATUS_RANK_LOST);
    if (!has(&rank, "Rank 0 is lost, and wrote no checkpoint of update 2 to ") ||
        has(&rank, "within"))
        fail_msg("%s", rank.text);
    drop_parts(&rank.parts);
    fy_scope_end(scope, 0, NULL);
    fy_device_close(device);
}

static void replace_folder(void)
{
    (void)!rmdir(folder);
    FILE *file = fopen(folder, "w");
    if (file) fclose(file);
}

TS_TEST(a_folder_that_cannot_be_read_is_reported)
{
    fy_device_t *device;
    rank_t rank = { .number = 1, .lost_at = 2, .left = -1, .at_loss = replace_folder };
    bool failed;
    ts_ok(fy_device_open("sim:3", &device));
    const fy_scope_t scope = fy_scope_begin("rank");
    assert_int_equal(train(&rank, device, &failed), FY_STATUS_RANK_LOST);
    if (!has(&rank, "could not look for a checkpoint of update 1") ||
        !has(&rank, "Not a directory"))
        fail_msg("%s", rank.text);
    drop_parts(&rank.parts);
    fy_scope_end(scope, 0, NULL);
    fy_device_close(device);
    assert_int_equal(unlink(folder), 0);
    assert_int_equal(mkdir(folder, 0700), 0);
}

TS_SUITE(.begin = make_folder, .end = drop_empty_folder);
