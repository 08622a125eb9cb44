/* Streams and tickets: create, use, mark, destroy; ordering across streams by the tensors that they
 * use; native addresses; polls and waits.
 * Not here: tickets of transfers (test_transfer.c), faults
 * (test_fault.c). */
#include "tests/support/harness.h"

TS_DEVICE_TEST(the_done_ticket)
{
    fy_ticket_t done = { 0, 0 };
    assert_int_equal(fy_ticket_poll(done), FY_POLL_DONE);
    ts_ok(fy_ticket_wait(done, 0));
    if (!ctx->is_host) return;
    fy_tensor_t *x = ts_host_f32(FY_DIMS(2), (float[]){ 1, 2 });
    assert_int_equal(fy_tensor_ticket(x).stream, 0);
    assert_int_equal(fy_tensor_ticket(x).seq, 0);
}

/* Waits and polls in every mixture, more than a stream has slots for events; also on the null
 * device, whose events are one pointer. */
TS_DEVICE_TEST(any_number_of_waits)
{
    fy_device_t *null = ts_open("null:0");
    fy_device_t *const devices[] = { ctx->device, null };
    for (size_t d = 0; d < 2; d++) {
        fy_tensor_t *y[3], *table = ts_full(devices[d], FY_DIMS(4), 0), *indices;
        ts_ok(fy_zeros(devices[d], FY_DTYPE_I64, FY_DIMS(4), &indices));
        for (int i = 0; i < 150; i++) {
            for (int j = 0; j < 3; j++) {
                /* it can fault, so an event is recorded at once: three are there now */
                ts_ok(fy_gather(table, indices, &y[j]));
                if (i % 3 == 1) (void)fy_ticket_poll(fy_tensor_ticket(y[j]));
            }
            for (int j = 0; j < 3; j++)
                ts_ok(fy_ticket_wait(fy_tensor_ticket(y[i & 1 ? 2 - j : j]), FY_FOREVER));
            for (int j = 0; j < 3; j++) fy_tensor_destroy(y[j]);
        }
        fy_tensor_destroy(table);
        fy_tensor_destroy(indices);
    }
}

TS_DEVICE_TEST(the_host_has_one_stream)
{
    fy_stream_t *stream = (fy_stream_t *)ctx;
    ts_fails(fy_stream_create(ctx->device, NULL, &stream), UNSUPPORTED);
    assert_null(stream);
}

TS_DEVICE_TEST(create_and_destroy)
{
    fy_stream_options_t options = FY_STREAM_OPTIONS_INIT;
    options.name = "side";
    options.priority = 1;
    for (int i = 0; i < 200; i++) { /* more than can exist at once if slots were lost */
        fy_stream_t *stream;
        ts_ok(fy_stream_create(ctx->device, &options, &stream));
        fy_stream_destroy(stream);
    }
    fy_stream_destroy(NULL);
    fy_scope_t scope = fy_scope_begin("inner");
    fy_stream_t *kept = ts_stream(ctx->device);
    (void)ts_stream(ctx->device);
    fy_stream_keep(kept);
    fy_scope_end(scope, 0, NULL);
    fy_ticket_t ticket;
    ts_ok(fy_stream_record(kept, &ticket));
    ts_ok(fy_ticket_wait(ticket, FY_FOREVER));
    fy_stream_destroy(kept);
    fy_stream_options_t unset = { 0 };
    ts_fails(fy_stream_create(ctx->device, &unset, &kept), INVALID_ARGUMENT);
    assert_null(kept);
    ts_fails(fy_stream_create(NULL, NULL, &kept), INVALID_ARGUMENT);
}

TS_DEVICE_TEST(marks_are_points_on_a_timeline)
{
    fy_ticket_t first, second;
    fy_tensor_t *x = ts_iota(ctx->device, FY_DIMS(256, 256), 0), *y;
    fy_stream_t *stream = ts_stream(ctx->device);
    fy_scope_t scope = fy_scope_begin("side");
    ts_ok(fy_stream_set_current(stream));
    ts_ok(fy_stream_record(stream, &first));
    for (int i = 0; i < 4; i++) ts_ok(fy_matmul(x, x, &y));
    ts_ok(fy_stream_record(stream, &second));
    if (ctx->is_sim) assert_int_equal(fy_ticket_poll(second), FY_POLL_PENDING);
    fy_scope_end(scope, 0, NULL);
    ts_ok(fy_ticket_wait(second, FY_FOREVER));
    assert_int_equal(fy_ticket_poll(second), FY_POLL_DONE);
    /* a later point is reached after an earlier one */
    assert_int_equal(fy_ticket_poll(first), FY_POLL_DONE);
    fy_stream_destroy(stream);
    assert_int_equal(fy_ticket_poll(second), FY_POLL_DONE); /* tickets stay valid */
    ts_ok(fy_ticket_wait(first, 0));
}

/* The ticket is done once later work of the stream that waited for it is done. */
TS_DEVICE_TEST(a_stream_waits_for_a_ticket)
{
    fy_ticket_t behind;
    fy_tensor_t *x = ts_iota(ctx->device, FY_DIMS(512, 512), 0), *y;
    fy_stream_t *side = ts_stream(ctx->device);
    for (int i = 0; i < 8; i++) ts_ok(fy_matmul(x, x, &y));
    const fy_ticket_t ticket = fy_tensor_ticket(y);
    const uint64_t syncs = ts_ledger(NULL).syncs;
    ts_ok(fy_stream_wait(side, ticket));
    ts_ok(fy_stream_wait(side, ticket)); /* twice is once */
    ts_ok(fy_stream_wait(side, (fy_ticket_t){ 0, 0 }));
    assert_int_equal(ts_ledger(NULL).syncs, syncs); /* the host does not wait */
    ts_ok(fy_stream_record(side, &behind));
    ts_ok(fy_ticket_wait(behind, FY_FOREVER));
    assert_int_equal(fy_ticket_poll(ticket), FY_POLL_DONE);
    ts_fails(fy_stream_wait(NULL, ticket), INVALID_ARGUMENT);
    ts_fails_with(fy_stream_wait(side, (fy_ticket_t){ ticket.stream, ticket.seq + 1000000 }),
                  INVALID_ARGUMENT, "is no ticket of this process");
}

/* A ticket of another backend's device: the host waits, because the devices share no events. */
TS_DEVICE_TEST(a_stream_waits_for_another_backend)
{
    fy_tensor_t *x = ts_iota(ctx->device, FY_DIMS(512, 512), 0), *y;
    fy_device_t *null = ts_open("null:0");
    fy_stream_t *side = ts_stream(null);
    for (int i = 0; i < 8; i++) ts_ok(fy_matmul(x, x, &y));
    ts_ok(fy_stream_wait(side, fy_tensor_ticket(y)));
    assert_int_equal(fy_ticket_poll(fy_tensor_ticket(y)), FY_POLL_DONE);
}

TS_DEVICE_TEST(a_wait_times_out)
{
    fy_tensor_t *x = ts_iota(ctx->device, FY_DIMS(512, 512), 0), *y;
    for (int i = 0; i < 8; i++) ts_ok(fy_matmul(x, x, &y));
    fy_ticket_t ticket = fy_tensor_ticket(y);
    fy_status_t status = fy_ticket_wait(ticket, 0);
    if (ctx->is_sim) assert_int_equal(status, FY_STATUS_TIMEOUT);
    assert_true(status == FY_STATUS_OK || status == FY_STATUS_TIMEOUT);
    ts_ok(fy_ticket_wait(ticket, FY_FOREVER)); /* the device continued */
    assert_int_equal(fy_ticket_poll(ticket), FY_POLL_DONE);
    fy_status_t idle = fy_device_wait(ctx->device, FY_FOREVER);
    ts_ok(idle);
}

/* The same bytes alternately on two streams, many times: device-side waits alone keep the order. */
TS_DEVICE_TEST(streams_are_ordered_by_their_tensors)
{
    fy_stream_t *side = ts_stream(ctx->device);
    fy_tensor_t *x = ts_full(ctx->device, FY_DIMS(4096), 0),
                *y = ts_full(ctx->device, FY_DIMS(4096), 1);
    uint64_t syncs = ts_ledger(NULL).syncs;
    for (int i = 0; i < 50; i++) {
        fy_scope_t scope = fy_scope_begin("side");
        ts_ok(fy_stream_set_current(side));
        ts_ok(fy_axpy(x, 1, y)); /* side: x += y */
        fy_scope_end(scope, 0, NULL);
        ts_ok(fy_axpy(x, 1, y)); /* the compute stream: x += y */
    }
    assert_int_equal(ts_ledger(NULL).syncs, syncs);
    float values[4096];
    ts_read(x, values, sizeof values);
    for (int i = 0; i < 4096; i++) assert_true(values[i] == 100.0f);
}

TS_DEVICE_TEST(an_upload_is_ordered_before_a_side_stream)
{
    fy_stream_t *side = ts_stream(ctx->device);
    fy_scope_t scope = fy_scope_begin("side");
    ts_ok(fy_stream_set_current(side));
    fy_tensor_t *x = ts_iota(ctx->device, FY_DIMS(100000), 0), *sum, *host;
    ts_ok(fy_max(x, 0, NULL, 0, &sum));
    fy_tensor_destroy(x);
    (void)ts_submit_download(sum);
    fy_scope_end(scope, 1, (fy_tensor_t *[]){ sum });
    fy_stream_destroy(side);
    (void)host;
    double value = ts_value(sum);
    assert_true(value == 99999.0);
}

/* A block freed on one stream and reused on another must not be written before its last reader is
 * done. */
TS_DEVICE_TEST(reused_blocks_wait_on_the_device)
{
    fy_stream_t *side = ts_stream(ctx->device);
    fy_tensor_t *total = ts_full(ctx->device, FY_DIMS(20000), 0);
    for (int i = 1; i <= 20; i++) {
        fy_tensor_t *x = ts_full(ctx->device, FY_DIMS(20000), i), *y;
        fy_scope_t scope = fy_scope_begin("side");
        ts_ok(fy_stream_set_current(side));
        ts_ok(fy_axpy(total, 1, x)); /* side reads x */
        fy_scope_end(scope, 0, NULL);
        fy_tensor_destroy(x);
        /* possibly the same bytes */
        ts_ok(fy_full(ctx->device, FY_DTYPE_F32, FY_DIMS(20000), -1000, &y));
        fy_tensor_destroy(y);
    }
    float values[20000];
    ts_read(total, values, sizeof values);
    for (int i = 0; i < 20000; i++) assert_true(values[i] == 210.0f);
}

TS_DEVICE_TEST(the_current_stream_ends_with_its_scope)
{
    fy_ticket_t ticket;
    fy_tensor_t *x = ts_iota(ctx->device, FY_DIMS(100), 0), *y, *z;
    fy_stream_t *side = ts_stream(ctx->device);
    fy_scope_t outer = fy_scope_begin("outer");
    ts_ok(fy_stream_set_current(side));
    fy_scope_begin("inner"); /* inherits the stream */
    ts_ok(fy_neg(x, &y));
    ts_ok(fy_stream_record(side, &ticket));
    uint64_t stream = fy_tensor_ticket(y).stream;
    if (stream) assert_int_equal(stream, ticket.stream);
    fy_scope_end(outer, 0, NULL);
    ts_ok(fy_neg(x, &z));
    stream = fy_tensor_ticket(z).stream;
    if (stream) assert_int_not_equal(stream, ticket.stream);
    ts_fails(fy_stream_set_current(NULL), INVALID_ARGUMENT);
}

TS_DEVICE_TEST(native_addresses)
{
    fy_tensor_t *x = ts_iota(ctx->device, FY_DIMS(4, 8), 0), *row;
    void *base = NULL, *inside = NULL;
    fy_stream_t *stream = ts_stream(ctx->device);
    ts_ok(fy_slice(x, 0, 2, 3, &row));
    uint64_t version = ts_version(x);
    fy_ledger_totals_t before = ts_ledger(NULL);
    ts_ok(fy_tensor_begin_native_access(x, FY_ACCESS_READ, stream, &base));
    ts_ok(fy_tensor_begin_native_access(row, FY_ACCESS_READ, stream, &inside));
    assert_ptr_equal((char *)inside, (char *)base + 2 * 8 * 4);
    assert_int_equal(ts_version(x), version);
    ts_ok(fy_tensor_begin_native_access(x, FY_ACCESS_WRITE, stream, &base));
    assert_int_equal(ts_version(x), version + 1);
    ts_expect_quiet_since(&before, "native");
    fy_tensor_t *host = ts_host_f32(FY_DIMS(2), (float[]){ 1, 2 });
    /* a stream of another device */
    ts_fails(fy_tensor_begin_native_access(host, FY_ACCESS_READ, stream, &base), INVALID_ARGUMENT);
    assert_null(base);
}

TS_DEVICE_TEST(overlap_shows_on_the_clock)
{
    enum { N = 1 << 22 }; /* 16 MiB */
    (void)ctx;
    fy_device_t *device = ts_open("sim:6?capacity=256MiB");
    fy_tensor_t *pinned = ts_pinned(device, N), *a = ts_full(device, FY_DIMS(N), 0),
                *b = ts_full(device, FY_DIMS(512, 512), 0), *c;
    const fy_device_clock_t before = ts_clock(device);
    fy_ticket_t ticket;
    ts_ok(fy_tensor_upload_into(a, pinned, &ts_borrow, &ticket)); /* upload engine */
    for (int i = 0; i < 20; i++) ts_ok(fy_matmul(b, b, &c));      /* compute engine, other bytes */
    const fy_device_clock_t after = ts_clock(device);
    uint64_t upload = after.upload_ns - before.upload_ns,
             compute = after.compute_ns - before.compute_ns;
    assert_true(upload > 0 && compute > 0);
    /* concurrently, not sequentially */
    assert_true(after.now_ns - before.now_ns < upload + compute);
}

/* Model time from now until all work of `body` is done, and the busy time of each engine in it. */
typedef struct span {
    uint64_t total, compute, upload, download;
} span_t;

static span_t span_of(fy_device_t *device, void (*body)(fy_tensor_t **t), fy_tensor_t **t)
{
    const fy_device_clock_t a = ts_clock(device);
    body(t);
    const fy_device_clock_t b = ts_clock(device);
    return (span_t){ b.now_ns - a.now_ns, b.compute_ns - a.compute_ns, b.upload_ns - a.upload_ns,
                     b.download_ns - a.download_ns };
}

/* t: pinned host bytes, a tensor of that size, a small one for compute work, a target for
 * results */
static void upload_then_read(fy_tensor_t **t)
{
    fy_ticket_t ticket;
    ts_ok(fy_tensor_upload_into(t[1], t[0], &ts_borrow, &ticket));
    for (int i = 0; i < 20; i++) ts_ok(fy_axpy(t[2], 1, t[1])); /* reads the uploaded bytes */
}

static void read_then_upload(fy_tensor_t **t)
{
    fy_ticket_t ticket;
    for (int i = 0; i < 20; i++) ts_ok(fy_axpy(t[2], 1, t[1]));
    /* must not overwrite bytes that are still being read */
    ts_ok(fy_tensor_upload_into(t[1], t[0], &ts_borrow, &ticket));
}

static void write_then_download(fy_tensor_t **t)
{
    for (int i = 0; i < 20; i++) ts_ok(fy_axpy(t[1], 1, t[2]));
    fy_download_t *download = ts_submit_download(t[1]);
    fy_download_destroy(download);
}

static void download_then_write(fy_tensor_t **t)
{
    fy_download_t *download = ts_submit_download(t[1]);
    fy_download_destroy(download);
    for (int i = 0; i < 20; i++) ts_ok(fy_axpy(t[1], 1, t[2]));
}

static void two_alternating_streams(fy_tensor_t **t)
{
    fy_stream_t *side = ts_stream(ts_info(t[1]).device);
    for (int i = 0; i < 10; i++) {
        fy_scope_t scope = fy_scope_begin("side");
        ts_ok(fy_stream_set_current(side));
        ts_ok(fy_axpy(t[2], 1, t[1])); /* side writes t2 */
        fy_scope_end(scope, 0, NULL);
        ts_ok(fy_axpy(t[1], 1, t[2])); /* compute reads t2, writes t1, which side reads next */
    }
    fy_stream_destroy(side);
}

/* Requests that use the same bytes run sequentially: the span is at least the sum of the busy
 * times. */
TS_DEVICE_TEST(dependence_shows_on_the_clock)
{
    enum { N = 1 << 22 };
    (void)ctx;
    fy_tensor_t *t[3];
    fy_device_t *device = ts_open("sim:6?capacity=256MiB");
    ts_ok(fy_tensor_create_pinned(device, FY_DTYPE_F32, FY_DIMS(N), &t[0]));
    ts_ok(fy_zeros(device, FY_DTYPE_F32, FY_DIMS(N), &t[1]));
    ts_ok(fy_zeros(device, FY_DTYPE_F32, FY_DIMS(N), &t[2]));
    static const struct {
        const char *name;
        void (*body)(fy_tensor_t **t);
    } rows[] = { { "upload, then read", upload_then_read },
                 { "read, then upload", read_then_upload },
                 { "write, then download", write_then_download },
                 { "download, then write", download_then_write },
                 { "two alternating streams", two_alternating_streams } };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        span_t s = span_of(device, rows[i].body, t);
        uint64_t sum = s.compute + s.upload + s.download;
        if (s.compute == 0 || s.total < sum) {
            fail_msg("%s: %llu ns, but the engines were busy %llu + %llu + %llu ns: something ran "
                     "too early",
                     rows[i].name, (unsigned long long)s.total, (unsigned long long)s.compute,
                     (unsigned long long)s.upload, (unsigned long long)s.download);
        }
    }
}

/* Elsewhere the application has no queues beside Ferry's: tests/unit/cuda/test_native.c. */
TS_DEVICE_TEST(foreign_events_need_native_queues)
{
    uint64_t word = 0;
    ts_fails_with(fy_native_event_record(ctx->device, NULL, &word), UNSUPPORTED,
                  "no native queues");
    ts_fails(fy_native_event_wait(ctx->device, NULL, &word), UNSUPPORTED);
    ts_fails(fy_native_timeline_signal(ctx->device, NULL, &word, 1), UNSUPPORTED);
    ts_fails(fy_native_timeline_wait(ctx->device, NULL, &word, 1), UNSUPPORTED);
    ts_fails(fy_native_timeline_wait(NULL, NULL, &word, 1), INVALID_ARGUMENT);
    assert_int_equal(word, 0);
}

#define ONE_STREAM "the host has one stream, inside the call"
static const ts_exclusion_t k_exclusions[] = {
    { "!host", "the_host_has_one_stream", "only the host has no streams to create" },
    { "host", "create_and_destroy", ONE_STREAM },
    { "host", "marks_are_points_on_a_timeline", ONE_STREAM },
    { "host", "a_stream_waits_for_a_ticket", ONE_STREAM },
    { "host", "streams_are_ordered_by_their_tensors", ONE_STREAM },
    { "host", "an_upload_is_ordered_before_a_side_stream", ONE_STREAM },
    { "host", "reused_blocks_wait_on_the_device", ONE_STREAM },
    { "host", "the_current_stream_ends_with_its_scope", ONE_STREAM },
    { "host", "native_addresses", ONE_STREAM },
    { "cuda", "foreign_events_need_native_queues", "it has them" },
    { "!sim", "overlap_shows_on_the_clock",
      "model time is the simulator's; overlap on a GPU is measured in bench/" },
    { "!sim", "dependence_shows_on_the_clock", "model time is the simulator's" },
    { NULL, NULL, NULL },
};

TS_SUITE(.exclusions = k_exclusions);
