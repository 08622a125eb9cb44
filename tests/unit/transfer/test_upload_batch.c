/* Uploads in one call that are made in place, on a device that takes many copies at once: which
 * uploads are batched, which bytes cross, and the state after a failure.
 * The device is the simulator's with one more slot, which runs a batch backwards: copies of a batch
 * have no order. */
#include "runtime/tensor/storage.h"
#include "tests/support/failing.h"
#include "tests/unit/transfer/engine.h"

enum { MANY = 150 };

/* fail_after: this number of copies of the next batch run, then it fails; SIZE_MAX: none fails */
static size_t batches[32], nbatches, fail_after;

static fy_status_t backwards(void *dev, void *stream, size_t count, const fy_copy_t *copies)
{
    batches[nbatches++ % 32] = count;
    for (size_t i = count; i-- > 0;) {
        if (count - 1 - i == fail_after)
            return fy_error_set(FY_STATUS_INTERNAL, __FILE__, __LINE__,
                                "the batch was made to fail");
        assert_int_equal(ts__real->copy(dev, stream, &copies[i]), FY_STATUS_OK);
    }
    return FY_STATUS_OK;
}

static void open_batching(const char *spec)
{
    open_spec(spec);
    ts_replace_backend(g_device)->copy_many = backwards;
    nbatches = 0;
    fail_after = SIZE_MAX;
}

static int tear_down(void **state)
{
    (void)state;
    if (g_device) ts_ok(fy_device_wait(g_device, FY_FOREVER));
    if (g_device) ts_heal(g_device);
    ts_close();
    g_device = NULL;
    return 0;
}

static fy_status_t upload_all(size_t count, fy_tensor_t *const *dst, fy_tensor_t *const *src,
                              fy_ticket_t *ticket)
{
    return fy_tensor_upload_many_into(count, dst, src, &ts_borrow, ticket);
}

static void expect(const fy_tensor_t *tensor, float value)
{
    static float got[N];
    ts_read(tensor, got, sizeof got);
    for (int i = 0; i < N; i++)
        if (got[i] != value)
            fail_msg("element %d is %g and not %g", i, (double)got[i], (double)value);
}

TS_TEST(pinned_tensors_are_batched)
{
    fy_tensor_t *dst[MANY], *src[MANY];
    fy_ticket_t ticket;
    open_batching("sim:0");
    for (int i = 0; i < MANY; i++) {
        dst[i] = on_device();
        src[i] = pinned((float)i);
    }
    const fy_ledger_totals_t before = ts_ledger(NULL);
    ts_ok(upload_all(MANY, dst, src, &ticket));
    ts_ok(fy_ticket_wait(ticket, FY_FOREVER));
    const fy_ledger_totals_t after = ts_ledger(NULL);
    assert_int_equal(nbatches, 3);
    assert_int_equal(batches[0], 64);
    assert_int_equal(batches[2], MANY - 128);
    assert_int_equal(after.upload.count - before.upload.count, MANY);
    assert_int_equal(after.upload.copies - before.upload.copies, MANY);
    assert_int_equal(after.upload.wire_nbytes - before.upload.wire_nbytes, (uint64_t)MANY * NBYTES);
    for (int i = 0; i < MANY; i += 7) expect(dst[i], (float)i);
}

/* A later item of the list overwrites an earlier one, as with single uploads. */
TS_TEST(the_same_bytes_are_not_written_twice_in_a_batch)
{
    open_batching("sim:0");
    fy_tensor_t *a = on_device(), *b = on_device(), *half;
    ts_ok(fy_slice(a, 0, 0, N / 2, &half));
    fy_tensor_t *src[3] = { pinned(1), pinned(2), pinned(3) }, *dst[3] = { a, b, a };
    fy_ticket_t ticket;
    ts_ok(upload_all(3, dst, src, &ticket));
    assert_int_equal(nbatches, 2);
    expect(a, 3);
    expect(b, 2);
}

TS_TEST(uploads_beyond_the_window_are_queued)
{
    fy_tensor_t *dst[8], *src[8];
    fy_ticket_t ticket;
    open_batching("sim:0?window=1MiB"); /* four of them */
    for (int i = 0; i < 8; i++) {
        dst[i] = on_device();
        src[i] = pinned((float)i);
    }
    ts_ok(upload_all(8, dst, src, &ticket));
    assert_int_equal(nbatches, 1);
    assert_int_equal(batches[0], 4);
    for (int i = 0; i < 8; i++) expect(dst[i], (float)i);
}

/* Some bytes may have crossed: the tensors are poisoned, the sources stay borrowed until the device
 * is done, no copy is sent twice. */
TS_TEST(a_failed_batch_poisons_its_tensors)
{
    open_batching("sim:0");
    fy_tensor_t *dst[3] = { on_device(), on_device(), on_device() },
                *src[3] = { pinned(1), pinned(2), pinned(3) };
    fy_tensor_t *beside = on_device();
    fy_ticket_t ticket;
    (void)borrow_into(beside, src[0], 0);
    const fy_ledger_totals_t before = ts_ledger(NULL);
    fail_after = 2;
    ts_fails(upload_all(3, dst, src, &ticket), INTERNAL);
    const fy_ledger_totals_t after = ts_ledger(NULL);
    assert_int_equal(nbatches, 1);
    assert_int_equal(after.upload.copies - before.upload.copies, 2);
    for (int i = 0; i < 3; i++) {
        assert_true(fy_tensor_ticket(dst[i]).stream != 0); /* a copy may be in flight */
        ts_download_fails(dst[i], INTERNAL);
    }
    expect(beside, 1);
    fail_after = SIZE_MAX;
    /* overwritten: valid again, and the whole window is free */
    ts_ok(upload_all(3, dst, src, &ticket));
    expect(dst[0], 1);
    expect(dst[2], 3);
}

TS_SUITE(.tear_down = tear_down);
