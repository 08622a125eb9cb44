/* The ways in which a model's training step keeps fewer bytes, each planned: a table of memory,
 * operations and model time, from which --recompute auto takes the fastest that fits, and one of
 * largest batches. Not here: one plan in detail (cmd_plan.c), choosing segments
 * (train/segments.c). */
#include "tools/cli/plan_models.h"

#include <string.h>

/* Segments: those of fy_model_options_t.recompute or .offload. */
static const struct {
    const char *name;
    int recompute, is_cheap, offload;
    bool is_fitted; /* with the segments of fy_segments_fit */
    bool is_fit;    /* in the table of largest batches */
} ways[] = {
    { "none", 0, 0, 0, false, true },
    { "cheap", 0, 1, 0, false, true },
    { "2", 2, 0, 0, false, false },
    { "4", 4, 0, 0, false, false },
    { "8", 8, 0, 0, false, false },
    { "sqrt", FY_RECOMPUTE_SQRT, 0, 0, false, true },
    { "uneven", 0, 0, 0, true, false },
    { "cheap,4", 4, 1, 0, false, false },
    { "cheap,sqrt", FY_RECOMPUTE_SQRT, 1, 0, false, true },
    { "cheap, uneven", 0, 1, 0, true, false },
    { "offload 4", 0, 0, 4, false, true },
    { "offload 8", 0, 0, 8, false, false },
    { "offload sqrt", 0, 0, FY_RECOMPUTE_SQRT, false, false },
    { "cheap, offload sqrt", 0, 1, FY_RECOMPUTE_SQRT, false, false },
};
enum { WAYS = sizeof ways / sizeof *ways };

typedef struct choice {
    bool exists;
    fy_plan_t plan;
    fy_segments_t segments; /* of a fitted way */
} choice_t;

static fy_model_options_t options_of(const fy_model_options_t *given, int way)
{
    fy_model_options_t options = *given;
    options.recompute = ways[way].recompute;
    options.recompute_cheap = ways[way].is_cheap;
    options.offload = ways[way].offload;
    options.nsegments = 0;
    options.segments = NULL;
    return options;
}

/* A model may have fewer segments than a way wants. */
static bool has_too_few_segments(fy_status_t status)
{
    return status == FY_STATUS_INVALID_ARGUMENT &&
           strstr(fy_error_get()->text, " segments; it has ") != NULL;
}

typedef struct trial {
    const plan_target_t *target;
    const fy_model_options_t *options;
} trial_t;

static fy_status_t try_step(fy_device_t *device, int64_t batch, void *user)
{
    const trial_t *trial = user;
    const plan_target_t *target = trial->target;
    fy_model_t *model;
    FY_TRY(target->open(device, trial->options, target->user, &model));
    const fy_status_t status = target->run(model, batch, target->user);
    fy_model_destroy(model);
    return status;
}

static fy_status_t plan_way(const plan_target_t *target, const fy_model_options_t *given, int way,
                            choice_t *out)
{
    const fy_model_options_t options = options_of(given, way);
    trial_t trial = { target, &options };
    *out = (choice_t){ .plan = FY_PLAN_INIT, .segments = FY_SEGMENTS_INIT };
    fy_status_t status;
    if (ways[way].is_fitted) {
        status = fy_segments_fit(target->device, target->open, target->run, target->user,
                                 target->batch, &options, &out->segments, &out->plan);
        out->exists = out->segments.count > 0;
    } else {
        status = fy_plan_step(target->device, try_step, &trial, target->batch, NULL, &out->plan);
        out->exists = status == FY_STATUS_OK;
    }
    return has_too_few_segments(status) ? FY_STATUS_OK : status;
}

/* ---- the table ---- */

static uint64_t saved_by(const fy_plan_t *plain, const fy_plan_t *plan)
{
    return plan->peak_live < plain->peak_live ? plain->peak_live - plan->peak_live : 0;
}

static void print_choices(FILE *out, const choice_t *choices, int best, int least)
{
    const fy_plan_t *plain = &choices[0].plan;
    fprintf(out, "  %-20s %16s %18s %16s %16s %14s\n", "recompute", "bytes saved", "flops added",
            "reserved", "page-locked", "step, ns");
    for (int i = 0; i < WAYS; i++) {
        const fy_plan_t *plan = &choices[i].plan;
        if (!choices[i].exists) continue;
        fprintf(out, "%c %-20s %16llu %18llu %16llu %16llu %14llu%s\n", i == best ? '*' : ' ',
                ways[i].name, (unsigned long long)saved_by(plain, plan),
                (unsigned long long)(plan->step_flops - plain->step_flops),
                (unsigned long long)plan->peak_reserved,
                (unsigned long long)plan->pinned_peak_reserved,
                (unsigned long long)plan->step_model_ns, plan->fits ? "" : "  does not fit");
    }
    if (best < 0) fprintf(out, "no row fits; '%s' reserves the least\n", ways[least].name);
    const choice_t *taken = &choices[best < 0 ? least : best];
    for (size_t i = 0; i < taken->segments.count; i++)
        fprintf(out, "%s%zu to %zu", i ? ", " : "computed again: layers ",
                taken->segments.segments[i].first, taken->segments.segments[i].end - 1);
    fputs(taken->segments.count ? "\n\n" : "\n", out);
}

static void write_choices(json_t *json, const choice_t *choices, int taken)
{
    const fy_plan_t *plain = &choices[0].plan;
    json_begin_array(json, "choices");
    for (int i = 0; i < WAYS; i++) {
        const choice_t *choice = &choices[i];
        if (!choice->exists) continue;
        json_begin_object(json, NULL);
        json_text(json, "recompute", ways[i].name);
        json_uint(json, "saved_bytes", saved_by(plain, &choice->plan));
        json_uint(json, "added_flops", choice->plan.step_flops - plain->step_flops);
        json_uint(json, "reserved_bytes", choice->plan.peak_reserved);
        json_uint(json, "pinned_bytes", choice->plan.pinned_peak_reserved);
        json_uint(json, "step_model_ns", choice->plan.step_model_ns);
        json_bool(json, "fits", choice->plan.fits);
        json_bool(json, "taken", i == taken);
        json_begin_array(json, "segments");
        for (size_t k = 0; k < choice->segments.count; k++) {
            json_begin_object(json, NULL);
            json_uint(json, "first_layer", choice->segments.segments[k].first);
            json_uint(json, "last_layer", choice->segments.segments[k].end - 1);
            json_end(json);
        }
        json_end(json);
        json_end(json);
    }
    json_end(json);
}

fy_status_t plan_choose(session_t *session, const plan_target_t *target,
                        const fy_model_options_t *given, fy_segments_t *segments,
                        fy_model_options_t *options, fy_plan_t *out_plan)
{
    choice_t choices[WAYS] = { 0 };
    int best = -1, least = 0;
    for (int i = 0; i < WAYS; i++) {
        if (ways[i].offload && !target->may_offload) continue;
        FY_TRY(plan_way(target, given, i, &choices[i]));
        const fy_plan_t *plan = &choices[i].plan;
        if (!choices[i].exists) continue;
        if (plan->peak_reserved < choices[least].plan.peak_reserved) least = i;
        if (plan->fits && (best < 0 || plan->step_model_ns < choices[best].plan.step_model_ns))
            best = i;
    }
    const int taken = best < 0 ? least : best;
    if (session->out)
        print_choices(session->out, choices, best, least);
    else
        write_choices(&session->json, choices, taken);
    *options = options_of(given, taken);
    *segments = choices[taken].segments;
    if (out_plan) *out_plan = choices[taken].plan;
    options->nsegments = segments->count;
    options->segments = segments->segments;
    return FY_STATUS_OK;
}

/* ---- largest batches ---- */

static fy_status_t fit_way(const char *device, const plan_model_t *model, plan_request_t *user,
                           int64_t most, int way, bool *out_exists, int64_t *out_batch)
{
    const fy_model_options_t *given = user->options, options = options_of(given, way);
    user->options = &options;
    *out_batch = 0;
    const fy_status_t status = fy_plan_fit(device, model->step, user, most, out_batch, NULL);
    user->options = given;
    *out_exists = !has_too_few_segments(status);
    const bool is_none = status == FY_STATUS_OUT_OF_MEMORY && fy_error_get()->oom;
    return is_none || !*out_exists ? FY_STATUS_OK : status;
}

fy_status_t plan_fit_all(session_t *session, const plan_model_t *model, plan_request_t *user,
                         int64_t most)
{
    enum { PRECISIONS = 2 };
    static const char *const names[PRECISIONS] = { "f32", "bf16" };
    const int precision = user->precision;
    fy_status_t status = FY_STATUS_OK;
    if (session->out)
        fprintf(session->out, "\nlargest batch\n  %-20s %12s %12s\n", "recompute", names[0],
                names[1]);
    else
        json_begin_array(&session->json, "largest");
    for (int i = 0; i < WAYS && status == FY_STATUS_OK; i++) {
        int64_t batch[PRECISIONS];
        bool exists = true;
        if (!ways[i].is_fit) continue;
        for (int k = 0; k < PRECISIONS && status == FY_STATUS_OK && exists; k++) {
            user->precision = k; /* of TRAIN_PRECISIONS */
            status = fit_way(session->common->device, model, user, most, i, &exists, &batch[k]);
        }
        if (status != FY_STATUS_OK || !exists) continue;
        if (session->out) {
            fprintf(session->out, "  %-20s %12lld %12lld\n", ways[i].name, (long long)batch[0],
                    (long long)batch[1]);
            continue;
        }
        json_begin_object(&session->json, NULL);
        json_text(&session->json, "recompute", ways[i].name);
        for (int k = 0; k < PRECISIONS; k++) json_int(&session->json, names[k], batch[k]);
        json_end(&session->json);
    }
    if (!session->out) json_end(&session->json);
    user->precision = precision;
    return status;
}
