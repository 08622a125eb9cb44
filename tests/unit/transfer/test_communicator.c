/* Calls between devices of several processes by their library: the fake NCCL, whose ranks are
 * threads of this process here, each with a device. Results, counts, refusals, and every call of
 * the driver and of NCCL that can fail. With processes: tests/unit/dist/test_native.sh. */
#include <pthread.h>

#include <ferry/communicator.h>

#include "tests/support/fake_driver.h"
#include "tests/support/test.h"

enum { RANKS = 2, N = 5000 };

static fy_device_t *cards[RANKS];
static fy_scope_t g_scope;

static int set_up(void **state)
{
    (void)state;
    for (int i = 0; i < RANKS; i++) {
        char spec[16];
        snprintf(spec, sizeof spec, "cuda:%d", i);
        ts_ok(fy_device_open(spec, &cards[i]));
    }
    g_scope = fy_scope_begin("test");
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    driver.fake_cuda_fail(NULL, 0, 0);
    driver.fake_cuda_hold(0);
    fy_scope_end(g_scope, 0, NULL);
    for (int i = 0; i < RANKS; i++) fy_device_close(cards[i]);
    fake_driver_is_tidy("communicator");
    return 0;
}

static fy_communicator_options_t options_of(int rank, int size, const void *id)
{
    fy_communicator_options_t options = FY_COMMUNICATOR_OPTIONS_INIT;
    options.rank = rank;
    options.size = size;
    options.id = id;
    return options;
}

/* A communicator of one rank. */
static fy_communicator_t *open_one(void)
{
    char id[FY_COMMUNICATOR_ID_NBYTES];
    fy_communicator_t *c;
    ts_ok(fy_communicator_id(cards[0], id));
    const fy_communicator_options_t options = options_of(0, 1, id);
    ts_ok(fy_communicator_open(cards[0], &options, &c));
    return c;
}

/* ---- two ranks ---- */

typedef struct rank {
    pthread_t thread;
    int rank;
    const void *id;
    fy_status_t (*run)(int rank, fy_communicator_t *c);
    fy_status_t status;
    char text[512];
    fy_ledger_totals_t traffic;
} rank_t;

static fy_status_t run_rank(rank_t *r)
{
    fy_communicator_t *c;
    const fy_communicator_options_t options = options_of(r->rank, RANKS, r->id);
    FY_TRY(fy_communicator_open(cards[r->rank], &options, &c));
    const fy_scope_t scope = fy_scope_begin("rank");
    const fy_status_t status = r->run(r->rank, c);
    fy_scope_end(scope, 0, NULL);
    fy_communicator_close(c);
    return status;
}

static void *serve(void *user)
{
    rank_t *r = user;
    r->status = run_rank(r);
    snprintf(r->text, sizeof r->text, "%s", fy_error_get()->text);
    return NULL;
}

static void run_ranks(rank_t ranks[RANKS], fy_status_t (*run)(int rank, fy_communicator_t *c))
{
    char id[FY_COMMUNICATOR_ID_NBYTES];
    ts_ok(fy_communicator_id(cards[0], id));
    for (int i = 0; i < RANKS; i++) {
        ranks[i] = (rank_t){ .rank = i, .id = id, .run = run };
        assert_int_equal(pthread_create(&ranks[i].thread, NULL, serve, &ranks[i]), 0);
    }
    for (int i = 0; i < RANKS; i++) pthread_join(ranks[i].thread, NULL);
    for (int i = 0; i < RANKS; i++)
        if (ranks[i].status != FY_STATUS_OK) fail_msg("rank %d: %s", i, ranks[i].text);
}

#define WANT(condition)                                                                     \
    do {                                                                                    \
        if (!(condition))                                                                   \
            return fy_error_set(FY_STATUS_INTERNAL, __FILE__, __LINE__, "%d: %s", __LINE__, \
                                #condition);                                                \
    } while (0)

static float value_of(int rank, int64_t i) { return (float)(i % 97) * 0.5f + (float)(rank * 8); }

static fy_status_t make(int rank, int64_t n, fy_tensor_t **out)
{
    fy_tensor_t *host;
    void *data;
    FY_TRY(fy_tensor_create(fy_device_host(), FY_DTYPE_F32, FY_DIMS(n), &host));
    FY_TRY(fy_tensor_map(host, FY_ACCESS_WRITE, &data));
    for (int64_t i = 0; i < n; i++) ((float *)data)[i] = value_of(rank, i);
    return fy_tensor_upload(host, cards[rank], NULL, out);
}

static fy_status_t fetch(const fy_tensor_t *tensor, const float **out)
{
    fy_download_t *download;
    fy_tensor_t *host;
    void *data;
    FY_TRY(fy_tensor_download(tensor, NULL, &download));
    FY_TRY(fy_download_wait(download, FY_FOREVER, &host));
    FY_TRY(fy_tensor_map(host, FY_ACCESS_READ, &data));
    *out = data;
    return FY_STATUS_OK;
}

static fy_status_t every_kind(int rank, fy_communicator_t *c)
{
    fy_tensor_t *sum, *mean, *one, *mine, *all, *wide, *part, *theirs;
    const float *s, *m, *o, *a, *p, *t;
    fy_ticket_t ticket;
    const int other = 1 - rank;
    FY_TRY(make(rank, N, &sum));
    FY_TRY(make(rank, N, &mean));
    FY_TRY(make(rank, N, &one));
    FY_TRY(make(rank, N, &mine));
    FY_TRY(make(rank, 2 * N, &all));
    FY_TRY(make(rank, 2 * N, &wide));
    FY_TRY(make(rank, N, &part));
    FY_TRY(make(rank, N, &theirs));
    FY_TRY(
        fy_communicator_submit(c, FY_COLLECTIVE_ALL_REDUCE, FY_COLLECTIVE_SUM, sum, NULL, &ticket));
    FY_TRY(fy_ticket_wait(ticket, FY_FOREVER));
    FY_TRY(
        fy_communicator_submit(c, FY_COLLECTIVE_ALL_REDUCE, FY_COLLECTIVE_MEAN, mean, mean, NULL));
    FY_TRY(fy_communicator_submit(c, FY_COLLECTIVE_BROADCAST, 1, one, NULL, NULL));
    FY_TRY(fy_communicator_submit(c, FY_COLLECTIVE_ALL_GATHER, 0, all, mine, NULL));
    FY_TRY(fy_communicator_submit(c, FY_COLLECTIVE_REDUCE_SCATTER, FY_COLLECTIVE_SUM, part, wide,
                                  NULL));
    if (rank == 0) FY_TRY(fy_communicator_submit(c, FY_COLLECTIVE_SEND, 1, NULL, mine, NULL));
    FY_TRY(fy_communicator_submit(c, FY_COLLECTIVE_RECEIVE, other, theirs, NULL, NULL));
    if (rank == 1) FY_TRY(fy_communicator_submit(c, FY_COLLECTIVE_SEND, 0, NULL, mine, NULL));
    FY_TRY(fetch(sum, &s));
    FY_TRY(fetch(mean, &m));
    FY_TRY(fetch(one, &o));
    FY_TRY(fetch(all, &a));
    FY_TRY(fetch(part, &p));
    FY_TRY(fetch(theirs, &t));
    for (int64_t i = 0; i < N; i++) {
        WANT(s[i] == value_of(0, i) + value_of(1, i));
        WANT(m[i] == s[i] / 2);
        WANT(o[i] == value_of(1, i));
        WANT(a[i] == value_of(0, i) && a[N + i] == value_of(1, i));
        WANT(p[i] == value_of(0, rank * N + i) + value_of(1, rank * N + i));
        WANT(t[i] == value_of(other, i));
    }
    return FY_STATUS_OK;
}

TS_TEST(results)
{
    rank_t ranks[RANKS];
    const int64_t downloads = (int64_t)driver.fake_cuda_bytes(FAKE_PEER);
    run_ranks(ranks, every_kind);
    assert_int_equal(driver.fake_cuda_bytes(FAKE_PEER), downloads);
}

static fy_status_t counted(int rank, fy_communicator_t *c)
{
    fy_ledger_totals_t t = FY_LEDGER_TOTALS_INIT;
    fy_guard_options_t guard = FY_GUARD_OPTIONS_INIT;
    fy_tensor_t *x, *all;
    FY_TRY(make(rank, 100, &x));
    FY_TRY(make(rank, 200, &all));
    const fy_scope_t scope = fy_scope_begin(rank ? "one" : "zero");
    FY_TRY(fy_communicator_submit(c, FY_COLLECTIVE_ALL_REDUCE, FY_COLLECTIVE_SUM, x, NULL, NULL));
    FY_TRY(fy_communicator_submit(c, FY_COLLECTIVE_ALL_GATHER, 0, all, x, NULL));
    FY_TRY(fy_ledger_query(rank ? "rank/one" : "rank/zero", &t));
    WANT(t.collective.count == 2 && t.collective.nbytes == 400 + 800);
    WANT(t.collective.wire_nbytes == 400 + 400 && t.collective.copies == 2);
    WANT(t.download.count == 0 && t.upload.count == 0);
    guard.collective_nbytes = 399;
    FY_TRY(fy_scope_guard(&guard));
    WANT(fy_communicator_submit(c, FY_COLLECTIVE_ALL_REDUCE, FY_COLLECTIVE_SUM, x, NULL, NULL) ==
         FY_STATUS_REFUSED_BY_GUARD);
    fy_scope_end(scope, 0, NULL);
    return FY_STATUS_OK;
}

TS_TEST(counts_and_guards)
{
    rank_t ranks[RANKS];
    run_ranks(ranks, counted);
}

/* Integers, f64 and halves: those that a kind takes. */
static fy_status_t dtypes(int rank, fy_communicator_t *c)
{
    static const fy_dtype_t sums[] = { FY_DTYPE_F64, FY_DTYPE_I32, FY_DTYPE_I64 };
    for (size_t k = 0; k < sizeof sums / sizeof *sums; k++) {
        fy_tensor_t *x, *cast, *back;
        const float *got;
        FY_TRY(make(rank, 10, &x));
        FY_TRY(fy_cast(x, sums[k], &cast));
        FY_TRY(fy_communicator_submit(c, FY_COLLECTIVE_ALL_REDUCE, FY_COLLECTIVE_SUM, cast, NULL,
                                      NULL));
        FY_TRY(fy_cast(cast, FY_DTYPE_F32, &back));
        FY_TRY(fetch(back, &got));
        for (int i = 0; i < 10; i += 2) WANT(got[i] == value_of(0, i) + value_of(1, i));
    }
    fy_tensor_t *x, *half, *back;
    const float *got;
    FY_TRY(make(rank, 10, &x));
    FY_TRY(fy_cast(x, FY_DTYPE_F16, &half));
    WANT(fy_communicator_submit(c, FY_COLLECTIVE_ALL_REDUCE, FY_COLLECTIVE_SUM, half, NULL, NULL) ==
         FY_STATUS_DTYPE_MISMATCH);
    FY_TRY(fy_communicator_submit(c, FY_COLLECTIVE_BROADCAST, 0, half, NULL, NULL));
    FY_TRY(fy_cast(half, FY_DTYPE_F32, &back));
    FY_TRY(fetch(back, &got));
    for (int i = 0; i < 10; i++) WANT(got[i] == value_of(0, i));
    return FY_STATUS_OK;
}

TS_TEST(each_dtype)
{
    rank_t ranks[RANKS];
    run_ranks(ranks, dtypes);
}

/* ---- refusals ---- */

TS_TEST(opening_is_refused)
{
    char id[FY_COMMUNICATOR_ID_NBYTES] = { 0 };
    fy_communicator_t *c;
    fy_device_t *sim;
    ts_ok(fy_device_open("sim:0", &sim));
    ts_fails_with(fy_communicator_id(sim, id), UNSUPPORTED, "sim:0 has no library");
    ts_fails(fy_communicator_id(fy_device_host(), NULL), UNSUPPORTED);
    ts_fails(fy_communicator_id(NULL, id), INVALID_ARGUMENT);
    ts_ok(fy_communicator_id(cards[0], NULL));
    fy_communicator_options_t options = options_of(2, 2, id);
    ts_fails_with(fy_communicator_open(cards[0], &options, &c), INVALID_ARGUMENT, "rank 2 of 2");
    options = options_of(0, 1, NULL);
    ts_fails(fy_communicator_open(cards[0], &options, &c), INVALID_ARGUMENT);
    options.id = id;
    ts_fails(fy_communicator_open(sim, &options, &c), UNSUPPORTED);
    ts_fails(fy_communicator_open(cards[0], &options, NULL), INVALID_ARGUMENT);
    ts_fails(fy_communicator_open(cards[0], &options, &c), UNAVAILABLE); /* no such id */
    ts_text_has("ncclCommInitRankConfig");
    assert_null(c);
    fy_device_close(sim);
    fy_communicator_close(NULL);
    fy_communicator_abort(NULL, NULL);
}

#define REFUSED(kind, option, dst, src, code)                                    \
    do {                                                                         \
        ts_fails(fy_communicator_prepare(c, kind, option, dst, src), code);      \
        ts_fails(fy_communicator_submit(c, kind, option, dst, src, NULL), code); \
    } while (0)

TS_TEST(calls_are_refused)
{
    fy_communicator_t *c = open_one();
    fy_tensor_t *x = ts_iota(cards[0], FY_DIMS(4), 1), *y = ts_iota(cards[0], FY_DIMS(5), 1);
    fy_tensor_t *other = ts_iota(cards[1], FY_DIMS(4), 1), *grid, *column, *same, *ints;
    ts_ok(fy_reshape(x, FY_DIMS(2, 2), &grid));
    ts_ok(fy_slice(grid, 1, 0, 1, &column));
    ts_ok(fy_reshape(x, FY_DIMS(4), &same));
    ts_ok(fy_zeros(cards[0], FY_DTYPE_I32, FY_DIMS(4), &ints));
    const int64_t calls = driver.fake_cuda_calls("ncclAllReduce");
    REFUSED((fy_collective_t)9, 0, x, NULL, INVALID_ARGUMENT);
    REFUSED(FY_COLLECTIVE_ALL_REDUCE, 7, x, NULL, INVALID_ARGUMENT);
    REFUSED(FY_COLLECTIVE_ALL_REDUCE, 0, NULL, NULL, INVALID_ARGUMENT);
    REFUSED(FY_COLLECTIVE_ALL_REDUCE, 0, x, y, INVALID_ARGUMENT);
    REFUSED(FY_COLLECTIVE_ALL_REDUCE, 0, other, NULL, DEVICE_MISMATCH);
    REFUSED(FY_COLLECTIVE_ALL_REDUCE, 0, column, NULL, INVALID_ARGUMENT);
    REFUSED(FY_COLLECTIVE_ALL_REDUCE, FY_COLLECTIVE_MEAN, ints, NULL, DTYPE_MISMATCH);
    REFUSED(FY_COLLECTIVE_BROADCAST, 1, x, NULL, INVALID_ARGUMENT);
    REFUSED(FY_COLLECTIVE_ALL_GATHER, 0, y, x, SHAPE_MISMATCH);
    REFUSED(FY_COLLECTIVE_ALL_GATHER, 0, ints, x, DTYPE_MISMATCH);
    REFUSED(FY_COLLECTIVE_ALL_GATHER, 0, same, x, INVALID_ARGUMENT);
    REFUSED(FY_COLLECTIVE_REDUCE_SCATTER, 0, x, y, SHAPE_MISMATCH);
    REFUSED(FY_COLLECTIVE_SEND, 0, NULL, x, INVALID_ARGUMENT); /* to itself */
    REFUSED(FY_COLLECTIVE_SEND, 0, y, x, INVALID_ARGUMENT);
    REFUSED(FY_COLLECTIVE_RECEIVE, 0, x, y, INVALID_ARGUMENT);
    assert_int_equal(driver.fake_cuda_calls("ncclAllReduce"), calls);
    ts_ok(fy_communicator_submit(c, FY_COLLECTIVE_ALL_REDUCE, 0, x, NULL, NULL));
    ts_expect_f32(x, (float[]){ 1, 2, 3, 4 }, 4);
    fy_communicator_close(c);
}

/* ---- other ranks do not come ---- */

static fy_status_t say_stop(void *user)
{
    return ++*(int *)user < 3 ? FY_STATUS_OK
                              : fy_error_set(FY_STATUS_CANCELLED, __FILE__, __LINE__, "enough");
}

TS_TEST(waits_end)
{
    char id[FY_COMMUNICATOR_ID_NBYTES];
    fy_communicator_t *c;
    int asked = 0;
    ts_ok(fy_communicator_id(cards[0], id));
    fy_communicator_options_t options = options_of(0, 2, id);
    options.deadline_ns = 20000000;
    ts_fails_with(fy_communicator_open(cards[0], &options, &c), RANK_LOST,
                  "rank 0 of 2 on cuda:0 waited 0.02 s");
    ts_ok(fy_communicator_id(cards[0], id));
    options.deadline_ns = FY_FOREVER;
    options.on_wait = say_stop;
    options.user = &asked;
    ts_fails(fy_communicator_open(cards[0], &options, &c), CANCELLED);
    assert_int_equal(asked, 3);
}

TS_TEST(connecting_fails)
{
    char id[FY_COMMUNICATOR_ID_NBYTES];
    fy_communicator_t *c;
    ts_ok(fy_communicator_id(cards[0], id));
    const fy_communicator_options_t options = options_of(0, 2, id);
    driver.fake_cuda_fail("ncclCommGetAsyncError", 1, 5);
    ts_fails_with(fy_communicator_open(cards[0], &options, &c), INTERNAL,
                  "NCCL refuses two ranks that use one card");
    driver.fake_cuda_fail(NULL, 0, 0);
}

/* ---- aborts and failures ---- */

TS_TEST(an_idle_one_is_aborted)
{
    fy_communicator_t *c = open_one();
    fy_tensor_t *x = ts_iota(cards[0], FY_DIMS(4), 1);
    ts_ok(fy_communicator_submit(c, FY_COLLECTIVE_ALL_REDUCE, 0, x, NULL, NULL));
    ts_ok(fy_device_wait(cards[0], FY_FOREVER));
    fy_communicator_abort(c, "rank 7 is gone");
    fy_communicator_abort(c, "again");
    ts_fails_with(fy_communicator_submit(c, FY_COLLECTIVE_ALL_REDUCE, 0, x, NULL, NULL),
                  UNAVAILABLE, "rank 7 is gone");
    ts_expect_f32(x, (float[]){ 1, 2, 3, 4 }, 4); /* the device works */
    fy_communicator_close(c);
}

static void *abort_there(void *communicator)
{
    fy_communicator_abort(communicator, "rank 7 is gone");
    return NULL;
}

/* The fake counts an end of NCCL on a thread without a context (tear_down). */
TS_TEST(another_thread_aborts)
{
    pthread_t thread;
    fy_communicator_t *c = open_one();
    assert_int_equal(pthread_create(&thread, NULL, abort_there, c), 0);
    pthread_join(thread, NULL);
    fy_communicator_close(c);
}

TS_TEST(a_running_one_loses_the_device)
{
    fy_communicator_t *c = open_one();
    fy_tensor_t *x = ts_iota(cards[0], FY_DIMS(4), 1);
    ts_ok(fy_device_wait(cards[0], FY_FOREVER));
    driver.fake_cuda_hold(1);
    ts_ok(fy_communicator_submit(c, FY_COLLECTIVE_ALL_REDUCE, 0, x, NULL, NULL));
    fy_communicator_abort(c, "rank 7 is gone");
    driver.fake_cuda_hold(0);
    ts_fails_with(ts_try_download(x), DEVICE_LOST, "rank 7 is gone");
    ts_fails(fy_communicator_submit(c, FY_COLLECTIVE_ALL_REDUCE, 0, x, NULL, NULL), DEVICE_LOST);
    fy_communicator_close(c);
}

TS_TEST(a_failed_call_poisons_its_result)
{
    fy_communicator_t *c = open_one();
    fy_tensor_t *x = ts_iota(cards[0], FY_DIMS(4), 1), *y = ts_iota(cards[0], FY_DIMS(4), 5);
    driver.fake_cuda_fail("ncclAllReduce", 1, 6);
    ts_fails_with(fy_communicator_submit(c, FY_COLLECTIVE_ALL_REDUCE, 0, x, NULL, NULL),
                  UNAVAILABLE, "ncclAllReduce gave ncclRemoteError (6)");
    ts_fails(fy_communicator_submit(c, FY_COLLECTIVE_ALL_REDUCE, 0, y, NULL, NULL), UNAVAILABLE);
    ts_download_fails(x, UNAVAILABLE);
    ts_expect_f32(y, (float[]){ 5, 6, 7, 8 }, 4);
    fy_communicator_close(c);
}

static fy_status_t call_each(fy_communicator_t *c)
{
    fy_tensor_t *x, *y;
    FY_TRY(fy_tensor_create(cards[0], FY_DTYPE_F32, FY_DIMS(64), &x));
    FY_TRY(fy_tensor_create(cards[0], FY_DTYPE_F32, FY_DIMS(64), &y));
    FY_TRY(fy_fill(x, 3));
    FY_TRY(fy_communicator_submit(c, FY_COLLECTIVE_ALL_REDUCE, 0, x, NULL, NULL));
    FY_TRY(fy_communicator_submit(c, FY_COLLECTIVE_ALL_GATHER, 0, y, x, NULL));
    FY_TRY(fy_communicator_submit(c, FY_COLLECTIVE_REDUCE_SCATTER, 1, x, y, NULL));
    FY_TRY(fy_communicator_submit(c, FY_COLLECTIVE_BROADCAST, 0, x, NULL, NULL));
    return fy_device_wait(cards[0], FY_FOREVER);
}

/* Opens, calls, closes; the first failure is the result. */
static fy_status_t whole(void)
{
    char id[FY_COMMUNICATOR_ID_NBYTES];
    fy_communicator_t *c = NULL;
    FY_TRY(fy_communicator_id(cards[0], id));
    const fy_communicator_options_t options = options_of(0, 1, id);
    FY_TRY(fy_communicator_open(cards[0], &options, &c));
    const fy_scope_t scope = fy_scope_begin("whole");
    const fy_status_t status = call_each(c);
    const fy_error_t error = *fy_error_get();
    fy_scope_end(scope, 0, NULL);
    fy_communicator_close(c);
    return status == FY_STATUS_OK ? status
                                  : fy_error_set(status, error.file, error.line, "%s", error.text);
}

/* A device that was lost is opened again: the next run is as if nothing had happened. */
TS_TEST(each_call_of_the_driver_fails)
{
    int nfailed = 0;
    ts_ok(whole());
    for (int64_t nth = 1;; nth++) {
        driver.fake_cuda_fail(NULL, nth, 2);
        const int64_t before = driver.fake_cuda_all_calls();
        const fy_status_t status = whole();
        const int has_failed = driver.fake_cuda_all_calls() - before >= nth;
        driver.fake_cuda_fail(NULL, 0, 0);
        nfailed += status != FY_STATUS_OK;
        if (status != FY_STATUS_OK) assert_true(fy_error_get()->text[0] != 0);
        if (status == FY_STATUS_DEVICE_LOST) {
            fy_device_close(cards[0]);
            ts_ok(fy_device_open("cuda:0", &cards[0]));
        }
        ts_ok(whole());
        if (!has_failed) break;
    }
    assert_true(nfailed > 10);
}

static int prepare(void)
{
    fake_driver_or_skip();
    const char *fake = getenv("FERRY_CUDA_DRIVER");
    if (fake) setenv("FERRY_NCCL", fake, 1);
    return 0;
}

TS_SUITE(.set_up = set_up, .tear_down = tear_down, .prepare = prepare);
