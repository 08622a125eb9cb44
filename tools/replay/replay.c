/* One trace, one policy: see replay.h. */
#include "tools/replay/replay.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/cli/tool.h"

fy_pool_options_t replay_options(const char *pool)
{
    const fy_pool_options_t device = FY_POOL_OPTIONS_INIT, pinned = FY_POOL_OPTIONS_PINNED;
    fy_pool_options_t host = device;
    host.alignment = 64;
    host.segment_nbytes = 4u << 20;
    if (strcmp(pool, "host") == 0) return host;
    return strncmp(pool, "pinned", 6) == 0 ? pinned : device;
}

static void note_refusal(replay_result_t *result, const trace_t *trace, size_t i, uint64_t live)
{
    const fy_error_t *error = fy_error_get();
    if (result->refusals++) return;
    /* "plain pool 1: ...", "pytorch: ..." */
    const char *text = error->oom ? error->oom->text : error->text, *said = strchr(text, ':');
    result->refused_step = i + 1;
    result->refused_nbytes = trace->steps[i].nbytes;
    result->refused_live = live;
    result->refused_scope = trace->scopes[trace->steps[i].scope];
    snprintf(result->refused_text, sizeof result->refused_text, "%s%s", said ? trace->pool : "",
             said ? said : text);
}

/* What the policy holds right now, which is the trace's peak. */
static void look(replay_result_t *result, const pool_policy_t *policy, const void *pool)
{
    pool_figures_t figures;
    policy->query(pool, &figures);
    const uint64_t free_nbytes = figures.reserved - figures.live;
    result->peak_live = figures.live;
    result->fragmentation = free_nbytes ? 1 - (double)figures.largest_free / (double)free_nbytes
                                        : 0;
}

fy_status_t replay_run(const trace_t *trace, const pool_policy_t *policy,
                       const fy_pool_options_t *options, replay_result_t *out_result)
{
    replay_result_t result = { .refused_scope = "" };
    pool_figures_t figures;
    uint64_t live = 0;
    void *pool = policy->create(options);
    if (!pool) return fy_error_get()->status;
    struct {
        void *token;
        uint64_t nbytes;
    } *blocks = tool_alloc((trace->nblocks + 1) * sizeof *blocks);
    for (size_t i = 0; i < trace->nsteps; i++) {
        const trace_step_t *step = &trace->steps[i];
        if (step->nbytes) {
            void *token = blocks[step->block].token =
                policy->take_on ? policy->take_on(pool, step->nbytes, step->stream)
                                : policy->take(pool, step->nbytes);
            blocks[step->block].nbytes = step->nbytes;
            if (token)
                live += step->nbytes;
            else
                note_refusal(&result, trace, i, live);
        } else if (step->block == TRACE_NO_BLOCK) {
            if (policy->reach) policy->reach(pool, trace->points[step->points]);
        } else if (blocks[step->block].token) {
            if (policy->give_after)
                policy->give_after(pool, blocks[step->block].token,
                                   step->npoints ? &trace->points[step->points] : NULL,
                                   step->npoints);
            else
                policy->give(pool, blocks[step->block].token);
            blocks[step->block].token = NULL;
            live -= blocks[step->block].nbytes;
        }
        if (i + 1 == trace->peak_step) look(&result, policy, pool);
    }
    policy->query(pool, &figures);
    result.peak_reserved = figures.peak_reserved;
    result.segments = figures.segments;
    result.reserved_per_peak = result.waste = NAN;
    if (trace->peak && !result.refusals) { /* a peak that was not reached compares with nothing */
        result.reserved_per_peak = (double)figures.peak_reserved / (double)trace->peak;
        result.waste =
            figures.peak_reserved ? 1 - (double)trace->peak / (double)figures.peak_reserved : 0;
    }
    for (size_t i = 0; i < trace->nblocks; i++)
        if (blocks[i].token) policy->give(pool, blocks[i].token);
    policy->destroy(pool);
    free(blocks);
    *out_result = result;
    return FY_STATUS_OK;
}
