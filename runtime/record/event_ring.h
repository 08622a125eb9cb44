/* An event in memory, and the ring of events: many threads put, one takes, no thread waits. In lap
 * n round the ring, a slot may be filled while its `state` is 2n, and taken while it is 2n + 1, so
 * zeroed memory is an empty ring. After D. Vyukov, "Bounded MPMC queue" (1024cores). Events of one
 * thread are taken in their order.
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

/* Bytes as an event names them: the storage's id and the version. id 0: no storage (a file). */
typedef struct fy__event_bytes {
    uint64_t id, version;
} fy__event_bytes_t;

/* Strings are static or interned (fy__event_intern), nodes are never freed: an event may be read
 * long after it happened. */
typedef struct fy__event {
    uint16_t kind;      /* fy__event_kind_t */
    uint8_t nsrc, ndst; /* OP, OPERANDS: entries of `operand`, sources first */
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
            uint64_t number, flops; /* number: of this op in this recording, for its OPERANDS */
            const fy__signature_t *signature; /* NULL: none */
            fy__event_bytes_t operand[FY__EVENT_OPERANDS_MOST];
            /* the attributes, if `signature` is set: as many bytes as its op has, at most these */
            _Alignas(8) unsigned char attrs[FY__EVENT_ATTRS];
            bool has_fallbacks; /* and not these */
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
            int access;
            fy__event_bytes_t bytes; /* before a write */
        } map;
        struct {
            const char *backend, *model, *options;
            bool is_simulated;
        } device;
        struct {
            uint64_t id, requested, block; /* of a storage, a block */
            fy__event_place_t place;
            fy_category_t category;
            bool pinned;
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

typedef struct fy__event_slot {
    _Atomic uint64_t state;
    fy__event_t event;
} fy__event_slot_t;

typedef struct fy__event_ring {
    fy__event_slot_t *slots;
    uint64_t mask;
    uint32_t shift;                     /* capacity is 1 << shift */
    _Alignas(64) _Atomic uint64_t head; /* next to be filled */
    _Alignas(64) uint64_t tail;         /* next to be taken; used by the taker only */
    size_t ready_nbytes;                /* of `slots`: have pages; used by the taker only */
    _Alignas(64) _Atomic uint64_t lost; /* events dropped because it was full */
} fy__event_ring_t;

/* 1 << shift slots; the system provides pages on first use, or before. false: no memory. */
bool fy__event_ring_open(fy__event_ring_t *ring, uint32_t shift);
void fy__event_ring_close(fy__event_ring_t *ring);
/* false: the ring is full; the event is dropped and counted. */
bool fy__event_ring_put(fy__event_ring_t *ring, const fy__event_t *event);
/* The oldest event, or NULL; valid until fy__event_ring_done. One thread only. */
const fy__event_t *fy__event_ring_peek(fy__event_ring_t *ring);
void fy__event_ring_done(fy__event_ring_t *ring);
/* Gets pages for the slots that will be filled next, so that threads that put do not have to. Same
 * thread as peek. */
void fy__event_ring_prepare(fy__event_ring_t *ring);

/* ---- for hooks that need more than event.h has (event.c) ---- */

/* A new file begins: invalidates the ids of all storages. */
void fy__event_forget(void);
/* An event of this kind, at this time, of this thread. */
fy__event_t fy__event_begin(fy__event_kind_t kind, const struct fy__thread *thread);
void fy__event_put(const fy__event_t *event);
/* Names bytes; the first time, also writes an event for the storage. NULL: no storage. */
fy__event_bytes_t fy__event_bytes(const struct fy__thread *thread,
                                  const struct fy__storage *storage);
/* Returns one permanent copy of the text: for few different texts (device specs, pools). */
const char *fy__event_intern(const char *text);
/* An op event: begin it, name its operands (sources first), put it. `name` lives as long as the
 * process. */
fy__event_t fy__event_op_begin(const struct fy__thread *thread, const char *name,
                               const fy_device_t *device, fy__point_t point, uint64_t flops,
                               uint64_t nbytes);
/* Adds the signature and the attributes of one op. */
void fy__event_op_launch(fy__event_t *event, const fy_op_info_t *info, const fy_launch_t *launch);
void fy__event_op_src(fy__event_t *event, const struct fy__thread *thread,
                      const struct fy__storage *storage);
/* written: the op makes a new version of existing bytes; else the bytes are new. */
void fy__event_op_dst(fy__event_t *event, const struct fy__thread *thread,
                      const struct fy__storage *storage, bool written);
/* Adds start and end of the request that this thread submitted last to `device`, if the device
 * knows them. */
void fy__event_span(fy__event_t *event, const fy_device_t *device);

#endif
