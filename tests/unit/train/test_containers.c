/* Containers: branches, residual blocks, squeeze-and-excitation, transformer blocks, tied weights:
 * values, gradients, names, handles that two branches share, refusals; and each allocation of them
 * fails once. */
#include "tests/unit/train/fixture.h"
#include "tests/unit/train/layers.h"
#include "tests/support/sweep.h"

#include <pthread.h>

/* [n, in] -> [n, out], weights `weight`, no bias. */
static fy_layer_t *linear(int64_t in, int64_t out, double weight)
{
    fy_layer_t *layer;
    fy_linear_options_t options = FY_LINEAR_OPTIONS_INIT;
    options.no_bias = 1;
    options.weight = (fy_init_t){ FY_INIT_CONSTANT, weight };
    return fy_layer_linear(in, out, &options, &layer) == FY_STATUS_OK ? layer : NULL;
}

static void expect_forward(fy_model_t *model, fy_tensor_t *x, const float *want, int64_t count)
{
    fy_tensor_t *y;
    ts_ok(fy_model_forward(model, x, &y));
    ts_expect_f32(y, want, count);
}

/* `depth` containers in one another. */
static fy_status_t nest(int depth, fy_layer_t **out_layer)
{
    fy_layer_t *layer = linear(1, 1, 2);
    fy_status_t status = FY_STATUS_OK;
    for (int i = 0; i < depth && status == FY_STATUS_OK; i++) {
        const fy_layer_child_t child = { "", layer };
        status = i % 2 ? fy_layer_residual(layer, NULL, FY_ACTIVATION_NONE, &layer)
                       : fy_layer_sequential(1, &child, &layer);
    }
    *out_layer = status == FY_STATUS_OK ? layer : NULL;
    return status;
}

static void *use_deepest(void *device)
{
    fy_layer_t *layer;
    fy_model_t *model;
    fy_tensor_t *y;
    const fy_scope_t scope = fy_scope_begin("deepest");
    ts_ok(nest(256, &layer));
    ts_ok(fy_model_create(device, layer, 1, (int64_t[]){ 1 }, NULL, &model));
    ts_ok(fy_model_forward(model, ts_f32(device, FY_DIMS(1, 1), (float[]){ 0 }), &y));
    fy_model_destroy(model);
    fy_scope_end(scope, 0, NULL);
    return NULL;
}

/* The deepest layer works on a thread with a small stack; one more container is refused. */
TS_DEVICE_TEST(test_depth)
{
    fy_layer_t *layer;
    ts_fails_with(nest(257, &layer), INVALID_ARGUMENT, "has 256 containers in one another");
    ts_fails_with(nest(10000, &layer), INVALID_ARGUMENT, "has 256 containers in one another");
#ifdef __SANITIZE_THREAD__ /* its frames need more stack */
    (void)use_deepest;
#else
    pthread_t thread;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 1 << 20);
    assert_int_equal(pthread_create(&thread, &attributes, use_deepest, ctx->device), 0);
    pthread_join(thread, NULL);
    pthread_attr_destroy(&attributes);
#endif
}

TS_DEVICE_TEST(test_joins)
{
    fy_tensor_t *x = ts_f32(ctx->device, FY_DIMS(1, 2), (float[]){ 1, -3 });
    const struct {
        fy_join_t join;
        fy_activation_t activation;
        const char *type;
        int64_t count;
        float want[6];
    } cases[] = {
        /* x; 2 (1 - 3) = -4 in both columns; relu(x) */
        { FY_JOIN_ADD, FY_ACTIVATION_NONE, "add", 2, { -2, -7 } },
        { FY_JOIN_ADD, FY_ACTIVATION_RELU, "add", 2, { 0, 0 } },
        { FY_JOIN_MUL, FY_ACTIVATION_NONE, "mul", 2, { -4, 0 } },
        { FY_JOIN_CONCAT, FY_ACTIVATION_RELU, "concat", 6, { 1, 0, 0, 0, 1, 0 } },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const fy_layer_child_t branches[] = { { "", identity() },
                                              { "fc", linear(2, 2, 2) },
                                              { "act", op_layer("relu") } };
        fy_layer_t *layer;
        char table[2048];
        ts_ok(fy_layer_branches(cases[i].join, 3, branches, cases[i].activation, &layer));
        fy_model_t *model = new_model(ctx->device, layer, FY_DIMS(2), NULL);
        expect_forward(model, x, cases[i].want, cases[i].count);
        fy_model_describe(model, table, sizeof table);
        assert_non_null(strstr(table, cases[i].type));
        fy_model_destroy(model);
    }
}

/* Shapes broadcast in sums and products, in either direction. */
TS_DEVICE_TEST(test_joins_broadcast)
{
    fy_tensor_t *x = ts_f32(ctx->device, FY_DIMS(1, 2), (float[]){ 1, 3 });
    for (int flip = 0; flip < 2; flip++) {
        fy_layer_t *layer;
        const fy_layer_child_t wide = { "wide", linear(2, 2, 1) }, one = { "one", linear(2, 1, 2) };
        const fy_layer_child_t branches[] = { flip ? one : wide, flip ? wide : one };
        ts_ok(fy_layer_branches(FY_JOIN_MUL, 2, branches, FY_ACTIVATION_NONE, &layer));
        fy_model_t *model = new_model(ctx->device, layer, FY_DIMS(2), NULL);
        expect_forward(model, x, (float[]){ 32, 32 }, 2);
        fy_model_destroy(model);
    }
}

/* Layers that return their input: two branches hold one handle, also that of the model's input. */
TS_DEVICE_TEST(test_shared_handles)
{
    fy_tensor_t *x = ts_f32(ctx->device, FY_DIMS(1, 2), (float[]){ 1, -3 });
    fy_layer_t *both, *inner, *outer;
    const fy_layer_child_t same[] = { { "", identity() }, { "drop", dropout(0.5) } };
    ts_ok(fy_layer_branches(FY_JOIN_ADD, 2, same, FY_ACTIVATION_NONE, &both));
    fy_model_t *model = new_model(ctx->device, both, FY_DIMS(2), NULL);
    fy_model_set_training(model, 0);
    expect_forward(model, x, (float[]){ 2, -6 }, 2);
    ts_expect_f32(x, (float[]){ 1, -3 }, 2);
    fy_model_destroy(model);

    /* relu's result is read by four branches, two of which return it; then again by one */
    const fy_layer_child_t four[] = { { "", identity() },
                                      { "", SEQUENCE(identity(), dropout(0.5)) },
                                      { "", op_layer("neg") },
                                      { "fc", SEQUENCE(dropout(0.5), linear(2, 2, 1)) } };
    ts_ok(fy_layer_branches(FY_JOIN_ADD, 4, four, FY_ACTIVATION_NONE, &inner));
    ts_ok(fy_layer_residual(inner, NULL, FY_ACTIVATION_NONE, &outer));
    model = new_model(ctx->device, SEQUENCE(op_layer("relu"), outer), FY_DIMS(2), NULL);
    fy_model_set_training(model, 0);
    expect_forward(model, x, (float[]){ 1 + 1 - 1 + 1 + 1, 1 }, 2);
    fy_model_destroy(model);

    /* identities only: a separate handle of x */
    fy_tensor_t *y;
    model = new_model(ctx->device, SEQUENCE(identity(), identity()), FY_DIMS(2), NULL);
    ts_ok(fy_model_forward(model, x, &y));
    assert_ptr_not_equal(x, y);
    ts_expect_f32(y, (float[]){ 1, -3 }, 2);
    fy_model_destroy(model);
}

/* d/dx sum(relu(w x + x)) and the names of the parameters, with a shortcut that has one. */
TS_DEVICE_TEST(test_residual)
{
    fy_layer_t *layer;
    fy_tensor_t *x = ts_f32(ctx->device, FY_DIMS(1, 2), (float[]){ 1, -3 }), *y, *loss;
    ts_ok(fy_layer_residual(SEQUENCE(linear(2, 2, 1), op_layer("neg")), linear(2, 2, 3),
                            FY_ACTIVATION_RELU, &layer));
    fy_model_t *model = new_model(ctx->device, SEQUENCE(layer, identity()), FY_DIMS(2), NULL);
    fy_param_t param = nth_param(model, 0);
    assert_string_equal(param.name, "a.a.weight");
    param = nth_param(model, 1);
    assert_string_equal(param.name, "a.downsample.weight");
    fy_tape_t *tape = watch(model);
    /* 2 in front of x: -(1 - 3) + 3 (1 - 3) = -4, relu 0; so use -x */
    ts_ok(fy_neg(x, &x));
    ts_ok(fy_tape_begin(tape));
    ts_ok(fy_model_forward(model, x, &y));
    ts_expect_f32(y, (float[]){ 4, 4 }, 2);
    ts_ok(fy_sum(y, FY_ALL_AXES, 0, &loss));
    ts_ok(fy_model_backward(model, tape, loss, NULL));
    ts_expect_f32(param.grad, (float[]){ -1, 3, -1, 3 }, 4);
    param = nth_param(model, 0);
    ts_expect_f32(param.grad, (float[]){ 1, -3, 1, -3 }, 4);
    fy_model_destroy(model);
}

/* x * hardsigmoid(fc2(relu(fc1(mean)))), with weights that make each factor known. */
TS_DEVICE_TEST(test_squeeze_excite)
{
    const fy_init_t one = { FY_INIT_CONSTANT, 1 }, none = { FY_INIT_CONSTANT, 0 };
    fy_layer_t *layer;
    fy_tensor_t *y;
    ts_ok(fy_layer_squeeze_excite(2, 1, "hardsigmoid", one, none, &layer));
    fy_model_t *model = new_model(ctx->device, layer, FY_DIMS(1, 2, 2), NULL);
    fy_param_t param = nth_param(model, 0);
    assert_string_equal(param.name, "fc1.weight");
    assert_int_equal(ts_info(param.value).rank, 4);
    param = nth_param(model, 3);
    assert_string_equal(param.name, "fc2.bias");
    /* means 1 and 0: fc1 1, fc2 1 and 1: (1 + 3) / 6 */
    fy_tensor_t *x = ts_f32(ctx->device, FY_DIMS(1, 1, 2, 2), (float[]){ 3, 6, -1, -6 });
    ts_ok(fy_model_forward(model, x, &y));
    const float f = 4.0f / 6;
    ts_expect_f32(y, (float[]){ 3 * f, 6 * f, -1 * f, -6 * f }, 4);
    fy_model_destroy(model);
    ts_fails_with(fy_layer_squeeze_excite(2, 1, "no_such", one, none, &layer), INVALID_ARGUMENT,
                  "layer_squeeze_excite: scale_op 'no_such'; it is \"sigmoid\" or \"hardsigmoid\"");
    ts_fails_with(fy_layer_squeeze_excite(2, 1, "isnan", one, none, &layer), INVALID_ARGUMENT,
                  "scale_op 'isnan'");
    ts_fails(fy_layer_squeeze_excite(2, 1, "log", one, none, &layer), INVALID_ARGUMENT);
    ts_fails(fy_layer_squeeze_excite(2, 1, NULL, one, none, &layer), INVALID_ARGUMENT);
    assert_null(layer);
    ts_fails_with(fy_layer_squeeze_excite(2, 0, "sigmoid", one, none, &layer), INVALID_ARGUMENT,
                  "layer_squeeze_excite: layer 1 ('fc1') is NULL");
}

static fy_status_t try_tied(fy_device_t *device, const char *name, fy_model_t **out_model)
{
    fy_layer_t *tied, *all;
    fy_layer_t *last = fy_layer_tied_linear(2, 2, name, &tied) == FY_STATUS_OK ? tied : NULL;
    const fy_layer_child_t children[] = { { "wte", linear(2, 2, 2) }, { "head", last } };
    FY_TRY(fy_layer_sequential(2, children, &all));
    return fy_model_create(device, all, FY_DIMS(2), NULL, out_model);
}

/* y = W W x, with W all 2: both uses add to one gradient. */
TS_DEVICE_TEST(test_tied_weights)
{
    fy_model_t *model;
    fy_tensor_t *x = ts_f32(ctx->device, FY_DIMS(1, 2), (float[]){ 1, 2 }), *y, *loss;
    ts_ok(try_tied(ctx->device, "wte.weight", &model));
    const fy_model_info_t info = model_info(model);
    assert_int_equal(info.params, 4);
    assert_int_equal(info.macs, 8);
    fy_tape_t *tape = watch(model);
    ts_ok(fy_tape_begin(tape));
    ts_ok(fy_model_forward(model, x, &y));
    ts_expect_f32(y, (float[]){ 24, 24 }, 2);
    ts_ok(fy_sum(y, FY_ALL_AXES, 0, &loss));
    ts_ok(fy_model_backward(model, tape, loss, NULL));
    fy_param_t param = nth_param(model, 0);
    /* as head: 6 each; as wte: 4 x */
    ts_expect_f32(param.grad, (float[]){ 10, 14, 10, 14 }, 4);
    fy_model_destroy(model);

    ts_fails_with(try_tied(ctx->device, "wte.wait", &model), INVALID_ARGUMENT,
                  "layer 'head' (tied_linear): the model has no parameter 'wte.wait'");
    fy_layer_t *tied;
    ts_fails(fy_layer_tied_linear(2, 2, NULL, &tied), INVALID_ARGUMENT);
    ts_fails(fy_layer_tied_linear(0, 2, "w", &tied), INVALID_ARGUMENT);
    ts_ok(fy_layer_tied_linear(2, 3, "fc.weight", &tied));
    fy_layer_t *all;
    const fy_layer_child_t children[] = { { "fc", linear(2, 2, 2) }, { "head", tied } };
    ts_ok(fy_layer_sequential(2, children, &all));
    ts_fails_with(fy_model_create(ctx->device, all, FY_DIMS(2), NULL, &model), SHAPE_MISMATCH,
                  "[3, 2]");
}

/* Tokens and positions: values and both gradients; memory of the gradient is that of the table, not
 * tokens times rows. */
TS_DEVICE_TEST(test_embedding)
{
    enum { ROWS = 20000, TOKENS = 500 };
    const fy_embedding_options_t two = { sizeof two, { FY_INIT_CONSTANT, 2 } },
                                 three = { sizeof three, { FY_INIT_CONSTANT, 3 } };
    fy_layer_t *tokens, *positions, *all;
    fy_param_t weight = FY_PARAM_INIT;
    fy_tensor_t *x, *y, *loss;
    ts_ok(fy_layer_embedding(ROWS, 4, &two, &tokens));
    ts_ok(fy_layer_position_embedding(TOKENS, 4, &three, &positions));
    const fy_layer_child_t children[] = { { "wte", tokens }, { "wpe", positions } };
    ts_ok(fy_layer_sequential(2, children, &all));
    fy_model_t *model = new_model(ctx->device, all, FY_DIMS(TOKENS), NULL);
    ts_ok(fy_zeros(ctx->device, FY_DTYPE_I32, FY_DIMS(2, TOKENS), &x));
    fy_tape_t *tape = watch(model);
    fy_memory_stats_t stats = FY_MEMORY_STATS_INIT;
    ts_ok(fy_tape_begin(tape));
    ts_ok(fy_model_forward(model, x, &y));
    assert_int_equal(ts_info(y).rank, 3);
    ts_ok(fy_sum(y, FY_ALL_AXES, 0, &loss));
    ts_expect_f32(loss, (float[]){ 5 * 2 * TOKENS * 4 }, 1);
    ts_ok(fy_model_backward(model, tape, loss, NULL));
    ts_ok(fy_memory_query(ctx->device, NULL, &stats));
    assert_in_range(stats.peak_live, 1, 4 * ROWS * 4 * sizeof(float));
    ts_ok(fy_model_find_param(model, "wte.weight", &weight));
    fy_tensor_t *head;
    ts_ok(fy_slice(weight.grad, 0, 0, 2, &head));
    ts_expect_f32(head, (float[]){ 1000, 1000, 1000, 1000, 0, 0, 0, 0 }, 8);
    ts_ok(fy_model_find_param(model, "wpe.weight", &weight));
    ts_ok(fy_slice(weight.grad, 0, TOKENS - 1, TOKENS, &head));
    ts_expect_f32(head, (float[]){ 2, 2, 2, 2 }, 4);
    fy_model_destroy(model);
    ts_fails(fy_layer_embedding(0, 4, NULL, &tokens), INVALID_ARGUMENT);
    ts_fails(fy_layer_position_embedding(2, 0, NULL, &tokens), INVALID_ARGUMENT);
    ts_ok(fy_layer_position_embedding(2, 4, NULL, &positions));
    ts_fails_with(fy_model_create(ctx->device, positions, FY_DIMS(3, 4), NULL, &model),
                  SHAPE_MISMATCH, "[n, 1 to 2, 4]");
}

/* Patches become rows behind the class token, which the model then selects: values and gradient. */
TS_DEVICE_TEST(test_class_token)
{
    const fy_embedding_options_t seven = { sizeof seven, { FY_INIT_CONSTANT, 7 } };
    fy_layer_t *token, *select;
    fy_model_t *model;
    fy_tensor_t *x, *y, *loss;
    ts_ok(fy_layer_class_token(2, &seven, &token));
    model = new_model(ctx->device, token, FY_DIMS(2, 1, 2), NULL);
    const fy_param_t param = find_param(model, "cls_token");
    assert_int_equal(ts_info(param.value).rank, 3);
    x = ts_f32(ctx->device, 4, (int64_t[]){ 2, 2, 1, 2 }, (float[]){ 0, 1, 2, 3, 4, 5, 6, 7 });
    fy_tape_t *tape = watch(model);
    ts_ok(fy_tape_begin(tape));
    ts_ok(fy_model_forward(model, x, &y));
    ts_expect_f32(y, (float[]){ 7, 7, 0, 1, 2, 3, 7, 7, 4, 5, 6, 7 }, 12);
    ts_ok(fy_mul(y, y, &loss));
    ts_ok(fy_sum(loss, FY_ALL_AXES, 0, &loss));
    ts_ok(fy_model_backward(model, tape, loss, NULL));
    ts_expect_f32(param.grad, (float[]){ 28, 28 }, 2); /* 2 * 7 of each sample */
    fy_model_destroy(model);

    ts_ok(fy_layer_class_token(2, &seven, &token));
    ts_ok(fy_layer_select(1, 2, &select));
    model = new_model(ctx->device, SEQUENCE(token, select), FY_DIMS(2, 1, 2), NULL);
    ts_ok(fy_model_forward(model, x, &y));
    ts_expect_f32(y, (float[]){ 2, 3, 6, 7 }, 4);
    fy_model_destroy(model);

    ts_fails(fy_layer_class_token(0, NULL, &token), INVALID_ARGUMENT);
    ts_fails(fy_layer_select(0, 1, &select), INVALID_ARGUMENT);
    ts_fails(fy_layer_select(1, -1, &select), INVALID_ARGUMENT);
    ts_ok(fy_layer_class_token(3, NULL, &token));
    ts_fails_with(fy_model_create(ctx->device, token, FY_DIMS(3, 4), NULL, &model), SHAPE_MISMATCH,
                  "[n, ..., T, 3]");
    ts_ok(fy_layer_select(1, 3, &select));
    ts_fails_with(fy_model_create(ctx->device, select, FY_DIMS(3, 4), NULL, &model), SHAPE_MISMATCH,
                  "number 3 of axis 1");
}

/* Layers run one by one give the result of the whole model; a sum that computes a batch norm has
 * that norm's input. */
TS_DEVICE_TEST(test_layers_one_by_one)
{
    fy_tensor_t *x, *y, *results[64] = { NULL }, *inputs[16];
    fy_model_layer_info_t info = FY_MODEL_LAYER_INFO_INIT;
    size_t fused = 0, last = 0;
    fy_model_t *model = known_model(ctx->device, "resnet18:size=8", NULL);
    fy_model_set_training(model, 0);
    ts_ok(fy_full(ctx->device, FY_DTYPE_F32, FY_DIMS(2, 8, 8, 1), 0.5, &x));
    ts_ok(fy_model_forward(model, x, &y));
    const size_t count = fy_model_layer_count(model);
    assert_in_range(count, 40, 64);
    for (size_t i = 0; i < count; i++) {
        ts_ok(fy_model_layer(model, i, &info));
        fused += info.is_fused != 0;
        if (info.is_fused) {
            assert_string_equal(info.type, "batch_norm");
            ts_fails(fy_model_layer_forward(model, i, &x, &results[i]), INVALID_ARGUMENT);
            continue;
        }
        assert_int_equal(info.norm != SIZE_MAX, strcmp(info.type, "add") == 0);
        for (size_t j = 0; j < info.ninputs; j++)
            inputs[j] = info.inputs[j] == SIZE_MAX ? x : results[info.inputs[j]];
        ts_ok(fy_model_layer_forward(model, i, inputs, &results[i]));
        assert_int_equal(ts_info(results[i]).rank, info.out_rank + 1);
        last = i;
    }
    assert_int_equal(fused, 8);
    assert_string_equal(info.name, "fc");
    float want[20], got[20];
    ts_read(y, want, sizeof want);
    ts_read(results[last], got, sizeof got);
    assert_memory_equal(got, want, sizeof want);
    ts_fails(fy_model_layer(model, count, &info), INVALID_ARGUMENT);
    ts_fails(fy_model_layer_forward(model, count, &x, &y), INVALID_ARGUMENT);
    ts_fails_with(fy_model_layer_forward(model, last, &x, &y), SHAPE_MISMATCH,
                  "layer 'fc' (linear): input 0 is [n, 512]");
    fy_model_destroy(model);
    assert_int_equal(fy_model_layer_count(NULL), 0);
    ts_ok(
        fy_model_open(ctx->device, "gpt:layers=1,heads=1,width=4,context=2,vocab=8", NULL, &model));
    ts_ok(fy_model_layer(model, fy_model_layer_count(model) - 1, &info));
    assert_string_equal(info.type, "tied_linear");
    assert_int_equal(info.tied_param, 0);
    fy_model_destroy(model);
}

/* Parameter `name` of the model. */
static fy_tensor_t *value_of(const fy_model_t *model, const char *name)
{
    const fy_param_t param = find_param(model, name);
    return param.value;
}

/* The block by single ops, with the exact gelu. */
static fy_tensor_t *block_by_ops(const fy_model_t *m, fy_tensor_t *x)
{
    enum { N = 2, T = 3, WIDTH = 4, HEADS = 2 };
    const fy_attention_attrs_t causal = { 0, 1 };
    fy_tensor_t *norm, *parts, *part[3], *y, *z;
    ts_ok(fy_layer_norm(x, value_of(m, "ln_1.weight"), value_of(m, "ln_1.bias"), 1e-5, &norm, NULL,
                        NULL));
    ts_ok(fy_linear(norm, value_of(m, "attn.c_attn.weight"), value_of(m, "attn.c_attn.bias"),
                    FY_ACTIVATION_NONE, &parts));
    ts_ok(fy_reshape(parts, FY_DIMS(N, T, 3, HEADS, WIDTH / HEADS), &parts));
    for (int i = 0; i < 3; i++) {
        ts_ok(fy_slice(parts, 2, i, i + 1, &part[i]));
        ts_ok(fy_squeeze(part[i], 2, &part[i]));
    }
    ts_ok(fy_scaled_dot_product_attention(part[0], part[1], part[2], NULL, &causal, &y, NULL));
    ts_ok(fy_reshape(y, FY_DIMS(N, T, WIDTH), &y));
    ts_ok(fy_linear(y, value_of(m, "attn.c_proj.weight"), value_of(m, "attn.c_proj.bias"),
                    FY_ACTIVATION_NONE, &y));
    ts_ok(fy_add(x, y, &y));
    ts_ok(fy_layer_norm(y, value_of(m, "ln_2.weight"), value_of(m, "ln_2.bias"), 1e-5, &norm, NULL,
                        NULL));
    ts_ok(fy_linear(norm, value_of(m, "mlp.c_fc.weight"), value_of(m, "mlp.c_fc.bias"),
                    FY_ACTIVATION_NONE, &z));
    ts_ok(fy_gelu(z, &z));
    ts_ok(fy_linear(z, value_of(m, "mlp.c_proj.weight"), value_of(m, "mlp.c_proj.bias"),
                    FY_ACTIVATION_NONE, &z));
    ts_ok(fy_add(y, z, &y));
    return y;
}

TS_DEVICE_TEST(test_transformer_block)
{
    float got[24], want[24];
    fy_tensor_t *rng, *x, *y;
    fy_layer_t *layer;
    fy_transformer_options_t options = FY_TRANSFORMER_OPTIONS_INIT;
    options.is_causal = 1;
    options.is_exact_gelu = 1;
    options.hidden = 6;
    ts_ok(fy_layer_transformer_block(4, 2, &options, &layer));
    fy_model_t *model = new_model(ctx->device, layer, FY_DIMS(3, 4), NULL);
    const fy_model_info_t info = model_info(model);
    assert_int_equal(info.params, 2 * 8 + (12 * 4 + 12) + (4 * 4 + 4) + (6 * 4 + 6) + (4 * 6 + 4));
    ts_ok(fy_rng_create(ctx->device, 3, &rng));
    ts_ok(fy_randn(rng, FY_DTYPE_F32, FY_DIMS(2, 3, 4), 0, 1, &x));
    ts_ok(fy_model_forward(model, x, &y));
    ts_read(y, got, sizeof got);
    ts_read(block_by_ops(model, x), want, sizeof want);
    assert_memory_equal(got, want, sizeof got);
    fy_model_destroy(model);
    ts_fails_with(fy_layer_transformer_block(4, 3, NULL, &layer), INVALID_ARGUMENT,
                  "layer_transformer_block: 3 heads do not divide width 4");
    assert_null(layer);
    ts_fails_with(fy_layer_transformer_block(INT64_MAX, 1, NULL, &layer), INVALID_ARGUMENT,
                  "width 9223372036854775807; it is at most 2305843009213693951");
    ts_fails_with(fy_layer_attention(4, 0, NULL, &layer), INVALID_ARGUMENT,
                  "layer_attention: width 4, heads 0; both must be 1 or more");
    options.hidden = -1;
    ts_fails_with(fy_layer_transformer_block(4, 2, &options, &layer), INVALID_ARGUMENT,
                  "hidden is -1");
}

static void *refuse_first(void *arg)
{
    fy_layer_t *layer;
    if (fy_layer_residual(NULL, NULL, FY_ACTIVATION_NONE, &layer) == FY_STATUS_INVALID_ARGUMENT)
        snprintf(arg, sizeof fy_error_get()->text, "%s", fy_error_get()->text);
    return NULL;
}

/* On a thread without a failure before. */
TS_DEVICE_TEST(test_null_without_a_failure)
{
    char text[sizeof fy_error_get()->text] = "";
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, refuse_first, text), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_string_equal(text, "layer_residual: body is NULL; no call has failed on this thread");
}

TS_DEVICE_TEST(test_refusals)
{
    fy_layer_t *layer;
    fy_model_t *model;
    const fy_layer_child_t one[] = { { "a", identity() } };
    ts_fails_with(fy_layer_branches((fy_join_t)9, 1, one, FY_ACTIVATION_NONE, &layer),
                  INVALID_ARGUMENT, "no join 9");
    assert_null(layer);
    const fy_layer_child_t two[] = { { "a", identity() }, { "a.b", identity() } };
    ts_fails_with(fy_layer_branches(FY_JOIN_ADD, 2, two, FY_ACTIVATION_NONE, &layer),
                  INVALID_ARGUMENT, "without '.'");
    fy_layer_child_t many[17];
    for (int i = 0; i < 17; i++) many[i] = (fy_layer_child_t){ "", identity() };
    ts_fails_with(fy_layer_branches(FY_JOIN_ADD, 17, many, FY_ACTIVATION_NONE, &layer),
                  INVALID_ARGUMENT, "17 branches");
    ts_fails(fy_layer_branches(FY_JOIN_ADD, 0, many, FY_ACTIVATION_NONE, &layer), INVALID_ARGUMENT);
    ts_fails_with(fy_layer_residual(identity(), NULL, (fy_activation_t)99, &layer),
                  INVALID_ARGUMENT, "layer_residual: ", "99");
    /* a failure of a call before it is named as such */
    ts_fails_with(fy_layer_residual(NULL, identity(), FY_ACTIVATION_NONE, &layer), INVALID_ARGUMENT,
                  "layer_residual: body is NULL; the last failure on this thread, maybe of its "
                  "maker: layer_residual: ");
    assert_null(layer);
    ts_fails_with(fy_layer_residual(op_layer("no_such"), NULL, FY_ACTIVATION_NONE, &layer),
                  INVALID_ARGUMENT, "maybe of its maker: layer_op: there is no op 'no_such'");

    const fy_layer_child_t apart[] = { { "a", linear(2, 2, 1) }, { "b", linear(2, 3, 1) } };
    ts_ok(fy_layer_branches(FY_JOIN_ADD, 2, apart, FY_ACTIVATION_NONE, &layer));
    const fy_layer_child_t named[] = { { "block", layer } };
    ts_ok(fy_layer_sequential(1, named, &layer));
    ts_fails_with(fy_model_create(ctx->device, layer, FY_DIMS(2), NULL, &model), SHAPE_MISMATCH,
                  "layer 'block' (add): branch 1 gives [n, 3] and the ones before it [n, 2]");

    /* more elements than int64_t counts */
    const fy_layer_child_t same[] = { { "a", identity() }, { "b", identity() } };
    ts_ok(fy_layer_branches(FY_JOIN_CONCAT, 2, same, FY_ACTIVATION_NONE, &layer));
    ts_fails_with(fy_model_create(ctx->device, layer, FY_DIMS(INT64_MAX), NULL, &model),
                  SHAPE_MISMATCH, "concat equal dims but the last");
    ts_ok(fy_layer_embedding(2, (int64_t)1 << 30, NULL, &layer));
    ts_fails_with(fy_model_create(ctx->device, layer, FY_DIMS((int64_t)1 << 40), NULL, &model),
                  INVALID_ARGUMENT, "dims[2] = 1073741824");

    const fy_layer_child_t twice[] = { { "", linear(2, 2, 1) }, { "", linear(2, 2, 1) } };
    ts_ok(fy_layer_branches(FY_JOIN_ADD, 2, twice, FY_ACTIVATION_NONE, &layer));
    ts_fails_with(fy_model_create(ctx->device, layer, FY_DIMS(2), NULL, &model), INVALID_ARGUMENT,
                  "are called 'weight'");
}

static fy_status_t try_transformer(fy_device_t *device)
{
    fy_layer_t *layer;
    fy_model_t *model;
    FY_TRY(fy_layer_transformer_block(2, 1, NULL, &layer));
    FY_TRY(fy_model_create(device, layer, FY_DIMS(1, 2), NULL, &model));
    fy_model_destroy(model);
    return FY_STATUS_OK;
}

static fy_status_t try_all(fy_device_t *device)
{
    const fy_init_t one = { FY_INIT_CONSTANT, 1 };
    fy_layer_t *gate, *block = NULL, *tied, *all;
    fy_model_t *model = NULL;
    FY_TRY(try_transformer(device));
    if (fy_layer_squeeze_excite(2, 1, "sigmoid", one, one, &gate) == FY_STATUS_OK)
        (void)!fy_layer_residual(gate, NULL, FY_ACTIVATION_RELU, &block);
    fy_layer_t *head = fy_layer_tied_linear(2, 2, "fc.weight", &tied) == FY_STATUS_OK ? tied : NULL;
    const fy_layer_child_t children[] = { { "block", block },
                                          { "fc", linear(2, 2, 1) },
                                          { "head", head } };
    fy_status_t status = fy_layer_sequential(3, children, &all);
    if (status == FY_STATUS_OK)
        status = fy_model_create(device, all, FY_DIMS(1, 1, 2), NULL, &model);
    fy_model_destroy(model);
    return status;
}

static int failures;

/* Containers report that the maker of a layer failed. */
static fy_status_t program(fy_device_t *device)
{
    const fy_status_t status = try_all(device);
    failures += status != FY_STATUS_OK;
    return status == FY_STATUS_INVALID_ARGUMENT && strstr(fy_error_get()->text, "no host memory")
               ? FY_STATUS_OUT_OF_MEMORY
               : status;
}

/* Each allocation of the layers and of the model fails once; nothing leaks. */
TS_TEST(test_failing_allocations)
{
    ts_sweep_host_memory("host", 4000, program);
    ts_sweep_host_memory("sim:7", 4000, program);
    assert_true(failures > 80);
}
