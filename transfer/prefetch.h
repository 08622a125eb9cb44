/* The inside of a prefetch: depth + 1 rooms, filled and uploaded in order by one producer (a
 * thread, or the consumer itself) and shown one at a time. Batch b lies in room b % nrooms; a room
 * is refilled once its batch was handed back, which is when the next one is asked for.
 * Next: prefetch.c (making, asking, destroying), prefetch_fill.c (the producer). */
#ifndef FERRY_TRANSFER_PREFETCH_H_
#define FERRY_TRANSFER_PREFETCH_H_

#include <pthread.h>
#include <sys/types.h>

#include <ferry/prefetch.h>

#include "runtime/base/fail.h"
#include "runtime/thread/inherit.h"
#include "runtime/thread/scope.h"

enum { FY__PREFETCH_DEEPEST = 64 };

/* Its producer's until it is counted in `produced`, then its consumer's until that asks for the
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
    pid_t pid; /* the thread is in this process only */
    pthread_t thread;
    fy__heritage_t heritage;        /* the thread's */
    fy__thread_t *_Atomic filling;  /* the thread that is inside of `fill` */
    uint64_t next;                  /* the consumer's: batches asked for so far */
    bool is_over;                   /* the consumer's: it has seen the end */
    pthread_mutex_t lock;           /* guards the three below */
    pthread_cond_t changed;         /* one of them has */
    uint64_t produced, handed_back; /* batches */
    bool stops;                     /* the thread is to end */
    fy_tensor_t **tensors;          /* what the rooms' lists are cut from */
    fy__room_t rooms[];
};

/* Fills and uploads batch `index` into its room, in a scope "prefetch". *blocked_ns grows by what
 * it waited for the room's host side. */
void fy__prefetch_produce(fy_prefetch_t *prefetch, fy__thread_t *thread, uint64_t index,
                          uint64_t *blocked_ns);
/* The thread; user: the prefetch. */
void *fy__prefetch_run(void *user);

#endif
