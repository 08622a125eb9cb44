/* The internals of a download; wire.c needs them for the destruction of scopes. Next:
 * download.c. */
#ifndef FERRY_TRANSFER_DOWNLOAD_H_
#define FERRY_TRANSFER_DOWNLOAD_H_

#include <ferry/transfer.h>

#include "runtime/tensor/storage.h"
#include "runtime/thread/scope.h"

struct fy_download {
    fy__handle_t handle;
    fy_device_t *device;
    /* destination: page-locked host memory, not a tensor's until the wait */
    fy__storage_t *storage;
    uint64_t offset; /* of its first byte in it */
    bool is_packed;  /* other downloads share the memory: collect.c */
    fy_dtype_t dtype;
    int rank;
    int64_t dims[FY_MAX_RANK];
    uint64_t nelem;
    fy__point_t point;
    fy__taint_t taint;
};

/* A download of `src` as `dtype` without a request: no storage, in no scope. NULL: no memory, and
 * the error record is set. */
fy_download_t *fy__download_new(const fy_tensor_t *src, fy_dtype_t dtype);
/* fy_tensor_download. `caller`: return address of the public call. */
fy_status_t fy__download_ask(const fy_tensor_t *src, const fy_transfer_options_t *options,
                             const void *caller, fy_download_t **out_download);

#endif
