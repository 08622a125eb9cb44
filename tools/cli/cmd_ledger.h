/* What the files of `ferry ledger` share. */
#ifndef FERRY_TOOLS_CMD_LEDGER_H_
#define FERRY_TOOLS_CMD_LEDGER_H_

#include <stdio.h>

#include "tools/cli/event_totals.h"

/* One event in one line, for people. */
void event_print(FILE *file, const event_t *event);

#endif
