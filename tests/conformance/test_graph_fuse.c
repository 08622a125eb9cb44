/* The chains and dropped calls of fy_graph_end, and the calls that it must leave alone. Bits
 * of random programs: tests/property/test_fused.c. */
#include "tests/support/harness.h"

typedef struct lines {
    int nchains, ncalls, ndropped;
    char text[2000];
} lines_t;

static void add_line(void *user, const char *key, const char *value)
{
    lines_t *lines = user;
    lines->nchains += strcmp(key, "chain") == 0;
    lines->ncalls += strcmp(key, "call") == 0;
    lines->ndropped += strcmp(key, "dropped") == 0;
    const size_t at = strlen(lines->text);
    snprintf(lines->text + at, sizeof lines->text - at, "%s %s\n", key, value);
}

static lines_t explain(const fy_graph_t *graph)
{
    lines_t lines = { 0, 0, 0, "" };
    ts_ok(fy_graph_explain(graph, add_line, &lines));
    return lines;
}

static void expect_line(const lines_t *lines, const char *part)
{
    if (strstr(lines->text, part)) return;
    print_error("no '%s' in\n%s", part, lines->text);
    fail();
}

/* The kernel of cuda runs no reductions, and computes in f32 only. */
static int has_all_ops(const ts_ctx_t *ctx) { return ctx->is_host || ctx->is_sim; }

TS_DEVICE_TEST(neighbours_become_a_chain)
{
    fy_tensor_t *x = ts_iota(ctx->device, FY_DIMS(2, 3), -2), *y, *kept,
                *row = ts_iota(ctx->device, FY_DIMS(3), 1);
    ts_ok(fy_zeros(ctx->device, FY_DTYPE_F32, FY_DIMS(2, 3), &y));
    ts_ok(fy_graph_begin(ctx->device));
    fy_scope_t scope = fy_scope_begin("inner");
    fy_tensor_t *a, *b, *c, *unread;
    ts_ok(fy_add(x, row, &a)); /* -1 1 3 2 4 6 */
    ts_ok(fy_relu(a, &b));     /* 0 1 3 2 4 6 */
    ts_ok(fy_exp(b, &unread));
    ts_ok(fy_mul(b, x, &c)); /* 0 -1 0 2 8 18 */
    ts_ok(fy_axpy(y, 1, c));
    ts_ok(fy_sum(y, FY_ALL_AXES, 0, &kept));
    fy_tensor_keep(kept);
    fy_scope_end(scope, 0, NULL);
    fy_graph_t *graph = ts_graph_end();
    const fy_graph_info_t info = ts_graph_info(graph);
    const lines_t lines = explain(graph);
    assert_int_equal(info.requests, 6);
    assert_int_equal(info.dropped_calls, 1);
    assert_int_equal(lines.ndropped, 1);
    expect_line(&lines, "dropped 3 exp: nothing reads its results");
    assert_int_equal(info.chains, 1);
    if (has_all_ops(ctx)) {
        assert_int_equal(info.fused_calls, 5);
        expect_line(&lines, "chain 1 add, 2 relu, 4 mul, 5 axpy, 6 sum: 6 elements, 88 bytes "
                            "instead of 280");
    } else {
        assert_int_equal(info.fused_calls, 4);
        expect_line(&lines, "chain 1 add, 2 relu, 4 mul, 5 axpy: 6 elements, 84 bytes instead of ");
        expect_line(&lines,
                    "call 6 sum: a chain of this device would add its rows in another order");
    }
    ts_ok(fy_graph_replay(graph, NULL));
    ts_expect_f32(y, (float[]){ 0, -1, 0, 2, 8, 18 }, 6);
    ts_ok(fy_graph_replay(graph, NULL));
    ts_expect_f32(y, (float[]){ 0, -2, 0, 4, 16, 36 }, 6);
    ts_expect_f32(kept, (float[]){ 54 }, 1);
    fy_tensor_destroy(kept);
}

/* Rows of a result of the chain; what else is reduced runs alone, and says why. */
TS_DEVICE_TEST(a_reduction_of_rows_ends_a_chain)
{
    enum { N = 3000 };
    fy_tensor_t *x = ts_iota(ctx->device, FY_DIMS(2, 3), -2),
                *wide = ts_full(ctx->device, FY_DIMS(N), 1), *rows, *most, *columns, *alone, *all;
    ts_ok(fy_graph_begin(ctx->device));
    fy_scope_t scope = fy_scope_begin("inner");
    fy_tensor_t *a, *b, *kept[5];
    ts_ok(fy_affine(x, 2, 0, &a)); /* -4 -2 0, 2 4 6 */
    ts_ok(fy_mean(a, FY_AXES(1), 0, &rows));
    ts_ok(fy_abs(x, &a)); /* 2 1 0, 1 2 3 */
    ts_ok(fy_max(a, FY_AXES(-1), 1, &most));
    ts_ok(fy_neg(a, &a));
    ts_ok(fy_sum(a, FY_AXES(0), 0, &columns));
    ts_ok(fy_sum(x, FY_AXES(1), 0, &alone));
    ts_ok(fy_neg(wide, &b));
    ts_ok(fy_sum(b, FY_ALL_AXES, 0, &all));
    kept[0] = rows, kept[1] = most, kept[2] = columns, kept[3] = alone, kept[4] = all;
    fy_scope_end(scope, 5, kept);
    fy_graph_t *graph = ts_graph_end();
    const lines_t lines = explain(graph);
    if (has_all_ops(ctx)) {
        expect_line(&lines, "chain 1 affine, 2 mean: 6 elements, 32 bytes instead of 80");
        expect_line(&lines, "chain 3 abs, 4 max");
        expect_line(&lines, "call 6 sum: it does not reduce rows of 2 to 1024 neighbours");
        expect_line(&lines, "call 7 sum: no chain before it makes the rows that it reduces");
        expect_line(&lines, "call 9 sum: it does not reduce rows of 2 to 1024 neighbours");
    }
    for (int i = 0; i < 2; i++) {
        ts_ok(fy_graph_replay(graph, NULL));
        ts_expect_f32(rows, (float[]){ -2, 4 }, 2);
        ts_expect_f32(most, (float[]){ 2, 3 }, 2);
        ts_expect_f32(columns, (float[]){ -3, -3, -3 }, 3);
        ts_expect_f32(alone, (float[]){ -3, 6 }, 2);
        ts_expect_f32(all, (float[]){ -N }, 1);
    }
}

/* Intermediate results of a chain need no memory: segments that nothing else uses are released. */
TS_DEVICE_TEST(chains_need_less_memory)
{
    enum { N = 1 << 20 }; /* 4 MiB a tensor: each has a segment */
    fy_tensor_t *y = NULL, *wide = ts_full(ctx->device, FY_DIMS(N), 0);
    const uint64_t live = ts_live(ctx->device);
    ts_ok(fy_graph_begin(ctx->device));
    fy_scope_t scope = fy_scope_begin("inner");
    fy_tensor_t *a, *b, *c;
    ts_ok(fy_affine(wide, 1, 2, &a));
    ts_ok(fy_neg(a, &b));
    ts_ok(fy_mul(a, b, &c));
    ts_ok(fy_add(c, a, &y));
    fy_scope_end(scope, 1, &y);
    fy_graph_t *graph = ts_graph_end();
    const fy_graph_info_t info = ts_graph_info(graph);
    assert_int_equal(info.recorded_pool_nbytes, 16 << 20);
    assert_int_equal(info.pool_nbytes, 4 << 20);
    if (!ctx->is_host) assert_int_equal(ts_live(ctx->device), live + info.pool_nbytes);
    for (int i = 0; i < 2; i++) {
        fy_tensor_t *last, *other;
        ts_ok(fy_graph_replay(graph, NULL));
        ts_ok(fy_full(ctx->device, FY_DTYPE_F32, FY_DIMS(N), 7, &other)); /* takes what is free */
        ts_ok(fy_slice(y, 0, N - 1, N, &last));
        ts_expect_f32(last, (float[]){ -2 }, 1);
        fy_tensor_destroy(last);
        fy_tensor_destroy(other);
    }
}

/* Recorded, `g` has the place of `v` and `w` that of `f`. But `v` and `w` are values of chains, and
 * `f` and `g` are needed one after the other: one place is enough. */
TS_DEVICE_TEST(tensors_between_chains_share_memory)
{
    enum { ROWS = 1 << 10, COLUMNS = 1 << 10 }; /* 4 MiB: each has a segment */
    const fy_reduce_attrs_t rows = { .axes = 1 };
    fy_tensor_t *sums[2], *x = ts_full(ctx->device, FY_DIMS(ROWS, COLUMNS), 0.5);
    for (int k = 0; k < 2; k++)
        ts_ok(fy_zeros(ctx->device, FY_DTYPE_F32, FY_DIMS(COLUMNS), &sums[k]));
    ts_ok(fy_graph_begin(ctx->device));
    fy_scope_t scope = fy_scope_begin("inner");
    fy_tensor_t *v, *f, *w, *g;
    ts_ok(fy_affine(x, 1, 2, &v));
    ts_ok(fy_relu(v, &f));
    fy_tensor_destroy(v);
    ts_ok(fy_op_call(FY_OP_SUM, 1, &f, &rows, sizeof rows, 1, &sums[0]));
    fy_tensor_destroy(f);
    ts_ok(fy_neg(x, &w));
    ts_ok(fy_affine(w, 2, 0, &g));
    fy_tensor_destroy(w);
    ts_ok(fy_op_call(FY_OP_SUM, 1, &g, &rows, sizeof rows, 1, &sums[1]));
    fy_scope_end(scope, 0, NULL);
    fy_graph_t *graph = ts_graph_end();
    const fy_graph_info_t info = ts_graph_info(graph);
    assert_int_equal(info.chains, 2);
    assert_int_equal(info.recorded_pool_nbytes, 8 << 20);
    /* the sums of cuda have workspace, too */
    assert_int_equal(info.pool_nbytes, has_all_ops(ctx) ? 4 << 20 : 8 << 20);
    for (int i = 0; i < 2; i++) {
        ts_ok(fy_graph_replay(graph, NULL));
        fy_tensor_t *part[2], *other = ts_full(ctx->device, FY_DIMS(ROWS, COLUMNS), 7);
        for (int k = 0; k < 2; k++) ts_ok(fy_slice(sums[k], 0, COLUMNS - 1, COLUMNS, &part[k]));
        ts_expect_f32(part[0], (float[]){ 2.5f * ROWS }, 1);
        ts_expect_f32(part[1], (float[]){ -1.0f * ROWS }, 1);
        fy_tensor_destroy(part[0]);
        fy_tensor_destroy(part[1]);
        fy_tensor_destroy(other);
    }
}

/* A handle at the end of the recording: the owner may read the tensor after each replay. */
TS_DEVICE_TEST(tensors_with_handles_are_written)
{
    fy_tensor_t *x = ts_iota(ctx->device, FY_DIMS(4), 1), *a, *b, *unread;
    ts_ok(fy_graph_begin(ctx->device));
    ts_ok(fy_neg(x, &a));
    ts_ok(fy_mul(a, x, &b));
    ts_ok(fy_affine(x, 3, 0, &unread));
    fy_graph_t *graph = ts_graph_end();
    assert_int_equal(ts_graph_info(graph).dropped_calls, 0);
    ts_ok(fy_graph_replay(graph, NULL));
    ts_expect_f32(a, (float[]){ -1, -2, -3, -4 }, 4);
    ts_expect_f32(b, (float[]){ -1, -4, -9, -16 }, 4);
    ts_expect_f32(unread, (float[]){ 3, 6, 9, 12 }, 4);
    fy_tensor_destroy(a);
    ts_ok(fy_graph_replay(graph, NULL));
    ts_expect_f32(b, (float[]){ -1, -4, -9, -16 }, 4);
}

/* Views that overlap, but not element by element: blocks would read what a later call wrote. */
TS_DEVICE_TEST(overlaps_end_a_chain)
{
    fy_tensor_t *x = ts_iota(ctx->device, FY_DIMS(6), 1), *low, *high, *y;
    ts_ok(fy_slice(x, 0, 0, 5, &low));
    ts_ok(fy_slice(x, 0, 1, 6, &high));
    ts_ok(fy_graph_begin(ctx->device));
    ts_ok(fy_neg(low, &y));
    ts_ok(fy_axpy(high, 10, y)); /* x[i + 1] -= 10 x[i], of the x before */
    fy_graph_t *graph = ts_graph_end();
    assert_int_equal(ts_graph_info(graph).chains, 0);
    const lines_t lines = explain(graph);
    expect_line(&lines, "call 2 axpy: its operands overlap those of the calls before it");
    ts_ok(fy_graph_replay(graph, NULL));
    ts_expect_f32(x, (float[]){ 1, -8, -17, -26, -35, -44 }, 6);
}

/* Two storages with the same bytes. */
TS_DEVICE_TEST(wrapped_twice)
{
    static float data[5] = { 1, 2, 3, 4, 5 };
    fy_tensor_t *low, *high, *t;
    ts_ok(fy_tensor_wrap(ctx->device, FY_DTYPE_F32, FY_DIMS(4), data, NULL, NULL, &low));
    ts_ok(fy_tensor_wrap(ctx->device, FY_DTYPE_F32, FY_DIMS(4), data + 1, NULL, NULL, &high));
    ts_ok(fy_graph_begin(ctx->device));
    fy_scope_t scope = fy_scope_begin("inner");
    ts_ok(fy_affine(low, 1, 1, &t)); /* 2 3 4 5 */
    ts_ok(fy_copy(high, t));         /* 1 2 3 4 5 */
    ts_ok(fy_axpy(low, 1, low));
    fy_scope_end(scope, 0, NULL);
    fy_graph_t *graph = ts_graph_end();
    assert_int_equal(ts_graph_info(graph).chains, 0);
    ts_ok(fy_graph_replay(graph, NULL));
    assert_memory_equal(data, ((float[]){ 2, 4, 6, 8, 5 }), sizeof data);
}

/* Another number of elements, other dtypes, results in place, one op per reason. */
TS_DEVICE_TEST(calls_that_stay_alone)
{
    fy_tensor_t *x = ts_iota(ctx->device, FY_DIMS(4, 4), 1), *few, *a, *b, *s, *columns;
    ts_ok(fy_slice(x, 1, 0, 2, &columns)); /* a view with gaps */
    ts_ok(fy_zeros(ctx->device, FY_DTYPE_F32, FY_DIMS(3), &few));
    ts_ok(fy_graph_begin(ctx->device));
    ts_ok(fy_neg(x, &a));
    ts_ok(fy_neg(few, &b));
    ts_ok(fy_axpy(columns, 1, columns));
    ts_ok(fy_matmul(x, x, &s));
    ts_ok(fy_neg(s, &a));
    fy_graph_t *graph = ts_graph_end();
    const lines_t lines = explain(graph);
    assert_int_equal(lines.nchains, 0);
    assert_int_equal(lines.ncalls, 5);
    expect_line(&lines, "call 2 neg: the calls beside it have another number of elements");
    expect_line(&lines, "call 3 axpy: its result is a view with gaps");
    expect_line(&lines, "call 5 neg: no call beside it can join it");
}

/* An op that the device does not run in chains splits them: f64 and integers on cuda. */
TS_DEVICE_TEST(dtypes_that_split_a_chain)
{
    fy_tensor_t *x = ts_iota(ctx->device, FY_DIMS(2, 5), -3), *half, *flag, *whole, *y;
    ts_ok(fy_graph_begin(ctx->device));
    fy_scope_t scope = fy_scope_begin("inner");
    fy_tensor_t *a, *kept[4];
    ts_ok(fy_affine(x, 0.3, 0, &a));
    ts_ok(fy_cast(a, FY_DTYPE_F16, &half));
    ts_ok(fy_mul(half, half, &half));
    ts_ok(fy_gt(x, a, &flag));
    ts_ok(fy_cast(x, FY_DTYPE_I32, &whole));
    ts_ok(fy_neg(whole, &whole));
    ts_ok(fy_abs(x, &y));
    ts_ok(fy_where(flag, y, x, &y));
    kept[0] = half, kept[1] = flag, kept[2] = whole, kept[3] = y;
    fy_scope_end(scope, 4, kept);
    fy_graph_t *graph = ts_graph_end();
    const fy_graph_info_t info = ts_graph_info(graph);
    assert_int_equal(info.chains, has_all_ops(ctx) ? 1 : 2);
    assert_int_equal(info.fused_calls, has_all_ops(ctx) ? 8 : 6);
    ts_ok(fy_graph_replay(graph, NULL));
    for (int i = 0; i < 2; i++) ts_ok(fy_graph_replay(graph, NULL));
    uint16_t halves[10], want[10];
    fy_tensor_t *h;
    ts_ok(fy_affine(x, 0.3, 0, &a));
    ts_ok(fy_cast(a, FY_DTYPE_F16, &h));
    ts_ok(fy_mul(h, h, &h));
    ts_read(half, halves, sizeof halves);
    ts_read(h, want, sizeof want);
    assert_memory_equal(halves, want, sizeof want);
    ts_expect_f32(y, (float[]){ -3, -2, -1, 0, 1, 2, 3, 4, 5, 6 }, 10);
}

/* Bias, activation, dropout, residual: one chain, whose draws are those of the calls. cuda draws
 * apart, between two chains. */
TS_DEVICE_TEST(dropout_is_in_a_chain)
{
    enum { ROWS = 300, COLUMNS = 40 };
    fy_tensor_t *x = ts_iota(ctx->device, FY_DIMS(ROWS, COLUMNS), -9), *row, *y[2], *rng[2];
    static float values[2][ROWS * COLUMNS];
    int64_t states[2][2];
    ts_ok(fy_full(ctx->device, FY_DTYPE_F32, FY_DIMS(COLUMNS), 0.5, &row));
    for (int i = 0; i < 2; i++) {
        fy_tensor_t *a;
        ts_ok(fy_rng_create(ctx->device, 3, &rng[i]));
        if (i) ts_ok(fy_graph_begin(ctx->device));
        fy_scope_t scope = fy_scope_begin("inner");
        ts_ok(fy_add(x, row, &a));
        ts_ok(fy_relu(a, &a));
        ts_ok(fy_dropout(rng[i], a, 0.25, &a));
        ts_ok(fy_add(a, x, &a));
        ts_ok(fy_dropout(rng[i], a, 0.5, &a)); /* goes on where the first one ended */
        ts_ok(fy_neg(a, &y[i]));
        fy_scope_end(scope, 1, &y[i]);
    }
    fy_graph_t *graph = ts_graph_end();
    const lines_t lines = explain(graph);
    if (has_all_ops(ctx)) {
        assert_int_equal(ts_graph_info(graph).chains, 1);
        expect_line(&lines, "chain 1 add, 2 relu, 3 dropout, 4 add, 5 dropout, 6 neg: ");
    } else {
        expect_line(&lines, "chain 1 add, 2 relu: ");
        expect_line(&lines, "call 3 dropout: it draws numbers");
    }
    ts_ok(fy_graph_replay(graph, NULL));
    for (int i = 0; i < 2; i++) ts_read(y[i], values[i], sizeof values[i]);
    for (int i = 0; i < 2; i++) ts_read(rng[i], states[i], sizeof states[i]);
    assert_memory_equal(values[0], values[1], sizeof values[0]);
    assert_memory_equal(states[0], states[1], sizeof states[0]);
    ts_ok(fy_graph_replay(graph, NULL)); /* draws again */
    ts_read(y[1], values[1], sizeof values[1]);
    assert_memory_not_equal(values[0], values[1], sizeof values[0]);
}

/* A state that another call of the chain would read or write as elements ends the chain. */
TS_DEVICE_TEST(states_are_no_elements)
{
    fy_tensor_t *x = ts_iota(ctx->device, FY_DIMS(2), 1), *y, *rng, *seen;
    int64_t state[2], drawn[2];
    ts_ok(fy_rng_create(ctx->device, 3, &rng));
    ts_read(rng, state, sizeof state);
    ts_ok(fy_graph_begin(ctx->device));
    ts_ok(fy_dropout(rng, x, 0.5, &y)); /* two elements, as many as the state has */
    ts_ok(fy_add(rng, rng, &seen));
    fy_graph_t *graph = ts_graph_end();
    assert_int_equal(ts_graph_info(graph).chains, 0);
    ts_ok(fy_graph_replay(graph, NULL));
    ts_read(rng, state, sizeof state);
    ts_read(seen, drawn, sizeof drawn);
    assert_true(drawn[0] == 2 * state[0] && drawn[1] == 2 * state[1] && state[1] > 0);
}

TS_DEVICE_TEST(the_option_turns_it_off)
{
    fy_device_t *device = ts_open_with(ctx, "fuse=off");
    fy_scope_t scope = fy_scope_begin("off");
    fy_tensor_t *x = ts_iota(device, FY_DIMS(4), 1), *y, *t;
    ts_ok(fy_graph_begin(device));
    ts_ok(fy_neg(x, &t));
    ts_ok(fy_neg(t, &y));
    fy_graph_t *graph = ts_graph_end();
    assert_int_equal(ts_graph_info(graph).chains, 0);
    const lines_t lines = explain(graph);
    expect_line(&lines, "call 1 neg: fuse=off");
    ts_ok(fy_graph_replay(graph, NULL));
    ts_expect_f32(y, (float[]){ 1, 2, 3, 4 }, 4);
    fy_scope_end(scope, 0, NULL);
    ts_reopen(ctx, device);
    fy_device_t *none = NULL;
    ts_fails_with(fy_device_open("sim:9?fuse=no", &none), INVALID_ARGUMENT, "fuse=no");
}

/* sim with the rules of cuda: fewer calls fuse, more tensors have memory, the bits are the same.
 * tests/unit/cuda/test_chain.c compares with cuda. */
TS_DEVICE_TEST(sim_fuses_as_cuda_does)
{
    enum { N = 1 << 20 };
    uint64_t pool_nbytes[2];
    for (int as_cuda = 0; as_cuda < 2; as_cuda++) {
        fy_device_t *device = ts_open_with(ctx, as_cuda ? "chains=cuda" : "chains=host");
        fy_scope_t scope = fy_scope_begin("outer");
        fy_tensor_t *x = ts_iota(device, FY_DIMS(2, 3), -2), *wide, *rows, *last;
        ts_ok(fy_full(device, FY_DTYPE_F64, FY_DIMS(N), 1, &wide));
        ts_ok(fy_graph_begin(device));
        fy_scope_t inner = fy_scope_begin("inner");
        fy_tensor_t *a, *kept[2];
        ts_ok(fy_affine(x, 2, 0, &a));
        ts_ok(fy_abs(a, &a)); /* 4 2 0, 2 4 6 */
        ts_ok(fy_sum(a, FY_AXES(1), 0, &rows));
        ts_ok(fy_neg(wide, &a));
        ts_ok(fy_affine(a, 3, 1, &a));
        ts_ok(fy_slice(a, 0, N - 1, N, &a));
        ts_ok(fy_cast(a, FY_DTYPE_F32, &last));
        kept[0] = rows, kept[1] = last;
        fy_scope_end(inner, 2, kept);
        fy_graph_t *graph = ts_graph_end();
        const lines_t lines = explain(graph);
        pool_nbytes[as_cuda] = ts_graph_info(graph).pool_nbytes;
        if (as_cuda) {
            expect_line(&lines, "chain 1 affine, 2 abs: ");
            expect_line(&lines, "call 3 sum: a chain of this device would add its rows in another");
            expect_line(&lines, "call 4 neg: chains of this device compute in f32, which it does");
            expect_line(&lines, "call 6 cast: chains of this device compute in f32");
        } else {
            expect_line(&lines, "chain 1 affine, 2 abs, 3 sum: ");
            expect_line(&lines, "chain 4 neg, 5 affine: ");
        }
        ts_ok(fy_graph_replay(graph, NULL));
        ts_expect_f32(rows, (float[]){ 6, 12 }, 2);
        ts_expect_f32(last, (float[]){ -2 }, 1);
        for (int k = 0; k < 2; k++) fy_tensor_destroy(kept[k]);
        fy_scope_end(scope, 0, NULL);
        ts_reopen(ctx, device);
    }
    assert_true(pool_nbytes[1] > pool_nbytes[0]);
    fy_device_t *none = NULL;
    ts_fails_with(fy_device_open("sim:9?chains=both", &none), INVALID_ARGUMENT, "chains=both");
}

/* Large: results go past the cache, sources repeat with every period, threads divide the work. */
TS_DEVICE_TEST(large_chains_have_the_same_bits)
{
    enum { N = 3000, C = 700 };
    fy_tensor_t *rng, *x, *row, *column, *y[2], *z[2], *flag;
    ts_ok(fy_rng_create(ctx->device, 1, &rng));
    ts_ok(fy_randn(rng, FY_DTYPE_F32, FY_DIMS(N, C), 0, 1, &x));
    ts_ok(fy_randn(rng, FY_DTYPE_F32, FY_DIMS(C), 0, 1, &row));
    ts_ok(fy_randn(rng, FY_DTYPE_F32, FY_DIMS(N, 1), 0, 1, &column));
    for (int i = 0; i < 2; i++) {
        ts_ok(fy_zeros(ctx->device, FY_DTYPE_F32, FY_DIMS(N, C), &y[i]));
        ts_ok(fy_zeros(ctx->device, FY_DTYPE_F16, FY_DIMS(N, C), &z[i]));
        if (i) ts_ok(fy_graph_begin(ctx->device));
        fy_scope_t scope = fy_scope_begin("inner");
        fy_tensor_t *t;
        ts_ok(fy_add(x, row, &t));
        ts_ok(fy_mul(t, column, &t));
        ts_ok(fy_gelu(t, &t));
        ts_ok(fy_gt(t, x, &flag));
        ts_ok(fy_where(flag, t, row, &t));
        ts_ok(fy_copy(y[i], t));
        ts_ok(fy_cast(t, FY_DTYPE_F16, &t));
        ts_ok(fy_copy(z[i], t));
        fy_scope_end(scope, 0, NULL);
    }
    fy_graph_t *graph = ts_graph_end();
    assert_int_equal(ts_graph_info(graph).fused_calls, 8);
    ts_ok(fy_graph_replay(graph, NULL));
    unsigned char *bytes[2];
    for (int i = 0; i < 2; i++) assert_non_null(bytes[i] = malloc(N * C * sizeof(float)));
    for (int i = 0; i < 2; i++) ts_read(y[i], bytes[i], N * C * sizeof(float));
    assert_memory_equal(bytes[0], bytes[1], N * C * sizeof(float));
    for (int i = 0; i < 2; i++) ts_read(z[i], bytes[i], N * C * 2);
    assert_memory_equal(bytes[0], bytes[1], N * C * 2);
    for (int i = 0; i < 2; i++) free(bytes[i]);
}

static const ts_exclusion_t k_exclusions[] = {
    { "host", "the_option_turns_it_off", "the host has no options" },
    { "!sim", "sim_fuses_as_cuda_does", "an option of sim" },
    { "!host", "wrapped_twice", "a program wraps its own memory only" },
    { NULL, NULL, NULL },
};

TS_SUITE(.exclusions = k_exclusions);
