/* Prints advice as text for one screen, or as JSON. Not here: the findings (advice.h). */
#ifndef FERRY_TOOLS_ADVISE_SHOW_H_
#define FERRY_TOOLS_ADVISE_SHOW_H_

#include "tools/advise/advice.h"
#include "tools/cli/json.h"

/* `most` findings in full, the others as a line each. */
void show_text(const advice_t *advice, const char *file, size_t most);
void show_json(const advice_t *advice, const char *file);
/* The list "findings" of show_json, into an open object. */
void show_findings(json_t *json, const advice_t *advice);
/* The rules, a line each, for --help. */
void show_rules(void);

#endif
