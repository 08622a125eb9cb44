/* An open CUDA device: its primary context, kernels and limits, and the rule how a slot uses them.
 * Every slot that calls the driver stands between fy__cuda_enter and fy__cuda_leave: the device's
 * context is current in between, and a context of the application's is current again afterwards.
 * Where there was none, the device's stays (context.c). Frames of two devices are not nested. Next:
 * backend.c for the table of slots. */
#ifndef FERRY_BACKENDS_CUDA_DEVICE_H_
#define FERRY_BACKENDS_CUDA_DEVICE_H_

#include <stdatomic.h>

#include "backends/cuda/args.h"
#include "backends/cuda/driver.h"
#include "backends/cuda/recent.h"

enum fy__cuda_module {
#define X(name) FY__CUDA_MODULE_##name,
    FY__CUDA_MODULE_LIST(X)
#undef X
        FY__CUDA_MODULE_COUNT
};

typedef struct fy__cuda_virtual fy__cuda_virtual_t; /* virtual.h */
typedef struct fy__cuda_tune fy__cuda_tune_t;       /* tune.h: choices by time */
/* lt.h: this device's cuBLASLt handle and plans */
typedef struct fy__cuda_lt fy__cuda_lt_t;
typedef struct fy__cuda_dnn fy__cuda_dnn_t; /* dnn.h: its cuDNN handle and plans */

/* Peers beyond it are reached as if there were no direct way. */
enum { FY__CUDA_PEERS = 64 };

typedef struct fy__cuda_device {
    int index;
    CUdevice handle;
    /* the primary one, retained: shared with the runtime API, cuBLASLt and the application */
    CUcontext context;
    int nprocessors, major, minor;
    uint32_t serial;                       /* of this open: no two in a process are the same */
    int least_priority, greatest_priority; /* least >= greatest: smaller goes first */
    char model[64];
    /* the CUresult that broke the context, minus the code of NCCL that did, 0 while it works */
    atomic_int lost;
    atomic_int told_slow;      /* the log has heard that a matmul took the fallback kernel */
    atomic_int told_slow_conv; /* the same for a convolution */
    CUmodule modules[FY__CUDA_MODULE_COUNT];
    CUfunction kernels[FY__CUDA_KERNEL_COUNT];
    fy__cuda_lt_t *lt;
    fy__cuda_dnn_t *dnn;
    fy__cuda_tune_t *tune; /* autotune=on; NULL: heuristics choose */
    fy__cuda_trails_t trails;
    atomic_int ncliques;                /* number of its NCCL cliques */
    fy__cuda_virtual_t *virtual_memory; /* segments=virtual; NULL: cuMemAlloc gives all */
    /* by index: serial of the peer that this device's way to was settled for; 0: none yet */
    _Atomic uint32_t peers[FY__CUDA_PEERS];
    /* 0: FERRY_CUBLASLT=none, FERRY_CUDNN=none, when the device was opened */
    int wants_lt, wants_dnn;
    /* tf32=on: f32 products may round their factors to TF32 */
    int tf32;
    /* relu=fused: cuBLASLt applies relu; what it makes of NaN is not documented */
    int fused_relu;
} fy__cuda_device_t;

typedef struct fy__cuda_stream {
    CUstream handle;
    int owned; /* 0: wrapped, never destroyed */
    fy__cuda_trail_t *trail;
    /* submitted work is kept in this graph; NULL: it runs (graph.c) */
    struct fy__cuda_graph *capture;
} fy__cuda_stream_t;

/* What the seam's event handles are. */
typedef struct fy__cuda_event {
    CUevent handle;
    fy__cuda_mark_t mark;
} fy__cuda_event_t;

/* Was the device's context pushed? */
typedef struct fy__cuda_frame {
    int pushed;
} fy__cuda_frame_t;

/* DEVICE_LOST with the first cause if the device was lost earlier. For a slot that may answer
 * without entering. */
fy_status_t fy__cuda_is_usable(fy__cuda_device_t *dev);
/* Makes the device's context current. Fails, with nothing to leave: DEVICE_LOST at once if the
 * device was lost earlier. */
fy_status_t fy__cuda_enter(fy__cuda_device_t *dev, fy__cuda_frame_t *out_frame);
void fy__cuda_leave(const fy__cuda_frame_t *frame);
/* As enter, for giving things back: never fails, sets no record; returns 0 if the driver cannot be
 * used. */
int fy__cuda_enter_to_release(fy__cuda_device_t *dev, fy__cuda_frame_t *out_frame);
/* A reference to the device's primary context, into dev->context; and its end. The process keeps
 * one until a device was lost. */
fy_status_t fy__cuda_context_retain(fy__cuda_device_t *dev);
void fy__cuda_context_release(fy__cuda_device_t *dev);
fy_status_t fy__cuda_attribute(fy__cuda_device_t *dev, CUdevice_attribute attribute,
                               int *out_value);
/* Remembers a fatal code, so that later calls return at once. */
void fy__cuda_note(fy__cuda_device_t *dev, CUresult code);

/* Returns whether this thread is between graph_begin and graph_end. Code that needs an allocation
 * or a wait then fails with UNSUPPORTED. */
extern _Thread_local int fy__cuda_captures;
/* For those: fails with BUSY if it is. `what`: "choosing how to multiply". */
fy_status_t fy__cuda_check_capture(const char *what);

/* Evaluates to a fy_status_t: runs driver call `call` with the parenthesised `args`; a failure is
 * noted and explained. */
#define FY__CUDA_CALL(dev, call, args, ...)                      \
    (fy__cuda_checked((dev), fy__cuda.call args) == CUDA_SUCCESS \
         ? FY_STATUS_OK                                          \
         : fy__cuda_failed(fy__cuda_last_code, __FILE__, __LINE__, #call, __VA_ARGS__))

/* peers.c: the same for a copy to another device. */
fy_status_t fy__cuda_peer_copy(fy__cuda_device_t *dev, CUstream stream, const fy_copy_t *copy);
/* memory.c: one copy, between enter and leave; not reported yet. */
fy_status_t fy__cuda_copy_submit(fy__cuda_device_t *dev, CUstream stream, const fy_copy_t *copy);

/* The failure that fy__cuda_checked saw last on this thread, and of which device (NULL: of none);
 * only for making its text, at once. */
extern _Thread_local CUresult fy__cuda_last_code;
extern _Thread_local fy__cuda_device_t *fy__cuda_last_device;

static inline CUresult fy__cuda_checked(fy__cuda_device_t *dev, CUresult code)
{
    if (code != CUDA_SUCCESS) {
        fy__cuda_last_code = code;
        fy__cuda_last_device = dev;
        if (dev != NULL) fy__cuda_note(dev, code);
    }
    return code;
}

/* ---- slots (backend.h), by file ---- */
fy_status_t fy__cuda_device_count(int *out_count);
fy_status_t fy__cuda_device_open(int index, size_t noptions, const fy_backend_option_t *options,
                                 void **out_dev);
void fy__cuda_device_close(void *handle);
fy_status_t fy__cuda_device_query(void *handle, fy_backend_info_t *out_info);

fy_status_t fy__cuda_describe(void *dev, fy_fact_fn say, void *user);

fy_status_t fy__cuda_alloc(void *dev, uint64_t nbytes, void **out_address);
fy_status_t fy__cuda_resize(void *dev, void *address, uint64_t nbytes, uint64_t new_nbytes);
void fy__cuda_free(void *dev, void *address, uint64_t nbytes);
fy_status_t fy__cuda_adopt(void *dev, void *address, uint64_t nbytes);
void fy__cuda_disown(void *dev, void *address, uint64_t nbytes);
fy_status_t fy__cuda_register_host(void *dev, void *address, uint64_t nbytes);
void fy__cuda_unregister_host(void *dev, void *address, uint64_t nbytes);
fy_status_t fy__cuda_copy(void *dev, void *stream, const fy_copy_t *copy);
fy_status_t fy__cuda_copy_many(void *dev, void *stream, size_t count, const fy_copy_t *copies);
fy_status_t fy__cuda_fill(void *dev, void *stream, void *address, int value, uint64_t nbytes);

fy_status_t fy__cuda_stream_create(void *handle, fy_stream_role_t role, int priority, void *native,
                                   void **out_stream);
void fy__cuda_stream_destroy(void *handle, void *stream_handle);
void *fy__cuda_stream_native(void *handle, void *stream_handle);
fy_status_t fy__cuda_native_event_record(void *handle, void *stream_handle, void *event);
fy_status_t fy__cuda_native_event_wait(void *handle, void *stream_handle, void *event);
fy_status_t fy__cuda_native_timeline_signal(void *handle, void *stream_handle, void *word,
                                            uint64_t value);
fy_status_t fy__cuda_native_timeline_wait(void *handle, void *stream_handle, void *word,
                                          uint64_t value);
fy_status_t fy__cuda_event_create(void *handle, void **out_event);
void fy__cuda_event_destroy(void *handle, void *event_handle);
fy_status_t fy__cuda_event_record(void *handle, void *event_handle, void *stream_handle);
fy_status_t fy__cuda_event_wait(void *handle, void *stream, void *event);
fy_status_t fy__cuda_event_query(void *handle, void *event, int *out_done);
fy_status_t fy__cuda_event_sync(void *handle, void *event_handle, uint64_t timeout_ns);

fy_status_t fy__cuda_launch(void *handle, void *stream_handle, const fy_launch_t *launch);
int fy__cuda_supports(void *handle, const fy_launch_t *launch);
int fy__cuda_chain(void *handle, const fy_launch_t *launch);
uint64_t fy__cuda_workspace(void *handle, const fy_launch_t *launch, uint64_t limit);

fy_status_t fy__cuda_graph_begin(void *handle, void **out_stream);
fy_status_t fy__cuda_graph_end(void *handle, void *stream_handle, void **out_graph);
fy_status_t fy__cuda_graph_replay(void *handle, void *stream_handle, void *graph_handle,
                                  const uint32_t *flags, uint32_t nflags, uint32_t *const *words,
                                  int *out_submitted);
void fy__cuda_graph_destroy(void *handle, void *graph_handle);
/* A copy went to `stream`: it is counted now, or, if it was kept in a graph, by each replay. */
fy_status_t fy__cuda_graph_note_copy(const fy__cuda_stream_t *stream, fy_copy_kind_t kind,
                                     uint64_t nbytes);

/* ---- fatbins.c: the compiled kernels as bytes of this plugin, a fatbin a module of args.h ---- */

/* Of module `index` (fy__cuda_module). Static. */
const void *fy__cuda_fatbin(int index);

/* ---- describe.c, nccl_library.c: facts for people (fy_device_describe, `ferry info`). A missing
 * library is a fact with its reason, no failure. Keys: lower_case, unit at the end ---- */

typedef struct fy__cuda_facts {
    fy_fact_fn say;
    void *user;
} fy__cuda_facts_t;

/* One fact; a value longer than 400 bytes is cut. */
void fy__cuda_say(const fy__cuda_facts_t *facts, const char *key, const char *format, ...)
    FY_PRINTF(3, 4);
/* Says whether a library can be loaded: "13.1.0, /path/of/it", else what the loader said. `names`:
 * tried in turn, up to a NULL;
 * `version_entry`: its function size_t (void) that gives major * 10000 + minor * 100 + patch. */
void fy__cuda_say_library(const fy__cuda_facts_t *facts, const char *key, const char *const *names,
                          const char *version_entry);
/* A row of another file: nccl_library.c. */
fy_status_t fy__cuda_nccl_say(fy__cuda_device_t *dev, const fy__cuda_facts_t *facts);

#endif
