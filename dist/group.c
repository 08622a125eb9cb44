/* Opens and closes a group: which MPI the launcher belongs to, its plugin, and who the other ranks
 * are. Next: collective.c. */
#include "dist/group.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/abi.h"
#include "runtime/base/environment.h"
#include "runtime/base/load.h"

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

static bool accept(void *user, void *symbol, const char *path, char *reason, size_t size)
{
    (void)path, (void)reason, (void)size;
    memcpy(user, &symbol, sizeof symbol);
    return true;
}

static fy_status_t load(const char *mpi, uint64_t deadline_ns, fyd_transport_t *out)
{
    char file[64], text[FYD_ERROR_SIZE] = "";
    fyd_transport_open_fn open = NULL;
    /* MPI's own plugins use its symbols */
    const fy__load_t plugin = {
        &fy__abi_group_options, file, FYD_OPEN_SYMBOL, RTLD_GLOBAL, accept, &open
    };
    if (strcmp(mpi, "openmpi") != 0 && strcmp(mpi, "mpich") != 0)
        return FYD_FAIL(INVALID_ARGUMENT, "group_open: FERRY_MPI=%.40s; it is openmpi or mpich",
                        mpi);
    snprintf(file, sizeof file, "libferry-mpi-%s.so", mpi);
    if (!fy__load_plugin(&plugin, text, sizeof text))
        return FYD_FAIL(UNAVAILABLE,
                        "group_open: no plugin for %s: %s\n  Install Debian's package "
                        "libferry-mpi-%s; for a build of Ferry's sources install lib%s-dev, and "
                        "build again",
                        mpi, text, mpi, mpi);
    switch (open(out, deadline_ns, text)) {
    case FYD_OPEN: return FY_STATUS_OK;
    case FYD_FINALISED:
        return FYD_FAIL(UNSUPPORTED, "group_open: MPI has been finalised, and starts only once in "
                                     "a process");
    case FYD_LATE:
        return FYD_FAIL(RANK_LOST,
                        "group_open: MPI_Init has waited for %.3g s for all ranks: one has ended "
                        "before, or was not started\n  Look at what the launcher and the other "
                        "ranks print; deadline_ns is for slow starts, too",
                        (double)deadline_ns * 1e-9);
    default: return FYD_FAIL(IO, "group_open: %s", text);
    }
}

/* ---- the group ---- */

void fyd_group_free(fy_group_t *group)
{
    pthread_mutex_destroy(&group->engine);
    pthread_mutex_destroy(&group->lock);
    pthread_cond_destroy(&group->changed);
    pthread_cond_destroy(&group->closing);
    free(group->peers);
    free(group->watches);
    free(group->calls);
    free(group->messages);
    free(group->inbox);
    free(group->outbox);
    free(group->packed);
    free(group->scratch);
    free(group->sources);
    free(group);
}

static fy_status_t allocate(fy_group_t *group)
{
    const size_t size = (size_t)group->transport.size;
    group->peers = calloc(size, sizeof *group->peers);
    group->watches = calloc(size, sizeof *group->watches);
    group->calls = calloc(size, sizeof *group->calls);
    group->messages = calloc(2 * size, sizeof *group->messages);
    group->inbox = malloc(size * FYD_SLOT);
    group->outbox = malloc(size * FYD_SLOT);
    group->packed = calloc(size, sizeof *group->packed);
    group->scratch = malloc(size * FYD_PIECE);
    group->sources = calloc(size, sizeof *group->sources);
    if (!group->peers || !group->watches || !group->calls || !group->messages || !group->inbox ||
        !group->outbox || !group->packed || !group->scratch || !group->sources)
        return FYD_FAIL(OUT_OF_MEMORY, "group_open: no host memory for a group of %zu", size);
    for (size_t r = 0; r < size; r++) group->watches[r].heard = (fyd_beat_t){ 0, -1, -1 };
    group->beaten_ns = fy__now_ns();
    return FY_STATUS_OK;
}

static fy_group_t *create(void)
{
    fy_group_t *group = calloc(1, sizeof *group);
    if (!group) return NULL;
    pthread_mutex_init(&group->engine, NULL);
    pthread_mutex_init(&group->lock, NULL);
    pthread_cond_init(&group->changed, NULL);
    fy__condition_init(&group->closing);
    return group;
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
    group->peers[self].beats = group->transport.has_threads;
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

/* The transport is open. */
static fy_status_t set_up(fy_group_t *group)
{
    FY_TRY(allocate(group));
    pthread_mutex_lock(&group->engine);
    const fy_status_t status = introduce(group);
    fyd_account(group);
    pthread_mutex_unlock(&group->engine);
    FY_TRY(status);
    return group->transport.has_threads && group->transport.size > 1 ? fyd_heart_start(group)
                                                                     : FY_STATUS_OK;
}

static void close_transport(const fyd_transport_t *transport, bool is_orderly)
{
    if (transport->close) transport->close(transport->context, is_orderly);
}

fy_status_t fyd_group_make(const fyd_transport_t *transport, const fy_group_options_t *options,
                           fy_group_t **out_group)
{
    fy_group_t *group = create();
    *out_group = group;
    if (!group) {
        close_transport(transport, false);
        return FYD_FAIL(OUT_OF_MEMORY, "group_open: no host memory for a group");
    }
    group->transport = *transport;
    group->deadline_ns = options->deadline_ns;
    group->silence_ns = options->silence_ns;
    return set_up(group);
}

bool fyd_group_end(fy_group_t *group)
{
    fyd_native_close(group);
    fyd_threads_stop(group);
    fyd_beat_close(group);
    const bool is_orderly = atomic_load(&group->broken) == FY_STATUS_OK;
    fy_communicator_close(group->communicator); /* of a broken group: aborted */
    group->communicator = NULL;
    close_transport(&group->transport, is_orderly);
    if (is_orderly) fyd_group_free(group);
    return is_orderly;
}

/* ---- one group in a process ---- */

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
    const bool is_freed = !group || fyd_group_end(group);
    pthread_mutex_lock(&lock);
    is_open = !is_freed;
    if (!is_freed) abandoned = group;
    pthread_mutex_unlock(&lock);
}

static fy_status_t open_group(const fy_group_options_t *options, fy_group_t **out_group)
{
    fyd_transport_t transport = { .size = 1 };
    const char *mpi = mpi_of_launcher();
    if (mpi)
        FY_TRY(load(mpi, options->deadline_ns, &transport));
    else
        FY_TRY(check_alone());
    return fyd_group_make(&transport, options, out_group);
}

fy_status_t fy_group_open(const fy_group_options_t *options, fy_group_t **out_group)
{
    fy_group_options_t own;
    fy_group_t *group = NULL;
    if (!out_group) return FYD_FAIL(INVALID_ARGUMENT, "group_open: out_group is NULL");
    *out_group = NULL;
    FY_TRY(FY__READ(group_options, "group_open", options, &own));
    if (own.silence_ns == 0) own.silence_ns = 8000000000u;
    if (own.silence_ns <= 2000000000u)
        return FYD_FAIL(INVALID_ARGUMENT,
                        "group_open: silence_ns is %llu; ranks send a beat each second, so it is "
                        "more than 2 s",
                        (unsigned long long)own.silence_ns);
    FY_TRY(reserve());
    const fy_status_t status = open_group(&own, &group);
    if (status == FY_STATUS_OK) {
        *out_group = group;
        return FY_STATUS_OK;
    }
    const fy_error_t error = *fy_error_get();
    release(group);
    return fy_error_set(status, error.file, error.line, "%s", error.text);
}

void fy_group_close(fy_group_t *group)
{
    if (group && group->peers[group->transport.rank].process == getpid()) release(group);
}

fy_status_t fy_group_query(const fy_group_t *group, fy_group_info_t *out_info)
{
    fy_group_info_t info = FY_GROUP_INFO_INIT;
    FY_TRY(FY__CHECK_OUT(group_info, "group_query", out_info));
    if (!group) return FYD_FAIL(INVALID_ARGUMENT, "group_query: the group is NULL");
    FY_TRY(fyd_check_process(group, "group_query"));
    fy_group_t *mine = (fy_group_t *)group; /* its lock */
    info.rank = group->transport.rank;
    info.size = group->transport.size;
    info.local_rank = group->transport.local_rank;
    info.is_broken = atomic_load(&mine->broken) != FY_STATUS_OK;
    info.has_threads = group->transport.size > 1 && group->transport.has_threads;
    memcpy(info.engine, group->transport.engine, sizeof info.engine);
    info.is_direct = group->communicator != NULL;
    memcpy(info.reason, group->not_direct, sizeof info.reason);
    pthread_mutex_lock(&mine->engine);
    info.calls = group->ncalls;
    info.sent_nbytes = group->sent_nbytes;
    info.received_nbytes = group->received_nbytes;
    pthread_mutex_unlock(&mine->engine);
    FY__WRITE(out_info, &info);
    return FY_STATUS_OK;
}
