/* A vision transformer (Dosovitskiy et al. 2021) in the size of DeiT-Ti (Touvron et al. 2021):
 * patches as tokens, a class token, learned positions, blocks whose norms come first, a head on the
 * class token. Parameters are named as in timm's state dicts; the patch embedding's [O, I, H, W]
 * is [O, H, W, I] here. */
#include "models.h"

#include <stdio.h>

enum { WIDTH = 192, HEADS = 3, MAX_LAYERS = 128 };

static const double EPS = 1e-6;
static const fyt_style_t small = {
    FY_ACTIVATION_NONE, { FY_INIT_NORMAL, 0.02 }, { FY_INIT_CONSTANT, 0 }, 0
};

static fy_layer_t *block(void)
{
    static const fyt_block_style_t names = { "norm1", "attn", "qkv", "proj", "norm2",
                                             "mlp",   "fc1",  "fc2", EPS };
    fy_layer_t *layer;
    fy_transformer_options_t options = FY_TRANSFORMER_OPTIONS_INIT;
    options.is_exact_gelu = 1;
    options.weight = options.proj_weight = small.weight;
    options.bias = small.bias;
    return fyt_made(fyt_transformer_block(WIDTH, HEADS, options, &names, &layer), &layer);
}

static fy_layer_t *class_token(void)
{
    fy_layer_t *layer;
    fy_embedding_options_t options = FY_EMBEDDING_OPTIONS_INIT;
    options.weight = small.weight;
    return fyt_made(fy_layer_class_token(WIDTH, &options, &layer), &layer);
}

static fy_layer_t *positions(int64_t count)
{
    fy_layer_t *layer;
    return fyt_made(fyt_position_embedding("pos_embed", count, WIDTH, small.weight, &layer),
                    &layer);
}

static fy_layer_t *first_token(void)
{
    fy_layer_t *layer;
    return fyt_made(fy_layer_select(1, 0, &layer), &layer);
}

/* channels, classes, size, patch, layers */
fy_status_t fyt_make_vit_tiny(const int64_t *options, fy_layer_t **out_layer)
{
    const int64_t size = options[2], patch = options[3], layers = options[4];
    char names[MAX_LAYERS][4];
    fy_layer_child_t blocks[MAX_LAYERS];
    if (size % patch)
        return FYT_FAIL(INVALID_ARGUMENT, "model 'vit_tiny': patch=%lld does not divide size=%lld",
                        (long long)patch, (long long)size);
    for (int i = 0; i < layers; i++) {
        snprintf(names[i], sizeof names[i], "%d", i);
        blocks[i] = (fy_layer_child_t){ names[i], block() };
    }
    const fy_layer_child_t patch_embed[] = {
        { "proj", fyt_conv(options[0], WIDTH, (int)patch, (int)patch, 1, 0, small) },
    };
    /* The norm is of rows, so that only the class token needs it. */
    const fy_layer_child_t children[] = {
        { "patch_embed", fyt_sequence(FYT_COUNT(patch_embed), patch_embed) },
        { "", class_token() },
        { "", positions(size / patch * (size / patch) + 1) },
        { "blocks", fyt_sequence((size_t)layers, blocks) },
        { "", first_token() },
        { "norm", fyt_norm(WIDTH, EPS) },
        { "head", fyt_linear(WIDTH, options[1], small) },
    };
    return FYT_SEQUENTIAL(children, out_layer);
}
