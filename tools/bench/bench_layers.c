/* `ferry bench train --layers`: times each layer of a model, alone, by direction: with GFLOP/s and
 * the implementation where it multiplies, with bytes a second elsewhere. Layers of one type with
 * the same shapes are timed once and counted.
 * Not here: whole steps (bench_train.c), updates. Views (flatten, select, identity) have no row. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/bench/bench.h"
#include "tools/bench/roofline.h"
#include "tools/train/image_train.h"

enum { NAME_SIZE = 64, MOST_INPUTS = 16, MOST_PARAMS = 4, WAYS = 3, ELEMENT = 4 };

/* The models of `ferry bench train`, and another one. */
static const image_case_t more[] = { { .name = "mnist2018", .model = "mnist2018", .batch = 64 } };
enum { MODELS = IMAGE_CASES + 1 };
static const image_case_t *model_at(size_t i) { return i < IMAGE_CASES ? &image_cases[i] : more; }

/* A layer of the model, or several of one type with the same shapes. */
typedef struct layer {
    size_t index; /* of the first */
    fy_model_layer_info_t info;
    int count;
    int64_t in[MOST_INPUTS][FY_MAX_RANK + 1]; /* with the batch */
    int in_rank[MOST_INPUTS];
    fy_tensor_t *x[MOST_INPUTS], *seed; /* seed: of the result's shape */
    int is_trained[MOST_INPUTS];        /* the input needs a gradient */
    fy_param_t params[MOST_PARAMS];
    size_t nparams;
    double nbytes; /* of inputs, parameters and result */
} layer_t;

typedef enum way { BACKWARD_INPUT = 1, BACKWARD_PARAMS = 2, FORWARD = 4 } way_t;

/* One layer in one direction. */
typedef struct row {
    const layer_t *layer;
    session_t *session;
    fy_model_t *model;
    fy_tape_t *tape;
    const image_case_t *what;
    int ways; /* of way_t */
    /* of the last rounds, a call: a backward is timed without its forward */
    double ns[ROUNDS_MOST], model_ns;
    size_t rounds;
    double flops, nbytes;           /* 0: left out */
    char implementation[NAME_SIZE]; /* empty: the device does not tell */
} row_t;

/* ---- the calls ---- */

static fy_status_t run_forward(void *context, int64_t iters)
{
    const row_t *row = context;
    for (int64_t i = 0; i < iters; i++) {
        fy_tensor_t *y;
        FY_TRY(fy_model_layer_forward(row->model, row->layer->index, row->layer->x, &y));
        fy_tensor_destroy(y);
    }
    return FY_STATUS_OK;
}

static fy_status_t watch(const row_t *row)
{
    const layer_t *layer = row->layer;
    if (row->ways & BACKWARD_INPUT)
        for (size_t i = 0; i < layer->info.ninputs; i++)
            if (layer->is_trained[i]) FY_TRY(fy_tape_watch(row->tape, layer->x[i], NULL));
    if (row->ways & BACKWARD_PARAMS)
        for (size_t i = 0; i < layer->nparams; i++)
            FY_TRY(fy_tape_watch(row->tape, layer->params[i].value, layer->params[i].grad));
    return FY_STATUS_OK;
}

static fy_status_t backward_once(row_t *row, double *ns, double *model_ns)
{
    fy_backward_options_t options = FY_BACKWARD_OPTIONS_INIT;
    fy_tensor_t *y;
    options.seed = row->layer->seed;
    FY_TRY(fy_tape_begin(row->tape));
    FY_TRY(watch(row));
    FY_TRY(fy_model_layer_forward(row->model, row->layer->index, row->layer->x, &y));
    FY_TRY(session_wait(row->session));
    const double begin = wall_ns(), model_begin = session_model_ns(row->session);
    FY_TRY(fy_tape_backward(row->tape, y, &options));
    FY_TRY(session_wait(row->session));
    *ns += wall_ns() - begin;
    *model_ns += session_model_ns(row->session) - model_begin;
    return FY_STATUS_OK;
}

static fy_status_t run_backward(void *context, int64_t iters)
{
    row_t *row = context;
    double ns = 0, model_ns = 0;
    for (int64_t i = 0; i < iters; i++) {
        fy_scope_t scope = fy_scope_begin("backward");
        const fy_status_t status = backward_once(row, &ns, &model_ns);
        fy_scope_end(scope, 0, NULL);
        FY_TRY(status);
    }
    row->ns[row->rounds++ % ROUNDS_MOST] = ns / (double)iters;
    row->model_ns = model_ns / (double)iters;
    return FY_STATUS_OK;
}

/* Replaces the times of forward and backward by those of the backward of the last rounds. */
static void take_backward(row_t *row, bench_case_t *c)
{
    sample_t last = { 0 };
    for (size_t i = 0; i < c->spread.rounds; i++)
        sample_add(&last, row->ns[(row->rounds - 1 - i) % ROUNDS_MOST]);
    c->spread = sample_spread(&last);
    c->model_ns = row->model_ns;
}

/* ---- the layers ---- */

static int is_view(const char *type)
{
    return strcmp(type, "identity") == 0 || strcmp(type, "flatten") == 0 ||
           strcmp(type, "select") == 0;
}

/* Shapes and parameters of layer `index`, without tensors. */
static fy_status_t describe(fy_model_t *model, const image_case_t *what, size_t index,
                            layer_t *layer)
{
    *layer = (layer_t){ .info = FY_MODEL_LAYER_INFO_INIT, .count = 1, .index = index };
    FY_TRY(fy_model_layer(model, index, &layer->info));
    fy_model_layer_info_t *info = &layer->info;
    for (size_t i = 0; i < info->ninputs; i++) {
        fy_model_layer_info_t from = FY_MODEL_LAYER_INFO_INIT;
        layer->in[i][0] = what->batch;
        layer->is_trained[i] = info->inputs[i] != SIZE_MAX;
        if (layer->is_trained[i]) {
            FY_TRY(fy_model_layer(model, info->inputs[i], &from));
            memcpy(layer->in[i] + 1, from.out_dims, sizeof from.out_dims);
        } else {
            FY_TRY(fy_model_sample_shape(what->model, &from.out_rank, layer->in[i] + 1));
        }
        layer->in_rank[i] = from.out_rank + 1;
    }
    fy_model_layer_info_t owner = *info;
    if (info->norm != SIZE_MAX) FY_TRY(fy_model_layer(model, info->norm, &owner));
    for (size_t i = 0; i < owner.nparams && layer->nparams < MOST_PARAMS; i++) {
        fy_param_t *param = &layer->params[layer->nparams++];
        *param = (fy_param_t)FY_PARAM_INIT;
        FY_TRY(fy_model_param(model, owner.first_param + i, param));
    }
    if (info->tied_param == SIZE_MAX || layer->nparams == MOST_PARAMS) return FY_STATUS_OK;
    layer->params[layer->nparams] = (fy_param_t)FY_PARAM_INIT;
    return fy_model_param(model, info->tied_param, &layer->params[layer->nparams++]);
}

static fy_status_t is_same(const layer_t *a, const layer_t *b, int *out_same)
{
    *out_same = strcmp(a->info.type, b->info.type) == 0 && a->info.ninputs == b->info.ninputs &&
                a->info.macs == b->info.macs && a->info.out_rank == b->info.out_rank &&
                a->nparams == b->nparams &&
                (a->info.norm == SIZE_MAX) == (b->info.norm == SIZE_MAX) &&
                memcmp(a->info.out_dims, b->info.out_dims, sizeof a->info.out_dims) == 0 &&
                memcmp(a->in, b->in, sizeof a->in) == 0 &&
                memcmp(a->is_trained, b->is_trained, sizeof a->is_trained) == 0;
    for (size_t i = 0; *out_same && i < a->nparams; i++) {
        fy_tensor_info_t p = FY_TENSOR_INFO_INIT, q = FY_TENSOR_INFO_INIT;
        FY_TRY(fy_tensor_query(a->params[i].value, &p));
        FY_TRY(fy_tensor_query(b->params[i].value, &q));
        *out_same = p.rank == q.rank && memcmp(p.dims, q.dims, sizeof p.dims) == 0;
    }
    return FY_STATUS_OK;
}

/* The layers that run, equal ones once. */
static fy_status_t list_layers(fy_model_t *model, const image_case_t *what, layer_t *layers,
                               size_t *out_count)
{
    const size_t most = fy_model_layer_count(model);
    size_t count = 0;
    for (size_t i = 0; i < most; i++) {
        layer_t *layer = &layers[count];
        int same = 0;
        FY_TRY(describe(model, what, i, layer));
        if (layer->info.is_fused || is_view(layer->info.type)) continue;
        for (size_t j = 0; !same && j < count; j++) {
            FY_TRY(is_same(&layers[j], layer, &same));
            layers[j].count += same;
        }
        count += !same;
    }
    *out_count = count;
    return FY_STATUS_OK;
}

/* Inputs and seed, in the current scope. */
static fy_status_t make_tensors(session_t *session, fy_tensor_t *rng, layer_t *layer)
{
    const fy_model_layer_info_t *info = &layer->info;
    int64_t dims[FY_MAX_RANK + 1] = { layer->in[0][0] };
    fy_tensor_info_t facts = FY_TENSOR_INFO_INIT;
    for (size_t i = 0; i < layer->nparams; i++) {
        FY_TRY(fy_tensor_query(layer->params[i].value, &facts));
        layer->nbytes += (double)facts.nbytes;
    }
    for (size_t i = 0; i < info->ninputs; i++) {
        if (strcmp(info->type, "embedding") == 0) {
            layer->nbytes = 0; /* of the table only the rows */
            FY_TRY(image_tokens(session->device, layer->in_rank[i], layer->in[i],
                                facts.dims[0] > 0 ? facts.dims[0] : 1, &layer->x[i]));
        } else {
            FY_TRY(
                fy_rand(rng, FY_DTYPE_F32, layer->in_rank[i], layer->in[i], -1, 1, &layer->x[i]));
        }
        FY_TRY(fy_tensor_query(layer->x[i], &facts));
        layer->nbytes += (double)facts.nbytes;
    }
    memcpy(dims + 1, info->out_dims, (size_t)info->out_rank * sizeof *dims);
    FY_TRY(fy_rand(rng, FY_DTYPE_F32, info->out_rank + 1, dims, -1, 1, &layer->seed));
    FY_TRY(fy_tensor_query(layer->seed, &facts));
    layer->nbytes += (double)facts.nbytes;
    return FY_STATUS_OK;
}

/* ---- the rows ---- */

static void add_row(const row_t *like, int ways, row_t *rows, bench_case_t *cases, size_t *count)
{
    const size_t n = (*count)++;
    const layer_t *layer = like->layer;
    const double flops = 2.0 * like->what->batch * (double)layer->info.macs;
    /* A product has one for each of its gradients; attention, without parameters, has two operands
     * in each. */
    const int both = ways & BACKWARD_INPUT && (!layer->nparams || ways & BACKWARD_PARAMS);
    rows[n] = *like;
    rows[n].ways = ways;
    rows[n].flops = both ? 2 * flops : flops;
    /* backward reads the inputs and the result's gradient, and writes those of the inputs */
    rows[n].nbytes = flops > 0 ? 0 : layer->nbytes;
    if (rows[n].nbytes > 0 && ways & BACKWARD_INPUT)
        for (size_t i = 0; i < layer->info.ninputs; i++) {
            double nelem = 1;
            for (int d = 0; d < layer->in_rank[i]; d++) nelem *= (double)layer->in[i][d];
            rows[n].nbytes += ELEMENT * nelem;
        }
    cases[n] = (bench_case_t){ .op = layer->info.name,
                               .run = ways == FORWARD ? run_forward : run_backward,
                               .context = &rows[n] };
}

/* Gradients of a product's input and of its parameters are different calls: a row each. */
static void add_rows(const row_t *like, row_t *rows, bench_case_t *cases, size_t *count)
{
    const layer_t *layer = like->layer;
    int input = 0;
    for (size_t i = 0; i < layer->info.ninputs; i++) input |= layer->is_trained[i];
    const int back = (input ? BACKWARD_INPUT : 0) | (layer->nparams ? BACKWARD_PARAMS : 0);
    add_row(like, FORWARD, rows, cases, count);
    if (layer->info.macs && layer->nparams) {
        if (input) add_row(like, BACKWARD_INPUT, rows, cases, count);
        add_row(like, BACKWARD_PARAMS, rows, cases, count);
    } else if (back) {
        add_row(like, back, rows, cases, count);
    }
}

static const char *direction_of(const row_t *row)
{
    const int splits = row->layer->info.macs && row->layer->nparams;
    if (row->ways == FORWARD) return "forward";
    if (!splits) return "backward";
    return row->ways == BACKWARD_INPUT ? "backward input" : "backward params";
}

static void note_implementation(void *user, const char *key, const char *value)
{
    if (strcmp(key, "last_product") == 0) snprintf(user, NAME_SIZE, "%s", value);
}

/* Once more each, to ask the device for the implementation. */
static fy_status_t note(session_t *session, row_t *rows, bench_case_t *cases, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (rows[i].flops <= 0 || !rows[i].layer->nparams) continue;
        FY_TRY(cases[i].run(&rows[i], 1));
        FY_TRY(fy_device_describe(session->device, note_implementation, rows[i].implementation));
    }
    return FY_STATUS_OK;
}

/* ---- the table ---- */

static const column_t columns[] = {
    { "model", "model", 0 },
    { "layer", "layer", 0 },
    { "direction", "direction", 0 },
    { "count", "layers", 0 },
    SPREAD_COLUMNS("ns", "ns", 0),
    { "worst_ns", "worst", 0 },
    { "share", "of all", 3 },
    { "gflops", "GFLOP/s", 1 },
    { "gb_per_s", "GB/s", 1 },
    { "roofline_share", "of roofline", 2 },
    { "batch", "batch", 0 },
    { "type", "type", 0 },
    { "implementation", "by", 0 },
    { "model_ns", NULL, 0 },
    ROUNDS_COLUMN,
};

/* roofline: GFLOP/s; NaN: not known */
static void put_rows(sheet_t *sheet, const row_t *rows, const bench_case_t *cases, size_t count,
                     double roofline)
{
    double all = 0;
    for (size_t i = 0; i < count; i++) all += cases[i].spread.median * rows[i].layer->count;
    for (size_t i = 0; i < count; i++) {
        const row_t *row = &rows[i];
        const double ns = cases[i].spread.median;
        sheet_text(sheet, row->what->name);
        sheet_text(sheet, row->layer->info.name);
        sheet_text(sheet, direction_of(row));
        sheet_int(sheet, row->layer->count);
        sheet_spread(sheet, &cases[i].spread);
        sheet_real(sheet, cases[i].spread.worst);
        sheet_real(sheet, ns * row->layer->count / all);
        sheet_real(sheet, row->flops > 0 ? row->flops / ns : NAN);
        sheet_real(sheet, row->nbytes > 0 ? row->nbytes / ns : NAN);
        sheet_real(sheet, row->flops > 0 ? row->flops / ns / roofline : NAN);
        sheet_int(sheet, row->what->batch);
        sheet_text(sheet,
                   row->layer->info.norm == SIZE_MAX ? row->layer->info.type : "batch_norm, add");
        sheet_text(sheet, *row->implementation ? row->implementation : NULL);
        sheet_real(sheet, cases[i].model_ns);
        sheet_int(sheet, (int64_t)cases[i].spread.rounds);
    }
}

typedef struct bars {
    char (*labels)[2 * NAME_SIZE];
    const char **names;
    spread_t *ns;
    size_t count, room;
} bars_t;

static void put_bars(bars_t *bars, const row_t *rows, const bench_case_t *cases, size_t count)
{
    for (size_t i = 0; i < count && bars->count < bars->room; i++, bars->count++) {
        snprintf(bars->labels[bars->count], sizeof *bars->labels, "%.40s %.50s, %s",
                 rows[i].what->name, rows[i].layer->info.name, direction_of(&rows[i]));
        bars->names[bars->count] = bars->labels[bars->count];
        bars->ns[bars->count] = spread_scale(rows[i].layer->count, &cases[i].spread);
    }
}

/* One model's rows: measured together, then added to the table. */
static fy_status_t measure(session_t *session, row_t *like, layer_t *layers, row_t *rows,
                           bench_case_t *cases, const effort_t *effort, double roofline,
                           sheet_t *sheet, bars_t *bars)
{
    size_t nlayers, count = 0;
    fy_tensor_t *rng;
    FY_TRY(fy_rng_create(session->device, 1, &rng));
    FY_TRY(fy_tape_create(&like->tape));
    FY_TRY(list_layers(like->model, like->what, layers, &nlayers));
    for (size_t i = 0; i < nlayers; i++) {
        FY_TRY(make_tensors(session, rng, &layers[i]));
        like->layer = &layers[i];
        add_rows(like, rows, cases, &count);
    }
    FY_TRY(bench_measure(session, cases, count, effort));
    for (size_t i = 0; i < count; i++)
        if (rows[i].ways != FORWARD) take_backward(&rows[i], &cases[i]);
    FY_TRY(note(session, rows, cases, count));
    put_rows(sheet, rows, cases, count, roofline);
    put_bars(bars, rows, cases, count);
    return FY_STATUS_OK;
}

static fy_status_t run_model(session_t *session, const image_case_t *what, const effort_t *effort,
                             double roofline, sheet_t *sheet, bars_t *bars)
{
    row_t like = { .session = session, .what = what };
    FY_TRY(fy_model_open(session->device, what->model, NULL, &like.model));
    const size_t most = fy_model_layer_count(like.model);
    layer_t *layers = tool_alloc(most * sizeof *layers);
    row_t *rows = tool_alloc(WAYS * most * sizeof *rows);
    bench_case_t *cases = tool_alloc(WAYS * most * sizeof *cases);
    fy_scope_t scope = fy_scope_begin("layers");
    const fy_status_t status =
        measure(session, &like, layers, rows, cases, effort, roofline, sheet, bars);
    fy_scope_end(scope, 0, NULL);
    fy_model_destroy(like.model);
    free(cases);
    free(rows);
    free(layers);
    return status;
}

static int begins(const image_case_t *what, const char *prefix)
{
    return strncmp(what->name, prefix, strlen(prefix)) == 0;
}

int bench_layers_has(const char *prefix)
{
    for (size_t i = 0; i < MODELS; i++)
        if (begins(model_at(i), prefix)) return 1;
    return 0;
}

fy_status_t bench_layers_run(session_t *session, const char *prefix, const effort_t *effort)
{
    enum { MOST_BARS = 1024 };
    const int runs_on_cpu = strncmp(fy_device_name(session->device), "cuda", 4) != 0;
    const double roofline = runs_on_cpu ? roofline_gflops((int)sysconf(_SC_NPROCESSORS_ONLN)) : NAN;
    sheet_t *sheet = sheet_create(columns, sizeof columns / sizeof *columns);
    bars_t bars = { tool_alloc(MOST_BARS * sizeof *bars.labels),
                    tool_alloc(MOST_BARS * sizeof *bars.names),
                    tool_alloc(MOST_BARS * sizeof *bars.ns), 0, MOST_BARS };
    fy_status_t status = FY_STATUS_OK;
    for (size_t i = 0; status == FY_STATUS_OK && i < MODELS; i++)
        if (begins(model_at(i), prefix))
            status = run_model(session, model_at(i), effort, roofline, sheet, &bars);
    if (status == FY_STATUS_OK)
        status = bench_report(session, sheet, effort,
                              &(bench_bars_t){ "layers of training steps", "What a layer costs",
                                               "layer", bars.names, bars.ns, bars.count });
    else
        sheet_destroy(sheet);
    free(bars.labels);
    free(bars.names);
    free(bars.ns);
    return status;
}
