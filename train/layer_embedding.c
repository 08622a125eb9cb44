/* Layers with a table of vectors: embedding of tokens, and learned positions. */
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
    memcpy(out_dims, dims, (size_t)rank * sizeof *dims);
    *out_rank = rank;
    *out_macs = 0;
    return FY_STATUS_OK;
}

static fy_status_t position_forward(void *user, const fy_pass_t *pass, fy_tensor_t *const *params,
                                    fy_tensor_t *x, fy_tensor_t **out_y)
{
    fy_tensor_info_t info = FY_TENSOR_INFO_INIT;
    fy_tensor_t *rows;
    (void)user, (void)pass;
    FY_TRY(fy_tensor_query(x, &info));
    FY_TRY(fy_slice(params[0], 0, 0, info.dims[1], &rows));
    return fy_add(x, rows, out_y);
}

/* ---- both ---- */

static fy_status_t make(const char *call, const fy_layer_def_t *forms, int64_t count, int64_t width,
                        const fy_embedding_options_t *options, fy_layer_t **out_layer)
{
    fy_embedding_options_t own;
    if (out_layer) *out_layer = NULL;
    FY_TRY(FY__READ(embedding_options, call, options, &own));
    if (count < 1 || width < 1)
        return FYT_FAIL(INVALID_ARGUMENT, "%s: %lld vectors of %lld elements; at least 1 of each",
                        call, (long long)count, (long long)width);
    const table_t table = { count, width };
    const fy_layer_param_t weight = { "weight", 2, { count, width }, count, width, own.weight };
    fy_layer_def_t def = *forms;
    def.params = &weight;
    void *user = fyt_settings(&table, sizeof table);
    return user ? fy_layer_create(&def, user, out_layer) : FY_STATUS_OUT_OF_MEMORY;
}

fy_status_t fy_layer_embedding(int64_t count, int64_t width, const fy_embedding_options_t *options,
                               fy_layer_t **out_layer)
{
    static const fy_layer_def_t forms = { sizeof forms,    "embedding",       1,   NULL,
                                          embedding_shape, embedding_forward, free };
    return make("layer_embedding", &forms, count, width, options, out_layer);
}

fy_status_t fy_layer_position_embedding(int64_t count, int64_t width,
                                        const fy_embedding_options_t *options,
                                        fy_layer_t **out_layer)
{
    static const fy_layer_def_t forms = { sizeof forms,   "position_embedding", 1,   NULL,
                                          position_shape, position_forward,     free };
    return make("layer_position_embedding", &forms, count, width, options, out_layer);
}
