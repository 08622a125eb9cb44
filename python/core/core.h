/* What the sources of ferry._core share: the calls of libferry that they use, found at run time,
 * and the tensor object. bind.h has the rest of the C API. */
#ifndef PYTHON_CORE_CORE_H_
#define PYTHON_CORE_CORE_H_

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030b0000 /* 3.11, the first with the buffer protocol in it */
#include <Python.h>

#include <ferry/device.h>
#include <ferry/dlpack.h>
#include <ferry/ops.h>
#include <ferry/scope.h>

/* X(function). Their addresses are in `api` after bind. */
#define CORE_CALLS(X)         \
    X(fy_add)                 \
    X(fy_sub)                 \
    X(fy_mul)                 \
    X(fy_div)                 \
    X(fy_pow)                 \
    X(fy_floor_divide)        \
    X(fy_remainder)           \
    X(fy_matmul)              \
    X(fy_eq)                  \
    X(fy_ne)                  \
    X(fy_lt)                  \
    X(fy_le)                  \
    X(fy_gt)                  \
    X(fy_ge)                  \
    X(fy_neg)                 \
    X(fy_abs)                 \
    X(fy_affine)              \
    X(fy_full)                \
    X(fy_dtype_size)          \
    X(fy_tensor_create)       \
    X(fy_tensor_query)        \
    X(fy_tensor_map)          \
    X(fy_tensor_destroy)      \
    X(fy_tensor_to_dlpack)    \
    X(fy_tensor_from_dlpack)  \
    X(fy_device_host)         \
    X(fy_device_open)         \
    X(fy_device_close)        \
    X(fy_stream_native)       \
    X(fy_scope_begin_unowned) \
    X(fy_scope_end)           \
    X(fy_transpose)           \
    X(fy_error_set)           \
    X(fy_interrupt_set)       \
    X(fy_error_get)

struct core_api {
#define X(name) __typeof__(&name) name;
    CORE_CALLS(X)
#undef X
};
extern struct core_api api;
extern PyTypeObject *tensor_base; /* ferry._core.Tensor */
extern PyObject *tensor_type;     /* ferry.Tensor, its subclass: the type of results */
extern PyObject *find_number;     /* number_of of ferry/_types.py */

/* The base of ferry.Tensor. Owns its handle. */
typedef struct {
    PyObject_HEAD fy_tensor_t *handle;
    fy_device_t *device;
    uint64_t nelem;
    int64_t *layout; /* of exchange_table.c: shape and strides; NULL before the first use */
    fy_dtype_t dtype;
    uint32_t nbuffers; /* of Python, that share its bytes */
    int frees_slowly;  /* destroying may call a driver or the kernel: not while holding the GIL */
} tensor_object;

/* Sets the exception of this thread's last failure, and returns NULL. */
PyObject *core_raise(fy_status_t status);
/* Sets the exception of `status` with a text of the binding, and returns NULL. */
PyObject *core_refuse(fy_status_t status, const char *text);
/* The status of an exception that is a ferry.Error; else 0. */
int core_status(PyObject *exception);
/* A ferry.Tensor that owns `handle`; on failure the handle is destroyed. */
PyObject *core_wrap(fy_tensor_t *handle);
/* The tensor object if `object` is one, else NULL without an exception. */
tensor_object *core_tensor(PyObject *object);

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
/* interrupt.c: waits of the calling thread, the main one, handle signals of Python. */
void core_watch_signals(void);
/* raise_interrupt(): raises the exception of the handler that ended the last wait, if one did. */
PyObject *core_raise_interrupt(PyObject *module, PyObject *unused);
/* dlpack.c */
PyObject *tensor_dlpack(PyObject *self, PyObject *args);
PyObject *tensor_is_read_only(PyObject *self, void *unused);
PyObject *core_from_dlpack(PyObject *module, PyObject *args);
/* Is it imported read-only, or a view that repeats elements? -1 with an exception. */
int core_is_read_only(const tensor_object *tensor, fy_tensor_info_t *out_info);
/* As fy_tensor_to_dlpack; page-locked memory as the CPU's. */
fy_status_t core_export(tensor_object *tensor, int is_read_only, fy_stream_t *stream,
                        DLManagedTensorVersioned **out_managed);
/* A ferry.Tensor, or NULL with an exception. *out_is_taken: `managed` was transferred; this can be
 * so in both cases. */
PyObject *core_import(fy_device_t *device, DLManagedTensorVersioned *managed, int *out_is_taken);
/* exchange_table.c: sets the type's attribute; -1 with an exception. */
int core_add_exchange_table(PyObject *type);
/* number.c */
extern PyType_Slot tensor_number_slots[];
PyObject *tensor_item(PyObject *self, PyObject *unused);

#endif
