/* The ledger for people and for JSON. Not here: the counting (the library does it). */
#include "tools/cli/tool.h"

#include <inttypes.h>
#include <string.h>

fy_ledger_totals_t ledger_read(const char *scope_path)
{
    fy_ledger_totals_t totals = FY_LEDGER_TOTALS_INIT;
    if (fy_ledger_query(scope_path, &totals) != FY_STATUS_OK)
        totals = (fy_ledger_totals_t)FY_LEDGER_TOTALS_INIT;
    return totals;
}

static void add_row(void *user, const char *path, const fy_ledger_totals_t *totals)
{
    sheet_t *sheet = user;
    sheet_text(sheet, *path ? path : "everything");
    sheet_int(sheet, (int64_t)totals->requests);
    sheet_int(sheet, (int64_t)totals->upload.count);
    sheet_int(sheet, (int64_t)totals->upload.nbytes);
    sheet_int(sheet, (int64_t)totals->download.count);
    sheet_int(sheet, (int64_t)totals->download.nbytes);
    sheet_int(sheet, (int64_t)totals->syncs);
}

void ledger_print(FILE *file, bool traffic)
{
    static const column_t columns[] = {
        { "scope", "ledger", 0 },        { "requests", "light requests", 0 },
        { "uploads", "uploads", 0 },     { "upload_bytes", "bytes up", 0 },
        { "downloads", "downloads", 0 }, { "download_bytes", "bytes down", 0 },
        { "syncs", "syncs", 0 },
    };
    if (!file) return;
    sheet_t *sheet = sheet_create(columns, sizeof columns / sizeof *columns);
    fy_ledger_walk(add_row, sheet);
    fputc('\n', file);
    sheet_print(sheet, file);
    sheet_destroy(sheet);

    fy_ledger_totals_t t = ledger_read(NULL);
    fprintf(file,
            "heavy requests: uploads %" PRIu64 " (%" PRIu64 " bytes), downloads %" PRIu64
            " (%" PRIu64 " bytes); light requests %" PRIu64 "; syncs %" PRIu64 "\n",
            t.upload.count, t.upload.nbytes, t.download.count, t.download.nbytes, t.requests,
            t.syncs);
    if (traffic)
        fprintf(file,
                "traffic: requests=%" PRIu64 " uploads=%" PRIu64 " upload_bytes=%" PRIu64
                " downloads=%" PRIu64 " download_bytes=%" PRIu64 " syncs=%" PRIu64 "\n",
                t.requests, t.upload.count, t.upload.nbytes, t.download.count, t.download.nbytes,
                t.syncs);
}

void ledger_json(json_t *json)
{
    fy_ledger_totals_t t = ledger_read(NULL);
    json_begin_object(json, "traffic");
    json_uint(json, "requests", t.requests);
    json_uint(json, "uploads", t.upload.count);
    json_uint(json, "upload_bytes", t.upload.nbytes);
    json_uint(json, "downloads", t.download.count);
    json_uint(json, "download_bytes", t.download.nbytes);
    json_uint(json, "syncs", t.syncs);
    json_end(json);
}
