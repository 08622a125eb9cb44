/* Several threads open and close devices at once; other threads hold old tickets, work on the host,
 * or begin recordings. */
#include <ferry/plan.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

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

/* ---- recordings that begin while others open devices, streams and plans ---- */

enum { RECORDINGS = 12, STREAMS = 6, DEVICES = 16 };

static void *opens_streams(void *user)
{
    (void)user;
    const fy_stream_options_t options = { .struct_size = sizeof options, .name = "of a thread" };
    while (!stop) {
        fy_device_t *device;
        fy_stream_t *streams[STREAMS];
        expect(fy_device_open("sim:14", &device));
        for (int i = 0; i < STREAMS; i++)
            expect(fy_stream_create(device, i % 2 ? &options : NULL, &streams[i]));
        for (int i = 0; i < STREAMS; i++) fy_stream_destroy(streams[i]);
        fy_device_close(device);
    }
    return NULL;
}

static fy_status_t plan_step(fy_device_t *device, int64_t batch, void *user)
{
    fy_tensor_t *x;
    (void)user;
    return fy_zeros(device, FY_DTYPE_F32, FY_DIMS(batch, 8), &x);
}

static void *opens_plans(void *user)
{
    (void)user;
    while (!stop) {
        fy_plan_t plan = FY_PLAN_INIT;
        expect(fy_plan_step("sim", plan_step, NULL, 4, NULL, &plan));
    }
    return NULL;
}

static void *opens_graphs(void *user)
{
    (void)user;
    fy_device_t *device;
    expect(fy_device_open("sim:13", &device));
    while (!stop) {
        fy_graph_t *graph = NULL;
        fy_tensor_t *x, *y;
        fy_scope_t scope = fy_scope_begin("graphs");
        expect(fy_zeros(device, FY_DTYPE_F32, FY_DIMS(8), &x));
        expect(fy_graph_begin(device));
        expect(fy_add(x, x, &y));
        expect(fy_graph_end(&graph));
        fy_graph_destroy(graph);
        fy_scope_end(scope, 0, NULL);
    }
    fy_device_close(device);
    return NULL;
}

/* Copies the text of `key` in a line of an event file. */
static bool text_of(const char *line, const char *key, char text[64])
{
    char format[32];
    snprintf(format, sizeof format, "\"%s\":\"", key);
    const char *at = strstr(line, format);
    return at && sscanf(at + strlen(format), "%63[^\"]", text) == 1;
}

/* Each device of the file has its event, and each stream a whole name and its device. */
static void check_file(const char *path)
{
    static const char *const names[] = { "compute", "upload", "download", "stream", "of a thread" };
    char *line = NULL, device[64], name[64], known[DEVICES][64], used[DEVICES][64];
    size_t size = 0, nknown = 0, nused = 0, i;
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (getline(&line, &size, file) > 0) {
        if (!text_of(line, "device", device)) continue;
        const bool is_device = strstr(line, "\"ev\":\"device\"") != NULL;
        char(*list)[64] = is_device ? known : used;
        size_t *count = is_device ? &nknown : &nused;
        for (i = 0; i < *count && strcmp(list[i], device) != 0; i++) {}
        assert_true(i < DEVICES);
        strcpy(list[i], device);
        *count += i == *count;
        if (!strstr(line, "\"ev\":\"stream\"")) continue;
        if (!text_of(line, "name", name)) fail_msg("a stream without a name: %s", line);
        for (i = 0; i < sizeof names / sizeof *names && strcmp(names[i], name) != 0; i++) {}
        if (i == sizeof names / sizeof *names) fail_msg("a stream named '%s'", name);
        if (strcmp(device, "host") == 0) fail_msg("a stream of the host: %s", line);
    }
    for (size_t u = 0; u < nused; u++) {
        for (i = 0; i < nknown && strcmp(known[i], used[u]) != 0; i++) {}
        if (i == nknown) fail_msg("%s is used, and has no event", used[u]);
    }
    free(line);
    fclose(file);
}

TS_DEVICE_TEST(a_recording_begins_while_others_open)
{
    static void *(*const openers[])(void *user) = { opens_streams, opens_streams, opens_plans,
                                                    opens_graphs };
    enum { OPENERS = sizeof openers / sizeof *openers };
    pthread_t threads[OPENERS];
    char path[] = "/tmp/test_races.XXXXXX";
    if (!ctx->is_host) skip();
    failures = 0;
    stop = 0;
    close(mkstemp(path));
    for (int i = 0; i < OPENERS; i++) threads[i] = ts_thread(openers[i], NULL);
    for (int i = 0; i < RECORDINGS; i++) {
        ts_ok(fy_ledger_record(path));
        usleep(1000);
        ts_ok(fy_ledger_record(NULL));
        check_file(path);
    }
    stop = 1;
    for (int i = 0; i < OPENERS; i++) pthread_join(threads[i], NULL);
    unlink(path);
    assert_int_equal(failures, 0);
}
