/* fy_scope_begin_unowned: handles made directly in it are the caller's, inner scopes own as usual,
 * and what else a scope does it does as well. The runner's leak check is part of each test. */
#include "tests/support/harness.h"

static fy_tensor_t *make(fy_device_t *device) { return ts_full(device, FY_DIMS(4), 0); }

TS_DEVICE_TEST(handles_are_the_callers)
{
    const fy_scope_t outer = fy_scope_begin("outer");
    const fy_scope_t scope = fy_scope_begin_unowned("binding");
    fy_tensor_t *x = make(ctx->device), *y, *view;
    fy_tape_t *tape;
    fy_download_t *download;
    fy_stream_t *stream = NULL;
    ts_ok(fy_neg(x, &y));
    ts_ok(fy_reshape(y, FY_DIMS(2, 2), &view));
    ts_ok(fy_tape_create(&tape));
    ts_ok(fy_tensor_download(y, NULL, &download));
    if (!ctx->is_host) ts_ok(fy_stream_create(ctx->device, NULL, &stream));
    fy_scope_end(scope, 0, NULL);
    fy_scope_end(outer, 0, NULL);
    assert_int_equal(ts_info(x).nelem, 4); /* all are still there */
    assert_int_equal(ts_info(view).rank, 2);
    fy_tape_destroy(tape);
    fy_download_destroy(download);
    fy_stream_destroy(stream);
    fy_tensor_destroy(view);
    fy_tensor_destroy(y);
    fy_tensor_destroy(x);
}

TS_DEVICE_TEST(inner_scopes_own)
{
    const fy_scope_t scope = fy_scope_begin_unowned("binding");
    const fy_scope_t inner = fy_scope_begin("inner");
    fy_tensor_t *kept = make(ctx->device);
    (void)make(ctx->device); /* collected */
    const fy_scope_t deeper = fy_scope_begin_unowned("deeper");
    fy_tensor_t *mine = make(ctx->device);
    fy_scope_end(deeper, 0, NULL);
    (void)make(ctx->device); /* the scope `inner` owns again */
    fy_scope_end(inner, 1, &kept);
    fy_tensor_t *after = make(ctx->device);
    fy_scope_end(scope, 0, NULL);
    assert_int_equal(ts_info(kept).nelem, 4);
    fy_tensor_destroy(kept);
    fy_tensor_destroy(mine);
    fy_tensor_destroy(after);
}

/* The end of an outer scope ends it and the scopes that were left open inside, without their
 * results; handles from before it stay with their scope. */
TS_DEVICE_TEST(an_early_return)
{
    const fy_scope_t outer = fy_scope_begin("outer");
    (void)make(ctx->device); /* collected */
    (void)fy_scope_begin_unowned("binding");
    fy_tensor_t *mine = make(ctx->device);
    (void)fy_scope_begin("left open");
    (void)make(ctx->device); /* collected */
    fy_scope_end(outer, 0, NULL);
    assert_int_equal(ts_info(mine).nelem, 4);
    fy_tensor_destroy(mine);
}

/* Small host tensors keep their place in a ring after they are destroyed. */
TS_DEVICE_TEST(reused_slots_change_owner)
{
    const fy_scope_t outer = fy_scope_begin("outer");
    fy_tensor_t *x = make(ctx->device);
    fy_tensor_destroy(x);
    const fy_scope_t scope = fy_scope_begin_unowned("binding");
    fy_tensor_t *mine[3], *y;
    for (int i = 0; i < 3; i++) mine[i] = make(ctx->device);
    fy_tensor_destroy(mine[1]);
    mine[1] = make(ctx->device);
    fy_scope_end(scope, 0, NULL);
    ts_ok(fy_neg(mine[0], &y)); /* owned by `outer` */
    fy_tensor_destroy(mine[2]);
    mine[2] = make(ctx->device);
    fy_tensor_keep(mine[2]);
    fy_scope_end(outer, 0, NULL);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(ts_info(mine[i]).nelem, 4);
        fy_tensor_destroy(mine[i]);
    }
}

/* Guards, categories, figures and streams. */
TS_DEVICE_TEST(it_is_a_scope_otherwise)
{
    fy_guard_options_t light = FY_GUARD_LIGHT_ONLY;
    fy_download_t *download = NULL;
    const fy_scope_t scope = fy_scope_begin_unowned("binding");
    fy_tensor_t *x = make(ctx->device);
    ts_ok(fy_scope_guard(&light));
    ts_ok(fy_scope_memory(FY_CATEGORY_WEIGHTS));
    if (!ctx->is_host) ts_fails(fy_tensor_download(x, NULL, &download), REFUSED_BY_GUARD);
    assert_null(download);
    fy_scope_end(scope, 0, NULL);
    assert_true(ts_ledger("test/binding").requests > 0);
    fy_tensor_destroy(x);
    fy_stream_t *stream = NULL;
    if (ctx->is_host) return;
    ts_ok(fy_stream_create(ctx->device, NULL, &stream));
    const fy_scope_t inside = fy_scope_begin_unowned("binding");
    ts_ok(fy_stream_set_current(stream)); /* until the scope ends */
    fy_scope_end(inside, 0, NULL);
    fy_stream_destroy(stream);
    (void)make(ctx->device); /* on the compute stream; collected */
}

/* Calls that fail halfway leave nothing to the caller. */
TS_DEVICE_TEST(errors_leak_nothing)
{
    const fy_scope_t scope = fy_scope_begin_unowned("binding");
    fy_tensor_t *x = make(ctx->device), *other, *bad = NULL, *dst[3] = { NULL, NULL, NULL };
    fy_tape_t *tape;
    ts_ok(fy_zeros(ctx->device, FY_DTYPE_F64, FY_DIMS(3), &other));
    ts_fails(fy_add(x, other, &bad), DTYPE_MISMATCH);
    ts_fails(fy_matmul(x, x, &bad), SHAPE_MISMATCH);
    ts_fails(fy_reshape(x, FY_DIMS(3), &bad), SHAPE_MISMATCH);
    ts_fails(fy_op_call(FY_OP_DROPOUT, 1, &x, NULL, 0, 3, dst), INVALID_ARGUMENT);
    ts_fails(fy_full(ctx->device, FY_DTYPE_U8, FY_DIMS(2), 300, &bad), INVALID_ARGUMENT);
    assert_null(bad);
    ts_ok(fy_tape_create(&tape));
    ts_ok(fy_tape_watch(tape, x, NULL));
    ts_ok(fy_tape_begin(tape));
    ts_ok(fy_mul(x, x, &bad));
    ts_fails(fy_tape_backward(tape, bad, NULL), SHAPE_MISMATCH); /* four elements, no seed */
    fy_tape_destroy(tape);
    fy_tensor_destroy(bad);
    fy_tensor_destroy(other);
    fy_tensor_destroy(x);
    fy_scope_end(scope, 0, NULL);
}

TS_DEVICE_TEST(sixty_five_scopes)
{
    const fy_scope_t outer = fy_scope_begin("outer");
    for (int i = 0; i < 63; i++) (void)fy_scope_begin("deep");
    (void)fy_scope_begin_unowned("too deep"); /* the 64th scope of the runner's or ours decides */
    (void)make(ctx->device);
    ts_fails_with(fy_scope_memory(FY_CATEGORY_WEIGHTS), INVALID_ARGUMENT, "cannot have a category");
    fy_scope_end(outer, 0, NULL);
}
