/* A thread's state: one TLS pointer leads to all data that the hot path uses without a lock. A new
 * thread takes the state of an ended thread with its caches and figures, so nothing is merged and
 * nothing is lost.
 * Not here: scopes (scope.h), nodes (node.h), storages (storage.h). */
#ifndef FERRY_RUNTIME_THREAD_H_
#define FERRY_RUNTIME_THREAD_H_

#include <pthread.h>

#include <ferry/stream.h>
#include <ferry/memory.h>
#include <ferry/status.h>

#include "runtime/order/hazard.h"
#include "runtime/thread/node.h"
#include "runtime/thread/scope.h"
#include "runtime/thread/wait_site.h"

enum {
    FY__MAX_DEVICES = 64,
    FY__CACHE_LARGE = 58,                    /* large host blocks: thread_cache.h */
    FY__CACHE_CLASSES = FY__CACHE_LARGE + 1, /* the others are size classes of small ones */
    FY__CACHE_SLOTS = 8,                     /* large host blocks that a thread keeps */
#ifdef __SANITIZE_ADDRESS__
    FY__STRUCT_CACHE = 0, /* so that AddressSanitizer detects the use of a destroyed handle */
#else
    FY__STRUCT_CACHE = 4096 /* tensor handles, and storages without a block, cached per thread */
#endif
};

/* A call marked Blocks: its name (static), why it waits, for which request; point 0: for none. */
typedef struct fy__blocking {
    const char *what;
    fy__wait_site_t reason;
    fy__point_t awaited;
} fy__blocking_t;

struct fy__storage;
struct fy__recording;
struct fy__pressure;

typedef struct fy__thread {
    /* scope.c */
    /* owns new handles: the innermost open scope; NULL outside any, and if that owns nothing */
    fy__frame_t *frame;
    fy__node_t *node;       /* receives the current figures */
    fy_category_t category; /* of tensors made now */
    uint32_t depth, excess; /* open frames; scopes begun beyond FY__MAX_SCOPES */
    uint32_t next_serial;
    /* innermost guard; a reference. NULL: at most the process's guard applies */
    struct fy__guard *guards;
    fy__claim_t claims[FY__QUOTAS]; /* guard.c: claimed, not yet charged */
    uint32_t claimed;               /* bit i: claims[i] is in use */
    fy__blocking_t blocking;        /* the blocking call that began last */
    /* 1, 2, ...; of the state, so a later thread may have the same */
    uint32_t number;
    /* tensor.c, storage.c: caches, used by this thread only */
    fy_tensor_t *free_tensors;
    uint32_t nfree_tensors;
    struct fy__storage *free_slots; /* slot.h: storages without a block */
    uint32_t nfree_slots;
    /* host storage freed last, with its block; valid if */
    struct fy__storage *last;
    /* this is not 0: its class; written by this thread only */
    _Atomic uint16_t last_class;
    struct fy__storage *cached[FY__CACHE_CLASSES]; /* the others, the last freed first */
    _Atomic uint16_t ncached[FY__CACHE_CLASSES];   /* their number; written by this thread only */
    /* requests served by the thread cache; written by this thread only */
    _Atomic uint64_t cache_hits;
    /* thread_cache.c: large blocks; any thread may take one by an exchange. Only this thread writes
     * their contents, before it stores them */
    struct fy__storage *_Atomic large[FY__CACHE_SLOTS];
    _Atomic uint64_t large_key[FY__CACHE_SLOTS];
    const void *large_scope[FY__CACHE_SLOTS];
    /* bytes in them, including those that other threads took; used by this thread only */
    uint64_t large_total;
    uint32_t large_last, large_next; /* the slot used last; the slot to empty next */
    /* stream.c: set by fy_stream_set_current; NULL is the device's compute stream */
    fy_stream_t *streams[FY__MAX_DEVICES];
    /* external.c: the work that this thread has entered; 0: none */
    fy__point_t external;
    /* fy_interrupt_set; whether a drain is that of fy_device_wait */
    fy_interrupt_fn interrupt;
    void *interrupt_user;
    bool in_device_wait;
    /* fail.c */
    fy_error_t error;
    fy_oom_verdict_t verdict;
    uint32_t nlocks, nkept; /* fy__locks held; log lines kept until they are released */
    fy_log_level_t kept_level;
    char kept[512];
    /* pressure.c: the reclaim callback that this thread runs; NULL: none */
    struct fy__pressure *pressing;
    /* ops/graph.c: the recording of this thread, while FY__WATCH_GRAPH is held; NULL: none */
    struct fy__recording *recording;
    /* plan.h: the plan whose step this thread runs; NULL: none. While plan_declines is not 0, the
     * plan ignores refusals of memory */
    struct fy__plan_run *plan;
    uint32_t plan_declines;
    fy_tape_t *tape; /* ops/tape: the tape that records this thread's calls; NULL: none */
    /* ops/autocast.c: the dtype of the innermost scope that sets one; F32 (0): off. And figures */
    fy_dtype_t autocast;
    uint64_t autocasts, autocast_nbytes, autocasts_reused;
    /* ops/dispatch.c: operand arrays of calls with many operands, grown as needed */
    void *scratch;
    size_t scratch_nbytes;

    fy__node_t root;
    struct fy__thread *next; /* all states; guarded by the lock in thread.c */
    int in_use;
    fy__frame_t frames[FY__MAX_SCOPES];
} fy__thread_t;

extern __thread fy__thread_t *fy__tls __attribute__((visibility("hidden")));
fy__thread_t *fy__thread_attach(void);

/* This thread's state; NULL only if memory runs out. */
static inline fy__thread_t *fy__thread(void)
{
    fy__thread_t *thread = fy__tls;
    return __builtin_expect(thread != NULL, 1) ? thread : fy__thread_attach();
}

/* The innermost open scope; NULL outside any. */
static inline fy__frame_t *fy__thread_scope(fy__thread_t *thread)
{
    return thread->depth ? &thread->frames[thread->depth - 1] : NULL;
}

/* Calls `fn` for every state, in use or not, under the list's lock; other threads keep writing
 * their states. */
void fy__thread_walk(void (*fn)(void *user, fy__thread_t *thread), void *user);

/* For wire.c's fork handlers: the list is locked over the fork; in the child all states but the
 * caller's become free. */
extern pthread_mutex_t fy__thread_lock;
void fy__thread_fork_child(void);

/* The state that a thread started by Ferry inherits from its creator: the scope path, which
 * receives its figures; the category of its tensors; its autocast; and the guards, so that both
 * threads charge the same counts. Handles that it makes belong to its own scopes. */
typedef struct fy__heritage {
    const fy__node_t *node; /* in the creator's tree; nodes are never freed */
    fy_category_t category;
    fy_dtype_t autocast;
    struct fy__guard *guards; /* a reference */
} fy__heritage_t;

/* Copies the current state of `thread`. */
void fy__heritage_take(const fy__thread_t *thread, fy__heritage_t *out_heritage);
void fy__heritage_release(fy__heritage_t *heritage);
/* Called on the new thread, which has no scope open: its scopes are then under the path, and inside
 * the guards. Several threads may call it. */
void fy__heritage_enter(fy__thread_t *thread, const fy__heritage_t *heritage);
/* Ends the scopes that are open and removes the inherited state. */
void fy__heritage_leave(fy__thread_t *thread);

#endif
