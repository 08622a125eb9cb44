/* Trainings on two ranks in one process: with divided optimizer state (ZeRO-1), and with whole
 * state and sums during the backward. Each message, poll, allocation, copy and launch of one rank
 * fails. That rank reports it; the other one reports a lost rank or has finished. Nothing leaks,
 * and no half-written checkpoint is left. A finished training has the bits of one without faults.
 * $FERRY_SWEEP=all: every call fails once, else some of them.
 * Not here: results and traffic (test_shards.sh), the calls of a group (test_group.c). */
#include <dirent.h>
#include <unistd.h>

#include <ferry/dist_train.h>
#include <ferry/train/train.h>

#include "tests/support/sweep.h"
#include "tests/unit/dist/seats.h"
#include "tests/support/test.h"

enum { SIZE = 2, SAMPLES = 8, BATCH = 4, STEPS = 2, FEATURES = 12, CLASSES = 3 };

static char folder[] = "/tmp/ferry-shard-faults-XXXXXX";
/* Of the parameters at the end of each rank's program; 0: it did not come so far. */
static uint64_t digests[SIZE];

/* ---- the training ---- */

typedef struct plan {
    uint64_t bucket_nbytes;
    int64_t steps;
    int resume, is_whole; /* is_whole: each rank has all state, and no checkpoint is written */
} plan_t;

enum { ONE_BUCKET, BUCKETS, RESUMED, WHOLE_STATE, TRAININGS, ONE_STEP = TRAININGS };
static const plan_t plans[] = {
    [ONE_BUCKET] = { 1 << 20, STEPS, 0, 0 },
    /* One for each parameter: some have fewer elements than equal parts take. */
    [BUCKETS] = { 1, STEPS, 0, 0 },
    [RESUMED] = { 1 << 20, STEPS, 1, 0 }, /* both ranks divide the state of the file */
    /* Sums run during the backward, in a bucket for each parameter. */
    [WHOLE_STATE] = { 1, STEPS, 0, 1 },
    [ONE_STEP] = { 1 << 20, 1, 0, 0 },
};
static const plan_t *plan; /* of the present run */

typedef struct training {
    fy_dataset_t *set;
    fy_loader_t *loader;
    fy_model_t *model;
    fy_ddp_t *ddp;
    fy_optimizer_t *optimizer;
} training_t;

static fy_status_t make_set(fy_dataset_t **out_set)
{
    float data[SAMPLES * FEATURES];
    int32_t labels[SAMPLES];
    fy_dataset_info_t info = FY_DATASET_INFO_INIT;
    for (int i = 0; i < SAMPLES * FEATURES; i++) data[i] = (float)(i * 37 % 11) / 11.0f;
    for (int i = 0; i < SAMPLES; i++) labels[i] = i % CLASSES;
    info.samples = SAMPLES;
    info.rank = 1;
    info.dims[0] = FEATURES;
    info.dtype = FY_DTYPE_F32;
    info.classes = CLASSES;
    return fy_dataset_create(&info, data, labels, out_set);
}

/* 259 parameters: a part of 128 for each rank, and three that remain. */
static fy_status_t make_model(fy_device_t *device, int rank, fy_model_t **out_model)
{
    fy_model_options_t options = FY_MODEL_OPTIONS_INIT;
    fy_layer_t *first = NULL, *norm = NULL, *second = NULL, *all;
    options.seed = rank + 1; /* other values, until they are rank 0's */
    (void)!fy_layer_linear(FEATURES, 16, NULL, &first);
    (void)!fy_layer_batch_norm(16, NULL, &norm);
    (void)!fy_layer_linear(16, CLASSES, NULL, &second);
    const fy_layer_child_t children[] = { { "fc1", first }, { "norm", norm }, { "fc2", second } };
    FY_TRY(fy_layer_sequential(3, children, &all));
    return fy_model_create(device, all, FY_DIMS(FEATURES), &options, out_model);
}

static fy_status_t make(fy_group_t *group, fy_device_t *device, training_t *t)
{
    const int rank = group->transport.rank;
    fy_loader_options_t batches = FY_LOADER_OPTIONS_INIT;
    fy_ddp_options_t options = FY_DDP_OPTIONS_INIT;
    fy_optimizer_options_t adam;
    batches.batch = BATCH;
    batches.rank = rank;
    batches.ranks = SIZE;
    options.shard_optimizer = !plan->is_whole;
    options.first_bucket_nbytes = options.bucket_nbytes = plan->bucket_nbytes;
    fy_optimizer_defaults(FY_OPTIMIZER_ADAM, &adam, sizeof adam);
    FY_TRY(make_set(&t->set));
    FY_TRY(fy_loader_create(device, t->set, &batches, &t->loader));
    FY_TRY(make_model(device, rank, &t->model));
    FY_TRY(fy_ddp_create(group, t->model, &options, &t->ddp));
    return fy_ddp_create_optimizer(t->ddp, &adam, &t->optimizer);
}

/* FNV-1a of the parameters. */
static fy_status_t digest(const fy_model_t *model, uint64_t *out_digest)
{
    fy_model_info_t info = FY_MODEL_INFO_INIT;
    fy_tensor_info_t values = FY_TENSOR_INFO_INIT;
    fy_download_t *download;
    fy_tensor_t *host;
    void *data;
    FY_TRY(fy_model_query(model, &info));
    FY_TRY(fy_tensor_query(info.values, &values));
    FY_TRY(fy_tensor_download(info.values, NULL, &download));
    FY_TRY(fy_download_wait(download, FY_FOREVER, &host));
    FY_TRY(fy_tensor_map(host, FY_ACCESS_READ, &data));
    uint64_t hash = 14695981039346656037u;
    for (size_t i = 0; i < values.nbytes; i++)
        hash = (hash ^ ((const unsigned char *)data)[i]) * 1099511628211u;
    *out_digest = hash;
    return FY_STATUS_OK;
}

static fy_status_t train(training_t *t)
{
    fy_train_options_t options = FY_TRAIN_OPTIONS_INIT;
    fy_train_replicas_t replicas = FY_TRAIN_REPLICAS_INIT;
    FY_TRY(fy_ddp_replicas(t->ddp, &replicas));
    options.clip_norm = 0.5;
    options.checkpoint = plan->is_whole ? NULL : folder;
    options.keep = 1;
    options.max_steps = plan->steps;
    options.resume = plan->resume;
    options.replicas = &replicas;
    return fy_train_run(t->model, t->optimizer, t->loader, t->loader, &options, NULL);
}

static fy_status_t program(fy_group_t *group, fy_device_t *device)
{
    training_t t = { NULL };
    const int rank = group->transport.rank;
    digests[rank] = 0;
    fy_status_t status = make(group, device, &t);
    if (status == FY_STATUS_OK) status = train(&t);
    if (status == FY_STATUS_OK) status = digest(t.model, &digests[rank]);
    const fy_error_t error = *fy_error_get();
    fy_optimizer_destroy(t.optimizer);
    fy_ddp_destroy(t.ddp);
    fy_model_destroy(t.model);
    fy_loader_destroy(t.loader);
    fy_dataset_destroy(t.set);
    return status == FY_STATUS_OK ? status
                                  : fy_error_set(status, error.file, error.line, "%s", error.text);
}

/* The checkpoint from which RESUMED goes on: of the first update of ONE_BUCKET. */
static char *first_checkpoint;
static size_t first_nbytes;

/* ---- one run ---- */

/* Deletes the checkpoints, which are whole; no other file is there. Returns how many there were. */
static int empty_folder(void)
{
    DIR *listing = opendir(folder);
    int count = 0;
    assert_non_null(listing);
    for (const struct dirent *entry; (entry = readdir(listing));) {
        char path[512];
        fy_safetensors_t *file;
        if (entry->d_name[0] == '.') continue;
        if (strlen(entry->d_name) != strlen("step-00000000.safetensors"))
            fail_msg("%s is left", entry->d_name);
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        ts_ok(fy_safetensors_open(path, &file));
        fy_safetensors_close(file);
        assert_int_equal(unlink(path), 0);
        count++;
    }
    closedir(listing);
    return count;
}

static const char *first_path(void)
{
    static char path[96];
    snprintf(path, sizeof path, "%s/step-00000001.safetensors", folder);
    return path;
}

static void read_first(const char *const *specs)
{
    seat_t seats[RANKS];
    plan = &plans[ONE_STEP];
    (void)run(SIZE, specs, program, no_faults, seats);
    ts_ok(seats[0].status);
    FILE *file = fopen(first_path(), "rb");
    assert_non_null(file);
    free(first_checkpoint);
    first_checkpoint = malloc(1 << 16);
    assert_non_null(first_checkpoint);
    first_nbytes = fread(first_checkpoint, 1, 1 << 16, file);
    assert_in_range(first_nbytes, 1000, (1 << 16) - 1);
    fclose(file);
    (void)empty_folder();
}

static void run_one(int training, const char *const *specs, seat_t faults, seat_t *seats)
{
    if (training == RESUMED) {
        FILE *file = fopen(first_path(), "wb");
        assert_non_null(file);
        assert_int_equal(fwrite(first_checkpoint, 1, first_nbytes, file), first_nbytes);
        assert_int_equal(fclose(file), 0);
    }
    plan = &plans[training];
    (void)run(SIZE, specs, program, faults, seats);
}

static uint64_t whole_run(int training, const char *const *specs)
{
    seat_t seats[RANKS];
    if (training == RESUMED) read_first(specs);
    run_one(training, specs, no_faults, seats);
    for (int r = 0; r < SIZE; r++)
        if (seats[r].status != FY_STATUS_OK) fail_msg("rank %d: %s", r, seats[r].text);
    assert_int_equal(empty_folder(), training != WHOLE_STATE);
    assert_true(digests[0] != 0 && digests[0] == digests[1]);
    return digests[0];
}

typedef struct sweep {
    int training;
    const char *const *specs;
    int faulty; /* the rank that has the faults */
    fy_status_t want;
    uint64_t digest; /* of a run without faults */
    int n;           /* of the fault, for texts */
} sweep_t;

/* Returns whether the faulty rank has met its fault. */
static bool fails_well(const sweep_t *sweep, seat_t faults)
{
    seat_t seats[RANKS];
    faults.faulty = SIZE - 1 - sweep->faulty;
    faults.exits = true;
    run_one(sweep->training, sweep->specs, faults, seats);
    const seat_t *faulty = &seats[sweep->faulty], *other = &seats[1 - sweep->faulty];
    const bool is_message = faulty->status == FY_STATUS_IO && /* the transport had no memory */
                            strstr(faulty->text, "no memory for a message");
    if (faulty->status != FY_STATUS_OK && faulty->status != sweep->want && !is_message)
        fail_msg("rank %d, fault %d: %s: %s", sweep->faulty, sweep->n,
                 fy_status_name(faulty->status), faulty->text);
    if (other->status != FY_STATUS_OK && other->status != FY_STATUS_IO &&
        other->status != FY_STATUS_RANK_LOST)
        fail_msg("rank %d has fault %d, the other rank: %s: %s", sweep->faulty, sweep->n,
                 fy_status_name(other->status), other->text);
    for (int r = 0; r < SIZE; r++) {
        if (seats[r].status == FY_STATUS_OK && digests[r] != sweep->digest)
            fail_msg("rank %d has fault %d: rank %d has other parameters", sweep->faulty, sweep->n,
                     r);
        if (seats[r].status != FY_STATUS_OK && !seats[r].text[0])
            fail_msg("rank %d has fault %d: rank %d has no text", sweep->faulty, sweep->n, r);
    }
    const int count = empty_folder();
    if (seats[0].status == FY_STATUS_OK) assert_int_equal(count, sweep->training != WHOLE_STATE);
    return faulty->failed || faulty->status != FY_STATUS_OK;
}

static sweep_t begin_sweep(int training, const char *const *specs, int faulty, fy_status_t want)
{
    sweep_t sweep = { .training = training, .specs = specs, .faulty = faulty, .want = want };
    sweep.digest = whole_run(sweep.training, specs);
    return sweep;
}

/* ---- tests ---- */

TS_TEST(a_resumed_training_has_the_same_bits)
{
    assert_true(whole_run(RESUMED, hosts) == whole_run(ONE_BUCKET, hosts));
}

TS_TEST(a_message_fails)
{
    for (int t = 0; t < TRAININGS; t++)
        for (int faulty = 0; faulty < SIZE; faulty++) {
            sweep_t sweep = begin_sweep(t, hosts, faulty, FY_STATUS_IO);
            seat_t faults = no_faults;
            for (sweep.n = 1; faults.port.posts = sweep.n, fails_well(&sweep, faults);
                 sweep.n = ts_sweep_next(sweep.n, 23))
                assert_in_range(sweep.n, 1, 5000);
            assert_true(sweep.n > 20);
        }
}

/* Polls are many, and their number depends on the threads. */
TS_TEST(a_poll_fails)
{
    for (int faulty = 0; faulty < SIZE; faulty++) {
        sweep_t sweep = begin_sweep(0, hosts, faulty, FY_STATUS_IO);
        seat_t faults = no_faults;
        for (sweep.n = 1; faults.port.tests = sweep.n, fails_well(&sweep, faults);
             sweep.n += 1 + sweep.n / (getenv("FERRY_SWEEP") ? 20 : 3))
            assert_in_range(sweep.n, 1, 1000000);
        assert_true(sweep.n > 5);
    }
}

static void sweep_allocations(int training, const char *const *specs, int faulty, int stride)
{
    sweep_t sweep = begin_sweep(training, specs, faulty, FY_STATUS_OUT_OF_MEMORY);
    seat_t faults = no_faults;
    for (sweep.n = 0; faults.allocations = sweep.n, fails_well(&sweep, faults);
         sweep.n = ts_sweep_next(sweep.n, stride))
        assert_in_range(sweep.n, 0, 20000);
    assert_true(sweep.n > 100);
}

TS_TEST(an_allocation_fails)
{
    for (int faulty = 0; faulty < SIZE; faulty++) {
        sweep_allocations(0, hosts, faulty, 31);
        sweep_allocations(0, sims, faulty, 37);
        sweep_allocations(1, sims, faulty, 61);
        sweep_allocations(2, sims, faulty, 61);
        sweep_allocations(3, hosts, faulty, 47);
        sweep_allocations(3, sims, faulty, 47);
    }
}

TS_TEST(a_call_of_the_device_fails)
{
    static const struct {
        const char *item;
        fy_status_t want;
        int stride;
    } kinds[] = { { "alloc@%d*", FY_STATUS_OUT_OF_MEMORY, 7 }, /* one refusal can be absorbed */
                  { "pin@%d*", FY_STATUS_PINNED_LIMIT, 7 },
                  { "copy@%d", FY_STATUS_IO, 7 },
                  { "launch@%d", FY_STATUS_INTERNAL, 23 } };
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (int i = 0; i < 2 * SIZE; i++) {
            const int faulty = i / 2;
            char spec[48];
            const char *specs[] = { "sim:4", "sim:5" };
            sweep_t sweep = begin_sweep(i % 2 ? 3 : 0, specs, faulty, kinds[k].want);
            specs[faulty] = spec;
            int met = 0;
            sweep.n = 1;
            for (bool failed = true; failed; sweep.n = ts_sweep_next(sweep.n, kinds[k].stride)) {
                fy_device_t *device;
                assert_in_range(sweep.n, 1, 5000);
                strcpy(spec, "sim:9?faults=");
                snprintf(spec + strlen(spec), sizeof spec - strlen(spec), kinds[k].item, sweep.n);
                if (fy_device_open(spec, &device) != FY_STATUS_OK) continue;
                fy_device_close(device);
                failed = fails_well(&sweep, no_faults);
                met += failed;
            }
            if (!met) fail_msg("%s met no fault", kinds[k].item);
        }
}

static int begin(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int end(void **state)
{
    (void)state;
    free(first_checkpoint);
    return rmdir(folder);
}

TS_SUITE(.begin = begin, .end = end);
