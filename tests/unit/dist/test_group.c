/* A group inside: ranks are threads of this process, on a transport of host memory. Every call, and
 * every point at which one can fail: a message, a poll, an allocation, a copy. The other rank then
 * fails, too, or has finished; nothing hangs. With an MPI: test_ranks.sh. */
#include <pthread.h>
#include <sched.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "dist/group.h"
#include "tests/support/harness.h"
#include "tests/support/host_memory.h"

/* ---- the transport ---- */

enum { RANKS = 3, CHANNELS = 3 };

typedef struct letter {
    struct letter *next;
    size_t nbytes;
    char data[];
} letter_t;

typedef struct network {
    pthread_mutex_t lock;
    letter_t *boxes[CHANNELS][RANKS][RANKS]; /* from, to */
    bool is_gone[RANKS];
} network_t;

typedef struct port {
    network_t *network;
    int rank;
    int posts, tests; /* until one fails; 0: none does */
    int requests;     /* open */
    bool failed, leaves_quietly;
    bool loses_beats, holds_beats; /* a beat that is sent fails; is never done */
} port_t;

typedef struct receipt {
    int channel, peer;
    bool is_send;
    void *data;
    size_t nbytes;
} receipt_t;

static bool fails(port_t *port, int *left, char *error)
{
    if (*left == 0 || --*left > 0) return false;
    port->failed = true;
    snprintf(error, FYD_ERROR_SIZE, "planted");
    return true;
}

/* For LeakSanitizer: a broken group keeps the bytes that its transport may still use (rule 6 of
 * dist.h), and this transport keeps the requests that were open. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:fyd_operand_open\nleak:fyd_operand_close\nleak:post_message\n";
}

static bool post_message(void *context, fyd_channel_t channel, bool is_send, void *data,
                         size_t nbytes, int peer, void **out_request, char *error)
{
    port_t *port = context;
    *out_request = NULL;
    if (fails(port, &port->posts, error)) return false;
    receipt_t *receipt = malloc(sizeof *receipt);
    letter_t *letter = is_send ? malloc(sizeof *letter + nbytes) : NULL;
    if (!receipt || (is_send && !letter)) {
        free(receipt);
        free(letter);
        snprintf(error, FYD_ERROR_SIZE, "no memory for a message");
        return false;
    }
    *receipt = (receipt_t){ (int)channel, peer, is_send, data, nbytes };
    if (is_send) {
        *letter = (letter_t){ NULL, nbytes };
        memcpy(letter->data, data, nbytes);
        pthread_mutex_lock(&port->network->lock);
        letter_t **end = &port->network->boxes[channel][port->rank][peer];
        while (*end) end = &(*end)->next;
        *end = letter;
        pthread_mutex_unlock(&port->network->lock);
    }
    *out_request = receipt;
    port->requests++;
    return true;
}

static bool test(void *context, void *request, bool *is_done, char *error)
{
    port_t *port = context;
    receipt_t *receipt = request;
    *is_done = false;
    if (fails(port, &port->tests, error)) return false;
    const bool is_sent_beat = receipt->is_send && receipt->channel == FYD_BEATS;
    if (is_sent_beat && port->loses_beats) snprintf(error, FYD_ERROR_SIZE, "planted");
    if (is_sent_beat && (port->loses_beats || port->holds_beats)) return !port->loses_beats;
    if (!receipt->is_send) {
        pthread_mutex_lock(&port->network->lock);
        letter_t **box = &port->network->boxes[receipt->channel][receipt->peer][port->rank];
        letter_t *letter = *box;
        const bool is_gone = port->network->is_gone[receipt->peer];
        if (letter) *box = letter->next;
        pthread_mutex_unlock(&port->network->lock);
        if (!letter && is_gone && receipt->channel == FYD_CALLS) {
            snprintf(error, FYD_ERROR_SIZE, "it has gone");
            return false;
        }
        if (!letter) return true;
        assert_true(letter->nbytes <= receipt->nbytes);
        memcpy(receipt->data, letter->data, letter->nbytes);
        free(letter);
    }
    free(receipt);
    port->requests--;
    *is_done = true;
    return true;
}

static void cancel(void *context, void *request)
{
    port_t *port = context;
    port->requests--;
    free(request);
}

static void hang_up(void *context, bool is_orderly)
{
    port_t *port = context;
    (void)is_orderly;
    pthread_mutex_lock(&port->network->lock);
    port->network->is_gone[port->rank] = !port->leaves_quietly;
    pthread_mutex_unlock(&port->network->lock);
}

/* ---- ranks ---- */

typedef fy_status_t (*program_fn)(fy_group_t *group, fy_device_t *device);

typedef struct seat {
    port_t port;
    int size, allocations; /* until one fails; -1: none does */
    fy_device_t *device;
    program_fn program;
    fy_status_t status;
    bool failed, lacks_threads;
    int left;             /* requests that are open behind an orderly end */
    uint64_t deadline_ns; /* 0: as usual */
    char text[512];
} seat_t;

static void *sit(void *user)
{
    seat_t *seat = user;
    fy_group_options_t options = FY_GROUP_OPTIONS_INIT;
    fyd_transport_t transport = { .context = &seat->port,
                                  .rank = seat->port.rank,
                                  .size = seat->size,
                                  .has_threads = !seat->lacks_threads,
                                  .eager_nbytes = 4000,
                                  .host = "here",
                                  .post = post_message,
                                  .test = test,
                                  .cancel = cancel,
                                  .close = hang_up };
    fy_group_t *group;
    options.silence_ns = FY_FOREVER;
    if (seat->deadline_ns) options.deadline_ns = seat->deadline_ns;
    const fy_scope_t scope = fy_scope_begin("rank");
    ts_fail_allocation(seat->allocations);
    seat->status = fyd_group_make(&transport, &options, &group);
    if (seat->status == FY_STATUS_OK) seat->status = seat->program(group, seat->device);
    if (seat->status != FY_STATUS_OK)
        snprintf(seat->text, sizeof seat->text, "%.500s", fy_error_get()->text);
    seat->failed = seat->port.failed || (seat->allocations >= 0 && ts_allocation_failed());
    ts_fail_allocation(-1);
    if (group && !fyd_group_end(group))
        fyd_group_free(group); /* no MPI uses its memory */
    else
        seat->left = seat->port.requests;
    fy_scope_end(scope, 0, NULL);
    return NULL;
}

static void clear(network_t *network)
{
    for (int i = 0; i < CHANNELS * RANKS * RANKS; i++)
        for (letter_t *letter = (&network->boxes[0][0][0])[i], *next; letter; letter = next) {
            next = letter->next;
            free(letter);
        }
}

/* Runs the program on `size` ranks; the faults are those of the last one. */
static seat_t run(int size, const char *const *specs, program_fn program, seat_t faults,
                  seat_t *seats)
{
    network_t network = { .lock = PTHREAD_MUTEX_INITIALIZER };
    pthread_t threads[RANKS];
    for (int r = 0; r < size; r++) {
        seats[r] = (seat_t){ .size = size,
                             .allocations = -1,
                             .program = program,
                             .deadline_ns = faults.deadline_ns,
                             .lacks_threads = faults.lacks_threads };
        if (r == size - 1) seats[r].port = faults.port, seats[r].allocations = faults.allocations;
        seats[r].port.network = &network;
        seats[r].port.rank = r;
        ts_ok(fy_device_open(specs[r], &seats[r].device));
    }
    for (int r = 0; r < size; r++)
        assert_int_equal(pthread_create(&threads[r], NULL, sit, &seats[r]), 0);
    for (int r = 0; r < size; r++) pthread_join(threads[r], NULL);
    for (int r = 0; r < size; r++) {
        fy_device_close(seats[r].device);
        if (seats[r].left) fail_msg("rank %d left %d requests open", r, seats[r].left);
    }
    clear(&network);
    return seats[size - 1];
}

static const char *const hosts[] = { "host", "host", "host" };
static const char *const sims[] = { "sim:4", "sim:5", "sim:6" };
static const seat_t no_faults = { .allocations = -1 };

/* ---- programs ---- */

enum { LARGE = 5000 };

static fy_status_t make(fy_group_t *group, fy_device_t *device, int64_t n, fy_tensor_t **out)
{
    return fy_full(device, FY_DTYPE_F32, FY_DIMS(n), group->transport.rank + 1, out);
}

/* The first and the last element are `want`. */
static fy_status_t expect(fy_tensor_t *tensor, double want)
{
    fy_tensor_info_t info = FY_TENSOR_INFO_INIT;
    FY_TRY(fy_tensor_query(tensor, &info));
    for (int i = 0; i < 2; i++) {
        const int64_t at = i ? (int64_t)info.nelem - 1 : 0;
        fy_download_t *download;
        fy_tensor_t *part;
        double got = 0;
        FY_TRY(fy_slice(tensor, 0, at, at + 1, &part));
        FY_TRY(fy_tensor_download(part, NULL, &download));
        FY_TRY(fy_download_wait_f64(download, FY_FOREVER, &got));
        if (got != want)
            return FYD_FAIL(CORRUPT_DATA, "element %lld of %lld is %g, not %g", (long long)at,
                            (long long)info.nelem, got, want);
    }
    return FY_STATUS_OK;
}

static fy_status_t call_all(fy_group_t *group, fy_device_t *device, int64_t n)
{
    const int size = group->transport.size, self = group->transport.rank;
    const double sum = size * (size + 1) / 2.0;
    fy_tensor_t *x, *all, *part, *wide;
    FY_TRY(make(group, device, n, &x));
    FY_TRY(make(group, device, n * size, &wide));
    FY_TRY(fy_tensor_create(device, FY_DTYPE_F32, FY_DIMS(n * size), &all));
    FY_TRY(fy_tensor_create(device, FY_DTYPE_F32, FY_DIMS(n), &part));
    FY_TRY(fy_group_all_gather(group, all, x));
    FY_TRY(fy_group_reduce_scatter(group, part, wide, FY_GROUP_SUM));
    FY_TRY(expect(part, sum));
    FY_TRY(fy_group_all_reduce(group, x, FY_GROUP_SUM));
    FY_TRY(expect(x, sum));
    FY_TRY(fy_fill(x, self));
    FY_TRY(fy_group_broadcast(group, x, size - 1));
    FY_TRY(expect(x, size - 1));
    if (self == 0 && size > 1) FY_TRY(fy_group_send(group, part, size - 1));
    if (self == size - 1 && size > 1) FY_TRY(fy_group_receive(group, part, 0));
    FY_TRY(expect(part, sum));
    return fy_group_barrier(group);
}

static fy_status_t blocking(fy_group_t *group, fy_device_t *device)
{
    FY_TRY(call_all(group, device, 10));
    FY_TRY(call_all(group, device, LARGE));
    FY_TRY(fy_group_compare(group, "text"));
    return FY_STATUS_OK;
}

/* Calls beside the program, on tensors whose scope has ended. */
static fy_status_t beside(fy_group_t *group, fy_device_t *device)
{
    enum { CALLS = 4 };
    const int size = group->transport.size;
    const double sum = size * (size + 1) / 2.0;
    fy_tensor_t *kept[CALLS] = { NULL };
    fy_ticket_t tickets[CALLS], ticket;
    fy_status_t status = FY_STATUS_OK;
    for (int i = 0; i < CALLS && status == FY_STATUS_OK; i++) {
        status = make(group, device, i % 2 ? LARGE : 10, &kept[i]);
        if (status == FY_STATUS_OK)
            status = fy_group_all_reduce_async(group, kept[i], FY_GROUP_SUM, &tickets[i]);
    }
    const fy_scope_t scope = fy_scope_begin("short");
    fy_tensor_t *x, *all;
    if (status == FY_STATUS_OK) status = make(group, device, 10, &x);
    if (status == FY_STATUS_OK)
        status = fy_tensor_create(device, FY_DTYPE_F32, FY_DIMS(10 * size), &all);
    if (status == FY_STATUS_OK) status = fy_group_all_gather_async(group, all, x, &ticket);
    fy_scope_end(scope, 0, NULL);
    for (int i = 0; i < CALLS && status == FY_STATUS_OK; i++) {
        status = fy_ticket_wait(tickets[i], FY_FOREVER);
        if (status == FY_STATUS_OK) status = expect(kept[i], sum);
    }
    if (status == FY_STATUS_OK) status = fy_ticket_wait(ticket, FY_FOREVER);
    return status == FY_STATUS_OK ? fy_group_barrier(group) : status;
}

static void wait_ms(int ms)
{
    const struct timespec pause = { ms / 1000, ms % 1000 * 1000000L };
    nanosleep(&pause, NULL);
}

/* All but rank 0 wait for longer than a second, so they beat, if need be inside the call. */
static fy_status_t slow(fy_group_t *group, fy_device_t *device)
{
    FY_TRY(call_all(group, device, 10));
    if (group->transport.rank == 0) wait_ms(1500);
    FY_TRY(fy_group_barrier(group));
    return call_all(group, device, 10);
}

/* The last rank closes its group; the other ones make another call. */
static fy_status_t leave(fy_group_t *group, fy_device_t *device)
{
    FY_TRY(call_all(group, device, 10));
    return group->transport.rank == group->transport.size - 1 ? FY_STATUS_OK
                                                              : fy_group_barrier(group);
}

/* Calls without a tensor that they need; the group still works. */
static fy_status_t lack_tensors(fy_group_t *group, fy_device_t *device)
{
    const int other = 1 - group->transport.rank;
    fy_tensor_t *x;
    fy_ticket_t ticket;
    FY_TRY(make(group, device, 10, &x));
    const fy_status_t statuses[] = { fy_group_all_reduce(group, NULL, FY_GROUP_SUM),
                                     fy_group_broadcast(group, NULL, 0),
                                     fy_group_reduce_scatter(group, NULL, x, FY_GROUP_SUM),
                                     fy_group_reduce_scatter(group, x, NULL, FY_GROUP_SUM),
                                     fy_group_all_gather(group, NULL, x),
                                     fy_group_all_gather(group, x, NULL),
                                     fy_group_send(group, NULL, other),
                                     fy_group_receive(group, NULL, other),
                                     fy_group_all_reduce_async(group, NULL, FY_GROUP_SUM,
                                                               &ticket) };
    for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++)
        if (statuses[i] != FY_STATUS_INVALID_ARGUMENT)
            return FYD_FAIL(CORRUPT_DATA, "call %zu: %s", i, fy_status_name(statuses[i]));
    return call_all(group, device, 10);
}

/* A child has no threads of the group: nothing waits for them. */
static void use_in_child(fy_group_t *group)
{
    fy_group_info_t info = FY_GROUP_INFO_INIT;
    alarm(20); /* ends a child that waits */
    int wrong = fy_group_query(group, &info) != FY_STATUS_UNSUPPORTED;
    wrong |= (fy_group_barrier(group) != FY_STATUS_UNSUPPORTED) << 1;
    wrong |= (strstr(fy_error_get()->text, "opened this group") == NULL) << 2;
    fy_group_close(group);
    wrong |= (fy_group_query(group, &info) != FY_STATUS_UNSUPPORTED) << 3;
    _exit(wrong);
}

static fy_status_t forks(fy_group_t *group, fy_device_t *device)
{
    int status = 0;
    FY_TRY(call_all(group, device, 10));
    if (group->transport.rank == 1) {
        const pid_t child = fork();
        if (child == 0) use_in_child(group);
        if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
            return FYD_FAIL(CORRUPT_DATA, "the child ends with %d", status);
    }
    return fy_group_barrier(group);
}

static const struct {
    program_fn program;
    const char *const *specs;
} programs[] = { { blocking, hosts }, { blocking, sims }, { beside, hosts }, { beside, sims } };
enum { PROGRAMS = sizeof programs / sizeof *programs };

/* ---- tests ---- */

static void every_call_works(void **state)
{
    (void)state;
    for (int p = 0; p < PROGRAMS; p++)
        for (int size = 1; size <= RANKS; size++) {
            seat_t seats[RANKS];
            (void)run(size, programs[p].specs, programs[p].program, no_faults, seats);
            for (int r = 0; r < size; r++)
                if (seats[r].status != FY_STATUS_OK)
                    fail_msg("program %d, rank %d of %d: %s", p, r, size, seats[r].text);
        }
}

static void all_hold(int size, const char *const *specs, program_fn program, seat_t options)
{
    seat_t seats[RANKS];
    (void)run(size, specs, program, options, seats);
    for (int r = 0; r < size; r++)
        if (seats[r].status != FY_STATUS_OK) fail_msg("rank %d of %d: %s", r, size, seats[r].text);
}

static void a_group_without_threads_beats_inside_calls(void **state)
{
    (void)state;
    for (int size = 2; size <= RANKS; size++)
        all_hold(size, hosts, slow, (seat_t){ .allocations = -1, .lacks_threads = true });
    all_hold(2, sims, slow, no_faults);
}

static void a_closed_group_is_not_waited_for(void **state)
{
    (void)state;
    for (int lacks_threads = 0; lacks_threads < 2; lacks_threads++) {
        const seat_t options = { .port.leaves_quietly = true,
                                 .allocations = -1,
                                 .lacks_threads = lacks_threads,
                                 .deadline_ns = FY_FOREVER };
        seat_t seats[RANKS];
        (void)run(RANKS, hosts, leave, options, seats);
        for (int r = 0; r < RANKS - 1; r++) {
            assert_int_equal(seats[r].status, FY_STATUS_RANK_LOST);
            assert_non_null(strstr(seats[r].text, "rank 2 (host here"));
        }
        assert_true(strstr(seats[0].text, "has closed its group") ||
                    strstr(seats[1].text, "has closed its group"));
        assert_int_equal(seats[RANKS - 1].status, FY_STATUS_OK);
    }
}

static void a_missing_tensor_is_refused(void **state)
{
    (void)state;
    all_hold(2, hosts, lack_tensors, no_faults);
}

static void a_child_cannot_use_a_group(void **state)
{
    (void)state;
    all_hold(2, hosts, forks, no_faults);
}

/* The faulty rank fails with `want`, the other one with a lost or broken message; a fault that both
 * survive is one of a beat or of cleanup. */
static bool check(const seat_t *seats, fy_status_t want, int n)
{
    const seat_t *faulty = &seats[1], *other = &seats[0];
    if (faulty->status != FY_STATUS_OK && faulty->status != want)
        fail_msg("fault %d: %s: %s", n, fy_status_name(faulty->status), faulty->text);
    if (faulty->status != FY_STATUS_OK && !faulty->failed)
        fail_msg("without a fault: %s", faulty->text);
    if (other->status != FY_STATUS_OK && other->status != FY_STATUS_IO &&
        other->status != FY_STATUS_RANK_LOST)
        fail_msg("fault %d, the other rank: %s: %s", n, fy_status_name(other->status), other->text);
    return faulty->failed;
}

/* Each of the first faults, then fewer: polls are many. */
static int after(int n) { return n < 60 ? n + 1 : n + n / 3; }

static fy_status_t barrier_only(fy_group_t *group, fy_device_t *device)
{
    (void)device;
    return fy_group_barrier(group);
}

/* The beat with which a rank leaves: its bytes are kept if the engine may still read them (run
 * looks for requests that are open although the group was freed). */
static void a_last_beat_fails(void **state)
{
    static const char *const specs[] = { "sim:4", "sim:9" };
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        seat_t seats[RANKS], faults = no_faults;
        *(kind ? &faults.port.loses_beats : &faults.port.holds_beats) = true;
        (void)run(2, specs, barrier_only, faults, seats);
        ts_ok(seats[1].status);
        assert_true(seats[1].port.requests > 0);
    }
}

static void a_message_fails(void **state)
{
    (void)state;
    for (int p = 0; p < PROGRAMS; p++)
        for (int kind = 0; kind < 2; kind++) {
            int n = 1;
            for (bool failed = true; failed; n = after(n)) {
                seat_t seats[RANKS], faults = no_faults;
                *(kind ? &faults.port.tests : &faults.port.posts) = n;
                (void)run(2, programs[p].specs, programs[p].program, faults, seats);
                failed = check(seats, FY_STATUS_IO, n) && n < 3000;
            }
            assert_true(n > 5);
        }
}

/* Each allocation with $FERRY_SWEEP (nightly); else each of the first 30, then each fifth, another
 * fifth in each program. */
static void an_allocation_fails(void **state)
{
    (void)state;
    for (int p = 0; p < PROGRAMS; p++) {
        int n = 0;
        for (bool failed = true; failed; n += n < 30 + p || getenv("FERRY_SWEEP") ? 1 : 5) {
            seat_t seats[RANKS], faults = no_faults;
            faults.allocations = n;
            assert_in_range(n, 0, 2000);
            (void)run(2, programs[p].specs, programs[p].program, faults, seats);
            if (seats[1].status == FY_STATUS_IO) seats[1].status = FY_STATUS_OUT_OF_MEMORY;
            failed = check(seats, FY_STATUS_OUT_OF_MEMORY, n);
        }
        assert_true(n > 5);
    }
}

static void a_copy_fails(void **state)
{
    (void)state;
    for (int p = 1; p < PROGRAMS; p += 2) {
        int n = 1;
        for (bool failed = true; failed; n++) {
            char spec[40];
            const char *specs[] = { "sim:4", spec };
            seat_t seats[RANKS];
            snprintf(spec, sizeof spec, "sim:9?faults=copy@%d", n);
            assert_in_range(n, 1, 200);
            (void)run(2, specs, programs[p].program, no_faults, seats);
            failed = seats[1].status != FY_STATUS_OK;
            seats[1].failed = true;
            (void)check(seats, FY_STATUS_IO, n);
        }
        assert_true(n > 2); /* the last one found no fault */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_call_works),
        cmocka_unit_test(a_group_without_threads_beats_inside_calls),
        cmocka_unit_test(a_closed_group_is_not_waited_for),
        cmocka_unit_test(a_missing_tensor_is_refused),
        cmocka_unit_test(a_child_cannot_use_a_group),
        cmocka_unit_test(a_last_beat_fails),
        cmocka_unit_test(a_message_fails),
        cmocka_unit_test(an_allocation_fails),
        cmocka_unit_test(a_copy_fails),
    };
    return cmocka_run_group_tests_name("group", tests, NULL, NULL);
}
