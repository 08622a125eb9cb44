/* The end of the event file: a file descriptor, with gzip in front of it if the file's name ends in
 * ".gz". Not here: the lines (event_write.c). */
#ifndef FERRY_RUNTIME_EVENT_SINK_H_
#define FERRY_RUNTIME_EVENT_SINK_H_

#include <stdbool.h>
#include <stddef.h>

typedef struct fy__event_sink {
    int fd;
    int failed; /* errno of the first write that failed; then nothing more is written */
    struct fy__event_gzip *gzip; /* NULL: not compressed */
} fy__event_sink_t;

/* Whether a file of this name is compressed. */
bool fy__event_sink_is_packed(const char *path);
/* Takes over `fd`. false: no memory; the descriptor is still the caller's. */
bool fy__event_sink_open(fy__event_sink_t *sink, int fd, bool is_packed);
/* Writes bytes; those of a compressed file may stay in the sink until `ends`, which is set once. */
void fy__event_sink_put(fy__event_sink_t *sink, const char *bytes, size_t nbytes, bool ends);
/* Closes the descriptor; the result is sink->failed, or the errno of the close. */
int fy__event_sink_close(fy__event_sink_t *sink);

#endif
