/* Copies of one piece that take a quarter longer than the profile's rate allows: FA22.
 * The device waits for such a copy, or for one that is behind it in its engine's queue. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/advise/rules.h"
#include "tools/cli/tool.h"

enum { LEAST_NBYTES = 256 << 10, LINES_MOST = 4096 };

/* How much longer than at the calibrated rate; 0: it is not slow. */
static uint64_t longer_ns(const advice_t *advice, uint32_t event)
{
    const facts_t *facts = advice->facts;
    const program_event_t *e = facts_event(facts, event);
    if (e->kind != PROGRAM_TRANSFER || e->direction == PROGRAM_PEER || !facts->end[event] ||
        e->nbytes < LEAST_NBYTES || strcmp(e->path, "direct") != 0)
        return 0;
    const uint64_t took_ns = facts_device_ns(facts, event),
                   calibrated_ns = advice_calibrated_ns(advice, event, e->nbytes);
    return calibrated_ns && took_ns > calibrated_ns + calibrated_ns / 4 ? took_ns - calibrated_ns
                                                                        : 0;
}

static uint64_t smaller(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* Slow copies for which `event` was waiting in the queue: what each of them saves. */
static void save_queue(const advice_t *advice, uint32_t event, uint64_t *saves)
{
    const facts_t *facts = advice->facts;
    const program_event_t *e = facts_event(facts, event);
    uint64_t left = facts->queue_ns[event];
    for (uint32_t i = event, n = 0; left && i-- > 0 && n < LINES_MOST; n++) {
        const uint64_t longer = longer_ns(advice, i);
        if (!longer || facts_event(facts, i)->device != e->device || saves[i] ||
            facts_engine(facts, i) != facts_engine(facts, event) ||
            facts->end[i] <= facts->start[event] - facts->queue_ns[event])
            continue;
        saves[i] = smaller(left, longer);
        left -= saves[i];
    }
}

/* The run ends with this copy, if it is behind all ops; PROGRAM_NONE: it does not. */
static uint32_t find_last(const facts_t *facts)
{
    const uint32_t last = facts->nby_end ? facts->by_end[facts->nby_end - 1] : PROGRAM_NONE;
    return last != PROGRAM_NONE && facts_event(facts, last)->kind == PROGRAM_TRANSFER
               ? last
               : PROGRAM_NONE;
}

void rule_slow_copy(advice_t *advice)
{
    const facts_t *facts = advice->facts;
    const size_t n = facts->program->nevents;
    const uint32_t last = find_last(facts);
    uint64_t *saves = tool_alloc((n + 1) * sizeof *saves);
    memset(saves, 0, n * sizeof *saves);
    for (uint32_t i = 0; i < n; i++)
        saves[i] = smaller(longer_ns(advice, i), i == last ? UINT64_MAX : facts->idle_ns[i]);
    for (uint32_t i = 0; i < n; i++)
        if (facts->queue_ns[i] && facts_is_request(facts, i)) save_queue(advice, i, saves);
    for (uint32_t i = 0; i < n; i++) {
        const uint64_t longer = longer_ns(advice, i);
        if (!longer || !advice_is_free(advice, i)) continue;
        finding_t *finding = advice_at(advice, i);
        const double nbytes = (double)facts_event(facts, i)->nbytes,
                     took_ns = (double)facts_device_ns(facts, i);
        advice_add(advice, finding, i);
        finding->saving_ns += saves[i];
        finding->formula = "time of the copies above that at the calibrated rate, as far as the "
                           "device waited";
        snprintf(finding->detail, sizeof finding->detail, "last %.1f of %.1f GB/s",
                 nbytes / took_ns, nbytes / (took_ns - (double)longer));
    }
    free(saves);
}
