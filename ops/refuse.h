/* Refusals that are the same for every op: operands on different devices, a given dst that does not
 * fit the result.
 * Each returns OK or fails with a text that has the numbers and the call that would fix it. */
#ifndef FERRY_OPS_REFUSE_H_
#define FERRY_OPS_REFUSE_H_

#include <stdbool.h>

#include <ferry/op.h>

/* Names the operand that must be given and is NULL, or whose handle was destroyed. */
fy_status_t fy__refuse_null(const char *name, size_t nsrc, const fy_tensor_t *const *src);
/* A rule refused the sources: adds the names of those tensors that have one to its text. Returns
 * `status`. */
fy_status_t fy__refuse_named(fy_status_t status, size_t nsrc, const fy_tensor_t *const *src);
/* Operands live on more than one device. The text names the first operand that is not on the device
 * of most, the first operand there, and the call that moves the former, with its bytes; if no
 * device has most operands, the calls for either. */
fy_status_t fy__refuse_mixed(const char *name, size_t nsrc, const fy_tensor_t *const *src,
                             size_t ndst, fy_tensor_t *const *dst);
/* The given dst has another shape or dtype than the result. */
fy_status_t fy__refuse_unlike(const char *name, unsigned index, const fy_tensor_t *dst,
                              const fy_desc_t *result);
/* The given dst repeats elements (a broadcast view). */
fy_status_t fy__refuse_unwritable(const char *name, unsigned index, const fy_tensor_t *dst);
/* The given dst[index] overlaps a source or a dst before it; if `exactly`, it may be the very same
 * window as a source. */
fy_status_t fy__refuse_overlap(const char *name, unsigned index, fy_tensor_t *const *dst,
                               size_t nsrc, const fy_tensor_t *const *src, bool exactly);
/* accumulate names a dst that is not given, not float, or an op that cannot. */
fy_status_t fy__refuse_accumulate(const fy_op_info_t *info, uint32_t accumulate, size_t ndst,
                                  fy_tensor_t *const *dst);

#endif
