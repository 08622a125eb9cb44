/* Buffers of models: a layer with a running mean, trained, evaluated, saved, resumed and
 * replicated; and each allocation of a layer, a model and its files fails once. Buffers have no
 * gradient and no optimizer changes them. */
#include "tests/unit/train/fixture.h"
#include "tests/unit/train/layers.h"
#include "tests/support/sweep.h"

enum { WIDTH = 3 };

static fy_status_t keep_shape(void *user, int rank, const int64_t *dims, int *out_rank,
                              int64_t *out_dims, uint64_t *out_macs)
{
    (void)user;
    *out_rank = rank;
    memcpy(out_dims, dims, (size_t)rank * sizeof *dims);
    *out_macs = 0;
    return FY_STATUS_OK;
}
/* Training: y = x - mean(x), running += (mean(x) - running) / 2, seen += 1. Evaluation: y = x -
 * running. */
static fy_status_t center(void *user, const fy_pass_t *pass, fy_tensor_t *const *params,
                          fy_tensor_t *x, fy_tensor_t **out_y)
{
    fy_tensor_t *shift = params[0], *running = params[1], *seen = params[2];
    fy_tensor_t *mean = running, *change, *next, *centered;
    (void)user;
    if (pass->is_training) {
        FY_TRY(fy_mean(x, 1, (int[]){ 0 }, 0, &mean));
        FY_TRY(fy_sub(mean, running, &change));
        FY_TRY(fy_axpy(running, 0.5, change));
        FY_TRY(fy_affine(seen, 1, 1, &next));
        FY_TRY(fy_copy(seen, next));
    }
    FY_TRY(fy_sub(x, mean, &centered));
    return fy_add(centered, shift, out_y);
}

static fy_layer_t *center_layer(void)
{
    static const fy_layer_param_t shift = { "shift", 1, { WIDTH }, 0, 0, { FY_INIT_CONSTANT, 0 } };
    static const fy_layer_param_t buffers[] = {
        { "running", 1, { WIDTH }, 0, 0, { FY_INIT_CONSTANT, 1 } },
        { "seen", 1, { 1 }, 0, 0, { FY_INIT_CONSTANT, 0 } },
    };
    fy_layer_def_t def = FY_LAYER_DEF_INIT;
    def.type = "center";
    def.nparams = 1;
    def.params = &shift;
    def.nbuffers = 2;
    def.buffers = buffers;
    def.shape = keep_shape;
    def.forward = center;
    fy_layer_t *layer;
    const fy_status_t status = fy_layer_create(&def, NULL, &layer);
    assert_true(status == FY_STATUS_OK || status == FY_STATUS_OUT_OF_MEMORY);
    return layer;
}

/* center, linear, center: the second one's parameters and buffers lie behind others. */
static fy_status_t try_model(fy_device_t *device, int64_t seed, fy_model_t **out_model)
{
    fy_model_options_t options = FY_MODEL_OPTIONS_INIT;
    options.seed = seed;
    *out_model = NULL;
    fy_layer_t *all = SEQUENCE(center_layer(), fc(WIDTH, WIDTH), center_layer());
    if (!all) return FY_STATUS_OUT_OF_MEMORY; /* of a maker */
    return fy_model_create(device, all, FY_DIMS(WIDTH), &options, out_model);
}

static fy_model_t *make_model(fy_device_t *device, int64_t seed)
{
    fy_model_t *model;
    ts_ok(try_model(device, seed, &model));
    return model;
}

static fy_tensor_t *find(const fy_model_t *model, const char *name)
{
    return find_param(model, name).value;
}

static fy_tensor_t *batch(fy_device_t *device)
{
    return ts_f32(device, FY_DIMS(2, WIDTH), (float[]){ 1, 2, 3, 3, 6, 9 });
}

TS_DEVICE_TEST(test_facts)
{
    fy_model_t *model = make_model(ctx->device, 1);
    const fy_model_info_t info = model_info(model);
    fy_param_t buffer = FY_PARAM_INIT;
    char table[2048];
    assert_int_equal(info.nparams, 4);
    assert_int_equal(info.params, WIDTH * WIDTH + 3 * WIDTH);
    assert_int_equal(info.nbuffers, 4);
    assert_int_equal(info.buffers_nbytes, 2 * (WIDTH + 1) * sizeof(float));
    assert_int_equal(ts_info(info.buffers).nelem, 64); /* four, each at a multiple of 16 */
    ts_ok(fy_model_buffer(model, 3, &buffer));
    assert_string_equal(buffer.name, "c.seen");
    assert_null(buffer.grad);
    ts_ok(fy_model_buffer(model, 0, &buffer));
    assert_string_equal(buffer.name, "a.running");
    ts_expect_f32(buffer.value, (float[]){ 1, 1, 1 }, WIDTH);
    ts_fails_with(fy_model_buffer(model, 4, &buffer), INVALID_ARGUMENT, "buffer 4");
    ts_fails(fy_model_buffer(NULL, 0, &buffer), INVALID_ARGUMENT);
    fy_model_describe(model, table, sizeof table);
    assert_non_null(strstr(table, "buffers"));
    fy_model_destroy(model);

    fy_model_t *plain = known_model(ctx->device, "linear", NULL);
    assert_null(model_info(plain).buffers);
    assert_int_equal(model_info(plain).nbuffers, 0);
    fy_model_describe(plain, table, sizeof table);
    assert_null(strstr(table, "buffers"));
    fy_model_destroy(plain);
}

TS_DEVICE_TEST(test_training_and_evaluation)
{
    fy_model_t *model = make_model(ctx->device, 1);
    const fy_model_info_t info = model_info(model);
    fy_optimizer_t *optimizer;
    fy_tensor_t *x = batch(ctx->device), *y, *loss;
    fy_optimizer_options_t sgd = optimizer_defaults(FY_OPTIMIZER_SGD);
    sgd.weight_decay = 0.5; /* changes every value that it gets */
    ts_ok(fy_optimizer_create(&sgd, 1, &info.values, &info.grads, &optimizer));
    fy_tape_t *tape = watch(model);
    for (int step = 0; step < 2; step++) {
        ts_ok(fy_tape_begin(tape));
        ts_ok(fy_model_forward(model, x, &y));
        ts_ok(fy_sum(y, 0, NULL, 0, &loss));
        ts_ok(fy_model_backward(model, tape, loss, NULL));
        ts_ok(fy_optimizer_step(optimizer));
    }
    /* x has the means 2, 4, 6: 1 -> 1.5 -> 1.75, 1 -> 2.5 -> 3.25, 1 -> 3.5 -> 4.75 */
    ts_expect_f32(find(model, "a.running"), (float[]){ 1.75F, 3.25F, 4.75F }, WIDTH);
    ts_expect_f32(find(model, "a.seen"), (float[]){ 2 }, 1);
    ts_expect_f32(find(model, "c.seen"), (float[]){ 2 }, 1);
    fy_model_set_training(model, 0);
    fy_model_t *one = new_model(ctx->device, center_layer(), FY_DIMS(WIDTH), NULL);
    fy_model_set_training(one, 0);
    ts_ok(fy_model_forward(one, x, &y)); /* the running mean is 1 */
    ts_expect_f32(y, (float[]){ 0, 1, 2, 2, 5, 8 }, 6);
    ts_ok(fy_model_forward(model, x, &y));
    ts_expect_f32(find(model, "a.seen"), (float[]){ 2 }, 1); /* evaluation counts nothing */
    fy_model_destroy(one);
    fy_tape_destroy(tape);
    fy_optimizer_destroy(optimizer);
    fy_model_destroy(model);
}

/* Values and buffers: files and replicas have these. */
static bits_t weights_of(const fy_model_t *model)
{
    bits_t bits = { 0 };
    add_tensor(&bits, model_info(model).values);
    add_tensor(&bits, model_info(model).buffers);
    return bits;
}

TS_DEVICE_TEST(test_files)
{
    assert_int_equal(make_folder(NULL), 0);
    const char *path = in_folder("model.safetensors");
    fy_model_t *model = make_model(ctx->device, 1), *other = make_model(ctx->device, 2);
    fy_tensor_t *x = batch(ctx->device), *y;
    fy_progress_t progress = FY_PROGRESS_INIT;
    ts_ok(fy_model_forward(model, x, &y));
    const bits_t want = weights_of(model), first = weights_of(other);
    assert_false(has_same_bits(&want, &first));
    free(first.bytes);
    ts_ok(fy_model_save(model, path));
    ts_ok(fy_model_load(other, path));
    expect_bits(weights_of(other), &want);

    fy_model_destroy(other);
    other = make_model(ctx->device, 2);
    ts_ok(fy_checkpoint_save(folder, model, NULL, &progress, 1));
    ts_ok(fy_checkpoint_load(folder, other, NULL, &progress));
    expect_bits(weights_of(other), &want);

    /* a file without one of the buffers: nothing has changed */
    fy_safetensors_t *file;
    fy_safetensors_entry_t entries[16];
    size_t count = 0;
    ts_ok(fy_safetensors_open(path, &file));
    for (size_t i = 0; i < fy_safetensors_count(file); i++) {
        fy_safetensors_info_t info = FY_SAFETENSORS_INFO_INIT;
        ts_ok(fy_safetensors_at(file, i, &info));
        if (strcmp(info.name, "c.seen") == 0) continue;
        entries[count].name = info.name;
        ts_ok(fy_zeros(fy_device_host(), info.dtype, info.rank, info.dims,
                       (fy_tensor_t **)&entries[count].tensor));
        count++;
    }
    ts_ok(fy_safetensors_write(path, count, entries, 0, NULL));
    fy_safetensors_close(file);
    ts_fails_with(fy_model_load(other, path), INVALID_ARGUMENT, "'c.seen'");
    expect_bits(weights_of(other), &want);
    free(want.bytes);
    fy_model_destroy(other);
    fy_model_destroy(model);
    assert_int_equal(empty_folder(folder), 2); /* and no temporary file */
    assert_int_equal(drop_empty_folder(NULL), 0);
}

TS_DEVICE_TEST(test_replicas)
{
    fy_device_t *second;
    if (!ctx->is_sim) skip(); /* a machine can have a single card */
    ts_ok(fy_device_open("sim:1", &second));
    fy_model_t *models[] = { make_model(ctx->device, 1), make_model(second, 2) };
    fy_tensor_t *y;
    ts_ok(fy_models_replicate(2, models));
    bits_t want = weights_of(models[0]);
    expect_bits(weights_of(models[1]), &want);
    free(want.bytes);
    ts_ok(fy_model_forward(models[0], batch(ctx->device), &y));
    want = weights_of(models[0]);
    const bits_t old = weights_of(models[1]);
    assert_false(has_same_bits(&want, &old));
    free(old.bytes);
    const fy_ledger_totals_t before = ts_ledger(NULL);
    ts_ok(fy_models_replicate_buffers(2, models));
    const fy_ledger_totals_t after = ts_ledger(NULL);
    assert_int_equal(after.peer.nbytes - before.peer.nbytes,
                     ts_info(model_info(models[0]).buffers).nbytes);
    expect_bits(weights_of(models[1]), &want);
    free(want.bytes);

    fy_model_t *plain = new_model(second, fc(WIDTH, WIDTH), FY_DIMS(WIDTH), NULL);
    ts_fails_with(fy_models_replicate_buffers(2, (fy_model_t *[]){ models[0], plain }),
                  SHAPE_MISMATCH, "4 and 4");
    fy_model_destroy(plain);
    fy_model_destroy(models[0]);
    fy_model_destroy(models[1]);
    ts_ok(fy_device_wait(second, FY_FOREVER));
    fy_device_close(second);
}

TS_DEVICE_TEST(test_refusals)
{
    static const fy_layer_param_t two[] = { { "a", 1, { 1 }, 0, 0, { FY_INIT_CONSTANT, 0 } },
                                            { "a", 1, { 1 }, 0, 0, { FY_INIT_CONSTANT, 0 } } };
    fy_layer_def_t def = FY_LAYER_DEF_INIT;
    fy_layer_t *layer;
    def.type = "twice";
    def.shape = keep_shape;
    def.forward = center;
    def.nbuffers = 1;
    ts_fails(fy_layer_create(&def, NULL, &layer), INVALID_ARGUMENT); /* where are they? */
    def.nparams = 1;
    def.params = &two[0];
    def.buffers = &two[1];
    ts_fails_with(fy_layer_create(&def, NULL, &layer), INVALID_ARGUMENT,
                  "two parameters or buffers 'a'");
}

/* Makes, runs, saves and loads a model. */
static fy_status_t use(fy_device_t *device)
{
    const char *path = in_folder("model.safetensors");
    fy_model_t *model = NULL, *other = NULL;
    fy_tensor_t *x, *y;
    fy_progress_t progress = FY_PROGRESS_INIT;
    const fy_scope_t scope = fy_scope_begin("use");
    fy_status_t status = try_model(device, 1, &model);
    if (status == FY_STATUS_OK) status = try_model(device, 2, &other);
    if (status == FY_STATUS_OK) status = fy_zeros(device, FY_DTYPE_F32, FY_DIMS(2, WIDTH), &x);
    if (status == FY_STATUS_OK) status = fy_model_forward(model, x, &y);
    if (status == FY_STATUS_OK) status = fy_model_save(model, path);
    if (status == FY_STATUS_OK) status = fy_model_load(other, path);
    if (status == FY_STATUS_OK) status = fy_checkpoint_save(folder, model, NULL, &progress, 1);
    if (status == FY_STATUS_OK) status = fy_checkpoint_load(folder, other, NULL, NULL);
    fy_scope_end(scope, 0, NULL);
    fy_model_destroy(other);
    fy_model_destroy(model);
    return status;
}

TS_TEST(test_failing_allocations)
{
    assert_int_equal(make_folder(NULL), 0);
    ts_sweep_host_memory("host", 4000, use);
    ts_sweep_host_memory("sim:7", 4000, use);
    assert_int_equal(empty_folder(folder), 2); /* and no temporary file */
    assert_int_equal(drop_empty_folder(NULL), 0);
}
