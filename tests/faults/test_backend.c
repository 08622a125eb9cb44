/* Each allocation of a backend fails once, and permanently: device segments, page-locked memory,
 * streams, events, at each point of a program. The program has transfers of every kind (files and
 * another device among them), a reserve, a graph, a prefetch and a separate stream. After each
 * failure the status is a documented one and nothing leaks. Once the cause ends, the same device
 * runs the whole program. Also with order=lazy.
 * Not here: capacity and limits (test_memory.c), recordings from inside (test_graph.c), the pool
 * alone (tests/unit/alloc). */
#include <inttypes.h>
#include <unistd.h>

#include "backends/sim/queue.h"
#include "backends/sim/sim.h"
#include "runtime/device/device.h"
#include "tests/support/harness.h"

enum { N = 40000, ROWS = 1000, COLUMNS = 100, BATCHES = 3 };

static fy_status_t fill_batch(void *user, fy_batch_t *batch)
{
    (void)user;
    void *data;
    if (batch->index == BATCHES) {
        batch->is_end = 1;
        return FY_STATUS_OK;
    }
    FY_TRY(fy_tensor_map(batch->host[0], FY_ACCESS_WRITE, &data));
    for (int i = 0; i < ROWS * COLUMNS; i++) ((float *)data)[i] = (float)(batch->index + 1);
    return FY_STATUS_OK;
}

/* The sum of all elements of all batches, on the device. */
static fy_status_t use_batches(fy_device_t *device, fy_tensor_t *total)
{
    const fy_batch_spec_t spec = { FY_DTYPE_F32, 2, { ROWS, COLUMNS } };
    fy_prefetch_options_t options = FY_PREFETCH_OPTIONS_INIT;
    fy_prefetch_t *prefetch;
    fy_tensor_t *x, *sum;
    int64_t rows;
    options.threads = 0; /* so that the N-th call is the same one every time */
    FY_TRY(fy_prefetch_create(device, 1, &spec, fill_batch, NULL, &options, &prefetch));
    for (;;) {
        FY_TRY(fy_prefetch_next(prefetch, &x, &rows));
        if (!rows) return FY_STATUS_OK;
        FY_TRY(fy_sum(x, 0, NULL, 0, &sum));
        FY_TRY(fy_axpy(total, 1, sum));
    }
}

/* total += the sum of x, three times: recorded, replayed twice, and called. */
static fy_status_t use_graph(fy_device_t *device, fy_tensor_t *x, fy_tensor_t *total)
{
    fy_graph_t *graph;
    fy_tensor_t *sum;
    fy_ticket_t ticket;
    FY_TRY(fy_graph_begin(device));
    fy_status_t status = fy_sum(x, 0, NULL, 0, &sum);
    if (status == FY_STATUS_OK) status = fy_axpy(total, 1, sum);
    const fy_status_t end = fy_graph_end(&graph);
    if (status != FY_STATUS_OK) {
        assert_int_equal(end, status);
        assert_null(graph);
        return status;
    }
    FY_TRY(end);
    FY_TRY(fy_graph_replay(graph, NULL));
    FY_TRY(fy_graph_replay(graph, &ticket));
    FY_TRY(fy_ticket_wait(ticket, FY_FOREVER));
    FY_TRY(fy_sum(x, 0, NULL, 0, &sum));
    return fy_axpy(total, 1, sum);
}

static fy_status_t use_streams(fy_device_t *device, fy_tensor_t *x, fy_tensor_t *total)
{
    fy_stream_t *side, *other;
    fy_tensor_t *y, *z, *sum;
    fy_ticket_t ticket;
    fy_scope_t scope = fy_scope_begin("side");
    fy_status_t status = fy_stream_create(device, NULL, &side);
    if (status == FY_STATUS_OK) status = fy_stream_create(device, NULL, &other);
    if (status == FY_STATUS_OK) status = fy_stream_set_current(side);
    if (status == FY_STATUS_OK) status = fy_affine(x, 2, 0, &y);
    if (status == FY_STATUS_OK) status = fy_stream_set_current(other);
    if (status == FY_STATUS_OK) status = fy_affine(y, 0.5, 0, &z); /* waits for the other stream */
    if (status == FY_STATUS_OK) status = fy_sum(z, 0, NULL, 0, &sum);
    if (status == FY_STATUS_OK) status = fy_stream_record(other, &ticket);
    if (status == FY_STATUS_OK) status = fy_ticket_wait(ticket, FY_FOREVER);
    if (status == FY_STATUS_OK) status = fy_axpy(total, 1, sum);
    fy_scope_end(scope, 0, NULL);
    return status;
}

/* total += the sum of x, through a file and through another device, which must live as long as its
 * memory is used. */
static fy_status_t use_files_and_peers(fy_device_t *device, fy_tensor_t *x, fy_tensor_t *total)
{
    char path[64];
    fy_device_t *peer;
    fy_tensor_t *y, *there, *back, *sum;
    FY_TRY(fy_memory_reserve(device, 8 << 20)); /* one more segment */
    snprintf(path, sizeof path, "/tmp/ferry_faults_%ld", (long)getpid());
    fy_status_t status = fy_tensor_download_file(x, path, 0, NULL);
    if (status == FY_STATUS_OK) status = fy_tensor_create(device, FY_DTYPE_F32, FY_DIMS(N), &y);
    if (status == FY_STATUS_OK) status = fy_tensor_upload_file(y, path, 0, NULL);
    unlink(path);
    FY_TRY(status);
    FY_TRY(fy_sum(y, 0, NULL, 0, &sum));
    FY_TRY(fy_axpy(total, 1, sum));
    ts_ok(fy_device_open("sim:8?capacity=4MiB", &peer)); /* no call fails there */
    status = fy_tensor_send(x, peer, NULL, &there);
    if (status == FY_STATUS_OK) status = fy_tensor_send(there, device, NULL, &back);
    if (status == FY_STATUS_OK) status = fy_sum(back, 0, NULL, 0, &sum);
    if (status == FY_STATUS_OK) status = fy_axpy(total, 1, sum);
    fy_device_close(peer); /* destroyed with its last tensor */
    return status;
}

/* Stops at the first failure and returns it. */
static fy_status_t program(fy_device_t *device, float *out)
{
    fy_tensor_t *host, *pinned, *own, *x, *y, *half, *few[2], *total, *sum, *reply;
    fy_transfer_options_t options = FY_TRANSFER_OPTIONS_INIT;
    fy_download_t *download;
    fy_ticket_t ticket;
    void *data;
    FY_TRY(fy_zeros(device, FY_DTYPE_F32, FY_DIMS(1), &total));
    FY_TRY(fy_reshape(total, 0, NULL, &total));
    FY_TRY(fy_tensor_create(fy_device_host(), FY_DTYPE_F32, FY_DIMS(N), &host));
    FY_TRY(fy_tensor_map(host, FY_ACCESS_WRITE, &data));
    for (int i = 0; i < N; i++) ((float *)data)[i] = (float)(i % 4);
    FY_TRY(fy_tensor_upload(host, device, NULL, &x)); /* through the ring */
    options.dtype = FY_DTYPE_F16;
    FY_TRY(fy_tensor_upload(host, device, &options, &half));
    FY_TRY(fy_cast(half, FY_DTYPE_F32, &y));
    FY_TRY(fy_tensor_create_pinned(device, FY_DTYPE_F32, FY_DIMS(N), &pinned));
    FY_TRY(fy_tensor_map(pinned, FY_ACCESS_WRITE, &data));
    for (int i = 0; i < N; i++) ((float *)data)[i] = 1;
    options = (fy_transfer_options_t)FY_TRANSFER_OPTIONS_INIT;
    options.contract = FY_HOST_BORROW;
    FY_TRY(fy_tensor_upload_into(y, pinned, &options, &ticket));
    FY_TRY(fy_sum(y, 0, NULL, 0, &sum));
    FY_TRY(fy_axpy(total, 1, sum));
    FY_TRY(fy_ticket_wait(ticket, FY_FOREVER));
    FY_TRY(fy_tensor_create(fy_device_host(), FY_DTYPE_F32, FY_DIMS(N), &own));
    FY_TRY(fy_tensor_pin(own, device));
    FY_TRY(fy_tensor_download_into(own, x, NULL));
    FY_TRY(fy_tensor_upload_many(2, (fy_tensor_t *[]){ host, own }, device, NULL, few));
    FY_TRY(fy_add(few[0], few[1], &y));
    FY_TRY(fy_sum(y, 0, NULL, 0, &sum));
    FY_TRY(fy_axpy(total, 1, sum));
    FY_TRY(use_graph(device, x, total));
    FY_TRY(use_batches(device, total));
    FY_TRY(use_streams(device, x, total));
    FY_TRY(use_files_and_peers(device, x, total));
    FY_TRY(fy_tensor_download(total, NULL, &download));
    FY_TRY(fy_download_wait(download, FY_FOREVER, &reply));
    FY_TRY(fy_tensor_map(reply, FY_ACCESS_READ, &data));
    *out = *(float *)data;
    return FY_STATUS_OK;
}

/* 1 per element of y, 1.5 per element of host, own, x (three times by the graph, once each by the
 * streams, the file and the other device), 1, 2, 3 per element of the batches. */
static const float expected = N + 8 * 1.5f * N + 6.0f * ROWS * COLUMNS;

static fy_status_t attempt(fy_device_t *device)
{
    float result = -1;
    fy_scope_t scope = fy_scope_begin("attempt");
    const fy_status_t status = program(device, &result);
    if (status == FY_STATUS_OK && result != expected)
        fail_msg("%g instead of %g", (double)result, (double)expected);
    fy_scope_end(scope, 0, NULL);
    return status;
}

typedef struct kind {
    const char *word;
    fy_status_t status, or_this;
    int at_least; /* failures that the sweep must meet, or it tests less than intended */
} kind_t;

static void sweep(const kind_t *kind, const char *order, bool for_ever)
{
    int failed = 0, survived = 0;
    for (int n = 1, quiet = 0; quiet < 3; n++) {
        char spec[96];
        assert_in_range(n, 1, 500);
        snprintf(spec, sizeof spec, "sim:7?capacity=16MiB&order=%s&faults=%s@%d%s", order,
                 kind->word, n, for_ever ? "*" : "");
        fy_device_t *device;
        const uint64_t violations = fy__sim_violations();
        fy_status_t status = fy_device_open(spec, &device);
        if (status == FY_STATUS_OK) { /* destroyed while the failure lasts */
            (void)attempt(device);
            fy_device_close(device);
            if (fy__sim_violations() != violations)
                fail_msg("%s: closed under requests that had not run", spec);
            status = fy_device_open(spec, &device);
        }
        if (status != FY_STATUS_OK) {
            assert_true(status == kind->status || status == kind->or_this);
            assert_null(device);
            failed++;
            continue;
        }
        status = attempt(device);
        if (status != FY_STATUS_OK) {
            if (status != kind->status && status != kind->or_this)
                fail_msg("%s: %s: %s", spec, fy_status_name(status), fy_error_get()->text);
            assert_true(strlen(fy_error_get()->text) > 20);
            failed++;
        }
        fy__sim_device_t *dev = device->dev;
        const uint64_t struck = dev->script.counts[dev->script.items[0].kind];
        if (status == FY_STATUS_OK && struck >= (uint64_t)n) survived++;
        quiet = struck < (uint64_t)n ? quiet + 1 : 0;
        assert_int_equal(fy__sim_set_faults(dev, ""), FY_STATUS_OK);
        ts_ok(fy_device_wait(device, FY_FOREVER));
        if (ts_live(device)) fail_msg("%s: %" PRIu64 " bytes are live", spec, ts_live(device));
        status = attempt(device);
        if (status != FY_STATUS_OK)
            fail_msg("%s, then none: %s: %s", spec, fy_status_name(status), fy_error_get()->text);
        ts_ok(fy_device_wait(device, FY_FOREVER));
        assert_int_equal(ts_live(device), 0);
        fy_device_close(device);
        assert_int_equal(fy__sim_violations(), violations);
    }
    print_message("           %s@N%s, %s: %d failures reported, %d survived\n", kind->word,
                  for_ever ? "*" : "", order, failed, survived);
    assert_true(failed + survived >= kind->at_least);
    assert_true(failed > 0 || !for_ever);
}

static void all_orders(const kind_t *kind)
{
    for (int i = 0; i < 4; i++) sweep(kind, i & 1 ? "lazy" : "eager", i >> 1);
}

TS_TEST(device_segments)
{
    all_orders(&(kind_t){ "alloc", FY_STATUS_OUT_OF_MEMORY, FY_STATUS_OUT_OF_MEMORY, 2 });
}

TS_TEST(page_locked_memory)
{
    all_orders(&(kind_t){ "pin", FY_STATUS_OUT_OF_MEMORY, FY_STATUS_PINNED_LIMIT, 4 });
}

TS_TEST(streams)
{
    all_orders(&(kind_t){ "stream", FY_STATUS_OUT_OF_MEMORY, FY_STATUS_OUT_OF_MEMORY, 5 });
}

TS_TEST(events)
{
    all_orders(&(kind_t){ "event", FY_STATUS_OUT_OF_MEMORY, FY_STATUS_OUT_OF_MEMORY, 5 });
}

/* A stream has an event from the beginning, so a wait needs no other: only a new stream is
 * refused. */
TS_TEST(waits_need_no_more_events)
{
    fy_device_t *device;
    fy_scope_t scope = fy_scope_begin("waits");
    fy_tensor_t *x, *y, *total;
    fy_stream_t *stream;
    ts_ok(fy_device_open("sim:7?order=lazy&faults=event@4*", &device));
    ts_ok(fy_zeros(device, FY_DTYPE_F32, FY_DIMS(0), &total));
    ts_ok(fy_sum(total, 0, NULL, 0, &total));
    /* uploads, ops and downloads on three streams that wait for each other */
    for (int i = 0; i < 20; i++) {
        x = ts_iota(device, FY_DIMS(3), (float)i);
        ts_ok(fy_affine(x, 2, 0, &y));
        ts_expect_f32(y, (float[]){ 2 * (float)i, 2 * (float)i + 2, 2 * (float)i + 4 }, 3);
    }
    ts_ok(use_graph(device, x, total));
    ts_ok(use_batches(device, total));
    ts_expect_f32(total, (float[]){ 3 * (19 + 20 + 21) + 6.0f * ROWS * COLUMNS }, 1);
    ts_fails(fy_stream_create(device, NULL, &stream), OUT_OF_MEMORY);
    assert_null(stream);
    ts_text_has("as the device's faults= says");
    fy_scope_end(scope, 0, NULL);
    ts_ok(fy_device_wait(device, FY_FOREVER));
    assert_int_equal(ts_live(device), 0);
    fy_device_close(device);
}
