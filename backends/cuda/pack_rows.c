/* Packing of softmax, log_softmax, their gradients, argmax and cumsum (never in pieces): one row is
 * joined along one axis.
 * Many rows are one launch, a group of threads a row. Few long rows are cut into pieces and become
 * two launches: the first makes one partial result a piece, in the workspace;
 * the second joins a row's partial results, in the same order in every group, and makes the
 * results. The number of pieces depends on the sources' shape, the device's size and the workspace
 * only. Next: kernels/softmax.cu, kernels/softmax_long.cu, kernels/argmax.cu. */
#include "backends/cuda/pack_canonical.h"

enum {
    LEAST_A_LANE = 16, /* elements of a piece for each thread of a group */
    LEAST_ALONE = 64,  /* and for a thread that has a piece alone */
    LEAST_PIECES = 4,  /* fewer do not pay for a second launch */
    ROUND = 16,        /* pieces begin where 16-byte accesses may */
    /* a group reads at most a fourth as many partial results as elements of its piece */
    JOIN_SHARE = 4,
};

typedef struct pieces {
    /* a row has `count` pieces of `length` elements, the last one may be shorter; 0: the row is
     * whole */
    int64_t count, length;
} pieces_t;

static int64_t rounded_up(int64_t x, int64_t to) { return (x + to - 1) / to * to; }

/* `nbytes`: of one piece's partial result. */
static pieces_t plan_pieces(const fy__cuda_canonical_t *c, unsigned nprocessors, uint64_t nbytes,
                            uint64_t limit)
{
    const pieces_t whole = { 0, 0 };
    const uint64_t lanes = fy__cuda_canonical_lanes(c), threads = c->nkept * lanes,
                   wanted = (uint64_t)nprocessors * FY__CUDA_THREADS_A_SM;
    const uint64_t length = c->ndropped, least = lanes == 1 ? LEAST_ALONE : LEAST_A_LANE * lanes;
    if (threads == 0 || threads * LEAST_PIECES > wanted || length / least < LEAST_PIECES)
        return whole;
    uint64_t n = wanted / threads;
    if (n > length / least) n = length / least;
    if (n > limit / (nbytes * c->nkept)) n = limit / (nbytes * c->nkept);
    while (n * n * JOIN_SHARE > length) n--;
    if (n < LEAST_PIECES) return whole;
    pieces_t pieces = { .length = rounded_up((int64_t)((length + n - 1) / n), ROUND) };
    pieces.count = ((int64_t)length + pieces.length - 1) / pieces.length;
    return pieces;
}

/* Partial results lie behind each other: piece by piece, in each piece row by row. */
static void add_partial(fy__cuda_operand_t *operand, void *workspace, int32_t dtype, int64_t n)
{
    fy__cuda_operand_point(operand, workspace, dtype);
    fy__cuda_operand_add(operand, n, 1);
}

static void add_rows(fy__cuda_operand_t *operand, const fy_desc_t *desc,
                     const fy__cuda_canonical_t *c, int k, int axis)
{
    fy__cuda_operand_point(operand, desc->data, desc->dtype);
    fy__cuda_operand_kept(operand, c, k);
    fy__cuda_operand_add(operand, desc->dims[axis], desc->strides[axis]);
}

/* A request over all sources; its result is added by the caller. */
static void begin_rows(const fy_launch_t *launch, const fy__cuda_canonical_t *c, int kernel,
                       uint64_t nelem, int64_t groups, uint32_t lanes, int axis,
                       fy__cuda_request_t *out)
{
    fy__cuda_request_begin(out, kernel, launch->op, nelem, launch->nsrc, lanes);
    out->threads = (uint64_t)groups * lanes;
    for (int k = 0; k < launch->nsrc; k++) add_rows(&out->args.src[k], &launch->src[k], c, k, axis);
    out->args.attrs.axis = (fy_axis_attrs_t){ .axis = c->nkeep, .keepdims = 0 };
    fy__cuda_args_size(&out->args, c->nkept * c->ndropped);
}

/* ---- softmax ---- */

typedef struct softmax_kernels {
    int whole, parts, join;
    /* numbers that a piece has: the largest value and the sum of exponentials, or the gradient's
     * one sum */
    int64_t partials;
} softmax_kernels_t;

static softmax_kernels_t softmax_kernels(const fy_launch_t *launch)
{
    const int backward = launch->nsrc == 2,
              is_f64 = fy__cuda_class_of(launch->src[0].dtype) == FY__CUDA_F64;
    return (softmax_kernels_t){ backward ? FY__CUDA_KERNEL_BY(is_f64, fy_softmax_backward)
                                         : FY__CUDA_KERNEL_BY(is_f64, fy_softmax),
                                FY__CUDA_KERNEL_BY(is_f64, fy_softmax_parts),
                                FY__CUDA_KERNEL_BY(is_f64, fy_softmax_join), backward ? 1 : 2 };
}

int fy__cuda_pack_softmax(const fy_launch_t *launch, unsigned nprocessors, void *workspace,
                          uint64_t limit, fy__cuda_request_t *out, uint64_t *out_workspace_nbytes)
{
    const int axis = ((const fy_axis_attrs_t *)launch->attrs)->axis;
    const softmax_kernels_t kernels = softmax_kernels(launch);
    fy__cuda_canonical_t c;
    fy__cuda_canonicalise(launch, 1u << axis, NULL, 1, &c);
    const uint32_t lanes = fy__cuda_canonical_lanes(&c);
    const pieces_t pieces =
        plan_pieces(&c, nprocessors, (uint64_t)kernels.partials * sizeof(double), limit);
    const int64_t npartial = kernels.partials * pieces.count * (int64_t)c.nkept;
    *out_workspace_nbytes = (uint64_t)npartial * sizeof(double);
    if (out == NULL) return 0;
    fy__cuda_request_t *last = &out[pieces.count > 0];
    if (pieces.count > 0) {
        begin_rows(launch, &c, kernels.parts, (uint64_t)npartial, pieces.count * (int64_t)c.nkept,
                   lanes, axis, &out[0]);
        add_partial(&out[0].args.dst[0], workspace, FY_DTYPE_F64, npartial);
        out[0].args.count = (uint64_t)pieces.length;
        fy__cuda_set_rows(&out[0].args, 0, 0, launch->nsrc);
    }
    /* dst may keep axes apart that the sources would fuse */
    fy__cuda_canonicalise(launch, 1u << axis, &launch->dst[0], 1, &c);
    begin_rows(launch, &c, pieces.count > 0 ? kernels.join : kernels.whole, launch->nelem,
               (pieces.count > 0 ? pieces.count : 1) * (int64_t)c.nkept, lanes, axis, last);
    add_rows(&last->args.dst[0], &launch->dst[0], &c, launch->nsrc, axis);
    last->args.accumulate = launch->accumulate & 1;
    fy__cuda_set_rows(&last->args, 1, 0, launch->nsrc);
    if (pieces.count > 0) {
        add_partial(&last->args.src[last->args.nsrc++], workspace, FY_DTYPE_F64, npartial);
        last->args.count = (uint64_t)pieces.length;
    }
    return pieces.count > 0 ? 2 : 1;
}

/* ---- cumsum ---- */

void fy__cuda_pack_cumsum(const fy_launch_t *launch, fy__cuda_request_t *out)
{
    const fy_cumsum_attrs_t *attrs = launch->attrs;
    const int axis = attrs->axis;
    fy__cuda_canonical_t c;
    fy__cuda_canonicalise(launch, 1u << axis, &launch->dst[0], 1, &c);
    begin_rows(launch, &c, FY__CUDA_KERNEL_fy_cumsum_float, c.nkept, (int64_t)c.nkept,
               fy__cuda_canonical_lanes(&c), axis, out);
    if (fy__cuda_class_of(launch->src[0].dtype) == FY__CUDA_INT)
        out->kernel = FY__CUDA_KERNEL_fy_cumsum_int;
    add_rows(&out->args.dst[0], &launch->dst[0], &c, launch->nsrc, axis);
    out->args.attrs.cumsum = (fy_cumsum_attrs_t){ .axis = c.nkeep, .reverse = attrs->reverse };
}

/* ---- argmax ---- */

int fy__cuda_pack_argmax(const fy_launch_t *launch, unsigned nprocessors, void *workspace,
                         uint64_t limit, fy__cuda_request_t *out, uint64_t *out_workspace_nbytes)
{
    const fy_axis_attrs_t *attrs = launch->attrs;
    const int axis = attrs->axis;
    fy__cuda_canonical_t c;
    fy__cuda_canonicalise(launch, 1u << axis, NULL, attrs->keepdims != 0, &c);
    const uint32_t lanes = fy__cuda_canonical_lanes(&c);
    const pieces_t pieces = plan_pieces(&c, nprocessors, sizeof(int64_t), limit);
    const int64_t npartial = pieces.count * (int64_t)c.nkept;
    *out_workspace_nbytes = (uint64_t)npartial * sizeof(int64_t);
    if (out == NULL) return 0;
    fy__cuda_request_t *last = &out[pieces.count > 0];
    if (pieces.count > 0) {
        begin_rows(launch, &c, FY__CUDA_KERNEL_fy_argmax, (uint64_t)npartial, npartial, lanes, axis,
                   &out[0]);
        add_partial(&out[0].args.dst[0], workspace, FY_DTYPE_I64, npartial);
        out[0].args.count = (uint64_t)pieces.length;
        fy__cuda_set_rows(&out[0].args, 0, 0, 1);
    }
    fy__cuda_canonicalise(launch, 1u << axis, &launch->dst[0], attrs->keepdims != 0, &c);
    begin_rows(launch, &c,
               pieces.count > 0 ? FY__CUDA_KERNEL_fy_argmax_join : FY__CUDA_KERNEL_fy_argmax,
               c.nkept, (int64_t)c.nkept, lanes, axis, last);
    fy__cuda_operand_point(&last->args.dst[0], launch->dst[0].data, launch->dst[0].dtype);
    fy__cuda_operand_kept(&last->args.dst[0], &c, launch->nsrc);
    fy__cuda_operand_add(&last->args.dst[0], 1, 1);
    last->args.attrs.axis.keepdims = 1;
    if (pieces.count > 0) {
        add_partial(&last->args.src[last->args.nsrc++], workspace, FY_DTYPE_I64, npartial);
        last->args.count = (uint64_t)pieces.length;
        return 2;
    }
    fy__cuda_set_rows(&last->args, 0, 0, 1);
    return 1;
}
