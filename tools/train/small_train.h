/* Training steps that have next to nothing to compute, so that what a step costs is what Ferry
 * costs: a chain of 100 elementwise calls, and a network 64-64-10 at batch 1. Written on the public
 * API, for `ferry bench train` and for bench/peers_train.cpp, which does the same in libtorch.
 * Not here: the measuring (tools/bench/bench.c), the table of rows (tools/bench/bench_train.c). */
#ifndef FERRY_TOOLS_SMALL_TRAIN_H_
#define FERRY_TOOLS_SMALL_TRAIN_H_

#include <ferry/ferry.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    SMALL_CHAIN_OPS = 100,
    SMALL_CHAIN_SIZE = 64,
    SMALL_INPUTS = 64,
    SMALL_HIDDEN = 64,
    SMALL_CLASSES = 10,
    SMALL_PARAMETERS = 4
};
typedef enum small_optimizer { SMALL_SGD, SMALL_ADAM } small_optimizer_t;
#define SMALL_LR      0.01
#define SMALL_LR_CALM 1e-9
#define SMALL_SCALE   0.25f

/* Element i, row-major, of the made-up tensor `which` is SMALL_SCALE times this, in [-1, 1): the
 * same numbers on both sides of a comparison.
 * The chain's x, w, b are 0, 1, 2; the network's x and target 0, 1, its parameters 2 .. 5. */
float small_value(int which, int64_t i);

/* y = x; then 100 calls that alternate: y * w, y + b, tanh(y), relu(y); loss = sum(y). w and b are
 * watched. */
typedef struct small_chain {
    fy_tape_t *tape;
    fy_graph_t *graph; /* NULL: each step is called */
    fy_tensor_t *x, *w, *b, *grad_w, *grad_b, *loss;
} small_chain_t;

/* 64-64-10, relu between, mean squared error against one target row; all parameters are updated in
 * each step, by one request. */
typedef struct small_mlp {
    small_optimizer_t optimizer;
    fy_tape_t *tape;
    fy_graph_t *graph;
    fy_tensor_t *x, *target, *loss, *lr, *number;
    fy_tensor_t *all, *all_gradients, *exp_avg, *exp_avg_sq; /* one block each */
    /* views: w1 [64, 64], b1 [64], w2 [10, 64], b2 [10] */
    fy_tensor_t *parameters[SMALL_PARAMETERS];
} small_mlp_t;

/* Made in the current scope, which must outlive it. is_graph: records a step, which counts as
 * none. */
fy_status_t small_chain_make(fy_device_t *device, int is_graph, small_chain_t *out_chain);
fy_status_t small_mlp_make(fy_device_t *device, small_optimizer_t optimizer, int is_graph,
                           small_mlp_t *out_mlp);
/* From now on it learns almost nothing. A network that has fitted its one sample computes with
 * gradients and moments below the smallest normal number, which takes several times as long in any
 * library; the timed steps must not reach that state. */
fy_status_t small_mlp_calm(small_mlp_t *mlp);
/* So many steps. `loss` is then that of the last one, before its update. context: a small_chain_t,
 * a small_mlp_t. */
fy_status_t small_chain_run(void *context, int64_t steps);
fy_status_t small_mlp_run(void *context, int64_t steps);
/* A loss, on the host. Blocks. */
fy_status_t small_read(const fy_tensor_t *scalar, double *out_value);

#ifdef __cplusplus
}
#endif
#endif
