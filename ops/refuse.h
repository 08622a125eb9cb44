/* Refusals that have nothing to do with an op's meaning: operands on different devices, a given dst that cannot take the result.
 * Each returns OK or fails with a text that says what, with numbers, and which call would fix it. */
#ifndef FERRY_OPS_REFUSE_H_
#define FERRY_OPS_REFUSE_H_

#include <stdbool.h>

#include <ferry/op.h>

/* Some operand that must be given is NULL, or a handle that is gone: says which. */
fy_status_t fy__refuse_null(const char *name, size_t nsrc, const fy_tensor_t *const *src);
/* A rule refused the sources: adds to its text what those that have names are called. Returns `status`. */
fy_status_t fy__refuse_named(fy_status_t status, size_t nsrc, const fy_tensor_t *const *src);
/* Operands live on more than one device: names the first pair that differs and what moving either would cost. */
fy_status_t fy__refuse_mixed(const char *name, size_t nsrc, const fy_tensor_t *const *src, size_t ndst, fy_tensor_t *const *dst);
/* The given dst has another shape or dtype than the result. */
fy_status_t fy__refuse_unlike(const char *name, unsigned index, const fy_tensor_t *dst, const fy_desc_t *result);
/* The given dst repeats elements (a broadcast view). */
fy_status_t fy__refuse_unwritable(const char *name, unsigned index, const fy_tensor_t *dst);
/* The given dst[index] overlaps a source or a dst before it; if `exactly`, it may be the very same window as a source. */
fy_status_t fy__refuse_overlap(const char *name, unsigned index, fy_tensor_t *const *dst, size_t nsrc, const fy_tensor_t *const *src,
                               bool exactly);
/* accumulate names a dst that is not given, not float, or an op that cannot. */
fy_status_t fy__refuse_accumulate(const fy_op_info_t *info, uint32_t accumulate, size_t ndst, fy_tensor_t *const *dst);

#endif
