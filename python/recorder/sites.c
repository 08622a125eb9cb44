/* Call sites: the innermost line of the script, or of a library that is neither PyTorch nor the
 * recorder. Python (events.py) decides once for each code object, and numbers each instruction. */
#include "recorder.h"

static char skipped, counted; /* values of `codes` */

/* The key of an instruction in `sites`: a user address has 47 bits and code objects are aligned to
 * 16 bytes, which leaves 20 bits. Code objects are kept, so their addresses are not used again. */
static const void *key_of(const void *code, long lasti)
{
    const uintptr_t place = (uintptr_t)(lasti + 1);
    return (const void *)((uintptr_t)code ^ (place << 48) ^ ((place >> 16) & 15));
}

static bool is_skipped(core_object *core, PyObject *code, bool *out_skipped)
{
    const char *value = table_get(&core->codes, code);
    if (!value) {
        PyObject *answer = PyObject_CallMethod((PyObject *)core, "is_skipped", "O", code);
        const int skip = answer ? PyObject_IsTrue(answer) : -1;
        Py_XDECREF(answer);
        if (skip < 0) return false;
        value = skip ? &skipped : &counted;
        if (!table_put(&core->codes, code, (void *)(uintptr_t)value)) return false;
        Py_INCREF(code); /* for the life of the process */
    }
    *out_skipped = value == &skipped;
    return true;
}

static long number_of(core_object *core, PyObject *code, PyObject *frame)
{
    PyObject *last = PyObject_GetAttr(frame, interned.f_lasti);
    const long lasti = last ? PyLong_AsLong(last) : -1;
    Py_XDECREF(last);
    if (PyErr_Occurred()) return -1;
    const void *key = key_of(code, lasti);
    const uintptr_t known = (uintptr_t)table_get(&core->sites, key);
    if (known) return (long)known - 1;
    PyObject *made = PyObject_CallMethod((PyObject *)core, "add_site", "O", frame);
    const long number = made ? PyLong_AsLong(made) : -1;
    Py_XDECREF(made);
    if (number < 0 || !table_put(&core->sites, key, (void *)(uintptr_t)(number + 1))) return -1;
    return number;
}

long site_here(core_object *core)
{
    PyObject *frame = Py_XNewRef((PyObject *)PyEval_GetFrame());
    long number = 0;
    while (frame && frame != Py_None) {
        PyObject *code = (PyObject *)PyFrame_GetCode((PyFrameObject *)frame);
        bool skip = true;
        if (!is_skipped(core, code, &skip)) number = -1;
        if (!skip) number = number_of(core, code, frame);
        Py_DECREF(code);
        if (!skip || number < 0) break;
        PyObject *back = PyObject_GetAttr(frame, interned.f_back);
        Py_DECREF(frame);
        frame = back;
    }
    Py_XDECREF(frame);
    return PyErr_Occurred() ? -1 : number;
}
