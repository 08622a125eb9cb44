/* Other threads act meanwhile: they cancel and borrow through a narrow queue (a source is free with
 * its ticket), wait for a device that is lost, or fork. Four threads with many transfers of every
 * kind: test_queue_threads.c. */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/harness.h"

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { EACH = 2000, ROUNDS = 60, FORKS = 10 };
#else
enum { EACH = 20000, ROUNDS = 300, FORKS = 60 };
#endif
enum { THREADS = 4, N = 16, SOURCES = 8 };

/* ---- four producers ---- */

typedef struct producer {
    fy_device_t *device;
    int number;
    fy_status_t status;
    char text[512];
    uint64_t wrong;
} producer_t;

static fy_status_t write_source(fy_tensor_t *src, fy_ticket_t ticket, float value)
{
    void *data;
    FY_TRY(fy_ticket_wait(ticket, FY_FOREVER));
    FY_TRY(fy_tensor_map(src, FY_ACCESS_WRITE, &data));
    for (int i = 0; i < N; i++) ((float *)data)[i] = value;
    return FY_STATUS_OK;
}

/* Uploads of both kinds, some of them cancelled, and sometimes a download that checks the bytes. */
static fy_status_t produce(producer_t *producer)
{
    fy_tensor_t *src[SOURCES], *dst[SOURCES];
    fy_ticket_t tickets[SOURCES] = { { 0, 0 } };
    float values[SOURCES] = { 0 };
    for (int i = 0; i < SOURCES; i++) {
        FY_TRY(fy_tensor_create_pinned(producer->device, FY_DTYPE_F32, FY_DIMS(N), &src[i]));
        FY_TRY(fy_tensor_create(producer->device, FY_DTYPE_F32, FY_DIMS(N), &dst[i]));
    }
    for (int i = 0; i < EACH; i++) {
        const int s = i % SOURCES;
        fy_transfer_options_t options = FY_TRANSFER_OPTIONS_INIT;
        options.contract = i % 3 ? FY_HOST_BORROW : FY_HOST_COPY;
        options.priority = i % 5;
        values[s] = (float)(producer->number * EACH + i);
        FY_TRY(write_source(src[s], tickets[s], values[s]));
        FY_TRY(fy_tensor_upload_into(dst[s], src[s], &options, &tickets[s]));
        if (i % 64 != 63) continue;
        fy_download_t *download;
        fy_tensor_t *host;
        void *data;
        FY_TRY(fy_tensor_download(dst[s], NULL, &download));
        FY_TRY(fy_download_wait(download, FY_FOREVER, &host));
        FY_TRY(fy_tensor_map(host, FY_ACCESS_READ, &data));
        for (int k = 0; k < N; k++) producer->wrong += ((float *)data)[k] != values[s];
        fy_tensor_destroy(host);
        const fy_status_t cancelled = fy_ticket_cancel(tickets[(s + 1) % SOURCES]);
        if (cancelled == FY_STATUS_OK) tickets[(s + 1) % SOURCES] = (fy_ticket_t){ 0, 0 };
        if (cancelled != FY_STATUS_OK && cancelled != FY_STATUS_BUSY) return cancelled;
    }
    return FY_STATUS_OK;
}

static void *run_producer(void *user)
{
    producer_t *producer = user;
    fy_scope_t scope = fy_scope_begin("producer");
    producer->status = produce(producer);
    if (producer->status != FY_STATUS_OK)
        snprintf(producer->text, sizeof producer->text, "%s", fy_error_get()->text);
    fy_scope_end(scope, 0, NULL);
    return NULL;
}

static void four_producers(const char *spec)
{
    pthread_t threads[THREADS];
    producer_t producers[THREADS];
    fy_device_t *device;
    ts_ok(fy_device_open(spec, &device));
    const fy_ledger_totals_t before = ts_ledger("producer");
    for (int i = 0; i < THREADS; i++) {
        producers[i] = (producer_t){ .device = device, .number = i };
        assert_int_equal(pthread_create(&threads[i], NULL, run_producer, &producers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < THREADS; i++) {
        if (producers[i].status != FY_STATUS_OK) fail_msg("producer %d: %s", i, producers[i].text);
        assert_int_equal(producers[i].wrong, 0);
    }
    const fy_ledger_totals_t after = ts_ledger("producer");
    assert_int_equal(after.upload.count - before.upload.count, (uint64_t)THREADS * EACH);
    assert_int_equal(after.upload.nbytes - before.upload.nbytes, (uint64_t)THREADS * EACH * N * 4);
    ts_ok(fy_device_wait(device, FY_FOREVER));
    fy_device_close(device);
}

TS_TEST(sources_are_free_with_their_tickets)
{
    four_producers("sim:8?window=128&queue=1KiB&ahead=16&order=random&seed=3");
}

/* ---- tickets of a lost device ---- */

static _Atomic uint64_t shared_stream, shared_seq;
static _Atomic int stop, failures;

static void *waits_for_whatever_is_there(void *user)
{
    (void)user;
    while (!atomic_load(&stop)) {
        const fy_ticket_t ticket = { atomic_load(&shared_stream), atomic_load(&shared_seq) };
        const fy_status_t status = fy_ticket_wait(ticket, FY_FOREVER);
        /* fields of two different tickets */
        if (status != FY_STATUS_OK && status != FY_STATUS_INVALID_ARGUMENT)
            atomic_fetch_add(&failures, 1);
        (void)fy_ticket_poll(ticket);
    }
    return NULL;
}

static _Atomic int ncalled;
static void called(void *user, fy_status_t status)
{
    (void)user;
    if (status != FY_STATUS_OK) atomic_fetch_add(&failures, 1);
    atomic_fetch_add(&ncalled, 1);
}

TS_TEST(a_device_is_lost_while_others_wait_for_it)
{
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, waits_for_whatever_is_there, NULL), 0);
    for (int round = 0; round < ROUNDS; round++) {
        fy_device_t *device;
        fy_tensor_t *x, *y;
        ts_ok(fy_device_open("sim:8", &device));
        ts_ok(fy_full(device, FY_DTYPE_F32, FY_DIMS(32, 32), 1, &x));
        ts_ok(fy_matmul(x, x, &y));
        const fy_ticket_t ticket = fy_tensor_ticket(y);
        atomic_store(&shared_stream, ticket.stream);
        atomic_store(&shared_seq, ticket.seq);
        ts_ok(fy_ticket_on_done(ticket, called, NULL));
        fy_tensor_destroy(x);
        fy_tensor_destroy(y);
        fy_device_close(device);
    }
    atomic_store(&stop, 1);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    assert_int_equal(atomic_load(&failures), 0);
    for (int i = 0; i < 120000 && atomic_load(&ncalled) < ROUNDS; i++) usleep(1000);
    assert_int_equal(atomic_load(&ncalled), ROUNDS);
}

/* ---- forks ---- */

static void *uploads_until_told(void *user)
{
    fy_tensor_t *src, *dst;
    fy_ticket_t ticket;
    if (fy_tensor_create_pinned(user, FY_DTYPE_F32, FY_DIMS(N), &src) != FY_STATUS_OK) return NULL;
    if (fy_tensor_create(user, FY_DTYPE_F32, FY_DIMS(N), &dst) != FY_STATUS_OK) return NULL;
    while (!atomic_load(&stop))
        if (fy_tensor_upload_into(dst, src, &ts_borrow, &ticket) != FY_STATUS_OK)
            atomic_fetch_add(&failures, 1);
    fy_tensor_destroy(src);
    fy_tensor_destroy(dst);
    return NULL;
}

TS_TEST(a_forked_child_does_not_wait_for_a_queue)
{
    pthread_t threads[THREADS];
    fy_device_t *device;
#ifdef __SANITIZE_THREAD__
    skip(); /* ThreadSanitizer's own locks do not survive such forks */
#endif
    ts_ok(fy_device_open("sim:8", &device));
    atomic_store(&stop, 0);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, uploads_until_told, device), 0);
    fflush(NULL);
    for (int i = 0; i < FORKS; i++) {
        int status;
        const pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            fy_device_t *other;
            fy_tensor_t *x;
            alarm(240);
            if (fy_tensor_create_pinned(device, FY_DTYPE_F32, FY_DIMS(N), &x) !=
                FY_STATUS_DEVICE_LOST)
                _exit(1);
            fy_device_close(device);
            if (fy_device_open("sim:9", &other) != FY_STATUS_OK) _exit(2);
            fy_device_close(other);
            _exit(0);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        if (WIFSIGNALED(status))
            fail_msg("fork %d: the child died of signal %d", i, WTERMSIG(status));
        assert_int_equal(WEXITSTATUS(status), 0);
    }
    atomic_store(&stop, 1);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    fy_device_close(device);
    assert_int_equal(atomic_load(&failures), 0);
}
