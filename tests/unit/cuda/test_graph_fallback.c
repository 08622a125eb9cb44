/* Graphs on cuda that cannot be one request: a graph that cannot be captured is replayed call by
 * call, with the same bytes, and this is logged once. Every driver call of a capture and of a
 * launch fails once. And work of the program on the queue of Ferry's stream (fy_stream_native). Not
 * here: graphs that can be captured (test_graph.c). */
#include <pthread.h>

#include <cuda.h>
#include <cudaTypedefs.h>

#include "driver_call.h"
#include "graph_step.h"

static PFN_cuMemAlloc_v3020 driver_alloc;
static PFN_cuMemsetD8Async_v3020 driver_fill;

/* ---- registered ops ---- */

static int allocates_here, allocates_elsewhere, raises, nkernels;

static void *allocate(void *user)
{
    fy_tensor_t *t;
    /* more than the pool has */
    *(fy_status_t *)user = fy_zeros(device, FY_DTYPE_U8, FY_DIMS((64 << 20) * nkernels), &t);
    fy_tensor_destroy(t);
    return NULL;
}

/* dst = 0x40404040, by a call of the driver. */
static fy_status_t own_kernel(const fy_launch_t *launch, void *stream)
{
    fy_status_t status = FY_STATUS_OK;
    pthread_t thread;
    CUdeviceptr block = 0;
    nkernels++;
    if (launch->fault && raises) *launch->fault = 1; /* the host raises the flag */
    if (allocates_here && driver.fake_cuda_captures() && driver_alloc(&block, 64) != CUDA_SUCCESS)
        return fy_error_set(FY_STATUS_UNSUPPORTED, __FILE__, __LINE__,
                            "own kernel: no memory while a graph is captured");
    if (allocates_elsewhere) {
        pthread_create(&thread, NULL, allocate, &status);
        pthread_join(thread, NULL);
    }
    if (status != FY_STATUS_OK) return status;
    return driver_fill((CUdeviceptr)(uintptr_t)launch->dst[0].data, 0x40, launch->nelem * 4,
                       stream) == CUDA_SUCCESS
               ? FY_STATUS_OK
               : FY_STATUS_INTERNAL;
}

/* With or without bad values in its data. */
static fy_op_t own_op(int can_fault)
{
    static fy_op_t ops[2];
    static const fy_op_kernel_t kernels[] = { { "cuda", own_kernel, NULL } };
    const fy_op_def_t def = { .struct_size = sizeof def,
                              .info = &(fy_op_info_t){ .struct_size = sizeof(fy_op_info_t),
                                                       .name = can_fault ? "own_fault" : "own",
                                                       .summary = "fills",
                                                       .nsrc_min = 1,
                                                       .nsrc_max = 1,
                                                       .ndst = 1,
                                                       .flags = FY_OP_ELEMENTWISE |
                                                                (can_fault ? FY_OP_CAN_FAULT : 0),
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
    ts_ok(fy_op_call(own_op(can_fault), 1, &x, NULL, 0, 1, &dst));
    ts_ok(fy_add(dst, x, out_dst));
    ts_ok(fy_graph_end(&graph));
    return graph;
}

/* ---- the program's own work on Ferry's stream ---- */

/* Bytes that the program writes on the compute stream, between two requests of Ferry. */
TS_TEST(work_on_the_native_queue)
{
    const float base = 3.003921509f; /* 0x40404040 */
    void *address, *native = NULL, *again = NULL;
    fy_stream_t *stream;
    fy_tensor_t *x = ts_iota(device, FY_DIMS(4), 1), *sum;
    ts_ok(fy_stream_native(device, NULL, &native));
    assert_non_null(native);
    ts_ok(fy_tensor_begin_native_access(x, FY_ACCESS_WRITE, NULL, &address));
    assert_int_equal(driver_fill((CUdeviceptr)(uintptr_t)address, 0x40, 16, native), CUDA_SUCCESS);
    ts_ok(fy_add(x, x, &sum));
    ts_expect_f32(sum, (float[]){ 2 * base, 2 * base, 2 * base, 2 * base }, 4);
    ts_ok(fy_stream_create(device, NULL, &stream));
    ts_ok(fy_stream_native(device, stream, &again));
    assert_true(again && again != native);
    fy_stream_destroy(stream);
}

/* ---- graphs ---- */

/* A capture affects only this thread, so other threads continue: the mode is not GLOBAL. */
TS_TEST(others_allocate_while_it_is_captured)
{
    step_t s = { .graph = record_own(0, &s.out) };
    const int64_t allocated = driver.fake_cuda_calls("cuMemAlloc");
    allocates_elsewhere = 1;
    replay(&s, 2);
    allocates_elsewhere = 0;
    assert_true(driver.fake_cuda_calls("cuMemAlloc") > allocated + 1);
    expect_path(&s, FY_GRAPH_DEVICE, "");
    const int before = nkernels;
    replay(&s, 5);
    assert_int_equal(nkernels, before); /* the submitted kernel is in the graph */
    const float base = 3.003921509f;    /* 0x40404040 */
    ts_expect_f32(s.out, (float[]){ base + 1, base + 2, base + 3, base + 4 }, 4);
}

TS_TEST(uncapturable_graphs_are_replayed_by_calls)
{
    allocates_here = 1;
    step_t s = { .graph = record_own(0, &s.out) };
    replay(&s, 1);
    ts_fails(fy_graph_end(&(fy_graph_t *){ NULL }), INVALID_ARGUMENT);
    replay(&s, 3);
    ts_text_has("graph_end"); /* a successful call does not change the error record */
    allocates_here = 0;
    assert_int_equal(driver.fake_cuda_captures(), 0);
    assert_int_equal(driver.fake_cuda_live(FAKE_GRAPHS), 0);
    expect_path(&s, FY_GRAPH_CALLS, "no memory while a graph is captured");
    assert_int_equal(nlogged, 1);
    if (strstr(logged, "call by call from now on: own kernel") == NULL) fail_msg("'%s'", logged);
    const float base = 3.003921509f;
    ts_expect_f32(s.out, (float[]){ base + 1, base + 2, base + 3, base + 4 }, 4);
}

/* Between the first and the second replay, products of so many shapes ran that the graph's plan was
 * evicted. */
TS_TEST(evicted_plans_are_made_again)
{
    step_t s = record(1);
    replay(&s, 1);
    fy_scope_t scope = fy_scope_begin("others");
    for (int64_t n = 1; n <= 600; n++) {
        fy_tensor_t *a, *b, *c;
        ts_ok(fy_zeros(device, FY_DTYPE_F32, FY_DIMS(1, n), &a));
        ts_ok(fy_zeros(device, FY_DTYPE_F32, FY_DIMS(n, 1), &b));
        ts_ok(fy_matmul(a, b, &c));
    }
    fy_scope_end(scope, 0, NULL);
    replay(&s, 1);
    expect_path(&s, FY_GRAPH_CALLS, "choosing how to multiply while a graph is captured");
    assert_int_equal(driver.fake_cuda_captures(), 0);
    expect_called(&s, 2);
}

/* The host raises the flag at each submission. */
TS_TEST(registered_ops_that_can_fault)
{
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
    assert_int_equal(driver.fake_cuda_calls("cuStreamBeginCapture"),
                     driver.fake_cuda_calls("cuStreamEndCapture"));
    assert_int_equal(driver.fake_cuda_live(FAKE_GRAPH_EXECS), 0);
    assert_int_equal(nlogged, 0); /* known before the capture begins */
}

/* ---- failures ---- */

static const char *const captures[] = { "cuStreamCreateWithPriority",
                                        "cuStreamBeginCapture",
                                        "cuMemsetD8Async",
                                        "cuLaunchKernel",
                                        "cublasLtMatmul",
                                        "cuStreamEndCapture",
                                        "cuGraphInstantiateWithFlags",
                                        "cuGraphUpload" };

TS_TEST(each_call_of_a_capture_fails)
{
    for (size_t i = 0; i < sizeof captures / sizeof *captures; i++) {
        step_t s = record(1);
        const int64_t streams = driver.fake_cuda_live(FAKE_STREAMS);
        nlogged = 0;
        replay(&s, 1);
        driver.fake_cuda_fail(captures[i], 1, CUDA_ERROR_OUT_OF_MEMORY);
        replay(&s, 1);
        driver.fake_cuda_fail(NULL, 0, 0);
        expect_path(&s, FY_GRAPH_CALLS, captures[i]);
        assert_int_equal(nlogged, 1);
        assert_int_equal(driver.fake_cuda_captures(), 0);
        assert_int_equal(driver.fake_cuda_live(FAKE_STREAMS), streams);
        assert_int_equal(
            driver.fake_cuda_live(FAKE_GRAPHS) + driver.fake_cuda_live(FAKE_GRAPH_EXECS), 0);
        replay(&s, 2);
        assert_int_equal(nlogged, 1); /* logged once */
        expect_called(&s, 4);
        fy_graph_destroy(s.graph);
    }
}

TS_TEST(a_launch_that_fails_changes_nothing)
{
    step_t s = record(1);
    replay(&s, 3);
    const uint64_t version = ts_version(s.x);
    driver.fake_cuda_fail("cuGraphLaunch", 1, CUDA_ERROR_OUT_OF_MEMORY);
    ts_fails_with(fy_graph_replay(s.graph, NULL), OUT_OF_MEMORY, "cuGraphLaunch");
    assert_int_equal(ts_version(s.x), version);
    expect_called(&s, 3);
    replay(&s, 1);
    expect_called(&s, 4);
}

/* The graph runs, but it is not known whether it met bad values: its results are poisoned. */
TS_TEST(missing_flags_poison_the_results)
{
    step_t s = record(1);
    float x[16] = { 0 };
    replay(&s, 3);
    driver.fake_cuda_fail("cuLaunchKernel", 1, CUDA_ERROR_OUT_OF_MEMORY);
    ts_fails(fy_graph_replay(s.graph, NULL), OUT_OF_MEMORY);
    ts_fails_with(fy_tensor_download_into(ts_host_f32(FY_DIMS(4, 4), x), s.x, NULL), OUT_OF_MEMORY,
                  "are lost");
    ts_ok(fy_copy(s.x, ts_iota(device, FY_DIMS(4, 4), 1)));
    replay(&s, 1);
    expect_called(&s, 1);
}

TS_TEST(a_fatal_code_loses_the_device)
{
    static const char *const all[] = { "cuStreamBeginCapture", "cuStreamEndCapture",
                                       "cuGraphInstantiateWithFlags", "cuGraphUpload",
                                       "cuGraphLaunch" };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        fy_scope_t inner = fy_scope_begin("lost");
        step_t s = record(1);
        replay(&s, 1);
        driver.fake_cuda_fail(all[i], 1, CUDA_ERROR_ILLEGAL_ADDRESS);
        ts_fails(fy_graph_replay(s.graph, NULL), DEVICE_LOST);
        driver.fake_cuda_fail(NULL, 0, 0);
        ts_fails(fy_graph_replay(s.graph, NULL), DEVICE_LOST);
        fy_scope_end(inner, 0, NULL);
        fy_device_close(device);
        assert_int_equal(driver.fake_cuda_live(FAKE_STREAMS), 0);
        assert_int_equal(driver.fake_cuda_captures(), 0);
        assert_int_equal(
            driver.fake_cuda_live(FAKE_GRAPHS) + driver.fake_cuda_live(FAKE_GRAPH_EXECS), 0);
        ts_ok(fy_device_open("cuda:0", &device));
    }
}

static int prepare(void)
{
    prepare_logged();
    find_call("cuMemAlloc", 3020, &driver_alloc);
    find_call("cuMemsetD8Async", 3020, &driver_fill);
    return 0;
}

TS_SUITE(.set_up = setup, .tear_down = teardown, .prepare = prepare);
