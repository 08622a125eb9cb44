/* The log function may call Ferry, in every place that calls it: no lock is held around it. */
#include <ferry/backend.h>

#include "runtime/device/device.h"
#include "tests/support/harness.h"

static fy_device_t *device;
static int lines;
static char first[256];

static void calls_ferry(void *user, fy_log_level_t level, const char *text)
{
    fy_tensor_t *tensor = NULL;
    fy_memory_stats_t stats = FY_MEMORY_STATS_INIT;
    fy_plugin_info_t plugin = FY_PLUGIN_INFO_INIT;
    (void)user, (void)level;
    if (lines++) return;
    snprintf(first, sizeof first, "%s", text);
    /* its own segment */
    fy_status_t status = fy_tensor_create(device, FY_DTYPE_F32, FY_DIMS(64 << 20), &tensor);
    if (status != FY_STATUS_OK && status != FY_STATUS_DEVICE_LOST)
        fail_msg("%s", fy_error_get()->text);
    ts_ok(fy_memory_query(device, NULL, &stats));
    (void)fy_plugin_query(0, &plugin);
    fy_tensor_destroy(tensor);
}

static void begin(ts_ctx_t *ctx)
{
    device = ctx->device;
    lines = 0;
    fy_log_set(calls_ferry, NULL);
}

TS_DEVICE_TEST(from_a_guard_that_only_logs)
{
    fy_guard_options_t guard = FY_GUARD_OPTIONS_INIT;
    fy_tensor_t *tensor;
    if (ctx->is_host) skip();
    begin(ctx);
    guard.action = FY_GUARD_LOG;
    guard.device_allocs = 0;
    ts_ok(fy_scope_guard(&guard));
    ts_ok(fy_tensor_create(ctx->device, FY_DTYPE_F32, FY_DIMS(32 << 20), &tensor));
    fy_log_set(NULL, NULL);
    assert_true(lines >= 1);
    assert_non_null(strstr(first, "device allocations"));
}

static void keep_line(void *user, fy_log_level_t level, const char *text)
{
    snprintf(user, 64, "%d %s", (int)level, text);
}

/* A library on top of Ferry logs in the same way. */
TS_DEVICE_TEST(from_outside)
{
    char line[64] = "";
    (void)ctx;
    fy_log_write(FY_LOG_WARNING, "no sink: %d", 1);
    fy_log_set(keep_line, line);
    fy_log_write(FY_LOG_INFO, "epoch %d of %s", 3, "ten");
    fy_log_set(NULL, NULL);
    fy_log_write(FY_LOG_ERROR, "no sink: %d", 2);
    char want[64];
    snprintf(want, sizeof want, "%d epoch 3 of ten", (int)FY_LOG_INFO);
    assert_string_equal(line, want);
}

static fy_status_t lost(void *dev, void *event, int *out_done)
{
    (void)dev, (void)event;
    *out_done = 0;
    return fy_error_set(FY_STATUS_DEVICE_LOST, __FILE__, __LINE__, "made to be lost");
}

/* Its own device, since it stays lost. */
TS_DEVICE_TEST(from_a_poll_that_finds_the_device_lost)
{
    fy_device_t *doomed;
    fy_tensor_t *x;
    fy_ticket_t ticket;
    if (ctx->is_host) skip();
    ts_ok(fy_device_open("sim:14", &doomed));
    const fy_backend_t *real = doomed->backend;
    fy_backend_t backend = *real;
    backend.event_query = lost;
    ts_ok(fy_full(doomed, FY_DTYPE_F32, FY_DIMS(4), 1, &x));
    ticket = fy_tensor_ticket(x);
    begin(ctx);
    device = doomed;
    doomed->backend = &backend;
    assert_int_equal(fy_ticket_poll(ticket), FY_POLL_FAILED);
    fy_log_set(NULL, NULL);
    doomed->backend = real;
    assert_int_equal(lines, 1);
    assert_non_null(strstr(first, "made to be lost"));
    ts_fails(fy_ticket_wait(ticket, FY_FOREVER), DEVICE_LOST);
    fy_tensor_destroy(x);
    fy_device_close(doomed);
}
