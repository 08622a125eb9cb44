/* Dropout through the typed calls, the tape and graphs: the dropped share, a gradient that drops
 * the same elements, and new draws each time, also in a replayed step. Every dtype and layout,
 * element by element, is tested in tests/ops/. */
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

/* Within five standard deviations of a binomial draw; what is kept is scaled so that the mean
 * stays. */
TS_DEVICE_TEST(drops_a_share_and_scales_the_rest)
{
    static const double shares[] = { 0, 0.1, 0.25, 0.5, 0.9, 1 };
    fy_tensor_t *x = ones(ctx, FY_DIMS(N)), *rng, *y;
    ts_ok(fy_rng_create(ctx->device, 5, &rng));
    for (size_t k = 0; k < sizeof shares / sizeof *shares; k++) {
        const double p = shares[k];
        ts_ok(fy_dropout(rng, x, p, &y));
        ts_read(y, got, sizeof got);
        const double zeros = (double)count_zeros(got, N), sigma = sqrt(N * p * (1 - p));
        if (fabs(zeros - N * p) > 5 * sigma) fail_msg("p %g: %g of %d are zero", p, zeros, N);
        for (size_t i = 0; i < N; i++)
            assert_true(got[i] == 0 || fabs(got[i] - 1 / (1 - p)) < 1e-5);
    }
}

TS_DEVICE_TEST(each_draw_is_another_one)
{
    fy_tensor_t *x = ones(ctx, FY_DIMS(N)), *rng, *same, *y;
    int64_t state[2];
    ts_ok(fy_rng_create(ctx->device, 5, &rng));
    ts_ok(fy_rng_create(ctx->device, 5, &same));
    ts_ok(fy_dropout(rng, x, 0.5, &y));
    ts_read(y, got, sizeof got);
    ts_ok(fy_dropout(rng, x, 0.5, &y));
    ts_read(y, again, sizeof again);
    uint64_t differ = 0;
    for (size_t i = 0; i < N; i++) differ += got[i] != again[i];
    assert_true(fabs((double)differ - N / 2.0) < 5 * sqrt(N) / 2);
    ts_ok(fy_dropout(same, x, 0.5, &y));
    ts_read(y, again, sizeof again);
    assert_memory_equal(got, again, sizeof got);
    ts_read(rng, state, sizeof state);
    assert_true(state[0] == 5 && state[1] == 2 * (N / 64) * 16);
}

TS_DEVICE_TEST(channels_are_dropped_whole)
{
    enum { IMAGES = 32, PIXELS = 12, CHANNELS = 20 };
    fy_tensor_t *x = ones(ctx, FY_DIMS(IMAGES, 3, 4, CHANNELS)), *rng, *y;
    ts_ok(fy_rng_create(ctx->device, 6, &rng));
    ts_ok(fy_dropout2d(rng, x, 0.5, &y));
    ts_read(y, got, IMAGES * PIXELS * CHANNELS * sizeof *got);
    uint64_t dropped = 0;
    for (size_t n = 0; n < IMAGES; n++)
        for (size_t c = 0; c < CHANNELS; c++) {
            const float first = got[n * PIXELS * CHANNELS + c];
            for (size_t p = 0; p < PIXELS; p++)
                assert_true(got[(n * PIXELS + p) * CHANNELS + c] == first);
            assert_true(first == 0 || first == 2);
            dropped += first == 0;
        }
    assert_true(fabs((double)dropped - IMAGES * CHANNELS / 2.0) < 5 * sqrt(IMAGES * CHANNELS) / 2);
}

/* y = dropout(x), so with a gradient of ones dx is y for x of ones. */
TS_DEVICE_TEST(the_gradient_drops_the_same)
{
    for (int channels = 0; channels < 2; channels++) {
        const size_t n = 16 * 4 * 4 * 20;
        fy_tensor_t *x = ones(ctx, FY_DIMS(16, 4, 4, 20)), *rng, *y, *loss, *g, *other;
        fy_tape_t *tape;
        ts_ok(fy_rng_create(ctx->device, 7, &rng));
        tape = ts_record(x, NULL);
        ts_ok((channels ? fy_dropout2d : fy_dropout)(rng, x, 0.3, &y));
        /* advances the state, which must not matter */
        ts_ok((channels ? fy_dropout2d : fy_dropout)(rng, y, 0, &other));
        ts_ok(fy_sum(other, 0, NULL, 0, &loss));
        ts_ok(fy_tape_backward(tape, loss, NULL));
        ts_ok(fy_tape_grad(tape, x, &g));
        ts_read(y, got, n * sizeof *got);
        ts_read(g, again, n * sizeof *again);
        assert_memory_equal(got, again, n * sizeof *got);
        assert_true(count_zeros(got, n) > 0);
        fy_tape_destroy(tape);
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
