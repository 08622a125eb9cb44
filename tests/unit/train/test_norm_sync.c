/* fy_model_sync_norms with an exchange that stands for ranks with equal batches: each step is that
 * of one process with the batch as often. Refusals, and an exchange that fails. Ranks with
 * different batches, by MPI: tests/unit/dist/test_norms.sh. */
#include <math.h>

#include "tests/unit/train/fixture.h"

enum { RANKS = 3, C = 5 };

typedef struct ranks {
    int gathers, sums;
    int fails; /* the call that fails; 0: none */
} ranks_t;

static fy_status_t count(ranks_t *ranks)
{
    if (ranks->gathers + ranks->sums != ranks->fails) return FY_STATUS_OK;
    return fy_error_set(FY_STATUS_RANK_LOST, __FILE__, __LINE__, "planted");
}

static fy_status_t gather(void *user, fy_tensor_t *all, fy_tensor_t *part)
{
    ranks_t *ranks = user;
    void *to, *from;
    ranks->gathers++;
    FY_TRY(count(ranks));
    const size_t nbytes = (1 + 2 * C) * sizeof(double);
    assert_true(ts_info(part).nbytes == nbytes && ts_info(all).nbytes == RANKS * nbytes);
    assert_true(ts_info(part).dtype == FY_DTYPE_F64 && ts_info(part).device == fy_device_host());
    ts_ok(fy_tensor_map(all, FY_ACCESS_WRITE, &to));
    ts_ok(fy_tensor_map(part, FY_ACCESS_READ, &from));
    for (int r = 0; r < RANKS; r++) memcpy((char *)to + (size_t)r * nbytes, from, nbytes);
    return FY_STATUS_OK;
}

static fy_status_t sum(void *user, fy_tensor_t *tensor)
{
    ranks_t *ranks = user;
    fy_tensor_t *all;
    ranks->sums++;
    FY_TRY(count(ranks));
    FY_TRY(fy_affine(tensor, RANKS, 0, &all));
    return fy_copy(tensor, all);
}

/* norm, relu; norm, sum, relu: [n, 2, C]. Two norms, one of them with a residual. */
static fy_model_t *make_model(fy_device_t *device, fy_dtype_t dtype)
{
    fy_batch_norm_options_t options = FY_BATCH_NORM_OPTIONS_INIT;
    fy_model_options_t given = FY_MODEL_OPTIONS_INIT;
    fy_layer_t *first, *second, *block, *all;
    options.activation = FY_ACTIVATION_RELU;
    options.momentum = 0.3;
    given.dtype = dtype;
    ts_ok(fy_layer_batch_norm(C, &options, &first));
    options.activation = FY_ACTIVATION_NONE;
    ts_ok(fy_layer_batch_norm(C, &options, &second));
    ts_ok(fy_layer_residual(second, NULL, FY_ACTIVATION_RELU, &block));
    const fy_layer_child_t children[] = { { "first", first }, { "second", block } };
    ts_ok(fy_layer_sequential(2, children, &all));
    return new_model(device, all, FY_DIMS(C), &given);
}

static fy_tensor_t *make_input(fy_device_t *device, int64_t n, fy_dtype_t dtype)
{
    float values[64];
    fy_tensor_t *x;
    for (int i = 0; i < n * C; i++) values[i] = (float)((i * 37 + 11) % 29) * 0.25f - 3;
    ts_ok(fy_cast(ts_f32(device, FY_DIMS(n, C), values), dtype, &x));
    return x;
}

/* One forward and backward: the gradients of x and of the parameters. */
static fy_status_t step(fy_model_t *model, fy_tensor_t *x, fy_tensor_t **out_dx)
{
    fy_tensor_t *y, *loss;
    *out_dx = NULL;
    fy_tape_t *tape = watch(model);
    ts_ok(fy_tape_watch(tape, x, NULL));
    ts_ok(fy_tape_begin(tape));
    FY_TRY(fy_model_forward(model, x, &y));
    ts_ok(fy_mul(y, y, &y));
    ts_ok(fy_sum(y, FY_ALL_AXES, 0, &loss));
    FY_TRY(fy_model_backward(model, tape, loss, NULL));
    return fy_tape_grad(tape, x, out_dx);
}

static void expect_near(const fy_tensor_t *got, const fy_tensor_t *want, double factor,
                        double bound)
{
    double a[512], b[512], most = 0, largest = 0;
    fy_tensor_t *wide;
    const size_t n = (size_t)ts_info(got).nelem;
    assert_true(n == (size_t)ts_info(want).nelem && n <= 512);
    ts_ok(fy_cast(got, FY_DTYPE_F64, &wide));
    ts_read(wide, a, n * sizeof *a);
    ts_ok(fy_cast(want, FY_DTYPE_F64, &wide));
    ts_read(wide, b, n * sizeof *b);
    for (size_t i = 0; i < n; i++) {
        most = fmax(most, fabs(a[i] * factor - b[i]));
        largest = fmax(largest, fabs(b[i]));
    }
    if (most > bound * largest) fail_msg("differs by %g of %g", most, largest);
}

static fy_norm_exchange_t exchange_of(ranks_t *ranks)
{
    return (fy_norm_exchange_t){ sizeof(fy_norm_exchange_t), RANKS, ranks, gather, sum };
}

static void check(ts_ctx_t *ctx, int64_t n, fy_dtype_t dtype, fy_dtype_t low, double bound)
{
    ranks_t ranks = { 0 };
    fy_model_t *one = make_model(ctx->device, dtype), *many = make_model(ctx->device, dtype);
    fy_model_info_t a = FY_MODEL_INFO_INIT, b = FY_MODEL_INFO_INIT;
    fy_norm_exchange_t exchange = exchange_of(&ranks);
    fy_tensor_t *x = make_input(ctx->device, n, dtype), *whole, *dx, *dwhole;
    ts_ok(fy_concat(RANKS, (fy_tensor_t *[]){ x, x, x }, 0, &whole));
    ts_ok(fy_model_sync_norms(many, &exchange));
    ts_ok(fy_model_query(one, &a));
    ts_ok(fy_model_query(many, &b));
    const fy_scope_t scope = fy_scope_begin("steps");
    if (low) ts_ok(fy_autocast_set(low));
    if (low) ts_ok(fy_cast(x, low, &x));
    if (low) ts_ok(fy_cast(whole, low, &whole));
    ts_ok(step(one, whole, &dwhole));
    ts_ok(step(many, x, &dx));
    assert_true(ranks.gathers == 2 && ranks.sums == 2);
    assert_int_equal(ts_info(dx).dtype, ts_info(dwhole).dtype);
    fy_scope_end(scope, 2, (fy_tensor_t *[]){ dx, dwhole });
    ts_ok(fy_slice(dwhole, 0, 0, n, &dwhole));
    expect_near(dx, dwhole, 1, bound);
    expect_near(b.grads, a.grads, RANKS, bound); /* its own samples only */
    expect_near(b.buffers, a.buffers, 1, bound);
    fy_model_set_training(many, 0); /* evaluation exchanges nothing */
    fy_tensor_t *y;
    ts_ok(fy_model_forward(many, make_input(ctx->device, n, dtype), &y));
    assert_int_equal(ranks.gathers, 2);
    fy_model_destroy(one);
    fy_model_destroy(many);
}

TS_DEVICE_TEST(equal_ranks_are_one_process)
{
    check(ctx, 6, FY_DTYPE_F64, 0, 1e-12);
    check(ctx, 6, FY_DTYPE_F32, 0, 2e-5);
    check(ctx, 6, FY_DTYPE_F32, FY_DTYPE_BF16, 0.1);
    check(ctx, 6, FY_DTYPE_F32, FY_DTYPE_F16, 0.02);
}

/* A rank's variance is 0 then: all ranks have the same sample, and so is that of all. */
TS_DEVICE_TEST(a_rank_may_have_one_value)
{
    ranks_t ranks = { 0 };
    fy_norm_exchange_t exchange = exchange_of(&ranks);
    fy_model_t *model = make_model(ctx->device, FY_DTYPE_F64);
    fy_tensor_t *x = make_input(ctx->device, 1, FY_DTYPE_F64), *dx;
    double values[C], running[2 * 16 + C];
    ts_ok(fy_model_sync_norms(model, &exchange));
    const fy_model_info_t info = model_info(model);
    ts_ok(step(model, x, &dx));
    ts_read(x, values, sizeof values);
    fy_tensor_t *part;
    ts_ok(fy_slice(info.buffers, 0, 0, 2 * 16 + C, &part));
    ts_read(part, running, sizeof running);
    for (int c = 0; c < C; c++) {
        assert_true(fabs(running[c] - 0.3 * values[c]) < 1e-14); /* first.running_mean */
        assert_true(fabs(running[16 + c] - 0.7) < 1e-14);        /* first.running_var */
    }
    fy_model_destroy(model);
}

TS_DEVICE_TEST(refusals)
{
    ranks_t ranks = { 0 };
    fy_norm_exchange_t exchange = exchange_of(&ranks), bad = exchange;
    fy_model_t *model = make_model(ctx->device, FY_DTYPE_F32), *half;
    fy_model_options_t options = FY_MODEL_OPTIONS_INIT;
    fy_layer_t *layer;
    fy_tensor_t *x = make_input(ctx->device, 4, FY_DTYPE_F32), *y;
    ts_fails(fy_model_sync_norms(NULL, &exchange), INVALID_ARGUMENT);
    bad.ranks = 0;
    ts_fails_with(fy_model_sync_norms(model, &bad), INVALID_ARGUMENT, "0 ranks");
    bad = exchange;
    bad.sum = NULL;
    ts_fails(fy_model_sync_norms(model, &bad), INVALID_ARGUMENT);
    ts_ok(fy_layer_linear(C, C, NULL, &layer));
    options.dtype = FY_DTYPE_F16;
    ts_ok(fy_model_create(ctx->device, layer, FY_DIMS(C), &options, &half));
    ts_fails_with(fy_model_sync_norms(half, &exchange), DTYPE_MISMATCH, "f16");
    fy_model_destroy(half);
    ts_ok(fy_model_forward(model, x, &y)); /* none was set */
    ts_ok(fy_model_sync_norms(model, &exchange));
    ts_ok(fy_model_forward(model, x, &y));
    ts_ok(fy_model_sync_norms(model, NULL));
    ts_ok(fy_model_forward(model, x, &y));
    assert_int_equal(ranks.gathers, 2);
    fy_model_destroy(model);
}

/* Each call of the exchange fails once: a failed forward has not changed its norm. */
TS_DEVICE_TEST(an_exchange_that_fails_changes_nothing)
{
    float before[128], after[128];
    for (int n = 1; n <= 4; n++) {
        ranks_t ranks = { .fails = n };
        fy_norm_exchange_t exchange = exchange_of(&ranks);
        fy_model_t *model = make_model(ctx->device, FY_DTYPE_F32);
        fy_tensor_t *x = make_input(ctx->device, 6, FY_DTYPE_F32), *dx;
        const fy_model_info_t info = model_info(model);
        const size_t nbytes = (size_t)ts_info(info.buffers).nbytes;
        assert_true(nbytes <= sizeof before);
        ts_read(info.buffers, before, nbytes);
        ts_ok(fy_model_sync_norms(model, &exchange));
        ts_fails_with(step(model, x, &dx), RANK_LOST, "planted");
        ts_read(info.buffers, after, nbytes);
        if (n == 1) assert_memory_equal(before, after, nbytes);
        if (n == 2) assert_memory_equal(before + 32, after + 32, nbytes - 32 * sizeof *before);
        ts_ok(step(model, x, &dx));
        fy_model_destroy(model);
    }
}
