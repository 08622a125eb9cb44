/* One copy to an engine's native stream: the fault flag it may need, the copy, its point. Not here: who may go when (queue.h). */
#ifndef FERRY_TRANSFER_SUBMIT_H_
#define FERRY_TRANSFER_SUBMIT_H_

#include "runtime/stream.h"

/* Submits `copy`; `what` names it in faults ("upload"). *out_point: where it will be done. *out_request: the number of its fault flag, 0 if
 * the device's copies cannot fail alone; whoever depends on the bytes must suspect it (fy__storage_late_add). On failure both are 0. */
fy_status_t fy__copy_submit(fy_device_t *device, fy_stream_t *stream, const char *what, fy_copy_t copy, fy__point_t *out_point,
                            uint64_t *out_request);

#endif
