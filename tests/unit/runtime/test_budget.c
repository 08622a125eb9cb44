/* Budgets: the syntax of the text, when a limit starts to apply, and that a budget and a guard of
 * the program are independent.
 * A process reads $FERRY_BUDGET once, so each case runs in a child process. */
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/harness.h"

static fy_tensor_t *host_bytes(int64_t n)
{
    fy_tensor_t *host = ts_bytes(fy_device_host(), n);
    ts_ok(fy_fill(host, 1));
    return host;
}

TS_DEVICE_TEST(accepts_the_documented_syntax)
{
    static const char *const good[] = { "upload=0",
                                        "upload=1.5GiB,download=4KiB/step,peer=0,sync=0",
                                        "alloc=3,alloc=0/step,memory=1MiB/step",
                                        " sync=1 , upload=2/a b ",
                                        "",
                                        "  " };
    static const struct {
        const char *text, *says[2];
    } bad[] = {
        { "uplaod=0",
          { "uplaod", "there are upload, download, peer, collective, sync, alloc and memory" } },
        { "upload", { "'upload' is no item", "LIMIT=AMOUNT" } },
        { "upload=", { "no size in bytes", "4KiB" } },
        { "upload=4 parsecs", { "4 parsecs", "no size in bytes" } },
        { "upload=-1", { "-1", "no size in bytes" } },
        { "sync=1.5", { "1.5", "no count" } },
        { "sync=4KiB", { "4KiB", "no count" } },
        { "sync=99999999999999999999", { "no count", "12" } },
        { "upload=1/", { "one name of a scope", "upload=1/step" } },
        { "upload=1/train/step", { "one name of a scope", "upload=1/step" } },
        { "memory=1GiB", { "memory=1GiB/NAME", "limit=" } },
        { "upload=1,upload=2", { "'upload=1'", "'upload=2'" } },
        { "upload=1/a,sync=0,upload=2/a", { "'upload=1/a'", "'upload=2/a'" } },
        { "upload=0,,sync=0", { "is no item", "upload=0 or sync=1/step" } },
        { "upload=0,", { "is no item", "LIMIT" } },
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) ts_ok(fy_budget_set(good[i]));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ts_fails_with(fy_budget_set(bad[i].text), INVALID_ARGUMENT, bad[i].says[0], bad[i].says[1]);
    }
    char many[600] = "";
    for (int i = 0; i < 40; i++)
        snprintf(many + strlen(many), sizeof many - strlen(many), "sync=%d/s%d,", i, i);
    ts_fails_with(fy_budget_set(many), INVALID_ARGUMENT, "32");
    ts_ok(fy_budget_set(NULL));
}

TS_DEVICE_TEST(counts_the_process_from_now_on)
{
    fy_tensor_t *host = host_bytes(1000), *up;
    ts_ok(fy_tensor_upload(host, ctx->device, NULL,
                           &up)); /* before the budget is set: does not count */
    ts_ok(fy_budget_set("upload=2500"));
    ts_ok(fy_tensor_upload(host, ctx->device, NULL, &up));
    ts_ok(fy_tensor_upload(host, ctx->device, NULL, &up));
    const fy_ledger_totals_t before = ts_ledger(NULL);
    ts_fails(fy_tensor_upload(host, ctx->device, NULL, &up), REFUSED_BY_GUARD);
    assert_null(up);
    ts_text_has("'upload=2500'");
    ts_text_has("the process 2500 upload bytes, of which 2000 are used");
    ts_text_has("in scope 'test', needs 1000");
    const fy_ledger_totals_t after = ts_ledger(NULL);
    ts_expect_quiet(&before, &after, "a refused upload");
    ts_fails(fy_budget_set("uplaod=0"), INVALID_ARGUMENT); /* the previous budget stays */
    ts_fails(fy_tensor_upload(host, ctx->device, NULL, &up), REFUSED_BY_GUARD);
    ts_ok(fy_budget_set("upload=1000")); /* a new budget counts from 0 */
    ts_ok(fy_tensor_upload(host, ctx->device, NULL, &up));
    ts_fails(fy_tensor_upload(host, ctx->device, NULL, &up), REFUSED_BY_GUARD);
    ts_ok(fy_budget_set(""));
    ts_ok(fy_tensor_upload(host, ctx->device, NULL, &up));
}

TS_DEVICE_TEST(every_limit)
{
    fy_tensor_t *host = host_bytes(4), *up, *large = NULL;
    fy_download_t *down;
    ts_ok(fy_tensor_upload(host, ctx->device, NULL, &up));
    ts_ok(fy_budget_set("download=3,sync=0,alloc=0"));
    ts_fails_with(fy_tensor_download(up, NULL, &down), REFUSED_BY_GUARD, "download=3");
    ts_fails_with(fy_device_wait(ctx->device, FY_FOREVER), REFUSED_BY_GUARD, "sync=0");
    if (!ctx->is_host) {
        ts_fails_with(
            fy_tensor_create(ctx->device, FY_DTYPE_U8, FY_DIMS(INT64_C(300) << 20), &large),
            REFUSED_BY_GUARD, "alloc=0");
    }
    ts_ok(fy_budget_set(NULL));
}

/* Each instance of the scope has the whole limit; other scopes have none. */
TS_DEVICE_TEST(limits_each_instance_of_a_scope)
{
    fy_tensor_t *host = host_bytes(1000), *up;
    fy_scope_t early = fy_scope_begin("step"); /* opened before the budget: not limited */
    ts_ok(fy_budget_set("upload=1KiB/step"));
    ts_ok(fy_tensor_upload(host, ctx->device, NULL, &up));
    ts_ok(fy_tensor_upload(host, ctx->device, NULL, &up));
    fy_scope_end(early, 0, NULL);
    for (int i = 0; i < 3; i++) {
        fy_scope_t scope = fy_scope_begin("step"), inside;
        inside = fy_scope_begin("forward");
        ts_ok(fy_tensor_upload(host, ctx->device, NULL, &up));
        ts_fails_with(fy_tensor_upload(host, ctx->device, NULL, &up), REFUSED_BY_GUARD,
                      "'upload=1KiB/step'",
                      "each such scope 1024 upload bytes, of which 1000 are used", "'test/step'");
        fy_scope_end(inside, 0, NULL);
        fy_scope_end(scope, 0, NULL);
    }
    fy_scope_t other = fy_scope_begin("steps");
    ts_ok(fy_tensor_upload(host, ctx->device, NULL, &up));
    ts_ok(fy_tensor_upload(host, ctx->device, NULL, &up));
    fy_scope_end(other, 0, NULL);
    fy_scope_t kept = fy_scope_begin("step");
    ts_ok(fy_budget_set(NULL)); /* a scope that began under the budget keeps it */
    ts_ok(fy_tensor_upload(host, ctx->device, NULL, &up));
    ts_fails(fy_tensor_upload(host, ctx->device, NULL, &up), REFUSED_BY_GUARD);
    fy_scope_end(kept, 0, NULL);
}

TS_DEVICE_TEST(memory_of_a_scope)
{
    fy_tensor_t *a, *b;
    if (ctx->is_host) return; /* the host has no device bytes */
    ts_ok(fy_budget_set("memory=10000/step"));
    for (int i = 0; i < 2; i++) {
        fy_scope_t scope = fy_scope_begin("step");
        ts_ok(fy_tensor_create(ctx->device, FY_DTYPE_U8, FY_DIMS(8000), &a));
        ts_fails_with(fy_tensor_create(ctx->device, FY_DTYPE_U8, FY_DIMS(8000), &b),
                      REFUSED_BY_GUARD, "memory=10000/step");
        if (i) fy_tensor_keep(a); /* the guard counts bytes that outlive the scope */
        fy_scope_end(scope, 0, NULL);
    }
    fy_tensor_destroy(a);
    ts_ok(fy_budget_set(NULL));
}

/* A guard of the program and a budget are checked separately; both hold. */
TS_DEVICE_TEST(a_guard_beside_a_budget)
{
    fy_tensor_t *host = host_bytes(1000), *up;
    ts_ok(fy_budget_set("upload=0/step,upload=5000"));
    fy_scope_t scope = fy_scope_begin("step");
    ts_guard(upload_nbytes, 1000000);
    ts_fails_with(fy_tensor_upload(host, ctx->device, NULL, &up), REFUSED_BY_GUARD,
                  "upload=0/step");
    fy_scope_end(scope, 0, NULL);
    scope = fy_scope_begin("load");
    ts_guard(upload_nbytes, 1500);
    ts_ok(fy_tensor_upload(host, ctx->device, NULL, &up));
    ts_fails(fy_tensor_upload(host, ctx->device, NULL, &up), REFUSED_BY_GUARD); /* by the guard */
    ts_text_has("the guard on scope 'test/load'");
    fy_scope_end(scope, 0, NULL);
    /* the refused upload is not counted in the budget */
    for (int i = 0; i < 4; i++) ts_ok(fy_tensor_upload(host, ctx->device, NULL, &up));
    ts_fails_with(fy_tensor_upload(host, ctx->device, NULL, &up), REFUSED_BY_GUARD,
                  "'upload=5000'");
    ts_ok(fy_budget_set(NULL));
}

enum { THREADS = 4, TRIES = 10000, FIT = 30000 };
static pthread_barrier_t start; /* starts all threads together */
typedef struct worker {
    fy_device_t *device;
    int passed;
} worker_t;

static void *uploads(void *user)
{
    worker_t *worker = user;
    fy_tensor_t *host, *device;
    fy_scope_t scope = fy_scope_begin("worker");
    pthread_barrier_wait(&start);
    if (fy_full(fy_device_host(), FY_DTYPE_U8, FY_DIMS(8), 1, &host) == FY_STATUS_OK &&
        fy_tensor_create(worker->device, FY_DTYPE_U8, FY_DIMS(8), &device) == FY_STATUS_OK)
        for (int i = 0; i < TRIES; i++)
            worker->passed += fy_tensor_upload_into(device, host, NULL, NULL) == FY_STATUS_OK;
    fy_scope_end(scope, 0, NULL);
    return NULL;
}

/* The limit covers all threads, also while another thread replaces the budget. */
TS_DEVICE_TEST(holds_for_all_threads)
{
    pthread_t threads[THREADS];
    worker_t workers[THREADS];
    pthread_barrier_init(&start, NULL, THREADS);
    for (int round = 0; round < 2; round++) {
        ts_ok(fy_budget_set("upload=240000,sync=5/worker"));
        for (int i = 0; i < THREADS; i++) {
            workers[i] = (worker_t){ ctx->device, 0 };
            threads[i] = ts_thread(uploads, &workers[i]);
        }
        for (int i = 0; round && i < 2000; i++) ts_ok(fy_budget_set("upload=240000,sync=5/worker"));
        int passed = 0;
        for (int i = 0; i < THREADS; i++) {
            pthread_join(threads[i], NULL);
            passed += workers[i].passed;
        }
        if (!round) assert_int_equal(passed, FIT);
    }
    pthread_barrier_destroy(&start);
    ts_ok(fy_budget_set(NULL));
}

/* Runs one upload of 8 bytes in a child process with this budget. Returns the outcome and the
 * number of log lines of level ERROR. */
static void count_errors(void *user, fy_log_level_t level, const char *text)
{
    if (level == FY_LOG_ERROR && strstr(text, "FERRY_BUDGET")) ++*(int *)user;
}
static int child(const char *program, const char *budget)
{
    const pid_t pid = ts_fork();
    if (pid == 0) {
        setenv("FERRY_BUDGET", budget, 1);
        execl(program, program, "budget", "child", (char *)NULL);
        _exit(99);
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}
static int be_the_child(void)
{
    static const float values[2] = { 1, 2 };
    int nerrors = 0;
    fy_tensor_t *host, *up;
    fy_log_set(count_errors, &nerrors);
    fy_scope_t scope = fy_scope_begin("step");
    if (fy_tensor_wrap(fy_device_host(), FY_DTYPE_F32, FY_DIMS(2), (void *)(uintptr_t)values, NULL,
                       NULL, &host) != FY_STATUS_OK)
        return 98;
    const fy_status_t status = fy_tensor_upload(host, fy_device_host(), NULL, &up);
    fy_scope_end(scope, 0, NULL);
    if (status != FY_STATUS_OK && status != FY_STATUS_REFUSED_BY_GUARD) return 97;
    /* a malformed budget makes this call fail until the program sets a valid one */
    fy_device_t *device = NULL;
    const fy_status_t opened = fy_device_open("sim:0", &device);
    fy_device_close(device);
    if (opened != FY_STATUS_OK && opened != FY_STATUS_INVALID_ARGUMENT) return 96;
    if (opened != FY_STATUS_OK && (!strstr(fy_error_get()->text, "FERRY_STRICT=0") ||
                                   fy_budget_set("upload=1MiB") != FY_STATUS_OK ||
                                   fy_device_open("sim:0", &device) != FY_STATUS_OK))
        return 95;
    if (opened != FY_STATUS_OK) fy_device_close(device);
    return nerrors * 10 + (status == FY_STATUS_REFUSED_BY_GUARD) + 2 * (opened != FY_STATUS_OK);
}
TS_DEVICE_TEST(the_environment)
{
    assert_int_equal(child("/proc/self/exe", ""), 0);
    assert_int_equal(child("/proc/self/exe", "upload=8"), 0);
    assert_int_equal(child("/proc/self/exe", "upload=7"), 1);
    /* from the first call on, here fy_scope_begin */
    assert_int_equal(child("/proc/self/exe", "upload=7/step"), 1);
    /* logged once; no device is opened */
    assert_int_equal(child("/proc/self/exe", "uplaod=7"), 12);
    setenv("FERRY_STRICT", "0", 1);
    assert_int_equal(child("/proc/self/exe", "uplaod=7"), 10); /* logged once; no limit applies */
    unsetenv("FERRY_STRICT");
}

static int prepare(void)
{
    if (*ts_arguments) exit(be_the_child());
    return 0;
}

TS_SUITE(.prepare = prepare);
