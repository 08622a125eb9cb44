/* What Ferry refuses, how it says so, and that nothing has changed then.
 *   1. Mixing devices: a result is never moved to where the other operand happens to be.
 *   2. A transfer that slipped into a scope which promised to make none.
 * Usage: 02_refusal_and_guard [device], by default sim:0. Next: 03_overlap.c. */
#include <string.h>

#include <ferry/ferry.h>

#include "example.h"

static fy_ledger_totals_t traffic_so_far(void)
{
    fy_ledger_totals_t all = FY_LEDGER_TOTALS_INIT;
    if (fy_ledger_query(NULL, &all) != FY_STATUS_OK) memset(&all, 0, sizeof all);
    return all;
}

/* Prints the refusal. Fails the example if the call was not refused as expected, or if any byte
 * moved. */
static fy_status_t expect(fy_status_t status, fy_status_t expected,
                          const fy_ledger_totals_t *before)
{
    if (status != expected) {
        return fy_error_set(FY_STATUS_INTERNAL, __FILE__, __LINE__, "expected %s, got %s",
                            fy_status_name(expected), fy_status_name(status));
    }
    printf("%s: %s\n", fy_status_name(status), fy_error_get()->text);
    fy_ledger_totals_t now = traffic_so_far();
    if (now.requests != before->requests || now.upload.count != before->upload.count ||
        now.download.count != before->download.count) {
        return fy_error_set(FY_STATUS_INTERNAL, __FILE__, __LINE__,
                            "a refused call changed the ledger");
    }
    printf("  -> nothing was submitted, nothing moved\n\n");
    return FY_STATUS_OK;
}

/* x is on the host, w on the device. */
static fy_status_t mix_devices(fy_tensor_t *x, fy_tensor_t *w, fy_device_t *device,
                               fy_tensor_t **out_y)
{
    fy_ledger_totals_t before = traffic_so_far();
    if (device == fy_device_host()) {
        printf("(on the host there is nothing to mix)\n\n");
    } else {
        FY_TRY(expect(fy_matmul(x, w, out_y), FY_STATUS_DEVICE_MISMATCH, &before));
        if (*out_y)
            return fy_error_set(FY_STATUS_INTERNAL, __FILE__, __LINE__,
                                "a refused call left a result");
    }
    fy_tensor_t *x_there; /* as the text says: move one of them explicitly, once */
    FY_TRY(fy_tensor_upload(x, device, NULL, &x_there));
    return fy_matmul(x_there, w, out_y);
}

/* A step that means well: it wants to print its loss. */
static fy_status_t step_that_prints(fy_tensor_t *y, fy_tensor_t **out_loss)
{
    fy_scope_t scope = fy_scope_begin("step");
    const fy_guard_options_t light_only = FY_GUARD_LIGHT_ONLY;
    FY_TRY(fy_scope_guard(&light_only));
    FY_TRY(fy_mean(y, 0, NULL, 0, out_loss));

    fy_download_t *download;
    fy_ledger_totals_t before = traffic_so_far();
    FY_TRY(expect(fy_tensor_download(*out_loss, NULL, &download), FY_STATUS_REFUSED_BY_GUARD,
                  &before));

    /* the loss goes to the enclosing scope, still on the device */
    fy_scope_end(scope, 1, out_loss);
    return FY_STATUS_OK;
}

static fy_status_t demonstrate(fy_device_t *device)
{
    fy_tensor_t *x, *w, *y, *loss;
    FY_TRY(fy_full(fy_device_host(), FY_DTYPE_F32, FY_DIMS(4, 3), 2.0, &x));
    FY_TRY(fy_full(device, FY_DTYPE_F32, FY_DIMS(3, 2), 0.5, &w));
    fy_tensor_set_name(x, "x"); /* names make the texts better */
    fy_tensor_set_name(w, "w");

    printf("1. matmul of a host tensor and a device tensor\n");
    FY_TRY(mix_devices(x, w, device, &y));

    printf("2. a download inside a scope that allows light requests only\n");
    FY_TRY(step_that_prints(y, &loss));

    /* Outside of the guarded scope the same download is fine: say where you pay. */
    fy_download_t *download;
    double value;
    FY_TRY(fy_tensor_download(loss, NULL, &download));
    FY_TRY(fy_download_wait_f64(download, FY_FOREVER, &value));
    printf("mean of x w is %g; each of its elements is 3 * 2 * 0.5 = 3\n", value);
    return FY_STATUS_OK;
}

static fy_status_t run(const char *spec)
{
    fy_device_t *device;
    FY_TRY(fy_device_open(spec, &device));
    fy_scope_t scope = fy_scope_begin("example");
    fy_status_t status = demonstrate(device);
    fy_scope_end(scope, 0, NULL);
    fy_device_close(device);
    return status;
}

int main(int argc, char **argv)
{
    return example_finish(argv[0], run(argc > 1 ? argv[1] : "sim:0"));
}
