/* Tables as text: reading with errors that name the byte, and writing.
 * Two passes over the text: the first checks the shape and counts rows, so that the second cannot
 * write past the allocated memory.
 * Not here: tables in memory (table.c). Limits and rules: include/ferry/train/table.h. */
#include "table.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/c_locale.h"
#include "runtime/base/input.h"
#include "train/abi.h"

typedef struct text {
    const char *name, *line, *end; /* end: one past the last byte, where a NUL stands */
    uint64_t line_number;
    char separator;
} text_t;

static int is_blank(char c) { return c == ' ' || c == '\t'; }
static int is_number_char(char c)
{
    return (c >= '0' && c <= '9') || c == '+' || c == '-' || c == '.' || c == 'e' || c == 'E';
}

static int is_separator(const text_t *text, char c)
{
    return text->separator == ' ' ? is_blank(c) : c == text->separator;
}

static fy_status_t fail_at(const text_t *text, const char *at, const char *what)
{
    char found[24];
    size_t n = 0;
    while (at + n < text->end && n < sizeof found - 1 && at[n] != '\n' && at[n] != '\r' &&
           !is_separator(text, at[n]))
        n++;
    memcpy(found, at, n);
    found[n] = 0;
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)found[i] < ' ' || (unsigned char)found[i] >= 127) found[i] = '?';
    return FYT_FAIL(CORRUPT_DATA, "%s:%llu:%llu: %s, found '%s'", text->name,
                    (unsigned long long)text->line_number,
                    (unsigned long long)(at - text->line) + 1, what, found);
}

/* One past the line's last byte, without LF or CRLF. */
static const char *line_end(const char *line, const char *end)
{
    const char *stop = memchr(line, '\n', (size_t)(end - line));
    if (!stop) stop = end;
    return stop > line && stop[-1] == '\r' ? stop - 1 : stop;
}

/* False past the last line. */
static int next_line(text_t *text, const char **line)
{
    const char *stop = memchr(*line, '\n', (size_t)(text->end - *line));
    if (!stop || stop + 1 >= text->end) return 0;
    *line = stop + 1;
    return 1;
}

static int line_is_skipped(const char *line, const char *stop)
{
    while (line < stop && is_blank(*line)) line++;
    return line == stop || *line == '#';
}

static char guess_separator(const char *line, const char *stop)
{
    size_t n = (size_t)(stop - line);
    return memchr(line, ',', n) ? ',' : memchr(line, ';', n) ? ';' : ' ';
}

/* Reads the field at *at, which ends at a separator or at `stop`; leaves *at behind the field's
 * trailing blanks. */
static fy_status_t read_number(const text_t *text, const char **at, const char *stop,
                               double *out_value)
{
    const char *begin = *at, *scan;
    char *parsed;
    while (begin < stop && !is_separator(text, *begin) && is_blank(*begin)) begin++;
    for (scan = begin; scan < stop && is_number_char(*scan); scan++) {}
    const char *rest = scan;
    while (rest < stop && !is_separator(text, *rest) && is_blank(*rest)) rest++;
    int ends = rest == stop || is_separator(text, *rest);
    if (scan == begin && ends)
        return fail_at(text, begin, "a number was expected where a field is empty");
    if (!ends) return fail_at(text, begin, "a decimal number was expected");
    double value = fy__strtod(begin, &parsed);
    if (parsed != scan) return fail_at(text, begin, "a decimal number was expected");
    if (!isfinite(value)) return fail_at(text, begin, "the number is too large for f64");
    *out_value = value;
    *at = rest;
    return FY_STATUS_OK;
}

/* Reads one line. values NULL: only counts. More fields than `expected` (0: any number) are an
 * error, fewer too. */
static fy_status_t read_line(const text_t *text, const char *stop, uint64_t expected,
                             double *values, uint64_t *out_fields)
{
    const char *at = text->line;
    uint64_t fields = 0;
    char what[96];
    int wide = text->separator == ' ';
    for (;;) {
        double value = 0;
        while (wide && at < stop && is_blank(*at)) at++;
        if (wide && at == stop) break;
        if (expected && fields == expected) {
            snprintf(what, sizeof what, "the rows above have %llu fields, this one has more",
                     (unsigned long long)expected);
            return fail_at(text, at, what);
        }
        FY_TRY(read_number(text, &at, stop, &value));
        if (values) values[fields] = value;
        fields++;
        if (at == stop) break;
        /* the separator; a field must follow, even an empty one, which is an error */
        if (!wide) at++;
    }
    if (expected && fields < expected) {
        snprintf(what, sizeof what, "the rows above have %llu fields, this one ends after %llu",
                 (unsigned long long)expected, (unsigned long long)fields);
        return fail_at(text, stop, what);
    }
    *out_fields = fields;
    return FY_STATUS_OK;
}

/* One pass over all lines. values NULL: counts rows and fields, and checks everything. */
static fy_status_t scan_lines(text_t *text, const char *begin, const fy_table_options_t *options,
                              double *values, uint64_t *rows, uint64_t *cols)
{
    const char *line = begin;
    uint64_t row = 0;
    text->line_number = 0;
    if (begin == text->end) return FY_STATUS_OK;
    do {
        const char *stop = line_end(line, text->end);
        uint64_t fields = 0;
        text->line = line;
        text->line_number++;
        if (text->line_number <= options->header_rows || line_is_skipped(line, stop)) continue;
        if (!text->separator)
            text->separator = options->separator ? options->separator : guess_separator(line, stop);
        FY_TRY(
            read_line(text, stop, row ? *cols : 0, values ? values + row * *cols : NULL, &fields));
        *cols = fields;
        row++;
        uint64_t count;
        if (__builtin_mul_overflow(row, fields, &count) || count > options->max_values)
            return FYT_FAIL(
                CORRUPT_DATA,
                "%s:%llu: more than max_values = %llu numbers: raise the limit if that is meant",
                text->name, (unsigned long long)text->line_number,
                (unsigned long long)options->max_values);
    } while (next_line(text, &line));
    *rows = row;
    return FY_STATUS_OK;
}

static fy_status_t check_options(const fy_table_options_t *options, fy_table_options_t *out_checked)
{
    FY_TRY(FY__READ(table_options, "table", options, out_checked));
    const char s = out_checked->separator;
    if (is_number_char(s) || s == '#' || s == '\n' || s == '\r')
        return FYT_FAIL(
            INVALID_ARGUMENT,
            "table options: the separator '%c' can be part of a number, a comment or a line's end",
            s < ' ' ? '?' : s);
    return FY_STATUS_OK;
}

/* text[nbytes] must be NUL: fy__strtod stops there. */
static fy_status_t parse_terminated(const char *bytes, size_t nbytes, const char *name,
                                    const fy_table_options_t *options, fy_table_t **out_table)
{
    static const char byte_order_mark[] = "\xEF\xBB\xBF";
    const char *begin = bytes;
    if (nbytes >= 3 && memcmp(bytes, byte_order_mark, 3) == 0) begin += 3;
    text_t text = { name, begin, bytes + nbytes, 0, 0 };
    uint64_t rows = 0, cols = 0;
    fy_table_t *table = NULL;
    fy_status_t status = FY_STATUS_OK;

    if (memchr(bytes, 0, nbytes))
        return FYT_FAIL(CORRUPT_DATA, "%s: byte %zu is NUL: this is no text", name,
                        (size_t)((char *)memchr(bytes, 0, nbytes) - bytes));
    status = scan_lines(&text, begin, options, NULL, &rows, &cols);
    if (status == FY_STATUS_OK && !rows)
        status = FYT_FAIL(CORRUPT_DATA, "%s: no numbers in %zu bytes (%u header lines skipped)",
                          name, nbytes, options->header_rows);
    if (status == FY_STATUS_OK) status = fy_table_create(rows, cols, NULL, &table);
    if (status == FY_STATUS_OK)
        status = scan_lines(&text, begin, options, table->values, &rows, &cols);
    if (status != FY_STATUS_OK) {
        fy_table_destroy(table);
        return status;
    }
    *out_table = table;
    return FY_STATUS_OK;
}

fy_status_t fy_table_parse(const char *text, size_t nbytes, const char *name,
                           const fy_table_options_t *options, fy_table_t **out_table)
{
    FY_TRY(FYT_CLEAR_OUT("table_parse", out_table));
    fy_table_options_t checked;
    FY_TRY(check_options(options, &checked));
    if (!name) name = "text";
    if (!text && nbytes)
        return FYT_FAIL(INVALID_ARGUMENT, "table_parse: text is NULL, nbytes is %zu", nbytes);
    if (nbytes > checked.max_nbytes)
        return FYT_FAIL(CORRUPT_DATA, "%s: %zu bytes are more than max_nbytes = %llu", name, nbytes,
                        (unsigned long long)checked.max_nbytes);
    char *copy = malloc(nbytes + 1);
    if (!copy) return FYT_FAIL(OUT_OF_MEMORY, "table_parse: no host memory for %zu bytes", nbytes);
    if (nbytes) memcpy(copy, text, nbytes);
    copy[nbytes] = 0;
    fy_status_t status = parse_terminated(copy, nbytes, name, &checked, out_table);
    free(copy);
    return status;
}

fy_status_t fy_table_read(const char *path, const fy_table_options_t *options,
                          fy_table_t **out_table)
{
    FY_TRY(FYT_CLEAR_OUT("table_read", out_table));
    if (!path) return FYT_FAIL(INVALID_ARGUMENT, "table_read: path is NULL");
    fy_table_options_t checked;
    FY_TRY(check_options(options, &checked));

    char *bytes = NULL;
    size_t nbytes = 0;
    const size_t most = checked.max_nbytes < PTRDIFF_MAX ? (size_t)checked.max_nbytes : PTRDIFF_MAX;
    fy__input_t input;
    const int error = fy__input_text(&input, path, NULL, most, &bytes, &nbytes);
    if (error == EFBIG)
        return FYT_FAIL(CORRUPT_DATA, "%s, max_nbytes of the table's options", input.problem);
    if (error)
        return error == ENOMEM ? FYT_FAIL(OUT_OF_MEMORY, "%s", input.problem)
                               : FYT_FAIL(IO, "%s", input.problem);
    const fy_status_t status = parse_terminated(bytes, nbytes, path, &checked, out_table);
    free(bytes);
    return status;
}

fy_status_t fy_table_write(const fy_table_t *table, const char *path)
{
    if (!table || !path)
        return FYT_FAIL(INVALID_ARGUMENT, "table_write: %s is NULL", table ? "path" : "table");
    FILE *file = fopen(path, "wbe");
    if (!file) return FYT_FAIL(IO, "cannot create %s: %s", path, fy__strerror(errno));
    for (uint64_t r = 0; r < table->rows; r++)
        for (uint64_t c = 0; c < table->cols; c++)
            fy__fprintf(file, "%.9g%s", table->values[r * table->cols + c],
                        c + 1 < table->cols ? "\t" : "\r\n");
    int failed = ferror(file), error = errno;
    if (fclose(file) != 0 && !failed) failed = 1, error = errno;
    return failed ? FYT_FAIL(IO, "cannot write %s: %s", path, fy__strerror(error)) : FY_STATUS_OK;
}
