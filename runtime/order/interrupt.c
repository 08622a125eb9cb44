/* Waits that block, in pieces between which the program's function may end them. */
#include "runtime/order/interrupt.h"

#include <ferry/stream.h>

#include "runtime/base/fail.h"
#include "runtime/thread/thread.h"

void fy_interrupt_set(fy_interrupt_fn fn, void *user)
{
    fy__thread_t *thread = fy__thread();
    if (!thread) return;
    thread->interrupt = fn;
    thread->interrupt_user = user;
}

/* Does the program's function end this wait? Only waits that the program requested: after others,
 * such as those for a free slot, a call would be half done. */
bool fy__interrupt_may_end(const fy_device_t *device, fy__wait_site_t site)
{
    const fy__thread_t *thread = fy__thread();
    return thread && thread->interrupt && !device->backend->clock &&
           (site == FY__WAIT_TICKET || site == FY__WAIT_DOWNLOAD_ARRIVE ||
            (site == FY__WAIT_DRAIN && thread->in_device_wait));
}

fy_status_t fy__interrupt_ask(const fy_device_t *device)
{
    const fy__thread_t *thread = fy__thread();
    return thread->interrupt(thread->interrupt_user)
               ? FY_FAIL(CANCELLED,
                         "the wait for %s was interrupted by the function of fy_interrupt_set; "
                         "the request goes on\n  Wait again, or drop its results",
                         device->spec)
               : FY_STATUS_OK;
}

fy_status_t fy__event_block(fy_device_t *device, void *event, uint64_t timeout_ns,
                            fy__wait_site_t site)
{
    if (!fy__interrupt_may_end(device, site))
        return device->backend->event_sync(device->dev, event, timeout_ns);
    for (uint64_t left_ns = timeout_ns;;) {
        const uint64_t slice_ns = left_ns < FY__INTERRUPT_NS ? left_ns : FY__INTERRUPT_NS;
        const fy_status_t status = device->backend->event_sync(device->dev, event, slice_ns);
        if (left_ns != FY_FOREVER) left_ns -= slice_ns;
        if (status != FY_STATUS_TIMEOUT || !left_ns) return status;
        FY_TRY(fy__interrupt_ask(device));
    }
}
