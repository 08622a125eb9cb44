/* File names from the environment. */
#include "runtime/base/path.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

bool fy__path_expand(const char *path, char *out, size_t size)
{
    const char *mark = strstr(path, "%p");
    const int n =
        mark ? snprintf(out, size, "%.*s%ld%s", (int)(mark - path), path, (long)getpid(), mark + 2)
             : snprintf(out, size, "%s", path);
    return n >= 0 && (size_t)n < size;
}
