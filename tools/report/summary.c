/* Sentences: the largest shares of the time, those of 1 % or more. */
#include "tools/report/recording.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/cli/tool.h"

enum { SHARES_SAID = 3, SUMMARY_TIME = 32 };

typedef struct part {
    double portion; /* 0 to 1 */
    const char *verb;
} part_t;

static const char *const verbs[TRACKS_CLOCKS][SHARES] = {
    [TRACKS_MODEL] = { "computes", "waits for uploads", "waits for downloads",
                       "waits for copies between devices", "waits for other ranks", "waits",
                       "waits for the host's transfer calls", "waits for ops on the host",
                       "waits for the host" },
    [TRACKS_WALL] = { "computes", "blocks in uploads", "blocks in downloads",
                      "blocks in copies between devices", "blocks in calls between ranks",
                      "blocks in other waits", "runs transfer calls", "runs ops on the host",
                      "runs host code" },
};

/* "8.25 ms"; `out_text` has SUMMARY_TIME bytes. Returns it. */
static const char *summary_time(double ns, char *out_text)
{
    static const struct {
        double ns;
        const char *unit;
    } units[] = { { 1e9, "s" }, { 1e6, "ms" }, { 1e3, "\xc2\xb5s" }, { 1, "ns" } };
    size_t i = 0;
    while (i < 3 && fabs(ns) < units[i].ns) i++;
    snprintf(out_text, SUMMARY_TIME, "%.3g %s", ns / units[i].ns, units[i].unit);
    if (fabs(ns) / units[i].ns >= 1000) /* "1e+03" otherwise */
        snprintf(out_text, SUMMARY_TIME, "%.0f %s", ns / units[i].ns, units[i].unit);
    return out_text;
}

/* Appends, as far as there is room. */
static void say(char *text, size_t size, const char *format, ...)
{
    const size_t used = strlen(text);
    va_list values;
    va_start(values, format);
    vsnprintf(text + used, size - used, format, values);
    va_end(values);
}

static int compare_parts(const void *a, const void *b)
{
    const part_t *x = a, *y = b;
    return x->portion < y->portion ? 1 : x->portion > y->portion ? -1 : 0;
}

/* Of a step, if the run has steps, which take `total_ns` in all. */
static double length_of(const recording_t *run, uint64_t total_ns)
{
    const uint64_t count = run->times.has_step ? run->times.by_text[run->times.step].count : 1;
    return (double)total_ns / (double)count;
}

static void say_findings(const findings_t *findings, char *text, size_t size)
{
    char saving[SUMMARY_TIME], total[SUMMARY_TIME];
    if (!findings->count) return;
    say(text, size, " %zu finding%s", findings->count, findings->count > 1 ? "s" : "");
    if (findings->nfirst) say(text, size, " in the first %" PRIu64 " events", findings->nfirst);
    if (findings->saving_ns)
        say(text, size, findings->count > 1 ? "; the largest saves %s of %s" : " saves %s of %s",
            summary_time((double)findings->saving_ns, saving),
            summary_time((double)findings->total_ns, total));
    say(text, size, ".");
}

void summary_of(const recording_t *run, char *out_text, size_t size)
{
    uint64_t sums[SHARES];
    char time[SUMMARY_TIME];
    part_t parts[SHARES];
    const uint64_t total = recording_shares(run, false, sums);
    size_t said = 0;
    *out_text = 0;
    if (!total) {
        say(out_text, size, "The recording has no event that takes time.");
        return;
    }
    for (int i = 0; i < SHARES; i++)
        parts[i] = (part_t){ (double)sums[i] / (double)total, verbs[run->clock][i] };
    qsort(parts, SHARES, sizeof *parts, compare_parts);
    for (size_t i = 0; i < SHARES_SAID && (parts[i].portion >= 0.01 || !i); i++, said++) {
        say(out_text, size, "%s%.0f %%", said ? ", " : "", 100 * parts[i].portion);
        if (!said) say(out_text, size, run->times.has_step ? " of the step" : " of the run");
        say(out_text, size, " %s", parts[i].verb);
    }
    if (run->times.has_step)
        say(out_text, size, ". A step takes %s (mean of %" PRIu64 ").",
            summary_time(length_of(run, total), time), run->times.by_text[run->times.step].count);
    else
        say(out_text, size, ". The run takes %s.", summary_time((double)total, time));
    say_findings(&run->findings, out_text, size);
}

void summary_of_two(const recording_t *first, const recording_t *second, char *out_text,
                    size_t size)
{
    uint64_t sums[2][SHARES];
    const bool has_steps = first->times.has_step && second->times.has_step;
    const uint64_t total[2] = { recording_shares(first, !has_steps, sums[0]),
                                recording_shares(second, !has_steps, sums[1]) };
    const double before = has_steps ? length_of(first, total[0]) : (double)total[0],
                 after = has_steps ? length_of(second, total[1]) : (double)total[1];
    double most = 0;
    char times[2][SUMMARY_TIME];
    int which = -1;
    *out_text = 0;
    if (first->clock != second->clock) {
        say(out_text, size,
            "The times are not comparable: one file has a model clock, the other has not.");
        return;
    }
    say(out_text, size, "%s takes %s in B and %s in A", has_steps ? "A step" : "The run",
        summary_time(after, times[1]), summary_time(before, times[0]));
    if (before > 0 && after > 0)
        say(out_text, size, ": %.2f times %s", after < before ? before / after : after / before,
            after < before ? "faster" : "slower");
    for (int i = 0; i < SHARES && total[0] && total[1]; i++) {
        const double change = after * (double)sums[1][i] / (double)total[1] -
                              before * (double)sums[0][i] / (double)total[0];
        if (fabs(change) <= fabs(most)) continue;
        most = change;
        which = i;
    }
    if (which >= 0)
        say(out_text, size, ". The largest difference: %s %s of it %s",
            summary_time(fabs(most), times[0]), most < 0 ? "less" : "more",
            verbs[first->clock][which]);
    say(out_text, size, ".");
}
