/* `ferry ledger FILE`: what a recorded run moved, from its event file: by scope path, by the way
 * transfers went, by call site, by pool.
 * Not here: adding up (event_totals.h), the columns (event_sheets.h). */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tools/cli/event_sheets.h"
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
    json_uint(&json, "graph_launches", totals->launches);
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
           ", faults %" PRIu64 "; launches of graphs %" PRIu64 "\n",
           info->events, info->lost, totals->waits, totals->refusals, totals->faults,
           totals->launches);
    if (info->lost)
        printf("What was lost is in no figure here: the ring was full. The ledger of the process "
               "itself has it all.\n");
}

static void print_totals(event_totals_t *totals, const event_file_info_t *info, const char *file,
                         const char *under, int format)
{
    const fy_ledger_totals_t all = event_totals_of(totals, under);
    event_totals_sort(totals);
    sheet_t *sheets[4] = { event_scope_sheet(totals, under), event_path_sheet(&all),
                           event_site_sheet(totals, format == TEXT ? SITES_SHOWN : SIZE_MAX),
                           event_pool_sheet(totals) };
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
    const char *file;
    const parse_result_t parsed = options_parse_named(&usage, argc, argv, &file);
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
