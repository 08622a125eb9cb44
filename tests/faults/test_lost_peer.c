/* A device is lost before it has sent bytes to another device: no call reads garbage there, and the
 * other device continues. Also the later reports of a lost device.
 * Not here: refusals of the lost device itself (conformance/test_fault.c, unit/sim). */
#include "tests/support/harness.h"

static float first_of(const fy_tensor_t *tensor)
{
    double value;
    fy_download_t *download;
    ts_ok(fy_tensor_download(tensor, NULL, &download));
    ts_ok(fy_download_wait_f64(download, FY_FOREVER, &value));
    return (float)value;
}

/* Request 1 of the source is an upload, request 2 the send. Request 3 loses the device before any
 * wait, so in this order the send never runs. */
TS_TEST(unsent_bytes_of_a_lost_device_are_refused)
{
    for (int closed = 0; closed < 2; closed++) {
        fy_device_t *here, *there;
        fy_tensor_t *x, *dst, *sum, *again;
        fy_ticket_t ticket;
        fy_download_t *download;
        fy_scope_t scope = fy_scope_begin("lost");
        ts_ok(fy_device_open("sim:8?order=lazy", &here));
        ts_ok(fy_device_open("sim:9?order=lazy&faults=lost@3", &there));
        dst = ts_f32(here, FY_DIMS(1), (const float[]){ 1 });
        fy_scope_t source = fy_scope_begin("source");
        x = ts_f32(there, FY_DIMS(1), (const float[]){ 5 });
        ts_ok(fy_tensor_send_into(dst, x, NULL, &ticket));
        fy_tensor_t *host = ts_host_f32(FY_DIMS(1), (const float[]){ 7 });
        ts_fails(fy_tensor_upload(host, there, NULL, &again), DEVICE_LOST);
        fy_scope_end(source, 0, NULL);
        if (closed) fy_device_close(there);

        ts_fails(fy_ticket_wait(ticket, FY_FOREVER), DEVICE_LOST);
        ts_fails_with(fy_tensor_download(dst, NULL, &download), DEVICE_LOST,
                      closed ? "closed since" : "sim:9");
        ts_fails(fy_add(dst, dst, &sum), DEVICE_LOST);
        ts_ok(fy_fill(dst, 3)); /* overwritten, the bytes are valid again */
        ts_ok(fy_add(dst, dst, &sum));
        assert_true(first_of(sum) == 6);
        assert_true(first_of(dst) == 3);
        fy_scope_end(scope, 0, NULL);
        fy_device_close(here);
        if (!closed) fy_device_close(there);
    }
}

/* For every later call, at any time. A new device in its place does not report it. */
TS_TEST(every_later_call_reports_the_first_cause)
{
    fy_device_t *device;
    fy_tensor_t *x, *y, *host;
    fy_download_t *download;
    fy_device_info_t info = FY_DEVICE_INFO_INIT;
    fy_scope_t scope = fy_scope_begin("lost");
    ts_ok(fy_device_open("sim:9?faults=lost@3", &device));
    x = ts_f32(device, FY_DIMS(1), (const float[]){ 5 });
    host = ts_host_f32(FY_DIMS(1), (const float[]){ 7 });
    ts_ok(fy_add(x, x, &y));
    ts_fails(fy_add(x, x, &y), DEVICE_LOST);
    for (int again = 0; again < 2; again++) {
        ts_fails_with(fy_mul(x, x, &y), DEVICE_LOST, "its faults= says so at request 3");
        ts_fails_with(fy_tensor_download(x, NULL, &download), DEVICE_LOST,
                      "its faults= says so at request 3");
        ts_fails_with(fy_device_query(device, &info), DEVICE_LOST, "host tensors stay readable",
                      "its faults= says so at request 3");
    }
    assert_true(first_of(host) == 7);
    fy_scope_end(scope, 0, NULL);
    fy_device_close(device);
    ts_ok(fy_device_open("sim:9?faults=lost@1", &device));
    scope = fy_scope_begin("again");
    ts_fails(fy_full(device, FY_DTYPE_F32, FY_DIMS(1), 1, &x), DEVICE_LOST);
    ts_fails_with(fy_full(device, FY_DTYPE_F32, FY_DIMS(1), 1, &x), DEVICE_LOST,
                  "its faults= says so at request 1");
    fy_scope_end(scope, 0, NULL);
    fy_device_close(device);
}
