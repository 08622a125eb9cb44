/* A block of a transformer, made of other layers: two residuals, each with its norm first.
 * Next: layer_attention.c, layer_containers.c. */
#include "models.h"
#include "train/abi.h"

/* The makers give NULL if they fail; a container of NULL fails and keeps their text. */

static fy_layer_t *attention(int64_t width, int64_t heads, const fy_transformer_options_t *own,
                             const fyt_block_style_t *style)
{
    fy_layer_t *layer;
    fy_attention_options_t options = FY_ATTENTION_OPTIONS_INIT;
    options.is_causal = own->is_causal;
    options.weight = own->weight;
    options.bias = own->bias;
    options.proj_weight = own->proj_weight;
    return fyt_made(
        fyt_attention(width, heads, &options, style->attention_in, style->attention_out, &layer),
        &layer);
}

static fy_layer_t *mlp(int64_t width, const fy_transformer_options_t *own,
                       const fyt_block_style_t *style)
{
    const fyt_style_t in = { FY_ACTIVATION_NONE, own->weight, own->bias, 0 },
                      out = { FY_ACTIVATION_NONE, own->proj_weight, own->bias, 0 };
    const fy_layer_child_t children[] = {
        { style->mlp_in, fyt_linear(width, own->hidden, in) },
        { "gelu", fyt_op(own->is_exact_gelu ? "gelu" : "gelu_tanh") },
        { style->mlp_out, fyt_linear(own->hidden, width, out) },
    };
    return fyt_sequence(FYT_COUNT(children), children);
}

/* x + part(norm(x)) */
static fy_layer_t *residual(const char *norm_name, const char *name, int64_t width, double eps,
                            fy_layer_t *part)
{
    fy_layer_t *layer;
    const fy_layer_child_t body[] = { { norm_name, fyt_norm(width, eps) }, { name, part } };
    return fyt_made(
        fy_layer_residual(fyt_sequence(FYT_COUNT(body), body), NULL, FY_ACTIVATION_NONE, &layer),
        &layer);
}

fy_status_t fy_layer_transformer_block(int64_t width, int64_t heads,
                                       const fy_transformer_options_t *options,
                                       fy_layer_t **out_layer)
{
    static const fyt_block_style_t style = { "ln_1", "attn", "c_attn", "c_proj", "ln_2",
                                             "mlp",  "c_fc", "c_proj", 1e-5 };
    fy_transformer_options_t own;
    if (out_layer) *out_layer = NULL;
    FY_TRY(FY__READ(transformer_options, "layer_transformer_block", options, &own));
    return fyt_transformer_block(width, heads, own, &style, out_layer);
}

fy_status_t fyt_transformer_block(int64_t width, int64_t heads, fy_transformer_options_t own,
                                  const fyt_block_style_t *style, fy_layer_t **out_layer)
{
    FY_TRY(fyt_heads_check("layer_transformer_block", width, heads));
    if (own.hidden < 0)
        return FYT_FAIL(INVALID_ARGUMENT,
                        "layer_transformer_block: hidden is %lld; 0 (4 times the width) or more",
                        (long long)own.hidden);
    if (!own.hidden) own.hidden = 4 * width;
    const fy_layer_child_t children[] = {
        { "", residual(style->norm_1, style->attention, width, style->eps,
                       attention(width, heads, &own, style)) },
        { "", residual(style->norm_2, style->mlp, width, style->eps, mlp(width, &own, style)) },
    };
    return FYT_SEQUENTIAL(children, out_layer);
}
