/* runtime/storage and runtime/tensor from inside: references, the thread cache, empty storages, the
 * definition of contiguous, shapes that overflow, the text of a tensor. Lifetimes as users see
 * them: tests/conformance/test_lifetime.c. */
#include "runtime/tensor/tensor.h"
#include "runtime/tensor/thread_cache.h"
#include "tests/support/harness.h"

static uint64_t kept_nbytes(void)
{
    uint64_t by_category[FY_CATEGORY_COUNT];
    return fy__cache_nbytes(by_category);
}

TS_TEST(references)
{
    fy__thread_t *thread = fy__thread();
    fy__storage_t *storage;
    ts_ok(fy__storage_create(thread, fy_device_host(), 100000, NULL, &storage));
    uint64_t live = ts_live(fy_device_host());
    fy__storage_retain(storage);
    fy__storage_release(thread, storage);
    memset(storage->data, 1, 100000); /* still there */
    assert_int_equal(ts_live(fy_device_host()), live);
    fy__storage_release(thread, storage);
    assert_true(ts_live(fy_device_host()) < live);
}

TS_TEST(the_thread_cache_reuses_freed_blocks)
{
    fy__thread_t *thread = fy__thread();
    fy__storage_t *a, *b;
    ts_ok(fy__storage_create(thread, fy_device_host(), 100, NULL, &a));
    fy__storage_wrote(a);
    fy__storage_release(thread, a);
    ts_ok(fy__storage_create(thread, fy_device_host(), 120, NULL, &b)); /* of the same class */
    assert_ptr_equal(a, b);
    assert_int_equal(b->nbytes, 120);
    assert_int_equal(atomic_load(&b->version), 0); /* reset */
    assert_false(fy__taint_any(&b->taint));
    fy__storage_release(thread, b);
    (void)fy__cache_flush(thread);
    assert_int_equal(kept_nbytes(), 0);
}

TS_TEST(an_empty_storage_has_an_address)
{
    fy__thread_t *thread = fy__thread();
    fy__storage_t *storage;
    uint64_t live = ts_live(fy_device_host());
    ts_ok(fy__storage_create(thread, fy_device_host(), 0, NULL, &storage));
    assert_non_null(storage->data);
    assert_null(storage->block);
    assert_int_equal(ts_live(fy_device_host()), live);
    fy__storage_release(thread, storage);
}

TS_TEST(contiguous)
{
    assert_true(fy__is_contiguous(2, (int64_t[]){ 3, 4 }, (int64_t[]){ 4, 1 }));
    assert_false(fy__is_contiguous(2, (int64_t[]){ 3, 4 }, (int64_t[]){ 1, 3 }));
    assert_false(fy__is_contiguous(2, (int64_t[]){ 3, 4 }, (int64_t[]){ 5, 1 }));
    assert_false(fy__is_contiguous(1, (int64_t[]){ 3 }, (int64_t[]){ 0 }));
    /* the stride of an axis of length 1 does not matter */
    assert_true(fy__is_contiguous(3, (int64_t[]){ 3, 1, 4 }, (int64_t[]){ 4, 77, 1 }));
    /* nor does any stride of an empty tensor */
    assert_true(fy__is_contiguous(2, (int64_t[]){ 0, 4 }, (int64_t[]){ 9, 9 }));
    assert_true(fy__is_contiguous(0, NULL, NULL));
}

TS_TEST(shapes_that_overflow)
{
    uint64_t nelem, nbytes;
    ts_ok(fy__shape_check("a test", FY_DTYPE_F32, 2, (int64_t[]){ 3, 4 }, &nelem, &nbytes));
    assert_int_equal(nelem, 12);
    assert_int_equal(nbytes, 48);
    ts_ok(fy__shape_check("a test", FY_DTYPE_U8, 1, (int64_t[]){ INT64_MAX }, &nelem, &nbytes));
    ts_fails_with(
        fy__shape_check("a test", FY_DTYPE_F32, 1, (int64_t[]){ INT64_MAX }, &nelem, &nbytes),
        INVALID_ARGUMENT, "a test");
    ts_fails(
        fy__shape_check("a test", FY_DTYPE_U8, 2, (int64_t[]){ INT64_MAX, 2 }, &nelem, &nbytes),
        INVALID_ARGUMENT);
    ts_fails_with(fy__shape_check("a test", FY_DTYPE_U8, 2, (int64_t[]){ 2, -1 }, &nelem, &nbytes),
                  INVALID_ARGUMENT, "-1");
}

TS_TEST(the_text_of_a_tensor)
{
    fy_scope_t scope = fy_scope_begin("text");
    char text[128], small[8];
    fy_tensor_t *x = ts_full(fy_device_host(), FY_DIMS(64, 784), 0), *scalar;
    ts_ok(fy_zeros(fy_device_host(), FY_DTYPE_I64, 0, NULL, &scalar));
    assert_string_equal(fy__tensor_format(x, text, sizeof text), "[64x784 f32]");
    fy_tensor_set_name(x, "x");
    assert_string_equal(fy__tensor_format(x, text, sizeof text), "'x' [64x784 f32]");
    assert_string_equal(fy__tensor_format(scalar, text, sizeof text), "[scalar i64]");
    assert_true(strlen(fy__tensor_format(x, small, sizeof small)) < sizeof small);
    fy_scope_end(scope, 0, NULL);
}
