/* Layers that normalise, in models: names and first values of parameters and buffers, statistics of
 * a training pass, evaluation by them, refusals. The arithmetic is tested in tests/ops/. */
#include <math.h>

#include "tests/unit/train/fixture.h"
#include "train/layer.h"

enum { N = 6, C = 4 };

static fy_layer_t *batch_norm(int64_t channels, fy_activation_t activation)
{
    fy_batch_norm_options_t options = FY_BATCH_NORM_OPTIONS_INIT;
    fy_layer_t *layer;
    options.momentum = 0.5;
    options.activation = activation;
    ts_ok(fy_layer_batch_norm(channels, &options, &layer));
    return layer;
}

static void expect_all(const fy_tensor_t *tensor, float value)
{
    float got[C];
    ts_read(tensor, got, sizeof got);
    for (int c = 0; c < C; c++) assert_true(got[c] == value);
}

TS_DEVICE_TEST(test_training_and_evaluation)
{
    static const char *const params[] = { "bn.weight", "bn.bias" };
    static const char *const buffers[] = { "bn.running_mean", "bn.running_var" };
    static float x[N][C], y[N][C];
    float means[C], vars[C];
    fy_model_t *model;
    fy_layer_t *layer;
    fy_tensor_t *out;
    fy_param_t param = FY_PARAM_INIT, mean = FY_PARAM_INIT, var = FY_PARAM_INIT;
    const fy_layer_child_t child = { "bn", batch_norm(C, FY_ACTIVATION_RELU) };
    ts_ok(fy_layer_sequential(1, &child, &layer));
    ts_ok(fy_model_create(ctx->device, layer, FY_DIMS(C), NULL, &model));
    for (size_t i = 0; i < 2; i++) {
        ts_ok(fy_model_param(model, i, &param));
        assert_string_equal(param.name, params[i]);
        expect_all(param.value, i ? 0 : 1);
        ts_ok(fy_model_buffer(model, i, i ? &var : &mean));
        assert_string_equal((i ? &var : &mean)->name, buffers[i]);
        expect_all((i ? &var : &mean)->value, i ? 1 : 0);
    }
    for (int i = 0; i < N; i++)
        for (int c = 0; c < C; c++) x[i][c] = (float)((i * 5 + c * 3) % 7) - 2;
    fy_tensor_t *input = ts_f32(ctx->device, FY_DIMS(N, C), x[0]);
    ts_ok(fy_model_forward(model, input, &out));
    fy_tensor_destroy(out);
    ts_read(mean.value, means, sizeof means);
    ts_read(var.value, vars, sizeof vars);
    for (int c = 0; c < C; c++) {
        float sum = 0, m2 = 0;
        for (int i = 0; i < N; i++) sum += x[i][c];
        for (int i = 0; i < N; i++) m2 += (x[i][c] - sum / N) * (x[i][c] - sum / N);
        assert_true(fabsf(means[c] - sum / N / 2) < 1e-6F);
        assert_true(fabsf(vars[c] - (0.5F + m2 / (N - 1) / 2)) < 1e-5F);
    }
    fy_model_set_training(model, 0);
    ts_ok(fy_model_forward(model, input, &out));
    ts_read(out, y, sizeof y);
    for (int i = 0; i < N; i++)
        for (int c = 0; c < C; c++) {
            const float want = (x[i][c] - means[c]) / sqrtf(vars[c] + 1e-5F);
            assert_true(fabsf(y[i][c] - (want < 0 ? 0 : want)) < 1e-5F);
        }
    fy_tensor_destroy(out);
    fy_model_destroy(model);
}

/* With and without weight and bias. */
TS_DEVICE_TEST(test_rows)
{
    static const size_t counts[5] = { 2, 1, 0, 1, 0 };
    static const float x[2][C] = { { 1, 2, 3, 6 }, { -1, 0, 0, 5 } };
    fy_layer_norm_options_t options = FY_LAYER_NORM_OPTIONS_INIT;
    for (int k = 0; k < 5; k++) {
        fy_layer_t *layer;
        fy_model_t *model;
        fy_tensor_t *out;
        float y[2][C];
        const int is_rms = k > 2;
        options.no_bias = k == 1;
        options.no_affine = k == 2 || k == 4;
        ts_ok((is_rms ? fy_layer_rms_norm : fy_layer_layer_norm)(C, &options, &layer));
        ts_ok(fy_model_create(ctx->device, layer, FY_DIMS(C), NULL, &model));
        const fy_model_info_t info = model_info(model);
        assert_int_equal(info.nparams, counts[k]);
        ts_ok(fy_model_forward(model, ts_f32(ctx->device, FY_DIMS(2, C), x[0]), &out));
        ts_read(out, y, sizeof y);
        for (int i = 0; i < 2; i++) {
            float mean = 0, m2 = 0;
            for (int c = 0; c < C && !is_rms; c++) mean += x[i][c] / C;
            for (int c = 0; c < C; c++) m2 += (x[i][c] - mean) * (x[i][c] - mean);
            for (int c = 0; c < C; c++)
                assert_true(fabsf(y[i][c] - (x[i][c] - mean) / sqrtf(m2 / C + 1e-5F)) < 1e-5F);
        }
        fy_tensor_destroy(out);
        fy_model_destroy(model);
    }
}

/* Two groups of two channels: `half` is the distance from the mean, its square the variance. */
TS_DEVICE_TEST(test_groups)
{
    static const float x[2][C] = { { 1, 3, 6, 2 }, { -1, -5, 0, 8 } };
    static const float half[2][C] = { { -1, 1, 2, -2 }, { 2, -2, -4, 4 } };
    fy_layer_norm_options_t options = FY_LAYER_NORM_OPTIONS_INIT;
    for (int k = 0; k < 3; k++) {
        fy_layer_t *layer;
        fy_model_t *model;
        fy_tensor_t *out;
        float y[2][C];
        options.no_bias = k == 1;
        options.no_affine = k == 2;
        ts_ok(fy_layer_group_norm(2, C, &options, &layer));
        ts_ok(fy_model_create(ctx->device, layer, FY_DIMS(C), NULL, &model));
        const fy_model_info_t info = model_info(model);
        assert_int_equal(info.nparams, 2 - k);
        ts_ok(fy_model_forward(model, ts_f32(ctx->device, FY_DIMS(2, C), x[0]), &out));
        ts_read(out, y, sizeof y);
        for (int i = 0; i < 2; i++)
            for (int c = 0; c < C; c++)
                assert_true(fabsf(y[i][c] - half[i][c] / sqrtf(half[i][c] * half[i][c] + 1e-5F)) <
                            1e-5F);
        fy_tensor_destroy(out);
        fy_model_destroy(model);
    }
}

TS_DEVICE_TEST(test_what_containers_ask)
{
    fy_layer_t *plain = batch_norm(C, FY_ACTIVATION_NONE),
               *relu = batch_norm(C, FY_ACTIVATION_RELU), *other;
    ts_ok(fy_layer_identity(&other));
    assert_true(fyt_is_plain_batch_norm(plain));
    assert_false(fyt_is_plain_batch_norm(relu));
    assert_false(fyt_is_plain_batch_norm(other));
    fy_layer_destroy(plain);
    fy_layer_destroy(relu);
    fy_layer_destroy(other);
}

TS_DEVICE_TEST(test_refusals)
{
    fy_batch_norm_options_t options = FY_BATCH_NORM_OPTIONS_INIT;
    fy_layer_t *layer;
    fy_model_t *model;
    ts_fails(fy_layer_batch_norm(0, NULL, &layer), INVALID_ARGUMENT);
    ts_fails(fy_layer_layer_norm(0, NULL, &layer), INVALID_ARGUMENT);
    ts_fails_with(fy_layer_group_norm(3, 4, NULL, &layer), INVALID_ARGUMENT,
                  "3 groups do not divide 4 channels");
    ts_fails(fy_layer_group_norm(0, 4, NULL, &layer), INVALID_ARGUMENT);
    ts_fails(fy_layer_group_norm(2, 0, NULL, &layer), INVALID_ARGUMENT);
    options.momentum = 1.5;
    ts_fails_with(fy_layer_batch_norm(4, &options, &layer), INVALID_ARGUMENT, "momentum 1.5");
    ts_fails_with(fy_model_create(ctx->device, batch_norm(C, FY_ACTIVATION_NONE), FY_DIMS(C + 1),
                                  NULL, &model),
                  SHAPE_MISMATCH, "[n, ..., 4]");
}
