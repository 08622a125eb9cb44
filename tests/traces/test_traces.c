/* Every trace of this folder under every policy, as device memory and as page-locked memory: Ferry
 * reserves the least, except for jemalloc's arena on device memory, for which it is not made. A
 * trace that is written and read is the same. Run from the source folder. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/test.h"
#include "tests/traces/synthetic.h"
#include "tools/replay/replay.h"

static void replay_as(const trace_t *trace, const char *name, const char *kind)
{
    const fy_pool_options_t options = replay_options(kind);
    replay_result_t ours, theirs;
    assert_int_equal(replay_run(trace, pool_policies[0], &options, &ours), FY_STATUS_OK);
    assert_int_equal(ours.refusals, 0);
    for (int i = 1; pool_policies[i]; i++) {
        const char *peer = pool_policies[i]->name;
        if (strcmp(peer, "jemalloc-arena") == 0 && strcmp(kind, "pinned") != 0) continue;
        assert_int_equal(replay_run(trace, pool_policies[i], &options, &theirs), FY_STATUS_OK);
        if (ours.peak_reserved > theirs.peak_reserved)
            fail_msg("%s as %s: ferry %.3f of the peak, %s %.3f", name, kind,
                     ours.reserved_per_peak, peer, theirs.reserved_per_peak);
    }
}

TS_TEST(ferry_reserves_least)
{
    for (const synthetic_t *synthetic = synthetic_traces; synthetic->name; synthetic++) {
        traces_t traces;
        synthetic_make(synthetic, &traces);
        replay_as(&traces.list[0], synthetic->name, "device");
        replay_as(&traces.list[0], synthetic->name, "pinned");
        traces_free(&traces);
    }
}

/* Segments that grow in place (segments=virtual) reserve no more than fixed ones on any trace of a
 * device, and less in total. */
TS_TEST(growing_in_place_reserves_less)
{
    double fixed = 0, in_place = 0;
    for (const synthetic_t *synthetic = synthetic_traces; synthetic->name; synthetic++) {
        traces_t traces;
        replay_result_t results[2];
        /* page-locked memory has no such segments */
        if (strstr(synthetic->name, "pinned")) continue;
        fy_pool_options_t options = replay_options("device");
        synthetic_make(synthetic, &traces);
        for (int i = 0; i < 2; i++) {
            options.resize_nbytes = i ? 2u << 20 : 0;
            assert_int_equal(replay_run(&traces.list[0], pool_policies[0], &options, &results[i]),
                             FY_STATUS_OK);
            assert_int_equal(results[i].refusals, 0);
        }
        if (results[1].peak_reserved > results[0].peak_reserved + (2u << 20))
            fail_msg("%s: %.3f of the peak in place, %.3f fixed", synthetic->name,
                     results[1].reserved_per_peak, results[0].reserved_per_peak);
        fixed += results[0].reserved_per_peak - 1;
        in_place += results[1].reserved_per_peak - 1;
        traces_free(&traces);
    }
    if (in_place > 0.75 * fixed) fail_msg("%.3f of waste in place, %.3f fixed", in_place, fixed);
}

/* Recorded runs, compressed, each as its own kind of memory. */
TS_TEST(recorded_runs_reserve_least)
{
    static const char *const names[] = { "link_recorded", "link_pinned_recorded",
                                         "sweep_pinned_recorded" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        traces_t traces;
        char path[256];
        snprintf(path, sizeof path, "tests/traces/%s.trace.gz", names[i]);
        assert_int_equal(traces_read(path, &traces), FY_STATUS_OK);
        replay_as(&traces.list[0], names[i], strstr(names[i], "pinned") ? "pinned" : "device");
        traces_free(&traces);
    }
}

TS_TEST(written_traces_are_read_again)
{
    char path[] = "/tmp/ferry-trace-XXXXXX";
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    (void)close(fd);
    for (const synthetic_t *synthetic = synthetic_traces; synthetic->name; synthetic++) {
        traces_t made, read;
        synthetic_make(synthetic, &made);
        assert_int_equal(trace_write(&made.list[0], synthetic->comment, path), FY_STATUS_OK);
        assert_int_equal(traces_read(path, &read), FY_STATUS_OK);
        assert_int_equal(read.count, 1);
        assert_string_equal(read.list[0].pool, made.list[0].pool);
        assert_int_equal(read.list[0].nsteps, made.list[0].nsteps);
        assert_true(read.list[0].peak == made.list[0].peak);
        for (size_t i = 0; i < made.list[0].nsteps; i++) {
            assert_true(read.list[0].steps[i].nbytes == made.list[0].steps[i].nbytes);
            assert_int_equal(read.list[0].steps[i].block, made.list[0].steps[i].block);
        }
        traces_free(&made);
        traces_free(&read);
    }
    assert_int_equal(unlink(path), 0);
}

/* A limit holds, and the first refusal is reported. */
TS_TEST(limit)
{
    traces_t traces;
    replay_result_t result;
    fy_pool_options_t options = replay_options("device");
    synthetic_make(&synthetic_traces[0], &traces);
    const trace_t *trace = &traces.list[0];
    for (int i = 0; pool_policies[i]; i++) {
        options.limit = trace->peak / 2;
        assert_int_equal(replay_run(trace, pool_policies[i], &options, &result), FY_STATUS_OK);
        assert_true(result.refusals > 0 && result.peak_reserved <= options.limit);
        assert_true(result.refused_step > 0 &&
                    trace->steps[result.refused_step - 1].nbytes == result.refused_nbytes);
        assert_true(result.refused_text[0] != 0);
    }
    traces_free(&traces);
}
