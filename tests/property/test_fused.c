/* Random programs of elementwise ops, run eagerly and as a graph whose calls are fused. A tensor
 * that still has a handle must have the same bytes after every replay. The programs use views,
 * broadcasts, casts, results in place, tensors destroyed before and after the end of the recording,
 * and inputs that change between replays. On sim a graph must not take more memory than without
 * fusing, and its plan must be exact.
 * A failure prints the seed; FERRY_SEED=n runs that one program alone, FERRY_PROGRAMS=n more of
 * them. */
#include <inttypes.h>

#include "tests/support/harness.h"
#include "tests/support/value.h"

enum {
    NBASE = 5,
    NTENSORS = 14,
    NSTEPS = 40,
    NREPLAYS = 3,
};

/* R and C below, and the most elements of a result. */
static int64_t rows = 37, columns = 24, most = 37 * 37 * 24;

typedef enum kind {
    NEW1,
    NEW2,
    NEW3,
    SCALE,
    CAST,
    ADD_TO,
    INTO,
    COPY_TO,
    VIEW,
    BREAK,
    DROP,
    DROPOUT,
    DROPOUT_BACK
} kind_t;

typedef struct step {
    kind_t kind;
    int a, b, c, to, choice;
} step_t;

/* A program: the same steps for any set of tensors. */
typedef struct program {
    step_t steps[NSTEPS];
    uint32_t dropped; /* bit i: tensor i is destroyed after the end of the recording */
} program_t;

/* Base tensors first: [R, C], [R, C], [C], [R, 1], []; then those that the program makes. */
typedef struct world {
    fy_tensor_t *t[NTENSORS], *rng;
} world_t;

static const fy_op_t k_one[] = { FY_OP_NEG,  FY_OP_ABS,     FY_OP_RELU,      FY_OP_TANH,
                                 FY_OP_GELU, FY_OP_SIGMOID, FY_OP_HARDSWISH, FY_OP_ROUND };
static const fy_op_t k_two[] = { FY_OP_ADD,     FY_OP_SUB,           FY_OP_MUL, FY_OP_MAXIMUM,
                                 FY_OP_MINIMUM, FY_OP_RELU_BACKWARD, FY_OP_LT };

static program_t draw(uint64_t seed)
{
    program_t program;
    ts_random_t random = { seed };
    static const kind_t kinds[] = { NEW1,    NEW1,  NEW1,  NEW2, NEW2,    NEW2,        NEW3,
                                    SCALE,   SCALE, CAST,  INTO, INTO,    INTO,        ADD_TO,
                                    COPY_TO, VIEW,  BREAK, DROP, DROPOUT, DROPOUT_BACK };
    for (int i = 0; i < NSTEPS; i++)
        program.steps[i] = (step_t){
            .kind = kinds[ts_random_below(&random, sizeof kinds / sizeof *kinds)],
            .a = (int)ts_random_below(&random, NTENSORS),
            .b = (int)ts_random_below(&random, NTENSORS),
            .c = (int)ts_random_below(&random, NTENSORS),
            .to = NBASE + (int)ts_random_below(&random, NTENSORS - NBASE),
            .choice = (int)ts_random_below(&random, 1 << 20),
        };
    program.dropped = (uint32_t)ts_random_below(&random, 1 << NTENSORS);
    return program;
}

/* The step on these tensors. A call that is refused changes nothing, here and there. */
static fy_status_t run_step(world_t *w, const step_t *s)
{
    static const fy_dtype_t dtypes[] = { FY_DTYPE_F32, FY_DTYPE_F32, FY_DTYPE_F16, FY_DTYPE_F64,
                                         FY_DTYPE_I32 };
    fy_tensor_t *a = w->t[s->a] ? w->t[s->a] : w->t[0], *b = w->t[s->b] ? w->t[s->b] : w->t[1],
                *c = w->t[s->c] ? w->t[s->c] : w->t[0], *made = NULL;
    fy_status_t status = FY_STATUS_OK;
    fy_tensor_t *both[] = { a, b };
    const fy_tensor_info_t info = ts_info(a);
    switch (s->kind) {
    case NEW1: status = fy_op_call(k_one[s->choice % 8], 1, &a, NULL, 0, 1, &made); break;
    case NEW2: status = fy_op_call(k_two[s->choice % 7], 2, both, NULL, 0, 1, &made); break;
    case NEW3: {
        fy_tensor_t *positive = NULL;
        status = fy_gt(a, b, &positive);
        if (status == FY_STATUS_OK) status = fy_where(positive, b, c, &made);
        fy_tensor_destroy(positive);
        break;
    }
    case SCALE:
        status = s->choice & 1 ? fy_affine(a, 0.5, s->choice % 5, &made)
                               : fy_clamp(a, -1, s->choice % 3, &made);
        break;
    case CAST: status = fy_cast(a, dtypes[s->choice % 5], &made); break;
    case ADD_TO: status = fy_axpy(a, 0.25, b); break;
    case INTO: { /* in place, or over an older result */
        fy_tensor_t *dst = s->choice & 1 ? a : c;
        status = fy_op_call(k_two[s->choice % 6], 2, both, NULL, 0, 1, &dst);
        break;
    }
    case COPY_TO: status = fy_copy(a, b); break;
    case VIEW:
        status = s->choice & 1 || info.rank == 0 ? fy_reshape(a, FY_DIMS(-1), &made)
                                                 : fy_slice(a, 0, 0, info.dims[0], &made);
        break;
    case BREAK:
        if (s->choice % 3 == 0) status = fy_sum(a, FY_AXES(0), 1, &made);
        if (s->choice % 3 == 1) status = fy_mean(a, FY_AXES(-1), 1, &made);
        if (s->choice % 3 == 2) status = fy_max(a, FY_AXES(-1), 0, &made);
        break;
    case DROPOUT: status = fy_dropout(w->rng, a, 0.25 * (s->choice % 4), &made); break;
    case DROPOUT_BACK: { /* as with the state that a dropout left */
        const fy_dropout_attrs_t half = { .p = 0.5 };
        fy_tensor_t *src[] = { a, w->rng };
        status = fy_op_call(FY_OP_DROPOUT_BACKWARD, 2, src, &half, sizeof half, 1, &made);
        break;
    }
    case DROP: break;
    }
    if (made && ts_info(made).nelem > (uint64_t)most) {
        fy_tensor_destroy(made);
        return FY_STATUS_SHAPE_MISMATCH;
    }
    if (status == FY_STATUS_OK && (made || s->kind == DROP)) {
        fy_tensor_destroy(w->t[s->to]);
        w->t[s->to] = made;
    }
    return status;
}

/* `did`: bit i is set if step i was accepted; `only`: the steps to run. */
static uint64_t run(world_t *w, const program_t *program, uint64_t only)
{
    uint64_t did = 0;
    for (int i = 0; i < NSTEPS; i++)
        if ((only >> i & 1) && run_step(w, &program->steps[i]) == FY_STATUS_OK) did |= 1ull << i;
    return did;
}

static void clear(world_t *w, int from)
{
    if (!from) fy_tensor_destroy(w->rng);
    for (int i = from; i < NTENSORS; i++) {
        fy_tensor_destroy(w->t[i]);
        w->t[i] = NULL;
    }
}

static void make_base(fy_device_t *device, world_t *w)
{
    *w = (world_t){ { NULL }, NULL };
    ts_ok(fy_rng_create(device, 8, &w->rng));
    ts_ok(fy_zeros(device, FY_DTYPE_F32, FY_DIMS(rows, columns), &w->t[0]));
    ts_ok(fy_zeros(device, FY_DTYPE_F32, FY_DIMS(rows, columns), &w->t[1]));
    ts_ok(fy_zeros(device, FY_DTYPE_F32, FY_DIMS(columns), &w->t[2]));
    ts_ok(fy_zeros(device, FY_DTYPE_F32, FY_DIMS(rows, 1), &w->t[3]));
    ts_ok(fy_zeros(device, FY_DTYPE_F32, 0, NULL, &w->t[4]));
}

static void change(fy_device_t *device, world_t *w, int round)
{
    fy_tensor_t *rng, *noise;
    ts_ok(fy_rng_create(device, 5 + (uint64_t)round, &rng));
    for (int i = 0; i < NBASE; i++) {
        const fy_tensor_info_t info = ts_info(w->t[i]);
        ts_ok(fy_randn(rng, FY_DTYPE_F32, info.rank, info.dims, 0, 1, &noise));
        ts_ok(fy_copy(w->t[i], noise));
        fy_tensor_destroy(noise);
    }
    ts_ok(fy_copy(w->rng, rng));
    fy_tensor_destroy(rng);
}

static void expect_same(const fy_tensor_t *eager, const fy_tensor_t *replayed, uint64_t seed, int i)
{
    const size_t nbytes = ts_info(eager).nbytes;
    unsigned char *bytes = malloc(2 * nbytes + 1);
    assert_non_null(bytes);
    assert_int_equal(nbytes, ts_info(replayed).nbytes);
    ts_read(eager, bytes, nbytes);
    ts_read(replayed, bytes + nbytes, nbytes);
    const int is_same = memcmp(bytes, bytes + nbytes, nbytes) == 0;
    free(bytes);
    if (is_same) return;
    print_error("seed %" PRIu64 ": tensor %d differs\n  again: FERRY_SEED=%" PRIu64 "\n", seed, i,
                seed);
    fail();
}

static fy_graph_info_t record(fy_device_t *device, world_t *w, const program_t *program,
                              uint64_t steps, fy_graph_t **out_graph)
{
    fy_graph_info_t info = FY_GRAPH_INFO_INIT;
    ts_ok(fy_graph_begin(device));
    assert_true(run(w, program, steps) == steps);
    ts_ok(fy_graph_end(out_graph));
    ts_ok(fy_graph_query(*out_graph, &info));
    assert_true(info.requests >= info.fused_calls + info.dropped_calls);
    return info;
}

static void expect_no_more_memory(const program_t *program, uint64_t steps, uint64_t pool_nbytes)
{
    fy_device_t *plain;
    fy_graph_t *graph;
    world_t w;
    ts_ok(fy_device_open("sim:9?fuse=off", &plain));
    make_base(plain, &w);
    const fy_graph_info_t info = record(plain, &w, program, steps, &graph);
    assert_int_equal(info.chains + info.dropped_calls, 0);
    assert_true(pool_nbytes <= info.pool_nbytes);
    assert_int_equal(info.pool_nbytes, info.recorded_pool_nbytes);
    fy_graph_destroy(graph);
    clear(&w, 0);
    fy_device_close(plain);
}

/* ---- plans ---- */

typedef struct planned {
    const program_t *program;
    uint64_t steps;
} planned_t;

static fy_status_t record_and_replay(fy_device_t *device, int64_t batch, void *user)
{
    const planned_t *planned = user;
    fy_graph_t *graph;
    world_t w;
    (void)batch;
    make_base(device, &w);
    (void)record(device, &w, planned->program, planned->steps, &graph);
    for (int i = 0; i < 2; i++) FY_TRY(fy_graph_replay(graph, NULL));
    change(device, &w, 1); /* takes memory that the end of the recording released */
    fy_graph_destroy(graph);
    clear(&w, 0);
    return FY_STATUS_OK;
}

/* The peak that a plan predicts is the real one, to the byte. */
static void expect_exact_plan(const program_t *program, uint64_t steps)
{
    planned_t planned = { program, steps };
    fy_plan_t plan = FY_PLAN_INIT;
    fy_memory_stats_t memory = FY_MEMORY_STATS_INIT;
    fy_device_t *device;
    ts_ok(fy_plan_step("sim:9", record_and_replay, &planned, 1, NULL, &plan));
    ts_ok(fy_device_open("sim:9", &device));
    ts_ok(record_and_replay(device, 1, &planned));
    ts_ok(fy_memory_query(device, NULL, &memory));
    assert_int_equal(plan.peak_live, memory.peak_live);
    assert_int_equal(plan.peak_reserved, memory.peak_reserved);
    fy_device_close(device);
}

static uint64_t run_program(ts_ctx_t *ctx, uint64_t seed)
{
    const program_t program = draw(seed);
    world_t eager, replayed;
    fy_graph_t *graph;
    make_base(ctx->device, &eager);
    make_base(ctx->device, &replayed);
    change(ctx->device, &eager, 0);
    const uint64_t steps = run(&eager, &program, UINT64_MAX); /* the accepted ones */
    clear(&eager, NBASE);
    const fy_graph_info_t info = record(ctx->device, &replayed, &program, steps, &graph);
    for (int i = NBASE; i < NTENSORS; i++)
        if (program.dropped >> i & 1) {
            fy_tensor_destroy(replayed.t[i]);
            replayed.t[i] = NULL;
        }
    change(ctx->device, &eager, 1);
    change(ctx->device, &replayed, 1);
    for (int round = 0; round < NREPLAYS; round++) {
        (void)run(&eager, &program, steps);
        ts_ok(fy_graph_replay(graph, NULL));
        for (int i = 0; i < NTENSORS; i++)
            if (replayed.t[i]) expect_same(eager.t[i], replayed.t[i], seed, i);
        expect_same(eager.rng, replayed.rng, seed, NTENSORS);
        clear(&eager, NBASE);
        if (round == 1) {
            change(ctx->device, &eager, 2);
            change(ctx->device, &replayed, 2);
        }
    }
    if (ctx->is_sim) expect_no_more_memory(&program, steps, info.pool_nbytes);
    if (ctx->is_sim) expect_exact_plan(&program, steps);
    fy_graph_destroy(graph);
    clear(&eager, 0);
    clear(&replayed, 0);
    return info.fused_calls;
}

TS_DEVICE_TEST(fused_graphs_have_the_same_bits)
{
    const char *count = getenv("FERRY_PROGRAMS"), *one = getenv("FERRY_SEED");
    const uint64_t nprograms = one && *one       ? 1
                               : count && *count ? strtoull(count, NULL, 0)
                                                 : 200,
                   first = ts_seed(1);
    uint64_t nfused = 0;
    for (uint64_t i = 0; i < nprograms; i++) nfused += run_program(ctx, first + i);
    print_message("           seeds %" PRIu64 " to %" PRIu64 ": %" PRIu64 " calls fused\n", first,
                  first + nprograms - 1, nfused);
    /* a program without chains proves nothing */
    assert_true(nfused > nprograms || nprograms == 1);
}

/* Each tensor has a segment of the graph's memory, so that a second layout pays. */
TS_DEVICE_TEST(large_tensors_have_the_same_bits)
{
    const int64_t before[] = { rows, columns, most };
    const uint64_t first = ts_seed(1);
    uint64_t nfused = 0;
    rows = 300;
    columns = 1024;
    most = rows * columns;
    for (uint64_t i = 0; i < 8; i++) nfused += run_program(ctx, first + i) != 0;
    rows = before[0];
    columns = before[1];
    most = before[2];
    assert_true(nfused > 0);
}
