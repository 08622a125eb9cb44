/* Page-locked host memory of a device: the slabs of its pinned pool, memory that fy_tensor_pin
 * locks in place, and the page of its fault words. All of it counts against pinned=, to the byte.
 * Bytes are taken from the limit before the backend locks them, and returned after the backend has
 * unlocked them.
 * Not here: how slabs are cut and released (alloc/), the ring (transfer/ring.h). */
#ifndef FERRY_RUNTIME_PIN_H_
#define FERRY_RUNTIME_PIN_H_

#include "runtime/device/device.h"
#include "runtime/thread/thread.h"

/* The pinned pool's segment source; user is the device. PINNED_LIMIT if the limit refuses. */
fy_status_t fy__pin_segment_alloc(void *user, uint64_t nbytes, void **out_address);
void fy__pin_segment_free(void *user, void *address, uint64_t nbytes);
bool fy__pin_may_grow(void *user);
/* Unlocks released memory whose last use is over; true if there was any. */
bool fy__pin_collect(void *user);
/* Waits for the last uses of released memory, and unlocks it. */
void fy__pin_settle(void *user);

/* Locks existing host memory in place. If only idle slabs of the pool exceed the limit, releases
 * them first; if only memory in its last transfers does, waits for it. Fails: PINNED_LIMIT with a
 * verdict, REFUSED_BY_GUARD, as the backend. */
fy_status_t fy__pin_here(fy__thread_t *thread, fy_device_t *peer, void *data, uint64_t nbytes);
void fy__pin_here_end(fy_device_t *peer, void *data, uint64_t nbytes);

/* Zeroed memory for the device itself, outside the pool. */
fy_status_t fy__pin_own(fy_device_t *device, uint64_t nbytes, void **out_address);
void fy__pin_own_free(fy_device_t *device, void *address, uint64_t nbytes);

/* Adds the page-locked bytes outside the pool to the pool's figures, so that reserved is all
 * registered memory; returns these bytes. */
uint64_t fy__pin_add_outside(const fy_device_t *device, fy_memory_stats_t *stats);

#endif
