/* Threads: any thread may call any function. Four threads work on their own tensors, read one
 * shared tensor, pass handles to each other, set guards, open and close the device. Results are
 * exact and nothing leaks. Figures of threads: test_ledger.c. */
#include <pthread.h>

#include "tests/support/harness.h"

enum { NTHREADS = 4 };

typedef struct job {
    ts_ctx_t *ctx;
    int index;
    fy_tensor_t *shared, *handed;
    fy_status_t status;
    char text[512];
    int wrong;
} job_t;

typedef struct start {
    job_t *job;
    fy_status_t (*body)(job_t *job);
} start_t;

static void *run(void *user)
{
    start_t *start = user;
    fy_scope_t scope = fy_scope_begin("thread");
    start->job->status = start->body(start->job);
    if (start->job->status != FY_STATUS_OK)
        snprintf(start->job->text, sizeof start->job->text, "%s", fy_error_get()->text);
    fy_scope_end(scope, 0, NULL);
    return NULL;
}

/* Runs `body` on each of the threads; fails the test with the first thread's error. */
static void on_threads(ts_ctx_t *ctx, fy_tensor_t *shared, fy_status_t (*body)(job_t *job),
                       job_t *jobs)
{
    pthread_t threads[NTHREADS];
    start_t starts[NTHREADS];
    for (int i = 0; i < NTHREADS; i++) {
        jobs[i] = (job_t){ .ctx = ctx, .index = i, .shared = shared };
        starts[i] = (start_t){ &jobs[i], body };
        assert_int_equal(pthread_create(&threads[i], NULL, run, &starts[i]), 0);
    }
    for (int i = 0; i < NTHREADS; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < NTHREADS; i++) {
        if (jobs[i].status != FY_STATUS_OK)
            fail_msg("thread %d: %s: %s", i, fy_status_name(jobs[i].status), jobs[i].text);
        assert_int_equal(jobs[i].wrong, 0);
    }
}

/* One element of a rank-0 or one-element tensor. */
static fy_status_t value_of(fy_tensor_t *tensor, double *out)
{
    fy_download_t *download;
    FY_TRY(fy_tensor_download(tensor, NULL, &download));
    return fy_download_wait_f64(download, FY_FOREVER, out);
}

static fy_status_t own_tensors_body(job_t *job)
{
    for (int round = 1; round <= 30; round++) {
        fy_scope_t scope = fy_scope_begin("round");
        fy_tensor_t *x, *y, *host, *sum;
        double value;
        float values[64];
        for (int i = 0; i < 64; i++) values[i] = (float)(job->index + round);
        FY_TRY(fy_tensor_wrap(fy_device_host(), FY_DTYPE_F32, FY_DIMS(8, 8), values, NULL, NULL,
                              &host));
        FY_TRY(fy_tensor_upload(host, job->ctx->device, NULL, &x));
        FY_TRY(fy_matmul(x, x, &y));
        FY_TRY(fy_axpy(y, -1, x));
        FY_TRY(fy_sum(y, 0, NULL, 0, &sum));
        FY_TRY(value_of(sum, &value));
        double v = job->index + round;
        if (value != 64 * (8 * v * v - v)) job->wrong++;
        fy_scope_end(scope, 0, NULL);
    }
    return FY_STATUS_OK;
}

TS_DEVICE_TEST(own_tensors)
{
    job_t jobs[NTHREADS];
    on_threads(ctx, NULL, own_tensors_body, jobs);
}

static fy_status_t read_shared_body(job_t *job)
{
    for (int round = 0; round < 50; round++) {
        fy_scope_t scope = fy_scope_begin("round");
        fy_tensor_t *part, *sum;
        double value;
        FY_TRY(fy_slice(job->shared, 0, job->index, job->index + 1, &part));
        FY_TRY(fy_sum(part, 0, NULL, 0, &sum));
        FY_TRY(value_of(sum, &value));
        double first = job->index * 100, want = 100 * first + 4950;
        if (value != want) job->wrong++;
        fy_scope_end(scope, 0, NULL);
    }
    return FY_STATUS_OK;
}

TS_DEVICE_TEST(several_read_one)
{
    job_t jobs[NTHREADS];
    fy_tensor_t *shared = ts_iota(ctx->device, FY_DIMS(NTHREADS, 100), 0);
    uint64_t version = ts_version(shared);
    on_threads(ctx, shared, read_shared_body, jobs);
    assert_int_equal(ts_version(shared), version);
}

static fy_status_t hand_over_body(job_t *job)
{
    fy_tensor_t *x;
    FY_TRY(fy_full(job->ctx->device, FY_DTYPE_F32, FY_DIMS(1000), job->index + 1, &x));
    FY_TRY(fy_affine(x, 2, 0, &job->handed));
    /* before it is passed on: it must not be destroyed with this thread's scope */
    fy_tensor_keep(job->handed);
    return FY_STATUS_OK;
}

TS_DEVICE_TEST(handles_are_handed_over)
{
    job_t jobs[NTHREADS];
    on_threads(ctx, NULL, hand_over_body, jobs);
    for (int i = 0; i < NTHREADS; i++) { /* made on a thread that has ended */
        float values[1000];
        ts_read(jobs[i].handed, values, sizeof values);
        assert_true(values[999] == 2.0f * (float)(i + 1));
        fy_tensor_destroy(jobs[i].handed);
    }
}

static fy_status_t guards_body(job_t *job)
{
    fy_guard_options_t guard = FY_GUARD_LIGHT_ONLY;
    fy_tensor_t *host, *x;
    float one = 1;
    FY_TRY(fy_tensor_wrap(fy_device_host(), FY_DTYPE_F32, FY_DIMS(1), &one, NULL, NULL, &host));
    if (job->index % 2) FY_TRY(fy_scope_guard(&guard));
    for (int round = 0; round < 20; round++) {
        fy_status_t status = fy_tensor_upload(host, job->ctx->device, NULL, &x);
        if (status != (job->index % 2 ? FY_STATUS_REFUSED_BY_GUARD : FY_STATUS_OK)) job->wrong++;
        /* each thread has its scope and its error record */
        if (status != FY_STATUS_OK && !strstr(fy_error_get()->text, "thread")) job->wrong++;
    }
    return FY_STATUS_OK;
}

TS_DEVICE_TEST(guards_apply_to_their_thread)
{
    job_t jobs[NTHREADS];
    on_threads(ctx, NULL, guards_body, jobs);
}

static void *no_scope(void *user)
{
    job_t *job = user;
    fy_guard_options_t guard = FY_GUARD_OPTIONS_INIT;
    job->status = fy_scope_guard(&guard);
    fy_tensor_t *mine = NULL;
    if (fy_zeros(job->ctx->device, FY_DTYPE_F32, FY_DIMS(4), &mine) != FY_STATUS_OK) job->wrong++;
    fy_tensor_destroy(mine); /* no scope is open: the test owns it */
    return NULL;
}

TS_DEVICE_TEST(without_a_scope)
{
    job_t job = { .ctx = ctx };
    ts_on_thread(no_scope, &job);
    assert_int_equal(job.status, FY_STATUS_INVALID_ARGUMENT);
    assert_int_equal(job.wrong, 0);
}

static fy_status_t open_close_body(job_t *job)
{
    for (int round = 0; round < 50; round++) {
        fy_device_t *device;
        FY_TRY(fy_device_open(ts_spec_name(job->ctx->spec), &device));
        if (device != job->ctx->device) job->wrong++;
        fy_device_close(device);
    }
    return FY_STATUS_OK;
}

TS_DEVICE_TEST(opening_and_closing)
{
    job_t jobs[NTHREADS];
    on_threads(ctx, NULL, open_close_body, jobs);
}

static fy_status_t churn_body(job_t *job)
{
    fy_tensor_t *live[16] = { NULL };
    for (int round = 0; round < 400; round++) {
        int slot = (round * 7 + job->index) % 16;
        fy_tensor_destroy(live[slot]);
        live[slot] = NULL;
        FY_TRY(fy_full(job->ctx->device, FY_DTYPE_I32, FY_DIMS(1 + (round * 131) % 5000), round,
                       &live[slot]));
    }
    return FY_STATUS_OK; /* the scope destroys the rest */
}

TS_DEVICE_TEST(allocating_at_once)
{
    job_t jobs[NTHREADS];
    on_threads(ctx, NULL, churn_body, jobs);
}

/* A thread that ends with an open scope must not leak its tensors, nor destroy those of others. */
static void *leaves_scope_open(void *user)
{
    job_t *job = user;
    fy_tensor_t *x;
    fy_scope_begin("left open");
    job->status = fy_zeros(job->ctx->device, FY_DTYPE_F32, FY_DIMS(1000), &x);
    return NULL;
}

TS_DEVICE_TEST(a_thread_ends_with_a_scope_open)
{
    job_t job = { .ctx = ctx };
    uint64_t before = ts_live(ctx->device);
    ts_on_thread(leaves_scope_open, &job);
    assert_int_equal(job.status, FY_STATUS_OK);
    assert_int_equal(ts_live(ctx->device), before);
}
