/* Slices of a report: a timeline that is too long keeps its first and last part in full, and the
 * sums of all; shares of an interval add up to its length. */

#include "tests/support/test.h"
#include "tools/report/recording.h"
#include "tools/timeline/tracks.h"

enum { STEPS = 1000, OPS = 9, MOST = 1000 };

static const track_t host = { 1, 1 }, compute = { 10, 1 }, upload = { 10, 2 };

/* Steps of 1,000 ns: an upload of 300 ns, then ops of 50 ns without gaps that read its result. */
static void draw(slices_t *slices)
{
    const trace_sink_t *sink = &slices_sink;
    (void)slices_text(slices, "");
    sink->track(slices, host, "host thread 1");
    sink->track(slices, compute, "compute");
    sink->track(slices, upload, "upload");
    for (uint64_t step = 0; step < STEPS; step++) {
        const uint64_t at_ns = 1000 * step;
        sink->push(slices, host, at_ns, "step");
        sink->arg_text(slices, "scope", "train/step");
        sink->slice(slices, upload, at_ns, 300, "upload", "transfer");
        sink->arg(slices, "bytes", 64);
        for (uint64_t op = 0; op < OPS; op++) {
            sink->slice(slices, compute, at_ns + 300 + 50 * op, 50, op % 2 ? "add" : "mul", "op");
            sink->flow(slices, upload, at_ns + 299, compute, at_ns + 300 + 50 * op, "data");
        }
        sink->pop(slices, host, at_ns + 1000);
    }
    slices_finish(slices);
}

static uint64_t sum_of(const slices_t *slices, uint64_t *out_count, uint64_t *out_nbytes)
{
    uint64_t busy_ns = 0;
    *out_count = *out_nbytes = 0;
    for (size_t i = 0; i < slices->nlanes; i++)
        for (size_t j = 0; j < slices->lanes[i].count; j++) {
            busy_ns += slices->lanes[i].slices[j].busy_ns;
            *out_count += slices->lanes[i].slices[j].count;
            *out_nbytes += slices->lanes[i].slices[j].nbytes;
        }
    return busy_ns;
}

TS_TEST(shares_add_up)
{
    slices_t slices = { .nlanes = 0 };
    shares_t shares;
    draw(&slices);
    shares_find(&slices, true, &shares);
    for (uint64_t begin_ns = 0; begin_ns < 3000; begin_ns += 70)
        for (uint64_t end_ns = begin_ns; end_ns < 4000; end_ns += 130) {
            uint64_t sums[SHARES] = { 0 }, total = 0;
            shares_add(&shares, begin_ns, end_ns, sums);
            for (int i = 0; i < SHARES; i++) total += sums[i];
            assert_int_equal(total, end_ns - begin_ns);
        }
    uint64_t sums[SHARES] = { 0 };
    shares_add(&shares, 0, 1000 * STEPS, sums);
    assert_int_equal(sums[SHARE_UPLOAD], 300 * STEPS);
    assert_int_equal(sums[SHARE_COMPUTE], 50 * OPS * STEPS);
    assert_int_equal(sums[SHARE_HOST], (700 - 50 * OPS) * STEPS);
    shares_free(&shares);
    slices_free(&slices);
}

/* The first thread waits for 200 ns in a call between ranks, 100 ns of which upload, and for 50 ns
 * while another thread runs such a call; it computes during the rest of that one. */
TS_TEST(calls_between_ranks_have_a_share)
{
    const track_t first = { 2, 1 }, second = { 2, 2 };
    const track_t ranks[] = { { 2, TRACKS_RANKS + 1 }, { 2, TRACKS_RANKS + 2 } };
    const trace_sink_t *sink = &slices_sink;
    slices_t slices = { .nlanes = 0 };
    shares_t shares;
    uint64_t sums[SHARES] = { 0 };
    (void)slices_text(&slices, "");
    sink->track(&slices, first, "host thread 0");
    sink->track(&slices, second, "host thread 1");
    sink->push(&slices, first, 0, "step");
    sink->arg_text(&slices, "scope", "step");
    sink->slice(&slices, first, 350, 100, "upload", "wait");
    sink->slice(&slices, ranks[1], 0, 300, "group_all_reduce", "wait");
    sink->slice(&slices, first, 250, 50, "wait: ticket_wait", "wait");
    sink->slice(&slices, ranks[0], 300, 200, "group_barrier", "wait");
    sink->slice(&slices, first, 600, 50, "wait: download", "wait");
    sink->pop(&slices, first, 1000);
    slices_finish(&slices);
    shares_find(&slices, false, &shares);
    shares_add(&shares, 0, 1000, sums);
    assert_int_equal(sums[SHARE_UPLOAD], 100);
    assert_int_equal(sums[SHARE_RANKS], 150);
    assert_int_equal(shares.busy_ns[SHARE_RANKS], 500);
    assert_int_equal(sums[SHARE_DOWNLOAD], 50);
    assert_int_equal(sums[SHARE_HOST], 700);
    shares_free(&shares);
    slices_free(&slices);
}

TS_TEST(the_middle_is_merged)
{
    slices_t slices = { .nlanes = 0 };
    shares_t shares;
    scope_times_t times;
    uint64_t count[2], nbytes[2], kept = 0;
    draw(&slices);
    shares_find(&slices, true, &shares);
    scope_times_find(&slices, &shares, "train/step", &times);
    assert_true(times.has_step);
    assert_string_equal(slices.texts[times.step], "train/step");
    assert_int_equal(times.by_text[times.step].count, STEPS);
    const uint64_t busy_ns = sum_of(&slices, &count[0], &nbytes[0]);
    const thin_t thin = thin_slices(&slices, &times, MOST);
    assert_int_equal(thin.before, (OPS + 2) * STEPS);
    assert_int_equal(sum_of(&slices, &count[1], &nbytes[1]), busy_ns);
    assert_int_equal(count[1], count[0]);
    assert_int_equal(nbytes[1], nbytes[0]);
    assert_int_equal(thin.from_ns % 1000, 0); /* whole steps */
    assert_int_equal(thin.until_ns % 1000, 0);
    assert_true(thin.from_ns > 0 && thin.from_ns < thin.until_ns);
    for (size_t i = 0; i < slices.nlanes; i++)
        for (size_t j = 0; j < slices.lanes[i].count; j++, kept++) {
            const slice_t *slice = &slices.lanes[i].slices[j];
            if (slice->start_ns < thin.from_ns || slice->start_ns >= thin.until_ns)
                assert_int_equal(slice->count, 1);
        }
    assert_in_range(kept, MOST / 2, MOST + MOST / 4);
    for (size_t i = 0; i < slices.narrows; i++) {
        const arrow_t *arrow = &slices.arrows[i];
        const slice_t *from = &slices.lanes[arrow->from_lane].slices[arrow->from_slice],
                      *to = &slices.lanes[arrow->to_lane].slices[arrow->to_slice];
        assert_int_equal(from->kind, SLICE_UPLOAD);
        assert_int_equal(to->kind, SLICE_OP);
        assert_int_equal(to->count, 1);
        assert_true(from->start_ns < to->start_ns);
    }
    scope_times_free(&times);
    shares_free(&shares);
    slices_free(&slices);
}
