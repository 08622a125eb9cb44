/* Copies that fail while they run, on every path and in every order: the ticket and dependent
 * tensors fail with IO, the device is not lost, independent tensors are intact, and the repeated
 * call succeeds.
 * Not here: copies that are refused (unit/transfer), jobs in queues (unit/transfer/test_queue.c),
 * replays (test_graph.c). */
#include <unistd.h>

#include "tests/support/harness.h"

enum { MANY = 8, LARGE = 3 << 20 }; /* LARGE floats pass through the ring in several chunks */

typedef struct world {
    fy_device_t *device, *other;
    fy_scope_t scope;
    fy_tensor_t *host, *pinned, *wide, *x; /* host: of `n` elements; wide: f64 */
    fy_ticket_t ticket;
    int64_t n;
    char path[512];
} world_t;

static void check_ticket(const world_t *w)
{
    assert_true(w->ticket.stream != 0);
    ts_fails(fy_ticket_wait(w->ticket, FY_FOREVER), IO);
    assert_int_equal(fy_ticket_poll(w->ticket), FY_POLL_FAILED);
}

/* Every other element. */
static fy_tensor_t *column(fy_tensor_t *tensor, int64_t n)
{
    fy_tensor_t *table, *view;
    ts_ok(fy_reshape(tensor, FY_DIMS(n / 2, 2), &table));
    ts_ok(fy_slice(table, 1, 0, 1, &view));
    return view;
}

static float first_of(fy_tensor_t *tensor)
{
    fy_tensor_t *one;
    double value;
    fy_download_t *download;
    ts_ok(fy_slice(tensor, 0, 0, 1, &one));
    ts_ok(fy_tensor_download(one, NULL, &download));
    ts_ok(fy_download_wait_f64(download, FY_FOREVER, &value));
    return (float)value;
}

/* Each function moves 5s into w->x (or out of it) by its path, so that the copy that fails is not
 * the last one. */
typedef struct way {
    const char *name;
    int64_t n;
    int copy; /* the number of the copy that fails */
    void (*move)(world_t *w);
} way_t;

static void staged(world_t *w) { ts_ok(fy_tensor_upload_into(w->x, w->host, NULL, &w->ticket)); }
static void converted(world_t *w)
{
    ts_ok(fy_tensor_upload_into(w->x, w->wide, &ts_convert, &w->ticket));
}
static void borrowed(world_t *w)
{
    fy_transfer_options_t options = FY_TRANSFER_OPTIONS_INIT;
    options.contract = FY_HOST_BORROW;
    ts_ok(fy_tensor_upload_into(w->x, w->pinned, &options, &w->ticket));
}
static void strided(world_t *w)
{
    ts_ok(fy_tensor_upload_into(column(w->x, w->n), column(w->host, w->n), NULL, &w->ticket));
}
static void packed(world_t *w)
{
    fy_tensor_t *dst[MANY], *src[MANY];
    for (int i = 0; i < MANY; i++) {
        ts_ok(fy_slice(w->x, 0, i * w->n / MANY, (i + 1) * w->n / MANY, &dst[i]));
        ts_ok(fy_slice(w->host, 0, i * w->n / MANY, (i + 1) * w->n / MANY, &src[i]));
    }
    ts_ok(fy_tensor_upload_many_into(MANY, dst, src, NULL, &w->ticket));
}
/* The first copy fails, the ticket is that of the last. */
static void many_large(world_t *w)
{
    fy_tensor_t *dst[2] = { w->x }, *src[2] = { w->host, w->host };
    ts_ok(fy_empty(w->device, FY_DTYPE_F32, FY_DIMS(w->n), &dst[1]));
    ts_ok(fy_tensor_upload_many_into(2, dst, src, NULL, &w->ticket));
}
static void file(world_t *w)
{
    ts_ok(fy_tensor_upload_file(w->x, w->path, 0, NULL));
    w->ticket = fy_tensor_ticket(w->x);
}

static const way_t ways[] = {
    { "staged", 64, 1, staged },
    { "in chunks", LARGE, 1, staged },
    { "converted", 64, 1, converted },
    { "borrowed", 64, 1, borrowed },
    { "strided", 64, 1, strided },
    { "packed", 64, 1, packed },
    { "many large", 1 << 18, 1, many_large },
    { "file", LARGE, 1, file },
};

static void begin(world_t *w, const char *scope, int64_t n, const char *order, int copy)
{
    char spec[128];
    *w = (world_t){ .n = n, .scope = fy_scope_begin(scope) };
    snprintf(spec, sizeof spec, "sim:8?order=%s&faults=copy@%d", order, copy);
    ts_ok(fy_device_open(spec, &w->device));
    snprintf(spec, sizeof spec, "sim:9?order=%s", order);
    ts_ok(fy_device_open(spec, &w->other));
    ts_ok(fy_full(fy_device_host(), FY_DTYPE_F32, FY_DIMS(n), 5, &w->host));
    ts_ok(fy_full(fy_device_host(), FY_DTYPE_F64, FY_DIMS(n), 5, &w->wide));
    ts_ok(fy_tensor_create_pinned(w->device, FY_DTYPE_F32, FY_DIMS(n), &w->pinned));
    ts_ok(fy_fill(w->pinned, 5));
    ts_ok(fy_full(w->device, FY_DTYPE_F32, FY_DIMS(n), 1, &w->x));
    const char *folder = getenv("FERRY_BUILD_DIR");
    snprintf(w->path, sizeof w->path, "%s/test_copies.%ld.bin", folder ? folder : "/tmp",
             (long)getpid());
    ts_ok(fy_tensor_download_file(w->host, w->path, 0, NULL));
}

/* It may report the failure once more. */
static void drain(fy_device_t *device)
{
    const fy_status_t status = fy_device_wait(device, FY_FOREVER);
    assert_true(status == FY_STATUS_OK || status == FY_STATUS_IO);
}

static void end(world_t *w)
{
    (void)unlink(w->path);
    drain(w->device);
    ts_ok(fy_device_wait(w->device, FY_FOREVER));
    ts_ok(fy_device_wait(w->other, FY_FOREVER));
    fy_scope_end(w->scope, 0, NULL);
    fy_device_close(w->device);
    fy_device_close(w->other);
}

static const char *const orders[] = { "eager", "lazy", "random&seed=3" };

TS_TEST(failed_uploads)
{
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        for (size_t order = 0; order < 3; order++) {
            world_t w;
            fy_tensor_t *y, *apart, *host;
            fy_download_t *download;
            begin(&w, ways[i].name, ways[i].n, orders[order], ways[i].copy);
            ts_ok(fy_full(w.device, FY_DTYPE_F32, FY_DIMS(w.n), 2, &apart));
            ways[i].move(&w);
            ts_ok(fy_neg(w.x, &y));
            check_ticket(&w);
            ts_ok(fy_tensor_download(y, NULL, &download));
            ts_fails(fy_download_wait(download, FY_FOREVER, &host), IO);
            ts_fails(fy_device_wait(w.device, FY_FOREVER), IO);
            assert_true(first_of(apart) == 2);
            ts_ok(fy_fill(w.x, 1)); /* a complete overwrite */
            ways[i].move(&w);
            if (w.ticket.stream) ts_ok(fy_ticket_wait(w.ticket, FY_FOREVER));
            assert_true(first_of(w.x) == 5);
            end(&w);
        }
}

/* Bytes sent to another device: every use of them there fails too. */
TS_TEST(failed_sends)
{
    for (int is_strided = 0; is_strided < 2; is_strided++)
        for (size_t order = 0; order < 3; order++) {
            world_t w;
            fy_tensor_t *there, *dst, *src, *y, *host;
            fy_download_t *download;
            begin(&w, "send", 64, orders[order], 1);
            ts_ok(fy_full(w.other, FY_DTYPE_F32, FY_DIMS(w.n), 1, &there));
            dst = is_strided ? column(there, w.n) : there;
            src = is_strided ? column(w.x, w.n) : w.x;
            ts_ok(fy_tensor_send_into(dst, src, NULL, &w.ticket));
            ts_ok(fy_neg(there, &y));
            check_ticket(&w);
            ts_ok(fy_tensor_download(y, NULL, &download));
            ts_fails_with(fy_download_wait(download, FY_FOREVER, &host), IO, "send");
            ts_ok(fy_fill(w.x, 5));
            ts_ok(fy_fill(there, 1));
            ts_ok(fy_tensor_send_into(dst, src, NULL, &w.ticket));
            ts_ok(fy_ticket_wait(w.ticket, FY_FOREVER));
            assert_true(first_of(there) == 5);
            drain(w.other);
            end(&w);
        }
}

/* Copy 1 is the table of offsets, copy 2 the packed bytes. */
TS_TEST(failed_packed_downloads)
{
    for (int copy = 1; copy <= 2; copy++)
        for (size_t order = 0; order < 3; order++) {
            world_t w;
            fy_tensor_t *src[MANY], *host;
            fy_download_t *downloads[MANY];
            begin(&w, "collected", 64, orders[order], copy);
            for (int i = 0; i < MANY; i++)
                ts_ok(fy_full(w.device, FY_DTYPE_F32, FY_DIMS(4), i, &src[i]));
            ts_ok(fy_tensor_download_many(MANY, src, NULL, downloads));
            for (int i = 0; i < MANY; i++)
                ts_fails(fy_download_wait(downloads[i], FY_FOREVER, &host), IO);
            ts_ok(fy_tensor_download_many(MANY, src, NULL, downloads));
            for (int i = 0; i < MANY; i++) ts_ok(fy_download_wait(downloads[i], FY_FOREVER, &host));
            assert_true(first_of(src[MANY - 1]) == MANY - 1);
            end(&w);
        }
}

TS_TEST(failed_downloads)
{
    for (int copy = 1; copy <= 2; copy++) /* LARGE has several chunks: each of them fails once */
        for (size_t order = 0; order < 3; order++) {
            world_t w;
            fy_tensor_t *host;
            fy_download_t *download;
            begin(&w, "downloads", LARGE, orders[order], copy);
            if (copy == 1) {
                ts_ok(fy_tensor_download(w.x, NULL, &download));
                ts_fails(fy_download_wait(download, FY_FOREVER, &host), IO);
            } else {
                ts_fails(fy_tensor_download_into(w.host, w.x, NULL), IO);
                ts_fails(fy_tensor_upload(w.host, w.device, NULL, &host), IO); /* poisoned */
            }
            ts_ok(fy_tensor_download_into(w.host, w.x, NULL));
            ts_ok(fy_tensor_upload(w.host, w.device, NULL, &host));
            assert_true(first_of(w.x) == 1);
            end(&w);
        }
}
