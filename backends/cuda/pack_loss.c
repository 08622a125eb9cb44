/* Packing of the losses of classifiers, of one_hot, and of mse_loss's gradient. Few scores are one
 * block's work from beginning to end. Of more, one launch makes the rows' losses in f64, on the
 * whole device, and one block computes their mean, or a reduction their sum, in parts if there are
 * many. Next: kernels/loss.cu. */
#include "backends/cuda/pack.h"

enum {
    SHORT = 32,
    LONG = 2048,
    ONE_BLOCK = 4096,
    MANY_ROWS = 4096
}; /* classes; scores for one block: 16 a thread, which take about as long as a second launch; rows
    * that each block of a gradient counts again */

/* Threads that share a row. */
static uint32_t lanes_for(int64_t classes)
{
    return classes <= SHORT ? 1 : classes < LONG ? 32 : FY__CUDA_BLOCK;
}

/* The axes of an operand before the classes are the fused rows, `leads`, whose operand k it is. */
static void set_rows(fy__cuda_operand_t *operand, const fy__index_t *leads, int k,
                     const fy_desc_t *desc, int nleads)
{
    operand->rank = 0;
    for (int axis = 0; axis < leads->rank; axis++)
        fy__cuda_operand_add(operand, leads->dims[axis], leads->strides[k][axis]);
    if (desc->rank > nleads)
        fy__cuda_operand_add(operand, desc->dims[nleads], desc->strides[nleads]);
}

/* Of a launch whose targets are source `t`; weights are the source behind them. */
static void begin(const fy_launch_t *launch, int kernel, unsigned t, fy__cuda_request_t *out)
{
    const int is_backward = launch->op == FY_OP_NLL_LOSS_BACKWARD ||
                            launch->op == FY_OP_CROSS_ENTROPY_BACKWARD;
    const fy_desc_t *targets = &launch->src[t], *like = is_backward ? launch->dst : launch->src;
    const int by_row = *(const int32_t *)launch->attrs == FY_REDUCTION_NONE; /* the first field */
    fy__cuda_args_t *args = &out->args;
    fy__cuda_request_init(out, launch->op, launch->nelem, launch->nsrc, launch->attrs,
                          launch->op == FY_OP_NLL_LOSS_BACKWARD
                              ? sizeof(fy_class_loss_backward_attrs_t)
                              : sizeof(fy_class_loss_attrs_t));
    args->accumulate = launch->accumulate & 1;
    args->fault = (uint64_t)(uintptr_t)launch->fault;
    args->lanes = lanes_for(like->dims[like->rank - 1]);
    args->count = fy__cuda_nelem(targets);
    fy__cuda_operand_set(&args->dst[0], &launch->dst[0]);
    for (unsigned i = 0; i < launch->nsrc; i++)
        fy__cuda_operand_set(&args->src[i], &launch->src[i]);
    if (launch->op == FY_OP_CROSS_ENTROPY) fy__cuda_set_rows(args, 0, 0, 1);
    if (launch->op == FY_OP_CROSS_ENTROPY_BACKWARD) fy__cuda_set_rows(args, 1, 1, 2);

    /* Operands with rows: the targets, dst, source 0 (scores or dy) and, behind dy, the logits. */
    const fy_desc_t *const walked[4] = { targets, is_backward || by_row ? launch->dst : targets,
                                         !is_backward || by_row ? launch->src : targets,
                                         t == 2 ? &launch->src[1] : targets };
    const int64_t *const strides[4] = { walked[0]->strides, walked[1]->strides, walked[2]->strides,
                                        walked[3]->strides };
    fy__cuda_operand_t *const operands[4] = { &args->src[t], &args->dst[0], &args->src[0],
                                              &args->src[1] };
    fy__index_t leads;
    fy__index_make(&leads, targets->rank, targets->dims, 4, strides);
    for (int k = 0; k < 4; k++)
        if (k == 0 || walked[k] != targets)
            set_rows(operands[k], &leads, k, walked[k], targets->rank);
    out->kernel = kernel;
    out->threads = args->count * args->lanes;
}

/* The reduction of the rows' losses, which lie in the workspace; its own partial results lie behind
 * them. As fy__cuda_pack_reduce. */
static int pack_join(const fy_launch_t *launch, unsigned nprocessors, const fy_desc_t *each,
                     uint64_t limit, fy__cuda_request_t *out, uint64_t *out_workspace_nbytes)
{
    const fy_reduce_attrs_t all = { 0, 0 };
    const uint64_t nbytes = (uint64_t)each->dims[0] * sizeof(double);
    fy_desc_t src = *each;
    fy_launch_t join = *launch;
    join.op = FY_OP_SUM;
    join.nsrc = 1;
    join.src = &src;
    join.attrs = &all;
    join.accumulate = 0;
    void *behind = each->data != NULL ? (char *)each->data + nbytes : NULL;
    return fy__cuda_pack_reduce(&join, nprocessors, behind, limit - nbytes, out,
                                out_workspace_nbytes);
}

/* One block: the mean of the rows' losses `each`, or (NULL) the number by which a mean divides, to
 * `dst`. `from`: a launch of the op, whose targets are source `t`. */
static void pack_mean(const fy__cuda_request_t *from, unsigned t, int is_f64, const fy_desc_t *each,
                      const fy_desc_t *dst, fy__cuda_request_t *out)
{
    const fy__cuda_args_t *args = &from->args;
    *out = *from;
    out->kernel = FY__CUDA_KERNEL_BY(is_f64, fy_class_loss_mean);
    out->threads = FY__CUDA_BLOCK;
    out->args.nelem = 1;
    out->args.wide = 0;
    out->args.flags = 0;
    out->args.accumulate = 0;
    out->args.nsrc = args->nsrc - t;
    for (unsigned i = 0; i < out->args.nsrc; i++) out->args.src[i] = args->src[t + i];
    fy__cuda_operand_set(&out->args.dst[0], dst);
    out->args.ndst = each ? 2 : 1;
    if (each) fy__cuda_operand_set(&out->args.dst[1], each);
}

int fy__cuda_pack_class_loss(const fy_launch_t *launch, unsigned nprocessors, void *workspace,
                             uint64_t limit, fy__cuda_request_t *out,
                             uint64_t *out_workspace_nbytes)
{
    const fy_desc_t *scores = &launch->src[0];
    const int reduction = ((const fy_class_loss_attrs_t *)launch->attrs)->reduction;
    const int is_f64 = scores->dtype == FY_DTYPE_F64;
    const uint64_t rows = fy__cuda_nelem(&launch->src[1]), nbytes = rows * sizeof(double);
    const uint64_t nread =
        launch->op == FY_OP_NLL_LOSS ? rows : rows * (uint64_t)scores->dims[scores->rank - 1];
    const int two = reduction != FY_REDUCTION_NONE && nread > ONE_BLOCK && nbytes <= limit;
    const fy_desc_t each = { .data = workspace,
                             .dtype = FY_DTYPE_F64,
                             .rank = 1,
                             .dims = { (int64_t)rows },
                             .strides = { 1 } };
    uint64_t behind = 0;
    *out_workspace_nbytes = 0;
    if (two) {
        if (reduction == FY_REDUCTION_SUM)
            (void)pack_join(launch, nprocessors, &each, limit, NULL, &behind);
        *out_workspace_nbytes = nbytes + behind;
    }
    if (out == NULL) return 0;
    begin(launch, FY__CUDA_KERNEL_BY(is_f64, fy_class_loss), 1, &out[0]);
    if (!two) {
        if (reduction != FY_REDUCTION_NONE) out[0].threads = FY__CUDA_BLOCK;
        return 1;
    }
    if (reduction == FY_REDUCTION_MEAN)
        pack_mean(&out[0], 1, is_f64, &each, &launch->dst[0], &out[1]);
    out[0].args.nelem = rows;
    out[0].args.attrs.class_loss.reduction = FY_REDUCTION_NONE;
    /* Dense, with the axes of the targets, by which the kernel finds a row. */
    fy__cuda_operand_t *dst = &out[0].args.dst[0];
    const fy__cuda_operand_t *like = &out[0].args.src[1];
    fy__cuda_operand_set(dst, &each);
    dst->rank = like->rank;
    for (int64_t axis = like->rank - 1, step = 1; axis >= 0; step *= like->dims[axis--]) {
        dst->dims[axis] = like->dims[axis];
        dst->strides[axis] = step;
    }
    if (reduction == FY_REDUCTION_MEAN) return 2;
    return 1 + pack_join(launch, nprocessors, &each, limit, &out[1], &behind);
}

int fy__cuda_pack_class_loss_backward(const fy_launch_t *launch, unsigned nprocessors,
                                      void *workspace, uint64_t limit, fy__cuda_request_t *out,
                                      uint64_t *out_workspace_nbytes)
{
    const unsigned t = launch->op == FY_OP_CROSS_ENTROPY_BACKWARD ? 2 : 1;
    const int is_f64 = launch->src[0].dtype == FY_DTYPE_F64;
    const int reduction = *(const int32_t *)launch->attrs; /* the first field of both structs */
    const int two = reduction == FY_REDUCTION_MEAN && fy__cuda_nelem(&launch->src[t]) > MANY_ROWS &&
                    sizeof(double) <= limit;
    (void)nprocessors;
    *out_workspace_nbytes = two ? sizeof(double) : 0;
    if (out == NULL) return 0;
    fy__cuda_request_t *own = &out[two];
    begin(launch, FY__CUDA_KERNEL_BY(is_f64, fy_class_loss_backward), t, own);
    if (!two) return 1;
    const fy_desc_t divisor = { .data = workspace, .dtype = FY_DTYPE_F64 };
    pack_mean(own, t, is_f64, NULL, &divisor, &out[0]);
    own->args.ndst = 2;
    fy__cuda_operand_set(&own->args.dst[1], &divisor);
    return 2;
}

/* One thread an element; dy is read by all. */
void fy__cuda_pack_mse_loss_backward(const fy_launch_t *launch, fy__cuda_request_t *out)
{
    const fy_desc_t *dst = &launch->dst[0];
    const int64_t *strides[3] = { dst->strides, launch->src[1].strides, launch->src[2].strides };
    fy__cuda_args_t *args = &out->args;
    fy__index_t index;
    fy__index_make(&index, dst->rank, dst->dims, 3, strides);
    fy__cuda_request_init(out, launch->op, launch->nelem, 3, NULL, 0);
    args->accumulate = launch->accumulate & 1;
    fy__cuda_operand_set(&args->src[0], &launch->src[0]);
    for (int k = 0; k < 3; k++) {
        fy__cuda_operand_t *operand = k ? &args->src[k] : &args->dst[0];
        fy__cuda_operand_fused(operand, k ? &launch->src[k] : dst, &index, k);
    }
    fy__cuda_args_size(args, launch->nelem);
    (void)fy__cuda_set_wide(args, 1, 1, 3, (uint32_t)(16 / fy__cuda_dtype_nbytes(dst->dtype)));
    out->kernel = FY__CUDA_KERNEL_BY(dst->dtype == FY_DTYPE_F64, fy_mse_loss_backward);
    out->threads = args->wide ? launch->nelem / args->wide + 1 : launch->nelem;
}

void fy__cuda_pack_one_hot(const fy_launch_t *launch, fy__cuda_request_t *out)
{
    fy__cuda_pack_unfused(launch, sizeof(fy_one_hot_attrs_t), out);
    out->kernel = FY__CUDA_KERNEL_fy_one_hot;
}
