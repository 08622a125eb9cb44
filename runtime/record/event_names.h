/* Lines that later lines refer to by a number: call sites, signatures and names of tensors. Each is
 * written once in a file, before the first line that needs it. */
#ifndef FERRY_RUNTIME_EVENT_NAMES_H_
#define FERRY_RUNTIME_EVENT_NAMES_H_

#include "runtime/record/event_ring.h"
#include "runtime/record/text.h"

struct fy__event_writer;

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

/* The site of the event's caller; writes its line the first time. NULL: none, or too many sites. */
const fy__event_site_t *fy__event_site(struct fy__event_writer *writer, const fy__event_t *event);
/* Writes the line of an op's signature the first time, if it has one. */
void fy__event_put_signature(struct fy__event_writer *writer, const fy__event_t *event);
/* Writes the line of a name the first time; number 0: no name. */
void fy__event_put_name(struct fy__event_writer *writer, const fy__event_t *event, uint16_t number);
/* Adds ",\"attrs\":\"axis=1 ...\"": the attributes that differ from their fallbacks; nothing if
 * all are equal. */
void fy__event_put_attrs(struct fy__event_writer *writer, const fy_op_info_t *info,
                         const unsigned char *attrs);

#endif
