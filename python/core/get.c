/* Values of C as values of Python. */
#include <string.h>

#include "bind.h"

uint64_t bind_get_count(const bind_type *type, const void *at)
{
    switch (type->nbytes) {
    case 1: return *(const uint8_t *)at;
    case 2: return *(const uint16_t *)at;
    case 4: return type->is_signed ? (uint64_t) * (const int32_t *)at : *(const uint32_t *)at;
    default: return *(const uint64_t *)at;
    }
}

static PyObject *get_integer(const bind_type *type, const void *at)
{
    const uint64_t bytes = bind_get_count(type, at);
    if (!type->is_signed) return PyLong_FromUnsignedLongLong(bytes);
    return PyLong_FromLongLong(type->nbytes == 1 ? (int8_t)bytes : (long long)bytes);
}

static PyObject *get_text(const char *text, size_t length)
{
    return PyUnicode_DecodeUTF8(text, (Py_ssize_t)length, "replace");
}

fy_tensor_t *bind_view_handle(fy_tensor_t *borrowed)
{
    int order[FY_MAX_RANK];
    fy_tensor_info_t info = FY_TENSOR_INFO_INIT;
    fy_tensor_t *view = NULL;
    for (int i = 0; i < FY_MAX_RANK; i++) order[i] = i;
    fy_status_t status = api.fy_tensor_query(borrowed, &info);
    if (status == FY_STATUS_OK)
        status = api.fy_transpose(borrowed, info.rank ? order : NULL, &view);
    if (status != FY_STATUS_OK) core_raise(status);
    return view;
}

/* What C made is wrapped to the last element, so that nothing leaks if one fails. */
static PyObject *get_array(const bind_type *element, const char *bytes, int is_borrowed,
                           PyObject *owner, uint64_t count)
{
    PyObject *type = NULL, *value = NULL, *traceback = NULL;
    PyObject *tuple = PyTuple_New((Py_ssize_t)count);
    for (uint64_t i = 0; i < count; i++) {
        if (PyErr_Occurred()) {
            if (is_borrowed) break;
            PyErr_Fetch(&type, &value, &traceback);
        }
        PyObject *item = bind_get(element, bytes + i * bind_size(element), is_borrowed, owner, 0);
        if (type) {
            PyErr_Clear();
            PyErr_Restore(type, value, traceback);
            type = NULL;
        }
        if (item && tuple)
            PyTuple_SetItem(tuple, (Py_ssize_t)i, item);
        else
            Py_XDECREF(item);
    }
    if (PyErr_Occurred()) Py_CLEAR(tuple);
    return tuple;
}

/* The handle itself of a model's tensor, because tapes watch it: a view would be a constant. A
 * model that C destroys gives views: no Python object keeps it. */
static PyObject *get_borrowed(fy_tensor_t *tensor, PyObject *owner)
{
    const bind_handle *model = bind_find_handle("fy_model_t");
    const bind_handle_object *kept = owner ? bind_is_handle(owner, model) : NULL;
    if (kept && !kept->is_borrowed) return core_wrap_of(tensor, owner);
    fy_tensor_t *view = bind_view_handle(tensor);
    return view ? core_wrap(view) : NULL;
}

PyObject *bind_get(const bind_type *type, const void *at, int is_borrowed, PyObject *owner,
                   uint64_t count)
{
    void *pointer = NULL;
    if (type->kind >= BIND_TEXT && type->kind != BIND_STRUCT) {
        memcpy(&pointer, at, sizeof pointer);
        if (!pointer) Py_RETURN_NONE;
    }
    switch (type->kind) {
    case BIND_INT:
    case BIND_ENUM: return get_integer(type, at);
    case BIND_DOUBLE: return PyFloat_FromDouble(*(const double *)at);
    case BIND_CHARS: return get_text(at, strnlen(at, type->nbytes));
    case BIND_TEXT: return get_text(pointer, strlen(pointer));
    case BIND_PATH: return PyUnicode_DecodeFSDefault(pointer);
    case BIND_ADDRESS: return PyLong_FromVoidPtr(pointer);
    case BIND_BYTES:
        return count ? PyBytes_FromStringAndSize(pointer, (Py_ssize_t)count) : Py_NewRef(Py_None);
    case BIND_TENSOR: return is_borrowed ? get_borrowed(pointer, owner) : core_wrap(pointer);
    case BIND_HANDLE: return bind_new_handle(type->of, pointer, is_borrowed, owner);
    case BIND_STRUCT: return bind_copy_struct(type->of, at, owner);
    case BIND_POINTER: return bind_copy_struct(type->of, pointer, owner);
    case BIND_ARRAY: return get_array(type->of, pointer, is_borrowed, owner, count);
    case BIND_FUNCTION:
    case BIND_VOID: break;
    }
    Py_RETURN_NONE;
}
