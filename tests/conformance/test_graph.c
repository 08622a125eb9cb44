/* Graphs: a replay gives the results of the calls, bit for bit, as one request that allocates
 * nothing. Also ownership and lifetimes, uploads inside graphs, faults of data in a replay.
 * Not here: refusals (test_graph_refusal.c), streams (tests/unit/ops/test_graph.c),
 * running out of memory (tests/faults/test_graph.c). */
#include "tests/support/harness.h"

enum { ROWS = 32, BATCH = 16, IN = 8, HIDDEN = 12 };

/* ---- a training step, as a user would write it ---- */

typedef struct model {
    fy_tensor_t *rng, *table, *labels, *w1, *w2, *loss;
} model_t;

static model_t make_model(fy_device_t *device)
{
    model_t m;
    fy_tensor_t *init;
    ts_ok(fy_rng_create(device, 7, &init));
    ts_ok(fy_randn(init, FY_DTYPE_F32, FY_DIMS(ROWS, IN), 0, 1, &m.table));
    ts_ok(fy_randn(init, FY_DTYPE_F32, FY_DIMS(ROWS, 1), 0, 1, &m.labels));
    ts_ok(fy_randn(init, FY_DTYPE_F32, FY_DIMS(IN, HIDDEN), 0, 0.3, &m.w1));
    ts_ok(fy_randn(init, FY_DTYPE_F32, FY_DIMS(HIDDEN, 1), 0, 0.3, &m.w2));
    ts_ok(fy_zeros(device, FY_DTYPE_F32, 0, NULL, &m.loss));
    ts_ok(fy_rng_create(device, 11, &m.rng));
    return m;
}

static void step(const model_t *m)
{
    fy_scope_t scope = fy_scope_begin("step");
    fy_tensor_t *order, *some, *x, *y, *h, *active, *pred, *d, *loss, *ht, *g2, *w2t, *dh, *xt, *g1,
        *noise, *mean;
    ts_ok(fy_randperm(m->rng, ROWS, &order));
    ts_ok(fy_slice(order, 0, 3, 3 + BATCH, &some));
    ts_ok(fy_gather(m->table, some, &x));
    ts_ok(fy_gather(m->labels, some, &y));
    ts_ok(fy_matmul(x, m->w1, &h));
    ts_ok(fy_tanh(h, &active));
    ts_ok(fy_matmul(active, m->w2, &pred));
    ts_ok(fy_mse_loss(pred, y, &loss));
    ts_ok(fy_copy(m->loss, loss));
    ts_ok(fy_sub(pred, y, &d));
    ts_ok(fy_transpose(active, NULL, &ht));
    ts_ok(fy_matmul(ht, d, &g2));
    ts_ok(fy_transpose(m->w2, NULL, &w2t));
    ts_ok(fy_matmul(d, w2t, &dh));
    ts_ok(fy_transpose(x, NULL, &xt));
    ts_ok(fy_matmul(xt, dh, &g1));
    ts_ok(fy_axpy(m->w2, -0.01, g2));
    ts_ok(fy_axpy(m->w1, -0.01, g1));
    ts_ok(fy_randn(m->rng, FY_DTYPE_F32, FY_DIMS(IN, HIDDEN), 0, 0.001, &noise));
    ts_ok(fy_axpy(m->w1, 1, noise));
    ts_ok(fy_mean(m->w1, FY_ALL_AXES, 0, &mean));
    ts_ok(fy_axpy(m->loss, 0.5, mean));
    fy_scope_end(scope, 0, NULL);
}

static void expect_same(const fy_tensor_t *a, const fy_tensor_t *b)
{
    unsigned char bytes[2][4096];
    const size_t nbytes = ts_info(a).nbytes;
    assert_true(nbytes <= sizeof bytes[0]);
    ts_read(a, bytes[0], nbytes);
    ts_read(b, bytes[1], nbytes);
    assert_memory_equal(bytes[0], bytes[1], nbytes);
}

TS_DEVICE_TEST(a_hundred_steps_have_the_same_bits)
{
    const model_t eager = make_model(ctx->device), replayed = make_model(ctx->device);
    ts_ok(fy_graph_begin(ctx->device));
    step(&replayed);
    fy_graph_t *graph = ts_graph_end();
    expect_same(replayed.w1, eager.w1); /* no op ran */
    expect_same(replayed.rng, eager.rng);
    for (int i = 0; i < 100; i++) {
        step(&eager);
        ts_ok(fy_graph_replay(graph, NULL));
        if (i % 33 == 0) expect_same(replayed.w1, eager.w1);
    }
    expect_same(replayed.w1, eager.w1);
    expect_same(replayed.w2, eager.w2);
    expect_same(replayed.loss, eager.loss);
    expect_same(replayed.rng, eager.rng);
}

TS_DEVICE_TEST(counted_as_one_request_and_allocates_nothing)
{
    const model_t m = make_model(ctx->device);
    fy_ledger_totals_t before = ts_ledger(NULL);
    ts_ok(fy_graph_begin(ctx->device));
    step(&m);
    fy_graph_t *graph = ts_graph_end();
    assert_int_equal(ts_ledger(NULL).requests, before.requests); /* recorded, not run */
    fy_graph_info_t info = ts_graph_info(graph);
    assert_ptr_equal(info.device, ctx->device);
    assert_int_equal(info.requests, 18); /* views submit nothing */
    assert_int_equal(info.uploads, 0);
    assert_true(info.pool_nbytes > 0);
    assert_int_equal(info.replays, 0);
    ts_ok(fy_graph_replay(graph, NULL));
    fy_memory_stats_t memory[2] = { FY_MEMORY_STATS_INIT, FY_MEMORY_STATS_INIT };
    ts_ok(fy_memory_query(ctx->device, NULL, &memory[0]));
    before = ts_ledger(NULL);
    const uint64_t version = ts_version(m.w1);
    for (int i = 0; i < 1000; i++) ts_ok(fy_graph_replay(graph, NULL));
    const fy_ledger_totals_t after = ts_ledger(NULL);
    ts_ok(fy_memory_query(ctx->device, NULL, &memory[1]));
    assert_int_equal(after.requests, before.requests + 1000);
    assert_int_equal(after.device_allocs, before.device_allocs);
    assert_int_equal(after.syncs, before.syncs);
    assert_int_equal(memory[1].live, memory[0].live);
    assert_int_equal(memory[1].peak_live, memory[0].peak_live);
    assert_int_equal(memory[1].device_allocs, memory[0].device_allocs);
    /* once for each replay, however often the replay writes it */
    assert_int_equal(ts_version(m.w1), version + 1000);
    info = ts_graph_info(graph);
    assert_int_equal(info.replays, 1001);
}

/* ---- results and operands ---- */

/* out = a + b inside a graph; the caller owns out. */
static fy_graph_t *record_add(ts_ctx_t *ctx, fy_tensor_t *a, fy_tensor_t *b, fy_tensor_t **out)
{
    ts_ok(fy_graph_begin(ctx->device));
    ts_ok(fy_add(a, b, out));
    fy_graph_t *graph = ts_graph_end();
    return graph;
}

TS_DEVICE_TEST(results_can_be_read_like_other_tensors)
{
    fy_tensor_t *a = ts_f32(ctx->device, FY_DIMS(3), (float[]){ 1, 2, 3 }),
                *b = ts_f32(ctx->device, FY_DIMS(3), (float[]){ 10, 20, 30 }), *sum, *twice;
    fy_graph_t *graph = record_add(ctx, a, b, &sum);
    fy_ticket_t ticket;
    ts_ok(fy_graph_replay(graph, &ticket));
    ts_ok(fy_ticket_wait(ticket, FY_FOREVER));
    ts_expect_f32(sum, (float[]){ 11, 22, 33 }, 3);
    ts_ok(fy_axpy(a, 1, b)); /* each replay reads the current bytes */
    ts_ok(fy_graph_replay(graph, NULL));
    ts_ok(fy_add(sum, sum, &twice)); /* an ordinary op after it */
    ts_ok(fy_graph_replay(graph, NULL));
    ts_expect_f32(sum, (float[]){ 21, 42, 63 }, 3);
    ts_expect_f32(twice, (float[]){ 42, 84, 126 }, 3);
}

TS_DEVICE_TEST(the_graph_is_destroyed_first)
{
    uint64_t before = ts_live(ctx->device);
    fy_tensor_t *a = ts_iota(ctx->device, FY_DIMS(4), 1), *sum;
    fy_graph_t *graph = record_add(ctx, a, a, &sum);
    ts_ok(fy_graph_replay(graph, NULL));
    fy_graph_destroy(graph); /* the replay may still run */
    ts_expect_f32(sum, (float[]){ 2, 4, 6, 8 }, 4);
    fy_tensor_destroy(a);
    ts_expect_f32(sum, (float[]){ 2, 4, 6, 8 }, 4);
    fy_tensor_destroy(sum);
    assert_int_equal(ts_live(ctx->device), before);
}

TS_DEVICE_TEST(tensors_are_destroyed_first)
{
    fy_tensor_t *a = ts_iota(ctx->device, FY_DIMS(4), 1), *sum,
                *y = ts_iota(ctx->device, FY_DIMS(4), 0), *view;
    ts_ok(fy_graph_begin(ctx->device));
    ts_ok(fy_add(a, a, &sum));
    ts_ok(fy_axpy(y, 1, sum));
    fy_graph_t *graph = ts_graph_end();
    ts_ok(fy_slice(y, 0, 0, 4, &view));
    fy_tensor_destroy(a); /* the graph keeps its bytes */
    fy_tensor_destroy(sum);
    fy_tensor_destroy(y);
    /* would reuse freed blocks */
    for (int i = 0; i < 8; i++) (void)ts_iota(ctx->device, FY_DIMS(4), 1000);
    ts_ok(fy_graph_replay(graph, NULL));
    ts_ok(fy_graph_replay(graph, NULL));
    ts_expect_f32(view, (float[]){ 4, 9, 14, 19 }, 4);
    fy_graph_destroy(graph);
    fy_graph_destroy(NULL);
}

TS_DEVICE_TEST(memory_of_destroyed_tensors_is_reused)
{
    fy_tensor_t *x = ts_iota(ctx->device, FY_DIMS(1000), 0), *last;
    ts_ok(fy_zeros(ctx->device, FY_DTYPE_F32, FY_DIMS(100000), &x)); /* 400 kB a result */
    ts_ok(fy_graph_begin(ctx->device));
    fy_tensor_t *now;
    ts_ok(fy_affine(x, 1, 1, &now));
    for (int i = 0; i < 100; i++) {
        fy_tensor_t *next;
        ts_ok(fy_affine(now, 1, 1, &next));
        fy_tensor_destroy(now);
        now = next;
    }
    ts_ok(fy_sum(now, FY_ALL_AXES, 0, &last));
    fy_graph_t *graph = ts_graph_end();
    const fy_graph_info_t info = ts_graph_info(graph);
    assert_in_range(info.pool_nbytes, 800000,
                    4 << 20); /* memory for two at a time, not for a hundred */
    ts_ok(fy_graph_replay(graph, NULL));
    ts_expect_f32(last, (float[]){ 10100000 }, 1);
}

/* Growing for a larger tensor keeps the graph's segment for the next one of the former size. */
TS_DEVICE_TEST(growing_loses_no_segment)
{
    enum { MIB = 1 << 20 };
    ts_ok(fy_graph_begin(ctx->device));
    fy_tensor_t *small = ts_zeros(ctx->device, FY_DTYPE_U8, FY_DIMS(4 * MIB)), *large;
    fy_tensor_destroy(small);
    ts_ok(fy_zeros(ctx->device, FY_DTYPE_U8, FY_DIMS(8 * MIB), &large));
    ts_ok(fy_zeros(ctx->device, FY_DTYPE_U8, FY_DIMS(4 * MIB),
                   &small)); /* in the place of the first */
    fy_graph_t *graph = ts_graph_end();
    const fy_graph_info_t info = ts_graph_info(graph);
    assert_int_equal(info.pool_nbytes, 12 * MIB);
    ts_ok(fy_graph_replay(graph, NULL));
}

TS_DEVICE_TEST(two_graphs_back_to_back)
{
    fy_tensor_t *a = ts_f32(ctx->device, FY_DIMS(2), (float[]){ 1, 2 }), *b, *c;
    fy_graph_t *first = record_add(ctx, a, a, &b), *second = record_add(ctx, b, a, &c);
    for (int i = 0; i < 3; i++) {
        ts_ok(fy_graph_replay(first, NULL));
        ts_ok(fy_graph_replay(second, NULL));
        ts_ok(fy_copy(a, c));
    }
    ts_expect_f32(a, (float[]){ 27, 54 }, 2);
}

TS_DEVICE_TEST(odd_shapes)
{
    fy_tensor_t *many[12], *joined, *none, *still_none, *x = ts_iota(ctx->device, FY_DIMS(2), 1);
    ts_ok(fy_zeros(ctx->device, FY_DTYPE_F32, FY_DIMS(0, 3), &none));
    ts_ok(fy_graph_begin(ctx->device));
    for (int i = 0; i < 12; i++) ts_ok(fy_affine(x, 1, i, &many[i]));
    ts_ok(fy_concat(12, many, 0, &joined)); /* more operands than a call stores inline */
    ts_ok(fy_neg(none, &still_none));
    fy_graph_t *graph = ts_graph_end();
    ts_ok(fy_graph_replay(graph, NULL));
    float want[24];
    for (int i = 0; i < 24; i++) want[i] = (float)(1 + i % 2 + i / 2);
    ts_expect_f32(joined, want, 24);
    const fy_graph_info_t info = ts_graph_info(graph);
    assert_int_equal(info.requests, 13);

    fy_ticket_t ticket = { 9, 9 };
    const uint64_t requests = ts_ledger(NULL).requests;
    ts_ok(fy_graph_begin(ctx->device));
    ts_ok(fy_graph_end(&graph)); /* an empty graph is legal */
    ts_ok(fy_graph_replay(graph, &ticket));
    ts_ok(fy_ticket_wait(ticket, FY_FOREVER));
    assert_int_equal(ts_ledger(NULL).requests, requests + 1);
}

/* ---- handles and scopes ---- */

TS_DEVICE_TEST(ending_a_scope_cancels_its_recording)
{
    uint64_t before = ts_live(ctx->device);
    fy_tensor_t *x = ts_iota(ctx->device, FY_DIMS(4), 1), *y, *kept;
    const uint64_t with_x = ts_live(ctx->device);
    fy_graph_t *graph = (fy_graph_t *)&x;
    fy_scope_t scope = fy_scope_begin("inner");
    ts_ok(fy_graph_begin(ctx->device));
    ts_ok(fy_add(x, x, &y));
    ts_ok(fy_add(x, x, &kept));
    fy_tensor_keep(kept);
    fy_scope_end(scope, 0, NULL);
    ts_fails(fy_graph_end(&graph), INVALID_ARGUMENT);
    assert_null(graph);
    assert_true(ts_live(ctx->device) > with_x); /* `kept` holds its bytes, whatever their values */
    ts_ok(fy_add(x, x, &y));                    /* works */
    ts_expect_f32(y, (float[]){ 2, 4, 6, 8 }, 4);
    fy_tensor_destroy(y);
    fy_tensor_destroy(kept);
    assert_int_equal(ts_live(ctx->device), with_x);
    fy_tensor_destroy(x);
    assert_int_equal(ts_live(ctx->device), before);
}

TS_DEVICE_TEST(handles_belong_to_scopes)
{
    fy_tensor_t *x = ts_iota(ctx->device, FY_DIMS(2), 1), *sum;
    const uint64_t before = ts_live(ctx->device);
    fy_scope_t scope = fy_scope_begin("inner");
    (void)record_add(ctx, x, x, &sum);
    fy_graph_t *kept = record_add(ctx, x, x, &sum);
    fy_tensor_keep(sum);
    fy_graph_keep(kept);
    fy_scope_end(scope, 0, NULL);
    ts_ok(fy_graph_replay(kept, NULL));
    ts_expect_f32(sum, (float[]){ 2, 4 }, 2);
    fy_graph_destroy(kept);
    fy_tensor_destroy(sum);
    assert_int_equal(ts_live(ctx->device), before);
}

/* ---- uploads ---- */

static fy_tensor_t *make_source(ts_ctx_t *ctx, fy_dtype_t dtype)
{
    fy_tensor_t *source;
    ts_ok(fy_tensor_create_pinned(ctx->device, dtype, FY_DIMS(4), &source));
    return source;
}

static void fill_source(fy_tensor_t *source, float first)
{
    float *data;
    ts_ok(fy_tensor_map(source, FY_ACCESS_WRITE, (void **)&data));
    for (int i = 0; i < 4; i++) data[i] = first + (float)i;
}

TS_DEVICE_TEST(each_replay_uploads_the_current_bytes)
{
    fy_transfer_options_t borrow = FY_TRANSFER_OPTIONS_INIT;
    borrow.contract = FY_HOST_BORROW;
    borrow.convert = 1;
    fy_tensor_t *source = make_source(ctx, FY_DTYPE_F32),
                *x = ts_iota(ctx->device, FY_DIMS(4), 100), *wide, *sum;
    fy_ticket_t ticket = { 1, 1 };
    ts_ok(fy_tensor_create(ctx->device, FY_DTYPE_F64, FY_DIMS(4), &wide));
    fill_source(source, 1);
    fy_ledger_totals_t before = ts_ledger(NULL);
    ts_ok(fy_graph_begin(ctx->device));
    ts_ok(fy_tensor_upload_into(x, source, &borrow, &ticket));
    ts_ok(fy_tensor_upload_into(wide, source, &borrow, &ticket)); /* converted on the device */
    ts_ok(fy_add(x, x, &sum));
    fy_graph_t *graph = ts_graph_end();
    /* no upload runs before a replay */
    ts_fails(fy_ticket_wait(ticket, FY_FOREVER), INVALID_ARGUMENT);
    fy_ledger_totals_t after = ts_ledger(NULL);
    ts_expect_quiet(&before, &after, "recording an upload");
    ts_expect_f32(x, (float[]){ 100, 101, 102, 103 }, 4);
    const fy_graph_info_t info = ts_graph_info(graph);
    assert_int_equal(info.uploads, 2);
    assert_int_equal(info.upload_nbytes, 32);
    assert_int_equal(info.requests, 1);
    for (int i = 0; i < 3; i++) {
        fill_source(source, (float)(10 * i));
        before = ts_ledger(NULL);
        ts_ok(fy_graph_replay(graph, &ticket));
        after = ts_ledger(NULL);
        assert_int_equal(after.upload.count, before.upload.count + 2);
        assert_int_equal(after.upload.nbytes, before.upload.nbytes + 32);
        assert_int_equal(after.upload.wire_nbytes, before.upload.wire_nbytes + 32);
        assert_int_equal(after.requests, before.requests + 1);
        ts_ok(fy_ticket_wait(ticket, FY_FOREVER)); /* the caller may write the source again */
    }
    ts_expect_f32(sum, (float[]){ 40, 42, 44, 46 }, 4);
    double values[4];
    ts_read(wide, values, sizeof values);
    for (int i = 0; i < 4; i++) assert_true(values[i] == 20 + i);
    fy_tensor_destroy(source);
    ts_ok(fy_graph_replay(graph, NULL)); /* its bytes belong to the graph too */
    ts_expect_f32(sum, (float[]){ 40, 42, 44, 46 }, 4);
}

/* A source is borrowed until the replay is done, even if another request has read it before. */
TS_DEVICE_TEST(sources_are_borrowed)
{
    fy_tensor_t *source = make_source(ctx, FY_DTYPE_F32),
                *x = ts_iota(ctx->device, FY_DIMS(4), 100), *wide, *t, *product;
    fy_ticket_t ticket;
    void *data;
    if (!ctx->is_sim) skip(); /* only its clock shows for sure that the replay still runs */
    fill_source(source, 1);
    ts_ok(fy_full(ctx->device, FY_DTYPE_F32, FY_DIMS(1024, 1024), 0, &wide));
    ts_ok(fy_graph_begin(ctx->device));
    ts_ok(fy_tensor_upload_into(x, source, &ts_borrow, &ticket));
    ts_ok(fy_matmul(wide, wide, &t));
    ts_ok(fy_matmul(t, wide, &product));
    fy_graph_t *graph = ts_graph_end();
    for (int i = 0; i < 2; i++) {
        /* alone, on a separate engine */
        if (i) ts_ok(fy_tensor_upload_into(x, source, &ts_borrow, &ticket));
        if (i) ts_ok(fy_ticket_wait(ticket, FY_FOREVER));
        ts_ok(fy_graph_replay(graph, &ticket));
        ts_fails(fy_tensor_map(source, FY_ACCESS_WRITE, &data), BUSY);
        ts_ok(fy_ticket_wait(ticket, FY_FOREVER));
        ts_ok(fy_tensor_map(source, FY_ACCESS_WRITE, &data));
    }
    ts_ok(fy_graph_replay(graph, &ticket));
    ts_ok(fy_tensor_upload_into(x, source, &ts_borrow, &(fy_ticket_t){ 0, 0 }));
    ts_fails(fy_tensor_map(source, FY_ACCESS_WRITE, &data), BUSY);
    ts_ok(fy_device_wait(ctx->device, FY_FOREVER));
    ts_ok(fy_tensor_map(source, FY_ACCESS_WRITE, &data));
}

TS_DEVICE_TEST(guards_hold_at_each_replay)
{
    fy_tensor_t *source = make_source(ctx, FY_DTYPE_F32),
                *x = ts_iota(ctx->device, FY_DIMS(4), 100);
    fy_ticket_t ticket;
    fill_source(source, 1);
    ts_ok(fy_graph_begin(ctx->device));
    ts_ok(fy_tensor_upload_into(x, source, &ts_borrow, &ticket));
    fy_graph_t *graph = ts_graph_end();
    fy_scope_t scope = fy_scope_begin("guarded");
    ts_guard(upload_nbytes, 20); /* enough for one replay, not for two */
    ts_ok(fy_graph_replay(graph, NULL));
    const uint64_t version = ts_version(x);
    const fy_ledger_totals_t before = ts_ledger(NULL);
    ts_fails(fy_graph_replay(graph, NULL), REFUSED_BY_GUARD);
    ts_expect_quiet_since(&before, "a refused replay");
    assert_int_equal(ts_version(x), version);
    fy_scope_end(scope, 0, NULL);
    ts_ok(fy_graph_replay(graph, NULL));
}

/* ---- faults of data ---- */

TS_DEVICE_TEST(faults_poison_dependent_tensors)
{
    fy_tensor_t *table = ts_iota(ctx->device, FY_DIMS(4, 2), 0), *indices, *more, *rows, *sum,
                *other;
    fy_ticket_t ticket;
    ts_ok(fy_arange(ctx->device, FY_DTYPE_I64, 0, 1, 3, &indices));
    ts_ok(fy_arange(ctx->device, FY_DTYPE_I64, 50, 1, 3, &more));
    ts_ok(fy_graph_begin(ctx->device));
    ts_ok(fy_gather(table, indices, &rows));
    ts_ok(fy_sum(rows, FY_ALL_AXES, 0, &sum));
    ts_ok(fy_neg(table, &other));
    fy_graph_t *graph = ts_graph_end();
    ts_ok(fy_graph_replay(graph, &ticket));
    ts_ok(fy_ticket_wait(ticket, FY_FOREVER));
    ts_expect_f32(sum, (float[]){ 15 }, 1);
    ts_ok(fy_copy(indices, more)); /* out of range */
    ts_ok(fy_graph_replay(graph, &ticket));
    fy_status_t status = fy_ticket_wait(ticket, FY_FOREVER);
    if (ticket.stream) { ts_fails_with(status, BAD_VALUE, "gather"); }
    ts_fails(ts_try_download(sum), BAD_VALUE); /* made inside, after it */
    ts_text_has("gather");
    /* made inside, independent of it */
    ts_expect_f32(other, (float[]){ -0.0f, -1, -2, -3, -4, -5, -6, -7 }, 8);
    ts_fails(fy_device_wait(ctx->device, FY_FOREVER), BAD_VALUE);
    ts_ok(fy_arange(ctx->device, FY_DTYPE_I64, 0, 1, 3, &more));
    ts_ok(fy_copy(indices, more));
    ts_ok(fy_graph_replay(graph, NULL)); /* overwrites the bad bytes */
    ts_expect_f32(sum, (float[]){ 15 }, 1);
    ts_ok(fy_device_wait(ctx->device, FY_FOREVER));
}

TS_DEVICE_TEST(poison_propagates_through_a_replay)
{
    fy_tensor_t *table = ts_iota(ctx->device, FY_DIMS(4, 2), 0), *bad, *rows, *in, *out, *beside;
    in = ts_iota(ctx->device, FY_DIMS(3, 2), 0);
    ts_ok(fy_graph_begin(ctx->device));
    ts_ok(fy_neg(in, &out));
    ts_ok(fy_neg(table, &beside));
    fy_graph_t *graph = ts_graph_end();
    ts_ok(fy_arange(ctx->device, FY_DTYPE_I64, 50, 1, 3, &bad));
    ts_ok(fy_gather(table, bad, &rows));
    ts_ok(fy_copy(in, rows));
    ts_ok(fy_graph_replay(graph, NULL));
    ts_fails(ts_try_download(out), BAD_VALUE);
    ts_expect_f32(beside, (float[]){ -0.0f, -1, -2, -3, -4, -5, -6, -7 }, 8);
    ts_fails(fy_device_wait(ctx->device, FY_FOREVER), BAD_VALUE);
}

/* More ops that can fault than the window has flags. */
TS_DEVICE_TEST(many_gathers)
{
    fy_tensor_t *table = ts_iota(ctx->device, FY_DIMS(8), 0), *indices, *rows[100], *all;
    ts_ok(fy_arange(ctx->device, FY_DTYPE_I64, 0, 1, 2, &indices));
    ts_ok(fy_graph_begin(ctx->device));
    for (int i = 0; i < 100; i++) ts_ok(fy_gather(table, indices, &rows[i]));
    ts_ok(fy_concat(100, rows, 0, &all));
    fy_graph_t *graph = ts_graph_end();
    for (int i = 0; i < 20; i++) ts_ok(fy_graph_replay(graph, NULL));
    float want[200];
    for (int i = 0; i < 200; i++) want[i] = (float)(i % 2);
    ts_expect_f32(all, want, 200);
}
