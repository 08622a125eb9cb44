/* Gradients of softmax and log_softmax along one axis, from dy and the result y: y (dy - sum(dy
 * y)), dy - exp(y) sum(dy). Rows are staged in blocks in the compute type, sums are f64; a row that
 * fits one block is read once, a longer one twice. Not here: softmax itself. */
#include "backends/kernels/rows.h"

enum { DY, Y, DX };

typedef struct rows {
    fy__lines_t lines;
    int is_log, accumulate;
} rows_t;

/* X(suffix, type) */
#define GRADIENT_ROW(sfx, T)                                                                    \
    static void gradient_row_##sfx(const rows_t *rows, const char *dy, const char *y, char *dx) \
    {                                                                                           \
        const fy__lines_t *lines = &rows->lines;                                                \
        const fy__loops_t *loops = lines->loops;                                                \
        const int32_t compute = lines->compute;                                                 \
        const fy__loop2_fn mul = loops->binary[FY__BINARY_MUL][compute];                        \
        const int64_t n = lines->n;                                                             \
        _Alignas(64) T left[FY__BLOCK], right[FY__BLOCK], out[FY__BLOCK], *x = out;             \
        const void *g = NULL, *r = NULL;                                                        \
        fy__sum_t sum = { .f = 0 };                                                             \
        for (int64_t i = 0; i < n; i += FY__BLOCK) {                                            \
            const int64_t m = n - i < FY__BLOCK ? n - i : FY__BLOCK;                            \
            g = fy__line_get(lines, DY, dy, i, m, left);                                        \
            r = fy__line_get(lines, Y, y, i, m, right);                                         \
            if (!rows->is_log) mul(m, x, g, r);                                                 \
            loops->sum_row[compute](m, rows->is_log ? g : x, &sum);                             \
        }                                                                                       \
        const T total = (T)sum.f;                                                               \
        for (int64_t i = 0; i < n; i += FY__BLOCK) {                                            \
            const int64_t m = n - i < FY__BLOCK ? n - i : FY__BLOCK;                            \
            if (n > FY__BLOCK) {                                                                \
                g = fy__line_get(lines, DY, dy, i, m, left);                                    \
                r = fy__line_get(lines, Y, y, i, m, right);                                     \
            }                                                                                   \
            if (!rows->accumulate) x = fy__line_in(lines, DX, dx, i, out);                      \
            if (rows->is_log) {                                                                 \
                loops->unary[FY__UNARY_EXP][compute](m, x, r);                                  \
                loops->affine[compute](m, x, x, total, 0);                                      \
                loops->binary[FY__BINARY_SUB][compute](m, x, g, x);                             \
            } else {                                                                            \
                loops->affine[compute](m, x, g, 1, -total);                                     \
                mul(m, x, r, x);                                                                \
            }                                                                                   \
            if (rows->accumulate) {                                                             \
                fy__line_load(lines, DX, dx, i, m, left);                                       \
                loops->binary[FY__BINARY_ADD][compute](m, x, x, left);                          \
            }                                                                                   \
            fy__line_store(lines, DX, dx, i, m, x);                                             \
        }                                                                                       \
    }
GRADIENT_ROW(f32, float)
GRADIENT_ROW(f64, double)

static void gradient_row(const void *context, int64_t i)
{
    const rows_t *rows = (const rows_t *)context;
    const char *dy = fy__line_at(&rows->lines, DY, i), *y = fy__line_at(&rows->lines, Y, i);
    char *dx = fy__line_at(&rows->lines, DX, i);
    if (rows->lines.compute == FY_DTYPE_F64)
        gradient_row_f64(rows, dy, y, dx);
    else
        gradient_row_f32(rows, dy, y, dx);
}

fy_status_t fy__run_softmax_backward(const fy_host_api_t *host, const fy__loops_t *loops,
                                     const fy_launch_t *launch)
{
    const int32_t dtype = launch->src->dtype;
    rows_t rows = { .is_log = launch->op == FY_OP_LOG_SOFTMAX_BACKWARD,
                    .accumulate = (launch->accumulate & 1u) != 0 };
    const fy__lines_t *lines = &rows.lines;
    (void)host;
    fy__lines_make(&rows.lines, loops, fy__compute_dtype(dtype),
                   ((const fy_axis_attrs_t *)launch->attrs)->axis, 3,
                   (const fy_desc_t *const[]){ &launch->src[0], &launch->src[1], launch->dst });
    if (lines->n > 0)
        fy__for_each(lines->count,
                     fy__threads_for(lines->count * lines->n,
                                     fy__serial_of(dtype, rows.is_log ? 12288 : 24576)),
                     gradient_row, &rows);
    return FY_STATUS_OK;
}
