/* The CUDA driver as this plugin sees it: one table of entry points, each asked for by name and
 * version through cuGetProcAddress, so that the plugin has no link dependency on libcuda and loads
 * where there is no driver. Also declared here: the one translation from CUresult to fy_status_t,
 * and the text of a driver failure (codes.h, codes.c). */
#ifndef FERRY_BACKENDS_CUDA_DRIVER_H_
#define FERRY_BACKENDS_CUDA_DRIVER_H_

#include <cuda.h>
#include <cudaTypedefs.h>

#include <ferry/backend.h>

/* X(entry point, version whose signature we use). PFN_<name>_v<version> in cudaTypedefs.h is its
 * type. All exist since driver 12.0. */
#define FY__CUDA_DRIVER_GRAPH_LIST(X)     \
    X(cuStreamBeginCapture, 10010)        \
    X(cuStreamEndCapture, 10000)          \
    X(cuGraphInstantiateWithFlags, 11040) \
    X(cuGraphUpload, 11010)               \
    X(cuGraphLaunch, 10000)               \
    X(cuGraphExecDestroy, 10000)          \
    X(cuGraphDestroy, 10000)
#define FY__CUDA_DRIVER_VIRTUAL_LIST(X)     \
    X(cuMemGetAllocationGranularity, 10020) \
    X(cuMemAddressReserve, 10020)           \
    X(cuMemAddressFree, 10020)              \
    X(cuMemCreate, 10020)                   \
    X(cuMemRelease, 10020)                  \
    X(cuMemMap, 10020)                      \
    X(cuMemUnmap, 10020)                    \
    X(cuMemSetAccess, 10020)
#define FY__CUDA_DRIVER_LIST(X)          \
    X(cuInit, 2000)                      \
    X(cuDriverGetVersion, 2020)          \
    X(cuGetErrorName, 6000)              \
    X(cuGetErrorString, 6000)            \
    X(cuDeviceGetCount, 2000)            \
    X(cuDeviceGet, 2000)                 \
    X(cuDeviceGetName, 2000)             \
    X(cuDeviceGetAttribute, 2000)        \
    X(cuDeviceGetPCIBusId, 4010)         \
    X(cuDeviceCanAccessPeer, 4000)       \
    X(cuDeviceGetP2PAttribute, 8000)     \
    X(cuDevicePrimaryCtxRetain, 7000)    \
    X(cuDevicePrimaryCtxRelease, 11000)  \
    X(cuCtxGetCurrent, 4000)             \
    X(cuCtxSetCurrent, 4000)             \
    X(cuCtxPushCurrent, 4000)            \
    X(cuCtxPopCurrent, 4000)             \
    X(cuCtxGetStreamPriorityRange, 5050) \
    X(cuModuleLoadData, 2000)            \
    X(cuModuleUnload, 2000)              \
    X(cuModuleGetFunction, 2000)         \
    X(cuMemGetInfo, 3020)                \
    X(cuMemAlloc, 3020)                  \
    X(cuMemFree, 3020)                   \
    X(cuMemHostRegister, 6050)           \
    X(cuMemHostUnregister, 4000)         \
    X(cuMemcpyHtoDAsync, 3020)           \
    X(cuMemcpyDtoHAsync, 3020)           \
    X(cuMemcpyDtoDAsync, 3020)           \
    X(cuMemcpyPeerAsync, 4000)           \
    X(cuCtxEnablePeerAccess, 4000)       \
    X(cuPointerGetAttribute, 4000)       \
    X(cuMemsetD8Async, 3020)             \
    X(cuStreamCreateWithPriority, 5050)  \
    X(cuStreamDestroy, 4000)             \
    X(cuStreamGetCtx, 9020)              \
    X(cuStreamWaitEvent, 3020)           \
    X(cuEventCreate, 2000)               \
    X(cuEventDestroy, 4000)              \
    X(cuEventRecord, 2000)               \
    X(cuEventQuery, 2000)                \
    X(cuEventSynchronize, 2000)          \
    X(cuEventElapsedTime, 2000)          \
    X(cuLaunchKernel, 4000)              \
    FY__CUDA_DRIVER_VIRTUAL_LIST(X)      \
    FY__CUDA_DRIVER_GRAPH_LIST(X)

/* Entry points that some drivers since 12.0 lack, by member, name and version; NULL in the table
 * where this driver has none, so the caller checks first. One name with two versions is two ABIs:
 * plain dlsym would always return the older one of cuMemcpyBatchAsync. */
#if CUDA_VERSION >= 12080
#define FY__CUDA_DRIVER_BATCH_LIST(X)                       \
    X(cuMemcpyBatchAsync_v12080, cuMemcpyBatchAsync, 12080) \
    X(cuMemcpyBatchAsync_v13000, cuMemcpyBatchAsync, 13000)
#if CUDA_VERSION < 13000 /* 13.0 dropped the index of the copy that failed */
typedef CUresult(CUDAAPI *PFN_cuMemcpyBatchAsync_v13000)(CUdeviceptr *dsts, CUdeviceptr *srcs,
                                                         size_t *sizes, size_t count,
                                                         CUmemcpyAttributes *attrs,
                                                         size_t *attrs_indices, size_t nattrs,
                                                         CUstream stream);
#endif
#else
#define FY__CUDA_DRIVER_BATCH_LIST(X)
#endif
#define FY__CUDA_DRIVER_OPTIONAL_LIST(X)                 \
    X(cuStreamWaitValue64, cuStreamWaitValue64, 11070)   \
    X(cuStreamWriteValue64, cuStreamWriteValue64, 11070) \
    FY__CUDA_DRIVER_BATCH_LIST(X)

typedef struct fy__cuda_driver {
    const fy_host_api_t *host;
    void *library;
    int version; /* 13000 for 13.0 */
#define X(name, since) PFN_##name##_v##since name;
    FY__CUDA_DRIVER_LIST(X)
#undef X
#define X(member, name, since) PFN_##name##_v##since member;
    FY__CUDA_DRIVER_OPTIONAL_LIST(X)
#undef X
} fy__cuda_driver_t;

/* One per process; filled by fy__cuda_driver_load, read without a lock afterwards. */
extern fy__cuda_driver_t fy__cuda;

/* Fails on this thread's record, at the caller's line. */
#define FY__CUDA_FAIL(status, ...) fy__cuda.host->fail((status), __FILE__, __LINE__, __VA_ARGS__)

/* Finds the driver, fills the table, runs cuInit. Tries again after a failure; does nothing after a
 * success.
 * Fails: UNAVAILABLE, with each attempt and its reason. */
fy_status_t fy__cuda_driver_load(void);

/* What Ferry calls this code. */
fy_status_t fy__cuda_status(CUresult code);
/* Is this opening of the device over after it? */
int fy__cuda_is_fatal(CUresult code);
/* Fails with the driver call, the code's name and text, the request (printf-like), an advice, and
 * for a lost device the recent requests of its streams. */
fy_status_t fy__cuda_failed(CUresult code, const char *file, int line, const char *call,
                            const char *format, ...) FY_PRINTF(5, 6);

#endif
