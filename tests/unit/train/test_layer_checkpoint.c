/* fy_layer_checkpoint: the same weights, buffers, generator and results after training steps, bit
 * for bit, with fewer bytes kept for the backward: alone, nested, beside the options of a model, in
 * bf16, recorded as a graph, in evaluation. Refusals; and every allocation, launch and event of a
 * step fails once. Not here: fy_tape_recompute (tests/unit/ops/test_recompute.c), plans
 * (test_random_plans.c). */
#include <stdbool.h>

#include "tests/unit/train/descent.h"
#include "tests/unit/train/layers.h"
#include "tests/support/sweep.h"

enum { BATCH = 4, SIZE = 8, CHANNELS = 16, CLASSES = 5, STEPS = 3 };

/* How a net is made and trained. */
typedef struct way {
    const char *name;
    bool is_plain; /* without checkpoints */
    fy_dtype_t precision;
    bool is_graph;
    int recompute, cheap, offload; /* options of the model */
} way_t;

/* ---- the net ---- */

static fy_layer_t *maybe_checkpoint(const way_t *way, fy_layer_t *child)
{
    fy_layer_t *layer;
    if (way->is_plain) return child;
    const fy_status_t status = fy_layer_checkpoint(child, &layer);
    assert_true(status == FY_STATUS_OK || !child || status == FY_STATUS_OUT_OF_MEMORY);
    return layer;
}

/* Convolution, norm, and what draws random numbers. */
static fy_layer_t *noisy(int64_t in)
{
    return SEQUENCE(conv3x3(in, CHANNELS), batch_norm(CHANNELS, FY_ACTIVATION_RELU), dropout(0.25));
}

/* conv, norm, relu(x + norm(conv)): a checkpoint around the block, or around its body, whose last
 * norm the sum computes. */
static fy_layer_t *block(const way_t *way, bool is_body)
{
    fy_layer_t *layer,
        *body = SEQUENCE(conv3x3(CHANNELS, CHANNELS), batch_norm(CHANNELS, FY_ACTIVATION_RELU),
                         conv3x3(CHANNELS, CHANNELS), batch_norm(CHANNELS, FY_ACTIVATION_NONE));
    if (is_body) body = maybe_checkpoint(way, body);
    if (fy_layer_residual(body, NULL, FY_ACTIVATION_RELU, &layer) != FY_STATUS_OK) return NULL;
    return is_body ? layer : maybe_checkpoint(way, layer);
}

static fy_status_t make_net(fy_device_t *device, const way_t *way, fy_model_t **out_model)
{
    fy_model_options_t options = FY_MODEL_OPTIONS_INIT;
    options.recompute = way->recompute;
    options.recompute_cheap = way->cheap;
    options.offload = way->offload;
    fy_layer_t *inner = maybe_checkpoint(way, noisy(CHANNELS));
    fy_layer_t *nested = SEQUENCE(conv3x3(CHANNELS, CHANNELS), inner);
    fy_layer_t *net = SEQUENCE(maybe_checkpoint(way, noisy(3)), maybe_checkpoint(way, identity()),
                               maybe_checkpoint(way, nested), block(way, false), block(way, true),
                               plain_layer(fy_layer_global_avg_pool2d), fc(CHANNELS, CLASSES));
    *out_model = NULL;
    if (!net) return FY_STATUS_OUT_OF_MEMORY; /* of a maker */
    return fy_model_create(device, net, FY_DIMS(SIZE, SIZE, 3), &options, out_model);
}

/* ---- training it ---- */

static fy_status_t prepare(fy_device_t *device, const way_t *way, descent_t *d)
{
    fy_tensor_t *rng;
    d->precision = way->precision;
    FY_TRY(make_net(device, way, &d->model));
    FY_TRY(fy_rng_create(device, 4, &rng));
    FY_TRY(fy_rand(rng, FY_DTYPE_F32, FY_DIMS(BATCH, SIZE, SIZE, 3), -1, 1, &d->x));
    FY_TRY(fy_arange(device, FY_DTYPE_I64, 0, 1, BATCH, &d->y));
    return descent_begin(d);
}

typedef struct state {
    bits_t bits;
    uint64_t kept;
} state_t;

static void train_whole(ts_ctx_t *ctx, const way_t *way, state_t *out)
{
    descent_t d = { 0 };
    fy_graph_t *graph = NULL;
    const fy_scope_t scope = fy_scope_begin("train");
    ts_ok(prepare(ctx->device, way, &d));
    if (way->is_graph) {
        ts_ok(fy_graph_begin(ctx->device));
        ts_ok(descent_step(&d));
        graph = ts_graph_end();
    }
    for (int i = 0; i < STEPS; i++) ts_ok(graph ? fy_graph_replay(graph, NULL) : descent_step(&d));
    fy_graph_destroy(graph);
    *out = (state_t){ descent_bits(&d), d.kept };
    fy_model_destroy(d.model);
    fy_scope_end(scope, 0, NULL);
}

TS_DEVICE_TEST(steps_have_the_same_bits)
{
    static const way_t ways[] = {
        { "layers", .precision = FY_DTYPE_F32 },
        { "layers in a graph", .precision = FY_DTYPE_F32, .is_graph = true },
        { "layers and segments", .precision = FY_DTYPE_F32, .recompute = 3 },
        { "layers, each a segment", .precision = FY_DTYPE_F32, .recompute = 4 },
        { "layers and cheap", .precision = FY_DTYPE_F32, .cheap = 1 },
        { "layers and offloading", .precision = FY_DTYPE_F32, .offload = 3 },
        { "bf16", .precision = FY_DTYPE_BF16 },
        { "bf16 in a graph", .precision = FY_DTYPE_BF16, .is_graph = true },
    };
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        const way_t plain = { "plain", .is_plain = true, .precision = ways[i].precision };
        state_t want, got;
        train_whole(ctx, &plain, &want);
        train_whole(ctx, &ways[i], &got);
        print_message("           %s: %llu of %llu bytes before the backward\n", ways[i].name,
                      (unsigned long long)got.kept, (unsigned long long)want.kept);
        expect_bits(got.bits, &want.bits);
        if (!ways[i].is_graph) assert_true(got.kept < want.kept);
        free(want.bits.bytes);
    }
}

/* The nested layers and the blocks are counted; the norm that a sum computes is outside. */
TS_DEVICE_TEST(names_are_those_of_the_child)
{
    const way_t plain = { "plain", .is_plain = true }, layers = { "layers" };
    fy_model_t *models[2];
    fy_param_t params[2] = { FY_PARAM_INIT, FY_PARAM_INIT };
    fy_model_options_t options = FY_MODEL_OPTIONS_INIT;
    fy_layer_t *layer;
    ts_ok(make_net(ctx->device, &plain, &models[0]));
    ts_ok(make_net(ctx->device, &layers, &models[1]));
    const fy_model_info_t info = model_info(models[0]);
    for (size_t i = 0; i < info.nparams; i++) {
        for (int k = 0; k < 2; k++) ts_ok(fy_model_param(models[k], i, &params[k]));
        assert_string_equal(params[0].name, params[1].name);
    }
    fy_model_destroy(models[0]);
    fy_model_destroy(models[1]);
    /* no segment ends inside of a checkpoint */
    options.recompute = 2;
    layer = maybe_checkpoint(&layers, noisy(3));
    ts_fails_with(fy_model_create(ctx->device, layer, FY_DIMS(SIZE, SIZE, 3), &options, &models[0]),
                  INVALID_ARGUMENT, "recompute asks for 2 segments; it has 1 at most");
}

/* ---- refusals and failures ---- */

static fy_status_t same_shape(void *user, int rank, const int64_t *dims, int *out_rank,
                              int64_t *out_dims, uint64_t *out_macs)
{
    (void)user;
    memcpy(out_dims, dims, (size_t)rank * sizeof *dims);
    *out_rank = rank;
    *out_macs = 0;
    return FY_STATUS_OK;
}

/* Draws from a generator that the model does not know. */
static fy_status_t draw(void *user, const fy_pass_t *pass, fy_tensor_t *const *params,
                        fy_tensor_t *x, fy_tensor_t **out_y)
{
    (void)pass, (void)params;
    FY_TRY(fy_affine(x, 2, 0, &x));
    return fy_dropout(user, x, 0.5, out_y);
}

TS_DEVICE_TEST(refusals_name_the_cause)
{
    fy_layer_t *layer, *child;
    fy_tensor_t *rng, *x = ts_iota(ctx->device, FY_DIMS(1, 2), 1), *y;
    fy_tape_t *tape;
    ts_fails_with(fy_layer_checkpoint(NULL, &layer), INVALID_ARGUMENT,
                  "layer_checkpoint: child is NULL");
    assert_null(layer);
    ts_ok(fy_layer_identity(&child));
    ts_fails(fy_layer_checkpoint(child, NULL), INVALID_ARGUMENT);
    ts_ok(fy_layer_identity(&child));
    ts_ok(fy_layer_checkpoint(child, &layer));
    fy_layer_t *other;
    ts_fails_with(fy_layer_checkpoint(child, &other), INVALID_ARGUMENT,
                  "already layer 0 ('') of a checkpoint");
    fy_layer_destroy(layer);

    fy_layer_def_t def = FY_LAYER_DEF_INIT;
    def.type = "draw", def.shape = same_shape, def.forward = draw;
    ts_ok(fy_rng_create(ctx->device, 1, &rng));
    ts_ok(fy_layer_create(&def, rng, &child));
    ts_ok(fy_layer_checkpoint(child, &layer));
    fy_model_t *model = new_model(ctx->device, layer, FY_DIMS(2), NULL);
    ts_ok(fy_model_forward(model, x, &y));
    ts_ok(fy_tape_create(&tape));
    ts_ok(fy_tape_watch(tape, x, NULL));
    ts_ok(fy_tape_begin(tape));
    ts_fails_with(fy_model_forward(model, x, &y), UNSUPPORTED,
                  "inside fy_tape_recompute, whose function runs twice");
    fy_model_destroy(model);
}

static fy_status_t program(fy_device_t *device)
{
    static const way_t way = { "both", .precision = FY_DTYPE_F32, .recompute = 3 };
    descent_t d = { 0 };
    const fy_scope_t scope = fy_scope_begin("program");
    fy_status_t status = prepare(device, &way, &d);
    if (status == FY_STATUS_OK) status = descent_step(&d);
    fy_scope_end(scope, 0, NULL);
    fy_model_destroy(d.model);
    return status;
}

TS_DEVICE_TEST(each_call_fails_once)
{
    if (!ctx->is_sim) return; /* it opens its own */
    ts_sweep_device("", "alloc", FY_STATUS_OUT_OF_MEMORY, 400, program);
    ts_sweep_device("", "launch", FY_STATUS_INTERNAL, 1000, program);
    ts_sweep_device("", "event", FY_STATUS_OUT_OF_MEMORY, 400, program);
    ts_sweep_host_memory("sim:7", 8000, program);
}
