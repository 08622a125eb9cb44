/* A recording: the calls that a thread records instead of running, in order, and the storages that
 * they use. ops/graph.c begins, ends and replays one. Code that submits requests calls
 * fy__recording_of and appends to the recording instead.
 * Not here: replays (ops/replay.c), the memory of results made inside (private.h). */
#ifndef FERRY_RUNTIME_RECORDING_H_
#define FERRY_RUNTIME_RECORDING_H_

#include "runtime/record/private.h"
#include "runtime/tensor/storage.h"

enum { FY__RECORDING_FAULTS = 16 }; /* most fault flags of a replay; further ops share them */

/* An f32 block, and a copy of it in half precision that its owner keeps current; a reference to
 * each. ops/autocast.c. */
typedef struct fy__copy {
    fy__storage_t *block, *low;
    fy_dtype_t dtype; /* of low */
    uint64_t nelem;
} fy__copy_t;
enum { FY__COPIES = 4 }; /* most of a tape, and of a recording */

static inline void fy__copy_hold(const fy__copy_t *copy)
{
    fy__storage_retain(copy->block);
    fy__storage_retain(copy->low);
}
static inline void fy__copy_drop(fy__thread_t *thread, const fy__copy_t *copy)
{
    fy__storage_release(thread, copy->block);
    fy__storage_release(thread, copy->low);
}

/* A storage that the calls use. A storage that was made and destroyed inside has no object any
 * more, but its bytes are still used. */
typedef struct fy__recording_slot {
    fy__storage_t *storage; /* with a reference */
    bool is_inside, is_written;
    uint32_t writes;   /* by how many results */
    uint32_t copied;   /* of a copy: 1 + the slot of the bytes that a step copies into it */
    fy__taint_t taint; /* of bytes without a storage, while a replay determines the poisoned ones */
} fy__recording_slot_t;

/* One call. The recording owns descriptors, attributes and slots. */
typedef struct fy__recorded {
    bool is_upload;
    uint8_t fault; /* 1 + its flag; 0: it cannot fault */
    uint16_t ndst;
    uint32_t nsrc;
    uint64_t replaced;     /* bit i: the call overwrites all bytes of dst i */
    const uint32_t *slots; /* of ndst results, then of nsrc sources */
    union {
        fy_launch_t launch;
        struct {
            fy_copy_t copy;
            const char *site;
            const void *caller;
            int priority;
        } upload;
    };
} fy__recorded_t;

typedef struct fy__recording {
    fy_device_t *device;
    fy__private_t *memory;
    fy__handle_t *handle; /* the graph's handle, to destroy it */
    fy_status_t status;   /* the first failure inside, in `error` */
    fy__error_copy_t error;

    fy__recorded_t *calls;
    uint32_t ncalls, calls_room;
    uint64_t requests, uploads, upload_nbytes, flops, nbytes;
    fy__fault_cause_t causes[FY__RECORDING_FAULTS];
    uint32_t nfaults; /* flags in use */
    /* as many words on the device, for the device's graph; NULL: not needed, or no memory */
    fy__storage_t *flags;

    fy__recording_slot_t *slots;
    uint32_t nslots, slots_room;
    /* storage -> slot + 1, open addressing */
    uint32_t *index;
    uint32_t index_size, index_used;
    /* while recording: slots of storages that were made inside and still exist; afterwards: all
     * that have a storage */
    uint32_t *live;
    uint32_t nlive, live_room;
    uint32_t unreaped; /* storages made since the whole list was searched for unused ones */
    fy__copy_t copies[FY__COPIES]; /* that calls read: each replay makes them current first */
    uint32_t ncopies;
    struct fy__chunk *chunks; /* memory of descriptors, attributes and slot lists */
} fy__recording_t;

/* ---- for code that submits ---- */

/* The recording of this thread on `device`; NULL: none, so submit. */
static inline fy__recording_t *fy__recording_of(const fy__thread_t *thread,
                                                const fy_device_t *device)
{
    fy__recording_t *recording = thread->recording;
    return FY_UNLIKELY(recording != NULL) && recording->device == device ? recording : NULL;
}
/* Fails with UNSUPPORTED if this thread records on `device`, for calls that cannot be recorded, and
 * fails the recording. `what` names the call. */
fy_status_t fy__recording_refuse(fy__recording_t *recording, const char *what);
static inline fy_status_t fy__recording_check(const fy__thread_t *thread, const fy_device_t *device,
                                              const char *what)
{
    fy__recording_t *recording = fy__recording_of(thread, device);
    return FY_LIKELY(!recording) ? FY_STATUS_OK : fy__recording_refuse(recording, what);
}
/* A call inside failed with `status`, and the thread's error record has the cause. fy_graph_end
 * fails with the first such failure. */
fy_status_t fy__recording_failed(fy__recording_t *recording, fy_status_t status);

/* Slots for one call's storages: `count` of them, to be set with fy__recording_slot. */
fy_status_t fy__recording_slots(fy__recording_t *recording, size_t count, uint32_t **out_slots);
fy_status_t fy__recording_slot(fy__recording_t *recording, fy__storage_t *storage, bool is_written,
                               uint32_t *out_slot);
/* How often the calls so far write the storage. */
uint32_t fy__recording_writes(const fy__recording_t *recording, const fy__storage_t *storage);
/* The storage's version for the calls of this thread: a recording's writes have not advanced it. */
static inline uint64_t fy__recording_version(const fy__thread_t *thread,
                                             const fy__storage_t *storage)
{
    const uint64_t version = atomic_load_explicit(&storage->version, memory_order_relaxed);
    const fy__recording_t *recording = fy__recording_of(thread, storage->device);
    return recording ? version + fy__recording_writes(recording, storage) : version;
}
/* Replays make the copy current. False: there are FY__COPIES already. */
bool fy__recording_keep(fy__recording_t *recording, const fy__copy_t *copy);
/* Appends a launch with copies of its operands and attributes. cause NULL: it cannot fault. */
fy_status_t fy__recording_launch(fy__recording_t *recording, const fy_launch_t *launch,
                                 const uint32_t *slots, uint64_t replaced,
                                 const fy__fault_cause_t *cause);
/* Appends an upload; slots: of its dst and of its host source. */
fy_status_t fy__recording_upload(fy__recording_t *recording, const fy_copy_t *copy,
                                 const uint32_t *slots, bool replaced, const char *site,
                                 const void *caller, int priority);

/* Bytes that never move and live as long as the recording, aligned to 16; `out_bytes` points to a
 * pointer. */
fy_status_t fy__recording_bytes(fy__recording_t *recording, size_t nbytes, void *out_bytes);

/* ---- for storage.c and ops/graph.c ---- */

/* A storage in the recording's private memory: the recorded form of fy__storage_create. nbytes >
 * 0. */
fy_status_t fy__recording_storage(fy__thread_t *thread, fy__recording_t *recording, uint64_t nbytes,
                                  fy__storage_t **out_storage);
/* Call it after the last append. */
fy_status_t fy__recording_close(fy__thread_t *thread, fy__recording_t *recording);
/* Releases everything; storages made inside live as long as their tensors. */
void fy__recording_clear(fy__thread_t *thread, fy__recording_t *recording);

#endif
