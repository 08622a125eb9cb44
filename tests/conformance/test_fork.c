/* fork: in the child the host works, and handles of other devices return DEVICE_LOST instead of
 * hanging or crashing; destroying them is safe. The parent continues unchanged. The child reports
 * by its exit code and never returns into the test runner. */
#include <unistd.h>

#include "tests/support/harness.h"

#define CHECK TS_CHILD_CHECK

static void child(ts_ctx_t *ctx, fy_tensor_t *device_tensor, fy_tensor_t *host_tensor)
{
    fy_tensor_t *sum, *made, *more = NULL;
    void *data;
    CHECK(fy_tensor_map(host_tensor, FY_ACCESS_READ, &data) == FY_STATUS_OK);
    CHECK(((float *)data)[1] == 4.0f);
    CHECK(fy_add(host_tensor, host_tensor, &sum) == FY_STATUS_OK);
    CHECK(fy_tensor_map(sum, FY_ACCESS_READ, &data) == FY_STATUS_OK);
    CHECK(((float *)data)[1] == 8.0f);
    CHECK(fy_full(fy_device_host(), FY_DTYPE_F32, FY_DIMS(100), 2, &made) == FY_STATUS_OK);
    CHECK(fy_sum(made, 0, NULL, 0, &sum) == FY_STATUS_OK);
    CHECK(fy_tensor_map(sum, FY_ACCESS_READ, &data) == FY_STATUS_OK);
    CHECK(((float *)data)[0] == 200.0f);
    if (!ctx->is_host) {
        CHECK(fy_neg(device_tensor, &more) == FY_STATUS_DEVICE_LOST);
        CHECK(more == NULL);
        CHECK(fy_tensor_upload(host_tensor, ctx->device, NULL, &more) == FY_STATUS_DEVICE_LOST);
        fy_status_t status = ts_try_download(device_tensor);
        CHECK(status == FY_STATUS_DEVICE_LOST);
        CHECK(fy_device_wait(ctx->device, FY_FOREVER) == FY_STATUS_DEVICE_LOST);
        CHECK(strstr(fy_error_get()->text, fy_device_name(ctx->device)) != NULL);
        fy_tensor_destroy(device_tensor);
    }
    fy_tensor_destroy(host_tensor);
    _exit(0);
}

TS_DEVICE_TEST(the_child_has_the_host)
{
    fy_tensor_t *on_device = ts_f32(ctx->device, FY_DIMS(2), (float[]){ 1, 2 }),
                *on_host = ts_host_f32(FY_DIMS(2), (float[]){ 3, 4 }), *sum;
    ts_ok(fy_add(on_device, on_device, &sum)); /* in flight, perhaps */
    fy_tensor_keep(on_device);
    fy_tensor_keep(on_host);
    const pid_t pid = ts_fork();
    if (pid == 0) child(ctx, on_device, on_host);
    ts_child_ends(pid);
    ts_expect_f32(sum, (float[]){ 2, 4 }, 2); /* the parent continues */
    ts_expect_f32(on_host, (float[]){ 3, 4 }, 2);
    fy_tensor_destroy(on_device);
    fy_tensor_destroy(on_host);
}

TS_DEVICE_TEST(exit_with_everything_open)
{
    const pid_t pid = ts_fork();
    /* open scopes, live tensors, a download in flight, then exit() with its handlers: every order
     * must work */
    if (pid == 0) {
        fy_tensor_t *x;
        fy_scope_begin("never ended");
        if (fy_zeros(fy_device_host(), FY_DTYPE_F32, FY_DIMS(1000), &x) != FY_STATUS_OK) _exit(1);
        fclose(stdout); /* the runner's buffered output is the parent's */
        exit(0);
    }
    ts_child_ends(pid);
}
