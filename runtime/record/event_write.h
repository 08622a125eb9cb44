/* The thread that writes the event file: takes events from the ring and writes them as lines. Not
 * here: its start and end (event.c). */
#ifndef FERRY_RUNTIME_EVENT_WRITE_H_
#define FERRY_RUNTIME_EVENT_WRITE_H_

#include "runtime/record/event_names.h"
#include "runtime/record/event_sink.h"

enum { FY__EVENT_VERSION = 1, FY__EVENT_BUFFER = 1 << 17, FY__EVENT_LINE_MOST = 1 << 13 };

typedef struct fy__event_writer {
    fy__event_ring_t *ring;
    fy__event_sink_t sink;
    uint64_t start_ns;
    _Atomic bool ending;       /* no more events are put: write the rest, and the last line */
    uint64_t nevents, dropped; /* lines for events; events dropped after the failure */
    fy__event_names_t names;
    size_t used;
    char buffer[FY__EVENT_BUFFER];
} fy__event_writer_t;

/* For pthread_create; `writer` is a fy__event_writer_t. Returns NULL when it has ended. */
void *fy__event_write(void *writer);

#endif
