/* Dropout through the typed calls and graphs: the dropped share, and new draws each time, also in a
 * replayed step. Every dtype and layout, element by element, and the gradients are tested in
 * tests/ops/. */
#include <math.h>

#include "tests/support/harness.h"

enum { N = 1 << 16 };
static float got[N], again[N];

static uint64_t count_zeros(const float *values, size_t n)
{
    uint64_t zeros = 0;
    for (size_t i = 0; i < n; i++) zeros += values[i] == 0;
    return zeros;
}

static fy_tensor_t *ones(ts_ctx_t *ctx, int rank, const int64_t *dims)
{
    fy_tensor_t *x;
    ts_ok(fy_full(ctx->device, FY_DTYPE_F32, rank, dims, 1, &x));
    return x;
}

/* x is ones: within five standard deviations of a binomial draw, what is kept is scaled so that the
 * mean stays, and the second call draws other values. */
TS_DEVICE_TEST(drops_a_share_and_scales_the_rest)
{
    const int64_t dims[4] = { 16, 4, 8, 128 };
    fy_tensor_t *x = ones(ctx, 4, dims), *rng, *y;
    int64_t state[2];
    for (int channels = 0; channels < 2; channels++) {
        const double p = 0.25, draws = channels ? 16 * 128 : N;
        ts_ok(fy_rng_create(ctx->device, 5, &rng));
        ts_ok((channels ? fy_dropout2d : fy_dropout)(rng, x, p, &y));
        ts_read(y, got, sizeof got);
        ts_ok((channels ? fy_dropout2d : fy_dropout)(rng, x, p, &y));
        ts_read(y, again, sizeof again);
        assert_memory_not_equal(got, again, sizeof got);
        const double zeros = (double)count_zeros(got, N) * draws / N;
        assert_true(fabs(zeros - draws * p) < 5 * sqrt(draws * p * (1 - p)));
        for (size_t i = 0; i < N; i++)
            assert_true(got[i] == 0 || fabs(got[i] - 1 / (1 - p)) < 1e-5);
        ts_read(rng, state, sizeof state);
        assert_true(state[0] == 5 && state[1] == 2 * (int64_t)(draws / 64) * 16);
    }
}

TS_DEVICE_TEST(a_replayed_step_draws_new_values)
{
    fy_tensor_t *x = ones(ctx, FY_DIMS(N)), *out = ones(ctx, FY_DIMS(N)), *rng, *y;
    ts_ok(fy_rng_create(ctx->device, 8, &rng));
    ts_ok(fy_graph_begin(ctx->device));
    fy_scope_t step = fy_scope_begin("step");
    ts_ok(fy_dropout(rng, x, 0.5, &y));
    ts_ok(fy_copy(out, y));
    fy_scope_end(step, 0, NULL);
    fy_graph_t *graph = ts_graph_end();
    ts_ok(fy_graph_replay(graph, NULL));
    ts_read(out, got, sizeof got);
    ts_ok(fy_graph_replay(graph, NULL));
    ts_read(out, again, sizeof again);
    assert_true(memcmp(got, again, sizeof got) != 0);
    assert_true(count_zeros(got, N) > 0 && count_zeros(again, N) > 0);
    fy_graph_destroy(graph);
}

TS_DEVICE_TEST(invalid_arguments_are_refused)
{
    fy_tensor_t *x = ones(ctx, FY_DIMS(4)), *rng, *y = x;
    ts_ok(fy_rng_create(ctx->device, 9, &rng));
    ts_fails_with(fy_dropout(rng, x, 1.5, &y), INVALID_ARGUMENT, "p is 1.5");
    assert_null(y);
    ts_fails(fy_dropout2d(rng, x, 0.5, &y), SHAPE_MISMATCH);
    ts_fails(fy_dropout(x, x, 0.5, &y), DTYPE_MISMATCH);
    ts_fails(fy_dropout(NULL, x, 0.5, &y), INVALID_ARGUMENT);
    ts_fails(fy_dropout(rng, NULL, 0.5, &y), INVALID_ARGUMENT);
    ts_fails(fy_dropout(rng, x, 0.5, NULL), INVALID_ARGUMENT);
    ts_fails(fy_dropout_backward(x, x, 0.5, &y), DTYPE_MISMATCH);
}
