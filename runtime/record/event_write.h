/* The thread that writes the event file: takes events from the ring and writes them as lines. Not
 * here: its start and end (event.c). */
#ifndef FERRY_RUNTIME_EVENT_WRITE_H_
#define FERRY_RUNTIME_EVENT_WRITE_H_

#include "runtime/record/event_ring.h"
#include "runtime/record/text.h"

enum { FY__EVENT_VERSION = 1, FY__EVENT_BUFFER = 1 << 17, FY__EVENT_LINE_MOST = 1 << 13 };

/* ---- event_sink.c: the end of the file: a file descriptor, with gzip in front of it if the file's
 * name ends in ".gz" ---- */

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

/* ---- event_write.c ---- */

typedef struct fy__event_site {
    const void *address; /* NULL: a free place of the table */
    uint32_t id;
    char name[212];
} fy__event_site_t;

/* At most half of the places are used; later sites have no name. */
enum { FY__EVENT_SITES = 1 << 12 };

typedef struct fy__event_names {
    uint32_t nsites;
    uint64_t signatures[FY__SIGNATURES / 64]; /* bit set: the file has that signature's line */
    uint64_t texts[FY__TEXTS / 64];           /* the same of names */
    fy__event_site_t sites[FY__EVENT_SITES];  /* by a hash of the address */
} fy__event_names_t;

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

/* ---- event_names.c: lines that later lines refer to by a number: call sites, signatures and names
 * of tensors. Each is written once in a file, before the first line that needs it. ---- */

/* The site of the event's caller; writes its line the first time. NULL: none, or too many sites. */
const fy__event_site_t *fy__event_site(fy__event_writer_t *writer, const fy__event_t *event);
/* Writes the line of an op's signature the first time, if it has one. */
void fy__event_put_signature(fy__event_writer_t *writer, const fy__event_t *event);
/* Writes the line of a name the first time; number 0: no name. */
void fy__event_put_name(fy__event_writer_t *writer, const fy__event_t *event, uint16_t number);
/* Adds ",\"attrs\":\"axis=1 ...\"": the attributes that differ from their fallbacks; nothing if
 * all are equal. */
void fy__event_put_attrs(fy__event_writer_t *writer, const fy_op_info_t *info,
                         const unsigned char *attrs);

#endif
