/* Opens and closes a group: which MPI the launcher belongs to, its plugin, and who the other ranks
 * are. Next: collective.c. */
#include "dist/group.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/abi.h"
#include "runtime/base/environment.h"

#define GROUP_OPTIONS(X) X(group_options, GROUP_OPTIONS, deadline_ns)
#define GROUP_FACTS(X)   X(group_info, GROUP_INFO, received_nbytes)
GROUP_OPTIONS(FY__ABI_ROW)
GROUP_FACTS(FY__ABI_ROW)
GROUP_OPTIONS(FY__ABI_INIT_FUNCTION)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the two below */
static bool is_open;
static fy_group_t *abandoned; /* a broken group: MPI may still use its memory */

/* ---- the launcher ---- */

static const char *mpi_of_launcher(void)
{
    const char *named = fy__env_value("FERRY_MPI");
    if (named) return named;
    if (fy__env_value("OMPI_COMM_WORLD_SIZE") || fy__env_value("PMIX_RANK")) return "openmpi";
    if (fy__env_value("PMI_RANK") || fy__env_value("PMI_SIZE")) return "mpich";
    return NULL;
}

/* Several processes that would each train alone are an error. */
static fy_status_t check_alone(void)
{
    static const char *const counts[] = { "WORLD_SIZE", "SLURM_STEP_NUM_TASKS" };
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        const char *value = fy__env_value(counts[i]);
        if (value && strtol(value, NULL, 10) > 1)
            return FYD_FAIL(UNAVAILABLE,
                            "group_open: %s=%.20s, but no MPI started this process\n  Start it "
                            "with mpirun or srun --mpi=pmix, or set FERRY_MPI=openmpi or mpich",
                            counts[i], value);
    }
    return FY_STATUS_OK;
}

/* ---- the plugin ---- */

/* In the folder `ferry` beside this library. */
static fy_status_t find_plugin(const char *mpi, char *path, size_t size)
{
    Dl_info info;
    if (strcmp(mpi, "openmpi") != 0 && strcmp(mpi, "mpich") != 0)
        return FYD_FAIL(INVALID_ARGUMENT, "group_open: FERRY_MPI=%.40s; it is openmpi or mpich",
                        mpi);
    const char *slash = dladdr((const void *)&fy__abi_group_options, &info) && info.dli_fname
                            ? strrchr(info.dli_fname, '/')
                            : NULL;
    if (!slash) return FYD_FAIL(UNAVAILABLE, "group_open: the folder of libferry_dist is unknown");
    snprintf(path, size, "%.*s/ferry/libferry-mpi-%s.so", (int)(slash - info.dli_fname),
             info.dli_fname, mpi);
    return FY_STATUS_OK;
}

static fy_status_t load(const char *mpi, fyd_transport_t *out)
{
    char path[4096], error[FYD_ERROR_SIZE] = "";
    fyd_transport_open_fn open = NULL;
    FY_TRY(find_plugin(mpi, path, sizeof path));
    void *object = dlopen(path, RTLD_NOW | RTLD_GLOBAL); /* MPI's own plugins use its symbols */
    void *symbol = object ? dlsym(object, "fyd_transport_open") : NULL;
    memcpy(&open, &symbol, sizeof open);
    if (!open)
        return FYD_FAIL(UNAVAILABLE,
                        "group_open: no plugin for %s: %.300s\n  Install Debian's package "
                        "libferry-mpi-%s, or that MPI's headers and build Ferry again",
                        mpi, dlerror(), mpi);
    switch (open(out, error)) {
    case FYD_OPEN: return FY_STATUS_OK;
    case FYD_FINALISED:
        return FYD_FAIL(UNSUPPORTED, "group_open: MPI has been finalised, and starts only once in "
                                     "a process");
    default: return FYD_FAIL(IO, "group_open: %s", error);
    }
}

/* ---- the group ---- */

static void free_group(fy_group_t *group)
{
    free(group->peers);
    free(group->calls);
    free(group->messages);
    free(group->scratch);
    free(group->sources);
    free(group);
}

static fy_status_t allocate(fy_group_t *group)
{
    const size_t size = (size_t)group->transport.size;
    group->peers = calloc(size, sizeof *group->peers);
    group->calls = calloc(size, sizeof *group->calls);
    group->messages = calloc(2 * size, sizeof *group->messages);
    group->scratch = malloc(size * FYD_PIECE);
    group->sources = calloc(size, sizeof *group->sources);
    if (!group->peers || !group->calls || !group->messages || !group->scratch || !group->sources)
        return FYD_FAIL(OUT_OF_MEMORY, "group_open: no host memory for a group of %zu", size);
    return FY_STATUS_OK;
}

/* Every rank gets the others' hosts and process numbers, for the texts of failures. */
static fy_status_t introduce(fy_group_t *group)
{
    const int self = group->transport.rank;
    size_t count = 0;
    for (int r = 0; r < group->transport.size; r++)
        snprintf(group->peers[r].host, FYD_NAME_SIZE, "%s",
                 r == self ? group->transport.host : "?");
    group->peers[self].process = getpid();
    for (int r = 0; r < group->transport.size; r++) {
        if (r == self) continue;
        group->messages[count++] =
            (fyd_message_t){ .peer = r, .data = &group->peers[r], .nbytes = sizeof(fyd_peer_t) };
        group->messages[count++] = (fyd_message_t){
            .peer = r, .is_send = true, .data = &group->peers[self], .nbytes = sizeof(fyd_peer_t)
        };
    }
    return fyd_exchange(group, group->messages, count);
}

static fy_status_t open_group(fy_group_t *group)
{
    const char *mpi = mpi_of_launcher();
    group->transport.size = 1;
    if (mpi)
        FY_TRY(load(mpi, &group->transport));
    else
        FY_TRY(check_alone());
    FY_TRY(allocate(group));
    const fy_status_t status = introduce(group);
    fyd_account(group);
    return status;
}

static fy_status_t reserve(void)
{
    pthread_mutex_lock(&lock);
    const bool is_free = !is_open, is_broken = abandoned != NULL;
    is_open = true;
    pthread_mutex_unlock(&lock);
    if (is_free) return FY_STATUS_OK;
    return is_broken ? FYD_FAIL(UNSUPPORTED, "group_open: this process had a group that broke: %s",
                                abandoned->reason)
                     : FYD_FAIL(BUSY, "group_open: this process has an open group: fy_group_close");
}

static void release(fy_group_t *group)
{
    const bool is_broken = group->broken != FY_STATUS_OK;
    if (group->transport.close) group->transport.close(!is_broken);
    pthread_mutex_lock(&lock);
    is_open = is_broken;
    if (is_broken) abandoned = group;
    pthread_mutex_unlock(&lock);
    if (!is_broken) free_group(group);
}

fy_status_t fy_group_open(const fy_group_options_t *options, fy_group_t **out_group)
{
    fy_group_options_t own;
    if (!out_group) return FYD_FAIL(INVALID_ARGUMENT, "group_open: out_group is NULL");
    *out_group = NULL;
    FY_TRY(FY__READ(group_options, "group_open", options, &own));
    FY_TRY(reserve());
    fy_group_t *group = calloc(1, sizeof *group);
    fy_status_t status = group ? FY_STATUS_OK
                               : FYD_FAIL(OUT_OF_MEMORY, "group_open: no host memory for a group");
    if (group) {
        group->deadline_ns = own.deadline_ns;
        status = open_group(group);
    }
    if (status == FY_STATUS_OK) {
        *out_group = group;
        return FY_STATUS_OK;
    }
    if (group) {
        const fy_error_t error = *fy_error_get();
        release(group);
        return fy_error_set(status, error.file, error.line, "%s", error.text);
    }
    pthread_mutex_lock(&lock);
    is_open = false;
    pthread_mutex_unlock(&lock);
    return status;
}

void fy_group_close(fy_group_t *group)
{
    if (group) release(group);
}

fy_status_t fy_group_query(const fy_group_t *group, fy_group_info_t *out_info)
{
    fy_group_info_t info = FY_GROUP_INFO_INIT;
    FY_TRY(FY__CHECK_OUT(group_info, "group_query", out_info));
    if (!group) return FYD_FAIL(INVALID_ARGUMENT, "group_query: the group is NULL");
    info.rank = group->transport.rank;
    info.size = group->transport.size;
    info.local_rank = group->transport.local_rank;
    info.is_broken = group->broken != FY_STATUS_OK;
    memcpy(info.engine, group->transport.engine, sizeof info.engine);
    info.calls = group->ncalls;
    info.sent_nbytes = group->sent_nbytes;
    info.received_nbytes = group->received_nbytes;
    FY__WRITE(out_info, &info);
    return FY_STATUS_OK;
}
