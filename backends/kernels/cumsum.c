/* cumsum along one axis, a task a line, or a block of lines whose elements are neighbours. Floats
 * are summed in f64, integers in i64, in the order of the axis. Elements are staged in blocks. */
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

/* A block of neighbouring lines, along the last of the other axes. */
static void sum_block(const void *context, int64_t i)
{
    const fy__lines_t *lines = (const fy__lines_t *)context;
    const fy__loop2_fn add = lines->loops->binary[FY__BINARY_ADD][lines->compute];
    const int64_t width = lines->dims[lines->rank - 1],
                  across = (width + FY__BLOCK - 1) / FY__BLOCK, first = i % across * FY__BLOCK,
                  line = i / across * width + first,
                  m = width - first < FY__BLOCK ? width - first : FY__BLOCK;
    const char *from = fy__line_at(lines, SRC, line);
    char *to = fy__line_at(lines, DST, line);
    _Alignas(64) char sums[FY__BLOCK * 8] = { 0 }, block[FY__BLOCK * 8];
    for (int64_t k = 0; k < lines->n; k++) {
        fy__stage_in(lines->loops, m, block, lines->compute, from, 1, lines->dtype[SRC]);
        add(m, sums, sums, block);
        fy__stage_out(lines->loops, m, to, 1, lines->dtype[DST], sums, lines->compute);
        from += lines->step[SRC] * lines->size[SRC];
        to += lines->step[DST] * lines->size[DST];
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
    const int last = lines.rank - 1,
              threads = fy__threads_for(lines.count * lines.n, fy__serial_of(src->dtype, 12288));
    if (last >= 0 && lines.strides[SRC][last] == 1 && lines.strides[DST][last] == 1 &&
        lines.dims[last] >= 8)
        fy__for_each(lines.count / lines.dims[last] *
                         ((lines.dims[last] + FY__BLOCK - 1) / FY__BLOCK),
                     threads, sum_block, &lines);
    else
        fy__for_each(lines.count, threads, sum_line, &lines);
    return FY_STATUS_OK;
}
