/* The training loop: it learns, moves nothing in a steady step, gives the same bits in every mode,
 * stops, resumes, refuses. */
#include "tests/unit/train/fixture.h"

#include <math.h>

/* One training: a model on synthetic digits. */
typedef struct setup {
    const char *model;
    fy_loss_kind_t loss;
    uint64_t samples; /* 0: not digits, but the table of airfoils */
    fy_loader_options_t loader;
    fy_optimizer_options_t optimizer;
    fy_train_options_t options;
    /* results of the training, until tear_down */
    fy_model_t *net;
    fy_optimizer_t *updater;
    fy_loader_t *train, *test;
    fy_train_result_t result;
    double losses[512];
    int64_t loss_step;
    size_t nlosses;
    int events, epoch_ends;
} setup_t;

static setup_t begin(const char *model, fy_loss_kind_t loss, uint64_t samples, int64_t batch)
{
    setup_t s = { .model = model, .loss = loss, .samples = samples, .loss_step = -1 };
    s.loader = (fy_loader_options_t)FY_LOADER_OPTIONS_INIT;
    s.loader.batch = batch;
    s.loader.scale = 1.0 / 255;
    fy_optimizer_defaults(FY_OPTIMIZER_SGD, &s.optimizer, sizeof s.optimizer);
    s.options = (fy_train_options_t)FY_TRAIN_OPTIONS_INIT;
    s.options.loss = loss;
    s.options.log_every = 1;
    s.result = (fy_train_result_t)FY_TRAIN_RESULT_INIT;
    return s;
}

static fy_status_t on_event(void *user, const fy_train_event_t *event)
{
    setup_t *s = user;
    s->events++;
    s->epoch_ends += event->is_epoch_end;
    if (event->loss_step == s->loss_step) return FY_STATUS_OK;
    s->loss_step = event->loss_step;
    assert_true(s->nlosses < 512);
    s->losses[s->nlosses++] = event->loss;
    return FY_STATUS_OK;
}

static void set_up(ts_ctx_t *ctx, setup_t *s)
{
    fy_dataset_t *set;
    fy_model_options_t options = FY_MODEL_OPTIONS_INIT;
    fy_model_info_t info = FY_MODEL_INFO_INIT;
    options.seed = 7;
    if (s->samples)
        ts_ok(fy_dataset_synthetic_digits(s->samples, 3, &set));
    else
        ts_ok(fy_dataset_open("airfoil", NULL, 0, &set));
    ts_ok(fy_loader_create(ctx->device, set, &s->loader, &s->train));
    fy_loader_options_t test = s->loader;
    test.shuffle = test.drop_last = 0;
    if (!s->samples) { /* three samples: a batch that is not full */
        fy_dataset_destroy(set);
        ts_ok(fy_dataset_open("airfoil", NULL, 1, &set));
    }
    ts_ok(fy_loader_create(ctx->device, set, &test, &s->test));
    fy_dataset_destroy(set);
    ts_ok(fy_model_open(ctx->device, s->model, &options, &s->net));
    ts_ok(fy_model_query(s->net, &info));
    ts_ok(fy_optimizer_create(&s->optimizer, 1, &info.values, &info.grads, &s->updater));
    if (!s->options.on_event) {
        s->options.on_event = on_event;
        s->options.user = s;
    }
}

static void run(ts_ctx_t *ctx, setup_t *s)
{
    set_up(ctx, s);
    ts_ok(fy_train_run(s->net, s->updater, s->train, s->test, &s->options, &s->result));
}

static void tear_down(setup_t *s)
{
    fy_optimizer_destroy(s->updater);
    fy_model_destroy(s->net);
    fy_loader_destroy(s->train);
    fy_loader_destroy(s->test);
}

static void expect_same_bits(const setup_t *a, const setup_t *b)
{
    const bits_t want = bits_of(a->net, a->updater);
    expect_bits(bits_of(b->net, b->updater), &want);
    free(want.bytes);
}

/* A few samples are overfitted, through every kind of layer. The loss of a new network is that of
 * guessing. */
TS_DEVICE_TEST(test_overfits)
{
    static const struct {
        const char *model;
        fy_loss_kind_t loss;
        fy_optimizer_kind_t optimizer;
        double lr;
        int64_t epochs;
    } cases[] = {
        { "mlp", FY_LOSS_CROSS_ENTROPY, FY_OPTIMIZER_SGD, 0.3, 40 },
        { "mnist2018", FY_LOSS_NLL, FY_OPTIMIZER_ADAM, 0.01, 120 },
        { "lenet", FY_LOSS_CROSS_ENTROPY, FY_OPTIMIZER_ADAM, 0.003, 60 },
        { "mnist", FY_LOSS_CROSS_ENTROPY, FY_OPTIMIZER_ADADELTA, 1, 25 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        setup_t s = begin(cases[i].model, cases[i].loss, 16, 16);
        fy_optimizer_defaults(cases[i].optimizer, &s.optimizer, sizeof s.optimizer);
        s.optimizer.lr = cases[i].lr;
        s.options.epochs = cases[i].epochs;
        run(ctx, &s);
        print_message("%s: loss %g, then %g; test loss %g, accuracy %g\n", s.model, s.losses[0],
                      s.result.train_loss, s.result.test_loss, s.result.test_accuracy);
        assert_true(fabs(s.losses[0] - log(10)) < 0.5);
        assert_true(s.result.test_accuracy == 1 && s.result.test_loss < 0.5);
        tear_down(&s);
    }
}

static uint64_t minus(uint64_t after, uint64_t before) { return after - before; }

/* A step transfers nothing and waits for nothing; from the ninth on it allocates nothing. */
TS_DEVICE_TEST(test_steady_steps)
{
    setup_t s = begin("mnist", FY_LOSS_CROSS_ENTROPY, 20, 4);
    fy_optimizer_defaults(FY_OPTIMIZER_ADADELTA, &s.optimizer, sizeof s.optimizer);
    s.options.epochs = 2;
    s.options.log_every = 0;
    set_up(ctx, &s);
    static const char path[] = "test/steady/train/epoch/step"; /* the runner's scope is "test" */
    fy_scope_t scope = fy_scope_begin("steady");
    const fy_ledger_totals_t before = ts_ledger(path);
    ts_ok(fy_train_run(s.net, s.updater, s.train, s.test, &s.options, &s.result));
    fy_scope_end(scope, 0, NULL);
    const fy_ledger_totals_t after = ts_ledger(path);
    assert_int_equal(minus(after.upload.count, before.upload.count), 0);
    assert_int_equal(minus(after.download.count, before.download.count), 0);
    assert_int_equal(minus(after.syncs, before.syncs), 0);
    assert_int_equal(s.result.device_allocs_steady, 0);
    assert_int_equal(s.result.steps, 10);
    assert_int_equal(s.nlosses, 2); /* one for each epoch */
    const double requests = (double)minus(after.requests, before.requests) / 10;
    print_message("mnist: %g requests a step\n", requests);
    assert_true(requests > 0 && requests <= 30);
    tear_down(&s);
}

/* Streamed: the uploaded bytes are exactly those of the batches used for training, wherever the
 * training ends. */
TS_DEVICE_TEST(test_streamed_batches_are_uploaded_once)
{
    static const struct {
        int64_t epochs, max_steps, accumulate, samples;
    } cases[] = { { 2, 0, 1, 72 }, { 3, 4, 1, 32 }, { 2, 1, 1, 8 },
                  { 1, 2, 2, 32 }, { 3, 3, 2, 36 }, { 2, 4, 2, 36 + 16 } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int workers = 0; workers < 3; workers += 2) {
            /* 5 batches an epoch, the last of 4 */
            setup_t s = begin("mlp", FY_LOSS_CROSS_ENTROPY, 36, 8);
            s.loader.resident = 0;
            s.loader.depth = 3;
            s.loader.workers = workers;
            s.options.epochs = cases[i].epochs;
            s.options.max_steps = cases[i].max_steps;
            s.options.accumulate = cases[i].accumulate;
            set_up(ctx, &s);
            const fy_ledger_totals_t before = ts_ledger(NULL);
            ts_ok(fy_train_run(s.net, s.updater, s.train, NULL, &s.options, &s.result));
            fy_loader_destroy(s.train); /* joins its threads */
            s.train = NULL;
            const fy_ledger_totals_t after = ts_ledger(NULL);
            assert_int_equal(after.upload.nbytes - before.upload.nbytes,
                             cases[i].samples * (28 * 28 + 4));
            tear_down(&s);
        }
}

/* The same bits on every device, with separate calls or as a graph, resident or streamed with any
 * number of workers. */
TS_DEVICE_TEST(test_same_bits)
{
    static bits_t first; /* of the devices before */
    setup_t plain = begin("mnist2018", FY_LOSS_NLL, 40, 8);
    plain.options.epochs = 2;
    plain.optimizer.momentum = 0.5;
    run(ctx, &plain);
    for (int variant = 0; variant < 3; variant++) {
        setup_t other = begin("mnist2018", FY_LOSS_NLL, 40, 8);
        other.options.epochs = 2;
        other.optimizer.momentum = 0.5;
        other.options.graph = variant == 0;
        other.loader.resident = variant == 0;
        other.loader.workers = variant == 2 ? 3 : 0;
        run(ctx, &other);
        assert_int_equal(other.nlosses, plain.nlosses);
        assert_memory_equal(other.losses, plain.losses, plain.nlosses * sizeof(double));
        expect_same_bits(&plain, &other);
        tear_down(&other);
    }
    if (first.bytes)
        expect_bits(bits_of(plain.net, plain.updater), &first);
    else
        first = bits_of(plain.net, plain.updater);
    tear_down(&plain);
}

/* A recorded step follows its schedule with every optimizer: the device reads the rate at each
 * replay. */
TS_DEVICE_TEST(test_schedules_in_graphs)
{
    static const struct {
        fy_optimizer_kind_t optimizer;
        fy_schedule_kind_t schedule;
        double momentum;
        double clip_norm;
    } cases[] = {
        { FY_OPTIMIZER_SGD, FY_SCHEDULE_COSINE, 0, 0 },
        { FY_OPTIMIZER_SGD, FY_SCHEDULE_ONE_CYCLE, 0.9, 1 },
        { FY_OPTIMIZER_ADAM, FY_SCHEDULE_COSINE, 0, 0 },
        { FY_OPTIMIZER_ADAMW, FY_SCHEDULE_CYCLIC, 0, 0.5 },
        { FY_OPTIMIZER_ADADELTA, FY_SCHEDULE_STEP, 0, 0 },
        { FY_OPTIMIZER_ADAM, FY_SCHEDULE_RANGE, 0, 0 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        setup_t s[2];
        fy_schedule_t schedules[2];
        for (int is_graph = 0; is_graph < 2; is_graph++) {
            s[is_graph] = begin("mlp", FY_LOSS_CROSS_ENTROPY, 64, 8);
            fy_optimizer_defaults(cases[i].optimizer, &s[is_graph].optimizer,
                                  sizeof s[is_graph].optimizer);
            s[is_graph].optimizer.momentum = cases[i].momentum;
            fy_schedule_t *schedule = &schedules[is_graph];
            s[is_graph].options.schedule = schedule;
            fy_schedule_defaults(cases[i].schedule, 0.01, 16, schedule, sizeof *schedule);
            schedule->base_momentum = schedule->max_momentum = 0;
            schedule->step_size = 4;
            s[is_graph].options.clip_norm = cases[i].clip_norm;
            s[is_graph].options.epochs = 2;
            s[is_graph].options.graph = is_graph;
            run(ctx, &s[is_graph]);
        }
        assert_int_equal(s[0].nlosses, 16);
        assert_memory_equal(s[0].losses, s[1].losses, sizeof(double) * 16);
        expect_same_bits(&s[0], &s[1]);
        assert_int_equal(s[0].result.graph_requests, 0);
        assert_true(s[1].result.graph_requests > 5);
        assert_int_equal(s[1].result.graph_replays, 15); /* the first step is not a replay */
        assert_int_equal(s[1].result.graph_path,
                         strncmp(ctx->spec, "cuda", 4) == 0 ? FY_GRAPH_DEVICE : FY_GRAPH_CALLS);
        tear_down(&s[0]);
        tear_down(&s[1]);
    }
}

/* Batches of one update equal one batch of all their samples, also where an epoch ends with a
 * smaller group, or with a smaller batch. */
TS_DEVICE_TEST(test_accumulation)
{
    static const struct {
        int64_t samples, batch, accumulate;
    } cases[] = { { 40, 8, 2 }, { 22, 8, 3 }, { 22, 4, 6 }, { 22, 21, 2 }, { 45, 8, 4 } };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        const int64_t batch = cases[c].batch, samples = cases[c].samples,
                      all = batch * cases[c].accumulate;
        setup_t large = begin("mlp", FY_LOSS_CROSS_ENTROPY, samples, all < samples ? all : samples),
                small = begin("mlp", FY_LOSS_CROSS_ENTROPY, samples, batch);
        large.loader.shuffle = small.loader.shuffle = 0;
        large.options.epochs = small.options.epochs = 2;
        small.options.accumulate = cases[c].accumulate;
        run(ctx, &large);
        run(ctx, &small);
        assert_int_equal(small.result.steps, large.result.steps);
        assert_int_equal(small.nlosses, large.nlosses);
        for (size_t i = 0; i < large.nlosses; i++)
            assert_true(fabs(large.losses[i] - small.losses[i]) < 1e-5);
        const fy_tensor_t *values = model_info(large.net).values;
        float *a = bytes_of(values), *b = bytes_of(model_info(small.net).values);
        for (uint64_t i = 0; i < ts_info(values).nelem; i++)
            assert_true(fabsf(a[i] - b[i]) < 1e-5F);
        free(a), free(b);
        tear_down(&large);
        tear_down(&small);
    }
}

static volatile int stop;
static fy_status_t stop_at_three(void *user, const fy_train_event_t *event)
{
    stop = event->step == 3;
    return on_event(user, event);
}
static fy_status_t fail_at_two(void *user, const fy_train_event_t *event)
{
    (void)user;
    return event->step == 2 ? fy_error_set(FY_STATUS_CANCELLED, __FILE__, __LINE__, "enough")
                            : FY_STATUS_OK;
}

TS_DEVICE_TEST(test_a_training_stops_where_requested)
{
    setup_t s = begin("mlp", FY_LOSS_CROSS_ENTROPY, 40, 8);
    s.options.epochs = 3;
    s.options.max_steps = 7;
    run(ctx, &s);
    assert_int_equal(s.result.steps, 7);
    assert_int_equal(s.result.epochs, 1);
    assert_int_equal(s.nlosses, 7);
    assert_int_equal(s.epoch_ends, 2);
    assert_false(s.result.is_stopped);
    assert_false(isnan(s.result.test_accuracy));
    tear_down(&s);

    stop = 0;
    s = begin("mlp", FY_LOSS_CROSS_ENTROPY, 40, 8);
    s.options.stop = &stop;
    s.options.on_event = stop_at_three;
    s.options.user = &s;
    run(ctx, &s);
    assert_int_equal(s.result.steps, 3);
    assert_true(s.result.is_stopped);
    tear_down(&s);

    s = begin("mlp", FY_LOSS_CROSS_ENTROPY, 40, 8);
    s.options.on_event = fail_at_two;
    set_up(ctx, &s);
    ts_fails_with(fy_train_run(s.net, s.updater, s.train, s.test, &s.options, &s.result), CANCELLED,
                  "enough");
    tear_down(&s);
}

/* Stopped in the middle of an epoch and resumed by new objects: the bits of a training that never
 * stopped. */
TS_DEVICE_TEST(test_resume)
{
    assert_int_equal(make_folder(NULL), 0);
    setup_t whole = begin("mnist2018", FY_LOSS_NLL, 40, 8), part = whole;
    whole.optimizer.momentum = part.optimizer.momentum = 0.5;
    whole.options.epochs = part.options.epochs = 2;
    run(ctx, &whole);
    part.options.checkpoint = folder;
    part.options.resume = 1;
    part.options.max_steps = 3;
    run(ctx, &part);
    tear_down(&part);
    setup_t rest = begin("mnist2018", FY_LOSS_NLL, 40, 8);
    rest.optimizer.momentum = 0.5;
    rest.options.epochs = 2;
    rest.options.checkpoint = folder;
    rest.options.resume = 1;
    run(ctx, &rest);
    assert_int_equal(rest.result.steps, whole.result.steps);
    assert_int_equal(rest.nlosses, whole.nlosses - 3);
    assert_memory_equal(rest.losses, whole.losses + 3, rest.nlosses * sizeof(double));
    expect_same_bits(&whole, &rest);
    tear_down(&rest);
    tear_down(&whole);
    assert_int_equal(drop_folder(NULL), 0);
}

/* Ends with an error behind the fourth step, as a process that is killed. */
static fy_status_t fail_at_four(void *user, const fy_train_event_t *event)
{
    (void)user;
    return event->step < 4 ? FY_STATUS_OK
                           : fy_error_set(FY_STATUS_CANCELLED, __FILE__, __LINE__, "killed");
}

static void train_on(ts_ctx_t *ctx, setup_t *s, int64_t log_every, int64_t max_steps, int is_killed)
{
    *s = begin("mlp", FY_LOSS_CROSS_ENTROPY, 40, 8);
    s->options.epochs = 2;
    s->options.log_every = log_every;
    s->options.checkpoint = folder;
    s->options.checkpoint_every = 3;
    s->options.resume = 1;
    s->options.max_steps = max_steps;
    s->options.on_event = is_killed ? fail_at_four : NULL;
    set_up(ctx, s);
    const fy_status_t status =
        fy_train_run(s->net, s->updater, s->train, NULL, &s->options, &s->result);
    assert_int_equal(status, is_killed ? FY_STATUS_CANCELLED : FY_STATUS_OK);
    tear_down(s);
}

/* train_loss and later losses are those of a training that never stopped: stopped in the first
 * epoch, in the last one, behind an epoch, behind the end; killed with losses on the device. */
TS_DEVICE_TEST(test_losses_after_a_resume)
{
    static const int64_t stops[] = { 2, 4, 5, 7, 8, 9, 10 };
    setup_t whole, part;
    for (int64_t log_every = 0; log_every <= 2; log_every++) {
        assert_int_equal(make_folder(NULL), 0);
        train_on(ctx, &whole, log_every, 0, 0);
        assert_int_equal(drop_folder(NULL), 0);
        assert_int_equal(make_folder(NULL), 0);
        train_on(ctx, &part, log_every, 0, 1);
        train_on(ctx, &part, log_every, 0, 0);
        assert_true(part.result.train_loss == whole.result.train_loss);
        assert_int_equal(part.result.steps, 10);
        const size_t rest = part.nlosses;
        assert_memory_equal(part.losses, whole.losses + whole.nlosses - rest,
                            rest * sizeof(double));
        assert_int_equal(drop_folder(NULL), 0);
        for (size_t i = 0; i < sizeof stops / sizeof *stops; i++) {
            assert_int_equal(make_folder(NULL), 0);
            train_on(ctx, &part, log_every, stops[i], 0);
            train_on(ctx, &part, log_every, 0, 0);
            assert_true(fabs(part.result.train_loss / whole.result.train_loss - 1) < 1e-6);
            assert_int_equal(drop_folder(NULL), 0);
        }
    }
}

/* Means over batches of different size; in evaluation, nothing is kept for gradients; the model's
 * mode is restored. */
TS_DEVICE_TEST(test_evaluate)
{
    double loss, accuracy, loss_whole, accuracy_whole;
    setup_t s = begin("mnist2018", FY_LOSS_NLL, 40, 40),
            odd = begin("mnist2018", FY_LOSS_NLL, 40, 7);
    set_up(ctx, &s);
    set_up(ctx, &odd);
    const fy_ledger_totals_t before = ts_ledger(NULL);
    ts_ok(fy_train_evaluate(s.net, s.test, FY_LOSS_NLL, &loss_whole, &accuracy_whole));
    const fy_ledger_totals_t after = ts_ledger(NULL);
    assert_int_equal(minus(after.download.count, before.download.count), 1);
    ts_ok(fy_train_evaluate(s.net, odd.test, FY_LOSS_NLL, &loss, &accuracy));
    assert_true(fabs(loss - loss_whole) < 1e-6 && accuracy == accuracy_whole);
    /* again: the same batches */
    ts_ok(fy_train_evaluate(s.net, odd.test, FY_LOSS_NLL, &loss, NULL));
    ts_ok(fy_train_evaluate(s.net, odd.test, FY_LOSS_NLL, NULL, &accuracy));
    assert_true(fabs(loss - loss_whole) < 1e-6 && accuracy == accuracy_whole);
    const fy_model_info_t info = model_info(s.net);
    assert_true(info.is_training);
    tear_down(&s);
    tear_down(&odd);
}

/* A regression: no classes, so no accuracy. */
TS_DEVICE_TEST(test_regression)
{
    setup_t s = begin("linear", FY_LOSS_MSE, 0, 10);
    s.loader.scale = 1;
    s.options.epochs = 2;
    s.options.log_every = 0;
    s.optimizer.lr = 0.025;
    run(ctx, &s);
    print_message("linear: loss %g, test loss %g\n", s.result.train_loss, s.result.test_loss);
    assert_true(s.result.train_loss < 0.6); /* of standardised targets, whose variance is 1 */
    assert_true(isnan(s.result.test_accuracy) && !isnan(s.result.test_loss));
    tear_down(&s);
}

TS_DEVICE_TEST(test_refusals)
{
    setup_t s = begin("mlp", FY_LOSS_CROSS_ENTROPY, 16, 8);
    set_up(ctx, &s);
    fy_train_options_t bad = s.options;
    bad.accumulate = 0;
    ts_fails_with(fy_train_run(s.net, s.updater, s.train, NULL, &bad, NULL), INVALID_ARGUMENT,
                  "accumulate 0");
#define REFUSES(change)                                                                        \
    do {                                                                                       \
        bad = s.options;                                                                       \
        change;                                                                                \
        ts_fails(fy_train_run(s.net, s.updater, s.train, NULL, &bad, NULL), INVALID_ARGUMENT); \
    } while (0)
    REFUSES(bad.graph = 1; bad.accumulate = 2);
    REFUSES(bad.loss = (fy_loss_kind_t)9);
    REFUSES(bad.clip_norm = -1);
    REFUSES(bad.resume = 1);
    REFUSES(bad.checkpoint_every = 2);
    fy_model_t *other = known_model(ctx->device, "mlp", NULL);
    ts_fails_with(fy_train_run(other, s.updater, s.train, NULL, &s.options, NULL), INVALID_ARGUMENT,
                  "no parameter of model 'mlp'");
    fy_model_destroy(other);
    ts_fails(fy_train_run(s.net, NULL, s.train, NULL, &s.options, NULL), INVALID_ARGUMENT);
    ts_fails(fy_train_evaluate(NULL, s.train, FY_LOSS_NLL, NULL, NULL), INVALID_ARGUMENT);
    fy_model_options_t memory = FY_MODEL_OPTIONS_INIT;
    memory.offload = 2;
    fy_model_t *offloading = known_model(ctx->device, "mlp", &memory);
    fy_optimizer_t *updater;
    ts_ok(fy_optimizer_create_model(&s.optimizer, offloading, &updater));
    bad = s.options;
    bad.graph = 1;
    ts_fails_with(fy_train_run(offloading, updater, s.train, NULL, &bad, NULL), INVALID_ARGUMENT,
                  "offloads");
    fy_optimizer_destroy(updater);
    fy_model_destroy(offloading);
    tear_down(&s);
}

/* Labels outside the model's scores are reported before anything is computed, with both ranges, and
 * nothing is transferred. */
TS_DEVICE_TEST(test_labels_past_the_scores)
{
    static const unsigned char pixels[12 * 784];
    int32_t labels[12];
    for (int i = 0; i < 12; i++) labels[i] = i + 8;
    for (int stream = 0; stream < 2; stream++) {
        const fy_dataset_info_t info = { sizeof info,   12,          3,
                                         { 28, 28, 1 }, FY_DTYPE_U8, .classes = 20 };
        fy_dataset_t *wrong;
        fy_loader_t *loader;
        setup_t s = begin("mlp", FY_LOSS_CROSS_ENTROPY, 16, 8);
        set_up(ctx, &s);
        ts_ok(fy_dataset_create(&info, pixels, labels, &wrong));
        fy_loader_options_t options = FY_LOADER_OPTIONS_INIT;
        options.batch = 4;
        options.resident = !stream;
        ts_ok(fy_loader_create(ctx->device, wrong, &options, &loader));
        ts_fails_with(fy_train_run(s.net, s.updater, loader, NULL, &s.options, NULL), BAD_VALUE,
                      "labels of the data set reach 19 (20 classes)",
                      "model 'mlp' gives 10 scores");
        ts_fails_with(fy_train_run(s.net, s.updater, s.train, loader, &s.options, NULL), BAD_VALUE,
                      "test set");
        ts_fails(fy_train_evaluate(s.net, loader, FY_LOSS_CROSS_ENTROPY, NULL, NULL), BAD_VALUE);
        /* no fault: they were never used */
        ts_ok(fy_device_wait(ctx->device, FY_FOREVER));
        fy_loader_destroy(loader);
        fy_dataset_destroy(wrong);
        tear_down(&s);
    }
}

/* By precision, by the scope around the call, by the dtype of parameters: nothing has run then. */
TS_DEVICE_TEST(test_f16_needs_loss_scaling)
{
    static const fy_dtype_t ways[][3] = { { FY_DTYPE_F16, FY_DTYPE_F32, FY_DTYPE_F32 },
                                          { FY_DTYPE_F32, FY_DTYPE_F16, FY_DTYPE_F32 },
                                          { FY_DTYPE_F32, FY_DTYPE_F32, FY_DTYPE_F16 } };
    fy_find_lr_options_t sweep = FY_FIND_LR_OPTIONS_INIT;
    fy_find_lr_result_t found = FY_FIND_LR_RESULT_INIT;
    fy_lr_point_t points[2];
    const fy_loss_scaling_options_t scaling = FY_LOSS_SCALING_OPTIONS_INIT;
    sweep.steps = 2;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) /* a loader has no batches in f16 */
        for (int has_scaling = 0; has_scaling < (ways[i][2] == FY_DTYPE_F16 ? 1 : 2);
             has_scaling++) {
            setup_t s = begin("mlp", FY_LOSS_CROSS_ENTROPY, 16, 8);
            fy_model_options_t options = FY_MODEL_OPTIONS_INIT;
            s.options.precision = ways[i][0];
            s.optimizer.loss_scaling = has_scaling ? &scaling : NULL;
            options.dtype = ways[i][2];
            set_up(ctx, &s);
            fy_optimizer_destroy(s.updater);
            fy_model_destroy(s.net);
            s.net = known_model(ctx->device, "mlp", &options);
            ts_ok(fy_optimizer_create_model(&s.optimizer, s.net, &s.updater));
            const fy_scope_t scope = fy_scope_begin("around");
            ts_ok(fy_autocast_set(ways[i][1]));
            const fy_status_t trained =
                fy_train_run(s.net, s.updater, s.train, NULL, &s.options, &s.result);
            assert_int_equal(trained, has_scaling ? FY_STATUS_OK : FY_STATUS_INVALID_ARGUMENT);
            if (!has_scaling) assert_non_null(strstr(fy_error_get()->text, "loss_scaling"));
            ts_ok(fy_autocast_set(ways[i][0] == FY_DTYPE_F16 ? FY_DTYPE_F16 : ways[i][1]));
            assert_int_equal(fy_train_find_lr(s.net, s.updater, s.train, &sweep, points, &found),
                             trained);
            fy_scope_end(scope, 0, NULL);
            assert_int_equal(s.events > 0, has_scaling);
            tear_down(&s);
        }
}

/* The first scales are so large that gradients in f16 overflow. The scale halves in each skipped
 * step, so the scale at the end proves the number; a graph has the same. */
TS_DEVICE_TEST(test_skipped_steps_are_counted)
{
    fy_loss_scaling_options_t scaling = FY_LOSS_SCALING_OPTIONS_INIT;
    scaling.init_scale = 0x1p24;
    for (int is_graph = 0; is_graph < 2; is_graph++) {
        setup_t s = begin("mlp", FY_LOSS_CROSS_ENTROPY, 128, 8);
        double scale;
        s.optimizer.loss_scaling = &scaling;
        s.options.graph = is_graph;
        s.options.precision = FY_DTYPE_F16;
        run(ctx, &s);
        ts_ok(fy_optimizer_query_scale(s.updater, &scale));
        assert_int_equal(s.result.steps, 16);
        assert_in_range(s.result.skipped_steps, 1, 15);
        assert_true(scale == ldexp(1, 24 - (int)s.result.skipped_steps));
        tear_down(&s);
    }
    setup_t plain = begin("mlp", FY_LOSS_CROSS_ENTROPY, 64, 8);
    run(ctx, &plain);
    assert_int_equal(plain.result.skipped_steps, 0);
    tear_down(&plain);
}
