/* Writes events as lines of JSON. docs/internals/events.md documents the format; the key of a
 * quantity has its unit. Numbers and strings are formatted by hand, because this thread must keep
 * up with all others. */
#include "runtime/record/event_write.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <ferry/tensor.h>

#include "runtime/record/event_text.h"
#include "runtime/thread/guard.h"

typedef fy__event_writer_t writer_t;

static void flush(writer_t *w, bool ends)
{
    fy__event_sink_put(&w->sink, w->buffer, w->used, ends);
    w->used = 0;
}

/* ---- pieces ---- */

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

static const char *direction_name(int direction)
{
    static const char *const names[] = { "upload", "download", "peer", "collective" };
    return (unsigned)direction < FY__DIRECTIONS ? names[direction] : "?";
}

static void put_names(writer_t *w, const fy__event_bytes_t *bytes, unsigned count)
{
    KEY(w, "names");
    for (unsigned i = 0; i < count; i++) {
        put_raw(w, i ? "," : "[", 1);
        put_number(w, bytes[i].name);
    }
    put_raw(w, "]", 1);
}

/* ---- kinds ---- */

/* Operands, and their names' numbers if any has one. */
static void put_operands(writer_t *w, const fy__event_t *e)
{
    const fy__event_bytes_t *bytes = fy__event_operands(e);
    const unsigned count = (unsigned)e->nsrc + e->ndst;
    bool has_names = false;
    KEY(w, "src");
    put_list(w, bytes, e->nsrc);
    KEY(w, "dst");
    put_list(w, bytes + e->nsrc, e->ndst);
    for (unsigned i = 0; i < count; i++) has_names |= bytes[i].name != 0;
    if (has_names) put_names(w, bytes, count);
}

static void put_op(writer_t *w, const fy__event_t *e)
{
    if (e->kind == FY__EVENT_LAUNCH)
        NUMBER(w, "of", e->u.op.number);
    else
        NUMBER(w, "number", e->u.op.number);
    STRING(w, "op", e->name);
    STRING(w, "device", e->device);
    if (e->kind == FY__EVENT_OP)
        put_point(w, e->point);
    else if (e->point)
        NUMBER(w, "stream", FY__POINT_STREAM(e->point));
    NUMBER(w, "flops", e->u.op.flops);
    NUMBER(w, "bytes", e->nbytes);
    if (e->u.op.signature) {
        NUMBER(w, "signature", e->u.op.signature->id);
        if (!e->u.op.has_fallbacks) fy__event_put_attrs(w, e->u.op.signature->info, e->u.op.more);
    }
    if (e->u.op.launches) NUMBER(w, "launches", e->u.op.launches);
    if (e->kind == FY__EVENT_OP) put_operands(w, e);
    put_span(w, e);
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

static void put_transfer(writer_t *w, const fy__event_t *e, const fy__event_site_t *site)
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
    if (e->u.transfer.site || site) STRING(w, "site", site ? site->name : e->u.transfer.site);
    KEY(w, "src");
    put_bytes(w, e->u.transfer.src);
    KEY(w, "dst");
    put_bytes(w, e->u.transfer.dst);
    const fy__event_bytes_t both[] = { e->u.transfer.src, e->u.transfer.dst };
    if (both[0].name || both[1].name) put_names(w, both, 2);
    put_span(w, e);
}

static void put_collective(writer_t *w, const fy__event_t *e)
{
    if (e->kind == FY__EVENT_EXCHANGE) {
        NUMBER(w, "bytes", e->nbytes);
        NUMBER(w, "messages", e->u.collective.messages);
        NUMBER(w, "blocked_ns", e->ns);
        return;
    }
    STRING(w, "op", e->name);
    if (e->kind == FY__EVENT_COLLECTIVE) {
        NUMBER(w, "bytes", e->nbytes);
        return;
    }
    NUMBER(w, "rank", (uint64_t)e->u.collective.rank);
    NUMBER(w, "number", e->u.collective.number);
    NUMBER(w, "lasted_ns", e->u.collective.lasted_ns);
    STRING(w, "status", fy_status_name((fy_status_t)e->u.collective.status));
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
        NUMBER(w, "storage", e->u.storage.id);
        STRING(w, "device", e->device);
        NUMBER(w, "bytes", e->nbytes);
        if (e->u.storage.block) NUMBER(w, "block", e->u.storage.block);
        if (e->u.storage.pinned) KEY(w, "pinned"), put_raw(w, "true", 4);
        break;
    case FY__EVENT_NAMED:
        NUMBER(w, "storage", e->u.storage.id);
        NUMBER(w, "offset", e->u.storage.offset);
        NUMBER(w, "bytes", e->nbytes);
        NUMBER(w, "name", e->u.storage.name);
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

/* The lines that the event's line refers to. */
static void put_references(writer_t *w, const fy__event_t *e)
{
    const bool is_op = e->kind == FY__EVENT_OP || e->kind == FY__EVENT_OPERANDS,
               is_transfer = e->kind == FY__EVENT_TRANSFER;
    for (unsigned i = 0; is_op && i < (unsigned)e->nsrc + e->ndst; i++)
        fy__event_put_name(w, e, fy__event_operands(e)[i].name);
    if (is_transfer) fy__event_put_name(w, e, e->u.transfer.src.name);
    if (is_transfer) fy__event_put_name(w, e, e->u.transfer.dst.name);
    if (e->kind == FY__EVENT_NAMED) fy__event_put_name(w, e, e->u.storage.name);
    if (e->kind == FY__EVENT_OP || e->kind == FY__EVENT_LAUNCH) fy__event_put_signature(w, e);
}

static void put_event(writer_t *w, const fy__event_t *e)
{
    static const char *const names[] = {
#define X(name, text) "{\"ev\":\"" #text "\"",
        FY__EVENT_LIST(X)
#undef X
    };
    const bool is_transfer = e->kind == FY__EVENT_TRANSFER;
    const fy__event_site_t *site = is_transfer && e->u.transfer.site ? NULL : fy__event_site(w, e);
    put_references(w, e);
    put_raw(w, names[e->kind], strlen(names[e->kind]));
    put_context(w, e);
    if (site && !is_transfer) NUMBER(w, "site", site->id);
    switch ((fy__event_kind_t)e->kind) {
    case FY__EVENT_OP:
    case FY__EVENT_LAUNCH: put_op(w, e); break;
    case FY__EVENT_OPERANDS:
        NUMBER(w, "of", e->u.op.number);
        put_operands(w, e);
        break;
    case FY__EVENT_TRANSFER: put_transfer(w, e, site); break;
    case FY__EVENT_COPY:
        STRING(w, "direction", direction_name(e->u.transfer.direction));
        NUMBER(w, "bytes", e->nbytes);
        break;
    case FY__EVENT_COLLECTIVE:
    case FY__EVENT_EXCHANGE:
    case FY__EVENT_COLLECTIVE_RAN: put_collective(w, e); break;
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
    case FY__EVENT_NAMED:
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
    const char *slash = strrchr(words, '/'), *program = slash ? slash + 1 : words;
    for (ssize_t i = program - words; i + 1 < n; i++)
        if (!words[i]) words[i] = ' ';
    STRING(w, "source", program);
}

/* Left out if the system does not say. */
static void put_memory_of_host(writer_t *w)
{
    const long pages = sysconf(_SC_PHYS_PAGES), page_nbytes = sysconf(_SC_PAGESIZE);
    if (pages > 0 && page_nbytes > 0)
        NUMBER(w, "memory_bytes", (uint64_t)pages * (uint64_t)page_nbytes);
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
    put_memory_of_host(w);
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

/* Of one event: those of a site, a signature and names, and its own. */
enum { LINES_MOST = 3 + FY__EVENT_OPERANDS_MOST };

/* Writes all events in the ring; returns their number. */
static uint64_t drain(writer_t *w)
{
    const fy__event_t *event;
    uint64_t n = 0;
    while ((event = fy__event_ring_peek(w->ring))) {
        if (w->sink.failed)
            w->dropped++;
        else {
            put_event(w, event);
            w->nevents++;
        }
        fy__event_ring_done(w->ring);
        if (FY__EVENT_BUFFER - w->used < LINES_MOST * FY__EVENT_LINE_MOST) flush(w, false);
        if (++n % 1024 == 0) fy__event_ring_prepare(w->ring);
    }
    return n;
}

void *fy__event_write(void *writer)
{
    /* Each time the thread wakes up it takes a processor from the program, perhaps in the middle of
     * an op. So it sleeps longer as long as few events arrive; the ring has room for those of the
     * longest sleep. */
    enum { NAP_LEAST_NS = 250000, NAP_MOST_NS = 8000000, FEW_EVENTS = 8192 };
    writer_t *w = writer;
    struct timespec nap = { 0, NAP_LEAST_NS };
    uint64_t taken = 0; /* since the last sleep */
    put_first(w);
    for (;;) {
        fy__event_ring_prepare(w->ring);
        /* before the last drain */
        const bool ending = atomic_load_explicit(&w->ending, memory_order_acquire);
        const uint64_t n = drain(w);
        taken += n;
        if (n) continue;
        flush(w, false); /* a reader that follows the file sees all events so far */
        if (ending) break;
        if (taken <= FEW_EVENTS && nap.tv_nsec < NAP_MOST_NS)
            nap.tv_nsec *= 2;
        else if (taken > FEW_EVENTS && nap.tv_nsec > NAP_LEAST_NS)
            nap.tv_nsec /= 2;
        taken = 0;
        nanosleep(&nap, NULL);
    }
    put_last(w);
    flush(w, true);
    return NULL;
}
