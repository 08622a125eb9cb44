/* Ctrl-C in a blocking wait of Ferry: the library calls a function every now and then, in which
 * Python runs its signal handlers. The exception of one waits here until the call has returned. */
#include "core.h"

static PyObject *type, *value, *traceback; /* guarded by the GIL */

static int run_handlers(void *unused)
{
    (void)unused;
    const PyGILState_STATE state = PyGILState_Ensure();
    const int has_failed = PyErr_CheckSignals() != 0;
    if (has_failed) {
        Py_CLEAR(type);
        Py_CLEAR(value);
        Py_CLEAR(traceback);
        PyErr_Fetch(&type, &value, &traceback);
    }
    PyGILState_Release(state);
    return has_failed;
}

void core_watch_signals(void) { api.fy_interrupt_set(run_handlers, NULL); }

PyObject *core_raise_interrupt(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    if (!type) Py_RETURN_NONE;
    PyErr_Restore(type, value, traceback);
    type = value = traceback = NULL;
    return NULL;
}
