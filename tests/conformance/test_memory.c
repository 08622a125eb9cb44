/* Memory figures: live, requested, cached, reserved and peaks keep their equations while a program
 * runs; trim frees idle memory; figures by scope path.
 * Not here: running out of memory (tests/faults), the pool's invariants (tests/unit/alloc). */
#include "tests/support/harness.h"

static void expect_equations(const fy_memory_stats_t *stats)
{
    assert_int_equal(stats->reserved, stats->live + stats->cached);
    assert_true(stats->requested <= stats->live);
    assert_true(stats->pending <= stats->cached);
    assert_true(stats->peak_live >= stats->live);
    assert_true(stats->peak_reserved >= stats->reserved);
    assert_true(stats->largest_free <= stats->cached);
    assert_true(stats->limit >= stats->reserved);
}

TS_DEVICE_TEST(figures_keep_their_equations)
{
    fy_memory_stats_t before = ts_memory(ctx->device, NULL);
    expect_equations(&before);
    fy_tensor_t *tensors[50];
    uint64_t requested = 0;
    for (int i = 0; i < 50; i++) {
        int64_t n = 1 + i * 977;
        ts_ok(fy_tensor_create(ctx->device, FY_DTYPE_U8, 1, &n, &tensors[i]));
        requested += (uint64_t)n;
        fy_memory_stats_t now = ts_memory(ctx->device, NULL);
        expect_equations(&now);
        /* to the byte; small host blocks as rounded */
        if (!ctx->is_host) assert_int_equal(now.requested - before.requested, requested);
    }
    fy_memory_stats_t full = ts_memory(ctx->device, NULL);
    for (int i = 0; i < 50; i++) {
        fy_tensor_destroy(tensors[i]);
        fy_memory_stats_t now = ts_memory(ctx->device, NULL);
        expect_equations(&now);
        assert_true(now.peak_live >= full.live);
    }
    fy_memory_stats_t after = ts_memory(ctx->device, NULL);
    assert_int_equal(after.live, before.live);
    assert_int_equal(after.requested, before.requested);
}

TS_DEVICE_TEST(a_steady_loop_allocates_nothing)
{
    uint64_t allocs = 0;
    for (int i = 0; i < 20; i++) {
        fy_scope_t step = fy_scope_begin("step");
        fy_tensor_t *a = ts_iota(ctx->device, FY_DIMS(100, 100), 0), *b, *c;
        ts_ok(fy_matmul(a, a, &b));
        ts_ok(fy_add(a, b, &c));
        fy_scope_end(step, 0, NULL);
        if (i == 4) allocs = ts_memory(ctx->device, NULL).device_allocs;
    }
    assert_int_equal(ts_memory(ctx->device, NULL).device_allocs, allocs);
    if (!ctx->is_host) assert_true(allocs > 0);
}

TS_DEVICE_TEST(trim_frees_idle_memory)
{
    fy_tensor_t *a = ts_bytes(ctx->device, INT64_C(70) << 20), *b = ts_bytes(ctx->device, 1000);
    fy_tensor_destroy(a);
    ts_ok(fy_device_wait(ctx->device, FY_FOREVER));
    fy_memory_stats_t before = ts_memory(ctx->device, NULL);
    assert_true(before.cached >= UINT64_C(70) << 20);
    uint64_t released = 0;
    ts_ok(fy_memory_trim(ctx->device, before.reserved, &released));
    assert_int_equal(released, 0); /* already below */
    ts_ok(fy_memory_trim(ctx->device, 0, &released));
    fy_memory_stats_t after = ts_memory(ctx->device, NULL);
    expect_equations(&after);
    assert_int_equal(after.reserved, before.reserved - released);
    assert_true(released >= UINT64_C(70) << 20);
    assert_int_equal(after.live, before.live); /* bytes in use stay */
    ts_ok(fy_fill(b, 3));
    unsigned char bytes[1000];
    ts_read(b, bytes, sizeof bytes);
    assert_int_equal(bytes[999], 3);
    fy_tensor_destroy(b);
    ts_ok(fy_device_wait(ctx->device, FY_FOREVER));
    ts_ok(fy_memory_trim(ctx->device, 0, NULL));
    fy_memory_stats_t empty = ts_memory(ctx->device, NULL);
    if (!ctx->is_host) assert_int_equal(empty.reserved, empty.live);
    ts_fails(fy_memory_trim(NULL, 0, NULL), INVALID_ARGUMENT);
}

TS_DEVICE_TEST(figures_by_scope_path)
{
    (void)ts_bytes(ctx->device, 100);
    fy_scope_t scope = fy_scope_begin("part");
    (void)ts_bytes(ctx->device, 2000);
    fy_scope_t inner = fy_scope_begin("inner");
    (void)ts_bytes(ctx->device, 30000);
    fy_tensor_t *kept = ts_bytes(ctx->device, 5);
    assert_int_equal(ts_memory(ctx->device, "test/part").requested, 32005);
    assert_int_equal(ts_memory(ctx->device, "test/part/inner").requested, 30005);
    assert_int_equal(ts_memory(ctx->device, "test/elsewhere").requested, 0);
    fy_tensor_keep(kept);
    fy_scope_end(inner, 0, NULL);
    /* made in that scope, still alive */
    assert_int_equal(ts_memory(ctx->device, "test/part/inner").requested, 5);
    fy_tensor_destroy(kept);
    assert_int_equal(ts_memory(ctx->device, "test/part").requested, 2000);
    fy_scope_end(scope, 0, NULL);
    assert_int_equal(ts_memory(ctx->device, "test/part").live, 0);
}

/* While no other thread works on it, the cheap peek returns the same values. */
TS_DEVICE_TEST(a_peek_equals_a_query)
{
    fy_tensor_t *tensors[20];
    for (int i = 0; i < 60; i++) {
        fy_memory_stats_t peek = FY_MEMORY_STATS_INIT;
        if (i < 20)
            ts_ok(
                fy_tensor_create(ctx->device, FY_DTYPE_U8, FY_DIMS(40000 + i * 9000), &tensors[i]));
        else if (i < 40)
            ts_ok(fy_fill(tensors[i - 20], 1));
        else
            fy_tensor_destroy(tensors[i - 40]);
        if (i == 50) ts_ok(fy_memory_trim(ctx->device, 0, NULL));
        const fy_memory_stats_t query = ts_memory(ctx->device, NULL);
        ts_ok(fy_memory_peek(ctx->device, &peek));
        assert_int_equal(peek.pending, 0);
        assert_int_equal(peek.largest_free, 0);
        assert_int_equal(peek.live + peek.cached, query.live + query.cached);
        assert_int_equal(peek.reserved, query.reserved);
        assert_int_equal(peek.peak_live, query.peak_live);
        assert_int_equal(peek.peak_reserved, query.peak_reserved);
        assert_int_equal(peek.device_allocs, query.device_allocs);
        assert_int_equal(peek.limit, query.limit);
        assert_memory_equal(peek.peak_by_category, query.peak_by_category,
                            sizeof query.peak_by_category);
        if (ctx->is_host) continue; /* cached blocks of the host's threads count as live */
        assert_int_equal(peek.live, query.live);
        assert_int_equal(peek.requested, query.requested);
        assert_memory_equal(peek.by_category, query.by_category, sizeof query.by_category);
    }
}

static fy_memory_alloc_stats_t alloc_stats_of(const fy_device_t *device)
{
    fy_memory_alloc_stats_t stats = FY_MEMORY_ALLOC_STATS_INIT;
    ts_ok(fy_memory_query_alloc_stats(device, &stats));
    return stats;
}

static uint64_t served(const fy_memory_alloc_stats_t *stats)
{
    return stats->thread_cached + stats->ready + stats->same_stream + stats->joined +
           stats->inserted_wait + stats->grown + stats->after_pressure + stats->grown_after_trim +
           stats->after_sync + stats->grown_after_sync;
}

TS_DEVICE_TEST(every_request_counts_at_one_stage)
{
    const fy_memory_alloc_stats_t before = alloc_stats_of(ctx->device);
    const uint64_t allocs = ts_memory(ctx->device, NULL).device_allocs;
    uint64_t made = 0;
    (void)ts_bytes(ctx->device, INT64_C(90) << 20);
    made++;
    const fy_memory_alloc_stats_t grown = alloc_stats_of(ctx->device);
    if (!ctx->is_host) assert_int_equal(grown.grown, before.grown + 1);
    assert_int_equal(ts_memory(ctx->device, NULL).device_allocs - allocs,
                     grown.grown - before.grown);
    for (int i = 0; i < 50; i++) {
        fy_tensor_t *tensor = ts_bytes(ctx->device, 50000);
        made++;
        if (i % 3 == 0) ts_ok(fy_fill(tensor, 1));
        if (i % 2) fy_tensor_destroy(tensor);
    }
    const fy_memory_alloc_stats_t after = alloc_stats_of(ctx->device);
    assert_int_equal(served(&after) - served(&before), made);
    assert_int_equal(after.verdicts, before.verdicts);
}

/* The most bytes that were live at once under each path, in every order and whichever thread
 * destroyed them. */
TS_DEVICE_TEST(each_path_has_its_peak)
{
    enum { PATHS = 4, MOST = 30 };
    static const char *const paths[PATHS] = { "test/outer", "test/outer/a", "test/outer/a/deep",
                                              "test/outer/b" };
    struct {
        fy_tensor_t *tensor;
        uint64_t nbytes;
        int under[PATHS];
    } held[MOST];
    uint64_t live[PATHS] = { 0 }, peak[PATHS] = { 0 }, state = 1;
    int nheld = 0;
    fy_scope_t outer = fy_scope_begin("outer");
    for (int step = 0; step < 400; step++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        const uint64_t what = state >> 33;
        if (nheld == MOST || (nheld && what % 3 == 0)) {
            const int i = (int)(what / 3 % (uint64_t)nheld);
            fy_tensor_destroy(held[i].tensor);
            for (int p = 0; p < PATHS; p++) live[p] -= held[i].under[p] ? held[i].nbytes : 0;
            held[i] = held[--nheld];
        } else {
            const int where = (int)(what / 3 % 4); /* outer, outer/a, outer/a/deep, outer/b */
            fy_scope_t scopes[2] = { { 0, 0 }, { 0, 0 } };
            if (where) scopes[0] = fy_scope_begin(where == 3 ? "b" : "a");
            if (where == 2) scopes[1] = fy_scope_begin("deep");
            const uint64_t before = ts_memory(ctx->device, NULL).live;
            ts_ok(fy_tensor_create(ctx->device, FY_DTYPE_U8, FY_DIMS((int64_t)(what % 5000) + 1),
                                   &held[nheld].tensor));
            fy_tensor_keep(held[nheld].tensor);
            held[nheld].nbytes = ts_memory(ctx->device, NULL).live - before;
            for (int p = 0; p < PATHS; p++) {
                held[nheld].under[p] = p == 0 || p == where || (p == 1 && where == 2);
                live[p] += held[nheld].under[p] ? held[nheld].nbytes : 0;
                if (live[p] > peak[p]) peak[p] = live[p];
            }
            nheld++;
            if (where == 2) fy_scope_end(scopes[1], 0, NULL);
            if (where) fy_scope_end(scopes[0], 0, NULL);
        }
        for (int p = 0; p < PATHS; p++) {
            const fy_memory_stats_t stats = ts_memory(ctx->device, paths[p]);
            assert_int_equal(stats.live, live[p]);
            assert_int_equal(stats.peak_live, peak[p]);
        }
    }
    while (nheld) fy_tensor_destroy(held[--nheld].tensor);
    fy_scope_end(outer, 0, NULL);
    for (int p = 0; p < PATHS; p++)
        assert_int_equal(ts_memory(ctx->device, paths[p]).peak_live, peak[p]);
}

/* A new device in the place of a closed one starts with peaks of 0. */
TS_DEVICE_TEST(a_new_device_has_no_old_peaks)
{
    assert_int_equal(ts_memory(ctx->device, "test/outer").peak_live, 0);
    assert_int_equal(ts_memory(ctx->device, "test/past").peak_live, 0);
    fy_scope_t past = fy_scope_begin("past");
    (void)ts_bytes(ctx->device, 1000);
    assert_true(ts_memory(ctx->device, "test/past").peak_live >= 1000);
    fy_scope_end(past, 0, NULL);
}

TS_DEVICE_TEST(invalid_queries_are_refused)
{
    fy_memory_stats_t stats = FY_MEMORY_STATS_INIT, unset = { 0 };
    ts_fails(fy_memory_query(NULL, NULL, &stats), INVALID_ARGUMENT);
    ts_fails(fy_memory_query(ctx->device, NULL, NULL), INVALID_ARGUMENT);
    ts_fails(fy_memory_query(ctx->device, NULL, &unset), INVALID_ARGUMENT);
    ts_fails(fy_memory_query_pinned(NULL, &stats), INVALID_ARGUMENT);
    ts_fails(fy_memory_peek(NULL, &stats), INVALID_ARGUMENT);
    ts_fails(fy_memory_peek(ctx->device, &unset), INVALID_ARGUMENT);
    fy_memory_alloc_stats_t alloc = FY_MEMORY_ALLOC_STATS_INIT, no_size = { 0 };
    ts_fails(fy_memory_query_alloc_stats(NULL, &alloc), INVALID_ARGUMENT);
    ts_fails(fy_memory_query_alloc_stats(ctx->device, NULL), INVALID_ARGUMENT);
    ts_fails(fy_memory_query_alloc_stats(ctx->device, &no_size), INVALID_ARGUMENT);
    const char *allocator = fy_memory_host_allocator();
    assert_true(strcmp(allocator, "jemalloc") == 0 || strcmp(allocator, "mmap") == 0);
}

static const ts_exclusion_t k_exclusions[] = {
    { "host", "figures_by_scope_path",
      "host bytes are not accounted by path: making a small host tensor takes no atomics" },
    { "host", "each_path_has_its_peak", "the same" },
    { "host", "a_new_device_has_no_old_peaks", "the same" },
    { NULL, NULL, NULL },
};

TS_SUITE(.exclusions = k_exclusions);
