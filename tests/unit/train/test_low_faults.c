/* Steps of models in half precision while things fail: a copy of f32 parameters, stepped and read
 * by autocast, with loss scaling; parameters in half precision. After each failure nothing leaks,
 * and the next run works. Not here: results (test_low.c). */
#include "tests/support/sweep.h"
#include "tests/unit/train/descent.h"
#include "tests/unit/train/layers.h"

enum { BATCH = 4, INPUTS = 12, CLASSES = 3 };

static fy_status_t make_model(fy_device_t *device, fy_dtype_t dtype, fy_dtype_t low,
                              fy_model_t **out_model)
{
    fy_model_options_t options = FY_MODEL_OPTIONS_INIT;
    options.dtype = dtype;
    options.low = low;
    fy_layer_t *layer = SEQUENCE(fc(INPUTS, 8), fc(8, CLASSES));
    if (!layer) return FY_STATUS_OUT_OF_MEMORY; /* of a maker */
    return fy_model_create(device, layer, 1, (int64_t[]){ INPUTS }, &options, out_model);
}

static fy_status_t steps(descent_t *d, fy_device_t *device, fy_dtype_t dtype)
{
    fy_param_t param = FY_PARAM_INIT;
    int64_t skipped;
    FY_TRY(fy_full(device, dtype, FY_DIMS(BATCH, INPUTS), 0.5, &d->x));
    FY_TRY(fy_zeros(device, FY_DTYPE_I64, FY_DIMS(BATCH), &d->y));
    FY_TRY(descent_begin(d));
    FY_TRY(fy_model_param(d->model, 0, &param));
    for (int t = 0; t < 3; t++) {
        FY_TRY(descent_step(d));
        if (t == 1) FY_TRY(fy_fill(param.value, 0.25)); /* the copy is cast before its next use */
    }
    return fy_optimizer_query_skipped(d->optimizer, &skipped);
}

static fy_status_t program(fy_device_t *device, fy_dtype_t dtype, fy_dtype_t low)
{
    const fy_loss_scaling_options_t scaling = FY_LOSS_SCALING_OPTIONS_INIT;
    fy_optimizer_options_t o = optimizer_defaults(FY_OPTIMIZER_LAMB);
    descent_t d = { .precision = low };
    if (low != FY_DTYPE_F32) o.loss_scaling = &scaling;
    const fy_scope_t scope = fy_scope_begin("program");
    fy_status_t status = make_model(device, dtype, low, &d.model);
    if (status == FY_STATUS_OK) status = fy_optimizer_create_model(&o, d.model, &d.optimizer);
    if (status == FY_STATUS_OK) status = steps(&d, device, dtype);
    fy_scope_end(scope, 0, NULL);
    fy_optimizer_destroy(d.optimizer);
    fy_model_destroy(d.model);
    return status;
}

static fy_status_t run(fy_device_t *device)
{
    FY_TRY(program(device, FY_DTYPE_F32, FY_DTYPE_F16));
    return program(device, FY_DTYPE_BF16, FY_DTYPE_F32);
}

TS_TEST(every_call_of_the_device_fails_once)
{
    ts_sweep_device("", "alloc", FY_STATUS_OUT_OF_MEMORY, 400, run);
    ts_sweep_device("", "launch", FY_STATUS_INTERNAL, 1000, run);
}

TS_TEST(host_memory_fails_at_each_place)
{
    ts_sweep_host_memory("host", 8000, run);
    ts_sweep_host_memory("sim:7", 8000, run);
}
