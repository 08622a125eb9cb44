/* Values of Python as values of C. Each is checked: its type, its range, its length. */
#include <limits.h>
#include <string.h>

#include "bind.h"

int bind_refuse(const struct bind_place *place, PyObject *type, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    PyObject *text = PyUnicode_FromFormatV(format, arguments);
    va_end(arguments);
    if (text && place->index >= 0)
        PyErr_Format(type, "%s: %s[%zd] %U", place->function, place->name, place->index, text);
    else if (text)
        PyErr_Format(type, "%s: %s %U", place->function, place->name, text);
    Py_XDECREF(text);
    return -1;
}

static int refuse_kind(const struct bind_place *place, PyObject *value, const char *wanted)
{
    PyObject *name = PyType_GetName(Py_TYPE(value));
    if (name) bind_refuse(place, PyExc_TypeError, "is %U, not %s", name, wanted);
    Py_XDECREF(name);
    return -1;
}

static int append(PyObject **list, PyObject *object)
{
    int status = -1;
    if (object && (*list || (*list = PyList_New(0)))) status = PyList_Append(*list, object);
    Py_XDECREF(object);
    return status;
}

int bind_append(PyObject **list, PyObject *object)
{
    if (*list && (!object || PyList_Append(*list, object) < 0)) Py_CLEAR(*list);
    Py_XDECREF(object);
    return *list ? 0 : -1;
}

PyObject *bind_join(PyObject *list)
{
    PyObject *comma = PyUnicode_FromString(", ");
    PyObject *text = comma ? PyUnicode_Join(comma, list) : NULL;
    Py_XDECREF(comma);
    Py_DECREF(list);
    return text;
}

int bind_keep(struct bind_place *place, PyObject *object) { return append(&place->kept, object); }

uint32_t bind_size(const bind_type *type)
{
    if (type->kind == BIND_STRUCT) return ((const bind_struct *)type->of)->nbytes;
    return type->kind <= BIND_CHARS ? type->nbytes : sizeof(void *);
}

static void store(void *at, unsigned nbytes, uint64_t value)
{
    switch (nbytes) {
    case 1: *(uint8_t *)at = (uint8_t)value; break;
    case 2: *(uint16_t *)at = (uint16_t)value; break;
    case 4: *(uint32_t *)at = (uint32_t)value; break;
    default: *(uint64_t *)at = value; break;
    }
}

void bind_put_count(const bind_type *type, void *at, uint64_t count)
{
    store(at, type->nbytes, count);
}

PyObject *bind_show(PyObject *value)
{
    PyObject *text = PyObject_Str(value);
    if (text || !PyLong_Check(value) || !PyErr_ExceptionMatches(PyExc_ValueError)) return text;
    PyErr_Clear();
    PyObject *bits = PyObject_CallMethod(value, "bit_length", NULL);
    text = bits ? PyUnicode_FromFormat("an integer of %S bits", bits) : NULL;
    Py_XDECREF(bits);
    return text;
}

static int refuse_number(const struct bind_place *place, PyObject *number, const char *format,
                         long long low, unsigned long long high)
{
    PyObject *text = bind_show(number);
    if (text) bind_refuse(place, PyExc_OverflowError, format, text, low, high);
    Py_XDECREF(text);
    return -1;
}

/* The float, int or bool that a number of Python or NumPy is. A new reference, or NULL. */
static PyObject *number_of(PyObject *value, const struct bind_place *place, int is_integer)
{
    if (PyFloat_Check(value) || PyLong_Check(value)) return Py_NewRef(value);
    PyObject *number = bind_scalar_hook
                           ? PyObject_CallFunctionObjArgs(bind_scalar_hook, value, NULL)
                           : Py_NewRef(Py_None);
    if (number != Py_None) return number;
    Py_DECREF(number);
    number = is_integer && PyIndex_Check(value) ? PyNumber_Index(value) : NULL;
    if (number || (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_TypeError))) return number;
    PyErr_Clear();
    refuse_kind(place, value, is_integer ? "an integer" : "a number");
    return NULL;
}

static int put_integer(const bind_type *type, void *at, PyObject *value, struct bind_place *place)
{
    PyObject *number = number_of(value, place, 1);
    if (!number) return -1;
    if (!PyLong_Check(number)) {
        Py_DECREF(number);
        return refuse_kind(place, value, "an integer");
    }
    const unsigned bits = 8 * type->nbytes;
    const long long low = type->is_signed ? LLONG_MIN >> (64 - bits) : 0;
    const unsigned long long high = ULLONG_MAX >> (64 - bits + (unsigned)type->is_signed);
    int is_outside;
    uint64_t bytes;
    if (type->is_signed) {
        const long long given = PyLong_AsLongLongAndOverflow(number, &is_outside);
        is_outside |= given < low || given > (long long)high;
        bytes = (uint64_t)given;
    } else {
        bytes = PyLong_AsUnsignedLongLong(number);
        is_outside = PyErr_Occurred() || bytes > high;
        PyErr_Clear();
    }
    if (is_outside)
        refuse_number(place, number, "is %U; it is from %lld to %llu", low, high);
    else
        store(at, type->nbytes, bytes);
    Py_DECREF(number);
    return is_outside ? -1 : 0;
}

static int put_double(double *at, PyObject *value, struct bind_place *place)
{
    PyObject *number = number_of(value, place, 0);
    if (!number) return -1;
    *at = PyFloat_AsDouble(number);
    int is_same = *at == -1.0 && PyErr_Occurred() ? -1 : 1;
    if (is_same < 0 && PyErr_ExceptionMatches(PyExc_OverflowError)) is_same = 0;
    if (is_same > 0 && PyLong_Check(number)) {
        PyObject *back = PyLong_FromDouble(*at);
        is_same = back ? PyObject_RichCompareBool(number, back, Py_EQ) : -1;
        Py_XDECREF(back);
    }
    if (is_same == 0) {
        PyErr_Clear();
        refuse_number(place, number,
                      "is %U, and no double is equal to it: make a tensor of it, ferry.tensor(n)",
                      0, 0);
    }
    Py_DECREF(number);
    return is_same > 0 ? 0 : -1;
}

/* UTF-8 without a NUL inside. It lives as long as `value`. */
static const char *text_of(PyObject *value, Py_ssize_t *out_length, const struct bind_place *place)
{
    const char *text = NULL;
    if (PyUnicode_Check(value))
        text = PyUnicode_AsUTF8AndSize(value, out_length);
    else
        refuse_kind(place, value, "a str");
    if (text && strlen(text) != (size_t)*out_length) {
        bind_refuse(place, PyExc_ValueError, "has a NUL character");
        return NULL;
    }
    return text;
}

static int is_name(const char *name, const char *given)
{
    for (; *name; name++, given++) {
        const int is_upper = *given >= 'A' && *given <= 'Z';
        const int lower = is_upper ? *given + 'a' - 'A' : *given;
        if (*name != lower && !(*name == '_' && *given == '-')) return 0;
    }
    return !*given;
}

static int put_enum(const bind_type *type, void *at, PyObject *value, struct bind_place *place)
{
    const bind_enum *known = type->of;
    Py_ssize_t length;
    const int is_text = PyUnicode_Check(value);
    if (!is_text && (PyLong_CheckExact(value) || !known->is_dtype))
        return put_integer(type, at, value, place);
    const char *text = is_text ? text_of(value, &length, place) : NULL;
    if (is_text && !text) return -1;
    for (int i = 0; text && known->names[i]; i++)
        if (is_name(known->names[i], text)) {
            store(at, type->nbytes, (uint64_t)known->values[i]);
            return 0;
        }
    if (known->is_dtype && bind_dtype_hook) {
        PyObject *number = PyObject_CallFunctionObjArgs(bind_dtype_hook, value, NULL);
        const int status = number ? put_integer(type, at, number, place) : -1;
        Py_XDECREF(number);
        return status;
    }
    PyObject *list = PyList_New(0);
    for (int i = 0; list && known->names[i]; i++)
        bind_append(&list, PyUnicode_FromString(known->names[i]));
    PyObject *names = list ? bind_join(list) : NULL;
    if (names) bind_refuse(place, PyExc_ValueError, "is %R, which is not one of: %U", value, names);
    Py_XDECREF(names);
    return -1;
}

static int put_chars(const bind_type *type, char *at, PyObject *value, struct bind_place *place)
{
    Py_ssize_t length;
    const char *text = text_of(value, &length, place);
    if (!text) return -1;
    const Py_ssize_t most = type->nbytes == 1 ? 1 : (Py_ssize_t)type->nbytes - 1;
    if (length > most)
        return bind_refuse(place, PyExc_ValueError, "has %zd bytes, more than %zd", length, most);
    memset(at, 0, type->nbytes);
    memcpy(at, text, (size_t)length);
    return 0;
}

static int put_path(void **at, PyObject *value, struct bind_place *place)
{
    PyObject *bytes = NULL;
    if (!PyUnicode_FSConverter(value, &bytes)) return -1; /* refuses a NUL as well */
    *at = PyBytes_AsString(bytes);
    return bind_keep(place, bytes);
}

static int put_buffer(const bind_type *type, void **at, PyObject *value, struct bind_place *place)
{
    Py_buffer buffer;
    PyObject *view =
        PyMemoryView_FromObject(value); /* as long as it lives, the bytes do not move */
    if (!view) return -1;
    if (PyObject_GetBuffer(view, &buffer, PyBUF_SIMPLE) != 0) {
        Py_DECREF(view);
        return -1;
    }
    void *bytes = buffer.buf;
    place->count = (uint64_t)buffer.len;
    PyBuffer_Release(&buffer);
    if (bind_keep(place, view) < 0) return -1;
    if (place->count < type->nbytes)
        return bind_refuse(place, PyExc_ValueError, "has %llu bytes; C needs %u",
                           (unsigned long long)place->count, type->nbytes);
    *at = bytes;
    return 0;
}

static int put_tensor(void **at, PyObject *value, const struct bind_place *place)
{
    tensor_object *tensor = core_tensor(value);
    if (!tensor) return refuse_kind(place, value, "a Tensor: ferry.tensor(...) makes one");
    *at = tensor->handle;
    if (!*at) return bind_refuse(place, PyExc_ValueError, "is destroyed");
    if (!(place->flags & BIND_CONSUMED)) return 0;
    if (tensor->nbuffers)
        return bind_refuse(place, PyExc_BufferError,
                           "has %u buffers, such as memoryview: they go first",
                           (unsigned)tensor->nbuffers);
    if (tensor->model) return bind_refuse(place, PyExc_ValueError, "is its model's");
    tensor->handle = NULL;
    return 0;
}

/* The object of the package's classes has that of C in _as_parameter_. A new reference, or NULL. */
static PyObject *of_c(PyObject *value, const char *name, const struct bind_place *place)
{
    PyObject *inner = PyObject_GetAttr(value, bind_as_parameter);
    if (inner && inner != Py_None) return inner;
    if (inner)
        bind_refuse(place, PyExc_ValueError,
                    "is closed, waited for, part of something else, or not made yet");
    else if (PyErr_ExceptionMatches(PyExc_AttributeError)) {
        PyErr_Clear();
        refuse_kind(place, value, name);
    }
    Py_XDECREF(inner);
    return NULL;
}

static int put_handle(const bind_type *type, void **at, PyObject *value, struct bind_place *place)
{
    const bind_handle *kind = type->of;
    bind_handle_object *handle = bind_is_handle(value, kind);
    if (!handle) {
        PyObject *inner = of_c(value, kind->name, place);
        if (!inner) return -1;
        handle = bind_is_handle(inner, kind);
        if (!handle) refuse_kind(place, value, kind->name);
        if (bind_keep(place, inner) < 0 || !handle) return -1;
    }
    const tensor_object *owner = handle->owner ? core_tensor(handle->owner) : NULL;
    *at = owner && !owner->handle ? NULL : handle->pointer;
    if (!*at)
        return bind_refuse(place, PyExc_ValueError,
                           "is closed, waited for, part of something else, or not made yet");
    if (!(place->flags & BIND_CONSUMED)) return 0;
    if (handle->is_borrowed)
        return bind_refuse(place, PyExc_ValueError, "is borrowed: who owns it ends it");
    if (handle->ntensors)
        return bind_refuse(place, PyExc_BufferError,
                           "has %llu tensors, such as its parameters: they go first",
                           (unsigned long long)handle->ntensors);
    if (append(&place->taken, Py_NewRef((PyObject *)handle)) < 0) return -1;
    handle->taken = handle->pointer;
    handle->pointer = NULL;
    return 0;
}

static int put_fields(bind_struct_object *object, PyObject *values)
{
    Py_ssize_t given = 0;
    const Py_ssize_t most = PyTuple_Size(values);
    for (int i = 0; i < object->kind->nfields && given < most; i++) {
        const bind_field *field = &object->kind->fields[i];
        if (!field->name || field->count == -2) continue;
        if (bind_set_field(object, field, PyTuple_GetItem(values, given++)) < 0) return -1;
    }
    if (given == most) return 0;
    return core_failed(PyErr_Format(PyExc_ValueError, "%s has %zd fields, not %zd",
                                    object->kind->name, given, most));
}

static int check_pointers(const bind_struct_object *object, const struct bind_place *place);

static int check_kept(const bind_type *type, PyObject *kept, struct bind_place *place)
{
    void *pointer;
    if (kept == Py_None) return 0;
    switch (type->kind) {
    case BIND_TENSOR: return put_tensor(&pointer, kept, place);
    case BIND_HANDLE: return put_handle(type, &pointer, kept, place);
    case BIND_STRUCT:
    case BIND_POINTER: {
        const bind_struct_object *inner = bind_is_struct(kept, type->of);
        return inner ? check_pointers(inner, place) : 0;
    }
    case BIND_ARRAY:
        for (place->index = 0; place->index < PyTuple_Size(kept); place->index++)
            if (check_kept(type->of, PyTuple_GetItem(kept, place->index), place) < 0) return -1;
        return 0;
    default: return 0;
    }
}

/* Tensors and handles in a struct may have been destroyed since it was filled. */
static int check_pointers(const bind_struct_object *object, const struct bind_place *place)
{
    int status = 0;
    for (int i = 0; status == 0 && object->kept && i < object->kind->nfields; i++) {
        const bind_field *field = &object->kind->fields[i];
        if (!field->name) continue;
        struct bind_place inner = { place->function, field->name, .index = -1 };
        status = check_kept(field->type, bind_kept(object, field->name), &inner);
        Py_XDECREF(inner.kept);
    }
    return status;
}

/* A struct, by value or as a pointer; a tuple of its fields, or a str for the first one. */
static int put_struct(const bind_type *type, void *at, PyObject *value, struct bind_place *place)
{
    const bind_struct *kind = type->of;
    bind_struct_object *object = bind_is_struct(value, kind);
    if (object) {
        if (bind_keep(place, Py_NewRef(value)) < 0) return -1;
    } else if (PyTuple_Check(value) || PyUnicode_Check(value)) {
        PyObject *fields = PyTuple_Check(value) ? Py_NewRef(value) : PyTuple_Pack(1, value);
        object = fields ? bind_new_struct(kind) : NULL;
        const int status = object ? put_fields(object, fields) : -1;
        Py_XDECREF(fields);
        if (object && bind_keep(place, (PyObject *)object) < 0) return -1;
        if (status < 0) return -1;
    } else {
        PyObject *inner = of_c(value, kind->name, place);
        if (!inner) return -1;
        object = bind_is_struct(inner, kind);
        if (!object) refuse_kind(place, value, kind->name);
        if (bind_keep(place, inner) < 0 || !object) return -1;
    }
    if (check_pointers(object, place) < 0) return -1;
    place->made = (PyObject *)object;
    if (type->kind == BIND_POINTER)
        *(void **)at = object->bytes;
    else
        memcpy(at, object->bytes, kind->nbytes);
    if (!(place->flags & BIND_CONSUMED)) return 0;
    for (int i = 0; i < kind->nfields; i++) { /* a container consumes the layers of its children */
        const bind_field *field = &kind->fields[i];
        PyObject *kept = field->name ? bind_kept(object, field->name) : NULL;
        void *pointer;
        if (field->type->kind == BIND_ADDRESS && /* the token of a block, which is freed once */
            append(&place->tokens, Py_NewRef((PyObject *)object)) < 0)
            return -1;
        if (field->type->kind == BIND_HANDLE && kept && kept != Py_None &&
            put_handle(field->type, &pointer, kept, place) < 0)
            return -1;
    }
    return 0;
}

static int put_array(const bind_type *type, void **at, PyObject *value, struct bind_place *place)
{
    const bind_type *element = type->of;
    const char *const wanted = element->kind == BIND_INT ? "integers" : "a sequence";
    if (PyUnicode_Check(value) || PyBytes_Check(value) || PyByteArray_Check(value) ||
        PyDict_Check(value) || PyAnySet_Check(value))
        return refuse_kind(place, value, wanted);
    const int is_one = element->kind == BIND_INT && PyIndex_Check(value) &&
                       !PySequence_Check(value);
    PyObject *values = is_one ? PyTuple_Pack(1, value) : PySequence_Tuple(value);
    if (!values && PyErr_ExceptionMatches(PyExc_TypeError) && !PySequence_Check(value)) {
        PyErr_Clear();
        return refuse_kind(place, value, wanted);
    }
    if (!values) return -1;
    const Py_ssize_t count = PyTuple_Size(values);
    const uint32_t size = bind_size(element);
    PyObject *room = PyBytes_FromStringAndSize(NULL, (count + 1) * (Py_ssize_t)size);
    if (bind_keep(place, values) < 0 || bind_keep(place, room) < 0) return -1;
    char *bytes = PyBytes_AsString(room);
    memset(bytes, 0, ((size_t)count + 1) * size);
    if (count == 0 && place->flags & BIND_FILLED)
        return bind_refuse(place, PyExc_ValueError,
                           "is empty: None means all, a sequence has at least one");
    PyObject *made = NULL; /* of structs: what `values` became */
    if (element->kind == BIND_STRUCT) {
        made = PyTuple_New(count);
        if (bind_keep(place, made) < 0) return -1;
    }
    for (place->index = 0; place->index < count; place->index++) {
        PyObject *item = PyTuple_GetItem(values, place->index);
        if (bind_put(element, bytes + (size_t)place->index * size, item, place) < 0) return -1;
        if (made) PyTuple_SetItem(made, place->index, Py_NewRef(place->made));
    }
    place->made = made ? made : values;
    place->index = -1;
    place->count = (uint64_t)count;
    *at = bytes;
    return 0;
}

static int put_function(const bind_type *type, void *at, PyObject *value,
                        const struct bind_place *place)
{
    const bind_callback *callback = type->of;
    if (!PyCallable_Check(value)) return refuse_kind(place, value, "a function");
    if (!callback->trampoline)
        return bind_refuse(place, PyExc_TypeError, "cannot be a function of Python");
    memcpy(at, &callback->trampoline, sizeof callback->trampoline);
    return 0;
}

int bind_put(const bind_type *type, void *at, PyObject *value, struct bind_place *place)
{
    if (value == Py_None && type->kind >= BIND_TEXT && type->kind != BIND_STRUCT &&
        !(place->flags & BIND_NOT_NONE)) {
        *(void **)at = NULL;
        place->count = 0;
        return 0;
    }
    Py_ssize_t length;
    switch (type->kind) {
    case BIND_INT: return put_integer(type, at, value, place);
    case BIND_ENUM: return put_enum(type, at, value, place);
    case BIND_DOUBLE: return put_double(at, value, place);
    case BIND_CHARS: return put_chars(type, at, value, place);
    case BIND_TEXT: {
        const char *text = text_of(value, &length, place);
        memcpy(at, &text, sizeof text);
        place->count = text ? (uint64_t)length : 0;
        return text ? 0 : -1;
    }
    case BIND_PATH: return put_path(at, value, place);
    case BIND_ADDRESS:
        return put_integer(&(bind_type){ BIND_INT, .nbytes = sizeof(void *) }, at, value, place);
    case BIND_BYTES: return put_buffer(type, at, value, place);
    case BIND_TENSOR: return put_tensor(at, value, place);
    case BIND_HANDLE: return put_handle(type, at, value, place);
    case BIND_STRUCT:
    case BIND_POINTER: return put_struct(type, at, value, place);
    case BIND_ARRAY: return put_array(type, at, value, place);
    case BIND_FUNCTION: return put_function(type, at, value, place);
    case BIND_VOID: break;
    }
    return bind_refuse(place, PyExc_TypeError, "has no value in Python");
}
