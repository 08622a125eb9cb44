/* Copies that take longer than they must: FA07, FA11, FA12, FA19. */
#include <string.h>

#include "tools/advise/rules.h"

enum { SMALL_MOST_NBYTES = 64 << 10, SMALL_LEAST_RUN = 4, STAGED_LEAST_NBYTES = 256 << 10 };

static bool is_small(const advice_t *advice, uint32_t event)
{
    const program_event_t *e = facts_event(advice->facts, event);
    return e->kind == PROGRAM_TRANSFER && e->direction != PROGRAM_PEER &&
           !facts_is_on_host(advice->facts, event) && e->nbytes <= SMALL_MOST_NBYTES &&
           strcmp(e->path, "coalesced") != 0 && strcmp(e->path, "file") != 0 &&
           advice_is_free(advice, event);
}

static void add_series(advice_t *advice, const uint32_t *series, size_t count)
{
    if (count < SMALL_LEAST_RUN) return;
    finding_t *finding = advice_at(advice, series[0]);
    advice_begin_series(finding);
    for (size_t i = 0; i < count; i++) advice_add(advice, finding, series[i]);
}

/* Small copies of one site and direction without another request of the thread between them. */
void rule_small_copies(advice_t *advice)
{
    const program_t *p = advice->facts->program;
    uint32_t series[256];
    size_t count = 0;
    for (uint32_t i = 0; i < p->nevents; i++) {
        const program_event_t *e = &p->events[i];
        const program_event_t *first = count ? &p->events[series[0]] : NULL;
        const bool ends = e->kind == PROGRAM_OP || e->kind == PROGRAM_TRANSFER ||
                          e->kind == PROGRAM_SYNC || e->kind == PROGRAM_SCOPE_END;
        if (!ends || (first && e->thread != first->thread)) continue;
        if (first && is_small(advice, i) && e->direction == first->direction &&
            e->site == first->site && count < 256) {
            series[count++] = i;
            continue;
        }
        add_series(advice, series, count);
        count = 0;
        if (is_small(advice, i)) series[count++] = i;
    }
    add_series(advice, series, count);
}

void rule_staged(advice_t *advice)
{
    const program_t *p = advice->facts->program;
    for (uint32_t i = 0; i < p->nevents; i++) {
        const program_event_t *e = &p->events[i];
        if (e->kind != PROGRAM_TRANSFER || e->direction != PROGRAM_UPLOAD ||
            strcmp(e->path, "staged") != 0 || e->nbytes < STAGED_LEAST_NBYTES ||
            facts_step(advice->facts, i) == PROGRAM_NONE || !advice_is_free(advice, i))
            continue;
        advice_add(advice, advice_at(advice, i), i);
    }
}

/* The request that used the destination of an upload last, if it had not ended when the upload was
 * submitted; PROGRAM_NONE: there is none. */
static uint32_t user_before(const facts_t *facts, uint32_t upload)
{
    const program_event_t *e = facts_event(facts, upload);
    const program_operand_t *dst = program_operand(facts->program, e, e->nsrc);
    size_t n, i = 0;
    if (!e->ndst || dst->storage == PROGRAM_NONE) return PROGRAM_NONE;
    const facts_use_t *uses = facts_uses(facts, dst->storage, &n);
    while (i < n && uses[i].event < upload) i++;
    if (!i || facts->end[uses[i - 1].event] <= e->model_ns) return PROGRAM_NONE;
    return uses[i - 1].event;
}

/* Uploads for which the device stood idle, because `kind` used their destination. */
static void find_waits_for_buffer(advice_t *advice, program_kind_t kind)
{
    const facts_t *facts = advice->facts;
    for (uint32_t i = 0; i < facts->program->nevents; i++) {
        const program_event_t *e = facts_event(facts, i);
        if (e->kind != PROGRAM_TRANSFER || e->direction != PROGRAM_UPLOAD || !facts->end[i] ||
            !facts->idle_ns[i] || !advice_is_free(advice, i))
            continue;
        const uint32_t user = user_before(facts, i);
        if (user == PROGRAM_NONE || facts_event(facts, user)->kind != kind) continue;
        finding_t *finding = advice_at(advice, i);
        advice_add(advice, finding, i);
        if (kind == PROGRAM_TRANSFER && advice_is_free(advice, user))
            advice_charge(advice, finding, user);
    }
}

void rule_one_buffer(advice_t *advice) { find_waits_for_buffer(advice, PROGRAM_OP); }
void rule_turns(advice_t *advice) { find_waits_for_buffer(advice, PROGRAM_TRANSFER); }
