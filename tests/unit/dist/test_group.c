/* A group inside: ranks are threads of this process, on a transport of host memory. Every call, and
 * every point at which one can fail: a message, a poll, an allocation, a copy. The other rank then
 * fails, too, or has finished; nothing hangs. With an MPI: test_ranks.sh. */
#include <sched.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/unit/dist/seats.h"
#include "tests/support/test.h"

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

/* All but rank 0 wait for longer than a period, so they beat, if need be inside the call. */
static fy_status_t slow(fy_group_t *group, fy_device_t *device)
{
    FY_TRY(call_all(group, device, 10));
    if (group->transport.rank == 0) wait_ms(3 * BEAT_MS / 2);
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

/* One handle as src and dst of calls that are not in place. */
static fy_status_t share_tensors(fy_group_t *group, fy_device_t *device)
{
    fy_tensor_t *x;
    FY_TRY(make(group, device, 10, &x));
    for (int i = 0; i < 2; i++) {
        const fy_status_t status = i ? fy_group_reduce_scatter(group, x, x, FY_GROUP_SUM)
                                     : fy_group_all_gather(group, x, x);
        if (status != FY_STATUS_INVALID_ARGUMENT ||
            !strstr(fy_error_get()->text, "src and dst share a storage"))
            return FYD_FAIL(CORRUPT_DATA, "call %d: %s", i, fy_status_name(status));
    }
    return call_all(group, device, 10);
}

/* A child has no threads of the group: nothing waits for them. */
static void use_in_child(fy_group_t *group)
{
    fy_group_info_t info = FY_GROUP_INFO_INIT;
    alarm(240); /* ends a child that waits */
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

TS_TEST(every_call_works)
{
    for (int p = 0; p < PROGRAMS; p++)
        for (int size = 1; size <= RANKS; size++) {
            print_message("program %d\n", p);
            all_hold(size, programs[p].specs, programs[p].program, no_faults);
        }
}

TS_TEST(a_group_without_threads_beats_inside_calls)
{
    for (int size = 2; size <= RANKS; size++)
        all_hold(size, hosts, slow, (seat_t){ .allocations = -1, .lacks_threads = true });
    all_hold(2, sims, slow, no_faults);
}

TS_TEST(a_closed_group_is_not_waited_for)
{
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

TS_TEST(a_missing_tensor_is_refused) { all_hold(2, hosts, lack_tensors, no_faults); }

TS_TEST(one_tensor_is_not_both_operands) { all_hold(1, hosts, share_tensors, no_faults); }

TS_TEST(a_child_cannot_use_a_group) { all_hold(2, hosts, forks, no_faults); }

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
TS_TEST(a_last_beat_fails)
{
    static const char *const specs[] = { "sim:4", "sim:9" };
    for (int kind = 0; kind < 2; kind++) {
        seat_t seats[RANKS], faults = no_faults;
        *(kind ? &faults.port.loses_beats : &faults.port.holds_beats) = true;
        (void)run(2, specs, barrier_only, faults, seats);
        ts_ok(seats[1].status);
        assert_true(seats[1].port.requests > 0);
    }
}

TS_TEST(a_message_fails)
{
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
TS_TEST(an_allocation_fails)
{
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

TS_TEST(a_copy_fails)
{
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
