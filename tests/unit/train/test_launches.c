/* The device requests of a training step of known models: only the number of requests, counted by
 * the ledger.
 * Not here: the values of the step (test_model.c, the ops' tests), its time (ferry bench train). */
#include "tests/unit/train/fixture.h"

enum { BATCH = 8, SAMPLES = 10, /* as many as classes */ WARM_UP = 3, STEPS = 3 };

typedef struct trained {
    fy_model_t *model;
    fy_tape_t *tape;
    fy_tensor_t *images, *targets, *lr, *square_avg, *acc_delta, *loss;
} trained_t;

static void make(ts_ctx_t *ctx, const char *name, trained_t *out)
{
    model_batch(ctx->device, name, SAMPLES, &out->images, &out->targets);
    ts_ok(fy_full(ctx->device, FY_DTYPE_F32, 0, NULL, 0.1, &out->lr));
    ts_ok(fy_model_open(ctx->device, name, NULL, &out->model));
    const fy_model_info_t info = model_info(out->model);
    ts_ok(fy_zeros(ctx->device, FY_DTYPE_F32, 1, ts_info(info.values).dims, &out->square_avg));
    ts_ok(fy_zeros(ctx->device, FY_DTYPE_F32, 1, ts_info(info.values).dims, &out->acc_delta));
    ts_ok(fy_tape_create(&out->tape));
    ts_ok(fy_model_watch(out->model, out->tape));
    out->loss = NULL;
}

/* Gather x and y, forward, loss, backward, Adadelta. */
static void step(trained_t *trained, fy_tensor_t *chosen)
{
    fy_tensor_t *x, *y, *logits;
    fy_scope_t scope = fy_scope_begin("step");
    const fy_model_info_t info = model_info(trained->model);
    ts_ok(fy_gather(trained->images, chosen, &x));
    ts_ok(fy_gather(trained->targets, chosen, &y));
    ts_ok(fy_tape_begin(trained->tape));
    ts_ok(fy_model_forward(trained->model, x, &logits));
    if (trained->loss) fy_tensor_destroy(trained->loss);
    ts_ok(fy_cross_entropy(logits, y, FY_REDUCTION_MEAN, &trained->loss));
    ts_ok(fy_model_backward(trained->model, trained->tape, trained->loss, NULL));
    ts_ok(fy_adadelta_step(info.values, info.grads, trained->square_avg, trained->acc_delta,
                           trained->lr, NULL));
    fy_tensor_keep(trained->loss);
    fy_scope_end(scope, 0, NULL);
}

static void count_launches(ts_ctx_t *ctx, const char *name, uint64_t least, uint64_t most)
{
    trained_t trained;
    fy_tensor_t *chosen;
    fy_scope_t scope = fy_scope_begin(name);
    make(ctx, name, &trained);
    ts_ok(fy_arange(ctx->device, FY_DTYPE_I64, 0, 1, BATCH, &chosen));
    for (int i = 0; i < WARM_UP; i++) step(&trained, chosen);
    const fy_ledger_totals_t before = ts_ledger(NULL);
    for (int i = 0; i < STEPS; i++) step(&trained, chosen);
    const fy_ledger_totals_t after = ts_ledger(NULL);
    const uint64_t launches = (after.requests - before.requests) / STEPS;
    print_message("           %s: %llu launches a step\n", name, (unsigned long long)launches);
    assert_int_equal((after.requests - before.requests) % STEPS, 0);
    assert_in_range(launches, least, most);
    assert_int_equal(after.device_allocs, before.device_allocs);
    assert_int_equal(after.syncs, before.syncs);
    assert_int_equal(after.upload.nbytes, before.upload.nbytes);
    assert_int_equal(after.download.nbytes, before.download.nbytes);
    fy_tensor_destroy(trained.loss);
    fy_model_destroy(trained.model);
    fy_scope_end(scope, 0, NULL);
}

/* Both dropouts of mnist are on: one launch each in the forward pass, and one each in the backward
 * pass. */
TS_DEVICE_TEST(a_step_of_a_model_has_few_launches)
{
    count_launches(ctx, "mnist", 15, 30);
    count_launches(ctx, "resnet18:size=8", 80, 120);
    count_launches(ctx, "mobilenet_v3_large:classes=10,size=32", 250, 430);
}
