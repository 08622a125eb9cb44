/* Reads an event file and prints what the run does not need: `ferry advise`, `ferry run --advise`.
 * Not here: finding it (advice.h). Next: cmd_advise.c. */
#ifndef FERRY_TOOLS_ADVISE_H_
#define FERRY_TOOLS_ADVISE_H_

#include "tools/advise/advice.h"
#include "tools/cli/json.h"

typedef struct advise_options {
    const char *file;
    const char *name; /* of the run, in the output */
    const char *rule; /* NULL: all */
    bool json, all, strict, prove;
} advise_options_t;

/* Returns an exit status; the reason of a failure is on standard error. */
int advise_run(const advise_options_t *options);

/* ---- show.c: text for one screen, or JSON ---- */

/* `most` findings in full, the others as a line each. */
void show_text(const advice_t *advice, const char *file, size_t most);
void show_json(const advice_t *advice, const char *file);
/* The list "findings" of show_json, into an open object. */
void show_findings(json_t *json, const advice_t *advice);
/* The rules, a line each, for --help. */
void show_rules(void);

#endif
