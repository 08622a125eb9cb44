/* cumsum along one axis, one thread a line. Floats are summed in f64, integers in i64, in the order
 * of the axis. Elements are staged in blocks. */
#include "backends/kernels/rows.h"

enum { SRC, DST };

static void sum_line(const void *context, int64_t i)
{
    const fy__lines_t *lines = (const fy__lines_t *)context;
    const char *from = fy__line_at(lines, SRC, i);
    char *to = fy__line_at(lines, DST, i);
    double real = 0;
    int64_t whole = 0;
    for (int64_t done = 0; done < lines->n; done += FY__BLOCK) {
        _Alignas(64) union {
            double real[FY__BLOCK];
            int64_t whole[FY__BLOCK];
        } block;
        const int64_t m = lines->n - done < FY__BLOCK ? lines->n - done : FY__BLOCK;
        fy__line_load(lines, SRC, from, done, m, &block);
        if (lines->compute == FY_DTYPE_F64)
            for (int64_t k = 0; k < m; k++) block.real[k] = real += block.real[k];
        else
            for (int64_t k = 0; k < m; k++)
                block.whole[k] = whole = (int64_t)((uint64_t)whole + (uint64_t)block.whole[k]);
        fy__line_store(lines, DST, to, done, m, &block);
    }
}

fy_status_t fy__run_cumsum(const fy_host_api_t *host, const fy__loops_t *loops,
                           const fy_launch_t *launch)
{
    const fy_cumsum_attrs_t *attrs = (const fy_cumsum_attrs_t *)launch->attrs;
    const fy_desc_t *src = launch->src;
    fy__lines_t lines;
    (void)host;
    fy__lines_make(&lines, loops, fy__is_float(src->dtype) ? FY_DTYPE_F64 : FY_DTYPE_I64,
                   attrs->axis, 2, (const fy_desc_t *const[]){ src, launch->dst });
    if (lines.n == 0) return FY_STATUS_OK;
    for (int k = 0; attrs->reverse && k < 2; k++) { /* from the last element on */
        lines.data[k] += (lines.n - 1) * lines.step[k] * lines.size[k];
        lines.step[k] = -lines.step[k];
    }
    fy__for_each(lines.count,
                 fy__threads_for(lines.count * lines.n, fy__serial_of(src->dtype, 12288)), sum_line,
                 &lines);
    return FY_STATUS_OK;
}
