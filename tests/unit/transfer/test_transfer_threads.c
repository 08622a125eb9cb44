/* Other threads act meanwhile: they wait for a device that is lost, or fork. Four threads with many
 * transfers of every kind: test_queue_threads.c. */
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "tests/support/harness.h"

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { ROUNDS = 60, FORKS = 10 };
#else
enum { ROUNDS = 300, FORKS = 60 };
#endif
enum { THREADS = 4, N = 16 };

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
    for (int i = 0; i < 2; i++) threads[i] = ts_thread(waits_for_whatever_is_there, NULL);
    for (int round = 0; round < ROUNDS; round++) {
        fy_device_t *device;
        ts_ok(fy_device_open("sim:8", &device));
        fy_tensor_t *x = ts_full(device, FY_DIMS(32, 32), 1), *y;
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
#ifdef __SANITIZE_THREAD__
    skip(); /* ThreadSanitizer's own locks do not survive such forks */
#endif
    fy_device_t *device = ts_open("sim:8");
    atomic_store(&stop, 0);
    for (int i = 0; i < THREADS; i++) threads[i] = ts_thread(uploads_until_told, device);
    for (int i = 0; i < FORKS; i++) {
        const pid_t pid = ts_fork();
        if (pid == 0) {
            fy_device_t *other;
            fy_tensor_t *x;
            if (fy_tensor_create_pinned(device, FY_DTYPE_F32, FY_DIMS(N), &x) !=
                FY_STATUS_DEVICE_LOST)
                _exit(1);
            fy_device_close(device);
            if (fy_device_open("sim:9", &other) != FY_STATUS_OK) _exit(2);
            fy_device_close(other);
            _exit(0);
        }
        ts_child_ends(pid);
    }
    atomic_store(&stop, 1);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    assert_int_equal(atomic_load(&failures), 0);
}
