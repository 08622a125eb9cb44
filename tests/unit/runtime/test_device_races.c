/* Several threads open and close devices at once; other threads hold old tickets or work on the
 * host. */
#include <pthread.h>
#include <stdatomic.h>

#include "tests/support/harness.h"

enum { THREADS = 4, ROUNDS = 300 };
static _Atomic int failures, stop;

static void expect(fy_status_t status)
{
    if (status != FY_STATUS_OK) failures++;
}

static void *opens_and_closes(void *user)
{
    (void)user;
    for (int i = 0; i < ROUNDS; i++) {
        fy_device_t *device;
        expect(fy_device_open("sim:11", &device));
        fy_device_close(device);
    }
    return NULL;
}

TS_DEVICE_TEST(one_device_many_openers)
{
    if (!ctx->is_host) skip();
    failures = 0;
    ts_on_threads(THREADS, opens_and_closes, NULL, 0);
    assert_int_equal(failures, 0);
}

static fy_ticket_t old_ticket;

static void *polls_and_works_on_the_host(void *user)
{
    (void)user;
    fy_scope_t scope = fy_scope_begin("host");
    fy_tensor_t *x, *y;
    expect(fy_full(fy_device_host(), FY_DTYPE_F32, FY_DIMS(100), 1, &x));
    while (!stop) {
        if (fy_ticket_poll(old_ticket) == FY_POLL_FAILED) failures++;
        expect(fy_add(x, x, &y));
        fy_tensor_destroy(y);
    }
    fy_scope_end(scope, 0, NULL);
    return NULL;
}

TS_DEVICE_TEST(an_old_ticket_outlives_its_device)
{
    fy_device_t *device;
    if (!ctx->is_host) skip();
    failures = 0;
    stop = 0;
    ts_ok(fy_device_open("sim:12", &device));
    fy_tensor_t *x = ts_iota(device, FY_DIMS(64), 0);
    old_ticket = fy_tensor_ticket(x);
    fy_tensor_destroy(x);
    const pthread_t thread = ts_thread(polls_and_works_on_the_host, NULL);
    for (int i = 0; i < ROUNDS; i++) {
        fy_device_close(device);
        ts_ok(fy_device_open(i % 2 ? "sim:12" : "sim:13", &device));
    }
    fy_device_close(device);
    stop = 1;
    pthread_join(thread, NULL);
    assert_int_equal(failures, 0);
}
