/* Counters of what executors did; see executed.h. */
#include "backends/executed.h"

#include <stdatomic.h>

typedef struct counter {
    _Atomic uint64_t copies, nbytes;
} counter_t;

static counter_t done[FY__COPY_KINDS], failed[FY__COPY_KINDS];

static void count(counter_t *counter, uint64_t nbytes)
{
    atomic_fetch_add_explicit(&counter->copies, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&counter->nbytes, nbytes, memory_order_relaxed);
}

void fy__executed_count(fy_copy_kind_t kind, uint64_t nbytes) { count(&done[kind], nbytes); }
void fy__executed_count_failed(fy_copy_kind_t kind, uint64_t nbytes)
{
    count(&failed[kind], nbytes);
}

void fy__executed_read(fy__executed_t *out_totals)
{
    for (int kind = 0; kind < FY__COPY_KINDS; kind++) {
        out_totals->copies[kind] = atomic_load(&done[kind].copies);
        out_totals->nbytes[kind] = atomic_load(&done[kind].nbytes);
        out_totals->failed_copies[kind] = atomic_load(&failed[kind].copies);
        out_totals->failed_nbytes[kind] = atomic_load(&failed[kind].nbytes);
    }
}
