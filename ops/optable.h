/* The op table's inside: what optable.c, register.c and call.c share. The public side is
 * fy_op_find, fy_op_get, fy_op_count.
 * Not here: rows themselves (opset/ops.def), rules (shape.h, cost.h). */
#ifndef FERRY_OPS_OPTABLE_H_
#define FERRY_OPS_OPTABLE_H_

#include "ops/dispatch.h"

#define FY__OPS_REGISTERED 1024 /* most ops that fy_op_register takes */
enum { FY__OP_DSTS_MAX = 8 };   /* results of an op */

/* The registered op number `index` (0, 1, ...), NULL past the last one. Lock-free. */
const fy__op_row_t *fy__op_registered(uint32_t index);
uint32_t fy__op_registered_count(void);

/* Bytes of an attribute; 0 for an undefined type. */
size_t fy__attr_nbytes(fy_attr_type_t type);
/* Has the field a range? ALL in opset/attrs.def has none. */
bool fy__attr_has_range(const fy_attr_field_t *field);
/* Refuses the first field that is out of its range. */
fy_status_t fy__attrs_check(const fy_op_info_t *info, const void *attrs);
/* The shape rule of a row whose attributes have ranges: checks them, then calls row->rule. */
fy_status_t fy__attrs_then_rule(const fy_op_info_t *info, fy_launch_t *launch);

/* ---- call.c: what a call and a question about it check alike ---- */

/* INVALID_ARGUMENT if there is no such op. */
fy_status_t fy__op_find_row(fy_op_t op, const fy__op_row_t **out_row);
/* INVALID_ARGUMENT if the op takes another number of sources, or gives another of results. */
fy_status_t fy__op_check_counts(const fy_op_info_t *info, size_t nsrc, size_t ndst);
/* Makes *attrs the op's struct at this library's size, with an axis that is not negative: the
 * caller's, the op's defaults, or a copy in `buf`, of FY_OP_ATTRS_MAX_NBYTES. `rank` is that of
 * source 0; -1: there is none. */
fy_status_t fy__op_take_attrs(const fy__op_row_t *row, int rank, size_t nbytes, const void **attrs,
                              unsigned char *buf);

/* Makes `op` findable by `name`; the row is already visible. Callers hold the registration lock. */
void fy__op_index_add(const char *name, fy_op_t op);

#endif
