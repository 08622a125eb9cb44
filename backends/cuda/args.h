/* What a CUDA kernel is given: one plain struct, by value: fy__cuda_args_t for any layout, or the
 * short fy__cuda_flat_t for dense operands of one axis, or fy__cuda_chain_t. Three parties read
 * this file: the host side (pack.c fills it), the kernels (kernels/), and the fake driver of the
 * tests, which rebuilds a launch record from it. So the struct is a launch record in a canonical
 * form, never a kernel's private notation: its operands, attributes and counts mean what op.h says.
 * Included from C and from CUDA; the two sides of one build only, so it has no ABI. */
#ifndef FERRY_BACKENDS_CUDA_ARGS_H_
#define FERRY_BACKENDS_CUDA_ARGS_H_

#include <ferry/backend.h>

/* X(module, kernel). A module is one .cu file and one fatbin; a kernel is found by its name. */
#define FY__CUDA_ARGS_KERNEL_LIST(X)                                                            \
    X(elementwise, fy_elementwise_wide_f32)  /* 4 f32 at once */                                \
    X(elementwise, fy_elementwise_wide_f64)  /* 2 f64 */                                        \
    X(elementwise, fy_elementwise_wide_half) /* 8 f16 or bf16 */                                \
    X(elementwise, fy_elementwise_wide_int)  /* 2 i64, 4 i32, 16 u8 or bool */                  \
    X(elementwise, fy_elementwise_f32)       /* f32, f16, bf16: computes in f32; any strides */ \
    X(elementwise, fy_elementwise_f64)                                                          \
    X(elementwise, fy_elementwise_int) /* i32, i64, u8, bool: computes in i64 */                \
    X(move, fy_cast)                                                                            \
    X(move, fy_generate) /* fill, arange */                                                     \
    X(move, fy_copy)     /* copy, concat (one source each), where: by element size */           \
    X(transpose,                                                                                \
      fy_transpose) /* copy between layouts whose neighbours lie along different axes */        \
    X(move, fy_gather)                                                                          \
    X(index_add, fy_index_add_f32) /* and gather_backward: a block has every count-th row */    \
    X(index_add, fy_index_add_f64)                                                              \
    X(move, fy_packed)           /* many pieces out of one run of bytes, or into it */          \
    X(random, fy_random)         /* rand, randn, randperm: draws at the counter */              \
    X(random, fy_random_advance) /* then moves the counter */                                   \
    X(random, fy_dropout_begin)  /* keeps the state, then moves the counter */                  \
    X(random, fy_dropout)        /* and dropout2d, and their gradients */                       \
    X(reduce, fy_reduce_float)   /* sum, prod, max, all, ..., mse_loss; in f64 */               \
    X(reduce, fy_reduce_int)                                                                    \
    X(columns, fy_reduce_columns_float) /* sum, mean of whole columns */                        \
    X(columns, fy_reduce_columns_int)                                                           \
    X(argmax, fy_argmax)      /* of rows, or of pieces of rows */                               \
    X(argmax, fy_argmax_join) /* then of the pieces' winners */                                 \
    X(cumsum, fy_cumsum_float)                                                                  \
    X(cumsum, fy_cumsum_int)                                                                    \
    X(softmax, fy_softmax_f32) /* and log_softmax */                                            \
    X(softmax, fy_softmax_f64)                                                                  \
    X(softmax, fy_softmax_backward_f32) /* and log_softmax's */                                 \
    X(softmax, fy_softmax_backward_f64)                                                         \
    X(softmax_long, fy_softmax_parts_f32) /* few long rows: each piece's partial result */      \
    X(softmax_long, fy_softmax_parts_f64)                                                       \
    X(softmax_long, fy_softmax_join_f32) /* then the results; of the gradients too */           \
    X(softmax_long, fy_softmax_join_f64)                                                        \
    X(loss, fy_mse_loss_backward_f32)                                                           \
    X(loss, fy_mse_loss_backward_f64)                                                           \
    X(move, fy_one_hot)                                                                         \
    X(matmul, fy_matmul_f32) /* what cuBLASLt does not take; and linear */                      \
    X(matmul, fy_matmul_f64)                                                                    \
    X(matmul, fy_linear_finish_f32) /* bias and activation of a product in scratch */           \
    X(matmul, fy_linear_finish_f64)                                                             \
    X(conv, fy_conv2d_f32) /* and the gradients; any strides */                                 \
    X(conv, fy_conv2d_f64)                                                                      \
    X(conv_gemm, fy_conv2d_gemm_f32) /* these: dense operands of less than 2^30 elements */     \
    X(conv_gemm, fy_conv2d_gemm_f64)                                                            \
    X(conv_tensor, fy_conv2d_tensor_f16) /* on tensor cores */                                  \
    X(conv_tensor, fy_conv2d_tensor_bf16)                                                       \
    X(conv_depthwise, fy_conv2d_depthwise_f32) /* a group for each channel */                   \
    X(conv_depthwise, fy_conv2d_depthwise_f64)                                                  \
    X(pool, fy_pool2d_f32) /* max, avg, and their gradients */                                  \
    X(pool, fy_pool2d_f64)                                                                      \
    X(pool, fy_pool2d_tiles_f32) /* max_pool2d's gradient, unless windows are large */          \
    X(pool, fy_pool2d_tiles_f64)                                                                \
    X(norm, fy_batch_norm_f32) /* and its gradients: one launch */                              \
    X(norm, fy_batch_norm_f64)                                                                  \
    X(norm, fy_batch_norm_parts_f32) /* three: sums of pieces of rows, */                       \
    X(norm, fy_batch_norm_parts_f64)                                                            \
    X(norm, fy_batch_norm_join)      /* their join, */                                          \
    X(norm, fy_batch_norm_apply_f32) /* and the result; also by running statistics */           \
    X(norm, fy_batch_norm_apply_f64)                                                            \
    X(row_norm, fy_row_norm_f32) /* layer_norm, rms_norm, dx */                                 \
    X(row_norm, fy_row_norm_f64)                                                                \
    X(row_norm, fy_row_norm_parts_f32) /* gradients of weight and bias, or of pieces */         \
    X(row_norm, fy_row_norm_parts_f64)                                                          \
    X(row_norm, fy_row_norm_join) /* of pieces */                                               \
    X(along, fy_take_along_axis)                                                                \
    X(along, fy_take_along_axis_backward_f32)                                                   \
    X(along, fy_take_along_axis_backward_f64)                                                   \
    X(along, fy_topk_f32)                                                                       \
    X(along, fy_topk_f64)                                                                       \
    X(along, fy_topk_int)                                                                       \
    X(resample, fy_resample2d_f32) /* resize2d, adaptive_avg_pool2d, and their gradients */     \
    X(resample, fy_resample2d_f64)                                                              \
    X(attention, fy_attention_f32)                                                              \
    X(attention, fy_attention_f64)                                                              \
    X(attention_tensor, fy_attention_tensor64_f16) /* on tensor cores: heads up to 64 wide, */  \
    X(attention_tensor, fy_attention_tensor64_bf16)                                             \
    X(attention_tensor, fy_attention_tensor128_f16) /* and up to 128 */                         \
    X(attention_tensor, fy_attention_tensor128_bf16)                                            \
    X(attention_gradient, fy_attention_tensor_gradient64_f16) /* dq, dk and dv */               \
    X(attention_gradient, fy_attention_tensor_gradient64_bf16)                                  \
    X(attention_gradient, fy_attention_tensor_gradient128_f16)                                  \
    X(attention_gradient, fy_attention_tensor_gradient128_bf16)                                 \
    X(attention, fy_attention_rows_f32) /* its gradient: dq, then dk and dv */                  \
    X(attention, fy_attention_rows_f64)                                                         \
    X(attention, fy_attention_keys_f32)                                                         \
    X(attention, fy_attention_keys_f64)                                                         \
    X(loss, fy_class_loss_f32) /* nll_loss, cross_entropy */                                    \
    X(loss, fy_class_loss_f64)                                                                  \
    X(loss, fy_class_loss_mean_f32)                                                             \
    X(loss, fy_class_loss_mean_f64)                                                             \
    X(loss, fy_class_loss_backward_f32)                                                         \
    X(loss, fy_class_loss_backward_f64)                                                         \
    X(step, fy_step_f32) /* of optimizers: reads the step number */                             \
    X(step, fy_step_f64)                                                                        \
    X(step, fy_step_parts_f32) /* with rates for each part */                                   \
    X(step, fy_step_parts_f64)                                                                  \
    X(step, fy_step_sums_f32) /* LARS, LAMB, before: squares of runs of parts, */               \
    X(step, fy_step_sums_f64)                                                                   \
    X(step, fy_step_trust)   /* and trust ratios of parts */                                    \
    X(step, fy_step_advance) /* then moves it */                                                \
    X(step, fy_check_finite_f32)                                                                \
    X(step, fy_check_finite_f64)                                                                \
    X(step, fy_update_scaling)

/* These take fy__cuda_flat_t: the same work over dense operands of one axis, aligned or not. */
#define FY__CUDA_FLAT_KERNEL_LIST(X)         \
    X(elementwise, fy_elementwise_flat_f32)  \
    X(elementwise, fy_elementwise_flat_f64)  \
    X(elementwise, fy_elementwise_flat_half) \
    X(elementwise, fy_elementwise_flat_int)  \
    X(move, fy_cast_flat)                    \
    X(move, fy_generate_flat)                \
    X(move, fy_copy_flat)                    \
    X(step, fy_step_flat_f32)                \
    X(step, fy_step_flat_f64)                \
    X(step, fy_step_flat_advance)
/* These take fy__cuda_chain_t. */
#define FY__CUDA_CHAIN_KERNEL_LIST(X) X(chain, fy_chain_f32)
#define FY__CUDA_KERNEL_LIST(X)  \
    FY__CUDA_ARGS_KERNEL_LIST(X) \
    FY__CUDA_CHAIN_KERNEL_LIST(X) FY__CUDA_FLAT_KERNEL_LIST(X)

/* clang-format off */
#define FY__CUDA_MODULE_LIST(X) \
    X(elementwise) X(move) X(random) X(transpose) X(reduce) X(columns) X(argmax) X(cumsum) \
    X(index_add) X(softmax) X(softmax_long) X(matmul) X(conv) X(conv_gemm) X(conv_tensor) \
    X(conv_depthwise) X(pool) X(resample) X(along) X(norm) X(row_norm) X(attention) \
    X(attention_tensor) X(attention_gradient) X(loss) X(step) X(chain)
/* clang-format on */

enum fy__cuda_kernel {
#define X(module, name) FY__CUDA_KERNEL_##name,
    FY__CUDA_KERNEL_LIST(X)
#undef X
        FY__CUDA_KERNEL_COUNT,
    /* from here on kernels take fy__cuda_flat_t */
    FY__CUDA_KERNEL_FLAT = FY__CUDA_KERNEL_fy_elementwise_flat_f32
};

#define FY__CUDA_MAX_SRC         8
#define FY__CUDA_MAX_DST         6
#define FY__CUDA_BLOCK           256 /* threads a block, in every kernel but these */
#define FY__CUDA_ATTENTION_BLOCK 128 /* of attention on tensor cores: 4 warps */
#define FY__CUDA_TILE \
    16 /* matmul, conv2d: a block has TILE x TILE threads, and as many results of fy_conv2d_f32 */
#define FY__CUDA_MATMUL_TILE \
    64 /* matmul: rows and columns of the result that a block makes, a thread 4 x 4 of them */
#define FY__CUDA_NO_COUNT 0
/* Edge of a square tile of fy_transpose, by element size: rows of 64 bytes or more, and 4 or 16
 * reads in flight a thread. */
#define FY__CUDA_TRANSPOSE_TILE(nbytes) ((nbytes) < 4 ? 64 : 32)
/* fy_pool2d_tiles: most rows and columns of a tile of x, windows that have a pixel of it, groups of
 * channels, and places of a window. */
#define FY__CUDA_POOL_SIDE    16
#define FY__CUDA_POOL_WINDOWS 256
#define FY__CUDA_POOL_GROUPS  8
#define FY__CUDA_POOL_PLACES  127

enum fy__cuda_flags {
    /* every index and every element offset fits 31 bits: 32-bit index arithmetic will do */
    FY__CUDA_SMALL = 1,
    FY__CUDA_ALIGNED = 2 /* see `wide` */
};

/* An operand, with the pointer as a device address. Elementwise: rank and dims of all operands are
 * equal (collapsed), stride 0 repeats. */
typedef struct fy__cuda_operand {
    uint64_t data;
    int32_t dtype, rank;
    int64_t dims[FY_MAX_RANK], strides[FY_MAX_RANK];
} fy__cuda_operand_t;

typedef union fy__cuda_attrs {
    unsigned char bytes[40]; /* the op's attribute struct, as op.h has it */
    fy_fill_attrs_t fill;
    fy_arange_attrs_t arange;
    fy_rand_attrs_t rand;
    fy_randn_attrs_t randn;
    fy_affine_attrs_t affine;
    fy_axpy_attrs_t axpy;
    double scaled[2];         /* p, q of SCALED rows; q is 0 without a second attribute */
    fy_reduce_attrs_t reduce; /* keepdims is always 1 here: dst has src's rank, with dims of 1 */
    fy_axis_attrs_t axis;     /* also for argmax */
    fy_cumsum_attrs_t cumsum;
    fy_packed_t packed;       /* FY_LAUNCH_SCATTER, _GATHER: as backend.h has it */
    fy_matmul_attrs_t matmul; /* always 0, 0 here: transposes are folded into strides */
    fy_pool2d_attrs_t pool2d; /* of the gradients too; stride is never 0 here */
    fy_linear_attrs_t linear;
    fy_clamp_attrs_t clamp;
    fy_clip_attrs_t clip;
    fy_sgd_attrs_t sgd;
    fy_adam_attrs_t adam;
    fy_adadelta_attrs_t adadelta;
    fy_rmsprop_attrs_t rmsprop;
    fy_lars_attrs_t lars;
    fy_lamb_attrs_t lamb;
    fy_update_scaling_attrs_t update_scaling;
    fy_conv2d_attrs_t conv2d; /* of the gradients too; their height and width are dst's */
    fy_dropout_attrs_t dropout;
    fy_batch_norm_attrs_t batch_norm;
    fy_norm_attrs_t norm;
    fy_batch_norm_inference_attrs_t batch_norm_inference;
    fy_attention_attrs_t attention;                     /* of the gradient, too */
    fy_class_loss_attrs_t class_loss;                   /* of cross_entropy's gradient, too */
    fy_class_loss_backward_attrs_t class_loss_backward; /* of nll_loss_backward */
} fy__cuda_attrs_t;

typedef struct fy__cuda_args {
    uint32_t struct_size;
    uint32_t op;
    uint32_t nsrc, ndst;
    uint32_t flags;      /* fy__cuda_flags */
    uint32_t accumulate; /* 1: add to dst[0]; normalisation: bit i: to dst[i] */
    uint64_t nelem;      /* of dst[0]; check_finite: of src[0] */
    /* ops that index: where 1 is written if an index is out of range; else 0 */
    uint64_t fault;
    /* Threads that share a result, 1, 32 or FY__CUDA_BLOCK: reductions, softmax, losses of classes.
     * Sums of channels: threads side by side, a power of two up to 32. */
    uint32_t lanes;
    /* So many neighbouring elements (2, 4, 8, 16) along the last axis belong to one thread; 0: one.
     * FY__CUDA_ALIGNED says that they may be accessed at once, up to 16 bytes a time, in every
     * operand that does not repeat there. pack_wide.c says when. */
    uint32_t wide;
    /* Reductions: the number of elements of one result, if it is larger than that of src (src are
     * partial results); else NO_COUNT.
     * Rows in pieces (pack_rows.c): elements of a piece. Normalisation: rows of a piece. Losses of
     * classes: rows. Attention: rows, keys, or tiles of them, of all heads. fy_pool2d_tiles: rows
     * and columns of a tile. */
    uint64_t count;
    /* Weights' gradients of conv2d: dst[0] may have an axis in front; then slice i of n is the
     * gradient over images N i / n .. N (i + 1) / n, in f32 (f64: f64), and not accumulated. */
    /* Concat: where along the axis this source begins is already in dst[0].data; dst[0].dims are
     * the source's. */
    fy__cuda_attrs_t attrs;
    fy__cuda_operand_t dst[FY__CUDA_MAX_DST];
    fy__cuda_operand_t src[FY__CUDA_MAX_SRC];
} fy__cuda_args_t;

/* The same of a launch whose operands have one axis, side by side (stride 1) or one element for all
 * (stride 0): 128 bytes instead of 2,120, which the driver copies at every launch. Operand places:
 * dst[0], src[0 .. 2], dst[1 .. 3]. flat.h turns one struct into the other. */
enum {
    FY__CUDA_FLAT_SRC = 3,
    FY__CUDA_FLAT_DST = 4,
    FY__CUDA_FLAT_OPERANDS = FY__CUDA_FLAT_SRC + FY__CUDA_FLAT_DST
};
typedef struct fy__cuda_flat {
    uint32_t struct_size;
    uint16_t op;
    uint8_t nsrc, ndst;
    uint8_t flags, accumulate, wide;
    uint8_t repeats; /* bit i: operand i is one element */
    uint8_t dtypes[FY__CUDA_FLAT_OPERANDS];
    uint8_t reserved[5];
    uint64_t nelem;
    fy__cuda_attrs_t attrs;
    uint64_t data[FY__CUDA_FLAT_OPERANDS];
} fy__cuda_flat_t;

/* FY_LAUNCH_CHAIN: the program and its operands, numbered as in fy_chain_op_t. */
enum {
    FY__CUDA_CHAIN_OPS = 64,
    FY__CUDA_CHAIN_OPERANDS = 24, /* in memory */
    FY__CUDA_CHAIN_RANK = 4,      /* of a source with fused axes */
    FY__CUDA_CHAIN_KEPT = 4,      /* values that a thread has in registers */
    FY__CUDA_CHAIN_WIDE = 4,      /* neighbours that a thread has, if FY__CUDA_ALIGNED */
    FY__CUDA_CHAIN_NONE = 255     /* no operand has this number */
};
typedef struct fy__cuda_chain_op {
    uint16_t op;
    uint8_t nsrc, accumulate;
    uint8_t dst, src[3];
    uint8_t dst_dtype, src_dtype[3];
    uint8_t is_kept; /* dst is a value that an op after the next one reads */
    uint8_t reserved[3];
    double numbers[2]; /* the attributes */
} fy__cuda_chain_op_t;

/* Results are dense and have one axis; sources have their own, fused. */
typedef struct fy__cuda_chain_operand {
    uint64_t data;
    int32_t dtype, rank;
    int64_t dims[FY__CUDA_CHAIN_RANK], strides[FY__CUDA_CHAIN_RANK];
} fy__cuda_chain_operand_t;

typedef struct fy__cuda_chain {
    uint32_t struct_size;
    uint32_t nops;
    uint16_t ndst, nsrc;
    uint32_t flags; /* fy__cuda_flags */
    uint64_t nelem;
    fy__cuda_chain_op_t ops[FY__CUDA_CHAIN_OPS];
    fy__cuda_chain_operand_t operands[FY__CUDA_CHAIN_OPERANDS];
} fy__cuda_chain_t;

#endif
