/* Writes the ledger to a file: as text, JSON or CSV. One walk over the scope paths, one line for
 * each. Not here: the sums (ledger.c), the events behind them (runtime/record/event_write.c). */
#include <ferry/ledger.h>

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/c_locale.h"
#include "runtime/base/fail.h"
#include "runtime/base/json.h"

typedef struct writing {
    FILE *file;
    int width; /* of the longest path; TEXT */
    uint64_t rows;
} writing_t;

enum { DIRECTIONS = 4 };
static const char *const directions[DIRECTIONS] = { "upload", "download", "peer", "collective" };

static const fy_traffic_t *traffic_of(const fy_ledger_totals_t *totals, int direction)
{
    const fy_traffic_t *const traffic[DIRECTIONS] = { &totals->upload, &totals->download,
                                                      &totals->peer, &totals->collective };
    return traffic[direction];
}

/* ---- text ---- */

static const char *shown(const char *path) { return *path ? path : "everything"; }

static void measure(void *user, const char *path, const fy_ledger_totals_t *totals)
{
    writing_t *writing = user;
    const int length = (int)strlen(shown(path));
    (void)totals;
    if (length > writing->width) writing->width = length;
}

static void text_head(const writing_t *writing)
{
    fprintf(writing->file, "%-*s %12s", writing->width, "scope", "requests");
    for (int i = 0; i < DIRECTIONS; i++)
        fprintf(writing->file, " %10ss %14s %14s", directions[i], "bytes", "wire bytes");
    fprintf(writing->file, " %10s %14s %8s %10s\n", "syncs", "sync ns", "allocs", "throttles");
}

static void text_row(void *user, const char *path, const fy_ledger_totals_t *totals)
{
    const writing_t *writing = user;
    fprintf(writing->file, "%-*s %12" PRIu64, writing->width, shown(path), totals->requests);
    for (int i = 0; i < DIRECTIONS; i++) {
        const fy_traffic_t *t = traffic_of(totals, i);
        fprintf(writing->file, " %11" PRIu64 " %14" PRIu64 " %14" PRIu64, t->count, t->nbytes,
                t->wire_nbytes);
    }
    fprintf(writing->file, " %10" PRIu64 " %14" PRIu64 " %8" PRIu64 " %10" PRIu64 "\n",
            totals->syncs, totals->sync_ns, totals->device_allocs, totals->throttles);
}

/* ---- JSON ---- */

static void json_traffic(FILE *file, const char *key, const fy_traffic_t *t)
{
    fprintf(file,
            ", \"%s\": {\"count\": %" PRIu64 ", \"bytes\": %" PRIu64 ", \"wire_bytes\": %" PRIu64
            ", \"copies\": %" PRIu64 ", \"host_blocked_ns\": %" PRIu64 ", \"by_path\": {",
            key, t->count, t->nbytes, t->wire_nbytes, t->copies, t->host_blocked_ns);
    for (int i = 0; i < FY_PATH_COUNT; i++)
        fprintf(file, "%s\"%s\": %" PRIu64, i ? ", " : "", fy_path_name((fy_path_t)i),
                t->by_path[i]);
    fputs("}}", file);
}

static void json_row(void *user, const char *path, const fy_ledger_totals_t *totals)
{
    writing_t *writing = user;
    char text[3200];
    const int length = (int)fy__json_quote(path, text, sizeof text);
    fprintf(writing->file, "%s\n  {\"scope\": %.*s, \"requests\": %" PRIu64,
            writing->rows++ ? "," : "", length, text, totals->requests);
    for (int i = 0; i < DIRECTIONS; i++)
        json_traffic(writing->file, directions[i], traffic_of(totals, i));
    fprintf(writing->file,
            ", \"syncs\": %" PRIu64 ", \"sync_ns\": %" PRIu64 ", \"device_allocs\": %" PRIu64
            ", \"throttles\": %" PRIu64 ", \"throttle_ns\": %" PRIu64 "}",
            totals->syncs, totals->sync_ns, totals->device_allocs, totals->throttles,
            totals->throttle_ns);
}

/* ---- CSV (RFC 4180) ---- */

static void csv_head(const writing_t *writing)
{
    fputs("scope,requests", writing->file);
    for (int i = 0; i < DIRECTIONS; i++) {
        fprintf(writing->file, ",%s_count,%s_bytes,%s_wire_bytes,%s_copies,%s_host_blocked_ns",
                directions[i], directions[i], directions[i], directions[i], directions[i]);
        for (int k = 0; k < FY_PATH_COUNT; k++)
            fprintf(writing->file, ",%s_%s_count", directions[i], fy_path_name((fy_path_t)k));
    }
    fputs(",syncs,sync_ns,device_allocs,throttles,throttle_ns\r\n", writing->file);
}

static void csv_text(FILE *file, const char *text)
{
    const bool quoted = strpbrk(text, ",\"\r\n") != NULL;
    if (quoted) fputc('"', file);
    for (; *text; text++) {
        if (*text == '"') fputc('"', file);
        fputc(*text, file);
    }
    if (quoted) fputc('"', file);
}

static void csv_row(void *user, const char *path, const fy_ledger_totals_t *totals)
{
    const writing_t *writing = user;
    csv_text(writing->file, path);
    fprintf(writing->file, ",%" PRIu64, totals->requests);
    for (int i = 0; i < DIRECTIONS; i++) {
        const fy_traffic_t *t = traffic_of(totals, i);
        fprintf(writing->file, ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64,
                t->count, t->nbytes, t->wire_nbytes, t->copies, t->host_blocked_ns);
        for (int k = 0; k < FY_PATH_COUNT; k++) fprintf(writing->file, ",%" PRIu64, t->by_path[k]);
    }
    fprintf(writing->file, ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 "\r\n",
            totals->syncs, totals->sync_ns, totals->device_allocs, totals->throttles,
            totals->throttle_ns);
}

fy_status_t fy_ledger_write(const char *path, fy_ledger_format_t format)
{
    writing_t writing = { NULL, 5, 0 };
    if (!path || !*path)
        return FY_FAIL(INVALID_ARGUMENT, "ledger_write: path is %s", path ? "empty" : "NULL");
    if ((unsigned)format > FY_LEDGER_CSV)
        return FY_FAIL(INVALID_ARGUMENT,
                       "ledger_write: format %d is none of FY_LEDGER_TEXT, _JSON, _CSV",
                       (int)format);
    writing.file = fopen(path, "we");
    if (!writing.file)
        return FY_FAIL(IO, "ledger_write: cannot write %.300s: %s", path, fy__strerror(errno));
    if (format == FY_LEDGER_TEXT) {
        fy_ledger_walk(measure, &writing);
        text_head(&writing);
        fy_ledger_walk(text_row, &writing);
    } else if (format == FY_LEDGER_JSON) {
        fprintf(writing.file, "{\"ferry\": \"%s\", \"scopes\": [", FERRY_VERSION);
        fy_ledger_walk(json_row, &writing);
        fputs("\n]}\n", writing.file);
    } else {
        csv_head(&writing);
        fy_ledger_walk(csv_row, &writing);
    }
    errno = 0;
    bool failed = ferror(writing.file) != 0;
    int error = errno;
    if (fclose(writing.file) != 0) {
        failed = true;
        error = errno;
    }
    if (failed)
        return FY_FAIL(IO, "ledger_write: %.300s is not whole: %s", path,
                       error ? fy__strerror(error) : "a write failed");
    return FY_STATUS_OK;
}
