/* Prefetch: fills and uploads the next batches while the device works on the current one. */
#ifndef FERRY_PREFETCH_H_
#define FERRY_PREFETCH_H_

#include <ferry/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fy_prefetch fy_prefetch_t;

/* One tensor of each batch. */
typedef struct fy_batch_spec {
    fy_dtype_t dtype;
    int rank;
    int64_t dims[FY_MAX_RANK]; /* dims[0]: rows of a full batch */
} fy_batch_spec_t;

/* The argument of `fill`. */
typedef struct fy_batch {
    uint64_t index; /* 0, 1, 2, ... */
    size_t count;   /* of tensors */
    /* page-locked; fy_tensor_map them for writing. Borrowed during the call */
    fy_tensor_t *const *host;
    int64_t rows; /* set it lower for a last batch that is not full */
    /* set it to 1 if there is no such batch; the tensors are then ignored */
    int is_end;
} fy_batch_t;
/* Fills batch->host. Called for one batch at a time, in order. fy_prefetch_next returns its failure
 * (FY_TRY, or your own with fy_error_set) when the caller asks for that batch. */
typedef fy_status_t (*fy_prefetch_fn)(void *user, fy_batch_t *batch);

typedef struct fy_prefetch_options {
    size_t struct_size;
    int depth; /* batches ahead of the one in use: 1 to 64 */
    /* 1: `fill` and the uploads run on a thread of Ferry's, in a scope "prefetch" under the scope
     * that is open now, and with its guards.
     * 0: they run inside fy_prefetch_next, in a scope "prefetch" under the scope that is open
     * there. Uploads still overlap with the device's work */
    int threads;
} fy_prefetch_options_t;
#define FY_PREFETCH_OPTIONS_INIT FY_DEFAULTS_(prefetch_options, .depth = 2, .threads = 1)
FY_API void fy_prefetch_options_init(fy_prefetch_options_t *options, size_t nbytes);

/* Allocates depth + 1 batches on the host (page-locked) and on `device`, once; a steady loop
 * allocates nothing. options may be NULL.
 * `user` is borrowed until destroy. A scope destroys its prefetches before its other handles.
 * Fails: INVALID_ARGUMENT, OUT_OF_MEMORY, PINNED_LIMIT, REFUSED_BY_GUARD. */
FY_API_STATUS fy_prefetch_create(fy_device_t *device, size_t count, const fy_batch_spec_t *specs,
                                 fy_prefetch_fn fill, void *user,
                                 const fy_prefetch_options_t *options,
                                 fy_prefetch_t **out_prefetch);
/* The next batch: out_tensors has `count` entries, valid until the next call; if the batch is not
 * full they are views of *out_rows rows. After the last batch *out_rows is 0 and the entries are
 * NULL. Ops on them wait on the device for the upload.
 * May wait for `fill`, which waits for the upload of the batch depth + 1 before. The wait is no
 * sync; it counts in the upload's host_blocked_ns.
 * Fails: as `fill` or the upload (the next call continues after that batch), INVALID_ARGUMENT
 * (called by its `fill`), UNAVAILABLE (in a forked child), UNSUPPORTED (while a graph is
 * recorded). */
FY_API_STATUS fy_prefetch_next(fy_prefetch_t *prefetch, fy_tensor_t **out_tensors,
                               int64_t *out_rows);
/* Stops the thread after the `fill` that is running. The memory is freed after its last use. NULL
 * is ignored. */
FY_API void fy_prefetch_destroy(fy_prefetch_t *prefetch);
/* Takes the handle out of its scope: it is yours to destroy. */
FY_API void fy_prefetch_keep(fy_prefetch_t *prefetch);

#ifdef __cplusplus
}
#endif
#endif
