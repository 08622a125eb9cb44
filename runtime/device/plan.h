/* What a plan (fy_plan_step) wants to be told by those who do not know it. alloc/ implements it.
 * Not here: plans (alloc/plan.h). */
#ifndef FERRY_RUNTIME_PLAN_H_
#define FERRY_RUNTIME_PLAN_H_

#include "runtime/device/memory.h"

struct fy__thread;

/* thread->plan is set: its innermost scope has begun, or is about to end. */
void fy__plan_scope(struct fy__thread *thread, bool is_begin);

/* A request was refused, and the error record says so. True: the pool is one that a plan watches;
 * the plan has taken note, and from now on there is memory without end, so the request should be
 * made again. Not while thread->plan_declines: the caller has another idea. */
bool fy__plan_lift(fy__pool_t *pool);

#endif
