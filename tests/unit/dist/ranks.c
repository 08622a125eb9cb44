/* One rank of the test of groups: test_ranks.sh starts several by mpirun.
 *   ranks calls DEVICE    every call, with values that each rank knows of the others; cuda: from
 *                         device to device
 *   ranks differ          the last rank makes another call than the others
 *   ranks stop            the last rank stops; rank 0 ends it when its loss is reported
 *   ranks silent, silent-async, silent-kill   the same, named by its silence; killed
 *   ranks moment KIND SEED  a rank, and a call before which it stops or calls something else
 * Exit status 0: all holds. */
#include <dlfcn.h>
#include <math.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit/dist/ranks.h"

static float value_of(int rank, int64_t i)
{
    return (float)((i * 7919 + rank * 104729) % 1009 - 504) * 0.37f + (float)rank;
}

static fy_tensor_t *make(int64_t n, int rank)
{
    fy_tensor_t *host, *out;
    void *data;
    OK(fy_tensor_create(fy_device_host(), FY_DTYPE_F32, FY_DIMS(n), &host));
    OK(fy_tensor_map(host, FY_ACCESS_WRITE, &data));
    for (int64_t i = 0; i < n; i++) ((float *)data)[i] = value_of(rank, i);
    OK(fy_tensor_upload(host, device, NULL, &out));
    return out;
}

static float sum_of(int64_t i)
{
    float sum = value_of(0, i);
    for (int r = 1; r < group.size; r++) sum += value_of(r, i);
    return sum;
}

static float max_of(int64_t i)
{
    float most = value_of(0, i);
    for (int r = 1; r < group.size; r++) most = fmaxf(most, value_of(r, i));
    return most;
}

static void check_reductions(fy_group_t *g, int64_t n)
{
    fy_tensor_t *sum = make(n, group.rank), *mean = make(n, group.rank), *max = make(n, group.rank),
                *all = make(n * group.size, group.rank), *part;
    OK(fy_group_all_reduce(g, sum, FY_GROUP_SUM));
    OK(fy_group_all_reduce(g, mean, FY_GROUP_MEAN));
    OK(fy_group_all_reduce(g, max, FY_GROUP_MAX));
    OK(fy_tensor_create(device, FY_DTYPE_F32, FY_DIMS(n), &part));
    OK(fy_group_reduce_scatter(g, part, all, FY_GROUP_SUM));
    const float *s = fetch(sum), *m = fetch(mean), *x = fetch(max), *p = fetch(part);
    for (int64_t i = 0; i < n; i++) {
        HOLDS(s[i] == sum_of(i));
        HOLDS(m[i] == sum_of(i) / (float)group.size);
        HOLDS(x[i] == max_of(i));
        HOLDS(p[i] == sum_of(group.rank * n + i));
    }
}

static void check_copies(fy_group_t *g, int64_t n)
{
    const int root = group.size - 1, next = (group.rank + 1) % group.size,
              before = (group.rank + group.size - 1) % group.size;
    fy_tensor_t *one = make(n, group.rank), *mine = make(n, group.rank), *all,
                *theirs = make(n, group.rank);
    OK(fy_group_broadcast(g, one, root));
    OK(fy_tensor_create(device, FY_DTYPE_F32, FY_DIMS(n * group.size), &all));
    OK(fy_group_all_gather(g, all, mine));
    if (group.rank % 2) OK(fy_group_receive(g, theirs, before));
    OK(fy_group_send(g, mine, next));
    if (group.rank % 2 == 0) OK(fy_group_receive(g, theirs, before));
    const float *b = fetch(one), *a = fetch(all), *t = fetch(theirs);
    for (int64_t i = 0; i < n; i++) {
        HOLDS(b[i] == value_of(root, i));
        HOLDS(t[i] == value_of(before, i));
        for (int r = 0; r < group.size; r++) HOLDS(a[r * n + i] == value_of(r, i));
    }
}

static void check_refusals(fy_group_t *g)
{
    fy_tensor_t *x = make(4, 0), *y = make(5, 0), *column, *grid;
    HOLDS(fy_group_all_gather(g, y, x) == FY_STATUS_SHAPE_MISMATCH);
    HOLDS(fy_group_send(g, x, group.rank) == FY_STATUS_INVALID_ARGUMENT);
    HOLDS(fy_group_broadcast(g, x, group.size) == FY_STATUS_INVALID_ARGUMENT);
    OK(fy_reshape(x, FY_DIMS(2, 2), &grid));
    OK(fy_slice(grid, 1, 0, 1, &column));
    HOLDS(fy_group_all_reduce(g, column, FY_GROUP_SUM) == FY_STATUS_INVALID_ARGUMENT);
    OK(fy_tensor_create(device, FY_DTYPE_I32, FY_DIMS(2), &y));
    HOLDS(fy_group_all_reduce(g, y, FY_GROUP_MEAN) == FY_STATUS_DTYPE_MISMATCH);
    fy_group_t *second;
    HOLDS(fy_group_open(NULL, &second) == FY_STATUS_BUSY);
}

/* What the ledger has of one sum: the download and the upload of a device's tensor. */
static void check_ledger(fy_group_t *g)
{
    fy_ledger_totals_t t = FY_LEDGER_TOTALS_INIT, u = FY_LEDGER_TOTALS_INIT;
    fy_device_info_t info = FY_DEVICE_INFO_INIT;
    fy_group_info_t before = FY_GROUP_INFO_INIT, after = FY_GROUP_INFO_INIT;
    fy_tensor_t *x = make(1000, group.rank);
    OK(fy_device_query(device, &info));
    OK(fy_ledger_query(NULL, &t));
    OK(fy_group_query(g, &before));
    OK(fy_group_all_reduce(g, x, FY_GROUP_SUM));
    OK(fy_group_query(g, &after));
    OK(fy_ledger_query(NULL, &u));
    const uint64_t copied = info.is_host || after.is_direct || group.size == 1 ? 0 : 4000;
    HOLDS(u.download.nbytes - t.download.nbytes == copied);
    HOLDS(u.upload.nbytes - t.upload.nbytes == copied);
    HOLDS(after.calls == before.calls + 1);
    HOLDS(after.sent_nbytes - before.sent_nbytes ==
          8000u * (unsigned)(group.size - 1) / (unsigned)group.size);
    HOLDS(after.received_nbytes - before.received_nbytes == after.sent_nbytes - before.sent_nbytes);
}

/* Guards and budgets know collectives; a refused one moves nothing. The other ranks are refused,
 * too. */
static void check_guard(fy_group_t *g)
{
    fy_guard_options_t options = FY_GUARD_OPTIONS_INIT;
    fy_ledger_totals_t t = FY_LEDGER_TOTALS_INIT;
    fy_tensor_t *x = make(10, group.rank);
    if (group.size == 1) return;
    const fy_scope_t scope = fy_scope_begin("guarded");
    options.collective_nbytes = 60;
    OK(fy_scope_guard(&options));
    OK(fy_group_all_reduce(g, x, FY_GROUP_SUM)); /* 40 bytes */
    HOLDS(fy_group_all_reduce(g, x, FY_GROUP_SUM) == FY_STATUS_REFUSED_BY_GUARD);
    HOLDS(strstr(fy_error_get()->text, "60 collective bytes, of which 40 are used"));
    OK(fy_group_barrier(g)); /* no bytes */
    fy_scope_end(scope, 0, NULL);
    OK(fy_budget_set("collective=0"));
    HOLDS(fy_group_all_reduce(g, x, FY_GROUP_SUM) == FY_STATUS_REFUSED_BY_GUARD);
    OK(fy_budget_set(NULL));
    OK(fy_ledger_query("test/guarded", &t));
    HOLDS(t.collective.count == 2 && t.collective.nbytes == 40);
}

/* All that MPI was given to send, from the opening of the group on, is in the ledger. */
static void check_conservation(void)
{
    uint64_t (*nbytes)(void) = NULL, (*messages)(void) = NULL;
    void *of_nbytes = dlsym(RTLD_DEFAULT, "count_mpi_nbytes"),
         *of_messages = dlsym(RTLD_DEFAULT, "count_mpi_messages");
    fy_ledger_totals_t t = FY_LEDGER_TOTALS_INIT;
    if (!of_nbytes || !of_messages) return;
    memcpy(&nbytes, &of_nbytes, sizeof nbytes);
    memcpy(&messages, &of_messages, sizeof messages);
    for (int i = 0; i < 60000; i++) { /* a beat may be between both counters */
        OK(fy_ledger_query(NULL, &t));
        if (t.collective.wire_nbytes == nbytes() && t.collective.copies == messages()) break;
        usleep(1000);
    }
    HOLDS(nbytes() > 0 && t.collective.wire_nbytes == nbytes());
    HOLDS(t.collective.copies == messages());
    printf("conserved: %llu bytes in %llu messages\n", (unsigned long long)nbytes(),
           (unsigned long long)messages());
}

/* Asynchronous calls: as the others, in the order in which they are made; ops wait for them. */
static void check_async(fy_group_t *g, int64_t n)
{
    const int root = group.size - 1, next = (group.rank + 1) % group.size,
              before = (group.rank + group.size - 1) % group.size;
    fy_tensor_t *sum = make(n, group.rank), *one = make(n, group.rank), *mine = make(n, group.rank),
                *all, *part, *wide = make(n * group.size, group.rank),
                *theirs = make(n, group.rank), *other = make(n, group.rank), *twice;
    fy_ticket_t t[6];
    fy_device_info_t info = FY_DEVICE_INFO_INIT;
    const int is_pair = group.size > 1 && group.size % 2 == 0;
    OK(fy_device_query(device, &info));
    OK(fy_tensor_create(device, FY_DTYPE_F32, FY_DIMS(n * group.size), &all));
    OK(fy_tensor_create(device, FY_DTYPE_F32, FY_DIMS(n), &part));
    const fy_scope_t scope = fy_scope_begin("short"); /* ends before the calls do */
    OK(fy_group_all_reduce_async(g, sum, FY_GROUP_SUM, &t[0]));
    OK(fy_group_broadcast_async(g, one, root, &t[1]));
    OK(fy_group_all_gather_async(g, all, mine, &t[2]));
    OK(fy_group_reduce_scatter_async(g, part, wide, FY_GROUP_SUM, &t[3]));
    t[4] = t[5] = t[3];
    if (is_pair && group.rank % 2 == 0) OK(fy_group_send_async(g, mine, next, &t[4]));
    if (is_pair) OK(fy_group_receive_async(g, theirs, before, &t[5]));
    if (is_pair && group.rank % 2) OK(fy_group_send_async(g, mine, next, &t[4]));
    fy_scope_end(scope, 0, NULL);
    if (info.is_host) OK(fy_ticket_wait(t[0], FY_FOREVER)); /* BUSY before */
    OK(fy_affine(sum, 2, 0, &twice));
    OK(fy_group_all_reduce(g, other, FY_GROUP_SUM)); /* waits for those before it */
    for (int i = 0; i < 6; i++) OK(fy_ticket_wait(t[i], FY_FOREVER));
    const float *s = fetch(sum), *d = fetch(twice), *b = fetch(one), *a = fetch(all),
                *p = fetch(part), *o = fetch(other), *x = fetch(theirs);
    for (int64_t i = 0; i < n; i++) {
        HOLDS(s[i] == sum_of(i) && d[i] == 2 * sum_of(i) && o[i] == s[i]);
        HOLDS(b[i] == value_of(root, i));
        HOLDS(p[i] == sum_of(group.rank * n + i));
        HOLDS(x[i] == value_of(is_pair ? before : group.rank, i));
        for (int r = 0; r < group.size; r++) HOLDS(a[r * n + i] == value_of(r, i));
    }
    HOLDS(fy_group_all_reduce_async(g, sum, FY_GROUP_SUM, NULL) == FY_STATUS_INVALID_ARGUMENT);
    if (n && group.size > 1)
        HOLDS(fy_group_all_gather_async(g, part, mine, &t[0]) == FY_STATUS_SHAPE_MISMATCH);
}

static void calls(fy_group_t *g)
{
    static const int64_t lengths[] = { 0, 1, 10, 1000, 300007 };
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        const fy_scope_t scope = fy_scope_begin("length");
        check_reductions(g, lengths[i]);
        check_async(g, lengths[i]);
        if (group.size > 1 && group.size % 2 == 0) check_copies(g, lengths[i]);
        fy_scope_end(scope, 0, NULL);
    }
    check_refusals(g);
    check_ledger(g);
    check_guard(g);
    OK(fy_group_barrier(g));
    check_conservation();
}

/* ---- failures ---- */

static void differ(fy_group_t *g)
{
    fy_tensor_t *x = make(8, group.rank);
    char want[80];
    OK(fy_group_all_reduce(g, x, FY_GROUP_SUM));
    const fy_status_t status = group.rank == group.size - 1
                                   ? fy_group_all_reduce(g, make(9, 0), FY_GROUP_SUM)
                                   : fy_group_all_reduce(g, x, FY_GROUP_SUM);
    HOLDS(status == FY_STATUS_INVALID_ARGUMENT);
    snprintf(want, sizeof want, "rank %d all_reduce 2 of f32 [9], sum", group.size - 1);
    HOLDS(strstr(fy_error_get()->text, "rank 0 all_reduce 2 of f32 [8], sum"));
    HOLDS(strstr(fy_error_get()->text, want));
    HOLDS(fy_group_barrier(g) == FY_STATUS_INVALID_ARGUMENT);
    OK(fy_group_query(g, &group));
    HOLDS(group.is_broken);
    const float *bytes = fetch(x); /* the failed call changed nothing */
    HOLDS(bytes[0] == sum_of(0));
    HOLDS(fy_group_barrier(g) == FY_STATUS_INVALID_ARGUMENT);
    report(-1);
}

static void stop(fy_group_t *g)
{
    fy_tensor_t *x = make(8, group.rank);
    const int last = group.size - 1;
    char want[80];
    const pid_t victim = process_of(g, last);
    if (group.rank == last) {
        raise(SIGSTOP);
        _exit(0);
    }
    HOLDS(fy_group_all_reduce(g, x, FY_GROUP_SUM) == FY_STATUS_RANK_LOST);
    snprintf(want, sizeof want, "rank %d (host ", last);
    HOLDS(strstr(fy_error_get()->text, want) == fy_error_get()->text);
    snprintf(want, sizeof want, "process %d) ", (int)victim);
    HOLDS(strstr(fy_error_get()->text, want));
    HOLDS(strstr(fy_error_get()->text, "took no part in all_reduce 2 of f32 [8], sum") ||
          strstr(fy_error_get()->text, "is lost, as rank"));
    HOLDS(strstr(fy_error_get()->text, "its last call: all_gather 1 of i64 [1]"));
    report(last);
    if (group.rank == 0) kill(victim, SIGKILL);
}

/* The last rank stops while the others compute or wait. All name it by its silence, long before the
 * deadline; a rank that computes for longer than that is not lost. */
static void silent(fy_group_t *g, int is_async, int sig)
{
    fy_tensor_t *x = make(8, group.rank);
    const int last = group.size - 1;
    fy_ticket_t ticket;
    const pid_t victim = process_of(g, last);
    if (group.rank == 0) sleep(10); /* computes: silence_ns is 8 s */
    OK(fy_group_barrier(g));
    if (group.rank == last) {
        raise(sig);
        _exit(0);
    }
    if (group.rank == 0 && !is_async) sleep(2); /* the others wait for two ranks */
    if (is_async) {
        OK(fy_group_all_reduce_async(g, x, FY_GROUP_SUM, &ticket));
        HOLDS(fy_ticket_wait(ticket, FY_FOREVER) == FY_STATUS_RANK_LOST);
        HOLDS(fy_ticket_poll(ticket) == FY_POLL_FAILED);
    } else {
        HOLDS(fy_group_all_reduce(g, x, FY_GROUP_SUM) == FY_STATUS_RANK_LOST);
    }
    expect_silent(last);
    HOLDS(strstr(fy_error_get()->text, "its last call: barrier 2"));
    HOLDS(fy_group_barrier(g) == FY_STATUS_RANK_LOST);
    if (!is_async) HOLDS(fetch(x)[0] == value_of(group.rank, 0));
    report(last);
    if (group.rank == 0 && sig == SIGSTOP) kill(victim, SIGKILL);
}

/* The seed chooses the rank, and how many calls of which lengths are before the fault. */
static void moment(fy_group_t *g, int stops, unsigned seed)
{
    HOLDS(group.size > 0);
    unsigned state = seed * 2654435761u + 1;
    const int bad = (int)(seed % (unsigned)group.size), other = bad == 0 ? 1 : 0;
    const int before = (int)(state >> 16) % 40 + 1;
    const pid_t process = process_of(g, bad);
    char want[80];
    for (int i = 0; i < before; i++) {
        state = state * 1664525u + 1013904223u;
        const fy_scope_t scope = fy_scope_begin("call");
        OK(fy_group_all_reduce(g, make((int64_t)(state >> 14), group.rank), FY_GROUP_SUM));
        fy_scope_end(scope, 0, NULL);
    }
    if (group.rank == bad && stops) {
        raise(SIGSTOP);
        _exit(0);
    }
    fy_tensor_t *x = make(group.rank == bad ? 9 : 8, group.rank);
    const fy_status_t status = fy_group_all_reduce(g, x, FY_GROUP_SUM);
    HOLDS(status == (stops ? FY_STATUS_RANK_LOST : FY_STATUS_INVALID_ARGUMENT));
    if (stops)
        snprintf(want, sizeof want, "rank %d (host ", bad);
    else /* two of the ranks' calls: the other one's is that of all others */
        snprintf(want, sizeof want, "rank %d all_reduce %d of f32 [9], sum", bad, before + 2);
    HOLDS(strstr(fy_error_get()->text, want));
    HOLDS(!stops || !strstr(fy_error_get()->text, "also missing"));
    HOLDS(fetch(x)[0] == value_of(group.rank, 0));
    report(stops ? bad : -1);
    if (group.rank == other && stops) kill(process, SIGKILL);
}

int main(int argc, char **argv)
{
    fy_group_options_t options = FY_GROUP_OPTIONS_INIT;
    fy_scope_t scope;
    const char *what = argc > 1 ? argv[1] : "calls";
    const bool is_moment = strcmp(what, "moment") == 0 && argc > 3;
    const bool is_silent = strncmp(what, "silent", 6) == 0;
    if (strcmp(what, "stop") == 0 || is_moment) {
        options.deadline_ns = 10000000000u; /* a high load makes no rank as late */
        options.silence_ns = FY_FOREVER;
    }
    fy_group_t *g = begin_rank(&options, argc > 2 && !is_moment ? argv[2] : "host", &scope);
    HOLDS(group.has_threads == (group.size > 1));
    if (argc > 2 && strncmp(argv[2], "cuda", 4) == 0) {
        OK(fy_group_use_device(g, device));
        HOLDS(fy_group_use_device(g, device) == FY_STATUS_INVALID_ARGUMENT);
        OK(fy_group_query(g, &group));
    }
    if (group.rank == 0)
        printf("%d ranks, %s%s%s\n", group.size, group.engine,
               group.is_direct ? ", from device to device" : "", group.reason);
    if (strcmp(what, "calls") == 0)
        calls(g);
    else if (strcmp(what, "differ") == 0)
        differ(g);
    else if (is_silent)
        silent(g, strcmp(what, "silent-async") == 0,
               strcmp(what, "silent-kill") == 0 ? SIGKILL : SIGSTOP);
    else if (is_moment)
        moment(g, strcmp(argv[2], "stop") == 0, (unsigned)strtoul(argv[3], NULL, 10));
    else
        stop(g);
    end_rank(g, scope);
    return 0;
}
