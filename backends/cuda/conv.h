/* Convolutions: which of several kernels computes a launch, and how many launches it needs. See
 * conv.c for the choice, pack_conv.c for the arguments of Ferry's kernels, families.h for the
 * caller. */
#ifndef FERRY_BACKENDS_CUDA_CONV_H_
#define FERRY_BACKENDS_CUDA_CONV_H_

#include "backends/cuda/device.h"
#include "backends/cuda/pack.h"

/* Ferry's own kernels, from the one that takes everything to the one that takes least. */
enum fy__cuda_conv_kernel {
    FY__CUDA_CONV_PLAIN,     /* any strides, any dtype: slow */
    FY__CUDA_CONV_GEMM,      /* dense f32, f64: tiles in shared memory and registers */
    FY__CUDA_CONV_TENSOR,    /* dense f16, bf16: tensor cores */
    FY__CUDA_CONV_DEPTHWISE, /* dense, a group for each channel */
    FY__CUDA_CONV_KERNELS
};

/* Which of them is best for this launch on a device of compute capability `major`. Depends on dtype
 * and layout only. */
int fy__cuda_conv_kernel_for(const fy_launch_t *launch, int major);
/* The number of slices of images in which a weight gradient is summed, each into separate f32 (f64:
 * f64) partial sums; 1: without slices and scratch. *out_nbytes: the scratch, at most `limit`.
 * Depends on shape, kernel, device size and limit only: same launch, same bits. */
int fy__cuda_conv_slices(const fy_launch_t *launch, int kernel, unsigned nprocessors,
                         uint64_t limit, uint64_t *out_nbytes);
/* conv2d or one of its two gradients: one launch, or with slices a second one, which adds them up.
 * Returns how many. */
int fy__cuda_pack_conv2d(const fy_launch_t *launch, int kernel, int slices, void *workspace,
                         fy__cuda_request_t out[4]);

#endif
