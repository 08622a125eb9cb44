/* A device as the runtime sees it: a backend's slots and handle, its streams, its pools, and
 * whether it is still there.
 * registry.c finds and opens them, wire.c builds what hangs on them, storages keep them alive.
 * Not here: what a backend does (include/ferry/backend.h). */
#ifndef FERRY_RUNTIME_DEVICE_H_
#define FERRY_RUNTIME_DEVICE_H_

#include <pthread.h>

#include <ferry/backend.h>
#include <ferry/device.h>

#include "runtime/device/memory.h"
#include "runtime/order/fault.h"
#include "runtime/thread/watch.h"

/* What transfer/ hangs on a device. */
struct fy__ring;
struct fy__queue;

typedef enum fy__lost { FY__PRESENT, FY__LOST, FY__LOST_BY_FORK } fy__lost_t;

/* Never freed, but used again for another device: an old ticket may lead to it. */
struct fy_device {
    const fy_backend_t *backend;
    void *dev;
    uint32_t index; /* 0 is the host */
    bool is_host;
    bool synchronous; /* every request is done when its slot returns: no streams, no hazards */
    fy_backend_info_t info;
    _Atomic uint32_t opens; /* changed under the registry's lock */
    char spec[64];          /* "sim:0" */
    char options[512];      /* what it was opened with, behind the '?' */
    uint64_t limit_nbytes, pinned_limit_nbytes, workspace_nbytes;
    /* Page-locked host memory for it: all of it, the most so far, and what of it lies outside the
     * pool `pinned`. See pin.h. */
    _Atomic uint64_t registered_nbytes, registered_peak_nbytes, pinned_outside_nbytes;
    /* of the latter: given up, and locked until their last use is over */
    _Atomic uint64_t pinned_leaving_nbytes;
    /* of those: for the device's own use; fixed when it is open */
    uint64_t pinned_own_nbytes;
    /* most requests that a stream may be behind the host */
    uint64_t ahead;
    /* of each engine: most that is in flight, and that stands behind it */
    uint64_t window_nbytes, queue_nbytes;
    uint64_t segment_nbytes; /* 0: as suits its size */
    bool growth_off;         /* only fy_memory_reserve grows */
    /* FY__DEBUG_POISON, FY__DEBUG_GUARD: of memory that the host reaches */
    uint32_t debug;
    fy__pool_t *pool;                         /* device memory; the host's segments for the host */
    fy__pool_t *pinned;                       /* page-locked host memory; NULL for the host */
    fy__backing_t backing, pinned_backing;    /* of the pools; their source_lock guards them */
    fy_stream_t *compute, *upload, *download; /* NULL if synchronous */
    struct fy__ring *ring;
    struct fy__queue *uploads, *downloads; /* transfer/queue.h; NULL if synchronous */
    fy_stream_t *_Atomic jobs[2];          /* their timelines, from the first job on */
    struct fy__pressure *pressures;        /* pressure.c, guarded by its lock */
    /* From here on for anybody at any time, even in a device that was closed and is made anew in
     * the same place: registry.c. */
    _Atomic int lost;       /* fy__lost_t; never goes back while the device is open */
    _Atomic bool lost_told; /* lost_text is written */
    char lost_text[320];    /* the first cause, in the backend's words */
    _Atomic uint64_t uses;  /* opens + storages; the last one closes it. The host is not counted */
    fy__faults_t faults;
    pthread_mutex_t deferred_lock; /* guards `deferred` */
    struct fy__storage *deferred;  /* storages whose last use is still in flight: storage.c */
};

static inline bool fy__device_is_lost(const fy_device_t *device)
{
    return __builtin_expect(
        atomic_load_explicit(&device->lost, memory_order_relaxed) != FY__PRESENT, 0);
}
/* DEVICE_LOST with a text that says how it was lost and what to do. */
fy_status_t fy__device_lost_error(const fy_device_t *device);
/* Looks at what a slot returned: DEVICE_LOST marks the device; other failures pass through. */
fy_status_t fy__device_check(fy_device_t *device, fy_status_t status);

/* Counted by storages; the last use closes the device. */
static inline void fy__device_use(fy_device_t *device)
{
    if (!device->is_host) atomic_fetch_add_explicit(&device->uses, 1, memory_order_relaxed);
}
void fy__device_unuse(fy_device_t *device);
/* `device`, found by way of an old ticket, in use by the caller now; NULL: it is the host, or it
 * was closed, and then every ticket of it is over when this returns. Blocks while another thread
 * takes it apart. */
fy_device_t *fy__device_hold(fy_device_t *device);
/* For walking: the open device number `index` (not the host), in use by the caller now; NULL if
 * there is none. */
fy_device_t *fy__device_use_at(uint32_t index);
/* The host if some call has needed it already; NULL else. */
fy_device_t *fy__device_host_if_open(void);

/* Transfers that stand in the device's queues: submits what there is room for; submits them all. No
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

/* The time that waits for this device are measured in: its model clock's, or real. */
uint64_t fy__device_now_ns(fy_device_t *device);
/* What is left of `timeout_ns` that began at `start_ns`. */
uint64_t fy__device_left_ns(fy_device_t *device, uint64_t timeout_ns, uint64_t start_ns);
/* Blocks until every open stream of the device has done what was submitted. Not counted here. */
fy_status_t fy__device_drain(fy_device_t *device, uint64_t timeout_ns);

/* The host worked: simulated devices' host clock advances. One load when none is open. */
void fy__charge_host_slow(uint64_t flops, uint64_t nbytes);
static inline void fy__charge_host(uint64_t flops, uint64_t nbytes)
{
    if (__builtin_expect(fy__watch_has(fy__watching(), FY__WATCH_SIMULATED), 0))
        fy__charge_host_slow(flops, nbytes);
}

/* The host filled or emptied nbytes of staging memory, with as many threads as that takes. */
void fy__charge_host_copy_slow(uint64_t nbytes);
static inline void fy__charge_host_copy(uint64_t nbytes)
{
    if (__builtin_expect(fy__watch_has(fy__watching(), FY__WATCH_SIMULATED), 0))
        fy__charge_host_copy_slow(nbytes);
}

/* ---- wire.c: joins a device with what alloc/, transfer/ and backends/ implement ---- */

/* Backends that are part of the library; *out_count of them. */
typedef struct fy__builtin {
    const char *name;
    fy_backend_open_fn open;
} fy__builtin_t;
const fy__builtin_t *fy__wire_builtins(size_t *out_count);
/* Pools, streams, ring. On failure everything it made is gone again. */
fy_status_t fy__wire_open(fy_device_t *device);
/* Waits for what runs (unless lost) and takes it all apart, the backend's device last. */
void fy__wire_close(fy_device_t *device);
/* Once per process: handle kinds, fork handlers. */
void fy__wire_process(void);

#endif
