/* The reader of snapshots. Everything is checked before it is believed: numbers are whole, blocks
 * lie end to end, sums are the figures. */
#include "tools/cli/snapshot_file.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "tools/cli/text_file.h"
#include "tools/cli/tool.h"

/* More than any device's blocks fill. */
enum { MOST_NBYTES = 1 << 28 }; /* two million blocks */

typedef struct reading {
    const char *path, *pool; /* for texts */
    fy__snapshot_t *to;
} reading_t;

static fy_status_t bad(const reading_t *reading, const char *format, ...) FY_PRINTF(2, 3);
static fy_status_t bad(const reading_t *reading, const char *format, ...)
{
    char what[256];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    return TOOL_FAIL(CORRUPT_DATA, "%s is no whole snapshot: %s%s%s", reading->path,
                     reading->pool ? reading->pool : "", reading->pool ? ": " : "", what);
}

static const json_value_t *list_of(const json_value_t *object, const char *key)
{
    const json_value_t *member = json_member(object, key);
    return member && member->kind == JSON_LIST ? member : NULL;
}

static size_t count_of(const json_value_t *list)
{
    size_t n = 0;
    for (const json_value_t *value = list ? list->child : NULL; value; value = value->next) n++;
    return n;
}

/* Index in `names`; -1: none of them. */
static int index_of(const char *text, const char *const *names, int count)
{
    for (int i = 0; text && i < count; i++)
        if (strcmp(text, names[i]) == 0) return i;
    return -1;
}

/* A category that is not known (of a later version) is none. */
static int category_of(const char *text)
{
    int i = 0;
    while (i < FY_CATEGORY_COUNT &&
           (!text || strcmp(text, fy_category_name((fy_category_t)i)) != 0))
        i++;
    return i;
}

/* ---- blocks ---- */

static fy_status_t read_streams(const reading_t *reading, const json_value_t *value,
                                fy__snapshot_block_t *block)
{
    const json_value_t *list = list_of(value, "streams");
    for (const json_value_t *item = list ? list->child : NULL; item; item = item->next) {
        uint64_t stream;
        if (!json_whole(item, &stream) || stream > UINT16_MAX ||
            block->nstreams == FY__SNAPSHOT_STREAMS)
            return bad(reading, "the block at offset %llu has \"streams\" that are none",
                       (unsigned long long)block->offset);
        block->streams[block->nstreams++] = (uint16_t)stream;
    }
    return FY_STATUS_OK;
}

static fy_status_t read_block(const reading_t *reading, const json_value_t *value, uint64_t offset,
                              uint64_t left, fy__snapshot_block_t *block)
{
    static const char *const states[] = {
#define X(name, text) #text,
        FY__SNAPSHOT_STATES(X)
#undef X
    };
    const int state = index_of(json_member_text(value, "state"), states, FY__SNAPSHOT_STATE_COUNT);
    const int category = category_of(json_member_text(value, "category"));
    if (!json_whole(json_member(value, "offset"), &block->offset) ||
        !json_whole(json_member(value, "bytes"), &block->nbytes))
        return bad(reading, "a block has no \"offset\" or no \"bytes\"");
    if (block->offset != offset)
        return bad(reading, "a block at offset %llu where one at %llu must be",
                   (unsigned long long)block->offset, (unsigned long long)offset);
    if (!block->nbytes || block->nbytes > left)
        return bad(reading, "the block at offset %llu has %llu bytes; %llu are left of its segment",
                   (unsigned long long)offset, (unsigned long long)block->nbytes,
                   (unsigned long long)left);
    if (state < 0)
        return bad(reading, "the block at offset %llu has no \"state\" that is known",
                   (unsigned long long)offset);
    block->state = (uint8_t)state;
    block->category = (uint8_t)category;
    block->scope = json_member_text(value, "scope");
    if (state == FY__SNAPSHOT_LIVE) {
        if (!json_whole(json_member(value, "requested_bytes"), &block->requested) ||
            !json_whole(json_member(value, "block"), &block->id))
            return bad(reading,
                       "the live block at offset %llu has no \"requested_bytes\" or no \"block\"",
                       (unsigned long long)offset);
        if (block->requested > block->nbytes)
            return bad(reading, "of the block at offset %llu more was asked for than it has",
                       (unsigned long long)offset);
    }
    return read_streams(reading, value, block);
}

static fy_status_t read_segment(reading_t *reading, const json_value_t *value,
                                fy__snapshot_segment_t *segment)
{
    const char *address = json_member_text(value, "address");
    const json_value_t *list = list_of(value, "blocks");
    char *end = NULL;
    uint64_t offset = 0;
    errno = 0;
    if (address && strncmp(address, "0x", 2) == 0) segment->address = strtoull(address, &end, 16);
    if (!end || end == address + 2 || *end || errno)
        return bad(reading, "a segment has no \"address\" such as \"0x7f00\"");
    if (!json_whole(json_member(value, "bytes"), &segment->nbytes) || !segment->nbytes ||
        segment->nbytes > INT64_MAX || !list)
        return bad(reading, "the segment at %s has no \"bytes\" or no \"blocks\"", address);
    segment->first_block = reading->to->nblocks;
    for (const json_value_t *item = list->child; item; item = item->next) {
        fy__snapshot_block_t *block = &reading->to->blocks[reading->to->nblocks++];
        FY_TRY(read_block(reading, item, offset, segment->nbytes - offset, block));
        offset += block->nbytes;
        segment->nblocks++;
    }
    return offset == segment->nbytes
               ? FY_STATUS_OK
               : bad(reading, "the blocks of the segment at %s do not fill it", address);
}

/* ---- pools ---- */

static fy_status_t read_figures(const reading_t *reading, const json_value_t *value,
                                fy__snapshot_pool_t *pool)
{
    fy_memory_stats_t *s = &pool->stats;
    const json_value_t *figures = json_member(value, "figures"),
                       *limit = json_member(figures, "limit_bytes");
    const struct {
        const char *key;
        uint64_t *value;
    } keys[] = {
        { "live_bytes", &s->live },
        { "requested_bytes", &s->requested },
        { "cached_bytes", &s->cached },
        { "pending_bytes", &s->pending },
        { "reserved_bytes", &s->reserved },
        { "peak_live_bytes", &s->peak_live },
        { "in_place_bytes", &pool->in_place },
        { "peak_reserved_bytes", &s->peak_reserved },
        { "device_allocs", &s->device_allocs },
        { "largest_free_bytes", &s->largest_free },
    };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (!json_whole(json_member(figures, keys[i].key), keys[i].value) ||
            *keys[i].value > INT64_MAX)
            return bad(reading, "its figures have no \"%s\"", keys[i].key);
    if (s->pending > s->cached || s->largest_free > s->cached)
        return bad(reading, "more of it is pending or free than is cached");
    s->limit = FY_UNLIMITED;
    if (limit && limit->kind != JSON_NULL && !json_whole(limit, &s->limit))
        return bad(reading, "its \"limit_bytes\" is no number");
    for (int i = 0; i < FY_CATEGORY_COUNT; i++) {
        const json_value_t *category =
            json_member(json_member(value, "by_category"), fy_category_name((fy_category_t)i));
        (void)json_whole(json_member(category, "live_bytes"), &s->by_category[i]);
        (void)json_whole(json_member(category, "peak_bytes"), &s->peak_by_category[i]);
        if (s->by_category[i] > INT64_MAX || s->peak_by_category[i] > INT64_MAX)
            return bad(reading, "it has no figures of \"%s\" that can be",
                       fy_category_name((fy_category_t)i));
    }
#define X(field)                                                             \
    (void)json_whole(json_member(json_member(value, "alloc_stats"), #field), \
                     &pool->alloc_stats.field);                              \
    if (pool->alloc_stats.field > INT64_MAX)                                 \
        return bad(reading, "it has no count of its \"" #field "\" that can be");
    FY__SNAPSHOT_ALLOC_STATS(X)
#undef X
    return FY_STATUS_OK;
}

static fy_status_t check_sums(const reading_t *reading, const fy__snapshot_pool_t *pool)
{
    const fy__snapshot_sums_t sums = fy__snapshot_sum(reading->to, pool);
    const uint64_t live = sums.nbytes[FY__SNAPSHOT_LIVE],
                   rest = sums.nbytes[FY__SNAPSHOT_PENDING] + sums.nbytes[FY__SNAPSHOT_FREE] +
                          sums.nbytes[FY__SNAPSHOT_THREAD_CACHED];
    if (live != pool->stats.live - pool->in_place || rest != pool->stats.cached ||
        pool->stats.reserved != live + rest + pool->in_place)
        return bad(
            reading,
            "its blocks add up to %llu live and %llu other bytes, its figures say %llu and %llu",
            (unsigned long long)live, (unsigned long long)rest,
            (unsigned long long)(pool->stats.live - pool->in_place),
            (unsigned long long)pool->stats.cached);
    return FY_STATUS_OK;
}

static fy_status_t read_pool(reading_t *reading, const json_value_t *value,
                             fy__snapshot_pool_t *pool)
{
    static const char *const kinds[] = {
#define X(name, text) #text,
        FY__SNAPSHOT_KINDS(X)
#undef X
    };
    const char *name = json_member_text(value, "pool");
    const int kind = index_of(json_member_text(value, "kind"), kinds, FY__SNAPSHOT_KIND_COUNT);
    const json_value_t *segments = list_of(value, "segments");
    uint64_t total = 0;
    if (!name) return bad(reading, "a pool has no name (\"pool\")");
    snprintf(pool->name, sizeof pool->name, "%s", name);
    reading->pool = pool->name;
    if (kind < 0) return bad(reading, "its \"kind\" is none that is known");
    if (!segments) return bad(reading, "it has no \"segments\"");
    pool->kind = (fy__snapshot_kind_t)kind;
    pool->first_segment = reading->to->nsegments;
    FY_TRY(read_figures(reading, value, pool));
    for (const json_value_t *item = segments->child; item; item = item->next, pool->nsegments++) {
        fy__snapshot_segment_t *segment = &reading->to->segments[reading->to->nsegments++];
        FY_TRY(read_segment(reading, item, segment));
        if (__builtin_add_overflow(total, segment->nbytes, &total))
            return bad(reading, "its segments are more than there can be");
    }
    FY_TRY(check_sums(reading, pool));
    reading->pool = NULL;
    return FY_STATUS_OK;
}

/* ---- the document ---- */

static void make_room(fy__snapshot_t *to, const json_value_t *pools)
{
    size_t segments = 0, blocks = 0;
    for (const json_value_t *pool = pools->child; pool; pool = pool->next) {
        const json_value_t *list = list_of(pool, "segments");
        segments += count_of(list);
        for (const json_value_t *segment = list ? list->child : NULL; segment;
             segment = segment->next)
            blocks += count_of(list_of(segment, "blocks"));
    }
    to->pools = tool_alloc(count_of(pools) * sizeof *to->pools);
    to->segments = tool_alloc(segments * sizeof *to->segments);
    to->blocks = tool_alloc(blocks * sizeof *to->blocks);
}

static fy_status_t read_document(reading_t *reading, const json_value_t *root)
{
    uint64_t version;
    const char *device = json_member_text(root, "device"),
               *model = json_member_text(root, "device_model");
    const json_value_t *pools = list_of(root, "pools");
    if (!json_whole(json_member(root, "snapshot"), &version))
        return bad(reading, "it has no \"snapshot\" with the version of its format");
    if (version != 1)
        return TOOL_FAIL(CORRUPT_DATA,
                         "%s is a snapshot of version %llu; this command reads version 1",
                         reading->path, (unsigned long long)version);
    if (!device || !pools || !pools->child)
        return bad(reading, "it has no \"device\" or no \"pools\"");
    snprintf(reading->to->device, sizeof reading->to->device, "%s", device);
    snprintf(reading->to->model, sizeof reading->to->model, "%s", model ? model : "");
    (void)json_whole(json_member(root, "process"), &reading->to->process);
    (void)json_whole(json_member(root, "unix_ns"), &reading->to->unix_ns);
    make_room(reading->to, pools);
    for (const json_value_t *item = pools->child; item; item = item->next)
        FY_TRY(read_pool(reading, item, &reading->to->pools[reading->to->npools++]));
    return FY_STATUS_OK;
}

fy_status_t snapshot_file_open(const char *path, snapshot_file_t *out_file)
{
    reading_t reading = { path, NULL, &out_file->snapshot };
    size_t line;
    *out_file = (snapshot_file_t){ .text = NULL };
    FY_TRY(text_file_read(path, "snapshot", "{", MOST_NBYTES, &out_file->text));
    if (strncmp(out_file->text, "{\"ev\"", 5) == 0)
        return TOOL_FAIL(CORRUPT_DATA,
                         "%s is no snapshot but an event file; 'ferry ledger %s' reads it", path,
                         path);
    const char *wrong = json_tree_parse(out_file->text, &out_file->tree, &line);
    if (wrong)
        return TOOL_FAIL(CORRUPT_DATA, "%s is no snapshot: as JSON it has, on line %zu, %s", path,
                         line, wrong);
    return read_document(&reading, out_file->tree.root);
}

void snapshot_file_close(snapshot_file_t *file)
{
    free(file->snapshot.pools);
    free(file->snapshot.segments);
    free(file->snapshot.blocks);
    json_tree_free(&file->tree);
    free(file->text);
    *file = (snapshot_file_t){ .text = NULL };
}

fy_status_t snapshot_file_draw(const snapshot_file_t *file, const char *path)
{
    char *text = NULL;
    size_t nbytes = 0;
    FILE *out = open_memstream(&text, &nbytes);
    if (out) fy__snapshot_write_svg(&file->snapshot, out);
    if (!tool_close_text(out, &text))
        return TOOL_FAIL(OUT_OF_MEMORY, "no memory for the picture %s", path);
    const fy_status_t status = tool_replace(path, text, nbytes);
    free(text);
    return status;
}
