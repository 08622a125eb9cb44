/* The simulated accelerator: the seam's table. It computes with the host's kernels on memory that
 * host code cannot touch, and computes, rather than measures, how long a real accelerator would
 * take.
 * Not here: everything else; README.md is the map. */
#include "backends/sim/sim.h"

#include "backends/builtin.h"

const fy_host_api_t *fy__sim_host;

static const fy_backend_t backend = {
    .struct_size = sizeof(fy_backend_t),
    .abi = FY_BACKEND_ABI,
    .name = "sim",
    .is_synchronous = 0,
    .device_count = fy__sim_device_count,
    .device_open = fy__sim_device_open,
    .device_close = fy__sim_device_close,
    .device_query = fy__sim_device_query,
    .alloc = fy__sim_memory_alloc,
    .free = fy__sim_memory_free,
    .resize = fy__sim_memory_resize,
    .register_host = fy__sim_memory_register_host,
    .unregister_host = fy__sim_memory_unregister_host,
    .stream_create = fy__sim_stream_create,
    .stream_destroy = fy__sim_stream_destroy,
    .event_create = fy__sim_event_create,
    .event_destroy = fy__sim_event_destroy,
    .event_record = fy__sim_event_record,
    .event_wait = fy__sim_event_wait,
    .event_query = fy__sim_event_query,
    .event_sync = fy__sim_event_sync,
    .copy = fy__sim_work_copy,
    .fill = fy__sim_work_fill,
    .launch = fy__sim_work_launch,
    .supports = fy__sim_work_supports,
    .workspace = fy__sim_work_workspace,
    .clock = fy__sim_device_clock,
    .host_work = fy__sim_device_host_work,
    .host_copy = fy__sim_device_host_copy,
    .event_peek = fy__sim_event_peek,
    .request_span = fy__sim_work_span,
    .describe = fy__sim_device_describe,
    .chain = fy__sim_work_chain,
    .host_clock = fy__sim_clock_now,
    .adopt = fy__sim_memory_adopt,
    .disown = fy__sim_memory_free,
};

fy_status_t fy__backend_sim_open(const fy_host_api_t *host, uint32_t abi,
                                 const fy_backend_t **out_backend)
{
    *out_backend = NULL;
    if (abi != FY_BACKEND_ABI)
        return host->fail(FY_STATUS_UNSUPPORTED, __FILE__, __LINE__,
                          "sim speaks backend ABI %u, not %u", FY_BACKEND_ABI, abi);
    /* every open of a device calls this, while other devices are in use */
    if (!fy__sim_host) fy__sim_host = host;
    *out_backend = &backend;
    return FY_STATUS_OK;
}
