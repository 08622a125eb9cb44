/* Transfers between a file and a device, and memory that is page-locked in place: bytes, figures,
 * refusals that change nothing. */
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/harness.h"
#include "tests/support/noise.h"
#include "tests/support/operand.h"
#include "tests/support/oracle.h"

/* ---- files ---- */

static char g_file[64];

/* Writes n bytes of noise from `seed` on, after 11 other bytes. */
static void write_noise(int64_t n, uint64_t seed)
{
    snprintf(g_file, sizeof g_file, "/tmp/ferry_paths_%d", (int)getpid());
    FILE *file = fopen(g_file, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite("eleven byte", 1, 11, file), 11);
    for (int64_t i = 0; i < n; i++)
        assert_int_not_equal(fputc(ts_noise(seed + (uint64_t)i), file), EOF);
    assert_int_equal(fclose(file), 0);
}

TS_DEVICE_TEST(a_file_is_uploaded_and_downloaded)
{
    static const int64_t lengths[] = { 0, 1, 5000, (1 << 20) + 1, 9000001 };
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        write_noise(lengths[i] + 5, 70 + i);
        fy_tensor_t *x = ts_zeros(ctx->device, FY_DTYPE_U8, 1, &lengths[i]), *back;
        const uint64_t version = ts_version(x);
        fy_ledger_totals_t before = ts_ledger(NULL);
        ts_ok(fy_tensor_upload_file(x, g_file, 11, NULL));
        fy_ledger_totals_t after = ts_ledger(NULL);
        assert_int_equal(after.upload.count - before.upload.count, 1);
        assert_int_equal(after.upload.nbytes - before.upload.nbytes, lengths[i]);
        assert_int_equal(after.upload.by_path[FY_PATH_FILE] - before.upload.by_path[FY_PATH_FILE],
                         1);
        if (!ctx->is_host)
            assert_int_equal(after.upload.wire_nbytes - before.upload.wire_nbytes, lengths[i]);
        assert_int_equal(after.syncs, before.syncs);
        assert_int_equal(ts_version(x), version + 1);
        ts_expect_noise(x, 70 + i);

        before = ts_ledger(NULL);
        /* overwrites a part: 3 bytes before it stay, and 13 after it */
        ts_ok(fy_tensor_download_file(x, g_file, 3, NULL));
        after = ts_ledger(NULL);
        assert_int_equal(after.download.count - before.download.count, 1);
        assert_int_equal(after.download.nbytes - before.download.nbytes, lengths[i]);
        assert_int_equal(
            after.download.by_path[FY_PATH_FILE] - before.download.by_path[FY_PATH_FILE], 1);
        assert_int_equal(after.syncs - before.syncs, 1);
        const int64_t all = lengths[i] + 16;
        unsigned char *bytes = malloc((size_t)all);
        assert_non_null(bytes);
        ts_ok(fy_tensor_create(fy_device_host(), FY_DTYPE_U8, 1, &all, &back));
        ts_ok(fy_tensor_upload_file(back, g_file, 0, NULL));
        ts_read(back, bytes, (size_t)all);
        assert_memory_equal(bytes, "ele", 3);
        for (int64_t k = 0; k < lengths[i]; k++)
            assert_int_equal(bytes[3 + k], ts_noise(70 + i + (uint64_t)k));
        assert_int_equal(bytes[all - 1], ts_noise(70 + i + (uint64_t)lengths[i] + 4));
        free(bytes);
        fy_tensor_destroy(x);
        fy_tensor_destroy(back);
        remove(g_file);
        ts_ok(fy_tensor_create(ctx->device, FY_DTYPE_U8, FY_DIMS(0), &x));
        ts_ok(fy_tensor_download_file(x, g_file, 0, NULL)); /* creates the file */
        assert_int_equal(remove(g_file), 0);
    }
}

TS_DEVICE_TEST(a_file_is_uploaded_into_every_layout)
{
    const int64_t dims[3] = { 5, 3, 4 };
    for (ts_layout_t layout = 0; layout < TS_LAYOUT_COUNT; layout++) {
        ts_array_t old, new, got;
        ts_operand_t dst, src;
        ts_random_t random = { 8 };
        ts_array_make(&old, FY_DTYPE_F32, 3, dims);
        ts_array_make(&new, FY_DTYPE_F32, 3, dims);
        ts_array_fill(&new, TS_ANY, 0, layout == TS_BROADCAST ? 0 : -1, &random);
        ts_operand_make(&src, ctx->device, &new, layout);
        write_noise(0, 0);
        ts_ok(fy_tensor_download_file(src.view, g_file, 8, NULL));
        ts_operand_make(&dst, ctx->device, &old, layout == TS_BROADCAST ? (ts_layout_t)0 : layout);
        ts_ok(fy_tensor_upload_file(dst.view, g_file, 8, NULL));
        ts_operand_check(&dst, false, &got, "upload_file"); /* guard words too */
        assert_true(ts_same(&new, &got, ts_layout_name(layout)));
        ts_array_free(&got);
        fy_transfer_options_t options = FY_TRANSFER_OPTIONS_INIT;
        options.dtype = FY_DTYPE_F16; /* converted on the device, before the download */
        fy_ledger_totals_t before = ts_ledger(NULL);
        ts_ok(fy_tensor_download_file(src.view, g_file, 0, &options));
        assert_int_equal(ts_ledger(NULL).download.nbytes - before.download.nbytes, 120);
        fy_tensor_t *half = ts_empty(ctx->device, FY_DTYPE_F16, 3, dims);
        ts_ok(fy_tensor_upload_file(half, g_file, 0, NULL));
        ts_result_read(half, ctx->device, &got, "f16 from a file");
        for (size_t i = 0; i < 60; i++)
            assert_true(got.f[i] == ts_round(FY_DTYPE_F16, new.f[i]) || new.f[i] != new.f[i]);
        ts_operand_free(&dst);
        ts_operand_free(&src);
        ts_array_free(&old);
        ts_array_free(&new);
        ts_array_free(&got);
    }
    remove(g_file);
}

TS_DEVICE_TEST(invalid_file_transfers_are_refused)
{
    fy_tensor_t *x = ts_f32(ctx->device, FY_DIMS(4), (float[4]){ 1, 2, 3, 4 }), *repeated;
    fy_transfer_options_t options = FY_TRANSFER_OPTIONS_INIT;
    ts_ok(fy_broadcast(ts_f32(ctx->device, FY_DIMS(1), (float[1]){ 0 }), FY_DIMS(4), &repeated));
    write_noise(5, 0);
    ts_ok(fy_device_wait(ctx->device, FY_FOREVER));
    const uint64_t version = ts_version(x);
    fy_ledger_totals_t before = ts_ledger(NULL);
    ts_fails(fy_tensor_upload_file(NULL, g_file, 0, NULL), INVALID_ARGUMENT);
    ts_fails(fy_tensor_upload_file(x, NULL, 0, NULL), INVALID_ARGUMENT);
    ts_fails(fy_tensor_download_file(NULL, g_file, 0, NULL), INVALID_ARGUMENT);
    ts_fails(fy_tensor_download_file(x, NULL, 0, NULL), INVALID_ARGUMENT);
    ts_fails_with(fy_tensor_upload_file(x, "/nowhere/at all", 0, NULL), IO, "No such file");
    ts_fails(fy_tensor_upload_file(x, "/tmp", 0, NULL), IO);
    char pipe[64];
    snprintf(pipe, sizeof pipe, "%s.pipe", g_file);
    (void)unlink(pipe); /* of a killed process that had this number */
    assert_int_equal(mkfifo(pipe, 0600), 0);
    ts_fails(fy_tensor_upload_file(x, pipe, 0, NULL),
             IO); /* it does not wait for a writer either */
    ts_text_has("is a pipe");
    unlink(pipe);
    /* 16 bytes, from offset 1 on */
    ts_fails_with(fy_tensor_upload_file(x, g_file, 1, NULL), CORRUPT_DATA, "15");
    ts_fails(fy_tensor_upload_file(x, g_file, 1 << 20, NULL), CORRUPT_DATA);
    ts_fails(fy_tensor_upload_file(x, g_file, UINT64_MAX - 3, NULL), INVALID_ARGUMENT);
    ts_fails(fy_tensor_upload_file(repeated, g_file, 0, NULL), INVALID_ARGUMENT);
    options.dtype = FY_DTYPE_F64;
    ts_fails(fy_tensor_upload_file(x, g_file, 0, &options), INVALID_ARGUMENT);
    fy_scope_t scope = fy_scope_begin("guarded");
    fy_guard_options_t guard = FY_GUARD_OPTIONS_INIT;
    guard.upload_nbytes = guard.download_nbytes = 15;
    ts_ok(fy_scope_guard(&guard));
    remove(g_file);
    ts_fails(fy_tensor_upload_file(x, g_file, 0, NULL), REFUSED_BY_GUARD);
    ts_fails(fy_tensor_download_file(x, g_file, 0, NULL), REFUSED_BY_GUARD);
    fy_scope_end(scope, 0, NULL);
    scope = fy_scope_begin("no sync");
    ts_guard(syncs, 0);
    ts_fails(fy_tensor_download_file(x, g_file, 0, NULL), REFUSED_BY_GUARD);
    fy_scope_end(scope, 0, NULL);
    assert_int_not_equal(remove(g_file), 0); /* refused: the file was not created */
    ts_expect_quiet_since(&before, "refused files");
    assert_int_equal(ts_version(x), version);
    ts_expect_f32(x, (float[4]){ 1, 2, 3, 4 }, 4);
    ts_fails_with(fy_tensor_download_file(x, "/dev/full", 0, NULL), IO, "No space");
    ts_fails(fy_tensor_download_file(x, "/nowhere/at all", 0, NULL), IO);
}

/* A fault in the source's bytes is detected before the file is touched. */
TS_DEVICE_TEST(a_fault_does_not_reach_the_file)
{
    fy_tensor_t *rows = ts_bad_rows(ts_iota(ctx->device, FY_DIMS(4), 0)), *back;
    write_noise(0, 0);
    ts_fails(fy_tensor_download_file(rows, g_file, 0, NULL), BAD_VALUE);
    ts_ok(fy_tensor_create(fy_device_host(), FY_DTYPE_U8, FY_DIMS(11), &back));
    ts_ok(fy_tensor_upload_file(back, g_file, 0, NULL));
    char text[11];
    ts_read(back, text, sizeof text);
    assert_memory_equal(text, "eleven byte", 11);
    remove(g_file);
}

/* ---- page-locked in place ---- */

static int g_deleted;
static void count_deleted(void *user, void *data)
{
    (void)user, (void)data;
    g_deleted++;
}

static uint64_t pinned_live(const ts_ctx_t *ctx) { return ts_memory_pinned(ctx->device).live; }

TS_DEVICE_TEST(memory_is_pinned_in_place)
{
    enum { N = 1 << 20 };
    unsigned char *bytes = aligned_alloc(4096, N);
    assert_non_null(bytes);
    for (int round = 0; round < 2; round++) { /* the second one finds the memory unlocked */
        fy_tensor_t *mine, *device, *view;
        fy_ticket_t ticket;
        for (int i = 0; i < N; i++) bytes[i] = ts_noise((uint64_t)(i + round));
        g_deleted = 0;
        ts_ok(fy_tensor_wrap(fy_device_host(), FY_DTYPE_U8, FY_DIMS(N), bytes, count_deleted, NULL,
                             &mine));
        ts_ok(fy_empty(ctx->device, FY_DTYPE_U8, FY_DIMS(N), &device));
        if (!ctx->is_host)
            ts_fails(fy_tensor_upload_into(device, mine, &ts_borrow, &ticket), INVALID_ARGUMENT);
        const uint64_t live = pinned_live(ctx);
        fy_ledger_totals_t before = ts_ledger(NULL);
        ts_ok(fy_tensor_pin(mine, ctx->device));
        ts_ok(fy_tensor_pin(mine, ctx->device)); /* it is pinned already: no effect */
        assert_int_equal(ts_ledger(NULL).device_allocs - before.device_allocs,
                         ctx->is_host ? 0 : 1);
        assert_int_equal(pinned_live(ctx) - live, ctx->is_host ? 0 : N);
        assert_int_equal(ts_info(mine).is_pinned, !ctx->is_host);
        ts_ok(fy_slice(mine, 0, 10, N, &view));
        assert_int_equal(ts_info(view).is_pinned, !ctx->is_host);
        before = ts_ledger(NULL);
        ts_ok(fy_tensor_upload_into(device, mine, &ts_borrow, &ticket));
        if (!ctx->is_host)
            assert_int_equal(ts_ledger(NULL).upload.by_path[FY_PATH_DIRECT] -
                                 before.upload.by_path[FY_PATH_DIRECT],
                             1);
        ts_expect_noise(device, (uint64_t)round);
        ts_ok(fy_ticket_wait(ticket, FY_FOREVER));
        before = ts_ledger(NULL);
        ts_ok(fy_tensor_download_into(mine, device, NULL));
        if (!ctx->is_host)
            assert_int_equal(ts_ledger(NULL).download.by_path[FY_PATH_DIRECT] -
                                 before.download.by_path[FY_PATH_DIRECT],
                             1);
        ts_ok(fy_tensor_upload_into(device, mine, &ts_borrow, &ticket));
        fy_tensor_destroy(mine); /* while it is read */
        fy_tensor_destroy(view);
        ts_expect_noise(device, (uint64_t)round);
        ts_ok(fy_device_wait(ctx->device, FY_FOREVER));
        assert_int_equal(g_deleted, 1);
        assert_int_equal(pinned_live(ctx), live);
    }
    free(bytes);
}

/* A small tensor's memory is cached by the thread: the next tensor in it is not page-locked. */
TS_DEVICE_TEST(pinned_memory_is_released)
{
    for (int i = 0; i < 3; i++) {
        fy_tensor_t *small = ts_host_f32(FY_DIMS(4), (float[4]){ 1, 2, 3, 4 }), *empty;
        assert_int_equal(ts_info(small).is_pinned, 0);
        ts_ok(fy_tensor_pin(small, ctx->device));
        assert_int_equal(ts_info(small).is_pinned, !ctx->is_host);
        fy_tensor_destroy(small);
        ts_ok(fy_tensor_create(fy_device_host(), FY_DTYPE_F32, FY_DIMS(0), &empty));
        ts_ok(fy_tensor_pin(empty, ctx->device));
    }
}

TS_DEVICE_TEST(invalid_pins_are_refused)
{
    fy_tensor_t *host = ts_host_f32(FY_DIMS(4), (float[4]){ 1, 2, 3, 4 }),
                *there = ts_f32(ctx->device, FY_DIMS(1), (float[1]){ 0 });
    ts_fails(fy_tensor_pin(NULL, ctx->device), INVALID_ARGUMENT);
    ts_fails(fy_tensor_pin(host, NULL), INVALID_ARGUMENT);
    if (ctx->is_host) return;
    ts_fails(fy_tensor_pin(there, ctx->device), DEVICE_MISMATCH);
    fy_scope_t scope = fy_scope_begin("guarded");
    ts_guard(device_allocs, 0);
    fy_ledger_totals_t before = ts_ledger(NULL);
    ts_fails(fy_tensor_pin(host, ctx->device), REFUSED_BY_GUARD);
    ts_expect_quiet_since(&before, "a refused pin");
    fy_scope_end(scope, 0, NULL);
    assert_int_equal(ts_info(host).is_pinned, 0);
    if (!ctx->is_sim) return;
    fy_device_t *other = ts_open("sim:9?pinned=64KiB");
    fy_tensor_t *large = ts_zeros(fy_device_host(), FY_DTYPE_U8, FY_DIMS(65537)), *pool;
    ts_fails(fy_tensor_pin(large, other), PINNED_LIMIT);
    assert_non_null(fy_error_get()->oom);
    assert_int_equal(fy_error_get()->oom->asked, 65537);
    ts_ok(fy_slice(large, 0, 0, 10, &large));
    /* it is the memory that counts, not the view */
    ts_fails(fy_tensor_pin(large, other), PINNED_LIMIT);
    ts_ok(fy_zeros(fy_device_host(), FY_DTYPE_U8, FY_DIMS(60000), &large));
    ts_ok(fy_tensor_pin(large, other));
    ts_fails(fy_tensor_pin(large, ctx->device), BUSY);
    /* one limit for both kinds */
    ts_fails(fy_tensor_create_pinned(other, FY_DTYPE_U8, FY_DIMS(30000), &pool), PINNED_LIMIT);
    fy_tensor_destroy(large);
    ts_ok(fy_tensor_create_pinned(other, FY_DTYPE_U8, FY_DIMS(30000), &pool));
    fy_tensor_destroy(pool);
    ts_ok(fy_zeros(fy_device_host(), FY_DTYPE_U8, FY_DIMS(60000), &large));
    ts_ok(fy_tensor_pin(large, other)); /* the pool frees the idle bytes that it keeps */
}
