/* runtime/external: work of another library. Its ticket, the order of requests around it, the
 * states of its tensors, and failures. */
#include <pthread.h>

#include "tests/support/harness.h"

enum { N = 64 };
static const float TENS[] = { 10, 20, 30, 40 };

static fy_external_t *begin(fy_tensor_t *src, fy_tensor_t *dst, fy_ticket_t *out_ticket)
{
    fy_external_t *external;
    ts_ok(fy_external_begin("test", src, dst, &external, out_ticket));
    return external;
}

TS_DEVICE_TEST(host_bytes_are_busy_until_the_end)
{
    fy_tensor_t *x = ts_host_f32(FY_DIMS(4), TENS), *y;
    fy_external_t *external, *second;
    fy_ticket_t ticket, other;
    void *data;
    if (!ctx->is_host) return;
    external = begin(x, x, &ticket);
    assert_int_equal(fy_ticket_poll(ticket), FY_POLL_PENDING);
    ts_fails(fy_ticket_wait(ticket, 1000), TIMEOUT);
    ts_fails_with(fy_tensor_map(x, FY_ACCESS_READ, &data), BUSY,
                  "external work that is not finished");
    ts_fails(fy_tensor_map(x, FY_ACCESS_WRITE, &data), BUSY);
    ts_fails(fy_neg(x, &y), BUSY);
    ts_fails_with(fy_fill(x, 0), BUSY, "borrowed by external work");
    ts_fails(fy_external_begin("test", x, x, &second, &other), BUSY);
    ts_fails(fy_ticket_cancel(ticket), BUSY);
    assert_null(second);
    fy_external_finish(external, (fy_ticket_t){ 0, 0 }, FY_STATUS_OK);
    ts_ok(fy_ticket_wait(ticket, 0));
    ts_expect_f32(x, TENS, 4);
    ts_ok(fy_fill(x, 1));
}

TS_DEVICE_TEST(a_source_can_be_read)
{
    fy_tensor_t *x = ts_f32(ctx->device, FY_DIMS(4), TENS), *y;
    fy_ticket_t ticket;
    fy_external_t *external = begin(x, NULL, &ticket);
    ts_ok(fy_affine(x, 2, 0, &y));
    ts_expect_f32(y, (const float[]){ 20, 40, 60, 80 }, 4);
    if (ctx->is_host) ts_fails(fy_fill(x, 0), BUSY);
    fy_external_finish(external, (fy_ticket_t){ 0, 0 }, FY_STATUS_OK);
    ts_ok(fy_fill(x, 0));
    external = begin(NULL, NULL, &ticket); /* a ticket of no bytes */
    assert_int_equal(fy_ticket_poll(ticket), FY_POLL_PENDING);
    fy_external_finish(external, (fy_ticket_t){ 0, 0 }, FY_STATUS_OK);
    assert_int_equal(fy_ticket_poll(ticket), FY_POLL_DONE);
}

/* ---- work on a device's tensor, on a thread ---- */

typedef struct work {
    fy_external_t *external;
    fy_tensor_t *tensor, *staging;
    fy_status_t status; /* with which it is finished */
    fy_host_contract_t contract;
} work_t;

/* Adds 1 to the elements, on the host. */
static void *serve(void *user)
{
    work_t *work = user;
    fy_transfer_options_t options = FY_TRANSFER_OPTIONS_INIT;
    fy_ticket_t ticket = { 0, 0 };
    void *data;
    options.contract = work->contract;
    ts_ok(fy_external_enter(work->external));
    ts_fails(fy_external_enter(work->external), INVALID_ARGUMENT);
    ts_ok(fy_tensor_download_into(work->staging, work->tensor, NULL));
    ts_ok(fy_tensor_map(work->staging, FY_ACCESS_READ_WRITE, &data));
    for (int i = 0; i < N; i++) ((float *)data)[i] += 1;
    if (work->status == FY_STATUS_OK)
        ts_ok(fy_tensor_upload_into(work->tensor, work->staging, &options, &ticket));
    else
        fy_error_set(work->status, __FILE__, __LINE__, "the cable is cut");
    fy_external_leave(work->external);
    fy_external_finish(work->external, ticket, work->status);
    return NULL;
}

static fy_ticket_t start(work_t *work, fy_tensor_t *tensor, fy_device_t *device, pthread_t *thread)
{
    fy_ticket_t ticket;
    *work = (work_t){ .tensor = tensor, .status = work->status, .contract = work->contract };
    work->staging = ts_pinned(device, N);
    work->external = begin(tensor, tensor, &ticket);
    *thread = ts_thread(serve, work);
    return ticket;
}

TS_DEVICE_TEST(ops_wait_for_it_and_it_waits_for_ops)
{
    for (int contract = 0; contract < 2 && !ctx->is_host; contract++) {
        fy_ledger_totals_t t = ts_ledger("test/work"), u;
        work_t work = { .contract = (fy_host_contract_t)contract };
        pthread_t thread;
        float want[N], old[N];
        const fy_scope_t scope = fy_scope_begin("work");
        fy_tensor_t *x = ts_iota(ctx->device, FY_DIMS(N), 0), *y, *before;
        ts_ok(fy_affine(x, 1, 0, &before)); /* reads the bytes before the work */
        ts_ok(fy_axpy(x, 1, before));       /* x = 2 i */
        const fy_ticket_t ticket = start(&work, x, ctx->device, &thread);
        ts_ok(fy_affine(x, 10, 0, &y)); /* waits */
        ts_ok(fy_fill(x, 5));           /* is behind both */
        pthread_join(thread, NULL);
        ts_ok(fy_ticket_wait(ticket, FY_FOREVER));
        for (int i = 0; i < N; i++) want[i] = 10 * (2 * (float)i + 1), old[i] = (float)i;
        ts_expect_f32(y, want, N);
        ts_expect_f32(before, old, N);
        for (int i = 0; i < N; i++) want[i] = 5;
        ts_expect_f32(x, want, N);
        fy_scope_end(scope, 0, NULL);
        u = ts_ledger("test/work"); /* its transfers are in the scope of begin */
        assert_int_equal(u.upload.nbytes - t.upload.nbytes, 2 * N * sizeof(float));
        assert_true(u.download.nbytes - t.download.nbytes >= 4 * N * sizeof(float));
    }
}

TS_DEVICE_TEST(transfers_queue_behind_it)
{
    if (!ctx->is_sim) return;
    fy_device_t *device = ts_open_with(ctx, "window=64B");
    for (int contract = 0; contract < 2; contract++) {
        const fy_scope_t scope = fy_scope_begin("queued");
        fy_tensor_t *x = ts_iota(device, FY_DIMS(N), 0), *other = ts_iota(device, FY_DIMS(N), 0),
                    *one = ts_pinned(device, N), *two = ts_pinned(device, N), *got;
        fy_ticket_t t1, t2;
        work_t work = { .contract = (fy_host_contract_t)contract };
        pthread_t thread;
        void *data;
        ts_ok(fy_fill(one, 3));
        ts_ok(fy_fill(two, 4));
        ts_ok(fy_tensor_upload_into(other, one, &ts_borrow, &t1)); /* fills the window */
        const fy_ticket_t ticket = start(&work, x, device, &thread);
        fy_download_t *download = ts_submit_download(x);
        ts_ok(fy_tensor_upload_into(x, two, &ts_borrow, &t2));
        pthread_join(thread, NULL);
        ts_ok(fy_download_wait(download, FY_FOREVER, &got));
        ts_ok(fy_ticket_wait(ticket, FY_FOREVER));
        ts_ok(fy_ticket_wait(t2, FY_FOREVER));
        ts_ok(fy_tensor_map(got, FY_ACCESS_READ, &data));
        for (int i = 0; i < N; i++) assert_true(((float *)data)[i] == (float)i + 1);
        float want[N];
        for (int i = 0; i < N; i++) want[i] = 4;
        ts_expect_f32(x, want, N);
        fy_scope_end(scope, 0, NULL);
    }
}

TS_DEVICE_TEST(a_failure_is_on_the_ticket_and_in_the_bytes)
{
    fy_tensor_t *x = ts_iota(ctx->device, FY_DIMS(N), 0), *y;
    fy_ticket_t ticket;
    float ones[N];
    void *data;
    if (ctx->is_host) {
        fy_external_t *external = begin(x, x, &ticket);
        fy_error_set(FY_STATUS_IO, __FILE__, __LINE__, "the cable is cut");
        fy_external_finish(external, (fy_ticket_t){ 0, 0 }, FY_STATUS_IO);
        ts_fails(fy_tensor_map(x, FY_ACCESS_READ, &data), IO);
    } else {
        work_t work = { .status = FY_STATUS_IO };
        pthread_t thread;
        ticket = start(&work, x, ctx->device, &thread);
        pthread_join(thread, NULL);
        ts_ok(fy_affine(x, 1, 0, &y));
        ts_download_fails(y, IO);
    }
    ts_text_has("test: the cable is cut");
    assert_int_equal(fy_ticket_poll(ticket), FY_POLL_FAILED);
    ts_fails_with(fy_ticket_wait(ticket, FY_FOREVER), IO, "test: the cable is cut");
    for (int i = 0; i < N; i++) ones[i] = 1;
    ts_ok(fy_fill(x, 1)); /* overwritten: as before */
    ts_expect_f32(x, ones, N);
}

/* A `last` that is none stands for no request, so no caller may read dst as if it were complete. */
TS_DEVICE_TEST(a_last_request_that_is_none_fails_the_work)
{
    static const fy_ticket_t junk[] = { { 12345, 67 },
                                        { 65535, 1 },
                                        { 65536, 1 },
                                        { 1, UINT64_MAX },
                                        { 3, 0 },
                                        { 0, 3 },
                                        { UINT64_MAX, UINT64_MAX } };
    for (size_t i = 0; i < sizeof junk / sizeof *junk; i++) {
        fy_external_t *external;
        fy_ticket_t ticket;
        fy_tensor_t *dst = ts_iota(ctx->device, FY_DIMS(4), 0), *sum;
        void *data;
        ts_ok(fy_external_begin("work", NULL, dst, &external, &ticket));
        fy_external_finish(external, junk[i], FY_STATUS_OK);
        assert_non_null(strstr(fy_error_get()->text, "is no ticket of this process"));
        assert_int_equal(fy_ticket_poll(ticket), FY_POLL_FAILED);
        ts_fails(fy_ticket_wait(ticket, FY_FOREVER), INVALID_ARGUMENT);
        if (ctx->is_host) {
            ts_fails(fy_tensor_map(dst, FY_ACCESS_READ, &data), INVALID_ARGUMENT);
        } else {
            ts_ok(fy_affine(dst, 1, 0, &sum));
            ts_download_fails(sum, INVALID_ARGUMENT);
        }
        ts_ok(fy_fill(dst, 1)); /* overwritten */
        ts_expect_f32(dst, (float[]){ 1, 1, 1, 1 }, 4);
    }
}

TS_DEVICE_TEST(destroyed_tensors_keep_their_bytes)
{
    fy_tensor_t *x = ts_iota(ctx->device, FY_DIMS(N), 0);
    const uint64_t live = ts_live(ctx->device);
    fy_ticket_t ticket;
    fy_external_t *external = begin(x, x, &ticket);
    fy_tensor_destroy(x);
    if (!ctx->is_host) assert_int_equal(ts_live(ctx->device), live);
    fy_external_finish(external, (fy_ticket_t){ 0, 0 }, FY_STATUS_OK);
    if (!ctx->is_host) assert_true(ts_live(ctx->device) < live);
}

TS_DEVICE_TEST(guards_of_the_caller_hold)
{
    fy_tensor_t *x = ts_iota(ctx->device, FY_DIMS(N), 0),
                *host = ts_iota(fy_device_host(), FY_DIMS(N), 0);
    fy_external_t *external;
    fy_ticket_t ticket;
    if (ctx->is_host) return;
    const fy_scope_t scope = fy_scope_begin("guarded");
    ts_ok(fy_scope_guard(&(fy_guard_options_t)FY_GUARD_LIGHT_ONLY));
    external = begin(x, x, &ticket);
    ts_fails(fy_external_enter(external), INVALID_ARGUMENT); /* a scope is open */
    fy_external_finish(external, (fy_ticket_t){ 0, 0 }, FY_STATUS_OK);
    ts_fails(fy_tensor_upload_into(x, host, NULL, &ticket), REFUSED_BY_GUARD);
    fy_scope_end(scope, 0, NULL);
}

static void count_status(void *user, fy_status_t status)
{
    __atomic_store_n((int *)user, (int)status + 1, __ATOMIC_SEQ_CST);
}

TS_DEVICE_TEST(results_are_kept_for_late_tickets)
{
    enum { MANY = 1024 };
    static fy_external_t *external[MANY];
    fy_ticket_t tickets[2], ticket;
    fy_external_t *more;
    int called = 0;
    if (!ctx->is_host) return;
    external[0] = begin(NULL, NULL, &tickets[0]);
    fy_error_set(FY_STATUS_IO, __FILE__, __LINE__, "lost");
    ts_ok(fy_ticket_on_done(tickets[0], count_status, &called));
    fy_external_finish(external[0], (fy_ticket_t){ 0, 0 }, FY_STATUS_IO);
    while (!__atomic_load_n(&called, __ATOMIC_SEQ_CST)) {}
    assert_int_equal(called, FY_STATUS_IO + 1);
    for (int i = 0; i < MANY; i++) external[i] = begin(NULL, NULL, &ticket);
    ts_fails_with(fy_external_begin("test", NULL, NULL, &more, &ticket), BUSY, "1024 pieces");
    assert_int_equal(fy_ticket_poll(tickets[0]), FY_POLL_FAILED); /* no longer stored */
    for (int i = 0; i < MANY; i++)
        fy_external_finish(external[MANY - 1 - i], (fy_ticket_t){ 0, 0 }, FY_STATUS_OK);
    external[0] = begin(NULL, NULL, &ticket);
    fy_external_finish(external[0], (fy_ticket_t){ 0, 0 }, FY_STATUS_OK);
    ts_ok(fy_ticket_wait(ticket, FY_FOREVER));
}

TS_DEVICE_TEST(refusals_change_nothing)
{
    fy_tensor_t *x = ts_iota(ctx->device, FY_DIMS(N), 0);
    fy_external_t *external;
    fy_ticket_t ticket;
    ts_fails(fy_external_begin(NULL, x, x, &external, &ticket), INVALID_ARGUMENT);
    ts_fails(fy_external_begin("test", x, x, NULL, &ticket), INVALID_ARGUMENT);
    ts_fails(fy_external_begin("test", x, x, &external, NULL), INVALID_ARGUMENT);
    ts_fails(fy_external_enter(NULL), INVALID_ARGUMENT);
    fy_external_leave(NULL);
    fy_external_finish(NULL, (fy_ticket_t){ 0, 0 }, FY_STATUS_OK);
    ts_ok(fy_fill(x, 1));
}

/* ---- several readers of one host source ---- */

/* An upload that takes the place of the work in `borrow`, and the other way round. */
TS_DEVICE_TEST(a_source_of_uploads_and_work_stays_protected)
{
    if (!ctx->is_sim) return;
    for (int upload_first = 0; upload_first < 2; upload_first++) {
        const fy_scope_t scope = fy_scope_begin("both");
        fy_external_t *external = NULL;
        fy_ticket_t upload, ticket;
        fy_tensor_t *x = ts_iota(ctx->device, FY_DIMS(N), 0), *src = ts_pinned(ctx->device, N);
        ts_ok(fy_fill(src, 1));
        if (!upload_first) external = begin(src, NULL, &ticket);
        ts_ok(fy_tensor_upload_into(x, src, &ts_borrow, &upload));
        if (upload_first) {
            external = begin(src, NULL, &ticket);
            ts_fails(fy_fill(src, 2), BUSY);
        } else {
            ts_ok(fy_ticket_wait(upload, FY_FOREVER));
            for (int i = 0; i < 2; i++) ts_fails(fy_fill(src, 2), BUSY);
            ts_text_has("external work");
        }
        fy_external_finish(external, (fy_ticket_t){ 0, 0 }, FY_STATUS_OK);
        ts_ok(fy_ticket_wait(upload, FY_FOREVER));
        ts_ok(fy_ticket_wait(ticket, FY_FOREVER));
        ts_ok(fy_fill(src, 2));
        fy_scope_end(scope, 0, NULL);
    }
}

static void *finish_now(void *external)
{
    fy_external_finish(external, (fy_ticket_t){ 0, 0 }, FY_STATUS_OK);
    return NULL;
}

/* The later work is asked to finish first: it still covers the earlier. */
TS_DEVICE_TEST(two_pieces_of_work_read_one_source)
{
    fy_tensor_t *x = ts_f32(ctx->device, FY_DIMS(4), TENS);
    fy_ticket_t first, second;
    fy_external_t *earlier = begin(x, NULL, &first);
    fy_external_t *later = begin(x, NULL, &second); /* does not block */
    const pthread_t thread = ts_thread(finish_now, later);
    ts_fails(fy_ticket_wait(second, 20000000), TIMEOUT);
    if (ctx->is_host) ts_fails(fy_fill(x, 0), BUSY);
    fy_external_finish(earlier, (fy_ticket_t){ 0, 0 }, FY_STATUS_OK);
    assert_int_equal(pthread_join(thread, NULL), 0);
    ts_ok(fy_ticket_wait(first, FY_FOREVER));
    ts_ok(fy_ticket_wait(second, FY_FOREVER));
    ts_ok(fy_fill(x, 0));
}

/* ---- waits that end early ---- */

static int calls, stop_at;
static int interrupt(void *user)
{
    (void)user;
    return ++calls == stop_at;
}

TS_DEVICE_TEST(an_interrupt_ends_the_wait)
{
    fy_ticket_t ticket;
    if (!ctx->is_host) return;
    fy_external_t *external = begin(NULL, NULL, &ticket);
    fy_interrupt_set(interrupt, NULL);
    calls = 0, stop_at = 2;
    ts_fails_with(fy_ticket_wait(ticket, FY_FOREVER), CANCELLED, "goes on");
    assert_int_equal(calls, 2);
    calls = 0, stop_at = 0;
    ts_fails(fy_ticket_wait(ticket, 100000000), TIMEOUT); /* at most two pieces */
    assert_in_range(calls, 1, 2);
    calls = 0, stop_at = 1;
    ts_fails(fy_ticket_wait(ticket, 0), TIMEOUT);
    assert_int_equal(calls, 0);
    fy_interrupt_set(NULL, NULL);
    fy_external_finish(external, (fy_ticket_t){ 0, 0 }, FY_STATUS_OK);
    ts_ok(fy_ticket_wait(ticket, 0));
}

static void *enter_and_end(void *external)
{
    ts_ok(fy_external_enter(external)); /* the thread ends without fy_external_leave */
    return NULL;
}

TS_DEVICE_TEST(a_new_thread_has_not_entered)
{
    fy_ticket_t ticket;
    if (!ctx->is_host) return;
    for (int i = 0; i < 2; i++) { /* the second thread takes the state of the first */
        fy_external_t *external = begin(NULL, NULL, &ticket);
        ts_on_thread(enter_and_end, external);
        fy_external_finish(external, (fy_ticket_t){ 0, 0 }, FY_STATUS_OK);
    }
}
