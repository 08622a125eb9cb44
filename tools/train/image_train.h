/* Training steps of the known image models over made-up images that are resident: gather a batch,
 * forward, loss, backward, update. Written on the public API, for `ferry bench train` and for
 * bench/peers_images.cpp, which does the same in libtorch.
 * Not here: the measuring (tools/bench/bench.c), the table of rows (tools/bench/bench_train.c),
 * steps without work (small_train.h). */
#ifndef FERRY_TOOLS_IMAGE_TRAIN_H_
#define FERRY_TOOLS_IMAGE_TRAIN_H_

#include <ferry/ferry.h>
#include <ferry/train/model.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { IMAGE_SAMPLES = 1024, IMAGE_SIZE = 28, IMAGE_CLASSES = 10 };

/* Each has its usual optimizer: mnist Adadelta, lenet SGD. */
typedef struct image_case {
    const char *model; /* as fy_model_open has it */
    int batch;
    int is_adadelta;
    double lr;
} image_case_t;
enum { IMAGE_CASES = 2 };
extern const image_case_t image_cases[IMAGE_CASES];

typedef struct image_train {
    const image_case_t *what;
    fy_model_t *model;
    fy_tape_t *tape;
    /* [IMAGE_SAMPLES, 28, 28, 1], i64 [IMAGE_SAMPLES] twice */
    fy_tensor_t *images, *targets, *order;
    /* a scalar; Adadelta's state, as the model's parameters */
    fy_tensor_t *lr, *square_avg, *acc_delta;
    fy_tensor_t *loss; /* of the last step, before its update */
    int64_t steps;
    /* of one step: 2 for each multiply-accumulate, three times the forward's but for the first
     * layer's input */
    double flops;
} image_train_t;

/* Pixel i of all of them, in [-1, 1), and the class of sample i. */
float image_pixel(int64_t i);
int64_t image_target(int64_t i);

/* In the current scope, which must outlive it. Until image_train_end, dropout is on. */
fy_status_t image_train_make(fy_device_t *device, const image_case_t *what,
                             image_train_t *out_train);
void image_train_end(image_train_t *train);
/* So many steps, batch after batch. context: an image_train_t. */
fy_status_t image_train_run(void *context, int64_t steps);

#ifdef __cplusplus
}
#endif
#endif
