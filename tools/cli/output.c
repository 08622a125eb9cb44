/* See output.h. */
#include "tools/cli/output.h"

#include <stdbool.h>
#include <stdlib.h>

#include "tools/cli/tool.h"

static fy__replace_t *unfinished; /* NULL: none */

static void remove_unfinished(void)
{
    if (unfinished) fy__replace_abort(unfinished);
}

fy_status_t output_begin(fy__replace_t *replace, const char *path)
{
    static bool is_registered;
    if (!is_registered && atexit(remove_unfinished))
        return TOOL_FAIL(OUT_OF_MEMORY, "no host memory to write %s", path);
    is_registered = true;
    if (fy__replace_begin(replace, path)) return TOOL_FAIL(IO, "%s", replace->problem);
    unfinished = replace;
    return FY_STATUS_OK;
}

fy_status_t output_commit(fy__replace_t *replace)
{
    unfinished = NULL;
    return fy__replace_commit(replace) ? TOOL_FAIL(IO, "%s", replace->problem) : FY_STATUS_OK;
}

void output_abort(fy__replace_t *replace)
{
    unfinished = NULL;
    fy__replace_abort(replace);
}
