/* A training step of mnist on the plugin's host side: the number of kernels and products of its
 * requests, counted by the fake driver. docs/cuda.md documents each request with more than one
 * launch.
 * Not here: the number of requests of a step (tests/unit/train/test_launches.c). */
#include "tests/support/fake_driver.h"

#include <ferry/train/model.h>

enum { BATCH = 8, WARM_UP = 3, STEPS = 3 };

typedef struct trained {
    fy_model_t *model;
    fy_tape_t *tape;
    fy_tensor_t *images, *targets, *lr, *square_avg, *acc_delta;
} trained_t;

static void make(ts_ctx_t *ctx, trained_t *out)
{
    fy_tensor_t *rng;
    fy_model_info_t info = FY_MODEL_INFO_INIT;
    ts_ok(fy_rng_create(ctx->device, 4, &rng));
    ts_ok(fy_rand(rng, FY_DTYPE_F32, FY_DIMS(BATCH, 28, 28, 1), -1, 1, &out->images));
    ts_ok(fy_arange(ctx->device, FY_DTYPE_I64, 0, 1, BATCH, &out->targets));
    ts_ok(fy_full(ctx->device, FY_DTYPE_F32, 0, NULL, 0.1, &out->lr));
    ts_ok(fy_model_open(ctx->device, "mnist", NULL, &out->model));
    ts_ok(fy_model_query(out->model, &info));
    ts_ok(fy_zeros(ctx->device, FY_DTYPE_F32, 1, ts_info(info.values).dims, &out->square_avg));
    ts_ok(fy_zeros(ctx->device, FY_DTYPE_F32, 1, ts_info(info.values).dims, &out->acc_delta));
    ts_ok(fy_tape_create(&out->tape));
    ts_ok(fy_model_watch(out->model, out->tape));
}

static void step(trained_t *trained)
{
    fy_tensor_t *logits, *loss;
    fy_model_info_t info = FY_MODEL_INFO_INIT;
    fy_scope_t scope = fy_scope_begin("step");
    ts_ok(fy_model_query(trained->model, &info));
    ts_ok(fy_tape_begin(trained->tape));
    ts_ok(fy_model_forward(trained->model, trained->images, &logits));
    ts_ok(fy_cross_entropy(logits, trained->targets, FY_REDUCTION_MEAN, &loss));
    ts_ok(fy_model_backward(trained->model, trained->tape, loss, NULL));
    ts_ok(fy_adadelta_step(info.values, info.grads, trained->square_avg, trained->acc_delta,
                           trained->lr, NULL));
    fy_scope_end(scope, 0, NULL);
}

static int64_t launches(void)
{
    return driver.fake_cuda_calls("cuLaunchKernel") + driver.fake_cuda_calls("cublasLtMatmul");
}

TS_DEVICE_TEST(a_step_of_mnist_has_the_documented_launches)
{
    trained_t trained;
    make(ctx, &trained);
    for (int i = 0; i < WARM_UP; i++) step(&trained);
    const fy_ledger_totals_t before = ts_ledger(NULL);
    const int64_t launched = launches(),
                  asked = driver.fake_cuda_calls("cublasLtMatmulAlgoGetHeuristic");
    for (int i = 0; i < STEPS; i++) step(&trained);
    const uint64_t requests = (ts_ledger(NULL).requests - before.requests) / STEPS;
    const int64_t each = (launches() - launched) / STEPS;
    print_message("           %llu requests, %lld launches a step\n", (unsigned long long)requests,
                  (long long)each);
    assert_int_equal((launches() - launched) % STEPS, 0);
    assert_int_equal(driver.fake_cuda_calls("cublasLtMatmulAlgoGetHeuristic"), asked);
    /* Two dropouts advance a state first: 2. relu after a product: 1. Weight gradients of two
     * convolutions: products of slices and their sum, and db's sum in one and in three parts: 2 +
     * 4. */
    assert_true(each >= (int64_t)requests && each <= (int64_t)requests + 9);
    fy_model_destroy(trained.model);
}

static int prepare(void)
{
    fake_driver_or_skip();
    setenv("FERRY_TEST_DEVICE", "cuda:0", 1);
    return 0;
}

TS_SUITE(.prepare = prepare);
