/* Options and report of `ferry plan MODEL --ranks N`; see ranks.h. */
#include "tools/network/ranks.h"

#include <inttypes.h>
#include <math.h>

static bool read_net(const char *command, const char *option, const char *text,
                     fy__sim_network_t *out)
{
    if (fy__sim_network_parse(text, out)) return true;
    return TOOL_REFUSE(false, "%s: --%s takes " FY__SIM_NETWORK_FORM ", not '%s'\n", command,
                       option, text);
}

bool ranks_check(const char *command, const ranks_t *ranks, cluster_t *out_cluster)
{
    const int64_t n = ranks->ranks ? ranks->ranks : 1, nodes = ranks->nodes ? ranks->nodes : 1;
    const bool has_more = ranks->nodes || ranks->net || ranks->node_net || ranks->algorithm ||
                          ranks->bucket_nbytes || ranks->shard;
    *out_cluster = (cluster_t){ n, nodes, .algorithm = (algorithm_t)ranks->algorithm };
    if (!ranks->ranks && has_more)
        return TOOL_REFUSE(false, "%s: options of networks and nodes need --ranks\n", command);
    if (n % nodes)
        return TOOL_REFUSE(false,
                           "%s: %" PRId64 " ranks are not divisible by %" PRId64 " nodes; %" PRId64
                           " are\n",
                           command, n, nodes, (n / nodes + 1) * nodes);
    return read_net(command, "net", ranks->net ? ranks->net : "ib400", &out_cluster->between) &&
           read_net(command, "node-net", ranks->node_net ? ranks->node_net : "nvlink",
                    &out_cluster->inside);
}

uint64_t ranks_bucket(const ranks_t *ranks)
{
    return ranks->bucket_nbytes ? (uint64_t)ranks->bucket_nbytes : BUCKET_NBYTES;
}

static sheet_t *list_buckets(const overlap_t *overlap)
{
    static const column_t columns[] = {
        { "gradients", "gradients", 0 },        { "bytes", "bytes", 0 },
        { "ready_model_ns", "complete ns", 0 }, { "begin_model_ns", "sum begins ns", 0 },
        { "end_model_ns", "ends ns", 0 },
    };
    sheet_t *sheet = sheet_create(columns, sizeof columns / sizeof *columns);
    for (size_t b = 0; b < overlap->count; b++) {
        const bucket_t *bucket = &overlap->buckets[b];
        sheet_int(sheet, (int64_t)bucket->gradients);
        sheet_int(sheet, (int64_t)bucket->nbytes);
        sheet_int(sheet, (int64_t)bucket->ready_ns);
        sheet_int(sheet, (int64_t)bucket->begin_ns);
        sheet_int(sheet, (int64_t)bucket->end_ns);
    }
    return sheet;
}

static void report_json(json_t *json, const cluster_t *cluster, const backward_t *backward,
                        const overlap_t *overlap, const sheet_t *buckets, uint64_t peak)
{
    json_begin_object(json, "ranks");
    json_int(json, "ranks", cluster->ranks);
    json_int(json, "nodes", cluster->nodes);
    json_text(json, "net", cluster->between.name);
    json_text(json, "node_net", cluster->inside.name);
    json_uint(json, "step_model_ns", overlap->step_ns);
    json_uint(json, "backward_end_model_ns", backward->backward_ns);
    json_uint(json, "communication_model_ns", overlap->communication_ns);
    json_uint(json, "exposed_model_ns", overlap->exposed_ns);
    json_real(json, "hidden_percent", overlap_hidden(overlap));
    json_uint(json, "wire_bytes_inside", overlap->inside_nbytes);
    json_uint(json, "wire_bytes_between", overlap->between_nbytes);
    json_uint(json, "peak_bytes", peak);
    json_uint(json, "state_bytes", overlap->state_nbytes);
    json_uint(json, "sharded_state_bytes", overlap->shard_nbytes);
    sheet_json(buckets, json, "buckets");
    json_end(json);
}

static void report_text(FILE *out, const ranks_t *ranks, const cluster_t *cluster,
                        const backward_t *backward, const overlap_t *overlap,
                        const sheet_t *buckets, const fy_plan_t *plan, uint64_t peak)
{
    const double hidden = overlap_hidden(overlap);
    fprintf(out, "\n%" PRId64 " ranks, %" PRId64 " %s (%s inside", cluster->ranks, cluster->nodes,
            cluster->nodes == 1 ? "node" : "nodes", cluster->inside.name);
    if (cluster->nodes > 1) fprintf(out, ", %s between", cluster->between.name);
    fprintf(out, "), %" PRId64 " samples a step\n\n", cluster->ranks * plan->batch);
    sheet_print(buckets, out);
    fprintf(out,
            "\na step takes %" PRIu64 " ns: one rank's %" PRIu64 " and %" PRIu64
            " of communication that is exposed",
            overlap->step_ns, backward->step_ns, overlap->exposed_ns);
    if (!isnan(hidden))
        fprintf(out, ", of %" PRIu64 " (%.1f %% hidden)", overlap->communication_ns, hidden);
    fprintf(out,
            "\nthe backward ends after %" PRIu64 " ns\na rank sends %" PRIu64
            " bytes inside its node and %" PRIu64 " to others\n",
            backward->backward_ns, overlap->inside_nbytes, overlap->between_nbytes);
    fprintf(out,
            "at the peak a rank has %" PRIu64 " bytes; %s %" PRIu64 " bytes of optimizer state "
            "are %" PRIu64 "\n",
            peak, ranks->shard ? "sharded," : "with --shard-optimizer", overlap->state_nbytes,
            overlap->shard_nbytes);
    fprintf(out, "assumptions: " RANKS_ASSUMPTIONS "\n");
}

void ranks_report(session_t *session, const ranks_t *ranks, const cluster_t *cluster,
                  const backward_t *backward, const fy_plan_t *plan)
{
    overlap_t overlap;
    overlap_run(cluster, backward, ranks_bucket(ranks), ranks->shard, &overlap);
    /* the state is there during the whole step, so at its peak too */
    const uint64_t peak = plan->peak_live -
                          (ranks->shard ? overlap.state_nbytes - overlap.shard_nbytes : 0);
    sheet_t *buckets = list_buckets(&overlap);
    if (session->out)
        report_text(session->out, ranks, cluster, backward, &overlap, buckets, plan, peak);
    else
        report_json(&session->json, cluster, backward, &overlap, buckets, peak);
    sheet_destroy(buckets);
    overlap_free(&overlap);
}
