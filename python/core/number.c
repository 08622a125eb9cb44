/* Arithmetic of tensors: the operators of Python. A number beside a tensor is a scalar by value: it
 * has no device and takes the tensor's dtype. */
#include "core.h"
#include "opset/formulas/half.h"

typedef fy_status_t (*unary_fn)(const fy_tensor_t *, fy_tensor_t **);
typedef fy_status_t (*binary_fn)(const fy_tensor_t *, const fy_tensor_t *, fy_tensor_t **);

/* Results and products up to this size take less time than letting other threads run. */
enum { SMALL = 1 << 15 };

static int is_small(const tensor_object *a, const tensor_object *b)
{
    if (a->device != api.fy_device_host()) return 0;
    return a->nelem <= SMALL && b->nelem <= SMALL && a->nelem * b->nelem <= SMALL;
}

/* Calls fn(a, b). Ops on devices may wait for room in a queue, long ones compute: those release the
 * GIL. */
static PyObject *call(binary_fn fn, const tensor_object *a, const tensor_object *b)
{
    fy_tensor_t *result = NULL;
    PyThreadState *state = is_small(a, b) ? NULL : PyEval_SaveThread();
    const fy_status_t status = fn(a->handle, b->handle, &result);
    if (state) PyEval_RestoreThread(state);
    return status == FY_STATUS_OK ? core_wrap(result) : core_raise(status);
}

/* As number_of of ferry/_types.py: NotImplemented, or NULL with a TypeError, for another object. */
static PyObject *number_of(PyObject *object)
{
    if (PyFloat_Check(object) || PyLong_Check(object)) return Py_NewRef(object);
    return PyObject_CallFunctionObjArgs(find_number, object, NULL);
}

static int is_float(const tensor_object *a) { return a->dtype <= FY_DTYPE_BF16; }

/* scale * a + shift, one request. */
static PyObject *affine(const tensor_object *a, double scale, double shift)
{
    fy_tensor_t *result = NULL;
    PyThreadState *state = PyEval_SaveThread();
    const fy_status_t status = api.fy_affine(a->handle, scale, shift, &result);
    PyEval_RestoreThread(state);
    return status == FY_STATUS_OK ? core_wrap(result) : core_raise(status);
}

/* Is an integer the double that fy_full takes? If not, sets an exception. */
static int is_exact(PyObject *number, double value)
{
    PyObject *back = PyLong_FromDouble(value);
    const int same = back ? PyObject_RichCompareBool(number, back, Py_EQ) : -1;
    Py_XDECREF(back);
    if (same == 0)
        PyErr_SetString(PyExc_OverflowError,
                        "an integer beside a tensor needs a double that is equal to it: make a "
                        "tensor of it, ferry.tensor(n)");
    return same > 0;
}

/* A tensor of rank 0 with the number, on the device and in the dtype of `like`. */
static tensor_object *scalar(PyObject *number, const tensor_object *like)
{
    const double value = PyFloat_AsDouble(number);
    if (value == -1.0 && PyErr_Occurred()) return NULL;
    if (!is_float(like) && PyLong_Check(number) && !is_exact(number, value)) return NULL;
    fy_tensor_t *result = NULL;
    PyThreadState *state = PyEval_SaveThread();
    const fy_status_t status = api.fy_full(like->device, like->dtype, 0, NULL, value, &result);
    PyEval_RestoreThread(state);
    return (tensor_object *)(status == FY_STATUS_OK ? core_wrap(result) : core_raise(status));
}

static PyObject *binary(binary_fn fn, PyObject *left, PyObject *right)
{
    tensor_object *a = core_tensor(left), *b = core_tensor(right);
    if (a && b) return call(fn, a, b);
    PyObject *number = number_of(a ? right : left);
    if (!number || number == Py_NotImplemented) return number;
    tensor_object *other = scalar(number, a ? a : b);
    PyObject *result = other ? call(fn, a ? a : other, b ? b : other) : NULL;
    Py_XDECREF((PyObject *)other);
    Py_DECREF(number);
    return result;
}

/* Sums and products of float tensors and numbers need no second tensor. */
static PyObject *linear(binary_fn fn, PyObject *left, PyObject *right, double sign, int is_product)
{
    tensor_object *a = core_tensor(left), *b = core_tensor(right);
    const tensor_object *tensor = a ? a : b;
    if ((a && b) || !is_float(tensor)) return binary(fn, left, right);
    PyObject *number = number_of(a ? right : left);
    if (!number || number == Py_NotImplemented) return number;
    const double value = PyFloat_AsDouble(number);
    Py_DECREF(number);
    if (value == -1.0 && PyErr_Occurred()) return NULL;
    if (is_product) return affine(tensor, value, -0.0); /* + 0 would lose the sign of -0 */
    return a ? affine(a, 1, sign * value) : affine(b, sign, value);
}

static PyObject *add(PyObject *a, PyObject *b) { return linear(api.fy_add, a, b, 1, 0); }
static PyObject *subtract(PyObject *a, PyObject *b) { return linear(api.fy_sub, a, b, -1, 0); }
static PyObject *multiply(PyObject *a, PyObject *b) { return linear(api.fy_mul, a, b, 1, 1); }
static PyObject *divide(PyObject *a, PyObject *b) { return binary(api.fy_div, a, b); }
static PyObject *floor_divide(PyObject *a, PyObject *b)
{
    return binary(api.fy_floor_divide, a, b);
}
static PyObject *modulo(PyObject *a, PyObject *b) { return binary(api.fy_remainder, a, b); }

static PyObject *matmul(PyObject *a, PyObject *b)
{
    const tensor_object *left = core_tensor(a), *right = core_tensor(b);
    if (left && right) return call(api.fy_matmul, left, right);
    PyObject *number = number_of(left ? b : a);
    if (!number) return NULL;
    Py_DECREF(number);
    Py_RETURN_NOTIMPLEMENTED;
}

static PyObject *power(PyObject *a, PyObject *b, PyObject *modulus)
{
    if (modulus != Py_None) Py_RETURN_NOTIMPLEMENTED;
    return binary(api.fy_pow, a, b);
}

static PyObject *unary(unary_fn fn, PyObject *self)
{
    const tensor_object *a = (tensor_object *)self;
    fy_tensor_t *result = NULL;
    const int is_short = a->device == api.fy_device_host() && a->nelem <= SMALL / 16;
    PyThreadState *state = is_short ? NULL : PyEval_SaveThread();
    const fy_status_t status = fn(a->handle, &result);
    if (state) PyEval_RestoreThread(state);
    return status == FY_STATUS_OK ? core_wrap(result) : core_raise(status);
}

static PyObject *negative(PyObject *self) { return unary(api.fy_neg, self); }
static PyObject *absolute(PyObject *self) { return unary(api.fy_abs, self); }

/* Elementwise: the result is a bool tensor. */
static PyObject *compare(PyObject *a, PyObject *b, int how)
{
    switch (how) {
    case Py_EQ: return binary(api.fy_eq, a, b);
    case Py_NE: return binary(api.fy_ne, a, b);
    case Py_LT: return binary(api.fy_lt, a, b);
    case Py_LE: return binary(api.fy_le, a, b);
    case Py_GT: return binary(api.fy_gt, a, b);
    case Py_GE: return binary(api.fy_ge, a, b);
    default: Py_RETURN_NOTIMPLEMENTED;
    }
}

static Py_hash_t hash(PyObject *self) { return (Py_hash_t)((uintptr_t)self >> 4); }

static PyObject *number_at(fy_dtype_t dtype, const void *data)
{
    switch (dtype) {
    case FY_DTYPE_F32: return PyFloat_FromDouble((double)*(const float *)data);
    case FY_DTYPE_F64: return PyFloat_FromDouble(*(const double *)data);
    case FY_DTYPE_F16: return PyFloat_FromDouble((double)fy__f32_from_f16(*(const uint16_t *)data));
    case FY_DTYPE_BF16:
        return PyFloat_FromDouble((double)fy__f32_from_bf16(*(const uint16_t *)data));
    case FY_DTYPE_I32: return PyLong_FromLong(*(const int32_t *)data);
    case FY_DTYPE_I64: return PyLong_FromLongLong(*(const int64_t *)data);
    case FY_DTYPE_U8: return PyLong_FromLong(*(const uint8_t *)data);
    case FY_DTYPE_BOOL: return PyBool_FromLong(*(const uint8_t *)data);
    default: return core_refuse(FY_STATUS_DTYPE_MISMATCH, "this package does not know the dtype");
    }
}

PyObject *tensor_item(PyObject *self, PyObject *unused)
{
    (void)unused;
    const tensor_object *tensor = (tensor_object *)self;
    void *data = NULL;
    const fy_status_t status = api.fy_tensor_map(tensor->handle, FY_ACCESS_READ, &data);
    if (status != FY_STATUS_OK) return core_raise(status);
    if (tensor->nelem != 1) {
        return core_refuse(FY_STATUS_SHAPE_MISMATCH,
                           "a tensor that is not of one element has no value as a number\n"
                           "tolist() or numpy() give all elements of a host tensor");
    }
    return number_at(tensor->dtype, data);
}

/* An axis of the tensor, whose first element is at `data`. */
static PyObject *list_axis(const fy_tensor_info_t *info, int axis, const char *data)
{
    if (info->rank == 0) return number_at(info->dtype, data);
    const int is_last = axis == info->rank - 1;
    const int64_t nbytes = info->strides[axis] * (int64_t)api.fy_dtype_size(info->dtype);
    PyObject *list = PyList_New((Py_ssize_t)info->dims[axis]);
    for (int64_t i = 0; list && i < info->dims[axis]; i++) {
        const char *at = data + i * nbytes;
        PyObject *item = is_last ? number_at(info->dtype, at) : list_axis(info, axis + 1, at);
        if (item)
            PyList_SetItem(list, (Py_ssize_t)i, item);
        else
            Py_CLEAR(list);
    }
    return list;
}

PyObject *tensor_tolist(PyObject *self, PyObject *unused)
{
    (void)unused;
    tensor_object *tensor = (tensor_object *)self;
    static const char nothing;
    void *data;
    fy_tensor_info_t info;
    if (core_query(self, &info) < 0) return NULL;
    const fy_status_t status = api.fy_tensor_map(tensor->handle, FY_ACCESS_READ, &data);
    if (status != FY_STATUS_OK) return core_raise(status);
    tensor->nbuffers++; /* new lists may run finalizers, which must not destroy it */
    PyObject *list = list_axis(&info, 0, data ? data : &nothing);
    tensor->nbuffers--;
    return list;
}

PyType_Slot tensor_number_slots[] = {
    { Py_nb_add, (void *)add },
    { Py_nb_subtract, (void *)subtract },
    { Py_nb_multiply, (void *)multiply },
    { Py_nb_true_divide, (void *)divide },
    { Py_nb_floor_divide, (void *)floor_divide },
    { Py_nb_remainder, (void *)modulo },
    { Py_nb_matrix_multiply, (void *)matmul },
    { Py_nb_power, (void *)power },
    { Py_nb_negative, (void *)negative },
    { Py_nb_absolute, (void *)absolute },
    { Py_tp_richcompare, (void *)compare },
    { Py_tp_hash, (void *)hash },
    { 0, NULL },
};
