/* The ring of events and recordings: its capacity, the counter of lost events, the order per
 * thread, begin and end, the content of the file.
 * Not here: the file of a whole program (tests/conformance/test_events.c). */
#include "runtime/record/event_ring.h"

#include <pthread.h>
#include <unistd.h>

#include "tests/support/harness.h"

enum { SHIFT = 7, CELLS = 2, CAPACITY = (1 << SHIFT) / CELLS, THREADS = 4, EACH = 20000 };

/* It takes CELLS cells. */
static fy__event_t numbered(uint32_t thread, uint64_t number)
{
    return (fy__event_t){ .kind = FY__EVENT_SYNC, .thread = thread, .nbytes = number };
}

/* An event that does not fit is counted as lost, never dropped silently (pytorch#179276). */
TS_TEST(ring_is_bounded)
{
    fy__event_ring_t ring = { NULL };
    fy__event_t event;
    assert_true(fy__event_ring_open(&ring, SHIFT));
    assert_null(fy__event_ring_peek(&ring));
    for (int round = 0; round < 3; round++) { /* wraps around the ring */
        for (uint64_t i = 0; i < CAPACITY + 5; i++) {
            event = numbered(1, i);
            assert_int_equal(fy__event_ring_put(&ring, &event), i < CAPACITY);
        }
        assert_int_equal(atomic_load(&ring.lost), 5 * (round + 1));
        for (uint64_t i = 0; i < CAPACITY; i++) {
            const fy__event_t *oldest = fy__event_ring_peek(&ring);
            assert_non_null(oldest);
            assert_int_equal(oldest->nbytes, i);
            fy__event_ring_done(&ring);
        }
        assert_null(fy__event_ring_peek(&ring));
    }
    event = numbered(1, 0); /* one slot is free: one event fits */
    for (int i = 0; i < CAPACITY; i++) assert_true(fy__event_ring_put(&ring, &event));
    assert_non_null(fy__event_ring_peek(&ring));
    fy__event_ring_done(&ring);
    assert_true(fy__event_ring_put(&ring, &event));
    assert_false(fy__event_ring_put(&ring, &event));
    fy__event_ring_close(&ring);
}

/* An op with `count` operands whose ids are `number` and the following ones. */
static fy__event_t op_with(unsigned count, uint64_t number)
{
    fy__event_t event = { .kind = FY__EVENT_OP, .nsrc = (uint8_t)count, .nbytes = number };
    for (unsigned i = 0; i < count; i++)
        fy__event_operands(&event)[i] = (fy__event_bytes_t){ number + i, 7, i };
    return event;
}

/* Events of different lengths, at every place of the ring, also over its end: each arrives whole,
 * and nothing of a longer one shows in a later, shorter one. */
TS_TEST(records_have_different_lengths)
{
    fy__event_ring_t ring = { NULL };
    uint64_t put = 0, taken = 0;
    assert_true(fy__event_ring_open(&ring, SHIFT));
    while (taken < 5000) {
        fy__event_t event = op_with((unsigned)(put * 5 % 9), put);
        while (fy__event_ring_put(&ring, &event)) {
            put++;
            event = op_with((unsigned)(put * 5 % 9), put);
        }
        for (int i = 0; i < 3 && taken < put; i++, taken++) {
            const fy__event_t *oldest = fy__event_ring_peek(&ring);
            assert_non_null(oldest);
            assert_int_equal(oldest->nbytes, taken);
            assert_int_equal(oldest->nsrc, taken * 5 % 9);
            for (unsigned k = 0; k < oldest->nsrc; k++) {
                const fy__event_bytes_t bytes = fy__event_operands(oldest)[k];
                assert_int_equal(bytes.id, taken + k);
                assert_int_equal(bytes.name, 7);
                assert_int_equal(bytes.version, k);
            }
            fy__event_ring_done(&ring);
        }
    }
    fy__event_ring_close(&ring);
}

/* A ring that has ended takes nothing, and one that is opened again begins empty. */
TS_TEST(a_ring_ends)
{
    fy__event_ring_t ring = { NULL };
    const fy__event_t event = numbered(1, 1);
    uint64_t tail;
    for (int lap = 0; lap < 3; lap++) {
        assert_true(fy__event_ring_open(&ring, SHIFT));
        assert_null(fy__event_ring_peek(&ring));
        assert_true(fy__event_ring_put(&ring, &event));
        fy__event_ring_end(&ring);
        assert_false(fy__event_ring_put(&ring, &event));
        assert_int_equal(atomic_load(&ring.lost), 0);
        assert_int_equal(fy__event_ring_drained(&ring, &tail), FY__EVENT_DRAINING);
        assert_non_null(fy__event_ring_peek(&ring));
        fy__event_ring_done(&ring);
        assert_int_equal(fy__event_ring_drained(&ring, &tail), FY__EVENT_DRAINED);
        fy__event_ring_close(&ring);
    }
}

/* A thread took cells and has not filled them: a signal handler that exits interrupted it. */
TS_TEST(an_unfinished_record_is_seen)
{
    fy__event_ring_t ring = { NULL };
    uint64_t tail;
    assert_true(fy__event_ring_open(&ring, SHIFT));
    atomic_fetch_add(&ring.head, CELLS);
    fy__event_ring_end(&ring);
    assert_int_equal(fy__event_ring_drained(&ring, &tail), FY__EVENT_UNFINISHED);
    assert_null(fy__event_ring_peek(&ring));
    fy__event_ring_close(&ring);
}

typedef struct producer {
    fy__event_ring_t *ring;
    uint32_t number;
    uint64_t put;
} producer_t;

static void *produce(void *user)
{
    producer_t *producer = user;
    for (uint64_t i = 1; i <= EACH; i++) {
        const fy__event_t event = numbered(producer->number, i);
        producer->put += fy__event_ring_put(producer->ring, &event);
    }
    return NULL;
}

/* Four threads write as fast as they can into a ring that is too small. The events that arrive and
 * those that are lost add up, and the order per thread is kept. */
TS_TEST(four_threads)
{
    fy__event_ring_t ring = { NULL };
    pthread_t threads[THREADS];
    producer_t producers[THREADS];
    uint64_t last[THREADS] = { 0 }, taken[THREADS] = { 0 }, all = 0, put = 0;
    assert_true(fy__event_ring_open(&ring, SHIFT));
    for (uint32_t i = 0; i < THREADS; i++) {
        producers[i] = (producer_t){ &ring, i, 0 };
        threads[i] = ts_thread(produce, &producers[i]);
    }
    while (all + atomic_load(&ring.lost) < THREADS * EACH) {
        const fy__event_t *event = fy__event_ring_peek(&ring);
        if (!event) continue;
        assert_in_range(event->thread, 0, THREADS - 1);
        assert_true(event->nbytes > last[event->thread]);
        last[event->thread] = event->nbytes;
        taken[event->thread]++;
        all++;
        fy__event_ring_done(&ring);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(taken[i], producers[i].put);
        put += producers[i].put;
    }
    assert_int_equal(put + atomic_load(&ring.lost), THREADS * EACH);
    assert_null(fy__event_ring_peek(&ring));
    fy__event_ring_close(&ring);
}

/* ---- recordings ---- */

static int count_of(const char *text, const char *part)
{
    int n = 0;
    for (; (text = strstr(text, part)); text++) n++;
    return n;
}

static char path[64];

static int make_path(void **state)
{
    (void)state;
    strcpy(path, "/tmp/test_event.XXXXXX");
    ts_make_file(path);
    return 0;
}

static int remove_path(void **state)
{
    (void)state;
    const fy_status_t status =
        fy_ledger_record(NULL); /* a failed test may have left a recording open */
    ts_close();
    return unlink(path) || status != FY_STATUS_OK;
}

TS_TEST_WITH(a_recording, make_path, remove_path)
{
    fy_tensor_t *x, *y;
    ts_ok(fy_ledger_record(NULL)); /* no recording to end */
    ts_fails_with(fy_ledger_record("/nowhere/at/all"), IO, "/nowhere/at/all");
    ts_fails(fy_ledger_record(""), INVALID_ARGUMENT);
    char far[5000] = "";
    for (size_t i = 0; i + 2 < 4500; i += 2) memcpy(far + i, "./", 3);
    memcpy(far + 4094, "x", 2); /* the path as given is opened */
    memset(far + 4095, 'y', 100);
    /* not a path truncated to 4095 bytes */
    ts_fails(fy_ledger_record(far), INVALID_ARGUMENT);
    assert_int_not_equal(access("x", F_OK), 0);
    assert_false(fy__event_on());
    ts_ok(fy_ledger_record(path));
    assert_true(fy__event_on());
    ts_fails(fy_ledger_record(path), BUSY);
    fy_scope_t scope = fy_scope_begin("a \"name\"\n\xff");
    ts_ok(fy_full(fy_device_host(), FY_DTYPE_F32, FY_DIMS(4), 1, &x));
    ts_ok(fy_add(x, x, &y));
    fy_scope_end(scope, 0, NULL);
    ts_ok(fy_ledger_record(NULL));
    assert_false(fy__event_on());
    char *text = ts_text_of(path);
    assert_true(strncmp(text, "{\"ev\":\"ferry\",\"version\":1,", 26) == 0);
    assert_int_equal(count_of(text, "\"op\":\"add\""), 1);
    assert_int_equal(count_of(text, "{\"ev\":\"scope_begin\""), 1);
    assert_int_equal(count_of(text, "\"scope\":\"a \\\"name\\\"\\u000a\\ufffd\""),
                     count_of(text, "\"scope\":\"a "));
    assert_int_equal(count_of(text, "{\"ev\":\"end\""), 1);
    assert_non_null(strstr(text, "\"lost\":0}\n"));
    /* The last line counts the lines between it and the first. */
    char want[64];
    snprintf(want, sizeof want, "\"events\":%d,", count_of(text, "{\"ev\":\"") - 2);
    assert_non_null(strstr(text, want));
    free(text);
    /* the same file again, from the beginning; ids of the first recording have no meaning in it */
    ts_ok(fy_ledger_record(path));
    ts_ok(fy_full(fy_device_host(), FY_DTYPE_F32, FY_DIMS(4), 1, &x));
    fy_tensor_destroy(x);
    ts_ok(fy_ledger_record(NULL));
    text = ts_text_of(path);
    assert_int_equal(count_of(text, "\"op\":\"add\""), 0);
    assert_int_equal(count_of(text, "{\"ev\":\"ferry\""), 1);
    free(text);
}

/* Names that tensors have before they are used, and get later; a name is written once. */
TS_TEST_WITH(tensors_have_names, make_path, remove_path)
{
    ts_ok(fy_ledger_record(path));
    fy_tensor_t *x = ts_full(fy_device_host(), FY_DIMS(4), 1), *y, *z;
    fy_tensor_set_name(x, "a \"name\"");
    ts_ok(fy_add(x, x, &y));
    fy_tensor_set_name(y, "sum");
    fy_tensor_destroy(y);
    ts_ok(fy_add(x, x, &y));
    fy_tensor_set_name(x, "");
    ts_ok(fy_add(x, y, &z));
    ts_ok(fy_ledger_record(NULL));
    char *text = ts_text_of(path);
    assert_int_equal(count_of(text, "{\"ev\":\"name\""), 2);
    assert_int_equal(count_of(text, "\"name\":\"a \\\"name\\\"\"}"), 1);
    assert_int_equal(count_of(text, "\"name\":\"sum\"}"), 1);
    assert_int_equal(count_of(text, "{\"ev\":\"named\""),
                     2); /* a name that is taken away is none */
    assert_int_equal(count_of(text, "\"names\":["), 2);
    const char *names = strstr(text, "\"names\":[");
    unsigned first = 0, second = 0, third = 9;
    assert_int_equal(sscanf(names, "\"names\":[%u,%u,%u]", &first, &second, &third), 3);
    assert_int_not_equal(first, 0);
    assert_int_equal(first, second);
    assert_int_equal(third, 0);
    free(text);
    fy_tensor_destroy(x);
    fy_tensor_destroy(y);
    fy_tensor_destroy(z);
}

/* A replay of two calls is an op behind its launches. */
TS_TEST_WITH(a_replay_has_launches, make_path, remove_path)
{
    fy_device_t *device = ts_open("sim:0?fuse=off");
    fy_tensor_t *x = ts_full(device, FY_DIMS(2, 2), 1), *y, *z;
    ts_ok(fy_graph_begin(device));
    ts_ok(fy_matmul(x, x, &y));
    ts_ok(fy_sum(y, FY_AXES(0), 0, &z));
    fy_graph_t *graph = ts_graph_end();
    ts_ok(fy_ledger_record(path));
    for (int i = 0; i < 2; i++) ts_ok(fy_graph_replay(graph, NULL));
    ts_ok(fy_ledger_record(NULL));
    char *text = ts_text_of(path);
    unsigned long long of = 0, number = 0, first[2] = { 0 }, last[2] = { 0 }, all[2] = { 0 };
    assert_int_equal(count_of(text, "{\"ev\":\"launch\""), 4);
    assert_int_equal(count_of(text, "{\"ev\":\"op\""), 2);
    assert_int_equal(count_of(text, "\"launches\":2"), 2);
    const char *matmul = strstr(text, "{\"ev\":\"launch\""), *op = strstr(text, "{\"ev\":\"op\""),
               *sum = strstr(matmul + 1, "{\"ev\":\"launch\"");
    assert_true(matmul < sum && sum < op);
    assert_int_equal(sscanf(strstr(matmul, "\"of\":"), "\"of\":%llu,\"op\":\"matmul\"", &of), 1);
    assert_int_equal(sscanf(strstr(op, "\"number\":"), "\"number\":%llu", &number), 1);
    assert_int_equal(of, number);
    static const char format[] = "\"model_start_ns\":%llu,\"model_end_ns\":%llu";
    assert_int_equal(sscanf(strstr(matmul, "\"model_start"), format, &first[0], &first[1]), 2);
    assert_int_equal(sscanf(strstr(sum, "\"model_start"), format, &last[0], &last[1]), 2);
    assert_int_equal(sscanf(strstr(op, "\"model_start"), format, &all[0], &all[1]), 2);
    assert_true(first[1] <= last[0]); /* one after the other */
    assert_int_equal(all[0], first[0]);
    assert_int_equal(all[1], last[1]);
    free(text);
}

static void *work(void *user)
{
    fy_scope_t scope = fy_scope_begin("work");
    fy_tensor_t *x, *y;
    (void)user;
    for (int i = 0; i < 200; i++) {
        ts_ok(fy_full(fy_device_host(), FY_DTYPE_F32, FY_DIMS(4), 1, &x));
        ts_ok(fy_add(x, x, &y));
        fy_tensor_destroy(x);
        fy_tensor_destroy(y);
    }
    fy_scope_end(scope, 0, NULL);
    return NULL;
}

/* Recordings begin and end while four threads work: each file is complete, with any number of
 * events. */
TS_TEST_WITH(recordings_while_threads_work_are_complete, make_path, remove_path)
{
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) threads[i] = ts_thread(work, NULL);
    for (int i = 0; i < 5; i++) {
        ts_ok(fy_ledger_record(path));
        if (i == 4)
            for (int k = 0; k < THREADS; k++) pthread_join(threads[k], NULL);
        ts_ok(fy_ledger_record(NULL));
        char *text = ts_text_of(path);
        assert_int_equal(count_of(text, "{\"ev\":\"end\""), 1);
        assert_int_equal(count_of(text, "{\"ev\":\"ferry\""), 1);
        assert_int_equal(count_of(text, "{"), count_of(text, "}\n"));
        free(text);
    }
}

/* The child records nothing and does not touch its parent's file. */
TS_TEST_WITH(fork_records_in_the_parent_only, make_path, remove_path)
{
    fy_tensor_t *x;
    ts_ok(fy_ledger_record(path));
    const pid_t child = ts_fork();
    if (child == 0) {
        fy_scope_t scope = fy_scope_begin("child");
        const int on = fy__event_on();
        const int failed = fy_full(fy_device_host(), FY_DTYPE_F32, FY_DIMS(4), 1, &x) !=
                           FY_STATUS_OK;
        fy_scope_end(scope, 0, NULL);
        exit(on * 2 + failed); /* runs the destructors */
    }
    ts_child_ends(child);
    fy_scope_t scope = fy_scope_begin("parent");
    fy_scope_end(scope, 0, NULL);
    ts_ok(fy_ledger_record(NULL));
    char *text = ts_text_of(path);
    assert_null(strstr(text, "child"));
    assert_non_null(strstr(text, "parent"));
    assert_int_equal(count_of(text, "{\"ev\":\"end\""), 1);
    free(text);
}

/* A process that exits without ending its recording leaves a complete file. */
TS_TEST_WITH(exit_ends_a_recording, make_path, remove_path)
{
#ifdef __SANITIZE_THREAD__
    print_message("skipped: ThreadSanitizer takes the locks that a fork's child initializes again "
                  "for held ones\n");
    skip();
#endif
    const pid_t child = ts_fork();
    if (child == 0) {
        if (fy_ledger_record(path) != FY_STATUS_OK) _exit(1);
        fy_scope_t scope = fy_scope_begin("before the exit");
        fy_scope_end(scope, 0, NULL);
        exit(0);
    }
    ts_child_ends(child);
    char *text = ts_text_of(path);
    assert_non_null(strstr(text, "before the exit"));
    assert_int_equal(count_of(text, "{\"ev\":\"end\""), 1);
    free(text);
}

/* A full disk: the call that ends the recording reports it; no other call fails. */
TS_TEST(a_full_disk_is_reported_at_the_end)
{
    if (access("/dev/full", W_OK) != 0) skip();
    ts_ok(fy_ledger_record("/dev/full"));
    fy_tensor_t *x = ts_full(fy_device_host(), FY_DIMS(4), 1);
    fy_tensor_destroy(x);
    ts_fails_with(fy_ledger_record(NULL), IO, "space");
    ts_ok(fy_ledger_record(NULL));
}
