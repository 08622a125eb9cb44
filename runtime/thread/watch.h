/* What makes the straight path leave its straight line: one word of four counts that the dispatcher
 * loads once per call.
 * Zero: nobody is looking. */
#ifndef FERRY_RUNTIME_WATCH_H_
#define FERRY_RUNTIME_WATCH_H_

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Add one of these to hold a watch, subtract it to let go. */
#define FY__WATCH_SIMULATED \
    UINT64_C(1) /* a device with a model clock is open: host work is charged to it */
#define FY__WATCH_GRAPH  (UINT64_C(1) << 16) /* some thread records a graph */
#define FY__WATCH_EVENTS (UINT64_C(1) << 32) /* an event file is being written */
#define FY__WATCH_TAPE   (UINT64_C(1) << 48) /* there is a tape */

extern _Atomic uint64_t fy__watch; /* device.c */
static inline uint64_t fy__watching(void)
{
    return atomic_load_explicit(&fy__watch, memory_order_relaxed);
}
static inline void fy__watch_hold(uint64_t unit) { atomic_fetch_add(&fy__watch, unit); }
static inline void fy__watch_release(uint64_t unit) { atomic_fetch_sub(&fy__watch, unit); }
/* Is a watch of this kind in what fy__watching gave? */
static inline bool fy__watch_has(uint64_t watching, uint64_t unit)
{
    return watching & unit * 0xFFFF;
}

#endif
