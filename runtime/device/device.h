/* A device inside the runtime: a backend's slots and handle, its streams, its pools, and whether it
 * is lost. registry.c finds and opens devices, wire.c builds their parts, storages keep them alive.
 * Not here: the backend interface (include/ferry/backend.h). */
#ifndef FERRY_RUNTIME_DEVICE_H_
#define FERRY_RUNTIME_DEVICE_H_

#include <pthread.h>

#include <ferry/backend.h>
#include <ferry/device.h>

#include "runtime/device/memory.h"
#include "runtime/order/fault.h"
#include "runtime/thread/watch.h"

/* Objects of transfer/ that belong to a device. */
struct fy__ring;
struct fy__queue;

typedef enum fy__lost { FY__PRESENT, FY__LOST, FY__LOST_BY_FORK } fy__lost_t;

/* Never freed, but reused for another device, so that an old ticket may point to it. */
struct fy_device {
    const fy_backend_t *backend;
    void *dev;
    uint32_t index; /* 0 is the host */
    bool is_host;
    bool is_of_plan;  /* opened for fy_plan_step: no program opens it */
    bool synchronous; /* every request is done when its slot returns: there are no streams and no
                       * hazards */
    fy_backend_info_t info;
    _Atomic uint32_t opens; /* changed under the registry's lock */
    char spec[64];          /* "sim:0" */
    const char *spec_text;  /* a permanent copy (fy__text) */
    char options[512];      /* the options of the first open, after the '?' */
    uint64_t limit_nbytes, pinned_limit_nbytes, workspace_nbytes;
    /* Page-locked host memory for it: all of it, its maximum so far, and the part outside the pool
     * `pinned`. See pin.h. */
    _Atomic uint64_t registered_nbytes, registered_peak_nbytes, pinned_outside_nbytes;
    /* of the latter: released, and locked until the last use is over */
    _Atomic uint64_t pinned_leaving_nbytes;
    /* of those: for the device itself; fixed after the open */
    uint64_t pinned_own_nbytes;
    /* most requests that a stream may be behind the host */
    uint64_t ahead;
    /* of each engine: most bytes in flight, and most bytes queued */
    uint64_t window_nbytes, queue_nbytes;
    uint64_t segment_nbytes; /* 0: chosen by its size */
    bool growth_off;         /* only fy_memory_reserve grows */
    bool fuse_off;           /* graphs make no chains and drop no calls */
    /* FY__DEBUG_POISON, FY__DEBUG_GUARD: for memory that the host can access */
    uint32_t debug;
    fy__pool_t *pool;                         /* device memory; the host's segments for the host */
    fy__pool_t *pinned;                       /* page-locked host memory; NULL for the host */
    fy__backing_t backing, pinned_backing;    /* of the pools; their source_lock guards them */
    fy_device_options_t hooks;                /* the program's allocator; zeros: none */
    fy_stream_t *compute, *upload, *download; /* NULL if synchronous */
    struct fy__ring *ring;
    struct fy__queue *uploads, *downloads; /* transfer/queue.h; NULL if synchronous */
    fy_stream_t *_Atomic jobs[2];          /* the engines' job timelines, from the first job on */
    struct fy__pressure *pressures;        /* pressure.c, guarded by its lock */
    /* Any thread may read the members below at any time, even after the device was closed and its
     * place reused: registry.c. */
    _Atomic int lost;       /* fy__lost_t; never cleared while the device is open */
    _Atomic bool lost_told; /* lost_text is written */
    char lost_text[320];    /* the first cause, with the backend's text */
    _Atomic uint64_t uses;  /* opens + storages; the device is closed with the last one. Not counted
                             * for the host */
    fy__faults_t faults;
    pthread_mutex_t deferred_lock; /* guards `deferred` */
    struct fy__storage *deferred;  /* storages whose last use is still in flight: storage.c */
};

static inline bool fy__device_is_lost(const fy_device_t *device)
{
    return __builtin_expect(
        atomic_load_explicit(&device->lost, memory_order_relaxed) != FY__PRESENT, 0);
}
/* Fails with DEVICE_LOST; the text has the cause and the remedy. */
fy_status_t fy__device_lost_error(const fy_device_t *device);
/* Checks the status of a slot: DEVICE_LOST marks the device; other failures are only returned. */
fy_status_t fy__device_check(fy_device_t *device, fy_status_t status);

/* Counted by storages; the last use closes the device. */
static inline void fy__device_use(fy_device_t *device)
{
    if (!device->is_host) atomic_fetch_add_explicit(&device->uses, 1, memory_order_relaxed);
}
void fy__device_unuse(fy_device_t *device);
/* `device` from an old ticket, now in use by the caller. NULL: it is the host, or it was closed,
 * and then all its tickets are over when this returns. Blocks while another thread closes it. */
fy_device_t *fy__device_hold(fy_device_t *device);
/* For walks: the open device number `index` (not the host), now in use by the caller; NULL if there
 * is none. */
fy_device_t *fy__device_use_at(uint32_t index);
/* The host if a call has opened it already; else NULL. */
fy_device_t *fy__device_host_if_open(void);

/* Queued transfers of the device: pump submits those that fit the window; flush submits all. No
 * lock may be held. */
void fy__device_pump_slow(fy_device_t *device);
static inline void fy__device_pump(fy_device_t *device)
{
    if (__builtin_expect(atomic_load_explicit(&device->jobs[0], memory_order_relaxed) != NULL ||
                             atomic_load_explicit(&device->jobs[1], memory_order_relaxed) != NULL,
                         0))
        fy__device_pump_slow(device);
}
void fy__device_flush(fy_device_t *device);

/* The time base of waits for this device: its model clock or wall time. */
uint64_t fy__device_now_ns(fy_device_t *device);
/* The rest of `timeout_ns` since `start_ns`. */
uint64_t fy__device_left_ns(fy_device_t *device, uint64_t timeout_ns, uint64_t start_ns);
/* Blocks until every open stream of the device has done its submitted work. Not counted here. */
fy_status_t fy__device_drain(fy_device_t *device, uint64_t timeout_ns);

/* Charges work of the host: advances the host clock of simulated devices. One load when none is
 * open. */
void fy__charge_host_slow(uint64_t flops, uint64_t nbytes);
static inline void fy__charge_host(uint64_t flops, uint64_t nbytes)
{
    if (__builtin_expect(fy__watch_has(fy__watching(), FY__WATCH_SIMULATED), 0))
        fy__charge_host_slow(flops, nbytes);
}

/* Charges the filling or emptying of nbytes of staging memory, with as many threads as that
 * uses. */
void fy__charge_host_copy_slow(uint64_t nbytes);
static inline void fy__charge_host_copy(uint64_t nbytes)
{
    if (__builtin_expect(fy__watch_has(fy__watching(), FY__WATCH_SIMULATED), 0))
        fy__charge_host_copy_slow(nbytes);
}

/* ---- wire.c: connects a device with the parts in alloc/, transfer/ and backends/ ---- */

/* Backends that are part of the library; *out_count of them. */
typedef struct fy__builtin {
    const char *name;
    fy_backend_open_fn open;
} fy__builtin_t;
const fy__builtin_t *fy__wire_builtins(size_t *out_count);
/* Makes pools, streams and ring. On failure everything is removed again. */
fy_status_t fy__wire_open(fy_device_t *device);
/* Waits for running work (unless lost) and removes everything, the backend's device last. */
void fy__wire_close(fy_device_t *device);
/* Once per process: handle kinds, fork handlers. */
void fy__wire_process(void);

#endif
