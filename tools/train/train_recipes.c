/* The table of recipes. What it is for: train_recipes.h. */
#include "tools/train/train_recipes.h"

#include <stdlib.h>
#include <string.h>

#include "tools/cli/options.h"

/* Mean and spread of MNIST's pixels, as its examples have them. */
#define MNIST_MEAN 0.1307
#define MNIST_STD  0.3081

/* The same of CIFAR-10, all channels together. */
#define CIFAR10_MEAN 0.4734
#define CIFAR10_STD  0.2516

/* clang-format off */
static const train_recipe_t recipes[] = {
    /* model, with options, data, loss, batch, epochs, optimizer, lr, momentum, schedule, gamma, image, mean, std */
    { "linear", "linear", "airfoil", FY_LOSS_MSE, 10, 2, FY_OPTIMIZER_SGD, 0.025, 0, FY_SCHEDULE_CONSTANT, 1, false, 0, 0 },
    { "mlp", "mlp", "mnist", FY_LOSS_CROSS_ENTROPY, 64, 10, FY_OPTIMIZER_SGD, 0.1, 0, FY_SCHEDULE_CONSTANT, 1, true, 0, 0 },
    { "lenet", "lenet", "mnist", FY_LOSS_CROSS_ENTROPY, 256, 10, FY_OPTIMIZER_SGD, 0.2, 0, FY_SCHEDULE_CONSTANT, 1, true, 0, 0 },
    { "mnist2018", "mnist2018", "mnist", FY_LOSS_NLL, 64, 10, FY_OPTIMIZER_SGD, 0.01, 0.5, FY_SCHEDULE_CONSTANT, 1, true, MNIST_MEAN, MNIST_STD },
    { "mnist", "mnist", "mnist", FY_LOSS_CROSS_ENTROPY, 64, 14, FY_OPTIMIZER_ADADELTA, 1, 0, FY_SCHEDULE_STEP, 0.7, true, MNIST_MEAN, MNIST_STD },
    { "resnet18", "resnet18:channels=3,size=32", "cifar10", FY_LOSS_CROSS_ENTROPY, 64, 30, FY_OPTIMIZER_SGD, 0.05, 0.9, FY_SCHEDULE_ONE_CYCLE, 1, true, CIFAR10_MEAN, CIFAR10_STD },
    { "mobilenet_v3_large", "mobilenet_v3_large:classes=10,size=32", "cifar10", FY_LOSS_CROSS_ENTROPY, 64, 30, FY_OPTIMIZER_ADAM, 5e-4, 0, FY_SCHEDULE_CONSTANT, 1, true, 0, 0 },
    { "vit_tiny", "vit_tiny:classes=10,size=32,patch=4", "cifar10", FY_LOSS_CROSS_ENTROPY, 64, 30, FY_OPTIMIZER_ADAMW, 5e-4, 0, FY_SCHEDULE_COSINE, 1, true, CIFAR10_MEAN, CIFAR10_STD },
    { "gpt", "gpt:layers=4,heads=4,width=256,context=128,vocab=256", "text", FY_LOSS_CROSS_ENTROPY, 16, 5, FY_OPTIMIZER_ADAMW, 1e-3, 0, FY_SCHEDULE_COSINE, 1, false, 0, 0 },
};
/* clang-format on */

const train_recipe_t *train_recipe_at(size_t index)
{
    return index < sizeof recipes / sizeof *recipes ? &recipes[index] : NULL;
}

const train_recipe_t *train_recipe_find(const char *model)
{
    const train_recipe_t *recipe;
    const size_t length = model ? strcspn(model, ":") : 0;
    for (size_t i = 0; model && (recipe = train_recipe_at(i)); i++)
        if (strlen(recipe->model) == length && memcmp(recipe->model, model, length) == 0)
            return recipe;
    return NULL;
}

const char *train_recipe_spec(const train_recipe_t *recipe, const char *model)
{
    return model && strchr(model, ':') ? model : recipe->spec;
}

void train_optimizer(const train_recipe_t *recipe, int choice, fy_optimizer_options_t *out_options)
{
    /* TRAIN_OPTIMIZERS has "default" before the kinds, and "momentum" behind the first. */
    const int kind = !choice ? (int)recipe->optimizer : choice < 2 ? 0 : choice - 2;
    fy_optimizer_defaults((fy_optimizer_kind_t)kind, out_options, sizeof *out_options);
    if (choice == 2) out_options->momentum = 0.9;
    /* The recipe's rate is of its kind of optimizer; another kind starts from its own usual one. */
    if (out_options->kind == recipe->optimizer) out_options->lr = recipe->lr;
    if (!choice) out_options->momentum = recipe->momentum;
}

fy_dtype_t train_precision(int choice)
{
    static const fy_dtype_t dtypes[] = { FY_DTYPE_F32, FY_DTYPE_BF16, FY_DTYPE_F16 };
    return dtypes[choice];
}

void train_scale_loss(int choice, fy_optimizer_options_t *options)
{
    static const fy_loss_scaling_options_t scaling = FY_LOSS_SCALING_OPTIONS_INIT;
    if (train_precision(choice) == FY_DTYPE_F16) options->loss_scaling = &scaling;
}

bool train_read_recompute(const char *command, const char *text, fy_model_options_t *options,
                          bool *out_is_auto)
{
    enum { MOST = 9999 };
    const size_t cheap = text && strncmp(text, "cheap", 5) == 0 ? 5 : 0;
    options->recompute_cheap = cheap != 0;
    options->recompute = 0;
    *out_is_auto = text && strcmp(text, "auto") == 0;
    if (!text || *out_is_auto || (cheap && !text[cheap])) return true;
    const char *segments = text + cheap + (cheap && text[cheap] == ',');
    const size_t digits = strspn(segments, "0123456789");
    const bool is_sqrt = strcmp(segments, "sqrt") == 0;
    if ((cheap && segments == text + cheap) ||
        (!is_sqrt && (digits < 1 || digits > 4 || segments[digits])))
        return TOOL_REFUSE(
            false,
            "%s: --recompute %s is neither auto nor sqrt nor a number from 0 to %d, nor "
            "cheap, cheap,sqrt or cheap,N\n",
            command, text, MOST);
    options->recompute = is_sqrt ? FY_RECOMPUTE_SQRT : atoi(segments);
    return true;
}
