/* layer_norm, rms_norm and their gradients: statistics of each row, the last axis. A row is read in
 * segments, which stay in the cache between passes; segments are joined in f64. The gradients of
 * weight and bias add up over rows: in the compute type for BLOCK rows, then in f64 for at most
 * PIECES pieces, which are joined in order. So the bits do not depend on the threads.
 * Not here: statistics of columns (batch_norm.c), the innermost loops (loops_norm.h). */
#include <math.h>
#include <string.h>

#include "backends/kernels/rows.h"

/* SERIAL: f32 elements that one thread normalises in about 20 us. SPAN: columns whose sums fit the
 * stack. */
enum { PIECES = 32, BLOCK = 16, SEGMENT = 1024, SPAN = 32, SERIAL = 49152 };

typedef struct side {
    const fy_desc_t *desc; /* NULL: there is none */
    int is_dense, is_direct;
} side_t;

typedef struct norm {
    const fy__loops_t *loops;
    const fy_launch_t *launch;
    side_t x, dy, weight, bias, out;
    int is_rms, has_bias_grad, writes_dx;
    int32_t compute;
    int64_t rows, columns, piece_rows, npieces;
    int64_t first, span; /* the columns whose weight's gradient is computed */
    double *sums;        /* [npieces][4][span]: dbias, dweight; the same of a block */
} norm_t;

static side_t side_of(const norm_t *norm, const fy_desc_t *desc)
{
    const int dense = fy__desc_is_dense(desc);
    return (side_t){ desc, dense, dense && desc->dtype == norm->compute };
}

static char *place(const side_t *side, int64_t row, int64_t column)
{
    const fy_desc_t *desc = side->desc;
    const int axis = desc->rank - 1;
    const int64_t at = axis == 0        ? column * desc->strides[0]
                       : side->is_dense ? row * desc->dims[axis] + column
                                        : fy__offset_of(row, axis, desc->dims, desc->strides) +
                                              column * desc->strides[axis];
    return (char *)desc->data + at * ((int64_t)1 << fy__log2_size(desc->dtype));
}

/* n elements of a row; of [C] the row does not matter. They may be in `staged`. */
static const void *fetch(const norm_t *norm, const side_t *side, int64_t row, int64_t column,
                         int64_t n, double *staged)
{
    if (side->desc == NULL) return NULL;
    if (side->is_direct) return place(side, row, column);
    const int shift = fy__log2_size(norm->compute);
    const int64_t stride = side->desc->strides[side->desc->rank - 1];
    for (int64_t j = 0; j < n; j += FY__BLOCK)
        fy__stage_in(norm->loops, n - j < FY__BLOCK ? n - j : FY__BLOCK,
                     (char *)staged + j * ((int64_t)1 << shift), norm->compute,
                     place(side, row, column + j), stride, side->desc->dtype);
    return staged;
}

static void flush(const norm_t *norm, int64_t row, int64_t column, int64_t n, const void *staged)
{
    const side_t *side = &norm->out;
    const int shift = fy__log2_size(norm->compute);
    if (side->is_direct) return;
    const int64_t stride = side->desc->strides[side->desc->rank - 1];
    for (int64_t j = 0; j < n; j += FY__BLOCK)
        fy__stage_out(norm->loops, n - j < FY__BLOCK ? n - j : FY__BLOCK,
                      place(side, row, column + j), stride, side->desc->dtype,
                      (const char *)staged + j * ((int64_t)1 << shift), norm->compute);
}

static double get(const norm_t *norm, const fy_desc_t *desc, int64_t i)
{
    double value;
    const int64_t at = fy__offset_of(i, desc->rank, desc->dims, desc->strides);
    fy__stage_in(norm->loops, 1, &value, FY_DTYPE_F64,
                 (const char *)desc->data + at * ((int64_t)1 << fy__log2_size(desc->dtype)), 1,
                 desc->dtype);
    return value;
}

static void put(const norm_t *norm, int dst, int64_t i, double value)
{
    const fy_desc_t *desc = &norm->launch->dst[dst];
    const int64_t at = fy__offset_of(i, desc->rank, desc->dims, desc->strides);
    if (norm->launch->accumulate >> dst & 1u) value += get(norm, desc, i);
    fy__stage_out(norm->loops, 1,
                  (char *)desc->data + at * ((int64_t)1 << fy__log2_size(desc->dtype)), 1,
                  desc->dtype, &value, FY_DTYPE_F64);
}

static int64_t segment_at(const norm_t *norm, int64_t column)
{
    return norm->columns - column < SEGMENT ? norm->columns - column : SEGMENT;
}

/* ---- forward ---- */

static void statistics(const norm_t *norm, int64_t row, double eps, double *out_mean,
                       double *out_rstd)
{
    _Alignas(64) double staged[SEGMENT];
    double mean = 0, m2 = 0, sums[2];
    for (int64_t j = 0, n; j < norm->columns; j += n) {
        n = segment_at(norm, j);
        const void *x = fetch(norm, &norm->x, row, j, n, staged);
        norm->loops->norm_row_sums[norm->compute](n, x, 0, sums);
        if (norm->is_rms) {
            m2 += sums[1];
            continue;
        }
        const double center = norm->compute == FY_DTYPE_F64 ? sums[0] / (double)n
                                                            : (double)(float)(sums[0] / (double)n);
        norm->loops->norm_row_sums[norm->compute](n, x, center, sums);
        const double left = sums[0] / (double)n, share = (double)n / (double)(j + n),
                     delta = center + left - mean;
        mean += delta * share;
        m2 += sums[1] - sums[0] * left + delta * delta * (double)j * share;
    }
    *out_mean = mean;
    *out_rstd = 1 / sqrt(m2 / (double)norm->columns + eps);
}

static void normalize_piece(const void *context, int64_t p)
{
    const norm_t *norm = context;
    _Alignas(64) double staged[3][SEGMENT];
    const double eps = ((const fy_norm_attrs_t *)norm->launch->attrs)->eps;
    const int64_t end = (p + 1) * norm->piece_rows < norm->rows ? (p + 1) * norm->piece_rows
                                                                : norm->rows;
    for (int64_t row = p * norm->piece_rows; row < end; row++) {
        double mean, rstd;
        statistics(norm, row, eps, &mean, &rstd);
        if (!norm->is_rms) put(norm, 1, row, mean);
        put(norm, norm->is_rms ? 1 : 2, row, rstd);
        for (int64_t j = 0, n; j < norm->columns; j += n) {
            n = segment_at(norm, j);
            const void *x = fetch(norm, &norm->x, row, j, n, staged[0]);
            void *y = norm->out.is_direct ? place(&norm->out, row, j) : (void *)staged[0];
            norm->loops->norm_row_apply[norm->compute](
                n, y, x, fetch(norm, &norm->weight, row, j, n, staged[1]),
                fetch(norm, &norm->bias, row, j, n, staged[2]), mean, rstd);
            flush(norm, row, j, n, y);
        }
    }
}

/* ---- gradients ---- */

static void dx_of_row(const norm_t *norm, int64_t row, double mean, double rstd)
{
    _Alignas(64) double staged[4][SEGMENT];
    double sum = 0, product = 0, sums[2];
    for (int64_t j = 0, n; j < norm->columns; j += n) {
        n = segment_at(norm, j);
        norm->loops->norm_row_products[norm->compute](
            n, fetch(norm, &norm->dy, row, j, n, staged[0]),
            fetch(norm, &norm->weight, row, j, n, staged[1]),
            fetch(norm, &norm->x, row, j, n, staged[2]), mean, sums);
        sum += sums[0];
        product += sums[1];
    }
    const double n_all = (double)norm->columns, slope = rstd * rstd * rstd * product / n_all,
                 shift = norm->is_rms ? 0 : rstd * sum / n_all;
    for (int64_t j = 0, n; j < norm->columns; j += n) {
        n = segment_at(norm, j);
        const int adds = (int)(norm->launch->accumulate & 1u);
        void *dx = norm->out.is_direct ? place(&norm->out, row, j) : (void *)staged[3];
        if (adds) (void)fetch(norm, &norm->out, row, j, n, staged[3]);
        norm->loops->norm_row_dx[norm->compute](n, dx, fetch(norm, &norm->dy, row, j, n, staged[0]),
                                                fetch(norm, &norm->weight, row, j, n, staged[1]),
                                                fetch(norm, &norm->x, row, j, n, staged[2]), mean,
                                                (double[]){ rstd, slope, shift }, adds);
        flush(norm, row, j, n, dx);
    }
}

static double *sums_of(const norm_t *norm, int64_t p, int which)
{
    return norm->sums + (4 * p + which) * norm->span;
}

static void params_of_row(const norm_t *norm, int64_t p, int64_t row, double mean, double rstd)
{
    _Alignas(64) double staged[2][SEGMENT];
    const int shift = fy__log2_size(norm->compute);
    for (int64_t j = 0, n; j < norm->span; j += n) {
        n = norm->span - j < SEGMENT ? norm->span - j : SEGMENT;
        norm->loops->norm_row_params[norm->compute](
            n, fetch(norm, &norm->dy, row, norm->first + j, n, staged[0]),
            fetch(norm, &norm->x, row, norm->first + j, n, staged[1]), mean, rstd,
            (char *)sums_of(norm, p, 2) + j * ((int64_t)1 << shift),
            (char *)sums_of(norm, p, 3) + j * ((int64_t)1 << shift));
    }
}

static void gradients_of_piece(const void *context, int64_t p)
{
    const norm_t *norm = context;
    const fy_launch_t *launch = norm->launch;
    const int64_t end = (p + 1) * norm->piece_rows < norm->rows ? (p + 1) * norm->piece_rows
                                                                : norm->rows;
    memset(sums_of(norm, p, 0), 0, (size_t)norm->span * 4 * sizeof(double));
    for (int64_t row = p * norm->piece_rows; row < end; row++) {
        const double mean = norm->is_rms ? 0 : get(norm, &launch->src[2], row),
                     rstd = get(norm, &launch->src[norm->is_rms ? 2 : 3], row);
        if (norm->writes_dx) dx_of_row(norm, row, mean, rstd);
        params_of_row(norm, p, row, mean, rstd);
        if ((row + 1) % BLOCK != 0 && row + 1 != end) continue;
        for (int i = 0; i < 2; i++) { /* the block's sums, to f64 */
            norm->loops->sum_columns[norm->compute](norm->span, sums_of(norm, p, 2 + i),
                                                    (fy__sum_t *)(void *)sums_of(norm, p, i));
            memset(sums_of(norm, p, 2 + i), 0, (size_t)norm->span * sizeof(double));
        }
    }
}

static void finish_params(const norm_t *norm)
{
    for (int64_t j = 0; j < norm->span; j++) {
        double dweight = 0, dbias = 0;
        for (int64_t p = 0; p < norm->npieces; p++) {
            dbias += sums_of(norm, p, 0)[j];
            dweight += sums_of(norm, p, 1)[j];
        }
        put(norm, 1, norm->first + j, dweight);
        if (norm->has_bias_grad) put(norm, 2, norm->first + j, dbias);
    }
}

/* ---- launches ---- */

static int is_backward(uint32_t op)
{
    return op == FY_OP_LAYER_NORM_BACKWARD || op == FY_OP_RMS_NORM_BACKWARD;
}

static void measure(norm_t *norm)
{
    const fy_launch_t *launch = norm->launch;
    const fy_desc_t *x = &launch->src[is_backward(launch->op)];
    norm->compute = fy__compute_dtype(x->dtype);
    norm->is_rms = launch->op == FY_OP_RMS_NORM || launch->op == FY_OP_RMS_NORM_BACKWARD;
    norm->has_bias_grad = !norm->is_rms;
    norm->columns = x->dims[x->rank - 1];
    norm->rows = 1;
    for (int axis = 0; axis + 1 < x->rank; axis++) norm->rows *= x->dims[axis];
    norm->piece_rows = (norm->rows + PIECES - 1) / PIECES;
    norm->piece_rows = (norm->piece_rows + BLOCK - 1) / BLOCK * BLOCK;
    norm->npieces = norm->rows == 0 ? 0 : (norm->rows + norm->piece_rows - 1) / norm->piece_rows;
}

static void set_operands(norm_t *norm)
{
    const fy_launch_t *launch = norm->launch;
    const int back = is_backward(launch->op), weight = !back ? 1 : norm->is_rms ? 3 : 4;
    norm->x = side_of(norm, &launch->src[back]);
    norm->out = side_of(norm, &launch->dst[0]);
    if (back) norm->dy = side_of(norm, &launch->src[0]);
    if (launch->nsrc > weight) norm->weight = side_of(norm, &launch->src[weight]);
    if (!back && launch->nsrc > 2) norm->bias = side_of(norm, &launch->src[2]);
}

static uint64_t sums_nbytes(const norm_t *norm, int64_t span)
{
    return (uint64_t)norm->npieces * 4 * (uint64_t)span * sizeof(double);
}

/* Only the gradients of more than SPAN columns need a workspace. */
uint64_t fy__row_norm_workspace(const fy_launch_t *launch, uint64_t limit)
{
    norm_t norm = { .launch = launch };
    if (!is_backward(launch->op)) return 0;
    measure(&norm);
    const uint64_t nbytes = sums_nbytes(&norm, norm.columns);
    return norm.columns <= SPAN || nbytes > limit ? 0 : nbytes;
}

fy_status_t fy__run_row_norm(const fy_host_api_t *host, const fy__loops_t *loops,
                             const fy_launch_t *launch)
{
    _Alignas(64) double stack[PIECES * 4 * SPAN];
    norm_t norm = { .loops = loops, .launch = launch, .writes_dx = 1 };
    (void)host;
    measure(&norm);
    set_operands(&norm);
    const int threads =
        fy__threads_for(norm.rows * norm.columns, fy__serial_of(norm.x.desc->dtype, SERIAL));
    if (!is_backward(launch->op)) {
        fy__for_each(norm.npieces, threads, normalize_piece, &norm);
        return FY_STATUS_OK;
    }
    const int has_room = norm.columns <= SPAN ||
                         launch->workspace_nbytes >= sums_nbytes(&norm, norm.columns);
    const int64_t step = has_room ? norm.columns : SPAN;
    norm.sums = norm.columns <= SPAN || !has_room ? stack : launch->workspace;
    for (; norm.first < norm.columns; norm.first += step) {
        norm.span = norm.columns - norm.first < step ? norm.columns - norm.first : step;
        fy__for_each(norm.npieces, threads, gradients_of_piece, &norm);
        finish_params(&norm);
        norm.writes_dx = 0;
    }
    return FY_STATUS_OK;
}
