/* The program's allocator (fy_device_options_t): calls its hooks for segments of device memory and
 * of page-locked memory, and checks the results. Limits, guards and figures are the callers'.
 * Not here: the backend's own memory (wire.c), page-locking (pin.h). */
#ifndef FERRY_RUNTIME_HOOKS_H_
#define FERRY_RUNTIME_HOOKS_H_

#include "runtime/device/device.h"

/* A malformed pair is INVALID_ARGUMENT; so are other hooks than those of an open device. Options
 * without hooks are always accepted. */
fy_status_t fy__hooks_check(const fy_device_options_t *options);
fy_status_t fy__hooks_match(const fy_device_t *device, const fy_device_options_t *options);
static inline bool fy__hooks_any(const fy_device_options_t *options)
{
    return options->alloc_device || options->alloc_pinned;
}

/* Device memory, adopted by the backend. OUT_OF_MEMORY: the hook returned NULL (`backing` is set),
 * or as the backend. INVALID_ARGUMENT: the hook returned a misaligned address. On failure the hook
 * has its memory back. */
fy_status_t fy__hook_device_alloc(fy_device_t *device, uint64_t nbytes, void **out_address);
void fy__hook_device_free(fy_device_t *device, void *address, uint64_t nbytes);
/* Host memory that is not page-locked yet; fails as above. */
fy_status_t fy__hook_pinned_alloc(fy_device_t *device, uint64_t nbytes, fy__backing_t *backing,
                                  void **out_address);
void fy__hook_pinned_free(const fy_device_t *device, void *address, uint64_t nbytes);

#endif
