/* Nodes: figures by scope path. Each thread has its own tree and is the only one to add to its
 * counters (so adding is a load and a store); readers sum over all threads' trees. Nodes are never
 * freed: their number is that of distinct paths. A node has at most FY__NODE_CHILDREN children by
 * name; scopes with further names count in one more, "(others)". So a program that names scopes by
 * request uses bounded memory and loses no figure.
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

struct fy__thread;
struct fy__node_table;

/* up to so many children are looked for in the list, more in a table */
enum { FY__NODE_CHILDREN = 4096, FY__NODE_LISTED = 16 };
#define FY__NODE_OTHERS "(others)"

/* Live bytes on one device of what was made under a node, inside it, too. Only the owning thread
 * makes anything, so it alone sets the peak;
 * any thread may give back. */
typedef struct fy__node_memory {
    /* Written by the owning thread only, so without a read-modify-write; live and requested without
     * what other threads gave back. */
    _Atomic int64_t live, requested, peak;
    _Atomic int64_t away_live, away_requested; /* <= 0: what others gave back */
    const struct fy__thread *owner;
    struct fy__node_memory *above; /* the parent's for this device; NULL for a root */
} fy__node_memory_t;

typedef struct fy__node {
    char *name; /* "" for a thread's root */
    struct fy__node *parent;
    struct fy__node *_Atomic child;
    struct fy__node *_Atomic sibling; /* set before the node is published */
    uint32_t nchildren;               /* this and the table: the owning thread's */
    /* children by name, once there are more than FY__NODE_LISTED; NULL: only the list */
    struct fy__node_table *table;
    _Atomic uint64_t requests, syncs, sync_ns, device_allocs, throttles, throttle_ns;
    fy__traffic_counters_t traffic[FY__DIRECTIONS];
    fy__node_memory_t *_Atomic memory; /* [FY__MAX_DEVICES], from the first device allocation on */
} fy__node_t;

/* By the owning thread only. */
static inline void fy__count(_Atomic uint64_t *counter, uint64_t n)
{
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + n,
                          memory_order_relaxed);
}

/* Child of `parent` called `name`, made if needed; "(others)" if there are too many; `parent`
 * itself if there is no memory. Cost: a walk of at most FY__NODE_LISTED names, or a look-up by
 * hash. */
fy__node_t *fy__node_child(fy__node_t *parent, const char *name);
/* The node of the same path in the tree of `root`, made if needed: for figures of another thread's
 * that this one adds to. */
fy__node_t *fy__node_mirror(fy__node_t *root, fy__node_t *node);
/* Entry for device `index`, made if needed, and those of the nodes above; NULL if there is no
 * memory. By the owning thread only. */
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
/* What was made, by the owning thread, and what goes, by any: here and in all nodes above. */
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
/* Bytes made in that very node, not inside it. */
int64_t fy__node_own_live(const fy__node_t *node, uint32_t device_index);
/* "train/step", cut to `size`; returns buffer. */
const char *fy__node_path(const fy__node_t *node, char *buffer, size_t size);
/* The descendant of `root` at `path` (NULL or "": root); NULL if there is none. */
fy__node_t *fy__node_find(fy__node_t *root, const char *path);
/* Calls `fn` for `node` and everything below, parents first. */
void fy__node_walk(fy__node_t *node, void (*fn)(void *user, fy__node_t *node), void *user);

#endif
