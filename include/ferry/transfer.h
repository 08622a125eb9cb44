/* Transfers: the only calls that move tensor bytes between devices. The ledger counts each one, and
 * guards check it. */
#ifndef FERRY_TRANSFER_H_
#define FERRY_TRANSFER_H_

#include <ferry/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* When the caller may change `src` again. COPY: on return. It may block for ring space, never for
 * compute, and uses the ring even for pinned memory. BORROW: at the ticket. Until then writing to
 * src through Ferry is BUSY, and src must be pinned (fy_tensor_create_pinned, fy_tensor_pin, or the
 * result of a download). */
typedef enum fy_host_contract { FY_HOST_COPY, FY_HOST_BORROW } fy_host_contract_t;

typedef struct fy_transfer_options {
    size_t struct_size;
    fy_host_contract_t contract; /* uploads */
    /* of the result; FY_DTYPE_SAME: as src. Converted on the device: after an upload, before a
     * download */
    fy_dtype_t dtype;
    /* of the transfers in an engine's queue the highest starts first; default 0 */
    int priority;
    /* the call's place in the program, for the ledger's events; static. FY_SITE is "file.c:12";
     * NULL: the caller's address */
    const char *site;
    /* 1: an existing destination may have another dtype than the source; the device converts. 0:
     * that is DTYPE_MISMATCH. A new tensor's dtype: `dtype` */
    int convert;
} fy_transfer_options_t;
#define FY_TRANSFER_OPTIONS_INIT \
    FY_DEFAULTS_(transfer_options, .contract = FY_HOST_COPY, .dtype = FY_DTYPE_SAME)
FY_API void fy_transfer_options_init(fy_transfer_options_t *options, size_t nbytes);
#define FY_SITE                   FY_SITE_TEXT(__FILE__, __LINE__)
#define FY_SITE_TEXT(file, line)  FY_SITE_TEXT_(file, line)
#define FY_SITE_TEXT_(file, line) file ":" #line
/* The defaults, with the call's place: `fy_tensor_upload(x, device,
 * &(fy_transfer_options_t)FY_TRANSFER_OPTIONS_HERE, &y)`. */
#ifdef __cplusplus
#define FY_TRANSFER_OPTIONS_HERE FY_CHANGED_(transfer_options, changed_.site = FY_SITE;)
#else
#define FY_TRANSFER_OPTIONS_HERE                                                     \
    FY_DEFAULTS_(transfer_options, .contract = FY_HOST_COPY, .dtype = FY_DTYPE_SAME, \
                 .site = FY_SITE)
#endif

/* New tensor on `device` with the elements of host tensor `src` (any strides; the result is dense).
 * options may be NULL. To `host` it is a counted host copy.
 * Completion: ops on *out_dst wait for it on the device. Host code waits with fy_tensor_ticket.
 * Fails: DEVICE_MISMATCH (src not on host), OUT_OF_MEMORY, PINNED_LIMIT, REFUSED_BY_GUARD,
 * INVALID_ARGUMENT (BORROW of memory that is not pinned, or not contiguous). */
FY_API_STATUS fy_tensor_upload(const fy_tensor_t *src, fy_device_t *device,
                               const fy_transfer_options_t *options, fy_tensor_t **out_dst);
/* The same into an existing tensor or view of the same shape; a steady loop allocates nothing.
 * The dtypes are equal, or options->convert is 1: then the device converts. options->dtype is SAME
 * or dst's. out_ticket may be NULL with COPY. Fails: as above, SHAPE_MISMATCH, DTYPE_MISMATCH,
 * INVALID_ARGUMENT (another options->dtype). */
FY_API_STATUS fy_tensor_upload_into(fy_tensor_t *dst, const fy_tensor_t *src,
                                    const fy_transfer_options_t *options, fy_ticket_t *out_ticket);

/* Uploads `count` tensors. Small ones cross packed in one copy, and a kernel spreads them on the
 * device. Large, strided or converted ones take the path of fy_tensor_upload. All or nothing.
 * out_dst has `count` entries. Fails: as above, for the first tensor that fails (names it). */
FY_API_STATUS fy_tensor_upload_many(size_t count, fy_tensor_t *const *src, fy_device_t *device,
                                    const fy_transfer_options_t *options, fy_tensor_t **out_dst);
/* The same into existing tensors, all on one device; a steady loop allocates nothing. *out_ticket
 * covers them all. If two dst share bytes, the order of their writes is undefined. */
FY_API_STATUS fy_tensor_upload_many_into(size_t count, fy_tensor_t *const *dst,
                                         fy_tensor_t *const *src,
                                         const fy_transfer_options_t *options,
                                         fy_ticket_t *out_ticket);

/* Page-locks a host tensor's bytes for `device`, in place, until the tensor's memory is freed. Then
 * your own memory (fy_tensor_wrap) can be uploaded with FY_HOST_BORROW. Counts as one device
 * allocation. Slow (about 0.1 s a GiB): pin once, not per transfer.
 * If only transfers that still use freed page-locked memory keep it above the limit, it waits for
 * them: a sync.
 * Fails: DEVICE_MISMATCH (not on the host), BUSY (pinned for another device), PINNED_LIMIT,
 * REFUSED_BY_GUARD. */
FY_API_STATUS fy_tensor_pin(fy_tensor_t *tensor, fy_device_t *device);

/* Requests the bytes of `src` as they are after all requests made before this call. Returns at
 * once. The host tensor is made by the wait, so it cannot be read early. Of a host tensor it is a
 * counted host copy.
 * Fails: OUT_OF_MEMORY, PINNED_LIMIT, REFUSED_BY_GUARD. */
FY_API_STATUS fy_tensor_download(const fy_tensor_t *src, const fy_transfer_options_t *options,
                                 fy_download_t **out_download);
/* The download's point on the download engine's timeline, for polling. */
FY_API fy_ticket_t fy_download_ticket(const fy_download_t *download);
/* Blocks. OK frees the download, and *out_host is an ordinary host tensor, dense, in pinned memory.
 * After a failure the download is unchanged: wait again (a fault of its bytes is reported again),
 * destroy it, or leave it to its scope.
 * Fails: TIMEOUT, REFUSED_BY_GUARD, UNSUPPORTED (this thread records a graph on the device), and
 * the fault of the request that made the bytes (BAD_VALUE, KERNEL_FAILED, IO, DEVICE_LOST). */
FY_API_STATUS fy_download_wait(fy_download_t *download, uint64_t timeout_ns,
                               fy_tensor_t **out_host);
/* Does not block and is no sync. If the bytes have arrived, it does the same as fy_download_wait;
 * else it returns OK with *out_host NULL. Only OK with a non-NULL *out_host frees the download. */
FY_API_STATUS fy_download_try(fy_download_t *download, fy_tensor_t **out_host);
/* fy_download_try for one element of any dtype. *out_done is 1 if *out_value is set and the
 * download is freed, else 0. Use it to read a loss some steps later. Fails: as fy_download_wait,
 * SHAPE_MISMATCH (not one element). */
FY_API_STATUS fy_download_try_f64(fy_download_t *download, int *out_done, double *out_value);
/* Blocks. fy_download_wait for one element of any dtype. Fails: as fy_download_wait, SHAPE_MISMATCH
 * (not one element). */
FY_API_STATUS fy_download_wait_f64(fy_download_t *download, uint64_t timeout_ns, double *out_value);
/* Requests `count` downloads; the device collects small ones and they cross packed. Wait for each
 * separately. */
FY_API_STATUS fy_tensor_download_many(size_t count, fy_tensor_t *const *src,
                                      const fy_transfer_options_t *options,
                                      fy_download_t **out_downloads);
/* Blocks. Copies into an existing host tensor of the same shape and dtype (options->dtype must be
 * SAME): to page-locked memory in one copy, to other memory through the ring, chunk by chunk.
 * Fails: as fy_tensor_download and fy_download_wait, SHAPE_MISMATCH, DTYPE_MISMATCH, BUSY. */
FY_API_STATUS fy_tensor_download_into(fy_tensor_t *dst, const fy_tensor_t *src,
                                      const fy_transfer_options_t *options);
/* Drops a download that was not waited for; NULL is ignored. If it has not started it is cancelled
 * and nothing crosses: it stays counted as requested, without wire bytes. If it has started, the
 * bytes still cross. */
FY_API void fy_download_destroy(fy_download_t *download);
/* Takes the handle out of its scope: it is yours to wait for or destroy. */
FY_API void fy_download_keep(fy_download_t *download);

/* From device to device, without the host: a transfer that counts as peer traffic.
 * options->contract is ignored.
 * Fails: UNSUPPORTED (devices of different backends, or a pair without a direct path; names an
 * alternative), OUT_OF_MEMORY, REFUSED_BY_GUARD, INVALID_ARGUMENT (src is on the host: call
 * fy_tensor_upload; `device` is the host: call fy_tensor_download; src is on `device` already: call
 * fy_copy). */
FY_API_STATUS fy_tensor_send(const fy_tensor_t *src, fy_device_t *device,
                             const fy_transfer_options_t *options, fy_tensor_t **out_dst);
FY_API_STATUS fy_tensor_send_into(fy_tensor_t *dst, const fy_tensor_t *src,
                                  const fy_transfer_options_t *options, fy_ticket_t *out_ticket);
/* In place: each of the `count` tensors becomes the sum of all, by the devices' own library (cuda:
 * NCCL). One tensor a device, dense, of one shape and float dtype. *out_done 0: no library can do
 * it, and nothing has changed (fy_allreduce_sum of <ferry/train/parallel.h> then sums by copies).
 * The bits are the same on every device. Cost: 2 (count - 1) / count of a tensor's bytes as peer
 * traffic out of each device; light, but a set's first call makes communicators.
 * Fails: DEVICE_MISMATCH, SHAPE_MISMATCH, DTYPE_MISMATCH, INVALID_ARGUMENT (not dense),
 * REFUSED_BY_GUARD; or as the library, and then the tensors are poisoned until overwritten. */
FY_API_STATUS fy_tensor_all_reduce(size_t count, fy_tensor_t *const *tensors,
                                   const fy_transfer_options_t *options, int *out_done);

/* File to device: the bytes of the file from `offset` on become those of `dst`, in dst's dtype,
 * row-major, in the machine's byte order. Reads directly into the staging ring (no mmap, no copy
 * between) and counts as an upload of dst's bytes. May block for the disk and for ring space, never
 * for compute. On the host it is a plain read.
 * Fails: IO (a pipe, or the system's reason), CORRUPT_DATA (the file is shorter), as
 * fy_tensor_upload_into. A read that fails half way leaves dst poisoned. */
FY_API_STATUS fy_tensor_upload_file(fy_tensor_t *dst, const char *path, uint64_t offset,
                                    const fy_transfer_options_t *options);
/* Blocks. Device to file: writes src's elements, row-major, from `offset` on. Creates the file if
 * it does not exist and truncates nothing. */
FY_API_STATUS fy_tensor_download_file(const fy_tensor_t *src, const char *path, uint64_t offset,
                                      const fy_transfer_options_t *options);

/* The ticket of the last write to `tensor`'s bytes; {0, 0} on the host, or when that write is known
 * to be done. */
FY_API fy_ticket_t fy_tensor_ticket(const fy_tensor_t *tensor);

#ifdef __cplusplus
}
#endif
#endif
