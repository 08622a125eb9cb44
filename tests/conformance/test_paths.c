/* Transfer paths besides one tensor up or down: many at once, and into host memory. Values in every
 * layout, figures by path, refusals that change nothing. Files and memory that is page-locked in
 * place: test_files.c. Not here: their times (tests/unit/transfer/test_coalesce.c). */
#include "tests/conformance/layouts.h"
#include "tests/support/noise.h"

/* ---- many at once ---- */

enum { MANY = 400 };
/* 0 bytes, odd lengths, a large one, one after another. */
static int64_t length_of(int i) { return i == 7 ? 300000 : i % 50 == 3 ? 0 : (i * 37) % 5000 + 1; }

TS_DEVICE_TEST(many_uploads_in_one_call)
{
    fy_tensor_t *src[MANY], *dst[MANY];
    uint64_t total = 0, nlarge = 0, nempty = 0;
    for (int i = 0; i < MANY; i++) {
        src[i] = ts_noise_up(length_of(i), (uint64_t)i * 999);
        total += (uint64_t)length_of(i);
        nlarge += length_of(i) > 65536;
        nempty += length_of(i) == 0;
    }
    fy_ledger_totals_t before = ts_ledger(NULL);
    ts_ok(fy_tensor_upload_many(MANY, src, ctx->device, NULL, dst));
    fy_ledger_totals_t after = ts_ledger(NULL);
    assert_int_equal(after.upload.count - before.upload.count, MANY);
    assert_int_equal(after.upload.nbytes - before.upload.nbytes, total);
    assert_int_equal(after.requests, before.requests);
    assert_int_equal(after.syncs, before.syncs);
    if (ctx->is_host) {
        assert_int_equal(after.upload.by_path[FY_PATH_HOST] - before.upload.by_path[FY_PATH_HOST],
                         MANY);
    } else {
        assert_int_equal(after.upload.by_path[FY_PATH_COALESCED] -
                             before.upload.by_path[FY_PATH_COALESCED],
                         MANY - nlarge - nempty);
        assert_int_equal(after.upload.by_path[FY_PATH_STAGED] -
                             before.upload.by_path[FY_PATH_STAGED],
                         nlarge + nempty);
        /* a slot's worth of bytes, and the large one */
        assert_true(after.upload.copies - before.upload.copies <= 3);
        /* the table was transferred */
        assert_true(after.upload.wire_nbytes - before.upload.wire_nbytes >=
                    total + (MANY - nempty - nlarge) * 24);
        assert_true(after.upload.wire_nbytes - before.upload.wire_nbytes <= total + MANY * 40);
    }
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(ts_info(dst[i]).nbytes, length_of(i));
        ts_expect_noise(dst[i], (uint64_t)i * 999);
        fy_tensor_destroy(dst[i]);
        fy_tensor_destroy(src[i]);
    }
}

/* Dense, strided, converted, into the middle of a tensor: all in one call, and each arrives at its
 * place. */
TS_DEVICE_TEST(uploads_into_every_layout_in_one_call)
{
    enum { N = TS_LAYOUT_COUNT * TS_LAYOUT_COUNT };
    static move_t moves[N];
    fy_tensor_t *dst[N], *src[N];
    size_t n = 0;
    for (ts_layout_t a = 0; a < TS_LAYOUT_COUNT; a++) {
        for (ts_layout_t b = 0; b < TS_LAYOUT_COUNT && a != TS_BROADCAST; b++, n++) {
            move_make(&moves[n], ctx->device, a, fy_device_host(), b);
            dst[n] = moves[n].dst.view;
            src[n] = moves[n].src.view;
        }
    }
    fy_ledger_totals_t before = ts_ledger(NULL);
    fy_ticket_t ticket;
    ts_ok(fy_tensor_upload_many_into(n, dst, src, NULL, &ticket));
    ts_ok(fy_ticket_wait(ticket, FY_FOREVER));
    for (size_t i = 0; i < n; i++)
        assert_int_equal(fy_ticket_poll(fy_tensor_ticket(dst[i])), FY_POLL_DONE);
    fy_ledger_totals_t after = ts_ledger(NULL);
    assert_int_equal(after.upload.count - before.upload.count, n);
    assert_int_equal(after.upload.nbytes - before.upload.nbytes, n * 240);
    for (size_t i = 0; i < n; i++) move_check(&moves[i], "upload_many_into");
}

TS_DEVICE_TEST(uploads_with_conversion_in_one_call)
{
    const float values[4] = { 1, -2.5f, 0.5f, 3 };
    fy_tensor_t *src[3] = { ts_host_f32(FY_DIMS(4), values), ts_host_f32(FY_DIMS(4), values),
                            ts_host_f32(FY_DIMS(4), values) },
                *dst[3];
    fy_transfer_options_t options = FY_TRANSFER_OPTIONS_INIT;
    options.dtype = FY_DTYPE_F16;
    ts_ok(fy_tensor_upload_many(3, src, ctx->device, &options, dst));
    for (int i = 0; i < 3; i++) {
        ts_array_t got;
        assert_int_equal(ts_info(dst[i]).dtype, FY_DTYPE_F16);
        ts_result_read(dst[i], ctx->device, &got, "many, f32 to f16");
        for (int k = 0; k < 4; k++) assert_true(got.f[k] == (double)values[k]);
        ts_array_free(&got);
    }
    ts_fails(fy_tensor_upload_many_into(
                 3, dst, src,
                 &(fy_transfer_options_t){ sizeof options, FY_HOST_COPY, FY_DTYPE_F64, 0, NULL },
                 NULL),
             INVALID_ARGUMENT);
}

TS_DEVICE_TEST(invalid_upload_lists_are_refused)
{
    const float values[4] = { 1, 2, 3, 4 };
    fy_tensor_t *good = ts_host_f32(FY_DIMS(4), values), *shorter = ts_host_f32(FY_DIMS(3), values),
                *there = ts_f32(ctx->device, FY_DIMS(4), values),
                *gone = ts_host_f32(FY_DIMS(1), values),
                *other = ts_f32(ctx->device, FY_DIMS(4), values), *src[3] = { good, good, NULL },
                *dst[3] = { there, other, NULL }, *out[3] = { good, good, good };
    fy_tensor_destroy(gone);
    ts_ok(fy_device_wait(ctx->device, FY_FOREVER));
    const uint64_t version = ts_version(there);
    fy_ledger_totals_t before = ts_ledger(NULL);
    ts_fails_with(fy_tensor_upload_many(3, src, ctx->device, NULL, out), INVALID_ARGUMENT,
                  "[2]"); /* the index of the bad one */
    for (int i = 0; i < 3; i++) assert_null(out[i]);
    ts_fails(fy_tensor_upload_many(2, src, NULL, NULL, out), INVALID_ARGUMENT);
    ts_fails(fy_tensor_upload_many(2, NULL, ctx->device, NULL, out), INVALID_ARGUMENT);
    ts_fails(fy_tensor_upload_many(2, src, ctx->device, NULL, NULL), INVALID_ARGUMENT);
    ts_fails(fy_tensor_upload_many_into(3, dst, src, NULL, NULL), INVALID_ARGUMENT);
    /* no ticket */
    ts_fails(fy_tensor_upload_many_into(2, dst, src, &ts_borrow, NULL), INVALID_ARGUMENT);
    src[1] = shorter;
    ts_fails_with(fy_tensor_upload_many_into(2, dst, src, NULL, NULL), SHAPE_MISMATCH, "[1]");
#ifndef __SANITIZE_ADDRESS__ /* ASan detects handles that are used after their end */
    src[1] = gone;
    ts_fails(fy_tensor_upload_many(2, src, ctx->device, NULL, out), INVALID_ARGUMENT);
#endif
    src[1] = good;
    if (!ctx->is_host) {
        fy_ticket_t ticket;
        dst[1] = good;
        ts_fails(fy_tensor_upload_many_into(2, dst, src, NULL, NULL), DEVICE_MISMATCH);
        dst[1] = other;
        src[1] = there;
        ts_fails(fy_tensor_upload_many(2, src, ctx->device, NULL, out), DEVICE_MISMATCH);
        src[1] = good;
        /* not pinned */
        ts_fails(fy_tensor_upload_many_into(2, dst, src, &ts_borrow, &ticket), INVALID_ARGUMENT);
    }
    fy_scope_t scope = fy_scope_begin("guarded");
    ts_guard(upload_nbytes, 31); /* one less than both */
    ts_fails(fy_tensor_upload_many(2, src, ctx->device, NULL, out), REFUSED_BY_GUARD);
    fy_scope_end(scope, 0, NULL);
    ts_expect_quiet_since(&before, "refused uploads of many");
    assert_int_equal(ts_version(there), version);
    ts_ok(fy_tensor_upload_many(0, NULL, ctx->device, NULL, NULL));
    ts_ok(fy_tensor_upload_many_into(0, NULL, NULL, NULL, NULL));
}

/* Small tensors of a borrowing call are packed as well: the sources are free at once or at the
 * ticket, never later. */
TS_DEVICE_TEST(borrowed_sources_are_free_in_time)
{
    enum { N = 20 };
    fy_tensor_t *src[N], *dst[N];
    for (int i = 0; i < N; i++) {
        const int64_t n = i == 5 ? 200000 : 100 + i;
        void *data;
        ts_ok(fy_tensor_create_pinned(ctx->device, FY_DTYPE_U8, 1, &n, &src[i]));
        ts_ok(fy_tensor_map(src[i], FY_ACCESS_WRITE, &data));
        for (int64_t k = 0; k < n; k++)
            ((unsigned char *)data)[k] = ts_noise((uint64_t)(i * 31 + k));
        ts_ok(fy_empty(ctx->device, FY_DTYPE_U8, 1, &n, &dst[i]));
    }
    fy_ticket_t ticket;
    ts_ok(fy_tensor_upload_many_into(N, dst, src, &ts_borrow, &ticket));
    ts_ok(fy_ticket_wait(ticket, FY_FOREVER));
    for (int i = 0; i < N; i++) {
        void *data;
        ts_ok(fy_tensor_map(src[i], FY_ACCESS_WRITE, &data)); /* the caller may write again */
        ts_expect_noise(dst[i], (uint64_t)i * 31);
    }
}

/* ---- into existing host memory ---- */

TS_DEVICE_TEST(downloads_into_every_layout)
{
    for (ts_layout_t to = 0; to < TS_LAYOUT_COUNT; to++) {
        for (ts_layout_t from = 0; from < TS_LAYOUT_COUNT && to != TS_BROADCAST; from++) {
            move_t move;
            move_make(&move, fy_device_host(), to, ctx->device, from);
            fy_ledger_totals_t before = ts_ledger(NULL);
            ts_ok(fy_tensor_download_into(move.dst.view, move.src.view, NULL));
            fy_ledger_totals_t after = ts_ledger(NULL);
            assert_int_equal(after.download.count - before.download.count, 1);
            assert_int_equal(after.download.nbytes - before.download.nbytes, 240);
            assert_int_equal(after.download.wire_nbytes - before.download.wire_nbytes, 240);
            assert_int_equal(after.syncs - before.syncs, 1);
            move_check(&move, "download_into");
        }
    }
}

TS_DEVICE_TEST(downloads_into_pinned_and_pageable_memory)
{
    static const int64_t lengths[] = { 0, 1, 4095, (1 << 20) + 1, 20000003 };
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        for (int pinned = 0; pinned < 2; pinned++) {
            fy_tensor_t *src = ts_noise_up(lengths[i], i), *device, *dst;
            ts_ok(fy_tensor_upload(src, ctx->device, NULL, &device));
            if (pinned)
                ts_ok(fy_tensor_create_pinned(ctx->device, FY_DTYPE_U8, 1, &lengths[i], &dst));
            else
                ts_ok(fy_tensor_create(fy_device_host(), FY_DTYPE_U8, 1, &lengths[i], &dst));
            fy_ledger_totals_t before = ts_ledger(NULL);
            ts_ok(fy_tensor_download_into(dst, device, NULL));
            fy_ledger_totals_t after = ts_ledger(NULL);
            const fy_path_t path = ctx->is_host           ? FY_PATH_HOST
                                   : pinned && lengths[i] ? FY_PATH_DIRECT
                                                          : FY_PATH_STAGED;
            assert_int_equal(after.download.by_path[path] - before.download.by_path[path], 1);
            assert_int_equal(after.download.wire_nbytes - before.download.wire_nbytes, lengths[i]);
            if (pinned && lengths[i])
                assert_int_equal(after.download.copies - before.download.copies, 1);
            ts_expect_noise(dst, i);
            fy_tensor_destroy(src);
            fy_tensor_destroy(device);
            fy_tensor_destroy(dst);
        }
    }
}

TS_DEVICE_TEST(invalid_download_targets_are_refused)
{
    const float values[4] = { 1, 2, 3, 4 };
    fy_tensor_t *src = ts_f32(ctx->device, FY_DIMS(4), values),
                *dst = ts_host_f32(FY_DIMS(4), (float[4]){ 9, 9, 9, 9 }),
                *shorter = ts_host_f32(FY_DIMS(3), values), *wide, *repeated;
    fy_transfer_options_t options = FY_TRANSFER_OPTIONS_INIT;
    ts_ok(fy_zeros(fy_device_host(), FY_DTYPE_F64, FY_DIMS(4), &wide));
    ts_ok(fy_broadcast(ts_host_f32(FY_DIMS(1), values), FY_DIMS(4), &repeated));
    ts_ok(fy_device_wait(ctx->device, FY_FOREVER));
    const uint64_t version = ts_version(dst);
    fy_ledger_totals_t before = ts_ledger(NULL);
    ts_fails(fy_tensor_download_into(NULL, src, NULL), INVALID_ARGUMENT);
    ts_fails(fy_tensor_download_into(dst, NULL, NULL), INVALID_ARGUMENT);
    ts_fails(fy_tensor_download_into(shorter, src, NULL), SHAPE_MISMATCH);
    ts_fails(fy_tensor_download_into(wide, src, NULL), DTYPE_MISMATCH);
    ts_fails(fy_tensor_download_into(repeated, src, NULL), INVALID_ARGUMENT);
    options.dtype = FY_DTYPE_F64;
    ts_fails(fy_tensor_download_into(dst, src, &options), INVALID_ARGUMENT);
    if (ctx->is_host)
        ts_fails(fy_tensor_download_into(src, src, NULL), INVALID_ARGUMENT);
    else
        ts_fails(fy_tensor_download_into(src, src, NULL), DEVICE_MISMATCH);
    fy_scope_t scope = fy_scope_begin("guarded");
    ts_guard(download_nbytes, 15);
    ts_fails(fy_tensor_download_into(dst, src, NULL), REFUSED_BY_GUARD);
    fy_scope_end(scope, 0, NULL);
    scope = fy_scope_begin("no sync");
    ts_guard(syncs, 0);
    ts_fails(fy_tensor_download_into(dst, src, NULL), REFUSED_BY_GUARD);
    fy_scope_end(scope, 0, NULL);
    ts_expect_quiet_since(&before, "refused downloads into memory");
    assert_int_equal(ts_version(dst), version);
    ts_expect_f32(dst, (float[4]){ 9, 9, 9, 9 }, 4);
}

/* While an upload reads dst in place it is BUSY. */
TS_DEVICE_TEST(downloads_into_borrowed_memory_are_busy)
{
    const int64_t n = 1 << 22;
    fy_ticket_t ticket;
    fy_tensor_t *pinned = ts_pinned_bytes(ctx->device, n),
                *device = ts_zeros(ctx->device, FY_DTYPE_U8, 1, &n);
    ts_ok(fy_device_wait(ctx->device, FY_FOREVER));
    ts_ok(fy_tensor_upload_into(device, pinned, &ts_borrow, &ticket));
    if (ctx->is_sim) ts_fails(fy_tensor_download_into(pinned, device, NULL), BUSY);
    ts_ok(fy_ticket_wait(ticket, FY_FOREVER));
    ts_ok(fy_tensor_download_into(pinned, device, NULL));
}

/* A fault in the source's bytes reaches the caller and every later reader of dst. */
TS_DEVICE_TEST(downloads_into_memory_report_faults)
{
    fy_tensor_t *rows = ts_bad_rows(ts_iota(ctx->device, FY_DIMS(4), 0)),
                *dst = ts_host_f32(FY_DIMS(2), (float[2]){ 9, 9 });
    void *data;
    ts_fails(fy_tensor_download_into(dst, rows, NULL), BAD_VALUE);
    if (!ctx->is_host) ts_fails(fy_tensor_map(dst, FY_ACCESS_READ, &data), BAD_VALUE);
    /* all of it is overwritten: valid again */
    ts_ok(fy_tensor_download_into(dst, ts_f32(ctx->device, FY_DIMS(2), (float[2]){ 5, 6 }), NULL));
    ts_expect_f32(dst, (float[2]){ 5, 6 }, 2);
}

/* ---- many down ---- */

TS_DEVICE_TEST(many_downloads_in_one_call)
{
    fy_tensor_t *src[MANY], *host, *others[2];
    fy_download_t *downloads[MANY];
    uint64_t total = 0, nalone = 0;
    for (int i = 0; i < MANY; i++) {
        host = ts_noise_up(length_of(i) + 1, (uint64_t)i * 999 - 1);
        ts_ok(fy_tensor_upload(host, ctx->device, NULL, &src[i]));
        ts_ok(fy_slice(src[i], 0, 1, length_of(i) + 1, &src[i])); /* from an unaligned element on */
        total += (uint64_t)length_of(i);
        nalone += length_of(i) > 65536 || length_of(i) == 0;
    }
    ts_ok(fy_device_wait(ctx->device, FY_FOREVER));
    fy_ledger_totals_t before = ts_ledger(NULL);
    ts_ok(fy_tensor_download_many(MANY, src, NULL, downloads));
    fy_ledger_totals_t after = ts_ledger(NULL);
    assert_int_equal(after.download.count - before.download.count, MANY);
    assert_int_equal(after.download.nbytes - before.download.nbytes, total);
    assert_int_equal(after.upload.count, before.upload.count);
    assert_int_equal(after.syncs, before.syncs);
    assert_int_equal(after.requests, before.requests);
    if (!ctx->is_host) {
        assert_int_equal(after.download.by_path[FY_PATH_COALESCED] -
                             before.download.by_path[FY_PATH_COALESCED],
                         MANY - nalone);
        assert_true(after.download.copies - before.download.copies <= 3);
        assert_true(after.download.wire_nbytes - before.download.wire_nbytes <= total + MANY * 16);
        /* the tables */
        assert_int_equal(after.upload.wire_nbytes - before.upload.wire_nbytes,
                         (MANY - nalone) * 24);
    }
    /* too late: the downloads have the old bytes */
    for (int i = 0; i < MANY; i++) ts_ok(fy_fill(src[i], 1));
    fy_download_destroy(downloads[100]); /* one of them is destroyed early */
    for (int i = MANY - 1; i >= 0; i--) {
        if (i == 100) continue;
        ts_ok(fy_download_wait(downloads[i], FY_FOREVER, &host));
        assert_int_equal(ts_info(host).nbytes, length_of(i));
        ts_expect_noise(host, (uint64_t)i * 999);
        if (i < 2)
            others[i] = host;
        else
            fy_tensor_destroy(host);
    }
    if (!ctx->is_host) { /* two views of one memory, each a separate tensor */
        fy_tensor_t *up;
        ts_ok(fy_fill(others[0], 3));
        ts_expect_noise(others[1], 999);
        ts_ok(fy_tensor_upload(others[1], ctx->device, NULL, &up));
        ts_expect_noise(up, 999);
    }
}

TS_DEVICE_TEST(downloads_of_several_kinds_in_one_call)
{
    fy_tensor_t *x = ts_iota(ctx->device, FY_DIMS(4, 3), 0), *turned, *src[4], *host;
    fy_download_t *downloads[4];
    double value;
    fy_transfer_options_t options = FY_TRANSFER_OPTIONS_INIT;
    ts_ok(fy_transpose(x, NULL, &turned));
    ts_ok(fy_sum(x, FY_ALL_AXES, 0, &src[0]));
    src[1] = turned;
    src[2] = x;
    src[3] = ts_host_f32(FY_DIMS(1), (float[1]){ 5 }); /* one of them on the host */
    ts_ok(fy_tensor_download_many(4, src, NULL, downloads));
    ts_ok(fy_download_wait_f64(downloads[0], FY_FOREVER, &value));
    assert_true(value == 66);
    ts_ok(fy_download_wait(downloads[1], FY_FOREVER, &host));
    ts_expect_f32(host, (float[12]){ 0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11 }, 12);
    ts_ok(fy_download_wait(downloads[2], FY_FOREVER, &host));
    ts_expect_f32(host, (float[12]){ 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 }, 12);
    ts_ok(fy_download_wait_f64(downloads[3], FY_FOREVER, &value));
    assert_true(value == 5);
    options.dtype = FY_DTYPE_F64;
    ts_ok(fy_tensor_download_many(3, src, &options, downloads));
    for (int i = 0; i < 3; i++) {
        ts_ok(fy_download_wait(downloads[i], FY_FOREVER, &host));
        assert_int_equal(ts_info(host).dtype, FY_DTYPE_F64);
    }
}

TS_DEVICE_TEST(invalid_download_lists_are_refused)
{
    fy_tensor_t *x = ts_f32(ctx->device, FY_DIMS(4), (float[4]){ 1, 2, 3, 4 }),
                *src[3] = { x, x, NULL };
    fy_download_t *out[3] = { (fy_download_t *)&src, (fy_download_t *)&src, (fy_download_t *)&src };
    ts_ok(fy_device_wait(ctx->device, FY_FOREVER));
    fy_ledger_totals_t before = ts_ledger(NULL);
    ts_fails_with(fy_tensor_download_many(3, src, NULL, out), INVALID_ARGUMENT, "[2]");
    for (int i = 0; i < 3; i++) assert_null(out[i]);
    ts_fails(fy_tensor_download_many(2, src, NULL, NULL), INVALID_ARGUMENT);
    ts_fails(fy_tensor_download_many(2, NULL, NULL, out), INVALID_ARGUMENT);
    fy_scope_t scope = fy_scope_begin("guarded");
    ts_guard(download_nbytes, 31);
    ts_fails(fy_tensor_download_many(2, src, NULL, out), REFUSED_BY_GUARD);
    fy_scope_end(scope, 0, NULL);
    ts_expect_quiet_since(&before, "refused downloads of many");
    ts_ok(fy_tensor_download_many(0, NULL, NULL, NULL));
}

/* A fault reaches only the waits for these bytes. */
TS_DEVICE_TEST(one_bad_download_does_not_affect_others)
{
    int64_t values[2] = { 1, 99 };
    fy_download_t *downloads[3];
    fy_tensor_t *table = ts_iota(ctx->device, FY_DIMS(4), 0), *src[3] = { table, NULL, table },
                *indices = ts_upload(ctx->device, FY_DTYPE_I64, FY_DIMS(2), values), *host;
    ts_ok(fy_gather(table, indices, &src[1]));
    ts_ok(fy_tensor_download_many(3, src, NULL, downloads));
    ts_ok(fy_download_wait(downloads[0], FY_FOREVER, &host));
    ts_fails(fy_download_wait(downloads[1], FY_FOREVER, &host), BAD_VALUE);
    ts_ok(fy_download_wait(downloads[2], FY_FOREVER, &host));
    ts_expect_f32(host, (float[4]){ 0, 1, 2, 3 }, 4);
}
