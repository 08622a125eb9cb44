/* The ring of events: cells of one cache line. A record is a state word and the used part of an
 * event, in as many adjacent cells as it needs. See event_ring.h for the scheme. */
#include "runtime/record/event_ring.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* In `head`: no more records. Positions stay below it for centuries. */
static const uint64_t closed = UINT64_C(1) << 63;

enum {
    CELLS_MOST = (sizeof(fy__event_record_t) + sizeof(fy__event_cell_t) - 1) /
                 sizeof(fy__event_cell_t)
};

/* The bytes of the event that its kind uses. */
static size_t used_nbytes(const fy__event_t *event)
{
#define UPTO(member) (offsetof(fy__event_t, u.member) + sizeof event->u.member)
    switch ((fy__event_kind_t)event->kind) {
    case FY__EVENT_OP:
    case FY__EVENT_OPERANDS:
    case FY__EVENT_LAUNCH:
        return offsetof(fy__event_t, u.op.more) + fy__event_attrs_room(event) +
               ((size_t)event->nsrc + event->ndst) * sizeof(fy__event_bytes_t);
    case FY__EVENT_TRANSFER:
    case FY__EVENT_COPY: return UPTO(transfer);
    case FY__EVENT_COLLECTIVE:
    case FY__EVENT_EXCHANGE:
    case FY__EVENT_COLLECTIVE_RAN: return UPTO(collective);
    case FY__EVENT_STARTED:
    case FY__EVENT_WAIT:
    case FY__EVENT_SYNC: return UPTO(wait);
    case FY__EVENT_MAP: return UPTO(map);
    case FY__EVENT_DEVICE: return UPTO(device);
    case FY__EVENT_STORAGE:
    case FY__EVENT_NAMED: return UPTO(storage);
    case FY__EVENT_POOL: return UPTO(pool);
    case FY__EVENT_SEGMENT_ALLOC:
    case FY__EVENT_SEGMENT_FREE:
    case FY__EVENT_BLOCK_ALLOC: return offsetof(fy__event_t, u.memory.after);
    case FY__EVENT_BLOCK_FREE: return UPTO(memory);
    case FY__EVENT_ARRIVED:
    case FY__EVENT_REFUSAL:
    case FY__EVENT_FAULT:
    case FY__EVENT_STREAM: return UPTO(said);
    case FY__EVENT_SCOPE_BEGIN:
    case FY__EVENT_SCOPE_END:
    case FY__EVENT_THROTTLE:
    case FY__EVENT_BLOCKS_REACHED:
    case FY__EVENT_DEVICE_ALLOC:
    case FY__EVENT_KINDS: break;
    }
#undef UPTO
    return offsetof(fy__event_t, u);
}

static uint64_t cells_of(const fy__event_t *event)
{
    return (offsetof(fy__event_record_t, event) + used_nbytes(event) + sizeof(fy__event_cell_t) -
            1) /
           sizeof(fy__event_cell_t);
}

static fy__event_record_t *record_at(const fy__event_ring_t *ring, uint64_t position)
{
    return (fy__event_record_t *)&ring->cells[position & (ring->capacity - 1)];
}

bool fy__event_ring_open(fy__event_ring_t *ring, uint32_t shift)
{
    const uint64_t capacity = UINT64_C(1) << shift;
    /* a record that begins in the last cells of the ring ends behind them */
    ring->cells = calloc(capacity + CELLS_MOST, sizeof *ring->cells);
    if (!ring->cells) return false;
    /* a thread that missed the end of the last recording may read it: it never changes */
    if (ring->capacity != capacity) ring->capacity = capacity;
    ring->ready_nbytes = 0;
    /* Positions go on behind those of the last recording, so that the exchange fails in a thread
     * that still has one of them. */
    const uint64_t head = ((atomic_load(&ring->head) & ~closed) + capacity) & ~(capacity - 1);
    ring->start = head;
    atomic_store(&ring->tail, head);
    atomic_store(&ring->known_tail, head);
    atomic_store(&ring->lost, 0);
    atomic_store(&ring->head, head);
    fy__event_ring_prepare(ring); /* so that not even the first events wait for pages */
    return true;
}

void fy__event_ring_close(fy__event_ring_t *ring)
{
    fy__event_ring_end(ring);
    free(ring->cells);
    ring->cells = NULL;
}

void fy__event_ring_end(fy__event_ring_t *ring) { atomic_fetch_or(&ring->head, closed); }

fy__event_drain_t fy__event_ring_drained(const fy__event_ring_t *ring, uint64_t *out_tail)
{
    const uint64_t head = atomic_load(&ring->head) & ~closed;
    *out_tail = atomic_load(&ring->tail);
    if (*out_tail == head) return FY__EVENT_DRAINED;
    return atomic_load(&record_at(ring, *out_tail)->cells) ? FY__EVENT_DRAINING
                                                           : FY__EVENT_UNFINISHED;
}

bool fy__event_ring_put(fy__event_ring_t *ring, const fy__event_t *event)
{
    const size_t nbytes = used_nbytes(event);
    const uint64_t cells = cells_of(event);
    uint64_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
    do {
        if (head & closed) return false;
        /* Only a ring that looks full needs the taker's own word, which its thread changes all the
         * time. */
        uint64_t tail = atomic_load_explicit(&ring->known_tail, memory_order_acquire);
        if (head + cells - tail > ring->capacity) {
            tail = atomic_load_explicit(&ring->tail, memory_order_acquire);
            atomic_store_explicit(&ring->known_tail, tail, memory_order_release);
        }
        /* an older head can be behind the tail; then the exchange fails */
        if ((int64_t)(head + cells - tail) > (int64_t)ring->capacity) {
            atomic_fetch_add_explicit(&ring->lost, 1, memory_order_relaxed);
            return false;
        }
    } while (!atomic_compare_exchange_weak_explicit(&ring->head, &head, head + cells,
                                                    memory_order_acquire, memory_order_relaxed));
    fy__event_record_t *record = record_at(ring, head);
    memcpy(&record->event, event, nbytes);
    atomic_store_explicit(&record->cells, cells, memory_order_release);
    return true;
}

const fy__event_t *fy__event_ring_peek(fy__event_ring_t *ring)
{
    const fy__event_record_t *record =
        record_at(ring, atomic_load_explicit(&ring->tail, memory_order_relaxed));
    return atomic_load_explicit(&record->cells, memory_order_acquire) ? &record->event : NULL;
}

/* Any of the record's cells can be the first of a later one, so their state words become 0. */
void fy__event_ring_done(fy__event_ring_t *ring)
{
    const uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);
    fy__event_cell_t *first = (fy__event_cell_t *)record_at(ring, tail);
    const uint64_t cells = atomic_load_explicit(&first->state, memory_order_relaxed);
    for (uint64_t i = 0; i < cells; i++)
        atomic_store_explicit(&first[i].state, 0, memory_order_relaxed);
    atomic_store_explicit(&ring->tail, tail + cells, memory_order_release);
}

void fy__event_ring_prepare(fy__event_ring_t *ring)
{
    enum { PAGE = 1 << 12, STEP = 1 << 21, AHEAD = 4 * STEP };
    const size_t nbytes = sizeof *ring->cells * (ring->capacity + CELLS_MOST);
    const uint64_t used = (atomic_load_explicit(&ring->head, memory_order_relaxed) & ~closed) -
                          ring->start;
    while (ring->ready_nbytes < nbytes && ring->ready_nbytes < used * sizeof *ring->cells + AHEAD) {
        char *from = (char *)ring->cells + ring->ready_nbytes;
        from += -(uintptr_t)from % PAGE;
        const char *end = (char *)ring->cells + nbytes;
        const size_t rest = end > from ? (size_t)(end - from) & ~(size_t)(PAGE - 1) : 0;
#ifdef MADV_POPULATE_WRITE /* Linux 5.14; else the first use gets them */
        if (rest) (void)madvise(from, rest < STEP ? rest : STEP, MADV_POPULATE_WRITE);
#endif
        ring->ready_nbytes += STEP;
    }
}
