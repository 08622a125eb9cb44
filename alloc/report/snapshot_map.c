/* The map of a pool: its segments on lines, with a mark for each block. Blocks thinner than a pixel
 * are drawn together with adjacent ones, so that the file stays small for any number of blocks. Not
 * here: the page (snapshot_svg.c). */
#include <inttypes.h>
#include <string.h>

#include "alloc/report/snapshot_draw.h"
#include "runtime/base/c_locale.h"

typedef const fy__snapshot_t snapshot_t;
typedef const fy__snapshot_pool_t pool_t;
typedef const fy__snapshot_segment_t segment_t;
typedef const fy__snapshot_block_t block_t;

/* Pixels. */
enum {
    MARGIN = FY__DRAW_MARGIN,
    MAP = FY__DRAW_WIDTH - 2 * MARGIN,
    LABEL = 12,
    BAR = 20,
    LINE = LABEL + BAR + 4,
    GAP = 4
};
enum { MOST_LINES = 24 };

/* ---- placement of segments ---- */

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
        snprintf(class, size, "%s", fy__draw_state(state));
}

static void put_title(FILE *file, segment_t *segment, const mark_t *mark)
{
    block_t *block = mark->first;
    fputs("<title>", file);
    if (mark->count > 1) {
        fprintf(file, "%zu blocks, ", mark->count);
        fy__draw_size(file, mark->end - mark->begin);
        fputs(" together", file);
        for (int i = 1; i < FY__SNAPSHOT_STATE_COUNT; i++)
            if (mark->nbytes[i])
                fy__draw_named(file,
                               i == 1   ? "\npending "
                               : i == 2 ? "\nfree "
                                        : "\nthread_cached ",
                               mark->nbytes[i]);
        for (int i = 0; i <= FY_CATEGORY_COUNT; i++)
            if (mark->by_category[i]) {
                fprintf(file, "\n%s ", fy__draw_category(i));
                fy__draw_size(file, mark->by_category[i]);
            }
    } else {
        fprintf(file, "%s ",
                block->state == FY__SNAPSHOT_LIVE ? fy__draw_category(block->category)
                                                  : fy__draw_state(block->state));
        fy__draw_size(file, block->nbytes);
        fprintf(file, " (%" PRIu64 " bytes", block->nbytes);
        if (block->state == FY__SNAPSHOT_LIVE)
            fprintf(file, ", %" PRIu64 " asked for)\nblock %" PRIu64, block->requested, block->id);
        else
            fputc(')', file);
        for (int i = 0; i < block->nstreams; i++)
            fprintf(file, "%s %d", i ? "," : "\non stream", block->streams[i]);
        if (block->scope) {
            fputs("\nscope ", file);
            fy__draw_path(file, block->scope, FY__SNAPSHOT_PATH);
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
        fy__draw_text(file, MARGIN + place->x, y + (double)(place->line * LINE) + LABEL - 2,
                      "label");
        fy__draw_size(file, segment->nbytes);
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
fy__map_t fy__map_plan(const fy__snapshot_t *snapshot, const fy__snapshot_pool_t *pool)
{
    const uint64_t line_nbytes = choose_line(snapshot, pool);
    return (fy__map_t){ line_nbytes, count_lines(snapshot, pool, line_nbytes),
                        count_thin(snapshot, pool, flow_of(line_nbytes).scale) };
}

double fy__map_height(const fy__map_t *map) { return (double)(map->lines * LINE); }

void fy__map_draw(FILE *file, const fy__snapshot_t *snapshot, const fy__snapshot_pool_t *pool,
                  const fy__map_t *map, double y)
{
    flow_t flow = flow_of(map->line_nbytes);
    for (size_t i = 0; i < pool->nsegments; i++) {
        segment_t *segment = &snapshot->segments[pool->first_segment + i];
        const flow_t place = flow_place(&flow, segment->nbytes);
        put_segment(file, snapshot, segment, &place, y);
    }
}
