/* Sums over an event file: the ledger's totals by scope path, traffic by call site, memory by pool.
 * docs/internals/events.md says what adds up to what.
 * Not here: reading (event_file.h), printing (cmd_ledger.c). */
#ifndef FERRY_TOOLS_EVENT_TOTALS_H_
#define FERRY_TOOLS_EVENT_TOTALS_H_

#include <ferry/ledger.h>

#include "tools/cli/event_file.h"
#include "tools/cli/tables.h"
#include "tools/cli/sheet.h"

typedef struct event_scope {
    char *path;
    fy_ledger_totals_t own; /* without the scopes inside */
} event_scope_t;

typedef struct event_site {
    char *site, *direction, *path;
    uint64_t count, nbytes, blocked_ns;
    char tensors[64]; /* names of those that moved, "x, w1"; "": none has one */
} event_site_t;

typedef struct event_pool {
    char *name;
    uint64_t live, reserved, peak_live, peak_reserved, blocks, segments;
} event_pool_t;

typedef struct event_totals {
    event_scope_t *scopes;
    event_site_t *sites;
    event_pool_t *pools;
    size_t nscopes, nsites, npools;
    text_index_t scope_index, site_index, pool_index, sum_index;
    fy_ledger_totals_t *sums; /* by path, from the first event_totals_of on */
    size_t nsums;
    uint64_t refusals, faults, waits, launches; /* launches: of graphs */
    uint64_t rank;                              /* of the process, in its group */
    bool has_rank;
    uint64_t all; /* the sum of all figures but those of pools: no other sum exceeds it */
    /* the first key whose value cannot be added, and its line; NULL: there is none */
    const char *bad_key;
    uint64_t bad_line, bad_most; /* bad_most: the largest value; 0: `all` would exceed 2^63 - 1 */
} event_totals_t;

/* For event_file_read; `user` is an event_totals_t that began as zeros. */
void event_totals_add(void *user, const event_t *event);
/* The rank, if the event has it. */
void event_totals_rank(event_totals_t *totals, const event_t *event);
/* Fails: CORRUPT_DATA, with the line of `file` whose value cannot be added (NULL: several files
 * have been merged). */
fy_status_t event_totals_check(const event_totals_t *totals, const char *file);
/* Adds the sums of another file, of a process of the same group; its pools are named "POOL, rank
 * N", and those of equal names are added. Before the first event_totals_of of `totals`. */
void event_totals_merge(event_totals_t *totals, const event_totals_t *other, uint64_t rank);
/* Of a path, with the scopes inside it; "" is everything. All events were added before the first
 * call. */
fy_ledger_totals_t event_totals_of(event_totals_t *totals, const char *path);
/* Is `path` the path `outer` or inside it? */
bool event_is_inside(const char *path, const char *outer);
/* Every path and every path above one: sorted, parents first, numbers in numeric order. The texts
 * are the caller's to free, as is the list. */
char **event_totals_paths(const event_totals_t *totals, size_t *out_count);
/* Sites with the most bytes come first. */
void event_totals_sort(event_totals_t *totals);
void event_totals_free(event_totals_t *totals);

/* ---- event_sheets.c: the sums as tables, for the commands that show them: each is made once and
 * shown in several forms (sheet.h) ---- */

/* Scope paths that are `under` or inside it ("": all), in the order of event_totals_paths. The
 * caller destroys each sheet. */
sheet_t *event_scope_sheet(event_totals_t *totals, const char *under);
/* The ways of transfers (fy_path_t). */
sheet_t *event_path_sheet(const fy_ledger_totals_t *all);
/* The first `most` call sites, in the order of event_totals_sort. */
sheet_t *event_site_sheet(const event_totals_t *totals, size_t most);
sheet_t *event_pool_sheet(const event_totals_t *totals);

#endif
