/* Each finding is a change of the recorded program (tools/program/change.h). */
#include "tools/advise/advice.h"

#include <stdlib.h>

#include "tools/advise/rules.h"
#include "tools/cli/tool.h"

static change_t change_of(const finding_t *finding)
{
    return (change_t){ .kind = finding->rule->change,
                       .steps = finding->rule->steps,
                       .events = finding->events,
                       .nevents = finding->nevents,
                       .costs = finding->costs,
                       .ncosts = finding->ncosts,
                       .begins = finding->begins };
}

/* What the changed program saves in the measured part. */
static fy_status_t saved_by(const advice_t *advice, const schedule_t *schedule,
                            const figures_t *machines, const change_t *changes, size_t count,
                            int64_t *out_ns)
{
    proof_t proof;
    FY_TRY(change_prove(schedule, advice->facts, machines, changes, count, &proof));
    *out_ns = (int64_t)proof.before.steps_ns - (int64_t)proof.after.steps_ns;
    return FY_STATUS_OK;
}

static fy_status_t prove_each(advice_t *advice, const schedule_t *schedule,
                              const figures_t *machines)
{
    for (size_t i = 0; i < advice->nfindings; i++) {
        finding_t *finding = &advice->findings[i];
        const change_t change = change_of(finding);
        if (change.kind == CHANGE_NONE) continue;
        FY_TRY(saved_by(advice, schedule, machines, &change, 1, &finding->measured_ns));
        finding->has_measured = true;
    }
    return FY_STATUS_OK;
}

static fy_status_t prove_all(advice_t *advice, const schedule_t *schedule,
                             const figures_t *machines)
{
    change_t *changes = tool_alloc((advice->nfindings + 1) * sizeof *changes);
    for (size_t i = 0; i < advice->nfindings; i++) changes[i] = change_of(&advice->findings[i]);
    const fy_status_t status =
        saved_by(advice, schedule, machines, changes, advice->nfindings, &advice->together_ns);
    advice->has_together = status == FY_STATUS_OK;
    free(changes);
    return status;
}

fy_status_t prove(advice_t *advice)
{
    const program_t *p = advice->facts->program;
    figures_t *machines = NULL;
    schedule_t schedule = { .nacts = 0 };
    fy_status_t status = predict_machines(p, NULL, &machines);
    if (status == FY_STATUS_OK) status = schedule_build(p, machines, &schedule);
    if (status == FY_STATUS_OK) status = prove_each(advice, &schedule, machines);
    if (status == FY_STATUS_OK) status = prove_all(advice, &schedule, machines);
    schedule_free(&schedule);
    free(machines);
    return status;
}
