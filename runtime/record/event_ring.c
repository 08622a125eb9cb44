/* The ring of events. See event_ring.h for the scheme; the memory orders below are the weakest that
 * it allows. */
#include "runtime/record/event_ring.h"

#include <stdlib.h>
#include <sys/mman.h>

bool fy__event_ring_open(fy__event_ring_t *ring, uint32_t shift)
{
    ring->slots = calloc((size_t)1 << shift, sizeof *ring->slots);
    if (!ring->slots) return false;
    ring->shift = shift;
    ring->mask = ((uint64_t)1 << shift) - 1;
    atomic_init(&ring->head, 0);
    atomic_init(&ring->lost, 0);
    ring->tail = 0;
    ring->ready_nbytes = 0;
    return true;
}

void fy__event_ring_close(fy__event_ring_t *ring)
{
    free(ring->slots);
    ring->slots = NULL;
}

bool fy__event_ring_put(fy__event_ring_t *ring, const fy__event_t *event)
{
    uint64_t position = atomic_load_explicit(&ring->head, memory_order_relaxed);
    for (;;) {
        fy__event_slot_t *slot = &ring->slots[position & ring->mask];
        const uint64_t empty = 2 * (position >> ring->shift);
        const int64_t ahead =
            (int64_t)(atomic_load_explicit(&slot->state, memory_order_acquire) - empty);
        if (ahead < 0) { /* not yet taken since the last lap */
            atomic_fetch_add_explicit(&ring->lost, 1, memory_order_relaxed);
            return false;
        }
        if (ahead > 0) { /* another thread filled it */
            position = atomic_load_explicit(&ring->head, memory_order_relaxed);
            continue;
        }
        if (!atomic_compare_exchange_weak_explicit(&ring->head, &position, position + 1,
                                                   memory_order_relaxed, memory_order_relaxed))
            continue;
        slot->event = *event;
        atomic_store_explicit(&slot->state, empty + 1, memory_order_release);
        return true;
    }
}

const fy__event_t *fy__event_ring_peek(fy__event_ring_t *ring)
{
    fy__event_slot_t *slot = &ring->slots[ring->tail & ring->mask];
    const uint64_t filled = 2 * (ring->tail >> ring->shift) + 1;
    return atomic_load_explicit(&slot->state, memory_order_acquire) == filled ? &slot->event : NULL;
}

void fy__event_ring_done(fy__event_ring_t *ring)
{
    fy__event_slot_t *slot = &ring->slots[ring->tail & ring->mask];
    atomic_store_explicit(&slot->state, 2 * (ring->tail >> ring->shift) + 2, memory_order_release);
    ring->tail++;
}

void fy__event_ring_prepare(fy__event_ring_t *ring)
{
    enum { PAGE = 1 << 12, STEP = 1 << 21, AHEAD = 4 * STEP };
    const size_t nbytes = sizeof *ring->slots << ring->shift;
    const uint64_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
    while (ring->ready_nbytes < nbytes && ring->ready_nbytes < head * sizeof *ring->slots + AHEAD) {
        char *from = (char *)ring->slots + ring->ready_nbytes;
        from += -(uintptr_t)from % PAGE;
        const char *end = (char *)ring->slots + nbytes;
        const size_t rest = end > from ? (size_t)(end - from) & ~(size_t)(PAGE - 1) : 0;
#ifdef MADV_POPULATE_WRITE /* Linux 5.14; else the first use gets them */
        if (rest) (void)madvise(from, rest < STEP ? rest : STEP, MADV_POPULATE_WRITE);
#endif
        ring->ready_nbytes += STEP;
    }
}
