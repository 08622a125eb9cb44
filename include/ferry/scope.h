/* Scopes own handles, tag figures with a path of names, and hold guards. A scope belongs to the
 * thread that began it. Threads that Ferry starts in the scope inherit its guards. */
#ifndef FERRY_SCOPE_H_
#define FERRY_SCOPE_H_

#include <ferry/types.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fy_scope {
    uint32_t depth, serial;
} fy_scope_t;

typedef enum fy_guard_action { FY_GUARD_REFUSE, FY_GUARD_LOG } fy_guard_action_t;

/* Upper limits for a scope, counted from the moment the guard is set. FY_UNLIMITED sets no
 * limit. */
typedef struct fy_guard_options {
    size_t struct_size;
    /* REFUSE fails the call; LOG lets it run and calls fy_log_set's function */
    fy_guard_action_t action;
    uint64_t upload_nbytes, download_nbytes, peer_nbytes; /* payload bytes */
    uint64_t syncs;                                       /* calls whose comment begins with
                                                           * "Blocks" */
    /* calls to the backend's allocator, not cache hits */
    uint64_t device_allocs;
    /* live device bytes that this scope made since the guard was set */
    uint64_t memory_nbytes;
    uint64_t collective_nbytes; /* payload bytes */
} fy_guard_options_t;
#define FY_GUARD_OPTIONS_INIT                                                                   \
    FY_DEFAULTS_(guard_options, .upload_nbytes = FY_UNLIMITED, .download_nbytes = FY_UNLIMITED, \
                 .peer_nbytes = FY_UNLIMITED, .syncs = FY_UNLIMITED,                            \
                 .device_allocs = FY_UNLIMITED, .memory_nbytes = FY_UNLIMITED,                  \
                 .collective_nbytes = FY_UNLIMITED)
FY_API void fy_guard_options_init(fy_guard_options_t *options, size_t nbytes);
/* No transfer and no sync: light requests only. */
#ifdef __cplusplus
#define FY_GUARD_LIGHT_ONLY                                                                \
    FY_CHANGED_(guard_options,                                                             \
                changed_.upload_nbytes = changed_.download_nbytes = changed_.peer_nbytes = \
                    changed_.collective_nbytes = changed_.syncs = 0;)
#else
#define FY_GUARD_LIGHT_ONLY \
    FY_DEFAULTS_(guard_options, .device_allocs = FY_UNLIMITED, .memory_nbytes = FY_UNLIMITED)
#endif

/* Opens a scope on this thread. It owns the handles made in it and tags figures with the path of
 * names ("train/step").
 * `name` is copied; '/' in it becomes '.'; NULL is "scope".
 * Never fails. Out of memory, or past 64 open scopes, the figures of the new scope count under its
 * parent's name. Under one parent a thread counts 4,096 names separately; figures of further names
 * are added to "(others)".
 * Cost: independent of the number of names. */
FY_API fy_scope_t fy_scope_begin(const char *name);
/* As fy_scope_begin, but the scope owns nothing: a handle that is made directly in it, or that an
 * inner scope passes out, is the caller's to destroy, as if no scope were open. Inner scopes from
 * fy_scope_begin own as usual. For bindings, whose objects own handles: begin one around their
 * code. If more than 64 scopes are open, handles belong to the 64th one, or to the caller if that
 * one owns nothing. */
FY_API fy_scope_t fy_scope_begin_unowned(const char *name);
/* Ends `scope` and all scopes, guards and fy_stream_set_current calls that began inside it and are
 * still open. So an early `return` is safe.
 * The `count` tensors in `results` pass to the enclosing scope, or to you; NULLs are skipped.
 * Ending a scope twice does nothing. */
FY_API void fy_scope_end(fy_scope_t scope, size_t count, fy_tensor_t *const *results);
/* Limits the innermost scope. If a scope has several guards, the tightest limit holds.
 * Fails: INVALID_ARGUMENT (no scope is open, more than 64 are, or a limit other than FY_UNLIMITED
 * is above that of an enclosing guard), OUT_OF_MEMORY. */
FY_API_STATUS fy_scope_guard(const fy_guard_options_t *options);

/* Sets the category of tensors that are made in the innermost scope and in the scopes inside it,
 * until an inner scope sets another: fy_scope_begin("model") and
 * fy_scope_memory(FY_CATEGORY_WEIGHTS). Only figures and plans use it (fy_memory_query,
 * fy_plan_step).
 * Threads that Ferry starts for you inherit it. Fails: INVALID_ARGUMENT (no scope is open, more
 * than 64 are, or an undefined category), OUT_OF_MEMORY. */
FY_API_STATUS fy_scope_memory(fy_category_t category);

/* Sets a budget for the whole process, as text: "upload=0,download=4KiB/step,sync=0". Each item is
 * limit=amount, for all threads from now on; with /name, for each instance of a scope of that name.
 * Limits: upload, download, peer, collective (bytes: 4096, 4KiB, 1.5GiB), sync, alloc (counts),
 * memory (live device bytes; needs /name). A request that would exceed a limit is
 * REFUSED_BY_GUARD. NULL or "" removes the budget, except from scopes that have begun.
 * $FERRY_BUDGET sets one from the first call on; if it is malformed, fy_device_open fails
 * (docs/environment.md). Fails, and keeps the old budget: INVALID_ARGUMENT (names the item and the
 * values it may have), OUT_OF_MEMORY. */
FY_API_STATUS fy_budget_set(const char *text);

#ifdef __cplusplus
}
#endif
#endif
