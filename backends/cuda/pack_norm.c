/* Packing of batch_norm, batch_norm_inference, layer_norm, rms_norm and gradients. batch_norm of
 * few rows, or without workspace, is one launch; else sums of pieces of rows, their join, and the
 * result are three. layer_norm is one, its gradients two or three.
 * Next: kernels/norm.cu, kernels/row_norm.cu. */
#include "backends/cuda/pack.h"

/* TILE: threads of a block side by side at most. ROWS: the least number of a thread in a piece.
 * JOINED: pieces of a thread, before others share them. KEPT_ROW times the elements of 16 bytes
 * (kept_rows.cuh): above it a block has a row, else a warp; LONG_ROW: if a thread has one each. */
enum { TILE = 32, ROWS = 8, JOINED = 4, BLOCKS_A_PROCESSOR = 4, KEPT_ROW = 128, LONG_ROW = 1024 };

static int is_backward(uint32_t op)
{
    return op == FY_OP_BATCH_NORM_BACKWARD || op == FY_OP_LAYER_NORM_BACKWARD ||
           op == FY_OP_RMS_NORM_BACKWARD;
}

typedef struct plan {
    int64_t rows, channels, share, pieces, tiles; /* share: rows of a piece */
    uint32_t wide, lanes; /* neighbouring channels of a thread; threads side by side */
} plan_t;

static void set_tiles(plan_t *plan, uint32_t wide)
{
    plan->wide = wide;
    plan->lanes = TILE;
    while (plan->lanes > 1 && (int64_t)(plan->lanes / 2 * wide) >= plan->channels) plan->lanes /= 2;
    const int64_t tile = (int64_t)(plan->lanes * wide);
    plan->tiles = (plan->channels + tile - 1) / tile;
}

static plan_t plan_of(const fy_launch_t *launch, unsigned nprocessors, uint64_t limit)
{
    const fy_desc_t *x = &launch->src[is_backward(launch->op)];
    plan_t plan = { .rows = 1, .channels = x->dims[x->rank - 1] };
    for (int axis = 0; axis + 1 < x->rank; axis++) plan.rows *= x->dims[axis];
    if (plan.channels == 0 || plan.rows == 0) return plan;
    /* by the shape, even where no 16 bytes can be accessed: it is the order of sums */
    const int64_t access = (int64_t)(16 / fy__cuda_dtype_nbytes(x->dtype));
    set_tiles(&plan, plan.channels % access == 0 ? (uint32_t)access : 1);
    const int64_t by_rows = plan.rows / (FY__CUDA_BLOCK / plan.lanes * ROWS),
                  by_room = (int64_t)(limit / ((uint64_t)plan.channels * 2 * sizeof(double)));
    plan.pieces = (int64_t)nprocessors * BLOCKS_A_PROCESSOR / plan.tiles;
    if (by_rows < plan.pieces) plan.pieces = by_rows;
    if (by_room < plan.pieces) plan.pieces = by_room;
    if (plan.pieces < 1) plan.pieces = 1;
    plan.share = (plan.rows + plan.pieces - 1) / plan.pieces;
    plan.pieces = (plan.rows + plan.share - 1) / plan.share;
    return plan;
}

/* x's shape, or one value a row, with as few axes before the last, or in all, as possible. */
static void set(fy__cuda_operand_t *operand, const fy_desc_t *desc, int has_channels)
{
    const int64_t *strides = desc->strides;
    const int last = desc->rank - has_channels;
    fy__index_t index;
    fy__cuda_operand_point(operand, desc->data, desc->dtype);
    fy__index_make(&index, last, desc->dims, 1, &strides);
    for (int axis = 0; axis < index.rank && (last > 0 || !has_channels); axis++)
        fy__cuda_operand_add(operand, index.dims[axis], index.strides[0][axis]);
    if (has_channels) fy__cuda_operand_add(operand, desc->dims[last], desc->strides[last]);
}

/* Whether an operand of these ops has x's last axis: all but one value a row. */
static int has_channels(const fy_launch_t *launch, int is_dst, unsigned i)
{
    switch (launch->op) {
    case FY_OP_LAYER_NORM:
    case FY_OP_RMS_NORM: return !is_dst || i == 0;
    case FY_OP_LAYER_NORM_BACKWARD: return is_dst || (i != 2 && i != 3);
    case FY_OP_RMS_NORM_BACKWARD: return is_dst || i != 2;
    default: return 1;
    }
}

/* The sources that kernels read as they read x. */
static uint32_t read_like_x(uint32_t op)
{
    switch (op) {
    case FY_OP_BATCH_NORM: return 1u << 0 | 1u << 3;
    case FY_OP_BATCH_NORM_BACKWARD: return 1u << 0 | 1u << 1 | 1u << 5;
    case FY_OP_BATCH_NORM_INFERENCE: return 1u << 0 | 1u << 5;
    case FY_OP_LAYER_NORM_BACKWARD: return 1u << 0 | 1u << 1 | 1u << 4;
    case FY_OP_RMS_NORM_BACKWARD: return 1u << 0 | 1u << 1 | 1u << 3;
    default: return 7;
    }
}

/* workspace NULL: the kernel uses none. */
static void pack(const fy_launch_t *launch, const plan_t *plan, void *workspace, int kernel,
                 fy__cuda_request_t *out)
{
    size_t attrs_nbytes = 0;
    switch (launch->op) {
    case FY_OP_BATCH_NORM: attrs_nbytes = sizeof(fy_batch_norm_attrs_t); break;
    case FY_OP_BATCH_NORM_INFERENCE: attrs_nbytes = sizeof(fy_batch_norm_inference_attrs_t); break;
    case FY_OP_LAYER_NORM:
    case FY_OP_RMS_NORM: attrs_nbytes = sizeof(fy_norm_attrs_t); break;
    default: break;
    }
    fy__cuda_args_t *args = &out->args;
    fy__cuda_request_init(out, launch->op, launch->nelem, launch->nsrc + (workspace != NULL),
                          launch->attrs, attrs_nbytes);
    args->ndst = launch->ndst;
    args->accumulate = launch->accumulate;
    for (unsigned i = 0; i < launch->ndst; i++)
        set(&args->dst[i], &launch->dst[i], has_channels(launch, 1, i));
    for (unsigned i = 0; i < launch->nsrc; i++)
        set(&args->src[i], &launch->src[i], has_channels(launch, 0, i));
    if (workspace != NULL) {
        const fy_desc_t parts = { .data = workspace,
                                  .dtype = FY_DTYPE_F64,
                                  .rank = 3,
                                  .dims = { plan->pieces, 2, plan->channels },
                                  .strides = { 2 * plan->channels, plan->channels, 1 } };
        fy__cuda_operand_set(&args->src[launch->nsrc], &parts);
        args->count = (uint64_t)plan->share;
    }
    fy__cuda_args_size(args, launch->nelem);
    const uint32_t like_x = read_like_x(launch->op) & ((1u << launch->nsrc) - 1);
    fy__cuda_set_rows_of(args, 1, like_x);
    if (args->src[is_backward(launch->op)].rank != 2 || args->dst[0].rank != 2)
        args->flags &= ~(uint32_t)FY__CUDA_ALIGNED;
    for (unsigned i = 0; i < launch->nsrc; i++)
        if (args->src[i].rank > (like_x >> i & 1 ? 2 : 1))
            args->flags &= ~(uint32_t)FY__CUDA_ALIGNED;
    args->wide = plan->wide > 1 ? plan->wide : 0;
    if (args->wide == 0) args->flags &= ~(uint32_t)FY__CUDA_ALIGNED;
    args->lanes = plan->lanes > 0 ? plan->lanes : 1;
    out->threads = (uint64_t)(plan->tiles * plan->pieces) * FY__CUDA_BLOCK;
    out->kernel = kernel;
}

static void pack_join(const fy_launch_t *launch, const plan_t *plan, void *workspace, int kernel,
                      fy__cuda_request_t *out)
{
    uint32_t lanes = TILE;
    while (lanes > 1 && plan->pieces > FY__CUDA_BLOCK / lanes * JOINED) lanes /= 2;
    pack(launch, plan, workspace, kernel, out);
    out->args.lanes = lanes;
    out->threads = (uint64_t)((plan->channels + lanes - 1) / lanes) * FY__CUDA_BLOCK;
}

int fy__cuda_pack_batch_norm(const fy_launch_t *launch, unsigned nprocessors, void *workspace,
                             uint64_t limit, fy__cuda_request_t *out,
                             uint64_t *out_workspace_nbytes)
{
    const int is_f64 = launch->src[0].dtype == FY_DTYPE_F64;
    const int apply = FY__CUDA_KERNEL_BY(is_f64, fy_batch_norm_apply);
    const int runs = launch->op == FY_OP_BATCH_NORM_INFERENCE;
    plan_t plan = plan_of(launch, nprocessors, runs ? UINT64_MAX : limit);
    *out_workspace_nbytes = 0;
    if (runs) {
        if (out == NULL) return 0;
        pack(launch, &plan, NULL, apply, out);
        out->args.count = (uint64_t)plan.share;
        return 1;
    }
    const int whole = plan.pieces <= 1;
    if (!whole)
        *out_workspace_nbytes = (uint64_t)plan.pieces * 2 * (uint64_t)plan.channels *
                                sizeof(double);
    if (out == NULL) return 0;
    if (whole) {
        if (plan.pieces > 0) set_tiles(&plan, 1);
        pack(launch, &plan, NULL, FY__CUDA_KERNEL_BY(is_f64, fy_batch_norm), out);
        return 1;
    }
    pack(launch, &plan, workspace, FY__CUDA_KERNEL_BY(is_f64, fy_batch_norm_parts), &out[0]);
    pack_join(launch, &plan, workspace, FY__CUDA_KERNEL_fy_batch_norm_join, &out[1]);
    pack(launch, &plan, workspace, apply, &out[2]);
    return 3;
}

/* The gradients of weight and bias over no rows: zeros, unless they are only to be added. */
static int pack_zeros(const fy_launch_t *launch, fy__cuda_request_t *out)
{
    static const fy_fill_attrs_t zero = { 0, 0 };
    int n = 0;
    for (unsigned i = 1; i < launch->ndst; i++) {
        fy_launch_t fill = *launch;
        fill.op = FY_OP_FILL;
        fill.nsrc = 0;
        fill.ndst = 1;
        fill.dst = &launch->dst[i];
        fill.attrs = &zero;
        fill.attrs_nbytes = sizeof zero;
        fill.accumulate = 0;
        fill.nelem = (uint64_t)fill.dst->dims[0];
        if (fill.nelem == 0 || launch->accumulate >> i & 1u) continue;
        fy__cuda_pack_generate(&fill, &out[n++]);
    }
    return n;
}

int fy__cuda_pack_row_norm(const fy_launch_t *launch, unsigned nprocessors, void *workspace,
                           uint64_t limit, fy__cuda_request_t *out, uint64_t *out_workspace_nbytes)
{
    const int is_f64 = launch->src[0].dtype == FY_DTYPE_F64;
    const plan_t plan = plan_of(launch, nprocessors, limit);
    const int whole = plan.pieces <= 1;
    *out_workspace_nbytes = 0;
    if (is_backward(launch->op) && !whole)
        *out_workspace_nbytes = (uint64_t)plan.pieces * 2 * (uint64_t)plan.channels *
                                sizeof(double);
    if (out == NULL) return 0;
    if (launch->nelem == 0) return is_backward(launch->op) ? pack_zeros(launch, out) : 0;
    pack(launch, &plan, NULL, FY__CUDA_KERNEL_BY(is_f64, fy_row_norm), &out[0]);
    const int64_t most = plan.wide > 1 ? KEPT_ROW * (int64_t)plan.wide : LONG_ROW;
    out[0].args.lanes = plan.channels > most ? FY__CUDA_BLOCK : 32;
    out[0].threads = (uint64_t)plan.rows * out[0].args.lanes;
    if (!is_backward(launch->op)) return 1;
    pack(launch, &plan, whole ? NULL : workspace, FY__CUDA_KERNEL_BY(is_f64, fy_row_norm_parts),
         &out[1]);
    if (whole) return 2;
    pack_join(launch, &plan, workspace, FY__CUDA_KERNEL_fy_row_norm_join, &out[2]);
    return 3;
}
