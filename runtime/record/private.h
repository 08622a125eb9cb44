/* Private memory: bytes of a device that belong to one graph. Its blocks are cut from segments that
 * are ordinary blocks of the device's pool, so limits, guards, verdicts and figures hold by
 * themselves; no segment goes back before the graph and everything made in it are gone, because
 * each replay writes to the same addresses.
 * Not here: what a graph is (recording.h, ops/graph.h), pools (alloc/). */
#ifndef FERRY_RUNTIME_PRIVATE_H_
#define FERRY_RUNTIME_PRIVATE_H_

#include "runtime/base/fail.h"
#include "runtime/device/memory.h"
#include "runtime/order/hazard.h"
#include "runtime/thread/thread.h"

struct fy__storage;

typedef struct fy__private {
    _Atomic uint32_t refs; /* the graph, and each storage with a block of it */
    fy_device_t *device;
    fy__pool_t *pool;
    struct fy__storage *segments; /* linked by `next`; only ever more */
    uint64_t nbytes;              /* of the segments */
    /* Who may still use any of it: who had the segments before, replays, and the last uses of
     * storages that are gone. */
    fy__hazard_t hazard;
    /* Growing happens between two calls of the pool, because the device's pool may run the
     * program's pressure functions meanwhile, and no lock may be held then: the first call says
     * what it wants, the second finds it. */
    uint64_t wanted[2]; /* sizes, the better one first; 0: none */
    struct fy__storage *ready;
    struct fy__private *prev, *next; /* all there are; guarded by the lock in private.c */
} fy__private_t;

/* One reference. */
fy_status_t fy__private_create(fy_device_t *device, fy__private_t **out_memory);
static inline void fy__private_retain(fy__private_t *memory)
{
    atomic_fetch_add_explicit(&memory->refs, 1, memory_order_relaxed);
}
/* The last one gives the segments back to the device's pool, pending as long as they are used. */
void fy__private_release(fy__thread_t *thread, fy__private_t *memory);
/* A storage in it goes: whoever still uses that, uses it. false: too many streams do; try again
 * when fewer do. */
bool fy__private_take_over(fy__private_t *memory, const fy__hazard_t *hazard);
/* nbytes > 0. Grows by what the device's pool gives; fails as that does. One thread at a time: the
 * one that records. */
fy_status_t fy__private_alloc(fy__private_t *memory, uint64_t nbytes, fy__block_t **out_block);

/* For looking at all of them: none goes between hold and let_go, which come in this order with
 * pools' locks taken in between. */
void fy__private_hold(void);
void fy__private_let_go(void);
/* Held: the pools of `device`'s graphs, one after the other. */
void fy__private_each(const fy_device_t *device, void (*fn)(void *user, fy__pool_t *pool),
                      void *user);

/* All of them are held over a fork; before the devices' pools, because growing takes both. */
void fy__private_fork_lock(void);
void fy__private_fork_unlock(void);

#endif
