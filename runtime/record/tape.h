/* The tape's interface: what views, scopes and the dispatcher ask of ops/tape/. A thread with a
 * tape in `thread->tape` has its calls recorded; a tensor says by `value` what it is on its tape.
 * Not here: the record, the rules, going backwards (ops/tape/). */
#ifndef FERRY_RUNTIME_TAPE_H_
#define FERRY_RUNTIME_TAPE_H_

#include <stdint.h>

#include <ferry/types.h>

#include "runtime/thread/thread.h"

/* A tensor's `value`: the record's number above, the value's index in it + 1 below; 0 is none.
 * Numbers are never given twice, so what an old record left on a tensor means nothing to a new
 * one. */
static inline uint64_t fy__tape_value(uint32_t record, uint32_t index)
{
    return (uint64_t)record << 32 | (index + 1);
}

/* How a view was made of its source. */
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
    int64_t begin;             /* SLICE */
} fy__view_attrs_t;

/* While thread->tape is set: records that `view` was made of `src`. RESHAPE stands for squeeze and
 * unsqueeze, too. */
fy_status_t fy__tape_view(fy__thread_t *thread, fy__view_kind_t kind, const fy__view_attrs_t *attrs,
                          const fy_tensor_t *src, fy_tensor_t *view);
/* UNSUPPORTED if `src` has a gradient on the tape that this thread records: `what` would give its
 * bytes to a tensor that has none. */
fy_status_t fy__tape_check_leaving_slow(const fy__thread_t *thread, const fy_tensor_t *src,
                                        const char *what);
static inline fy_status_t fy__tape_check_leaving(const fy__thread_t *thread, const fy_tensor_t *src,
                                                 const char *what)
{
    return __builtin_expect(thread->tape != NULL, 0)
               ? fy__tape_check_leaving_slow(thread, src, what)
               : FY_STATUS_OK;
}

#endif
