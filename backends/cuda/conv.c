/* Convolutions: cuDNN where it is there and takes them, else one of Ferry's kernels, chosen by
 * layout and dtype. The gradients of both parameters are two ops, one after the other. Not here:
 * arguments and cutting (pack_conv.c), cuDNN's plans (dnn.c). */
#include "backends/cuda/conv.h"

#include <string.h>

#include "backends/cuda/dnn.h"
#include "backends/cuda/families.h"
#include "backends/cuda/tune.h"

/* Logs the slow path, once a device. */
static void tell_slow(fy__cuda_device_t *dev)
{
    if (atomic_exchange(&dev->told_slow_conv, 1)) return;
    fy__cuda.host->log(
        FY_LOG_WARNING,
        "cuda:%d: the plain kernel runs a convolution, slowly: an operand is not row-major without "
        "gaps (fy_copy into a new tensor makes one that is), has 2^30 elements or more, or is "
        "bf16 on a card older than 8.0 (said once)",
        dev->index);
}

/* ---- cuDNN ---- */

/* Windows over one channel each are not a product: Ferry's kernel for them reads everything once.
 * Dense operands with enough work have a fast kernel. */
static int takes_dnn(fy__cuda_device_t *dev, const fy_launch_t *launch, int kernel)
{
    if (kernel != FY__CUDA_CONV_GEMM && kernel != FY__CUDA_CONV_TENSOR) return 0;
    uintptr_t bits = (uintptr_t)launch->dst[0].data;
    for (int i = 0; i < 2; i++) bits |= (uintptr_t)launch->src[i].data;
    if (bits % 16 != 0) return 0;
    if (launch->nsrc == 3 && launch->src[2].strides[0] != 1 && launch->src[2].dims[0] != 1)
        return 0;
    if (launch->nsrc == 3 && (uintptr_t)launch->src[2].data % 16 != 0) return 0;
    return fy__cuda_dnn_is_there(dev);
}

static fy__cuda_dnn_problem_t problem_of(const fy_launch_t *launch)
{
    const fy_conv2d_attrs_t *attrs = launch->attrs; /* those of a gradient begin alike */
    const int forward = launch->op == FY_OP_CONV2D,
              weight = launch->op == FY_OP_CONV2D_BACKWARD_WEIGHT;
    const fy_desc_t *x = forward ? &launch->src[0] : weight ? &launch->src[1] : &launch->dst[0];
    const fy_desc_t *w = weight ? &launch->dst[0] : &launch->src[1],
                    *y = forward ? &launch->dst[0] : &launch->src[0];
    const int bias = forward && launch->nsrc == 3;
    return (fy__cuda_dnn_problem_t){
        .kind = forward  ? FY__CUDA_DNN_FORWARD
                : weight ? FY__CUDA_DNN_WEIGHT
                         : FY__CUDA_DNN_INPUT,
        .dtype = launch->dst[0].dtype,
        .n = (int32_t)x->dims[0],
        .h = (int32_t)x->dims[1],
        .w = (int32_t)x->dims[2],
        .c = (int32_t)x->dims[3],
        .oh = (int32_t)y->dims[1],
        .ow = (int32_t)y->dims[2],
        .o = (int32_t)y->dims[3],
        .kh = (int32_t)w->dims[1],
        .kw = (int32_t)w->dims[2],
        .stride_h = attrs->stride_h,
        .stride_w = attrs->stride_w,
        .padding_h = attrs->padding_h,
        .padding_w = attrs->padding_w,
        .dilation_h = attrs->dilation_h,
        .dilation_w = attrs->dilation_w,
        .groups = attrs->groups,
        .bias = bias,
    };
}

/* relu of the stored value is relu of the rounded value: the same number. */
static fy_status_t apply_relu(fy__cuda_device_t *dev, CUstream stream, const fy_launch_t *launch)
{
    fy_launch_t in_place = *launch;
    fy__cuda_request_t request;
    in_place.op = FY_OP_RELU;
    in_place.nsrc = 1;
    in_place.src = launch->dst;
    in_place.attrs = NULL;
    fy__cuda_pack_elementwise(&in_place, &request);
    return fy__cuda_submit(dev, stream, &request);
}

/* UNSUPPORTED: nothing ran, and Ferry's kernel does it. */
static fy_status_t launch_dnn(fy__cuda_device_t *dev, CUstream stream, const fy_launch_t *launch)
{
    const fy__cuda_dnn_problem_t problem = problem_of(launch);
    const fy__cuda_dnn_operands_t operands = { .src = { launch->src[0].data, launch->src[1].data },
                                               .bias = problem.bias ? launch->src[2].data : NULL,
                                               .dst = launch->dst[0].data,
                                               .workspace = launch->workspace,
                                               .workspace_nbytes = launch->workspace_nbytes,
                                               .accumulate = (int)(launch->accumulate & 1) };
    FY_TRY(fy__cuda_dnn_run(dev, stream, &problem, &operands));
    const int relu = launch->op == FY_OP_CONV2D &&
                     ((const fy_conv2d_attrs_t *)launch->attrs)->activation == FY_ACTIVATION_RELU;
    return relu ? apply_relu(dev, stream, launch) : FY_STATUS_OK;
}

/* 0: cuDNN is not asked for this one, or has nothing for it. */
static int dnn_workspace(fy__cuda_device_t *dev, const fy_launch_t *launch, int kernel,
                         uint64_t limit, uint64_t *out_nbytes)
{
    if (!takes_dnn(dev, launch, kernel)) return 0;
    const fy__cuda_dnn_problem_t problem = problem_of(launch);
    /* another failure: launch will say so */
    return fy__cuda_dnn_workspace(dev, &problem, limit, out_nbytes) == FY_STATUS_OK;
}

/* ---- one of the three ---- */

/* By number of kernel, and cuDNN behind them. */
enum { BY_DNN = FY__CUDA_CONV_KERNELS };
static const char *const way_names[] = { "plain", "gemm", "tensor", "depthwise", "cuDNN" };

static fy_status_t launch_way(fy__cuda_device_t *dev, CUstream stream, const fy_launch_t *launch,
                              int way)
{
    fy__cuda_request_t requests[4];
    uint64_t nbytes, limit = launch->workspace != NULL ? launch->workspace_nbytes : 0;
    if (way == BY_DNN) return launch_dnn(dev, stream, launch);
    const int slices =
        fy__cuda_conv_slices(launch, way, (unsigned)dev->nprocessors, limit, &nbytes);
    const int n = fy__cuda_pack_conv2d(launch, way, slices, launch->workspace, requests);
    for (int i = 0; i < n; i++) FY_TRY(fy__cuda_submit(dev, stream, &requests[i]));
    return FY_STATUS_OK;
}

/* Bits of the ways that give the right result. */
static uint32_t ways_of(fy__cuda_device_t *dev, const fy_launch_t *launch, int kernel)
{
    const int32_t dtype = launch->dst[0].dtype;
    uint32_t ways = 1u << FY__CUDA_CONV_PLAIN | 1u << kernel;
    if (kernel == FY__CUDA_CONV_DEPTHWISE && (dtype == FY_DTYPE_F32 || dtype == FY_DTYPE_F64))
        ways |= 1u << FY__CUDA_CONV_GEMM;
    if (takes_dnn(dev, launch, kernel)) ways |= 1u << BY_DNN;
    return ways;
}

static fy_status_t launch_timed(fy__cuda_device_t *dev, CUstream stream, const fy_launch_t *launch,
                                int kernel, int heuristic)
{
    const fy__cuda_dnn_problem_t problem = problem_of(launch);
    fy__cuda_tune_key_t key = { { 0 } };
    _Static_assert(sizeof problem <= sizeof key - 2 * sizeof key.numbers[0],
                   "the key holds a problem and what is granted");
    memcpy(key.numbers, &problem, sizeof problem);
    const uint64_t granted = launch->workspace != NULL ? launch->workspace_nbytes : 0;
    /* with other scratch other ways are fast */
    key.numbers[FY__CUDA_TUNE_KEY - 2] = (int32_t)(granted >> 16 & INT32_MAX);
    /* cuDNN's depends on addresses, too: without it, it is another choice */
    const uint32_t ways = ways_of(dev, launch, kernel);
    key.numbers[FY__CUDA_TUNE_KEY - 1] =
        (int32_t)(ways << 2 | (launch->accumulate & 1) << 1) +
        (launch->op == FY_OP_CONV2D && ((const fy_conv2d_attrs_t *)launch->attrs)->activation);
    const fy__cuda_tune_ticket_t ticket =
        fy__cuda_tune_begin(dev, stream, &key, way_names, ways, heuristic);
    const fy_status_t status = launch_way(dev, stream, launch, ticket.way);
    fy__cuda_tune_end(dev, stream, &key, &ticket, status == FY_STATUS_OK);
    return status;
}

static fy_status_t launch_one(fy__cuda_device_t *dev, CUstream stream, const fy_launch_t *launch)
{
    const int kernel = fy__cuda_conv_kernel_for(launch, dev->major);
    if (kernel == FY__CUDA_CONV_PLAIN) tell_slow(dev);
    const int heuristic = takes_dnn(dev, launch, kernel) ? BY_DNN : kernel;
    /* A capture fixes the choice, and its stream must not be queried. */
    const int timed = dev->tune != NULL && kernel != FY__CUDA_CONV_PLAIN && fy__cuda_captures == 0;
    const fy_status_t status = timed ? launch_timed(dev, stream, launch, kernel, heuristic)
                                     : launch_way(dev, stream, launch, heuristic);
    return status == FY_STATUS_UNSUPPORTED ? launch_way(dev, stream, launch, kernel) : status;
}

/* The two gradients of a convolution's parameters, as the two ops that they are. */
static void split_params(const fy_launch_t *launch, fy_launch_t *weight, fy_launch_t *bias)
{
    static const fy_reduce_attrs_t all_but_channels = { 7, 0 };
    *weight = *bias = *launch;
    weight->op = FY_OP_CONV2D_BACKWARD_WEIGHT;
    weight->ndst = bias->ndst = 1;
    weight->accumulate &= 1u;
    bias->op = FY_OP_SUM;
    bias->nsrc = 1;
    bias->dst = &launch->dst[1];
    bias->accumulate >>= 1;
    bias->attrs = &all_but_channels;
    bias->attrs_nbytes = sizeof all_but_channels;
    bias->nelem = (uint64_t)launch->dst[1].dims[0];
}

fy_status_t fy__cuda_run_conv2d(fy__cuda_device_t *dev, CUstream stream, const fy_launch_t *launch)
{
    fy_launch_t weight, bias;
    if (launch->op != FY_OP_CONV2D_BACKWARD_PARAMS) return launch_one(dev, stream, launch);
    split_params(launch, &weight, &bias);
    if (weight.nelem > 0) FY_TRY(launch_one(dev, stream, &weight));
    return bias.nelem > 0 ? fy__cuda_submit_several(dev, stream, &bias, fy__cuda_pack_reduce)
                          : FY_STATUS_OK;
}

uint64_t fy__cuda_conv2d_workspace(fy__cuda_device_t *dev, const fy_launch_t *launch,
                                   uint64_t limit)
{
    fy_launch_t weight = *launch, bias;
    uint64_t of_weight = 0, of_bias = 0;
    if (launch->op == FY_OP_CONV2D_BACKWARD_PARAMS) {
        split_params(launch, &weight, &bias);
        of_bias = fy__cuda_several_workspace(dev, &bias, limit, fy__cuda_pack_reduce);
    }
    const int kernel = fy__cuda_conv_kernel_for(&weight, dev->major);
    uint64_t of_slices = 0;
    const int by_dnn = weight.nelem > 0 && dnn_workspace(dev, &weight, kernel, limit, &of_weight);
    if (weight.nelem > 0 && (!by_dnn || dev->tune != NULL))
        fy__cuda_conv_slices(&weight, kernel, (unsigned)dev->nprocessors, limit, &of_slices);
    if (of_slices > of_weight) of_weight = of_slices;
    /* one after the other: the same bytes serve both */
    return of_weight > of_bias ? of_weight : of_bias;
}
