/* Sums over devices by their library (a stand-in for NCCL over the fake driver) and by copies: both
 * give the same bits for two devices, count the same bytes, and poison the tensors when the library
 * fails. Skipped where the CUDA plugin was not built. */
#include <ferry/train/parallel.h>

#include "tests/support/fake_driver.h"

enum { N = 10007 };

static fy_device_t *sims[2], *cards[2];
static fy_scope_t scope;

static int set_up(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        char spec[16];
        snprintf(spec, sizeof spec, "cuda:%d", i);
        ts_ok(fy_device_open(spec, &cards[i]));
        snprintf(spec, sizeof spec, "sim:%d", i);
        ts_ok(fy_device_open(spec, &sims[i]));
    }
    scope = fy_scope_begin("test");
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    driver.fake_cuda_fail(NULL, 0, 0);
    for (int i = 0; i < 2; i++) ts_ok(fy_device_wait(cards[i], FY_FOREVER));
    fy_scope_end(scope, 0, NULL);
    for (int i = 0; i < 2; i++) {
        fy_device_close(cards[i]);
        fy_device_close(sims[i]);
    }
    return 0;
}

/* Sums that round, as `dtype`; the bits of both results. */
static void sum_on(fy_device_t *const *devices, fy_dtype_t dtype, unsigned char bits[2][N * 8],
                   uint64_t *out_peer_nbytes)
{
    static float values[N];
    fy_tensor_t *x[2];
    for (int i = 0; i < 2; i++) {
        fy_transfer_options_t options = FY_TRANSFER_OPTIONS_INIT;
        options.dtype = dtype;
        for (int k = 0; k < N; k++)
            values[k] = (float)((k * 37 + i * 101) % 977) / 7.0f * (i ? -31.0f : 1.0f);
        ts_ok(fy_tensor_upload(ts_host_f32(FY_DIMS(N), values), devices[i], &options, &x[i]));
    }
    const fy_ledger_totals_t before = ts_ledger(NULL);
    ts_ok(fy_allreduce_sum(2, x));
    const fy_ledger_totals_t after = ts_ledger(NULL);
    assert_int_equal(after.syncs, before.syncs);
    assert_int_equal(after.peer.wire_nbytes - before.peer.wire_nbytes,
                     after.peer.nbytes - before.peer.nbytes);
    *out_peer_nbytes = after.peer.nbytes - before.peer.nbytes;
    const size_t nbytes = N * (dtype == FY_DTYPE_F64 ? 8 : dtype == FY_DTYPE_F32 ? 4 : 2);
    for (int i = 0; i < 2; i++) ts_read(x[i], bits[i], nbytes);
    assert_memory_equal(bits[0], bits[1], nbytes);
}

TS_TEST(the_same_bits_and_bytes)
{
    static const fy_dtype_t dtypes[] = { FY_DTYPE_F32, FY_DTYPE_F64, FY_DTYPE_F16, FY_DTYPE_BF16 };
    static unsigned char library[2][N * 8], copies[2][N * 8];
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        uint64_t by_library, by_copies;
        const int64_t groups = driver.fake_cuda_calls("ncclGroupEnd"),
                      sent = driver.fake_cuda_calls("cuMemcpyPeerAsync");
        sum_on(cards, dtypes[i], library, &by_library);
        assert_int_equal(driver.fake_cuda_calls("ncclGroupEnd") - groups, 1);
        assert_int_equal(driver.fake_cuda_calls("cuMemcpyPeerAsync"), sent);
        sum_on(sims, dtypes[i], copies, &by_copies);
        assert_memory_equal(library, copies, sizeof library);
        assert_int_equal(by_library, by_copies);
    }
}

TS_TEST(an_unsupported_sum_is_refused)
{
    int done = 7;
    fy_tensor_t *x[2] = { ts_iota(sims[0], FY_DIMS(4), 1), ts_iota(sims[1], FY_DIMS(4), 5) };
    fy_tensor_t *mixed[2] = { ts_iota(cards[0], FY_DIMS(4), 1), x[1] };
    ts_ok(fy_tensor_all_reduce(2, x, NULL, &done));
    assert_int_equal(done, 0);
    ts_expect_f32(x[0], (float[]){ 1, 2, 3, 4 }, 4);
    ts_ok(fy_tensor_all_reduce(2, mixed, NULL, &done));
    assert_int_equal(done, 0);
    fy_tensor_t *whole[2], *twice[2] = { mixed[0], mixed[0] };
    for (int i = 0; i < 2; i++) ts_ok(fy_zeros(cards[i], FY_DTYPE_I32, FY_DIMS(4), &whole[i]));
    ts_fails(fy_tensor_all_reduce(2, whole, NULL, &done), DTYPE_MISMATCH);
    ts_fails(fy_tensor_all_reduce(2, twice, NULL, &done), DEVICE_MISMATCH);
    ts_fails(fy_tensor_all_reduce(0, NULL, NULL, &done), INVALID_ARGUMENT);
}

TS_TEST(a_guard_counts_it)
{
    fy_guard_options_t guard = FY_GUARD_OPTIONS_INIT;
    fy_tensor_t *x[2] = { ts_iota(cards[0], FY_DIMS(4), 1), ts_iota(cards[1], FY_DIMS(4), 5) };
    const fy_scope_t inner = fy_scope_begin("guarded");
    guard.peer_nbytes = 31; /* 32 are needed */
    ts_ok(fy_scope_guard(&guard));
    ts_fails(fy_allreduce_sum(2, x), REFUSED_BY_GUARD);
    fy_scope_end(inner, 0, NULL);
    ts_expect_f32(x[0], (float[]){ 1, 2, 3, 4 }, 4);
    ts_ok(fy_allreduce_sum(2, x));
    ts_expect_f32(x[1], (float[]){ 6, 8, 10, 12 }, 4);
}

TS_TEST(a_failed_sum_poisons_its_tensors)
{
    fy_download_t *download;
    fy_tensor_t *host;
    fy_tensor_t *x[2] = { ts_iota(cards[0], FY_DIMS(4), 1), ts_iota(cards[1], FY_DIMS(4), 5) };
    driver.fake_cuda_fail("ncclGroupEnd", 1, 6);
    ts_fails_with(fy_allreduce_sum(2, x), UNAVAILABLE, "ncclRemoteError");
    for (int i = 0; i < 2; i++) {
        ts_ok(fy_tensor_download(x[i], NULL, &download));
        ts_fails(fy_download_wait(download, FY_FOREVER, &host), UNAVAILABLE);
        ts_ok(fy_fill(x[i], 2)); /* a complete overwrite clears the poison */
    }
    ts_ok(fy_allreduce_sum(2, x));
    ts_expect_f32(x[0], (float[]){ 4, 4, 4, 4 }, 4);
}

static int prepare(void)
{
    fake_driver_or_skip();
    return setenv("FERRY_NCCL", getenv("FERRY_CUDA_DRIVER"), 1);
}

TS_SUITE(.set_up = set_up, .tear_down = tear_down, .prepare = prepare);
