/* Names of files that come from the environment. */
#ifndef FERRY_RUNTIME_BASE_PATH_H_
#define FERRY_RUNTIME_BASE_PATH_H_

#include <stdbool.h>
#include <stddef.h>

/* "%p" in a path is the process's number, so that processes that inherit a variable do not write
 * over each other's file. false: it does not fit, and would be another file's name. */
bool fy__path_expand(const char *path, char *out, size_t size);

#endif
