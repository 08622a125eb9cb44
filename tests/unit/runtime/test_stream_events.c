/* Events of a stream: a full event list still serves new waiters while other threads wait. Readers
 * on two streams are both waited for. The last work on a wrapped queue counts. */
#include "runtime/order/stream.h"
#include "runtime/tensor/storage.h"
#include "runtime/tensor/tensor.h"
#include "tests/support/harness.h"

static fy_tensor_t *slow(fy_device_t *device)
{
    fy_tensor_t *a = ts_full(device, FY_DIMS(256, 256), 1), *b;
    ts_ok(fy_matmul(a, a, &b));
    return b;
}

TS_DEVICE_TEST(a_full_list_with_one_waiter_is_not_busy)
{
    fy_stream_t *stream = ctx->device->compute;
    fy_ticket_t first, ticket;
    fy__stream_event_t *newest;
    if (!stream) skip();
    slow(ctx->device);
    ts_ok(fy_stream_record(stream, &first));
    for (int i = 0; i < 2 * FY__STREAM_EVENTS && stream->nevents < FY__STREAM_EVENTS; i++) {
        slow(ctx->device);
        fy__stream_anchor(stream);
    }
    assert_int_equal(stream->nevents, FY__STREAM_EVENTS);
    newest = &stream->events[FY__STREAM_EVENTS - 1];
    newest->waiters++; /* another thread waits on it */
    void *waited_for = newest->event;
    const uint64_t seq = newest->seq;
    slow(ctx->device);
    ts_ok(fy_stream_record(stream, &ticket));
    ts_ok(fy_ticket_wait(ticket, FY_FOREVER));
    assert_int_equal(fy_ticket_poll(first), FY_POLL_DONE);
    for (uint32_t i = 0; i < stream->nevents; i++) {
        if (stream->events[i].event != waited_for) continue;
        assert_int_equal(stream->events[i].seq, seq); /* it was not replaced under the waiter */
        stream->events[i].waiters--;
    }
}

/* Two threads read one tensor at the same moment, each on its own stream. Each reads the hazard
 * words before the other writes its own. */
TS_DEVICE_TEST(two_readers_at_once_are_both_waited_for)
{
    fy__hazard_t hazard = { 0 };
    if (ctx->is_host) skip();
    fy_stream_t *one = ts_stream(ctx->device), *two = ts_stream(ctx->device);
    ts_ok(fy__hazard_before_read(&hazard, one, FY__WAIT_NONE));
    ts_ok(fy__hazard_before_read(&hazard, two, FY__WAIT_NONE));
    ts_ok(fy_stream_set_current(one));
    slow(ctx->device);
    const fy__point_t long_read = fy__stream_submitted(one), short_read = fy__stream_submitted(two);
    fy__hazard_read(&hazard, one, long_read);
    fy__hazard_read(&hazard, two, short_read);
    ts_ok(fy__hazard_wait(&hazard, FY_FOREVER));
    fy_device_clock_t clock = ts_clock_now(ctx->device);
    const uint64_t before_ns = clock.now_ns;
    ts_ok(fy__point_wait(long_read, FY_FOREVER, FY__WAIT_NONE));
    clock = ts_clock_now(ctx->device);
    /* the first one is over already: a matmul takes longer than a poll */
    assert_true(clock.now_ns - before_ns < 50000);
}

TS_DEVICE_TEST(a_borrowed_stream_that_is_destroyed_is_not_restored)
{
    if (ctx->is_host) skip();
    fy_stream_t *one = ts_stream(ctx->device), *two = ts_stream(ctx->device);
    fy_scope_t outer = fy_scope_begin("outer");
    ts_ok(fy_stream_set_current(one));
    fy_scope_t inner = fy_scope_begin("inner");
    ts_ok(fy_stream_set_current(two));
    fy_stream_destroy(one);
    fy_scope_end(inner, 0, NULL); /* must not set the destroyed stream again */
    slow(ctx->device);
    fy_scope_end(outer, 0, NULL);
    ts_ok(fy_device_wait(ctx->device, FY_FOREVER));
}

TS_DEVICE_TEST(an_invalid_ticket_is_refused)
{
    fy_ticket_t ticket;
    if (ctx->is_host) skip();
    ts_ok(fy_stream_record(ctx->device->compute, &ticket));
    ticket.seq += 1000;
    ts_fails(fy_ticket_wait(ticket, FY_FOREVER), INVALID_ARGUMENT);
    assert_int_equal(fy_ticket_poll(ticket), FY_POLL_FAILED);
    ticket.seq = 0; /* numbers begin with 1 */
    ts_fails(fy_ticket_wait(ticket, FY_FOREVER), INVALID_ARGUMENT);
}

/* The user adds work to a wrapped queue after fy_tensor_begin_native_access, behind an event that
 * Ferry recorded before. */
TS_DEVICE_TEST(bytes_stay_busy_until_a_wrapped_queue_is_empty)
{
    void *address;
    if (ctx->is_host) skip();
    fy_stream_t *stream = ts_stream(ctx->device);
    stream->foreign = true; /* as if it wrapped a queue: sim has none to wrap */
    fy_tensor_t *tensor = ts_empty(ctx->device, FY_DTYPE_F32, FY_DIMS(1000));
    ts_ok(fy_tensor_begin_native_access(tensor, FY_ACCESS_WRITE, stream, &address));
    fy__stream_anchor(stream);
    ts_ok(fy_device_wait(ctx->device, FY_FOREVER)); /* everything up to that event is done */
    fy_scope_t scope = fy_scope_begin("user's kernel");
    ts_ok(fy_stream_set_current(stream));
    slow(ctx->device);
    atomic_fetch_sub(&stream->submitted, 2); /* as if Ferry had not seen them: fill and matmul */
    fy_tensor_destroy(tensor);
    const fy_memory_stats_t stats = ts_memory(ctx->device, NULL);
    assert_true(stats.pending >= 4000);
    atomic_fetch_add(&stream->submitted, 2);
    fy_scope_end(scope, 0, NULL);
}

/* A request on a wrapped queue is done independently of later work in that queue; its callback must
 * report that. */
TS_DEVICE_TEST(a_request_on_a_wrapped_queue_has_its_own_status)
{
    fy_ticket_t ticket;
    if (ctx->is_host) skip();
    fy_stream_t *stream = ts_stream(ctx->device);
    ts_ok(fy_stream_set_current(stream));
    slow(ctx->device);
    ts_ok(fy_stream_record(stream, &ticket));
    ts_ok(fy_ticket_wait(ticket, FY_FOREVER));
    atomic_store(&stream->foreign, true);
    slow(ctx->device);
    ts_ok(fy__point_status(FY__POINT(ticket.stream, ticket.seq), "callback"));
    atomic_store(&stream->foreign, false);
}
