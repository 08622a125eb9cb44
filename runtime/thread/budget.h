/* Budgets: guards for the whole process, from a text. A budget is parsed once into items that never
 * change; those without a scope name are the limits of the process's guard, the others become a
 * guard of each scope of that name when it begins. The process's guard keeps the budget, so that
 * one pointer answers both questions; scopes that were begun under an old budget keep that one
 * until they end.
 * Not here: what a guard does (guard.h). */
#ifndef FERRY_RUNTIME_BUDGET_H_
#define FERRY_RUNTIME_BUDGET_H_

#include "runtime/thread/guard.h"

/* A scope was just begun as `name` while a budget is set: puts the limits that bear its name in
 * front of the thread's guards. */
void fy__budget_scope(fy__thread_t *thread, const char *name);
/* $FERRY_BUDGET, the first time that any thread gets here. One that is malformed is logged as an
 * error and does not count. */
void fy__budget_environment(void);
/* INVALID_ARGUMENT while $FERRY_BUDGET is malformed and fy_budget_set has set no other;
 * FERRY_STRICT=0: OK. */
fy_status_t fy__budget_check(void);

#endif
