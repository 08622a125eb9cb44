/* Work: a copy, a fill or a launch is checked, its device addresses become the bytes behind them,
 * the clock gives it its times, and it runs at once or goes into its stream's queue. A request that
 * is refused has cost no model time. A kernel that fails has.
 * Not here: durations (profile.c), addresses (memory.c), running (order.c, queue.c). */
#include <inttypes.h>
#include <stdlib.h>

#include "backends/cuda/chain_rules.h"
#include "backends/kernels/kernels.h"
#include "backends/kernels/threads.h"
#include "backends/sim/sim.h"
#include "backends/sim/stream.h"

/* What the clock needs to know about a request. */
typedef struct cost {
    uint64_t submit_ns, duration_ns;
    int nplaces;
    fy__sim_place_t places[2];
    bool blocks_host; /* until the end */
} cost_t;

/* Start and end of this thread's last request to `dev`. A separate function, so that the caller
 * keeps no vector register across the TLS access (docs/decisions/0015-tls-descriptors.md). */
static __attribute__((noinline)) fy__sim_span_t *last_span(const fy__sim_device_t *dev)
{
    static __thread fy__sim_span_t spans[FY__SIM_DEVICE_COUNT];
    return &spans[dev->index];
}

void fy__sim_work_span(void *dev, uint64_t *out_start_ns, uint64_t *out_end_ns)
{
    const fy__sim_span_t *span = last_span(dev);
    *out_start_ns = span->start_ns;
    *out_end_ns = span->end_ns;
}

/* What the device's script has for this request. */
static fy_status_t strike(fy__sim_device_t *dev, fy__sim_request_t *request, uint64_t *out_slow_ns)
{
    uint64_t struck = fy__sim_device_strikes(dev, FY__SIM_FAULT_LOST, NULL);
    if (struck > 0) {
        fy__sim_device_lose(dev, "its faults= says so at request %" PRIu64 ", %s", struck,
                            fy__sim_request_name(request));
        fy__sim_queue_finish(dev, false);
        return fy__sim_device_check(dev);
    }
    (void)fy__sim_device_strikes(dev, FY__SIM_FAULT_SLOW, out_slow_ns);
    if (request->kind == FY__SIM_LAUNCH &&
        (struck = fy__sim_device_strikes(dev, FY__SIM_FAULT_LAUNCH, NULL)) > 0)
        return FY__SIM_FAIL(FY_STATUS_INTERNAL,
                            "%s: launch %" PRIu64 ", %s, fails, as the device's faults= says",
                            dev->name, struck, fy__sim_launch_name(&request->launch));
    if (request->kind == FY__SIM_COPY && request->copy.kind != FY_COPY_LOCAL)
        request->copy.fails = fy__sim_device_strikes(dev, FY__SIM_FAULT_COPY, NULL) > 0;
    return FY_STATUS_OK;
}

/* A failing kernel refuses its launch. A failing copy without a flag loses the device, as deferred
 * copies do. */
static fy_status_t run_now(fy__sim_device_t *dev, const fy__sim_request_t *request)
{
    fy_status_t status = fy__sim_request_run(request);
    if (status == FY_STATUS_OK || request->kind != FY__SIM_COPY) return status;
    fy__sim_device_lose(dev, "request %" PRIu64 ", %s, failed when it ran and has no flag to raise",
                        request->number, fy__sim_request_name(request));
    return fy__sim_device_check(dev);
}

/* *out_submitted (may be NULL, false before): the request is on its way, whatever came of it. */
static fy_status_t submit(fy__sim_device_t *dev, fy__sim_stream_t *stream, const cost_t *cost,
                          fy__sim_request_t *request, bool *out_submitted)
{
    fy_status_t status = FY_STATUS_OK;
    uint64_t position = 0;
    fy__sim_item_t *item = NULL;
    uint64_t slow_ns = 0, duration_ns = cost->duration_ns;
    request->dev = dev;
    request->number = atomic_fetch_add(&dev->nrequests, 1) + 1;
    FY_TRY(strike(dev, request, &slow_ns));
    duration_ns = duration_ns > UINT64_MAX - slow_ns ? UINT64_MAX : duration_ns + slow_ns;
    if (stream->queue && !(item = fy__sim_item_create(request)))
        return FY__SIM_FAIL(FY_STATUS_OUT_OF_MEMORY, "%s: no host memory to keep a request",
                            dev->name);
    pthread_mutex_lock(&stream->lock);
    request->span = fy__sim_clock_submit(cost->submit_ns, stream->ready_ns, cost->nplaces,
                                         cost->places, duration_ns);
    stream->ready_ns = request->span.end_ns;
    if (item)
        position = fy__sim_queue_push(stream->queue, item, request->span);
    else
        status = run_now(dev, request);
    pthread_mutex_unlock(&stream->lock);
    *last_span(dev) = request->span;
    if (out_submitted) *out_submitted = true;
    if (!cost->blocks_host) return status;
    fy__sim_clock_wait(request->span.end_ns, UINT64_MAX, dev->profile->wake_ns);
    if (!item) return status;
    fy__sim_queue_run_to(stream->queue, position);
    return fy__sim_device_check(dev);
}

/* ---- copies ---- */

/* Logs once per device that there are no values to read, but not for the devices of plans, which
 * overcommit. No lock is held: the log function may call Ferry. */
static void say_zero(fy__sim_device_t *dev)
{
    if (!dev->numerics && !dev->memory.overcommits && !atomic_exchange(&dev->said_zero, true))
        fy__sim_host->log(FY_LOG_WARNING,
                          "%s: numerics=off, so whatever is downloaded from it reads zero",
                          dev->name);
}

/* A driver stages a copy with pageable memory itself and holds the caller until that is done. */
static void cost_link(fy__sim_device_t *dev, const fy_copy_t *copy, fy__sim_engine_t engine,
                      cost_t *out_cost)
{
    *out_cost = (cost_t){
        .submit_ns = dev->profile->copy_submit_ns,
        .duration_ns = fy__sim_profile_link_ns(dev->profile, copy->host_pinned, copy->nbytes),
        .nplaces = 1,
        .places = { { &dev->engines, engine } },
        .blocks_host = !copy->host_pinned,
    };
}

/* Reads and writes the device's memory, by a kernel. */
static void cost_local(fy__sim_device_t *dev, uint64_t nbytes, cost_t *out_cost)
{
    *out_cost = (cost_t){
        .submit_ns = dev->profile->launch_submit_ns,
        .duration_ns = fy__sim_profile_memory_ns(dev->profile,
                                                 nbytes > UINT64_MAX / 2 ? UINT64_MAX : 2 * nbytes),
        .nplaces = 1,
        .places = { { &dev->engines, FY__SIM_COMPUTE } },
    };
}

/* Leaves one device by its download engine and enters the other by its upload engine. */
static void cost_peer(const fy__sim_device_t *dev, fy__sim_device_t *from, fy__sim_device_t *to,
                      uint64_t nbytes, cost_t *out_cost)
{
    *out_cost = (cost_t){
        .submit_ns = dev->profile->copy_submit_ns,
        .duration_ns = fy__sim_profile_peer_ns(from->profile, to->profile, nbytes),
        .nplaces = 2,
        .places = { { &from->engines, FY__SIM_DOWNLOAD }, { &to->engines, FY__SIM_UPLOAD } },
    };
}

fy_status_t fy__sim_work_copy(void *dev_, void *stream, const fy_copy_t *copy)
{
    fy__sim_device_t *dev = dev_, *from = dev, *to = dev;
    fy__sim_request_t request = { .kind = FY__SIM_COPY,
                                  .copy = { .kind = copy->kind,
                                            .dst_address = copy->dst,
                                            .src_address = copy->src,
                                            .dst = copy->dst,
                                            .src = copy->src,
                                            .nbytes = copy->nbytes,
                                            .fault = copy->fault,
                                            .is_pinned = copy->host_pinned != 0 } };
    cost_t cost;
    void *bytes;
    FY_TRY(fy__sim_device_check(dev));
    switch (copy->kind) {
    case FY_COPY_UPLOAD:
        FY_TRY(
            fy__sim_memory_check_host(dev, "upload", copy->src, copy->nbytes, copy->host_pinned));
        FY_TRY(fy__sim_memory_find(dev, (fy__sim_use_t){ "upload", "dst", -1 }, copy->dst,
                                   copy->nbytes, &request.copy.dst));
        cost_link(dev, copy, FY__SIM_UPLOAD, &cost);
        break;
    case FY_COPY_DOWNLOAD:
        FY_TRY(
            fy__sim_memory_check_host(dev, "download", copy->dst, copy->nbytes, copy->host_pinned));
        FY_TRY(fy__sim_memory_find(dev, (fy__sim_use_t){ "download", "src", -1 }, copy->src,
                                   copy->nbytes, &bytes));
        request.copy.src = bytes;
        cost_link(dev, copy, FY__SIM_DOWNLOAD, &cost);
        say_zero(dev);
        break;
    case FY_COPY_LOCAL:
        FY_TRY(fy__sim_memory_find(dev, (fy__sim_use_t){ "local copy", "dst", -1 }, copy->dst,
                                   copy->nbytes, &request.copy.dst));
        FY_TRY(fy__sim_memory_find(dev, (fy__sim_use_t){ "local copy", "src", -1 }, copy->src,
                                   copy->nbytes, &bytes));
        request.copy.src = bytes;
        cost_local(dev, copy->nbytes, &cost);
        break;
    case FY_COPY_PEER:
        FY_TRY(fy__sim_memory_find_any((fy__sim_use_t){ "peer copy", "dst", -1 }, copy->dst,
                                       copy->nbytes, &request.copy.dst, &to));
        FY_TRY(fy__sim_memory_find_any((fy__sim_use_t){ "peer copy", "src", -1 }, copy->src,
                                       copy->nbytes, &bytes, &from));
        request.copy.src = bytes;
        if (from == to || (from != dev && to != dev))
            return FY__SIM_FAIL(
                FY_STATUS_INVALID_ARGUMENT,
                "peer copy on a stream of %s: from %s to %s; one of two ends must be %s", dev->name,
                from->name, to->name, dev->name);
        cost_peer(dev, from, to, copy->nbytes, &cost);
        break;
    default:
        return FY__SIM_FAIL(FY_STATUS_INVALID_ARGUMENT, "%s: there is no copy kind %d", dev->name,
                            (int)copy->kind);
    }
    bool submitted = false;
    fy_status_t status = submit(dev, stream, &cost, &request, &submitted);
    if (submitted && copy->kind != FY_COPY_LOCAL) fy__sim_host->record(copy->kind, copy->nbytes);
    return status;
}

fy_status_t fy__sim_work_fill(void *dev_, void *stream, void *address, int value, uint64_t nbytes)
{
    fy__sim_device_t *dev = dev_;
    fy__sim_request_t request = {
        .kind = FY__SIM_FILL, .fill = { .dst_address = address, .value = value, .nbytes = nbytes }
    };
    FY_TRY(fy__sim_device_check(dev));
    FY_TRY(fy__sim_memory_find(dev, (fy__sim_use_t){ "fill", "dst", -1 }, address, nbytes,
                               &request.fill.dst));
    cost_t cost = {
        .submit_ns = dev->profile->launch_submit_ns,
        .duration_ns = fy__sim_profile_memory_ns(dev->profile, nbytes),
        .nplaces = 1,
        .places = { { &dev->engines, FY__SIM_COMPUTE } },
    };
    return submit(dev, stream, &cost, &request, NULL);
}

/* ---- launches ---- */

/* Points `desc`, the request's own copy, at the bytes. An operand without elements keeps whatever
 * address it has. */
static fy_status_t translate(fy__sim_device_t *dev, fy__sim_use_t use, fy_desc_t *desc)
{
    uint64_t before = 0, nbytes = fy__sim_desc_extent(desc, &before);
    if (nbytes == 0) return FY_STATUS_OK;
    void *bytes;
    FY_TRY(fy__sim_memory_find_operand(dev, use, (char *)desc->data - before, nbytes, &bytes));
    if (bytes) desc->data = (char *)bytes + before;
    return FY_STATUS_OK;
}

/* Makes `launch` the request's own: `descs` has room for all its descriptors. launch->fault is host
 * memory and stays. */
static fy_status_t translate_launch(fy__sim_device_t *dev, const fy_launch_t *launch,
                                    fy_desc_t *descs, fy_launch_t *out_launch)
{
    const char *op = fy__sim_launch_name(launch);
    *out_launch = *launch;
    out_launch->dst = descs;
    out_launch->src = descs + launch->ndst;
    for (int i = 0; i < launch->ndst; i++) {
        out_launch->dst[i] = launch->dst[i];
        FY_TRY(translate(dev, (fy__sim_use_t){ op, "dst", i }, &out_launch->dst[i]));
    }
    for (int i = 0; i < launch->nsrc; i++) {
        out_launch->src[i] = launch->src[i];
        FY_TRY(translate(dev, (fy__sim_use_t){ op, "src", i }, &out_launch->src[i]));
    }
    if (launch->workspace_nbytes == 0) return FY_STATUS_OK;
    return fy__sim_memory_find(dev, (fy__sim_use_t){ op, "workspace", -1 }, launch->workspace,
                               launch->workspace_nbytes, &out_launch->workspace);
}

static fy_dtype_t arithmetic_dtype(const fy_launch_t *launch)
{
    if (launch->nsrc > 0) return (fy_dtype_t)launch->src[0].dtype;
    return launch->ndst > 0 ? (fy_dtype_t)launch->dst[0].dtype : FY_DTYPE_F32;
}

fy_status_t fy__sim_work_launch(void *dev_, void *stream, const fy_launch_t *launch)
{
    fy__sim_device_t *dev = dev_;
    FY_TRY(fy__sim_device_check(dev));
    /* asked here, so that numerics=off refuses what a real run would */
    if (!fy__sim_work_supports(dev, launch))
        return FY__SIM_FAIL(FY_STATUS_UNSUPPORTED,
                            "%s: no kernel for %s with these dtypes and layouts", dev->name,
                            fy__sim_launch_name(launch));

    fy_desc_t few[8], *descs = few;
    size_t ndescs = (size_t)launch->ndst + launch->nsrc;
    if (ndescs > sizeof(few) / sizeof(few[0])) {
        descs = malloc(ndescs * sizeof(*descs));
        if (!descs)
            return FY__SIM_FAIL(FY_STATUS_OUT_OF_MEMORY,
                                "%s: no host memory for the %zu operands of %s", dev->name, ndescs,
                                fy__sim_launch_name(launch));
    }
    fy__sim_request_t request = { .kind = FY__SIM_LAUNCH };
    cost_t cost = {
        .submit_ns = dev->profile->launch_submit_ns,
        .duration_ns = fy__sim_profile_launch_ns(dev->profile, arithmetic_dtype(launch),
                                                 launch->flops, launch->nbytes),
        .nplaces = 1,
        .places = { { &dev->engines, FY__SIM_COMPUTE } },
    };
    fy_status_t status = translate_launch(dev, launch, descs, &request.launch);
    if (status == FY_STATUS_OK) status = submit(dev, stream, &cost, &request, NULL);
    if (descs != few) free(descs);
    return status;
}

int fy__sim_work_supports(void *dev, const fy_launch_t *launch)
{
    (void)dev;
    if (launch->kernel || fy__sim_is_scatter(launch)) return 1;
    return (launch->op < FY_OP_BUILTIN_COUNT || launch->op == FY_LAUNCH_CHAIN) &&
           fy__kernels_supports(launch);
}

int fy__sim_work_chain(void *dev, const fy_launch_t *launch)
{
    int answer = FY_CHAIN_TAKEN;
    if (((const fy__sim_device_t *)dev)->chains_of_cuda) answer = fy__cuda_chain_check(launch);
    if (answer != FY_CHAIN_TAKEN) return answer;
    return fy__sim_work_supports(dev, launch) ? FY_CHAIN_TAKEN : FY_CHAIN_TOO_LARGE;
}

uint64_t fy__sim_work_workspace(void *dev, const fy_launch_t *launch, uint64_t limit)
{
    const int threads = ((const fy__sim_device_t *)dev)->threads; /* scratch may depend on it */
    if (launch->kernel) return 0;
    if (threads == FY__THREADS_INHERIT) return fy__kernels_workspace(launch, limit);
    const int before = fy__threads_override(threads);
    const uint64_t nbytes = fy__kernels_workspace(launch, limit);
    (void)fy__threads_override(before);
    return nbytes;
}
