/* From device to device: bytes in every layout, order on both sides, figures, refusals. The peer is
 * device number 1 of the same backend, opened with the same options. */
#include "tests/conformance/layouts.h"
#include "tests/support/noise.h"

/* Returns the other device, or skips the test: there is one host, and a machine may have one
 * card. */
static fy_device_t *open_peer(const ts_ctx_t *ctx)
{
    char spec[128];
    const char *name = ts_spec_name(ctx->spec);
    if (ctx->is_host) skip();
    snprintf(spec, sizeof spec, "%.*s:1%s", (int)strcspn(name, ":"), name,
             ctx->spec + strlen(name));
    fy_device_t *peer;
    const fy_status_t status = fy_device_open(spec, &peer);
    fy_device_close(peer);
    if (status == FY_STATUS_UNAVAILABLE) {
        print_message("           %s: %s\n", spec, fy_error_get()->text);
        skip();
    }
    return ts_open(spec);
}

TS_DEVICE_TEST(a_tensor_is_sent_and_returned)
{
    static const int64_t lengths[] = { 0, 1, 4097, 3000001 };
    fy_device_t *peer = open_peer(ctx);
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        fy_tensor_t *host = ts_noise_up(lengths[i], i), *here, *there, *back;
        ts_ok(fy_tensor_upload(host, ctx->device, NULL, &here));
        fy_ledger_totals_t before = ts_ledger(NULL);
        ts_ok(fy_tensor_send(here, peer, NULL, &there));
        /* ordered after the first, on the devices */
        ts_ok(fy_tensor_send(there, ctx->device, NULL, &back));
        fy_ledger_totals_t after = ts_ledger(NULL);
        assert_int_equal(after.peer.count - before.peer.count, 2);
        assert_int_equal(after.peer.nbytes - before.peer.nbytes, 2 * lengths[i]);
        assert_int_equal(after.peer.wire_nbytes - before.peer.wire_nbytes, 2 * lengths[i]);
        assert_int_equal(after.peer.by_path[FY_PATH_PEER] - before.peer.by_path[FY_PATH_PEER], 2);
        assert_int_equal(after.upload.wire_nbytes, before.upload.wire_nbytes);
        assert_int_equal(after.download.wire_nbytes, before.download.wire_nbytes);
        assert_int_equal(after.syncs, before.syncs);
        assert_ptr_equal(ts_info(there).device, peer);
        ts_expect_noise(there, i);
        ts_expect_noise(back, i);
        fy_tensor_destroy(host);
        fy_tensor_destroy(here);
        fy_tensor_destroy(there);
        fy_tensor_destroy(back);
    }
    ts_ok(fy_device_wait(peer, FY_FOREVER));
}

TS_DEVICE_TEST(into_every_layout)
{
    fy_device_t *peer = open_peer(ctx);
    for (ts_layout_t to = 0; to < TS_LAYOUT_COUNT; to++) {
        for (ts_layout_t from = 0; from < TS_LAYOUT_COUNT && to != TS_BROADCAST; from++) {
            move_t move;
            fy_ticket_t ticket;
            move_make(&move, peer, to, ctx->device, from);
            fy_ledger_totals_t before = ts_ledger(NULL);
            ts_ok(fy_tensor_send_into(move.dst.view, move.src.view, NULL, &ticket));
            fy_ledger_totals_t after = ts_ledger(NULL);
            assert_int_equal(after.peer.nbytes - before.peer.nbytes, 240);
            assert_int_equal(after.peer.wire_nbytes - before.peer.wire_nbytes, 240);
            ts_ok(fy_ticket_wait(ticket, FY_FOREVER));
            move_check(&move, "send_into");
        }
    }
}

/* Converted on the source: the bytes of the result are transferred. */
TS_DEVICE_TEST(converted_at_the_source)
{
    fy_device_t *peer = open_peer(ctx);
    fy_tensor_t *x = ts_f32(ctx->device, FY_DIMS(4), (float[4]){ 1, -2.5f, 0.5f, 3 }), *half, *wide;
    fy_transfer_options_t options = FY_TRANSFER_OPTIONS_INIT;
    options.dtype = FY_DTYPE_F16;
    fy_ledger_totals_t before = ts_ledger(NULL);
    ts_ok(fy_tensor_send(x, peer, &options, &half));
    assert_int_equal(ts_ledger(NULL).peer.nbytes - before.peer.nbytes, 8);
    assert_int_equal(ts_info(half).dtype, FY_DTYPE_F16);
    ts_ok(fy_empty(ctx->device, FY_DTYPE_F32, FY_DIMS(4), &wide));
    ts_ok(fy_tensor_send_into(wide, half, &ts_convert, NULL));
    ts_expect_f32(wide, (float[4]){ 1, -2.5f, 0.5f, 3 }, 4);
}

/* Ops before and after it, on both devices, wait for it as for any other use of the bytes. */
TS_DEVICE_TEST(ordered_on_both_sides)
{
    fy_device_t *peer = open_peer(ctx);
    fy_tensor_t *x = ts_full(ctx->device, FY_DIMS(1000), 0), *y = ts_full(peer, FY_DIMS(1000), 0),
                *sum;
    for (int step = 1; step <= 5; step++) {
        ts_ok(fy_fill(x, step));
        ts_ok(fy_fill(y, -1));
        ts_ok(fy_tensor_send_into(y, x, NULL, NULL));
        ts_ok(fy_fill(x, 99)); /* too late to be visible there */
        ts_ok(fy_sum(y, FY_ALL_AXES, 0, &sum));
        ts_expect_f32(sum, (float[1]){ (float)step * 1000 }, 1);
        fy_tensor_destroy(sum);
    }
}

TS_DEVICE_TEST(invalid_sends_are_refused)
{
    fy_tensor_t *x = ts_f32(ctx->device, FY_DIMS(4), (float[4]){ 1, 2, 3, 4 }),
                *host = ts_host_f32(FY_DIMS(4), (float[4]){ 0 }), *out = x, *shorter;
    fy_device_t *none;
    fy_transfer_options_t options = FY_TRANSFER_OPTIONS_INIT;
    ts_ok(fy_device_wait(ctx->device, FY_FOREVER));
    fy_ledger_totals_t before = ts_ledger(NULL);
    ts_fails(fy_tensor_send(NULL, ctx->device, NULL, &out), INVALID_ARGUMENT);
    assert_null(out);
    ts_fails(fy_tensor_send(x, NULL, NULL, &out), INVALID_ARGUMENT);
    ts_fails(fy_tensor_send(x, ctx->device, NULL, NULL), INVALID_ARGUMENT);
    ts_fails_with(fy_tensor_send(x, ctx->device, NULL, &out), INVALID_ARGUMENT, "fy_copy");
    ts_fails(fy_tensor_send_into(NULL, x, NULL, NULL), INVALID_ARGUMENT);
    ts_fails(fy_tensor_send_into(x, NULL, NULL, NULL), INVALID_ARGUMENT);
    if (ctx->is_host) return;
    ts_fails_with(fy_tensor_send(host, ctx->device, NULL, &out), INVALID_ARGUMENT,
                  "fy_tensor_upload");
    ts_fails_with(fy_tensor_send(x, fy_device_host(), NULL, &out), INVALID_ARGUMENT,
                  "fy_tensor_download");
    ts_ok(fy_device_open("null:0", &none));
    ts_fails_with(fy_tensor_send(x, none, NULL, &out), UNSUPPORTED, "fy_tensor_download");
    fy_device_close(none);
    fy_ledger_totals_t after = ts_ledger(NULL);
    ts_expect_quiet(&before, &after, "refused sends");

    fy_device_t *peer = open_peer(ctx);
    ts_ok(fy_empty(peer, FY_DTYPE_F32, FY_DIMS(3), &shorter));
    ts_fails(fy_tensor_send_into(shorter, x, NULL, NULL), SHAPE_MISMATCH);
    options.dtype = FY_DTYPE_F64;
    ts_fails(fy_tensor_send_into(shorter, x, &options, NULL), INVALID_ARGUMENT);
    fy_scope_t scope = fy_scope_begin("guarded");
    ts_guard(peer_nbytes, 15);
    before = ts_ledger(NULL);
    ts_fails(fy_tensor_send(x, peer, NULL, &out), REFUSED_BY_GUARD);
    after = ts_ledger(NULL);
    ts_expect_quiet(&before, &after, "a send against a guard");
    fy_scope_end(scope, 0, NULL);
    ts_ok(fy_device_wait(peer, FY_FOREVER));
}

/* A fault in the source's bytes is detected before they are sent. */
TS_DEVICE_TEST(bad_bytes_are_not_sent)
{
    const int64_t good[2] = { 1, 2 };
    fy_device_t *peer = open_peer(ctx);
    fy_tensor_t *table = ts_iota(ctx->device, FY_DIMS(4), 0), *rows, *there;
    ts_fails(fy_tensor_send(ts_bad_rows(table), peer, NULL, &there), BAD_VALUE);
    ts_ok(fy_gather(table, ts_upload(ctx->device, FY_DTYPE_I64, FY_DIMS(2), good), &rows));
    ts_ok(fy_tensor_send(rows, peer, NULL, &there));
    ts_expect_f32(there, (float[2]){ 1, 2 }, 2);
    ts_ok(fy_device_wait(peer, FY_FOREVER)); /* has no fault */
}
