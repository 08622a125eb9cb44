/* Budgets: guards for the whole process, from a text. A budget is parsed once into items that never
 * change. Items without a scope name are the limits of the process's guard. The others become a
 * guard of each scope of that name when it begins. The process's guard keeps the budget, so one
 * pointer leads to both. Scopes that began under an old budget keep it until they end.
 * Not here: how a guard works (guard.h). */
#ifndef FERRY_RUNTIME_BUDGET_H_
#define FERRY_RUNTIME_BUDGET_H_

#include "runtime/thread/guard.h"

/* Called when a scope `name` begins while a budget is set: adds a guard with the limits of that
 * name to the thread's guards. */
void fy__budget_scope(fy__thread_t *thread, const char *name);
/* Reads $FERRY_BUDGET at the first call of any thread. A malformed value is logged as an error and
 * ignored. */
void fy__budget_environment(void);
/* INVALID_ARGUMENT while $FERRY_BUDGET is malformed and fy_budget_set has set no budget;
 * FERRY_STRICT=0: OK. */
fy_status_t fy__budget_check(void);

#endif
