/* The known models by name, and their options: "resnet18:channels=3,classes=100".
 * Not here: their layers (models_*.c), their usual training (the command's table,
 * tools/train/train_recipes.c). */
#include "models.h"
#include "model.h"
#include "train/abi.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_OPTIONS = 5 };

typedef struct option {
    const char *name;
    int64_t fallback, low, high;
} option_t;

typedef struct known {
    const char *name;
    fy_status_t (*make)(const int64_t *options, fy_layer_t **);
    /* the shape of a sample: a number, or -1 - i: the value of option i */
    int rank;
    int64_t dims[3];
    option_t options[MAX_OPTIONS];
} known_t;

#define OPTION(i) (-1 - (i))

static const known_t known[] = {
    { "linear", fyt_make_linear, 1, { 5 }, { { 0 } } },
    { "mlp", fyt_make_mlp, 3, { 28, 28, 1 }, { { 0 } } },
    { "lenet", fyt_make_lenet, 3, { 28, 28, 1 }, { { 0 } } },
    { "mnist2018", fyt_make_mnist2018, 3, { 28, 28, 1 }, { { 0 } } },
    { "mnist", fyt_make_mnist, 3, { 28, 28, 1 }, { { 0 } } },
    { "resnet18",
      fyt_make_resnet18,
      3,
      { OPTION(2), OPTION(2), OPTION(0) },
      { { "channels", 1, 1, 1024 }, { "classes", 10, 1, 1 << 20 }, { "size", 28, 1, 4096 } } },
    { "mobilenet_v3_large",
      fyt_make_mobilenet_v3_large,
      3,
      { OPTION(2), OPTION(2), OPTION(0) },
      { { "channels", 3, 1, 1024 },
        { "classes", 1000, 1, 1 << 20 },
        { "size", 224, 1, 4096 },
        { "dropout", 20, 0, 100 } } },
    { "vit_tiny",
      fyt_make_vit_tiny,
      3,
      { OPTION(2), OPTION(2), OPTION(0) },
      { { "channels", 3, 1, 1024 },
        { "classes", 1000, 1, 1 << 20 },
        { "size", 224, 1, 4096 },
        { "patch", 16, 1, 4096 },
        { "layers", 12, 1, 128 } } },
    { "gpt",
      fyt_make_gpt,
      1,
      { OPTION(3) },
      { { "layers", 12, 1, 128 },
        { "heads", 12, 1, 1024 },
        { "width", 768, 1, 1 << 16 },
        { "context", 1024, 1, 1 << 20 },
        { "vocab", 50257, 1, 1 << 24 } } },
};
enum { KNOWN = FYT_COUNT(known) };

const char *fy_model_name_at(size_t index) { return index < KNOWN ? known[index].name : NULL; }

/* "layers, heads, width": the names of a model's options, or of all models. */
static const char *list(const known_t *model, char *text, size_t size)
{
    size_t used = 0;
    const int count = model ? MAX_OPTIONS : KNOWN;
    text[0] = 0;
    for (int i = 0; i < count && used < size; i++) {
        const char *name = model ? model->options[i].name : known[i].name;
        if (!name) break;
        used += (size_t)snprintf(text + used, size - used, "%s%s", i ? ", " : "", name);
    }
    return used ? text : "none";
}

static fy_status_t find(const char *name, const known_t **out_model)
{
    char names[192];
    const size_t length = strcspn(name, ":");
    for (size_t i = 0; i < KNOWN; i++) {
        *out_model = &known[i];
        if (strlen(known[i].name) == length && memcmp(known[i].name, name, length) == 0)
            return FY_STATUS_OK;
    }
    return FYT_FAIL(INVALID_ARGUMENT, "model_open: there is no model '%.*s'; there are %s",
                    (int)(length < 64 ? length : 64), name, list(NULL, names, sizeof names));
}

/* Digits only: no sign, no space. 0: anything else, or a number past INT64_MAX. */
static int parse_digits(const char *text, const char *end, int64_t *out_value)
{
    *out_value = 0;
    for (const char *at = text; at < end; at++)
        if (*at < '0' || *at > '9' || __builtin_mul_overflow(*out_value, 10, out_value) ||
            __builtin_add_overflow(*out_value, *at - '0', out_value))
            return 0;
    return text < end;
}

/* "name=value", which ends at `end`. */
static fy_status_t parse_option(const known_t *model, const char *text, const char *end,
                                int64_t *values, unsigned *given)
{
    char names[192];
    const int length = (int)(end - text < 64 ? end - text : 64);
    const char *equals = memchr(text, '=', (size_t)(end - text));
    const size_t name_length = equals ? (size_t)(equals - text) : 0;
    int i = 0;
    while (i < MAX_OPTIONS && model->options[i].name &&
           (strlen(model->options[i].name) != name_length ||
            memcmp(model->options[i].name, text, name_length) != 0))
        i++;
    if (!equals || i == MAX_OPTIONS || !model->options[i].name)
        return FYT_FAIL(INVALID_ARGUMENT,
                        "model_open: '%s' has no option '%.*s'; options are written name=value, "
                        "with a comma between two; it has %s",
                        model->name, length, text, list(model, names, sizeof names));
    const option_t *option = &model->options[i];
    int64_t value;
    if (!parse_digits(equals + 1, end, &value) || value < option->low || value > option->high)
        return FYT_FAIL(INVALID_ARGUMENT,
                        "model_open: '%s': '%.*s': %s is a number from %lld to %lld, in digits "
                        "only",
                        model->name, length, text, option->name, (long long)option->low,
                        (long long)option->high);
    if (*given & 1u << i)
        return FYT_FAIL(INVALID_ARGUMENT, "model_open: '%s': %s is given twice: once is enough",
                        model->name, option->name);
    *given |= 1u << i;
    values[i] = value;
    return FY_STATUS_OK;
}

/* `text`: what follows the model's name; "" or ":...". */
static fy_status_t parse_options(const known_t *model, const char *text, int64_t *values)
{
    unsigned given = 0; /* bits, by option */
    for (int i = 0; i < MAX_OPTIONS; i++) values[i] = model->options[i].fallback;
    while (*text) {
        text++; /* behind ':' or ',' */
        const char *end = text + strcspn(text, ",");
        FY_TRY(parse_option(model, text, end, values, &given));
        text = end;
    }
    return FY_STATUS_OK;
}

static void sample_shape(const known_t *model, const int64_t *values, int64_t *dims)
{
    for (int i = 0; i < model->rank; i++)
        dims[i] = model->dims[i] < 0 ? values[-1 - model->dims[i]] : model->dims[i];
}

fy_status_t fy_model_sample_shape(const char *name, int *out_rank, int64_t *out_dims)
{
    const known_t *model;
    int64_t values[MAX_OPTIONS];
    if (!name || !out_rank || !out_dims)
        return FYT_FAIL(INVALID_ARGUMENT, "model_sample_shape: name, out_rank or out_dims is NULL");
    FY_TRY(find(name, &model));
    FY_TRY(parse_options(model, name + strlen(model->name), values));
    *out_rank = model->rank;
    sample_shape(model, values, out_dims);
    return FY_STATUS_OK;
}

fy_status_t fy_model_open(fy_device_t *device, const char *name, const fy_model_options_t *options,
                          fy_model_t **out_model)
{
    fy_model_options_t own;
    fy_layer_t *layer;
    const known_t *model;
    int64_t values[MAX_OPTIONS], dims[3];
    if (out_model) *out_model = NULL;
    if (!name) return FYT_FAIL(INVALID_ARGUMENT, "model_open: name is NULL");
    FY_TRY(find(name, &model));
    FY_TRY(parse_options(model, name + strlen(model->name), values));
    FY_TRY(FY__READ(model_options, "model_open", options, &own));
    if (!own.name) own.name = model->name;
    FY_TRY(model->make(values, &layer));
    sample_shape(model, values, dims);
    return fy_model_create(device, layer, model->rank, dims, &own, out_model);
}
