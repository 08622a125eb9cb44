/* The plugin's use of cuDNN: found by dlopen at the first convolution, one handle a device, and a
 * table of plans (descriptors and the algorithm that its heuristic chose) keyed by shape, dtype and
 * fused steps. Not here: the choice of convolutions for it (conv.c).
 * Built without cudnn.h, these functions report that there is no cuDNN. */
#ifndef FERRY_BACKENDS_CUDA_DNN_H_
#define FERRY_BACKENDS_CUDA_DNN_H_

#include "backends/cuda/device.h"

enum { FY__CUDA_DNN_FORWARD, FY__CUDA_DNN_INPUT, FY__CUDA_DNN_WEIGHT };

/* One convolution over dense NHWC images and OHWI weights. All fields are part of the key, and
 * there is no padding between them. */
typedef struct fy__cuda_dnn_problem {
    int32_t kind, dtype;
    int32_t n, h, w, c, oh, ow, o, kh, kw;
    int32_t stride_h, stride_w, padding_h, padding_w, dilation_h, dilation_w, groups;
    int32_t bias; /* forward only */
} fy__cuda_dnn_problem_t;

/* What a run is given. Forward: x, w; input: dy, w; weight: dy, x. */
typedef struct fy__cuda_dnn_operands {
    const void *src[2], *bias;
    void *dst, *workspace;
    uint64_t workspace_nbytes;
    int accumulate;
} fy__cuda_dnn_operands_t;

#ifdef FERRY_HAS_CUDNN

/* Only host memory; the library and the handle come with the first use. */
fy_status_t fy__cuda_dnn_create(fy__cuda_device_t *dev, fy__cuda_dnn_t **out_dnn);
/* The device's context is current if anything was ever run. NULL is fine. */
void fy__cuda_dnn_destroy(fy__cuda_dnn_t *dnn);

/* Returns whether cuDNN is enabled and found. Searches for the library once for each opening of the
 * device; logs a missing library once a process. */
int fy__cuda_dnn_is_there(fy__cuda_device_t *dev);

/* Bytes of scratch, at most `limit`, with which this runs fastest. For a new shape it enters the
 * device and makes the plan; later it is a look-up. Fails: UNSUPPORTED (cuDNN has no algorithm for
 * this shape, or no deterministic one in so little scratch: cached, and logged once, with the
 * scratch that it needs), and as cuDNN. */
fy_status_t fy__cuda_dnn_workspace(fy__cuda_device_t *dev, const fy__cuda_dnn_problem_t *problem,
                                   uint64_t limit, uint64_t *out_nbytes);
/* Submits it. The context is current. UNSUPPORTED: nothing ran, and this problem is not given to
 * cuDNN again. */
fy_status_t fy__cuda_dnn_run(fy__cuda_device_t *dev, CUstream stream,
                             const fy__cuda_dnn_problem_t *problem,
                             const fy__cuda_dnn_operands_t *operands);
/* `stream` is about to end: cuDNN's handle lets go of it. The context is current. */
void fy__cuda_dnn_leave_stream(fy__cuda_device_t *dev, CUstream stream);

#else

static inline fy_status_t fy__cuda_dnn_create(fy__cuda_device_t *dev, fy__cuda_dnn_t **out_dnn)
{
    (void)dev;
    *out_dnn = NULL;
    return FY_STATUS_OK;
}
static inline void fy__cuda_dnn_destroy(fy__cuda_dnn_t *dnn) { (void)dnn; }
static inline int fy__cuda_dnn_is_there(fy__cuda_device_t *dev)
{
    (void)dev;
    return 0;
}
static inline fy_status_t fy__cuda_dnn_workspace(fy__cuda_device_t *dev,
                                                 const fy__cuda_dnn_problem_t *problem,
                                                 uint64_t limit, uint64_t *out_nbytes)
{
    (void)dev, (void)problem, (void)limit;
    *out_nbytes = 0;
    return FY_STATUS_UNSUPPORTED;
}
static inline fy_status_t fy__cuda_dnn_run(fy__cuda_device_t *dev, CUstream stream,
                                           const fy__cuda_dnn_problem_t *problem,
                                           const fy__cuda_dnn_operands_t *operands)
{
    (void)dev, (void)stream, (void)problem, (void)operands;
    return FY_STATUS_UNSUPPORTED;
}
static inline void fy__cuda_dnn_leave_stream(fy__cuda_device_t *dev, CUstream stream)
{
    (void)dev, (void)stream;
}

#endif
#endif
