/* Replays a trace under a policy, on plain numbers, and says what it took. Next: replay.c. */
#ifndef FERRY_TOOLS_REPLAY_H_
#define FERRY_TOOLS_REPLAY_H_

#include <ferry/plan.h>

#include "tools/replay/trace.h"

/* ---- peer_pools.c: policies, Ferry's own pool and those of peers, behind one face, all on plain
 * numbers. The peers are baselines: what their public sources and docs say they do, no more ---- */

typedef struct pool_figures {
    /* live: as rounded; segments: asked for so far */
    uint64_t live, reserved, peak_reserved, largest_free, segments;
} pool_figures_t;

typedef struct pool_policy {
    const char *name;
    /* alignment and segment_nbytes of `options` are Ferry's alone; the peers have their own. NULL:
     * the error record says why. */
    void *(*create)(const fy_pool_options_t *options);
    /* A handle for give; NULL: refused, and the error record says why. */
    void *(*take)(void *pool, uint64_t nbytes);
    void (*give)(void *pool, void *block);
    void (*query)(const void *pool, pool_figures_t *out_figures);
    void (*destroy)(void *pool);
    /* All three or none. As take and give, for bytes that `stream` uses first, that `points` may
     * still use; and a point is reached. Without them every block is free at once. */
    void *(*take_on)(void *pool, uint64_t nbytes, uint32_t stream);
    void (*give_after)(void *pool, void *block, const fy_pool_point_t *points, size_t npoints);
    void (*reach)(void *pool, fy_pool_point_t point);
} pool_policy_t;

/* ferry, power-of-two, pytorch, pytorch-near, jemalloc-arena; NULL ends the list. */
extern const pool_policy_t *const pool_policies[];
extern const pool_policy_t policy_pytorch, policy_pytorch_near, policy_jemalloc_arena;

/* Refuses, in the words of a peer; returns NULL. */
void *pool_refuse(const char *name, uint64_t nbytes, uint64_t reserved, uint64_t limit);

/* ---- replay.c ---- */

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
