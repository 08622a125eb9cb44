/* Takes a snapshot of a device: its pool, the page-locked memory that serves it, its graphs'
 * memory. In three steps: count, allocate, copy. All their locks are held while it counts and
 * copies, so that the snapshot is of one moment. Slow work (allocation, texts, sorting) is done
 * before or after. Then fy_memory_snapshot writes it to a file. Not here: the formats
 * (snapshot_json.c, snapshot_svg.c). */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "alloc/pool.h"
#include "alloc/report/snapshot.h"
#include "runtime/base/c_locale.h"
#include "runtime/base/fail.h"
#include "runtime/base/replace.h"
#include "runtime/device/device.h"
#include "runtime/device/pin.h"
#include "runtime/record/private.h"

typedef struct taking {
    fy__snapshot_t *to;
    size_t room_pools, room_segments, room_blocks; /* allocated */
    size_t npools, nsegments, nblocks;             /* needed */
    /* of to->blocks: scope nodes of the pool's blocks */
    const void **scopes;
} taking_t;

void fy__snapshot_free(fy__snapshot_t *snapshot)
{
    free(snapshot->pools);
    free(snapshot->segments);
    free(snapshot->blocks);
    free(snapshot->texts);
    snapshot->pools = NULL;
    snapshot->segments = NULL;
    snapshot->blocks = NULL;
    snapshot->texts = NULL;
    snapshot->npools = snapshot->nsegments = snapshot->nblocks = 0;
}

/* ---- the pools ---- */

/* The pool is locked. NULL is ignored. */
static void count_pool(taking_t *taking, const fy__pool_t *pool)
{
    if (!pool) return;
    taking->npools++;
    taking->nsegments += pool->offsets.range_count;
    taking->nblocks += pool->offsets.span_count;
}

/* Whether the allocated memory suffices for the counted blocks. */
static bool fits_all(const taking_t *taking)
{
    return taking->npools <= taking->room_pools && taking->nsegments <= taking->room_segments &&
           taking->nblocks <= taking->room_blocks;
}

/* The pools are not locked. Allocates memory for the counted blocks and some more, drops the copy;
 * false: no memory. */
static bool make_room(taking_t *taking)
{
    fy__snapshot_t *to = taking->to;
    fy__snapshot_free(to);
    free(taking->scopes);
    taking->room_pools = taking->npools + 4;
    taking->room_segments = taking->nsegments + taking->nsegments / 8 + 64;
    taking->room_blocks = taking->nblocks + taking->nblocks / 8 + 256;
    to->pools = calloc(taking->room_pools, sizeof *to->pools);
    to->segments = calloc(taking->room_segments, sizeof *to->segments);
    to->blocks = calloc(taking->room_blocks, sizeof *to->blocks);
    taking->scopes = calloc(taking->room_blocks, sizeof *taking->scopes);
    return to->pools && to->segments && to->blocks && taking->scopes;
}

static void copy_streams(const fy__hazard_t *hazard, fy__snapshot_block_t *block)
{
    _Static_assert(FY__SNAPSHOT_STREAMS >= 1 + FY__READER_COUNT,
                   "a block may be pending on as many streams as a hazard has words");
    for (int i = 0; i < 1 + FY__READER_COUNT; i++) {
        const fy__point_t point = atomic_load_explicit(
            i ? &hazard->readers[i - 1] : &hazard->writer, memory_order_relaxed);
        const uint16_t stream = (uint16_t)FY__POINT_STREAM(point);
        int k = 0;
        while (k < block->nstreams && block->streams[k] != stream) k++;
        if (stream && k == block->nstreams) block->streams[block->nstreams++] = stream;
    }
}

/* The owner frees the block under the pool's lock before it releases the object of `users`. */
static bool is_thread_cached(const fy__block_t *block)
{
    const _Atomic uint32_t *users = atomic_load_explicit(&block->users, memory_order_acquire);
    return users && atomic_load_explicit(users, memory_order_relaxed) == 0;
}

/* A taken span has an id, unless it is off its list while its last use is polled: then it is
 * pending. */
static void copy_block(fy__snapshot_pool_t *pool, const fy__pool_node_t *node,
                       fy__snapshot_block_t *block, const void **scope)
{
    *block = (fy__snapshot_block_t){ .offset = node->span.offset - node->span.range->offset,
                                     .nbytes = node->span.size.nbytes };
    block->category = FY__SNAPSHOT_NO_CATEGORY;
    *scope = NULL;
    if (node->span.list == FY__LIST_FREE) {
        block->state = FY__SNAPSHOT_FREE;
    } else if (node->span.list != FY__SPAN_TAKEN || !node->block.id) {
        block->state = FY__SNAPSHOT_PENDING;
        copy_streams(&node->block.hazard, block);
    } else if (is_thread_cached(&node->block)) {
        block->state = FY__SNAPSHOT_THREAD_CACHED;
        pool->stats.live -= block->nbytes;
        pool->stats.requested -= node->counted;
        pool->stats.cached += block->nbytes;
        pool->stats.by_category[node->block.tag.category] -= block->nbytes;
    } else {
        block->state = FY__SNAPSHOT_LIVE;
        block->requested = node->counted;
        block->id = node->block.id;
        block->category = (uint8_t)node->block.tag.category;
        *scope = node->block.tag.scope;
    }
}

static void copy_figures(fy__snapshot_pool_t *to, const fy__pool_t *pool)
{
    to->stats = fy__pool_figures(pool);
    to->alloc_stats = pool->stats;
    to->alloc_stats.struct_size = sizeof to->alloc_stats;
}

/* The pool is locked, and the blocks fit. NULL is ignored. */
static void copy_pool(taking_t *taking, const fy__pool_t *pool, fy__snapshot_kind_t kind)
{
    fy__snapshot_t *to = taking->to;
    if (!pool) return;
    fy__snapshot_pool_t *copy = &to->pools[to->npools++];
    *copy = (fy__snapshot_pool_t){ .kind = kind, .first_segment = to->nsegments };
    memcpy(copy->name, pool->name, sizeof pool->name);
    copy_figures(copy, pool);
    for (const fy__range_t *range = pool->offsets.ranges; range; range = range->next) {
        fy__snapshot_segment_t *segment = &to->segments[to->nsegments++];
        copy->nsegments++;
        *segment = (fy__snapshot_segment_t){ range->offset, range->nbytes, to->nblocks, 0 };
        for (const fy__span_t *span = range->first; span;
             span = span->next, to->nblocks++, segment->nblocks++)
            copy_block(copy, (const fy__pool_node_t *)span, &to->blocks[to->nblocks],
                       &taking->scopes[to->nblocks]);
    }
}

static int by_address(const void *a, const void *b)
{
    const fy__snapshot_segment_t *left = a, *right = b;
    return left->address < right->address ? -1 : left->address > right->address;
}

/* Sorts segments by address. */
static void sort_segments(taking_t *taking)
{
    for (size_t i = 0; i < taking->to->npools; i++)
        qsort(taking->to->segments + taking->to->pools[i].first_segment,
              taking->to->pools[i].nsegments, sizeof *taking->to->segments, by_address);
}

/* ---- under the locks ---- */

/* Several are locked in the order of the fork handlers (runtime/wire.c). NULL is ignored. */
static void lock_one(void *user, fy__pool_t *pool)
{
    (void)user;
    if (pool) pthread_mutex_lock(&pool->lock);
}
static void unlock_one(void *user, fy__pool_t *pool)
{
    (void)user;
    if (pool) pthread_mutex_unlock(&pool->lock);
}
static void count(void *user, fy__pool_t *pool) { count_pool(user, pool); }
static void copy_graph(void *user, fy__pool_t *pool) { copy_pool(user, pool, FY__SNAPSHOT_GRAPH); }

/* false: `taking` was too small, and now has the needed sizes. */
static bool try_copy(const fy_device_t *device, taking_t *taking)
{
    taking->npools = taking->nsegments = taking->nblocks = 0;
    fy__private_walk_begin();
    fy__private_each(device, lock_one, NULL);
    lock_one(NULL, device->pool);
    lock_one(NULL, device->pinned);
    count_pool(taking, device->pool);
    count_pool(taking, device->pinned);
    fy__private_each(device, count, taking);
    const bool fits = fits_all(taking);
    if (fits) {
        copy_pool(taking, device->pool, device->is_host ? FY__SNAPSHOT_HOST : FY__SNAPSHOT_DEVICE);
        copy_pool(taking, device->pinned, FY__SNAPSHOT_PINNED);
        fy__private_each(device, copy_graph, taking);
    }
    unlock_one(NULL, device->pinned);
    unlock_one(NULL, device->pool);
    fy__private_each(device, unlock_one, NULL);
    fy__private_walk_end();
    return fits;
}

/* ---- names of scopes ---- */

typedef struct scope_name {
    const void *node;
    const char *path;
} scope_name_t;

static int by_node(const void *a, const void *b)
{
    const uintptr_t left = (uintptr_t)((const scope_name_t *)a)->node,
                    right = (uintptr_t)((const scope_name_t *)b)->node;
    return left < right ? -1 : left > right;
}

/* Each node once, sorted. */
static size_t collect_nodes(const taking_t *taking, scope_name_t *names)
{
    size_t n = 0, unique = 0;
    for (size_t i = 0; i < taking->to->nblocks; i++)
        if (taking->scopes[i] && (!n || names[n - 1].node != taking->scopes[i]))
            names[n++].node = taking->scopes[i];
    qsort(names, n, sizeof *names, by_node);
    for (size_t i = 0; i < n; i++)
        if (!unique || names[unique - 1].node != names[i].node)
            names[unique++].node = names[i].node;
    return unique;
}

/* Nodes are never freed, so their paths can be read after the locks are released. */
static bool name_scopes(const taking_t *taking)
{
    char path[FY__SNAPSHOT_PATH];
    fy__snapshot_t *to = taking->to;
    size_t nbytes = 0, used = 0;
    scope_name_t *names = calloc(to->nblocks + 1, sizeof *names);
    if (!names) return false;
    const size_t n = collect_nodes(taking, names);
    for (size_t i = 0; i < n; i++)
        nbytes += strlen(fy__scope_path(names[i].node, path, sizeof path)) + 1;
    char *texts = to->texts = malloc(nbytes + 1);
    for (size_t i = 0; texts && i < n; i++) {
        names[i].path = strcpy(texts + used, fy__scope_path(names[i].node, path, sizeof path));
        used += strlen(names[i].path) + 1;
    }
    for (size_t i = 0; texts && i < to->nblocks; i++) {
        const scope_name_t key = { taking->scopes[i], NULL };
        const scope_name_t *found = key.node ? bsearch(&key, names, n, sizeof *names, by_node)
                                             : NULL;
        to->blocks[i].scope = found ? found->path : NULL;
    }
    free(names);
    return texts != NULL;
}

/* ---- the whole snapshot ---- */

fy_status_t fy__snapshot_take(const fy_device_t *device, fy__snapshot_t *out_snapshot)
{
    taking_t taking = { .to = out_snapshot };
    fy_memory_stats_t stats = FY_MEMORY_STATS_INIT;
    struct timespec now;
    bool ok = true;
    *out_snapshot = (fy__snapshot_t){ .process = (uint64_t)getpid() };
    memcpy(out_snapshot->device, device->spec, sizeof device->spec);
    memcpy(out_snapshot->model, device->info.model, sizeof device->info.model);
    fy__pool_query(device->pool, &stats); /* frees pending blocks that are done by now */
    if (device->pinned) fy__pool_query(device->pinned, &stats);
    do ok = make_room(&taking);
    while (ok && !try_copy(device, &taking));
    clock_gettime(CLOCK_REALTIME, &now);
    out_snapshot->unix_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    ok = ok && name_scopes(&taking);
    if (ok) {
        sort_segments(&taking);
        if (device->pinned)
            out_snapshot->pools[1].in_place =
                fy__pin_add_outside(device, &out_snapshot->pools[1].stats);
    } else
        fy__snapshot_free(out_snapshot);
    free(taking.scopes);
    return ok ? FY_STATUS_OK
              : FY_FAIL(OUT_OF_MEMORY,
                        "memory_snapshot: no host memory for a copy of %zu blocks of %s",
                        taking.nblocks, device->spec);
}

/* ---- the file, complete or not at all (runtime/base/replace.h) ---- */

static void write_all(const fy__snapshot_t *snapshot, fy_snapshot_format_t format, FILE *file)
{
    if (format == FY_SNAPSHOT_SVG)
        fy__snapshot_write_svg(snapshot, file);
    else
        fy__snapshot_write_json(snapshot, file);
}

/* Writes through a duplicate of the descriptor, because fclose closes it. Returns 0 or errno. */
static int write_to(const fy__snapshot_t *snapshot, fy_snapshot_format_t format, int begun)
{
    const int fd = fcntl(begun, F_DUPFD_CLOEXEC, 0);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "w");
    if (!file) {
        const int error = errno;
        if (fd >= 0) close(fd);
        return error;
    }
    errno = 0;
    write_all(snapshot, format, file);
    int error = ferror(file) ? (errno ? errno : EIO) : 0;
    if (fclose(file) != 0 && !error) error = errno;
    return error;
}

fy_status_t fy_memory_snapshot(const fy_device_t *device, const char *path,
                               fy_snapshot_format_t format)
{
    fy__snapshot_t snapshot;
    fy__replace_t replace;
    if (!device) return FY_FAIL(INVALID_ARGUMENT, "memory_snapshot: device is NULL");
    if (!path || !*path)
        return FY_FAIL(INVALID_ARGUMENT, "memory_snapshot: path is %s", path ? "empty" : "NULL");
    if ((unsigned)format > FY_SNAPSHOT_SVG)
        return FY_FAIL(INVALID_ARGUMENT,
                       "memory_snapshot: format %d is none of FY_SNAPSHOT_JSON, _SVG", (int)format);
    FY_TRY(fy__snapshot_take(device, &snapshot));
    int error = fy__replace_begin(&replace, path);
    if (!error && (error = write_to(&snapshot, format, replace.fd)))
        fy__replace_abort(&replace);
    else if (!error)
        error = fy__replace_commit(&replace);
    fy__snapshot_free(&snapshot);
    return error
               ? FY_FAIL(IO, "memory_snapshot: cannot write %.300s: %s", path, fy__strerror(error))
               : FY_STATUS_OK;
}
