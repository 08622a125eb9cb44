/* Replays a trace under a policy, on plain numbers, and says what it took. Next: replay.c;
 * peer_pools.h for the policies. */
#ifndef FERRY_TOOLS_REPLAY_H_
#define FERRY_TOOLS_REPLAY_H_

#include "tools/replay/peer_pools.h"
#include "tools/replay/trace.h"

typedef struct replay_result {
    uint64_t peak_live, peak_reserved, segments; /* peak_live: as rounded, at the trace's peak */
    /* peak reserved / most bytes asked for at once; NAN if something was refused */
    double reserved_per_peak;
    /* share of the peak reserved bytes that was not requested at the trace's peak; NAN: unknown */
    double waste;
    /* 1 - largest free block / free bytes, at the trace's peak; 0 if nothing is free */
    double fragmentation;
    /* of requests that were refused: under a limit */
    uint64_t refusals, refused_step /* of the first one, from 1 */, refused_nbytes,
        refused_live /* allocated and not freed */;
    const char *refused_scope; /* lives as long as the trace */
    char refused_text[1152];   /* the policy's own words, about the trace's pool */
} replay_result_t;

/* A refused request is left out, and the replay goes on. Fails: INVALID_ARGUMENT (options),
 * OUT_OF_MEMORY (none for the policy itself). */
fy_status_t replay_run(const trace_t *trace, const pool_policy_t *policy,
                       const fy_pool_options_t *options, replay_result_t *out_result);

/* Ferry's options for a pool of that name: those of a device, of page-locked memory ("pinned memory
 * of ...") or of the host. */
fy_pool_options_t replay_options(const char *pool);

#endif
