/* `ferry experiment parallel --ranks N`: predicted scaling. Next: exp_parallel_ranks.c. */
#ifndef FERRY_TOOLS_EXP_PARALLEL_H_
#define FERRY_TOOLS_EXP_PARALLEL_H_

#include "tools/network/ranks.h"

typedef struct scaling {
    const char *model;
    int64_t batch; /* of weak scaling, on each rank */
    int64_t total; /* batch of strong scaling, over all ranks; 0: SCALING_TOTAL times `batch` */
    int64_t per_node;
    ranks_t ranks; /* up to how many: powers of two */
} scaling_t;
enum { SCALING_TOTAL = 32 };

/* False: the reason was printed. */
bool scaling_check(const char *device, const scaling_t *scaling);
/* Plans steps on the session's kind of device, predicts all numbers of ranks, and reports. */
fy_status_t scaling_run(session_t *session, const scaling_t *scaling);

#endif
