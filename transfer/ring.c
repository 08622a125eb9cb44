/* The staging ring. Made at the first upload that needs it; its slots are one page-locked block of the device's pinned pool. */
#include "transfer/ring.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/fail.h"
#include "runtime/guard.h"

enum { SLOTS = 4, SLOT_LARGEST = 1 << 20, SLOT_SMALLEST = 4096, SHARE = 4 /* at most 1 / SHARE of a limit is the ring's */ };

struct fy__ring {
    pthread_mutex_t lock; /* guards `next` and `last`; held while a chunk is filled and submitted, so chunks do not interleave in a slot */
    fy__block_t *block;
    uint64_t slot_nbytes;
    uint32_t next;
    fy__point_t last[SLOTS]; /* the DMA that last read the slot */
};

/* Two threads may get here at once: the first to publish wins. */
static fy_status_t get_ring(fy_device_t *device, struct fy__ring **out_ring)
{
    *out_ring = __atomic_load_n(&device->ring, __ATOMIC_ACQUIRE);
    if (*out_ring) return FY_STATUS_OK;
    struct fy__ring *ring = calloc(1, sizeof *ring), *none = NULL;
    if (!ring) return FY_FAIL(OUT_OF_MEMORY, "upload: no host memory for %zu bytes of the ring", sizeof *ring);
    fy_memory_stats_t pinned = FY_MEMORY_STATS_INIT;
    fy__pool_query(device->pinned, &pinned);
    ring->slot_nbytes = SLOT_LARGEST;
    while (ring->slot_nbytes > SLOT_SMALLEST && ring->slot_nbytes > pinned.limit / SLOTS / SHARE) ring->slot_nbytes /= 2;
    fy_status_t status;
    while ((status = fy__pool_alloc(device->pinned, SLOTS * ring->slot_nbytes, 0, &ring->block)) == FY_STATUS_PINNED_LIMIT &&
           ring->slot_nbytes > SLOT_SMALLEST)
        ring->slot_nbytes /= 2; /* others hold the rest: slower beats not at all */
    if (status != FY_STATUS_OK) {
        free(ring);
        return status;
    }
    pthread_mutex_init(&ring->lock, NULL);
    if (!__atomic_compare_exchange_n(&device->ring, &none, ring, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
        fy__pool_free(ring->block);
        pthread_mutex_destroy(&ring->lock);
        free(ring);
        ring = none;
    }
    *out_ring = ring;
    return FY_STATUS_OK;
}

/* Waits until the slot's last DMA is done, fills it and sends it off. The ring's lock is held. */
static fy_status_t send_chunk(struct fy__ring *ring, fy_device_t *device, char *dst, const char *src, uint64_t nbytes,
                              fy__point_t *out_point, uint64_t *blocked_ns)
{
    const uint32_t slot = ring->next;
    char *staged = (char *)ring->block->address + slot * ring->slot_nbytes;
    const fy_copy_t copy = { FY_COPY_UPLOAD, 1, dst, staged, nbytes };
    if (ring->last[slot] && !fy__point_reached(ring->last[slot])) {
        const uint64_t start_ns = fy__now_ns();
        FY_TRY(fy__point_wait(ring->last[slot], FY_FOREVER, FY__WAIT_RING_SLOT));
        *blocked_ns += fy__now_ns() - start_ns;
    }
    memcpy(staged, src, nbytes);
    fy__charge_host(0, 2 * nbytes);
    FY_TRY(fy__device_check(device, device->backend->copy(device->dev, device->upload->native, &copy)));
    *out_point = ring->last[slot] = fy__stream_submitted_anchored(device->upload);
    ring->next = (slot + 1) % SLOTS;
    return FY_STATUS_OK;
}

fy_status_t fy__ring_upload(fy_device_t *device, void *dst, const void *src, uint64_t nbytes, fy__point_t *out_point, uint64_t *blocked_ns)
{
    struct fy__ring *ring;
    FY_TRY(get_ring(device, &ring));
    for (uint64_t done = 0; done < nbytes;) {
        const uint64_t chunk = nbytes - done < ring->slot_nbytes ? nbytes - done : ring->slot_nbytes;
        fy__lock(&ring->lock);
        const fy_status_t status = send_chunk(ring, device, (char *)dst + done, (const char *)src + done, chunk, out_point, blocked_ns);
        fy__unlock(&ring->lock);
        if (status != FY_STATUS_OK) return status;
        done += chunk;
    }
    return FY_STATUS_OK;
}

void fy__ring_destroy(fy_device_t *device)
{
    struct fy__ring *ring = device->ring;
    fy__pool_free(ring->block);
    pthread_mutex_destroy(&ring->lock);
    free(ring);
    device->ring = NULL;
}
