/* The line of an op that has run: its operands, the storages that it made, its signature. */
#include <stdlib.h>
#include <string.h>

#include "recorder.h"

enum { SHOWN = 8, OP_SIZE = 768, PAIR_SIZE = 48 };

void operands_init(struct operands *list)
{
    list->items = list->few;
    list->size = 0;
    list->capacity = FEW_OPERANDS;
}

void operands_free(struct operands *list)
{
    for (size_t i = 0; i < list->size; i++) {
        Py_DECREF(list->items[i].tensor);
        Py_XDECREF((PyObject *)list->items[i].storage);
    }
    if (list->items != list->few) free(list->items);
}

static bool push(struct operands *list, PyObject *tensor, storage_object *storage)
{
    if (list->size == list->capacity) {
        struct operand *items = malloc(2 * list->capacity * sizeof *items);
        if (!is_allocated(items)) return false;
        memcpy(items, list->items, list->size * sizeof *items);
        if (list->items != list->few) free(list->items);
        list->items = items;
        list->capacity *= 2;
    }
    list->items[list->size++] =
        (struct operand){ Py_NewRef(tensor), storage, storage ? storage->version : 0 };
    Py_XINCREF((PyObject *)storage);
    return true;
}

static bool is_tensor(const core_object *core, PyObject *object)
{
    return PyObject_TypeCheck(object, (PyTypeObject *)core->tensor_class);
}

/* Adds the tensors of a value: itself, or the items of a list or a tuple. */
static bool collect(core_object *core, struct operands *list, PyObject *value)
{
    if (is_tensor(core, value)) return push(list, value, storage_of(core, value));
    const bool is_list = PyList_Check(value);
    if (!is_list && !PyTuple_Check(value)) return true;
    const Py_ssize_t count = is_list ? PyList_Size(value) : PyTuple_Size(value);
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *item = is_list ? PyList_GetItem(value, i) : PyTuple_GetItem(value, i);
        if (item && is_tensor(core, item) && !push(list, item, storage_of(core, item)))
            return false;
    }
    return true;
}

bool operands_collect(core_object *core, struct operands *list, PyObject *args, PyObject *kwargs)
{
    const Py_ssize_t count = PyTuple_Size(args);
    for (Py_ssize_t i = 0; i < count; i++)
        if (!collect(core, list, PyTuple_GetItem(args, i))) return false;
    PyObject *key, *value;
    Py_ssize_t at = 0;
    while (kwargs && PyDict_Next(kwargs, &at, &key, &value))
        if (!collect(core, list, value)) return false;
    return true;
}

/* ---- lines ---- */

static bool put_pairs(core_object *core, const struct operand *items, size_t count, bool as_written)
{
    struct text *text = &core->text;
    if (!text_reserve(text, count * PAIR_SIZE)) return false;
    bool first = true;
    for (size_t i = 0; i < count; i++) {
        if (!items[i].storage) continue;
        text_put(text, "%s[%lu,%lu]", first ? "" : ",", items[i].storage->number,
                 as_written ? items[i].storage->version : items[i].version);
        first = false;
    }
    return true;
}

/* Removes operands of the host; references of the others stay. */
static void keep_device(struct operands *list)
{
    size_t kept = 0;
    for (size_t i = 0; i < list->size; i++) {
        if (list->items[i].storage)
            list->items[kept++] = list->items[i];
        else
            Py_DECREF(list->items[i].tensor);
    }
    list->size = kept;
}

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

/* Operands beyond the eighth of each list. */
static bool more_operands(core_object *core, const struct operands *src, const struct operands *dst)
{
    for (size_t at = SHOWN; at < src->size || at < dst->size; at += SHOWN) {
        struct text *text = &core->text;
        if (!line_begin(core, "operands", OP_SIZE)) return false;
        text_put(text, ",\"of\":%lu,\"src\":[", core->ops);
        if (at < src->size &&
            !put_pairs(core, src->items + at, least(SHOWN, src->size - at), false))
            return false;
        text_put(text, "],\"dst\":[");
        if (at < dst->size && !put_pairs(core, dst->items + at, least(SHOWN, dst->size - at), true))
            return false;
        text_put(text, "]");
        line_end(core);
    }
    return true;
}

/* The node's name; NULL without an exception: no node, the op is not part of a backward. */
static const char *name_of(PyObject *node, PyObject **out_name)
{
    *out_name = NULL;
    if (node == Py_None) return NULL;
    *out_name = PyObject_CallMethodObjArgs(node, interned.name, NULL);
    return *out_name ? PyUnicode_AsUTF8AndSize(*out_name, NULL) : NULL;
}

static bool op_line(core_object *core, const char *name, long site, const struct signature *form,
                    struct operands *src, struct operands *dst, const char *node)
{
    struct stream *stream = &core->streams[me.stream];
    if (stream->has_owes && !stream_pay(core, me.stream)) return false;
    keep_device(src);
    keep_device(dst);
    const size_t more = src->size > dst->size ? src->size / SHOWN : dst->size / SHOWN;
    if (!lines_reserve(core, 1 + more,
                       (1 + more) * OP_SIZE + (src->size + dst->size) * PAIR_SIZE + strlen(name) +
                           (node ? strlen(node) : 0)))
        return false;
    uint64_t start, end;
    clock_run(core, COMPUTE, stream, form->duration_ns, core->host_op_ns, &start, &end);
    if (!line_begin(core, "op", OP_SIZE + strlen(name) + (node ? strlen(node) : 0))) return false;
    stream->seq++;
    core->ops++;
    for (size_t i = 0; i < dst->size; i++) dst->items[i].storage->version++;
    struct text *text = &core->text;
    text_put(text,
             ",\"site\":%lu,\"number\":%lu,\"op\":\"%s\",\"device\":\"sim:0\",\"stream\":%lu,"
             "\"seq\":%lu,\"flops\":%lu,\"bytes\":%lu",
             (uint64_t)site, core->ops, name, (uint64_t)me.stream, stream->seq, form->flops,
             form->nbytes);
    if (form->has_line) text_put(text, ",\"signature\":%lu", (uint64_t)form->id);
    text_put(text, ",\"src\":[");
    if (!put_pairs(core, src->items, least(SHOWN, src->size), false)) return false;
    text_put(text, "],\"dst\":[");
    if (!put_pairs(core, dst->items, least(SHOWN, dst->size), true)) return false;
    text_put(text, "],\"model_start_ns\":%lu,\"model_end_ns\":%lu", start, end);
    if (node) text_put(text, ",\"node\":\"%s\"", node);
    line_end(core);
    return more_operands(core, src, dst) && core_flush(core, false);
}

/* ---- an op that has run ---- */

PyObject *operands_tuple(const struct operands *list, bool of_storages)
{
    PyObject *tuple = PyTuple_New((Py_ssize_t)list->size);
    for (size_t i = 0; tuple && i < list->size; i++) {
        PyObject *storage = (PyObject *)list->items[i].storage;
        PyObject *item = of_storages ? storage : list->items[i].tensor;
        PyTuple_SetItem(tuple, (Py_ssize_t)i, Py_NewRef(item ? item : Py_None));
    }
    return tuple;
}

/* The form of the operands: known, or described by Python, with its line. */
static const struct signature *form_of(core_object *core, const struct op_info *info,
                                       PyObject *func, PyObject *args, PyObject *kwargs,
                                       PyObject *out, const struct operands *sources,
                                       const struct operands *results)
{
    static _Thread_local struct shapes shapes;
    bool has_axes, ok;
    shapes.size = 0;
    ok = shapes_word(&shapes, (int64_t)(intptr_t)func) &&
         shapes_word(&shapes, (int64_t)sources->size);
    for (size_t i = 0; ok && i < sources->size; i++)
        ok = shapes_add(core, &shapes, sources->items[i].tensor, &has_axes);
    for (size_t i = 0; ok && i < results->size; i++)
        ok = shapes_add(core, &shapes, results->items[i].tensor, &has_axes);
    if (!ok) return NULL;
    struct signature *form = signature_find(core, &shapes);
    if (form && form->is_known) return form;
    /* before Python runs ops: shapes is the thread's */
    if (!form) form = signature_add(core, &shapes);
    if (!form) return NULL;
    me.inside++;
    PyObject *text = NULL, *answer = NULL, *src = operands_tuple(sources, false),
             *dst = operands_tuple(results, false);
    if (src && dst) {
        answer = PyObject_CallMethod((PyObject *)core, "sign", "OOOOOOO", info->info, func, args,
                                     kwargs ? kwargs : Py_None, out, src, dst);
    }
    me.inside--;
    Py_XDECREF(src);
    Py_XDECREF(dst);
    unsigned long long flops, nbytes, duration;
    ok = answer && PyArg_ParseTuple(answer, "OKKK", &text, &flops, &nbytes, &duration);
    Py_ssize_t size = 0;
    const char *line = ok && text != Py_None ? PyUnicode_AsUTF8AndSize(text, &size) : NULL;
    if (ok) {
        form->flops = flops;
        form->nbytes = nbytes;
        form->duration_ns = duration;
    }
    if (line) {
        ok = line_begin(core, "signature", (size_t)size + 64);
        if (ok) {
            form->has_line = true;
            text_put(&core->text, ",\"id\":%lu,", (uint64_t)form->id);
            text_bytes(&core->text, line, (size_t)size);
            line_end(core);
        }
    }
    Py_XDECREF(answer);
    form->is_known = ok && !PyErr_Occurred();
    return form->is_known ? form : NULL;
}

static const char *category_of(core_object *core, const struct op_info *info, PyObject *node)
{
    if (node != Py_None) return "gradients";
    PyObject *on = PyObject_CallNoArgs(core->is_grad_enabled);
    const bool is_on = on && PyObject_IsTrue(on);
    Py_XDECREF(on);
    return info->kind == OP_RUN && is_on ? "activations" : "other";
}

/* Operands that the op writes: arguments by index, and by name. */
static bool collect_written(core_object *core, const struct op_info *info, PyObject *args,
                            PyObject *kwargs, struct operands *written)
{
    for (int i = 0; i < info->nwrites; i++)
        if (info->writes[i] < PyTuple_Size(args) &&
            !collect(core, written, PyTuple_GetItem(args, info->writes[i])))
            return false;
    const Py_ssize_t names = kwargs ? PyTuple_Size(info->written_names) : 0;
    for (Py_ssize_t i = 0; i < names; i++) {
        PyObject *value = PyDict_GetItemWithError(kwargs, PyTuple_GetItem(info->written_names, i));
        if (value && !collect(core, written, value)) return false;
    }
    keep_device(written);
    return !PyErr_Occurred();
}

/* Adds the results whose storage is not known yet. */
static bool collect_new(core_object *core, PyObject *out, struct operands *fresh,
                        bool *out_has_tensors)
{
    struct operands outs;
    operands_init(&outs);
    bool ok = collect(core, &outs, out);
    for (size_t i = 0; ok && i < outs.size; i++)
        if (!outs.items[i].storage) ok = push(fresh, outs.items[i].tensor, NULL);
    *out_has_tensors = outs.size > 0;
    operands_free(&outs);
    return ok;
}

static bool add_new(core_object *core, struct operands *fresh, size_t from, const char *category,
                    long site)
{
    for (size_t i = from; i < fresh->size; i++) {
        storage_object *storage = storage_add(core, fresh->items[i].tensor, category, site);
        if (!storage) return false;
        fresh->items[i].storage = storage;
    }
    return true;
}

bool op_submit(core_object *core, const struct op_info *info, PyObject *func, PyObject *args,
               PyObject *kwargs, PyObject *out, struct operands *src, PyObject *node)
{
    struct operands dst;
    operands_init(&dst);
    bool ok = collect_written(core, info, args, kwargs, &dst), has_tensors = false;
    const size_t written = dst.size;
    PyObject *name = NULL;
    if (ok) ok = collect_new(core, out, &dst, &has_tensors);
    if (!ok || (dst.size == 0 && (has_tensors || !info->reads_back))) goto done; /* a view */
    if (info->fills && src->size && src->items[0].tensor == PyTuple_GetItem(args, 0)) {
        Py_DECREF(src->items[0].tensor); /* it is written without being read */
        Py_XDECREF((PyObject *)src->items[0].storage);
        memmove(src->items, src->items + 1, --src->size * sizeof *src->items);
    }
    ok = false;
    const long site = site_here(core);
    if (site < 0 || !storages_free_dead(core)) goto done;
    const char *category = dst.size > written ? category_of(core, info, node) : "";
    const char *node_name = name_of(node, &name);
    if (PyErr_Occurred() || !add_new(core, &dst, written, category, site)) goto done;
    if (info->kind == OP_EMPTY) {
        ok = true;
        goto done;
    }
    const struct signature *form = form_of(core, info, func, args, kwargs, out, src, &dst);
    bool masks = false;
    if (form && info->masks && src->size > 1) {
        PyObject *answer = PyObject_CallMethod((PyObject *)core, "has_mask", "(O)", args);
        masks = answer && PyObject_IsTrue(answer);
        Py_XDECREF(answer);
    }
    ok = form && !PyErr_Occurred() && op_line(core, info->name, site, form, src, &dst, node_name);
    if (ok && (info->reads_back || masks)) {
        /* a mask becomes a list of places, whose length the host must know */
        PyObject *from = src->size ? (PyObject *)src->items[0].storage : Py_None;
        PyObject *done = PyObject_CallMethod((PyObject *)core, "read_back", "KOsl",
                                             masks ? 4ull : (unsigned long long)info->reads_back,
                                             from, info->name, site);
        ok = done != NULL;
        Py_XDECREF(done);
    }
done:
    Py_XDECREF(name);
    operands_free(&dst);
    return ok;
}

/* record(func, args, kwargs, out, node): writes an op that has run, if it is no view. */
PyObject *core_record(PyObject *self, PyObject *args)
{
    core_object *core = (core_object *)self;
    PyObject *func, *inputs, *kwargs, *out, *node;
    if (!PyArg_ParseTuple(args, "OO!OOO", &func, &PyTuple_Type, &inputs, &kwargs, &out, &node))
        return NULL;
    if (!PyDict_Check(kwargs)) kwargs = NULL;
    const struct op_info *info = op_info_of(core, func);
    if (!info) return NULL;
    struct operands tensors;
    operands_init(&tensors);
    const bool ok = operands_collect(core, &tensors, inputs, kwargs) &&
                    op_submit(core, info, func, inputs, kwargs, out, &tensors, node);
    operands_free(&tensors);
    if (!ok) return NULL;
    Py_RETURN_NONE;
}
