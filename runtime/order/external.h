/* Work of other libraries as points on one timeline of the process, on the device `host`. Its
 * points have no native queue: a request ordered after one waits on the host until the work is
 * finished. Public calls: <ferry/external.h>.
 * Not here: jobs of transfers (transfer/queue.h), which also have a timeline. */
#ifndef FERRY_RUNTIME_EXTERNAL_H_
#define FERRY_RUNTIME_EXTERNAL_H_

#include <ferry/external.h>

#include "runtime/order/stream.h"
#include "runtime/thread/thread.h"

/* Whether `point` is the work that this thread does: its own requests do not wait for it. */
static inline bool fy__external_is_own(fy__point_t point)
{
    return fy__tls && fy__tls->external == point;
}
/* Blocks until no unfinished work of another thread uses the bytes. For requests that are queued:
 * a job never depends on such work. No lock may be held. */
fy_status_t fy__external_await(const fy__hazard_t *hazard);

extern pthread_mutex_t fy__external_lock;
void fy__external_fork_child(void);

#endif
