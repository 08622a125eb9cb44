/* Drawing a snapshot as SVG: functions shared by the page (snapshot_svg.c) and its maps
 * (snapshot_map.c). Needs no more than snapshot.h. */
#ifndef FERRY_ALLOC_SNAPSHOT_DRAW_H_
#define FERRY_ALLOC_SNAPSHOT_DRAW_H_

#include "alloc/report/snapshot.h"

/* Pixels. */
enum { FY__DRAW_WIDTH = 1200, FY__DRAW_MARGIN = 16, FY__DRAW_TEXT = 16 };

/* ---- texts ---- */

/* Also for FY__SNAPSHOT_NO_CATEGORY. */
const char *fy__draw_category(int category);
const char *fy__draw_state(int state);
/* Any text, escaped for XML. */
void fy__draw_xml(FILE *file, const char *text);
/* "1.5 MiB"; whole numbers without a fraction. fy__draw_named writes `before` first. */
void fy__draw_size(FILE *file, uint64_t nbytes);
void fy__draw_named(FILE *file, const char *before, uint64_t nbytes);
/* Truncates a long path at the front: its end is more specific. */
void fy__draw_path(FILE *file, const char *path, size_t most);
/* Begins a text element. */
void fy__draw_text(FILE *file, double x, double y, const char *class);

/* ---- the map of a pool ---- */

typedef struct fy__map {
    uint64_t line_nbytes; /* bytes of a whole line */
    uint64_t lines;
    uint64_t thin; /* blocks that are drawn together with adjacent ones */
} fy__map_t;
fy__map_t fy__map_plan(const fy__snapshot_t *snapshot, const fy__snapshot_pool_t *pool);
double fy__map_height(const fy__map_t *map);
void fy__map_draw(FILE *file, const fy__snapshot_t *snapshot, const fy__snapshot_pool_t *pool,
                  const fy__map_t *map, double y);

#endif
