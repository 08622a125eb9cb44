/* Which torch storages are device memory or page-locked memory. A storage's Python object lives as
 * long as its bytes, so its address is the key and a weak reference to it reports its end. The
 * callback of that reference may run in any call of Python: it takes no lock and writes nothing,
 * the next line does (storages_free_dead). */
#include <stdlib.h>
#include <string.h>

#include "recorder.h"

enum { BLOCK = 512, LINE_SIZE = 256 };

PyTypeObject *storage_type;

static PyMemberDef members[] = {
    { "number", T_ULONGLONG, offsetof(storage_object, number), READONLY, "In the file." },
    { "version", T_ULONGLONG, offsetof(storage_object, version), 0, "Its last write." },
    { "nbytes", T_ULONGLONG, offsetof(storage_object, nbytes), READONLY, "Of its block." },
    { NULL, 0, 0, 0, NULL },
};

static void storage_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    Py_XDECREF(((storage_object *)object)->ref);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

bool storages_init(void)
{
    static PyType_Slot slots[] = { { Py_tp_dealloc, (void *)storage_dealloc },
                                   { Py_tp_members, members },
                                   { 0, NULL } };
    static PyType_Spec spec = { .name = "ferry.torch_record._recorder.Storage",
                                .basicsize = sizeof(storage_object),
                                .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                                .slots = slots };
    storage_type = (PyTypeObject *)PyType_FromSpec(&spec);
    return storage_type != NULL;
}

/* A new reference; NULL without an exception: the tensor has no storage (sparse). */
static PyObject *torch_storage(core_object *core, PyObject *tensor)
{
    PyObject *storage = PyObject_CallFunctionObjArgs(core->untyped_storage, tensor, NULL);
    if (!storage) PyErr_Clear();
    return storage;
}

static storage_object *entry_of(core_object *core, PyObject *tensor)
{
    PyObject *storage = torch_storage(core, tensor);
    if (!storage) return NULL;
    storage_object *known = table_get(&core->storages, storage);
    Py_DECREF(storage); /* its tensor keeps it */
    return known;
}

storage_object *storage_of(core_object *core, PyObject *tensor)
{
    storage_object *known = entry_of(core, tensor);
    return known && !known->is_pinned ? known : NULL;
}

static bool reserve_dead(core_object *core)
{
    const size_t needed = core->storages.count + core->ndead + 1;
    if (needed <= core->dead_capacity) return true;
    storage_object **dead = realloc(core->dead, 2 * needed * sizeof(storage_object *));
    if (!is_allocated(dead)) return false;
    core->dead = dead;
    core->dead_capacity = 2 * needed;
    return true;
}

/* The callback of weak references. `dead` has room for each storage that lives. */
static PyObject *died(PyObject *self, PyObject *ref)
{
    core_object *core = (core_object *)self;
    storage_object *storage = table_get(&core->refs, ref);
    if (storage) {
        table_remove(&core->refs, ref);
        table_remove(&core->storages, storage->key);
        core->dead[core->ndead++] = storage; /* with the tables' reference */
    }
    Py_RETURN_NONE;
}

/* Adds a storage to the tables; a borrowed reference. */
static storage_object *enter(core_object *core, PyObject *torch, bool is_pinned)
{
    if (!core->on_death) core->on_death = PyObject_GetAttrString((PyObject *)core, "_died");
    if (!core->on_death || !reserve_dead(core)) return NULL;
    storage_object *made = (storage_object *)PyType_GenericAlloc(storage_type, 0);
    if (!made) return NULL;
    made->key = torch;
    made->is_pinned = is_pinned;
    made->ref = PyWeakref_NewRef(torch, core->on_death);
    if (!made->ref || !table_put(&core->refs, made->ref, made)) {
        Py_DECREF(made);
        return NULL;
    }
    if (!table_put(&core->storages, torch, made)) {
        table_remove(&core->refs, made->ref);
        Py_DECREF(made);
        return NULL;
    }
    return made;
}

static bool nbytes_of(PyObject *torch, uint64_t *out_nbytes)
{
    PyObject *answer = PyObject_CallMethodObjArgs(torch, interned.nbytes, NULL);
    if (answer) *out_nbytes = PyLong_AsUnsignedLongLong(answer);
    Py_XDECREF(answer);
    return !PyErr_Occurred();
}

static const char *pool_of(const storage_object *storage)
{
    return storage->is_pinned ? "pinned memory of sim:0" : "sim:0";
}

bool storages_free_dead(core_object *core)
{
    for (size_t i = 0; i < core->ndead; i++) {
        storage_object *storage = core->dead[i];
        if (!line_begin(core, "block_free", LINE_SIZE)) return false;
        text_put(&core->text, ",\"pool\":\"%s\",\"block\":%lu,\"bytes\":%lu", pool_of(storage),
                 storage->block, storage->nbytes);
        line_end(core);
        if (!storage->is_pinned) core->live -= storage->nbytes;
        Py_DECREF(storage);
    }
    core->ndead = 0;
    return true;
}

static bool block_line(core_object *core, const storage_object *storage, uint64_t requested,
                       const char *category, long site)
{
    if (!line_begin(core, "block_alloc", LINE_SIZE + strlen(category))) return false;
    text_put(&core->text,
             ",\"site\":%lu,\"pool\":\"%s\",\"block\":%lu,\"bytes\":%lu,\"requested_bytes\":%lu,"
             "\"category\":\"%s\"",
             (uint64_t)site, pool_of(storage), storage->block, storage->nbytes, requested,
             category);
    if (!storage->is_pinned) text_put(&core->text, ",\"stream\":%lu", (uint64_t)me.stream);
    line_end(core);
    return true;
}

static bool storage_line(core_object *core, const storage_object *storage, uint64_t requested)
{
    if (!line_begin(core, "storage", LINE_SIZE)) return false;
    text_put(&core->text, ",\"storage\":%lu,\"device\":\"sim:0\",\"bytes\":%lu,\"block\":%lu",
             storage->number, requested, storage->block);
    line_end(core);
    return true;
}

storage_object *storage_add(core_object *core, PyObject *tensor, const char *category, long site)
{
    PyObject *torch = torch_storage(core, tensor);
    uint64_t requested = 0;
    storage_object *storage = torch ? table_get(&core->storages, torch) : NULL;
    if (!storage && torch && nbytes_of(torch, &requested)) storage = enter(core, torch, false);
    if (torch && storage && storage->number == 0 &&
        !lines_reserve(core, 2, 2 * LINE_SIZE + strlen(me.category ? me.category : category)))
        storage = NULL;
    if (torch && storage && storage->number == 0) {
        storage->number = ++core->numbers;
        storage->block = ++core->blocks;
        storage->nbytes = (requested + BLOCK - 1) / BLOCK * BLOCK;
        core->live += storage->nbytes;
        if (core->live > core->peak) core->peak = core->live;
        if (me.category) category = me.category;
        if (!block_line(core, storage, requested, category, site) ||
            !storage_line(core, storage, requested))
            storage = NULL;
    }
    Py_XINCREF((PyObject *)storage);
    Py_XDECREF(torch);
    if (!torch && !PyErr_Occurred())
        PyErr_SetString(PyExc_RuntimeError, "torch_record: a tensor of the device has no storage; "
                                            "sparse tensors are not covered");
    return storage;
}

/* ---- for Python ---- */

static PyObject *add(PyObject *self, PyObject *args)
{
    core_object *core = (core_object *)self;
    PyObject *tensor;
    const char *category;
    long site = 0;
    if (!PyArg_ParseTuple(args, "Os|l", &tensor, &category, &site)) return NULL;
    if (!storages_free_dead(core)) return NULL;
    return (PyObject *)storage_add(core, tensor, category, site);
}

/* find_storage(untyped storage) */
static PyObject *find_storage(PyObject *self, PyObject *torch)
{
    storage_object *known = table_get(&((core_object *)self)->storages, torch);
    return Py_NewRef(known && !known->is_pinned ? (PyObject *)known : Py_None);
}

static PyObject *has(PyObject *self, PyObject *tensor)
{
    return PyBool_FromLong(storage_of((core_object *)self, tensor) != NULL);
}

static PyObject *shows(PyObject *self, PyObject *tensor)
{
    return PyBool_FromLong(!me.inside && storage_of((core_object *)self, tensor) != NULL);
}

static PyObject *is_pinned(PyObject *self, PyObject *tensor)
{
    const storage_object *known = entry_of((core_object *)self, tensor);
    return PyBool_FromLong(known && known->is_pinned);
}

static PyObject *pin(PyObject *self, PyObject *tensor)
{
    core_object *core = (core_object *)self;
    if (!core->is_on || entry_of(core, tensor)) return Py_NewRef(tensor);
    PyObject *torch = torch_storage(core, tensor);
    uint64_t nbytes = 0;
    if (torch && nbytes_of(torch, &nbytes)) {
        core_lock(core);
        storage_object *storage = enter(core, torch, true);
        if (storage) {
            storage->block = ++core->pinned_blocks;
            storage->nbytes = nbytes;
            (void)block_line(core, storage, nbytes, "staging", 0);
        }
        core_unlock(core);
    }
    Py_XDECREF(torch);
    return PyErr_Occurred() ? NULL : Py_NewRef(tensor);
}

static PyObject *free_dead(PyObject *self, PyObject *unused)
{
    (void)unused;
    if (!storages_free_dead((core_object *)self)) return NULL;
    Py_RETURN_NONE;
}

static PyObject *new_number(PyObject *self, PyObject *unused)
{
    (void)unused;
    return PyLong_FromUnsignedLongLong(++((core_object *)self)->numbers);
}

PyMethodDef storage_methods[] = {
    { "add", add, METH_VARARGS, "add(tensor, category, site=0): its storage is device memory." },
    { "find_storage", find_storage, METH_O, "The device memory of an untyped storage, or None." },
    { "has", has, METH_O, "Is the tensor in device memory?" },
    { "shows", shows, METH_O, "The same for Python: not inside of kernels." },
    { "is_pinned", is_pinned, METH_O, "Is the tensor in page-locked memory?" },
    { "pin", pin, METH_O, "The tensor, whose storage is page-locked from now on." },
    { "free_dead", free_dead, METH_NOARGS, "Writes the frees since the last line." },
    { "new_number", new_number, METH_NOARGS, "Of a storage of the host." },
    { "_died", died, METH_O, NULL },
    { NULL, NULL, 0, NULL },
};
