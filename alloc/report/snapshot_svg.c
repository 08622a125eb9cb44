/* A snapshot as a picture (SVG 1.1): legend, and for each pool its figures and its map
 * (snapshot_map.c). Plain data in, text out: the `ferry` command compiles this as well. Next:
 * snapshot.h. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "alloc/report/snapshot_draw.h"
#include "runtime/base/c_locale.h"

typedef const fy__snapshot_t snapshot_t;
typedef const fy__snapshot_pool_t pool_t;

/* Pixels. */
enum {
    WIDTH = FY__DRAW_WIDTH,
    MARGIN = FY__DRAW_MARGIN,
    TEXT = FY__DRAW_TEXT,
    HEAD = 60,
    SCOPES_SHOWN = 4
};

/* A palette that colour-blind readers can tell apart (Okabe and Ito, 2008); in the order of
 * FY_CATEGORY_LIST, then "not known". */
static const char *const colours[FY_CATEGORY_COUNT + 1] = { "#56b4e9", "#0072b2", "#e69f00",
                                                            "#cc79a7", "#009e73", "#f0e442",
                                                            "#9a9a9a" };

/* ---- texts ---- */

const char *fy__draw_category(int category)
{
    return category < FY_CATEGORY_COUNT ? fy_category_name((fy_category_t)category) : "live";
}

const char *fy__draw_state(int state)
{
    static const char *const states[] = {
#define X(name, text) #text,
        FY__SNAPSHOT_STATES(X)
#undef X
    };
    return states[state];
}

/* Length of the UTF-8 sequence at `s` if XML may hold it; 0 if not. */
static size_t xml_length(const unsigned char *s)
{
    const size_t n = s[0] < 0x80                   ? s[0] >= ' ' && s[0] != 0x7f
                     : s[0] >= 0xC2 && s[0] < 0xE0 ? 2
                     : (s[0] & 0xF0) == 0xE0       ? 3
                     : s[0] >= 0xF0 && s[0] < 0xF5 ? 4
                                                   : 0;
    for (size_t i = 1; i < n; i++)
        if ((s[i] & 0xC0) != 0x80) return 0;
    /* overlong, surrogates */
    if ((s[0] == 0xE0 && s[1] < 0xA0) || (s[0] == 0xED && s[1] >= 0xA0)) return 0;
    if ((s[0] == 0xF0 && s[1] < 0x90) || (s[0] == 0xF4 && s[1] >= 0x90)) return 0;
    return s[0] == 0xEF && s[1] == 0xBF && s[2] >= 0xBE ? 0 : n; /* U+FFFE, U+FFFF */
}

void fy__draw_xml(FILE *file, const char *text)
{
    for (const unsigned char *s = (const unsigned char *)text; *s;) {
        const size_t n = xml_length(s);
        if (n == 1 && (*s == '<' || *s == '>' || *s == '&'))
            fputs(*s == '<' ? "&lt;" : *s == '>' ? "&gt;" : "&amp;", file);
        else if (n)
            fwrite(s, 1, n, file);
        else
            fputc('?', file);
        s += n ? n : 1;
    }
}

/* "1.5 MiB"; whole numbers without a fraction. */
void fy__draw_size(FILE *file, uint64_t nbytes)
{
    static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB" };
    double value = (double)nbytes;
    int unit = 0;
    for (; value >= 1024 && unit < 5; unit++) value /= 1024;
    fy__fprintf(file, value < 100 && value != (double)(int)value ? "%.1f %s" : "%.0f %s", value,
                units[unit]);
}

void fy__draw_named(FILE *file, const char *before, uint64_t nbytes)
{
    fputs(before, file);
    fy__draw_size(file, nbytes);
}

void fy__draw_text(FILE *file, double x, double y, const char *class)
{
    fy__fprintf(file, "<text x=\"%.0f\" y=\"%.0f\" class=\"%s\">", x, y, class);
}

/* Truncates a long path at the front: its end is more specific. */
void fy__draw_path(FILE *file, const char *path, size_t most)
{
    const size_t length = strlen(path);
    const char *end = length > most ? path + length - most : path;
    while (((unsigned char)*end & 0xC0) == 0x80) end++; /* not in the middle of a UTF-8 sequence */
    if (!*path) end = "outside any scope";
    if (end != path && *path) fputs("...", file);
    fy__draw_xml(file, end);
}

/* ---- pools ---- */

static void put_figures(FILE *file, pool_t *pool)
{
    const fy_memory_stats_t *s = &pool->stats;
    fy__draw_named(file, "live ", s->live);
    fy__draw_named(file, " (asked for ", s->requested);
    fy__draw_named(file, ", peak ", s->peak_live);
    fy__draw_named(file, ") + cached ", s->cached);
    fy__draw_named(file, " (pending ", s->pending);
    fy__draw_named(file, ") = reserved ", s->reserved);
    fy__draw_named(file, " (peak ", s->peak_reserved);
    if (s->limit == FY_UNLIMITED)
        fputs("), no limit", file);
    else
        fy__draw_named(file, "), limit ", s->limit);
    if (pool->in_place) fy__draw_named(file, "; locked outside the pool ", pool->in_place);
    if (!s->cached) return;
    fy__draw_named(file, "; largest free ", s->largest_free);
    fy__fprintf(file, ", fragmentation %.0f %%",
                100.0 * (1.0 - (double)s->largest_free / (double)s->cached));
}

static void put_stats(FILE *file, pool_t *pool)
{
    const char *before = "served: ";
#define X(field)                                                                 \
    if (pool->alloc_stats.field) {                                               \
        fprintf(file, "%s" #field " %" PRIu64, before, pool->alloc_stats.field); \
        before = ", ";                                                           \
    }
    FY__SNAPSHOT_ALLOC_STATS(X)
#undef X
}

static void put_scopes(FILE *file, snapshot_t *snapshot, pool_t *pool)
{
    fy__snapshot_scope_t *scopes;
    const size_t n = fy__snapshot_scopes(snapshot, pool, &scopes);
    for (size_t i = 0; i < n && i < SCOPES_SHOWN; i++) {
        fputs(i ? ", " : "most live: ", file);
        fy__draw_path(file, scopes[i].path, 40);
        fy__draw_named(file, " ", scopes[i].live);
    }
    if (n > SCOPES_SHOWN) fprintf(file, ", %zu scopes more", n - SCOPES_SHOWN);
    free(scopes);
}

static double pool_height(snapshot_t *snapshot, pool_t *pool)
{
    if (!pool->nsegments) return 3 * TEXT;
    const fy__map_t map = fy__map_plan(snapshot, pool);
    return 5.5 * TEXT + fy__map_height(&map);
}

static void put_pool(FILE *file, snapshot_t *snapshot, pool_t *pool, double y)
{
    static const char *const kinds[] = { "device memory", "host memory", "page-locked host memory",
                                         "inside live blocks of the device" };
    const fy__map_t map = fy__map_plan(snapshot, pool);
    fy__draw_text(file, MARGIN, y += TEXT, "name");
    fy__draw_xml(file, pool->name);
    fprintf(file, "<tspan class=\"text\">: %s", kinds[pool->kind]);
    if (pool->nsegments) fy__draw_named(file, "; a whole line is ", map.line_nbytes);
    if (map.thin)
        fprintf(file,
                "; %" PRIu64
                " blocks thinner than a pixel are drawn together with their neighbours",
                map.thin);
    fputs("</tspan></text>\n", file);
    fy__draw_text(file, MARGIN, y += TEXT, "text");
    put_figures(file, pool);
    fputs("</text>\n", file);
    if (!pool->nsegments) return;
    fy__draw_text(file, MARGIN, y += TEXT, "text");
    put_scopes(file, snapshot, pool);
    fputs("</text>\n", file);
    fy__draw_text(file, MARGIN, y += TEXT, "text");
    put_stats(file, pool);
    fputs("</text>\n", file);
    fy__map_draw(file, snapshot, pool, &map, y + 4);
}

/* ---- the page ---- */

static void put_style(FILE *file)
{
    fputs("<style>text{font-family:sans-serif;fill:#222}.title{font-size:17px;font-weight:bold}."
          "name{font-size:13px;font-weight:bold}"
          ".text{font-size:11px;font-weight:normal}.label{font-size:9px;fill:#666}"
          "rect{stroke:#fff;stroke-width:.6}.thin{stroke:none}.free{fill:#fff;stroke:#aaa}.free."
          "thin{stroke:none}"
          ".pending{fill:url(#pending);stroke:#777}.thread_cached{fill:url(#thread_cached);stroke:#"
          "aaa}.page{"
          "fill:#fff;stroke:none}",
          file);
    for (int i = 0; i <= FY_CATEGORY_COUNT; i++) fprintf(file, ".c%d{fill:%s}", i, colours[i]);
    fputs("</style>\n<defs>"
          "<pattern id=\"pending\" width=\"5\" height=\"5\" patternUnits=\"userSpaceOnUse\" "
          "patternTransform=\"rotate(45)\">"
          "<path d=\"M0 0H5V5H0Z\" fill=\"#fff\"/><path d=\"M1 0V5\" stroke=\"#777\" "
          "stroke-width=\"1.6\"/></pattern>"
          "<pattern id=\"thread_cached\" width=\"5\" height=\"5\" patternUnits=\"userSpaceOnUse\">"
          "<path d=\"M0 0H5V5H0Z\" fill=\"#fff\"/><circle cx=\"2\" cy=\"2\" r=\".9\" "
          "fill=\"#999\"/></pattern></defs>\n",
          file);
}

static double put_key(FILE *file, double x, const char *class, const char *text, uint64_t nbytes)
{
    fy__fprintf(file, "<rect x=\"%.0f\" y=\"36\" width=\"14\" height=\"12\" class=\"%s\"/>", x,
                class);
    fy__draw_text(file, x + 18, 46, "text");
    fputs(text, file);
    fy__draw_named(file, " ", nbytes);
    fputs("</text>\n", file);
    return x + 18 + 6.2 * (double)(strlen(text) + 9) + 14;
}

/* The sums over all pools. A graph's blocks are inside blocks of the device's pool, so they are not
 * counted again. */
static void put_legend(FILE *file, snapshot_t *snapshot)
{
    uint64_t by_category[FY_CATEGORY_COUNT + 1] = { 0 }, nbytes[FY__SNAPSHOT_STATE_COUNT] = { 0 };
    double x = MARGIN;
    for (size_t i = 0; i < snapshot->npools; i++) {
        if (snapshot->pools[i].kind == FY__SNAPSHOT_GRAPH) continue;
        const fy__snapshot_sums_t sums = fy__snapshot_sum(snapshot, &snapshot->pools[i]);
        for (int k = 0; k <= FY_CATEGORY_COUNT; k++) by_category[k] += sums.by_category[k];
        for (int k = 0; k < FY__SNAPSHOT_STATE_COUNT; k++) nbytes[k] += sums.nbytes[k];
    }
    for (int i = 0; i <= FY_CATEGORY_COUNT; i++) {
        const char class[] = { 'c', (char)('0' + i), 0 };
        if (by_category[i]) x = put_key(file, x, class, fy__draw_category(i), by_category[i]);
    }
    x = put_key(file, x, "pending", "pending", nbytes[FY__SNAPSHOT_PENDING]);
    x = put_key(file, x, "free", "free", nbytes[FY__SNAPSHOT_FREE]);
    if (nbytes[FY__SNAPSHOT_THREAD_CACHED])
        (void)put_key(file, x, "thread_cached", "cached by a thread",
                      nbytes[FY__SNAPSHOT_THREAD_CACHED]);
}

void fy__snapshot_write_svg(const fy__snapshot_t *snapshot, FILE *file)
{
    double height = HEAD + MARGIN;
    const time_t seconds = (time_t)(snapshot->unix_ns / 1000000000u);
    struct tm utc = { 0 };
    for (size_t i = 0; i < snapshot->npools; i++)
        height += pool_height(snapshot, &snapshot->pools[i]);
    fy__fprintf(
        file,
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<svg xmlns=\"http://www.w3.org/2000/svg\" "
        "width=\"%d\" height=\"%.0f\" "
        "viewBox=\"0 0 %d %.0f\">\n",
        WIDTH, height, WIDTH, height);
    put_style(file);
    fy__fprintf(file, "<rect width=\"%d\" height=\"%.0f\" class=\"page\"/>\n", WIDTH, height);
    fy__draw_text(file, MARGIN, 24, "title");
    fputs("Memory of ", file);
    fy__draw_xml(file, snapshot->device);
    fputs(" <tspan class=\"text\">", file);
    fy__draw_xml(file, snapshot->model);
    gmtime_r(&seconds, &utc);
    fprintf(file, ", %04d-%02d-%02d %02d:%02d:%02d UTC</tspan></text>\n", utc.tm_year + 1900,
            utc.tm_mon + 1, utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec);
    put_legend(file, snapshot);
    double y = HEAD;
    for (size_t i = 0; i < snapshot->npools; i++) {
        put_pool(file, snapshot, &snapshot->pools[i], y);
        y += pool_height(snapshot, &snapshot->pools[i]);
    }
    fputs("</svg>\n", file);
}
