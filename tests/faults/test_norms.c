/* A step of a model whose batch norms join their statistics with those of other ranks, while host
 * memory fails at each allocation, and the device's memory, launches and copies at each call. After
 * each failure nothing leaks, and the next step works. Not here: results
 * (tests/unit/train/test_norm_sync.c). */
#include <ferry/train/train.h>

#include "tests/faults/sweeps.h"

enum { RANKS = 2, BATCH = 3, C = 4 };

static fy_status_t gather(void *user, fy_tensor_t *all, fy_tensor_t *part)
{
    void *to, *from;
    (void)user;
    FY_TRY(fy_tensor_map(all, FY_ACCESS_WRITE, &to));
    FY_TRY(fy_tensor_map(part, FY_ACCESS_READ, &from));
    const size_t nbytes = (1 + 2 * C) * sizeof(double);
    for (int r = 0; r < RANKS; r++) memcpy((char *)to + (size_t)r * nbytes, from, nbytes);
    return FY_STATUS_OK;
}

static fy_status_t sum(void *user, fy_tensor_t *tensor)
{
    fy_tensor_t *all;
    (void)user;
    FY_TRY(fy_affine(tensor, RANKS, 0, &all));
    return fy_copy(tensor, all);
}

/* A norm with a residual that runs again in the backward. */
static fy_status_t make_block(fy_layer_t **out_block)
{
    fy_layer_t *norm, *block;
    FY_TRY(fy_layer_batch_norm(C, NULL, &norm));
    FY_TRY(fy_layer_residual(norm, NULL, FY_ACTIVATION_RELU, &block));
    return fy_layer_checkpoint(block, out_block);
}

static fy_status_t make_model(fy_device_t *device, fy_model_t **out_model)
{
    const fy_norm_exchange_t exchange = { sizeof exchange, RANKS, NULL, gather, sum };
    fy_batch_norm_options_t options = FY_BATCH_NORM_OPTIONS_INIT;
    fy_layer_t *norm, *block, *all;
    options.activation = FY_ACTIVATION_RELU;
    FY_TRY(fy_layer_batch_norm(C, &options, &norm));
    const fy_status_t status = make_block(&block);
    if (status != FY_STATUS_OK) {
        fy_layer_destroy(norm);
        return status;
    }
    const fy_layer_child_t children[] = { { "first", norm }, { "", block } };
    FY_TRY(fy_layer_sequential(2, children, &all));
    FY_TRY(fy_model_create(device, all, FY_DIMS(C), NULL, out_model));
    return fy_model_sync_norms(*out_model, &exchange);
}

static fy_status_t step(fy_device_t *device, fy_model_t *model, int64_t batch)
{
    fy_tensor_t *x, *y, *loss;
    fy_tape_t *tape;
    FY_TRY(fy_full(device, FY_DTYPE_F32, FY_DIMS(batch, C), 0.5, &x));
    FY_TRY(fy_tape_create(&tape));
    FY_TRY(fy_model_watch(model, tape));
    FY_TRY(fy_tape_watch(tape, x, NULL));
    FY_TRY(fy_tape_begin(tape));
    FY_TRY(fy_model_forward(model, x, &y));
    FY_TRY(fy_sum(y, FY_ALL_AXES, 0, &loss));
    return fy_model_backward(model, tape, loss, NULL);
}

static fy_status_t run(fy_device_t *device)
{
    fy_model_t *model = NULL;
    const fy_scope_t scope = fy_scope_begin("program");
    fy_status_t status = make_model(device, &model);
    if (status == FY_STATUS_OK) status = step(device, model, BATCH);
    if (status == FY_STATUS_OK) status = step(device, model, 1); /* one value a channel */
    fy_scope_end(scope, 0, NULL);
    fy_model_destroy(model);
    return status;
}

TS_TEST(every_call_of_the_device_fails_once)
{
    sweep_calls("", "alloc launch copy event", 400, run);
}

TS_TEST(host_memory_fails_at_each_place) { sweep_host_memory(8000, run); }
