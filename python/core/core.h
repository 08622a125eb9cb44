/* What the sources of ferry._core share: the C API, found at run time, and the tensor object.
 * bind.h makes Python's calls from it. */
#ifndef PYTHON_CORE_CORE_H_
#define PYTHON_CORE_CORE_H_

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030b0000 /* 3.11, the first with the buffer protocol in it */
#include <Python.h>

#include "c_api.h" /* generated: the headers, and `api`, the addresses of their functions */

extern PyTypeObject *tensor_base; /* ferry._core.Tensor */
extern PyObject *tensor_type;     /* ferry.Tensor, its subclass: the type of results */
extern PyObject *find_number;     /* number_of of ferry/_types.py */

/* The base of ferry.Tensor. It owns its handle, or a model does, whose tapes watch it. */
typedef struct {
    PyObject_HEAD fy_tensor_t *handle;
    PyObject *model; /* the handle of the model in ferry._c, or NULL */
    fy_device_t *device;
    uint64_t nelem;
    int64_t *layout; /* of the exchange table: shape and strides; NULL before the first use */
    fy_dtype_t dtype;
    uint32_t nbuffers; /* of Python, that share its bytes */
    int rank;
    int frees_slowly; /* destroying may call a driver or the kernel: not while holding the GIL */
} tensor_object;

/* Sets the exception of this thread's last failure, and returns NULL. */
PyObject *core_raise(fy_status_t status);
/* Sets the exception of `status` with a text of the binding, and returns NULL. */
PyObject *core_refuse(fy_status_t status, const char *text);
/* -1, beside the exception that is set: core_failed(core_raise(status)). */
static inline int core_failed(PyObject *null) { return null ? 0 : -1; }
/* The status of an exception that is a ferry.Error; else 0. */
int core_status(PyObject *exception);
/* A ferry.Tensor that owns `handle`; on failure the handle is destroyed. */
PyObject *core_wrap(fy_tensor_t *handle);
/* The same for a handle of a model, which the tensor keeps; NULL: the tensor owns it. */
PyObject *core_wrap_of(fy_tensor_t *handle, PyObject *model);
/* The tensor object if `object` is one, else NULL without an exception. */
tensor_object *core_tensor(PyObject *object);

/* The facts of a tensor object; -1 with an exception. */
int core_query(PyObject *tensor, fy_tensor_info_t *out_info);

/* Sets the exception that libferry_dist lacks, and returns NULL. */
PyObject *core_missing(const char *name);

/* buffer.c */
/* Whether this thread can take the GIL: not one of C while Python ends. */
int core_may_run(void);
int tensor_getbuffer(PyObject *self, Py_buffer *view, int flags);
void tensor_releasebuffer(PyObject *self, Py_buffer *view);
PyObject *core_from_buffer(PyObject *module, PyObject *object);
/* end(): the interpreter is about to end. */
PyObject *core_end(PyObject *module, PyObject *unused);
/* dlpack.c */
PyObject *tensor_dlpack(PyObject *self, PyObject *args);
PyObject *tensor_is_read_only(PyObject *self, void *unused);
PyObject *core_from_dlpack(PyObject *module, PyObject *args);
/* Sets the type's attribute; -1 with an exception. */
int core_add_exchange_table(PyObject *type);
/* number.c */
extern PyType_Slot tensor_number_slots[];
PyObject *tensor_item(PyObject *self, PyObject *unused);
PyObject *tensor_tolist(PyObject *self, PyObject *unused);
/* index.c */
PyObject *tensor_subscript(PyObject *self, PyObject *key);
PyObject *tensor_row(PyObject *self, Py_ssize_t number);
Py_ssize_t tensor_length(PyObject *self);

#endif
