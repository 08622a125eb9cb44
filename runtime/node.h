/* Nodes: figures by scope path. Each thread has its own tree and is the only one to add to its counters (so adding is a load and a
 * store); readers sum over all threads' trees. Nodes are never freed: their number is that of distinct paths.
 * Not here: the public queries (transfer/ledger.c, memory.c). */
#ifndef FERRY_RUNTIME_NODE_H_
#define FERRY_RUNTIME_NODE_H_

#include <stdatomic.h>
#include <stdint.h>

#include <ferry/ledger.h>

enum { FY__UPLOAD, FY__DOWNLOAD, FY__PEER, FY__DIRECTIONS };

typedef struct fy__traffic_counters {
    _Atomic uint64_t count, nbytes, wire_nbytes, copies, blocked_ns, by_path[FY_PATH_COUNT];
} fy__traffic_counters_t;

/* Live bytes on one device of what was made under a node, inside it, too. Any thread may free, so these are added to atomically; only the
 * owning thread makes anything, so it alone sets the peak. */
typedef struct fy__node_memory {
    _Atomic int64_t live, requested, peak;
    struct fy__node_memory *above; /* the parent's for this device; NULL for a root */
} fy__node_memory_t;

typedef struct fy__node {
    char *name; /* "" for a thread's root */
    struct fy__node *parent;
    struct fy__node *_Atomic child;
    struct fy__node *_Atomic sibling; /* set before the node is published */
    _Atomic uint64_t requests, syncs, sync_ns, device_allocs, throttles, throttle_ns;
    fy__traffic_counters_t traffic[FY__DIRECTIONS];
    fy__node_memory_t *_Atomic memory; /* [FY__MAX_DEVICES], from the first device allocation on */
} fy__node_t;

/* By the owning thread only. */
static inline void fy__count(_Atomic uint64_t *counter, uint64_t n)
{
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + n, memory_order_relaxed);
}

/* Child of `parent` called `name`, made if needed; `parent` itself if there is no memory. */
fy__node_t *fy__node_child(fy__node_t *parent, const char *name);
/* The node of the same path in the tree of `root`, made if needed: for figures of another thread's that this one adds to. */
fy__node_t *fy__node_mirror(fy__node_t *root, fy__node_t *node);
/* Entry for device `index`, made if needed, and those of the nodes above; NULL if there is no memory. By the owning thread only. */
fy__node_memory_t *fy__node_memory(fy__node_t *node, uint32_t device_index);
/* What was made, by the owning thread, and what goes, by any: here and in all nodes above. */
static inline void fy__node_memory_add(fy__node_memory_t *memory, uint64_t nbytes, uint64_t requested)
{
    for (; memory; memory = memory->above) {
        const int64_t live = atomic_fetch_add_explicit(&memory->live, (int64_t)nbytes, memory_order_relaxed) + (int64_t)nbytes;
        atomic_fetch_add_explicit(&memory->requested, (int64_t)requested, memory_order_relaxed);
        if (live > atomic_load_explicit(&memory->peak, memory_order_relaxed))
            atomic_store_explicit(&memory->peak, live, memory_order_relaxed);
    }
}
static inline void fy__node_memory_sub(fy__node_memory_t *memory, uint64_t nbytes, uint64_t requested)
{
    for (; memory; memory = memory->above) {
        atomic_fetch_sub_explicit(&memory->live, (int64_t)nbytes, memory_order_relaxed);
        atomic_fetch_sub_explicit(&memory->requested, (int64_t)requested, memory_order_relaxed);
    }
}
/* Bytes made in that very node, not inside it. */
int64_t fy__node_own_live(const fy__node_t *node, uint32_t device_index);
/* "train/step", cut to `size`; returns buffer. */
const char *fy__node_path(const fy__node_t *node, char *buffer, size_t size);
/* The descendant of `root` at `path` (NULL or "": root); NULL if there is none. */
fy__node_t *fy__node_find(fy__node_t *root, const char *path);
/* Calls `fn` for `node` and everything below, parents first. */
void fy__node_walk(fy__node_t *node, void (*fn)(void *user, fy__node_t *node), void *user);

#endif
