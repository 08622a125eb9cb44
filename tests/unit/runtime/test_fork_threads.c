/* fork: the child has nothing that other threads had open, and it opens its own devices. */
#include <pthread.h>
#include <semaphore.h>
#include <unistd.h>

#include "runtime/thread/thread.h"
#include "tests/support/harness.h"

#define CHECK TS_CHILD_CHECK

static sem_t is_open, may_end;

static void *holds_a_scope(void *user)
{
    (void)user;
    fy_scope_t scope = fy_scope_begin("of another thread");
    ts_ok(fy_scope_guard(&(fy_guard_options_t)FY_GUARD_LIGHT_ONLY));
    sem_post(&is_open);
    sem_wait(&may_end);
    fy_scope_end(scope, 0, NULL);
    return NULL;
}

static void *works_in_the_child(void *user)
{
    fy_device_t *device = NULL;
    fy_tensor_t *host, *up, *sum, *back;
    fy_download_t *download;
    void *data;
    const float values[2] = { 1, 2 };
    (void)user;
    CHECK(fy_device_open("sim:7", &device) == FY_STATUS_OK);
    CHECK(fy_tensor_wrap(fy_device_host(), FY_DTYPE_F32, FY_DIMS(2), (void *)(uintptr_t)values,
                         NULL, NULL, &host) == FY_STATUS_OK);
    /* the guard of the other thread does not apply to this thread */
    CHECK(fy_tensor_upload(host, device, NULL, &up) == FY_STATUS_OK);
    CHECK(fy_add(up, up, &sum) == FY_STATUS_OK);
    CHECK(fy_tensor_download(sum, NULL, &download) == FY_STATUS_OK);
    CHECK(fy_download_wait(download, FY_FOREVER, &back) == FY_STATUS_OK);
    CHECK(fy_tensor_map(back, FY_ACCESS_READ, &data) == FY_STATUS_OK);
    CHECK(((float *)data)[1] == 4.0f);
    fy_device_clock_t before = FY_DEVICE_CLOCK_INIT, after = FY_DEVICE_CLOCK_INIT;
    fy_tensor_t *large;
    CHECK(fy_device_clock_query(device, &before) == FY_STATUS_OK);
    CHECK(fy_full(fy_device_host(), FY_DTYPE_F32, FY_DIMS(100000), 1, &large) == FY_STATUS_OK);
    CHECK(fy_device_clock_query(device, &after) == FY_STATUS_OK);
    CHECK(after.now_ns > before.now_ns); /* host work still moves the model clock */
    fy_tensor_destroy(up);
    fy_tensor_destroy(sum);
    fy_tensor_destroy(back);
    fy_tensor_destroy(host);
    fy_device_close(device);
    return NULL;
}

TS_DEVICE_TEST(the_child_starts_clean)
{
#ifdef __SANITIZE_THREAD__
    skip(); /* ThreadSanitizer starts no threads in a child of fork */
#endif
    sem_init(&is_open, 0, 0);
    sem_init(&may_end, 0, 0);
    const pthread_t other = ts_thread(holds_a_scope, NULL);
    sem_wait(&is_open);
    fy_tensor_t *kept = ts_iota(ctx->device, FY_DIMS(4), 0);
    const pid_t child = ts_fork();
    if (child == 0) {
        /* closing the parent's devices is safe and does not affect other processes */
        if (!ctx->is_host) {
            fy_tensor_destroy(kept);
            fy_device_close(ctx->device);
        }
        ts_on_thread(works_in_the_child, NULL);
        _exit(0);
    }
    sem_post(&may_end);
    pthread_join(other, NULL);
    ts_child_ends(child);
    ts_expect_f32(kept, (float[]){ 0, 1, 2, 3 }, 4);
}

/* ---- a plan of another thread does not exist in the child ---- */

static fy_status_t lingers(fy_device_t *device, int64_t batch, void *user)
{
    (void)user, (void)device, (void)batch;
    sem_post(&is_open);
    sem_wait(&may_end);
    return FY_STATUS_OK;
}

static void *plans(void *user)
{
    fy_plan_t plan = FY_PLAN_INIT;
    (void)user;
    if (fy_plan_step("sim", lingers, NULL, 1, NULL, &plan) != FY_STATUS_OK) abort();
    return NULL;
}

static void *has_no_plan(void *user)
{
    (void)user;
    fy__thread_t *thread = fy__thread();
    CHECK(thread && !thread->plan && !thread->plan_declines);
    return NULL;
}

TS_DEVICE_TEST(a_plan_of_another_thread_is_not_in_the_child)
{
#ifdef __SANITIZE_THREAD__
    skip(); /* ThreadSanitizer starts no threads in a child of fork */
#endif
    if (!ctx->is_host) return; /* one device is enough */
    sem_init(&is_open, 0, 0);
    sem_init(&may_end, 0, 0);
    const pthread_t other = ts_thread(plans, NULL);
    sem_wait(&is_open);
    const pid_t child = ts_fork();
    if (child == 0) {
        ts_on_thread(has_no_plan, NULL);
        _exit(0);
    }
    sem_post(&may_end);
    pthread_join(other, NULL);
    ts_child_ends(child);
}
