/* The staging ring: a few page-locked slots for each device, registered permanently. Pageable bytes
 * pass through them chunk by chunk. The host fills (or empties) one slot while the device empties
 * (or fills) another, so no transfer page-locks memory. Uploads, downloads and files share the
 * slots.
 * A thread owns a slot from take to give. While it holds one, it takes a second one only without a
 * wait (fy__ring_try_take), so threads with slots never wait for each other.
 * Not here: the transfers that use it (upload.c, download_into.c, file.c, coalesce.c). */
#ifndef FERRY_TRANSFER_RING_H_
#define FERRY_TRANSFER_RING_H_

#include "runtime/device/device.h"
#include "runtime/order/stream.h"

/* The thresholds that select a transfer's path, each with the trade-off behind its value, for PCIe
 * 4 and 5. Not here: limits that the user sets (the device spec's options). */
enum {
    /* Tensors up to this size are packed with others. Submitting a copy costs 5-7 us, in which a
     * PCIe 5 link moves 300 KiB and the host packs about 100: packing is faster below that. A slot
     * must hold many tensors to save anything. */
    FY__COALESCE_NBYTES = 64 << 10,
    /* Two would overlap filling and sending; four also cover a late wake-up of the host. */
    FY__RING_SLOTS = 4,
    FY__RING_SHARE = 4, /* the ring takes at most 1 / 4 of a pinned limit */
    /* 4 MiB are 80 us of PCIe 5: long compared to submitting and waking (10 us), and little
     * page-locked memory. If the limit does not allow it, down to SMALLEST. */
    FY__SLOT_NBYTES = 4 << 20,
    FY__SLOT_SMALLEST_NBYTES = 4096,
    /* A transfer through the ring is split into chunks of an eighth of it, but not smaller than
     * this. The first chunk is filled alone and the last one is sent alone: smaller is better,
     * until submitting takes as long as sending. */
    FY__CHUNK_SMALLEST_NBYTES = 1 << 20,
    /* From this size on the host fills and empties a slot with several threads. Below it waking a
     * team costs more than it saves: the same value as in the host's copy kernel. */
    FY__COPY_BY_SEVERAL_NBYTES = 256 << 10
};

typedef struct fy__slot {
    void *bytes;
    uint64_t nbytes;
    uint32_t index;
} fy__slot_t;

/* Its size, or its size under this limit on page-locked memory if nothing else used the limit. */
uint64_t fy__ring_nbytes_at(const fy_device_t *device, uint64_t limit_nbytes);
/* The size of a slot; makes the ring. */
fy_status_t fy__ring_slot_nbytes(fy_device_t *device, uint64_t *out_nbytes);
/* Takes a slot whose last DMA is done. May wait for one; adds that time to *blocked_ns. */
fy_status_t fy__ring_take(fy_device_t *device, uint64_t *blocked_ns, fy__slot_t *out_slot);
/* Takes a slot if that needs no wait. The ring exists: the caller holds a slot. */
bool fy__ring_try_take(fy_device_t *device, fy__slot_t *out_slot);
/* `point`: the last DMA that uses the slot; 0 for none. */
void fy__ring_give(fy_device_t *device, const fy__slot_t *slot, fy__point_t point);
/* Submits the first nbytes of a slot to `dst` on the upload engine. The slot stays the caller's.
 * Adds the copy's fault to *taint: the final owner of the bytes must get it
 * (fy__upload_set_faults). */
fy_status_t fy__ring_send(fy_device_t *device, const fy__slot_t *slot, void *dst, uint64_t nbytes,
                          fy__point_t *out_point, fy__taint_t *taint);
/* The part of a transfer of `nbytes` for one slot of `slot_nbytes`. */
uint64_t fy__ring_chunk(uint64_t nbytes, uint64_t slot_nbytes);

/* The host's copy to or from staging memory, after before_nbytes of the same transfer: by several
 * threads if it is large, and charged to model clocks. */
void fy__staging_copy(void *dst, const void *src, uint64_t before_nbytes, uint64_t nbytes);
/* Only the charge, for a copy that was made by other means. The first FY__COPY_BY_SEVERAL_NBYTES
 * of a transfer are charged at one thread's rate (the cost of waking the others), the rest at the
 * common rate of all. So the model time of a transfer never decreases with its bytes. */
void fy__staging_charge(uint64_t before_nbytes, uint64_t nbytes);

/* Copies host bytes to `dst` on `device` in order on its upload engine; returns when `src` has been
 * read. Sets *out_point to the last chunk's point and adds the waits for slots to *blocked_ns. On
 * failure earlier chunks may have been written. */
fy_status_t fy__ring_upload(fy_device_t *device, void *dst, const void *src, uint64_t nbytes,
                            fy__point_t *out_point, uint64_t *blocked_ns, fy__taint_t *taint);
/* All its transfers are done. */
void fy__ring_destroy(fy_device_t *device);

#endif
