/* The internals of a prefetch: depth + 1 buffers, called rooms. One producer (a thread, or the
 * consumer itself) fills and uploads them in order; the consumer gets one at a time. Batch b is in
 * room b % nrooms. A room is refilled after its batch was returned, when the consumer asks for the
 * next one.
 * Next: prefetch.c (create, next, destroy), prefetch_fill.c (the producer). */
#ifndef FERRY_TRANSFER_PREFETCH_H_
#define FERRY_TRANSFER_PREFETCH_H_

#include <pthread.h>
#include <sys/types.h>

#include <ferry/prefetch.h>

#include "runtime/base/fail.h"
#include "runtime/thread/guard.h"
#include "runtime/thread/scope.h"

enum { FY__PREFETCH_DEEPEST = 64 };

/* The producer owns it until it is counted in `produced`; then the consumer, until it asks for the
 * next batch. */
typedef struct fy__room {
    fy_tensor_t **host, **device; /* the full batch; in no scope */
    fy_tensor_t **views;          /* of `device`, for a batch that is not full; else NULLs */
    int64_t rows;                 /* 0: there is no such batch */
    fy_status_t status;
    fy__error_copy_t error; /* if status is not OK */
} fy__room_t;

struct fy_prefetch {
    fy__handle_t handle;
    fy_device_t *device;
    fy_prefetch_fn fill;
    void *user;
    size_t count;
    int64_t rows; /* of a full batch */
    uint32_t nrooms;
    bool has_thread;
    pid_t pid; /* the thread exists in this process only */
    pthread_t thread;
    fy__heritage_t heritage;        /* the thread's */
    fy__thread_t *_Atomic filling;  /* the thread that runs `fill` */
    uint64_t next;                  /* used by the consumer: batches requested so far */
    bool is_over;                   /* used by the consumer: it has seen the end */
    pthread_mutex_t lock;           /* guards the three below */
    pthread_cond_t changed;         /* one of the three changed */
    uint64_t produced, handed_back; /* batches */
    bool stops;                     /* the thread must end */
    fy_tensor_t **tensors;          /* memory of the rooms' lists */
    fy__room_t rooms[];
};

/* Fills and uploads batch `index` into its room, in a scope "prefetch". Adds to *blocked_ns the
 * wait for the room's host side. */
void fy__prefetch_produce(fy_prefetch_t *prefetch, fy__thread_t *thread, uint64_t index,
                          uint64_t *blocked_ns);
/* The thread; user: the prefetch. */
void *fy__prefetch_run(void *user);

#endif
