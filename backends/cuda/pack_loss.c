/* Packing of the losses of classifiers, of one_hot, and of mse_loss's gradient. Few scores are one
 * block's work from beginning to end. Of more, one launch makes the rows' losses in f64, on the
 * whole device, and a reduction joins them, in parts if there are many. Next: kernels/loss.cu. */
#include "backends/cuda/pack.h"

#include "opset/formulas/index.h"

enum {
    SHORT = 32,
    LONG = 2048,
    ONE_BLOCK = 4096
}; /* classes; scores for one block: 16 a thread, which take about as long as a second launch */

/* Threads that share a row. */
static uint32_t lanes_for(int64_t classes)
{
    return classes <= SHORT ? 1 : classes < LONG ? 32 : FY__CUDA_BLOCK;
}

static void begin(const fy_launch_t *launch, int kernel, int64_t rows, int64_t classes,
                  fy__cuda_request_t *out)
{
    fy__cuda_args_t *args = &out->args;
    fy__cuda_args_init(args, launch->op, launch->nelem, launch->nsrc, launch->attrs,
                       sizeof(fy_loss_attrs_t));
    args->accumulate = launch->accumulate & 1;
    args->fault = (uint64_t)(uintptr_t)launch->fault;
    args->lanes = lanes_for(classes);
    fy__cuda_operand_set(&args->dst[0], &launch->dst[0]);
    for (unsigned i = 0; i < launch->nsrc; i++)
        fy__cuda_operand_set(&args->src[i], &launch->src[i]);
    if (launch->op == FY_OP_CROSS_ENTROPY) fy__cuda_set_rows(args, 0, 0, 1);
    if (launch->op == FY_OP_CROSS_ENTROPY_BACKWARD) fy__cuda_set_rows(args, 1, 1, 2);
    out->kernel = kernel;
    out->threads = (uint64_t)rows * args->lanes;
    out->square = 0;
}

/* The reduction of the rows' losses, which lie in the workspace; its own partial results lie behind
 * them. As fy__cuda_pack_reduce. */
static int pack_join(const fy_launch_t *launch, unsigned nprocessors, const fy_desc_t *each,
                     int reduction, uint64_t limit, fy__cuda_request_t *out,
                     uint64_t *out_workspace_nbytes)
{
    const fy_reduce_attrs_t all = { 0, 0 };
    const uint64_t nbytes = (uint64_t)each->dims[0] * sizeof(double);
    fy_desc_t src = *each;
    fy_launch_t join = *launch;
    join.op = reduction == FY_REDUCTION_MEAN ? FY_OP_MEAN : FY_OP_SUM;
    join.nsrc = 1;
    join.src = &src;
    join.attrs = &all;
    join.accumulate = 0;
    void *behind = each->data != NULL ? (char *)each->data + nbytes : NULL;
    return fy__cuda_pack_reduce(&join, nprocessors, behind, limit - nbytes, out,
                                out_workspace_nbytes);
}

int fy__cuda_pack_class_loss(const fy_launch_t *launch, unsigned nprocessors, void *workspace,
                             uint64_t limit, fy__cuda_request_t *out,
                             uint64_t *out_workspace_nbytes)
{
    const fy_desc_t *scores = &launch->src[0];
    const int64_t rows = scores->dims[0], classes = scores->dims[1];
    const int reduction = ((const fy_loss_attrs_t *)launch->attrs)->reduction;
    const int kernel = scores->dtype == FY_DTYPE_F64 ? FY__CUDA_KERNEL_fy_class_loss_f64
                                                     : FY__CUDA_KERNEL_fy_class_loss_f32;
    const uint64_t nbytes = (uint64_t)rows * sizeof(double);
    const uint64_t nread = launch->op == FY_OP_NLL_LOSS ? (uint64_t)rows
                                                        : (uint64_t)rows * (uint64_t)classes;
    const int two = reduction != FY_REDUCTION_NONE && nread > ONE_BLOCK && nbytes <= limit;
    const fy_desc_t each = {
        .data = workspace, .dtype = FY_DTYPE_F64, .rank = 1, .dims = { rows }, .strides = { 1 }
    };
    uint64_t behind = 0;
    *out_workspace_nbytes = 0;
    if (two) {
        (void)pack_join(launch, nprocessors, &each, reduction, limit, NULL, &behind);
        *out_workspace_nbytes = nbytes + behind;
    }
    if (out == NULL) return 0;
    begin(launch, kernel, rows, classes, &out[0]);
    if (!two) {
        if (reduction != FY_REDUCTION_NONE) out[0].threads = FY__CUDA_BLOCK;
        return 1;
    }
    out[0].args.nelem = (uint64_t)rows;
    out[0].args.attrs.loss.reduction = FY_REDUCTION_NONE;
    fy__cuda_operand_set(&out[0].args.dst[0], &each);
    return 1 + pack_join(launch, nprocessors, &each, reduction, limit, &out[1], &behind);
}

void fy__cuda_pack_class_loss_backward(const fy_launch_t *launch, fy__cuda_request_t *out)
{
    const fy_desc_t *dst = &launch->dst[0];
    const int kernel = dst->dtype == FY_DTYPE_F64 ? FY__CUDA_KERNEL_fy_class_loss_backward_f64
                                                  : FY__CUDA_KERNEL_fy_class_loss_backward_f32;
    begin(launch, kernel, dst->dims[0], dst->dims[1], out);
}

/* One thread an element; dy is read by all. */
void fy__cuda_pack_mse_loss_backward(const fy_launch_t *launch, fy__cuda_request_t *out)
{
    const fy_desc_t *dst = &launch->dst[0];
    const int64_t *strides[3] = { dst->strides, launch->src[1].strides, launch->src[2].strides };
    fy__cuda_args_t *args = &out->args;
    fy__index_t index;
    fy__index_make(&index, dst->rank, dst->dims, 3, strides);
    fy__cuda_args_init(args, launch->op, launch->nelem, 3, NULL, 0);
    args->accumulate = launch->accumulate & 1;
    fy__cuda_operand_set(&args->src[0], &launch->src[0]);
    for (int k = 0; k < 3; k++) {
        const fy_desc_t *desc = k ? &launch->src[k] : dst;
        fy__cuda_operand_t *operand = k ? &args->src[k] : &args->dst[0];
        operand->data = (uint64_t)(uintptr_t)desc->data;
        operand->dtype = desc->dtype;
        for (int axis = 0; axis < index.rank; axis++)
            fy__cuda_operand_add(operand, index.dims[axis], index.strides[k][axis]);
    }
    fy__cuda_args_size(args, launch->nelem);
    (void)fy__cuda_set_wide(args, 1, 1, 3, (uint32_t)(16 / fy__cuda_dtype_nbytes(dst->dtype)));
    out->kernel = dst->dtype == FY_DTYPE_F64 ? FY__CUDA_KERNEL_fy_mse_loss_backward_f64
                                             : FY__CUDA_KERNEL_fy_mse_loss_backward_f32;
    out->threads = args->wide ? launch->nelem / args->wide + 1 : launch->nelem;
    out->square = 0;
}

void fy__cuda_pack_one_hot(const fy_launch_t *launch, fy__cuda_request_t *out)
{
    fy__cuda_args_init(&out->args, launch->op, launch->nelem, 1, launch->attrs,
                       sizeof(fy_one_hot_attrs_t));
    out->args.fault = (uint64_t)(uintptr_t)launch->fault;
    fy__cuda_operand_set(&out->args.dst[0], &launch->dst[0]);
    fy__cuda_operand_set(&out->args.src[0], &launch->src[0]);
    fy__cuda_args_size(&out->args, launch->nelem);
    out->kernel = FY__CUDA_KERNEL_fy_one_hot;
    out->threads = launch->nelem;
    out->square = 0;
}
