/* Faults of requests. An op that meets a bad value (an index out of range), and a registered op
 * whose kernel fails, raise the flag of their request. On an asynchronous device the flag is valid
 * only when the request is done. Until then each storage has the set of unresolved requests on
 * which its bytes may depend, as bits relative to a request number; a wait for the bytes resolves
 * them. At most FY__FAULT_WINDOW such requests are unresolved per device. The device remembers the
 * last FY__FAULT_MEMORY that failed; bytes that depend on an older request, failed or not, count as
 * failed. Not here: losing the device (device.h). */
#ifndef FERRY_RUNTIME_FAULT_H_
#define FERRY_RUNTIME_FAULT_H_

#include <pthread.h>
#include <stdbool.h>

#include <ferry/status.h>

#include "runtime/order/hazard.h"

enum { FY__FAULT_WINDOW = 64, FY__FAULT_MEMORY = 1024, FY__FAULT_OF_COPY = -2 };
enum { FY__FAULT_ALSO_TRANSFER, FY__FAULT_ALSO_CALL, FY__FAULT_ALSO };

/* The faults on which the bytes of a storage depend or may depend. All zero: none. */
typedef struct fy__taint {
    uint64_t mask;   /* bit i: request first + i */
    uint32_t poison; /* record number of a known fault; 0 is none */
    uint64_t first;  /* last member: not read while the others are 0, so it may be in another cache
                      * line */
} fy__taint_t;

/* The meaning of a request's flag, kept until the flag is resolved. */
typedef struct fy__fault_cause {
    const char *op;
    /* of the indices: 0 <= i < limit; -1: the op checks something else; FY__FAULT_OF_COPY: an
     * asynchronous copy failed */
    int64_t limit;
} fy__fault_cause_t;

typedef struct fy__faults {
    pthread_mutex_t lock; /* guards everything below */
    /* [FY__FAULT_WINDOW], page-locked for the device; request n uses word n % window */
    uint32_t *words;
    uint64_t next;                        /* number of the next request; the first is 1 */
    fy__point_t points[FY__FAULT_WINDOW]; /* where it was submitted; ~0 while unknown */
    /* Other tickets that fail with it: of the transfer of which it is a chunk, of a call with many
     * tensors. 0: none. */
    fy__point_t also[FY__FAULT_WINDOW][FY__FAULT_ALSO];
    uint32_t records[FY__FAULT_WINDOW]; /* once resolved: its poison record, 0 if it was clean */
    bool resolved[FY__FAULT_WINDOW];
    fy__fault_cause_t causes[FY__FAULT_WINDOW];
    struct {
        uint64_t request;
        fy__point_t point, also[FY__FAULT_ALSO];
        uint32_t record;
        /* the last requests that failed, found here after their slot was reused */
    } faulted[FY__FAULT_MEMORY];
    /* the highest number of a failed request that is no longer stored */
    uint64_t forgotten;
    uint32_t nfaulted, ntaken; /* `ntaken` of them were returned by fy__faults_take */
} fy__faults_t;

/* The poison of a tensor that was made while a graph was recorded, until the graph's first replay.
 * No entry of the table. */
#define FY__POISON_UNPLAYED ((uint32_t)FY_STATUS_INVALID_ARGUMENT << 24)
/* The poison of bytes that depend on a request older than the failures that the device remembers.
 * No entry of the table. */
#define FY__POISON_FORGOTTEN ((uint32_t)FY_STATUS_BAD_VALUE << 24)
/* The poison of host bytes that unfinished external work writes. No entry of the table. */
#define FY__POISON_EXTERNAL ((uint32_t)FY_STATUS_BUSY << 24)
/* Writes a fault into the table and returns its record number. The table is bounded: the text of an
 * overwritten record is generic. */
uint32_t fy__poison_record(fy_status_t status, const char *format, ...) FY_PRINTF(2, 3);
/* The record of a registered op's kernel that failed with `status` and the text `words`: the flag
 * is raised to this record's number. */
uint32_t fy__poison_kernel(const char *op, fy_status_t status, const char *words);
/* The record for a raised flag: a new one with `cause`, or the one that a failing kernel wrote. */
uint32_t fy__poison_flag(uint32_t flag, fy__fault_cause_t cause);
/* Fails with the status and text of the record; `what` is the name of the call. */
fy_status_t fy__poison_fail(uint32_t record, const char *what);

/* Of the table of records; held over a fork. */
extern pthread_mutex_t fy__poison_lock;

struct fy_device;
/* Takes a number and a flag word for a request of op `name`; may wait for the request one window
 * earlier. */
fy_status_t fy__fault_begin(struct fy_device *device, fy__fault_cause_t cause,
                            uint64_t *out_request, uint32_t **out_word);
/* For a request of several ops: takes all of them, or none. A thread holds at most one of any other
 * kind. */
fy_status_t fy__fault_begin_many(struct fy_device *device, uint32_t count,
                                 const fy__fault_cause_t *causes, uint64_t *out_requests,
                                 uint32_t **out_words);
/* The request was submitted at `point`; point 0: it was never submitted. */
void fy__fault_end(struct fy_device *device, uint64_t request, fy__point_t point);

/* If one of these requests fails, the ticket of `point`, which is not before any of them, fails
 * too. `which`: FY__FAULT_ALSO_*. */
void fy__fault_belongs(struct fy_device *device, const fy__taint_t *requests, fy__point_t point,
                       int which);

/* The record of a request that was submitted at `point`, which is reached; 0 if it was clean or
 * cannot fault, FY__POISON_FORGOTTEN if a later request of its stream failed and is no longer
 * remembered. */
uint32_t fy__fault_at(struct fy_device *device, fy__point_t point);

/* The request at `point` failed with `record`: for fy__fault_at and fy__faults_take. Point 0: the
 * request ran inside its call. */
void fy__fault_keep(struct fy_device *device, fy__point_t point, uint32_t record);
/* For requests that are done: OK, or the first fault that no earlier call has returned. */
fy_status_t fy__faults_take(struct fy_device *device, const char *what);

static inline bool fy__taint_any(const fy__taint_t *taint)
{
    return (taint->mask | taint->poison) != 0;
}
/* Adds the faults of src to those of dst. */
void fy__taint_join(struct fy_device *device, fy__taint_t *dst, const fy__taint_t *src);
void fy__taint_add(struct fy_device *device, fy__taint_t *dst, uint64_t request);
/* For bytes whose requests are done: OK, or the first cause. Removes requests that did not fail. */
fy_status_t fy__taint_resolve(struct fy_device *device, fy__taint_t *taint, const char *what);

#endif
