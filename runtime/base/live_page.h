/* The page of figures that a process with FERRY_WATCH=1 shares with `ferry watch`: plain data in
 * shared memory, written by one thread of that process, read by others.
 * Not here: who writes it (transfer/live.c), who shows it (tools/cli/cmd_watch.c). */
#ifndef FERRY_RUNTIME_BASE_LIVE_PAGE_H_
#define FERRY_RUNTIME_BASE_LIVE_PAGE_H_

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/asan.h"

/* The file in the folder of shared memory: this, and the number of the process. */
#define FY__LIVE_FOLDER "/dev/shm"
#define FY__LIVE_PREFIX "ferry-watch-"

#define FY__LIVE_MAGIC UINT64_C(0x3265766972726566) /* changes with the layout */

enum { FY__LIVE_DEVICES = 16, FY__LIVE_NOTES = 8, FY__LIVE_TEXT = 232 };

/* A refusal or a fault. */
typedef struct fy__live_note {
    uint64_t number, at_ns; /* number from 1; 0: there is none */
    char text[FY__LIVE_TEXT];
} fy__live_note_t;

typedef struct fy__live_device {
    char name[32];
    uint64_t live, reserved, peak_live;
} fy__live_device_t;

typedef struct fy__live_traffic {
    uint64_t count, nbytes, blocked_ns;
} fy__live_traffic_t;

/* at_ns and those of notes: CLOCK_MONOTONIC, which the processes of a machine share. */
typedef struct fy__live_figures {
    uint64_t at_ns, updates;
    fy__live_traffic_t upload, download, peer;
    uint64_t requests, syncs, sync_ns, throttles, throttle_ns, device_allocs, refusals;
    uint64_t ndevices;
    fy__live_device_t devices[FY__LIVE_DEVICES];
    fy__live_note_t notes[FY__LIVE_NOTES]; /* number n is in n % FY__LIVE_NOTES */
} fy__live_figures_t;

/* `sequence` is odd while `figures` are written (a sequence lock). */
typedef struct fy__live_page {
    uint64_t magic, nbytes;
    uint64_t pid, started; /* started: fy__live_started; numbers of processes are used again */
    uint64_t period_ns;
    _Atomic uint32_t ended;
    _Atomic uint32_t sequence;
    fy__live_figures_t figures;
} fy__live_page_t;

/* When a process started, in ticks since the machine did: field 22 of /proc/PID/stat (proc(5)).
 * 0: it has ended, whether or not its parent knows. */
static inline uint64_t fy__live_started(uint64_t pid)
{
    char path[40], text[1024];
    snprintf(path, sizeof path, "/proc/%llu/stat", (unsigned long long)pid);
    FILE *file = fopen(path, "re");
    const size_t length = file ? fread(text, 1, sizeof text - 1, file) : 0;
    if (file) fclose(file);
    text[length] = '\0';
    const char *at = strrchr(text, ')'); /* the name before it may have any bytes */
    if (!at || at[1] != ' ' || at[2] == 'Z') return 0;
    for (int field = 2; at && field < 22; field++) at = strchr(at + 1, ' ');
    return at ? strtoull(at + 1, NULL, 10) : 0;
}

/* ThreadSanitizer does not know fences; it does not see the reader either, another process. */
static inline void fy__live_fence(memory_order order)
{
#ifdef FY__TSAN
    (void)order;
#else
    atomic_thread_fence(order);
#endif
}

static inline void fy__live_write(fy__live_page_t *page, const fy__live_figures_t *figures)
{
    const uint32_t sequence = atomic_load_explicit(&page->sequence, memory_order_relaxed);
    atomic_store_explicit(&page->sequence, sequence + 1, memory_order_relaxed);
    fy__live_fence(memory_order_release);
    memcpy(&page->figures, figures, sizeof *figures);
    atomic_store_explicit(&page->sequence, sequence + 2, memory_order_release);
}

/* false: the writer was in the middle of it; try again. */
static inline bool fy__live_read(const fy__live_page_t *page, fy__live_figures_t *out)
{
    const uint32_t before = atomic_load_explicit(&page->sequence, memory_order_acquire);
    if (before % 2) return false;
    memcpy(out, &page->figures, sizeof *out);
    fy__live_fence(memory_order_acquire);
    return atomic_load_explicit(&page->sequence, memory_order_relaxed) == before;
}

#endif
