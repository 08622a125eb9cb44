/* One rank of the test of calls from device to device: test_native.sh starts several by mpirun, on
 * the fake CUDA, whose NCCL stops one rank inside its second call ($FAKE_NCCL_STOP).
 *   native stop          the others name it; the device, and what earlier calls wrote, stay usable
 *   native stop-async    the same for a call of the group's thread
 *   native differ        the last rank's tensor is on the host: found before anything moves
 * Exit status 0: all holds. */
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit/dist/ranks.h"

static fy_tensor_t *make(fy_device_t *where, float value)
{
    fy_tensor_t *out;
    OK(fy_tensor_create(where, FY_DTYPE_F32, FY_DIMS(64), &out));
    OK(fy_fill(out, value));
    return out;
}

static void report(void)
{
    printf("rank %d: %s\n", group.rank, fy_error_get()->text);
    fflush(stdout);
    sleep(2); /* mpirun ends all ranks when one leaves without MPI_Finalize */
}

static pid_t process_of(fy_group_t *g, int rank)
{
    fy_tensor_t *number, *numbers;
    void *data;
    OK(fy_tensor_create(fy_device_host(), FY_DTYPE_I64, FY_DIMS(1), &number));
    OK(fy_tensor_create(fy_device_host(), FY_DTYPE_I64, FY_DIMS(group.size), &numbers));
    OK(fy_tensor_map(number, FY_ACCESS_WRITE, &data));
    *(int64_t *)data = getpid();
    OK(fy_group_all_gather(g, numbers, number));
    OK(fy_tensor_map(numbers, FY_ACCESS_READ, &data));
    return (pid_t)((int64_t *)data)[rank];
}

static void stop(fy_group_t *g, int is_async)
{
    const int last = group.size - 1;
    const pid_t victim = process_of(g, last);
    fy_tensor_t *before = make(device, 1), *lost = make(device, 1), *other = make(device, 5);
    fy_ticket_t ticket;
    char want[80];
    OK(fy_group_all_reduce(g, before, FY_GROUP_SUM));
    if (is_async) {
        OK(fy_group_all_reduce_async(g, lost, FY_GROUP_SUM, &ticket));
        HOLDS(fy_ticket_wait(ticket, FY_FOREVER) == FY_STATUS_RANK_LOST);
    } else {
        HOLDS(fy_group_all_reduce(g, lost, FY_GROUP_SUM) == FY_STATUS_RANK_LOST);
    }
    snprintf(want, sizeof want, "rank %d (host ", last);
    HOLDS(strstr(fy_error_get()->text, want));
    HOLDS(strstr(fy_error_get()->text, "is silent for") ||
          strstr(fy_error_get()->text, "is lost, as rank"));
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
    report();
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
    report();
}

int main(int argc, char **argv)
{
    fy_group_options_t options = FY_GROUP_OPTIONS_INIT;
    fy_group_t *g;
    const char *what = argc > 1 ? argv[1] : "stop";
    options.silence_ns = 4000000000u;
    OK(fy_group_open(&options, &g));
    OK(fy_device_open("cuda:0", &device));
    OK(fy_group_use_device(g, device));
    OK(fy_group_query(g, &group));
    HOLDS(group.is_direct && !group.reason[0]);
    const fy_scope_t scope = fy_scope_begin("test");
    if (strcmp(what, "differ") == 0)
        differ(g);
    else
        stop(g, strcmp(what, "stop-async") == 0);
    fy_scope_end(scope, 0, NULL);
    fy_device_close(device);
    fy_group_close(g);
    return 0;
}
