/* The timeline of a plan; see plan_timeline.h. Not here: the plan (cmd_plan.c). */
#include "tools/cli/plan_timeline.h"

#include <stdlib.h>

enum { WIDTH = 72, HEIGHT = 8 };

void timeline_add(void *user, const fy_plan_point_t *point)
{
    timeline_t *timeline = user;
    timeline->points = tool_grow(timeline->points, timeline->count, sizeof *timeline->points);
    timeline->scopes = tool_grow(timeline->scopes, timeline->count, sizeof *timeline->scopes);
    snprintf(timeline->scopes[timeline->count], sizeof *timeline->scopes, "%s", point->scope);
    timeline->points[timeline->count++] = *point;
}

void timeline_free(timeline_t *timeline)
{
    free(timeline->points);
    free(timeline->scopes);
}

void timeline_print(const timeline_t *timeline, FILE *out)
{
    uint64_t highest[WIDTH] = { 0 }, peak = 0;
    const size_t width = timeline->count < WIDTH ? timeline->count : WIDTH;
    for (size_t i = 0; i < timeline->count; i++) {
        uint64_t *column = &highest[i * width / timeline->count];
        if (timeline->points[i].live > *column) *column = timeline->points[i].live;
        if (*column > peak) peak = *column;
    }
    fprintf(out, "live bytes, block by block (%zu were allocated or freed)\n", timeline->count);
    for (int row = HEIGHT; row > 0 && peak; row--) {
        fputs("  |", out);
        for (size_t i = 0; i < width; i++)
            fputc((double)highest[i] > (row - 0.5) / HEIGHT * (double)peak ? '#' : ' ', out);
        fputc('\n', out);
    }
    fputs("  +", out);
    for (size_t i = 0; i < width; i++) fputc('-', out);
    fputc('\n', out);
}

static sheet_t *make_sheet(const timeline_t *timeline)
{
    static const column_t columns[] = {
        { "model_ns", "model ns", 0 },
        { "live_bytes", "live", 0 },
        { "reserved_bytes", "reserved", 0 },
#define X(NAME, text) { #text "_bytes", #text, 0 },
        FY_CATEGORY_LIST(X)
#undef X
            { "scope", "scope", 0 },
    };
    sheet_t *sheet = sheet_create(columns, sizeof columns / sizeof *columns);
    for (size_t i = 0; i < timeline->count; i++) {
        const fy_plan_point_t *point = &timeline->points[i];
        sheet_int(sheet, (int64_t)point->model_ns);
        sheet_int(sheet, (int64_t)point->live);
        sheet_int(sheet, (int64_t)point->reserved);
        for (int c = 0; c < FY_CATEGORY_COUNT; c++)
            sheet_int(sheet, (int64_t)point->by_category[c]);
        sheet_text(sheet, timeline->scopes[i]);
    }
    return sheet;
}

fy_status_t timeline_write(const timeline_t *timeline, session_t *session)
{
    if (!session->common->csv && !session->common->plot) return FY_STATUS_OK;
    const size_t n = timeline->count;
    double *values = tool_alloc((2 * n + 1) * (FY_CATEGORY_COUNT + 2) * sizeof *values),
           *next = values;
    series_t series[FY_CATEGORY_COUNT + 1];
    size_t nseries = 0;
    double *us = next; /* a step's height holds until the next: two points each */
    next += 2 * n;
    for (size_t i = 0; i < 2 * n; i++)
        us[i] = (double)timeline->points[(i + 1) / 2 < n ? (i + 1) / 2 : n - 1].model_ns / 1e3;
    for (int c = -1; c < FY_CATEGORY_COUNT; c++) {
        bool any = false;
        for (size_t i = 0; i < 2 * n; i++) {
            const fy_plan_point_t *point = &timeline->points[i / 2];
            next[i] = (double)(c < 0 ? point->live : point->by_category[c]) / (1 << 20);
            any |= next[i] > 0;
        }
        if (!any) continue;
        series[nseries++] =
            (series_t){ c < 0 ? "all" : fy_category_name((fy_category_t)c), 2 * n, us, next };
        next += 2 * n;
    }
    const plot_t plot = { .title = "Memory of a step, planned",
                          .x_label = "microseconds, model clock",
                          .y_label = "live MiB",
                          .nseries = nseries,
                          .series = series };
    sheet_t *sheet = make_sheet(timeline);
    fy_status_t status = session_files(session, sheet, &plot);
    sheet_destroy(sheet);
    free(values);
    return status;
}
