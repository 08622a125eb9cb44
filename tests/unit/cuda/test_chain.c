/* Chains on cuda, over the fake driver: a chain is one launch of fy_chain_f32, also inside a CUDA
 * Graph, and its results have the bits of the calls. With FAKE_CUDA_KERNELS=ptx the kernels' PTX
 * computes both. Not here: which calls are neighbours (tests/conformance/test_graph_fuse.c, which
 * runs over the fake driver too). */
#include "graph_step.h"
#include "tests/support/value.h"

enum { RESULTS = 3, MOST = 4096 };

/* A chain of every kind of operand: rows, columns and one number that repeat, a result in place,
 * values that a later op reads, f16, bf16 and bool. `x` is a view if `shift` is not 0: the
 * addresses are then no multiples of 16 bytes. */
typedef struct chain {
    fy_tensor_t *x, *row, *column, *one, *sum, *made[RESULTS];
} chain_t;

static chain_t operands(int64_t rows, int64_t columns, int64_t shift)
{
    chain_t c;
    fy_tensor_t *rng, *all;
    ts_ok(fy_rng_create(device, 3, &rng));
    ts_ok(fy_randn(rng, FY_DTYPE_F32, FY_DIMS(rows * columns + shift), 0, 1, &all));
    ts_ok(fy_slice(all, 0, shift, rows * columns + shift, &c.x));
    ts_ok(fy_reshape(c.x, FY_DIMS(rows, columns), &c.x));
    ts_ok(fy_randn(rng, FY_DTYPE_F32, FY_DIMS(columns), 0, 1, &c.row));
    ts_ok(fy_randn(rng, FY_DTYPE_F32, FY_DIMS(rows, 1), 0, 1, &c.column));
    ts_ok(fy_randn(rng, FY_DTYPE_F32, 0, NULL, 0, 1, &c.one));
    ts_ok(fy_zeros(device, FY_DTYPE_F32, FY_DIMS(rows, columns), &c.sum));
    return c;
}

static void run(chain_t *c)
{
    fy_scope_t scope = fy_scope_begin("chain");
    fy_tensor_t *a, *b, *d, *e, *flag;
    ts_ok(fy_add(c->x, c->row, &a));
    ts_ok(fy_mul(a, c->column, &b));
    ts_ok(fy_gelu(b, &d));
    ts_ok(fy_sub(a, d, &d)); /* `a` is read again */
    ts_ok(fy_div(d, c->one, &d));
    ts_ok(fy_gt(d, b, &flag)); /* and `b` */
    ts_ok(fy_where(flag, a, d, &e));
    ts_ok(fy_clamp(e, -1, 0.75, &c->made[0]));
    ts_ok(fy_cast(e, FY_DTYPE_F16, &d));
    ts_ok(fy_mul(d, d, &d)); /* rounded to f16 */
    ts_ok(fy_cast(d, FY_DTYPE_BF16, &c->made[1]));
    ts_ok(fy_cast(d, FY_DTYPE_F32, &d));
    ts_ok(fy_axpy(c->sum, 0.5, d));
    ts_ok(fy_lt(c->sum, c->x, &c->made[2]));
    fy_scope_end(scope, RESULTS, c->made);
}

static void expect_equal(const fy_tensor_t *a, const fy_tensor_t *b)
{
    static unsigned char bytes[2][MOST * sizeof(float)];
    const size_t nbytes = ts_info(a).nbytes;
    assert_true(nbytes <= sizeof *bytes);
    ts_read(a, bytes[0], nbytes);
    ts_read(b, bytes[1], nbytes);
    assert_memory_equal(bytes[0], bytes[1], nbytes);
}

static fy_graph_info_t end_graph(fy_graph_t **out_graph)
{
    fy_graph_info_t info = FY_GRAPH_INFO_INIT;
    ts_ok(fy_graph_end(out_graph));
    ts_ok(fy_graph_query(*out_graph, &info));
    return info;
}

TS_TEST(chains_have_the_bits_of_their_calls)
{
    static const struct {
        int64_t rows, columns, shift;
    } shapes[] = { { 12, 36, 0 }, { 12, 36, 1 }, { 7, 5, 0 },   { 1, 1, 0 },
                   { 3, 1, 0 },   { 1, 7, 2 },   { 64, 64, 0 }, { 5, 8, 4 } };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        chain_t called = operands(shapes[i].rows, shapes[i].columns, shapes[i].shift),
                recorded = operands(shapes[i].rows, shapes[i].columns, shapes[i].shift);
        fy_graph_t *graph;
        ts_ok(fy_graph_begin(device));
        run(&recorded);
        const fy_graph_info_t info = end_graph(&graph);
        assert_int_equal(info.chains, 1);
        assert_int_equal(info.fused_calls, 14);
        for (int round = 0; round < 3; round++) { /* the third one by a CUDA Graph */
            run(&called);
            ts_ok(fy_graph_replay(graph, NULL));
            expect_equal(called.sum, recorded.sum);
            for (int k = 0; k < RESULTS; k++) expect_equal(called.made[k], recorded.made[k]);
        }
        fy_graph_destroy(graph);
    }
}

TS_TEST(a_chain_is_one_launch)
{
    chain_t c = operands(8, 8, 0);
    fy_graph_t *graph;
    ts_ok(fy_graph_begin(device));
    run(&c);
    ts_ok(fy_graph_end(&graph));
    const int64_t before = driver.fake_cuda_calls("cuLaunchKernel"),
                  graphs = driver.fake_cuda_calls("cuGraphLaunch");
    (void)driver.fake_cuda_longest_args();
    ts_ok(fy_graph_replay(graph, NULL));
    assert_int_equal(driver.fake_cuda_calls("cuLaunchKernel"), before + 1);
    assert_string_equal(driver.fake_cuda_last_kernel(), "fy_chain_f32");
    assert_true(driver.fake_cuda_longest_args() <= 4096);
    for (int i = 0; i < 3; i++) ts_ok(fy_graph_replay(graph, NULL)); /* one captures it */
    assert_int_equal(driver.fake_cuda_calls("cuLaunchKernel"), before + 2);
    assert_int_equal(driver.fake_cuda_calls("cuGraphLaunch"), graphs + 3);
    assert_int_equal(nlogged, 0);
}

/* Five values at once, each read by a later op: more than a thread keeps. */
TS_TEST(too_many_values_run_call_by_call)
{
    fy_tensor_t *x = ts_iota(device, FY_DIMS(2, 4), 1), *y;
    fy_graph_t *graph;
    ts_ok(fy_graph_begin(device));
    fy_scope_t scope = fy_scope_begin("many");
    fy_tensor_t *v[7];
    for (int i = 0; i < 7; i++) ts_ok(fy_affine(x, i, 1, &v[i]));
    for (int i = 1; i < 7; i++) ts_ok(fy_add(v[0], v[i], &v[0]));
    y = v[0];
    fy_scope_end(scope, 1, &y);
    assert_int_equal(end_graph(&graph).chains, 0);
    ts_ok(fy_graph_replay(graph, NULL));
    ts_expect_f32(y, (float[]){ 28, 49, 70, 91, 112, 133, 154, 175 }, 8);
}

/* Each launch of a replay fails once: the replay fails, and later ones are right. */
TS_TEST(each_launch_fails_once)
{
    for (int nth = 1; nth <= 3; nth++) {
        fy_tensor_t *x = ts_iota(device, FY_DIMS(2, 2), 1), *y, *t;
        fy_graph_t *graph;
        ts_ok(fy_zeros(device, FY_DTYPE_F32, FY_DIMS(2, 2), &y));
        ts_ok(fy_graph_begin(device));
        fy_scope_t scope = fy_scope_begin("inner");
        ts_ok(fy_neg(x, &t));
        ts_ok(fy_mul(t, t, &t)); /* 1 4 9 16 */
        ts_ok(fy_sum(t, FY_AXES(0), 1, &t));
        ts_ok(fy_affine(t, 1, 1, &t)); /* 11 21 */
        ts_ok(fy_relu(t, &t));
        fy_scope_end(scope, 1, &t);
        ts_ok(fy_graph_end(&graph));
        const int64_t before = driver.fake_cuda_calls("cuLaunchKernel");
        driver.fake_cuda_fail("cuLaunchKernel", nth, 701 /* LAUNCH_OUT_OF_RESOURCES */);
        assert_int_not_equal(fy_graph_replay(graph, NULL), FY_STATUS_OK);
        assert_int_equal(driver.fake_cuda_calls("cuLaunchKernel"), before + nth);
        for (int i = 0; i < 3; i++) {
            ts_ok(fy_graph_replay(graph, NULL));
            ts_expect_f32(t, (float[]){ 11, 21 }, 2);
        }
        fy_graph_destroy(graph);
    }
}

/* ---- sim:N?chains=cuda ---- */

typedef struct text {
    char lines[8000];
    int nchains, nreasons;
} text_t;

static void add_line(void *user, const char *key, const char *value)
{
    text_t *text = user;
    const size_t at = strlen(text->lines);
    snprintf(text->lines + at, sizeof text->lines - at, "%s %s\n", key, value);
    text->nchains += strcmp(key, "chain") == 0;
    text->nreasons += strstr(value, "of this device") != NULL;
}

enum { TENSORS = 8, CALLS = 30 };

/* Random calls on tensors of several dtypes and layouts. Bit k of `only`: call k is made. Returns
 * the calls that were accepted. */
static uint32_t play(fy_tensor_t *t[TENSORS], uint64_t seed, uint32_t only)
{
    static const fy_dtype_t dtypes[] = { FY_DTYPE_F32, FY_DTYPE_F32, FY_DTYPE_F16, FY_DTYPE_BF16,
                                         FY_DTYPE_F64, FY_DTYPE_I32, FY_DTYPE_BOOL };
    static const int orders[][5] = { { 4, 3, 2, 1, 0 }, { 1, 0, 3, 2, 4 }, { 0, 2, 1, 4, 3 } };
    ts_random_t random = { seed };
    uint32_t accepted = 0;
    for (int k = 0; k < CALLS; k++) {
        fy_tensor_t *made = NULL, *a = t[ts_random_below(&random, TENSORS)],
                    *b = t[ts_random_below(&random, TENSORS)];
        const int to = (int)ts_random_below(&random, TENSORS),
                  choice = (int)ts_random_below(&random, 64),
                  kind = (int)ts_random_below(&random, 9);
        fy_status_t status;
        if (!(only >> k & 1)) continue;
        switch (kind) {
        case 0: status = fy_add(a, b, &made); break;
        case 1: status = fy_mul(a, b, &made); break;
        case 2: status = fy_gt(a, b, &made); break;
        case 3: status = fy_cast(a, dtypes[choice % 7], &made); break;
        case 4: status = fy_transpose(a, orders[choice % 3], &made); break;
        case 5: status = fy_sum(a, FY_AXES(-1), 1, &made); break;
        case 6: status = fy_axpy(a, 0.5, b); break;
        case 7: status = fy_affine(a, 2, choice, &made); break;
        default: status = fy_gelu(a, &made); break;
        }
        accepted |= (uint32_t)(status == FY_STATUS_OK) << k;
        if (!made) continue;
        fy_tensor_destroy(t[to]);
        t[to] = made;
    }
    return accepted;
}

static void make(fy_device_t *on, fy_tensor_t *t[TENSORS])
{
    for (int i = 0; i < TENSORS; i++) /* some repeat along an axis */
        ts_ok(fy_zeros(on, FY_DTYPE_F32, FY_DIMS(2, i % 3 ? 2 : 1, 2, 2, i % 4 ? 4 : 1), &t[i]));
}

static text_t explain_program(fy_device_t *on, uint64_t seed)
{
    fy_tensor_t *called[TENSORS], *t[TENSORS];
    fy_graph_t *graph;
    text_t text = { "", 0, 0 };
    fy_scope_t scope = fy_scope_begin("program");
    make(on, called);
    const uint32_t accepted = play(called, seed, UINT32_MAX);
    make(on, t);
    ts_ok(fy_graph_begin(on));
    assert_int_equal(play(t, seed, accepted), accepted);
    ts_ok(fy_graph_end(&graph));
    ts_ok(fy_graph_explain(graph, add_line, &text));
    fy_scope_end(scope, 0, NULL);
    return text;
}

/* One table of rules: what a plan on sim says of cuda is what cuda does. */
TS_TEST(sim_fuses_the_same_calls)
{
    fy_device_t *sim;
    int nchains = 0, nreasons = 0;
    ts_ok(fy_device_open("sim:7?chains=cuda", &sim));
    for (uint64_t seed = 1; seed <= 60; seed++) {
        const text_t cuda = explain_program(device, seed), same = explain_program(sim, seed);
        assert_string_equal(cuda.lines, same.lines);
        nchains += cuda.nchains;
        nreasons += cuda.nreasons;
    }
    fy_device_close(sim);
    assert_true(nchains > 60 && nreasons > 60);
}

/* The rules take every elementwise op; the kernel has the formula of each. */
TS_TEST(every_elementwise_op_is_in_chains)
{
    int nops = 0;
    for (fy_op_t op = 0; op < fy_op_count(); op++) {
        const fy_op_info_t *info = fy_op_get(op);
        if (!info || !(info->flags & FY_OP_ELEMENTWISE) || (info->flags & FY_OP_IN_PLACE) ||
            op == FY_OP_CAST)
            continue;
        fy_scope_t scope = fy_scope_begin("op");
        chain_t c = operands(4, 8, 0);
        fy_tensor_t *src[3] = { c.x, c.row, c.column }, *called = NULL, *recorded = NULL, *flag;
        fy_graph_t *graph;
        ts_ok(fy_gt(c.x, c.row, &flag));
        if (op == FY_OP_WHERE) src[0] = flag;
        if (fy_op_call(op, info->nsrc_min, src, NULL, 0, 1, &called) != FY_STATUS_OK) {
            fy_scope_end(scope, 0, NULL); /* of integers or bool only */
            continue;
        }
        ts_ok(fy_cast(called, FY_DTYPE_F32, &called));
        ts_ok(fy_add(called, c.x, &called));
        ts_ok(fy_graph_begin(device));
        ts_ok(fy_op_call(op, info->nsrc_min, src, NULL, 0, 1, &recorded));
        ts_ok(fy_cast(recorded, FY_DTYPE_F32, &recorded));
        ts_ok(fy_add(recorded, c.x, &recorded));
        if (end_graph(&graph).chains != 1) fail_msg("%s is in no chain", info->name);
        ts_ok(fy_graph_replay(graph, NULL));
        expect_equal(called, recorded);
        fy_scope_end(scope, 0, NULL);
        nops++;
    }
    assert_true(nops > 40);
}

TS_SUITE(.set_up = setup, .tear_down = teardown, .prepare = prepare_logged);
