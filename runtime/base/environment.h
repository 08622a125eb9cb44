/* Environment variables. The library, backends and the command read them by fy__env_file and
 * fy__env_value only (tests/lint/rules/environment.sh). An empty variable counts as unset. The two
 * functions are inline, so plugins and programs may use them.
 * Not here: the list of variables and their valid values (docs/environment.md). */
#ifndef FERRY_RUNTIME_BASE_ENVIRONMENT_H_
#define FERRY_RUNTIME_BASE_ENVIRONMENT_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

#include <ferry/status.h>

/* A variable that names files to load, read or write. NULL in setuid and setgid programs: their
 * caller must not choose files. */
static inline const char *fy__env_file(const char *name)
{
    const char *text = secure_getenv(name);
    return text && *text ? text : NULL;
}

/* Any other variable. */
static inline const char *fy__env_value(const char *name)
{
    const char *text = getenv(name);
    return text && *text ? text : NULL;
}

/* Replaces "%p" by the process's number, so that processes that inherit a variable write to
 * different files. false: the result does not fit, and truncated it would name another file. */
bool fy__path_expand(const char *path, char *out, size_t size);

/* A variable whose value can be malformed: fy_device_open fails until it is corrected; with
 * FERRY_STRICT=0 the value is only logged. */
typedef struct fy__env_rule {
    const char *name, *may_be;
    bool (*is_good)(const char *value);
} fy__env_rule_t;

/* Variables that other folders read; `name` NULL ends the list. Defined in wire.c. */
extern const fy__env_rule_t fy__wire_env_rules[];

/* Whether FERRY_STRICT=0. */
bool fy__env_is_lenient(void);
/* Fails: INVALID_ARGUMENT, for the first variable whose value is malformed; never if
 * FERRY_STRICT=0. FERRY_BUDGET: fy__budget_check. */
fy_status_t fy__env_check(void);

#endif
