/* A file that a command writes piece by piece, whole or not at all. tool_alloc ends the process
 * when there is no memory; then the temporary file is removed. Not here: a file of one piece
 * (tool_replace), writing itself (runtime/base/replace.h). */
#ifndef FERRY_TOOLS_OUTPUT_H_
#define FERRY_TOOLS_OUTPUT_H_

#include <stddef.h>
#include <stdint.h>

#include <ferry/status.h>

#include "runtime/base/replace.h"

enum { OUTPUT_ROOM = 1 << 20 };

typedef struct output {
    fy__replace_t replace;
    char *buffer; /* `used` bytes of OUTPUT_ROOM are to be written */
    size_t used;
    uint64_t nbytes; /* written so far */
    int error;       /* errno of the first failed write; what follows is dropped */
} output_t;

/* One file at a time. It appears at `path` when output_commit succeeds. Fails: IO, OUT_OF_MEMORY,
 * and then there is nothing to abort. */
fy_status_t output_begin(output_t *output, const char *path);
void output_write(output_t *output, const void *bytes, size_t nbytes);
/* Makes room for at least `nbytes` in the buffer. */
void output_reserve(output_t *output, size_t nbytes);
/* Fails: IO; then the path is as it was. */
fy_status_t output_commit(output_t *output);
void output_abort(output_t *output);

#endif
