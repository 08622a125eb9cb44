/* Signatures: flops, bytes and model time of operands of one form, found by a hash of their shapes,
 * strides and dtypes, so that an op that runs again is not described again. */
#include <stdlib.h>
#include <string.h>

#include "recorder.h"

/* DLTensor of the DLPack specification, version 1. */
struct dl_tensor {
    void *data;
    int32_t device_type, device_id;
    int32_t ndim;
    struct {
        uint8_t code, bits;
        uint16_t lanes;
    } dtype;
    int64_t *shape, *strides;
    uint64_t byte_offset;
};

bool shapes_word(struct shapes *shapes, int64_t word)
{
    if (shapes->size == shapes->capacity) {
        const size_t capacity = shapes->capacity ? 2 * shapes->capacity : 256;
        int64_t *words = realloc(shapes->words, capacity * sizeof *words);
        if (!is_allocated(words)) return false;
        shapes->words = words;
        shapes->capacity = capacity;
    }
    shapes->words[shapes->size++] = word;
    return true;
}

/* The items of t.shape or t.stride(), which tuple owns. */
static bool add_tuple(struct shapes *shapes, PyObject *tuple)
{
    const Py_ssize_t count = tuple ? PyTuple_Size(tuple) : -1;
    bool ok = count >= 0;
    for (Py_ssize_t i = 0; ok && i < count; i++) {
        const long long item = PyLong_AsLongLong(PyTuple_GetItem(tuple, i));
        ok = !PyErr_Occurred() && shapes_word(shapes, item);
    }
    Py_XDECREF(tuple);
    return ok;
}

/* Tensors that DLPack does not describe, as those of the device "meta". */
static bool add_by_attributes(struct shapes *shapes, PyObject *tensor, bool *out_has_axes)
{
    PyObject *dtype = PyObject_GetAttrString(tensor, "dtype");
    PyObject *shape = dtype ? PyObject_GetAttrString(tensor, "shape") : NULL;
    bool ok = shape && shapes_word(shapes, (int64_t)(intptr_t)dtype) &&
              shapes_word(shapes, PyTuple_Size(shape));
    Py_XDECREF(dtype);
    *out_has_axes = ok && PyTuple_Size(shape) > 0;
    if (!ok) {
        Py_XDECREF(shape);
        return false;
    }
    return add_tuple(shapes, shape) &&
           add_tuple(shapes, PyObject_CallMethod(tensor, "stride", NULL));
}

bool shapes_add(core_object *core, struct shapes *shapes, PyObject *tensor, bool *out_has_axes)
{
    struct dl_tensor t;
    if (!core->from_object || core->from_object(tensor, &t) != 0) {
        PyErr_Clear();
        return add_by_attributes(shapes, tensor, out_has_axes);
    }
    *out_has_axes = t.ndim > 0;
    bool ok = shapes_word(shapes, -1 - (t.dtype.code | t.dtype.bits << 8 | t.dtype.lanes << 16)) &&
              shapes_word(shapes, t.ndim);
    for (int i = 0; ok && i < t.ndim; i++) ok = shapes_word(shapes, t.shape[i]);
    for (int i = 0; ok && i < t.ndim; i++) ok = shapes_word(shapes, t.strides ? t.strides[i] : -1);
    return ok;
}

/* The hash of the words, as a key in `signatures`, which is not NULL. */
static const void *key_of(const struct shapes *shapes)
{
    uint64_t hash = 0xCBF29CE484222325u;
    for (size_t i = 0; i < shapes->size; i++) {
        hash = (hash ^ (uint64_t)shapes->words[i]) * 0x9E3779B97F4A7C15u;
        hash ^= hash >> 29;
    }
    return (const void *)(uintptr_t)(hash | 1);
}

struct signature *signature_find(const core_object *core, const struct shapes *shapes)
{
    struct signature *found = table_get(&core->signatures, key_of(shapes));
    while (found && (found->size != shapes->size ||
                     memcmp(found->words, shapes->words, found->size * sizeof *found->words) != 0))
        found = found->next;
    return found;
}

struct signature *signature_add(core_object *core, const struct shapes *shapes)
{
    const void *key = key_of(shapes);
    struct signature *made = malloc(sizeof *made + shapes->size * sizeof *made->words);
    if (!is_allocated(made)) return NULL;
    *made = (struct signature){ .size = shapes->size, .next = table_get(&core->signatures, key) };
    memcpy(made->words, shapes->words, shapes->size * sizeof *made->words);
    if (!table_put(&core->signatures, key, made)) {
        free(made);
        return NULL;
    }
    made->id = ++core->nsignatures;
    return made;
}
