/* DLPack capsules, both ways, without a copy. The version before 1 has no flags: its capsules hold
 * a DLManagedTensor, which points to the tensor of version 1 that it was made from, or the other
 * way round. Next: exchange_table.c, the same for consumers in C. */
#include <stdlib.h>

#include "bind.h"

static const char fresh[] = "dltensor_versioned", used[] = "used_dltensor_versioned";
static const char old_fresh[] = "dltensor", old_used[] = "used_dltensor";

int core_is_read_only(const tensor_object *tensor, fy_tensor_info_t *out_info)
{
    *out_info = (fy_tensor_info_t)FY_TENSOR_INFO_INIT;
    const fy_status_t status = api.fy_tensor_query(tensor->handle, out_info);
    if (status != FY_STATUS_OK) {
        core_raise(status);
        return -1;
    }
    int repeats = 0;
    for (int i = 0; i < out_info->rank; i++)
        repeats |= out_info->dims[i] > 1 && out_info->strides[i] == 0;
    return repeats || out_info->is_read_only;
}

fy_status_t core_export(tensor_object *tensor, int is_read_only, fy_stream_t *stream,
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
    const fy_status_t status = core_export((tensor_object *)self, is_read_only, stream, &managed);
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

PyObject *core_import(fy_device_t *device, DLManagedTensorVersioned *managed, int *out_is_taken)
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
    const int fixed = core_is_read_only((tensor_object *)self, &info);
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
    PyObject *tensor = core_import(device, &import->managed, &is_taken);
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
    PyObject *tensor = core_import(device, PyCapsule_GetPointer(capsule, fresh), &is_taken);
    if (is_taken) PyCapsule_SetName(capsule, used);
    return tensor;
}
