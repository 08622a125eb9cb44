/* A file that a command writes piece by piece, whole or not at all. tool_alloc ends the process
 * when there is no memory; then the temporary file is removed. Not here: a file of one piece
 * (tool_replace), writing itself (runtime/base/replace.h). */
#ifndef FERRY_TOOLS_OUTPUT_H_
#define FERRY_TOOLS_OUTPUT_H_

#include <ferry/status.h>

#include "runtime/base/replace.h"

/* One file at a time. Fails: IO, OUT_OF_MEMORY. */
fy_status_t output_begin(fy__replace_t *replace, const char *path);
/* Fails: IO; then the path is as it was. */
fy_status_t output_commit(fy__replace_t *replace);
void output_abort(fy__replace_t *replace);

#endif
