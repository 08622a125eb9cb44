/* One upload in its steps, for calls that make many: refusals, the transfer itself, what stays
 * behind. Next: upload.c. */
#ifndef FERRY_TRANSFER_UPLOAD_H_
#define FERRY_TRANSFER_UPLOAD_H_

#include <ferry/ledger.h>
#include <ferry/transfer.h>

#include "runtime/tensor/tensor.h"

/* May src be uploaded to `device` under this contract? `what` names the call. */
fy_status_t fy__upload_check_source(const char *what, const fy_tensor_t *src,
                                    const fy_device_t *device, fy_host_contract_t contract);
/* May `src` go into `dst`, as far as their dtypes go? DTYPE_MISMATCH without options->convert. */
fy_status_t fy__upload_check_dtypes(const char *what, const fy_tensor_t *dst,
                                    const fy_tensor_t *src, const fy_transfer_options_t *options);
/* May dst be overwritten with src? */
fy_status_t fy__upload_check_into(const char *what, const fy_tensor_t *dst, const fy_tensor_t *src);
/* dst lives on `device`, src on the host, shapes are equal. *out_changed: it failed, but some of
 * dst's bytes may have changed. Adds to *taint (may be NULL) what may turn out about its
 * copies. */
fy_status_t fy__upload_run(fy__thread_t *thread, fy_device_t *device, fy_tensor_t *dst,
                           const fy_tensor_t *src, const fy_transfer_options_t *options,
                           uint64_t *blocked_ns, bool *out_changed, fy__taint_t *taint);
/* These host bytes are read in place from now on, by the upload that was just noted in their
 * hazard. */
void fy__upload_borrow(fy__storage_t *storage);
/* Behind what was submitted into dst: it forgets what earlier transfers left, if all of it is new,
 * and suffers from what may turn out about the copies, and so does the ticket of what wrote dst
 * last: all of it was submitted. */
void fy__upload_left(fy_tensor_t *dst, const fy__taint_t *taint);
/* It failed half way with what the record says: nobody may take dst's bytes for good. */
void fy__upload_poison(fy_tensor_t *dst, fy_status_t status);
/* dst's bytes are on their way: a new version, and if all of them are new, no faults of the old
 * ones. */
void fy__upload_done(fy_tensor_t *dst);
/* How an upload that is not packed goes. */
fy_path_t fy__upload_path(const fy_device_t *device, fy_host_contract_t contract);
/* Writes it down. `caller`: return address of the public call. */
void fy__upload_note(fy__thread_t *thread, const fy_tensor_t *dst, const fy_tensor_t *src,
                     const fy_transfer_options_t *options, fy_path_t path, uint64_t blocked_ns,
                     const void *caller);

#endif
