/* Prefetch: batches arrive in order and complete, and no thread waits for the device. A failure is
 * reported to the caller that requests the batch. Guards and figures are those of the scope that
 * created the prefetch. It can be destroyed at any time. Each test runs with a thread and
 * without. */
#include <math.h>
#include <unistd.h>

#include "tests/support/harness.h"

enum { ROWS = 6, COLUMNS = 5 };
static const fy_batch_spec_t specs[2] = { { FY_DTYPE_F32, 2, { ROWS, COLUMNS } },
                                          { FY_DTYPE_I32, 1, { ROWS } } };

/* The plan of `fill` (static: its thread may outlive a test that fails): `nbatches`
 * batches, the last with `last_rows` rows; element = batch, label = row. */
typedef struct source {
    /* indices of batches that fail, with an error record and without; 0: none */
    uint64_t nbatches, fails_at, silent_at;
    /* bad_rows: the number of rows that fill returns for batch fails_at, instead of failing */
    int64_t last_rows, bad_rows;
    fy_tensor_t *uses;    /* a tensor of the scope, read in each call */
    fy_prefetch_t **asks; /* requests a batch while filling one */
    _Atomic int ncalls;
    uint64_t expected; /* the next index */
    int out_of_order;
} source_t;
static source_t source;

static fy_status_t fill(void *user, fy_batch_t *batch)
{
    source_t *plan = user;
    float *values;
    int32_t *labels;
    fy_tensor_t *left_behind;
    plan->ncalls++;
    plan->out_of_order |= batch->index != plan->expected++ || batch->count != 2 ||
                          batch->rows != ROWS || batch->is_end;
    if (batch->index == plan->nbatches) {
        batch->is_end = 1;
        return FY_STATUS_OK;
    }
    if (plan->fails_at && batch->index == plan->fails_at && !plan->bad_rows)
        return fy_error_set(FY_STATUS_IO, __FILE__, __LINE__, "no batch %d today",
                            (int)batch->index);
    if (plan->silent_at && batch->index == plan->silent_at) return FY_STATUS_CORRUPT_DATA;
    /* its scope ended before fill ran */
    if (plan->uses && ts_info(plan->uses).device == NULL) plan->out_of_order = 1;
    if (plan->asks) {
        fy_tensor_t *tensors[2];
        int64_t rows;
        plan->out_of_order |= fy_prefetch_next(*plan->asks, tensors, &rows) !=
                              FY_STATUS_INVALID_ARGUMENT;
    }
    /* belongs to the scope of the prefetch */
    FY_TRY(fy_full(fy_device_host(), FY_DTYPE_F32, FY_DIMS(100), 0, &left_behind));
    FY_TRY(fy_tensor_map(batch->host[0], FY_ACCESS_WRITE, (void **)&values));
    FY_TRY(fy_tensor_map(batch->host[1], FY_ACCESS_WRITE, (void **)&labels));
    for (int i = 0; i < ROWS * COLUMNS; i++) values[i] = (float)batch->index;
    for (int i = 0; i < ROWS; i++) labels[i] = (int32_t)(10 * batch->index) + i;
    if (batch->index + 1 == plan->nbatches && plan->last_rows) batch->rows = plan->last_rows;
    if (plan->bad_rows && batch->index == plan->fails_at) batch->rows = plan->bad_rows - 1;
    return FY_STATUS_OK;
}

static fy_prefetch_t *make(ts_ctx_t *ctx, source_t *plan, int depth, int threads)
{
    fy_prefetch_options_t options = FY_PREFETCH_OPTIONS_INIT;
    fy_prefetch_t *prefetch;
    options.depth = depth;
    options.threads = threads;
    ts_ok(fy_prefetch_create(ctx->device, 2, specs, fill, plan, &options, &prefetch));
    return prefetch;
}

static void expect_end(fy_prefetch_t *prefetch)
{
    fy_tensor_t *tensors[2] = { (fy_tensor_t *)&prefetch, (fy_tensor_t *)&prefetch };
    int64_t rows = 7;
    ts_ok(fy_prefetch_next(prefetch, tensors, &rows));
    assert_int_equal(rows, 0);
    assert_null(tensors[0]);
    assert_null(tensors[1]);
}

static void expect_batch(fy_prefetch_t *prefetch, uint64_t index, int64_t want_rows)
{
    fy_tensor_t *tensors[2];
    int64_t rows;
    float values[ROWS * COLUMNS];
    int32_t labels[ROWS];
    ts_ok(fy_prefetch_next(prefetch, tensors, &rows));
    assert_int_equal(rows, want_rows);
    assert_int_equal(ts_info(tensors[0]).dims[0], rows);
    assert_int_equal(ts_info(tensors[1]).dims[0], rows);
    ts_read(tensors[0], values, (size_t)rows * COLUMNS * 4);
    ts_read(tensors[1], labels, (size_t)rows * 4);
    for (int64_t i = 0; i < rows * COLUMNS; i++) assert_true(values[i] == (float)index);
    for (int64_t i = 0; i < rows; i++) assert_int_equal(labels[i], (int32_t)(10 * index) + i);
}

TS_DEVICE_TEST(batches_in_order)
{
    static const int depths[] = { 1, 2, 5, 64 };
    for (int threads = 0; threads < 2; threads++)
        for (size_t d = 0; d < sizeof depths / sizeof *depths; d++)
            for (int64_t last = 1; last <= ROWS; last += ROWS - 1) {
                source = (source_t){ .nbatches = 11, .last_rows = last };
                fy_prefetch_t *prefetch = make(ctx, &source, depths[d], threads);
                for (uint64_t i = 0; i < 11; i++) expect_batch(prefetch, i, i == 10 ? last : ROWS);
                expect_end(prefetch);
                expect_end(prefetch);
                assert_int_equal(source.ncalls, 12); /* after the end fill is not called again */
                assert_false(source.out_of_order);
                fy_prefetch_destroy(prefetch);
            }
    for (int threads = 0; threads < 2; threads++) {
        source = (source_t){ .nbatches = 0 };
        fy_prefetch_t *prefetch = make(ctx, &source, 2, threads);
        expect_end(prefetch);
        fy_prefetch_destroy(prefetch);
    }
}

/* The host submits many steps without waiting; every step sees its own complete batch. */
TS_DEVICE_TEST(a_host_far_ahead_sees_whole_batches)
{
    enum { N = 40 };
    for (int threads = 0; threads < 2; threads++) {
        source = (source_t){ .nbatches = N };
        fy_prefetch_t *prefetch = make(ctx, &source, 2, threads);
        fy_tensor_t *tensors[2], *sums[N];
        int64_t rows;
        for (int i = 0; i < N; i++) {
            ts_ok(fy_prefetch_next(prefetch, tensors, &rows));
            /* the caller may write the batch: times 8 */
            for (int k = 0; k < 3; k++) ts_ok(fy_axpy(tensors[0], 1, tensors[0]));
            ts_ok(fy_sum(tensors[0], FY_ALL_AXES, 0, &sums[i]));
        }
        for (int i = 0; i < N; i++)
            ts_expect_f32(sums[i], &(float){ (float)(8 * i * ROWS * COLUMNS) }, 1);
        fy_prefetch_destroy(prefetch);
    }
}

/* No allocation, no sync, two uploads a batch. */
TS_DEVICE_TEST(a_steady_loop)
{
    for (int threads = 0; threads < 2; threads++) {
        source = (source_t){ .nbatches = 60 };
        fy_prefetch_t *prefetch = make(ctx, &source, 3, threads);
        fy_tensor_t *tensors[2];
        int64_t rows;
        for (int i = 0; i < 20; i++) ts_ok(fy_prefetch_next(prefetch, tensors, &rows));
        const fy_ledger_totals_t before = ts_ledger(NULL);
        const fy_memory_stats_t first = ts_memory(ctx->device, NULL);
        for (int i = 20; i < 60; i++) ts_ok(fy_prefetch_next(prefetch, tensors, &rows));
        expect_end(prefetch); /* the thread has ended */
        const fy_ledger_totals_t after = ts_ledger(NULL);
        const fy_memory_stats_t second = ts_memory(ctx->device, NULL);
        assert_int_equal(after.device_allocs, before.device_allocs);
        assert_int_equal(after.syncs, before.syncs);
        assert_true(after.upload.count - before.upload.count >= 2 * (40 - 4) &&
                    after.upload.count - before.upload.count <= 2 * 40);
        if (!ctx->is_host) {
            assert_int_equal(second.live, first.live);
            assert_int_equal(second.reserved, first.reserved);
        }
        fy_prefetch_destroy(prefetch);
    }
}

/* A batch that fails makes one call fail, with the reason, on the thread that requests it. */
TS_DEVICE_TEST(failures_of_fill)
{
    fy_tensor_t *tensors[2];
    int64_t rows;
    for (int threads = 0; threads < 2; threads++) {
        source = (source_t){ .nbatches = 9, .fails_at = 3, .silent_at = 5 };
        fy_prefetch_t *prefetch = make(ctx, &source, 2, threads);
        for (uint64_t i = 0; i < 9; i++) {
            if (i == 3) {
                ts_fails_with(fy_prefetch_next(prefetch, tensors, &rows), IO, "no batch 3 today");
                assert_int_equal(rows, 0);
                assert_null(tensors[0]);
            } else if (i == 5) {
                ts_fails_with(fy_prefetch_next(prefetch, tensors, &rows), CORRUPT_DATA, "batch 5",
                              "fy_error_set");
            } else
                expect_batch(prefetch, i, ROWS);
        }
        expect_end(prefetch);
        fy_prefetch_destroy(prefetch);
        for (int64_t bad = 0; bad <= ROWS + 1; bad += ROWS + 1) { /* invalid numbers of rows */
            source = (source_t){ .nbatches = 3, .fails_at = 1, .bad_rows = bad + 1 };
            prefetch = make(ctx, &source, 1, threads);
            expect_batch(prefetch, 0, ROWS);
            ts_fails_with(fy_prefetch_next(prefetch, tensors, &rows), INVALID_ARGUMENT, "1 to 6");
            expect_batch(prefetch, 2, ROWS);
            fy_prefetch_destroy(prefetch);
        }
    }
}

/* The guards of the creating scope hold on its thread. Without a thread, the guards of the
 * requesting scope hold. */
TS_DEVICE_TEST(guards_are_inherited)
{
    fy_tensor_t *tensors[2];
    int64_t rows;
    for (int threads = 0; threads < 2; threads++) {
        source = (source_t){ .nbatches = 9 };
        fy_scope_t scope = fy_scope_begin("load");
        ts_guard(upload_nbytes, 3 * (ROWS * COLUMNS * 4 + ROWS * 4) + 1); /* three batches */
        fy_prefetch_t *prefetch = make(ctx, &source, 2, threads);
        for (uint64_t i = 0; i < 3; i++) ts_ok(fy_prefetch_next(prefetch, tensors, &rows));
        ts_fails_with(fy_prefetch_next(prefetch, tensors, &rows), REFUSED_BY_GUARD, "test/load");
        fy_scope_end(scope, 0, NULL);
        const char *path = "test/load/prefetch";
        /* figures count there, with a thread or without */
        assert_true(ts_ledger(path).upload.count >= 6 * (uint64_t)(threads + 1));
    }
    /* with a thread the loop itself may forbid heavy requests */
    source = (source_t){ .nbatches = 4 };
    fy_prefetch_t *prefetch = make(ctx, &source, 1, 1);
    fy_scope_t scope = fy_scope_begin("light");
    ts_ok(fy_scope_guard(&(fy_guard_options_t)FY_GUARD_LIGHT_ONLY));
    for (uint64_t i = 0; i < 4; i++) ts_ok(fy_prefetch_next(prefetch, tensors, &rows));
    fy_scope_end(scope, 0, NULL);
    fy_prefetch_destroy(prefetch);
    ts_ok(fy_budget_set("upload=0/prefetch"));
    source.expected = 0;
    prefetch = make(ctx, &source, 1, 1);
    ts_fails_with(fy_prefetch_next(prefetch, tensors, &rows), REFUSED_BY_GUARD,
                  "upload=0/prefetch");
    ts_ok(fy_budget_set(NULL));
}

/* Destroyed at any moment, also while fill runs; with the scope, before its other tensors; or
 * later, if kept. */
TS_DEVICE_TEST(a_prefetch_can_be_destroyed_at_any_time)
{
    fy_tensor_t *tensors[2];
    int64_t rows;
    for (int threads = 0; threads < 2; threads++)
        for (int i = 0; i < 60; i++) {
            source = (source_t){ .nbatches = 50 };
            fy_scope_t scope = fy_scope_begin("loop");
            fy_tensor_t *made = ts_iota(ctx->device, FY_DIMS(3), 0);
            /* a kept prefetch outlives the scope and its tensors */
            if (i % 4 != 1) source.uses = made;
            fy_prefetch_t *prefetch = make(ctx, &source, 1 + i % 3, threads);
            for (int k = 0; k < i % 5; k++) ts_ok(fy_prefetch_next(prefetch, tensors, &rows));
            if (i % 4 == 0) fy_prefetch_destroy(prefetch);
            if (i % 4 == 1) fy_prefetch_keep(prefetch);
            fy_scope_end(scope, 0, NULL);
            if (i % 4 == 1) {
                ts_ok(fy_prefetch_next(prefetch, tensors, &rows));
                fy_prefetch_destroy(prefetch);
            }
            assert_false(source.out_of_order);
        }
    fy_prefetch_destroy(NULL);
    fy_prefetch_keep(NULL);
}

/* Without a thread, so that fill knows the handle. */
TS_DEVICE_TEST(calls_inside_fill)
{
    static fy_prefetch_t *prefetch;
    source = (source_t){ .nbatches = 4, .asks = &prefetch };
    prefetch = make(ctx, &source, 1, 0);
    for (uint64_t i = 0; i < 4; i++) expect_batch(prefetch, i, ROWS);
    assert_false(source.out_of_order);
}

TS_DEVICE_TEST(options)
{
    fy_prefetch_t *prefetch = (fy_prefetch_t *)&ctx;
    fy_prefetch_options_t unset = { 0 }, deep = FY_PREFETCH_OPTIONS_INIT,
                          many = FY_PREFETCH_OPTIONS_INIT;
    source = (source_t){ .nbatches = 1 };
    fy_batch_spec_t uneven[2] = { specs[0], specs[1] }, scalar = { FY_DTYPE_F32, 0, { 0 } },
                    empty = { FY_DTYPE_F32, 1, { 0 } };
    fy_tensor_t *tensors[2];
    int64_t rows;
    uneven[1].dims[0] = ROWS + 1;
    many.threads = 2;
    ts_fails(fy_prefetch_create(NULL, 2, specs, fill, &source, NULL, &prefetch), INVALID_ARGUMENT);
    assert_null(prefetch);
    ts_fails(fy_prefetch_create(ctx->device, 0, specs, fill, &source, NULL, &prefetch),
             INVALID_ARGUMENT);
    ts_fails(fy_prefetch_create(ctx->device, 2, NULL, fill, &source, NULL, &prefetch),
             INVALID_ARGUMENT);
    ts_fails(fy_prefetch_create(ctx->device, 2, specs, NULL, &source, NULL, &prefetch),
             INVALID_ARGUMENT);
    ts_fails(fy_prefetch_create(ctx->device, 2, specs, fill, &source, NULL, NULL),
             INVALID_ARGUMENT);
    ts_fails(fy_prefetch_create(ctx->device, 2, specs, fill, &source, &unset, &prefetch),
             INVALID_ARGUMENT);
    ts_fails(fy_prefetch_create(ctx->device, 2, specs, fill, &source, &many, &prefetch),
             INVALID_ARGUMENT);
    for (deep.depth = 0; deep.depth <= 65; deep.depth += 65)
        ts_fails_with(fy_prefetch_create(ctx->device, 2, specs, fill, &source, &deep, &prefetch),
                      INVALID_ARGUMENT, "1 to 64");
    ts_fails(fy_prefetch_create(ctx->device, 2, uneven, fill, &source, NULL, &prefetch),
             INVALID_ARGUMENT);
    ts_fails(fy_prefetch_create(ctx->device, 1, &scalar, fill, &source, NULL, &prefetch),
             INVALID_ARGUMENT);
    ts_fails(fy_prefetch_create(ctx->device, 1, &empty, fill, &source, NULL, &prefetch),
             INVALID_ARGUMENT);
    ts_fails(fy_prefetch_next(NULL, tensors, &rows), INVALID_ARGUMENT);
    prefetch = make(ctx, &source, 1, 1);
    ts_fails(fy_prefetch_next(prefetch, NULL, &rows), INVALID_ARGUMENT);
    ts_fails(fy_prefetch_next(prefetch, tensors, NULL), INVALID_ARGUMENT);
    expect_batch(prefetch, 0, ROWS); /* refused calls consumed no batch */
}

/* Not enough memory: no prefetch is made, and the device is unchanged. */
TS_DEVICE_TEST(without_memory_no_prefetch_is_made)
{
    fy_batch_spec_t large = { FY_DTYPE_F32, 2, { 1024, INT64_C(1) << 24 } };
    fy_prefetch_t *prefetch;
    source = (source_t){ .nbatches = 1 };
    const uint64_t live = ts_live(ctx->device);
    const fy_status_t status =
        fy_prefetch_create(ctx->device, 1, &large, fill, &source, NULL, &prefetch);
    assert_true(status == FY_STATUS_OUT_OF_MEMORY || status == FY_STATUS_PINNED_LIMIT);
    assert_null(prefetch);
    assert_int_equal(ts_live(ctx->device), live);
    assert_int_equal(source.ncalls, 0);
}

/* The child has no such thread: requesting a batch fails, destroying does not hang. */
TS_DEVICE_TEST(a_forked_child_is_refused)
{
    source = (source_t){ .nbatches = 4 };
    fy_prefetch_t *prefetch = make(ctx, &source, 1, 1);
    expect_batch(prefetch, 0, ROWS);
    const pid_t pid = ts_fork();
    if (pid == 0) {
        fy_tensor_t *tensors[2];
        int64_t rows;
        const fy_status_t status = fy_prefetch_next(prefetch, tensors, &rows);
        fy_prefetch_destroy(prefetch);
        _exit(status == FY_STATUS_UNAVAILABLE ? 0 : 1);
    }
    ts_child_ends(pid);
    expect_batch(prefetch, 1, ROWS);
}

/* A replay would show the recorded batch each time, so a graph cannot contain one. */
TS_DEVICE_TEST(a_recording_refuses_prefetch)
{
    source = (source_t){ .nbatches = 3 };
    for (int threads = 0; threads < 2; threads++) {
        source.expected = 0;
        fy_prefetch_t *prefetch = make(ctx, &source, 1, threads), *inner;
        fy_tensor_t *tensors[2];
        fy_graph_t *graph;
        int64_t rows;
        expect_batch(prefetch, 0, ROWS);
        ts_ok(fy_graph_begin(ctx->device));
        ts_fails(fy_prefetch_next(prefetch, tensors, &rows), UNSUPPORTED);
        ts_fails(fy_prefetch_create(ctx->device, 2, specs, fill, &source, NULL, &inner),
                 UNSUPPORTED);
        ts_fails(fy_graph_end(&graph), UNSUPPORTED);
        expect_batch(prefetch, 1, ROWS);
        fy_prefetch_destroy(prefetch);
    }
}

/* ---- simulated devices ---- */

/* A lost device fails the batches, with and without a thread, and no call hangs. */
TS_DEVICE_TEST(a_lost_device_fails_the_batches)
{
    for (int threads = 0; threads < 2; threads++)
        for (int depth = 1; depth < 4; depth++) {
            ts_ctx_t other = *ctx;
            source = (source_t){ .nbatches = 30 };
            fy_tensor_t *tensors[2];
            int64_t rows;
            int nlost = 0;
            ts_ok(fy_device_open("sim:9?faults=lost@20", &other.device));
            fy_prefetch_t *prefetch = make(&other, &source, depth, threads);
            for (int i = 0; i < 30; i++) {
                const fy_status_t status = fy_prefetch_next(prefetch, tensors, &rows);
                nlost += status == FY_STATUS_DEVICE_LOST;
                assert_true(status == FY_STATUS_DEVICE_LOST || (!nlost && status == FY_STATUS_OK));
            }
            assert_true(nlost >= 15);
            fy_prefetch_destroy(prefetch);
            fy_device_close(other.device);
        }
}

/* A copy that fails on the device poisons its batch and no other, also not the next one in the same
 * buffer, complete or not. */
TS_DEVICE_TEST(a_failed_copy_poisons_one_batch)
{
    for (int threads = 0; threads < 2; threads++) {
        ts_ctx_t other = *ctx;
        source = (source_t){ .nbatches = 5, .last_rows = 2 };
        fy_tensor_t *tensors[2], *sums[5];
        fy_download_t *download;
        int64_t rows;
        /* both tensors of batch 2, whose buffer batch 4 will use */
        ts_ok(fy_device_open("sim:9?faults=copy@5+copy@6", &other.device));
        fy_prefetch_t *prefetch = make(&other, &source, 1, threads);
        for (int i = 0; i < 5; i++) {
            ts_ok(fy_prefetch_next(prefetch, tensors, &rows));
            assert_int_equal(rows, i == 4 ? 2 : ROWS);
            ts_ok(fy_sum(tensors[0], FY_ALL_AXES, 0, &sums[i]));
        }
        for (int i = 0; i < 5; i++) {
            double value;
            ts_ok(fy_tensor_download(sums[i], NULL, &download));
            const fy_status_t status = fy_download_wait_f64(download, FY_FOREVER, &value);
            assert_int_equal(status == FY_STATUS_OK, i != 2);
            if (status != FY_STATUS_OK) fy_download_destroy(download);
            if (i != 2) assert_true(value == (double)(i * COLUMNS * (i == 4 ? 2 : ROWS)));
            fy_tensor_destroy(sums[i]);
        }
        fy_prefetch_destroy(prefetch);
        fy_device_close(other.device);
    }
}

/* Each allocation of the prefetch fails once: no prefetch is made, no memory leaks, and the next
 * attempt works. */
TS_DEVICE_TEST(no_memory_at_any_point)
{
    /* 64 MiB: each buffer is a separate segment */
    static const fy_batch_spec_t large = { FY_DTYPE_F32, 2, { 64, 1 << 18 } };
    fy_status_t status = FY_STATUS_INTERNAL;
    int nfailed = 0;
    for (int n = 1; n < 40 && status != FY_STATUS_OK; n++) {
        ts_ctx_t other = *ctx;
        char spec[64];
        fy_prefetch_t *prefetch;
        source = (source_t){ .nbatches = 3 };
        snprintf(spec, sizeof spec, "sim:9?faults=alloc@%d*", n);
        ts_ok(fy_device_open(spec, &other.device));
        status = fy_prefetch_create(other.device, 1, &large, fill, &source,
                                    &(fy_prefetch_options_t){ sizeof(fy_prefetch_options_t), 2, 0 },
                                    &prefetch);
        if (status != FY_STATUS_OK) {
            nfailed++;
            assert_int_equal(status, FY_STATUS_OUT_OF_MEMORY);
            assert_null(prefetch);
        } else
            fy_prefetch_destroy(prefetch);
        ts_ok(fy_device_wait(other.device, FY_FOREVER));
        assert_int_equal(ts_live(other.device), 0);
        fy_device_close(other.device);
    }
    assert_int_equal(status, FY_STATUS_OK);
    assert_int_equal(nfailed, 3);
}

static fy_status_t fill_large(void *user, fy_batch_t *batch)
{
    void *values;
    (void)user;
    FY_TRY(fy_tensor_map(batch->host[0], FY_ACCESS_WRITE, &values));
    return FY_STATUS_OK;
}

/* A step that loads its batch takes as long as one that has it, if computing takes longer than
 * loading. */
TS_DEVICE_TEST(loading_overlaps_with_computing)
{
    enum { N = 1024, STEPS = 50 };
    const fy_batch_spec_t spec = { FY_DTYPE_F32, 2, { 256, N } };
    fy_prefetch_options_t one = FY_PREFETCH_OPTIONS_INIT;
    fy_prefetch_t *prefetch;
    int64_t rows;
    double ns[2];
    one.threads = 0;
    fy_tensor_t *tensors[1], *weights = ts_full(ctx->device, FY_DIMS(N, N), 0),
                             *fixed = ts_full(ctx->device, FY_DIMS(256, N), 0);
    ts_ok(fy_prefetch_create(ctx->device, 1, &spec, fill_large, NULL, &one, &prefetch));
    for (int loads = 0; loads < 2; loads++) {
        double begin = 0;
        for (int step = 0; step < 10 + STEPS; step++) {
            fy_scope_t scope = fy_scope_begin("step");
            fy_tensor_t *x = fixed;
            if (step == 10) begin = (double)ts_clock(ctx->device).now_ns;
            if (loads) {
                ts_ok(fy_prefetch_next(prefetch, tensors, &rows));
                x = tensors[0];
            }
            for (int i = 0; i < 4; i++) ts_ok(fy_matmul(x, weights, &x));
            fy_scope_end(scope, 0, NULL);
        }
        ns[loads] = ((double)ts_clock(ctx->device).now_ns - begin) / STEPS;
    }
    print_message("           a step: %.0f ns, with loading %.0f ns (model)\n", ns[0], ns[1]);
    assert_true(ns[1] <= 1.02 * ns[0]);
    /* without overlap it would be longer: the upload alone takes this share of it */
    double begin = (double)ts_clock(ctx->device).now_ns;
    fy_tensor_t *host;
    fy_ticket_t ticket;
    ts_ok(fy_tensor_create_pinned(ctx->device, FY_DTYPE_F32, FY_DIMS(256, N), &host));
    ts_ok(fy_tensor_upload_into(fixed, host, &ts_borrow, &ticket));
    assert_true((double)ts_clock(ctx->device).now_ns - begin > 0.05 * ns[0]);
}

#define ONLY_SIM "needs a simulated device's faults or clock"
static const ts_exclusion_t k_exclusions[] = {
    { "!sim", "a_lost_device_fails_the_batches", ONLY_SIM },
    { "!sim", "a_failed_copy_poisons_one_batch", ONLY_SIM },
    { "!sim", "no_memory_at_any_point", ONLY_SIM },
    { "!sim", "loading_overlaps_with_computing", ONLY_SIM },
    { NULL, NULL, NULL },
};

TS_SUITE(.exclusions = k_exclusions);
