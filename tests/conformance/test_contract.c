/* Host contracts of uploads. COPY: the source is free on return. BORROW: the source must be pinned
 * and dense, is free at the ticket, and a write to it through Ferry is BUSY until then.
 * Also pinned memory and its figures. Not here: the uploaded values
 * (test_transfer.c). */
#include "tests/support/harness.h"

enum { N = 2 << 20 }; /* floats: so large that the upload is not done yet on the model clock */

static fy_tensor_t *pinned_ramp(ts_ctx_t *ctx)
{
    void *data;
    fy_tensor_t *tensor = ts_pinned(ctx->device, N);
    assert_ptr_equal(ts_info(tensor).device, fy_device_host());
    assert_true(ts_info(tensor).is_pinned);
    ts_ok(fy_tensor_map(tensor, FY_ACCESS_WRITE, &data));
    for (int i = 0; i < N; i++) ((float *)data)[i] = (float)i;
    return tensor;
}

TS_DEVICE_TEST(a_borrowed_source_is_busy)
{
    fy_tensor_t *host = pinned_ramp(ctx), *device, *view;
    fy_ticket_t ticket = { 0, 0 };
    void *data;
    ts_ok(fy_tensor_create(ctx->device, FY_DTYPE_F32, FY_DIMS(N), &device));
    ts_ok(fy_slice(host, 0, 5, 6, &view));
    ts_ok(fy_tensor_upload_into(device, host, &ts_borrow, &ticket));
    uint64_t version = ts_version(host);
    fy_status_t status = fy_tensor_map(host, FY_ACCESS_WRITE, &data);
    if (status == FY_STATUS_OK) {
        assert_false(ctx->is_sim); /* on a real device it may already be done */
        assert_int_equal(fy_ticket_poll(ticket), FY_POLL_DONE);
    } else {
        ts_fails_with(status, BUSY, "ticket"); /* to wait for */
        assert_null(data);
        assert_int_equal(ts_version(host), version);
        ts_fails(fy_tensor_map(view, FY_ACCESS_WRITE, &data), BUSY); /* through a view too */
        ts_fails(fy_fill(host, 0), BUSY);                            /* and by an op */
        ts_ok(fy_tensor_map(host, FY_ACCESS_READ, &data));           /* reading is allowed */
        assert_true(((float *)data)[N - 1] == (float)(N - 1));
    }
    ts_ok(fy_ticket_wait(ticket, FY_FOREVER));
    assert_int_equal(fy_ticket_poll(ticket), FY_POLL_DONE);
    ts_ok(fy_tensor_map(host, FY_ACCESS_WRITE, &data));
    ((float *)data)[0] = -1;
    fy_tensor_t *tail;
    ts_ok(fy_slice(device, 0, N - 2, N, &tail));
    ts_expect_f32(tail, (float[]){ N - 2, N - 1 }, 2);
}

TS_DEVICE_TEST(a_borrowed_source_may_be_destroyed)
{
    fy_tensor_t *host = pinned_ramp(ctx), *device, *tail;
    ts_ok(fy_tensor_upload(host, ctx->device, &ts_borrow, &device));
    fy_tensor_destroy(host); /* the copy in flight holds a reference */
    fy_tensor_t *other = pinned_ramp(ctx);
    void *data;
    ts_ok(fy_tensor_map(other, FY_ACCESS_WRITE, &data));
    memset(data, 0, N * sizeof(float)); /* must not be the same bytes while they are in use */
    ts_ok(fy_slice(device, 0, N - 2, N, &tail));
    ts_expect_f32(tail, (float[]){ N - 2, N - 1 }, 2);
}

TS_DEVICE_TEST(borrow_wants_pinned_and_dense)
{
    fy_tensor_t *pageable = ts_host_f32(FY_DIMS(4), (float[]){ 1, 2, 3, 4 }), *device = pageable,
                *host = pinned_ramp(ctx), *grid, *turned;
    fy_ledger_totals_t before = ts_ledger(NULL);
    assert_false(ts_info(pageable).is_pinned);
    ts_fails_with(fy_tensor_upload(pageable, ctx->device, &ts_borrow, &device), INVALID_ARGUMENT,
                  "fy_tensor_create_pinned");
    assert_null(device);
    ts_ok(fy_reshape(host, FY_DIMS(2, -1), &grid));
    ts_ok(fy_transpose(grid, NULL, &turned));
    ts_fails(fy_tensor_upload(turned, ctx->device, &ts_borrow, &device), INVALID_ARGUMENT);
    ts_ok(fy_tensor_create(ctx->device, FY_DTYPE_F32, FY_DIMS(N), &device));
    /* out_ticket may be NULL with COPY only */
    ts_fails(fy_tensor_upload_into(device, host, &ts_borrow, NULL), INVALID_ARGUMENT);
    fy_ledger_totals_t after = ts_ledger(NULL);
    after.device_allocs = before.device_allocs;
    ts_expect_quiet(&before, &after, "refused borrows");
}

TS_DEVICE_TEST(copy_gives_a_pinned_source_back_at_once)
{
    fy_tensor_t *host = pinned_ramp(ctx), *device;
    void *data;
    ts_ok(fy_tensor_upload(host, ctx->device, NULL, &device));
    ts_ok(fy_tensor_map(host, FY_ACCESS_WRITE, &data)); /* never BUSY */
    memset(data, 0, N * sizeof(float));
    fy_tensor_t *tail;
    ts_ok(fy_slice(device, 0, N - 2, N, &tail));
    ts_expect_f32(tail, (float[]){ N - 2, N - 1 }, 2);
}

/* The result of a download can be uploaded without a copy on the host. */
TS_DEVICE_TEST(a_downloads_result_is_pinned)
{
    fy_tensor_t *device = ts_f32(ctx->device, FY_DIMS(3), (float[]){ 1, 2, 3 }), *host, *again;
    host = ts_download(device);
    assert_true(ts_info(host).is_pinned);
    ts_ok(fy_tensor_upload(host, ctx->device, &ts_borrow, &again));
    ts_expect_f32(again, (float[]){ 1, 2, 3 }, 3);
}

TS_DEVICE_TEST(pinned_memory_is_accounted)
{
    const fy_memory_stats_t before = ts_memory_pinned(ctx->device);
    fy_tensor_t *tensor = ts_pinned_bytes(ctx->device, 100000);
    const fy_memory_stats_t during = ts_memory_pinned(ctx->device);
    assert_true(during.live >= before.live + 100000);
    assert_true(during.reserved == during.live + during.cached);
    fy_tensor_destroy(tensor);
    const fy_memory_stats_t after = ts_memory_pinned(ctx->device);
    assert_int_equal(after.live, before.live);
}

TS_DEVICE_TEST(many_copies_share_the_ring)
{
    float *values = malloc(N * sizeof *values);
    assert_non_null(values);
    fy_tensor_t *host, *device[8];
    ts_ok(fy_tensor_wrap(fy_device_host(), FY_DTYPE_F32, FY_DIMS(N), values, NULL, NULL, &host));
    for (int k = 0; k < 8; k++) {
        for (int i = 0; i < N; i += 1000) values[i] = (float)(k * 100000 + i / 1000);
        /* the ring is full: the call may block, but no bytes may be lost */
        ts_ok(fy_tensor_upload(host, ctx->device, NULL, &device[k]));
    }
    for (int k = 0; k < 8; k++) {
        ts_read(device[k], values, N * sizeof *values);
        for (int i = 0; i < N; i += 1000) assert_true(values[i] == (float)(k * 100000 + i / 1000));
    }
    free(values);
}

/* While the upload engine runs a long request, a pageable upload larger than the ring must wait: it
 * cannot overwrite slots whose copies have not begun. */
TS_DEVICE_TEST(the_host_waits_for_ring_space)
{
    enum { LONG = 128 << 20, SHORT = 8 << 20 };
    fy_ticket_t ticket;
    fy_tensor_t *pinned = ts_pinned_bytes(ctx->device, LONG), *far = ts_bytes(ctx->device, LONG),
                *host = ts_bytes(fy_device_host(), SHORT), *device = ts_bytes(ctx->device, SHORT);
    fy_device_clock_t before = ts_clock_now(ctx->device);
    ts_ok(fy_tensor_upload_into(far, pinned, &ts_borrow, &ticket));
    ts_ok(fy_ticket_wait(ticket, FY_FOREVER));
    fy_device_clock_t after = ts_clock_now(ctx->device);
    uint64_t alone = after.upload_ns - before.upload_ns, syncs = ts_ledger(NULL).syncs;
    before = ts_clock_now(ctx->device);
    ts_ok(fy_tensor_upload_into(far, pinned, &ts_borrow, &ticket));
    ts_ok(fy_tensor_upload_into(device, host, NULL, NULL)); /* ordered after it, through the ring */
    after = ts_clock_now(ctx->device);
    assert_true(alone > 0);
    assert_true(after.now_ns - before.now_ns >= alone);
    assert_int_equal(ts_ledger(NULL).syncs, syncs); /* waiting for ring space is not a sync */
}

/* The memory of a handle is reused; the old name is not. */
TS_DEVICE_TEST(a_name_goes_with_its_tensor)
{
    fy_tensor_t *gone = ts_full(ctx->device, FY_DIMS(2), 0), *a, *b, *sum;
    fy_tensor_set_name(gone, "ghost");
    fy_tensor_destroy(gone);
    ts_ok(fy_zeros(ctx->device, FY_DTYPE_F32, FY_DIMS(2), &a));
    ts_ok(fy_zeros(ctx->device, FY_DTYPE_F32, FY_DIMS(3), &b));
    ts_fails(fy_add(a, b, &sum), SHAPE_MISMATCH);
    assert_null(strstr(fy_error_get()->text, "ghost"));
    fy_tensor_set_name(b, "bias");
    ts_fails_with(fy_add(a, b, &sum), SHAPE_MISMATCH, "src1 is 'bias'");
    assert_null(strstr(fy_error_get()->text, "src0 is"));
}

static const ts_exclusion_t k_exclusions[] = {
    { "host", "a_borrowed_source_is_busy",
      "the host copies inside the call: nothing is ever borrowed" },
    { "host", "a_borrowed_source_may_be_destroyed",
      "the host copies inside the call: nothing is ever borrowed" },
    { "host", "borrow_wants_pinned_and_dense",
      "the host copies inside the call: nothing is ever borrowed" },
    { "host", "copy_gives_a_pinned_source_back_at_once", "pinned for the host is ordinary memory" },
    { "host", "a_downloads_result_is_pinned", "pinned for the host is ordinary memory" },
    { "host", "pinned_memory_is_accounted", "pinned for the host is ordinary memory" },
    { "host", "the_host_waits_for_ring_space", "uploads to the host pass no ring" },
    { "cuda", "the_host_waits_for_ring_space", "told by model time, which is the simulator's" },
    { NULL, NULL, NULL },
};

TS_SUITE(.exclusions = k_exclusions);
