/* The eight calls: products, sums, an activation, a row that repeats. */
#include "tools/bench/chain_ops.h"

fy_status_t chain_of_eight(fy_tensor_t *x, fy_tensor_t *bias, fy_tensor_t **out_y)
{
    fy_tensor_t *t;
    const fy_scope_t scope = fy_scope_begin("chain");
    fy_status_t status = fy_affine(x, 1.5, 0.25, &t);
    if (status == FY_STATUS_OK) status = fy_add(t, bias, &t);
    if (status == FY_STATUS_OK) status = fy_relu(t, &t);
    if (status == FY_STATUS_OK) status = fy_mul(t, x, &t);
    if (status == FY_STATUS_OK) status = fy_affine(t, 0.5, -1, &t);
    if (status == FY_STATUS_OK) status = fy_abs(t, &t);
    if (status == FY_STATUS_OK) status = fy_sub(t, bias, &t);
    if (status == FY_STATUS_OK) status = fy_add(t, x, out_y);
    fy_scope_end(scope, status == FY_STATUS_OK, out_y);
    return status;
}
