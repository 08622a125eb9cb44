/* Result tables; see sheet.h. Rows grow by doubling; the command ends with exit status 4 if memory
 * for a table runs out. */
#include "tools/cli/sheet.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/cli/tool.h"

typedef enum cell_kind { CELL_TEXT, CELL_INT, CELL_REAL } cell_kind_t;
typedef struct cell {
    cell_kind_t kind;
    int64_t integer;
    double real;
    char *text; /* owned; NULL is "nothing" */
} cell_t;

struct sheet {
    const column_t *columns;
    size_t ncolumns, count; /* count: cells */
    cell_t *cells;
};

sheet_t *sheet_create(const column_t *columns, size_t count)
{
    sheet_t *sheet = tool_alloc(sizeof *sheet);
    *sheet = (sheet_t){ columns, count, 0, NULL };
    return sheet;
}

void sheet_destroy(sheet_t *sheet)
{
    if (!sheet) return;
    for (size_t i = 0; i < sheet->count; i++) free(sheet->cells[i].text);
    free(sheet->cells);
    free(sheet);
}

static void add(sheet_t *sheet, cell_t cell)
{
    sheet->cells = tool_grow(sheet->cells, sheet->count, sizeof *sheet->cells);
    sheet->cells[sheet->count++] = cell;
}

void sheet_text(sheet_t *sheet, const char *text)
{
    add(sheet, (cell_t){ CELL_TEXT, 0, 0, text ? tool_copy_text(text) : NULL });
}

void sheet_int(sheet_t *sheet, int64_t value) { add(sheet, (cell_t){ CELL_INT, value, 0, NULL }); }
void sheet_real(sheet_t *sheet, double value) { add(sheet, (cell_t){ CELL_REAL, 0, value, NULL }); }

static int format_cell(const cell_t *cell, int decimals, char *text, size_t room)
{
    if (cell->kind == CELL_INT) return snprintf(text, room, "%" PRId64, cell->integer);
    if (cell->kind == CELL_REAL && isfinite(cell->real)) {
        double size = fabs(cell->real);
        int tiny = size != 0 && size < 0.5 * pow(10, -decimals);
        return snprintf(text, room, tiny ? "%.*e" : "%.*f", tiny ? 1 : decimals, cell->real);
    }
    return snprintf(text, room, "%s", cell->kind == CELL_TEXT && cell->text ? cell->text : "-");
}

/* Texts stand left, figures right; as the column's first row goes, so goes the column. */
static void print_cell(FILE *file, int width, bool left, bool last, const char *text)
{
    if (left && last)
        fprintf(file, "  %s", text);
    else
        fprintf(file, "  %*s", left ? -width : width, text);
}

void sheet_print(const sheet_t *sheet, FILE *file)
{
    char text[512];
    size_t last = 0;
    if (!file || !sheet->ncolumns) return;
    int *widths = tool_alloc((sheet->ncolumns + 1) * sizeof *widths);
    for (size_t c = 0; c < sheet->ncolumns; c++) {
        if (!sheet->columns[c].heading) continue;
        widths[c] = (int)strlen(sheet->columns[c].heading);
        last = c;
    }
    for (size_t i = 0; i < sheet->count; i++) {
        size_t c = i % sheet->ncolumns;
        int n = format_cell(&sheet->cells[i], sheet->columns[c].decimals, text, sizeof text);
        if (n > widths[c]) widths[c] = n;
    }
    for (size_t c = 0; c < sheet->ncolumns; c++) {
        bool left = sheet->count > c && sheet->cells[c].kind == CELL_TEXT;
        if (sheet->columns[c].heading)
            print_cell(file, widths[c], left, c == last, sheet->columns[c].heading);
    }
    fputc('\n', file);
    for (size_t i = 0; i < sheet->count; i++) {
        size_t c = i % sheet->ncolumns;
        format_cell(&sheet->cells[i], sheet->columns[c].decimals, text, sizeof text);
        if (sheet->columns[c].heading)
            print_cell(file, widths[c], sheet->cells[c].kind == CELL_TEXT, c == last, text);
        if (c + 1 == sheet->ncolumns) fputc('\n', file);
    }
    free(widths);
}

void sheet_json(const sheet_t *sheet, json_t *json, const char *key)
{
    json_begin_array(json, key);
    for (size_t i = 0; i < sheet->count; i++) {
        size_t c = i % sheet->ncolumns;
        const cell_t *cell = &sheet->cells[i];
        const char *name = sheet->columns[c].key;
        if (c == 0) json_begin_object(json, NULL);
        if (cell->kind == CELL_TEXT)
            json_text(json, name, cell->text);
        else if (cell->kind == CELL_INT)
            json_int(json, name, cell->integer);
        else
            json_real(json, name, cell->real);
        if (c + 1 == sheet->ncolumns) json_end(json);
    }
    json_end(json);
}

static void write_csv_text(FILE *file, const char *text)
{
    if (!strpbrk(text, ",\"\r\n")) {
        fputs(text, file);
        return;
    }
    fputc('"', file);
    for (; *text; text++) fprintf(file, *text == '"' ? "\"\"" : "%c", *text);
    fputc('"', file);
}

void sheet_print_csv(const sheet_t *sheet, FILE *file)
{
    for (size_t c = 0; c < sheet->ncolumns; c++)
        fprintf(file, "%s%s", c ? "," : "", sheet->columns[c].key);
    fputs("\r\n", file);
    for (size_t i = 0; sheet->ncolumns && i < sheet->count; i++) {
        const cell_t *cell = &sheet->cells[i];
        if (i % sheet->ncolumns) fputc(',', file);
        if (cell->kind == CELL_INT) fprintf(file, "%" PRId64, cell->integer);
        if (cell->kind == CELL_REAL && isfinite(cell->real)) fprintf(file, "%.9g", cell->real);
        if (cell->kind == CELL_TEXT && cell->text) write_csv_text(file, cell->text);
        if (i % sheet->ncolumns + 1 == sheet->ncolumns) fputs("\r\n", file);
    }
}

fy_status_t sheet_csv(const sheet_t *sheet, const char *path)
{
    FILE *file = fopen(path, "we");
    if (!file) return TOOL_FAIL(IO, "cannot create %s: %s", path, strerror(errno));
    sheet_print_csv(sheet, file);
    int failed = ferror(file), error = errno;
    if (fclose(file) != 0 && !failed) failed = 1, error = errno;
    if (failed) return TOOL_FAIL(IO, "cannot write %s: %s", path, strerror(error));
    return FY_STATUS_OK;
}
