/* Scopes own handles, tag figures with a path of names, and carry guards. A scope belongs to the
 * thread that began it; threads that Ferry starts for it inherit its guards. */
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

/* What a scope may do at most, counted from the moment the guard is set. FY_UNLIMITED: no limit of
 * its own. */
typedef struct fy_guard_options {
    size_t struct_size;
    /* REFUSE fails the call; LOG lets it pass and tells fy_log_set's function */
    fy_guard_action_t action;
    uint64_t upload_nbytes, download_nbytes, peer_nbytes; /* payload bytes */
    uint64_t syncs;                                       /* calls marked Blocks */
    /* calls to the backend's allocator, not cache hits */
    uint64_t device_allocs;
    /* live device bytes made in this scope since then */
    uint64_t memory_nbytes;
} fy_guard_options_t;
#define FY_GUARD_OPTIONS_INIT                                                                  \
    {                                                                                          \
        sizeof(fy_guard_options_t), FY_GUARD_REFUSE, FY_UNLIMITED, FY_UNLIMITED, FY_UNLIMITED, \
            FY_UNLIMITED, FY_UNLIMITED, FY_UNLIMITED                                           \
    }
/* No transfer and no sync: light requests only. */
#define FY_GUARD_LIGHT_ONLY                                                                 \
    {                                                                                       \
        sizeof(fy_guard_options_t), FY_GUARD_REFUSE, 0, 0, 0, 0, FY_UNLIMITED, FY_UNLIMITED \
    }

/* Opens a scope on this thread: it owns the handles made in it and tags figures with the path of
 * names ("train/step").
 * `name` is copied; '/' in it becomes '.'; NULL is "scope". Never fails: out of memory, or past 64
 * open scopes, it opens one that is counted under its parent's name. Under one parent a thread
 * counts 4,096 names apart; figures of further names go to "(others)".
 * Cost: the same for any number of names. */
FY_API fy_scope_t fy_scope_begin(const char *name);
/* Ends `scope` and everything begun inside it and still open (scopes, guards, fy_stream_use), so an
 * early `return` is safe.
 * The `count` tensors in `results` pass to the enclosing scope, or to you; NULLs are skipped.
 * Ending a scope twice does nothing. */
FY_API void fy_scope_end(fy_scope_t scope, size_t count, fy_tensor_t *const *results);
/* Limits the innermost scope. If a scope has several guards, the tightest limit holds.
 * Fails: INVALID_ARGUMENT (no scope is open, more than 64 are, or a limit is looser than that of an
 * enclosing guard), OUT_OF_MEMORY. */
FY_API_STATUS fy_scope_guard(const fy_guard_options_t *options);

/* Says what tensors made in the innermost scope are for, inside it, too, until an inner scope says
 * otherwise: fy_scope_begin("model") and fy_scope_memory(FY_CATEGORY_WEIGHTS). Figures and plans
 * are told by it (fy_memory_query, fy_plan_step); nothing else depends on it.
 * Threads that Ferry starts for you inherit it. Fails: INVALID_ARGUMENT (no scope is open, more
 * than 64 are, or no such category), OUT_OF_MEMORY. */
FY_API_STATUS fy_scope_memory(fy_category_t category);

/* A budget for the whole process, as text, so that a command line or a CI job can set one:
 * "upload=0,download=4KiB/step,sync=0".
 * Each item is limit=amount for everything from now on, on all threads; with /name, for each
 * instance of a scope of that name.
 * Limits: upload, download, peer (bytes: 4096, 4KiB, 1.5GiB), sync, alloc (counts), memory (live
 * device bytes; needs /name).
 * A request that would exceed a limit is REFUSED_BY_GUARD. NULL or "" removes the budget; scopes
 * that began under a budget keep it.
 * $FERRY_BUDGET sets one from the first call on; if it is malformed, fy_device_open fails
 * (docs/environment.md).
 * Fails: INVALID_ARGUMENT (names the item and the values it may have), OUT_OF_MEMORY; the old
 * budget then stays. */
FY_API_STATUS fy_budget_set(const char *text);

#ifdef __cplusplus
}
#endif
#endif
