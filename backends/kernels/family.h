/* What the kernel files share: the functions that run one family of ops each, and helpers.
 * Every family function gets a launch whose op it knows and whose main dtype the table in
 * dispatch.c allows; it writes nothing before it can no longer fail. Scratch is launch->workspace
 * or the stack, never malloc. */
#ifndef FERRY_BACKENDS_KERNELS_FAMILY_H_
#define FERRY_BACKENDS_KERNELS_FAMILY_H_

#include <ferry/backend.h>

#include "backends/kernels/loops.h"
#include "backends/kernels/threads.h"

typedef fy_status_t (*fy__family_fn)(const fy_host_api_t *host, const fy__loops_t *loops,
                                     const fy_launch_t *launch);

/* What one element of an elementwise op takes: the column `maths` of opset/ops.def. */
enum fy__maths {
    FY__MATHS_cheap,
    FY__MATHS_exp,
    FY__MATHS_tanh,
    FY__MATHS_pow,
    FY__MATHS_erf,
    FY__MATHS_COUNT
};
/* Scratch that the family uses for a launch, at most `limit` bytes. */
typedef uint64_t (*fy__workspace_fn)(const fy_launch_t *launch, uint64_t limit);
/* 16 bytes: a tiny add finds its row by a shift. */
typedef struct fy__kernel_row {
    fy__family_fn run;
    uint32_t dtypes; /* of the first source, or of dst[0] if there is none */
    uint8_t index;   /* unary, scaled, binary, ...: fy__unary, ... */
    uint8_t maths;   /* those: fy__maths */
} fy__kernel_row_t;
extern const fy__kernel_row_t fy__kernel_rows[FY_OP_BUILTIN_COUNT]; /* dispatch.c */

/* elementwise.c */
fy_status_t fy__run_unary(const fy_host_api_t *host, const fy__loops_t *loops,
                          const fy_launch_t *launch);
/* elementwise.c */
fy_status_t fy__run_binary(const fy_host_api_t *host, const fy__loops_t *loops,
                           const fy_launch_t *launch);
/* elementwise.c */
fy_status_t fy__run_test(const fy_host_api_t *host, const fy__loops_t *loops,
                         const fy_launch_t *launch);
/* elementwise.c */
fy_status_t fy__run_scaled(const fy_host_api_t *host, const fy__loops_t *loops,
                           const fy_launch_t *launch);
/* cumsum.c */
fy_status_t fy__run_cumsum(const fy_host_api_t *host, const fy__loops_t *loops,
                           const fy_launch_t *launch);
/* elementwise.c */
fy_status_t fy__run_compare(const fy_host_api_t *host, const fy__loops_t *loops,
                            const fy_launch_t *launch);
/* elementwise.c */
fy_status_t fy__run_where(const fy_host_api_t *host, const fy__loops_t *loops,
                          const fy_launch_t *launch);
/* elementwise.c */
fy_status_t fy__run_affine(const fy_host_api_t *host, const fy__loops_t *loops,
                           const fy_launch_t *launch);
/* elementwise.c */
fy_status_t fy__run_axpy(const fy_host_api_t *host, const fy__loops_t *loops,
                         const fy_launch_t *launch);
/* elementwise.c */
fy_status_t fy__run_cast(const fy_host_api_t *host, const fy__loops_t *loops,
                         const fy_launch_t *launch);
/* copy.c */
fy_status_t fy__run_copy(const fy_host_api_t *host, const fy__loops_t *loops,
                         const fy_launch_t *launch);
/* copy.c */
fy_status_t fy__run_concat(const fy_host_api_t *host, const fy__loops_t *loops,
                           const fy_launch_t *launch);
/* copy.c */
fy_status_t fy__run_flip(const fy_host_api_t *host, const fy__loops_t *loops,
                         const fy_launch_t *launch);
/* along.c; and its gradient */
fy_status_t fy__run_take_along_axis(const fy_host_api_t *host, const fy__loops_t *loops,
                                    const fy_launch_t *launch);
/* along.c */
fy_status_t fy__run_topk(const fy_host_api_t *host, const fy__loops_t *loops,
                         const fy_launch_t *launch);
/* resample.c: resize2d, adaptive_avg_pool2d, and gradients */
fy_status_t fy__run_resample2d(const fy_host_api_t *host, const fy__loops_t *loops,
                               const fy_launch_t *launch);
/* gather.c */
fy_status_t fy__run_gather(const fy_host_api_t *host, const fy__loops_t *loops,
                           const fy_launch_t *launch);
/* generate.c */
fy_status_t fy__run_fill(const fy_host_api_t *host, const fy__loops_t *loops,
                         const fy_launch_t *launch);
/* generate.c */
fy_status_t fy__run_generate(const fy_host_api_t *host, const fy__loops_t *loops,
                             const fy_launch_t *launch);
/* reduce.c; and mean, norm */
fy_status_t fy__run_sum(const fy_host_api_t *host, const fy__loops_t *loops,
                        const fy_launch_t *launch);
/* reduce.c: max, min */
fy_status_t fy__run_extreme(const fy_host_api_t *host, const fy__loops_t *loops,
                            const fy_launch_t *launch);
/* argmax.c */
fy_status_t fy__run_argmax(const fy_host_api_t *host, const fy__loops_t *loops,
                           const fy_launch_t *launch);
/* softmax.c; and log_ */
fy_status_t fy__run_softmax(const fy_host_api_t *host, const fy__loops_t *loops,
                            const fy_launch_t *launch);
/* loss.c */
fy_status_t fy__run_mse_loss(const fy_host_api_t *host, const fy__loops_t *loops,
                             const fy_launch_t *launch);
fy_status_t fy__run_class_loss(const fy_host_api_t *host, const fy__loops_t *loops,
                               /* class_loss.c: nll_loss, cross_entropy */
                               const fy_launch_t *launch);
/* class_loss.c */
fy_status_t fy__run_class_loss_backward(const fy_host_api_t *host, const fy__loops_t *loops,
                                        const fy_launch_t *launch);
/* dropout.c; and gradients */
fy_status_t fy__run_dropout(const fy_host_api_t *host, const fy__loops_t *loops,
                            const fy_launch_t *launch);
fy_status_t fy__run_softmax_backward(const fy_host_api_t *host, const fy__loops_t *loops,
                                     const fy_launch_t *launch); /* softmax_backward.c */
/* loss.c */
fy_status_t fy__run_mse_loss_backward(const fy_host_api_t *host, const fy__loops_t *loops,
                                      const fy_launch_t *launch);
/* index_add.c; and the gradient of gather */
fy_status_t fy__run_index_add(const fy_host_api_t *host, const fy__loops_t *loops,
                              const fy_launch_t *launch);
/* gather.c */
fy_status_t fy__run_one_hot(const fy_host_api_t *host, const fy__loops_t *loops,
                            const fy_launch_t *launch);
/* attention.c */
fy_status_t fy__run_attention(const fy_host_api_t *host, const fy__loops_t *loops,
                              const fy_launch_t *launch);
/* attention.c */
fy_status_t fy__run_attention_backward(const fy_host_api_t *host, const fy__loops_t *loops,
                                       const fy_launch_t *launch);
/* matmul.c */
fy_status_t fy__run_matmul(const fy_host_api_t *host, const fy__loops_t *loops,
                           const fy_launch_t *launch);
/* conv.c; and gradients */
fy_status_t fy__run_conv2d(const fy_host_api_t *host, const fy__loops_t *loops,
                           const fy_launch_t *launch);
/* pool.c; and gradients */
fy_status_t fy__run_pool2d(const fy_host_api_t *host, const fy__loops_t *loops,
                           const fy_launch_t *launch);
/* elementwise.c */
fy_status_t fy__run_clamp(const fy_host_api_t *host, const fy__loops_t *loops,
                          const fy_launch_t *launch);
/* elementwise.c */
fy_status_t fy__run_clip(const fy_host_api_t *host, const fy__loops_t *loops,
                         const fy_launch_t *launch);
/* linear.c */
fy_status_t fy__run_linear(const fy_host_api_t *host, const fy__loops_t *loops,
                           const fy_launch_t *launch);
/* linear.c */
fy_status_t fy__run_linear_backward_params(const fy_host_api_t *host, const fy__loops_t *loops,
                                           const fy_launch_t *launch);
/* scaling.c: of losses */
fy_status_t fy__run_check_finite(const fy_host_api_t *host, const fy__loops_t *loops,
                                 const fy_launch_t *launch);
/* scaling.c */
fy_status_t fy__run_update_scaling(const fy_host_api_t *host, const fy__loops_t *loops,
                                   const fy_launch_t *launch);
/* step.c: optimizers */
fy_status_t fy__run_step(const fy_host_api_t *host, const fy__loops_t *loops,
                         const fy_launch_t *launch);
/* batch_norm.c; by running statistics, and gradients */
fy_status_t fy__run_batch_norm(const fy_host_api_t *host, const fy__loops_t *loops,
                               const fy_launch_t *launch);
uint64_t fy__batch_norm_workspace(const fy_launch_t *launch, uint64_t limit);
/* row_norm.c: layer_norm, rms_norm, gradients */
fy_status_t fy__run_row_norm(const fy_host_api_t *host, const fy__loops_t *loops,
                             const fy_launch_t *launch);
uint64_t fy__row_norm_workspace(const fy_launch_t *launch, uint64_t limit);
/* packed.c: the two launches that are no ops */
fy_status_t fy__run_packed(const fy_launch_t *launch);
uint64_t fy__matmul_workspace(const fy_launch_t *launch, uint64_t limit);
uint64_t fy__linear_workspace(const fy_launch_t *launch, uint64_t limit);
uint64_t fy__linear_backward_params_workspace(const fy_launch_t *launch, uint64_t limit);
uint64_t fy__conv2d_workspace(const fy_launch_t *launch, uint64_t limit);

/* ---- helpers ---- */

/* Bytes of one element as a power of two: sizes are 1 << k. */
static inline int fy__log2_size(int32_t dtype)
{
    static const uint8_t k[FY_DTYPE_COUNT] = { 2, 3, 1, 1, 2, 3, 0, 0 };
    return k[dtype];
}

/* The compute type of f16 and bf16; other dtypes are computed in themselves. */
static inline int32_t fy__compute_dtype(int32_t dtype)
{
    return dtype == FY_DTYPE_F16 || dtype == FY_DTYPE_BF16 ? FY_DTYPE_F32 : dtype;
}

static inline int fy__is_float(int32_t dtype) { return dtype <= FY_DTYPE_BF16; }

/* Converts `serial` from f32 (fy__threads_for) to `dtype`: eight bytes take twice the time, half
 * precision is converted both ways. */
static inline int64_t fy__serial_of(int32_t dtype, int64_t serial)
{
    if (dtype == FY_DTYPE_F16 || dtype == FY_DTYPE_BF16) return serial < 16384 ? serial : 16384;
    return dtype == FY_DTYPE_F64 || dtype == FY_DTYPE_I64 ? serial / 2 : serial;
}

/* f32 elements of an elementwise op that one thread does in 20 us. elementwise.c */
int64_t fy__elementwise_serial(fy_op_t op);
/* ---- dropout.c, for chains ---- */
enum { FY__DROPOUT_SERIAL = 8192 }; /* as fy__elementwise_serial */
/* Seed and counter of a draw. `before` not NULL: it gets them, and the state advances by a draw of
 * n elements. */
void fy__dropout_state(const fy_desc_t *state, const fy_desc_t *before, int64_t n,
                       int64_t out_state[2]);
/* Dropout of elements first .. first + n - 1 of a tensor, which lie side by side. */
void fy__dropout_block(const fy__loops_t *loops, int32_t dtype, const int64_t state[2], double p,
                       int64_t first, int64_t n, char *dst, const char *src);

static inline int64_t fy__desc_nelem(const fy_desc_t *desc)
{
    int64_t n = 1;
    for (int i = 0; i < desc->rank; i++) n *= desc->dims[i];
    return n;
}

/* Row-major without gaps; the stride of an axis of length 1 does not count. */
static inline int fy__desc_is_dense(const fy_desc_t *desc)
{
    int64_t stride = 1;
    for (int axis = desc->rank - 1; axis >= 0; axis--) {
        if (desc->dims[axis] != 1 && desc->strides[axis] != stride) return 0;
        stride *= desc->dims[axis];
    }
    return 1;
}

/* fn(context, i) for 0 <= i < n, spread evenly over `threads` (fy__threads_for); on the caller
 * alone if that is 1. */
typedef void (*fy__each_fn)(const void *context, int64_t i);
void fy__for_each(int64_t n, int threads, fy__each_fn fn, const void *context); /* dispatch.c */
/* The loop table for this machine. */
const fy__loops_t *fy__loops_get(void); /* dispatch.c */

#endif
