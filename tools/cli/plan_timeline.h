/* The memory of a plan over its model time: collected, drawn in characters, written as CSV and as a
 * figure. Next: plan_timeline.c. */
#ifndef FERRY_TOOLS_PLAN_TIMELINE_H_
#define FERRY_TOOLS_PLAN_TIMELINE_H_

#include "tools/cli/tool.h"

typedef struct timeline {
    fy_plan_point_t *points;
    char (*scopes)[96]; /* their paths, cut */
    size_t count;
} timeline_t;

/* For fy_plan_options_t.on_point; user is the timeline. */
void timeline_add(void *user, const fy_plan_point_t *point);
/* A small chart of the live bytes, block by block. */
void timeline_print(const timeline_t *timeline, FILE *out);
/* To --csv and --plot, if requested. */
fy_status_t timeline_write(const timeline_t *timeline, session_t *session);
void timeline_free(timeline_t *timeline);

#endif
