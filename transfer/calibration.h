/* The thresholds that select a transfer's path, in one place. Defaults are for PCIe 4 and 5, each
 * with its reason. They are per device, so that measured ones can be added later. Not here: limits
 * that the user sets (the device spec's options). */
#ifndef FERRY_TRANSFER_CALIBRATION_H_
#define FERRY_TRANSFER_CALIBRATION_H_

#include "runtime/device/device.h"

enum { FY__RING_SLOTS_MOST = 8 };

typedef struct fy__calibration {
    uint64_t coalesce_nbytes;      /* tensors up to this size are packed with others */
    uint32_t ring_slots;           /* at most FY__RING_SLOTS_MOST */
    uint32_t ring_share;           /* the ring takes at most 1 / ring_share of a pinned limit */
    uint64_t slot_nbytes;          /* of the ring, if the limit allows it */
    uint64_t slot_smallest_nbytes; /* else down to this */
    /* a transfer through the ring is split into chunks of an eighth of it, but not smaller than
     * this */
    uint64_t chunk_smallest_nbytes;
    /* from this size on the host fills and empties a slot with several threads */
    uint64_t copy_by_several_nbytes;
} fy__calibration_t;

const fy__calibration_t *fy__calibration(const fy_device_t *device);

#endif
