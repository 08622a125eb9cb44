/* Four threads on one pool: no two threads own the same bytes, growth and waits of several threads
 * at once all work, the figures add up in the end, queries and trims may run at any time.
 * Also meant for ThreadSanitizer. It has its own small source and streams: those of fake.h serve
 * one thread. */

#include "alloc/pool.h"
#include "tests/support/harness.h"

enum { THREADS = 4, STREAMS = THREADS + 1, HELD = 24, ROUNDS = 20000 };
static const uint64_t limit_nbytes = 4u << 20;

static atomic_int in_source;
static _Atomic uint64_t broken, given, syncs, refusals;
static _Atomic uint64_t submitted[STREAMS], done[STREAMS];

/* Real memory, because owners write their id into it. */
static fy_status_t source_alloc(void *user, uint64_t nbytes, void **out_address)
{
    (void)user;
    if (atomic_fetch_add(&in_source, 1) != 0) broken++; /* one call at a time */
    *out_address = aligned_alloc(256, nbytes);
    given += nbytes;
    if (given > limit_nbytes) broken++;
    atomic_fetch_sub(&in_source, 1);
    return *out_address ? FY_STATUS_OK : FY_STATUS_OUT_OF_MEMORY;
}

static void source_free(void *user, void *address, uint64_t nbytes)
{
    (void)user;
    if (atomic_fetch_add(&in_source, 1) != 0) broken++;
    given -= nbytes;
    free(address);
    atomic_fetch_sub(&in_source, 1);
}

static bool may_sync(void *user)
{
    (void)user;
    return true;
}

static void note_sync(void *user, uint64_t blocked_ns)
{
    (void)user;
    (void)blocked_ns;
    syncs++;
}

static bool reached(fy__point_t point)
{
    return !point || done[FY__POINT_STREAM(point)] >= FY__POINT_SEQ(point);
}
static fy__point_t word(const fy__hazard_t *hazard, int i)
{
    return i ? hazard->readers[i - 1] : hazard->writer;
}

static bool hazard_done(const fy__hazard_t *hazard)
{
    for (int i = 0; i <= FY__READER_COUNT; i++)
        if (!reached(word(hazard, i))) return false;
    return true;
}

static bool hazard_only_on(const fy__hazard_t *hazard, uint32_t stream)
{
    for (int i = 0; i <= FY__READER_COUNT; i++)
        if (FY__POINT_STREAM(word(hazard, i)) != stream && !reached(word(hazard, i))) return false;
    return true;
}

/* Time passes on a stream up to `seq`. */
static void advance(uint32_t stream, uint64_t seq)
{
    uint64_t was = done[stream];
    while (was < seq && !atomic_compare_exchange_weak(&done[stream], &was, seq)) {}
}

static fy_status_t hazard_wait(const fy__hazard_t *hazard, uint64_t timeout_ns)
{
    (void)timeout_ns;
    for (int i = 0; i <= FY__READER_COUNT; i++)
        if (word(hazard, i))
            advance(FY__POINT_STREAM(word(hazard, i)), FY__POINT_SEQ(word(hazard, i)));
    return FY_STATUS_OK;
}

typedef struct job {
    fy__pool_t *pool;
    uint32_t id; /* 1 to THREADS; also the thread's stream */
    uint64_t seed;
} job_t;

static uint64_t draw(job_t *job, uint64_t below)
{
    job->seed ^= job->seed << 13;
    job->seed ^= job->seed >> 7;
    job->seed ^= job->seed << 17;
    return job->seed % below;
}

static void let_go(job_t *job, fy__block_t *block)
{
    const uint64_t *bytes = block->address,
                   name = (uint64_t)job->id << 32 | (uint32_t)block->requested;
    if (bytes[0] != name || bytes[block->nbytes / 8 - 1] != name) broken++;
    fy__hazard_clear(&block->hazard);
    for (uint64_t uses = draw(job, 3); uses > 0; uses--) {
        const uint32_t stream = uses == 1 ? job->id : 1 + (uint32_t)draw(job, THREADS);
        const fy__point_t point = FY__POINT(stream, atomic_fetch_add(&submitted[stream], 1) + 1);
        atomic_store(uses == 1 ? &block->hazard.writer : &block->hazard.readers[1], point);
    }
    fy__pool_free(block);
}

static void *work(void *user)
{
    job_t *job = user;
    fy__block_t *held[HELD];
    int count = 0;
    for (int round = 0; round < ROUNDS; round++) {
        const uint64_t what = draw(job, 1000);
        if (what < 2) {
            fy__pool_trim(job->pool, draw(job, limit_nbytes));
        } else if (what < 4) {
            fy_memory_stats_t stats;
            fy__pool_query(job->pool, &stats);
            if (stats.live + stats.cached != stats.reserved || stats.reserved > limit_nbytes)
                broken++;
        } else if (what < 5) {
            if (!fy__pool_is_valid(job->pool)) broken++;
        } else if (what < 50) {
            advance(job->id, submitted[job->id]);
        } else if (count < HELD && (what & 1 || !count)) {
            const uint64_t nbytes = 1 + draw(job, what & 2 ? 4096 : 150000);
            fy__block_t *block;
            if (fy__pool_alloc(job->pool, nbytes, what & 4 ? job->id : 0, &block) != FY_STATUS_OK) {
                refusals++;
                continue;
            }
            uint64_t *bytes = block->address, name = (uint64_t)job->id << 32 | (uint32_t)nbytes;
            bytes[0] = bytes[block->nbytes / 8 - 1] = name;
            held[count++] = block;
        } else if (count) {
            const int i = (int)draw(job, (uint64_t)count);
            let_go(job, held[i]);
            held[i] = held[--count];
        }
    }
    while (count) let_go(job, held[--count]);
    return NULL;
}

TS_TEST(four_threads)
{
    const fy__pool_options_t options = { .name = "threads",
                                         .limit_nbytes = limit_nbytes,
                                         .device_nbytes = FY_UNLIMITED,
                                         .segment_nbytes = 256u << 10,
                                         .full_status = FY_STATUS_OUT_OF_MEMORY };
    const fy__segment_source_t source = { .alignment = 256,
                                          .alloc = source_alloc,
                                          .free = source_free,
                                          .may_sync = may_sync,
                                          .note_sync = note_sync };
    const fy__pool_seams_t seams = { hazard_done,
                                     hazard_only_on,
                                     hazard_wait,
                                     { NULL, fy__meta_malloc_alloc, fy__meta_malloc_free } };
    fy__pool_t *pool;
    ts_ok(fy__pool_create_with(&options, &source, &seams, &pool));
    pthread_t threads[THREADS];
    job_t jobs[THREADS];
    for (uint32_t i = 0; i < THREADS; i++) {
        jobs[i] = (job_t){ pool, i + 1, 0x9E3779B97F4A7C15ull * (i + 1) };
        assert_int_equal(pthread_create(&threads[i], NULL, work, &jobs[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    assert_int_equal(broken, 0);
    assert_true(fy__pool_is_valid(pool));
    fy_memory_stats_t stats;
    fy__pool_query(pool, &stats);
    assert_int_equal(stats.live, 0);
    assert_int_equal(stats.requested, 0);
    assert_int_equal(stats.reserved, given);
    fy_memory_alloc_stats_t counts;
    fy__pool_alloc_stats(pool, &counts);
    print_message("grown %llu, waited %llu, refused %llu\n", (unsigned long long)counts.grown,
                  (unsigned long long)syncs, (unsigned long long)refusals);
    assert_true(counts.grown > 0 && syncs > 0);
    fy__pool_destroy(pool);
    assert_int_equal(given, 0);
}
