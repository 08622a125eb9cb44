/* See output.h. */
#include "tools/cli/output.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "tools/cli/tool.h"

static fy__replace_t *unfinished; /* NULL: none */

static void remove_unfinished(void)
{
    if (unfinished) fy__replace_abort(unfinished);
}

fy_status_t output_begin(output_t *output, const char *path)
{
    static bool is_registered;
    *output = (output_t){ .used = 0 };
    if (!is_registered && atexit(remove_unfinished))
        return TOOL_FAIL(OUT_OF_MEMORY, "no host memory to write %s", path);
    is_registered = true;
    if (fy__replace_begin(&output->replace, path))
        return TOOL_FAIL(IO, "%s", output->replace.problem);
    unfinished = &output->replace;
    output->buffer = tool_alloc(OUTPUT_ROOM);
    return FY_STATUS_OK;
}

static void flush(output_t *output)
{
    if (!output->error)
        output->error = fy__replace_write(&output->replace, output->buffer, output->used);
    output->nbytes += output->used;
    output->used = 0;
}

void output_reserve(output_t *output, size_t nbytes)
{
    if (OUTPUT_ROOM - output->used < nbytes) flush(output);
}

void output_write(output_t *output, const void *bytes, size_t nbytes)
{
    for (const char *from = bytes; nbytes;) {
        output_reserve(output, 1);
        const size_t room = OUTPUT_ROOM - output->used, n = nbytes < room ? nbytes : room;
        memcpy(output->buffer + output->used, from, n);
        output->used += n;
        nbytes -= n;
        from += n;
    }
}

fy_status_t output_commit(output_t *output)
{
    flush(output);
    if (!output->error)
        output->error = fy__replace_commit(&output->replace);
    else
        fy__replace_abort(&output->replace);
    unfinished = NULL;
    free(output->buffer);
    return output->error ? TOOL_FAIL(IO, "%s", output->replace.problem) : FY_STATUS_OK;
}

void output_abort(output_t *output)
{
    unfinished = NULL;
    fy__replace_abort(&output->replace);
    free(output->buffer);
}
