/* A device and a scope for tests of an engine's queue, and transfers of one size for it. See
 * test_queue.c. */
#ifndef FERRY_TESTS_UNIT_TRANSFER_ENGINE_H_
#define FERRY_TESTS_UNIT_TRANSFER_ENGINE_H_

#include "tests/support/harness.h"

enum { N = 64 * 1024, NBYTES = N * 4 }; /* one transfer: 256 KiB */
static fy_device_t *g_device;
static fy_scope_t g_scope;

static inline void open_spec(const char *spec)
{
    ts_ok(fy_device_open(spec, &g_device));
    g_scope = fy_scope_begin("queue");
}

static inline int tear_down(void **state)
{
    (void)state;
    if (!g_device) return 0;
    fy_scope_end(g_scope, 0, NULL);
    fy_device_close(g_device);
    g_device = NULL;
    return 0;
}

/* A page-locked tensor with every element equal to `value`. */
static inline fy_tensor_t *pinned(float value)
{
    fy_tensor_t *x;
    void *data;
    ts_ok(fy_tensor_create_pinned(g_device, FY_DTYPE_F32, FY_DIMS(N), &x));
    ts_ok(fy_tensor_map(x, FY_ACCESS_WRITE, &data));
    for (int i = 0; i < N; i++) ((float *)data)[i] = value;
    return x;
}

static inline fy_tensor_t *on_device(void)
{
    fy_tensor_t *x;
    ts_ok(fy_tensor_create(g_device, FY_DTYPE_F32, FY_DIMS(N), &x));
    return x;
}

static inline fy_ticket_t borrow_into(fy_tensor_t *dst, const fy_tensor_t *src, int priority)
{
    fy_transfer_options_t options = FY_TRANSFER_OPTIONS_INIT;
    fy_ticket_t ticket;
    options.contract = FY_HOST_BORROW;
    options.priority = priority;
    options.convert = 1;
    ts_ok(fy_tensor_upload_into(dst, src, &options, &ticket));
    return ticket;
}

#endif
