/* Memory from the driver in steady steps: FA13, FA14; page-locked memory beside that of the host:
 * FA20. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tools/advise/rules.h"

enum { FIRST_STEPS = 3 }; /* in which a program may still allocate */

/* The pool that got the segment of a `device_alloc`; NULL: memory was page-locked in place. */
static const char *pool_of(const program_t *p, uint32_t event)
{
    for (uint32_t i = event + 1; i < p->nevents && i < event + 8; i++)
        if (p->events[i].thread == p->events[event].thread)
            return p->events[i].kind == PROGRAM_SEGMENT_ALLOC ? p->events[i].name : NULL;
    return NULL;
}

static bool is_steady(const facts_t *facts, uint32_t event)
{
    const program_t *p = facts->program;
    const uint32_t step = facts_step(facts, event);
    return step != PROGRAM_NONE && p->nsteps > FIRST_STEPS && step >= p->steps[FIRST_STEPS];
}

static bool is_alloc(const facts_t *facts, uint32_t event, bool pinned)
{
    const program_t *p = facts->program;
    if (p->events[event].kind != PROGRAM_DEVICE_ALLOC || !is_steady(facts, event)) return false;
    const char *pool = pool_of(p, event);
    return (!pool || strncmp(pool, "pinned memory", 13) == 0) == pinned;
}

/* If at least half of the steady steps do it: a step now and then may need more than any before. */
static void find_allocs(advice_t *advice, bool pinned)
{
    const facts_t *facts = advice->facts;
    size_t steps = 0;
    uint32_t last = PROGRAM_NONE;
    if (facts->program->nsteps <= FIRST_STEPS) return;
    for (uint32_t i = 0; i < facts->program->nevents; i++)
        if (is_alloc(facts, i, pinned)) {
            steps += facts_step(facts, i) != last;
            last = facts_step(facts, i);
        }
    if (steps * 2 < facts->program->nsteps - FIRST_STEPS) return;
    for (uint32_t i = 0; steps && i < facts->program->nevents; i++)
        if (is_alloc(facts, i, pinned) && advice_is_free(advice, i))
            advice_add(advice, advice_at(advice, i), i);
}

void rule_pin(advice_t *advice) { find_allocs(advice, true); }
void rule_alloc(advice_t *advice) { find_allocs(advice, false); }

static bool is_pinned_block(const program_t *p, uint32_t event)
{
    const program_event_t *e = &p->events[event];
    return (e->kind == PROGRAM_BLOCK_ALLOC || e->kind == PROGRAM_BLOCK_FREE) &&
           strncmp(e->name, "pinned memory", 13) == 0;
}

/* The event at which the most page-locked bytes were in use; *out_most: how many. */
static uint32_t find_most_pinned(const program_t *p, uint64_t *out_most)
{
    uint64_t live = 0;
    uint32_t found = PROGRAM_NONE;
    *out_most = 0;
    for (uint32_t i = 0; i < p->nevents; i++) {
        const uint64_t nbytes = p->events[i].nbytes;
        if (!is_pinned_block(p, i)) continue;
        if (p->events[i].kind == PROGRAM_BLOCK_FREE)
            live -= nbytes < live ? nbytes : live;
        else
            live += nbytes;
        if (live <= *out_most) continue;
        *out_most = live;
        found = i;
    }
    return found;
}

/* One finding: all blocks that were in use at that moment. */
void rule_pinned_most(advice_t *advice)
{
    const program_t *p = advice->facts->program;
    uint64_t most;
    const uint32_t peak = find_most_pinned(p, &most);
    if (peak == PROGRAM_NONE || !p->memory_nbytes || most <= p->memory_nbytes / 2) return;
    finding_t *finding = advice_at(advice, peak);
    for (uint32_t b = 0; b < p->nblocks; b++) {
        const program_block_t *block = &p->blocks[b];
        if (block->allocated > peak || (block->freed != PROGRAM_NONE && block->freed <= peak) ||
            !is_pinned_block(p, block->allocated) || !advice_is_free(advice, block->allocated))
            continue;
        advice_add(advice, finding, block->allocated);
    }
    snprintf(finding->detail, sizeof finding->detail,
             "%" PRIu64 " of %" PRIu64 " bytes of the host are page-locked at once", most,
             p->memory_nbytes);
}
