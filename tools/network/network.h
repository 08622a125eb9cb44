/* What collectives cost on networks between ranks, by the model clock: formulas of ring and tree,
 * collectives of several nodes. Times are lower bounds: full line rate, no other traffic, no cost
 * of adding. Not here: when a training step calls them (overlap.h), the networks
 * (backends/sim/network.h). Next: network.c. */
#ifndef FERRY_TOOLS_NETWORK_H_
#define FERRY_TOOLS_NETWORK_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backends/sim/network.h"

/* clang-format off */
#define NETWORK_COLLECTIVES(X)                                                        \
    X(BROADCAST, "broadcast") X(ALL_REDUCE, "all_reduce")                             \
    X(REDUCE_SCATTER, "reduce_scatter") X(ALL_GATHER, "all_gather")
/* clang-format on */
typedef enum collective {
#define X(NAME, text) COLLECTIVE_##NAME,
    NETWORK_COLLECTIVES(X)
#undef X
        COLLECTIVE_COUNT
} collective_t;

#define ALGORITHMS "auto|ring|tree"
typedef enum algorithm { ALGORITHM_AUTO, ALGORITHM_RING, ALGORITHM_TREE } algorithm_t;

/* ranks is a multiple of nodes. */
typedef struct cluster {
    int64_t ranks, nodes;
    fy__sim_network_t inside, between; /* of one node; between nodes */
    algorithm_t algorithm;             /* AUTO: the faster one, in each phase */
} cluster_t;

typedef struct cost {
    uint64_t ns;
    /* that a rank sends: the mean of all ranks, rounded up in each phase */
    uint64_t inside_nbytes, between_nbytes;
} cost_t;

/* `nbytes`: of the whole tensor, as each rank has it before an all_reduce. */
cost_t network_cost(const cluster_t *cluster, collective_t collective, uint64_t nbytes);

#endif
