/* Data-parallel training in one process while calls fail: replicas on two devices, whose sums are
 * made by peer copies; a training by fy_train_run that is one of two ranks, with whole and with
 * divided state. Its calls of the group are functions of this test. After each failure nothing
 * leaks, no half-written file is left, and the next run works. $FERRY_SWEEP=all: every call fails
 * once, else some of them. Not here: results (test_parallel.c), processes (tests/unit/dist/). */
#include "tests/unit/train/fixture.h"
#include "tests/support/host_memory.h"
#include "tests/support/sweep.h"

/* ---- replicas on two devices ---- */

enum { NELEM = 100, ROWS = 5, COLUMNS = 5 };

static void expect_all(const fy_tensor_t *tensor, float want)
{
    float values[NELEM];
    ts_read(tensor, values, sizeof values);
    for (int i = 0; i < NELEM; i++)
        if (values[i] != want) fail_msg("element %d is %g, not %g", i, values[i], want);
}

/* A sum for which memory is missing changes nothing. */
static fy_status_t sum(fy_device_t *const *devices)
{
    fy_tensor_t *x[2];
    for (int i = 0; i < 2; i++)
        FY_TRY(fy_full(devices[i], FY_DTYPE_F32, FY_DIMS(NELEM), i + 1, &x[i]));
    const fy_status_t status = fy_allreduce_sum(2, x);
    if (status != FY_STATUS_OUT_OF_MEMORY) return status; /* an allocation may still fail */
    const fy_error_t error = *fy_error_get();
    for (int i = 0; i < 2; i++) expect_all(x[i], (float)(i + 1));
    return fy_error_set(status, error.file, error.line, "%s", error.text);
}

static fy_status_t split(fy_tensor_t *x, fy_device_t *const *devices, fy_tensor_t **shards)
{
    shards[0] = shards[1] = x;
    const fy_status_t status = fy_batch_split(x, 2, devices, shards);
    if (status != FY_STATUS_OK) {
        assert_null(shards[0]);
        assert_null(shards[1]);
    }
    return status;
}

static fy_status_t backward(fy_model_t *model, fy_tensor_t *x)
{
    fy_tape_t *tape;
    fy_tensor_t *y, *square, *loss;
    FY_TRY(fy_tape_create(&tape));
    FY_TRY(fy_model_watch(model, tape));
    FY_TRY(fy_tape_begin(tape));
    FY_TRY(fy_model_forward(model, x, &y));
    FY_TRY(fy_mul(y, y, &square));
    FY_TRY(fy_sum(square, FY_ALL_AXES, 0, &loss));
    return fy_model_backward(model, tape, loss, NULL);
}

static fy_status_t step(fy_model_t *const *models, fy_device_t *const *devices)
{
    static float data[ROWS * COLUMNS] = { 1, 2, 3, 4, 5, 6, 7, 8 };
    fy_tensor_t *x, *shards[2], *grads[2];
    FY_TRY(fy_models_replicate(2, models));
    FY_TRY(fy_tensor_wrap(fy_device_host(), FY_DTYPE_F32, FY_DIMS(ROWS, COLUMNS), data, NULL, NULL,
                          &x));
    FY_TRY(split(x, devices, shards));
    for (int i = 0; i < 2; i++) {
        fy_model_info_t info = FY_MODEL_INFO_INIT;
        FY_TRY(backward(models[i], shards[i]));
        FY_TRY(fy_model_query(models[i], &info));
        grads[i] = info.grads;
    }
    FY_TRY(fy_allreduce_sum(2, grads));
    return fy_models_replicate_buffers(2, models);
}

static fy_status_t on_two(fy_device_t *const *devices)
{
    fy_model_t *models[2] = { NULL, NULL };
    fy_status_t status = sum(devices);
    for (int i = 0; i < 2 && status == FY_STATUS_OK; i++)
        status = fy_model_open(devices[i], "linear", NULL, &models[i]);
    if (status == FY_STATUS_OK) status = step(models, devices);
    for (int i = 0; i < 2; i++) fy_model_destroy(models[i]);
    return status;
}

static fy_status_t on_pair(fy_device_t *device, int is_second)
{
    fy_device_t *other;
    FY_TRY(fy_device_open("sim:8", &other));
    const fy_scope_t scope = fy_scope_begin("replicas");
    const fy_status_t status =
        on_two((fy_device_t *[]){ is_second ? other : device, is_second ? device : other });
    fy_scope_end(scope, 0, NULL);
    const fy_error_t error = *fy_error_get();
    (void)!fy_device_wait(other, FY_FOREVER);
    assert_int_equal(ts_live(other), 0);
    fy_device_close(other);
    return status == FY_STATUS_OK ? status
                                  : fy_error_set(status, error.file, error.line, "%s", error.text);
}

static fy_status_t replicas(fy_device_t *device) { return on_pair(device, 0); }
static fy_status_t replicas_behind(fy_device_t *device) { return on_pair(device, 1); }

/* ---- one rank of two ---- */

enum { SAMPLES = 12, BATCH = 4 };

typedef struct rank {
    int number;
    int64_t shards;
    parts_t parts;
    fy_model_info_t info;
} rank_t;

static fy_status_t on_begin(void *user, const char *text)
{
    (void)user;
    (void)text;
    return FY_STATUS_OK;
}

static fy_status_t on_nothing(void *user)
{
    (void)user;
    return FY_STATUS_OK;
}

/* As if the other rank had the same gradients. */
static fy_status_t on_sum_grads(void *user)
{
    const rank_t *rank = user;
    return fy_axpy(rank->info.grads, 1, rank->info.grads);
}

static fy_status_t on_sum(void *user, fy_tensor_t *tensor)
{
    (void)user;
    (void)tensor;
    return FY_STATUS_OK;
}

static fy_status_t on_clip_norm(void *user, double max_norm)
{
    const rank_t *rank = user;
    return fy_grads_clip_norm(1, &rank->info.grads, max_norm, NULL);
}

static fy_status_t on_collect(void *user, fy_tensor_t *part, fy_tensor_t *whole)
{
    const rank_t *rank = user;
    void *from, *to;
    FY_TRY(fy_tensor_map(part, FY_ACCESS_READ, &from));
    assert_int_equal(whole == NULL, rank->number > 0);
    if (!whole) return FY_STATUS_OK;
    FY_TRY(fy_tensor_map(whole, FY_ACCESS_READ_WRITE, &to));
    memcpy(to, from, ts_info(part).nbytes);
    return FY_STATUS_OK;
}

static fy_status_t make(fy_device_t *device, rank_t *rank)
{
    fy_loader_options_t batches = FY_LOADER_OPTIONS_INIT;
    parts_t *p = &rank->parts;
    batches.batch = BATCH;
    batches.rank = rank->number;
    batches.ranks = 2;
    fy_optimizer_options_t adam = optimizer_defaults(FY_OPTIMIZER_ADAM);
    FY_TRY(make_batches(device, SAMPLES, batches, p));
    FY_TRY(fy_model_open(device, "mnist2018", NULL, &p->model));
    FY_TRY(fy_model_query(p->model, &rank->info));
    if (!rank->shards) return fy_optimizer_create_model(&adam, p->model, &p->optimizer);
    const int64_t half = (int64_t)ts_info(rank->info.values).nelem / 2;
    const fy_optimizer_range_t ranges[] = { { 0, 64 }, { 64, half } };
    return fy_optimizer_create_ranges(&adam, p->model, 2, ranges, &p->optimizer);
}

static fy_status_t train(fy_device_t *device, rank_t *rank)
{
    fy_train_options_t options = FY_TRAIN_OPTIONS_INIT;
    const fy_train_replicas_t calls = { .struct_size = sizeof calls,
                                        .rank = rank->number,
                                        .ranks = 2,
                                        .user = rank,
                                        .begin = on_begin,
                                        .sum_grads = on_sum_grads,
                                        .sum = on_sum,
                                        .share_buffers = on_nothing,
                                        .shards_optimizer = rank->shards,
                                        .clip_norm = on_clip_norm,
                                        .share_values = on_nothing,
                                        .collect = on_collect };
    FY_TRY(make(device, rank));
    options.loss = FY_LOSS_NLL;
    options.checkpoint = folder;
    options.checkpoint_every = 2;
    options.keep = 1;
    options.log_every = 2;
    options.clip_norm = 1;
    options.replicas = &calls;
    const parts_t *p = &rank->parts;
    return fy_train_run(p->model, p->optimizer, p->train, p->test, &options, NULL);
}

enum { STEPS = SAMPLES / BATCH };

/* The checkpoints of rank 0, for which another rank waits. */
static void fill_folder(void)
{
    for (int step = 1; step <= STEPS; step++) {
        char name[32];
        snprintf(name, sizeof name, "step-%08d.safetensors", step);
        write_file(name, "", 0);
    }
}

/* Deletes the checkpoints; no other file is there. Returns how many there were. */
static int remove_checkpoints(void)
{
    DIR *listing = opendir(folder);
    assert_non_null(listing);
    for (const struct dirent *entry; (entry = readdir(listing));)
        if (entry->d_name[0] != '.' && strlen(entry->d_name) != strlen("step-00000000.safetensors"))
            fail_msg("%s is left", entry->d_name);
    closedir(listing);
    return empty_folder(folder);
}

static fy_status_t one_rank(fy_device_t *device, int number, int64_t shards)
{
    rank_t rank = { .number = number, .shards = shards, .info = FY_MODEL_INFO_INIT };
    const int files = ts_open_files();
    if (number > 0) fill_folder();
    const fy_scope_t scope = fy_scope_begin("rank");
    const fy_status_t status = train(device, &rank);
    const fy_error_t error = *fy_error_get();
    drop_parts(&rank.parts);
    fy_scope_end(scope, 0, NULL);
    assert_int_equal(ts_open_files(), files);
    const int count = remove_checkpoints();
    if (number > 0) assert_int_equal(count, STEPS);
    if (status == FY_STATUS_OK) {
        if (number == 0) assert_int_equal(count, 1);
        return status;
    }
    assert_true(error.text[0]);
    return fy_error_set(status, error.file, error.line, "%s", error.text);
}

static fy_status_t first(fy_device_t *device) { return one_rank(device, 0, 0); }
static fy_status_t second(fy_device_t *device) { return one_rank(device, 1, 0); }
static fy_status_t first_of_shards(fy_device_t *device) { return one_rank(device, 0, 1); }
static fy_status_t second_of_shards(fy_device_t *device) { return one_rank(device, 1, 1); }

/* ---- sweeps ---- */

static const ts_program_fn ranks[] = { first, second, first_of_shards, second_of_shards };
enum { RANKS = sizeof ranks / sizeof *ranks, MOST = 100000 };

TS_TEST(a_call_of_one_of_two_devices_fails)
{
    for (int i = 0; i < 2; i++) {
        const ts_program_fn program = i ? replicas_behind : replicas;
        ts_sweep_device_by("", "alloc", FY_STATUS_OUT_OF_MEMORY, MOST, 1, program);
        ts_sweep_device_by("", "launch", FY_STATUS_INTERNAL, MOST, 3, program);
        ts_sweep_device_by("", "copy", FY_STATUS_IO, MOST, 1, program);
    }
}

TS_TEST(host_memory_of_replicas_fails) { ts_sweep_host_memory_by("sim:7", MOST, 1, replicas); }

TS_TEST(a_call_of_a_rank_fails)
{
    for (int i = 0; i < RANKS; i++) {
        ts_sweep_device_by("", "alloc", FY_STATUS_OUT_OF_MEMORY, MOST, 11, ranks[i]);
        ts_sweep_device_by("", "launch", FY_STATUS_INTERNAL, MOST, 37, ranks[i]);
        ts_sweep_device_by("", "copy", FY_STATUS_IO, MOST, 1, ranks[i]);
    }
}

TS_TEST(host_memory_of_a_rank_fails)
{
    for (int i = 0; i < RANKS; i++) {
        ts_sweep_host_memory_by("host", MOST, 41, ranks[i]);
        ts_sweep_host_memory_by("sim:7", MOST, 23, ranks[i]);
    }
}

TS_SUITE(.begin = make_folder, .end = drop_empty_folder);
