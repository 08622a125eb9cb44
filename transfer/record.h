/* An upload inside a recording. Next: runtime/record/recording.h. */
#ifndef FERRY_TRANSFER_RECORD_H_
#define FERRY_TRANSFER_RECORD_H_

#include <ferry/transfer.h>

#include "runtime/record/recording.h"
#include "runtime/tensor/tensor.h"

/* fy_tensor_upload_into on the device that this thread records on: each replay copies src's bytes
 * at that time. `caller`: return address of the public call. A failure also fails the recording. */
fy_status_t fy__upload_record(fy__thread_t *thread, fy__recording_t *recording, fy_tensor_t *dst,
                              const fy_tensor_t *src, const fy_transfer_options_t *options,
                              const void *caller);

#endif
