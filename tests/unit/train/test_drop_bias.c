/* fy_model_options_t.drop_bias: which biases go, that they are reported, and that the training is
 * the same without them. */
#include <math.h>

#include "tests/unit/train/fixture.h"
#include "tests/unit/train/layers.h"

enum { BATCH = 6, STEPS = 4 };

static fy_model_t *open_model(ts_ctx_t *ctx, const char *name, int drop_bias, fy_dtype_t dtype)
{
    fy_model_options_t options = FY_MODEL_OPTIONS_INIT;
    options.drop_bias = drop_bias;
    options.dtype = dtype;
    return known_model(ctx->device, name, &options);
}

static int has(const fy_model_t *model, const char *name)
{
    fy_param_t param = FY_PARAM_INIT;
    return fy_model_find_param(model, name, &param) == FY_STATUS_OK;
}

/* Parameters as published without the option; with it, 64 + 256 + 512 + 1024 + 2048 fewer in
 * resnet18, whose 896 biases beside the blocks stay. */
TS_DEVICE_TEST(known_models)
{
    static const struct {
        const char *name;
        uint64_t params, dropped;
    } want[] = { { "resnet18", 11175818, 3904 },
                 { "mobilenet_v3_large", 5483032, 0 },
                 { "lenet", 129068, 0 },
                 { "mlp", 101770, 0 } };
    for (size_t i = 0; i < sizeof want / sizeof *want; i++)
        for (int drops = 0; drops < 2; drops++) {
            fy_model_t *model = open_model(ctx, want[i].name, drops, FY_DTYPE_F32);
            const fy_model_info_t info = model_info(model);
            assert_int_equal(info.dropped_params, drops ? want[i].dropped : 0);
            assert_int_equal(info.params + info.dropped_params, want[i].params);
            if (i == 0) {
                char text[16384];
                uint64_t in_layers = 0;
                for (size_t k = 0; k < fy_model_layer_count(model); k++) {
                    fy_model_layer_info_t layer = FY_MODEL_LAYER_INFO_INIT;
                    ts_ok(fy_model_layer(model, k, &layer));
                    in_layers += (uint64_t)layer.dropped_bias;
                }
                assert_int_equal(in_layers, info.dropped_params);
                assert_int_equal(has(model, "conv1.bias"), !drops);
                assert_int_equal(has(model, "layer3.1.conv2.bias"), !drops);
                assert_true(has(model, "layer2.0.downsample.bias") && has(model, "bn1.bias") &&
                            has(model, "fc.bias"));
                fy_model_describe(model, text, sizeof text);
                assert_int_equal(strstr(text, "3904 parameters of biases are dropped") != NULL,
                                 drops);
            }
            fy_model_destroy(model);
        }
}

static fy_layer_t *linear(fy_activation_t activation)
{
    fy_layer_t *layer;
    fy_linear_options_t options = FY_LINEAR_OPTIONS_INIT;
    options.activation = activation;
    ts_ok(fy_layer_linear(4, 4, &options, &layer));
    return layer;
}

/* Takes the layer; returns the dropped parameters. */
static uint64_t dropped(ts_ctx_t *ctx, fy_layer_t *layer)
{
    fy_model_options_t options = FY_MODEL_OPTIONS_INIT;
    options.drop_bias = 1;
    fy_model_t *model = new_model(ctx->device, layer, FY_DIMS(4), &options);
    const uint64_t count = model_info(model).dropped_params;
    fy_model_destroy(model);
    return count;
}

TS_DEVICE_TEST(only_a_direct_and_sole_reader_counts)
{
    fy_layer_t *layer, *residual;
    assert_int_equal(
        dropped(ctx, SEQUENCE(linear(FY_ACTIVATION_NONE), batch_norm(4, FY_ACTIVATION_NONE))), 4);
    /* across the ends of containers, and past empty ones */
    assert_int_equal(dropped(ctx, SEQUENCE(SEQUENCE(linear(FY_ACTIVATION_NONE)), sequence(0, NULL),
                                           SEQUENCE(batch_norm(4, FY_ACTIVATION_NONE),
                                                    linear(FY_ACTIVATION_NONE)))),
                     4);
    assert_int_equal(
        dropped(ctx, SEQUENCE(linear(FY_ACTIVATION_RELU), batch_norm(4, FY_ACTIVATION_NONE))), 0);
    assert_int_equal(
        dropped(ctx, SEQUENCE(batch_norm(4, FY_ACTIVATION_NONE), linear(FY_ACTIVATION_NONE))), 0);
    assert_int_equal(dropped(ctx, SEQUENCE(linear(FY_ACTIVATION_NONE), dropout(0.5),
                                           batch_norm(4, FY_ACTIVATION_NONE))),
                     0);
    /* the sum reads the first linear, too, and the norm behind reads the sum */
    ts_ok(fy_layer_residual(SEQUENCE(batch_norm(4, FY_ACTIVATION_NONE)), NULL, FY_ACTIVATION_NONE,
                            &residual));
    assert_int_equal(dropped(ctx, SEQUENCE(linear(FY_ACTIVATION_NONE), residual)), 0);
    ts_ok(fy_layer_residual(linear(FY_ACTIVATION_NONE), linear(FY_ACTIVATION_NONE),
                            FY_ACTIVATION_NONE, &residual));
    assert_int_equal(dropped(ctx, SEQUENCE(residual, batch_norm(4, FY_ACTIVATION_NONE))), 0);
    ts_ok(fy_layer_residual(SEQUENCE(linear(FY_ACTIVATION_NONE), batch_norm(4, FY_ACTIVATION_NONE)),
                            NULL, FY_ACTIVATION_RELU, &layer));
    assert_int_equal(dropped(ctx, layer), 4);
}

/* Gives `to` the values that `from` has under the same names. */
static void copy_by_name(const fy_model_t *to, const fy_model_t *from)
{
    for (size_t i = 0; i < model_info(to).nparams; i++) {
        fy_param_t into = FY_PARAM_INIT, out = FY_PARAM_INIT;
        ts_ok(fy_model_param(to, i, &into));
        ts_ok(fy_model_find_param(from, into.name, &out));
        ts_ok(fy_copy(into.value, out.value));
    }
}

/* The loss of each step of a training by SGD, in which the biases move. */
static void train(ts_ctx_t *ctx, fy_model_t *model, double losses[STEPS])
{
    const fy_model_info_t info = model_info(model);
    fy_tensor_t *rng, *x, *y, *logits, *loss;
    ts_ok(fy_rng_create(ctx->device, 4, &rng));
    ts_ok(fy_rand(rng, ts_info(info.values).dtype, FY_DIMS(BATCH, 8, 8, 1), -1, 1, &x));
    ts_ok(fy_arange(ctx->device, FY_DTYPE_I64, 0, 1, BATCH, &y));
    fy_tape_t *tape = watch(model);
    for (int i = 0; i < STEPS; i++) {
        fy_download_t *reply;
        const fy_scope_t step = fy_scope_begin("step");
        ts_ok(fy_tape_begin(tape));
        ts_ok(fy_model_forward(model, x, &logits));
        ts_ok(fy_cross_entropy(logits, y, FY_REDUCTION_MEAN, &loss));
        ts_ok(fy_model_backward(model, tape, loss, NULL));
        ts_ok(fy_axpy(info.values, -0.05, info.grads));
        ts_ok(fy_tensor_download(loss, NULL, &reply));
        ts_ok(fy_download_wait_f64(reply, FY_FOREVER, &losses[i]));
        fy_scope_end(step, 0, NULL);
    }
}

/* Two convolutions with norms behind them, pooling, a linear layer. */
static fy_model_t *make_small(ts_ctx_t *ctx, int drop_bias)
{
    fy_model_options_t options = FY_MODEL_OPTIONS_INIT;
    options.drop_bias = drop_bias;
    fy_layer_t *layer = SEQUENCE(conv3x3(1, 8), batch_norm(8, FY_ACTIVATION_RELU), conv3x3(8, 8),
                                 batch_norm(8, FY_ACTIVATION_RELU),
                                 plain_layer(fy_layer_global_avg_pool2d), fc(8, 10));
    return new_model(ctx->device, layer, FY_DIMS(8, 8, 1), &options);
}

static void expect_same(ts_ctx_t *ctx, fy_model_t *with, fy_model_t *without, const char *name)
{
    double plain[STEPS], less[STEPS], worst = 0;
    const fy_param_t bias = find_param(with, name);
    ts_ok(fy_fill(bias.value, 0.5)); /* the norm must subtract it */
    copy_by_name(without, with);
    train(ctx, with, plain);
    train(ctx, without, less);
    for (int i = 0; i < STEPS; i++) worst = fmax(worst, fabs(plain[i] / less[i] - 1));
    print_message("           losses %.6f to %.6f, equal to %.1e\n", plain[0], plain[STEPS - 1],
                  worst);
    assert_true(worst <= 1e-5 && plain[STEPS - 1] != plain[0]);
    fy_model_destroy(with);
    fy_model_destroy(without);
}

/* resnet18 in f64: its last norms have four numbers a channel here, and enlarge roundings. */
TS_DEVICE_TEST(the_trajectory_is_the_same)
{
    expect_same(ctx, make_small(ctx, 0), make_small(ctx, 1), "c.bias");
    expect_same(ctx, open_model(ctx, "resnet18:size=8", 0, FY_DTYPE_F64),
                open_model(ctx, "resnet18:size=8", 1, FY_DTYPE_F64), "layer1.0.conv1.bias");
}
