/* Tensor slots from inside: a tensor and its storage as one piece, when a slot is reused, and small
 * destroyed tensors that stay cached in the ring of their scope. Not here: chunks, other threads,
 * forks (test_slot_chunks.c); cached blocks (test_thread_cache.c); lifetimes as users see them
 * (tests/conformance/test_lifetime.c). */
#include "runtime/tensor/slot.h"

#include "runtime/base/asan.h"
#include "runtime/tensor/thread_cache.h"
#include "tests/support/harness.h"

static int found = 0xA5; /* memory of a segment can have old contents */
fy_status_t __real_fy__host_segment_alloc(uint64_t nbytes, void **out_address);
fy_status_t __wrap_fy__host_segment_alloc(uint64_t nbytes, void **out_address);
fy_status_t __wrap_fy__host_segment_alloc(uint64_t nbytes, void **out_address)
{
    const fy_status_t status = __real_fy__host_segment_alloc(nbytes, out_address);
    if (status == FY_STATUS_OK) memset(*out_address, found, nbytes);
    return status;
}

enum { PER_CHUNK = (2 << 20) / sizeof(fy__tensor_slot_t) };

static fy_tensor_t *make(int64_t nbytes) { return ts_bytes(fy_device_host(), nbytes); }

static fy_tensor_t *first_of(const fy_tensor_t *tensor)
{
    return &fy__tensor_slot_of(tensor->storage)->first;
}

static void trim(void) { ts_ok(fy_memory_trim(fy_device_host(), 0, NULL)); }

static void expect_view_keeps_slot(int64_t nbytes)
{
    fy_tensor_t *first = make(nbytes), *view, *same, *other;
    uint8_t *data;
    assert_ptr_equal(first, first_of(first));
    ts_ok(fy_tensor_map(first, FY_ACCESS_WRITE, (void **)&data));
    memset(data, 7, 100);
    ts_ok(fy_slice(first, 0, 10, 20, &view));
    assert_ptr_equal(first, first_of(view));
    assert_ptr_not_equal(view, first);
    fy_tensor_destroy(first);
    assert_true(fy__tensor_is_gone(first));
    other = make(nbytes); /* of the same class: must not get the bytes of the view */
    assert_ptr_not_equal(other, first);
    ts_ok(fy_tensor_map(other, FY_ACCESS_WRITE, (void **)&data));
    memset(data, 9, 100);
    ts_ok(fy_tensor_map(view, FY_ACCESS_READ, (void **)&data));
    for (int i = 0; i < 10; i++) assert_int_equal(data[i], 7);
    fy_tensor_destroy(view);
    same = make(nbytes); /* now the slot is free */
    assert_ptr_equal(same, first);
    fy_tensor_destroy(same);
    fy_tensor_destroy(other);
}

TS_TEST(a_view_keeps_the_slot_of_its_destroyed_first_handle)
{
    if (FY__HAS_ASAN) skip(); /* under ASan each handle is a separate allocation */
    expect_view_keeps_slot(100);
    expect_view_keeps_slot(2 * FY__CACHE_LARGEST);
    assert_true(fy__cache_is_valid(fy__thread()));
}

TS_TEST(a_reused_slot_gives_a_fresh_tensor)
{
    if (FY__HAS_ASAN) skip();
    fy_tensor_t *tensor = make(100), *again;
    void *data;
    fy_tensor_set_name(tensor, "old");
    ts_ok(fy_tensor_map(tensor, FY_ACCESS_WRITE, &data));
    fy_tensor_destroy(tensor);
    ts_fails(fy_tensor_query(tensor, &(fy_tensor_info_t)FY_TENSOR_INFO_INIT), INVALID_ARGUMENT);
    const int64_t dims[3] = { 2, 3, 4 };
    ts_ok(fy_tensor_create(fy_device_host(), FY_DTYPE_F32, 3, dims, &again)); /* 96 bytes */
    assert_ptr_equal(again, tensor);
    const fy_tensor_info_t info = ts_info(again);
    assert_string_equal(info.name, "");
    assert_int_equal(info.version, 0);
    assert_int_equal(info.nelem, 24);
    assert_int_equal(info.nbytes, 96);
    assert_memory_equal(info.dims, dims, sizeof dims);
    assert_memory_equal(info.strides, ((int64_t[]){ 12, 4, 1 }), sizeof dims);
    assert_ptr_equal(again->data, again->storage->data);
    fy_tensor_destroy(again);
}

/* Reuses a slot after each other way of making a tensor. Fields of the previous handle that are not
 * written again must be right. */
TS_TEST(every_way_of_creating_sets_all_fields)
{
    static const int64_t dims[][3] = { { 12, 0, 0 }, { 3, 4, 0 }, { 7, 0, 0 }, { 0, 0, 0 },
                                       { 16, 0, 0 }, { 2, 2, 4 }, { 1, 0, 0 } };
    static const int ranks[] = { 1, 2, 1, 0, 1, 3, 1 };
    static const int64_t strides[][3] = { { 1, 0, 0 }, { 4, 1, 0 }, { 1, 0, 0 }, { 0, 0, 0 },
                                          { 1, 0, 0 }, { 8, 4, 1 }, { 1, 0, 0 } };
    enum { WAYS = 7 };
    (void)fy__cache_flush(fy__thread());
    for (int i = 0; i < WAYS * WAYS * 8; i++) {
        const int now = i % 2 ? i / 2 / WAYS % WAYS
                              : i / 2 % WAYS;          /* each way after each other way */
        const bool result = i / (2 * WAYS * WAYS) & 1; /* by an op, or by fy_tensor_create */
        /* small in the first half, mostly large in the second */
        const int64_t scale = i < WAYS * WAYS * 4 ? 1 : 2048;
        const int64_t shape[3] = { dims[now][0] * scale, dims[now][1], dims[now][2] };
        fy_tensor_t *tensor, *source = NULL;
        void *data;
        if (result)
            ts_ok(fy_zeros(fy_device_host(), FY_DTYPE_F32, ranks[now], shape, &tensor));
        else
            ts_ok(fy_tensor_create(fy_device_host(), FY_DTYPE_F32, ranks[now], shape, &tensor));
        if (i % 3 == 0) fy_tensor_set_name(tensor, "named");
        if (i % 5 == 0) ts_ok(fy_transpose(tensor, NULL, &source)); /* a separate handle */
        fy_tensor_destroy(source);
        const fy_tensor_info_t info = ts_info(tensor);
        assert_int_equal(info.rank, ranks[now]);
        assert_memory_equal(info.dims, shape, sizeof(int64_t) * (size_t)ranks[now]);
        assert_memory_equal(info.strides, strides[now], sizeof(int64_t) * (size_t)ranks[now]);
        assert_true(info.is_contiguous);
        assert_int_equal(info.dtype, FY_DTYPE_F32);
        assert_string_equal(info.name, i % 3 == 0 ? "named" : "");
        ts_ok(fy_tensor_map(tensor, FY_ACCESS_WRITE, &data));
        assert_ptr_equal(data, tensor->storage->data);
        fy_tensor_destroy(tensor);
        assert_true(fy__cache_is_valid(fy__thread()));
    }
}

/* A handle that was never used before, in a slot in new memory, on bytes that served another
 * purpose. */
static void expect_first_tensors_whole(void)
{
    enum { LAST = 200 };
    static fy__storage_t *storages[PER_CHUNK + LAST];
    fy__thread_t *thread = fy__thread();
    (void)fy__cache_flush(thread);
    for (int i = 0; i < PER_CHUNK + LAST; i++)
        ts_ok(fy__storage_create(thread, fy_device_host(), 100, NULL, &storages[i]));
    for (int i = PER_CHUNK; i < PER_CHUNK + LAST; i++) fy__storage_release(thread, storages[i]);
    assert_true(fy__cache_is_valid(thread));
    for (int i = PER_CHUNK; i < PER_CHUNK + LAST; i++) {
        fy_tensor_t *tensor = make(100);
        assert_int_equal(tensor->rank, 1);
        assert_int_equal(tensor->strides[0], 1);
        assert_true(tensor->contiguous);
        assert_ptr_equal(tensor->data, tensor->storage->data);
        assert_ptr_equal(tensor->data, tensor->storage->block->address);
        storages[i] = tensor->storage;
        fy__storage_retain(storages[i]);
        fy_tensor_destroy(tensor);
    }
    fy__storage_t *large, *again;
    ts_ok(fy__storage_create(thread, fy_device_host(), 2 * FY__CACHE_LARGEST, NULL, &large));
    fy__storage_release(thread, large);
    assert_true(fy__cache_is_valid(thread));
    fy_tensor_t *tensor = make(2 * FY__CACHE_LARGEST);
    again = tensor->storage;
    assert_ptr_equal(again, large);
    assert_ptr_equal(tensor->data, again->block->address);
    fy_tensor_destroy(tensor);
    for (int i = 0; i < PER_CHUNK + LAST; i++) fy__storage_release(thread, storages[i]);
    trim();
}

TS_TEST(the_first_tensor_of_a_slot_has_all_fields)
{
    for (found = 0; found <= 0xA5; found += 0xA5) expect_first_tensors_whole();
    found = 0xA5;
}

/* Lengths around the inline path and around the limit of small sizes. */
TS_TEST(every_length_fits)
{
    static const fy_dtype_t dtypes[] = { FY_DTYPE_U8, FY_DTYPE_F16, FY_DTYPE_F32, FY_DTYPE_F64 };
    for (int round = 0; round < 2; round++) { /* first new, then cached */
        for (int d = 0; d < 4; d++) {
            for (int64_t n = 1; n <= 40000; n += n < 1100 ? 1 : 97) {
                fy_tensor_t *tensor = ts_empty(fy_device_host(), dtypes[d], FY_DIMS(n));
                assert_int_equal(tensor->nelem, n);
                assert_int_equal(tensor->storage->nbytes, (uint64_t)n << d);
                assert_true(tensor->storage->block->nbytes >= (uint64_t)n << d);
                assert_int_equal((uintptr_t)tensor->storage->data % 64, 0);
                memset(tensor->storage->data, 0xEE, (size_t)n << d);
                assert_int_equal(tensor->strides[0], 1);
                fy_tensor_destroy(tensor);
            }
        }
    }
    assert_true(fy__cache_is_valid(fy__thread()));
}

/* ---- scopes: a destroyed small tensor stays in the ring, marked as gone ---- */

static int ring_length(void)
{
    const fy__handle_t *ring = &fy__thread()->frame->handles;
    int n = 0;
    for (const fy__handle_t *handle = ring->next; handle != ring; handle = handle->next) n++;
    return n;
}

TS_TEST(a_destroyed_small_tensor_stays_in_the_ring_of_its_scope)
{
    if (FY__HAS_ASAN) skip();
    (void)fy__cache_flush(fy__thread());
    fy_scope_t outer = fy_scope_begin("outer");
    fy_tensor_t *tensor = make(200), *again;
    fy_tensor_destroy(tensor);
    assert_int_equal(ring_length(), 1);
    again = make(200); /* in the same scope */
    assert_ptr_equal(again, tensor);
    assert_int_equal(ring_length(), 1);
    fy_tensor_destroy(again);
    fy_scope_t inner = fy_scope_begin("inner");
    again = make(200);
    assert_ptr_equal(again, tensor);
    assert_int_equal(ring_length(), 1);
    fy_scope_end(inner, 1, &again); /* moves to the outer scope */
    assert_false(fy__tensor_is_gone(again));
    assert_int_equal(ring_length(), 1);
    fy_tensor_destroy(again);
    inner = fy_scope_begin("inner");
    fy_scope_end(inner, 0, NULL); /* does not end tensors of the outer scope */
    fy_scope_end(outer, 0, NULL);
    assert_true(fy__tensor_is_gone(tensor));
    assert_null(tensor->handle.next);
    again = make(200); /* no scope owns it */
    assert_ptr_equal(again, tensor);
    assert_null(again->handle.next);
    fy_tensor_destroy(again);
}

TS_TEST(an_outer_scopes_tensor_destroyed_inside_leaves_its_ring)
{
    fy_scope_t outer = fy_scope_begin("outer");
    fy_tensor_t *tensor = make(200);
    fy_scope_t inner = fy_scope_begin("inner");
    fy_tensor_destroy(tensor);
    fy_scope_end(inner, 0, NULL);
    assert_int_equal(ring_length(), 0);
    fy_scope_end(outer, 0, NULL);
}

TS_TEST(a_storage_without_a_tensor_is_in_no_ring)
{
    fy_scope_t scope = fy_scope_begin("scope");
    fy__storage_t *storage;
    fy_tensor_destroy(make(300));
    /* any thread may release it */
    ts_ok(fy__storage_create(fy__thread(), fy_device_host(), 300, NULL, &storage));
    assert_int_equal(ring_length(), 0);
    fy__storage_release(fy__thread(), storage);
    fy_tensor_destroy(make(300));
    trim();
    assert_int_equal(ring_length(), 0);
    fy_scope_end(scope, 0, NULL);
}
