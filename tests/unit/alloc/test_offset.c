/* The offset allocator against an oracle that is too simple to be wrong: an array of intervals,
 * searched from end to end.
 * Sizes span many orders of magnitude, lists are created and destroyed, and every answer (best
 * size, joined neighbours, largest) must agree. */

#include "alloc/offset.h"
#include "tests/support/harness.h"

enum { RANGES = 3, MOST = 256, SHELVES = 3 };

/* An interval; `span` is the allocator's if it is taken. */
typedef struct interval {
    uint64_t offset, nbytes;
    int list;
    fy__span_t *span;
} interval_t;

typedef struct oracle_range {
    interval_t list[MOST];
    int count;
    fy__range_t *range;
} oracle_range_t;

static oracle_range_t oracle[RANGES];
static uint64_t random_state;

static uint64_t draw(uint64_t below)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state % below;
}

static const fy__meta_t meta = { NULL, fy__meta_malloc_alloc, fy__meta_malloc_free };

static bool is_whole(const oracle_range_t *range)
{
    return range->count == 1 && range->range->is_dedicated;
}

/* Finds the best size on a list by a full search; 0 if none. */
static uint64_t oracle_best(int list, uint64_t nbytes, bool whole)
{
    uint64_t best = 0;
    for (int r = 0; r < RANGES; r++)
        for (int i = 0; i < oracle[r].count; i++) {
            const interval_t *at = &oracle[r].list[i];
            if (at->list == list && at->nbytes >= nbytes && is_whole(&oracle[r]) == whole &&
                (!best || at->nbytes < best))
                best = at->nbytes;
        }
    return best;
}

static uint64_t oracle_largest(int list)
{
    uint64_t largest = 0;
    for (int r = 0; r < RANGES; r++)
        for (int i = 0; i < oracle[r].count; i++)
            if (oracle[r].list[i].list == list && oracle[r].list[i].nbytes > largest)
                largest = oracle[r].list[i].nbytes;
    return largest;
}

static interval_t *oracle_find(uint64_t offset, oracle_range_t **out_range)
{
    for (int r = 0; r < RANGES; r++)
        for (int i = 0; i < oracle[r].count; i++)
            if (oracle[r].list[i].offset == offset) {
                *out_range = &oracle[r];
                return &oracle[r].list[i];
            }
    fail_msg("the allocator gave an offset that begins no interval");
    return NULL;
}

static void erase(oracle_range_t *range, int i)
{
    memmove(&range->list[i], &range->list[i + 1],
            sizeof(interval_t) * (size_t)(range->count - i - 1));
    range->count--;
}

static void check_take(fy__offsets_t *offsets, int list, uint64_t nbytes, bool whole)
{
    fy__span_t *span = whole ? fy__offsets_best_dedicated(offsets, (uint32_t)list, nbytes)
                             : fy__offsets_best(offsets, (uint32_t)list, nbytes);
    const uint64_t best = oracle_best(list, nbytes, whole);
    if (!span) {
        assert_int_equal(best, 0);
        return;
    }
    assert_int_equal(span->size.nbytes, best);
    oracle_range_t *range;
    interval_t *at = oracle_find(span->offset, &range);
    assert_int_equal(at->nbytes, best);
    assert_int_equal(at->list, list);
    if (range->count == MOST && best != nbytes) return;
    fy__span_t *rest;
    assert_true(fy__offsets_take(offsets, span, nbytes, &rest));
    assert_int_equal(!rest, best == nbytes);
    const int i = (int)(at - range->list);
    if (rest) {
        memmove(&range->list[i + 1], &range->list[i],
                sizeof(interval_t) * (size_t)(range->count - i));
        range->count++;
        range->list[i + 1].offset += nbytes;
        range->list[i + 1].nbytes -= nbytes;
        assert_int_equal(rest->offset, range->list[i + 1].offset);
        assert_int_equal(rest->size.nbytes, range->list[i + 1].nbytes);
    }
    range->list[i] = (interval_t){ range->list[i].offset, nbytes, FY__SPAN_TAKEN, span };
}

static void check_put(fy__offsets_t *offsets, oracle_range_t *range, int i, int list)
{
    const fy__span_t *joined = fy__offsets_put(offsets, range->list[i].span, (uint32_t)list);
    interval_t *at = &range->list[i];
    at->list = list;
    at->span = NULL;
    if (list != FY__LIST_NO_JOIN) {
        if (i + 1 < range->count && at[1].list == list) {
            at->nbytes += at[1].nbytes;
            erase(range, i + 1);
        }
        if (i > 0 && at[-1].list == list) {
            at[-1].nbytes += at->nbytes;
            erase(range, i);
            at--;
        }
    }
    assert_int_equal(joined->offset, at->offset);
    assert_int_equal(joined->size.nbytes, at->nbytes);
    assert_int_equal(joined->list, list);
}

/* Sizes with as many orders of magnitude as the range has, so that every level of the tries is
 * used. */
static uint64_t draw_size(uint64_t granule, unsigned most_bits)
{
    return (1 + draw(1ull << draw(most_bits))) * granule;
}

static void churn(uint64_t seed, uint64_t granule, unsigned range_bits, int operations)
{
    fy__offsets_t offsets;
    static const int list_of[SHELVES] = { 0, 4, FY__LIST_NO_JOIN };
    random_state = seed;
    assert_true(fy__offsets_init(&offsets, granule, sizeof(fy__span_t) + 24, &meta));
    for (int i = 0; i < SHELVES; i++)
        assert_true(fy__offsets_open_list(&offsets, (uint32_t)list_of[i]));
    for (int r = 0; r < RANGES; r++) {
        const uint64_t nbytes = ((1ull << range_bits) - (uint64_t)r) * granule,
                       offset = ((uint64_t)r << (range_bits + 1)) * granule;
        fy__range_t *range = fy__offsets_prepare_range(&offsets, r == 2);
        assert_non_null(range);
        fy__offsets_add_range(&offsets, range, offset, nbytes);
        oracle[r] = (oracle_range_t){ .count = 1, .range = range };
        oracle[r].list[0] = (interval_t){ offset, nbytes, 0, NULL };
    }
    bool filling = true;
    for (int op = 0; op < operations; op++) {
        if (op % 512 == 0) filling = draw(2);
        oracle_range_t *range = &oracle[draw(RANGES)];
        const int i = (int)draw((uint64_t)range->count);
        if (range->list[i].list == FY__SPAN_TAKEN && draw(4) >= (filling ? 2u : 1u))
            check_put(&offsets, range, i, list_of[draw(8) ? 0 : draw(SHELVES)]);
        else
            check_take(&offsets, list_of[draw(4) ? 0 : draw(SHELVES)],
                       draw_size(granule, range_bits - 1), draw(8) == 0);
        if (op % 4096 == 0) {
            assert_true(fy__offsets_is_valid(&offsets));
            for (int s = 0; s < SHELVES; s++)
                assert_int_equal(fy__offsets_largest(&offsets, (uint32_t)list_of[s]),
                                 oracle_largest(list_of[s]));
        }
    }
    assert_true(fy__offsets_is_valid(&offsets));
    /* Frees everything: each range is one span again and can be removed. */
    for (int r = 0; r < RANGES; r++) {
        for (int i = 0; i < oracle[r].count; i++) {
            interval_t *at = &oracle[r].list[i];
            fy__span_t *rest, *span = oracle[r].range->first;
            while (span->offset != at->offset) span = span->next;
            if (at->list != FY__SPAN_TAKEN)
                assert_true(fy__offsets_take(&offsets, span, at->nbytes, &rest));
            at->list = FY__SPAN_TAKEN;
        }
        while (oracle[r].range->first->next)
            fy__offsets_join_taken(&offsets, oracle[r].range->first);
        fy__offsets_put(&offsets, oracle[r].range->first, 0);
        assert_int_equal(oracle[r].range->first->size.nbytes, oracle[r].range->nbytes);
        fy__offsets_remove_range(&offsets, oracle[r].range);
        assert_true(fy__offsets_is_valid(&offsets));
    }
    assert_int_equal(offsets.span_count, 0);
    fy__offsets_fini(&offsets);
}

TS_TEST(few_sizes) { churn(0x9E3779B97F4A7C15ull, 256, 8, 500000); }

TS_TEST(sizes_over_nine_octaves) { churn(0xD1B54A32D192ED03ull, 64, 10, 400000); }

TS_TEST(sizes_over_forty_octaves) { churn(0x8CB92BA72F3D8DD7ull, 256, 42, 300000); }

/* Sizes of 1 to 4096 granules, each indexed once or several times: best fit must be exact for every
 * requested size. */
TS_TEST(best_fit_is_exact)
{
    enum { COUNT = 3000 };
    static fy__size_node_t nodes[COUNT];
    static uint8_t there[4098];
    fy__size_index_t *index = malloc(sizeof *index);
    uint64_t count;
    random_state = 42;
    memset(there, 0, sizeof there);
    fy__size_index_init(index, 64);
    for (int i = 0; i < COUNT; i++) {
        nodes[i].nbytes = (1 + draw(4096)) * 64;
        there[nodes[i].nbytes / 64]++;
        fy__size_index_insert(index, &nodes[i]);
    }
    for (int round = 0; round < 3; round++) {
        uint64_t want = 0;
        assert_true(fy__size_index_is_valid(index, &count));
        for (uint64_t granules = 4097; granules > 0; granules--) {
            if (granules <= 4096 && there[granules]) want = granules;
            const fy__size_node_t *best = fy__size_index_best(index, granules * 64);
            assert_int_equal(best ? best->nbytes : 0, want * 64);
        }
        for (int i = round; i < COUNT; i += 3) {
            there[nodes[i].nbytes / 64]--;
            fy__size_index_remove(index, &nodes[i]);
        }
    }
    assert_true(fy__size_index_is_valid(index, &count));
    assert_int_equal(count, 0);
    assert_null(fy__size_index_best(index, 64));
    assert_null(fy__size_index_largest(index));
    free(index);
}

/* Sizes of one bin (an eighth of a power of two apart): never a block that is too small
 * (pytorch#192722). */
TS_TEST(never_too_small_in_a_mixed_bin)
{
    fy__offsets_t offsets;
    fy__span_t *rest, *span;
    assert_true(fy__offsets_init(&offsets, 1, sizeof(fy__span_t), &meta));
    fy__span_t *all =
        fy__offsets_add_range(&offsets, fy__offsets_prepare_range(&offsets, false), 0, 1u << 20);
    uint64_t sizes[] = { 150000, 1, 150001, 1, 149999, 1 };
    fy__span_t *spans[6];
    for (int i = 0; i < 6; i++) {
        spans[i] = all;
        assert_true(fy__offsets_take(&offsets, all, sizes[i], &rest));
        all = rest;
    }
    assert_true(fy__offsets_take(&offsets, all, all->size.nbytes, &rest));
    for (int i = 0; i < 6; i += 2) fy__offsets_put(&offsets, spans[i], 0);
    assert_null(fy__offsets_best(&offsets, 0, 150002));
    span = fy__offsets_best(&offsets, 0, 150001);
    assert_ptr_equal(span, spans[2]);
    span = fy__offsets_best(&offsets, 0, 149998);
    assert_ptr_equal(span, spans[4]);
    fy__offsets_fini(&offsets);
}
