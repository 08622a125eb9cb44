/* ferry._core: the tensor object, and the C API for ferry/_c.py. load() gets the libraries' paths
 * from ferry/_library.py, so this module links nothing of Ferry.
 * Next: number.c (arithmetic), index.c (views), buffer.c and dlpack.c (exchange), bind.h
 * (the C API). */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "bind.h"
#include "runtime/base/c_locale.h"

union core_api api;
PyTypeObject *tensor_base;
PyObject *tensor_type;
PyObject *find_number;
static PyObject *error_type;                 /* ferry.Error */
static PyObject *raise_error, *refuse_error; /* of ferry/_tensor.py: they return exceptions */
static PyObject *host_device, *find_device;  /* ferry.host; device_of of ferry/_device.py */

static PyObject *raise_made(PyObject *exception)
{
    if (exception) PyErr_SetObject((PyObject *)Py_TYPE(exception), exception);
    Py_XDECREF(exception);
    return NULL;
}

PyObject *core_raise(fy_status_t status)
{
    if (!raise_error) return PyErr_Format(PyExc_ImportError, "%s", api.fy_error_get()->text);
    return raise_made(PyObject_CallFunction(raise_error, "i", (int)status));
}

PyObject *core_refuse(fy_status_t status, const char *text)
{
    if (!refuse_error) return PyErr_Format(PyExc_ImportError, "%s", text);
    return raise_made(PyObject_CallFunction(refuse_error, "is", (int)status, text));
}

int core_status(PyObject *exception)
{
    const int is_ours = error_type ? PyObject_IsInstance(exception, error_type) : 0;
    PyObject *status = is_ours > 0 ? PyObject_GetAttrString(exception, "status") : NULL;
    const long number = status && PyLong_Check(status) ? PyLong_AsLong(status) : 0;
    PyErr_Clear();
    Py_XDECREF(status);
    return (int)number;
}

/* Host blocks up to this size stay with the thread when they are freed. */
enum { CACHED_NBYTES = 1 << 15 };

tensor_object *core_tensor(PyObject *object)
{
    return PyObject_TypeCheck(object, tensor_base) ? (tensor_object *)object : NULL;
}

static void destroy(fy_tensor_t *handle, PyObject *model)
{
    if (!model) api.fy_tensor_destroy(handle);
}

PyObject *core_wrap(fy_tensor_t *handle) { return core_wrap_of(handle, NULL); }

PyObject *core_wrap_of(fy_tensor_t *handle, PyObject *model)
{
    fy_tensor_info_t info = FY_TENSOR_INFO_INIT;
    const fy_status_t status = api.fy_tensor_query(handle, &info);
    if (status != FY_STATUS_OK) {
        core_raise(status);
        destroy(handle, model);
        return NULL;
    }
    tensor_object *self = (tensor_object *)PyType_GenericAlloc((PyTypeObject *)tensor_type, 0);
    if (!self) {
        destroy(handle, model);
        return NULL;
    }
    self->handle = handle;
    self->model = Py_XNewRef(model);
    if (model) ((bind_handle_object *)model)->ntensors++;
    self->device = info.device;
    self->nelem = info.nelem;
    self->rank = info.rank;
    self->dtype = info.dtype;
    self->frees_slowly = info.device != api.fy_device_host() || info.is_pinned ||
                         info.storage_nbytes > CACHED_NBYTES;
    return (PyObject *)self;
}

/* Destroying may run the deleter of a buffer, which takes the GIL on this thread. */
static void tensor_dealloc(PyObject *object)
{
    tensor_object *self = (tensor_object *)object;
    if (self->model) {
        ((bind_handle_object *)self->model)->ntensors--;
        Py_DECREF(self->model);
    } else {
        PyThreadState *state = self->handle && self->frees_slowly ? PyEval_SaveThread() : NULL;
        api.fy_tensor_destroy(self->handle);
        if (state) PyEval_RestoreThread(state);
    }
    free(self->layout);
    bind_free(object);
}

int core_query(PyObject *tensor, fy_tensor_info_t *out_info)
{
    *out_info = (fy_tensor_info_t)FY_TENSOR_INFO_INIT;
    const fy_status_t status = api.fy_tensor_query(((tensor_object *)tensor)->handle, out_info);
    return status == FY_STATUS_OK ? 0 : core_failed(core_raise(status));
}

static PyObject *is_host(PyObject *self, void *unused)
{
    (void)unused;
    return PyBool_FromLong(((tensor_object *)self)->device == api.fy_device_host());
}

static PyObject *get_device(PyObject *self, void *unused)
{
    (void)unused;
    fy_device_t *device = ((tensor_object *)self)->device;
    if (device == api.fy_device_host()) {
        PyObject *open = PyObject_GetAttr(host_device, bind_as_parameter);
        Py_XDECREF(open);
        if (open != Py_None) return open ? Py_NewRef(host_device) : NULL;
    }
    PyObject *handle = bind_new_handle(bind_find_handle("fy_device_t"), device, 1, self);
    PyObject *found = handle ? PyObject_CallFunctionObjArgs(find_device, handle, NULL) : NULL;
    Py_XDECREF(handle);
    return found;
}

static PyObject *get_dtype(PyObject *self, void *unused)
{
    static PyObject *names[FY_DTYPE_COUNT + 1];
    (void)unused;
    const fy_dtype_t dtype = ((tensor_object *)self)->dtype;
    PyObject **name = &names[(unsigned)dtype < FY_DTYPE_COUNT ? dtype : FY_DTYPE_COUNT];
    if (!*name) *name = PyUnicode_InternFromString(api.fy_dtype_name(dtype));
    return Py_XNewRef(*name);
}

enum { RANK, NELEM, NBYTES };

static PyObject *get_number(PyObject *self, void *which)
{
    const tensor_object *tensor = (tensor_object *)self;
    fy_tensor_info_t info;
    if (!tensor->handle && core_query(self, &info) < 0) return NULL; /* destroyed */
    if ((uintptr_t)which == RANK) return PyLong_FromLong(tensor->rank);
    const uint64_t nbytes = (uintptr_t)which == NBYTES ? api.fy_dtype_size(tensor->dtype) : 1;
    return PyLong_FromUnsignedLongLong(tensor->nelem * nbytes);
}

static PyObject *get_dims(PyObject *self, void *strides)
{
    fy_tensor_info_t info;
    if (core_query(self, &info) < 0) return NULL;
    const int64_t *values = strides ? info.strides : info.dims;
    PyObject *lengths = PyTuple_New(info.rank);
    for (int i = 0; lengths && i < info.rank; i++) {
        PyObject *length = PyLong_FromLongLong(values[i]);
        if (length)
            PyTuple_SetItem(lengths, i, length);
        else
            Py_CLEAR(lengths);
    }
    return lengths;
}

/* _write(bytes): all elements of a host tensor, in order. */
static PyObject *write_bytes(PyObject *object, PyObject *bytes)
{
    const tensor_object *self = (tensor_object *)object;
    void *data = NULL;
    Py_buffer source;
    const fy_status_t status = api.fy_tensor_map(self->handle, FY_ACCESS_WRITE, &data);
    if (status != FY_STATUS_OK) return core_raise(status);
    if (PyObject_GetBuffer(bytes, &source, PyBUF_SIMPLE) != 0) return NULL;
    const int fits = (uint64_t)source.len == self->nelem * api.fy_dtype_size(self->dtype);
    if (fits) memcpy(data, source.buf, (size_t)source.len);
    PyBuffer_Release(&source);
    if (fits) Py_RETURN_NONE;
    PyErr_SetString(PyExc_ValueError, "the bytes of another number of elements");
    return NULL;
}

static PyGetSetDef tensor_members[] = {
    { "device", get_device, NULL, "The device that has its bytes.", NULL },
    { "dtype", get_dtype, NULL,
      "\"f32\", \"f64\", \"f16\", \"bf16\", \"i32\", \"i64\", \"u8\" or \"bool\".", NULL },
    { "is_host", is_host, NULL, NULL, NULL },
    { "ndim", get_number, NULL, NULL, (void *)RANK },
    { "size", get_number, NULL, "Elements.", (void *)NELEM },
    { "nbytes", get_number, NULL, "Bytes of this view: elements times the element's size.",
      (void *)NBYTES },
    { "_is_read_only", tensor_is_read_only, NULL, NULL, NULL },
    { "shape", get_dims, NULL, "The length of each axis: a tuple.", NULL },
    { "strides", get_dims, NULL, "The stride of each axis in elements; 0: repeated.", &api },
    { NULL, NULL, NULL, NULL, NULL },
};

static PyMethodDef tensor_methods[] = {
    { "item", tensor_item, METH_NOARGS,
      "The value of a host tensor of one element. Fails: DeviceMismatch, ShapeMismatch." },
    { "tolist", tensor_tolist, METH_NOARGS,
      "The elements of a host tensor as nested lists; of rank 0 the value." },
    { "_dlpack", tensor_dlpack, METH_VARARGS, NULL },
    { "_write", write_bytes, METH_O, NULL },
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
    { Py_mp_subscript, (void *)tensor_subscript },
    { Py_mp_length, (void *)tensor_length },
    { Py_sq_item, (void *)tensor_row },
    { Py_sq_length, (void *)tensor_length },
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

static char no_dist[512];

PyObject *core_missing(const char *name)
{
    char text[640];
    PyOS_snprintf(text, sizeof text,
                  "%s: %s\n  Install all libraries of one version of Ferry into one folder", name,
                  no_dist);
    return core_refuse(FY_STATUS_UNAVAILABLE, text);
}

/* load(libferry, libferry_train, libferry_dist, why it is not loaded): paths; NULL for the third:
 * it is not there, and its functions are refused with the reason. */
static PyObject *load(PyObject *module, PyObject *args)
{
    (void)module;
    const char *paths[3], *reason;
    void *libraries[3] = { NULL };
    PyObject *dist;
    if (!PyArg_ParseTuple(args, "yyOs", &paths[0], &paths[1], &dist, &reason)) return NULL;
    paths[2] = dist == Py_None ? NULL : PyBytes_AsString(dist);
    PyOS_snprintf(no_dist, sizeof no_dist, "%s", reason);
    for (int i = 0; i < 3; i++) {
        libraries[i] = paths[i] ? dlopen(paths[i], RTLD_NOW) : NULL;
        if (libraries[i] || !paths[i]) continue;
        const char *error = fy__dlerror();
        if (i == 2) {
            PyOS_snprintf(no_dist, sizeof no_dist, "libferry_dist was not loaded: %s", error);
            continue;
        }
        return PyErr_Format(PyExc_ImportError,
                            "libferry%s was not loaded: %s. Set FERRY_LIBRARY to the prefix of an "
                            "installation",
                            i ? "_train" : "", error);
    }
    for (int i = 0; i < bind_nfunctions; i++) {
        const bind_function *function = &bind_functions[i];
        void *library = libraries[function->library];
        void *address = library ? dlsym(library, function->name) : NULL;
        if (!address && library)
            return PyErr_Format(PyExc_ImportError, "%s has no %s", paths[function->library],
                                function->name);
        memcpy(&api.addresses[i], &address, sizeof address);
    }
    Py_RETURN_NONE;
}

/* Ctrl-C in a blocking wait of Ferry: the library calls a function every now and then, in which
 * Python runs its signal handlers. The exception of one waits here until the call has returned. */
static PyObject *pending_type, *pending, *pending_traceback; /* guarded by the GIL */

static int run_handlers(void *unused)
{
    (void)unused;
    const PyGILState_STATE state = PyGILState_Ensure();
    const int has_failed = PyErr_CheckSignals() != 0;
    if (has_failed) {
        Py_CLEAR(pending_type);
        Py_CLEAR(pending);
        Py_CLEAR(pending_traceback);
        PyErr_Fetch(&pending_type, &pending, &pending_traceback);
    }
    PyGILState_Release(state);
    return has_failed;
}

/* Raises the exception of the handler that ended the last wait, if one did. */
static PyObject *raise_interrupt(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    if (!pending_type) Py_RETURN_NONE;
    PyErr_Restore(pending_type, pending, pending_traceback);
    pending_type = pending = pending_traceback = NULL;
    return NULL;
}

/* bind(error_type, raise_error, refuse_error, tensor_type, number_of, scalar, dtype_number,
 * device_of, host, is_main_thread) */
static PyObject *bind(PyObject *module, PyObject *args)
{
    (void)module;
    int is_main_thread;
    PyObject *error, *raises, *refuses, *type, *number, *scalar, *dtype, *device, *host;
    if (!PyArg_ParseTuple(args, "OOOOOOOOOp", &error, &raises, &refuses, &type, &number, &scalar,
                          &dtype, &device, &host, &is_main_thread))
        return NULL;
    error_type = Py_NewRef(error);
    raise_error = Py_NewRef(raises);
    refuse_error = Py_NewRef(refuses);
    bind_dtype_hook = Py_NewRef(dtype);
    tensor_type = Py_NewRef(type);
    find_number = Py_NewRef(number);
    find_device = Py_NewRef(device);
    host_device = Py_NewRef(host);
    bind_scalar_hook = Py_NewRef(scalar);
    if (is_main_thread) api.fy_interrupt_set(run_handlers, NULL);
    Py_RETURN_NONE;
}

/* number(function, name, value, nbytes): an attribute of an op, as C has it; 0 bytes: a double. */
static PyObject *number(PyObject *module, PyObject *args)
{
    (void)module;
    struct bind_place place = { .index = -1 };
    PyObject *value;
    unsigned nbytes;
    int64_t number;
    if (!PyArg_ParseTuple(args, "ssOI", &place.function, &place.name, &value, &nbytes)) return NULL;
    const bind_type type = { nbytes ? BIND_INT : BIND_DOUBLE, nbytes, .is_signed = 1 };
    return bind_put(&type, &number, value, &place) < 0 ? NULL
                                                       : bind_get(&type, &number, 0, NULL, 0);
}

/* show(value): str(value), and no refusal of a long integer. */
static PyObject *show(PyObject *module, PyObject *value)
{
    (void)module;
    return bind_show(value);
}

/* fill(dict): all of ferry._c */
static PyObject *fill(PyObject *module, PyObject *dict)
{
    (void)module;
    if (bind_add_types(dict) < 0) return NULL;
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    { "load", load, METH_VARARGS, NULL },
    { "bind", bind, METH_VARARGS, NULL },
    { "fill", fill, METH_O, NULL },
    { "number", number, METH_VARARGS, NULL },
    { "show", show, METH_O, NULL },
    { "end", core_end, METH_NOARGS, NULL },
    { "raise_interrupt", raise_interrupt, METH_NOARGS, NULL },
    { "from_buffer", core_from_buffer, METH_O, NULL },
    { "from_dlpack", core_from_dlpack, METH_VARARGS, NULL },
    { NULL, NULL, 0, NULL },
};

/* One interpreter: scopes and error records of threads in libferry belong to no interpreter. Each
 * one runs this; a second import in the first one gets the same type. */
static int fill_module(PyObject *module)
{
    if (PyInterpreterState_GetID(PyInterpreterState_Get()) != 0)
        return core_failed(
            PyErr_Format(PyExc_ImportError, "ferry does not support subinterpreters"));
    if (!tensor_base) {
        PyObject *type = make_tensor_base();
        if (!type || core_add_exchange_table(type) < 0) {
            Py_XDECREF(type);
            return -1;
        }
        tensor_base = (PyTypeObject *)type;
    }
    return PyModule_AddObjectRef(module, "Tensor", (PyObject *)tensor_base);
}

static PyModuleDef_Slot slots[] = { { Py_mod_exec, (void *)fill_module }, { 0, NULL } };
static struct PyModuleDef definition = { .m_base = PyModuleDef_HEAD_INIT,
                                         .m_name = "ferry._core",
                                         .m_methods = functions,
                                         .m_slots = slots };

PyMODINIT_FUNC PyInit__core(void);
PyMODINIT_FUNC PyInit__core(void) { return PyModuleDef_Init(&definition); }
