/* Page-locked host memory of a device: the slabs of its pinned pool, what fy_tensor_pin locks where
 * it lies, and the page of its fault words. All of it counts against pinned=, to the byte: bytes
 * are taken from the limit before the backend is asked, and given back after it let go of them. Not
 * here: how slabs are cut and when they go (alloc/), the ring (transfer/ring.h). */
#ifndef FERRY_RUNTIME_PIN_H_
#define FERRY_RUNTIME_PIN_H_

#include "runtime/device/device.h"
#include "runtime/thread/thread.h"

/* The pinned pool's segment source; user is the device. A refusal by the limit is PINNED_LIMIT. */
fy_status_t fy__pin_segment_alloc(void *user, uint64_t nbytes, void **out_address);
void fy__pin_segment_free(void *user, void *address, uint64_t nbytes);
bool fy__pin_may_grow(void *user);
/* Unlocks what was given up and is used no more; true if that was anything. */
bool fy__pin_collect(void *user);
/* Waits for who still uses what was given up, and unlocks it. */
void fy__pin_settle(void *user);

/* Locks host memory that is there. If only idle slabs of the pool are in the way, they go first;
 * for what is in use no more but for transfers on their way, it waits. Fails: PINNED_LIMIT with a
 * verdict, REFUSED_BY_GUARD, as the backend does. */
fy_status_t fy__pin_here(fy__thread_t *thread, fy_device_t *peer, void *data, uint64_t nbytes);
void fy__pin_here_end(fy_device_t *peer, void *data, uint64_t nbytes);

/* Zeroed memory for the device's own use, outside the pool. */
fy_status_t fy__pin_own(fy_device_t *device, uint64_t nbytes, void **out_address);
void fy__pin_own_free(fy_device_t *device, void *address, uint64_t nbytes);

/* Adds to the pool's figures what is page-locked outside of it, so that reserved is all that is
 * registered; returns that. */
uint64_t fy__pin_add_outside(const fy_device_t *device, fy_memory_stats_t *stats);

#endif
