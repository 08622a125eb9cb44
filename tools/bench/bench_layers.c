/* `ferry bench train --layers`: times each convolution and each fully connected layer of an image
 * model, by direction, with GFLOP/s and the implementation. Weights have the model's shapes; only
 * the sizes of images are listed here.
 * Not here: whole steps (bench_train.c). Pooling, dropout and updates have no row, because memory
 * and not arithmetic bounds them. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <ferry/train/model.h>

#include "tools/bench/bench.h"

enum { MOST_ROWS = 64, CHANNELS = 3, NAME_SIZE = 64 };

typedef struct layer {
    const char *model, *name;
    int batch, height; /* images are square; 0: a fully connected layer */
} layer_t;

static const layer_t layers[] = {
    { "mnist", "conv1", 64, 28 },     { "mnist", "conv2", 64, 26 },
    { "mnist", "fc1", 64, 0 },        { "mnist", "fc2", 64, 0 },
    { "mnist2018", "conv1", 64, 28 }, { "mnist2018", "conv2", 64, 12 },
    { "mnist2018", "fc1", 64, 0 },    { "mnist2018", "fc2", 64, 0 },
    { "lenet", "conv1", 256, 28 },    { "lenet", "conv2", 256, 13 },
    { "lenet", "fc1", 256, 0 },       { "lenet", "fc2", 256, 0 },
};

_Static_assert(3 * sizeof layers / sizeof *layers <= MOST_ROWS,
               "rows of all layers in all directions");

/* One layer in one direction. */
typedef struct row {
    const layer_t *layer;
    const char *direction;
    fy_tensor_t *x, *w, *bias, *dy; /* dy: of the result's shape */
    double flops;
    char implementation[NAME_SIZE]; /* empty: the device does not tell */
} row_t;

static const fy_conv2d_attrs_t attrs = FY_CONV2D_ATTRS_INIT;

/* ---- the calls ---- */

static fy_status_t forward(void *context, int64_t iters)
{
    const row_t *row = context;
    for (int64_t i = 0; i < iters; i++) {
        fy_tensor_t *y;
        if (row->layer->height)
            FY_TRY(fy_conv2d(row->x, row->w, row->bias, &attrs, &y));
        else
            FY_TRY(fy_linear(row->x, row->w, row->bias, FY_ACTIVATION_NONE, &y));
        fy_tensor_destroy(y);
    }
    return FY_STATUS_OK;
}

static fy_status_t backward_input(void *context, int64_t iters)
{
    const row_t *row = context;
    const int size = row->layer->height;
    for (int64_t i = 0; i < iters; i++) {
        fy_tensor_t *dx;
        if (size)
            FY_TRY(fy_conv2d_backward_input(row->dy, row->w, &attrs, size, size, &dx));
        else
            FY_TRY(fy_matmul(row->dy, row->w, &dx));
        fy_tensor_destroy(dx);
    }
    return FY_STATUS_OK;
}

static fy_status_t backward_params(void *context, int64_t iters)
{
    const row_t *row = context;
    fy_tensor_info_t w = FY_TENSOR_INFO_INIT;
    FY_TRY(fy_tensor_query(row->w, &w));
    for (int64_t i = 0; i < iters; i++) {
        fy_tensor_t *dw, *db;
        if (row->layer->height)
            FY_TRY(fy_conv2d_backward_params(row->dy, row->x, &attrs, (int)w.dims[1],
                                             (int)w.dims[2], &dw, &db));
        else
            FY_TRY(fy_linear_backward_params(row->dy, row->x, &dw, &db));
        fy_tensor_destroy(dw);
        fy_tensor_destroy(db);
    }
    return FY_STATUS_OK;
}

static const struct direction {
    const char *name;
    bench_fn run;
} directions[] = { { "forward", forward },
                   { "backward input", backward_input },
                   { "backward params", backward_params } };

/* ---- the rows ---- */

static fy_status_t random_values(fy_tensor_t *rng, int rank, const int64_t *dims,
                                 fy_tensor_t **out_tensor)
{
    return fy_rand(rng, FY_DTYPE_F32, rank, dims, -1, 1, out_tensor);
}

/* The operands of `layer`, in the current scope. */
static fy_status_t make_operands(const layer_t *layer, fy_model_t *model, fy_tensor_t *rng,
                                 row_t *row)
{
    char name[NAME_SIZE];
    fy_param_t param = FY_PARAM_INIT;
    fy_tensor_info_t w = FY_TENSOR_INFO_INIT;
    snprintf(name, sizeof name, "%s.weight", layer->name);
    FY_TRY(fy_model_find_param(model, name, &param));
    FY_TRY(fy_tensor_query(param.value, &w));
    FY_TRY(random_values(rng, w.rank, w.dims, &row->w));
    FY_TRY(random_values(rng, 1, w.dims, &row->bias));
    if (layer->height) {
        const int64_t size = layer->height, out = size - w.dims[1] + 1;
        FY_TRY(random_values(
            rng, 4, (const int64_t[]){ layer->batch, size, size, w.dims[CHANNELS] }, &row->x));
        FY_TRY(random_values(rng, 4, (const int64_t[]){ layer->batch, out, out, w.dims[0] },
                             &row->dy));
        row->flops = 2.0 * layer->batch *
                     (double)(out * out * w.dims[0] * w.dims[1] * w.dims[2] * w.dims[CHANNELS]);
        return FY_STATUS_OK;
    }
    FY_TRY(random_values(rng, 2, (const int64_t[]){ layer->batch, w.dims[1] }, &row->x));
    FY_TRY(random_values(rng, 2, (const int64_t[]){ layer->batch, w.dims[0] }, &row->dy));
    row->flops = 2.0 * layer->batch * (double)(w.dims[0] * w.dims[1]);
    return FY_STATUS_OK;
}

/* Three rows a layer; two of a model's first, whose input needs no gradient. */
static fy_status_t make_rows(session_t *session, const char *prefix, row_t *rows,
                             bench_case_t *cases, size_t *out_count)
{
    fy_tensor_t *rng;
    *out_count = 0;
    FY_TRY(fy_rng_create(session->device, 1, &rng));
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
        const layer_t *layer = &layers[i];
        const int is_first = i == 0 || strcmp(layer->model, layers[i - 1].model) != 0;
        row_t row = { .layer = layer };
        fy_model_t *model;
        if (strncmp(layer->model, prefix, strlen(prefix)) != 0) continue;
        FY_TRY(fy_model_open(session->device, layer->model, NULL, &model));
        const fy_status_t status = make_operands(layer, model, rng, &row);
        fy_model_destroy(model);
        FY_TRY(status);
        for (size_t d = 0; d < sizeof directions / sizeof *directions; d++) {
            if (is_first && directions[d].run == backward_input) continue;
            const size_t n = (*out_count)++;
            rows[n] = row;
            rows[n].direction = directions[d].name;
            cases[n] =
                (bench_case_t){ .op = layer->name, .run = directions[d].run, .context = &rows[n] };
        }
    }
    return FY_STATUS_OK;
}

static void note_implementation(void *user, const char *key, const char *value)
{
    if (strcmp(key, "last_product") == 0) snprintf(user, NAME_SIZE, "%s", value);
}

static fy_status_t report(session_t *session, const row_t *rows, const bench_case_t *cases,
                          size_t count)
{
    static const column_t columns[] = {
        { "model", "model", 0 }, { "layer", "layer", 0 },       { "direction", "direction", 0 },
        { "ns", "ns", 0 },       { "worst_ns", "worst", 0 },    { "gflops", "GFLOP/s", 1 },
        { "batch", "batch", 0 }, { "implementation", "by", 0 }, { "model_ns", NULL, 0 },
    };
    char labels[MOST_ROWS][NAME_SIZE];
    const char *names[MOST_ROWS];
    double ns[MOST_ROWS];
    sheet_t *sheet = sheet_create(columns, sizeof columns / sizeof *columns);
    for (size_t i = 0; i < count; i++) {
        snprintf(labels[i], sizeof labels[i], "%s %s, %s", rows[i].layer->model,
                 rows[i].layer->name, rows[i].direction);
        names[i] = labels[i];
        ns[i] = cases[i].ns;
        sheet_text(sheet, rows[i].layer->model);
        sheet_text(sheet, rows[i].layer->name);
        sheet_text(sheet, rows[i].direction);
        sheet_real(sheet, cases[i].ns);
        sheet_real(sheet, cases[i].worst_ns);
        sheet_real(sheet, rows[i].flops / cases[i].ns);
        sheet_int(sheet, rows[i].layer->batch);
        sheet_text(sheet, *rows[i].implementation ? rows[i].implementation : NULL);
        sheet_real(sheet, cases[i].model_ns);
    }
    return bench_report(session, sheet,
                        &(bench_bars_t){ "layers of training steps", "What a layer costs", "layer",
                                         names, ns, count });
}

int bench_layers_has(const char *prefix)
{
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++)
        if (strncmp(layers[i].model, prefix, strlen(prefix)) == 0) return 1;
    return 0;
}

fy_status_t bench_layers_run(session_t *session, const char *prefix, const bench_effort_t *effort)
{
    row_t *rows = tool_alloc(MOST_ROWS * sizeof *rows);
    bench_case_t *cases = tool_alloc(MOST_ROWS * sizeof *cases);
    size_t count;
    fy_status_t status = make_rows(session, prefix, rows, cases, &count);
    if (status == FY_STATUS_OK) status = bench_measure(session, cases, count, effort);
    /* Once more each, to ask the device for the implementation. */
    for (size_t i = 0; status == FY_STATUS_OK && i < count; i++) {
        status = cases[i].run(&rows[i], 1);
        if (status == FY_STATUS_OK)
            status =
                fy_device_describe(session->device, note_implementation, rows[i].implementation);
    }
    if (status == FY_STATUS_OK) status = report(session, rows, cases, count);
    free(cases);
    free(rows);
    return status;
}
