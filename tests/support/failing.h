/* A device whose copies and launches fail after a number of them, or which every query of an event
 * finds lost. One device at a time; ts_heal restores it. */
#ifndef FERRY_TESTS_SUPPORT_FAILING_H_
#define FERRY_TESTS_SUPPORT_FAILING_H_

#include "runtime/device/device.h"
#include "tests/support/harness.h"

static fy_backend_t ts__failing; /* the device's backend with some slots replaced */
static const fy_backend_t *ts__real;
static int ts__copies_left, ts__launches_left;

static inline fy_status_t ts__copy(void *dev, void *stream, const fy_copy_t *copy)
{
    if (ts__copies_left-- > 0) return ts__real->copy(dev, stream, copy);
    return fy_error_set(FY_STATUS_INTERNAL, __FILE__, __LINE__, "the copy was made to fail");
}

static inline fy_status_t ts__launch(void *dev, void *stream, const fy_launch_t *launch)
{
    if (ts__launches_left-- > 0) return ts__real->launch(dev, stream, launch);
    return fy_error_set(FY_STATUS_INTERNAL, __FILE__, __LINE__, "the launch was made to fail");
}

static inline fy_status_t ts__event_query(void *dev, void *event, int *out_done)
{
    (void)dev, (void)event;
    *out_done = 0;
    return fy_error_set(FY_STATUS_DEVICE_LOST, __FILE__, __LINE__, "made to be lost");
}

/* The slots of the result can be replaced. */
static inline fy_backend_t *ts_replace_backend(fy_device_t *device)
{
    ts__real = device->backend;
    ts__failing = *ts__real;
    device->backend = &ts__failing;
    return &ts__failing;
}

static inline void ts_fail_after(fy_device_t *device, int copies, int launches)
{
    fy_backend_t *backend = ts_replace_backend(device);
    backend->copy = ts__copy;
    backend->launch = ts__launch;
    ts__copies_left = copies;
    ts__launches_left = launches;
}

static inline void ts_lose(fy_device_t *device)
{
    ts_replace_backend(device)->event_query = ts__event_query;
}

static inline void ts_heal(fy_device_t *device) { device->backend = ts__real; }

#endif
