/* Tests of backends/sim/order.c and queue.c: when bytes change. Eager: at submission. Lazy: not
 * before an access could observe it, then every request that must precede, and no other. Work of a
 * destroyed stream or closed device still runs. Memory freed too early is counted.
 * test_schedule.c tests the random order. */
#include "tests/unit/sim/fixture.h"

#include "backends/sim/order.h"
#include "backends/sim/queue.h"

static unsigned char pinned[8192]; /* registered with the device of the last `begin` */

static world_t begin(int index, const char *order)
{
    memset(pinned, 0, sizeof(pinned));
    return MAKE_WORLD(index, 8192, pinned, sizeof(pinned), "capacity=65536", order);
}

static void record(world_t *w, int stream)
{
    sim_ok(sim->event_record(w->dev, w->event[stream], w->stream[stream]));
}

static void sync_on(world_t *w, int stream)
{
    record(w, stream);
    sim_ok(sim->event_sync(w->dev, w->event[stream], FY_FOREVER));
}

TS_TEST(orders_by_name)
{
    assert_string_equal(fy__sim_order_at(0)->name, "eager");
    for (size_t i = 0; fy__sim_order_at(i); i++)
        assert_ptr_equal(fy__sim_order_find(fy__sim_order_at(i)->name), fy__sim_order_at(i));
    assert_null(fy__sim_order_find("sideways"));
    assert_null(fy__sim_order_find(""));
}

TS_TEST(eager_changes_bytes_at_once)
{
    world_t w = begin(0, "order=eager");
    int done = 1;
    sim->fill(w.dev, w.stream[0], w.block, 7, 4096);
    copy(w.dev, w.stream[0], FY_COPY_LOCAL, 0, w.block + 4096, w.block, 4096);
    copy(w.dev, w.stream[0], FY_COPY_DOWNLOAD, 1, pinned, w.block + 4096, 4096);
    record(&w, 0);
    sim_ok(sim->event_query(w.dev, w.event[0], &done));
    assert_int_equal(done, 0);
    assert_int_equal(pinned[0], 7);
    assert_int_equal(pinned[4095], 7);
}

TS_TEST(lazy_reads_its_source_when_it_is_observed)
{
    world_t w = begin(0, "order=lazy");
    int done = 1;
    memset(pinned, 1, 64);
    copy(w.dev, w.stream[0], FY_COPY_UPLOAD, 1, w.block, pinned, 64);
    record(&w, 0);
    sim_ok(sim->event_query(w.dev, w.event[0], &done));
    assert_int_equal(done, 0);
    assert_int_equal(peep(&w, 0), 0);
    memset(pinned, 2, 64); /* too early: no wait has happened */
    sim_fails(sim->event_sync(w.dev, w.event[0], 1), TIMEOUT);
    assert_int_equal(peep(&w, 0), 0);
    sim_ok(sim->event_sync(w.dev, w.event[0], FY_FOREVER));
    assert_int_equal(peep(&w, 0), 2);
}

TS_TEST(a_query_that_reports_done_has_run_the_request)
{
    world_t w = begin(0, "order=lazy");
    fill(&w, 0, 0, 9);
    record(&w, 0);
    fill(&w, 0, 64, 9); /* behind the event: may stay pending */
    for (int done = 0; !done;) sim_ok(sim->event_query(w.dev, w.event[0], &done));
    assert_int_equal(peep(&w, 0), 9);
    assert_int_equal(peep(&w, 64), 0);
    sim->host_work(w.dev, 1u << 30, 0); /* longer than the other request */
    record(&w, 1);
    record(&w, 0);
    int done = 0;
    /* a request of another stream */
    sim_ok(sim->event_peek(w.dev, w.event[1], &done));
    assert_int_equal(done, 1);
    assert_int_equal(peep(&w, 64), 0);
    sim_ok(sim->event_peek(w.dev, w.event[0], &done));
    assert_int_equal(done, 1);
    assert_int_equal(peep(&w, 64), 9);
}

TS_TEST(downloads_hold_garbage_until_they_ran)
{
    world_t w = begin(0, "order=lazy");
    fill(&w, 0, 0, 5);
    copy(w.dev, w.stream[0], FY_COPY_DOWNLOAD, 1, pinned, w.block, 64);
    for (int i = 0; i < 64; i++) assert_int_equal(pinned[i], 0xDC);
    assert_int_equal(pinned[64], 0);
    sync_on(&w, 0);
    for (int i = 0; i < 64; i++) assert_int_equal(pinned[i], 5);
    /* An upload out of the same bytes that is still pending, and is ordered before the download,
     * must not get other bytes. */
    copy(w.dev, w.stream[0], FY_COPY_UPLOAD, 1, w.block + 128, pinned, 64);
    copy(w.dev, w.stream[0], FY_COPY_DOWNLOAD, 1, pinned, w.block + 512, 64);
    sync_on(&w, 0);
    assert_int_equal(peep(&w, 128), 5);
}

TS_TEST(pageable_copies_are_done_on_return)
{
    world_t w = begin(0, "order=lazy");
    unsigned char on_host[64];
    fill(&w, 1, 0, 3);
    record(&w, 1);
    sim_ok(sim->event_wait(w.dev, w.stream[0], w.event[1]));
    sim_ok(copy(w.dev, w.stream[0], FY_COPY_DOWNLOAD, 0, on_host, w.block, 64));
    assert_int_equal(on_host[63], 3);
}

/* Without a wait between them, requests of two streams may run in either order; lazy uses the
 * opposite of the submission order. */
TS_TEST(lazy_reorders_unordered_requests)
{
    world_t w = begin(0, "order=lazy");
    fill(&w, 0, 0, 1);
    fill(&w, 1, 0, 2);
    sync_on(&w, 1);
    assert_int_equal(peep(&w, 0), 2);
    sync_on(&w, 0);
    assert_int_equal(peep(&w, 0), 1);
}

TS_TEST(lazy_runs_only_the_required_requests)
{
    world_t w = begin(0, "order=lazy");
    fill(&w, 0, 0, 1);
    record(&w, 0);
    fill(&w, 0, 64, 1);  /* behind the event */
    fill(&w, 1, 128, 2); /* before the wait */
    sim_ok(sim->event_wait(w.dev, w.stream[1], w.event[0]));
    record(&w, 0); /* recording it again does not change the wait */
    fill(&w, 1, 0, 2);
    sync_on(&w, 1);
    assert_int_equal(peep(&w, 0), 2);
    assert_int_equal(peep(&w, 128), 2);
    assert_int_equal(peep(&w, 64), 0);
    sync_on(&w, 0);
    assert_int_equal(peep(&w, 0), 2);
    assert_int_equal(peep(&w, 64), 1);
}

/* Alternating between two streams, 20000 waits deep: the recursion must not need a stack frame for
 * each. */
TS_TEST(long_chains_of_waits)
{
    world_t w = begin(0, "order=lazy");
    for (int i = 0; i < 20000; i++) {
        fill(&w, i % 2, 0, i % 251);
        record(&w, i % 2);
        sim->event_wait(w.dev, w.stream[(i + 1) % 2], w.event[i % 2]);
    }
    assert_int_equal(peep(&w, 0), 0);
    sync_on(&w, 0);
    assert_int_equal(peep(&w, 0), 19999 % 251);
}

TS_TEST(waits_between_devices)
{
    static const char *const orders[] = { "order=eager", "order=lazy", "order=random" };
    for (int i = 0; i < 9; i++) {
        world_t a = begin(0, orders[i / 3]);
        world_t b = MAKE_WORLD(1, 64, NULL, 0, "capacity=65536", orders[i % 3]);
        char on_host[64];
        fill(&a, 0, 0, 6);
        record(&a, 0);
        sim_ok(sim->event_wait(b.dev, b.stream[0], a.event[0]));
        sim_ok(copy(b.dev, b.stream[0], FY_COPY_PEER, 0, b.block, a.block, 64));
        sim_ok(sim->event_record(b.dev, b.event[0], b.stream[0]));
        sim_ok(sim->event_wait(a.dev, a.stream[0], b.event[0]));
        fill(&a, 0, 0, 7);
        sim_ok(copy(b.dev, b.stream[0], FY_COPY_DOWNLOAD, 0, on_host, b.block, 64));
        assert_int_equal(on_host[0], 6);
        end_world(&a); /* while requests of b are pending */
        end_world(&b);
    }
}

TS_TEST(a_destroyed_streams_work_still_runs)
{
    uint64_t before = fy__sim_violations();
    world_t w = begin(0, "order=lazy");
    void *stream = make_stream(w.dev);
    sim->fill(w.dev, stream, w.block, 8, 64);
    sim->event_record(w.dev, w.event[0], stream);
    sim->stream_destroy(w.dev, stream);
    assert_int_equal(peep(&w, 0), 0);
    sim_ok(sim->event_sync(w.dev, w.event[0], FY_FOREVER));
    assert_int_equal(peep(&w, 0), 8);
    /* The same for a stream that is never waited for; it runs at the latest when the device
     * closes. */
    stream = make_stream(w.dev);
    copy(w.dev, stream, FY_COPY_DOWNLOAD, 1, pinned, w.block, 64);
    sim->stream_destroy(w.dev, stream);
    assert_int_equal(pinned[0], 0xDC);
    destroy_streams(&w);
    close_device(&w);
    assert_int_equal(pinned[0], 8);
    assert_int_equal(fy__sim_violations(), before);
}

TS_TEST(memory_under_a_request_is_a_violation)
{
    world_t w = begin(0, "order=lazy");
    uint64_t before = fy__sim_violations();
    static unsigned char buffer[64];
    unsigned char *block = make_block(w.dev, 4096);
    sim_ok(sim->register_host(w.dev, buffer, sizeof(buffer)));
    sim->fill(w.dev, w.stream[0], block + 4000, 4, 96);
    copy(w.dev, w.stream[0], FY_COPY_DOWNLOAD, 1, buffer, block + 4032, 64);
    fill(&w, 1, 0, 1);
    nlogged = 0;
    sim->free(w.dev, block, 4096); /* runs both, then frees */
    assert_int_equal(fy__sim_violations(), before + 1);
    assert_int_equal(nlogged, 1);
    assert_int_equal(buffer[63], 4);
    assert_int_equal(peep(&w, 0), 0); /* the other stream's request did not run */
    copy(w.dev, w.stream[0], FY_COPY_UPLOAD, 1, w.block + 64, buffer, 64);
    sim->unregister_host(w.dev, buffer, sizeof(buffer));
    assert_int_equal(fy__sim_violations(), before + 2);
    assert_int_equal(peep(&w, 64), 4);
    end_world(&w); /* the first wait runs it correctly */
    assert_int_equal(fy__sim_violations(), before + 2);
}

/* A registered kernel that writes the values of its attributes and its user pointer, and raises the
 * flag. */
typedef struct attrs {
    int32_t value;
} attrs_t;

static fy_status_t write_attrs(const fy_launch_t *launch, void *stream)
{
    (void)stream;
    *(int32_t *)launch->dst[0].data = ((const attrs_t *)launch->attrs)->value;
    if (launch->fault) *launch->fault = 1;
    return *(const fy_status_t *)launch->user;
}

static fy_status_t launch(world_t *w, uint64_t at, int32_t value, uint32_t *fault,
                          const fy_status_t *verdict)
{
    attrs_t attrs = { value };
    fy_desc_t dst = { .data = w->block + at, .dtype = FY_DTYPE_I32, .rank = 0 };
    fy_launch_t request = launch_into(&dst, FY_OP_BUILTIN_COUNT, write_attrs);
    request.attrs = &attrs;
    request.attrs_nbytes = sizeof(attrs);
    request.fault = fault;
    request.user = (void *)(uintptr_t)verdict;
    fy_status_t status = sim->launch(w->dev, w->stream[0], &request);
    attrs.value = -1; /* the caller may reuse its record */
    dst.data = NULL;
    return status;
}

TS_TEST(launches_copy_their_arguments)
{
    world_t w = begin(0, "order=lazy");
    static const fy_status_t fine = FY_STATUS_OK;
    uint32_t *fault = (uint32_t *)(void *)pinned;
    sim_ok(launch(&w, 0, 77, fault, &fine));
    assert_int_equal(*fault, 0);
    assert_int_equal(peep(&w, 0), 0);
    sync_on(&w, 0);
    assert_int_equal(*fault, 1);
    assert_int_equal(peep(&w, 0), 77);
}

TS_TEST(a_kernel_that_fails_late_loses_the_device)
{
    world_t w = begin(0, "order=lazy");
    static const fy_status_t bad = FY_STATUS_INTERNAL;
    int done;
    sim_ok(launch(&w, 0, 1, NULL, &bad));
    fill(&w, 0, 64, 1);
    record(&w, 0);
    sim_fails_with(sim->event_sync(w.dev, w.event[0], FY_FOREVER), DEVICE_LOST,
                   "request 1, a registered op, failed");
    assert_int_equal(peep(&w, 64), 0); /* dropped */
    sim_fails(sim->event_query(w.dev, w.event[0], &done), DEVICE_LOST);
    sim_fails(sim->fill(w.dev, w.stream[0], w.block, 1, 1), DEVICE_LOST);
}

TS_TEST(numerics_off_in_every_order)
{
    static const char *const orders[] = { "order=eager", "order=lazy", "order=random" };
    for (int i = 0; i < 3; i++) {
        void *dev = OPEN(0, "capacity=1099511627776", "numerics=off", orders[i]),
             *stream = make_stream(dev);
        char *block = make_block(dev, 1u << 30), on_host[8];
        static const fy_status_t fine = FY_STATUS_OK;
        world_t w = { .dev = dev, .stream = { stream }, .block = (unsigned char *)block };
        sim_ok(launch(&w, 0, 77, NULL, &fine));
        sim->fill(dev, stream, block, 1, 1u << 30);
        copy(dev, stream, FY_COPY_LOCAL, 0, block, block + 4096, 4096);
        memset(on_host, 1, sizeof(on_host));
        copy(dev, stream, FY_COPY_DOWNLOAD, 0, on_host, block, sizeof(on_host));
        assert_int_equal(on_host[7], 0);
        uint64_t before = fy__sim_violations();
        sim->fill(dev, stream, block, 1, 1u << 30);
        if (i == 1) { /* reported although there are no bytes */
            sim->free(dev, block, 1u << 30);
            assert_int_equal(fy__sim_violations(), before + 1);
        }
        sim->stream_destroy(dev, stream);
        sim->device_close(dev);
    }
}

TS_SUITE(.begin = open_backend, .tear_down = end_worlds);
