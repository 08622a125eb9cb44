/* Where the segments of activation checkpointing and offloading end: after leaves whose result is
 * all that later ones read, so that the results of the segments are about equally large.
 * Not here: running them (model_run.c). */
#include "model.h"

#include <math.h>
#include <stdlib.h>

/* The last leaf before `end` that a leaf from `end` on reads besides `end` - 1; whether there is
 * one. */
static int reads_across(const fy_model_t *model, size_t end)
{
    const size_t last = end - 1;
    if (model->leaves[last].is_fused) return 1;
    for (size_t i = end; i < model->nleaves; i++) {
        const fyt_leaf_t *leaf = &model->leaves[i];
        for (size_t k = 0; k < leaf->ninputs; k++) {
            const size_t from = model->inputs[leaf->first_input + k];
            if (from == FYT_MODEL_INPUT || from < last) return 1;
        }
    }
    return 0;
}

static double result_nelem(const fyt_leaf_t *leaf)
{
    double nelem = leaf->is_fused ? 0 : 1;
    for (int i = 0; i < leaf->rank; i++) nelem *= (double)leaf->dims[i];
    return nelem;
}

fy_status_t fyt_model_cut(fy_model_t *model, const fy_model_options_t *options)
{
    const int recompute = options->offload ? options->offload : options->recompute;
    const char *option = options->offload ? "offload" : "recompute";
    double total = 0, sum = 0;
    size_t places = 0;
    if (options->offload && options->recompute)
        return FYT_FAIL(INVALID_ARGUMENT,
                        "model '%s': recompute is %d and offload %d; segments are one or the other",
                        model->name, options->recompute, options->offload);
    if (recompute < FY_RECOMPUTE_SQRT)
        return FYT_FAIL(INVALID_ARGUMENT,
                        "model '%s': %s is %d; a number of segments, or FY_RECOMPUTE_SQRT",
                        model->name, option, recompute);
    if (recompute == 0 || recompute == 1) return FY_STATUS_OK;
    for (size_t i = 0; i < model->nleaves; i++) total += result_nelem(&model->leaves[i]);
    for (size_t end = 1; end < model->nleaves; end++) places += !reads_across(model, end);
    size_t segments = recompute == FY_RECOMPUTE_SQRT ? (size_t)lround(sqrt((double)places + 1))
                                                     : (size_t)recompute;
    if (segments > places + 1)
        return FYT_FAIL(INVALID_ARGUMENT,
                        "model '%s': %s asks for %zu segments; it has %zu at most", model->name,
                        option, segments, places + 1);
    model->ends = calloc(segments, sizeof *model->ends);
    if (!model->ends)
        return FYT_FAIL(OUT_OF_MEMORY, "model '%s': no host memory for %zu segments", model->name,
                        segments);
    for (size_t end = 1; end < model->nleaves && model->nends + 1 < segments; end++) {
        sum += result_nelem(&model->leaves[end - 1]);
        if (reads_across(model, end)) continue;
        /* as many places must be left as segments */
        const int is_due = sum >= total * (double)(model->nends + 1) / (double)segments;
        if (is_due || places == segments - 1 - model->nends) model->ends[model->nends++] = end - 1;
        places--;
    }
    return FY_STATUS_OK;
}
