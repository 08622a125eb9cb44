/* The tape's interface for views, scopes and the dispatcher. If `thread->tape` is set, the thread's
 * calls are recorded; a tensor's `value` is its number on the tape.
 * Not here: the record, the rules, the backward (ops/tape/). */
#ifndef FERRY_RUNTIME_TAPE_H_
#define FERRY_RUNTIME_TAPE_H_

#include <stdint.h>

#include <ferry/types.h>

#include "runtime/thread/thread.h"

/* A tensor's `value`: the record's number in the upper half, the value's index in it + 1 in the
 * lower; 0 is none. Numbers are unique, so a value of an old record is invalid in a new one. */
static inline uint64_t fy__tape_value(uint32_t record, uint32_t index)
{
    return (uint64_t)record << 32 | (index + 1);
}
/* In a tensor's `valued`, instead of 1: other tapes know it by its `value`, which stays. */
#define FY__VALUE_SHARED 2

/* The kind of a view. */
typedef enum fy__view_kind {
    FY__VIEW_RESHAPE,
    FY__VIEW_TRANSPOSE,
    FY__VIEW_SLICE,
    FY__VIEW_BROADCAST,
    FY__VIEW_KINDS
} fy__view_kind_t;
typedef struct fy__view_attrs {
    int32_t axes[FY_MAX_RANK]; /* TRANSPOSE: axis i of the view is axes[i] of the source */
    int32_t axis;              /* SLICE */
    int64_t begin, step;       /* SLICE */
} fy__view_attrs_t;

/* While thread->tape is set: records that `view` was made from `src`. RESHAPE includes squeeze and
 * unsqueeze. */
fy_status_t fy__tape_view(fy__thread_t *thread, fy__view_kind_t kind, const fy__view_attrs_t *attrs,
                          const fy_tensor_t *src, fy_tensor_t *view);
/* UNSUPPORTED if `src` has a gradient on the tape that this thread records: `what` would copy its
 * bytes to a tensor without a gradient. BUSY if a recorded call wrote them through another
 * handle. */
fy_status_t fy__tape_check_leaving_slow(const fy__thread_t *thread, const fy_tensor_t *src,
                                        const char *what);
/* The same for a graph that reads or writes bytes of `storage`; while thread->tape is set. */
fy_status_t fy__tape_check_replay(const fy__thread_t *thread, const struct fy__storage *storage);
static inline fy_status_t fy__tape_check_leaving(const fy__thread_t *thread, const fy_tensor_t *src,
                                                 const char *what)
{
    return __builtin_expect(thread->tape != NULL, 0)
               ? fy__tape_check_leaving_slow(thread, src, what)
               : FY_STATUS_OK;
}

#endif
