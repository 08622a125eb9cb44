/* `ferry plan MODEL --ranks N`: its options, their check, and its report. Not here: the prediction
 * (overlap.h). Next: ranks.c. */
#ifndef FERRY_TOOLS_RANKS_H_
#define FERRY_TOOLS_RANKS_H_

#include "tools/network/overlap.h"

#include "tools/cli/tool.h"

#define RANKS_ASSUMPTIONS                                                              \
    "equal ranks; sums slow no kernel down and cost nothing but the network; nothing " \
    "else uses it"

/* What was requested; zeros and NULLs are defaults. */
typedef struct ranks {
    int64_t ranks, nodes, bucket_nbytes;
    const char *net, *node_net;
    int algorithm; /* of ALGORITHMS */
    bool shard;
} ranks_t;

/* clang-format off */
#define RANKS_NET_OPTIONS(r)                                                                                                \
    { "net", OPTION_TEXT, "NET", &(r)->net, "of --ranks, between nodes: " FY__SIM_NETWORK_FORM "; default ib400" },           \
    { "node-net", OPTION_TEXT, "NET", &(r)->node_net, "of --ranks, inside a node, as --net; default nvlink" },        \
    { "algorithm", OPTION_CHOICE, ALGORITHMS, &(r)->algorithm, "of --ranks: of the collectives; auto: the faster one" }, \
    { "bucket", OPTION_BYTES, "SIZE", &(r)->bucket_nbytes, "of --ranks: bytes of gradients that are summed in one call; "   \
      "the first at most 1MiB; default 25MiB", 1, INT64_MAX }
#define RANKS_OPTIONS(r)                                                                                                    \
    { "ranks", OPTION_INT, "N", &(r)->ranks, "of models: step time, exposed communication and memory of data-parallel "     \
      "training on N devices, --batch on each", 1, RANKS_MOST },                                                            \
    { "nodes", OPTION_INT, "N", &(r)->nodes, "of --ranks: machines; default 1", 1, RANKS_MOST },                            \
    RANKS_NET_OPTIONS(r),                                                                                                   \
    { "shard-optimizer", OPTION_FLAG, NULL, &(r)->shard, "of --ranks: each rank has a part of the optimizer state "         \
      "(ZeRO-1); --fit and the verdict are of whole state" }
/* clang-format on */
enum { RANKS_MOST = 1 << 20 };

/* Reads the options into *out_cluster; without `ranks` it is one rank. False: the reason was
 * printed, after "ferry: COMMAND: ". */
bool ranks_check(const char *command, const ranks_t *ranks, cluster_t *out_cluster);
/* Bytes of a full bucket. */
uint64_t ranks_bucket(const ranks_t *ranks);
/* As text, or as the object "ranks" of the document. `plan` is that of one rank. */
void ranks_report(session_t *session, const ranks_t *ranks, const cluster_t *cluster,
                  const backward_t *backward, const fy_plan_t *plan);

#endif
