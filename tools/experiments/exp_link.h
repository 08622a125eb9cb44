/* What the link experiment's parts share. Next: exp_link.c; exp_link_overlap.c. */
#ifndef FERRY_TOOLS_EXP_LINK_H_
#define FERRY_TOOLS_EXP_LINK_H_

#include "tools/cli/tool.h"

/* A loop of upload, compute and download, with and without waits in between. Times are of
 * session_clock(). */
typedef struct overlap {
    int64_t steps, products; /* timed steps, and matrix products in each */
    spread_t pipelined_ns_per_step, serial_ns_per_step;
    /* of one step: how long each engine is busy; on the wall clock how long each takes alone */
    spread_t upload_ns, compute_ns, download_ns;
} overlap_t;

/* Measures rounds of `steps` steps once the pipeline is full. products 0: as many as take about as
 * long as the upload. Fails: CORRUPT_DATA (a download did not hold its step's result). */
fy_status_t link_overlap_measure(session_t *session, int64_t steps, int64_t products,
                                 const effort_t *effort, overlap_t *out);
/* Measures and reports. */
fy_status_t link_overlap(session_t *session, int64_t steps, int64_t products,
                         const effort_t *effort);
/* Now, by session_clock(). */
double link_now_ns(const session_t *session);

#endif
