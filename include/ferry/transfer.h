/* Transfers: the only calls that move tensor bytes between devices. Each is counted in the ledger
 * and checked by guards. */
#ifndef FERRY_TRANSFER_H_
#define FERRY_TRANSFER_H_

#include <ferry/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* When is `src` yours again? COPY: on return; it may block for ring space, never for compute (and
 * goes through the ring even if src is pinned, since src must be free). BORROW: at the ticket;
 * until then writing to src through Ferry is BUSY, and src must be pinned (fy_tensor_create_pinned,
 * fy_tensor_pin, or the result of a download). */
typedef enum fy_host_contract { FY_HOST_COPY, FY_HOST_BORROW } fy_host_contract_t;

#define FY_DTYPE_SAME FY_DTYPE_COUNT
typedef struct fy_transfer_options {
    size_t struct_size;
    fy_host_contract_t contract; /* uploads */
    /* of the result; FY_DTYPE_SAME: as src. Converted on the device: after an upload, before a
     * download */
    fy_dtype_t dtype;
    /* among the transfers that stand in an engine's queue the highest goes first; 0 is ordinary */
    int priority;
    /* where in the program, for the ledger's events; static; NULL: the caller's address. FY_SITE is
     * "file.c:12" */
    const char *site;
} fy_transfer_options_t;
#define FY_TRANSFER_OPTIONS_INIT                                            \
    {                                                                       \
        sizeof(fy_transfer_options_t), FY_HOST_COPY, FY_DTYPE_SAME, 0, NULL \
    }
#define FY_SITE                   FY_SITE_TEXT(__FILE__, __LINE__)
#define FY_SITE_TEXT(file, line)  FY_SITE_TEXT_(file, line)
#define FY_SITE_TEXT_(file, line) file ":" #line
/* The defaults, and where: `fy_tensor_upload(x, device,
 * &(fy_transfer_options_t)FY_TRANSFER_OPTIONS_HERE, &y)`. */
#define FY_TRANSFER_OPTIONS_HERE                                               \
    {                                                                          \
        sizeof(fy_transfer_options_t), FY_HOST_COPY, FY_DTYPE_SAME, 0, FY_SITE \
    }

/* New tensor on `device` with the elements of host tensor `src` (any strides; the result is dense).
 * options may be NULL.
 * Completion: ops on *out_dst wait by themselves, on the device. Host code that wants to wait uses
 * fy_tensor_ticket.
 * To `host` it is a counted host copy. Fails: DEVICE_MISMATCH (src not on host), OUT_OF_MEMORY,
 * PINNED_LIMIT, REFUSED_BY_GUARD, INVALID_ARGUMENT (BORROW of memory that is not pinned, or not
 * contiguous). */
FY_API_STATUS fy_tensor_upload(const fy_tensor_t *src, fy_device_t *device,
                               const fy_transfer_options_t *options, fy_tensor_t **out_dst);
/* The same into an existing tensor or view of the same shape: no allocation in a steady loop.
 * options->dtype must be SAME; the dtypes may differ (converted on the device). out_ticket may be
 * NULL with COPY. Fails: as above, SHAPE_MISMATCH. */
FY_API_STATUS fy_tensor_upload_into(fy_tensor_t *dst, const fy_tensor_t *src,
                                    const fy_transfer_options_t *options, fy_ticket_t *out_ticket);

/* `count` tensors at once: small ones travel packed, one copy for many, and are spread on the
 * device; large ones, strided ones and ones that are converted go as with fy_tensor_upload. All or
 * nothing. out_dst has room for `count`. Fails: as above, for the first that fails (says which). */
FY_API_STATUS fy_tensor_upload_many(size_t count, fy_tensor_t *const *src, fy_device_t *device,
                                    const fy_transfer_options_t *options, fy_tensor_t **out_dst);
/* The same into existing tensors, all on one device: no allocation in a steady loop. *out_ticket is
 * behind the last. Where two dst share bytes, whose come last is not said. */
FY_API_STATUS fy_tensor_upload_many_into(size_t count, fy_tensor_t *const *dst,
                                         fy_tensor_t *const *src,
                                         const fy_transfer_options_t *options,
                                         fy_ticket_t *out_ticket);

/* Page-locks a host tensor's bytes for `device`, in place, until the tensor's memory goes: then
 * memory of your own (fy_tensor_wrap) can be uploaded with FY_HOST_BORROW. Counts as one device
 * allocation. Slow (about 0.1 s a GiB): do it once, not per transfer.
 * Where the limit is in the way only because of transfers that still use page-locked memory given
 * up before, it waits for them: a sync.
 * Fails: DEVICE_MISMATCH (not on the host), BUSY (pinned for another device), PINNED_LIMIT,
 * REFUSED_BY_GUARD. */
FY_API_STATUS fy_tensor_pin(fy_tensor_t *tensor, fy_device_t *device);

/* Asks for the bytes of `src` as they are at this point of its stream. Returns at once; there is no
 * host tensor until the download is waited for, so nobody can read early. Of a host tensor it is a
 * counted host copy.
 * Fails: OUT_OF_MEMORY, PINNED_LIMIT, REFUSED_BY_GUARD. */
FY_API_STATUS fy_tensor_download(const fy_tensor_t *src, const fy_transfer_options_t *options,
                                 fy_download_t **out_download);
/* Its point on the download engine's timeline, for polling. */
FY_API fy_ticket_t fy_download_ticket(const fy_download_t *download);
/* Blocks. OK frees the download, and *out_host is an ordinary host tensor, dense, in pinned memory.
 * After any failure the download is unchanged: wait again (a fault of its bytes is reported again),
 * destroy it, or leave it to its scope.
 * Fails: TIMEOUT, REFUSED_BY_GUARD, UNSUPPORTED (this thread records a graph on the device), and
 * with the fault of the request that made the bytes (BAD_VALUE, KERNEL_FAILED, IO, DEVICE_LOST). */
FY_API_STATUS fy_download_wait(fy_download_t *download, uint64_t timeout_ns,
                               fy_tensor_t **out_host);
/* Does not block and is no sync. If the bytes have arrived, the same as fy_download_wait; else OK
 * with *out_host NULL.
 * Only OK with *out_host not NULL frees the download. */
FY_API_STATUS fy_download_try(fy_download_t *download, fy_tensor_t **out_host);
/* fy_download_try for one element of any dtype: *out_done is 1 if *out_value is set and the
 * download is freed, else 0. A training loop can read a loss with it some steps later. Fails: as
 * fy_download_wait, SHAPE_MISMATCH (not one element). */
FY_API_STATUS fy_download_try_f64(fy_download_t *download, int *out_done, double *out_value);
/* Blocks. fy_download_wait for one element of any dtype. Fails: as fy_download_wait, SHAPE_MISMATCH
 * (not one element). */
FY_API_STATUS fy_download_wait_f64(fy_download_t *download, uint64_t timeout_ns, double *out_value);
/* `count` downloads at once; small ones are collected on the device and travel packed. Each is
 * waited for by itself. */
FY_API_STATUS fy_tensor_download_many(size_t count, fy_tensor_t *const *src,
                                      const fy_transfer_options_t *options,
                                      fy_download_t **out_downloads);
/* Blocks. Into an existing host tensor of the same shape and dtype (options->dtype must be SAME):
 * page-locked memory takes it in one copy, other memory through the ring, chunk by chunk. Fails: as
 * fy_tensor_download and fy_download_wait, SHAPE_MISMATCH, DTYPE_MISMATCH, BUSY. */
FY_API_STATUS fy_tensor_download_into(fy_tensor_t *dst, const fy_tensor_t *src,
                                      const fy_transfer_options_t *options);
/* Gives up a download that was not waited for. If it has not started it is cancelled and nothing
 * crosses (it stays counted as asked for, without wire bytes); else the bytes still cross. NULL is
 * ignored. */
FY_API void fy_download_destroy(fy_download_t *download);
/* Takes the handle out of its scope: it is yours to wait for or destroy. */
FY_API void fy_download_keep(fy_download_t *download);

/* From device to device, without the host: a transfer like the others, counted as peer traffic.
 * options->contract is not looked at.
 * Fails: UNSUPPORTED (devices of different backends, or a pair that cannot; says what to do
 * instead), OUT_OF_MEMORY, REFUSED_BY_GUARD, INVALID_ARGUMENT (src is on the host: call
 * fy_tensor_upload; `device` is the host: call fy_tensor_download; src is on `device` already: call
 * fy_copy). */
FY_API_STATUS fy_tensor_send(const fy_tensor_t *src, fy_device_t *device,
                             const fy_transfer_options_t *options, fy_tensor_t **out_dst);
FY_API_STATUS fy_tensor_send_into(fy_tensor_t *dst, const fy_tensor_t *src,
                                  const fy_transfer_options_t *options, fy_ticket_t *out_ticket);
/* In place: each of the `count` tensors, one a device, all dense, of one shape and float dtype,
 * becomes the sum of all, [1, 1], [2, 2] -> [3, 3] on both, by the devices' own library in one call
 * (cuda: NCCL). *out_done 0: these devices have none, or not for this; nothing has changed, and
 * fy_allreduce_sum (<ferry/train/parallel.h>) does it by copies, which is what to call unless one
 * wants to know. Bits are the same on every device; of three or more the order of adding is the
 * library's. Light on the host, but for the first call of a set of devices, which makes
 * communicators. Peer traffic of 2 (count - 1) / count of a tensor's bytes out of each device.
 * Fails: DEVICE_MISMATCH (two on one device), SHAPE_MISMATCH, DTYPE_MISMATCH, INVALID_ARGUMENT (not
 * dense), REFUSED_BY_GUARD, before anything has changed; if the library fails, with its status
 * (UNAVAILABLE, INTERNAL, ...): the tensors are poisoned until they are overwritten. */
FY_API_STATUS fy_tensor_all_reduce(size_t count, fy_tensor_t *const *tensors,
                                   const fy_transfer_options_t *options, int *out_done);

/* File to device: the bytes of the file from `offset` on become those of `dst`, in dst's dtype,
 * row-major, in the machine's byte order.
 * Read straight into the ring (no mmap, no copy in between); an upload, of as many bytes as dst
 * has. May block for the disk and for ring space, never for compute. On the host it is a plain
 * read. Fails: IO (a pipe, or the system's reason; CORRUPT_DATA if the file is shorter), as
 * fy_tensor_upload_into. A file that fails half way leaves dst poisoned. */
FY_API_STATUS fy_tensor_upload_file(fy_tensor_t *dst, const char *path, uint64_t offset,
                                    const fy_transfer_options_t *options);
/* Device to file: writes src's elements, row-major, from `offset` on; makes the file if there is
 * none and cuts nothing off. Blocks. */
FY_API_STATUS fy_tensor_download_file(const fy_tensor_t *src, const char *path, uint64_t offset,
                                      const fy_transfer_options_t *options);

/* The ticket of the last write to `tensor`'s bytes: {0, 0} on the host, or when it is known to be
 * done. */
FY_API fy_ticket_t fy_tensor_ticket(const fy_tensor_t *tensor);

#ifdef __cplusplus
}
#endif
#endif
