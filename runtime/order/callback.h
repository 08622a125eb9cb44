/* The callback thread: it runs the callbacks of fy_ticket_on_done. On devices that are not
 * simulated it also submits queued transfers when the window has room. The process has one, started
 * at the first need. It polls with fy_backend_t.event_peek (no model time) if there is one. Its
 * pauses grow to a millisecond and end early when a foreground thread has made progress. It does
 * not use driver callbacks: those must not call the driver or free memory.
 * A simulated clock does not advance while the program sleeps. So after some milliseconds without
 * progress of the clock, the thread waits for the oldest ticket as a host would. Not here:
 * fy_ticket_on_done's checks (ticket.c). */
#ifndef FERRY_RUNTIME_CALLBACK_H_
#define FERRY_RUNTIME_CALLBACK_H_

#include <pthread.h>
#include <stdatomic.h>

#include <ferry/stream.h>

#include "runtime/order/hazard.h"

/* point 0: done. Fails: OUT_OF_MEMORY. */
fy_status_t fy__callback_add(fy__point_t point, fy_done_fn fn, void *user);

/* waiting callbacks, and queued transfers that the thread must submit */
extern _Atomic uint32_t fy__callback_busy;
void fy__callback_nudge_slow(void);
/* Called after a wait or a poll made progress: other tickets may be done as well. */
static inline void fy__callback_nudge(void)
{
    if (__builtin_expect(atomic_load_explicit(&fy__callback_busy, memory_order_relaxed) != 0, 0))
        fy__callback_nudge_slow();
}

/* Counts a queued transfer (+1: queued, -1: no longer) of a device that is not simulated. If memory
 * or the thread is missing, the next API call submits it. */
void fy__callback_standing(int change);

/* For fork: the lists are locked; the child has no callback thread, and no waiting callbacks. */
extern pthread_mutex_t fy__callback_lock;
void fy__callback_fork_child(void);

#endif
