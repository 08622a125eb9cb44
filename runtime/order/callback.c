/* The callback thread. Start with `serve`. */
#include "runtime/order/callback.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/fail.h"
#include "runtime/order/stream.h"
#include "runtime/thread/guard.h"

typedef struct watch {
    struct watch *next;
    fy__point_t point;
    fy_done_fn fn;
    void *user;
} watch_t;

enum {
    PAUSE_SHORTEST_NS = 20000,
    PAUSE_LONGEST_NS = 1000000,
    STILL_NS = 5000000,
    EXIT_PATIENCE_NS = 500000000
};

/* Guards everything below but the atomics. Never held over a poll or a callback. */
pthread_mutex_t fy__callback_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wake; /* the thread sleeps on it */
static pthread_cond_t over; /* the thread has ended */
static pthread_t thread_id;
static bool is_set_up, is_started, is_stopping, is_over;
static watch_t *fresh, **fresh_end = &fresh; /* not yet seen by the thread */
static watch_t *watched;                     /* used by the thread only, oldest first; no lock */
static _Atomic uint32_t nstanding;
_Atomic uint32_t fy__callback_busy;

/* ---- one poll ---- */

static void pump_all(void)
{
    for (uint32_t i = 1; i < FY__MAX_DEVICES; i++) {
        fy_device_t *device = fy__device_use_at(i);
        if (!device) continue;
        if (!device->info.is_simulated) fy__device_pump(device);
        fy__device_unuse(device);
    }
}

/* Runs the callbacks of requests that are done; true if there were any. */
static bool poll_once(void)
{
    bool found = false;
    for (watch_t **link = &watched; *link;) {
        watch_t *watch = *link;
        if (watch->point && !fy__point_peek(watch->point)) {
            link = &watch->next;
            continue;
        }
        *link = watch->next;
        found = true;
        watch->fn(watch->user, watch->point
                                   ? fy__point_status(watch->point, "the request of a callback")
                                   : FY_STATUS_OK);
        free(watch);
        atomic_fetch_sub_explicit(&fy__callback_busy, 1, memory_order_relaxed);
    }
    return found;
}

/* The model clock on which the oldest ticket depends; false: wall time, which advances by
 * itself. */
static bool model_now(uint64_t *out_ns)
{
    fy_backend_clock_t clock = { 0, 0, 0, 0 };
    fy_stream_t *stream = watched ? fy__stream_at(FY__POINT_STREAM(watched->point)) : NULL;
    if (!stream) return false;
    /* the stream's lock keeps its device open, and prevents the sight of a closed one */
    fy__lock(&stream->lock);
    const fy_device_t *device = stream->device;
    const bool has_clock = device->backend->clock && !fy__device_is_lost(device);
    if (has_clock) device->backend->clock(device->dev, &clock);
    fy__unlock(&stream->lock);
    *out_ns = clock.now_ns;
    return has_clock;
}

/* Waits as a host would. */
static void wait_for_oldest(void)
{
    fy_device_t *device = fy__device_hold(fy__stream_at(FY__POINT_STREAM(watched->point))->device);
    if (!device) return; /* closed: the request is done */
    (void)fy__point_wait(watched->point, FY_FOREVER, FY__WAIT_NONE);
    fy__device_unuse(device);
}

/* ---- the thread ---- */

/* The lock is held. */
static void pause_ns(uint64_t nanoseconds)
{
    fy__condition_wait(&wake, &fy__callback_lock, fy__now_ns() + nanoseconds);
}

static void *serve(void *unused)
{
    uint64_t pause = PAUSE_SHORTEST_NS, still_since_ns = 0, model_ns = 0;
    pthread_mutex_lock(&fy__callback_lock);
    while (!is_stopping) {
        if (!fresh && !watched && !atomic_load(&nstanding)) {
            pthread_cond_wait(&wake, &fy__callback_lock);
            continue;
        }
        watch_t **end = &watched;
        while (*end) end = &(*end)->next;
        *end = fresh;
        fresh = NULL;
        fresh_end = &fresh;
        pthread_mutex_unlock(&fy__callback_lock);
        if (atomic_load(&nstanding)) pump_all();
        const bool found = poll_once();
        uint64_t now_ns;
        const uint64_t real_ns = fy__now_ns();
        if (found || !model_now(&now_ns) || now_ns != model_ns) {
            still_since_ns = real_ns;
            if (watched && model_now(&now_ns)) model_ns = now_ns;
        } else if (real_ns - still_since_ns > STILL_NS) { /* no other thread advances the clock */
            wait_for_oldest();
            still_since_ns = real_ns;
        }
        pause = found                          ? PAUSE_SHORTEST_NS
                : pause * 2 < PAUSE_LONGEST_NS ? pause * 2
                                               : PAUSE_LONGEST_NS;
        pthread_mutex_lock(&fy__callback_lock);
        if (!is_stopping && !fresh && (watched || atomic_load(&nstanding))) pause_ns(pause);
    }
    is_over = true;
    pthread_cond_broadcast(&over);
    pthread_mutex_unlock(&fy__callback_lock);
    return unused;
}

/* At exit: ends the thread, unless it is inside a callback that does not return; the process then
 * ends with the thread running. */
static void stop(void)
{
    pthread_mutex_lock(&fy__callback_lock);
    if (is_started && !pthread_equal(pthread_self(), thread_id)) {
        is_stopping = true;
        pthread_cond_signal(&wake);
        const uint64_t until_ns = fy__now_ns() + EXIT_PATIENCE_NS;
        while (!is_over && fy__condition_wait(&over, &fy__callback_lock, until_ns) == 0) {}
        if (is_over) {
            is_started = false;
            pthread_mutex_unlock(&fy__callback_lock);
            pthread_join(thread_id, NULL);
            return;
        }
    }
    pthread_mutex_unlock(&fy__callback_lock);
}

static void make_conditions(void)
{
    fy__condition_init(&wake);
    fy__condition_init(&over);
}

/* The lock is held. */
static bool start(void)
{
    static bool at_exit;
    if (is_started) return true;
    if (is_stopping) return false;
    if (!is_set_up) make_conditions();
    is_set_up = true;
    if (!at_exit) at_exit = atexit(stop) == 0;
    return is_started = fy__thread_start(&thread_id, serve, NULL) == 0;
}

/* ---- for the rest of the runtime ---- */

fy_status_t fy__callback_add(fy__point_t point, fy_done_fn fn, void *user)
{
    watch_t *watch = malloc(sizeof *watch);
    if (!watch)
        return FY_FAIL(OUT_OF_MEMORY, "ticket_on_done: no host memory for %zu bytes",
                       sizeof *watch);
    *watch = (watch_t){ NULL, point, fn, user };
    pthread_mutex_lock(&fy__callback_lock);
    const bool started = start();
    if (started) {
        *fresh_end = watch;
        fresh_end = &watch->next;
        atomic_fetch_add_explicit(&fy__callback_busy, 1, memory_order_relaxed);
        pthread_cond_signal(&wake);
    }
    pthread_mutex_unlock(&fy__callback_lock);
    if (started) return FY_STATUS_OK;
    free(watch);
    return FY_FAIL(
        OUT_OF_MEMORY,
        "ticket_on_done: the system gives no thread for callbacks, or the process is ending");
}

void fy__callback_nudge_slow(void)
{
    pthread_mutex_lock(&fy__callback_lock);
    if (is_started) pthread_cond_signal(&wake);
    pthread_mutex_unlock(&fy__callback_lock);
}

void fy__callback_standing(int change)
{
    atomic_fetch_add(&nstanding, (uint32_t)change);
    atomic_fetch_add_explicit(&fy__callback_busy, (uint32_t)change, memory_order_relaxed);
    if (change < 0) return;
    pthread_mutex_lock(&fy__callback_lock);
    if (start()) pthread_cond_signal(&wake);
    pthread_mutex_unlock(&fy__callback_lock);
}

void fy__callback_fork_child(void)
{
    make_conditions();
    is_started = is_stopping = is_over = false;
    fresh = watched = NULL; /* the parent runs them; the child leaks their memory */
    fresh_end = &fresh;
    atomic_store(&nstanding, 0);
    atomic_store(&fy__callback_busy, 0);
    /* this thread locked it before the fork; a new mutex would stay locked */
    pthread_mutex_unlock(&fy__callback_lock);
}
