/* Writes to bytes that a tape knows, on every device: in place, through other handles, in graphs.
 * Not here: the tape's other promises (test_tape.c). */
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

/* copy and axpy write in place: the value moves to their destination. */
TS_DEVICE_TEST(writing_in_place_is_recorded)
{
    fy_tensor_t *w = ts_iota(ctx->device, FY_DIMS(2, 2), 1), *t, *dense, *y;
    fy_tape_t *tape = ts_record(w, NULL);
    ts_ok(fy_transpose(w, NULL, &t));
    ts_ok(fy_empty(ctx->device, FY_DTYPE_F32, FY_DIMS(2, 2), &dense));
    ts_ok(fy_copy(dense, t));    /* w^T */
    ts_ok(fy_axpy(dense, 3, w)); /* w^T + 3 w */
    ts_ok(fy_mul(dense, dense, &y));
    ts_ok(fy_fill(dense, 0)); /* a constant from here on, but mul needs the earlier value */
    ts_fails(fy_tape_backward(tape, sum_of(y), NULL), BUSY);
    ts_ok(fy_tape_begin(tape));
    ts_ok(fy_copy(dense, w));
    ts_ok(fy_axpy(dense, 3, w));
    ts_ok(fy_tape_backward(tape, sum_of(dense), NULL));
    ts_expect_f32(ts_grad(tape, w), (float[]){ 4, 4, 4, 4 }, 4);
    ts_ok(fy_reshape(dense, FY_DIMS(4), &y));
    ts_ok(fy_tape_begin(tape));
    ts_ok(fy_copy(dense, w));
    ts_ok(fy_fill(y, 0)); /* what axpy adds to is no longer w */
    ts_fails(fy_axpy(dense, 3, w), BUSY);
    ts_ok(fy_copy(dense, w));
    fy_tensor_t *norm = ts_full(ctx->device, 0, NULL, 5); /* an op without a rule, in place */
    ts_fails_with(fy_clip_by_norm(dense, norm, 1), UNSUPPORTED, "no gradient rule");
    ts_ok(fy_tape_backward(tape, sum_of(dense), NULL));
    ts_expect_f32(ts_grad(tape, w), (float[]){ 1, 1, 1, 1 }, 4);
}

typedef struct buffer {
    fy_tensor_t *all, *part, *flat; /* [2, 3]; its second row and its elements, made before */
} buffer_t;

static fy_status_t copy_to_view(const buffer_t *b, fy_tensor_t *w) { return fy_copy(b->part, w); }
static fy_status_t copy_to_reshaped(const buffer_t *b, fy_tensor_t *w)
{
    fy_tensor_t *row;
    FY_TRY(fy_slice(b->flat, 0, 2, 5, &row));
    return fy_copy(row, w);
}
static fy_status_t add_to_view(const buffer_t *b, fy_tensor_t *w) { return fy_axpy(b->part, 2, w); }
static fy_status_t give_view(const buffer_t *b, fy_tensor_t *w)
{
    fy_tensor_t *dst = b->part;
    return fy_op_call(FY_OP_MUL, 2, (fy_tensor_t *[]){ w, w }, NULL, 0, 1, &dst);
}
static fy_status_t write_rows(const buffer_t *b, fy_tensor_t *w)
{
    for (int64_t i = 0; i < 2; i++) {
        fy_tensor_t *row;
        FY_TRY(fy_slice(b->flat, 0, 3 * i, 3 * i + 3, &row));
        FY_TRY(fy_copy(row, w));
    }
    return FY_STATUS_OK;
}
static fy_status_t write_then_part_of_it(const buffer_t *b, fy_tensor_t *w)
{
    fy_tensor_t *part;
    FY_TRY(fy_copy(b->part, w));
    FY_TRY(fy_slice(b->flat, 0, 3, 5, &part));
    return fy_fill(part, 0); /* an element has the gradient still */
}

/* Bytes with a gradient read through a handle that does not know of it: never a constant. */
TS_DEVICE_TEST(values_written_through_another_handle_are_refused)
{
    fy_status_t (*const ways[])(const buffer_t *, fy_tensor_t *) = {
        copy_to_view, copy_to_reshaped, add_to_view, give_view, write_rows, write_then_part_of_it
    };
    fy_tensor_t *w = values(ctx, 3, (float[]){ 1, 2, 3 }), *y, *view;
    buffer_t b;
    ts_ok(fy_zeros(ctx->device, FY_DTYPE_F32, FY_DIMS(2, 3), &b.all));
    ts_ok(fy_reshape(b.all, FY_DIMS(6), &b.flat));
    ts_ok(fy_slice(b.flat, 0, 3, 6, &b.part));
    fy_tape_t *tape = ts_record(w, NULL);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        for (int in_graph = 0; in_graph < 2; in_graph++) {
            fy_graph_t *graph;
            if (in_graph) ts_ok(fy_graph_begin(ctx->device));
            ts_ok(fy_tape_begin(tape));
            ts_ok(ways[i](&b, w));
            ts_ok(fy_slice(b.all, 0, 1, 2, &view)); /* of a handle that does not know */
            ts_fails_with(fy_mul(b.all, b.all, &y), BUSY, "through another handle", "fy_concat");
            ts_fails(fy_sum(view, FY_ALL_AXES, 0, &y), BUSY);
            ts_fails(fy_axpy(b.all, 1, b.all), BUSY); /* what it adds to has a gradient */
            if (in_graph) ts_fails(fy_graph_end(&graph), BUSY);
        }
    ts_ok(fy_tape_begin(tape)); /* a new record, which has not written there */
    ts_ok(fy_mul(b.part, w, &y));
    ts_ok(fy_tape_backward(tape, sum_of(y), NULL));
    /* a handle that was made before all of its bytes were written */
    ts_ok(fy_tape_begin(tape));
    ts_ok(fy_slice(b.part, 0, 0, 2, &view));
    ts_ok(fy_copy(b.part, w));
    ts_fails(fy_mul(view, view, &y), BUSY);
    ts_ok(fy_slice(b.part, 0, 0, 2, &view)); /* and one made since */
    ts_ok(fy_mul(view, view, &y));
    ts_ok(fy_tape_backward(tape, sum_of(y), NULL));
    ts_expect_f32(ts_grad(tape, w), (float[]){ 2, 4, 0 }, 3);
}

/* The same for a watched tensor whose bytes are those of another one's results now, and for
 * uploads, for which there is no rule. */
TS_DEVICE_TEST(watched_and_uploaded_bytes_written_through_another_handle_are_refused)
{
    fy_tensor_t *w = values(ctx, 2, (float[]){ 1, 2 }), *x = values(ctx, 2, (float[]){ 3, 4 }),
                *other, *part, *y;
    ts_ok(fy_reshape(w, FY_DIMS(2), &other));
    fy_tape_t *tape = ts_record(w, x);
    ts_ok(fy_copy(other, x));
    ts_fails_with(fy_mul(w, w, &y), BUSY, "through another handle");
    ts_fails(fy_slice(w, 0, 0, 1, &part), BUSY);
    if (ctx->is_host) ts_fails(fy_tensor_upload(w, ctx->device, NULL, &y), UNSUPPORTED);
    ts_ok(fy_zeros(ctx->device, FY_DTYPE_F32, FY_DIMS(4), &other));
    ts_ok(fy_slice(other, 0, 0, 2, &part));
    ts_ok(fy_copy(part, x));
    if (ctx->is_host) ts_fails(fy_tensor_upload(other, ctx->device, NULL, &y), BUSY);
    ts_ok(fy_tape_begin(tape));
    ts_ok(fy_copy(part, x)); /* not of w */
    ts_ok(fy_mul(w, w, &y));
    ts_ok(fy_tape_backward(tape, sum_of(y), NULL));
    ts_expect_f32(ts_grad(tape, w), (float[]){ 6, 8 }, 2);
}

/* A write to some bytes leaves those in front of it, behind it, and between two of them alone. */
TS_DEVICE_TEST(bytes_between_written_parts_are_constants)
{
    enum { N = 20, APART = 14 };
    fy_tensor_t *all = ts_full(ctx->device, FY_DIMS(N), 1), *dst, *view, *y,
                *w = values(ctx, 1, (float[]){ 2 });
    ts_record(w, NULL);
    for (int64_t i = N - 2; i >= 0; i -= 2)
        for (int again = 0; again < 10; again++) {
            ts_ok(fy_slice(all, 0, N - 2 - i, N - 1 - i, &dst));
            ts_ok(fy_copy(dst, w));
        }
    for (int64_t i = 0; i < N; i++) { /* the last written parts share a range */
        ts_ok(fy_slice(all, 0, i, i + 1, &view));
        const fy_status_t status = fy_mul(view, w, &y);
        if (i % 2 == 0) assert_int_equal(status, FY_STATUS_BUSY);
        if (i % 2 && i < APART) ts_ok(status);
    }
    ts_fails(fy_mul(all, w, &y), BUSY);
    ts_ok(fy_fill(all, 1)); /* all are constants */
    ts_ok(fy_mul(all, w, &y));
    /* a constant that was made between two writes */
    ts_ok(fy_slice(all, 0, 0, 1, &dst));
    ts_ok(fy_copy(dst, w));
    fy_scope_t pause = fy_scope_begin("pause");
    ts_ok(fy_tape_begin(NULL));
    ts_ok(fy_slice(all, 0, 0, 2, &view));
    fy_scope_end(pause, 1, &view);
    ts_ok(fy_slice(all, 0, 4, 5, &dst));
    ts_ok(fy_copy(dst, w));
    ts_ok(fy_mul(view, w, &y));
    ts_ok(fy_slice(all, 0, 1, 2, &dst));
    ts_ok(fy_copy(dst, w));
    ts_fails(fy_mul(view, w, &y), BUSY);
}

/* An upload before the first use in a record is the tensor's value. Later the bytes are no longer
 * those that the record used: a gradient is that of the recorded values, or refused. */
TS_DEVICE_TEST(uploads_into_tensors_of_a_record)
{
    fy_tensor_t *w = values(ctx, 2, (float[]){ 1, 2 }), *y, *z,
                *host = ts_f32(fy_device_host(), FY_DIMS(2), (float[]){ 5, 7 });
    fy_tape_t *tape = ts_record(w, NULL);
    ts_ok(fy_tensor_upload_into(w, host, NULL, NULL));
    ts_ok(fy_mul(w, w, &y));
    ts_ok(fy_tape_backward(tape, sum_of(y), NULL));
    ts_expect_f32(ts_grad(tape, w), (float[]){ 10, 14 }, 2);
    for (int is_saved = 0; is_saved < 2; is_saved++) {
        ts_ok(fy_fill(w, 3));
        ts_ok(fy_tape_begin(tape));
        ts_ok(is_saved ? fy_mul(w, w, &y) : fy_add(w, w, &y));
        ts_ok(fy_tensor_upload_into(w, host, NULL, NULL));
        ts_fails_with(fy_mul(w, w, &z), BUSY, "written since the tape saw them first");
        if (is_saved) {
            ts_fails_with(fy_tape_backward(tape, sum_of(y), NULL), BUSY, "mul needs");
            continue;
        }
        ts_ok(fy_tape_backward(tape, sum_of(y), NULL));
        ts_expect_f32(ts_grad(tape, w), (float[]){ 2, 2 }, 2);
    }
    ts_ok(fy_tape_begin(tape));
    ts_ok(fy_mul(w, w, &y));
    ts_ok(fy_tensor_upload_into(y, host, NULL, NULL)); /* a result */
    ts_fails_with(fy_add(y, w, &z), BUSY, "written since the tape saw them first");
}

/* Constants, although their bytes were written with a gradient before. */
TS_DEVICE_TEST(bytes_that_are_constants_again_are_read)
{
    fy_tensor_t *w = values(ctx, 2, (float[]){ 1, 2 }), *all, *part, *apart, *y, *z;
    ts_ok(fy_zeros(ctx->device, FY_DTYPE_F32, FY_DIMS(4), &all));
    ts_ok(fy_slice(all, 0, 2, 4, &part));
    ts_ok(fy_slice(all, 0, 0, 2, &apart));
    fy_tape_t *tape = ts_record(w, NULL);
    ts_ok(fy_copy(part, w));
    ts_ok(fy_mul(apart, w, &y)); /* other bytes of the storage */
    fy_scope_t pause = fy_scope_begin("pause");
    ts_ok(fy_tape_begin(NULL));
    ts_ok(fy_slice(part, 0, 0, 2, &z)); /* meant to be a constant */
    fy_scope_end(pause, 1, &z);
    ts_ok(fy_add(z, w, &y));
    ts_ok(fy_copy(part, w));
    ts_fails(fy_mul(z, w, &z), BUSY); /* its bytes were written again */
    ts_ok(fy_fill(all, 3));
    ts_fails(fy_mul(part, w, &z), BUSY); /* what this handle stands for is no longer there */
    ts_ok(fy_slice(all, 0, 2, 4, &part));
    ts_ok(fy_mul(part, w, &z));
    ts_ok(fy_add(y, z, &y));
    ts_ok(fy_tape_backward(tape, sum_of(y), NULL));
    ts_expect_f32(ts_grad(tape, w), (float[]){ 4, 4 }, 2);
}

/* A view of what a graph's calls wrote is not one of what those of the next graph write. */
TS_DEVICE_TEST(views_of_one_graph_are_no_constants_of_the_next)
{
    fy_tensor_t *w = values(ctx, 2, (float[]){ 1, 2 }), *made[2], *y;
    fy_tape_t *tape = ts_record(w, NULL);
    fy_graph_t *graph;
    ts_ok(fy_graph_begin(ctx->device));
    ts_ok(fy_tape_begin(tape));
    fy_scope_t pause = fy_scope_begin("pause");
    ts_ok(fy_tape_begin(NULL));
    ts_ok(fy_mul(w, w, &made[0]));
    ts_ok(fy_slice(made[0], 0, 0, 1, &made[1]));
    fy_scope_end(pause, 2, made);
    ts_ok(fy_graph_end(&graph));
    pause = fy_scope_begin("pause");
    ts_ok(fy_tape_begin(NULL));
    ts_ok(fy_graph_replay(graph, NULL));
    fy_scope_end(pause, 0, NULL);
    ts_ok(fy_graph_begin(ctx->device));
    ts_ok(fy_tape_begin(tape));
    ts_ok(fy_copy(made[0], w));
    ts_fails(fy_mul(made[1], made[1], &y), BUSY);
    ts_fails(fy_graph_end(&graph), BUSY);
}

/* A recording has advanced no version yet: its writes are looked at, too. */
TS_DEVICE_TEST(overwritten_operands_of_a_graph_are_named)
{
    fy_tensor_t *w = values(ctx, 2, (float[]){ 1, 2 }), *x = values(ctx, 2, (float[]){ 1, 1 }), *y,
                *part;
    fy_graph_t *graph;
    fy_tape_t *tape = ts_record(w, NULL);
    ts_ok(fy_graph_begin(ctx->device));
    ts_ok(fy_tape_begin(tape));
    ts_ok(fy_mul(w, x, &y));
    ts_ok(fy_fill(x, 7));
    ts_fails_with(fy_tape_backward(tape, sum_of(y), NULL), BUSY, "mul needs");
    ts_ok(fy_tape_begin(tape));
    ts_ok(fy_mul(w, w, &y));
    ts_ok(fy_slice(y, 0, 0, 1, &part));
    ts_ok(fy_fill(part, 0));
    ts_fails_with(fy_add(y, y, &part), BUSY, "version");
    ts_fails(fy_graph_end(&graph), BUSY);
}
