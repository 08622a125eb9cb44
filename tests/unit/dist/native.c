/* One rank of the test of calls from device to device: test_native.sh starts several by mpirun, on
 * the fake CUDA, whose NCCL stops one rank inside its second call ($FAKE_NCCL_STOP).
 *   native stop          the others name it; the device, and what earlier calls wrote, stay usable
 *   native stop-async    the same for a call of the group's thread
 *   native differ        the last rank's tensor is on the host: found before anything moves
 *   native close-late    the last rank closes its group long after the deadline of calls
 *   native close-stop    the last rank stops; the others close while a call runs on their devices
 *   native leave         the last rank closes its group; the others call
 *   native open-fails    NCCL fails on the last rank while the devices connect
 *   native slow-abort    the last rank stays away; rank 0 reports it, though its abort takes long
 * Exit status 0: all holds. */
#include <dlfcn.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit/dist/ranks.h"

enum { CALLS_S = 10 }; /* a deadline of calls; a high load makes no rank as late */

static fy_tensor_t *make(fy_device_t *where, float value)
{
    fy_tensor_t *out;
    OK(fy_tensor_create(where, FY_DTYPE_F32, FY_DIMS(64), &out));
    OK(fy_fill(out, value));
    return out;
}

static void stop(fy_group_t *g, int is_async)
{
    const int last = group.size - 1;
    const pid_t victim = process_of(g, last);
    fy_tensor_t *before = make(device, 1), *lost = make(device, 1), *other = make(device, 5);
    fy_ticket_t ticket;
    OK(fy_group_all_reduce(g, before, FY_GROUP_SUM));
    if (is_async) {
        OK(fy_group_all_reduce_async(g, lost, FY_GROUP_SUM, &ticket));
        HOLDS(fy_ticket_wait(ticket, FY_FOREVER) == FY_STATUS_RANK_LOST);
    } else {
        HOLDS(fy_group_all_reduce(g, lost, FY_GROUP_SUM) == FY_STATUS_RANK_LOST);
    }
    expect_silent(last);
    HOLDS(strstr(fy_error_get()->text, "all_reduce 4 of f32 [64] on devices, sum"));
    HOLDS(fy_group_all_reduce(g, other, FY_GROUP_SUM) == FY_STATUS_RANK_LOST);
    /* no call was running on the device: it is as before, and only the result is lost */
    HOLDS(fetch(before)[0] == (float)group.size && fetch(other)[0] == 5);
    fy_download_t *download = NULL;
    fy_tensor_t *host;
    fy_status_t status = fy_tensor_download(lost, NULL, &download);
    if (status == FY_STATUS_OK) status = fy_download_wait(download, FY_FOREVER, &host);
    HOLDS(status == FY_STATUS_RANK_LOST);
    HOLDS(fy_group_barrier(g) == FY_STATUS_RANK_LOST);
    report(last);
    if (group.rank == 0) kill(victim, SIGKILL);
}

static void differ(fy_group_t *g)
{
    const int last = group.size - 1;
    fy_tensor_t *x = make(group.rank == last ? fy_device_host() : device, 1);
    HOLDS(fy_group_all_reduce(g, x, FY_GROUP_SUM) == FY_STATUS_INVALID_ARGUMENT);
    HOLDS(strstr(fy_error_get()->text, "rank 0 all_reduce 2 of f32 [64] on devices, sum; rank "));
    HOLDS(strstr(fy_error_get()->text, " all_reduce 2 of f32 [64], sum"));
    if (group.rank != last) HOLDS(fetch(x)[0] == 1);
    report(-1);
}

static void *of_fake(const char *name)
{
    void *fake = dlopen(getenv("FERRY_CUDA_DRIVER"), RTLD_NOW | RTLD_NOLOAD);
    void *symbol = fake ? dlsym(fake, name) : NULL;
    HOLDS(symbol);
    return symbol;
}

/* Requests on the fake's devices stay unfinished. */
static void hold(void)
{
    void *symbol = of_fake("fake_cuda_hold");
    void (*fake_cuda_hold)(int on) = NULL;
    memcpy(&fake_cuda_hold, &symbol, sizeof symbol);
    fake_cuda_hold(1);
}

static void open_fails(fy_group_t *g)
{
    void *symbol = of_fake("fake_cuda_fail");
    void (*fake_cuda_fail)(const char *call, int64_t nth, int code) = NULL;
    const int last = group.size - 1;
    char want[80];
    memcpy(&fake_cuda_fail, &symbol, sizeof symbol);
    if (group.rank == last) fake_cuda_fail("ncclCommInitRankConfig", 1, 2);
    const fy_status_t status = fy_group_use_device(g, device);
    HOLDS(status == (group.rank == last ? FY_STATUS_UNAVAILABLE : FY_STATUS_RANK_LOST));
    snprintf(want, sizeof want, "is lost, as rank %d reports", last);
    HOLDS(strstr(fy_error_get()->text, group.rank == last ? "ncclSystemError" : want));
    OK(fy_group_query(g, &group));
    HOLDS(group.is_broken && !group.is_direct);
    report(-1);
}

static void close_late(void)
{
    if (group.rank == group.size - 1) sleep(CALLS_S + 2);
}

static void close_stop(fy_group_t *g)
{
    const pid_t victim = process_of(g, group.size - 1);
    fy_tensor_t *x = make(device, 1), *host;
    fy_download_t *download;
    OK(fy_device_wait(device, FY_FOREVER));
    hold();
    OK(fy_group_all_reduce(g, x, FY_GROUP_SUM));
    OK(fy_group_barrier(g)); /* all have the call */
    if (group.rank == group.size - 1) raise(SIGSTOP);
    fy_group_close(g);
    fy_status_t status = fy_tensor_download(x, NULL, &download);
    if (status == FY_STATUS_OK) status = fy_download_wait(download, FY_FOREVER, &host);
    HOLDS(status == FY_STATUS_DEVICE_LOST);
    report(group.size - 1);
    if (group.rank == 0) kill(victim, SIGKILL);
    exit(0);
}

static void leave(fy_group_t *g)
{
    fy_tensor_t *x = make(device, 1);
    if (group.rank == group.size - 1) {
        OK(fy_device_wait(device, FY_FOREVER));
        fy_group_close(g);
        wait_for_reports(-1);
        exit(0);
    }
    HOLDS(fy_group_all_reduce(g, x, FY_GROUP_SUM) == FY_STATUS_RANK_LOST);
    report(group.size - 1);
}

/* Rank 0 waits for CALLS_S, the others longer. Those get its report before it aborts. */
static void slow_abort(fy_group_t *g)
{
    const int last = group.size - 1;
    fy_tensor_t *x = make(device, 1);
    OK(fy_device_wait(device, FY_FOREVER));
    if (group.rank == last) {
        wait_for_reports(-1);
        _exit(0);
    }
    HOLDS(fy_group_all_reduce(g, x, FY_GROUP_SUM) == FY_STATUS_RANK_LOST);
    expect_named(last);
    if (group.rank > 0) HOLDS(strstr(fy_error_get()->text, "is lost, as rank 0 reports"));
    report(last);
}

static const char *rank_of_launcher(void)
{
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    if (!rank) rank = getenv("PMI_RANK");
    return rank ? rank : "-1";
}

int main(int argc, char **argv)
{
    fy_group_options_t options = FY_GROUP_OPTIONS_INIT;
    fy_scope_t scope;
    const char *what = argc > 1 ? argv[1] : "stop";
    if (strcmp(what, "close-late") == 0) options.deadline_ns = CALLS_S * UINT64_C(1000000000);
    if (strcmp(what, "slow-abort") == 0 && atoi(rank_of_launcher()) == 0) {
        options.deadline_ns = CALLS_S * UINT64_C(1000000000);
        setenv("FAKE_NCCL_SLOW_ABORT", "6", 1);
    }
    fy_group_t *g = begin_rank(&options, "cuda:0", &scope);
    if (strcmp(what, "open-fails") == 0) {
        open_fails(g);
        end_rank(g, scope);
        return 0;
    }
    OK(fy_group_use_device(g, device));
    OK(fy_group_query(g, &group));
    HOLDS(group.is_direct && !group.reason[0]);
    if (strcmp(what, "differ") == 0)
        differ(g);
    else if (strcmp(what, "close-late") == 0)
        close_late();
    else if (strcmp(what, "close-stop") == 0)
        close_stop(g);
    else if (strcmp(what, "leave") == 0)
        leave(g);
    else if (strcmp(what, "slow-abort") == 0)
        slow_abort(g);
    else
        stop(g, strcmp(what, "stop-async") == 0);
    end_rank(g, scope);
    return 0;
}
