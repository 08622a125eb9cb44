/* A test environment for pools without a device: a source that returns plain numbers and fails on
 * request, streams whose clocks a test advances, and bookkeeping memory that can run out. No byte
 * behind the numbers is ever written.
 * One environment at a time (`fake`). */
#ifndef FERRY_TESTS_UNIT_ALLOC_FAKE_H_
#define FERRY_TESTS_UNIT_ALLOC_FAKE_H_

#include "alloc/pool.h"
#include "runtime/base/fail.h"
#include "tests/support/harness.h"

#define KIB 1024ull
#define MIB (1024 * KIB)

enum { FAKE_STREAMS = 70000, FAKE_SEGMENTS = 4096 };

static struct {
    /* source */
    uint64_t capacity, used, next_address;
    uint64_t slot_nbytes; /* not 0: addresses are reused, each segment has a slot of this size */
    uint64_t alloc_calls, free_calls, segments;
    /* step not 0: segments grow and shrink by multiples of it, up to `space` */
    uint64_t step, resize_calls, space;
    void (*during_resize)(void);                /* acts as another thread, while no lock is held */
    uint64_t fail_alloc_from, fail_alloc_until; /* calls [from, until) fail; from 0: none */
    fy_status_t fail_status;
    bool guard_growth, guard_sync;
    struct {
        uint64_t address, nbytes;
    } given[FAKE_SEGMENTS];
    uint64_t sync_asked, sync_noted;
    /* options of the next pool; NULL and 0: "dev:0", OUT_OF_MEMORY */
    bool growth_off, release_eagerly;
    const char *name;
    fy_status_t full_status;
    void (*top_scopes)(void *user, fy_oom_verdict_t *verdict);
    bool (*reclaim[4])(uint64_t nbytes); /* reclaim callbacks: return true if they freed memory */
    uint64_t pressed[4];                 /* number of calls of each */
    bool in_source;
    /* streams */
    uint64_t done[FAKE_STREAMS]; /* last sequence number that is reached */
    uint64_t polls, waits;
    fy__pool_t *
        lock_free; /* if set: no poll, wait or source call may happen under the lock of this pool */
    void (*during_wait)(void);
    /* bookkeeping */
    uint64_t meta_calls, fail_meta_from, fail_meta_until, meta_live;
} fake;

static void fake_check_unlocked(void)
{
    if (!fake.lock_free) return;
    assert_int_equal(pthread_mutex_trylock(&fake.lock_free->lock), 0);
    pthread_mutex_unlock(&fake.lock_free->lock);
}

static fy_status_t fake_refuse(void)
{
    return fy_error_set(FY_STATUS_REFUSED_BY_GUARD, __FILE__, __LINE__,
                        "the guard of 'step' allows 0 device allocations");
}

/* The number of the segment at `address`, which has `nbytes`. */
static int fake_segment_at(const void *address, uint64_t nbytes)
{
    for (int i = 0; i < FAKE_SEGMENTS; i++) {
        if (!fake.given[i].nbytes || fake.given[i].address != (uint64_t)(uintptr_t)address)
            continue;
        assert_int_equal(fake.given[i].nbytes, nbytes);
        return i;
    }
    fail_msg("a segment that was not given");
    return 0;
}

static fy_status_t fake_source_alloc(void *user, uint64_t nbytes, void **out_address)
{
    (void)user;
    fake_check_unlocked();
    assert_false(fake.in_source);
    assert_true(nbytes > 0);
    *out_address = NULL;
    if (fake.guard_growth) return fake_refuse();
    fake.alloc_calls++;
    if (fake.fail_alloc_from && fake.alloc_calls >= fake.fail_alloc_from &&
        fake.alloc_calls < fake.fail_alloc_until)
        return fy_error_set(fake.fail_status, __FILE__, __LINE__, "call %llu fails as told",
                            (unsigned long long)fake.alloc_calls);
    if (nbytes > fake.capacity - fake.used)
        return fy_error_set(FY_STATUS_OUT_OF_MEMORY, __FILE__, __LINE__, "the fake device is full");
    for (int i = 0; i < FAKE_SEGMENTS; i++) {
        if (fake.given[i].nbytes) continue;
        if (fake.slot_nbytes) assert_true(nbytes < fake.slot_nbytes);
        fake.given[i].address = fake.slot_nbytes
                                    ? fake.next_address + (uint64_t)i * fake.slot_nbytes
                                    : fake.next_address;
        fake.given[i].nbytes = nbytes;
        /* At least one hole between two segments. */
        if (fake.step) fake.next_address += fake.space;
        if (!fake.slot_nbytes) fake.next_address += (nbytes + 4 * MIB) / (2 * MIB) * (2 * MIB);
        fake.used += nbytes;
        fake.segments++;
        *out_address = (void *)(uintptr_t)fake.given[i].address;
        return FY_STATUS_OK;
    }
    fail_msg("too many segments");
    return FY_STATUS_INTERNAL;
}

static void fake_source_free(void *user, void *address, uint64_t nbytes)
{
    (void)user;
    fake_check_unlocked();
    assert_false(fake.in_source);
    fake.free_calls++;
    fake.given[fake_segment_at(address, nbytes)].nbytes = 0;
    fake.used -= nbytes;
    fake.segments--;
}

static fy_status_t fake_source_resize(void *user, void *address, uint64_t nbytes,
                                      uint64_t new_nbytes)
{
    (void)user;
    fake_check_unlocked();
    assert_true(nbytes % fake.step == 0 && new_nbytes % fake.step == 0 && new_nbytes &&
                new_nbytes != nbytes);
    if (new_nbytes > nbytes && fake.guard_growth) return fake_refuse();
    fake.resize_calls++;
    if (fake.during_resize) fake.during_resize();
    const int i = fake_segment_at(address, nbytes);
    if (new_nbytes > nbytes &&
        (new_nbytes > fake.space || new_nbytes - nbytes > fake.capacity - fake.used))
        return fy_error_set(FY_STATUS_OUT_OF_MEMORY, __FILE__, __LINE__, "the fake device is full");
    fake.given[i].nbytes = new_nbytes;
    fake.used = fake.used - nbytes + new_nbytes;
    return FY_STATUS_OK;
}

static bool fake_may_sync(void *user)
{
    (void)user;
    fake_check_unlocked();
    fake.sync_asked++;
    return !fake.guard_sync;
}

static bool fake_may_grow(void *user)
{
    (void)user;
    fake_check_unlocked();
    return !fake.guard_growth;
}

static void fake_note_sync(void *user, uint64_t blocked_ns)
{
    (void)user;
    (void)blocked_ns;
    fake_check_unlocked();
    fake.sync_noted++;
}

static fy__reclaim_t fake_reclaim(void *user, uint64_t nbytes, fy__reclaim_cursor_t *cursor)
{
    (void)user;
    fake_check_unlocked();
    if (fake.lock_free) { /* the source may call anything, so no lock may be held */
        assert_int_equal(pthread_mutex_trylock(&fake.lock_free->source_lock), 0);
        pthread_mutex_unlock(&fake.lock_free->source_lock);
    }
    if (cursor->after == 4 || !fake.reclaim[cursor->after]) return FY__RECLAIM_END;
    const uint64_t i = cursor->after++;
    fake.pressed[i]++;
    return fake.reclaim[i](nbytes) ? FY__RECLAIM_GAVE : FY__RECLAIM_NOTHING;
}

static fy__point_t fake_word(const fy__hazard_t *hazard, int i)
{
    return atomic_load_explicit(i ? &hazard->readers[i - 1] : &hazard->writer,
                                memory_order_relaxed);
}

static bool fake_reached(fy__point_t point)
{
    return !point || fake.done[FY__POINT_STREAM(point)] >= FY__POINT_SEQ(point);
}

static bool fake_hazard_done(const fy__hazard_t *hazard)
{
    fake_check_unlocked();
    fake.polls++;
    for (int i = 0; i <= FY__READER_COUNT; i++)
        if (!fake_reached(fake_word(hazard, i))) return false;
    return true;
}

static bool fake_hazard_only_on(const fy__hazard_t *hazard, uint32_t stream)
{
    fake_check_unlocked();
    fake.polls++;
    for (int i = 0; i <= FY__READER_COUNT; i++)
        if (FY__POINT_STREAM(fake_word(hazard, i)) != stream && !fake_reached(fake_word(hazard, i)))
            return false;
    return true;
}

static fy_status_t fake_hazard_wait(const fy__hazard_t *hazard, uint64_t timeout_ns)
{
    fake_check_unlocked();
    assert_true(timeout_ns == UINT64_MAX);
    fake.waits++;
    for (int i = 0; i <= FY__READER_COUNT; i++) {
        const fy__point_t point = fake_word(hazard, i);
        if (!fake_reached(point)) fake.done[FY__POINT_STREAM(point)] = FY__POINT_SEQ(point);
    }
    if (fake.during_wait) fake.during_wait();
    /* A wait can leave an error record; the pool's own verdict must replace it. */
    return fy_error_set(FY_STATUS_DEVICE_LOST, __FILE__, __LINE__, "noise from a wait");
}

static void *fake_meta_alloc(void *user, size_t nbytes)
{
    (void)user;
    fake.meta_calls++;
    if (fake.fail_meta_from && fake.meta_calls >= fake.fail_meta_from &&
        fake.meta_calls < fake.fail_meta_until)
        return NULL;
    fake.meta_live++;
    return malloc(nbytes);
}

static void fake_meta_free(void *user, void *memory)
{
    (void)user;
    if (memory) fake.meta_live--;
    free(memory);
}

static inline void fake_reset(void)
{
    memset(&fake, 0, sizeof fake);
    fake.capacity = UINT64_MAX;
    fake.next_address = 1ull << 40;
    fake.fail_status = FY_STATUS_OUT_OF_MEMORY;
}

/* For TS_SUITE. */
static inline int fake_set_up(void **state)
{
    (void)state;
    fake_reset();
    return 0;
}

static inline fy_status_t fake_try_pool(uint64_t limit_nbytes, uint64_t segment_nbytes,
                                        uint64_t alignment, fy__pool_t **out_pool)
{
    const fy__pool_options_t options = {
        .name = fake.name ? fake.name : "dev:0",
        .limit_nbytes = limit_nbytes,
        .device_nbytes = fake.capacity,
        .segment_nbytes = segment_nbytes,
        .full_status = fake.full_status ? fake.full_status : FY_STATUS_OUT_OF_MEMORY,
        .growth_off = fake.growth_off,
        .release_eagerly = fake.release_eagerly,
    };
    const fy__segment_source_t source = {
        .alignment = alignment,
        .alloc = fake_source_alloc,
        .free = fake_source_free,
        .may_sync = fake_may_sync,
        .note_sync = fake_note_sync,
        .reclaim = fake_reclaim,
        .top_scopes = fake.top_scopes,
        .may_grow = fake_may_grow,
        .resize = fake.step ? fake_source_resize : NULL,
        .step_nbytes = fake.step,
    };
    const fy__pool_seams_t seams = { fake_hazard_done,
                                     fake_hazard_only_on,
                                     fake_hazard_wait,
                                     { NULL, fake_meta_alloc, fake_meta_free } };
    return fy__pool_create_with(&options, &source, &seams, out_pool);
}

static inline fy__pool_t *fake_pool(uint64_t limit_nbytes, uint64_t segment_nbytes)
{
    fy__pool_t *pool;
    assert_int_equal(fake_try_pool(limit_nbytes, segment_nbytes, 256, &pool), FY_STATUS_OK);
    fake.lock_free = pool;
    return pool;
}

/* Checks that neither segments nor bookkeeping memory are left. */
static inline void fake_end(fy__pool_t *pool)
{
    assert_true(fy__pool_is_valid(pool));
    fake.lock_free = NULL;
    fy__pool_destroy(pool);
    assert_int_equal(fake.segments, 0);
    assert_int_equal(fake.used, 0);
    assert_int_equal(fake.meta_live, 0);
}

static inline fy__block_t *take(fy__pool_t *pool, uint64_t nbytes, uint32_t stream)
{
    fy__block_t *block;
    const fy_status_t status = fy__pool_alloc(pool, nbytes, stream, &block);
    if (status != FY_STATUS_OK)
        print_error("%s: %s\n", fy_status_name(status), fy_error_get()->text);
    assert_int_equal(status, FY_STATUS_OK);
    assert_non_null(block);
    assert_true(block->nbytes >= nbytes && block->requested == nbytes && block->pool == pool);
    assert_int_equal((uintptr_t)block->address & 255, 0);
    return block;
}

/* Frees a block whose last use is `seq` on `stream`. */
static inline void give(fy__block_t *block, uint32_t stream, uint64_t seq)
{
    fy__hazard_clear(&block->hazard);
    if (seq) atomic_store(&block->hazard.writer, FY__POINT(stream, seq));
    fy__pool_free(block);
}

static inline void give_done(fy__block_t *block) { give(block, 0, 0); }

/* Frees the blocks, which are idle, and ends the pool. */
#define fake_end_with(pool, ...) fake__end_with(pool, (fy__block_t *[]){ __VA_ARGS__, NULL })
static inline void fake__end_with(fy__pool_t *pool, fy__block_t **blocks)
{
    while (*blocks) give_done(*blocks++);
    fake_end(pool);
}

static inline fy_memory_stats_t query(fy__pool_t *pool)
{
    fy_memory_stats_t stats;
    fy__pool_query(pool, &stats);
    return stats;
}

/* A pool of one 1 MiB segment cut into blocks of the given sizes (in KiB, 0 ends); the rest is one
 * more block. Stream 1 takes them. */
static inline void fill(fy__pool_t *pool, fy__block_t **blocks, const int *sizes_kib)
{
    int i = 0;
    for (; sizes_kib[i]; i++) blocks[i] = take(pool, (uint64_t)sizes_kib[i] * KIB, 1);
    const uint64_t rest = query(pool).largest_free;
    if (rest) blocks[i] = take(pool, rest, 1);
    assert_int_equal(query(pool).cached, 0);
}

static inline fy_memory_alloc_stats_t stats(fy__pool_t *pool)
{
    fy_memory_alloc_stats_t counts;
    fy__pool_alloc_stats(pool, &counts);
    return counts;
}

/* Every request was served by exactly one stage. */
static inline uint64_t served(fy__pool_t *pool)
{
    const fy_memory_alloc_stats_t r = stats(pool);
    return r.ready + r.same_stream + r.joined + r.inserted_wait + r.grown + r.after_pressure +
           r.grown_after_trim + r.after_sync + r.grown_after_sync;
}

static inline uint64_t fake_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

#endif
