/* linear of dense f16 and bf16: rows are converted to f32 in scratch, the f32 kernel runs on them,
 * and results are rounded once, after bias and activation. Not here: the product (linear.c). */
#include <stdbool.h>

#include "backends/kernels/linear.h"
#include "backends/kernels/widen.h"

enum { LEAST_PRODUCTS = 1 << 14 }; /* below this, conversions cost more than they save */

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

static int64_t rows_of(const fy_launch_t *launch)
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
    if (!is_dense || (double)launch->nelem * (double)w->dims[1] < LEAST_PRODUCTS) return 0;
    for (int64_t rows = rows_of(launch);; rows = (rows + 1) / 2) {
        make_panel(launch, rows, scratch, panel);
        if (panel->own_nbytes <= limit) return 1;
        if (rows == 1) return 0;
    }
}

uint64_t fy__linear_half_nbytes(const fy_launch_t *launch, uint64_t limit)
{
    panel_t panel;
    if (!find_panel(launch, limit, NULL, &panel)) return 0;
    return panel.own_nbytes + fy__linear_workspace(&panel.launch, limit - panel.own_nbytes);
}

fy_status_t fy__linear_half_run(const fy_host_api_t *host, const fy__loops_t *loops,
                                const fy_launch_t *launch)
{
    panel_t panel;
    char *scratch = (char *)launch->workspace;
    if (!scratch || !find_panel(launch, launch->workspace_nbytes, scratch, &panel))
        return FY_STATUS_UNSUPPORTED;
    const int64_t all = rows_of(launch), nx = panel.src[0].dims[1], ny = panel.dst.dims[1];
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
