/* The two kernels of transfers: cast and strided copy, submitted to the backend's launch slot. They
 * are part of a transfer and not light requests of the user, so the ledger does not count them as
 * requests. */
#ifndef FERRY_TRANSFER_CONVERT_H_
#define FERRY_TRANSFER_CONVERT_H_

#include "runtime/order/stream.h"
#include "runtime/tensor/tensor.h"

/* One end of a conversion: a tensor's shape applied to given bytes. */
typedef struct fy__end {
    fy__storage_t *storage;
    fy_desc_t desc;
    bool contiguous;
} fy__end_t;

/* The tensor itself. */
void fy__end_of(const fy_tensor_t *tensor, fy__end_t *out_end);
/* The same shape, dense, as `dtype`, at the beginning of `storage`. */
void fy__end_dense(const fy_tensor_t *shape, fy_dtype_t dtype, fy__storage_t *storage,
                   fy__end_t *out_end);
/* dst = src, in dst's dtype and layout, on `stream` (NULL on synchronous devices). Waits by both
 * hazards. nelem > 0. */
fy_status_t fy__convert(fy_device_t *device, fy_stream_t *stream, const fy__end_t *dst,
                        const fy__end_t *src, uint64_t nelem);

/* Only the launch, for callers that have ordered it: counts no point and uses no hazard. */
fy_status_t fy__convert_launch(fy_device_t *device, fy_stream_t *stream, const fy__end_t *dst,
                               const fy__end_t *src, uint64_t nelem);

#endif
