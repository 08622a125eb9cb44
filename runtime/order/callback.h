/* Ferry's own thread: it runs the callbacks of fy_ticket_on_done, and on devices that are not
 * simulated it submits transfers that stand in a queue when there is room. One for the process,
 * started at the first need. It finds out by asking (fy_backend_t.event_peek, which costs no model
 * time, where there is one), with pauses that grow to a millisecond and end early when a foreground
 * thread has made progress. Never a callback of a driver's: those must not call the driver, nor
 * free memory.
 * A simulated clock stands still while the program sleeps. So if some milliseconds pass in which it
 * did not move, the thread waits for the oldest ticket as a host would. Not here:
 * fy_ticket_on_done's checks (ticket.c). */
#ifndef FERRY_RUNTIME_CALLBACK_H_
#define FERRY_RUNTIME_CALLBACK_H_

#include <stdatomic.h>

#include <ferry/stream.h>

#include "runtime/order/hazard.h"

/* point 0: done. Fails: OUT_OF_MEMORY. */
fy_status_t fy__callback_add(fy__point_t point, fy_done_fn fn, void *user);

/* callbacks that wait, and transfers that stand for the thread to submit */
extern _Atomic uint32_t fy__callback_busy;
void fy__callback_nudge_slow(void);
/* A wait or a poll has just learned something: others may be done, too. */
static inline void fy__callback_nudge(void)
{
    if (__builtin_expect(atomic_load_explicit(&fy__callback_busy, memory_order_relaxed) != 0, 0))
        fy__callback_nudge_slow();
}

/* A transfer begins (+1) or ends (-1) to stand on a device that is not simulated. No memory or
 * thread for it: a passer-by does it. */
void fy__callback_standing(int change);

/* For fork: the lists are held; the child has no such thread, and no callbacks that wait. */
void fy__callback_fork_lock(void);
void fy__callback_fork_unlock(void);
void fy__callback_fork_child(void);

#endif
