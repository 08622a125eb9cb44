/* Queues: requests that were submitted to a stream of a lazy or random device and have not run yet.
 * A queue is a FIFO of requests and of waits for positions in other queues; an event is a position.
 * Everything runs under one lock for the process, in an order that each stream's FIFO and the waits
 * allow. A wait is for an earlier position, so there are no cycles.
 * Not here: the effect of a request (order.h). */
#ifndef FERRY_BACKENDS_SIM_QUEUE_H_
#define FERRY_BACKENDS_SIM_QUEUE_H_

#include "backends/sim/order.h"

typedef struct fy__sim_item fy__sim_item_t;
typedef struct fy__sim_queue fy__sim_queue_t;

/* A position in a queue: everything up to there. Holds the queue; queue NULL is nothing to wait
 * for. */
typedef struct fy__sim_point {
    fy__sim_queue_t *queue;
    uint64_t position;
} fy__sim_point_t;

/* Guarded by the lock in queue.c. */
struct fy__sim_queue {
    /* NULL once it is closed: others may still wait for what was here */
    struct fy__sim_device *dev;
    bool is_random;        /* its device's order */
    fy__sim_queue_t *next; /* of all queues, in the order they were made */
    /* its stream, events, waits; one without holders goes when it is empty */
    uint32_t nholders;
    uint64_t submitted, done;    /* positions of the last request put in, and of the last one run */
    fy__sim_item_t *head, *tail; /* what is between them */
    fy__sim_queue_t *below;      /* while run_to works: who wants this one's `target` reached */
    uint64_t target;
    uint32_t priority; /* random: see queue.c */
    int mood;
};

/* NULL: no memory. */
fy__sim_queue_t *fy__sim_queue_create(struct fy__sim_device *dev);
/* The stream is destroyed; requests in the queue still run. */
void fy__sim_queue_leave(fy__sim_queue_t *queue);

/* The request's own copy, for putting into a queue. NULL: no memory. */
fy__sim_item_t *fy__sim_item_create(const fy__sim_request_t *request);
/* Puts it at the end; returns its position. */
uint64_t fy__sim_queue_push(fy__sim_queue_t *queue, fy__sim_item_t *item, fy__sim_span_t span);
/* Requests added from now on run after `point`. False: no memory. */
bool fy__sim_queue_wait(fy__sim_queue_t *queue, const fy__sim_point_t *point);
/* Moves `point` (zero, or one set here before) to the end of the queue; NULL: to nothing. */
void fy__sim_point_set(fy__sim_point_t *point, fy__sim_queue_t *queue);
/* Runs everything up to it, and what that waits for. */
void fy__sim_point_run(const fy__sim_point_t *point);
void fy__sim_queue_run_to(fy__sim_queue_t *queue, uint64_t position);
/* A call queries `dev`: in the random order, some requests may run now. */
void fy__sim_queue_visit(struct fy__sim_device *dev);

/* Runs (or, if the device is lost, forgets) everything of `dev`, which is about to be closed or was
 * just lost. */
void fy__sim_queue_finish(struct fy__sim_device *dev, bool is_closing);
/* Memory is about to go: requests that touch it and have not run are run now, logged, and counted
 * as a violation. `verb`: "free". */
void fy__sim_queue_settle(const struct fy__sim_device *dev, const char *verb, const void *begin,
                          uint64_t nbytes, const void *bytes);
/* The number of times that memory was freed under a request that had not run yet, since the process
 * began: a wait was missing. */
uint64_t fy__sim_violations(void);

/* SplitMix64: the next number of `*state`. */
uint64_t fy__sim_random_next(uint64_t *state);

#endif
