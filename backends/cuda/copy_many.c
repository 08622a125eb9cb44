/* Many copies in one submission: cuMemcpyBatchAsync, in whichever of its two ABIs the driver has
 * (12.8 reports the copy that failed, 13.0 does not), else one call each. Nothing is allocated:
 * long lists go in pieces. Not here: who asks for it (transfer/coalesce.c). */
#include "backends/cuda/device.h"
#include "backends/cuda/nvtx.h"

/* One after the other; those that went are reported. */
static fy_status_t loop(fy__cuda_device_t *dev, CUstream stream, size_t count,
                        const fy_copy_t *copies)
{
    for (size_t i = 0; i < count; i++) {
        FY_TRY(fy__cuda_copy_submit(dev, stream, &copies[i]));
        fy__cuda.host->record(copies[i].kind, copies[i].nbytes);
    }
    return FY_STATUS_OK;
}

#if CUDA_VERSION >= 12080

enum { PIECE = 128 }; /* 3 KiB of stack */

static int has_batches(void)
{
    return fy__cuda.cuMemcpyBatchAsync_v13000 != NULL || fy__cuda.cuMemcpyBatchAsync_v12080 != NULL;
}

/* Sources are read in stream order, host ones too: they are page-locked, and may be overwritten by
 * what the stream does before. Anything looser (during the call, any) would read a device source
 * before the kernel that fills it has run. */
static fy_status_t batch(fy__cuda_device_t *dev, CUstream stream, size_t count,
                         const fy_copy_t *copies)
{
    CUdeviceptr dsts[PIECE], srcs[PIECE];
    size_t sizes[PIECE], first = 0, failed = SIZE_MAX;
    CUmemcpyAttributes attributes = { .srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM };
    unsigned long long nbytes = 0;
    for (size_t i = 0; i < count; i++) {
        dsts[i] = (CUdeviceptr)(uintptr_t)copies[i].dst;
        srcs[i] = (CUdeviceptr)(uintptr_t)copies[i].src;
        sizes[i] = copies[i].nbytes;
        nbytes += copies[i].nbytes;
    }
    fy_status_t status;
    if (fy__cuda.cuMemcpyBatchAsync_v13000 != NULL)
        status = FY__CUDA_CALL(dev, cuMemcpyBatchAsync_v13000,
                               (dsts, srcs, sizes, count, &attributes, &first, 1, stream),
                               "%zu copies of %llu bytes in one batch on cuda:%d", count, nbytes,
                               dev->index);
    else
        status =
            FY__CUDA_CALL(dev, cuMemcpyBatchAsync_v12080,
                          (dsts, srcs, sizes, count, &attributes, &first, 1, &failed, stream),
                          "%zu copies of %llu bytes in one batch on cuda:%d (number %lld failed)",
                          count, nbytes, dev->index, failed == SIZE_MAX ? -1LL : (long long)failed);
    for (size_t i = 0; i < count && status == FY_STATUS_OK; i++)
        fy__cuda.host->record(copies[i].kind, copies[i].nbytes);
    return status;
}

static fy_status_t submit(fy__cuda_device_t *dev, CUstream stream, size_t count,
                          const fy_copy_t *copies)
{
    /* cuda.h: "Must not be legacy NULL stream", which an application may have wrapped */
    if (count < 2 || stream == CU_STREAM_LEGACY || !has_batches())
        return loop(dev, stream, count, copies);
    for (size_t done = 0; done < count; done += PIECE)
        FY_TRY(batch(dev, stream, count - done < PIECE ? count - done : PIECE, copies + done));
    return FY_STATUS_OK;
}

#else /* a toolkit that does not know the call */

static fy_status_t submit(fy__cuda_device_t *dev, CUstream stream, size_t count,
                          const fy_copy_t *copies)
{
    return loop(dev, stream, count, copies);
}

#endif

fy_status_t fy__cuda_copy_many(void *dev_, void *stream, size_t count, const fy_copy_t *copies)
{
    fy__cuda_device_t *dev = dev_;
    fy__cuda_frame_t frame;
    FY_TRY(fy__cuda_enter(dev, &frame));
    fy__cuda_range_begin("copy batch");
    const fy_status_t status = submit(dev, ((fy__cuda_stream_t *)stream)->handle, count, copies);
    fy__cuda_range_end();
    fy__cuda_leave(&frame);
    uint64_t nbytes = 0;
    for (size_t i = 0; i < count; i++) nbytes += copies[i].nbytes;
    if (status == FY_STATUS_OK)
        fy__cuda_recent_add(((fy__cuda_stream_t *)stream)->trail, FY__CUDA_RECENT_COPY_BATCH,
                            nbytes);
    return status;
}
