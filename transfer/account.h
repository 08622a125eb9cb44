/* Records every submitted transfer in the ledger, in guards, and in the event file if a recording
 * runs. Not here: wire bytes and the number of copies, which the executor reports itself
 * (registry.c). */
#ifndef FERRY_TRANSFER_ACCOUNT_H_
#define FERRY_TRANSFER_ACCOUNT_H_

#include <ferry/ledger.h>
#include <ferry/transfer.h>

#include "runtime/tensor/storage.h"
#include "runtime/thread/thread.h"

typedef struct fy__transfer_record {
    int direction; /* FY__UPLOAD, ... */
    fy_path_t path;
    const fy_device_t *device, *other; /* other: the second device of a peer transfer */
    const fy__storage_t *dst, *src;    /* NULL: a file, or memory that is not yet a tensor's */
    const fy_tensor_t *dst_tensor, *src_tensor; /* for their names; NULL: unknown */
    uint64_t nbytes, blocked_ns;
    fy__point_t point;  /* 0: done */
    const char *site;   /* options->site */
    const void *caller; /* return address of the public call, if there is no site */
    int contract, priority;
} fy__transfer_record_t;

void fy__transfer_note(fy__thread_t *thread, const fy__transfer_record_t *record);

#endif
