/* The time of each scope path on the host's clock, with its shares.
 * Not here: which path is the step of the run (tools/program/program.h), traffic
 * (tools/cli/event_totals.h). Next: scope_times.c. */
#ifndef FERRY_TOOLS_SCOPE_TIMES_H_
#define FERRY_TOOLS_SCOPE_TIMES_H_

#include <stdbool.h>

#include "tools/report/shares.h"

typedef struct scope_time {
    uint64_t count, total_ns, first_ns, last_ns; /* first begin, last end */
    uint64_t sums[SHARES];
} scope_time_t;

typedef struct scope_times {
    scope_time_t *by_text; /* by the number of the path's text */
    size_t ntexts;
    bool has_step;        /* false: the run has no steps */
    uint32_t step;        /* its path, a text */
    uint64_t step_end_ns; /* of the last step, with what its requests take on devices */
} scope_times_t;

/* step_path: of the steps; "": there are none. */
void scope_times_find(const slices_t *slices, const shares_t *shares, const char *step_path,
                      scope_times_t *out_times);
void scope_times_free(scope_times_t *times);

#endif
