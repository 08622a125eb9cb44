/* Where the segments of activation checkpointing and offloading end: after leaves whose result is
 * all that later ones read: where the caller says, or so that the results of the segments are about
 * equally large.
 * Not here: running them (model_run.c). */
#include "model.h"

#include <math.h>
#include <stdlib.h>

/* Whether a segment cannot end before the leaf `end`: a leaf from there on reads one before
 * `end` - 1, or a span of fy_layer_checkpoint goes on. */
static int reads_across(const fy_model_t *model, size_t end)
{
    const size_t last = end - 1;
    if (model->leaves[last].is_fused) return 1;
    for (size_t i = 0; i < model->nspans; i++)
        if (model->spans[i].first < end && end < model->spans[i].end) return 1;
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

/* Makes spans of `count` segments; those of layers are inside. */
static fy_status_t add_spans(fy_model_t *model, size_t count, const fy_segment_t *segments)
{
    size_t total = 0, next = 0;
    fyt_span_t *spans = calloc(model->nspans + count, sizeof *spans);
    if (!spans)
        return FYT_FAIL(OUT_OF_MEMORY, "model '%s': no host memory for %zu segments", model->name,
                        count);
    for (size_t i = 0; i < count; i++) {
        const size_t first = segments[i].first, end = segments[i].end;
        while (next < model->nspans && model->spans[next].first < first)
            spans[total++] = model->spans[next++];
        /* a layer that already is the segment does not run a third time */
        if (next < model->nspans && model->spans[next].first == first &&
            model->spans[next].end == end)
            continue;
        spans[total++] = (fyt_span_t){ first, end, first ? first - 1 : FYT_MODEL_INPUT };
    }
    while (next < model->nspans) spans[total++] = model->spans[next++];
    free(model->spans);
    model->spans = spans;
    model->nspans = total;
    return FY_STATUS_OK;
}

/* ---- given segments ---- */

int fyt_model_is_place(const fy_model_t *model, size_t end)
{
    return end == 0 || end == model->nleaves || (end < model->nleaves && !reads_across(model, end));
}

static fy_status_t add_given(fy_model_t *model, const fy_model_options_t *options)
{
    size_t before = 0;
    if (!options->segments || options->recompute || options->offload)
        return FYT_FAIL(INVALID_ARGUMENT, "model '%s': %zu segments are given, %s", model->name,
                        options->nsegments,
                        options->segments ? "and recompute or offload: one of them"
                                          : "but segments is NULL");
    for (size_t i = 0; i < options->nsegments; i++) {
        const fy_segment_t *segment = &options->segments[i];
        if (segment->first < before || segment->end <= segment->first ||
            segment->end > model->nleaves)
            return FYT_FAIL(INVALID_ARGUMENT,
                            "model '%s': segment %zu is from layer %zu to before %zu; segments are "
                            "in order, each with a layer, and there are %zu layers",
                            model->name, i, segment->first, segment->end, model->nleaves);
        before = segment->end;
        for (int k = 0; k < 2; k++) {
            size_t place = k ? segment->end : segment->first;
            if (fyt_model_is_place(model, place)) continue;
            const size_t wrong = place;
            while (!fyt_model_is_place(model, place)) place++;
            return FYT_FAIL(INVALID_ARGUMENT,
                            "model '%s': segment %zu cannot %s layer %zu ('%s'): layers behind it "
                            "read more than one result; the next place is before layer %zu",
                            model->name, i, k ? "end before" : "begin with", wrong,
                            model->leaves[wrong].name, place);
        }
    }
    return add_spans(model, options->nsegments, options->segments);
}

/* ---- so many of about equal results ---- */

/* The segments become spans. */
static fy_status_t recompute_all(fy_model_t *model)
{
    fy_segment_t *segments = calloc(model->nends, sizeof *segments);
    if (!segments)
        return FYT_FAIL(OUT_OF_MEMORY, "model '%s': no host memory for %zu segments", model->name,
                        model->nends);
    for (size_t i = 0; i < model->nends; i++)
        segments[i] = (fy_segment_t){ i ? model->ends[i - 1] + 1 : 0, model->ends[i] + 1 };
    const fy_status_t status = add_spans(model, model->nends, segments);
    free(segments);
    model->nends = 0;
    return status;
}

fy_status_t fyt_model_cut(fy_model_t *model, const fy_model_options_t *options)
{
    if (options->nsegments) return add_given(model, options);
    const int recompute = options->offload ? options->offload : options->recompute;
    const char *option = options->offload ? "offload" : "recompute";
    double total = 0, sum = 0;
    size_t places = 0;
    if (options->offload && options->recompute)
        return FYT_FAIL(INVALID_ARGUMENT,
                        "model '%s': recompute and offload are both set; segments are one or the "
                        "other, so leave one of them out",
                        model->name);
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
    return options->offload || !model->nends ? FY_STATUS_OK : recompute_all(model);
}
