/* Idle time of the device that no rule before has explained: FA17, because the host computes. */
#include "tools/advise/rules.h"

void rule_host_work(advice_t *advice)
{
    const facts_t *facts = advice->facts;
    for (uint32_t i = 0; i < facts->program->nevents; i++) {
        if (facts_event(facts, i)->kind != PROGRAM_OP || !facts_is_on_host(facts, i) ||
            facts_step(facts, i) == PROGRAM_NONE || !facts->idle_ns[i] ||
            !advice_is_free(advice, i))
            continue;
        finding_t *finding = advice_at(advice, i);
        advice_add(advice, finding, i);
        finding->confidence = CONFIDENCE_MEDIUM; /* the op takes time on the device, too */
    }
}
