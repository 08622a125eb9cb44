/* Tests of the check that the harness makes after every test (tests/support/conservation.c). It
 * holds over transfers in every order, and over failed and dropped ones. It detects a copy that was
 * counted once too often, and one that was not counted. */
#include "tests/support/conservation.h"

#include "backends/executed.h"
#include "runtime/device/registry.h"
#include "tests/support/harness.h"

static void transfer(const char *spec)
{
    const float values[4] = { 1, 2, 3, 4 };
    ts_expect_f32(ts_f32(ts_open(spec), FY_DIMS(4), values), values, 4);
    ts_close();
}

TS_TEST(the_check_holds_in_every_order)
{
    static const char *const specs[] = { "host", "sim:0", "sim:0?order=lazy",
                                         "sim:0?order=random&seed=1" };
    ts_conservation_t before;
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        ts_conservation_begin(&before);
        transfer(specs[i]);
        assert_true(ts_conservation_end(&before, specs[i]));
    }
}

TS_TEST(dropped_copies_count)
{
    ts_conservation_t before;
    fy_tensor_t *x;
    ts_conservation_begin(&before);
    fy_device_t *device = ts_open("sim:0?order=lazy&faults=lost@4");
    fy_status_t status = FY_STATUS_OK;
    fy_tensor_t *host = ts_host_f32(FY_DIMS(4), (float[4]){ 1 });
    for (int i = 0; i < 8 && status == FY_STATUS_OK; i++)
        status = fy_tensor_upload(host, device, NULL, &x);
    assert_int_equal(status, FY_STATUS_DEVICE_LOST);
    ts_close();
    assert_true(ts_conservation_end(&before, "lost"));
}

TS_TEST(the_check_detects_one_copy_too_many_or_too_few)
{
    ts_conservation_t before;
    print_message("           (six complaints are meant to follow)\n");
    static const fy_copy_kind_t kinds[] = { FY_COPY_UPLOAD, FY_COPY_DOWNLOAD, FY_COPY_PEER };
    for (int i = 0; i < 3; i++) {
        ts_conservation_begin(&before);
        transfer("sim:0");
        fy__host_api.record(kinds[i], 0); /* a copy of 0 bytes is still a copy */
        assert_false(ts_conservation_end(&before, "once too often"));
        ts_conservation_begin(&before);
        transfer("sim:0");
        fy__executed_count(kinds[i], 7);
        assert_false(ts_conservation_end(&before, "not in the ledger"));
    }
}
