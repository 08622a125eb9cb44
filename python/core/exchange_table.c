/* __dlpack_c_exchange_api__ of ferry.Tensor: DLPack for consumers in C, without an interpreted call
 * (specification 1.3). Such a consumer submits its work to Ferry's current stream, so no stream
 * waits for another one of the consumer. */
#include <stdlib.h>
#include <string.h>

#include "core.h"

static tensor_object *checked(void *object)
{
    tensor_object *tensor = core_tensor(object);
    if (!tensor) PyErr_SetString(PyExc_TypeError, "this exchange table is for ferry.Tensor");
    return tensor;
}

static int managed_from_object(void *object, DLManagedTensorVersioned **out)
{
    fy_tensor_info_t info;
    *out = NULL;
    tensor_object *tensor = checked(object);
    const int fixed = tensor ? core_is_read_only(tensor, &info) : -1;
    if (fixed < 0) return -1;
    const fy_status_t status = core_export(tensor, fixed, NULL, out);
    if (status != FY_STATUS_OK) core_raise(status);
    return status == FY_STATUS_OK ? 0 : -1;
}

/* ---- devices ---- */

static int is_cuda(DLDeviceType type) { return type == kDLCUDA || type == kDLCUDAManaged; }

/* The device of a DLPack device. It is yours to close. */
static fy_status_t open_device(DLDevice given, fy_device_t **out_device)
{
    char spec[32] = "host";
    if (is_cuda(given.device_type))
        PyOS_snprintf(spec, sizeof spec, "cuda:%d", (int)given.device_id);
    return api.fy_device_open(spec, out_device);
}

static int object_from_managed(DLManagedTensorVersioned *managed, void **out)
{
    PyObject *type, *value, *traceback;
    fy_device_t *device = NULL;
    int is_taken = 0;
    const fy_status_t status = open_device(managed->dl_tensor.device, &device);
    *out = status == FY_STATUS_OK ? core_import(device, managed, &is_taken) : core_raise(status);
    PyErr_Fetch(&type, &value, &traceback); /* a deleter may run code of Python */
    if (!is_taken && managed->deleter) managed->deleter(managed);
    PyErr_Restore(type, value, traceback);
    api.fy_device_close(device);
    return *out ? 0 : -1;
}

static int current_stream(DLDeviceType type, int32_t id, void **out)
{
    fy_device_t *device = NULL;
    *out = NULL;
    if (!is_cuda(type)) return 0;
    fy_status_t status = open_device((DLDevice){ type, id }, &device);
    if (status == FY_STATUS_OK) status = api.fy_stream_native(device, NULL, out);
    if (status != FY_STATUS_OK) core_raise(status);
    api.fy_device_close(device);
    return status == FY_STATUS_OK ? 0 : -1;
}

/* ---- tensors that are valid during a call ---- */

static int borrow_from_object(void *object, DLTensor *out)
{
    fy_tensor_info_t info;
    void *data = NULL;
    DLManagedTensorVersioned *managed;
    tensor_object *tensor = checked(object);
    const int fixed = tensor ? core_is_read_only(tensor, &info) : -1;
    if (fixed < 0) return -1;
    /* device and dtype as exports have them; all refusals */
    const fy_status_t status = core_export(tensor, fixed, NULL, &managed);
    if (status != FY_STATUS_OK) {
        core_raise(status);
        return -1;
    }
    if (!tensor->layout) tensor->layout = malloc(2 * FY_MAX_RANK * sizeof *tensor->layout);
    *out = managed->dl_tensor;
    data = out->data;
    managed->deleter(managed); /* the object keeps the bytes */
    if (!tensor->layout) {
        PyErr_NoMemory();
        return -1;
    }
    memcpy(tensor->layout, info.dims, sizeof info.dims);
    memcpy(tensor->layout + FY_MAX_RANK, info.strides, sizeof info.strides);
    out->data = data;
    out->shape = tensor->layout;
    out->strides = tensor->layout + FY_MAX_RANK;
    return 0;
}

/* ---- new tensors ---- */

static const struct {
    DLDataType type;
    fy_dtype_t dtype;
} dtypes[] = {
    { { kDLFloat, 32, 1 }, FY_DTYPE_F32 }, { { kDLFloat, 64, 1 }, FY_DTYPE_F64 },
    { { kDLFloat, 16, 1 }, FY_DTYPE_F16 }, { { kDLBfloat, 16, 1 }, FY_DTYPE_BF16 },
    { { kDLInt, 32, 1 }, FY_DTYPE_I32 },   { { kDLInt, 64, 1 }, FY_DTYPE_I64 },
    { { kDLUInt, 8, 1 }, FY_DTYPE_U8 },    { { kDLBool, 8, 1 }, FY_DTYPE_BOOL },
};

/* Called with or without the GIL: uses nothing of Python. */
static int allocate(DLTensor *prototype, DLManagedTensorVersioned **out, void *context,
                    void (*set_error)(void *context, const char *kind, const char *message))
{
    const size_t count = sizeof dtypes / sizeof dtypes[0];
    size_t row = 0;
    fy_device_t *device = NULL;
    fy_tensor_t *tensor = NULL;
    *out = NULL;
    while (row < count && memcmp(&dtypes[row].type, &prototype->dtype, sizeof(DLDataType)) != 0)
        row++;
    if (row == count) {
        set_error(context, "BufferError", "no dtype of Ferry has this code, bits and lanes");
        return -1;
    }
    if (prototype->device.device_type != kDLCPU && !is_cuda(prototype->device.device_type)) {
        set_error(context, "BufferError", "Ferry makes tensors of the CPU and of CUDA devices");
        return -1;
    }
    fy_status_t status = open_device(prototype->device, &device);
    if (status == FY_STATUS_OK)
        status = api.fy_tensor_create(device, dtypes[row].dtype, prototype->ndim, prototype->shape,
                                      &tensor);
    if (status == FY_STATUS_OK)
        status = api.fy_tensor_to_dlpack(tensor, FY_ACCESS_READ_WRITE, NULL, out);
    if (status != FY_STATUS_OK)
        set_error(context, status == FY_STATUS_OUT_OF_MEMORY ? "MemoryError" : "BufferError",
                  api.fy_error_get()->text);
    api.fy_tensor_destroy(tensor);
    api.fy_device_close(device);
    return status == FY_STATUS_OK ? 0 : -1;
}

static DLPackExchangeAPI table = {
    .header = { .version = { DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION } },
    .managed_tensor_allocator = allocate,
    .managed_tensor_from_py_object_no_sync = managed_from_object,
    .managed_tensor_to_py_object_no_sync = object_from_managed,
    .dltensor_from_py_object_no_sync = borrow_from_object,
    .current_work_stream = current_stream,
};

int core_add_exchange_table(PyObject *type)
{
    PyObject *capsule = PyCapsule_New(&table, "dlpack_exchange_api", NULL);
    const int status = capsule ? PyObject_SetAttrString(type, "__dlpack_c_exchange_api__", capsule)
                               : -1;
    Py_XDECREF(capsule);
    return status;
}
