/* softmax and log_softmax along one axis. Rows are staged in blocks in the compute type; a row that
 * fits one block is read once.
 * Longer ones are read three times (maximum, sum of exponentials, result), which needs no scratch
 * of the row's length. */
#include <math.h>

#include "opset/formulas/index.h"
#include "backends/kernels/rows.h"

typedef struct rows {
    const fy__loops_t *loops;
    int32_t dtype, compute;
    int is_log, shift;
    int64_t n, src_stride, dst_stride; /* along the axis */
    int rank;                          /* the other axes */
    int64_t dims[FY_MAX_RANK], from[FY_MAX_RANK], to[FY_MAX_RANK];
    const char *src;
    char *dst;
} rows_t;

static void load(const rows_t *rows, const char *src, int64_t first, int64_t m, void *block)
{
    fy__stage_in(rows->loops, m, block, rows->compute,
                 src + first * rows->src_stride * ((int64_t)1 << rows->shift), rows->src_stride,
                 rows->dtype);
}

static void store(const rows_t *rows, char *dst, int64_t first, int64_t m, const void *block)
{
    fy__stage_out(rows->loops, m, dst + first * rows->dst_stride * ((int64_t)1 << rows->shift),
                  rows->dst_stride, rows->dtype, block, rows->compute);
}

/* X(suffix, type, log of libm) */
#define SOFTMAX_ROW(sfx, T, log_fn)                                                   \
    static void softmax_row_##sfx(const rows_t *rows, const char *src, char *dst)     \
    {                                                                                 \
        const fy__loops_t *loops = rows->loops;                                       \
        const int64_t n = rows->n;                                                    \
        _Alignas(64) T block[FY__BLOCK], powers[FY__BLOCK];                           \
        T max = -(T)INFINITY;                                                         \
        double sum = 0;                                                               \
        for (int64_t i = 0; i < n; i += FY__BLOCK) {                                  \
            const int64_t m = n - i < FY__BLOCK ? n - i : FY__BLOCK;                  \
            load(rows, src, i, m, block);                                             \
            loops->max_row[rows->compute](m, &max, block);                            \
        }                                                                             \
        for (int64_t i = 0; i < n; i += FY__BLOCK) {                                  \
            const int64_t m = n - i < FY__BLOCK ? n - i : FY__BLOCK;                  \
            if (n > FY__BLOCK) load(rows, src, i, m, block);                          \
            sum += loops->exp_row_##sfx(m, powers, block, max);                       \
        }                                                                             \
        const T log_sum = rows->is_log ? (T)log_fn(sum) : (T)0;                       \
        const T scale = (T)(1 / sum);                                                 \
        for (int64_t i = 0; i < n; i += FY__BLOCK) {                                  \
            const int64_t m = n - i < FY__BLOCK ? n - i : FY__BLOCK;                  \
            if (n > FY__BLOCK) load(rows, src, i, m, block);                          \
            if (rows->is_log) {                                                       \
                for (int64_t j = 0; j < m; j++) powers[j] = block[j] - max - log_sum; \
            } else {                                                                  \
                if (n > FY__BLOCK) (void)loops->exp_row_##sfx(m, powers, block, max); \
                for (int64_t j = 0; j < m; j++) powers[j] *= scale;                   \
            }                                                                         \
            store(rows, dst, i, m, powers);                                           \
        }                                                                             \
    }
SOFTMAX_ROW(f32, float, log)
SOFTMAX_ROW(f64, double, log)

static void softmax_row(const void *context, int64_t i)
{
    const rows_t *rows = (const rows_t *)context;
    const char *src = rows->src + fy__offset_of(i, rows->rank, rows->dims, rows->from) *
                                      ((int64_t)1 << rows->shift);
    char *dst = rows->dst +
                fy__offset_of(i, rows->rank, rows->dims, rows->to) * ((int64_t)1 << rows->shift);
    if (rows->compute == FY_DTYPE_F64) {
        softmax_row_f64(rows, src, dst);
    } else {
        softmax_row_f32(rows, src, dst);
    }
}

fy_status_t fy__run_softmax(const fy_host_api_t *host, const fy__loops_t *loops,
                            const fy_launch_t *launch)
{
    const fy_desc_t *src = launch->src, *dst = launch->dst;
    const int axis = ((const fy_axis_attrs_t *)launch->attrs)->axis;
    rows_t rows = { .loops = loops,
                    .dtype = src->dtype,
                    .compute = fy__compute_dtype(src->dtype),
                    .src = src->data,
                    .dst = dst->data };
    int64_t nrows = 1;
    (void)host;
    rows.is_log = launch->op == FY_OP_LOG_SOFTMAX;
    rows.shift = fy__log2_size(src->dtype);
    rows.n = src->rank ? src->dims[axis] : 1;
    rows.src_stride = src->rank ? src->strides[axis] : 1;
    rows.dst_stride = src->rank ? dst->strides[axis] : 1;
    for (int k = 0; k < src->rank; k++) {
        if (k == axis) continue;
        rows.dims[rows.rank] = src->dims[k];
        rows.from[rows.rank] = src->strides[k];
        rows.to[rows.rank++] = dst->strides[k];
        nrows *= src->dims[k];
    }
    if (rows.n > 0)
        fy__for_each(nrows, fy__threads_for(nrows * rows.n, fy__serial_of(rows.dtype, 12288)),
                     softmax_row, &rows);
    return FY_STATUS_OK;
}
