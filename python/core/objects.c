/* The types of ferry._c: one for each handle and each struct of C. */
#include <stddef.h>
#include <string.h>

#include "bind.h"

enum { MOST_HANDLES = 64, MOST_STRUCTS = 256 };
PyTypeObject *bind_handle_types[MOST_HANDLES], *bind_struct_types[MOST_STRUCTS];
PyObject *bind_scalar_hook, *bind_dtype_hook, *bind_as_parameter;

/* ---- handles ---- */

const bind_handle *bind_find_handle(const char *name)
{
    const bind_handle *found = bind_handles;
    while (strcmp(found->name, name) != 0) found++;
    return found;
}

int bind_pointer(const char *handle, const char *function, const char *name, PyObject *value,
                 void **out)
{
    struct bind_place place = { function, name, .index = -1 };
    const bind_type type = { BIND_HANDLE, .of = bind_find_handle(handle) };
    const int status = bind_put(&type, out, value, &place);
    Py_XDECREF(place.kept); /* the caller has `value` */
    return status;
}

bind_handle_object *bind_is_handle(PyObject *object, const bind_handle *kind)
{
    const int is_one = PyObject_TypeCheck(object, bind_handle_types[kind - bind_handles]);
    return is_one ? (bind_handle_object *)object : NULL;
}

static void destroy(const bind_handle *kind, void *pointer)
{
    PyObject *type, *value, *traceback;
    if (!pointer || kind->destroys < 0 || !api.addresses[kind->destroys]) return;
    void (*function)(void *) = (void (*)(void *))api.addresses[kind->destroys];
    PyErr_Fetch(&type, &value, &traceback);
    PyThreadState *state = PyEval_SaveThread(); /* it may wait for a thread that needs the GIL */
    function(pointer);
    PyEval_RestoreThread(state);
    PyErr_Restore(type, value, traceback);
}

PyObject *bind_new_handle(const bind_handle *kind, void *pointer, int is_borrowed, PyObject *owner)
{
    bind_handle_object *self =
        (bind_handle_object *)PyType_GenericAlloc(bind_handle_types[kind - bind_handles], 0);
    if (!self) {
        if (!is_borrowed) destroy(kind, pointer);
        return NULL;
    }
    self->pointer = pointer;
    self->identity = (uintptr_t)pointer;
    self->kind = kind;
    self->owner = Py_XNewRef(owner);
    self->is_borrowed = is_borrowed;
    return (PyObject *)self;
}

static int traverse_handle(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(((bind_handle_object *)self)->owner);
    Py_VISIT(Py_TYPE(self));
    return 0;
}

static int clear_handle(PyObject *object)
{
    bind_handle_object *self = (bind_handle_object *)object;
    void *pointer = self->pointer;
    self->pointer = NULL;
    if (!self->is_borrowed) destroy(self->kind, pointer);
    Py_CLEAR(self->owner);
    return 0;
}

void bind_free(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static void dealloc_handle(PyObject *self)
{
    PyObject_GC_UnTrack(self);
    clear_handle(self);
    bind_free(self);
}

static PyObject *compare_handles(PyObject *a, PyObject *b, int how)
{
    if ((how != Py_EQ && how != Py_NE) || Py_TYPE(a) != Py_TYPE(b)) Py_RETURN_NOTIMPLEMENTED;
    const int same = ((bind_handle_object *)a)->identity == ((bind_handle_object *)b)->identity;
    return PyBool_FromLong(same == (how == Py_EQ));
}

static Py_hash_t hash_handle(PyObject *self)
{
    return (Py_hash_t)(((bind_handle_object *)self)->identity >> 4);
}

static PyTypeObject *make_handle_type(const bind_handle *kind)
{
    char name[80];
    PyType_Slot slots[] = {
        { Py_tp_dealloc, (void *)dealloc_handle }, { Py_tp_traverse, (void *)traverse_handle },
        { Py_tp_clear, (void *)clear_handle },     { Py_tp_richcompare, (void *)compare_handles },
        { Py_tp_hash, (void *)hash_handle },       { 0, NULL }
    };
    PyType_Spec spec = { .name = name,
                         .basicsize = sizeof(bind_handle_object),
                         .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC |
                                  Py_TPFLAGS_DISALLOW_INSTANTIATION,
                         .slots = slots };
    PyOS_snprintf(name, sizeof name, "ferry._c.%s", kind->name);
    return (PyTypeObject *)PyType_FromSpec(&spec);
}

/* ---- structs ---- */

bind_struct_object *bind_is_struct(PyObject *object, const bind_struct *kind)
{
    const int is_one = PyObject_TypeCheck(object, bind_struct_types[kind - bind_structs]);
    return is_one ? (bind_struct_object *)object : NULL;
}

static bind_struct_object *allocate(const bind_struct *kind, PyObject *parent, char *bytes)
{
    bind_struct_object *self =
        (bind_struct_object *)PyType_GenericAlloc(bind_struct_types[kind - bind_structs], 0);
    if (!self) return NULL;
    self->kind = kind;
    self->parent = Py_XNewRef(parent);
    self->bytes = bytes ? bytes : PyMem_Calloc(1, kind->nbytes);
    if (self->bytes) return self;
    Py_DECREF(self);
    PyErr_NoMemory();
    return NULL;
}

bind_struct_object *bind_new_struct(const bind_struct *kind)
{
    bind_struct_object *self = allocate(kind, NULL, NULL);
    if (!self) return NULL;
    const size_t nbytes = kind->nbytes;
    void *user = self;
    void (*released)(void *) = bind_release;
    if (kind->has_size) memcpy(self->bytes, &nbytes, sizeof nbytes);
    if (kind->init >= 0 && api.addresses[kind->init])
        ((void (*)(void *, size_t))api.addresses[kind->init])(self->bytes, nbytes);
    if (bind_follow(self, NULL) < 0) {
        Py_DECREF(self);
        return NULL;
    }
    if (kind->user >= 0) memcpy(self->bytes + kind->fields[kind->user].offset, &user, sizeof user);
    if (kind->destroy >= 0)
        memcpy(self->bytes + kind->fields[kind->destroy].offset, &released, sizeof released);
    return self;
}

static int is_kept(const bind_field *field)
{
    const enum bind_kind kind = field->type->kind;
    return field->name && !field->length && kind >= BIND_TEXT && kind != BIND_ADDRESS &&
           kind != BIND_STRUCT;
}

/* Takes the references. */
static int keep(bind_struct_object *self, const bind_field *field, PyObject *value,
                PyObject *needed)
{
    const Py_ssize_t count = self->kept ? 0 : 2 * (Py_ssize_t)self->kind->nfields;
    const Py_ssize_t at = 2 * (field - self->kind->fields);
    if (!self->kept) self->kept = PyList_New(count);
    for (Py_ssize_t i = 0; self->kept && i < count; i++)
        PyList_SetItem(self->kept, i, Py_NewRef(Py_None));
    if (self->kept && value) {
        PyList_SetItem(self->kept, at, value);
        PyList_SetItem(self->kept, at + 1, needed ? needed : Py_NewRef(Py_None));
        return 0;
    }
    Py_XDECREF(value);
    Py_XDECREF(needed);
    return -1;
}

PyObject *bind_kept(const bind_struct_object *self, const char *name)
{
    for (int i = 0; self->kept && i < self->kind->nfields; i++) {
        const char *known = self->kind->fields[i].name;
        if (known && strcmp(known, name) == 0) return PyList_GetItem(self->kept, 2 * i);
    }
    return NULL;
}

int bind_follow(bind_struct_object *self, PyObject *owner)
{
    for (int i = 0; i < self->kind->nfields; i++) {
        const bind_field *field = &self->kind->fields[i];
        void *pointer;
        if (!is_kept(field) || field->type->kind == BIND_FUNCTION) continue;
        memcpy(&pointer, self->bytes + field->offset, sizeof pointer);
        if (!pointer && !self->kept) continue;
        const uint64_t count = field->read_length ? field->read_length(self->bytes) : 0;
        PyObject *value = bind_get(field->type, self->bytes + field->offset, 1, owner, count);
        if (keep(self, field, value, NULL) < 0) return -1;
    }
    return 0;
}

PyObject *bind_copy_struct(const bind_struct *kind, const void *bytes, PyObject *owner)
{
    bind_struct_object *self = allocate(kind, NULL, NULL);
    size_t nbytes = kind->nbytes;
    if (!self) return NULL;
    if (kind->has_size && *(const size_t *)bytes < nbytes) nbytes = *(const size_t *)bytes;
    memcpy(self->bytes, bytes, nbytes); /* an older library has fewer fields */
    if (bind_follow(self, owner) == 0) return (PyObject *)self;
    Py_DECREF(self);
    return NULL;
}

static PyObject *get_field(PyObject *object, void *closure)
{
    bind_struct_object *self = (bind_struct_object *)object;
    const bind_field *field = closure;
    char *at = self->bytes + field->offset;
    if (field->length) {
        const bind_type array = { BIND_ARRAY, .of = field->type };
        return bind_get(&array, &at, 1, object, field->length);
    }
    if (field->type->kind == BIND_STRUCT) return (PyObject *)allocate(field->type->of, object, at);
    if (!is_kept(field)) return bind_get(field->type, at, 1, object, 0);
    PyObject *value = bind_kept(self, field->name);
    return Py_NewRef(value ? value : Py_None);
}

/* An array in the struct; elements behind those given are 0. */
static int set_array(bind_struct_object *self, const bind_field *field, PyObject *value,
                     struct bind_place *place)
{
    const uint32_t size = bind_size(field->type);
    const bind_type array = { BIND_ARRAY, .of = field->type };
    char *bytes = NULL;
    if (bind_put(&array, &bytes, value, place) < 0) return -1;
    if (place->count > field->length)
        return bind_refuse(place, PyExc_ValueError, "has %llu elements; at most %u",
                           (unsigned long long)place->count, field->length);
    memset(self->bytes + field->offset, 0, (size_t)size * field->length);
    if (bytes) memcpy(self->bytes + field->offset, bytes, (size_t)size * place->count);
    return 0;
}

int bind_set_field(bind_struct_object *self, const bind_field *field, PyObject *value)
{
    struct bind_place place = { self->kind->name, field->name, .index = -1 };
    void *at = self->bytes + field->offset;
    if (!value) return bind_refuse(&place, PyExc_TypeError, "cannot be deleted");
    if (field->count == -2)
        return bind_refuse(&place, PyExc_AttributeError, "cannot be set: C sets it, or its array");
    if (self->is_frozen)
        return bind_refuse(&place, PyExc_AttributeError,
                           "cannot be set: C uses the struct already");
    void *pointer = NULL; /* a pointer changes with what it needs, or not at all */
    int status = field->length    ? set_array(self, field, value, &place)
                 : is_kept(field) ? bind_put(field->type, &pointer, value, &place)
                                  : bind_put(field->type, at, value, &place);
    if (status == 0 && is_kept(field)) memcpy(at, &pointer, sizeof pointer);
    if (status == 0 && field->count >= 0) {
        const bind_field *count = &self->kind->fields[field->count];
        bind_put_count(count->type, self->bytes + count->offset, place.count);
    }
    if (status < 0 || !is_kept(field)) {
        Py_XDECREF(place.kept);
        return status;
    }
    if (field->type->kind == BIND_ARRAY && place.made) value = place.made;
    return keep(self, field, Py_NewRef(value), place.kept);
}

static int set_field(PyObject *self, PyObject *value, void *closure)
{
    return bind_set_field((bind_struct_object *)self, closure, value);
}

static const bind_field *find_field(const bind_struct *kind, PyObject *name)
{
    for (int i = 0; i < kind->nfields; i++) {
        const bind_field *field = &kind->fields[i];
        if (field->name && PyUnicode_CompareWithASCIIString(name, field->name) == 0) return field;
    }
    PyObject *list = PyList_New(0);
    for (int i = 0; list && i < kind->nfields; i++)
        if (kind->fields[i].name) bind_append(&list, PyUnicode_FromString(kind->fields[i].name));
    PyObject *known = list ? bind_join(list) : NULL;
    if (known)
        PyErr_Format(PyExc_TypeError, "%s has no field %R; it has: %U", kind->name, name, known);
    Py_XDECREF(known);
    return NULL;
}

/* Positional values are fields in order; all others have their defaults. */
static PyObject *make_struct(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    int number = 0;
    Py_ssize_t position = 0, given = 0;
    PyObject *name, *value;
    while (bind_struct_types[number] != type) number++;
    const bind_struct *kind = &bind_structs[number];
    bind_struct_object *self = bind_new_struct(kind);
    int status = self ? 0 : -1;
    for (int i = 0; status == 0 && i < kind->nfields && given < PyTuple_Size(args); i++)
        if (kind->fields[i].name && kind->fields[i].count != -2)
            status = bind_set_field(self, &kind->fields[i], PyTuple_GetItem(args, given++));
    if (status == 0 && given < PyTuple_Size(args))
        status = core_failed(PyErr_Format(PyExc_TypeError, "%s has %zd fields", kind->name, given));
    while (status == 0 && keywords && PyDict_Next(keywords, &position, &name, &value)) {
        const bind_field *field = find_field(kind, name);
        status = field ? bind_set_field(self, field, value) : -1;
    }
    if (status < 0) Py_CLEAR(self);
    return (PyObject *)self;
}

static int traverse_struct(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(((bind_struct_object *)self)->kept);
    Py_VISIT(((bind_struct_object *)self)->parent);
    Py_VISIT(((bind_struct_object *)self)->owner);
    Py_VISIT(Py_TYPE(self));
    return 0;
}

static int clear_struct(PyObject *self)
{
    Py_CLEAR(((bind_struct_object *)self)->kept);
    Py_CLEAR(((bind_struct_object *)self)->owner);
    return 0;
}

static void dealloc_struct(PyObject *object)
{
    bind_struct_object *self = (bind_struct_object *)object;
    PyObject_GC_UnTrack(object);
    clear_struct(object);
    if (!self->parent) PyMem_Free(self->bytes);
    Py_CLEAR(self->parent);
    bind_free(object);
}

static PyTypeObject *make_struct_type(const bind_struct *kind)
{
    char name[80];
    /* kept for ever, as the type is */
    PyGetSetDef *attributes = PyMem_Calloc((size_t)kind->nfields + 1, sizeof *attributes);
    PyObject *names = PyList_New(0), *type = NULL;
    PyType_Slot slots[] = { { Py_tp_new, (void *)make_struct },
                            { Py_tp_dealloc, (void *)dealloc_struct },
                            { Py_tp_traverse, (void *)traverse_struct },
                            { Py_tp_clear, (void *)clear_struct },
                            { Py_tp_getset, attributes },
                            { 0, NULL } };
    PyType_Spec spec = { .name = name,
                         .basicsize = sizeof(bind_struct_object),
                         .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
                         .slots = slots };
    PyOS_snprintf(name, sizeof name, "ferry._c.%s", kind->name);
    int status = attributes && names ? 0 : -1;
    for (int i = 0, count = 0; status == 0 && i < kind->nfields; i++) {
        const bind_field *field = &kind->fields[i];
        if (!field->name) continue;
        attributes[count++] =
            (PyGetSetDef){ field->name, get_field, set_field, .closure = (void *)(uintptr_t)field };
        status = bind_append(&names, PyUnicode_FromString(field->name));
    }
    if (status == 0) type = PyType_FromSpec(&spec);
    if (type && PyObject_SetAttrString(type, "_fields_", names) < 0) Py_CLEAR(type);
    Py_XDECREF(names);
    return (PyTypeObject *)type;
}

static int add(PyObject *dict, const char *name, PyObject *value)
{
    return value ? PyDict_SetItemString(dict, name, value) : -1;
}

static int add_new(PyObject *dict, const char *name, PyObject *value)
{
    const int status = add(dict, name, value);
    Py_XDECREF(value);
    return status;
}

int bind_add_types(PyObject *dict)
{
    bind_as_parameter = PyUnicode_InternFromString("_as_parameter_");
    int status = bind_nhandles <= MOST_HANDLES && bind_nstructs <= MOST_STRUCTS ? 0 : -1;
    if (!bind_as_parameter) status = -1;
    PyObject *names = PyList_New(0), *module = PyUnicode_FromString("ferry._c");
    for (int i = 0; status == 0 && i < bind_nhandles; i++) {
        if (!bind_handle_types[i]) bind_handle_types[i] = make_handle_type(&bind_handles[i]);
        status = add(dict, bind_handles[i].name, (PyObject *)bind_handle_types[i]);
    }
    for (int i = 0; status == 0 && i < bind_nstructs; i++) {
        if (!bind_struct_types[i]) bind_struct_types[i] = make_struct_type(&bind_structs[i]);
        status = add(dict, bind_structs[i].name, (PyObject *)bind_struct_types[i]);
    }
    for (int i = 0; status == 0 && i < bind_nconstants; i++) {
        const struct bind_constant *c = &bind_constants[i];
        status = add_new(dict, c->name,
                         c->is_unsigned ? PyLong_FromUnsignedLongLong((uint64_t)c->value)
                                        : PyLong_FromLongLong(c->value));
    }
    for (int i = 0; status == 0 && i < bind_nfunctions; i++) {
        status = bind_append(&names, PyUnicode_FromString(bind_functions[i].name));
        if (status == 0)
            status = add_new(dict, bind_functions[i].name,
                             PyCFunction_NewEx(&bind_methods[i], NULL, module));
    }
    if (status == 0) status = add(dict, "FUNCTIONS", names);
    Py_XDECREF(names);
    Py_XDECREF(module);
    return status;
}
