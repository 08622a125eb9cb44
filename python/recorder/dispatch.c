/* An op of PyTorch: what the mode's __torch_dispatch__ calls. Ops on the host run unchanged. Most
 * ops on the device run and get their line here; copies over the link, and what depends on a device
 * that Python asked for, go to Recorder.slow (mode.py). */
#include <stdlib.h>
#include <string.h>

#include "recorder.h"

/* The base of the mode: its method must be one of the mode's class. */
typedef struct {
    PyObject_HEAD core_object *core;
} mode_object;

/* ---- what is known of an op ---- */

static const struct op_info *describe(core_object *core, PyObject *func)
{
    PyObject *answer = PyObject_CallMethod((PyObject *)core, "describe", "O", func);
    struct op_info *made = answer ? calloc(1, sizeof *made) : NULL;
    PyObject *writes = NULL;
    int fills = 0, mixed = 0, masks = 0;
    unsigned long long reads_back = 0;
    if (made &&
        PyArg_ParseTuple(answer, "OOsiOOiiiK", &made->info, &made->call, &made->name, &made->kind,
                         &writes, &made->written_names, &fills, &mixed, &masks, &reads_back)) {
        made->fills = fills;
        made->mixed = mixed;
        made->masks = masks;
        made->reads_back = reads_back;
        const Py_ssize_t count = PyTuple_Size(writes);
        for (Py_ssize_t i = 0; i < count && made->nwrites < 8; i++)
            made->writes[made->nwrites++] = (int)PyLong_AsLong(PyTuple_GetItem(writes, i));
        if (!PyErr_Occurred() && table_put(&core->infos, func, made)) {
            Py_INCREF(func); /* with `answer`, for the life of the process: it owns all of these */
            return made;
        }
    }
    if (answer && !made) PyErr_NoMemory();
    Py_XDECREF(answer);
    free(made);
    return NULL;
}

const struct op_info *op_info_of(core_object *core, PyObject *func)
{
    const struct op_info *known = table_get(&core->infos, func);
    return known ? known : describe(core, func);
}

/* ---- running ---- */

static bool begin(core_object *core)
{
    core_lock(core);
    if (!core->wants_step) return true;
    PyObject *begun = PyObject_CallMethod((PyObject *)core, "begin_step", NULL);
    Py_XDECREF(begun);
    return begun != NULL;
}

static PyObject *run(core_object *core, const struct op_info *info, PyObject *func, PyObject *args,
                     PyObject *kwargs, struct operands *tensors)
{
    me.inside++;
    PyObject *out = PyObject_Call(info->call, args, kwargs);
    me.inside--;
    if (!out) return NULL;
    PyObject *node = PyObject_CallNoArgs(core->current_node);
    const bool ok = begin(core) && node &&
                    op_submit(core, info, func, args, kwargs, out, tensors, node);
    core_unlock(core);
    Py_XDECREF(node);
    if (!ok) Py_CLEAR(out);
    return out;
}

/* Does Python have to decide where the op runs, or what crosses the link? */
static bool is_special(core_object *core, const struct op_info *info,
                       const struct operands *tensors)
{
    if (me.to_device >= 0 || info->kind == OP_ITEM) return true;
    if (info->kind == OP_TO && tensors->size && !tensors->items[0].storage) return true;
    if (info->kind == OP_COPY && tensors->size == 2 &&
        !tensors->items[0].storage != !tensors->items[1].storage)
        return true;
    struct shapes shapes = { 0 };
    bool is_mixed = false;
    for (size_t i = 0; !info->mixed && !is_mixed && i < tensors->size; i++) {
        if (tensors->items[i].storage) continue; /* a scalar of the host may be beside them */
        bool has_axes = true;
        is_mixed = !shapes_add(core, &shapes, tensors->items[i].tensor, &has_axes) || has_axes;
    }
    PyErr_Clear();
    free(shapes.words);
    return is_mixed;
}

static PyObject *run_slow(core_object *core, const struct op_info *info, PyObject *func,
                          PyObject *args, PyObject *kwargs, const struct operands *tensors)
{
    PyObject *list = operands_tuple(tensors, false), *storages = operands_tuple(tensors, true);
    PyObject *out = NULL;
    if (list && storages)
        out = PyObject_CallMethod((PyObject *)core, "slow", "OOOOOO", info->info, func, args,
                                  kwargs ? kwargs : Py_None, list, storages);
    Py_XDECREF(list);
    Py_XDECREF(storages);
    return out;
}

/* Do the keyword arguments name a device that Python has to look at? With `some` operands on the
 * device, C++ passes on where their bytes are: that asks for nothing. */
static bool asks_for_device(core_object *core, PyObject *kwargs, bool some)
{
    PyObject *value = PyDict_GetItemWithError(kwargs, interned.device);
    if (value && value != Py_None &&
        !(some && PyObject_RichCompareBool(value, core->backing, Py_EQ) == 1))
        return true;
    value = PyDict_GetItemWithError(kwargs, interned.pin_memory);
    return value == Py_True;
}

/* __torch_dispatch__(func, types, args, kwargs) */
static PyObject *dispatch(PyObject *mode, PyObject *const *args, Py_ssize_t nargs)
{
    core_object *core = ((mode_object *)mode)->core;
    PyObject *self = (PyObject *)core;
    if (!core || nargs < 3 || !PyTuple_Check(args[2])) {
        PyErr_SetString(PyExc_TypeError, "__torch_dispatch__(func, types, args, kwargs)");
        return NULL;
    }
    PyObject *func = args[0], *inputs = args[2];
    PyObject *kwargs = nargs > 3 && PyDict_Check(args[3]) ? args[3] : NULL;
    const struct op_info *info = op_info_of(core, func);
    if (!info) return NULL;
    if (!core->is_on || me.silent || info->kind == OP_VIEW)
        return PyObject_Call(info->call, inputs, kwargs);
    struct operands tensors;
    operands_init(&tensors);
    PyObject *out = NULL;
    bool some = false;
    if (operands_collect(core, &tensors, inputs, kwargs)) {
        for (size_t i = 0; i < tensors.size; i++) some |= tensors.items[i].storage != NULL;
        const bool asks = kwargs && asks_for_device(core, kwargs, some);
        if (info->kind == OP_COMPOSITE && (some || asks || me.to_device >= 0))
            out = PyObject_CallMethod(self, "compose", "OOO", func, inputs,
                                      kwargs ? kwargs : Py_None);
        else if (!asks && !some && me.to_device < 0)
            out = PyObject_Call(info->call, inputs, kwargs); /* an op on the host */
        else if (asks || is_special(core, info, &tensors))
            out = run_slow(core, info, func, inputs, kwargs, &tensors);
        else
            out = run(core, info, func, inputs, kwargs, &tensors);
    }
    operands_free(&tensors);
    return out;
}

static int mode_init(PyObject *self, PyObject *args, PyObject *kwargs)
{
    (void)kwargs;
    PyObject *core;
    if (!PyArg_ParseTuple(args, "O!", core_type, &core)) return -1;
    ((mode_object *)self)->core = (core_object *)Py_NewRef(core);
    return 0;
}

PyObject *dispatch_type(void)
{
    static PyMethodDef methods[] = { { "__torch_dispatch__", (PyCFunction)(void (*)(void))dispatch,
                                       METH_FASTCALL, "Runs an op and writes its line." },
                                     { NULL, NULL, 0, NULL } };
    static PyType_Slot slots[] = { { Py_tp_init, (void *)mode_init },
                                   { Py_tp_methods, methods },
                                   { 0, NULL } };
    static PyType_Spec spec = { .name = "ferry.torch_record._recorder.Dispatch",
                                .basicsize = sizeof(mode_object),
                                .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
                                .slots = slots };
    return PyType_FromSpec(&spec);
}
