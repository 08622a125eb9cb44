/* cumsum along one axis, one thread a line. Floats are summed in f64, integers in i64, in the order
 * of the axis. Elements are staged in blocks. */
#include "opset/formulas/index.h"
#include "backends/kernels/rows.h"

typedef struct lines {
    const fy__loops_t *loops;
    const fy_desc_t *src, *dst;
    int64_t n, from_step, to_step; /* along the axis, in the order of the sums */
    int32_t sum_dtype;
    int rank; /* the other axes */
    int64_t dims[FY_MAX_RANK], from[FY_MAX_RANK], to[FY_MAX_RANK];
    int64_t from_first, to_first; /* the first element that is summed */
} lines_t;

static void sum_line(const void *context, int64_t i)
{
    const lines_t *lines = (const lines_t *)context;
    const int64_t from_size = (int64_t)1 << fy__log2_size(lines->src->dtype),
                  to_size = (int64_t)1 << fy__log2_size(lines->dst->dtype);
    const char *from =
        (const char *)lines->src->data +
        (lines->from_first + fy__offset_of(i, lines->rank, lines->dims, lines->from)) * from_size;
    char *to = (char *)lines->dst->data +
               (lines->to_first + fy__offset_of(i, lines->rank, lines->dims, lines->to)) * to_size;
    double real = 0;
    int64_t whole = 0;
    for (int64_t done = 0; done < lines->n; done += FY__BLOCK) {
        _Alignas(64) union {
            double real[FY__BLOCK];
            int64_t whole[FY__BLOCK];
        } block;
        const int64_t m = lines->n - done < FY__BLOCK ? lines->n - done : FY__BLOCK;
        fy__stage_in(lines->loops, m, &block, lines->sum_dtype,
                     from + done * lines->from_step * from_size, lines->from_step,
                     lines->src->dtype);
        if (lines->sum_dtype == FY_DTYPE_F64)
            for (int64_t k = 0; k < m; k++) block.real[k] = real += block.real[k];
        else
            for (int64_t k = 0; k < m; k++)
                block.whole[k] = whole = (int64_t)((uint64_t)whole + (uint64_t)block.whole[k]);
        fy__stage_out(lines->loops, m, to + done * lines->to_step * to_size, lines->to_step,
                      lines->dst->dtype, &block, lines->sum_dtype);
    }
}

fy_status_t fy__run_cumsum(const fy_host_api_t *host, const fy__loops_t *loops,
                           const fy_launch_t *launch)
{
    const fy_cumsum_attrs_t *attrs = (const fy_cumsum_attrs_t *)launch->attrs;
    const fy_desc_t *src = launch->src, *dst = launch->dst;
    const int axis = attrs->axis;
    lines_t lines = { .loops = loops, .src = src, .dst = dst };
    int64_t nlines = 1;
    (void)host;
    lines.sum_dtype = fy__is_float(src->dtype) ? FY_DTYPE_F64 : FY_DTYPE_I64;
    lines.n = src->dims[axis];
    lines.from_step = src->strides[axis];
    lines.to_step = dst->strides[axis];
    if (attrs->reverse && lines.n > 0) {
        lines.from_first = (lines.n - 1) * lines.from_step;
        lines.to_first = (lines.n - 1) * lines.to_step;
        lines.from_step = -lines.from_step;
        lines.to_step = -lines.to_step;
    }
    for (int k = 0; k < src->rank; k++) {
        if (k == axis) continue;
        lines.dims[lines.rank] = src->dims[k];
        lines.from[lines.rank] = src->strides[k];
        lines.to[lines.rank++] = dst->strides[k];
        nlines *= src->dims[k];
    }
    if (lines.n > 0)
        fy__for_each(nlines, fy__threads_for(nlines * lines.n, fy__serial_of(src->dtype, 12288)),
                     sum_line, &lines);
    return FY_STATUS_OK;
}
