/* Shape rules of scaled_dot_product_attention and of its gradient.
 * Next: typed/product.c, backends/kernels/attention.c. */
#include "ops/shape.h"

#include "opset/formulas/attention.h"
#include "ops/format.h"
#include "runtime/base/fail.h"

/* q [B, T, H, D] (src `q`), k and v [B, S, H, D] (the two behind it). */
static fy_status_t check_heads(const fy_op_info_t *info, const fy_launch_t *launch, int q)
{
    const fy_desc_t *a = &launch->src[q], *k = a + 1, *v = a + 2;
    FY_TRY(fy__check_dtype(info, FY__SRC, q, a, info->dtypes));
    for (int i = 0; i < 3; i++) FY_TRY(fy__check_same_dtype(info, launch, q, q + i));
    bool fits = a->rank == 4 && k->rank == 4 && fy__same_dims(k, v);
    for (int axis = 0; fits && axis < 4; axis++) fits = axis == 1 || a->dims[axis] == k->dims[axis];
    if (!fits)
        return FY_FAIL(SHAPE_MISMATCH,
                       "%s: q (src%d) is %s, k is %s, v is %s: it takes q [B, T, H, D], k and v "
                       "[B, S, H, D]",
                       info->name, q, FY__DESC_TEXT(a), FY__DESC_TEXT(k), FY__DESC_TEXT(v));
    if (a->dims[3] < 1 || a->dims[3] > FY__ATTENTION_WIDTH)
        return FY_FAIL(SHAPE_MISMATCH, "%s: q (src%d) is %s; a head has 1 .. %d elements (D)",
                       info->name, q, FY__DESC_TEXT(a), FY__ATTENTION_WIDTH);
    return FY_STATUS_OK;
}

/* The mask (src `m`, if it is given) broadcasts to [B, H, T, S]. */
static fy_status_t check_mask(const fy_op_info_t *info, const fy_launch_t *launch, int q, int m)
{
    if (launch->nsrc <= m) return FY_STATUS_OK;
    const fy_desc_t *mask = &launch->src[m], *a = &launch->src[q], *k = a + 1;
    const int64_t full[4] = { a->dims[0], a->dims[2], a->dims[1], k->dims[1] };
    FY_TRY(fy__check_dtype(info, FY__SRC, m, mask, FY_DTYPE_BIT(FY_DTYPE_BOOL)));
    bool fits = mask->rank >= 2 && mask->rank <= 4;
    for (int i = 1; fits && i <= mask->rank; i++) {
        const int64_t dim = mask->dims[mask->rank - i];
        fits = dim == 1 || dim == full[4 - i];
    }
    if (fits) return FY_STATUS_OK;
    return FY_FAIL(SHAPE_MISMATCH,
                   "%s: the mask (src%d) is %s; with q %s and k %s it must broadcast to [B, H, T, "
                   "S] and have rank 2 to 4",
                   info->name, m, FY__DESC_TEXT(mask), FY__DESC_TEXT(a), FY__DESC_TEXT(k));
}

/* The log-sum-exp of the scores of `q`: [B, H, T], f64 with f64, else f32. */
static void sums_of(const fy_desc_t *q, fy_desc_t *out)
{
    out->dtype = q->dtype == FY_DTYPE_F64 ? FY_DTYPE_F64 : FY_DTYPE_F32;
    out->rank = 3;
    out->dims[0] = q->dims[0];
    out->dims[1] = q->dims[2];
    out->dims[2] = q->dims[1];
}

fy_status_t fy__shape_attention(const fy_op_info_t *info, fy_launch_t *launch)
{
    FY_TRY(check_heads(info, launch, 0));
    FY_TRY(check_mask(info, launch, 0, 3));
    fy__shape_like(&launch->dst[0], &launch->src[0]);
    sums_of(&launch->src[0], &launch->dst[1]);
    return FY_STATUS_OK;
}

fy_status_t fy__shape_attention_backward(const fy_op_info_t *info, fy_launch_t *launch)
{
    const fy_desc_t *dy = &launch->src[0], *q = &launch->src[1], *y = &launch->src[4],
                    *lse = &launch->src[5];
    fy_desc_t sums = { 0 };
    FY_TRY(check_heads(info, launch, 1));
    FY_TRY(check_mask(info, launch, 1, 6));
    FY_TRY(fy__check_same_dtype(info, launch, 1, 0));
    FY_TRY(fy__check_same_dtype(info, launch, 1, 4));
    if (!fy__same_dims(dy, q) || !fy__same_dims(y, q))
        return FY_FAIL(SHAPE_MISMATCH,
                       "%s: dy (src0) is %s, y (src4) is %s: both have q's shape %s", info->name,
                       FY__DESC_TEXT(dy), FY__DESC_TEXT(y), FY__DESC_TEXT(q));
    sums_of(q, &sums);
    FY_TRY(
        fy__check_dtype(info, FY__SRC, 5, lse, FY_DTYPE_BIT(sums.dtype) | FY_DTYPE_BIT(q->dtype)));
    if (!fy__same_dims(lse, &sums))
        return FY_FAIL(SHAPE_MISMATCH, "%s: the log-sum-exp (src5) is %s, of q %s it is %s",
                       info->name, FY__DESC_TEXT(lse), FY__DESC_TEXT(q), FY__DESC_TEXT(&sums));
    for (int i = 0; i < 3; i++) fy__shape_like(&launch->dst[i], &launch->src[1 + i]);
    return FY_STATUS_OK;
}
