/* Queries of a device, and the handling of its loss. */
#include "runtime/device/device.h"

#include <stdio.h>
#include <string.h>

#include "runtime/base/abi_structs.h"
#include "runtime/base/fail.h"
#include "runtime/order/stream.h"
#include "runtime/record/event.h"
#include "runtime/record/notes.h"
#include "runtime/record/recording.h"
#include "runtime/tensor/storage.h"
#include "runtime/thread/guard.h"

_Atomic uint64_t fy__watch;

/* The first device with a model clock, now in use by the caller; NULL if there is none. All share
 * one host clock, so one of them suffices. */
static fy_device_t *use_timed(void)
{
    for (uint32_t i = 1; i < FY__MAX_DEVICES; i++) {
        fy_device_t *device = fy__device_use_at(i);
        if (!device) continue;
        if (device->backend->host_work && !fy__device_is_lost(device)) return device;
        fy__device_unuse(device);
    }
    return NULL;
}

void fy__charge_host_slow(uint64_t flops, uint64_t nbytes)
{
    fy_device_t *device = use_timed();
    if (!device) return;
    device->backend->host_work(device->dev, flops, nbytes);
    fy__device_unuse(device);
}

void fy__charge_host_copy_slow(uint64_t nbytes)
{
    fy_device_t *device = use_timed();
    if (!device) return;
    if (device->backend->host_copy)
        device->backend->host_copy(device->dev, nbytes);
    else
        device->backend->host_work(device->dev, 0, nbytes);
    fy__device_unuse(device);
}

FY_COLD fy_status_t fy__device_lost_error(const fy_device_t *device)
{
    if (atomic_load(&device->lost) == FY__LOST_BY_FORK)
        return FY_FAIL(DEVICE_LOST,
                       "%s was opened before this process forked; a child has the host only\n  "
                       "Open it in the child, under another number",
                       device->spec);
    const bool told = atomic_load_explicit(&device->lost_told, memory_order_acquire);
    return FY_FAIL(DEVICE_LOST,
                   "%s is lost; host tensors stay readable\n  Destroy its tensors, close it and "
                   "open it again%s%s",
                   device->spec, told ? "\n  First failure: " : "", told ? device->lost_text : "");
}

fy_status_t fy__device_check(fy_device_t *device, fy_status_t status)
{
    /* the host is never lost, even if a kernel returns DEVICE_LOST */
    if (FY_UNLIKELY(status == FY_STATUS_DEVICE_LOST) && !device->is_host) {
        int present = FY__PRESENT;
        if (atomic_compare_exchange_strong(&device->lost, &present, FY__LOST)) {
            snprintf(device->lost_text, sizeof device->lost_text, "%s", fy_error_get()->text);
            atomic_store_explicit(&device->lost_told, true, memory_order_release);
            FY__EVENT(fy__event_fault(status, fy_error_get()->text));
            fy__note(status, fy_error_get()->text);
            fy_log_write(FY_LOG_ERROR, "%s is lost: %s", device->spec, fy_error_get()->text);
        }
    }
    return status;
}

fy_status_t fy_device_query(const fy_device_t *device, fy_device_info_t *out_info)
{
    fy_device_info_t info = FY_DEVICE_INFO_INIT;
    fy_backend_info_t now;
    FY_TRY(FY__CHECK_OUT(device_info, "device_query", out_info));
    if (!device) return FY_FAIL(INVALID_ARGUMENT, "device_query: device is NULL");
    if (fy__device_is_lost(device)) return fy__device_lost_error(device);
    FY_TRY(
        fy__device_check((fy_device_t *)device, device->backend->device_query(device->dev, &now)));
    snprintf(info.spec, sizeof info.spec, "%s", device->spec);
    snprintf(info.model, sizeof info.model, "%s", now.model);
    snprintf(info.backend, sizeof info.backend, "%s", device->backend->name);
    info.memory_nbytes = now.memory_nbytes;
    info.free_nbytes = now.free_nbytes;
    info.limit_nbytes = device->limit_nbytes;
    info.workspace_nbytes = device->workspace_nbytes;
    info.is_host = device->is_host;
    info.is_simulated = now.is_simulated;
    info.numerics = now.numerics;
    FY__WRITE(out_info, &info);
    return FY_STATUS_OK;
}

fy_status_t fy_device_describe(const fy_device_t *device, fy_fact_fn say, void *user)
{
    if (!device || !say)
        return FY_FAIL(INVALID_ARGUMENT, "device_describe: %s is NULL", device ? "say" : "device");
    if (fy__device_is_lost(device)) return fy__device_lost_error(device);
    if (!device->backend->describe) return FY_STATUS_OK;
    return fy__device_check((fy_device_t *)device,
                            device->backend->describe(device->dev, say, user));
}

const char *fy_device_name(const fy_device_t *device) { return device ? device->spec : ""; }

fy_status_t fy_device_clock_query(const fy_device_t *device, fy_device_clock_t *out_clock)
{
    fy_device_clock_t clock = FY_DEVICE_CLOCK_INIT;
    FY_TRY(FY__CHECK_OUT(device_clock, "device_clock_query", out_clock));
    if (!device) return FY_FAIL(INVALID_ARGUMENT, "device_clock_query: device is NULL");
    if (fy__device_is_lost(device)) return fy__device_lost_error(device);
    if (device->backend->clock) {
        fy_backend_clock_t model;
        device->backend->clock(device->dev, &model);
        clock.kind = FY_CLOCK_MODEL;
        clock.now_ns = model.now_ns;
        clock.compute_ns = model.compute_ns;
        clock.upload_ns = model.upload_ns;
        clock.download_ns = model.download_ns;
    } else
        clock.now_ns = fy__now_ns();
    FY__WRITE(out_clock, &clock);
    return FY_STATUS_OK;
}

void fy__device_pump_slow(fy_device_t *device)
{
    for (int i = 0; i < 2; i++) {
        fy_stream_t *jobs = atomic_load_explicit(&device->jobs[i], memory_order_acquire);
        if (jobs) atomic_load(&jobs->timeline)->pump(jobs);
    }
}

void fy__device_flush(fy_device_t *device)
{
    for (int i = 0; i < 2; i++) {
        fy_stream_t *jobs = atomic_load_explicit(&device->jobs[i], memory_order_acquire);
        if (jobs) atomic_load(&jobs->timeline)->flush(jobs);
    }
}

uint64_t fy__device_now_ns(fy_device_t *device)
{
    fy_backend_clock_t model;
    if (!device->backend->clock || fy__device_is_lost(device)) return fy__now_ns();
    device->backend->clock(device->dev, &model);
    return model.now_ns;
}

uint64_t fy__device_left_ns(fy_device_t *device, uint64_t timeout_ns, uint64_t start_ns)
{
    if (timeout_ns == FY_FOREVER) return timeout_ns;
    const uint64_t spent_ns = fy__device_now_ns(device) - start_ns;
    return spent_ns < timeout_ns ? timeout_ns - spent_ns : 0;
}

fy_status_t fy__device_drain(fy_device_t *device, uint64_t timeout_ns)
{
    const uint64_t start_ns = fy__device_now_ns(device);
    /* queued transfers first: then the engines' streams know when they are done */
    for (int i = 0; i < 2; i++) {
        fy_stream_t *jobs = atomic_load_explicit(&device->jobs[i], memory_order_acquire);
        if (jobs)
            FY_TRY(atomic_load(&jobs->timeline)
                       ->drain(jobs, fy__device_left_ns(device, timeout_ns, start_ns)));
    }
    for (uint32_t i = 1; i < FY__MAX_STREAMS; i++) {
        fy_stream_t *stream = fy__stream_at(i);
        if (!stream) break;
        if (stream->device != device || atomic_load(&stream->timeline)) continue;
        const uint64_t left_ns = fy__device_left_ns(device, timeout_ns, start_ns);
        FY_TRY(fy__point_wait(
            FY__POINT(i, atomic_load_explicit(&stream->submitted, memory_order_acquire)), left_ns,
            FY__WAIT_DRAIN));
    }
    return FY_STATUS_OK;
}

fy_status_t fy_device_wait(fy_device_t *device, uint64_t timeout_ns)
{
    fy__thread_t *thread = fy__thread();
    uint64_t start_ns;
    if (!thread) return FY_STATUS_OUT_OF_MEMORY;
    if (!device) return FY_FAIL(INVALID_ARGUMENT, "device_wait: device is NULL");
    if (fy__device_is_lost(device)) return fy__device_lost_error(device);
    FY_TRY(fy__recording_check(thread, device, "device_wait"));
    const fy_stream_t *compute = device->compute;
    const fy__point_t last =
        compute ? FY__POINT(compute->index,
                            atomic_load_explicit(&compute->submitted, memory_order_acquire))
                : 0;
    FY_TRY(fy__sync_begin(thread, "device_wait", FY__WAIT_DRAIN, last, &start_ns));
    thread->in_device_wait = true;
    fy_status_t status = device->synchronous ? FY_STATUS_OK : fy__device_drain(device, timeout_ns);
    thread->in_device_wait = false;
    fy__storage_reap(device);
    if (status == FY_STATUS_OK) status = fy__faults_take(device, "device_wait");
    fy__sync_end(thread, start_ns);
    return status;
}

const char *fy_version(void) { return FERRY_VERSION; }
