/* A first network: a small convolutional one is built from layers, trained on synthetic digits, and
 * tested.
 * Heavy requests: the data set is uploaded once, the weights are downloaded once; each recorded
 * loss is 4 bytes. The initial weights are drawn on the device. Usage: 07_train [device], by
 * default sim:0. Next: docs/training.md. */
#include <ferry/ferry.h>
#include <ferry/train/train.h>

#include "example.h"

enum { SAMPLES = 1024, BATCH = 32, EPOCHS = 2 };

/* 28 x 28 pixels -> 10 classes. A maker that fails leaves NULL, which fy_layer_sequential refuses;
 * it takes over what it is given. */
static fy_status_t make_network(fy_device_t *device, fy_model_t **out_model)
{
    fy_layer_t *conv = NULL, *pool = NULL, *flatten = NULL, *hidden = NULL, *last = NULL, *all;
    const fy_pool2d_attrs_t halves = { .kernel_h = 2,
                                       .kernel_w = 2,
                                       .activation = FY_ACTIVATION_RELU };
    fy_linear_options_t relu = FY_LINEAR_OPTIONS_INIT;
    relu.activation = FY_ACTIVATION_RELU;
    FY_TRY(fy_layer_conv2d(1, 8, 5, 5, NULL, &conv));
    FY_TRY(fy_layer_max_pool2d(&halves, &pool));
    FY_TRY(fy_layer_flatten(&flatten));
    FY_TRY(fy_layer_linear(12 * 12 * 8, 32, &relu, &hidden));
    FY_TRY(fy_layer_linear(32, 10, NULL, &last));
    FY_TRY(fy_layer_sequential(5,
                               (fy_layer_child_t[]){ { "conv", conv },
                                                     { "pool", pool },
                                                     { "flatten", flatten },
                                                     { "hidden", hidden },
                                                     { "last", last } },
                               &all));
    return fy_model_create(device, all, FY_DIMS(28, 28, 1), NULL, out_model);
}

/* The last `test` of the samples are kept apart. */
static fy_status_t make_loaders(fy_device_t *device, fy_loader_t **out_train,
                                fy_loader_t **out_test)
{
    fy_dataset_t *all, *train, *test;
    fy_loader_options_t options = FY_LOADER_OPTIONS_INIT;
    options.batch = BATCH;
    options.scale = 1.0 / 255; /* pixels are bytes */
    FY_TRY(fy_dataset_synthetic_digits(SAMPLES + 256, 1, &all));
    FY_TRY(fy_dataset_split(all, SAMPLES, -1, &train, &test));
    FY_TRY(fy_loader_create(device, train, &options, out_train));
    FY_TRY(fy_loader_create(device, test, &options, out_test));
    fy_dataset_destroy(all);
    fy_dataset_destroy(train);
    fy_dataset_destroy(test);
    return FY_STATUS_OK;
}

static fy_status_t train(fy_device_t *device)
{
    char table[2048];
    fy_model_t *model;
    fy_loader_t *data, *test;
    fy_optimizer_t *optimizer;
    fy_optimizer_options_t adam;
    fy_model_info_t info = FY_MODEL_INFO_INIT;
    fy_train_options_t options = FY_TRAIN_OPTIONS_INIT;
    fy_train_result_t result = FY_TRAIN_RESULT_INIT;
    FY_TRY(make_loaders(device, &data, &test));
    FY_TRY(make_network(device, &model));
    FY_TRY(fy_model_query(model, &info));
    fy_model_describe(model, table, sizeof table);
    printf("%s\n", table);

    /* All parameters are views of one block, and so are all gradients: one request updates them. */
    fy_optimizer_defaults(FY_OPTIMIZER_ADAM, &adam, sizeof adam);
    FY_TRY(fy_optimizer_create(&adam, 1, &info.values, &info.grads, &optimizer));
    options.epochs = EPOCHS;
    options.loss = FY_LOSS_CROSS_ENTROPY;
    FY_TRY(fy_train_run(model, optimizer, data, test, &options, &result));
    printf("on %s, %lld steps: loss %.3f, %.0f of 100 digits read right; %llu device allocations "
           "in steady steps\n",
           fy_device_name(device), (long long)result.steps, result.train_loss,
           100 * result.test_accuracy, (unsigned long long)result.device_allocs_steady);

    /* Down, once: the whole network is one tensor. */
    fy_download_t *download;
    fy_tensor_t *weights;
    FY_TRY(fy_tensor_download(info.values, NULL, &download));
    FY_TRY(fy_download_wait(download, FY_FOREVER, &weights));
    fy_optimizer_destroy(optimizer);
    fy_model_destroy(model);
    fy_loader_destroy(data);
    fy_loader_destroy(test);
    return FY_STATUS_OK;
}

static fy_status_t run(const char *spec)
{
    fy_device_t *device;
    FY_TRY(fy_device_open(spec, &device));
    fy_scope_t scope = fy_scope_begin("example");
    fy_status_t status = train(device);
    fy_scope_end(scope, 0, NULL);
    fy_device_close(device);
    return status;
}

int main(int argc, char **argv)
{
    return example_finish(argv[0], run(argc > 1 ? argv[1] : "sim:0"));
}
