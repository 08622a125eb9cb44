/* Models: the layers of the known models, initial values, forward, gradients, refusals, the printed
 * description. */
#include "tests/unit/train/fixture.h"

#include <math.h>

static fy_model_t *open_model(ts_ctx_t *ctx, const char *name, int64_t seed)
{
    fy_model_options_t options = FY_MODEL_OPTIONS_INIT;
    options.seed = seed;
    return known_model(ctx->device, name, &options);
}

/* Known networks: the numbers of parameters are exact. MACs counted by hand: for lenet 26*26*20*9 +
 * 9*9*50*500 + 800*128 + 1280. */
TS_DEVICE_TEST(test_known_models)
{
    static const struct {
        const char *name;
        uint64_t params, macs;
        size_t nparams;
        int64_t out;
    } want[] = {
        { "linear", 6, 5, 2, 1 },
        { "mlp", 101770, 101632, 4, 10 },
        { "lenet", 129068, 26 * 26 * 20 * 9 + 9 * 9 * 50 * 500 + 800 * 128 + 1280, 8, 10 },
        { "mnist2018", 21840, 24 * 24 * 10 * 25 + 8 * 8 * 20 * 250 + 16000 + 500, 8, 10 },
        { "mnist", 1199882, 26 * 26 * 32 * 9 + 24 * 24 * 64 * 288 + 9216 * 128 + 1280, 8, 10 },
        { "resnet18", 11175818, 455800832, 76, 10 },
        { "mobilenet_v3_large", 5483032, 216589760, 174, 1000 },
        { "vit_tiny", 5717416,
          UINT64_C(196) * 768 * 192 +
              UINT64_C(12) * (UINT64_C(197) * 12 * 192 * 192 + UINT64_C(2) * 197 * 197 * 192) +
              192 * 1000,
          152, 1000 },
        { "gpt", 124439808,
          UINT64_C(12) * (UINT64_C(1024) * 12 * 768 * 768 + UINT64_C(2) * 1024 * 1024 * 768) +
              UINT64_C(1024) * 768 * 50257,
          148, 1024 },
    };
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        assert_string_equal(fy_model_name_at(i), want[i].name);
        const fy_ledger_totals_t before = ts_ledger(NULL);
        fy_model_t *model = open_model(ctx, want[i].name, 1);
        const fy_ledger_totals_t after = ts_ledger(NULL);
        assert_int_equal(after.upload.count,
                         before.upload.count); /* created on the device: no upload */
        assert_int_equal(after.syncs, before.syncs);
        const fy_model_info_t info = model_info(model);
        assert_string_equal(info.name, want[i].name);
        assert_int_equal(info.params, want[i].params);
        assert_int_equal(info.nparams, want[i].nparams);
        assert_int_equal(info.nbytes, want[i].params * 4);
        assert_int_equal(info.macs, want[i].macs);
        assert_int_equal(info.out_rank, strcmp(want[i].name, "gpt") == 0 ? 2 : 1);
        assert_int_equal(info.out_dims[0], want[i].out);
        fy_model_destroy(model);
    }
    assert_null(fy_model_name_at(sizeof want / sizeof *want));
    fy_model_t *none;
    ts_fails_with(
        fy_model_open(ctx->device, "lenet5", NULL, &none), INVALID_ARGUMENT,
        "linear, mlp, lenet, mnist2018, mnist, resnet18, mobilenet_v3_large, vit_tiny, gpt");
}

/* "name:option=value,...": shapes and sizes follow; what does not fit is refused. */
TS_DEVICE_TEST(test_model_options)
{
    static const struct {
        const char *spec, *text;
    } bad[] = {
        { "mlp:classes=3",
          "'mlp' has no option 'classes=3'; options are written name=value, with a "
          "comma between two; it has none" },
        { "resnet18:", "has no option ''" },
        { "resnet18:classes", "it has channels, classes, size" },
        { "resnet18:classes=", "'classes=': classes is a number from 1 to 1048576" },
        { "resnet18:classes=0", "classes is a number from 1 to 1048576" },
        { "resnet18:classes=7x", "classes is a number from 1 to 1048576" },
        { "resnet18:classes= 7", "'classes= 7': classes is a number from 1 to 1048576, in digits" },
        { "resnet18:classes=+7", "in digits only" },
        { "resnet18:classes=7 ", "in digits only" },
        { "resnet18:classes=-7", "in digits only" },
        { "resnet18:classes=99999999999999999999", "in digits only" },
        { "resnet18:classes=1048577", "in digits only" },
        { "resnet18:size=32,", "has no option ''" },
        { "resnet18:size=32,classes=2,size=32", "size is given twice" },
        { "resnet18:width=32", "has no option 'width=32'" },
    };
    int64_t dims[FY_MAX_RANK];
    int rank;
    ts_ok(fy_model_sample_shape("resnet18:channels=3,size=16", &rank, dims));
    assert_int_equal(rank, 3);
    assert_int_equal(dims[0], 16);
    assert_int_equal(dims[1], 16);
    assert_int_equal(dims[2], 3);
    fy_model_t *model = known_model(ctx->device, "mobilenet_v3_large:classes=10,size=32", NULL);
    assert_int_equal(model_info(model).params, 4214842);
    assert_int_equal(model_info(model).out_dims[0], 10);
    assert_int_equal(model_info(model).nbuffers, 2 * 46);
    fy_model_destroy(model);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ts_fails_with(fy_model_open(ctx->device, bad[i].spec, NULL, &model), INVALID_ARGUMENT,
                      bad[i].text);
        ts_fails(fy_model_sample_shape(bad[i].spec, &rank, dims), INVALID_ARGUMENT);
    }
    ts_fails(fy_model_sample_shape(NULL, &rank, dims), INVALID_ARGUMENT);
    ts_fails_with(fy_model_open(ctx->device, "vit_tiny:size=30", NULL, &model), INVALID_ARGUMENT,
                  "patch=16 does not divide size=30");
}

/* Gradients have as many bytes as parameters, also in a model that only evaluates; the buffers and
 * the random state are weights. */
TS_DEVICE_TEST(test_allocated_bytes)
{
    enum { W = FY_CATEGORY_WEIGHTS, G = FY_CATEGORY_GRADIENTS };
    fy_memory_stats_t old = FY_MEMORY_STATS_INIT, now = FY_MEMORY_STATS_INIT;
    ts_ok(fy_memory_query(ctx->device, NULL, &old));
    fy_model_t *model = open_model(ctx, "mlp", 1);
    fy_model_set_training(model, 0);
    ts_ok(fy_memory_query(ctx->device, NULL, &now));
    const uint64_t nbytes = ts_info(model_info(model).grads).nbytes;
    assert_in_range(now.by_category[G] - old.by_category[G], nbytes, nbytes + 4096);
    assert_in_range(now.by_category[W] - old.by_category[W], nbytes, nbytes + 4096);
    fy_model_destroy(model);
}

/* Each parameter starts at a multiple of 16 elements; gaps are 0; the gradients have the same
 * layout. */
TS_DEVICE_TEST(test_parameters_lie_in_aligned_blocks)
{
    fy_model_t *model = open_model(ctx, "lenet", 1);
    const fy_model_info_t info = model_info(model);
    uint64_t offset = 0;
    float *block = bytes_of(info.values);
    for (size_t i = 0; i < info.nparams; i++) {
        fy_param_t param = nth_param(model, i);
        const fy_tensor_info_t value = ts_info(param.value);
        float *values = bytes_of(param.value);
        assert_memory_equal(values, block + offset, value.nbytes);
        free(values);
        assert_int_equal(ts_info(param.grad).nelem, value.nelem);
        for (uint64_t gap = offset + value.nelem; gap % 16; gap++) assert_true(block[gap] == 0);
        offset += (value.nelem + 15) / 16 * 16;
    }
    assert_int_equal(ts_info(info.values).nelem, offset);
    assert_int_equal(ts_info(info.grads).nelem, offset);
    free(block);
    fy_model_destroy(model);
}

static void moments(fy_model_t *model, const char *name, double *mean, double *std, double *most)
{
    const fy_param_t param = find_param(model, name);
    const uint64_t n = ts_info(param.value).nelem;
    float *values = bytes_of(param.value);
    double sum = 0, squares = 0;
    *most = 0;
    for (uint64_t i = 0; i < n; i++) {
        sum += (double)values[i];
        squares += (double)values[i] * (double)values[i];
        *most = fmax(*most, fabs((double)values[i]));
    }
    *mean = sum / (double)n;
    *std = sqrt(squares / (double)n - *mean * *mean);
    free(values);
}

/* lenet: N(0, 0.01^2) and zero; the others uniform within 1 / sqrt(fan_in). 102400 draws: the
 * bounds below are five deviations wide. */
TS_DEVICE_TEST(test_first_values)
{
    double mean, std, most;
    fy_model_t *model = open_model(ctx, "lenet", 1);
    moments(model, "fc1.weight", &mean, &std, &most);
    assert_true(fabs(mean) < 2e-4 && fabs(std - 0.01) < 2e-4 && most > 0.03);
    moments(model, "fc1.bias", &mean, &std, &most);
    assert_true(most == 0);
    fy_model_destroy(model);
    model = open_model(ctx, "mlp", 1);
    moments(model, "fc1.weight", &mean, &std, &most);
    assert_true(most <= 1 / sqrt(784.0) && most > 0.99 / sqrt(784.0) && fabs(mean) < 4e-4 &&
                fabs(std - 1 / sqrt(3 * 784.0)) < 4e-4);
    moments(model, "fc1.bias", &mean, &std, &most);
    assert_true(most <= 1 / sqrt(784.0) && most > 0.5 / sqrt(784.0));
    fy_model_destroy(model);
}

/* All kinds, on one linear layer 300 -> 200, by their bound or spread. */
TS_DEVICE_TEST(test_init_kinds)
{
    static const struct {
        fy_init_t init;
        double std;
        int is_uniform;
    } kinds[] = {
        { { FY_INIT_CONSTANT, 0.25 }, 0, 0 },
        { { FY_INIT_UNIFORM, 0.5 }, 0.28867513, 1 },
        { { FY_INIT_NORMAL, 0.3 }, 0.3, 0 },
        { { FY_INIT_KAIMING_UNIFORM, 0 }, 0.0816497, 1 },
        { { FY_INIT_KAIMING_NORMAL, 0 }, 0.0816497, 0 },
        { { FY_INIT_KAIMING_NORMAL_FAN_OUT, 0 }, 0.1, 0 },
        { { FY_INIT_XAVIER_UNIFORM, 0 }, 0.0632456, 1 },
        { { FY_INIT_XAVIER_NORMAL, 0 }, 0.0632456, 0 },
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        fy_linear_options_t options = FY_LINEAR_OPTIONS_INIT;
        fy_layer_t *layer;
        double mean, std, most;
        options.weight = kinds[i].init;
        ts_ok(fy_layer_linear(300, 200, &options, &layer));
        fy_model_t *model = new_model(ctx->device, layer, FY_DIMS(300), NULL);
        moments(model, "weight", &mean, &std, &most);
        if (kinds[i].init.kind == FY_INIT_CONSTANT) {
            assert_true(most == 0.25 && fabs(mean - 0.25) < 1e-7);
        } else {
            assert_true(fabs(std / kinds[i].std - 1) < 0.02 && fabs(mean) < kinds[i].std * 0.02);
            assert_true(kinds[i].is_uniform ? most < kinds[i].std * 1.7321
                                            : most > kinds[i].std * 3);
        }
        fy_model_destroy(model);
    }
}

TS_DEVICE_TEST(test_seeds)
{
    fy_model_t *a = open_model(ctx, "mnist2018", 5), *b = open_model(ctx, "mnist2018", 5),
               *c = open_model(ctx, "mnist2018", 6);
    bits_t of_a = { 0 }, of_b = { 0 }, of_c = { 0 };
    add_tensor(&of_a, model_info(a).values);
    add_tensor(&of_b, model_info(b).values);
    add_tensor(&of_c, model_info(c).values);
    assert_false(has_same_bits(&of_a, &of_c));
    expect_bits(of_b, &of_a);
    free(of_a.bytes), free(of_c.bytes);
    fy_model_destroy(a), fy_model_destroy(b), fy_model_destroy(c);
}

static fy_tensor_t *noise(ts_ctx_t *ctx, int rank, const int64_t *dims)
{
    fy_tensor_t *rng, *x;
    ts_ok(fy_rng_create(ctx->device, 11, &rng));
    ts_ok(fy_rand(rng, FY_DTYPE_F32, rank, dims, -1, 1, &x));
    return x;
}

/* Two evaluations are equal. Two training passes differ if there is dropout. Both have the same
 * mean. */
TS_DEVICE_TEST(test_train_and_evaluation)
{
    enum { N = 512 };
    static float x[N], out[2][N];
    fy_layer_t *layer;
    fy_tensor_t *y;
    for (int i = 0; i < N; i++) x[i] = 1;
    ts_ok(fy_layer_dropout(0.25, &layer));
    fy_model_t *model = new_model(ctx->device, layer, FY_DIMS(N), NULL);
    assert_true(model_info(model).is_training);
    fy_tensor_t *ones = ts_f32(ctx->device, FY_DIMS(1, N), x);
    for (int i = 0; i < 2; i++) {
        ts_ok(fy_model_forward(model, ones, &y));
        ts_read(y, out[i], sizeof out[i]);
    }
    assert_memory_not_equal(out[0], out[1], sizeof out[0]);
    int kept = 0;
    for (int i = 0; i < N; i++) {
        assert_true(out[0][i] == 0 || fabsf(out[0][i] - 4.0F / 3) < 1e-6F);
        kept += out[0][i] != 0;
    }
    assert_true(kept > N * 0.65 && kept < N * 0.85);
    fy_model_set_training(model, 0);
    ts_ok(fy_model_forward(model, ones, &y));
    ts_expect_f32(y, x, N);
    assert_ptr_not_equal(y, ones); /* a separate handle */
    fy_tensor_destroy(y);
    ts_read(ones, out[0], sizeof out[0]);
    fy_model_destroy(model);
}

/* dropout2d drops whole channels of a sample. */
TS_DEVICE_TEST(test_dropout2d)
{
    enum { N = 8, PIXELS = 9, CHANNELS = 16 };
    static float x[N * PIXELS * CHANNELS], out[N][PIXELS][CHANNELS];
    fy_layer_t *layer;
    fy_tensor_t *y;
    for (int i = 0; i < N * PIXELS * CHANNELS; i++) x[i] = 1;
    ts_ok(fy_layer_dropout2d(0.5, &layer));
    fy_model_t *model = new_model(ctx->device, layer, FY_DIMS(3, 3, CHANNELS), NULL);
    ts_ok(fy_model_forward(model, ts_f32(ctx->device, FY_DIMS(N, 3, 3, CHANNELS), x), &y));
    ts_read(y, out, sizeof out);
    int kept = 0;
    for (int n = 0; n < N; n++)
        for (int c = 0; c < CHANNELS; c++) {
            kept += out[n][0][c] != 0;
            for (int p = 0; p < PIXELS; p++)
                assert_true(out[n][p][c] == out[n][0][c] &&
                            (out[n][p][c] == 0 || out[n][p][c] == 2));
        }
    assert_true(kept > N * CHANNELS / 4 && kept < N * CHANNELS * 3 / 4);
    fy_model_destroy(model);
}

/* Gradients are in the model's block; parameters that the loss does not depend on get zeros;
 * accumulation adds. */
TS_DEVICE_TEST(test_backward)
{
    fy_model_t *model = open_model(ctx, "linear", 3);
    const fy_model_info_t info = model_info(model);
    fy_tensor_t *y, *loss;
    float first[32], second[32];
    fy_tape_t *tape = watch(model);
    for (int pass = 0; pass < 2; pass++) {
        fy_backward_options_t options = FY_BACKWARD_OPTIONS_INIT;
        options.accumulate = pass;
        ts_ok(fy_tape_begin(tape));
        ts_ok(fy_model_forward(model, noise(ctx, FY_DIMS(4, 5)), &y));
        ts_ok(fy_sum(y, FY_ALL_AXES, 0, &loss));
        ts_ok(fy_model_backward(model, tape, loss, &options));
        ts_read(info.grads, pass ? second : first, sizeof first);
    }
    assert_true(first[16] == 4 && second[16] == 8); /* of the bias: one from each sample */
    for (int i = 0; i < 32; i++) assert_true(second[i] == 2 * first[i]);

    /* A loss of the weight alone: the bias' gradient is zero, not its previous value. */
    const fy_param_t weight = find_param(model, "fc.weight");
    ts_ok(fy_tape_begin(tape));
    ts_ok(fy_sum(weight.value, FY_ALL_AXES, 0, &loss));
    ts_ok(fy_model_backward(model, tape, loss, NULL));
    ts_read(info.grads, first, sizeof first);
    assert_true(first[0] == 1 && first[4] == 1 && first[16] == 0);
    fy_tape_destroy(tape);
    fy_model_destroy(model);
}

static void backward(fy_model_t *model, fy_tape_t *tape, fy_tensor_t *x, int accumulate)
{
    fy_backward_options_t options = FY_BACKWARD_OPTIONS_INIT;
    fy_tensor_t *y, *loss;
    options.accumulate = accumulate;
    ts_ok(fy_tape_begin(tape));
    ts_ok(fy_model_forward(model, x, &y));
    ts_ok(fy_sum(y, FY_ALL_AXES, 0, &loss));
    ts_ok(fy_model_backward(model, tape, loss, &options));
}

static fy_status_t ignore(void *user, const fy_tensor_t *tensor, fy_tensor_t *grad)
{
    (void)user, (void)tensor, (void)grad;
    return FY_STATUS_OK;
}

/* By one tape, a tape for each batch, or one that watches again before each. */
TS_DEVICE_TEST(test_gradients_of_several_tapes_accumulate)
{
    fy_backward_options_t options = FY_BACKWARD_OPTIONS_INIT;
    fy_model_t *model = open_model(ctx, "linear", 3);
    fy_tensor_t *const grads = model_info(model).grads, *x = noise(ctx, FY_DIMS(2, 5)), *y, *loss;
    fy_tape_t *tape = watch(model);
    backward(model, tape, x, 0);
    backward(model, tape, x, 1);
    float *want = bytes_of(grads);
    for (int is_new = 0; is_new < 2; is_new++) {
        fy_tape_t *other = is_new ? watch(model) : tape;
        backward(model, tape, x, 0);
        if (!is_new) ts_ok(fy_model_watch(model, tape));
        backward(model, other, x, 1);
        float *got = bytes_of(grads);
        assert_memory_equal(got, want, ts_info(grads).nbytes);
        free(got);
        if (is_new) fy_tape_destroy(other);
    }
    ts_ok(fy_model_watch(model, tape));
    options.accumulate = 1, options.on_grad = ignore;
    ts_ok(fy_tape_begin(tape));
    ts_ok(fy_model_forward(model, x, &y));
    ts_ok(fy_sum(y, FY_ALL_AXES, 0, &loss));
    ts_fails_with(fy_model_backward(model, tape, loss, &options), INVALID_ARGUMENT,
                  "no gradient of model 'linear' since it was watched");
    free(want);
    fy_tape_destroy(tape);
    fy_model_destroy(model);
}

static void expect_finite(const fy_tensor_t *tensor)
{
    float *values = bytes_of(tensor);
    for (uint64_t k = 0; k < ts_info(tensor).nelem; k++) assert_true(isfinite(values[k]));
    free(values);
}

/* Whatever an op on the whole block left there, such as clipping by a norm that is NaN. */
TS_DEVICE_TEST(test_backward_replaces_all_of_the_block)
{
    static const char *const names[] = { "linear", "lenet", "mnist2018" };
    for (size_t i = 0; i < 2 * sizeof names / sizeof *names; i++) {
        fy_model_t *model = open_model(ctx, names[i / 2], 3);
        fy_tensor_t *const grads = model_info(model).grads;
        fy_tensor_t *const x = i / 2 ? noise(ctx, FY_DIMS(2, 28, 28, 1))
                                     : noise(ctx, FY_DIMS(2, 5));
        fy_tape_t *tape = watch(model);
        if (i % 2 == 0) {
            for (int between = 0; between < 2; between++) {
                backward(model, tape, x, 0);
                ts_ok(fy_fill(grads, NAN));
                if (between) backward(model, tape, x, 1);
                backward(model, tape, x, 0);
                expect_finite(grads);
            }
        } else {
            ts_ok(fy_graph_begin(ctx->device));
            backward(model, tape, x, 0);
            fy_tensor_t *sum;
            ts_ok(fy_sum(grads, FY_ALL_AXES, 0, &sum));
            ts_ok(fy_fill(grads, NAN));
            fy_graph_t *step;
            ts_ok(fy_graph_end(&step));
            for (int replay = 0; replay < 2; replay++) {
                ts_ok(fy_graph_replay(step, NULL));
                expect_finite(sum);
            }
            fy_graph_destroy(step);
        }
        fy_tape_destroy(tape);
        fy_model_destroy(model);
    }
}

/* A refused backward leaves the block as it was, and the tape records on. */
TS_DEVICE_TEST(test_a_refused_backward_keeps_gradients)
{
    fy_model_t *model = open_model(ctx, "linear", 3);
    const fy_model_info_t info = model_info(model);
    fy_tape_t *tape = watch(model);
    fy_tensor_t *x = noise(ctx, FY_DIMS(4, 5)), *other = noise(ctx, FY_DIMS(1)), *y, *loss;
    fy_backward_options_t unlike = FY_BACKWARD_OPTIONS_INIT, bad = unlike;
    unlike.seed = x;
    bad.struct_size = 1;
    backward(model, tape, x, 0);
    ts_ok(fy_fill(info.grads, 3));
    ts_ok(fy_tape_begin(tape));
    ts_ok(fy_model_forward(model, x, &y));
    ts_ok(fy_sum(y, FY_ALL_AXES, 0, &loss));
    ts_fails(fy_model_backward(model, tape, other, NULL), INVALID_ARGUMENT);
    ts_fails(fy_model_backward(model, tape, y, NULL), SHAPE_MISMATCH);
    ts_fails(fy_model_backward(model, tape, loss, &unlike), SHAPE_MISMATCH);
    ts_fails(fy_model_backward(model, tape, loss, &bad), INVALID_ARGUMENT);
    float *values = bytes_of(info.grads);
    for (uint64_t k = 0; k < ts_info(info.grads).nelem; k++) assert_true(values[k] == 3);
    free(values);
    ts_ok(fy_model_backward(model, tape, loss, NULL));
    values = bytes_of(info.grads);
    const uint64_t end = ts_info(info.grads).nelem;
    assert_true(end > 0 && values[end - 1] == 0 && values[0] != 3);
    free(values);
    fy_tape_destroy(tape);
    fy_model_destroy(model);
}

TS_DEVICE_TEST(test_refusals)
{
    fy_model_t *model = open_model(ctx, "lenet", 1);
    fy_tensor_t *y = NULL;
    ts_fails_with(fy_model_forward(model, noise(ctx, FY_DIMS(28, 28, 1)), &y), SHAPE_MISMATCH,
                  "model 'lenet' takes x [n, 28, 28, 1]");
    ts_fails(fy_model_forward(model, NULL, &y), INVALID_ARGUMENT);
    if (!ctx->is_host) {
        ts_fails_with(
            fy_model_forward(model, ts_iota(fy_device_host(), FY_DIMS(1, 28, 28, 1), 0), &y),
            DEVICE_MISMATCH, "conv1.weight");
    }
    assert_null(y);
    fy_model_destroy(model);

    fy_layer_t *layer, *wrong;
    const uint64_t live = ts_live(ctx->device);
    ts_ok(fy_layer_linear(9, 2, NULL, &wrong));
    ts_ok(fy_layer_flatten(&layer));
    const fy_layer_child_t children[] = { { "flat", layer }, { "head", wrong } };
    ts_ok(fy_layer_sequential(2, children, &layer));
    ts_fails_with(fy_model_create(ctx->device, layer, FY_DIMS(2, 4), NULL, &model), SHAPE_MISMATCH,
                  "layer 'head' (linear): it expects [n, ..., 9] and would get [n, 8]");
    assert_null(model);
    assert_int_equal(ts_live(ctx->device), live);
    ts_ok(fy_layer_conv2d(3, 2, 5, 5, NULL, &layer));
    ts_fails_with(fy_model_create(ctx->device, layer, FY_DIMS(4, 9, 3), NULL, &model),
                  SHAPE_MISMATCH, "5 x 5 does not fit into [n, 4, 9, 3]");
    fy_model_options_t options = FY_MODEL_OPTIONS_INIT;
    options.dtype = FY_DTYPE_I32;
    ts_ok(fy_layer_flatten(&layer));
    ts_fails(fy_model_create(ctx->device, layer, FY_DIMS(4), &options, &model), INVALID_ARGUMENT);
}

TS_DEVICE_TEST(test_describe)
{
    char text[2048], cut[32];
    fy_model_t *model = open_model(ctx, "lenet", 1);
    const size_t length = fy_model_describe(model, text, sizeof text);
    assert_int_equal(length, strlen(text));
    assert_non_null(strstr(text, "conv2             conv2d            [n, 9, 9, 50]"));
    assert_non_null(strstr(text, "129068"));
    assert_non_null(strstr(text, "516272")); /* bytes */
    assert_int_equal(fy_model_describe(model, cut, sizeof cut), length);
    assert_memory_equal(cut, text, sizeof cut - 1);
    assert_int_equal(cut[sizeof cut - 1], 0);
    assert_int_equal(fy_model_describe(model, NULL, 0), length);
    fy_model_destroy(model);
}
