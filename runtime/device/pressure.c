/* The list of reclaim callbacks, and their calls. A callback runs on a thread in the middle of
 * another call. So the thread's state (its recording, claims on guards, the name of a blocking
 * call, the error record) is saved before the callback and restored after it, and a dedicated scope
 * owns the handles that the callback leaves. Next: alloc/fallback.c, which calls this. */
#include "runtime/device/pressure.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/fail.h"
#include "runtime/device/device.h"
#include "runtime/thread/guard.h"

struct fy__pressure {
    struct fy__pressure *next; /* of the same device, in the order of registration */
    uint64_t id;
    uint32_t running; /* threads inside fn */
    fy_pressure_fn fn;
    void *user;
};

/* Guards every device's list, `running` and `last_id`. A leaf lock, never held over a call. The
 * list's head is read without it, so links are stored atomically. */
pthread_mutex_t fy__pressure_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ended = PTHREAD_COND_INITIALIZER; /* some fn has returned */
static uint64_t last_id;

fy_status_t fy_memory_on_pressure(fy_device_t *device, fy_pressure_fn fn, void *user,
                                  uint64_t *out_id)
{
    if (out_id) *out_id = 0;
    if (!device || !fn || !out_id)
        return FY_FAIL(INVALID_ARGUMENT, "memory_on_pressure: %s is NULL",
                       !device ? "device"
                       : !fn   ? "fn"
                               : "out_id");
    struct fy__pressure *entry = malloc(sizeof *entry);
    if (!entry)
        return FY_FAIL(OUT_OF_MEMORY, "memory_on_pressure: no host memory for %zu bytes",
                       sizeof *entry);
    pthread_mutex_lock(&fy__pressure_lock);
    *entry = (struct fy__pressure){ .id = ++last_id, .fn = fn, .user = user };
    struct fy__pressure **end = &device->pressures;
    while (*end) end = &(*end)->next;
    __atomic_store_n(end, entry, __ATOMIC_RELAXED);
    *out_id = entry->id;
    pthread_mutex_unlock(&fy__pressure_lock);
    return FY_STATUS_OK;
}

fy_status_t fy_memory_off_pressure(fy_device_t *device, uint64_t id)
{
    fy__thread_t *thread = fy__thread();
    if (!thread) return FY_STATUS_OUT_OF_MEMORY;
    if (!device) return FY_FAIL(INVALID_ARGUMENT, "memory_off_pressure: device is NULL");
    /* Two callbacks that each wait for the other's end would wait without limit. */
    if (thread->pressing)
        return FY_FAIL(BUSY, "memory_off_pressure: called from inside a reclaim callback\n  Call "
                             "it after that function has returned");
    pthread_mutex_lock(&fy__pressure_lock);
    struct fy__pressure **link = &device->pressures;
    while (*link && (*link)->id != id) link = &(*link)->next;
    struct fy__pressure *entry = *link;
    if (entry) {
        __atomic_store_n(link, entry->next, __ATOMIC_RELAXED); /* no walk finds it from now on */
        while (entry->running) pthread_cond_wait(&ended, &fy__pressure_lock);
    }
    pthread_mutex_unlock(&fy__pressure_lock);
    if (!entry)
        return FY_FAIL(INVALID_ARGUMENT,
                       "memory_off_pressure: %s has no reclaim callback with id %llu", device->spec,
                       (unsigned long long)id);
    free(entry);
    return FY_STATUS_OK;
}

/* A thread's state besides the call stack. */
typedef struct saved {
    fy__error_copy_t error;
    struct fy__recording *recording;
    fy__claim_t claims[FY__QUOTAS];
    uint32_t claimed;
    fy__blocking_t blocking;
} saved_t;

static void save_state(fy__thread_t *thread, saved_t *aside)
{
    fy__error_save(&aside->error);
    aside->recording = thread->recording;
    thread->recording = NULL; /* requests of fn run now, not at each replay */
    memcpy(aside->claims, thread->claims, sizeof aside->claims);
    aside->claimed = thread->claimed;
    thread->claimed = 0;
    aside->blocking = thread->blocking;
}

static void restore_state(fy__thread_t *thread, const saved_t *aside)
{
    fy__guard_settle(thread); /* for calls inside that failed */
    thread->blocking = aside->blocking;
    memcpy(thread->claims, aside->claims, sizeof aside->claims);
    thread->claimed = aside->claimed;
    thread->recording = aside->recording;
    fy__error_restore(&aside->error);
}

static FY_COLD bool call(fy__thread_t *thread, fy_device_t *device, uint64_t nbytes,
                         struct fy__pressure *entry)
{
    saved_t aside;
    save_state(thread, &aside);
    thread->pressing = entry;
    const fy_scope_t scope = fy_scope_begin("pressure");
    const bool gave = entry->fn(entry->user, device, nbytes) != 0;
    fy_scope_end(scope, 0, NULL);
    thread->pressing = NULL;
    restore_state(thread, &aside);
    return gave;
}

fy__reclaim_t fy__pressure_next(void *user, uint64_t nbytes, fy__reclaim_cursor_t *cursor)
{
    fy_device_t *device = user;
    fy__thread_t *thread = fy__thread();
    if (!thread || thread->pressing || thread->nlocks ||
        !__atomic_load_n(&device->pressures, __ATOMIC_RELAXED))
        return FY__RECLAIM_END;
    pthread_mutex_lock(&fy__pressure_lock);
    /* not callbacks that are registered meanwhile: one of them might register another */
    if (!cursor->until) cursor->until = last_id;
    struct fy__pressure *entry = device->pressures;
    while (entry && entry->id <= cursor->after) entry = entry->next;
    if (entry && entry->id > cursor->until) entry = NULL;
    if (entry) {
        cursor->after = entry->id;
        entry->running++;
    }
    pthread_mutex_unlock(&fy__pressure_lock);
    if (!entry) return FY__RECLAIM_END;
    const bool gave = call(thread, device, nbytes, entry);
    pthread_mutex_lock(&fy__pressure_lock);
    entry->running--;
    pthread_cond_broadcast(&ended);
    pthread_mutex_unlock(&fy__pressure_lock);
    return gave ? FY__RECLAIM_GAVE : FY__RECLAIM_NOTHING;
}

void fy__pressure_forget(fy_device_t *device)
{
    pthread_mutex_lock(&fy__pressure_lock);
    struct fy__pressure *entry = device->pressures;
    device->pressures = NULL;
    pthread_mutex_unlock(&fy__pressure_lock);
    while (entry) {
        struct fy__pressure *next = entry->next;
        free(entry);
        entry = next;
    }
}

/* ---- fork ---- */

static void forget_runners(fy_device_t *device, const struct fy__pressure *mine)
{
    for (struct fy__pressure *entry = device->pressures; entry; entry = entry->next)
        entry->running = entry == mine;
}

void fy__pressure_fork_child(void)
{
    const fy__thread_t *thread = fy__tls;
    const struct fy__pressure *mine = thread ? thread->pressing : NULL;
    fy_device_t *host = fy__device_host_if_open();
    if (host) forget_runners(host, mine);
    for (uint32_t i = 1; i < FY__MAX_DEVICES; i++) {
        fy_device_t *device = fy__device_use_at(i);
        if (!device) continue;
        forget_runners(device, mine);
        fy__device_unuse(device);
    }
    pthread_cond_init(&ended, NULL); /* the threads that waited do not exist in the child */
    pthread_mutex_unlock(&fy__pressure_lock);
}
