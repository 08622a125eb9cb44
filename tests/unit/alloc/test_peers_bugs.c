/* Bugs of other allocators that Ferry must not have. Each test is named after the public issue that
 * reports the bug, and was seen to fail with that bug planted. The general properties are tested in
 * test_pool_random.c and the other files here, which name further issues. */
#include "tests/unit/alloc/fake.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

enum { S1 = 1 };

/* ---- rmm#2252: a stream's handle is reused, and bytes pending on the old stream count as bytes of
 * the new one ---- */

static fy_memory_alloc_stats_t stats_of(const fy_device_t *device)
{
    fy_memory_alloc_stats_t counts = FY_MEMORY_ALLOC_STATS_INIT;
    ts_ok(fy_memory_query_alloc_stats(device, &counts));
    return counts;
}

TS_TEST(rmm_2252_a_reused_handle_is_a_new_stream)
{
    fy_device_t *device;
    fy_stream_t *stream;
    fy_tensor_t *a, *b, *c;
    ts_ok(fy_device_open("sim:6?limit=8MiB&order=lazy", &device));
    fy_scope_t scope = fy_scope_begin("streams");
    ts_ok(fy_stream_create(device, NULL, &stream));
    ts_ok(fy_stream_set_current(stream));
    ts_ok(fy_full(device, FY_DTYPE_F32, FY_DIMS(1024, 1024), 1, &a));
    ts_ok(fy_matmul(a, a, &b)); /* each of 4 MiB: together the limit */
    const fy_stream_t *old = stream;
    fy_tensor_destroy(a);
    fy_tensor_destroy(b);
    fy_stream_destroy(stream);
    ts_ok(fy_stream_create(device, NULL, &stream));
    /* until the handle is reused */
    for (int i = 0; i < 8 && stream != old; i++) ts_ok(fy_stream_create(device, NULL, &stream));
    ts_ok(fy_stream_set_current(stream));
    const fy_memory_alloc_stats_t before = stats_of(device);
    /* in bytes that the old stream may still write */
    ts_ok(fy_full(device, FY_DTYPE_F32, FY_DIMS(1024, 1024), 2, &c));
    assert_int_equal(stats_of(device).same_stream, before.same_stream);
    assert_int_equal(stats_of(device).inserted_wait + stats_of(device).joined +
                         stats_of(device).ready,
                     before.inserted_wait + before.joined + before.ready + 1);
    fy_tensor_t *sum;
    ts_ok(fy_sum(c, 0, NULL, 0, &sum));
    ts_expect_f32(sum, (float[]){ 2.0f * 1024 * 1024 }, 1);
    fy_scope_end(scope, 0, NULL);
    fy_device_close(device);
}

/* ---- pytorch#179276: a ring of trace entries wraps, and the number of lost entries is unknown
 * ---- */

typedef struct drain {
    int fd;
    uint64_t lines;
    char last[256];
} drain_t;

static void *drain(void *user)
{
    drain_t *pipe = user;
    static char buffer[1 << 16];
    size_t length = 0;
    ssize_t n;
    char line[sizeof pipe->last];
    while ((n = read(pipe->fd, buffer, sizeof buffer)) > 0)
        for (ssize_t i = 0; i < n; i++) {
            if (buffer[i] == '\n') {
                line[length] = 0;
                memcpy(pipe->last, line, length + 1);
                pipe->lines++;
                length = 0;
            } else if (length + 1 < sizeof line)
                line[length++] = buffer[i];
        }
    return NULL;
}

static uint64_t number_after(const char *text, const char *key)
{
    const char *at = strstr(text, key);
    assert_non_null(at);
    return strtoull(at + strlen(key), NULL, 10);
}

/* Records `count` scopes into a pipe that is not read before all of them have ended. */
static void record_scopes(uint64_t count, uint64_t *out_events, uint64_t *out_lost)
{
    char path[64];
    drain_t pipe = { .fd = -1 };
    pthread_t reader;
    snprintf(path, sizeof path, "/tmp/ferry_peers_%ld", (long)getpid());
    (void)unlink(path); /* of a killed process that had this number */
    assert_int_equal(mkfifo(path, 0600), 0);
    pipe.fd = open(path, O_RDONLY | O_NONBLOCK);
    assert_true(pipe.fd >= 0);
    ts_ok(fy_ledger_record(path));
    unlink(path);
    for (uint64_t i = 0; i < count; i++) fy_scope_end(fy_scope_begin("s"), 0, NULL);
    assert_int_equal(fcntl(pipe.fd, F_SETFL, 0), 0);
    assert_int_equal(pthread_create(&reader, NULL, drain, &pipe), 0);
    ts_ok(fy_ledger_record(NULL));
    pthread_join(reader, NULL);
    close(pipe.fd);
    *out_events = number_after(pipe.last, "\"events\":");
    *out_lost = number_after(pipe.last, "\"lost\":");
    assert_int_equal(pipe.lines, *out_events + 2); /* plus the first and the last line */
}

TS_TEST(pytorch_179276_lost_events_are_counted)
{
    uint64_t none, events, lost;
    (void)fy_device_host();
    record_scopes(0, &none, &lost);
    assert_int_equal(lost, 0);
    const uint64_t count = 200000;
    record_scopes(count, &events, &lost);
    assert_true(lost > 0); /* otherwise nothing was tested */
    assert_int_equal(events + lost, none + 2 * count);
}

/* ---- pytorch#185240: without an optional library the failure has no explanation ---- */

/* unit_alloc_peers_bugs_mmap runs it without jemalloc. */
TS_TEST(pytorch_185240_a_verdict_needs_no_library)
{
    fy_device_t *device;
    fy_tensor_t *x, *y;
    (void)setenv("FERRY_PLUGIN_PATH", "/nonexistent", 1);
    ts_ok(fy_device_open("sim:0?limit=4MiB", &device));
    fy_scope_t scope = fy_scope_begin("child");
    ts_ok(fy_zeros(device, FY_DTYPE_U8, FY_DIMS(3 << 20), &x));
    ts_fails(fy_zeros(device, FY_DTYPE_U8, FY_DIMS(2 << 20), &y), OUT_OF_MEMORY);
    assert_non_null(fy_error_get()->oom);
    assert_string_equal(
        fy_error_get()->oom->text,
        "sim:0: 2097152 bytes asked for (2.0 MiB): more than the limit leaves\n"
        "  limit 4194304 (4.0 MiB), reserved 3145728 = live 3145728 (3.0 MiB, peak 3145728) + "
        "cached 0 (of it pending 0)\n"
        "  Would help: free 3145728 live bytes (3.0 MiB, adjacent, in one segment), or a limit "
        "higher by 1048576 bytes\n"
        "  tried: search, grow\n"
        "  live by scope: child 3.0 MiB\n"
        "  live by category: activations 3.0 MiB");
    fy_scope_end(scope, 0, NULL);
    fy_device_close(device);
    /* Without free host memory the failure is explained all the same. */
    fy__block_t *block;
    fy__pool_t *pool = fake_pool(MIB, MIB);
    fy__block_t *all = take(pool, MIB, S1);
    fake.fail_meta_from = 1;
    fake.fail_meta_until = UINT64_MAX;
    ts_fails(fy__pool_alloc(pool, MIB, S1, &block), OUT_OF_MEMORY);
    assert_non_null(fy_error_get()->oom);
    assert_int_equal(fy_error_get()->oom->reason, FY_OOM_LIMIT);
    assert_int_equal(fy_error_get()->oom->would_help, MIB);
    fake.fail_meta_from = 0;
    fake_end_with(pool, all);
}

/* ---- pytorch#173049: the message recommends a setting that does not help ---- */

enum { BLOCKS = 12 };

/* Builds the same pool for the same seed: a few blocks in small and large segments, some of them
 * freed. */
static fy__pool_t *build(uint64_t seed, fy__block_t **blocks, uint64_t *out_asked)
{
    fake_reset();
    fake.growth_off = seed % 3 == 0;
    fy__pool_t *pool = fake_pool(4 * MIB, MIB);
    seed = seed * 2654435761u + 1;
    if (fake.growth_off) ts_ok(fy__pool_reserve(pool, 2 * MIB + fake_random(&seed) % 4 * 64 * KIB));
    for (int i = 0; i < BLOCKS; i++)
        if (fy__pool_alloc(pool, 64 * KIB * (1 + fake_random(&seed) % 12), S1, &blocks[i]) !=
            FY_STATUS_OK)
            blocks[i] = NULL;
    for (int i = 0; i < BLOCKS; i++)
        if (blocks[i] && fake_random(&seed) % 3 == 0) {
            give_done(blocks[i]);
            blocks[i] = NULL;
        }
    *out_asked = 64 * KIB * (1 + fake_random(&seed) % 48);
    return pool;
}

static void take_down(fy__pool_t *pool, fy__block_t **blocks)
{
    for (int i = 0; i < BLOCKS; i++)
        if (blocks[i]) give_done(blocks[i]);
    fake_end(pool);
}

/* Frees every subset of blocks: the function reports whether any subset lets the request succeed,
 * and whether one of exactly `nbytes` does. */
static void try_all(uint64_t seed, uint64_t nbytes, bool *out_any, bool *out_this)
{
    fy__block_t *blocks[BLOCKS], *block;
    uint64_t asked;
    uint32_t live = 0;
    fy__pool_t *pool = build(seed, blocks, &asked);
    for (int i = 0; i < BLOCKS; i++)
        if (blocks[i]) live |= 1u << i;
    take_down(pool, blocks);
    *out_any = *out_this = false;
    for (uint32_t choice = 0; choice < 1u << BLOCKS; choice++) {
        uint64_t freed = 0;
        if (choice & ~live) continue;
        pool = build(seed, blocks, &asked);
        for (int i = 0; i < BLOCKS; i++) {
            if (!(choice >> i & 1)) continue;
            freed += blocks[i]->nbytes;
            give_done(blocks[i]);
            blocks[i] = NULL;
        }
        if ((!*out_any || freed == nbytes) &&
            fy__pool_alloc(pool, asked, S1, &block) == FY_STATUS_OK) {
            *out_any = true;
            *out_this = *out_this || freed == nbytes;
            give_done(block);
        }
        take_down(pool, blocks);
    }
}

TS_TEST(pytorch_173049_every_hint_is_true)
{
    int refused = 0, by_freeing = 0, by_limit = 0, by_reserve = 0;
    for (uint64_t seed = 1; refused < 40; seed++) {
        fy__block_t *blocks[BLOCKS], *block;
        uint64_t asked;
        fy__pool_t *pool = build(seed, blocks, &asked);
        if (fy__pool_alloc(pool, asked, S1, &block) == FY_STATUS_OK) {
            give_done(block);
            take_down(pool, blocks);
            continue;
        }
        refused++;
        const fy_oom_verdict_t verdict = *fy_error_get()->oom;
        const bool growth_off = fake.growth_off;
        const char *limit = strstr(verdict.text, "a limit higher by "),
                   *reserve = strstr(verdict.text, "fy_memory_reserve ");
        if (limit) { /* this number of bytes, and not one block less */
            const uint64_t more = number_after(limit, "higher by ");
            pool->options.limit_nbytes += more - 256;
            assert_true(fy__pool_alloc(pool, asked, S1, &block) != FY_STATUS_OK);
            pool->options.limit_nbytes += 256;
            give_done(take(pool, asked, S1));
            by_limit++;
        }
        if (reserve) {
            assert_true(growth_off);
            ts_ok(fy__pool_reserve(pool, query(pool).reserved + number_after(reserve, "reserve ")));
            give_done(take(pool, asked, S1));
            by_reserve++;
        }
        pool->options.limit_nbytes = FY_UNLIMITED;
        take_down(pool, blocks);
        bool any, this;
        try_all(seed, verdict.would_help, &any, &this);
        /* "nothing would help" must be true */
        assert_int_equal(any, verdict.would_help > 0);
        assert_int_equal(this, any);
        by_freeing += verdict.would_help > 0;
    }
    print_message("           40 refused: %d would be served by freeing, %d by a limit, %d by a "
                  "reserve; all of it true\n",
                  by_freeing, by_limit, by_reserve);
    assert_true(by_freeing > 20 && by_limit > 10 && by_reserve > 3);
}

TS_SUITE(.set_up = fake_set_up);
