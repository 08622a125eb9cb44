/* The two kernels that transfers need: cast and strided copy, asked for at the backend's launch
 * slot. They are part of a transfer, not light requests of the user's, so the ledger does not count
 * them as such. */
#ifndef FERRY_TRANSFER_CONVERT_H_
#define FERRY_TRANSFER_CONVERT_H_

#include "runtime/order/stream.h"
#include "runtime/tensor/tensor.h"

/* One end of a conversion: a tensor's shape laid on given bytes. */
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
/* dst = src, converted and laid out as dst says, on `stream` (NULL on synchronous devices); orders
 * itself by both hazards. nelem > 0. */
fy_status_t fy__convert(fy_device_t *device, fy_stream_t *stream, const fy__end_t *dst,
                        const fy__end_t *src, uint64_t nelem);

/* The launch alone, for who has ordered it already: counts no point and touches no hazard. */
fy_status_t fy__convert_launch(fy_device_t *device, fy_stream_t *stream, const fy__end_t *dst,
                               const fy__end_t *src, uint64_t nelem);

#endif
