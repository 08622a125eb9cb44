/* A snapshot as JSON: docs/internals/snapshot.md documents the format. One line for each block, for
 * line tools. Not here: the file (snapshot_device.c). tools/cli/snapshot_file.c reads it. */
#include <inttypes.h>

#include "alloc/report/snapshot.h"
#include "runtime/base/json.h"

static void put_text(FILE *file, const char *text)
{
    char quoted[6 * FY__SNAPSHOT_PATH + 2];
    fwrite(quoted, 1, fy__json_quote(text, quoted, sizeof quoted), file);
}

static void put_limit(FILE *file, uint64_t limit)
{
    if (limit == FY_UNLIMITED)
        fputs("null", file);
    else
        fprintf(file, "%" PRIu64, limit);
}

static void put_figures(FILE *file, const fy__snapshot_pool_t *pool)
{
    const fy_memory_stats_t *s = &pool->stats;
    fprintf(file,
            "\n   \"figures\": {\"live_bytes\": %" PRIu64 ", \"requested_bytes\": %" PRIu64
            ", \"cached_bytes\": %" PRIu64 ", \"pending_bytes\": %" PRIu64
            ", \"reserved_bytes\": %" PRIu64 ", \"peak_live_bytes\": %" PRIu64
            ", \"peak_reserved_bytes\": %" PRIu64 ", \"largest_free_bytes\": %" PRIu64
            ", \"in_place_bytes\": %" PRIu64 ", \"device_allocs\": %" PRIu64 ", \"limit_bytes\": ",
            s->live, s->requested, s->cached, s->pending, s->reserved, s->peak_live,
            s->peak_reserved, s->largest_free, pool->in_place, s->device_allocs);
    put_limit(file, s->limit);
    fputs("},", file);
}

static void put_categories(FILE *file, const fy_memory_stats_t *stats)
{
    fputs("\n   \"by_category\": {", file);
    for (int i = 0; i < FY_CATEGORY_COUNT; i++)
        fprintf(file, "%s\"%s\": {\"live_bytes\": %" PRIu64 ", \"peak_bytes\": %" PRIu64 "}",
                i ? ", " : "", fy_category_name((fy_category_t)i), stats->by_category[i],
                stats->peak_by_category[i]);
    fputs("},", file);
}

static void put_stats(FILE *file, const fy_memory_alloc_stats_t *alloc_stats)
{
    const char *comma = "";
    fputs("\n   \"alloc_stats\": {", file);
#define X(field)                                                            \
    fprintf(file, "%s\"" #field "\": %" PRIu64, comma, alloc_stats->field); \
    comma = ", ";
    FY__SNAPSHOT_ALLOC_STATS(X)
#undef X
    fputs("},", file);
}

static void put_block(FILE *file, const fy__snapshot_block_t *block)
{
    fprintf(file, "\n     {\"offset\": %" PRIu64 ", \"bytes\": %" PRIu64 ", \"state\": \"%s\"",
            block->offset, block->nbytes, fy__snapshot_state_name(block->state));
    if (block->state == FY__SNAPSHOT_LIVE)
        fprintf(file, ", \"requested_bytes\": %" PRIu64 ", \"block\": %" PRIu64, block->requested,
                block->id);
    if (block->category < FY_CATEGORY_COUNT)
        fprintf(file, ", \"category\": \"%s\"", fy_category_name((fy_category_t)block->category));
    if (block->scope) {
        fputs(", \"scope\": ", file);
        put_text(file, block->scope);
    }
    if (block->nstreams) {
        fputs(", \"streams\": [", file);
        for (int i = 0; i < block->nstreams; i++)
            fprintf(file, "%s%d", i ? ", " : "", block->streams[i]);
        fputc(']', file);
    }
    fputc('}', file);
}

static void put_segment(FILE *file, const fy__snapshot_t *snapshot,
                        const fy__snapshot_segment_t *segment)
{
    const fy__snapshot_block_t *blocks = fy__snapshot_blocks_of(snapshot, segment);
    fprintf(file, "\n    {\"address\": \"0x%" PRIx64 "\", \"bytes\": %" PRIu64 ", \"blocks\": [",
            segment->address, segment->nbytes);
    for (size_t i = 0; i < segment->nblocks; i++) {
        if (i) fputc(',', file);
        put_block(file, &blocks[i]);
    }
    fputs("]}", file);
}

static void put_pool(FILE *file, const fy__snapshot_t *snapshot, const fy__snapshot_pool_t *pool)
{
    static const char *const kinds[] = {
#define X(name, text) #text,
        FY__SNAPSHOT_KINDS(X)
#undef X
    };
    fputs("\n  {\"pool\": ", file);
    put_text(file, pool->name);
    fprintf(file, ", \"kind\": \"%s\",", kinds[pool->kind]);
    put_figures(file, pool);
    put_categories(file, &pool->stats);
    put_stats(file, &pool->alloc_stats);
    fputs("\n   \"segments\": [", file);
    for (size_t i = 0; i < pool->nsegments; i++) {
        if (i) fputc(',', file);
        put_segment(file, snapshot, &snapshot->segments[pool->first_segment + i]);
    }
    fputs("]}", file);
}

void fy__snapshot_write_json(const fy__snapshot_t *snapshot, FILE *file)
{
    fprintf(file,
            "{\"snapshot\": 1, \"library\": \"%s\", \"process\": %" PRIu64 ", \"unix_ns\": %" PRIu64
            ",\n \"device\": ",
            FERRY_VERSION, snapshot->process, snapshot->unix_ns);
    put_text(file, snapshot->device);
    fputs(", \"device_model\": ", file);
    put_text(file, snapshot->model);
    fputs(",\n \"pools\": [", file);
    for (size_t i = 0; i < snapshot->npools; i++) {
        if (i) fputc(',', file);
        put_pool(file, snapshot, &snapshot->pools[i]);
    }
    fputs("]}\n", file);
}
