/* Converts dtype and layout of bytes on their device. */
#include "transfer/convert.h"

#include "runtime/record/recording.h"

void fy__end_of(const fy_tensor_t *tensor, fy__end_t *out_end)
{
    out_end->storage = tensor->storage;
    out_end->contiguous = tensor->contiguous;
    fy__tensor_desc(tensor, &out_end->desc);
}

void fy__end_dense(const fy_tensor_t *shape, fy_dtype_t dtype, fy__storage_t *storage,
                   fy__end_t *out_end)
{
    int64_t stride = 1;
    fy__tensor_desc(shape, &out_end->desc);
    for (int i = shape->rank - 1; i >= 0; i--) {
        out_end->desc.strides[i] = stride;
        stride *= shape->dims[i] ? shape->dims[i] : 1;
    }
    out_end->desc.dtype = (int32_t)dtype;
    out_end->desc.data = storage->data;
    out_end->storage = storage;
    out_end->contiguous = true;
}

/* Submits to the device; or, with a recording, appends to it. */
static fy_status_t launch(fy_device_t *device, fy_stream_t *stream, fy__recording_t *recording,
                          const fy__end_t *dst, const fy__end_t *src, uint64_t nelem)
{
    const fy_cast_attrs_t attrs = { dst->desc.dtype };
    const bool cast = dst->desc.dtype != src->desc.dtype;
    fy_desc_t descs[2] = { dst->desc, src->desc };
    const fy_launch_t record = {
        .struct_size = sizeof record,
        .op = cast ? FY_OP_CAST : FY_OP_COPY,
        .nsrc = 1,
        .ndst = 1,
        .flags = dst->contiguous && src->contiguous ? FY_LAUNCH_DENSE : 0,
        .dst = &descs[0],
        .src = &descs[1],
        .attrs = cast ? &attrs : NULL,
        .attrs_nbytes = cast ? sizeof attrs : 0,
        .nelem = nelem,
        .flops = nelem,
        .nbytes = nelem *
                  (fy__dtype_sizes[dst->desc.dtype] + (uint64_t)fy__dtype_sizes[src->desc.dtype]),
    };
    if (recording) {
        uint32_t *slots;
        FY_TRY(fy__recording_slots(recording, 2, &slots));
        FY_TRY(fy__recording_slot(recording, dst->storage, true, &slots[0]));
        FY_TRY(fy__recording_slot(recording, src->storage, false, &slots[1]));
        return fy__recording_launch(recording, &record, slots, 0, NULL);
    }
    FY_TRY(fy__device_check(
        device, device->backend->launch(device->dev, stream ? stream->native : NULL, &record)));
    if (!stream) fy__charge_host(record.flops, record.nbytes);
    return FY_STATUS_OK;
}

fy_status_t fy__convert_launch(fy_device_t *device, fy_stream_t *stream, const fy__end_t *dst,
                               const fy__end_t *src, uint64_t nelem)
{
    return launch(device, stream, NULL, dst, src, nelem);
}

fy_status_t fy__convert(fy_device_t *device, fy_stream_t *stream, const fy__end_t *dst,
                        const fy__end_t *src, uint64_t nelem)
{
    fy__thread_t *thread = fy__thread();
    fy__recording_t *recording = thread ? fy__recording_of(thread, device) : NULL;
    if (recording || !stream) return launch(device, stream, recording, dst, src, nelem);
    FY_TRY(fy__hazard_before_read(&src->storage->hazard, stream, FY__WAIT_CONVERT_READ));
    FY_TRY(fy__hazard_before_write(&dst->storage->hazard, stream, FY__WAIT_CONVERT_WRITE));
    FY_TRY(fy__convert_launch(device, stream, dst, src, nelem));
    const fy__point_t point = fy__stream_submitted_anchored(stream);
    fy__hazard_read(&src->storage->hazard, stream, point);
    fy__hazard_written(&dst->storage->hazard, point);
    return FY_STATUS_OK;
}
