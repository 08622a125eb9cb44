/* An engine's queue. Each engine of a device (uploads, downloads) has a window: so many bytes may
 * be in flight. What finds room goes to the engine's native stream at once, inside the call. What
 * does not, and keeps nobody waiting (BORROW uploads, downloads), becomes a job and stands here
 * until there is room; then the one with the highest priority goes, and of those the oldest. What
 * stands is bounded, too.
 * Jobs have numbers on a timeline of their own (runtime/order/timeline.h), so hazards and tickets know
 * them before they are submitted.
 * Not here: copies through the ring, whose slots are their own bound (ring.c). Why:
 * docs/decisions/0017-jobs-on-a-virtual-timeline.md. */
#ifndef FERRY_TRANSFER_QUEUE_H_
#define FERRY_TRANSFER_QUEUE_H_

#include "runtime/order/stream.h"
#include "runtime/tensor/storage.h"
#include "transfer/convert.h"

typedef struct fy__queue fy__queue_t;

/* Of the engine whose requests go to `native`. The pieces that jobs need are made with the first
 * one. */
fy_status_t fy__queue_open(fy_stream_t *native, fy__queue_t **out_queue);
/* Nothing stands in it any more, or its device is lost. */
void fy__queue_close(fy__queue_t *queue);

/* May nbytes go now? If so they count as in flight, and fy__queue_sent must follow. Submits first
 * what stands and finds room. */
bool fy__queue_admit(fy__queue_t *queue, uint64_t nbytes);
/* They were submitted at `point`; or, with 0, they were not. */
void fy__queue_sent(fy__queue_t *queue, uint64_t nbytes, fy__point_t point);

/* The list of queues is held over a fork; the child's queues, whose devices are lost to it, get new
 * locks. */
void fy__queue_fork_lock(void);
void fy__queue_fork_unlock(void);
void fy__queue_fork_child(void);

/* A transfer as it will be submitted. */
typedef struct fy__job_order {
    fy_copy_t copy;
    fy__storage_t *dst, *src; /* whose bytes are written in the end, and read; held meanwhile */
    /* then final = raw, converted: `copy` writes raw, whose storage nobody else knows. NULL: no
     * conversion */
    const fy__end_t *final, *raw;
    uint64_t nelem; /* of the conversion */
    int priority;
    bool replaces; /* all bytes of dst's storage */
} fy__job_order_t;

/* Makes it a job; the hazards of dst and src name it when this returns. May have to wait until
 * there is room to stand: a throttle.
 * Fails: OUT_OF_MEMORY, DEVICE_LOST. */
fy_status_t fy__queue_stand(fy__thread_t *thread, fy__queue_t *queue, const fy__job_order_t *order,
                            fy__point_t *out_point);

#endif
