/* A call of C from Python: arguments by position or name, results as a value or a tuple. Handles
 * are converted last, because other arguments may run code of Python. Code that a handle's own
 * attribute runs, and other threads, must not destroy what the call uses. */
#include <string.h>

#include "bind.h"

enum { MOST_PARAMS = 24 };
_Thread_local struct bind_pending *bind_pending;

struct call {
    const bind_function *function;
    PyObject *given[MOST_PARAMS];
    union bind_slot slots[MOST_PARAMS], made[MOST_PARAMS]; /* made: what OUT points to */
    uint64_t counts[MOST_PARAMS];
    struct bind_place place;
    PyObject *context; /* `user` of callbacks, or NULL */
};

static int is_given(const bind_param *p) { return p->role == BIND_IN || p->role == BIND_INOUT; }

static int has_none(const bind_param *param)
{
    const enum bind_kind kind = param->type->kind;
    return kind >= BIND_TEXT && kind != BIND_STRUCT && !(param->flags & BIND_NOT_NONE);
}

static int refuse_call(const bind_function *function, const char *format, PyObject *name)
{
    PyObject *list = PyList_New(0), *text = PyUnicode_FromFormat(format, name);
    for (int i = 1; list && i < function->nparams; i++)
        if (is_given(&function->params[i]))
            bind_append(&list, PyUnicode_FromString(function->params[i].name));
    PyObject *all = list ? bind_join(list) : NULL;
    if (text && all) PyErr_Format(PyExc_TypeError, "%s(%U) %U", function->name, all, text);
    Py_XDECREF(text);
    Py_XDECREF(all);
    return -1;
}

static int collect(struct call *call, PyObject *const *args, Py_ssize_t nargs, PyObject *names)
{
    const bind_function *function = call->function;
    Py_ssize_t used = 0, nnames = names ? PyTuple_Size(names) : 0, matched = 0;
    for (int i = 1; i < function->nparams; i++) {
        const bind_param *param = &function->params[i];
        if (!is_given(param)) continue;
        call->given[i] = used < nargs ? args[used] : NULL;
        for (Py_ssize_t k = 0; k < nnames; k++) {
            PyObject *name = PyTuple_GetItem(names, k);
            if (PyUnicode_CompareWithASCIIString(name, param->name) != 0) continue;
            if (used < nargs) return refuse_call(function, "got %R twice", name);
            call->given[i] = args[nargs + k];
            matched++;
        }
        used++;
        if (!call->given[i] && has_none(param)) call->given[i] = Py_None;
        if (!call->given[i]) return refuse_call(function, "got too few arguments", NULL);
    }
    if (nargs > used) return refuse_call(function, "got too many arguments", NULL);
    return matched == nnames ? 0 : refuse_call(function, "has no parameters %R", names);
}

/* Sets the slot of a count; arrays that share it have one length. */
static int put_length(struct call *call, int i, uint32_t *counted)
{
    const bind_param *param = &call->function->params[i];
    const uint64_t count = call->place.count;
    call->counts[i] = count;
    if (!param->count) return 0;
    const int is_second = *counted >> param->count & 1;
    if (is_second && count != call->counts[param->count])
        return bind_refuse(&call->place, PyExc_ValueError, "has %llu elements, not %llu",
                           (unsigned long long)count,
                           (unsigned long long)call->counts[param->count]);
    *counted |= 1u << param->count;
    call->counts[param->count] = count;
    bind_put_count(call->function->params[param->count].type, &call->slots[param->count], count);
    return 0;
}

/* Values that may run code of Python are first, handles last. */
static int turn(const bind_type *type)
{
    if (type->kind == BIND_HANDLE || type->kind == BIND_TENSOR) return 2;
    if (type->kind == BIND_ARRAY) type = type->of;
    return type->kind >= BIND_TENSOR;
}

static int put_all(struct call *call)
{
    const bind_function *function = call->function;
    uint32_t counted = 0;
    for (int now = 0; now < 3; now++)
        for (int i = 1; i < function->nparams; i++) {
            const bind_param *param = &function->params[i];
            if (!is_given(param) || turn(param->type) != now) continue;
            call->place.name = param->name;
            call->place.flags = param->flags;
            call->place.count = 0;
            const bind_struct *kind = param->type->kind == BIND_POINTER ? param->type->of : NULL;
            if (kind && call->given[i] == Py_None && function->lifetime == BIND_RELEASED &&
                kind->destroy >= 0) { /* which has bind_release */
                call->given[i] = (PyObject *)bind_new_struct(kind);
                if (bind_keep(&call->place, call->given[i]) < 0) return -1;
            }
            if (param->role == BIND_INOUT && call->given[i] != Py_None) { /* read once */
                call->given[i] = PySequence_Tuple(call->given[i]);
                if (bind_keep(&call->place, call->given[i]) < 0) return -1;
            }
            if (bind_put(param->type, &call->slots[i], call->given[i], &call->place) < 0 ||
                put_length(call, i, &counted) < 0)
                return -1;
        }
    return 0;
}

static int check_lengths(struct call *call)
{
    const bind_function *function = call->function;
    for (int i = 1; i < function->nparams; i++) {
        const bind_param *param = &function->params[i];
        if (!is_given(param) || !param->length || !call->slots[i].p) continue;
        const uint64_t wanted = param->length(call->slots), given = call->counts[i];
        if (given == wanted || (param->type->kind == BIND_BYTES && given > wanted)) continue;
        call->place.name = param->name;
        return bind_refuse(
            &call->place, PyExc_ValueError, "has %llu %s; C needs %llu", (unsigned long long)given,
            param->type->kind == BIND_BYTES ? "bytes" : "elements", (unsigned long long)wanted);
    }
    return 0;
}

/* The arguments, and the objects that C needs; functions first: a callback finds its own there. */
static PyObject *list_all(const struct call *call)
{
    PyObject *list = PyList_New(0);
    for (int is_other = 0; list && is_other < 2; is_other++)
        for (int i = 1; list && i < call->function->nparams; i++) {
            const int is_function = call->function->params[i].type->kind == BIND_FUNCTION;
            if (call->given[i] && is_function != is_other)
                bind_append(&list, Py_NewRef(call->given[i]));
        }
    if (call->place.kept) bind_append(&list, Py_NewRef(call->place.kept));
    return list;
}

/* What a handle needs as long as it lives: other handles, and structs. C has references to tensors
 * itself, and copies of texts and bytes. */
static PyObject *list_needed(const struct call *call)
{
    PyObject *list = PyList_New(0);
    for (int i = 1; list && i < call->function->nparams; i++) {
        const enum bind_kind kind = call->function->params[i].type->kind;
        const int is_needed = kind == BIND_HANDLE || kind == BIND_POINTER || kind == BIND_STRUCT ||
                              kind == BIND_ARRAY;
        if (call->given[i] && is_needed) bind_append(&list, Py_NewRef(call->given[i]));
    }
    for (Py_ssize_t i = 0; list && call->place.kept && i < PyList_Size(call->place.kept); i++) {
        PyObject *kept = PyList_GetItem(call->place.kept, i);
        if (!PyBytes_Check(kept) && !PyMemoryView_Check(kept)) bind_append(&list, Py_NewRef(kept));
    }
    return list;
}

/* The length of a batch, which the handle has that was given first. */
static int count_of_batch(struct call *call, uint64_t *out_count)
{
    PyObject *inner = PyObject_GetAttr(call->given[1], bind_as_parameter);
    PyErr_Clear();
    bind_handle_object *handle =
        bind_is_handle(inner ? inner : call->given[1], call->function->params[1].type->of);
    const int is_same = handle && call->slots[1].p && handle->pointer == call->slots[1].p;
    if (is_same) *out_count = handle->count;
    Py_XDECREF(inner);
    call->place.name = call->function->params[1].name;
    return is_same ? 0 : bind_refuse(&call->place, PyExc_TypeError, "is not one handle");
}

/* Memory for results, the sizes of structs, and the context of callbacks. */
static int prepare(struct call *call)
{
    const bind_function *function = call->function;
    for (int i = 1; i < function->nparams; i++) {
        const bind_param *param = &function->params[i];
        const bind_type *type = param->type;
        union bind_slot *slot = &call->slots[i];
        if (param->role == BIND_NBYTES) slot->u64 = ((const bind_struct *)type->of)->nbytes;
        if (param->role == BIND_USER) {
            PyObject *given = call->given[param->count]; /* a struct that has the functions */
            if (param->count && given != Py_None &&
                !bind_is_struct(given, function->params[param->count].type->of)) {
                call->place.name = function->params[param->count].name;
                return bind_refuse(&call->place, PyExc_TypeError, "is no struct");
            }
            call->context = param->count ? Py_NewRef(given) : list_all(call);
            if (!call->context) return -1;
            slot->p = call->context == Py_None ? NULL : call->context;
        }
        if (param->role != BIND_OUT) continue;
        slot->p = &call->made[i];
        PyObject *room = NULL;
        if (type->kind == BIND_POINTER) {
            room = (PyObject *)bind_new_struct(type->of);
            call->given[i] = room;
            if (room) slot->p = ((bind_struct_object *)room)->bytes;
        } else if (type->kind == BIND_ARRAY || type->kind == BIND_BYTES) {
            const size_t size = type->kind == BIND_ARRAY ? bind_size(type->of) : 1;
            uint64_t count = call->counts[param->count];
            if (param->length) count = param->length(call->slots);
            if (param->count)
                bind_put_count(function->params[param->count].type, &call->slots[param->count],
                               count);
            if (!param->length && !param->count && count_of_batch(call, &count) < 0) return -1;
            call->counts[i] = count;
            if (count > PY_SSIZE_T_MAX / size - 1) return PyErr_NoMemory(), -1;
            room = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)((count + 1) * size));
            if (room) slot->p = memset(PyBytes_AsString(room), 0, (count + 1) * size);
        } else {
            continue;
        }
        if (bind_keep(&call->place, room) < 0) return -1;
    }
    return 0;
}

/* Small work on the host takes less time than letting other threads run. */
static int may_keep_gil(const struct call *call)
{
    enum { SMALL = 1 << 15 };
    const bind_function *function = call->function;
    const fy_device_t *host = api.fy_device_host();
    uint64_t work = 1;
    if (function->gil == BIND_RELEASES) return 0;
    for (int i = 1; i < function->nparams; i++) {
        const bind_param *param = &function->params[i];
        if (param->type->kind == BIND_HANDLE && call->slots[i].p != host) return 0;
        if (param->type->kind == BIND_ARRAY && param->count && call->slots[i].p &&
            function->gil == BIND_SMALL) {
            const bind_type *element = param->type->of;
            if (element->kind != BIND_INT) return 0;
            for (uint64_t k = 0; element->nbytes == 8 && k < call->counts[i]; k++)
                if (__builtin_mul_overflow(work, ((uint64_t *)call->slots[i].p)[k], &work))
                    return 0;
        }
        if (param->type->kind != BIND_TENSOR || param->role != BIND_IN || !call->slots[i].p)
            continue;
        const tensor_object *tensor = (tensor_object *)call->given[i];
        if (tensor->device != host) return 0;
        if (function->gil == BIND_SMALL &&
            (tensor->nelem > SMALL || (work *= tensor->nelem ? tensor->nelem : 1) > SMALL))
            return 0;
    }
    return function->gil == BIND_VIEW || work <= SMALL;
}

/* Gives handles back that the call did not consume. */
static void end_taking(const struct call *call, int is_called, int is_ok)
{
    int flags = 0, is_made = 1;
    for (int i = 1; is_called && i < call->function->nparams; i++) {
        const bind_param *param = &call->function->params[i];
        flags |= param->flags;
        if (param->role != BIND_OUT) continue;
        is_made = call->made[i].u64 != 0;
        break;
    }
    const int is_consumed = is_called && (is_ok || !(flags & (BIND_IF_OK | BIND_IF_MADE))) &&
                            (is_made || !(flags & BIND_IF_MADE));
    for (Py_ssize_t i = 0; call->place.taken && i < PyList_Size(call->place.taken); i++) {
        bind_handle_object *handle = (bind_handle_object *)PyList_GetItem(call->place.taken, i);
        if (!is_consumed) handle->pointer = handle->taken;
        handle->taken = NULL;
        if (is_consumed) Py_CLEAR(handle->owner);
    }
    for (Py_ssize_t i = 0; is_consumed && call->place.tokens && i < PyList_Size(call->place.tokens);
         i++) {
        bind_struct_object *block = (bind_struct_object *)PyList_GetItem(call->place.tokens, i);
        for (int k = 0; k < block->kind->nfields; k++)
            if (block->kind->fields[k].type->kind == BIND_ADDRESS)
                memset(block->bytes + block->kind->fields[k].offset, 0, sizeof(void *));
    }
}

static PyObject *get_result(struct call *call, int i, PyObject *owner)
{
    const bind_param *param = &call->function->params[i];
    const bind_type *type = param->type;
    const int is_borrowed = (param->flags & BIND_BORROWED) != 0;
    union bind_slot *slot = &call->slots[i];
    if (i == 0)
        return bind_get(type, slot, is_borrowed, owner,
                        param->length ? param->length(call->slots) : 0);
    if (type->kind == BIND_POINTER) {
        bind_struct_object *object = (bind_struct_object *)call->given[i];
        if (object->kind->user >= 0) object->owner = Py_XNewRef(owner);
        return bind_follow(object, owner) < 0 ? NULL : Py_NewRef((PyObject *)object);
    }
    if (type->kind == BIND_BYTES)
        return PyBytes_FromStringAndSize(slot->p, (Py_ssize_t)call->counts[i]);
    if (type->kind == BIND_ARRAY) return bind_get(type, slot, is_borrowed, owner, call->counts[i]);
    return bind_get(type, slot->p, is_borrowed, owner, 0);
}

/* fy_op_call: the given results, a tuple, and those that it made. */
static PyObject *get_made(const struct call *call, int i)
{
    PyObject *result = PyTuple_New((Py_ssize_t)call->counts[i]);
    for (uint64_t k = 0; k < call->counts[i]; k++) {
        PyObject *item = PyTuple_GetItem(call->given[i], (Py_ssize_t)k);
        fy_tensor_t *handle = ((fy_tensor_t **)call->slots[i].p)[k];
        item = item == Py_None ? core_wrap(handle) : Py_XNewRef(item);
        if (!item) Py_CLEAR(result);
        if (result)
            PyTuple_SetItem(result, (Py_ssize_t)k, item);
        else
            Py_XDECREF(item);
    }
    return result;
}

/* What keeps what C owns: of a model its own handle, which the call used; else the argument. */
static PyObject *find_owner(const struct call *call)
{
    const bind_param *param = &call->function->params[1];
    if (call->function->nparams < 2) return NULL;
    if (param->type->kind != BIND_HANDLE || param->type->of != bind_find_handle("fy_model_t"))
        return call->given[1];
    for (Py_ssize_t i = 0; call->place.kept && i < PyList_Size(call->place.kept); i++) {
        PyObject *kept = PyList_GetItem(call->place.kept, i);
        const bind_handle_object *handle = bind_is_handle(kept, param->type->of);
        if (handle && handle->pointer == call->slots[1].p) return kept;
    }
    return call->given[1];
}

static PyObject *get_all(struct call *call)
{
    const bind_function *function = call->function;
    PyObject *results[MOST_PARAMS], *owner = NULL, *all = NULL;
    Py_ssize_t count = 0;
    int has_failed = 0;
    PyObject *first = find_owner(call);
    for (int i = 0; i < function->nparams; i++) {
        const bind_param *param = &function->params[i];
        if (i == 0 && (function->is_status || param->type->kind == BIND_VOID)) continue;
        if (param->role != BIND_OUT && param->role != BIND_INOUT) continue;
        /* what a handle was made from lives as long */
        if (i > 0 && param->type->kind == BIND_HANDLE && !owner) {
            owner = call->context ? Py_NewRef(call->context) : list_needed(call);
            has_failed |= !owner;
        }
        PyObject *value = param->role == BIND_INOUT ? get_made(call, i)
                                                    : get_result(call, i, owner ? owner : first);
        has_failed |= !value;
        if (value && param->type->kind == BIND_HANDLE)
            for (int k = 1; k < function->nparams; k++)
                if (function->params[k].role == BIND_COUNT && value != Py_None)
                    ((bind_handle_object *)value)->count = call->counts[k];
        results[count++] = value;
    }
    if (!has_failed && count == 0) all = Py_NewRef(Py_None);
    if (!has_failed && count == 1) all = Py_NewRef(results[0]);
    if (!has_failed && count > 1) all = PyTuple_New(count);
    for (Py_ssize_t i = 0; i < count; i++)
        if (all && count > 1)
            PyTuple_SetItem(all, i, results[i]);
        else
            Py_XDECREF(results[i]);
    Py_XDECREF(owner);
    return all;
}

static PyObject *run(struct call *call)
{
    const bind_function *function = call->function;
    struct bind_pending pending = { .type = NULL }, *outer = bind_pending;
    if (function->lifetime == BIND_FOREVER && !call->context) call->context = list_all(call);
    if (call->context && function->lifetime != BIND_CALL) Py_INCREF(call->context);
    bind_pending = &pending;
    PyThreadState *state = may_keep_gil(call) ? NULL : PyEval_SaveThread();
    function->thunk(call->slots);
    if (state) PyEval_RestoreThread(state);
    bind_pending = outer;
    const fy_status_t status = function->is_status ? (fy_status_t)call->slots[0].i32 : FY_STATUS_OK;
    end_taking(call, 1, status == FY_STATUS_OK);
    if (status != FY_STATUS_OK && call->context && function->lifetime == BIND_ONCE)
        Py_DECREF(call->context);
    PyObject *result = NULL;
    if (status == FY_STATUS_OK) result = get_all(call);
    for (int i = 1; status == FY_STATUS_OK && i < function->nparams; i++)
        if (function->params[i].role == BIND_USER && function->params[i].count &&
            function->lifetime != BIND_CALL && call->context != Py_None)
            ((bind_struct_object *)call->context)->is_frozen = 1;
    /* of a ferry.Error, C may have handled the status, as a plan does that tries another batch */
    if (pending.type &&
        (!pending.status || !function->is_status || pending.status == (int)status)) {
        Py_CLEAR(result);
        PyErr_Clear();
        PyErr_Restore(pending.type, pending.value, pending.traceback);
        return NULL;
    }
    Py_XDECREF(pending.type);
    Py_XDECREF(pending.value);
    Py_XDECREF(pending.traceback);
    return status == FY_STATUS_OK ? result : core_raise(status);
}

PyObject *bind_call(const bind_function *function, PyObject *const *args, Py_ssize_t nargs,
                    PyObject *names)
{
    struct call call;
    PyObject *result = NULL;
    if (function->refused) return core_refuse(FY_STATUS_UNSUPPORTED, function->refused);
    if (!api.addresses[function - bind_functions]) return core_missing(function->name);
    call.function = function;
    call.context = NULL;
    call.place = (struct bind_place){ function->name + 3, NULL, .index = -1 };
    const size_t count = (size_t)function->nparams;
    memset(call.given, 0, count * sizeof call.given[0]);
    memset(call.slots, 0, count * sizeof call.slots[0]);
    memset(call.made, 0, count * sizeof call.made[0]);
    memset(call.counts, 0, count * sizeof call.counts[0]);
    if (collect(&call, args, nargs, names) == 0) {
        if (put_all(&call) == 0 && check_lengths(&call) == 0 && prepare(&call) == 0)
            result = run(&call);
        else
            end_taking(&call, 0, 0);
    }
    Py_XDECREF(call.context);
    Py_XDECREF(call.place.kept);
    Py_XDECREF(call.place.taken);
    Py_XDECREF(call.place.tokens);
    return result;
}
