/* Sums over the blocks of a snapshot. Plain data in, plain data out; the `ferry` command compiles
 * this as well. */
#include <stdlib.h>
#include <string.h>

#include "alloc/report/snapshot.h"

fy__snapshot_sums_t fy__snapshot_sum(const fy__snapshot_t *snapshot,
                                     const fy__snapshot_pool_t *pool)
{
    fy__snapshot_sums_t sums = { .nsegments = pool->nsegments };
    for (size_t i = 0; i < pool->nsegments; i++) {
        const fy__snapshot_segment_t *segment = &snapshot->segments[pool->first_segment + i];
        const fy__snapshot_block_t *blocks = fy__snapshot_blocks_of(snapshot, segment);
        for (size_t k = 0; k < segment->nblocks; k++) {
            sums.nbytes[blocks[k].state] += blocks[k].nbytes;
            sums.count[blocks[k].state]++;
            if (blocks[k].state != FY__SNAPSHOT_LIVE) continue;
            sums.requested += blocks[k].requested;
            sums.by_category[blocks[k].category] += blocks[k].nbytes;
        }
    }
    return sums;
}

static int by_path(const void *a, const void *b)
{
    return strcmp(((const fy__snapshot_scope_t *)a)->path, ((const fy__snapshot_scope_t *)b)->path);
}

static int largest_first(const void *a, const void *b)
{
    const fy__snapshot_scope_t *left = a, *right = b;
    if (left->live != right->live) return left->live > right->live ? -1 : 1;
    return by_path(a, b);
}

size_t fy__snapshot_scopes(const fy__snapshot_t *snapshot, const fy__snapshot_pool_t *pool,
                           fy__snapshot_scope_t **out_scopes)
{
    size_t room = 0, n = 0, unique = 0;
    for (size_t i = 0; i < pool->nsegments; i++)
        room += snapshot->segments[pool->first_segment + i].nblocks;
    fy__snapshot_scope_t *scopes = *out_scopes = malloc((room + 1) * sizeof *scopes);
    for (size_t i = 0; scopes && i < pool->nsegments; i++) {
        const fy__snapshot_segment_t *segment = &snapshot->segments[pool->first_segment + i];
        const fy__snapshot_block_t *blocks = fy__snapshot_blocks_of(snapshot, segment);
        for (size_t k = 0; k < segment->nblocks; k++)
            if (blocks[k].scope)
                scopes[n++] = (fy__snapshot_scope_t){ blocks[k].scope, blocks[k].nbytes, 1 };
    }
    if (n) qsort(scopes, n, sizeof *scopes, by_path);
    for (size_t i = 0; i < n; i++) {
        if (!unique || by_path(&scopes[unique - 1], &scopes[i]) != 0) {
            scopes[unique++] = scopes[i];
            continue;
        }
        scopes[unique - 1].live += scopes[i].live;
        scopes[unique - 1].blocks++;
    }
    if (unique) qsort(scopes, unique, sizeof *scopes, largest_first);
    return unique;
}
