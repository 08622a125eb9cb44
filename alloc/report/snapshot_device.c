/* Takes a snapshot of a device: its pool, the page-locked memory that serves it, its graphs'
 * memory. All their locks are held during the copy, in the order of the fork handlers
 * (runtime/wire.c). Slow work (allocation, texts, sorting) is done before or after. Then
 * fy_memory_snapshot writes it to a file. Not here: the copy of a pool (snapshot_take.c), the
 * formats (snapshot_json.c, snapshot_svg.c). */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "alloc/report/snapshot_take.h"
#include "runtime/base/c_locale.h"
#include "runtime/base/fail.h"
#include "runtime/base/replace.h"
#include "runtime/device/device.h"
#include "runtime/device/pin.h"
#include "runtime/record/private.h"

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

/* ---- under the locks ---- */

static void lock_one(void *user, fy__pool_t *pool)
{
    (void)user;
    fy__pool_hold(pool);
}
static void unlock_one(void *user, fy__pool_t *pool)
{
    (void)user;
    fy__pool_let_go(pool);
}
static void count(void *user, fy__pool_t *pool) { fy__taking_count(user, pool); }
static void copy_graph(void *user, fy__pool_t *pool)
{
    fy__taking_copy(user, pool, FY__SNAPSHOT_GRAPH);
}

/* false: `taking` was too small, and now has the needed sizes. */
static bool try_copy(const fy_device_t *device, fy__taking_t *taking)
{
    taking->npools = taking->nsegments = taking->nblocks = 0;
    fy__private_walk_begin();
    fy__private_each(device, lock_one, NULL);
    fy__pool_hold(device->pool);
    fy__pool_hold(device->pinned);
    fy__taking_count(taking, device->pool);
    fy__taking_count(taking, device->pinned);
    fy__private_each(device, count, taking);
    const bool fits = fy__taking_fits(taking);
    if (fits) {
        fy__taking_copy(taking, device->pool,
                        device->is_host ? FY__SNAPSHOT_HOST : FY__SNAPSHOT_DEVICE);
        fy__taking_copy(taking, device->pinned, FY__SNAPSHOT_PINNED);
        fy__private_each(device, copy_graph, taking);
    }
    fy__pool_let_go(device->pinned);
    fy__pool_let_go(device->pool);
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
static size_t collect_nodes(const fy__taking_t *taking, scope_name_t *names)
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
static bool name_scopes(const fy__taking_t *taking)
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
    fy__taking_t taking = { .to = out_snapshot };
    fy_memory_stats_t stats = FY_MEMORY_STATS_INIT;
    struct timespec now;
    bool ok = true;
    *out_snapshot = (fy__snapshot_t){ .process = (uint64_t)getpid() };
    memcpy(out_snapshot->device, device->spec, sizeof device->spec);
    memcpy(out_snapshot->model, device->info.model, sizeof device->info.model);
    fy__pool_query(device->pool, &stats); /* frees pending blocks that are done by now */
    if (device->pinned) fy__pool_query(device->pinned, &stats);
    do ok = fy__taking_make_room(&taking);
    while (ok && !try_copy(device, &taking));
    clock_gettime(CLOCK_REALTIME, &now);
    out_snapshot->unix_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    ok = ok && name_scopes(&taking);
    if (ok) {
        fy__taking_sort(&taking);
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
