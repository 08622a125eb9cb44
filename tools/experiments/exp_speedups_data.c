/* Rows of `ferry experiment speedups` about data and what crosses: loader threads, losses read
 * late, wrapping, normalising.
 * Not here: the table of rows (exp_speedups.c). Numbers of rows: docs/experiments.md. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/experiments/parts.h"
#include "tools/experiments/exp_speedups.h"

/* ---- 2: several loader threads ---- */

enum { LOADED = 2048, LOADER_BATCH = 64 };

/* One epoch through a loader with so many threads; a running sum over the bits of its labels and
 * some pixels stands for the order. */
static fy_status_t load_epoch(session_t *session, const fy_dataset_t *digits, int workers,
                              uint64_t *out_order, double *out_ns)
{
    fy_loader_t *loader;
    fy_loader_options_t options = FY_LOADER_OPTIONS_INIT;
    options.batch = LOADER_BATCH;
    options.resident = 0;
    options.workers = workers;
    options.scale = 1.0 / 255;
    options.seed = 4;
    FY_TRY(fy_loader_create(session->device, digits, &options, &loader));
    fy_status_t status = FY_STATUS_OK;
    const double begin = wall_ns();
    *out_order = 14695981039346656037u;
    while (status == FY_STATUS_OK) {
        fy_tensor_t *x, *y;
        const fy_scope_t scope = fy_scope_begin("batch");
        float *pixels = NULL;
        uint64_t count = 0;
        status = fy_loader_next(loader, &x, &y);
        const int ended = status == FY_STATUS_OK && !x;
        if (status == FY_STATUS_OK && x) status = fetch_f32(x, &pixels, &count);
        for (uint64_t i = 0; i < count; i += 7) {
            uint32_t bits;
            memcpy(&bits, &pixels[i], sizeof bits);
            *out_order = (*out_order ^ bits) * 1099511628211u; /* FNV-1a */
        }
        free(pixels);
        fy_scope_end(scope, 0, NULL);
        if (ended) break;
    }
    *out_ns = wall_ns() - begin;
    fy_loader_destroy(loader);
    return status;
}

fy_status_t speedup_loader(session_t *session, speedup_t *out)
{
    const double batches = (double)LOADED / LOADER_BATCH;
    fy_dataset_t *digits;
    uint64_t order[5];
    double ns[5];
    FY_TRY(fy_dataset_synthetic_digits(LOADED, 1, &digits));
    fy_status_t status = FY_STATUS_OK;
    for (int workers = 0; workers <= 4 && status == FY_STATUS_OK; workers++)
        status = load_epoch(session, digits, workers, &order[workers], &ns[workers]);
    fy_dataset_destroy(digits);
    FY_TRY(status);
    out->without = ns[0] / batches;
    out->with = ns[2] / batches;
    out->ok = order[1] == order[0] && order[2] == order[0] && order[3] == order[0] &&
              order[4] == order[0];
    snprintf(out->held, sizeof out->held,
             "the same samples in the same order with 0 to 4 threads (%016llx)",
             (unsigned long long)order[0]);
    return FY_STATUS_OK;
}

/* ---- 7: losses are read when they are needed ---- */

enum { STEPS = 20 };

/* Twenty steps; how many downloads they asked for, and the last loss. */
static fy_status_t run_steps(net_t *net, int reads_each, double *out_downloads, double *out_loss)
{
    fy_tensor_t *loss = NULL;
    const uint64_t before = ledger_read("speedups").download.count;
    const fy_scope_t scope = fy_scope_begin("loop");
    if (!reads_each) FY_TRY(fy_scope_guard(&(fy_guard_options_t)FY_GUARD_LIGHT_ONLY));
    for (int i = 0; i < STEPS; i++) {
        fy_tensor_destroy(loss);
        FY_TRY(net_gradient(net, 0, net->batch, NULL, &loss));
        FY_TRY(net_descend(net, 0.1));
        if (reads_each) FY_TRY(fetch_f64(loss, out_loss));
    }
    fy_scope_end(scope, 1, &loss);
    *out_downloads = (double)(ledger_read("speedups").download.count - before);
    const fy_status_t status = fetch_f64(loss, out_loss);
    fy_tensor_destroy(loss);
    return status;
}

fy_status_t speedup_lazy_metrics(session_t *session, speedup_t *out)
{
    double loss[2];
    for (int lazy = 0; lazy < 2; lazy++) {
        net_t net;
        fy_status_t status = net_open(session->device, 64, &net);
        if (status == FY_STATUS_OK)
            status = run_steps(&net, !lazy, lazy ? &out->with : &out->without, &loss[lazy]);
        net_close(&net);
        FY_TRY(status);
    }
    out->ok = loss[0] == loss[1] && out->with == 0 && out->without == STEPS;
    snprintf(out->held, sizeof out->held,
             "0 downloads and 0 waits in %d steps, under a guard; the same loss, %.6f", STEPS,
             loss[1]);
    return FY_STATUS_OK;
}

/* ---- 12: wrap, don't copy ---- */

enum { WRAPPED = 4 << 20 }; /* elements */

fy_status_t speedup_wrap(session_t *session, speedup_t *out)
{
    (void)session;
    fy_tensor_t *copy, *wrapped;
    void *inside = NULL;
    float *own = tool_alloc(WRAPPED * sizeof *own);
    for (int i = 0; i < WRAPPED; i++) own[i] = (float)i;
    const double begin = wall_ns();
    fy_status_t status = fy_tensor_create(fy_device_host(), FY_DTYPE_F32, FY_DIMS(WRAPPED), &copy);
    if (status == FY_STATUS_OK) status = fy_tensor_map(copy, FY_ACCESS_WRITE, &inside);
    if (status == FY_STATUS_OK) memcpy(inside, own, WRAPPED * sizeof *own);
    const double middle = wall_ns();
    if (status == FY_STATUS_OK)
        status = fy_tensor_wrap(fy_device_host(), FY_DTYPE_F32, FY_DIMS(WRAPPED), own, NULL, NULL,
                                &wrapped);
    const double end = wall_ns();
    out->without = middle - begin;
    out->with = end - middle;
    if (status == FY_STATUS_OK) {
        own[5] = -1; /* seen by Ferry */
        float *seen = NULL;
        uint64_t count = 0;
        status = fy_tensor_map(wrapped, FY_ACCESS_READ_WRITE, &inside);
        out->ok = inside == own;
        if (status == FY_STATUS_OK) status = fy_fill(wrapped, 7); /* seen by the program */
        out->ok = out->ok && own[0] == 7 && own[WRAPPED - 1] == 7;
        own[5] = -1;
        if (status == FY_STATUS_OK) status = fetch_f32(wrapped, &seen, &count);
        out->ok = out->ok && seen && seen[5] == -1 && seen[6] == 7;
        free(seen);
        fy_tensor_destroy(wrapped);
        fy_tensor_destroy(copy);
    }
    free(own);
    snprintf(out->held, sizeof out->held,
             "one address, so 0 of %d bytes copied; writes are seen both ways",
             (int)(WRAPPED * sizeof(float)));
    return status;
}

/* ---- 17: normalised inputs ---- */

enum { DESCENTS = 10 };

/* Ten steps of gradient descent, lr 0.5, on mean((X theta - y)^2) / 2; the last loss, or what it
 * had become when it was no number. */
static double descend(const double *rows, uint64_t count, uint64_t cols)
{
    double theta[AIRFOIL_COLUMNS] = { 0 }, loss = 0;
    for (int step = 0; step <= DESCENTS; step++) {
        double gradient[AIRFOIL_COLUMNS] = { 0 };
        loss = 0;
        for (uint64_t r = 0; r < count; r++) {
            const double *row = rows + r * cols;
            double error = theta[cols - 1] - row[cols - 1];
            for (uint64_t c = 0; c + 1 < cols; c++) error += theta[c] * row[c];
            loss += error * error / 2;
            for (uint64_t c = 0; c + 1 < cols; c++) gradient[c] += error * row[c];
            gradient[cols - 1] += error;
        }
        loss /= (double)count;
        for (uint64_t c = 0; c < cols; c++) theta[c] -= 0.5 * gradient[c] / (double)count;
    }
    return loss;
}

static bool is_standard(const double *rows, uint64_t count, uint64_t cols)
{
    for (uint64_t c = 0; c < cols; c++) {
        double sum = 0, squares = 0;
        for (uint64_t r = 0; r < count; r++)
            sum += rows[r * cols + c], squares += rows[r * cols + c] * rows[r * cols + c];
        const double mean = sum / (double)count, std = sqrt(squares / (double)count - mean * mean);
        if (fabs(mean) > 1e-3 || fabs(std - 1) > 1e-3) return false;
    }
    return true;
}

fy_status_t speedup_normalise(session_t *session, speedup_t *out)
{
    (void)session;
    fy_table_t *table;
    /* as the measured ones: columns from 1e-3 to 1e4 */
    FY_TRY(fy_table_synthetic(1503, 1, &table));
    const uint64_t rows = fy_table_rows(table), cols = fy_table_cols(table);
    const double raw = descend(fy_table_values(table), rows, cols);
    out->without = raw;
    const fy_status_t status = fy_table_standardise(table, NULL, NULL);
    if (status == FY_STATUS_OK) {
        out->with = descend(fy_table_values(table), rows, cols);
        const bool diverged = !(raw < 1e6);
        if (diverged) out->without = NAN; /* no loss to compare with */
        out->ok = diverged && out->with < 0.5 && is_standard(fy_table_values(table), rows, cols);
        snprintf(out->held, sizeof out->held,
                 "mean 0 and std 1 to 1e-3 in %d columns; raw, the loss is at %.3g after %d steps: "
                 "it diverges",
                 (int)cols, raw, DESCENTS);
    }
    fy_table_destroy(table);
    return status;
}
