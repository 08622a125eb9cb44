/* Builds the list of calls. The recording also holds storages that were made inside. When it is the
 * only holder, the next allocation reuses their bytes for later calls: a replay runs in the
 * recorded order. */
#include "runtime/record/recording.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/checked.h"

enum { CHUNK_NBYTES = 16 << 10, ALIGNMENT = 16, NEWEST = 64 };

typedef struct fy__chunk {
    struct fy__chunk *next;
    size_t used, room;
    _Alignas(ALIGNMENT) unsigned char bytes[];
} chunk_t;

static fy_status_t no_memory(size_t nbytes)
{
    return FY_FAIL(OUT_OF_MEMORY, "graph: no host memory for %zu bytes of the list of calls",
                   nbytes);
}

/* Makes room for one more element; `array` points to the pointer. */
static fy_status_t grow(void *array, uint32_t count, uint32_t *room, size_t element_nbytes)
{
    void *elements;
    if (count < *room) return FY_STATUS_OK;
    const uint32_t more = *room ? *room * 2 : 32;
    memcpy(&elements, array, sizeof elements);
    elements = realloc(elements, more * element_nbytes);
    if (!elements) return no_memory(more * element_nbytes);
    memcpy(array, &elements, sizeof elements);
    *room = more;
    return FY_STATUS_OK;
}

fy_status_t fy__recording_bytes(fy__recording_t *recording, size_t nbytes, void *out_bytes)
{
    chunk_t *chunk = recording->chunks;
    const size_t rounded = (nbytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (!chunk || chunk->room - chunk->used < rounded) {
        const size_t room = rounded > CHUNK_NBYTES ? rounded : CHUNK_NBYTES;
        chunk = malloc(sizeof *chunk + room);
        if (!chunk) return no_memory(room);
        chunk->used = 0;
        chunk->room = room;
        chunk->next = recording->chunks;
        recording->chunks = chunk;
    }
    const void *bytes = chunk->bytes + chunk->used;
    memcpy(out_bytes, &bytes, sizeof bytes);
    chunk->used += rounded;
    return FY_STATUS_OK;
}

/* ---- failures ---- */

FY_COLD fy_status_t fy__recording_failed(fy__recording_t *recording, fy_status_t status)
{
    if (status == FY_STATUS_OK || recording->status != FY_STATUS_OK) return status;
    recording->status = status;
    fy__error_save(&recording->error);
    return status;
}

FY_COLD fy_status_t fy__recording_refuse(fy__recording_t *recording, const char *what)
{
    return fy__recording_failed(recording,
                                FY_FAIL(UNSUPPORTED,
                                        "%s: this thread records a graph on %s, where nothing runs "
                                        "before it is replayed\n  Call it before fy_graph_begin "
                                        "or behind fy_graph_replay; of the transfers, "
                                        "fy_tensor_upload_into with FY_HOST_BORROW can be recorded",
                                        what, recording->device->spec));
}

/* ---- slots ---- */

static uint32_t index_start(const fy__recording_t *recording, const fy__storage_t *storage)
{
    return (uint32_t)(((uint64_t)(uintptr_t)storage * 0x9E3779B97F4A7C15ull) >> 40) &
           (recording->index_size - 1);
}

static uint32_t *index_find(const fy__recording_t *recording, const fy__storage_t *storage)
{
    const uint32_t mask = recording->index_size - 1;
    uint32_t i = index_start(recording, storage);
    while (recording->index[i] && recording->slots[recording->index[i] - 1].storage != storage)
        i = (i + 1) & mask;
    return &recording->index[i];
}

/* At most half full, so that a search for a missing entry ends. */
static fy_status_t index_grow(fy__recording_t *recording)
{
    if (recording->index_used * 2 < recording->index_size) return FY_STATUS_OK;
    const uint32_t size = recording->index_size ? recording->index_size * 2 : 64;
    uint32_t *index = calloc(size, sizeof *index);
    if (!index) return no_memory(size * sizeof *index);
    free(recording->index);
    recording->index = index;
    recording->index_size = size;
    recording->index_used = 0;
    for (uint32_t i = 0; i < recording->nslots; i++) {
        if (!recording->slots[i].storage) continue;
        *index_find(recording, recording->slots[i].storage) = i + 1;
        recording->index_used++;
    }
    return FY_STATUS_OK;
}

/* Moves later entries of the same run into the gap (Knuth, TAOCP 3, 6.4, algorithm R): a search
 * passes no entries of destroyed storages. */
static void index_remove(fy__recording_t *recording, const fy__storage_t *storage)
{
    const uint32_t mask = recording->index_size - 1;
    uint32_t *const index = recording->index;
    uint32_t gap = (uint32_t)(index_find(recording, storage) - index);
    for (uint32_t i = (gap + 1) & mask; index[i]; i = (i + 1) & mask) {
        const uint32_t start = index_start(recording, recording->slots[index[i] - 1].storage);
        if (((i - start) & mask) < ((i - gap) & mask)) continue; /* it begins behind the gap */
        index[gap] = index[i];
        gap = i;
    }
    index[gap] = 0;
    recording->index_used--;
}

/* A new slot, with a reference. Nothing has changed if it fails. */
static fy_status_t add_slot(fy__recording_t *recording, fy__storage_t *storage, bool is_inside,
                            uint32_t *out_slot)
{
    FY_TRY(grow(&recording->slots, recording->nslots, &recording->slots_room,
                sizeof *recording->slots));
    FY_TRY(
        grow(&recording->live, recording->nlive, &recording->live_room, sizeof *recording->live));
    FY_TRY(index_grow(recording));
    const uint32_t slot = recording->nslots++;
    uint32_t *entry = index_find(recording, storage);
    fy__storage_retain(storage);
    recording->slots[slot] = (fy__recording_slot_t){
        .storage = storage, .is_inside = is_inside, .is_written = is_inside, .writes = is_inside
    };
    *entry = slot + 1;
    recording->index_used++;
    if (is_inside) recording->live[recording->nlive++] = slot;
    *out_slot = slot;
    return FY_STATUS_OK;
}

/* Releases storages that were made inside and have no other holder, from the live list's entry
 * `first` on. The reference is the last, so no thread can retain another from it. */
static void reap(fy__thread_t *thread, fy__recording_t *recording, uint32_t first)
{
    uint32_t kept = first;
    for (uint32_t i = first; i < recording->nlive; i++) {
        fy__recording_slot_t *slot = &recording->slots[recording->live[i]];
        if (atomic_load_explicit(&slot->storage->refs, memory_order_acquire) != 1) {
            recording->live[kept++] = recording->live[i];
            continue;
        }
        fy__storage_t *storage = slot->storage;
        index_remove(recording, storage);
        slot->storage = NULL;
        fy__storage_release(thread, storage);
    }
    recording->nlive = kept;
}

/* Before each new storage: the newest entries, as most results are dropped soon. All entries once
 * in nlive / NEWEST storages. So a storage costs about 2 * NEWEST entries, in a recording of any
 * length. */
static void reap_some(fy__thread_t *thread, fy__recording_t *recording)
{
    const uint32_t newest = recording->nlive > NEWEST ? recording->nlive - NEWEST : 0;
    const bool is_due = ++recording->unreaped >= recording->nlive / NEWEST;
    if (is_due) recording->unreaped = 0;
    reap(thread, recording, is_due ? 0 : newest);
}

fy_status_t fy__recording_storage(fy__thread_t *thread, fy__recording_t *recording, uint64_t nbytes,
                                  fy__storage_t **out_storage)
{
    uint32_t slot;
    fy__storage_t *storage;
    reap_some(thread, recording);
    fy_status_t status = fy__storage_create_private(thread, recording->memory, nbytes, &storage);
    if (status != FY_STATUS_OK) return fy__recording_failed(recording, status);
    status = add_slot(recording, storage, true, &slot);
    if (status != FY_STATUS_OK) {
        fy__storage_release(thread, storage);
        return fy__recording_failed(recording, status);
    }
    *out_storage = storage;
    return FY_STATUS_OK;
}

fy_status_t fy__recording_slots(fy__recording_t *recording, size_t count, uint32_t **out_slots)
{
    return fy__recording_bytes(recording, (count ? count : 1) * sizeof **out_slots, out_slots);
}

fy_status_t fy__recording_slot(fy__recording_t *recording, fy__storage_t *storage, bool is_written,
                               uint32_t *out_slot)
{
    const uint32_t *entry = recording->index_size ? index_find(recording, storage) : NULL;
    if (entry && *entry)
        *out_slot = *entry - 1;
    else
        FY_TRY(add_slot(recording, storage, false, out_slot));
    recording->slots[*out_slot].is_written |= is_written;
    recording->slots[*out_slot].writes += is_written;
    return FY_STATUS_OK;
}

uint32_t fy__recording_writes(const fy__recording_t *recording, const fy__storage_t *storage)
{
    const uint32_t *entry = recording->index_size ? index_find(recording, storage) : NULL;
    return entry && *entry ? recording->slots[*entry - 1].writes : 0;
}

bool fy__recording_keep(fy__recording_t *recording, const fy__copy_t *copy)
{
    for (uint32_t i = 0; i < recording->ncopies; i++)
        if (recording->copies[i].low == copy->low && recording->copies[i].block == copy->block)
            return true;
    if (recording->ncopies == FY__COPIES) return false;
    fy__copy_hold(copy);
    recording->copies[recording->ncopies++] = *copy;
    return true;
}

/* ---- calls ---- */

/* Words for the fault flags of a device's own graph, whose calls have fixed addresses. Storages
 * made inside later never have these bytes. Storages that were made and dropped earlier may have
 * had them, so they are cleared before the first call with a flag (ops/capture.c). Without memory
 * for them the recording continues, and is replayed call by call. */
static void take_flags(fy__recording_t *recording)
{
    fy__error_copy_t before;
    fy__thread_t *thread = fy__thread();
    if (!thread || !recording->device->backend->graph_begin || recording->nfaults) return;
    fy__error_save(&before);
    if (fy__storage_create_private(thread, recording->memory,
                                   FY__RECORDING_FAULTS * sizeof(uint32_t),
                                   &recording->flags) != FY_STATUS_OK)
        fy__error_restore(&before);
}

/* The flag of a call with this cause: a separate one while there are any. A flag shared by several
 * causes has a generic text. */
static uint8_t add_fault(fy__recording_t *recording, const fy__fault_cause_t *cause)
{
    if (recording->nfaults < FY__RECORDING_FAULTS) {
        recording->causes[recording->nfaults++] = *cause;
        return (uint8_t)recording->nfaults;
    }
    fy__fault_cause_t *shared = &recording->causes[FY__RECORDING_FAULTS - 1];
    if (strcmp(shared->op, cause->op) != 0 || shared->limit != cause->limit)
        *shared = (fy__fault_cause_t){ "graph: one of its ops", -1 };
    return FY__RECORDING_FAULTS;
}

fy_status_t fy__recording_launch(fy__recording_t *recording, const fy_launch_t *launch,
                                 const uint32_t *slots, uint64_t replaced,
                                 const fy__fault_cause_t *cause)
{
    const size_t ndescs = (size_t)launch->ndst + launch->nsrc;
    fy_desc_t *descs;
    void *attrs = NULL;
    FY_TRY(fy__recording_bytes(recording, ndescs * sizeof *descs, &descs));
    if (launch->attrs_nbytes) FY_TRY(fy__recording_bytes(recording, launch->attrs_nbytes, &attrs));
    FY_TRY(grow(&recording->calls, recording->ncalls, &recording->calls_room,
                sizeof *recording->calls));
    memcpy(descs, launch->dst, launch->ndst * sizeof *descs);
    if (launch->nsrc) memcpy(descs + launch->ndst, launch->src, launch->nsrc * sizeof *descs);
    if (attrs) memcpy(attrs, launch->attrs, launch->attrs_nbytes);
    if (cause) take_flags(recording);
    fy__recorded_t *call = &recording->calls[recording->ncalls++];
    *call = (fy__recorded_t){
        .fault = cause ? add_fault(recording, cause) : 0,
        .ndst = launch->ndst,
        .nsrc = launch->nsrc,
        .replaced = replaced,
        .slots = slots,
        .launch = *launch,
    };
    call->launch.dst = descs;
    call->launch.src = descs + launch->ndst;
    call->launch.attrs = attrs;
    call->launch.fault = NULL;
    if (!fy__add_u64(recording->flops, launch->flops, &recording->flops))
        recording->flops = UINT64_MAX;
    if (!fy__add_u64(recording->nbytes, launch->nbytes, &recording->nbytes))
        recording->nbytes = UINT64_MAX;
    return FY_STATUS_OK;
}

fy_status_t fy__recording_upload(fy__recording_t *recording, const fy_copy_t *copy,
                                 const uint32_t *slots, bool replaced, const char *site,
                                 const void *caller, int priority)
{
    FY_TRY(grow(&recording->calls, recording->ncalls, &recording->calls_room,
                sizeof *recording->calls));
    const fy__fault_cause_t cause = { "tensor_upload_into, in a graph", FY__FAULT_OF_COPY };
    recording->calls[recording->ncalls++] = (fy__recorded_t){
        .is_upload = true,
        .fault = recording->device->info.copies_can_fault ? add_fault(recording, &cause) : 0,
        .ndst = 1,
        .nsrc = 1,
        .replaced = replaced,
        .slots = slots,
        .upload = { *copy, site, caller, priority },
    };
    recording->uploads++;
    recording->upload_nbytes += copy->nbytes;
    if (!fy__add_u64(recording->nbytes, 2 * copy->nbytes, &recording->nbytes))
        recording->nbytes = UINT64_MAX;
    return FY_STATUS_OK;
}

/* ---- the end ---- */

fy_status_t fy__recording_close(fy__thread_t *thread, fy__recording_t *recording)
{
    reap(thread, recording, 0);
    recording->nlive = 0;
    for (uint32_t i = 0; i < recording->nslots; i++) {
        if (!recording->slots[i].storage) continue;
        FY_TRY(grow(&recording->live, recording->nlive, &recording->live_room,
                    sizeof *recording->live));
        recording->live[recording->nlive++] = i;
    }
    free(recording->index);
    recording->index = NULL;
    recording->index_size = recording->index_used = 0;
    return FY_STATUS_OK;
}

void fy__recording_clear(fy__thread_t *thread, fy__recording_t *recording)
{
    for (uint32_t i = 0; i < recording->nslots; i++)
        if (recording->slots[i].storage) fy__storage_release(thread, recording->slots[i].storage);
    if (recording->flags) fy__storage_release(thread, recording->flags);
    for (uint32_t i = 0; i < recording->ncopies; i++) fy__copy_drop(thread, &recording->copies[i]);
    while (recording->chunks) {
        chunk_t *chunk = recording->chunks;
        recording->chunks = chunk->next;
        free(chunk);
    }
    free(recording->calls);
    free(recording->slots);
    free(recording->index);
    free(recording->live);
    fy__private_release(thread, recording->memory);
}
