/* Sums of an event file as tables, for the commands that show them: each is made once and
 * shown in several forms (sheet.h). Not here: adding up (event_totals.h). Next: event_sheets.c. */
#ifndef FERRY_TOOLS_EVENT_SHEETS_H_
#define FERRY_TOOLS_EVENT_SHEETS_H_

#include "tools/cli/event_totals.h"
#include "tools/cli/sheet.h"

/* Scope paths that are `under` or inside it ("": all), in the order of event_totals_paths. The
 * caller destroys each sheet. */
sheet_t *event_scope_sheet(event_totals_t *totals, const char *under);
/* The ways of transfers (fy_path_t). */
sheet_t *event_path_sheet(const fy_ledger_totals_t *all);
/* The first `most` call sites, in the order of event_totals_sort. */
sheet_t *event_site_sheet(const event_totals_t *totals, size_t most);
sheet_t *event_pool_sheet(const event_totals_t *totals);

#endif
