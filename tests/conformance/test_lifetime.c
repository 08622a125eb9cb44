/* Ownership of handles and lifetime of bytes: scopes, keep, results, early and late destruction,
 * wrap and its deleter, names and versions.
 * Rule 1 of status.h, on every device under test. The runner checks after each test that the
 * device's live bytes are back at the start value.
 * Not here: shapes of views (test_views.c), transfers in flight
 * (test_transfer.c). */
#include "tests/support/harness.h"

enum { NBYTES = 4096 };

static fy_tensor_t *make(ts_ctx_t *ctx) { return ts_bytes(ctx->device, NBYTES); }

TS_DEVICE_TEST(a_scope_destroys_its_tensors)
{
    uint64_t before = ts_live(ctx->device);
    fy_scope_t scope = fy_scope_begin("inner");
    fy_tensor_t *early = make(ctx);
    make(ctx);
    make(ctx);
    assert_true(ts_live(ctx->device) >= before + 3 * NBYTES);
    fy_tensor_destroy(early); /* legal early */
    fy_scope_end(scope, 0, NULL);
    assert_int_equal(ts_live(ctx->device), before);
}

TS_DEVICE_TEST(keep_takes_a_handle_out)
{
    uint64_t before = ts_live(ctx->device);
    fy_scope_t scope = fy_scope_begin("inner");
    fy_tensor_t *kept = ts_f32(ctx->device, FY_DIMS(2), (float[]){ 5, 6 });
    fy_tensor_keep(kept);
    fy_tensor_keep(kept); /* no effect */
    make(ctx);
    fy_scope_end(scope, 0, NULL);
    ts_expect_f32(kept, (float[]){ 5, 6 }, 2);
    assert_true(ts_live(ctx->device) > before);
    fy_tensor_destroy(kept);
    assert_int_equal(ts_live(ctx->device), before);
    fy_tensor_destroy(NULL);
}

TS_DEVICE_TEST(results_pass_to_the_enclosing_scope)
{
    uint64_t before = ts_live(ctx->device);
    fy_scope_t outer = fy_scope_begin("outer"), inner = fy_scope_begin("inner");
    fy_tensor_t *result = ts_f32(ctx->device, FY_DIMS(2), (float[]){ 7, 8 });
    make(ctx);
    fy_tensor_t *results[3] = { NULL, result, NULL };
    fy_scope_end(inner, 3, results);
    ts_expect_f32(result, (float[]){ 7, 8 }, 2);
    fy_scope_end(outer, 0, NULL); /* which destroys it */
    assert_int_equal(ts_live(ctx->device), before);
}

/* A helper can return its argument. The argument stays in its scope, however far out that is. */
TS_DEVICE_TEST(an_outer_tensor_stays_where_it_was)
{
    fy_tensor_t *outer = ts_full(ctx->device, FY_DIMS(4), 3);
    fy_scope_t middle = fy_scope_begin("middle"), inner = fy_scope_begin("inner");
    fy_scope_end(inner, 1, &outer);
    fy_scope_end(middle, 0, NULL);
    ts_expect_f32(outer, (float[]){ 3, 3, 3, 3 }, 4);
}

TS_DEVICE_TEST(results_pass_several_scopes_up)
{
    fy_scope_t outer = fy_scope_begin("outer");
    fy_tensor_t *results[3] = { ts_full(ctx->device, FY_DIMS(2), 3), NULL, NULL };
    (void)fy_scope_begin("inner, left open");
    results[1] = results[2] = ts_full(ctx->device, FY_DIMS(2), 4); /* named twice: moved once */
    fy_scope_end(outer, 3, results);
    ts_expect_f32(results[0], (float[]){ 3, 3 }, 2);
    ts_expect_f32(results[1], (float[]){ 4, 4 }, 2);
}

TS_DEVICE_TEST(a_null_result_list_keeps_no_tensor)
{
    const uint64_t live = ts_live(ctx->device);
    fy_scope_t scope = fy_scope_begin("scope");
    make(ctx);
    fy_scope_end(scope, 2, NULL);
    assert_int_equal(ts_live(ctx->device), live);
}

TS_DEVICE_TEST(ending_a_scope_ends_those_inside)
{
    uint64_t before = ts_live(ctx->device);
    fy_scope_t outer = fy_scope_begin("outer");
    make(ctx);
    fy_scope_t inner = fy_scope_begin("inner");
    make(ctx);
    fy_scope_begin("innermost");
    make(ctx);
    fy_scope_end(outer, 0, NULL);
    assert_int_equal(ts_live(ctx->device), before);
    fy_scope_t next = fy_scope_begin("next");
    make(ctx);
    /* ended long ago: no effect, even at a depth that is in use again */
    fy_scope_end(inner, 0, NULL);
    fy_scope_end(outer, 0, NULL);
    assert_true(ts_live(ctx->device) >= before + NBYTES);
    fy_scope_end(next, 0, NULL);
    fy_scope_end(next, 0, NULL);
    assert_int_equal(ts_live(ctx->device), before);
}

TS_DEVICE_TEST(very_many_open_scopes)
{
    uint64_t before = ts_live(ctx->device);
    fy_scope_t first = fy_scope_begin("deep");
    /* beyond depth 64 scopes count under their parent's name, and still own tensors */
    for (int i = 0; i < 100; i++) {
        fy_scope_begin(i % 3 ? "s" : NULL);
        make(ctx);
    }
    fy_scope_end(first, 0, NULL);
    assert_int_equal(ts_live(ctx->device), before);
}

TS_DEVICE_TEST(very_many_handles_in_one_scope)
{
    enum { N = 1000 };
    uint64_t before = ts_live(ctx->device);
    fy_scope_t scope = fy_scope_begin("many");
    fy_tensor_t *handles[N];
    for (int i = 0; i < N; i++)
        ts_ok(fy_tensor_create(ctx->device, FY_DTYPE_U8, FY_DIMS(1), &handles[i]));
    for (int i = 0; i < N; i += 3) fy_tensor_destroy(handles[i]);
    for (int i = 1; i < N; i += 3) fy_tensor_keep(handles[i]);
    fy_scope_end(scope, 0, NULL);
    for (int i = 1; i < N; i += 3) fy_tensor_destroy(handles[i]);
    assert_int_equal(ts_live(ctx->device), before);
}

TS_DEVICE_TEST(bytes_live_as_long_as_a_view)
{
    uint64_t before = ts_live(ctx->device);
    fy_tensor_t *base = ts_iota(ctx->device, FY_DIMS(4, 256), 0), *row, *tail;
    ts_ok(fy_slice(base, 0, 3, 4, &row));
    ts_ok(fy_slice(row, 1, 254, 256, &tail));
    fy_tensor_destroy(base);
    fy_tensor_destroy(row);
    assert_true(ts_live(ctx->device) >= before + 4 * 256 * 4);
    ts_expect_f32(tail, (float[]){ 1022, 1023 }, 2);
    fy_tensor_destroy(tail);
    assert_int_equal(ts_live(ctx->device), before);
}

TS_DEVICE_TEST(a_result_outlives_its_sources)
{
    fy_tensor_t *a = ts_iota(ctx->device, FY_DIMS(500), 0), *b, *c;
    ts_ok(fy_add(a, a, &b));
    fy_tensor_destroy(a); /* the request may still be running */
    ts_ok(fy_add(b, b, &c));
    fy_tensor_destroy(b);
    float values[500];
    ts_read(c, values, sizeof values);
    for (int i = 0; i < 500; i++) assert_true(values[i] == 4.0f * (float)i);
}

typedef struct deleted {
    int n;
    void *data;
} deleted_t;
static void count_delete(void *user, void *data)
{
    deleted_t *deleted = user;
    deleted->n++;
    deleted->data = data;
}

TS_DEVICE_TEST(wrap_shares_and_deletes_once)
{
    deleted_t deleted = { 0 };
    float values[6] = { 1, 2, 3, 4, 5, 6 };
    fy_tensor_t *wrapped, *row, *bad = (fy_tensor_t *)&deleted;
    void *data;
    fy_ledger_totals_t before = ts_ledger(NULL);
    ts_ok(fy_tensor_wrap(fy_device_host(), FY_DTYPE_F32, FY_DIMS(2, 3), values, count_delete,
                         &deleted, &wrapped));
    ts_ok(fy_slice(wrapped, 0, 1, 2, &row));
    ts_ok(fy_tensor_map(wrapped, FY_ACCESS_READ, &data));
    assert_ptr_equal(data, values);
    ts_ok(fy_tensor_map(row, FY_ACCESS_WRITE, &data));
    assert_ptr_equal(data, values + 3);
    ts_expect_quiet_since(&before, "wrap");
    values[3] = 40;
    ts_expect_f32(row, (float[]){ 40, 5, 6 }, 3); /* through either view */
    fy_tensor_destroy(wrapped);
    assert_int_equal(deleted.n, 0);
    fy_tensor_destroy(row);
    assert_int_equal(deleted.n, 1);
    assert_ptr_equal(deleted.data, values);

    ts_fails(fy_tensor_wrap(fy_device_host(), FY_DTYPE_F32, FY_DIMS(2, 3), NULL, count_delete,
                            &deleted, &bad),
             INVALID_ARGUMENT);
    assert_null(bad);
    ts_fails(fy_tensor_wrap(fy_device_host(), FY_DTYPE_F32, FY_DIMS(1), (char *)values + 1,
                            count_delete, &deleted, &bad),
             INVALID_ARGUMENT);
    assert_int_equal(deleted.n, 1); /* not when the call fails */
    ts_ok(fy_tensor_wrap(fy_device_host(), FY_DTYPE_F32, FY_DIMS(0, 3), NULL, count_delete,
                         &deleted, &bad));
    fy_tensor_destroy(bad);
    assert_int_equal(deleted.n, 2);
}

/* Columns of a row-major matrix with gaps, on the host and on the device. */
TS_DEVICE_TEST(strided_memory_is_wrapped)
{
    deleted_t deleted = { 0 };
    float values[12] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 };
    const int64_t columns[] = { 1, 4 }, repeated[] = { 0, 2 }, none[] = { 7, 7 };
    fy_device_t *host = fy_device_host();
    fy_tensor_t *wrapped, *there, *bad = (fy_tensor_t *)&deleted;
    void *data;
    ts_ok(fy_tensor_wrap_strided(host, FY_DTYPE_F32, FY_DIMS(2, 3), columns, values, count_delete,
                                 &deleted, &wrapped));
    ts_expect_f32(wrapped, (float[]){ 0, 4, 8, 1, 5, 9 }, 6);
    ts_ok(fy_tensor_map(wrapped, FY_ACCESS_READ, &data));
    assert_ptr_equal(data, values);
    ts_ok(fy_tensor_upload(wrapped, ctx->device, NULL, &there));
    ts_expect_f32(there, (float[]){ 0, 4, 8, 1, 5, 9 }, 6);
    ts_ok(fy_fill(wrapped, -1));
    assert_true(values[9] == -1 && values[2] == 2 && values[10] == 10); /* gaps are left alone */
    fy_tensor_destroy(wrapped);
    assert_int_equal(deleted.n, 1);

    ts_ok(fy_tensor_wrap_strided(host, FY_DTYPE_F32, FY_DIMS(2, 2), repeated, values, NULL, NULL,
                                 &wrapped));
    ts_expect_f32(wrapped, (float[]){ -1, 2, -1, 2 }, 4);
    ts_fails(fy_fill(wrapped, 1), INVALID_ARGUMENT); /* it repeats its elements */
    fy_tensor_destroy(wrapped);
    ts_ok(fy_tensor_wrap_strided(host, FY_DTYPE_F32, FY_DIMS(0, 3), none, NULL, count_delete,
                                 &deleted, &wrapped));
    fy_tensor_destroy(wrapped);
    assert_int_equal(deleted.n, 2);

    static const struct {
        int64_t dims[2], strides[2];
        const char *says;
    } refused[] = {
        { { 2, 3 }, { 1, 1 }, "elements would overlap" },
        { { 3, 3 }, { 2, 4 }, "strides[1] is 4" },
        { { 2, 3 }, { 4, -1 }, "strides[1] is -1" },
        { { 2, 3 }, { INT64_MAX / 2, 1 }, "past 2^63 bytes" },
        { { 2, INT64_C(1) << 40 }, { 1, INT64_C(1) << 40 }, "past 2^63 bytes" },
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        ts_fails_with(fy_tensor_wrap_strided(host, FY_DTYPE_F32, 2, refused[i].dims,
                                             refused[i].strides, values, count_delete, &deleted,
                                             &bad),
                      INVALID_ARGUMENT, refused[i].says);
        assert_null(bad);
    }
    ts_fails(fy_tensor_wrap_strided(host, FY_DTYPE_F32, FY_DIMS(2), NULL, values, count_delete,
                                    &deleted, &bad),
             INVALID_ARGUMENT);
    ts_fails(fy_tensor_wrap_strided(host, FY_DTYPE_F32, FY_DIMS(2), columns, (char *)values + 1,
                                    count_delete, &deleted, &bad),
             INVALID_ARGUMENT);
    assert_int_equal(deleted.n, 2); /* a failed call does not run the deleter */
}

/* A mask of 0 and 255, say. Gaps between the elements may have any bytes. */
TS_DEVICE_TEST(bools_of_host_memory_are_checked)
{
    enum { COUNT = 200 };
    static const int64_t strides[][2] = { { 20, 1 }, { 1, 20 }, { 20, 2 }, { 0, 1 } };
    deleted_t deleted = { 0 };
    unsigned char bytes[COUNT];
    fy_device_t *host = fy_device_host();
    fy_tensor_t *t;
    (void)ctx;
    for (int wrong = 0; wrong < COUNT; wrong++) {
        memset(bytes, 1, sizeof bytes);
        bytes[wrong] = 255;
        ts_fails_with(
            fy_tensor_wrap(host, FY_DTYPE_BOOL, FY_DIMS(COUNT), bytes, count_delete, &deleted, &t),
            BAD_VALUE, "is 255, not 0 or 1");
        for (size_t i = 0; i < sizeof strides / sizeof *strides; i++) {
            bool is_element = false;
            for (int64_t k = 0; k < 50; k++)
                is_element |= k / 10 * strides[i][0] + k % 10 * strides[i][1] == wrong;
            const fy_status_t status = fy_tensor_wrap_strided(host, FY_DTYPE_BOOL, FY_DIMS(5, 10),
                                                              strides[i], bytes, NULL, NULL, &t);
            assert_int_equal(status, is_element ? FY_STATUS_BAD_VALUE : FY_STATUS_OK);
            fy_tensor_destroy(t);
        }
    }
    assert_int_equal(deleted.n, 0); /* a failed call does not run the deleter */
    ts_fails(fy_tensor_wrap(host, FY_DTYPE_BOOL, 0, NULL, bytes + COUNT - 1, NULL, NULL, &t),
             BAD_VALUE);
    ts_ok(fy_tensor_wrap(host, FY_DTYPE_U8, FY_DIMS(COUNT), bytes, NULL, NULL, &t));
    ts_ok(fy_tensor_wrap(host, FY_DTYPE_BOOL, FY_DIMS(3, 0), bytes + COUNT - 1, NULL, NULL, &t));
}

TS_DEVICE_TEST(wrap_of_device_bytes)
{
    fy_tensor_t *owner = ts_f32(ctx->device, FY_DIMS(4), (float[]){ 1, 2, 3, 4 }), *alias, *sum;
    void *address;
    fy_stream_t *stream = ts_stream(ctx->device);
    ts_ok(fy_tensor_begin_native_access(owner, FY_ACCESS_READ_WRITE, stream, &address));
    /* bytes with two owners: the test orders their uses itself */
    ts_ok(fy_device_wait(ctx->device, FY_FOREVER));
    ts_ok(fy_tensor_wrap(ctx->device, FY_DTYPE_F32, FY_DIMS(2, 2), address, NULL, NULL, &alias));
    ts_ok(fy_sum(alias, 0, NULL, 0, &sum));
    ts_expect_f32(sum, (float[]){ 10 }, 1);
    ts_ok(fy_fill(alias, 9));
    ts_ok(fy_device_wait(ctx->device, FY_FOREVER));
    ts_expect_f32(owner, (float[]){ 9, 9, 9, 9 }, 4);
}

/* A wrapped block's deleter runs after the last use, also when that use is a request in flight. */
TS_DEVICE_TEST(the_deleter_waits_for_requests)
{
    enum { N = 256 }; /* the fake CUDA driver multiplies in plain loops */
    deleted_t deleted = { 0 };
    void *address;
    fy_tensor_t *owner = ts_full(ctx->device, FY_DIMS(N, N), 0), *alias, *product;
    fy_stream_t *stream = ts_stream(ctx->device);
    ts_ok(fy_tensor_begin_native_access(owner, FY_ACCESS_READ, stream, &address));
    ts_ok(fy_device_wait(ctx->device, FY_FOREVER));
    ts_ok(fy_tensor_wrap(ctx->device, FY_DTYPE_F32, FY_DIMS(N, N), address, count_delete, &deleted,
                         &alias));
    for (int i = 0; i < 5; i++) ts_ok(fy_matmul(alias, alias, &product));
    fy_tensor_destroy(alias);
    /* model time has not advanced: the bytes are still being read */
    if (ctx->is_sim) assert_int_equal(deleted.n, 0);
    ts_ok(fy_device_wait(ctx->device, FY_FOREVER));
    assert_int_equal(deleted.n, 1);
    assert_ptr_equal(deleted.data, address);
}

TS_DEVICE_TEST(bad_shapes)
{
    static const struct {
        int rank;
        int64_t dims[9];
    } rows[] = {
        { -1, { 0 } },
        { 9, { 1, 1, 1, 1, 1, 1, 1, 1, 1 } },
        { 1, { -1 } },
        { 2, { INT64_MAX, 2 } },
        { 3, { INT64_C(1) << 40, INT64_C(1) << 40, 2 } },
        { 1, { INT64_MAX / 2 } },
        /* 2^64 + 64 bytes: without an overflow check this is a size that the thread caches */
        { 2, { 16, (INT64_C(1) << 58) + 1 } },
    };
    fy_tensor_destroy(ts_bytes(ctx->device, 64));
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        fy_tensor_t *tensor = (fy_tensor_t *)&rows;
        fy_status_t status =
            fy_tensor_create(ctx->device, FY_DTYPE_F32, rows[i].rank, rows[i].dims, &tensor);
        if (status != FY_STATUS_INVALID_ARGUMENT || tensor)
            fail_msg("row %zu: %s, %s", i, fy_status_name(status), fy_error_get()->text);
    }
    fy_tensor_t *tensor = (fy_tensor_t *)&rows;
    ts_fails(fy_tensor_create(ctx->device, (fy_dtype_t)99, FY_DIMS(1), &tensor), INVALID_ARGUMENT);
    assert_null(tensor);
    ts_fails(fy_tensor_create(ctx->device, FY_DTYPE_COUNT, FY_DIMS(64), &tensor), INVALID_ARGUMENT);
    ts_fails(fy_tensor_create(NULL, FY_DTYPE_F32, FY_DIMS(1), &tensor), INVALID_ARGUMENT);
    ts_fails(fy_tensor_create(ctx->device, FY_DTYPE_F32, FY_DIMS(1), NULL), INVALID_ARGUMENT);
    ts_fails(fy_tensor_create(ctx->device, FY_DTYPE_F32, 1, NULL, &tensor), INVALID_ARGUMENT);
}

TS_DEVICE_TEST(odd_but_legal_shapes)
{
    fy_tensor_t *scalar = ts_empty(ctx->device, FY_DTYPE_F64, 0, NULL), *empty, *deep, *wide_empty;
    assert_int_equal(ts_info(scalar).nelem, 1);
    assert_int_equal(ts_info(scalar).nbytes, 8);
    ts_ok(fy_tensor_create(ctx->device, FY_DTYPE_I32, FY_DIMS(3, 0, 5), &empty));
    assert_int_equal(ts_info(empty).nelem, 0);
    assert_int_equal(ts_info(empty).nbytes, 0);
    assert_true(ts_info(empty).is_contiguous);
    ts_ok(fy_tensor_create(ctx->device, FY_DTYPE_BOOL, FY_DIMS(1, 2, 1, 2, 1, 2, 1, 2), &deep));
    assert_int_equal(ts_info(deep).nelem, 16);
    ts_ok(fy_tensor_create(ctx->device, FY_DTYPE_F32, FY_DIMS(0, INT64_C(1) << 40), &wide_empty));
    assert_int_equal(ts_info(wide_empty).nelem, 0);
}

TS_DEVICE_TEST(versions_and_names)
{
    fy_tensor_t *x = ts_f32(ctx->device, FY_DIMS(2, 2), (float[]){ 1, 2, 3, 4 }), *row, *sum;
    uint64_t start = ts_version(x);
    ts_ok(fy_slice(x, 0, 0, 1, &row));
    ts_ok(fy_add(x, x, &sum));
    assert_int_equal(ts_version(x), start); /* reading is not writing */
    ts_ok(fy_fill(row, 0));
    assert_int_equal(ts_version(x), start + 1); /* through any view */
    assert_int_equal(ts_version(row), start + 1);
    ts_ok(fy_axpy(x, 2, sum));
    assert_int_equal(ts_version(row), start + 2);

    assert_string_equal(ts_info(x).name, "");
    fy_tensor_set_name(x, "weights");
    assert_string_equal(ts_info(x).name, "weights");
    fy_tensor_set_name(x, "a name that is longer than thirty-one bytes");
    assert_int_equal(strlen(ts_info(x).name), 31);
    assert_int_equal(strncmp(ts_info(x).name, "a name that is longer than thirty-one bytes", 31),
                     0);
    fy_tensor_set_name(x, NULL);
    assert_string_equal(ts_info(x).name, "");
}

TS_DEVICE_TEST(map_is_for_host_tensors)
{
    void *data = &data;
    if (ctx->is_host) {
        fy_tensor_t *x = ts_host_f32(FY_DIMS(2), (float[]){ 1, 2 });
        uint64_t version = ts_version(x);
        ts_ok(fy_tensor_map(x, FY_ACCESS_READ, &data));
        assert_int_equal(ts_version(x), version);
        ts_ok(fy_tensor_map(x, FY_ACCESS_READ_WRITE, &data));
        assert_int_equal(ts_version(x), version + 1);
        ts_fails(fy_tensor_map(x, (fy_access_t)0, &data), INVALID_ARGUMENT);
        return;
    }
    fy_tensor_t *x = ts_f32(ctx->device, FY_DIMS(2), (float[]){ 1, 2 });
    fy_tensor_set_name(x, "far");
    ts_fails_with(fy_tensor_map(x, FY_ACCESS_READ, &data), DEVICE_MISMATCH, "far");
    assert_null(data);
    ts_text_has(fy_device_name(ctx->device));
    ts_text_has("fy_tensor_download");
}

static const ts_exclusion_t k_exclusions[] = {
    { "host", "wrap_of_device_bytes",
      "the host has one stream; wrap_shares_and_deletes_once covers its bytes" },
    { "host", "the_deleter_waits_for_requests",
      "requests on the host are done when the call returns" },
    { NULL, NULL, NULL },
};

TS_SUITE(.exclusions = k_exclusions);
