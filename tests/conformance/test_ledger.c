/* The ledger adds up: every figure per scope path, inner scopes counted in outer ones, all threads
 * together, refused calls not counted.
 * Not here: the counts of single transfers (test_transfer.c), guards
 * (test_guard.c). */
#include <pthread.h>

#include "tests/support/harness.h"

TS_DEVICE_TEST(one_of_each)
{
    fy_tensor_t *host = ts_host_f32(FY_DIMS(8), (float[8]){ 1 }), *x, *y, *back;
    fy_ledger_totals_t a = ts_ledger(NULL);
    ts_ok(fy_tensor_upload(host, ctx->device, NULL, &x));
    fy_ledger_totals_t b = ts_ledger(NULL);
    assert_int_equal(b.upload.count - a.upload.count, 1);
    assert_int_equal(b.upload.nbytes - a.upload.nbytes, 32);
    assert_int_equal(b.upload.wire_nbytes - a.upload.wire_nbytes, 32);
    assert_int_equal(b.requests, a.requests); /* a transfer is not a light request */
    assert_int_equal(b.syncs, a.syncs);
    ts_ok(fy_add(x, x, &y));
    ts_ok(fy_fill(x, 0));
    fy_ledger_totals_t c = ts_ledger(NULL);
    assert_int_equal(c.requests - b.requests, 2);
    c.requests = b.requests;
    c.device_allocs = b.device_allocs;
    ts_expect_quiet(&b, &c, "two ops");
    fy_download_t *download = ts_submit_download(y);
    fy_ledger_totals_t d = ts_ledger(NULL);
    assert_int_equal(d.syncs, c.syncs);
    ts_ok(fy_download_wait(download, FY_FOREVER, &back));
    fy_ledger_totals_t e = ts_ledger(NULL);
    assert_int_equal(e.download.count - c.download.count, 1);
    assert_int_equal(e.download.nbytes - c.download.nbytes, 32);
    assert_int_equal(e.download.wire_nbytes - c.download.wire_nbytes, 32);
    assert_int_equal(e.syncs - d.syncs, 1);
    assert_true(e.sync_ns >= d.sync_ns);
    ts_ok(fy_device_wait(ctx->device, FY_FOREVER)); /* counted even if no wait was necessary */
    ts_ok(fy_device_wait(ctx->device, FY_FOREVER));
    assert_int_equal(ts_ledger(NULL).syncs - e.syncs, 2);
    assert_int_equal(e.peer.count, 0);
}

TS_DEVICE_TEST(paths_add_up)
{
    fy_tensor_t *host = ts_host_f32(FY_DIMS(4), (float[4]){ 1 }), *x;
    char root[64], path[96];
    /* the figures of a name outlive the scope, and the same device may be opened again with other
     * options */
    static int nrun;
    snprintf(root, sizeof root, "paths %s %d", ts_spec_name(ctx->spec), nrun++);
    fy_scope_t outer = fy_scope_begin(root);
    snprintf(path, sizeof path, "test/%s", root);
    ts_ok(fy_tensor_upload(host, ctx->device, NULL, &x)); /* the scope itself: 16 bytes */
    for (int i = 0; i < 3; i++) {
        fy_scope_t step = fy_scope_begin("step");
        ts_ok(fy_tensor_upload_into(x, host, NULL, NULL));
        fy_scope_t deeper = fy_scope_begin("up/down"); /* '/' becomes '.' */
        ts_ok(fy_fill(x, i));
        fy_scope_end(deeper, 0, NULL);
        fy_scope_end(step, 0, NULL);
    }
    fy_scope_end(outer, 0, NULL);
    fy_ledger_totals_t all = ts_ledger(path);
    assert_int_equal(all.upload.count, 4);
    assert_int_equal(all.upload.nbytes, 64);
    assert_int_equal(all.requests, 3);
    snprintf(path, sizeof path, "test/%s/step", root);
    fy_ledger_totals_t steps = ts_ledger(path); /* all instances */
    assert_int_equal(steps.upload.count, 3);
    assert_int_equal(steps.requests, 3); /* including inner scopes */
    snprintf(path, sizeof path, "test/%s/step/up.down", root);
    assert_int_equal(ts_ledger(path).requests, 3);
    assert_int_equal(ts_ledger(path).upload.count, 0);
    assert_int_equal(ts_ledger("test/never/was").requests, 0);
    fy_ledger_totals_t unset = { 0 };
    ts_fails(fy_ledger_query(NULL, &unset), INVALID_ARGUMENT);
    ts_fails(fy_ledger_query(NULL, NULL), INVALID_ARGUMENT);
}

typedef struct walked {
    int npaths, root_first, parents_first;
    uint64_t total_requests;
    char seen[64][128];
} walked_t;

static void note_path(void *user, const char *path, const fy_ledger_totals_t *totals)
{
    walked_t *walked = user;
    if (walked->npaths == 0) {
        walked->root_first = path[0] == '\0';
        walked->total_requests = totals->requests;
    }
    const char *slash = strrchr(path, '/');
    if (slash) {
        int found = 0;
        for (int i = 0; i < walked->npaths && i < 64; i++) {
            found = found || (strlen(walked->seen[i]) == (size_t)(slash - path) &&
                              strncmp(walked->seen[i], path, (size_t)(slash - path)) == 0);
        }
        if (!found) walked->parents_first = 0;
    }
    if (walked->npaths < 64)
        snprintf(walked->seen[walked->npaths], sizeof walked->seen[0], "%s", path);
    walked->npaths++;
}

TS_DEVICE_TEST(a_walk_sees_parents_first)
{
    fy_scope_t a = fy_scope_begin("walked");
    fy_scope_begin("inner");
    (void)ts_full(ctx->device, FY_DIMS(2), 0);
    fy_scope_end(a, 0, NULL);
    walked_t walked = { .parents_first = 1 };
    fy_ledger_walk(note_path, &walked);
    assert_true(walked.npaths >= 3);
    assert_true(walked.root_first);
    assert_true(walked.parents_first);
    assert_int_equal(walked.total_requests, ts_ledger(NULL).requests);
    int found = 0;
    for (int i = 0; i < walked.npaths && i < 64; i++)
        found += strcmp(walked.seen[i], "test/walked/inner") == 0;
    assert_int_equal(found, 1);
}

enum { NTHREADS = 4, NROUNDS = 25 };

static void *worker(void *user)
{
    ts_ctx_t *ctx = user;
    fy_scope_t scope = fy_scope_begin("ledger worker");
    fy_status_t status = FY_STATUS_OK;
    const float values[4] = { 1, 2, 3, 4 };
    for (int i = 0; i < NROUNDS && status == FY_STATUS_OK; i++) {
        fy_scope_t round = fy_scope_begin("round");
        fy_tensor_t *host, *x = NULL, *y;
        status = fy_tensor_wrap(fy_device_host(), FY_DTYPE_F32, FY_DIMS(4),
                                (void *)(uintptr_t)values, NULL, NULL, &host);
        if (status == FY_STATUS_OK) status = fy_tensor_upload(host, ctx->device, NULL, &x);
        if (status == FY_STATUS_OK) status = fy_add(x, x, &y);
        if (status == FY_STATUS_OK) status = ts_try_download(y);
        fy_scope_end(round, 0, NULL);
    }
    fy_scope_end(scope, 0, NULL);
    return (void *)(uintptr_t)status;
}

TS_DEVICE_TEST(threads_add_up)
{
    pthread_t threads[NTHREADS];
    fy_ledger_totals_t before = ts_ledger("ledger worker"), all_before = ts_ledger(NULL);
    void *results[NTHREADS];
    for (int i = 0; i < NTHREADS; i++) threads[i] = ts_thread(worker, ctx);
    for (int i = 0; i < NTHREADS; i++)
        /* join all of them first: a failure here ends the test and its device */
        pthread_join(threads[i], &results[i]);
    for (int i = 0; i < NTHREADS; i++) assert_int_equal((uintptr_t)results[i], FY_STATUS_OK);
    /* the threads have ended, their figures stay */
    fy_ledger_totals_t after = ts_ledger("ledger worker/round"), all_after = ts_ledger(NULL);
    const uint64_t n = NTHREADS * NROUNDS;
    assert_int_equal(after.upload.count - before.upload.count, n);
    assert_int_equal(after.upload.nbytes - before.upload.nbytes, 16 * n);
    assert_int_equal(after.upload.wire_nbytes - before.upload.wire_nbytes, 16 * n);
    assert_int_equal(after.download.count - before.download.count, n);
    assert_int_equal(after.download.wire_nbytes - before.download.wire_nbytes, 16 * n);
    assert_int_equal(after.requests - before.requests, n);
    assert_int_equal(after.syncs - before.syncs, n);
    assert_int_equal(all_after.requests - all_before.requests, n);
    assert_int_equal(all_after.upload.nbytes - all_before.upload.nbytes, 16 * n);
}
