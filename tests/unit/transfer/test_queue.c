/* The queues of engines from inside. A transfer that finds the window full is queued, in order of
 * priority. Both bounds hold. A wait for a job, or a request ordered behind it, makes Ferry submit
 * it. A job that is cancelled, fails or loses its device fails its ticket and poisons its bytes,
 * keeps its place in the order, and holds no memory. Public behaviour on any device:
 * tests/conformance/test_queue.c. */
#include "runtime/order/stream.h"
#include "runtime/tensor/tensor.h"
#include "tests/support/failing.h"
#include "tests/unit/transfer/engine.h"

static fy__job_view_t view_of(fy_ticket_t ticket)
{
    fy__job_view_t view = { .state = FY__JOB_OVER };
    (void)fy__point_job_view(FY__POINT(ticket.stream, ticket.seq), &view);
    return view;
}

static bool is_job(fy_ticket_t ticket)
{
    fy__job_view_t view;
    return fy__point_job_view(FY__POINT(ticket.stream, ticket.seq), &view);
}
static bool stands(fy_ticket_t ticket) { return view_of(ticket).state == FY__JOB_STANDING; }

static void expect_first(const fy_tensor_t *tensor, float want)
{
    fy_tensor_t *part;
    float got = -1;
    ts_ok(fy_slice((fy_tensor_t *)tensor, 0, N - 1, N, &part));
    ts_read(part, &got, sizeof got);
    assert_true(got == want);
    fy_tensor_destroy(part);
}

TS_TEST(the_highest_priority_is_submitted_first)
{
    open_spec("sim:9?window=256KiB");
    fy_tensor_t *dst[5]; /* each with a separate source: transfers of one tensor keep their order */
    static const int priorities[5] = { 0, 0, 7, -1, 7 };
    static const int order[5] = { 0, 2, 4, 1, 3 };
    fy_ticket_t ticket[5];
    for (int i = 0; i < 5; i++) dst[i] = on_device();
    for (int i = 0; i < 5; i++) ticket[i] = borrow_into(dst[i], pinned(1), priorities[i]);
    assert_false(is_job(ticket[0])); /* the window was empty */
    for (int i = 1; i < 5; i++) assert_true(stands(ticket[i]));
    ts_ok(fy_device_wait(g_device, FY_FOREVER));
    fy__point_t last = FY__POINT(ticket[0].stream, ticket[0].seq);
    for (int i = 1; i < 5; i++) {
        const fy__job_view_t view = view_of(ticket[order[i]]);
        assert_int_equal(view.state, FY__JOB_STARTED);
        assert_true(view.native > last);
        last = view.native;
    }
    for (int i = 0; i < 5; i++) assert_int_equal(fy_ticket_poll(ticket[i]), FY_POLL_DONE);
    for (int i = 0; i < 5; i++) expect_first(dst[i], 1);
}

/* Checks for `count` transfers the bytes in flight and the queued bytes. */
static void weigh(const fy_ticket_t *tickets, int count, uint64_t *out_flying,
                  uint64_t *out_standing)
{
    *out_flying = *out_standing = 0;
    for (int i = 0; i < count; i++) {
        fy__point_t point = FY__POINT(tickets[i].stream, tickets[i].seq);
        if (is_job(tickets[i])) {
            const fy__job_view_t view = view_of(tickets[i]);
            if (view.state == FY__JOB_STANDING) *out_standing += NBYTES;
            if (view.state != FY__JOB_STARTED) continue;
            point = view.native;
        }
        if (atomic_load(&fy__stream_at(FY__POINT_STREAM(point))->done) < FY__POINT_SEQ(point))
            *out_flying += NBYTES;
    }
}

TS_TEST(both_bounds_hold)
{
    enum { COUNT = 200 };
    /* a slow link: the host fills the window faster than the device empties it */
    open_spec("sim:9?window=1MiB&queue=2MiB&profile=k80");
    fy_tensor_t *src = pinned(3), *x = on_device();
    fy_ticket_t up[COUNT], down[COUNT];
    fy_download_t *downloads[COUNT];
    const fy_ledger_totals_t before = ts_ledger(NULL);
    uint64_t flying, standing, most_flying = 0, most_standing = 0;
    for (int i = 0; i < COUNT; i++) {
        up[i] = borrow_into(on_device(), pinned(0), i % 3);
        weigh(up, i + 1, &flying, &standing);
        if (flying > most_flying) most_flying = flying;
        if (standing > most_standing) most_standing = standing;
    }
    assert_int_equal(most_flying, 1 << 20);
    assert_int_equal(most_standing, 2 << 20);
    borrow_into(x, src, 0);
    most_flying = most_standing = 0;
    for (int i = 0; i < COUNT; i++) {
        ts_ok(fy_tensor_download(x, NULL, &downloads[i]));
        down[i] = fy_download_ticket(downloads[i]);
        weigh(down, i + 1, &flying, &standing);
        if (flying > most_flying) most_flying = flying;
        if (standing > most_standing) most_standing = standing;
    }
    assert_int_equal(most_flying, 1 << 20);
    assert_int_equal(most_standing, 2 << 20);
    const fy_ledger_totals_t after = ts_ledger(NULL);
    assert_true(after.throttles > before.throttles);
    assert_true(after.throttle_ns > before.throttle_ns);
    assert_int_equal(after.syncs, before.syncs);
    for (int i = 0; i < COUNT; i++) {
        fy_tensor_t *host;
        void *data;
        ts_ok(fy_download_wait(downloads[i], FY_FOREVER, &host));
        ts_ok(fy_tensor_map(host, FY_ACCESS_READ, &data));
        assert_true(((float *)data)[N - 1] == 3);
        fy_tensor_destroy(host);
    }
    const fy_ledger_totals_t end = ts_ledger(NULL);
    assert_int_equal(end.upload.nbytes - before.upload.nbytes, (COUNT + 1) * (uint64_t)NBYTES);
    assert_int_equal(end.download.wire_nbytes - before.download.wire_nbytes,
                     COUNT * (uint64_t)NBYTES);
}

/* The window is full, so the upload is queued; each of these needs its bytes. */
static fy_ticket_t standing_upload(fy_tensor_t *dst, const fy_tensor_t *src)
{
    const fy_ticket_t ticket = borrow_into(dst, src, -100);
    assert_true(stands(ticket));
    return ticket;
}

TS_TEST(a_request_that_needs_a_job_submits_it)
{
    open_spec("sim:9?window=256KiB");
    fy_tensor_t *src = pinned(2), *filler = on_device(), *x = on_device(), *y;
    void *address;
    (void)borrow_into(filler, src, 0);
    fy_ticket_t ticket = standing_upload(x, src);
    ts_ok(fy_neg(x, &y)); /* an op */
    assert_false(stands(ticket));
    expect_first(y, -2);
    (void)borrow_into(filler, src, 0);
    ticket = standing_upload(x, src);
    ts_ok(fy_ticket_wait(ticket, FY_FOREVER)); /* a wait */
    assert_int_equal(fy_ticket_poll(ticket), FY_POLL_DONE);
    (void)borrow_into(filler, src, 0);
    ticket = standing_upload(x, src);
    ts_ok(
        fy_tensor_begin_native_access(x, FY_ACCESS_READ, NULL, &address)); /* work of the caller */
    assert_false(stands(ticket));
    (void)borrow_into(filler, src, 0);
    ticket = standing_upload(x, src);
    /* an upload through the ring into other bytes does not submit the job */
    fy_tensor_t *other = ts_iota(g_device, FY_DIMS(N), 0);
    assert_true(stands(ticket));
    fy_tensor_t *host;
    float *values = calloc(N, sizeof *values);
    ts_ok(fy_tensor_wrap(fy_device_host(), FY_DTYPE_F32, FY_DIMS(N), values, NULL, NULL, &host));
    ts_ok(fy_tensor_upload_into(x, host, NULL, NULL)); /* an upload into the same bytes does */
    assert_false(stands(ticket));
    expect_first(x, 0);
    free(values);
    fy_tensor_destroy(other);
}

TS_TEST(a_download_is_queued_behind_the_upload)
{
    open_spec("sim:9?window=256KiB");
    fy_tensor_t *src = pinned(2), *filler = on_device(), *x = on_device(), *host;
    fy_download_t *first, *second;
    void *data;
    ts_ok(fy_tensor_download(filler, NULL, &first)); /* fills the window of the other engine */
    (void)borrow_into(filler, src, 0);
    const fy_ticket_t up = standing_upload(x, src);
    ts_ok(fy_tensor_download(x, NULL, &second));
    assert_true(stands(up));
    assert_true(stands(fy_download_ticket(second)));
    ts_ok(fy_download_wait(second, FY_FOREVER, &host));
    assert_int_equal(fy_ticket_poll(up), FY_POLL_DONE);
    ts_ok(fy_tensor_map(host, FY_ACCESS_READ, &data));
    assert_true(((float *)data)[0] == 2);
    fy_download_destroy(first);
}

/* A thousand jobs, each ordered behind the one before, and the test waits for the last. */
TS_TEST(a_long_chain_is_submitted_in_order)
{
    enum { LONG = 900 };
    open_spec("sim:9?window=1KiB&numerics=off");
    fy_ticket_t tickets[LONG];
    fy_tensor_t *src = ts_pinned(g_device, 256),
                *x = ts_empty(g_device, FY_DTYPE_F32, FY_DIMS(256)), *y;
    for (int i = 0; i < LONG; i++) tickets[i] = borrow_into(x, src, i);
    ts_ok(fy_neg(x, &y));
    fy__point_t last = 0;
    for (int i = 1; i < LONG; i++) {
        const fy__job_view_t view = view_of(tickets[i]);
        if (!is_job(tickets[i]) || !view.native) continue;
        assert_true(view.native > last);
        last = view.native;
    }
    assert_false(stands(tickets[LONG - 1]));
}

TS_TEST(converted_and_strided_transfers_are_queued_too)
{
    open_spec("sim:9?window=256KiB");
    fy_tensor_t *src = pinned(1.5), *filler = on_device(), *half, *wide, *rows, *turned, *square,
                *host;
    ts_ok(fy_tensor_create(g_device, FY_DTYPE_F16, FY_DIMS(N), &half));
    (void)borrow_into(filler, src, 0);
    const fy_ticket_t ticket = standing_upload(half, src);
    ts_ok(fy_cast(half, FY_DTYPE_F32, &wide));
    assert_false(stands(ticket));
    expect_first(wide, 1.5);
    rows = ts_iota(g_device, FY_DIMS(2, N / 2), 0);
    ts_ok(fy_transpose(rows, NULL, &turned));
    fy_download_t *first = ts_submit_download(filler), *download = ts_submit_download(turned);
    assert_true(stands(fy_download_ticket(download)));
    ts_ok(fy_fill(rows, 9)); /* the download gets the earlier bytes */
    ts_ok(fy_download_wait(download, FY_FOREVER, &host));
    void *data;
    ts_ok(fy_tensor_map(host, FY_ACCESS_READ, &data));
    for (int i = 0; i < N; i++) assert_true(((float *)data)[i] == (float)(i % 2 * (N / 2) + i / 2));
    square = host;
    fy_tensor_destroy(square);
    fy_download_destroy(first);
}

/* ---- cancelling ---- */

static uint64_t live_pinned(void)
{
    const fy_memory_stats_t stats = ts_memory_pinned(g_device);
    return stats.live;
}

TS_TEST(a_cancelled_upload_poisons_its_target)
{
    open_spec("sim:9?window=256KiB");
    fy_tensor_t *src = pinned(4), *filler = on_device(), *x = on_device(), *y;
    ts_ok(fy_fill(x, 1));
    const fy_ticket_t first = borrow_into(filler, src, 0);
    const uint64_t live = ts_live(g_device), pinned_live = live_pinned();
    fy_tensor_t *own = pinned(5), *gone = on_device();
    const fy_ledger_totals_t before = ts_ledger(NULL);
    const fy_ticket_t ticket = standing_upload(x, own), other = standing_upload(gone, own);
    fy_tensor_destroy(own); /* the jobs hold references */
    fy_tensor_destroy(gone);
    assert_true(live_pinned() > pinned_live);
    ts_ok(fy_ticket_cancel(ticket));
    ts_ok(fy_ticket_cancel(other));
    assert_int_equal(live_pinned(), pinned_live);
    assert_int_equal(ts_live(g_device), live);
    assert_int_equal(fy_ticket_poll(ticket), FY_POLL_FAILED);
    ts_fails_with(fy_ticket_wait(ticket, FY_FOREVER), CANCELLED, "262144 bytes");
    ts_fails(fy_ticket_cancel(ticket), BUSY); /* a second cancel is refused */
    ts_fails(fy_ticket_cancel(first), BUSY);
    ts_fails(fy_ticket_cancel((fy_ticket_t){ 77777, 1 }), INVALID_ARGUMENT);
    ts_ok(fy_neg(x, &y));
    ts_download_fails(y, CANCELLED);
    ts_ok(fy_device_wait(g_device, FY_FOREVER)); /* cancelled on request: no fault */
    ts_ok(fy_fill(x, 3));                        /* a complete overwrite clears the poison */
    expect_first(x, 3);
    const fy_ledger_totals_t after = ts_ledger(NULL);
    assert_int_equal(after.upload.count, before.upload.count + 2);
    assert_int_equal(after.upload.wire_nbytes, before.upload.wire_nbytes + NBYTES * 0);
}

/* The hazard words that it replaced are still waited for. */
TS_TEST(a_cancelled_job_keeps_the_order)
{
    open_spec("sim:9?window=256KiB&numerics=off");
    fy_tensor_t *src = pinned(4), *filler = on_device(), *other = on_device(), *a, *b;
    ts_ok(fy_full(g_device, FY_DTYPE_F32, FY_DIMS(N), 1, &a));
    fy_tensor_t *big = ts_full(g_device, FY_DIMS(4096, 4096), 1);
    for (int i = 0; i < 5; i++) ts_ok(fy_matmul(big, big, &b)); /* keeps the compute stream busy */
    ts_ok(fy_axpy(a, 2, other));                                /* the last writer of a */
    const fy__point_t writer = atomic_load(&a->storage->hazard.writer);
    (void)borrow_into(filler, src, 0);
    const fy_ticket_t ticket = standing_upload(a, src);
    ts_ok(fy_ticket_cancel(ticket));
    assert_int_equal(fy_ticket_poll(ticket), FY_POLL_FAILED);
    /* Its upload failed at once, but not before the requests ahead of it. */
    assert_false(fy__point_reached(FY__POINT(ticket.stream, ticket.seq)));
    /* Transfers of the other engine: two compute streams would share one engine. */
    fy_tensor_t *host;
    float *values = calloc(N, sizeof *values);
    ts_ok(fy_tensor_wrap(fy_device_host(), FY_DTYPE_F32, FY_DIMS(N), values, NULL, NULL, &host));
    ts_ok(fy_tensor_upload_into(a, host, NULL, NULL));
    free(values);
    const fy__point_t fill = atomic_load(&a->storage->hazard.writer);
    ts_ok(fy__point_wait(fill, FY_FOREVER, FY__WAIT_NONE));
    assert_true(fy__point_reached(writer));
    fy_device_clock_t clock = ts_clock_now(g_device);
    const uint64_t now_ns = clock.now_ns;
    ts_ok(fy__point_wait(writer, FY_FOREVER, FY__WAIT_NONE));
    clock = ts_clock_now(g_device);
    assert_true(clock.now_ns - now_ns < 10000); /* it was done already */
}

TS_TEST(a_cancelled_download)
{
    open_spec("sim:9?window=256KiB");
    fy_tensor_t *x = on_device(), *host;
    ts_ok(fy_fill(x, 1));
    fy_download_t *first = ts_submit_download(x), *second, *third;
    const uint64_t pinned_live = live_pinned();
    const fy_ledger_totals_t before = ts_ledger(NULL);
    ts_ok(fy_tensor_download(x, NULL, &second));
    ts_ok(fy_tensor_download(x, NULL, &third));
    fy_download_destroy(second); /* frees it: no bytes are transferred */
    const fy_ticket_t ticket = fy_download_ticket(third);
    ts_ok(fy_ticket_cancel(ticket));
    ts_fails(fy_download_wait(third, FY_FOREVER, &host), CANCELLED);
    /* the failure stays: it is reported again */
    ts_fails(fy_download_wait(third, FY_FOREVER, &host), CANCELLED);
    fy_download_destroy(third);
    assert_int_equal(live_pinned(), pinned_live);
    ts_ok(fy_download_wait(first, FY_FOREVER, &host));
    ts_ok(fy_device_wait(g_device, FY_FOREVER));
    const fy_ledger_totals_t after = ts_ledger(NULL);
    assert_int_equal(after.download.count, before.download.count + 2);
    assert_int_equal(after.download.wire_nbytes, before.download.wire_nbytes);
    expect_first(x, 1);
}

/* More jobs than slots, so another job has the slot of a failed ticket when the ticket is
 * queried. */
TS_TEST(a_failed_ticket_stays_failed_when_its_slot_is_reused)
{
    open_spec("sim:9?window=1KiB&numerics=off");
    fy_tensor_t *src = ts_pinned(g_device, 256),
                *x = ts_empty(g_device, FY_DTYPE_F32, FY_DIMS(256)),
                *y = ts_empty(g_device, FY_DTYPE_F32, FY_DIMS(256));
    (void)borrow_into(x, src, 0);
    (void)borrow_into(x, src, 0);
    const fy_ticket_t good = borrow_into(x, src, -5), bad = borrow_into(y, src, -5);
    ts_ok(fy_ticket_cancel(bad));
    for (int i = 0; i < 3000; i++) (void)borrow_into(x, src, 0);
    /* it runs within one round of the slots, whatever its priority */
    assert_int_equal(fy_ticket_poll(good), FY_POLL_DONE);
    assert_int_equal(fy_ticket_poll(bad), FY_POLL_FAILED);
    ts_fails(fy_ticket_wait(bad, FY_FOREVER), CANCELLED);
}

/* ---- failing ---- */

TS_TEST(a_queued_copy_that_fails_when_submitted)
{
    open_spec("sim:9?window=256KiB");
    fy_tensor_t *src = pinned(4), *filler = on_device(), *x = on_device(), *z = on_device(), *y;
    const uint64_t pinned_live = live_pinned();
    (void)borrow_into(filler, src, 0);
    const fy_ticket_t ticket = standing_upload(x, src), fine = standing_upload(z, src);
    ts_fail_after(g_device, 0, 9);
    ts_ok(fy_neg(x, &y)); /* ordered behind it: submitted all the same, and poisoned */
    ts_heal(g_device);
    assert_int_equal(fy_ticket_poll(ticket), FY_POLL_FAILED);
    ts_fails_with(fy_ticket_wait(ticket, FY_FOREVER), INTERNAL, "made to fail");
    ts_ok(fy_ticket_wait(fine, FY_FOREVER));
    expect_first(z, 4);
    ts_download_fails(y, INTERNAL, "made to fail");
    ts_download_fails(x, INTERNAL);
    ts_fails(fy_device_wait(g_device, FY_FOREVER), INTERNAL); /* a new fault, reported once */
    ts_ok(fy_device_wait(g_device, FY_FOREVER));
    assert_int_equal(live_pinned(), pinned_live);
    (void)borrow_into(x, src, 0);
    expect_first(x, 4);
}

/* A copy that fails while it runs, on each path: the ticket fails, dependent tensors are poisoned,
 * others are not. */
TS_TEST(copies_that_fail_while_they_run)
{
    static const char *const specs[] = { "sim:9?window=256KiB&faults=copy@1",
                                         "sim:9?window=256KiB&faults=copy@2",
                                         "sim:9?faults=copy@1" };
    /* borrowed and submitted at once; borrowed and queued; through the ring */
    for (int how = 0; how < 3; how++) {
        open_spec(specs[how]);
        fy_tensor_t *src = pinned(4), *host, *x = on_device(), *y;
        fy_ticket_t ticket;
        float *values = calloc(N, sizeof *values);
        ts_ok(
            fy_tensor_wrap(fy_device_host(), FY_DTYPE_F32, FY_DIMS(N), values, NULL, NULL, &host));
        ts_ok(fy_fill(x, 1));
        if (how == 2)
            ts_ok(fy_tensor_upload_into(x, host, NULL, &ticket));
        else {
            if (how == 1) (void)borrow_into(on_device(), src, 0);
            ticket = borrow_into(x, src, 0);
            assert_int_equal(is_job(ticket), how == 1);
        }
        ts_ok(fy_neg(x, &y));
        if (how != 2) ts_fails(fy_ticket_wait(ticket, FY_FOREVER), IO);
        ts_download_fails(y, IO, "upload");
        ts_fails(fy_device_wait(g_device, FY_FOREVER), IO);
        ts_ok(fy_device_wait(g_device, FY_FOREVER));
        (void)borrow_into(x, src, 0);
        expect_first(x, 4);
        free(values);
        ts_close();
    }
}

TS_TEST(a_lost_device_fails_queued_jobs)
{
    open_spec("sim:9?window=256KiB");
    fy_tensor_t *src = pinned(4), *filler = on_device(), *x = on_device(), *host;
    fy_download_t *first = ts_submit_download(filler), *second;
    const fy_ticket_t flying = borrow_into(filler, src, 0);
    const fy_ticket_t ticket = standing_upload(x, src);
    ts_ok(fy_tensor_download(x, NULL, &second));
    ts_lose(g_device);
    while (!fy__device_is_lost(g_device)) (void)fy_ticket_poll(flying);
    ts_heal(g_device);
    assert_int_equal(fy_ticket_poll(ticket), FY_POLL_FAILED);
    ts_fails(fy_ticket_wait(ticket, FY_FOREVER), DEVICE_LOST);
    ts_fails(fy_download_wait(second, FY_FOREVER, &host), DEVICE_LOST);
    ts_fails(fy_download_try(first, &host), DEVICE_LOST);
    fy_ticket_t never;
    ts_fails(fy_tensor_upload_into(x, src, &ts_borrow, &never), DEVICE_LOST);
    void *data;
    ts_ok(fy_tensor_map(src, FY_ACCESS_READ, &data)); /* host tensors stay readable */
    assert_true(((float *)data)[0] == 4);
}

/* The last handle is closed while transfers are queued: they still run, and the device closes after
 * them. */
TS_TEST(a_device_closed_with_jobs)
{
    open_spec("sim:9?window=256KiB");
    fy_tensor_t *src = pinned(4);
    fy_ticket_t tickets[8];
    const fy_ledger_totals_t before = ts_ledger(NULL);
    for (int i = 0; i < 8; i++) {
        fy_tensor_t *x = on_device();
        tickets[i] = borrow_into(x, src, 0);
        fy_tensor_destroy(x);
    }
    ts_close();
    for (int i = 0; i < 8; i++) assert_int_equal(fy_ticket_poll(tickets[i]), FY_POLL_DONE);
    const fy_ledger_totals_t after = ts_ledger(NULL);
    assert_int_equal(after.upload.wire_nbytes - before.upload.wire_nbytes, 8 * (uint64_t)NBYTES);
    open_spec("sim:9"); /* the previous one was closed */
}

TS_TEST(wire_bytes_count_in_the_callers_scope)
{
    open_spec("sim:9?window=256KiB");
    fy_tensor_t *src = pinned(4), *filler = on_device(), *x = on_device();
    (void)borrow_into(filler, src, 0);
    fy_scope_t scope = fy_scope_begin("asker");
    const fy_ticket_t ticket = standing_upload(x, src);
    fy_scope_end(scope, 0, NULL);
    scope = fy_scope_begin("waiter");
    ts_ok(fy_ticket_wait(ticket, FY_FOREVER));
    fy_scope_end(scope, 0, NULL);
    assert_int_equal(ts_ledger("test/asker").upload.wire_nbytes, NBYTES);
    assert_int_equal(ts_ledger("test/waiter").upload.wire_nbytes, 0);
}

TS_TEST(invalid_bounds_are_refused)
{
    ts_fails_with(fy_device_open("sim:9?window=0", &g_device), INVALID_ARGUMENT, "window=0");
    ts_fails(fy_device_open("sim:9?queue=0", &g_device), INVALID_ARGUMENT);
    ts_fails(fy_device_open("sim:9?queue=wide", &g_device), INVALID_ARGUMENT);
    assert_null(g_device);
}
