/* A GPT (Radford et al. 2019): a decoder of transformer blocks with learned positions and a head
 * that shares the weights of the token embedding. Parameters are named as in nanoGPT's state
 * dicts. */
#include "models.h"

#include <math.h>
#include <stdio.h>

enum { MAX_LAYERS = 128 };

static const fy_init_t small = { FY_INIT_NORMAL, 0.02 }, zero = { FY_INIT_CONSTANT, 0 };

/* The weights of projections that are added to the residual stream are drawn smaller, by the square
 * root of the number of such sums. */
static fy_init_t residual_init(int64_t layers)
{
    return (fy_init_t){ FY_INIT_NORMAL, 0.02 / sqrt(2.0 * (double)layers) };
}

static fy_layer_t *block(int64_t width, int64_t heads, int64_t layers)
{
    fy_layer_t *layer;
    fy_transformer_options_t options = FY_TRANSFORMER_OPTIONS_INIT;
    options.is_causal = 1;
    options.weight = small;
    options.bias = zero;
    options.proj_weight = residual_init(layers);
    return fyt_made(fy_layer_transformer_block(width, heads, &options, &layer), &layer);
}

static fy_layer_t *embedding(fy_status_t (*make)(int64_t, int64_t, const fy_embedding_options_t *,
                                                 fy_layer_t **),
                             int64_t count, int64_t width)
{
    fy_layer_t *layer;
    fy_embedding_options_t options = FY_EMBEDDING_OPTIONS_INIT;
    options.weight = small;
    return fyt_made(make(count, width, &options, &layer), &layer);
}

/* layers, heads, width, context, vocab */
fy_status_t fyt_make_gpt(const int64_t *options, fy_layer_t **out_layer)
{
    const int64_t layers = options[0], heads = options[1], width = options[2];
    const int64_t context = options[3], vocab = options[4];
    char names[MAX_LAYERS][4];
    fy_layer_child_t blocks[MAX_LAYERS];
    fy_layer_t *head;
    if (width % heads)
        return FYT_FAIL(INVALID_ARGUMENT, "model 'gpt': heads=%lld does not divide width=%lld",
                        (long long)heads, (long long)width);
    for (int i = 0; i < layers; i++) {
        snprintf(names[i], sizeof names[i], "%d", i);
        blocks[i] = (fy_layer_child_t){ names[i], block(width, heads, layers) };
    }
    const fy_layer_child_t transformer[] = {
        { "wte", embedding(fy_layer_embedding, vocab, width) },
        { "wpe", embedding(fy_layer_position_embedding, context, width) },
        { "h", fyt_sequence((size_t)layers, blocks) },
        { "ln_f", fyt_norm(width, 1e-5) },
    };
    const fy_status_t status = fy_layer_tied_linear(width, vocab, "transformer.wte.weight", &head);
    const fy_layer_child_t children[] = {
        { "transformer", fyt_sequence(FYT_COUNT(transformer), transformer) },
        { "lm_head", status == FY_STATUS_OK ? head : NULL },
    };
    return FYT_SEQUENTIAL(children, out_layer);
}
