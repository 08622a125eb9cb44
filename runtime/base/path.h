/* File names from the environment. */
#ifndef FERRY_RUNTIME_BASE_PATH_H_
#define FERRY_RUNTIME_BASE_PATH_H_

#include <stdbool.h>
#include <stddef.h>

/* Replaces "%p" by the process's number, so that processes that inherit a variable write to
 * different files. false: the result does not fit, and truncated it would name another file. */
bool fy__path_expand(const char *path, char *out, size_t size);

#endif
