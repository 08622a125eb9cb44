/* Faults the pages of a host segment with several threads before a driver page-locks them. The
 * driver faults missing pages one after the other (0.48 s a GiB in all; 0.095 s with the pages
 * present). Not for memory that may be inaccessible. Next: runtime/device/pin.c. */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <unistd.h>

#include "runtime/base/posix.h"
#include "runtime/device/memory.h"

/* A thread costs some 50 µs to start and end; 4 MiB cost 0.1 ms to fault with huge pages, 2 ms
 * without. More than four of them wait for the memory, or for the kernel's locks. */
enum { THREADS_MOST = 4, PAGE = 4096 };
static const uint64_t share_nbytes = 4u << 20;

/* a child has only the thread that forked, and may exec soon: start no threads in it */
static _Atomic bool is_forked;

typedef struct part {
    volatile char *begin;
    uint64_t nbytes;
    pthread_t thread;
} part_t;

/* Writes the byte that is there: a page without bytes becomes zeros, and a kept segment is
 * unchanged. */
static void *touch(void *part_)
{
    const part_t *part = part_;
    for (uint64_t at = 0; at < part->nbytes; at += PAGE) part->begin[at] = part->begin[at];
    return NULL;
}

/* The driver must refuse pages that the machine lacks: faulting them here would get the process
 * killed. */
static bool is_available(uint64_t nbytes)
{
    const long pages = sysconf(_SC_AVPHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    return pages > 0 && page > 0 && nbytes <= (uint64_t)pages * (uint64_t)page;
}

static uint64_t how_many(uint64_t nbytes)
{
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    uint64_t count = nbytes / share_nbytes;
    if (count > THREADS_MOST) count = THREADS_MOST;
    if (cores > 0 && count > (uint64_t)cores) count = (uint64_t)cores;
    return count && !atomic_load(&is_forked) ? count : 1;
}

void fy__host_segments_fork_child(void)
{
    atomic_store(&is_forked, true);
    pthread_mutex_unlock(&fy__host_segments_lock);
}

void fy__host_segment_touch(void *address, uint64_t nbytes)
{
    part_t parts[THREADS_MOST];
    if (!is_available(nbytes)) return;
    const uint64_t count = how_many(nbytes), step = (nbytes / count + PAGE - 1) / PAGE * PAGE;
    uint64_t started = 1;
    for (uint64_t i = 0; i < count; i++) {
        parts[i].begin = (volatile char *)address + i * step;
        parts[i].nbytes = i + 1 < count ? step : nbytes - i * step;
    }
    while (started < count && fy__thread_start(&parts[started].thread, touch, &parts[started]) == 0)
        started++;
    touch(&parts[0]);
    for (uint64_t i = started; i < count; i++) touch(&parts[i]); /* no thread was available */
    for (uint64_t i = 1; i < started; i++) pthread_join(parts[i].thread, NULL);
}
