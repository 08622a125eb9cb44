/* Ops as data: names, attribute structs, introspection, the generic call and registration. A
 * binding for another language needs only this header. C programs use the typed calls in ops.h,
 * which do the same. */
#ifndef FERRY_OP_H_
#define FERRY_OP_H_

#include <ferry/op_list.h>
#include <ferry/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* FY_OP_ADD, ..., or a number from fy_op_register. */
typedef uint32_t fy_op_t;
#define FY_OP_NONE UINT32_MAX

/* ---- attributes: one plain struct for each op that has attributes; a later version may append
 * fields, see fy_op_call ---- */

typedef struct fy_fill_attrs {
    double value;
    int64_t int_value;
} fy_fill_attrs_t; /* float dtypes use value, the others int_value */
typedef struct fy_arange_attrs {
    double start, step;
} fy_arange_attrs_t; /* dst[i] = start + i * step, computed in f64 */
typedef struct fy_rand_attrs {
    double low, high;
} fy_rand_attrs_t; /* uniform in [low, high) */
typedef struct fy_randn_attrs {
    double mean, std;
} fy_randn_attrs_t;
typedef struct fy_affine_attrs {
    double scale, shift;
} fy_affine_attrs_t; /* scale * x + shift */
typedef struct fy_softplus_attrs {
    double beta, threshold; /* beta is above 0 */
} fy_softplus_attrs_t;
typedef struct fy_leaky_relu_attrs {
    double slope;
} fy_leaky_relu_attrs_t;
typedef struct fy_elu_attrs {
    double alpha;
} fy_elu_attrs_t;
typedef struct fy_cast_attrs {
    int32_t dtype;
} fy_cast_attrs_t; /* an fy_dtype_t */
typedef struct fy_axpy_attrs {
    double alpha;
} fy_axpy_attrs_t;
typedef struct fy_gather_backward_attrs {
    int64_t rows;
} fy_gather_backward_attrs_t; /* of the table */
typedef struct fy_reduce_attrs {
    uint32_t axes;
    int32_t keepdims;
} fy_reduce_attrs_t; /* bit i: reduce axis i; no bit: all axes */
typedef struct fy_axis_attrs {
    int32_t axis;
    int32_t keepdims;
} fy_axis_attrs_t; /* one axis; negative counts from the end */
typedef struct fy_cumsum_attrs {
    int32_t axis;    /* negative counts from the end */
    int32_t reverse; /* 1: sums from each element to the last one */
} fy_cumsum_attrs_t;
typedef struct fy_matmul_attrs {
    int32_t transpose_a, transpose_b;
} fy_matmul_attrs_t; /* of the last two axes; nothing is copied */

/* Applied by a linear layer or a convolution to its result, in the same kernel; 0 means none. The
 * slope of the first four can be computed from the result alone (y > 0, 1 - y^2, y (1 - y)), so a
 * tape saves nothing more for them. A number that an op does not support is refused
 * (INVALID_ARGUMENT). */
typedef enum fy_activation {
    FY_ACTIVATION_NONE = 0,
    FY_ACTIVATION_RELU = 1,
    FY_ACTIVATION_TANH = 2,
    FY_ACTIVATION_SIGMOID = 3,
    FY_ACTIVATION_GELU = 4 /* with erf, as fy_gelu: its slope needs its argument */
} fy_activation_t;

typedef struct fy_conv2d_attrs {
    int32_t stride_h, stride_w, padding_h, padding_w, dilation_h, dilation_w, groups;
    int32_t activation; /* an fy_activation_t, of the result: NONE or RELU */
    /* padding: zeros on both sides; the result has
     * floor((H + 2 padding - dilation (KH - 1) - 1) / stride) + 1 rows */
} fy_conv2d_attrs_t;
typedef struct fy_conv2d_backward_attrs {
    /* of the conv2d that is differentiated */
    int32_t stride_h, stride_w, padding_h, padding_w, dilation_h, dilation_w, groups;
    /* of x, or of the kernel: of the gradient's shape */
    int32_t height, width;
} fy_conv2d_backward_attrs_t;

typedef struct fy_pool2d_attrs {
    int32_t kernel_h, kernel_w, stride_h, stride_w, padding_h, padding_w;
    int32_t activation; /* an fy_activation_t, applied to x before pooling: NONE or RELU */
    /* stride 0: the kernel's size; the result has floor((H + 2 padding - kernel) / stride) + 1
     * rows. ceil_mode 1: rounded up, so that a last window may reach beyond the padding; but each
     * window begins before row H, and before column W. */
    int32_t ceil_mode;
    /* Averages only. 0: padding counts as zeros; 1: a sum is divided by its pixels of x alone. */
    int32_t count_excludes_padding;
} fy_pool2d_attrs_t;
typedef struct fy_pool2d_backward_attrs {
    /* of the forward pooling op */
    int32_t kernel_h, kernel_w, stride_h, stride_w, padding_h, padding_w, activation;
    int32_t ceil_mode, count_excludes_padding;
    int32_t height, width; /* of its x */
} fy_pool2d_backward_attrs_t;
typedef struct fy_image_size_attrs {
    int32_t height, width; /* of the result */
} fy_image_size_attrs_t;
typedef struct fy_take_along_axis_backward_attrs {
    int64_t length; /* of the last axis of the result */
} fy_take_along_axis_backward_attrs_t;
typedef struct fy_topk_attrs {
    int64_t k;
} fy_topk_attrs_t;
typedef struct fy_flip_attrs {
    uint32_t axes; /* bit i: axis i; no bit: all axes */
} fy_flip_attrs_t;

typedef struct fy_attention_attrs {
    double scale;      /* of the scores; 0: 1 / sqrt(D) */
    int32_t is_causal; /* row t attends to keys 0 .. t only */
} fy_attention_attrs_t;

/* How a loss combines the losses of its rows. */
typedef enum fy_reduction { FY_REDUCTION_MEAN, FY_REDUCTION_SUM, FY_REDUCTION_NONE } fy_reduction_t;
typedef struct fy_loss_attrs {
    int32_t reduction; /* a fy_reduction_t */
} fy_loss_attrs_t;
/* Of nll_loss, cross_entropy and cross_entropy_backward. It begins as fy_loss_attrs_t, which these
 * ops take, too. */
typedef struct fy_class_loss_attrs {
    int32_t reduction;      /* a fy_reduction_t */
    int32_t ignore_index;   /* rows with this target do not count; -100 by default */
    double label_smoothing; /* 0 .. 1; nll_loss: 0 */
} fy_class_loss_attrs_t;
typedef struct fy_nll_loss_backward_attrs {
    int32_t reduction, classes; /* of the nll_loss that is differentiated, and of its log_probs */
} fy_nll_loss_backward_attrs_t;
/* The same with ignore_index. */
typedef struct fy_class_loss_backward_attrs {
    int32_t reduction, classes, ignore_index;
} fy_class_loss_backward_attrs_t;

typedef struct fy_linear_attrs {
    int32_t activation;
} fy_linear_attrs_t; /* an fy_activation_t */
typedef struct fy_clamp_attrs {
    double low, high;
} fy_clamp_attrs_t; /* infinite: no bound on that side */
typedef struct fy_clip_attrs {
    double max_norm;
} fy_clip_attrs_t;

/* Optimizer steps; formulas: ops.h. */
typedef struct fy_sgd_attrs {
    double momentum, dampening, weight_decay;
    int32_t nesterov;
} fy_sgd_attrs_t;
typedef struct fy_adam_attrs {
    double beta1, beta2, eps, weight_decay;
    /* 1: weight decay is subtracted from the parameter (AdamW), 0: added to the gradient */
    int32_t decoupled;
} fy_adam_attrs_t;
typedef struct fy_adadelta_attrs {
    double rho, eps, weight_decay;
} fy_adadelta_attrs_t;
typedef struct fy_rmsprop_attrs {
    double alpha, eps, weight_decay;
    double momentum; /* rmsprop_step: 0 */
} fy_rmsprop_attrs_t;
typedef struct fy_lars_attrs {
    double momentum, trust_coefficient, eps, weight_decay;
} fy_lars_attrs_t;
typedef struct fy_lamb_attrs {
    double beta1, beta2, eps, weight_decay;
} fy_lamb_attrs_t;
typedef struct fy_update_scaling_attrs {
    double growth_factor, backoff_factor; /* above 1; 0 or more and below 1 */
    int64_t growth_interval;
} fy_update_scaling_attrs_t;
typedef struct fy_dropout_attrs {
    double p; /* the dropped share, 0 .. 1; rounded to steps of 2^-24 */
} fy_dropout_attrs_t;

typedef struct fy_batch_norm_attrs {
    double momentum;    /* the share of this batch in the running statistics, 0 .. 1 */
    double eps;         /* added to the variance */
    int32_t activation; /* an fy_activation_t, of the result: NONE or RELU */
} fy_batch_norm_attrs_t;
typedef struct fy_batch_norm_inference_attrs {
    double eps;
    int32_t activation; /* as above */
} fy_batch_norm_inference_attrs_t;
typedef struct fy_norm_attrs {
    double eps; /* added to the variance, or to the mean of squares */
} fy_norm_attrs_t;

typedef struct fy_one_hot_attrs {
    int64_t classes;
    int32_t dtype; /* of the result, a fy_dtype_t */
} fy_one_hot_attrs_t;

/* ---- introspection ---- */

typedef enum fy_attr_type {
    FY_ATTR_F64,
    FY_ATTR_I64,
    FY_ATTR_I32,
    FY_ATTR_BOOL32,
    FY_ATTR_DTYPE32,
    FY_ATTR_AXES32, /* a bit mask: bit i is axis i; 0: all axes */
    FY_ATTR_AXIS32, /* one axis of src[0]; fy_op_call takes a negative one, counted from the end */
    FY_ATTR_ENUM32  /* one of `choices` */
} fy_attr_type_t;
typedef struct fy_attr_field {
    const char *name;
    fy_attr_type_t type;
    uint32_t offset; /* in the attribute struct, bytes */
    double fallback; /* the default value */
    /* Legal values: low .. high, both 0 if there is no such range; bit 0 of `excludes`: low itself
     * is not legal, bit 1: high. Ops may set further conditions. */
    double low, high;
    uint32_t excludes;
    uint32_t nchoices;          /* ENUM32, else 0 */
    const char *const *choices; /* the names of 0 .. nchoices - 1 */
} fy_attr_field_t;

/* An operand of an op. */
typedef struct fy_op_operand {
    const char *name; /* "x", "targets" */
    /* FY_DTYPE_BITs; 0: those of the op, and one dtype for all such operands of a call */
    uint32_t dtypes;
    uint32_t flags; /* fy_operand_flags */
} fy_op_operand_t;
enum fy_operand_flags {
    FY_OPERAND_OPTIONAL = 1, /* a source, or the last result of a step, that may be left out */
    FY_OPERAND_REPEATED = 2, /* any number of sources, from one on */
    FY_OPERAND_INOUT = 4     /* a result that is given, read and written */
};

/* "i32", "axes", ...; "?" for an undefined attribute type. Static. */
FY_API const char *fy_attr_type_name(fy_attr_type_t type);

#define FY_OP_ATTRS_MAX_NBYTES 256    /* the largest attribute struct */
#define FY_OP_VARIADIC         65535u /* as nsrc_max: any number */
#define FY_DTYPE_BIT(dtype)    (1u << (dtype))

enum fy_op_flags {
    FY_OP_ELEMENTWISE = 1,    /* sources broadcast to dst[0] as NumPy does */
    FY_OP_IN_PLACE = 2,       /* every dst must be given: the call writes into it */
    FY_OP_CAN_FAULT = 4,      /* a value in the data can make the request fail (BAD_VALUE) */
    FY_OP_CAN_ACCUMULATE = 8, /* kernels support launch.accumulate for float dst */
    /* sources are cast under fy_autocast_set (autocast.h): to its dtype; to f32; to f32 if their
     * dtypes differ. At most one of the three */
    FY_OP_AUTOCAST_LOW = 16,
    FY_OP_AUTOCAST_FULL = 32,
    FY_OP_AUTOCAST_WIDEST = 64
};

typedef struct fy_op_info {
    size_t struct_size;
    fy_op_t op;
    const char *name;            /* "matmul" */
    const char *summary;         /* one line with shapes */
    uint16_t nsrc_min, nsrc_max; /* nsrc_max may be FY_OP_VARIADIC */
    uint16_t ndst;
    uint16_t nfields;
    uint32_t flags;      /* fy_op_flags */
    uint32_t inout;      /* bit i: dst[i] is read as well as written, so it must be given */
    uint32_t dtypes;     /* FY_DTYPE_BITs that the op's main operand may have */
    size_t attrs_nbytes; /* 0: takes no attributes (pass NULL) */
    const fy_attr_field_t *fields;
    /* as many sources as the op takes at most (nsrc_min if it is variadic; the last is repeated),
     * and ndst results. A registered op may leave each NULL; its shape rule checks dtypes */
    const fy_op_operand_t *src, *dst;
} fy_op_info_t;
#define FY_OP_INFO_INIT FY_ZEROED_(op_info)
FY_API void fy_op_info_init(fy_op_info_t *info, size_t nbytes);

/* NULL if there is no such op. Static; for registered ops valid as long as the process. */
FY_API const fy_op_info_t *fy_op_find(const char *name);
FY_API const fy_op_info_t *fy_op_get(fy_op_t op);
/* Ops are numbered 0 .. count-1, registered ones last. */
FY_API fy_op_t fy_op_count(void);

/* ---- the generic call ---- */

/* Runs `op` on the device of its tensors. attrs: the op's attribute struct and sizeof it. Fields
 * after its last byte have their fallback; bytes that this library does not know must be 0. NULL
 * and 0: every fallback, or no attributes.
 * dst[i] NULL: made, in the current scope. dst[i] given: written in place; shape and dtype must
 * match; it may overlap a source only exactly (elementwise ops), never partly.
 * Completion: asynchronous; later requests wait on the device. A call that fails changes nothing.
 * Fails: INVALID_ARGUMENT (arity, attributes), UNSUPPORTED (no kernel for this device or these
 * operands), BUSY, OUT_OF_MEMORY, REFUSED_BY_GUARD, DEVICE_LOST, ..._MISMATCH. */
FY_API_STATUS fy_op_call(fy_op_t op, size_t nsrc, fy_tensor_t *const *src, const void *attrs,
                         size_t attrs_nbytes, size_t ndst, fy_tensor_t **dst);

/* ---- the argument of a kernel ---- */

/* One operand as the device sees it. */
typedef struct fy_desc {
    void *data; /* first element, on the device */
    int32_t dtype, rank;
    /* strides in elements; only the first `rank` entries are set */
    int64_t dims[FY_MAX_RANK], strides[FY_MAX_RANK];
} fy_desc_t;

enum fy_launch_flags {
    /* elementwise: all operands are row-major without gaps and of one shape: one flat loop over
     * nelem suffices */
    FY_LAUNCH_DENSE = 1,
    /* not elementwise: each operand is row-major without gaps (the stride of an axis of length 1 is
     * undefined) */
    FY_LAUNCH_CONTIGUOUS = 2
};

struct fy_launch;
/* A registered op's kernel. `stream`: the backend's native stream (a CUstream on cuda; NULL on host
 * and sim). In a graph on cuda the first two replays call the kernel, the second one with a stream
 * that captures; later replays repeat its captured work (docs/graphs.md).
 * A kernel fails by returning fy_error_set(...), on every device: the request fails and its results
 * are poisoned. A wait for the request or for its results fails with KERNEL_FAILED; the text has
 * the op's name, the kernel's status and the kernel's text. The device stays usable, unless the
 * kernel returns DEVICE_LOST. */
typedef fy_status_t (*fy_kernel_fn)(const struct fy_launch *launch, void *stream);
/* Decides whether a kernel can run this call. It is called on the caller's thread before anything
 * is submitted. `launch` is the record that the kernel will get, without `workspace` and `fault`.
 * `data` may be a device address: do not read it.
 * To refuse, return fy_error_set(...): the call then fails with UNSUPPORTED; the text has the op's
 * name, the device, the operands and the hook's text. */
typedef fy_status_t (*fy_supports_fn)(const struct fy_launch *launch);

/* The launch record: the data that a backend needs to run one op. For elementwise ops every source
 * has been broadcast: rank and dims of each operand are dst[0]'s, with stride 0 in repeated
 * axes. */
typedef struct fy_launch {
    size_t struct_size;
    fy_op_t op;
    uint16_t nsrc, ndst;
    uint32_t flags; /* fy_launch_flags */
    /* bit i: add to dst[i] instead of assigning (float dst, ops with FY_OP_CAN_ACCUMULATE) */
    uint32_t accumulate;
    fy_desc_t *dst, *src;
    /* the op's struct, never NULL if it has one; axes are not negative */
    const void *attrs;
    size_t attrs_nbytes; /* of that struct: a backend that runs later keeps a copy */
    uint64_t nelem;      /* of dst[0] */
    void *workspace;
    uint64_t workspace_nbytes;
    /* by the cost rule; on the host 0 while no simulated device is open */
    uint64_t flops, nbytes;
    /* for a kernel: NULL without FY_OP_CAN_FAULT; with it, set *fault to 1 on a bad value and clamp
     * the value */
    uint32_t *fault;
    /* registered ops: the function that a backend calls with this launch; built-in ops: NULL */
    fy_kernel_fn kernel;
    /* registered ops: a kernel gets fy_op_def_t.user; a backend passes it on and does not read
     * it */
    void *user;
} fy_launch_t;

/* ---- questions about a call, without the call ---- */

/* Fills dtype, rank, dims and strides (of which fy_op_infer uses none); data is NULL. Fails:
 * INVALID_ARGUMENT. */
FY_API_STATUS fy_tensor_describe(const fy_tensor_t *tensor, fy_desc_t *out_desc);
/* The results that fy_op_call would make of sources with these dtypes and dims: dtype, rank, dims
 * and dense strides of dst[0 .. ndst-1]; data is NULL. Reads no other field of `src`; needs no
 * device and runs nothing. attrs as in fy_op_call. Of results that the caller must give
 * (FY_OP_IN_PLACE, inout), dst has the descriptors at the call, and they are checked.
 * Fails: as fy_op_call, without the reasons that concern devices; dst is then unchanged. */
FY_API_STATUS fy_op_infer(fy_op_t op, size_t nsrc, const fy_desc_t *src, const void *attrs,
                          size_t attrs_nbytes, size_t ndst, fy_desc_t *dst);
/* Whether `device` can run `op` on `count` sources of these dtypes; of an op without sources:
 * results. A `supports` hook is not called, and shapes can still be refused.
 * Fails: DTYPE_MISMATCH (no device runs the op for these dtypes), UNSUPPORTED (this device has no
 * kernel), INVALID_ARGUMENT (no such op, another number of operands), OUT_OF_MEMORY,
 * DEVICE_LOST. */
FY_API_STATUS fy_op_supported(const fy_device_t *device, fy_op_t op, const fy_dtype_t *dtypes,
                              size_t count);

/* ---- registration ---- */

/* Fills dtype, rank and dims of each launch->dst from the sources and attrs; strides and data are
 * set later. NULL for elementwise ops: Ferry broadcasts. Fails with fy_error_set: SHAPE_MISMATCH,
 * DTYPE_MISMATCH, INVALID_ARGUMENT. */
typedef fy_status_t (*fy_shape_rule_fn)(const fy_op_info_t *info, fy_launch_t *launch);
/* Fills launch->flops and launch->nbytes. NULL: one flop for each element of dst[0], each operand's
 * bytes once. */
typedef void (*fy_cost_rule_fn)(fy_launch_t *launch);

typedef struct fy_op_kernel {
    const char *backend; /* "host" also serves sim */
    fy_kernel_fn kernel;
    fy_supports_fn supports; /* NULL: the kernel runs every call that the shape rule accepts */
} fy_op_kernel_t;

/* A recorded call, for the gradient rule of a registered op or of fy_tape_attach. All of it is
 * borrowed until the rule returns; its tensors must not be written or destroyed. */
typedef struct fy_op_backward {
    size_t struct_size;
    const fy_op_info_t *info;
    const void *attrs; /* as the kernel got them; NULL if the op has none */
    size_t nsrc, ndst;
    fy_tensor_t *const *src;      /* those of saved_srcs; the others are NULL */
    fy_tensor_t *const *dst;      /* those of saved_dsts; the others are NULL */
    fy_tensor_t *const *dst_grad; /* d loss / d dst[i], of its shape; NULL: it is 0 */
    /* dtype, rank and dims of source i, if it needs a gradient; else NULL */
    const fy_desc_t *const *wanted;
    void *user; /* fy_op_def_t.user, or that of fy_tape_attach */
} fy_op_backward_t;
/* A gradient rule. For each i with wanted[i], sets src_grad[i] to
 * d loss / d src[i] by calls of ops and views. NULL means 0; a view, or dst_grad[j] itself, is
 * legal. src_grad[i] has source i's device, dtype and shape. It may also have a shape to which the
 * source broadcasts: Ferry then sums it.
 * It runs in a scope with the op's name, which owns the tensors made in it. Calls of the tape's own
 * functions fail with BUSY.
 * A rule fails by returning fy_error_set(...); fy_tape_backward then returns that status. */
typedef fy_status_t (*fy_backward_fn)(const fy_op_backward_t *call, fy_tensor_t **src_grad);

typedef struct fy_op_def {
    size_t struct_size;
    const fy_op_info_t *info; /* info->op is ignored; all that it points to is copied */
    fy_shape_rule_fn shape;
    fy_cost_rule_fn cost;
    size_t nkernels;
    const fy_op_kernel_t *kernels; /* copied */
    void *user;                    /* passed to the kernels in launch->user, and to `backward` */
    /* NULL: a tape refuses a call that depends on a watched tensor (UNSUPPORTED) */
    fy_backward_fn backward;
    /* Bit i: a tape saves source i, or result i, until `backward` has run; bit 31 of saved_srcs:
     * source 31 and all after it. A saved tensor must not be written in between (BUSY). */
    uint32_t saved_srcs, saved_dsts;
} fy_op_def_t;
#define FY_OP_DEF_INIT FY_ZEROED_(op_def)
FY_API void fy_op_def_init(fy_op_def_t *def, size_t nbytes);

/* Adds an op to the table, for fy_op_call, tapes and introspection, until the process ends.
 * Fails: INVALID_ARGUMENT (name taken or malformed, fields outside the attribute struct, no kernel,
 * a gradient rule for an op with an inout result), OUT_OF_MEMORY. */
FY_API_STATUS fy_op_register(const fy_op_def_t *def, fy_op_t *out_op);

#ifdef __cplusplus
}
#endif
#endif
