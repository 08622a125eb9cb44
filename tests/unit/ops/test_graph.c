/* Graphs from inside: recordings of unusual calls (several results, given ones, accumulate,
 * scratch), growth of the lists, threads, the watch, invariants of the memory, the model clock.
 * Not here: graphs as users see them (tests/conformance/test_graph.c), running out of
 * memory (tests/faults/test_graph.c). */
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/harness.h"

#include "ops/dispatch.h"
#include "ops/graph.h"
#include "runtime/tensor/tensor.h"

static void expect_same(const fy_tensor_t *a, const fy_tensor_t *b)
{
    static unsigned char bytes[2][1 << 16];
    const size_t nbytes = ts_info(a).nbytes;
    assert_true(nbytes <= sizeof bytes[0]);
    ts_read(a, bytes[0], nbytes);
    ts_read(b, bytes[1], nbytes);
    assert_memory_equal(bytes[0], bytes[1], nbytes);
}

static fy_graph_t *end(void)
{
    fy_graph_t *graph = ts_graph_end();
    assert_true(fy__pool_is_valid(graph->recording.memory->pool));
    return graph;
}

TS_DEVICE_TEST(given_results_and_accumulate)
{
    fy_tensor_t *x = ts_iota(ctx->device, FY_DIMS(4, 4), 1), *into[2], *sum[2];
    const fy_matmul_attrs_t attrs = { 0, 1 };
    fy_graph_t *graph = NULL;
    for (int i = 0; i < 2; i++) {
        ts_ok(fy_zeros(ctx->device, FY_DTYPE_F32, FY_DIMS(4, 4), &into[i]));
        ts_ok(fy_zeros(ctx->device, FY_DTYPE_F32, FY_DIMS(4, 4), &sum[i]));
        if (i) ts_ok(fy_graph_begin(ctx->device));
        for (int step = 0; step < (i ? 1 : 3); step++) {
            ts_ok(fy_op_call(FY_OP_ADD, 2, (fy_tensor_t *[]){ into[i], x }, NULL, 0, 1, &into[i]));
            const fy_tensor_t *src[] = { into[i], x };
            /* added */
            ts_ok(fy__dispatch(fy__op_row(FY_OP_MATMUL), 2, src, &attrs, 1, 1, &sum[i]));
        }
    }
    graph = end();
    for (int step = 0; step < 3; step++) ts_ok(fy_graph_replay(graph, NULL));
    expect_same(into[0], into[1]);
    expect_same(sum[0], sum[1]);
}

/* Products of half precision need scratch in the host's kernels. */
TS_DEVICE_TEST(scratch_belongs_to_the_graph)
{
    fy_tensor_t *wide = ts_iota(ctx->device, FY_DIMS(64, 64), 1), *x, *first, *second, *t;
    ts_ok(fy_affine(wide, 1e-4, 0, &wide));
    ts_ok(fy_cast(wide, FY_DTYPE_BF16, &x));
    ts_ok(fy_matmul(x, x, &t));
    ts_ok(fy_matmul(t, x, &first));
    ts_ok(fy_graph_begin(ctx->device));
    ts_ok(fy_matmul(x, x, &t));
    ts_ok(fy_matmul(t, x, &second));
    fy_graph_t *graph = end();
    for (int i = 0; i < 3; i++) ts_ok(fy_graph_replay(graph, NULL));
    expect_same(first, second);
}

/* Enough calls to grow every list, with storages that are freed and allocated at the same
 * addresses. */
TS_DEVICE_TEST(a_long_recording)
{
    fy_tensor_t *x = ts_iota(ctx->device, FY_DIMS(4), 0), *fixed[300], *now, *next;
    for (int i = 0; i < 300; i++)
        ts_ok(fy_full(ctx->device, FY_DTYPE_F32, FY_DIMS(4), i % 3 - 1, &fixed[i]));
    ts_ok(fy_graph_begin(ctx->device));
    ts_ok(fy_affine(x, 1, 0, &now));
    for (int i = 0; i < 3000; i++) {
        ts_ok(fy_add(now, fixed[i % 300], &next));
        fy_tensor_destroy(now);
        now = next;
    }
    fy_graph_t *graph = end();
    assert_int_equal(graph->recording.requests, 3001);
    assert_int_equal(graph->recording.nlive, 302); /* x, the fixed ones, the last */
    fy_graph_info_t info = FY_GRAPH_INFO_INIT;
    ts_ok(fy_graph_query(graph, &info));
    assert_int_equal(info.pool_nbytes, 1 << 20);
    ts_ok(fy_graph_replay(graph, NULL));
    ts_expect_f32(now, (float[]){ 0, 1, 2, 3 }, 4);
}

typedef struct job {
    fy_graph_t *graph;
    int times;
    fy_status_t status;
} job_t;

static void *replay_there(void *user)
{
    job_t *job = user;
    for (int i = 0; i < job->times && job->status == FY_STATUS_OK; i++)
        job->status = fy_graph_replay(job->graph, NULL);
    return NULL;
}

/* Each job in its own thread. */
static void replay_all(job_t *jobs, int count)
{
    pthread_t threads[8];
    for (int i = 0; i < count; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, replay_there, &jobs[i]), 0);
    for (int i = 0; i < count; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < count; i++) assert_int_equal(jobs[i].status, FY_STATUS_OK);
}

TS_DEVICE_TEST(other_threads_replay)
{
    enum { THREADS = 3, TIMES = 50 };
    fy_tensor_t *x = ts_iota(ctx->device, FY_DIMS(4), 1), *y[THREADS];
    job_t jobs[THREADS];
    for (int i = 0; i < THREADS; i++) {
        fy_tensor_t *t;
        y[i] = ts_iota(ctx->device, FY_DIMS(4), 0);
        ts_ok(fy_graph_begin(ctx->device));
        ts_ok(fy_affine(x, i + 1, 0, &t)); /* they share what they read */
        ts_ok(fy_axpy(y[i], 1, t));
        jobs[i] = (job_t){ end(), TIMES, FY_STATUS_OK };
        fy_graph_keep(jobs[i].graph);
    }
    replay_all(jobs, THREADS);
    for (int i = 0; i < THREADS; i++) {
        float want[4];
        for (int j = 0; j < 4; j++) want[j] = (float)(j + (j + 1) * (i + 1) * TIMES);
        ts_expect_f32(y[i], want, 4);
        fy_graph_destroy(jobs[i].graph);
    }
}

/* Each takes as many fault flags as a replay may: together more than exist. No replay is refused
 * for that. */
TS_DEVICE_TEST(many_threads_replay_gathers)
{
    enum { THREADS = 8, TIMES = 100, GATHERS = FY__RECORDING_FAULTS + 4 };
    fy_tensor_t *table = ts_iota(ctx->device, FY_DIMS(4), 1), *indices, *y[THREADS];
    job_t jobs[THREADS];
    ts_ok(fy_arange(ctx->device, FY_DTYPE_I64, 0, 1, 2, &indices));
    for (int i = 0; i < THREADS; i++) {
        ts_ok(fy_graph_begin(ctx->device));
        for (int j = 0; j < GATHERS; j++) ts_ok(fy_gather(table, indices, &y[i]));
        jobs[i] = (job_t){ end(), TIMES, FY_STATUS_OK };
        fy_graph_keep(jobs[i].graph);
    }
    replay_all(jobs, THREADS);
    for (int i = 0; i < THREADS; i++) {
        ts_expect_f32(y[i], (float[]){ 1, 2 }, 2);
        fy_graph_destroy(jobs[i].graph);
    }
}

static void *record_and_end(void *user)
{
    job_t *job = user;
    fy_device_t *device = (fy_device_t *)job->graph;
    fy_tensor_t *x = NULL, *y = NULL;
    job->status = fy_zeros(device, FY_DTYPE_F32, FY_DIMS(4), &x);
    if (job->status == FY_STATUS_OK) job->status = fy_graph_begin(device); /* outside any scope */
    if (job->status == FY_STATUS_OK) job->status = fy_neg(x, &y);
    fy_tensor_destroy(x);
    fy_tensor_destroy(y);
    return NULL;
}

TS_DEVICE_TEST(a_thread_ends_with_its_recording)
{
    const uint64_t watching = fy__watching(), live = ts_live(ctx->device);
    pthread_t thread;
    job_t job = { (fy_graph_t *)ctx->device, 0, FY_STATUS_OK };
    assert_int_equal(pthread_create(&thread, NULL, record_and_end, &job), 0);
    pthread_join(thread, NULL);
    assert_int_equal(job.status, FY_STATUS_OK);
    assert_int_equal(fy__watching(), watching); /* no watch is active any more */
    assert_int_equal(ts_live(ctx->device), live);
}

static void *destroy_there(void *tensor)
{
    fy_tensor_destroy(tensor);
    return NULL;
}

/* Another thread may destroy a tensor made in a recording; its bytes are freed all the same. */
TS_DEVICE_TEST(another_thread_destroys)
{
    fy_tensor_t *x = ts_iota(ctx->device, FY_DIMS(50000), 0), *t, *sum;
    ts_ok(fy_zeros(ctx->device, FY_DTYPE_F32, 0, NULL, &sum));
    ts_ok(fy_graph_begin(ctx->device));
    for (int i = 0; i < 20; i++) {
        pthread_t thread;
        fy_tensor_t *all;
        ts_ok(fy_affine(x, 0, 1, &t));
        fy_tensor_keep(t);
        ts_ok(fy_sum(t, FY_ALL_AXES, 0, &all));
        ts_ok(fy_axpy(sum, 1, all));
        assert_int_equal(pthread_create(&thread, NULL, destroy_there, t), 0);
        pthread_join(thread, NULL);
    }
    fy_graph_t *graph = end();
    assert_in_range(graph->recording.memory->nbytes, 200000, 3 << 20);
    ts_ok(fy_graph_replay(graph, NULL));
    ts_expect_f32(sum, (float[]){ 1000000 }, 1);
}

/* A flat list: the device works as long, and the host submits as much, as without a graph. */
TS_DEVICE_TEST(model_time_equals_the_launches)
{
    if (!ctx->is_sim) skip();
    fy_device_clock_t clock[3];
    fy_tensor_t *x = ts_iota(ctx->device, FY_DIMS(256, 256), 0), *t, *y;
    ts_ok(fy_graph_begin(ctx->device));
    ts_ok(fy_matmul(x, x, &t));
    ts_ok(fy_tanh(t, &y));
    fy_graph_t *graph = end();
    clock[0] = ts_clock(ctx->device);
    ts_ok(fy_matmul(x, x, &t));
    ts_ok(fy_tanh(t, &y));
    clock[1] = ts_clock(ctx->device);
    ts_ok(fy_graph_replay(graph, NULL));
    clock[2] = ts_clock(ctx->device);
    assert_int_equal(clock[2].compute_ns - clock[1].compute_ns,
                     clock[1].compute_ns - clock[0].compute_ns);
    assert_true(clock[2].compute_ns > clock[1].compute_ns);
}

TS_DEVICE_TEST(recorded_while_others_work)
{
    fy_tensor_t *x = ts_iota(ctx->device, FY_DIMS(4), 1), *y = ts_iota(ctx->device, FY_DIMS(4), 0),
                *t;
    ts_ok(fy_graph_begin(ctx->device));
    ts_ok(fy_affine(x, 2, 0, &t));
    ts_ok(fy_axpy(y, 1, t));
    job_t job = { end(), 100, FY_STATUS_OK };
    fy_graph_keep(job.graph);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, replay_there, &job), 0);
    for (int i = 0; i < 20; i++) { /* meanwhile this thread records, on the same device */
        ts_ok(fy_graph_begin(ctx->device));
        ts_ok(fy_affine(x, 3, 0, &t));
        fy_graph_destroy(end());
    }
    pthread_join(thread, NULL);
    assert_int_equal(job.status, FY_STATUS_OK);
    ts_expect_f32(y, (float[]){ 200, 401, 602, 803 }, 4);
    fy_graph_destroy(job.graph);
}

typedef struct recorder {
    fy_device_t *device;
    _Atomic bool stop;
} recorder_t;

static void *record_all_the_time(void *user)
{
    recorder_t *recorder = user;
    while (!recorder->stop) {
        fy_scope_t scope = fy_scope_begin("recorder");
        fy_tensor_t *x, *y;
        fy_status_t status = fy_graph_begin(recorder->device);
        if (status == FY_STATUS_OK)
            status = fy_zeros(recorder->device, FY_DTYPE_F32, FY_DIMS(1000), &x);
        if (status == FY_STATUS_OK) (void)!fy_neg(x, &y);
        fy_scope_end(scope, 0, NULL);
    }
    return NULL;
}

/* A child finds each graph's memory intact, whatever the other threads did. On the host the graph
 * replays; elsewhere the device is lost. */
TS_DEVICE_TEST(children_of_a_fork)
{
    if (dlsym(RTLD_DEFAULT, "__kmpc_fork_call")) {
        print_message("           libomp's own fork handler may hang while another thread uses "
                      "OpenMP (docs/dependencies.md)\n");
        skip();
    }
    fy_tensor_t *x = ts_iota(ctx->device, FY_DIMS(4), 1), *y;
    fy_graph_t *graph;
    ts_ok(fy_graph_begin(ctx->device));
    ts_ok(fy_affine(x, 2, 0, &y));
    graph = end();
    recorder_t recorder = { ctx->device, false };
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, record_all_the_time, &recorder), 0);
    for (int i = 0; i < 20; i++) {
        const pid_t child = fork();
        if (child == 0) {
            alarm(240);
            void *data = NULL;
            const fy_status_t status = fy_graph_replay(graph, NULL);
            bool good = status == (ctx->is_host ? FY_STATUS_OK : FY_STATUS_DEVICE_LOST);
            if (ctx->is_host)
                good = good && fy_tensor_map(y, FY_ACCESS_READ, &data) == FY_STATUS_OK &&
                       ((float *)data)[3] == 8;
            fy_tensor_destroy(y);
            fy_graph_destroy(graph);
            _exit(good ? 0 : 1);
        }
        int result = -1;
        assert_true(child > 0 && waitpid(child, &result, 0) == child);
        assert_int_equal(result, 0);
    }
    recorder.stop = true;
    pthread_join(thread, NULL);
}
