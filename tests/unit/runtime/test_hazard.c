/* runtime/hazard and runtime/stream from inside: the hazard words before and after requests, the
 * queries of a pool, old tickets after their stream's slot was reused. The orders themselves:
 * tests/conformance/test_stream.c. */
#include "runtime/order/hazard.h"
#include "runtime/order/stream.h"
#include "tests/support/harness.h"

static fy_device_t *g_device;

static int open_device(void **state)
{
    (void)state;
    g_device = ts_open("sim:9");
    return 0;
}

TS_TEST(points_pack)
{
    fy__point_t point = FY__POINT(511, 0xFFFFFFFFFFFFull);
    assert_int_equal(FY__POINT_STREAM(point), 511);
    assert_int_equal(FY__POINT_SEQ(point), 0xFFFFFFFFFFFFull);
    assert_true(fy__point_reached(0));
    ts_ok(fy__point_wait(0, 0, FY__WAIT_NONE));
}

/* Keeps the compute stream busy (model time) and returns the point behind that work. */
static fy__point_t busy(fy_tensor_t **out)
{
    fy_tensor_t *x = ts_full(g_device, FY_DIMS(1024, 1024), 0);
    ts_ok(fy_matmul(x, x, out));
    fy_tensor_destroy(x);
    fy_ticket_t ticket = fy_tensor_ticket(*out);
    return FY__POINT(ticket.stream, ticket.seq);
}

TS_TEST(hazard_words_follow_the_requests)
{
    fy_tensor_t *x;
    fy__point_t point = busy(&x);
    fy__hazard_t hazard, copy;
    fy__hazard_clear(&hazard);
    assert_true(fy__hazard_done(&hazard));
    fy__hazard_written(&hazard, point);
    assert_false(fy__hazard_done(&hazard));
    assert_true(fy__hazard_only_on(&hazard, FY__POINT_STREAM(point)));
    assert_false(fy__hazard_only_on(&hazard, g_device->upload->index));
    fy__hazard_copy(&copy, &hazard);
    assert_false(fy__hazard_done(&copy));
    assert_int_equal(fy__hazard_wait(&hazard, 0), FY_STATUS_TIMEOUT);
    ts_ok(fy__hazard_wait(&hazard, FY_FOREVER));
    assert_true(fy__hazard_done(&copy)); /* the same point */
    assert_true(fy__hazard_only_on(&copy, 12345));
    fy_tensor_destroy(x);
}

TS_TEST(a_write_stands_for_all_before_it)
{
    fy__hazard_t hazard;
    fy__hazard_clear(&hazard);
    fy__hazard_read(&hazard, g_device->compute, FY__POINT(g_device->compute->index, 5));
    /* reported late: the later number stays */
    fy__hazard_read(&hazard, g_device->compute, FY__POINT(g_device->compute->index, 4));
    fy__hazard_read(&hazard, g_device->download, FY__POINT(g_device->download->index, 9));
    assert_int_equal(FY__POINT_SEQ(hazard.readers[g_device->compute->reader]), 5);
    assert_int_equal(FY__POINT_SEQ(hazard.readers[g_device->download->reader]), 9);
    fy__hazard_written(&hazard, FY__POINT(g_device->compute->index, 6));
    for (int i = 0; i < FY__READER_COUNT; i++) assert_int_equal(hazard.readers[i], 0);
    assert_int_equal(FY__POINT_SEQ(hazard.writer), 6);
}

TS_TEST(old_tickets_read_as_done)
{
    fy_ticket_t first, ticket;
    fy_stream_t *stream = ts_stream(g_device);
    ts_ok(fy_stream_record(stream, &first));
    uint32_t slot = stream->index;
    fy_stream_destroy(stream);
    for (int i = 0; i < 3 * FY__MAX_STREAMS; i++) { /* slots are reused; their numbers continue */
        ts_ok(fy_stream_create(g_device, NULL, &stream));
        ts_ok(fy_stream_record(stream, &ticket));
        if (stream->index == slot && ticket.stream == first.stream)
            assert_true(ticket.seq >= first.seq);
        fy_stream_destroy(stream);
        assert_int_equal(fy_ticket_poll(first), FY_POLL_DONE);
    }
    ts_ok(fy_ticket_wait(first, FY_FOREVER));
    ts_ok(fy_ticket_wait(ticket, FY_FOREVER));
}

/* Bytes are pending on a stream, not on a handle that can be reused (rmm#2252). While the work of a
 * destroyed stream runs, no new stream reuses its slot, and its bytes are ready only after a
 * wait. */
TS_TEST(a_new_stream_is_not_the_destroyed_one)
{
    fy_stream_t *stream = ts_stream(g_device);
    ts_ok(fy_stream_set_current(stream));
    fy_tensor_t *a = ts_full(g_device, FY_DIMS(256, 256), 1), *b;
    ts_ok(fy_matmul(a, a, &b));
    const uint32_t slot = stream->index;
    fy__hazard_t used = { 0 };
    atomic_store(&used.writer, fy__stream_submitted(stream));
    fy_stream_destroy(stream);
    fy_tensor_destroy(a);
    fy_tensor_destroy(b);
    ts_ok(fy_stream_create(g_device, NULL, &stream));
    assert_int_not_equal(stream->index, slot);
    assert_false(fy__hazard_only_on(&used, stream->index));
    fy_stream_destroy(stream);
    /* now the slot can be reused: nothing is pending on it */
    ts_ok(fy__hazard_wait(&used, FY_FOREVER));
    ts_ok(fy_stream_create(g_device, NULL, &stream));
    assert_int_equal(stream->index, slot);
    assert_true(fy__stream_submitted(stream) >=
                atomic_load(&used.writer)); /* its numbers continue */
}

TS_TEST(all_stream_slots_can_be_used)
{
    static fy_stream_t *streams[FY__MAX_STREAMS];
    int n = 0;
    fy_status_t status = FY_STATUS_OK;
    while (n < FY__MAX_STREAMS &&
           (status = fy_stream_create(g_device, NULL, &streams[n])) == FY_STATUS_OK)
        n++;
    assert_int_not_equal(
        status, FY_STATUS_OK); /* at least three slots belong to the device's own streams */
    assert_true(n > 64);
    for (int i = 0; i < n; i++) fy_stream_destroy(streams[i]);
    fy_stream_destroy(ts_stream(g_device));
}

TS_SUITE(.set_up = open_device);
