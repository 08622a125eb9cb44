/* A block of a transformer, made of other layers: two residuals, each with its norm first.
 * Next: layer_attention.c, layer_containers.c. */
#include "layer.h"
#include "train/abi.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* The makers give NULL if they fail; a container of NULL fails and keeps their text. */

static fy_layer_t *norm(int64_t width, double eps)
{
    fy_layer_t *layer;
    fy_layer_norm_options_t options = FY_LAYER_NORM_OPTIONS_INIT;
    options.eps = eps;
    return fy_layer_layer_norm(width, &options, &layer) == FY_STATUS_OK ? layer : NULL;
}

static fy_layer_t *attention(int64_t width, int64_t heads, const fy_transformer_options_t *own,
                             const fyt_block_style_t *style)
{
    fy_layer_t *layer;
    fy_attention_options_t options = FY_ATTENTION_OPTIONS_INIT;
    options.is_causal = own->is_causal;
    options.weight = own->weight;
    options.bias = own->bias;
    options.proj_weight = own->proj_weight;
    return fyt_attention(width, heads, &options, style->attention_in, style->attention_out,
                         &layer) == FY_STATUS_OK
               ? layer
               : NULL;
}

static fy_layer_t *linear(int64_t in, int64_t out, fy_init_t weight, fy_init_t bias)
{
    fy_layer_t *layer;
    fy_linear_options_t options = FY_LINEAR_OPTIONS_INIT;
    options.weight = weight;
    options.bias = bias;
    return fy_layer_linear(in, out, &options, &layer) == FY_STATUS_OK ? layer : NULL;
}

static fy_layer_t *gelu(int is_exact)
{
    fy_layer_t *layer;
    return fy_layer_op(is_exact ? "gelu" : "gelu_tanh", &layer) == FY_STATUS_OK ? layer : NULL;
}

static fy_layer_t *sequence(size_t count, const fy_layer_child_t *children)
{
    fy_layer_t *layer;
    return fy_layer_sequential(count, children, &layer) == FY_STATUS_OK ? layer : NULL;
}

static fy_layer_t *mlp(int64_t width, const fy_transformer_options_t *own,
                       const fyt_block_style_t *style)
{
    const fy_layer_child_t children[] = {
        { style->mlp_in, linear(width, own->hidden, own->weight, own->bias) },
        { "gelu", gelu(own->is_exact_gelu) },
        { style->mlp_out, linear(own->hidden, width, own->proj_weight, own->bias) },
    };
    return sequence(COUNT(children), children);
}

/* x + part(norm(x)) */
static fy_layer_t *residual(const char *norm_name, const char *name, int64_t width, double eps,
                            fy_layer_t *part)
{
    fy_layer_t *layer;
    const fy_layer_child_t body[] = { { norm_name, norm(width, eps) }, { name, part } };
    return fy_layer_residual(sequence(COUNT(body), body), NULL, FY_ACTIVATION_NONE, &layer) ==
                   FY_STATUS_OK
               ? layer
               : NULL;
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
    return fy_layer_sequential(COUNT(children), children, out_layer);
}
