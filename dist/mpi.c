/* The transport over MPI: libferry-mpi-openmpi.so and libferry-mpi-mpich.so are made of this file.
 * All ranks of MPI_COMM_WORLD, in a communicator of Ferry's. Errors are returned, not fatal. */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dist/transport.h"
#include "runtime/base/posix.h"

static MPI_Comm comm = MPI_COMM_NULL;
static bool is_ours; /* open initialises MPI */

static bool check(int code, const char *call, char *error)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    if (code == MPI_SUCCESS) return true;
    MPI_Error_string(code, text, &length);
    snprintf(error, FYD_ERROR_SIZE, "%s: %.200s", call, text);
    return false;
}

static bool post(void *context, fyd_channel_t channel, bool is_send, void *data, size_t nbytes,
                 int peer, void **out_request, char *error)
{
    MPI_Request *request = malloc(sizeof *request);
    bool ok = request != NULL;
    const int tag = (int)channel;
    (void)context;
    *out_request = NULL;
    if (!ok)
        snprintf(error, FYD_ERROR_SIZE, "no memory for a request");
    else if (is_send)
        ok = check(MPI_Isend(data, (int)nbytes, MPI_BYTE, peer, tag, comm, request), "MPI_Isend",
                   error);
    else
        ok = check(MPI_Irecv(data, (int)nbytes, MPI_BYTE, peer, tag, comm, request), "MPI_Irecv",
                   error);
    if (ok)
        *out_request = request;
    else
        free(request);
    return ok;
}

static bool test(void *context, void *request, bool *is_done, char *error)
{
    int flag = 0;
    (void)context;
    const bool ok = check(MPI_Test(request, &flag, MPI_STATUS_IGNORE), "MPI_Test", error);
    *is_done = ok && flag;
    if (*is_done) free(request);
    return ok;
}

static void cancel(void *context, void *request)
{
    (void)context;
    if (MPI_Cancel(request) == MPI_SUCCESS) MPI_Wait(request, MPI_STATUS_IGNORE);
    free(request);
}

/* The communicator, and where this process is in it. */
static bool describe(fyd_transport_t *out, char *error)
{
    MPI_Comm local;
    char library[MPI_MAX_LIBRARY_VERSION_STRING] = "", host[MPI_MAX_PROCESSOR_NAME] = "";
    int length = 0;
    if (!check(MPI_Comm_dup(MPI_COMM_WORLD, &comm), "MPI_Comm_dup", error)) return false;
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    MPI_Comm_rank(comm, &out->rank);
    MPI_Comm_size(comm, &out->size);
    if (!check(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &local),
               "MPI_Comm_split_type", error))
        return false;
    MPI_Comm_rank(local, &out->local_rank);
    MPI_Comm_free(&local);
    MPI_Get_library_version(library, &length);
    for (char *tab = library; (tab = strchr(tab, '\t'));) *tab = ' '; /* MPICH's has some */
    snprintf(out->engine, sizeof out->engine, "%.*s", (int)strcspn(library, ",\n"), library);
#ifdef OPEN_MPI
    out->eager_nbytes = 4000; /* in shared memory: its default, 4096, with its header */
#else
    out->eager_nbytes = 16384;
#endif
    MPI_Get_processor_name(host, &length);
    snprintf(out->host, sizeof out->host, "%.60s", host);
    return true;
}

/* The constants are in this order (MPI 4.0, 11.6). */
static bool begin(int level, int least, fyd_transport_t *out, char *error)
{
    out->has_threads = level >= least;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    return describe(out, error);
}

/* ---- MPI's main thread ---- */

/* MPI_Init waits for all ranks, and nothing ends that, so it has a thread for which open waits no
 * longer than it may. The thread that initialises MPI also finalises it (MPI 4.0, 11.2). */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards those below */
static pthread_cond_t changed;
static pthread_t thread;
static bool is_ending;
static fyd_open_result_t result = FYD_LATE;
static fyd_transport_t made;
static char why[FYD_ERROR_SIZE];

static void *run_mpi(void *unused)
{
    int level = MPI_THREAD_SINGLE;
    (void)unused;
    bool is_good =
        check(MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level), "MPI_Init_thread", why);
    if (is_good && level < MPI_THREAD_SERIALIZED) {
        snprintf(why, sizeof why, "this MPI has no threads; call MPI_Init before fy_group_open");
        is_good = false;
    }
    is_good = is_good && begin(level, MPI_THREAD_SERIALIZED, &made, why);
    pthread_mutex_lock(&lock);
    result = is_good ? FYD_OPEN : FYD_FAILED;
    pthread_cond_signal(&changed);
    while (!is_ending) pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    MPI_Finalize();
    return NULL;
}

static bool start(char *error)
{
    fy__condition_init(&changed);
    const int code = fy__thread_start(&thread, run_mpi, NULL);
    is_ours = code == 0;
    if (code) snprintf(error, FYD_ERROR_SIZE, "no thread for MPI_Init: error %d", code);
    return is_ours;
}

static fyd_open_result_t await(uint64_t deadline_ns, fyd_transport_t *out, char *error)
{
    const uint64_t century = UINT64_C(100) * 365 * 86400 * 1000000000;
    const uint64_t until_ns = fy__now_ns() + (deadline_ns < century ? deadline_ns : century);
    pthread_mutex_lock(&lock);
    int code = 0;
    while (result == FYD_LATE && code == 0) code = fy__condition_wait(&changed, &lock, until_ns);
    const fyd_open_result_t seen = result;
    pthread_mutex_unlock(&lock);
    if (seen == FYD_OPEN) *out = made;
    if (seen == FYD_FAILED) memcpy(error, why, sizeof why);
    return seen;
}

static void finalise(void)
{
    pthread_mutex_lock(&lock);
    is_ending = true;
    pthread_cond_signal(&changed);
    pthread_mutex_unlock(&lock);
    pthread_join(thread, NULL);
}

/* ---- open and close ---- */

static void close_mpi(void *context, bool is_orderly)
{
    (void)context;
    if (!is_orderly) return; /* both calls may wait for the lost rank */
    if (comm != MPI_COMM_NULL) MPI_Comm_free(&comm);
    if (is_ours) finalise();
}

__attribute__((visibility("default"))) fyd_open_result_t
fyd_transport_open_2(fyd_transport_t *out, uint64_t deadline_ns, char error[FYD_ERROR_SIZE])
{
    int is_initialised = 0, is_finalised = 0, level = MPI_THREAD_SINGLE;
    fyd_open_result_t opened;
    MPI_Finalized(&is_finalised);
    if (is_finalised) return FYD_FINALISED;
    MPI_Initialized(&is_initialised);
    if (is_ours || !is_initialised)
        opened = is_ours || start(error) ? await(deadline_ns, out, error) : FYD_FAILED;
    else {
        /* the program calls MPI whenever it likes */
        MPI_Query_thread(&level);
        opened = begin(level, MPI_THREAD_MULTIPLE, out, error) ? FYD_OPEN : FYD_FAILED;
    }
    out->post = post;
    out->test = test;
    out->cancel = cancel;
    out->close = close_mpi;
    return opened;
}
