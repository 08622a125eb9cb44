/* Gradients of softmax and log_softmax along one axis, from dy and the result y: y (dy - sum(dy
 * y)), dy - exp(y) sum(dy). Rows are staged in blocks in the compute type, sums are f64; a row that
 * fits one block is read once, a longer one twice. Not here: softmax itself. */
#include "opset/formulas/index.h"
#include "backends/kernels/rows.h"

typedef struct rows {
    const fy__loops_t *loops;
    int32_t dtype, compute;
    int is_log, shift, accumulate;
    int64_t n, dy_stride, y_stride, dx_stride; /* along the axis */
    int rank;                                  /* the other axes */
    int64_t dims[FY_MAX_RANK], dy_strides[FY_MAX_RANK], y_strides[FY_MAX_RANK],
        dx_strides[FY_MAX_RANK];
    const char *dy, *y;
    char *dx;
} rows_t;

static void load(const rows_t *rows, const char *from, int64_t stride, int64_t first, int64_t m,
                 void *block)
{
    fy__stage_in(rows->loops, m, block, rows->compute,
                 from + first * stride * ((int64_t)1 << rows->shift), stride, rows->dtype);
}

/* X(suffix, type) */
#define GRADIENT_ROW(sfx, T)                                                                    \
    static void gradient_row_##sfx(const rows_t *rows, const char *dy, const char *y, char *dx) \
    {                                                                                           \
        const fy__loops_t *loops = rows->loops;                                                 \
        const int64_t n = rows->n;                                                              \
        _Alignas(64) T g[FY__BLOCK], r[FY__BLOCK], x[FY__BLOCK];                                \
        fy__sum_t sum = { .f = 0 };                                                             \
        for (int64_t i = 0; i < n; i += FY__BLOCK) {                                            \
            const int64_t m = n - i < FY__BLOCK ? n - i : FY__BLOCK;                            \
            load(rows, dy, rows->dy_stride, i, m, g);                                           \
            load(rows, y, rows->y_stride, i, m, r);                                             \
            for (int64_t j = 0; j < m && !rows->is_log; j++) x[j] = g[j] * r[j];                \
            loops->sum_row[rows->compute](m, rows->is_log ? g : x, &sum);                       \
        }                                                                                       \
        const T total = (T)sum.f;                                                               \
        for (int64_t i = 0; i < n; i += FY__BLOCK) {                                            \
            const int64_t m = n - i < FY__BLOCK ? n - i : FY__BLOCK;                            \
            if (n > FY__BLOCK) {                                                                \
                load(rows, dy, rows->dy_stride, i, m, g);                                       \
                load(rows, y, rows->y_stride, i, m, r);                                         \
            }                                                                                   \
            if (rows->is_log) {                                                                 \
                (void)loops->exp_row_##sfx(m, x, r, (T)0);                                      \
                for (int64_t j = 0; j < m; j++) x[j] = g[j] - x[j] * total;                     \
            } else {                                                                            \
                for (int64_t j = 0; j < m; j++) x[j] = r[j] * (g[j] - total);                   \
            }                                                                                   \
            if (rows->accumulate) {                                                             \
                load(rows, dx, rows->dx_stride, i, m, g);                                       \
                for (int64_t j = 0; j < m; j++) x[j] += g[j];                                   \
            }                                                                                   \
            fy__stage_out(loops, m, dx + i * rows->dx_stride * ((int64_t)1 << rows->shift),     \
                          rows->dx_stride, rows->dtype, x, rows->compute);                      \
        }                                                                                       \
    }
GRADIENT_ROW(f32, float)
GRADIENT_ROW(f64, double)

static void gradient_row(const void *context, int64_t i)
{
    const rows_t *rows = (const rows_t *)context;
    const char *dy = rows->dy + fy__offset_of(i, rows->rank, rows->dims, rows->dy_strides) *
                                    ((int64_t)1 << rows->shift);
    const char *y = rows->y + fy__offset_of(i, rows->rank, rows->dims, rows->y_strides) *
                                  ((int64_t)1 << rows->shift);
    char *dx = rows->dx + fy__offset_of(i, rows->rank, rows->dims, rows->dx_strides) *
                              ((int64_t)1 << rows->shift);
    if (rows->compute == FY_DTYPE_F64)
        gradient_row_f64(rows, dy, y, dx);
    else
        gradient_row_f32(rows, dy, y, dx);
}

fy_status_t fy__run_softmax_backward(const fy_host_api_t *host, const fy__loops_t *loops,
                                     const fy_launch_t *launch)
{
    const fy_desc_t *dy = &launch->src[0], *y = &launch->src[1], *dx = launch->dst;
    const int axis = ((const fy_axis_attrs_t *)launch->attrs)->axis;
    rows_t rows = {
        .loops = loops, .dtype = dy->dtype, .dy = dy->data, .y = y->data, .dx = dx->data
    };
    int64_t nrows = 1;
    (void)host;
    rows.compute = fy__compute_dtype(dy->dtype);
    rows.is_log = launch->op == FY_OP_LOG_SOFTMAX_BACKWARD;
    rows.accumulate = (launch->accumulate & 1u) != 0;
    rows.shift = fy__log2_size(dy->dtype);
    rows.n = dy->dims[axis];
    rows.dy_stride = dy->strides[axis];
    rows.y_stride = y->strides[axis];
    rows.dx_stride = dx->strides[axis];
    for (int k = 0; k < dy->rank; k++) {
        if (k == axis) continue;
        rows.dims[rows.rank] = dy->dims[k];
        rows.dy_strides[rows.rank] = dy->strides[k];
        rows.y_strides[rows.rank] = y->strides[k];
        rows.dx_strides[rows.rank++] = dx->strides[k];
        nrows *= dy->dims[k];
    }
    if (rows.n > 0)
        fy__for_each(
            nrows,
            fy__threads_for(nrows * rows.n, fy__serial_of(rows.dtype, rows.is_log ? 12288 : 24576)),
            gradient_row, &rows);
    return FY_STATUS_OK;
}
