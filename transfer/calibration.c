/* The table of thresholds, each with the trade-off behind its value. */
#include "transfer/calibration.h"

static const fy__calibration_t defaults = {
    /* Submitting a copy costs 5-7 us, in which a PCIe 5 link moves 300 KiB and the host packs about
     * 100: packing is faster below that. A slot must hold many tensors to save anything. */
    .coalesce_nbytes = 64u << 10,
    /* Two would overlap filling and sending; four also cover a late wake-up of the host. */
    .ring_slots = 4,
    .ring_share = 4,
    /* 4 MiB are 80 us of PCIe 5: long compared to submitting and waking (10 us), and little
     * page-locked memory. */
    .slot_nbytes = 4u << 20,
    .slot_smallest_nbytes = 4096,
    /* The first chunk is filled alone and the last one is sent alone: smaller is better, until
     * submitting takes as long as sending. */
    .chunk_smallest_nbytes = 1u << 20,
    /* Below it waking a team costs more than it saves: the same value as in the host's copy
     * kernel. */
    .copy_by_several_nbytes = 256u << 10,
};

const fy__calibration_t *fy__calibration(const fy_device_t *device)
{
    (void)device;
    return &defaults;
}
