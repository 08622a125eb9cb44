/* Blocking on a native event of a backend. Not here: which event, and what it covers (stream.c). */
#ifndef FERRY_RUNTIME_INTERRUPT_H_
#define FERRY_RUNTIME_INTERRUPT_H_

#include "runtime/device/device.h"
#include "runtime/thread/wait_site.h"

/* As the backend's event_sync; CANCELLED if the function of fy_interrupt_set ends the wait. */
fy_status_t fy__event_block(fy_device_t *device, void *event, uint64_t timeout_ns,
                            fy__wait_site_t site);

/* For waits without an event: whether this thread has a function that may end the wait, and a call
 * of it every FY__INTERRUPT_NS: CANCELLED if it ends the wait. No lock may be held. */
enum { FY__INTERRUPT_NS = 50000000 };
bool fy__interrupt_may_end(const fy_device_t *device, fy__wait_site_t site);
fy_status_t fy__interrupt_ask(const fy_device_t *device);

#endif
