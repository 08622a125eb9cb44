/* Counts what MPI is given to send, by its profiling interface (MPI 4.0, chapter 15): loaded before
 * the MPI by test_ranks.sh, and asked by ranks.c. Compiled once for each MPI. */
#include <mpi.h>

#include <stdint.h>

uint64_t count_mpi_nbytes(void);
uint64_t count_mpi_messages(void);

static uint64_t nbytes, messages;

uint64_t count_mpi_nbytes(void) { return nbytes; }
uint64_t count_mpi_messages(void) { return messages; }

int MPI_Isend(const void *data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
              MPI_Request *request)
{
    int size = 0;
    PMPI_Type_size(type, &size);
    nbytes += (uint64_t)count * (uint64_t)size;
    messages++;
    return PMPI_Isend(data, count, type, to, tag, comm, request);
}
