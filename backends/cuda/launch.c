/* Runs a launch: chooses the family, packs the arguments, submits. One family makes one to three kernel launches, always in stream order.
 * Nothing here allocates or waits. Next: pack.h for the arguments, matmul.h for products. */
#include "backends/cuda/device.h"

#include <string.h>

#include "backends/cuda/matmul.h"
#include "backends/cuda/pack.h"

enum { BLOCKS_A_PROCESSOR = 16 }; /* more than run at once; each thread loops over the rest */

static const char *const op_names[] = {
#define X(name, text) #text,
    FY_OP_LIST(X)
#undef X
};

static int draws(uint32_t op) { return op == FY_OP_DROPOUT || op == FY_OP_DROPOUT2D; }

static int is_packed(uint32_t op) { return op == FY_LAUNCH_SCATTER || op == FY_LAUNCH_GATHER; }

static const char *op_name(uint32_t op) { return op < FY_OP_BUILTIN_COUNT ? op_names[op] : "a packed transfer"; }

static fy_status_t submit(fy__cuda_device_t *dev, CUstream stream, fy__cuda_request_t *request)
{
    const uint64_t most = (uint64_t)dev->nprocessors * BLOCKS_A_PROCESSOR;
    const unsigned side = request->square ? FY__CUDA_TILE : FY__CUDA_BLOCK;
    uint64_t blocks = request->square ? request->threads : request->threads / FY__CUDA_BLOCK + (request->threads % FY__CUDA_BLOCK != 0);
    if (blocks > most) blocks = most;
    if (blocks == 0) blocks = 1;
    void *params[] = { &request->args };
    return FY__CUDA_CALL(
        dev, cuLaunchKernel,
        (dev->kernels[request->kernel], (unsigned)blocks, 1, 1, side, request->square ? side : 1, 1, 0, stream, params, NULL),
        "running %s over %llu elements on cuda:%d", op_name(request->args.op), (unsigned long long)request->args.nelem, dev->index);
}

/* ---- families of more than one launch ---- */

static fy_status_t launch_random(fy__cuda_device_t *dev, CUstream stream, const fy_launch_t *launch)
{
    fy__cuda_request_t requests[2];
    fy__cuda_pack_random(launch, requests);
    FY_TRY(submit(dev, stream, &requests[0]));
    return submit(dev, stream, &requests[1]);
}

static fy_status_t launch_dropout(fy__cuda_device_t *dev, CUstream stream, const fy_launch_t *launch)
{
    fy__cuda_request_t request;
    if (draws(launch->op)) {
        fy__cuda_pack_dropout_begin(launch, &request);
        FY_TRY(submit(dev, stream, &request));
    }
    if (launch->nelem == 0) return FY_STATUS_OK;
    fy__cuda_pack_dropout(launch, &request);
    return submit(dev, stream, &request);
}

static fy_status_t launch_reduce(fy__cuda_device_t *dev, CUstream stream, const fy_launch_t *launch)
{
    fy__cuda_request_t requests[3];
    uint64_t nbytes, limit = launch->workspace != NULL ? launch->workspace_nbytes : 0;
    int n = fy__cuda_pack_reduce(launch, (unsigned)dev->nprocessors, launch->workspace, limit, requests, &nbytes);
    for (int i = 0; i < n; i++) FY_TRY(submit(dev, stream, &requests[i]));
    return FY_STATUS_OK;
}

static fy_status_t launch_class_loss(fy__cuda_device_t *dev, CUstream stream, const fy_launch_t *launch)
{
    fy__cuda_request_t requests[4];
    uint64_t nbytes, limit = launch->workspace != NULL ? launch->workspace_nbytes : 0;
    int n = fy__cuda_pack_class_loss(launch, launch->workspace, limit, requests, &nbytes);
    for (int i = 0; i < n; i++) FY_TRY(submit(dev, stream, &requests[i]));
    return FY_STATUS_OK;
}

/* The two gradients of a convolution's parameters, as the two ops that they are. */
static void split_conv2d_params(const fy_launch_t *launch, fy_launch_t *weight, fy_launch_t *bias)
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

static fy_status_t launch_conv2d_params(fy__cuda_device_t *dev, CUstream stream, const fy_launch_t *launch)
{
    fy_launch_t weight, bias;
    fy__cuda_request_t request;
    split_conv2d_params(launch, &weight, &bias);
    if (weight.nelem > 0) {
        fy__cuda_pack_conv2d(&weight, &request);
        FY_TRY(submit(dev, stream, &request));
    }
    return bias.nelem > 0 ? launch_reduce(dev, stream, &bias) : FY_STATUS_OK;
}

static fy_status_t launch_concat(fy__cuda_device_t *dev, CUstream stream, const fy_launch_t *launch)
{
    const fy_axis_attrs_t *attrs = launch->attrs;
    fy__cuda_request_t request;
    int64_t begin = 0;
    for (unsigned i = 0; i < launch->nsrc; i++) {
        if (fy__cuda_pack_concat(launch, i, begin, &request)) FY_TRY(submit(dev, stream, &request));
        begin += launch->src[i].dims[attrs->axis];
    }
    return FY_STATUS_OK;
}

/* A sum of nothing. */
static fy_status_t launch_zero(fy__cuda_device_t *dev, CUstream stream, const fy_launch_t *launch)
{
    const fy_fill_attrs_t zero = { 0 };
    fy_launch_t fill = *launch;
    fy__cuda_request_t request;
    if (launch->accumulate & 1) return FY_STATUS_OK;
    fill.op = FY_OP_FILL;
    fill.nsrc = 0;
    fill.attrs = &zero;
    fy__cuda_pack_generate(&fill, &request);
    return submit(dev, stream, &request);
}

/* A slow path is said, once a device. */
static void tell_slow(fy__cuda_device_t *dev, const char *why)
{
    if (atomic_exchange(&dev->told_slow, 1)) return;
    fy__cuda.host->log(FY_LOG_WARNING, "cuda:%d: Ferry's own slow kernel runs a matmul instead of cuBLASLt: %s (said once)", dev->index,
                       why);
}

static fy_status_t launch_matmul(fy__cuda_device_t *dev, CUstream stream, const fy_launch_t *launch)
{
    fy__cuda_matmul_t matmul;
    fy__cuda_request_t request;
    fy__cuda_matmul_plan(launch, &matmul);
    if (matmul.problem.inner == 0) return launch_zero(dev, stream, launch);
    if (matmul.takes_lt && fy__cuda_lt_is_wanted()) {
        FY_TRY(fy__cuda_lt_load());
        /* UNSUPPORTED comes from the heuristic, so before anything ran. */
        fy_status_t status = fy__cuda_matmul_run(dev, stream, launch, &matmul);
        if (status != FY_STATUS_UNSUPPORTED) return status;
        tell_slow(dev, "it has no algorithm for this shape and alignment");
    } else if (!matmul.takes_lt) {
        tell_slow(dev, "an operand has no axis of unit stride; fy_contiguous makes a copy that has");
    }
    fy__cuda_pack_matmul(launch, &request);
    return submit(dev, stream, &request);
}

static fy_status_t launch_linear(fy__cuda_device_t *dev, CUstream stream, const fy_launch_t *launch)
{
    fy_desc_t dst, src[2];
    const fy_launch_t product = fy__cuda_linear_product(launch, &dst, src);
    fy__cuda_matmul_t matmul;
    fy__cuda_request_t request;
    if (fy__cuda_linear_plan(launch, &product, &matmul) && fy__cuda_lt_is_wanted()) {
        FY_TRY(fy__cuda_lt_load());
        fy_status_t status = fy__cuda_matmul_run(dev, stream, launch, &matmul); /* UNSUPPORTED: before anything ran */
        if (status == FY_STATUS_OK && fy__cuda_pack_linear_activation(launch, &request)) return submit(dev, stream, &request);
        if (status != FY_STATUS_UNSUPPORTED) return status;
        tell_slow(dev, "it has no algorithm for this shape, alignment and epilogue");
    }
    fy__cuda_pack_linear(launch, &product, &request);
    return submit(dev, stream, &request);
}

/* dw as a product, db as a sum. */
static fy_launch_t params_product(const fy_launch_t *launch)
{
    static const fy_matmul_attrs_t transposed = { 1, 0 };
    fy_launch_t product = *launch;
    product.op = FY_OP_MATMUL;
    product.ndst = 1;
    product.accumulate = launch->accumulate & 1;
    product.attrs = &transposed;
    product.attrs_nbytes = sizeof transposed;
    return product;
}

static fy_launch_t params_sum(const fy_launch_t *launch)
{
    static const fy_reduce_attrs_t over_rows = { 1, 0 };
    fy_launch_t sum = *launch;
    sum.op = FY_OP_SUM;
    sum.nsrc = sum.ndst = 1;
    sum.dst = launch->dst + 1;
    sum.accumulate = launch->accumulate >> 1 & 1;
    sum.attrs = &over_rows;
    sum.attrs_nbytes = sizeof over_rows;
    sum.nelem = (uint64_t)launch->src[0].dims[1];
    return sum;
}

static fy_status_t launch_linear_backward_params(fy__cuda_device_t *dev, CUstream stream, const fy_launch_t *launch)
{
    const fy_launch_t product = params_product(launch), sum = params_sum(launch);
    if (sum.nelem == 0) return FY_STATUS_OK;
    if (launch->nelem > 0) FY_TRY(launch_matmul(dev, stream, &product));
    return launch_reduce(dev, stream, &sum);
}

static fy_status_t launch_step(fy__cuda_device_t *dev, CUstream stream, const fy_launch_t *launch)
{
    fy__cuda_request_t requests[2];
    const int n = fy__cuda_pack_step(launch, requests);
    for (int i = 0; i < n; i++) FY_TRY(submit(dev, stream, &requests[i]));
    return FY_STATUS_OK;
}

/* ---- the slots ---- */

static fy_status_t launch_builtin(fy__cuda_device_t *dev, CUstream stream, const fy_launch_t *launch)
{
    fy__cuda_request_t request;
    switch (launch->op) {
    case FY_OP_FILL:
    case FY_OP_ARANGE: fy__cuda_pack_generate(launch, &request); break;
    case FY_OP_RAND:
    case FY_OP_RANDN:
    case FY_OP_RANDPERM: return launch_random(dev, stream, launch);
    case FY_OP_SUM:
    case FY_OP_MEAN:
    case FY_OP_MAX:
    case FY_OP_MIN:
    case FY_OP_NORM:
    case FY_OP_MSE_LOSS: return launch_reduce(dev, stream, launch);
    case FY_OP_ARGMAX: fy__cuda_pack_argmax(launch, &request); break;
    case FY_OP_MATMUL: return launch_matmul(dev, stream, launch);
    case FY_OP_LINEAR: return launch_linear(dev, stream, launch);
    case FY_OP_LINEAR_BACKWARD_PARAMS: return launch_linear_backward_params(dev, stream, launch);
    case FY_OP_SGD_STEP:
    case FY_OP_SGD_MOMENTUM_STEP:
    case FY_OP_ADAM_STEP:
    case FY_OP_ADADELTA_STEP: return launch_step(dev, stream, launch);
    case FY_OP_SOFTMAX:
    case FY_OP_LOG_SOFTMAX:
    case FY_OP_SOFTMAX_BACKWARD:
    case FY_OP_LOG_SOFTMAX_BACKWARD: fy__cuda_pack_softmax(launch, &request); break;
    case FY_OP_MSE_LOSS_BACKWARD: fy__cuda_pack_mse_loss_backward(launch, &request); break;
    case FY_OP_ONE_HOT: fy__cuda_pack_one_hot(launch, &request); break;
    case FY_OP_GATHER: fy__cuda_pack_gather(launch, &request); break;
    case FY_OP_CONCAT: return launch_concat(dev, stream, launch);
    case FY_OP_CONV2D:
    case FY_OP_CONV2D_BACKWARD_INPUT:
    case FY_OP_CONV2D_BACKWARD_WEIGHT: fy__cuda_pack_conv2d(launch, &request); break;
    case FY_OP_CONV2D_BACKWARD_PARAMS: return launch_conv2d_params(dev, stream, launch);
    case FY_OP_MAX_POOL2D:
    case FY_OP_MAX_POOL2D_BACKWARD:
    case FY_OP_AVG_POOL2D:
    case FY_OP_AVG_POOL2D_BACKWARD: fy__cuda_pack_pool2d(launch, &request); break;
    case FY_OP_DROPOUT:
    case FY_OP_DROPOUT2D:
    case FY_OP_DROPOUT_BACKWARD:
    case FY_OP_DROPOUT2D_BACKWARD: return launch_dropout(dev, stream, launch);
    case FY_OP_NLL_LOSS:
    case FY_OP_CROSS_ENTROPY: return launch_class_loss(dev, stream, launch);
    case FY_OP_NLL_LOSS_BACKWARD:
    case FY_OP_CROSS_ENTROPY_BACKWARD: fy__cuda_pack_class_loss_backward(launch, &request); break;
    case FY_LAUNCH_SCATTER:
    case FY_LAUNCH_GATHER: fy__cuda_pack_packed(launch, &request); break;
    default: fy__cuda_pack_elementwise(launch, &request); break;
    }
    return submit(dev, stream, &request);
}

/* Every dtype that the op table promises has a kernel; this is the same promise, for launches that did not come through the table. */
static int has_kernel(const fy_launch_t *launch)
{
    const uint32_t floats = FY_DTYPE_BIT(FY_DTYPE_F32) | FY_DTYPE_BIT(FY_DTYPE_F64) | FY_DTYPE_BIT(FY_DTYPE_F16) |
                            FY_DTYPE_BIT(FY_DTYPE_BF16);
    const uint32_t any = (1u << FY_DTYPE_COUNT) - 1, number = any & ~FY_DTYPE_BIT(FY_DTYPE_BOOL);
    const int32_t dtype = launch->nsrc > 0 ? launch->src[0].dtype : launch->dst[0].dtype;
    uint32_t taken;
    if ((uint32_t)dtype >= FY_DTYPE_COUNT) return 0;
    switch (launch->op) {
    case FY_OP_RAND:
    case FY_OP_RANDN:
    case FY_OP_EXP:
    case FY_OP_LOG:
    case FY_OP_SQRT:
    case FY_OP_TANH:
    case FY_OP_SIGMOID:
    case FY_OP_RELU:
    case FY_OP_AFFINE:
    case FY_OP_AXPY:
    case FY_OP_DIV:
    case FY_OP_POW:
    case FY_OP_MEAN:
    case FY_OP_MATMUL:
    case FY_OP_SOFTMAX:
    case FY_OP_LOG_SOFTMAX:
    case FY_OP_MSE_LOSS:
    case FY_OP_CONV2D:
    case FY_OP_CONV2D_BACKWARD_INPUT:
    case FY_OP_CONV2D_BACKWARD_WEIGHT:
    case FY_OP_CONV2D_BACKWARD_PARAMS:
    case FY_OP_MAX_POOL2D:
    case FY_OP_MAX_POOL2D_BACKWARD:
    case FY_OP_AVG_POOL2D:
    case FY_OP_AVG_POOL2D_BACKWARD:
    case FY_OP_RELU6:
    case FY_OP_HARDSIGMOID:
    case FY_OP_HARDSWISH:
    case FY_OP_SILU:
    case FY_OP_GELU:
    case FY_OP_ERF:
    case FY_OP_RELU_BACKWARD:
    case FY_OP_RELU6_BACKWARD:
    case FY_OP_HARDSIGMOID_BACKWARD:
    case FY_OP_HARDSWISH_BACKWARD:
    case FY_OP_SILU_BACKWARD:
    case FY_OP_GELU_BACKWARD:
    case FY_OP_NLL_LOSS:
    case FY_OP_CROSS_ENTROPY:
    case FY_OP_NLL_LOSS_BACKWARD:
    case FY_OP_CROSS_ENTROPY_BACKWARD:
    case FY_OP_DROPOUT:
    case FY_OP_DROPOUT2D:
    case FY_OP_DROPOUT_BACKWARD:
    case FY_OP_DROPOUT2D_BACKWARD:
    case FY_OP_TANH_BACKWARD:
    case FY_OP_SIGMOID_BACKWARD:
    case FY_OP_SOFTMAX_BACKWARD:
    case FY_OP_LOG_SOFTMAX_BACKWARD:
    case FY_OP_MSE_LOSS_BACKWARD:
    case FY_OP_LINEAR:
    case FY_OP_LINEAR_BACKWARD_PARAMS:
    case FY_OP_NORM:
    case FY_OP_CLAMP:
    case FY_OP_CLIP_BY_NORM: taken = floats; break;
    case FY_OP_SGD_STEP:
    case FY_OP_SGD_MOMENTUM_STEP:
    case FY_OP_ADAM_STEP:
    case FY_OP_ADADELTA_STEP: taken = FY_DTYPE_BIT(FY_DTYPE_F32) | FY_DTYPE_BIT(FY_DTYPE_F64); break;
    case FY_OP_ARANGE:
    case FY_OP_NEG:
    case FY_OP_ABS:
    case FY_OP_ADD:
    case FY_OP_SUB:
    case FY_OP_MUL:
    case FY_OP_MAXIMUM:
    case FY_OP_MINIMUM:
    case FY_OP_MAX:
    case FY_OP_MIN:
    case FY_OP_ARGMAX: taken = number; break;
    case FY_OP_ONE_HOT: taken = FY_DTYPE_BIT(FY_DTYPE_I32) | FY_DTYPE_BIT(FY_DTYPE_I64); break;
    case FY_OP_RANDPERM: taken = FY_DTYPE_BIT(FY_DTYPE_I64); break;
    case FY_OP_WHERE: taken = FY_DTYPE_BIT(FY_DTYPE_BOOL); break;
    case FY_OP_FILL:
    case FY_OP_CAST:
    case FY_OP_COPY:
    case FY_OP_EQ:
    case FY_OP_NE:
    case FY_OP_LT:
    case FY_OP_LE:
    case FY_OP_GT:
    case FY_OP_GE:
    case FY_OP_SUM:
    case FY_OP_GATHER:
    case FY_OP_CONCAT:
    case FY_LAUNCH_SCATTER:
    case FY_LAUNCH_GATHER: taken = any; break;
    default: return 0; /* an op that is newer than this plugin */
    }
    return (FY_DTYPE_BIT(dtype) & taken) != 0;
}

/* Is there work though dst[0] has no element: a bias' gradient, a step number, a random state? */
static int has_more(const fy_launch_t *launch)
{
    return launch->op == FY_OP_LINEAR_BACKWARD_PARAMS || launch->op == FY_OP_CONV2D_BACKWARD_PARAMS || launch->op == FY_OP_ADAM_STEP ||
           launch->op == FY_OP_SGD_MOMENTUM_STEP || draws(launch->op);
}

fy_status_t fy__cuda_launch(void *handle, void *stream_handle, const fy_launch_t *launch)
{
    fy__cuda_device_t *dev = handle;
    CUstream stream = ((fy__cuda_stream_t *)stream_handle)->handle;
    fy__cuda_frame_t frame;
    if (launch->kernel == NULL && launch->op >= FY_OP_BUILTIN_COUNT && !is_packed(launch->op))
        return FY__CUDA_FAIL(FY_STATUS_UNSUPPORTED, "op %u is registered without a kernel for cuda", (unsigned)launch->op);
    if (launch->kernel == NULL && !has_kernel(launch))
        return FY__CUDA_FAIL(FY_STATUS_UNSUPPORTED, "%s has no cuda kernel for dtype number %d", op_name(launch->op),
                             (int)(launch->nsrc > 0 ? launch->src[0].dtype : launch->dst[0].dtype));
    if (launch->kernel == NULL && launch->nelem == 0 && !has_more(launch)) return FY_STATUS_OK;
    FY_TRY(fy__cuda_enter(dev, &frame));
    fy_status_t status = launch->kernel != NULL ? launch->kernel(launch, stream) : launch_builtin(dev, stream, launch);
    fy__cuda_leave(&frame);
    return status;
}

int fy__cuda_supports(void *handle, const fy_launch_t *launch)
{
    (void)handle;
    if (launch->kernel != NULL) return 1;
    if (!has_kernel(launch)) return 0;
    const int uses_lt = launch->op == FY_OP_MATMUL || launch->op == FY_OP_LINEAR || launch->op == FY_OP_LINEAR_BACKWARD_PARAMS;
    return !uses_lt || !fy__cuda_lt_is_wanted() || fy__cuda_lt_load() == FY_STATUS_OK;
}

/* Scratch of a product; it is used before the next launch's. */
static uint64_t product_workspace(fy__cuda_device_t *dev, const fy__cuda_matmul_t *matmul, uint64_t limit)
{
    fy__cuda_frame_t frame;
    if (matmul->problem.inner == 0 || !matmul->takes_lt || !fy__cuda_lt_is_wanted() || !fy__cuda_enter_to_release(dev, &frame)) return 0;
    const uint64_t nbytes = fy__cuda_lt_workspace(dev, &matmul->problem, limit);
    fy__cuda_leave(&frame);
    return nbytes;
}

static uint64_t linear_workspace(fy__cuda_device_t *dev, const fy_launch_t *launch, uint64_t limit)
{
    fy_desc_t dst, src[2];
    const fy_launch_t product = fy__cuda_linear_product(launch, &dst, src);
    fy__cuda_matmul_t matmul;
    return fy__cuda_linear_plan(launch, &product, &matmul) ? product_workspace(dev, &matmul, limit) : 0;
}

static uint64_t params_workspace(fy__cuda_device_t *dev, const fy_launch_t *launch, uint64_t limit)
{
    const fy_launch_t product = params_product(launch), sum = params_sum(launch);
    fy__cuda_matmul_t matmul;
    uint64_t of_sum, of_product;
    fy__cuda_matmul_plan(&product, &matmul);
    of_product = product_workspace(dev, &matmul, limit);
    fy__cuda_pack_reduce(&sum, (unsigned)dev->nprocessors, NULL, limit, NULL, &of_sum);
    return of_product > of_sum ? of_product : of_sum;
}

uint64_t fy__cuda_workspace(void *handle, const fy_launch_t *launch, uint64_t limit)
{
    fy__cuda_device_t *dev = handle;
    fy__cuda_matmul_t matmul;
    fy_launch_t weight, bias;
    uint64_t nbytes = 0;
    if (launch->nelem == 0 || launch->kernel != NULL || limit == 0) return 0;
    switch (launch->op) {
    case FY_OP_SUM:
    case FY_OP_MEAN:
    case FY_OP_MAX:
    case FY_OP_MIN:
    case FY_OP_NORM:
    case FY_OP_MSE_LOSS: fy__cuda_pack_reduce(launch, (unsigned)dev->nprocessors, NULL, limit, NULL, &nbytes); return nbytes;
    case FY_OP_NLL_LOSS:
    case FY_OP_CROSS_ENTROPY: fy__cuda_pack_class_loss(launch, NULL, limit, NULL, &nbytes); return nbytes;
    case FY_OP_CONV2D_BACKWARD_PARAMS:
        split_conv2d_params(launch, &weight, &bias);
        fy__cuda_pack_reduce(&bias, (unsigned)dev->nprocessors, NULL, limit, NULL, &nbytes);
        return nbytes;
    case FY_OP_LINEAR: return linear_workspace(dev, launch, limit);
    case FY_OP_LINEAR_BACKWARD_PARAMS: return params_workspace(dev, launch, limit);
    case FY_OP_MATMUL: fy__cuda_matmul_plan(launch, &matmul); return product_workspace(dev, &matmul, limit);
    default: return 0;
    }
}
