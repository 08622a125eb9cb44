/* Random histories of a pool against an oracle that knows every granule: who owns it, and which points may still use it.
 * Checked at every step: no two owners, bytes are handed out only with the points that still matter (none at all for the host), figures
 * are the oracle's sums, the limit holds, and a request is refused only if no way of serving it was left. */
#include "tests/unit/alloc/fake.h"

enum { GRANULE = 256, LIVE = 200, STREAMS = 5, SLOTS = 64, SLOT_GRANULES = 1 << 14, GRANULES = SLOTS * SLOT_GRANULES };

typedef struct owned {
    fy__block_t *block;
    uint64_t nbytes;
} owned_t;

/* Per granule of the address space. */
static struct {
    bool is_owned;
    uint32_t seq[STREAMS]; /* last use by each stream */
} granules[GRANULES];
static owned_t owned[LIVE];
static int owned_count;
static uint64_t seed, submitted[STREAMS];

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
        if (FY__POINT_STREAM(fake_word(hazard, i)) == stream && FY__POINT_SEQ(fake_word(hazard, i)) > last)
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
            if (granules[g].seq[s] > fake.done[s]) assert_true(stream && covered[s] >= granules[g].seq[s]);
    }
}

static void alloc_one(fy__pool_t *pool, uint64_t most)
{
    if (owned_count == LIVE) return;
    const uint64_t nbytes = 1 + draw(draw(4) ? most / 16 : most);
    const uint32_t stream = (uint32_t)draw(STREAMS);
    fy__block_t *block;
    const fy_status_t status = fy__pool_alloc(pool, nbytes, stream, &block);
    if (status != FY_STATUS_OK) {
        assert_int_equal(status, FY_STATUS_OUT_OF_MEMORY);
        assert_null(block);
        const uint64_t rounded = (nbytes + GRANULE - 1) / GRANULE * GRANULE;
        const fy_oom_verdict_t *verdict = fy_error_get()->oom;
        assert_non_null(verdict);
        if (rounded > verdict->limit || rounded > fake.capacity) return;
        /* It waited for everything, so nothing is pending, and neither a free run nor growth would have done. */
        assert_int_equal(verdict->asked, nbytes);
        assert_int_equal(verdict->pending, 0);
        assert_true(verdict->largest_free < rounded);
        assert_true(verdict->reserved + rounded > verdict->limit || fake.used + rounded > fake.capacity);
        return;
    }
    assert_int_equal(block->requested, nbytes);
    assert_true(block->nbytes >= nbytes && block->nbytes < nbytes + GRANULE);
    check_handed_out(block, stream);
    owned[owned_count++] = (owned_t){ block, nbytes };
}

/* Uses a block on up to three streams and gives it back. */
static void free_one(void)
{
    if (!owned_count) return;
    const int i = (int)draw((uint64_t)owned_count);
    fy__block_t *block = owned[i].block;
    owned[i] = owned[--owned_count];
    if (draw(4) == 0) fy__hazard_clear(&block->hazard); /* the owner waited for what it inherited */
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
    block->requested = 0; /* the owner's to change; the figures must not depend on it */
    fy__pool_free(block);
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
    assert_true(stats.reserved <= stats.limit && stats.peak_live >= live && stats.peak_reserved >= stats.reserved);
    assert_int_equal(stats.device_allocs, fake.alloc_calls);
    assert_true(fy__pool_is_valid(pool));
}

static void history(uint64_t start, uint64_t limit, uint64_t capacity, uint64_t segment, uint64_t most, int operations)
{
    fake_reset();
    fake.capacity = capacity;
    fake.slot_nbytes = (uint64_t)SLOT_GRANULES * GRANULE;
    memset(granules, 0, sizeof granules);
    memset(submitted, 0, sizeof submitted);
    seed = start;
    owned_count = 0;
    fy__pool_t *pool = fake_pool(limit, segment);
    bool filling = true;
    for (int op = 0; op < operations; op++) {
        if (op % 256 == 0) filling = draw(2);
        switch (draw(16)) {
        case 0: {
            const uint32_t s = 1 + (uint32_t)draw(STREAMS - 1);
            fake.done[s] += draw(submitted[s] - fake.done[s] + 1);
            break;
        }
        case 1:
            if (draw(64) == 0) fy__pool_trim(pool, draw(limit == FY_UNLIMITED ? 64 * MIB : limit));
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
    while (owned_count) free_one();
    check_figures(pool);
    for (uint32_t s = 1; s < STREAMS; s++) fake.done[s] = submitted[s];
    fy__pool_trim(pool, 0);
    assert_int_equal(query(pool).reserved, 0);
    fake_end(pool);
}

static void roomy(void **state)
{
    (void)state;
    history(1, FY_UNLIMITED, 8 * MIB, 256 * KIB, 512 * KIB, 40000);
}

static void at_the_limit(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 4; i++) history(10 + i, 2 * MIB + i * 256, FY_UNLIMITED, 256 * KIB, 512 * KIB, 20000);
}

static void on_a_full_device(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 4; i++) history(20 + i, FY_UNLIMITED, 2 * MIB + i * 256, 64 * KIB, 256 * KIB, 20000);
}

static void in_tiny_memory(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 8; i++) history(30 + i, 8 * KIB + i * 256, FY_UNLIMITED, MIB, 4 * KIB, 20000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(roomy),
        cmocka_unit_test(at_the_limit),
        cmocka_unit_test(on_a_full_device),
        cmocka_unit_test(in_tiny_memory),
    };
    return cmocka_run_group_tests_name("alloc/pool_random", tests, NULL, NULL);
}
