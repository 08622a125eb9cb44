/* Breadrecent: which requests of each stream were submitted last and which are known to be done,
 * kept for the day a kernel breaks the device, because the driver then names no kernel. Each stream
 * has a trail with a small ring. Dropping a recent is one atomic add and two stores: no lock, no
 * text, no driver call. Text is made when a call fails. Not here: what a failure is (codes.c). */
#ifndef FERRY_BACKENDS_CUDA_RECENT_H_
#define FERRY_BACKENDS_CUDA_RECENT_H_

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>

#include <ferry/backend.h>

enum { FY__CUDA_RECENT = 32 }; /* a stream; a power of two */

/* What a recent says besides an op's number (which is smaller than all of these, but for
 * FY_LAUNCH_*). */
#define FY__CUDA_RECENT_COPY       0xFFFFFE00u /* + fy_copy_kind_t; amount: bytes */
#define FY__CUDA_RECENT_FILL       0xFFFFFE10u /* amount: bytes */
#define FY__CUDA_RECENT_COPY_BATCH 0xFFFFFE11u /* amount: bytes of all its copies */
#define FY__CUDA_RECENT_COLLECTIVE 0xFFFFFE12u /* amount: bytes */
#define FY__CUDA_RECENT_REPLAY     0xFFFFFE13u /* of a graph; amount: requests in it */

typedef struct fy__cuda_recent_add {
    _Atomic uint32_t what;
    _Atomic uint64_t amount; /* elements of an op, bytes of a copy */
} fy__cuda_recent_t;

/* One stream's. Lives as long as its device, because an event may outlive its stream; another
 * stream takes a closed one's trail over. */
typedef struct fy__cuda_trail {
    struct fy__cuda_trail *next;
    int role; /* fy_stream_role_t */
    /* guarded by the lock of fy__cuda_trails_t, as are role and the list */
    int open;
    /* of the stream, from 1 on in its device: an event recorded on an earlier one does not count */
    _Atomic uint32_t number;
    _Atomic uint64_t submitted;                /* requests so far; the newest's number */
    _Atomic uint64_t done;                     /* up to here they are known to be done */
    fy__cuda_recent_t recent[FY__CUDA_RECENT]; /* number n lies at n % FY__CUDA_RECENT */
} fy__cuda_trail_t;

typedef struct fy__cuda_trails {
    pthread_mutex_t lock; /* guards `first`, its list and `nstreams`; not taken to drop a recent */
    fy__cuda_trail_t *first;
    uint32_t nstreams;
} fy__cuda_trails_t;

/* A place on a trail that an event stands for. */
typedef struct fy__cuda_mark {
    fy__cuda_trail_t *_Atomic trail; /* NULL: not recorded */
    _Atomic uint32_t number;
    _Atomic uint64_t seq;
} fy__cuda_mark_t;

/* NULL: no memory. */
fy__cuda_trail_t *fy__cuda_trail_open(fy__cuda_trails_t *trails, int role);
void fy__cuda_trail_close(fy__cuda_trails_t *trails, fy__cuda_trail_t *trail);
void fy__cuda_trails_free(fy__cuda_trails_t *trails);

/* A request was submitted. Call it afterwards, so that the newest entry is a request that the
 * driver accepted. Two threads that submit to one stream at the same moment may appear in the other
 * order. */
static inline void fy__cuda_recent_add(fy__cuda_trail_t *trail, uint32_t what, uint64_t amount)
{
    const uint64_t seq = atomic_fetch_add_explicit(&trail->submitted, 1, memory_order_relaxed) + 1;
    fy__cuda_recent_t *recent = &trail->recent[seq % FY__CUDA_RECENT];
    atomic_store_explicit(&recent->what, what, memory_order_relaxed);
    atomic_store_explicit(&recent->amount, amount, memory_order_relaxed);
}

/* `mark` stands for everything that was submitted so far. Call it before the event is recorded:
 * then it never says too much. */
void fy__cuda_mark_set(fy__cuda_mark_t *mark, fy__cuda_trail_t *trail);
/* What it stands for is done. */
void fy__cuda_mark_reached(fy__cuda_mark_t *mark);

/* Writes one line a stream that ever had a request, those with work not known to be done first; cut
 * where the room ends. Always ends in '\0'; empty if there is nothing to say. */
void fy__cuda_trails_tell(fy__cuda_trails_t *trails, char *out_text, size_t nbytes);

/* "matmul", "upload": what a recent or a launch is called. */
const char *fy__cuda_request_name(uint32_t what);

#endif
