/* t[key]: for each part of the key a view of the view before, by the calls of ferry._c. */
#include <stddef.h>

#include "bind.h"

#define NUMBER(call) (offsetof(union core_api, call) / sizeof api.addresses[0])

/* *view = bind_functions[call](*view, numbers...); 0, or -1 with an exception. */
static int replace(PyObject **view, size_t call, int count, const Py_ssize_t *numbers)
{
    PyObject *args[5] = { *view };
    int n = 1;
    while (n <= count && (args[n] = PyLong_FromSsize_t(numbers[n - 1]))) n++;
    *view = n > count ? bind_call(&bind_functions[call], args, n, NULL) : NULL;
    while (n > 0) Py_DECREF(args[--n]);
    return *view ? 0 : -1;
}

static int take_slice(PyObject **view, Py_ssize_t axis, PyObject *key, Py_ssize_t length)
{
    Py_ssize_t begin, end, step;
    if (PySlice_Unpack(key, &begin, &end, &step) < 0) return -1;
    if (step < 1)
        return core_failed(PyErr_Format(PyExc_ValueError,
                                        "slices of tensors have steps of 1 or more: ferry.flip"));
    if (step == PY_SSIZE_T_MAX) { /* or more, which C cannot have */
        const bind_type type = { BIND_INT, .nbytes = sizeof step, .is_signed = 1 };
        struct bind_place place = { "slice_step", "step", .index = -1 };
        PyObject *given = PyObject_GetAttrString(key, "step");
        const int status = given ? bind_put(&type, &step, given, &place) : -1;
        Py_XDECREF(given);
        if (status < 0) return -1;
    }
    PySlice_AdjustIndices(length, &begin, &end, step);
    if (begin == 0 && end == length && step == 1) return 0;
    const Py_ssize_t numbers[] = { axis, begin, end > begin ? end : begin, step };
    return replace(view, NUMBER(fy_slice_step), 4, numbers);
}

/* `source`: the axis of the tensor, of which `axis` of the view is left. */
static int take_element(PyObject **view, Py_ssize_t axis, PyObject *key, Py_ssize_t length,
                        int source)
{
    PyObject *number = PyNumber_Index(key);
    if (!number &&
        (PyErr_ExceptionMatches(PyExc_TypeError) || PyErr_ExceptionMatches(PyExc_AttributeError))) {
        PyErr_Clear();
        PyObject *name = PyType_GetName(Py_TYPE(key));
        if (name)
            PyErr_Format(PyExc_TypeError,
                         "an index is an integer, a slice, None or ..., not %U; ferry.gather "
                         "takes rows by a tensor of indices",
                         name);
        Py_XDECREF(name);
    }
    if (!number) return -1;
    int is_outside;
    long long at = PyLong_AsLongLongAndOverflow(number, &is_outside);
    is_outside |= at < -length || at >= length;
    PyObject *text = is_outside ? bind_show(number) : NULL;
    if (text)
        PyErr_Format(PyExc_IndexError, "index %U of axis %d, whose length is %zd", text, source,
                     length);
    Py_XDECREF(text);
    Py_DECREF(number);
    if (is_outside) return -1;
    if (at < 0) at += length;
    const Py_ssize_t numbers[] = { axis, (Py_ssize_t)at, (Py_ssize_t)at + 1 };
    if (replace(view, NUMBER(fy_slice), 3, numbers) < 0) return -1;
    return replace(view, NUMBER(fy_squeeze), 1, numbers);
}

static int take_keys(PyObject **view, PyObject *keys, const fy_tensor_info_t *info)
{
    const Py_ssize_t count = PyTuple_Size(keys);
    Py_ssize_t dots = 0, given = 0, axis = 0; /* axis: of the view, the next one */
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *key = PyTuple_GetItem(keys, i);
        if (PyBool_Check(key))
            return core_failed(PyErr_Format(PyExc_TypeError, "an index is no bool; ferry.where "
                                                             "takes elements by a bool tensor"));
        dots += key == Py_Ellipsis;
        given += key != Py_Ellipsis && key != Py_None;
    }
    if (dots > 1)
        return core_failed(PyErr_Format(PyExc_IndexError, "an index has one ... at most"));
    if (given > info->rank)
        return core_failed(PyErr_Format(PyExc_IndexError, "%zd indices for a tensor of rank %d",
                                        given, info->rank));
    for (Py_ssize_t i = 0, source = 0, status = 0; i < count; i++) {
        PyObject *key = PyTuple_GetItem(keys, i);
        const Py_ssize_t length = source < info->rank ? (Py_ssize_t)info->dims[source] : 0;
        const int is_element = !PySlice_Check(key) && key != Py_None && key != Py_Ellipsis;
        if (is_element)
            status = take_element(view, axis, key, length, (int)source);
        else if (key == Py_None)
            status = replace(view, NUMBER(fy_unsqueeze), 1, &axis);
        else if (key != Py_Ellipsis)
            status = take_slice(view, axis, key, length);
        if (status < 0) return -1;
        source += key == Py_Ellipsis ? info->rank - given : key != Py_None;
        axis += key == Py_Ellipsis ? info->rank - given : !is_element;
    }
    return 0;
}

PyObject *tensor_subscript(PyObject *self, PyObject *key)
{
    fy_tensor_info_t info;
    if (core_query(self, &info) < 0) return NULL;
    PyObject *view = Py_NewRef(self);
    PyObject *keys = PyTuple_Check(key) ? Py_NewRef(key) : PyTuple_Pack(1, key);
    if (!keys || take_keys(&view, keys, &info) < 0) Py_CLEAR(view);
    Py_XDECREF(keys);
    if (view != self) return view;
    fy_tensor_t *same = bind_view_handle(((tensor_object *)self)->handle);
    Py_DECREF(view);
    return same ? core_wrap(same) : NULL;
}

PyObject *tensor_row(PyObject *self, Py_ssize_t number)
{
    if (number < 0) /* PySequence_GetItem has added the length */
        return PyErr_Format(PyExc_IndexError, "there is no row %zd", number);
    PyObject *key = PyLong_FromSsize_t(number);
    PyObject *row = key ? tensor_subscript(self, key) : NULL;
    Py_XDECREF(key);
    return row;
}

Py_ssize_t tensor_length(PyObject *self)
{
    fy_tensor_info_t info;
    if (core_query(self, &info) < 0) return -1;
    if (info.rank) return (Py_ssize_t)info.dims[0];
    return core_failed(PyErr_Format(PyExc_TypeError, "a tensor of rank 0 has no length"));
}
