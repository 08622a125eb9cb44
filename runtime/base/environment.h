/* Reads environment variables. The library, backends and the command use these two functions and no
 * other (tests/lint/rules/environment.sh). An empty variable counts as unset. Header only, so
 * plugins and programs may use it.
 * Not here: valid values (runtime/device/environment.h), the list of variables
 * (docs/environment.md). */
#ifndef FERRY_RUNTIME_BASE_ENVIRONMENT_H_
#define FERRY_RUNTIME_BASE_ENVIRONMENT_H_

#include <stdlib.h>

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

#endif
