/* The hooks: each makes an event of its arguments and puts it. Called only while recording. */
#include "runtime/record/event_ring.h"

#include <stdio.h>
#include <string.h>

#include "runtime/order/stream.h"
#include "runtime/record/site.h"
#include "runtime/record/text.h"
#include "runtime/tensor/tensor.h"
#include "runtime/thread/guard.h"

static _Atomic uint64_t last_storage, last_op;
/* smaller ids are of an earlier recording and invalid in this file */
static _Atomic uint64_t first_storage;

void fy__event_forget(void) { atomic_store(&first_storage, atomic_load(&last_storage) + 1); }

_Atomic(fy__event_clock_fn) fy__event_clock;

fy__event_t fy__event_begin(fy__event_kind_t kind, const fy__thread_t *thread)
{
    const fy__event_clock_fn clock = atomic_load_explicit(&fy__event_clock, memory_order_acquire);
    return (fy__event_t){ .kind = (uint16_t)kind,
                          .thread = thread ? thread->number : 0,
                          .at_ns = fy__now_ns(),
                          .model_ns = clock ? clock() : FY__EVENT_NO_MODEL,
                          .scope = thread ? thread->node : NULL };
}

const char *fy__event_device_text(const fy_device_t *device)
{
    return device->spec_text ? device->spec_text : fy__text(device->spec);
}

void fy__event_span(fy__event_t *event, const fy_device_t *device)
{
    if (device->backend->request_span)
        device->backend->request_span(device->dev, &event->start_ns, &event->end_ns);
}

/* Several threads may name one storage at the same time: the first number stays. */
fy__event_bytes_t fy__event_bytes(const fy__event_t *event, const fy__storage_t *storage)
{
    if (!storage) return (fy__event_bytes_t){ 0, 0, 0 };
    _Atomic uint64_t *id = &((fy__storage_t *)(uintptr_t)storage)->event_id;
    const uint64_t first = atomic_load(&first_storage),
                   version = atomic_load_explicit(&storage->version, memory_order_relaxed);
    uint64_t held = atomic_load_explicit(id, memory_order_relaxed);
    if (held >= first) return (fy__event_bytes_t){ held, 0, version };
    const uint64_t mine = atomic_fetch_add(&last_storage, 1) + 1;
    if (!atomic_compare_exchange_strong(id, &held, mine))
        return (fy__event_bytes_t){ held, 0, version };
    fy__event_t made = { .kind = FY__EVENT_STORAGE,
                         .thread = event->thread,
                         .at_ns = event->at_ns,
                         .model_ns = event->model_ns,
                         .scope = event->scope,
                         .device = fy__event_device_text(storage->device),
                         .nbytes = storage->nbytes };
    made.u.storage.id = mine;
    made.u.storage.block = storage->block ? storage->block->id : 0;
    made.u.storage.pinned = storage->pinned;
    fy__event_put(&made);
    return (fy__event_bytes_t){ mine, 0, version };
}

uint16_t fy__event_name(const fy_tensor_t *tensor)
{
    if (!*fy__tensor_name(tensor)) return 0;
    _Atomic uint16_t *kept = &((fy_tensor_t *)(uintptr_t)tensor)->name_number;
    const uint16_t known = atomic_load_explicit(kept, memory_order_relaxed);
    if (known) return known;
    const uint16_t number = fy__text_number(tensor->name);
    atomic_store_explicit(kept, number, memory_order_relaxed);
    return number;
}

void fy__event_named(const fy_tensor_t *tensor)
{
    const fy__storage_t *storage = tensor->storage;
    if (!*tensor->name) return;
    fy__event_t event = fy__event_begin(FY__EVENT_NAMED, fy__tls);
    event.nbytes = fy__tensor_nbytes(tensor);
    event.u.storage.id = fy__event_bytes(&event, storage).id;
    event.u.storage.offset = (uint64_t)((uintptr_t)tensor->data - (uintptr_t)storage->data);
    event.u.storage.name = fy__event_name(tensor);
    fy__event_put(&event);
}

void fy__event_scope(fy__thread_t *thread, bool is_begin)
{
    const fy__event_t event =
        fy__event_begin(is_begin ? FY__EVENT_SCOPE_BEGIN : FY__EVENT_SCOPE_END, thread);
    fy__event_put(&event);
}

uint64_t fy__event_op_number(void) { return atomic_fetch_add(&last_op, 1) + 1; }

fy__event_t fy__event_op_begin(const fy__thread_t *thread, const char *name,
                               const fy_device_t *device, fy__point_t point, uint64_t flops,
                               uint64_t nbytes, uint64_t number)
{
    fy__event_t event = fy__event_begin(FY__EVENT_OP, thread);
    event.name = name;
    event.device = fy__event_device_text(device);
    event.point = point;
    event.nbytes = nbytes;
    event.u.op.number = number;
    event.u.op.flops = flops;
    event.caller = fy__site();
    fy__event_span(&event, device);
    return event;
}

void fy__event_op_launch(fy__event_t *event, const fy_op_info_t *info, const fy_launch_t *launch)
{
    event->u.op.signature = fy__signature_of(info, launch);
    if (!event->u.op.signature) return;
    event->u.op.has_fallbacks = !launch->attrs || info->attrs_nbytes > FY__EVENT_ATTRS;
    if (event->u.op.has_fallbacks) return;
    event->u.op.attrs_nbytes = (uint16_t)info->attrs_nbytes;
    memcpy(event->u.op.more, launch->attrs, info->attrs_nbytes);
}

/* Puts a full event; further operands follow in another one. */
static fy__event_bytes_t *next_operand(fy__event_t *event)
{
    if (event->nsrc + event->ndst == FY__EVENT_OPERANDS_MOST) {
        fy__event_put(event);
        event->kind = FY__EVENT_OPERANDS;
        event->nsrc = event->ndst = 0;
        event->u.op.attrs_nbytes = 0;
    }
    return fy__event_operands(event) + event->nsrc + event->ndst;
}

void fy__event_op_src(fy__event_t *event, const fy__storage_t *storage, uint16_t name)
{
    fy__event_bytes_t *bytes = next_operand(event);
    *bytes = fy__event_bytes(event, storage);
    bytes->name = name;
    event->nsrc++;
}

void fy__event_op_dst(fy__event_t *event, const fy__storage_t *storage, uint16_t name, bool written)
{
    fy__event_bytes_t *bytes = next_operand(event);
    *bytes = fy__event_bytes(event, storage);
    bytes->name = name;
    bytes->version += written;
    event->ndst++;
}

void fy__event_copy(fy__thread_t *thread, int direction, uint64_t nbytes)
{
    fy__event_t event = fy__event_begin(FY__EVENT_COPY, thread);
    event.nbytes = nbytes;
    event.u.transfer.direction = direction;
    fy__event_put(&event);
}

void fy__event_collective(fy__thread_t *thread, const char *what, uint64_t nbytes)
{
    fy__event_t event = fy__event_begin(FY__EVENT_COLLECTIVE, thread);
    event.name = fy__text(what);
    event.nbytes = nbytes;
    event.caller = fy__site();
    fy__event_put(&event);
}

void fy__event_exchange(fy__thread_t *thread, uint64_t wire_nbytes, uint64_t messages,
                        uint64_t blocked_ns)
{
    fy__event_t event = fy__event_begin(FY__EVENT_EXCHANGE, thread);
    event.nbytes = wire_nbytes;
    event.ns = blocked_ns;
    event.u.collective.messages = messages;
    fy__event_put(&event);
}

void fy__event_collective_ran(fy__thread_t *thread, const char *what, int rank, uint64_t number,
                              uint64_t start_ns, fy_status_t status)
{
    fy__event_t event = fy__event_begin(FY__EVENT_COLLECTIVE_RAN, thread);
    event.name = fy__text(what);
    event.u.collective.rank = rank;
    event.u.collective.number = number;
    event.u.collective.lasted_ns = event.at_ns > start_ns ? event.at_ns - start_ns : 0;
    event.u.collective.status = (int)status;
    fy__event_put(&event);
}

void fy__event_wait(const fy_stream_t *stream, fy__point_t point, fy__wait_site_t site)
{
    fy__event_t event = fy__event_begin(FY__EVENT_WAIT, fy__tls);
    /* The next submitted request is the one that waits. */
    event.point = FY__POINT(stream->index,
                            atomic_load_explicit(&stream->submitted, memory_order_relaxed) + 1);
    event.u.wait.on = point;
    event.u.wait.site = site;
    fy__event_put(&event);
}

void fy__event_started(fy__thread_t *thread, const fy_device_t *device, fy__point_t job,
                       fy__point_t point, uint64_t nbytes, fy_status_t status)
{
    fy__event_t event = fy__event_begin(FY__EVENT_STARTED, thread);
    event.device = fy__event_device_text(device);
    event.point = job;
    event.nbytes = nbytes;
    event.u.wait.on = point;
    event.u.wait.status = (int)status;
    if (point) fy__event_span(&event, device);
    fy__event_put(&event);
}

void fy__event_sync(fy__thread_t *thread, uint64_t blocked_ns)
{
    fy__event_t event = fy__event_begin(FY__EVENT_SYNC, thread);
    event.name = thread->blocking.what;
    event.point = thread->blocking.awaited;
    event.u.wait.site = thread->blocking.reason;
    event.caller = fy__site();
    event.ns = blocked_ns;
    fy__event_put(&event);
}

void fy__event_throttle(fy__thread_t *thread, const char *reason, uint64_t blocked_ns)
{
    fy__event_t event = fy__event_begin(FY__EVENT_THROTTLE, thread);
    event.name = reason;
    event.ns = blocked_ns;
    event.caller = fy__site();
    fy__event_put(&event);
}

void fy__event_map(const fy__storage_t *storage, int access, uint64_t nbytes, const void *caller)
{
    fy__event_t event = fy__event_begin(FY__EVENT_MAP, fy__tls);
    event.nbytes = nbytes;
    event.caller = caller;
    event.u.map.access = access;
    event.u.map.bytes = fy__event_bytes(&event, storage);
    fy__event_put(&event);
}

void fy__event_arrived(fy__thread_t *thread, const fy_device_t *device, fy__point_t point,
                       uint64_t nbytes, uint64_t blocked_ns, fy_status_t status)
{
    fy__event_t event = fy__event_begin(FY__EVENT_ARRIVED, thread);
    event.device = fy__event_device_text(device);
    event.point = point;
    event.nbytes = nbytes;
    event.ns = blocked_ns;
    event.u.said.status = (int)status;
    fy__event_put(&event);
}

static void put_message(fy__thread_t *thread, fy__event_kind_t kind, fy_status_t status,
                        const char *text)
{
    fy__event_t event = fy__event_begin(kind, thread);
    event.u.said.status = (int)status;
    snprintf(event.u.said.text, sizeof event.u.said.text, "%.*s", (int)strcspn(text, "\n"), text);
    fy__event_put(&event);
}

void fy__event_refusal(fy__thread_t *thread, fy_status_t status)
{
    put_message(thread, FY__EVENT_REFUSAL, status, thread->error.text);
}
void fy__event_fault(fy_status_t status, const char *text)
{
    put_message(fy__tls, FY__EVENT_FAULT, status, text);
}

void fy__event_device(const fy_device_t *device)
{
    fy__event_t event = fy__event_begin(FY__EVENT_DEVICE, fy__tls);
    event.device = fy__event_device_text(device);
    event.nbytes = device->info.memory_nbytes;
    event.u.device.backend = fy__text(device->backend->name);
    event.u.device.model = fy__text(device->info.model);
    event.u.device.options = fy__text(device->options);
    event.u.device.is_simulated = device->info.is_simulated;
    fy__event_put(&event);
}

void fy__event_stream(const fy_stream_t *stream)
{
    fy__event_t event = fy__event_begin(FY__EVENT_STREAM, fy__tls);
    event.point = FY__POINT(stream->index, 0);
    event.device = fy__event_device_text(stream->device);
    snprintf(event.u.said.text, sizeof event.u.said.text, "%s", stream->name);
    fy__event_put(&event);
}

/* ---- memory ---- */

void fy__event_pool(const fy__event_pool_t *pool)
{
    fy__event_t event = fy__event_begin(FY__EVENT_POOL, fy__tls);
    event.name = pool->name;
    event.nbytes = pool->reserved;
    event.u.pool.live = pool->live;
    event.u.pool.segment_nbytes = pool->segment_nbytes;
    event.u.pool.resize_nbytes = pool->resize_nbytes;
    event.u.pool.keeps_segments = pool->keeps_segments;
    fy__event_put(&event);
}

void fy__event_segment(const char *pool, uint64_t id, uint64_t nbytes, bool is_alloc)
{
    fy__event_t event =
        fy__event_begin(is_alloc ? FY__EVENT_SEGMENT_ALLOC : FY__EVENT_SEGMENT_FREE, fy__tls);
    event.name = pool;
    event.nbytes = nbytes;
    event.u.memory.place.segment = id;
    fy__event_put(&event);
}

static fy__event_t block_event(fy__event_kind_t kind, const char *pool, const fy__block_t *block,
                               uint64_t requested)
{
    fy__event_t event = fy__event_begin(kind, fy__tls);
    event.name = pool;
    event.nbytes = block->nbytes;
    event.u.memory.block = block->id;
    event.u.memory.requested = requested;
    event.u.memory.category = block->tag.category;
    return event;
}

void fy__event_block_alloc(const char *pool, const fy__block_t *block, uint64_t requested,
                           uint32_t stream, fy__event_place_t place)
{
    fy__event_t event = block_event(FY__EVENT_BLOCK_ALLOC, pool, block, requested);
    event.u.memory.place = place;
    event.caller = fy__site();
    event.point = FY__POINT(stream, 0);
    fy__event_put(&event);
}

/* The last point of each stream; 0 is none. */
static void keep_last(fy__point_t *points, fy__point_t point)
{
    int i = 0;
    while (points[i] && FY__POINT_STREAM(points[i]) != FY__POINT_STREAM(point)) i++;
    if (point > points[i]) points[i] = point;
}

void fy__event_block_free(const char *pool, const fy__block_t *block, uint64_t requested,
                          const fy__hazard_t *after)
{
    fy__event_t event = block_event(FY__EVENT_BLOCK_FREE, pool, block, requested);
    for (int i = 0; after && i <= FY__READER_COUNT; i++)
        keep_last(event.u.memory.after,
                  atomic_load_explicit(i ? &after->readers[i - 1] : &after->writer,
                                       memory_order_acquire));
    fy__event_put(&event);
}

void fy__event_blocks_reached(const char *pool, fy__point_t point)
{
    fy__event_t event = fy__event_begin(FY__EVENT_BLOCKS_REACHED, fy__tls);
    event.name = pool;
    event.point = point;
    fy__event_put(&event);
}

void fy__event_device_alloc(fy__thread_t *thread)
{
    const fy__event_t event = fy__event_begin(FY__EVENT_DEVICE_ALLOC, thread);
    fy__event_put(&event);
}
