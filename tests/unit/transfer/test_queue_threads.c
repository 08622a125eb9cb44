/* Four threads submit many small transfers at once, of every kind, through a window that holds a
 * few. No transfer is lost, the bytes are right, a source is free with its ticket, and cancelled
 * transfers are reported.
 * FERRY_TEST_TRANSFERS: transfers per thread (100000; a twentieth under a sanitizer). */
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "runtime/order/stream.h"
#include "runtime/tensor/tensor.h"
#include "tests/support/harness.h"

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { COUNT = 5000 };
#else
enum { COUNT = 100000 };
#endif
enum { THREADS = 4, N = 16, LANES = 8 };

typedef struct producer {
    pthread_t thread;
    fy_device_t *device;
    int number, count;
    uint64_t uploads, downloads, cancelled, wrong;
    _Atomic uint64_t *called;
    uint64_t asked; /* callbacks */
    char text[256];
} producer_t;

static void count_call(void *user, fy_status_t status)
{
    (void)status;
    atomic_fetch_add((_Atomic uint64_t *)user, 1);
}

/* Other threads than the main thread do not assert: they count errors and record the first. */
static void wrong(producer_t *producer, int line)
{
    if (!producer->wrong++)
        snprintf(producer->text, sizeof producer->text, "line %d, upload %d: %.200s", line,
                 (int)producer->uploads, fy_error_get()->text);
}
#define EXPECT(condition)                            \
    do {                                             \
        if (!(condition)) wrong(producer, __LINE__); \
    } while (0)
#define OK(expr) EXPECT((expr) == FY_STATUS_OK)

static void *produce(void *user)
{
    producer_t *producer = user;
    fy_device_t *device = producer->device;
    fy_scope_t scope = fy_scope_begin("producer");
    fy_transfer_options_t borrow = ts_borrow;
    fy_tensor_t *host, *pinned[LANES], *dst[LANES];
    fy_ticket_t tickets[LANES] = { { 0, 0 } };
    float values[N];
    OK(fy_tensor_wrap(fy_device_host(), FY_DTYPE_F32, FY_DIMS(N), values, NULL, NULL, &host));
    for (int i = 0; i < LANES; i++) {
        OK(fy_tensor_create_pinned(device, FY_DTYPE_F32, FY_DIMS(N), &pinned[i]));
        OK(fy_zeros(device, FY_DTYPE_F32, FY_DIMS(N), &dst[i]));
    }
    for (int i = 0; i < producer->count; i++) {
        const int lane = i % LANES;
        const float value = (float)(producer->number * 1000000 + i);
        const bool by_copy = i % 3 == 0;
        void *data;
        if (by_copy) {
            for (int k = 0; k < N; k++) values[k] = value;
            OK(fy_tensor_upload_into(dst[lane], host, NULL, NULL));
        } else {
            OK(fy_ticket_wait(tickets[lane], FY_FOREVER));
            OK(fy_tensor_map(pinned[lane], FY_ACCESS_WRITE, &data));
            if (!data) break;
            for (int k = 0; k < N; k++) ((float *)data)[k] = value;
            borrow.priority = i % 5;
            OK(fy_tensor_upload_into(dst[lane], pinned[lane], &borrow, &tickets[lane]));
        }
        producer->uploads++;
        if (i % 4 == 1) { /* downloads the bytes just sent */
            fy_download_t *download;
            fy_tensor_t *back = NULL;
            OK(fy_tensor_download(dst[lane], &borrow, &download));
            producer->downloads++;
            if (i % 8 == 1) {
                OK(fy_download_wait(download, FY_FOREVER, &back));
            } else
                while (!back && fy_download_try(download, &back) == FY_STATUS_OK && !back)
                    if (fy_ticket_poll(fy_tensor_ticket(dst[lane])) == FY_POLL_FAILED) break;
            EXPECT(back);
            if (!back) break;
            OK(fy_tensor_map(back, FY_ACCESS_READ, &data));
            for (int k = 0; k < N; k++) EXPECT(((float *)data)[k] == value);
            fy_tensor_destroy(back);
        } else if (i % 64 == 6) {
            fy_download_t *download; /* destroyed, queued or not */
            OK(fy_tensor_download(dst[lane], NULL, &download));
            producer->downloads++;
            fy_download_destroy(download);
        } else if (!by_copy && i % 16 == 8) {
            const int any = i % 32 == 8 ? lane : (lane + 1) % LANES; /* an earlier one */
            const fy_ticket_t ticket = tickets[any];
            const fy_status_t status = fy_ticket_cancel(ticket);
            EXPECT(status == FY_STATUS_OK || status == FY_STATUS_BUSY);
            if (status == FY_STATUS_OK) {
                producer->cancelled++;
                EXPECT(fy_ticket_poll(ticket) == FY_POLL_FAILED);
                tickets[any] = (fy_ticket_t){ 0, 0 };
            }
        } else if (i % 256 == 3) {
            OK(fy_ticket_on_done(fy_tensor_ticket(dst[lane]), count_call, producer->called));
            producer->asked++;
        }
    }
    for (int i = 0; i < LANES; i++) OK(fy_ticket_wait(tickets[i], FY_FOREVER));
    fy_scope_end(scope, 0, NULL);
    return NULL;
}

static void run(const char *spec, int count)
{
    const char *text = getenv("FERRY_TEST_TRANSFERS");
    static _Atomic uint64_t called;
    producer_t producers[THREADS];
    fy_device_t *device = ts_open(spec);
    const uint64_t live = ts_live(device);
    const fy_ledger_totals_t before = ts_ledger(NULL);
    atomic_store(&called, 0);
    for (int i = 0; i < THREADS; i++) {
        producers[i] = (producer_t){
            .device = device, .number = i, .count = text ? atoi(text) : count, .called = &called
        };
        producers[i].thread = ts_thread(produce, &producers[i]);
    }
    uint64_t uploads = 0, downloads = 0, cancelled = 0, asked = 0;
    for (int i = 0; i < THREADS; i++) pthread_join(producers[i].thread, NULL);
    for (int i = 0; i < THREADS; i++) {
        if (producers[i].wrong)
            fail_msg("thread %d: %d wrong; first: %s", i, (int)producers[i].wrong,
                     producers[i].text);
        uploads += producers[i].uploads;
        downloads += producers[i].downloads;
        cancelled += producers[i].cancelled;
        asked += producers[i].asked;
    }
    ts_ok(fy_device_wait(device, FY_FOREVER));
    const fy_ledger_totals_t after = ts_ledger(NULL);
    assert_int_equal(after.upload.count - before.upload.count, uploads);
    assert_int_equal(after.upload.nbytes - before.upload.nbytes, uploads * N * 4);
    assert_int_equal(after.download.count - before.download.count, downloads);
    assert_int_equal(after.upload.wire_nbytes - before.upload.wire_nbytes,
                     (uploads - cancelled) * N * 4);
    assert_int_equal(ts_live(device), live);
    for (int i = 0; i < 120000 && atomic_load(&called) < asked; i++) {
        const struct timespec moment = { 0, 1000000 };
        nanosleep(&moment, NULL);
    }
    assert_int_equal(atomic_load(&called), asked);
}

TS_TEST(a_window_of_a_few) { run("sim:9?window=256&queue=1KiB&numerics=on", COUNT); }

TS_TEST(a_window_of_one_and_few_requests_ahead) { run("sim:9?window=64&queue=64&ahead=8", COUNT); }

TS_TEST(sources_are_free_with_their_tickets)
{
    run("sim:9?window=128&queue=1KiB&ahead=16&order=random&seed=3", COUNT / 5);
}
