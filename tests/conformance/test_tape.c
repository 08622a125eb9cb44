/* The tape on every device: recorded calls, saved tensors, targets of gradients, refusals that
 * change nothing.
 * Not here: writes to bytes that the tape knows (test_tape_writes.c), the correctness of each rule
 * (tests/ops/test_op_gradients.c). */
#include <math.h>

#include "tests/support/harness.h"

static fy_tensor_t *values(ts_ctx_t *ctx, int64_t n, const float *v)
{
    return ts_f32(ctx->device, 1, &n, v);
}

static fy_tensor_t *sum_of(const fy_tensor_t *tensor)
{
    fy_tensor_t *sum;
    ts_ok(fy_sum(tensor, FY_ALL_AXES, 0, &sum));
    return sum;
}

static fy_tape_info_t info_of(const fy_tape_t *tape)
{
    fy_tape_info_t info = FY_TAPE_INFO_INIT;
    ts_ok(fy_tape_query(tape, &info));
    return info;
}

TS_DEVICE_TEST(a_product_and_its_gradients)
{
    fy_tensor_t *x = values(ctx, 3, (float[]){ 1, 2, 3 }),
                *w = values(ctx, 3, (float[]){ 4, 5, 6 }), *y;
    fy_tape_t *tape = ts_record(w, NULL);
    assert_true(info_of(tape).is_recording);
    ts_ok(fy_mul(x, w, &y));
    const uint64_t live = ts_live(ctx->device);
    fy_tensor_t *loss = sum_of(y);
    ts_ok(fy_tape_backward(tape, loss, NULL));
    ts_expect_f32(ts_grad(tape, w), (float[]){ 1, 2, 3 }, 3);
    const fy_tape_info_t after = info_of(tape);
    assert_true(!after.is_recording && after.calls == 0 && after.saved == 0 && after.watched == 1);
    assert_true(ts_live(ctx->device) >= live);
    fy_tensor_t *none;
    ts_fails_with(fy_tape_grad(tape, x, &none), INVALID_ARGUMENT, "not watched");
}

/* A value that is used twice, along two paths of different length. */
TS_DEVICE_TEST(gradients_of_several_paths_add_up)
{
    fy_tensor_t *w = values(ctx, 2, (float[]){ 2, -1 }), *a, *b, *c;
    fy_tape_t *tape = ts_record(w, NULL);
    ts_ok(fy_add(w, w, &a)); /* 2 w */
    ts_ok(fy_mul(a, w, &b)); /* 2 w^2 */
    ts_ok(fy_add(b, a, &c)); /* 2 w^2 + 2 w */
    ts_ok(fy_add(c, w, &c)); /* 2 w^2 + 3 w */
    ts_ok(fy_tape_backward(tape, sum_of(c), NULL));
    ts_expect_f32(ts_grad(tape, w), (float[]){ 4 * 2 + 3, 4 * -1 + 3 }, 2);
}

/* d/dw of a sum over views of one tensor in an arena. */
TS_DEVICE_TEST(gradients_of_views_reach_their_source)
{
    fy_tensor_t *w = ts_iota(ctx->device, FY_DIMS(2, 3), 1), *t, *row, *wide, *flat, *twice, *sum;
    fy_tape_t *tape = ts_record(w, NULL);
    ts_ok(fy_transpose(w, NULL, &t));                /* [3, 2] */
    ts_ok(fy_slice(t, 0, 1, 3, &row));               /* columns 1 and 2 of w, [2, 2] */
    ts_ok(fy_mul(row, row, &twice));                 /* 2 w there */
    ts_ok(fy_slice(w, 0, 0, 1, &wide));              /* row 0, [1, 3] */
    ts_ok(fy_broadcast(wide, FY_DIMS(4, 3), &wide)); /* four times */
    ts_ok(fy_reshape(w, FY_DIMS(6), &flat));
    ts_ok(fy_unsqueeze(flat, 0, &flat));
    ts_ok(fy_squeeze(flat, 0, &flat)); /* once */
    ts_ok(fy_add(sum_of(twice), sum_of(wide), &sum));
    ts_ok(fy_add(sum, sum_of(flat), &sum));
    ts_ok(fy_tape_backward(tape, sum, NULL));
    ts_expect_f32(ts_grad(tape, w), (float[]){ 5, 4 + 5, 6 + 5, 1, 10 + 1, 12 + 1 }, 6);
}

TS_DEVICE_TEST(gradients_are_written_to_the_requested_tensors)
{
    fy_backward_options_t more = FY_BACKWARD_OPTIONS_INIT;
    fy_tape_t *tape;
    fy_tensor_t *w = values(ctx, 2, (float[]){ 1, 2 }), *v = values(ctx, 2, (float[]){ 3, 4 }),
                *arena = ts_full(ctx->device, FY_DIMS(6), 99), *gw, *gv, *y, *none;
    ts_ok(fy_slice(arena, 0, 1, 3, &gw));
    ts_ok(fy_slice(arena, 0, 3, 5, &gv));
    ts_ok(fy_tape_create(&tape));
    ts_ok(fy_tape_watch(tape, w, gw));
    ts_ok(fy_tape_watch(tape, v, gv));
    /* the first write assigns: 99 and the first round's values are gone */
    for (int round = 0; round < 2; round++) {
        ts_ok(fy_tape_begin(tape));
        ts_ok(fy_mul(w, w, &y));
        ts_ok(fy_add(y, w, &y));
        ts_ok(fy_tape_backward(tape, sum_of(y), NULL));
        /* v has no gradient, and its memory did not change */
        ts_expect_f32(arena, (float[]){ 99, 3, 5, 99, 99, 99 }, 6);
        ts_ok(fy_tape_grad(tape, v, &none));
        assert_null(none);
    }
    more.accumulate = 1;
    ts_ok(fy_tape_begin(tape));
    ts_ok(fy_mul(w, v, &y));
    ts_ok(fy_tape_backward(tape, sum_of(y), &more));
    ts_expect_f32(arena, (float[]){ 99, 3 + 3, 5 + 4, 1, 2, 99 }, 6);
}

/* Gradients of one backward never have one place; handles on the same bytes are one tensor. */
TS_DEVICE_TEST(a_place_takes_one_gradient)
{
    fy_tensor_t *w = values(ctx, 2, (float[]){ 1, 2 }), *v = values(ctx, 2, (float[]){ 3, 4 }),
                *arena = ts_full(ctx->device, FY_DIMS(6), 99), *gw, *half, *next, *twin, *y, *z;
    fy_tape_t *tape, *other;
    ts_ok(fy_slice(arena, 0, 1, 3, &gw));
    ts_ok(fy_slice(arena, 0, 2, 4, &half)); /* of gw */
    ts_ok(fy_slice(arena, 0, 3, 5, &next));
    ts_ok(fy_slice(w, 0, 0, 2, &twin));
    ts_ok(fy_tape_create(&tape));
    ts_ok(fy_tape_create(&other));
    ts_ok(fy_tape_watch(tape, w, gw));
    ts_ok(fy_tape_watch(tape, v, half));
    for (int i = 0; i < 2; i++) { /* used with w, then alone */
        ts_ok(fy_tape_begin(tape));
        ts_ok(fy_mul(i ? v : w, v, &y));
        if (!i)
            ts_fails_with(fy_tape_backward(tape, sum_of(y), NULL), INVALID_ARGUMENT,
                          "their gradients in the same bytes");
        else
            ts_ok(fy_tape_backward(tape, sum_of(y), NULL));
        ts_expect_f32(arena, (float[]){ 99, 99, i ? 6 : 99, i ? 8 : 99, 99, 99 }, 6);
    }
    ts_ok(fy_tape_watch(tape, v, next));
    ts_ok(fy_tape_watch(tape, twin, gw));
    assert_int_equal(info_of(tape).watched, 2);
    ts_ok(fy_tape_watch(other, w, gw)); /* tapes take turns */
    ts_ok(fy_tape_watch(tape, w, gw));
    assert_int_equal(info_of(tape).watched, 2);
    ts_ok(fy_tape_begin(tape));
    fy_tensor_t *inner = values(ctx, 2, (float[]){ 7, 8 });
    ts_ok(fy_tape_watch(tape, inner, gw));
    ts_ok(fy_mul(w, inner, &y));
    ts_fails_with(fy_tape_backward(tape, sum_of(y), NULL), INVALID_ARGUMENT, "in the same bytes");
    ts_ok(fy_tape_begin(tape));
    ts_ok(fy_mul(w, v, &y));
    ts_ok(fy_mul(twin, twin, &z));
    ts_ok(fy_add(y, z, &y));
    ts_ok(fy_tape_backward(tape, sum_of(y), NULL));
    ts_expect_f32(arena, (float[]){ 99, 3 + 2, 4 + 4, 1, 2, 99 }, 6);
}

/* Slices of one set, one after another, with their gradients in one place. */
TS_DEVICE_TEST(a_place_is_free_again_with_the_next_record)
{
    fy_tensor_t *data = ts_iota(ctx->device, FY_DIMS(6), 1),
                *g = ts_full(ctx->device, FY_DIMS(2), 0), *x, *y;
    fy_tape_t *tape;
    ts_ok(fy_tape_create(&tape));
    for (int i = 0; i < 3; i++) {
        const fy_scope_t scope = fy_scope_begin("batch");
        ts_ok(fy_slice(data, 0, 2 * i, 2 * i + 2, &x));
        ts_ok(fy_tape_watch(tape, x, g));
        ts_ok(fy_tape_begin(tape));
        ts_ok(fy_mul(x, x, &y));
        ts_ok(fy_tape_backward(tape, sum_of(y), NULL));
        ts_expect_f32(g, (float[]){ 4.0f * (float)i + 2, 4.0f * (float)i + 4 }, 2);
        fy_scope_end(scope, 0, NULL);
    }
}

TS_DEVICE_TEST(a_seed_scales)
{
    fy_tensor_t *w = values(ctx, 2, (float[]){ 1, 2 }), *y,
                *seed = values(ctx, 2, (float[]){ 10, 100 });
    fy_backward_options_t options = FY_BACKWARD_OPTIONS_INIT;
    fy_tape_t *tape = ts_record(w, NULL);
    ts_ok(fy_mul(w, w, &y));
    ts_fails_with(fy_tape_backward(tape, y, NULL), SHAPE_MISMATCH, "seed");
    options.seed = seed; /* refused: unchanged */
    ts_ok(fy_tape_backward(tape, y, &options));
    ts_expect_f32(ts_grad(tape, w), (float[]){ 20, 400 }, 2);
    ts_fails_with(fy_tape_backward(tape, y, &options), INVALID_ARGUMENT, "one backward");
}

/* A seed that the backward would overwrite while it reads it. */
TS_DEVICE_TEST(a_seed_has_its_own_bytes)
{
    fy_tensor_t *w = values(ctx, 2, (float[]){ 1, 2 }), *v = values(ctx, 2, (float[]){ 3, 4 }),
                *place = values(ctx, 2, (float[]){ 5, 6 }), *y;
    fy_backward_options_t options = FY_BACKWARD_OPTIONS_INIT;
    fy_tape_t *tape = ts_tape(v, NULL);
    ts_ok(fy_tape_watch(tape, w, place));
    ts_ok(fy_tape_begin(tape));
    ts_ok(fy_mul(w, v, &y));
    options.seed = place;
    ts_fails_with(fy_tape_backward(tape, y, &options), INVALID_ARGUMENT, "seed", "copy");
    ts_expect_f32(place, (float[]){ 5, 6 }, 2);
    ts_ok(fy_tape_backward(tape, sum_of(y), NULL));
    options.seed = ts_grad(tape, v);
    ts_ok(fy_tape_begin(tape));
    ts_ok(fy_mul(w, v, &y));
    options.accumulate = 1; /* to the seed */
    ts_fails_with(fy_tape_backward(tape, y, &options), INVALID_ARGUMENT, "seed", "copy");
    options.accumulate = 0; /* into a new tensor */
    options.clear = (fy_tensor_t *)(uintptr_t)options.seed;
    ts_fails_with(fy_tape_backward(tape, y, &options), INVALID_ARGUMENT, "seed", "clear");
    options.clear = NULL;
    ts_ok(fy_tape_backward(tape, y, &options));
    ts_expect_f32(ts_grad(tape, v), (float[]){ 1, 4 }, 2);
    ts_expect_f32(place, (float[]){ 3, 8 }, 2);
}

/* A refused backward changes nothing; one that failed on the way has dropped the record. */
TS_DEVICE_TEST(a_refused_backward_keeps_the_record)
{
    fy_tensor_t *w = values(ctx, 2, (float[]){ 1, 2 }), *x = values(ctx, 2, (float[]){ 3, 4 }), *y,
                *constant;
    fy_backward_options_t options = FY_BACKWARD_OPTIONS_INIT;
    fy_tape_t *tape = ts_record(w, NULL);
    ts_ok(fy_mul(w, x, &y));
    ts_ok(fy_mul(x, x, &constant));
    ts_fails(fy_tape_backward(tape, sum_of(constant), NULL), INVALID_ARGUMENT);
    ts_fails(fy_tape_backward(tape, y, NULL), SHAPE_MISMATCH);
    options.seed = values(ctx, 3, (float[]){ 1, 1, 1 });
    ts_fails(fy_tape_backward(tape, y, &options), SHAPE_MISMATCH);
    ts_ok(fy_zeros(ctx->device, FY_DTYPE_F64, FY_DIMS(2), &constant));
    options.seed = constant;
    ts_fails(fy_tape_backward(tape, y, &options), SHAPE_MISMATCH);
    assert_true(info_of(tape).is_recording && info_of(tape).calls > 0);
    ts_ok(fy_mul(y, x, &y)); /* is recorded */
    ts_ok(fy_tape_backward(tape, sum_of(y), NULL));
    ts_expect_f32(ts_grad(tape, w), (float[]){ 9, 16 }, 2);
    ts_ok(fy_tape_begin(tape));
    ts_ok(fy_mul(w, x, &y));
    ts_ok(fy_fill(x, 0)); /* the record needs it */
    ts_fails(fy_tape_backward(tape, sum_of(y), NULL), BUSY);
    assert_true(!info_of(tape).is_recording && info_of(tape).calls == 0);
}

TS_DEVICE_TEST(calls_without_watched_operands_are_not_recorded)
{
    fy_tensor_t *w = values(ctx, 2, (float[]){ 1, 2 }), *x = values(ctx, 2, (float[]){ 1, 1 }), *y,
                *metric;
    fy_tape_t *tape = ts_tape(w, NULL);
    ts_ok(fy_mul(w, w, &y)); /* before the begin */
    fy_scope_t step = fy_scope_begin("step");
    ts_ok(fy_tape_begin(tape));
    ts_ok(fy_mul(x, x, &y)); /* constant */
    assert_int_equal(info_of(tape).calls, 0);
    fy_scope_t validate = fy_scope_begin("validate");
    ts_ok(fy_tape_begin(NULL));
    ts_ok(fy_mul(w, w, &metric));
    fy_scope_end(validate, 0, NULL);
    assert_int_equal(info_of(tape).calls, 0);
    assert_true(info_of(tape).is_recording); /* recording continues */
    ts_ok(fy_mul(w, x, &y));
    ts_ok(fy_gt(y, x, &metric)); /* a comparison has no gradient */
    assert_int_equal(info_of(tape).calls, 1);
    assert_int_equal(info_of(tape).saved, 1); /* x; w is not needed, since x needs no gradient */
    fy_scope_end(step, 1, &y);
    assert_false(info_of(tape).is_recording);
    ts_ok(fy_mul(y, y, &metric)); /* after the end */
    assert_int_equal(info_of(tape).calls, 1);
    fy_backward_options_t options = FY_BACKWARD_OPTIONS_INIT;
    options.seed = x;
    ts_ok(fy_tape_backward(tape, y, &options)); /* the record stays until now */
    ts_expect_f32(ts_grad(tape, w), (float[]){ 1, 1 }, 2);
}

/* A tape that another tape interrupts, or that ends with the scope of its begin. */
TS_DEVICE_TEST(tapes_are_independent)
{
    fy_tensor_t *w = values(ctx, 2, (float[]){ 1, 2 }), *v = values(ctx, 2, (float[]){ 3, 5 }), *y,
                *z;
    fy_tape_t *outer, *inner;
    outer = ts_record(w, NULL);
    ts_ok(fy_mul(w, v, &y));
    fy_scope_t scope = fy_scope_begin("inner");
    inner = ts_record(v, NULL);
    ts_ok(fy_mul(v, v, &z));
    ts_ok(fy_tape_backward(inner, sum_of(z), NULL));
    ts_expect_f32(ts_grad(inner, v), (float[]){ 6, 10 }, 2);
    fy_scope_end(scope, 0, NULL); /* ends the inner tape too */
    assert_int_equal(info_of(outer).calls, 1);
    ts_ok(fy_mul(y, w, &y));
    ts_ok(fy_tape_backward(outer, sum_of(y), NULL));
    ts_expect_f32(ts_grad(outer, w), (float[]){ 6, 20 }, 2);
    scope = fy_scope_begin("outer goes");
    ts_ok(fy_tape_begin(outer));
    fy_scope_t deep = fy_scope_begin("deep");
    fy_tape_destroy(outer);
    fy_scope_end(deep, 0, NULL);
    ts_ok(fy_mul(w, w, &y)); /* not recorded */
    fy_scope_end(scope, 0, NULL);
}

/* Each tape has its own gradient of a tensor, whichever watched it or wrote it last. */
TS_DEVICE_TEST(tapes_share_tensors)
{
    fy_tensor_t *w = values(ctx, 2, (float[]){ 1, 2 }), *v = values(ctx, 2, (float[]){ 3, 5 }),
                *own = values(ctx, 2, (float[]){ 0, 0 }), *y, *z;
    fy_tape_t *outer = ts_tape(w, NULL), *inner, *other;
    for (int i = 0; i < 3; i++) { /* also with what the last round has left */
        ts_ok(fy_tape_begin(outer));
        ts_ok(fy_mul(w, w, &y));
        fy_scope_t scope = fy_scope_begin("inner");
        inner = ts_tape(y, NULL); /* a result of the outer record */
        ts_ok(fy_tape_watch(inner, w, NULL));
        ts_ok(fy_tape_begin(inner));
        ts_ok(fy_mul(y, w, &z));
        ts_ok(fy_copy(own, z)); /* a result of both records */
        ts_ok(fy_tape_backward(inner, sum_of(own), NULL));
        ts_expect_f32(ts_grad(inner, y), (float[]){ 1, 2 }, 2);
        ts_expect_f32(ts_grad(inner, w), (float[]){ 1, 4 }, 2);
        fy_scope_end(scope, 0, NULL);
        ts_ok(fy_copy(own, y));
        ts_ok(fy_mul(own, w, &z));
        ts_ok(fy_tape_backward(outer, sum_of(z), NULL));
        ts_expect_f32(ts_grad(outer, w), (float[]){ 3, 12 }, 2);
    }
    fy_tensor_t *again, *place = values(ctx, 2, (float[]){ 0, 0 });
    ts_ok(fy_slice(w, 0, 0, 2, &again)); /* the same tensor, by its place */
    ts_ok(fy_tape_watch(outer, w, place));
    ts_ok(fy_tape_watch(outer, again, place));
    other = ts_tape(w, NULL);
    ts_ok(fy_tape_watch(other, again, NULL));
    ts_ok(fy_tape_begin(other));
    ts_ok(fy_mul(w, again, &z));
    ts_ok(fy_tape_backward(other, sum_of(z), NULL));
    ts_expect_f32(ts_grad(other, w), (float[]){ 2, 4 }, 2);
    ts_expect_f32(ts_grad(other, again), (float[]){ 2, 4 }, 2);

    other = ts_record(v, NULL);
    ts_ok(fy_axpy(w, 1, v)); /* w is the other tape's result, and watched by the outer one */
    ts_ok(fy_tape_backward(other, sum_of(w), NULL));
    ts_expect_f32(ts_grad(other, v), (float[]){ 1, 1 }, 2);
    ts_ok(fy_tape_begin(outer));
    ts_ok(fy_mul(w, w, &y));
    ts_ok(fy_tape_backward(outer, sum_of(y), NULL));
    ts_expect_f32(ts_grad(outer, w), (float[]){ 8, 14 }, 2);

    ts_ok(fy_tape_begin(outer));
    ts_ok(fy_mul(w, w, &y));
    fy_scope_t scope = fy_scope_begin("inner");
    ts_ok(fy_tape_begin(other));
    ts_ok(fy_axpy(y, 1, v));
    fy_scope_end(scope, 0, NULL);
    ts_fails_with(fy_mul(y, w, &z), BUSY, "version");
}

/* A replay has no gradient. */
TS_DEVICE_TEST(graphs_of_watched_tensors_are_not_replayed_in_a_record)
{
    fy_tensor_t *w = values(ctx, 2, (float[]){ 1, 2 }), *x = values(ctx, 2, (float[]){ 3, 4 }),
                *dst = values(ctx, 2, (float[]){ 0, 0 }), *y;
    fy_tensor_t *all = values(ctx, 4, (float[]){ 0, 0, 0, 0 }), *part, *other;
    fy_graph_t *of_w, *of_x, *of_all;
    ts_ok(fy_slice(all, 0, 0, 2, &part));
    ts_ok(fy_slice(all, 0, 2, 4, &other));
    ts_ok(fy_graph_begin(ctx->device));
    ts_ok(fy_sum(all, FY_ALL_AXES, 0, &y));
    ts_ok(fy_graph_end(&of_all));
    ts_ok(fy_graph_begin(ctx->device));
    ts_ok(fy_copy(dst, w));
    ts_ok(fy_graph_end(&of_w));
    ts_ok(fy_graph_begin(ctx->device));
    ts_ok(fy_copy(dst, x));
    ts_ok(fy_graph_end(&of_x));
    fy_tape_t *tape = ts_record(w, NULL);
    ts_fails_with(fy_graph_replay(of_w, NULL), UNSUPPORTED, "graph_replay", "fy_tape_begin(NULL)");
    ts_ok(fy_graph_replay(of_x, NULL)); /* constants */
    ts_ok(fy_add(w, dst, &y));
    ts_ok(fy_copy(dst, y));
    ts_fails_with(fy_graph_replay(of_x, NULL), UNSUPPORTED, "graph_replay"); /* writes a result */
    ts_ok(fy_copy(part, y));
    ts_ok(fy_fill(other, 7)); /* other bytes of that storage, and a newer version */
    ts_fails_with(fy_graph_replay(of_all, NULL), UNSUPPORTED, "graph_replay");
    ts_ok(fy_tape_backward(tape, sum_of(y), NULL));
    ts_expect_f32(ts_grad(tape, w), (float[]){ 1, 1 }, 2);
    ts_ok(fy_graph_replay(of_w, NULL));
    ts_expect_f32(dst, (float[]){ 1, 2 }, 2);
}

TS_DEVICE_TEST(overwritten_operands_are_named)
{
    fy_tensor_t *w = values(ctx, 2, (float[]){ 1, 2 }), *x = values(ctx, 2, (float[]){ 1, 1 }), *y,
                *part;
    fy_tensor_set_name(x, "batch");
    fy_tape_t *tape = ts_record(w, NULL);
    ts_ok(fy_mul(w, x, &y));
    ts_ok(fy_fill(x, 7));
    ts_fails_with(fy_tape_backward(tape, sum_of(y), NULL), BUSY, "'batch'", "mul");
    assert_int_equal(info_of(tape).saved, 0); /* the record is freed, with its tensors */

    ts_ok(fy_tape_begin(tape));
    ts_fails_with(fy_fill(w, 0), BUSY, "watched");
    ts_ok(fy_mul(w, w, &y));
    ts_ok(fy_slice(y, 0, 0, 1, &part));
    ts_ok(fy_fill(part, 0)); /* through another view: detected when y is used */
    ts_fails_with(fy_add(y, y, &part), BUSY, "version");
    ts_expect_f32(w, (float[]){ 1, 2 }, 2);
}

TS_DEVICE_TEST(refusals_change_nothing)
{
    fy_tensor_t *w = values(ctx, 2, (float[]){ 1, 2 }),
                *other = values(ctx, 3, (float[]){ 1, 2, 3 }), *y, *i, *up;
    fy_backward_options_t unset = { 0, NULL, 0 };
    fy_tape_info_t info = { 0 };
    fy_tape_t *tape;
    ts_fails(fy_tape_create(NULL), INVALID_ARGUMENT);
    ts_ok(fy_tape_create(&tape));
    ts_fails(fy_tape_watch(NULL, w, NULL), INVALID_ARGUMENT);
    ts_fails(fy_tape_watch(tape, NULL, NULL), INVALID_ARGUMENT);
    ts_fails(fy_tape_watch(tape, w, other), SHAPE_MISMATCH);
    ts_fails_with(fy_tape_watch(tape, w, w), INVALID_ARGUMENT, "shares bytes with the tensor");
    fy_tensor_t *square, *transposed;
    ts_ok(fy_zeros(ctx->device, FY_DTYPE_F32, FY_DIMS(2, 2), &square));
    ts_ok(fy_transpose(square, NULL, &transposed));
    ts_fails_with(fy_tape_watch(tape, transposed, square), INVALID_ARGUMENT, "shares bytes");
    ts_ok(fy_arange(ctx->device, FY_DTYPE_I32, 0, 1, 2, &i));
    ts_fails(fy_tape_watch(tape, i, NULL), DTYPE_MISMATCH);
    ts_fails(fy_tape_watch(tape, w, i), DTYPE_MISMATCH);
    ts_fails(fy_tape_query(tape, &info), INVALID_ARGUMENT);
    ts_fails(fy_tape_backward(tape, w, &unset), INVALID_ARGUMENT);
    ts_fails_with(fy_tape_backward(tape, w, NULL), INVALID_ARGUMENT, "no recorded call");
    ts_ok(fy_tape_watch(tape, w, NULL));
    ts_ok(fy_tape_begin(tape));
    ts_fails(fy_mul(w, other, &y), SHAPE_MISMATCH);
    assert_int_equal(info_of(tape).calls, 0);
    assert_int_equal(info_of(tape).saved, 0);
    ts_ok(fy_mul(w, w, &y));
    ts_fails_with(fy_tape_watch(tape, y, NULL), INVALID_ARGUMENT, "is a result of");
    if (ctx->is_host) {
        ts_fails(fy_tensor_upload(w, ctx->device, NULL, &up), UNSUPPORTED);
        ts_ok(fy_zeros(ctx->device, FY_DTYPE_F32, FY_DIMS(2), &up));
        ts_fails_with(fy_tensor_upload_into(up, w, NULL, NULL), UNSUPPORTED, "gradient");
    }
}

/* A step of a small network, called, and as a replayed graph: the same parameters afterwards, and
 * the gradients of the formula. */
static fy_status_t train(fy_tape_t *tape, fy_tensor_t *x, fy_tensor_t *target, fy_tensor_t *w1,
                         fy_tensor_t *w2)
{
    fy_tensor_t *h, *y, *loss, *g1, *g2;
    fy_scope_t scope = fy_scope_begin("step");
    FY_TRY(fy_tape_begin(tape));
    FY_TRY(fy_matmul(x, w1, &h));
    FY_TRY(fy_relu(h, &h));
    FY_TRY(fy_matmul(h, w2, &y));
    FY_TRY(fy_mse_loss(y, target, &loss));
    FY_TRY(fy_tape_backward(tape, loss, NULL));
    FY_TRY(fy_tape_grad(tape, w1, &g1));
    FY_TRY(fy_tape_grad(tape, w2, &g2));
    FY_TRY(fy_axpy(w1, -0.1, g1));
    FY_TRY(fy_axpy(w2, -0.1, g2));
    fy_scope_end(scope, 0, NULL);
    return FY_STATUS_OK;
}

TS_DEVICE_TEST(a_network_trains_called_and_replayed)
{
    fy_tensor_t *rng, *x, *target, *w[2][2], *place[2];
    fy_tape_t *tape[2];
    fy_graph_t *graph;
    float results[2][2][32];
    ts_ok(fy_rng_create(ctx->device, 5, &rng));
    ts_ok(fy_randn(rng, FY_DTYPE_F32, FY_DIMS(16, 4), 0, 1, &x));
    ts_ok(fy_randn(rng, FY_DTYPE_F32, FY_DIMS(16, 1), 0, 1, &target));
    for (int way = 0; way < 2; way++) {
        ts_ok(fy_full(ctx->device, FY_DTYPE_F32, FY_DIMS(4, 8), 0.25, &w[way][0]));
        ts_ok(fy_full(ctx->device, FY_DTYPE_F32, FY_DIMS(8, 1), 0.5, &w[way][1]));
        ts_ok(fy_tape_create(&tape[way]));
        for (int i = 0; i < 2; i++) { /* gradients are outside the graph */
            ts_ok(fy_zeros(ctx->device, FY_DTYPE_F32, i ? 2 : 2,
                           i ? (int64_t[]){ 8, 1 } : (int64_t[]){ 4, 8 }, &place[i]));
            ts_ok(fy_tape_watch(tape[way], w[way][i], place[i]));
        }
    }
    for (int i = 0; i < 10; i++) ts_ok(train(tape[0], x, target, w[0][0], w[0][1]));
    ts_ok(fy_graph_begin(ctx->device));
    ts_ok(train(tape[1], x, target, w[1][0], w[1][1]));
    ts_ok(fy_graph_end(&graph));
    for (int i = 0; i < 10; i++) ts_ok(fy_graph_replay(graph, NULL));
    for (int way = 0; way < 2; way++) {
        ts_read(w[way][0], results[way][0], 32 * sizeof(float));
        ts_read(w[way][1], results[way][1], 8 * sizeof(float));
    }
    assert_memory_equal(results[0][0], results[1][0], 32 * sizeof(float));
    assert_memory_equal(results[0][1], results[1][1], 8 * sizeof(float));
    assert_true(fabsf(results[0][0][0] - 0.25f) > 1e-4f);
}

/* The same network: in the steady state a step allocates nothing, waits for nothing and transfers
 * nothing, called or replayed. */
TS_DEVICE_TEST(a_steady_step_makes_only_light_requests)
{
    enum { WARM = 5, STEPS = 20 };
    fy_graph_t *graph = NULL;
    fy_memory_stats_t memory[2] = { FY_MEMORY_STATS_INIT, FY_MEMORY_STATS_INIT };
    fy_tensor_t *x = ts_full(ctx->device, FY_DIMS(16, 4), 0.5),
                *target = ts_full(ctx->device, FY_DIMS(16, 1), 0.5),
                *w1 = ts_full(ctx->device, FY_DIMS(4, 8), 0.25),
                *w2 = ts_full(ctx->device, FY_DIMS(8, 1), 0.5);
    fy_tape_t *tape = ts_tape(w1, w2);
    for (int replayed = 0; replayed < 2; replayed++) {
        if (replayed) {
            ts_ok(fy_graph_begin(ctx->device));
            ts_ok(train(tape, x, target, w1, w2));
            ts_ok(fy_graph_end(&graph));
        }
        fy_ledger_totals_t before = { 0 }, after;
        for (int i = 0; i < WARM + STEPS; i++) {
            if (i == WARM) {
                before = ts_ledger(NULL);
                ts_ok(fy_memory_query(ctx->device, NULL, &memory[0]));
            }
            ts_ok(replayed ? fy_graph_replay(graph, NULL) : train(tape, x, target, w1, w2));
        }
        after = ts_ledger(NULL);
        ts_ok(fy_memory_query(ctx->device, NULL, &memory[1]));
        assert_int_equal(after.device_allocs - before.device_allocs, 0);
        assert_int_equal(after.syncs - before.syncs, 0);
        assert_int_equal(after.upload.count - before.upload.count, 0);
        assert_int_equal(after.download.count - before.download.count, 0);
        assert_true(after.requests > before.requests &&
                    (after.requests - before.requests) % STEPS == 0);
        assert_int_equal(memory[1].live, memory[0].live);
        assert_int_equal(memory[1].reserved, memory[0].reserved);
    }
}

/* NULL and destroyed handles are refused as without a tape, before the tape uses them. */
TS_DEVICE_TEST(bad_operands_are_refused_as_without_a_tape)
{
    fy_tensor_t *w = values(ctx, 2, (float[]){ 1, 2 }), *gone = values(ctx, 2, (float[]){ 3, 4 }),
                *y;
    fy_tape_t *tape = ts_record(w, NULL);
    fy_tensor_destroy(gone);
    ts_fails_with(fy_mul(w, NULL, &y), INVALID_ARGUMENT, "src1 is NULL");
    ts_fails(fy_concat(2, (fy_tensor_t *[]){ w, NULL }, 0, &y), INVALID_ARGUMENT);
#ifndef __SANITIZE_ADDRESS__ /* ASan itself detects the use of a destroyed handle */
    ts_fails_with(fy_mul(w, gone, &y), INVALID_ARGUMENT, "src1 was destroyed");
    ts_fails(fy_axpy(gone, 1, w), INVALID_ARGUMENT);
#endif
    assert_int_equal(info_of(tape).calls, 0);
    assert_int_equal(info_of(tape).saved, 0);
}

/* Bytes of given results are freed with the last handle that can read them, once the backward began
 * or another call writes to a given result. The tape keeps one gradient. */
TS_DEVICE_TEST(bytes_of_given_results_are_freed_with_their_handles)
{
    enum { N = 1 << 16 };
    fy_tensor_t *w, *grad, *buffer, *loss = NULL;
    ts_ok(fy_zeros(ctx->device, FY_DTYPE_F32, FY_DIMS(N), &w));
    ts_ok(fy_zeros(ctx->device, FY_DTYPE_F32, FY_DIMS(N), &grad));
    fy_tape_t *tape = ts_record(w, grad);
    const uint64_t before = ts_live(ctx->device);
    for (int i = 0; i < 3; i++) {
        ts_ok(fy_zeros(ctx->device, FY_DTYPE_F32, FY_DIMS(N), &buffer));
        ts_ok(fy_copy(buffer, w));
        assert_true(ts_live(ctx->device) - before < 2 * N * sizeof(float));
        loss = sum_of(buffer);
        fy_tensor_destroy(buffer);
    }
    ts_ok(fy_tape_backward(tape, loss, NULL));
    assert_true(ts_live(ctx->device) - before < 2 * N * sizeof(float));
}
