/* Tables: making, standardising, conversion to tensors.
 * Not here: reading and writing text (table_text.c), the synthetic data set (table_synthetic.c).
 * include/ferry/train/table.h documents each call. */
#include "table.h"

#include <ferry/device.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

fy_status_t fy_table_create(uint64_t rows, uint64_t cols, const double *values,
                            fy_table_t **out_table)
{
    FY_TRY(FYT_CLEAR_OUT("table_create", out_table));
    uint64_t count, nbytes;
    if (__builtin_mul_overflow(rows, cols, &count) ||
        __builtin_mul_overflow(count, sizeof(double), &nbytes) || nbytes > PTRDIFF_MAX)
        return FYT_FAIL(INVALID_ARGUMENT, "table_create: %llu x %llu values do not fit into memory",
                        (unsigned long long)rows, (unsigned long long)cols);
    fy_table_t *table = malloc(sizeof *table);
    double *own = calloc(count ? count : 1, sizeof(double));
    if (!table || !own) {
        free(table);
        free(own);
        return FYT_FAIL(OUT_OF_MEMORY, "table_create: no host memory for %llu bytes",
                        (unsigned long long)nbytes);
    }
    if (values && count) memcpy(own, values, nbytes);
    *table = (fy_table_t){ rows, cols, own };
    *out_table = table;
    return FY_STATUS_OK;
}

void fy_table_destroy(fy_table_t *table)
{
    if (!table) return;
    free(table->values);
    free(table);
}

uint64_t fy_table_rows(const fy_table_t *table) { return table ? table->rows : 0; }
uint64_t fy_table_cols(const fy_table_t *table) { return table ? table->cols : 0; }
double *fy_table_values(fy_table_t *table) { return table ? table->values : NULL; }

/* Two passes: the textbook form, which does not cancel as E[x^2] - E[x]^2 would. A constant column
 * has std 0 here, exactly:
 * by way of its rounded mean it would get a tiny one. */
static void column_moments(const fy_table_t *table, uint64_t col, double *out_mean, double *out_std)
{
    double sum = 0, squares = 0, rows = (double)table->rows, first = table->values[col];
    int is_constant = 1;
    for (uint64_t r = 0; r < table->rows; r++) {
        sum += table->values[r * table->cols + col];
        is_constant &= table->values[r * table->cols + col] == first;
    }
    double mean = sum / rows;
    for (uint64_t r = 0; r < table->rows; r++) {
        double d = table->values[r * table->cols + col] - mean;
        squares += d * d;
    }
    *out_mean = mean;
    *out_std = is_constant && isfinite(sum) ? 0 : sqrt(squares / rows);
}

fy_status_t fy_table_standardise(fy_table_t *table, double *out_mean, double *out_std)
{
    if (!table) return FYT_FAIL(INVALID_ARGUMENT, "table_standardise: table is NULL");
    if (!table->rows) return FYT_FAIL(BAD_VALUE, "table_standardise: no rows, so there is no mean");
    double *moments = malloc((table->cols ? table->cols : 1) * 2 * sizeof(double));
    if (!moments)
        return FYT_FAIL(OUT_OF_MEMORY,
                        "table_standardise: no host memory for the means of %llu columns",
                        (unsigned long long)table->cols);
    double *mean = moments, *std = moments + table->cols;
    fy_status_t status = FY_STATUS_OK;

    for (uint64_t c = 0; c < table->cols && status == FY_STATUS_OK; c++) {
        column_moments(table, c, &mean[c], &std[c]);
        if (!isfinite(mean[c]) || !isfinite(std[c]))
            status = FYT_FAIL(
                BAD_VALUE, "table_standardise: column %llu is not finite, or its squares overflow",
                (unsigned long long)c);
        else if (std[c] == 0)
            status = FYT_FAIL(
                BAD_VALUE,
                "table_standardise: column %llu is constant (%.9g in all %llu rows): drop it first",
                (unsigned long long)c, mean[c], (unsigned long long)table->rows);
    }
    if (status == FY_STATUS_OK) {
        for (uint64_t r = 0; r < table->rows; r++)
            for (uint64_t c = 0; c < table->cols; c++) {
                double *x = &table->values[r * table->cols + c];
                *x = (*x - mean[c]) / std[c];
            }
        if (out_mean) memcpy(out_mean, mean, table->cols * sizeof(double));
        if (out_std) memcpy(out_std, std, table->cols * sizeof(double));
    }
    free(moments);
    return status;
}

fy_status_t fy_table_to_tensor(const fy_table_t *table, uint64_t row_begin, uint64_t row_end,
                               fy_dtype_t dtype, fy_tensor_t **out_tensor)
{
    FY_TRY(FYT_CLEAR_OUT("table_to_tensor", out_tensor));
    if (!table) return FYT_FAIL(INVALID_ARGUMENT, "table_to_tensor: table is NULL");
    if (row_begin > row_end || row_end > table->rows)
        return FYT_FAIL(INVALID_ARGUMENT,
                        "table_to_tensor: rows %llu to %llu of a table with %llu rows",
                        (unsigned long long)row_begin, (unsigned long long)row_end,
                        (unsigned long long)table->rows);
    if (dtype != FY_DTYPE_F32 && dtype != FY_DTYPE_F64)
        return FYT_FAIL(INVALID_ARGUMENT,
                        "table_to_tensor: f32 or f64, not %s: cast the tensor instead",
                        fy_dtype_name(dtype));

    fy_tensor_t *tensor;
    void *data;
    const double *src = table->values + row_begin * table->cols;
    uint64_t count = (row_end - row_begin) * table->cols;
    FY_TRY(fy_tensor_create(fy_device_host(), dtype,
                            FY_DIMS((int64_t)(row_end - row_begin), (int64_t)table->cols),
                            &tensor));
    fy_status_t status = fy_tensor_map(tensor, FY_ACCESS_WRITE, &data);
    if (status != FY_STATUS_OK) {
        fy_tensor_destroy(tensor);
        return status;
    }
    if (dtype == FY_DTYPE_F64 && count) memcpy(data, src, count * sizeof(double));
    if (dtype == FY_DTYPE_F32)
        for (uint64_t i = 0; i < count; i++) ((float *)data)[i] = (float)src[i];
    *out_tensor = tensor;
    return FY_STATUS_OK;
}
