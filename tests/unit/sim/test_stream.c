/* Tests of backends/sim/stream.c: events, waits and timeouts on the model clock, and streams shared
 * by threads. */
#include "tests/unit/sim/fixture.h"

#include <pthread.h>

#include "backends/sim/clock.h"

TS_TEST(wrapping_is_unsupported)
{
    void *dev = OPEN(2, "capacity=4096"), *stream = &stream;
    int native = 0;
    sim_fails(sim->stream_create(dev, FY_STREAM_COMPUTE, 0, &native, &stream), UNSUPPORTED);
    assert_null(stream);
    assert_non_null(strstr(said, "sim:2"));
    sim->stream_destroy(dev, NULL);
    sim->event_destroy(dev, NULL);
    sim->device_close(dev);
}

/* SOME: kernel start and submission of each */
enum { NFILLS = 20, WHILE = 1000000 * NFILLS, SOME = NFILLS * 3000 };

/* A block of 4.8 GB, which the h200 profile fills in a millisecond. */
static world_t begin(void)
{
    return MAKE_WORLD(0, 4800000000, NULL, 0, "numerics=off", "capacity=9600000000");
}

static void fill_for_a_while(world_t *w)
{
    for (int i = 0; i < NFILLS; i++) sim->fill(w->dev, w->stream[0], w->block, 0, 4800000000);
}

TS_TEST(an_unrecorded_event_is_done)
{
    world_t w = begin();
    int done = 0;
    sim_ok(sim->event_query(w.dev, w.event[0], &done));
    assert_int_equal(done, 1);
    sim_ok(sim->event_sync(w.dev, w.event[0], 0));
}

TS_TEST(polling_ends)
{
    world_t w = begin();
    fill_for_a_while(&w);
    sim->event_record(w.dev, w.event[0], w.stream[0]);
    uint64_t npolls = 0;
    for (int done = 0; !done; npolls++) sim_ok(sim->event_query(w.dev, w.event[0], &done));
    assert_in_range(npolls, (WHILE - SOME) / 200, (WHILE + SOME) / 200);
}

TS_TEST(a_timeout_costs_its_waiting_time)
{
    world_t w = begin();
    fill_for_a_while(&w);
    sim->event_record(w.dev, w.event[0], w.stream[0]);
    uint64_t start = fy__sim_clock_now();
    sim_fails(sim->event_sync(w.dev, w.event[0], 1000000), TIMEOUT);
    assert_int_equal(fy__sim_clock_now() - start, 200 + 1000000);
    assert_non_null(strstr(said, "1000000 ns of model time"));
    int done = 1;
    sim->event_query(w.dev, w.event[0], &done);
    assert_int_equal(done, 0);
    for (int i = 0; sim->event_sync(w.dev, w.event[0], 0) == FY_STATUS_TIMEOUT; i++)
        assert_true(i < WHILE / 200); /* a loop of polls ends too */
    sim->event_query(w.dev, w.event[0], &done);
    assert_int_equal(done, 1);
}

TS_TEST(a_wait_uses_the_event_as_recorded_now)
{
    world_t w = begin();
    void *other = w.stream[1], *later = w.event[1];
    fill_for_a_while(&w);
    sim->event_record(w.dev, w.event[0], w.stream[0]);
    sim_ok(sim->event_wait(w.dev, other, w.event[0]));
    fill_for_a_while(&w);
    sim->event_record(w.dev, w.event[0],
                      w.stream[0]); /* moves it; `other` waits for its previous position */
    sim->event_record(w.dev, later, other);
    uint64_t start = fy__sim_clock_now();
    sim_ok(sim->event_sync(w.dev, later, FY_FOREVER));
    assert_in_range(fy__sim_clock_now() - start, WHILE - SOME, WHILE + SOME);
    sim_ok(sim->event_sync(w.dev, w.event[0], FY_FOREVER));
    assert_in_range(fy__sim_clock_now() - start, 2 * (WHILE - SOME), 2 * (WHILE + SOME));
}

TS_TEST(devices_wait_for_each_other)
{
    world_t w = begin();
    world_t peer = MAKE_WORLD(1, 0, NULL, 0, "numerics=off");
    fill_for_a_while(&w);
    sim->event_record(w.dev, w.event[0], w.stream[0]);
    sim->event_wait(peer.dev, peer.stream[0], w.event[0]);
    sim->event_record(peer.dev, peer.event[0], peer.stream[0]);
    uint64_t start = fy__sim_clock_now();
    sim->event_sync(peer.dev, peer.event[0], FY_FOREVER);
    assert_in_range(fy__sim_clock_now() - start, WHILE - SOME, WHILE + SOME);
}

/* ---- threads ---- */

enum { NTHREADS = 4, NROUNDS = 200, NWORDS = 1024 };

typedef struct job {
    void *dev, *stream; /* all threads use the stream */
    uint32_t *counters; /* on the device, all threads write them */
} job_t;

/* Not atomic on purpose: a stream runs one request at a time. */
static fy_status_t increment(const fy_launch_t *launch, void *stream)
{
    uint32_t *words = launch->dst[0].data;
    (void)stream;
    for (int i = 0; i < NWORDS; i++) words[i]++;
    return FY_STATUS_OK;
}

static void *work(void *job_)
{
    const job_t *job = job_;
    void *mine = NULL, *event = NULL;
    int done = 0;
    for (int i = 0; i < NROUNDS; i++) {
        fy_desc_t dst = { .data = job->counters,
                          .dtype = FY_DTYPE_I32,
                          .rank = 1,
                          .dims = { NWORDS },
                          .strides = { 1 } };
        fy_launch_t record = launch_into(&dst, FY_OP_NONE, increment);
        if (sim->alloc(job->dev, 4096, &mine) != FY_STATUS_OK) return NULL;
        if (sim->event_create(job->dev, &event) != FY_STATUS_OK) return NULL;
        if (sim->launch(job->dev, job->stream, &record) != FY_STATUS_OK) return NULL;
        if (sim->fill(job->dev, job->stream, mine, i, 4096) != FY_STATUS_OK) return NULL;
        if (sim->event_record(job->dev, event, job->stream) != FY_STATUS_OK) return NULL;
        if (sim->event_query(job->dev, event, &done) != FY_STATUS_OK) return NULL;
        if (sim->event_sync(job->dev, event, FY_FOREVER) != FY_STATUS_OK) return NULL;
        sim->host_work(job->dev, 100, 100);
        sim->event_destroy(job->dev, event);
        sim->free(job->dev, mine, 4096);
    }
    return job_;
}

TS_TEST(threads_share_a_stream)
{
    world_t w = MAKE_WORLD(0, NWORDS * sizeof(uint32_t), NULL, 0, "capacity=1048576");
    job_t job = { w.dev, w.stream[0], (uint32_t *)(void *)w.block };
    sim->fill(job.dev, job.stream, job.counters, 0, NWORDS * 4);
    pthread_t threads[NTHREADS];
    for (int i = 0; i < NTHREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, work, &job), 0);
    for (int i = 0; i < NTHREADS; i++) {
        void *result = NULL;
        pthread_join(threads[i], &result);
        assert_ptr_equal(result, &job);
    }
    uint32_t words[NWORDS];
    sim_ok(copy(job.dev, job.stream, FY_COPY_DOWNLOAD, 0, words, job.counters, sizeof(words)));
    for (int i = 0; i < NWORDS; i++) assert_int_equal(words[i], NTHREADS * NROUNDS);
}

TS_SUITE(.begin = open_backend, .tear_down = end_worlds);
