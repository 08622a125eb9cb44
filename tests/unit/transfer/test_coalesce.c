/* The benefit of packing, on the model clock: one copy instead of hundreds, and the time that it
 * saves. Also slots that are too small. */
#include "tests/support/harness.h"

static fy_device_t *g_device;

static uint64_t model_ns(void)
{
    const fy_device_clock_t clock = ts_clock(g_device);
    assert_int_equal(clock.kind, FY_CLOCK_MODEL);
    return clock.now_ns;
}

enum { N = 256, NBYTES = 4096 };

static void make(fy_tensor_t **host, fy_tensor_t **device)
{
    static unsigned char bytes[NBYTES];
    for (int i = 0; i < N; i++) {
        ts_ok(fy_tensor_wrap(fy_device_host(), FY_DTYPE_U8, FY_DIMS(NBYTES), bytes, NULL, NULL,
                             &host[i]));
        ts_ok(fy_empty(g_device, FY_DTYPE_U8, FY_DIMS(NBYTES), &device[i]));
    }
}

TS_TEST(packed_transfers_take_one_copy_and_an_eighth_of_the_time)
{
    fy_tensor_t *host[N], *device[N];
    g_device = ts_open("sim:0?profile=h200");
    make(host, device);
    /* creates the ring and the scratch memory */
    ts_ok(fy_tensor_upload_many_into(N, device, host, NULL, NULL));

    uint64_t start_ns = model_ns();
    fy_ledger_totals_t before = ts_ledger(NULL);
    for (int i = 0; i < N; i++) ts_ok(fy_tensor_upload_into(device[i], host[i], NULL, NULL));
    const uint64_t loop_ns = model_ns() - start_ns;
    fy_ledger_totals_t after = ts_ledger(NULL);
    assert_int_equal(after.upload.copies - before.upload.copies, N);

    start_ns = model_ns();
    before = ts_ledger(NULL);
    ts_ok(fy_tensor_upload_many_into(N, device, host, NULL, NULL));
    after = ts_ledger(NULL);
    const uint64_t many_ns = model_ns() - start_ns;
    assert_int_equal(after.upload.copies - before.upload.copies, 1);
    assert_int_equal(after.upload.count - before.upload.count, N);
    assert_int_equal(after.upload.nbytes - before.upload.nbytes, 1 << 20);
    assert_int_equal(after.upload.wire_nbytes - before.upload.wire_nbytes, (1 << 20) + N * 24);
    assert_int_equal(
        after.upload.by_path[FY_PATH_COALESCED] - before.upload.by_path[FY_PATH_COALESCED], N);
    assert_int_equal(after.device_allocs, before.device_allocs);
    print_message("256 x 4 KiB: %llu ns in a loop, %llu ns packed (model)\n",
                  (unsigned long long)loop_ns, (unsigned long long)many_ns);
    assert_true(many_ns * 8 <= loop_ns);

    fy_download_t *downloads[N];
    fy_tensor_t *got;
    start_ns = model_ns();
    for (int i = 0; i < N; i++) ts_ok(fy_tensor_download(device[i], NULL, &downloads[i]));
    for (int i = 0; i < N; i++) ts_ok(fy_download_wait(downloads[i], FY_FOREVER, &got));
    const uint64_t down_loop_ns = model_ns() - start_ns;
    start_ns = model_ns();
    before = ts_ledger(NULL);
    ts_ok(fy_tensor_download_many(N, device, NULL, downloads));
    for (int i = 0; i < N; i++) ts_ok(fy_download_wait(downloads[i], FY_FOREVER, &got));
    after = ts_ledger(NULL);
    const uint64_t down_many_ns = model_ns() - start_ns;
    assert_int_equal(after.download.copies - before.download.copies, 1);
    assert_int_equal(after.download.nbytes - before.download.nbytes, 1 << 20);
    print_message("down: %llu ns in a loop, %llu ns packed (model)\n",
                  (unsigned long long)down_loop_ns, (unsigned long long)down_many_ns);
    assert_true(down_many_ns * 8 <= down_loop_ns);
}

/* Packing needs two or more transfers: a single one runs as in fy_tensor_upload and
 * fy_tensor_download, without a table. */
TS_TEST(a_single_transfer_is_not_packed)
{
    fy_tensor_t *host[N], *device[N], *got;
    g_device = ts_open("sim:0");
    make(host, device);
    for (int count = 1; count <= 2; count++) {
        fy_download_t *downloads[2];
        const fy_ledger_totals_t before = ts_ledger(NULL);
        ts_ok(fy_tensor_upload_many_into((size_t)count, device, host, NULL, NULL));
        ts_ok(fy_tensor_download_many((size_t)count, device, NULL, downloads));
        for (int i = 0; i < count; i++) ts_ok(fy_download_wait(downloads[i], FY_FOREVER, &got));
        const fy_ledger_totals_t after = ts_ledger(NULL);
        const uint64_t npacked = count < 2 ? 0 : (uint64_t)count;
        assert_int_equal(after.upload.by_path[FY_PATH_COALESCED] -
                             before.upload.by_path[FY_PATH_COALESCED],
                         npacked);
        assert_int_equal(after.download.by_path[FY_PATH_COALESCED] -
                             before.download.by_path[FY_PATH_COALESCED],
                         npacked);
    }
}

/* Slots of 4 KiB: a tensor that does not fit is copied alone, the rest in many copies; the bytes
 * are the same. */
TS_TEST(a_small_ring)
{
    fy_tensor_t *host[64], *device[64];
    unsigned char bytes[5000], back[5000];
    g_device = ts_open("sim:0?pinned=64KiB");
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (unsigned char)(i * 7 + i / 256);
    for (int i = 0; i < 64; i++)
        ts_ok(fy_tensor_wrap(fy_device_host(), FY_DTYPE_U8, FY_DIMS(i * 75 + 1), bytes + i, NULL,
                             NULL, &host[i]));
    fy_ledger_totals_t before = ts_ledger(NULL);
    ts_ok(fy_tensor_upload_many(64, host, g_device, NULL, device));
    fy_ledger_totals_t after = ts_ledger(NULL);
    /* up to 1 KiB */
    assert_int_equal(
        after.upload.by_path[FY_PATH_COALESCED] - before.upload.by_path[FY_PATH_COALESCED], 14);
    assert_int_equal(after.upload.by_path[FY_PATH_STAGED] - before.upload.by_path[FY_PATH_STAGED],
                     50);
    for (int i = 0; i < 64; i++) {
        ts_read(device[i], back, (size_t)(i * 75 + 1));
        assert_memory_equal(back, bytes + i, (size_t)(i * 75 + 1));
    }
}
