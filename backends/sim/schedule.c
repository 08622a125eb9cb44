/* How the random order draws; see schedule.h. All numbers come from the device's seed, so one
 * submitting thread sees the same order again. */
#include "backends/sim/schedule.h"

#include <stddef.h>

#include "backends/sim/sim.h"

/* Chosen so that programs of some dozens of requests see each case: a step runs nothing in one of
 * four, everything in one of 128; a queue gets a new priority about every 64th step. */
enum { REDRAW_EVERY = 64, ALL_EVERY = 128, NONE_EVERY = 4, MOST_AT_ONCE = 4 };

uint64_t fy__sim_random_next(uint64_t *state)
{
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

void fy__sim_schedule_join(fy__sim_queue_t *queue)
{
    uint64_t drawn = fy__sim_random_next(&queue->dev->random);
    unsigned mood = drawn & 7;
    queue->priority = (uint32_t)(drawn >> 32);
    queue->mood = mood < 3 ? FY__SIM_LAGGING : mood < 4 ? FY__SIM_AHEAD : FY__SIM_STEADY;
}

/* The runnable queue that goes first; NULL if none. */
static fy__sim_queue_t *choose(bool all)
{
    fy__sim_queue_t *best = NULL;
    for (fy__sim_queue_t *queue = fy__sim_queue_first(); queue; queue = queue->next) {
        if (!queue->is_random || !fy__sim_queue_is_runnable(queue)) continue;
        if (queue->mood == FY__SIM_LAGGING && !all) continue;
        if (!best || queue->priority > best->priority) best = queue;
    }
    return best;
}

static fy__sim_queue_t *choose_ahead(void)
{
    for (fy__sim_queue_t *queue = fy__sim_queue_first(); queue; queue = queue->next)
        if (queue->mood == FY__SIM_AHEAD && queue->is_random && fy__sim_queue_is_runnable(queue))
            return queue;
    return NULL;
}

static void redraw_one(uint64_t drawn)
{
    size_t n = 0;
    for (fy__sim_queue_t *queue = fy__sim_queue_first(); queue; queue = queue->next)
        n += queue->is_random;
    size_t left = n > 0 ? drawn % n : 0;
    for (fy__sim_queue_t *queue = fy__sim_queue_first(); queue; queue = queue->next)
        if (queue->is_random && left-- == 0) {
            fy__sim_schedule_join(queue);
            return;
        }
}

void fy__sim_schedule_step(fy__sim_device_t *dev)
{
    if (!dev->order->is_random) return;
    uint64_t drawn = fy__sim_random_next(&dev->random);
    if (drawn % REDRAW_EVERY == 0) redraw_one(drawn >> 40);
    bool all = (drawn >> 8) % ALL_EVERY == 0;
    uint64_t budget = (drawn >> 16) % NONE_EVERY == 0 ? 0 : 1 + (drawn >> 24) % MOST_AT_ONCE;
    if (all) budget = UINT64_MAX;
    fy__sim_queue_t *queue;
    while ((queue = choose_ahead())) fy__sim_queue_run_head(queue);
    for (; budget > 0 && (queue = choose(all)); budget--) fy__sim_queue_run_head(queue);
}
