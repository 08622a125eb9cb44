/* Lines of the event file, the lock around them, and the model clock, whose rules are those of the
 * simulator (docs/simulator.md, "How are times computed?"): a request starts after the one before
 * it in its stream, on an engine that is free. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "recorder.h"

enum { FLUSH_SIZE = 1 << 18, COMMON_SIZE = 160 };

_Thread_local struct thread me = { .to_device = -1, .stream = 1 };

/* ---- text ---- */

bool text_reserve(struct text *text, size_t more)
{
    if (text->size + more <= text->capacity) return true;
    size_t capacity = text->capacity ? text->capacity : FLUSH_SIZE + 65536;
    while (capacity < text->size + more) capacity *= 2;
    char *data = realloc(text->data, capacity);
    if (!is_allocated(data)) return false;
    text->data = data;
    text->capacity = capacity;
    return true;
}

void text_bytes(struct text *text, const char *bytes, size_t size)
{
    memcpy(text->data + text->size, bytes, size);
    text->size += size;
}

static void put_number(struct text *text, uint64_t number)
{
    char digits[20];
    size_t first = sizeof digits;
    do {
        digits[--first] = (char)('0' + number % 10);
        number /= 10;
    } while (number);
    text_bytes(text, digits + first, sizeof digits - first);
}

void text_put(struct text *text, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    for (; *format; format++) {
        if (*format != '%') {
            text->data[text->size++] = *format;
        } else if (*++format == 's') {
            const char *string = va_arg(values, const char *);
            text_bytes(text, string, strlen(string));
        } else {
            put_number(text, va_arg(values, uint64_t));
            format++;
        }
    }
    va_end(values);
}

/* ---- lines ---- */

uint64_t core_clock(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

bool line_begin(core_object *core, const char *kind, size_t more)
{
    struct text *text = &core->text;
    if (!me.number) me.number = ++core->threads;
    const char *scope = me.scope ? me.scope : "\"\"";
    if (!text_reserve(text, COMMON_SIZE + strlen(kind) + strlen(scope) + more)) return false;
    text_put(text, "{\"ev\":\"%s\",\"t_ns\":%lu,\"model_ns\":%lu,\"thread\":%lu,\"scope\":%s", kind,
             core_clock() - core->start_ns, core->now_ns, (uint64_t)me.number, scope);
    return true;
}

bool lines_reserve(core_object *core, size_t lines, size_t more)
{
    enum { KIND_MOST = 32 };
    const size_t scope = me.scope ? strlen(me.scope) : 2;
    return text_reserve(&core->text, lines * (COMMON_SIZE + KIND_MOST + scope) + more);
}

void line_end(core_object *core)
{
    text_put(&core->text, "}\n");
    core->events++;
}

bool core_flush(core_object *core, bool always)
{
    struct text *text = &core->text;
    const size_t size = text->size;
    if (size < FLUSH_SIZE && !always) return true;
    PyObject *chunk = PyBytes_FromStringAndSize(text->data, (Py_ssize_t)size);
    PyObject *done = chunk ? PyObject_CallMethod((PyObject *)core, "write", "O", chunk) : NULL;
    Py_XDECREF(chunk);
    if (!done) return false; /* the next flush writes these lines */
    Py_DECREF(done);
    text->size -= size;
    memmove(text->data, text->data + size, text->size);
    return true;
}

/* line(kind, rest=""): a line whose other keys Python has formatted. */
static PyObject *add_line(PyObject *self, PyObject *args)
{
    core_object *core = (core_object *)self;
    const char *kind, *rest = "";
    Py_ssize_t size = 0;
    if (!PyArg_ParseTuple(args, "s|s#", &kind, &rest, &size)) return NULL;
    if (!line_begin(core, kind, (size_t)size + 8)) return NULL;
    if (size) text_put(&core->text, ",");
    text_bytes(&core->text, rest, (size_t)size);
    line_end(core);
    if (!core_flush(core, false)) return NULL;
    Py_RETURN_NONE;
}

static PyObject *flush(PyObject *self, PyObject *unused)
{
    (void)unused;
    if (!core_flush((core_object *)self, true)) return NULL;
    Py_RETURN_NONE;
}

/* set_scope(path): of this thread's lines; JSON text. */
static PyObject *set_scope(PyObject *self, PyObject *json)
{
    core_object *core = (core_object *)self;
    PyObject *kept = PyDict_GetItemWithError(core->texts, json);
    if (!kept) {
        if (PyErr_Occurred() || PyDict_SetItem(core->texts, json, json) < 0) return NULL;
        kept = json;
    }
    const char *text = PyUnicode_AsUTF8AndSize(kept, NULL);
    if (!text) return NULL;
    me.scope = text;
    Py_RETURN_NONE;
}

/* ---- the lock: recursive, so that Python's `with` may hold it around an op ---- */

void core_lock(core_object *core)
{
    const unsigned long thread = PyThread_get_thread_ident();
    if (core->depth && core->owner == thread) {
        core->depth++;
        return;
    }
    if (!PyThread_acquire_lock(core->mutex, NOWAIT_LOCK)) {
        Py_BEGIN_ALLOW_THREADS(void) PyThread_acquire_lock(core->mutex, WAIT_LOCK);
        Py_END_ALLOW_THREADS
    }
    core->owner = thread;
    core->depth = 1;
}

void core_unlock(core_object *core)
{
    if (--core->depth == 0) PyThread_release_lock(core->mutex);
}

static PyObject *enter(PyObject *self, PyObject *unused)
{
    (void)unused;
    core_lock((core_object *)self);
    return Py_NewRef(self);
}

static PyObject *leave(PyObject *self, PyObject *unused)
{
    (void)unused;
    core_unlock((core_object *)self);
    Py_RETURN_NONE;
}

/* In the child of a fork: nothing is recorded, and no other thread holds the lock. */
static PyObject *forget(PyObject *self, PyObject *unused)
{
    (void)unused;
    core_object *core = (core_object *)self;
    PyThread_type_lock fresh = PyThread_allocate_lock();
    if (!fresh) return PyErr_NoMemory();
    core->mutex = fresh;
    core->depth = 0;
    core->is_on = false;
    core->text.size = 0;
    Py_RETURN_NONE;
}

/* ---- the clock ---- */

void clock_run(core_object *core, int engine, struct stream *stream, uint64_t duration_ns,
               uint64_t submit_ns, uint64_t *start_ns, uint64_t *end_ns)
{
    uint64_t start = core->now_ns += submit_ns;
    if (core->engine_ns[engine] > start) start = core->engine_ns[engine];
    if (stream->end_ns > start) start = stream->end_ns;
    *start_ns = start;
    *end_ns = core->engine_ns[engine] = stream->end_ns = start + duration_ns;
}

int stream_open(core_object *core)
{
    struct stream *streams = realloc(core->streams, sizeof *streams * (size_t)(core->nstreams + 2));
    if (!is_allocated(streams)) return -1;
    core->streams = streams;
    streams[++core->nstreams] = (struct stream){ 0 };
    return core->nstreams;
}

static bool know_others(core_object *core, struct stream *stream)
{
    const size_t count = (size_t)core->nstreams + 1, old = (size_t)stream->known;
    if (old >= count) return true;
    uint64_t *owes = realloc(stream->owes, count * sizeof *owes);
    if (owes) stream->owes = owes;
    uint64_t *ordered = owes ? realloc(stream->ordered, count * sizeof *ordered) : NULL;
    if (!is_allocated(ordered)) return false;
    stream->ordered = ordered;
    memset(owes + old, 0, (count - old) * sizeof *owes);
    memset(ordered + old, 0, (count - old) * sizeof *ordered);
    stream->known = (int)count;
    return true;
}

bool stream_order(core_object *core, int number, int other, uint64_t seq)
{
    struct stream *stream = &core->streams[number];
    if (!know_others(core, stream)) return false;
    if (other == number || stream->ordered[other] >= seq) return true;
    if (!line_begin(core, "wait", COMMON_SIZE)) return false;
    stream->ordered[other] = seq;
    text_put(&core->text,
             ",\"stream\":%lu,\"seq\":%lu,\"on_stream\":%lu,\"on_seq\":%lu,\"site\":\"STREAM\"",
             (uint64_t)number, stream->seq + 1, (uint64_t)other, seq);
    line_end(core);
    return true;
}

bool stream_owe(core_object *core, int number, int other, uint64_t seq)
{
    struct stream *stream = &core->streams[number];
    if (!know_others(core, stream)) return false;
    if (stream->owes[other] < seq) stream->owes[other] = seq;
    stream->has_owes = true;
    return true;
}

bool stream_pay(core_object *core, int number)
{
    struct stream *stream = &core->streams[number];
    for (int other = 1; other < stream->known; other++) {
        const uint64_t seq = stream->owes[other];
        if (seq && !stream_order(core, number, other, seq)) return false;
        stream->owes[other] = 0;
    }
    stream->has_owes = false;
    return true;
}

static struct stream *stream_at(core_object *core, int number)
{
    if (number >= 1 && number <= core->nstreams) return &core->streams[number];
    PyErr_Format(PyExc_ValueError, "the recording has %d streams, and none %d", core->nstreams,
                 number);
    return NULL;
}

static PyObject *open_stream(PyObject *self, PyObject *unused)
{
    (void)unused;
    const int number = stream_open((core_object *)self);
    return number < 0 ? NULL : PyLong_FromLong(number);
}

/* point(stream): number and end of its last request */
static PyObject *point(PyObject *self, PyObject *args)
{
    int number = 0;
    if (!PyArg_ParseTuple(args, "i", &number)) return NULL;
    const struct stream *stream = stream_at((core_object *)self, number);
    if (!stream) return NULL;
    return Py_BuildValue("KK", (unsigned long long)stream->seq, (unsigned long long)stream->end_ns);
}

/* behind(stream, other, seq, end_ns): later requests of `stream` run after that one of `other`. */
static PyObject *behind(PyObject *self, PyObject *args)
{
    core_object *core = (core_object *)self;
    int number = 0, other = 0;
    unsigned long long seq = 0, end_ns = 0;
    if (!PyArg_ParseTuple(args, "iiKK", &number, &other, &seq, &end_ns)) return NULL;
    struct stream *stream = stream_at(core, number);
    if (!stream || !stream_at(core, other)) return NULL;
    if (end_ns > stream->end_ns) stream->end_ns = end_ns;
    if (seq && other != number && !stream_owe(core, number, other, seq)) return NULL;
    Py_RETURN_NONE;
}

/* copy_begins(engine, duration_ns, submit_ns): a copy on the engine's stream, in the order of this
 * thread's stream; (stream, seq, start, end) of the copy. */
static PyObject *copy_begins(PyObject *self, PyObject *args)
{
    core_object *core = (core_object *)self;
    int engine = 0;
    unsigned long long duration = 0, submit = 0;
    if (!PyArg_ParseTuple(args, "iKK", &engine, &duration, &submit)) return NULL;
    const int queue = engine + 1;
    struct stream *stream = stream_at(core, me.stream);
    if ((engine != UPLOAD && engine != DOWNLOAD) || !stream) {
        if (stream) PyErr_SetString(PyExc_ValueError, "an engine of copies is 1 or 2");
        return NULL;
    }
    if (stream->seq && !stream_order(core, queue, me.stream, stream->seq)) return NULL;
    for (int other = 1; stream->has_owes && other < stream->known; other++) {
        const uint64_t owed = stream->owes[other]; /* the stream's next op owes it, too */
        if (owed && !stream_order(core, queue, other, owed)) return NULL;
    }
    uint64_t start, end;
    clock_run(core, engine, stream, duration, submit, &start, &end);
    const uint64_t seq = ++core->streams[queue].seq;
    if (!stream_owe(core, me.stream, queue, seq)) return NULL;
    return Py_BuildValue("iKKK", queue, (unsigned long long)seq, (unsigned long long)start,
                         (unsigned long long)end);
}

/* wait(until_ns, wake_ns): the host waits for a moment; for how long. */
static PyObject *wait_until(PyObject *self, PyObject *args)
{
    core_object *core = (core_object *)self;
    unsigned long long until = 0, wake = 0;
    if (!PyArg_ParseTuple(args, "KK", &until, &wake)) return NULL;
    const uint64_t before = core->now_ns;
    core->now_ns += core->poll_ns;
    if (until > core->now_ns) core->now_ns = until + wake;
    return PyLong_FromUnsignedLongLong(core->now_ns - before);
}

static PyObject *idle_at(PyObject *self, PyObject *unused)
{
    (void)unused;
    const core_object *core = (core_object *)self;
    uint64_t last = 0;
    for (int i = 0; i < ENGINES; i++)
        if (core->engine_ns[i] > last) last = core->engine_ns[i];
    return PyLong_FromUnsignedLongLong(last);
}

PyMethodDef line_methods[] = {
    { "line", add_line, METH_VARARGS, "line(kind, rest): a line with the common keys." },
    { "flush", flush, METH_NOARGS, NULL },
    { "set_scope", set_scope, METH_O, "Of this thread's lines: JSON text." },
    { "__enter__", enter, METH_NOARGS, NULL },
    { "__exit__", leave, METH_VARARGS, NULL },
    { "forget", forget, METH_NOARGS, "In the child of a fork: nothing is recorded." },
    { "new_stream", open_stream, METH_NOARGS, "The number of a new stream." },
    { "point", point, METH_VARARGS, "(number, end) of a stream's last request." },
    { "behind", behind, METH_VARARGS, "behind(stream, other, seq, end_ns)" },
    { "copy_begins", copy_begins, METH_VARARGS, "(stream, seq, start, end) of a copy." },
    { "wait_until", wait_until, METH_VARARGS, "The host waits; for how many nanoseconds." },
    { "idle_at", idle_at, METH_NOARGS, "When all engines are idle." },
    { NULL, NULL, 0, NULL },
};
