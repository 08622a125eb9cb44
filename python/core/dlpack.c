/* DLPack capsules, both ways, without a copy. The version before 1 has no flags: its capsules hold
 * a DLManagedTensor, which points to the tensor of version 1 that it was made from, or the other
 * way round. At the end __dlpack_c_exchange_api__ of ferry.Tensor: DLPack for consumers in C, with
 * no interpreted call (specification 1.3). Such a consumer submits its work to Ferry's current
 * stream, so no stream waits for another one of the consumer. */
#include <stdlib.h>
#include <string.h>

#include "bind.h"

static const char fresh[] = "dltensor_versioned", used[] = "used_dltensor_versioned";
static const char old_fresh[] = "dltensor", old_used[] = "used_dltensor";

/* Is it imported read-only, or a view that repeats elements? -1 with an exception. */
static int query_read_only(const tensor_object *tensor, fy_tensor_info_t *out_info)
{
    *out_info = (fy_tensor_info_t)FY_TENSOR_INFO_INIT;
    const fy_status_t status = api.fy_tensor_query(tensor->handle, out_info);
    if (status != FY_STATUS_OK) return core_failed(core_raise(status));
    int repeats = 0;
    for (int i = 0; i < out_info->rank; i++)
        repeats |= out_info->dims[i] > 1 && out_info->strides[i] == 0;
    return repeats || out_info->is_read_only;
}

/* As fy_tensor_to_dlpack; page-locked memory as the CPU's. */
static fy_status_t export_tensor(tensor_object *tensor, int is_read_only, fy_stream_t *stream,
                                 DLManagedTensorVersioned **out_managed)
{
    const fy_access_t access = is_read_only ? FY_ACCESS_READ : FY_ACCESS_READ_WRITE;
    fy_tensor_t *handle = tensor->handle;
    PyThreadState *state = PyEval_SaveThread(); /* the driver is called for device tensors */
    const fy_status_t status = api.fy_tensor_to_dlpack(handle, access, stream, out_managed);
    PyEval_RestoreThread(state);
    if (status != FY_STATUS_OK) return status;
    DLDevice *device = &(*out_managed)->dl_tensor.device;
    if (device->device_type == kDLCUDAHost) *device = (DLDevice){ kDLCPU, 0 };
    return FY_STATUS_OK;
}

/* ---- the version before 1 ---- */

typedef struct {
    DLManagedTensor managed;
    DLManagedTensorVersioned *source;
} old_export;

static void delete_old_export(DLManagedTensor *managed)
{
    DLManagedTensorVersioned *source = ((old_export *)managed)->source;
    free(managed);
    source->deleter(source);
}

/* `source` is transferred if it succeeds. */
static DLManagedTensor *export_old(DLManagedTensorVersioned *source)
{
    old_export *export = malloc(sizeof *export);
    if (!export) return NULL;
    export->managed = (DLManagedTensor){ .dl_tensor = source->dl_tensor,
                                         .manager_ctx = export,
                                         .deleter = delete_old_export };
    export->source = source;
    return &export->managed;
}

typedef struct {
    DLManagedTensorVersioned managed;
    DLManagedTensor *source;
} old_import;

static void delete_old_import(DLManagedTensorVersioned *managed)
{
    DLManagedTensor *source = ((old_import *)managed)->source;
    free(managed);
    if (source->deleter) source->deleter(source);
}

/* ---- capsules ---- */

/* A consumer renames the capsule and owns the tensor then. */
static void drop_capsule(PyObject *capsule)
{
    PyObject *type, *value, *traceback; /* an exception may be set: this runs in a destructor */
    PyErr_Fetch(&type, &value, &traceback);
    if (PyCapsule_IsValid(capsule, fresh)) {
        DLManagedTensorVersioned *managed = PyCapsule_GetPointer(capsule, fresh);
        managed->deleter(managed);
    } else if (PyCapsule_IsValid(capsule, old_fresh)) {
        DLManagedTensor *managed = PyCapsule_GetPointer(capsule, old_fresh);
        managed->deleter(managed);
    }
    PyErr_Restore(type, value, traceback);
}

/* _dlpack(is_read_only, is_versioned, stream): a capsule. Page-locked memory is exported as the
 * CPU's, as __dlpack_device__ reports it: PyTorch does not import the type "CUDA host". */
PyObject *tensor_dlpack(PyObject *self, PyObject *args)
{
    int is_read_only = 0, is_versioned = 0;
    PyObject *queue = Py_None;
    void *stream = NULL;
    if (!PyArg_ParseTuple(args, "ppO", &is_read_only, &is_versioned, &queue)) return NULL;
    if (bind_pointer("fy_stream_t", "__dlpack__", "stream", queue, &stream) < 0) return NULL;
    DLManagedTensorVersioned *managed = NULL;
    DLManagedTensor *old = NULL;
    const fy_status_t status = export_tensor((tensor_object *)self, is_read_only, stream, &managed);
    if (status != FY_STATUS_OK) return core_raise(status);
    if (!is_versioned && !(old = export_old(managed))) {
        managed->deleter(managed);
        return PyErr_NoMemory();
    }
    PyObject *capsule = old ? PyCapsule_New(old, old_fresh, drop_capsule)
                            : PyCapsule_New(managed, fresh, drop_capsule);
    if (!capsule && old)
        old->deleter(old);
    else if (!capsule)
        managed->deleter(managed);
    return capsule;
}

/* A ferry.Tensor, or NULL with an exception. *out_is_taken: `managed` was transferred; this can be
 * so in both cases. */
static PyObject *import_managed(fy_device_t *device, DLManagedTensorVersioned *managed,
                                int *out_is_taken)
{
    fy_tensor_t *tensor = NULL;
    const fy_status_t status = api.fy_tensor_from_dlpack(device, managed, &tensor);
    *out_is_taken = status == FY_STATUS_OK;
    return *out_is_taken ? core_wrap(tensor) : core_raise(status);
}

PyObject *tensor_is_read_only(PyObject *self, void *unused)
{
    (void)unused;
    fy_tensor_info_t info;
    const int fixed = query_read_only((tensor_object *)self, &info);
    return fixed < 0 ? NULL : PyBool_FromLong(fixed);
}

static PyObject *import_old(fy_device_t *device, PyObject *capsule)
{
    int is_taken;
    old_import *import = calloc(1, sizeof *import);
    if (!import) return PyErr_NoMemory();
    import->source = PyCapsule_GetPointer(capsule, old_fresh);
    import->managed =
        (DLManagedTensorVersioned){ .version = { DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION },
                                    .manager_ctx = import,
                                    .deleter = delete_old_import,
                                    .dl_tensor = import->source->dl_tensor };
    PyObject *tensor = import_managed(device, &import->managed, &is_taken);
    if (is_taken)
        PyCapsule_SetName(capsule, old_used);
    else
        free(import);
    return tensor;
}

/* from_dlpack(capsule, device) */
PyObject *core_from_dlpack(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *capsule, *place;
    void *device = NULL;
    int is_taken;
    if (!PyArg_ParseTuple(args, "OO", &capsule, &place)) return NULL;
    if (bind_pointer("fy_device_t", "from_dlpack", "device", place, &device) < 0) return NULL;
    if (PyCapsule_IsValid(capsule, old_fresh)) return import_old(device, capsule);
    if (!PyCapsule_IsValid(capsule, fresh))
        return core_refuse(FY_STATUS_UNSUPPORTED,
                           "the object is no DLPack capsule, or it was consumed before\n"
                           "Ask the producer for a new one: __dlpack__()");
    PyObject *tensor = import_managed(device, PyCapsule_GetPointer(capsule, fresh), &is_taken);
    if (is_taken) PyCapsule_SetName(capsule, used);
    return tensor;
}

/* ---- the exchange table ---- */

/* Exports a tensor with its facts, refuses another object. */
static int export_object(void *object, fy_tensor_info_t *out_info, DLManagedTensorVersioned **out)
{
    *out = NULL;
    tensor_object *tensor = core_tensor(object);
    if (!tensor) PyErr_SetString(PyExc_TypeError, "this exchange table is for ferry.Tensor");
    const int fixed = tensor ? query_read_only(tensor, out_info) : -1;
    if (fixed < 0) return -1;
    const fy_status_t status = export_tensor(tensor, fixed, NULL, out);
    return status == FY_STATUS_OK ? 0 : core_failed(core_raise(status));
}

static int managed_from_object(void *object, DLManagedTensorVersioned **out)
{
    fy_tensor_info_t info;
    return export_object(object, &info, out);
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
    *out = status == FY_STATUS_OK ? import_managed(device, managed, &is_taken) : core_raise(status);
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
    DLManagedTensorVersioned *managed;
    tensor_object *tensor = object;
    /* device and dtype as exports have them; all refusals */
    if (export_object(object, &info, &managed) < 0) return -1;
    if (!tensor->layout) tensor->layout = malloc(2 * FY_MAX_RANK * sizeof *tensor->layout);
    *out = managed->dl_tensor;
    managed->deleter(managed); /* the object keeps the bytes */
    if (!tensor->layout) return core_failed(PyErr_NoMemory());
    memcpy(tensor->layout, info.dims, sizeof info.dims);
    memcpy(tensor->layout + FY_MAX_RANK, info.strides, sizeof info.strides);
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
