/* Training steps of known models over made-up samples that are resident: gather a batch, forward,
 * loss, backward, update. Written on the public API, for `ferry bench train`, for
 * bench/peers_images.cpp, which does mnist and lenet in libtorch, and for bench/peers_torch.py.
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

/* mnist has Adadelta, the others SGD. */
typedef struct image_case {
    const char *name, *model; /* model: as fy_model_open has it */
    int batch, samples;
    int classes; /* of the made-up labels */
    int is_adadelta;
    double lr;
    /* Multiply-accumulates of the first convolution for a sample: its input needs no gradient. 0:
     * the model's samples are tokens, and each has a label */
    int64_t first_macs;
} image_case_t;
enum { IMAGE_CASES = 5 };
extern const image_case_t image_cases[IMAGE_CASES];

typedef struct image_train {
    const image_case_t *what;
    fy_model_t *model;
    fy_tape_t *tape;
    /* [samples, dims...], i64 [samples], or [samples, context] of tokens; i64 [samples] */
    fy_tensor_t *images, *targets, *order;
    /* a scalar; Adadelta's state, as the model's parameters */
    fy_tensor_t *lr, *square_avg, *acc_delta;
    fy_tensor_t *loss; /* of the last step, before its update */
    int64_t steps;
    /* of one step: 2 for each multiply-accumulate, three times the forward's but for the first
     * layer's input */
    double flops;
} image_train_t;

/* Pixel i of all of them, in [-1, 1), and the class of sample i, of IMAGE_CLASSES. */
float image_pixel(int64_t i);
int64_t image_target(int64_t i);

/* Made-up tokens below `below`, which is 1 at least. */
fy_status_t image_tokens(fy_device_t *device, int rank, const int64_t *dims, int64_t below,
                         fy_tensor_t **out_tokens);
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
