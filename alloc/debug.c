/* Poison, guards, ASan, regions. A block with guards has the layout
 *   | granule of FD | requested bytes | FD ... to the end of the span |
 * Its bytes get the pattern GONE only after its last use: until then a transfer may read them. A
 * broken guard is logged once, when the block is freed or when fy__pool_check finds it. */
#include "alloc/debug.h"

#include <stdio.h>
#include <string.h>

#include "runtime/base/asan.h"
#include "runtime/base/checked.h"
#include "runtime/base/fail.h"

enum { BEHIND_LEAST = 16, SAID_AT_ONCE = 8 };

uint32_t fy__debug_of(const fy__pool_options_t *options, const fy__segment_source_t *source)
{
    if (!options->host_reaches) return source->region ? FY__DEBUG_REGIONS : 0;
    return (options->debug & (FY__DEBUG_POISON | FY__DEBUG_GUARD)) |
           (FY__HAS_ASAN ? FY__DEBUG_ASAN : 0u);
}

static inline uint64_t before(const fy__pool_t *pool)
{
    return pool->debug & FY__DEBUG_GUARD ? pool->source.alignment : 0;
}

FY_COLD void fy__debug_ask(const fy__pool_t *pool, fy__request_t *request)
{
    const uint64_t guards =
        pool->debug & (FY__DEBUG_GUARD | FY__DEBUG_REGIONS) ? before(pool) + BEHIND_LEAST : 0;
    uint64_t nbytes;
    const bool fits = fy__add_u64(request->asked, guards, &nbytes) &&
                      fy__round_up_u64(nbytes, pool->source.alignment, &nbytes);
    request->nbytes = fits ? nbytes : request->asked; /* too large in any case */
    if (pool->debug & FY__DEBUG_REGIONS) request->stream = 0;
}

/* Its scope's path and category: "train/forward activations". */
static void report_region(const fy__pool_t *pool, const fy__pool_node_t *node)
{
    char path[128], name[sizeof path + 32];
    fy__scope_path(node->block.tag.scope, path, sizeof path);
    snprintf(name, sizeof name, "%s%s%s", path, *path ? " " : "",
             fy_category_name(node->block.tag.category));
    pool->source.region(pool->source.region_dev, node->block.address, node->counted, name);
}

void fy__debug_hand_out(const fy__pool_t *pool, fy__pool_node_t *node)
{
    if (pool->debug & FY__DEBUG_REGIONS) {
        report_region(pool, node);
        return;
    }
    uint8_t *start = (uint8_t *)(uintptr_t)node->span.offset, *bytes = start + before(pool),
            *end = start + node->span.size.nbytes;
    node->block.address = bytes;
    node->is_broken = false;
    fy__asan_allow(start, node->span.size.nbytes);
    if (pool->debug & FY__DEBUG_GUARD) {
        memset(start, FY__BYTE_GUARD, (size_t)(bytes - start));
        memset(bytes + node->counted, FY__BYTE_GUARD, (size_t)(end - bytes) - node->counted);
    }
    if (pool->debug & FY__DEBUG_POISON) memset(bytes, FY__BYTE_FRESH, node->counted);
    fy__asan_forbid(start, (size_t)(bytes - start));
    fy__asan_forbid(bytes + node->counted, (size_t)(end - bytes) - node->counted);
}

void fy__debug_gone(const fy__pool_t *pool, const fy__pool_node_t *node)
{
    void *start = (void *)(uintptr_t)node->span.offset;
    if (pool->debug & FY__DEBUG_REGIONS) {
        pool->source.region(pool->source.region_dev, start, node->counted, NULL);
        return;
    }
    if (pool->debug & FY__DEBUG_POISON) {
        fy__asan_allow(start, node->span.size.nbytes);
        memset(start, FY__BYTE_GONE, node->span.size.nbytes);
    }
    fy__asan_forbid(start, node->span.size.nbytes);
}

void fy__debug_segment(const fy__pool_t *pool, const fy__range_t *range, bool is_new)
{
    if (pool->debug & FY__DEBUG_REGIONS) return; /* the backend tracks its segments itself */
    if (is_new)
        fy__asan_forbid((void *)(uintptr_t)range->offset, range->nbytes);
    else
        fy__asan_allow((void *)(uintptr_t)range->offset, range->nbytes);
}

/* ---- guards ---- */

/* An overwritten guard. */
typedef struct broken {
    uint64_t id, asked;
    int64_t at; /* first bad byte, relative to the block's first */
    uint8_t byte;
    const void *scope;
} broken_t;

static bool find_bad(const uint8_t *from, const uint8_t *end, const uint8_t *bytes, broken_t *out)
{
    for (; from < end; from++)
        if (*from != FY__BYTE_GUARD) {
            out->at = from - bytes;
            out->byte = *from;
            return true;
        }
    return false;
}

static bool is_broken(const fy__pool_t *pool, const fy__pool_node_t *node, broken_t *out)
{
    const uint8_t *start = (const uint8_t *)(uintptr_t)node->span.offset,
                  *bytes = start + before(pool);
    const uint8_t *end = start + node->span.size.nbytes, *behind = bytes + node->counted;
    *out =
        (broken_t){ .id = node->block.id, .asked = node->counted, .scope = node->block.tag.scope };
    fy__asan_allow(start, (size_t)(bytes - start));
    fy__asan_allow(behind, (size_t)(end - behind));
    const bool found = find_bad(start, bytes, bytes, out) || find_bad(behind, end, bytes, out);
    fy__asan_forbid(start, (size_t)(bytes - start));
    fy__asan_forbid(behind, (size_t)(end - behind));
    return found;
}

static FY_COLD void log_broken(const fy__pool_t *pool, const broken_t *broken)
{
    char path[128];
    fy_log_write(FY_LOG_ERROR,
                 "%s: block %llu of %llu bytes, made in '%s', was written %s: byte %lld is 0x%02x",
                 pool->name, (unsigned long long)broken->id, (unsigned long long)broken->asked,
                 broken->scope ? fy__scope_path(broken->scope, path, sizeof path) : "",
                 broken->at < 0 ? "before its beginning" : "past its end", (long long)broken->at,
                 broken->byte);
}

void fy__debug_check(fy__pool_t *pool, fy__pool_node_t *node)
{
    broken_t broken;
    if (!(pool->debug & FY__DEBUG_GUARD)) return;
    /* fy__pool_check may read it as well, and a check lifts AddressSanitizer's protection
     * meanwhile */
    pthread_mutex_lock(&pool->lock);
    const bool is_news = is_broken(pool, node, &broken) && !node->is_broken;
    if (is_news) node->is_broken = true;
    pool->broken_count += is_news;
    pthread_mutex_unlock(&pool->lock);
    if (is_news) log_broken(pool, &broken);
}

uint64_t fy__pool_check(fy__pool_t *pool)
{
    broken_t found[SAID_AT_ONCE];
    int count = 0;
    pthread_mutex_lock(&pool->lock);
    for (const fy__range_t *range = pool->offsets.ranges; range && pool->debug & FY__DEBUG_GUARD;
         range = range->next)
        for (fy__span_t *span = range->first; span; span = span->next) {
            fy__pool_node_t *node = fy__node_of(span);
            broken_t broken;
            if (span->list != FY__SPAN_TAKEN || !node->block.id || node->is_broken ||
                !is_broken(pool, node, &broken))
                continue;
            node->is_broken = true;
            pool->broken_count++;
            if (count < SAID_AT_ONCE) found[count++] = broken;
        }
    const uint64_t all = pool->broken_count;
    pthread_mutex_unlock(&pool->lock);
    for (int i = 0; i < count; i++) log_broken(pool, &found[i]);
    return all;
}
