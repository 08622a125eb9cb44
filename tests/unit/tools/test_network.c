/* The cost of collectives (tools/network/network.c), by hand. Steps on several ranks
 * (tools/network/overlap.h): when buckets are summed, exposed time, shards of the state. */
#include <math.h>

#include "tests/support/test.h"
#include "tools/network/overlap.h"

static fy__sim_network_t net(const char *text)
{
    fy__sim_network_t network = { .latency_ns = 0 };
    assert_true(fy__sim_network_parse(text, &network));
    return network;
}

/* 1 byte a nanosecond and 100 ns, unless a test changes it. */
static cluster_t cluster_of(int64_t ranks, int64_t nodes, algorithm_t algorithm)
{
    return (cluster_t){ .ranks = ranks,
                        .nodes = nodes,
                        .inside = net("100ns:1GB/s"),
                        .between = net("1us:500MB/s"),
                        .algorithm = algorithm };
}

static void assert_cost(const cluster_t *cluster, collective_t collective, uint64_t nbytes,
                        uint64_t ns, uint64_t inside, uint64_t between)
{
    const cost_t cost = network_cost(cluster, collective, nbytes);
    assert_int_equal(cost.ns, ns);
    assert_int_equal(cost.inside_nbytes, inside);
    assert_int_equal(cost.between_nbytes, between);
}

TS_TEST(a_ring_and_a_tree_cost_what_their_formulas_say)
{
    const cluster_t ring = cluster_of(4, 1, ALGORITHM_RING),
                    tree = cluster_of(4, 1, ALGORITHM_TREE),
                    best = cluster_of(4, 1, ALGORITHM_AUTO), one = cluster_of(1, 1, ALGORITHM_RING),
                    five = cluster_of(5, 1, ALGORITHM_TREE);
    assert_cost(&ring, COLLECTIVE_ALL_REDUCE, 4000, 600 + 6000, 6000, 0);
    assert_cost(&tree, COLLECTIVE_ALL_REDUCE, 4000, 400 + 8000, 6000, 0);
    assert_cost(&best, COLLECTIVE_ALL_REDUCE, 4000, 6600, 6000, 0);
    assert_cost(&best, COLLECTIVE_ALL_REDUCE, 4, 400 + 8, 6, 0); /* few bytes: the tree */
    assert_cost(&ring, COLLECTIVE_REDUCE_SCATTER, 4000, 300 + 3000, 3000, 0);
    assert_cost(&tree, COLLECTIVE_ALL_GATHER, 4000, 200 + 3000, 3000, 0);
    assert_cost(&ring, COLLECTIVE_BROADCAST, 4000, 300 + 4000, 3000, 0);
    assert_cost(&tree, COLLECTIVE_BROADCAST, 4000, 200 + 4000, 3000, 0);
    assert_cost(&five, COLLECTIVE_BROADCAST, 5, 300 + 5, 4, 0); /* log2(5) is rounded up to 3 */
    assert_cost(&one, COLLECTIVE_ALL_REDUCE, 4000, 0, 0, 0);
    assert_cost(&ring, COLLECTIVE_ALL_REDUCE, 1, 600 + 2, 2, 0); /* rounded up */
}

TS_TEST(several_nodes_reduce_inside_then_between)
{
    /* 2 nodes of 4: 4000 bytes are 1000 for each rank between the nodes, at 2 ns a byte */
    cluster_t c = cluster_of(8, 2, ALGORITHM_RING);
    assert_cost(&c, COLLECTIVE_ALL_REDUCE, 4000, 3300 + (2000 + 2000) + 3300, 6000, 1000);
    assert_cost(&c, COLLECTIVE_REDUCE_SCATTER, 4000, 3300 + (1000 + 1000), 3000, 500);
    assert_cost(&c, COLLECTIVE_ALL_GATHER, 4000, 3300 + (1000 + 1000), 3000, 500);
    assert_cost(&c, COLLECTIVE_BROADCAST, 4000, (1000 + 8000) + 4300, 3000, 500);
    /* four ranks share a node's adapter; a broadcast uses it once */
    c.between.is_shared = true;
    assert_cost(&c, COLLECTIVE_ALL_REDUCE, 4000, 3300 + (2000 + 4 * 2000) + 3300, 6000, 1000);
    assert_cost(&c, COLLECTIVE_BROADCAST, 4000, (1000 + 8000) + 4300, 3000, 500);
    /* a rank a node: nothing inside */
    c = cluster_of(2, 2, ALGORITHM_RING);
    assert_cost(&c, COLLECTIVE_ALL_REDUCE, 4000, 2000 + 8000, 0, 4000);
}

/* Three gradients of 1 MiB, at 1, 2 and 3 ms; the backward ends then, the step 1 ms later. */
static backward_t backward_of(arrival_t arrivals[3])
{
    for (uint64_t i = 0; i < 3; i++) arrivals[i] = (arrival_t){ (i + 1) * 1000000, 1 << 20 };
    return (backward_t){ .arrivals = arrivals,
                         .count = 3,
                         .backward_ns = 3000000,
                         .step_ns = 4000000,
                         .nbytes = 3 << 20,
                         .element_nbytes = 4,
                         .nstates = 2,
                         .state_nbytes = 2 * (3 << 20),
                         .state_element_nbytes = 8 };
}

TS_TEST(sums_begin_when_gradients_are_complete)
{
    arrival_t arrivals[3];
    overlap_t overlap;
    const backward_t backward = backward_of(arrivals);
    const cluster_t c = cluster_of(2, 1, ALGORITHM_RING);
    const uint64_t sum = 200 + (1 << 20); /* 2 (n-1)/n bytes of 1 MiB */
    overlap_run(&c, &backward, 1 << 20, false, &overlap);
    assert_int_equal(overlap.count, 3);
    assert_int_equal(overlap.buckets[0].begin_ns, 1000000);
    assert_int_equal(overlap.buckets[1].begin_ns, 1000000 + sum); /* the first sum takes longer */
    assert_int_equal(overlap.buckets[2].end_ns, 1000000 + 3 * sum);
    assert_int_equal(overlap.exposed_ns, 3 * sum - 2000000);
    assert_int_equal(overlap.step_ns, 4000000 + overlap.exposed_ns);
    assert_int_equal(overlap.communication_ns, 3 * sum);
    assert_int_equal(overlap.inside_nbytes, 3 << 20);
    assert_true(fabs(overlap_hidden(&overlap) - 100 * 2000000.0 / (3.0 * (double)sum)) < 1e-9);
    overlap_free(&overlap);
    overlap_run(&c, &backward, 25 << 20, false, &overlap);
    assert_int_equal(overlap.count, 2); /* 1 MiB, then the rest */
    assert_int_equal(overlap.buckets[1].gradients, 2);
    assert_int_equal(overlap.buckets[1].ready_ns, 3000000);
    overlap_free(&overlap);
}

TS_TEST(shards_divide_the_state_and_gather_the_parameters)
{
    arrival_t arrivals[3];
    overlap_t overlap;
    const backward_t backward = backward_of(arrivals);
    cluster_t c = cluster_of(3, 1, ALGORITHM_RING);
    overlap_run(&c, &backward, 1 << 20, true, &overlap);
    /* a bucket of 262144 elements: 87382 for a rank, as a multiple of 32 87392; two tensors */
    assert_int_equal(overlap.shard_nbytes, 2 * ((3 * 87392 * 4 + 255) / 256 * 256));
    assert_int_equal(overlap.state_nbytes, backward.state_nbytes);
    const cost_t gather = network_cost(&c, COLLECTIVE_ALL_GATHER, 3 << 20);
    assert_int_equal(overlap.step_ns,
                     4000000 + gather.ns + (overlap.buckets[2].end_ns - backward.backward_ns));
    overlap_free(&overlap);
    c.ranks = 1;
    overlap_run(&c, &backward, 1 << 20, true, &overlap);
    assert_int_equal(overlap.shard_nbytes, backward.state_nbytes);
    assert_int_equal(overlap.step_ns, 4000000);
    assert_true(isnan(overlap_hidden(&overlap)));
    overlap_free(&overlap);
}
