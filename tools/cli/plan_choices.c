/* The ways in which a model's training step keeps fewer bytes, each planned: a table of memory and
 * model time, from which --recompute auto takes the fastest that fits, and one of largest batches.
 * Not here: one plan in detail (cmd_plan.c). */
#include "tools/cli/plan_choices.h"

#include <string.h>

/* Segments: those of fy_model_options_t.recompute or .offload. */
static const struct {
    const char *name;
    int recompute, is_cheap, offload;
    /* in the table of largest batches: not offloading, whose plan takes its page-locked bytes on
     * this machine, too */
    bool is_fit;
} ways[] = {
    { "none", 0, 0, 0, true },
    { "cheap", 0, 1, 0, true },
    { "2", 2, 0, 0 },
    { "4", 4, 0, 0 },
    { "8", 8, 0, 0 },
    { "sqrt", FY_RECOMPUTE_SQRT, 0, 0, true },
    { "cheap,4", 4, 1, 0 },
    { "cheap,sqrt", FY_RECOMPUTE_SQRT, 1, 0, true },
    { "offload 4", 0, 0, 4 },
    { "offload 8", 0, 0, 8 },
    { "offload sqrt", 0, 0, FY_RECOMPUTE_SQRT },
    { "cheap, offload sqrt", 0, 1, FY_RECOMPUTE_SQRT },
};
enum { WAYS = sizeof ways / sizeof *ways };

static fy_model_options_t options_of(const fy_model_options_t *given, int way)
{
    fy_model_options_t options = *given;
    options.recompute = ways[way].recompute;
    options.recompute_cheap = ways[way].is_cheap;
    options.offload = ways[way].offload;
    return options;
}

/* A model may have fewer segments than a way wants. */
static bool has_too_few_segments(fy_status_t status)
{
    return status == FY_STATUS_INVALID_ARGUMENT &&
           strstr(fy_error_get()->text, " segments; it has ") != NULL;
}

static fy_status_t plan_all(const char *device, const plan_model_t *model, plan_request_t *user,
                            int64_t batch, bool may_offload, fy_plan_t *out_plans, bool *out_exists)
{
    const fy_model_options_t given = *user->options;
    fy_status_t status = FY_STATUS_OK;
    for (int i = 0; i < WAYS && status == FY_STATUS_OK; i++) {
        const fy_model_options_t options = options_of(&given, i);
        if (options.offload && !may_offload) continue;
        user->options = &options;
        out_plans[i] = (fy_plan_t)FY_PLAN_INIT;
        status = fy_plan_step(device, model->step, user, batch, NULL, &out_plans[i]);
        out_exists[i] = status == FY_STATUS_OK;
        if (has_too_few_segments(status) || (options.offload && status == FY_STATUS_OUT_OF_MEMORY))
            status = FY_STATUS_OK;
    }
    return status;
}

/* Its figures are those of a run that ended at the limit of page-locked memory. */
static bool is_cut_off(const fy_plan_t *plan)
{
    return !plan->fits && plan->verdict.status == FY_STATUS_PINNED_LIMIT;
}

fy_status_t plan_choose(const char *device, const plan_model_t *model, plan_request_t *user,
                        int64_t batch, bool may_offload, FILE *out, fy_model_options_t *options)
{
    fy_plan_t plans[WAYS];
    bool exists[WAYS] = { false };
    int best = -1, least = 0;
    const fy_model_options_t *given = user->options;
    const fy_status_t status = plan_all(device, model, user, batch, may_offload, plans, exists);
    user->options = given;
    FY_TRY(status);
    for (int i = 0; i < WAYS; i++) {
        if (!exists[i]) continue;
        if (!is_cut_off(&plans[i]) && plans[i].peak_reserved < plans[least].peak_reserved)
            least = i;
        if (plans[i].fits && (best < 0 || plans[i].step_model_ns < plans[best].step_model_ns))
            best = i;
    }
    if (out) {
        fprintf(out, "  %-20s %16s %16s %16s %14s\n", "recompute", "activations", "reserved",
                "page-locked", "step, ns");
        for (int i = 0; i < WAYS; i++)
            if (exists[i])
                fprintf(out, "%c %-20s %16llu %16llu %16llu %14llu%s\n", i == best ? '*' : ' ',
                        ways[i].name,
                        (unsigned long long)plans[i].peak_by_category[FY_CATEGORY_ACTIVATIONS],
                        (unsigned long long)plans[i].peak_reserved,
                        (unsigned long long)plans[i].pinned_peak_reserved,
                        (unsigned long long)plans[i].step_model_ns,
                        plans[i].fits           ? ""
                        : is_cut_off(&plans[i]) ? "  until page-locked memory is full"
                                                : "  does not fit");
        if (best < 0) fprintf(out, "none fits; %s reserves the least\n", ways[least].name);
        fputc('\n', out);
    }
    *options = options_of(given, best < 0 ? least : best);
    return FY_STATUS_OK;
}

fy_status_t plan_fit_all(const char *device, const plan_model_t *model, plan_request_t *user,
                         int64_t most, FILE *out)
{
    const fy_model_options_t *given = user->options;
    fy_status_t status = FY_STATUS_OK;
    fprintf(out, "\n  %-20s %16s\n", "recompute", "largest batch");
    for (int i = 0; i < WAYS && status == FY_STATUS_OK; i++) {
        const fy_model_options_t options = options_of(given, i);
        int64_t batch = 0;
        if (!ways[i].is_fit) continue;
        user->options = &options;
        status = fy_plan_fit(device, model->step, user, most, &batch, NULL);
        const bool is_none = status == FY_STATUS_OUT_OF_MEMORY && fy_error_get()->oom;
        const bool is_missing = has_too_few_segments(status);
        if (is_none || is_missing) status = FY_STATUS_OK;
        if (status == FY_STATUS_OK && !is_missing)
            fprintf(out, "  %-20s %16lld\n", ways[i].name, (long long)batch);
    }
    user->options = given;
    return status;
}
