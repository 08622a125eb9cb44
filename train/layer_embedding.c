/* Layers with learned vectors: embedding of tokens, positions, and a token in front. */
#include "layer.h"
#include "train/abi.h"

#include <ferry/scope.h>

#include <stdlib.h>
#include <string.h>

typedef struct table {
    int64_t count, width;
} table_t;

/* ---- embedding ---- */

static fy_status_t embedding_shape(void *user, int rank, const int64_t *dims, int *out_rank,
                                   int64_t *out_dims, uint64_t *out_macs)
{
    const table_t *table = user;
    if (rank >= FY_MAX_RANK)
        return FYT_FAIL(SHAPE_MISMATCH, "indices of rank %d; at most %d", rank, FY_MAX_RANK - 1);
    memcpy(out_dims, dims, (size_t)rank * sizeof *dims);
    out_dims[rank] = table->width;
    *out_rank = rank + 1;
    *out_macs = 0;
    return FY_STATUS_OK;
}

static fy_status_t embedding_forward(void *user, const fy_pass_t *pass, fy_tensor_t *const *params,
                                     fy_tensor_t *x, fy_tensor_t **out_y)
{
    (void)user, (void)pass;
    return fy_gather(params[0], x, out_y);
}

/* ---- positions ---- */

static fy_status_t position_shape(void *user, int rank, const int64_t *dims, int *out_rank,
                                  int64_t *out_dims, uint64_t *out_macs)
{
    const table_t *table = user;
    char text[FYT_SHAPE_TEXT];
    if (rank != 3 || dims[1] > table->count || dims[2] != table->width)
        return FYT_FAIL(SHAPE_MISMATCH, "it expects [n, 1 to %lld, %lld] and would get %s",
                        (long long)table->count, (long long)table->width,
                        fyt_shape_text(text, rank, dims));
    return fyt_same_shape(user, rank, dims, out_rank, out_dims, out_macs);
}

/* The table is [count, width] or [1, count, width]. */
static fy_status_t position_forward(void *user, const fy_pass_t *pass, fy_tensor_t *const *params,
                                    fy_tensor_t *x, fy_tensor_t **out_y)
{
    fy_tensor_info_t info = FY_TENSOR_INFO_INIT, table = FY_TENSOR_INFO_INIT;
    fy_tensor_t *rows;
    (void)user, (void)pass;
    FY_TRY(fy_tensor_query(x, &info));
    FY_TRY(fy_tensor_query(params[0], &table));
    FY_TRY(fy_slice(params[0], table.rank - 2, 0, info.dims[1], &rows));
    return fy_add(x, rows, out_y);
}

/* ---- a token in front ---- */

static fy_status_t class_token_shape(void *user, int rank, const int64_t *dims, int *out_rank,
                                     int64_t *out_dims, uint64_t *out_macs)
{
    const table_t *table = user;
    char text[FYT_SHAPE_TEXT];
    if (rank < 3 || dims[rank - 1] != table->width)
        return FYT_FAIL(SHAPE_MISMATCH, "it expects [n, ..., T, %lld] and would get %s",
                        (long long)table->width, fyt_shape_text(text, rank, dims));
    int64_t length = 1;
    for (int i = 1; i + 1 < rank; i++) length *= dims[i];
    *out_rank = 3;
    out_dims[0] = dims[0];
    out_dims[1] = length + 1;
    out_dims[2] = table->width;
    *out_macs = 0;
    return FY_STATUS_OK;
}

static fy_status_t class_token_forward(void *user, const fy_pass_t *pass,
                                       fy_tensor_t *const *params, fy_tensor_t *x,
                                       fy_tensor_t **out_y)
{
    fy_tensor_info_t info = FY_TENSOR_INFO_INIT;
    int64_t dims[FY_MAX_RANK];
    uint64_t macs;
    int rank;
    fy_tensor_t *parts[2];
    (void)pass;
    FY_TRY(fy_tensor_query(x, &info));
    FY_TRY(class_token_shape(user, info.rank, info.dims, &rank, dims, &macs));
    FY_TRY(fy_broadcast(params[0], FY_DIMS(dims[0], 1, dims[2]), &parts[0]));
    FY_TRY(fy_reshape(x, FY_DIMS(dims[0], dims[1] - 1, dims[2]), &parts[1]));
    return fy_concat(2, parts, 1, out_y);
}

/* ---- all ---- */

static fy_status_t make_table(const char *call, const fy_layer_def_t *forms, int64_t count,
                              int64_t width, const fy_layer_param_t *param, fy_layer_t **out_layer)
{
    if (count < 1 || width < 1)
        return FYT_FAIL(INVALID_ARGUMENT, "%s: %lld vectors of %lld elements; at least 1 of each",
                        call, (long long)count, (long long)width);
    const table_t table = { count, width };
    fy_layer_def_t def = *forms;
    def.params = param;
    return fyt_layer_create(&def, &table, sizeof table, out_layer);
}

static fy_status_t make(const char *call, const fy_layer_def_t *forms, int64_t count, int64_t width,
                        const fy_embedding_options_t *options, fy_layer_t **out_layer)
{
    fy_embedding_options_t own;
    if (out_layer) *out_layer = NULL;
    FY_TRY(FY__READ(embedding_options, call, options, &own));
    const fy_layer_param_t weight = { "weight", 2, { count, width }, count, width, own.weight };
    return make_table(call, forms, count, width, &weight, out_layer);
}

fy_status_t fy_layer_embedding(int64_t count, int64_t width, const fy_embedding_options_t *options,
                               fy_layer_t **out_layer)
{
    static const fy_layer_def_t forms = { sizeof forms,    "embedding",       1,   NULL,
                                          embedding_shape, embedding_forward, free };
    return make("layer_embedding", &forms, count, width, options, out_layer);
}

static const fy_layer_def_t positions = { sizeof positions, "position_embedding", 1,   NULL,
                                          position_shape,   position_forward,     free };

fy_status_t fy_layer_position_embedding(int64_t count, int64_t width,
                                        const fy_embedding_options_t *options,
                                        fy_layer_t **out_layer)
{
    return make("layer_position_embedding", &positions, count, width, options, out_layer);
}

fy_status_t fyt_position_embedding(const char *name, int64_t count, int64_t width, fy_init_t init,
                                   fy_layer_t **out_layer)
{
    const fy_layer_param_t param = { name, 3, { 1, count, width }, count, width, init };
    return make_table("layer_position_embedding", &positions, count, width, &param, out_layer);
}

fy_status_t fy_layer_class_token(int64_t width, const fy_embedding_options_t *options,
                                 fy_layer_t **out_layer)
{
    static const fy_layer_def_t forms = { sizeof forms,      "class_token",       1,   NULL,
                                          class_token_shape, class_token_forward, free };
    fy_embedding_options_t own;
    if (out_layer) *out_layer = NULL;
    FY_TRY(FY__READ(embedding_options, "layer_class_token", options, &own));
    const fy_layer_param_t token = { "cls_token", 3, { 1, 1, width }, 1, width, own.weight };
    return make_table("layer_class_token", &forms, 1, width, &token, out_layer);
}
