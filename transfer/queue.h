/* An engine's queue. Each engine of a device (uploads, downloads) has a window: the most bytes in
 * flight. A transfer that fits is submitted to the engine's native stream inside the call. Another
 * one on which no caller waits (BORROW uploads, downloads) becomes a job in this queue. When the
 * window has room, the job with the highest priority is submitted, and of those the oldest. The
 * bytes of queued jobs are bounded as well.
 * Jobs have numbers on a separate timeline (runtime/order/stream.h), so hazards and tickets can
 * name them before they are submitted.
 * Not here: copies through the ring, which its slots bound (ring.c). Why:
 * docs/decisions/0017-jobs-on-a-virtual-timeline.md. */
#ifndef FERRY_TRANSFER_QUEUE_H_
#define FERRY_TRANSFER_QUEUE_H_

#include "runtime/order/stream.h"
#include "runtime/tensor/storage.h"
#include "transfer/convert.h"

typedef struct fy__queue fy__queue_t;

/* Opens the queue of the engine whose requests go to `native`. Memory and timeline for jobs are
 * allocated with the first job. */
fy_status_t fy__queue_open(fy_stream_t *native, fy__queue_t **out_queue);
/* No job is queued any more, or its device is lost. */
void fy__queue_close(fy__queue_t *queue);

/* Whether nbytes may be submitted now. If so they count as in flight, and fy__queue_sent must
 * follow. First submits queued jobs that fit. */
bool fy__queue_admit(fy__queue_t *queue, uint64_t nbytes);
/* The bytes were submitted at `point`; point 0: they were not. */
void fy__queue_sent(fy__queue_t *queue, uint64_t nbytes, fy__point_t point);

/* Of the list of queues; held over a fork. The child's queues, whose devices are lost there, get
 * new locks. */
extern pthread_mutex_t fy__queue_lock;
void fy__queue_fork_child(void);

/* The parameters of a queued transfer. */
typedef struct fy__job_order {
    fy_copy_t copy;
    fy__storage_t *dst, *src; /* written and read by it; held meanwhile */
    /* then final = converted raw: `copy` writes raw, whose storage only the job uses. NULL: no
     * conversion */
    const fy__end_t *final, *raw;
    uint64_t nelem; /* of the conversion */
    int priority;
    bool replaces; /* it overwrites all bytes of dst's storage */
} fy__job_order_t;

/* Makes it a job; the hazards of dst and src name it when this returns. May wait until the queue
 * has room: a throttle. Fails: OUT_OF_MEMORY, DEVICE_LOST. */
fy_status_t fy__queue_enqueue(fy__thread_t *thread, fy__queue_t *queue,
                              const fy__job_order_t *order, fy__point_t *out_point);

#endif
