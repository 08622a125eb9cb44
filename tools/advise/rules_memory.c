/* Memory from the driver in steady steps: FA13, FA14. */
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

static bool is_steady(const run_t *run, uint32_t event)
{
    const program_t *p = run->program;
    const uint32_t step = run_step(run, event);
    return step != PROGRAM_NONE && p->nsteps > FIRST_STEPS && step >= p->steps[FIRST_STEPS];
}

static bool is_alloc(const run_t *run, uint32_t event, bool pinned)
{
    const program_t *p = run->program;
    if (p->events[event].kind != PROGRAM_DEVICE_ALLOC || !is_steady(run, event)) return false;
    const char *pool = pool_of(p, event);
    return (!pool || strncmp(pool, "pinned memory", 13) == 0) == pinned;
}

/* If at least half of the steady steps do it: a step now and then may need more than any before. */
static void find_allocs(advice_t *advice, bool pinned)
{
    const run_t *run = advice->run;
    size_t steps = 0;
    uint32_t last = PROGRAM_NONE;
    if (run->program->nsteps <= FIRST_STEPS) return;
    for (uint32_t i = 0; i < run->program->nevents; i++)
        if (is_alloc(run, i, pinned)) {
            steps += run_step(run, i) != last;
            last = run_step(run, i);
        }
    if (steps * 2 < run->program->nsteps - FIRST_STEPS) return;
    for (uint32_t i = 0; steps && i < run->program->nevents; i++)
        if (is_alloc(run, i, pinned) && advice_is_free(advice, i))
            advice_add(advice, advice_at(advice, i), i);
}

void rule_pin(advice_t *advice) { find_allocs(advice, true); }
void rule_alloc(advice_t *advice) { find_allocs(advice, false); }
