/* Exchange by DLPack 1: <ferry/dlpack.h>. An exported tensor is a handle in no scope, which the
 * consumer's deleter destroys. An imported one is a wrapped storage whose deleter calls the
 * producer's. Layouts and flags: the specification, version 1.3 (dmlc.github.io/dlpack). */
#include <ferry/dlpack.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/fail.h"
#include "runtime/device/device.h"
#include "runtime/tensor/tensor.h"

static const DLDataType dtypes[FY_DTYPE_COUNT] = {
    [FY_DTYPE_F32] = { kDLFloat, 32, 1 }, [FY_DTYPE_F64] = { kDLFloat, 64, 1 },
    [FY_DTYPE_F16] = { kDLFloat, 16, 1 }, [FY_DTYPE_BF16] = { kDLBfloat, 16, 1 },
    [FY_DTYPE_I32] = { kDLInt, 32, 1 },   [FY_DTYPE_I64] = { kDLInt, 64, 1 },
    [FY_DTYPE_U8] = { kDLUInt, 8, 1 },    [FY_DTYPE_BOOL] = { kDLBool, 8, 1 },
};

/* N of "cuda:N"; -1: a device of another backend. */
static int32_t cuda_ordinal(const fy_device_t *device)
{
    if (strcmp(device->backend->name, "cuda") != 0) return -1;
    const char *colon = strchr(device->spec, ':');
    return colon ? (int32_t)strtol(colon + 1, NULL, 10) : 0;
}

/* ---- export ---- */

typedef struct {
    DLManagedTensorVersioned managed; /* first: the consumer's pointer is the export's */
    fy_tensor_t *tensor;
    int64_t dims[FY_MAX_RANK], strides[FY_MAX_RANK];
} export_t;

static void delete_export(DLManagedTensorVersioned *managed)
{
    export_t *export = (export_t *)managed;
    fy_tensor_destroy(export->tensor);
    free(export);
}

static fy_status_t find_target(const fy_tensor_t *tensor, DLDevice *out_target)
{
    char text[128];
    const fy__storage_t *storage = tensor->storage;
    const fy_device_t *owner = storage->pinned ? storage->peer : storage->device;
    const int32_t ordinal = cuda_ordinal(owner);
    if (storage->device->is_host)
        *out_target = (DLDevice){ ordinal < 0 ? kDLCPU : kDLCUDAHost, 0 };
    else if (ordinal >= 0)
        *out_target = (DLDevice){ kDLCUDA, ordinal };
    else
        return FY_FAIL(UNSUPPORTED,
                       "tensor_to_dlpack: %s lives on %s, whose memory has no address that other "
                       "libraries can use\n  Download it, and export the host tensor: "
                       "fy_tensor_download and fy_download_wait (%" PRIu64 " bytes)",
                       fy__tensor_format(tensor, text, sizeof text), storage->device->spec,
                       fy__tensor_nbytes(tensor));
    return FY_STATUS_OK;
}

/* Another handle to the same bytes. */
static fy_status_t share(fy__thread_t *thread, const fy_tensor_t *tensor, fy_tensor_t **out_view)
{
    fy_tensor_t *view = fy__tensor_alloc(thread);
    if (!view) return FY_STATUS_OUT_OF_MEMORY;
    fy__storage_retain(tensor->storage);
    view->storage = tensor->storage;
    view->data = tensor->data;
    fy__tensor_set_strided(view, (fy_dtype_t)tensor->dtype, tensor->rank, tensor->dims,
                           tensor->strides);
    view->read_only = tensor->read_only;
    *out_view = view;
    return FY_STATUS_OK;
}

/* Orders the consumer's work behind Ferry's requests; all refusals of `access`. */
static fy_status_t begin_access(fy_tensor_t *tensor, fy_access_t access, fy_stream_t *stream,
                                void **out_data)
{
    fy_device_t *device = tensor->storage->device;
    void *native;
    if (device->is_host && stream)
        return FY_FAIL(INVALID_ARGUMENT, "tensor_to_dlpack: a stream is given, but the tensor is "
                                         "on the host, which has none: pass NULL");
    if (device->is_host) return fy_tensor_map(tensor, access, out_data);
    /* Marks the queue as one that others submit to: the bytes then stay until their work is done,
     * too. */
    FY_TRY(fy_stream_native(device, stream, &native));
    return fy_tensor_begin_native_access(tensor, access, stream, out_data);
}

fy_status_t fy_tensor_to_dlpack(fy_tensor_t *tensor, fy_access_t access, fy_stream_t *stream,
                                DLManagedTensorVersioned **out_managed)
{
    fy_status_t status = FY_STATUS_OK;
    DLDevice target;
    void *data;
    fy__thread_t *thread = fy__thread();
    if (!out_managed) return FY_FAIL(INVALID_ARGUMENT, "tensor_to_dlpack: out_managed is NULL");
    *out_managed = NULL;
    if (!thread) return FY_STATUS_OUT_OF_MEMORY;
    if (!tensor) return FY_FAIL(INVALID_ARGUMENT, "tensor_to_dlpack: tensor is NULL");
    if (fy__tensor_is_gone(tensor)) return fy__refuse_gone("tensor_to_dlpack", "tensor");
    FY_TRY(find_target(tensor, &target));
    export_t *export = calloc(1, sizeof *export);
    if (!export)
        return FY_FAIL(OUT_OF_MEMORY, "tensor_to_dlpack: no host memory for %zu bytes",
                       sizeof *export);
    FY_CHECK(share(thread, tensor, &export->tensor));
    fy__handle_release(&export->tensor->handle); /* no scope destroys it */
    FY_CHECK(begin_access(export->tensor, access, stream, &data));
    memcpy(export->dims, tensor->dims, sizeof(int64_t) * tensor->rank);
    memcpy(export->strides, tensor->strides, sizeof(int64_t) * tensor->rank);
    export->managed = (DLManagedTensorVersioned){
        .version = { DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION },
        .manager_ctx = export,
        .deleter = delete_export,
        .flags = access & FY_ACCESS_WRITE ? 0 : DLPACK_FLAG_BITMASK_READ_ONLY,
        .dl_tensor = { .data = tensor->nelem ? data : NULL,
                       .device = target,
                       .ndim = tensor->rank,
                       .dtype = dtypes[tensor->dtype],
                       .shape = export->dims,
                       .strides = export->strides },
    };
    *out_managed = &export->managed;
    return FY_STATUS_OK;
done:
    if (export->tensor) fy_tensor_destroy(export->tensor);
    free(export);
    return status;
}

/* ---- import ---- */

static fy_status_t check_version(const DLManagedTensorVersioned *managed)
{
    if (managed->version.major == DLPACK_MAJOR_VERSION) return FY_STATUS_OK;
    return FY_FAIL(UNSUPPORTED,
                   "tensor_from_dlpack: the tensor has DLPack version %" PRIu32 ".%" PRIu32
                   "; this library reads version %d",
                   managed->version.major, managed->version.minor, DLPACK_MAJOR_VERSION);
}

static fy_status_t find_dtype(DLDataType given, fy_dtype_t *out_dtype)
{
    for (int i = 0; i < FY_DTYPE_COUNT; i++) {
        if (memcmp(&dtypes[i], &given, sizeof given) != 0) continue;
        *out_dtype = (fy_dtype_t)i;
        return FY_STATUS_OK;
    }
    return FY_FAIL(UNSUPPORTED,
                   "tensor_from_dlpack: no dtype has type code %u, %u bits and %u lanes\n  Convert "
                   "the tensor in its library to f32, f64, f16, bf16, i32, i64, u8 or bool",
                   given.code, given.bits, given.lanes);
}

static fy_status_t check_device(const fy_device_t *device, DLDevice given)
{
    const int32_t ordinal = cuda_ordinal(device);
    const bool is_host = given.device_type == kDLCPU || given.device_type == kDLCUDAHost;
    const bool is_cuda = given.device_type == kDLCUDA || given.device_type == kDLCUDAManaged;
    if (device->is_host ? is_host : is_cuda && ordinal >= 0 && ordinal == given.device_id)
        return FY_STATUS_OK;
    char type[64] = "memory of a device that Ferry does not have";
    if (is_host) snprintf(type, sizeof type, "host memory");
    if (is_cuda) snprintf(type, sizeof type, "memory of cuda:%" PRId32, given.device_id);
    return FY_FAIL(DEVICE_MISMATCH,
                   "tensor_from_dlpack: the tensor is in %s (DLPack device type %d, id %" PRId32
                   "), the device is %s\n  Pass the device where the bytes are, then upload or "
                   "download",
                   type, (int)given.device_type, given.device_id, device->spec);
}

static void delete_import(void *user, void *data)
{
    DLManagedTensorVersioned *managed = user;
    (void)data;
    if (managed->deleter) managed->deleter(managed);
}

/* An axis of one element, or of an empty tensor, may have any stride in DLPack. */
static void normalise(const DLTensor *given, int64_t *out_strides)
{
    bool is_empty = false;
    int64_t dense = 1;
    for (int i = 0; i < given->ndim; i++) is_empty |= given->shape[i] == 0;
    for (int i = given->ndim - 1; i >= 0; i--) {
        const bool is_free = !given->strides || is_empty || given->shape[i] == 1;
        out_strides[i] = is_free ? dense : given->strides[i];
        if (given->shape[i] > 1) dense *= given->shape[i];
    }
}

static fy_status_t check_shape(const DLTensor *given, fy_dtype_t dtype, void **out_data)
{
    static const char what[] = "tensor_from_dlpack";
    uint64_t nelem, nbytes, address;
    FY_TRY(fy__shape_check(what, dtype, given->ndim, given->shape, &nelem, &nbytes));
    if (__builtin_add_overflow((uint64_t)(uintptr_t)given->data, given->byte_offset, &address))
        return FY_FAIL(INVALID_ARGUMENT, "%s: data %p + byte_offset %" PRIu64 " is past 2^64", what,
                       given->data, given->byte_offset);
    if (nelem && !given->data)
        return FY_FAIL(INVALID_ARGUMENT, "%s: data is NULL, but the shape needs %" PRIu64 " bytes",
                       what, nbytes);
    *out_data = nelem ? (void *)(uintptr_t)address : NULL;
    return FY_STATUS_OK;
}

/* A tensor that this library exported: another handle to its bytes, whose requests stay ordered
 * with those of the other handles. */
static fy_status_t import_own(fy_device_t *device, DLManagedTensorVersioned *managed,
                              fy_tensor_t **out_tensor)
{
    const export_t *export = (const export_t *)managed;
    FY_TRY(check_device(device, managed->dl_tensor.device));
    fy__thread_t *thread = fy__thread();
    if (!thread) return FY_STATUS_OUT_OF_MEMORY;
    FY_TRY(share(thread, export->tensor, out_tensor));
    (*out_tensor)->read_only |= (managed->flags & DLPACK_FLAG_BITMASK_READ_ONLY) != 0;
    managed->deleter(managed);
    return FY_STATUS_OK;
}

fy_status_t fy_tensor_from_dlpack(fy_device_t *device, DLManagedTensorVersioned *managed,
                                  fy_tensor_t **out_tensor)
{
    int64_t strides[FY_MAX_RANK];
    fy_dtype_t dtype;
    void *data;
    if (!out_tensor) return FY_FAIL(INVALID_ARGUMENT, "tensor_from_dlpack: out_tensor is NULL");
    *out_tensor = NULL;
    if (!device) return FY_FAIL(INVALID_ARGUMENT, "tensor_from_dlpack: device is NULL");
    if (!managed) return FY_FAIL(INVALID_ARGUMENT, "tensor_from_dlpack: managed is NULL");
    FY_TRY(check_version(managed));
    if (managed->deleter == delete_export) return import_own(device, managed, out_tensor);
    const DLTensor *given = &managed->dl_tensor;
    FY_TRY(find_dtype(given->dtype, &dtype));
    FY_TRY(check_device(device, given->device));
    FY_TRY(check_shape(given, dtype, &data));
    normalise(given, strides);
    FY_TRY(fy__tensor_wrap_strided("tensor_from_dlpack", device, dtype, given->ndim, given->shape,
                                   strides, data, delete_import, managed, out_tensor));
    (*out_tensor)->read_only = (managed->flags & DLPACK_FLAG_BITMASK_READ_ONLY) != 0;
    return FY_STATUS_OK;
}
