/* What a thread that Ferry starts inherits from the one that asked for it: the scope path, so that
 * its figures stand under it, what is made there is for, and the guards, so that both charge the
 * same counts. The handles that it makes are its own scopes'.
 * Not here: what the thread does with it (transfer/prefetch.c). */
#ifndef FERRY_RUNTIME_INHERIT_H_
#define FERRY_RUNTIME_INHERIT_H_

#include "runtime/thread/guard.h"

typedef struct fy__heritage {
    const fy__node_t *node; /* in the giving thread's tree; nodes are never freed */
    fy_category_t category;
    fy__guard_t *guards; /* a reference */
} fy__heritage_t;

/* What is in force on `thread` now. */
void fy__heritage_take(const fy__thread_t *thread, fy__heritage_t *out_heritage);
void fy__heritage_release(fy__heritage_t *heritage);
/* On the heir, which has no scope open: scopes begun from now on stand under the path, inside of
 * the guards. May be done by several. */
void fy__heritage_enter(fy__thread_t *thread, const fy__heritage_t *heritage);
/* Ends the scopes that are open and leaves. */
void fy__heritage_leave(fy__thread_t *thread);

#endif
