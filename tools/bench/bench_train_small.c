/* The rows of `ferry bench train` whose work is next to nothing. Not here: what they compute
 * (small_train.c). */
#include <stdlib.h>

#include "tools/bench/bench_train.h"
#include "tools/train/small_train.h"

static fy_status_t make_chain(fy_device_t *device, int is_graph, void **out_context)
{
    return small_chain_make(device, is_graph, *out_context = tool_alloc(sizeof(small_chain_t)));
}
static fy_status_t make_mlp(fy_device_t *device, small_optimizer_t optimizer, int is_graph,
                            void **out_context)
{
    small_mlp_t *mlp = *out_context = tool_alloc(sizeof *mlp);
    FY_TRY(small_mlp_make(device, optimizer, is_graph, mlp));
    return small_mlp_calm(mlp);
}

static fy_status_t chain_eager(fy_device_t *device, void **out_context)
{
    return make_chain(device, 0, out_context);
}
static fy_status_t chain_graph(fy_device_t *device, void **out_context)
{
    return make_chain(device, 1, out_context);
}
static fy_status_t sgd_eager(fy_device_t *device, void **out_context)
{
    return make_mlp(device, SMALL_SGD, 0, out_context);
}
static fy_status_t sgd_graph(fy_device_t *device, void **out_context)
{
    return make_mlp(device, SMALL_SGD, 1, out_context);
}
static fy_status_t adam_eager(fy_device_t *device, void **out_context)
{
    return make_mlp(device, SMALL_ADAM, 0, out_context);
}
static fy_status_t adam_graph(fy_device_t *device, void **out_context)
{
    return make_mlp(device, SMALL_ADAM, 1, out_context);
}

/* The last loss is in no scope. */
static void end_chain(void *context) { fy_tensor_destroy(((small_chain_t *)context)->loss); }
static void end_mlp(void *context) { fy_tensor_destroy(((small_mlp_t *)context)->loss); }

const train_case_t train_small[TRAIN_SMALL_COUNT] = {
    { "chain of 100", "eager", chain_eager, small_chain_run, SMALL_CHAIN_OPS, 0, NULL, end_chain },
    { "chain of 100", "graph", chain_graph, small_chain_run, SMALL_CHAIN_OPS, 0, NULL, end_chain },
    { "mlp 64-64-10 sgd", "eager", sgd_eager, small_mlp_run, 0, 1, NULL, end_mlp },
    { "mlp 64-64-10 sgd", "graph", sgd_graph, small_mlp_run, 0, 1, NULL, end_mlp },
    { "mlp 64-64-10 adam", "eager", adam_eager, small_mlp_run, 0, 1, NULL, end_mlp },
    { "mlp 64-64-10 adam", "graph", adam_graph, small_mlp_run, 0, 1, NULL, end_mlp },
};
