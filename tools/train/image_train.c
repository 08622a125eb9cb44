/* The image training steps. Everything is resident, so a step makes light requests only. */
#include "tools/train/image_train.h"

#include <string.h>

#include "tools/train/small_train.h"

const image_case_t image_cases[IMAGE_CASES] = { { "mnist", 64, 1, 1.0 }, { "lenet", 256, 0, 0.2 } };

float image_pixel(int64_t i) { return small_value(7, i); }
int64_t image_target(int64_t i) { return (i * 7 + i / 10) % IMAGE_CLASSES; }

/* ---- what a step reads ---- */

static fy_status_t make_images(fy_device_t *device, fy_tensor_t **out_images)
{
    static const int64_t dims[4] = { IMAGE_SAMPLES, IMAGE_SIZE, IMAGE_SIZE, 1 };
    fy_tensor_t *host;
    void *data;
    FY_TRY(fy_tensor_create(fy_device_host(), FY_DTYPE_F32, 4, dims, &host));
    FY_TRY(fy_tensor_map(host, FY_ACCESS_WRITE, &data));
    for (int64_t i = 0; i < IMAGE_SAMPLES * IMAGE_SIZE * IMAGE_SIZE; i++)
        ((float *)data)[i] = image_pixel(i);
    FY_TRY(fy_tensor_upload(host, device, NULL, out_images));
    fy_tensor_destroy(host);
    return FY_STATUS_OK;
}

/* fn(i), or i if NULL. */
static fy_status_t make_numbers(fy_device_t *device, int64_t (*fn)(int64_t),
                                fy_tensor_t **out_numbers)
{
    static const int64_t dims[1] = { IMAGE_SAMPLES };
    fy_tensor_t *host;
    void *data;
    FY_TRY(fy_tensor_create(fy_device_host(), FY_DTYPE_I64, 1, dims, &host));
    FY_TRY(fy_tensor_map(host, FY_ACCESS_WRITE, &data));
    for (int64_t i = 0; i < IMAGE_SAMPLES; i++) ((int64_t *)data)[i] = fn ? fn(i) : i;
    FY_TRY(fy_tensor_upload(host, device, NULL, out_numbers));
    fy_tensor_destroy(host);
    return FY_STATUS_OK;
}

/* The first layer's input needs no gradient: 9 products an output of conv1, whose 26 x 26 pixels
 * have `channels`. */
static double flops_of(const fy_model_info_t *info, int batch, int channels)
{
    const double first = 26.0 * 26.0 * 9.0 * channels;
    return 2.0 * batch * (3.0 * (double)info->macs - first);
}

fy_status_t image_train_make(fy_device_t *device, const image_case_t *what,
                             image_train_t *out_train)
{
    fy_model_options_t options = FY_MODEL_OPTIONS_INIT;
    fy_model_info_t info = FY_MODEL_INFO_INIT;
    *out_train = (image_train_t){ .what = what };
    options.name = what->model;
    FY_TRY(make_images(device, &out_train->images));
    FY_TRY(make_numbers(device, image_target, &out_train->targets));
    FY_TRY(make_numbers(device, NULL, &out_train->order));
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
    out_train->flops = flops_of(&info, what->batch, strcmp(what->model, "mnist") == 0 ? 32 : 20);
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
    const int64_t batch = train->what->batch, begin = train->steps * batch % IMAGE_SAMPLES;
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
