/* Random small trainings against the same training in f64 in plain C, parameter by parameter. The
 * models' sizes are odd, so their blocks have gaps. Loops by hand: batches of any size,
 * accumulation, NaN in a batch, ops on the whole block of gradients, clipping, loss scaling,
 * restored values. fy_train_run: short last batches and groups, one NaN in the data set.
 * A failure prints the training, cut down to the steps and settings that it takes, and its seed;
 * FERRY_SEED=n runs that one alone, FERRY_PROGRAMS=n more of them. */
#include <inttypes.h>

#include <ferry/train/train.h>

#include "tests/property/net.h"
#include "tests/property/shrink.h"

typedef enum kind {
    BATCH,
    MORE,
    MULTIPLY,
    ADD_VALUES,
    FILL,
    CLIP_NORM,
    CLIP_VALUE,
    UNSCALE,
    STEP,
    RESTORE
} kind_t;

typedef struct step {
    kind_t kind;
    int64_t rows, choice;
} step_t;

static const char *const k_settings[] = { "loss scaling", "adam",       "momentum",  "weight decay",
                                          "clip_norm",    "clip_value", "2 layers",  "3 layers",
                                          "biases",       "a NaN",      "2 epochs",  "drop_last",
                                          "a graph",      "streamed",   "accumulate" };

typedef struct program {
    uint64_t seed, settings;                  /* drawn; those in use: settings & kept */
    enum { BY_STEPS, BY_RUN, BY_GRAPH } mode; /* BY_RUN: fy_train_run */
    int64_t width[NLAYERS + 1], samples, batch, accumulate, bad;
    step_t steps[NSTEPS];
} program_t;

/* ---- both ---- */

typedef struct world {
    ts_ctx_t *ctx;
    const program_t *program;
    uint64_t kept, settings;
    net_t net;
    double x[MOST_ROWS * WIDEST], y[MOST_ROWS * WIDEST];
    fy_model_t *model;
    fy_model_info_t info;
    fy_optimizer_t *optimizer;
    fy_tape_t *tape;
    bool prints, is_over;
    bool fills_gaps; /* an op made gaps other than 0, until a backward that does not accumulate */
    uint64_t compared, bad_batches, skipped, accumulated, short_batches, block_ops, gaps;
    char why[400];
} world_t;

static bool has(const world_t *w, setting_t setting) { return w->settings >> setting & 1; }

#define SAY(...)                                      \
    do {                                              \
        if (w->prints) print_error("  " __VA_ARGS__); \
    } while (0)

static void fill_rows(world_t *w, uint64_t seed, int64_t rows, int64_t bad)
{
    ts_random_t random = { seed };
    const int64_t in = w->net.width[0], out = w->net.width[w->net.nlayers];
    for (int64_t i = 0; i < rows * in; i++)
        w->x[i] = (double)(float)(ts_random_unit(&random) * 2 - 1);
    for (int64_t i = 0; i < rows * out; i++)
        w->y[i] = (double)(float)(ts_random_unit(&random) * 2 - 1);
    if (bad < 0) return;
    w->x[bad * in] = bad % 2 ? NAN : INFINITY;
    w->bad_batches++;
}

static fy_tensor_t *rows_of(world_t *w, int64_t rows, int64_t columns, const double *values)
{
    float data[MOST_ROWS * WIDEST];
    for (int64_t i = 0; i < rows * columns; i++) data[i] = (float)values[i];
    return ts_f32(w->ctx->device, FY_DIMS(rows, columns), data);
}

/* The elements of the parameters in a block. */
static void read_block(const world_t *w, const fy_tensor_t *block, double *out)
{
    float bytes[NLAYERS * 2 * 64];
    assert_int_equal(ts_info(block).nelem, w->net.room);
    ts_read(block, bytes, (size_t)w->net.room * sizeof *bytes);
    for (int64_t i = 0; i < w->net.nparams; i++) out[i] = (double)bytes[w->net.place[i]];
}

static void compare(world_t *w, const char *what, const fy_tensor_t *block, const double *want)
{
    double got[MOST_PARAMS], most = 1;
    read_block(w, block, got);
    w->compared++;
    for (int64_t i = 0; i < w->net.nparams; i++)
        if (isfinite(want[i]) && fabs(want[i]) > most) most = fabs(want[i]);
    w->is_over |= most > 1000;
    for (int64_t i = 0; i < w->net.nparams && !w->is_over; i++) {
        if (isfinite(want[i]) ? fabs(got[i] - want[i]) <= 2e-4 * most : !isfinite(got[i])) continue;
        snprintf(w->why, sizeof w->why, "%s: element %d of the parameters is %g, want %g", what,
                 (int)i, got[i], want[i]);
        return;
    }
}

static void make_model(world_t *w)
{
    static const char *const names[] = { "a", "b", "c" };
    const program_t *p = w->program;
    net_t *net = &w->net;
    fy_layer_child_t children[NLAYERS];
    fy_layer_t *layer;
    fy_optimizer_options_t options = FY_OPTIMIZER_OPTIONS_INIT;
    fy_loss_scaling_options_t scaling = FY_LOSS_SCALING_OPTIONS_INIT;
    fy_model_options_t model = FY_MODEL_OPTIONS_INIT;
    net->nlayers = 1 + has(w, LAYER_2) + (has(w, LAYER_2) && has(w, LAYER_3));
    net->has_bias = has(w, BIAS);
    net->scale = net->divisor = has(w, SCALING) ? k_scale : 1;
    memcpy(net->width, p->width, sizeof net->width);
    set_places(net);
    for (int l = 0; l < net->nlayers; l++) {
        fy_linear_options_t linear = FY_LINEAR_OPTIONS_INIT;
        linear.no_bias = !net->has_bias;
        if (l + 1 < net->nlayers) linear.activation = FY_ACTIVATION_TANH;
        children[l].name = names[l];
        ts_ok(fy_layer_linear(net->width[l], net->width[l + 1], &linear, &children[l].layer));
        SAY("layer %d: linear(%d, %d)%s%s\n", l, (int)net->width[l], (int)net->width[l + 1],
            linear.no_bias ? "" : " with a bias", linear.activation ? ", tanh" : "");
    }
    ts_ok(fy_layer_sequential((size_t)net->nlayers, children, &layer));
    model.seed = (int64_t)p->seed;
    ts_ok(fy_model_create(w->ctx->device, layer, 1, net->width, &model, &w->model));
    w->info = (fy_model_info_t)FY_MODEL_INFO_INIT;
    ts_ok(fy_model_query(w->model, &w->info));
    read_block(w, w->info.values, net->value);
    w->gaps += net->room > net->nparams;
    fy_optimizer_defaults(has(w, ADAM) ? FY_OPTIMIZER_ADAM : FY_OPTIMIZER_SGD, &options,
                          sizeof options);
    options.lr = k_lr;
    options.weight_decay = has(w, DECAY) ? k_decay : 0;
    options.eps = k_eps;
    if (!has(w, ADAM) && has(w, MOMENTUM)) options.momentum = k_momentum;
    scaling.init_scale = k_scale;
    scaling.growth_interval = GROWTH_INTERVAL;
    if (has(w, SCALING)) options.loss_scaling = &scaling;
    ts_ok(fy_optimizer_create_model(&options, w->model, &w->optimizer));
    for (int i = SCALING; i < SETTINGS_END; i++)
        if (has(w, (setting_t)i)) SAY("setting: %s\n", k_settings[i - SCALING]);
}

/* ---- by hand ---- */

static void step_batch(world_t *w, const step_t *s, bool accumulates)
{
    net_t *net = &w->net;
    const double share = 1.0 / (double)(1 + s->choice % 3);
    const int64_t bad = has(w, BAD) && s->choice % 5 == 0 ? s->rows - 1 : -1;
    fy_backward_options_t options = FY_BACKWARD_OPTIONS_INIT;
    fy_tensor_t *y, *loss, *seed, *scale = NULL;
    const fy_scope_t scope = fy_scope_begin("batch");
    fill_rows(w, w->program->seed * 64 + (uint64_t)s->choice, s->rows, bad);
    SAY("batch of %d%s: backward(seed 1/%d, accumulate %d)\n", (int)s->rows,
        bad < 0   ? ""
        : bad % 2 ? " with a NaN"
                  : " with an infinity",
        (int)(1 + s->choice % 3), accumulates);
    ts_ok(fy_tape_begin(w->tape));
    ts_ok(fy_model_forward(w->model, rows_of(w, s->rows, net->width[0], w->x), &y));
    ts_ok(fy_mse_loss(y, rows_of(w, s->rows, net->width[net->nlayers], w->y), &loss));
    ts_ok(fy_full(w->ctx->device, FY_DTYPE_F32, 0, NULL, share, &seed));
    ts_ok(fy_optimizer_seed(w->optimizer, FY_DTYPE_F32, &scale));
    if (scale) ts_ok(fy_mul(scale, seed, &seed));
    options.seed = seed;
    options.accumulate = accumulates;
    ts_ok(fy_model_backward(w->model, w->tape, loss, &options));
    if (net->is_checked) net->divisor = net->scale;
    net->is_checked = false;
    if (!accumulates || !net->has_grads) memset(net->grad, 0, sizeof net->grad);
    net->has_grads = true;
    w->fills_gaps &= accumulates;
    w->accumulated += accumulates;
    (void)differentiate(net, s->rows, w->x, w->y, share * net->scale);
    compare(w, "gradients", w->info.grads, net->grad);
    fy_scope_end(scope, 0, NULL);
}

static void step_restore(world_t *w)
{
    float bytes[NLAYERS * 2 * 64] = { 0 };
    net_t *net = &w->net;
    const char *name;
    fy_tensor_t *state;
    SAY("values and state of the optimizer are restored\n");
    for (int64_t i = 0; i < net->nparams; i++) {
        bytes[net->place[i]] = (float)((i * 7) % 11 - 5) / 8;
        net->value[i] = (double)bytes[net->place[i]];
    }
    fy_tensor_t *host = ts_host_f32(FY_DIMS(net->room), bytes);
    ts_ok(fy_tensor_upload_into(w->info.values, host, NULL, NULL));
    for (size_t i = 0; fy_optimizer_state(w->optimizer, i, &name, &state), state; i++)
        if (strcmp(name, "loss_scaling") != 0) ts_ok(fy_fill(state, 0));
    memset(net->first, 0, sizeof net->first);
    memset(net->second, 0, sizeof net->second);
    net->steps = net->skipped = 0;
}

/* An op on all gradients at once. */
static void step_block(world_t *w, const step_t *s)
{
    static const double factors[] = { 0.5, 2, NAN, INFINITY };
    net_t *net = &w->net;
    fy_tensor_t *grads = w->info.grads, *factor;
    const double by = factors[s->choice % (has(w, BAD) ? 4 : 2)];
    w->block_ops++;
    switch (s->kind) {
    case MULTIPLY:
        SAY("mul(grads, %g), in place\n", by);
        ts_ok(fy_full(w->ctx->device, FY_DTYPE_F32, 0, NULL, by, &factor));
        ts_ok(fy_op_call(FY_OP_MUL, 2, (fy_tensor_t *[]){ grads, factor }, NULL, 0, 1, &grads));
        fy_tensor_destroy(factor);
        multiply(net, by);
        w->fills_gaps |= isinf(by);
        break;
    case ADD_VALUES:
        SAY("axpy(grads, 0.1, values)\n");
        ts_ok(fy_axpy(grads, 0.1, w->info.values));
        for (int64_t i = 0; i < net->nparams; i++) net->grad[i] += 0.1 * net->value[i];
        break;
    case FILL:
        SAY("fill(grads, %g)\n", by);
        ts_ok(fy_fill(grads, by));
        for (int64_t i = 0; i < net->nparams; i++) net->grad[i] = by;
        w->fills_gaps = true;
        break;
    case CLIP_NORM:
        if (w->fills_gaps) break;
        SAY("clip_norm(grads, %g)\n", k_norm);
        ts_ok(fy_grads_clip_norm(1, &grads, k_norm, NULL));
        clip_norm(net, k_norm);
        break;
    default:
        SAY("clip_value(grads, %g)\n", k_value);
        ts_ok(fy_grads_clip_value(1, &grads, k_value));
        clip_value(net, k_value);
    }
}

static void run_step(world_t *w, const step_t *s)
{
    const fy_scope_t scope = fy_scope_begin("step");
    switch (s->kind) {
    case BATCH:
    case MORE: step_batch(w, s, s->kind == MORE); break;
    case UNSCALE:
        if (!has(w, SCALING) || w->fills_gaps) break;
        SAY("unscale\n");
        ts_ok(fy_optimizer_unscale(w->optimizer));
        unscale(&w->net);
        break;
    case STEP:
        if (w->fills_gaps) break;
        SAY("step\n");
        ts_ok(fy_optimizer_step(w->optimizer));
        update(&w->net, w->settings);
        compare(w, "values", w->info.values, w->net.value);
        break;
    case RESTORE: step_restore(w); break;
    default: step_block(w, s);
    }
    fy_scope_end(scope, 0, NULL);
}

/* ---- fy_train_run ---- */

static void update_clipped(world_t *w)
{
    if (has(w, SCALING) && (has(w, NORM) || has(w, VALUE))) unscale(&w->net);
    if (has(w, VALUE)) clip_value(&w->net, k_value);
    if (has(w, NORM)) clip_norm(&w->net, k_norm);
    update(&w->net, w->settings);
}

static void run_oracle(world_t *w, int64_t accumulate, int64_t epochs)
{
    const program_t *p = w->program;
    net_t *net = &w->net;
    const int64_t whole = p->samples / p->batch * p->batch,
                  samples = has(w, DROP_LAST) ? whole : p->samples, group = p->batch * accumulate;
    for (int64_t epoch = 0; epoch < epochs; epoch++)
        for (int64_t first = 0; first < samples; first += group) {
            const int64_t rows = first + group < samples ? group : samples - first;
            memset(net->grad, 0, sizeof net->grad);
            (void)differentiate(net, rows, w->x + first * net->width[0],
                                w->y + first * net->width[net->nlayers], net->scale);
            update_clipped(w);
            w->accumulated += accumulate > 1;
            w->short_batches += rows % p->batch != 0;
        }
}

static void run_trainer(world_t *w)
{
    const program_t *p = w->program;
    const int64_t in = w->net.width[0], out = w->net.width[w->net.nlayers],
                  accumulate = has(w, ACCUMULATE) ? p->accumulate : 1,
                  epochs = has(w, EPOCH_2) ? 2 : 1;
    float x[MOST_ROWS * WIDEST], y[MOST_ROWS * WIDEST];
    fy_dataset_info_t set = FY_DATASET_INFO_INIT;
    fy_dataset_t *dataset;
    fy_loader_options_t options = FY_LOADER_OPTIONS_INIT;
    fy_loader_t *loader;
    fy_train_options_t train = FY_TRAIN_OPTIONS_INIT;
    fy_train_result_t result = FY_TRAIN_RESULT_INIT;
    fill_rows(w, p->seed, p->samples, has(w, BAD) ? p->bad % p->samples : -1);
    for (int64_t i = 0; i < p->samples * in; i++) x[i] = (float)w->x[i];
    for (int64_t i = 0; i < p->samples * out; i++) y[i] = (float)w->y[i];
    set.samples = (uint64_t)p->samples;
    set.rank = 1;
    set.dims[0] = in;
    set.dtype = FY_DTYPE_F32;
    set.targets = (int)out;
    ts_ok(fy_dataset_create(&set, x, y, &dataset));
    options.batch = p->batch;
    options.shuffle = 0;
    options.drop_last = has(w, DROP_LAST);
    options.resident = !has(w, STREAMED);
    ts_ok(fy_loader_create(w->ctx->device, dataset, &options, &loader));
    fy_dataset_destroy(dataset);
    train.loss = FY_LOSS_MSE;
    train.accumulate = accumulate;
    train.epochs = epochs;
    train.clip_norm = has(w, NORM) ? k_norm : 0;
    train.clip_value = has(w, VALUE) ? k_value : 0;
    train.graph = accumulate == 1 && has(w, GRAPH);
    SAY("train_run: %d samples, batch %d, accumulate %d\n", (int)p->samples, (int)p->batch,
        (int)accumulate);
    ts_ok(fy_train_run(w->model, w->optimizer, loader, NULL, &train, &result));
    run_oracle(w, accumulate, epochs);
    compare(w, "values after the training", w->info.values, w->net.value);
    if (!w->why[0] && (result.steps != w->net.steps || result.skipped_steps != w->net.skipped))
        snprintf(w->why, sizeof w->why, "%d steps, %d skipped; want %d, %d", (int)result.steps,
                 (int)result.skipped_steps, (int)w->net.steps, (int)w->net.skipped);
    fy_loader_destroy(loader);
}

/* ---- a graph of one step ---- */

static void record_step(world_t *w, fy_tensor_t *x, fy_tensor_t *y, fy_graph_t **out_graph)
{
    fy_backward_options_t options = FY_BACKWARD_OPTIONS_INIT;
    fy_tensor_t *result, *loss, *scale, *grads = w->info.grads;
    ts_ok(fy_graph_begin(w->ctx->device));
    ts_ok(fy_tape_begin(w->tape));
    ts_ok(fy_model_forward(w->model, x, &result));
    ts_ok(fy_mse_loss(result, y, &loss));
    ts_ok(fy_optimizer_seed(w->optimizer, FY_DTYPE_F32, &scale));
    options.seed = scale;
    ts_ok(fy_model_backward(w->model, w->tape, loss, &options));
    if (has(w, NORM) || has(w, VALUE)) ts_ok(fy_optimizer_unscale(w->optimizer));
    if (has(w, VALUE)) ts_ok(fy_grads_clip_value(1, &grads, k_value));
    if (has(w, NORM)) ts_ok(fy_grads_clip_norm(1, &grads, k_norm, NULL));
    ts_ok(fy_optimizer_step(w->optimizer));
    ts_ok(fy_graph_end(out_graph));
}

/* The step is recorded at once, and replayed for some of the program's batches. */
static void run_graph(world_t *w)
{
    const program_t *p = w->program;
    net_t *net = &w->net;
    const int64_t rows = p->batch, in = net->width[0], out = net->width[net->nlayers];
    fy_graph_t *graph;
    ts_ok(fy_tape_create(&w->tape));
    ts_ok(fy_model_watch(w->model, w->tape));
    fy_tensor_t *x = ts_zeros(w->ctx->device, FY_DTYPE_F32, FY_DIMS(rows, in)),
                *y = ts_zeros(w->ctx->device, FY_DTYPE_F32, FY_DIMS(rows, out));
    record_step(w, x, y, &graph);
    SAY("a step of %d rows is recorded\n", (int)rows);
    for (int i = 0; i < NSTEPS && !w->why[0] && !w->is_over; i++) {
        const bool is_bad = has(w, BAD) && p->steps[i].choice % 5 == 0;
        if (p->steps[i].kind != BATCH || !(w->kept >> i & 1)) continue;
        fill_rows(w, p->seed * 64 + (uint64_t)i, rows, is_bad ? rows - 1 : -1);
        SAY("replay%s\n", is_bad ? " with a number that is not finite" : "");
        const fy_scope_t scope = fy_scope_begin("replay");
        ts_ok(fy_copy(x, rows_of(w, rows, in, w->x)));
        ts_ok(fy_copy(y, rows_of(w, rows, out, w->y)));
        ts_ok(fy_graph_replay(graph, NULL));
        fy_scope_end(scope, 0, NULL);
        memset(net->grad, 0, sizeof net->grad);
        (void)differentiate(net, rows, w->x, w->y, net->scale);
        update_clipped(w);
        compare(w, "values", w->info.values, net->value);
    }
    fy_graph_destroy(graph);
}

/* ---- programs ---- */

static void draw(uint64_t seed, program_t *p)
{
    static const kind_t kinds[] = { BATCH,      BATCH,     BATCH,     BATCH,      BATCH,
                                    MORE,       MORE,      STEP,      STEP,       MULTIPLY,
                                    ADD_VALUES, FILL,      RESTORE,   UNSCALE,    STEP,
                                    STEP,       CLIP_NORM, CLIP_NORM, CLIP_VALUE, RESTORE };
    ts_random_t random = { seed };
    *p = (program_t){ .seed = seed, .settings = ts_random_next(&random) };
    p->mode = (int)ts_random_below(&random, 5) / 2;
    for (int i = 0; i <= NLAYERS; i++) p->width[i] = 1 + ts_random_below(&random, WIDEST - 1);
    p->samples = 1 + ts_random_below(&random, MOST_ROWS);
    p->batch = 1 + ts_random_below(&random, p->samples < 12 ? p->samples : 12);
    p->accumulate = 2 + ts_random_below(&random, 4);
    p->bad = ts_random_below(&random, MOST_ROWS);
    for (int i = 0; i < NSTEPS; i++)
        p->steps[i] = (step_t){
            .kind = kinds[ts_random_below(&random, sizeof kinds / sizeof *kinds)],
            .rows = 1 + ts_random_below(&random, 7),
            .choice = ts_random_below(&random, 60),
        };
}

typedef struct run {
    world_t *w;
    ts_ctx_t *ctx;
    const program_t *program;
} run_t;

static bool fails_with(void *user, uint64_t kept)
{
    run_t *run = user;
    world_t *w = run->w;
    const program_t *p = run->program;
    const bool prints = w->prints;
    memset(w, 0, sizeof *w);
    w->ctx = run->ctx;
    w->program = p;
    w->prints = prints;
    w->kept = kept;
    w->settings = p->settings & kept;
    const fy_scope_t scope = fy_scope_begin("training");
    make_model(w);
    if (p->mode == BY_RUN) {
        run_trainer(w);
    } else if (p->mode == BY_GRAPH) {
        run_graph(w);
    } else {
        ts_ok(fy_tape_create(&w->tape));
        ts_ok(fy_model_watch(w->model, w->tape));
        for (int i = 0; i < NSTEPS && !w->why[0] && !w->is_over; i++)
            if (kept >> i & 1) run_step(w, &p->steps[i]);
    }
    fy_optimizer_destroy(w->optimizer);
    fy_scope_end(scope, 0, NULL);
    fy_model_destroy(w->model);
    return w->why[0] != 0;
}

static void report(run_t *run)
{
    const uint64_t kept = shrink(fails_with, run, SETTINGS_END);
    print_error("seed %" PRIu64 ":\n", run->program->seed);
    run->w->prints = true;
    (void)fails_with(run, kept);
    print_error("  %s\n  again: FERRY_SEED=%" PRIu64 "\n", run->w->why, run->program->seed);
    fail();
}

TS_DEVICE_TEST(trainings_equal_those_of_single_tensors)
{
    const char *count = getenv("FERRY_PROGRAMS"), *one = getenv("FERRY_SEED");
    const uint64_t n = one && *one       ? 1
                       : count && *count ? strtoull(count, NULL, 0)
                                         : 2000,
                   first = ts_seed(1);
    uint64_t compared = 0, runs = 0, bad = 0, skipped = 0, accumulated = 0, shorts = 0, ops = 0,
             gaps = 0, over = 0;
    world_t *w = calloc(1, sizeof *w);
    assert_non_null(w);
    for (uint64_t i = 0; i < n; i++) {
        program_t program;
        run_t run = { w, ctx, &program };
        draw(first + i, &program);
        if (fails_with(&run, UINT64_MAX)) report(&run);
        compared += w->compared;
        runs += program.mode == BY_RUN;
        bad += w->bad_batches > 0;
        skipped += w->net.skipped > 0;
        accumulated += w->accumulated > 0;
        shorts += w->short_batches > 0;
        ops += w->block_ops > 0;
        gaps += w->gaps;
        over += w->is_over;
    }
    free(w);
    print_message("           seeds %" PRIu64 " to %" PRIu64 ": %" PRIu64
                  " blocks compared; %" PRIu64 " runs, with NaN %" PRIu64 ", skipped steps %" PRIu64
                  ", accumulation %" PRIu64 ", short batches %" PRIu64 ", ops on a block %" PRIu64
                  ", gaps %" PRIu64 "; %" PRIu64 " ended early\n",
                  first, first + n - 1, compared, runs, bad, skipped, accumulated, shorts, ops,
                  gaps, over);
    if (n < 100) return;
    assert_true(compared > 4 * n && 3 * runs > n && 4 * bad > n && 8 * skipped > n);
    assert_true(4 * accumulated > n && 8 * shorts > n && 4 * ops > n && 2 * gaps > n);
    assert_true(8 * over < n);
}
