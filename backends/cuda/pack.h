/* From a launch record to kernel arguments: canonical operands, the choice of kernel, how many
 * threads. Pure functions of the launch and the device's size: nothing here calls the driver
 * (launch.c does). */
#ifndef FERRY_BACKENDS_CUDA_PACK_H_
#define FERRY_BACKENDS_CUDA_PACK_H_

#include "backends/cuda/args.h"
#include "opset/formulas/index.h"

/* The kernel of a family that has one for f64 and one for all other dtypes. */
#define FY__CUDA_KERNEL_BY(is_f64, name) \
    ((is_f64) ? FY__CUDA_KERNEL_##name##_f64 : FY__CUDA_KERNEL_##name##_f32)

/* One kernel launch, ready to be submitted. */
typedef struct fy__cuda_request {
    int kernel;       /* fy__cuda_kernel */
    uint64_t threads; /* how many the work could use; launch.c caps it and rounds it to blocks */
    unsigned block;   /* threads a block */
    int square;       /* matmul, conv2d: a block is TILE x TILE, and `threads` counts tiles */
    fy__cuda_args_t args;
} fy__cuda_request_t;

/* What a dtype is computed in. */
typedef enum fy__cuda_class { FY__CUDA_F32, FY__CUDA_F64, FY__CUDA_INT } fy__cuda_class_t;
fy__cuda_class_t fy__cuda_class_of(int32_t dtype);
uint64_t fy__cuda_dtype_nbytes(int32_t dtype);

/* args zeroed but for op, nelem, counts and attributes; a thread for each element. The kernel is
 * the caller's to set. attrs_nbytes <= 40. */
void fy__cuda_request_init(fy__cuda_request_t *out, uint32_t op, uint64_t nelem, unsigned nsrc,
                           const void *attrs, size_t attrs_nbytes);
/* The product of its dims. */
uint64_t fy__cuda_nelem(const fy_desc_t *desc);
/* Its place and dtype; no axes. */
void fy__cuda_operand_point(fy__cuda_operand_t *operand, const void *data, int32_t dtype);
/* The operand as the launch has it. */
void fy__cuda_operand_set(fy__cuda_operand_t *operand, const fy_desc_t *desc);
/* The same with the axes of `index`, whose operand k it is. */
void fy__cuda_operand_fused(fy__cuda_operand_t *operand, const fy_desc_t *desc,
                            const fy__index_t *index, int k);
/* Appends an axis. */
void fy__cuda_operand_add(fy__cuda_operand_t *operand, int64_t dim, int64_t stride);
/* Sets FY__CUDA_SMALL if no index exceeds 31 bits. `largest`: the largest count that the kernel
 * splits into axes. */
void fy__cuda_args_size(fy__cuda_args_t *args, uint64_t largest);

/* Operands of equal dims, a thread for n neighbours: sets args->wide and FY__CUDA_ALIGNED if dst 0
 * .. ndst - 1 and src first .. end - 1 have their elements where kernels may access n at once. With
 * more than one axis the last one must be a multiple of n long; with one the kernel does the rest.
 * 0: it cannot be, nothing is set. */
int fy__cuda_set_wide(fy__cuda_args_t *args, unsigned ndst, unsigned first, unsigned end,
                      uint32_t n);
/* The same for src[0] alone, in kernels without a dst like it. */
int fy__cuda_set_wide_source(fy__cuda_args_t *args, uint32_t n);
/* The same for kernels that read neighbours wherever they are asked for some: not where one element
 * of a source stands for a whole row. */
int fy__cuda_set_wide_apart(fy__cuda_args_t *args, unsigned ndst, unsigned first, unsigned end,
                            uint32_t n);
/* Kernels that join the last axis, where the order of a sum must not depend on addresses: sets
 * args->wide to 16 bytes of elements if dst 0 ..
 * ndst - 1 and src first .. end - 1 have them side by side and the axis is a multiple of it, and
 * FY__CUDA_ALIGNED if they may be accessed at once. */
void fy__cuda_set_rows(fy__cuda_args_t *args, unsigned ndst, unsigned first, unsigned end);
/* The same of the sources whose bits are set. */
void fy__cuda_set_rows_of(fy__cuda_args_t *args, unsigned ndst, uint32_t srcs);

/* Kernels that join whole columns: n neighbours along axis `column` of the source, of 16 bytes, if
 * each of its rows has them where they may be accessed at once. */
void fy__cuda_set_columns(fy__cuda_args_t *args, int column);
/* args: a copy of dst[0] from src[0], both with fused axes. Chooses among fy_copy, with the widest
 * possible accesses, and fy_transpose. */
void fy__cuda_choose_copy(fy__cuda_request_t *out);

/* ---- families ---- */
/* arithmetic, copy, where, cast */
void fy__cuda_pack_elementwise(const fy_launch_t *launch, fy__cuda_request_t *out);
void fy__cuda_pack_generate(const fy_launch_t *launch, fy__cuda_request_t *out);
/* A step of an optimizer: one launch, one more if it has a number to move, two before if it has
 * trust ratios. Returns how many. */
enum { FY__CUDA_STEP_REQUESTS = 4 };
int fy__cuda_pack_step(const fy_launch_t *launch, fy__cuda_request_t out[FY__CUDA_STEP_REQUESTS]);
void fy__cuda_pack_check_finite(const fy_launch_t *launch, fy__cuda_request_t *out);
void fy__cuda_pack_update_scaling(const fy_launch_t *launch, fy__cuda_request_t *out);
void fy__cuda_pack_random(const fy_launch_t *launch, fy__cuda_request_t out[2]);
/* dropout, dropout2d: the first launch keeps the state and moves the counter, the second is the
 * gradient's, of src. */
void fy__cuda_pack_dropout_begin(const fy_launch_t *launch, fy__cuda_request_t *out);
void fy__cuda_pack_dropout(const fy_launch_t *launch, fy__cuda_request_t *out);
void fy__cuda_pack_gather(const fy_launch_t *launch, fy__cuda_request_t *out);
void fy__cuda_pack_index_add(const fy_launch_t *launch, fy__cuda_request_t *out);
/* FY_LAUNCH_SCATTER, _GATHER */
void fy__cuda_pack_packed(const fy_launch_t *launch, fy__cuda_request_t *out);
/* The operands with their own axes and strides; the first `attrs_nbytes` bytes of the attributes.
 * Sets no kernel. */
void fy__cuda_pack_unfused(const fy_launch_t *launch, size_t attrs_nbytes, fy__cuda_request_t *out);
/* and its gradient */
void fy__cuda_pack_take_along_axis(const fy_launch_t *launch, fy__cuda_request_t *out);
void fy__cuda_pack_topk(const fy_launch_t *launch, fy__cuda_request_t *out);
void fy__cuda_pack_flip(const fy_launch_t *launch, fy__cuda_request_t *out);
/* Source `i` of a concat, which begins at `begin` along the axis. Returns 0 if it has no
 * elements. */
int fy__cuda_pack_concat(const fy_launch_t *launch, unsigned i, int64_t begin,
                         fy__cuda_request_t *out);
void fy__cuda_pack_mse_loss_backward(const fy_launch_t *launch, fy__cuda_request_t *out);
void fy__cuda_pack_one_hot(const fy_launch_t *launch, fy__cuda_request_t *out);
/* max, avg, and their gradients */
void fy__cuda_pack_pool2d(const fy_launch_t *launch, fy__cuda_request_t *out);
/* resize2d, adaptive_avg_pool2d, and their gradients */
void fy__cuda_pack_resample2d(const fy_launch_t *launch, fy__cuda_request_t *out);

/* A chain: 0 if the kernel does not take it. */
int fy__cuda_pack_chain(const fy_launch_t *launch, fy__cuda_chain_t *out);

/* ---- families of one launch, or of several that go through `workspace` ---- */
enum { FY__CUDA_MOST_REQUESTS = 4 };
/* Writes at most FY__CUDA_MOST_REQUESTS launches to `out` and returns how many.
 * *out_workspace_nbytes: what they use of `workspace`, at most `limit`; depends on sources only.
 * out == NULL: only that is wanted, and `dst` may be incomplete. */
typedef int (*fy__cuda_pack_several_fn)(const fy_launch_t *launch, unsigned nprocessors,
                                        void *workspace, uint64_t limit, fy__cuda_request_t *out,
                                        uint64_t *out_workspace_nbytes);
/* sum, mean, norm, max, min, mse_loss: at most three launches. */
int fy__cuda_pack_reduce(const fy_launch_t *launch, unsigned nprocessors, void *workspace,
                         uint64_t limit, fy__cuda_request_t *out, uint64_t *out_workspace_nbytes);
/* softmax, log_softmax, their gradients: at most two. */
int fy__cuda_pack_softmax(const fy_launch_t *launch, unsigned nprocessors, void *workspace,
                          uint64_t limit, fy__cuda_request_t *out, uint64_t *out_workspace_nbytes);
void fy__cuda_pack_cumsum(const fy_launch_t *launch, fy__cuda_request_t *out);
int fy__cuda_pack_argmax(const fy_launch_t *launch, unsigned nprocessors, void *workspace,
                         uint64_t limit, fy__cuda_request_t *out, uint64_t *out_workspace_nbytes);
/* batch_norm, its gradients, batch_norm_inference: one launch or three. */
int fy__cuda_pack_batch_norm(const fy_launch_t *launch, unsigned nprocessors, void *workspace,
                             uint64_t limit, fy__cuda_request_t *out,
                             uint64_t *out_workspace_nbytes);
/* layer_norm, rms_norm: one launch; their gradients: two or three. */
int fy__cuda_pack_row_norm(const fy_launch_t *launch, unsigned nprocessors, void *workspace,
                           uint64_t limit, fy__cuda_request_t *out, uint64_t *out_workspace_nbytes);
/* nll_loss, cross_entropy: one launch of one block, or one for the rows' losses and up to three
 * that add them up. */
int fy__cuda_pack_class_loss(const fy_launch_t *launch, unsigned nprocessors, void *workspace,
                             uint64_t limit, fy__cuda_request_t *out,
                             uint64_t *out_workspace_nbytes);
/* Their gradients: one launch; of a mean of many rows one more, before it, which counts them. */
int fy__cuda_pack_class_loss_backward(const fy_launch_t *launch, unsigned nprocessors,
                                      void *workspace, uint64_t limit, fy__cuda_request_t *out,
                                      uint64_t *out_workspace_nbytes);

/* How many pieces of `side` n has. */
static inline uint64_t fy__cuda_tiles(int64_t n, int64_t side)
{
    return ((uint64_t)n + (uint64_t)side - 1) / (uint64_t)side;
}

#endif
