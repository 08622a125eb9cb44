/* Evaluation leaves the loader where it was; loaders that do not fit are refused before a step. */
#include "tests/unit/train/fixture.h"
#include "tests/unit/train/layers.h"

enum { SAMPLES = 20, BATCH = 8, STEPS = 3 };

static void set_up(ts_ctx_t *ctx, int is_resident, parts_t *p)
{
    fy_loader_options_t batches = FY_LOADER_OPTIONS_INIT;
    fy_optimizer_options_t adam = optimizer_defaults(FY_OPTIMIZER_ADAM);
    batches.batch = BATCH;
    batches.resident = is_resident;
    *p = (parts_t){ 0 };
    ts_ok(make_batches(ctx->device, SAMPLES, batches, p));
    p->model = known_model(ctx->device, "mlp", NULL);
    ts_ok(fy_optimizer_create_model(&adam, p->model, &p->optimizer));
}

/* Anywhere in an epoch, also after a failure. */
TS_DEVICE_TEST(test_evaluate_restores_the_place)
{
    for (int is_resident = 0; is_resident < 2; is_resident++) {
        parts_t p;
        set_up(ctx, is_resident, &p);
        for (int64_t step = 0; step <= STEPS; step++)
            for (int fails = 0; fails < 2; fails++) {
                const fy_guard_options_t light_only = FY_GUARD_LIGHT_ONLY;
                fy_loader_info_t place = FY_LOADER_INFO_INIT;
                fy_scope_t scope = fy_scope_begin("evaluate");
                ts_ok(fy_loader_seek(p.train, 2, step));
                if (fails) ts_ok(fy_scope_guard(&light_only));
                const fy_status_t status =
                    fy_train_evaluate(p.model, p.train, FY_LOSS_CROSS_ENTROPY, NULL, NULL);
                assert_int_equal(status, fails ? FY_STATUS_REFUSED_BY_GUARD : FY_STATUS_OK);
                fy_scope_end(scope, 0, NULL);
                ts_ok(fy_loader_query(p.train, &place));
                assert_int_equal(place.epoch, 2);
                assert_int_equal(place.step, step);
            }
        drop_parts(&p);
    }
}

/* A training whose test loader is its own has the same batches as one with no test. */
TS_DEVICE_TEST(test_the_training_loader_as_test)
{
    for (int is_resident = 0; is_resident < 2; is_resident++) {
        fy_train_options_t options = FY_TRAIN_OPTIONS_INIT;
        bits_t bits[2];
        options.epochs = 3;
        for (int tests = 0; tests < 2; tests++) {
            parts_t p;
            set_up(ctx, is_resident, &p);
            ts_ok(fy_train_run(p.model, p.optimizer, p.train, tests ? p.train : NULL, &options,
                               NULL));
            bits[tests] = bits_of(p.model, p.optimizer);
            drop_parts(&p);
        }
        expect_bits(bits[1], &bits[0]);
        free(bits[0].bytes);
    }
}

/* Where a loader stands: at the begin of an update, within one, at the end of the epoch. */
TS_DEVICE_TEST(test_a_training_begins_with_an_update)
{
    fy_train_options_t options = FY_TRAIN_OPTIONS_INIT;
    fy_loader_info_t place = FY_LOADER_INFO_INIT;
    options.accumulate = 2;
    options.epochs = 2;
    for (int64_t step = 0; step <= STEPS; step++) {
        parts_t p;
        set_up(ctx, 1, &p);
        ts_ok(fy_loader_seek(p.train, 0, step));
        const fy_status_t status =
            fy_train_run(p.model, p.optimizer, p.train, NULL, &options, NULL);
        assert_int_equal(status, step == 1 ? FY_STATUS_INVALID_ARGUMENT : FY_STATUS_OK);
        ts_ok(fy_loader_query(p.train, &place));
        if (step == 1) assert_int_equal(place.step, 1);
        drop_parts(&p);
    }
}

/* ---- loaders that do not fit ---- */

static fy_loader_t *loader_of(fy_device_t *device, fy_dataset_info_t info)
{
    static const float samples[4 * 8];
    static const int32_t labels[4 * 8];
    fy_dataset_t *set;
    fy_loader_t *loader;
    info.struct_size = sizeof info;
    info.samples = 4;
    info.dtype = FY_DTYPE_F32;
    ts_ok(fy_dataset_create(&info, samples, labels, &set));
    ts_ok(fy_loader_create(device, set, NULL, &loader));
    fy_dataset_destroy(set);
    return loader;
}

static const struct {
    fy_dataset_info_t info;
    fy_loss_kind_t loss;
    fy_status_t status;
    const char *text;
    int is_elsewhere;
} cases[] = {
    { { .rank = 1, .dims = { 3 }, .targets = 2 },
      FY_LOSS_CROSS_ENTROPY,
      FY_STATUS_DTYPE_MISMATCH,
      "has target values (f32), and the loss takes classes",
      0 },
    { { .rank = 1, .dims = { 3 }, .targets = 2 },
      FY_LOSS_NLL,
      FY_STATUS_DTYPE_MISMATCH,
      "labels of i32",
      0 },
    { { .rank = 1, .dims = { 3 }, .classes = 2 },
      FY_LOSS_MSE,
      FY_STATUS_DTYPE_MISMATCH,
      "has classes (i32), and the loss takes target values",
      0 },
    { { .rank = 1, .dims = { 3 }, .targets = 1 },
      FY_LOSS_MSE,
      FY_STATUS_SHAPE_MISMATCH,
      "the labels of the data set are [n, 1]; model 'model' gives [n, 2]",
      0 },
    { { .rank = 1, .dims = { 3 }, .classes = 2, .labels = 2 },
      FY_LOSS_CROSS_ENTROPY,
      FY_STATUS_SHAPE_MISMATCH,
      "whose last axis has the scores",
      0 },
    { { .rank = 1, .dims = { 3 }, .classes = 3 },
      FY_LOSS_CROSS_ENTROPY,
      FY_STATUS_BAD_VALUE,
      "labels of the data set reach 2",
      0 },
    { { .rank = 1, .dims = { 4 }, .classes = 2 },
      FY_LOSS_CROSS_ENTROPY,
      FY_STATUS_SHAPE_MISMATCH,
      "the loader gives x [n, 4], model 'model' takes [n, 3]",
      0 },
    { { .rank = 2, .dims = { 3, 1 }, .classes = 2 },
      FY_LOSS_CROSS_ENTROPY,
      FY_STATUS_SHAPE_MISMATCH,
      "the loader gives x [n, 3, 1]",
      0 },
    { { .rank = 1, .dims = { 3 }, .classes = 2 },
      FY_LOSS_CROSS_ENTROPY,
      FY_STATUS_DEVICE_MISMATCH,
      "the loader is on sim:1",
      1 },
};

static void refuses(fy_status_t status, size_t i)
{
    assert_int_equal(status, cases[i].status);
    ts_text_has(cases[i].text);
}

/* As training and as test loader, and for an evaluation: running statistics, the random state and
 * the position are the same. */
TS_DEVICE_TEST(test_loaders_that_do_not_fit)
{
    fy_device_t *other;
    ts_ok(fy_device_open("sim:1", &other));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const fy_loss_kind_t loss = cases[i].loss;
        const fy_dataset_info_t right = { .rank = 1,
                                          .dims = { 3 },
                                          .classes = loss == FY_LOSS_MSE ? 0 : 2,
                                          .targets = loss == FY_LOSS_MSE ? 2 : 0 };
        fy_model_t *model = new_model(
            ctx->device, SEQUENCE(batch_norm(3, FY_ACTIVATION_NONE), dropout(0.5), fc(3, 2)),
            FY_DIMS(3), NULL);
        fy_loader_t *good = loader_of(ctx->device, right);
        fy_loader_t *bad = loader_of(cases[i].is_elsewhere ? other : ctx->device, cases[i].info);
        fy_optimizer_options_t sgd = optimizer_defaults(FY_OPTIMIZER_SGD);
        fy_find_lr_options_t sweep = FY_FIND_LR_OPTIONS_INIT;
        fy_find_lr_result_t found = FY_FIND_LR_RESULT_INIT;
        fy_train_options_t options = FY_TRAIN_OPTIONS_INIT;
        fy_loader_info_t place[2] = { FY_LOADER_INFO_INIT, FY_LOADER_INFO_INIT };
        fy_lr_point_t points[100];
        fy_optimizer_t *optimizer;
        assert_true(sweep.steps <= 100);
        options.loss = sweep.loss = loss;
        ts_ok(fy_optimizer_create_model(&sgd, model, &optimizer));
        const bits_t before = bits_of(model, optimizer);
        refuses(fy_train_run(model, optimizer, bad, NULL, &options, NULL), i);
        refuses(fy_train_run(model, optimizer, good, bad, &options, NULL), i);
        refuses(fy_train_evaluate(model, bad, loss, NULL, NULL), i);
        refuses(fy_train_find_lr(model, optimizer, bad, &sweep, points, &found), i);
        expect_bits(bits_of(model, optimizer), &before);
        ts_ok(fy_loader_query(good, &place[0]));
        ts_ok(fy_loader_query(bad, &place[1]));
        assert_int_equal(place[0].step + place[1].step, 0);
        ts_ok(fy_train_run(model, optimizer, good, good, &options, NULL));
        free(before.bytes);
        fy_optimizer_destroy(optimizer);
        fy_loader_destroy(good);
        fy_loader_destroy(bad);
        fy_model_destroy(model);
    }
    fy_device_close(other);
}
