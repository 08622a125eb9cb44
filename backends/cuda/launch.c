/* Runs a launch: finds the op's row (families.h), packs the arguments, submits; and the slots that
 * say beforehand what a launch would be and would need. Nothing here allocates or waits. Next:
 * families.c, pack.h for the arguments, launch_product.c for products. */
#include "backends/cuda/chain_rules.h"
#include "backends/cuda/families.h"
#include "backends/cuda/flat.h"
#include "backends/cuda/lt.h"

enum { BLOCKS_A_PROCESSOR = 16 }; /* more than run at once; each thread loops over the rest */

static unsigned at_once(const fy__cuda_device_t *dev, uint64_t blocks)
{
    const uint64_t most = (uint64_t)dev->nprocessors * BLOCKS_A_PROCESSOR;
    return (unsigned)(blocks > most ? most : blocks == 0 ? 1 : blocks);
}

static uint64_t blocks_of(uint64_t threads, unsigned side)
{
    return threads / side + (threads % side != 0);
}

fy_status_t fy__cuda_submit(fy__cuda_device_t *dev, CUstream stream, fy__cuda_request_t *request)
{
    const unsigned side = request->square ? FY__CUDA_TILE : request->block,
                   blocks = at_once(dev, request->square ? request->threads
                                                         : blocks_of(request->threads, side));
    fy__cuda_flat_t flat;
    void *params[] = { &request->args };
    if (request->kernel >= FY__CUDA_KERNEL_FLAT) {
        fy__cuda_flat_of(&request->args, &flat);
        params[0] = &flat;
    }
    return FY__CUDA_CALL(dev, cuLaunchKernel,
                         (dev->kernels[request->kernel], blocks, 1, 1, side,
                          request->square ? side : 1, 1, 0, stream, params, NULL),
                         "running %s over %llu elements on cuda:%d",
                         fy__cuda_op_name(request->args.op),
                         (unsigned long long)request->args.nelem, dev->index);
}

fy_status_t fy__cuda_submit_chain(fy__cuda_device_t *dev, CUstream stream, fy__cuda_chain_t *chain)
{
    const uint64_t threads =
        chain->flags & FY__CUDA_ALIGNED ? chain->nelem / FY__CUDA_CHAIN_WIDE + 1 : chain->nelem;
    void *params[] = { chain };
    return FY__CUDA_CALL(dev, cuLaunchKernel,
                         (dev->kernels[FY__CUDA_KERNEL_fy_chain_f32],
                          at_once(dev, blocks_of(threads, FY__CUDA_BLOCK)), 1, 1, FY__CUDA_BLOCK, 1,
                          1, 0, stream, params, NULL),
                         "running a chain of %u ops over %llu elements on cuda:%d",
                         (unsigned)chain->nops, (unsigned long long)chain->nelem, dev->index);
}

fy_status_t fy__cuda_submit_several(fy__cuda_device_t *dev, CUstream stream,
                                    const fy_launch_t *launch, fy__cuda_pack_several_fn pack)
{
    fy__cuda_request_t requests[FY__CUDA_MOST_REQUESTS];
    uint64_t nbytes;
    const uint64_t limit = launch->workspace != NULL ? launch->workspace_nbytes : 0;
    const int n =
        pack(launch, (unsigned)dev->nprocessors, launch->workspace, limit, requests, &nbytes);
    for (int i = 0; i < n; i++) FY_TRY(fy__cuda_submit(dev, stream, &requests[i]));
    return FY_STATUS_OK;
}

uint64_t fy__cuda_several_workspace(fy__cuda_device_t *dev, const fy_launch_t *launch,
                                    uint64_t limit, fy__cuda_pack_several_fn pack)
{
    uint64_t nbytes;
    pack(launch, (unsigned)dev->nprocessors, NULL, limit, NULL, &nbytes);
    return nbytes;
}

/* 1: the row takes it. */
static int takes(const fy__cuda_family_t *family, const fy_launch_t *launch)
{
    const int32_t dtype = fy__cuda_main_dtype(family, launch);
    return (uint32_t)dtype < FY_DTYPE_COUNT && (family->dtypes & FY_DTYPE_BIT(dtype)) != 0;
}

static fy_status_t refuse(const fy__cuda_family_t *family, const fy_launch_t *launch)
{
    static const char *const dtypes[] = {
#define X(name, text, size, is_float) text,
        FY_DTYPE_LIST(X)
#undef X
    };
    const int32_t dtype = fy__cuda_main_dtype(family, launch);
    const char *name = (uint32_t)dtype < FY_DTYPE_COUNT ? dtypes[dtype] : "an unknown dtype";
    if (launch->op >= FY_OP_BUILTIN_COUNT)
        return FY__CUDA_FAIL(FY_STATUS_UNSUPPORTED, "op %u is registered without a kernel for cuda",
                             (unsigned)launch->op);
    return FY__CUDA_FAIL(FY_STATUS_UNSUPPORTED, "%s has no cuda kernel for %s: %s",
                         fy__cuda_op_name(launch->op), name,
                         family->why != NULL ? family->why : "the op table promises none");
}

fy_status_t fy__cuda_launch(void *handle, void *stream_handle, const fy_launch_t *launch)
{
    fy__cuda_device_t *dev = handle;
    fy__cuda_stream_t *stream = stream_handle;
    const fy__cuda_family_t *family = fy__cuda_family_of(launch->op);
    fy__cuda_request_t request;
    fy__cuda_frame_t frame;
    fy_status_t status;
    if (launch->kernel == NULL && !takes(family, launch)) return refuse(family, launch);
    if (launch->kernel == NULL && launch->nelem == 0 && !family->when_empty) return FY_STATUS_OK;
    FY_TRY(fy__cuda_enter(dev, &frame));
    if (launch->kernel != NULL) {
        status = launch->kernel(launch, stream->handle);
    } else if (family->run != NULL) {
        status = family->run(dev, stream->handle, launch);
    } else if (family->pack_several != NULL) {
        status = fy__cuda_submit_several(dev, stream->handle, launch, family->pack_several);
    } else {
        family->pack(launch, &request);
        status = fy__cuda_submit(dev, stream->handle, &request);
    }
    fy__cuda_leave(&frame);
    if (status == FY_STATUS_OK) fy__cuda_recent_add(stream->trail, launch->op, launch->nelem);
    return status;
}

int fy__cuda_supports(void *handle, const fy_launch_t *launch)
{
    const fy__cuda_device_t *dev = handle;
    const fy__cuda_family_t *family = fy__cuda_family_of(launch->op);
    if (launch->kernel != NULL) return 1;
    if (!takes(family, launch)) return 0;
    return !family->uses_lt || !dev->wants_lt || fy__cuda_lt_load() == FY_STATUS_OK;
}

int fy__cuda_chain(void *handle, const fy_launch_t *launch)
{
    (void)handle;
    return fy__cuda_chain_check(launch);
}

uint64_t fy__cuda_workspace(void *handle, const fy_launch_t *launch, uint64_t limit)
{
    const fy__cuda_family_t *family = fy__cuda_family_of(launch->op);
    if (launch->nelem == 0 || launch->kernel != NULL || limit == 0) return 0;
    if (family->pack_several != NULL)
        return fy__cuda_several_workspace(handle, launch, limit, family->pack_several);
    if (family->workspace == NULL) return 0;
    return family->workspace(handle, launch, limit);
}
