/* The steps of an upload, for calls that make many: refusals, the transfer, the results. Next:
 * upload.c. */
#ifndef FERRY_TRANSFER_UPLOAD_H_
#define FERRY_TRANSFER_UPLOAD_H_

#include "transfer/move.h"

/* Whether src may be uploaded to `device` under this contract. `what` names the call. */
fy_status_t fy__upload_check_source(const char *what, const fy_tensor_t *src,
                                    const fy_device_t *device, fy_host_contract_t contract);
/* Checks the dtypes of an upload of src into dst: DTYPE_MISMATCH if they differ without
 * options->convert. */
fy_status_t fy__upload_check_dtypes(const char *what, const fy_tensor_t *dst,
                                    const fy_tensor_t *src, const fy_transfer_options_t *options);
/* Whether dst may be overwritten with src. */
fy_status_t fy__upload_check_into(const char *what, const fy_tensor_t *dst, const fy_tensor_t *src);
/* Sends move->src to move->dst, of equal shapes; counts waits in it. *out_changed: it failed, but
 * some of dst's bytes may have changed. Adds the faults of its copies to *taint (may be NULL). */
fy_status_t fy__upload_run(fy__move_t *move, bool *out_changed, fy__taint_t *taint);
/* Marks these host bytes as borrowed by the last upload in the storage's hazard. */
void fy__upload_borrow(fy__storage_t *storage);
/* After everything was submitted into dst: clears the faults of earlier transfers if all bytes are
 * new. Adds the faults of the copies to dst and to the ticket of its last write. */
void fy__upload_set_faults(fy_tensor_t *dst, const fy__taint_t *taint);
/* It failed half way with the error in the record: poisons dst. */
void fy__upload_poison(fy_tensor_t *dst, fy_status_t status);
/* dst's bytes are submitted: a new version; if all bytes are new, clears the old faults. */
void fy__upload_done(fy_tensor_t *dst);
/* The path of an upload that is not packed. */
fy_path_t fy__upload_path(const fy_device_t *device, fy_host_contract_t contract);

/* ---- peer.c ---- */

/* Resolves the faults of src before its bytes are sent to another device: faults are numbered by
 * device. May wait; adds that time to *blocked_ns. Fails with the fault that poisoned src. */
fy_status_t fy__peer_resolve(const char *what, const fy_tensor_t *src, uint64_t *blocked_ns);

#endif
