/* Functions of Python that C calls. An exception becomes the status that C gets: its own if it is a
 * ferry.Error, else CANCELLED; the call of C around it raises the exception itself. */
#include <string.h>

#include "bind.h"

static void set_error(PyObject *error, int status)
{
    PyObject *text = PyObject_Str(error);
    if (text && PyUnicode_GetLength(text) == 0) {
        Py_DECREF(text);
        text = PyType_GetName(Py_TYPE(error));
    }
    const char *bytes = text ? PyUnicode_AsUTF8AndSize(text, NULL) : NULL;
    (void)!api.fy_error_set((fy_status_t)status, "python", 0, "%s", bytes ? bytes : "an exception");
    Py_XDECREF(text);
    PyErr_Clear();
}

/* The status of the exception that is set; it is kept for the call, or printed. */
static int fail(const bind_callback *callback)
{
    PyObject *type, *value, *traceback;
    const int has_status = callback->params[0].type->kind == BIND_ENUM;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    const int known = value ? core_status(value) : 0; /* of a ferry.Error */
    const int status = known ? known : FY_STATUS_CANCELLED;
    if (has_status && value) set_error(value, status);
    /* C has handled an earlier one of ferry.Error */
    if (bind_pending && (!bind_pending->type || bind_pending->status) && !callback->is_printed) {
        struct bind_pending before = *bind_pending;
        *bind_pending = (struct bind_pending){ type, value, traceback, has_status ? known : 0 };
        Py_XDECREF(before.type);
        Py_XDECREF(before.value);
        Py_XDECREF(before.traceback);
        return has_status ? status : 0;
    }
    PyErr_Restore(type, value, traceback);
    if (!has_status) PyErr_WriteUnraisable(NULL);
    PyErr_Clear();
    return has_status ? status : 0;
}

/* The callable, of a field of a struct or of a parameter. A new reference, or NULL. */
static PyObject *find(const bind_callback *callback, PyObject *user)
{
    if (PyList_Check(user)) return Py_XNewRef(PyList_GetItem(user, callback->index));
    PyObject *found = Py_XNewRef(bind_kept((bind_struct_object *)user, callback->name));
    /* a kernel has the `user` of its op: one function serves all backends */
    PyObject *kernels = found ? NULL : bind_kept((bind_struct_object *)user, "kernels");
    PyObject *first = kernels ? PySequence_GetItem(kernels, 0) : NULL;
    PyErr_Clear();
    if (first) found = Py_XNewRef(bind_kept((bind_struct_object *)first, callback->name));
    Py_XDECREF(first);
    return found;
}

static PyObject *arguments(const bind_callback *callback, union bind_slot *slots)
{
    PyObject *list = PyList_New(0);
    for (int i = 1; list && i < callback->nparams; i++) {
        const bind_param *param = &callback->params[i];
        if (param->role != BIND_IN && param->role != BIND_INOUT) continue;
        uint64_t count = 0;
        if (param->count)
            count = bind_get_count(callback->params[param->count].type, &slots[param->count]);
        if (param->length) count = param->length(slots);
        bind_append(&list, bind_get(param->type, &slots[i], 1, NULL, count));
    }
    PyObject *tuple = list ? PyList_AsTuple(list) : NULL;
    Py_XDECREF(list);
    return tuple;
}

/* Handles were borrowed for the call; numbers that were set in a struct are for C. */
static void take_back(const bind_callback *callback, union bind_slot *slots, PyObject *args)
{
    Py_ssize_t k = 0;
    for (int i = 1; i < callback->nparams; i++) {
        const bind_param *param = &callback->params[i];
        if (param->role != BIND_IN && param->role != BIND_INOUT) continue;
        PyObject *value = PyTuple_GetItem(args, k++);
        if (param->type->kind == BIND_HANDLE && value != Py_None)
            ((bind_handle_object *)value)->pointer = NULL;
        if (param->role != BIND_INOUT) continue;
        const bind_struct *kind = param->type->of;
        for (int f = 0; f < kind->nfields; f++) {
            const bind_field *field = &kind->fields[f];
            if (field->name && !field->length && field->type->kind <= BIND_DOUBLE)
                memcpy((char *)slots[i].p + field->offset,
                       ((bind_struct_object *)value)->bytes + field->offset,
                       bind_size(field->type));
        }
    }
}

/* Tensors become views in the scope that is open here: C owns them. */
static int hand_over(fy_tensor_t **tensors, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        if (tensors[i] && !(tensors[i] = bind_view_handle(tensors[i]))) return -1;
    return 0;
}

/* A result of the function, into what a parameter points to. */
static int put_result(const bind_callback *callback, union bind_slot *slots, int i, PyObject *value,
                      struct bind_place *place)
{
    const bind_param *param = &callback->params[i];
    const bind_type *type = param->type;
    place->name = param->name;
    place->flags = param->flags;
    if (type->kind == BIND_TENSOR && !core_tensor(value)) {
        PyObject *name = PyType_GetName(Py_TYPE(value));
        if (name) PyErr_Format(PyExc_TypeError, "the function returned %U, not a Tensor", name);
        Py_XDECREF(name);
        return -1;
    }
    if (type->kind != BIND_ARRAY) {
        const int status = bind_put(type, slots[i].p, value, place);
        return status == 0 && type->kind == BIND_TENSOR ? hand_over(slots[i].p, 1) : status;
    }
    const bind_type *element = type->of;
    void *values = NULL;
    const uint64_t most = param->length(slots);
    if (bind_put(type, &values, value, place) < 0) return -1;
    if (place->count > most || (!param->count && place->count != most))
        return bind_refuse(place, PyExc_ValueError, "has %llu elements; %s%llu",
                           (unsigned long long)place->count, param->count ? "at most " : "C takes ",
                           (unsigned long long)most);
    if (element->kind == BIND_TENSOR && hand_over(values, place->count) < 0) return -1;
    if (place->count) memcpy(slots[i].p, values, place->count * bind_size(element));
    if (param->count)
        bind_put_count(callback->params[param->count].type, slots[param->count].p, place->count);
    return 0;
}

static int put_results(const bind_callback *callback, union bind_slot *slots, PyObject *result)
{
    struct bind_place place = { callback->name, NULL, .index = -1 };
    Py_ssize_t count = 0, k = 0;
    int status = 0;
    for (int i = 1; i < callback->nparams; i++) count += callback->params[i].role == BIND_OUT;
    if (count > 1 && (!PyTuple_Check(result) || PyTuple_Size(result) != count))
        return core_failed(PyErr_Format(PyExc_TypeError, "%s: the function returns a tuple of %zd",
                                        callback->name, count));
    for (int i = 1; status == 0 && i < callback->nparams; i++) {
        if (callback->params[i].role != BIND_OUT) continue;
        PyObject *value = count > 1 ? PyTuple_GetItem(result, k++) : result;
        status = put_result(callback, slots, i, value, &place);
    }
    Py_XDECREF(place.kept);
    Py_XDECREF(place.taken);
    Py_XDECREF(place.tokens);
    return status;
}

static int run(const bind_callback *callback, PyObject *user, union bind_slot *slots)
{
    const bind_type *type = callback->params[0].type;
    PyObject *function = find(callback, user), *result = NULL;
    fy_scope_t scope = { 0, 0 };
    const int has_scope = callback->has_scope && function;
    if (has_scope) { /* tensors that are made in it belong to objects of Python */
        PyObject *name = PyObject_GetAttrString(function, "__name__");
        const char *text = name ? PyUnicode_AsUTF8AndSize(name, NULL) : NULL;
        PyErr_Clear();
        scope = api.fy_scope_begin_unowned(text ? text : "python");
        Py_XDECREF(name);
    }
    PyObject *args = function ? arguments(callback, slots) : NULL;
    if (args) {
        result = PyObject_CallObject(function, args);
        take_back(callback, slots, args);
    }
    if (has_scope) api.fy_scope_end(scope, 0, NULL);
    int status = result ? put_results(callback, slots, result) : -1, number = 0;
    if (status == 0 && type->kind == BIND_INT && result != Py_None)
        status = bind_put(type, &number, result,
                          &(struct bind_place){ callback->name, "result", .index = -1 });
    Py_XDECREF(args);
    Py_XDECREF(result);
    Py_XDECREF(function);
    return status == 0 ? number : fail(callback);
}

int bind_run(const bind_callback *callback, void *user, union bind_slot *slots)
{
    const int has_status = callback->params[0].type->kind == BIND_ENUM;
    if (!user || !core_may_run()) return has_status ? FY_STATUS_CANCELLED : 0;
    const PyGILState_STATE state = PyGILState_Ensure();
    int status = 0;
    /* of a walk, one exception is enough */
    if (has_status || callback->is_printed || !bind_pending || !bind_pending->type)
        status = run(callback, user, slots);
    if (callback->is_once) Py_DECREF((PyObject *)user);
    PyGILState_Release(state);
    return status;
}

void bind_release(void *user)
{
    if (!user || !core_may_run()) return;
    const PyGILState_STATE state = PyGILState_Ensure();
    Py_DECREF((PyObject *)user);
    PyGILState_Release(state);
}
