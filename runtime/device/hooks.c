/* Calls the program's allocator. See hooks.h. */
#include "runtime/device/hooks.h"

#include "runtime/base/fail.h"

typedef unsigned long long ull; /* for printf */

enum { PINNED_ALIGNMENT = 64 };

/* ---- options ---- */

static fy_status_t check_pair(bool has_alloc, bool has_free, const char *what)
{
    if (has_alloc == has_free) return FY_STATUS_OK;
    return FY_FAIL(INVALID_ARGUMENT,
                   "device_open: options->%s_%s is set and options->%s_%s is NULL; set both, or "
                   "neither",
                   has_alloc ? "alloc" : "free", what, has_alloc ? "free" : "alloc", what);
}

fy_status_t fy__hooks_check(const fy_device_options_t *options)
{
    FY_TRY(check_pair(options->alloc_device, options->free_device, "device"));
    return check_pair(options->alloc_pinned, options->free_pinned, "pinned");
}

fy_status_t fy__hooks_match(const fy_device_t *device, const fy_device_options_t *options)
{
    const fy_device_options_t *own = &device->hooks;
    if (!fy__hooks_any(options) ||
        (options->user == own->user && options->alloc_device == own->alloc_device &&
         options->free_device == own->free_device && options->alloc_pinned == own->alloc_pinned &&
         options->free_pinned == own->free_pinned))
        return FY_STATUS_OK;
    return FY_FAIL(
        INVALID_ARGUMENT,
        "device_open: %s is open with %s; the allocator of a device is that of its first "
        "open\n  Close it and destroy its tensors first, or pass no options",
        device->spec, fy__hooks_any(own) ? "another allocator" : "no allocator of yours");
}

/* ---- calls ---- */

static fy_status_t fail_empty(const fy_device_t *device, uint64_t nbytes, const char *what,
                              fy__backing_t *backing)
{
    backing->is_refused = false;
    backing->hook_refused = true;
    return FY_FAIL(OUT_OF_MEMORY, "%s: the program's allocator returned NULL for %llu bytes of %s",
                   device->spec, (ull)nbytes, what);
}

static fy_status_t fail_misaligned(const fy_device_t *device, const void *address, uint64_t nbytes,
                                   uint64_t alignment)
{
    return FY_FAIL(INVALID_ARGUMENT,
                   "%s: the program's allocator returned %p for %llu bytes; the address must be a "
                   "multiple of %llu",
                   device->spec, address, (ull)nbytes, (ull)alignment);
}

fy_status_t fy__hook_device_alloc(fy_device_t *device, uint64_t nbytes, void **out_address)
{
    const fy_device_options_t *hooks = &device->hooks;
    const uint64_t alignment = device->info.alignment;
    fy_status_t status = FY_STATUS_OK;
    *out_address = NULL;
    if (fy__device_is_lost(device)) return fy__device_lost_error(device);
    void *address = hooks->alloc_device(hooks->user, nbytes, alignment);
    if (!address) return fail_empty(device, nbytes, "device memory", &device->backing);
    device->backing.is_refused = device->backing.hook_refused = false;
    if ((uintptr_t)address & (alignment - 1))
        status = fail_misaligned(device, address, nbytes, alignment);
    else if (device->backend->adopt)
        status = fy__device_check(device, device->backend->adopt(device->dev, address, nbytes));
    if (status == FY_STATUS_OK)
        *out_address = address;
    else
        hooks->free_device(hooks->user, address, nbytes);
    return status;
}

void fy__hook_device_free(fy_device_t *device, void *address, uint64_t nbytes)
{
    const fy_device_options_t *hooks = &device->hooks;
    if (device->backend->disown) device->backend->disown(device->dev, address, nbytes);
    hooks->free_device(hooks->user, address, nbytes);
}

fy_status_t fy__hook_pinned_alloc(fy_device_t *device, uint64_t nbytes, fy__backing_t *backing,
                                  void **out_address)
{
    const fy_device_options_t *hooks = &device->hooks;
    void *address = hooks->alloc_pinned(hooks->user, nbytes, PINNED_ALIGNMENT);
    *out_address = NULL;
    if (!address) return fail_empty(device, nbytes, "page-locked memory", backing);
    backing->is_refused = backing->hook_refused = false;
    if ((uintptr_t)address & (PINNED_ALIGNMENT - 1)) {
        hooks->free_pinned(hooks->user, address, nbytes);
        return fail_misaligned(device, address, nbytes, PINNED_ALIGNMENT);
    }
    *out_address = address;
    return FY_STATUS_OK;
}

void fy__hook_pinned_free(const fy_device_t *device, void *address, uint64_t nbytes)
{
    const fy_device_options_t *hooks = &device->hooks;
    if (atomic_load(&device->lost) != FY__LOST_BY_FORK)
        hooks->free_pinned(hooks->user, address, nbytes);
}
