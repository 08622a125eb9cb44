/* Writes events as lines of JSON. docs/internals/events.md documents the format; the key of a
 * quantity has its unit. Numbers and strings are formatted by hand, because this thread must keep
 * up with all others. */
#include "runtime/record/event_write.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <ferry/tensor.h>

#include "runtime/base/fail.h"
#include "runtime/base/json.h"
#include "runtime/thread/guard.h"

typedef fy__event_writer_t writer_t;

static void flush(writer_t *w)
{
    for (size_t done = 0; done < w->used && !w->failed;) {
        const ssize_t n = write(w->fd, w->buffer + done, w->used - done);
        if (n >= 0)
            done += (size_t)n;
        else if (errno != EINTR)
            w->failed = errno;
    }
    w->used = 0;
}

/* ---- pieces; a line is shorter than LINE_MOST, and begins only if that much is free ---- */

static void put_raw(writer_t *w, const char *text, size_t n)
{
    memcpy(w->buffer + w->used, text, n);
    w->used += n;
}

static void put_number(writer_t *w, uint64_t value)
{
    char digits[20];
    size_t n = sizeof digits;
    do digits[--n] = (char)('0' + value % 10);
    while (value /= 10);
    put_raw(w, digits + n, sizeof digits - n);
}

/* At most a quarter of the longest line. */
static void put_string(writer_t *w, const char *text)
{
    w->used += fy__json_quote(text, w->buffer + w->used, FY__EVENT_LINE_MOST / 4);
}

/* `key` with its quotes, comma and colon: ",\"stream\":". */
#define KEY(w, key)           put_raw((w), ",\"" key "\":", sizeof ",\"" key "\":" - 1)
#define NUMBER(w, key, value) (KEY(w, key), put_number((w), (value)))
#define STRING(w, key, value) (KEY(w, key), put_string((w), (value)))

static void put_bytes(writer_t *w, fy__event_bytes_t bytes)
{
    if (!bytes.id) {
        put_raw(w, "null", 4);
        return;
    }
    put_raw(w, "[", 1);
    put_number(w, bytes.id);
    put_raw(w, ",", 1);
    put_number(w, bytes.version);
    put_raw(w, "]", 1);
}

static void put_list(writer_t *w, const fy__event_bytes_t *bytes, unsigned count)
{
    put_raw(w, "[", 1);
    for (unsigned i = 0; i < count; i++) {
        if (i) put_raw(w, ",", 1);
        put_bytes(w, bytes[i]);
    }
    put_raw(w, "]", 1);
}

static void put_flag(writer_t *w, const char *key, bool value)
{
    put_raw(w, key, strlen(key));
    put_raw(w, value ? "true" : "false", value ? 4 : 5);
}

static void put_scope(writer_t *w, const fy__node_t *scope)
{
    char path[768];
    STRING(w, "scope", scope ? fy__node_path(scope, path, sizeof path) : "");
}

static void put_point(writer_t *w, fy__point_t point)
{
    if (!point) return;
    NUMBER(w, "stream", FY__POINT_STREAM(point));
    NUMBER(w, "seq", FY__POINT_SEQ(point));
}

static void put_span(writer_t *w, const fy__event_t *event)
{
    if (!event->end_ns) return;
    NUMBER(w, "model_start_ns", event->start_ns);
    NUMBER(w, "model_end_ns", event->end_ns);
}

static const char *base_name(const char *path)
{
    const char *slash = path ? strrchr(path, '/') : NULL;
    return slash ? slash + 1 : path ? path : "?";
}

/* "train_step+0x1c" where the name is known, else "program+0x4a10", which addr2line reads. */
static void put_caller(writer_t *w, const void *caller)
{
    char text[256];
    Dl_info info;
    if (!dladdr(caller, &info))
        snprintf(text, sizeof text, "%p", caller);
    else if (info.dli_sname)
        snprintf(text, sizeof text, "%s+0x%zx", info.dli_sname,
                 (size_t)((const char *)caller - (const char *)info.dli_saddr));
    else
        snprintf(text, sizeof text, "%s+0x%zx", base_name(info.dli_fname),
                 (size_t)((const char *)caller - (const char *)info.dli_fbase));
    STRING(w, "site", text);
}

static const char *direction_name(int direction)
{
    static const char *const names[] = { "upload", "download", "peer" };
    return (unsigned)direction < FY__DIRECTIONS ? names[direction] : "?";
}

/* ---- kinds ---- */

static void put_op(writer_t *w, const fy__event_t *e)
{
    NUMBER(w, "number", e->u.op.number);
    STRING(w, "op", e->name);
    STRING(w, "device", e->device);
    put_point(w, e->point);
    NUMBER(w, "flops", e->u.op.flops);
    NUMBER(w, "bytes", e->nbytes);
    KEY(w, "src");
    put_list(w, e->u.op.operand, e->nsrc);
    KEY(w, "dst");
    put_list(w, e->u.op.operand + e->nsrc, e->ndst);
    put_span(w, e);
}

static void put_operands(writer_t *w, const fy__event_t *e)
{
    NUMBER(w, "of", e->u.op.number);
    KEY(w, "src");
    put_list(w, e->u.op.operand, e->nsrc);
    KEY(w, "dst");
    put_list(w, e->u.op.operand + e->nsrc, e->ndst);
}

/* Why a transfer took its path. */
static const char *transfer_reason(const fy__event_t *e)
{
    switch ((fy_path_t)e->u.transfer.path) {
    case FY_PATH_HOST: return "within_host_memory";
    case FY_PATH_DIRECT:
        return e->u.transfer.direction == FY__UPLOAD ? "borrowed_source" : "pinned_destination";
    case FY_PATH_STAGED:
        return e->u.transfer.pinned == 1 ? "copied_by_contract" : "pageable_memory";
    case FY_PATH_COALESCED: return "many_tensors";
    case FY_PATH_PEER: return "two_devices";
    case FY_PATH_FILE: return "file";
    case FY_PATH_COUNT: break;
    }
    return "?";
}

static void put_transfer(writer_t *w, const fy__event_t *e)
{
    STRING(w, "direction", direction_name(e->u.transfer.direction));
    STRING(w, "path", fy_path_name((fy_path_t)e->u.transfer.path));
    if (e->u.transfer.direction == FY__UPLOAD)
        STRING(w, "contract", e->u.transfer.contract ? "borrow" : "copy");
    KEY(w, "priority");
    if (e->u.transfer.priority < 0) put_raw(w, "-", 1);
    put_number(w, (uint64_t)(e->u.transfer.priority < 0 ? -(int64_t)e->u.transfer.priority
                                                        : e->u.transfer.priority));
    STRING(w, "device", e->device);
    if (e->u.transfer.other) STRING(w, "other", e->u.transfer.other);
    put_point(w, e->point);
    STRING(w, "reason", transfer_reason(e));
    if (e->u.transfer.pinned >= 0) put_flag(w, ",\"pinned\":", e->u.transfer.pinned);
    put_flag(w, ",\"blocking\":", !e->point);
    NUMBER(w, "bytes", e->nbytes);
    NUMBER(w, "blocked_ns", e->ns);
    if (e->u.transfer.site)
        STRING(w, "site", e->u.transfer.site);
    else if (e->u.transfer.caller)
        put_caller(w, e->u.transfer.caller);
    KEY(w, "src");
    put_bytes(w, e->u.transfer.src);
    KEY(w, "dst");
    put_bytes(w, e->u.transfer.dst);
    put_span(w, e);
}

static void put_map(writer_t *w, const fy__event_t *e)
{
    const int access = e->u.map.access;
    fy__event_bytes_t bytes = e->u.map.bytes;
    STRING(w, "access",
           access == FY_ACCESS_READ_WRITE ? "read_write"
           : access == FY_ACCESS_WRITE    ? "write"
                                          : "read");
    NUMBER(w, "bytes", e->nbytes);
    put_caller(w, e->u.map.caller);
    if (access & FY_ACCESS_READ) KEY(w, "src"), put_list(w, &bytes, 1);
    bytes.version++;
    if (access & FY_ACCESS_WRITE) KEY(w, "dst"), put_list(w, &bytes, 1);
}

static void put_device(writer_t *w, const fy__event_t *e)
{
    STRING(w, "device", e->device);
    STRING(w, "backend", e->u.device.backend);
    STRING(w, "model", e->u.device.model);
    const size_t length = strcspn(e->u.device.model, " ");
    char profile[64];
    if (e->u.device.is_simulated) {
        snprintf(profile, sizeof profile, "%.*s", (int)length, e->u.device.model);
        STRING(w, "profile", profile);
    }
    STRING(w, "options", e->u.device.options);
    NUMBER(w, "bytes", e->nbytes);
}

static void put_after(writer_t *w, const fy__point_t *after)
{
    int count = 0;
    for (int i = 0; i <= FY__READER_COUNT; i++) {
        if (!after[i]) continue;
        if (!count++) KEY(w, "after");
        put_raw(w, count > 1 ? ",[" : "[[", 2);
        put_number(w, FY__POINT_STREAM(after[i]));
        put_raw(w, ",", 1);
        put_number(w, FY__POINT_SEQ(after[i]));
        put_raw(w, "]", 1);
    }
    if (count) put_raw(w, "]", 1);
}

static void put_memory(writer_t *w, const fy__event_t *e)
{
    switch ((fy__event_kind_t)e->kind) {
    case FY__EVENT_STORAGE:
        NUMBER(w, "storage", e->u.memory.id);
        STRING(w, "device", e->device);
        NUMBER(w, "bytes", e->nbytes);
        if (e->u.memory.block) NUMBER(w, "block", e->u.memory.block);
        if (e->u.memory.pinned) KEY(w, "pinned"), put_raw(w, "true", 4);
        break;
    case FY__EVENT_POOL:
        STRING(w, "pool", e->name);
        NUMBER(w, "live_bytes", e->u.pool.live);
        NUMBER(w, "reserved_bytes", e->nbytes);
        NUMBER(w, "segment_bytes", e->u.pool.segment_nbytes);
        if (e->u.pool.resize_nbytes) NUMBER(w, "resize_bytes", e->u.pool.resize_nbytes);
        if (e->u.pool.keeps_segments) KEY(w, "keeps_segments"), put_raw(w, "true", 4);
        break;
    case FY__EVENT_BLOCK_ALLOC:
    case FY__EVENT_BLOCK_FREE:
        STRING(w, "pool", e->name);
        NUMBER(w, "block", e->u.memory.block);
        NUMBER(w, "bytes", e->nbytes);
        NUMBER(w, "requested_bytes", e->u.memory.requested);
        if (e->u.memory.place.segment) {
            NUMBER(w, "segment", e->u.memory.place.segment);
            NUMBER(w, "offset", e->u.memory.place.offset);
        }
        if (e->kind == FY__EVENT_BLOCK_ALLOC)
            STRING(w, "category", fy_category_name(e->u.memory.category));
        if (e->kind == FY__EVENT_BLOCK_ALLOC && e->point)
            NUMBER(w, "stream", FY__POINT_STREAM(e->point));
        if (e->kind == FY__EVENT_BLOCK_FREE) put_after(w, e->u.memory.after);
        break;
    case FY__EVENT_BLOCKS_REACHED:
        STRING(w, "pool", e->name);
        put_point(w, e->point);
        break;
    default: /* segments */
        STRING(w, "pool", e->name);
        NUMBER(w, "segment", e->u.memory.place.segment);
        NUMBER(w, "bytes", e->nbytes);
    }
}

static void put_event(writer_t *w, const fy__event_t *e)
{
    static const char *const names[] = {
#define X(name, text) "{\"ev\":\"" #text "\"",
        FY__EVENT_LIST(X)
#undef X
    };
    put_raw(w, names[e->kind], strlen(names[e->kind]));
    NUMBER(w, "t_ns", e->at_ns > w->start_ns ? e->at_ns - w->start_ns : 0);
    if (e->model_ns != FY__EVENT_NO_MODEL) NUMBER(w, "model_ns", e->model_ns);
    NUMBER(w, "thread", e->thread);
    put_scope(w, e->scope);
    switch ((fy__event_kind_t)e->kind) {
    case FY__EVENT_OP: put_op(w, e); break;
    case FY__EVENT_OPERANDS: put_operands(w, e); break;
    case FY__EVENT_TRANSFER: put_transfer(w, e); break;
    case FY__EVENT_COPY:
        STRING(w, "direction", direction_name(e->u.transfer.direction));
        NUMBER(w, "bytes", e->nbytes);
        break;
    case FY__EVENT_STARTED:
        STRING(w, "device", e->device);
        put_point(w, e->point);
        NUMBER(w, "as_stream", FY__POINT_STREAM(e->u.wait.on));
        NUMBER(w, "as_seq", FY__POINT_SEQ(e->u.wait.on));
        NUMBER(w, "bytes", e->nbytes);
        STRING(w, "status", fy_status_name((fy_status_t)e->u.wait.status));
        put_span(w, e);
        break;
    case FY__EVENT_WAIT:
        put_point(w, e->point);
        NUMBER(w, "on_stream", FY__POINT_STREAM(e->u.wait.on));
        NUMBER(w, "on_seq", FY__POINT_SEQ(e->u.wait.on));
        STRING(w, "site", fy__wait_site_name((fy__wait_site_t)e->u.wait.site));
        break;
    case FY__EVENT_MAP: put_map(w, e); break;
    case FY__EVENT_SYNC:
        STRING(w, "what", e->name);
        STRING(w, "reason", fy__wait_site_name((fy__wait_site_t)e->u.wait.site));
        put_point(w, e->point);
        NUMBER(w, "blocked_ns", e->ns);
        break;
    case FY__EVENT_THROTTLE:
        STRING(w, "reason", e->name);
        NUMBER(w, "blocked_ns", e->ns);
        break;
    case FY__EVENT_ARRIVED:
        STRING(w, "device", e->device);
        put_point(w, e->point);
        NUMBER(w, "bytes", e->nbytes);
        NUMBER(w, "blocked_ns", e->ns);
        STRING(w, "status", fy_status_name((fy_status_t)e->u.said.status));
        break;
    case FY__EVENT_REFUSAL:
    case FY__EVENT_FAULT:
        STRING(w, "status", fy_status_name((fy_status_t)e->u.said.status));
        STRING(w, "text", e->u.said.text);
        break;
    case FY__EVENT_DEVICE: put_device(w, e); break;
    case FY__EVENT_STREAM:
        NUMBER(w, "stream", FY__POINT_STREAM(e->point));
        STRING(w, "device", e->device);
        STRING(w, "name", e->u.said.text);
        break;
    case FY__EVENT_STORAGE:
    case FY__EVENT_POOL:
    case FY__EVENT_SEGMENT_ALLOC:
    case FY__EVENT_SEGMENT_FREE:
    case FY__EVENT_BLOCK_ALLOC:
    case FY__EVENT_BLOCK_FREE:
    case FY__EVENT_BLOCKS_REACHED: put_memory(w, e); break;
    case FY__EVENT_SCOPE_BEGIN:
    case FY__EVENT_SCOPE_END:
    case FY__EVENT_DEVICE_ALLOC:
    case FY__EVENT_KINDS: break;
    }
    put_raw(w, "}\n", 2);
}

/* ---- the thread ---- */

/* The command line, its first word without folders; "" if the system does not say. */
static void put_source(writer_t *w)
{
    char words[1024];
    const int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, words, sizeof words - 1) : -1;
    if (fd >= 0) close(fd);
    if (n < 0) n = 0;
    words[n] = 0;
    const char *program = base_name(words);
    for (ssize_t i = program - words; i + 1 < n; i++)
        if (!words[i]) words[i] = ' ';
    STRING(w, "source", program);
}

static void put_first(writer_t *w)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    put_raw(w, "{\"ev\":\"ferry\"", 13);
    NUMBER(w, "version", FY__EVENT_VERSION);
    STRING(w, "library", FERRY_VERSION);
    put_source(w);
    NUMBER(w, "process", (uint64_t)getpid());
    NUMBER(w, "start_ns", w->start_ns);
    NUMBER(w, "unix_ns", (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec);
    put_raw(w, "}\n", 2);
}

static void put_last(writer_t *w)
{
    put_raw(w, "{\"ev\":\"end\"", 11);
    NUMBER(w, "t_ns", fy__now_ns() - w->start_ns);
    NUMBER(w, "events", w->nevents);
    NUMBER(w, "lost", atomic_load_explicit(&w->ring->lost, memory_order_relaxed));
    put_raw(w, "}\n", 2);
}

/* Writes all events in the ring; returns their number. */
static uint64_t drain(writer_t *w)
{
    const fy__event_t *event;
    uint64_t n = 0;
    while ((event = fy__event_ring_peek(w->ring))) {
        if (w->failed)
            w->dropped++;
        else {
            put_event(w, event);
            w->nevents++;
        }
        fy__event_ring_done(w->ring);
        if (FY__EVENT_BUFFER - w->used < FY__EVENT_LINE_MOST) flush(w);
        n++;
    }
    return n;
}

void *fy__event_write(void *writer)
{
    enum { NAP_LEAST_NS = 250000, NAP_MOST_NS = 4000000 };
    writer_t *w = writer;
    struct timespec nap = { 0, NAP_LEAST_NS };
    put_first(w);
    for (;;) {
        /* before the last drain */
        const bool ending = atomic_load_explicit(&w->ending, memory_order_acquire);
        if (drain(w)) {
            nap.tv_nsec = NAP_LEAST_NS;
            continue;
        }
        flush(w); /* a reader that follows the file sees all events so far */
        if (ending) break;
        nanosleep(&nap, NULL);
        if (nap.tv_nsec < NAP_MOST_NS) nap.tv_nsec *= 2;
    }
    put_last(w);
    flush(w);
    return NULL;
}
