/* The benefit of the ring, on the model clock: pageable memory reaches nearly the speed of
 * page-locked memory, both ways. */
#include "tests/support/harness.h"

enum { NBYTES = 64 << 20, BAR = 85 }; /* per cent */
static fy_device_t *g_device;

TS_TEST(pageable_is_nearly_as_fast)
{
    fy_tensor_t *device, *pageable, *pinned;
    fy_ticket_t ticket;
    fy_scope_t scope = fy_scope_begin("staging");
    ts_ok(fy_device_open("sim:0?profile=h200", &g_device));
    ts_ok(fy_empty(g_device, FY_DTYPE_U8, FY_DIMS(NBYTES), &device));
    ts_ok(fy_tensor_create_pinned(g_device, FY_DTYPE_U8, FY_DIMS(NBYTES), &pinned));
    ts_ok(fy_zeros(fy_device_host(), FY_DTYPE_U8, FY_DIMS(NBYTES), &pageable));
    ts_ok(fy_tensor_upload_into(device, pageable, NULL, NULL)); /* creates the ring */

    uint64_t start_ns = ts_clock(g_device).now_ns;
    ts_ok(fy_tensor_upload_into(device, pinned, &ts_borrow, &ticket));
    const uint64_t up_pinned_ns = ts_clock(g_device).now_ns - start_ns;
    start_ns = ts_clock(g_device).now_ns;
    ts_ok(fy_tensor_upload_into(device, pageable, NULL, NULL));
    const uint64_t up_ns = ts_clock(g_device).now_ns - start_ns;
    start_ns = ts_clock(g_device).now_ns;
    ts_ok(fy_tensor_download_into(pinned, device, NULL));
    const uint64_t down_pinned_ns = ts_clock(g_device).now_ns - start_ns;
    start_ns = ts_clock(g_device).now_ns;
    ts_ok(fy_tensor_download_into(pageable, device, NULL));
    const uint64_t down_ns = ts_clock(g_device).now_ns - start_ns;
    print_message("64 MiB, model: up %llu ns pinned, %llu ns pageable; down %llu ns pinned, %llu "
                  "ns pageable\n",
                  (unsigned long long)up_pinned_ns, (unsigned long long)up_ns,
                  (unsigned long long)down_pinned_ns, (unsigned long long)down_ns);
    assert_true(up_pinned_ns * 100 >= up_ns * BAR);
    assert_true(down_pinned_ns * 100 >= down_ns * BAR);
    fy_scope_end(scope, 0, NULL);
    fy_device_close(g_device);
}
