/* fy_tape_offload: the same gradient with fewer bytes on the device; its traffic is in the scopes
 * "offload"; a refused call leaves the record unchanged. On the host nothing happens. Not here:
 * random programs and failures (tests/property/test_recompute.c). */
#include "tests/support/harness.h"

enum { N = 64, DEPTH = 6 };

static fy_status_t forward(fy_tensor_t *x, int offloads, fy_tensor_t **out_loss)
{
    fy_tensor_t *y = x, *next;
    for (int i = 0; i < DEPTH; i++) {
        FY_TRY(fy_sin(y, &next));
        if (y != x) fy_tensor_destroy(y);
        y = next;
        if (offloads && i % 2) FY_TRY(fy_tape_offload());
    }
    FY_TRY(fy_mean(y, FY_ALL_AXES, 0, out_loss));
    fy_tensor_destroy(y);
    return FY_STATUS_OK;
}

static void grad_of(fy_tape_t *tape, fy_tensor_t *x, const fy_tensor_t *loss, float *out)
{
    ts_ok(fy_tape_backward(tape, loss, NULL));
    ts_read(ts_grad(tape, x), out, N * N * sizeof *out);
}

TS_DEVICE_TEST(the_same_gradient_with_fewer_bytes)
{
    static float want[N * N], got[N * N];
    const uint64_t one = N * N * sizeof(float);
    fy_tensor_t *x = ts_iota(ctx->device, FY_DIMS(N, N), 0), *loss;
    fy_tape_info_t info = FY_TAPE_INFO_INIT;
    fy_tape_t *tape = ts_record(x, NULL);
    ts_ok(forward(x, 0, &loss));
    const uint64_t plain = ts_live(ctx->device);
    grad_of(tape, x, loss, want);

    const fy_ledger_totals_t before = ts_ledger(NULL);
    ts_ok(fy_tape_begin(tape));
    ts_ok(forward(x, 1, &loss));
    ts_ok(fy_device_wait(ctx->device, FY_FOREVER));
    const uint64_t live = ts_live(ctx->device);
    fy_ledger_totals_t after = ts_ledger(NULL);
    ts_ok(fy_tape_query(tape, &info));
    if (ctx->is_host) {
        assert_int_equal(info.saved, DEPTH);
    } else {
        /* the first gradient and loss are there, too */
        assert_in_range(plain + one - live, (DEPTH - 1) * one - 256, DEPTH * one);
        assert_int_equal(info.saved, 1); /* x */
        assert_int_equal(after.download.nbytes - before.download.nbytes, (DEPTH - 1) * one);
        assert_int_equal(ts_ledger("test/offload").download.count, DEPTH - 1);
    }
    grad_of(tape, x, loss, got);
    assert_memory_equal(got, want, sizeof got);
    after = ts_ledger(NULL);
    if (!ctx->is_host)
        assert_int_equal(after.upload.nbytes - before.upload.nbytes, (DEPTH - 1) * one);

    ts_ok(fy_tape_begin(tape));
    ts_ok(forward(x, 1, &loss));
    ts_ok(fy_tape_begin(tape)); /* drops what is on the host */
    ts_ok(forward(x, 1, &loss));
    fy_tape_destroy(tape);
    ts_ok(fy_tape_offload()); /* no tape: nothing */
}

/* A view of a watched tensor, and the cast of one that the tape keeps, hold their bytes anyway. */
TS_DEVICE_TEST(watched_bytes_stay)
{
    static float want[N * N], got[N * N];
    if (ctx->is_host) return; /* nothing crosses */
    fy_tensor_t *x = ts_iota(ctx->device, FY_DIMS(N, N), 0),
                *w = ts_iota(ctx->device, FY_DIMS(N, N), 1), *turned, *y, *z, *loss;
    ts_ok(fy_affine(x, 1e-4, 0, &x));
    ts_ok(fy_affine(w, 1e-4, 0, &w));
    fy_tape_t *tape = ts_tape(w, x); /* so that the product keeps both */
    for (int is_low = 0; is_low < 2; is_low++) {
        for (int offloads = 0; offloads < 2; offloads++) {
            const fy_scope_t scope = fy_scope_begin("watched");
            const uint64_t before = ts_ledger(NULL).download.nbytes;
            if (is_low) ts_ok(fy_autocast_set(FY_DTYPE_BF16));
            ts_ok(fy_tape_begin(tape));
            ts_ok(fy_transpose(w, NULL, &turned));
            ts_ok(fy_matmul(x, is_low ? w : turned, &y));
            ts_ok(fy_sin(y, &z)); /* keeps y */
            if (offloads) ts_ok(fy_tape_offload());
            ts_ok(fy_mean(z, FY_ALL_AXES, 0, &loss));
            /* y alone */
            assert_int_equal(ts_ledger(NULL).download.nbytes - before,
                             offloads ? N * N * (is_low ? 2 : 4) : 0);
            grad_of(tape, w, loss, offloads ? got : want);
            fy_scope_end(scope, 0, NULL);
        }
        assert_memory_equal(got, want, sizeof got);
    }
}

TS_DEVICE_TEST(refusals_leave_the_record)
{
    static float want[N * N], got[N * N];
    fy_tensor_t *x = ts_iota(ctx->device, FY_DIMS(N, N), 0), *loss;
    const fy_guard_options_t light = FY_GUARD_LIGHT_ONLY;
    if (ctx->is_host) return; /* nothing crosses */
    fy_tape_t *tape = ts_record(x, NULL);
    ts_ok(forward(x, 0, &loss));
    grad_of(tape, x, loss, want);
    ts_ok(fy_tape_begin(tape));
    ts_ok(forward(x, 0, &loss));
    const fy_scope_t guarded = fy_scope_begin("guarded");
    ts_ok(fy_scope_guard(&light));
    ts_fails(fy_tape_offload(), REFUSED_BY_GUARD);
    fy_scope_end(guarded, 0, NULL);
    grad_of(tape, x, loss, got);
    assert_memory_equal(got, want, sizeof got);

    ts_ok(fy_tape_begin(tape));
    ts_ok(forward(x, 1, &loss));
    const fy_scope_t back = fy_scope_begin("back");
    ts_ok(fy_scope_guard(&light));
    ts_fails(fy_tape_backward(tape, loss, NULL), REFUSED_BY_GUARD);
    fy_scope_end(back, 0, NULL);
    ts_ok(fy_tape_begin(tape));
    ts_ok(forward(x, 1, &loss));
    grad_of(tape, x, loss, got);
    assert_memory_equal(got, want, sizeof got);

    fy_graph_t *graph;
    ts_ok(fy_graph_begin(ctx->device));
    ts_ok(fy_tape_begin(tape));
    ts_ok(fy_sin(x, &loss));
    ts_fails_with(fy_tape_offload(), UNSUPPORTED, "records a graph");
    ts_ok(fy_tape_begin(NULL));
    ts_ok(fy_graph_end(&graph));
}
