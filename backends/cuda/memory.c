/* Device memory, copies and fills. Mechanism only: caching, pooling and staging stand above the
 * seam. Not here: page-locking (register.c), other devices (peers.c), many copies at once
 * (copy_many.c).
 * An allocation that the driver refuses leaves no trace: the driver API has no sticky error for
 * it. */
#include "backends/cuda/nvtx.h"
#include "backends/cuda/virtual.h"

static CUdeviceptr at(const void *address) { return (CUdeviceptr)(uintptr_t)address; }

fy_status_t fy__cuda_alloc(void *dev_, uint64_t nbytes, void **out_address)
{
    fy__cuda_device_t *dev = dev_;
    fy__cuda_frame_t frame;
    CUdeviceptr address = 0;
    *out_address = NULL;
    FY_TRY(fy__cuda_enter(dev, &frame));
    fy_status_t status = fy__cuda_virtual_takes(dev->virtual_memory, nbytes)
                             ? fy__cuda_virtual_alloc(dev, nbytes, &address)
                             : FY__CUDA_CALL(dev, cuMemAlloc, (&address, nbytes),
                                             "allocating %llu bytes on cuda:%d",
                                             (unsigned long long)nbytes, dev->index);
    fy__cuda_leave(&frame);
    FY_TRY(status);
    *out_address = (void *)(uintptr_t)address;
    if (__builtin_expect(fy__cuda_regions_on, 0)) fy__cuda_heap_begin(dev, *out_address, nbytes);
    return FY_STATUS_OK;
}

void fy__cuda_free(void *dev_, void *address, uint64_t nbytes)
{
    fy__cuda_device_t *dev = dev_;
    fy__cuda_frame_t frame;
    (void)nbytes;
    if (__builtin_expect(fy__cuda_regions_on, 0)) fy__cuda_heap_end(address);
    if (!fy__cuda_enter_to_release(dev, &frame)) return;
    if (!fy__cuda_virtual_free(dev, at(address)))
        fy__cuda_note(dev, fy__cuda.cuMemFree(at(address)));
    fy__cuda_leave(&frame);
}

/* Memory of the application's allocator is used unchanged; a profiler sees it as a heap. */
fy_status_t fy__cuda_adopt(void *dev_, void *address, uint64_t nbytes)
{
    fy__cuda_device_t *dev = dev_;
    FY_TRY(fy__cuda_is_usable(dev));
    if (__builtin_expect(fy__cuda_regions_on, 0)) fy__cuda_heap_begin(dev, address, nbytes);
    return FY_STATUS_OK;
}

void fy__cuda_disown(void *dev, void *address, uint64_t nbytes)
{
    (void)dev, (void)nbytes;
    if (__builtin_expect(fy__cuda_regions_on, 0)) fy__cuda_heap_end(address);
}

fy_status_t fy__cuda_copy_submit(fy__cuda_device_t *dev, CUstream stream, const fy_copy_t *copy)
{
    unsigned long long nbytes = copy->nbytes;
    switch (copy->kind) {
    case FY_COPY_UPLOAD:
        return FY__CUDA_CALL(dev, cuMemcpyHtoDAsync,
                             (at(copy->dst), copy->src, copy->nbytes, stream),
                             "uploading %llu bytes to cuda:%d", nbytes, dev->index);
    case FY_COPY_DOWNLOAD:
        return FY__CUDA_CALL(dev, cuMemcpyDtoHAsync,
                             (copy->dst, at(copy->src), copy->nbytes, stream),
                             "downloading %llu bytes from cuda:%d", nbytes, dev->index);
    case FY_COPY_LOCAL:
        return FY__CUDA_CALL(dev, cuMemcpyDtoDAsync,
                             (at(copy->dst), at(copy->src), copy->nbytes, stream),
                             "copying %llu bytes within cuda:%d", nbytes, dev->index);
    case FY_COPY_PEER: return fy__cuda_peer_copy(dev, stream, copy);
    }
    return FY__CUDA_FAIL(FY_STATUS_INTERNAL, "copy kind %d is none of backend.h's",
                         (int)copy->kind);
}

fy_status_t fy__cuda_copy(void *dev_, void *stream, const fy_copy_t *copy)
{
    fy__cuda_device_t *dev = dev_;
    fy__cuda_frame_t frame;
    FY_TRY(fy__cuda_enter(dev, &frame));
    if (__builtin_expect(fy__cuda_listened, 0))
        fy__cuda_range(fy__cuda_request_name(FY__CUDA_RECENT_COPY + (uint32_t)copy->kind));
    fy_status_t status = fy__cuda_copy_submit(dev, ((fy__cuda_stream_t *)stream)->handle, copy);
    fy__cuda_range_end();
    fy__cuda_leave(&frame);
    if (status != FY_STATUS_OK) return status;
    fy__cuda_recent_add(((fy__cuda_stream_t *)stream)->trail,
                        FY__CUDA_RECENT_COPY + (uint32_t)copy->kind, copy->nbytes);
    return fy__cuda_graph_note_copy(stream, copy->kind, copy->nbytes);
}

fy_status_t fy__cuda_fill(void *dev_, void *stream, void *address, int value, uint64_t nbytes)
{
    fy__cuda_device_t *dev = dev_;
    fy__cuda_frame_t frame;
    if (nbytes == 0) return FY_STATUS_OK;
    FY_TRY(fy__cuda_enter(dev, &frame));
    fy_status_t status = FY__CUDA_CALL(
        dev, cuMemsetD8Async,
        (at(address), (unsigned char)value, nbytes, ((fy__cuda_stream_t *)stream)->handle),
        "filling %llu bytes on cuda:%d", (unsigned long long)nbytes, dev->index);
    fy__cuda_leave(&frame);
    if (status == FY_STATUS_OK)
        fy__cuda_recent_add(((fy__cuda_stream_t *)stream)->trail, FY__CUDA_RECENT_FILL, nbytes);
    return status;
}
