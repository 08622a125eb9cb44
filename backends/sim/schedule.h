/* The choices of the random order: after each call that queries a device, which of the runnable
 * heads of all queues run now. In the manner of PCT (Burckhardt et al., ASPLOS 2010: random
 * priorities, changed at few points). Uniform choices would keep all streams equally far, and hide
 * errors that need one stream far behind or far ahead.
 * Not here: which requests may run (queue.h). Everything here is called with the queues' lock
 * held. */
#ifndef FERRY_BACKENDS_SIM_SCHEDULE_H_
#define FERRY_BACKENDS_SIM_SCHEDULE_H_

#include <stdint.h>

struct fy__sim_device;
struct fy__sim_queue;

/* STEADY runs in its turn; LAGGING only when it must, or when everything runs; AHEAD as soon as it
 * can. */
enum { FY__SIM_STEADY, FY__SIM_LAGGING, FY__SIM_AHEAD };

/* SplitMix64: the next number of `*state`. */
uint64_t fy__sim_random_next(uint64_t *state);
/* A new queue draws its priority and mood from its device's numbers. */
void fy__sim_schedule_join(struct fy__sim_queue *queue);
/* Runs some, none or all, drawn from the numbers of `dev`. */
void fy__sim_schedule_step(struct fy__sim_device *dev);

#endif
