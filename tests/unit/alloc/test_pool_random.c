/* Random histories of a pool against an oracle that knows the owner of every granule, and which
 * points may still use it.
 * Each step checks: no granule has two owners. Bytes are returned only with the points that still
 * matter (none for the host). Figures equal the oracle's sums. The limit holds. A request is
 * refused only if no way to serve it was left; the oracle searches by brute force. Where guards
 * forbid syncs or growth, the refusal must report correctly whether a sync would have helped; the
 * test then follows the hint.
 * FERRY_SEED=n runs other histories. Not here: threads (test_pool_threads.c), failing sources
 * (test_pool_faults.c). */
#include "tests/unit/alloc/fake.h"

enum {
    GRANULE = 256,
    LIVE = 200,
    STREAMS = 5,
    SLOTS = 64,
    SLOT_GRANULES = 1 << 14,
    GRANULES = SLOTS * SLOT_GRANULES
};

typedef struct owned {
    fy__block_t *block;
    uint64_t nbytes;
} owned_t;

/* State of each granule of the address space. */
static struct {
    bool is_owned;
    uint32_t seq[STREAMS]; /* last use by each stream */
} granules[GRANULES];
static owned_t owned[LIVE];
static int owned_count;
static uint64_t seed, submitted[STREAMS], pool_limit;
/* Situations that the histories visited; a check of a situation that never occurred is void. */
static struct {
    uint64_t served, refused, after_sync_would, after_sync_did, by_guard, pressed, after_pressure,
        reserves, reserves_refused;
} seen;

static uint64_t draw(uint64_t below) { return fake_random(&seed) % below; }

static size_t granule_of(const fy__block_t *block, uint64_t at)
{
    const uint64_t g = ((uint64_t)(uintptr_t)block->address - fake.next_address + at) / GRANULE;
    assert_true(g < GRANULES);
    return (size_t)g;
}

static uint64_t seq_on(const fy__hazard_t *hazard, uint32_t stream)
{
    uint64_t last = 0;
    for (int i = 0; i <= FY__READER_COUNT; i++)
        if (FY__POINT_STREAM(fake_word(hazard, i)) == stream &&
            FY__POINT_SEQ(fake_word(hazard, i)) > last)
            last = FY__POINT_SEQ(fake_word(hazard, i));
    return last;
}

static void check_handed_out(const fy__block_t *block, uint32_t stream)
{
    uint64_t covered[STREAMS];
    for (uint32_t s = 1; s < STREAMS; s++) covered[s] = seq_on(&block->hazard, s);
    for (uint64_t at = 0; at < block->nbytes; at += GRANULE) {
        const size_t g = granule_of(block, at);
        assert_false(granules[g].is_owned);
        granules[g].is_owned = true;
        for (uint32_t s = 1; s < STREAMS; s++)
            if (granules[g].seq[s] > fake.done[s])
                assert_true(stream && covered[s] >= granules[g].seq[s]);
    }
}

/* ---- the oracle's search for a way to serve a request ---- */

typedef enum wait_for { NOTHING, EVERYTHING } wait_for_t;

static bool is_done(size_t g)
{
    for (uint32_t s = 1; s < STREAMS; s++)
        if (granules[g].seq[s] > fake.done[s]) return false;
    return true;
}

static bool all_done(void)
{
    for (uint32_t s = 1; s < STREAMS; s++)
        if (submitted[s] > fake.done[s]) return false;
    return true;
}

/* Returns the longest run of granules without an owner. *out_idle: bytes of segments that could be
 * freed after such a wait. */
static uint64_t longest_run(wait_for_t wait, uint64_t *out_idle)
{
    uint64_t longest = 0;
    *out_idle = 0;
    for (int i = 0; i < FAKE_SEGMENTS && i < SLOTS; i++) {
        const uint64_t count = fake.given[i].nbytes / GRANULE;
        const size_t first = (size_t)((fake.given[i].address - fake.next_address) / GRANULE);
        uint64_t run = 0;
        bool idle = count > 0;
        for (uint64_t g = 0; g < count; g++) {
            run = granules[first + g].is_owned ? 0 : run + GRANULE;
            if (run > longest) longest = run;
            if (idle && (!run || (wait == NOTHING && !is_done(first + g)))) idle = false;
        }
        if (idle) *out_idle += fake.given[i].nbytes;
    }
    return longest;
}

typedef enum growth { NO_GUARD, AS_GUARDED } growth_t;

/* Returns whether a run of free bytes is enough, or a new segment after idle ones are freed. */
static bool could_serve(uint64_t rounded, wait_for_t wait, growth_t growth)
{
    uint64_t idle;
    if (longest_run(wait, &idle) >= rounded) return true;
    const uint64_t kept = fake.used - idle;
    return !(growth == AS_GUARDED && fake.guard_growth) && !fake.growth_off &&
           rounded <= pool_limit && rounded <= fake.capacity && kept <= pool_limit - rounded &&
           kept <= fake.capacity - rounded;
}

/* The pool does not know how much memory a full device has left. It can only be sure if the
 * segments that it frees are enough alone. */
static bool is_sure_to_serve(uint64_t rounded)
{
    uint64_t idle;
    if (longest_run(EVERYTHING, &idle) >= rounded) return true;
    return could_serve(rounded, EVERYTHING, NO_GUARD) &&
           (idle >= rounded || fake.capacity == UINT64_MAX);
}

static void check_refusal(fy_status_t status, uint64_t nbytes, uint32_t stream)
{
    const uint64_t rounded = (nbytes + GRANULE - 1) / GRANULE * GRANULE;
    uint64_t idle;
    seen.refused++;
    if (status == FY_STATUS_REFUSED_BY_GUARD) { /* by the guard of growth */
        assert_true(fake.guard_growth);
        seen.by_guard++;
    } else {
        assert_int_equal(status, FY_STATUS_OUT_OF_MEMORY);
        const fy_oom_verdict_t *verdict = fy_error_get()->oom;
        assert_non_null(verdict);
        assert_int_equal(verdict->asked, nbytes);
        assert_int_equal(verdict->reserved, fake.used);
        assert_int_equal(verdict->largest_free, longest_run(EVERYTHING, &idle));
        assert_int_equal(verdict->reason == FY_OOM_WOULD_FIT_AFTER_SYNC, is_sure_to_serve(rounded));
    }
    if (!fake.guard_sync || all_done()) assert_false(could_serve(rounded, EVERYTHING, AS_GUARDED));
    /* A stream waits on the device for pending work; only freeing segments needs that work to be
     * done. */
    if (stream) assert_true(longest_run(NOTHING, &idle) < rounded);
}

static void check_served(fy__block_t *block, uint64_t nbytes, uint32_t stream)
{
    assert_int_equal((uintptr_t)block->address % GRANULE, 0);
    assert_int_equal(block->requested, nbytes);
    assert_true(block->nbytes >= nbytes && block->nbytes < nbytes + GRANULE);
    check_handed_out(block, stream);
    owned[owned_count++] = (owned_t){ block, nbytes };
    seen.served++;
}

static void alloc_one(fy__pool_t *pool, uint64_t most)
{
    if (owned_count == LIVE) return;
    const uint64_t nbytes = 1 + draw(draw(4) ? most / 16 : most);
    const uint32_t stream = (uint32_t)draw(STREAMS);
    const uint64_t waits = fake.waits;
    fy__block_t *block;
    fy_status_t status = fy__pool_alloc(pool, nbytes, stream, &block);
    if (fake.guard_sync) assert_int_equal(fake.waits, waits);
    if (status == FY_STATUS_OK) {
        check_served(block, nbytes, stream);
        return;
    }
    assert_null(block);
    check_refusal(status, nbytes, stream);
    if (!fake.guard_sync || status != FY_STATUS_OUT_OF_MEMORY || fake.reclaim[0] || draw(2)) return;
    /* Checks the hint. A guard of growth refuses in any case. */
    const uint64_t rounded = (nbytes + GRANULE - 1) / GRANULE * GRANULE;
    const bool said = fy_error_get()->oom->reason == FY_OOM_WOULD_FIT_AFTER_SYNC,
               would = could_serve(rounded, EVERYTHING, AS_GUARDED);
    fake.guard_sync = false;
    status = fy__pool_alloc(pool, nbytes, stream, &block);
    fake.guard_sync = true;
    assert_int_equal(status == FY_STATUS_OK, would);
    if (said && !fake.guard_growth) assert_int_equal(status, FY_STATUS_OK);
    seen.after_sync_would += said;
    if (status == FY_STATUS_OK) {
        seen.after_sync_did += said;
        check_served(block, nbytes, stream);
    } else {
        assert_true(status == FY_STATUS_OUT_OF_MEMORY ||
                    (status == FY_STATUS_REFUSED_BY_GUARD && fake.guard_growth));
        assert_null(block);
    }
}

/* Uses a block on up to three streams and frees it. */
static void free_one(void)
{
    if (!owned_count) return;
    const int i = (int)draw((uint64_t)owned_count);
    fy__block_t *block = owned[i].block;
    owned[i] = owned[--owned_count];
    if (draw(4) == 0)
        fy__hazard_clear(&block->hazard); /* the owner waited for the inherited points */
    for (uint64_t uses = draw(4); uses > 0; uses--) {
        const uint32_t stream = 1 + (uint32_t)draw(STREAMS - 1);
        const fy__point_t point = FY__POINT(stream, ++submitted[stream]);
        atomic_store(uses == 1 ? &block->hazard.writer : &block->hazard.readers[stream - 1], point);
    }
    uint64_t last[STREAMS];
    for (uint32_t s = 1; s < STREAMS; s++) last[s] = seq_on(&block->hazard, s);
    for (uint64_t at = 0; at < block->nbytes; at += GRANULE) {
        const size_t g = granule_of(block, at);
        assert_true(granules[g].is_owned);
        granules[g].is_owned = false;
        for (uint32_t s = 1; s < STREAMS; s++) granules[g].seq[s] = (uint32_t)last[s];
    }
    block->requested = 0; /* the owner may change this field; the figures must not depend on it */
    fy__pool_free(block);
}

/* A reclaim callback: frees up to three blocks, in use or not, or reports that it has none. */
static bool give_some(uint64_t nbytes)
{
    assert_true(nbytes > 0);
    seen.pressed++;
    if (!draw(4)) return false;
    const int had = owned_count;
    for (uint64_t n = 1 + draw(3); n > 0; n--) free_one();
    return owned_count < had;
}

/* The pool requests exactly the missing bytes, once, and refuses only if they do not fit. */
static void reserve_one(fy__pool_t *pool)
{
    const uint64_t nbytes =
                       draw((pool_limit == FY_UNLIMITED ? fake.capacity : pool_limit) + 64 * KIB),
                   had = fake.used;
    const uint64_t missing = nbytes > had ? (nbytes - had + GRANULE - 1) / GRANULE * GRANULE : 0,
                   calls = fake.alloc_calls;
    const fy_status_t status = fy__pool_reserve(pool, nbytes);
    seen.reserves++;
    if (status == FY_STATUS_OK) {
        assert_int_equal(fake.used, had + missing);
        assert_int_equal(fake.alloc_calls, calls + (missing > 0));
        return;
    }
    seen.reserves_refused++;
    assert_int_equal(fake.used, had);
    if (status == FY_STATUS_REFUSED_BY_GUARD)
        assert_true(fake.guard_growth);
    else
        assert_true(missing > pool_limit - had || missing > fake.capacity - had);
}

static void check_figures(fy__pool_t *pool)
{
    uint64_t live = 0, requested = 0;
    for (int i = 0; i < owned_count; i++) {
        live += owned[i].block->nbytes;
        requested += owned[i].nbytes;
    }
    const fy_memory_stats_t stats = query(pool);
    assert_int_equal(stats.live, live);
    assert_int_equal(stats.requested, requested);
    assert_int_equal(stats.reserved, fake.used);
    assert_int_equal(stats.cached, stats.reserved - live);
    assert_true(stats.pending <= stats.cached && stats.largest_free <= stats.cached);
    assert_true(stats.reserved <= stats.limit && stats.peak_live >= live &&
                stats.peak_reserved >= stats.reserved);
    assert_int_equal(stats.device_allocs, fake.alloc_calls);
    assert_true(fy__pool_is_valid(pool));
}

/* Sets guards at random times. */
/* the last two: what is there besides */
enum { ALL_ALLOWED = 0, NO_SYNC = 1, NO_GROWTH = 2, PRESSURE = 4, GROWTH_OFF = 8 };

static void history(uint64_t start, int guards, uint64_t limit, uint64_t capacity, uint64_t segment,
                    uint64_t most, int operations)
{
    fake_reset();
    pool_limit = limit;
    fake.capacity = capacity;
    fake.slot_nbytes = (uint64_t)SLOT_GRANULES * GRANULE;
    memset(granules, 0, sizeof granules);
    memset(submitted, 0, sizeof submitted);
    const char *other = getenv("FERRY_SEED");
    seed = start + 1000 * (other ? strtoull(other, NULL, 10) : 0);
    owned_count = 0;
    fake.growth_off = guards & GROWTH_OFF;
    if (guards & PRESSURE) fake.reclaim[0] = fake.reclaim[1] = give_some;
    fy__pool_t *pool = fake_pool(limit, segment);
    bool filling = true;
    for (int op = 0; op < operations; op++) {
        if (op % 256 == 0) {
            filling = draw(2);
            fake.guard_sync = (guards & NO_SYNC) && draw(4);
            fake.guard_growth = (guards & NO_GROWTH) && draw(4);
        }
        switch (draw(16)) {
        case 0: {
            const uint32_t s = 1 + (uint32_t)draw(STREAMS - 1);
            fake.done[s] += draw(submitted[s] - fake.done[s] + 1);
            break;
        }
        case 1:
            if (draw(64) == 0) fy__pool_trim(pool, draw(limit == FY_UNLIMITED ? 64 * MIB : limit));
            if ((guards & GROWTH_OFF) && draw(32) == 0) reserve_one(pool);
            break;
        default:
            if (draw(8) < (filling ? 5u : 3u))
                alloc_one(pool, most);
            else
                free_one();
        }
        if (op % 512 == 0) check_figures(pool);
    }
    check_figures(pool);
    seen.after_pressure += stats(pool).after_pressure;
    while (owned_count) free_one();
    check_figures(pool);
    for (uint32_t s = 1; s < STREAMS; s++) fake.done[s] = submitted[s];
    fy__pool_trim(pool, 0);
    assert_int_equal(query(pool).reserved, 0);
    fake_end(pool);
}

TS_TEST(without_a_limit)
{
    history(1, ALL_ALLOWED, FY_UNLIMITED, 8 * MIB, 256 * KIB, 512 * KIB, 200000);
}

TS_TEST(at_the_limit)
{
    for (uint64_t i = 0; i < 4; i++)
        history(10 + i, ALL_ALLOWED, 2 * MIB + i * 256, FY_UNLIMITED, 256 * KIB, 512 * KIB, 60000);
}

TS_TEST(on_a_full_device)
{
    for (uint64_t i = 0; i < 4; i++)
        history(20 + i, ALL_ALLOWED, FY_UNLIMITED, 2 * MIB + i * 256, 64 * KIB, 256 * KIB, 60000);
}

TS_TEST(in_tiny_memory)
{
    for (uint64_t i = 0; i < 8; i++)
        history(30 + i, ALL_ALLOWED, 8 * KIB + i * 256, FY_UNLIMITED, MIB, 4 * KIB, 30000);
}

/* The pool may not make the host wait. It reports that only if nothing else is in the way. */
TS_TEST(without_syncs)
{
    memset(&seen, 0, sizeof seen);
    for (uint64_t i = 0; i < 4; i++)
        history(40 + i, NO_SYNC, 2 * MIB + i * 256, FY_UNLIMITED, 256 * KIB, 512 * KIB, 60000);
    for (uint64_t i = 0; i < 4; i++)
        history(50 + i, NO_SYNC, FY_UNLIMITED, 2 * MIB + i * 256, 64 * KIB, 256 * KIB, 60000);
    for (uint64_t i = 0; i < 4; i++)
        history(60 + i, NO_SYNC, 8 * KIB + i * 256, FY_UNLIMITED, MIB, 4 * KIB, 30000);
    print_message("           %llu refused; %llu would have fitted after a sync, and did\n",
                  (unsigned long long)seen.refused, (unsigned long long)seen.after_sync_did);
    assert_true(seen.after_sync_would > 100 && seen.after_sync_did == seen.after_sync_would &&
                seen.refused > 2 * seen.after_sync_would);
}

TS_TEST(without_growth)
{
    memset(&seen, 0, sizeof seen);
    for (uint64_t i = 0; i < 2; i++)
        history(70 + i, NO_GROWTH, FY_UNLIMITED, 8 * MIB, 256 * KIB, 512 * KIB, 60000);
    for (uint64_t i = 0; i < 2; i++)
        history(80 + i, NO_GROWTH | NO_SYNC, 2 * MIB + i * 256, FY_UNLIMITED, 64 * KIB, 256 * KIB,
                60000);
    assert_true(seen.by_guard > 100 && seen.served > 1000);
}

/* Callbacks free blocks in the middle of a request, with and without syncs and growth. */
TS_TEST(with_reclaim_callbacks)
{
    memset(&seen, 0, sizeof seen);
    for (uint64_t i = 0; i < 4; i++)
        history(90 + i, PRESSURE, 2 * MIB + i * 256, FY_UNLIMITED, 256 * KIB, 512 * KIB, 30000);
    for (uint64_t i = 0; i < 2; i++)
        history(100 + i, PRESSURE | NO_SYNC, FY_UNLIMITED, 2 * MIB + i * 256, 64 * KIB, 256 * KIB,
                30000);
    for (uint64_t i = 0; i < 2; i++)
        history(110 + i, PRESSURE | NO_GROWTH, 8 * KIB + i * 256, FY_UNLIMITED, MIB, 4 * KIB,
                30000);
    assert_true(seen.pressed > 1000 && seen.after_pressure > 500 && seen.refused > 100);
}

/* growth=off: only a reservation grows the pool, and its memory serves every request that fits. */
TS_TEST(with_growth_off)
{
    memset(&seen, 0, sizeof seen);
    for (uint64_t i = 0; i < 2; i++)
        history(120 + i, GROWTH_OFF, 2 * MIB + i * 256, FY_UNLIMITED, 256 * KIB, 512 * KIB, 60000);
    for (uint64_t i = 0; i < 2; i++)
        history(130 + i, GROWTH_OFF | NO_SYNC, FY_UNLIMITED, 2 * MIB + i * 256, 64 * KIB, 256 * KIB,
                30000);
    for (uint64_t i = 0; i < 2; i++)
        history(140 + i, GROWTH_OFF | PRESSURE | NO_GROWTH, 4 * MIB, FY_UNLIMITED, 64 * KIB,
                256 * KIB, 30000);
    assert_true(seen.reserves > 100 && seen.reserves_refused > 10 && seen.served > 1000 &&
                seen.refused > 100);
}
