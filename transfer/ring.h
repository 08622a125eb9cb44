/* The ring: a few page-locked slots per device that stay registered. A pageable upload passes through them chunk by chunk, the host
 * filling one slot while the device empties another, so the caller's memory is free on return and nothing is pinned per transfer.
 * Not here: which transfers need it (upload.c). */
#ifndef FERRY_TRANSFER_RING_H_
#define FERRY_TRANSFER_RING_H_

#include "runtime/device.h"
#include "runtime/stream.h"

/* Copies host bytes to `dst` on `device` in stream order of its upload engine; returns when `src` has been read. Sets *out_point behind
 * the last chunk and adds what the host waited for slots to *blocked_ns. On failure earlier chunks may have been written. */
fy_status_t fy__ring_upload(fy_device_t *device, void *dst, const void *src, uint64_t nbytes, fy__point_t *out_point, uint64_t *blocked_ns);
/* Everything that passed through it is done. */
void fy__ring_destroy(fy_device_t *device);

#endif
