/* Copies from device to device. The first one of a pair asks the driver for the direct way (NVLink,
 * PCIe), once; without one the driver goes by the host, and the copy is the same call. Not here:
 * when such a copy is made (transfer/peer.c), sums over devices (nccl.c). */
#include "backends/cuda/device.h"

/* Opens the direct way to `peer`, if there is one. No failure but a fatal one: the copy works
 * without it. The context is current. */
static CUresult reach(fy__cuda_device_t *dev, fy__cuda_device_t *peer)
{
    int reached = 0;
    CUresult code = fy__cuda.cuDeviceCanAccessPeer(&reached, dev->handle, peer->handle);
    if (code == CUDA_SUCCESS && reached) code = fy__cuda.cuCtxEnablePeerAccess(peer->context, 0);
    /* the application did it */
    if (code == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) code = CUDA_SUCCESS;
    if (fy__cuda_is_fatal(code)) return fy__cuda_checked(dev, code);
    if (code != CUDA_SUCCESS || !reached)
        fy__cuda.host->log(
            FY_LOG_INFO,
            "cuda:%d has no direct way to cuda:%d (%s %d): copies between them go by the host",
            dev->index, peer->index,
            reached ? "cuCtxEnablePeerAccess gave" : "cuDeviceCanAccessPeer says no,", (int)code);
    return CUDA_SUCCESS;
}

/* Once for a pair and direction, as long as both are open. Who comes while another thread is at it
 * goes on without: it is about speed only. */
static fy_status_t settle(fy__cuda_device_t *dev, fy__cuda_device_t *peer)
{
    if (peer->index >= FY__CUDA_PEERS) return FY_STATUS_OK;
    _Atomic uint32_t *settled = &dev->peers[peer->index];
    if (atomic_load_explicit(settled, memory_order_relaxed) == peer->serial) return FY_STATUS_OK;
    if (atomic_exchange(settled, peer->serial) == peer->serial) return FY_STATUS_OK;
    if (reach(dev, peer) == CUDA_SUCCESS) return FY_STATUS_OK;
    return fy__cuda_failed(fy__cuda_last_code, __FILE__, __LINE__, "cuCtxEnablePeerAccess",
                           "reaching cuda:%d from cuda:%d", peer->index, dev->index);
}

fy_status_t fy__cuda_peer_copy(fy__cuda_device_t *dev, CUstream stream, const fy_copy_t *copy)
{
    fy__cuda_device_t *peer = copy->peer;
    if (peer == NULL)
        return FY__CUDA_FAIL(
            FY_STATUS_INTERNAL,
            "a copy of %llu bytes from cuda:%d to another device does not say which",
            (unsigned long long)copy->nbytes, dev->index);
    FY_TRY(settle(dev, peer));
    return FY__CUDA_CALL(dev, cuMemcpyPeerAsync,
                         ((CUdeviceptr)(uintptr_t)copy->dst, peer->context,
                          (CUdeviceptr)(uintptr_t)copy->src, dev->context, copy->nbytes, stream),
                         "copying %llu bytes from cuda:%d to cuda:%d",
                         (unsigned long long)copy->nbytes, dev->index, peer->index);
}
