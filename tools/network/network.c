/* Networks and the cost of collectives; see overlap.h.
 *
 * n ranks, B bytes, latency L of a message, W bytes per second and direction:
 *
 *                  ring                             tree
 *   broadcast      (n-1) L + B/W                    log2(n) L + B/W
 *   all_reduce     2 (n-1) L + 2 (n-1)/n B/W        2 log2(n) L + 2 B/W
 *   reduce_scatter (n-1) L + (n-1)/n B/W            log2(n) L + (n-1)/n B/W
 *   all_gather     as reduce_scatter                as reduce_scatter
 *
 * Ring all_reduce: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
 * workstations" (2009). Tree broadcast and all_reduce: two binary trees, each with half of the
 * bytes, in pieces (Sanders, Speck, Traeff, "Two-tree algorithms for full bandwidth broadcast,
 * reduction and scan", 2009); the time to fill that pipeline counts as latency. reduce_scatter by
 * recursive halving, all_gather by recursive doubling: Thakur, Rabenseifner, Gropp, "Optimization
 * of collective communication operations in MPICH" (2005). log2 is rounded up.
 *
 * Several ranks on several nodes, as BlueConnect (Cho et al., MLSys 2019): reduce_scatter inside
 * each node, then all_reduce between the nodes of each rank's part, then all_gather inside. Phases
 * follow each other. Not here: the networks (backends/sim/network.c). */
#include "tools/network/overlap.h"

#define NS_PER_S 1000000000ull

/* ---- one network ---- */

/* One phase: n ranks of one network. */
typedef struct phase {
    uint64_t ns, nbytes; /* sent by a rank, the mean */
} phase_t;

/* Rounded up to whole nanoseconds. `share` ranks use one adapter at once. */
static uint64_t wire_ns(const fy__sim_network_t *network, uint64_t nbytes, int64_t share)
{
    __extension__ typedef unsigned __int128 wide_t;
    const wide_t work = (wide_t)nbytes * (network->is_shared ? (uint64_t)share : 1) * NS_PER_S;
    return (uint64_t)((work + network->bytes_per_s - 1) / network->bytes_per_s);
}

/* ceil(nbytes * a / b) */
static uint64_t part(uint64_t nbytes, uint64_t a, uint64_t b)
{
    __extension__ typedef unsigned __int128 wide_t;
    return (uint64_t)(((wide_t)nbytes * a + b - 1) / b);
}

static uint64_t log2_up(uint64_t n)
{
    uint64_t steps = 0;
    while (steps < 63 && 1ull << steps < n) steps++;
    return steps;
}

static phase_t run_phase(const fy__sim_network_t *network, int64_t ranks, int64_t share,
                         collective_t collective, algorithm_t algorithm, uint64_t nbytes)
{
    const uint64_t n = (uint64_t)ranks;
    const uint64_t steps = algorithm == ALGORITHM_RING ? n - 1 : log2_up(n);
    const uint64_t once = part(nbytes, n - 1, n), twice = part(nbytes, 2 * (n - 1), n);
    switch (collective) {
    case COLLECTIVE_BROADCAST: /* each rank but one receives all bytes once */
        return (phase_t){ steps * network->latency_ns + wire_ns(network, nbytes, share), once };
    case COLLECTIVE_ALL_REDUCE:
        return (
            phase_t){ 2 * steps * network->latency_ns +
                          wire_ns(network, algorithm == ALGORITHM_RING ? twice : 2 * nbytes, share),
                      twice };
    default: return (phase_t){ steps * network->latency_ns + wire_ns(network, once, share), once };
    }
}

static phase_t phase(const cluster_t *cluster, bool is_between, collective_t collective,
                     uint64_t nbytes)
{
    const fy__sim_network_t *network = is_between ? &cluster->between : &cluster->inside;
    const int64_t local = cluster->ranks / cluster->nodes;
    const int64_t ranks = is_between ? cluster->nodes : local;
    /* of a broadcast one rank of each node sends */
    const int64_t share = is_between && collective != COLLECTIVE_BROADCAST ? local : 1;
    if (ranks <= 1) return (phase_t){ 0, 0 };
    const phase_t ring = run_phase(network, ranks, share, collective, ALGORITHM_RING, nbytes),
                  tree = run_phase(network, ranks, share, collective, ALGORITHM_TREE, nbytes);
    if (cluster->algorithm == ALGORITHM_AUTO) return tree.ns < ring.ns ? tree : ring;
    return cluster->algorithm == ALGORITHM_RING ? ring : tree;
}

/* ---- clusters ---- */

cost_t network_cost(const cluster_t *cluster, collective_t collective, uint64_t nbytes)
{
    const uint64_t local = (uint64_t)(cluster->ranks / cluster->nodes);
    const uint64_t own = part(nbytes, 1, local); /* what a rank has after a reduce_scatter inside */
    phase_t first = { 0, 0 }, between, last = { 0, 0 };
    switch (collective) {
    case COLLECTIVE_BROADCAST:
        between = phase(cluster, true, collective, nbytes);
        between.nbytes = part(between.nbytes, 1, local);
        last = phase(cluster, false, collective, nbytes);
        break;
    case COLLECTIVE_ALL_REDUCE:
        if (cluster->nodes == 1) {
            first = phase(cluster, false, collective, nbytes);
            between = (phase_t){ 0, 0 };
            break;
        }
        first = phase(cluster, false, COLLECTIVE_REDUCE_SCATTER, nbytes);
        between = phase(cluster, true, collective, own);
        last = phase(cluster, false, COLLECTIVE_ALL_GATHER, nbytes);
        break;
    default: /* all_gather: the same phases in the other order */
        first = phase(cluster, false, collective, nbytes);
        between = phase(cluster, true, collective, own);
    }
    return (cost_t){ first.ns + between.ns + last.ns, first.nbytes + last.nbytes, between.nbytes };
}
