/* The gradients of the first step of every known model, f32 on the device under test, against the
 * same model in f64 on the host. The f64 kernels are plain loops; the f32 convolutions and products
 * are oneDNN's. So the two computations share little code. */
#include "tests/unit/train/fixture.h"

#include <math.h>

enum { BATCH = 8 };

static fy_model_t *open_model(fy_device_t *device, const char *name, fy_dtype_t dtype)
{
    fy_model_options_t options = FY_MODEL_OPTIONS_INIT;
    options.dtype = dtype;
    options.seed = 5;
    return known_model(device, name, &options);
}

/* The f64 model gets the f32 one's parameters, exactly. */
static void copy_values(const fy_model_t *to, const fy_model_t *from)
{
    fy_tensor_t *wide;
    ts_ok(fy_cast(ts_download(model_info(from).values), FY_DTYPE_F64, &wide));
    ts_ok(fy_copy(model_info(to).values, wide));
}

static void backward(fy_model_t *model, const char *name, fy_tensor_t *x, fy_tensor_t *y)
{
    fy_tensor_t *result, *loss;
    fy_tape_t *tape = watch(model);
    ts_ok(fy_tape_begin(tape));
    ts_ok(fy_model_forward(model, x, &result));
    if (strcmp(name, "linear") == 0)
        ts_ok(fy_mse_loss(result, y, &loss));
    else if (strcmp(name, "mnist2018") == 0)
        ts_ok(fy_nll_loss(result, y, FY_REDUCTION_MEAN, &loss));
    else
        ts_ok(fy_cross_entropy(result, y, FY_REDUCTION_MEAN, &loss));
    ts_ok(fy_model_backward(model, tape, loss, NULL));
    fy_tape_destroy(tape);
}

/* The batch on the host: samples as f32 and labels, or features and targets. */
static void make_batch(const char *name, fy_tensor_t **out_x, fy_tensor_t **out_y)
{
    fy_dataset_t *set;
    fy_loader_t *loader;
    fy_loader_options_t options = FY_LOADER_OPTIONS_INIT;
    const int is_table = strcmp(name, "linear") == 0;
    options.batch = BATCH;
    options.scale = is_table ? 1 : 1.0 / 255;
    ts_ok(fy_dataset_open(is_table ? "airfoil" : "mnist", NULL, 0, &set));
    ts_ok(fy_loader_create(fy_device_host(), set, &options, &loader));
    ts_ok(fy_loader_next(loader, out_x, out_y));
    fy_loader_destroy(loader);
    fy_dataset_destroy(set);
}

/* |g - g64| / |g64| of one parameter. */
static double compare(const fy_model_t *narrow, const fy_model_t *wide, size_t index,
                      const char **out_name)
{
    fy_param_t a = FY_PARAM_INIT, b = FY_PARAM_INIT;
    void *va, *vb;
    double difference = 0, norm = 0;
    ts_ok(fy_model_param(narrow, index, &a));
    ts_ok(fy_model_param(wide, index, &b));
    fy_tensor_t *ha = ts_download(a.grad), *hb = ts_download(b.grad);
    ts_ok(fy_tensor_map(ha, FY_ACCESS_READ, &va));
    ts_ok(fy_tensor_map(hb, FY_ACCESS_READ, &vb));
    for (uint64_t i = 0; i < ts_info(ha).nelem; i++) {
        const double x = (double)((const float *)va)[i], y = ((const double *)vb)[i];
        difference += (x - y) * (x - y);
        norm += y * y;
    }
    *out_name = a.name;
    assert_true(norm > 0);
    return sqrt(difference / norm);
}

static void check_model(ts_ctx_t *ctx, const char *name)
{
    fy_tensor_t *x, *y, *x_there, *y_there, *x_wide, *y_wide;
    fy_scope_t scope = fy_scope_begin(name);
    fy_model_t *narrow = open_model(ctx->device, name, FY_DTYPE_F32),
               *wide = open_model(fy_device_host(), name, FY_DTYPE_F64);
    copy_values(wide, narrow);
    make_batch(name, &x, &y);
    ts_ok(fy_tensor_upload(x, ctx->device, NULL, &x_there));
    ts_ok(fy_tensor_upload(y, ctx->device, NULL, &y_there));
    ts_ok(fy_cast(x, FY_DTYPE_F64, &x_wide));
    if (ts_info(y).dtype == FY_DTYPE_F32)
        ts_ok(fy_cast(y, FY_DTYPE_F64, &y_wide));
    else
        y_wide = y;
    backward(narrow, name, x_there, y_there);
    backward(wide, name, x_wide, y_wide);
    for (size_t i = 0; i < model_info(narrow).nparams; i++) {
        const char *param;
        const double error = compare(narrow, wide, i, &param);
        print_message("%s %s: %.2g\n", name, param, error);
        if (!(error <= 1e-3))
            fail_msg("%s: the gradient of %s differs by %g of its norm", name, param, error);
    }
    fy_model_destroy(narrow);
    fy_model_destroy(wide);
    fy_scope_end(scope, 0, NULL);
}

TS_DEVICE_TEST(test_first_step_gradients)
{
    const char *name;
    /* the larger ones: test_models_reference.c */
    for (size_t i = 0; (name = fy_model_name_at(i)) && strcmp(name, "resnet18") != 0; i++)
        check_model(ctx, name);
}
