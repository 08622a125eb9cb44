/* Policies for `ferry replay`: Ferry's own pool and those of peers, behind one face, all on plain
 * numbers. The peers are baselines: what their public sources and docs say they do, no more. Next:
 * peer_pools.c (the table), peer_pytorch.c, peer_jemalloc.c. */
#ifndef FERRY_TOOLS_PEER_POOLS_H_
#define FERRY_TOOLS_PEER_POOLS_H_

#include <ferry/plan.h>

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

#endif
