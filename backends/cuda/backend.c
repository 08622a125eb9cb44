/* The plugin's one symbol and its table of slots. Opening the plugin touches no driver: that
 * happens when devices are counted, so that "no driver" is an explained refusal and not a plugin
 * that does not load. Start with driver.h, then device.h. */
#include "backends/cuda/device.h"
#include "backends/cuda/nccl.h"
#include "backends/cuda/nvtx.h"

static const fy_backend_t backend = {
    .struct_size = sizeof(fy_backend_t),
    .abi = FY_BACKEND_ABI,
    .name = "cuda",
    .device_count = fy__cuda_device_count,
    .device_open = fy__cuda_device_open,
    .device_close = fy__cuda_device_close,
    .device_query = fy__cuda_device_query,
    .alloc = fy__cuda_alloc,
    .free = fy__cuda_free,
    .resize = fy__cuda_resize,
    .register_host = fy__cuda_register_host,
    .unregister_host = fy__cuda_unregister_host,
    .stream_create = fy__cuda_stream_create,
    .stream_destroy = fy__cuda_stream_destroy,
    .event_create = fy__cuda_event_create,
    .event_destroy = fy__cuda_event_destroy,
    .event_record = fy__cuda_event_record,
    .event_wait = fy__cuda_event_wait,
    .event_query = fy__cuda_event_query,
    .event_sync = fy__cuda_event_sync,
    .copy = fy__cuda_copy,
    .copy_many = fy__cuda_copy_many,
    .all_reduce = fy__cuda_all_reduce,
    .fill = fy__cuda_fill,
    .launch = fy__cuda_launch,
    .supports = fy__cuda_supports,
    .workspace = fy__cuda_workspace,
    .describe = fy__cuda_describe,
    .graph_begin = fy__cuda_graph_begin,
    .graph_end = fy__cuda_graph_end,
    .graph_replay = fy__cuda_graph_replay,
    .graph_destroy = fy__cuda_graph_destroy,
    .ranges = fy__cuda_ranges,
    .regions = fy__cuda_regions,
    .stream_native = fy__cuda_stream_native,
    .adopt = fy__cuda_adopt,
    .disown = fy__cuda_disown,
    .chain = fy__cuda_chain,
    .native_event_record = fy__cuda_native_event_record,
    .native_event_wait = fy__cuda_native_event_wait,
    .native_timeline_signal = fy__cuda_native_timeline_signal,
    .native_timeline_wait = fy__cuda_native_timeline_wait,
    .communicator_id = fy__cuda_communicator_id,
    .communicator_open = fy__cuda_communicator_open,
    .communicator_test = fy__cuda_communicator_test,
    .communicator_call = fy__cuda_communicator_call,
    .communicator_close = fy__cuda_communicator_close,
};

FY_API fy_status_t fy_backend_open(const fy_host_api_t *host, uint32_t abi,
                                   const fy_backend_t **out_backend);

fy_status_t fy_backend_open(const fy_host_api_t *host, uint32_t abi,
                            const fy_backend_t **out_backend)
{
    *out_backend = NULL;
    fy__cuda.host = host;
    if (abi != FY_BACKEND_ABI || host->abi != FY_BACKEND_ABI)
        return FY__CUDA_FAIL(
            FY_STATUS_UNSUPPORTED,
            "the cuda plugin speaks backend ABI %u, this Ferry speaks %u: rebuild one of them",
            FY_BACKEND_ABI, abi);
    *out_backend = &backend;
    return FY_STATUS_OK;
}
