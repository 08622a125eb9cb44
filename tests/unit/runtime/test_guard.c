/* Guards as objects: several threads under one guard, a failed call restores the counters, two
 * actions on one scope, limits beyond the 64th scope. */
#include <pthread.h>

#include "runtime/thread/guard.h"
#include "tests/support/harness.h"

enum { THREADS = 4, TRIES = 10000, FIT = 30000 };

/* Starts all threads together. */
static pthread_barrier_t start;

typedef struct heir {
    const fy__heritage_t *heritage;
    fy_device_t *device;
    int passed, refused, other;
    fy_tensor_t *made;
} heir_t;

static void *uploads(void *user)
{
    heir_t *heir = user;
    fy__thread_t *thread = fy__thread();
    fy__heritage_enter(thread, heir->heritage);
    fy_scope_t scope = fy_scope_begin("heir");
    fy_tensor_t *host, *device;
    if (fy_full(fy_device_host(), FY_DTYPE_F32, FY_DIMS(4), 1, &host) != FY_STATUS_OK ||
        fy_tensor_create(heir->device, FY_DTYPE_F32, FY_DIMS(4), &device) != FY_STATUS_OK)
        heir->other++;
    pthread_barrier_wait(&start);
    for (int i = 0; i < TRIES && !heir->other; i++) {
        const fy_status_t status = fy_tensor_upload_into(device, host, NULL, NULL);
        if (status == FY_STATUS_OK)
            heir->passed++;
        else if (status == FY_STATUS_REFUSED_BY_GUARD)
            heir->refused++;
        else
            heir->other++;
    }
    fy_scope_end(scope, 0, NULL);
    fy__heritage_leave(thread);
    return NULL;
}

/* Four threads share one limit: exactly as much passes as fits. The figures appear under the path
 * of the scope that set the guard. */
TS_DEVICE_TEST(threads_share_one_limit)
{
    heir_t heirs[THREADS];
    fy__heritage_t heritage;
    fy_scope_t scope = fy_scope_begin("shared");
    ts_guard(upload_nbytes, FIT * 16 + 8);
    fy__heritage_take(fy__thread(), &heritage);
    pthread_barrier_init(&start, NULL, THREADS);
    const uint64_t before = ts_ledger("test/shared/heir").upload.count;
    for (int i = 0; i < THREADS; i++)
        heirs[i] = (heir_t){ .heritage = &heritage, .device = ctx->device };
    ts_on_threads(THREADS, uploads, heirs, sizeof *heirs);
    int passed = 0, refused = 0;
    for (int i = 0; i < THREADS; i++) {
        passed += heirs[i].passed;
        refused += heirs[i].refused;
        assert_int_equal(heirs[i].other, 0);
    }
    pthread_barrier_destroy(&start);
    fy__heritage_release(&heritage);
    assert_int_equal(passed, FIT);
    assert_int_equal(refused, THREADS * TRIES - FIT);
    assert_int_equal(ts_ledger("test/shared/heir").upload.count - before, FIT);
    fy_tensor_t *host = ts_full(fy_device_host(), FY_DIMS(4), 1), *up;
    /* the scope that set the guard is charged too */
    ts_fails_with(fy_tensor_upload(host, ctx->device, NULL, &up), REFUSED_BY_GUARD, "shared");
    fy_scope_end(scope, 0, NULL);
}

static void *holds_memory(void *user)
{
    heir_t *heir = user;
    fy_tensor_t *tensor;
    fy__heritage_enter(fy__thread(), heir->heritage);
    /* in no scope: it is not collected */
    if (fy_tensor_create(heir->device, FY_DTYPE_U8, FY_DIMS(8192), &heir->made) == FY_STATUS_OK)
        heir->passed++;
    if (fy_tensor_create(heir->device, FY_DTYPE_U8, FY_DIMS(8192), &tensor) ==
        FY_STATUS_REFUSED_BY_GUARD)
        heir->refused++;
    fy__heritage_leave(fy__thread());
    return NULL;
}

/* Bytes that an inheriting thread keeps alive count in the scope that set the guard. */
TS_DEVICE_TEST(live_bytes_are_shared)
{
    fy__heritage_t heritage;
    fy_tensor_t *mine = NULL;
    if (ctx->is_host) return; /* the host has no device bytes */
    fy_scope_t scope = fy_scope_begin("small");
    ts_guard(memory_nbytes, 10000);
    fy__heritage_take(fy__thread(), &heritage);
    heir_t heir = { .heritage = &heritage, .device = ctx->device };
    ts_on_thread(holds_memory, &heir);
    fy__heritage_release(&heritage);
    assert_int_equal(heir.passed, 1);
    assert_int_equal(heir.refused, 1);
    ts_fails(fy_tensor_create(ctx->device, FY_DTYPE_U8, FY_DIMS(8192), &mine), REFUSED_BY_GUARD);
    fy_tensor_destroy(heir.made);
    /* free again, whichever thread freed it */
    ts_ok(fy_tensor_create(ctx->device, FY_DTYPE_U8, FY_DIMS(8192), &mine));
    fy_scope_end(scope, 0, NULL);
}

/* An upload that passes its guard and then runs out of memory uses nothing of the limit. */
TS_DEVICE_TEST(a_failed_call_restores_the_limit)
{
    fy_tensor_t *host, *up;
    if (ctx->is_host) return;
    ts_ok(fy_full(fy_device_host(), FY_DTYPE_U8, FY_DIMS(8192), 1, &host));
    fy_scope_t outer = fy_scope_begin("outer"), inner;
    ts_guard(upload_nbytes, 8192);
    inner = fy_scope_begin("inner");
    ts_guard(memory_nbytes, 4096);
    ts_fails_with(fy_tensor_upload(host, ctx->device, NULL, &up), REFUSED_BY_GUARD,
                  "live device bytes");
    const fy__thread_t *thread = fy__thread();
    assert_int_equal(thread->claimed, 0);
    assert_int_equal(atomic_load(&thread->guards->outer->used[FY__QUOTA_UPLOAD]), 0);
    fy_scope_end(inner, 0, NULL);
    ts_ok(fy_tensor_upload(host, ctx->device, NULL, &up));
    fy_scope_end(outer, 0, NULL);
}

static void count_line(void *user, fy_log_level_t level, const char *text)
{
    (void)text;
    *(int *)user += level == FY_LOG_WARNING;
}

/* On one scope, one guard logs and a looser one refuses: each does its own action. */
TS_DEVICE_TEST(log_and_refuse_on_one_scope)
{
    int lines = 0;
    fy_guard_options_t guard = FY_GUARD_OPTIONS_INIT;
    fy_tensor_t *host = ts_full(fy_device_host(), FY_DIMS(4), 1), *up;
    fy_scope_t scope = fy_scope_begin("both");
    guard.action = FY_GUARD_LOG;
    guard.upload_nbytes = 16;
    ts_ok(fy_scope_guard(&guard));
    guard.action = FY_GUARD_REFUSE;
    guard.upload_nbytes = 32;
    ts_ok(fy_scope_guard(&guard));
    fy_log_set(count_line, &lines);
    ts_ok(fy_tensor_upload(host, ctx->device, NULL, &up));
    assert_int_equal(lines, 0);
    ts_ok(fy_tensor_upload(host, ctx->device, NULL, &up)); /* past 16: logged, not refused */
    assert_int_equal(lines, 1);
    ts_fails(fy_tensor_upload(host, ctx->device, NULL, &up), REFUSED_BY_GUARD);
    fy_log_set(NULL, NULL);
    fy_scope_end(scope, 0, NULL);
}

/* A scope that sets the same guard in every step has one guard, not one for each step. */
TS_DEVICE_TEST(guards_set_again_and_again)
{
    fy_scope_t scope = fy_scope_begin("again");
    const fy__guard_t *outer = fy__thread()->guards;
    for (uint64_t i = 100; i > 0; i--) ts_guard(syncs, i);
    assert_ptr_equal(fy__thread()->guards->outer, outer);
    fy_scope_end(scope, 0, NULL);
    assert_ptr_equal(fy__thread()->guards, outer);
}

/* Beyond 64 scopes a guard would be set on a different scope. */
TS_DEVICE_TEST(a_guard_beyond_the_last_scope_is_refused)
{
    fy_guard_options_t guard = FY_GUARD_OPTIONS_INIT;
    fy_scope_t first = fy_scope_begin("deep");
    for (int i = 0; i < 70; i++) (void)fy_scope_begin("deep");
    guard.syncs = 3;
    ts_fails_with(fy_scope_guard(&guard), INVALID_ARGUMENT, "64");
    fy_scope_end(first, 0, NULL);
}
