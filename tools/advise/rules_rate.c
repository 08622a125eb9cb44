/* Copies of one piece that take a quarter longer than the profile's rate allows: FA22.
 * The device waits for such a copy, or for one that is behind it in its engine's queue. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/advise/rules.h"
#include "tools/cli/tool.h"

enum { LEAST_NBYTES = 256 << 10 };

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

void rule_slow_copy(advice_t *advice)
{
    const facts_t *facts = advice->facts;
    const size_t n = facts->program->nevents;
    advice_save_t *saves = tool_alloc((n + 1) * sizeof *saves);
    size_t count = 0;
    for (uint32_t i = 0; i < n; i++) {
        const uint64_t longer = longer_ns(advice, i),
                       waited = i == advice->last_copy ? UINT64_MAX : facts->idle_ns[i];
        if (longer) saves[count++] = (advice_save_t){ i, longer, smaller(longer, waited) };
    }
    advice_save_queue(advice, saves, count);
    for (size_t k = 0; k < count; k++) {
        const uint32_t i = saves[k].event;
        if (!advice_is_free(advice, i)) continue;
        finding_t *finding = advice_at(advice, i);
        const double nbytes = (double)facts_event(facts, i)->nbytes,
                     took_ns = (double)facts_device_ns(facts, i);
        advice_add(advice, finding, i);
        finding->saving_ns += saves[k].ns;
        finding->formula = "time of the copies above that at the calibrated rate, as far as the "
                           "device waited";
        snprintf(finding->detail, sizeof finding->detail, "last %.1f of %.1f GB/s",
                 nbytes / took_ns, nbytes / (took_ns - (double)saves[k].most_ns));
    }
    free(saves);
}
