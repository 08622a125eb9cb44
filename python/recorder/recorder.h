/* ferry.torch_record._recorder: the part of the recorder that runs for every op of PyTorch. It
 * formats the lines of the event file (docs/internals/events.md) into a buffer, keeps the model
 * clock, and knows which torch storages are device memory. It links neither libferry nor libtorch.
 * Python (ferry/torch_record/events.py) extends Core: copies, waits, scopes, facts about ops.
 * All functions hold the GIL; Core's lock keeps the lines of a request together if a call of Python
 * switches threads in between. */
#ifndef PYTHON_RECORDER_RECORDER_H_
#define PYTHON_RECORDER_RECORDER_H_

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030b0000 /* as ferry._core */
#include <Python.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <structmember.h>

/* False, with MemoryError: NULL. */
static inline bool is_allocated(const void *memory)
{
    if (!memory) PyErr_NoMemory();
    return memory != NULL;
}

/* ---- table.c: a hash table of pointers ---- */

struct table {
    struct table_slot {
        const void *key;
        void *value;
    } * slots;
    size_t count, capacity; /* capacity: a power of two, or 0 */
};
void *table_get(const struct table *table, const void *key);
/* False, with MemoryError: no memory. `key` is not NULL. */
bool table_put(struct table *table, const void *key, void *value);
void table_remove(struct table *table, const void *key);

/* ---- lines.c: text and the clock ---- */

struct text {
    char *data;
    size_t size, capacity;
};
/* Room for `more` bytes, which the put functions then do not check. False, with MemoryError. */
bool text_reserve(struct text *text, size_t more);
void text_bytes(struct text *text, const char *bytes, size_t size);
/* As printf, of %s and %lu only. */
__attribute__((format(printf, 2, 3))) void text_put(struct text *text, const char *format, ...);

enum { COMPUTE, UPLOAD, DOWNLOAD, ENGINES };

/* A stream's timeline: when its last request ends. `owes[other]`: its next request waits for that
 * request of another stream; `ordered[other]`: it waits for that one already. */
struct stream {
    uint64_t seq, end_ns;
    uint64_t *owes, *ordered; /* `known` of each */
    int known;
    bool has_owes;
};

/* ---- what a thread does ---- */

struct thread {
    unsigned number; /* in the file; 0: it has no line yet */
    int inside;      /* > 0: in a kernel: tensors report where their bytes are */
    int silent;      /* > 0: ops are part of one that is recorded as a whole */
    int to_device;   /* a copy that Python asked for: to the device 1, to the host 0, none -1 */
    int stream;      /* index of its current stream */
    const char *category; /* of new storages; NULL: by the op */
    const char *scope;    /* the innermost scope as JSON; owned by Core.texts */
};
extern _Thread_local struct thread me;

/* ---- the objects ---- */

/* Device or page-locked memory of a torch storage. */
typedef struct {
    PyObject_HEAD PyObject *ref; /* weak reference to the torch storage */
    const void *key;             /* address of the torch storage's object */
    uint64_t number, version, block, nbytes;
    char is_pinned;
} storage_object;

/* An op before it runs: ferry/torch_record/ops.py describes it. OP_COMPOSITE: other ops make it up,
 * and PyTorch passes it on as a whole only in inference mode. */
enum { OP_VIEW, OP_EMPTY, OP_ITEM, OP_COPY, OP_TO, OP_RUN, OP_COMPOSITE };
struct op_info {
    PyObject *info; /* ops.Info */
    PyObject *call; /* func._op, without a Python frame */
    PyObject *written_names;
    const char *name;
    int kind, nwrites, writes[8];
    uint64_t reads_back;
    bool fills, mixed, masks;
};

/* The specification's dltensor_from_py_object_no_sync: shape and strides of a tensor, borrowed. */
struct dl_tensor;
typedef int (*dl_from_object)(void *object, struct dl_tensor *out);

typedef struct {
    PyObject_HEAD struct text text;
    uint64_t events, ops, numbers, blocks, pinned_blocks, live, peak;
    uint64_t start_ns, now_ns, engine_ns[ENGINES], host_op_ns, poll_ns;
    unsigned threads;
    bool is_on, wants_step;
    struct stream *streams; /* from 1 */
    int nstreams;
    struct table storages, refs; /* storage_object by torch storage, by weak reference */
    struct table infos, codes, sites;
    struct table signatures; /* by hash; the others of a hash are behind the first */
    unsigned nsignatures;
    storage_object **dead; /* their frees have no line yet */
    size_t ndead, dead_capacity;
    PyObject *texts, *on_death;
    PyObject *tensor_class, *untyped_storage, *current_node, *is_grad_enabled;
    PyObject *backing; /* the torch.device of the bytes */
    dl_from_object from_object;
    PyThread_type_lock mutex;
    unsigned long owner;
    unsigned depth;
} core_object;

/* lines.c */
uint64_t core_clock(void);
void core_lock(core_object *core);
void core_unlock(core_object *core);
/* Begins a line {"ev":"KIND",<common keys>, with room for `more` bytes behind it. */
bool line_begin(core_object *core, const char *kind, size_t more);
/* Room for so many lines with `more` bytes in all, whose line_begin then cannot fail: so that lines
 * and what they describe change together, or not at all. */
bool lines_reserve(core_object *core, size_t lines, size_t more);
void line_end(core_object *core);
/* Writes the buffer if it is full, or if `always`. */
bool core_flush(core_object *core, bool always);
/* Runs a request: its times. */
void clock_run(core_object *core, int engine, struct stream *stream, uint64_t duration_ns,
               uint64_t submit_ns, uint64_t *start_ns, uint64_t *end_ns);
bool stream_order(core_object *core, int number, int other, uint64_t seq);
bool stream_pay(core_object *core, int number);
bool stream_owe(core_object *core, int number, int other, uint64_t seq);
int stream_open(core_object *core);
extern PyMethodDef line_methods[];

/* storages.c */
extern PyTypeObject *storage_type;
bool storages_init(void);
/* The device memory of a tensor, borrowed; NULL without an exception: none. */
storage_object *storage_of(core_object *core, PyObject *tensor);
/* A new reference; counts the tensor's storage as device memory if it is none yet. */
storage_object *storage_add(core_object *core, PyObject *tensor, const char *category, long site);
bool storages_free_dead(core_object *core);
extern PyMethodDef storage_methods[];

/* sites.c: the number of the call site; 0: no line of the script is on the stack; -1: failed */
long site_here(core_object *core);

/* shapes.c */
struct shapes {
    int64_t *words;
    size_t size, capacity;
};
bool shapes_add(core_object *core, struct shapes *shapes, PyObject *tensor, bool *out_has_axes);
bool shapes_word(struct shapes *shapes, int64_t word);
struct signature {
    struct signature *next; /* of the same hash */
    uint64_t flops, nbytes, duration_ns;
    unsigned id;
    bool is_known; /* Python has described it */
    bool has_line;
    size_t size;
    int64_t words[];
};
/* The signature of these words; NULL: not known yet. */
struct signature *signature_find(const core_object *core, const struct shapes *shapes);
struct signature *signature_add(core_object *core, const struct shapes *shapes);

/* module.c */
extern PyTypeObject *core_type;
extern struct interned {
    PyObject *device, *pin_memory, *name, *f_lasti, *f_back, *nbytes;
} interned;

/* record.c */
/* Tensors of an op with their device memory; NULL: host. References are strong. */
struct operand {
    PyObject *tensor;
    storage_object *storage;
    uint64_t version; /* before the op */
};
enum { FEW_OPERANDS = 24 };
struct operands {
    struct operand *items, few[FEW_OPERANDS];
    size_t size, capacity;
};
void operands_init(struct operands *list);
void operands_free(struct operands *list);
/* Adds the tensors of an op's arguments: themselves, or the items of lists. */
bool operands_collect(core_object *core, struct operands *list, PyObject *args, PyObject *kwargs);
/* The tensors, or their device memory, None for the host's. */
PyObject *operands_tuple(const struct operands *list, bool of_storages);
/* Writes an op whose kernel has run, if it is no view. `src`: all tensors among its arguments. */
bool op_submit(core_object *core, const struct op_info *info, PyObject *func, PyObject *args,
               PyObject *kwargs, PyObject *out, struct operands *src, PyObject *node);
PyObject *core_record(PyObject *self, PyObject *args);

/* dispatch.c */
PyObject *dispatch_type(void); /* Dispatch(core): the base of the mode */
/* The facts about an op, for the life of the process; NULL with an exception. */
const struct op_info *op_info_of(core_object *core, PyObject *func);

#endif
