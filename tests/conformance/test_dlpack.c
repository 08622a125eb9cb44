/* Tensors exchanged by DLPack: addresses, flags, shapes; who frees what and when; tensors that are
 * refused. The test is the other library. NumPy and PyTorch: python/tests. */
#include <stdatomic.h>

#include "tests/support/harness.h"

/* A tensor of another library. */
typedef struct foreign {
    DLManagedTensorVersioned managed;
    int64_t dims[9], strides[9];
    atomic_int ndeleted;
} foreign_t;

static void count_delete(DLManagedTensorVersioned *self)
{
    atomic_fetch_add(&((foreign_t *)self)->ndeleted, 1);
}

/* f32[2,3], row-major, at `data`. */
static void make_foreign(foreign_t *foreign, void *data, DLDevice device)
{
    memset(foreign, 0, sizeof *foreign);
    memcpy(foreign->dims, (int64_t[]){ 2, 3 }, 2 * sizeof(int64_t));
    memcpy(foreign->strides, (int64_t[]){ 3, 1 }, 2 * sizeof(int64_t));
    foreign->managed = (DLManagedTensorVersioned){
        .version = { 1, 1 },
        .deleter = count_delete,
        .dl_tensor = { .data = data,
                       .device = device,
                       .ndim = 2,
                       .dtype = { kDLFloat, 32, 1 },
                       .shape = foreign->dims,
                       .strides = foreign->strides },
    };
}

/* Sim and null devices have no address to give. */
static int exports(const ts_ctx_t *ctx)
{
    return ctx->is_host || strncmp(ctx->spec, "cuda", 4) == 0;
}

TS_DEVICE_TEST(an_export_has_the_tensors_address)
{
    fy_tensor_t *x = ts_iota(ctx->device, FY_DIMS(4, 6), 0), *part;
    DLManagedTensorVersioned *managed = (DLManagedTensorVersioned *)&part;
    void *address;
    ts_ok(fy_slice(x, 1, 2, 5, &part));
    fy_ledger_totals_t before = ts_ledger(NULL);
    if (!exports(ctx)) {
        ts_fails_with(fy_tensor_to_dlpack(part, FY_ACCESS_READ, NULL, &managed), UNSUPPORTED,
                      "fy_tensor_download");
        assert_null(managed);
        return;
    }
    ts_ok(fy_tensor_to_dlpack(part, FY_ACCESS_READ, NULL, &managed));
    ts_ok(fy_tensor_begin_native_access(part, FY_ACCESS_READ, NULL, &address));
    const DLTensor *shown = &managed->dl_tensor;
    assert_ptr_equal((char *)shown->data + shown->byte_offset, address);
    assert_int_equal(managed->version.major, 1);
    assert_int_equal(managed->flags, DLPACK_FLAG_BITMASK_READ_ONLY);
    assert_int_equal(shown->device.device_type, ctx->is_host ? kDLCPU : kDLCUDA);
    assert_int_equal(shown->device.device_id, 0);
    assert_int_equal(shown->ndim, 2);
    assert_true(shown->shape[0] == 4 && shown->shape[1] == 3);
    assert_true(shown->strides[0] == 6 && shown->strides[1] == 1);
    assert_true(shown->dtype.code == kDLFloat && shown->dtype.bits == 32 &&
                shown->dtype.lanes == 1);
    ts_expect_quiet_since(&before, "to_dlpack");
    managed->deleter(managed);
}

TS_DEVICE_TEST(the_bytes_outlive_the_tensor)
{
    DLManagedTensorVersioned *managed;
    fy_tensor_t *again;
    const uint64_t before = ts_live(ctx->device);
    fy_scope_t scope = fy_scope_begin("inner");
    fy_tensor_t *x = ts_f32(ctx->device, FY_DIMS(3), (float[]){ 1, 2, 3 });
    const uint64_t version = ts_version(x);
    ts_ok(fy_tensor_to_dlpack(x, FY_ACCESS_READ_WRITE, NULL, &managed));
    assert_int_equal(managed->flags, 0);
    assert_int_equal(ts_version(x), version + 1);
    fy_tensor_destroy(x);
    fy_scope_end(scope, 0, NULL);
    assert_true(ts_live(ctx->device) > before);
    /* back again: the same bytes, no copy, and the export is used up */
    ts_ok(fy_tensor_from_dlpack(ctx->device, managed, &again));
    ts_expect_f32(again, (float[]){ 1, 2, 3 }, 3);
    ts_ok(fy_fill(again, 7));
    ts_expect_f32(again, (float[]){ 7, 7, 7 }, 3);
    fy_tensor_destroy(again);
    ts_ok(fy_device_wait(ctx->device, FY_FOREVER));
    assert_int_equal(ts_live(ctx->device), before);
}

static void *delete_there(void *user)
{
    DLManagedTensorVersioned *managed = user;
    managed->deleter(managed);
    return NULL;
}

TS_DEVICE_TEST(an_export_is_deleted_on_any_thread)
{
    DLManagedTensorVersioned *managed;
    const uint64_t before = ts_live(ctx->device);
    fy_tensor_t *x = ts_f32(ctx->device, FY_DIMS(3), (float[]){ 1, 2, 3 });
    ts_ok(fy_tensor_to_dlpack(x, FY_ACCESS_READ, NULL, &managed));
    fy_tensor_destroy(x);
    ts_on_thread(delete_there, managed);
    ts_ok(fy_device_wait(ctx->device, FY_FOREVER));
    assert_int_equal(ts_live(ctx->device), before);
}

/* Views of a tensor that was imported for reading refuse writes, too. So does an export of them. */
TS_DEVICE_TEST(read_only_is_kept)
{
    float values[6] = { 1, 2, 3, 4, 5, 6 };
    foreign_t foreign;
    DLManagedTensorVersioned *managed;
    fy_tensor_t *x, *row, *sum;
    void *data;
    (void)ctx;
    make_foreign(&foreign, values, (DLDevice){ kDLCPU, 0 });
    foreign.managed.flags = DLPACK_FLAG_BITMASK_READ_ONLY;
    ts_ok(fy_tensor_from_dlpack(fy_device_host(), &foreign.managed, &x));
    assert_int_equal(ts_info(x).is_read_only, 1);
    ts_ok(fy_slice(x, 0, 1, 2, &row));
    assert_int_equal(ts_info(row).is_read_only, 1);
    ts_fails_with(fy_fill(x, 0), INVALID_ARGUMENT, "read-only");
    ts_fails(fy_tensor_map(row, FY_ACCESS_WRITE, &data), INVALID_ARGUMENT);
    ts_fails(fy_tensor_begin_native_access(row, FY_ACCESS_WRITE, NULL, &data), INVALID_ARGUMENT);
    ts_fails(fy_tensor_upload_into(x, x, NULL, NULL), INVALID_ARGUMENT);
    ts_fails(fy_tensor_to_dlpack(row, FY_ACCESS_READ_WRITE, NULL, &managed), INVALID_ARGUMENT);
    assert_null(managed);
    ts_ok(fy_tensor_to_dlpack(row, FY_ACCESS_READ, NULL, &managed));
    managed->deleter(managed);
    ts_ok(fy_sum(x, 0, NULL, 0, &sum));
    assert_int_equal(ts_info(sum).is_read_only, 0);
    ts_expect_f32(sum, (float[]){ 21 }, 1);
    fy_tensor_destroy(x);
    assert_int_equal(foreign.ndeleted, 0);
    fy_tensor_destroy(row);
    assert_int_equal(foreign.ndeleted, 1);
}

TS_DEVICE_TEST(an_export_for_reading_comes_back_read_only)
{
    DLManagedTensorVersioned *managed;
    fy_tensor_t *x = ts_f32(ctx->device, FY_DIMS(2), (float[]){ 1, 2 }), *again;
    ts_ok(fy_tensor_to_dlpack(x, FY_ACCESS_READ, NULL, &managed));
    ts_ok(fy_tensor_from_dlpack(ctx->device, managed, &again));
    ts_fails(fy_fill(again, 0), INVALID_ARGUMENT);
    ts_ok(fy_fill(x, 3));
    ts_expect_f32(again, (float[]){ 3, 3 }, 2);
}

/* An upload reads the foreign bytes in place: the deleter runs after it. */
TS_DEVICE_TEST(an_import_is_freed_after_its_last_use)
{
    float values[7] = { 0, 1, 2, 3, 4, 5, 6 };
    foreign_t foreign;
    fy_tensor_t *x, *there, *columns;
    const int64_t transposed[] = { 1, 2 };
    make_foreign(&foreign, values, (DLDevice){ kDLCPU, 0 });
    foreign.managed.dl_tensor.byte_offset = sizeof(float);
    memcpy(foreign.strides, transposed, sizeof transposed);
    ts_ok(fy_tensor_from_dlpack(fy_device_host(), &foreign.managed, &x));
    ts_expect_f32(x, (float[]){ 1, 3, 5, 2, 4, 6 }, 6);
    ts_ok(fy_transpose(x, NULL, &columns));
    ts_ok(fy_tensor_upload(columns, ctx->device, NULL, &there));
    fy_tensor_destroy(x);
    fy_tensor_destroy(columns);
    ts_ok(fy_device_wait(ctx->device, FY_FOREVER));
    assert_int_equal(foreign.ndeleted, 1);
    ts_expect_f32(there, values + 1, 6);
}

TS_DEVICE_TEST(odd_but_legal_imports)
{
    float values[6] = { 1, 2, 3, 4, 5, 6 };
    foreign_t foreign;
    fy_tensor_t *x;
    (void)ctx;
    make_foreign(&foreign, values, (DLDevice){ kDLCPU, 0 });
    foreign.managed.dl_tensor.strides = NULL; /* before version 1.2: dense */
    foreign.managed.version.minor = 0;
    ts_ok(fy_tensor_from_dlpack(fy_device_host(), &foreign.managed, &x));
    ts_expect_f32(x, values, 6);
    fy_tensor_destroy(x);

    make_foreign(&foreign, values, (DLDevice){ kDLCUDAHost, 0 });
    foreign.dims[0] = 1;
    foreign.strides[0] = -77; /* of an axis of one element */
    ts_ok(fy_tensor_from_dlpack(fy_device_host(), &foreign.managed, &x));
    assert_true(ts_info(x).is_contiguous);
    fy_tensor_destroy(x);

    make_foreign(&foreign, NULL, (DLDevice){ kDLCPU, 0 });
    foreign.dims[1] = 0;
    foreign.managed.deleter = NULL;
    ts_ok(fy_tensor_from_dlpack(fy_device_host(), &foreign.managed, &x));
    assert_int_equal(ts_info(x).nelem, 0);
    fy_tensor_destroy(x); /* before `foreign` goes */
}

/* ---- refusals ---- */

static void wrong_major(DLManagedTensorVersioned *m) { m->version.major = 2; }
static void wrong_rank(DLManagedTensorVersioned *m) { m->dl_tensor.ndim = 9; }
static void negative_rank(DLManagedTensorVersioned *m) { m->dl_tensor.ndim = -1; }
static void no_shape(DLManagedTensorVersioned *m) { m->dl_tensor.shape = NULL; }
static void negative_dim(DLManagedTensorVersioned *m) { m->dl_tensor.shape[1] = -3; }
static void huge_dims(DLManagedTensorVersioned *m)
{
    m->dl_tensor.shape[0] = m->dl_tensor.shape[1] = INT64_C(1) << 40;
}
static void negative_stride(DLManagedTensorVersioned *m) { m->dl_tensor.strides[0] = -3; }
static void overlapping(DLManagedTensorVersioned *m) { m->dl_tensor.strides[0] = 2; }
static void far_stride(DLManagedTensorVersioned *m) { m->dl_tensor.strides[0] = INT64_MAX / 2; }
static void lanes(DLManagedTensorVersioned *m) { m->dl_tensor.dtype.lanes = 4; }
static void sub_byte(DLManagedTensorVersioned *m)
{
    m->dl_tensor.dtype = (DLDataType){ kDLFloat4_e2m1fn, 4, 1 };
}
static void complex_dtype(DLManagedTensorVersioned *m)
{
    m->dl_tensor.dtype = (DLDataType){ kDLComplex, 64, 1 };
}
static void misaligned(DLManagedTensorVersioned *m) { m->dl_tensor.byte_offset = 2; }
static void past_memory(DLManagedTensorVersioned *m) { m->dl_tensor.byte_offset = UINT64_MAX; }
static void no_data(DLManagedTensorVersioned *m) { m->dl_tensor.data = NULL; }
static void other_type(DLManagedTensorVersioned *m) { m->dl_tensor.device.device_type = kDLROCM; }
static void other_device(DLManagedTensorVersioned *m)
{
    m->dl_tensor.device = (DLDevice){ kDLCUDA, 99 };
}

TS_DEVICE_TEST(hostile_tensors_are_refused)
{
    static const struct {
        void (*plant)(DLManagedTensorVersioned *managed);
        fy_status_t want;
        const char *says;
    } rows[] = {
        { wrong_major, FY_STATUS_UNSUPPORTED, "version 2.1" },
        { wrong_rank, FY_STATUS_INVALID_ARGUMENT, "rank 9" },
        { negative_rank, FY_STATUS_INVALID_ARGUMENT, "rank -1" },
        { no_shape, FY_STATUS_INVALID_ARGUMENT, "dims is NULL" },
        { negative_dim, FY_STATUS_INVALID_ARGUMENT, "dims[1] is -3" },
        { huge_dims, FY_STATUS_INVALID_ARGUMENT, "past 2^64" },
        { negative_stride, FY_STATUS_INVALID_ARGUMENT, "strides[0] is -3" },
        { overlapping, FY_STATUS_INVALID_ARGUMENT, "elements would overlap" },
        { far_stride, FY_STATUS_INVALID_ARGUMENT, "past 2^63 bytes" },
        { lanes, FY_STATUS_UNSUPPORTED, "4 lanes" },
        { sub_byte, FY_STATUS_UNSUPPORTED, "type code 17, 4 bits" },
        { complex_dtype, FY_STATUS_UNSUPPORTED, "type code 5, 64 bits" },
        { misaligned, FY_STATUS_INVALID_ARGUMENT, "not aligned" },
        { past_memory, FY_STATUS_INVALID_ARGUMENT, "past 2^64" },
        { no_data, FY_STATUS_INVALID_ARGUMENT, "data is NULL" },
        { other_type, FY_STATUS_DEVICE_MISMATCH, "device type 10" },
        { other_device, FY_STATUS_DEVICE_MISMATCH, "cuda:99" },
    };
    float values[6] = { 0 };
    foreign_t foreign;
    fy_tensor_t *x;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        make_foreign(&foreign, values, (DLDevice){ kDLCPU, 0 });
        rows[i].plant(&foreign.managed);
        x = (fy_tensor_t *)&foreign;
        const fy_status_t status = fy_tensor_from_dlpack(fy_device_host(), &foreign.managed, &x);
        if (status != rows[i].want || x || foreign.ndeleted)
            fail_msg("row %zu: %s, %s", i, fy_status_name(status), fy_error_get()->text);
        ts_text_has(rows[i].says);
    }
    make_foreign(&foreign, values, (DLDevice){ kDLCPU, 0 });
    if (!ctx->is_host)
        ts_fails(fy_tensor_from_dlpack(ctx->device, &foreign.managed, &x), DEVICE_MISMATCH);
    foreign.managed.dl_tensor.device = (DLDevice){ kDLCUDA, -1 };
    ts_fails(fy_tensor_from_dlpack(ctx->device, &foreign.managed, &x), DEVICE_MISMATCH);
    ts_fails(fy_tensor_from_dlpack(NULL, &foreign.managed, &x), INVALID_ARGUMENT);
    ts_fails(fy_tensor_from_dlpack(fy_device_host(), NULL, &x), INVALID_ARGUMENT);
    ts_fails(fy_tensor_from_dlpack(fy_device_host(), &foreign.managed, NULL), INVALID_ARGUMENT);
    assert_int_equal(foreign.ndeleted, 0);
}

TS_DEVICE_TEST(bad_exports_are_refused)
{
    DLManagedTensorVersioned *managed = (DLManagedTensorVersioned *)ctx;
    fy_tensor_t *x = ts_host_f32(FY_DIMS(2), (float[]){ 1, 2 }), *wide;
    ts_fails(fy_tensor_to_dlpack(NULL, FY_ACCESS_READ, NULL, &managed), INVALID_ARGUMENT);
    assert_null(managed);
    ts_fails(fy_tensor_to_dlpack(x, FY_ACCESS_READ, NULL, NULL), INVALID_ARGUMENT);
    ts_fails(fy_tensor_to_dlpack(x, (fy_access_t)8, NULL, &managed), INVALID_ARGUMENT);
    ts_ok(fy_broadcast(x, FY_DIMS(3, 2), &wide));
    ts_fails_with(fy_tensor_to_dlpack(wide, FY_ACCESS_WRITE, NULL, &managed), INVALID_ARGUMENT,
                  "repeats its elements");
    if (ctx->is_host) return;
    fy_stream_t *stream = ts_stream(ctx->device);
    ts_fails(fy_tensor_to_dlpack(x, FY_ACCESS_READ, stream, &managed), INVALID_ARGUMENT);
    assert_null(managed);
}

/* A graph of exchanges that would show a leak of handles, exports or bytes. */
TS_DEVICE_TEST(many_exchanges_leave_nothing)
{
    enum { TIMES = 100000 };
    float values[6] = { 1, 2, 3, 4, 5, 6 };
    foreign_t foreign;
    DLManagedTensorVersioned *managed;
    fy_tensor_t *x, *y = ts_f32(ctx->device, FY_DIMS(2), (float[]){ 1, 2 });
    const uint64_t before = ts_live(ctx->device);
    make_foreign(&foreign, values, (DLDevice){ kDLCPU, 0 });
    for (int i = 0; i < TIMES; i++) {
        ts_ok(fy_tensor_from_dlpack(fy_device_host(), &foreign.managed, &x));
        fy_tensor_destroy(x);
        ts_ok(fy_tensor_to_dlpack(y, FY_ACCESS_READ, NULL, &managed));
        managed->deleter(managed);
    }
    assert_int_equal(foreign.ndeleted, TIMES);
    assert_int_equal(ts_live(ctx->device), before);
}

#define NO_ADDRESS "its memory has no address: an_export_has_the_tensors_address tests the refusal"
static const ts_exclusion_t k_exclusions[] = {
    { "sim", "the_bytes_outlive_the_tensor", NO_ADDRESS },
    { "sim", "an_export_is_deleted_on_any_thread", NO_ADDRESS },
    { "sim", "an_export_for_reading_comes_back_read_only", NO_ADDRESS },
    { "sim", "many_exchanges_leave_nothing", NO_ADDRESS },
    { "null", "the_bytes_outlive_the_tensor", NO_ADDRESS },
    { "null", "an_export_is_deleted_on_any_thread", NO_ADDRESS },
    { "null", "an_export_for_reading_comes_back_read_only", NO_ADDRESS },
    { "null", "many_exchanges_leave_nothing", NO_ADDRESS },
    { NULL, NULL, NULL },
};

TS_SUITE(.exclusions = k_exclusions);
