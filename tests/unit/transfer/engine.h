/* A device and a scope for tests of an engine's queue, and transfers of one size for it. See
 * test_queue.c. */
#ifndef FERRY_TESTS_UNIT_TRANSFER_ENGINE_H_
#define FERRY_TESTS_UNIT_TRANSFER_ENGINE_H_

#include "tests/support/harness.h"

enum { N = 64 * 1024, NBYTES = N * 4 }; /* one transfer: 256 KiB */
static fy_device_t *g_device;

static inline void open_spec(const char *spec) { g_device = ts_open(spec); }

/* A page-locked tensor with every element equal to `value`. */
static inline fy_tensor_t *pinned(float value)
{
    void *data;
    fy_tensor_t *x = ts_pinned(g_device, N);
    ts_ok(fy_tensor_map(x, FY_ACCESS_WRITE, &data));
    for (int i = 0; i < N; i++) ((float *)data)[i] = value;
    return x;
}

static inline fy_tensor_t *on_device(void) { return ts_empty(g_device, FY_DTYPE_F32, FY_DIMS(N)); }

static inline fy_ticket_t borrow_into(fy_tensor_t *dst, const fy_tensor_t *src, int priority)
{
    fy_transfer_options_t options = ts_borrow;
    fy_ticket_t ticket;
    options.priority = priority;
    options.convert = 1;
    ts_ok(fy_tensor_upload_into(dst, src, &options, &ticket));
    return ticket;
}

#endif
