/* Packing of reductions. Kept axes are moved to the front, reduced ones to the back, each side
 * fused (pack_canonical.h). A reduction with few results and many elements is split: the longest
 * reduced axis becomes [pieces, piece], the pieces make partial results in the workspace (the last,
 * shorter piece in a separate launch), and a last launch joins those. Every launch is a reduction
 * as op.h defines it, with other shapes. */
#include "backends/cuda/pack_canonical.h"

enum {
    LEAST_A_THREAD = 16, /* a cut leaves each thread so many elements at least */
    FEW_ROWS = 8,        /* so few are no column: nothing to have in flight */
    MANY_PARTS = 32,     /* so many partial results a column are joined by a warp */
    /* long pieces are a multiple of it, so that each begins where 16-byte accesses may */
    ROUND = 16,
};

/* Columns: neighbouring results read neighbouring elements, and a thread adds up whole columns
 * (kernels/columns.cu). */
static int is_column(uint32_t op, int64_t keep_stride, int64_t drop_stride, uint32_t lanes,
                     uint64_t ndropped)
{
    return (op == FY_OP_SUM || op == FY_OP_MEAN) && lanes == 1 && keep_stride == 1 &&
           drop_stride != 1 && ndropped > FEW_ROWS;
}

static int adds_columns(uint32_t op, const fy__cuda_canonical_t *c)
{
    const int64_t keep_stride = c->nkeep > 0 ? c->keep.strides[0][c->nkeep - 1] : 0;
    return is_column(op, keep_stride, c->drop.strides[0][c->ndrop - 1], fy__cuda_canonical_lanes(c),
                     c->ndropped);
}

/* ---- cutting ---- */

typedef struct cut {
    int axis;            /* of drop */
    uint64_t pieces;     /* whole ones; 0: no cut */
    int64_t piece, rest; /* their length, and that of the last, shorter one (0: none) */
    uint64_t nbytes;     /* of all partial results */
} cut_t;

static int32_t partial_dtype(const fy_launch_t *launch)
{
    int32_t dtype = launch->src[0].dtype;
    if (launch->op == FY_OP_MAX || launch->op == FY_OP_MIN) return dtype;
    return fy__cuda_class_of(dtype) == FY__CUDA_INT ? FY_DTYPE_I64 : FY_DTYPE_F64;
}

/* Depends on the sources, the device's size and the limit only. */
static cut_t plan_cut(const fy_launch_t *launch, const fy__cuda_canonical_t *c,
                      unsigned nprocessors, uint64_t limit)
{
    cut_t none = { 0 }, cut = { 0 };
    uint64_t lanes = fy__cuda_canonical_lanes(c), threads = c->nkept * lanes,
             wanted = (uint64_t)nprocessors * FY__CUDA_THREADS_A_SM;
    /* a thread has several columns, and several reads in flight */
    if (adds_columns(launch->op, c)) {
        threads = (threads * fy__cuda_dtype_nbytes(launch->src[0].dtype) + 15) / 16;
        wanted /= 2;
    }
    uint64_t row_nbytes = c->nkept * fy__cuda_dtype_nbytes(partial_dtype(launch));
    if (c->nkept == 0 || c->ndropped == 0 || threads >= wanted ||
        c->nkeep + c->ndrop + 1 > FY_MAX_RANK)
        return none;
    for (int axis = 1; axis < c->ndrop; axis++)
        if (c->drop.dims[axis] > c->drop.dims[cut.axis]) cut.axis = axis;
    uint64_t length = (uint64_t)c->drop.dims[cut.axis], pieces = wanted / threads;
    uint64_t most_by_work = c->ndropped / (lanes * LEAST_A_THREAD),
             most_by_bytes = limit / row_nbytes;
    if (pieces > most_by_work) pieces = most_by_work;
    if (pieces > length) pieces = length;
    if (pieces > most_by_bytes) pieces = most_by_bytes;
    if (pieces < 2) return none;
    cut.piece = (int64_t)((length + pieces - 1) / pieces);
    if (cut.piece > 8 * ROUND) cut.piece = (cut.piece + ROUND - 1) / ROUND * ROUND;
    cut.pieces = length / (uint64_t)cut.piece;
    cut.rest = (int64_t)(length % (uint64_t)cut.piece);
    cut.nbytes = (cut.pieces + (cut.rest > 0)) * row_nbytes;
    return cut.pieces < 2 ? none : cut;
}

/* ---- packing ---- */

static int reduce_kernel(int32_t dtype)
{
    return fy__cuda_class_of(dtype) == FY__CUDA_INT ? FY__CUDA_KERNEL_fy_reduce_int
                                                    : FY__CUDA_KERNEL_fy_reduce_float;
}

/* The last axes, from `first` on, are reduced. */
static void finish_request(fy__cuda_request_t *out, int first, uint64_t largest)
{
    fy__cuda_args_t *args = &out->args;
    for (int axis = first; axis < args->src[0].rank; axis++) args->attrs.reduce.axes |= 1u << axis;
    args->attrs.reduce.keepdims = 1;
    const fy__cuda_operand_t *src = &args->src[0];
    uint64_t ndropped = 1;
    for (int axis = first; axis < src->rank; axis++) ndropped *= (uint64_t)src->dims[axis];
    if (first > 0 && first < src->rank &&
        is_column(args->op, src->strides[first - 1], src->strides[src->rank - 1], args->lanes,
                  ndropped)) {
        out->kernel = out->kernel == FY__CUDA_KERNEL_fy_reduce_int
                          ? FY__CUDA_KERNEL_fy_reduce_columns_int
                          : FY__CUDA_KERNEL_fy_reduce_columns_float;
        fy__cuda_set_columns(args, first - 1);
        if (args->wide) out->threads = args->nelem / args->wide;
    } else if (first < src->rank) {
        fy__cuda_set_rows(args, 0, 0, args->nsrc);
    }
    fy__cuda_args_size(args, largest > args->nelem ? largest : args->nelem);
}

/* Kept axes of partial results, which lie row-major behind each other. */
static void add_kept_dense(fy__cuda_operand_t *operand, const fy__cuda_canonical_t *c)
{
    int64_t stride = (int64_t)c->nkept;
    for (int axis = 0; axis < c->nkeep; axis++) {
        stride /= c->keep.dims[axis];
        fy__cuda_operand_add(operand, c->keep.dims[axis], stride);
    }
}

/* Reduced axes of source k, with `length` in place of the cut axis's (or -1: no cut); as many axes
 * of length 1 for dst. */
static void add_dropped(fy__cuda_args_t *args, const fy__cuda_canonical_t *c, int cut_axis,
                        int64_t length)
{
    for (int axis = 0; axis < c->ndrop; axis++) {
        for (unsigned k = 0; k < args->nsrc; k++)
            fy__cuda_operand_add(&args->src[k], axis == cut_axis ? length : c->drop.dims[axis],
                                 c->drop.strides[k][axis]);
        fy__cuda_operand_add(&args->dst[0], 1, 1);
    }
}

static void pack_whole(const fy_launch_t *launch, const fy__cuda_canonical_t *c,
                       fy__cuda_request_t *out)
{
    fy__cuda_request_begin(out, reduce_kernel(launch->src[0].dtype), launch->op, c->nkept,
                           launch->nsrc, fy__cuda_canonical_lanes(c));
    fy__cuda_args_t *args = &out->args;
    args->accumulate = launch->accumulate & 1;
    fy__cuda_operand_point(&args->dst[0], launch->dst[0].data, launch->dst[0].dtype);
    fy__cuda_operand_kept(&args->dst[0], c, launch->nsrc);
    for (int k = 0; k < launch->nsrc; k++) {
        fy__cuda_operand_point(&args->src[k], launch->src[k].data, launch->src[k].dtype);
        fy__cuda_operand_kept(&args->src[k], c, k);
    }
    add_dropped(args, c, -1, 0);
    finish_request(out, c->nkeep, c->ndropped);
}

/* Partial results of `pieces` pieces of length `length`, from element `begin` of the cut axis
 * on. */
static void pack_partial(const fy_launch_t *launch, const fy__cuda_canonical_t *c, const cut_t *cut,
                         uint64_t pieces, int64_t begin, int64_t length, char *partial,
                         fy__cuda_request_t *out)
{
    const uint32_t op = launch->op == FY_OP_MEAN ? FY_OP_SUM : launch->op;
    fy__cuda_request_begin(out, reduce_kernel(launch->src[0].dtype), op, pieces * c->nkept,
                           launch->nsrc, fy__cuda_canonical_lanes(c));
    fy__cuda_args_t *args = &out->args;
    if (op == FY_OP_MSE_LOSS) args->count = 1; /* the sum, not the mean */
    fy__cuda_operand_point(&args->dst[0], partial, partial_dtype(launch));
    fy__cuda_operand_add(&args->dst[0], (int64_t)pieces, (int64_t)c->nkept);
    add_kept_dense(&args->dst[0], c);
    for (int k = 0; k < launch->nsrc; k++) {
        const fy_desc_t *src = &launch->src[k];
        int64_t stride = c->drop.strides[k][cut->axis];
        fy__cuda_operand_point(&args->src[k],
                               (char *)src->data +
                                   begin * stride * (int64_t)fy__cuda_dtype_nbytes(src->dtype),
                               src->dtype);
        fy__cuda_operand_add(&args->src[k], (int64_t)pieces, length * stride);
        fy__cuda_operand_kept(&args->src[k], c, k);
    }
    add_dropped(args, c, cut->axis, length);
    finish_request(out, c->nkeep + 1, c->ndropped);
}

static void pack_join(const fy_launch_t *launch, const fy__cuda_canonical_t *c, const cut_t *cut,
                      const char *partial, fy__cuda_request_t *out)
{
    const uint64_t npartial = cut->pieces + (cut->rest > 0);
    const int averages = launch->op == FY_OP_MEAN || launch->op == FY_OP_MSE_LOSS;
    uint32_t lanes =
        fy__cuda_lanes_for(c->nkept, npartial, c->nkeep > 0 ? 1 : 0, (int64_t)c->nkept);
    if (lanes == 1 && npartial > MANY_PARTS) lanes = 32;
    fy__cuda_request_begin(out, reduce_kernel(partial_dtype(launch)),
                           averages ? FY_OP_MEAN : launch->op, c->nkept, 1, lanes);
    fy__cuda_args_t *args = &out->args;
    args->accumulate = launch->accumulate & 1;
    if (averages) args->count = c->ndropped;
    fy__cuda_operand_point(&args->dst[0], launch->dst[0].data, launch->dst[0].dtype);
    fy__cuda_operand_kept(&args->dst[0], c, launch->nsrc);
    fy__cuda_operand_add(&args->dst[0], 1, 1);
    fy__cuda_operand_point(&args->src[0], partial, partial_dtype(launch));
    add_kept_dense(&args->src[0], c);
    fy__cuda_operand_add(&args->src[0], (int64_t)npartial, (int64_t)c->nkept);
    finish_request(out, c->nkeep, npartial);
}

static uint32_t reduced_mask(const fy_launch_t *launch, int *out_keepdims)
{
    uint32_t all = (1u << launch->src[0].rank) - 1;
    *out_keepdims = 0;
    if (launch->op == FY_OP_MSE_LOSS) return all;
    const fy_reduce_attrs_t *attrs = launch->attrs;
    *out_keepdims = attrs->keepdims != 0;
    return attrs->axes != 0 ? attrs->axes : all;
}

int fy__cuda_pack_reduce(const fy_launch_t *launch, unsigned nprocessors, void *workspace,
                         uint64_t limit, fy__cuda_request_t *out, uint64_t *out_workspace_nbytes)
{
    int keepdims, n = 0;
    const uint32_t mask = reduced_mask(launch, &keepdims);
    fy__cuda_canonical_t c;
    fy__cuda_canonicalise(launch, mask, NULL, keepdims, &c);
    cut_t cut = plan_cut(launch, &c, nprocessors, limit);
    *out_workspace_nbytes = cut.nbytes;
    if (out == NULL) return 0;
    /* dst may keep axes apart that the sources would fuse */
    fy__cuda_canonicalise(launch, mask, &launch->dst[0], keepdims, &c);
    if (cut.pieces == 0 || c.nkeep + c.ndrop + 1 > FY_MAX_RANK) {
        pack_whole(launch, &c, &out[0]);
        return 1;
    }
    const uint64_t whole_nbytes = cut.pieces * c.nkept *
                                  fy__cuda_dtype_nbytes(partial_dtype(launch));
    pack_partial(launch, &c, &cut, cut.pieces, 0, cut.piece, workspace, &out[n++]);
    if (cut.rest > 0)
        pack_partial(launch, &c, &cut, 1, (int64_t)cut.pieces * cut.piece, cut.rest,
                     (char *)workspace + whole_nbytes, &out[n++]);
    pack_join(launch, &c, &cut, workspace, &out[n++]);
    return n;
}
