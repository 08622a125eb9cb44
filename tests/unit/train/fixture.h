/* A folder for the files of a test, and facts of models, for the tests of this folder. Not a
 * test. */
#ifndef FERRY_TESTS_UNIT_TRAIN_FIXTURE_H_
#define FERRY_TESTS_UNIT_TRAIN_FIXTURE_H_

#include <dirent.h>
#include <unistd.h>

#include <ferry/train/train.h>

#include "tests/support/harness.h"

/* ---- files: make_folder is a suite's begin or set_up ---- */

static char folder[32];

static inline int make_folder(__attribute__((unused)) void **state)
{
    strcpy(folder, "/tmp/ferry-train-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

/* Deletes the files of the folder and returns how many there were. */
static inline int empty_folder(const char *path)
{
    char name[512];
    int count = 0;
    DIR *listing = opendir(path);
    assert_non_null(listing);
    for (const struct dirent *entry; (entry = readdir(listing));) {
        if (entry->d_name[0] == '.') continue;
        snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
        assert_int_equal(unlink(name), 0);
        count++;
    }
    closedir(listing);
    return count;
}

static inline int drop_folder(__attribute__((unused)) void **state)
{
    empty_folder(folder);
    return rmdir(folder);
}

/* Fails if a file was left. */
static inline int drop_empty_folder(__attribute__((unused)) void **state) { return rmdir(folder); }

/* One of 16 buffers of this thread. */
static inline const char *in_folder(const char *name)
{
    static __thread char paths[16][128];
    static __thread unsigned turn;
    char *path = paths[turn++ % 16];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static inline const char *write_file(const char *name, const void *bytes, size_t nbytes)
{
    const char *path = in_folder(name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, nbytes, file), nbytes);
    assert_int_equal(fclose(file), 0);
    return path;
}

static inline size_t read_file(const char *path, void *bytes, size_t room)
{
    FILE *file = fopen(path, "rb");
    if (!file) fail_msg("%s is not there", path);
    const size_t n = fread(bytes, 1, room, file);
    fclose(file);
    return n;
}

/* ---- a scope around each test, as a suite's set_up and tear_down ---- */

static fy_scope_t test_scope;

static inline int begin_scope(__attribute__((unused)) void **state)
{
    test_scope = fy_scope_begin("test");
    return 0;
}

static inline int end_scope(__attribute__((unused)) void **state)
{
    fy_scope_end(test_scope, 0, NULL);
    return 0;
}

/* ---- refusals as rows of a table ---- */

static inline const char *row_name(size_t row)
{
    static __thread char name[32];
    snprintf(name, sizeof name, "row %zu", row);
    return name;
}
/* As ts_fails_with, for a status from the table; prints the row's number. */
#define row_fails(row, expr, status, ...) \
    ts__fails((expr), (status), row_name(row), __FILE__, __LINE__, __VA_ARGS__, ts__end)

/* ---- models ---- */

static inline fy_model_info_t model_info(const fy_model_t *model)
{
    fy_model_info_t info = FY_MODEL_INFO_INIT;
    ts_ok(fy_model_query(model, &info));
    return info;
}

static inline fy_model_t *new_model(fy_device_t *device, fy_layer_t *layer, int rank,
                                    const int64_t *dims, const fy_model_options_t *options)
{
    fy_model_t *model;
    ts_ok(fy_model_create(device, layer, rank, dims, options, &model));
    return model;
}

/* One of the library's models: "mlp". */
static inline fy_model_t *known_model(fy_device_t *device, const char *name,
                                      const fy_model_options_t *options)
{
    fy_model_t *model;
    ts_ok(fy_model_open(device, name, options, &model));
    return model;
}

static inline fy_optimizer_options_t optimizer_defaults(fy_optimizer_kind_t kind)
{
    fy_optimizer_options_t options;
    fy_optimizer_defaults(kind, &options, sizeof options);
    return options;
}

static inline fy_param_t nth_param(const fy_model_t *model, size_t index)
{
    fy_param_t param = FY_PARAM_INIT;
    ts_ok(fy_model_param(model, index, &param));
    return param;
}

static inline fy_param_t find_param(const fy_model_t *model, const char *name)
{
    fy_param_t param = FY_PARAM_INIT;
    ts_ok(fy_model_find_param(model, name, &param));
    return param;
}

/* A tape of this scope, with the model's parameters. */
static inline fy_tape_t *watch(fy_model_t *model)
{
    fy_tape_t *tape;
    ts_ok(fy_tape_create(&tape));
    ts_ok(fy_model_watch(model, tape));
    return tape;
}

/* A batch for one of the library's models: noise and the classes 0, 1, ...; or tokens, and the same
 * as targets. */
static inline void model_batch(fy_device_t *device, const char *name, int64_t batch,
                               fy_tensor_t **out_x, fy_tensor_t **out_y)
{
    int64_t dims[FY_MAX_RANK + 1] = { batch };
    int rank;
    fy_tensor_t *rng, *draws;
    ts_ok(fy_model_sample_shape(name, &rank, dims + 1));
    ts_ok(fy_rng_create(device, 4, &rng));
    if (rank > 1) {
        ts_ok(fy_rand(rng, FY_DTYPE_F32, rank + 1, dims, -1, 1, out_x));
        ts_ok(fy_arange(device, FY_DTYPE_I64, 0, 1, batch, out_y));
        return;
    }
    ts_ok(fy_rand(rng, FY_DTYPE_F32, rank + 1, dims, 0, 10, &draws));
    ts_ok(fy_cast(draws, FY_DTYPE_I64, out_x));
    *out_y = *out_x;
}

/* ---- trainings on synthetic digits ---- */

typedef struct parts {
    fy_loader_t *train, *test;
    fy_model_t *model;
    fy_optimizer_t *optimizer;
} parts_t;

static inline fy_status_t make_batches(fy_device_t *device, uint64_t samples,
                                       fy_loader_options_t options, parts_t *parts)
{
    fy_dataset_t *set;
    options.scale = 1.0 / 255;
    FY_TRY(fy_dataset_synthetic_digits(samples, 1, &set));
    fy_status_t status = fy_loader_create(device, set, &options, &parts->train);
    if (status == FY_STATUS_OK) status = fy_loader_create(device, set, &options, &parts->test);
    fy_dataset_destroy(set);
    return status;
}

static inline void drop_parts(const parts_t *parts)
{
    fy_optimizer_destroy(parts->optimizer);
    fy_model_destroy(parts->model);
    fy_loader_destroy(parts->train);
    fy_loader_destroy(parts->test);
}

/* ---- the bits of tensors, to compare ---- */

typedef struct bits {
    char *bytes; /* the caller frees them */
    uint64_t nbytes;
} bits_t;

static inline void add_bytes(bits_t *bits, const void *bytes, uint64_t nbytes)
{
    bits->bytes = realloc(bits->bytes, bits->nbytes + nbytes + 1);
    assert_non_null(bits->bytes);
    memcpy(bits->bytes + bits->nbytes, bytes, nbytes);
    bits->nbytes += nbytes;
}

/* The tensor's bytes, in memory that the caller frees. */
static inline void *bytes_of(const fy_tensor_t *tensor)
{
    const uint64_t nbytes = ts_info(tensor).nbytes;
    void *bytes = malloc(nbytes + 1);
    assert_non_null(bytes);
    ts_read(tensor, bytes, nbytes);
    return bytes;
}

static inline void add_tensor(bits_t *bits, const fy_tensor_t *tensor)
{
    if (!tensor) return;
    void *bytes = bytes_of(tensor);
    add_bytes(bits, bytes, ts_info(tensor).nbytes);
    free(bytes);
}

/* What a training changes in a model and, if it is not NULL, in an optimizer; without gradients. */
static inline bits_t bits_of(const fy_model_t *model, const fy_optimizer_t *optimizer)
{
    const fy_model_info_t info = model_info(model);
    bits_t bits = { 0 };
    const char *name = NULL;
    fy_tensor_t *state;
    add_tensor(&bits, info.values);
    add_tensor(&bits, info.buffers);
    add_tensor(&bits, info.rng);
    if (optimizer) fy_optimizer_state(optimizer, 0, &name, &state);
    for (size_t i = 1; name; i++) {
        add_tensor(&bits, state);
        fy_optimizer_state(optimizer, i, &name, &state);
    }
    return bits;
}

static inline int has_same_bits(const bits_t *a, const bits_t *b)
{
    return a->nbytes == b->nbytes && (!a->nbytes || memcmp(a->bytes, b->bytes, a->nbytes) == 0);
}

/* Frees `got`. */
static inline void expect_bits(bits_t got, const bits_t *want)
{
    assert_int_equal(got.nbytes, want->nbytes);
    assert_memory_equal(got.bytes, want->bytes, got.nbytes);
    free(got.bytes);
}

#endif
