/* Idle time of the device that no rule before has explained: FA17, because the host computes; FA24,
 * because an upload is submitted when its bytes are needed; FA25, the rest, by cause. */
#include <stdio.h>
#include <string.h>

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

/* "submission of ops 98 %, uploads 2 %": the causes of so much idle time, the largest first. */
static void name_causes(const uint64_t causes[FACTS_CAUSES], char *out, size_t room)
{
    uint64_t rest[FACTS_CAUSES], all = 0;
    size_t n = (size_t)snprintf(out, room, "by cause: ");
    memcpy(rest, causes, sizeof rest);
    for (int i = 0; i < FACTS_CAUSES; i++) all += rest[i];
    for (bool is_first = true;; is_first = false) {
        int most = 0;
        for (int i = 1; i < FACTS_CAUSES; i++)
            if (rest[i] > rest[most]) most = i;
        if (rest[most] * 100 < all || !all || n >= room) break;
        n += (size_t)snprintf(out + n, room - n, "%s%s %.0f %%", is_first ? "" : ", ",
                              facts_cause_name((facts_cause_t)most),
                              100 * (double)rest[most] / (double)all);
        rest[most] = 0;
    }
}

/* All of it in one finding, if it is a quarter of the steps' time. */
void rule_idle(advice_t *advice)
{
    const facts_t *facts = advice->facts;
    uint64_t causes[FACTS_CAUSES] = { 0 }, all = 0, others = 0;
    finding_t *finding = NULL;
    for (int pass = 0; pass < 2; pass++) {
        for (uint32_t i = 0; i < facts->program->nevents; i++) {
            const uint64_t ns = facts->idle_ns[i] + facts->queue_ns[i];
            if (!ns || facts_step(facts, i) == PROGRAM_NONE || !advice_is_free(advice, i)) continue;
            if (pass == 0) {
                causes[facts_cause(facts, i)] += ns;
                all += ns;
                continue;
            }
            if (!finding) finding = advice_at(advice, i);
            advice_add(advice, finding, i);
        }
        /* a transfer that goes can save more than its own share of the idle time */
        for (size_t i = 0; pass == 0 && i < advice->nfindings; i++)
            others += advice->findings[i].saving_ns;
        const uint64_t rest = facts->idle_total_ns > others ? facts->idle_total_ns - others : 0;
        if (rest < all) all = rest;
        if (all < (facts->end_ns - facts->begin_ns) / 4 || !all) return;
    }
    if (!finding) return;
    finding->saving_ns = all;
    finding->confidence = CONFIDENCE_LOW;
    finding->formula = "at most: all idle time that no other finding has";
    finding->site = "";
    snprintf(finding->scope, sizeof finding->scope, "%s", facts->program->step_path);
    name_causes(causes, finding->detail, sizeof finding->detail);
}
