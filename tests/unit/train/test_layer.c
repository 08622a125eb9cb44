/* Layers: refusals of their makers, ownership, a layer of the user. Their values: test_model.c. */
#include "tests/unit/train/fixture.h"

TS_DEVICE_TEST(test_makers_refuse)
{
    fy_layer_t *layer;
    ts_fails(fy_layer_linear(0, 3, NULL, &layer), INVALID_ARGUMENT);
    assert_null(layer);
    fy_linear_options_t linear = FY_LINEAR_OPTIONS_INIT;
    linear.activation = (fy_activation_t)77;
    ts_fails_with(fy_layer_linear(2, 3, &linear, &layer), INVALID_ARGUMENT, "77");
    linear = (fy_linear_options_t)FY_LINEAR_OPTIONS_INIT;
    linear.weight = (fy_init_t){ FY_INIT_NORMAL, -1 };
    ts_fails_with(fy_layer_linear(2, 3, &linear, &layer), INVALID_ARGUMENT, "linear's weight");

    fy_conv2d_options_t conv = FY_CONV2D_OPTIONS_INIT;
    conv.groups = 2;
    ts_fails_with(fy_layer_conv2d(3, 4, 3, 3, &conv, &layer), INVALID_ARGUMENT,
                  "2 groups do not divide 3 inputs");
    conv.groups = 1;
    conv.stride_w = 0;
    ts_fails(fy_layer_conv2d(3, 4, 3, 3, &conv, &layer), INVALID_ARGUMENT);
    ts_fails(fy_layer_conv2d(3, 4, 3, 0, NULL, &layer), INVALID_ARGUMENT);
    ts_fails(fy_layer_dropout(1.5, &layer), INVALID_ARGUMENT);
    ts_fails(fy_layer_dropout2d(-0.1, &layer), INVALID_ARGUMENT);
    ts_fails(fy_layer_max_pool2d(NULL, &layer), INVALID_ARGUMENT);
    const fy_pool2d_attrs_t padded = { .kernel_h = 2, .kernel_w = 2, .padding_h = 2 };
    ts_fails(fy_layer_avg_pool2d(&padded, &layer), INVALID_ARGUMENT);
    fy_pool2d_attrs_t pool = { .kernel_h = 2, .kernel_w = 2, .activation = FY_ACTIVATION_TANH };
    ts_fails(fy_layer_max_pool2d(&pool, &layer), INVALID_ARGUMENT);
    pool = (fy_pool2d_attrs_t){ .kernel_h = 2, .kernel_w = 2, .ceil_mode = 2 };
    ts_fails_with(fy_layer_max_pool2d(&pool, &layer), INVALID_ARGUMENT, "ceil_mode 2");
    pool = (fy_pool2d_attrs_t){ .kernel_h = 2, .kernel_w = 2, .count_excludes_padding = -1 };
    ts_fails(fy_layer_avg_pool2d(&pool, &layer), INVALID_ARGUMENT);
    pool.count_excludes_padding = 1;
    ts_fails_with(fy_layer_max_pool2d(&pool, &layer), INVALID_ARGUMENT, "the flag is of averages");
    assert_null(layer);
    ts_fails(fy_layer_adaptive_avg_pool2d(0, 2, &layer), INVALID_ARGUMENT);
    ts_fails(fy_layer_op("matmul", &layer), INVALID_ARGUMENT);
    ts_fails(fy_layer_op("affine", &layer), INVALID_ARGUMENT);
    ts_fails_with(fy_layer_op("no_such", &layer), INVALID_ARGUMENT, "no_such");
    static const char *const tests[] = { "isnan", "logical_not" };
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) {
        ts_fails_with(fy_layer_op(tests[i], &layer), INVALID_ARGUMENT,
                      "' is bool and has no gradient", tests[i]);
        assert_null(layer);
    }
    ts_fails(fy_layer_flatten(NULL), INVALID_ARGUMENT);
}

/* A layer's shape is that of its result: a forward of another shape would be refused. */
TS_DEVICE_TEST(test_sizes_of_pooling_layers)
{
    static const int32_t rows[][6] = { /* height, kernel, stride, padding, floored, ceiled */
                                       { 6, 3, 2, 0, 2, 3 }, { 7, 3, 2, 0, 3, 3 },
                                       { 4, 2, 3, 1, 2, 2 }, { 2, 3, 2, 0, 0, 1 },
                                       { 1, 3, 2, 0, 0, 0 }, { 6, 3, 0, 1, 2, 3 }
    };
    for (size_t i = 0; i < 2 * sizeof rows / sizeof *rows; i++) {
        const int32_t *row = rows[i / 2];
        const fy_pool2d_attrs_t attrs = { .kernel_h = row[1],
                                          .kernel_w = 1,
                                          .stride_h = row[2],
                                          .padding_h = row[3],
                                          .ceil_mode = i % 2 };
        fy_layer_t *layer;
        fy_model_t *model;
        fy_tensor_t *x, *y;
        const int64_t want = row[4 + i % 2];
        ts_ok(fy_layer_max_pool2d(&attrs, &layer));
        if (!want) {
            ts_fails(fy_model_create(ctx->device, layer, FY_DIMS(row[0], 2, 3), NULL, &model),
                     SHAPE_MISMATCH);
            continue;
        }
        ts_ok(fy_model_create(ctx->device, layer, FY_DIMS(row[0], 2, 3), NULL, &model));
        const fy_model_info_t info = model_info(model);
        assert_int_equal(info.out_dims[0], want);
        ts_ok(fy_zeros(ctx->device, FY_DTYPE_F32, FY_DIMS(1, row[0], 2, 3), &x));
        ts_ok(fy_model_forward(model, x, &y));
        assert_int_equal(ts_info(y).dims[1], want);
        fy_model_destroy(model);
    }
}

static int destroyed;
static void count_destroy(void *user)
{
    (void)user;
    destroyed++;
}
static fy_status_t pass_shape(void *user, int rank, const int64_t *dims, int *out_rank,
                              int64_t *out_dims, uint64_t *out_macs)
{
    (void)user;
    *out_rank = rank;
    memcpy(out_dims, dims, (size_t)rank * sizeof *dims);
    *out_macs = 7;
    return FY_STATUS_OK;
}
/* y = x * gain, with a parameter of one element. */
static fy_status_t gain_forward(void *user, const fy_pass_t *pass, fy_tensor_t *const *params,
                                fy_tensor_t *x, fy_tensor_t **out_y)
{
    (void)user, (void)pass;
    return fy_mul(x, params[0], out_y);
}
static const fy_layer_param_t gain_param = { "gain", 1, { 1 }, 0, 0, { FY_INIT_CONSTANT, 3 } };
static const fy_layer_def_t gain_def = { sizeof gain_def, "gain",       1, &gain_param, pass_shape,
                                         gain_forward,    count_destroy };

static fy_layer_t *gain(void)
{
    fy_layer_t *layer;
    ts_ok(fy_layer_create(&gain_def, NULL, &layer));
    return layer;
}

/* The maker of a layer, a sequential or a model takes ownership of its parts, also when it
 * fails. */
TS_DEVICE_TEST(test_makers_take_ownership)
{
    fy_layer_t *layer, *first;
    fy_model_t *model;
    destroyed = 0;
    fy_layer_destroy(gain());
    assert_int_equal(destroyed, 1);
    fy_layer_destroy(NULL);

    fy_layer_def_t def = gain_def;
    def.forward = NULL;
    ts_fails(fy_layer_create(&def, NULL, &layer), INVALID_ARGUMENT);
    assert_int_equal(destroyed, 2);
    fy_layer_param_t dotted = gain_param;
    dotted.name = "a.b";
    def = gain_def;
    def.params = &dotted;
    ts_fails(fy_layer_create(&def, NULL, &layer), INVALID_ARGUMENT);
    assert_int_equal(destroyed, 3);

    const fy_layer_child_t twice[] = { { "a", gain() }, { "a", gain() } };
    ts_fails_with(fy_layer_sequential(2, twice, &layer), INVALID_ARGUMENT, "both called 'a'");
    assert_int_equal(destroyed, 5);
    ts_fails(fy_layer_dropout(2, &first), INVALID_ARGUMENT);
    const fy_layer_child_t failed[] = { { "a", gain() }, { "drop", first } };
    ts_fails_with(fy_layer_sequential(2, failed, &layer), INVALID_ARGUMENT, "'drop'",
                  "p is 2"); /* what the maker had to say */
    assert_int_equal(destroyed, 6);
    first = gain();
    const fy_layer_child_t same[] = { { "a", first }, { "b", first } };
    ts_fails_with(fy_layer_sequential(2, same, &layer), INVALID_ARGUMENT,
                  "layer_sequential: layer 0 ('a') and layer 1 ('b') are the same object");
    assert_int_equal(destroyed, 7);

    first = gain();
    const fy_layer_child_t good[] = { { "a", first } };
    ts_ok(fy_layer_sequential(1, good, &layer));
    fy_layer_destroy(first); /* the sequential owns it: no effect */
    assert_int_equal(destroyed, 7);
    fy_layer_t *outer;
    const fy_layer_child_t again[] = { { "x", first }, { "y", gain() } };
    ts_fails_with(fy_layer_sequential(2, again, &outer), INVALID_ARGUMENT,
                  "layer 0 ('x') is already layer 0 ('a') of a sequential");
    assert_int_equal(destroyed, 8);

    ts_fails(fy_model_create(NULL, layer, FY_DIMS(4), NULL, &model), INVALID_ARGUMENT);
    assert_int_equal(destroyed, 9);
    ts_ok(fy_model_create(ctx->device, gain(), FY_DIMS(4), NULL, &model));
    fy_model_destroy(model);
    assert_int_equal(destroyed, 10);
}

/* One object in two places of a tree: both places are named, and each layer is freed once. */
TS_DEVICE_TEST(test_one_layer_twice)
{
    fy_layer_t *layer, *first, *inner;
    destroyed = 0;
    first = gain();
    const fy_layer_child_t branches[] = { { "", first }, { "", gain() }, { "", first } };
    ts_fails_with(fy_layer_branches(FY_JOIN_ADD, 3, branches, FY_ACTIVATION_NONE, &layer),
                  INVALID_ARGUMENT,
                  "layer_branches: layer 0 ('') and layer 2 ('') are the same object");
    assert_int_equal(destroyed, 2);
    first = gain();
    ts_fails_with(fy_layer_residual(first, first, FY_ACTIVATION_NONE, &layer), INVALID_ARGUMENT,
                  "layer_residual: body and shortcut are the same object");
    assert_int_equal(destroyed, 3);
    first = gain();
    const fy_layer_child_t one[] = { { "one", first } };
    ts_ok(fy_layer_sequential(1, one, &inner));
    ts_fails_with(fy_layer_residual(inner, first, FY_ACTIVATION_NONE, &layer), INVALID_ARGUMENT,
                  "layer_residual: shortcut is already layer 0 ('one') of a sequential");
    assert_int_equal(destroyed, 4);

    first = gain();
    fy_model_t *model = new_model(ctx->device, first, FY_DIMS(4), NULL);
    const fy_layer_child_t taken[] = { { "a", first } };
    ts_fails_with(fy_layer_sequential(1, taken, &layer), INVALID_ARGUMENT,
                  "layer 0 ('a') is already the layer of a model");
    fy_model_t *second;
    ts_fails_with(fy_model_create(ctx->device, first, FY_DIMS(4), NULL, &second), INVALID_ARGUMENT,
                  "the layer (gain) is already the layer of a model");
    fy_model_destroy(model);
    assert_int_equal(destroyed, 5);
}

TS_DEVICE_TEST(test_a_layer_of_the_user)
{
    fy_layer_t *inner, *outer;
    fy_tensor_t *y;
    const fy_layer_child_t children[] = { { "first", gain() }, { "second", gain() } };
    ts_ok(fy_layer_sequential(2, children, &inner));
    const fy_layer_child_t whole[] = { { "block", inner }, { "last", gain() } };
    ts_ok(fy_layer_sequential(2, whole, &outer));
    fy_model_t *model = new_model(ctx->device, outer, FY_DIMS(2), NULL);
    fy_param_t param = nth_param(model, 1);
    assert_string_equal(param.name, "block.second.gain");
    ts_fails_with(fy_model_find_param(model, "block.secnd.gain", &param), INVALID_ARGUMENT,
                  "near that: block.second.gain");
    ts_fails(fy_model_param(model, 3, &param), INVALID_ARGUMENT);
    const fy_model_info_t info = model_info(model);
    assert_int_equal(info.params, 3);
    assert_int_equal(info.macs, 21);
    ts_ok(fy_model_forward(model, ts_f32(ctx->device, FY_DIMS(1, 2), (float[]){ 1, -2 }), &y));
    ts_expect_f32(y, (float[]){ 27, -54 }, 2);
    fy_model_destroy(model);
}

static fy_status_t first_row(void *user, const fy_pass_t *pass, fy_tensor_t *const *params,
                             fy_tensor_t *x, fy_tensor_t **out_y)
{
    (void)user, (void)pass, (void)params;
    return fy_slice(x, 0, 0, 1, out_y);
}

/* The result of a forward must have the shape that the shape function gave. */
TS_DEVICE_TEST(test_a_forward_of_another_shape_is_refused)
{
    fy_layer_def_t def = gain_def;
    fy_layer_t *layer;
    fy_tensor_t *y, *x = ts_f32(ctx->device, FY_DIMS(2, 2), (float[]){ 1, 2, 3, 4 });
    def.forward = first_row;
    ts_ok(fy_layer_create(&def, NULL, &layer));
    fy_model_t *model = new_model(ctx->device, layer, FY_DIMS(2), NULL);
    ts_fails_with(fy_model_forward(model, x, &y), SHAPE_MISMATCH, "(gain)");
    assert_null(y);
    fy_tensor_destroy(x);
    x = ts_f32(ctx->device, FY_DIMS(1, 2), (float[]){ 1, 2 });
    ts_ok(fy_model_forward(model, x, &y));
    fy_model_destroy(model);
}
