/* A snapshot as a picture (SVG 1.1): legend, and for each pool its figures and its map.
 * Blocks thinner than a pixel are drawn together with adjacent ones, so that the file stays small
 * for any number of blocks. Plain data in, text out: the `ferry` command compiles this as well.
 * Next: snapshot.h. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "alloc/report/snapshot.h"
#include "runtime/base/c_locale.h"

typedef const fy__snapshot_t snapshot_t;
typedef const fy__snapshot_pool_t pool_t;
typedef const fy__snapshot_segment_t segment_t;
typedef const fy__snapshot_block_t block_t;

/* Pixels. */
enum {
    WIDTH = 1200,
    MARGIN = 16,
    TEXT = 16,
    HEAD = 60,
    MAP = WIDTH - 2 * MARGIN,
    LABEL = 12,
    BAR = 20,
    LINE = LABEL + BAR + 4,
    GAP = 4
};
enum { MOST_LINES = 24, SCOPES_SHOWN = 4 };

/* A palette that colour-blind readers can tell apart (Okabe and Ito, 2008); in the order of
 * FY_CATEGORY_LIST, then "not known". */
static const char *const colours[FY_CATEGORY_COUNT + 1] = { "#56b4e9", "#0072b2", "#e69f00",
                                                            "#cc79a7", "#009e73", "#f0e442",
                                                            "#9a9a9a" };

/* ---- texts ---- */

static const char *category_name(int category)
{
    return category < FY_CATEGORY_COUNT ? fy_category_name((fy_category_t)category) : "live";
}

const char *fy__snapshot_state_name(int state)
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

static void put_xml(FILE *file, const char *text)
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
static void put_size(FILE *file, uint64_t nbytes)
{
    static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB" };
    double value = (double)nbytes;
    int unit = 0;
    for (; value >= 1024 && unit < 5; unit++) value /= 1024;
    fy__fprintf(file, value < 100 && value != (double)(int)value ? "%.1f %s" : "%.0f %s", value,
                units[unit]);
}

static void put_named(FILE *file, const char *before, uint64_t nbytes)
{
    fputs(before, file);
    put_size(file, nbytes);
}

static void begin_text(FILE *file, double x, double y, const char *class)
{
    fy__fprintf(file, "<text x=\"%.0f\" y=\"%.0f\" class=\"%s\">", x, y, class);
}

/* Truncates a long path at the front: its end is more specific. */
static void put_path(FILE *file, const char *path, size_t most)
{
    const size_t length = strlen(path);
    const char *end = length > most ? path + length - most : path;
    while (((unsigned char)*end & 0xC0) == 0x80) end++; /* not in the middle of a UTF-8 sequence */
    if (!*path) end = "outside any scope";
    if (end != path && *path) fputs("...", file);
    put_xml(file, end);
}

/* ---- the map of a pool: its segments on lines, with a mark for each block ---- */

typedef struct map {
    uint64_t line_nbytes; /* bytes of a whole line */
    uint64_t lines;
    uint64_t thin; /* blocks that are drawn together with adjacent ones */
} map_t;

/* Segments follow one another on lines of `line_nbytes`; a longer one begins a line and wraps. */
typedef struct flow {
    uint64_t line_nbytes;
    double scale; /* pixels for a byte */
    double x;     /* begin of the next one */
    uint64_t line;
} flow_t;

static flow_t flow_of(uint64_t line_nbytes)
{
    return (flow_t){ line_nbytes, (double)MAP / (double)line_nbytes, 0, 0 };
}

static bool wraps(const flow_t *flow, uint64_t nbytes) { return nbytes > flow->line_nbytes; }

/* The position of the segment; the flow continues after it. */
static flow_t flow_place(flow_t *flow, uint64_t nbytes)
{
    const double width = (double)nbytes * flow->scale;
    if (flow->x > 0 && (wraps(flow, nbytes) || flow->x + width > MAP)) {
        flow->line++;
        flow->x = 0;
    }
    const flow_t place = *flow;
    flow->line += (nbytes - 1) / flow->line_nbytes;
    flow->x += (double)((nbytes - 1) % flow->line_nbytes + 1) * flow->scale + GAP;
    return place;
}

static uint64_t count_lines(snapshot_t *snapshot, pool_t *pool, uint64_t line_nbytes)
{
    flow_t flow = flow_of(line_nbytes);
    for (size_t i = 0; i < pool->nsegments; i++)
        (void)flow_place(&flow, snapshot->segments[pool->first_segment + i].nbytes);
    return pool->nsegments ? flow.line + 1 : 0;
}

/* Bytes for each line, a power of two, so that the map fits a screen. */
static uint64_t choose_line(snapshot_t *snapshot, pool_t *pool)
{
    uint64_t line_nbytes = 64u << 10;
    while (line_nbytes < UINT64_C(1) << 62 && count_lines(snapshot, pool, line_nbytes) > MOST_LINES)
        line_nbytes *= 2;
    return line_nbytes;
}

/* ---- marks: blocks, or several thin ones ---- */

typedef struct mark {
    block_t *first;
    size_t count;
    uint64_t begin, end; /* in the segment */
    uint64_t nbytes[FY__SNAPSHOT_STATE_COUNT], by_category[FY_CATEGORY_COUNT + 1];
} mark_t;

static void mark_add(mark_t *mark, block_t *block)
{
    if (!mark->count++) *mark = (mark_t){ .first = block, .count = 1, .begin = block->offset };
    mark->end = block->offset + block->nbytes;
    mark->nbytes[block->state] += block->nbytes;
    if (block->state == FY__SNAPSHOT_LIVE) mark->by_category[block->category] += block->nbytes;
}

/* The largest part of it: "c0".. for a category of live bytes, "pending", ... */
static void mark_class(const mark_t *mark, char *class, size_t size)
{
    int state = 0, category = 0;
    for (int i = 1; i < FY__SNAPSHOT_STATE_COUNT; i++)
        if (mark->nbytes[i] > mark->nbytes[state]) state = i;
    for (int i = 1; i <= FY_CATEGORY_COUNT; i++)
        if (mark->by_category[i] > mark->by_category[category]) category = i;
    if (state == FY__SNAPSHOT_LIVE)
        snprintf(class, size, "c%d", category);
    else
        snprintf(class, size, "%s", fy__snapshot_state_name(state));
}

static void put_title(FILE *file, segment_t *segment, const mark_t *mark)
{
    block_t *block = mark->first;
    fputs("<title>", file);
    if (mark->count > 1) {
        fprintf(file, "%zu blocks, ", mark->count);
        put_size(file, mark->end - mark->begin);
        fputs(" together", file);
        for (int i = 1; i < FY__SNAPSHOT_STATE_COUNT; i++)
            if (mark->nbytes[i])
                put_named(file,
                          i == 1   ? "\npending "
                          : i == 2 ? "\nfree "
                                   : "\nthread_cached ",
                          mark->nbytes[i]);
        for (int i = 0; i <= FY_CATEGORY_COUNT; i++)
            if (mark->by_category[i]) {
                fprintf(file, "\n%s ", category_name(i));
                put_size(file, mark->by_category[i]);
            }
    } else {
        fprintf(file, "%s ",
                block->state == FY__SNAPSHOT_LIVE ? category_name(block->category)
                                                  : fy__snapshot_state_name(block->state));
        put_size(file, block->nbytes);
        fprintf(file, " (%" PRIu64 " bytes", block->nbytes);
        if (block->state == FY__SNAPSHOT_LIVE)
            fprintf(file, ", %" PRIu64 " asked for)\nblock %" PRIu64, block->requested, block->id);
        else
            fputc(')', file);
        for (int i = 0; i < block->nstreams; i++)
            fprintf(file, "%s %d", i ? "," : "\non stream", block->streams[i]);
        if (block->scope) {
            fputs("\nscope ", file);
            put_path(file, block->scope, FY__SNAPSHOT_PATH);
        }
    }
    fprintf(file, "\nat 0x%" PRIx64 "</title>", segment->address + mark->begin);
}

/* A part of a segment as rectangles, one for each line. */
static void put_rects(FILE *file, const flow_t *place, double y, segment_t *segment, uint64_t begin,
                      uint64_t end, const char *class)
{
    const bool several = wraps(place, segment->nbytes);
    while (begin < end) {
        const uint64_t line = several ? begin / place->line_nbytes : 0,
                       line_begin = line * place->line_nbytes;
        uint64_t stop = several && end - line_begin > place->line_nbytes
                            ? line_begin + place->line_nbytes
                            : end;
        const double x = place->x + (double)(begin - line_begin) * place->scale,
                     width = (double)(stop - begin) * place->scale;
        fy__fprintf(file,
                    "<rect x=\"%.2f\" y=\"%.0f\" width=\"%.2f\" height=\"%d\" class=\"%s%s\"/>",
                    MARGIN + x, y + (double)((place->line + line) * LINE + LABEL),
                    width < 1 ? 1 : width, BAR, class, width < 4 ? " thin" : "");
        begin = stop;
    }
}

static void put_mark(FILE *file, const flow_t *place, double y, segment_t *segment, mark_t *mark)
{
    char class[16];
    if (!mark->count) return;
    mark_class(mark, class, sizeof class);
    fputs("<g>", file);
    put_title(file, segment, mark);
    put_rects(file, place, y, segment, mark->begin, mark->end, class);
    fputs("</g>\n", file);
    mark->count = 0;
}

static void put_segment(FILE *file, snapshot_t *snapshot, segment_t *segment, const flow_t *place,
                        double y)
{
    mark_t thin = { .count = 0 }, wide = { .count = 0 };
    block_t *blocks = fy__snapshot_blocks_of(snapshot, segment);
    if ((double)segment->nbytes * place->scale > 60) {
        begin_text(file, MARGIN + place->x, y + (double)(place->line * LINE) + LABEL - 2, "label");
        put_size(file, segment->nbytes);
        if ((double)segment->nbytes * place->scale > 200)
            fprintf(file, " at 0x%" PRIx64, segment->address);
        fputs("</text>", file);
    }
    for (size_t i = 0; i < segment->nblocks; i++) {
        if ((double)blocks[i].nbytes * place->scale >= 1) {
            put_mark(file, place, y, segment, &thin);
            mark_add(&wide, &blocks[i]);
            put_mark(file, place, y, segment, &wide);
            continue;
        }
        mark_add(&thin, &blocks[i]);
        if ((double)(thin.end - thin.begin) * place->scale >= 1)
            put_mark(file, place, y, segment, &thin);
    }
    put_mark(file, place, y, segment, &thin);
}

/* ---- a pool's map ---- */

static uint64_t count_thin(snapshot_t *snapshot, pool_t *pool, double scale)
{
    uint64_t n = 0;
    for (size_t i = 0; i < pool->nsegments; i++) {
        segment_t *segment = &snapshot->segments[pool->first_segment + i];
        for (size_t k = 0; k < segment->nblocks; k++)
            n += (double)fy__snapshot_blocks_of(snapshot, segment)[k].nbytes * scale < 1;
    }
    return n;
}
static map_t plan_map(snapshot_t *snapshot, pool_t *pool)
{
    const uint64_t line_nbytes = choose_line(snapshot, pool);
    return (map_t){ line_nbytes, count_lines(snapshot, pool, line_nbytes),
                    count_thin(snapshot, pool, flow_of(line_nbytes).scale) };
}

static double map_height(const map_t *map) { return (double)(map->lines * LINE); }

static void put_map(FILE *file, snapshot_t *snapshot, pool_t *pool, const map_t *map, double y)
{
    flow_t flow = flow_of(map->line_nbytes);
    for (size_t i = 0; i < pool->nsegments; i++) {
        segment_t *segment = &snapshot->segments[pool->first_segment + i];
        const flow_t place = flow_place(&flow, segment->nbytes);
        put_segment(file, snapshot, segment, &place, y);
    }
}

/* ---- pools ---- */

static void put_figures(FILE *file, pool_t *pool)
{
    const fy_memory_stats_t *s = &pool->stats;
    put_named(file, "live ", s->live);
    put_named(file, " (asked for ", s->requested);
    put_named(file, ", peak ", s->peak_live);
    put_named(file, ") + cached ", s->cached);
    put_named(file, " (pending ", s->pending);
    put_named(file, ") = reserved ", s->reserved);
    put_named(file, " (peak ", s->peak_reserved);
    if (s->limit == FY_UNLIMITED)
        fputs("), no limit", file);
    else
        put_named(file, "), limit ", s->limit);
    if (pool->in_place) put_named(file, "; locked outside the pool ", pool->in_place);
    if (!s->cached) return;
    put_named(file, "; largest free ", s->largest_free);
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
        put_path(file, scopes[i].path, 40);
        put_named(file, " ", scopes[i].live);
    }
    if (n > SCOPES_SHOWN) fprintf(file, ", %zu scopes more", n - SCOPES_SHOWN);
    free(scopes);
}

static double pool_height(snapshot_t *snapshot, pool_t *pool)
{
    if (!pool->nsegments) return 3 * TEXT;
    const map_t map = plan_map(snapshot, pool);
    return 5.5 * TEXT + map_height(&map);
}

static void put_pool(FILE *file, snapshot_t *snapshot, pool_t *pool, double y)
{
    static const char *const kinds[] = { "device memory", "host memory", "page-locked host memory",
                                         "inside live blocks of the device" };
    const map_t map = plan_map(snapshot, pool);
    begin_text(file, MARGIN, y += TEXT, "name");
    put_xml(file, pool->name);
    fprintf(file, "<tspan class=\"text\">: %s", kinds[pool->kind]);
    if (pool->nsegments) put_named(file, "; a whole line is ", map.line_nbytes);
    if (map.thin)
        fprintf(file,
                "; %" PRIu64
                " blocks thinner than a pixel are drawn together with their neighbours",
                map.thin);
    fputs("</tspan></text>\n", file);
    begin_text(file, MARGIN, y += TEXT, "text");
    put_figures(file, pool);
    fputs("</text>\n", file);
    if (!pool->nsegments) return;
    begin_text(file, MARGIN, y += TEXT, "text");
    put_scopes(file, snapshot, pool);
    fputs("</text>\n", file);
    begin_text(file, MARGIN, y += TEXT, "text");
    put_stats(file, pool);
    fputs("</text>\n", file);
    put_map(file, snapshot, pool, &map, y + 4);
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
    begin_text(file, x + 18, 46, "text");
    fputs(text, file);
    put_named(file, " ", nbytes);
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
        if (by_category[i]) x = put_key(file, x, class, category_name(i), by_category[i]);
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
    begin_text(file, MARGIN, 24, "title");
    fputs("Memory of ", file);
    put_xml(file, snapshot->device);
    fputs(" <tspan class=\"text\">", file);
    put_xml(file, snapshot->model);
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
