/* Recordings whose N-th allocation or write fails. The call that begins or ends the recording
 * reports it, no other call fails, nothing leaks, and the next recording is whole. */
#include <unistd.h>

#include "tests/support/harness.h"
#include "tests/support/host_files.h"
#include "tests/support/host_memory.h"
#include "tools/cli/event_file.h"

static char path[64];

/* A call of a group of processes, as libferry_dist reports it. */
static fy_status_t call_group(const char *name, fy_status_t end)
{
    const fy_status_t status = fy_ledger_collective(name, 256);
    fy_ledger_collective_moved(400, 2, 30);
    fy_ledger_collective_ran(name, 1, 1, 0, end);
    return status;
}

/* Requests of every kind that has an event, with a name and a graph. */
static void work(fy_device_t *device)
{
    float data[64] = { 1 }, sum = 0;
    fy_tensor_t *host, *x, *y;
    fy_download_t *answer;
    fy_graph_t *graph;
    double value = 0;
    const fy_scope_t scope = fy_scope_begin("work");
    ts_ok(fy_tensor_wrap(fy_device_host(), FY_DTYPE_F32, FY_DIMS(8, 8), data, NULL, NULL, &host));
    ts_ok(fy_tensor_upload(host, device, NULL, &x));
    fy_tensor_set_name(x, "x");
    ts_ok(fy_graph_begin(device));
    ts_ok(fy_matmul(x, x, &y));
    ts_ok(fy_sum(y, FY_AXES(0, 1), 0, &y));
    ts_ok(fy_graph_end(&graph));
    ts_ok(fy_graph_replay(graph, NULL));
    ts_ok(fy_tensor_download(y, NULL, &answer));
    ts_ok(fy_download_wait_f64(answer, FY_FOREVER, &value));
    ts_ok(call_group("group_all_reduce", FY_STATUS_OK));
    sum = (float)value;
    assert_true(sum > 0);
    fy_graph_destroy(graph);
    fy_scope_end(scope, 0, NULL);
}

static size_t size_of_file(void)
{
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    const long size = ftell(file);
    fclose(file);
    return (size_t)size;
}

static void count_calls(void *user, const event_t *event)
{
    int *counts = user;
    counts[0] += event_is(event, "collective") && event_whole(event, "bytes") == 256;
    counts[1] += event_is(event, "exchange") && event_whole(event, "messages") == 2;
    counts[2] += event_is(event, "collective_ran") && event_whole(event, "rank") == 1;
}

/* The file is whole, and has each event of a call of a group. */
static void expect_whole(void)
{
    int counts[3] = { 0 };
    event_file_info_t info;
    ts_ok(event_file_read(path, count_calls, counts, &info));
    assert_true(info.is_whole);
    for (int i = 0; i < 3; i++) assert_int_equal(counts[i], 1);
}

/* A whole recording. */
static void records(fy_device_t *device)
{
    ts_ok(fy_ledger_record(path));
    work(device);
    ts_ok(fy_ledger_record(NULL));
    assert_true(size_of_file() > 500);
    expect_whole();
}

static void begins_without_memory(fy_device_t *device)
{
    int failed = 0;
    for (int n = 0;; n++) {
        ts_fail_allocation(n);
        const fy_status_t status = fy_ledger_record(path);
        const int struck = ts_allocation_failed();
        ts_fail_allocation(-1);
        if (!struck) {
            ts_ok(status);
            ts_ok(fy_ledger_record(NULL));
            break;
        }
        failed += status != FY_STATUS_OK;
        if (status == FY_STATUS_OK) {
            ts_ok(fy_ledger_record(NULL)); /* a text or a signature that has no memory */
            continue;
        }
        ts_fails_with(status, OUT_OF_MEMORY, "ledger_record");
        ts_ok(fy_ledger_record(NULL)); /* nothing runs */
        work(device);
    }
    assert_true(failed >= 2); /* the ring, the writer */
    records(device);
}

/* The name of a call is copied at its first event: without memory for the copy the recording goes
 * on, and all lines can be read. */
static void calls_of_groups_without_memory(fy_device_t *device)
{
    static int names;
    int n = 0;
    (void)device;
    for (int struck = 1; struck; n++) {
        char name[64];
        assert_in_range(n, 0, 100);
        snprintf(name, sizeof name, "group %d of \"\\\n\x01\xff\"", names++);
        ts_ok(fy_ledger_record(path));
        const fy_scope_t scope = fy_scope_begin("calls");
        ts_fail_allocation(n);
        const fy_status_t status = call_group(name, FY_STATUS_RANK_LOST);
        struck = ts_allocation_failed();
        ts_fail_allocation(-1);
        fy_scope_end(scope, 0, NULL);
        ts_ok(status);
        ts_ok(fy_ledger_record(NULL));
        expect_whole();
    }
    assert_true(n > 1);
}

static void writes_fail(fy_device_t *device)
{
    int n = 0;
    for (;; n++) {
        ts_ok(fy_ledger_record(path));
        ts_fail_write(n);
        work(device);
        const fy_status_t status = fy_ledger_record(NULL);
        const int struck = ts_write_failed();
        ts_fail_write(-1);
        if (!struck) {
            ts_ok(status);
            break;
        }
        ts_fails_with(status, IO, "No space");
    }
    assert_true(n >= 1);
    records(device);
}

/* Plain and compressed. */
static void sweep(void (*run)(fy_device_t *device))
{
    for (int i = 0; i < 2; i++) {
        const char *suffix = i ? ".jsonl.gz" : ".jsonl";
        fy_device_t *device;
        snprintf(path, sizeof path, "/tmp/test_recording.XXXXXX%s", suffix);
        const int fd = mkstemps(path, (int)strlen(suffix));
        assert_true(fd >= 0);
        close(fd);
        ts_ok(fy_device_open("sim:0", &device));
        work(device); /* what only the first run makes */
        run(device);
        fy_device_close(device);
        assert_int_equal(unlink(path), 0);
    }
}

TS_TEST(beginning_without_memory) { sweep(begins_without_memory); }

TS_TEST(a_call_of_a_group_without_memory) { sweep(calls_of_groups_without_memory); }

TS_TEST(a_disk_that_fills) { sweep(writes_fail); }
