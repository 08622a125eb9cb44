/* Makes, grows and frees private memory. Its pool never has a pending block: nothing runs on it
 * while it is allocated from. */
#include "runtime/record/private.h"

#include <stdio.h>
#include <stdlib.h>

#include "runtime/order/stream.h"
#include "runtime/tensor/storage.h"

enum { SEGMENT_NBYTES = 1 << 20 }; /* for small tensors; large ones have dedicated segments */

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER; /* guards the list and its links */
static fy__private_t *list;

/* A segment of the device's pool, ready for segment_alloc. */
static fy_status_t make_ready(fy__private_t *memory, fy__thread_t *thread, uint64_t nbytes)
{
    fy__storage_t *segment;
    fy_stream_t *stream =
        memory->device->synchronous ? NULL : fy__stream_current(memory->device, thread->streams);
    /* The category of op results, for any first user of the segment. */
    const fy_category_t said = thread->category;
    thread->category = FY_CATEGORY_ACTIVATIONS;
    fy_status_t status =
        fy__storage_create_from_pool(thread, memory->device, nbytes, stream, &segment);
    /* A segment may still be in use by others: replays wait for them. If they are too many, take a
     * segment without uses. */
    if (status == FY_STATUS_OK && !fy__wait_drops(FY__WAIT_GRAPH_INHERITED) &&
        !fy__hazard_join(&memory->hazard, &segment->hazard)) {
        fy__storage_release(thread, segment);
        status = fy__storage_create_from_pool(thread, memory->device, nbytes, NULL, &segment);
    }
    thread->category = said;
    if (status == FY_STATUS_OK) memory->ready = segment;
    return status;
}

static fy_status_t segment_alloc(void *user, uint64_t nbytes, void **out_address)
{
    fy__private_t *memory = user;
    fy__storage_t *segment = memory->ready;
    if (!segment || segment->nbytes != nbytes) {
        if (!segment) memory->wanted[memory->wanted[0] != 0] = nbytes;
        return FY_STATUS_OUT_OF_MEMORY; /* the caller allocates memory->wanted and tries again */
    }
    memory->ready = NULL;
    segment->next = memory->segments;
    memory->segments = segment;
    memory->nbytes += nbytes;
    *out_address = segment->data;
    return FY_STATUS_OK;
}

/* The pool is trimmed: fy__private_trim frees the segment. Or it is destroyed: fy__private_release
 * frees all of them. */
static void segment_free(void *user, void *address, uint64_t nbytes)
{
    fy__private_t *memory = user;
    fy__storage_t **link = &memory->segments;
    if (!memory->is_used) return;
    while ((*link)->data != address) link = &(*link)->next;
    fy__storage_t *segment = *link;
    *link = segment->next;
    segment->next = memory->released;
    memory->released = segment;
    memory->nbytes -= nbytes;
}

static bool may_release(void *user, const void *address, uint64_t nbytes)
{
    const fy__private_t *memory = user;
    return memory->is_used && !memory->is_used(memory->user, address, nbytes);
}

static bool may_sync(void *user)
{
    (void)user;
    return false; /* no block here is ever pending */
}

static void note_sync(void *user, uint64_t blocked_ns)
{
    (void)user;
    (void)blocked_ns;
}

fy_status_t fy__private_create(fy_device_t *device, fy__private_t **out_memory)
{
    *out_memory = NULL;
    fy__private_t *memory = calloc(1, sizeof *memory);
    if (!memory)
        return FY_FAIL(OUT_OF_MEMORY, "graph: no host memory for %zu bytes of bookkeeping",
                       sizeof *memory);
    char name[96];
    snprintf(name, sizeof name, "graph memory of %s", device->spec);
    const fy__pool_options_t options = {
        .name = name,
        .limit_nbytes = FY_UNLIMITED, /* the device's pool has the limit */
        .device_nbytes = FY_UNLIMITED,
        .segment_nbytes = SEGMENT_NBYTES,
        .full_status = FY_STATUS_OUT_OF_MEMORY,
        .keeps_segments = true, /* each replay writes to them */
    };
    const fy__segment_source_t source = {
        .user = memory,
        .alignment = device->is_host ? 64 : device->info.alignment,
        .alloc = segment_alloc,
        .free = segment_free,
        .may_release = may_release,
        .may_sync = may_sync,
        .note_sync = note_sync,
    };
    const fy_status_t status = fy__pool_create(&options, &source, &memory->pool);
    if (status != FY_STATUS_OK) {
        free(memory);
        return status;
    }
    memory->refs = 1;
    memory->device = device;
    fy__device_use(device);
    pthread_mutex_lock(&list_lock);
    memory->next = list;
    if (list) list->prev = memory;
    list = memory;
    pthread_mutex_unlock(&list_lock);
    *out_memory = memory;
    return FY_STATUS_OK;
}

void fy__private_release(fy__thread_t *thread, fy__private_t *memory)
{
    if (atomic_fetch_sub_explicit(&memory->refs, 1, memory_order_acq_rel) != 1) return;
    pthread_mutex_lock(&list_lock);
    *(memory->prev ? &memory->prev->next : &list) = memory->next;
    if (memory->next) memory->next->prev = memory->prev;
    pthread_mutex_unlock(&list_lock);
    fy__pool_destroy(memory->pool);
    while (memory->segments) {
        fy__storage_t *segment = memory->segments;
        memory->segments = segment->next;
        if (!fy__wait_drops(FY__WAIT_GRAPH_MEMORY))
            fy__hazard_copy(&segment->hazard, &memory->hazard);
        fy__storage_release(thread, segment);
    }
    fy__device_unuse(memory->device);
    free(memory);
}

void fy__private_trim(fy__thread_t *thread, fy__private_t *memory,
                      bool (*is_used)(const void *user, const void *address, uint64_t nbytes),
                      const void *user)
{
    memory->is_used = is_used;
    memory->user = user;
    (void)fy__pool_trim(memory->pool, 0);
    memory->is_used = NULL;
    while (memory->released) {
        fy__storage_t *segment = memory->released;
        memory->released = segment->next;
        fy__storage_release(thread, segment);
    }
}

bool fy__private_take_over(fy__private_t *memory, const fy__hazard_t *hazard)
{
    return fy__wait_drops(FY__WAIT_GRAPH_MEMORY) || fy__hazard_join(&memory->hazard, hazard);
}

fy_status_t fy__private_alloc(fy__private_t *memory, uint64_t nbytes, fy__block_t **out_block)
{
    fy__thread_t *thread = fy__thread();
    if (!thread) return FY_STATUS_OUT_OF_MEMORY;
    memory->wanted[0] = memory->wanted[1] = 0;
    fy_status_t status = fy__pool_alloc(memory->pool, nbytes, 0, out_block);
    if (status == FY_STATUS_OK || !memory->wanted[0]) return status;
    thread->plan_declines += memory->wanted[1] != 0; /* plans ignore this attempt: */
    status = make_ready(memory, thread, memory->wanted[0]);
    thread->plan_declines -= memory->wanted[1] != 0;
    /* a smaller size may still be available */
    if (status != FY_STATUS_OK && memory->wanted[1])
        status = make_ready(memory, thread, memory->wanted[1]);
    if (status != FY_STATUS_OK)
        return status; /* the device's pool, or the guard, wrote the error
                                                * record */
    status = fy__pool_alloc(memory->pool, nbytes, 0, out_block);
    /* there was no bookkeeping memory for it */
    if (memory->ready) fy__storage_release(thread, memory->ready);
    memory->ready = NULL;
    return status;
}

void fy__private_walk_begin(void) { pthread_mutex_lock(&list_lock); }
void fy__private_walk_end(void) { pthread_mutex_unlock(&list_lock); }

void fy__private_each(const fy_device_t *device, void (*fn)(void *user, fy__pool_t *pool),
                      void *user)
{
    for (fy__private_t *memory = list; memory; memory = memory->next)
        if (memory->device == device) fn(user, memory->pool);
}

void fy__private_fork_lock(void)
{
    pthread_mutex_lock(&list_lock);
    for (fy__private_t *memory = list; memory; memory = memory->next)
        fy__pool_fork_lock(memory->pool);
}

void fy__private_fork_unlock(void)
{
    for (fy__private_t *memory = list; memory; memory = memory->next)
        fy__pool_fork_unlock(memory->pool);
    pthread_mutex_unlock(&list_lock);
}
