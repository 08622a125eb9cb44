/* The ring: a few page-locked slots per device that stay registered. What is pageable passes
 * through them chunk by chunk, the host filling (or emptying) one slot while the device empties (or
 * fills) another, so nothing is pinned per transfer. Uploads, downloads and files share the slots.
 * A slot is its taker's until it is given back; who holds one takes a second one only if there is
 * one to be had at once (fy__ring_try_take), so holders never wait for each other.
 * Not here: which transfers need it (upload.c, download_into.c, file.c, coalesce.c). */
#ifndef FERRY_TRANSFER_RING_H_
#define FERRY_TRANSFER_RING_H_

#include "runtime/device/device.h"
#include "runtime/order/stream.h"

typedef struct fy__slot {
    void *bytes;
    uint64_t nbytes;
    uint32_t index;
} fy__slot_t;

/* How large it is, or would be with this limit on page-locked memory if nobody else had any. */
uint64_t fy__ring_nbytes_at(const fy_device_t *device, uint64_t limit_nbytes);
/* How large a slot is; makes the ring. */
fy_status_t fy__ring_slot_nbytes(fy_device_t *device, uint64_t *out_nbytes);
/* Takes a slot whose last DMA is done; waits for one if it must, and adds that time to
 * *blocked_ns. */
fy_status_t fy__ring_take(fy_device_t *device, uint64_t *blocked_ns, fy__slot_t *out_slot);
/* Takes one if that needs no wait. The ring is there: the caller holds a slot. */
bool fy__ring_try_take(fy_device_t *device, fy__slot_t *out_slot);
/* `point`: the DMA that uses the slot last; 0 if none does. */
void fy__ring_give(fy_device_t *device, const fy__slot_t *slot, fy__point_t point);
/* Sends the first nbytes of a slot to `dst` on the upload engine, in its order. The slot stays the
 * caller's. Adds to *taint what may turn out about the copy: whoever owns the bytes in the end
 * must suffer from it (fy__upload_left). */
fy_status_t fy__ring_send(fy_device_t *device, const fy__slot_t *slot, void *dst, uint64_t nbytes,
                          fy__point_t *out_point, fy__taint_t *taint);
/* How much of a transfer of `nbytes` goes through one slot of `slot_nbytes`. */
uint64_t fy__ring_chunk(const fy_device_t *device, uint64_t nbytes, uint64_t slot_nbytes);

/* The host's own copy into or out of staging memory, after before_nbytes of the same transfer: by
 * several threads if it is large, and charged to model clocks. */
void fy__staging_copy(const fy_device_t *device, void *dst, const void *src, uint64_t before_nbytes,
                      uint64_t nbytes);
/* Only the charge, for a copy that was done otherwise. One thread's rate for the first
 * copy_by_several_nbytes of a transfer, which is what waking the others costs a larger one; their
 * common rate for the rest. So the model time of a transfer never falls as its bytes grow. */
void fy__staging_charge(const fy_device_t *device, uint64_t before_nbytes, uint64_t nbytes);

/* Copies host bytes to `dst` on `device` in stream order of its upload engine; returns when `src`
 * has been read. Sets *out_point behind the last chunk and adds what the host waited for slots to
 * *blocked_ns. On failure earlier chunks may have been written. */
fy_status_t fy__ring_upload(fy_device_t *device, void *dst, const void *src, uint64_t nbytes,
                            fy__point_t *out_point, uint64_t *blocked_ns, fy__taint_t *taint);
/* Everything that passed through it is done. */
void fy__ring_destroy(fy_device_t *device);

#endif
