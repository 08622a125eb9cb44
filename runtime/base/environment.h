/* How environment variables are read, by the library, by backends and by the command: through these
 * two functions and no other (tests/lint/rules/environment.sh). An empty variable counts as unset.
 * Header only, so plugins and programs may use it, too.
 * Not here: which values are good (runtime/device/environment.h), the list of variables
 * (docs/environment.md). */
#ifndef FERRY_RUNTIME_BASE_ENVIRONMENT_H_
#define FERRY_RUNTIME_BASE_ENVIRONMENT_H_

#include <stdlib.h>

/* A variable that names files to load, to read or to write: NULL in setuid and setgid programs,
 * whose caller is not to choose them. */
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

#endif
