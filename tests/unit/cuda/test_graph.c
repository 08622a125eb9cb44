/* Graphs on cuda, through the public API over the fake driver: a steady replay is one cuGraphLaunch and little else; whose thread and whose
 * stream does not matter; what cannot be captured is replayed call by call, with the same bytes; every driver call fails once.
 * Not here: what graphs do on every device (tests/conformance/test_conformance_graph.c, which runs over the fake driver, too). */
#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

#include <cuda.h>
#include <cudaTypedefs.h>

#include "tests/support/fake_cuda/fake_cuda.h"
#include "tests/support/harness.h"

static struct {
#define X(result, name, parameters) result(*name) parameters;
    FAKE_CUDA_LIST(X)
#undef X
    PFN_cuMemAlloc_v3020 alloc;
    PFN_cuMemsetD8Async_v3020 fill;
} fake;

static fy_device_t *device;
static int nlogged;
static char logged[512];

static void note_log(void *user, fy_log_level_t level, const char *text)
{
    (void)user, (void)level;
    nlogged++;
    snprintf(logged, sizeof logged, "%s", text);
}

/* ---- what is recorded ---- */

typedef struct step {
    fy_graph_t *graph;
    fy_tensor_t *x, *w, *indices, *out;
} step_t;

/* x = tanh(x @ w) with a sum; `gathers`: of rows that indices name, so that it can meet bad values. */
static step_t record(int gathers)
{
    step_t s = { .x = ts_iota(device, FY_DIMS(4, 4), 1) };
    fy_tensor_t *rows = s.x, *product, *t;
    ts_ok(fy_full(device, FY_DTYPE_F32, FY_DIMS(4, 4), 0.01, &s.w));
    ts_ok(fy_arange(device, FY_DTYPE_I64, 0, 1, 4, &s.indices));
    ts_ok(fy_graph_begin(device));
    if (gathers) ts_ok(fy_gather(s.x, s.indices, &rows));
    ts_ok(fy_matmul(rows, s.w, &product));
    ts_ok(fy_tanh(product, &t));
    ts_ok(fy_axpy(s.x, 1, t));
    ts_ok(fy_sum(s.x, FY_ALL_AXES, 0, &s.out));
    ts_ok(fy_graph_end(&s.graph));
    return s;
}

static void call(const step_t *s, fy_tensor_t **out_out)
{
    fy_tensor_t *rows, *product, *t;
    ts_ok(fy_gather(s->x, s->indices, &rows));
    ts_ok(fy_matmul(rows, s->w, &product));
    ts_ok(fy_tanh(product, &t));
    ts_ok(fy_axpy(s->x, 1, t));
    ts_ok(fy_sum(s->x, FY_ALL_AXES, 0, out_out));
}

/* Did `n` replays do what as many calls do? */
static void expect_called(const step_t *s, int n)
{
    step_t called = { .x = ts_iota(device, FY_DIMS(4, 4), 1), .w = s->w, .indices = s->indices };
    float want[17], got[17];
    for (int i = 0; i < n; i++) call(&called, &called.out);
    ts_read(called.x, want, 64);
    ts_read(called.out, want + 16, 4);
    ts_read(s->x, got, 64);
    ts_read(s->out, got + 16, 4);
    assert_memory_equal(got, want, sizeof got);
}

static void expect_path(const step_t *s, fy_graph_path_t path, const char *reason)
{
    fy_graph_info_t info = FY_GRAPH_INFO_INIT;
    ts_ok(fy_graph_query(s->graph, &info));
    if (info.path != path || strstr(info.reason, reason) == NULL || (info.path == FY_GRAPH_DEVICE) != (info.reason[0] == '\0'))
        fail_msg("path %d, reason '%s'; expected %d, '%s'", (int)info.path, info.reason, (int)path, reason);
}

static void replay(const step_t *s, int n)
{
    for (int i = 0; i < n; i++) ts_ok(fy_graph_replay(s->graph, NULL));
}

/* ---- the calls of a replay ---- */

static const char *const watched[] = { "cuGraphLaunch",       "cuLaunchKernel",     "cublasLtMatmul",  "cuMemcpyHtoDAsync",
                                       "cuMemcpyDtoHAsync",   "cuMemsetD8Async",    "cuMemAlloc",      "cuEventRecord",
                                       "cuEventQuery",        "cuEventSynchronize", "cuCtxGetCurrent", "cuStreamWaitEvent",
                                       "cuStreamBeginCapture" };
enum { NWATCHED = sizeof watched / sizeof *watched, LAUNCHES = 0, KERNELS = 1, RECORDS = 7, QUERIES = 8, CURRENTS = 10 };

static void count_calls(int64_t counts[NWATCHED + 1])
{
    for (int i = 0; i < NWATCHED; i++) counts[i] = fake.fake_cuda_calls(watched[i]);
    counts[NWATCHED] = fake.fake_cuda_all_calls();
}

/* Steady replays, fewer than there are fault flags to take: what each calls. The program has no context current, so Ferry's is pushed and
 * popped. */
enum { STEADY = 40 };

static void steady(const step_t *s, int has_events, int64_t out_each[NWATCHED + 1])
{
    int64_t before[NWATCHED + 1], after[NWATCHED + 1];
    replay(s, 2);
    ts_ok(fy_device_wait(device, FY_FOREVER));
    count_calls(before);
    replay(s, STEADY);
    count_calls(after);
    for (int i = 0; i <= NWATCHED; i++) {
        if (has_events && (i == QUERIES || i == CURRENTS || i == NWATCHED)) /* now and then one is looked at */
            after[i] -= (after[i] - before[i]) % STEADY;
        out_each[i] = (after[i] - before[i]) / STEADY;
        if ((after[i] - before[i]) % STEADY != 0)
            fail_msg("%lld %s in %d replays", (long long)(after[i] - before[i]), i < NWATCHED ? watched[i] : "driver calls", STEADY);
    }
}

static void a_steady_replay_is_one_launch(void **state)
{
    (void)state;
    int64_t each[NWATCHED + 1];
    step_t s = record(0);
    steady(&s, 0, each);
    for (int i = 0; i < NWATCHED; i++)
        if (each[i] != (i == LAUNCHES || i == CURRENTS)) fail_msg("%lld %s a replay", (long long)each[i], watched[i]);
    assert_int_equal(each[NWATCHED], 4); /* with push and pop: nothing that is not watched */
    expect_path(&s, FY_GRAPH_DEVICE, "");
    expect_called(&s, 2 + STEADY);
}

/* Flags of bad values come to the host with a kernel behind the graph, however many ops have one. Somebody will ask: an event behind it. */
static void flags_are_one_kernel_more(void **state)
{
    (void)state;
    int64_t each[NWATCHED + 1];
    step_t s = record(1);
    steady(&s, 1, each);
    for (int i = 0; i < NWATCHED; i++) {
        const int64_t most = i == CURRENTS ? 4 : i == LAUNCHES || i == KERNELS || i == RECORDS || i == QUERIES;
        if (each[i] > most || (i != QUERIES && i != CURRENTS && each[i] != most))
            fail_msg("%lld %s a replay", (long long)each[i], watched[i]);
    }
    expect_called(&s, 2 + STEADY);
}

static void the_first_replay_makes_what_is_made_once(void **state)
{
    (void)state;
    step_t s = record(1);
    const int64_t begun = fake.fake_cuda_calls("cuStreamBeginCapture"), launched = fake.fake_cuda_calls("cuGraphLaunch");
    expect_path(&s, FY_GRAPH_CALLS, "with the second replay");
    replay(&s, 1);
    assert_int_equal(fake.fake_cuda_calls("cuStreamBeginCapture"), begun);
    assert_int_equal(fake.fake_cuda_live(FAKE_GRAPH_EXECS), 0);
    replay(&s, 1);
    assert_int_equal(fake.fake_cuda_calls("cuStreamBeginCapture"), begun + 1);
    assert_int_equal(fake.fake_cuda_calls("cuGraphLaunch"), launched + 1);
    assert_int_equal(fake.fake_cuda_live(FAKE_GRAPH_EXECS), 1);
    assert_int_equal(fake.fake_cuda_live(FAKE_GRAPHS), 0); /* the description is not needed any more */
    assert_int_equal(fake.fake_cuda_captures(), 0);
    assert_int_equal(nlogged, 0);
    expect_called(&s, 2);
    fy_graph_destroy(s.graph);
    assert_int_equal(fake.fake_cuda_live(FAKE_GRAPH_EXECS), 0);
}

static void two_graphs_in_turn(void **state)
{
    (void)state;
    step_t a = record(1), b = record(1);
    for (int i = 0; i < 5; i++) {
        replay(&a, 1);
        replay(&b, 2);
    }
    expect_called(&a, 5);
    expect_called(&b, 10);
    assert_int_equal(fake.fake_cuda_live(FAKE_GRAPH_EXECS), 2);
}

static void bad_values_are_found_each_time(void **state)
{
    (void)state;
    step_t s = record(1);
    fy_ticket_t ticket;
    float x[16] = { 0 };
    for (int i = 0; i < 8; i++) {
        ts_ok(fy_fill(s.indices, i % 2 ? 4 : 0)); /* rows 0 .. 3 */
        ts_ok(fy_graph_replay(s.graph, &ticket));
        if (!(i % 2)) {
            ts_ok(fy_ticket_wait(ticket, FY_FOREVER));
            continue;
        }
        ts_fails(fy_ticket_wait(ticket, FY_FOREVER), BAD_VALUE);
        ts_text_has("0 .. 3");
        ts_fails(fy_tensor_download_into(ts_host_f32(FY_DIMS(4, 4), x), s.x, NULL), BAD_VALUE);
        fy_tensor_t *fresh = ts_iota(device, FY_DIMS(4, 4), 1);
        ts_ok(fy_copy(s.x, fresh));
    }
    expect_path(&s, FY_GRAPH_DEVICE, "");
}

/* ---- threads and streams ---- */

static void *replay_there(void *user)
{
    fy_scope_t scope = fy_scope_begin("thread");
    fy_stream_t *stream;
    ts_ok(fy_stream_create(device, NULL, &stream));
    ts_ok(fy_stream_use(stream));
    replay(user, 3); /* the second captures */
    ts_ok(fy_device_wait(device, FY_FOREVER));
    fy_scope_end(scope, 0, NULL);
    return NULL;
}

static void another_thread_and_another_stream(void **state)
{
    (void)state;
    step_t s = record(1);
    pthread_t thread;
    pthread_create(&thread, NULL, replay_there, &s);
    pthread_join(thread, NULL);
    expect_path(&s, FY_GRAPH_DEVICE, "");
    replay(&s, 2);
    expect_called(&s, 5);
}

/* A graph waits for who wrote what it reads, and is waited for, outside of it. */
static void order_with_other_streams(void **state)
{
    (void)state;
    step_t s = record(0);
    fy_stream_t *other;
    fy_tensor_t *sum;
    replay(&s, 3);
    ts_ok(fy_stream_create(device, NULL, &other));
    ts_ok(fy_device_wait(device, FY_FOREVER));
    fake.fake_cuda_hold(1); /* so that nothing is known to be done */
    fake.fake_cuda_trace(1);
    fy_scope_t scope = fy_scope_begin("other");
    ts_ok(fy_stream_use(other));
    ts_ok(fy_axpy(s.w, 0, s.w));
    fy_scope_end(scope, 0, NULL);
    replay(&s, 1);
    scope = fy_scope_begin("other");
    ts_ok(fy_stream_use(other));
    ts_ok(fy_add(s.out, s.out, &sum));
    fy_scope_end(scope, 0, NULL);
    char order[256] = "";
    const char *at = fake.fake_cuda_traced();
    for (const char *end; (end = strchr(at, ' ')); at = end + 1)
        if (strncmp(at, "cuCtx", 5) != 0 && strncmp(at, "cuEventCreate", 13) != 0 && strlen(order) + 64 < sizeof order)
            strncat(order, at, (size_t)(end - at) + 1);
    fake.fake_cuda_trace(0);
    fake.fake_cuda_hold(0);
    /* The last event is for whoever waits for what ran behind another stream's work. */
    assert_string_equal(order,
                        "cuLaunchKernel cuEventRecord cuStreamWaitEvent cuGraphLaunch cuEventRecord cuStreamWaitEvent cuLaunchKernel "
                        "cuEventRecord ");
    expect_called(&s, 4);
}

static void destroyed_while_it_runs(void **state)
{
    (void)state;
    step_t s = record(1);
    replay(&s, 3);
    fake.fake_cuda_hold(1);
    replay(&s, 1);
    fy_graph_destroy(s.graph);
    assert_int_equal(fake.fake_cuda_live(FAKE_GRAPH_EXECS), 0);
    fake.fake_cuda_hold(0);
    expect_called(&s, 4);
}

/* ---- ops of one's own ---- */

static int allocates_here, allocates_elsewhere, raises, nkernels;

static void *allocate(void *user)
{
    fy_tensor_t *t;
    *(fy_status_t *)user = fy_zeros(device, FY_DTYPE_U8, FY_DIMS((64 << 20) * nkernels), &t); /* more than the pool has */
    fy_tensor_destroy(t);
    return NULL;
}

/* dst = 0x40404040, by the driver's own call. */
static fy_status_t own_kernel(const fy_launch_t *launch, void *stream)
{
    fy_status_t status = FY_STATUS_OK;
    pthread_t thread;
    CUdeviceptr block = 0;
    nkernels++;
    if (launch->fault && raises) *launch->fault = 1; /* the host's own judgement */
    if (allocates_here && fake.fake_cuda_captures() && fake.alloc(&block, 64) != CUDA_SUCCESS)
        return fy_error_set(FY_STATUS_UNSUPPORTED, __FILE__, __LINE__, "own kernel: no memory while a graph is captured");
    if (allocates_elsewhere) {
        pthread_create(&thread, NULL, allocate, &status);
        pthread_join(thread, NULL);
    }
    if (status != FY_STATUS_OK) return status;
    return fake.fill((CUdeviceptr)(uintptr_t)launch->dst[0].data, 0x40, launch->nelem * 4, stream) == CUDA_SUCCESS ? FY_STATUS_OK
                                                                                                                   : FY_STATUS_INTERNAL;
}

/* With bad values in its data, or not. */
static fy_op_t own_op(int can_fault)
{
    static fy_op_t ops[2];
    static const fy_op_kernel_t kernels[] = { { "cuda", own_kernel } };
    const fy_op_def_t def = { .struct_size = sizeof def,
                              .info = { .struct_size = sizeof def.info,
                                        .name = can_fault ? "own_fault" : "own",
                                        .summary = "fills",
                                        .nsrc_min = 1,
                                        .nsrc_max = 1,
                                        .ndst = 1,
                                        .flags = FY_OP_ELEMENTWISE | (can_fault ? FY_OP_CAN_FAULT : 0),
                                        .dtypes = FY_DTYPE_BIT(FY_DTYPE_F32) },
                              .nkernels = 1,
                              .kernels = kernels };
    if (!ops[can_fault]) ts_ok(fy_op_register(&def, &ops[can_fault]));
    return ops[can_fault];
}

static fy_graph_t *record_own(int can_fault, fy_tensor_t **out_dst)
{
    fy_graph_t *graph;
    fy_tensor_t *x = ts_iota(device, FY_DIMS(4), 1), *dst = NULL;
    ts_ok(fy_graph_begin(device));
    ts_ok(fy_op_call(own_op(can_fault), 1, &x, NULL, 1, &dst));
    ts_ok(fy_add(dst, x, out_dst));
    ts_ok(fy_graph_end(&graph));
    return graph;
}

/* While a graph is captured, on this thread only, others go on: the mode is not GLOBAL. */
static void others_allocate_while_it_is_captured(void **state)
{
    (void)state;
    step_t s = { .graph = record_own(0, &s.out) };
    const int64_t allocated = fake.fake_cuda_calls("cuMemAlloc");
    allocates_elsewhere = 1;
    replay(&s, 2);
    allocates_elsewhere = 0;
    assert_true(fake.fake_cuda_calls("cuMemAlloc") > allocated + 1);
    expect_path(&s, FY_GRAPH_DEVICE, "");
    const int before = nkernels;
    replay(&s, 5);
    assert_int_equal(nkernels, before); /* what it submitted is in the graph */
    const float base = 3.003921509f;    /* 0x40404040 */
    ts_expect_f32(s.out, (float[]){ base + 1, base + 2, base + 3, base + 4 }, 4);
}

static void what_cannot_be_captured_is_called(void **state)
{
    (void)state;
    allocates_here = 1;
    step_t s = { .graph = record_own(0, &s.out) };
    replay(&s, 1);
    ts_fails(fy_graph_end(&(fy_graph_t *){ NULL }), INVALID_ARGUMENT);
    replay(&s, 3);
    ts_text_has("graph_end"); /* a call that succeeds leaves the record alone */
    allocates_here = 0;
    assert_int_equal(fake.fake_cuda_captures(), 0);
    assert_int_equal(fake.fake_cuda_live(FAKE_GRAPHS), 0);
    expect_path(&s, FY_GRAPH_CALLS, "no memory while a graph is captured");
    assert_int_equal(nlogged, 1);
    if (strstr(logged, "call by call from now on: own kernel") == NULL) fail_msg("'%s'", logged);
    const float base = 3.003921509f;
    ts_expect_f32(s.out, (float[]){ base + 1, base + 2, base + 3, base + 4 }, 4);
}

/* Between the first replay and the second so many shapes were multiplied that the graph's plan was dropped. */
static void plans_that_are_gone(void **state)
{
    (void)state;
    step_t s = record(1);
    replay(&s, 1);
    fy_scope_t scope = fy_scope_begin("others");
    for (int64_t n = 1; n <= 300; n++) {
        fy_tensor_t *a, *b, *c;
        ts_ok(fy_zeros(device, FY_DTYPE_F32, FY_DIMS(1, n), &a));
        ts_ok(fy_zeros(device, FY_DTYPE_F32, FY_DIMS(n, 1), &b));
        ts_ok(fy_matmul(a, b, &c));
    }
    fy_scope_end(scope, 0, NULL);
    replay(&s, 1);
    expect_path(&s, FY_GRAPH_CALLS, "choosing how to multiply while a graph is captured");
    assert_int_equal(fake.fake_cuda_captures(), 0);
    expect_called(&s, 2);
}

/* Its flag is raised on the host at submission, each time anew. */
static void ops_of_ones_own_that_can_fault(void **state)
{
    (void)state;
    step_t s = { .graph = record_own(1, &s.out) };
    fy_ticket_t ticket;
    expect_path(&s, FY_GRAPH_CALLS, "a registered op in it can meet bad values");
    for (int i = 0; i < 6; i++) {
        raises = i % 2;
        ts_ok(fy_graph_replay(s.graph, &ticket));
        if (raises)
            ts_fails(fy_ticket_wait(ticket, FY_FOREVER), BAD_VALUE);
        else
            ts_ok(fy_ticket_wait(ticket, FY_FOREVER));
    }
    raises = 0;
    assert_int_equal(fake.fake_cuda_calls("cuStreamBeginCapture"), fake.fake_cuda_calls("cuStreamEndCapture"));
    assert_int_equal(fake.fake_cuda_live(FAKE_GRAPH_EXECS), 0);
    assert_int_equal(nlogged, 0); /* known from the begin */
}

/* ---- failures ---- */

static const char *const captures[] = {
    "cuStreamCreateWithPriority", "cuStreamBeginCapture",        "cuMemsetD8Async", "cuLaunchKernel", "cublasLtMatmul",
    "cuStreamEndCapture",         "cuGraphInstantiateWithFlags", "cuGraphUpload"
};

static void each_call_of_a_capture_fails(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof captures / sizeof *captures; i++) {
        step_t s = record(1);
        const int64_t streams = fake.fake_cuda_live(FAKE_STREAMS);
        nlogged = 0;
        replay(&s, 1);
        fake.fake_cuda_fail(captures[i], 1, CUDA_ERROR_OUT_OF_MEMORY);
        replay(&s, 1);
        fake.fake_cuda_fail(NULL, 0, 0);
        expect_path(&s, FY_GRAPH_CALLS, captures[i]);
        assert_int_equal(nlogged, 1);
        assert_int_equal(fake.fake_cuda_captures(), 0);
        assert_int_equal(fake.fake_cuda_live(FAKE_STREAMS), streams);
        assert_int_equal(fake.fake_cuda_live(FAKE_GRAPHS) + fake.fake_cuda_live(FAKE_GRAPH_EXECS), 0);
        replay(&s, 2);
        assert_int_equal(nlogged, 1); /* said once */
        expect_called(&s, 4);
        fy_graph_destroy(s.graph);
    }
}

static void a_launch_that_fails_changes_nothing(void **state)
{
    (void)state;
    step_t s = record(1);
    replay(&s, 3);
    const uint64_t version = ts_version(s.x);
    fake.fake_cuda_fail("cuGraphLaunch", 1, CUDA_ERROR_OUT_OF_MEMORY);
    ts_fails(fy_graph_replay(s.graph, NULL), OUT_OF_MEMORY);
    ts_text_has("cuGraphLaunch");
    assert_int_equal(ts_version(s.x), version);
    expect_called(&s, 3);
    replay(&s, 1);
    expect_called(&s, 4);
}

/* The graph runs, and whether it met bad values is not known: nobody may take its results for good. */
static void flags_that_do_not_come(void **state)
{
    (void)state;
    step_t s = record(1);
    float x[16] = { 0 };
    replay(&s, 3);
    fake.fake_cuda_fail("cuLaunchKernel", 1, CUDA_ERROR_OUT_OF_MEMORY);
    ts_fails(fy_graph_replay(s.graph, NULL), OUT_OF_MEMORY);
    ts_fails(fy_tensor_download_into(ts_host_f32(FY_DIMS(4, 4), x), s.x, NULL), OUT_OF_MEMORY);
    ts_text_has("is lost");
    ts_ok(fy_copy(s.x, ts_iota(device, FY_DIMS(4, 4), 1)));
    replay(&s, 1);
    expect_called(&s, 1);
}

static void a_fatal_code_loses_the_device(void **state)
{
    (void)state;
    static const char *const all[] = { "cuStreamBeginCapture", "cuStreamEndCapture", "cuGraphInstantiateWithFlags", "cuGraphUpload",
                                       "cuGraphLaunch" };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        fy_scope_t inner = fy_scope_begin("lost");
        step_t s = record(1);
        replay(&s, 1);
        fake.fake_cuda_fail(all[i], 1, CUDA_ERROR_ILLEGAL_ADDRESS);
        ts_fails(fy_graph_replay(s.graph, NULL), DEVICE_LOST);
        fake.fake_cuda_fail(NULL, 0, 0);
        ts_fails(fy_graph_replay(s.graph, NULL), DEVICE_LOST);
        fy_scope_end(inner, 0, NULL);
        fy_device_close(device);
        assert_int_equal(fake.fake_cuda_live(FAKE_STREAMS), 0);
        assert_int_equal(fake.fake_cuda_captures(), 0);
        assert_int_equal(fake.fake_cuda_live(FAKE_GRAPHS) + fake.fake_cuda_live(FAKE_GRAPH_EXECS), 0);
        ts_ok(fy_device_open("cuda:0", &device));
    }
}

/* ---- the program ---- */

static int setup(void **state)
{
    fy_scope_t *scope = malloc(sizeof *scope);
    ts_ok(fy_device_open("cuda:0", &device));
    *scope = fy_scope_begin("test");
    *state = scope;
    nlogged = 0;
    return 0;
}

static int teardown(void **state)
{
    fake.fake_cuda_fail(NULL, 0, 0);
    fake.fake_cuda_hold(0);
    fy_scope_end(*(fy_scope_t *)*state, 0, NULL);
    free(*state);
    fy_device_close(device);
    for (int kind = 0; kind < FAKE_LIVE; kind++)
        if (fake.fake_cuda_live(kind) != 0) fail_msg("%lld objects of kind %d are left", (long long)fake.fake_cuda_live(kind), kind);
    assert_int_equal(fake.fake_cuda_leaked(), 0);
    assert_int_equal(fake.fake_cuda_misuses(), 0);
    return 0;
}

static void *need_symbol(void *library, const char *name)
{
    void *symbol = library ? dlsym(library, name) : NULL;
    if (symbol) return symbol;
    fprintf(stderr, "%s is missing\n", name);
    exit(1);
}

static int load_or_skip(void)
{
    static char path[1024];
    const char *build = getenv("FERRY_BUILD_DIR");
    snprintf(path, sizeof path, "%s/lib/ferry/libferry_cuda.so", build ? build : "build");
    if (access(path, R_OK) != 0) {
        printf("SKIP: the CUDA plugin was not built (%s is not there): no nvcc, or FERRY_CUDA=OFF\n", path);
        return 77;
    }
    snprintf(path, sizeof path, "%s/lib/tests/libfake_cuda.so", build ? build : "build");
    setenv("FERRY_CUDA_DRIVER", path, 1);
    setenv("FERRY_CUBLASLT", path, 1);
    setenv("FERRY_CUDNN", "none", 1); /* a real one would not know the fake driver */
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL), *symbol;
#define X(result, name, parameters)       \
    symbol = need_symbol(library, #name); \
    memcpy(&fake.name, &symbol, sizeof symbol);
    FAKE_CUDA_LIST(X)
#undef X
    PFN_cuGetProcAddress_v12000 get;
    symbol = need_symbol(library, "cuGetProcAddress_v2");
    memcpy(&get, &symbol, sizeof symbol);
    if (get("cuMemAlloc", &symbol, 3020, 0, NULL) != CUDA_SUCCESS) return 1;
    memcpy(&fake.alloc, &symbol, sizeof symbol);
    if (get("cuMemsetD8Async", &symbol, 3020, 0, NULL) != CUDA_SUCCESS) return 1;
    memcpy(&fake.fill, &symbol, sizeof symbol);
    fy_log_set(note_log, NULL);
    return 0;
}

int main(void)
{
    const int code = load_or_skip();
    if (code) return code;
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_steady_replay_is_one_launch),
        TEST(flags_are_one_kernel_more),
        TEST(the_first_replay_makes_what_is_made_once),
        TEST(two_graphs_in_turn),
        TEST(bad_values_are_found_each_time),
        TEST(another_thread_and_another_stream),
        TEST(destroyed_while_it_runs),
        TEST(others_allocate_while_it_is_captured),
        TEST(what_cannot_be_captured_is_called),
        TEST(ops_of_ones_own_that_can_fault),
        TEST(plans_that_are_gone),
        TEST(order_with_other_streams),
        TEST(each_call_of_a_capture_fails),
        TEST(a_launch_that_fails_changes_nothing),
        TEST(flags_that_do_not_come),
        TEST(a_fatal_code_loses_the_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
