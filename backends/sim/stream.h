/* Streams and events of a simulated device. A stream is the model time at which its last request
 * ends, and, in a deferred order, a queue; an event is a model time, and a position in a queue. The
 * two never meet: times are fixed at submission, queues say when bytes change.
 * Not here: the requests (work.c), running them (queue.h). */
#ifndef FERRY_BACKENDS_SIM_STREAM_H_
#define FERRY_BACKENDS_SIM_STREAM_H_

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "backends/sim/queue.h"

/* The lock guards ready_ns and is held while a request of this stream is submitted, so that
 * requests of one stream run one at a time and in the order of their times, and an event recorded
 * behind them finds their bytes changed. The queues', memory and clock locks may be taken under it,
 * another stream's may not. */
typedef struct fy__sim_stream {
    pthread_mutex_t lock;
    uint64_t ready_ns;      /* no earlier may its next request start */
    fy__sim_queue_t *queue; /* NULL: eager */
} fy__sim_stream_t;

typedef struct fy__sim_event {
    _Atomic uint64_t time_ns; /* 0, which is past, until it is recorded */
    fy__sim_point_t point;    /* guarded by the queues' lock */
} fy__sim_event_t;

#endif
