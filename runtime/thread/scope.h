/* Scopes: frames on a thread's stack. A frame owns the handles made in it and may have a guard.
 * Every handle (tensor, download, ...) begins with an fy__handle_t, linked into its frame's ring;
 * an unlinked handle belongs to the user.
 * Not here: figures by path (node.h), what guards check (guard.h). */
#ifndef FERRY_RUNTIME_SCOPE_H_
#define FERRY_RUNTIME_SCOPE_H_

#include <stdbool.h>

#include <ferry/backend.h>
#include <ferry/scope.h>

#include "runtime/thread/node.h"

enum { FY__MAX_SCOPES = 64 };

/* FY__HANDLE_KINDS marks a frame's sentinel. */
typedef enum fy__handle_kind {
    FY__HANDLE_TENSOR,
    FY__HANDLE_DOWNLOAD,
    FY__HANDLE_STREAM,
    FY__HANDLE_GRAPH,
    FY__HANDLE_PREFETCH,
    FY__HANDLE_TAPE,
    FY__HANDLE_KINDS
} fy__handle_kind_t;

typedef struct fy__handle {
    struct fy__handle *prev, *next; /* NULL when no scope owns it */
    uint32_t kind;
    uint32_t serial; /* while a scope owns it: that scope's */
} fy__handle_t;

/* The quantities that guards limit: the directions of node.h, and three more. */
typedef enum fy__quota {
    FY__QUOTA_UPLOAD,
    FY__QUOTA_DOWNLOAD,
    FY__QUOTA_PEER,
    FY__QUOTA_COLLECTIVE,
    FY__QUOTA_SYNCS,
    FY__QUOTA_ALLOCS,
    FY__QUOTA_MEMORY,
    FY__QUOTAS
} fy__quota_t;

struct fy__guard; /* guard.h */
/* The part that a check claimed from these guards and that is not yet charged. */
typedef struct fy__claim {
    struct fy__guard *guards, *process; /* references */
    uint64_t n;
} fy__claim_t;

typedef struct fy__frame {
    fy__handle_t handles; /* sentinel of the ring */
    fy__node_t *node, *outer_node;
    uint32_t serial;
    fy_category_t outer_category; /* the thread's before this scope */
    fy_dtype_t outer_autocast;    /* the thread's before this scope */
    /* the tape that recorded before this scope and continues after it; NULL: none, or it has
     * stopped */
    fy_tape_t *outer_tape;
    /* the thread's chain before this scope; the guards added in front of it keep it alive */
    struct fy__guard *outer_guards;
    bool in_range;          /* a profiler received its begin */
    bool owns;              /* handles made in it; else the caller does */
    uint64_t streams_saved; /* bit i: outer_streams[i] is restored at the end */
    fy_stream_t *outer_streams[64];
} fy__frame_t;

/* The profiler's function for scopes that begin and end; NULL: none. Set when a device opens, and
 * never reset. */
extern _Atomic(fy_range_fn) fy__ranges;

struct fy__thread;
/* Whether the innermost scope can have `what`: a scope is open, and it has a frame. `call` names
 * the call. */
fy_status_t fy__scope_check_innermost(const struct fy__thread *thread, const char *call,
                                      const char *what);
/* Adds a new handle to the innermost scope, if there is one. */
static inline void fy__handle_adopt(fy__frame_t *frame, fy__handle_t *handle)
{
    if (!frame) {
        handle->prev = handle->next = NULL;
        return;
    }
    fy__handle_t *ring = &frame->handles;
    handle->prev = ring->prev;
    handle->next = ring;
    handle->serial = frame->serial;
    ring->prev->next = handle;
    ring->prev = handle;
}
/* The same for a handle that must be destroyed before the scope's other handles. */
static inline void fy__handle_adopt_first(fy__frame_t *frame, fy__handle_t *handle)
{
    fy__handle_adopt(frame, handle);
    if (!frame || handle->prev == &frame->handles) return;
    fy__handle_t *ring = &frame->handles;
    handle->prev->next = ring;
    ring->prev = handle->prev;
    handle->next = ring->next;
    handle->prev = ring;
    ring->next->prev = handle;
    ring->next = handle;
}
/* Removes it from its scope; does nothing if no scope owns it. */
static inline void fy__handle_release(fy__handle_t *handle)
{
    if (!handle->next) return;
    handle->prev->next = handle->next;
    handle->next->prev = handle->prev;
    handle->prev = handle->next = NULL;
}
/* Whether it belongs to the innermost scope. */
static inline bool fy__handle_is_inside(const fy__frame_t *frame, const fy__handle_t *handle)
{
    return frame && handle->serial == frame->serial;
}
/* Destroys a handle that is left in a scope; wire.c sets one for each kind. */
typedef void (*fy__handle_destroy_fn)(fy__handle_t *handle);
extern fy__handle_destroy_fn fy__handle_destroyers[FY__HANDLE_KINDS];

/* Ends every scope of an ending thread. */
void fy__scope_end_all(struct fy__thread *thread);
/* Whether a frame of the thread, from `depth` on (1: the outermost), owns the handle. */
bool fy__scope_has(const struct fy__thread *thread, uint32_t depth, const fy__handle_t *handle);

#endif
