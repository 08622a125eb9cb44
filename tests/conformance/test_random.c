/* Random draws: the same seed and number of draws give the same bits on every device, for any shape
 * and layout of the destination, on any thread. The state advances on the device. Permutations are
 * permutations. Values themselves: tests/ops (Philox again, from the paper). */
#include "tests/support/harness.h"

enum { N = 5000 };

static fy_tensor_t *rng_on(fy_device_t *device, int64_t seed)
{
    fy_tensor_t *rng;
    ts_ok(fy_rng_create(device, seed, &rng));
    fy_tensor_info_t info = ts_info(rng);
    assert_int_equal(info.dtype, FY_DTYPE_I64);
    assert_int_equal(info.rank, 1);
    assert_int_equal(info.dims[0], 2);
    return rng;
}

TS_DEVICE_TEST(same_seed_same_bits_as_on_the_host)
{
    fy_device_t *devices[2] = { fy_device_host(), ctx->device };
    float uniform[2][N];
    int64_t order[2][N], state[2][2];
    for (int d = 0; d < 2; d++) {
        fy_tensor_t *rng = rng_on(devices[d], 42), *x;
        ts_ok(fy_rand(rng, FY_DTYPE_F32, FY_DIMS(N), -2, 5, &x));
        ts_read(x, uniform[d], sizeof uniform[d]);
        ts_ok(fy_randperm(rng, N, &x));
        ts_read(x, order[d], sizeof order[d]);
        ts_read(rng, state[d], sizeof state[d]);
    }
    assert_memory_equal(uniform[0], uniform[1], sizeof uniform[0]);
    assert_memory_equal(order[0], order[1], sizeof order[0]);
    assert_memory_equal(state[0], state[1], sizeof state[0]);
    assert_int_equal(state[0][0], 42);
    for (int i = 0; i < N; i++) assert_true(uniform[0][i] >= -2.0f && uniform[0][i] < 5.0f);
}

TS_DEVICE_TEST(nothing_crosses)
{
    fy_ledger_totals_t before = ts_ledger(NULL);
    fy_tensor_t *rng = rng_on(ctx->device, 7), *x, *order;
    for (int i = 0; i < 10; i++) {
        ts_ok(fy_randn(rng, FY_DTYPE_F32, FY_DIMS(100), 0, 1, &x));
        ts_ok(fy_randperm(rng, 1500, &order));
    }
    fy_ledger_totals_t after = ts_ledger(NULL);
    assert_int_equal(after.upload.nbytes, before.upload.nbytes);
    assert_int_equal(after.download.nbytes, before.download.nbytes);
    assert_int_equal(after.syncs, before.syncs);
}

TS_DEVICE_TEST(draws_follow_each_other)
{
    fy_tensor_t *rng = rng_on(ctx->device, 1), *again = rng_on(ctx->device, 1),
                *other = rng_on(ctx->device, 2), *x;
    float first[64], second[64], both[128], elsewhere[64];
    ts_ok(fy_rand(rng, FY_DTYPE_F32, FY_DIMS(64), 0, 1, &x));
    ts_read(x, first, sizeof first);
    ts_ok(fy_rand(rng, FY_DTYPE_F32, FY_DIMS(8, 8), 0, 1, &x));
    ts_read(x, second, sizeof second);
    ts_ok(fy_rand(again, FY_DTYPE_F32, FY_DIMS(128), 0, 1, &x));
    ts_read(x, both, sizeof both);
    ts_ok(fy_rand(other, FY_DTYPE_F32, FY_DIMS(64), 0, 1, &x));
    ts_read(x, elsewhere, sizeof elsewhere);
    /* two draws of whole blocks are one draw of both */
    assert_memory_equal(first, both, sizeof first);
    assert_memory_equal(second, both + 64, sizeof second);
    assert_memory_not_equal(first, second, sizeof first);
    assert_memory_not_equal(first, elsewhere, sizeof first);
}

TS_DEVICE_TEST(permutations)
{
    fy_tensor_t *rng = rng_on(ctx->device, 3), *order;
    int64_t values[2][1503];
    static const int64_t sizes[] = { 0, 1, 2, 3, 5, 16, 17, 1500, 1503 };
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        for (int round = 0; round < 2; round++) {
            unsigned char seen[1503] = { 0 };
            ts_ok(fy_randperm(rng, sizes[s], &order));
            ts_read(order, values[round], (size_t)sizes[s] * 8);
            for (int64_t i = 0; i < sizes[s]; i++) {
                assert_in_range(values[round][i], 0, sizes[s] - 1);
                assert_false(seen[values[round][i]]++);
            }
        }
        /* a new permutation each time */
        if (sizes[s] >= 16) assert_memory_not_equal(values[0], values[1], (size_t)sizes[s] * 8);
    }
    /* no fixed pattern: element 0 appears at every position */
    int hits[5] = { 0 };
    for (int i = 0; i < 500; i++) {
        ts_ok(fy_randperm(rng, 5, &order));
        ts_read(order, values[0], 40);
        hits[values[0][0]]++;
        fy_tensor_destroy(order);
    }
    for (int i = 0; i < 5; i++) assert_in_range(hits[i], 50, 150); /* 100 expected, deviation 9 */
    ts_fails(fy_randperm(rng, -1, &order), INVALID_ARGUMENT);
    assert_null(order);
}

TS_DEVICE_TEST(moments)
{
    enum { M = 40000 };
    fy_tensor_t *rng = rng_on(ctx->device, 11), *x;
    float *values = malloc(M * sizeof *values);
    assert_non_null(values);
    for (int normal = 0; normal < 2; normal++) {
        if (normal)
            ts_ok(fy_randn(rng, FY_DTYPE_F32, FY_DIMS(M), 2, 3, &x));
        else
            ts_ok(fy_rand(rng, FY_DTYPE_F32, FY_DIMS(M), -1, 3, &x));
        ts_read(x, values, M * sizeof *values);
        double mean = 0, square = 0;
        for (int i = 0; i < M; i++) mean += (double)values[i] / M;
        for (int i = 0; i < M; i++)
            square += ((double)values[i] - mean) * ((double)values[i] - mean) / M;
        double want_mean = normal ? 2 : 1, want_square = normal ? 9 : 16.0 / 12;
        assert_true(mean > want_mean - 0.1 && mean < want_mean + 0.1);
        assert_true(square > 0.95 * want_square && square < 1.05 * want_square);
    }
    free(values);
}
