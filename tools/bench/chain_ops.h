/* The chain that `ferry bench chain` and `ferry experiment speedups` time. */
#ifndef FERRY_TOOLS_CHAIN_OPS_H_
#define FERRY_TOOLS_CHAIN_OPS_H_

#include <ferry/ferry.h>

/* Eight elementwise calls on x [rows, columns] and bias [columns], in a scope "chain". */
fy_status_t chain_of_eight(fy_tensor_t *x, fy_tensor_t *bias, fy_tensor_t **out_y);

#endif
