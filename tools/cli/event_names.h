/* The lines of an event file to which later lines refer by a number: call sites, signatures and
 * names of tensors. Not here: lines (event_file.h). */
#ifndef FERRY_TOOLS_EVENT_NAMES_H_
#define FERRY_TOOLS_EVENT_NAMES_H_

#include "tools/cli/event_file.h"

enum { EVENT_NAMES = 1 << 16, EVENT_NAMES_TEXT = 512 };

typedef struct event_names {
    char **site;                   /* by id; NULL: none has it */
    char **name;                   /* by id */
    event_signature_t **signature; /* by id */
    char tensors[EVENT_NAMES_TEXT];
} event_names_t;

/* Keeps a `site`, `name` or `signature` line; gives any other event the texts of its numbers:
 * "site" and "name" get their text, "names" the names as "x, w1, -" (-: a tensor without a name;
 * valid until the next event), and the keys of its signature become keys of the event. */
void event_names_resolve(event_names_t *names, event_t *event);
void event_names_free(event_names_t *names);

#endif
