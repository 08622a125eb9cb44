/* Tests of backends/sim/script.c and of the effect of its items: each kind once, permanently, and
 * set on an open device. */
#include "tests/unit/sim/fixture.h"

#include "backends/executed.h"
#include "backends/sim/clock.h"
#include "backends/sim/sim.h"

static const char *const orders[] = { "order=eager", "order=lazy", "order=random" };

TS_TEST(every_item_is_read)
{
    fy__sim_script_t script;
    sim_ok(fy__sim_script_parse("sim:0", "", &script));
    assert_int_equal(script.nitems, 0);
    sim_ok(fy__sim_script_parse("sim:0", "copy@3+launch@7*+lost@40+slow@2:15us+alloc@1", &script));
    assert_int_equal(script.nitems, 5);
    assert_int_equal(script.items[0].kind, FY__SIM_FAULT_COPY);
    assert_int_equal(script.items[1].nth, 7);
    assert_true(script.items[1].for_ever && !script.items[2].for_ever);
    assert_int_equal(script.items[3].slow_ns, 15000);
    assert_true(fy__sim_script_has(&script, FY__SIM_FAULT_ALLOC));
    sim_ok(fy__sim_script_parse("sim:0", "slow@1*:2s", &script));
    assert_int_equal(script.items[0].slow_ns, 2000000000);
    assert_false(fy__sim_script_has(&script, FY__SIM_FAULT_ALLOC));
}

TS_TEST(bad_items_are_named)
{
    static const char *const bad[] = { "copy",
                                       "copy@",
                                       "copy@0",
                                       "copy@x",
                                       "copy@-1",
                                       "copy@3**",
                                       "copy@3:2ms",
                                       "slow@3",
                                       "slow@3:",
                                       "slow@3:2",
                                       "slow@3:2min",
                                       "slow@:2s",
                                       "launch@1,launch@2",
                                       "sync@1",
                                       "copy@1+",
                                       "+copy@1",
                                       "copy@1++copy@2",
                                       "copy @1",
                                       "lost@99999999999999999999999" };
    fy__sim_script_t script;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        said[0] = 0;
        if (fy__sim_script_parse("sim:0", bad[i], &script) != FY_STATUS_INVALID_ARGUMENT)
            print_error("taken: %s\n", bad[i]);
        assert_non_null(strstr(said, "slow@N:DURATION"));
    }
    sim_fails_with(fy__sim_script_parse("sim:0", "copy@1+bang@2", &script), INVALID_ARGUMENT,
                   "'bang@2' is no item");
    void *dev;
    sim_fails(try_open(0, &dev, (const char *const[]){ "faults=bang@2", NULL }), INVALID_ARGUMENT);
    assert_null(dev);
}

TS_TEST(the_nth_allocation_fails)
{
    void *dev = OPEN(0, "capacity=65536", "faults=alloc@2+alloc@4*"), *block[5] = { 0 };
    static const fy_status_t want[5] = { FY_STATUS_OK, FY_STATUS_OUT_OF_MEMORY, FY_STATUS_OK,
                                         FY_STATUS_OUT_OF_MEMORY, FY_STATUS_OUT_OF_MEMORY };
    for (int i = 0; i < 5; i++) assert_int_equal(sim->alloc(dev, 256, &block[i]), want[i]);
    assert_non_null(strstr(said, "allocation 5"));
    assert_null(block[4]);
    sim_fails(fy__sim_set_faults(dev, "alloc@x"), INVALID_ARGUMENT);
    /* the previous script stays */
    sim_fails(sim->alloc(dev, 256, &block[4]), OUT_OF_MEMORY);
    sim_ok(fy__sim_set_faults(dev, ""));
    sim_ok(sim->alloc(dev, 256, &block[1]));
    for (int i = 0; i < 3; i++) sim->free(dev, block[i], 256);
    sim->device_close(dev);
}

/* Page-locked memory, streams and events are allocations too. */
TS_TEST(every_kind_of_allocation_fails)
{
    static char host[2][4096];
    void *stream[3], *event[3];
    void *dev = OPEN(0, "faults=pin@2+stream@2+event@1*");
    sim_ok(sim->register_host(dev, host[0], sizeof host[0]));
    sim_fails_with(sim->register_host(dev, host[1], sizeof host[1]), OUT_OF_MEMORY,
                   "registration of host memory 2 fails, as the device's faults= says");
    sim_ok(sim->register_host(dev, host[1], sizeof host[1]));
    sim_ok(sim->stream_create(dev, FY_STREAM_COMPUTE, 0, NULL, &stream[0]));
    sim_fails(sim->stream_create(dev, FY_STREAM_COMPUTE, 0, NULL, &stream[1]), OUT_OF_MEMORY);
    assert_null(stream[1]);
    sim_ok(sim->stream_create(dev, FY_STREAM_COMPUTE, 0, NULL, &stream[2]));
    for (int i = 0; i < 3; i++) {
        sim_fails(sim->event_create(dev, &event[i]), OUT_OF_MEMORY);
        assert_null(event[i]);
    }
    for (int i = 0; i < 2; i++) sim->unregister_host(dev, host[i], sizeof host[i]);
    sim->stream_destroy(dev, stream[0]);
    sim->stream_destroy(dev, stream[2]);
    sim->device_close(dev);
}

static unsigned char pinned[4096];
static uint32_t *const flag = (uint32_t *)(void *)(pinned + 4092);

static world_t begin(const char *order, const char *faults)
{
    memset(pinned, 0, sizeof(pinned));
    return MAKE_WORLD(0, 4096, pinned, sizeof(pinned), "capacity=65536", order, faults);
}

static fy_status_t flagged(world_t *w, fy_copy_kind_t kind, void *dst, const void *src)
{
    fy_copy_t record = {
        .kind = kind, .host_pinned = 1, .dst = dst, .src = src, .nbytes = 64, .fault = flag
    };
    return sim->copy(w->dev, w->stream[0], &record);
}

TS_TEST(a_copy_fails_when_it_runs)
{
    for (int i = 0; i < 3; i++) {
        world_t w = begin(orders[i], "faults=copy@2+copy@3");
        fy__executed_t before, after;
        fy_backend_info_t info;
        sim->device_query(w.dev, &info);
        assert_int_equal(info.copies_can_fault, 1);
        fy__executed_read(&before);
        memset(pinned, 1, 64);
        sim_ok(flagged(&w, FY_COPY_UPLOAD, w.block, pinned));
        /* not counted */
        sim_ok(flagged(&w, FY_COPY_LOCAL, w.block + 128, w.block));
        drain(w.dev, w.stream[0]);
        assert_int_equal(*flag, 0);
        sim_ok(flagged(&w, FY_COPY_UPLOAD, w.block, pinned));
        if (i < 2) assert_int_equal(*flag, i == 0 ? 1 : 0); /* random: either */
        drain(w.dev, w.stream[0]);
        assert_int_equal(*flag, 1);
        *flag = 0;
        sim_ok(flagged(&w, FY_COPY_DOWNLOAD, pinned + 128, w.block + 128));
        drain(w.dev, w.stream[0]);
        assert_int_equal(*flag, 1);
        for (int k = 0; k < 64; k++) assert_int_equal(pinned[128 + k], 0xDC);
        *flag = 0;
        sim_ok(flagged(&w, FY_COPY_DOWNLOAD, pinned + 128, w.block + 128));
        sim_ok(flagged(&w, FY_COPY_DOWNLOAD, pinned + 256, w.block));
        drain(w.dev, w.stream[0]);
        assert_int_equal(*flag, 0);
        assert_int_equal(pinned[128], 1);
        assert_int_equal(pinned[256], 0xDC); /* the bytes that the failed upload left */
        fy__executed_read(&after);
        assert_int_equal(after.copies[FY_COPY_UPLOAD] - before.copies[FY_COPY_UPLOAD], 1);
        assert_int_equal(after.failed_copies[FY_COPY_UPLOAD] - before.failed_copies[FY_COPY_UPLOAD],
                         1);
        assert_int_equal(after.nbytes[FY_COPY_DOWNLOAD] - before.nbytes[FY_COPY_DOWNLOAD], 128);
        assert_int_equal(
            after.failed_nbytes[FY_COPY_DOWNLOAD] - before.failed_nbytes[FY_COPY_DOWNLOAD], 64);
        end_world(&w);
    }
    fy_backend_info_t info;
    void *dev = OPEN(0, "faults=launch@1");
    sim->device_query(dev, &info);
    assert_int_equal(info.copies_can_fault, 0);
    sim->device_close(dev);
}

TS_TEST(a_failed_copy_without_a_flag_loses_the_device)
{
    for (int i = 0; i < 3; i++) {
        world_t w = begin(orders[i], "faults=copy@1");
        unsigned char pageable[64];
        sim_fails(copy(w.dev, w.stream[0], FY_COPY_DOWNLOAD, 0, pageable, w.block, 64),
                  DEVICE_LOST);
        assert_int_equal(pageable[63], 0xDC);
        end_world(&w);
    }
}

static fy_status_t do_nothing(const fy_launch_t *launch, void *stream)
{
    return (void)launch, (void)stream, FY_STATUS_OK;
}

static fy_status_t launch(world_t *w)
{
    fy_desc_t dst = { .data = w->block, .dtype = FY_DTYPE_I32 };
    fy_launch_t record = launch_into(&dst, FY_OP_BUILTIN_COUNT, do_nothing);
    return sim->launch(w->dev, w->stream[0], &record);
}

TS_TEST(launches_fail_when_submitted)
{
    for (int i = 0; i < 3; i++) {
        world_t w = begin(orders[i], "faults=launch@2*");
        sim_ok(launch(&w));
        uint64_t now = fy__sim_clock_now();
        sim_fails_with(launch(&w), INTERNAL,
                       "launch 2, a registered op, fails, as the device's faults= says");
        assert_int_equal(fy__sim_clock_now(), now);
        sim_ok(sim->fill(w.dev, w.stream[0], w.block, 1, 64));
        sim_fails(launch(&w), INTERNAL);
        drain(w.dev, w.stream[0]);
        /* counted from now */
        sim_ok(fy__sim_set_faults(w.dev, "launch@2"));
        sim_ok(launch(&w));
        sim_fails(launch(&w), INTERNAL);
        sim_ok(launch(&w));
        drain(w.dev, w.stream[0]);
        end_world(&w);
    }
}

TS_TEST(a_lost_device_answers_lost_and_drops_its_work)
{
    uint64_t violations = fy__sim_violations();
    for (int i = 0; i < 3; i++) {
        world_t w = begin(orders[i], "faults=lost@3");
        void *event = w.event[0], *out;
        int done;
        fy_backend_info_t info;
        fy__executed_t before, after;
        fy__executed_read(&before);
        sim->fill(w.dev, w.stream[0], w.block, 6, 64);
        sim_ok(flagged(&w, FY_COPY_DOWNLOAD, pinned, w.block));
        sim_ok(sim->event_record(w.dev, event, w.stream[0]));
        sim_fails_with(sim->fill(w.dev, w.stream[0], w.block, 7, 64), DEVICE_LOST,
                       "sim:0 is lost: its faults= says so at request 3, fill");
        if (i == 1) assert_int_equal(pinned[0], 0xDC);
        fy__executed_read(&after); /* every failed copy is counted */
        assert_int_equal(after.copies[FY_COPY_DOWNLOAD] + after.failed_copies[FY_COPY_DOWNLOAD],
                         before.copies[FY_COPY_DOWNLOAD] + before.failed_copies[FY_COPY_DOWNLOAD] +
                             1);
        sim_fails(sim->event_query(w.dev, event, &done), DEVICE_LOST);
        sim_fails(sim->event_peek(w.dev, event, &done), DEVICE_LOST);
        sim_fails(sim->event_sync(w.dev, event, FY_FOREVER), DEVICE_LOST);
        sim_fails(sim->event_record(w.dev, event, w.stream[0]), DEVICE_LOST);
        sim_fails(sim->event_wait(w.dev, w.stream[0], event), DEVICE_LOST);
        sim_fails(sim->event_create(w.dev, &out), DEVICE_LOST);
        sim_fails(sim->stream_create(w.dev, FY_STREAM_COMPUTE, 0, NULL, &out), DEVICE_LOST);
        sim_fails(sim->alloc(w.dev, 64, &out), DEVICE_LOST);
        sim_fails(sim->register_host(w.dev, &info, sizeof(info)), DEVICE_LOST);
        sim_fails(sim->device_query(w.dev, &info), DEVICE_LOST);
        sim_fails(flagged(&w, FY_COPY_UPLOAD, w.block, pinned), DEVICE_LOST);
        sim_fails(launch(&w), DEVICE_LOST);
        end_world(&w);
    }
    assert_int_equal(fy__sim_violations(), violations);
}

TS_TEST(a_slow_request_only_takes_longer)
{
    uint64_t spans[2][3];
    for (int i = 0; i < 2; i++) {
        world_t w =
            begin("order=eager", i == 0 ? "faults=alloc@9" : "faults=slow@2:2ms+slow@2:1us");
        for (int k = 0; k < 3; k++) {
            uint64_t start, finish;
            sim_ok(sim->fill(w.dev, w.stream[0], w.block, 1, 64));
            sim->request_span(w.dev, &start, &finish);
            spans[i][k] = finish - start;
        }
        drain(w.dev, w.stream[0]);
        end_world(&w);
    }
    assert_int_equal(spans[1][0], spans[0][0]);
    assert_int_equal(spans[1][1], spans[0][1] + 2001000);
    assert_int_equal(spans[1][2], spans[0][2]);
}

TS_SUITE(.begin = open_backend, .tear_down = end_worlds);
