/* linear and the gradients of its parameters: products as in matmul.c, with what follows done while
 * the result is still in the cache. f32 and f64 of usual layouts take that way, and dense half
 * precision in f32; odd strides a plain loop with f64 sums.
 * Next: matmul.c, gemm.h. */
#include <stdbool.h>
#include <string.h>

#include "opset/formulas/index.h"
#include "backends/kernels/family.h"
#include "backends/kernels/gemm.h"
#include "backends/kernels/rows.h"

enum {
    /* from .. to so many rows, and with so long and so many dot products, see is_turned */
    LEAST_ROWS = 8,
    MOST_ROWS = 96,
    LEAST_DEPTH = 256,
    LEAST_COLUMNS = 64,
    PANEL_NBYTES = 256 << 10, /* of results: what the second level of a cache keeps */
    SERIAL_PRODUCTS = 1 << 14,
    LEAST_HALF_PRODUCTS = 1 << 14 /* below this, conversions cost more than they save */
};

/* Leading axes seen as one: element (i, j) at i * row_stride + j * column_stride. */
typedef struct rows {
    char *data;
    int64_t rows, columns, row_stride, column_stride;
} rows_t;

/* 0: the leading axes are not one. */
static int rows_of(const fy_desc_t *desc, rows_t *out)
{
    const int last = desc->rank - 1;
    *out =
        (rows_t){ (char *)desc->data, 1, desc->dims[last], desc->dims[last], desc->strides[last] };
    int64_t expected = 0; /* may be 0 later, too: behind an axis that repeats */
    int is_first = 1;
    for (int axis = last - 1; axis >= 0; axis--) {
        if (desc->dims[axis] == 1) continue;
        if (is_first)
            out->row_stride = desc->strides[axis];
        else if (desc->strides[axis] != expected)
            return 0;
        out->rows *= desc->dims[axis];
        expected = desc->strides[axis] * desc->dims[axis];
        is_first = 0;
    }
    return 1;
}

static fy_desc_t matrix_desc(const rows_t *rows, int32_t dtype)
{
    fy_desc_t desc = { rows->data,
                       dtype,
                       2,
                       { rows->rows, rows->columns },
                       { rows->row_stride, rows->column_stride } };
    return desc;
}

typedef struct linear {
    const fy__loops_t *loops;
    const fy_launch_t *launch;
    rows_t x, w, y;
    const char *bias; /* or NULL */
    int64_t bias_stride;
    int32_t dtype, activation;
    int shift;
} linear_t;

/* x, w and y as matrices; 0: this launch takes the plain way. */
static int is_usual(const fy_launch_t *launch, linear_t *linear)
{
    const fy_desc_t *y = launch->dst;
    if (y->dtype != FY_DTYPE_F32 && y->dtype != FY_DTYPE_F64) return 0;
    return rows_of(&launch->src[0], &linear->x) && rows_of(&launch->src[1], &linear->w) &&
           rows_of(y, &linear->y) && (linear->y.column_stride == 1 || linear->y.columns == 1) &&
           linear->x.columns > 0;
}

/* ---- what follows the product ---- */

static void activate(const linear_t *linear, int64_t n, void *row)
{
    const fy__loops_t *loops = linear->loops;
    const int32_t compute = fy__compute_dtype(linear->dtype);
    switch (linear->activation) {
    case FY_ACTIVATION_RELU: loops->unary[FY__UNARY_RELU][compute](n, row, row); break;
    case FY_ACTIVATION_TANH: loops->unary[FY__UNARY_TANH][compute](n, row, row); break;
    case FY_ACTIVATION_SIGMOID: loops->unary[FY__UNARY_SIGMOID][compute](n, row, row); break;
    case FY_ACTIVATION_GELU: loops->unary[FY__UNARY_GELU][compute](n, row, row); break;
    default: break;
    }
}

static void finish_row(const void *context, int64_t i)
{
    const linear_t *linear = (const linear_t *)context;
    const rows_t *y = &linear->y;
    char *row = y->data + i * y->row_stride * ((int64_t)1 << linear->shift);
    if (linear->bias && (linear->bias_stride == 1 || y->columns == 1)) {
        linear->loops->binary[FY__BINARY_ADD][linear->dtype](y->columns, row, row, linear->bias);
    } else if (linear->bias) {
        for (int64_t j = 0; j < y->columns; j += FY__BLOCK) {
            _Alignas(64) char block[FY__BLOCK * 8];
            const int64_t n = y->columns - j < FY__BLOCK ? y->columns - j : FY__BLOCK;
            char *at = row + j * ((int64_t)1 << linear->shift);
            fy__stage_in(linear->loops, n, block, linear->dtype,
                         linear->bias + j * linear->bias_stride * ((int64_t)1 << linear->shift),
                         linear->bias_stride, linear->dtype);
            linear->loops->binary[FY__BINARY_ADD][linear->dtype](n, at, at, block);
        }
    }
    activate(linear, y->columns, row);
}

static void finish(const linear_t *linear)
{
    if (!linear->bias && linear->activation == FY_ACTIVATION_NONE) return;
    const int64_t serial =
        fy__serial_of(linear->dtype, linear->activation > FY_ACTIVATION_RELU ? 12288 : 65536);
    fy__for_each(linear->y.rows, fy__threads_for(linear->y.rows * linear->y.columns, serial),
                 finish_row, linear);
}

/* ---- the product ---- */

/* The rows first .. first + n - 1 of the product as a matmul. */
static fy_launch_t product_of(const linear_t *linear, int64_t first, int64_t n, fy_desc_t *dst,
                              fy_desc_t *src)
{
    static const fy_matmul_attrs_t by_rows = { 0, 1 }; /* w is [O, I] */
    const int64_t size = (int64_t)1 << linear->shift;
    rows_t x = linear->x, y = linear->y;
    x.data += first * x.row_stride * size;
    y.data += first * y.row_stride * size;
    x.rows = y.rows = n;
    *dst = matrix_desc(&y, linear->dtype);
    src[0] = matrix_desc(&x, linear->dtype);
    src[1] = matrix_desc(&linear->w, linear->dtype);
    fy_launch_t product = *linear->launch;
    product.op = FY_OP_MATMUL;
    product.nsrc = 2;
    product.flags = 0;
    product.dst = dst;
    product.src = src;
    product.attrs = &by_rows;
    product.attrs_nbytes = sizeof by_rows;
    product.nelem = (uint64_t)(n * y.columns);
    return product;
}

/* Few rows against a large w: oneDNN 2.6 is up to three times as fast at w x^T, whose result is
 * then transposed into y. */
static int is_turned(const linear_t *linear)
{
    const rows_t *x = &linear->x, *w = &linear->w;
    return linear->dtype == FY_DTYPE_F32 && x->rows >= LEAST_ROWS && x->rows <= MOST_ROWS &&
           w->columns >= LEAST_DEPTH && w->rows >= LEAST_COLUMNS && x->column_stride == 1 &&
           w->column_stride == 1 && x->row_stride >= x->columns && w->row_stride >= w->columns;
}

static uint64_t turned_nbytes(const linear_t *linear)
{
    return (uint64_t)(linear->y.rows * linear->y.columns) * sizeof(float);
}

static void turn_row(const void *context, int64_t i)
{
    const linear_t *linear = (const linear_t *)context;
    const rows_t *y = &linear->y;
    linear->loops->move[2](y->columns, y->data + i * y->row_stride * (int64_t)sizeof(float), 1,
                           (const float *)linear->launch->workspace + i, y->rows);
    finish_row(context, i);
}

static fy_status_t run_turned(const fy_host_api_t *host, const linear_t *linear)
{
    const rows_t *x = &linear->x, *w = &linear->w;
    FY_TRY(fy__gemm_f32(host, 'N', 'T', w->rows, x->rows, w->columns,
                        (const float *)(const void *)w->data, w->row_stride,
                        (const float *)(const void *)x->data, x->row_stride, 0.0f,
                        (float *)linear->launch->workspace, x->rows));
    fy__for_each(x->rows, fy__threads_for(x->rows * w->rows * 2, 32768), turn_row, linear);
    return FY_STATUS_OK;
}

static int product_threads(const linear_t *linear, int64_t rows)
{
    const double m = (double)rows, n = (double)linear->w.rows, k = (double)linear->w.columns;
    return fy__threads_for_cost(2 * m * n * k, 4 * (m * k + k * n + m * n));
}

static int64_t panel_rows(const linear_t *linear)
{
    const int64_t row_nbytes = linear->y.columns * ((int64_t)1 << linear->shift),
                  n = PANEL_NBYTES / (row_nbytes > 0 ? row_nbytes : 1);
    int64_t panel = n < 256 ? 256 : n;
    /* Where the whole product is worth several threads, each panel must be. */
    if (panel >= linear->x.rows || product_threads(linear, linear->x.rows) == 1) return panel;
    while (panel < linear->x.rows && product_threads(linear, panel) == 1) panel *= 2;
    return panel;
}

static fy_status_t run_usual(const fy_host_api_t *host, linear_t *linear)
{
    if (is_turned(linear) && linear->launch->workspace_nbytes >= turned_nbytes(linear))
        return run_turned(host, linear);
    const int64_t rows = linear->y.rows, panel = panel_rows(linear),
                  size = (int64_t)1 << linear->shift;
    for (int64_t first = 0; first < rows; first += panel) {
        fy_desc_t dst, src[2];
        const int64_t n = rows - first < panel ? rows - first : panel;
        const fy_launch_t product = product_of(linear, first, n, &dst, src);
        FY_TRY(fy__run_matmul(host, linear->loops, &product));
        linear_t part = *linear;
        part.y.data += first * part.y.row_stride * size;
        part.y.rows = n;
        finish(&part);
    }
    return FY_STATUS_OK;
}

/* ---- the plain way ---- */

/* Products of two lines of n elements, in f64. */
static double plain_dot(const fy__loops_t *loops, int32_t dtype, int64_t n, const char *a,
                        int64_t a_stride, const char *b, int64_t b_stride)
{
    const int shift = fy__log2_size(dtype);
    double sum = 0;
    for (int64_t done = 0; done < n; done += FY__BLOCK) {
        double x[FY__BLOCK], y[FY__BLOCK];
        const int64_t m = n - done < FY__BLOCK ? n - done : FY__BLOCK;
        fy__stage_in(loops, m, x, FY_DTYPE_F64, a + done * a_stride * ((int64_t)1 << shift),
                     a_stride, dtype);
        fy__stage_in(loops, m, y, FY_DTYPE_F64, b + done * b_stride * ((int64_t)1 << shift),
                     b_stride, dtype);
        for (int64_t i = 0; i < m; i++) sum += x[i] * y[i];
    }
    return sum;
}

static void plain_row(const void *context, int64_t i)
{
    const linear_t *linear = (const linear_t *)context;
    const fy_desc_t *x = &linear->launch->src[0], *w = &linear->launch->src[1],
                    *y = linear->launch->dst;
    const int last = x->rank - 1;
    const int64_t size = (int64_t)1 << linear->shift;
    const char *line = (const char *)x->data + fy__offset_of(i, last, x->dims, x->strides) * size;
    char *out = (char *)y->data + fy__offset_of(i, last, y->dims, y->strides) * size;
    const int32_t compute = fy__compute_dtype(linear->dtype);
    for (int64_t j = 0; j < w->dims[0]; j++) {
        double bias = 0,
               sum = plain_dot(linear->loops, linear->dtype, w->dims[1], line, x->strides[last],
                               (const char *)w->data + j * w->strides[0] * size, w->strides[1]);
        if (linear->bias)
            fy__stage_in(linear->loops, 1, &bias, FY_DTYPE_F64,
                         linear->bias + j * linear->bias_stride * size, 1, linear->dtype);
        char value[8];
        sum += bias;
        fy__stage_out(linear->loops, 1, value, 1, compute, &sum, FY_DTYPE_F64);
        activate(linear, 1, value);
        fy__stage_out(linear->loops, 1, out + j * y->strides[last] * size, 1, linear->dtype, value,
                      compute);
    }
}

static void run_plain(const linear_t *linear)
{
    const fy_desc_t *w = &linear->launch->src[1], *y = linear->launch->dst;
    const int64_t n = y->dims[y->rank - 1] ? fy__desc_nelem(y) / y->dims[y->rank - 1] : 0;
    fy__for_each(n, fy__threads_for(n * w->dims[0] * (w->dims[1] + 8), SERIAL_PRODUCTS), plain_row,
                 linear);
}

/* ---- dense f16 and bf16: rows are converted to f32 in scratch, the f32 kernel runs on them, and
 * results are rounded once, after bias and activation ---- */

/* `rows` rows as a launch of f32; its operands are in scratch, one after the other. */
typedef struct panel {
    fy_launch_t launch;
    fy_desc_t dst, src[3];
    int64_t rows;
    uint64_t own_nbytes; /* of the operands; the rest is the kernel's */
} panel_t;

/* [rows, columns]; the bias is [columns]. */
static void take_operand(panel_t *panel, fy_desc_t *desc, const fy_desc_t *half, int64_t rows,
                         bool is_bias, char *scratch)
{
    const int64_t columns = half->dims[half->rank - 1];
    *desc = (fy_desc_t){
        .dtype = FY_DTYPE_F32, .rank = 2, .dims = { rows, columns }, .strides = { columns, 1 }
    };
    if (is_bias)
        *desc =
            (fy_desc_t){ .dtype = FY_DTYPE_F32, .rank = 1, .dims = { columns }, .strides = { 1 } };
    desc->data = scratch ? scratch + panel->own_nbytes : NULL;
    panel->own_nbytes += fy__wide_nbytes(rows * columns);
}

static void make_panel(const fy_launch_t *launch, int64_t rows, char *scratch, panel_t *panel)
{
    const fy_desc_t *src = launch->src;
    panel->rows = rows;
    panel->own_nbytes = 0;
    take_operand(panel, &panel->src[0], &src[0], rows, false, scratch);
    take_operand(panel, &panel->src[1], &src[1], src[1].dims[0], false, scratch);
    if (launch->nsrc == 3) take_operand(panel, &panel->src[2], &src[2], 1, true, scratch);
    take_operand(panel, &panel->dst, launch->dst, rows, false, scratch);
    panel->launch = *launch;
    panel->launch.dst = &panel->dst;
    panel->launch.src = panel->src;
    panel->launch.nelem = (uint64_t)fy__desc_nelem(&panel->dst);
    panel->launch.workspace = NULL;
    panel->launch.workspace_nbytes = 0;
}

static int64_t row_count(const fy_launch_t *launch)
{
    return fy__desc_nelem(launch->dst) / launch->dst->dims[launch->dst->rank - 1];
}

/* Whether it is worth it; then the most rows that fit. A run with the scratch that was planned
 * finds the same: fewer bytes do not fit more. */
static int find_panel(const fy_launch_t *launch, uint64_t limit, char *scratch, panel_t *panel)
{
    int is_dense = launch->nelem > 0 && fy__is_half(launch->dst->dtype) &&
                   fy__desc_is_dense(launch->dst);
    for (int i = 0; i < launch->nsrc; i++)
        is_dense = is_dense && fy__desc_is_dense(&launch->src[i]);
    const fy_desc_t *w = &launch->src[1];
    if (!is_dense || (double)launch->nelem * (double)w->dims[1] < LEAST_HALF_PRODUCTS) return 0;
    for (int64_t rows = row_count(launch);; rows = (rows + 1) / 2) {
        make_panel(launch, rows, scratch, panel);
        if (panel->own_nbytes <= limit) return 1;
        if (rows == 1) return 0;
    }
}

/* Its scratch; 0: it does not run so. */
static uint64_t half_nbytes(const fy_launch_t *launch, uint64_t limit)
{
    panel_t panel;
    if (!find_panel(launch, limit, NULL, &panel)) return 0;
    return panel.own_nbytes + fy__linear_workspace(&panel.launch, limit - panel.own_nbytes);
}

/* UNSUPPORTED without an error: nothing was written. */
static fy_status_t run_half(const fy_host_api_t *host, const fy__loops_t *loops,
                            const fy_launch_t *launch)
{
    panel_t panel;
    char *scratch = (char *)launch->workspace;
    if (!scratch || !find_panel(launch, launch->workspace_nbytes, scratch, &panel))
        return FY_STATUS_UNSUPPORTED;
    const int64_t all = row_count(launch), nx = panel.src[0].dims[1], ny = panel.dst.dims[1];
    fy__widen(loops, &launch->src[1], 0, fy__desc_nelem(&panel.src[1]), panel.src[1].data);
    if (launch->nsrc == 3) fy__widen(loops, &launch->src[2], 0, ny, panel.src[2].data);
    panel.launch.workspace = scratch + panel.own_nbytes;
    panel.launch.workspace_nbytes = launch->workspace_nbytes - panel.own_nbytes;
    for (int64_t first = 0; first < all; first += panel.rows) {
        const int64_t rows = all - first < panel.rows ? all - first : panel.rows;
        panel.src[0].dims[0] = panel.dst.dims[0] = rows;
        panel.launch.nelem = (uint64_t)(rows * ny);
        fy__widen(loops, &launch->src[0], first * nx, rows * nx, panel.src[0].data);
        FY_TRY(fy__run_linear(host, loops, &panel.launch));
        fy__narrow(loops, launch->dst, first * ny, rows * ny, panel.dst.data);
    }
    return FY_STATUS_OK;
}

fy_status_t fy__run_linear(const fy_host_api_t *host, const fy__loops_t *loops,
                           const fy_launch_t *launch)
{
    linear_t linear = { .loops = loops, .launch = launch };
    if (launch->nelem == 0) return FY_STATUS_OK;
    linear.dtype = launch->dst->dtype;
    linear.shift = fy__log2_size(linear.dtype);
    linear.activation = ((const fy_linear_attrs_t *)launch->attrs)->activation;
    if (launch->nsrc == 3) {
        linear.bias = (const char *)launch->src[2].data;
        linear.bias_stride = launch->src[2].strides[0];
    }
    if (is_usual(launch, &linear)) return run_usual(host, &linear);
    const fy_status_t status = run_half(host, loops, launch);
    if (status != FY_STATUS_UNSUPPORTED) return status;
    run_plain(&linear);
    return FY_STATUS_OK;
}

uint64_t fy__linear_workspace(const fy_launch_t *launch, uint64_t limit)
{
    linear_t linear = { .launch = launch };
    fy_desc_t dst, src[2];
    if (launch->nelem == 0) return 0;
    if (!is_usual(launch, &linear)) return half_nbytes(launch, limit);
    linear.dtype = launch->dst->dtype;
    linear.shift = fy__log2_size(linear.dtype);
    if (is_turned(&linear) && turned_nbytes(&linear) <= limit) return turned_nbytes(&linear);
    const int64_t rows = linear.y.rows, panel = panel_rows(&linear);
    const fy_launch_t product = product_of(&linear, 0, rows < panel ? rows : panel, &dst, src);
    return fy__matmul_workspace(&product, limit);
}

/* ---- gradients of w and bias ---- */

/* dy^T x as a matmul. */
static fy_launch_t params_product(const fy_launch_t *launch)
{
    static const fy_matmul_attrs_t transposed = { 1, 0 };
    fy_launch_t product = *launch;
    product.op = FY_OP_MATMUL;
    product.ndst = 1;
    product.flags = 0;
    product.accumulate = launch->accumulate & 1u;
    product.attrs = &transposed;
    product.attrs_nbytes = sizeof transposed;
    return product;
}

fy_status_t fy__run_linear_backward_params(const fy_host_api_t *host, const fy__loops_t *loops,
                                           const fy_launch_t *launch)
{
    static const fy_reduce_attrs_t over_rows = { 1, 0 };
    const fy_launch_t product = params_product(launch);
    fy_launch_t sum = *launch;
    FY_TRY(fy__run_matmul(host, loops, &product)); /* fails before it writes, if at all */
    sum.op = FY_OP_SUM;
    sum.nsrc = sum.ndst = 1;
    sum.flags = 0;
    sum.dst = &launch->dst[1];
    sum.accumulate = launch->accumulate >> 1 & 1u;
    sum.attrs = &over_rows;
    sum.attrs_nbytes = sizeof over_rows;
    sum.nelem = (uint64_t)launch->dst[1].dims[0];
    return fy__run_sum(host, loops, &sum);
}

uint64_t fy__linear_backward_params_workspace(const fy_launch_t *launch, uint64_t limit)
{
    const fy_launch_t product = params_product(launch);
    return fy__matmul_workspace(&product, limit);
}
