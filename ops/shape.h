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

/* The rules, by the names that opset/ops.def uses. */
#define ROW(number, ENUM, name, flags, dtypes, attrs, shape, ...) \
    fy_status_t fy__shape_##shape(const fy_op_info_t *info, fy_launch_t *launch);
#include "opset/ops.def"

/* Any number of sources of one dtype that the op takes; results (or the given dst) have it too.
 * Rule of registered elementwise ops. */
fy_status_t fy__shape_elementwise(const fy_op_info_t *info, fy_launch_t *launch);
/* Rewrites each source to dst[0]'s rank and dims, with stride 0 where it repeats. The shapes are
 * known to broadcast.
 * Doing it twice does nothing more. */
void fy__broadcast_sources(fy_launch_t *launch);

/* ---- what the rules share ---- */

bool fy__same_dims(const fy_desc_t *a, const fy_desc_t *b);
/* Whether src broadcasts to the shape of dst. */
bool fy__broadcasts_to(const fy_desc_t *src, const fy_desc_t *dst);
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
