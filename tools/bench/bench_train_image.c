/* The rows of `ferry bench train` with work in them. Not here: what they compute
 * (image_train.c). */
#include "tools/bench/bench_train.h"
#include "tools/train/image_train.h"

static fy_status_t make(fy_device_t *device, int which, void **out_context)
{
    return image_train_make(device, &image_cases[which],
                            *out_context = tool_alloc(sizeof(image_train_t)));
}

static fy_status_t mnist(fy_device_t *device, void **out_context)
{
    return make(device, 0, out_context);
}
static fy_status_t lenet(fy_device_t *device, void **out_context)
{
    return make(device, 1, out_context);
}
static double flops(const void *context) { return ((const image_train_t *)context)->flops; }
static void end(void *context) { image_train_end(context); }

const train_case_t train_image[TRAIN_IMAGE_COUNT] = {
    { "mnist", "eager", mnist, image_train_run, 0, 64, flops, end },
    { "lenet", "eager", lenet, image_train_run, 0, 256, flops, end },
};
