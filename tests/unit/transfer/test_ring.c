/* transfer/ring, options and convert from inside: bytes of every length arrive complete, the ring
 * keeps to its share of the pinned limit, host waits are counted. Options are checked field by
 * field. Both ends of a conversion are tested. */
#include "tests/support/harness.h"
#include "transfer/convert.h"
#include "transfer/ring.h"
#include "transfer/move.h"

static fy_device_t *g_device;

static void every_length(void)
{
    enum { MOST = 5000001 };
    unsigned char *bytes = malloc(MOST), *back = malloc(MOST);
    assert_non_null(bytes);
    assert_non_null(back);
    for (size_t i = 0; i < MOST; i++) bytes[i] = (unsigned char)(i * 2654435761u >> 13);
    static const int64_t lengths[] = { 1,       4095,          4096,    4097, 65536, (1 << 20) - 1,
                                       1 << 20, (1 << 20) + 1, 4 << 20, MOST };
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        fy__point_t point = 0;
        uint64_t blocked = 0;
        fy__taint_t taint = { 0, 0, 0 };
        fy_tensor_t *x = ts_empty(g_device, FY_DTYPE_U8, 1, &lengths[i]), *part;
        ts_ok(fy__ring_upload(g_device, x->data, bytes, (uint64_t)lengths[i], &point, &blocked,
                              &taint));
        assert_true(point != 0);
        ts_ok(fy__point_wait(point, FY_FOREVER, FY__WAIT_NONE));
        /* downloads in pieces that fit a small pinned limit */
        for (int64_t at = 0; at < lengths[i]; at += 1 << 19) {
            int64_t end = at + (1 << 19) < lengths[i] ? at + (1 << 19) : lengths[i];
            ts_ok(fy_slice(x, 0, at, end, &part));
            ts_read(part, back + at, (size_t)(end - at));
            fy_tensor_destroy(part);
        }
        assert_memory_equal(bytes, back, lengths[i]);
        fy_tensor_destroy(x);
    }
    free(bytes);
    free(back);
}

TS_TEST(bytes_of_every_length_arrive)
{
    g_device = ts_open("sim:9");
    every_length();
}

TS_TEST(the_ring_keeps_to_its_share)
{
    g_device = ts_open("sim:9?pinned=2MiB");
    uint64_t before = ts_memory_pinned(g_device).live;
    fy_tensor_t *x = ts_iota(g_device, FY_DIMS(1000), 0);
    fy_tensor_destroy(x);
    assert_true(g_device->ring != NULL);
    assert_true(ts_memory_pinned(g_device).live - before <= 1 << 19); /* a quarter */
    every_length(); /* small slots, the same bytes */
    assert_true(ts_memory_pinned(g_device).peak_reserved <= 2 << 20);
}

TS_TEST(options)
{
    fy_transfer_options_t own, given = FY_TRANSFER_OPTIONS_INIT;
    ts_ok(fy__transfer_options_read("a test", NULL, &own)); /* the defaults */
    assert_int_equal(own.contract, FY_HOST_COPY);
    assert_int_equal(own.dtype, FY_DTYPE_SAME);
    given.priority = 7;
    ts_ok(fy__transfer_options_read("a test", &given, &own));
    assert_int_equal(own.priority, 7);
    given.struct_size = 1;
    ts_fails_with(fy__transfer_options_read("a test", &given, &own), INVALID_ARGUMENT, "a test");
    given = (fy_transfer_options_t)FY_TRANSFER_OPTIONS_INIT;
    given.contract = (fy_host_contract_t)5;
    ts_fails(fy__transfer_options_read("a test", &given, &own), INVALID_ARGUMENT);
    given = (fy_transfer_options_t)FY_TRANSFER_OPTIONS_INIT;
    given.dtype = FY_DTYPE_COUNT; /* a dtype to come */
    ts_fails(fy__transfer_options_read("a test", &given, &own), INVALID_ARGUMENT);
    given.dtype = (fy_dtype_t)99;
    ts_fails(fy__transfer_options_read("a test", &given, &own), INVALID_ARGUMENT);
}

TS_TEST(conversions_do_not_count_as_light_requests)
{
    g_device = ts_open("sim:9");
    fy_tensor_t *x = ts_iota(g_device, FY_DIMS(3, 4), 0), *turned, *half;
    ts_ok(fy_transpose(x, NULL, &turned));
    ts_ok(fy_tensor_create(g_device, FY_DTYPE_F16, FY_DIMS(4, 3), &half));
    fy__end_t src, dst;
    fy__end_of(turned, &src);
    fy__end_of(half, &dst);
    assert_false(src.contiguous);
    assert_true(dst.contiguous);
    assert_ptr_equal(src.storage, x->storage);
    fy_ledger_totals_t before = ts_ledger(NULL);
    ts_ok(fy__convert(g_device, g_device->compute, &dst, &src, 12));
    ts_expect_quiet_since(&before, "a conversion");
    fy_tensor_t *wide;
    ts_ok(fy_cast(half, FY_DTYPE_F32, &wide));
    ts_expect_f32(wide, (float[]){ 0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11 }, 12);
}
