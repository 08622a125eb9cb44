/* One transfer, and its record in the ledger, in guards, and in the event file if a recording
 * runs. Not here: wire bytes and the number of copies, which the executor reports itself
 * (registry.c). */
#ifndef FERRY_TRANSFER_ACCOUNT_H_
#define FERRY_TRANSFER_ACCOUNT_H_

#include <ferry/ledger.h>
#include <ferry/transfer.h>

#include "runtime/tensor/tensor.h"
#include "runtime/thread/thread.h"

/* What a public call asks for, and what became of it. submit.h has the steps. */
typedef struct fy__move {
    const char *what;   /* the public call */
    const void *caller; /* its return address */
    fy__thread_t *thread;
    int direction; /* FY__UPLOAD, ... */
    fy_path_t path;
    fy_device_t *device, *other; /* other: the second device of a peer transfer */
    fy_tensor_t *dst;            /* NULL: a file, or memory that is not yet a tensor's */
    const fy_tensor_t *src;
    const fy__storage_t *to, *from; /* the memory where there is no tensor; NULL: a file */
    fy_transfer_options_t options;
    fy_dtype_t dtype; /* of the result */
    uint64_t nbytes, blocked_ns;
    fy__point_t point; /* 0: done. The note of an upload into `dst` sets it to dst's last write */
} fy__move_t;

void fy__move_note(fy__move_t *move);

#endif
