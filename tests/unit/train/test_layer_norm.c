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
    fy_layer_t *layer;
    fy_tensor_t *out;
    fy_param_t param = FY_PARAM_INIT, mean = FY_PARAM_INIT, var = FY_PARAM_INIT;
    const fy_layer_child_t child = { "bn", batch_norm(C, FY_ACTIVATION_RELU) };
    ts_ok(fy_layer_sequential(1, &child, &layer));
    fy_model_t *model = new_model(ctx->device, layer, FY_DIMS(C), NULL);
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

/* With and without weight and bias: norms of rows, also by the root of their mean square, and of
 * groups of two channels. */
TS_DEVICE_TEST(test_rows_and_groups)
{
    static const struct {
        int width, is_rms, no_bias, no_affine; /* width 0: the whole row, by its own layer */
        size_t nparams;
    } rows[] = { { 0, 0, 0, 0, 2 }, { 0, 0, 1, 0, 1 }, { 0, 0, 0, 1, 0 }, { 0, 1, 0, 0, 1 },
                 { 0, 1, 0, 1, 0 }, { 2, 0, 0, 0, 2 }, { 2, 0, 1, 0, 1 }, { 2, 0, 0, 1, 0 } };
    static const float x[2][C] = { { 1, 2, 3, 6 }, { -1, 0, 0, 5 } };
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        fy_layer_norm_options_t options = FY_LAYER_NORM_OPTIONS_INIT;
        fy_layer_t *layer;
        fy_tensor_t *out;
        float y[2][C];
        const int width = rows[k].width ? rows[k].width : C;
        options.no_bias = rows[k].no_bias;
        options.no_affine = rows[k].no_affine;
        if (rows[k].width)
            ts_ok(fy_layer_group_norm(C / width, C, &options, &layer));
        else
            ts_ok((rows[k].is_rms ? fy_layer_rms_norm : fy_layer_layer_norm)(C, &options, &layer));
        fy_model_t *model = new_model(ctx->device, layer, FY_DIMS(C), NULL);
        const fy_model_info_t info = model_info(model);
        assert_int_equal(info.nparams, rows[k].nparams);
        ts_ok(fy_model_forward(model, ts_f32(ctx->device, FY_DIMS(2, C), x[0]), &out));
        ts_read(out, y, sizeof y);
        for (int i = 0; i < 2 * C; i++) {
            const float *group = &x[i / C][i % C / width * width];
            float mean = 0, m2 = 0;
            for (int c = 0; c < width && !rows[k].is_rms; c++) mean += group[c] / (float)width;
            for (int c = 0; c < width; c++) m2 += (group[c] - mean) * (group[c] - mean);
            const float want = (x[i / C][i % C] - mean) / sqrtf(m2 / (float)width + 1e-5F);
            assert_true(fabsf(y[i / C][i % C] - want) < 1e-5F);
        }
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
