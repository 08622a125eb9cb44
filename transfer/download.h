/* The inside of a download; wire.c needs to know how a scope destroys one. Next: download.c. */
#ifndef FERRY_TRANSFER_DOWNLOAD_H_
#define FERRY_TRANSFER_DOWNLOAD_H_

#include <ferry/transfer.h>

#include "runtime/scope.h"
#include "runtime/storage.h"

struct fy_download {
    fy__handle_t handle;
    fy_device_t *device;
    fy__storage_t *storage; /* where the bytes go: page-locked host memory, nobody's tensor until the wait */
    fy_dtype_t dtype;
    int rank;
    int64_t dims[FY_MAX_RANK];
    uint64_t nelem;
    fy__point_t point;
    fy__suspect_t suspect;
};

#endif
