/* The calls that a plan (fy_plan_step) needs from runtime/ and transfer/. alloc/ implements them.
 * Not here: plans (alloc/plan.c). */
#ifndef FERRY_RUNTIME_PLAN_H_
#define FERRY_RUNTIME_PLAN_H_

#include "runtime/device/memory.h"

struct fy__thread;

/* thread->plan is set: its innermost scope has begun, or is about to end. */
void fy__plan_scope(struct fy__thread *thread, bool is_begin);
/* The same: a request was submitted to `device`. */
void fy__plan_flops(struct fy__thread *thread, const fy_device_t *device, uint64_t flops);

/* Called after a request was refused and the error record is written. True: a plan watches the
 * pool, has noted the refusal, and has removed the limit, so make the request again. False while
 * thread->plan_declines: the caller has an alternative. */
bool fy__plan_lift(fy__pool_t *pool);

#endif
