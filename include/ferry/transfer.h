/* Transfers: the only calls that move tensor bytes between devices. Each is counted in the ledger and checked by guards. */
#ifndef FERRY_TRANSFER_H_
#define FERRY_TRANSFER_H_

#include <ferry/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* When is `src` yours again? COPY: on return; it may block for ring space, never for compute (and goes
 * through the ring even if src is pinned, since src must be free). BORROW: at the ticket; until then
 * writing to src through Ferry is BUSY, and src must be pinned (fy_tensor_create_pinned, or the result of a download). */
typedef enum fy_host_contract { FY_HOST_COPY, FY_HOST_BORROW } fy_host_contract_t;

#define FY_DTYPE_SAME FY_DTYPE_COUNT
typedef struct fy_transfer_options {
    size_t struct_size;
    fy_host_contract_t contract; /* uploads */
    fy_dtype_t dtype;            /* of the result; FY_DTYPE_SAME: as src. Converted on the device: after an upload, before a download */
} fy_transfer_options_t;
#define FY_TRANSFER_OPTIONS_INIT                                   \
    {                                                              \
        sizeof(fy_transfer_options_t), FY_HOST_COPY, FY_DTYPE_SAME \
    }

/* New tensor on `device` with the elements of host tensor `src` (any strides; the result is dense). options may be NULL.
 * Completion: ops on *out_dst wait by themselves, on the device. Host code that wants to wait uses fy_tensor_ticket.
 * To `host` it is a counted host copy. Fails: DEVICE_MISMATCH (src not on host), OUT_OF_MEMORY, PINNED_LIMIT, REFUSED_BY_GUARD,
 * INVALID_ARGUMENT (BORROW of memory that is not pinned, or not contiguous). */
FY_API_STATUS fy_tensor_upload(const fy_tensor_t *src, fy_device_t *device, const fy_transfer_options_t *options, fy_tensor_t **out_dst);
/* The same into an existing tensor or view of the same shape: no allocation in a steady loop. options->dtype must be SAME; the
 * dtypes may differ (converted on the device). out_ticket may be NULL with COPY. Fails: as above, SHAPE_MISMATCH. */
FY_API_STATUS fy_tensor_upload_into(fy_tensor_t *dst, const fy_tensor_t *src, const fy_transfer_options_t *options,
                                    fy_ticket_t *out_ticket);

/* Asks for the bytes of `src` as they are at this point of its stream. Returns at once; there is no host tensor until the
 * download is waited for, so nobody can read early. Of a host tensor it is a counted host copy.
 * Fails: OUT_OF_MEMORY, PINNED_LIMIT, REFUSED_BY_GUARD. */
FY_API_STATUS fy_tensor_download(const fy_tensor_t *src, const fy_transfer_options_t *options, fy_download_t **out_download);
/* Its point on the download engine's timeline, for polling. */
FY_API fy_ticket_t fy_download_ticket(const fy_download_t *download);
/* Blocks. On OK the download is used up and *out_host is an ordinary host tensor, dense, in pinned memory; on TIMEOUT or
 * REFUSED_BY_GUARD it stands; on any other failure it is used up. Fails: TIMEOUT, and with the fault of whatever made the bytes (BAD_VALUE, DEVICE_LOST). */
FY_API_STATUS fy_download_wait(fy_download_t *download, uint64_t timeout_ns, fy_tensor_t **out_host);
/* Blocks. The same for one element of any dtype. Fails: SHAPE_MISMATCH (not one element; the download stands). */
FY_API_STATUS fy_download_wait_f64(fy_download_t *download, uint64_t timeout_ns, double *out_value);
/* Gives up a download that was not waited for; the bytes may still cross, and stay counted. NULL is ignored. */
FY_API void fy_download_destroy(fy_download_t *download);
/* Takes the handle out of its scope: it is yours to wait for or destroy. */
FY_API void fy_download_keep(fy_download_t *download);

/* The ticket of the last write to `tensor`'s bytes: {0, 0} on the host, or when it is known to be done. */
FY_API fy_ticket_t fy_tensor_ticket(const fy_tensor_t *tensor);

#ifdef __cplusplus
}
#endif
#endif
