/* What the typed calls share: argument checks that name the argument, and axes counted from the
 * end.
 * Not here: anything a shape rule or the dispatcher checks anyway. */
#ifndef FERRY_OPS_TYPED_TYPED_H_
#define FERRY_OPS_TYPED_TYPED_H_

#include <ferry/ops.h>

#include "ops/dispatch.h"
#include "runtime/base/fail.h"

/* Refuses a NULL `argument` of the call `call`. */
#define FY__REQUIRE(call, argument)                                           \
    do {                                                                      \
        if (FY_UNLIKELY(!(argument)))                                         \
            return FY_FAIL(INVALID_ARGUMENT, call ": " #argument " is NULL"); \
    } while (0)
/* The same for an out parameter, which is set to NULL. */
#define FY__REQUIRE_OUT(call, out) \
    do {                           \
        FY__REQUIRE(call, out);    \
        *(out) = NULL;             \
    } while (0)

/* The axis of `src` that `axis` (negative counts from the end) means. src is not NULL. */
fy_status_t fy__typed_axis(const char *call, const fy_tensor_t *src, int axis, int32_t *out_axis);

/* The mask of `naxes` axes; 0 axes: all, mask 0. src is not NULL. */
fy_status_t fy__typed_axes(const char *call, const fy_tensor_t *src, int naxes, const int *axes,
                           uint32_t *out_mask);

/* The attributes of a fill with `value`, checked against `dtype`. */
fy_status_t fy__typed_fill_attrs(const char *call, fy_dtype_t dtype, double value,
                                 fy_fill_attrs_t *out_attrs);

/* NULL stands for the defaults of the op's row. */
static inline const void *fy__typed_attrs(fy_op_t op, const void *attrs)
{
    return attrs ? attrs : fy__op_rows[op].default_attrs;
}

/* Runs `op`, whose `ndst` results are new, 3 at most: result i is *outs[i]. Only the first `needed`
 * of `outs` must not be NULL. */
fy_status_t fy__typed_results(fy_op_t op, size_t nsrc, const fy_tensor_t *const *src,
                              const void *attrs, size_t needed, size_t ndst,
                              fy_tensor_t **const *outs);

/* *out = result; if the caller does not want it (NULL), its handle is destroyed. */
static inline void fy__typed_give(fy_tensor_t **out, fy_tensor_t *result)
{
    if (out)
        *out = result;
    else
        fy_tensor_destroy(result);
}

#endif
