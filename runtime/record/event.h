/* Events: what happens, told to the event file (docs/internals/events.md) while one is written, and
 * to nobody else. A hook is one line, `FY__EVENT(fy__event_sync(thread, what, ns))`: nothing of it
 * runs, not even its arguments, unless a recording does.
 * Telling never blocks: an event is copied into a bounded ring; if that is full it is dropped and
 * counted.
 * Not here: what an event looks like inside (event_ring.h) and in the file (event_write.c),
 * starting and ending (event.c). */
#ifndef FERRY_RUNTIME_EVENT_H_
#define FERRY_RUNTIME_EVENT_H_

#include <stdbool.h>
#include <stdint.h>

#include <ferry/types.h>

#include "runtime/order/hazard.h"
#include "runtime/thread/wait_site.h"
#include "runtime/thread/watch.h"

struct fy__block;
struct fy__thread;
struct fy__storage;

static inline bool fy__event_on(void)
{
    return __builtin_expect(fy__watch_has(fy__watching(), FY__WATCH_EVENTS), 0);
}
#define FY__EVENT(call)             \
    do {                            \
        if (fy__event_on()) (call); \
    } while (0)

/* ---- hooks; strings called `what` are static. Ops and transfers are told with event_ring.h
 * ---- */

/* The innermost scope has begun, or is about to end. */
void fy__event_scope(struct fy__thread *thread, bool is_begin);

/* The executor copied; direction is FY__UPLOAD, ... */
void fy__event_copy(struct fy__thread *thread, int direction, uint64_t nbytes);
/* Work submitted to `stream` from now on was made to wait for `point`, on the device. */
void fy__event_wait(const fy_stream_t *stream, fy__point_t point, fy__wait_site_t site);
/* The transfer that stood in a queue as `job` is request `point` now; point 0: it failed with
 * `status` when its turn came. */
void fy__event_started(struct fy__thread *thread, const fy_device_t *device, fy__point_t job,
                       fy__point_t point, uint64_t nbytes, fy_status_t status);
/* A call marked Blocks has ended. */
void fy__event_sync(struct fy__thread *thread, const char *what, uint64_t blocked_ns);
/* The host was held back. */
void fy__event_throttle(struct fy__thread *thread, uint64_t blocked_ns);
/* A download was waited for or tried; not OK: its bytes are not good, or (TIMEOUT) not there
 * yet. */
void fy__event_arrived(struct fy__thread *thread, const fy_device_t *device, fy__point_t point,
                       uint64_t nbytes, uint64_t blocked_ns, fy_status_t status);
/* A guard or the budget said no; the text is the error record's. */
void fy__event_refusal(struct fy__thread *thread, fy_status_t status);
/* A request failed on the device, or the device was lost. */
void fy__event_fault(fy_status_t status, const char *text);

/* A stream took its place in the table. */
void fy__event_stream(const fy_stream_t *stream);
/* A pool's figures as they are; called under its lock, as are the four below, so that the file has
 * them in the order in which they happened. */
typedef struct fy__event_pool {
    const char *name;
    uint64_t live, reserved;
    uint64_t segment_nbytes, resize_nbytes; /* as fy_pool_options_t has them */
    bool keeps_segments;
} fy__event_pool_t;
void fy__event_pool(const fy__event_pool_t *pool);
void fy__event_segment(const char *pool, uint64_t nbytes, bool is_alloc);
/* `stream`: the one that uses the bytes first; 0: the host. */
void fy__event_block_alloc(const char *pool, const struct fy__block *block, uint64_t requested,
                           uint32_t stream);
/* `after`: requests that may still use the bytes, in the words that are not 0; NULL: none. */
void fy__event_block_free(const char *pool, const struct fy__block *block, uint64_t requested,
                          const fy__hazard_t *after);
/* Blocks that were freed and pending only on this stream, up to `point`, are free. */
void fy__event_blocks_reached(const char *pool, fy__point_t point);
/* Counted as a device allocation. */
void fy__event_device_alloc(struct fy__thread *thread);

/* ---- the recording ---- */

/* $FERRY_RECORD, once. */
void fy__event_from_environment(void);

/* Starting and ending are held over a fork; the child does not record. */
void fy__event_fork_lock(void);
void fy__event_fork_unlock(void);
void fy__event_fork_child(void);

#endif
