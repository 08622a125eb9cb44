/* A table of results, filled once and shown three ways: aligned for people, as CSV (RFC 4180), as a
 * JSON array of objects.
 * Not here: figures (plot.h). Next: sheet.c. */
#ifndef FERRY_TOOLS_SHEET_H_
#define FERRY_TOOLS_SHEET_H_

#include <ferry/status.h>

#include "tools/cli/json.h"

typedef struct sheet sheet_t;

typedef struct column {
    const char *key;     /* in JSON and CSV; carries the unit */
    const char *heading; /* for people; NULL: not shown to them */
    int decimals;        /* of reals, for people */
} column_t;

/* `columns` is borrowed until the sheet is destroyed. */
sheet_t *sheet_create(const column_t *columns, size_t count);
void sheet_destroy(sheet_t *sheet);
/* Cells go from left to right, then to the next row. */
void sheet_text(sheet_t *sheet, const char *text);
void sheet_int(sheet_t *sheet, int64_t value);
/* NaN: nothing to say; empty, null or "-". */
void sheet_real(sheet_t *sheet, double value);
/* file NULL: does nothing. */
void sheet_print(const sheet_t *sheet, FILE *file);
void sheet_json(const sheet_t *sheet, json_t *json, const char *key);
/* RFC 4180, first line the keys. */
void sheet_print_csv(const sheet_t *sheet, FILE *file);
fy_status_t sheet_csv(const sheet_t *sheet, const char *path);

#endif
