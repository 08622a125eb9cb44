/* Tests of backends/sim/clock.c, through the backend interface: exact model times. No wall clock is
 * read.
 * The figures are those of the h200 profile (test_profile.c): submit 5000 a copy and 1000 a launch,
 * set-up 500, kernel 2000, poll 200, wake 3500 ns; link 52 GB/s. The host's model time belongs to
 * the process, so every figure is a difference. */
#include "tests/unit/sim/fixture.h"

#include "backends/sim/clock.h"

enum {
    SUBMIT_COPY = 5000,
    SUBMIT_LAUNCH = 1000,
    SETUP = 500,
    KERNEL = 2000,
    POLL = 200,
    WAKE = 3500
};

static char host_memory[1 << 20];

enum { UP, COMPUTE, DOWN }; /* streams */

static world_t begin(int index)
{
    return MAKE_WORLD(index, 1ull << 39, host_memory, sizeof(host_memory), "capacity=1099511627776",
                      "numerics=off");
}

static fy_status_t run_nothing(const fy_launch_t *launch, void *stream)
{
    (void)launch, (void)stream;
    return FY_STATUS_OK;
}

/* A launch of `flops` f32 operations: 67 per picosecond. */
static void launch(world_t *w, uint64_t flops)
{
    fy_desc_t dst = dense_f32(w->block, 1);
    fy_launch_t record = launch_into(&dst, FY_OP_NONE, run_nothing);
    record.flops = flops;
    sim_ok(sim->launch(w->dev, w->stream[COMPUTE], &record));
}

static void chain(world_t *w, int from, int to)
{
    sim_ok(sim->event_record(w->dev, w->event[0], w->stream[from]));
    sim_ok(sim->event_wait(w->dev, w->stream[to], w->event[0]));
}

static uint64_t now(void) { return fy__sim_clock_now(); }

TS_TEST(submitting_costs_only_the_submission_time)
{
    world_t w = begin(0);
    uint64_t start = now();
    launch(&w, 67000000000000);
    assert_int_equal(now() - start, SUBMIT_LAUNCH);
    sim_ok(copy(w.dev, w.stream[UP], FY_COPY_UPLOAD, 1, w.block, host_memory, 52000));
    assert_int_equal(now() - start, SUBMIT_LAUNCH + SUBMIT_COPY);
    sim_ok(sim->fill(w.dev, w.stream[COMPUTE], w.block, 0, 4096));
    assert_int_equal(now() - start, 2 * SUBMIT_LAUNCH + SUBMIT_COPY);
    fy_backend_clock_t clock = read_clock(w.dev);
    assert_int_equal(clock.now_ns, now());
    assert_int_equal(clock.compute_ns, 1000000000 + KERNEL + 1 + KERNEL);
    assert_int_equal(clock.upload_ns, SETUP + 1000);
    assert_int_equal(clock.download_ns, 0);
    drain(w.dev, w.stream[COMPUTE]);
    assert_int_equal(now() - start, SUBMIT_LAUNCH + 1000000000 + KERNEL + 1 + KERNEL + WAKE);
}

/* The cost of 4 bytes is the measured one: 9 us on the newest profile, 32 on the oldest. */
TS_TEST(a_download_of_four_bytes_costs_the_measured_time)
{
    const struct {
        const char *profile;
        uint64_t ns;
    } want[] = { { "profile=h200", 9001 },     { "profile=h100", 9001 },  { "profile=a100", 14001 },
                 { "profile=rtx4090", 14001 }, { "profile=v100", 20001 }, { "profile=t4", 20001 },
                 { "profile=k80", 32001 } };
    for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
        world_t w = MAKE_WORLD(0, 256, host_memory, 4096, want[i].profile);
        uint64_t start = now();
        sim_ok(copy(w.dev, w.stream[0], FY_COPY_DOWNLOAD, 1, host_memory, w.block, 4));
        drain(w.dev, w.stream[0]);
        assert_int_equal(now() - start, want[i].ns);
        end_world(&w);
    }
}

/* Each batch: 1 MB upload (20 us), 201 GFLOP (3 ms), 104 KB download (2 us), double buffered. In
 * the long run a batch costs the time of the slowest engine. Sequentially it costs the sum. */
TS_TEST(a_pipeline_runs_at_the_slowest_engine)
{
    world_t w = begin(0);
    const uint64_t nbatches = 1000, up_ns = SETUP + 20000, compute_ns = KERNEL + 3000000,
                   down_ns = SETUP + 2000;
    uint64_t start = now();
    for (uint64_t i = 0; i < nbatches; i++) {
        copy(w.dev, w.stream[UP], FY_COPY_UPLOAD, 1, w.block, host_memory, 1040000);
        chain(&w, UP, COMPUTE);
        launch(&w, 201000000000);
        chain(&w, COMPUTE, DOWN);
        copy(w.dev, w.stream[DOWN], FY_COPY_DOWNLOAD, 1, host_memory, w.block, 104000);
    }
    drain(w.dev, w.stream[DOWN]);
    assert_int_equal(now() - start, SUBMIT_COPY + up_ns + nbatches * compute_ns + down_ns + WAKE);
    fy_backend_clock_t clock = read_clock(w.dev);
    assert_int_equal(clock.upload_ns, nbatches * up_ns);
    assert_int_equal(clock.compute_ns, nbatches * compute_ns);
    assert_int_equal(clock.download_ns, nbatches * down_ns);

    start = now();
    for (uint64_t i = 0; i < 10; i++) {
        copy(w.dev, w.stream[COMPUTE], FY_COPY_UPLOAD, 1, w.block, host_memory, 1040000);
        launch(&w, 201000000000);
        copy(w.dev, w.stream[COMPUTE], FY_COPY_DOWNLOAD, 1, host_memory, w.block, 104000);
    }
    drain(w.dev, w.stream[COMPUTE]);
    assert_int_equal(now() - start, SUBMIT_COPY + 10 * (up_ns + compute_ns + down_ns) + WAKE);
}

/* Two streams share one engine. */
TS_TEST(an_engine_runs_one_request_at_a_time)
{
    world_t w = begin(0);
    uint64_t start = now();
    copy(w.dev, w.stream[UP], FY_COPY_UPLOAD, 1, w.block, host_memory, 520000);
    copy(w.dev, w.stream[DOWN], FY_COPY_UPLOAD, 1, w.block, host_memory, 520000);
    drain(w.dev, w.stream[DOWN]);
    assert_int_equal(now() - start, SUBMIT_COPY + 2 * (SETUP + 10000) + WAKE);
}

TS_TEST(pageable_copies_block_the_host)
{
    world_t w = begin(0);
    static char pageable[120000];
    uint64_t start = now();
    launch(&w, 33500000000000); /* half a second */
    chain(&w, COMPUTE, DOWN);
    copy(w.dev, w.stream[DOWN], FY_COPY_DOWNLOAD, 0, pageable, w.block, sizeof(pageable));
    assert_int_equal(now() - start, SUBMIT_LAUNCH + 500000000 + KERNEL + SETUP + 10000 + WAKE);

    start = now();
    launch(&w, 33500000000000);
    chain(&w, COMPUTE, DOWN);
    copy(w.dev, w.stream[DOWN], FY_COPY_DOWNLOAD, 1, host_memory, w.block, sizeof(pageable));
    assert_int_equal(now() - start, SUBMIT_LAUNCH + SUBMIT_COPY);

    drain(w.dev, w.stream[DOWN]);
    start = now();
    copy(w.dev, w.stream[UP], FY_COPY_UPLOAD, 0, w.block, pageable, sizeof(pageable));
    assert_int_equal(now() - start, SUBMIT_COPY + SETUP + 10000 + WAKE);
}

TS_TEST(local_copies_are_kernels)
{
    world_t w = begin(0);
    fy_backend_clock_t before = read_clock(w.dev);
    sim_ok(
        copy(w.dev, w.stream[COMPUTE], FY_COPY_LOCAL, 0, w.block, w.block + (1ull << 38), 4800000));
    fy_backend_clock_t after = read_clock(w.dev);
    assert_int_equal(after.now_ns - before.now_ns, SUBMIT_LAUNCH);
    assert_int_equal(after.compute_ns - before.compute_ns, KERNEL + 2000);
    assert_int_equal(after.upload_ns + after.download_ns, before.upload_ns + before.download_ns);
}

/* A peer copy needs the source's download engine and the target's upload engine; the other engines
 * of both do not matter. */
TS_TEST(peer_copies_use_an_engine_of_each_device)
{
    world_t a = begin(0), b = begin(1);
    uint64_t start = now();
    copy(b.dev, b.stream[UP], FY_COPY_UPLOAD, 1, b.block, host_memory, 520000);
    sim_ok(copy(a.dev, a.stream[DOWN], FY_COPY_PEER, 0, b.block, a.block, 450000));
    drain(a.dev, a.stream[DOWN]);
    assert_int_equal(now() - start, SUBMIT_COPY + SETUP + 10000 + SETUP + 1000 + WAKE);
    assert_int_equal(read_clock(a.dev).download_ns, SETUP + 1000);
    assert_int_equal(read_clock(a.dev).upload_ns, 0);
    assert_int_equal(read_clock(b.dev).upload_ns, SETUP + 10000 + SETUP + 1000);
}

TS_TEST(host_work_advances_only_the_host_clock)
{
    world_t w = begin(0);
    uint64_t start = now();
    launch(&w, 67000000); /* a microsecond */
    sim->host_work(w.dev, 3000000, 0);
    assert_int_equal(now() - start, SUBMIT_LAUNCH + 50 + 10000);
    drain(w.dev, w.stream[COMPUTE]); /* done before */
    assert_int_equal(now() - start, SUBMIT_LAUNCH + 50 + 10000 + POLL);
    start = now();
    launch(&w, 67000000); /* starts now, not when the engine became free */
    drain(w.dev, w.stream[COMPUTE]);
    assert_int_equal(now() - start, SUBMIT_LAUNCH + KERNEL + 1000 + WAKE);
}

TS_SUITE(.begin = open_backend, .tear_down = end_worlds);
