/* Guards: budgets of scopes. Decided once, at the edge of the API call, before anything was done; charged when it was done.
 * All of this is per thread, so it takes no lock. A thread without guards pays one comparison. */
#ifndef FERRY_RUNTIME_GUARD_H_
#define FERRY_RUNTIME_GUARD_H_

#include "runtime/thread.h"

/* May `nbytes` go this way now? `what` names the call. REFUSED_BY_GUARD says which scope forbids it, the limit and what is used. */
fy_status_t fy__guard_check_transfer(fy__thread_t *thread, int direction, uint64_t nbytes, const char *what);
void fy__guard_charge_transfer(fy__thread_t *thread, int direction, uint64_t nbytes);

/* Brackets a call marked Blocks: check and count on the way in, time on the way out. A refused call is not counted. */
fy_status_t fy__sync_begin(fy__thread_t *thread, const char *what, uint64_t *out_start_ns);
void fy__sync_end(fy__thread_t *thread, uint64_t start_ns);
/* A request was held back from `start_ns` till now because the host was too far ahead: back-pressure, which no guard forbids. */
void fy__throttled(fy__thread_t *thread, uint64_t start_ns);
/* Would fy__sync_begin pass? */
bool fy__sync_allowed(const fy__thread_t *thread);

/* One call to a backend's allocator: check before, count after. */
fy_status_t fy__guard_check_device_alloc(fy__thread_t *thread, uint64_t nbytes, const char *device);
void fy__guard_count_device_alloc(fy__thread_t *thread);
/* May `nbytes` more become live on devices? */
fy_status_t fy__guard_check_memory(fy__thread_t *thread, uint64_t nbytes, const char *device);

/* Live device bytes made under `node` on this thread, all devices. */
int64_t fy__guard_live(fy__node_t *node);

/* Monotonic host time. */
uint64_t fy__now_ns(void);

#endif
