/* The training steps. Everything is resident, so a step makes light requests only. */
#include "tools/train/image_train.h"

#include "tools/train/small_train.h"

const image_case_t image_cases[IMAGE_CASES] = {
    { "mnist", "mnist", 64, IMAGE_SAMPLES, IMAGE_CLASSES, 1, 1.0, 26 * 26 * 9 * 32 },
    { "lenet", "lenet", 256, IMAGE_SAMPLES, IMAGE_CLASSES, 0, 0.2, 26 * 26 * 9 * 20 },
    { "resnet18", "resnet18", 64, 256, IMAGE_CLASSES, 0, 0.01, 28 * 28 * 9 * 64 },
    { "mobilenet_v3_large", "mobilenet_v3_large:classes=10", 16, 64, IMAGE_CLASSES, 0, 0.01,
      112 * 112 * 27 * 16 },
    { "gpt", "gpt:layers=4,heads=4,width=256,context=128,vocab=256", 16, 256, 256, 0, 0.01, 0 },
};

float image_pixel(int64_t i) { return small_value(7, i); }
int64_t image_target(int64_t i) { return (i * 7 + i / 10) % IMAGE_CLASSES; }

/* ---- what a step reads ---- */

/* Values fn(i) % below of `dtype`, F32 pixels or whole numbers, uploaded. */
static fy_status_t make(fy_device_t *device, fy_dtype_t dtype, int rank, const int64_t *dims,
                        int64_t (*fn)(int64_t), int64_t below, fy_tensor_t **out_tensor)
{
    fy_tensor_t *host;
    fy_tensor_info_t info = FY_TENSOR_INFO_INIT;
    void *data;
    FY_TRY(fy_tensor_create(fy_device_host(), dtype, rank, dims, &host));
    FY_TRY(fy_tensor_query(host, &info));
    FY_TRY(fy_tensor_map(host, FY_ACCESS_WRITE, &data));
    for (int64_t i = 0; i < (int64_t)info.nelem; i++) {
        if (dtype == FY_DTYPE_F32)
            ((float *)data)[i] = image_pixel(i);
        else if (dtype == FY_DTYPE_I32)
            ((int32_t *)data)[i] = (int32_t)(fn(i) % below);
        else
            ((int64_t *)data)[i] = fn(i) % below;
    }
    FY_TRY(fy_tensor_upload(host, device, NULL, out_tensor));
    fy_tensor_destroy(host);
    return FY_STATUS_OK;
}

static int64_t number(int64_t i) { return i; }
static int64_t token(int64_t i) { return i * 31 + i / 7; }

fy_status_t image_tokens(fy_device_t *device, int rank, const int64_t *dims, int64_t below,
                         fy_tensor_t **out_tokens)
{
    return make(device, FY_DTYPE_I32, rank, dims, token, below, out_tokens);
}

static fy_status_t make_samples(fy_device_t *device, const image_case_t *what,
                                image_train_t *out_train)
{
    int64_t dims[FY_MAX_RANK + 1] = { what->samples };
    const int is_text = what->first_macs == 0;
    int rank;
    FY_TRY(fy_model_sample_shape(what->model, &rank, dims + 1));
    FY_TRY(make(device, is_text ? FY_DTYPE_I32 : FY_DTYPE_F32, rank + 1, dims, token, what->classes,
                &out_train->images));
    FY_TRY(make(device, FY_DTYPE_I64, is_text ? rank + 1 : 1, dims, is_text ? token : image_target,
                what->classes, &out_train->targets));
    return make(device, FY_DTYPE_I64, 1, dims, number, what->samples, &out_train->order);
}

fy_status_t image_train_make(fy_device_t *device, const image_case_t *what,
                             image_train_t *out_train)
{
    fy_model_options_t options = FY_MODEL_OPTIONS_INIT;
    fy_model_info_t info = FY_MODEL_INFO_INIT;
    *out_train = (image_train_t){ .what = what };
    options.name = what->name;
    FY_TRY(make_samples(device, what, out_train));
    FY_TRY(fy_tape_create(&out_train->tape));
    FY_TRY(fy_model_open(device, what->model, &options, &out_train->model));
    FY_TRY(fy_model_query(out_train->model, &info));
    FY_TRY(fy_full(device, FY_DTYPE_F32, 0, NULL, what->lr, &out_train->lr));
    if (what->is_adadelta) {
        fy_tensor_info_t values = FY_TENSOR_INFO_INIT;
        FY_TRY(fy_tensor_query(info.values, &values));
        FY_TRY(fy_zeros(device, FY_DTYPE_F32, values.rank, values.dims, &out_train->square_avg));
        FY_TRY(fy_zeros(device, FY_DTYPE_F32, values.rank, values.dims, &out_train->acc_delta));
    }
    out_train->flops = 2.0 * what->batch * (3.0 * (double)info.macs - (double)what->first_macs);
    return fy_model_watch(out_train->model, out_train->tape);
}

void image_train_end(image_train_t *train)
{
    fy_model_destroy(train->model);
    train->model = NULL;
}

/* ---- the step ---- */

static fy_status_t update(image_train_t *train)
{
    fy_model_info_t info = FY_MODEL_INFO_INIT;
    FY_TRY(fy_model_query(train->model, &info));
    if (!train->what->is_adadelta) return fy_sgd_step(info.values, info.grads, train->lr, NULL);
    return fy_adadelta_step(info.values, info.grads, train->square_avg, train->acc_delta, train->lr,
                            NULL);
}

static fy_status_t step(image_train_t *train)
{
    const int64_t batch = train->what->batch, begin = train->steps * batch % train->what->samples;
    fy_tensor_t *chosen, *x, *target, *logits, *loss;
    FY_TRY(fy_slice(train->order, 0, begin, begin + batch, &chosen));
    FY_TRY(fy_gather(train->images, chosen, &x));
    FY_TRY(fy_gather(train->targets, chosen, &target));
    FY_TRY(fy_tape_begin(train->tape));
    FY_TRY(fy_model_forward(train->model, x, &logits));
    FY_TRY(fy_cross_entropy(logits, target, FY_REDUCTION_MEAN, &loss));
    FY_TRY(fy_model_backward(train->model, train->tape, loss, NULL));
    FY_TRY(update(train));
    fy_tensor_keep(loss); /* it outlives the step; that of the step before goes */
    fy_tensor_destroy(train->loss);
    train->loss = loss;
    train->steps++;
    return FY_STATUS_OK;
}

fy_status_t image_train_run(void *context, int64_t steps)
{
    image_train_t *train = context;
    for (int64_t i = 0; i < steps; i++) {
        fy_scope_t scope = fy_scope_begin("step");
        const fy_status_t status = step(train);
        fy_scope_end(scope, 0, NULL);
        FY_TRY(status);
    }
    return FY_STATUS_OK;
}
