/* Events: written to the event file (docs/internals/events.md) while a recording runs. A hook is
 * one line, `FY__EVENT(fy__event_sync(thread, what, ns))`; neither the call nor its arguments run
 * without a recording. A hook never blocks: it copies the event into a bounded ring. If the ring is
 * full, the event is dropped and counted.
 * Not here: the form of an event (event_ring.h) and of the file (event_write.c), begin and end of a
 * recording (event.c). */
#ifndef FERRY_RUNTIME_EVENT_H_
#define FERRY_RUNTIME_EVENT_H_

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include <ferry/types.h>

#include "runtime/order/hazard.h"
#include "runtime/thread/wait_site.h"
#include "runtime/thread/watch.h"

struct fy__block;
struct fy__thread;
struct fy__storage;
struct fy_tensor;

static inline bool fy__event_on(void)
{
    return __builtin_expect(fy__watch_has(fy__watching(), FY__WATCH_EVENTS), 0);
}
#define FY__EVENT(call)             \
    do {                            \
        if (fy__event_on()) (call); \
    } while (0)

/* Reads the host's model clock; NULL: no device with one was opened yet. Set once (wire.c). */
typedef uint64_t (*fy__event_clock_fn)(void);
extern _Atomic(fy__event_clock_fn) fy__event_clock;

/* ---- hooks; strings called `what` are static. Ops and transfers use event_ring.h ---- */

/* The innermost scope has begun, or will end now. */
void fy__event_scope(struct fy__thread *thread, bool is_begin);

/* The executor copied; direction is FY__UPLOAD, ... */
void fy__event_copy(struct fy__thread *thread, int direction, uint64_t nbytes);
/* fy_ledger_collective, _moved and _ran. */
void fy__event_collective(struct fy__thread *thread, const char *what, uint64_t nbytes);
void fy__event_exchange(struct fy__thread *thread, uint64_t wire_nbytes, uint64_t messages,
                        uint64_t blocked_ns);
void fy__event_collective_ran(struct fy__thread *thread, const char *what, int rank,
                              uint64_t number, uint64_t start_ns, fy_status_t status);
/* Later work on `stream` waits for `point`, on the device. */
void fy__event_wait(const fy_stream_t *stream, fy__point_t point, fy__wait_site_t site);
/* The transfer that was queued as `job` is now request `point`; point 0: its submission failed with
 * `status`. */
void fy__event_started(struct fy__thread *thread, const fy_device_t *device, fy__point_t job,
                       fy__point_t point, uint64_t nbytes, fy_status_t status);
/* A blocking call has ended: thread->blocking. */
void fy__event_sync(struct fy__thread *thread, uint64_t blocked_ns);
/* The host waited for back-pressure. */
void fy__event_throttle(struct fy__thread *thread, const char *reason, uint64_t blocked_ns);
/* Host code reads or writes the bytes (fy_access_t); before the version changes. */
void fy__event_map(const struct fy__storage *storage, int access, uint64_t nbytes,
                   const void *caller);
/* The tensor was given a name. */
void fy__event_named(const struct fy_tensor *tensor);
/* A download was waited for or tried; not OK: its bytes are poisoned, or (TIMEOUT) have not
 * arrived. */
void fy__event_arrived(struct fy__thread *thread, const fy_device_t *device, fy__point_t point,
                       uint64_t nbytes, uint64_t blocked_ns, fy_status_t status);
/* A guard or the budget refused a call, or BUSY: an upload reads the bytes that it would write.
 * The text is the error record's. */
void fy__event_refusal(struct fy__thread *thread, fy_status_t status);
/* A request failed on the device, or the device was lost. */
void fy__event_fault(fy_status_t status, const char *text);

/* A device was opened. */
void fy__event_device(const fy_device_t *device);
/* A stream was added to the table. */
void fy__event_stream(const fy_stream_t *stream);
/* A pool's current figures. This and the calls below run under the pool's lock, so that the
 * file has them in their order of execution. Names of pools are permanent (fy__text). */
typedef struct fy__event_pool {
    const char *name;
    uint64_t live, reserved;
    uint64_t segment_nbytes, resize_nbytes; /* as in fy_pool_options_t */
    bool keeps_segments;
} fy__event_pool_t;
void fy__event_pool(const fy__event_pool_t *pool);
/* `id`: of the segment, in its pool; it grows or shrinks if it was allocated before. */
void fy__event_segment(const char *pool, uint64_t id, uint64_t nbytes, bool is_alloc);
/* Where a block is: its segment, and the offset in it. */
typedef struct fy__event_place {
    uint64_t segment, offset;
} fy__event_place_t;
/* `stream`: the one that uses the bytes first; 0: the host. */
void fy__event_block_alloc(const char *pool, const struct fy__block *block, uint64_t requested,
                           uint32_t stream, fy__event_place_t place);
/* `after`: requests that may still use the bytes, as nonzero words; NULL: none. */
void fy__event_block_free(const char *pool, const struct fy__block *block, uint64_t requested,
                          const fy__hazard_t *after);
/* Freed blocks that were pending only on this stream, up to `point`, are free. */
void fy__event_blocks_reached(const char *pool, fy__point_t point);
/* Counted as a device allocation. */
void fy__event_device_alloc(struct fy__thread *thread);

/* ---- the recording ---- */

/* Reads $FERRY_RECORD, once. */
void fy__event_from_environment(void);

/* Held over a fork, by begin and end; the child does not record. */
extern pthread_mutex_t fy__event_lock;
void fy__event_fork_child(void);

#endif
