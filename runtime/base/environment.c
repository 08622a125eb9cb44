/* File names from the environment, and the check of all variables whose values can be malformed.
 * The code that uses a variable parses the value again, and logs a value that it ignores. */
#include "runtime/base/environment.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/fail.h"

bool fy__path_expand(const char *path, char *out, size_t size)
{
    const char *mark = strstr(path, "%p");
    const int n =
        mark ? snprintf(out, size, "%.*s%ld%s", (int)(mark - path), path, (long)getpid(), mark + 2)
             : snprintf(out, size, "%s", path);
    return n >= 0 && (size_t)n < size;
}

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
                           "%s=%.40s is malformed; it may be %s\n  Correct or unset it, or set "
                           "FERRY_STRICT=0: then Ferry logs the value "
                           "and ignores it",
                           rule->name, value, rule->may_be);
    }
    return FY_STATUS_OK;
}
