/* Builds packed runs, and submits the two launches that unpack them. */
#include "transfer/packed.h"

#include <string.h>

#include "runtime/base/fail.h"

/* Entry number i while the table grows down from the end. */
static fy_packed_entry_t *growing(const fy__run_t *run, uint32_t i)
{
    return (fy_packed_entry_t *)(void *)(run->bytes + run->room) - 1 - i;
}

bool fy__run_fits(const fy__run_t *run, uint64_t nbytes)
{
    return run->nbytes + fy__run_rounded(nbytes) +
               (run->packed.count + UINT64_C(1)) * sizeof(fy_packed_entry_t) <=
           run->room;
}

void fy__run_add(fy__run_t *run, const void *address, uint64_t nbytes)
{
    *growing(run, run->packed.count++) =
        (fy_packed_entry_t){ (uint64_t)(uintptr_t)address, run->nbytes, nbytes };
    run->nbytes += fy__run_rounded(nbytes);
    run->payload_nbytes += nbytes;
}

fy_packed_entry_t *fy__run_close(fy__run_t *run)
{
    const uint32_t count = run->packed.count;
    for (uint32_t i = 0; i < count / 2; i++) { /* the last added entry is first: reverse them */
        const fy_packed_entry_t entry = *growing(run, i);
        *growing(run, i) = *growing(run, count - 1 - i);
        *growing(run, count - 1 - i) = entry;
    }
    run->packed.table_offset = run->nbytes;
    fy_packed_entry_t *table = (fy_packed_entry_t *)(void *)(run->bytes + run->nbytes);
    memmove(table, growing(run, count - 1), count * sizeof *table);
    run->nbytes += count * sizeof *table;
    return table;
}

static fy_desc_t bytes_at(const void *address, uint64_t nbytes)
{
    return (fy_desc_t){ .data = (void *)(uintptr_t)address,
                        .dtype = FY_DTYPE_U8,
                        .rank = 1,
                        .dims = { (int64_t)nbytes },
                        .strides = { 1 } };
}

fy_status_t fy__run_launch(fy_device_t *device, fy_stream_t *stream, fy_op_t op, void *dst,
                           uint64_t dst_nbytes, const void *src, uint64_t src_nbytes,
                           const fy__run_t *run)
{
    fy_desc_t descs[2] = { bytes_at(dst, dst_nbytes), bytes_at(src, src_nbytes) };
    const fy_launch_t launch = {
        .struct_size = sizeof launch,
        .op = op,
        .nsrc = 1,
        .ndst = op == FY_LAUNCH_GATHER,
        .dst = &descs[0],
        .src = &descs[1],
        .attrs = &run->packed,
        .attrs_nbytes = sizeof run->packed,
        .nelem = run->payload_nbytes,
        .nbytes = 2 * run->payload_nbytes + run->packed.count * sizeof(fy_packed_entry_t),
    };
    return fy__device_check(
        device, device->backend->launch(device->dev, stream ? stream->native : NULL, &launch));
}

static bool is_supported(fy_device_t *device)
{
    fy_desc_t descs[2] = { bytes_at(NULL, 0), bytes_at(NULL, 0) };
    const fy_packed_t packed = { 0, 0 };
    const fy_launch_t launch = {
        .struct_size = sizeof launch,
        .op = FY_LAUNCH_SCATTER,
        .nsrc = 1,
        .dst = &descs[0],
        .src = &descs[1],
        .attrs = &packed,
        .attrs_nbytes = sizeof packed,
    };
    return !device->backend->supports || device->backend->supports(device->dev, &launch);
}

uint64_t fy__run_largest(fy_device_t *device)
{
    return !device->synchronous && is_supported(device) ? FY__COALESCE_NBYTES : 0;
}

fy_status_t fy__run_limit(fy_device_t *device, size_t npacked, uint64_t *largest_nbytes)
{
    uint64_t slot_nbytes;
    if (npacked < 2) *largest_nbytes = 0;
    if (!*largest_nbytes) return FY_STATUS_OK;
    FY_TRY(fy__ring_slot_nbytes(device, &slot_nbytes));
    while (*largest_nbytes > slot_nbytes / 4) *largest_nbytes /= 2;
    return FY_STATUS_OK;
}
