/* The log function may call Ferry, in every place that calls it: no lock is held around it. */
#include "tests/support/failing.h"

static fy_device_t *device;
static int lines;
static char first[256];

static void calls_ferry(void *user, fy_log_level_t level, const char *text)
{
    fy_tensor_t *tensor = NULL;
    fy_plugin_info_t plugin = FY_PLUGIN_INFO_INIT;
    (void)user, (void)level;
    if (lines++) return;
    snprintf(first, sizeof first, "%s", text);
    /* its own segment */
    fy_status_t status = fy_tensor_create(device, FY_DTYPE_F32, FY_DIMS(64 << 20), &tensor);
    if (status != FY_STATUS_OK && status != FY_STATUS_DEVICE_LOST)
        fail_msg("%s", fy_error_get()->text);
    (void)ts_memory(device, NULL);
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
    if (ctx->is_host) skip();
    begin(ctx);
    guard.action = FY_GUARD_LOG;
    guard.device_allocs = 0;
    ts_ok(fy_scope_guard(&guard));
    (void)ts_empty(ctx->device, FY_DTYPE_F32, FY_DIMS(32 << 20));
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

/* Its own device, since it stays lost. */
TS_DEVICE_TEST(from_a_poll_that_finds_the_device_lost)
{
    if (ctx->is_host) skip();
    fy_device_t *doomed = ts_open("sim:14");
    const fy_ticket_t ticket = fy_tensor_ticket(ts_full(doomed, FY_DIMS(4), 1));
    begin(ctx);
    device = doomed;
    ts_lose(doomed);
    assert_int_equal(fy_ticket_poll(ticket), FY_POLL_FAILED);
    fy_log_set(NULL, NULL);
    ts_heal(doomed);
    assert_int_equal(lines, 1);
    assert_non_null(strstr(first, "made to be lost"));
    ts_fails(fy_ticket_wait(ticket, FY_FOREVER), DEVICE_LOST);
}
