/* The lines of an event file to which later lines refer by a number: call sites and signatures.
 * Not here: lines (event_file.h). */
#ifndef FERRY_TOOLS_EVENT_NAMES_H_
#define FERRY_TOOLS_EVENT_NAMES_H_

#include "tools/cli/event_file.h"

enum { EVENT_NAMES = 1 << 16 };

typedef struct event_names {
    char **site;                   /* by id; NULL: none has it */
    event_signature_t **signature; /* by id */
} event_names_t;

/* Keeps a `site` or `signature` line; gives any other event the texts of its numbers: "site" gets
 * the text of the call site, and the keys of its signature become keys of the event. */
void event_names_resolve(event_names_t *names, event_t *event);
void event_names_free(event_names_t *names);

#endif
