/* The transport over MPI: libferry-mpi-openmpi.so and libferry-mpi-mpich.so are made of this file.
 * All ranks of MPI_COMM_WORLD, in a communicator of Ferry's. Errors are returned, not fatal. */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dist/transport.h"

static MPI_Comm comm = MPI_COMM_NULL;
static bool is_ours; /* open initialised MPI */

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

static void close_mpi(void *context, bool is_orderly)
{
    (void)context;
    if (!is_orderly) return; /* both calls may wait for the lost rank */
    if (comm != MPI_COMM_NULL) MPI_Comm_free(&comm);
    if (is_ours) MPI_Finalize();
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

__attribute__((visibility("default"))) fyd_open_result_t
fyd_transport_open(fyd_transport_t *out, char error[FYD_ERROR_SIZE])
{
    int is_initialised = 0, is_finalised = 0, level = MPI_THREAD_SINGLE;
    *out = (fyd_transport_t){ .post = post, .test = test, .cancel = cancel, .close = close_mpi };
    MPI_Finalized(&is_finalised);
    if (is_finalised) return FYD_FINALISED;
    MPI_Initialized(&is_initialised);
    if (!is_initialised && !check(MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level),
                                  "MPI_Init_thread", error))
        return FYD_FAILED;
    is_ours = !is_initialised;
    if (!is_ours) MPI_Query_thread(&level);
    /* The constants are in this order (MPI 4.0, 11.6). A program that initialised MPI calls it
     * whenever it likes. */
    out->has_threads = level >= (is_ours ? MPI_THREAD_SERIALIZED : MPI_THREAD_MULTIPLE);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    return describe(out, error) ? FYD_OPEN : FYD_FAILED;
}
