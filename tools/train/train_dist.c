/* `ferry train --dist auto`: the group of all processes, and what each rank does for itself.
 * Next: ferry/dist_train.h. */
#include "tools/train/train.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void look_for_cuda(void *user, const char *spec, int is_simulated)
{
    (void)is_simulated;
    bool *found = user;
    *found |= strncmp(spec, "cuda:", 5) == 0;
}

/* One rank, one device. */
static fy_status_t choose_device(train_dist_t *dist, common_t *common)
{
    bool has_cuda = false;
    if (strcmp(common->device, "auto") != 0) return FY_STATUS_OK;
    FY_TRY(fy_device_enumerate(look_for_cuda, &has_cuda));
    snprintf(dist->device, sizeof dist->device, "cuda:%d", dist->info.local_rank);
    common->device = has_cuda ? dist->device : "host";
    return FY_STATUS_OK;
}

/* Rank 0 prints and writes; another rank's recording is FILE.RANK. */
static fy_status_t be_quiet(train_dist_t *dist, common_t *common, train_request_t *request)
{
    if (dist->info.rank == 0) return FY_STATUS_OK;
    common->csv = common->plot = common->snapshot = request->save = NULL;
    if (common->record) {
        snprintf(dist->record, sizeof dist->record, "%.4000s.%d", common->record, dist->info.rank);
        common->record = dist->record;
    }
    (void)fflush(stdout); /* its stream writes to the descriptor: ferry.c */
    const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    const bool is_quiet = nowhere >= 0 && dup2(nowhere, STDOUT_FILENO) >= 0;
    if (nowhere >= 0) close(nowhere);
    if (is_quiet) return FY_STATUS_OK;
    return TOOL_FAIL(IO, "rank %d cannot close its standard output", dist->info.rank);
}

fy_status_t train_dist_open(train_dist_t *dist, common_t *common, train_request_t *request)
{
    fy_group_options_t options = FY_GROUP_OPTIONS_INIT;
    dist->info = (fy_group_info_t)FY_GROUP_INFO_INIT;
    if (request->deadline_s) options.deadline_ns = (uint64_t)request->deadline_s * 1000000000u;
    FY_TRY(fy_group_open(&options, &dist->group));
    FY_TRY(fy_group_query(dist->group, &dist->info));
    FY_TRY(choose_device(dist, common));
    return be_quiet(dist, common, request);
}

fy_status_t train_dist_begin(train_run_t *run)
{
    train_dist_t *dist = run->dist;
    fy_ddp_options_t options = FY_DDP_OPTIONS_INIT;
    if (!dist) return FY_STATUS_OK;
    options.shard_optimizer = run->request.shard;
    options.sync_batch_norm = run->request.sync_norms;
    FY_TRY(fy_ddp_create(dist->group, run->model, &options, &dist->ddp));
    dist->replicas = (fy_train_replicas_t)FY_TRAIN_REPLICAS_INIT;
    FY_TRY(fy_ddp_replicas(dist->ddp, &dist->replicas));
    run->options.replicas = &dist->replicas;
    return FY_STATUS_OK;
}

fy_status_t train_dist_optimizer(train_run_t *run, const fy_optimizer_options_t *options)
{
    return run->dist ? fy_ddp_create_optimizer(run->dist->ddp, options, &run->optimizer)
                     : fy_optimizer_create_model(options, run->model, &run->optimizer);
}

/* A lost rank also ends calls that ran on the device, which is lost then. */
fy_status_t train_dist_cause(const train_run_t *run, fy_status_t status)
{
    fy_group_info_t now = FY_GROUP_INFO_INIT;
    if (status != FY_STATUS_DEVICE_LOST || !run->dist) return status;
    const fy_error_t first = *fy_error_get();
    if (fy_group_query(run->dist->group, &now) == FY_STATUS_OK && now.is_broken)
        return fy_group_barrier(run->dist->group);
    return fy_error_set(status, first.file, first.line, "%s", first.text);
}

void train_dist_print(const train_run_t *run)
{
    FILE *out = run->session.out;
    fy_group_info_t now = FY_GROUP_INFO_INIT;
    if (!run->dist || !out || fy_group_query(run->dist->group, &now) != FY_STATUS_OK) return;
    const bool is_cuda = strcmp(run->session.info.backend, "cuda") == 0;
    fprintf(out, "ranks: %d%s%s%s; %llu calls of rank 0, %llu bytes sent, %llu received\n",
            now.size, *now.engine ? ", " : "", now.engine,
            now.is_direct ? ", from device to device" : "", (unsigned long long)now.calls,
            (unsigned long long)now.sent_nbytes, (unsigned long long)now.received_nbytes);
    if (is_cuda && *now.reason) fprintf(out, "ranks: across the host: %s\n", now.reason);
}

void train_dist_end(train_run_t *run)
{
    if (!run->dist) return;
    fy_ddp_destroy(run->dist->ddp);
    run->dist->ddp = NULL;
}

void train_dist_close(train_dist_t *dist) { fy_group_close(dist->group); }
