/* The check of all variables that have a set of good values. Who uses a variable parses it by itself and logs what it ignores. */
#include "runtime/environment.h"

#include <string.h>

#include "runtime/base/environment.h"
#include "runtime/base/fail.h"

bool fy__env_is_lenient(void)
{
    const char *strict = fy__env_value("FERRY_STRICT");
    return strict && strcmp(strict, "0") == 0;
}

fy_status_t fy__env_check(void)
{
    if (fy__env_is_lenient()) return FY_STATUS_OK;
    for (const fy__env_rule_t *rule = fy__wire_env_rules; rule->name; rule++) {
        const char *value = fy__env_value(rule->name);
        if (value && !rule->is_good(value))
            return FY_FAIL(INVALID_ARGUMENT,
                           "%s=%.40s: it may be %s\n  Correct it, unset it, or set FERRY_STRICT=0: then it is logged and ignored",
                           rule->name, value, rule->may_be);
    }
    return FY_STATUS_OK;
}
