/* Several devices: sums over two to five of them, with the same bits on each for every length;
 * transferred bytes; replicas; shards; refusals. A weight that lives on a device cannot be read on
 * the host. */
#include "tests/unit/train/fixture.h"

enum { MOST = 5 };

/* sim:0 (the runner's), sim:1, ... with the same options. Other backends are skipped: a machine can
 * have a single card. */
static fy_scope_t scope; /* from open_devices to close_devices */

static void open_devices(ts_ctx_t *ctx, size_t count, fy_device_t **devices)
{
    char spec[128];
    if (!ctx->is_sim) skip();
    devices[0] = ctx->device;
    for (size_t i = 1; i < count; i++) {
        snprintf(spec, sizeof spec, "sim:%zu%s", i, ctx->spec + strlen(ts_spec_name(ctx->spec)));
        ts_ok(fy_device_open(spec, &devices[i]));
    }
    scope = fy_scope_begin("devices");
}

static void close_devices(size_t count, fy_device_t **devices)
{
    fy_scope_end(scope, 0, NULL);
    for (size_t i = 1; i < count; i++) {
        ts_ok(fy_device_wait(devices[i], FY_FOREVER));
        fy_device_close(devices[i]);
    }
}

/* Values whose sum is not exact, so that another order gives other bits: each device must have the
 * sum in device order. */
TS_DEVICE_TEST(allreduce_many)
{
    static const int64_t lengths[] = { 0, 1, 3, 31, 32, 33, 64, 1000, 100003 };
    fy_device_t *devices[MOST];
    open_devices(ctx, MOST, devices);
    for (size_t count = 1; count <= MOST; count++)
        for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
            const int64_t n = lengths[l];
            float *values = malloc((size_t)(n + 1) * sizeof *values),
                  *want = calloc((size_t)n + 1, sizeof *want);
            fy_tensor_t *x[MOST];
            for (size_t i = 0; i < count; i++) {
                for (int64_t k = 0; k < n; k++) {
                    values[k] = (float)((k * 37 + (int64_t)i * 101) % 977) / 7.0f *
                                (i % 2 ? -1e3f : 1.0f);
                    want[k] = i ? want[k] + values[k] : values[k];
                }
                x[i] = ts_f32(devices[i], FY_DIMS(n), values);
            }
            const fy_ledger_totals_t before = ts_ledger(NULL);
            ts_ok(fy_allreduce_sum(count, x));
            const fy_ledger_totals_t after = ts_ledger(NULL);
            /* Each device sends 2 (count - 1) / count of the bytes: 2 (count - 1) times the bytes
             * in all. */
            assert_int_equal(after.peer.nbytes - before.peer.nbytes,
                             2 * (count - 1) * (size_t)n * sizeof(float));
            assert_int_equal(after.syncs, before.syncs);
            assert_int_equal(after.download.count, before.download.count);
            assert_int_equal(after.upload.count, before.upload.count);
            for (size_t i = 0; i < count; i++) {
                ts_expect_f32(x[i], want, (size_t)n);
                fy_tensor_destroy(x[i]);
            }
            free(want);
            free(values);
        }
    close_devices(MOST, devices);
}

TS_DEVICE_TEST(allreduce_refuses)
{
    fy_device_t *devices[2];
    fy_tensor_t *turned, *whole[2];
    open_devices(ctx, 2, devices);
    fy_tensor_t *a = ts_iota(devices[0], FY_DIMS(2, 3), 1),
                *c = ts_iota(devices[0], FY_DIMS(2, 3), 1),
                *d = ts_iota(devices[1], FY_DIMS(3, 2), 1);
    ts_ok(fy_transpose(d, NULL, &turned));
    for (int i = 0; i < 2; i++) ts_ok(fy_zeros(devices[i], FY_DTYPE_I32, FY_DIMS(2, 3), &whole[i]));
    const fy_ledger_totals_t before = ts_ledger(NULL);
    ts_fails_with(fy_allreduce_sum(2, (fy_tensor_t *[]){ a, c }), DEVICE_MISMATCH, "both on sim:0");
    ts_fails(fy_allreduce_sum(2, (fy_tensor_t *[]){ a, d }), SHAPE_MISMATCH);
    ts_fails_with(fy_allreduce_sum(2, (fy_tensor_t *[]){ a, turned }), INVALID_ARGUMENT,
                  "not dense");
    ts_fails(fy_allreduce_sum(2, whole), DTYPE_MISMATCH);
    ts_fails(fy_allreduce_sum(2, (fy_tensor_t *[]){ a, NULL }), INVALID_ARGUMENT);
    ts_fails(fy_allreduce_sum(0, NULL), INVALID_ARGUMENT);
    const fy_ledger_totals_t after = ts_ledger(NULL);
    ts_expect_quiet(&before, &after, "refused sums");
    ts_expect_f32(a, (float[]){ 1, 2, 3, 4, 5, 6 }, 6);
    close_devices(2, devices);
}

TS_DEVICE_TEST(replicas_are_equal)
{
    fy_device_t *devices[3];
    fy_model_t *models[3], *other;
    open_devices(ctx, 3, devices);
    for (int i = 0; i < 3; i++) {
        fy_model_options_t options = FY_MODEL_OPTIONS_INIT;
        options.seed = i + 1;
        ts_ok(fy_model_open(devices[i], "mlp", &options, &models[i]));
    }
    ts_ok(fy_model_open(devices[1], "linear", NULL, &other));
    bits_t first = { 0 }, second = { 0 };
    add_tensor(&first, model_info(models[0]).values);
    add_tensor(&second, model_info(models[1]).values);
    assert_false(has_same_bits(&first, &second));
    free(second.bytes);
    ts_fails(fy_models_replicate(2, (fy_model_t *[]){ models[0], other }), SHAPE_MISMATCH);
    const fy_ledger_totals_t before = ts_ledger(NULL);
    ts_ok(fy_models_replicate(3, models));
    const fy_ledger_totals_t after = ts_ledger(NULL);
    assert_int_equal(after.peer.nbytes - before.peer.nbytes, 2 * first.nbytes);
    assert_int_equal(after.upload.count + after.download.count,
                     before.upload.count + before.download.count);
    for (int i = 0; i < 3; i++) {
        second = (bits_t){ 0 };
        add_tensor(&second, model_info(models[i]).values);
        expect_bits(second, &first);
    }
    free(first.bytes);
    fy_model_destroy(other);
    for (int i = 0; i < 3; i++) fy_model_destroy(models[i]);
    close_devices(3, devices);
}

TS_DEVICE_TEST(shards_are_rows_of_the_batch)
{
    fy_device_t *devices[3];
    fy_tensor_t *shards[3], *x = ts_iota(fy_device_host(), FY_DIMS(8, 2), 0);
    open_devices(ctx, 3, devices);
    ts_ok(fy_batch_split(x, 3, devices, shards));
    ts_expect_f32(shards[0], (float[]){ 0, 1, 2, 3, 4, 5 }, 6);
    ts_expect_f32(shards[1], (float[]){ 6, 7, 8, 9, 10, 11 }, 6);
    ts_expect_f32(shards[2], (float[]){ 12, 13, 14, 15 }, 4);
    for (int i = 0; i < 3; i++) {
        assert_ptr_equal(ts_info(shards[i]).device, devices[i]);
        assert_int_equal(ts_info(shards[i]).rank, 2);
    }
    fy_tensor_t *two = ts_iota(fy_device_host(), FY_DIMS(2, 2), 0),
                *there = ts_iota(devices[1], FY_DIMS(4, 2), 0);
    ts_fails_with(fy_batch_split(two, 3, devices, shards), SHAPE_MISMATCH, "2 rows for 3 devices");
    assert_null(shards[0]);
    ts_fails(fy_batch_split(there, 2, devices, shards), DEVICE_MISMATCH);
    assert_null(shards[0]);
    close_devices(3, devices);
}

/* The documented use: sums of losses per shard, one sum of gradients, one update of the whole
 * batch. In f64 another order of sums changes about 1e-13, so a mistake in the shards cannot
 * hide. */
static void train_on(size_t count, fy_device_t **devices, double *values, size_t nbytes)
{
    fy_model_t *models[4];
    fy_tape_t *tapes[4];
    fy_tensor_t *rng, *x, *y, *blocks[4], *grads[4];
    ts_ok(fy_rng_create(fy_device_host(), 7, &rng));
    ts_ok(fy_rand(rng, FY_DTYPE_F64, FY_DIMS(10, 5), -1, 1, &x));
    ts_ok(fy_rand(rng, FY_DTYPE_F64, FY_DIMS(10, 1), -1, 1, &y));
    for (size_t i = 0; i < count; i++) {
        fy_model_options_t options = FY_MODEL_OPTIONS_INIT;
        options.dtype = FY_DTYPE_F64;
        ts_ok(fy_model_open(devices[i], "linear", &options, &models[i]));
        const fy_model_info_t info = model_info(models[i]);
        blocks[i] = info.values, grads[i] = info.grads;
        ts_ok(fy_tape_create(&tapes[i]));
        ts_ok(fy_model_watch(models[i], tapes[i]));
    }
    for (int step = 0; step < 20; step++) {
        fy_tensor_t *xs[4], *ys[4];
        ts_ok(fy_batch_split(x, count, devices, xs));
        ts_ok(fy_batch_split(y, count, devices, ys));
        for (size_t i = 0; i < count; i++) {
            fy_tensor_t *out, *off, *square, *loss;
            ts_ok(fy_tape_begin(tapes[i]));
            ts_ok(fy_model_forward(models[i], xs[i], &out));
            ts_ok(fy_sub(out, ys[i], &off));
            ts_ok(fy_mul(off, off, &square));
            ts_ok(fy_sum(square, FY_ALL_AXES, 0, &loss));
            ts_ok(fy_model_backward(models[i], tapes[i], loss, NULL));
        }
        ts_ok(fy_allreduce_sum(count, grads));
        for (size_t i = 0; i < count; i++) ts_ok(fy_axpy(blocks[i], -0.05 / 10, grads[i]));
    }
    ts_read(blocks[count - 1], values, nbytes);
    for (size_t i = 0; i < count; i++) {
        fy_tape_destroy(tapes[i]);
        fy_model_destroy(models[i]);
    }
}

TS_DEVICE_TEST(training_on_several_devices_gives_the_same_weights)
{
    double one[64], several[64];
    fy_device_t *devices[4];
    fy_model_options_t options = FY_MODEL_OPTIONS_INIT;
    open_devices(ctx, 4, devices);
    options.dtype = FY_DTYPE_F64;
    fy_model_t *model = known_model(ctx->device, "linear", &options);
    const fy_model_info_t info = model_info(model);
    const size_t nbytes = ts_info(info.values).nbytes;
    assert_true(nbytes <= sizeof one);
    ts_read(info.values, several, nbytes);
    fy_model_destroy(model);
    train_on(1, devices, one, nbytes);
    assert_memory_not_equal(one, several, nbytes); /* the weights changed */
    for (size_t count = 2; count <= 4; count++) {
        train_on(count, devices, several, nbytes);
        for (size_t k = 0; k < nbytes / sizeof *one; k++)
            assert_true(one[k] - several[k] < 1e-12 && several[k] - one[k] < 1e-12);
    }
    close_devices(4, devices);
}

/* No implicit download: the refusal names the device of the weight. */
TS_DEVICE_TEST(weights_cannot_be_read_on_the_host)
{
    fy_device_t *devices[2];
    fy_param_t param = FY_PARAM_INIT;
    void *data = &param;
    open_devices(ctx, 2, devices);
    fy_model_t *model = known_model(devices[1], "mlp", NULL);
    ts_ok(fy_model_param(model, 0, &param));
    const fy_ledger_totals_t before = ts_ledger(NULL);
    ts_fails_with(fy_tensor_map(param.value, FY_ACCESS_READ, &data), DEVICE_MISMATCH, "sim:1",
                  param.name);
    assert_null(data);
    const fy_ledger_totals_t after = ts_ledger(NULL);
    ts_expect_quiet(&before, &after, "a refused look");
    fy_model_destroy(model);
    close_devices(2, devices);
}
