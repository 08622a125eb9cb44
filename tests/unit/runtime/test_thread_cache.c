/* The thread cache from inside: large cached host blocks, which threads may take them, the bounds,
 * and that no request is refused while a thread caches a block that serves it. Small blocks:
 * test_storage.c. */
#include "runtime/tensor/storage.h"
#include "runtime/tensor/thread_cache.h"

#include <pthread.h>
#include <stdatomic.h>

#include "tests/support/harness.h"

static uint64_t kept_nbytes(void)
{
    uint64_t by_category[FY_CATEGORY_COUNT];
    return fy__cache_nbytes(by_category);
}

enum { LARGE = 1 << 20 };
static const uint64_t most_nbytes = 64u << 20;

static fy__storage_t *make(fy__thread_t *thread, uint64_t nbytes)
{
    fy__storage_t *storage;
    ts_ok(fy__storage_create(thread, fy_device_host(), nbytes, NULL, &storage));
    return storage;
}

TS_TEST(a_large_block_comes_back_as_new)
{
    fy__thread_t *thread = fy__thread();
    const uint64_t served = fy__cache_served(), live = ts_live(fy_device_host());
    fy__storage_t *a = make(thread, LARGE);
    fy__storage_wrote(a);
    fy__storage_release(thread, a);
    assert_int_equal(ts_live(fy_device_host()), live); /* for the user these bytes are free */
    fy__storage_t *b = make(thread, LARGE - 1000);
    assert_ptr_equal(a, b);
    assert_int_equal(b->nbytes, LARGE - 1000);
    assert_int_equal(atomic_load(&b->version), 0);
    assert_int_equal(atomic_load(&b->refs), 1);
    assert_int_equal(fy__cache_served(), served + 1);
    assert_int_equal(ts_live(fy_device_host()), live + LARGE);
    fy__storage_release(thread, b);
    (void)fy__cache_flush(thread);
    assert_int_equal(kept_nbytes(), 0);
    assert_true(fy__pool_is_valid(fy_device_host()->pool));
}

TS_TEST(a_block_of_an_unsuitable_size_is_not_taken)
{
    fy__thread_t *thread = fy__thread();
    fy__storage_t *a = make(thread, LARGE);
    fy__storage_release(thread, a);
    fy__storage_t *smaller = make(thread, LARGE * 7 / 8 - 64), *larger = make(thread, LARGE + 64);
    assert_ptr_not_equal(smaller, a);
    assert_ptr_not_equal(larger, a);
    assert_true(smaller->block->nbytes - smaller->nbytes <= smaller->nbytes / 8);
    fy__storage_release(thread, larger);
    fy__storage_release(thread, smaller);
    /* neither the previous one nor the first one */
    fy__storage_t *best = make(thread, LARGE * 7 / 8 - 64);
    assert_ptr_equal(best, smaller);
    fy__storage_release(thread, best);
    (void)fy__cache_flush(thread);
}

/* Figures by category and by scope use the purpose of a block. A request for another purpose gets
 * another block. */
TS_TEST(a_block_serves_its_own_kind)
{
    fy__thread_t *thread = fy__thread();
    (void)fy__cache_flush(thread);
    const fy_memory_stats_t before = ts_memory(fy_device_host(), NULL);
    fy__storage_t *a = make(thread, LARGE), *b;
    fy__storage_release(thread, a);
    ts_ok(fy__storage_create_scratch(thread, fy_device_host(), LARGE, NULL, FY_CATEGORY_WORKSPACE,
                                     &b));
    assert_ptr_not_equal(a, b);
    fy_memory_stats_t after = ts_memory(fy_device_host(), NULL);
    assert_int_equal(after.live, before.live + LARGE);
    for (int i = 0; i < FY_CATEGORY_COUNT; i++)
        assert_int_equal(after.by_category[i],
                         before.by_category[i] + (i == FY_CATEGORY_WORKSPACE ? LARGE : 0));
    fy__storage_release(thread, b);
    fy_scope_t scope = fy_scope_begin("elsewhere");
    fy__storage_t *c = make(thread, LARGE);
    assert_ptr_not_equal(c, a);
    fy__storage_release(thread, c);
    fy_scope_end(scope, 0, NULL);
    fy__storage_t *d = make(thread, LARGE);
    assert_ptr_equal(d, a);
    fy__storage_release(thread, d);
    after = ts_memory(fy_device_host(), NULL);
    assert_memory_equal(after.by_category, before.by_category, sizeof after.by_category);
    (void)fy__cache_flush(thread);
}

TS_TEST(the_cache_is_bounded)
{
    fy__thread_t *thread = fy__thread();
    fy__storage_t *storages[40];
    for (int i = 0; i < 40; i++) storages[i] = make(thread, (uint64_t)(i + 1) * LARGE);
    for (int i = 0; i < 40; i++) {
        fy__storage_release(thread, storages[i]);
        /* including small ones of earlier tests */
        assert_true(kept_nbytes() <= most_nbytes + (4u << 20));
    }
    fy__storage_release(thread, make(thread, 2 * most_nbytes)); /* never kept */
    assert_true(kept_nbytes() <= most_nbytes + (4u << 20));
    (void)fy__cache_flush(thread);
    assert_int_equal(kept_nbytes(), 0);
    assert_true(fy__pool_is_valid(fy_device_host()->pool));
}

TS_TEST(page_locked_and_wrapped_bytes_are_not_kept)
{
    static _Alignas(64) char mine[2 * FY__CACHE_LARGEST];
    fy__thread_t *thread = fy__thread();
    (void)fy__cache_flush(thread);
    fy__storage_t *wrapped;
    ts_ok(fy__storage_wrap(thread, fy_device_host(), mine, sizeof mine, NULL, NULL, &wrapped));
    fy__storage_release(thread, wrapped);
    assert_int_equal(kept_nbytes(), 0);
    fy_device_t *device = ts_open("sim:0");
    fy__storage_t *pinned = make(thread, LARGE);
    ts_ok(fy__storage_pin(thread, pinned, device));
    fy__storage_release(thread, pinned);
    assert_int_equal(kept_nbytes(), 0);
}

/* ---- other threads ---- */

typedef struct other {
    pthread_barrier_t barrier;
    fy__storage_t *kept;
} other_t;

static void *keep_one(void *user)
{
    other_t *other = user;
    fy__thread_t *thread = fy__thread();
    other->kept = make(thread, LARGE);
    fy__storage_release(thread, other->kept);
    pthread_barrier_wait(&other->barrier); /* it has one cached block */
    pthread_barrier_wait(&other->barrier); /* until this thread has taken it */
    fy__storage_t *again = make(thread, LARGE);
    assert_ptr_not_equal(again, NULL);
    fy__storage_release(thread, again);
    return NULL;
}

TS_TEST(a_thread_takes_blocks_that_others_cache)
{
    fy__thread_t *thread = fy__thread();
    (void)fy__cache_flush(thread);
    other_t other;
    pthread_barrier_init(&other.barrier, NULL, 2);
    const pthread_t id = ts_thread(keep_one, &other);
    pthread_barrier_wait(&other.barrier);
    assert_true(kept_nbytes() >= LARGE);
    const fy_memory_stats_t before = ts_memory(fy_device_host(), NULL);
    fy__storage_t *huge =
        /* no cached block serves it, so the cache is flushed before the pool grows */
        make(thread, before.reserved + LARGE);
    assert_int_equal(kept_nbytes(), 0);
    fy__storage_release(thread, huge);
    pthread_barrier_wait(&other.barrier);
    pthread_join(id, NULL);
    assert_int_equal(kept_nbytes(), 0); /* a thread that ends keeps no large blocks */
    pthread_barrier_destroy(&other.barrier);
    const fy_memory_stats_t after = ts_memory(fy_device_host(), NULL);
    assert_int_equal(after.live, before.live);
    assert_true(fy__pool_is_valid(fy_device_host()->pool));
}

enum { CHURN_THREADS = 4, CHURN_ROUNDS = 400 };

static void *churn(void *user)
{
    fy__thread_t *thread = fy__thread();
    uint64_t x = *(const uint64_t *)user;
    fy__storage_t *held[4] = { NULL };
    for (int i = 0; i < CHURN_ROUNDS; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        fy__storage_t **slot = &held[x >> 62];
        if (*slot) {
            /* no other thread had it */
            assert_int_equal(*(const uint64_t *)(*slot)->data, (uint64_t)(uintptr_t)*slot);
            fy__storage_release(thread, *slot);
        }
        *slot = make(thread, 40000 + (x >> 40) % 100000);
        *(uint64_t *)(*slot)->data = (uint64_t)(uintptr_t)*slot;
        if (i % 16 == 0) (void)fy__cache_flush(thread);
    }
    for (int i = 0; i < 4; i++)
        if (held[i]) fy__storage_release(thread, held[i]);
    return NULL;
}

TS_TEST(threads_take_cached_blocks_concurrently)
{
    uint64_t seeds[CHURN_THREADS];
    const uint64_t live = ts_live(fy_device_host());
    for (uint64_t i = 0; i < CHURN_THREADS; i++) seeds[i] = i * 77 + 1;
    ts_on_threads(CHURN_THREADS, churn, seeds, sizeof *seeds);
    assert_int_equal(ts_live(fy_device_host()), live);
    assert_true(fy__pool_is_valid(fy_device_host()->pool));
}

/* Two of the blocks are more than a thread keeps. Each kept block evicts one that another thread
 * may be taking at that moment. */
static void *keep_what_others_take(void *done)
{
    fy__thread_t *thread = fy__thread();
    for (int i = 0; i < 20000; i++) {
        fy__storage_t *a = make(thread, most_nbytes / 2 + LARGE),
                      *b = make(thread, most_nbytes / 2 + 2 * LARGE);
        fy__storage_release(thread, a);
        fy__storage_release(thread, b);
    }
    atomic_store((_Atomic bool *)done, true);
    return NULL;
}

TS_TEST(blocks_are_evicted_while_others_take_them)
{
    _Atomic bool done = false;
    const pthread_t id = ts_thread(keep_what_others_take, &done);
    while (!atomic_load(&done)) (void)fy__cache_flush(fy__thread());
    pthread_join(id, NULL);
    assert_true(fy__pool_is_valid(fy_device_host()->pool));
}

/* A loop with constant shapes makes no backend call. */
TS_TEST(a_steady_step_calls_no_backend)
{
    fy_device_t *devices[2] = { fy_device_host(), ts_open("sim:0") };
    static const int64_t sizes[] = { 64, 4096, 100000, 1 << 20, 5 << 20 };
    for (int d = 0; d < 2; d++) {
        fy_memory_stats_t warm = FY_MEMORY_STATS_INIT, stats = FY_MEMORY_STATS_INIT;
        for (int step = 0; step < 20; step++) {
            fy_tensor_t *tensors[5];
            for (int i = 0; i < 5; i++)
                ts_ok(fy_tensor_create(devices[d], FY_DTYPE_U8, 1, &sizes[i], &tensors[i]));
            for (int i = 5; i-- > 0;) fy_tensor_destroy(tensors[i]);
            if (step == 0) ts_ok(fy_memory_query(devices[d], NULL, &warm));
        }
        ts_ok(fy_memory_query(devices[d], NULL, &stats));
        assert_int_equal(stats.device_allocs, warm.device_allocs);
        assert_int_equal(stats.reserved, warm.reserved);
    }
}
