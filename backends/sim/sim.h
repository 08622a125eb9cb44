/* The simulated accelerator's own vocabulary: a device, and how its files fail.
 * Not here: the seam's table (sim.c). Next: README.md for the map of this folder. */
#ifndef FERRY_BACKENDS_SIM_SIM_H_
#define FERRY_BACKENDS_SIM_SIM_H_

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "backends/sim/clock.h"
#include "backends/sim/memory.h"
#include "backends/sim/order.h"
#include "backends/sim/profile_file.h"
#include "backends/sim/queue.h"
#include "backends/sim/script.h"

enum { FY__SIM_DEVICE_COUNT = 16, FY__SIM_ALIGNMENT = 256 };

/* The first part is fixed when the device is opened. */
typedef struct fy__sim_device {
    char name[16]; /* "sim:0" */
    int index;
    fy__sim_figures_t figures;
    const fy__sim_profile_t *profile; /* of `figures` */
    const fy__sim_order_t *order;
    uint64_t seed; /* of a random order */
    bool numerics;
    bool chains_of_cuda; /* graphs fuse what fuses on cuda */
    int threads;         /* of its kernels: as fy__threads_override takes it */

    uint64_t random; /* the state that began as seed; guarded by the queues' lock */
    fy__sim_memory_t memory;
    fy__sim_engines_t engines;
    atomic_bool said_zero;       /* numerics=off: that downloads read zero was logged */
    _Atomic uint64_t nrequests;  /* copies, fills and launches submitted so far */
    pthread_mutex_t script_lock; /* guards `script`; nothing is called under it */
    fy__sim_script_t script;
    atomic_bool has_script;         /* else nothing is counted */
    atomic_bool is_losing, is_lost; /* is_lost goes last, once `why` says why */
    char why[160];
} fy__sim_device_t;

static inline bool fy__sim_device_is_lost(const fy__sim_device_t *dev)
{
    return atomic_load(&dev->is_lost);
}
/* OK, or DEVICE_LOST with the reason. */
fy_status_t fy__sim_device_check(const fy__sim_device_t *dev);
/* Counts one more of this kind in the device's script; as fy__sim_script_next. */
uint64_t fy__sim_device_strikes(fy__sim_device_t *dev, fy__sim_fault_kind_t kind,
                                uint64_t *out_slow_ns);
/* OUT_OF_MEMORY if the script strikes this call; what: a noun for the text. */
fy_status_t fy__sim_device_refuses(fy__sim_device_t *dev, fy__sim_fault_kind_t kind,
                                   const char *what);
/* From now on every slot fails; the first reason is kept. Takes no lock. */
void fy__sim_device_lose(fy__sim_device_t *dev, const char *format, ...) FY_PRINTF(2, 3);

/* What Ferry offers; set once, before any slot is called. */
extern const fy_host_api_t *fy__sim_host;

/* Returns `status` with the thread's error record written. */
#define FY__SIM_FAIL(status, ...) fy__sim_host->fail((status), __FILE__, __LINE__, __VA_ARGS__)

/* ---- the slots, by file ---- */

/* device.c */
fy_status_t fy__sim_device_count(int *out_count);
fy_status_t fy__sim_device_open(int index, size_t noptions, const fy_backend_option_t *options,
                                void **out_dev);
void fy__sim_device_close(void *dev);
fy_status_t fy__sim_device_query(void *dev, fy_backend_info_t *out_info);
fy_status_t fy__sim_device_describe(void *dev, fy_fact_fn say, void *user);
void fy__sim_device_clock(void *dev, fy_backend_clock_t *out_clock);
void fy__sim_device_host_work(void *dev, uint64_t flops, uint64_t nbytes);
void fy__sim_device_host_copy(void *dev, uint64_t nbytes);
/* memory.c */
fy_status_t fy__sim_memory_adopt(void *dev, void *address, uint64_t nbytes);
fy_status_t fy__sim_memory_alloc(void *dev, uint64_t nbytes, void **out_address);
fy_status_t fy__sim_memory_resize(void *dev, void *address, uint64_t nbytes, uint64_t new_nbytes);
void fy__sim_memory_free(void *dev, void *address, uint64_t nbytes);
fy_status_t fy__sim_memory_register_host(void *dev, void *address, uint64_t nbytes);
void fy__sim_memory_unregister_host(void *dev, void *address, uint64_t nbytes);
/* stream.c */
fy_status_t fy__sim_stream_create(void *dev, fy_stream_role_t role, int priority, void *native,
                                  void **out_stream);
void fy__sim_stream_destroy(void *dev, void *stream);
fy_status_t fy__sim_event_create(void *dev, void **out_event);
void fy__sim_event_destroy(void *dev, void *event);
fy_status_t fy__sim_event_record(void *dev, void *event, void *stream);
fy_status_t fy__sim_event_wait(void *dev, void *stream, void *event);
fy_status_t fy__sim_event_query(void *dev, void *event, int *out_done);
fy_status_t fy__sim_event_peek(void *dev, void *event, int *out_done);
fy_status_t fy__sim_event_sync(void *dev, void *event, uint64_t timeout_ns);
/* work.c */
fy_status_t fy__sim_work_copy(void *dev, void *stream, const fy_copy_t *copy);
void fy__sim_work_span(void *dev, uint64_t *out_start_ns, uint64_t *out_end_ns);
fy_status_t fy__sim_work_fill(void *dev, void *stream, void *address, int value, uint64_t nbytes);
fy_status_t fy__sim_work_launch(void *dev, void *stream, const fy_launch_t *launch);
int fy__sim_work_supports(void *dev, const fy_launch_t *launch);
int fy__sim_work_chain(void *dev, const fy_launch_t *launch);
uint64_t fy__sim_work_workspace(void *dev, const fy_launch_t *launch, uint64_t limit);

#endif
