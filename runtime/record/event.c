/* Begins and ends a recording, and handles fork and exit.
 * Once the ring has ended and all its events are taken, no event can follow, and the writer may
 * finish. Hooks: event_hooks.c. Next: event_ring.h, event_write.c. */
#include "runtime/record/event.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/c_locale.h"
#include "runtime/base/environment.h"
#include "runtime/base/fail.h"
#include "runtime/device/registry.h"
#include "runtime/order/stream.h"
#include "runtime/record/event_write.h"
#include "runtime/record/site.h"
#include "runtime/thread/guard.h"

/* 32 MiB while recording, some 200,000 events: enough for some tens of milliseconds of the smallest
 * requests. */
enum { SHIFT = 19 };

/* Guards begin and end: `running`, `thread`, `has_hooks`. Hooks never take it. */
pthread_mutex_t fy__event_lock = PTHREAD_MUTEX_INITIALIZER;
static fy__event_writer_t *running; /* NULL: no recording */
static pthread_t thread;
static fy__event_ring_t ring;
static bool has_hooks; /* the hooks are on; false again when the recording ends */

void fy__event_put(const fy__event_t *event) { (void)fy__event_ring_put(&ring, event); }

/* ---- begin and end ---- */

static void put_device(fy_device_t *device)
{
    fy__event_device(device);
    fy__pool_write_event(device->pool);
    fy__pool_write_event(device->pinned);
}

/* Writes the existing streams, devices and pools to the file. The hooks are on: one that another
 * thread opens from now on is written by that thread. */
static void put_present_objects(void)
{
    fy__stream_tell();
    fy__registry_each(put_device);
}

/* The lock is held. */
static fy_status_t begin(const char *path)
{
    char name[4096];
    if (running)
        return FY_FAIL(BUSY, "ledger_record: a recording is running (by fy_ledger_record or "
                             "$FERRY_RECORD); end it with NULL first");
    if (!fy__path_expand(path, name, sizeof name))
        return FY_FAIL(INVALID_ARGUMENT, "ledger_record: the path has %zu bytes; %zu is the most",
                       strlen(path), sizeof name - 1);
    if (strlen(name) > 4 && strcmp(name + strlen(name) - 4, ".zst") == 0)
        return FY_FAIL(UNSUPPORTED,
                       "ledger_record: %.300s: zstd is not available; a name that ends "
                       "in .gz makes a compressed file",
                       name);
    const int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0)
        return FY_FAIL(IO, "ledger_record: cannot write %.300s: %s", name, fy__strerror(errno));
    fy__event_writer_t *writer = calloc(1, sizeof *writer);
    if (!writer || !fy__event_ring_open(&ring, SHIFT)) {
        free(writer);
        close(fd);
        return FY_FAIL(OUT_OF_MEMORY, "ledger_record: no host memory for %zu bytes of the ring",
                       sizeof(fy__event_cell_t) << SHIFT);
    }
    if (!fy__event_sink_open(&writer->sink, fd, fy__event_sink_is_packed(name))) {
        fy__event_ring_close(&ring);
        free(writer);
        close(fd);
        return FY_FAIL(OUT_OF_MEMORY, "ledger_record: no host memory to compress the file");
    }
    writer->ring = &ring;
    writer->start_ns = fy__now_ns();
    const int error = fy__thread_start(&thread, fy__event_write, writer);
    if (error) {
        fy__event_ring_close(&ring);
        (void)fy__event_sink_close(&writer->sink);
        free(writer);
        return FY_FAIL(OUT_OF_MEMORY, "ledger_record: no thread to write with: %s",
                       fy__strerror(error));
    }
    running = writer;
    fy__event_forget();
    fy__site_begin();
    has_hooks = true;
    fy__lock(&fy__registry_lock); /* no device closes between the hooks and its event */
    fy__watch_hold(FY__WATCH_EVENTS);
    put_present_objects();
    fy__unlock(&fy__registry_lock);
    return FY_STATUS_OK;
}

/* The lock is held. */
static void release_hooks(void)
{
    if (has_hooks) fy__watch_release(FY__WATCH_EVENTS);
    has_hooks = false;
}

/* The lock is held. false: a thread has been putting an event for a second, so the recording cannot
 * end (a signal handler that exits). */
static bool end(int *out_error)
{
    const struct timespec nap = { 0, 100000 };
    fy__event_drain_t state;
    uint64_t last = 0, tail;
    int stuck = 0;
    *out_error = 0;
    if (!running) return true;
    release_hooks();
    fy__event_ring_end(&ring);
    for (int i = 0; (state = fy__event_ring_drained(&ring, &tail)) != FY__EVENT_DRAINED; i++) {
        stuck = state == FY__EVENT_UNFINISHED && tail == last ? stuck + 1 : 0;
        last = tail;
        if (stuck == 10000) return false;
        if (i < 100)
            sched_yield();
        else
            nanosleep(&nap, NULL);
    }
    atomic_store_explicit(&running->ending, true, memory_order_release);
    pthread_join(thread, NULL);
    *out_error = fy__event_sink_close(&running->sink);
    fy__event_ring_close(&ring);
    free(running);
    running = NULL;
    return true;
}

fy_status_t fy_ledger_record(const char *path)
{
    fy_status_t status = FY_STATUS_OK;
    int error = 0;
    if (!fy__thread()) return FY_STATUS_OUT_OF_MEMORY;
    if (path && !*path)
        return FY_FAIL(INVALID_ARGUMENT, "ledger_record: path is empty; NULL ends a recording");
    fy__lock(&fy__event_lock);
    if (path)
        status = begin(path);
    else if (!end(&error))
        status = FY_FAIL(INTERNAL, "ledger_record: a thread has been writing an event for a "
                                   "second; the recording stays open");
    fy__unlock(&fy__event_lock);
    if (error)
        return FY_FAIL(IO, "ledger_record: the event file is incomplete: %s", fy__strerror(error));
    return status;
}

void fy__event_from_environment(void)
{
    const char *path = fy__env_file("FERRY_RECORD");
    fy__error_copy_t before;
    if (!path) return;
    fy__error_save(&before);
    if (fy_ledger_record(path) != FY_STATUS_OK)
        fy_log_write(FY_LOG_WARNING, "FERRY_RECORD=%.200s: nothing is recorded: %s", path,
                     fy_error_get()->text);
    fy__error_restore(&before);
}

/* At exit, so that a program that does not end its recording leaves a complete file. */
__attribute__((destructor)) static void end_at_exit(void)
{
    int error;
    /* another thread begins or ends one, and exit does not wait for threads */
    if (pthread_mutex_trylock(&fy__event_lock) != 0) return;
    (void)end(&error);
    pthread_mutex_unlock(&fy__event_lock);
    if (error) fy_log_write(FY_LOG_ERROR, "the event file is incomplete: %s", fy__strerror(error));
}

/* ---- fork ---- */

void fy__event_fork_child(void)
{
    if (running) {
        release_hooks();
        /* the parent's thread writes the remaining events */
        (void)fy__event_sink_close(&running->sink);
        fy__event_ring_close(&ring);
        free(running);
        running = NULL;
    }
    pthread_mutex_unlock(&fy__event_lock);
}
