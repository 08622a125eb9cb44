/* The training of experiment E2: linear regression by hand, every step four light requests, the
 * data resident on the device.
 * Not here: options and reporting (exp_minibatch.c), where the data come from (airfoil.c). */
#include "tools/cli/plan_models.h"
#include "tools/experiments/parts.h"

#include <math.h>
#include <stdio.h>

/* the bias is the weight of a column of ones */
enum { INPUTS = AIRFOIL_FEATURES + 1, COLUMNS = INPUTS + 1 };

const recipe_t recipes[RUN_COUNT] = {
    { "gd", TRAIN_ROWS, 10, 1.0, true },
    { "sgd", 1, 2, 0.005, false },
    { "mini100", 100, 2, 0.4, false },
    { "mini10", 10, 2, 0.05, false },
};

fy_status_t minibatch_upload(session_t *session, const fy_table_t *standardised,
                             fy_tensor_t **out_data)
{
    fy_tensor_t *rows, *table, *x, *y, *ones;
    fy_scope_t scope = fy_scope_begin("data");
    FY_TRY(fy_table_to_tensor(standardised, 0, TRAIN_ROWS, FY_DTYPE_F32, &rows));
    /* the heavy request */
    FY_TRY(fy_tensor_upload(rows, session->device, &(fy_transfer_options_t)FY_TRANSFER_OPTIONS_HERE,
                            &table));
    FY_TRY(fy_slice(table, 1, 0, AIRFOIL_FEATURES, &x));
    FY_TRY(fy_slice(table, 1, AIRFOIL_FEATURES, AIRFOIL_COLUMNS, &y));
    FY_TRY(fy_full(session->device, FY_DTYPE_F32, FY_DIMS(TRAIN_ROWS, 1), 1, &ones));
    FY_TRY(fy_concat(3, (fy_tensor_t *[]){ x, ones, y }, 1, out_data));
    fy_tensor_set_name(*out_data, "data");
    fy_scope_end(scope, 1, out_data);
    return FY_STATUS_OK;
}

/* x [rows, 6] and y [rows, 1] are views of rows begin .. end of `data`. */
static fy_status_t view_rows(fy_tensor_t *data, int64_t begin, int64_t end, fy_tensor_t **out_x,
                             fy_tensor_t **out_y)
{
    fy_tensor_t *rows;
    FY_TRY(fy_slice(data, 0, begin, end, &rows));
    FY_TRY(fy_slice(rows, 1, 0, INPUTS, out_x));
    return fy_slice(rows, 1, INPUTS, COLUMNS, out_y);
}

/* theta -= lr / rows * X^T (X theta - y): the gradient of mean((X theta - y)^2) / 2. */
static fy_status_t descend(fy_tensor_t *batch, int64_t begin, int64_t end, fy_tensor_t *theta,
                           double lr)
{
    fy_tensor_t *x, *y, *x_transposed, *prediction, *error, *gradient;
    fy_scope_t step = fy_scope_begin("step");
    FY_TRY(view_rows(batch, begin, end, &x, &y));
    FY_TRY(fy_transpose(x, NULL, &x_transposed));
    FY_TRY(fy_matmul(x, theta, &prediction));
    FY_TRY(fy_sub(prediction, y, &error));
    FY_TRY(fy_matmul(x_transposed, error, &gradient));
    FY_TRY(fy_axpy(theta, -lr / (double)(end - begin), gradient));
    fy_scope_end(step, 0, NULL);
    return FY_STATUS_OK;
}

/* For `ferry plan`: an epoch's beginning, with two steps. The data set has as many rows as a batch
 * needs. */
fy_status_t minibatch_plan_step(fy_device_t *device, int64_t batch, void *user)
{
    const int64_t rows = batch > TRAIN_ROWS ? batch : TRAIN_ROWS;
    fy_tensor_t *data, *theta, *rng, *order, *shuffled;
    (void)user;
    FY_TRY(fy_zeros(device, FY_DTYPE_F32, FY_DIMS(rows, COLUMNS), &data));
    FY_TRY(fy_rng_create(device, 1, &rng));
    fy_scope_t model = fy_scope_begin("model");
    FY_TRY(fy_scope_memory(FY_CATEGORY_WEIGHTS));
    FY_TRY(fy_zeros(device, FY_DTYPE_F32, FY_DIMS(INPUTS, 1), &theta));
    fy_scope_end(model, 1, &theta);
    FY_TRY(fy_randperm(rng, rows, &order));
    FY_TRY(fy_gather(data, order, &shuffled));
    for (int i = 0; i < 2; i++) FY_TRY(descend(shuffled, 0, batch, theta, 0.1));
    return FY_STATUS_OK;
}

/* The loss on all rows: downloads four bytes. Blocks. */
static fy_status_t evaluate(fy_tensor_t *data, fy_tensor_t *theta, double *out_loss)
{
    fy_tensor_t *x, *y, *prediction, *loss;
    fy_download_t *reply;
    fy_scope_t scope = fy_scope_begin("evaluate");
    FY_TRY(view_rows(data, 0, TRAIN_ROWS, &x, &y));
    FY_TRY(fy_matmul(x, theta, &prediction));
    FY_TRY(fy_mse_loss(prediction, y, &loss));
    FY_TRY(fy_tensor_download(loss, &(fy_transfer_options_t)FY_TRANSFER_OPTIONS_HERE, &reply));
    FY_TRY(fy_download_wait_f64(reply, FY_FOREVER, out_loss));
    *out_loss /= 2;
    fy_scope_end(scope, 0, NULL);
    return FY_STATUS_OK;
}

/* Weights [6, 1], made on the device: w ~ N(0, 0.01^2) and b = 0, or all zero. */
static fy_status_t make_theta(session_t *session, init_kind_t init, fy_tensor_t *rng,
                              fy_tensor_t **out_theta)
{
    fy_tensor_t *w, *b;
    if (init == INIT_ZERO)
        return fy_zeros(session->device, FY_DTYPE_F32, FY_DIMS(INPUTS, 1), out_theta);
    FY_TRY(fy_randn(rng, FY_DTYPE_F32, FY_DIMS(AIRFOIL_FEATURES, 1), 0, 0.01, &w));
    FY_TRY(fy_zeros(session->device, FY_DTYPE_F32, FY_DIMS(1, 1), &b));
    return fy_concat(2, (fy_tensor_t *[]){ w, b }, 0, out_theta);
}

/* A stopwatch that reads both clocks, with the device at rest when it is started and stopped. */
typedef struct stopwatch {
    double wall, model, wall_begin, model_begin;
} stopwatch_t;

/* Of an epoch, by both clocks. */
typedef struct seconds {
    double wall, model;
} seconds_t;

static void stopwatch_start(const session_t *session, stopwatch_t *watch)
{
    watch->model_begin = session_model_ns(session);
    watch->wall_begin = wall_ns();
}

/* Blocks: the submitted work must be done before its time is read. */
static fy_status_t stopwatch_stop(session_t *session, stopwatch_t *watch)
{
    FY_TRY(session_wait(session));
    watch->wall += wall_ns() - watch->wall_begin;
    watch->model += session_model_ns(session) - watch->model_begin;
    return FY_STATUS_OK;
}

static int64_t losses_to_record(const recipe_t *recipe)
{
    int64_t steps = (TRAIN_ROWS + recipe->batch - 1) / recipe->batch;
    return recipe->epochs * (recipe->record_steps ? steps : 0) +
           (recipe->record_steps ? 0 : recipe->epochs * TRAIN_ROWS / RECORD_EVERY);
}

/* No upload, and no download but the losses; two syncs a loss (stop the watch, read), one before
 * and one after. */
static fy_status_t guard_run(const recipe_t *recipe)
{
    uint64_t losses = (uint64_t)losses_to_record(recipe);
    fy_guard_options_t guard = FY_GUARD_OPTIONS_INIT;
    guard.upload_nbytes = 0;
    guard.peer_nbytes = 0;
    guard.download_nbytes = losses * sizeof(float);
    guard.syncs = 2 * losses + 2;
    return fy_scope_guard(&guard);
}

static fy_status_t run_epochs(session_t *session, fy_tensor_t *data, fy_tensor_t *theta,
                              fy_tensor_t *rng, const recipe_t *recipe, minibatch_t *out,
                              seconds_t *out_seconds)
{
    stopwatch_t watch = { 0 };
    int64_t seen = 0;
    /* warm-up, with lr 0: theta does not change */
    FY_TRY(descend(data, 0, recipe->batch, theta, 0));
    FY_TRY(session_wait(session));
    stopwatch_start(session, &watch);
    for (int64_t epoch = 0; epoch < recipe->epochs; epoch++) {
        fy_tensor_t *order, *shuffled;
        fy_scope_t scope = fy_scope_begin("epoch");
        FY_TRY(fy_randperm(rng, TRAIN_ROWS, &order));
        FY_TRY(fy_gather(data, order, &shuffled)); /* the permutation never leaves the device */
        for (int64_t begin = 0, end; begin < TRAIN_ROWS; begin = end) {
            /* the last batch is kept */
            end = begin + recipe->batch < TRAIN_ROWS ? begin + recipe->batch : TRAIN_ROWS;
            FY_TRY(descend(shuffled, begin, end, theta, recipe->lr));
            seen += end - begin;
            if ((!recipe->record_steps && seen % RECORD_EVERY) || out->count == MAX_LOSSES)
                continue;
            FY_TRY(stopwatch_stop(session, &watch));
            FY_TRY(evaluate(data, theta, &out->losses[out->count]));
            /* the downloaded bytes are zero */
            if (!session->info.numerics) out->losses[out->count] = NAN;
            out->seen[out->count++] = (double)seen;
            progress(recipe->name, seen, recipe->epochs * TRAIN_ROWS);
            stopwatch_start(session, &watch);
        }
        fy_scope_end(scope, 0, NULL);
    }
    FY_TRY(stopwatch_stop(session, &watch));
    *out_seconds = (seconds_t){ watch.wall / 1e9 / (double)recipe->epochs,
                                watch.model / 1e9 / (double)recipe->epochs };
    return FY_STATUS_OK;
}

static fy_status_t train_once(session_t *session, fy_tensor_t *data, const recipe_t *recipe,
                              init_kind_t init, int64_t seed, minibatch_t *out,
                              seconds_t *out_seconds)
{
    fy_tensor_t *rng, *theta;
    *out = (minibatch_t){ .recipe = recipe };
    fy_scope_t scope = fy_scope_begin(recipe->name);
    FY_TRY(guard_run(recipe));
    FY_TRY(fy_rng_create(session->device, seed, &rng));
    FY_TRY(make_theta(session, init, rng, &theta));
    fy_tensor_set_name(theta, "theta");
    FY_TRY(run_epochs(session, data, theta, rng, recipe, out, out_seconds));
    fy_scope_end(scope, 0, NULL);
    return FY_STATUS_OK;
}

fy_status_t minibatch_train(session_t *session, fy_tensor_t *data, const recipe_t *recipe,
                            init_kind_t init, int64_t seed, const effort_t *effort,
                            minibatch_t *out)
{
    char path[64];
    minibatch_t again;
    sample_t wall = { 0 }, model = { 0 };
    snprintf(path, sizeof path, "minibatch/%s", recipe->name);
    while (!effort_is_met(effort, session->info.is_simulated ? &model : &wall)) {
        const bool is_first = !wall.count;
        seconds_t seconds;
        FY_TRY(train_once(session, data, recipe, init, seed, is_first ? out : &again, &seconds));
        if (is_first) out->traffic = ledger_read(path);
        sample_add(&wall, seconds.wall);
        sample_add(&model, seconds.model);
    }
    out->sec_per_epoch = sample_spread(&wall);
    out->model_sec_per_epoch = sample_spread(&model);
    return FY_STATUS_OK;
}
