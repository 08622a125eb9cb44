/* `ferry experiment parallel --ranks N`: predicted scaling; and what other trainings on digits
 * share with the measured one. Next: exp_parallel_ranks.c. */
#ifndef FERRY_TOOLS_EXP_PARALLEL_H_
#define FERRY_TOOLS_EXP_PARALLEL_H_

#include <ferry/train/train.h>

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

/* ---- exp_parallel.c ---- */

/* Fills `count` samples from number `first` on, in the order of the set, which repeats: pixels from
 * 0 to 1 into x, labels into y, both on the host. */
fy_status_t fill_digits(const fy_dataset_t *digits, int64_t first, int64_t count, fy_tensor_t *x,
                        fy_tensor_t *y);
/* Adds up ||a - b||^2 and ||a||^2, and returns ||a - b|| / ||a||. */
double add_difference(const float *a, const float *b, uint64_t n, double sums[2]);

#endif
