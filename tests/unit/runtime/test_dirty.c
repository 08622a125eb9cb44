/* The dirty flag of a storage (runtime/tensor/storage.h). Every writer of a field that forbids
 * unchecked reuse sets it, so the thread cache does not keep the storage. The cache keeps it again
 * once every such condition has ended. One test for each writer.
 * Not here: faults as users see them (tests/conformance/test_fault.c), the thread cache
 * itself (test_thread_cache.c). */
#include <pthread.h>

#include "runtime/base/fail.h"
#include "runtime/order/stream.h"
#include "runtime/tensor/tensor.h"
#include "runtime/tensor/thread_cache.h"
#include "tests/support/failing.h"
#include "transfer/upload.h"

static uint64_t kept_nbytes(void)
{
    uint64_t by_category[FY_CATEGORY_COUNT];
    return fy__cache_nbytes(by_category);
}

static unsigned class_of(const fy_tensor_t *tensor)
{
    return atomic_load(&tensor->storage->cache_class) & ~(unsigned)FY__CACHE_DIRTY;
}
static bool is_dirty(const fy_tensor_t *tensor)
{
    return atomic_load(&tensor->storage->cache_class) & FY__CACHE_DIRTY;
}

/* Destroys the tensor. The thread cache must not keep its storage. */
static void expect_not_kept(fy_tensor_t *tensor)
{
    const uint64_t kept = kept_nbytes(), live = ts_live(fy_device_host()),
                   nbytes = tensor->storage->nbytes;
    assert_int_not_equal(
        class_of(tensor),
        0); /* otherwise the thread cache never keeps it and this check means nothing */
    assert_false(fy__storage_is_clean(tensor->storage));
    fy_tensor_destroy(tensor);
    assert_true(fy__cache_is_valid(fy__thread()));
    assert_int_equal(kept_nbytes(), kept);
    assert_true(ts_live(fy_device_host()) + nbytes <= live);
}

/* Destroys the tensor. The thread cache must keep its storage. */
static void expect_kept(fy_tensor_t *tensor)
{
    const uint64_t kept = kept_nbytes(), nbytes = tensor->storage->nbytes;
    fy_tensor_destroy(tensor);
    assert_true(fy__cache_is_valid(fy__thread()));
    assert_true(kept_nbytes() >= kept + nbytes);
}

static fy_tensor_t *make(int64_t nbytes)
{
    (void)fy__cache_flush(fy__thread());
    fy_tensor_t *tensor = ts_bytes(fy_device_host(), nbytes);
    assert_int_not_equal(class_of(tensor), 0);
    assert_false(is_dirty(tensor));
    return tensor;
}

static fy_tensor_t *indices_of(fy_device_t *device, int64_t first)
{
    fy_tensor_t *indices;
    ts_ok(fy_arange(device, FY_DTYPE_I64, (double)first, 1, 3, &indices));
    return indices;
}

/* ---- writers of the flag ---- */

TS_DEVICE_TEST(a_result_of_a_faulty_op_is_not_cached)
{
    if (!ctx->is_host) skip(); /* only host storages are cached by threads */
    (void)fy__cache_flush(fy__thread());
    fy_tensor_t *table = ts_iota(ctx->device, FY_DIMS(4, 2), 0), *rows, *more;
    ts_ok(fy_gather(table, indices_of(ctx->device, 50), &rows));
    ts_ok(fy_neg(rows, &more)); /* its result is poisoned too */
    expect_not_kept(more);
    expect_not_kept(rows);
}

TS_DEVICE_TEST(a_result_of_a_faulty_replay_is_not_cached)
{
    if (!ctx->is_host) skip();
    fy_tensor_t *table = ts_iota(ctx->device, FY_DIMS(4, 2), 0),
                *indices = indices_of(ctx->device, 0), *rows;
    ts_ok(fy_zeros(ctx->device, FY_DTYPE_F32, FY_DIMS(3, 2), &rows));
    ts_ok(fy_graph_begin(ctx->device));
    ts_ok(fy_op_call(FY_OP_GATHER, 2, (fy_tensor_t *[]){ table, indices }, NULL, 0, 1, &rows));
    fy_graph_t *graph = ts_graph_end();
    ts_ok(fy_graph_replay(graph, NULL));
    assert_false(is_dirty(rows));
    ts_ok(fy_copy(indices, indices_of(ctx->device, 50)));
    ts_ok(fy_graph_replay(graph, NULL));
    fy_graph_destroy(graph); /* the graph holds a reference */
    expect_not_kept(rows);
}

TS_DEVICE_TEST(results_of_a_failed_replay_are_not_cached)
{
    if (!ctx->is_host) skip();
    fy_tensor_t *x = ts_iota(ctx->device, FY_DIMS(4), 0),
                *larger = ts_iota(ctx->device, FY_DIMS(2, 4), 0), *first, *second;
    ts_ok(fy_zeros(ctx->device, FY_DTYPE_F32, FY_DIMS(4), &first));
    ts_ok(fy_zeros(ctx->device, FY_DTYPE_F32, FY_DIMS(2, 4), &second));
    ts_ok(fy_graph_begin(ctx->device));
    ts_ok(fy_op_call(FY_OP_NEG, 1, &x, NULL, 0, 1, &first));
    /* another size: a second launch */
    ts_ok(fy_op_call(FY_OP_ADD, 2, (fy_tensor_t *[]){ larger, first }, NULL, 0, 1, &second));
    fy_graph_t *graph = ts_graph_end();
    ts_fail_after(ctx->device, 9, 1);
    const fy_status_t status = fy_graph_replay(graph, NULL);
    ts_heal(ctx->device);
    ts_fails(status, INTERNAL);
    fy_graph_destroy(graph);
    expect_not_kept(first);
    expect_not_kept(second);
}

TS_DEVICE_TEST(a_download_of_poisoned_bytes_is_not_cached)
{
    if (ctx->is_host) skip(); /* the host refuses this at once */
    fy_tensor_t *table = ts_iota(ctx->device, FY_DIMS(4, 2), 0), *rows, *here;
    ts_ok(fy_tensor_create(fy_device_host(), FY_DTYPE_F32, FY_DIMS(3, 2), &here));
    ts_ok(fy_gather(table, indices_of(ctx->device, 50), &rows));
    ts_fails(fy_tensor_download_into(here, rows, NULL), BAD_VALUE);
    expect_not_kept(here);
}

TS_TEST(the_target_of_a_failed_upload_is_not_cached)
{
    fy_tensor_t *tensor = make(100);
    fy__upload_poison(tensor, FY_FAIL(INTERNAL, "made to fail"));
    expect_not_kept(tensor);
}

TS_TEST(a_late_transfer_fault_keeps_the_storage_out_of_the_cache)
{
    fy_device_t *host = fy_device_host();
    const fy__taint_t taint = { .poison = fy__poison_record(FY_STATUS_IO, "made up") };
    for (int adopted = 0; adopted < 2; adopted++) {
        fy_tensor_t *tensor = make(100);
        fy__storage_late_add(host, tensor->storage, &taint);
        if (adopted) fy__storage_adopt(tensor->storage);
        if (adopted) fy__storage_late_clear(host, tensor->storage);
        expect_not_kept(tensor);
    }
    const fy__taint_t none = { 0, 0, 0 };
    fy_tensor_t *tensor = make(100);
    fy__storage_late_add(host, tensor->storage, &none);
    assert_false(is_dirty(tensor));
    expect_kept(tensor);
}

/* No call lends bytes that the thread cache can have: lent bytes are page-locked, or the device is
 * done before the call returns. But every storage has the field. */
static fy__point_t a_point_that_is_reached(void)
{
    fy_device_t *device = ts_open("sim:7");
    fy_tensor_t *x = ts_full(device, FY_DIMS(4), 0);
    ts_ok(fy_device_wait(device, FY_FOREVER));
    const fy__point_t point = atomic_load(&x->storage->hazard.writer);
    assert_true(point != 0 && fy__point_reached(point));
    return point;
}

TS_TEST(lent_bytes_are_not_cached)
{
    const fy__point_t point = a_point_that_is_reached();
    for (int64_t nbytes = 100; nbytes <= 2 * FY__CACHE_LARGEST; nbytes *= 4) {
        fy_tensor_t *tensor = make(nbytes);
        fy__storage_lend(tensor->storage, point);
        expect_not_kept(tensor);
    }
    fy_tensor_t *large = make(2 * FY__CACHE_LARGEST);
    assert_int_equal(class_of(large), FY__CACHE_LARGE);
    fy__storage_lend(large->storage, point);
    expect_not_kept(large);
}

/* ---- the flag is cleared ---- */

TS_TEST(the_storage_is_cached_after_its_borrow_ended)
{
    void *data;
    const fy__point_t point = a_point_that_is_reached();
    for (int large = 0; large < 2; large++) {
        fy_tensor_t *tensor = make(large ? 2 * FY__CACHE_LARGEST : 100);
        fy__storage_lend(tensor->storage, point);
        ts_ok(fy_tensor_map(tensor, FY_ACCESS_WRITE, &data)); /* detects that the borrow is over */
        /* the flag stays until the last reference is released */
        assert_true(is_dirty(tensor));
        fy__storage_t *storage = tensor->storage, *again;
        expect_kept(tensor);
        ts_ok(fy__storage_create(fy__thread(), fy_device_host(),
                                 large ? 2 * FY__CACHE_LARGEST : 100, NULL, &again));
        assert_ptr_equal(again, storage);
        assert_int_equal(atomic_load(&again->cache_class) & FY__CACHE_DIRTY, 0);
        fy__storage_release(fy__thread(), again);
    }
}

TS_DEVICE_TEST(the_storage_is_cached_after_a_complete_overwrite)
{
    if (!ctx->is_host) skip();
    (void)fy__cache_flush(fy__thread());
    fy_tensor_t *table = ts_iota(ctx->device, FY_DIMS(4, 2), 0), *rows;
    ts_ok(fy_gather(table, indices_of(ctx->device, 50), &rows));
    ts_ok(fy_fill(rows, 1));
    assert_true(is_dirty(rows));
    expect_kept(rows);
}

/* ---- threads ---- */

static void *lend_often(void *user)
{
    for (int i = 1; i <= 1000; i++) fy__storage_lend(user, (fy__point_t)i);
    return NULL;
}

/* Through one handle, like threads that upload from one tensor. The last release comes after all of
 * them. */
TS_TEST(threads_set_the_flag_concurrently)
{
    fy_tensor_t *tensor = make(100);
    const unsigned class = class_of(tensor);
    ts_on_threads(3, lend_often, tensor->storage, 0);
    assert_int_equal(class_of(tensor), class);
    assert_true(is_dirty(tensor));
    expect_not_kept(tensor);
}

static void *lend_and_release(void *user)
{
    fy__storage_lend(user, 1);
    fy__storage_release(fy__thread(), user);
    return NULL;
}

/* Each thread has its own reference. The last release sees the writes of all other threads. */
TS_TEST(threads_set_the_flag_then_release)
{
    for (int round = 0; round < 50; round++) {
        fy__storage_t *storage;
        pthread_t threads[2];
        ts_ok(fy__storage_create(fy__thread(), fy_device_host(), 100, NULL, &storage));
        assert_true(fy__storage_is_clean(storage));
        for (int i = 0; i < 2; i++) fy__storage_retain(storage);
        for (int i = 0; i < 2; i++) threads[i] = ts_thread(lend_and_release, storage);
        fy__storage_release(fy__thread(), storage);
        for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
        assert_true(fy__cache_is_valid(fy__thread()));
    }
}
