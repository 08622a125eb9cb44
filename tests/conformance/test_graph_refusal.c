/* Refusals of a recording and the state after them: no graph, no change, the device continues;
 * requests for other devices are not affected.
 * Not here: the results of a replay (test_graph.c). */
#include "tests/support/harness.h"

TS_DEVICE_TEST(begin_and_end_in_order)
{
    fy_graph_t *graph = (fy_graph_t *)&ctx;
    ts_fails(fy_graph_begin(NULL), INVALID_ARGUMENT);
    ts_fails(fy_graph_end(&graph), INVALID_ARGUMENT);
    assert_null(graph);
    ts_ok(fy_graph_begin(ctx->device));
    ts_fails_with(fy_graph_begin(ctx->device), BUSY, "fy_graph_end");
    ts_fails(fy_graph_end(NULL), INVALID_ARGUMENT); /* the recording continues */
    ts_ok(fy_graph_end(&graph));
    ts_fails(fy_graph_replay(NULL, NULL), INVALID_ARGUMENT);
    fy_graph_info_t info = { 0 };
    ts_fails(fy_graph_query(graph, &info), INVALID_ARGUMENT);
    ts_fails(fy_graph_query(NULL, &(fy_graph_info_t)FY_GRAPH_INFO_INIT), INVALID_ARGUMENT);
}

/* No result exists before the first replay: every way of reading one fails with that reason. */
TS_DEVICE_TEST(results_before_the_first_replay)
{
    fy_tensor_t *x = ts_iota(ctx->device, FY_DIMS(4), 1), *made, *sum, *twice, *parts, *half;
    ts_ok(fy_graph_begin(ctx->device));
    ts_ok(fy_add(x, x, &made));
    ts_ok(fy_sum(made, 0, NULL, 0, &sum));
    /* written in two parts: no single call replaces all of it */
    ts_ok(fy_empty(ctx->device, FY_DTYPE_F32, FY_DIMS(4), &parts));
    for (int i = 0; i < 2; i++) {
        ts_ok(fy_slice(parts, 0, 2 * i, 2 * i + 2, &half));
        ts_ok(fy_fill(half, i + 5));
    }
    fy_graph_t *graph = ts_graph_end();
    ts_ok(fy_add(made, x, &twice)); /* the result of an op on one fails with the same reason */
    fy_tensor_t *const each[] = { made, sum, parts, twice };
    for (size_t i = 0; i < 4; i++) {
        ts_fails_with(ts_try_download(each[i]), INVALID_ARGUMENT, "fy_graph_replay");
        void *data;
        if (ctx->is_host) ts_fails(fy_tensor_map(each[i], FY_ACCESS_READ, &data), INVALID_ARGUMENT);
    }
    for (int i = 0; i < 3; i++) {
        ts_ok(fy_graph_replay(graph, NULL));
        ts_expect_f32(made, (float[]){ 2, 4, 6, 8 }, 4);
        ts_expect_f32(sum, (float[]){ 20 }, 1);
        ts_expect_f32(parts, (float[]){ 5, 5, 6, 6 }, 4);
    }
    ts_ok(fy_add(made, x, &twice));
    ts_expect_f32(twice, (float[]){ 3, 6, 9, 12 }, 4);
    ts_ok(fy_device_wait(ctx->device, FY_FOREVER)); /* no fault of the device */
}

/* Calls outside the recording can fill them without a replay. A cancelled recording leaves them
 * poisoned. */
TS_DEVICE_TEST(results_without_a_replay)
{
    fy_tensor_t *x = ts_iota(ctx->device, FY_DIMS(4), 1), *made;
    ts_ok(fy_graph_begin(ctx->device));
    ts_ok(fy_add(x, x, &made));
    (void)ts_graph_end();
    ts_ok(fy_copy(made, x));
    ts_expect_f32(made, (float[]){ 1, 2, 3, 4 }, 4);
    fy_scope_t scope = fy_scope_begin("given up");
    ts_ok(fy_graph_begin(ctx->device));
    ts_ok(fy_add(x, x, &made));
    fy_tensor_keep(made);
    fy_scope_end(scope, 0, NULL);
    ts_fails(ts_try_download(made), INVALID_ARGUMENT);
    fy_tensor_destroy(made);
}

static void told(void *user, fy_status_t status)
{
    (void)status;
    ++*(int *)user;
}

/* The ticket of a recorded upload is not "done": only a replay can complete it. */
TS_DEVICE_TEST(a_recorded_upload_has_no_ticket)
{
    fy_ticket_t recorded, replayed;
    int calls = 0;
    fy_tensor_t *x = ts_iota(ctx->device, FY_DIMS(4), 1), *src = ts_pinned(ctx->device, 4);
    ts_ok(fy_fill(src, 7));
    ts_ok(fy_graph_begin(ctx->device));
    ts_ok(fy_tensor_upload_into(x, src, &ts_borrow, &recorded));
    fy_graph_t *graph = ts_graph_end();
    for (int i = 0; i < 2; i++) { /* before a replay, and after one */
        ts_fails_with(fy_ticket_wait(recorded, FY_FOREVER), INVALID_ARGUMENT, "fy_graph_replay");
        assert_int_equal(fy_ticket_poll(recorded), FY_POLL_FAILED);
        ts_fails(fy_ticket_on_done(recorded, told, &calls), INVALID_ARGUMENT);
        ts_fails(fy_ticket_cancel(recorded), INVALID_ARGUMENT);
        ts_ok(fy_graph_replay(graph, &replayed));
        ts_ok(fy_ticket_wait(replayed, FY_FOREVER));
    }
    assert_int_equal(calls, 0);
    ts_expect_f32(x, (float[]){ 7, 7, 7, 7 }, 4);
}

/* A view submits nothing, so a view that fails does not end the recording. */
TS_DEVICE_TEST(a_failing_view_does_not_end_the_recording)
{
    fy_tensor_t *x = ts_iota(ctx->device, FY_DIMS(4), 1), *view, *y;
    ts_ok(fy_graph_begin(ctx->device));
    ts_fails(fy_reshape(x, FY_DIMS(3), &view), SHAPE_MISMATCH);
    assert_null(view);
    ts_ok(fy_reshape(x, FY_DIMS(2, 2), &view));
    ts_ok(fy_add(view, view, &y));
    fy_graph_t *graph = ts_graph_end();
    ts_ok(fy_graph_replay(graph, NULL));
    ts_expect_f32(y, (float[]){ 2, 4, 6, 8 }, 4);
}

typedef struct inside {
    ts_ctx_t *ctx;
    fy_tensor_t *x, *host;
    fy_graph_t *other;
    fy_download_t *download;
    fy_ticket_t ticket;
} inside_t;
static fy_status_t in_upload(inside_t *in)
{
    fy_tensor_t *out;
    return fy_tensor_upload(in->host, in->ctx->device, NULL, &out);
}
static fy_status_t in_upload_into(inside_t *in)
{
    return fy_tensor_upload_into(in->x, in->host, NULL, NULL);
}
static fy_status_t in_upload_many(inside_t *in)
{
    fy_tensor_t *out;
    return fy_tensor_upload_many(1, &in->host, in->ctx->device, NULL, &out);
}
static fy_status_t in_upload_many_into(inside_t *in)
{
    return fy_tensor_upload_many_into(1, &in->x, &in->host, NULL, NULL);
}
static fy_status_t in_download_into(inside_t *in)
{
    return fy_tensor_download_into(in->host, in->x, NULL);
}
static fy_status_t in_upload_file(inside_t *in)
{
    return fy_tensor_upload_file(in->x, "/dev/zero", 0, NULL);
}
static fy_status_t in_download_file(inside_t *in)
{
    return fy_tensor_download_file(in->x, "/dev/null", 0, NULL);
}
static fy_status_t in_download(inside_t *in)
{
    fy_download_t *out;
    return fy_tensor_download(in->x, NULL, &out);
}
static fy_status_t in_download_wait(inside_t *in)
{
    fy_tensor_t *out;
    return fy_download_wait(in->download, FY_FOREVER, &out);
}
static fy_status_t in_device_wait(inside_t *in)
{
    return fy_device_wait(in->ctx->device, FY_FOREVER);
}
static fy_status_t in_trim(inside_t *in) { return fy_memory_trim(in->ctx->device, 0, NULL); }
static fy_status_t in_replay(inside_t *in) { return fy_graph_replay(in->other, NULL); }
static fy_status_t in_native(inside_t *in)
{
    void *address;
    return fy_tensor_begin_native_access(in->x, FY_ACCESS_READ, NULL, &address);
}

TS_DEVICE_TEST(calls_that_cannot_be_recorded_are_refused)
{
    static const struct {
        const char *name;
        fy_status_t (*call)(inside_t *in);
    } calls[] = { { "tensor_upload", in_upload },
                  { "tensor_upload_into", in_upload_into },
                  { "tensor_upload_many", in_upload_many },
                  { "tensor_upload_many_into", in_upload_many_into },
                  { "tensor_download_into", in_download_into },
                  { "tensor_upload_file", in_upload_file },
                  { "tensor_download_file", in_download_file },
                  { "tensor_download", in_download },
                  { "download_wait", in_download_wait },
                  { "device_wait", in_device_wait },
                  { "memory_trim", in_trim },
                  { "graph_replay", in_replay },
                  { "tensor_begin_native_access", in_native } };
    inside_t in = { .ctx = ctx };
    in.x = ts_iota(ctx->device, FY_DIMS(4), 1);
    in.host = ts_host_f32(FY_DIMS(4), (float[]){ 1, 2, 3, 4 });
    ts_ok(fy_graph_begin(ctx->device));
    ts_ok(fy_graph_end(&in.other));
    ts_ok(fy_tensor_download(in.x, NULL, &in.download));
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        fy_graph_t *graph;
        fy_tensor_t *y, *z;
        const uint64_t live = ts_live(ctx->device);
        ts_ok(fy_graph_begin(ctx->device));
        ts_ok(fy_neg(in.x, &y));
        const fy_ledger_totals_t before = ts_ledger(NULL);
        ts_fails_with(calls[i].call(&in), UNSUPPORTED, calls[i].name, "fy_graph_begin");
        ts_expect_quiet_since(&before, calls[i].name);
        ts_ok(fy_neg(y, &z)); /* continues, but no graph will result */
        ts_fails_with(fy_graph_end(&graph), UNSUPPORTED, calls[i].name); /* the first failure */
        assert_null(graph);
        fy_tensor_destroy(y);
        fy_tensor_destroy(z);
        assert_int_equal(ts_live(ctx->device), live);
    }
    fy_tensor_t *out;
    ts_ok(fy_download_wait(in.download, FY_FOREVER, &out)); /* submitted before the recording */
    ts_expect_f32(out, (float[]){ 1, 2, 3, 4 }, 4);
}

TS_DEVICE_TEST(a_recording_refuses_some_waits)
{
    fy_tensor_t *x = ts_iota(ctx->device, FY_DIMS(4), 1);
    fy_graph_t *graph;
    const fy_ticket_t ticket = fy_tensor_ticket(x);
    if (!ticket.stream) return; /* the host: nothing to wait for */
    ts_ok(fy_graph_begin(ctx->device));
    (void)fy_ticket_poll(ticket);
    ts_fails(fy_ticket_wait(ticket, FY_FOREVER), UNSUPPORTED);
    ts_fails(fy_graph_end(&graph), UNSUPPORTED);
    ts_ok(fy_ticket_wait(ticket, FY_FOREVER));
}

TS_DEVICE_TEST(a_refused_op_ends_the_recording)
{
    fy_tensor_t *a = ts_iota(ctx->device, FY_DIMS(4), 1), *b = ts_iota(ctx->device, FY_DIMS(3), 1),
                *c = a;
    fy_graph_t *graph;
    ts_ok(fy_graph_begin(ctx->device));
    ts_fails(fy_add(a, b, &c), SHAPE_MISMATCH);
    assert_null(c);
    ts_ok(fy_add(a, a, &c));
    ts_fails(fy_tensor_download(c, NULL, &(fy_download_t *){ NULL }), UNSUPPORTED);
    ts_fails(fy_graph_end(&graph), SHAPE_MISMATCH); /* the first */
    ts_text_has("add");
    ts_ok(fy_add(a, a, &c));
    ts_expect_f32(c, (float[]){ 2, 4, 6, 8 }, 4);
}

TS_DEVICE_TEST(other_devices_go_on)
{
    fy_device_t *other = fy_device_host();
    if (ctx->is_host) ts_ok(fy_device_open("sim:5", &other));
    fy_tensor_t *x = ts_iota(ctx->device, FY_DIMS(2), 1), *y, *z = ts_iota(other, FY_DIMS(2), 5),
                *w;
    ts_ok(fy_graph_begin(ctx->device));
    ts_ok(fy_add(x, x, &y));
    ts_ok(fy_add(z, z, &w)); /* runs */
    ts_expect_f32(w, (float[]){ 10, 12 }, 2);
    ts_ok(fy_device_wait(other, FY_FOREVER));
    fy_graph_t *graph = ts_graph_end();
    ts_ok(fy_graph_replay(graph, NULL));
    ts_expect_f32(y, (float[]){ 2, 4 }, 2);
    const fy_graph_info_t info = ts_graph_info(graph);
    assert_int_equal(info.requests, 1);
    fy_tensor_destroy(z);
    fy_tensor_destroy(w);
    if (ctx->is_host) fy_device_close(other);
}
