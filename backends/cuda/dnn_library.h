/* The entry points of cuDNN 9 that dnn.c calls, in one table filled by dlsym: its older calls, one
 * for each kind of convolution (docs/decisions says why not its graphs). Only files of cuDNN's own
 * include this; without its header at build time there are none. */
#ifndef FERRY_BACKENDS_CUDA_DNN_LIBRARY_H_
#define FERRY_BACKENDS_CUDA_DNN_LIBRARY_H_

#include <cudnn.h>

#include <ferry/backend.h>

#define FY__CUDNN_LIST(X)                            \
    X(cudnnGetVersion)                               \
    X(cudnnCreate)                                   \
    X(cudnnDestroy)                                  \
    X(cudnnSetStream)                                \
    X(cudnnCreateTensorDescriptor)                   \
    X(cudnnDestroyTensorDescriptor)                  \
    X(cudnnSetTensor4dDescriptor)                    \
    X(cudnnCreateFilterDescriptor)                   \
    X(cudnnDestroyFilterDescriptor)                  \
    X(cudnnSetFilter4dDescriptor)                    \
    X(cudnnCreateConvolutionDescriptor)              \
    X(cudnnDestroyConvolutionDescriptor)             \
    X(cudnnSetConvolution2dDescriptor)               \
    X(cudnnSetConvolutionGroupCount)                 \
    X(cudnnSetConvolutionMathType)                   \
    X(cudnnCreateActivationDescriptor)               \
    X(cudnnDestroyActivationDescriptor)              \
    X(cudnnSetActivationDescriptor)                  \
    X(cudnnGetConvolutionForwardAlgorithm_v7)        \
    X(cudnnGetConvolutionBackwardDataAlgorithm_v7)   \
    X(cudnnGetConvolutionBackwardFilterAlgorithm_v7) \
    X(cudnnConvolutionForward)                       \
    X(cudnnConvolutionBiasActivationForward)         \
    X(cudnnConvolutionBackwardData)                  \
    X(cudnnConvolutionBackwardFilter)

typedef struct fy__cudnn {
    void *library;
#define X(name) __typeof__(&name) name;
    FY__CUDNN_LIST(X)
#undef X
} fy__cudnn_t;

/* Filled by fy__cudnn_load, read without a lock after it succeeded. */
extern fy__cudnn_t fy__cudnn;

/* Loads the library. UNSUPPORTED with the reason if there is none; tries again after a failure. */
fy_status_t fy__cudnn_load(void);

fy_status_t fy__cudnn_status(cudnnStatus_t code);
/* Of a call that makes a plan: UNSUPPORTED is all that another kernel may do instead. */
fy_status_t fy__cudnn_planning_status(cudnnStatus_t code);
const char *fy__cudnn_name(cudnnStatus_t code);

#endif
