/* Attention of several heads (Vaswani et al. 2017) as a sequence of three layers: the projection to
 * queries, keys and values, the attention itself, which has no parameters, and the projection of
 * its result. */
#include "models.h"
#include "opset/formulas/attention.h"
#include "train/abi.h"

#include <stdlib.h>

typedef struct heads {
    int64_t width, heads;
    int is_causal;
} heads_t;

static fy_status_t attend_shape(void *user, int rank, const int64_t *dims, int *out_rank,
                                int64_t *out_dims, uint64_t *out_macs)
{
    const heads_t *a = user;
    char text[FYT_SHAPE_TEXT];
    if (rank != 3 || dims[2] != 3 * a->width)
        return FYT_FAIL(SHAPE_MISMATCH, "it expects [n, T, %lld] and would get %s",
                        (long long)(3 * a->width), fyt_shape_text(text, rank, dims));
    *out_rank = 3;
    out_dims[0] = dims[0];
    out_dims[1] = dims[1];
    out_dims[2] = a->width;
    *out_macs = 2 * (uint64_t)(dims[0] * dims[1]) * (uint64_t)dims[1] * (uint64_t)a->width;
    return FY_STATUS_OK;
}

static fy_status_t attend_forward(void *user, const fy_pass_t *pass, fy_tensor_t *const *params,
                                  fy_tensor_t *x, fy_tensor_t **out_y)
{
    const heads_t *a = user;
    const fy_attention_attrs_t attrs = { 0, a->is_causal };
    fy_tensor_info_t info = FY_TENSOR_INFO_INIT;
    fy_tensor_t *parts, *q, *k, *v, *heads;
    (void)pass, (void)params;
    FY_TRY(fy_tensor_query(x, &info));
    const int64_t n = info.dims[0], length = info.dims[1];
    FY_TRY(fy_reshape(x, FY_DIMS(n, length, 3, a->heads, a->width / a->heads), &parts));
    FY_TRY(fyt_select(parts, 2, 0, &q));
    FY_TRY(fyt_select(parts, 2, 1, &k));
    FY_TRY(fyt_select(parts, 2, 2, &v));
    FY_TRY(fy_scaled_dot_product_attention(q, k, v, NULL, &attrs, &heads, NULL));
    return fy_reshape(heads, FY_DIMS(n, length, a->width), out_y);
}

/* The layer between the projections. */
static fy_layer_t *make_core(const heads_t *settings)
{
    fy_layer_t *layer;
    const fy_layer_def_t def = { sizeof def,   "attention",    0,   NULL,
                                 attend_shape, attend_forward, free };
    return fyt_made(fyt_layer_create(&def, settings, sizeof *settings, &layer), &layer);
}

fy_status_t fyt_heads_check(const char *call, int64_t width, int64_t heads)
{
    const int64_t most = INT64_MAX / 4; /* of which a block computes the fourfold */
    if (width < 1 || heads < 1)
        return FYT_FAIL(INVALID_ARGUMENT, "%s: width %lld, heads %lld; both must be 1 or more",
                        call, (long long)width, (long long)heads);
    if (width > most)
        return FYT_FAIL(INVALID_ARGUMENT, "%s: width %lld; it is at most %lld", call,
                        (long long)width, (long long)most);
    if (width % heads)
        return FYT_FAIL(INVALID_ARGUMENT, "%s: %lld heads do not divide width %lld", call,
                        (long long)heads, (long long)width);
    return FY_STATUS_OK;
}

fy_status_t fy_layer_attention(int64_t width, int64_t heads, const fy_attention_options_t *options,
                               fy_layer_t **out_layer)
{
    fy_attention_options_t own;
    if (out_layer) *out_layer = NULL;
    FY_TRY(FY__READ(attention_options, "layer_attention", options, &own));
    return fyt_attention(width, heads, &own, "c_attn", "c_proj", out_layer);
}

fy_status_t fyt_attention(int64_t width, int64_t heads, const fy_attention_options_t *own,
                          const char *in_name, const char *out_name, fy_layer_t **out_layer)
{
    FY_TRY(fyt_heads_check("layer_attention", width, heads));
    if (width / heads > FY__ATTENTION_WIDTH)
        return FYT_FAIL(INVALID_ARGUMENT,
                        "layer_attention: a head of %lld; %d at most: more heads than %lld",
                        (long long)(width / heads), FY__ATTENTION_WIDTH, (long long)heads);
    const heads_t settings = { width, heads, own->is_causal };
    const fyt_style_t in = { FY_ACTIVATION_NONE, own->weight, own->bias, own->no_bias },
                      out = { FY_ACTIVATION_NONE, own->proj_weight, own->bias, own->no_bias };
    const fy_layer_child_t children[] = {
        { in_name, fyt_linear(width, 3 * width, in) },
        { "", make_core(&settings) },
        { out_name, fyt_linear(width, width, out) },
    };
    return FYT_SEQUENTIAL(children, out_layer);
}
