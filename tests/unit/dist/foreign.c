/* A plugin for an MPI whose open fails with a text that shows which file was loaded. Built a second
 * time with the symbol of an older version. */
#include <stdio.h>

#include "dist/transport.h"

__attribute__((visibility("default"))) fyd_open_result_t
fyd_transport_open_2(fyd_transport_t *out, uint64_t deadline_ns, char error[FYD_ERROR_SIZE])
{
    (void)out;
    (void)deadline_ns;
    snprintf(error, FYD_ERROR_SIZE, "the test's plugin ran");
    return FYD_FAILED;
}
