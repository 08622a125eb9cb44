/* `ferry ledger FILE...`: what a recorded run moved, from its event file, or from those of its
 * ranks: by scope path, by the way transfers went, by call site, by pool.
 * Not here: adding up (event_totals.h), the columns (event_sheets.c). */
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

/* ---- reading ---- */

/* One file. */
typedef struct reading {
    const char *file, *under; /* under: a scope path, or "" */
    bool prints_events, met;  /* met: something was inside */
    uint64_t rank;            /* as its calls have it, else the place among the files */
    event_totals_t totals;
    event_file_info_t info;
} reading_t;

/* Pools belong to no scope: their events count under any --scope. */
static void take(void *user, const event_t *event)
{
    reading_t *reading = user;
    const bool inside = event_is_inside(event_text(event, "scope"), reading->under);
    reading->met |= inside;
    event_totals_rank(&reading->totals, event);
    if (inside && reading->prints_events) print_event(stdout, event);
    if (inside || event_has(event, "pool")) event_totals_add(&reading->totals, event);
}

static fy_status_t check_end(const reading_t *reading)
{
    if (reading->info.is_whole) return FY_STATUS_OK;
    return TOOL_FAIL(CORRUPT_DATA, "%s %s %" PRIu64 "; what is above is what is there",
                     reading->file,
                     reading->info.has_end
                         ? "does not have as many events as its last line says, but"
                         : "has no end (the process was killed, or still runs, or the disk was "
                           "full) after its",
                     reading->info.events);
}

/* ---- output ---- */

/* A line for each file. */
static sheet_t *rank_sheet(reading_t *readings, size_t count, const char *under)
{
    static const column_t columns[] = {
        { "rank", "rank", 0 },
        { "file", "file", 0 },
        { "events", NULL, 0 },
        { "lost", "lost", 0 },
        { "requests", "requests", 0 },
        { "upload_bytes", "bytes up", 0 },
        { "download_bytes", "bytes down", 0 },
        { "collectives", "collectives", 0 },
        { "collective_bytes", "bytes", 0 },
        { "collective_wire_bytes", "sent", 0 },
        { "collective_blocked_ns", "blocked [ns]", 0 },
    };
    sheet_t *sheet = sheet_create(columns, sizeof columns / sizeof *columns);
    for (size_t i = 0; i < count; i++) {
        const fy_ledger_totals_t t = event_totals_of(&readings[i].totals, under);
        sheet_int(sheet, (int64_t)readings[i].rank);
        sheet_text(sheet, readings[i].file);
        sheet_int(sheet, (int64_t)readings[i].info.events);
        sheet_int(sheet, (int64_t)readings[i].info.lost);
        sheet_int(sheet, (int64_t)t.requests);
        sheet_int(sheet, (int64_t)t.upload.nbytes);
        sheet_int(sheet, (int64_t)t.download.nbytes);
        sheet_int(sheet, (int64_t)t.collective.count);
        sheet_int(sheet, (int64_t)t.collective.nbytes);
        sheet_int(sheet, (int64_t)t.collective.wire_nbytes);
        sheet_int(sheet, (int64_t)t.collective.host_blocked_ns);
    }
    return sheet;
}

enum { SCOPES, PATHS, SITES, POOLS, RANKS, SHEETS };

static void print_json(const event_totals_t *totals, const event_file_info_t *info,
                       const char *file, sheet_t *const sheets[SHEETS])
{
    static const char *const keys[SHEETS] = { "scopes", "paths", "sites", "pools", "ranks" };
    json_t json = { .file = stdout };
    json_begin_object(&json, NULL);
    json_text(&json, "file", file);
    json_uint(&json, "events", info->events);
    json_uint(&json, "lost", info->lost);
    json_bool(&json, "whole", info->is_whole);
    json_uint(&json, "waits", totals->waits);
    json_uint(&json, "refusals", totals->refusals);
    json_uint(&json, "faults", totals->faults);
    json_uint(&json, "graph_launches", totals->launches);
    for (int i = 0; i < SHEETS; i++)
        if (sheets[i]) sheet_json(sheets[i], &json, keys[i]);
    json_end(&json);
}

static void print_text(const event_totals_t *totals, const event_file_info_t *info,
                       sheet_t *const sheets[SHEETS])
{
    if (sheets[RANKS]) {
        sheet_print(sheets[RANKS], stdout);
        printf("\nall ranks together:\n\n");
    }
    for (int i = 0; i < RANKS; i++) {
        if (i) putchar('\n');
        sheet_print(sheets[i], stdout);
    }
    if (totals->nsites > SITES_SHOWN)
        printf("%zu call sites more, with fewer bytes: --format json has them all\n",
               totals->nsites - SITES_SHOWN);
    printf("\nevents %" PRIu64 ", lost %" PRIu64 "; waits %" PRIu64 ", refusals %" PRIu64
           ", faults %" PRIu64 "; launches of graphs %" PRIu64 "\n",
           info->events, info->lost, totals->waits, totals->refusals, totals->faults,
           totals->launches);
    if (info->lost)
        printf("What was lost is in no figure here: the ring was full. The ledger of the process "
               "itself has it all.\n");
}

static void print_totals(event_totals_t *totals, const event_file_info_t *info, const char *file,
                         const char *under, int format, sheet_t *ranks)
{
    const fy_ledger_totals_t all = event_totals_of(totals, under);
    event_totals_sort(totals);
    sheet_t *sheets[SHEETS] = { event_scope_sheet(totals, under), event_path_sheet(&all),
                                event_site_sheet(totals, format == TEXT ? SITES_SHOWN : SIZE_MAX),
                                event_pool_sheet(totals), ranks };
    if (format == JSON)
        print_json(totals, info, file, sheets);
    else if (format == CSV)
        sheet_print_csv(ranks ? ranks : sheets[SCOPES], stdout);
    else
        print_text(totals, info, sheets);
    for (int i = 0; i < SHEETS; i++)
        if (sheets[i]) sheet_destroy(sheets[i]);
}

static fy_status_t print_ranks(reading_t *readings, size_t count, const char *under, int format)
{
    event_totals_t all = { 0 };
    event_file_info_t info = { .is_whole = true };
    for (size_t i = 0; i < count; i++) {
        event_totals_merge(&all, &readings[i].totals, readings[i].rank);
        info.events += readings[i].info.events;
        info.lost += readings[i].info.lost;
        info.is_whole &= readings[i].info.is_whole;
    }
    const fy_status_t status = event_totals_check(&all, NULL);
    if (status == FY_STATUS_OK)
        print_totals(&all, &info, NULL, under, format, rank_sheet(readings, count, under));
    event_totals_free(&all);
    return status;
}

/* Reads all files before anything is printed. */
static fy_status_t show(reading_t *readings, size_t count, int format)
{
    const char *under = readings[0].under;
    uint64_t lost = 0;
    bool met = false;
    for (size_t i = 0; i < count; i++) {
        FY_TRY(event_file_read(readings[i].file, take, &readings[i], &readings[i].info));
        met |= readings[i].met;
        if (readings[i].prints_events) continue; /* there are no sums */
        FY_TRY(event_totals_check(&readings[i].totals, readings[i].file));
        if (readings[i].totals.has_rank) readings[i].rank = readings[i].totals.rank;
        if (readings[i].info.lost > (uint64_t)INT64_MAX - lost)
            return TOOL_FAIL(CORRUPT_DATA, "%s: with these the lost events exceed 2^63 - 1",
                             readings[i].file);
        lost += readings[i].info.lost;
    }
    if (*under && !met)
        return TOOL_FAIL(
            INVALID_ARGUMENT,
            "--scope: nothing in %s is inside a scope '%s'; without --scope all are listed",
            count == 1 ? readings[0].file : "these files", under);
    if (count > 1)
        FY_TRY(print_ranks(readings, count, under, format));
    else if (!readings[0].prints_events)
        print_totals(&readings[0].totals, &readings[0].info, readings[0].file, under, format, NULL);
    for (size_t i = 0; i < count; i++) FY_TRY(check_end(&readings[i]));
    return FY_STATUS_OK;
}

int cmd_ledger(int argc, char **argv)
{
    int format = TEXT;
    bool json = false, prints_events = false;
    const char *under = "";
    const option_t options[] = {
        { "format", OPTION_CHOICE, "text|json|csv", &format,
          "tables, one JSON document, or the scopes (several files: the ranks) as CSV" },
        { "json", OPTION_FLAG, NULL, &json, "the same as --format json" },
        { "scope", OPTION_TEXT, "PATH", &under,
          "only this scope path, such as train/step, and what is inside it" },
        { "events", OPTION_FLAG, NULL, &prints_events,
          "print the events themselves, a line each, instead of sums" },
    };
    const usage_t usage = {
        "ferry ledger FILE...",
        "What a run moved, from the file that --record FILE, $FERRY_RECORD or "
        "fy_ledger_record wrote;\n"
        "several files are those of the ranks of one run: each, and their sums.",
        options, sizeof options / sizeof *options,
        "ferry train linear --device sim:0 --record run.events\n"
        "ferry ledger run.events\n"
        "ferry ledger run.events --events --scope linear/train/epoch\n"
    };
    int nfiles = 0;
    while (nfiles + 1 < argc && strncmp(argv[nfiles + 1], "--", 2) != 0) nfiles++;
    OPTIONS_TRY(options_parse(&usage, argc - nfiles, argv + nfiles));
    if (!nfiles)
        return TOOL_REFUSE(STATUS_USAGE,
                           "which file? 'ferry ledger FILE'; --record FILE makes one\n");
    if (prints_events && (json || format != TEXT || nfiles > 1))
        return TOOL_REFUSE(STATUS_USAGE,
                           "--events prints text, of one file; as JSON the events are the file "
                           "itself, so leave --json, --format and other files out\n");
    reading_t *readings = tool_alloc((size_t)nfiles * sizeof *readings);
    for (int i = 0; i < nfiles; i++)
        readings[i] = (reading_t){
            .file = argv[i + 1], .under = under, .prints_events = prints_events, .rank = (uint64_t)i
        };
    const fy_status_t status = show(readings, (size_t)nfiles, json ? JSON : format);
    for (int i = 0; i < nfiles; i++) event_totals_free(&readings[i].totals);
    free(readings);
    fflush(stdout);
    return tool_end(status) == STATUS_OK ? STATUS_OK : STATUS_FAILED;
}
