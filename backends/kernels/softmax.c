/* softmax and log_softmax along one axis. Rows are staged in blocks in the compute type; a row that
 * fits one block is read once.
 * For longer ones the result keeps the exponentials if it has the compute type; else they are
 * computed twice. No scratch of the row's length is needed. */
#include <math.h>

#include "backends/kernels/rows.h"

enum { SRC, DST };

typedef struct rows {
    fy__lines_t lines;
    int is_log;
} rows_t;

/* X(suffix, type) */
#define SOFTMAX_ROW(sfx, T)                                                             \
    static void softmax_row_##sfx(const rows_t *rows, const char *src, char *dst)       \
    {                                                                                   \
        const fy__lines_t *lines = &rows->lines;                                        \
        const fy__loop_scaled_fn affine = lines->loops->affine[lines->compute];         \
        const int64_t n = lines->n;                                                     \
        const int is_long = n > FY__BLOCK;                                              \
        const int keeps = lines->dtype[DST] == lines->compute && !rows->is_log;         \
        _Alignas(64) T block[FY__BLOCK], powers[FY__BLOCK], *y = powers;                \
        const void *x = NULL;                                                           \
        T max = -(T)INFINITY;                                                           \
        double sum = 0;                                                                 \
        for (int64_t i = 0; i < n; i += FY__BLOCK) {                                    \
            const int64_t m = n - i < FY__BLOCK ? n - i : FY__BLOCK;                    \
            x = fy__line_get(lines, SRC, src, i, m, block);                             \
            lines->loops->max_row[lines->compute](m, &max, x);                          \
        }                                                                               \
        for (int64_t i = 0; i < n; i += FY__BLOCK) {                                    \
            const int64_t m = n - i < FY__BLOCK ? n - i : FY__BLOCK;                    \
            if (is_long) x = fy__line_get(lines, SRC, src, i, m, block);                \
            if (keeps) y = fy__line_in(lines, DST, dst, i, powers);                     \
            sum += lines->loops->exp_row_##sfx(m, y, x, max);                           \
            if (keeps) fy__line_store(lines, DST, dst, i, m, y);                        \
        }                                                                               \
        for (int64_t i = 0; i < n; i += FY__BLOCK) {                                    \
            const int64_t m = n - i < FY__BLOCK ? n - i : FY__BLOCK;                    \
            if (is_long) x = fy__line_get(lines, SRC, src, i, m, block);                \
            y = fy__line_in(lines, DST, dst, i, powers);                                \
            if (rows->is_log) {                                                         \
                affine(m, y, x, 1, -max);                                               \
                affine(m, y, y, 1, -(T)log(sum));                                       \
            } else {                                                                    \
                if (keeps && y == powers) fy__line_load(lines, DST, dst, i, m, y);      \
                if (is_long && !keeps) (void)lines->loops->exp_row_##sfx(m, y, x, max); \
                affine(m, y, y, (T)(1 / sum), 0);                                       \
            }                                                                           \
            fy__line_store(lines, DST, dst, i, m, y);                                   \
        }                                                                               \
    }
SOFTMAX_ROW(f32, float)
SOFTMAX_ROW(f64, double)

static void softmax_row(const void *context, int64_t i)
{
    const rows_t *rows = (const rows_t *)context;
    const char *src = fy__line_at(&rows->lines, SRC, i);
    char *dst = fy__line_at(&rows->lines, DST, i);
    if (rows->lines.compute == FY_DTYPE_F64) {
        softmax_row_f64(rows, src, dst);
    } else {
        softmax_row_f32(rows, src, dst);
    }
}

fy_status_t fy__run_softmax(const fy_host_api_t *host, const fy__loops_t *loops,
                            const fy_launch_t *launch)
{
    const int32_t dtype = launch->src->dtype;
    rows_t rows = { .is_log = launch->op == FY_OP_LOG_SOFTMAX };
    const fy__lines_t *lines = &rows.lines;
    (void)host;
    fy__lines_make(&rows.lines, loops, fy__compute_dtype(dtype),
                   ((const fy_axis_attrs_t *)launch->attrs)->axis, 2,
                   (const fy_desc_t *const[]){ launch->src, launch->dst });
    if (lines->n > 0)
        fy__for_each(lines->count,
                     fy__threads_for(lines->count * lines->n, fy__serial_of(dtype, 12288)),
                     softmax_row, &rows);
    return FY_STATUS_OK;
}
