/* `ferry memory FILE`: the layout of a device's memory, from a snapshot: figures, live bytes by
 * category and by scope, how requests were served; and the picture. Opens no device. Not here:
 * reading (snapshot_file.c), drawing (alloc/report/snapshot_svg.c). */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/cli/snapshot_file.h"
#include "tools/cli/tool.h"

enum { SCOPES_SHOWN = 12 };
enum { SUMMARY, PYTORCH }; /* --format */

static const column_t pool_columns[] = {
    { "pool", "pool", 0 },
    { "kind", "kind", 0 },
    { "live_bytes", "live", 0 },
    { "requested_bytes", NULL, 0 },
    { "cached_bytes", "cached", 0 },
    { "pending_bytes", "pending", 0 },
    { "reserved_bytes", "reserved", 0 },
    { "peak_live_bytes", "peak live", 0 },
    { "peak_reserved_bytes", "peak reserved", 0 },
    { "limit_bytes", "limit", 0 },
    { "largest_free_bytes", "largest free", 0 },
    { "fragmentation", "fragmentation", 2 },
    { "segments", "segments", 0 },
    { "blocks", "blocks", 0 },
};
static const column_t category_columns[] = { { "category", "category", 0 },
                                             { "live_bytes", "live", 0 },
                                             { "peak_bytes", "at the peak", 0 },
                                             { "blocks", "blocks", 0 } };
static const column_t scope_columns[] = { { "pool", NULL, 0 },
                                          { "scope", "scope", 0 },
                                          { "live_bytes", "live", 0 },
                                          { "blocks", "blocks", 0 } };
static const column_t stats_columns[] = { { "stage", "served", 0 }, { "count", "count", 0 } };
#define SHEET(columns) sheet_create((columns), sizeof(columns) / sizeof *(columns))

typedef const fy__snapshot_t snapshot_t;
typedef const fy__snapshot_pool_t pool_t;

/* ---- tables ---- */

static void add_limit(sheet_t *sheet, uint64_t limit)
{
    if (limit > INT64_MAX)
        sheet_text(sheet, NULL);
    else
        sheet_int(sheet, (int64_t)limit);
}

static sheet_t *pool_sheet(snapshot_t *snapshot)
{
    static const char *const kinds[] = {
#define X(name, text) #text,
        FY__SNAPSHOT_KINDS(X)
#undef X
    };
    sheet_t *sheet = SHEET(pool_columns);
    for (size_t i = 0; i < snapshot->npools; i++) {
        pool_t *pool = &snapshot->pools[i];
        const fy_memory_stats_t *s = &pool->stats;
        const fy__snapshot_sums_t sums = fy__snapshot_sum(snapshot, pool);
        uint64_t blocks = 0;
        for (int k = 0; k < FY__SNAPSHOT_STATE_COUNT; k++) blocks += sums.count[k];
        sheet_text(sheet, pool->name);
        sheet_text(sheet, kinds[pool->kind]);
        const uint64_t figures[] = { s->live,     s->requested, s->cached,       s->pending,
                                     s->reserved, s->peak_live, s->peak_reserved };
        for (size_t k = 0; k < sizeof figures / sizeof *figures; k++)
            sheet_int(sheet, (int64_t)figures[k]);
        add_limit(sheet, s->limit);
        sheet_int(sheet, (int64_t)s->largest_free);
        sheet_real(sheet, s->cached ? 1.0 - (double)s->largest_free / (double)s->cached : NAN);
        sheet_int(sheet, (int64_t)sums.nsegments);
        sheet_int(sheet, (int64_t)blocks);
    }
    return sheet;
}

/* Of the device's own memory: the first pool. */
static sheet_t *category_sheet(snapshot_t *snapshot)
{
    sheet_t *sheet = SHEET(category_columns);
    uint64_t blocks[FY_CATEGORY_COUNT + 1] = { 0 };
    pool_t *pool = snapshot->pools;
    for (size_t i = 0; i < pool->nsegments; i++) {
        const fy__snapshot_segment_t *segment = &snapshot->segments[pool->first_segment + i];
        for (size_t k = 0; k < segment->nblocks; k++) {
            const fy__snapshot_block_t *block = &fy__snapshot_blocks_of(snapshot, segment)[k];
            blocks[block->category] += block->state == FY__SNAPSHOT_LIVE;
        }
    }
    for (int i = 0; i < FY_CATEGORY_COUNT; i++) {
        if (!pool->stats.by_category[i] && !pool->stats.peak_by_category[i]) continue;
        sheet_text(sheet, fy_category_name((fy_category_t)i));
        sheet_int(sheet, (int64_t)pool->stats.by_category[i]);
        sheet_int(sheet, (int64_t)pool->stats.peak_by_category[i]);
        sheet_int(sheet, (int64_t)blocks[i]);
    }
    return sheet;
}

/* Of every pool except those inside another pool's blocks; *out_more: scopes that are not
 * listed. */
static sheet_t *scope_sheet(snapshot_t *snapshot, size_t most, size_t *out_more)
{
    sheet_t *sheet = SHEET(scope_columns);
    *out_more = 0;
    for (size_t i = 0; i < snapshot->npools; i++) {
        fy__snapshot_scope_t *scopes;
        if (snapshot->pools[i].kind == FY__SNAPSHOT_GRAPH) continue;
        const size_t n = fy__snapshot_scopes(snapshot, &snapshot->pools[i], &scopes);
        for (size_t k = 0; k < n && k < most; k++) {
            char name[FY__SNAPSHOT_PATH + 128];
            snprintf(name, sizeof name, "%s%s%s",
                     *scopes[k].path ? scopes[k].path : "outside any scope", i ? ", " : "",
                     i ? snapshot->pools[i].name : "");
            sheet_text(sheet, snapshot->pools[i].name);
            sheet_text(sheet, most == SIZE_MAX ? scopes[k].path : name);
            sheet_int(sheet, (int64_t)scopes[k].live);
            sheet_int(sheet, (int64_t)scopes[k].blocks);
        }
        if (n > most) *out_more += n - most;
        free(scopes);
    }
    return sheet;
}

static sheet_t *stats_sheet(snapshot_t *snapshot, bool all)
{
    sheet_t *sheet = SHEET(stats_columns);
    const fy_memory_alloc_stats_t *alloc_stats = &snapshot->pools[0].alloc_stats;
#define X(field)                                       \
    if (all || alloc_stats->field) {                   \
        sheet_text(sheet, #field);                     \
        sheet_int(sheet, (int64_t)alloc_stats->field); \
    }
    FY__SNAPSHOT_ALLOC_STATS(X)
#undef X
    return sheet;
}

/* ---- output ---- */

static void print_text(snapshot_t *snapshot, sheet_t *const sheets[4], size_t more)
{
    printf("%s (%s), process %" PRIu64 "\n\n", snapshot->device, snapshot->model,
           snapshot->process);
    for (int i = 0; i < 4; i++) {
        if (i) putchar('\n');
        sheet_print(sheets[i], stdout);
        if (i == 2 && more)
            printf("%zu scopes more, with fewer bytes: --json has them all\n", more);
    }
}

static void print_json(snapshot_t *snapshot, const char *path, sheet_t *const sheets[4])
{
    static const char *const keys[] = { "pools", "categories", "scopes", "alloc_stats" };
    json_t json = { .file = stdout };
    json_begin_object(&json, NULL);
    json_text(&json, "file", path);
    json_text(&json, "device", snapshot->device);
    json_text(&json, "device_model", snapshot->model);
    json_uint(&json, "process", snapshot->process);
    json_uint(&json, "unix_ns", snapshot->unix_ns);
    for (int i = 0; i < 4; i++) sheet_json(sheets[i], &json, keys[i]);
    json_end(&json);
}

static void print_summary(snapshot_t *snapshot, const char *path, bool json)
{
    size_t more;
    sheet_t *sheets[4] = { pool_sheet(snapshot), category_sheet(snapshot),
                           scope_sheet(snapshot, json ? SIZE_MAX : SCOPES_SHOWN, &more),
                           stats_sheet(snapshot, json) };
    if (json)
        print_json(snapshot, path, sheets);
    else
        print_text(snapshot, sheets, more);
    for (int i = 0; i < 4; i++) sheet_destroy(sheets[i]);
}

/* The exit status; says what failed. */
static int finish(fy_status_t status)
{
    return tool_end(status) == STATUS_OK ? STATUS_OK : STATUS_FAILED;
}

int cmd_memory(int argc, char **argv)
{
    bool json = false;
    const char *svg = NULL, *out = NULL;
    int format = SUMMARY;
    const option_t options[] = {
        { "svg", OPTION_SVG, "FILE.svg", &svg, "draw it: every block, with tooltips" },
        { "json", OPTION_FLAG, NULL, &json,
          "print one JSON document on standard output, and nothing else there" },
        { "format", OPTION_CHOICE, "summary|pytorch", &format,
          "pytorch: FILE is an event file (--record); writes what PyTorch's memory viewer reads" },
        { "out", OPTION_TEXT, "FILE.pickle", &out, "the file that --format pytorch writes" },
    };
    const usage_t usage = { "ferry memory FILE",
                            "What lay where in a device's memory, from a snapshot that --snapshot "
                            "FILE.json, fy_memory_snapshot or "
                            "$FERRY_SNAPSHOT_ON_OOM wrote.",
                            options, sizeof options / sizeof *options,
                            "ferry train linear --device sim:0 --snapshot end.json\n"
                            "ferry memory end.json --svg end.svg\n"
                            "ferry memory run.jsonl --format pytorch --out run.pickle\n" };
    const char *path;
    OPTIONS_TRY(options_parse_named(&usage, argc, argv, &path));
    if (!path)
        return TOOL_REFUSE(
            STATUS_USAGE, "which file? 'ferry memory FILE.json'; --snapshot FILE.json makes one\n");
    if ((format == PYTORCH) != (out != NULL) || (out && (svg || json)))
        return TOOL_REFUSE(STATUS_USAGE,
                           "--format pytorch and --out FILE.pickle belong together, without "
                           "--svg and --json\n");
    if (out) return finish(memory_pytorch_write(path, out));
    snapshot_file_t file;
    fy_status_t status = snapshot_file_open(path, &file);
    if (status == FY_STATUS_OK && svg) status = snapshot_file_draw(&file, svg);
    if (status == FY_STATUS_OK) print_summary(&file.snapshot, path, json);
    snapshot_file_close(&file);
    if (status == FY_STATUS_OK && svg && !json) printf("\npicture: %s\n", svg);
    return finish(status);
}
