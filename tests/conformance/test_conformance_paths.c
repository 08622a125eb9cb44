/* The ways a transfer can go besides one tensor up or down: many at once, into host memory, files, peers. Values in every layout, figures by
 * path, refusals that leave everything as it was. Not here: how long they take (tests/unit/transfer/test_coalesce.c). */
#include <unistd.h>

#include "tests/support/harness.h"
#include "tests/support/operand.h"
#include "tests/support/oracle.h"

typedef unsigned char byte;

static byte noise(uint64_t i) { return (byte)((i * 2654435761u + 12345) >> 13); }

/* A host tensor of n bytes, noise from `seed` on. */
static fy_tensor_t *bytes_up(int64_t n, uint64_t seed)
{
    fy_tensor_t *host;
    void *data;
    ts_ok(fy_tensor_create(fy_device_host(), FY_DTYPE_U8, FY_DIMS(n), &host));
    ts_ok(fy_tensor_map(host, FY_ACCESS_WRITE, &data));
    for (int64_t i = 0; i < n; i++) ((byte *)data)[i] = noise(seed + (uint64_t)i);
    return host;
}

static void expect_noise(const fy_tensor_t *tensor, uint64_t seed)
{
    const uint64_t n = ts_info(tensor).nbytes;
    byte *got = malloc(n + 1);
    assert_non_null(got);
    ts_read(tensor, got, n);
    for (uint64_t i = 0; i < n; i++)
        if (got[i] != noise(seed + i)) {
            print_error("byte %llu of %llu is %d, want %d\n", (unsigned long long)i, (unsigned long long)n, got[i], noise(seed + i));
            fail();
        }
    free(got);
}

/* ---- many at once ---- */

enum { MANY = 400 };
/* 0 bytes, odd lengths, one that is large, one behind the other. */
static int64_t length_of(int i) { return i == 7 ? 300000 : i % 50 == 3 ? 0 : (i * 37) % 5000 + 1; }

static void many_up(ts_ctx_t *ctx)
{
    fy_tensor_t *src[MANY], *dst[MANY];
    uint64_t total = 0, nlarge = 0, nempty = 0;
    for (int i = 0; i < MANY; i++) {
        src[i] = bytes_up(length_of(i), (uint64_t)i * 999);
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
        assert_int_equal(after.upload.by_path[FY_PATH_HOST] - before.upload.by_path[FY_PATH_HOST], MANY);
    } else {
        assert_int_equal(after.upload.by_path[FY_PATH_COALESCED] - before.upload.by_path[FY_PATH_COALESCED], MANY - nlarge - nempty);
        assert_int_equal(after.upload.by_path[FY_PATH_STAGED] - before.upload.by_path[FY_PATH_STAGED], nlarge + nempty);
        assert_true(after.upload.copies - before.upload.copies <= 3); /* a slot's worth, and the large one */
        assert_true(after.upload.wire_nbytes - before.upload.wire_nbytes >= total + (MANY - nempty - nlarge) * 24); /* the table crossed */
        assert_true(after.upload.wire_nbytes - before.upload.wire_nbytes <= total + MANY * 40);
    }
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(ts_info(dst[i]).nbytes, length_of(i));
        expect_noise(dst[i], (uint64_t)i * 999);
        fy_tensor_destroy(dst[i]);
        fy_tensor_destroy(src[i]);
    }
}

/* Dense, strided, converted, into the middle of something: all in one call, and each ends where it should. */
static void many_into_every_layout(ts_ctx_t *ctx)
{
    enum { N = TS_LAYOUT_COUNT * TS_LAYOUT_COUNT };
    const int64_t dims[3] = { 5, 3, 4 };
    ts_array_t old[N], new[N], got;
    ts_operand_t to[N], from[N];
    fy_tensor_t *dst[N], *src[N];
    uint64_t version[N];
    size_t n = 0;
    ts_random_t random = { 4 };
    for (ts_layout_t a = 0; a < TS_LAYOUT_COUNT; a++) {
        for (ts_layout_t b = 0; b < TS_LAYOUT_COUNT && a != TS_BROADCAST; b++, n++) {
            ts_array_make(&old[n], FY_DTYPE_F32, 3, dims);
            ts_array_make(&new[n], FY_DTYPE_F32, 3, dims);
            ts_array_fill(&new[n], TS_ANY, 0, b == TS_BROADCAST ? 0 : -1, &random);
            ts_operand_make(&to[n], ctx->device, &old[n], a);
            ts_operand_make(&from[n], fy_device_host(), &new[n], b);
            dst[n] = to[n].view;
            src[n] = from[n].view;
            version[n] = ts_version(dst[n]);
        }
    }
    fy_ledger_totals_t before = ts_ledger(NULL);
    fy_ticket_t ticket;
    ts_ok(fy_tensor_upload_many_into(n, dst, src, NULL, &ticket));
    ts_ok(fy_ticket_wait(ticket, FY_FOREVER));
    for (size_t i = 0; i < n; i++) assert_int_equal(fy_ticket_poll(fy_tensor_ticket(dst[i])), FY_POLL_DONE);
    fy_ledger_totals_t after = ts_ledger(NULL);
    assert_int_equal(after.upload.count - before.upload.count, n);
    assert_int_equal(after.upload.nbytes - before.upload.nbytes, n * 240);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(ts_version(dst[i]), version[i] + 1);
        ts_operand_check(&to[i], false, &got, "upload_many_into"); /* guard words too */
        assert_true(ts_same(&new[i], &got, "upload_many_into"));
        ts_operand_free(&to[i]);
        ts_operand_free(&from[i]);
        ts_array_free(&old[i]);
        ts_array_free(&new[i]);
        ts_array_free(&got);
    }
}

static void many_converted(ts_ctx_t *ctx)
{
    const float values[4] = { 1, -2.5f, 0.5f, 3 };
    fy_tensor_t *src[3] = { ts_host_f32(FY_DIMS(4), values), ts_host_f32(FY_DIMS(4), values), ts_host_f32(FY_DIMS(4), values) }, *dst[3];
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
    ts_fails(fy_tensor_upload_many_into(3, dst, src, &(fy_transfer_options_t){ sizeof options, FY_HOST_COPY, FY_DTYPE_F64, 0, NULL }, NULL),
             INVALID_ARGUMENT);
}

static void many_refused(ts_ctx_t *ctx)
{
    const float values[4] = { 1, 2, 3, 4 };
    fy_tensor_t *good = ts_host_f32(FY_DIMS(4), values), *shorter = ts_host_f32(FY_DIMS(3), values),
                *there = ts_f32(ctx->device, FY_DIMS(4), values), *gone = ts_host_f32(FY_DIMS(1), values),
                *other = ts_f32(ctx->device, FY_DIMS(4), values), *src[3] = { good, good, NULL }, *dst[3] = { there, other, NULL },
                *out[3] = { good, good, good };
    fy_transfer_options_t borrow = FY_TRANSFER_OPTIONS_INIT;
    borrow.contract = FY_HOST_BORROW;
    fy_tensor_destroy(gone);
    ts_ok(fy_device_wait(ctx->device, FY_FOREVER));
    const uint64_t version = ts_version(there);
    fy_ledger_totals_t before = ts_ledger(NULL);
    ts_fails(fy_tensor_upload_many(3, src, ctx->device, NULL, out), INVALID_ARGUMENT);
    ts_text_has("[2]"); /* which one */
    for (int i = 0; i < 3; i++) assert_null(out[i]);
    ts_fails(fy_tensor_upload_many(2, src, NULL, NULL, out), INVALID_ARGUMENT);
    ts_fails(fy_tensor_upload_many(2, NULL, ctx->device, NULL, out), INVALID_ARGUMENT);
    ts_fails(fy_tensor_upload_many(2, src, ctx->device, NULL, NULL), INVALID_ARGUMENT);
    ts_fails(fy_tensor_upload_many_into(3, dst, src, NULL, NULL), INVALID_ARGUMENT);
    ts_fails(fy_tensor_upload_many_into(2, dst, src, &borrow, NULL), INVALID_ARGUMENT); /* no ticket */
    src[1] = shorter;
    ts_fails(fy_tensor_upload_many_into(2, dst, src, NULL, NULL), SHAPE_MISMATCH);
    ts_text_has("[1]");
    src[1] = gone;
    ts_fails(fy_tensor_upload_many(2, src, ctx->device, NULL, out), INVALID_ARGUMENT);
    src[1] = good;
    if (!ctx->is_host) {
        fy_ticket_t ticket;
        dst[1] = good;
        ts_fails(fy_tensor_upload_many_into(2, dst, src, NULL, NULL), DEVICE_MISMATCH);
        dst[1] = other;
        src[1] = there;
        ts_fails(fy_tensor_upload_many(2, src, ctx->device, NULL, out), DEVICE_MISMATCH);
        src[1] = good;
        ts_fails(fy_tensor_upload_many_into(2, dst, src, &borrow, &ticket), INVALID_ARGUMENT); /* not pinned */
    }
    fy_scope_t scope = fy_scope_begin("guarded");
    fy_guard_options_t guard = FY_GUARD_OPTIONS_INIT;
    guard.upload_nbytes = 31; /* one less than both */
    ts_ok(fy_scope_guard(&guard));
    ts_fails(fy_tensor_upload_many(2, src, ctx->device, NULL, out), REFUSED_BY_GUARD);
    fy_scope_end(scope, 0, NULL);
    fy_ledger_totals_t after = ts_ledger(NULL);
    ts_expect_quiet(&before, &after, "refused uploads of many");
    assert_int_equal(ts_version(there), version);
    ts_ok(fy_tensor_upload_many(0, NULL, ctx->device, NULL, NULL));
    ts_ok(fy_tensor_upload_many_into(0, NULL, NULL, NULL, NULL));
}

/* Small ones of a borrowing call are packed as well: the sources are free at once or at the ticket, never later. */
static void many_borrowed(ts_ctx_t *ctx)
{
    enum { N = 20 };
    fy_tensor_t *src[N], *dst[N];
    fy_transfer_options_t borrow = FY_TRANSFER_OPTIONS_INIT;
    borrow.contract = FY_HOST_BORROW;
    for (int i = 0; i < N; i++) {
        const int64_t n = i == 5 ? 200000 : 100 + i;
        void *data;
        ts_ok(fy_tensor_create_pinned(ctx->device, FY_DTYPE_U8, 1, &n, &src[i]));
        ts_ok(fy_tensor_map(src[i], FY_ACCESS_WRITE, &data));
        for (int64_t k = 0; k < n; k++) ((byte *)data)[k] = noise((uint64_t)(i * 31 + k));
        ts_ok(fy_empty(ctx->device, FY_DTYPE_U8, 1, &n, &dst[i]));
    }
    fy_ticket_t ticket;
    ts_ok(fy_tensor_upload_many_into(N, dst, src, &borrow, &ticket));
    ts_ok(fy_ticket_wait(ticket, FY_FOREVER));
    for (int i = 0; i < N; i++) {
        void *data;
        ts_ok(fy_tensor_map(src[i], FY_ACCESS_WRITE, &data)); /* ours again */
        expect_noise(dst[i], (uint64_t)i * 31);
    }
}

/* ---- into host memory that is there ---- */

static void down_into_every_layout(ts_ctx_t *ctx)
{
    const int64_t dims[3] = { 5, 3, 4 };
    for (ts_layout_t to = 0; to < TS_LAYOUT_COUNT; to++) {
        for (ts_layout_t from = 0; from < TS_LAYOUT_COUNT && to != TS_BROADCAST; from++) {
            ts_array_t old, new, got;
            ts_operand_t dst, src;
            ts_random_t random = { 6 };
            ts_array_make(&old, FY_DTYPE_F32, 3, dims);
            ts_array_make(&new, FY_DTYPE_F32, 3, dims);
            ts_array_fill(&new, TS_ANY, 0, from == TS_BROADCAST ? 0 : -1, &random);
            ts_operand_make(&dst, fy_device_host(), &old, to);
            ts_operand_make(&src, ctx->device, &new, from);
            const uint64_t version = ts_version(dst.view);
            fy_ledger_totals_t before = ts_ledger(NULL);
            ts_ok(fy_tensor_download_into(dst.view, src.view, NULL));
            fy_ledger_totals_t after = ts_ledger(NULL);
            assert_int_equal(after.download.count - before.download.count, 1);
            assert_int_equal(after.download.nbytes - before.download.nbytes, 240);
            assert_int_equal(after.download.wire_nbytes - before.download.wire_nbytes, 240);
            assert_int_equal(after.syncs - before.syncs, 1);
            assert_int_equal(ts_version(dst.view), version + 1);
            ts_operand_check(&dst, false, &got, "download_into"); /* guard words too */
            assert_true(ts_same(&new, &got, "download_into"));
            ts_operand_free(&dst);
            ts_operand_free(&src);
            ts_array_free(&old);
            ts_array_free(&new);
            ts_array_free(&got);
        }
    }
}

static void down_into_either_memory(ts_ctx_t *ctx)
{
    static const int64_t lengths[] = { 0, 1, 4095, (1 << 20) + 1, 20000003 };
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        for (int pinned = 0; pinned < 2; pinned++) {
            fy_tensor_t *src = bytes_up(lengths[i], i), *device, *dst;
            ts_ok(fy_tensor_upload(src, ctx->device, NULL, &device));
            if (pinned)
                ts_ok(fy_tensor_create_pinned(ctx->device, FY_DTYPE_U8, 1, &lengths[i], &dst));
            else
                ts_ok(fy_tensor_create(fy_device_host(), FY_DTYPE_U8, 1, &lengths[i], &dst));
            fy_ledger_totals_t before = ts_ledger(NULL);
            ts_ok(fy_tensor_download_into(dst, device, NULL));
            fy_ledger_totals_t after = ts_ledger(NULL);
            const fy_path_t path = ctx->is_host ? FY_PATH_HOST : pinned && lengths[i] ? FY_PATH_DIRECT : FY_PATH_STAGED;
            assert_int_equal(after.download.by_path[path] - before.download.by_path[path], 1);
            assert_int_equal(after.download.wire_nbytes - before.download.wire_nbytes, lengths[i]);
            if (pinned && lengths[i]) assert_int_equal(after.download.copies - before.download.copies, 1);
            expect_noise(dst, i);
            fy_tensor_destroy(src);
            fy_tensor_destroy(device);
            fy_tensor_destroy(dst);
        }
    }
}

static void down_into_refused(ts_ctx_t *ctx)
{
    const float values[4] = { 1, 2, 3, 4 };
    fy_tensor_t *src = ts_f32(ctx->device, FY_DIMS(4), values), *dst = ts_host_f32(FY_DIMS(4), (float[4]){ 9, 9, 9, 9 }),
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
    fy_guard_options_t guard = FY_GUARD_OPTIONS_INIT;
    guard.download_nbytes = 15;
    ts_ok(fy_scope_guard(&guard));
    ts_fails(fy_tensor_download_into(dst, src, NULL), REFUSED_BY_GUARD);
    fy_scope_end(scope, 0, NULL);
    scope = fy_scope_begin("no sync");
    guard = (fy_guard_options_t)FY_GUARD_OPTIONS_INIT;
    guard.syncs = 0;
    ts_ok(fy_scope_guard(&guard));
    ts_fails(fy_tensor_download_into(dst, src, NULL), REFUSED_BY_GUARD);
    fy_scope_end(scope, 0, NULL);
    fy_ledger_totals_t after = ts_ledger(NULL);
    ts_expect_quiet(&before, &after, "refused downloads into memory");
    assert_int_equal(ts_version(dst), version);
    ts_expect_f32(dst, (float[4]){ 9, 9, 9, 9 }, 4);
}

/* While an upload reads dst in place it is BUSY. */
static void down_into_borrowed_memory(ts_ctx_t *ctx)
{
    const int64_t n = 1 << 22;
    fy_tensor_t *pinned, *device;
    fy_ticket_t ticket;
    fy_transfer_options_t borrow = FY_TRANSFER_OPTIONS_INIT;
    borrow.contract = FY_HOST_BORROW;
    ts_ok(fy_tensor_create_pinned(ctx->device, FY_DTYPE_U8, 1, &n, &pinned));
    ts_ok(fy_zeros(ctx->device, FY_DTYPE_U8, 1, &n, &device));
    ts_ok(fy_device_wait(ctx->device, FY_FOREVER));
    ts_ok(fy_tensor_upload_into(device, pinned, &borrow, &ticket));
    if (ctx->is_sim) ts_fails(fy_tensor_download_into(pinned, device, NULL), BUSY);
    ts_ok(fy_ticket_wait(ticket, FY_FOREVER));
    ts_ok(fy_tensor_download_into(pinned, device, NULL));
}

/* A fault of whatever made the bytes reaches the caller, and whoever reads dst afterwards. */
static void down_into_finds_the_fault(ts_ctx_t *ctx)
{
    int64_t values[2] = { 1, 99 };
    fy_tensor_t *table = ts_iota(ctx->device, FY_DIMS(4), 0), *host, *indices, *rows, *dst = ts_host_f32(FY_DIMS(2), (float[2]){ 9, 9 });
    void *data;
    ts_ok(fy_tensor_wrap(fy_device_host(), FY_DTYPE_I64, FY_DIMS(2), values, NULL, NULL, &host));
    ts_ok(fy_tensor_upload(host, ctx->device, NULL, &indices));
    ts_ok(fy_gather(table, indices, &rows));
    ts_fails(fy_tensor_download_into(dst, rows, NULL), BAD_VALUE);
    if (!ctx->is_host) ts_fails(fy_tensor_map(dst, FY_ACCESS_READ, &data), BAD_VALUE);
    ts_ok(fy_tensor_download_into(dst, ts_f32(ctx->device, FY_DIMS(2), (float[2]){ 5, 6 }), NULL)); /* all of it is new: good again */
    ts_expect_f32(dst, (float[2]){ 5, 6 }, 2);
}

/* ---- files ---- */

static char g_file[64];

/* n bytes of noise from `seed` on, behind 11 others. */
static void write_noise(int64_t n, uint64_t seed)
{
    snprintf(g_file, sizeof g_file, "/tmp/ferry_paths_%d", (int)getpid());
    FILE *file = fopen(g_file, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite("eleven byte", 1, 11, file), 11);
    for (int64_t i = 0; i < n; i++) assert_int_not_equal(fputc(noise(seed + (uint64_t)i), file), EOF);
    assert_int_equal(fclose(file), 0);
}

static void file_up_and_down(ts_ctx_t *ctx)
{
    static const int64_t lengths[] = { 0, 1, 5000, (1 << 20) + 1, 9000001 };
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        fy_tensor_t *x, *back;
        write_noise(lengths[i] + 5, 70 + i);
        ts_ok(fy_zeros(ctx->device, FY_DTYPE_U8, 1, &lengths[i], &x));
        const uint64_t version = ts_version(x);
        fy_ledger_totals_t before = ts_ledger(NULL);
        ts_ok(fy_tensor_upload_file(x, g_file, 11, NULL));
        fy_ledger_totals_t after = ts_ledger(NULL);
        assert_int_equal(after.upload.count - before.upload.count, 1);
        assert_int_equal(after.upload.nbytes - before.upload.nbytes, lengths[i]);
        assert_int_equal(after.upload.by_path[FY_PATH_FILE] - before.upload.by_path[FY_PATH_FILE], 1);
        if (!ctx->is_host) assert_int_equal(after.upload.wire_nbytes - before.upload.wire_nbytes, lengths[i]);
        assert_int_equal(after.syncs, before.syncs);
        assert_int_equal(ts_version(x), version + 1);
        expect_noise(x, 70 + i);

        before = ts_ledger(NULL);
        ts_ok(fy_tensor_download_file(x, g_file, 3, NULL)); /* over what is there: 3 bytes before it stay, and 13 behind it */
        after = ts_ledger(NULL);
        assert_int_equal(after.download.count - before.download.count, 1);
        assert_int_equal(after.download.nbytes - before.download.nbytes, lengths[i]);
        assert_int_equal(after.download.by_path[FY_PATH_FILE] - before.download.by_path[FY_PATH_FILE], 1);
        assert_int_equal(after.syncs - before.syncs, 1);
        const int64_t all = lengths[i] + 16;
        byte *bytes = malloc((size_t)all);
        assert_non_null(bytes);
        ts_ok(fy_tensor_create(fy_device_host(), FY_DTYPE_U8, 1, &all, &back));
        ts_ok(fy_tensor_upload_file(back, g_file, 0, NULL));
        ts_read(back, bytes, (size_t)all);
        assert_memory_equal(bytes, "ele", 3);
        for (int64_t k = 0; k < lengths[i]; k++) assert_int_equal(bytes[3 + k], noise(70 + i + (uint64_t)k));
        assert_int_equal(bytes[all - 1], noise(70 + i + (uint64_t)lengths[i] + 4));
        free(bytes);
        fy_tensor_destroy(x);
        fy_tensor_destroy(back);
        remove(g_file);
        ts_ok(fy_tensor_create(ctx->device, FY_DTYPE_U8, FY_DIMS(0), &x));
        ts_ok(fy_tensor_download_file(x, g_file, 0, NULL)); /* makes it */
        assert_int_equal(remove(g_file), 0);
    }
}

static void file_into_every_layout(ts_ctx_t *ctx)
{
    const int64_t dims[3] = { 5, 3, 4 };
    for (ts_layout_t layout = 0; layout < TS_LAYOUT_COUNT; layout++) {
        ts_array_t old, new, got;
        ts_operand_t dst, src;
        fy_tensor_t *half;
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
        options.dtype = FY_DTYPE_F16; /* converted on the device, before it comes down */
        fy_ledger_totals_t before = ts_ledger(NULL);
        ts_ok(fy_tensor_download_file(src.view, g_file, 0, &options));
        assert_int_equal(ts_ledger(NULL).download.nbytes - before.download.nbytes, 120);
        ts_ok(fy_tensor_create(ctx->device, FY_DTYPE_F16, 3, dims, &half));
        ts_ok(fy_tensor_upload_file(half, g_file, 0, NULL));
        ts_result_read(half, ctx->device, &got, "f16 from a file");
        for (size_t i = 0; i < 60; i++) assert_true(got.f[i] == ts_round(FY_DTYPE_F16, new.f[i]) || new.f[i] != new.f[i]);
        ts_operand_free(&dst);
        ts_operand_free(&src);
        ts_array_free(&old);
        ts_array_free(&new);
        ts_array_free(&got);
    }
    remove(g_file);
}

static void file_refused(ts_ctx_t *ctx)
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
    ts_fails(fy_tensor_upload_file(x, "/nowhere/at all", 0, NULL), IO);
    ts_text_has("No such file");
    ts_fails(fy_tensor_upload_file(x, "/tmp", 0, NULL), IO);
    ts_fails(fy_tensor_upload_file(x, g_file, 1, NULL), CORRUPT_DATA); /* 16 bytes, from the second on */
    ts_text_has("15");
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
    guard = (fy_guard_options_t)FY_GUARD_OPTIONS_INIT;
    guard.syncs = 0;
    ts_ok(fy_scope_guard(&guard));
    ts_fails(fy_tensor_download_file(x, g_file, 0, NULL), REFUSED_BY_GUARD);
    fy_scope_end(scope, 0, NULL);
    assert_int_not_equal(remove(g_file), 0); /* refused: not made */
    fy_ledger_totals_t after = ts_ledger(NULL);
    ts_expect_quiet(&before, &after, "refused files");
    assert_int_equal(ts_version(x), version);
    ts_expect_f32(x, (float[4]){ 1, 2, 3, 4 }, 4);
    ts_fails(fy_tensor_download_file(x, "/dev/full", 0, NULL), IO);
    ts_text_has("No space");
    ts_fails(fy_tensor_download_file(x, "/nowhere/at all", 0, NULL), IO);
}

/* A fault of whatever made the bytes is found before the file is touched. */
static void file_keeps_faults_out(ts_ctx_t *ctx)
{
    int64_t values[2] = { 1, 99 };
    fy_tensor_t *table = ts_iota(ctx->device, FY_DIMS(4), 0), *host, *indices, *rows, *back;
    ts_ok(fy_tensor_wrap(fy_device_host(), FY_DTYPE_I64, FY_DIMS(2), values, NULL, NULL, &host));
    ts_ok(fy_tensor_upload(host, ctx->device, NULL, &indices));
    ts_ok(fy_gather(table, indices, &rows));
    write_noise(0, 0);
    ts_fails(fy_tensor_download_file(rows, g_file, 0, NULL), BAD_VALUE);
    ts_ok(fy_tensor_create(fy_device_host(), FY_DTYPE_U8, FY_DIMS(11), &back));
    ts_ok(fy_tensor_upload_file(back, g_file, 0, NULL));
    char text[11];
    ts_read(back, text, sizeof text);
    assert_memory_equal(text, "eleven byte", 11);
    remove(g_file);
}

static const ts_test_t k_tests[] = {
    TS_TEST(many_up),
    TS_TEST(many_into_every_layout),
    TS_TEST(many_converted),
    TS_TEST(many_refused),
    TS_TEST(many_borrowed),
    TS_TEST(down_into_every_layout),
    TS_TEST(down_into_either_memory),
    TS_TEST(down_into_refused),
    TS_TEST(down_into_borrowed_memory),
    TS_TEST(down_into_finds_the_fault),
    TS_TEST(file_up_and_down),
    TS_TEST(file_into_every_layout),
    TS_TEST(file_refused),
    TS_TEST(file_keeps_faults_out),
};

int main(void) { return TS_RUN("paths", k_tests, NULL); }
