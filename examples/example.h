/* What every example ends with: one machine-readable line of traffic, or the error, on the right
 * stream, with the right exit status. */
#ifndef FERRY_EXAMPLES_EXAMPLE_H_
#define FERRY_EXAMPLES_EXAMPLE_H_

#include <inttypes.h>
#include <stdio.h>

#include <ferry/ferry.h>

/* The program's exit status. */
static inline int example_finish(const char *program, fy_status_t status)
{
    if (status != FY_STATUS_OK) {
        const fy_error_t *error = fy_error_get();
        fprintf(stderr, "%s: %s: %s\n", program, fy_status_name(status), error->text);
        return 1;
    }
    fy_ledger_totals_t all = FY_LEDGER_TOTALS_INIT;
    if (fy_ledger_query(NULL, &all) != FY_STATUS_OK) return 1;
    printf("traffic: requests=%" PRIu64 " uploads=%" PRIu64 " upload_bytes=%" PRIu64
           " downloads=%" PRIu64 " download_bytes=%" PRIu64 " syncs=%" PRIu64 "\n",
           all.requests, all.upload.count, all.upload.nbytes, all.download.count,
           all.download.nbytes, all.syncs);
    return 0;
}

#endif
