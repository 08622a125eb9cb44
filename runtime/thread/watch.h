/* Watches: reasons for the dispatcher to leave its fast path, as one word of four counts that it
 * loads once per call. Zero: no watch is held. */
#ifndef FERRY_RUNTIME_WATCH_H_
#define FERRY_RUNTIME_WATCH_H_

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Add one of these to hold a watch, subtract it to release. */
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
/* Whether a watch of this kind is in the result of fy__watching. */
static inline bool fy__watch_has(uint64_t watching, uint64_t unit)
{
    return watching & unit * 0xFFFF;
}

#endif
