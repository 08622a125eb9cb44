/* The C API in Python (ferry._c): tables that generate/c_module.py writes from the headers, and the
 * code that reads them. A row has the C type of a parameter, a field or a result; put.c converts to
 * it with checks, get.c from it, call.c calls, callback.c is called by C. */
#ifndef PYTHON_CORE_BIND_H_
#define PYTHON_CORE_BIND_H_

#include "core.h"

enum bind_kind {
    BIND_VOID,
    BIND_INT,
    BIND_ENUM,
    BIND_DOUBLE,
    BIND_CHARS, /* char[n] */
    BIND_TEXT,
    BIND_PATH,
    BIND_ADDRESS, /* void *, an integer in Python: memory and queues of other libraries */
    BIND_BYTES,   /* void *, an object with a buffer */
    BIND_TENSOR,
    BIND_HANDLE,
    BIND_STRUCT,
    BIND_POINTER, /* to a struct */
    BIND_ARRAY,   /* a pointer to elements */
    BIND_FUNCTION
};

typedef struct bind_type {
    enum bind_kind kind;
    uint32_t nbytes; /* of BIND_BYTES: the fewest that C reads */
    int is_signed;
    const void *of; /* bind_enum, _handle, _struct, _type of elements, _callback */
} bind_type;

union bind_slot {
    void *p;
    int8_t i8;
    int32_t i32;
    uint32_t u32;
    int64_t i64;
    uint64_t u64;
    double f64;
    fy_ticket_t ticket;
    fy_scope_t scope;
    fy_init_t init;
    fy_pool_point_t point;
    uint8_t u8;
    uint16_t u16;
};

enum bind_role {
    BIND_IN,
    BIND_OUT,
    BIND_INOUT,  /* an array: None stands for a result that is to be made */
    BIND_COUNT,  /* of an array, or bytes of a buffer */
    BIND_NBYTES, /* sizeof of a struct */
    BIND_USER
};
enum bind_flag {
    BIND_CONSUMED = 1, /* the handle, or those in the structs, cannot be used afterwards */
    BIND_BORROWED = 2, /* a result that C owns */
    BIND_FILLED = 4,   /* an empty sequence is refused */
    BIND_IF_OK = 8,    /* consumed if the call succeeds */
    BIND_IF_MADE = 16, /* consumed if it succeeds, and its first result is not 0 */
    BIND_NOT_NONE = 32
};

typedef struct bind_param {
    const char *name;
    const bind_type *type;
    enum bind_role role;
    int flags, count; /* count: slot of an array's length; 0: none */
    uint64_t (*length)(const union bind_slot *slots); /* that C reads or writes; may be NULL */
} bind_param;

enum bind_lifetime {
    BIND_CALL,     /* callbacks run during the call */
    BIND_ONCE,     /* one call, later */
    BIND_RELEASED, /* until C calls bind_release */
    BIND_FOREVER
};
enum bind_gil { BIND_RELEASES, BIND_SMALL, BIND_VIEW }; /* what may keep the GIL on the host */

typedef struct bind_function {
    const char *name;
    const bind_param *params; /* params[0] is the result */
    int nparams, is_status, library;
    enum bind_lifetime lifetime;
    enum bind_gil gil;
    const char *refused; /* why Python has no such call; else NULL */
    void (*thunk)(union bind_slot *slots);
} bind_function;

typedef struct bind_enum {
    const char *const *names; /* lower case; NULL at the end */
    const int *values;
    int is_dtype;
} bind_enum;

typedef struct bind_handle {
    const char *name;
    int destroys; /* number of its function; -1: none */
} bind_handle;

typedef struct bind_field {
    const char *name; /* NULL: no attribute */
    const bind_type *type;
    uint32_t offset, length; /* length of an array in the struct; 0: none */
    int count;               /* field of a pointer's length; -1: none, -2: is read only */
    uint64_t (*read_length)(const void *bytes);
} bind_field;

typedef struct bind_struct {
    const char *name;
    const bind_field *fields;
    int nfields;
    uint32_t nbytes;
    int has_size, init; /* init: number of its function; -1: none */
    int user, destroy;  /* fields; -1: none */
} bind_struct;

typedef struct bind_callback {
    const char *name; /* of the field or the parameter */
    const bind_param *params;
    int nparams;
    int index;     /* among the functions of the call */
    int has_scope; /* it gets tensors */
    int is_once, is_printed;
    void (*trampoline)(void); /* NULL: no function of Python */
} bind_callback;

/* Written by the generator. */
extern const bind_function bind_functions[];
extern const bind_handle bind_handles[];
extern const bind_struct bind_structs[];
extern const struct bind_constant {
    const char *name;
    long long value;
    int is_unsigned;
} bind_constants[];
extern PyMethodDef bind_methods[];
extern const int bind_nfunctions, bind_nhandles, bind_nstructs, bind_nconstants;

typedef struct {
    PyObject_HEAD void *pointer; /* NULL: destroyed, or passed on */
    void *taken;                 /* the pointer, while a call that consumes it is prepared */
    uintptr_t identity;          /* for comparisons, also afterwards */
    const bind_handle *kind;
    PyObject *owner; /* keeps what it needs; of a borrowed handle: what owns it */
    int is_borrowed;
    uint64_t count;    /* of fy_prefetch_t: tensors of a batch */
    uint64_t ntensors; /* of fy_model_t: tensor objects with its handles */
} bind_handle_object;

typedef struct {
    PyObject_HEAD const bind_struct *kind;
    char *bytes;
    PyObject *kept;   /* a list: of each field, the value of a pointer and what it needs */
    PyObject *parent; /* that has the bytes */
    PyObject *owner;  /* of what `user` points to, if C filled the struct */
    int is_frozen;    /* C goes on using it: it does not change */
} bind_struct_object;

/* Where a value goes, for the text of a refusal; and the objects that the call needs. */
struct bind_place {
    const char *function, *name;
    Py_ssize_t index; /* in a sequence; -1 */
    PyObject *kept;   /* a list, or NULL */
    PyObject *taken;  /* handles that the call consumes, a list, or NULL */
    PyObject *tokens; /* structs with a token that it consumes, a list, or NULL */
    uint64_t count;   /* of the array that was put */
    PyObject *made;   /* the struct, or the tuple of the array, that was put; in `kept` */
    int flags;
};

/* put.c: 0, or -1 with an exception. */
int bind_put(const bind_type *type, void *at, PyObject *value, struct bind_place *place);
int bind_refuse(const struct bind_place *place, PyObject *type, const char *format, ...);
/* A number as text; of an integer of more digits than Python prints, its bits. */
PyObject *bind_show(PyObject *value);
int bind_keep(struct bind_place *place, PyObject *object); /* takes the reference */
void bind_put_count(const bind_type *type, void *at, uint64_t count);
uint32_t bind_size(const bind_type *type);
/* "a, b" of a list of texts, whose reference it takes; NULL with an exception. */
PyObject *bind_join(PyObject *list);
/* Takes the reference of `object`; NULL, or a failure: *list becomes NULL, and stays so. */
int bind_append(PyObject **list, PyObject *object);
/* get.c */
PyObject *bind_get(const bind_type *type, const void *at, int is_borrowed, PyObject *owner,
                   uint64_t count);
uint64_t bind_get_count(const bind_type *type, const void *at);
fy_tensor_t *bind_view_handle(fy_tensor_t *borrowed);
/* objects.c */
extern PyTypeObject *bind_handle_types[], *bind_struct_types[];
void bind_free(PyObject *object); /* the end of a dealloc */
/* scalar and dtype_number of ferry/_types.py: for numbers of NumPy, and names of its dtypes */
extern PyObject *bind_scalar_hook, *bind_dtype_hook;
extern PyObject *bind_as_parameter; /* the attribute of the package's objects that has that of C */
const bind_handle *bind_find_handle(const char *name);
/* The pointer of a handle that a function of core/ is given; None: NULL. */
int bind_pointer(const char *handle, const char *function, const char *name, PyObject *value,
                 void **out);
PyObject *bind_new_handle(const bind_handle *kind, void *pointer, int is_borrowed, PyObject *owner);
bind_handle_object *bind_is_handle(PyObject *object, const bind_handle *kind);
bind_struct_object *bind_is_struct(PyObject *object, const bind_struct *kind);
bind_struct_object *bind_new_struct(const bind_struct *kind);
/* A copy; pointers in it are followed now, because C owns what they point to. */
PyObject *bind_copy_struct(const bind_struct *kind, const void *bytes, PyObject *owner);
int bind_follow(bind_struct_object *object, PyObject *owner);
PyObject *bind_kept(const bind_struct_object *object, const char *name); /* borrowed, or NULL */
int bind_set_field(bind_struct_object *object, const bind_field *field, PyObject *value);
int bind_add_types(PyObject *dict);
/* call.c */
PyObject *bind_call(const bind_function *function, PyObject *const *args, Py_ssize_t nargs,
                    PyObject *names);
/* The exception of a callback, for the call around it: of this thread's innermost one, or NULL.
 * status: what C got for a ferry.Error, which it may handle; else 0. */
struct bind_pending {
    PyObject *type, *value, *traceback;
    int status;
};
extern _Thread_local struct bind_pending *bind_pending;
/* callback.c: what a trampoline calls; the status, or the integer, for C. */
int bind_run(const bind_callback *callback, void *user, union bind_slot *slots);
void bind_release(void *user); /* a `destroy` of C */

/* lengths.c */
uint64_t bind_rank(const fy_tensor_t *tensor);
uint64_t bind_table(uint64_t rows, uint64_t cols);
uint64_t bind_dataset(const fy_dataset_info_t *info, uint64_t samples, int is_label);
uint64_t bind_steps(const fy_find_lr_options_t *options);
uint64_t bind_layer_params(void *user);

#endif
