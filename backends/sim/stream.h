/* Streams and events of a simulated device. A stream is the model time at which its last request ends; an event is a model time.
 * Not here: the requests (work.c). */
#ifndef FERRY_BACKENDS_SIM_STREAM_H_
#define FERRY_BACKENDS_SIM_STREAM_H_

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

/* The lock guards ready_ns and is held while a request of this stream is submitted, so that requests of one stream run one at a time
 * and in the order of their times, and an event recorded behind them finds their bytes changed. The memory and clock locks may be taken
 * under it, another stream's may not. */
typedef struct fy__sim_stream {
    pthread_mutex_t lock;
    uint64_t ready_ns; /* no earlier may its next request start */
} fy__sim_stream_t;

typedef struct fy__sim_event {
    _Atomic uint64_t time_ns; /* 0, which is past, until it is recorded */
} fy__sim_event_t;

#endif
