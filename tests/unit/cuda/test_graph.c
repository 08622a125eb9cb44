/* Graphs on cuda, through the public API over the fake driver: a steady replay is one cuGraphLaunch
 * and few other calls, on any thread and any stream. Not here: graphs that are replayed call by
 * call, and failures (test_graph_fallback.c); graphs on every device
 * (tests/conformance/test_graph.c, which runs over the fake driver too). */
#include <pthread.h>

#include "graph_step.h"

/* ---- the calls of a replay ---- */

static const char *const watched[] = {
    "cuGraphLaunch",       "cuLaunchKernel",     "cublasLtMatmul",  "cuMemcpyHtoDAsync",
    "cuMemcpyDtoHAsync",   "cuMemsetD8Async",    "cuMemAlloc",      "cuEventRecord",
    "cuEventQuery",        "cuEventSynchronize", "cuCtxGetCurrent", "cuStreamWaitEvent",
    "cuStreamBeginCapture"
};
enum {
    NWATCHED = sizeof watched / sizeof *watched,
    LAUNCHES = 0,
    KERNELS = 1,
    RECORDS = 7,
    QUERIES = 8,
    CURRENTS = 10
};

static void count_calls(int64_t counts[NWATCHED + 1])
{
    for (int i = 0; i < NWATCHED; i++) counts[i] = driver.fake_cuda_calls(watched[i]);
    counts[NWATCHED] = driver.fake_cuda_all_calls();
}

/* Steady replays, fewer than the fault flags that are available: counts the calls of each. The
 * program has no context current, so Ferry's context is pushed and popped. */
enum { STEADY = 40 };

static void steady(const step_t *s, int has_events, int64_t out_each[NWATCHED + 1])
{
    int64_t before[NWATCHED + 1], after[NWATCHED + 1];
    replay(s, 2);
    ts_ok(fy_device_wait(device, FY_FOREVER));
    count_calls(before);
    replay(s, STEADY);
    count_calls(after);
    for (int i = 0; i <= NWATCHED; i++) {
        /* sometimes a flag is checked */
        if (has_events && (i == QUERIES || i == CURRENTS || i == NWATCHED))
            after[i] -= (after[i] - before[i]) % STEADY;
        out_each[i] = (after[i] - before[i]) / STEADY;
        if ((after[i] - before[i]) % STEADY != 0)
            fail_msg("%lld %s in %d replays", (long long)(after[i] - before[i]),
                     i < NWATCHED ? watched[i] : "driver calls", STEADY);
    }
}

TS_TEST(a_steady_replay_is_one_launch)
{
    int64_t each[NWATCHED + 1];
    step_t s = record(0);
    steady(&s, 0, each);
    for (int i = 0; i < NWATCHED; i++)
        if (each[i] != (i == LAUNCHES || i == CURRENTS))
            fail_msg("%lld %s a replay", (long long)each[i], watched[i]);
    assert_int_equal(each[NWATCHED], 2); /* no call that is not watched */
    expect_path(&s, FY_GRAPH_DEVICE, "");
    expect_called(&s, 2 + STEADY);
}

/* A kernel after the graph copies the flags of bad values to the host, whatever their number. An
 * event follows it, because a call will wait for them. */
TS_TEST(fault_flags_cost_one_more_kernel)
{
    int64_t each[NWATCHED + 1];
    step_t s = record(1);
    steady(&s, 1, each);
    for (int i = 0; i < NWATCHED; i++) {
        const int64_t most =
            i == CURRENTS ? 4 : i == LAUNCHES || i == KERNELS || i == RECORDS || i == QUERIES;
        if (each[i] > most || (i != QUERIES && i != CURRENTS && each[i] != most))
            fail_msg("%lld %s a replay", (long long)each[i], watched[i]);
    }
    expect_called(&s, 2 + STEADY);
}

TS_TEST(the_first_replay_creates_the_graph)
{
    step_t s = record(1);
    const int64_t begun = driver.fake_cuda_calls("cuStreamBeginCapture"),
                  launched = driver.fake_cuda_calls("cuGraphLaunch");
    expect_path(&s, FY_GRAPH_CALLS, "with the second replay");
    replay(&s, 1);
    assert_int_equal(driver.fake_cuda_calls("cuStreamBeginCapture"), begun);
    assert_int_equal(driver.fake_cuda_live(FAKE_GRAPH_EXECS), 0);
    replay(&s, 1);
    assert_int_equal(driver.fake_cuda_calls("cuStreamBeginCapture"), begun + 1);
    assert_int_equal(driver.fake_cuda_calls("cuGraphLaunch"), launched + 1);
    assert_int_equal(driver.fake_cuda_live(FAKE_GRAPH_EXECS), 1);
    /* the description is not needed any more */
    assert_int_equal(driver.fake_cuda_live(FAKE_GRAPHS), 0);
    assert_int_equal(driver.fake_cuda_captures(), 0);
    assert_int_equal(nlogged, 0);
    expect_called(&s, 2);
    fy_graph_destroy(s.graph);
    assert_int_equal(driver.fake_cuda_live(FAKE_GRAPH_EXECS), 0);
}

TS_TEST(two_graphs_alternate)
{
    step_t a = record(1), b = record(1);
    for (int i = 0; i < 5; i++) {
        replay(&a, 1);
        replay(&b, 2);
    }
    expect_called(&a, 5);
    expect_called(&b, 10);
    assert_int_equal(driver.fake_cuda_live(FAKE_GRAPH_EXECS), 2);
}

TS_TEST(every_replay_detects_bad_values)
{
    step_t s = record(1);
    fy_ticket_t ticket;
    float x[16] = { 0 };
    for (int i = 0; i < 8; i++) {
        ts_ok(fy_fill(s.indices, i % 2 ? 4 : 0)); /* rows 0 .. 3 */
        ts_ok(fy_graph_replay(s.graph, &ticket));
        if (!(i % 2)) {
            ts_ok(fy_ticket_wait(ticket, FY_FOREVER));
            continue;
        }
        ts_fails_with(fy_ticket_wait(ticket, FY_FOREVER), BAD_VALUE, "0 .. 3");
        ts_fails(fy_tensor_download_into(ts_host_f32(FY_DIMS(4, 4), x), s.x, NULL), BAD_VALUE);
        fy_tensor_t *fresh = ts_iota(device, FY_DIMS(4, 4), 1);
        ts_ok(fy_copy(s.x, fresh));
    }
    expect_path(&s, FY_GRAPH_DEVICE, "");
}

/* ---- threads and streams ---- */

static void *replay_there(void *user)
{
    fy_scope_t scope = fy_scope_begin("thread");
    fy_stream_t *stream;
    ts_ok(fy_stream_create(device, NULL, &stream));
    ts_ok(fy_stream_set_current(stream));
    replay(user, 3); /* the second captures */
    ts_ok(fy_device_wait(device, FY_FOREVER));
    fy_scope_end(scope, 0, NULL);
    return NULL;
}

TS_TEST(another_thread_and_another_stream)
{
    step_t s = record(1);
    pthread_t thread;
    pthread_create(&thread, NULL, replay_there, &s);
    pthread_join(thread, NULL);
    expect_path(&s, FY_GRAPH_DEVICE, "");
    replay(&s, 2);
    expect_called(&s, 5);
}

/* A graph waits for earlier writers of its operands, and later readers wait for it. */
TS_TEST(graphs_are_ordered_with_other_streams)
{
    step_t s = record(0);
    fy_stream_t *other;
    fy_tensor_t *sum;
    replay(&s, 3);
    ts_ok(fy_stream_create(device, NULL, &other));
    ts_ok(fy_device_wait(device, FY_FOREVER));
    driver.fake_cuda_hold(1); /* so that no request is known to be done */
    driver.fake_cuda_trace(1);
    fy_scope_t scope = fy_scope_begin("other");
    ts_ok(fy_stream_set_current(other));
    ts_ok(fy_axpy(s.w, 0, s.w));
    fy_scope_end(scope, 0, NULL);
    replay(&s, 1);
    scope = fy_scope_begin("other");
    ts_ok(fy_stream_set_current(other));
    ts_ok(fy_add(s.out, s.out, &sum));
    fy_scope_end(scope, 0, NULL);
    char order[256] = "";
    const char *at = driver.fake_cuda_traced();
    for (const char *end; (end = strchr(at, ' ')); at = end + 1)
        if (strncmp(at, "cuCtx", 5) != 0 && strncmp(at, "cuEventCreate", 13) != 0 &&
            strlen(order) + 64 < sizeof order)
            strncat(order, at, (size_t)(end - at) + 1);
    driver.fake_cuda_trace(0);
    driver.fake_cuda_hold(0);
    /* The last event is for requests that wait for work ordered after another stream's work. */
    assert_string_equal(order, "cuLaunchKernel cuEventRecord cuStreamWaitEvent cuGraphLaunch "
                               "cuEventRecord cuStreamWaitEvent cuLaunchKernel "
                               "cuEventRecord ");
    expect_called(&s, 4);
}

TS_TEST(a_graph_can_be_destroyed_while_it_runs)
{
    step_t s = record(1);
    replay(&s, 3);
    driver.fake_cuda_hold(1);
    replay(&s, 1);
    fy_graph_destroy(s.graph);
    assert_int_equal(driver.fake_cuda_live(FAKE_GRAPH_EXECS), 0);
    driver.fake_cuda_hold(0);
    expect_called(&s, 4);
}

TS_SUITE(.set_up = setup, .tear_down = teardown, .prepare = prepare_logged);
