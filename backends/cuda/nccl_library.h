/* The entry points of NCCL that nccl.c calls, in one table filled by dlsym. Declared here, because
 * NCCL's header is in few toolkits; the calls and the numbers have been what they are since NCCL
 * 2.0 (bf16: 2.10), as its documentation has them. */
#ifndef FERRY_BACKENDS_CUDA_NCCL_LIBRARY_H_
#define FERRY_BACKENDS_CUDA_NCCL_LIBRARY_H_

#include <stddef.h>

#include <cuda.h>

#include <ferry/backend.h>

typedef struct ncclComm *fy__nccl_comm_t;

enum { FY__NCCL_SUM = 0, FY__NCCL_F16 = 6, FY__NCCL_F32 = 7, FY__NCCL_F64 = 8, FY__NCCL_BF16 = 9 };

/* X(number, name, what it is to Ferry): every result NCCL knows. */
#define FY__NCCL_CODE_LIST(X)                   \
    X(1, ncclUnhandledCudaError, INTERNAL)      \
    X(2, ncclSystemError, UNAVAILABLE)          \
    X(3, ncclInternalError, INTERNAL)           \
    X(4, ncclInvalidArgument, INVALID_ARGUMENT) \
    X(5, ncclInvalidUsage, INTERNAL)            \
    X(6, ncclRemoteError, UNAVAILABLE)          \
    X(7, ncclInProgress, BUSY)

/* X(name, result, parameters) */
#define FY__NCCL_LIST(X)                                                                  \
    X(ncclGetVersion, int, (int *version))                                                \
    X(ncclCommInitAll, int, (fy__nccl_comm_t * comms, int count, const int *devices))     \
    X(ncclCommDestroy, int, (fy__nccl_comm_t comm))                                       \
    X(ncclCommAbort, int, (fy__nccl_comm_t comm))                                         \
    X(ncclCommGetAsyncError, int, (fy__nccl_comm_t comm, int *code))                      \
    X(ncclGroupStart, int, (void))                                                        \
    X(ncclGroupEnd, int, (void))                                                          \
    X(ncclAllReduce, int,                                                                 \
      (const void *from, void *to, size_t nelem, int dtype, int op, fy__nccl_comm_t comm, \
       CUstream stream))

typedef struct fy__nccl {
    void *library;
#define X(name, result, parameters) result(*name) parameters;
    FY__NCCL_LIST(X)
#undef X
} fy__nccl_t;

/* Filled by fy__nccl_load, read without a lock after it succeeded. */
extern fy__nccl_t fy__nccl;

/* Finds libnccl.so.2, or what $FERRY_NCCL names; tried once a process. UNSUPPORTED, with the
 * reason, if there is none or it is "none". */
fy_status_t fy__nccl_load(void);
fy_status_t fy__nccl_status(int code);
const char *fy__nccl_name(int code);

#endif
