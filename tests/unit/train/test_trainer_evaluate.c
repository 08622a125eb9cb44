/* Evaluation leaves the loader where it was. */
#include "tests/unit/train/fixture.h"

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
