/* Random chains in each loop table that this machine has: every result has the bits that the ops
 * give one by one, also for infinities and zeros of both signs; a NaN is a NaN. Chains
 * mix ops that run on registers with others; operands repeat, are read twice, set twice, and are at
 * odd addresses. Not here: which calls make a chain (tests/conformance). */
#include "backends/kernels/chain.h"
#include "tests/unit/backends/kernel_fixture.h"

enum { DSTS = 2, SOURCES = 3, OPERANDS = DSTS + SOURCES, VALUES = 3, OPS = 40, PERIOD = 64 };
enum { ALL = OPERANDS + VALUES, LARGE = (1 << 20) + 777 };

typedef struct world {
    int64_t n;
    float *at[ALL]; /* sources that repeat are written out */
    float *bias;
} world_t;

static uint64_t seed;
static int below(int n)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (int)((seed >> 33) % (uint64_t)n);
}

static float value(void)
{
    static const uint32_t edges[] = { 0x7fc00001, 0xffc00002, 0x7f800000, 0xff800000, 0x80000000,
                                      0,          0x40c00000, 0xc0400000, 0x40400000, 1 };
    if (below(3)) return (float)(below(2001) - 1000) / 128.0f;
    float edge;
    memcpy(&edge, &edges[below(COUNT_OF(edges))], sizeof edge);
    return edge;
}

static world_t allocate_world(int64_t n, int offset)
{
    world_t w = { .n = n };
    for (int i = 0; i < ALL; i++) {
        w.at[i] = (float *)aligned_alloc(64, ((size_t)n * 4 + 191) / 64 * 64);
        assert_non_null(w.at[i]);
        w.at[i] += offset;
    }
    w.bias = w.at[OPERANDS - 1];
    return w;
}

static world_t make_world(int64_t n, int offset)
{
    world_t w = allocate_world(n, offset);
    for (int i = 0; i < ALL; i++)
        for (int64_t k = 0; k < n; k++) w.at[i][k] = i < OPERANDS ? value() : 0;
    for (int64_t k = PERIOD; k < n; k++) w.bias[k] = w.bias[k - PERIOD];
    return w;
}

static world_t copy_world(const world_t *from, int offset)
{
    world_t w = allocate_world(from->n, offset);
    for (int i = 0; i < ALL; i++) memcpy(w.at[i], from->at[i], (size_t)w.n * 4);
    return w;
}

static void drop_world(world_t *w, int offset)
{
    for (int i = 0; i < ALL; i++) free(w->at[i] - offset);
}

static int draw(fy_chain_op_t *ops)
{
    static const struct {
        fy_op_t op;
        uint16_t nsrc;
        uint32_t attrs;
    } known[] = {
#define ONE(ENUM, ...)    { FY_OP_##ENUM, 1, 0 },
#define SCALED(ENUM, ...) { FY_OP_##ENUM, 1, 2 },
#define TWO(ENUM, ...)    { FY_OP_##ENUM, 2, 0 },
#include "backends/kernels/chain.def"
        { FY_OP_SQRT, 1, 0 },
        { FY_OP_TANH, 1, 0 },
        { FY_OP_AXPY, 1, 1 },
    };
    const int count = 2 + below(OPS - 2);
    int is_set[ALL] = { 0 }, before = DSTS;
    for (int i = 0; i < OPERANDS; i++) is_set[i] = 1;
    for (int k = 0; k < count; k++) {
        const int row = below(4) ? below(COUNT_OF(known) - 3) : below(COUNT_OF(known));
        fy_chain_op_t *op = &ops[k];
        *op = (fy_chain_op_t){ .op = known[row].op, .nsrc = known[row].nsrc };
        op->attrs_nbytes = known[row].attrs * (uint32_t)sizeof(double);
        op->attrs[0] = below(8) ? -0.5 : -0.0;
        op->attrs[1] = below(8) ? 1.25 : 0.0;
        for (int j = 0; j < op->nsrc; j++) {
            int from = below(3) ? before : below(ALL);
            while (!is_set[from]) from = below(OPERANDS);
            op->src[j] = (uint16_t)from;
        }
        int to = below(4) ? OPERANDS + below(VALUES) : below(DSTS);
        if (op->op == FY_OP_AXPY && !is_set[to]) to = 0;
        if (op->op == FY_OP_AXPY && op->src[0] == to) op->src[0] = DSTS;
        op->accumulate = op->op != FY_OP_AXPY && to < DSTS && below(8) == 0;
        op->dst = (uint16_t)to;
        is_set[to] = 1;
        before = to;
    }
    ops[count - 1].dst = 0;
    if (ops[count - 1].op == FY_OP_AXPY && ops[count - 1].src[0] == 0) ops[count - 1].src[0] = DSTS;
    return count;
}

static fy_desc_t flat(float *data, int64_t n)
{
    return (fy_desc_t){
        .data = data, .dtype = FY_DTYPE_F32, .rank = 1, .dims = { n }, .strides = { 1 }
    };
}

static void run_alone(const fy__loops_t *loops, world_t *w, const fy_chain_op_t *op)
{
    fy_desc_t dst = flat(w->at[op->dst], w->n), src[3];
    for (int j = 0; j < op->nsrc; j++) src[j] = flat(w->at[op->src[j]], w->n);
    fy_launch_t launch = launch_of(op->op, 1, &dst, op->nsrc, src, op->attrs);
    launch.attrs_nbytes = op->attrs_nbytes;
    launch.flags = FY_LAUNCH_DENSE;
    launch.accumulate = op->accumulate;
    ts_ok(fy__kernel_rows[op->op].run(&api, loops, &launch));
}

static void run_chain(const fy__loops_t *loops, world_t *w, const fy_chain_op_t *ops, int count)
{
    fy_desc_t operand[OPERANDS];
    for (int i = 0; i < OPERANDS; i++) operand[i] = flat(w->at[i], w->n);
    if (w->n % PERIOD == 0) {
        fy_desc_t *bias = &operand[OPERANDS - 1];
        bias->rank = 2;
        bias->dims[0] = w->n / PERIOD;
        bias->dims[1] = PERIOD;
        bias->strides[0] = 0;
        bias->strides[1] = 1;
    }
    fy_launch_t launch = launch_of(FY_LAUNCH_CHAIN, DSTS, operand, SOURCES, operand + DSTS, ops);
    launch.attrs_nbytes = (size_t)count * sizeof *ops;
    assert_true(fy__chain_supports(&launch));
    ts_ok(fy__run_chain(&api, loops, &launch));
}

static void check(const fy__loops_t *loops, int64_t n, int offset)
{
    fy_chain_op_t ops[OPS];
    const uint64_t first_seed = seed;
    const int count = draw(ops);
    world_t w = make_world(n, offset), alone = copy_world(&w, 0);
    for (int k = 0; k < count; k++) run_alone(loops, &alone, &ops[k]);
    run_chain(loops, &w, ops, count);
    for (int i = 0; i < OPERANDS; i++)
        for (int64_t k = 0; k < n; k++)
            if (memcmp(&w.at[i][k], &alone.at[i][k], 4) != 0 &&
                !(isnan(w.at[i][k]) && isnan(alone.at[i][k]))) {
                uint32_t got, want;
                memcpy(&got, &w.at[i][k], 4);
                memcpy(&want, &alone.at[i][k], 4);
                fail_msg("%s, seed %llu, %d ops on %lld elements: operand %d [%lld] is %08x, "
                         "alone %08x",
                         loops->name, (unsigned long long)first_seed, count, (long long)n, i,
                         (long long)k, got, want);
            }
    drop_world(&w, offset);
    drop_world(&alone, 0);
}

TS_TEST(chains_have_the_bits_of_their_ops)
{
    static const int64_t sizes[] = { 1, 63, 128, 512, 513, 1024, 4096, 4100 };
    const fy__loops_t *tables[3];
    const size_t ntables = find_tables(tables);
    for (size_t t = 0; t < ntables; t++) {
        seed = 1;
        for (int i = 0; i < 400; i++) check(tables[t], sizes[i % COUNT_OF(sizes)], i % 2 * 5);
        for (int i = 0; i < 3; i++) check(tables[t], LARGE, i % 2); /* past the cache */
    }
}

/* A value that only the next op reads has no store; one that is read later has. */
TS_TEST(only_values_that_are_read_are_stored)
{
    fy_chain_op_t ops[] = {
        { .op = FY_OP_RELU, .nsrc = 1, .dst = 2, .src = { 1 } },
        { .op = FY_OP_ABS, .nsrc = 1, .dst = 3, .src = { 2 } },
        { .op = FY_OP_SUB, .nsrc = 2, .dst = 2, .src = { 1, 3 } },
        { .op = FY_OP_ADD, .nsrc = 2, .dst = 0, .src = { 2, 3 } },
    };
    fy__chain_run_t run;
    assert_int_equal(fy__chain_encode(ops, 4, 0, 2, &run), 4);
    const int want[] = { FY__CHAIN_LOAD,     FY__CHAIN_RELU, FY__CHAIN_ABS,   FY__CHAIN_STORE,
                         FY__CHAIN_FROM_SUB, FY__CHAIN_ADD,  FY__CHAIN_STORE, FY__CHAIN_END };
    assert_int_equal(run.ncodes, COUNT_OF(want));
    for (int c = 0; c < run.ncodes; c++) assert_int_equal(run.code[c].kind, want[c]);
    assert_int_equal(run.operand[3], 3); /* |relu x|, which `add` reads from memory */
    ops[1].src_dtype[0] = FY_DTYPE_F16;
    assert_int_equal(fy__chain_encode(ops, 4, 0, 2, &run), 0);
}
