/* Snapshots: a file agrees with the figures, block by block; it shows one moment while other
 * threads work; no incomplete file stays.
 * Not here: files that are not snapshots (tests/unit/tools/test_snapshot_file.c), pictures
 * (tests/unit/alloc/test_snapshot_svg.c). */
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/harness.h"
#include "tools/cli/snapshot_file.h"

static char folder[] = "/tmp/ferry-snapshot-XXXXXX";
static char path[64];

static snapshot_file_t taken(const fy_device_t *device)
{
    snapshot_file_t file;
    ts_ok(fy_memory_snapshot(device, path, FY_SNAPSHOT_JSON));
    /* the reader checks that blocks fill segments and that sums equal the figures */
    ts_ok(snapshot_file_open(path, &file));
    return file;
}

static const fy__snapshot_pool_t *pool_of(const snapshot_file_t *file, fy__snapshot_kind_t kind)
{
    for (size_t i = 0; i < file->snapshot.npools; i++)
        if (file->snapshot.pools[i].kind == kind) return &file->snapshot.pools[i];
    return NULL;
}

static const fy__snapshot_pool_t *main_pool(const ts_ctx_t *ctx, const snapshot_file_t *file)
{
    const fy__snapshot_pool_t *pool =
        pool_of(file, ctx->is_host ? FY__SNAPSHOT_HOST : FY__SNAPSHOT_DEVICE);
    assert_non_null(pool);
    return pool;
}

/* Returns the live block of that size; NULL: none. */
static const fy__snapshot_block_t *block_of(const snapshot_file_t *file,
                                            const fy__snapshot_pool_t *pool, uint64_t requested)
{
    for (size_t i = 0; i < pool->nsegments; i++) {
        const fy__snapshot_segment_t *segment = &file->snapshot.segments[pool->first_segment + i];
        for (size_t k = 0; k < segment->nblocks; k++) {
            const fy__snapshot_block_t *block =
                &fy__snapshot_blocks_of(&file->snapshot, segment)[k];
            if (block->state == FY__SNAPSHOT_LIVE && block->requested == requested) return block;
        }
    }
    return NULL;
}

static void expect_figures(const fy__snapshot_pool_t *pool, const fy_memory_stats_t *stats,
                           int is_host)
{
    assert_int_equal(pool->stats.live, stats->live);
    /* the snapshot of the host is more exact */
    if (!is_host) assert_int_equal(pool->stats.requested, stats->requested);
    assert_int_equal(pool->stats.cached, stats->cached);
    assert_int_equal(pool->stats.pending, stats->pending);
    assert_int_equal(pool->stats.reserved, stats->reserved);
    assert_int_equal(pool->stats.peak_live, stats->peak_live);
    assert_int_equal(pool->stats.peak_reserved, stats->peak_reserved);
    assert_int_equal(pool->stats.largest_free, stats->largest_free);
    assert_int_equal(pool->stats.device_allocs, stats->device_allocs);
    assert_true(pool->stats.limit == stats->limit);
    assert_memory_equal(pool->stats.by_category, stats->by_category, sizeof stats->by_category);
    assert_memory_equal(pool->stats.peak_by_category, stats->peak_by_category,
                        sizeof stats->peak_by_category);
}

TS_DEVICE_TEST(sums_equal_the_figures)
{
    fy_tensor_t *tensors[40];
    for (int i = 0; i < 40; i++)
        ts_ok(fy_tensor_create(ctx->device, FY_DTYPE_U8, FY_DIMS(1 + i * i * 977), &tensors[i]));
    for (int i = 0; i < 40; i += 3) fy_tensor_destroy(tensors[i]);
    ts_ok(fy_device_wait(ctx->device, FY_FOREVER));
    snapshot_file_t file = taken(ctx->device);
    const fy_memory_stats_t stats = ts_memory(ctx->device, NULL);
    const fy__snapshot_pool_t *pool = main_pool(ctx, &file);
    expect_figures(pool, &stats, ctx->is_host);
    const fy__snapshot_sums_t sums = fy__snapshot_sum(&file.snapshot, pool);
    assert_int_equal(sums.nbytes[FY__SNAPSHOT_LIVE], stats.live);
    assert_int_equal(sums.nbytes[FY__SNAPSHOT_PENDING], stats.pending);
    assert_int_equal(sums.nbytes[FY__SNAPSHOT_PENDING] + sums.nbytes[FY__SNAPSHOT_FREE] +
                         sums.nbytes[FY__SNAPSHOT_THREAD_CACHED],
                     stats.cached);
    assert_memory_equal(sums.by_category, stats.by_category,
                        FY_CATEGORY_COUNT * sizeof stats.by_category[0]);
    assert_int_equal(sums.requested, pool->stats.requested);
    /* the small ones that were freed */
    if (ctx->is_host) assert_true(sums.nbytes[FY__SNAPSHOT_THREAD_CACHED] > 0);
    const fy_memory_stats_t pinned = ts_memory_pinned(ctx->device);
    if (!ctx->is_host) expect_figures(pool_of(&file, FY__SNAPSHOT_PINNED), &pinned, 0);
    assert_string_equal(file.snapshot.device, ts_spec_name(ctx->spec));
    assert_int_equal(file.snapshot.process, getpid());
    snapshot_file_close(&file);
}

TS_DEVICE_TEST(a_block_has_its_attributes)
{
    fy_scope_t scope = fy_scope_begin("mo\"del\n<&>");
    ts_ok(fy_scope_memory(FY_CATEGORY_WEIGHTS));
    fy_tensor_t *weights = ts_bytes(ctx->device, 123457), *rest;
    fy_tensor_keep(weights);
    fy_scope_end(scope, 0, NULL);
    ts_ok(fy_tensor_create(ctx->device, FY_DTYPE_U8, FY_DIMS(65537), &rest));
    snapshot_file_t file = taken(ctx->device);
    const fy__snapshot_block_t *block = block_of(&file, main_pool(ctx, &file), 123457),
                               *other = block_of(&file, main_pool(ctx, &file), 65537);
    assert_non_null(block);
    assert_true(block->nbytes >= 123457);
    assert_int_equal(block->category, FY_CATEGORY_WEIGHTS);
    assert_non_null(block->scope);
    assert_string_equal(block->scope, "test/mo\"del\n<&>");
    assert_non_null(other);
    assert_int_equal(other->category, FY_CATEGORY_ACTIVATIONS);
    assert_true(other->id > block->id);
    snapshot_file_close(&file);
    fy_tensor_destroy(weights);
    file = taken(ctx->device);
    assert_null(block_of(&file, main_pool(ctx, &file), 123457));
    snapshot_file_close(&file);
}

TS_DEVICE_TEST(pending_blocks_name_their_streams)
{
    fy_tensor_t *a = ts_iota(ctx->device, FY_DIMS(512, 512), 0), *b;
    ts_ok(fy_matmul(a, a, &b));
    fy_tensor_destroy(b);
    snapshot_file_t file = taken(ctx->device);
    const fy__snapshot_pool_t *pool = main_pool(ctx, &file);
    uint64_t pending = 0;
    for (size_t i = 0; i < file.snapshot.nblocks; i++) {
        const fy__snapshot_block_t *block = &file.snapshot.blocks[i];
        if (block->state != FY__SNAPSHOT_PENDING) continue;
        pending += block->nbytes;
        assert_true(block->nstreams >= 1);
        assert_true(block->streams[0] > 0);
    }
    assert_true(pending >= 512 * 512 * 4);
    assert_int_equal(pool->stats.pending,
                     fy__snapshot_sum(&file.snapshot, pool).nbytes[FY__SNAPSHOT_PENDING]);
    snapshot_file_close(&file);
}

TS_DEVICE_TEST(a_graph_is_shown_in_detail)
{
    fy_tensor_t *a = ts_iota(ctx->device, FY_DIMS(100, 100), 0), *b;
    ts_ok(fy_graph_begin(ctx->device));
    ts_ok(fy_matmul(a, a, &b));
    (void)ts_graph_end();
    snapshot_file_t file = taken(ctx->device);
    const fy__snapshot_pool_t *pool = main_pool(ctx, &file),
                              *inside = pool_of(&file, FY__SNAPSHOT_GRAPH);
    assert_non_null(inside);
    assert_non_null(block_of(&file, inside, 100 * 100 * 4));
    /* each lies in one live block of the device's */
    for (size_t i = 0; i < inside->nsegments; i++) {
        const fy__snapshot_segment_t *segment = &file.snapshot.segments[inside->first_segment + i];
        bool found = false;
        for (size_t k = 0; k < pool->nsegments; k++) {
            const fy__snapshot_segment_t *outer = &file.snapshot.segments[pool->first_segment + k];
            for (size_t j = 0; j < outer->nblocks; j++) {
                const fy__snapshot_block_t *block =
                    &fy__snapshot_blocks_of(&file.snapshot, outer)[j];
                found |= block->state == FY__SNAPSHOT_LIVE &&
                         segment->address == outer->address + block->offset &&
                         segment->nbytes <= block->nbytes;
            }
        }
        assert_true(found);
    }
    snapshot_file_close(&file);
}

/* ---- while others allocate ---- */

static _Atomic int stop;
static fy_device_t *busy_device;

static void *allocate(void *seed)
{
    unsigned state = (unsigned)(uintptr_t)seed;
    fy_scope_t scope = fy_scope_begin("busy");
    fy_tensor_t *tensors[64] = { NULL };
    while (!stop) {
        state = state * 1103515245u + 12345u;
        fy_tensor_t **slot = &tensors[state >> 16 & 63];
        if (*slot)
            fy_tensor_destroy(*slot), *slot = NULL;
        else if (fy_tensor_create(busy_device, FY_DTYPE_U8, FY_DIMS(1 + (state >> 8) % 300000),
                                  slot) != FY_STATUS_OK)
            return seed;
    }
    fy_scope_end(scope, 0, NULL);
    return NULL;
}

TS_DEVICE_TEST(a_snapshot_shows_one_moment)
{
    pthread_t threads[3];
    stop = 0;
    busy_device = ctx->device;
    for (uintptr_t i = 0; i < 3; i++) threads[i] = ts_thread(allocate, (void *)(i + 1));
    for (int i = 0; i < 25; i++) {
        snapshot_file_t file = taken(ctx->device);
        const fy__snapshot_pool_t *pool = main_pool(ctx, &file);
        const fy__snapshot_sums_t sums = fy__snapshot_sum(&file.snapshot, pool);
        assert_int_equal(sums.nbytes[FY__SNAPSHOT_LIVE], pool->stats.live);
        assert_int_equal(sums.nbytes[FY__SNAPSHOT_PENDING], pool->stats.pending);
        assert_int_equal(sums.requested, pool->stats.requested);
        assert_memory_equal(sums.by_category, pool->stats.by_category,
                            FY_CATEGORY_COUNT * sizeof pool->stats.by_category[0]);
        snapshot_file_close(&file);
    }
    stop = 1;
    for (int i = 0; i < 3; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    ts_ok(fy_memory_trim(ctx->device, 0, NULL)); /* the blocks that threads cached */
}

/* ---- files ---- */

static size_t files_there(void)
{
    char pattern[64];
    glob_t found;
    snprintf(pattern, sizeof pattern, "%s/*", folder);
    const size_t n = glob(pattern, 0, NULL, &found) == 0 ? found.gl_pathc : 0;
    if (n) globfree(&found);
    return n;
}

static long size_of(const char *name)
{
    struct stat st;
    return stat(name, &st) == 0 ? (long)st.st_size : -1;
}

TS_DEVICE_TEST(no_incomplete_file_stays)
{
    char nowhere[96];
    struct rlimit before, little = { 256, 0 };
    fy_tensor_t *tensors[60]; /* enough for several writes */
    for (int i = 0; i < 60; i++)
        ts_ok(fy_tensor_create(ctx->device, FY_DTYPE_U8, FY_DIMS(40000), &tensors[i]));
    unlink(path);
    snprintf(nowhere, sizeof nowhere, "%s/nowhere/a.json", folder);
    ts_fails_with(fy_memory_snapshot(ctx->device, nowhere, FY_SNAPSHOT_JSON), IO, "No such file");
    ts_fails_with(fy_memory_snapshot(ctx->device, folder, FY_SNAPSHOT_SVG), IO, "directory");
    ts_fails_with(fy_memory_snapshot(ctx->device, "/dev/full", FY_SNAPSHOT_JSON), IO,
                  "No space left");
    assert_int_equal(files_there(), 0);

    ts_ok(fy_memory_snapshot(ctx->device, path, FY_SNAPSHOT_JSON));
    const long whole = size_of(path);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    little.rlim_max = before.rlim_max;
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &little), 0);
    const fy_status_t json = fy_memory_snapshot(ctx->device, path, FY_SNAPSHOT_JSON),
                      svg = fy_memory_snapshot(ctx->device, path, FY_SNAPSHOT_SVG);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, handler);
    assert_int_equal(json, FY_STATUS_IO);
    assert_int_equal(svg, FY_STATUS_IO);
    ts_text_has("File too large");
    assert_int_equal(files_there(), 1);
    assert_int_equal(size_of(path), whole); /* the old file, unchanged */
}

TS_DEVICE_TEST(running_out_of_memory_writes_one_if_requested)
{
    char pattern[64], name[96];
    (void)ts_bytes(ctx->device, 54321);
    fy_tensor_t *tensor;
    unlink(path);
    ts_fails(fy_tensor_create(ctx->device, FY_DTYPE_U8, FY_DIMS(INT64_C(1) << 61), &tensor),
             OUT_OF_MEMORY);
    assert_int_equal(files_there(), 0); /* not requested */
    snprintf(pattern, sizeof pattern, "%s/oom-%%p.json", folder);
    setenv("FERRY_SNAPSHOT_ON_OOM", pattern, 1);
    ts_fails_with(fy_tensor_create(ctx->device, FY_DTYPE_U8, FY_DIMS(INT64_C(1) << 61), &tensor),
                  OUT_OF_MEMORY, "2305843009213693952 bytes asked for"); /* the usual verdict */
    assert_non_null(fy_error_get()->oom);
    snprintf(name, sizeof name, "%s/oom-%ld.json", folder, (long)getpid());
    snapshot_file_t file;
    ts_ok(snapshot_file_open(name, &file));
    assert_non_null(block_of(&file, main_pool(ctx, &file), 54321));
    assert_true(main_pool(ctx, &file)->alloc_stats.verdicts >= 2);
    snapshot_file_close(&file);
    unlink(name);
    setenv("FERRY_SNAPSHOT_ON_OOM", "/nowhere/at/all.svg", 1);
    ts_fails_with(fy_tensor_create(ctx->device, FY_DTYPE_U8, FY_DIMS(INT64_C(1) << 61), &tensor),
                  OUT_OF_MEMORY, "2305843009213693952 bytes asked for");
    unsetenv("FERRY_SNAPSHOT_ON_OOM");
    assert_int_equal(files_there(), 0);
}

TS_DEVICE_TEST(links_stay_and_their_targets_are_written)
{
    char link[64];
    struct stat st;
    snprintf(link, sizeof link, "%s/link.json", folder);
    ts_ok(fy_memory_snapshot(ctx->device, path, FY_SNAPSHOT_JSON));
    assert_int_equal(symlink(path, link), 0);
    ts_ok(fy_memory_snapshot(ctx->device, link, FY_SNAPSHOT_SVG));
    assert_int_equal(lstat(link, &st), 0);
    assert_true(S_ISLNK(st.st_mode));
    snapshot_file_t file;
    ts_fails(snapshot_file_open(path, &file), CORRUPT_DATA); /* a picture now */
    snapshot_file_close(&file);
    unlink(link);
    ts_ok(fy_memory_snapshot(ctx->device, "/dev/null", FY_SNAPSHOT_JSON));
    assert_int_equal(lstat("/dev/null", &st), 0);
    assert_true(S_ISCHR(st.st_mode));
}

TS_DEVICE_TEST(invalid_requests_are_refused)
{
    ts_fails(fy_memory_snapshot(NULL, path, FY_SNAPSHOT_JSON), INVALID_ARGUMENT);
    ts_fails(fy_memory_snapshot(ctx->device, NULL, FY_SNAPSHOT_JSON), INVALID_ARGUMENT);
    ts_fails(fy_memory_snapshot(ctx->device, "", FY_SNAPSHOT_JSON), INVALID_ARGUMENT);
    ts_fails(fy_memory_snapshot(ctx->device, path, (fy_snapshot_format_t)2), INVALID_ARGUMENT);
}

static int begin(void **state)
{
    (void)state;
    if (!mkdtemp(folder)) return -1;
    snprintf(path, sizeof path, "%s/snapshot.json", folder);
    return 0;
}

static int end(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(folder);
}

static const ts_exclusion_t exclusions[] = {
    { "host", "pending_blocks_name_their_streams", "nothing is ever pending on the host" },
    { "cuda", "pending_blocks_name_their_streams", "a real device may be done by then" },
    { NULL, NULL, NULL },
};

TS_SUITE(.begin = begin, .end = end, .exclusions = exclusions);
