/* Tapes: making, watching, beginning, asking. A tensor stores (record number, slot). A new record
 * has a new number, so old values become invalid without being cleared. Next: record.c. */
#include "ops/tape/tape.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/abi_structs.h"
#include "runtime/thread/watch.h"

enum { MOST_TAPES = 60000 }; /* as the watch can count */
static _Atomic uint32_t ntapes;
/* The numbers of present tapes' records, each at its place modulo RECORDS; 0: none. */
enum { RECORDS = 1 << 17 };
static _Atomic uint32_t records[RECORDS];

static uint32_t take_record(void)
{
    static _Atomic uint32_t last;
    for (;;) {
        uint32_t none = 0;
        const uint32_t record = atomic_fetch_add_explicit(&last, 1, memory_order_relaxed) + 1;
        if (record && atomic_compare_exchange_strong(&records[record % RECORDS], &none, record))
            return record;
    }
}

static void give_record_back(uint32_t record) { atomic_store(&records[record % RECORDS], 0); }

/* ---- a tensor on several tapes ----
 * It has a number of the first one. Another tape finds it by that number, which no other bytes
 * have. */

/* Of the first alias whose number is not below. */
static uint32_t alias_at(const fy_tape_t *tape, uint64_t shared)
{
    uint32_t first = 0, count = tape->naliases;
    while (count) {
        const uint32_t half = count / 2;
        const bool is_below = tape->aliases[first + half].shared < shared;
        first += is_below ? half + 1 : 0;
        count = is_below ? count - half - 1 : half;
    }
    return first;
}

static bool has_alias(const fy_tape_t *tape, uint32_t at, uint64_t shared)
{
    return at < tape->naliases && tape->aliases[at].shared == shared;
}

uint32_t fy__tape_find_shared(const fy_tape_t *tape, const fy_tensor_t *tensor)
{
    const uint32_t at = alias_at(tape, tensor->value);
    return has_alias(tape, at, tensor->value) ? tape->aliases[at].value
                                              : fy__tape_find_own(tape, tensor);
}

void fy__tape_set(fy_tape_t *tape, fy_tensor_t *tensor, uint32_t value)
{
    const uint32_t of = (uint32_t)(tensor->value >> 32),
                   record = value & FY__TAPE_LEAF ? tape->leaf_record : tape->record;
    if (tensor->valued == 1 && of != tape->record && of != tape->leaf_record &&
        atomic_load(&records[of % RECORDS]) == of) {
        if (!value) return;
        tensor->valued = FY__VALUE_SHARED;
    }
    if (tensor->valued != FY__VALUE_SHARED) {
        tensor->valued = value != 0;
        tensor->value = value ? fy__tape_value(record, (value & ~FY__TAPE_LEAF) - 1) : 0;
        return;
    }
    const uint32_t at = alias_at(tape, tensor->value);
    fy__tape_alias_t *alias = &tape->aliases[at];
    if (!has_alias(tape, at, tensor->value))
        memmove(alias + 1, alias, (tape->naliases++ - at) * sizeof *alias);
    *alias = (fy__tape_alias_t){ tensor->value, value };
}

/* Those of permanently watched tensors stay. */
static void forget_aliases(fy_tape_t *tape)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < tape->naliases; i++)
        if (tape->aliases[i].value & FY__TAPE_LEAF) tape->aliases[kept++] = tape->aliases[i];
    tape->naliases = kept;
}

FY_COLD fy_status_t fy__tape_grow_slow(void **array, uint32_t *room, uint32_t count, uint32_t more,
                                       size_t nbytes)
{
    uint64_t wanted = *room ? 2 * (uint64_t)*room : 64;
    while (wanted < (uint64_t)count + more) wanted *= 2;
    void *grown = wanted < FY__TAPE_LEAF ? realloc(*array, (size_t)wanted * nbytes) : NULL;
    if (!grown)
        return FY_FAIL(OUT_OF_MEMORY, "tape: no host memory for %llu more entries of %zu bytes",
                       (unsigned long long)wanted, nbytes);
    *array = grown;
    *room = (uint32_t)wanted;
    return FY_STATUS_OK;
}

fy_tensor_t *fy__tape_blank(fy__thread_t *thread)
{
    fy_tensor_t *blank = fy__tensor_alloc(thread);
    if (!blank) return NULL;
    fy__handle_release(&blank->handle);
    blank->storage = NULL;
    return blank;
}

void fy__tape_free(fy__thread_t *thread, fy_tensor_t *held)
{
    if (held->storage)
        fy__tensor_free(thread, held);
    else
        fy__tensor_free_blank(thread, held);
}

void fy__tape_shape_as(fy_tensor_t *blank, const fy_tensor_t *tensor)
{
    blank->dtype = tensor->dtype;
    blank->rank = tensor->rank;
    blank->contiguous = tensor->contiguous;
    blank->read_only = tensor->read_only;
    blank->data = tensor->data;
    blank->nelem = tensor->nelem;
    for (int i = 0; i < tensor->rank; i++) {
        blank->dims[i] = tensor->dims[i];
        blank->strides[i] = tensor->strides[i];
    }
}

void fy__tape_point(fy_tensor_t *blank, const fy_tensor_t *tensor)
{
    fy__storage_retain(tensor->storage);
    blank->storage = tensor->storage;
    fy__tape_shape_as(blank, tensor);
    blank->named = tensor->named;
    atomic_init(&blank->name_number, 0);
    if (tensor->named) memcpy(blank->name, tensor->name, sizeof blank->name);
}

fy_tensor_t *fy__tape_hold(fy__thread_t *thread, const fy_tensor_t *tensor)
{
    fy_tensor_t *held = fy__tape_blank(thread);
    if (held) fy__tape_point(held, tensor);
    return held;
}

fy_status_t fy__tape_copy(fy__thread_t *thread, const fy_tensor_t *tensor, fy_tensor_t **out_copy)
{
    fy_tensor_t *copy;
    FY_TRY(fy_empty(tensor->storage->device, (fy_dtype_t)tensor->dtype, tensor->rank, tensor->dims,
                    &copy));
    fy__handle_release(&copy->handle);
    const fy_status_t status = fy_copy(copy, tensor);
    if (status != FY_STATUS_OK)
        fy__tensor_free(thread, copy);
    else
        *out_copy = copy;
    return status;
}

static void free_slot(fy__thread_t *thread, fy__tape_slot_t *slot)
{
    if (slot->grad) fy__tensor_free(thread, slot->grad);
    if (slot->place) fy__tensor_free(thread, slot->place);
    if (slot->tensor) fy__tensor_free(thread, slot->tensor);
}

void fy__tape_free_saved(fy__thread_t *thread, fy_tape_t *tape, fy__tape_operand_t *operand)
{
    if (operand->saved) fy__tape_free(thread, operand->saved);
    operand->saved = NULL;
    if (operand->parcel) fy__tape_leave_parcel(thread, tape, operand);
}

void fy__tape_forget_calls(fy__thread_t *thread, fy_tape_t *tape, uint32_t first)
{
    if (first >= tape->ncalls) return;
    for (uint32_t i = first; i < tape->ncalls; i++) {
        fy__tape_again_free(thread, tape, &tape->calls[i]);
        fy__tape_attached_free(&tape->calls[i]);
        fy__tape_free_made(thread, &tape->calls[i]);
    }
    for (uint32_t i = tape->calls[first].first; i < tape->noperands; i++)
        fy__tape_free_saved(thread, tape, &tape->operands[i]);
    tape->noperands = tape->calls[first].first;
    tape->nattrs = tape->calls[first].attrs;
    tape->ncalls = first;
}

static void forget_lows(fy__thread_t *thread, fy_tape_t *tape, fy__tape_slot_t *slots,
                        uint32_t count, const fy__tape_again_t *again)
{
    for (uint32_t i = 0; i < count && tape->nlows; i++) {
        if (!slots[i].low || (again && slots[i].low_again != again)) continue;
        fy__tensor_free(thread, slots[i].low);
        slots[i].low = NULL;
        tape->nlows--;
    }
}

void fy__tape_forget_lows(fy__thread_t *thread, fy_tape_t *tape, const fy__tape_again_t *again)
{
    forget_lows(thread, tape, tape->leaves, tape->nleaves, again);
    forget_lows(thread, tape, tape->values, tape->nvalues, again);
}

static void forget_record(fy__thread_t *thread, fy_tape_t *tape)
{
    fy__tape_forget_lows(thread, tape, NULL);
    fy__tape_forget_calls(thread, tape, 0);
    for (uint32_t i = 0; i < tape->nvalues; i++) free_slot(thread, &tape->values[i]);
    tape->nvalues = 0;
    tape->nparcels = tape->nsegments = tape->ahead = 0;
    forget_aliases(tape);
    fy__tape_forget_written(thread, tape);
}

void fy__tape_stop(fy__thread_t *thread, const fy_tape_t *tape)
{
    if (thread->tape == tape) thread->tape = NULL;
    for (uint32_t i = 0; i < thread->depth; i++)
        if (thread->frames[i].outer_tape == tape) thread->frames[i].outer_tape = NULL;
}

fy_status_t fy__tape_check_idle(const fy_tape_t *tape, const char *what)
{
    if (FY_LIKELY(!tape->is_running)) return FY_STATUS_OK;
    return FY_FAIL(
        BUSY,
        "%s: the tape runs backward and called this gradient rule\n  A rule computes with "
        "ops and views; call this after fy_tape_backward",
        what);
}

/* ---- public ---- */

fy_status_t fy_tape_create(fy_tape_t **out_tape)
{
    fy__thread_t *thread = fy__thread();
    if (!out_tape) return FY_FAIL(INVALID_ARGUMENT, "tape_create: out_tape is NULL");
    *out_tape = NULL;
    if (!thread) return FY_STATUS_OUT_OF_MEMORY;
    fy_tape_t *tape = calloc(1, sizeof *tape);
    if (!tape)
        return FY_FAIL(OUT_OF_MEMORY, "tape_create: no host memory for %zu bytes", sizeof *tape);
    if (atomic_fetch_add(&ntapes, 1) >= MOST_TAPES) {
        atomic_fetch_sub(&ntapes, 1);
        free(tape);
        return FY_FAIL(OUT_OF_MEMORY, "tape_create: there are %d tapes; destroy some", MOST_TAPES);
    }
    fy__watch_hold(FY__WATCH_TAPE);
    tape->leaf_record = take_record();
    tape->record = take_record();
    tape->handle.kind = FY__HANDLE_TAPE;
    fy__handle_adopt(thread->frame, &tape->handle);
    *out_tape = tape;
    return FY_STATUS_OK;
}

void fy_tape_destroy(fy_tape_t *tape)
{
    fy__thread_t *thread = fy__thread();
    if (!tape || !thread) return;
    fy__tape_stop(thread, tape);
    fy__handle_release(&tape->handle);
    forget_record(thread, tape);
    for (uint32_t i = 0; i < tape->nleaves; i++) free_slot(thread, &tape->leaves[i]);
    for (uint32_t i = 0; i < tape->ncopies; i++) fy__copy_drop(thread, &tape->copies[i]);
    free(tape->leaves);
    free(tape->values);
    free(tape->operands);
    free(tape->calls);
    free(tape->attrs);
    free(tape->parcels);
    free(tape->segments);
    free(tape->written);
    free(tape->aliases);
    give_record_back(tape->record);
    give_record_back(tape->leaf_record);
    free(tape);
    atomic_fetch_sub(&ntapes, 1);
    fy__watch_release(FY__WATCH_TAPE);
}

void fy_tape_keep(fy_tape_t *tape)
{
    if (tape) fy__handle_release(&tape->handle);
}

fy_status_t fy_tape_begin(fy_tape_t *tape)
{
    fy__thread_t *thread = fy__thread();
    if (!thread) return FY_STATUS_OUT_OF_MEMORY;
    if (tape) {
        FY_TRY(fy__tape_check_idle(tape, "tape_begin"));
        fy__tape_stop(thread, tape);
        forget_record(thread, tape);
        give_record_back(tape->record);
        tape->record = take_record();
        tape->is_spent = false;
        for (uint32_t i = 0; i < tape->nleaves; i++) tape->leaves[i].version = FY__TAPE_UNUSED;
    }
    thread->tape = tape;
    return FY_STATUS_OK;
}

/* May `grad` take the gradient of `tensor`? */
static fy_status_t check_place(const fy_tensor_t *tensor, const fy_tensor_t *grad)
{
    char of[112], into[112];
    if (fy__tensor_is_gone(grad)) return fy__refuse_gone("tape_watch", "grad");
    if (grad->storage->device != tensor->storage->device)
        return FY_FAIL(DEVICE_MISMATCH, "tape_watch: grad %s is on %s, the tensor on %s",
                       fy__tensor_format(grad, into, sizeof into), grad->storage->device->spec,
                       tensor->storage->device->spec);
    if (grad->dtype != tensor->dtype)
        return FY_FAIL(
            DTYPE_MISMATCH, "tape_watch: grad %s cannot take the gradient of %s: another dtype",
            fy__tensor_format(grad, into, sizeof into), fy__tensor_format(tensor, of, sizeof of));
    if (grad->rank != tensor->rank ||
        memcmp(grad->dims, tensor->dims, (size_t)grad->rank * sizeof *grad->dims) != 0)
        return FY_FAIL(
            SHAPE_MISMATCH, "tape_watch: grad %s cannot take the gradient of %s: another shape",
            fy__tensor_format(grad, into, sizeof into), fy__tensor_format(tensor, of, sizeof of));
    if (!grad->contiguous)
        return FY_FAIL(SHAPE_MISMATCH, "tape_watch: grad %s has gaps; give a dense tensor or view",
                       fy__tensor_format(grad, into, sizeof into));
    if (fy__tensor_overlaps(tensor, grad))
        return FY_FAIL(INVALID_ARGUMENT,
                       "tape_watch: grad %s shares bytes with the tensor, which a backward would "
                       "overwrite: give it other memory",
                       fy__tensor_format(grad, into, sizeof into));
    return FY_STATUS_OK;
}

/* Another watched handle on the same bytes, with its gradient in `grad`, is that tensor: *value.
 * Any other tensor whose gradient has bytes of `grad` is one that fy_tape_backward looks for. */
static void find_place(fy_tape_t *tape, const fy_tensor_t *tensor, const fy_tensor_t *grad,
                       uint32_t *value)
{
    const size_t nbytes = (size_t)tensor->rank * sizeof *tensor->dims;
    for (uint32_t i = 1; i <= tape->nleaves + (tape->is_spent ? 0 : tape->nvalues); i++) {
        const uint32_t other = i <= tape->nleaves ? i | FY__TAPE_LEAF : i - tape->nleaves;
        const fy__tape_slot_t *slot = fy__tape_slot(tape, other);
        if (other == *value || !slot->place || !fy__tensor_overlaps(slot->place, grad)) continue;
        if (*value || slot->tensor->data != tensor->data || slot->place->data != grad->data ||
            slot->rank != tensor->rank || memcmp(slot->dims, tensor->dims, nbytes) != 0 ||
            memcmp(slot->tensor->strides, tensor->strides, nbytes) != 0)
            tape->shares_places = true;
        else
            *value = other;
    }
}

fy_status_t fy_tape_watch(fy_tape_t *tape, fy_tensor_t *tensor, fy_tensor_t *grad)
{
    char text[112];
    fy__thread_t *thread = fy__thread();
    if (!thread) return FY_STATUS_OUT_OF_MEMORY;
    if (!tape || !tensor)
        return FY_FAIL(INVALID_ARGUMENT, "tape_watch: %s is NULL", tape ? "tensor" : "tape");
    FY_TRY(fy__tape_check_idle(tape, "tape_watch"));
    if (fy__tensor_is_gone(tensor)) return fy__refuse_gone("tape_watch", "tensor");
    if (!fy__tape_is_float(tensor->dtype))
        return FY_FAIL(DTYPE_MISMATCH, "tape_watch: %s has no gradient: only floats do",
                       fy__tensor_format(tensor, text, sizeof text));
    if (grad) FY_TRY(check_place(tensor, grad));
    /* two handles on the same bytes may have one number */
    uint32_t value = tensor->valued ? fy__tape_find_shared(tape, tensor) : 0;
    if (value && !fy__tape_slot(tape, value)->is_leaf)
        return FY_FAIL(INVALID_ARGUMENT,
                       "tape_watch: %s is a result of a watched tensor; watch it before "
                       "fy_tape_begin, or watch its sources instead",
                       fy__tensor_format(tensor, text, sizeof text));
    if (grad) find_place(tape, tensor, grad, &value);
    FY_TRY(fy__tape_alias_room(tape, tensor, 1));
    fy_tensor_t *place = NULL, *held = NULL;
    if (grad && !(place = fy__tape_hold(thread, grad))) return FY_STATUS_OUT_OF_MEMORY;
    if (value) {
        fy__tape_slot_t *slot = fy__tape_slot(tape, value);
        if (slot->place) fy__tensor_free(thread, slot->place);
        if (slot->grad) fy__tensor_free(thread, slot->grad);
        slot->place = place;
        slot->grad = NULL;
        slot->is_present = false;
        fy__tape_set(tape, tensor, value);
        return FY_STATUS_OK;
    }
    const bool inside = thread->tape == tape;
    fy_status_t status = inside ? fy__tape_grow((void **)&tape->values, &tape->values_room,
                                                tape->nvalues, 1, sizeof *tape->values)
                                : fy__tape_grow((void **)&tape->leaves, &tape->leaves_room,
                                                tape->nleaves, 1, sizeof *tape->leaves);
    if (status == FY_STATUS_OK && !(held = fy__tape_hold(thread, tensor)))
        status = FY_STATUS_OUT_OF_MEMORY;
    if (status != FY_STATUS_OK) {
        if (place) fy__tensor_free(thread, place);
        return status;
    }
    fy__tape_slot_t slot;
    fy__tape_slot_make(&slot, tensor);
    slot.is_leaf = true;
    slot.place = place;
    slot.tensor = held;
    if (inside)
        tape->values[tape->nvalues++] = slot;
    else
        tape->leaves[tape->nleaves++] = slot;
    fy__tape_set(tape, tensor, inside ? tape->nvalues : tape->nleaves | FY__TAPE_LEAF);
    return FY_STATUS_OK;
}

fy_status_t fy_tape_grad(const fy_tape_t *tape, const fy_tensor_t *tensor, fy_tensor_t **out_grad)
{
    char text[112];
    fy__thread_t *thread = fy__thread();
    if (!out_grad) return FY_FAIL(INVALID_ARGUMENT, "tape_grad: out_grad is NULL");
    *out_grad = NULL;
    if (!thread) return FY_STATUS_OUT_OF_MEMORY;
    if (!tape || !tensor)
        return FY_FAIL(INVALID_ARGUMENT, "tape_grad: %s is NULL", tape ? "tensor" : "tape");
    if (fy__tensor_is_gone(tensor)) return fy__refuse_gone("tape_grad", "tensor");
    const uint32_t value = fy__tape_find(tape, tensor);
    const fy__tape_slot_t *slot = value ? fy__tape_slot(tape, value) : NULL;
    if (!slot || !slot->is_leaf)
        return FY_FAIL(INVALID_ARGUMENT,
                       "tape_grad: %s is not watched by this tape\n  fy_tape_watch asks for a "
                       "gradient, before it is computed with",
                       fy__tensor_format(tensor, text, sizeof text));
    if (!slot->is_present) return FY_STATUS_OK;
    fy_tensor_t *grad = fy__tape_hold(thread, slot->grad);
    if (!grad) return FY_STATUS_OUT_OF_MEMORY;
    fy__handle_adopt(thread->frame, &grad->handle);
    *out_grad = grad;
    return FY_STATUS_OK;
}

fy_status_t fy_tape_query(const fy_tape_t *tape, fy_tape_info_t *out_info)
{
    FY_TRY(FY__CHECK_OUT(tape_info, "tape_query", out_info));
    if (!tape) return FY_FAIL(INVALID_ARGUMENT, "tape_query: tape is NULL");
    const fy__thread_t *thread = fy__thread();
    fy_tape_info_t info = { .struct_size = sizeof info,
                            .calls = tape->ncalls,
                            .watched = tape->nleaves,
                            .is_recording = thread && thread->tape == tape };
    for (uint32_t i = 0; i < tape->noperands; i++)
        info.saved += tape->operands[i].saved && tape->operands[i].saved->storage;
    for (uint32_t i = 0; i < tape->ncalls; i++)
        info.saved += fy__tape_again_saved(tape, &tape->calls[i]);
    for (uint32_t i = 0; i < tape->nvalues; i++) info.watched += tape->values[i].is_leaf;
    FY__WRITE(out_info, &info);
    return FY_STATUS_OK;
}
