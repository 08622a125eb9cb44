/* Reads an event file and prints what the run does not need: `ferry advise`, `ferry run --advise`.
 * Not here: finding it (advice.h), printing it (show.h). Next: cmd_advise.c. */
#ifndef FERRY_TOOLS_ADVISE_H_
#define FERRY_TOOLS_ADVISE_H_

#include <stdbool.h>

typedef struct advise_options {
    const char *file;
    const char *name; /* of the run, in the output */
    const char *rule; /* NULL: all */
    bool json, all, strict, prove;
} advise_options_t;

/* Returns an exit status; the reason of a failure is on standard error. */
int advise_run(const advise_options_t *options);

#endif
