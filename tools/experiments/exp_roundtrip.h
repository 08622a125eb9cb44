/* What the roundtrip experiment and its sweep share. Next: exp_roundtrip.c. */
#ifndef FERRY_TOOLS_EXP_ROUNDTRIP_H_
#define FERRY_TOOLS_EXP_ROUNDTRIP_H_

#include "tools/cli/tool.h"

enum { VARIANT_HOST, VARIANT_RESIDENT, VARIANT_COPIES, VARIANT_COUNT };

/* Of one variant, per iteration. */
typedef struct roundtrip {
    spread_t ns;       /* wall clock */
    spread_t model_ns; /* NaN on a real device */
    double uploads, downloads, nbytes;
    double max_abs_diff; /* from the host variant's product */
} roundtrip_t;

/* "host", "resident", "copies" */
const char *roundtrip_variant_name(int variant);
/* All three variants at one size: rounds of `iters` products of each in turn. */
fy_status_t roundtrip_measure(session_t *session, int64_t size, int64_t iters,
                              const effort_t *effort, roundtrip_t out[VARIANT_COUNT]);
/* Measures over sizes, finds the crossovers and reports. */
fy_status_t roundtrip_sweep(session_t *session, int64_t iters, const effort_t *effort);
#define ROUNDTRIP_WARM_UP "3 products of each variant"

#endif
