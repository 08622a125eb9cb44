/* Malformed values of environment variables: fy_device_open fails until they are corrected; with
 * FERRY_STRICT=0 they are only logged. Next: environment.c; docs/environment.md lists valid
 * values. */
#ifndef FERRY_RUNTIME_ENVIRONMENT_H_
#define FERRY_RUNTIME_ENVIRONMENT_H_

#include <stdbool.h>

#include <ferry/status.h>

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
