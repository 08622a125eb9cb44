/* DLPack 1: exchanges tensors with NumPy, PyTorch and other libraries without a copy.
 * The types below are those of the specification (dmlc.github.io/dlpack). A program that includes
 * its dlpack.h before this header gets the types from there, and after it, from here.
 * A simulated device exports nothing: its memory has no address that others can use. */
#ifndef FERRY_DLPACK_H_
#define FERRY_DLPACK_H_

#include <stdint.h>

#include <ferry/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- types of the specification ---- */

#ifndef DLPACK_DLPACK_H_
#define DLPACK_DLPACK_H_

#define DLPACK_MAJOR_VERSION 1
#define DLPACK_MINOR_VERSION 3

typedef struct {
    uint32_t major, minor;
} DLPackVersion;

#ifdef __cplusplus
typedef enum : int32_t {
#else
typedef enum {
#endif
    kDLCPU = 1,
    kDLCUDA = 2,
    kDLCUDAHost = 3, /* host memory that is page-locked for CUDA */
    kDLOpenCL = 4,
    kDLVulkan = 7,
    kDLMetal = 8,
    kDLVPI = 9,
    kDLROCM = 10,
    kDLROCMHost = 11,
    kDLExtDev = 12,
    kDLCUDAManaged = 13,
    kDLOneAPI = 14,
    kDLWebGPU = 15,
    kDLHexagon = 16,
    kDLMAIA = 17,
    kDLTrn = 18
} DLDeviceType;

typedef struct {
    DLDeviceType device_type;
    int32_t device_id;
} DLDevice;

typedef enum {
    kDLInt = 0U,
    kDLUInt = 1U,
    kDLFloat = 2U,
    kDLOpaqueHandle = 3U,
    kDLBfloat = 4U,
    kDLComplex = 5U,
    kDLBool = 6U,
    kDLFloat8_e3m4 = 7U,
    kDLFloat8_e4m3 = 8U,
    kDLFloat8_e4m3b11fnuz = 9U,
    kDLFloat8_e4m3fn = 10U,
    kDLFloat8_e4m3fnuz = 11U,
    kDLFloat8_e5m2 = 12U,
    kDLFloat8_e5m2fnuz = 13U,
    kDLFloat8_e8m0fnu = 14U,
    kDLFloat6_e2m3fn = 15U,
    kDLFloat6_e3m2fn = 16U,
    kDLFloat4_e2m1fn = 17U
} DLDataTypeCode;

typedef struct {
    uint8_t code, bits; /* code: a DLDataTypeCode */
    uint16_t lanes;
} DLDataType;

/* The first element is at data + byte_offset. strides: in elements; NULL in tensors of producers
 * before version 1.2: dense, row-major. */
typedef struct {
    void *data;
    DLDevice device;
    int32_t ndim;
    DLDataType dtype;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} DLTensor;

/* The form before version 1.0. */
typedef struct DLManagedTensor {
    DLTensor dl_tensor;
    void *manager_ctx;
    void (*deleter)(struct DLManagedTensor *self);
} DLManagedTensor;

#define DLPACK_FLAG_BITMASK_READ_ONLY              (1UL << 0UL)
#define DLPACK_FLAG_BITMASK_IS_COPIED              (1UL << 1UL)
#define DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED (1UL << 2UL)

/* deleter(self) frees self; NULL: nothing is to be freed. */
typedef struct DLManagedTensorVersioned {
    DLPackVersion version;
    void *manager_ctx;
    void (*deleter)(struct DLManagedTensorVersioned *self);
    uint64_t flags;
    DLTensor dl_tensor;
} DLManagedTensorVersioned;

/* A table of C functions that a Python type has as __dlpack_c_exchange_api__: a capsule named
 * "dlpack_exchange_api". They return 0, or -1 with a Python exception set; the allocator calls
 * set_error instead and needs no Python. None of them waits or orders streams: the consumer submits
 * its work to current_work_stream. */
typedef int (*DLPackManagedTensorAllocator)(DLTensor *prototype, DLManagedTensorVersioned **out,
                                            void *error_context,
                                            void (*set_error)(void *error_context, const char *kind,
                                                              const char *message));
typedef int (*DLPackManagedTensorFromPyObjectNoSync)(void *object, DLManagedTensorVersioned **out);
/* `managed` is transferred, also if it fails. */
typedef int (*DLPackManagedTensorToPyObjectNoSync)(DLManagedTensorVersioned *managed,
                                                   void **out_object);
/* *out is valid until the consumer returns to Python. */
typedef int (*DLPackDLTensorFromPyObjectNoSync)(void *object, DLTensor *out);
typedef int (*DLPackCurrentWorkStream)(DLDeviceType device_type, int32_t device_id,
                                       void **out_stream);

/* prev_api: a table for consumers of an older major version; NULL: none. */
typedef struct DLPackExchangeAPIHeader {
    DLPackVersion version;
    struct DLPackExchangeAPIHeader *prev_api;
} DLPackExchangeAPIHeader;

typedef struct DLPackExchangeAPI {
    DLPackExchangeAPIHeader header;
    DLPackManagedTensorAllocator managed_tensor_allocator;
    DLPackManagedTensorFromPyObjectNoSync managed_tensor_from_py_object_no_sync;
    DLPackManagedTensorToPyObjectNoSync managed_tensor_to_py_object_no_sync;
    DLPackDLTensorFromPyObjectNoSync dltensor_from_py_object_no_sync; /* may be NULL */
    DLPackCurrentWorkStream current_work_stream;
} DLPackExchangeAPI;

#endif

/* ---- exchange ---- */

/* Exports `tensor` with its shape, strides and bytes. READ sets the flag READ_ONLY. WRITE
 * increments the version now; Ferry does not see writes that the consumer makes later.
 * Ownership: *out_managed is yours or your consumer's: call its deleter once, on any thread. The
 * bytes live until then, also if the tensor is destroyed.
 * Completion: work that the consumer submits to `stream`'s native queue (fy_stream_native) runs
 * after Ferry's requests for these bytes. NULL: this thread's current stream. Nothing blocks.
 * Fails: UNSUPPORTED (sim, null), INVALID_ARGUMENT, BUSY (WRITE, and an upload borrows the bytes),
 * as fy_tensor_map. */
FY_API_STATUS fy_tensor_to_dlpack(fy_tensor_t *tensor, fy_access_t access, fy_stream_t *stream,
                                  DLManagedTensorVersioned **out_managed);

/* Imports `managed` as a tensor of `device`: fy_device_host() for CPU and page-locked memory, the
 * open device cuda:N for CUDA memory of device N. A READ_ONLY tensor refuses writes.
 * Ownership: `managed` is transferred; after the last use its deleter runs once, on the thread that
 * ends it. If the call fails, `managed` is still yours.
 * Completion: give the producer the queue of fy_stream_native(device, NULL, ...) as its stream.
 * Fails: UNSUPPORTED (version, dtype, lanes), DEVICE_MISMATCH, INVALID_ARGUMENT (rank, shape,
 * negative strides, elements that overlap, alignment), BAD_VALUE (a bool of host memory is neither
 * 0 nor 1), OUT_OF_MEMORY. */
FY_API_STATUS fy_tensor_from_dlpack(fy_device_t *device, DLManagedTensorVersioned *managed,
                                    fy_tensor_t **out_tensor);

#ifdef __cplusplus
}
#endif
#endif
