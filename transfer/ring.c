/* The staging ring. Made at the first transfer that needs it; its slots are one page-locked block
 * of the device's pinned pool. */
#include "transfer/ring.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/fail.h"
#include "runtime/thread/guard.h"
#include "transfer/move.h"

struct fy__ring {
    pthread_mutex_t
        /* guards everything below but block and slot_nbytes (fixed); never held during
         * copies or waits for a DMA */
        lock;
    pthread_cond_t given; /* a slot was returned */
    fy__block_t *block;
    uint64_t slot_nbytes;
    uint32_t next; /* begin of the search: the least recently used slot */
    bool taken[FY__RING_SLOTS];
    fy__point_t last[FY__RING_SLOTS]; /* the DMA that used the slot last */
};

static void destroy(struct fy__ring *ring)
{
    if (ring->block) fy__pool_free(ring->block);
    pthread_cond_destroy(&ring->given);
    pthread_mutex_destroy(&ring->lock);
    free(ring);
}

uint64_t fy__ring_nbytes_at(const fy_device_t *device, uint64_t limit_nbytes)
{
    (void)device; /* the thresholds are those of every device */
    uint64_t slot_nbytes = FY__SLOT_NBYTES;
    while (slot_nbytes > FY__SLOT_SMALLEST_NBYTES &&
           slot_nbytes > limit_nbytes / FY__RING_SLOTS / FY__RING_SHARE)
        slot_nbytes /= 2;
    return FY__RING_SLOTS * slot_nbytes;
}

/* Two threads may reach this at once: the first to publish wins. */
static fy_status_t get_ring(fy_device_t *device, struct fy__ring **out_ring)
{
    *out_ring = __atomic_load_n(&device->ring, __ATOMIC_ACQUIRE);
    if (*out_ring) return FY_STATUS_OK;
    struct fy__ring *ring = calloc(1, sizeof *ring), *none = NULL;
    if (!ring)
        return FY_FAIL(OUT_OF_MEMORY, "transfer: no host memory for %zu bytes of the ring",
                       sizeof *ring);
    pthread_mutex_init(&ring->lock, NULL);
    pthread_cond_init(&ring->given, NULL);
    fy_memory_stats_t pinned = FY_MEMORY_STATS_INIT;
    fy__pool_query(device->pinned, &pinned);
    ring->slot_nbytes = fy__ring_nbytes_at(device, pinned.limit) / FY__RING_SLOTS;
    fy_status_t status;
    const fy__tag_t tag = { FY_CATEGORY_STAGING, NULL };
    while ((status = fy__pool_alloc_tagged(device->pinned, FY__RING_SLOTS * ring->slot_nbytes, 0,
                                           tag, &ring->block)) == FY_STATUS_PINNED_LIMIT &&
           ring->slot_nbytes > FY__SLOT_SMALLEST_NBYTES)
        ring->slot_nbytes /= 2; /* other blocks hold the rest: a smaller ring is better than none */
    if (status != FY_STATUS_OK) {
        fy__memory_refused(device, status);
        ring->block = NULL;
        destroy(ring);
        return status;
    }
    if (!__atomic_compare_exchange_n(&device->ring, &none, ring, false, __ATOMIC_ACQ_REL,
                                     __ATOMIC_ACQUIRE)) {
        destroy(ring);
        ring = none;
    } else
        fy__pool_fix(ring->block);
    *out_ring = ring;
    return FY_STATUS_OK;
}

/* ---- slots ---- */

/* The least recently used free slot, or FY__RING_SLOTS. The lock is held. */
static uint32_t find_free(const struct fy__ring *ring)
{
    for (uint32_t i = 0; i < FY__RING_SLOTS; i++) {
        const uint32_t index = (ring->next + i) % FY__RING_SLOTS;
        if (!ring->taken[index]) return index;
    }
    return FY__RING_SLOTS;
}

/* The lock is held. */
static void mark_taken(struct fy__ring *ring, uint32_t index, fy__slot_t *out_slot)
{
    ring->taken[index] = true;
    ring->next = (index + 1) % FY__RING_SLOTS;
    *out_slot = (fy__slot_t){ (char *)ring->block->address + index * ring->slot_nbytes,
                              ring->slot_nbytes, index };
}

fy_status_t fy__ring_slot_nbytes(fy_device_t *device, uint64_t *out_nbytes)
{
    struct fy__ring *ring;
    FY_TRY(get_ring(device, &ring));
    *out_nbytes = ring->slot_nbytes;
    return FY_STATUS_OK;
}

fy_status_t fy__ring_take(fy_device_t *device, uint64_t *blocked_ns, fy__slot_t *out_slot)
{
    struct fy__ring *ring;
    uint64_t start_ns = 0;
    uint32_t index;
    FY_TRY(get_ring(device, &ring));
    fy__lock(&ring->lock);
    while ((index = find_free(ring)) == FY__RING_SLOTS) { /* other threads hold all slots */
        if (!start_ns) start_ns = fy__now_ns();
        pthread_cond_wait(&ring->given, &ring->lock);
    }
    mark_taken(ring, index, out_slot);
    const fy__point_t last = ring->last[index];
    fy__unlock(&ring->lock);
    fy_status_t status = FY_STATUS_OK;
    if (last && !fy__point_reached(last)) {
        if (!start_ns) start_ns = fy__now_ns();
        status = fy__point_wait(last, FY_FOREVER, FY__WAIT_RING_SLOT);
    }
    if (start_ns) *blocked_ns += fy__now_ns() - start_ns;
    if (status != FY_STATUS_OK) fy__ring_give(device, out_slot, last);
    return status;
}

bool fy__ring_try_take(fy_device_t *device, fy__slot_t *out_slot)
{
    struct fy__ring *ring = __atomic_load_n(&device->ring, __ATOMIC_ACQUIRE);
    fy__lock(&ring->lock);
    const uint32_t index = find_free(ring);
    const bool found = index < FY__RING_SLOTS;
    if (found) mark_taken(ring, index, out_slot);
    const fy__point_t last = found ? ring->last[index] : 0;
    fy__unlock(&ring->lock);
    if (found && last && !fy__wait_drops(FY__WAIT_RING_BORROWED) && !fy__point_reached(last)) {
        fy__ring_give(device, out_slot, last);
        return false;
    }
    return found;
}

void fy__ring_give(fy_device_t *device, const fy__slot_t *slot, fy__point_t point)
{
    struct fy__ring *ring = __atomic_load_n(&device->ring, __ATOMIC_ACQUIRE);
    fy__lock(&ring->lock);
    ring->last[slot->index] = point;
    ring->taken[slot->index] = false;
    pthread_cond_signal(&ring->given);
    fy__unlock(&ring->lock);
}

fy_status_t fy__ring_send(fy_device_t *device, const fy__slot_t *slot, void *dst, uint64_t nbytes,
                          fy__point_t *out_point, fy__taint_t *taint)
{
    const fy_copy_t copy = {
        .kind = FY_COPY_UPLOAD, .host_pinned = 1, .dst = dst, .src = slot->bytes, .nbytes = nbytes
    };
    uint64_t request;
    FY_TRY(fy__copy_submit(device, device->upload, "upload", copy, out_point, &request));
    if (request) fy__taint_add(device, taint, request);
    return FY_STATUS_OK;
}

uint64_t fy__ring_chunk(uint64_t nbytes, uint64_t slot_nbytes)
{
    const uint64_t eighth = (nbytes / 8 + 65535) / 65536 * 65536,
                   chunk = eighth > FY__CHUNK_SMALLEST_NBYTES ? eighth : FY__CHUNK_SMALLEST_NBYTES;
    return chunk < slot_nbytes ? chunk : slot_nbytes;
}

/* ---- the host's side ---- */

void fy__staging_copy(void *dst, const void *src, uint64_t before_nbytes, uint64_t nbytes)
{
    fy_device_t *host = fy_device_host();
    /* the host's copy kernel has the process's one team of threads */
    if (nbytes >= FY__COPY_BY_SEVERAL_NBYTES) {
        fy_desc_t descs[2] = { { .data = dst,
                                 .dtype = FY_DTYPE_U8,
                                 .rank = 1,
                                 .dims = { (int64_t)nbytes },
                                 .strides = { 1 } } };
        descs[1] = descs[0];
        descs[1].data = (void *)(uintptr_t)src;
        const fy_launch_t launch = {
            .struct_size = sizeof launch,
            .op = FY_OP_COPY,
            .nsrc = 1,
            .ndst = 1,
            .flags = FY_LAUNCH_DENSE,
            .dst = &descs[0],
            .src = &descs[1],
            .nelem = nbytes,
            .nbytes = 2 * nbytes,
        };
        if (host->backend->launch(host->dev, NULL, &launch) != FY_STATUS_OK)
            memcpy(dst, src, nbytes);
    } else
        memcpy(dst, src, nbytes);
    fy__staging_charge(before_nbytes, nbytes);
}

void fy__staging_charge(uint64_t before_nbytes, uint64_t nbytes)
{
    const uint64_t alone = FY__COPY_BY_SEVERAL_NBYTES,
                   left = before_nbytes < alone ? alone - before_nbytes : 0;
    const uint64_t by_one = nbytes < left ? nbytes : left;
    if (by_one) fy__charge_host(0, 2 * by_one);
    if (nbytes > by_one) fy__charge_host_copy(nbytes - by_one);
}

/* ---- uploads ---- */

fy_status_t fy__ring_upload(fy_device_t *device, void *dst, const void *src, uint64_t nbytes,
                            fy__point_t *out_point, uint64_t *blocked_ns, fy__taint_t *taint)
{
    for (uint64_t done = 0; done < nbytes;) {
        fy__slot_t slot;
        fy__point_t point = 0;
        FY_TRY(fy__ring_take(device, blocked_ns, &slot));
        const uint64_t most = fy__ring_chunk(nbytes, slot.nbytes),
                       chunk = nbytes - done < most ? nbytes - done : most;
        fy__staging_copy(slot.bytes, (const char *)src + done, done, chunk);
        const fy_status_t status =
            fy__ring_send(device, &slot, (char *)dst + done, chunk, &point, taint);
        fy__ring_give(device, &slot, point);
        if (status != FY_STATUS_OK) return status;
        *out_point = point;
        done += chunk;
    }
    return FY_STATUS_OK;
}

void fy__ring_destroy(fy_device_t *device)
{
    /* In the child of a fork the condition counts waiting threads that do not exist, and destroying
     * it would wait for them. */
    if (atomic_load(&device->lost) == FY__LOST_BY_FORK)
        pthread_cond_init(&device->ring->given, NULL);
    destroy(device->ring);
    device->ring = NULL;
}
