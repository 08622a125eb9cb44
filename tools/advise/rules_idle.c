/* Idle time of the device that no rule before has explained: FA17, because the host computes; FA24,
 * because an upload is submitted when its bytes are needed. */
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

/* Was the source made by an op of the host in the same step? Then it cannot be sent earlier. */
static bool is_fresh(const facts_t *facts, uint32_t upload)
{
    const program_event_t *e = facts_event(facts, upload);
    if (!e->nsrc) return false;
    const uint32_t writer = program_operand(facts->program, e, 0)->writer;
    return writer != PROGRAM_NONE && facts_event(facts, writer)->kind == PROGRAM_OP &&
           facts_step(facts, writer) == facts_step(facts, upload);
}

void rule_late_upload(advice_t *advice)
{
    const facts_t *facts = advice->facts;
    for (uint32_t i = 0; i < facts->program->nevents; i++) {
        const program_event_t *e = facts_event(facts, i);
        if (e->kind != PROGRAM_TRANSFER || e->direction != PROGRAM_UPLOAD ||
            facts_step(facts, i) == PROGRAM_NONE || !facts->idle_ns[i] || is_fresh(facts, i) ||
            !advice_is_free(advice, i))
            continue;
        advice_add(advice, advice_at(advice, i), i);
    }
}
