/* A thread's state: everything that the hot path touches without a lock hangs on one TLS pointer.
 * States of threads that ended are handed to new threads with their caches and figures, so nothing
 * has to be folded together and nothing is lost.
 * Not here: what scopes (scope.h), nodes (node.h) and storages (storage.h) are. */
#ifndef FERRY_RUNTIME_THREAD_H_
#define FERRY_RUNTIME_THREAD_H_

#include <ferry/memory.h>
#include <ferry/status.h>

#include "runtime/thread/node.h"
#include "runtime/thread/scope.h"

enum {
    FY__MAX_DEVICES = 64,
    FY__CACHE_LARGE = 58,                    /* large host blocks: thread_cache.h */
    FY__CACHE_CLASSES = FY__CACHE_LARGE + 1, /* the others are size classes of small ones */
    FY__CACHE_SLOTS = 8,                     /* large host blocks that a thread keeps */
#ifdef __SANITIZE_ADDRESS__
    FY__STRUCT_CACHE = 0, /* so that AddressSanitizer sees a handle that is used after its end */
#else
    FY__STRUCT_CACHE = 4096 /* tensor handles, and storages without a block, kept per thread */
#endif
};

struct fy__storage;
struct fy__recording;
struct fy__pressure;

typedef struct fy__thread {
    /* scope.c */
    fy__frame_t *frame;     /* innermost open scope; NULL outside any */
    fy__node_t *node;       /* where figures go now */
    fy_category_t category; /* what is made now is for */
    uint32_t depth, excess; /* open frames; scopes begun beyond FY__MAX_SCOPES */
    uint32_t next_serial;
    /* innermost guard; a reference. NULL: none but perhaps the process's */
    struct fy__guard *guards;
    fy__claim_t claims[FY__QUOTAS]; /* guard.c: taken, not yet charged */
    uint32_t claimed;               /* bit i: claims[i] is one */
    const char *blocking;           /* static: the call marked Blocks that began last */
    /* 1, 2, ...; of the state, so a later thread may have it again */
    uint32_t number;
    /* tensor.c, storage.c: caches of this thread only */
    fy_tensor_t *free_tensors;
    uint32_t nfree_tensors;
    struct fy__storage *free_slots; /* slot.h: storages without a block */
    uint32_t nfree_slots;
    /* host storage with its block that was given back last; means something if */
    struct fy__storage *last;
    /* not 0: its class; written by this thread only */
    _Atomic uint16_t last_class;
    struct fy__storage *cached[FY__CACHE_CLASSES]; /* the others, last used first */
    _Atomic uint16_t ncached[FY__CACHE_CLASSES];   /* their number; written by this thread only */
    /* requests served by the front; written by this thread only */
    _Atomic uint64_t cache_hits;
    /* thread_cache.c: large ones, taken by whoever exchanges them out; what is in them is written by this
     * thread only, before that */
    struct fy__storage *_Atomic large[FY__CACHE_SLOTS];
    _Atomic uint64_t large_key[FY__CACHE_SLOTS];
    const void *large_scope[FY__CACHE_SLOTS];
    /* bytes in them, what others took included; this thread's only */
    uint64_t large_total;
    uint32_t large_last, large_next; /* slot that was used last; slot to be emptied next */
    /* stream.c: what fy_stream_use set; NULL is the device's compute stream */
    fy_stream_t *streams[FY__MAX_DEVICES];
    /* fail.c */
    fy_error_t error;
    fy_oom_verdict_t verdict;
    uint32_t nlocks, nkept; /* fy__locks held; lines to be said when they are let go */
    fy_log_level_t kept_level;
    char kept[512];
    /* pressure.c: the function that this thread is inside; NULL: none */
    struct fy__pressure *pressing;
    /* ops/graph.c: what this thread records, while FY__WATCH_GRAPH is held; NULL: nothing */
    struct fy__recording *recording;
    /* plan.h: the plan whose step this thread runs; NULL: none. A refusal of memory is no plan's
     * business while plan_declines */
    struct fy__plan_run *plan;
    uint32_t plan_declines;
    fy_tape_t *tape; /* ops/tape: what records this thread's calls; NULL: nothing does */
    /* ops/dispatch.c: operands of calls with many, grown as needed */
    void *scratch;
    size_t scratch_nbytes;

    fy__node_t root;
    struct fy__thread *next; /* all states ever made; guarded by the lock in thread.c */
    int in_use;
    fy__frame_t frames[FY__MAX_SCOPES];
} fy__thread_t;

extern __thread fy__thread_t *fy__tls __attribute__((visibility("hidden")));
fy__thread_t *fy__thread_attach(void);

/* This thread's state; NULL only if there is no memory for it. */
static inline fy__thread_t *fy__thread(void)
{
    fy__thread_t *thread = fy__tls;
    return __builtin_expect(thread != NULL, 1) ? thread : fy__thread_attach();
}

/* Calls `fn` for every state there ever was, under the list's lock; other threads go on writing
 * theirs. */
void fy__thread_walk(void (*fn)(void *user, fy__thread_t *thread), void *user);

/* For wire.c's fork handlers: the list is held over the fork; in the child all states but the
 * caller's become free. */
void fy__thread_fork_lock(void);
void fy__thread_fork_unlock(void);
void fy__thread_fork_child(void);

#endif
