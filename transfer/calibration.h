/* The thresholds that decide how a transfer goes, in one place. Defaults hold for PCIe 4 and 5;
 * each says why. They are per device so that measured ones can stand beside them later. Not here:
 * limits that the user sets (the device spec's options). */
#ifndef FERRY_TRANSFER_CALIBRATION_H_
#define FERRY_TRANSFER_CALIBRATION_H_

#include "runtime/device/device.h"

enum { FY__RING_SLOTS_MOST = 8 };

typedef struct fy__calibration {
    uint64_t coalesce_nbytes;      /* tensors up to this size travel packed with others */
    uint32_t ring_slots;           /* at most FY__RING_SLOTS_MOST */
    uint32_t ring_share;           /* the ring takes at most 1 / ring_share of a pinned limit */
    uint64_t slot_nbytes;          /* of the ring, where the limit allows it */
    uint64_t slot_smallest_nbytes; /* and where it does not */
    /* a transfer through the ring goes in chunks of an eighth of it, but not smaller than this */
    uint64_t chunk_smallest_nbytes;
    /* from here on the host fills and empties a slot with several threads */
    uint64_t copy_by_several_nbytes;
} fy__calibration_t;

const fy__calibration_t *fy__calibration(const fy_device_t *device);

#endif
