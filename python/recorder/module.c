/* The module and its type Core: what a recording holds, and settings of the thread for Python. */
#include <string.h>

#include "recorder.h"

PyTypeObject *core_type;
static const char *const categories[] = { "weights", "gradients", "activations", "other" };

static PyMemberDef members[] = {
    { "is_on", T_BOOL, offsetof(core_object, is_on), 0, "Are lines written?" },
    { "wants_step", T_BOOL, offsetof(core_object, wants_step), 0, "The next request begins one." },
    { "events", T_ULONGLONG, offsetof(core_object, events), READONLY, "Lines." },
    { "ops", T_ULONGLONG, offsetof(core_object, ops), READONLY, NULL },
    { "live", T_ULONGLONG, offsetof(core_object, live), READONLY, "Bytes of device memory." },
    { "peak", T_ULONGLONG, offsetof(core_object, peak), 0, "The most of them." },
    { "now_ns", T_ULONGLONG, offsetof(core_object, now_ns), 0, "The host, by the model clock." },
    { "start_ns", T_ULONGLONG, offsetof(core_object, start_ns), READONLY, NULL },
    { NULL, 0, 0, 0, NULL },
};

/* Settings of the calling thread. */
static PyObject *get_inside(PyObject *self, void *unused)
{
    (void)self, (void)unused;
    return PyBool_FromLong(me.inside > 0);
}

static PyObject *get_to_device(PyObject *self, void *unused)
{
    (void)self, (void)unused;
    return me.to_device < 0 ? Py_NewRef(Py_None) : PyBool_FromLong(me.to_device);
}

static int set_to_device(PyObject *self, PyObject *value, void *unused)
{
    (void)self, (void)unused;
    const int answer = value && value != Py_None ? PyObject_IsTrue(value) : -1;
    if (PyErr_Occurred()) return -1;
    me.to_device = answer;
    return 0;
}

static PyObject *get_stream(PyObject *self, void *unused)
{
    (void)self, (void)unused;
    return PyLong_FromLong(me.stream);
}

static int set_stream(PyObject *self, PyObject *value, void *unused)
{
    (void)unused;
    const long number = value ? PyLong_AsLong(value) : 0;
    if (PyErr_Occurred()) return -1;
    if (number < 1 || number > ((core_object *)self)->nstreams) {
        PyErr_Format(PyExc_ValueError, "the recording has no stream %ld", number);
        return -1;
    }
    me.stream = (int)number;
    return 0;
}

static PyObject *get_category(PyObject *self, void *unused)
{
    (void)self, (void)unused;
    return me.category ? PyUnicode_FromString(me.category) : Py_NewRef(Py_None);
}

static int set_category(PyObject *self, PyObject *value, void *unused)
{
    (void)self, (void)unused;
    if (!value || value == Py_None) {
        me.category = NULL;
        return 0;
    }
    const char *text = PyUnicode_AsUTF8AndSize(value, NULL);
    for (size_t i = 0; text && i < sizeof categories / sizeof categories[0]; i++) {
        if (strcmp(text, categories[i]) == 0) {
            me.category = categories[i];
            return 0;
        }
    }
    if (text) PyErr_Format(PyExc_ValueError, "'%s' is no category of memory", text);
    return -1;
}

static PyGetSetDef settings[] = {
    { "inside", get_inside, NULL, "Is this thread in a kernel?", NULL },
    { "to_device", get_to_device, set_to_device, "True, False, or None: not asked.", NULL },
    { "stream", get_stream, set_stream, "The thread's current stream.", NULL },
    { "category", get_category, set_category, "Of new storages; None: by the op.", NULL },
    { NULL, NULL, NULL, NULL, NULL },
};

/* run_kernel(function, args, kwargs): tensors report where their bytes are. */
static PyObject *run_kernel(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *function, *inputs, *kwargs = NULL;
    if (!PyArg_ParseTuple(args, "OO!|O!", &function, &PyTuple_Type, &inputs, &PyDict_Type, &kwargs))
        return NULL;
    me.inside++;
    PyObject *out = PyObject_Call(function, inputs, kwargs);
    me.inside--;
    return out;
}

/* run_silent(function, args): its ops have no lines. */
static PyObject *run_silent(PyObject *self, PyObject *args)
{
    me.silent++;
    PyObject *out = run_kernel(self, args);
    me.silent--;
    return out;
}

static PyObject *site(PyObject *self, PyObject *unused)
{
    (void)unused;
    const long number = site_here((core_object *)self);
    return number < 0 ? NULL : PyLong_FromLong(number);
}

static int init(PyObject *self, PyObject *args, PyObject *kwargs)
{
    (void)kwargs;
    core_object *core = (core_object *)self;
    unsigned long long host_op_ns = 0, poll_ns = 0;
    PyObject *capsule = Py_None;
    if (core->mutex) {
        PyErr_SetString(PyExc_RuntimeError, "a recorder begins once");
        return -1;
    }
    if (!PyArg_ParseTuple(args, "OOOOOOKK", &core->tensor_class, &core->untyped_storage,
                          &core->current_node, &core->is_grad_enabled, &core->backing, &capsule,
                          &host_op_ns, &poll_ns))
        return -1;
    Py_INCREF(core->tensor_class);
    Py_INCREF(core->untyped_storage);
    Py_INCREF(core->current_node);
    Py_INCREF(core->is_grad_enabled);
    Py_INCREF(core->backing);
    if (!PyType_Check(core->tensor_class)) {
        PyErr_SetString(PyExc_TypeError, "the first argument is torch.Tensor's base class");
        return -1;
    }
    /* The table of the DLPack specification: version, an older table, then functions; the fourth
     * describes a tensor that its owner keeps. */
    const struct {
        uint32_t major, minor;
        void *older, *functions[3];
        dl_from_object from_object;
    } *exchange = NULL;
    if (capsule != Py_None) {
        exchange = PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
        if (!exchange) return -1;
    }
    if (exchange && exchange->major == 1) core->from_object = exchange->from_object;
    core->host_op_ns = host_op_ns;
    core->poll_ns = poll_ns;
    core->texts = PyDict_New();
    core->mutex = PyThread_allocate_lock();
    if (!core->mutex) PyErr_NoMemory();
    core->start_ns = core_clock();
    for (int i = 0; i < ENGINES; i++)
        if (stream_open(core) < 0) return -1;
    core->is_on = core->texts && core->mutex;
    return core->is_on ? 0 : -1;
}

/* A recorder lives as long as the process: mode, patches and weak references keep it. */
static PyObject *make_type(void)
{
    static PyMethodDef own[] = {
        { "record", core_record, METH_VARARGS,
          "record(func, args, kwargs, out, node): writes an op that has run." },
        { "run_kernel", run_kernel, METH_VARARGS, "run_kernel(function, args, kwargs)" },
        { "run_silent", run_silent, METH_VARARGS, "run_silent(function, args)" },
        { "site", site, METH_NOARGS, "The number of the call site; 0: none." },
    };
    enum { MOST = 48 };
    static PyMethodDef methods[MOST];
    size_t count = 0;
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++) methods[count++] = own[i];
    for (PyMethodDef *m = line_methods; m->ml_name && count < MOST - 1; m++) methods[count++] = *m;
    for (PyMethodDef *m = storage_methods; m->ml_name && count < MOST - 1; m++)
        methods[count++] = *m;
    static PyType_Slot slots[] = { { Py_tp_init, (void *)init },
                                   { Py_tp_methods, methods },
                                   { Py_tp_members, members },
                                   { Py_tp_getset, settings },
                                   { 0, NULL } };
    static PyType_Spec spec = { .name = "ferry.torch_record._recorder.Core",
                                .basicsize = sizeof(core_object),
                                .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
                                .slots = slots };
    return PyType_FromSpec(&spec);
}

static struct PyModuleDef definition = { .m_base = PyModuleDef_HEAD_INIT,
                                         .m_name = "_recorder",
                                         .m_size = -1 };

struct interned interned;

static bool interned_init(void)
{
    const struct {
        PyObject **at;
        const char *text;
    } all[] = { { &interned.device, "device" }, { &interned.pin_memory, "pin_memory" },
                { &interned.name, "name" },     { &interned.f_lasti, "f_lasti" },
                { &interned.f_back, "f_back" }, { &interned.nbytes, "nbytes" } };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (!(*all[i].at = PyUnicode_InternFromString(all[i].text))) return false;
    return true;
}

PyMODINIT_FUNC PyInit__recorder(void);
PyMODINIT_FUNC PyInit__recorder(void)
{
    PyObject *module = PyModule_Create(&definition);
    PyObject *type = module && interned_init() && storages_init() ? make_type() : NULL;
    core_type = (PyTypeObject *)type;
    PyObject *mode = type ? dispatch_type() : NULL;
    if (!mode || PyModule_AddObjectRef(module, "Core", type) < 0 ||
        PyModule_AddObjectRef(module, "Dispatch", mode) < 0)
        Py_CLEAR(module);
    Py_XDECREF(mode);
    return module;
}
