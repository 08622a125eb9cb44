/* The buffer protocol, both ways, without a copy. Only host tensors have a buffer: for others
 * fy_tensor_map refuses, and names the download. Next: dlpack.c. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "core.h"

/* struct codes by dtype; bf16 has none. */
static const char *const formats[] = { "f", "d", "e", NULL, "i", "q", "B", "?" };
enum { NFORMATS = sizeof formats / sizeof formats[0] };

static const char *format_of(fy_dtype_t dtype)
{
    return (unsigned)dtype < NFORMATS ? formats[dtype] : NULL;
}

/* Do the elements lie one after the other, the first axis fastest? */
static int is_fortran(const fy_tensor_info_t *info)
{
    int64_t expected = 1;
    for (int i = 0; i < info->rank; i++) {
        if (info->dims[i] != 1 && info->strides[i] != expected) return 0;
        expected *= info->dims[i];
    }
    return 1;
}

/* Is the tensor laid out as the consumer's flags ask? Each of them has the bits of STRIDES. */
static int has_layout(const fy_tensor_info_t *info, int flags)
{
    if (info->nelem == 0) return 1;
    if ((flags & PyBUF_ANY_CONTIGUOUS) == PyBUF_ANY_CONTIGUOUS)
        return info->is_contiguous || is_fortran(info);
    if ((flags & PyBUF_F_CONTIGUOUS) == PyBUF_F_CONTIGUOUS) return is_fortran(info);
    if ((flags & PyBUF_C_CONTIGUOUS) == PyBUF_C_CONTIGUOUS) return info->is_contiguous;
    return info->is_contiguous || (flags & PyBUF_STRIDES) == PyBUF_STRIDES;
}

int tensor_getbuffer(PyObject *self, Py_buffer *view, int flags)
{
    tensor_object *tensor = (tensor_object *)self;
    const int is_writing = (flags & PyBUF_WRITABLE) == PyBUF_WRITABLE;
    const char *format = format_of(tensor->dtype);
    fy_tensor_info_t info = FY_TENSOR_INFO_INIT;
    void *data = NULL;
    fy_status_t status = api.fy_tensor_query(tensor->handle, &info);
    if (status == FY_STATUS_OK) {
        status = api.fy_tensor_map(tensor->handle,
                                   is_writing ? FY_ACCESS_READ_WRITE : FY_ACCESS_READ, &data);
    }
    view->obj = NULL;
    if (status != FY_STATUS_OK) return core_failed(core_raise(status));
    if (!format)
        return core_failed(
            core_refuse(FY_STATUS_DTYPE_MISMATCH,
                        "Python's buffers have no bf16\nConvert it: ferry.cast(t, \"f32\")"));
    if (!has_layout(&info, flags))
        return core_failed(PyErr_Format(
            PyExc_BufferError,
            "the consumer needs contiguous bytes, and the tensor's are in another order"));
    Py_ssize_t *layout = PyMem_Malloc(sizeof *layout * 2 * FY_MAX_RANK);
    if (!layout) return core_failed(PyErr_NoMemory());
    const Py_ssize_t itemsize = (Py_ssize_t)api.fy_dtype_size(info.dtype);
    for (int i = 0; i < info.rank; i++) {
        layout[i] = (Py_ssize_t)info.dims[i];
        layout[FY_MAX_RANK + i] = (Py_ssize_t)info.strides[i] * itemsize;
    }
    static char nothing;
    *view = (Py_buffer){
        .buf = data ? data : &nothing,
        .obj = Py_NewRef(self),
        .len = (Py_ssize_t)info.nbytes,
        .itemsize = itemsize,
        .readonly = !is_writing,
        .ndim = info.rank,
        .format = flags & PyBUF_FORMAT ? (char *)(uintptr_t)format : NULL,
        .shape = (flags & PyBUF_ND) == PyBUF_ND ? layout : NULL,
        .strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? layout + FY_MAX_RANK : NULL,
        .internal = layout,
    };
    tensor->nbuffers++;
    return 0;
}

void tensor_releasebuffer(PyObject *self, Py_buffer *view)
{
    ((tensor_object *)self)->nbuffers--;
    PyMem_Free(view->internal);
}

/* ---- a buffer of Python as a tensor ---- */

typedef struct {
    DLManagedTensorVersioned managed;
    int64_t dims[FY_MAX_RANK], strides[FY_MAX_RANK];
    Py_buffer view;
} borrowed_buffer;

static atomic_int is_ending;

PyObject *core_end(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    atomic_store(&is_ending, 1);
    api.fy_interrupt_set(NULL, NULL);
    Py_RETURN_NONE;
}

int core_may_run(void)
{
    return Py_IsInitialized() && (!atomic_load(&is_ending) || PyGILState_GetThisThreadState());
}

/* Runs on the thread that ends the last use, which need not be one of Python. While Python ends,
 * such a thread would wait for the GIL for ever: the buffer's object is not released then. */
static void release_buffer(DLManagedTensorVersioned *managed)
{
    borrowed_buffer *borrowed = (borrowed_buffer *)managed;
    if (core_may_run()) {
        const PyGILState_STATE state = PyGILState_Ensure();
        PyBuffer_Release(&borrowed->view);
        PyGILState_Release(state);
    }
    free(borrowed);
}

static int dtype_of_format(const char *format, Py_ssize_t itemsize, DLDataType *out)
{
    if (!format) format = "B";
    if (*format == '@' || *format == '=' || *format == '<') format++;
    if (!*format || format[1]) return 0;
    const uint8_t bits = (uint8_t)(8 * itemsize);
    if (strchr("efd", *format))
        *out = (DLDataType){ kDLFloat, bits, 1 };
    else if (strchr("bhilq", *format))
        *out = (DLDataType){ kDLInt, bits, 1 };
    else if (strchr("BHILQc", *format))
        *out = (DLDataType){ kDLUInt, bits, 1 };
    else if (*format == '?')
        *out = (DLDataType){ kDLBool, bits, 1 };
    else
        return 0;
    return 1;
}

/* A host tensor on the bytes of an object with the buffer protocol; read-only if they are. */
PyObject *core_from_buffer(PyObject *module, PyObject *object)
{
    (void)module;
    borrowed_buffer *b = calloc(1, sizeof *b);
    if (!b) return PyErr_NoMemory();
    int is_read_only = 0;
    if (PyObject_GetBuffer(object, &b->view, PyBUF_RECORDS) != 0) {
        is_read_only = !PyErr_ExceptionMatches(PyExc_MemoryError);
        if (is_read_only) PyErr_Clear();
        if (!is_read_only || PyObject_GetBuffer(object, &b->view, PyBUF_RECORDS_RO) != 0) {
            free(b);
            return NULL;
        }
    }
    DLTensor *t = &b->managed.dl_tensor;
    const Py_ssize_t itemsize = b->view.itemsize;
    if (b->view.ndim > FY_MAX_RANK || !dtype_of_format(b->view.format, itemsize, &t->dtype)) {
        PyBuffer_Release(&b->view);
        free(b);
        return core_refuse(FY_STATUS_DTYPE_MISMATCH,
                           "the buffer has a format or a rank that no tensor has");
    }
    for (int i = 0; i < b->view.ndim; i++) {
        b->dims[i] = b->view.shape[i];
        b->strides[i] = b->view.strides[i] / itemsize;
        if (b->view.strides[i] % itemsize == 0 || b->view.shape[i] <= 1) continue;
        PyErr_Format(
            PyExc_BufferError,
            "axis %d of the buffer has a stride of %zd bytes, no multiple of the element's "
            "%zd, as fields of packed records have: copy it, numpy.ascontiguousarray(a)",
            i, b->view.strides[i], itemsize);
        PyBuffer_Release(&b->view);
        free(b);
        return NULL;
    }
    t->data = b->view.buf;
    t->device.device_type = kDLCPU;
    t->ndim = b->view.ndim;
    t->shape = b->dims;
    t->strides = b->strides;
    b->managed.version = (DLPackVersion){ DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION };
    b->managed.flags = is_read_only || b->view.readonly ? DLPACK_FLAG_BITMASK_READ_ONLY : 0;
    b->managed.deleter = release_buffer;
    fy_tensor_t *tensor = NULL;
    const fy_status_t status =
        api.fy_tensor_from_dlpack(api.fy_device_host(), &b->managed, &tensor);
    if (status == FY_STATUS_OK) return core_wrap(tensor);
    PyBuffer_Release(&b->view);
    free(b);
    const char *text = strchr(api.fy_error_get()->text, ':'); /* behind the name of the call of C */
    if (status != FY_STATUS_INVALID_ARGUMENT || !text) return core_raise(status);
    char copy[sizeof api.fy_error_get()->text + 64];
    PyOS_snprintf(copy, sizeof copy, "from_buffer%s\n  Copy the array: a.copy()", text);
    return core_refuse(status, copy);
}
