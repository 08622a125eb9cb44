/* Recording: the operands and attributes that a call's rule needs later. Every step that can fail
 * is before the call runs, so each successful call is on the tape. Not here:
 * rules (rules.h), going back (backward.c). */
#include <string.h>

#include "ops/dispatch.h"
#include "ops/tape/tape.h"

enum { ATTRS_STEP = 16 };

static FY_COLD fy_status_t refuse_stale(const char *what, const fy_tensor_t *src, uint64_t seen,
                                        uint64_t version)
{
    char text[112];
    return FY_FAIL(BUSY,
                   "%s: the bytes of %s were written since the tape saw them first (version %llu, "
                   "now %llu), so its gradient would be that of other "
                   "values\n  Write after fy_tape_backward, or compute a new tensor",
                   what, fy__tensor_format(src, text, sizeof text), (unsigned long long)seen,
                   (unsigned long long)version);
}

/* A source with a gradient must still have the bytes that its value stands for: a write through
 * another view would go unnoticed. */
static inline fy_status_t check_unwritten(const fy__thread_t *thread, fy_tape_t *tape,
                                          const char *what, const fy_tensor_t *src, uint32_t value)
{
    fy__tape_slot_t *slot = fy__tape_slot(tape, value);
    const uint64_t version = fy__recording_version(thread, src->storage);
    if (slot->version == FY__TAPE_UNUSED) { /* the first use of a watched tensor */
        FY_TRY(fy__tape_check_other(tape, what, src));
        slot->version = version;
    }
    return FY_LIKELY(slot->version == version) ? FY_STATUS_OK
                                               : refuse_stale(what, src, slot->version, version);
}

fy_status_t fy__tape_check_unwritten(const fy__thread_t *thread, fy_tape_t *tape, const char *what,
                                     const fy_tensor_t *src, uint32_t value)
{
    return check_unwritten(thread, tape, what, src, value);
}

static FY_COLD fy_status_t refuse_without_rule(const char *what, const fy_tensor_t *src,
                                               bool is_registered)
{
    char text[112];
    return FY_FAIL(UNSUPPORTED,
                   "%s: it has no gradient rule, and %s depends on a watched tensor\n  %s", what,
                   fy__tensor_format(src, text, sizeof text),
                   is_registered ? "Give fy_op_def_t.backward when you register it"
                                 : "Call it after fy_tape_backward");
}

static FY_COLD fy_status_t refuse_write(const char *what, const fy_tensor_t *dst)
{
    char text[112];
    return FY_FAIL(
        BUSY, "%s: %s is watched by the tape that records now; write to it after fy_tape_backward",
        what, fy__tensor_format(dst, text, sizeof text));
}

/* `what` reads a constant. */
static inline fy_status_t read_constant(const fy_tape_t *tape, const char *what,
                                        const fy_tensor_t *tensor)
{
    FY_TRY(fy__tape_check_other(tape, what, tensor));
    return FY_LIKELY(!tape->again) ? FY_STATUS_OK : fy__tape_read_again(tape, tensor);
}

/* Sources, then (takes_old) what result 0 was. Which have gradients: bits, those from 31 on as
 * one. */
static inline fy_status_t take_sources(const fy__thread_t *thread, fy_tape_t *tape,
                                       const fy__op_row_t *row, size_t nsrc,
                                       const fy_tensor_t *const *src, fy_tensor_t *const *dst,
                                       fy__tape_operand_t *operands, uint32_t *out_valued)
{
    for (size_t i = 0; i < nsrc; i++) {
        const fy_tensor_t *tensor = src[i];
        /* the dispatcher refuses what is gone */
        const bool is_known = tensor && tensor->valued && !fy__tensor_is_gone(tensor);
        const uint32_t value = is_known ? fy__tape_find(tape, tensor) : 0;
        operands[i] = (fy__tape_operand_t){ .value = value };
        if (!value && tensor) FY_TRY(read_constant(tape, row->info.name, tensor));
        if (!value) continue;
        FY_TRY(check_unwritten(thread, tape, row->info.name, tensor, value));
        *out_valued |= 1u << (i < 31 ? i : 31);
    }
    if (row->gradient && row->gradient->takes_old) {
        const uint32_t value = fy__tape_find(tape, dst[0]);
        operands[nsrc] = (fy__tape_operand_t){ .value = value };
        if (!value) return FY_STATUS_OK;
        if (!fy__tape_slot(tape, value)->is_leaf)
            FY_TRY(check_unwritten(thread, tape, row->info.name, dst[0], value));
        *out_valued |= 1u << nsrc;
    }
    return FY_STATUS_OK;
}

/* Saves what the rule will look at: handles on sources, and blank ones for results that are not
 * there yet. */
static fy_status_t save(fy__thread_t *thread, fy_tape_t *tape, const fy__tape_rule_t *rule,
                        const void *attrs, uint32_t valued, size_t nsrc,
                        const fy_tensor_t *const *src, fy__tape_operand_t *operands, size_t ndst,
                        fy__tape_operand_t *result)
{
    if (rule->keeps_extents && attrs) {
        const int axis = ((const fy_axis_attrs_t *)attrs)->axis; /* not checked yet */
        for (size_t i = 0; i < nsrc; i++)
            operands[i].extent = axis >= 0 && axis < src[i]->rank ? src[i]->dims[axis] : 0;
    }
    const bool saves_sources = !rule->src_if || rule->src_if(attrs);
    const size_t most = rule->saved_srcs ? nsrc : sizeof rule->src_for;
    for (size_t i = 0; i < nsrc && i < most && saves_sources; i++) {
        const bool is_saved = i < sizeof rule->src_for && rule->src_for[i] & valued;
        if (!is_saved && !(rule->saved_srcs >> (i < 31 ? i : 31) & 1)) continue;
        FY_TRY(fy__tape_save(thread, tape, &operands[i], src[i]));
    }
    const bool saves_result = !rule->dst_if || rule->dst_if(attrs);
    for (size_t i = 0; i < ndst && i < sizeof rule->dst_for; i++) {
        const bool is_saved = rule->dst_for[i] & valued || rule->saved_dsts >> i & 1;
        if (i == 0 && !saves_result) continue;
        if (is_saved && !(result[i].saved = fy__tape_blank(thread))) return FY_STATUS_OUT_OF_MEMORY;
    }
    return FY_STATUS_OK;
}

static inline fy_status_t make_room(fy_tape_t *tape, uint32_t noperands, uint32_t nvalues,
                                    size_t attrs_nbytes)
{
    FY_TRY(fy__tape_grow((void **)&tape->calls, &tape->calls_room, tape->ncalls, 1,
                         sizeof *tape->calls));
    FY_TRY(fy__tape_grow((void **)&tape->operands, &tape->operands_room, tape->noperands, noperands,
                         sizeof *tape->operands));
    FY_TRY(fy__tape_grow((void **)&tape->values, &tape->values_room, tape->nvalues, nvalues,
                         sizeof *tape->values));
    return fy__tape_grow((void **)&tape->attrs, &tape->attrs_room, tape->nattrs,
                         (uint32_t)attrs_nbytes + ATTRS_STEP, 1);
}

fy_status_t fy__tape_before(fy__thread_t *thread, fy_tape_t *tape, const fy__op_row_t *row,
                            size_t nsrc, const fy_tensor_t *const *src, const void *attrs,
                            size_t ndst, fy_tensor_t *const *dst, bool *out_is_recorded)
{
    const fy__tape_rule_t *rule = row->gradient;
    const uint32_t nsources = (uint32_t)nsrc + (rule && rule->takes_old ? 1 : 0);
    uint32_t valued = 0;
    *out_is_recorded = false;
    if (rule && rule->takes_old && !dst[0]) return FY_STATUS_OK; /* the dispatcher will refuse it */
    FY_TRY(make_room(tape, nsources + (uint32_t)ndst, (uint32_t)ndst, row->info.attrs_nbytes));
    fy__tape_operand_t *operands = tape->operands + tape->noperands;
    FY_TRY(take_sources(thread, tape, row, nsrc, src, dst, operands, &valued));
    bool writes_valued = false;
    tape->given = 0;
    for (size_t j = 0; j < ndst; j++) {
        if (FY_UNLIKELY(tape->again != NULL) && dst[j] && row->info.inout >> (j < 31 ? j : 31) & 1)
            FY_TRY(fy__tape_check_state(thread, tape, row->info.name, dst[j]));
        const uint32_t value = dst[j] ? fy__tape_find(tape, dst[j]) : 0;
        if (value && fy__tape_slot(tape, value)->is_leaf)
            return refuse_write(row->info.name, dst[j]);
        if (dst[j] && row->info.inout >> (j < 31 ? j : 31) & 1) {
            if (!value) FY_TRY(fy__tape_check_other(tape, row->info.name, dst[j]));
            if (value && !(rule && rule->takes_old))
                return refuse_without_rule(row->info.name, dst[j], row->nkernels);
        }
        writes_valued |= value != 0 || (dst[j] && fy__tape_is_written(tape, dst[j]));
        if (dst[j]) FY_TRY(fy__tape_alias_room(tape, dst[j], (uint32_t)ndst));
        if (dst[j]) tape->given |= 1u << (j < 31 ? j : 31);
        operands[nsources + j] = (fy__tape_operand_t){ 0 };
    }
    if (!valued && !writes_valued) return FY_STATUS_OK;
    if (!rule || rule->is_refused) {
        for (size_t i = 0; i < nsrc; i++)
            if (operands[i].value)
                return refuse_without_rule(row->info.name, src[i], row->nkernels);
    }
    fy__tape_call_t *call = &tape->calls[tape->ncalls];
    *call = (fy__tape_call_t){ .rule = rule && valued && rule->run ? rule : NULL,
                               .name = row->info.name,
                               .first = tape->noperands,
                               .nsrc = (uint16_t)nsources,
                               .ndst = (uint16_t)ndst,
                               .attrs = (tape->nattrs + ATTRS_STEP - 1) / ATTRS_STEP * ATTRS_STEP };
    *out_is_recorded = true;
    if (!call->rule) return FY_STATUS_OK; /* what is overwritten becomes a constant */
    if (FY_UNLIKELY(tape->given)) FY_TRY(fy__tape_written_room(thread, tape, (uint32_t)ndst));
    if (attrs) memcpy(tape->attrs + call->attrs, attrs, row->info.attrs_nbytes);
    tape->nattrs = call->attrs + (uint32_t)row->info.attrs_nbytes;
    fy_status_t status =
        save(thread, tape, rule, attrs, valued, nsrc, src, operands, ndst, &operands[nsources]);
    if (FY_UNLIKELY(tape->remakes) && status == FY_STATUS_OK)
        status = fy__tape_save_for_maker(thread, tape, row, nsrc, src, ndst, dst);
    if (status != FY_STATUS_OK) fy__tape_given_up(thread, tape);
    return status;
}

void fy__tape_kept(fy__thread_t *thread, fy_tape_t *tape, fy_tensor_t *const *dst)
{
    const fy__tape_call_t *call = &tape->calls[tape->ncalls];
    fy__tape_operand_t *results = tape->operands + call->first + call->nsrc;
    const uint32_t maker = call->row ? tape->ncalls + 1 : 0;
    for (uint32_t j = 0; j < call->ndst; j++) {
        const uint64_t version = fy__recording_version(thread, dst[j]->storage);
        if (call->rule && results[j].saved) {
            fy__tape_save_result(&results[j], j == 0 ? maker : 0, dst[j], version);
        }
        if (!call->rule || !fy__tape_is_float(dst[j]->dtype) ||
            (call->rule->constant_dsts >> (j < 31 ? j : 31) & 1)) {
            fy__tape_set(tape, dst[j], 0);
            if (tape->nwritten) fy__tape_wrote_constant(thread, tape, dst[j]);
            continue;
        }
        if (tape->given >> (j < 31 ? j : 31) & 1) fy__tape_wrote(tape, dst[j], version);
        fy__tape_slot_t *slot = &tape->values[tape->nvalues];
        fy__tape_slot_make(slot, dst[j]);
        slot->version = version;
        slot->is_kept = results[j].saved != NULL;
        if (j == 0) slot->maker = maker;
        results[j].value = ++tape->nvalues;
        fy__tape_set(tape, dst[j], tape->nvalues);
    }
    if (!call->rule) return;
    tape->noperands += call->nsrc + call->ndst;
    tape->ncalls++;
}

void fy__tape_given_up(fy__thread_t *thread, fy_tape_t *tape)
{
    const fy__tape_call_t *call = &tape->calls[tape->ncalls];
    fy__tape_operand_t *operands = tape->operands + call->first;
    if (!call->rule) return;
    tape->nattrs = call->attrs;
    for (uint32_t i = 0; i < (uint32_t)call->nsrc + call->ndst; i++)
        if (operands[i].saved) fy__tape_free(thread, operands[i].saved);
}

fy_status_t fy__tape_make_room(fy_tape_t *tape, uint32_t noperands, uint32_t nvalues,
                               size_t attrs_nbytes)
{
    return make_room(tape, noperands, nvalues, attrs_nbytes);
}

fy__tape_call_t *fy__tape_next_call(fy_tape_t *tape, const fy__tape_rule_t *rule, const char *name,
                                    const void *attrs, size_t attrs_nbytes)
{
    fy__tape_call_t *call = &tape->calls[tape->ncalls];
    *call = (fy__tape_call_t){ .rule = rule,
                               .name = name,
                               .first = tape->noperands,
                               .attrs = (tape->nattrs + ATTRS_STEP - 1) / ATTRS_STEP * ATTRS_STEP };
    memcpy(tape->attrs + call->attrs, attrs, attrs_nbytes);
    tape->nattrs = call->attrs + (uint32_t)attrs_nbytes;
    return call;
}

/* ---- for views and transfers ---- */

static const char *const view_names[FY__VIEW_KINDS] = { "reshape", "transpose", "slice",
                                                        "broadcast" };

fy_status_t fy__tape_view(fy__thread_t *thread, fy__view_kind_t kind, const fy__view_attrs_t *attrs,
                          const fy_tensor_t *src, fy_tensor_t *view)
{
    fy_tape_t *tape = thread->tape;
    const uint32_t value = fy__tape_find(tape, src);
    if (!value) return fy__tape_read_again(tape, src);
    FY_TRY(check_unwritten(thread, tape, view_names[kind], src, value));
    FY_TRY(make_room(tape, 2, 1, sizeof *attrs));
    fy__tape_call_t *call = fy__tape_next_call(tape, &fy__tape_view_rules[kind], view_names[kind],
                                               attrs, sizeof *attrs);
    call->nsrc = call->ndst = 1;
    tape->operands[tape->noperands] = (fy__tape_operand_t){ .value = value };
    tape->operands[tape->noperands + 1] = (fy__tape_operand_t){ 0 };
    tape->given = 0;
    fy__tape_kept(thread, tape, &view);
    if (!(value & FY__TAPE_LEAF)) {
        fy__tape_slot_t *slot = &tape->values[tape->nvalues - 1];
        slot->maker = fy__tape_slot(tape, value)->maker;
        slot->is_kept = fy__tape_slot(tape, value)->is_kept;
    }
    return FY_STATUS_OK;
}

fy_status_t fy__tape_check_leaving_slow(const fy__thread_t *thread, const fy_tensor_t *src,
                                        const char *what)
{
    return fy__tape_find(thread->tape, src) ? refuse_without_rule(what, src, false)
                                            : read_constant(thread->tape, what, src);
}

fy_status_t fy__tape_check_replay(const fy__thread_t *thread, const fy__storage_t *storage)
{
    const fy_tape_t *tape = thread->tape;
    const uint64_t version = fy__recording_version(thread, storage);
    bool depends = false;
    for (uint32_t i = 0; i < tape->nleaves + tape->nvalues; i++) {
        const fy__tape_slot_t *slot = fy__tape_slot_at(tape, i);
        depends |= slot->storage == storage && (slot->is_leaf || slot->version == version);
    }
    for (uint32_t i = 0; i < tape->nwritten; i++) depends |= tape->written[i].storage == storage;
    if (!depends) return FY_STATUS_OK;
    return FY_FAIL(
        UNSUPPORTED,
        "graph_replay: it has no gradient rule, and the graph reads or writes bytes that "
        "depend on a watched tensor\n  Replay it after fy_tape_backward, or in a scope "
        "after fy_tape_begin(NULL): as constants");
}
