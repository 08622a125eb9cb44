/* Calls under fy_autocast_set, from the dispatcher. Next: ops.def, word `class`. */
#ifndef FERRY_OPS_AUTOCAST_H_
#define FERRY_OPS_AUTOCAST_H_

#include "ops/dispatch.h"
#include "runtime/record/recording.h"
#include "runtime/thread/thread.h"

/* fy__dispatch while thread->autocast is set: casts sources as the op's class says, then calls. */
fy_status_t fy__autocast_dispatch(fy__thread_t *thread, const fy__op_row_t *row, size_t nsrc,
                                  const fy_tensor_t *const *src, const void *attrs,
                                  uint32_t accumulate, size_t ndst, fy_tensor_t **dst);

/* Makes it current: a light request, or none. */
fy_status_t fy__copy_use(fy__thread_t *thread, const fy__copy_t *copy);

#endif
