/* The op table's inside: what optable.c, register.c and call.c share. The public side is
 * fy_op_find, fy_op_get, fy_op_count.
 * Not here: rows themselves (opset/ops.def), rules (shape.h, cost.h). */
#ifndef FERRY_OPS_OPTABLE_H_
#define FERRY_OPS_OPTABLE_H_

#include "ops/dispatch.h"

#define FY__OPS_REGISTERED 1024 /* most ops that fy_op_register takes */

/* The registered op number `index` (0, 1, ...), NULL past the last one. Lock-free. */
const fy__op_row_t *fy__op_registered(uint32_t index);
uint32_t fy__op_registered_count(void);

/* Bytes of an attribute; 0 for an undefined type. */
size_t fy__attr_nbytes(fy_attr_type_t type);

/* Makes `op` findable by `name`; the row is already visible. Callers hold the registration lock. */
void fy__op_index_add(const char *name, fy_op_t op);

#endif
