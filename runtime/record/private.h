/* Private memory: bytes of a device that belong to one graph. Its blocks are cut from segments that
 * are ordinary blocks of the device's pool, so limits, guards, verdicts and figures apply to them.
 * Each replay writes to the same addresses, so after the first replay no segment is freed before
 * the graph and all tensors made in it are destroyed.
 * Not here: graphs (recording.h, ops/graph.h), pools (alloc/). */
#ifndef FERRY_RUNTIME_PRIVATE_H_
#define FERRY_RUNTIME_PRIVATE_H_

#include "runtime/base/fail.h"
#include "runtime/device/memory.h"
#include "runtime/order/hazard.h"
#include "runtime/thread/thread.h"

struct fy__storage;

typedef struct fy__private {
    _Atomic uint32_t refs; /* the graph, and each storage with one of its blocks */
    fy_device_t *device;
    fy__pool_t *pool;
    struct fy__storage *segments; /* linked by `next` */
    struct fy__storage *released; /* the same, while fy__private_trim runs */
    uint64_t nbytes;              /* of the segments */
    /* Requests that may still use any of it: of the segments' former owners, replays, and the last
     * uses of destroyed storages. */
    fy__hazard_t hazard;
    /* during fy__private_trim */
    bool (*is_used)(const void *user, const void *address, uint64_t nbytes);
    const void *user;
    /* Growth happens between two calls of the pool: the device's pool may run reclaim callbacks,
     * and no lock may be held then. The first call stores the needed sizes, the second finds the
     * segment. */
    uint64_t wanted[2]; /* sizes, the preferred one first; 0: none */
    struct fy__storage *ready;
    struct fy__private *prev, *next; /* all private memories; guarded by the lock in private.c */
} fy__private_t;

/* One reference. */
fy_status_t fy__private_create(fy_device_t *device, fy__private_t **out_memory);
static inline void fy__private_retain(fy__private_t *memory)
{
    atomic_fetch_add_explicit(&memory->refs, 1, memory_order_relaxed);
}
/* The last reference frees the segments to the device's pool; they are pending while they are
 * used. */
void fy__private_release(fy__thread_t *thread, fy__private_t *memory);
/* Adds the uses of a destroyed storage. false: they are on too many streams; try again when fewer
 * are. */
bool fy__private_take_over(fy__private_t *memory, const fy__hazard_t *hazard);
/* nbytes > 0. Grows by blocks of the device's pool; fails as that pool. Only the recording thread
 * calls it. */
fy_status_t fy__private_alloc(fy__private_t *memory, uint64_t nbytes, fy__block_t **out_block);

/* Releases free segments for which `is_used` is false to the device's pool. The recording thread
 * calls it before the first replay: so only the segments' former owners may use them. */
void fy__private_trim(fy__thread_t *thread, fy__private_t *memory,
                      bool (*is_used)(const void *user, const void *address, uint64_t nbytes),
                      const void *user);

/* For walks over all of them: none is freed between begin and end. Pools' locks are taken
 * inside. */
void fy__private_walk_begin(void);
void fy__private_walk_end(void);
/* Between begin and end: the pools of `device`'s graphs, one after the other. */
void fy__private_each(const fy_device_t *device, void (*fn)(void *user, fy__pool_t *pool),
                      void *user);

/* Locks all of them over a fork; before the devices' pools, because growth takes both. */
void fy__private_fork_lock(void);
void fy__private_fork_unlock(void);

#endif
