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
        if (!words) {
            PyErr_NoMemory();
            return false;
        }
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

static uint64_t hash_of(const struct shapes *shapes)
{
    uint64_t hash = 0xCBF29CE484222325u;
    for (size_t i = 0; i < shapes->size; i++) {
        hash = (hash ^ (uint64_t)shapes->words[i]) * 0x9E3779B97F4A7C15u;
        hash ^= hash >> 29;
    }
    return hash;
}

static struct signature **slot_of(const core_object *core, const struct shapes *shapes,
                                  uint64_t hash)
{
    const size_t mask = core->signature_slots - 1;
    for (size_t i = hash & mask;; i = (i + 1) & mask) {
        struct signature *s = core->signatures[i];
        if (!s || (s->hash == hash && s->size == shapes->size &&
                   memcmp(s->words, shapes->words, s->size * sizeof *s->words) == 0))
            return &core->signatures[i];
    }
}

struct signature *signature_find(const core_object *core, const struct shapes *shapes,
                                 uint64_t *out_hash)
{
    *out_hash = hash_of(shapes);
    return core->signature_slots ? *slot_of(core, shapes, *out_hash) : NULL;
}

static bool grow(core_object *core)
{
    const size_t old_slots = core->signature_slots, slots = old_slots ? 2 * old_slots : 1024;
    struct signature **old = core->signatures;
    struct signature **made = calloc(slots, sizeof(struct signature *));
    if (!made) {
        PyErr_NoMemory();
        return false;
    }
    for (size_t i = 0; i < old_slots; i++) {
        if (!old[i]) continue;
        size_t at = old[i]->hash & (slots - 1);
        while (made[at]) at = (at + 1) & (slots - 1);
        made[at] = old[i];
    }
    free(old);
    core->signatures = made;
    core->signature_slots = slots;
    return true;
}

struct signature *signature_add(core_object *core, const struct shapes *shapes, uint64_t hash)
{
    if (2 * (core->nsignatures + 1) > core->signature_slots && !grow(core)) return NULL;
    struct signature *made = malloc(sizeof *made + shapes->size * sizeof *made->words);
    if (!made) {
        PyErr_NoMemory();
        return NULL;
    }
    *made = (struct signature){ .hash = hash, .size = shapes->size };
    memcpy(made->words, shapes->words, shapes->size * sizeof *made->words);
    *slot_of(core, shapes, hash) = made;
    made->id = (unsigned)++core->nsignatures;
    return made;
}
