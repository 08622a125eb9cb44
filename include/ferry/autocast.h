/* Autocast: mixed precision. A scope computes products and convolutions in f16 or bf16, and losses
 * and sums in f32, with parameters that stay f32 (Micikevicius et al., "Mixed Precision Training",
 * 2018). Each op has a class, which docs/ops.md lists and fy_op_info_t.flags has:
 *   low     sources are cast to the scope's dtype: matmul, linear, conv2d, attention
 *   full    sources are cast to f32: losses, sums, softmax, exp, log, pow, other normalisation
 *   widest  sources are cast to f32 if their dtypes differ: add, mul, where, concat, comparisons;
 *           batch_norm, whose parameters and statistics stay f32
 *   (none)  sources are not cast: activations, pooling, views, moves, steps of optimizers
 * Classes are those of PyTorch 2 (torch.amp, "CUDA Op-Specific Behavior"), with mean and div added.
 * An op with an f64 or integer source, or a given result, is called without casts.
 * Next: docs/gradients.md. */
#ifndef FERRY_AUTOCAST_H_
#define FERRY_AUTOCAST_H_

#include <ferry/tape.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Sets the dtype of class low for the innermost scope and the scopes inside it, until an inner
 * scope sets another: FY_DTYPE_BF16, FY_DTYPE_F16, or FY_DTYPE_F32, which switches autocast off.
 * A cast is a call of the op cast: a light request that a tape, a graph, a plan and the ledger see.
 * So gradients of f32 tensors are f32. fy_tape_backward computes in the dtypes of its record;
 * fy_tape_recompute calls its function again under the dtype of the first call. fy_op_infer and
 * fy_op_supported answer for the dtypes that they are given. Threads that Ferry starts inherit it.
 * Fails: INVALID_ARGUMENT (no scope is open, more than 64 are, or another dtype), OUT_OF_MEMORY. */
FY_API_STATUS fy_autocast_set(fy_dtype_t dtype);

/* While `tape` records under autocast with low's dtype (f16, bf16), watched views of `block` are
 * not cast: views of `low` are used. Both are whole dense tensors of one size, block f32. The
 * owner of low keeps it current by a step op with the result `low`. If block was written
 * otherwise, Ferry casts all of it into low before the next use, also before a replay that uses
 * it. Do not write low. Casts now; the tape keeps the bytes alive, not your handles. Fails:
 * INVALID_ARGUMENT (more than four blocks), DTYPE_MISMATCH, SHAPE_MISMATCH, DEVICE_MISMATCH, BUSY,
 * OUT_OF_MEMORY. */
FY_API_STATUS fy_autocast_keep(fy_tape_t *tape, fy_tensor_t *block, fy_tensor_t *low);

typedef struct fy_autocast_info {
    size_t struct_size;
    fy_dtype_t dtype; /* in force in the innermost scope; FY_DTYPE_F32: off */
    int reserved;
    /* of this thread since it started */
    uint64_t casts, nbytes; /* made, and bytes of their results */
    uint64_t reused;        /* not made, because the record had one */
} fy_autocast_info_t;
#define FY_AUTOCAST_INFO_INIT FY_ZEROED_(autocast_info)
/* While a tape records, it keeps the cast of each watched tensor until fy_tape_backward, its next
 * begin, or its destruction, and uses it again if the tensor was not written since. Other casts,
 * and those that a function of fy_tape_recompute makes, live no longer than what uses them. */
FY_API_STATUS fy_autocast_query(fy_autocast_info_t *out_info);

#ifdef __cplusplus
}
#endif
#endif
