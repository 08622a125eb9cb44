/* The event file of a program: every kind of event appears, the figures of the ledger and the pools
 * can be recomputed from it, and so can the dependencies between requests. Not here: the ring and
 * recordings (unit/runtime/test_event.c), the command (unit/tools/test_ledger.sh). */
#include <unistd.h>

#include "tests/support/harness.h"
#include "tools/cli/event_totals.h"

static char path[] = "/tmp/test_events.XXXXXX";

enum { KINDS = 32, STORAGES = 512 };
typedef struct seen {
    char kind[KINDS][24];
    unsigned count[KINDS], nkinds;
    event_totals_t totals;
    uint64_t written[STORAGES]; /* 1 + the version of the last write by an op or a transfer */
    unsigned unexplained;       /* sources whose version is not the last written one */
    unsigned operands, spans, backwards;
    uint64_t last_start_ns;
    char site[64];
    unsigned explained; /* transfers, syncs, blocks and maps with all facts about their cause */
} seen_t;

/* The keys that say why and where. */
static bool has_cause(const event_t *event, const char *kind)
{
    if (strcmp(kind, "transfer") == 0)
        return *event_text(event, "reason") && event_has(event, "pinned") &&
               event_whole(event, "blocking") == !event_has(event, "seq");
    if (strcmp(kind, "sync") == 0)
        return strcmp(event_text(event, "reason"), "DOWNLOAD_ARRIVE") == 0 ||
               strcmp(event_text(event, "reason"), "DRAIN") == 0;
    if (strcmp(kind, "block_alloc") == 0)
        return event_whole(event, "segment") && event_has(event, "offset");
    return strcmp(kind, "map") == 0 && *event_text(event, "site") &&
           event_has(event, "src") == (strcmp(event_text(event, "access"), "read") == 0);
}

/* The reader gives an op the keys of its signature. */
static void see_operands(const event_t *event)
{
    if (strcmp(event_text(event, "op"), "add") != 0 || !event_has(event, "attrs"))
        assert_non_null(event->signature);
    if (strcmp(event_text(event, "op"), "gather") == 0) {
        assert_int_equal(event->signature->sources, 2);
        assert_string_equal(event_text(event, "dtypes"), "f32 i64 f32");
        assert_string_equal(event_text(event, "shapes"), "[[4,2],[3],[3,2]]");
    }
    if (strcmp(event_text(event, "op"), "fill") == 0)
        assert_int_equal(strncmp(event_text(event, "attrs"), "value=", 6), 0);
}

static void see(void *user, const event_t *event)
{
    seen_t *seen = user;
    unsigned i = 0;
    uint64_t pairs[16][2];
    const char *kind = event_text(event, "ev");
    while (i < seen->nkinds && strcmp(seen->kind[i], kind) != 0) i++;
    assert_true(i < KINDS);
    if (i == seen->nkinds) snprintf(seen->kind[seen->nkinds++], sizeof seen->kind[0], "%s", kind);
    seen->count[i]++;
    event_totals_add(&seen->totals, event);
    assert_true(event_has(event, "t_ns") && event_has(event, "thread") &&
                event_has(event, "scope"));
    seen->explained += has_cause(event, kind);
    if (strcmp(kind, "op") != 0 && strcmp(kind, "transfer") != 0 && strcmp(kind, "operands") != 0)
        return;
    size_t n = event_pairs(event, "src", pairs, 16);
    seen->operands += (unsigned)n;
    for (size_t k = 0; k < n && k < 16; k++)
        seen->unexplained += pairs[k][0] >= STORAGES ||
                             seen->written[pairs[k][0]] != pairs[k][1] + 1;
    n = event_pairs(event, "dst", pairs, 16);
    for (size_t k = 0; k < n && k < 16; k++)
        if (pairs[k][0] < STORAGES) seen->written[pairs[k][0]] = pairs[k][1] + 1;
    if (strcmp(kind, "op") == 0) see_operands(event);
    if (strcmp(kind, "transfer") == 0)
        snprintf(seen->site, sizeof seen->site, "%s", event_text(event, "site"));
    if (strcmp(kind, "op") == 0 && event_has(event, "model_end_ns")) {
        seen->spans++;
        seen->backwards += event_whole(event, "model_start_ns") >
                           event_whole(event, "model_end_ns");
    }
}

static unsigned count_of(const seen_t *seen, const char *kind)
{
    for (unsigned i = 0; i < seen->nkinds; i++)
        if (strcmp(seen->kind[i], kind) == 0) return seen->count[i];
    return 0;
}

static void begin_file(void)
{
    strcpy(path + strlen(path) - 6, "XXXXXX");
    ts_make_file(path);
    ts_ok(fy_ledger_record(path));
}

static void end_file(seen_t *seen)
{
    event_file_info_t info;
    memset(seen, 0, sizeof *seen);
    ts_ok(fy_ledger_record(NULL));
    ts_ok(event_file_read(path, see, seen, &info));
    assert_true(info.is_whole);
    assert_int_equal(info.lost, 0);
    assert_int_equal(unlink(path), 0);
}

/* Uploads, ops, a view's download, a refusal, a bad index. */
static void small_program(ts_ctx_t *ctx)
{
    const int64_t bad[3] = { 1, 99, 0 };
    const fy_guard_options_t guard = FY_GUARD_LIGHT_ONLY;
    fy_tensor_t *host = ts_host_f32(FY_DIMS(4, 2), (float[8]){ 1, 2, 3 }), *index, *x, *y, *z,
                *rows, *back, *many[11];
    fy_transfer_options_t options = FY_TRANSFER_OPTIONS_INIT;
    fy_download_t *download;
    void *bytes;
    options.site = "here";
    ts_ok(fy_tensor_upload(host, ctx->device, NULL, &x));
    ts_ok(fy_tensor_upload_into(x, host, &options, NULL));
    ts_ok(fy_add(x, x, &y));
    ts_ok(fy_transpose(y, (int[]){ 1, 0 }, &z));
    ts_ok(fy_tensor_download(z, &options, &download));
    ts_ok(fy_fill(x, 2));
    ts_ok(fy_download_wait(download, FY_FOREVER, &back));
    ts_ok(fy_tensor_map(back, FY_ACCESS_READ, &bytes));
    ts_ok(fy_tensor_map(back, FY_ACCESS_WRITE, &bytes));
    for (int i = 0; i < 11; i++) many[i] = i & 1 ? x : y;
    ts_ok(fy_concat(11, many, 0, &z));
    fy_scope_t light = fy_scope_begin("light");
    ts_ok(fy_scope_guard(&guard));
    ts_fails(fy_tensor_upload(host, ctx->device, NULL, &z), REFUSED_BY_GUARD);
    fy_scope_end(light, 0, NULL);
    index = ts_upload(ctx->device, FY_DTYPE_I64, FY_DIMS(3), bad);
    ts_ok(fy_gather(y, index, &rows));
    ts_fails(fy_device_wait(ctx->device, FY_FOREVER), BAD_VALUE);
    fy_tensor_destroy(rows);
}

TS_DEVICE_TEST(every_kind)
{
    static const char *const always[] = { "scope_begin", "scope_end", "op",    "operands",
                                          "storage",     "transfer",  "copy",  "sync",
                                          "arrived",     "refusal",   "fault", "pool" };
    static const char *const on_device[] = { "wait", "stream", "block_alloc", "block_free" };
    seen_t seen;
    begin_file();
    fy_scope_t scope = fy_scope_begin("program");
    small_program(ctx);
    fy_scope_end(scope, 0, NULL);
    end_file(&seen);
    for (size_t i = 0; i < sizeof always / sizeof *always; i++)
        if (!count_of(&seen, always[i])) fail_msg("there is no event '%s'", always[i]);
    for (size_t i = 0; i < sizeof on_device / sizeof *on_device && !ctx->is_host; i++)
        if (!count_of(&seen, on_device[i])) fail_msg("there is no event '%s'", on_device[i]);
    assert_int_equal(count_of(&seen, "transfer"), 4);
    /* add, fill, concat, gather; the view submits nothing */
    assert_int_equal(count_of(&seen, "op"), 4);
    assert_int_equal(count_of(&seen, "scope_begin"), count_of(&seen, "scope_end"));
    assert_true(count_of(&seen, "map") >= 2 && count_of(&seen, "sync") >= 2);
    assert_int_equal(seen.explained, count_of(&seen, "transfer") + count_of(&seen, "map") +
                                         count_of(&seen, "sync") + count_of(&seen, "block_alloc"));
    assert_int_equal(count_of(&seen, "refusal"), 1);
    assert_int_equal(count_of(&seen, "fault"), 1);
    assert_string_equal(seen.totals.sites[1].site, "here");
    /* the last record is the caller's */
    assert_true(seen.site[0] && strcmp(seen.site, "here") != 0);
    assert_int_equal(seen.spans, ctx->is_sim ? 4 : 0);
    assert_int_equal(seen.backwards, 0);
    event_totals_free(&seen.totals);
}

/* The sum over the file under `scope` equals the ledger. */
static void expect_sums(event_totals_t *totals, const char *scope)
{
    const fy_ledger_totals_t want = ts_ledger(scope), is = event_totals_of(totals, scope);
    if (memcmp(&want, &is, sizeof want) == 0) return;
    print_error("scope '%s': requests %llu, want %llu; uploads %llu, want %llu; syncs %llu, want "
                "%llu; wire bytes %llu, want %llu\n",
                scope, (unsigned long long)is.requests, (unsigned long long)want.requests,
                (unsigned long long)is.upload.count, (unsigned long long)want.upload.count,
                (unsigned long long)is.syncs, (unsigned long long)want.syncs,
                (unsigned long long)is.upload.wire_nbytes,
                (unsigned long long)want.upload.wire_nbytes);
    fail();
}

/* A scope name that no other device uses, because the figures of a name outlive the scope. */
static const char *name_for(const ts_ctx_t *ctx, const char *what)
{
    static char name[96];
    snprintf(name, sizeof name, "%s %s", what, ctx->spec);
    return name;
}

/* For a scope with a new name, with inner scopes: every figure, nanoseconds too. */
TS_DEVICE_TEST(sums_equal_the_ledger)
{
    const char *root = name_for(ctx, "sums");
    char inner[128];
    seen_t seen;
    begin_file();
    fy_scope_t outer = fy_scope_begin(root);
    for (int i = 0; i < 3; i++) {
        fy_scope_t step = fy_scope_begin("step");
        small_program(ctx);
        fy_scope_end(step, 0, NULL);
    }
    small_program(ctx);
    fy_scope_end(outer, 0, NULL);
    end_file(&seen);
    snprintf(inner, sizeof inner, "test/%s/step", root);
    assert_int_equal(event_totals_of(&seen.totals, inner).requests, 12);
    expect_sums(&seen.totals, inner);
    snprintf(inner, sizeof inner, "test/%s/step/light", root);
    expect_sums(&seen.totals, inner);
    snprintf(inner, sizeof inner, "test/%s", root);
    expect_sums(&seen.totals, inner);
    event_totals_free(&seen.totals);
}

TS_DEVICE_TEST(peaks_equal_the_pools)
{
    const int64_t large = 5 << 20, small = 1000;
    seen_t seen;
    begin_file();
    fy_scope_t scope = fy_scope_begin("peaks");
    (void)ts_full(ctx->device, FY_DIMS(small), 1);
    fy_tensor_t *x = ts_full(ctx->device, FY_DIMS(large), 1), *y;
    ts_ok(fy_add(x, x, &y));
    fy_tensor_destroy(x);
    ts_ok(fy_full(ctx->device, FY_DTYPE_F32, FY_DIMS(3 * large), 1, &x));
    fy_tensor_destroy(y);
    ts_ok(fy_device_wait(ctx->device, FY_FOREVER));
    fy_memory_stats_t stats = ts_memory(ctx->device, NULL);
    ts_ok(fy_memory_trim(ctx->device, 0, NULL));
    fy_scope_end(scope, 0, NULL);
    end_file(&seen);
    const event_pool_t *pool = NULL;
    for (size_t i = 0; i < seen.totals.npools; i++)
        if (strcmp(seen.totals.pools[i].name, ts_spec_name(ctx->spec)) == 0)
            pool = &seen.totals.pools[i];
    assert_non_null(pool);
    assert_int_equal(pool->peak_live, stats.peak_live);
    assert_int_equal(pool->peak_reserved, stats.peak_reserved);
    stats = ts_memory(ctx->device, NULL);
    assert_int_equal(pool->reserved, stats.reserved);
    event_totals_free(&seen.totals);
}

/* An earlier request wrote every source of every request: the graph of dependencies is complete. */
TS_DEVICE_TEST(dependencies_can_be_recomputed)
{
    const int64_t dims[2] = { 4, 4 };
    seen_t seen;
    begin_file();
    fy_scope_t scope = fy_scope_begin("chain");
    fy_tensor_t *host = ts_full(fy_device_host(), 2, dims, 1), *a, *b, *c, *back;
    ts_ok(fy_tensor_upload(host, ctx->device, NULL, &a));
    ts_ok(fy_matmul(a, a, &b));
    ts_ok(fy_axpy(a, 2, b)); /* in place */
    ts_ok(fy_add(a, b, &c));
    back = ts_download(c);
    ts_ok(fy_add(back, host, &c));
    fy_scope_end(scope, 0, NULL);
    end_file(&seen);
    assert_int_equal(seen.unexplained, 0);
    assert_true(seen.operands >= 9);
    event_totals_free(&seen.totals);
}

/* A host that is too far ahead waits, and the file has as many such events as the ledger counts. */
TS_DEVICE_TEST(waits_at_the_limit_are_recorded)
{
    const int64_t dims[2] = { 64, 64 };
    const char *name = name_for(ctx, "ahead");
    char scope_path[128];
    fy_device_t *device;
    seen_t seen;
    if (!ctx->is_sim) return;
    begin_file();
    fy_scope_t scope = fy_scope_begin(name);
    ts_ok(fy_device_open("sim:9?ahead=4", &device));
    fy_tensor_t *x = ts_full(device, 2, dims, 1), *y;
    for (int i = 0; i < 64; i++) {
        ts_ok(fy_matmul(x, x, &y));
        fy_tensor_destroy(y);
    }
    fy_tensor_destroy(x);
    fy_device_close(device);
    fy_scope_end(scope, 0, NULL);
    end_file(&seen);
    snprintf(scope_path, sizeof scope_path, "test/%s", name);
    assert_true(ts_ledger(scope_path).throttles > 0);
    assert_int_equal(count_of(&seen, "throttle"),
                     event_totals_of(&seen.totals, scope_path).throttles);
    expect_sums(&seen.totals, scope_path);
    event_totals_free(&seen.totals);
}

/* More uploads than the engine's window holds: each queued upload gets an event when it is
 * submitted. */
TS_DEVICE_TEST(queued_transfers_are_recorded)
{
    enum { UPLOADS = 8 };
    const char *name = name_for(ctx, "queue");
    char scope_path[128];
    fy_device_t *device;
    fy_tensor_t *host[UPLOADS], *x[UPLOADS];
    seen_t seen;
    if (!ctx->is_sim) return;
    begin_file();
    fy_scope_t scope = fy_scope_begin(name);
    ts_ok(fy_device_open("sim:8?window=64KiB", &device));
    for (int i = 0; i < UPLOADS; i++)
        ts_ok(fy_tensor_create_pinned(device, FY_DTYPE_F32, FY_DIMS(16 << 10), &host[i]));
    for (int i = 0; i < UPLOADS; i++) ts_ok(fy_tensor_upload(host[i], device, &ts_borrow, &x[i]));
    ts_ok(fy_device_wait(device, FY_FOREVER));
    fy_scope_end(scope, 0, NULL);
    fy_device_close(device);
    end_file(&seen);
    snprintf(scope_path, sizeof scope_path, "test/%s", name);
    assert_int_equal(count_of(&seen, "transfer"), UPLOADS);
    assert_int_equal(count_of(&seen, "copy"), UPLOADS);
    assert_in_range(count_of(&seen, "started"), 1, UPLOADS - 1);
    expect_sums(&seen.totals, scope_path);
    event_totals_free(&seen.totals);
}
