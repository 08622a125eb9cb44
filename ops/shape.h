/* Shape rules: the shapes of each op's results, and the refusals of a call. A rule reads the
 * sources' descriptors and the attributes (never NULL if the op has any), and fills dtype, rank and
 * dims of each dst. A dst that must be given comes filled. Rules of IN_PLACE ops check it; other
 * rules overwrite it with the shape that it must have, and the dispatcher compares.
 * Elementwise rules also rewrite the sources to dst[0]'s rank and dims (fy__broadcast_sources). The
 * rules never set a stride or an address of dst.
 * Which op has which rule: opset/ops.def. Not here: devices, aliasing, memory (dispatch.c). */
#ifndef FERRY_OPS_SHAPE_H_
#define FERRY_OPS_SHAPE_H_

#include <stdbool.h>

#include <ferry/op.h>

/* ---- shape.c ---- */
/* Any number of sources of one dtype that the op takes; results (or the given dst) have it too.
 * Rule of registered elementwise ops. */
fy_status_t fy__shape_elementwise(const fy_op_info_t *info, fy_launch_t *launch);
fy_status_t fy__shape_unary(const fy_op_info_t *info, fy_launch_t *launch);
fy_status_t fy__shape_binary(const fy_op_info_t *info, fy_launch_t *launch);
fy_status_t fy__shape_test(const fy_op_info_t *info, fy_launch_t *launch);
fy_status_t fy__shape_compare(const fy_op_info_t *info, fy_launch_t *launch);
fy_status_t fy__shape_where(const fy_op_info_t *info, fy_launch_t *launch);
fy_status_t fy__shape_cast(const fy_op_info_t *info, fy_launch_t *launch);
/* copy, axpy: src broadcasts to the given dst */
fy_status_t fy__shape_into(const fy_op_info_t *info, fy_launch_t *launch);

/* ---- shape_make.c ---- */
fy_status_t fy__shape_fill(const fy_op_info_t *info, fy_launch_t *launch);
fy_status_t fy__shape_arange(const fy_op_info_t *info, fy_launch_t *launch);
fy_status_t fy__shape_random(const fy_op_info_t *info, fy_launch_t *launch);
fy_status_t fy__shape_randperm(const fy_op_info_t *info, fy_launch_t *launch);
fy_status_t fy__shape_dropout(const fy_op_info_t *info, fy_launch_t *launch); /* and dropout2d */
fy_status_t fy__shape_dropout_backward(const fy_op_info_t *info, fy_launch_t *launch);

/* ---- shape_reduce.c ---- */
fy_status_t fy__shape_sum(const fy_op_info_t *info, fy_launch_t *launch);
fy_status_t fy__shape_any(const fy_op_info_t *info, fy_launch_t *launch);
fy_status_t fy__shape_cumsum(const fy_op_info_t *info, fy_launch_t *launch);
fy_status_t fy__shape_mean(const fy_op_info_t *info, fy_launch_t *launch);
fy_status_t fy__shape_extremum(const fy_op_info_t *info, fy_launch_t *launch);
fy_status_t fy__shape_argmax(const fy_op_info_t *info, fy_launch_t *launch);
fy_status_t fy__shape_along_axis(const fy_op_info_t *info, fy_launch_t *launch);
fy_status_t fy__shape_mse_loss(const fy_op_info_t *info, fy_launch_t *launch);

/* ---- shape_linalg.c ---- */
fy_status_t fy__shape_matmul(const fy_op_info_t *info, fy_launch_t *launch);
fy_status_t fy__shape_linear(const fy_op_info_t *info, fy_launch_t *launch);
fy_status_t fy__shape_linear_backward_params(const fy_op_info_t *info, fy_launch_t *launch);
fy_status_t fy__shape_gather(const fy_op_info_t *info, fy_launch_t *launch);
fy_status_t fy__shape_gather_backward(const fy_op_info_t *info, fy_launch_t *launch);
fy_status_t fy__shape_index_add(const fy_op_info_t *info, fy_launch_t *launch);
fy_status_t fy__shape_concat(const fy_op_info_t *info, fy_launch_t *launch);
fy_status_t fy__shape_take_along_axis(const fy_op_info_t *info, fy_launch_t *launch);
fy_status_t fy__shape_take_along_axis_backward(const fy_op_info_t *info, fy_launch_t *launch);
fy_status_t fy__shape_topk(const fy_op_info_t *info, fy_launch_t *launch);
fy_status_t fy__shape_flip(const fy_op_info_t *info, fy_launch_t *launch);
fy_status_t fy__shape_image_size(const fy_op_info_t *info, fy_launch_t *launch);

/* ---- shape_attention.c ---- */
fy_status_t fy__shape_attention(const fy_op_info_t *info, fy_launch_t *launch);
fy_status_t fy__shape_attention_backward(const fy_op_info_t *info, fy_launch_t *launch);

/* ---- shape_image.c ---- */
fy_status_t fy__shape_conv2d(const fy_op_info_t *info, fy_launch_t *launch);
fy_status_t fy__shape_conv2d_backward_input(const fy_op_info_t *info, fy_launch_t *launch);
fy_status_t fy__shape_conv2d_backward_weight(const fy_op_info_t *info, fy_launch_t *launch);
fy_status_t fy__shape_conv2d_backward_params(const fy_op_info_t *info, fy_launch_t *launch);
fy_status_t fy__shape_max_pool2d(const fy_op_info_t *info, fy_launch_t *launch);
fy_status_t fy__shape_max_pool2d_backward(const fy_op_info_t *info, fy_launch_t *launch);
fy_status_t fy__shape_avg_pool2d(const fy_op_info_t *info, fy_launch_t *launch);
fy_status_t fy__shape_avg_pool2d_backward(const fy_op_info_t *info, fy_launch_t *launch);

/* ---- shape_loss.c ---- */
/* and cross_entropy */
fy_status_t fy__shape_nll_loss(const fy_op_info_t *info, fy_launch_t *launch);
fy_status_t fy__shape_nll_loss_backward(const fy_op_info_t *info, fy_launch_t *launch);
fy_status_t fy__shape_cross_entropy_backward(const fy_op_info_t *info, fy_launch_t *launch);
/* and log_softmax_backward */
fy_status_t fy__shape_softmax_backward(const fy_op_info_t *info, fy_launch_t *launch);
fy_status_t fy__shape_mse_loss_backward(const fy_op_info_t *info, fy_launch_t *launch);
fy_status_t fy__shape_one_hot(const fy_op_info_t *info, fy_launch_t *launch);

/* ---- shape_norm.c ---- */
fy_status_t fy__shape_batch_norm(const fy_op_info_t *info, fy_launch_t *launch);
fy_status_t fy__shape_batch_norm_backward(const fy_op_info_t *info, fy_launch_t *launch);
fy_status_t fy__shape_batch_norm_inference(const fy_op_info_t *info, fy_launch_t *launch);
/* and rms_norm */
fy_status_t fy__shape_layer_norm(const fy_op_info_t *info, fy_launch_t *launch);
fy_status_t fy__shape_layer_norm_backward(const fy_op_info_t *info, fy_launch_t *launch);

/* ---- shape_step.c ---- */
fy_status_t fy__shape_clamp(const fy_op_info_t *info, fy_launch_t *launch);
fy_status_t fy__shape_step(const fy_op_info_t *info, fy_launch_t *launch); /* of optimizers */
fy_status_t fy__shape_check_finite(const fy_op_info_t *info, fy_launch_t *launch);
fy_status_t fy__shape_update_scaling(const fy_op_info_t *info, fy_launch_t *launch);

/* Rewrites each source to dst[0]'s rank and dims, with stride 0 where it repeats. The shapes are
 * known to broadcast.
 * Doing it twice does nothing more. */
void fy__broadcast_sources(fy_launch_t *launch);

/* ---- what the rules share ---- */

bool fy__same_dims(const fy_desc_t *a, const fy_desc_t *b);
/* Whether it has no element. */
bool fy__has_no_element(const fy_desc_t *desc);
/* Gives dst the dtype, rank and dims of src. */
void fy__shape_like(fy_desc_t *dst, const fy_desc_t *src);
typedef enum fy__side { FY__SRC, FY__DST } fy__side_t;

/* Refuses an operand (FY__SRC, 0) whose dtype is not in `dtypes`. */
fy_status_t fy__check_dtype(const fy_op_info_t *info, fy__side_t side, int index,
                            const fy_desc_t *desc, uint32_t dtypes);
/* Refuses sources `first` and `second` of different dtypes. */
fy_status_t fy__check_same_dtype(const fy_op_info_t *info, const fy_launch_t *launch, int first,
                                 int second);
/* Refuses an axis outside 0 .. rank-1. */
fy_status_t fy__check_axis(const fy_op_info_t *info, const fy_desc_t *src, int32_t axis);
/* Is `value` integral and within what an integer dtype (bool: 0 and 1) can hold? true for float
 * dtypes. */
bool fy__integer_holds(int32_t dtype, double value);

#endif
