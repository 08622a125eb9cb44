/* Tensors: handles to bytes that live on one device. Nothing in this header moves bytes between
 * devices. */
#ifndef FERRY_TENSOR_H_
#define FERRY_TENSOR_H_

#include <ferry/stream.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum fy_access {
    FY_ACCESS_READ = 1,
    FY_ACCESS_WRITE = 2,
    FY_ACCESS_READ_WRITE = 3
} fy_access_t;
/* Runs once, after the last use, on the thread that ended it. It must not call Ferry. */
typedef void (*fy_deleter_fn)(void *user, void *data);

typedef struct fy_tensor_info {
    size_t struct_size; /* set by you: sizeof(fy_tensor_info_t) */
    fy_device_t *device;
    fy_dtype_t dtype;
    int rank;
    /* strides in elements; 0 in a broadcast axis */
    int64_t dims[FY_MAX_RANK], strides[FY_MAX_RANK];
    /* of this view: product of dims, times the element size */
    uint64_t nelem, nbytes;
    /* increases by 1 with each write to the bytes, through any view */
    uint64_t version;
    int is_contiguous; /* row-major without gaps */
    /* host bytes that a device can read without staging */
    int is_pinned;
    /* valid until the next fy_tensor_set_name or destroy; "" if none */
    const char *name;
    /* Two live tensors have the same number exactly if they share a storage, as views do. */
    uint64_t storage;
    uint64_t offset_nbytes;  /* of the first element from the first byte of the storage */
    uint64_t storage_nbytes; /* of the whole storage */
    /* writes are refused: imported so (dlpack.h), or a view of such a tensor */
    int is_read_only;
} fy_tensor_info_t;
#define FY_TENSOR_INFO_INIT FY_ZEROED_(tensor_info)

/* A tensor with undefined contents, dense and row-major. rank 0 (dims NULL) is a scalar; a dim may
 * be 0.
 * Fails: INVALID_ARGUMENT (rank, a negative dim, a size past 2^63 bytes with each dim of 0 counted
 * as 1), OUT_OF_MEMORY (fy_error_get()->oom explains), REFUSED_BY_GUARD. */
FY_API_STATUS fy_tensor_create(fy_device_t *device, fy_dtype_t dtype, int rank, const int64_t *dims,
                               fy_tensor_t **out_tensor);
/* A host tensor with undefined contents in memory that is page-locked for `peer`. Its transfers
 * need no staging, and FY_HOST_BORROW is free. For peer == host it is fy_tensor_create.
 * Fails: as fy_tensor_create, PINNED_LIMIT. */
FY_API_STATUS fy_tensor_create_pinned(fy_device_t *peer, fy_dtype_t dtype, int rank,
                                      const int64_t *dims, fy_tensor_t **out_tensor);
/* Makes a tensor of `data`, dense and row-major, an address of `device`'s memory (not checked here:
 * wrap host memory on fy_device_host() and upload it). Copies nothing, pins nothing, counts
 * nothing.
 * `deleter` (may be NULL) runs after the last use, copies in flight included; it does not run if
 * the call fails.
 * Fails: INVALID_ARGUMENT (NULL with nbytes > 0, data not aligned to its dtype), BAD_VALUE (a bool
 * of host memory is neither 0 nor 1: clear memory that is written later). */
FY_API_STATUS fy_tensor_wrap(fy_device_t *device, fy_dtype_t dtype, int rank, const int64_t *dims,
                             void *data, fy_deleter_fn deleter, void *user,
                             fy_tensor_t **out_tensor);
/* As fy_tensor_wrap, for elements at data[sum of i[k] * strides[k]]; strides in elements, >= 0.
 * Elements must not overlap, except along an axis of stride 0: the tensor is then read-only, as
 * from fy_broadcast. The wrapped bytes end after the last element.
 * Fails: as fy_tensor_wrap; INVALID_ARGUMENT (a negative stride, elements that overlap). */
FY_API_STATUS fy_tensor_wrap_strided(fy_device_t *device, fy_dtype_t dtype, int rank,
                                     const int64_t *dims, const int64_t *strides, void *data,
                                     fy_deleter_fn deleter, void *user, fy_tensor_t **out_tensor);
/* Destroys the handle; NULL is ignored. The bytes are freed after their last view or copy in
 * flight. */
FY_API void fy_tensor_destroy(fy_tensor_t *tensor);
/* Takes the handle out of its scope: it is yours to destroy. */
FY_API void fy_tensor_keep(fy_tensor_t *tensor);
/* Facts about `tensor`; never blocks. Fails: INVALID_ARGUMENT (NULL, destroyed, struct_size). */
FY_API_STATUS fy_tensor_query(const fy_tensor_t *tensor, fy_tensor_info_t *out_info);
/* Names it for errors, plans and event files. Copied, cut at 31 bytes; NULL removes the name. */
FY_API void fy_tensor_set_name(fy_tensor_t *tensor, const char *name);

/* Address of a host tensor's first element, valid until the tensor is destroyed; strides as
 * fy_tensor_query returns them. WRITE increments the version.
 * Fails: DEVICE_MISMATCH (not on the host: download it), BUSY (WRITE while an upload still borrows
 * it: names the ticket), BAD_VALUE or DEVICE_LOST (the request that made it failed). */
FY_API_STATUS fy_tensor_map(fy_tensor_t *tensor, fy_access_t access, void **out_data);
/* The address of the tensor's first element on its device, for kernels of yours. After this call,
 * submit them to the native queue of `stream`: they run after Ferry's earlier requests for these
 * bytes, and Ferry's later requests wait for them.
 * `stream` is a stream of the tensor's device; NULL: this thread's current stream there. The host
 * has no streams, so its address is valid at once.
 * If you wrap memory that a queue of yours still writes, pass WRITE and that queue's stream.
 * Waits for nothing, moves nothing. Fails: INVALID_ARGUMENT (stream of another device). */
FY_API_STATUS fy_tensor_begin_native_access(fy_tensor_t *tensor, fy_access_t access,
                                            fy_stream_t *stream, void **out_address);

/* ---- views: another handle to the same bytes; nothing moves, nothing is submitted ---- */

/* The same elements in another shape. One dim may be -1: it is computed from the others. `src` must
 * be contiguous. Fails: SHAPE_MISMATCH, INVALID_ARGUMENT (two dims of -1, a dim below). */
FY_API_STATUS fy_reshape(fy_tensor_t *src, int rank, const int64_t *dims, fy_tensor_t **out_view);
/* Axis i of the view is axis axes[i] of src; axes NULL reverses them all. Fails: INVALID_ARGUMENT
 * (not a permutation). */
FY_API_STATUS fy_transpose(fy_tensor_t *src, const int *axes, fy_tensor_t **out_view);
/* Elements begin <= i < end of `axis` (negative counts from the end, for axis, begin and end).
 * Fails: INVALID_ARGUMENT. */
FY_API_STATUS fy_slice(fy_tensor_t *src, int axis, int64_t begin, int64_t end,
                       fy_tensor_t **out_view);
/* The same of the elements begin, begin + step, ... before `end`; step is at least 1. */
FY_API_STATUS fy_slice_step(fy_tensor_t *src, int axis, int64_t begin, int64_t end, int64_t step,
                            fy_tensor_t **out_view);
/* src repeated to `dims` as NumPy broadcasts, with stride 0. The view is read-only. Fails:
 * SHAPE_MISMATCH. */
FY_API_STATUS fy_broadcast(fy_tensor_t *src, int rank, const int64_t *dims, fy_tensor_t **out_view);
/* Without axis `axis`, which must be of length 1. Fails: SHAPE_MISMATCH. */
FY_API_STATUS fy_squeeze(fy_tensor_t *src, int axis, fy_tensor_t **out_view);
/* With a new axis of length 1 before `axis` (0..rank, or negative from the end). Fails:
 * INVALID_ARGUMENT. */
FY_API_STATUS fy_unsqueeze(fy_tensor_t *src, int axis, fy_tensor_t **out_view);

#ifdef __cplusplus
}
#endif
#endif
