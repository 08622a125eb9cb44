/* The table of recipes. What it is for: train_recipes.h. */
#include "tools/train/train_recipes.h"

#include <string.h>

/* Mean and spread of MNIST's pixels, as its examples have them. */
#define MNIST_MEAN 0.1307
#define MNIST_STD  0.3081
#define MNIST_DIMS \
    3, { 28, 28, 1 }

/* clang-format off */
static const train_recipe_t recipes[] = {
    /* model, data, loss, batch, epochs, optimizer, lr, momentum, schedule, gamma, image, mean, std,
     * sample */
    { "linear", "airfoil", FY_LOSS_MSE, 10, 2, FY_OPTIMIZER_SGD, 0.025, 0, FY_SCHEDULE_CONSTANT, 1, false, 0, 0, 1, { 5 } },
    { "mlp", "mnist", FY_LOSS_CROSS_ENTROPY, 64, 10, FY_OPTIMIZER_SGD, 0.1, 0, FY_SCHEDULE_CONSTANT, 1, true, 0, 0, MNIST_DIMS },
    { "lenet", "mnist", FY_LOSS_CROSS_ENTROPY, 256, 10, FY_OPTIMIZER_SGD, 0.2, 0, FY_SCHEDULE_CONSTANT, 1, true, 0, 0, MNIST_DIMS },
    { "mnist2018", "mnist", FY_LOSS_NLL, 64, 10, FY_OPTIMIZER_SGD, 0.01, 0.5, FY_SCHEDULE_CONSTANT, 1, true, MNIST_MEAN, MNIST_STD, MNIST_DIMS },
    { "mnist", "mnist", FY_LOSS_CROSS_ENTROPY, 64, 14, FY_OPTIMIZER_ADADELTA, 1, 0, FY_SCHEDULE_STEP, 0.7, true, MNIST_MEAN, MNIST_STD, MNIST_DIMS },
};
/* clang-format on */

const train_recipe_t *train_recipe_at(size_t index)
{
    return index < sizeof recipes / sizeof *recipes ? &recipes[index] : NULL;
}

const train_recipe_t *train_recipe_find(const char *model)
{
    const train_recipe_t *recipe;
    for (size_t i = 0; (recipe = train_recipe_at(i)); i++)
        if (model && strcmp(recipe->model, model) == 0) return recipe;
    return NULL;
}

void train_optimizer(const train_recipe_t *recipe, int choice, fy_optimizer_options_t *out_options)
{
    static const fy_optimizer_kind_t kinds[] = { FY_OPTIMIZER_SGD,   FY_OPTIMIZER_SGD,
                                                 FY_OPTIMIZER_SGD,   FY_OPTIMIZER_ADAM,
                                                 FY_OPTIMIZER_ADAMW, FY_OPTIMIZER_ADADELTA };
    fy_optimizer_defaults(choice ? kinds[choice] : recipe->optimizer, out_options,
                          sizeof *out_options);
    if (choice == 2) out_options->momentum = 0.9;
    /* The recipe's rate is of its kind of optimizer; another kind starts from its own usual one. */
    if (out_options->kind == recipe->optimizer) out_options->lr = recipe->lr;
    if (!choice) out_options->momentum = recipe->momentum;
}
