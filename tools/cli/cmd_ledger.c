/* `ferry ledger FILE`: what a recorded run moved, from its event file: by scope path, by the way
 * transfers went, by call site, by pool.
 * Not here: adding up (event_totals.h). */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tools/cli/event_totals.h"
#include "tools/cli/tool.h"

enum { TEXT, JSON, CSV, SITES_SHOWN = 20 };

/* ---- --events: one event in one line: when, thread, scope, kind, then the other keys ---- */

/* Keys that are printed before the others. */
static bool is_in_front(const char *key)
{
    static const char *const front[] = { "ev", "t_ns", "thread", "scope", "op", "direction" };
    for (size_t i = 0; i < sizeof front / sizeof *front; i++)
        if (strcmp(key, front[i]) == 0) return true;
    return false;
}

static void print_event(FILE *file, const event_t *event)
{
    const char *kind = event_text(event, "ev"), *op = event_text(event, "op"),
               *direction = event_text(event, "direction");
    const char *scope = event_text(event, "scope");
    const uint64_t t_ns = event_whole(event, "t_ns");
    fprintf(file, "%8" PRIu64 ".%03" PRIu64 " us  thread %-3" PRIu64 " %-24s  ", t_ns / 1000,
            t_ns % 1000, event_whole(event, "thread"), *scope ? scope : "-");
    fprintf(file, "%s%s%s%s%s", kind, *op ? " " : "", op, *direction ? " " : "", direction);
    for (size_t i = 0; i < event->count; i++) {
        const event_field_t *field = &event->field[i];
        if (is_in_front(field->key)) continue;
        if (field->text)
            fprintf(file, "  %s=%s", field->key, field->text);
        else if (field->number < 0)
            fprintf(file, "  %s=%.0f", field->key, field->number);
        else
            fprintf(file, "  %s=%" PRIu64, field->key, field->whole);
    }
    fputc('\n', file);
}

/* ---- tables ---- */

static const column_t scope_columns[] = {
    { "scope", "scope", 0 },
    { "requests", "requests", 0 },
    { "uploads", "uploads", 0 },
    { "upload_bytes", "bytes up", 0 },
    { "upload_wire_bytes", "wire up", 0 },
    { "upload_copies", NULL, 0 },
    { "upload_blocked_ns", NULL, 0 },
    { "downloads", "downloads", 0 },
    { "download_bytes", "bytes down", 0 },
    { "download_wire_bytes", "wire down", 0 },
    { "download_copies", NULL, 0 },
    { "download_blocked_ns", NULL, 0 },
    { "peers", NULL, 0 },
    { "peer_bytes", "bytes peer", 0 },
    { "peer_wire_bytes", NULL, 0 },
    { "syncs", "syncs", 0 },
    { "sync_ns", "sync [ns]", 0 },
    { "device_allocs", "allocs", 0 },
    { "throttles", "throttles", 0 },
    { "throttle_ns", NULL, 0 },
};
static const column_t path_columns[] = {
    { "path", "path", 0 },
    { "uploads", "uploads", 0 },
    { "downloads", "downloads", 0 },
    { "peers", "peers", 0 },
};
static const column_t site_columns[] = {
    { "site", "call site", 0 }, { "direction", "direction", 0 },
    { "path", "path", 0 },      { "count", "count", 0 },
    { "bytes", "bytes", 0 },    { "blocked_ns", "blocked [ns]", 0 },
};
static const column_t pool_columns[] = {
    { "pool", "pool", 0 },
    { "peak_live_bytes", "peak live", 0 },
    { "peak_reserved_bytes", "peak reserved", 0 },
    { "blocks", "blocks", 0 },
    { "segments", "segments", 0 },
    { "live_bytes", "live at the end", 0 },
};
#define SHEET(columns) sheet_create((columns), sizeof(columns) / sizeof *(columns))

static void add_traffic(sheet_t *sheet, const fy_traffic_t *traffic)
{
    sheet_int(sheet, (int64_t)traffic->count);
    sheet_int(sheet, (int64_t)traffic->nbytes);
    sheet_int(sheet, (int64_t)traffic->wire_nbytes);
    sheet_int(sheet, (int64_t)traffic->copies);
    sheet_int(sheet, (int64_t)traffic->host_blocked_ns);
}

static sheet_t *scope_sheet(event_totals_t *totals, const char *under)
{
    sheet_t *sheet = SHEET(scope_columns);
    size_t count;
    char **paths = event_totals_paths(totals, &count);
    for (size_t i = 0; i < count; i++) {
        const fy_ledger_totals_t t = event_totals_of(totals, paths[i]);
        if (event_is_inside(paths[i], under)) {
            sheet_text(sheet, *paths[i] ? paths[i] : "everything");
            sheet_int(sheet, (int64_t)t.requests);
            add_traffic(sheet, &t.upload);
            add_traffic(sheet, &t.download);
            sheet_int(sheet, (int64_t)t.peer.count);
            sheet_int(sheet, (int64_t)t.peer.nbytes);
            sheet_int(sheet, (int64_t)t.peer.wire_nbytes);
            sheet_int(sheet, (int64_t)t.syncs);
            sheet_int(sheet, (int64_t)t.sync_ns);
            sheet_int(sheet, (int64_t)t.device_allocs);
            sheet_int(sheet, (int64_t)t.throttles);
            sheet_int(sheet, (int64_t)t.throttle_ns);
        }
        free(paths[i]);
    }
    free(paths);
    return sheet;
}

static sheet_t *path_sheet(const fy_ledger_totals_t *all)
{
    sheet_t *sheet = SHEET(path_columns);
    for (int i = 0; i < FY_PATH_COUNT; i++) {
        if (!(all->upload.by_path[i] + all->download.by_path[i] + all->peer.by_path[i])) continue;
        sheet_text(sheet, fy_path_name((fy_path_t)i));
        sheet_int(sheet, (int64_t)all->upload.by_path[i]);
        sheet_int(sheet, (int64_t)all->download.by_path[i]);
        sheet_int(sheet, (int64_t)all->peer.by_path[i]);
    }
    return sheet;
}

static sheet_t *site_sheet(const event_totals_t *totals, size_t most)
{
    sheet_t *sheet = SHEET(site_columns);
    for (size_t i = 0; i < totals->nsites && i < most; i++) {
        const event_site_t *site = &totals->sites[i];
        sheet_text(sheet, site->site);
        sheet_text(sheet, site->direction);
        sheet_text(sheet, site->path);
        sheet_int(sheet, (int64_t)site->count);
        sheet_int(sheet, (int64_t)site->nbytes);
        sheet_int(sheet, (int64_t)site->blocked_ns);
    }
    return sheet;
}

static sheet_t *pool_sheet(const event_totals_t *totals)
{
    sheet_t *sheet = SHEET(pool_columns);
    for (size_t i = 0; i < totals->npools; i++) {
        const event_pool_t *pool = &totals->pools[i];
        sheet_text(sheet, pool->name);
        sheet_int(sheet, (int64_t)pool->peak_live);
        sheet_int(sheet, (int64_t)pool->peak_reserved);
        sheet_int(sheet, (int64_t)pool->blocks);
        sheet_int(sheet, (int64_t)pool->segments);
        sheet_int(sheet, (int64_t)pool->live);
    }
    return sheet;
}

/* ---- output ---- */

static void print_json(const event_totals_t *totals, const event_file_info_t *info,
                       const char *file, sheet_t *const sheets[4])
{
    static const char *const keys[] = { "scopes", "paths", "sites", "pools" };
    json_t json = { .file = stdout };
    json_begin_object(&json, NULL);
    json_text(&json, "file", file);
    json_uint(&json, "events", info->events);
    json_uint(&json, "lost", info->lost);
    json_bool(&json, "whole", info->is_whole);
    json_uint(&json, "waits", totals->waits);
    json_uint(&json, "refusals", totals->refusals);
    json_uint(&json, "faults", totals->faults);
    for (int i = 0; i < 4; i++) sheet_json(sheets[i], &json, keys[i]);
    json_end(&json);
}

static void print_text(const event_totals_t *totals, const event_file_info_t *info,
                       sheet_t *const sheets[4])
{
    for (int i = 0; i < 4; i++) {
        if (i) putchar('\n');
        sheet_print(sheets[i], stdout);
    }
    if (totals->nsites > SITES_SHOWN)
        printf("%zu call sites more, with fewer bytes: --format json has them all\n",
               totals->nsites - SITES_SHOWN);
    printf("\nevents %" PRIu64 ", lost %" PRIu64 "; waits %" PRIu64 ", refusals %" PRIu64
           ", faults %" PRIu64 "\n",
           info->events, info->lost, totals->waits, totals->refusals, totals->faults);
    if (info->lost)
        printf("What was lost is in no figure here: the ring was full. The ledger of the process "
               "itself has it all.\n");
}

static void print_totals(event_totals_t *totals, const event_file_info_t *info, const char *file,
                         const char *under, int format)
{
    const fy_ledger_totals_t all = event_totals_of(totals, under);
    event_totals_sort(totals);
    sheet_t *sheets[4] = { scope_sheet(totals, under), path_sheet(&all),
                           site_sheet(totals, format == TEXT ? SITES_SHOWN : SIZE_MAX),
                           pool_sheet(totals) };
    if (format == JSON)
        print_json(totals, info, file, sheets);
    else if (format == CSV)
        sheet_print_csv(sheets[0], stdout);
    else
        print_text(totals, info, sheets);
    for (int i = 0; i < 4; i++) sheet_destroy(sheets[i]);
}

typedef struct reading {
    const char *under;       /* a scope path, or "" */
    bool prints_events, met; /* met: something was inside */
    event_totals_t totals;
} reading_t;

/* Pools belong to no scope: their events count under any --scope. */
static void take(void *user, const event_t *event)
{
    reading_t *reading = user;
    const bool inside = event_is_inside(event_text(event, "scope"), reading->under);
    reading->met |= inside;
    if (inside && reading->prints_events) print_event(stdout, event);
    if (inside || event_has(event, "pool")) event_totals_add(&reading->totals, event);
}

int cmd_ledger(int argc, char **argv)
{
    int format = TEXT;
    bool json = false;
    reading_t reading = { .under = "" };
    const option_t options[] = {
        { "format", OPTION_CHOICE, "text|json|csv", &format,
          "tables, one JSON document, or the scopes as CSV", 0, 0 },
        { "json", OPTION_FLAG, NULL, &json, "the same as --format json", 0, 0 },
        { "scope", OPTION_TEXT, "PATH", &reading.under,
          "only this scope path, such as train/step, and what is inside it", 0, 0 },
        { "events", OPTION_FLAG, NULL, &reading.prints_events,
          "print the events themselves, a line each, instead of sums", 0, 0 },
    };
    const usage_t usage = { "ferry ledger FILE",
                            "What a run moved, from the file that --record FILE, $FERRY_RECORD or "
                            "fy_ledger_record wrote.",
                            options, sizeof options / sizeof *options,
                            "ferry train linear --device sim:0 --record run.events\n"
                            "ferry ledger run.events\n"
                            "ferry ledger run.events --events --scope linear/train/epoch\n" };
    const char *file = argc > 1 && argv[1][0] != '-' ? argv[1] : NULL;
    const parse_result_t parsed =
        options_parse(&usage, file ? argc - 1 : argc, file ? argv + 1 : argv);
    if (parsed != PARSE_OK) return parsed == PARSE_HELP ? STATUS_OK : STATUS_USAGE;
    if (!file) {
        fprintf(stderr, "ferry: which file? 'ferry ledger FILE'; --record FILE makes one\n");
        return STATUS_USAGE;
    }
    if (reading.prints_events && (json || format != TEXT)) {
        fprintf(stderr, "ferry: --events prints text; as JSON the events are the file itself, so "
                        "leave --json and --format out\n");
        return STATUS_USAGE;
    }
    event_file_info_t info;
    fy_status_t status = event_file_read(file, take, &reading, &info);
    if (status == FY_STATUS_OK && *reading.under && !reading.met)
        status = TOOL_FAIL(
            INVALID_ARGUMENT,
            "--scope: nothing in %s is inside a scope '%s'; without --scope all are listed", file,
            reading.under);
    if (status == FY_STATUS_OK && !reading.prints_events)
        print_totals(&reading.totals, &info, file, reading.under, json ? JSON : format);
    event_totals_free(&reading.totals);
    if (status == FY_STATUS_OK && !info.is_whole) {
        const char *why = info.has_end ? "does not have as many events as its last line says, but"
                                       : "has no end (the process was killed, or still runs, or "
                                         "the disk was full) after its";
        status = TOOL_FAIL(CORRUPT_DATA, "%s %s %" PRIu64 "; what is above is what is there", file,
                           why, info.events);
    }
    if (fflush(stdout) != 0 && status == FY_STATUS_OK)
        status = TOOL_FAIL(IO, "cannot write to standard output");
    if (status != FY_STATUS_OK)
        fprintf(stderr, "ferry: %s: %s\n", fy_status_name(status), fy_error_get()->text);
    return status == FY_STATUS_OK ? STATUS_OK : STATUS_FAILED;
}
