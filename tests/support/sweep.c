/* The two sweeps. Not here: how an allocation fails (host_memory.c). */
#include "tests/support/sweep.h"

#include "tests/support/harness.h"
#include "tests/support/host_memory.h"

int ts_sweep_next(int n, int stride) { return n + (n < 20 || getenv("FERRY_SWEEP") ? 1 : stride); }

void ts_sweep_device(const char *options, const char *kind, fy_status_t want, int most,
                     ts_program_fn program)
{
    ts_sweep_device_by(options, kind, want, most, 1, program);
}

void ts_sweep_host_memory(const char *spec, int most, ts_program_fn program)
{
    ts_sweep_host_memory_by(spec, most, 1, program);
}

void ts_sweep_device_by(const char *options, const char *kind, fy_status_t want, int most,
                        int stride, ts_program_fn program)
{
    int done = 0;
    for (int n = 1; !done; n = ts_sweep_next(n, stride)) {
        char spec[96];
        fy_device_t *device;
        assert_in_range(n, 1, most);
        snprintf(spec, sizeof spec, "sim:7?%s%sfaults=%s@%d", options, *options ? "&" : "", kind,
                 n);
        fy_status_t status = fy_device_open(spec, &device);
        if (status == FY_STATUS_OK) {
            status = program(device);
            /* the second run certainly works */
            done = status == FY_STATUS_OK && program(device) == FY_STATUS_OK;
            if (status != FY_STATUS_OK) ts_ok(program(device));
            assert_int_equal(ts_live(device), 0);
            fy_device_close(device);
        }
        if (status != FY_STATUS_OK && status != want)
            fail_msg("%s: %s: %s", spec, fy_status_name(status), fy_error_get()->text);
    }
}

void ts_sweep_host_memory_by(const char *spec, int most, int stride, ts_program_fn program)
{
    fy_device_t *device;
    ts_ok(fy_device_open(spec, &device));
    ts_ok(program(device));
    const uint64_t live = ts_live(device);
    int done = 0;
    for (int n = 0; !done; n = ts_sweep_next(n, stride)) {
        assert_in_range(n, 0, most);
        ts_fail_allocation(n);
        const fy_status_t status = program(device);
        done = !ts_allocation_failed();
        ts_fail_allocation(-1);
        if (status != FY_STATUS_OK && status != FY_STATUS_OUT_OF_MEMORY)
            fail_msg("%s, allocation %d: %s: %s", spec, n, fy_status_name(status),
                     fy_error_get()->text);
        (void)!fy_device_wait(device, FY_FOREVER);
        assert_int_equal(ts_live(device), live);
    }
    ts_ok(program(device));
    fy_device_close(device);
}
