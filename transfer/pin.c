/* Page-locks memory in place, so that it can be uploaded and downloaded without the ring. Not here:
 * the locking and its end (runtime/tensor/storage.c); memory that is page-locked from the start
 * (fy_tensor_create_pinned). */
#include <ferry/transfer.h>

#include "runtime/base/fail.h"
#include "runtime/tensor/tensor.h"

fy_status_t fy_tensor_pin(fy_tensor_t *tensor, fy_device_t *device)
{
    fy__thread_t *thread = fy__thread();
    char text[128];
    if (!thread) return FY_STATUS_OUT_OF_MEMORY;
    if (!tensor || !device)
        return FY_FAIL(INVALID_ARGUMENT, "tensor_pin: %s is NULL", tensor ? "device" : "tensor");
    if (fy__tensor_is_gone(tensor)) return fy__refuse_gone("tensor_pin", "tensor");
    if (fy__device_is_lost(device)) return fy__device_lost_error(device);
    fy__storage_t *storage = tensor->storage;
    if (!storage->device->is_host)
        return FY_FAIL(DEVICE_MISMATCH,
                       "tensor_pin: %s is on %s; only host memory can be page-locked",
                       fy__tensor_format(tensor, text, sizeof text), storage->device->spec);
    /* nothing to lock, or no device that needs it */
    if (device->synchronous || !storage->nbytes) return FY_STATUS_OK;
    if (storage->pinned && storage->peer == device) return FY_STATUS_OK;
    if (storage->pinned)
        return FY_FAIL(BUSY,
                       "tensor_pin: %s is page-locked for %s already; memory serves one device\n  "
                       "Make a separate tensor for %s",
                       fy__tensor_format(tensor, text, sizeof text), storage->peer->spec,
                       device->spec);
    return fy__storage_pin(thread, storage, device);
}
