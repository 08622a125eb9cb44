/* Uploads and downloads: every dtype and layout both ways, zero bytes, conversion, into views,
 * destroyed early, waited for with and without a timeout. Payload and wire bytes are checked with
 * each. Not here: COPY and BORROW (test_contract.c). */
#include "tests/conformance/layouts.h"

/* Expects one transfer each way of `nbytes` and no other since `before`. */
static void expect_traffic(const fy_ledger_totals_t *before, uint64_t uploads, uint64_t up,
                           uint64_t downloads, uint64_t down)
{
    fy_ledger_totals_t after = ts_ledger(NULL);
    assert_int_equal(after.upload.count - before->upload.count, uploads);
    assert_int_equal(after.upload.nbytes - before->upload.nbytes, up);
    assert_int_equal(after.download.count - before->download.count, downloads);
    assert_int_equal(after.download.nbytes - before->download.nbytes, down);
    assert_true(after.upload.wire_nbytes - before->upload.wire_nbytes >= (up ? 1 : 0));
    assert_int_equal(after.peer.count, before->peer.count);
}

TS_DEVICE_TEST(every_dtype_there_and_back)
{
    unsigned char bytes[1000 * 8], back[1000 * 8];
    ts_random_t random = { 1 };
    for (fy_dtype_t dtype = 0; dtype < FY_DTYPE_COUNT; dtype++) {
        size_t nbytes = 1000 * fy_dtype_size(dtype);
        for (size_t i = 0; i < nbytes; i++)
            bytes[i] =
                (unsigned char)(ts_random_next(&random) & (dtype == FY_DTYPE_BOOL ? 1 : 0xFF));
        fy_tensor_t *host, *device;
        ts_ok(fy_tensor_wrap(fy_device_host(), dtype, FY_DIMS(10, 100), bytes, NULL, NULL, &host));
        fy_ledger_totals_t before = ts_ledger(NULL);
        ts_ok(fy_tensor_upload(host, ctx->device, NULL, &device));
        ts_read(device, back, nbytes);
        expect_traffic(&before, 1, nbytes, 1, nbytes);
        fy_ledger_totals_t after = ts_ledger(NULL);
        /* dense: not a byte more */
        assert_int_equal(after.upload.wire_nbytes - before.upload.wire_nbytes, nbytes);
        assert_int_equal(after.download.wire_nbytes - before.download.wire_nbytes, nbytes);
        assert_memory_equal(bytes, back, nbytes); /* raw: NaN payloads too */
    }
}

TS_DEVICE_TEST(every_layout_is_uploaded)
{
    const int64_t dims[3] = { 5, 3, 4 };
    for (ts_layout_t layout = 0; layout < TS_LAYOUT_COUNT; layout++) {
        ts_array_t values, got;
        ts_operand_t operand;
        ts_random_t random = { 2 };
        ts_array_make(&values, FY_DTYPE_F32, 3, dims);
        ts_array_fill(&values, TS_ANY, 0, layout == TS_BROADCAST ? 0 : -1, &random);
        /* a host tensor with strides */
        ts_operand_make(&operand, fy_device_host(), &values, layout);
        fy_tensor_t *device;
        fy_ledger_totals_t before = ts_ledger(NULL);
        ts_ok(fy_tensor_upload(operand.view, ctx->device, NULL, &device));
        expect_traffic(&before, 1, 240, 0, 0); /* the view's bytes, not those between */
        ts_result_read(device, ctx->device, &got, ts_layout_name(layout));
        assert_true(ts_same(&values, &got, ts_layout_name(layout)));
        ts_operand_free(&operand);
        ts_array_free(&values);
        ts_array_free(&got);
    }
}

TS_DEVICE_TEST(every_layout_is_downloaded)
{
    const int64_t dims[3] = { 5, 3, 4 };
    for (fy_dtype_t dtype = 0; dtype < FY_DTYPE_COUNT; dtype++) {
        for (ts_layout_t layout = 0; layout < TS_LAYOUT_COUNT; layout++) {
            ts_array_t values, got;
            ts_operand_t operand;
            ts_random_t random = { 3 };
            ts_array_make(&values, dtype, 3, dims);
            ts_array_fill(&values, TS_ANY, 0, layout == TS_BROADCAST ? 0 : -1, &random);
            ts_operand_make(&operand, ctx->device, &values, layout);
            fy_ledger_totals_t before = ts_ledger(NULL);
            fy_tensor_t *host = ts_download(operand.view);
            expect_traffic(&before, 0, 0, 1, 60 * fy_dtype_size(dtype));
            ts_result_read(host, fy_device_host(), &got, ts_layout_name(layout));
            assert_true(ts_same(&values, &got, ts_layout_name(layout)));
            ts_operand_check(&operand, true, NULL, "download");
            ts_operand_free(&operand);
            ts_array_free(&values);
            ts_array_free(&got);
        }
    }
}

TS_DEVICE_TEST(into_every_layout)
{
    for (ts_layout_t to = 0; to < TS_LAYOUT_COUNT; to++) {
        for (ts_layout_t from = 0; from < TS_LAYOUT_COUNT && to != TS_BROADCAST; from++) {
            move_t move;
            move_make(&move, ctx->device, to, fy_device_host(), from);
            fy_ledger_totals_t before = ts_ledger(NULL);
            ts_ok(fy_tensor_upload_into(move.dst.view, move.src.view, NULL, NULL));
            expect_traffic(&before, 1, 240, 0, 0);
            move_check(&move, ts_layout_name(to));
        }
    }
}

TS_DEVICE_TEST(zero_bytes_are_legal)
{
    fy_tensor_t *empty = ts_empty(fy_device_host(), FY_DTYPE_F32, FY_DIMS(0, 3)), *device, *host;
    fy_ledger_totals_t before = ts_ledger(NULL);
    ts_ok(fy_tensor_upload(empty, ctx->device, NULL, &device));
    ts_ok(fy_tensor_upload_into(device, empty, NULL, NULL));
    host = ts_download(device);
    fy_ledger_totals_t after = ts_ledger(NULL);
    assert_int_equal(after.upload.nbytes, before.upload.nbytes);
    assert_int_equal(after.upload.wire_nbytes, before.upload.wire_nbytes);
    assert_int_equal(after.download.nbytes, before.download.nbytes);
    assert_int_equal(ts_info(host).rank, 2);
    assert_int_equal(ts_info(host).dims[0], 0);
    assert_int_equal(ts_info(host).dims[1], 3);
}

/* The result's dtype may differ; raw bytes of the source's dtype are transferred. */
TS_DEVICE_TEST(dtypes_are_converted_on_the_device)
{
    const float values[6] = { 1, -2.5f, 65504, 1e-7f, 0.1f, 100000 };
    fy_tensor_t *host = ts_host_f32(FY_DIMS(6), values), *half, *back;
    fy_download_t *download;
    fy_transfer_options_t options = FY_TRANSFER_OPTIONS_INIT;
    options.dtype = FY_DTYPE_F16;
    fy_ledger_totals_t before = ts_ledger(NULL);
    ts_ok(fy_tensor_upload(host, ctx->device, &options, &half));
    expect_traffic(&before, 1, 24, 0, 0);
    assert_int_equal(ts_info(half).dtype, FY_DTYPE_F16);
    ts_array_t got;
    ts_result_read(half, ctx->device, &got, "f32 to f16");
    for (int i = 0; i < 6; i++) assert_true(got.f[i] == ts_round(FY_DTYPE_F16, (double)values[i]));
    ts_array_free(&got);

    options.dtype = FY_DTYPE_F32;
    before = ts_ledger(NULL);
    ts_ok(fy_tensor_download(half, &options, &download));
    ts_ok(fy_download_wait(download, FY_FOREVER, &back));
    expect_traffic(&before, 0, 0, 1, ts_ledger(NULL).download.nbytes - before.download.nbytes);
    assert_int_equal(ts_info(back).dtype, FY_DTYPE_F32);
    ts_result_read(back, fy_device_host(), &got, "f16 to f32");
    for (int i = 0; i < 6; i++) assert_true(got.f[i] == ts_round(FY_DTYPE_F16, (double)values[i]));
    ts_array_free(&got);

    fy_tensor_t *into = ts_zeros(ctx->device, FY_DTYPE_F16, FY_DIMS(2, 6));
    ts_ok(fy_slice(into, 0, 1, 2, &into));
    ts_ok(fy_squeeze(into, 0, &into));
    ts_fails_with(fy_tensor_upload_into(into, host, NULL, NULL), DTYPE_MISMATCH,
                  "src is [6 f32], dst is [6 f16]", "options->convert");
    before = ts_ledger(NULL);
    ts_fails(fy_tensor_upload_many_into(1, &into, &host, NULL, NULL), DTYPE_MISMATCH);
    expect_traffic(&before, 0, 0, 0, 0);
    ts_ok(fy_tensor_upload_many_into(1, &into, &host, &ts_convert, NULL));
    ts_ok(fy_fill(into, 0));
    ts_ok(fy_tensor_upload_into(into, host, &ts_convert, NULL)); /* f32 into f16 */
    ts_result_read(into, ctx->device, &got, "f32 into f16");
    for (int i = 0; i < 6; i++) assert_true(got.f[i] == ts_round(FY_DTYPE_F16, (double)values[i]));
    ts_array_free(&got);
    /* options->dtype must be SAME */
    ts_fails(fy_tensor_upload_into(into, host, &options, NULL), INVALID_ARGUMENT);
}

TS_DEVICE_TEST(one_element_as_a_double)
{
    for (fy_dtype_t dtype = 0; dtype < FY_DTYPE_COUNT; dtype++) {
        fy_tensor_t *one;
        double value = -1;
        ts_ok(fy_full(ctx->device, dtype, FY_DIMS(1, 1), 1, &one));
        value = ts_value(one);
        assert_true(value == 1.0);
    }
    fy_tensor_t *pair = ts_f32(ctx->device, FY_DIMS(2), (float[]){ 3, 4 }), *host;
    double value = 7;
    fy_download_t *download = ts_submit_download(pair);
    ts_fails(fy_download_wait_f64(download, FY_FOREVER, &value), SHAPE_MISMATCH);
    assert_true(value == 0.0);
    ts_ok(fy_download_wait(download, FY_FOREVER, &host)); /* the download is still valid */
    ts_expect_f32(host, (float[]){ 3, 4 }, 2);
}

TS_DEVICE_TEST(a_download_is_a_snapshot)
{
    fy_tensor_t *x = ts_iota(ctx->device, FY_DIMS(1000), 1), *host;
    fy_download_t *download = ts_submit_download(x);
    ts_ok(fy_fill(x, -1)); /* later in its stream */
    ts_ok(fy_download_wait(download, FY_FOREVER, &host));
    float values[1000];
    ts_read(host, values, sizeof values);
    for (int i = 0; i < 1000; i++) assert_true(values[i] == (float)(i + 1));
    ts_read(x, values, sizeof values);
    assert_true(values[999] == -1.0f);
}

TS_DEVICE_TEST(an_upload_is_a_snapshot)
{
    enum { N = 300000 };
    float *values = malloc(N * sizeof *values);
    assert_non_null(values);
    for (int i = 0; i < N; i++) values[i] = (float)i;
    fy_tensor_t *host, *device;
    ts_ok(fy_tensor_wrap(fy_device_host(), FY_DTYPE_F32, FY_DIMS(N), values, NULL, NULL, &host));
    ts_ok(fy_tensor_upload(host, ctx->device, NULL, &device));
    memset(values, 0xFF, N * sizeof *values); /* COPY: the caller may write on return */
    fy_tensor_destroy(host);
    ts_read(device, values, N * sizeof *values);
    for (int i = 0; i < N; i++) assert_true(values[i] == (float)i);
    free(values);
}

TS_DEVICE_TEST(destroyed_without_waiting)
{
    fy_tensor_t *x = ts_iota(ctx->device, FY_DIMS(10000), 0);
    fy_ledger_totals_t before = ts_ledger(NULL);
    fy_download_t *early = ts_submit_download(x), *scoped, *kept;
    fy_download_destroy(early);
    fy_download_destroy(NULL);
    fy_scope_t scope = fy_scope_begin("inner");
    ts_ok(fy_tensor_download(x, NULL, &scoped));
    ts_ok(fy_tensor_download(x, NULL, &kept));
    fy_download_keep(kept);
    fy_tensor_destroy(x); /* bytes stay for the copies in flight */
    fy_scope_end(scope, 0, NULL);
    fy_tensor_t *host;
    ts_ok(fy_download_wait(kept, FY_FOREVER, &host));
    float values[10000];
    ts_read(host, values, sizeof values);
    assert_true(values[9999] == 9999.0f);
    fy_ledger_totals_t after = ts_ledger(NULL);
    assert_true(after.download.count >= before.download.count + 3); /* destroyed, still counted */
}

TS_DEVICE_TEST(waits_with_short_timeouts)
{
    enum { N = 1 << 20 };
    fy_tensor_t *x = ts_full(ctx->device, FY_DIMS(N), 0), *host = x;
    fy_download_t *download = ts_submit_download(x);
    fy_poll_t poll = fy_ticket_poll(fy_download_ticket(download));
    /* the model clock has not passed 4 MiB */
    if (ctx->is_sim) assert_int_equal(poll, FY_POLL_PENDING);
    if (ctx->is_host) assert_int_equal(poll, FY_POLL_DONE);
    fy_status_t status = fy_download_wait(download, 0, &host);
    if (status == FY_STATUS_TIMEOUT) {
        assert_null(host);
        ts_ok(fy_download_wait(download, FY_FOREVER, &host)); /* it is still valid */
    } else {
        ts_ok(status);
        assert_false(ctx->is_sim); /* on sim, a timeout of 0 must expire */
    }
    assert_int_equal(ts_info(host).nelem, N);
}

TS_DEVICE_TEST(refusals)
{
    fy_tensor_t *device = ts_f32(ctx->device, FY_DIMS(3), (float[]){ 1, 2, 3 }),
                *host = ts_host_f32(FY_DIMS(4), (float[4]){ 0 }), *out = device;
    fy_download_t *download = (fy_download_t *)&out;
    fy_transfer_options_t unset = { 0 };
    fy_ledger_totals_t before = ts_ledger(NULL);
    uint64_t version = ts_version(device);
    if (!ctx->is_host) {
        fy_tensor_set_name(device, "faraway");
        /* src is not on host */
        ts_fails_with(fy_tensor_upload(device, ctx->device, NULL, &out), DEVICE_MISMATCH,
                      "faraway");
        assert_null(out);
        ts_fails(fy_tensor_upload_into(device, device, NULL, NULL), DEVICE_MISMATCH);
    }
    ts_fails_with(fy_tensor_upload_into(device, host, NULL, NULL), SHAPE_MISMATCH, "3", "4");
    /* struct_size not set */
    ts_fails(fy_tensor_upload(host, ctx->device, &unset, &out), INVALID_ARGUMENT);
    ts_fails(fy_tensor_download(device, &unset, &download), INVALID_ARGUMENT);
    assert_null(download);
    ts_fails(fy_tensor_upload(NULL, ctx->device, NULL, &out), INVALID_ARGUMENT);
    ts_fails(fy_tensor_upload(host, NULL, NULL, &out), INVALID_ARGUMENT);
    ts_fails(fy_tensor_download(NULL, NULL, &download), INVALID_ARGUMENT);
    ts_expect_quiet_since(&before, "refused transfers");
    assert_int_equal(ts_version(device), version);
}

TS_DEVICE_TEST(large_transfers_are_complete)
{
    enum { N = 20 << 20 }; /* bytes: several staging slots */
    unsigned char *bytes = malloc(N), *back = malloc(N);
    assert_non_null(bytes);
    assert_non_null(back);
    ts_random_t random = { 9 };
    for (size_t i = 0; i + 8 <= N; i += 8) {
        uint64_t x = ts_random_next(&random);
        memcpy(bytes + i, &x, 8);
    }
    fy_tensor_t *host, *device;
    ts_ok(fy_tensor_wrap(fy_device_host(), FY_DTYPE_U8, FY_DIMS(N - 3), bytes + 1, NULL, NULL,
                         &host));
    fy_ledger_totals_t before = ts_ledger(NULL);
    ts_ok(fy_tensor_upload(host, ctx->device, NULL, &device));
    ts_read(device, back, N - 3);
    expect_traffic(&before, 1, N - 3, 1, N - 3); /* one request each, with any number of pieces */
    assert_memory_equal(bytes + 1, back, N - 3);
    free(bytes);
    free(back);
}
