/* Results of scopes: only tensors of the scope that ends move to the outer scope. */
#include "tests/support/harness.h"

static fy_tensor_t *made(fy_device_t *device)
{
    fy_tensor_t *tensor;
    ts_ok(fy_full(device, FY_DTYPE_F32, FY_DIMS(4), 3, &tensor));
    return tensor;
}

/* A helper can return its argument. The argument stays in its scope, however far out that is. */
TS_DEVICE_TEST(an_outer_tensor_stays_where_it_was)
{
    fy_tensor_t *outer = made(ctx->device);
    fy_scope_t middle = fy_scope_begin("middle"), inner = fy_scope_begin("inner");
    fy_scope_end(inner, 1, &outer);
    fy_scope_end(middle, 0, NULL);
    ts_expect_f32(outer, (float[]){ 3, 3, 3, 3 }, 4);
}

TS_DEVICE_TEST(results_pass_several_scopes_up)
{
    fy_tensor_t *results[3] = { NULL };
    fy_scope_t outer = fy_scope_begin("outer");
    results[0] = made(ctx->device);
    (void)fy_scope_begin("inner, left open");
    results[1] = results[2] = made(ctx->device); /* named twice: moved once */
    fy_scope_end(outer, 3, results);
    ts_expect_f32(results[0], (float[]){ 3, 3, 3, 3 }, 4);
    ts_expect_f32(results[1], (float[]){ 3, 3, 3, 3 }, 4);
}

TS_DEVICE_TEST(a_null_result_list_keeps_no_tensor)
{
    const uint64_t live = ts_live(ctx->device);
    fy_scope_t scope = fy_scope_begin("scope");
    (void)made(ctx->device);
    fy_scope_end(scope, 2, NULL);
    assert_int_equal(ts_live(ctx->device), live);
}

/* A second guard counts from the moment it is set, like the first. */
TS_DEVICE_TEST(a_second_guard_counts_from_its_own_moment)
{
    fy_guard_options_t guard = FY_GUARD_OPTIONS_INIT;
    fy_tensor_t *host = ts_host_f32(FY_DIMS(4), (float[]){ 1, 2, 3, 4 }), *up = NULL;
    fy_scope_t scope = fy_scope_begin("guarded");
    guard.upload_nbytes = 64;
    ts_ok(fy_scope_guard(&guard));
    for (int i = 0; i < 2; i++) ts_ok(fy_tensor_upload(host, ctx->device, NULL, &up));
    guard.upload_nbytes = 16;
    ts_ok(fy_scope_guard(&guard));
    ts_ok(fy_tensor_upload(host, ctx->device, NULL, &up));
    ts_fails(fy_tensor_upload(host, ctx->device, NULL, &up), REFUSED_BY_GUARD);
    fy_scope_end(scope, 0, NULL);
}
