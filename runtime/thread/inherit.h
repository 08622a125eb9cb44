/* The state that a thread started by Ferry inherits from its creator: the scope path, which
 * receives its figures; the category of its tensors; its autocast; and the guards, so that both
 * threads charge the same counts. Handles that it makes belong to its own scopes.
 * Not here: its work (transfer/prefetch.c). */
#ifndef FERRY_RUNTIME_INHERIT_H_
#define FERRY_RUNTIME_INHERIT_H_

#include "runtime/thread/guard.h"

typedef struct fy__heritage {
    const fy__node_t *node; /* in the creator's tree; nodes are never freed */
    fy_category_t category;
    fy_dtype_t autocast;
    fy__guard_t *guards; /* a reference */
} fy__heritage_t;

/* Copies the current state of `thread`. */
void fy__heritage_take(const fy__thread_t *thread, fy__heritage_t *out_heritage);
void fy__heritage_release(fy__heritage_t *heritage);
/* Called on the new thread, which has no scope open: its scopes are then under the path, and inside
 * the guards. Several threads may call it. */
void fy__heritage_enter(fy__thread_t *thread, const fy__heritage_t *heritage);
/* Ends the scopes that are open and removes the inherited state. */
void fy__heritage_leave(fy__thread_t *thread);

#endif
