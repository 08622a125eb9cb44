/* How each known model is usually trained: on which data, by which loss and optimizer, for how
 * long. `ferry train` and `ferry plan` start from these; options say otherwise. Source: the field's
 * workloads, docs/training.md. Next: train_recipes.c. */
#ifndef FERRY_TOOLS_TRAIN_RECIPES_H_
#define FERRY_TOOLS_TRAIN_RECIPES_H_

#include <stdbool.h>

#include <ferry/ferry.h>
#include <ferry/train/train.h>

typedef struct train_recipe {
    const char *model;   /* fy_model_open's, without options */
    const char *spec;    /* with the options of this recipe */
    const char *dataset; /* fy_dataset_open's; "text": a file of any text */
    fy_loss_kind_t loss;
    int64_t batch, epochs;
    fy_optimizer_kind_t optimizer;
    double lr, momentum;
    fy_schedule_kind_t schedule;
    double gamma;     /* of STEP, an epoch */
    bool is_image;    /* pixels: times 1/255 */
    double mean, std; /* then (x - mean) / std; std 0: not */
} train_recipe_t;

/* NULL past the last, or if there is none of that name. `model` may have options. */
const train_recipe_t *train_recipe_at(size_t index);
const train_recipe_t *train_recipe_find(const char *model);
/* `model` if it has options, else the recipe's. */
const char *train_recipe_spec(const train_recipe_t *recipe, const char *model);

/* "sgd|momentum|adam|...": what --optimizer takes; the first is the recipe's own. */
#define TRAIN_OPTIMIZERS "default|sgd|momentum|adam|adamw|adadelta|rmsprop|lars|lamb"
/* The recipe's optimizer, or the one of that index of TRAIN_OPTIMIZERS with its usual settings
 * (momentum: SGD with 0.9). */
void train_optimizer(const train_recipe_t *recipe, int choice, fy_optimizer_options_t *out_options);

/* --precision of `ferry train` and `ferry plan`, an index. Steps compute in it, parameters are
 * f32. */
#define TRAIN_PRECISIONS "f32|bf16|f16"
#define TRAIN_PRECISION_HELP \
    "of products and convolutions; parameters stay f32; f16 with loss scaling"
fy_dtype_t train_precision(int choice);
/* Sets the loss scaling that it needs. */
void train_scale_loss(int choice, fy_optimizer_options_t *options);

/* --recompute of `ferry train` and `ferry plan`. */
#define TRAIN_RECOMPUTE "N|sqrt|cheap|cheap,N|auto"
#define TRAIN_RECOMPUTE_HELP                                                                      \
    "activation checkpointing: the layers in N segments, all but the last computed again in the " \
    "backward; sqrt: the square root of the most; cheap: results of elementwise ops and norms "   \
    "are computed again; cheap,N and cheap,sqrt: both; auto: plans these, offloading and uneven " \
    "segments, prints a table, and takes the fastest that fits"
/* --offload of the same. */
#define TRAIN_OFFLOAD_HELP                                                                 \
    "the layers in N segments: the bytes that all but the last keep for the backward are " \
    "downloaded to page-locked memory and uploaded again"
/* Sets recompute and recompute_cheap from its value; NULL and auto: 0. Explains a refusal. */
bool train_read_recompute(const char *command, const char *text, fy_model_options_t *options,
                          bool *out_is_auto);

/* --drop-bias of both. */
#define TRAIN_DROP_BIAS_HELP "no bias where a batch norm follows: the norm has its own"

#endif
