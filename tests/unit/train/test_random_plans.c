/* Plans of random training steps are exact to the byte. The networks are drawn: convolutions, batch
 * norm, dropout, pooling, residuals, checkpointed layers. The steps run in f32, bf16 or f16,
 * compute segments or cheap ops again, offload, and are replayed as fused graphs. A failure prints
 * the seed; FERRY_SEED=n runs that one alone, FERRY_PROGRAMS=n more of them.
 * Not here: the known models, and the largest batch (golden/plan/test_programs.c); random graphs
 * without training (property/test_fused.c). */
#include <inttypes.h>

#include "tests/support/value.h"
#include "tests/unit/train/descent.h"
#include "tests/unit/train/layers.h"

enum { LAYERS = 24, SIZE = 8, CLASSES = 10, MOST_BATCH = 9 };

typedef enum way { KEEP, SEGMENTS, CHEAP, OFFLOAD, CHEAP_OFFLOAD, WAYS } way_t;

typedef struct program {
    uint64_t seed;
    fy_dtype_t precision;
    way_t way;
    int parts, has_low, is_graph;
    fy_optimizer_kind_t kind;
    /* what a run did */
    uint64_t casts, offloaded, fused_calls, chains, dropouts;
} program_t;

static program_t draw(uint64_t seed)
{
    static const fy_dtype_t precisions[] = { FY_DTYPE_F32, FY_DTYPE_BF16, FY_DTYPE_F16 };
    static const fy_optimizer_kind_t kinds[] = { FY_OPTIMIZER_SGD, FY_OPTIMIZER_ADAM,
                                                 FY_OPTIMIZER_LAMB, FY_OPTIMIZER_RMSPROP };
    ts_random_t random = { seed * 77 };
    program_t p = { .seed = seed,
                    .precision = precisions[seed / WAYS % 3],
                    .way = (way_t)(seed % WAYS),
                    .parts = 2 + (int)ts_random_below(&random, 2),
                    .has_low = (int)ts_random_below(&random, 2),
                    .kind = kinds[ts_random_below(&random, 4)] };
    /* a recorded step cannot wait for what is offloaded */
    p.is_graph = p.way != OFFLOAD && p.way != CHEAP_OFFLOAD;
    return p;
}

/* ---- the network ---- */

typedef struct net {
    ts_random_t random;
    fy_layer_child_t child[LAYERS];
    char name[LAYERS][8];
    size_t count;
    int64_t channels, size;
} net_t;

static void add(net_t *net, fy_layer_t *layer)
{
    assert_non_null(layer);
    assert_true(net->count < LAYERS);
    snprintf(net->name[net->count], sizeof *net->name, "l%zu", net->count);
    net->child[net->count] = (fy_layer_child_t){ net->name[net->count], layer };
    net->count++;
}

/* Convolution and norm of equal channels. */
static fy_layer_t *body(int64_t channels)
{
    return SEQUENCE(conv3x3(channels, channels), batch_norm(channels, FY_ACTIVATION_NONE));
}

static void add_drawn(program_t *p, net_t *net)
{
    static const char *const ops[] = { "relu", "gelu", "tanh", "sigmoid", "hardswish" };
    fy_layer_t *layer, *inner;
    switch (ts_random_below(&net->random, 7)) {
    case 0: {
        const int64_t out = 4 + (int64_t)ts_random_below(&net->random, 9);
        add(net, conv3x3(net->channels, out));
        net->channels = out;
        return;
    }
    case 1: layer = batch_norm(net->channels, FY_ACTIVATION_NONE); break;
    case 2:
        layer = dropout(0.25);
        p->dropouts++;
        break;
    case 3: {
        fy_pool2d_attrs_t pool = { 0 };
        if (net->size < 4) return;
        pool.kernel_h = pool.kernel_w = pool.stride_h = pool.stride_w = 2;
        ts_ok(fy_layer_max_pool2d(&pool, &layer));
        net->size /= 2;
        break;
    }
    case 4: ts_ok(fy_layer_residual(body(net->channels), NULL, FY_ACTIVATION_RELU, &layer)); break;
    case 5:
        ts_ok(fy_layer_checkpoint(body(net->channels), &inner)); /* one inside of another */
        ts_ok(fy_layer_checkpoint(SEQUENCE(body(net->channels), inner), &layer));
        break;
    default:
        add(net, op_layer(ops[ts_random_below(&net->random, 5)]));
        layer = op_layer(ops[ts_random_below(&net->random, 5)]);
        break;
    }
    add(net, layer);
}

static fy_layer_t *make_net(program_t *p)
{
    net_t net = { .random = { p->seed }, .channels = 3, .size = SIZE };
    fy_layer_t *layer;
    add(&net, conv3x3(net.channels, 6));
    net.channels = 6;
    p->dropouts = 0;
    for (uint64_t n = 4 + ts_random_below(&net.random, 4); n > 0; n--) add_drawn(p, &net);
    add(&net, op_layer("relu"));
    add(&net, plain_layer(fy_layer_flatten));
    add(&net, fc(net.channels * net.size * net.size, CLASSES));
    ts_ok(fy_layer_sequential(net.count, net.child, &layer));
    return layer;
}

/* ---- a run: two steps, then a recorded one twice ---- */

static fy_status_t open_model(fy_device_t *device, program_t *p, fy_model_t **out_model)
{
    fy_model_options_t options = FY_MODEL_OPTIONS_INIT;
    if (p->has_low) options.low = p->precision;
    if (p->way == SEGMENTS) options.recompute = p->parts;
    if (p->way == OFFLOAD || p->way == CHEAP_OFFLOAD) options.offload = p->parts;
    options.recompute_cheap = p->way == CHEAP || p->way == CHEAP_OFFLOAD;
    return fy_model_create(device, make_net(p), FY_DIMS(SIZE, SIZE, 3), &options, out_model);
}

static fy_status_t train(fy_device_t *device, program_t *p, fy_model_t *model,
                         fy_optimizer_t *optimizer, int64_t batch)
{
    descent_t d = { .model = model, .precision = p->precision, .optimizer = optimizer };
    fy_graph_t *graph;
    fy_graph_info_t info = FY_GRAPH_INFO_INIT;
    FY_TRY(descent_begin(&d));
    FY_TRY(fy_zeros(device, FY_DTYPE_F32, FY_DIMS(batch, SIZE, SIZE, 3), &d.x));
    FY_TRY(fy_zeros(device, FY_DTYPE_I32, FY_DIMS(batch), &d.y));
    for (int i = 0; i < 2; i++) FY_TRY(descent_step(&d));
    if (!p->is_graph) return FY_STATUS_OK;
    FY_TRY(fy_graph_begin(device));
    FY_TRY(descent_step(&d));
    FY_TRY(fy_graph_end(&graph));
    FY_TRY(fy_graph_query(graph, &info));
    p->fused_calls = info.fused_calls;
    p->chains = info.chains;
    for (int i = 0; i < 2; i++) FY_TRY(fy_graph_replay(graph, NULL));
    return FY_STATUS_OK;
}

static fy_status_t run(fy_device_t *device, int64_t batch, void *user)
{
    program_t *p = user;
    const fy_loss_scaling_options_t scaling = FY_LOSS_SCALING_OPTIONS_INIT;
    fy_autocast_info_t before = FY_AUTOCAST_INFO_INIT, after = FY_AUTOCAST_INFO_INIT;
    const uint64_t downloads = ts_ledger(NULL).download.count;
    fy_optimizer_options_t options;
    fy_optimizer_t *optimizer = NULL;
    fy_model_t *model;
    fy_scope_t scope = fy_scope_begin("run");
    fy_optimizer_defaults(p->kind, &options, sizeof options);
    if (p->precision == FY_DTYPE_F16) options.loss_scaling = &scaling;
    FY_TRY(fy_autocast_query(&before));
    FY_TRY(open_model(device, p, &model));
    fy_status_t status = fy_optimizer_create_model(&options, model, &optimizer);
    if (status == FY_STATUS_OK) status = train(device, p, model, optimizer, batch);
    fy_scope_end(scope, 0, NULL);
    fy_optimizer_destroy(optimizer);
    fy_model_destroy(model);
    FY_TRY(fy_autocast_query(&after));
    p->casts = after.casts - before.casts;
    p->offloaded = ts_ledger(NULL).download.count - downloads;
    return status;
}

/* ---- plan = run ---- */

static void expect_exact_plan(program_t *p, const char *spec)
{
    fy_plan_t plan = FY_PLAN_INIT;
    fy_memory_stats_t memory = FY_MEMORY_STATS_INIT, pinned = FY_MEMORY_STATS_INIT;
    fy_device_t *device;
    const int64_t batch = 2 + (int64_t)(p->seed % (MOST_BATCH - 1));
    ts_ok(fy_plan_step(spec, run, p, batch, NULL, &plan));
    ts_ok(fy_device_open(spec, &device));
    ts_ok(run(device, batch, p));
    ts_ok(fy_memory_query(device, NULL, &memory));
    ts_ok(fy_memory_query_pinned(device, &pinned));
    if (plan.peak_live != memory.peak_live || plan.peak_reserved != memory.peak_reserved ||
        plan.pinned_peak_reserved != pinned.peak_reserved)
        print_error("seed %" PRIu64 " on %s\n  again: FERRY_SEED=%" PRIu64 "\n", p->seed, spec,
                    p->seed);
    assert_int_equal(plan.peak_live, memory.peak_live);
    assert_int_equal(plan.peak_reserved, memory.peak_reserved);
    assert_int_equal(plan.pinned_peak_reserved, pinned.peak_reserved);
    fy_device_close(device);
}

TS_TEST(plans_of_random_steps_are_exact)
{
    const char *count = getenv("FERRY_PROGRAMS"), *one = getenv("FERRY_SEED");
    const uint64_t nprograms = one && *one       ? 1
                               : count && *count ? strtoull(count, NULL, 0)
                                                 : 60,
                   first = ts_seed(0);
    uint64_t low = 0, again = 0, offloaded = 0, fused = 0, dropouts = 0;
    for (uint64_t seed = first; seed < first + nprograms; seed++) {
        program_t p = draw(seed);
        expect_exact_plan(&p, seed % 2 ? "sim:9" : "sim:9?profile=t4&chains=cuda");
        low += p.precision != FY_DTYPE_F32 && p.casts > 0;
        again += p.way == SEGMENTS || p.way == CHEAP;
        offloaded += p.offloaded > 0;
        fused += p.fused_calls > 0;
        dropouts += p.dropouts > 0;
    }
    print_message("           seeds %" PRIu64 " to %" PRIu64 ": %" PRIu64 " in half precision, "
                  "%" PRIu64 " computed again, %" PRIu64 " offloaded, %" PRIu64 " fused\n",
                  first, first + nprograms - 1, low, again, offloaded, fused);
    if (nprograms < 60) return; /* a few: nothing is counted */
    assert_true(low >= 35 && again >= 20 && offloaded >= 15 && fused >= 15 && dropouts >= 20);
}
