/* An event in memory, and the ring of events: many threads put, one takes, no thread waits.
 * A putting thread takes the next cells by increasing `head`, fills them, and then sets the state
 * word of the first one. The taker reads records in order, sets the state words of their cells to 0
 * and increases `tail`. So a state word is 0 unless a whole record begins there, and zeroed memory
 * is an empty ring. Events of one thread are taken in their order.
 * Not here: which events are put (event.h), the file (event_write.h). */
#ifndef FERRY_RUNTIME_EVENT_RING_H_
#define FERRY_RUNTIME_EVENT_RING_H_

#include "runtime/base/event_list.h"
#include "runtime/record/event.h"
#include "runtime/record/signature.h"
#include "runtime/thread/thread.h"

typedef enum fy__event_kind {
#define X(name, text) FY__EVENT_##name,
    FY__EVENT_LIST(X)
#undef X
        FY__EVENT_KINDS
} fy__event_kind_t;

enum { FY__EVENT_OPERANDS_MOST = 8, FY__EVENT_TEXT = 144, FY__EVENT_ATTRS = 64 };
#define FY__EVENT_NO_MODEL UINT64_MAX

/* Bytes as an event names them: the storage's id, the tensor's name (fy__text_number; 0: none) and
 * the version. id 0: no storage (a file). */
typedef struct fy__event_bytes {
    uint64_t id : 48, name : 16;
    uint64_t version;
} fy__event_bytes_t;

/* Strings are static or interned (fy__text), nodes are never freed: an event may be read long after
 * it happened. The ring copies an event only up to the last member that its kind uses (used_nbytes
 * in event_ring.c). */
typedef struct fy__event {
    uint16_t kind;      /* fy__event_kind_t */
    uint8_t nsrc, ndst; /* OP, OPERANDS: operands, sources first */
    uint32_t thread;    /* fy__thread_t.number; 0: none */
    uint64_t at_ns;     /* fy__now_ns() */
    uint64_t model_ns;  /* the host's model time; FY__EVENT_NO_MODEL: no device has such a clock */
    const fy__node_t *scope;
    const void *caller; /* a return address: the call site; NULL: unknown, or the kind has none */
    const char *name;   /* op, what, pool, stream */
    const char *device;
    fy__point_t point;
    uint64_t nbytes, ns;       /* ns: blocked */
    uint64_t start_ns, end_ns; /* model time; both 0: unknown */
    union {
        struct {
            /* number: of this op in this recording; of OPERANDS and LAUNCH, that of their op */
            uint64_t number, flops;
            const fy__signature_t *signature; /* NULL: none */
            uint32_t launches;                /* OP: LAUNCH events of it, which precede it */
            uint16_t attrs_nbytes; /* of the attributes, which are known if `signature` is set */
            bool has_fallbacks;    /* and are the fallbacks */
            /* the attributes, then the operands: fy__event_operands */
            _Alignas(8) unsigned char more[FY__EVENT_ATTRS +
                                           FY__EVENT_OPERANDS_MOST * sizeof(fy__event_bytes_t)];
        } op;
        struct {
            const char *site, *other; /* site: as the caller gave it, or NULL */
            int direction, path, contract, priority;
            int pinned; /* the memory on the host's side is page-locked; -1: there is none */
            fy__event_bytes_t src, dst;
        } transfer;
        struct {
            fy__point_t on;
            int site, status;
        } wait; /* SYNC: site */
        struct {
            uint64_t number, messages, lasted_ns; /* messages: EXCHANGE; the rest: COLLECTIVE_RAN */
            int rank, status;
        } collective;
        struct {
            int access;
            fy__event_bytes_t bytes; /* before a write */
        } map;
        struct {
            const char *backend, *model, *options;
            bool is_simulated;
        } device;
        struct {
            uint64_t id, block, offset; /* offset: NAMED, of the named bytes in the storage */
            uint16_t name;              /* NAMED: fy__text_number */
            bool pinned;
        } storage;
        struct {
            uint64_t requested, block;
            fy__event_place_t place;
            fy_category_t category;
            /* of a block that is freed: requests that may still use it; 0: none */
            fy__point_t after[1 + FY__READER_COUNT];
        } memory;
        struct {
            uint64_t live, segment_nbytes, resize_nbytes;
            bool keeps_segments;
        } pool;
        struct {
            int status;
            char text[FY__EVENT_TEXT - 8];
        } said;
    } u;
} fy__event_t;

/* The room that the attributes take in `more`. */
static inline size_t fy__event_attrs_room(const fy__event_t *event)
{
    return ((size_t)event->u.op.attrs_nbytes + 7) & ~(size_t)7;
}
/* nsrc sources, then ndst results. */
static inline fy__event_bytes_t *fy__event_operands(const fy__event_t *event)
{
    return (fy__event_bytes_t *)(uintptr_t)(event->u.op.more + fy__event_attrs_room(event));
}

typedef struct fy__event_record {
    _Atomic uint64_t cells; /* that it takes; 0: not yet whole */
    fy__event_t event;
} fy__event_record_t;

typedef union fy__event_cell {
    _Atomic uint64_t state; /* the first one's is the record's `cells` */
    unsigned char bytes[64];
} fy__event_cell_t;

typedef struct fy__event_ring {
    fy__event_cell_t *cells;
    uint64_t capacity; /* a power of two */
    uint64_t start;    /* the first position */
    /* position of the next record to be put; the top bit: the ring has ended */
    _Alignas(64) _Atomic uint64_t head;
    _Atomic uint64_t known_tail;        /* `tail` as a putting thread last read it */
    _Atomic uint64_t lost;              /* events dropped because it was full */
    _Alignas(64) _Atomic uint64_t tail; /* position of the next record to be taken */
    size_t ready_nbytes;                /* of `cells`: have pages; used by the taker only */
} fy__event_ring_t;

/* 1 << shift cells; the system provides pages on first use, or before. `ring` is zeros, or was
 * closed. false: no memory. */
bool fy__event_ring_open(fy__event_ring_t *ring, uint32_t shift);
void fy__event_ring_close(fy__event_ring_t *ring);
/* false: the ring has ended; or it is full, and the event is dropped and counted. */
bool fy__event_ring_put(fy__event_ring_t *ring, const fy__event_t *event);
/* Later puts fail. */
void fy__event_ring_end(fy__event_ring_t *ring);
/* Of a ring that has ended: are all its events taken? UNFINISHED: the next one is not whole,
 * because a thread is putting it. Any thread. */
typedef enum { FY__EVENT_DRAINED, FY__EVENT_DRAINING, FY__EVENT_UNFINISHED } fy__event_drain_t;
fy__event_drain_t fy__event_ring_drained(const fy__event_ring_t *ring, uint64_t *out_tail);
/* The oldest event, or NULL; valid until fy__event_ring_done. One thread only. */
const fy__event_t *fy__event_ring_peek(fy__event_ring_t *ring);
void fy__event_ring_done(fy__event_ring_t *ring);
/* Gets pages for the cells that will be filled next, so that threads that put do not have to. Same
 * thread as peek. */
void fy__event_ring_prepare(fy__event_ring_t *ring);

/* ---- for hooks that need more than event.h has (event.c) ---- */

/* A new file begins: invalidates the ids of all storages. */
void fy__event_forget(void);
/* An event of this kind, at this time, of this thread. */
fy__event_t fy__event_begin(fy__event_kind_t kind, const struct fy__thread *thread);
void fy__event_put(const fy__event_t *event);
/* Names bytes in an event; the first time, also puts an event for the storage, of the same moment.
 * NULL: no storage. */
fy__event_bytes_t fy__event_bytes(const fy__event_t *event, const struct fy__storage *storage);
/* An op event: begin it, add its signature, name its operands (sources first), put it. `name` lives
 * as long as the process. */
fy__event_t fy__event_op_begin(const struct fy__thread *thread, const char *name,
                               const fy_device_t *device, fy__point_t point, uint64_t flops,
                               uint64_t nbytes, uint64_t number);
/* Adds the signature and the attributes of one op. */
void fy__event_op_launch(fy__event_t *event, const fy_op_info_t *info, const fy_launch_t *launch);
/* `name`: fy__event_name of the tensor; 0: none. */
void fy__event_op_src(fy__event_t *event, const struct fy__storage *storage, uint16_t name);
/* written: the op makes a new version of existing bytes; else the bytes are new. */
void fy__event_op_dst(fy__event_t *event, const struct fy__storage *storage, uint16_t name,
                      bool written);
/* The device's spec as an event may hold it. */
const char *fy__event_device_text(const fy_device_t *device);
/* The number of the tensor's name, for fy__event_bytes_t; 0: it has none, or there are too many. */
uint16_t fy__event_name(const fy_tensor_t *tensor);
/* A new number for an op. */
uint64_t fy__event_op_number(void);
/* Adds start and end of the request that this thread submitted last to `device`, if the device
 * knows them. */
void fy__event_span(fy__event_t *event, const fy_device_t *device);

#endif
