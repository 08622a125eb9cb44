/* ferry._core: the tensor object, for calls whose overhead counts. bind() gets libferry's handle
 * from the loader in ferry/_library.py, so this module links nothing of Ferry.
 * Next: number.c (arithmetic), buffer.c, dlpack.c and exchange_table.c (exchange),
 * interrupt.c. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "core.h"

struct core_api api;
PyTypeObject *tensor_base;
PyObject *tensor_type;
PyObject *find_number;
static PyObject *raise_error, *refuse_error; /* of ferry/_tensor.py: they return exceptions */

static PyObject *raise_made(PyObject *exception)
{
    if (exception) PyErr_SetObject((PyObject *)Py_TYPE(exception), exception);
    Py_XDECREF(exception);
    return NULL;
}

PyObject *core_raise(fy_status_t status)
{
    return raise_made(PyObject_CallFunction(raise_error, "i", (int)status));
}

PyObject *core_refuse(fy_status_t status, const char *text)
{
    return raise_made(PyObject_CallFunction(refuse_error, "is", (int)status, text));
}

/* Host blocks up to this size stay with the thread when they are freed. */
enum { CACHED_NBYTES = 1 << 15 };

tensor_object *core_tensor(PyObject *object)
{
    return PyObject_TypeCheck(object, tensor_base) ? (tensor_object *)object : NULL;
}

PyObject *core_wrap(fy_tensor_t *handle)
{
    fy_tensor_info_t info = FY_TENSOR_INFO_INIT;
    const fy_status_t status = api.fy_tensor_query(handle, &info);
    if (status != FY_STATUS_OK) {
        core_raise(status);
        api.fy_tensor_destroy(handle);
        return NULL;
    }
    tensor_object *self = (tensor_object *)PyType_GenericAlloc((PyTypeObject *)tensor_type, 0);
    if (!self) {
        api.fy_tensor_destroy(handle);
        return NULL;
    }
    self->handle = handle;
    self->device = info.device;
    self->nelem = info.nelem;
    self->dtype = info.dtype;
    self->frees_slowly = info.device != api.fy_device_host() || info.is_pinned ||
                         info.storage_nbytes > CACHED_NBYTES;
    return (PyObject *)self;
}

/* Destroying may run the deleter of a buffer, which takes the GIL on this thread. */
static void tensor_dealloc(PyObject *object)
{
    tensor_object *self = (tensor_object *)object;
    PyTypeObject *type = Py_TYPE(object);
    if (self->handle && self->frees_slowly) {
        PyThreadState *state = PyEval_SaveThread();
        api.fy_tensor_destroy(self->handle);
        PyEval_RestoreThread(state);
    } else {
        api.fy_tensor_destroy(self->handle);
    }
    free(self->layout);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(object);
    Py_DECREF(type);
}

static PyObject *get_handle(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromVoidPtr(((tensor_object *)self)->handle);
}

static PyObject *get_device(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromVoidPtr(((tensor_object *)self)->device);
}

static PyObject *get_dtype(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromLong((long)((tensor_object *)self)->dtype);
}

static PyObject *tuple_of(const int64_t *values, int count)
{
    PyObject *tuple = PyTuple_New(count);
    for (int i = 0; tuple && i < count; i++) {
        PyObject *value = PyLong_FromLongLong(values[i]);
        if (!value || PyTuple_SetItem(tuple, i, value) < 0) Py_CLEAR(tuple);
    }
    return tuple;
}

static PyObject *get_dims(PyObject *self, void *strides)
{
    fy_tensor_info_t info = FY_TENSOR_INFO_INIT;
    const fy_status_t status = api.fy_tensor_query(((tensor_object *)self)->handle, &info);
    if (status != FY_STATUS_OK) return core_raise(status);
    return tuple_of(strides ? info.strides : info.dims, info.rank);
}

/* The handle, which the caller now owns: the object is empty afterwards. */
static PyObject *take(PyObject *self, PyObject *unused)
{
    (void)unused;
    PyObject *handle = get_handle(self, NULL);
    if (handle) ((tensor_object *)self)->handle = NULL;
    return handle;
}

static PyGetSetDef tensor_members[] = {
    { "_as_parameter_", get_handle, NULL, "The handle, for ferry._c: borrowed.", NULL },
    { "_device", get_device, NULL, NULL, NULL },
    { "_dtype", get_dtype, NULL, NULL, NULL },
    { "_is_read_only", tensor_is_read_only, NULL, NULL, NULL },
    { "shape", get_dims, NULL, "The length of each axis: a tuple.", NULL },
    { "strides", get_dims, NULL, "The stride of each axis in elements; 0: repeated.", &api },
    { NULL, NULL, NULL, NULL, NULL },
};

static PyMethodDef tensor_methods[] = {
    { "item", tensor_item, METH_NOARGS,
      "The value of a host tensor of one element. Fails: DeviceMismatch, ShapeMismatch." },
    { "_dlpack", tensor_dlpack, METH_VARARGS, NULL },
    { "_take", take, METH_NOARGS, NULL },
    { NULL, NULL, 0, NULL },
};

static PyObject *refuse_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    (void)type, (void)args, (void)kwargs;
    PyErr_SetString(PyExc_TypeError, "tensors are made by ferry.tensor, ferry.zeros, uploads, ops");
    return NULL;
}

/* number.c's slots are copied behind these. */
static PyType_Slot object_slots[] = {
    { Py_tp_dealloc, (void *)tensor_dealloc },
    { Py_tp_new, (void *)refuse_new },
    { Py_tp_getset, tensor_members },
    { Py_tp_methods, tensor_methods },
    { Py_bf_getbuffer, (void *)tensor_getbuffer },
    { Py_bf_releasebuffer, (void *)tensor_releasebuffer },
};

static PyObject *make_tensor_base(void)
{
    enum { OWN = sizeof object_slots / sizeof object_slots[0], MOST = 48 };
    PyType_Slot slots[MOST];
    size_t count = 0;
    memcpy(slots, object_slots, sizeof object_slots);
    while (tensor_number_slots[count].slot && OWN + count < MOST - 1) count++;
    memcpy(slots + OWN, tensor_number_slots, (count + 1) * sizeof slots[0]);
    PyType_Spec spec = { .name = "ferry._core.Tensor",
                         .basicsize = sizeof(tensor_object),
                         .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
                         .slots = slots };
    return PyType_FromSpec(&spec);
}

/* bind(library, raise_error, refuse_error, tensor_type, find_number, is_main_thread) */
static PyObject *bind(PyObject *module, PyObject *args)
{
    (void)module;
    unsigned long long library = 0;
    PyObject *raises, *refuses, *type, *number;
    int is_main_thread;
    if (!PyArg_ParseTuple(args, "KOOOOp", &library, &raises, &refuses, &type, &number,
                          &is_main_thread))
        return NULL;
    void *const handle = (void *)(uintptr_t)library;
    struct core_api found;
#define X(name)                                                           \
    {                                                                     \
        void *address = dlsym(handle, #name);                             \
        if (!address) {                                                   \
            PyErr_SetString(PyExc_ImportError, "libferry has no " #name); \
            return NULL;                                                  \
        }                                                                 \
        memcpy(&found.name, &address, sizeof address);                    \
    }
    CORE_CALLS(X)
#undef X
    api = found;
    raise_error = Py_NewRef(raises);
    refuse_error = Py_NewRef(refuses);
    tensor_type = Py_NewRef(type);
    find_number = Py_NewRef(number);
    if (is_main_thread) core_watch_signals();
    Py_RETURN_NONE;
}

/* wrap(handle): an integer, or a c_void_p of ctypes, whose value would be an allocation that can
 * fail and then leaks the handle. */
static PyObject *wrap(PyObject *module, PyObject *object)
{
    (void)module;
    void *address = NULL;
    if (PyLong_Check(object)) {
        address = PyLong_AsVoidPtr(object);
    } else {
        Py_buffer view;
        if (PyObject_GetBuffer(object, &view, PyBUF_SIMPLE) != 0) return NULL;
        if (view.len == (Py_ssize_t)sizeof address) memcpy(&address, view.buf, sizeof address);
        PyBuffer_Release(&view);
    }
    if (!address) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "wrap: the handle is NULL");
        return NULL;
    }
    return core_wrap(address);
}

static PyMethodDef functions[] = {
    { "bind", bind, METH_VARARGS, NULL },
    { "wrap", wrap, METH_O, "A Tensor that owns the handle." },
    { "unary", (PyCFunction)(void (*)(void))core_unary, METH_FASTCALL, NULL },
    { "binary", (PyCFunction)(void (*)(void))core_binary, METH_FASTCALL, NULL },
    { "end", core_end, METH_NOARGS, NULL },
    { "raise_interrupt", core_raise_interrupt, METH_NOARGS, NULL },
    { "from_buffer", core_from_buffer, METH_O, NULL },
    { "from_dlpack", core_from_dlpack, METH_VARARGS, NULL },
    { NULL, NULL, 0, NULL },
};

static struct PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT, .m_name = "ferry._core", .m_size = -1, .m_methods = functions
};

/* One interpreter: a thread's scopes and its error record in libferry belong to no interpreter. */
PyMODINIT_FUNC PyInit__core(void);
PyMODINIT_FUNC PyInit__core(void)
{
    if (PyInterpreterState_GetID(PyInterpreterState_Get()) != 0) {
        PyErr_SetString(PyExc_ImportError, "ferry does not support subinterpreters");
        return NULL;
    }
    PyObject *module = PyModule_Create(&definition);
    PyObject *type = module ? make_tensor_base() : NULL;
    if (!type || core_add_exchange_table(type) < 0 ||
        PyModule_AddObjectRef(module, "Tensor", type) < 0) {
        Py_XDECREF(type);
        Py_XDECREF(module);
        return NULL;
    }
    tensor_base = (PyTypeObject *)type;
    return module;
}
