/* Graphs with failures: memory runs out or is refused at every allocation of a recording, each
 * launch of a replay is refused, the device is lost. After each failure nothing leaks, and
 * everything else continues.
 * Host memory fails through wrapped allocator calls (tests.cmake). Not here: the pool
 * (test_memory.c). */
#include "tests/support/harness.h"
#include "tests/support/host_memory.h"

/* ---- one recording ---- */

enum { N = 100000 }; /* 400 kB a tensor: each has a separate segment */

static fy_device_t *open_spec(const char *spec)
{
    fy_device_t *device;
    ts_ok(fy_device_open(spec, &device));
    return device;
}

static fy_device_t *open_faulty(const char *format, int n)
{
    char spec[64];
    snprintf(spec, sizeof spec, format, n);
    return open_spec(spec);
}

/* Checks that nothing is left in the device. */
static void end(fy_device_t *device, fy_scope_t scope)
{
    fy_scope_end(scope, 0, NULL);
    assert_int_equal(ts_live(device), 0);
    fy_device_close(device);
}

/* y += tanh(x) + ..., with `nkept` results that stay. Returns the first failure; the end's must be
 * the same. */
static fy_status_t record(fy_device_t *device, fy_tensor_t *x, fy_tensor_t *y, int nkept,
                          fy_graph_t **out_graph)
{
    fy_tensor_t *t = NULL;
    *out_graph = NULL;
    fy_status_t status = fy_graph_begin(device), end;
    if (status != FY_STATUS_OK) return status;
    for (int i = 0; i < nkept && status == FY_STATUS_OK; i++) status = fy_affine(x, 1, i, &t);
    if (status == FY_STATUS_OK) status = fy_axpy(y, 1, t);
    end = fy_graph_end(out_graph);
    if (status == FY_STATUS_OK) return end; /* it may fail too */
    assert_int_equal(end, status);
    assert_null(*out_graph);
    return status;
}

static void expect_goes_on(fy_device_t *device)
{
    fy_tensor_t *x = ts_iota(device, FY_DIMS(3), 1), *y;
    ts_ok(fy_mul(x, x, &y));
    ts_expect_f32(y, (float[]){ 1, 4, 9 }, 3);
    fy_tensor_destroy(x);
    fy_tensor_destroy(y);
}

TS_TEST(the_limit_is_reached)
{
    fy_device_t *device = open_spec("sim:7?limit=3MiB");
    fy_scope_t scope = fy_scope_begin("limit"), inner;
    fy_tensor_t *x, *y;
    fy_graph_t *graph;
    ts_ok(fy_zeros(device, FY_DTYPE_F32, FY_DIMS(N), &x));
    ts_ok(fy_zeros(device, FY_DTYPE_F32, FY_DIMS(N), &y));
    const uint64_t live = ts_live(device);
    inner = fy_scope_begin("recording");
    ts_fails_with(record(device, x, y, 10, &graph), OUT_OF_MEMORY, "sim:7");
    assert_non_null(fy_error_get()->oom);
    assert_int_equal(fy_error_get()->oom->limit, 3 << 20); /* the device's verdict */
    assert_int_equal(fy_error_get()->oom->reason, FY_OOM_LIMIT);
    fy_scope_end(inner, 0, NULL);
    assert_int_equal(ts_live(device), live);
    ts_ok(record(device, x, y, 4, &graph));
    fy_graph_info_t info = FY_GRAPH_INFO_INIT;
    fy_memory_stats_t memory = FY_MEMORY_STATS_INIT;
    ts_ok(fy_graph_query(graph, &info));
    ts_ok(fy_memory_query(device, NULL, &memory));
    assert_true(memory.live >=
                live + info.pool_nbytes); /* a graph's memory counts as the device's */
    assert_true(memory.reserved <= 3 << 20);
    fy_tensor_t *big = x;
    /* the graph holds the bytes */
    ts_fails(fy_tensor_create(device, FY_DTYPE_U8, FY_DIMS(2 << 20), &big), OUT_OF_MEMORY);
    fy_graph_destroy(graph);
    end(device, scope);
}

TS_TEST(every_segment_fails_once)
{
    for (int n = 1, done = 0; !done; n++) {
        assert_in_range(n, 1, 20);
        fy_device_t *device = open_faulty("sim:7?faults=alloc@%d", n);
        fy_scope_t scope = fy_scope_begin("once");
        fy_tensor_t *x = NULL, *y = NULL;
        fy_graph_t *graph = NULL;
        /* 32 MiB: separate segments */
        fy_status_t status = fy_zeros(device, FY_DTYPE_F32, FY_DIMS(8 << 20), &x);
        if (status == FY_STATUS_OK) status = fy_zeros(device, FY_DTYPE_F32, FY_DIMS(8 << 20), &y);
        if (status == FY_STATUS_OK) status = record(device, x, y, 4, &graph);
        if (status == FY_STATUS_OK)
            done = n > 5;
        else
            assert_int_equal(status, FY_STATUS_OUT_OF_MEMORY);
        if (graph) ts_ok(fy_graph_replay(graph, NULL));
        expect_goes_on(device);
        end(device, scope);
    }
}

TS_TEST(a_guard_refuses_the_segment)
{
    fy_device_t *device = open_spec("sim:7");
    fy_scope_t scope = fy_scope_begin("guarded");
    fy_tensor_t *x = ts_iota(device, FY_DIMS(4), 0), *y = ts_iota(device, FY_DIMS(4), 0);
    fy_graph_t *graph;
    fy_guard_options_t guard = FY_GUARD_OPTIONS_INIT;
    guard.memory_nbytes = 4096;
    ts_ok(fy_scope_guard(&guard));
    ts_ok(record(device, x, y, 1, &graph)); /* a small piece fits if the usual one does not */
    fy_graph_destroy(graph);
    fy_tensor_t *wide, *row;
    ts_ok(fy_slice(x, 0, 0, 1, &row));
    ts_ok(fy_broadcast(row, FY_DIMS(N), &wide));
    ts_ok(fy_graph_begin(device));
    fy_tensor_t *t = x;
    ts_fails(fy_neg(wide, &t), REFUSED_BY_GUARD);
    assert_null(t);
    ts_fails_with(fy_graph_end(&graph), REFUSED_BY_GUARD, "guarded");
    end(device, scope);
}

static void host_memory_fails(const char *spec)
{
    fy_device_t *device = open_spec(spec);
    const uint64_t live = ts_live(device);
    for (int n = 0, done = 0; !done; n++) {
        assert_in_range(n, 0, 2000);
        fy_scope_t scope = fy_scope_begin("once");
        fy_tensor_t *x = ts_iota(device, FY_DIMS(4), 1), *y = ts_iota(device, FY_DIMS(4), 0),
                    *many[40], *all = NULL;
        fy_graph_t *graph = NULL;
        ts_fail_allocation(n);
        fy_status_t status = fy_graph_begin(device);
        const int begun = status == FY_STATUS_OK;
        for (int i = 0; i < 40 && status == FY_STATUS_OK; i++)
            status = fy_affine(x, 1, i, &many[i]);
        if (status == FY_STATUS_OK) status = fy_concat(40, many, 0, &all);
        if (status == FY_STATUS_OK) status = fy_axpy(y, 1, many[3]);
        if (begun) {
            const fy_status_t end = fy_graph_end(&graph);
            if (status == FY_STATUS_OK) status = end;
        }
        done = !ts_allocation_failed();
        ts_fail_allocation(-1);
        if (status != FY_STATUS_OK) assert_int_equal(status, FY_STATUS_OUT_OF_MEMORY);
        assert_true((graph != NULL) == (status == FY_STATUS_OK));
        if (graph) {
            ts_ok(fy_graph_replay(graph, NULL));
            ts_expect_f32(y, (float[]){ 4, 6, 8, 10 }, 4);
        }
        expect_goes_on(device);
        fy_scope_end(scope, 0, NULL);
        assert_int_equal(ts_live(device), live);
    }
    fy_device_close(device);
}

/* ---- replays ---- */

static fy_status_t download(const fy_tensor_t *tensor)
{
    fy_download_t *download;
    fy_tensor_t *host;
    FY_TRY(fy_tensor_download(tensor, NULL, &download));
    return fy_download_wait(download, FY_FOREVER, &host);
}

/* x of 2s, y of 1s; t = -(-x) and y += 10 x, recorded. */
static fy_graph_t *record_three(fy_device_t *device, fy_tensor_t **x, fy_tensor_t **y,
                                fy_tensor_t **t)
{
    fy_graph_t *graph;
    ts_ok(fy_full(device, FY_DTYPE_F32, FY_DIMS(3), 2, x));
    ts_ok(fy_full(device, FY_DTYPE_F32, FY_DIMS(3), 1, y));
    ts_ok(fy_graph_begin(device));
    ts_ok(fy_neg(*x, t));
    ts_ok(fy_axpy(*y, 10, *x));
    ts_ok(fy_neg(*t, t));
    ts_ok(fy_graph_end(&graph));
    return graph;
}

/* A replay of three launches whose k-th is refused: a refused first launch changes nothing, a later
 * one poisons the graph's results. */
TS_TEST(a_launch_is_refused_half_way)
{
    for (int k = 1; k <= 3; k++) {
        fy_device_t *device =
            open_faulty("sim:7?faults=launch@%d&fuse=off", 2 + k); /* two make x and y */
        fy_scope_t scope = fy_scope_begin("half");
        fy_tensor_t *x, *y, *t;
        fy_graph_t *graph = record_three(device, &x, &y, &t);
        const uint64_t requests = ts_ledger(NULL).requests, version = ts_version(y);
        fy_ticket_t ticket = { 1, 1 };
        ts_fails(fy_graph_replay(graph, &ticket), INTERNAL);
        assert_int_equal(ticket.stream, 0);
        assert_int_equal(ts_ledger(NULL).requests, requests);
        if (k == 1) {
            assert_int_equal(ts_version(y), version);
            ts_expect_f32(y, (float[]){ 1, 1, 1 }, 3);
        } else {
            assert_int_equal(ts_version(y), version + 1);
            ts_fails_with(download(y), INTERNAL, "replay");
            ts_ok(fy_fill(y, 1));
        }
        ts_ok(fy_graph_replay(graph, NULL));
        ts_expect_f32(y, (float[]){ 21, 21, 21 }, 3);
        ts_expect_f32(t, (float[]){ 2, 2, 2 }, 3);
        end(device, scope);
    }
}

/* The same with two chains around a product: a chain is one launch, and fails as a whole. */
TS_TEST(a_chain_is_refused)
{
    for (int k = 1; k <= 3; k++) {
        fy_device_t *device = open_faulty("sim:7?faults=launch@%d", 2 + k); /* two make x and y */
        fy_scope_t scope = fy_scope_begin("chain");
        fy_tensor_t *x, *y, *t, *u;
        fy_graph_t *graph;
        fy_graph_info_t info = FY_GRAPH_INFO_INIT;
        ts_ok(fy_full(device, FY_DTYPE_F32, FY_DIMS(2, 2), 2, &x));
        ts_ok(fy_full(device, FY_DTYPE_F32, FY_DIMS(2, 2), 1, &y));
        ts_ok(fy_graph_begin(device));
        ts_ok(fy_neg(x, &t));
        ts_ok(fy_mul(t, t, &t));    /* 4 */
        ts_ok(fy_matmul(t, t, &t)); /* 32 */
        ts_ok(fy_affine(t, 1, 1, &u));
        ts_ok(fy_axpy(y, 1, u));
        ts_ok(fy_graph_end(&graph));
        ts_ok(fy_graph_query(graph, &info));
        assert_int_equal(info.chains, 2);
        assert_int_equal(info.fused_calls, 4);
        ts_fails(fy_graph_replay(graph, NULL), INTERNAL);
        if (k == 1) {
            ts_expect_f32(y, (float[]){ 1, 1, 1, 1 }, 4);
        } else {
            ts_fails_with(download(y), INTERNAL, "replay");
            ts_ok(fy_fill(y, 1));
        }
        ts_ok(fy_graph_replay(graph, NULL));
        ts_expect_f32(y, (float[]){ 34, 34, 34, 34 }, 4);
        ts_ok(fy_graph_replay(graph, NULL));
        ts_expect_f32(y, (float[]){ 67, 67, 67, 67 }, 4);
        end(device, scope);
    }
}

/* A recorded upload fails when it runs: dependent results fail with that status, and the next
 * replay is good. */
TS_TEST(a_copy_fails_on_its_way)
{
    fy_device_t *device = open_spec("sim:7?faults=copy@1");
    fy_scope_t scope = fy_scope_begin("copy");
    fy_transfer_options_t borrow = FY_TRANSFER_OPTIONS_INIT;
    borrow.contract = FY_HOST_BORROW;
    fy_tensor_t *source, *x, *y, *beside;
    fy_graph_t *graph;
    fy_ticket_t ticket;
    float *data;
    ts_ok(fy_tensor_create_pinned(device, FY_DTYPE_F32, FY_DIMS(3), &source));
    ts_ok(fy_tensor_map(source, FY_ACCESS_WRITE, (void **)&data));
    for (int i = 0; i < 3; i++) data[i] = (float)i;
    ts_ok(fy_full(device, FY_DTYPE_F32, FY_DIMS(3), 2, &x));
    ts_ok(fy_graph_begin(device));
    ts_ok(fy_neg(x, &beside));
    ts_ok(fy_tensor_upload_into(x, source, &borrow, &ticket));
    ts_ok(fy_neg(x, &y));
    ts_ok(fy_graph_end(&graph));
    ts_ok(fy_graph_replay(graph, &ticket));
    ts_fails(fy_ticket_wait(ticket, FY_FOREVER), IO);
    ts_fails_with(download(y), IO, "upload");
    ts_expect_f32(beside, (float[]){ -2, -2, -2 }, 3);
    ts_ok(fy_graph_replay(graph, NULL));
    ts_expect_f32(y, (float[]){ -0.0f, -1, -2 }, 3);
    fy_scope_end(scope, 0, NULL);
    fy_device_close(device);
}

TS_TEST(the_device_is_lost)
{
    for (int k = 1; k <= 3; k++) {
        fy_device_t *device =
            open_faulty("sim:7?faults=lost@%d&fuse=off", 2 + k); /* two make x and y */
        fy_scope_t scope = fy_scope_begin("lost");
        fy_tensor_t *x, *y, *t;
        fy_graph_t *graph = record_three(device, &x, &y, &t);
        ts_fails(fy_graph_replay(graph, NULL), DEVICE_LOST);
        ts_fails(fy_graph_replay(graph, NULL), DEVICE_LOST); /* at once */
        ts_fails(fy_graph_begin(device), DEVICE_LOST);
        if (k == 2) fy_graph_destroy(graph);
        fy_scope_end(scope, 0, NULL);
        fy_device_close(device);
    }
}

TS_TEST(host_memory_fails_at_each_place_on_the_host) { host_memory_fails("host"); }

TS_TEST(host_memory_fails_at_each_place_on_sim) { host_memory_fails("sim:7"); }
