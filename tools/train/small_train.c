/* The small training steps. Everything is resident, so a step makes light requests only. */
#include "tools/train/small_train.h"

#include <stdlib.h>

float small_value(int which, int64_t i)
{
    /* mixed as at the end of MurmurHash3 */
    uint32_t x = (uint32_t)i * 2654435761u + (uint32_t)which * 40503u + 1;
    x = (x ^ x >> 16) * 0x85ebca6bu;
    x = (x ^ x >> 13) * 0xc2b2ae35u;
    return (float)((double)((x ^ x >> 16) >> 8) / 8388608.0 - 1.0); /* [-1, 1) */
}

/* The tensor `which` on `device`. */
static fy_status_t make(fy_device_t *device, int which, int rank, const int64_t *dims,
                        fy_tensor_t **out_tensor)
{
    fy_tensor_info_t info = FY_TENSOR_INFO_INIT;
    fy_tensor_t *host;
    void *data;
    FY_TRY(fy_tensor_create(fy_device_host(), FY_DTYPE_F32, rank, dims, &host));
    FY_TRY(fy_tensor_query(host, &info));
    FY_TRY(fy_tensor_map(host, FY_ACCESS_WRITE, &data));
    for (uint64_t i = 0; i < info.nelem; i++)
        ((float *)data)[i] = SMALL_SCALE * small_value(which, (int64_t)i);
    FY_TRY(fy_tensor_upload(host, device, NULL, out_tensor));
    fy_tensor_destroy(host);
    return FY_STATUS_OK;
}

/* Records what `step` does as a graph. */
static fy_status_t record(fy_device_t *device, fy_status_t (*step)(void *context), void *context,
                          fy_graph_t **out_graph)
{
    FY_TRY(fy_graph_begin(device));
    FY_TRY(step(context));
    return fy_graph_end(out_graph);
}

/* The loss of a step outlives it; that of the step before goes. */
static void keep_loss(fy_tensor_t *loss, fy_tensor_t **slot)
{
    fy_tensor_keep(loss);
    fy_tensor_destroy(*slot);
    *slot = loss;
}

/* ---- the chain ---- */

static fy_status_t chain_forward(const small_chain_t *chain, fy_tensor_t **out_loss)
{
    fy_tensor_t *y = chain->x;
    for (int i = 0; i < SMALL_CHAIN_OPS; i++) {
        switch (i % 4) {
        case 0: FY_TRY(fy_mul(y, chain->w, &y)); break;
        case 1: FY_TRY(fy_add(y, chain->b, &y)); break;
        case 2: FY_TRY(fy_tanh(y, &y)); break;
        default: FY_TRY(fy_relu(y, &y)); break;
        }
    }
    return fy_sum(y, 0, NULL, 0, out_loss);
}

static fy_status_t chain_step(void *context)
{
    small_chain_t *chain = context;
    fy_tensor_t *loss;
    fy_scope_t scope = fy_scope_begin("step");
    FY_TRY(fy_tape_begin(chain->tape));
    FY_TRY(chain_forward(chain, &loss));
    FY_TRY(fy_tape_backward(chain->tape, loss, NULL));
    keep_loss(loss, &chain->loss);
    fy_scope_end(scope, 0, NULL);
    return FY_STATUS_OK;
}

fy_status_t small_chain_make(fy_device_t *device, int is_graph, small_chain_t *out_chain)
{
    static const int64_t dims[1] = { SMALL_CHAIN_SIZE };
    *out_chain = (small_chain_t){ 0 };
    FY_TRY(make(device, 0, 1, dims, &out_chain->x));
    FY_TRY(make(device, 1, 1, dims, &out_chain->w));
    FY_TRY(make(device, 2, 1, dims, &out_chain->b));
    FY_TRY(fy_zeros(device, FY_DTYPE_F32, 1, dims, &out_chain->grad_w));
    FY_TRY(fy_zeros(device, FY_DTYPE_F32, 1, dims, &out_chain->grad_b));
    FY_TRY(fy_tape_create(&out_chain->tape));
    FY_TRY(fy_tape_watch(out_chain->tape, out_chain->w, out_chain->grad_w));
    FY_TRY(fy_tape_watch(out_chain->tape, out_chain->b, out_chain->grad_b));
    return is_graph ? record(device, chain_step, out_chain, &out_chain->graph) : FY_STATUS_OK;
}

fy_status_t small_chain_run(void *context, int64_t steps)
{
    small_chain_t *chain = context;
    for (int64_t i = 0; i < steps; i++)
        FY_TRY(chain->graph ? fy_graph_replay(chain->graph, NULL) : chain_step(chain));
    return FY_STATUS_OK;
}

/* ---- the network ---- */

static fy_status_t mlp_forward(const small_mlp_t *mlp, fy_tensor_t **out_loss)
{
    fy_tensor_t *y, *const *p = mlp->parameters;
    FY_TRY(fy_linear(mlp->x, p[0], p[1], FY_ACTIVATION_RELU, &y));
    FY_TRY(fy_linear(y, p[2], p[3], FY_ACTIVATION_NONE, &y));
    return fy_mse_loss(y, mlp->target, out_loss);
}

static fy_status_t mlp_update(const small_mlp_t *mlp)
{
    if (mlp->optimizer == SMALL_SGD)
        return fy_sgd_step(mlp->all, mlp->all_gradients, mlp->lr, NULL);
    return fy_adam_step(mlp->all, mlp->all_gradients, mlp->exp_avg, mlp->exp_avg_sq, mlp->number,
                        mlp->lr, NULL);
}

static fy_status_t mlp_step(void *context)
{
    small_mlp_t *mlp = context;
    fy_tensor_t *loss;
    fy_scope_t scope = fy_scope_begin("step");
    FY_TRY(fy_tape_begin(mlp->tape));
    FY_TRY(mlp_forward(mlp, &loss));
    FY_TRY(fy_tape_backward(mlp->tape, loss, NULL));
    FY_TRY(mlp_update(mlp));
    keep_loss(loss, &mlp->loss);
    fy_scope_end(scope, 0, NULL);
    return FY_STATUS_OK;
}

/* The next elements of `block` from *at on, with another shape. */
static fy_status_t cut(fy_tensor_t *block, int64_t *at, int rank, const int64_t *dims,
                       fy_tensor_t **out_view)
{
    fy_tensor_t *flat;
    int64_t count = 1;
    for (int i = 0; i < rank; i++) count *= dims[i];
    FY_TRY(fy_slice(block, 0, *at, *at + count, &flat));
    FY_TRY(fy_reshape(flat, rank, dims, out_view));
    fy_tensor_destroy(flat);
    *at += count;
    return FY_STATUS_OK;
}

static fy_status_t make_parameters(fy_device_t *device, small_mlp_t *mlp)
{
    static const int64_t dims[SMALL_PARAMETERS][2] = { { SMALL_HIDDEN, SMALL_INPUTS },
                                                       { SMALL_HIDDEN },
                                                       { SMALL_CLASSES, SMALL_HIDDEN },
                                                       { SMALL_CLASSES } };
    static const int ranks[SMALL_PARAMETERS] = { 2, 1, 2, 1 };
    const int64_t count[1] = { SMALL_HIDDEN * (SMALL_INPUTS + 1) +
                               SMALL_CLASSES * (SMALL_HIDDEN + 1) };
    int64_t at[2] = { 0, 0 };
    fy_tensor_t **const blocks[4] = { &mlp->all, &mlp->all_gradients, &mlp->exp_avg,
                                      &mlp->exp_avg_sq };
    for (int i = 0; i < 4; i++) FY_TRY(fy_zeros(device, FY_DTYPE_F32, 1, count, blocks[i]));
    for (int i = 0; i < SMALL_PARAMETERS; i++) {
        fy_tensor_t *initial, *gradient;
        FY_TRY(make(device, 2 + i, ranks[i], dims[i], &initial));
        FY_TRY(cut(mlp->all, &at[0], ranks[i], dims[i], &mlp->parameters[i]));
        FY_TRY(cut(mlp->all_gradients, &at[1], ranks[i], dims[i], &gradient));
        FY_TRY(fy_copy(mlp->parameters[i], initial));
        FY_TRY(fy_tape_watch(mlp->tape, mlp->parameters[i], gradient));
        fy_tensor_destroy(initial);
        fy_tensor_destroy(gradient);
    }
    return FY_STATUS_OK;
}

fy_status_t small_mlp_make(fy_device_t *device, small_optimizer_t optimizer, int is_graph,
                           small_mlp_t *out_mlp)
{
    static const int64_t input[2] = { 1, SMALL_INPUTS }, output[2] = { 1, SMALL_CLASSES };
    *out_mlp = (small_mlp_t){ .optimizer = optimizer };
    FY_TRY(fy_tape_create(&out_mlp->tape));
    FY_TRY(make(device, 0, 2, input, &out_mlp->x));
    FY_TRY(make(device, 1, 2, output, &out_mlp->target));
    FY_TRY(make_parameters(device, out_mlp));
    FY_TRY(fy_full(device, FY_DTYPE_F32, 0, NULL, SMALL_LR, &out_mlp->lr));
    FY_TRY(fy_zeros(device, FY_DTYPE_I64, 0, NULL, &out_mlp->number));
    return is_graph ? record(device, mlp_step, out_mlp, &out_mlp->graph) : FY_STATUS_OK;
}

fy_status_t small_mlp_calm(small_mlp_t *mlp) { return fy_fill(mlp->lr, SMALL_LR_CALM); }

fy_status_t small_mlp_run(void *context, int64_t steps)
{
    small_mlp_t *mlp = context;
    for (int64_t i = 0; i < steps; i++)
        FY_TRY(mlp->graph ? fy_graph_replay(mlp->graph, NULL) : mlp_step(mlp));
    return FY_STATUS_OK;
}

/* ---- both ---- */

fy_status_t small_read(const fy_tensor_t *scalar, double *out_value)
{
    fy_download_t *download;
    FY_TRY(fy_tensor_download(scalar, NULL, &download));
    return fy_download_wait_f64(download, FY_FOREVER, out_value);
}
