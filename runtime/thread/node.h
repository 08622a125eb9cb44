/* Nodes: figures by scope path. Each thread has its own tree, and only that thread adds to its
 * counters, so an addition is a load and a store. Readers sum over all threads' trees. Nodes are
 * never freed: their number is that of distinct paths. A node has at most FY__NODE_CHILDREN
 * children by name; scopes with further names count in one more, "(others)". So a program that
 * names scopes by request uses bounded memory and loses no figure.
 * Not here: the public queries (transfer/ledger.c, memory.c). */
#ifndef FERRY_RUNTIME_NODE_H_
#define FERRY_RUNTIME_NODE_H_

#include <stdatomic.h>
#include <stdint.h>

#include <ferry/ledger.h>

enum { FY__UPLOAD, FY__DOWNLOAD, FY__PEER, FY__COLLECTIVE, FY__DIRECTIONS };

typedef struct fy__traffic_counters {
    _Atomic uint64_t count, nbytes, wire_nbytes, copies, blocked_ns, by_path[FY_PATH_COUNT];
} fy__traffic_counters_t;

struct fy__thread;
struct fy__node_table;

/* the list holds this many children, a table the further ones */
enum { FY__NODE_CHILDREN = 4096, FY__NODE_LISTED = 16 };
#define FY__NODE_OTHERS "(others)"

/* Live bytes on one device of tensors made under a node or its descendants. Only the owning thread
 * allocates, so only it sets the peak; any thread may free. */
typedef struct fy__node_memory {
    /* Written by the owning thread only, so without a read-modify-write. live and requested exclude
     * frees by other threads. */
    _Atomic int64_t live, requested, peak;
    _Atomic int64_t away_live, away_requested; /* <= 0: freed by other threads */
    const struct fy__thread *owner;
    struct fy__node_memory *above; /* the parent's for this device; NULL for a root */
} fy__node_memory_t;

typedef struct fy__node {
    char *name; /* "" for a thread's root */
    struct fy__node *parent;
    struct fy__node *_Atomic child;
    struct fy__node *_Atomic sibling; /* set before the node is published */
    uint32_t nchildren;               /* this and the table are used by the owning thread only */
    /* children by name, once there are more than FY__NODE_LISTED; NULL: only the list */
    struct fy__node_table *table;
    _Atomic uint64_t requests, syncs, sync_ns, device_allocs, throttles, throttle_ns;
    fy__traffic_counters_t traffic[FY__DIRECTIONS];
    fy__node_memory_t *_Atomic memory; /* [FY__MAX_DEVICES], from the first device allocation on */
} fy__node_t;

/* Called by the owning thread only. */
static inline void fy__count(_Atomic uint64_t *counter, uint64_t n)
{
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + n,
                          memory_order_relaxed);
}

/* Child of `parent` named `name`, made if needed; "(others)" if there are too many; `parent` itself
 * if memory runs out. Cost: a walk of at most FY__NODE_LISTED names, or a hash look-up. */
fy__node_t *fy__node_child(fy__node_t *parent, const char *name);
/* The node of the same path in the tree of `root`, made if needed: for figures that this thread
 * adds to another thread's path. */
fy__node_t *fy__node_mirror(fy__node_t *root, fy__node_t *node);
/* Entry for device `index`, made if needed, and those of the ancestors; NULL if memory runs out.
 * Called by the owning thread only. */
fy__node_memory_t *fy__node_memory(fy__node_t *node, uint32_t device_index);
static inline int64_t fy__node_memory_live(const fy__node_memory_t *memory)
{
    return atomic_load_explicit(&memory->live, memory_order_relaxed) +
           atomic_load_explicit(&memory->away_live, memory_order_relaxed);
}
static inline int64_t fy__node_memory_requested(const fy__node_memory_t *memory)
{
    return atomic_load_explicit(&memory->requested, memory_order_relaxed) +
           atomic_load_explicit(&memory->away_requested, memory_order_relaxed);
}
static inline void fy__node_memory_count(_Atomic int64_t *counter, int64_t change)
{
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + change,
                          memory_order_relaxed);
}
/* Adds allocated bytes (owning thread) and subtracts freed bytes (any thread), in this node and all
 * ancestors. */
static inline void fy__node_memory_add(fy__node_memory_t *memory, uint64_t nbytes,
                                       uint64_t requested)
{
    for (; memory; memory = memory->above) {
        fy__node_memory_count(&memory->live, (int64_t)nbytes);
        fy__node_memory_count(&memory->requested, (int64_t)requested);
        const int64_t live = fy__node_memory_live(memory);
        if (live > atomic_load_explicit(&memory->peak, memory_order_relaxed))
            atomic_store_explicit(&memory->peak, live, memory_order_relaxed);
    }
}
static inline void fy__node_memory_sub(const struct fy__thread *thread, fy__node_memory_t *memory,
                                       uint64_t nbytes, uint64_t requested)
{
    for (; memory; memory = memory->above) {
        if (memory->owner == thread) {
            fy__node_memory_count(&memory->live, -(int64_t)nbytes);
            fy__node_memory_count(&memory->requested, -(int64_t)requested);
        } else {
            atomic_fetch_sub_explicit(&memory->away_live, (int64_t)nbytes, memory_order_relaxed);
            atomic_fetch_sub_explicit(&memory->away_requested, (int64_t)requested,
                                      memory_order_relaxed);
        }
    }
}
/* Bytes made in this node, without its descendants. */
int64_t fy__node_own_live(const fy__node_t *node, uint32_t device_index);
/* "train/step", cut to `size`; returns buffer. */
const char *fy__node_path(const fy__node_t *node, char *buffer, size_t size);
/* The descendant of `root` at `path` (NULL or "": root); NULL if it does not exist. */
fy__node_t *fy__node_find(fy__node_t *root, const char *path);
/* Calls `fn` for `node` and all descendants, parents first. */
void fy__node_walk(fy__node_t *node, void (*fn)(void *user, fy__node_t *node), void *user);

#endif
