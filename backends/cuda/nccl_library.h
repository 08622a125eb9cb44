/* The entry points of NCCL that nccl.c calls, in one table filled by dlsym. Declared here, because
 * NCCL's header is in few toolkits; the calls and the numbers have been what they are since NCCL
 * 2.0 (bf16: 2.10), as its documentation has them. */
#ifndef FERRY_BACKENDS_CUDA_NCCL_LIBRARY_H_
#define FERRY_BACKENDS_CUDA_NCCL_LIBRARY_H_

#include <stddef.h>

#include <cuda.h>

#include <ferry/backend.h>

typedef struct ncclComm *fy__nccl_comm_t;

enum { FY__NCCL_SUM = 0, FY__NCCL_MEAN = 4 };
enum {
    FY__NCCL_BYTE = 0,
    FY__NCCL_I32 = 2,
    FY__NCCL_I64 = 4,
    FY__NCCL_F16 = 6,
    FY__NCCL_F32 = 7,
    FY__NCCL_F64 = 8,
    FY__NCCL_BF16 = 9
};

/* Passed by value. */
typedef struct fy__nccl_id {
    char bytes[128];
} fy__nccl_id_t;

/* The options of NCCL 2.14, its first version that has some; later ones read this form, too. */
typedef struct fy__nccl_config {
    size_t size;
    unsigned magic, version;
    int blocking; /* 0: calls return FY__NCCL_IN_PROGRESS and wait for no other process */
    int reserved;
} fy__nccl_config_t;
enum { FY__NCCL_IN_PROGRESS = 7 };
#define FY__NCCL_CONFIG_INIT                                \
    {                                                       \
        sizeof(fy__nccl_config_t), 0xcafebeefu, 21400, 0, 0 \
    }

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

/* For several processes; NCCL before 2.14 has not all of them. */
#define FY__NCCL_RANKS_LIST(X)                                                              \
    X(ncclGetUniqueId, int, (fy__nccl_id_t * out_id))                                       \
    X(ncclCommInitRankConfig, int,                                                          \
      (fy__nccl_comm_t * out_comm, int nranks, fy__nccl_id_t id, int rank,                  \
       fy__nccl_config_t *config))                                                          \
    X(ncclBroadcast, int,                                                                   \
      (const void *from, void *to, size_t nelem, int dtype, int root, fy__nccl_comm_t comm, \
       CUstream stream))                                                                    \
    X(ncclReduceScatter, int,                                                               \
      (const void *from, void *to, size_t nelem, int dtype, int op, fy__nccl_comm_t comm,   \
       CUstream stream))                                                                    \
    X(ncclAllGather, int,                                                                   \
      (const void *from, void *to, size_t nelem, int dtype, fy__nccl_comm_t comm,           \
       CUstream stream))                                                                    \
    X(ncclSend, int,                                                                        \
      (const void *from, size_t nelem, int dtype, int peer, fy__nccl_comm_t comm,           \
       CUstream stream))                                                                    \
    X(ncclRecv, int,                                                                        \
      (void *to, size_t nelem, int dtype, int peer, fy__nccl_comm_t comm, CUstream stream))

typedef struct fy__nccl {
    void *library;
#define X(name, result, parameters) result(*name) parameters;
    FY__NCCL_LIST(X)
    FY__NCCL_RANKS_LIST(X)
#undef X
} fy__nccl_t;

/* Filled by fy__nccl_load, read without a lock after it succeeded. */
extern fy__nccl_t fy__nccl;

/* Finds libnccl.so.2, or what $FERRY_NCCL names; tried once a process. UNSUPPORTED, with the
 * reason, if there is none or it is "none". */
fy_status_t fy__nccl_load(void);
/* The same for calls between processes. */
fy_status_t fy__nccl_load_ranks(void);
fy_status_t fy__nccl_status(int code);
const char *fy__nccl_name(int code);

#endif
