/* Calls between processes by the library of the device's vendor, with one rank: its results, its
 * order among other requests, its counts. A device without such a library refuses. Several
 * ranks: tests/unit/transfer/test_communicator.c, tests/unit/dist/test_native.sh. */
#include "tests/support/harness.h"
#include "tests/support/noise.h"

#include <ferry/communicator.h>

/* Opens one, or skips: the device has no library. */
static fy_communicator_t *open_one(const ts_ctx_t *ctx)
{
    char id[FY_COMMUNICATOR_ID_NBYTES];
    fy_communicator_options_t options = FY_COMMUNICATOR_OPTIONS_INIT;
    fy_communicator_t *communicator = NULL;
    const fy_status_t status = fy_communicator_id(ctx->device, id);
    if (status == FY_STATUS_UNSUPPORTED) {
        print_message("           %s\n", fy_error_get()->text);
        options.id = id;
        ts_fails(fy_communicator_open(ctx->device, &options, &communicator), UNSUPPORTED);
        assert_null(communicator);
        skip();
    }
    ts_ok(status);
    options.id = id;
    ts_ok(fy_communicator_open(ctx->device, &options, &communicator));
    return communicator;
}

TS_DEVICE_TEST(one_rank_keeps_its_bytes)
{
    static const int64_t lengths[] = { 0, 1, 4097, 3000001 };
    fy_communicator_t *c = open_one(ctx);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        fy_tensor_t *host = ts_noise_up(lengths[i], i), *x, *all;
        ts_ok(fy_tensor_upload(host, ctx->device, NULL, &x));
        const fy_tensor_info_t info = ts_info(x);
        ts_ok(fy_tensor_create(ctx->device, info.dtype, info.rank, info.dims, &all));
        const fy_ledger_totals_t before = ts_ledger(NULL);
        ts_ok(fy_communicator_submit(c, FY_COLLECTIVE_BROADCAST, 0, x, NULL, NULL));
        ts_ok(fy_communicator_submit(c, FY_COLLECTIVE_ALL_GATHER, 0, all, x, NULL));
        const fy_ledger_totals_t after = ts_ledger(NULL);
        assert_int_equal(after.collective.count - before.collective.count, 2);
        assert_int_equal(after.collective.nbytes - before.collective.nbytes, 2 * lengths[i]);
        assert_int_equal(after.collective.wire_nbytes, before.collective.wire_nbytes);
        assert_int_equal(after.syncs, before.syncs);
        ts_expect_noise(x, i);
        ts_expect_noise(all, i);
        fy_tensor_destroy(host);
        fy_tensor_destroy(x);
        fy_tensor_destroy(all);
    }
    fy_communicator_close(c);
}

TS_DEVICE_TEST(sums_are_ordered_among_ops)
{
    enum { N = 1 << 20 };
    static float got[N];
    fy_communicator_t *c = open_one(ctx);
    fy_ticket_t ticket;
    fy_tensor_t *x = ts_empty(ctx->device, FY_DTYPE_F32, FY_DIMS(N)),
                *part = ts_empty(ctx->device, FY_DTYPE_F32, FY_DIMS(N)), *y;
    for (int i = 1; i <= 20; i++) {
        ts_ok(fy_fill(x, i));
        ts_ok(fy_communicator_submit(c, FY_COLLECTIVE_ALL_REDUCE,
                                     i % 2 ? FY_COLLECTIVE_SUM : FY_COLLECTIVE_MEAN, x, x, NULL));
        ts_ok(fy_communicator_submit(c, FY_COLLECTIVE_REDUCE_SCATTER, FY_COLLECTIVE_SUM, part, x,
                                     &ticket));
        ts_ok(fy_fill(x, -1)); /* waits for the call that reads it */
        ts_ok(fy_affine(part, 2, 1, &y));
        ts_read(y, got, sizeof got);
        for (int64_t k = 0; k < N; k += 4099) assert_true(got[k] == (float)(2 * i + 1));
        ts_ok(fy_ticket_wait(ticket, FY_FOREVER));
        fy_tensor_destroy(y);
    }
    fy_communicator_close(c);
}

/* A fault in the source's bytes is detected before they are sent. */
TS_DEVICE_TEST(bad_bytes_are_not_sent)
{
    fy_communicator_t *c = open_one(ctx);
    fy_tensor_t *table = ts_iota(ctx->device, FY_DIMS(4), 0), *rows = ts_bad_rows(table);
    ts_fails(fy_communicator_submit(c, FY_COLLECTIVE_ALL_REDUCE, 0, rows, NULL, NULL), BAD_VALUE);
    ts_ok(fy_communicator_submit(c, FY_COLLECTIVE_ALL_REDUCE, 0, table, NULL, NULL));
    ts_expect_f32(table, (float[]){ 0, 1, 2, 3 }, 4);
    fy_communicator_close(c);
}

TS_DEVICE_TEST(it_keeps_its_device_open)
{
    fy_device_t *again;
    fy_communicator_t *c = open_one(ctx);
    fy_tensor_t *x = ts_iota(ctx->device, FY_DIMS(4), 1);
    ts_ok(fy_device_open(ctx->spec, &again));
    fy_device_close(again);
    ts_ok(fy_communicator_submit(c, FY_COLLECTIVE_ALL_REDUCE, 0, x, NULL, NULL));
    fy_communicator_abort(c, "the test");
    ts_fails(fy_communicator_prepare(c, FY_COLLECTIVE_ALL_REDUCE, 0, x, NULL), UNAVAILABLE);
    fy_communicator_close(c);
}
